#!/usr/bin/env bash
# The main job from nothing: installs what is missing, builds, tunes a small model in the GGUF format on the GPU if there is one, else on the
# host target, and shows that the second run is served from the store.
#   demo.sh [DEVICE]      (default: auto)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

device="${1:-auto}"
quern=build/release/quern
model=build/demo.gguf
export QUERN_CACHE_DIR="$PWD/build/demo-store"  # a store of its own, so that the first run has everything to do

say() { printf '\n== %s\n' "$*"; }
run() { printf '$ %s\n' "$*"; "$@"; }

say "Installing what is missing"
scripts/install_deps.sh --no-lint
say "Building"
scripts/build.sh release quern make_model

say "What works on this machine"
run $quern doctor

say "A small model: matrices of five types, random weights"
run build/release/examples/make_model $model

# On a CPU every candidate takes a thousand times as long; one row of X keeps the demo to a few minutes.
if [ "$device" = host ] || ! $quern doctor --json | grep -q '"cuda:0"'; then
  rows=1
else
  rows=1,8,64,512
fi
rm -rf "$QUERN_CACHE_DIR"
say "Tuning it: every candidate is compiled, verified against double precision, timed and stored"
run $quern tune $model --device "$device" --m "$rows"

say "Again: answered by the store, nothing is compiled or measured"
second="$($quern tune $model --device "$device" --m "$rows" --json)"
compiled="$(grep -o '"compiled":[0-9]*' <<<"$second" | head -1 | cut -d: -f2)"
problems="$(grep -o '"from_store":true' <<<"$second" | wc -l)"
echo "$problems problems answered by the store, compile count $compiled"
[ "$compiled" = 0 ] || { echo "demo: the second run compiled $compiled kernels, expected 0" >&2; exit 1; }

say "What would run, from where, and why"
run $quern explain mul_mat q4_0 m=1 n=256 k=256 --device "$device"
say "Done. Tune a model of your own: $quern tune MODEL.gguf"
