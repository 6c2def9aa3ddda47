/* SPDX-License-Identifier: Apache-2.0
 * heads.c - queries, keys and values head by head: norms, RoPE and storing to KV pages. */
#include "device/step.h"

#include <string.h>

static const float *get_rope_row(const tg_step_view *v, const tg_instr *x, int32_t slot,
                                 int32_t token)
{
    const float *table = tg_step_vector(v, x, slot, 0);
    return table ? table + (int64_t)v->tokens.rope_rows[token] * x->attrs.rotary_dim : NULL;
}

/* Norm and rotation of one head in place. */
static void rotate_head(const tg_step_view *v, float *head, const float *w, const tg_attrs *a,
                        const float *rope)
{
    if (w) v->step->kernels->rms_norm(head, head, w, a->head_dim, a->eps);
    if (rope) v->step->kernels->rope(head, rope, rope + a->rotary_dim / 2, a->rotary_dim);
}

static void store_kv(const tg_step_view *v, int32_t layer, int32_t token, int32_t kv_head,
                     const float *key, const float *value, int32_t head_dim)
{
    int32_t position = v->tokens.positions[token];
    int32_t group = v->step->program->layers[layer].kv_group;
    int32_t page =
        tg_step_page_id(v, group, v->tokens.token_rows[token], position / TG_KV_PAGE_TOKENS);
    char *values, *keys = tg_step_page(v, layer, page, kv_head, &values);
    v->step->kernels->kv_store[v->step->program->kv_type](
        keys, values, position % TG_KV_PAGE_TOKENS, key, value, head_dim);
}

void tg_step_finish_heads(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const tg_attrs *a = &x->attrs;
    const float *q_norm = tg_step_vector(v, x, TG_SLOT_QKV_Q_NORM, layer);
    const float *k_norm = tg_step_vector(v, x, TG_SLOT_QKV_K_NORM, layer);
    int32_t n_heads = a->n_heads + a->n_kv_heads;
    int64_t begin, end, q_stride, kv_width = (int64_t)a->n_kv_heads * a->head_dim;
    float *q = tg_step_value(v, x->out, &q_stride);
    tg_step_share(v, (int64_t)v->tokens.n * n_heads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        tg_step_prefetch(v);
        int32_t t = (int32_t)(i / n_heads), h = (int32_t)(i % n_heads);
        const float *rope = get_rope_row(v, x, TG_SLOT_QKV_ROPE, t);
        if (h < a->n_heads) {
            rotate_head(v, q + t * q_stride + (int64_t)h * a->head_dim, q_norm, a, rope);
            continue;
        }
        float *keys = v->scratch->products.keys_values + t * 2 * kv_width,
              *values = keys + kv_width;
        int64_t at = (int64_t)(h - a->n_heads) * a->head_dim;
        rotate_head(v, keys + at, k_norm, a, rope);
        store_kv(v, layer, t, h - a->n_heads, keys + at, values + at, a->head_dim);
    }
}

void tg_step_rope(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(v, x->in[0], &in_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    int32_t width = v->step->plan->values[x->out].width;
    tg_step_share(v, v->tokens.n, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = out + t * out_stride;
        if (out != in) memcpy(y, in + t * in_stride, (size_t)width * sizeof *y);
        const float *rope = get_rope_row(v, x, 0, (int32_t)t);
        for (int32_t at = 0; at < width; at += x->attrs.head_dim)
            rotate_head(v, y + at, NULL, &x->attrs, rope);
    }
}

void tg_step_kv_write(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    int64_t begin, end, key_stride, value_stride;
    const float *keys = tg_step_value(v, x->in[0], &key_stride);
    const float *values = tg_step_value(v, x->in[1], &value_stride);
    tg_step_share(v, v->tokens.n, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; h < x->attrs.n_kv_heads; h++) {
            int64_t at = (int64_t)h * x->attrs.head_dim;
            store_kv(v, layer, (int32_t)t, h, keys + t * key_stride + at,
                     values + t * value_stride + at, x->attrs.head_dim);
        }
}
