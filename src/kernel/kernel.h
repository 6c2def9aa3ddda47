/* SPDX-License-Identifier: Apache-2.0
 * kernel.h - the numerical contract, and the table of functions that fulfil it.
 *
 * Kernels are pure functions on pointers: no allocation, no threads, no errors, no graph. ref.c is
 * the definition, scalar C in the order of operations written here; every other tier gives its bits
 * exactly, for any input, and is checked against it. The contract is what makes an answer
 * independent of batch, bucket, chunking, thread count, tier, and of whether a token was generated
 * or verified:
 *
 *  1. float32, round to nearest even, denormals kept; a product-sum is one fmaf where this page
 *     says fma, and never otherwise. No libm but sqrtf, fmaf, rintf (which are exact); division is
 *     IEEE. No reciprocal estimates.
 *  2. A result of one row (token, output, head) never depends on what else is in the call.
 *  3. "sum16": element i goes to lane i mod 16; a lane adds its elements in ascending order,
 *     starting from +0 (with fma(x, x, lane) for squares); then lanes fold in halves: l[i] + l[i+8]
 *     for i < 8, l[i] + l[i+4], l[i] + l[i+2], l[0] + l[1]. "max16" likewise from -inf: a lane
 *     takes x > lane ? x : lane (so NaN never enters), the folds take l[i] > l[i+8] ? l[i] :
 *     l[i+8], ...
 *  4. exp(x): x > 88 is taken as 88; x < -87 gives +0 (also -inf); NaN gives NaN. Else n = rintf(x
 *     * 0x1.715476p0f); r = fma(n, -0x1.62e4p-1f, x); r = fma(n, -0x1.7f7d1cp-20f, r); p by Horner
 *     with fma over TG_EXP_POLY (highest first), giving exp(r); the result is p with n added to its
 *     exponent field. exp(+-0) is exactly 1. Relative error below 2^-22.
 *
 * The rest of the contract stands beside the types of each family, in the same numbers:
 *
 *   kernel_quantize.h      5         activations become codes
 *   kernel_matmul.h        6-8       products, rows of the embedding
 *   kernel_elementwise.h   9-11, 14, 15  norms, rope, gated activation, softcap
 *   kernel_attend.h        12        attention over a block, pages of keys and values
 *   kernel_sample.h        13        choosing an id
 *
 * Pointers: weights and a8 codes are 64-byte aligned; rows of floats may have any 4-byte alignment.
 * Nothing outside the stated ranges is read or written. Outputs never overlap inputs unless it says
 * "in place". Lengths may be 0 unless it says otherwise. */
#ifndef TG_KERNEL_KERNEL_H
#define TG_KERNEL_KERNEL_H

#include "kernel/cpu.h"
#include "kernel/kernel_attend.h"
#include "kernel/kernel_elementwise.h"
#include "kernel/kernel_matmul.h"
#include "kernel/kernel_quantize.h"
#include "kernel/kernel_sample.h"

/* Coefficients of r^6 .. r^0 for exp(r) on |r| <= ln(2)/2. */
#define TG_EXP_POLY                                                                                \
    {                                                                                              \
        0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f, 0x1p-1f, 1.0f, 1.0f       \
    }

enum { TG_PEAK_BYTES = 768 };

/* What a tier offers. Filled tier by tier: later ones overwrite only what they do better. */
typedef struct tg_kernels {
    tg_quantize_fn *quantize;
    tg_matmul_fn *matmul[TG_LAYOUT_COUNT];
    tg_embed_fn *embed[TG_LAYOUT_COUNT];
    tg_rms_norm_fn *rms_norm;
    tg_layer_norm_fn *layer_norm;
    tg_scale_fn *scale;
    tg_softcap_fn *softcap;
    tg_rope_fn *rope;
    tg_glu_fn *glu[TG_ACT_COUNT];
    tg_add_fn *add;
    tg_kv_store_fn *kv_store[TG_KV_TYPE_COUNT];
    tg_kv_query_fn *kv_query[TG_KV_TYPE_COUNT]; /* NULL: queries stay as they are */
    tg_attend_fn *attend[TG_KV_TYPE_COUNT];
    tg_attend_finish_fn *attend_finish;
    tg_sample_row_fn *sample_row;
    /* Peak rates: how fast this processor reads and multiplies, by loops that do nothing else. What
     * they return proves that they did it.
     * The wrapping sum of n words, a multiple of 64, at a 64-byte boundary. */
    uint64_t (*sum_words)(const uint64_t *p, int64_t n);
    /* n_rounds times the sum of u[i] s[i mod 64] over u [TG_PEAK_BYTES], modulo 2^32; u[i] < 16. */
    uint32_t (*sum_products)(const uint8_t *u, const int8_t *s, int64_t n_rounds);
} tg_kernels;

void tg_kernels_fill(tg_kernels *k, tg_cpu_tier tier);

/* One per tier, each the only exported symbol of its file. */
void tg_kernels_fill_ref(tg_kernels *k);
void tg_kernels_fill_avx2(tg_kernels *k);
void tg_kernels_fill_avx512(tg_kernels *k);

/* Sets round-to-nearest and no flushing of denormals on this thread; returns what to give back to
 * tg_fp_restore. */
uint32_t tg_fp_begin(void);
void tg_fp_restore(uint32_t saved);

#endif
