#!/usr/bin/env bash
# Formats every C and C++ source in place; with --check, lists what is not formatted and exits 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

folders=()
for folder in include templates generator cache runtime tuner bench tools examples tests; do [ -d "$folder" ] && folders+=("$folder"); done
mapfile -t files < <(find "${folders[@]}" -name '*.h' -o -name '*.cc' -o -name '*.c' -o -name '*.cuh' | sort)
case "${1:-}" in
  "") clang-format -i "${files[@]}" && echo "format: ${#files[@]} files" ;;
  --check)
    found="$(mktemp)"
    trap 'rm -f "$found"' EXIT
    if clang-format --dry-run --Werror "${files[@]}" 2>"$found"; then
      echo "format: ${#files[@]} files are formatted"
    else
      grep -o '^[^:]*' "$found" | sort -u | grep -E '\.(h|c|cc|cuh)$' | sed 's/^/format: not formatted: /' >&2
      echo "format: run scripts/format.sh" >&2
      exit 1
    fi
    ;;
  *) echo "format: unknown argument '$1' (known: --check)" >&2; exit 2 ;;
esac
