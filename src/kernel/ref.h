/* SPDX-License-Identifier: Apache-2.0
 * ref.h - what the files of the reference tier share, and the numbers every tier needs.
 *
 * Inline only: the tiers are compiled with other flags and may share source, never objects. */
#ifndef TG_KERNEL_REF_H
#define TG_KERNEL_REF_H

#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

static inline uint32_t tg_f32_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static inline float tg_f32_from_bits(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* Exact. Denormals: the mantissa times 2^-24. */
static inline float tg_f32_from_f16(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = (h >> 10) & 31, m = h & 0x3ff;
    if (e == 31) return tg_f32_from_bits(sign | 0x7f800000u | m << 13 | (m ? 0x400000u : 0));
    if (e) return tg_f32_from_bits(sign | (e + 112) << 23 | m << 13);
    float x = (float)m * 0x1p-24f;
    return sign ? -x : x;
}

/* Round to nearest even; beyond the largest f16 infinity; a NaN stays one, quiet. */
static inline uint16_t tg_f16_from_f32(float x)
{
    uint32_t b = tg_f32_bits(x), sign = b >> 16 & 0x8000, a = b & 0x7fffffff;
    if (a > 0x7f800000u) return (uint16_t)(sign | 0x7e00 | (a >> 13 & 0x3ff));
    if (a >= 0x477ff000u) return (uint16_t)(sign | 0x7c00); /* 65520, half way to 2^16 */
    if (a < 0x38800000u) /* below 2^-14: the sum's ulp is 2^-24, so the addition rounds */
        return (uint16_t)(sign | (tg_f32_bits(tg_f32_from_bits(a) + 0.5f) - 0x3f000000u));
    uint32_t odd = a >> 13 & 1;
    return (uint16_t)(sign | ((a - 0x38000000u + 0xfff + odd) >> 13));
}

static inline float tg_load_f16(const void *p, size_t i)
{
    uint16_t h;
    memcpy(&h, (const char *)p + 2 * i, sizeof h);
    return tg_f32_from_f16(h);
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
    return tg_f32_from_bits(tg_f32_bits(p) + ((uint32_t)(int32_t)n << 23));
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
tg_attend_fn tg_ref_attend_f32, tg_ref_attend_f16;
void tg_ref_attend_merge(float *M, float *L, float *O, float m, float l, const float *o, int32_t n);
void tg_ref_attend_finish(float *y, const float *O, float L, int32_t n);
tg_kv_store_fn tg_ref_kv_store_f32, tg_ref_kv_store_f16;
tg_sample_row_fn tg_ref_sample_row;

#endif
