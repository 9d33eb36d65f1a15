// The one parameter of every kernel. Shared by host code and kernels: no CUDA header, no standard header, fixed-size fields.
#pragma once

namespace quern {

struct KernelArgs {
  const void* w;     // weights in the problem's layout
  const void* x;     // activations [M,K], x_type (out_prod: [M,N]; matmul_int8_rows: codes)
  void* y;           // output [M,N], y_type (out_prod: [M,K]; dequantize: [N,K]; repacking: the other layout; quantize_rows_int8: codes)
  const void* bias;  // [N] (mul_mat_id: [experts,N]), y_type, or null when the problem has none
  void* workspace;   // KernelSource::workspace_bytes bytes, 256-byte aligned
  long long m, n, k;
  long long ldx, ldy;     // elements between rows of X and Y (transposed X: between its columns)
  long long w_row_bytes;  // bytes between rows of W (gguf layout); planar weights are always dense
  // Batch dims 2 and 3: sizes of X and Y, ratios to W's, strides (elements for X and Y, bytes for W).
  long long batch2, batch3;
  long long ratio2, ratio3;
  long long x_stride2, x_stride3;
  long long y_stride2, y_stride3;
  long long w_stride2, w_stride3;
  // Weight scale: f32, one, or one per expert; null when the problem has none.
  const float* w_scale;
  // mul_mat_id: ids [M, used] with ids_stride elements between tokens. Rows of X and Y are a token's slots (ldx is 0 where X has one row
  // for all of them), their dim 2 the tokens; w_stride2 is between experts.
  const int* ids;
  long long ids_stride;
  long long used, experts;
  // Integer ops: f32 per row of X and of W; where Y are codes y_scales[M] is written.
  const float* x_scales;
  const float* w_scales;
  float* y_scales;
  // w4a4: x_scales are the tokens' norms, w_norms those of W's rows, bf16[N]; scale is activation_scale * weight_scale.
  const signed char* x_codebook;
  const signed char* w_codebook;
  const void* w_norms;
  float scale;
  // rpbh_quantize (its codebook is x_codebook; y_scales are the norms).
  float epsilon;
  const int* permutation;
  const signed char* signs;
  const float* boundaries;
};

}  // namespace quern
