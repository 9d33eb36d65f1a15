#!/usr/bin/env bash
# Formatting, layering, shell syntax, and a short allow-list of clang-tidy checks.
#   lint.sh [--all] [BUILD_FOLDER]
#     default: clang-tidy runs over sources that are changed or were in the last commit, a few at most
#     --all: over every source; a few minutes on two cores
# BUILD_FOLDER (default: the first of build/release, build/dev that exists) holds compile_commands.json; without one, clang-tidy is left out.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

most_sources=6  # half a minute each on a slow core
all=0
[ "${1:-}" = --all ] && { all=1; shift; }
build="${1:-}"
if [ -z "$build" ]; then
  for candidate in build/release build/dev; do
    [ -f "$candidate/compile_commands.json" ] && { build="$candidate"; break; }
  done
fi

failed=0
scripts/format.sh --check || failed=1
scripts/check_layering.sh || failed=1
for script in scripts/*.sh .ci/run; do
  bash -n "$script" || failed=1
done

# Words that mark unfinished work.
marks='\b(TO''DO|FIX''ME|XX''X)\b'
if grep -rnE "$marks" --exclude=LICENSE --exclude-dir=build --exclude-dir=.git .; then
  echo "lint: unfinished work is marked above" >&2
  failed=1
fi

# Every test that docs/field-cases.md names.
while IFS=. read -r suite name; do
  grep -rqE "^TEST(_F|_P)?\\($suite, $name\\)" tests || { echo "lint: docs/field-cases.md names $suite.$name, which no test is" >&2; failed=1; }
done < <(grep -oE '`[A-Z][A-Za-z0-9]*\.[A-Z][A-Za-z0-9]*`' docs/field-cases.md | tr -d '`')

changed_sources() {
  if [ "$all" = 1 ]; then
    find generator cache runtime tuner bench tools examples tests -name '*.cc' 2>/dev/null | sort
  else
    { git diff --name-only HEAD -- '*.cc'; git diff --name-only HEAD~1 HEAD -- '*.cc' 2>/dev/null || true; } | sort -u
  fi
}

if [ -n "$build" ] && command -v clang-tidy >/dev/null; then
  # Only what the build compiles here: the LLVM plugin may be absent.
  mapfile -t sources < <(changed_sources | while IFS= read -r f; do [ -f "$f" ] && grep -q "/$f\"" "$build/compile_commands.json" && echo "$f"; done)
  if [ "$all" = 0 ] && [ ${#sources[@]} -gt "$most_sources" ]; then
    echo "lint: ${#sources[@]} changed sources, clang-tidy looks at $most_sources of them (--all: at every source)"
    mapfile -t sources < <(printf '%s\n' "${sources[@]}" | shuf -n "$most_sources" --random-source=<(yes "$(git rev-parse HEAD 2>/dev/null || echo 0)"))
  fi
  if [ ${#sources[@]} -gt 0 ]; then
    echo "lint: clang-tidy over ${#sources[@]} sources"
    printf '%s\0' "${sources[@]}" | xargs -0 -n 1 -P "$(nproc)" clang-tidy --quiet -p "$build" 2>/dev/null || failed=1
  else
    echo "lint: no changed source for clang-tidy"
  fi
else
  echo "lint: clang-tidy left out (no compile_commands.json, or not installed)"
fi

[ "$failed" = 0 ] || { echo "lint: failed" >&2; exit 1; }
echo "lint: clean"
