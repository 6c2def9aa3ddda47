/* SPDX-License-Identifier: Apache-2.0
 * avx2_float.c - products of float weights: one chain per output. Tiles and tokens are combined
 * until 8 or more chains run, for a chain takes a step every 4 cycles. */
#include "kernel/avx2_codes.h"

enum { MAX_TOKENS = 4 };

/* 8 weights of column c; c is even or odd as it says (bf16 lies in pairs). */
TG_INLINE __m256 load_column(tg_layout l, const uint8_t *tile, int64_t c, int half)
{
    if (l == TG_LAYOUT_F32)
        return _mm256_loadu_ps((const float *)(const void *)(tile + 64 * c) + 8 * half);
    if (l == TG_LAYOUT_F16) return tg_load_f16x8(tile + 32 * c + 16 * half);
    __m256i pair = tg_load32(tile + 64 * (c / 2) + 32 * half);
    __m256i high = _mm256_set1_epi32((int32_t)0xffff0000u);
    return _mm256_castsi256_ps(c % 2 ? _mm256_and_si256(pair, high) : _mm256_slli_epi32(pair, 16));
}

/* n_tiles tiles with n tokens; absent ones repeat the last. */
TG_INLINE void multiply_float(const tg_matmul *m, tg_layout l, int32_t tile, int n_tiles,
                              int32_t token, int n)
{
    const uint8_t *w[4];
    const float *x[MAX_TOKENS];
    __m256 acc[4][MAX_TOKENS][TG_AVX2_HALVES];
    for (int i = 0; i < n_tiles; i++)
        w[i] = m->w + (size_t)TG_MIN(tile + i, m->n_tiles - 1) * m->tile_stride;
    for (int j = 0; j < n; j++)
        x[j] = m->x + TG_MIN(token + j, m->n_tokens - 1) * m->x_stride;
    for (int i = 0; i < n_tiles; i++)
        for (int j = 0; j < n; j++)
            acc[i][j][0] = acc[i][j][1] = _mm256_setzero_ps();
    for (int64_t c = 0; c < m->n_cols; c++) {
        for (int i = 0; i < n_tiles; i++) {
            __m256 lo = load_column(l, w[i], c, 0), hi = load_column(l, w[i], c, 1);
            for (int j = 0; j < n; j++) {
                __m256 b = _mm256_set1_ps(x[j][c]);
                acc[i][j][0] = _mm256_fmadd_ps(lo, b, acc[i][j][0]);
                acc[i][j][1] = _mm256_fmadd_ps(hi, b, acc[i][j][1]);
            }
        }
    }
    for (int i = 0; i < n_tiles && tile + i < m->n_tiles; i++)
        for (int j = 0; j < n && token + j < m->n_tokens; j++) {
            tg_store_rows(m, tile + i, 0, token + j, acc[i][j][0]);
            tg_store_rows(m, tile + i, 1, token + j, acc[i][j][1]);
        }
}

TG_INLINE void matmul_float(const tg_matmul *m, tg_layout l)
{
    int32_t step = m->n_tokens == 1 ? 4 : m->n_tokens == 2 ? 2 : 1;
    for (int32_t tile = 0; tile < m->n_tiles; tile += step) {
        if (m->n_tokens == 1) multiply_float(m, l, tile, 4, 0, 1);
        if (m->n_tokens == 2) multiply_float(m, l, tile, 2, 0, 2);
        for (int32_t t = 0; t < m->n_tokens && m->n_tokens > 2; t += MAX_TOKENS)
            multiply_float(m, l, tile, 1, t, MAX_TOKENS);
    }
}

void tg_avx2_matmul_f32(const tg_matmul *m)
{
    matmul_float(m, TG_LAYOUT_F32);
}

void tg_avx2_matmul_f16(const tg_matmul *m)
{
    matmul_float(m, TG_LAYOUT_F16);
}

void tg_avx2_matmul_bf16(const tg_matmul *m)
{
    matmul_float(m, TG_LAYOUT_BF16);
}
