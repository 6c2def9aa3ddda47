/* SPDX-License-Identifier: Apache-2.0
 * prequantized.h - weights that are quantized in a Hugging Face folder: GPTQ, AWQ, fp8, int8.
 *
 * Such a folder has for one matrix several tensors, named after it: codes, scales, zeros, the group
 * of each column. config.json's quantization_config says how they belong together. Here they become
 * one tensor again under the matrix's plain name, "...q_proj.weight", [outputs, inputs], whose rows
 * are made when they are read. Nothing is rounded: a value is scale (code - zero), in float32, and
 * its type is the smallest that holds all values of the matrix:
 *
 *   q4_0  codes less zeros lie in -8..7     and every 32 columns have one scale, exact in f16
 *   q5_0  in -16..15                        the same
 *   q8_0  in -128..127                      the same
 *   q8_f  in -128..127                      and every 32 columns have one scale
 *   f32   all else: fp8, columns of a group scattered (act-order), groups of no multiple of 32
 *
 *   method               codes            built
 *   gptq                 qweight          4 and 8 bits, any groups, act-order, formats v1 and v2
 *   awq                  qweight          4 bits, version gemm
 *   compressed-tensors   weight_packed    4 and 8 bits, groups, act-order, with and without zeros
 *                        weight           int8 and fp8: one scale, one a row, groups, blocks
 *   fp8, fbgemm_fp8      weight           one scale, one a row, blocks
 *
 * Activations are not rounded as the folder says (dynamic or static scales of inputs): they stay
 * as exact as the export says. Every other method is refused by its name. */
#ifndef TG_FORMAT_PREQUANTIZED_H
#define TG_FORMAT_PREQUANTIZED_H

#include "format/checkpoint.h"

typedef struct tg_prequantized tg_prequantized;

/* `about` is the value of quantization_config; both are borrowed until free. Every matrix is looked
 * at: a scale that is missing, a shape that does not fit, a group that is not there is an error
 * that names the tensor. */
TG_MUST_USE tg_status tg_prequantized_new(tg_prequantized **out, const tg_checkpoint *c,
                                          const json_t *about, tg_err *e);
void tg_prequantized_free(tg_prequantized *s); /* accepts NULL */

/* The matrix of this name, NULL when it is not quantized in the folder. */
const tg_tensor *tg_prequantized_find(const tg_prequantized *s, tg_str name);
/* The matrix whose codes the tensor of this name holds; NULL when it is none. */
const tg_tensor *tg_prequantized_find_codes(const tg_prequantized *s, tg_str name);
/* The name of a tensor that stands beside codes (scales, zeros, ...) without its last part:
 * "model.layers.0.mlp.up_proj." of "...up_proj.weight_scale". len 0 when it is none. */
tg_str tg_prequantized_find_stem(tg_str name);

#endif
