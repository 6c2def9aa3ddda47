/* SPDX-License-Identifier: Apache-2.0 */
#include "model/block.h"

tg_value tg_block_norm(tg_build *b, const tg_hparams *h, tg_value x, tg_weight_role w,
                       tg_weight_role bias)
{
    if (h->is_layer_norm) return tg_build_layer_norm(b, x, w, bias, h->norm_eps);
    return tg_build_rms_norm(b, x, w, h->norm_eps);
}

/* Sliding layers have a table of their own in some models. */
static tg_value rotate(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x)
{
    bool is_second = h->is_sliding[layer] && h->ropes[1].rotary_dim > 0;
    if (h->has_no_rope[layer]) return x;
    return tg_build_rope(b, x, is_second ? TG_W_ROPE_1 : TG_W_ROPE_0, h->head_dim,
                         h->ropes[is_second].rotary_dim);
}

tg_value tg_block_attention(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x)
{
    tg_value q = tg_build_matmul(b, x, TG_W_Q, TG_W_Q_BIAS); /* [T, H head_dim] */
    tg_value k = tg_build_matmul(b, x, TG_W_K, TG_W_K_BIAS); /* [T, K head_dim] */
    tg_value v = tg_build_matmul(b, x, TG_W_V, TG_W_V_BIAS);

    int32_t norm_dim = h->is_qk_norm_whole ? 0 : h->head_dim;
    q = tg_build_head_norm(b, q, TG_W_Q_NORM, norm_dim, h->norm_eps);
    k = tg_build_head_norm(b, k, TG_W_K_NORM, norm_dim, h->norm_eps);
    q = rotate(b, h, layer, q);
    k = rotate(b, h, layer, k);
    tg_build_kv_write(b, k, v, h->n_kv_heads, h->head_dim);

    tg_attention attention = {
        .n_heads = h->n_heads,
        .n_kv_heads = h->n_kv_heads,
        .head_dim = h->head_dim,
        .scale = h->attn_scale,
        .softcap = h->attn_softcap,
        .window = h->is_sliding[layer] ? h->window : 0,
    };
    tg_value y = tg_build_attention(b, q, &attention); /* [T, H head_dim] */
    return tg_build_matmul(b, y, TG_W_O, TG_W_O_BIAS);
}

tg_value tg_block_glu(tg_build *b, const tg_hparams *h, tg_value x)
{
    tg_value gate = tg_build_matmul(b, x, TG_W_GATE, TG_W_GATE_BIAS); /* [T, F] */
    tg_value up = tg_build_matmul(b, x, TG_W_UP, TG_W_UP_BIAS);
    return tg_build_matmul(b, tg_build_glu(b, gate, up, h->act), TG_W_DOWN, TG_W_DOWN_BIAS);
}

/* ---- layers */

static tg_value add(tg_build *b, const tg_hparams *h, tg_value x, tg_value y)
{
    return tg_build_add(b, x, tg_build_scale(b, y, h->residual_scale));
}

tg_value tg_layer_pre_norm(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x)
{
    tg_value y = tg_block_norm(b, h, x, TG_W_ATTN_NORM, TG_W_ATTN_NORM_BIAS);
    x = add(b, h, x, tg_block_attention(b, h, layer, y));
    y = tg_block_norm(b, h, x, TG_W_FFN_NORM, TG_W_FFN_NORM_BIAS);
    return add(b, h, x, tg_block_glu(b, h, y));
}

tg_value tg_layer_parallel(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x)
{
    tg_value y = tg_block_norm(b, h, x, TG_W_ATTN_NORM, TG_W_ATTN_NORM_BIAS);
    x = add(b, h, x, tg_block_attention(b, h, layer, y));
    return add(b, h, x, tg_block_glu(b, h, y));
}

tg_value tg_layer_post_norm(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x)
{
    tg_value y = tg_block_attention(b, h, layer, x);
    x = add(b, h, x, tg_block_norm(b, h, y, TG_W_ATTN_POST_NORM, TG_W_COUNT));
    y = tg_block_glu(b, h, x);
    return add(b, h, x, tg_block_norm(b, h, y, TG_W_FFN_POST_NORM, TG_W_COUNT));
}

tg_value tg_layer_sandwich_norm(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x)
{
    tg_value y = tg_block_norm(b, h, x, TG_W_ATTN_NORM, TG_W_COUNT);
    y = tg_block_attention(b, h, layer, y);
    x = add(b, h, x, tg_block_norm(b, h, y, TG_W_ATTN_POST_NORM, TG_W_COUNT));
    y = tg_block_glu(b, h, tg_block_norm(b, h, x, TG_W_FFN_NORM, TG_W_COUNT));
    return add(b, h, x, tg_block_norm(b, h, y, TG_W_FFN_POST_NORM, TG_W_COUNT));
}

void tg_block_decoder(tg_build *b, const tg_hparams *h, tg_layer_fn *layer)
{
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), h->embed_scale); /* [T, D] */
    if (h->is_parallel) layer = tg_layer_parallel;
    for (int32_t l = 0; l < h->n_layers; l++)
        x = tg_build_layer_end(b, layer(b, h, l, tg_build_layer_begin(b, l, x)));
    x = tg_block_norm(b, h, x, TG_W_OUT_NORM, TG_W_OUT_NORM_BIAS);
    tg_build_output(b, x, h->is_tied ? TG_W_EMBED : TG_W_HEAD, h->logit_scale, h->logit_softcap);
}
