/* SPDX-License-Identifier: Apache-2.0
 * avx512.h - what the files of the avx512 tier share. 16 floats are one register, so the 16
 * lanes of the contract are the register's. */
#ifndef TG_KERNEL_AVX512_H
#define TG_KERNEL_AVX512_H

#include "kernel/kernel.h"

#include <immintrin.h>

extern tg_matmul_fn *const tg_avx512_matmul[TG_LAYOUT_COUNT];
tg_matmul_fn tg_avx512_matmul_f32, tg_avx512_matmul_f16, tg_avx512_matmul_bf16;
tg_attend_fn tg_avx512_attend_f32, tg_avx512_attend_f16, tg_avx512_attend_bf16, tg_avx512_attend_q8,
    tg_avx512_attend_q16;
tg_kv_query_fn tg_avx512_kv_query_q8, tg_avx512_kv_query_q16;
tg_attend_finish_fn tg_avx512_attend_finish;
tg_kv_store_fn tg_avx512_kv_store_f16, tg_avx512_kv_store_q8, tg_avx512_kv_store_q16;
tg_sample_row_fn tg_avx512_sample_row;
void tg_avx512_quantize(const tg_a8 *out, const float *x, int32_t n);
uint64_t tg_avx512_sum_words(const uint64_t *p, int64_t n);
uint32_t tg_avx512_sum_products(const uint8_t *u, const int8_t *s, int64_t n_rounds);

/* Lanes that exist when n elements are left, n >= 1. */
TG_INLINE __mmask16 tg_mask16(int64_t n)
{
    return (__mmask16)(n >= 16 ? 0xffffu : (1u << n) - 1u);
}

/* Contract 3: the folds of sum16 and max16. */
TG_INLINE float tg_fold_sum(__m512 l)
{
    __m256 a = _mm256_add_ps(_mm512_castps512_ps256(l), _mm512_extractf32x8_ps(l, 1));
    __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}

/* maxps takes its second operand unless the first is greater: a > b ? a : b. */
TG_INLINE float tg_fold_max(__m512 l)
{
    __m256 a = _mm256_max_ps(_mm512_castps512_ps256(l), _mm512_extractf32x8_ps(l, 1));
    __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
    __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
    return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

enum { TG_EXP_SIDE = 8 };

/* Contract 4 for n <= TG_EXP_SIDE registers, which take the same steps together: one after the
 * other they fill the scheduler with operations that wait for each other. Per register 15 cycles
 * one by one, 13 in fours, 11.5 in eights (10 multiply; Zen 4; a masked move would be one
 * more). A NaN passes the minimum (second operand), and converts to an exponent of 0. */
TG_INLINE void tg_exp_each(__m512 *x, int n)
{
    static const float poly[] = TG_EXP_POLY;
    __mmask16 is_kept[TG_EXP_SIDE];
    __m512i e[TG_EXP_SIDE];
    __m512 r[TG_EXP_SIDE], p[TG_EXP_SIDE];
    TG_UNROLL
    for (int i = 0; i < n; i++) {
        is_kept[i] = _mm512_cmp_ps_mask(x[i], _mm512_set1_ps(-87.0f), _CMP_NLT_UQ);
        r[i] = _mm512_min_ps(_mm512_set1_ps(88.0f), x[i]);
    }
    /* rintf by way of int: only -0 becomes +0, which no later step tells apart. */
    TG_UNROLL
    for (int i = 0; i < n; i++)
        e[i] = _mm512_cvtps_epi32(_mm512_mul_ps(r[i], _mm512_set1_ps(0x1.715476p0f)));
    TG_UNROLL
    for (int i = 0; i < n; i++)
        r[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(e[i]), _mm512_set1_ps(-0x1.62e4p-1f), r[i]);
    TG_UNROLL
    for (int i = 0; i < n; i++)
        r[i] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(e[i]), _mm512_set1_ps(-0x1.7f7d1cp-20f), r[i]);
    TG_UNROLL
    for (int i = 0; i < n; i++)
        p[i] = _mm512_set1_ps(poly[0]);
    TG_UNROLL
    for (size_t k = 1; k < TG_COUNT(poly); k++) {
        TG_UNROLL
        for (int i = 0; i < n; i++)
            p[i] = _mm512_fmadd_ps(p[i], r[i], _mm512_set1_ps(poly[k]));
    }
    TG_UNROLL
    for (int i = 0; i < n; i++) {
        e[i] = _mm512_slli_epi32(e[i], 23);
        e[i] = _mm512_maskz_add_epi32(is_kept[i], _mm512_castps_si512(p[i]), e[i]);
        x[i] = _mm512_castsi512_ps(e[i]);
    }
}

