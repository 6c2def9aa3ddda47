/* SPDX-License-Identifier: Apache-2.0
 * kernel.h - the numerical contract, and the table of functions that fulfil it.
 *
 * Kernels are pure functions on pointers: no allocation, no threads, no errors, no graph. ref.c is
 * the definition, scalar C in the order of operations written here; every other tier gives its bits
 * exactly, for any input, and is checked against it. The contract is what makes an answer
 * independent of batch, bucket, chunking, thread count, tier, and of whether a token was generated
 * or verified:
 *
 *  1. float32, round to nearest even, denormals kept; a product-sum is one fmaf where this page
 *     says fma, and never otherwise. No libm but sqrtf, fmaf, rintf (which are exact); division is
 *     IEEE. No reciprocal estimates.
 *  2. A result of one row (token, output, head) never depends on what else is in the call.
 *  3. "sum16": element i goes to lane i mod 16; a lane adds its elements in ascending order,
 *     starting from +0 (with fma(x, x, lane) for squares); then lanes fold in halves: l[i] + l[i+8]
 *     for i < 8, l[i] + l[i+4], l[i] + l[i+2], l[0] + l[1]. "max16" likewise from -inf: a lane
 *     takes x > lane ? x : lane (so NaN never enters), the folds take l[i] > l[i+8] ? l[i] :
 *     l[i+8], ...
 *  4. exp(x): x > 88 is taken as 88; x < -87 gives +0 (also -inf); NaN gives NaN. Else n = rintf(x
 *     * 0x1.715476p0f); r = fma(n, -0x1.62e4p-1f, x); r = fma(n, -0x1.7f7d1cp-20f, r); p by Horner
 *     with fma over TG_EXP_POLY (highest first), giving exp(r); the result is p with n added to its
 *     exponent field. exp(+-0) is exactly 1. Relative error below 2^-22.
 *  5. Quantized activations (tg_a8): groups of 32 columns, each narrow (one plane of int8) or wide
 *     (two), as the matrix's map says. amax = the largest |x| of the group by its bits, so that NaN
 *     beats infinity beats numbers. Narrow: scale = amax / top; inv = top / amax; q = rintf(x *
 *     inv) as int8, top the kind's (tg_a8_kind). Wide: scale = amax / 32512, inv = 32512 / amax, v
 *     = rintf(x * inv) as int, hi = (v + 128) >> 8, lo = v - 256 hi, both int8. Where amax is not
 *     finite the scale is amax and the codes are 0, so that every output becomes NaN; where inv is
 *     not finite (amax 0 or tiny) scale and codes are 0.
 *  6. matmul, quantized: for each group of 32 columns in ascending order i = exact int32 sum over
 *     the group of q_x * (q_w - zero), with per-16 integer scales multiplied in where the layout
 *     has them (i = sc0 dot0 + sc1 dot1); in outlier groups i = 256 i_hi + i_lo. acc =
 * fma((float)i, D
 *     * scale, acc) with D the group's weight scale in float32 (K layouts with a scale per group: d
 *     * sc, exact) and D * scale rounded once. Layouts with a minimum keep a second chain: min =
 *     fma(M, ssum, min) with ssum = scale * (float)sum of the group's codes, rounded once, M = m or
 *     -(dmin * mn), exact; q2_k: min = fma((float)(mn0 S0 + mn1 S1), -dmin * scale, min), -dmin *
 *     scale rounded once, S the code sums of the two sixteenths (wide: S = 256 S_hi + S_lo, here
 *     and in ssum). Both chains start at +0; the dot product is acc + min (acc alone without
 *     minimum). (float) of an int32 rounds once. Layouts with per-16 scales would overflow int32 in
 *     outlier groups, so there each sixteenth is a step of its own, first then second: acc =
 *     fma((float)dot_s * (float)sc_s, D * scale, acc), dot_s = 256 dot_hi + dot_lo, the product
 *     rounded once. All quanta of the matrix take part, the padded columns (codes and scales 0)
 *     too. Error against exact arithmetic: (n_groups + 4) 2^-24 mass (per-16 scales with wide
 *     groups: twice that), mass = the sum of D |q_w - zero| |x| and |M| |x| over the columns, x =
 *     scale * code.
 *  7. matmul, float weights: acc = fma(w, x, acc) over columns in ascending order from +0, w
 *     converted exactly. Error: n_cols 2^-24 mass, mass = the sum of |w x|.
 *  8. What follows a matmul: y = dot; with bias y = y + bias; then with add y = old + y.
 *  9. rms_norm: s = sum16 of squares; r = 1 / sqrtf(s / (float)n + eps); y = (x * r) * w. Relative
 *     error (n / 32 + 6) 2^-24.
 * 10. rope, half-split pairs (i, i + n/2): y0 = fma(x0, c, -(x1 * s)); y1 = fma(x1, c, x0 * s).
 *     Error 2^-23 (|x0| + |x1|) for |c|, |s| <= 1.
 * 11. glu: silu(g) = g / (1 + exp(-g)); gelu_tanh(g) = g / (1 + exp(-2 u)), u = 0x1.988454p-1f *
 *     fma(g * g * g, 0x1.6e4e26p-5f, g); y = act(g) * up, exp as in 4, each operation rounded.
 *     Error 2^-21 |g up|.
 * 12. Attention of one query and KV head walks key blocks of 64 at absolute multiples of 64 in
 *     ascending order and only visible keys (first <= key <= last) take part. Block: score_j =
 *     scale * chain over dims fma(q_d, k_d, .) from +0; m = max of the visible scores; p_j =
 *     exp(score_j - m); l = sum16 of p over the block's 64 places, invisible ones +0 (place = key
 *     mod 64); o_d = chain over visible keys ascending fma(p_j, v_d, .) from +0. Merge of a running
 *     (M, L, O) with a block (m, l, o): the first block is taken as it is; then N = max(M, m), a =
 *     exp(M - N), b = exp(m - N), L = fma(L, a, l * b), O_d = fma(O_d, a, o_d * b), M = N. The
 *     result is O_d / L. No visible key: zeros. Error of o_d: 2^-24 (2 head_dim S + 100) * sum of
 *     p_j |v_d|, S = scale * the largest sum of |q_d k_d|; the same for l against the sum of p_j.
 *     KV types f32 and f16 are this, with k and v converted exactly.
 * 12b. bf16: q, k and v are rounded to bf16 (nearest even), p_j too, before l is summed. The chains
 *     run over pairs, (d, d + 1) for scores and keys (j, j + 1), j even, for o, each step dot2(a,
 *     b, acc) = f(a0, b0, f(a1, b1, acc)), the odd element first, where f is fma that takes a
 *     denormal operand for a zero of its sign and gives a denormal result as one: what vdpbf16ps
 *     does, to the bit (compared on Zen 4: 32 million results over all exponents). An invisible key
 *     of a pair has p = +0 and v = +0; a pair without visible keys is left out. Error as in 12
 *     over the rounded q, k and v, and 2^-8 of the same sums for p.
 * 12c. q8: q and k are turned by H, the unnormalised Hadamard matrix, in each 32 dimensions: for h
 *     = 1, 2, 4, 8, 16 the pairs (x[i], x[i + h]), i without bit h, become (x[i] + x[i + h], x[i] -
 *     x[i + h]). Codes are int8 per 32 of k and of q, and per head of v; amax = the largest |x| by
 *     its bits (as in 5). k and v: scale = f16(amax / 127), inv = 1 / (float)scale, code = rintf(x
 *     * inv) held to -127..127; where amax or scale is not finite the scale is NaN and codes are 0,
 *     where scale is 0 codes are 0. q: scale = amax / 127, inv = 127 / amax, code = rintf(x * inv),
 *     with the rules of 5. i_g = exact sum of q_code * k_code over a group; acc = fma((float)i_g,
 *     sq_g * sk_gj, acc), groups ascending from +0, the product rounded once; score_j = (scale /
 *     32) * acc. m, p and l as in 12. w_j = p_j * sv_j; wmax = the largest visible w by its bits;
 *     winv = 255 / wmax; c_j = rintf(w_j * winv); o_d = (wmax / 255) * (float)(exact sum of c_j *
 *     v_code_jd over visible j). Where wmax is not finite o_d is NaN, where winv is not finite +0.
 *     Merging as in 12. Error as in 12 over the codes, and wmax / 510 * the sum of |v_code_jd|.
 * 12d. With a softcap the scaled scores go through 15 before m is found.
 * 12e. q16: codes are int16, per 64 dimensions of k and of q (the last ones may be fewer) and per
 *     head of v: scale = amax / top, inv = top / amax, code = rintf(x * inv), amax and what is not
 *     finite as in 5; top is 5792 for k and q, so that i_g, the exact sum of q_code * k_code over a
 *     group, stays below 2^31, and 4095 for v. acc = fma((float)i_g, (scale * sq_g) * sk_gj, acc),
 *     groups ascending from +0, both products rounded; score_j = acc. m, p and l as in 12. o as in
 *     12c with 8191 for 255; 64 * 8191 * 4095 is below 2^31 too. Merging as in 12. Error as in 12
 *     over the codes, and wmax / 16382 * the sum of |v_code_jd|.
 * 13. sample: see tg_sample_row.
 * 14. layer_norm: m = sum16(x) / (float)n; d = x - m; r = 1 / sqrtf(s / (float)n + eps), s = sum16
 *     of squares of d; y = (d * r) * w; with bias y = y + bias. Error 2^-24 of (n / 32 + 10) times
 *     (|d| + (n / 16 + 6) 2^-24 * the mean of |x|) r |w|, and of |y|.
 * 15. softcap: c * (1 - 2 / (1 + exp(2 * (x / c)))), exp as in 4, each operation rounded. Error
 *     c 2^-21.
 *
 * Pointers: weights and a8 codes are 64-byte aligned; rows of floats may have any 4-byte alignment.
 * Nothing outside the stated ranges is read or written. Outputs never overlap inputs unless it says
 * "in place". Lengths may be 0 unless it says otherwise. */
