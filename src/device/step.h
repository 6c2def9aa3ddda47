/* SPDX-License-Identifier: Apache-2.0
 * step.h - one step on the host's processors, as every thread sees it (internal to src/device).
 *
 * All threads run the same list of instructions, each its share, and meet at a barrier after each
 * one. A handler may have barriers of its own; every thread must reach the same ones. */
#ifndef TG_DEVICE_STEP_H
#define TG_DEVICE_STEP_H

#include "device/cpu_device.h"
#include "device/team.h"
#include "ir/io.h"
#include "kernel/kernel.h"

/* Up to this many tokens every thread normalises and quantizes all inputs of a matrix by itself
 * into memory of its own: 0.1-0.6 us a row, cheaper than sharing the work and meeting once more. */
enum { TG_STEP_GEMV_TOKENS = 8 };

/* Threads share the rows of an input from this many on: then a meeting is cheaper. */
enum { TG_STEP_SHARED_ROWS = 4 };

/* Memory that belongs to one thread. */
typedef struct tg_step_private {
    const uint8_t *ahead; /* of its next weights, what is not yet asked for */
    size_t ahead_bytes;
    void *matmul, *attend, *sample; /* scratch of those kernels */
    void *a8_memory;                /* TG_STEP_GEMV_TOKENS rows of the widest input, quantized */
    tg_a8 a8;                       /* of the running instruction, in private or shared memory */
    float *normed;                  /* the same rows in float32 */
    float *queries;                 /* attention: as the KV type wants them, of a set or all */
    float *running;                 /* attention: o of TG_ATTEND_MAX_QUERIES queries, merged */
    struct {                        /* a block of tokens (token_blocks.h) */
        char *values;               /* those that no other block or stretch sees */
        void *a8_memory;            /* as in tg_step_shared, for a block's rows */
        float *normed, *pair;
        int32_t *row_tokens; /* [rows + 1] */
    } token_blocks;
} tg_step_private;

/* Memory that all threads share, for values no plan speaks of. Sized for the largest plan
 * loaded. */
typedef struct tg_step_shared {
    char *arena;     /* the plan's values */
    void *a8_memory; /* quantized input of the running matmul: [tokens] rows */
    float *normed;   /* the same in float32 */
    float *pair;     /* QKV: keys then values [T][2 K head_dim]; GLU_MATMUL: up [T][F] */
    float *partial;  /* attention of few tokens: (m, l, o) per token, head and block */
} tg_step_shared;

/* A weight of one layer, resolved. */
typedef struct tg_step_weight {
    const tg_weight_entry *entry; /* NULL: absent */
    const uint8_t *data;
    const int16_t *outliers; /* map of its input's outlier groups (kernel.h), NULL: none */
} tg_step_weight;

struct tg_profile; /* profile.h */

typedef struct tg_step {
    const tg_program *program;
    const tg_plan *plan;
    const tg_step_weight *weights; /* [n_layers][TG_W_COUNT] */
    const tg_kernels *kernels;
    tg_team *team;
    int32_t n_threads;
    int32_t prefetch_bytes; /* of this machine */
    bool has_pairs;         /* whether it gains by multiplying by pairs (kernel.h) */
    tg_io io;
    const char *in; /* input image */
    char *out;      /* output image */
    char *pools[TG_MAX_KV_GROUPS];
    tg_step_shared shared;
    tg_step_private *privates;  /* [n_threads] */
    struct tg_profile *profile; /* NULL: times are not taken */
    tg_cpu_watch_fn *watch;     /* NULL: nobody looks at products */
    void *watch_context;
    tg_cpu_show_fn *show; /* NULL: nobody looks at results */
    void *show_context;
    const struct tg_token_blocks
        *token_blocks; /* NULL: the plan does not run in blocks of tokens */
    bool is_block;     /* this is one of them, its tokens those from first_token on */
    int32_t first_token;
    /* Of the input image. */
    tg_step_counts counts;
    const int32_t *tokens, *positions, *rope_rows, *token_rows, *row_tokens, *out_tokens;
} tg_step;

/* Runs the plan for one thread. */
void tg_step_run(tg_step *s, int32_t thread);

/* ---- shared by the handlers */

typedef void tg_step_fn(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread);

/* One for each row of ops.def, which names it. */
#define TG_OP(NAME, name, ...) tg_step_fn tg_step_##name;
#include "ir/ops.def"
#undef TG_OP

/* One instruction; the caller's threads meet afterwards. */
void tg_step_handle(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread);

/* The share [*begin, *end) of n units that a thread owns: contiguous, and the same in every
 * step. */
void tg_step_share(const tg_step *s, int32_t thread, int64_t n, int64_t *begin, int64_t *end);
/* Asks for a little more of the thread's next weights, so that memory works on while glue and
 * attention compute. */
void tg_step_ahead(const tg_step *s, int32_t thread);
/* Rows that a value has in this step: true tokens, or output rows. */
int32_t tg_step_n_rows(const tg_step *s, int32_t value);
/* Row 0 of a value, and the distance between rows in floats. */
float *tg_step_value(const tg_step *s, int32_t value, int64_t *stride);
/* K half of a page for a layer and KV head; the V half follows at *v. */
char *tg_step_page(const tg_step *s, int32_t layer, int32_t page_id, int32_t kv_head, char **v);
int32_t tg_step_page_id(const tg_step *s, int32_t group, int32_t row, int32_t page);

/* Bytes of the shared and private memory that plans need; each call raises the sizes to hold one
 * more plan. */
typedef struct tg_step_sizes {
    int64_t arena_bytes, tokens, cols, pair_floats, partial_floats;
    int64_t rows;            /* of a step */
    int64_t pair_row_floats; /* of pair, for one token */
    int64_t block_bytes;     /* of a block's own values: raised by the caller */
    int32_t n_vocab, head_dim, n_outliers, n_heads;
} tg_step_sizes;

void tg_step_measure(tg_step_sizes *sizes, const tg_program *p, const tg_plan *plan);

#endif
