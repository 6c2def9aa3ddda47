/* SPDX-License-Identifier: Apache-2.0
 * kernel_quantize.h - activations become codes: the type that holds them, and what it promises. The
 * numbers of the contract go on from kernel.h.
 *
 *  5. Quantized activations (tg_a8): groups of 32 columns, each narrow (one plane of int8) or wide
 *     (two), as the matrix's map says. amax = the largest |x| of the group by its bits, so that NaN
 *     beats infinity beats numbers. Narrow: scale = amax / top; inv = top / amax; q = rintf(x *
 *     inv) as int8, top the kind's (tg_a8_kind). Wide: scale = amax / 32512, inv = 32512 / amax, v
 *     = rintf(x * inv) as int, hi = (v + 128) >> 8, lo = v - 256 hi, both int8. Where amax is not
 *     finite the scale is amax and the codes are 0, so that every output becomes NaN; where inv is
 *     not finite (amax 0 or tiny) scale and codes are 0. */
#ifndef TG_KERNEL_KERNEL_QUANTIZE_H
#define TG_KERNEL_KERNEL_QUANTIZE_H

#include "format/layout.h"

enum {
    TG_A8_TOP = 127,    /* the largest code there is of a narrow group */
    TG_PAIR_TOKENS = 16 /* fewer are never multiplied by pairs (tg_a8_top) */
};

/* Quantized activations of n_tokens rows. Arrays are [n_tokens][...] with the strides below; all
 * borrowed. Columns from n to `padded` hold zero codes, scales and sums: whole quanta of any
 * layout, and one cache line more, which keeps the rows of a token block out of each other's
 * cache sets. Which groups are wide belongs to the matrix that reads the input, not to its values:
 * the map is the same for every row, and n_outliers is 0 with `outliers` and `lo` NULL where
 * none is. */
typedef struct tg_a8 {
    int8_t *hi; /* [T][padded] codes, of a narrow group the only plane: -top..top */
    int8_t *lo; /* [T][32 n_outliers] in -128..127: the second plane of the outlier groups */
    const int16_t *outliers; /* [padded / 32] a group's place in a row of lo, -1: narrow */
    float *scale;            /* [T][padded / 32] */
    float *ssum;             /* [T][padded / 32] scale * code sum */
    int32_t *sum;            /* [T][padded / 32] code sum (256 hi + lo) */
    int32_t *half;           /* [T][padded / 32] code sum of the group's first 16 columns */
    int32_t *pair;      /* [T][padded / 32] tg_a8_sum_pairs, or NULL: nothing is multiplied so */
    int64_t padded;     /* columns, a multiple of 64: the stride; 1/32 of it for scale .. pair */
    int32_t n_outliers; /* at most INT16_MAX */
    int32_t top;        /* largest code of a narrow group */
} tg_a8;

/* What the matrices that read an input want of its codes. */
typedef struct tg_a8_kind {
    const int16_t *outliers; /* as above, borrowed */
    int32_t n_outliers;
    int32_t top;    /* at most the least of tg_a8_top over their layouts, where they have pairs */
    bool has_pairs; /* whether they multiply by pairs where they can */
} tg_a8_kind;

/* Largest code of narrow groups that meet a quantized layout: TG_A8_TOP, but 120 where its codes
 * have 4 bits and 112 where they have 5. A weight's code and an input's then add up to 8 bits, so
 * that one multiplication does the work of two (S. Winograd, "A new algorithm for inner product",
 * IEEE Transactions on Computers C-17, 1968): with columns c and c + 4 of a group, c mod 8 < 4,
 * codes w without sign, a of the input, and rest = 128 - top,
 *
 *   (w[c] + a[c+4] + top) (w[c+4] + a[c] - rest) = w[c] a[c] + w[c+4] a[c+4]
 *       + a[c] a[c+4] + top a[c] - rest a[c+4]      tg_a8_sum_pairs over the group, of the input
 *       + (w[c] + top) (w[c+4] - rest)              of the weights: the left side where a is 0
 *
 * with the first factor in 0..255 and the second in -128..127. */
int32_t tg_a8_top(tg_layout l);
int32_t tg_a8_sum_pairs(const int8_t codes[TG_GROUP_COLS], int32_t top);

/* Bytes of a tg_a8 for n_tokens rows of n_cols, and its arrays laid into `memory` (64-aligned). The
 * memory needs no clearing: quantize writes whole rows. Fewer rows, columns or outlier groups never
 * take more bytes. */
size_t tg_a8_bytes(int64_t n_tokens, int64_t n_cols, int32_t n_outliers);
void tg_a8_place(tg_a8 *out, void *memory, int64_t n_tokens, int64_t n_cols,
                 const tg_a8_kind *kind);
/* Entries of a map, padded / 32, and the map of an ascending list of outlier groups, all below
 * n_cols / 32 rounded up. */
int64_t tg_a8_n_groups(int64_t n_cols);
void tg_a8_map(int16_t *out, int64_t n_cols, const int32_t *groups, int32_t n_outliers);
/* The same arrays from row `token` on. */
tg_a8 tg_a8_from(const tg_a8 *x, int64_t token);

/* x [n] -> one token's row of `out` (already placed; row 0). n need not be a multiple of 32. */
typedef void tg_quantize_fn(const tg_a8 *out, const float *x, int32_t n);

#endif
