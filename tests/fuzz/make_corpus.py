#!/usr/bin/env python3
"""Writes seed files for the GGUF fuzzer into a folder: small valid files and one file for each kind of fault.

    python3 tests/fuzz/make_corpus.py FOLDER

The committed corpus is these seeds plus what a fuzzing run found, minimized with `gguf_fuzz -merge=1 tests/fuzz/corpus/gguf FOLDER...`.
"""

import pathlib
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def entry(key, kind, value):
    return string(key) + struct.pack("<I", kind) + value


def tensor(name, dims, kind, offset):
    return string(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)


def gguf(entries=(), tensors=(), data=b"", version=3, alignment=32, magic=b"GGUF", tensor_count=None, entry_count=None):
    head = magic + struct.pack("<I", version)
    head += struct.pack("<QQ", len(tensors) if tensor_count is None else tensor_count, len(entries) if entry_count is None else entry_count)
    head += b"".join(entries) + b"".join(tensors)
    return head + b"\0" * (-len(head) % alignment) + data


def seeds():
    arch = entry("general.architecture", STRING, string("llama"))
    scalars = [
        entry("a.u8", U8, b"\1"), entry("a.i8", I8, b"\xff"), entry("a.u16", U16, b"\1\0"), entry("a.i16", I16, b"\1\0"),
        entry("a.u32", U32, b"\1\0\0\0"), entry("a.i32", I32, b"\1\0\0\0"), entry("a.f32", F32, struct.pack("<f", 1.5)),
        entry("a.bool", BOOL, b"\1"), entry("a.u64", U64, b"\1" + b"\0" * 7), entry("a.i64", I64, b"\1" + b"\0" * 7),
        entry("a.f64", F64, struct.pack("<d", 2.5)),
    ]
    words = entry("tokens", ARRAY, struct.pack("<IQ", STRING, 3) + string("a") + string("") + string("bc"))
    nested = entry("nested", ARRAY, struct.pack("<IQ", ARRAY, 2) + struct.pack("<IQ", U8, 2) + b"\1\2" + struct.pack("<IQ", U32, 1) + b"\0" * 4)
    q4 = tensor("blk.0.attn_q.weight", [64, 3], 2, 0)
    norm = tensor("blk.0.attn_norm.weight", [8], 0, 128)
    yield "plain", gguf([arch, entry("general.name", STRING, string("tiny"))], [q4, norm], b"\x11" * 160)
    yield "version2", gguf([arch], [q4], b"\x11" * 108, version=2)
    yield "scalars", gguf(scalars)
    yield "arrays", gguf([words, nested, entry("f", ARRAY, struct.pack("<IQ", F64, 2) + b"\0" * 16)])
    yield "no_tensors", gguf([arch])
    yield "empty", b""
    yield "tied", gguf([arch], [tensor("token_embd.weight", [32, 4], 8, 0), tensor("x.scale", [1], 0, 160)], b"\1" * 164)
    yield "experts", gguf([], [tensor("blk.0.ffn_up_exps.weight", [32, 2, 3], 2, 0), tensor("output.weight", [4, 2], 1, 128)], b"\1" * 144)
    yield "other_types", gguf([], [tensor("i", [3], 26, 0), tensor("future", [3], 43, 32), tensor("removed", [32, 2], 4, 32)], b"\1" * 32)
    yield "zero_dimension", gguf([], [tensor("z", [0, 5], 0, 0), tensor("w", [2, 2], 0, 0)], b"\1" * 16)
    yield "alignment64", gguf([entry("general.alignment", U32, struct.pack("<I", 64))], [tensor("w", [2, 2], 0, 64)], b"\1" * 80, alignment=64)
    for value in (0, 13, 1 << 30):
        yield f"alignment_{value}", gguf([entry("general.alignment", U32, struct.pack("<I", value))])
    yield "alignment_type", gguf([entry("general.alignment", U64, struct.pack("<Q", 32))])
    yield "architecture_type", gguf([entry("general.architecture", U32, b"\0" * 4)])
    yield "split", gguf([entry("split.count", U16, b"\3\0")])
    yield "split_type", gguf([entry("split.count", U32, b"\3\0\0\0")])
    yield "big_endian", b"GGUF\0\0\0\3" + b"\0" * 16
    yield "version1", gguf(version=1)
    yield "magic", gguf(magic=b"GGML")
    yield "count_tensors", gguf(tensor_count=2**64 - 1)
    yield "count_entries", gguf(entry_count=2**64 - 1)
    yield "key_length", gguf([struct.pack("<Q", 2**64 - 1)])
    yield "string_length", gguf([entry("k", STRING, struct.pack("<Q", 2**64 - 8))])
    yield "array_count", gguf([entry("k", ARRAY, struct.pack("<IQ", U64, 2**61))])
    yield "array_type", gguf([entry("k", ARRAY, struct.pack("<IQ", 13, 1))])
    yield "array_depth", gguf([entry("k", ARRAY, struct.pack("<IQ", ARRAY, 1) * 6 + struct.pack("<IQ", U8, 0))])
    yield "value_type", gguf([entry("k", 99, b"")])
    yield "key_twice", gguf([entry("k", U8, b"\0"), entry("k", U8, b"\0")])
    yield "name_length", gguf([], [struct.pack("<Q", 2**64 - 1) + b"\0" * 32])
    yield "name_twice", gguf([], [tensor("w", [2], 0, 0), tensor("w", [2], 0, 32)], b"\0" * 40)
    yield "dims5", gguf([], [tensor("w", [1, 1, 1, 1, 1], 0, 0)], b"\0" * 4)
    yield "dim_negative", gguf([], [tensor("w", [2**63, 1], 0, 0)], b"\0" * 4)
    yield "dims_wrap", gguf([], [tensor("w", [2**42 + 1, 2**42], 0, 0)], b"\0" * 4)
    yield "bytes_wrap", gguf([], [tensor("w", [2**62, 1], 0, 0)], b"\0" * 4)
    yield "type_garbage", gguf([], [tensor("w", [2], 2**32 - 1, 0)], b"\0" * 8)
    yield "rows_896", gguf([], [tensor("w", [896, 1], 12, 0)], b"\0" * 504)
    yield "offset_far", gguf([], [tensor("w", [2], 0, 2**40)], b"\0" * 8)
    yield "offset_wrap", gguf([], [tensor("w", [2], 0, 2**64 - 32)], b"\0" * 8)
    yield "offset_unaligned", gguf([], [tensor("w", [2], 0, 4)], b"\0" * 16)
    yield "overlap", gguf([], [tensor("a", [16], 0, 0), tensor("b", [16], 0, 32)], b"\0" * 96)


def main():
    folder = pathlib.Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in seeds():
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
