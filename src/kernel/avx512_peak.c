/* SPDX-License-Identifier: Apache-2.0
 * avx512_peak.c - the peak rates with 512-bit registers. */
#include "kernel/avx512.h"

enum { N_SUMS = 8, N_DOTS = TG_PEAK_BYTES / 64 }; /* independent, to hide a latency of 4-5 cycles */

uint64_t tg_avx512_sum_words(const uint64_t *p, int64_t n)
{
    __m512i sums[N_SUMS];
    for (int j = 0; j < N_SUMS; j++)
        sums[j] = _mm512_setzero_si512();
    for (int64_t i = 0; i < n; i += 8 * N_SUMS)
        for (int j = 0; j < N_SUMS; j++)
            sums[j] = _mm512_add_epi64(sums[j], _mm512_load_si512(p + i + 8 * j));
    for (int j = 1; j < N_SUMS; j++)
        sums[0] = _mm512_add_epi64(sums[0], sums[j]);
    uint64_t lanes[8], sum = 0; /* the reduction of <immintrin.h> adds signed numbers */
    _mm512_storeu_si512(lanes, sums[0]);
    for (int i = 0; i < 8; i++)
        sum += lanes[i];
    return sum;
}

/* All operands stay in registers: nothing but vpdpbusd is in the loop. */
uint32_t tg_avx512_sum_products(const uint8_t *u, const int8_t *s, int64_t n_rounds)
{
    __m512i sums[N_DOTS], left[N_DOTS], right = _mm512_loadu_si512(s);
    for (int j = 0; j < N_DOTS; j++) {
        sums[j] = _mm512_setzero_si512();
        left[j] = _mm512_loadu_si512(u + 64 * j);
    }
    for (int64_t r = 0; r < n_rounds; r++)
        for (int j = 0; j < N_DOTS; j++)
            sums[j] = _mm512_dpbusd_epi32(sums[j], left[j], right);
    for (int j = 1; j < N_DOTS; j++)
        sums[0] = _mm512_add_epi32(sums[0], sums[j]);
    uint32_t lanes[16], sum = 0;
    _mm512_storeu_si512(lanes, sums[0]);
    for (int i = 0; i < 16; i++)
        sum += lanes[i];
    return sum;
}
