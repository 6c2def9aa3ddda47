/* SPDX-License-Identifier: Apache-2.0
 * ref_peak.c - the peak rates, plainly. */
#include "kernel/ref.h"

uint64_t tg_ref_sum_words(const uint64_t *p, int64_t n)
{
    uint64_t sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += p[i];
    return sum;
}

uint32_t tg_ref_sum_products(const uint8_t *u, const int8_t *s, int64_t n_rounds)
{
    uint32_t sum = 0;
    for (int64_t r = 0; r < n_rounds; r++)
        for (int32_t i = 0; i < TG_PEAK_BYTES; i++)
            sum += (uint32_t)((int32_t)u[i] * s[i % 64]);
    return sum;
}
