/* SPDX-License-Identifier: Apache-2.0
 * block.h - pieces of models that several architectures share.
 *
 * A difference that is a number is a hyperparameter: a scale of 1, a window of 0 or a bias that the
 * checkpoint lacks leaves no trace in the graph. A difference in structure is a function.
 */
#ifndef TG_MODEL_BLOCK_H
#define TG_MODEL_BLOCK_H

#include "model/model.h"

/* The model's kind of norm; bias: TG_W_COUNT for none. x [T, D] -> [T, D] */
tg_value tg_block_norm(tg_build *b, const tg_hparams *h, tg_value x, tg_weight_role w,
                       tg_weight_role bias);

/* Grouped-query attention: q, k, v with their biases, norms of q and k, rotation, cache, scores,
 * output matrix. x [T, D] -> [T, D] */
tg_value tg_block_attention(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x);

/* Gated feed-forward: down(act(gate x) * up x). x [T, D] -> [T, D] */
tg_value tg_block_glu(tg_build *b, const tg_hparams *h, tg_value x);

/* ---- layers */

/* x + attention(norm x), then x + glu(norm x) */
tg_layer_fn tg_layer_pre_norm;
/* x + attention(norm x) + glu(norm x), of one norm */
tg_layer_fn tg_layer_parallel;
/* x + norm(attention(x)), then x + norm(glu(x)) */
tg_layer_fn tg_layer_post_norm;
/* x + norm(attention(norm x)), then x + norm(glu(norm x)) */
tg_layer_fn tg_layer_sandwich_norm;

/* A whole decoder: embedding, layers, last norm, head. `layer` is the architecture's kind; models
 * whose config asks for parallel blocks (is_parallel) have tg_layer_parallel instead. */
void tg_block_decoder(tg_build *b, const tg_hparams *h, tg_layer_fn *layer);

#endif