#ifndef TG_KERNEL_KERNEL_H
#define TG_KERNEL_KERNEL_H

#include "format/layout.h"
#include "kernel/cpu.h"
#include "kernel/sampling.h"

/* Coefficients of r^6 .. r^0 for exp(r) on |r| <= ln(2)/2. */
#define TG_EXP_POLY                                                                                \
    {                                                                                              \
        0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f, 0x1p-1f, 1.0f, 1.0f       \
    }

enum { TG_PAGE_TOKENS = 64 }; /* positions of a KV page = keys of an attention block */

enum {
    TG_A8_TOP = 127,    /* the largest code there is of a narrow group */
    TG_PAIR_TOKENS = 16 /* fewer are never multiplied by pairs (tg_a8_top) */
};

/* Quantized activations of n_tokens rows. Arrays are [n_tokens][...] with the strides below; all
 * borrowed. Columns from n to `padded` hold zero codes, scales and sums: whole quanta of any
 * layout, and one cache line more, which keeps the rows of a token block out of each other's
 * cache sets. Which groups are wide belongs to the matrix that reads the input, not to its values:
 * the map is the same for every row, and n_outliers is 0 with `wide` and `lo` NULL where none
 * is. */
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

/* How K and V of one page, one layer and one KV head lie, two halves of equal size:
 *
 *   f32, f16   K [head_dim][64 keys], V [64 keys][head_dim] of float or f16
 *   bf16       K [head_dim / 2][64 keys][2 dims], V [64 keys / 2][head_dim][2 keys] of bf16
 *   q8         K [head_dim / 4][64 keys][4 dims] of code + 128 in a byte, then f16 scales
 *              [head_dim / 32][64 keys]; V [64 keys / 4][head_dim][4 keys] of int8, then f16 scales
 *              [64 keys]; head_dim is a multiple of 32, each half has 68 head_dim bytes
 *   q16        K [head_dim / 2][64 keys][2 dims] of int16, then float scales [head_dim / 64,
 *              rounded up][64 keys]; V float scales [64 keys], which are wanted before the codes,
 *              then [64 keys / 2][head_dim][2 keys] of int16, and nothing up to the size of K */
