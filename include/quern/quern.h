/* The C interface of quern: open a device, plan a problem, launch it on a stream with raw device pointers. C99 and C++.
 *
 *   quern_context* context;
 *   quern_context_open(NULL, &context);
 *   quern_problem problem = quern_problem_init();
 *   problem.type = QUERN_TYPE_Q4_0, problem.n = 14336, problem.k = 4096;
 *   quern_plan* plan;
 *   quern_plan_create(context, &problem, NULL, &plan);
 *   quern_launch_args args = quern_launch_args_init();
 *   args.w.data = w, args.x.data = x, args.y.data = y, args.workspace = ws, args.workspace_bytes = ws_bytes;
 *   quern_plan_launch(plan, stream, &args);
 *
 * Errors. Every function that can fail returns a quern_status. When it is not QUERN_OK, quern_last_error() is one line that names the
 * thing, the value found and the value needed, and outputs are untouched, but that handles are set to NULL. No exception leaves a function.
 * A null or swapped handle is QUERN_INVALID_ARGUMENT; a handle that was closed already is not recognized.
 *
 * Threads. Any thread may use any handle at the same time as others, but to close or destroy it. Plans keep what they need of their
 * context: it may be closed before them. No handle may be used in a child process after fork().
 *
 * Structs that a caller fills begin with their own size, set by the quern_..._init function of the header that the caller was compiled
 * with. Later versions append fields and never move one; 0 or NULL in an appended field means what was there before. So a smaller struct,
 * from an older header, has the defaults for what it lacks, and a larger one, from a newer header, is refused only if it uses what this
 * library does not know. Reserved fields are 0.
 *
 * The same ideas in C++ are in quern/context.h and quern/problem.h; each function names its counterpart. */
#ifndef QUERN_QUERN_H
#define QUERN_QUERN_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define QUERN_API __attribute__((visibility("default")))
#else
#define QUERN_API
#endif

/* An all-zero struct. */
#ifdef __cplusplus
#define QUERN_ZERO \
  {}
