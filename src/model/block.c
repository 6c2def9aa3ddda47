/* SPDX-License-Identifier: Apache-2.0 */
#include "model/block.h"

tg_value tg_block_attention(tg_build *b, const tg_hparams *h, tg_value x,
                            const tg_attention_block *a)
{
    tg_value q = tg_build_matmul(b, x, TG_W_Q, TG_W_Q_BIAS); /* [T, H head_dim] */
    tg_value k = tg_build_matmul(b, x, TG_W_K, TG_W_K_BIAS); /* [T, K head_dim] */
    tg_value v = tg_build_matmul(b, x, TG_W_V, TG_W_V_BIAS);

    q = tg_build_head_norm(b, q, TG_W_Q_NORM, h->head_dim, h->norm_eps);
    k = tg_build_head_norm(b, k, TG_W_K_NORM, h->head_dim, h->norm_eps);
    q = tg_build_rope(b, q, a->rope, h->head_dim, a->rotary_dim);
    k = tg_build_rope(b, k, a->rope, h->head_dim, a->rotary_dim);
    tg_build_kv_write(b, k, v, h->n_kv_heads, h->head_dim);

    tg_attention attention = {
        .n_heads = h->n_heads,
        .n_kv_heads = h->n_kv_heads,
        .head_dim = h->head_dim,
        .scale = h->attn_scale,
        .window = a->window,
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

void tg_block_output(tg_build *b, const tg_hparams *h, tg_value x)
{
    x = tg_build_rms_norm(b, x, TG_W_OUT_NORM, h->norm_eps);
    tg_build_output(b, x, h->is_tied ? TG_W_EMBED : TG_W_HEAD, 1, 0);
}
