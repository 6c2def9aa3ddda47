/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend_bf16.h - attention over a block of bf16 (kernel_attend.h 12b), as both wide
 * tiers share it: with vdpbf16ps where the file is compiled for it, else with two fma in its order
 * while the processor is told to flush denormals.
 *
 * Code that flushes denormals stands between tg_pairs_begin and tg_pairs_end, reads its input from
 * memory and leaves its results there, so that no other operation can be moved in or out. */
#ifndef TG_KERNEL_AVX2_ATTEND_BF16_H
#define TG_KERNEL_AVX2_ATTEND_BF16_H

#include "format/dtype.h"
#include "kernel/avx2_attend.h"

#if defined(__AVX512BF16__)

TG_INLINE uint32_t tg_pairs_begin(void)
{
    return 0;
}

TG_INLINE void tg_pairs_end(uint32_t saved)
{
    (void)saved;
}

/* a and b hold two bf16 a lane. */
TG_INLINE tg_v16 tg_v16_dot2(tg_v16 acc, tg_v16 a, tg_v16 b)
{
    return _mm512_dpbf16_ps(acc, (__m512bh)_mm512_castps_si512(a),
                            (__m512bh)_mm512_castps_si512(b));
}

#else

TG_INLINE uint32_t tg_pairs_begin(void)
{
    enum { FLUSH = 0x8040 }; /* flush to zero, denormals are zeros */
    uint32_t saved = _mm_getcsr();
    _mm_setcsr(saved | FLUSH);
    __asm__ volatile("" ::: "memory");
    return saved;
}

TG_INLINE void tg_pairs_end(uint32_t saved)
{
    __asm__ volatile("" ::: "memory");
    _mm_setcsr(saved);
}

TG_INLINE __m256 tg_even8(__m256 x)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16));
}

TG_INLINE __m256 tg_odd8(__m256 x)
{
    return _mm256_and_ps(x, _mm256_castsi256_ps(_mm256_set1_epi32(-0x10000)));
}

TG_INLINE __m256 tg_dot2x8(__m256 acc, __m256 a, __m256 b)
{
    return _mm256_fmadd_ps(tg_even8(a), tg_even8(b), _mm256_fmadd_ps(tg_odd8(a), tg_odd8(b), acc));
}

TG_INLINE tg_v16 tg_v16_dot2(tg_v16 acc, tg_v16 a, tg_v16 b)
{
    return (tg_v16){tg_dot2x8(acc.lo, a.lo, b.lo), tg_dot2x8(acc.hi, a.hi, b.hi)};
}

#endif

/* Two neighbours in every lane. */
TG_INLINE tg_v16 tg_pair_set(const uint16_t *p)
{
    float x;
    memcpy(&x, p, sizeof x);
    return tg_v16_set(x);
}

/* n floats, a multiple of 8, to bf16. */
TG_INLINE void tg_pair_round(uint16_t *to, const float *from, int64_t n)
{
    for (int64_t i = 0; i < n; i += 16) {
        float x[16];
        tg_v16_store(x, 16, tg_v16_round_bf16(tg_v16_load(from + i, n - i)));
        for (int64_t k = 0; k < TG_MIN(n - i, 16); k++)
            to[i + k] = (uint16_t)(tg_f32_to_bits(x[k]) >> 16);
    }
}

/* Scores of n queries for the keys of registers [r, r + n_regs), into p, not yet scaled. */
TG_INLINE void tg_pair_score(const tg_pass *x, int n, int64_t r, int n_regs)
{
    tg_v16 s[TG_PASS_MAX][TG_PASS_REGS];
    uint32_t saved = tg_pairs_begin();
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n_regs; i++)
            s[j][i] = tg_v16_set(0);
    tg_feed feed = x->t->feed;
    for (int64_t d = 0; d < x->dim / 2; d++) {
        int64_t at = d * TG_KV_PAGE_TOKENS + 16 * r;
        tg_v16 k[TG_PASS_REGS];
        tg_feed_ask(&feed, tg_pass_lines(TG_KV_BF16, n_regs));
        for (int i = 0; i < n_regs; i++)
            k[i] = tg_v16_load((const float *)x->k + at + 16 * i, 16);
        for (int j = 0; j < n; j++) {
            tg_v16 q = tg_pair_set((const uint16_t *)(const void *)x->q[j] + 2 * d);
            for (int i = 0; i < n_regs; i++)
                s[j][i] = tg_v16_dot2(s[j][i], q, k[i]);
        }
    }
    x->t->feed = feed;
    for (int j = 0; j < n; j++)
        for (int i = 0; i < n_regs; i++)
            tg_v16_store(x->p + j * TG_KV_PAGE_TOKENS + 16 * (r + i), 16, s[j][i]);
    tg_pairs_end(saved);
}

