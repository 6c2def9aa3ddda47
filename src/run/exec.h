/* SPDX-License-Identifier: Apache-2.0
 * exec.h - one step: rows of tokens in, chosen ids or logits out.
 *
 * An exec is a program on a device: every plan loaded, the KV pools, the step's buffers. A step
 * names its kind, never guessed from a width; the smallest bucket that holds it runs. Padding does
 * not exist here: the device gets true counts. One thread at a time. */
#ifndef TG_RUN_EXEC_H
#define TG_RUN_EXEC_H

#include "device/device.h"
#include "run/kv.h"

typedef struct tg_exec tg_exec;

/* Memory for full rows of a program, without the weights, which are mapped and can be dropped. */
typedef struct tg_exec_memory {
    int64_t kv_bytes;     /* pages of all rows */
    int64_t step_bytes;   /* of the largest step: values, scratch of all threads, both images */
    int64_t logits_bytes; /* in step_bytes: every row of logits of the largest plan */
} tg_exec_memory;

/* Memory touched by steps that fill their buckets: the system must have it; less than the
 * address space that is reserved for it. `device_options` is what ops->open takes. */
TG_MUST_USE tg_status tg_exec_find_memory(tg_exec_memory *out, const tg_program *p,
                                          const tg_device_ops *ops, const void *device_options,
                                          tg_err *e);
/* Whether that fits into `available` bytes; TG_E_LIMIT names both sizes and the options that
 * help. */
TG_MUST_USE tg_status tg_exec_check_memory(const tg_exec_memory *m, const tg_program *p,
                                           int64_t available, tg_err *e);

/* Program and weights are borrowed until free. `device_options` is what ops->open takes. */
TG_MUST_USE tg_status tg_exec_new(tg_exec **out, const tg_program *p, const void *weights,
                                  const tg_device_ops *ops, const void *device_options, tg_err *e);
void tg_exec_free(tg_exec *x); /* accepts NULL */

tg_device *tg_exec_device(const tg_exec *x);
tg_kv *tg_exec_kv(tg_exec *x);

/* One row of a step. Its tokens lie at positions [position, position + n_tokens);
 * everything before is in its pages. */
typedef struct tg_exec_row {
    int32_t row; /* of the KV tables, each at most once a step */
    const int32_t *tokens;
    int32_t n_tokens, position;
    /* tg_program_is_long of the whole text that these tokens are a part of: the same for
     * all pages of a row. */
    bool is_long;
    int32_t n_outs; /* output rows: logits are computed for the last n_outs tokens */
    /* [n_outs], NULL when only logits are asked for; adjust_at counts from `adjust`. All rows or
     * none. */
    const tg_sample_params *params;
    const tg_sample_adjust *adjust;
    int32_t n_adjust;
} tg_exec_row;

/* Pages are acquired and, after the step, given back where a window has passed. TG_E_LIMIT when no
 * bucket is large enough, a row would pass max_length, or one that is not long the original length
 * (drafts end there too: the token behind it wants the row computed again as a long one); then
 * nothing has happened. */
TG_MUST_USE tg_status tg_exec_step(tg_exec *x, tg_graph_kind kind, const tg_exec_row *rows,
                                   int32_t n_rows, tg_err *e);

/* Of the last step; out counts output rows in the order of the step's rows and tokens. */
int32_t tg_exec_get_id(const tg_exec *x, int32_t out); /* -1: logits were not finite */
/* n_vocab floats, borrowed until the next read or step. */
TG_MUST_USE tg_status tg_exec_read_logits(tg_exec *x, int32_t out, const float **logits, tg_err *e);

/* Overwrites every KV byte with `byte`: tests fill the pools with NaN. */
TG_MUST_USE tg_status tg_exec_fill_kv(tg_exec *x, uint8_t byte, tg_err *e);

#endif
