#!/usr/bin/env python3
"""Writes tests/data/dequant_vectors/<type>.bin: rows of every weight type and their values as the PyPI package `gguf` decodes them.

    python3 -m venv venv && venv/bin/pip install gguf==0.19.0 numpy && venv/bin/python scripts/make_vectors.py tests/data/dequant_vectors

One file per type, little endian:

    file = "QDV1" type_id:u32 k:u32 rows:u32 origin:u32 row*
    row  = byte{row bytes} f32{k}

origin is 0 when the values are the package's, 1 when the package cannot decode the type and they follow from its definition (below).
Each row is two blocks. Rows: valid random; arbitrary finite scale bits of either sign; zero and negative-zero scale; smallest denormal
and largest scale; all quant bits set and all clear under a scale of one. No scale is infinite or NaN.

digests.txt covers what a few rows cannot, every codebook entry among it: a line "type blocks digest" for blocks made of splitmix64 numbers
(state 0, little endian; the top exponent bit of every f16 scale cleared). The digest is the sum of bits[i] * (2i + 1) over the f32 bits of
all elements, modulo 2^64, in hexadecimal.
"""

import pathlib
import struct
import sys

import gguf
import numpy as np

# Type: id, elements and bytes of a block, byte offsets of its f16 fields.
F16_FIELDS = {
    "q4_0": (2, 32, 18, [0]), "q4_1": (3, 32, 20, [0, 2]), "q5_0": (6, 32, 22, [0]), "q5_1": (7, 32, 24, [0, 2]), "q8_0": (8, 32, 34, [0]),
    "q2_k": (10, 256, 84, [80, 82]), "q3_k": (11, 256, 110, [108]), "q4_k": (12, 256, 144, [0, 2]), "q5_k": (13, 256, 176, [0, 2]),
    "q6_k": (14, 256, 210, [208]), "iq2_xxs": (16, 256, 66, [0]), "iq2_xs": (17, 256, 74, [0]), "iq3_xxs": (18, 256, 98, [0]),
    "iq1_s": (19, 256, 50, [0]), "iq4_nl": (20, 32, 18, [0]), "iq3_s": (21, 256, 110, [0]), "iq2_s": (22, 256, 82, [0]),
    "iq4_xs": (23, 256, 136, [0]), "iq1_m": (29, 256, 56, []), "tq1_0": (34, 256, 54, [52]), "tq2_0": (35, 256, 66, [64]),
    "mxfp4": (39, 32, 17, []), "nvfp4": (40, 64, 36, []), "q1_0": (41, 128, 18, [0]), "q2_0": (42, 64, 18, [0]),
}
FLOATS = {"f32": (0, 4), "f16": (1, 2), "bf16": (30, 2)}

ONE, ZERO, MINUS_ZERO, DENORMAL, LARGEST = 0x3C00, 0x0000, 0x8000, 0x0001, 0x7BFF


def set_scale(name, block, fields, half_bits, rng):
    """Writes half_bits as every f16 scale of the block; E8M0 and E4M3 scales get a counterpart."""
    for at in fields:
        block[at : at + 2] = np.frombuffer(struct.pack("<H", half_bits), np.uint8)
    if name == "iq1_m":  # the scale is spread over the top nibbles of four words
        for w in range(4):
            block[49 + 2 * w] = (block[49 + 2 * w] & 0x0F) | (((half_bits >> (4 * w)) & 15) << 4)
    if name == "mxfp4":
        block[0] = {ZERO: 0, MINUS_ZERO: 1, DENORMAL: 2, LARGEST: 255, ONE: 127}.get(half_bits, int(rng.integers(0, 255)))
    if name == "nvfp4":
        edge = {ZERO: [0, 0, 0, 0], MINUS_ZERO: [0x80, 0x80, 0x7F, 0xFF], DENORMAL: [1, 2, 7, 8], LARGEST: [0x7E, 0x7D, 0x78, 0x77], ONE: [0x38] * 4}
        block[0:4] = np.array(edge.get(half_bits, rng.integers(0, 127, 4)), np.uint8)


