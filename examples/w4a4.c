/* Packed 4-bit indices on both sides, in C: X's rows are rotated and bucketized to indices (rpbh_quantize), and multiplied by a matrix of
 * indices through two codebooks (w4a4). The answer is compared, bit for bit, with a loop over the same indices.
 * On the device "host" pointers are ordinary memory. With "cuda:0" they are device memory; nothing else changes. */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include "quern/quern.h"

enum { kM = 2, kN = 5, kK = 64 };

/* What a model brings along: a rotation and two codebooks. */
typedef struct layer {
  int32_t permutation[kK];
  int8_t signs[kK];
  float boundaries[15];
  int8_t x_codebook[16], w_codebook[16];
  uint8_t w[kN * kK / 2]; /* byte b of a row: element 2b in the low nibble, 2b+1 in the high one */
  uint16_t w_norms[kN];   /* bf16 */
  float activation_scale, weight_scale;
} layer;

static void fill(layer* l) {
  for (int c = 0; c < kK; ++c) l->permutation[c] = (c * 7 + 3) % kK, l->signs[c] = (int8_t)(c % 3 == 0 ? -1 : 1);
  for (int i = 0; i < 15; ++i) l->boundaries[i] = 0.03f * (float)(i - 7);
  for (int i = 0; i < 16; ++i) l->x_codebook[i] = l->w_codebook[i] = (int8_t)(17 * i - 128);
  for (int b = 0; b < kN * kK / 2; ++b) l->w[b] = (uint8_t)(b * 37 + 11);
  for (int n = 0; n < kN; ++n) l->w_norms[n] = 0x3F80; /* 1.0 */
  l->activation_scale = 0.01f, l->weight_scale = 0.02f;
}

/* Plans and launches one op. Strides and shapes are the problem's own. */
static quern_status run(const quern_context* context, const quern_problem* problem, quern_launch_args args) {
  quern_plan* plan = NULL;
  quern_status status = quern_plan_create(context, problem, NULL, &plan);
  quern_plan_info info = quern_plan_info_init();
  if (status == QUERN_OK) status = quern_plan_get_info(plan, &info);
  char* owner = malloc(info.workspace_bytes + 256);
  if (owner == NULL) abort();
  args.workspace = owner + (256 - (uintptr_t)owner % 256), args.workspace_bytes = info.workspace_bytes;
  if (status == QUERN_OK) printf("%s: %s\n", info.problem, info.config);
  if (status == QUERN_OK) status = quern_plan_launch(plan, NULL, &args);
  free(owner);
  quern_plan_destroy(plan);
  return status;
}

/* x[M,K] to indices[M,K/2] and a norm per row. */
static quern_status quantize(const quern_context* context, const layer* l, const float* x, uint8_t* indices, float* norms) {
  quern_problem problem = quern_problem_init();
  problem.op = QUERN_OP_RPBH_QUANTIZE, problem.type = QUERN_TYPE_CODE4, problem.m = kM, problem.k = kK, problem.block = kK;
  problem.accuracy = QUERN_ACCURACY_EXACT;
  quern_launch_args args = quern_launch_args_init();
  args.x.data = x, args.y.data = indices, args.y_row_scales = norms;
  args.rotation.permutation = l->permutation, args.rotation.signs = l->signs, args.rotation.boundaries = l->boundaries;
  args.rotation.epsilon = 1e-10f;
  return run(context, &problem, args);
}

static quern_status multiply(const quern_context* context, const layer* l, const uint8_t* indices, const float* norms, float* y) {
  quern_problem problem = quern_problem_init();
  problem.op = QUERN_OP_W4A4, problem.type = QUERN_TYPE_CODE4, problem.m = kM, problem.n = kN, problem.k = kK;
  problem.accuracy = QUERN_ACCURACY_EXACT;
  quern_launch_args args = quern_launch_args_init();
  args.w.data = l->w, args.w_row_norms = l->w_norms;
  args.x.data = indices, args.x_row_scales = norms;
  args.y.data = y;
  args.codebooks.x = l->x_codebook, args.codebooks.w = l->w_codebook;
  args.codebooks.activation_scale = l->activation_scale, args.codebooks.weight_scale = l->weight_scale;
  return run(context, &problem, args);
}

/* The definition, for W's norms of 1. */
static float expected(const layer* l, const uint8_t* indices, float norm, int n) {
  int32_t sum = 0;
  for (int b = 0; b < kK / 2; ++b) {
    const uint8_t x = indices[b], w = l->w[n * kK / 2 + b];
    sum += l->x_codebook[x & 15] * l->w_codebook[w & 15] + l->x_codebook[x >> 4] * l->w_codebook[w >> 4];
  }
  volatile float scale = l->activation_scale * l->weight_scale;
  volatile float factor = norm * scale;
  return (float)sum * factor;
}

int main(void) {
  quern_context_options options = quern_context_options_init();
  options.from_environment = 1;
  options.device = "host";
  quern_context* context = NULL;
  if (quern_context_open(&options, &context) != QUERN_OK) {
    fprintf(stderr, "w4a4: %s\n", quern_last_error());
    return 3;
  }
  static layer l;
  fill(&l);
  float x[kM * kK], norms[kM], y[kM * kN];
  uint8_t indices[kM * kK / 2];
  for (int i = 0; i < kM * kK; ++i) x[i] = sinf((float)i);
  quern_status status = quantize(context, &l, x, indices, norms);
  if (status == QUERN_OK) status = multiply(context, &l, indices, norms, y);
  if (status != QUERN_OK) fprintf(stderr, "w4a4: %s\n", quern_last_error());
  quern_context_close(context);
  if (status != QUERN_OK) return status == QUERN_ENVIRONMENT ? 3 : 1;

  int wrong = 0;
  for (int m = 0; m < kM; ++m)
    for (int n = 0; n < kN; ++n) wrong += y[m * kN + n] != expected(&l, indices + m * kK / 2, norms[m], n);
  printf("y[0,0] is %g, %d of %d outputs differ\n", y[0], wrong, kM * kN);
  return wrong != 0;
}
