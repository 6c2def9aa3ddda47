/* SPDX-License-Identifier: Apache-2.0
 * avx512.c - element-wise kernels and the table of the avx512 tier. */
#include "kernel/avx512.h"

#include <math.h>
#include <string.h>

/* ---- quantize */

enum { BATCH = 16 }; /* groups whose scales are divided together */

typedef struct batch {
    _Alignas(64) float scale[BATCH], inv[BATCH];
    __mmask16 has_codes;
} batch;

TG_INLINE __m512i load_bits(const float *x, int64_t n)
{
    return n <= 0 ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi32(tg_mask16(n), x);
}

/* Scales and reciprocals of BATCH groups starting at x, of which n columns exist (contract 5); t
 * holds the largest code of each. */
static void scale_batch(batch *b, const float *x, int64_t n, __m512 t)
{
    _Alignas(64) int32_t amax[BATCH];
    __m512i abs = _mm512_set1_epi32(0x7fffffff);
    for (int64_t g = 0; g < BATCH; g++) {
        __m512i lo = _mm512_and_si512(load_bits(x + 32 * g, n - 32 * g), abs);
        __m512i hi = _mm512_and_si512(load_bits(x + 32 * g + 16, n - 32 * g - 16), abs);
        amax[g] = _mm512_reduce_max_epi32(_mm512_max_epi32(lo, hi));
    }
    __m512i bits = _mm512_load_si512(amax);
    __m512 a = _mm512_castsi512_ps(bits);
    __m512 inv = _mm512_div_ps(t, a);
    __m512i infinity = _mm512_set1_epi32(0x7f800000);
    __mmask16 is_number = _mm512_cmplt_epi32_mask(bits, infinity);
    __mmask16 is_tiny = _mm512_cmpeq_epi32_mask(_mm512_castps_si512(inv), infinity) & is_number;
    b->has_codes = is_number & (__mmask16)~is_tiny;
    __m512 scale = _mm512_mask_div_ps(a, b->has_codes, a, t);
    _mm512_store_ps(b->scale, _mm512_mask_mov_ps(scale, is_tiny, _mm512_setzero_ps()));
    _mm512_store_ps(b->inv, inv);
}

/* Adds the 8 lanes' first and second four. */
TG_INLINE void sum_halves(__m256i s, int32_t *first, int32_t *second)
{
    __m256i h = _mm256_hadd_epi32(s, s);
    h = _mm256_hadd_epi32(h, h);
    *first = _mm256_extract_epi32(h, 0);
    *second = _mm256_extract_epi32(h, 4);
}

TG_INLINE __m256i to_bytes(__m512i lo, __m512i hi)
{
    return _mm256_set_m128i(_mm512_cvtepi32_epi8(hi), _mm512_cvtepi32_epi8(lo));
}

/* The largest codes of BATCH groups from the map's n entries on. */
TG_INLINE __m512 load_tops(const int16_t *wide, int64_t n)
{
    __mmask16 is_there = n < BATCH ? (__mmask16)((1 << n) - 1) : (__mmask16)0xffff;
    __m256i place = _mm256_mask_loadu_epi16(_mm256_set1_epi16(-1), is_there, wide);
    __mmask16 is_narrow = _mm256_movepi16_mask(place);
    return _mm512_mask_mov_ps(_mm512_set1_ps(32512.0f), is_narrow, _mm512_set1_ps(127.0f));
}

/* is_mixed: some groups are wide. */
TG_INLINE void quantize_row(const tg_a8 *out, const float *x, int64_t n, bool is_mixed)
{
    const __m256i ones = _mm256_set1_epi8(1);
    const __m512i round = _mm512_set1_epi32(128);
    int64_t n_groups = out->padded / 32;
    batch b;
    for (int64_t g = 0; g < n_groups; g++) {
        int64_t left = n - 32 * g;
        if (g % BATCH == 0)
            scale_batch(&b, x + 32 * g, left,
                        is_mixed ? load_tops(out->wide + g, n_groups - g) : _mm512_set1_ps(127.0f));
        __m512 inv = _mm512_set1_ps(b.inv[g % BATCH]);
        __m512 u = _mm512_castsi512_ps(load_bits(x + 32 * g, left));
        __m512 v = _mm512_castsi512_ps(load_bits(x + 32 * g + 16, left - 16));
        __mmask16 keep = b.has_codes >> (g % BATCH) & 1 ? 0xffff : 0;
        __m512i lo = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(u, inv));
        __m512i hi = _mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v, inv));
        __m256i codes = to_bytes(lo, hi), sums;
        if (is_mixed && out->wide[g] >= 0) {
            __m512i lo_hi = _mm512_srai_epi32(_mm512_add_epi32(lo, round), 8);
            __m512i hi_hi = _mm512_srai_epi32(_mm512_add_epi32(hi, round), 8);
            __m256i high = to_bytes(lo_hi, hi_hi);
            /* v - 256 hi in -128..127 is the low byte of v, read as signed */
            _mm256_store_si256((__m256i *)(void *)(out->lo + 32 * out->wide[g]), codes);
            sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, high);
            sums = _mm256_dpbusd_epi32(_mm256_slli_epi32(sums, 8), ones, codes);
            codes = high;
        } else {
            sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), ones, codes);
        }
        _mm256_store_si256((__m256i *)(void *)(out->hi + 32 * g), codes);
        int32_t first, second;
        sum_halves(sums, &first, &second);
        out->scale[g] = b.scale[g % BATCH];
        out->sum[g] = first + second;
        out->half[g] = first;
        out->ssum[g] = b.scale[g % BATCH] * (float)(first + second);
    }
}

