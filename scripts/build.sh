#!/usr/bin/env bash
# Configures and builds one preset into build/<preset>.
#   build.sh [release|dev|asan] [target...]      (default: release, everything)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset="${1:-release}"
shift || true

echo "build: configuring build/$preset"
if ! log="$(cmake --preset "$preset" 2>&1)"; then
  echo "$log" >&2
  exit 1
fi
# NVRTC from the wheel, where there is no toolkit: the command looks for a folder 'nvrtc' beside itself.
if [ -d build/deps/nvrtc ] && [ ! -e "build/$preset/nvrtc" ]; then
  ln -s ../deps/nvrtc "build/$preset/nvrtc"
fi
echo "build: building build/$preset with $(nproc) jobs"
if [ $# -gt 0 ]; then
  cmake --build "build/$preset" -j "$(nproc)" --target "$@"
else
  cmake --build "build/$preset" -j "$(nproc)"
fi
