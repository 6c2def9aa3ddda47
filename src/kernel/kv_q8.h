/* SPDX-License-Identifier: Apache-2.0
 * kv_q8.h - how queries, keys and values become codes (kernel_attend.h 12c), for every tier: the
 * compiler's vectors give the same bits, since no sum is reordered.
 *
 * Inline only: the tiers are compiled with other flags and may share source, never objects. */
#ifndef TG_KERNEL_KV_Q8_H
#define TG_KERNEL_KV_Q8_H

#include "format/dtype.h"
#include "kernel/kernel.h"

#include <math.h>
#include <string.h>

/* The Hadamard matrix of 32, unnormalised. */
TG_INLINE void tg_kv_turn(float y[TG_KV_GROUP], const float *x)
{
    float t[TG_KV_GROUP];
    memcpy(y, x, sizeof t);
    for (int h = 1; h < TG_KV_GROUP; h *= 2) {
        for (int i = 0; i < TG_KV_GROUP; i++)
            t[i] = i & h ? y[i - h] - y[i] : y[i] + y[i + h];
        memcpy(y, t, sizeof t);
    }
}

TG_INLINE uint32_t tg_kv_find_amax(const float *x, int32_t n)
{
    uint32_t top = 0;
    for (int32_t i = 0; i < n; i++) {
        uint32_t u = tg_f32_to_bits(x[i]) & 0x7fffffffu;
        top = u > top ? u : top;
    }
    return top;
}

/* Codes of n numbers of k or v with one f16 scale, which is returned. */
TG_INLINE uint16_t tg_kv_code(int8_t *code, const float *x, int32_t n)
{
    enum { NOT_A_NUMBER = 0x7e00, INFINITE = 0x7c00 };
    uint32_t top = tg_kv_find_amax(x, n);
    uint16_t scale = tg_f32_to_f16(tg_f32_from_bits(top) / 127.0f);
    if (top >= 0x7f800000u || scale >= INFINITE) scale = NOT_A_NUMBER;
    float inv = scale == 0 || scale == NOT_A_NUMBER ? 0 : 1.0f / tg_f16_to_f32(scale);
    for (int32_t i = 0; i < n; i++) {
        float v = inv == 0 ? 0 : rintf(x[i] * inv);
        v = v > 127.0f ? 127.0f : v;
        v = v < -127.0f ? -127.0f : v;
        code[i] = (int8_t)v;
    }
    return scale;
}

TG_INLINE void tg_kv_query_q8(float *out, const float *q, int32_t head_dim)
{
    int8_t *code = (int8_t *)out;
    int32_t n_groups = head_dim / TG_KV_GROUP;
    char *scales = (char *)out + head_dim, *sums = scales + 4 * n_groups;
    for (int32_t g = 0; g < n_groups; g++) {
        float y[TG_KV_GROUP];
        tg_kv_turn(y, q + TG_KV_GROUP * g);
        uint32_t top = tg_kv_find_amax(y, TG_KV_GROUP);
        float amax = tg_f32_from_bits(top), inv = 127.0f / amax, scale = amax / 127.0f;
        bool is_finite = top < 0x7f800000u, has_codes = is_finite && inv <= 0x1.fffffep127f;
        if (!has_codes) scale = is_finite ? 0 : amax;
        int32_t sum = 0;
        for (int32_t i = 0; i < TG_KV_GROUP; i++) {
            int8_t c = has_codes ? (int8_t)rintf(y[i] * inv) : 0;
            code[TG_KV_GROUP * g + i] = c;
            sum += c;
        }
        memcpy(scales + 4 * g, &scale, sizeof scale);
        memcpy(sums + 4 * g, &sum, sizeof sum);
    }
}

TG_INLINE void tg_kv_store_q8(void *k, void *v, int32_t slot, const float *key, const float *value,
                              int32_t head_dim)
{
    enum { ROW = 4 * TG_KV_PAGE_TOKENS, MAX_DIM = 512 };
    int32_t n_codes = head_dim * TG_KV_PAGE_TOKENS;
    uint8_t *to_k = (uint8_t *)k + 4 * slot;
    for (int32_t g = 0; g < head_dim / TG_KV_GROUP; g++) {
        float y[TG_KV_GROUP];
        int8_t code[TG_KV_GROUP];
        tg_kv_turn(y, key + TG_KV_GROUP * g);
        uint16_t scale = tg_kv_code(code, y, TG_KV_GROUP);
        for (int32_t i = 0; i < TG_KV_GROUP; i++)
            to_k[(TG_KV_GROUP * g + i) / 4 * ROW + i % 4] = (uint8_t)(code[i] + 128);
        memcpy((char *)k + n_codes + 2 * (g * TG_KV_PAGE_TOKENS + slot), &scale, sizeof scale);
    }
    int8_t code[MAX_DIM], *to_v = (int8_t *)v + slot / 4 * 4 * head_dim + slot % 4;
    uint16_t scale = tg_kv_code(code, value, head_dim);
    for (int32_t d = 0; d < head_dim; d++)
        to_v[4 * d] = code[d];
    memcpy((char *)v + n_codes + 2 * slot, &scale, sizeof scale);
}

#endif
