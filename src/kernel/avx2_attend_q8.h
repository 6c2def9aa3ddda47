/* SPDX-License-Identifier: Apache-2.0
 * avx2_attend_q8.h - attention over a block of q8 (kernel_attend.h 12c), as both wide tiers
 * share it: exact integer sums, so the bits follow from the few float operations around them. */
#ifndef TG_KERNEL_AVX2_ATTEND_Q8_H
#define TG_KERNEL_AVX2_ATTEND_Q8_H

#include "kernel/avx2_attend.h"
#include "kernel/kv_q8.h"

TG_INLINE int32_t tg_q8_load32(const void *p)
{
    int32_t x;
    memcpy(&x, p, sizeof x);
    return x;
}

/* Scores of n queries for the keys of registers [r, r + n_regs), into p, not yet scaled. */
TG_INLINE void tg_q8_score(const tg_pass *x, int n, int64_t r, int n_regs)
{
    enum { ROWS = TG_KV_GROUP / 4, ROW = 4 * TG_KV_PAGE_TOKENS };
    const char *k_scale = (const char *)x->k + x->dim * TG_KV_PAGE_TOKENS;
    int64_t n_groups = x->dim / TG_KV_GROUP;
    for (int64_t g = 0; g < n_groups; g++) {
        tg_i16 i[TG_PASS_MAX][TG_PASS_REGS];
        for (int j = 0; j < n; j++) {
            const char *sums = (const char *)x->q[j] + x->dim + 4 * n_groups;
            for (int c = 0; c < n_regs; c++)
                i[j][c] = tg_i16_begin(tg_q8_load32(sums + 4 * g));
        }
        tg_feed feed = x->t->feed;
        for (int64_t row = ROWS * g; row < ROWS * (g + 1); row++) {
            tg_i16 k[TG_PASS_REGS];
            tg_feed_ask(&feed, tg_pass_lines(TG_KV_Q8, n_regs));
            for (int c = 0; c < n_regs; c++)
                k[c] = tg_i16_load((const char *)x->k + row * ROW + 64 * (r + c), 16);
            for (int j = 0; j < n; j++) {
                tg_i16 q = tg_i16_set(tg_q8_load32((const char *)x->q[j] + 4 * row));
                for (int c = 0; c < n_regs; c++)
                    i[j][c] = tg_i16_dot_key(i[j][c], k[c], q);
            }
        }
        x->t->feed = feed;
        tg_v16 sk[TG_PASS_REGS];
        for (int c = 0; c < n_regs; c++)
            sk[c] = tg_v16_load_f16(
                (const uint16_t *)(const void *)k_scale + g * TG_KV_PAGE_TOKENS + 16 * (r + c), 16);
        for (int j = 0; j < n; j++) {
            float sq;
            memcpy(&sq, (const char *)x->q[j] + x->dim + 4 * g, sizeof sq);
            for (int c = 0; c < n_regs; c++) {
                float *p = x->p + j * TG_KV_PAGE_TOKENS + 16 * (r + c);
                tg_v16 acc = g == 0 ? tg_v16_set(0) : tg_v16_load(p, 16);
                tg_v16 scale = tg_v16_mul(tg_v16_set(sq), sk[c]);
                tg_v16_store(p, 16, tg_v16_fma(tg_v16_from_i16(i[j][c]), scale, acc));
            }
        }
    }
}

/* Codes of query j's probabilities, times the scales of V. */
TG_INLINE void tg_q8_code(const tg_pass *x, int j, int low, int high)
{
    const uint16_t *sv =
        (const uint16_t *)(const void *)((const char *)x->v + x->dim * TG_KV_PAGE_TOKENS);
    float *p = x->p + j * TG_KV_PAGE_TOKENS;
    tg_v16 top = tg_v16_set(0);
    for (int r = low; r < high; r++) {
        tg_m16 seen = tg_m16_range(x->first[j], x->last[j], 16 * r);
        tg_v16 w = tg_v16_mul(tg_v16_load(p + 16 * r, 16), tg_v16_load_f16(sv + 16 * r, 16));
        w = tg_v16_select(seen, w, tg_v16_set(0));
        top = tg_v16_amax(w, top);
        tg_v16_store(p + 16 * r, 16, w);
    }
    uint32_t bits = tg_v16_fold_amax(top);
    float wmax = tg_f32_from_bits(bits), winv = 255.0f / wmax;
    bool is_finite = bits < 0x7f800000u, has_codes = is_finite && winv <= 0x1.fffffep127f;
    x->t->scale[j] = has_codes ? wmax / 255.0f : is_finite ? 0 : NAN;
    for (int r = low; r < high; r++) {
        tg_v16 c = tg_v16_mul(tg_v16_load(p + 16 * r, 16), tg_v16_set(winv));
        tg_v16_store_u8(x->t->code[j] + 16 * r, has_codes ? c : tg_v16_set(0));
    }
}

TG_INLINE void tg_q8_add_dims(const tg_pass *x, tg_pass_dims z)
{
    tg_i16 i[TG_PASS_MAX][TG_PASS_REGS];
    tg_pass_sums y;
    for (int j = 0; j < z.n; j++)
        for (int r = 0; r < z.n_regs; r++)
            i[j][r] = tg_i16_set(0);
    tg_feed feed = x->t->feed;
    for (int32_t four = x->low / 4; four < (x->high + 3) / 4; four++) {
        int64_t at = four * x->dim + z.d;
        tg_i16 v[TG_PASS_REGS];
        tg_feed_ask(&feed, tg_pass_lines(TG_KV_Q8, z.n_regs));
        for (int r = 0; r < z.n_regs; r++)
            v[r] = tg_i16_load((const char *)x->v + 4 * (at + 16 * r), z.lanes);
        for (int j = 0; j < z.n; j++) {
            tg_i16 c = tg_i16_set(tg_q8_load32(x->t->code[j] + 4 * four));
            for (int r = 0; r < z.n_regs; r++)
                i[j][r] = tg_i16_dot_value(i[j][r], c, v[r]);
        }
    }
    x->t->feed = feed;
    for (int j = 0; j < z.n; j++)
        for (int r = 0; r < z.n_regs; r++)
            y.o[j][r] = tg_v16_mul(tg_v16_set(x->t->scale[j]), tg_v16_from_i16(i[j][r]));
    tg_pass_put(x, z, &y);
}

/* As tg_pass_score_all and tg_pass_add_all; head_dim is a multiple of 32. */
TG_INLINE void tg_q8_score_all(const tg_pass *x, int n, int regs)
{
    int high = (x->high + 15) / 16;
    for (int r = x->low / 16; r < high;) {
        bool is_whole = r + regs <= high;
        if (is_whole)
            tg_q8_score(x, n, r, regs);
        else
            tg_q8_score(x, n, r, 1);
        r += is_whole ? regs : 1;
    }
}

TG_INLINE void tg_q8_add_all(const tg_pass *x, int n, int regs)
{
    for (int j = 0; j < n; j++) {
        tg_feed_ask(&x->t->feed, (int)(x->dim / 8 + n - 1) / n); /* as many lines as scales have */
        tg_q8_code(x, j, x->low / 16, (x->high + 15) / 16);
    }
    int64_t d = 0;
    for (; d + 16 * regs <= x->dim; d += 16 * regs)
        tg_q8_add_dims(x, (tg_pass_dims){n, regs, d, 16});
    for (; d < x->dim; d += 16)
        tg_q8_add_dims(x, (tg_pass_dims){n, 1, d, 16});
}

#endif