static void quantize(const tg_a8 *out, const float *x, int32_t n)
{
    if (out->wide)
        quantize_row(out, x, n, true);
    else
        quantize_row(out, x, n, false);
}

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

/* ---- keys, values and merging */

static void kv_store_f16(void *k, void *v, int32_t slot, const float *key, const float *value,
                         int32_t head_dim)
{
    enum { NEAREST = _MM_FROUND_TO_NEAREST_INT };
    uint16_t *to_k = (uint16_t *)k + slot, *to_v = (uint16_t *)v + (size_t)slot * (size_t)head_dim;
    for (int32_t d = 0; d < head_dim; d += 8) {
        _Alignas(16) uint16_t h[8];
        __m128i a = _mm256_cvtps_ph(_mm256_loadu_ps(key + d), NEAREST);
        __m128i b = _mm256_cvtps_ph(_mm256_loadu_ps(value + d), NEAREST);
        _mm_store_si128((__m128i *)(void *)h, a);
        for (int32_t i = 0; i < 8; i++)
            to_k[(size_t)(d + i) * TG_PAGE_TOKENS] = h[i];
        _mm_storeu_si128((__m128i *)(void *)(to_v + d), b);
    }
}

static void attend_merge(float *M, float *L, float *O, float m, float l, const float *o, int32_t n)
{
    if (l == 0) return;
    if (*L == 0 && *M == -INFINITY) {
        *M = m;
        *L = l;
        memcpy(O, o, (size_t)n * sizeof *O);
        return;
    }
    float top = *M > m ? *M : m;
    __m512 a = tg_exp16(_mm512_set1_ps(*M - top)), b = tg_exp16(_mm512_set1_ps(m - top));
    *L = _mm_cvtss_f32(_mm_fmadd_ss(_mm_set_ss(*L), _mm512_castps512_ps128(a),
                                    _mm_set_ss(l * _mm512_cvtss_f32(b))));
    for (int32_t d = 0; d < n; d += 16) {
        __mmask16 k = tg_mask16(n - d);
        __m512 add = _mm512_mul_ps(_mm512_maskz_loadu_ps(k, o + d), b);
        __m512 old = _mm512_maskz_loadu_ps(k, O + d);
        _mm512_mask_storeu_ps(O + d, k, _mm512_fmadd_ps(old, a, add));
    }
    *M = top;
}

static void attend_finish(float *y, const float *O, float L, int32_t n)
{
    __m512 l = _mm512_set1_ps(L);
    for (int32_t d = 0; d < n; d += 16) {
        __mmask16 k = tg_mask16(n - d);
        __m512 v = _mm512_div_ps(_mm512_maskz_loadu_ps(k, O + d), l);
        _mm512_mask_storeu_ps(y + d, k, L == 0 ? _mm512_setzero_ps() : v);
    }
}

void tg_kernels_fill_avx512(tg_kernels *k)
{
    k->quantize = quantize;
    k->rms_norm = rms_norm;
    k->rope = rope;
    k->glu[TG_ACT_SILU] = glu_silu;
    k->glu[TG_ACT_GELU_TANH] = glu_gelu_tanh;
    k->add = add;
    k->kv_store[TG_KV_F16] = kv_store_f16;
    k->attend_merge = attend_merge;
    k->attend_finish = attend_finish;
    k->attend[TG_KV_F32] = tg_avx512_attend_f32;
    k->attend[TG_KV_F16] = tg_avx512_attend_f16;
    k->sample_row = tg_avx512_sample_row;
    k->sum_words = tg_avx512_sum_words;
    k->sum_products = tg_avx512_sum_products;
    for (int l = 0; l < TG_LAYOUT_COUNT; l++)
        if (tg_avx512_matmul[l]) k->matmul[l] = tg_avx512_matmul[l];
}
