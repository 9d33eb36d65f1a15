#!/usr/bin/env bash
# Installs quern under a prefix, moves that elsewhere, and builds and runs a program against it: by find_package and by pkg-config.
#   run.sh CMAKE BUILD CC host|nohost     (nohost: without the host target the program must say what it misses, and exit 3)
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
cmake="$1" build="$2" cc="$3" host="$4"

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$cmake" --install "$build" --prefix "$work/first" >"$work/install.log" || { cat "$work/install.log" >&2; exit 1; }
mv "$work/first" "$work/prefix"
prefix="$work/prefix"
lib="$(dirname "$(find "$prefix" -name libquern.so)")"

# Nothing of the build folder's surroundings: the plugin has to be found where it was installed.
unset QUERN_HOST_PLUGIN LD_LIBRARY_PATH
export QUERN_CACHE_DIR="$work/store"

for file in "$prefix/bin/quern" "$prefix/include/quern/quern.h" "$lib/libquern.so.1" "$lib/pkgconfig/quern.pc" \
  "$lib/cmake/quern/"{quernConfig,quernConfigVersion,quernTargets}.cmake; do
  [ -f "$file" ] || { echo "consumer: not installed: ${file#"$prefix/"}" >&2; exit 1; }
done
if grep -rIl "$build" "$prefix"; then echo "consumer: the files above name the build folder" >&2; exit 1; fi

# check NAME COMMAND...: runs the program.
check() {
  local name="$1" rc=0
  shift
  "$@" >"$work/out" 2>&1 || rc=$?
  sed "s/^/consumer: $name: /" "$work/out"
  if [ "$host" = host ]; then
    [ "$rc" = 0 ] && grep -q 'as expected' "$work/out" && return
  else
    [ "$rc" = 3 ] && grep -q 'libquern_host.so' "$work/out" && return
  fi
  echo "consumer: $name: exit code $rc" >&2
  exit 1
}

"$cmake" -S "$here" -B "$work/build" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" >"$work/cmake.log" 2>&1 &&
  "$cmake" --build "$work/build" >>"$work/cmake.log" 2>&1 || { cat "$work/cmake.log" >&2; exit 1; }
check find_package "$work/build/consumer"

export PKG_CONFIG_PATH="$lib/pkgconfig"
# shellcheck disable=SC2046
"$cc" -std=c99 -Wall -Wextra -Werror -pedantic "$here/../../examples/multiply.c" -o "$work/by_pkg_config" $(pkg-config --cflags --libs quern)
check pkg-config env LD_LIBRARY_PATH="$lib" "$work/by_pkg_config"

"$prefix/bin/quern" --version | sed 's/^/consumer: command: /'
[ "$host" = nohost ] || "$prefix/bin/quern" explain mul_mat q4_0 m=1 n=256 k=256 --device host >/dev/null
