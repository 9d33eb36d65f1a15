#!/usr/bin/env bash
# Fetches ggml and builds its CPU back end into build/deps/ggml, for the optional test against it (tests/ggml/). ggml's sources come out of
# the source package of its Python binding; the package is checked against its SHA-256 before anything in it runs. Nothing is installed
# outside that folder, and nothing is fetched or built when it is there in this version.
#   fetch_ggml.sh
# Needs pip, CMake, Ninja and a C compiler (scripts/install_deps.sh --no-lint). On x86-64 the library uses AVX2, FMA and F16C.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

package=llama-cpp-python
version=0.3.36
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
folder=build/deps/ggml

say() { echo "fetch_ggml: $*"; }
fail() { echo "fetch_ggml: $*" >&2; exit 1; }

[ $# = 0 ] || fail "unknown argument '$1' (it takes none)"
if [ "$(cat "$folder/version" 2>/dev/null)" = "$package $version" ]; then
  say "ggml of $package $version is in $folder"
  exit 0
fi
for tool in cmake ninja python3 tar; do
  command -v "$tool" >/dev/null || fail "$tool is not installed, needed to build ggml (scripts/install_deps.sh --no-lint installs it)"
done
python3 -m pip --version >/dev/null 2>&1 || fail "pip is not installed, needed to fetch $package"
if [ "$(uname -m)" = x86_64 ] && ! grep -qw avx2 /proc/cpuinfo; then fail "this CPU has no AVX2, needed by the library as it is built here"; fi

mkdir -p build/deps
staging="$(mktemp -d build/deps/ggml.XXXXXX)"
trap 'rm -rf "$staging"' EXIT

say "fetching the source package $package $version (77 MB)"
echo "$package==$version --hash=sha256:$sha256" >"$staging/requirements.txt"
# Only this package has to come as source: pip's own build tools may be wheels.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary "$package" --require-hashes \
  --requirement "$staging/requirements.txt" --dest "$staging" || fail "could not fetch $package $version"
archive="$(find "$staging" -maxdepth 1 -name '*.tar.gz')"
echo "$sha256  $archive" | sha256sum --check --quiet || fail "$archive differs from the SHA-256 that is pinned, $sha256"

mkdir "$staging/source"
tar -xzf "$archive" -C "$staging/source" --strip-components=3 --wildcards '*/vendor/llama.cpp/ggml/*' '*/vendor/llama.cpp/LICENSE'
# A file that only ggml's own installation uses, but which it insists on; the package leaves it out.
touch "$staging/source/ggml/ggml.pc.in"

say "building ggml's CPU back end with $(nproc) jobs"
log="$staging/build.log"
launcher=()
if command -v ccache >/dev/null; then launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache -DCMAKE_CXX_COMPILER_LAUNCHER=ccache); fi
if ! { cmake -S "$staging/source/ggml" -B "$staging/build" -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
         -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_BUILD_TESTS=OFF -DGGML_BUILD_EXAMPLES=OFF "${launcher[@]}" &&
       cmake --build "$staging/build" -j "$(nproc)" --target ggml-cpu ggml-base; } >"$log" 2>&1; then
  tail -20 "$log" >&2
  fail "could not build ggml, the log ends above"
fi

mkdir -p "$staging/ready/lib"
cp -r "$staging/source/ggml/include" "$staging/source/LICENSE" "$staging/ready/"
find "$staging/build" \( -name 'libggml-cpu.a' -o -name 'libggml-base.a' \) -exec cp {} "$staging/ready/lib/" \;
echo "$package $version" >"$staging/ready/version"
rm -rf "$folder"
mv "$staging/ready" "$folder"
say "ggml of $package $version is in $folder: $(cd "$folder/lib" && echo *.a)"
