/* examples/multiply.cc in C: W is 64 x 256 in q8_0, every weight 0.5; X is all ones; so every output is 128.
 * On the device "host" pointers are ordinary memory. With "cuda:0" they are device memory, and the stream is a CUstream; nothing else
 * changes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quern/quern.h"

enum { kN = 64, kK = 256, kBlocks = kN * kK / 32 };

/* At a multiple of 256 bytes; *owner is what to free. */
static void* allocate(size_t bytes, void** owner) {
  *owner = malloc(bytes + 256);
  if (*owner == NULL) abort();
  return (char*)*owner + (256 - (uintptr_t)*owner % 256);
}

/* Blocks of 32 weights: an fp16 scale of 0.5, then 32 signed bytes. */
static void half_everywhere(unsigned char* weights) {
  for (int block = 0; block < kBlocks; ++block, weights += 34) {
    weights[0] = 0x00, weights[1] = 0x38;
    memset(weights + 2, 1, 32);
  }
}

/* Once: the file's blocks into planes, in place. Same bytes, wide loads. */
static quern_status repack(const quern_context* context, void* weights) {
  quern_plan* plan = NULL;
  quern_status status = quern_plan_create_prepare_weights(context, QUERN_TYPE_Q8_0, kN, kK, QUERN_LAYOUT_GGUF, &plan);
  quern_plan_info info = quern_plan_info_init();
  if (status == QUERN_OK) status = quern_plan_get_info(plan, &info);
  void* owner = NULL;
  void* workspace = allocate(info.workspace_bytes, &owner);
  if (status == QUERN_OK) status = quern_prepare_weights(context, NULL, plan, weights, weights, workspace, info.workspace_bytes);
  free(owner);
  quern_plan_destroy(plan);
  return status;
}

static quern_status launch(const quern_plan* plan, const void* weights, const float* x, float* y) {
  quern_plan_info info = quern_plan_info_init();
  quern_status status = quern_plan_get_info(plan, &info);
  if (status != QUERN_OK) return status;
  printf("%s (%s)\n", info.config, info.reason);
  void* owner = NULL;
  quern_launch_args args = quern_launch_args_init();
  args.w.data = weights, args.x.data = x, args.y.data = y;
  args.workspace = allocate(info.workspace_bytes, &owner), args.workspace_bytes = info.workspace_bytes;
  status = quern_plan_launch(plan, NULL, &args);
  free(owner);
  return status;
}

static quern_status multiply(const quern_context* context, void* weights, const float* x, float* y) {
  quern_status status = repack(context, weights);
  if (status != QUERN_OK) return status;
  quern_problem problem = quern_problem_init(); /* mul_mat, planar, f32, m = 1 */
  problem.type = QUERN_TYPE_Q8_0, problem.n = kN, problem.k = kK;
  quern_plan* plan = NULL;
  status = quern_plan_create(context, &problem, NULL, &plan);
  if (status == QUERN_OK) status = launch(plan, weights, x, y);
  quern_plan_destroy(plan);
  return status;
}

int main(void) {
  quern_context_options options = quern_context_options_init();
  options.from_environment = 1;
  options.device = "host";
  quern_context* context = NULL;
  if (quern_context_open(&options, &context) != QUERN_OK) {
    fprintf(stderr, "multiply: %s\n", quern_last_error());
    return 3;
  }
  void* owner = NULL;
  void* weights = allocate(kBlocks * 34, &owner);
  half_everywhere(weights);
  float x[kK], y[kN];
  for (int i = 0; i < kK; ++i) x[i] = 1.0f;
  const quern_status status = multiply(context, weights, x, y);
  if (status != QUERN_OK) fprintf(stderr, "multiply: %s: %s\n", quern_status_name(status), quern_last_error());
  int right = status == QUERN_OK;
  for (int i = 0; i < kN && right; ++i) right = y[i] == 128.0f;
  if (status == QUERN_OK)
    printf("quern %s, y[0] = %g, %s\n", quern_version(), (double)y[0], right ? "as expected" : "expected 128 everywhere");
  free(owner);
  quern_context_close(context);
  return right ? 0 : 1;
}
