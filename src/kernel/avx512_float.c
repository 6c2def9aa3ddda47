/* SPDX-License-Identifier: Apache-2.0
 * avx512_float.c - products of float weights: one chain per output, many outputs side by side.
 *
 * A chain takes a step every 4 cycles, so that a tile of 16 outputs alone would leave the unit
 * idle: tiles and tokens are combined until 8 or more chains run. */
#include "kernel/avx512.h"

#include <string.h>

enum { MAX_TILES = 4, MAX_TOKENS = 6 };

/* The 16 weights of column c; c is even or odd as `odd` says (bf16 lies in pairs). */
TG_INLINE __m512 load_column(tg_layout l, const uint8_t *tile, int64_t c)
{
    if (l == TG_LAYOUT_F32) return _mm512_loadu_ps(tile + 64 * c);
    if (l == TG_LAYOUT_F16)
        return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)(tile + 32 * c)));
    __m512i pair = _mm512_loadu_si512(tile + 64 * (c / 2));
    __m512i high = _mm512_set1_epi32((int32_t)0xffff0000u);
    return _mm512_castsi512_ps(c % 2 ? _mm512_and_si512(pair, high) : _mm512_slli_epi32(pair, 16));
}

/* n_tiles tiles from `tile` on with n tokens from `token` on; absent tokens repeat the last one. */
TG_INLINE void multiply(const tg_matmul *m, tg_layout l, int32_t tile, int n_tiles, int32_t token,
                        int n)
{
    const uint8_t *w[MAX_TILES];
    const float *x[MAX_TOKENS];
    __m512 acc[MAX_TILES][MAX_TOKENS];
    for (int i = 0; i < n_tiles; i++) {
        int32_t at = TG_MIN(tile + i, m->n_tiles - 1);
        w[i] = m->w + (size_t)at * m->tile_stride;
    }
    for (int j = 0; j < n; j++)
        x[j] = m->x + TG_MIN(token + j, m->n_tokens - 1) * m->x_stride;
    for (int i = 0; i < n_tiles; i++)
        for (int j = 0; j < n; j++)
            acc[i][j] = _mm512_setzero_ps();
    for (int64_t c = 0; c < m->n_cols; c++) {
        __m512 v[MAX_TILES];
        for (int i = 0; i < n_tiles; i++)
            v[i] = load_column(l, w[i], c);
        for (int j = 0; j < n; j++) {
            __m512 b = _mm512_set1_ps(x[j][c]);
            for (int i = 0; i < n_tiles; i++)
                acc[i][j] = _mm512_fmadd_ps(v[i], b, acc[i][j]);
        }
    }
    for (int i = 0; i < n_tiles && tile + i < m->n_tiles; i++) {
        int32_t row = (tile + i) * TG_TILE_ROWS;
        if (row >= m->n_rows) break;
        __mmask16 rows = tg_mask16(m->n_rows - row);
        for (int j = 0; j < n && token + j < m->n_tokens; j++) {
            float *y = m->y + (token + j) * m->y_stride + row;
            __m512 dot = acc[i][j];
            if (m->bias) dot = _mm512_add_ps(dot, _mm512_maskz_loadu_ps(rows, m->bias + row));
            if (m->is_add) dot = _mm512_add_ps(_mm512_maskz_loadu_ps(rows, y), dot);
            _mm512_mask_storeu_ps(y, rows, dot);
        }
    }
}

TG_INLINE void matmul(const tg_matmul *m, tg_layout l)
{
    int32_t wide = m->n_tokens <= 2 ? MAX_TILES : 2;
    for (int32_t tile = 0; tile < m->n_tiles; tile += wide) {
        for (int32_t t = 0; t < m->n_tokens; t += MAX_TOKENS) {
            int32_t left = m->n_tokens - t;
            if (m->n_tokens == 1)
                multiply(m, l, tile, MAX_TILES, t, 1);
            else if (m->n_tokens == 2)
                multiply(m, l, tile, MAX_TILES, t, 2);
            else if (left <= 2)
                multiply(m, l, tile, 2, t, 2);
            else if (left <= 4)
                multiply(m, l, tile, 2, t, 4);
            else
                multiply(m, l, tile, 2, t, MAX_TOKENS);
        }
    }
}

void tg_avx512_matmul_f32(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_F32);
}

void tg_avx512_matmul_f16(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_F16);
}

void tg_avx512_matmul_bf16(const tg_matmul *m)
{
    matmul(m, TG_LAYOUT_BF16);
}
