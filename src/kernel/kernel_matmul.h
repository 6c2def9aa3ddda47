/* SPDX-License-Identifier: Apache-2.0
 * kernel_matmul.h - products of a packed matrix with the rows of an input, one row (gemv) or many
 * (gemm), and a row of such a matrix read back. The numbers of the contract go on from kernel.h.
 *
 *  6. matmul, quantized: for each group of 32 columns in ascending order i = exact int32 sum over
 *     the group of q_x * (q_w - zero), with per-16 integer scales multiplied in where the layout
 *     has them (i = sc0 dot0 + sc1 dot1); in outlier groups i = 256 i_hi + i_lo. acc =
 *     fma((float)i, D * scale, acc) with D the group's weight scale in float32 (K layouts with a
 *     scale per group: d * sc, exact) and D * scale rounded once. Layouts with a minimum keep a
 *     second chain: min = fma(M, ssum, min) with ssum = scale * (float)sum of the group's codes,
 *     rounded once, M = m or -(dmin * mn), exact; q2_k: min = fma((float)(mn0 S0 + mn1 S1), -dmin *
 *     scale, min), -dmin * scale rounded once, S the code sums of the two sixteenths (wide: S = 256
 *     S_hi + S_lo, here and in ssum). Both chains start at +0; the dot product is acc + min (acc
 *     alone without minimum). (float) of an int32 rounds once. Layouts with per-16 scales would
 *     overflow int32 in outlier groups, so there each sixteenth is a step of its own, first then
 *     second: acc = fma((float)dot_s * (float)sc_s, D * scale, acc), dot_s = 256 dot_hi + dot_lo,
 *     the product rounded once. All quanta of the matrix take part, the padded columns (codes and
 *     scales 0) too. Error against exact arithmetic: (n_groups + 4) 2^-24 mass (per-16 scales with
 *     wide groups: twice that), mass = the sum of D |q_w - zero| |x| and |M| |x| over the columns,
 *     x = scale * code.
 *  7. matmul, float weights: acc = fma(w, x, acc) over columns in ascending order from +0, w
 *     converted exactly. Error: n_cols 2^-24 mass, mass = the sum of |w x|.
 *  8. What follows a matmul: y = dot; with bias y = y + bias; then with add y = old + y. */
#ifndef TG_KERNEL_KERNEL_MATMUL_H
#define TG_KERNEL_KERNEL_MATMUL_H

#include "kernel/kernel_quantize.h"

/* y[t][row] (+)= dot(x[t], W[row]) for rows of tiles [0, n_tiles) and n_tokens tokens. Row r of
 * tile i lands in y[t * y_stride + 16 i + r] if 16 i + r < n_rows. */
typedef struct tg_matmul {
    const uint8_t *w;   /* tile 0; tile i at w + i * tile_stride */
    size_t tile_stride; /* at least the tile's bytes: tiles of two matrices may interleave */
    int32_t n_tiles;    /* > 0 */
    int32_t n_rows;     /* <= 16 n_tiles */
    int32_t n_cols;     /* columns of the matrix, not padded */
    int32_t n_tokens;   /* > 0 */
    const tg_a8 *a8;    /* quantized layouts: n_tokens rows */
    const float *x;     /* float layouts: [T][x_stride] */
    int64_t x_stride;
    const float *bias; /* [n_rows] or NULL */
    float *y;
    int64_t y_stride;
    bool is_add;            /* y += instead of y = */
    void *scratch;          /* TG_MATMUL_SCRATCH_BYTES, 64-aligned, private to the thread */
    int32_t prefetch_bytes; /* ahead on the stream of weights; 0: left to the machine (cpu.h) */
} tg_matmul;

enum { TG_MATMUL_SCRATCH_BYTES = 512 * 1024 };

typedef void tg_matmul_fn(const tg_matmul *m);

/* Row `row` of a packed matrix as float32, in the arithmetic of the file's own format (w of
 * layout.h, rounded where that rounds): y[c] for c < n_cols, times `mul`. */
typedef struct tg_embed {
    const uint8_t *w; /* the row's tile */
    int32_t lane;     /* row within the tile */
    int32_t n_cols;
    float mul; /* y = w * mul, one rounding; 1 leaves w */
    float *y;
} tg_embed;

typedef void tg_embed_fn(const tg_embed *x);

#endif
