/* SPDX-License-Identifier: Apache-2.0
 * avx2.c - element-wise kernels and the table of the avx2 tier. */
#include "kernel/avx2.h"

#include "kernel/cpu.h"

#include <math.h>

/* ---- quantize */

TG_INLINE int32_t max_lanes(__m256i v)
{
    __m128i a = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_max_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

TG_INLINE int32_t sum_lanes(__m256i v)
{
    __m128i a = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    a = _mm_add_epi32(a, _mm_shuffle_epi32(a, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(a, _mm_shuffle_epi32(a, 0xb1)));
}

/* The low bytes of four registers of int32 in -128..127, in order. */
TG_INLINE __m256i pack_bytes(const __m256i v[4])
{
    __m256i words = _mm256_packs_epi32(v[0], v[1]), more = _mm256_packs_epi32(v[2], v[3]);
    __m256i bytes = _mm256_packs_epi16(words, more); /* 4-byte pieces 0 2 4 6 | 1 3 5 7 */
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

/* One group's scale and reciprocal (contract 5); false when its codes are all 0. */
static bool scale_group(const __m256 x[4], float top, float *scale, float *inv)
{
    const __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i m = _mm256_setzero_si256();
    for (int i = 0; i < 4; i++)
        m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(x[i]), abs));
    int32_t bits = max_lanes(m);
    float amax = _mm_cvtss_f32(_mm_castsi128_ps(_mm_cvtsi32_si128(bits)));
    *scale = amax;
    if (bits >= 0x7f800000) return false; /* infinity or NaN */
    *inv = top / amax;
    *scale = isinf(*inv) ? 0.0f : amax / top;
    return !isinf(*inv);
}

static void quantize(const tg_a8 *out, const float *x, int32_t n)
{
    int64_t n_groups = out->padded / 32;
    for (int64_t g = 0; g < n_groups; g++) {
        int place = out->outliers ? out->outliers[g] : -1;
        bool is_outlier = place >= 0;
        __m256 v[4];
        __m256i q[4], h[4];
        for (int64_t i = 0; i < 4; i++) {
            int64_t at = 32 * g + 8 * i;
            v[i] = at < n ? tg_load8(x + at, n - at) : _mm256_setzero_ps();
        }
        float scale, inv = 0;
        bool has_codes = scale_group(v, is_outlier ? 32512.0f : (float)out->top, &scale, &inv);
        __m256i keep = _mm256_set1_epi32(has_codes ? -1 : 0);
        for (int i = 0; i < 4; i++) {
            q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], _mm256_set1_ps(inv)));
            q[i] = _mm256_and_si256(q[i], keep);
        }
        int32_t first = sum_lanes(_mm256_add_epi32(q[0], q[1]));
        int32_t sum = first + sum_lanes(_mm256_add_epi32(q[2], q[3]));
        for (int i = 0; i < 4 && is_outlier; i++) {
            h[i] = _mm256_srai_epi32(_mm256_add_epi32(q[i], _mm256_set1_epi32(128)), 8);
            q[i] = _mm256_sub_epi32(q[i], _mm256_slli_epi32(h[i], 8));
        }
        __m256i codes = pack_bytes(q);
        if (is_outlier) {
            _mm256_store_si256((__m256i *)(void *)(out->lo + 32 * place), codes);
            codes = pack_bytes(h);
        }
        _mm256_store_si256((__m256i *)(void *)(out->hi + 32 * g), codes);
        out->scale[g] = scale;
        out->ssum[g] = scale * (float)sum;
        out->sum[g] = sum;
        out->half[g] = first;
        if (out->pair) out->pair[g] = is_outlier ? 0 : tg_a8_sum_pairs(out->hi + 32 * g, out->top);
    }
}

/* ---- norms, rotary positions, gated units */

static void rms_norm(float *y, const float *x, const float *w, int32_t n, float eps)
{
    __m256 lo = _mm256_setzero_ps(), hi = lo;
    for (int32_t i = 0; i < n; i += 16) { /* absent elements add 0 * 0, which changes no sum */
        __m256 a = tg_load8(x + i, n - i);
        __m256 b = n - i > 8 ? tg_load8(x + i + 8, n - i - 8) : _mm256_setzero_ps();
        lo = _mm256_fmadd_ps(a, a, lo);
        hi = _mm256_fmadd_ps(b, b, hi);
    }
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(tg_fold_sum(lo, hi) / (float)n + eps));
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(tg_load8(x + i, n - i), r);
        tg_store8(y + i, n - i, _mm256_mul_ps(v, tg_load8(w + i, n - i)));
    }
}

static void layer_norm(float *y, const float *x, const float *w, const float *bias, int32_t n,
                       float eps)
{
    const __m256 zero = _mm256_setzero_ps();
    __m256 lo = zero, hi = zero;
    for (int32_t i = 0; i < n; i += 16) {
        lo = _mm256_add_ps(lo, tg_load8(x + i, n - i));
        if (n - i > 8) hi = _mm256_add_ps(hi, tg_load8(x + i + 8, n - i - 8));
    }
    __m256 mean = _mm256_set1_ps(tg_fold_sum(lo, hi) / (float)n);
    lo = hi = zero;
    for (int32_t i = 0; i < n; i += 8) /* stored first: absent elements are read back as 0 */
        tg_store8(y + i, n - i, _mm256_sub_ps(tg_load8(x + i, n - i), mean));
    for (int32_t i = 0; i < n; i += 16) {
        __m256 a = tg_load8(y + i, n - i);
        __m256 b = n - i > 8 ? tg_load8(y + i + 8, n - i - 8) : zero;
        lo = _mm256_fmadd_ps(a, a, lo);
        hi = _mm256_fmadd_ps(b, b, hi);
    }
    __m256 r = _mm256_set1_ps(1.0f / sqrtf(tg_fold_sum(lo, hi) / (float)n + eps));
    for (int32_t i = 0; i < n; i += 8) {
        __m256 v = _mm256_mul_ps(tg_load8(y + i, n - i), r);
        v = _mm256_mul_ps(v, tg_load8(w + i, n - i));
        if (bias) v = _mm256_add_ps(v, tg_load8(bias + i, n - i));
        tg_store8(y + i, n - i, v);
    }
}

