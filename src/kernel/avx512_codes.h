/* SPDX-License-Identifier: Apache-2.0
 * avx512_codes.h - reading quantized layouts, a tile's 16 rows a register.
 *
 * The layout is a constant wherever these are called, so that the compiler folds form.h away. */
#ifndef TG_KERNEL_AVX512_CODES_H
#define TG_KERNEL_AVX512_CODES_H

#include "kernel/avx512.h"
#include "kernel/form.h"

#include <string.h>

enum {
    TG_AVX512_OPERANDS = 8,         /* of 4 columns: one group */
    TG_AVX512_TOKENS = 8,           /* that share a pass over a tile */
    TG_AVX512_GEMM = TG_PAIR_TOKENS /* from so many on there are no sets of less than 5 */
};

/* avx512_gemm.c: TG_AVX512_GEMM tokens or more, of at most TG_AVX512_GEMM_COLS columns. */
enum { TG_AVX512_GEMM_COLS = 1 << 17 };
void tg_avx512_matmul_gemm(const tg_matmul *m, tg_layout l);

/* ---- weights and activations */

/* By a constant: -4, -2, 0, 2, 4 or 6 bits. */
TG_INLINE __m512i tg_shift_right(__m512i x, int n)
{
    switch (n) {
    case -4: return _mm512_slli_epi16(x, 4);
    case -2: return _mm512_slli_epi16(x, 2);
    case 2: return _mm512_srli_epi16(x, 2);
    case 4: return _mm512_srli_epi16(x, 4);
    case 6: return _mm512_srli_epi16(x, 6);
    default: return x;
    }
}

/* Operand v of group g (0, 1) of a part as unsigned bytes. */
TG_INLINE __m512i tg_load_operand(tg_layout l, const uint8_t *part, int g, int v)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    const __m512i low = _mm512_set1_epi8(15), pair = _mm512_set1_epi8(f->nibbles >= 0 ? 0x30 : 3);
    __m512i w = _mm512_setzero_si512();
    if (f->bytes >= 0)
        w = _mm512_loadu_si512(part + f->bytes + 64 * TG_AVX512_OPERANDS * g + 64 * v);
    if (f->nibbles >= 0) {
        __m512i line =
            _mm512_loadu_si512(part + f->nibbles + 32 * TG_AVX512_OPERANDS * g + 64 * (v / 2));
        w = _mm512_and_si512(v % 2 ? _mm512_srli_epi16(line, 4) : line, low);
    }
    if (f->bits >= 0) {
        uint64_t bits;
        memcpy(&bits, part + f->bits + 8 * TG_AVX512_OPERANDS * g + 8 * v, sizeof bits);
        w = _mm512_mask_add_epi8(w, (__mmask64)bits, w, _mm512_set1_epi8(16));
    }
    if (f->pairs >= 0) {
        __m512i line =
            _mm512_loadu_si512(part + f->pairs + 16 * TG_AVX512_OPERANDS * g + 64 * (v / 4));
        /* to bits 4..5, or 0..1 */
        __m512i moved = tg_shift_right(line, 2 * (v % 4) - (f->nibbles >= 0 ? 4 : 0));
        w = f->nibbles >= 0 ? _mm512_ternarylogic_epi32(moved, pair, w, 0xea) /* a&b|c */
                            : _mm512_and_si512(moved, pair);
    }
    return w;
}

TG_INLINE __m512 tg_load_f16(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

TG_INLINE __m512i tg_load_u8(const uint8_t *p)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
}

/* D of contract 6 for group g. */
TG_INLINE __m512 tg_load_d(tg_layout l, const uint8_t *head, const uint8_t *part, int g)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    if (l == TG_LAYOUT_Q8_F) return _mm512_loadu_ps(part + f->d + 64 * g);
    if (!f->is_k) return tg_load_f16(part + f->d + 32 * g);
    __m512 d = tg_load_f16(head);
    if (f->is_per16) return d;
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(tg_load_u8(part + f->sc + 16 * g)));
}

/* M, or -dmin where minima are per sixteenth. */
TG_INLINE __m512 tg_load_m(tg_layout l, const uint8_t *head, const uint8_t *part, int g)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    if (!f->is_k) return tg_load_f16(part + f->m + 32 * g);
    __m512 m = _mm512_xor_ps(tg_load_f16(head + 32), _mm512_set1_ps(-0.0f));
    if (f->is_per16) return m;
    return _mm512_mul_ps(m, _mm512_cvtepi32_ps(tg_load_u8(part + f->mn + 16 * g)));
}

/* The integer scale of sixteenth i of a part, as a float, and the integer minimum. */
TG_INLINE __m512 tg_load_sc(tg_layout l, const uint8_t *part, int i)
{
    const uint8_t *p = part + tg_layout_forms[l].sc + 16 * i;
    __m128i b = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm512_cvtepi32_ps(l == TG_LAYOUT_Q6_K ? _mm512_cvtepi8_epi32(b)
                                                  : _mm512_cvtepu8_epi32(b));
}

TG_INLINE __m512i tg_load_mn(tg_layout l, const uint8_t *part, int i)
{
    return tg_load_u8(part + tg_layout_forms[l].mn + 16 * i);
}

/* Four codes of one token beside every row. */
TG_INLINE __m512i tg_load_x(const int8_t *x)
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return _mm512_set1_epi32(four);
}

typedef int32_t __attribute__((may_alias, aligned(1))) tg_four;

/* sum + w times four codes of one token beside every row. In one instruction, which gcc makes two:
 * half as many then keep the processor's window, which looks as far ahead along the weights. */
TG_INLINE __m512i tg_add_products(__m512i sum, __m512i w, const int8_t *x)
{
    __asm__("vpdpbusd %2%{1to16%}, %1, %0"
            : "+v"(sum)
            : "v"(w), "m"(*(const tg_four *)(const void *)x));
    return sum;
}

/* ---- what follows the dot product (contract 8) */

typedef struct tg_target {
    const float *bias; /* of the tile's first row, or NULL */
    float *y;          /* token 0, the tile's first row */
    int64_t y_stride;
    __mmask16 rows;
    bool is_add;
} tg_target;

TG_INLINE tg_target tg_get_target(const tg_matmul *m, int32_t tile, int32_t token)
{
    int32_t row = tile * TG_TILE_ROWS;
    return (tg_target){
        .bias = m->bias ? m->bias + row : NULL,
        .y = m->y + token * m->y_stride + row,
        .y_stride = m->y_stride,
        .rows = m->n_rows > row ? tg_mask16(m->n_rows - row) : (__mmask16)0,
        .is_add = m->is_add,
    };
}

TG_INLINE void tg_store_rows(const tg_target *t, int32_t token, __m512 dot)
{
    float *y = t->y + token * t->y_stride;
    if (t->bias) dot = _mm512_add_ps(dot, _mm512_maskz_loadu_ps(t->rows, t->bias));
    if (t->is_add) dot = _mm512_add_ps(_mm512_maskz_loadu_ps(t->rows, y), dot);
    _mm512_mask_storeu_ps(y, t->rows, dot);
}

/* zero (a power of two) x code sum less. */
TG_INLINE __m512i tg_subtract_zero(tg_layout l, __m512i sum, __m512i codes)
{
    switch (tg_layout_forms[l].zero) {
    case 8: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 3));
    case 16: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 4));
    case 32: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 5));
    case 128: return _mm512_sub_epi32(sum, _mm512_slli_epi32(codes, 7));
    default: return sum;
    }
}

#endif