extern "C" {
#else
#define QUERN_ZERO \
  { 0 }
#endif

/* Changes with the interface's binary form; also the number in the library's file name, libquern.so.1. */
#define QUERN_ABI_VERSION 1

/* ---- Versions and errors. */

/* The library's version, "0.1.0". C++: quern::kVersion. */
QUERN_API const char* quern_version(void);
/* The QUERN_ABI_VERSION that the library was built with. */
QUERN_API uint32_t quern_abi_version(void);

/* C++: quern::ErrorCode, plus one; from 100 on what only this interface has. */
typedef enum quern_status {
  QUERN_OK = 0,
  QUERN_INVALID_ARGUMENT = 1, /* the caller passed something that no version could accept */
  QUERN_UNSUPPORTED = 2,      /* legal, but nothing here can do it; the message says what would be needed */
  QUERN_COMPILE_FAILED = 3,   /* quern_last_error_log() has the compiler's output */
  QUERN_LAUNCH_FAILED = 4,    /* the device refused or faulted */
  QUERN_DEVICE_LOST = 5,      /* the device context is unusable from here on */
  QUERN_VERSION_MISMATCH = 6, /* written by another version of quern; left untouched */
  QUERN_CORRUPT = 7,          /* bytes that do not match their hash or their format */
  QUERN_ENVIRONMENT = 8,      /* something missing on this machine: driver, NVRTC, host plugin, disk space */
  QUERN_TIMEOUT = 9,
  QUERN_CANCELLED = 10,
  QUERN_OUT_OF_MEMORY = 100, /* of this process, not of the device */
  QUERN_INTERNAL = 101       /* a fault of quern's own; the message says what it knows */
} quern_status;

/* "invalid argument", ...; "unknown" for any other number. C++: to_string(ErrorCode). */
QUERN_API const char* quern_status_name(quern_status status);
/* The message of the calling thread's last call that failed; "" before the first. Valid until the next failure on this thread. */
QUERN_API const char* quern_last_error(void);
/* Its detail of any length, such as the compiler's output; "" where there is none. Valid as long as quern_last_error()'s. */
QUERN_API const char* quern_last_error_log(void);

/* ---- Context: one device with its compiler and its store. C++: quern::Context. */

typedef struct quern_context quern_context;

/* C++: quern::ContextOptions. NULL or 0 means the default. Strings are read during quern_context_open only. */
typedef struct quern_context_options {
  uint32_t struct_size;
  uint32_t from_environment;   /* 1: what is NULL or 0 below comes from the environment (docs/command.md), warnings go to stderr */
  const char* device;          /* "cuda:N", "host", or "auto" (the default): cuda:0 where there is one, else the host */
  const char* cache_directory; /* the writable store; by default nothing is read from one or kept */
  const char* const* system_cache_directories; /* read-only stores below it, in order */
  size_t system_cache_directory_count;
  int64_t cache_max_bytes;                    /* default: 2 GiB */
  int64_t compile_wait_ms;                    /* how long to wait for another process that compiles the same kernel; default: 60000 */
  const char* nvrtc_library;                  /* a path; by default searched for */
  const char* driver_library;                 /* a path; by default searched for */
  const char* host_plugin;                    /* a path; by default searched for beside the executable and beside this library */
  void (*warn)(const char* line, void* user); /* one line each, from any thread; must not call quern. Default: silent */
  void* warn_user;                            /* passed to warn */
  uint32_t record_launches;                   /* 1: count launches per kernel, see quern_launch_records_take */
  uint32_t launch_apart;                      /* 1: no launch of a plan begins before the one before it on its stream has ended, as
                                                 from sm_90 on it otherwise may; see quern_plan_launch */
} quern_context_options;

static inline quern_context_options quern_context_options_init(void) {
  quern_context_options options = QUERN_ZERO;
  options.struct_size = (uint32_t)sizeof(options);
  return options;
}

/* Opens a device; with NULL options, as the environment says. On success *context is the caller's, to be closed by quern_context_close.
 * Errors: QUERN_ENVIRONMENT naming what is missing; QUERN_INVALID_ARGUMENT. A missing compiler is no error here: stored kernels still run,
 * and a plan that needs the compiler says what was looked for. C++: Context::open, from_environment. */
QUERN_API quern_status quern_context_open(const quern_context_options* options, quern_context** context);
/* Plans made from the context stay valid. NULL is allowed. */
QUERN_API void quern_context_close(quern_context* context);

/* What a context is. Strings are valid until the context is closed. */
typedef struct quern_context_info {
  uint32_t struct_size;
  uint32_t is_lost;        /* as quern_context_is_lost */
  const char* device_spec; /* "cuda:0" or "host"; C++: Context::device_spec */
  const char* device;      /* one line, what tunings are filed under; C++: Context::device */
  const char* target;      /* what is compiled for: "sm_90a", "host"; C++: Context::target */
  uint64_t compile_count;  /* kernels that this context had to compile; C++: Context::compile_count */
} quern_context_info;

static inline quern_context_info quern_context_info_init(void) {
  quern_context_info info = QUERN_ZERO;
  info.struct_size = (uint32_t)sizeof(info);
  return info;
}

/* Fills as much of *info as its struct_size says. */
QUERN_API quern_status quern_context_get_info(const quern_context* context, quern_context_info* info);
/* *is_lost = 1 once a call of this context has met a fault after which nothing runs on the device any more, such as a wrong pointer: every
 * later call that needs the device is QUERN_DEVICE_LOST, and only a new process can use the GPU again. Launches are asynchronous: their
 * fault is seen by the next call that hears from the device, such as quern_context_synchronize. Asks no driver. C++: Context::is_lost. */
QUERN_API quern_status quern_context_is_lost(const quern_context* context, int* is_lost);
/* Waits for the work on the stream; not during its capture. Errors: QUERN_DEVICE_LOST, QUERN_LAUNCH_FAILED. C++: Context::synchronize. */
QUERN_API quern_status quern_context_synchronize(const quern_context* context, void* stream);

/* ---- Problem: what is to be computed. C++: quern::Problem. */

/* C++: quern::Op. Shapes are row-major. */
typedef enum quern_op {
  QUERN_OP_DEQUANTIZE = 0, /* Y[N,K] = decode(W[N,K]) */
  QUERN_OP_MUL_MAT = 1,    /* Y[M,N] = X[M,K] * W[N,K]^T (+ bias[N]) */
  QUERN_OP_TO_PLANAR = 2,  /* W[N,K] from the layout gguf to planar, bit for bit; see quern_plan_create_prepare_weights */
  QUERN_OP_TO_GGUF = 3,    /* the way back */
  QUERN_OP_OUT_PROD = 4,   /* Y[M,K] = X[M,N] * W[N,K]: with X the gradient of mul_mat's output, Y is that of its input */
  QUERN_OP_MUL_MAT_ID =
      5, /* Y[M,used,N], row (t,s) = X[t,s] * W[ids[t,s]]^T (+ bias): each slot goes to one of `experts` matrices W[N,K] */
  QUERN_OP_QUANTIZE_ROWS_INT8 = 6, /* int8 codes Y[M,K] and a scale per row from X[M,K]; n is 0, the type QUERN_TYPE_I8 */
  QUERN_OP_MATMUL_INT8_ROWS =
      7, /* Y[M,N] = f32(sum) * (x_scale[M] * w_scale[N]) (+ bias[N]), sum the exact i32 of codes X[M,K] * W[N,K]^T */
  QUERN_OP_W4A4 =
      8, /* the same of packed 4-bit indices into two codebooks, times (x_norm[M] * w_norm[N]) * (activation_scale * weight_scale) */
  QUERN_OP_RPBH_QUANTIZE = 9 /* X[M,K] permuted, signed, normed, turned and bucketized: indices (QUERN_TYPE_CODE4) or codes (I8); n is 0 */
} quern_op;

/* The ids of the GGUF container. QUERN_TYPE_I8 and QUERN_TYPE_CODE4 are no weight formats but bare codes: the integer ops take them and no
 * others.
 * C++: quern::WeightType. */
typedef enum quern_weight_type {
  QUERN_TYPE_F32 = 0,
  QUERN_TYPE_F16 = 1,
  QUERN_TYPE_Q4_0 = 2,
  QUERN_TYPE_Q4_1 = 3,
  QUERN_TYPE_Q5_0 = 6,
  QUERN_TYPE_Q5_1 = 7,
  QUERN_TYPE_Q8_0 = 8,
  QUERN_TYPE_Q2_K = 10,
  QUERN_TYPE_Q3_K = 11,
  QUERN_TYPE_Q4_K = 12,
  QUERN_TYPE_Q5_K = 13,
  QUERN_TYPE_Q6_K = 14,
  QUERN_TYPE_IQ2_XXS = 16,
  QUERN_TYPE_IQ2_XS = 17,
  QUERN_TYPE_IQ3_XXS = 18,
  QUERN_TYPE_IQ1_S = 19,
  QUERN_TYPE_IQ4_NL = 20,
  QUERN_TYPE_IQ3_S = 21,
  QUERN_TYPE_IQ2_S = 22,
  QUERN_TYPE_IQ4_XS = 23,
  QUERN_TYPE_I8 = 24,
  QUERN_TYPE_IQ1_M = 29,
  QUERN_TYPE_BF16 = 30,
  QUERN_TYPE_TQ1_0 = 34,
  QUERN_TYPE_TQ2_0 = 35,
  QUERN_TYPE_MXFP4 = 39,
  QUERN_TYPE_NVFP4 = 40,
  QUERN_TYPE_Q1_0 = 41,
  QUERN_TYPE_Q2_0 = 42,
  QUERN_TYPE_CODE4 = 256 /* packed indices into a codebook of 16, two per byte, the first in the low nibble */
} quern_weight_type;

/* C++: quern::Layout. Both have the same number of bytes. */
typedef enum quern_layout {
  QUERN_LAYOUT_GGUF = 0,  /* raw blocks, row after row, as in the file */
  QUERN_LAYOUT_PLANAR = 1 /* each block field in a plane of its own */
} quern_layout;

/* Types of activations, outputs and bias. C++: quern::DType. */
typedef enum quern_dtype { QUERN_DTYPE_F32 = 0, QUERN_DTYPE_F16 = 1, QUERN_DTYPE_BF16 = 2 } quern_dtype;

/* The normalized mean squared error that is allowed against double precision. C++: quern::Accuracy. */
typedef enum quern_accuracy {
  QUERN_ACCURACY_EXACT = 0,  /* bit for bit */
  QUERN_ACCURACY_F32 = 1,    /* 1e-10 */
  QUERN_ACCURACY_TIGHT = 2,  /* 1e-6 */
  QUERN_ACCURACY_NORMAL = 3, /* 5e-5 */
  QUERN_ACCURACY_LOOSE = 4   /* 5e-4 */
} quern_accuracy;

/* C++: quern::Problem. Sizes are in elements. batch2, batch3, ratio2, ratio3, experts and used: 0 means 1. */
typedef struct quern_problem {
  uint32_t struct_size;
  uint32_t op;           /* quern_op */
  uint32_t type;         /* quern_weight_type */
  uint32_t layout;       /* quern_layout; for the repacking ops that of the source */
  int64_t m;             /* rows of X and Y (tokens) */
  int64_t n;             /* rows of W */
  int64_t k;             /* columns of W, a multiple of the type's block (w4a4: of 64) */
  uint32_t x_type;       /* quern_dtype */
  uint32_t y_type;       /* quern_dtype */
  uint32_t accuracy;     /* quern_accuracy */
  uint32_t bias;         /* 1: a bias is added */
  uint32_t x_transposed; /* 1: X is stored transposed, [columns, M] with M contiguous (mul_mat, out_prod) */
  uint32_t scale;        /* 1: W's values are multiplied by one more f32, read from device memory; mul_mat_id: one per expert */
  uint32_t x_broadcast;  /* mul_mat_id, 1: X is [M,K], one row for all slots of a token, else [M,used,K] */
  uint32_t reserved;
  int64_t batch2; /* batch dims 2 and 3 of X and Y; W's batch index is X's divided by the ratio */
  int64_t batch3;
  int64_t ratio2;
  int64_t ratio3;
  int64_t experts;  /* mul_mat_id */
  int64_t used;     /* mul_mat_id: slots of a token */
  uint32_t k_major; /* w4a4, 1: W is stored [K/2,N], a byte of every row behind one another */
  uint32_t fused;   /* w4a4, 1: one rounding for product and bias */
  int64_t block;    /* rpbh_quantize: columns that are turned together, a power of two that divides K; 0 means 1 */
} quern_problem;

/* mul_mat of f32 by the planar layout, one token, class normal. The caller sets type, n and k. */
static inline quern_problem quern_problem_init(void) {
  quern_problem problem = QUERN_ZERO;
  problem.struct_size = (uint32_t)sizeof(problem);
  problem.op = QUERN_OP_MUL_MAT;
  problem.layout = QUERN_LAYOUT_PLANAR;
  problem.accuracy = QUERN_ACCURACY_NORMAL;
  problem.m = 1;
  return problem;
}

/* Reads a problem's text, "mul_mat q4_0 m=1 n=14336 k=4096", into *problem, whose struct_size is set. Errors: QUERN_INVALID_ARGUMENT naming
 * the field and the text found; QUERN_UNSUPPORTED when the caller's struct is too old for it. C++: parse_problem. */
QUERN_API quern_status quern_problem_parse(const char* text, quern_problem* problem);
/* QUERN_OK exactly when quern_plan_create would find a kernel; compiles nothing. Errors: QUERN_INVALID_ARGUMENT for an impossible problem,
 * QUERN_UNSUPPORTED with the reasons. C++: Context::supports. */
QUERN_API quern_status quern_supports(const quern_context* context, const quern_problem* problem);
/* *bytes = those of a dense W[n,k], in either layout. Errors: QUERN_INVALID_ARGUMENT. C++: row_bytes. */
QUERN_API quern_status quern_weight_bytes(uint32_t type, int64_t n, int64_t k, size_t* bytes);

/* ---- Plan: how it is computed, compiled and loaded. C++: quern::Plan. */

typedef struct quern_plan quern_plan;

/* C++: quern::PlanOptions. */
typedef struct quern_plan_options {
  uint32_t struct_size;
  uint32_t lazy;      /* 1: compile and load at quern_plan_prepare or at the first launch instead of now */
  const char* config; /* use this config and no other, "gemv_q8:warps=4,..."; NULL: the tuned one, else the default */
} quern_plan_options;

static inline quern_plan_options quern_plan_options_init(void) {
  quern_plan_options options = QUERN_ZERO;
  options.struct_size = (uint32_t)sizeof(options);
  return options;
}

/* Chooses a config, compiles it or takes it from the store, and loads it. NULL options are the defaults. On success *plan is the caller's,
 * to be destroyed by quern_plan_destroy. Errors: QUERN_INVALID_ARGUMENT, QUERN_UNSUPPORTED, QUERN_COMPILE_FAILED, QUERN_ENVIRONMENT,
 * QUERN_DEVICE_LOST. C++: Context::plan. */
QUERN_API quern_status quern_plan_create(const quern_context* context, const quern_problem* problem, const quern_plan_options* options,
                                         quern_plan** plan);
/* A plan that repacks W[n,k] from the layout `from` (quern_layout) into the other one, for quern_prepare_weights.
 * C++: Context::plan_prepare_weights. */
QUERN_API quern_status quern_plan_create_prepare_weights(const quern_context* context, uint32_t type, int64_t n, int64_t k, uint32_t from,
                                                         quern_plan** plan);
/* Not while work that it launched is still running. NULL is allowed. */
QUERN_API void quern_plan_destroy(quern_plan* plan);

/* C++: quern::Provenance. */
typedef enum quern_provenance {
  QUERN_PROVENANCE_EXACT = 0,    /* tuned for this very problem on this kind of device */
  QUERN_PROVENANCE_NEAREST = 1,  /* tuned for a similar problem on this kind of device */
  QUERN_PROVENANCE_FALLBACK = 2, /* the default config, untuned */
  QUERN_PROVENANCE_REQUESTED = 3 /* quern_plan_options.config */
} quern_provenance;

/* What a plan is; may change once, when a lazy plan is prepared. Strings are valid until the plan is destroyed. */
typedef struct quern_plan_info {
  uint32_t struct_size;
  uint32_t is_ready;      /* 1: compiled and loaded; C++: Plan::ready */
  uint32_t provenance;    /* quern_provenance: where the config came from */
  uint32_t accuracy;      /* quern_accuracy: the class that the kernel states it meets */
  size_t workspace_bytes; /* what every launch needs */
  const char* problem;    /* in full, as text */
  const char* config;     /* "gemv_q8:warps=4,..."; "" when there is nothing to compute */
  const char* reason;     /* one line: why this config */
  const char* artifact;   /* key of the binary, 64 hex digits; "" until compiled */
  int32_t registers;      /* per thread; this and the next three are 0 until compiled; C++: quern::ResourceUsage */
  int32_t static_shared_bytes;
  int32_t local_bytes;
  int32_t spill_bytes;
} quern_plan_info;

static inline quern_plan_info quern_plan_info_init(void) {
  quern_plan_info info = QUERN_ZERO;
  info.struct_size = (uint32_t)sizeof(info);
  return info;
}

/* Fills as much of *info as its struct_size says. C++: Plan's accessors. */
QUERN_API quern_status quern_plan_get_info(const quern_plan* plan, quern_plan_info* info);
/* Compiles and loads a lazy plan; does nothing on a ready one. Afterwards config and workspace_bytes may differ. Errors: those of
 * quern_plan_create. C++: Plan::prepare. */
QUERN_API quern_status quern_plan_prepare(const quern_plan* plan);

/* ---- Launch. Pointers are device memory on a GPU, ordinary memory on the host. rows and columns: 0, or what the plan says, which is then
 * checked. Strides: 0 means dense. */

/* W[N,K]. Starts at a multiple of 16 bytes (planar), or of the largest power of two up to 16 that divides its block's bytes (gguf).
 * C++: quern::WeightView. */
typedef struct quern_weight_view {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t row_bytes; /* gguf layout: bytes between rows; planar is always dense */
  int64_t stride2;   /* bytes between matrices in batch dims 2 and 3; mul_mat_id: dim 2 counts the experts */
  int64_t stride3;
  const float* scale; /* exactly when the problem has a scale: one f32 on the device (mul_mat_id: one per expert) */
} quern_weight_view;

/* X[M,K] (out_prod: X[M,N]), aligned to its element. Strides in elements; packed indices (w4a4) count in bytes, K/2 to a row. Transposed X:
 * rows and columns as the product sees them, row_stride between its columns. mul_mat_id: rows are a token's slots, stride2 is between
 * tokens. C++: quern::InputView. */
typedef struct quern_input_view {
  const void* data;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t stride2;
  int64_t stride3;
} quern_input_view;

/* Y[M,N] (out_prod: Y[M,K]; dequantize: Y[N,K]; repacking: the other layout's bytes), aligned to its element. Strides in elements.
 * mul_mat_id: rows are a token's slots, stride2 is between tokens. C++: quern::OutputView. */
typedef struct quern_output_view {
  void* data;
  int64_t rows;
  int64_t columns;
  int64_t row_stride;
  int64_t stride2;
  int64_t stride3;
} quern_output_view;

/* mul_mat_id: i32 ids[M, used] on the device. The output row of an id outside 0..experts-1 is NaN. C++: quern::IdsView. */
typedef struct quern_ids_view {
  const int32_t* data;
  int64_t row_stride; /* elements between tokens */
} quern_ids_view;

/* w4a4: what its indices stand for. Codebooks are int8[16] on the device, at any byte offset. C++: quern::CodebookView. */
typedef struct quern_codebook_view {
  const int8_t* x;
  const int8_t* w;
  float activation_scale;
  float weight_scale;
} quern_codebook_view;

/* rpbh_quantize, all on the device: column c of what is turned is X[permutation[c]] * signs[c]. An index outside 0..K-1 counts as K-1.
 * C++: quern::RotationView. */
typedef struct quern_rotation_view {
  const int32_t* permutation; /* [K] */
  const int8_t* signs;        /* [K] */
  const float* boundaries;    /* [15], ascending: the index of a value is the number of boundaries that it exceeds */
  const int8_t* codebook;     /* [16], exactly when codes are asked for (QUERN_TYPE_I8) */
  float epsilon;              /* added to the norm before the division */
  uint32_t reserved;
} quern_rotation_view;

/* One launch. The pointers must stay valid until the work on the stream is done. Launches on one stream may share a workspace; those on
 * different streams need one each.
 * C++: quern::LaunchArgs. */
typedef struct quern_launch_args {
  uint32_t struct_size;
  uint32_t reserved;
  quern_weight_view w;
  quern_input_view x;
  quern_output_view y;
  const void* bias; /* [N] (mul_mat_id: [experts,N]), of Y's type; exactly when the problem has a bias */
  void* workspace;  /* quern_plan_info.workspace_bytes bytes, 256-byte aligned, contents arbitrary */
  size_t workspace_bytes;
  quern_ids_view ids;            /* mul_mat_id */
  const float* w_row_scales;     /* matmul_int8_rows: f32[N] on the device; C++: WeightView::row_scales */
  const float* x_row_scales;     /* where X are codes, f32[M] on the device: the scales of matmul_int8_rows, the norms of w4a4;
                                    C++: InputView::row_scales */
  float* y_row_scales;           /* where Y are codes, f32[M] on the device, written: the scales of quantize_rows_int8, the norms of
                                    rpbh_quantize; C++: OutputView::row_scales */
  const void* w_row_norms;       /* w4a4: bf16[N] on the device; C++: WeightView::row_norms */
  quern_codebook_view codebooks; /* w4a4 */
  quern_rotation_view rotation;  /* rpbh_quantize */
} quern_launch_args;

static inline quern_launch_args quern_launch_args_init(void) {
  quern_launch_args args = QUERN_ZERO;
  args.struct_size = (uint32_t)sizeof(args);
  return args;
}

/* What quern_plan_launch would say of these arguments, without launching. Reads no memory behind the pointers. C++: Plan::check. */
QUERN_API quern_status quern_plan_check(const quern_plan* plan, const quern_launch_args* args);
/* Enqueues the op on `stream`: a CUstream (NULL: the legacy default stream); ignored on the host, where launches are synchronous. Allocates
 * nothing and synchronizes nothing once the plan is ready, so it may be captured into a CUDA graph. When M or N is 0 it succeeds at once,
 * whatever the pointers. From sm_90 on it may begin while the launch before it ends, and waits for it inside the kernel; after a kernel of
 * another library that lets its successor begin early without waiting for its own predecessor that is not enough, and
 * quern_context_options.launch_apart is needed. Errors: QUERN_INVALID_ARGUMENT naming the argument, the value found and the value needed,
 * also when a lazy plan is not ready while the stream is being captured; QUERN_LAUNCH_FAILED; QUERN_DEVICE_LOST. C++: Plan::launch. */
QUERN_API quern_status quern_plan_launch(const quern_plan* plan, void* stream, const quern_launch_args* args);
/* Enqueues a plan of quern_plan_create_prepare_weights. `destination` may equal `source` (in place) or be apart from it; both hold
 * quern_weight_bytes() bytes. Errors: those of quern_plan_launch. C++: Context::prepare_weights. */
QUERN_API quern_status quern_prepare_weights(const quern_context* context, void* stream, const quern_plan* plan, const void* source,
                                             void* destination, void* workspace, size_t workspace_bytes);

/* ---- Launch records: which kernels really ran. C++: Context::launch_records. */

typedef struct quern_launch_records quern_launch_records;

/* One per plan that launched. Strings are valid until the records are freed. C++: quern::LaunchRecord. */
typedef struct quern_launch_record {
  uint32_t struct_size;
  uint32_t reserved;
  const char* family;
  const char* config;
  const char* problem;
  const char* artifact;
  uint64_t launches;
  const char* entries; /* what each launch step runs, separated by spaces: the functions' names in the loaded module */
} quern_launch_record;

static inline quern_launch_record quern_launch_record_init(void) {
  quern_launch_record record = QUERN_ZERO;
  record.struct_size = (uint32_t)sizeof(record);
  return record;
}

/* Takes a snapshot: *records is the caller's, to be freed by quern_launch_records_free, and *count how many it holds. Empty unless the
 * context was opened with record_launches. */
QUERN_API quern_status quern_launch_records_take(const quern_context* context, quern_launch_records** records, size_t* count);
/* Fills as much of *record as its struct_size says. Errors: QUERN_INVALID_ARGUMENT for an index that is not below the count. */
QUERN_API quern_status quern_launch_records_get(const quern_launch_records* records, size_t index, quern_launch_record* record);
/* NULL is allowed. */
QUERN_API void quern_launch_records_free(quern_launch_records* records);

#ifdef __cplusplus
}
#endif

#undef QUERN_ZERO

#endif /* QUERN_QUERN_H */
