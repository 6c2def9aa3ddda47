/* SPDX-License-Identifier: Apache-2.0
 * avx2_codes.h - reading quantized layouts, 8 rows (half a tile) a register.
 *
 * The layout is a constant wherever these are called, so that the compiler folds form.h away. */
#ifndef TG_KERNEL_AVX2_CODES_H
#define TG_KERNEL_AVX2_CODES_H

#include "kernel/avx2.h"
#include "kernel/form.h"

#include <string.h>

enum { TG_AVX2_OPERANDS = 8, TG_AVX2_HALVES = 2 };

/* A sum that is to be in a register here: gcc would reorder integer sums, and keep all products of
 * a group on the stack. */
#define TG_PIN(sum) __asm__("" : "+x"(sum))

#if defined(__AVXVNNI__)
/* acc plus, in every lane, four unsigned bytes times four signed ones: exact. */
TG_INLINE __m256i tg_dot4(__m256i acc, __m256i u, __m256i s)
{
    return _mm256_dpbusd_avx_epi32(acc, u, s);
}
#endif

/* ---- what follows the dot product (contract 8) */

/* Rows 8 half .. 8 half + 7 of a tile for one token. */
TG_INLINE void tg_store_rows(const tg_matmul *m, int32_t tile, int half, int32_t token, __m256 dot)
{
    int32_t row = tile * TG_TILE_ROWS + 8 * half, n = m->n_rows - row;
    if (n <= 0) return;
    float *y = m->y + token * m->y_stride + row;
    if (m->bias) dot = _mm256_add_ps(dot, tg_load8(m->bias + row, n));
    if (m->is_add) dot = _mm256_add_ps(tg_load8(y, n), dot);
    tg_store8(y, n, dot);
}

/* ---- activations */

/* The second plane of group g of a row, NULL where the group is narrow. */
TG_INLINE const int8_t *tg_a8_low(const tg_a8 *row, int64_t g)
{
    return row->outliers && row->outliers[g] >= 0 ? row->lo + TG_GROUP_COLS * row->outliers[g]
                                                  : NULL;
}

/* Four bytes in every lane. */
TG_INLINE __m256i tg_spread4(const void *p)
{
    int32_t four;
    memcpy(&four, p, sizeof four);
    return _mm256_set1_epi32(four);
}

/* ---- codes */

TG_INLINE __m256i tg_load32(const void *p)
{
    return _mm256_loadu_si256((const __m256i *)p);
}

/* 16 in every byte whose bit is set. */
TG_INLINE __m256i tg_spread_bits(const uint8_t *p)
{
    const __m256i which =
        _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201u);
    __m256i b = _mm256_and_si256(_mm256_shuffle_epi8(tg_spread4(p), which), bit);
    return _mm256_and_si256(_mm256_cmpeq_epi8(b, bit), _mm256_set1_epi8(16));
}

/* By a constant: -4, -2, 0, 2, 4 or 6 bits. */
TG_INLINE __m256i tg_shift_right(__m256i x, int n)
{
    switch (n) {
    case -4: return _mm256_slli_epi16(x, 4);
    case -2: return _mm256_slli_epi16(x, 2);
    case 2: return _mm256_srli_epi16(x, 2);
    case 4: return _mm256_srli_epi16(x, 4);
    case 6: return _mm256_srli_epi16(x, 6);
    default: return x;
    }
}

/* Operand v (0..7) of group g of a part, rows 8 half .. 8 half + 7, as unsigned bytes. */
TG_INLINE __m256i tg_load_operand(tg_layout l, const uint8_t *part, int g, int v, int half)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    const __m256i low = _mm256_set1_epi8(15), pair = _mm256_set1_epi8(f->nibbles >= 0 ? 0x30 : 3);
    const uint8_t *p = part + 32 * half;
    __m256i w = _mm256_setzero_si256();
    if (f->bytes >= 0) return tg_load32(p + f->bytes + 512 * g + 64 * v);
    if (f->nibbles >= 0) {
        __m256i line = tg_load32(p + f->nibbles + 256 * g + 64 * (v / 2));
        w = _mm256_and_si256(v % 2 ? _mm256_srli_epi16(line, 4) : line, low);
    }
    if (f->bits >= 0)
        w = _mm256_or_si256(w, tg_spread_bits(part + f->bits + 64 * g + 8 * v + 4 * half));
    if (f->pairs >= 0) {
        __m256i line = tg_load32(p + f->pairs + 128 * g + 64 * (v / 4));
        line = tg_shift_right(line, 2 * (v % 4) - (f->nibbles >= 0 ? 4 : 0));
        w = _mm256_or_si256(w, _mm256_and_si256(line, pair));
    }
    return w;
}

