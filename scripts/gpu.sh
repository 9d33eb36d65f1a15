#!/usr/bin/env bash
# Sweep, tune and bench on a GPU, with JSON and text into a folder. Builds nothing: it runs the command that is there, so that a machine
# without compilers can run it.
#   gpu.sh [--device cuda:N] [--problems FILE] [--budget 8m] [sweep] [tune] [bench] [memcheck] [torch]      (default: the first three)
#     memcheck: every op, type, layout and family under compute-sanitizer, a case each
#     torch: the integer ops against PyTorch's integer GEMM, through build/release/libquern.so
# Environment: OUT, the folder (default: ./out); QUERN, the command (default: build/release/quern).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

out="${OUT:-./out}"
quern="${QUERN:-build/release/quern}"
device=cuda:0
problems=bench/problems/headline.json
budget=8m
steps=()
while [ $# -gt 0 ]; do
  case "$1" in
    --device) device="$2"; shift 2 ;;
    --problems) problems="$2"; shift 2 ;;
    --budget) budget="$2"; shift 2 ;;
    sweep | tune | bench | memcheck | torch) steps+=("$1"); shift ;;
    *) echo "gpu: unknown argument '$1' (known: --device, --problems, --budget, sweep, tune, bench, memcheck, torch)" >&2; exit 2 ;;
  esac
done
[ ${#steps[@]} -gt 0 ] || steps=(sweep tune bench)

mkdir -p "$out"
export QUERN_CACHE_DIR="${QUERN_CACHE_DIR:-$PWD/build/gpu-store}"
failed=0

# record NAME COMMAND...: JSON into $out/NAME.json, the log into $out/NAME.log.
record() {
  local name="$1" start=$SECONDS
  shift
  echo "\$ $*"
  if "$@" --json >"$out/$name.json" 2>"$out/$name.log"; then
    echo "gpu: $name: done in $((SECONDS - start)) s"
  else
    echo "gpu: $name: FAILED after $((SECONDS - start)) s, the log ends:" >&2
    tail -5 "$out/$name.log" >&2
    failed=1
  fi
}

"$quern" doctor | tee "$out/doctor.txt"
for step in "${steps[@]}"; do
  case "$step" in
    sweep) record sweep "$quern" sweep --device "$device" --full ;;
    tune)
      record tune "$quern" tune "$problems" --device "$device" --budget "$budget"
      "$quern" tune "$problems" --device "$device" --budget 1 >"$out/tune.txt" 2>/dev/null || true
      ;;
    torch)
      if python3 tests/c/torch_oracle.py >"$out/torch.txt" 2>&1; then
        echo "gpu: $(tail -1 "$out/torch.txt")"
      else
        echo "gpu: torch: FAILED, the log ends:" >&2
        tail -5 "$out/torch.txt" >&2
        failed=1
      fi
      ;;
    bench) record bench "$quern" bench --device "$device" ;;
    memcheck)
      # Many workers at once take minutes to start under the sanitizer.
      if compute-sanitizer --target-processes all --tool memcheck --error-exitcode 9 "$quern" sweep --device "$device" --quick --every 1000 \
        --workers 4 >"$out/memcheck.txt" 2>&1; then
        echo "gpu: memcheck: $(grep 'ERROR SUMMARY' "$out/memcheck.txt" | sort -u | tr '\n' ' ')"
      else
        echo "gpu: memcheck: FAILED, the log ends:" >&2
        tail -5 "$out/memcheck.txt" >&2
        failed=1
      fi
      ;;
  esac
done
"$quern" cache export "$out/store.sqlite" >/dev/null 2>&1 || true
exit "$failed"
