#!/usr/bin/env bash
# Installs what is missing on a Debian or Ubuntu machine to build quern and run its tests: packages from apt, and NVRTC from its Python
# wheel where no CUDA toolkit is installed. Changes nothing when everything is there.
#   install_deps.sh [--no-lint] [--nvrtc-wheel]
#     --no-lint      leave out clang-format and clang-tidy
#     --nvrtc-wheel  fetch the wheel although a toolkit is installed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

lint=1
wheel=0
for argument in "$@"; do
  case "$argument" in
    --no-lint) lint=0 ;;
    --nvrtc-wheel) wheel=1 ;;
    *) echo "install_deps: unknown argument '$argument' (known: --no-lint, --nvrtc-wheel)" >&2; exit 2 ;;
  esac
done

nvrtc_version_13="13.0.88"
nvrtc_version_12="12.9.86"
nvrtc_directory="build/deps/nvrtc"

say() { echo "install_deps: $*"; }

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi
}

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]; }

# The LLVM development packages carry their version in their name. An installed one wins, then the oldest that apt offers from 14 up.
llvm_version() {
  local version
  for version in 14 15 16 17 18 19 20; do
    if installed "llvm-$version-dev" && installed "libclang-$version-dev"; then echo "$version"; return; fi
  done
  for version in 14 15 16 17 18 19 20; do
    if apt-cache show "libclang-$version-dev" >/dev/null 2>&1; then echo "$version"; return; fi
  done
  echo 14
}

packages=(build-essential ca-certificates ccache cmake git libboost-context-dev libcli11-dev libfmt-dev libgtest-dev libsodium-dev
          libsqlite3-dev ninja-build nlohmann-json3-dev pkg-config python3 zlib1g-dev)
[ "$lint" = 1 ] && packages+=(clang-format clang-tidy)

# The libraries that the host target's plugin is built from; the shared one is not among the headers' dependencies.
llvm_packages() { echo "llvm-$1-dev libclang-$1-dev libclang-cpp$1"; }

install_packages() {
  if ! command -v apt-get >/dev/null; then
    say "no apt-get here: install the equivalents of ${packages[*]} and the LLVM and clang development files (14 or newer) by hand"
    return
  fi
  local llvm missing=() package
  # A machine that has never run apt-get update offers nothing: look again after the update below.
  llvm="$(llvm_version)"
  for package in "${packages[@]}" $(llvm_packages "$llvm"); do
    installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} = 0 ]; then
    say "all packages are installed (LLVM $llvm)"
    return
  fi
  say "updating the package lists"
  as_root apt-get update -q >/dev/null
  llvm="$(llvm_version)"
  missing=()
  for package in "${packages[@]}" $(llvm_packages "$llvm"); do
    installed "$package" || missing+=("$package")
  done
  say "installing ${missing[*]}"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
}

toolkit_nvrtc() {
  local directory
  for directory in "${CUDA_HOME:-/usr/local/cuda}/lib64" /usr/local/cuda/lib64 /usr/local/cuda/targets/x86_64-linux/lib; do
    compgen -G "$directory/libnvrtc.so*" >/dev/null && { echo "$directory"; return; }
  done
  ldconfig -p 2>/dev/null | awk '/libnvrtc\.so/ {print $NF; exit}'
}

# A cubin loads on a driver of the same major version or newer, so a CUDA 12 driver gets NVRTC 12.
wheel_name() {
  if command -v nvidia-smi >/dev/null && nvidia-smi 2>/dev/null | grep -q 'CUDA Version: 12'; then
    echo "nvidia-cuda-nvrtc-cu12==$nvrtc_version_12"
  else
    echo "nvidia-cuda-nvrtc==$nvrtc_version_13"
  fi
}

pip_command() {
  if python3 -m pip --version >/dev/null 2>&1; then return; fi
  say "installing python3-pip"
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends python3-pip >/dev/null
}

install_nvrtc() {
  local found
  found="$(toolkit_nvrtc)"
  if [ -n "$found" ] && [ "$wheel" = 0 ]; then
    say "NVRTC comes with the CUDA toolkit ($found)"
    return
  fi
  if compgen -G "$nvrtc_directory/libnvrtc.so*" >/dev/null; then
    say "NVRTC is in $nvrtc_directory"
    return
  fi
  pip_command
  local name staging
  name="$(wheel_name)"
  say "fetching NVRTC from the Python wheel $name into $nvrtc_directory"
  mkdir -p build/deps
  staging="$(mktemp -d build/deps/nvrtc.XXXXXX)"
  if ! python3 -m pip install --quiet --disable-pip-version-check --root-user-action=ignore --no-deps --no-compile --target "$staging" "$name"; then
    rm -rf "$staging"
    say "could not fetch $name: kernels compile for the host target only"
    return
  fi
  # The libraries find each other by being neighbours; the rest of the wheel stays behind, its licence apart.
  mkdir "$staging/flat"
  find "$staging/nvidia" -name 'libnvrtc*.so*' -exec mv {} "$staging/flat/" \;
  find "$staging" -iname 'License*' -type f -exec cp {} "$staging/flat/LICENSE.txt" \; -quit
  rm -rf "$nvrtc_directory"
  mv "$staging/flat" "$nvrtc_directory"
  rm -rf "$staging"
}

install_packages
install_nvrtc
