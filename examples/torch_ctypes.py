#!/usr/bin/env python3
"""quern from Python, with ctypes and PyTorch's device pointers; nothing else is needed.

    torch_ctypes.py [--library libquern.so] [--m 8] [--n 14336] [--k 4096]     on the GPU, checked against torch
    torch_ctypes.py [--library libquern.so] --host                            on the CPU, without torch, checked in plain Python

Random Q8_0 weights are repacked in place, once, and multiplied on torch's current stream. Exits 0 when the answer is right, 1 when it is
wrong, 3 when something is missing on this machine.
"""
import argparse
import ctypes
import glob
import os
import random
import struct
import sys
from ctypes import POINTER, byref, c_char_p, c_float, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

# ---- include/quern/quern.h, as far as it is used here. A struct begins with its own size; fields left out would be zero.


class Sized(ctypes.Structure):
    """A struct of quern.h: struct_size set, everything else 0 unless given."""

    def __init__(self, **fields):
        super().__init__(struct_size=ctypes.sizeof(self), **fields)


class ContextOptions(Sized):
    _fields_ = [("struct_size", c_uint32), ("from_environment", c_uint32), ("device", c_char_p), ("cache_directory", c_char_p),
                ("system_cache_directories", POINTER(c_char_p)), ("system_cache_directory_count", c_size_t),
                ("cache_max_bytes", c_int64), ("compile_wait_ms", c_int64), ("nvrtc_library", c_char_p), ("driver_library", c_char_p),
                ("host_plugin", c_char_p), ("warn", c_void_p), ("warn_user", c_void_p), ("record_launches", c_uint32),
                ("launch_apart", c_uint32)]


class ContextInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("is_lost", c_uint32), ("device_spec", c_char_p), ("device", c_char_p), ("target", c_char_p),
                ("compile_count", c_uint64)]


class Problem(Sized):
    _fields_ = [("struct_size", c_uint32), ("op", c_uint32), ("type", c_uint32), ("layout", c_uint32), ("m", c_int64), ("n", c_int64),
                ("k", c_int64), ("x_type", c_uint32), ("y_type", c_uint32), ("accuracy", c_uint32), ("bias", c_uint32),
                ("x_transposed", c_uint32), ("scale", c_uint32), ("x_broadcast", c_uint32), ("reserved", c_uint32), ("batch2", c_int64),
                ("batch3", c_int64), ("ratio2", c_int64), ("ratio3", c_int64), ("experts", c_int64), ("used", c_int64),
                ("k_major", c_uint32), ("fused", c_uint32), ("block", c_int64)]


class PlanInfo(Sized):
    _fields_ = [("struct_size", c_uint32), ("is_ready", c_uint32), ("provenance", c_uint32), ("accuracy", c_uint32),
                ("workspace_bytes", c_size_t), ("problem", c_char_p), ("config", c_char_p), ("reason", c_char_p), ("artifact", c_char_p),
                ("registers", c_int32), ("static_shared_bytes", c_int32), ("local_bytes", c_int32), ("spill_bytes", c_int32)]


class WeightView(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("rows", c_int64), ("columns", c_int64), ("row_bytes", c_int64), ("stride2", c_int64),
                ("stride3", c_int64), ("scale", c_void_p)]


class MatrixView(ctypes.Structure):
    """quern_input_view and quern_output_view."""
    _fields_ = [("data", c_void_p), ("rows", c_int64), ("columns", c_int64), ("row_stride", c_int64), ("stride2", c_int64),
                ("stride3", c_int64)]


class IdsView(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("row_stride", c_int64)]


class CodebookView(ctypes.Structure):
    _fields_ = [("x", c_void_p), ("w", c_void_p), ("activation_scale", c_float), ("weight_scale", c_float)]


class RotationView(ctypes.Structure):
    _fields_ = [("permutation", c_void_p), ("signs", c_void_p), ("boundaries", c_void_p), ("codebook", c_void_p), ("epsilon", c_float),
                ("reserved", c_uint32)]