TG_INLINE __m512 tg_exp16(__m512 x)
{
    tg_exp_each(&x, 1);
    return x;
}

/* ---- 16 floats, by the names that avx2_attend.h knows them under */

typedef __m512 tg_v16;
typedef __mmask16 tg_m16;

/* `n` is how many lanes exist, from 1 on; absent ones load as 0 and are not stored. */
TG_INLINE tg_v16 tg_v16_load(const float *p, int64_t n)
{
    return n >= 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(tg_mask16(n), p);
}

TG_INLINE void tg_v16_store(float *p, int64_t n, tg_v16 v)
{
    if (n >= 16)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, tg_mask16(n), v);
}

/* As the avx2 tier has them for any n. */
TG_INLINE tg_v16 tg_v16_load_first(const float *p, int64_t n)
{
    return tg_v16_load(p, n);
}

TG_INLINE void tg_v16_store_first(float *p, int64_t n, tg_v16 v)
{
    tg_v16_store(p, n, v);
}

TG_INLINE tg_v16 tg_v16_load_f16(const uint16_t *p, int64_t n)
{
    if (n >= 16) return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(tg_mask16(n), p));
}

TG_INLINE tg_v16 tg_v16_set(float x)
{
    return _mm512_set1_ps(x);
}

TG_INLINE tg_v16 tg_v16_add(tg_v16 a, tg_v16 b)
{
    return _mm512_add_ps(a, b);
}

TG_INLINE tg_v16 tg_v16_sub(tg_v16 a, tg_v16 b)
{
    return _mm512_sub_ps(a, b);
}

TG_INLINE tg_v16 tg_v16_mul(tg_v16 a, tg_v16 b)
{
    return _mm512_mul_ps(a, b);
}

TG_INLINE tg_v16 tg_v16_div(tg_v16 a, tg_v16 b)
{
    return _mm512_div_ps(a, b);
}

TG_INLINE tg_v16 tg_v16_fma(tg_v16 a, tg_v16 b, tg_v16 c)
{
    return _mm512_fmadd_ps(a, b, c);
}

/* fma(*a, b, c). The load stands in the multiplication: a compiler would take it out to share it,
 * and broadcasts of their own beside the conversions of f16 cost the multiplications every seventh
 * cycle (Zen 4). */
TG_INLINE tg_v16 tg_v16_fma_one(const float *a, tg_v16 b, tg_v16 c)
{
    __asm__("vfmadd231ps %2%{1to16%}, %1, %0" : "+v"(c) : "v"(b), "m"(*a));
    return c;
}

TG_INLINE tg_v16 tg_v16_max(tg_v16 a, tg_v16 b) /* a > b ? a : b */
{
    return _mm512_max_ps(a, b);
}

/* The larger by its bits, as numbers without sign: a NaN, of numbers that are not negative. */
TG_INLINE tg_v16 tg_v16_max_bits(tg_v16 a, tg_v16 b)
{
    return _mm512_castsi512_ps(_mm512_max_epu32(_mm512_castps_si512(a), _mm512_castps_si512(b)));
}

TG_INLINE tg_v16 tg_v16_exp(tg_v16 x)
{
    return tg_exp16(x);
}

/* Of n <= 8 registers. */
TG_INLINE void tg_v16_exp_each(tg_v16 *x, int n)
{
    tg_exp_each(x, n);
}

TG_INLINE float tg_v16_fold_sum(tg_v16 x)
{
    return tg_fold_sum(x);
}

TG_INLINE float tg_v16_fold_max(tg_v16 x)
{
    return tg_fold_max(x);
}