typedef enum tg_kv_type {
    TG_KV_F32,
    TG_KV_F16,
    TG_KV_BF16,
    TG_KV_Q8,
    TG_KV_Q16,
    TG_KV_TYPE_COUNT
} tg_kv_type;

enum {
    TG_KV_GROUP = 32,           /* dimensions of q8 that share a scale of k or q */
    TG_KV_Q16_GROUP = 64,       /* and of q16 */
    TG_KV_Q16_HEAD = 256,       /* bytes of scales before the codes of V */
    TG_KV_Q16_TOP = 5792,       /* the largest code of k and q, */
    TG_KV_Q16_TOP_VALUE = 4095, /* of v, */
    TG_KV_Q16_TOP_WEIGHT = 8191 /* and of what multiplies v */
};

/* Attention of n_queries queries (heads and tokens that share a KV head) over ONE block. */
typedef struct tg_attend {
    const void *k, *v;     /* the page's halves for this layer and KV head */
    int32_t head_dim;      /* a multiple of 8, at most 512 */
    int32_t n_queries;     /* > 0, at most TG_ATTEND_MAX_QUERIES */
    const float *const *q; /* n_queries rows of head_dim; what kv_query made of them where the type
                              has one */
    const int32_t *first;  /* per query: visible keys are first <= j <= last, in [0, 64) */
    const int32_t *last;   /* last < first: none visible; m = -inf, l = 0, o = 0, unless is_more,
                              when nothing changes */
    float scale;
    float softcap;    /* 0: none */
    bool is_more;     /* m, l and o hold the blocks before: this one is merged into them */
    float *m, *l;     /* [n_queries]; m = -inf with l = 0 is empty */
    float *o;         /* [n_queries][head_dim] */
    const void *next; /* K of the block that will be asked for next (its V follows as this one's
                         does), to be prefetched; NULL: unknown */
    void *scratch;    /* TG_ATTEND_SCRATCH_BYTES, 64-aligned */
} tg_attend;

