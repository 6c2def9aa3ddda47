/* SPDX-License-Identifier: Apache-2.0
 * kernel_attend.h - attention over pages of keys and values, and how a page lies. The numbers of
 * the contract go on from kernel.h.
 *
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
 *     over the codes, and wmax / 16382 * the sum of |v_code_jd|. */
#ifndef TG_KERNEL_KERNEL_ATTEND_H
#define TG_KERNEL_KERNEL_ATTEND_H

#include "base/base.h"
#include "format/kv_type.h"

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

#endif