/* Where the steps below leave the folds of registers 0 .. 7, in order. */
TG_INLINE __m512 tg_gather_folds(__m512 x)
{
    const __m512i at = _mm512_setr_epi32(0, 4, 8, 12, 2, 6, 10, 14, 0, 4, 8, 12, 2, 6, 10, 14);
    return _mm512_permutexvar_ps(at, x);
}

typedef enum tg_fold_kind { TG_FOLD_SUM, TG_FOLD_MAX, TG_FOLD_MAX_BITS } tg_fold_kind;

TG_INLINE __m512 tg_fold_pair(__m512 a, __m512 b, tg_fold_kind kind)
{
    if (kind == TG_FOLD_SUM) return _mm512_add_ps(a, b);
    return kind == TG_FOLD_MAX ? _mm512_max_ps(a, b) : tg_v16_max_bits(a, b);
}

/* The fold of each of 8 rows of 16, which take the same steps together; lanes 0 .. 7 = row. */
TG_INLINE tg_v16 tg_fold_each(const float *x, tg_fold_kind kind)
{
    __m512 h[4], q[2];
    for (int i = 0; i < 4; i++) {
        __m512 a = _mm512_loadu_ps(x + 32 * i), b = _mm512_loadu_ps(x + 32 * i + 16);
        h[i] =
            tg_fold_pair(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee), kind);
    }
    for (int i = 0; i < 2; i++) {
        __m512 a = h[2 * i], b = h[2 * i + 1];
        q[i] =
            tg_fold_pair(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd), kind);
    }
    __m512 c = tg_fold_pair(_mm512_shuffle_ps(q[0], q[1], 0x44),
                            _mm512_shuffle_ps(q[0], q[1], 0xee), kind);
    return tg_gather_folds(tg_fold_pair(c, _mm512_movehdup_ps(c), kind));
}

TG_INLINE tg_v16 tg_fold_rows(const float *x, int n, tg_fold_kind kind)
{
    __m512 low = tg_fold_each(x, kind);
    return n <= 8 ? low : _mm512_shuffle_f32x4(low, tg_fold_each(x + 128, kind), 0x44);
}

/* The folds of n <= 16 rows of 16; lane = row. All 16 can be read, and lanes from n on may hold
 * anything. */
TG_INLINE tg_v16 tg_v16_fold_each_max(const float *x, int n)
{
    return tg_fold_rows(x, n, TG_FOLD_MAX);
}

TG_INLINE tg_v16 tg_v16_fold_each_sum(const float *x, int n)
{
    return tg_fold_rows(x, n, TG_FOLD_SUM);
}

TG_INLINE tg_v16 tg_v16_fold_each_max_bits(const float *x, int n)
{
    return tg_fold_rows(x, n, TG_FOLD_MAX_BITS);
}

/* Lanes of the places [at, at + 16) that lie in first..last, all in [0, 64). */
TG_INLINE tg_m16 tg_m16_range(int32_t first, int32_t last, int at)
{
    uint64_t up = ~(uint64_t)0 << first, down = ~(uint64_t)0 >> (63 - last);
    return (tg_m16)((up & down) >> at);
}

TG_INLINE tg_v16 tg_v16_select(tg_m16 m, tg_v16 a, tg_v16 b) /* m ? a : b */
{
    return _mm512_mask_mov_ps(b, m, a);
}

TG_INLINE tg_m16 tg_m16_and(tg_m16 a, tg_m16 b)
{
    return a & b;
}

TG_INLINE tg_m16 tg_v16_is_finite(tg_v16 x)
{
    __m512i abs = _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32(0x7fffffff));
    return _mm512_cmplt_epi32_mask(abs, _mm512_set1_epi32(0x7f800000));
}

TG_INLINE tg_v16 tg_v16_and(tg_v16 a, tg_v16 b)
{
    return _mm512_and_ps(a, b);
}

/* The larger by the bits of |x|, as numbers without sign. */
TG_INLINE tg_v16 tg_v16_amax(tg_v16 a, tg_v16 b)
{
    __m512i abs = _mm512_set1_epi32(0x7fffffff);
    __m512i x = _mm512_and_si512(_mm512_castps_si512(a), abs);
    __m512i y = _mm512_and_si512(_mm512_castps_si512(b), abs);
    return _mm512_castsi512_ps(_mm512_max_epi32(x, y));
}

