#!/usr/bin/env python3
"""The integer ops on a GPU against PyTorch's own integer GEMM (torch._int_mm), bit for bit, through libquern.so.

    torch_oracle.py [--library libquern.so] [--quick]

Every product runs eagerly twice and once as a replayed CUDA graph; scales and codes of quantize_rows_int8 are compared with an IEEE
division in torch. Exits 0 when all is equal, 1 when something differs, 3 when something is missing on this machine.
"""
import argparse
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "examples"))
import torch_ctypes as binding  # noqa: E402

SHAPES = [(129, 64), (3, 64), (129, 512), (2048, 1024), (1024, 2048), (2047, 1024), (2049, 2048), (2048, 960), (257, 16384), (777, 4096),
          (32768, 2048), (32769, 2048)]
ROWS = [1, 2, 3, 4, 8, 9, 16, 33]


def int_mm(torch, x, w):
    """Exact i32 sums of int8 rows: torch._int_mm wants more than 16 rows and multiples of 8."""
    m, n = x.shape[0], w.shape[0]
    rows, columns = max(32, (m + 7) // 8 * 8), (n + 7) // 8 * 8
    px = torch.zeros(rows, x.shape[1], dtype=torch.int8, device="cuda")
    pw = torch.zeros(columns, x.shape[1], dtype=torch.int8, device="cuda")
    px[:m], pw[:n] = x, w
    return torch._int_mm(px, pw.T)[:m, :n]


class Checker:
    def __init__(self, torch, context):
        self.torch, self.context, self.checks, self.wrong = torch, context, 0, []

    def random_codes(self, *shape):
        codes = self.torch.randint(-128, 128, shape, dtype=self.torch.int8, device="cuda")
        codes.view(-1)[0], codes.view(-1)[-1] = -128, 127
        return codes

    def equal(self, what, got, want):
        self.checks += 1
        if not self.torch.equal(got, want):
            self.wrong.append(f"{what}: {int((got != want).sum())} of {got.numel()} differ")

    def run(self, what, text, want, **arguments):
        """Plans `text`, launches into a poisoned y twice, then from a graph, and compares each time."""
        torch = self.torch
        plan = self.context.plan(text)
        workspace = torch.empty(max(plan.info.workspace_bytes, 1), dtype=torch.uint8, device="cuda")
        y = torch.empty_like(want)
        args = binding.LaunchArgs(y=binding.MatrixView(data=y.data_ptr()), workspace=workspace.data_ptr(),
                                  workspace_bytes=plan.info.workspace_bytes, **arguments)

        def launch():
            plan.launch(args, torch.cuda.current_stream().cuda_stream)

        for turn in ("first", "second"):
            y.fill_(-77)
            launch()
            self.equal(f"{what}, {turn} launch", y, want)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            launch()
        y.fill_(-77)
        graph.replay()
        self.equal(f"{what}, graph", y, want)

    def int8_rows(self, m, n, k, bias):
        torch = self.torch
        x, w = self.random_codes(m, k), self.random_codes(n, k)
        xs, ws = torch.rand(m, device="cuda") * 0.1 + 0.001, torch.rand(n, device="cuda") * 0.1 + 0.001
        b = torch.randn(n, device="cuda").bfloat16()
        want = int_mm(torch, x, w).float() * (xs[:, None] * ws[None, :])
        want = (want + b.float() if bias else want).bfloat16()
        self.run(f"matmul_int8_rows {m}x{n}x{k} bias={bias}", f"matmul_int8_rows i8 m={m} n={n} k={k} y=bf16 bias={bias}", want,
                 w=binding.WeightView(data=w.data_ptr()), x=binding.MatrixView(data=x.data_ptr()), bias=b.data_ptr() if bias else None,
                 w_row_scales=ws.data_ptr(), x_row_scales=xs.data_ptr())

    def quantize(self, m, k):
        torch = self.torch
        x = (torch.randn(m, k, device="cuda") * torch.rand(m, 1, device="cuda")).bfloat16()
        # By a tensor: a division by a Python number may become a multiplication by its reciprocal.
        scale = x.float().abs().amax(dim=1).clamp(min=1e-12) / torch.full((m,), 127.0, device="cuda")
        codes = torch.round(x.float() / scale[:, None]).clamp(-127, 127).to(torch.int8)
        got = torch.full((m,), -1.0, device="cuda")
        self.run(f"quantize_rows_int8 {m}x{k}", f"quantize_rows_int8 i8 m={m} k={k} x=bf16", codes,
                 x=binding.MatrixView(data=x.data_ptr()), y_row_scales=got.data_ptr())
        self.equal(f"scales of {m}x{k}", got, scale)

    def w4a4(self, m, n, k, bias, k_major):
        torch = self.torch
        x, w = (torch.randint(0, 256, (rows, k // 2), dtype=torch.uint8, device="cuda") for rows in (m, n))
        books = self.random_codes(2, 16)

        def codes(packed, book):
            return book[torch.stack([packed & 15, packed >> 4], dim=2).reshape(packed.shape[0], k).long()]

        xn, wn = torch.rand(m, device="cuda") * 0.1 + 0.001, (torch.rand(n, device="cuda") * 0.1 + 0.001).bfloat16()
        b = torch.randn(n, device="cuda").bfloat16()
        scales = torch.tensor([0.7, 1.3], device="cuda")
        want = int_mm(torch, codes(x, books[0]), codes(w, books[1])).float() * (xn[:, None] * wn.float()[None, :] * (scales[0] * scales[1]))
        want = (want + b.float() if bias else want).bfloat16()
        stored = w.T.contiguous() if k_major else w
        self.run(f"w4a4 {m}x{n}x{k} bias={bias} k_major={k_major}",
                 f"w4a4 code4 m={m} n={n} k={k} y=bf16 bias={bias} k_major={k_major}", want,
                 w=binding.WeightView(data=stored.data_ptr()), x=binding.MatrixView(data=x.data_ptr()), bias=b.data_ptr() if bias else None,
                 x_row_scales=xn.data_ptr(), w_row_norms=wn.data_ptr(),
                 codebooks=binding.CodebookView(x=books[0].data_ptr(), w=books[1].data_ptr(), activation_scale=0.7, weight_scale=1.3))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", default=binding.default_library())
    parser.add_argument("--quick", action="store_true", help="every third combination")
    options = parser.parse_args()
    try:
        import torch
        if not torch.cuda.is_available():
            raise binding.Missing("PyTorch sees no CUDA device")
        quern = binding.Quern(options.library)
        context = quern.open("cuda:0", None if "QUERN_NVRTC" in os.environ else binding.nvrtc_of_torch())
    except (ImportError, binding.Missing) as missing:
        print(f"torch_oracle: {missing}", file=sys.stderr)
        return 3
    torch.manual_seed(1)
    checker, turn = Checker(torch, context), 0
    for n, k in SHAPES:
        for m in ROWS:
            turn += 1
            if options.quick and turn % 3 != 0:
                continue
            checker.int8_rows(m, n, k, turn % 2)
            checker.w4a4(m, n, k, (turn + 1) % 2, turn // 2 % 2)
            if n == 129:
                checker.quantize(m, k)
    torch.cuda.synchronize()
    context.close()
    for line in checker.wrong[:20]:
        print(line)
    print(f"torch_oracle: {checker.checks} comparisons, {len(checker.wrong)} differ")
    return 1 if checker.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
