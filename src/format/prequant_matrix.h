/* SPDX-License-Identifier: Apache-2.0
 * prequant_matrix.h - one matrix that a Hugging Face folder writes down as several tensors.
 *
 * A *coding* is a way to do that: which tensors there are, by the last part of their names, and how
 * codes, zeros and scales lie in them. prequantized.h finds the matrices of a folder and says which
 * types they become; here one of them is checked, and its rows are made when they are read. */
#ifndef TG_FORMAT_PREQUANT_MATRIX_H
#define TG_FORMAT_PREQUANT_MATRIX_H

#include "format/checkpoint.h"

typedef struct tg_coding_rules tg_coding_rules; /* prequant_matrix.c */

typedef struct tg_coding {
    const char *codes; /* last part of the name of the tensor that holds the codes */
    tg_dtype dtype;    /* and its type */
    const char *scales[2], *zeros, *index; /* the others'; scales: the first that is there */
    bool needs_zeros;
    const tg_coding_rules *rules;
} tg_coding;

extern const tg_coding tg_coding_gptq, tg_coding_awq; /* qweight */
extern const tg_coding tg_coding_packed;              /* weight_packed */
extern const tg_coding tg_coding_int8;                /* weight */
extern const tg_coding tg_coding_fp8; /* weight; DeepSeek's weight_scale_inv, or weight_scale */
extern const tg_coding tg_coding_fp8_scale; /* weight, weight_scale */

/* Settings of config.json for all matrices of a folder. */
typedef struct tg_prequant_folder {
    const tg_checkpoint *c;
    int32_t bits, zero_shift;       /* gptq, awq; the shift is added to a stored zero */
    int64_t group_size;             /* the same; -1: a row is one group */
    int64_t block_rows, block_cols; /* of fp8's scales; 0: not said */
} tg_prequant_folder;

/* The matrix whose codes lie in `codes`, a tensor that `k` names, as a tensor with `prequant` set:
 * name, type and shape. Its parts live in the arena, and `codes` and the checkpoint must
 * outlive it. A missing tensor, a shape or a number that does not fit is an error that names it. */
TG_MUST_USE tg_status tg_prequant_matrix_new(tg_tensor *out, const tg_prequant_folder *from,
                                             const tg_coding *k, const tg_tensor *codes,
                                             tg_arena *arena, tg_err *e);

/* Makes row `row` of a tensor whose `prequant` is set: tg_dtype_row_bytes of it, at any address. */
void tg_prequant_matrix_read(const tg_tensor *t, int64_t row, void *dst);

#endif
