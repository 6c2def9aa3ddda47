/* SPDX-License-Identifier: Apache-2.0
 * quantize.h - floats to blocks of 32 codes with a scale, or scale and minimum, by least squared
 * error.
 *
 * For the checkpoints that come as floats: a block read from a file is never quantized again.
 *
 * `w` are the weights of the errors' squares, one for each number, all above 0 and within 2^30 of
 * each other; NULL: all alike. */
#ifndef TG_COMPILE_QUANTIZE_H
#define TG_COMPILE_QUANTIZE_H

#include "base/base.h"

/* x[0..n) of 1 to 32 numbers as d code + m with codes 0 to `top` (3 to 255; q4_1: 15, q5_1: 31),
 * *d and *m being f16: a scale and minimum whose squared error, with all roundings in it, is near
 * the least there is and never more than that of ggml's quantize_row_q4_1_ref (the range in equal
 * steps). q[n..32) = 0. False when a number is not finite or f16 cannot hold scale or minimum. */
bool tg_quantize_affine(uint8_t q[32], uint16_t *d, uint16_t *m, const float *x, const float *w,
                        int n, int top);

/* The same without a minimum: x[0..32) as d (code - 8) with codes 0 to 15 (q4_0), never further off
 * than ggml's quantize_row_q4_0_ref. *d may be negative. */
bool tg_quantize_q4_0(uint8_t q[32], uint16_t *d, const float *x, const float *w);

#endif
