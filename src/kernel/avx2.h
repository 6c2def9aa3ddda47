/* SPDX-License-Identifier: Apache-2.0
 * avx2.h - what the files of the avx2 tier share. 8 floats are a register: the contract's 16
 * lanes are two of them, `lo` lanes 0..7 and `hi` lanes 8..15. */
#ifndef TG_KERNEL_AVX2_H
#define TG_KERNEL_AVX2_H

#include "kernel/kernel.h"

#include <immintrin.h>
#include <string.h>

/* What AVX-VNNI has better stands in the second; elsewhere it must not run. */
extern tg_matmul_fn *const tg_avx2_matmul[TG_LAYOUT_COUNT],
    *const tg_avx2_vnni_matmul[TG_LAYOUT_COUNT];
tg_matmul_fn tg_avx2_matmul_f32, tg_avx2_matmul_f16, tg_avx2_matmul_bf16;
/* How the sums of many tokens are formed (avx2_gemm.h). */
typedef struct tg_gemm_sums tg_gemm_sums;
extern const tg_gemm_sums tg_avx2_gemm_sums, tg_avx2_vnni_sums;
/* A quantized matrix with many tokens; false, and nothing done, when the row is so long that the
 * scratch does not hold what a few tokens bring to it. */
bool tg_avx2_matmul_gemm(const tg_matmul *m, tg_layout l, const tg_gemm_sums *sums);
tg_attend_fn tg_avx2_attend_f32, tg_avx2_attend_f16, tg_avx2_attend_bf16, tg_avx2_attend_q8,
    tg_avx2_attend_q16;
tg_kv_query_fn tg_avx2_kv_query_bf16, tg_avx2_kv_query_q8, tg_avx2_kv_query_q16;
tg_attend_finish_fn tg_avx2_attend_finish;
tg_kv_store_fn tg_avx2_kv_store_f16, tg_avx2_kv_store_bf16, tg_avx2_kv_store_q8,
    tg_avx2_kv_store_q16;
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

/* ---- 16 floats, by the names that avx2_attend.h knows them under */

typedef struct tg_v16 {
    __m256 lo, hi;
} tg_v16;

typedef tg_v16 tg_m16; /* all ones or all zeros a lane */

/* `n` is how many lanes exist, 8 or at least 16; absent ones load as 0 and are not stored. */
TG_INLINE tg_v16 tg_v16_load(const float *p, int64_t n)
{
    return (tg_v16){_mm256_loadu_ps(p), n < 16 ? _mm256_setzero_ps() : _mm256_loadu_ps(p + 8)};
}

TG_INLINE void tg_v16_store(float *p, int64_t n, tg_v16 v)
{
    _mm256_storeu_ps(p, v.lo);
    if (n >= 16) _mm256_storeu_ps(p + 8, v.hi);
}

TG_INLINE tg_v16 tg_v16_load_f16(const uint16_t *p, int64_t n)
{
    return (tg_v16){tg_load_f16x8(p), n < 16 ? _mm256_setzero_ps() : tg_load_f16x8(p + 8)};
}

