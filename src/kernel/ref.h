/* SPDX-License-Identifier: Apache-2.0
 * ref.h - what the files of the reference tier share, and the numbers every tier needs.
 *
 * Inline only: the tiers are compiled with other flags and may share source, never objects. */
#ifndef TG_KERNEL_REF_H
#define TG_KERNEL_REF_H

#include "format/dtype.h" /* f16 and bits of floats */
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static inline float tg_load_f16(const void *p, size_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)p + 2 * i, sizeof h);
    return tg_f16_to_f32(h);
}

static inline float tg_load_f32(const void *p, size_t i)
{
    float x;
    memcpy(&x, (const char *)p + 4 * i, sizeof x);
    return x;
}

/* Contract 4. */
static inline float tg_exp_ref(float x)
{
    static const float poly[] = TG_EXP_POLY;
    if (x != x) return x;
    if (x < -87.0f) return 0.0f;
    if (x > 88.0f) x = 88.0f;
    float n = rintf(x * 0x1.715476p0f);
    float r = fmaf(n, -0x1.62e4p-1f, x);
    r = fmaf(n, -0x1.7f7d1cp-20f, r);
    float p = poly[0];
    for (size_t i = 1; i < TG_COUNT(poly); i++)
        p = fmaf(p, r, poly[i]);
    return tg_f32_from_bits(tg_f32_to_bits(p) + ((uint32_t)(int32_t)n << 23));
}

/* Contract 15. */
static inline float tg_softcap_ref(float x, float softcap)
{
    return softcap * (1.0f - 2.0f / (1.0f + tg_exp_ref(2.0f * (x / softcap))));
}

/* Folds 16 lanes as contract 3 says; destroys them. */
static inline float tg_fold_sum16(float l[16])
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            l[i] = l[i] + l[i + half];
    return l[0];
}

static inline float tg_fold_max16(float l[16])
{
    for (int half = 8; half > 0; half /= 2)
        for (int i = 0; i < half; i++)
            l[i] = l[i] > l[i + half] ? l[i] : l[i + half];
    return l[0];
}

/* Parts of the reference tier, for its own table only. */
extern tg_matmul_fn *const tg_ref_matmul[TG_LAYOUT_COUNT];
extern tg_embed_fn *const tg_ref_embed[TG_LAYOUT_COUNT];
tg_attend_fn tg_ref_attend_f32, tg_ref_attend_f16, tg_ref_attend_bf16, tg_ref_attend_q8,
    tg_ref_attend_q16;
tg_kv_query_fn tg_ref_kv_query_bf16, tg_ref_kv_query_q8, tg_ref_kv_query_q16;
tg_attend_finish_fn tg_ref_attend_finish;
tg_kv_store_fn tg_ref_kv_store_f32, tg_ref_kv_store_f16, tg_ref_kv_store_bf16, tg_ref_kv_store_q8,
    tg_ref_kv_store_q16;
tg_sample_row_fn tg_ref_sample_row;
uint64_t tg_ref_sum_words(const uint64_t *p, int64_t n);
uint32_t tg_ref_sum_products(const uint8_t *u, const int8_t *s, int64_t n_rounds);

#endif
