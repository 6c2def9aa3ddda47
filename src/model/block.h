/* SPDX-License-Identifier: Apache-2.0
 * block.h - pieces of layers that several architectures share.
 *
 * A block takes a struct, so that a call site names its choices and a field it does not name is
 * off. Weights that a checkpoint lacks (biases, head norms) drop out in the builder. */
#ifndef TG_MODEL_BLOCK_H
#define TG_MODEL_BLOCK_H

#include "model/model.h"

/* Grouped-query attention with rotary positions: q, k, v with their biases, a norm over each head
 * of q and k, rotation, cache, scores, output matrix. */
typedef struct tg_attention_block {
    tg_weight_role rope; /* table: TG_W_ROPE_0 or TG_W_ROPE_1 */
    int32_t rotary_dim;
    int32_t window; /* keys seen, itself included; 0: all */
} tg_attention_block;

/* x [T, D] -> [T, D] */
tg_value tg_block_attention(tg_build *b, const tg_hparams *h, tg_value x,
                            const tg_attention_block *a);

/* Gated feed-forward: down(act(gate x) * up x). x [T, D] -> [T, D] */
tg_value tg_block_glu(tg_build *b, const tg_hparams *h, tg_value x);

/* Final norm, wanted rows, head: the end of a decoder, x [T, D]. */
void tg_block_output(tg_build *b, const tg_hparams *h, tg_value x);

#endif