class LaunchArgs(Sized):
    _fields_ = [("struct_size", c_uint32), ("reserved", c_uint32), ("w", WeightView), ("x", MatrixView), ("y", MatrixView),
                ("bias", c_void_p), ("workspace", c_void_p), ("workspace_bytes", c_size_t), ("ids", IdsView),
                ("w_row_scales", c_void_p), ("x_row_scales", c_void_p), ("y_row_scales", c_void_p), ("w_row_norms", c_void_p),
                ("codebooks", CodebookView), ("rotation", RotationView)]


Q8_0 = 8
GGUF = 0
ABI_VERSION = 1
OK, ENVIRONMENT = 0, 8  # quern_status
DECLARATIONS = {  # name: argument types; each returns a quern_status
    "quern_context_open": [POINTER(ContextOptions), POINTER(c_void_p)],
    "quern_context_get_info": [c_void_p, POINTER(ContextInfo)],
    "quern_context_synchronize": [c_void_p, c_void_p],
    "quern_problem_parse": [c_char_p, POINTER(Problem)],
    "quern_plan_create": [c_void_p, POINTER(Problem), c_void_p, POINTER(c_void_p)],
    "quern_plan_create_prepare_weights": [c_void_p, c_uint32, c_int64, c_int64, c_uint32, POINTER(c_void_p)],
    "quern_plan_get_info": [c_void_p, POINTER(PlanInfo)],
    "quern_plan_launch": [c_void_p, c_void_p, POINTER(LaunchArgs)],
    "quern_prepare_weights": [c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_void_p, c_size_t],
}


class QuernError(RuntimeError):
    pass


class Missing(RuntimeError):
    """Something that this machine lacks."""


class Quern:
    """The library: call("context_open", ...) raises an error with quern's own message."""

    def __init__(self, path):
        try:
            self.library = ctypes.CDLL(path)
        except OSError as error:
            raise Missing(f"libquern.so does not load: {error}; build it (scripts/build.sh release) or name it with --library") from error
        self.library.quern_abi_version.restype = c_uint32
        if self.library.quern_abi_version() != ABI_VERSION:
            raise Missing(f"{path} has ABI version {self.library.quern_abi_version()}, this script was written for {ABI_VERSION}")
        for name in ("quern_version", "quern_last_error", "quern_last_error_log"):
            getattr(self.library, name).restype = c_char_p
        for name, arguments in DECLARATIONS.items():
            getattr(self.library, name).argtypes = arguments
        for name in ("quern_context_close", "quern_plan_destroy"):
            getattr(self.library, name).argtypes = [c_void_p]
            getattr(self.library, name).restype = None

    def call(self, name, *arguments):
        status = getattr(self.library, "quern_" + name)(*arguments)
        if status == OK:
            return
        log = self.library.quern_last_error_log().decode()
        message = self.library.quern_last_error().decode() + ("\n" + log if log else "")
        raise Missing(message) if status == ENVIRONMENT else QuernError(message)

    def open(self, device, nvrtc=None):
        options = ContextOptions(from_environment=1, device=device.encode(), nvrtc_library=nvrtc.encode() if nvrtc else None)
        context = c_void_p()
        self.call("context_open", byref(options), byref(context))
        return Context(self, context)


class Context:
    """A device. Plans are kept until the context is closed."""

    def __init__(self, quern, handle):
        self.quern, self.handle, self.plans = quern, handle, []
        self.info = ContextInfo()
        quern.call("context_get_info", handle, byref(self.info))

    def close(self):
        for plan in self.plans:
            self.quern.library.quern_plan_destroy(plan.handle)
        self.quern.library.quern_context_close(self.handle)

    def plan(self, text):
        problem, handle = Problem(), c_void_p()
        self.quern.call("problem_parse", text.encode(), byref(problem))
        self.quern.call("plan_create", self.handle, byref(problem), None, byref(handle))
        return self._keep(Plan(self.quern, handle))

    def repack(self, weight_type, n, k, data, allocate, stream=None):
        """Turns the file's blocks into planes, in place."""
        handle = c_void_p()
        self.quern.call("plan_create_prepare_weights", self.handle, weight_type, n, k, GGUF, byref(handle))
        plan = self._keep(Plan(self.quern, handle))
        workspace = allocate(plan.info.workspace_bytes)
        self.quern.call("prepare_weights", self.handle, stream, handle, data, data, address(workspace), plan.info.workspace_bytes)
        self.quern.call("context_synchronize", self.handle, stream)

    def _keep(self, plan):
        self.plans.append(plan)
        return plan