TG_INLINE uint32_t tg_v16_fold_amax(tg_v16 x)
{
    return (uint32_t)_mm512_reduce_max_epi32(_mm512_castps_si512(x));
}

/* rintf of 0 .. 255 as bytes. */
TG_INLINE void tg_v16_store_u8(uint8_t *p, tg_v16 x)
{
    __m128i b = _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(x));
    _mm_storeu_si128((__m128i *)(void *)p, b);
}

/* rintf as int16, of numbers that fit; n as in tg_v16_load. */
TG_INLINE void tg_v16_store_i16(int16_t *p, int64_t n, tg_v16 x)
{
    __m256i h = _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(x));
    if (n >= 16)
        _mm256_storeu_si256((__m256i *)(void *)p, h);
    else
        _mm256_mask_storeu_epi16(p, tg_mask16(n), h);
}

/* The same of 32, into memory of any type. */
TG_INLINE void tg_v16_store_two_i16(void *p, tg_v16 a, tg_v16 b)
{
    const __m512i low =
        _mm512_set_epi16(62, 60, 58, 56, 54, 52, 50, 48, 46, 44, 42, 40, 38, 36, 34, 32, 30, 28, 26,
                         24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
    __m512i x = _mm512_cvtps_epi32(a), y = _mm512_cvtps_epi32(b);
    _mm512_storeu_si512(p, _mm512_permutex2var_epi16(x, low, y));
}

/* The nearest bf16, as a float. */
TG_INLINE tg_v16 tg_v16_round_bf16(tg_v16 x)
{
    __m512i u = _mm512_castps_si512(x);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(_mm512_add_epi32(u, _mm512_set1_epi32(0x7fff)), odd);
    __mmask16 is_nan = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
    r = _mm512_mask_or_epi32(r, is_nan, u, _mm512_set1_epi32(0x400000));
    return _mm512_castsi512_ps(_mm512_and_si512(r, _mm512_set1_epi32(-0x10000)));
}

/* ---- 16 int32, or 64 bytes */

typedef __m512i tg_i16;

TG_INLINE tg_i16 tg_i16_load(const void *p, int64_t n)
{
    return n >= 16 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi32(tg_mask16(n), p);
}

TG_INLINE tg_i16 tg_i16_set(int32_t x)
{
    return _mm512_set1_epi32(x);
}

TG_INLINE tg_v16 tg_v16_from_i16(tg_i16 x)
{
    return _mm512_cvtepi32_ps(x);
}

/* Sums of four products of codes: from tg_i16_begin on, over all codes of q, whose sum it is told.
 * k holds code + 128. */
TG_INLINE tg_i16 tg_i16_begin(int32_t q_sum)
{
    return _mm512_set1_epi32(-128 * q_sum);
}

TG_INLINE tg_i16 tg_i16_dot_key(tg_i16 acc, tg_i16 k, tg_i16 q)
{
    return _mm512_dpbusd_epi32(acc, k, q);
}

/* Sums of two products of int16. Not by the intrinsic: gcc 12 copies its sums, and has no registers
 * for that where there are 24 (1.7 times as long). */
TG_INLINE tg_i16 tg_i16_dot_pair(tg_i16 acc, tg_i16 a, tg_i16 b)
{
    __asm__("vpdpwssd %2, %1, %0" : "+v"(acc) : "v"(a), "v"(b));
    return acc;
}

/* The same with the pair at a, of whatever type memory has there, in all lanes. */
typedef struct tg_pair_bytes {
    char bytes[4];
} tg_pair_bytes;

TG_INLINE tg_i16 tg_i16_dot_pair_one(tg_i16 acc, const void *a, tg_i16 b)
{
    const tg_pair_bytes *pair = a;
    __asm__("vpdpwssd %2%{1to16%}, %1, %0" : "+v"(acc) : "v"(b), "m"(*pair));
    return acc;
}

/* c unsigned, v signed. */
TG_INLINE tg_i16 tg_i16_dot_value(tg_i16 acc, tg_i16 c, tg_i16 v)
{
    return _mm512_dpbusd_epi32(acc, c, v);
}

#endif
