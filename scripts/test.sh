#!/usr/bin/env bash
# Installs what is missing, builds build/release and runs everything that needs no GPU: the unit tests, the quick sweep of all kernels on the
# host target, and the commands and the C++ example of the README.
#   test.sh [--lint] [--asan]
#     --lint   formatting, layering and clang-tidy first
#     --asan   also the kernel tests, and a part of the sweep that meets every op, type, layout and family, under the address and
#              undefined-behaviour sanitizers
# The last line is "N passed, N failed"; exits 0 when none failed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lint=0
asan=0
for argument in "$@"; do
  case "$argument" in
    --lint) lint=1 ;;
    --asan) asan=1 ;;
    *) echo "test: unknown argument '$argument' (known: --lint, --asan)" >&2; exit 2 ;;
  esac
done

passed=0
failed=0
started=$SECONDS
export QUERN_CACHE_DIR="$PWD/build/test-store"

# step NAME COMMAND...: one more passed or failed.
step() {
  local name="$1"
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "test: FAILED: $name" >&2; fi
}

# Every test of ctest counts as one.
unit_tests() {
  local folder="$1" log
  shift
  log="$folder/ctest.log"
  printf '\n== Tests in %s\n' "$folder"
  ctest --test-dir "$folder" --output-on-failure -j "$(nproc)" "$@" 2>&1 | tee "$log" || true
  local total bad
  total="$(sed -n 's/.* tests failed out of \([0-9]*\)$/\1/p' "$log")"
  bad="$(sed -n 's/.*, \([0-9]*\) tests failed out of .*/\1/p' "$log")"
  if [ -z "$total" ] || [ "$total" = 0 ]; then
    echo "test: FAILED: no test ran in $folder" >&2
    failed=$((failed + 1))
    return
  fi
  passed=$((passed + total - bad))
  failed=$((failed + bad))
}

printf '== Installing and building\n'
if [ "$lint" = 1 ]; then scripts/install_deps.sh; else scripts/install_deps.sh --no-lint; fi
scripts/build.sh release
echo "test: built after $((SECONDS - started)) s"

if [ "$lint" = 1 ]; then step "Formatting, layering, lint" scripts/lint.sh build/release; fi
unit_tests build/release
# Every third of the quick sweep's 5106 cases: all of them would take two cores about 18 minutes. Every op, type, layout and family is among them.
step "Quick sweep on the host target" build/release/quern sweep --device host --quick --every 3 --junit build/release/sweep.xml
step "Commands of the README" scripts/check_readme.sh

# Every fourth of the quick sweep's cases: every op, type, layout and family is among them (sweep --help, --every).
if [ "$asan" = 1 ]; then
  export ASAN_OPTIONS=detect_leaks=0  # LLVM and the pool of fibers keep what they have until the end
  # Two cores take some 25 minutes for these tests, and as long for the sweep.
  scripts/build.sh asan quern decoder_test templates_{bank_conflicts,field_cases,hardware_header,int8_rows,numbers,out_prod,repack,route,rpbh,w4a4}_test
  unit_tests build/asan -R '^(templates_.*|decoder_test)$' --timeout 2400
  step "Sweep under the sanitizers" build/asan/quern sweep --device host --quick --every 4
fi

echo
echo "test: $((SECONDS - started)) s"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