class Plan:
    def __init__(self, quern, handle):
        self.quern, self.handle, self.info = quern, handle, PlanInfo()
        quern.call("plan_get_info", handle, byref(self.info))

    def args(self, w, x, y, workspace, ids=None):
        """Made once for as many launches as use the same memory: a launch itself should cost Python little."""
        return LaunchArgs(w=WeightView(data=w), x=MatrixView(data=x), y=MatrixView(data=y), workspace=address(workspace),
                          workspace_bytes=self.info.workspace_bytes, ids=IdsView(data=ids))

    def launch(self, args, stream=None):
        self.quern.call("plan_launch", self.handle, stream, byref(args))


def address(memory):
    """Of a torch tensor or a ctypes buffer."""
    return memory.data_ptr() if hasattr(memory, "data_ptr") else ctypes.addressof(memory)


# ---- On the GPU, with torch.


def torch_weights(torch, n, k):
    """Random Q8_0: blocks of an fp16 scale and 32 int8. Returns the bytes, and the same matrix in double precision."""
    blocks = n * k // 32
    d = (torch.rand(blocks, 1, device="cuda") + 0.5).mul_(0.001).half()
    q = torch.randint(-127, 128, (blocks, 32), dtype=torch.int8, device="cuda")
    return torch.cat([d.view(torch.uint8), q.view(torch.uint8)], dim=1).contiguous(), (d.double() * q.double()).reshape(n, k)


def microseconds(torch, launch, count=100):
    for _ in range(5):
        launch()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(count):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1000 / count


def nvrtc_of_torch():
    """PyTorch's wheels bring the compiler along, in a place of their own. None: let quern search."""
    for folder in sys.path:
        for found in sorted(glob.glob(os.path.join(folder, "nvidia", "*", "lib", "libnvrtc.so.1[0-9]")), reverse=True):
            return found
    return None


def run_on_gpu(quern, m, n, k):
    try:
        import torch
    except ImportError as error:
        raise Missing(f"PyTorch is not installed ({error}); --host needs neither it nor a GPU") from error
    if not torch.cuda.is_available():
        raise Missing("PyTorch sees no CUDA device; --host needs none")
    context = quern.open(f"cuda:{torch.cuda.current_device()}", None if "QUERN_NVRTC" in os.environ else nvrtc_of_torch())
    stream = torch.cuda.current_stream().cuda_stream

    def allocate(size):
        return torch.empty(max(size, 1), dtype=torch.uint8, device="cuda")  # torch aligns to 512 bytes, quern needs 256

    torch.manual_seed(1)
    weights, exact = torch_weights(torch, n, k)
    x = torch.randn(m, k, device="cuda")
    y = torch.empty(m, n, device="cuda")
    context.repack(Q8_0, n, k, weights.data_ptr(), allocate, stream)

    plan = context.plan(f"mul_mat q8_0 m={m} n={n} k={k}")
    workspace = allocate(plan.info.workspace_bytes)
    args = plan.args(weights.data_ptr(), x.data_ptr(), y.data_ptr(), workspace)

    def launch():
        plan.launch(args, stream)

    launch()
    want = x.double() @ exact.T
    error = ((y.double() - want).square().sum() / want.square().sum()).item()
    describe(quern, context, plan, error)
    dense, x16 = exact.to(torch.bfloat16), x.to(torch.bfloat16)
    print(f"time    {microseconds(torch, launch):.1f} us; torch on dense bf16: {microseconds(torch, lambda: x16 @ dense.T):.1f} us"
          " (the same weights again and again: not a benchmark)")
    torch.cuda.synchronize()
    context.close()
    return error


