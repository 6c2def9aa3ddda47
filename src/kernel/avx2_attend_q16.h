/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend_q16.h - attention over a block of q16 (kernel_attend.h 12e), as both wide tiers
 * share it: exact integer sums of pairs, twice as many products an instruction as fma makes. */
#ifndef TG_KERNEL_AVX2_ATTEND_Q16_H
#define TG_KERNEL_AVX2_ATTEND_Q16_H

#include "format/dtype.h"
#include "kernel/avx2_attend.h"

enum { TG_Q16_MAX_DIM = 512 };

TG_INLINE float tg_q16_load_scale(const void *p, int64_t i)
{
    float x;
    memcpy(&x, (const char *)p + 4 * i, sizeof x);
    return x;
}

/* ---- scores */

/* Scores of n queries for the keys of registers [r, r + n_regs) and the group from pair `pair` on,
 * added to p; the first group's become p. */
TG_INLINE void tg_q16_score(const tg_pass *x, int n, int64_t r, int n_regs, int64_t pair)
{
    enum { PAIRS = TG_KV_Q16_GROUP / 2, ROW = 4 * TG_KV_PAGE_TOKENS };
    const char *k = (const char *)x->k + 64 * r;
    int64_t end = TG_MIN(pair + PAIRS, x->dim / 2), g = pair / PAIRS;
    bool is_first = pair == 0;
    tg_i16 i[TG_PASS_MAX][TG_PASS_REGS];
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        TG_UNROLL
        for (int c = 0; c < n_regs; c++)
            i[j][c] = tg_i16_set(0);
    }
    tg_feed feed = x->t->feed;
    for (; pair < end; pair++) {
        tg_i16 of[TG_PASS_REGS];
        tg_feed_ask(&feed, n_regs);
        TG_UNROLL
        for (int c = 0; c < n_regs; c++)
            of[c] = tg_i16_load(k + pair * ROW + 64 * c, 16);
        TG_UNROLL
        for (int j = 0; j < n; j++)
            tg_pass_multiply_pairs(n, n_regs, (const char *)x->q[j] + 4 * pair, of, i[j]);
    }
    tg_feed_ask(&feed, n_regs); /* as many lines as the group's scales have */
    x->t->feed = feed;
    const char *half_end = (const char *)x->k + 2 * x->dim * TG_KV_PAGE_TOKENS;
    const float *scales = (const float *)(const void *)half_end + g * TG_KV_PAGE_TOKENS + 16 * r;
    TG_UNROLL
    for (int j = 0; j < n; j++) {
        tg_v16 sq = tg_v16_set(x->scale * tg_q16_load_scale(x->q[j], x->dim / 2 + g));
        TG_UNROLL
        for (int c = 0; c < n_regs; c++) {
            float *p = x->p + j * TG_KV_PAGE_TOKENS + 16 * (r + c);
            tg_v16 scale = tg_v16_mul(sq, tg_v16_load(scales + 16 * c, 16));
            tg_v16 acc = is_first ? tg_v16_set(0) : tg_v16_load(p, 16);
            tg_v16_store(p, 16, tg_v16_fma(tg_v16_from_i16(i[j][c]), scale, acc));
        }
    }
}

TG_INLINE void tg_q16_score_all(const tg_pass *x, int n, int regs)
{
    int high = (x->high + 15) / 16;
    for (int r = x->low / 16; r < high;) {
        bool is_whole = r + regs <= high;
        for (int64_t pair = 0; pair < x->dim / 2; pair += TG_KV_Q16_GROUP / 2)
            if (is_whole)
                tg_q16_score(x, n, r, regs, pair);
            else
                tg_q16_score(x, n, r, 1, pair);
        r += is_whole ? regs : 1;
    }
}

/* ---- values */