enum { TG_ATTEND_SCRATCH_BYTES = 512 * 64 * 4 * 2 + 64 * 1024, TG_ATTEND_MAX_QUERIES = 64 };

typedef void tg_attend_fn(const tg_attend *a);

/* The blocks of one query in ascending order, as attend left them apart. */
typedef struct tg_attend_parts {
    int32_t head_dim, n_blocks;
    const float *m, *l, *o; /* of the first block */
    int64_t step, o_step;   /* floats from m and l, and from o, to those of the next block */
} tg_attend_parts;

/* y [head_dim] = O / L of all blocks merged (contract 12), zeros when L is 0. A block with l = 0
 * changes nothing. */
typedef void tg_attend_finish_fn(float *y, const tg_attend_parts *parts);

/* Makes a query what attend of the type reads, in at most head_dim floats: bf16 [head_dim]; q8 int8
 * codes [head_dim], float scales [head_dim / 32], int32 code sums [head_dim / 32]; q16 int16 codes
 * [head_dim], float scales [head_dim / 64, rounded up]. */
typedef void tg_kv_query_fn(float *out, const float *q, int32_t head_dim);

/* Writes one token's K and V (n = head_dim) to place `slot` (0..63) of a page. */
typedef void tg_kv_store_fn(void *k, void *v, int32_t slot, const float *key, const float *value,
                            int32_t head_dim);

/* Chooses an id from logits[0, n_vocab), which it changes by the adjustments adjust[adjust_at ..
 * adjust_at + n_adjust): l = l + bias; if seen and repeat_penalty is on, l = l > 0 ? l / penalty
 * : l * penalty; if n_completion > 0, l = l - presence, then l = l - frequency *
 * (float)n_completion; each operation rounded. Returns -1 if then any logit is NaN or +inf, or all
 * are -inf.
 *   Greedy (temperature 0): the lowest id of the largest logit.
 *   Else each id has p = exp((logit - max) / temperature) (contract 4), and a dropped id p = +0:
 *   top_k keeps the first k in the order logit descending, id ascending; min_p keeps p >= min_p
 *   (the best has p = 1); top_p keeps, in the same order, the shortest run whose running float
 *   sum is >= top_p * mass: at least one id, all when none reaches it. Then u in [0, 1) draws
 *   from what is kept.
 *   "mass" of p: per block of 64 ids the sum16 of p (place = id mod 64, ids beyond n_vocab +0);
 *   the running float sum of the blocks, ascending, from +0. The draw: t = u * mass; the first
 *   block whose running sum is > t; in it r = the running sum before the block, then r = r + p
 *   by ascending id; the first id with r > t and p > 0, else the block's last id with p > 0. So
 *   no sum depends on a sort, no id with p = 0 is ever drawn, and nothing is sorted but what
 *   top_k or top_p may keep.
 * u comes from Philox4x32-10 with key = (seed low, seed high) and counter = (position,
 * sample_index, 0, 0): the first word >> 8, times 2^-24. scratch:
 * tg_sample_scratch_bytes(n_vocab), 64-aligned. */
