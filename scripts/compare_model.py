#!/usr/bin/env python3
"""Compares quern's GGUF reader and oracle with the PyPI package `gguf` on a real model: every tensor's name, type, shape and place, and the
f32 bits of the rows that gguf_dump sampled.

    build/release/tests/gguf_dump MODEL.gguf 8 | venv/bin/python scripts/compare_model.py MODEL.gguf
"""

import sys

import gguf
import numpy as np


def main():
    reader = gguf.GGUFReader(sys.argv[1])
    theirs = {t.name: t for t in reader.tensors}
    ours, rows, failures = {}, 0, 0
    for line in sys.stdin:
        kind, *rest = line.split()
        if kind == "tensor":
            name, type_id, offset, size, *ne = rest
            ours[name] = (int(type_id), int(offset), int(size), [int(v) for v in ne])
        elif kind == "row":
            name, index, bits = rest
            tensor = theirs[name]
            row = tensor.data.reshape(-1, tensor.data.shape[-1])[int(index)]
            expected = gguf.dequantize(np.ascontiguousarray(row).reshape(1, -1), tensor.tensor_type).astype(np.float32).tobytes()
            rows += 1
            if bytes.fromhex(bits) != expected:
                failures += 1
                print(f"row {index} of {name} ({tensor.tensor_type.name}) differs")
        else:
            print(line.rstrip())
    wanted = {t.name: (int(t.tensor_type), int(t.data_offset), int(t.n_bytes), [int(v) for v in t.shape]) for t in reader.tensors}
    for name in sorted(wanted.keys() | ours.keys()):
        if wanted.get(name) != ours.get(name):
            failures += 1
            print(f"tensor {name}: {ours.get(name)} instead of {wanted.get(name)}")
    print(f"{len(ours)} tensors, {rows} rows compared, {failures} differences")
    sys.exit(1 if failures or not rows else 0)


if __name__ == "__main__":
    main()