TG_INLINE void tg_q16_add_dims(const tg_pass *x, tg_pass_dims z)
{
    tg_i16 i[TG_PASS_MAX][TG_PASS_REGS];
    tg_pass_sums y;
    TG_UNROLL
    for (int j = 0; j < z.n; j++) {
        TG_UNROLL
        for (int r = 0; r < z.n_regs; r++)
            i[j][r] = tg_i16_set(0);
    }
    const char *codes = (const char *)x->v + TG_KV_Q16_HEAD;
    tg_feed feed = x->t->feed;
    int64_t end = (x->high + 1) / 2;
    for (int64_t two = x->low / 2; two < end; two++) {
        int64_t at = two * x->dim + z.d;
        tg_i16 v[TG_PASS_REGS];
        tg_feed_ask(&feed, z.n_regs);
        TG_UNROLL
        for (int r = 0; r < z.n_regs; r++)
            v[r] = tg_i16_load(codes + 4 * (at + 16 * r), z.lanes);
        TG_UNROLL
        for (int j = 0; j < z.n; j++)
            tg_pass_multiply_pairs(z.n, z.n_regs, x->p + j * TG_KV_PAGE_TOKENS + two, v, i[j]);
    }
    x->t->feed = feed;
    TG_UNROLL
    for (int j = 0; j < z.n; j++) {
        tg_v16 unit = tg_v16_set(x->t->unit[x->at + j]);
        TG_UNROLL
        for (int r = 0; r < z.n_regs; r++)
            y.o[j][r] = tg_v16_mul(unit, tg_v16_from_i16(i[j][r]));
    }
    tg_pass_put(x, z, &y);
}

TG_INLINE void tg_q16_add_all(const tg_pass *x, int n, int regs)
{
    int64_t d = 0;
    tg_feed_ask(&x->t->feed, TG_PASS_REGS); /* scales */
    for (; d + 16 * regs <= x->dim; d += 16 * regs)
        tg_q16_add_dims(x, (tg_pass_dims){n, regs, d, 16});
    for (; d < x->dim; d += 16)
        tg_q16_add_dims(x, (tg_pass_dims){n, 1, d, x->dim - d});
}

/* ---- codes of queries, keys and values */

/* Codes of n numbers, a multiple of 8 and at most 512, and their scale, which is returned. */
TG_INLINE float tg_q16_code(int16_t *code, const float *x, int64_t n, float most)
{
    tg_v16 top = tg_v16_set(0);
    for (int64_t i = 0; i < n; i += 16)
        top = tg_v16_amax(tg_v16_load(x + i, n - i), top);
    uint32_t bits = tg_v16_fold_amax(top);
    float amax = tg_f32_from_bits(bits), inv = most / amax;
    bool is_finite = bits < 0x7f800000u, has_codes = is_finite && inv <= 0x1.fffffep127f;
    if (!has_codes) {
        memset(code, 0, 2 * (size_t)n);
        return is_finite ? 0 : amax;
    }
    for (int64_t i = 0; i < n; i += 16)
        tg_v16_store_i16(code + i, n - i, tg_v16_mul(tg_v16_load(x + i, n - i), tg_v16_set(inv)));
    return amax / most;
}

TG_INLINE void tg_q16_query(float *out, const float *q, int32_t head_dim)
{
    char *codes = (char *)out, *scales = codes + 2 * head_dim;
    for (int32_t d = 0; d < head_dim; d += TG_KV_Q16_GROUP, scales += sizeof(float)) {
        int32_t n = TG_MIN(head_dim - d, TG_KV_Q16_GROUP);
        float scale = tg_q16_code((int16_t *)(void *)(codes + 2 * d), q + d, n, TG_KV_Q16_TOP);
        memcpy(scales, &scale, sizeof scale);
    }
}

TG_INLINE void tg_q16_store(void *k, void *v, int32_t slot, const float *key, const float *value,
                            int32_t head_dim)
{
    _Alignas(64) int16_t code[TG_Q16_MAX_DIM];
    char *to_k = (char *)k + 4 * slot;
    char *to_v = (char *)v + TG_KV_Q16_HEAD + slot / 2 * 4 * (int64_t)head_dim + slot % 2 * 2;
    char *scales = (char *)k + 2 * (int64_t)head_dim * TG_KV_PAGE_TOKENS + 4 * slot;
    for (int32_t d = 0; d < head_dim; d += TG_KV_Q16_GROUP, scales += 4 * TG_KV_PAGE_TOKENS) {
        int32_t n = TG_MIN(head_dim - d, TG_KV_Q16_GROUP);
        float scale = tg_q16_code(code + d, key + d, n, TG_KV_Q16_TOP);
        memcpy(scales, &scale, sizeof scale);
    }
    for (int32_t d = 0; d < head_dim; d += 2)
        memcpy(to_k + (int64_t)d * 2 * TG_KV_PAGE_TOKENS, code + d, 4);
    float scale = tg_q16_code(code, value, head_dim, TG_KV_Q16_TOP_VALUE);
    for (int32_t d = 0; d < head_dim; d++)
        memcpy(to_v + 4 * (int64_t)d, code + d, 2);
    memcpy((char *)v + 4 * slot, &scale, sizeof scale);
}

#endif
