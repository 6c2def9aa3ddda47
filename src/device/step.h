/* SPDX-License-Identifier: Apache-2.0
 * step.h - one step on the host's processors, as every thread sees it (internal to src/device).
 *
 * All threads run the same list of instructions, each its share, with a barrier after each
 * one. A handler may have barriers of its own; every thread must reach the same ones. */
#ifndef TG_DEVICE_STEP_H
#define TG_DEVICE_STEP_H

#include "device/cpu_device.h"
#include "device/team.h"
#include "format/kv_type.h"
#include "ir/io.h"
#include "kernel/kernel.h"

/* Up to this many tokens every thread normalizes and quantizes all inputs of a matrix by itself
 * into memory of its own: 0.1-0.6 us a row, cheaper than sharing the work and another barrier. */
enum { TG_STEP_GEMV_TOKENS = 8 };

/* Threads share the rows of an input from this many on: then a barrier is cheaper. */
enum { TG_STEP_SHARED_ROWS = 4 };

/* Results of an instruction's matrix products that its second half reads. One instruction runs at a
 * time, so all share one piece of memory. */
typedef union tg_step_products {
    void *memory;
    float *keys_values; /* QKV: [T][2 K head_dim], the keys of a token, then its values */
    float *up;          /* GLU_MATMUL, gate and up apart: [T][F]; gate is in the result */
    float *interleaved; /* GLU_MATMUL, interleaved: [T][2 F], 16 of gate, 16 of up, and so on */
    float *tiles;       /* GLU_MATMUL, GEMM: of each thread, gate then up of a few tiles */
} tg_step_products;

/* Memory for the running instruction, shared by the threads of a view. */
typedef struct tg_step_scratch {
    void *a8_memory; /* quantized input of the running matmul: [tokens] rows */
    float *normed;   /* the same in float32 */
    tg_step_products products;
} tg_step_scratch;

/* Memory that belongs to one thread. */
typedef struct tg_step_private {
    const uint8_t *ahead; /* the part of its next weights that is not yet prefetched */
    size_t ahead_bytes;
    void *matmul, *attend, *sample; /* scratch of those kernels */
    void *a8_memory;                /* TG_STEP_GEMV_TOKENS rows of the widest input, quantized */
    tg_a8 a8;                       /* of the running instruction, in private or shared memory */
    float *normed;                  /* the same rows in float32 */
    float *queries;                 /* attention: in the KV type's form, of a set or all */
    float *running;                 /* attention: o of TG_ATTEND_MAX_QUERIES queries, merged */
    struct {                        /* its token block (token_blocks.h) */
        char *values;               /* those that no other token block reads */
        tg_step_scratch scratch;
        int32_t *row_tokens; /* [rows + 1] */
    } token_block;
} tg_step_private;

/* A weight of one layer, resolved. */
typedef struct tg_step_weight {
    const tg_weight_entry *entry; /* NULL: absent */
    const uint8_t *data;
    const int16_t *outliers; /* map of its input's outlier groups (kernel.h), NULL: none */
} tg_step_weight;

struct tg_profile; /* profile.h */

/* Tokens of a step, or of a token block: arrays of the input image (ir/io.h). */
typedef struct tg_step_tokens {
    int32_t n;
    const int32_t *ids, *positions, *rope_rows, *token_rows, *row_tokens;
} tg_step_tokens;

struct tg_step_view;
struct tg_step_input;

/* Runs the tiles [begin, end) of gate and up. */
typedef void tg_step_glu_fn(const struct tg_step_view *v, const tg_instr *x,
                            const struct tg_step_input *in, int32_t layer, int64_t begin,
                            int64_t end);

