/* SPDX-License-Identifier: Apache-2.0
 * io.h - what goes into a step and what comes out: the two buffers beside the KV pools.
 *
 * The runtime fills the input image and the device reads it; the device fills the output image.
 * Both are plain arrays at offsets that follow from the plan's bucket, so that any device can slice
 * them. A step names its true counts; entries beyond them are never read: padding has no side
 * effect.
 *
 * Tokens of a row are contiguous and ascending in position; rows follow one another. */
#ifndef TG_IR_IO_H
#define TG_IR_IO_H

#include "format/sampling.h"
#include "ir/program.h"

/* First in the input image. */
typedef struct tg_step_counts {
    int32_t n_rows, n_tokens, n_outs;
    int32_t is_sampling; /* 0: logits only, the sampler does not run */
} tg_step_counts;

/* Byte offsets in the input image. */
typedef struct tg_io {
    size_t tokens;      /* int32 [tokens] */
    size_t positions;   /* int32 [tokens] */
    size_t rope_rows;   /* int32 [tokens]: the row of the rope tables, by position and length */
    size_t token_rows;  /* int32 [tokens]: the row of each token */
    size_t row_tokens;  /* int32 [rows + 1]: first token of each row, then n_tokens */
    size_t out_tokens;  /* int32 [outs]: token index of each output row, ascending */
    size_t page_tables; /* int32 [n_kv_groups][rows][pages]: page ids by position / 64; -1: freed */
    size_t sampling;    /* tg_sample_params [outs] */
    size_t adjust;      /* tg_sample_adjust [n_sampled][max_adjust] */
    int32_t n_sampled;  /* ids a step may draw: rows, times K + 1 when it verifies drafts */
    int32_t max_adjust; /* entries for each: the program's max_length */
    size_t in_bytes;
    /* output image */
    size_t ids;           /* int32 [outs]: -1 where the logits were not finite */
    size_t logits;        /* float [outs][n_vocab rounded up to 16] */
    size_t logits_stride; /* floats from one row to the next */
    size_t out_bytes;
} tg_io;

void tg_io_find(tg_io *out, const tg_program *p, const tg_plan *plan);

/* Rows of logits that a step of a prompt may be asked for: what 64 MB hold, at least one of each
 * sequence. Generation wants the last token's of a row; only who evaluates a text wants all, and
 * 4,096 of SmolLM2's would be 805 MB. Plans of the other kinds have a row for each token. */
int32_t tg_io_most_outs(const tg_program *p);

#endif
