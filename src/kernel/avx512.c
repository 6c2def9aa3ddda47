/* SPDX-License-Identifier: Apache-2.0
 * avx512.c - element-wise kernels and the table of the avx512 tier. */
#include "kernel/avx512.h"

#include <math.h>

/* ---- norms, rotary positions, gated units */

static void rms_norm(float *y, const float *x, const float *w, int32_t n, float eps)
{
    __m512 lanes = _mm512_setzero_ps();
    for (int32_t i = 0; i < n; i += 16) { /* absent elements add 0 * 0, which changes no sum */
        __m512 v = _mm512_maskz_loadu_ps(tg_mask16(n - i), x + i);
        lanes = _mm512_fmadd_ps(v, v, lanes);
    }
    __m512 r = _mm512_set1_ps(1.0f / sqrtf(tg_fold_sum(lanes) / (float)n + eps));
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 m = tg_mask16(n - i);
        __m512 v = _mm512_mul_ps(_mm512_maskz_loadu_ps(m, x + i), r);
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(v, _mm512_maskz_loadu_ps(m, w + i)));
    }
}

static void rope(float *x, const float *cos, const float *sin, int32_t n_rot)
{
    int32_t half = n_rot / 2;
    const __m512 sign = _mm512_set1_ps(-0.0f);
    for (int32_t i = 0; i < half; i += 16) {
        __mmask16 m = tg_mask16(half - i);
        __m512 c = _mm512_maskz_loadu_ps(m, cos + i), s = _mm512_maskz_loadu_ps(m, sin + i);
        __m512 x0 = _mm512_maskz_loadu_ps(m, x + i), x1 = _mm512_maskz_loadu_ps(m, x + half + i);
        __m512 minus = _mm512_xor_ps(_mm512_mul_ps(x1, s), sign);
        _mm512_mask_storeu_ps(x + i, m, _mm512_fmadd_ps(x0, c, minus));
        _mm512_mask_storeu_ps(x + half + i, m, _mm512_fmadd_ps(x1, c, _mm512_mul_ps(x0, s)));
    }
}

static void glu_silu(float *y, const float *gate, const float *up, int32_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f), sign = _mm512_set1_ps(-0.0f);
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 m = tg_mask16(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 e = tg_exp16(_mm512_xor_ps(g, sign));
        __m512 act = _mm512_div_ps(g, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(act, u));
    }
}

static void glu_gelu_tanh(float *y, const float *gate, const float *up, int32_t n)
{
    const __m512 one = _mm512_set1_ps(1.0f);
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 m = tg_mask16(n - i);
        __m512 g = _mm512_maskz_loadu_ps(m, gate + i), u = _mm512_maskz_loadu_ps(m, up + i);
        __m512 cube = _mm512_mul_ps(_mm512_mul_ps(g, g), g);
        __m512 inner = _mm512_fmadd_ps(cube, _mm512_set1_ps(0x1.6e4e26p-5f), g);
        inner = _mm512_mul_ps(_mm512_set1_ps(0x1.988454p-1f), inner);
        __m512 e = tg_exp16(_mm512_mul_ps(_mm512_set1_ps(-2.0f), inner));
        __m512 act = _mm512_div_ps(g, _mm512_add_ps(one, e));
        _mm512_mask_storeu_ps(y + i, m, _mm512_mul_ps(act, u));
    }
}

static void add(float *y, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += 16) {
        __mmask16 m = tg_mask16(n - i);
        __m512 v = _mm512_maskz_loadu_ps(m, y + i);
        _mm512_mask_storeu_ps(y + i, m, _mm512_add_ps(v, _mm512_maskz_loadu_ps(m, x + i)));
    }
}

void tg_kernels_fill_avx512(tg_kernels *k)
{
    k->quantize = tg_avx512_quantize;
    k->rms_norm = rms_norm;
    k->rope = rope;
    k->glu[TG_ACT_SILU] = glu_silu;
    k->glu[TG_ACT_GELU_TANH] = glu_gelu_tanh;
    k->add = add;
    k->kv_store[TG_KV_F16] = tg_avx512_kv_store_f16;
    k->kv_store[TG_KV_Q8] = tg_avx512_kv_store_q8;
    k->kv_store[TG_KV_Q16] = tg_avx512_kv_store_q16;
    k->kv_query[TG_KV_Q8] = tg_avx512_kv_query_q8;
    k->kv_query[TG_KV_Q16] = tg_avx512_kv_query_q16;
    k->attend_finish = tg_avx512_attend_finish;
    k->attend[TG_KV_F32] = tg_avx512_attend_f32;
    k->attend[TG_KV_F16] = tg_avx512_attend_f16;
    if (tg_cpu_has_bf16()) k->attend[TG_KV_BF16] = tg_avx512_attend_bf16;
    k->attend[TG_KV_Q8] = tg_avx512_attend_q8;
    k->attend[TG_KV_Q16] = tg_avx512_attend_q16;
    k->sample_row = tg_avx512_sample_row;
    k->sum_words = tg_avx512_sum_words;
    k->sum_products = tg_avx512_sum_products;
    for (int l = 0; l < TG_LAYOUT_COUNT; l++)
        if (tg_avx512_matmul[l]) k->matmul[l] = tg_avx512_matmul[l];
}
