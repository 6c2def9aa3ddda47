/* SPDX-License-Identifier: Apache-2.0
 * avx2.h - what the files of the avx2 tier share. 8 floats are a register: the contract's 16
 * lanes are two of them, `lo` lanes 0..7 and `hi` lanes 8..15. */
#ifndef TG_KERNEL_AVX2_H
#define TG_KERNEL_AVX2_H

#include "kernel/kernel.h"

#include <immintrin.h>

extern tg_matmul_fn *const tg_avx2_matmul[TG_LAYOUT_COUNT];
tg_matmul_fn tg_avx2_matmul_f32, tg_avx2_matmul_f16, tg_avx2_matmul_bf16;
/* A quantized matrix with many tokens; false, and nothing done, when the row is so long that the
 * scratch does not hold what a few tokens bring to it. */
bool tg_avx2_matmul_many(const tg_matmul *m, tg_layout l);
tg_attend_fn tg_avx2_attend_f32, tg_avx2_attend_f16;
tg_sample_row_fn tg_avx2_sample_row;
uint64_t tg_avx2_sum_words(const uint64_t *p, int64_t n);
uint32_t tg_avx2_sum_products(const uint8_t *u, const int8_t *s, int64_t n_rounds);

/* Lanes that exist when n elements are left: all ones where i < n. */
TG_INLINE __m256i tg_mask8(int64_t n)
{
    static const int32_t table[16] = {-1, -1, -1, -1, -1, -1, -1, -1};
    int64_t kept = n < 0 ? 0 : n > 8 ? 8 : n;
    return _mm256_loadu_si256((const __m256i *)(const void *)(table + 8 - kept));
}

/* Whole registers take the plain instruction: a masked one is slow where nothing is cut. */
TG_INLINE __m256 tg_load8(const float *x, int64_t n)
{
    return n >= 8 ? _mm256_loadu_ps(x) : _mm256_maskload_ps(x, tg_mask8(n));
}

TG_INLINE void tg_store8(float *y, int64_t n, __m256 v)
{
    if (n >= 8)
        _mm256_storeu_ps(y, v);
    else
        _mm256_maskstore_ps(y, tg_mask8(n), v);
}

/* Contract 3: the folds of sum16 and max16. */
TG_INLINE float tg_fold_sum(__m256 lo, __m256 hi)
{
    __m256 a = _mm256_add_ps(lo, hi);
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* maxps takes its second operand unless the first is greater: a > b ? a : b. */
TG_INLINE float tg_fold_max(__m256 lo, __m256 hi)
{
    __m256 a = _mm256_max_ps(lo, hi);
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

/* Contract 4. A NaN passes the minimum (second operand), and converts to an exponent of 0. */
TG_INLINE __m256 tg_exp8(__m256 x)
{
    static const float poly[] = TG_EXP_POLY;
    __m256 is_zero = _mm256_cmp_ps(x, _mm256_set1_ps(-87.0f), _CMP_LT_OQ);
    x = _mm256_min_ps(_mm256_set1_ps(88.0f), x);
    __m256 n = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(0x1.715476p0f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    __m256 r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.62e4p-1f), x);
    r = _mm256_fmadd_ps(n, _mm256_set1_ps(-0x1.7f7d1cp-20f), r);
    __m256 p = _mm256_set1_ps(poly[0]);
    for (size_t i = 1; i < TG_COUNT(poly); i++)
        p = _mm256_fmadd_ps(p, r, _mm256_set1_ps(poly[i]));
    __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), e));
    return _mm256_andnot_ps(is_zero, p);
}

TG_INLINE __m256 tg_load_f16x8(const void *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}

#endif