# ---- On the CPU, with ctypes' own buffers.


def aligned(size):
    """`size` bytes at a multiple of 256; the buffer keeps its memory alive."""
    owner = ctypes.create_string_buffer(size + 256)
    return (ctypes.c_char * size).from_buffer(owner, -ctypes.addressof(owner) % 256)


def floats(values):
    buffer = aligned(4 * len(values))
    struct.pack_into(f"<{len(values)}f", buffer, 0, *values)
    return buffer


def host_weights(source, rows, k):
    """Random Q8_0 rows: the bytes, and the values as a list per row."""
    data, values = b"", []
    for _ in range(rows * k // 32):
        d = struct.pack("<e", 0.001 + 0.01 * source.random())
        q = [source.randint(-127, 127) for _ in range(32)]
        data += d + struct.pack("32b", *q)
        values += [struct.unpack("<e", d)[0] * v for v in q]
    buffer = aligned(len(data))
    buffer[:] = data
    return buffer, [values[i:i + k] for i in range(0, len(values), k)]


def host_product(context, problem, m, n, k, experts):
    """Runs mul_mat (one expert) or mul_mat_id; returns the plan and the error against sums in double precision."""
    source = random.Random(7)
    weights, rows = host_weights(source, n * experts, k)
    x = [source.uniform(-1, 1) for _ in range(m * k)]
    chosen = [source.randrange(experts) for _ in range(m)]
    if experts == 1:
        context.repack(Q8_0, n, k, address(weights), aligned)
    plan = context.plan(problem)
    y = aligned(4 * m * n)
    x_buffer, ids, workspace = floats(x), aligned(4 * m), aligned(plan.info.workspace_bytes)
    struct.pack_into(f"<{m}i", ids, 0, *chosen)
    plan.launch(plan.args(address(weights), address(x_buffer), address(y), workspace, address(ids) if experts > 1 else None))
    got = struct.unpack(f"<{m * n}f", y)
    want = [sum(a * b for a, b in zip(x[i * k:(i + 1) * k], rows[chosen[i] * n + j])) for i in range(m) for j in range(n)]
    return plan, sum((a - b)**2 for a, b in zip(got, want)) / sum(b * b for b in want)


def run_on_host(quern):
    context = quern.open("host")
    errors = []
    for problem, experts in (("mul_mat q8_0 planar m=3 n=40 k=128", 1),
                             ("mul_mat_id q8_0 gguf m=3 n=40 k=128 experts=4 used=1", 4)):
        plan, error = host_product(context, problem, 3, 40, 128, experts)
        describe(quern, context, plan, error)
        errors.append(error)
    context.close()
    return max(errors)


# ---- Either.


def describe(quern, context, plan, error):
    print(f"quern   {quern.library.quern_version().decode()} on {context.info.device.decode()}")
    print(f"problem {plan.info.problem.decode()}")
    print(f"runs    {plan.info.config.decode()} ({plan.info.reason.decode()})")
    print(f"error   {error:.2g} (normalized, mean squared; class normal allows 5e-5)")


def default_library():
    built = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "build", "release", "libquern.so")
    return built if os.path.exists(built) else "libquern.so.1"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=default_library())
    parser.add_argument("--host", action="store_true")
    parser.add_argument("--m", type=int, default=8)
    parser.add_argument("--n", type=int, default=14336)
    parser.add_argument("--k", type=int, default=4096)
    arguments = parser.parse_args()
    try:
        quern = Quern(arguments.library)
        error = run_on_host(quern) if arguments.host else run_on_gpu(quern, arguments.m, arguments.n, arguments.k)
    except Missing as missing:
        print(f"torch_ctypes: {missing}", file=sys.stderr)
        return 3
    except QuernError as failed:
        print(f"torch_ctypes: {failed}", file=sys.stderr)
        return 1
    return 0 if error <= 5e-5 else 1


if __name__ == "__main__":
    sys.exit(main())
