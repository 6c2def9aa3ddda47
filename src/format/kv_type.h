/* SPDX-License-Identifier: Apache-2.0
 * kv_type.h - how keys and values lie in a page of the KV cache: what compiler, runtime and kernels
 * agree on. */
#ifndef TG_FORMAT_KV_TYPE_H
#define TG_FORMAT_KV_TYPE_H

enum { TG_KV_PAGE_TOKENS = 64 }; /* positions of a page = keys of an attention block */

/* How K and V of one page, one layer and one KV head lie, two halves of equal size:
 *
 *   f32, f16   K [head_dim][64 keys], V [64 keys][head_dim] of float or f16
 *   bf16       K [head_dim / 2][64 keys][2 dims], V [64 keys / 2][head_dim][2 keys] of bf16
 *   q8         K [head_dim / 4][64 keys][4 dims] of code + 128 in a byte, then f16 scales
 *              [head_dim / 32][64 keys]; V [64 keys / 4][head_dim][4 keys] of int8, then f16 scales
 *              [64 keys]; head_dim is a multiple of 32, each half has 68 head_dim bytes
 *   q16        K [head_dim / 2][64 keys][2 dims] of int16, then float scales [head_dim / 64,
 *              rounded up][64 keys]; V float scales [64 keys], which are wanted before the codes,
 *              then [64 keys / 2][head_dim][2 keys] of int16, and nothing up to the size of K */
typedef enum tg_kv_type {
    TG_KV_F32,
    TG_KV_F16,
    TG_KV_BF16,
    TG_KV_Q8,
    TG_KV_Q16,
    TG_KV_TYPE_COUNT
} tg_kv_type;

#endif
