#!/usr/bin/env bash
# Checks that libquern.so shows the functions that the header declares, all of them in version QUERN_0.1, and nothing else.
#   exports.sh NM LIBRARY HEADER
set -euo pipefail
nm="$1" library="$2" header="$3"

shown="$("$nm" -D --defined-only "$library" | awk '$2 != "A" {print $3}' | sort)"
declared="$(grep -o '^QUERN_API [a-z0-9_ *]*\bquern_[a-z0-9_]*(' "$header" | sed -E 's/.*\b(quern_[a-z0-9_]*)\($/\1@@QUERN_0.1/' | sort)"
functions="$(grep -c '^QUERN_API ' "$header")"
[ "$(wc -l <<<"$declared")" = "$functions" ] || { echo "exports: $functions functions are declared, read only: $declared" >&2; exit 1; }
if ! diff <(echo "$declared") <(echo "$shown") >&2; then
  echo "exports: declared (<) and shown (>) differ" >&2
  exit 1
fi
echo "exports: $functions functions, each as QUERN_0.1, and nothing else"
