/* SPDX-License-Identifier: Apache-2.0
 * avx2_peak.c - the peak rates with 256-bit registers. */
#include "kernel/avx2.h"

enum { N_SUMS = 8 }; /* independent, to hide latencies */

static uint64_t add_lanes64(__m256i x)
{
    __m128i a = _mm_add_epi64(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return (uint64_t)_mm_cvtsi128_si64(a) + (uint64_t)_mm_extract_epi64(a, 1);
}

uint64_t tg_avx2_sum_words(const uint64_t *p, int64_t n)
{
    __m256i sums[N_SUMS];
    for (int j = 0; j < N_SUMS; j++)
        sums[j] = _mm256_setzero_si256();
    for (int64_t i = 0; i < n; i += 4 * N_SUMS)
        for (int j = 0; j < N_SUMS; j++)
            sums[j] = _mm256_add_epi64(
                sums[j], _mm256_load_si256((const __m256i *)(const void *)(p + i + 4 * j)));
    for (int j = 1; j < N_SUMS; j++)
        sums[0] = _mm256_add_epi64(sums[0], sums[j]);
    return add_lanes64(sums[0]);
}

/* The dots of RUN operands as the products of 4-bit codes have them, the cheapest here: products
 * with pairs added, int16 sums, and a product with ones that adds pairs once for all. u below 16
 * keeps the sums, of at most 2 * 15 * 128 each, within int16. */
enum { RUN = 8 };
_Static_assert(RUN * 2 * 15 * 128 <= INT16_MAX && TG_PEAK_BYTES % (32 * RUN) == 0,
               "a run of operands overflows, or does not end with the yard");

static inline __m256i multiply_run(const uint8_t *u, const __m256i right[2])
{
    __m256i sum = _mm256_setzero_si256();
    for (int j = 0; j < RUN; j++) {
        __m256i left = _mm256_loadu_si256((const __m256i *)(const void *)(u + 32 * j));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(left, right[j % 2]));
    }
    return _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
}

/* The products do not change from round to round, which the compiler must not see: it would take
 * them out of the loop. */
uint32_t tg_avx2_sum_products(const uint8_t *u, const int8_t *s, int64_t n_rounds)
{
    __m256i right[2], sums = _mm256_setzero_si256();
    for (int j = 0; j < 2; j++)
        right[j] = _mm256_loadu_si256((const __m256i *)(const void *)(s + 32 * j));
    for (int64_t r = 0; r < n_rounds; r++) {
        __asm__("" : "+x"(right[0]), "+x"(right[1]));
        for (int j = 0; j < TG_PEAK_BYTES; j += 32 * RUN)
            sums = _mm256_add_epi32(sums, multiply_run(u + j, right));
    }
    uint64_t both = add_lanes64(_mm256_and_si256(sums, _mm256_set1_epi64x(0xffffffff)));
    return (uint32_t)(both + add_lanes64(_mm256_srli_epi64(sums, 32)));
}