TG_INLINE tg_v16 tg_v16_set(float x)
{
    return (tg_v16){_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

TG_INLINE tg_v16 tg_v16_add(tg_v16 a, tg_v16 b)
{
    return (tg_v16){_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

TG_INLINE tg_v16 tg_v16_sub(tg_v16 a, tg_v16 b)
{
    return (tg_v16){_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}

TG_INLINE tg_v16 tg_v16_mul(tg_v16 a, tg_v16 b)
{
    return (tg_v16){_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}

TG_INLINE tg_v16 tg_v16_div(tg_v16 a, tg_v16 b)
{
    return (tg_v16){_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}

TG_INLINE tg_v16 tg_v16_max(tg_v16 a, tg_v16 b) /* a > b ? a : b */
{
    return (tg_v16){_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}

TG_INLINE tg_v16 tg_v16_fma(tg_v16 a, tg_v16 b, tg_v16 c)
{
    return (tg_v16){_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}

/* fma(*a, b, c). */
TG_INLINE tg_v16 tg_v16_fma_one(const float *a, tg_v16 b, tg_v16 c)
{
    return tg_v16_fma(tg_v16_set(*a), b, c);
}

/* The larger by its bits, as numbers without sign: a NaN, of numbers that are not negative. */
TG_INLINE tg_v16 tg_v16_max_bits(tg_v16 a, tg_v16 b)
{
    __m256i lo = _mm256_max_epu32(_mm256_castps_si256(a.lo), _mm256_castps_si256(b.lo));
    __m256i hi = _mm256_max_epu32(_mm256_castps_si256(a.hi), _mm256_castps_si256(b.hi));
    return (tg_v16){_mm256_castsi256_ps(lo), _mm256_castsi256_ps(hi)};
}

TG_INLINE tg_v16 tg_v16_exp(tg_v16 x)
{
    return (tg_v16){tg_exp8(x.lo), tg_exp8(x.hi)};
}

TG_INLINE void tg_v16_exp_each(tg_v16 *x, int n)
{
    for (int i = 0; i < n; i++)
        x[i] = tg_v16_exp(x[i]);
}

TG_INLINE float tg_v16_fold_sum(tg_v16 x)
{
    return tg_fold_sum(x.lo, x.hi);
}

TG_INLINE float tg_v16_fold_max(tg_v16 x)
{
    return tg_fold_max(x.lo, x.hi);
}

/* The same for any n. */
TG_INLINE tg_v16 tg_v16_load_first(const float *p, int64_t n)
{
    return (tg_v16){_mm256_maskload_ps(p, tg_mask8(n)), _mm256_maskload_ps(p + 8, tg_mask8(n - 8))};
}

TG_INLINE void tg_v16_store_first(float *p, int64_t n, tg_v16 v)
{
    _mm256_maskstore_ps(p, tg_mask8(n), v.lo);
    _mm256_maskstore_ps(p + 8, tg_mask8(n - 8), v.hi);
}

/* The folds of n <= 16 rows of 16; lane = row. */
TG_INLINE tg_v16 tg_v16_fold_each_max(const float *x, int n)
{
    float y[16] = {0};
    for (int i = 0; i < n; i++)
        y[i] = tg_v16_fold_max(tg_v16_load(x + 16 * i, 16));
    return tg_v16_load(y, 16);
}

TG_INLINE tg_v16 tg_v16_fold_each_sum(const float *x, int n)
{
    float y[16] = {0};
    for (int i = 0; i < n; i++)
        y[i] = tg_v16_fold_sum(tg_v16_load(x + 16 * i, 16));
    return tg_v16_load(y, 16);
}

TG_INLINE tg_v16 tg_v16_fold_each_max_bits(const float *x, int n)
{
    float y[16] = {0};
    for (int i = 0; i < n; i++) {
        __m256i a = _mm256_castps_si256(_mm256_loadu_ps(x + 16 * i));
        a = _mm256_max_epu32(a, _mm256_castps_si256(_mm256_loadu_ps(x + 16 * i + 8)));
        __m128i b = _mm_max_epu32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0x4e));
        b = _mm_max_epu32(b, _mm_shuffle_epi32(b, 0xb1));
        y[i] = _mm_cvtss_f32(_mm_castsi128_ps(b));
    }
    return tg_v16_load(y, 16);
}

TG_INLINE __m256 tg_mask8_range(int32_t first, int32_t last, int at)
{
    __m256i place =
        _mm256_add_epi32(_mm256_set1_epi32(at), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    __m256i low = _mm256_cmpgt_epi32(_mm256_set1_epi32(first), place);
    __m256i high = _mm256_cmpgt_epi32(place, _mm256_set1_epi32(last));
    __m256i hidden = _mm256_or_si256(low, high);
    return _mm256_castsi256_ps(_mm256_xor_si256(hidden, _mm256_set1_epi32(-1)));
}

/* Lanes of the places [at, at + 16) that lie in first..last. */
TG_INLINE tg_m16 tg_m16_range(int32_t first, int32_t last, int at)
{
    return (tg_m16){tg_mask8_range(first, last, at), tg_mask8_range(first, last, at + 8)};
}

TG_INLINE tg_v16 tg_v16_select(tg_m16 m, tg_v16 a, tg_v16 b) /* m ? a : b */
{
    return (tg_v16){_mm256_blendv_ps(b.lo, a.lo, m.lo), _mm256_blendv_ps(b.hi, a.hi, m.hi)};
}

TG_INLINE tg_v16 tg_v16_and(tg_v16 a, tg_v16 b)
{
    return (tg_v16){_mm256_and_ps(a.lo, b.lo), _mm256_and_ps(a.hi, b.hi)};
}

TG_INLINE tg_m16 tg_m16_and(tg_m16 a, tg_m16 b)
{
    return tg_v16_and(a, b);
}

TG_INLINE __m256 tg_is_finite8(__m256 x)
{
    __m256i abs = _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32(0x7fffffff));
    return _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_set1_epi32(0x7f800000), abs));
}

TG_INLINE tg_m16 tg_v16_is_finite(tg_v16 x)
{
    return (tg_m16){tg_is_finite8(x.lo), tg_is_finite8(x.hi)};
}

TG_INLINE __m256 tg_amax8(__m256 a, __m256 b)
{
    __m256i abs = _mm256_set1_epi32(0x7fffffff);
    __m256i x = _mm256_and_si256(_mm256_castps_si256(a), abs);
    __m256i y = _mm256_and_si256(_mm256_castps_si256(b), abs);
    return _mm256_castsi256_ps(_mm256_max_epi32(x, y));
}

/* The larger by the bits of |x|, as numbers without sign. */
TG_INLINE tg_v16 tg_v16_amax(tg_v16 a, tg_v16 b)
{
    return (tg_v16){tg_amax8(a.lo, b.lo), tg_amax8(a.hi, b.hi)};
}

TG_INLINE uint32_t tg_v16_fold_amax(tg_v16 x)
{
    __m256i a = _mm256_castps_si256(tg_amax8(x.lo, x.hi));
    __m128i b = _mm_max_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0x4e));
    b = _mm_max_epi32(b, _mm_shuffle_epi32(b, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(b);
}

/* rintf of 0 .. 255 as bytes. */
TG_INLINE void tg_v16_store_u8(uint8_t *p, tg_v16 x)
{
    __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    w = _mm256_permute4x64_epi64(w, 0xd8);
    __m128i b = _mm_packus_epi16(_mm256_castsi256_si128(w), _mm256_extracti128_si256(w, 1));
    _mm_storeu_si128((__m128i *)(void *)p, b);
}

TG_INLINE __m256i tg_pack_i16(tg_v16 x)
{
    __m256i w = _mm256_packs_epi32(_mm256_cvtps_epi32(x.lo), _mm256_cvtps_epi32(x.hi));
    return _mm256_permute4x64_epi64(w, 0xd8);
}

/* rintf as int16, of numbers that fit; n as in tg_v16_load. */
TG_INLINE void tg_v16_store_i16(int16_t *p, int64_t n, tg_v16 x)
{
    if (n >= 16)
        _mm256_storeu_si256((__m256i *)(void *)p, tg_pack_i16(x));
    else
        _mm_storeu_si128((__m128i *)(void *)p, _mm256_castsi256_si128(tg_pack_i16(x)));
}

/* The same of 32, into memory of any type. */
TG_INLINE void tg_v16_store_two_i16(void *p, tg_v16 a, tg_v16 b)
{
    _mm256_storeu_si256((__m256i *)p, tg_pack_i16(a));
    _mm256_storeu_si256((__m256i *)p + 1, tg_pack_i16(b));
}

TG_INLINE __m256 tg_round_bf16x8(__m256 x)
{
    __m256i u = _mm256_castps_si256(x);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)), odd);
    __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    __m256 is_nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(is_nan));
    return _mm256_castsi256_ps(_mm256_and_si256(r, _mm256_set1_epi32(-0x10000)));
}

/* The nearest bf16, as a float. */
TG_INLINE tg_v16 tg_v16_round_bf16(tg_v16 x)
{
    return (tg_v16){tg_round_bf16x8(x.lo), tg_round_bf16x8(x.hi)};
}

/* ---- 16 int32, or 64 bytes */

typedef struct tg_i16 {
    __m256i lo, hi;
} tg_i16;

TG_INLINE tg_i16 tg_i16_load(const void *p, int64_t n)
{
    const __m256i *x = p;
    return (tg_i16){_mm256_loadu_si256(x),
                    n < 16 ? _mm256_setzero_si256() : _mm256_loadu_si256(x + 1)};
}

TG_INLINE tg_i16 tg_i16_set(int32_t x)
{
    return (tg_i16){_mm256_set1_epi32(x), _mm256_set1_epi32(x)};
}

TG_INLINE tg_v16 tg_v16_from_i16(tg_i16 x)
{
    return (tg_v16){_mm256_cvtepi32_ps(x.lo), _mm256_cvtepi32_ps(x.hi)};
}

/* Sums of four products of codes: from tg_i16_begin on, over all codes of q, whose sum it is told.
 * k holds code + 128. */
TG_INLINE tg_i16 tg_i16_begin(int32_t q_sum)
{
    (void)q_sum;
    return tg_i16_set(0);
}

/* |q| times k with q's sign: 2 * 127 * 127 fits the 16 bits that maddubs saturates to. */
TG_INLINE __m256i tg_dot_key8(__m256i acc, __m256i k, __m256i q)
{
    __m256i code = _mm256_xor_si256(k, _mm256_set1_epi8(-128));
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(code, q));
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}