/* ---- scales */

TG_INLINE __m128i tg_load_bytes8(const uint8_t *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}

TG_INLINE __m256 tg_load_u8(const uint8_t *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(tg_load_bytes8(p)));
}

/* D, and M (or -dmin where minima are per sixteenth), of contract 6. */
TG_INLINE __m256 tg_load_d(tg_layout l, const uint8_t *head, const uint8_t *part, int g, int half)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    int at = 16 * g + 8 * half;
    if (l == TG_LAYOUT_Q8_F)
        return _mm256_loadu_ps((const float *)(const void *)(part + f->d) + at);
    if (!f->is_k) return tg_load_f16x8(part + f->d + 2 * at);
    __m256 d = tg_load_f16x8(head + 16 * half);
    return f->is_per16 ? d : _mm256_mul_ps(d, tg_load_u8(part + f->sc + at));
}

TG_INLINE __m256 tg_load_m(tg_layout l, const uint8_t *head, const uint8_t *part, int g, int half)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    int at = 16 * g + 8 * half;
    if (!f->is_k) return tg_load_f16x8(part + f->m + 2 * at);
    __m256 m = _mm256_xor_ps(tg_load_f16x8(head + 32 + 16 * half), _mm256_set1_ps(-0.0f));
    return f->is_per16 ? m : _mm256_mul_ps(m, tg_load_u8(part + f->mn + at));
}

/* Integer scales, or minima, of the sixteenths s0 and s1 of group g as pairs of int16. */
TG_INLINE __m256i tg_load_pairs(tg_layout l, const uint8_t *piece, int g, int half, int s0, int s1)
{
    __m128i a = tg_load_bytes8(piece + 16 * (2 * g + s0) + 8 * half);
    __m128i b = tg_load_bytes8(piece + 16 * (2 * g + s1) + 8 * half);
    __m128i both = _mm_unpacklo_epi8(a, b);
    return l == TG_LAYOUT_Q6_K ? _mm256_cvtepi8_epi16(both) : _mm256_cvtepu8_epi16(both);
}

/* The first, or second, of pairs as int32. */
TG_INLINE __m256i tg_get_first(__m256i pairs)
{
    return _mm256_srai_epi32(_mm256_slli_epi32(pairs, 16), 16);
}

TG_INLINE __m256i tg_get_second(__m256i pairs)
{
    return _mm256_srai_epi32(pairs, 16);
}

/* ---- steps of the chains that are the same for few and many tokens */

/* Two planes: each sixteenth is a step of its own (contract 6). */
TG_INLINE __m256 tg_step_outlier16(__m256i first, __m256i second, __m256i sc, __m256 ds, __m256 acc)
{
    __m256 f = _mm256_mul_ps(_mm256_cvtepi32_ps(first), _mm256_cvtepi32_ps(tg_get_first(sc)));
    __m256 s = _mm256_mul_ps(_mm256_cvtepi32_ps(second), _mm256_cvtepi32_ps(tg_get_second(sc)));
    return _mm256_fmadd_ps(s, ds, _mm256_fmadd_ps(f, ds, acc));
}

/* The minimum of two planes, whose sums are beyond int16. */
TG_INLINE __m256 tg_min_outlier16(__m256i mn, int32_t first, int32_t second, __m256 ms, __m256 min)
{
    __m256i i = _mm256_mullo_epi32(tg_get_first(mn), _mm256_set1_epi32(first));
    i = _mm256_add_epi32(i, _mm256_mullo_epi32(tg_get_second(mn), _mm256_set1_epi32(second)));
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(i), ms, min);
}

#endif
