/* SPDX-License-Identifier: Apache-2.0
 * kernel_sample.h - an id from a row of logits. The numbers of the contract go on from kernel.h.
 *
 * 13. sample: what tg_sample_row_fn says below. */
#ifndef TG_KERNEL_KERNEL_SAMPLE_H
#define TG_KERNEL_KERNEL_SAMPLE_H

#include "format/sampling.h"

/* Chooses an id from logits[0, n_vocab), which it changes by the adjustments adjust[adjust_at ..
 * adjust_at + n_adjust): l = l + bias; if seen and repeat_penalty is on, l = l > 0 ? l / penalty
 * : l * penalty; if n_completion > 0, l = l - presence, then l = l - frequency *
 * (float)n_completion; each operation rounded. Returns -1 if then any logit is NaN or +inf, or all
 * are -inf.
 *   Greedy (temperature 0): the lowest id of the largest logit.
 *   Else each id has p = exp((logit - max) / temperature) (contract 4), and a dropped id p = +0:
 *   top_k keeps the first k in the order logit descending, id ascending; min_p keeps p >= min_p
 *   (the best has p = 1); top_p keeps, in the same order, the shortest run whose running float
 *   sum is >= top_p * mass: at least one id, all when none reaches it. Then u in [0, 1) draws
 *   from what is kept.
 *   "mass" of p: per block of 64 ids the sum16 of p (place = id mod 64, ids beyond n_vocab +0);
 *   the running float sum of the blocks, ascending, from +0. The draw: t = u * mass; the first
 *   block whose running sum is > t; in it r = the running sum before the block, then r = r + p
 *   by ascending id; the first id with r > t and p > 0, else the block's last id with p > 0. So
 *   no sum depends on a sort, no id with p = 0 is ever drawn, and nothing is sorted but what
 *   top_k or top_p may keep.
 * u comes from Philox4x32-10 with key = (seed low, seed high) and counter = (position,
 * sample_index, 0, 0): the first word >> 8, times 2^-24. scratch:
 * tg_sample_scratch_bytes(n_vocab), 64-aligned. */
typedef int32_t tg_sample_row_fn(float *logits, int32_t n_vocab, const tg_sample_params *p,
                                 const tg_sample_adjust *adjust, void *scratch);
size_t tg_sample_scratch_bytes(int32_t n_vocab);

#endif
