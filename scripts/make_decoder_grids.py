#!/usr/bin/env python3
"""Writes templates/decode/grid_*.cuh: the codebooks of the IQ weight types as kernels look them up.

The tables are published constants of the GGUF format and come from the PyPI package `gguf`. IQ2 and IQ3 entries are bytes of 64 + magnitude
(templates/decode/grid.cuh), an IQ1 entry is eight nibbles of level + 1 (templates/decode/iq1.cuh).

    python3 -m venv venv && venv/bin/pip install gguf numpy && venv/bin/python scripts/make_decoder_grids.py
"""

import pathlib

import gguf.quants as quants

FOLDER = pathlib.Path(__file__).resolve().parent.parent / "templates" / "decode"
GRIDS = [
    # file, table, class, what a comment calls the type
    ("iq2_xxs", "kGridIq2Xxs", quants.IQ2_XXS, "IQ2_XXS"),
    ("iq2_xs", "kGridIq2Xs", quants.IQ2_XS, "IQ2_XS"),
    ("iq2_s", "kGridIq2S", quants.IQ2_S, "IQ2_S"),
    ("iq3_xxs", "kGridIq3Xxs", quants.IQ3_XXS, "IQ3_XXS"),
    ("iq3_s", "kGridIq3S", quants.IQ3_S, "IQ3_S"),
    ("iq1", "kGridIq1", quants.IQ1_S, "IQ1_S and IQ1_M"),
]


def entries_of(cls):
    cls.init_grid()
    return [[int(value) for value in entry] for entry in cls.grid.reshape(cls.grid_shape)]


def word(values):
    """Four bytes, the first lowest."""
    return sum(value << (8 * i) for i, value in enumerate(values))


def ternary_text(entry):
    return f"0x{word(a + 1 for a in entry[:4]) | word(a + 1 for a in entry[4:]) << 4:08x}"


def magnitude_text(entry):
    words = [f"0x{word(64 + a for a in entry[i : i + 4]):08x}" for i in range(0, len(entry), 4)]
    return words[0] if len(words) == 1 else "{" + ", ".join(words) + "}"


def file_text(table, cls, what):
    entries = entries_of(cls)
    ternary = min(min(entry) for entry in entries) < 0
    texts = [ternary_text(e) if ternary else magnitude_text(e) for e in entries]
    each = "level + 1 of eight weights in nibbles" if ternary else f"64 + magnitude of {len(entries[0])} weights"
    kind = "u32x2" if texts[0].startswith("{") else "u32"
    per_line = 5 if kind == "u32x2" else 11
    lines = ["    " + ", ".join(texts[i : i + per_line]) + "," for i in range(0, len(texts), per_line)]
    return (
        f"// The codebook of {what}, made by scripts/make_decoder_grids.py: {each}.\n#pragma once\n\n"
        '#include "ptx/ptx.cuh"\n\nnamespace quern::decode {\n\n// clang-format off\n'
        f"QUERN_TABLE {kind} {table}[{len(texts)}] = {{\n" + "\n".join(lines) + "\n};\n// clang-format on\n\n}  // namespace quern::decode\n"
    )


def main():
    for name, table, cls, what in GRIDS:
        (FOLDER / f"grid_{name}.cuh").write_text(file_text(table, cls, what))


if __name__ == "__main__":
    main()
