/* SPDX-License-Identifier: Apache-2.0
 * toy.h - a model small enough to print: 2 heads of 8, 1 KV head, width 16, ffn 24, 40 ids. */
#ifndef TG_TESTS_TOY_H
#define TG_TESTS_TOY_H

#include "ir/graph.h"

enum {
    TOY_WIDTH = 16,
    TOY_HEADS = 2,
    TOY_KV_HEADS = 1,
    TOY_HEAD_DIM = 8,
    TOY_FFN = 24,
    TOY_VOCAB = 40,
    TOY_LENGTH = 130,
    TOY_MAX_LAYERS = 8
};

typedef struct toy {
    int32_t n_layers;
    bool is_gemma; /* head norms, norms after the blocks, sliding layers but every third */
    bool has_bias; /* q, k and v have one */
    bool is_tied;
    tg_weight_shape shapes[TG_W_COUNT * TOY_MAX_LAYERS]; /* [TG_W_COUNT][n_layers] */
} toy;

static inline void toy_set(toy *t, tg_weight_role role, int64_t rows, int64_t cols)
{
    for (int32_t l = 0; l < t->n_layers; l++)
        t->shapes[(int32_t)role * t->n_layers + l] = (tg_weight_shape){true, rows, cols};
}

static inline void toy_shapes(toy *t)
{
    int64_t q = TOY_HEADS * TOY_HEAD_DIM, k = TOY_KV_HEADS * TOY_HEAD_DIM;
    toy_set(t, TG_W_EMBED, TOY_VOCAB, TOY_WIDTH);
    toy_set(t, TG_W_OUT_NORM, TOY_WIDTH, 1);
    if (!t->is_tied) toy_set(t, TG_W_HEAD, TOY_VOCAB, TOY_WIDTH);
    toy_set(t, TG_W_ATTN_NORM, TOY_WIDTH, 1);
    toy_set(t, TG_W_Q, q, TOY_WIDTH);
    toy_set(t, TG_W_K, k, TOY_WIDTH);
    toy_set(t, TG_W_V, k, TOY_WIDTH);
    toy_set(t, TG_W_O, TOY_WIDTH, q);
    toy_set(t, TG_W_FFN_NORM, TOY_WIDTH, 1);
    toy_set(t, TG_W_GATE, TOY_FFN, TOY_WIDTH);
    toy_set(t, TG_W_UP, TOY_FFN, TOY_WIDTH);
    toy_set(t, TG_W_DOWN, TOY_WIDTH, TOY_FFN);
    toy_set(t, TG_W_ROPE_0, TOY_LENGTH, TOY_HEAD_DIM);
    if (t->has_bias) {
        toy_set(t, TG_W_Q_BIAS, q, 1);
        toy_set(t, TG_W_K_BIAS, k, 1);
        toy_set(t, TG_W_V_BIAS, k, 1);
    }
    if (!t->is_gemma) return;
    toy_set(t, TG_W_ROPE_1, TOY_LENGTH, TOY_HEAD_DIM);
    toy_set(t, TG_W_Q_NORM, TOY_HEAD_DIM, 1);
    toy_set(t, TG_W_K_NORM, TOY_HEAD_DIM, 1);
    toy_set(t, TG_W_ATTN_POST_NORM, TOY_WIDTH, 1);
    toy_set(t, TG_W_FFN_POST_NORM, TOY_WIDTH, 1);
}

static inline bool toy_is_sliding(const toy *t, int32_t layer)
{
    return t->is_gemma && layer % 3 != 2;
}

static inline tg_value toy_norm(tg_build *b, tg_value x, tg_weight_role w)
{
    return tg_build_rms_norm(b, x, w, 1e-5f);
}

static inline tg_value toy_layer(const toy *t, tg_build *b, int32_t layer, tg_value x)
{
    bool is_sliding = toy_is_sliding(t, layer);
    tg_weight_role rope = is_sliding ? TG_W_ROPE_1 : TG_W_ROPE_0;
    tg_value n = toy_norm(b, x, TG_W_ATTN_NORM);
    tg_value q = tg_build_matmul(b, n, TG_W_Q, TG_W_Q_BIAS);
    tg_value k = tg_build_matmul(b, n, TG_W_K, TG_W_K_BIAS);
    tg_value v = tg_build_matmul(b, n, TG_W_V, TG_W_V_BIAS);
    q = tg_build_head_norm(b, q, TG_W_Q_NORM, TOY_HEAD_DIM, 1e-5f);
    k = tg_build_head_norm(b, k, TG_W_K_NORM, TOY_HEAD_DIM, 1e-5f);
    q = tg_build_rope(b, q, rope, TOY_HEAD_DIM, TOY_HEAD_DIM);
    k = tg_build_rope(b, k, rope, TOY_HEAD_DIM, TOY_HEAD_DIM);
    tg_build_kv_write(b, k, v, TOY_KV_HEADS, TOY_HEAD_DIM);
    tg_value a = tg_build_attention(b, q,
                                    &(tg_attention){.n_heads = TOY_HEADS,
                                                    .n_kv_heads = TOY_KV_HEADS,
                                                    .head_dim = TOY_HEAD_DIM,
                                                    .scale = 0.25f,
                                                    .window = is_sliding ? 64 : 0});
    tg_value y = tg_build_matmul(b, a, TG_W_O, TG_W_COUNT);
    if (t->is_gemma) y = toy_norm(b, y, TG_W_ATTN_POST_NORM);
    x = tg_build_add(b, x, y);
    n = toy_norm(b, x, TG_W_FFN_NORM);
    tg_value gate = tg_build_matmul(b, n, TG_W_GATE, TG_W_COUNT);
    tg_value up = tg_build_matmul(b, n, TG_W_UP, TG_W_COUNT);
    y = tg_build_matmul(b, tg_build_glu(b, gate, up, t->is_gemma ? 1 : 0), TG_W_DOWN, TG_W_COUNT);
    if (t->is_gemma) y = toy_norm(b, y, TG_W_FFN_POST_NORM);
    return tg_build_add(b, x, y);
}

/* The graph as a model file would write it. */
static inline tg_status toy_build(toy *t, tg_graph **out, tg_err *e)
{
    tg_build *b;
    toy_shapes(t);
    tg_status s = tg_build_new(&b, t->shapes, t->n_layers, e);
    if (s != TG_OK) return s;
    tg_value x = tg_build_embed(b, TG_W_EMBED, tg_build_tokens(b), 1.0f);
    for (int32_t l = 0; l < t->n_layers; l++) {
        x = tg_build_layer_begin(b, l, x);
        x = tg_build_layer_end(b, toy_layer(t, b, l, x));
    }
    tg_build_output(b, toy_norm(b, x, TG_W_OUT_NORM), t->is_tied ? TG_W_EMBED : TG_W_HEAD, 1, 0);
    return tg_build_finish(b, out, e);
}

#endif