TG_INLINE tg_i16 tg_i16_dot_key(tg_i16 acc, tg_i16 k, tg_i16 q)
{
    return (tg_i16){tg_dot_key8(acc.lo, k.lo, q.lo), tg_dot_key8(acc.hi, k.hi, q.hi)};
}

/* Sums of two products of int16. */
TG_INLINE tg_i16 tg_i16_dot_pair(tg_i16 acc, tg_i16 a, tg_i16 b)
{
    return (tg_i16){_mm256_add_epi32(acc.lo, _mm256_madd_epi16(a.lo, b.lo)),
                    _mm256_add_epi32(acc.hi, _mm256_madd_epi16(a.hi, b.hi))};
}

/* The same with the pair at a in all lanes. */
TG_INLINE tg_i16 tg_i16_dot_pair_one(tg_i16 acc, const void *a, tg_i16 b)
{
    int32_t pair;
    memcpy(&pair, a, sizeof pair);
    return tg_i16_dot_pair(acc, tg_i16_set(pair), b);
}

/* c = 2 (c >> 1) + (c & 1), for the same reason. */
TG_INLINE __m256i tg_dot_value8(__m256i acc, __m256i c, __m256i v)
{
    __m256i half = _mm256_and_si256(_mm256_srli_epi16(c, 1), _mm256_set1_epi8(0x7f));
    __m256i odd = _mm256_and_si256(c, _mm256_set1_epi8(1));
    __m256i two = _mm256_madd_epi16(_mm256_maddubs_epi16(half, v), _mm256_set1_epi16(2));
    __m256i one = _mm256_madd_epi16(_mm256_maddubs_epi16(odd, v), _mm256_set1_epi16(1));
    return _mm256_add_epi32(acc, _mm256_add_epi32(two, one));
}

/* c unsigned, v signed. */
TG_INLINE tg_i16 tg_i16_dot_value(tg_i16 acc, tg_i16 c, tg_i16 v)
{
    return (tg_i16){tg_dot_value8(acc.lo, c.lo, v.lo), tg_dot_value8(acc.hi, c.hi, v.hi)};
}

#endif