def rows_of(name, size, fields, rng):
    def random_block(half_bits):
        block = rng.integers(0, 256, size, dtype=np.uint8)
        set_scale(name, block, fields, half_bits, rng)
        return block

    def filled_block(byte):
        block = np.full(size, byte, np.uint8)
        set_scale(name, block, fields, ONE, rng)
        return block

    def finite():
        return int(rng.integers(0, 0x7C00)) | int(rng.integers(0, 2)) << 15

    def valid():
        return int(np.float16(rng.uniform(0.001, 0.1)).view(np.uint16))

    blocks = [valid(), valid()], [finite(), finite()], [ZERO, MINUS_ZERO], [DENORMAL, LARGEST]
    rows = [np.concatenate([random_block(b) for b in pair]) for pair in blocks]
    return rows + [np.concatenate([filled_block(0xFF), filled_block(0x00)])]


def float_rows(name, rng):
    if name == "f32":
        edge = [0, 1 << 31, 1, 0x007FFFFF, 0x00800000, 0x3F800000, 0xBF800001, 0x7F7FFFFF, 0x7F800000, 0xFF800000]
        bits = np.array(edge + [int(v) for v in rng.integers(0, 0x7F800000, 54)], np.uint32)
    else:
        infinity = 0x7C00 if name == "f16" else 0x7F80
        edge = [0, 0x8000, 1, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC01, infinity - 1, infinity, infinity | 0x8000]
        bits = np.array(edge + [int(v) for v in rng.integers(0, infinity, 53)], np.uint16)
    return [bits.view(np.uint8)]


def by_definition(name, row):
    """Q1_0: bit (lowest first) ? d : -d. Q2_0: (two bits - 1) * d, lowest first."""
    _, elements, size, _ = F16_FIELDS[name]
    blocks = row.reshape(-1, size)
    d = blocks[:, :2].copy().view(np.float16).astype(np.float32)
    if name == "q1_0":
        bits = np.unpackbits(blocks[:, 2:], axis=-1, bitorder="little")
        return np.where(bits == 1, d, -d).reshape(-1)
    q = (blocks[:, 2:, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    return ((q.reshape(-1, elements).astype(np.float32) - 1) * d).reshape(-1)


def decode(name, type_id, row):
    try:
        return 0, gguf.dequantize(row.reshape(1, -1), gguf.GGMLQuantizationType(type_id)).reshape(-1)
    except (ValueError, NotImplementedError):
        return 1, by_definition(name, row)


def write(folder, name, type_id, rows):
    decoded = [decode(name, type_id, row) for row in rows]
    body = b"".join(row.tobytes() + values.astype("<f4").tobytes() for row, (_, values) in zip(rows, decoded))
    head = b"QDV1" + struct.pack("<IIII", type_id, decoded[0][1].size, len(rows), decoded[0][0])
    (folder / f"{name}.bin").write_bytes(head + body)


def splitmix64_bytes(count):
    words = np.arange(1, (count + 7) // 8 + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (words ^ (words >> np.uint64(31))).astype("<u8").view(np.uint8)[:count].copy()


def digest_line(name, type_id, elements, size, fields):
    blocks = 262144 // elements  # 32768 draws from the largest codebook, of 2048 entries
    data = splitmix64_bytes(blocks * size).reshape(blocks, size)
    for at in fields if name != "iq1_m" else [54]:  # the top nibble of the fourth word is the top nibble of the scale
        data[:, at + 1] &= 0xBF
    bits = decode(name, type_id, data.reshape(-1))[1].view(np.uint32).astype(np.uint64)
    digest = int((bits * np.arange(1, 2 * bits.size, 2, dtype=np.uint64)).sum(dtype=np.uint64))
    return f"{name} {blocks} {digest:016x}\n"


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(20)
    with np.errstate(all="ignore"):
        for name, (type_id, _) in FLOATS.items():
            write(folder, name, type_id, float_rows(name, rng))
        for name, (type_id, _, size, fields) in F16_FIELDS.items():
            write(folder, name, type_id, rows_of(name, size, fields, rng))
        (folder / "digests.txt").write_text("".join(digest_line(name, *rest) for name, rest in F16_FIELDS.items()))


if __name__ == "__main__":
    main()