typedef int32_t tg_sample_row_fn(float *logits, int32_t n_vocab, const tg_sample_params *p,
                                 const tg_sample_adjust *adjust, void *scratch);
size_t tg_sample_scratch_bytes(int32_t n_vocab);

typedef enum tg_act { TG_ACT_SILU, TG_ACT_GELU_TANH, TG_ACT_COUNT } tg_act;

enum { TG_PEAK_BYTES = 768 };

/* What a tier offers. Filled tier by tier: later ones overwrite only what they do better. */
typedef struct tg_kernels {
    /* x [n] -> one token's row of `out` (already placed; row 0). n need not be a multiple of 32. */
    void (*quantize)(const tg_a8 *out, const float *x, int32_t n);
    tg_matmul_fn *matmul[TG_LAYOUT_COUNT];
    tg_embed_fn *embed[TG_LAYOUT_COUNT];
    /* y [n] = rms_norm(x); in place allowed. */
    void (*rms_norm)(float *y, const float *x, const float *w, int32_t n, float eps);
    /* y [n] = layer_norm(x); bias may be NULL; in place allowed. */
    void (*layer_norm)(float *y, const float *x, const float *w, const float *bias, int32_t n,
                       float eps);
    /* y [n] *= factor, and y through 15, in place. */
    void (*scale)(float *y, int32_t n, float factor);
    void (*softcap)(float *y, int32_t n, float softcap);
    /* Rotates the first n_rot (even) of a head in place; cos, sin [n_rot / 2]. */
    void (*rope)(float *x, const float *cos, const float *sin, int32_t n_rot);
    /* y [n] = act(gate) * up; y may be gate. */
    void (*glu[TG_ACT_COUNT])(float *y, const float *gate, const float *up, int32_t n);
    /* y [n] += x. */
    void (*add)(float *y, const float *x, int32_t n);
    tg_kv_store_fn *kv_store[TG_KV_TYPE_COUNT];
    tg_kv_query_fn *kv_query[TG_KV_TYPE_COUNT]; /* NULL: queries stay as they are */
    tg_attend_fn *attend[TG_KV_TYPE_COUNT];
    tg_attend_finish_fn *attend_finish;
    tg_sample_row_fn *sample_row;
    /* Yardsticks: how fast this processor reads and multiplies, by loops that do nothing else. What
     * they return proves that they did it.
     * The wrapping sum of n words, a multiple of 64, at a 64-byte boundary. */
    uint64_t (*sum_words)(const uint64_t *p, int64_t n);
    /* n_rounds times the sum of u[i] s[i mod 64] over u [TG_PEAK_BYTES], modulo 2^32; u[i] < 16. */
    uint32_t (*sum_products)(const uint8_t *u, const int8_t *s, int64_t n_rounds);
} tg_kernels;

void tg_kernels_fill(tg_kernels *k, tg_cpu_tier tier);

/* One per tier, each the only exported symbol of its file. */
void tg_kernels_fill_ref(tg_kernels *k);
void tg_kernels_fill_avx2(tg_kernels *k);
void tg_kernels_fill_avx512(tg_kernels *k);

/* Sets round-to-nearest and no flushing of denormals on this thread; returns what to give back to
 * tg_fp_restore. */
uint32_t tg_fp_begin(void);
void tg_fp_restore(uint32_t saved);

#endif
