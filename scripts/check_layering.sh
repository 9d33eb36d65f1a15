#!/usr/bin/env bash
# Checks that includes point one way:
#   tools, bench, examples -> tuner -> runtime -> {generator, cache} -> include/quern
# that CUDA's headers are included nowhere, SQLite's only in cache/, LLVM's and clang's only in runtime/host/, and that the environment is
# read only at the edges. One line per fault; exits 1 when there is one.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

faults=0
fault() { echo "layering: $*" >&2; faults=$((faults + 1)); }

# search PATTERN FOLDER...: lines of C and C++ files that match, as file:line:text. Folders that do not exist are passed over.
search() {
  local pattern="$1" folder existing=()
  shift
  for folder in "$@"; do [ -d "$folder" ] && existing+=("$folder"); done
  [ ${#existing[@]} = 0 ] || grep -rnE --include='*.h' --include='*.c' --include='*.cc' --include='*.cuh' "$pattern" "${existing[@]}" || true
}

# includes FOLDER PATTERN: quoted and angled includes in the folder's C++ files that match, as file:line:text.
includes() { search "^ *# *include *[<\"]($2)" "$1"; }

forbid() {
  local folder="$1" pattern="$2" why="$3" line
  while IFS= read -r line; do
    [ -n "$line" ] && fault "$line ($why)"
  done < <(includes "$folder" "$pattern")
}

forbid include '(generator|cache|runtime|tuner|tools|bench|examples|templates)/' 'include/quern is the bottom: it includes only quern/ and the standard library'
while IFS= read -r line; do
  case "$line" in "" | *'<stddef.h>' | *'<stdint.h>') ;; *) fault "include/quern/quern.h:$line (C programs need nothing but stddef.h and stdint.h)" ;; esac
done < <(grep -nE '^ *# *include' include/quern/quern.h)
forbid generator '(cache|runtime|tuner|tools|bench|examples)/' 'generator sees only include/quern and templates'
forbid cache '(generator|runtime|tuner|tools|bench|examples|templates)/' 'cache sees only include/quern'
forbid runtime '(tuner|tools|bench|examples)/' 'runtime sees generator, cache and include/quern'
forbid runtime/c '(generator|cache)/' 'the C interface sees runtime and include/quern'
forbid tuner '(tools|bench|examples)/' 'tuner sees runtime and what lies below it'
forbid bench '(tools|examples)/' 'bench sees tuner and what lies below it'
forbid examples '(generator|cache|runtime|tuner|tools|bench)/' 'examples show the public headers alone'
for folder in generator cache runtime tuner tools bench examples include templates; do
  forbid "$folder" '(cuda|cuda_[a-z0-9_]*|nvrtc|cublas[A-Za-z_0-9]*|mma|cooperative_groups)\.(h|hpp)' 'CUDA headers are not needed to build'
done
for folder in generator runtime tuner tools bench examples include templates; do
  forbid "$folder" 'sqlite3' 'SQLite is cache/ alone'
done
for folder in generator cache tuner tools bench examples include templates; do
  forbid "$folder" '(llvm|clang|llvm-c|clang-c)/' 'LLVM is runtime/host/ alone'
done
while IFS= read -r line; do
  case "$line" in "" | runtime/host/*) ;; *) fault "$line (LLVM is runtime/host/ alone)" ;; esac
done < <(includes runtime '(llvm|clang|llvm-c|clang-c)/')
# Templates compile without any header but their own; embedded.h is how the generator gets at their text.
while IFS= read -r line; do
  [ -n "$line" ] && fault "$line (templates include only each other)"
done < <(search '^ *# *include *<' templates | grep -vE '^templates/(ptx/host|embedded\.h)' || true)
while IFS= read -r line; do
  case "$line" in "" | tools/main.cc:* | runtime/open_context.cc:* | examples/*) ;; *) fault "$line (the environment is read in runtime/open_context.cc and tools/main.cc alone)" ;; esac
done < <(search '\b(secure_)?getenv *\(' include templates generator cache runtime tuner bench tools examples)

if [ "$faults" -gt 0 ]; then
  echo "layering: $faults faults" >&2
  exit 1
fi
echo "layering: includes point one way"