static void scale(float *y, int32_t n, float factor)
{
    const __m256 f = _mm256_set1_ps(factor);
    for (int32_t i = 0; i < n; i += 8)
        tg_store8(y + i, n - i, _mm256_mul_ps(tg_load8(y + i, n - i), f));
}

static void softcap(float *y, int32_t n, float c)
{
    const __m256 by = _mm256_set1_ps(c), one = _mm256_set1_ps(1.0f), two = _mm256_set1_ps(2.0f);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 x = _mm256_div_ps(tg_load8(y + i, n - i), by);
        __m256 e = tg_exp8(_mm256_mul_ps(two, x));
        e = _mm256_div_ps(two, _mm256_add_ps(one, e));
        tg_store8(y + i, n - i, _mm256_mul_ps(by, _mm256_sub_ps(one, e)));
    }
}

static void rope(float *x, const float *cos, const float *sin, int32_t n_rot)
{
    int32_t half = n_rot / 2;
    const __m256 sign = _mm256_set1_ps(-0.0f);
    for (int32_t i = 0; i < half; i += 8) {
        int32_t n = half - i;
        __m256 c = tg_load8(cos + i, n), s = tg_load8(sin + i, n);
        __m256 x0 = tg_load8(x + i, n), x1 = tg_load8(x + half + i, n);
        __m256 minus = _mm256_xor_ps(_mm256_mul_ps(x1, s), sign);
        tg_store8(x + i, n, _mm256_fmadd_ps(x0, c, minus));
        tg_store8(x + half + i, n, _mm256_fmadd_ps(x1, c, _mm256_mul_ps(x0, s)));
    }
}

static void glu_silu(float *y, const float *gate, const float *up, int32_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f), sign = _mm256_set1_ps(-0.0f);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 g = tg_load8(gate + i, n - i), u = tg_load8(up + i, n - i);
        __m256 e = tg_exp8(_mm256_xor_ps(g, sign));
        __m256 act = _mm256_div_ps(g, _mm256_add_ps(one, e));
        tg_store8(y + i, n - i, _mm256_mul_ps(act, u));
    }
}

static void glu_gelu_tanh(float *y, const float *gate, const float *up, int32_t n)
{
    const __m256 one = _mm256_set1_ps(1.0f);
    for (int32_t i = 0; i < n; i += 8) {
        __m256 g = tg_load8(gate + i, n - i), u = tg_load8(up + i, n - i);
        __m256 cube = _mm256_mul_ps(_mm256_mul_ps(g, g), g);
        __m256 inner = _mm256_fmadd_ps(cube, _mm256_set1_ps(0x1.6e4e26p-5f), g);
        inner = _mm256_mul_ps(_mm256_set1_ps(0x1.988454p-1f), inner);
        __m256 e = tg_exp8(_mm256_mul_ps(_mm256_set1_ps(-2.0f), inner));
        __m256 act = _mm256_div_ps(g, _mm256_add_ps(one, e));
        tg_store8(y + i, n - i, _mm256_mul_ps(act, u));
    }
}

static void add(float *y, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i += 8)
        tg_store8(y + i, n - i, _mm256_add_ps(tg_load8(y + i, n - i), tg_load8(x + i, n - i)));
}

void tg_kernels_fill_avx2(tg_kernels *k)
{
    k->quantize = quantize;
    k->rms_norm = rms_norm;
    k->layer_norm = layer_norm;
    k->scale = scale;
    k->softcap = softcap;
    k->rope = rope;
    k->glu[TG_ACT_SILU] = glu_silu;
    k->glu[TG_ACT_GELU_TANH] = glu_gelu_tanh;
    k->add = add;
    k->kv_store[TG_KV_F16] = tg_avx2_kv_store_f16;
    k->kv_store[TG_KV_BF16] = tg_avx2_kv_store_bf16;
    k->kv_store[TG_KV_Q8] = tg_avx2_kv_store_q8;
    k->kv_store[TG_KV_Q16] = tg_avx2_kv_store_q16;
    k->kv_query[TG_KV_BF16] = tg_avx2_kv_query_bf16;
    k->kv_query[TG_KV_Q8] = tg_avx2_kv_query_q8;
    k->kv_query[TG_KV_Q16] = tg_avx2_kv_query_q16;
    k->attend_finish = tg_avx2_attend_finish;
    k->attend[TG_KV_F32] = tg_avx2_attend_f32;
    k->attend[TG_KV_F16] = tg_avx2_attend_f16;
    k->attend[TG_KV_BF16] = tg_avx2_attend_bf16;
    k->attend[TG_KV_Q8] = tg_avx2_attend_q8;
    k->attend[TG_KV_Q16] = tg_avx2_attend_q16;
    k->sample_row = tg_avx2_sample_row;
    k->sum_words = tg_avx2_sum_words;
    k->sum_products = tg_avx2_sum_products;
    bool has_vnni = tg_cpu_has_avx_vnni();
    for (int l = 0; l < TG_LAYOUT_COUNT; l++)
        k->matmul[l] =
            has_vnni && tg_avx2_vnni_matmul[l] ? tg_avx2_vnni_matmul[l] : tg_avx2_matmul[l];
}