/* All of a step that does not change while it runs; every thread and token block reads this one. */
typedef struct tg_step {
    const tg_program *program;
    const tg_plan *plan;
    const tg_step_weight *weights; /* [n_layers][TG_W_COUNT] */
    tg_step_glu_fn *const *glu;    /* [plan->n_instrs][n_layers], NULL: of other operations */
    const tg_kernels *kernels;
    tg_team *team;
    int32_t n_threads;
    int32_t prefetch_bytes; /* of this machine */
    bool has_pairs;         /* whether it gains by multiplying column pairs (kernel.h) */
    tg_io io;
    const char *in; /* input image */
    char *out;      /* output image */
    char *pools[TG_MAX_KV_GROUPS];
    char *arena;    /* the plan's values */
    float *partial; /* attention in decode: (m, l, o) per token, head and KV block */
    tg_step_scratch scratch;
    tg_step_private *privates;  /* [n_threads] */
    struct tg_profile *profile; /* NULL: times are not taken */
    tg_cpu_watch_fn *watch;     /* NULL: inputs of products are not watched */
    void *watch_context;
    tg_cpu_show_fn *show; /* NULL: results are not shown */
    void *show_context;
    const struct tg_token_blocks *token_blocks; /* NULL: the plan does not run in token blocks */
    /* Of the input image. */
    tg_step_counts counts;
    tg_step_tokens tokens;
    const int32_t *out_tokens;
} tg_step;

/* The tokens that one thread runs an instruction for, and where their values are: the whole step,
 * which it shares with the other threads, or a token block of its own. */
typedef struct tg_step_view {
    const tg_step *step;
    int32_t thread, n_threads; /* of those that share the tokens */
    tg_step_private *mine;     /* the thread's */
    tg_step_tokens tokens;
    const tg_step_scratch *scratch;
    /* A token block: */
    bool is_block;
    int32_t first_token; /* of the step's */
} tg_step_view;

/* Runs the plan for one thread. */
void tg_step_run(const tg_step *s, int32_t thread);

/* ---- shared by the handlers */

typedef void tg_step_fn(const tg_step_view *v, const tg_instr *x, int32_t layer);

/* One for each row of ops.def, which names it. */
#define TG_OP(NAME, name, ...) tg_step_fn tg_step_##name;
#include "ir/ops.def"
#undef TG_OP

/* One instruction; the view's threads wait for each other afterwards. */
void tg_step_handle(const tg_step_view *v, const tg_instr *x, int32_t layer);

/* No thread goes on before all threads of the view are here. */
void tg_step_barrier(const tg_step_view *v);
/* The share [*begin, *end) of n units that the view's thread owns: contiguous, and the same in
 * every step. */
void tg_step_share(const tg_step_view *v, int64_t n, int64_t *begin, int64_t *end);
/* Rows that a value has in this view: tokens, or output rows. */
int32_t tg_step_n_rows(const tg_step_view *v, int32_t value);
/* Row 0 of a value, and the distance between rows in floats. */
float *tg_step_value(const tg_step_view *v, int32_t value, int64_t *stride);
const tg_step_weight *tg_step_find_weight(const tg_step_weight *weights, int32_t role,
                                          int32_t layer);
/* The plain vector of a slot, NULL when the slot is empty. */
const float *tg_step_vector(const tg_step_view *v, const tg_instr *x, int32_t slot, int32_t layer);
/* K half of a page for a layer and KV head; the V half follows at *values. */
char *tg_step_page(const tg_step_view *v, int32_t layer, int32_t page_id, int32_t kv_head,
                   char **values);
int32_t tg_step_page_id(const tg_step_view *v, int32_t group, int32_t row, int32_t page);

/* products.c: how GLU_MATMUL x multiplies in a step of up to TG_STEP_GEMV_TOKENS tokens. */
tg_step_glu_fn *tg_step_choose_glu(const tg_step_weight *weights, const tg_instr *x, int32_t layer);
/* Prefetches a little more of the thread's next weights, so that memory works on while attention
 * and other instructions without matrices compute. */
void tg_step_prefetch(const tg_step_view *v);

/* heads.c: the second half of QKV. Norms and rotates what it multiplied, stores keys and values. */
void tg_step_finish_heads(const tg_step_view *v, const tg_instr *x, int32_t layer);

/* Bytes of the shared and private memory that plans need; each call raises the sizes to hold one
 * more plan. */
typedef struct tg_step_sizes {
    int64_t arena_bytes, tokens, cols, products_floats, partial_floats;
    int64_t rows;                /* of a step */
    int64_t products_row_floats; /* of tg_step_products, for one token */
    int64_t block_bytes;         /* of a token block's own values: raised by the caller */
    int32_t n_vocab, head_dim, n_outliers, n_heads;
} tg_step_sizes;

void tg_step_measure(tg_step_sizes *sizes, const tg_program *p, const tg_plan *plan);

#endif
