#!/usr/bin/env bash
# Runs the README's commands and checks that its C++ example is the one that is built:
#   every ```sh block that follows a line <!-- checked --> runs, in order, in one shell, at the top of the repository, and must succeed;
#   every ```cpp block that follows a line <!-- checked: FILE --> must occur in FILE word for word.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export QUERN_CACHE_DIR="${QUERN_CACHE_DIR:-$PWD/build/test-store}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

awk -v out="$work" '
  /^<!-- checked -->$/ { want = "sh"; next }
  /^<!-- checked: .* -->$/ { want = "cpp"; file = $3; next }
  want != "" && $0 == "```" want { inside = 1; n++; name = out "/" n "." want; if (want == "cpp") print file > (name ".file"); next }
  inside && $0 == "```" { inside = 0; want = ""; next }
  inside { print > name }
' README.md

blocks=0
for block in "$work"/*.cpp; do
  [ -e "$block" ] || continue
  file="$(cat "$block.file")"
  if ! python3 -c 'import sys; sys.exit(open(sys.argv[1]).read() not in open(sys.argv[2]).read())' "$block" "$file"; then
    echo "readme: the C++ example differs from $file" >&2
    exit 1
  fi
  echo "readme: the C++ example is that of $file"
  blocks=$((blocks + 1))
done
for block in $(ls "$work"/*.sh 2>/dev/null | sort -V); do
  echo "readme: running"
  sed 's/^/  /' "$block"
  bash -euo pipefail "$block"
  blocks=$((blocks + 1))
done
[ "$blocks" -gt 0 ] || { echo "readme: no checked block found" >&2; exit 1; }
echo "readme: $blocks blocks checked"
