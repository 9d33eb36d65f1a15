#!/usr/bin/env python3
"""Writes tuner/oracle_grids.inc: the codebooks of the IQ weight types, published constants of the GGUF format.

The tables come from the PyPI package `gguf`. Each entry of a codebook is a few small integers; what is stored is their index in the
codebook's list of levels, packed with element 0 in the lowest bits.

    python3 -m venv venv && venv/bin/pip install gguf numpy && venv/bin/python scripts/make_oracle_grids.py > tuner/oracle_grids.inc
"""

import gguf.quants as quants

TABLES = [
    # name, class, bits of a level index
    ("kIq2XxsGrid", quants.IQ2_XXS, 2),
    ("kIq2XsGrid", quants.IQ2_XS, 2),
    ("kIq2SGrid", quants.IQ2_S, 2),
    ("kIq3XxsGrid", quants.IQ3_XXS, 3),
    ("kIq3SGrid", quants.IQ3_S, 3),
    ("kIq1Grid", quants.IQ1_S, 2),
]


def packed(entry, levels, bits):
    return sum(levels.index(int(value)) << (bits * j) for j, value in enumerate(entry))


def main():
    print("// Codebooks of the IQ weight types; made by scripts/make_oracle_grids.py. Level indices, element 0 in the lowest bits.")
    for name, cls, bits in TABLES:
        cls.init_grid()
        levels = [int(v) for v in cls.grid_map]
        grid = cls.grid.reshape(cls.grid_shape)
        words = [packed(entry, levels, bits) for entry in grid]
        print(f"// {cls.grid_shape[1]} elements of {bits} bits; levels {', '.join(map(str, levels))}.")
        print(f"constexpr std::uint16_t {name}[{len(words)}] = {{")
        for i in range(0, len(words), 16):
            print("    " + " ".join(f"0x{w:04x}," for w in words[i : i + 16]))
        print("};")


if __name__ == "__main__":
    main()
