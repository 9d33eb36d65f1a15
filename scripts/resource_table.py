#!/usr/bin/env python3
"""Registers, shared memory and spills of every family's default kernels: each weight type, op and architecture, compiled without a GPU.

    resource_table.py [--quern build/release/quern] [--types q4_0,q4_k] [--ops w4a4] [--arch sm_80,sm_90a] [--json FILE] > table.md

One row per op, family and architecture: the least and the most over the types. All types on all architectures are about 3000 kernels, half
an hour of two cores. Exits 1 when a kernel did not compile.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
with open(os.path.join(ROOT, "include/quern/weight_types.def")) as registry:
    TYPES = re.findall(r"^QUERN_WEIGHT_TYPE\((\w+),", registry.read(), re.MULTILINE)
ARCHITECTURES = "sm_75 sm_80 sm_86 sm_89 sm_90a sm_100 sm_120".split()


def problems(types):
    n, k = 4096, 4096
    listed = []
    for name in types:
        weights = {"type": name, "n": n, "k": k}
        listed += [dict(weights, op="mul_mat", m=m) for m in (1, 512)]
        listed += [dict(weights, op="out_prod", m=512), dict(weights, op="mul_mat_id", m=64, experts=8, used=2)]
        listed += [dict(weights, op="dequantize"), dict(weights, op="to_planar"), dict(weights, op="to_gguf")]
    codes = {"type": "i8", "k": k}
    listed += [dict(codes, op="matmul_int8_rows", n=n, m=m, y_dtype="bf16") for m in (1, 8, 64)]
    listed += [dict(codes, op="quantize_rows_int8", m=8, x_dtype="bf16")]
    listed += [dict(codes, op="rpbh_quantize", type=t, m=8, x_dtype="bf16", block=128) for t in ("i8", "code4")]
    return listed + [dict(codes, op="w4a4", type="code4", n=n, m=m, y_dtype="bf16") for m in (1, 8, 64)]


def compile_all(options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "problems.json")
        with open(path, "w") as file:
            wanted = options.ops.split(",") if options.ops else []
            json.dump([p for p in problems(options.types.split(",")) if not wanted or p["op"] in wanted], file)
        command = [options.quern, "compile", path, "--arch", options.arch, "--every-family", "--json"]
        environment = dict(os.environ, QUERN_CACHE_DIR=os.path.join(folder, "store"))
        run = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    if not run.stdout:
        sys.exit(3)
    return json.loads(run.stdout)


def span(values):
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}-{high}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quern", default="build/release/quern")
    parser.add_argument("--types", default=",".join(TYPES))
    parser.add_argument("--ops", help="only these; default: all")
    parser.add_argument("--arch", default=",".join(ARCHITECTURES))
    parser.add_argument("--json", help="write every kernel's figures to this file")
    options = parser.parse_args()
    report = compile_all(options)
    groups, failed = {}, []
    for kernel in report["kernels"]:
        op, m = kernel["problem"].split()[0], [w for w in kernel["problem"].split() if w.startswith("m=")][0]
        if kernel["error"]:
            failed.append(kernel)
        else:
            groups.setdefault((op, m, kernel["config"].split(":")[0], kernel["target"]), []).append(kernel)
    print(f"{report['compiler']}, {len(report['kernels'])} kernels, {len(failed)} failed; least-most over the types\n")
    print("| op | | family | architecture | kernels | registers | shared KiB | spilled bytes | spilling |\n|-|-|-|-|-|-|-|-|-|")
    for (op, m, family, target), kernels in sorted(groups.items()):
        spills = [k["spill_bytes"] for k in kernels]
        print(f"| {op} | {m} | {family} | {target} | {len(kernels)} | {span([k['registers'] for k in kernels])} | "
              f"{span([round(k['shared_bytes'] / 1024, 1) for k in kernels])} | {span(spills)} | {sum(s > 0 for s in spills)} |")
    for kernel in failed:
        print(f"{kernel['problem']} for {kernel['target']}: {kernel['error']}", file=sys.stderr)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(report, file, indent=0)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