/* All ones in the halves of a lane whose key of the pair query j sees. */
TG_INLINE uint32_t tg_pair_visible(const tg_pass *x, int j, int32_t key)
{
    uint32_t even = key >= x->first[j] && key <= x->last[j] ? 0xffff : 0;
    uint32_t odd = key + 1 >= x->first[j] && key + 1 <= x->last[j] ? 0xffff0000 : 0;
    return even | odd;
}

/* o += p V over the pairs of keys [from, to); is_edge: some query does not see all of them. */
TG_INLINE void tg_pair_add_keys(const tg_pass *x, tg_pass_dims z, bool is_edge, int32_t from,
                                int32_t to, tg_pass_sums *y)
{
    tg_feed feed = x->t->feed;
    for (int32_t pair = from; pair < to; pair++) {
        int64_t at = pair * x->dim + z.d;
        tg_v16 v[TG_PASS_REGS];
        tg_feed_ask(&feed, tg_pass_lines(TG_KV_BF16, z.n_regs));
        for (int r = 0; r < z.n_regs; r++)
            v[r] = tg_v16_load((const float *)x->v + at + 16 * r, z.lanes);
        for (int j = 0; j < z.n; j++) {
            uint32_t seen = is_edge ? tg_pair_visible(x, j, 2 * pair) : 0xffffffff;
            if (is_edge && seen == 0) continue;
            tg_v16 p = tg_pair_set(x->t->pair[j] + 2 * pair);
            tg_v16 mask = tg_v16_set(tg_f32_from_bits(seen));
            for (int r = 0; r < z.n_regs; r++) {
                tg_v16 u = is_edge ? tg_v16_and(v[r], mask) : v[r];
                y->o[j][r] = tg_v16_dot2(y->o[j][r], p, u);
            }
        }
    }
    x->t->feed = feed;
}

TG_INLINE void tg_pair_add_dims(const tg_pass *x, tg_pass_dims z)
{
    tg_pass_sums y;
    int32_t end = (x->high + 1) / 2, from = TG_MIN((x->from + 1) / 2, end), to = x->to / 2;
    to = TG_MAX(to, from);
    uint32_t saved = tg_pairs_begin();
    tg_pass_clear(z, &y);
    if (x->low / 2 < from) tg_pair_add_keys(x, z, true, x->low / 2, from, &y);
    tg_pair_add_keys(x, z, false, from, to, &y);
    if (to < end) tg_pair_add_keys(x, z, true, to, end, &y);
    for (int j = 0; j < z.n; j++)
        for (int r = 0; r < z.n_regs; r++)
            tg_v16_store(x->t->sum[j] + 16 * r, 16, y.o[j][r]);
    tg_pairs_end(saved);
    for (int j = 0; j < z.n; j++)
        for (int r = 0; r < z.n_regs; r++)
            y.o[j][r] = tg_v16_load(x->t->sum[j] + 16 * r, 16);
    tg_pass_put(x, z, &y);
}

/* As tg_pass_score_all and tg_pass_add_all. */
TG_INLINE void tg_pair_score_all(const tg_pass *x, int n, int regs)
{
    int high = (x->high + 15) / 16;
    for (int r = x->low / 16; r < high;) {
        bool is_whole = r + regs <= high;
        if (is_whole)
            tg_pair_score(x, n, r, regs);
        else
            tg_pair_score(x, n, r, 1);
        r += is_whole ? regs : 1;
    }
}

TG_INLINE void tg_pair_add_all(const tg_pass *x, int n, int regs)
{
    int low = x->low / 16, high = (x->high + 15) / 16;
    for (int j = 0; j < n; j++)
        tg_pair_round(x->t->pair[j] + 16 * low, x->p + j * TG_KV_PAGE_TOKENS + 16 * low,
                      16 * (high - low));
    int64_t d = 0;
    for (; d + 16 * regs <= x->dim; d += 16 * regs)
        tg_pair_add_dims(x, (tg_pass_dims){n, regs, d, 16});
    for (; d < x->dim; d += 16)
        tg_pair_add_dims(x, (tg_pass_dims){n, 1, d, x->dim - d});
}

TG_INLINE void tg_pair_store(void *k, void *v, int32_t slot, const float *key, const float *value,
                             int32_t head_dim)
{
    enum { MAX_DIM = 512 };
    uint16_t half[MAX_DIM], *to_v = (uint16_t *)v + slot / 2 * 2 * head_dim + slot % 2;
    tg_pair_round(half, key, head_dim);
    for (int32_t d = 0; d < head_dim; d += 2)
        memcpy((uint16_t *)k + d * TG_KV_PAGE_TOKENS + 2 * slot, half + d, 2 * sizeof *half);
    tg_pair_round(half, value, head_dim);
    for (int32_t d = 0; d < head_dim; d++)
        to_v[2 * d] = half[d];
}

#endif
