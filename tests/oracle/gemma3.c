/* SPDX-License-Identifier: Apache-2.0 gemma3.c - Gemma 3 in double: x += norm(attention(norm(x)));
 * x += norm(feed_forward(norm(x))), with a norm on every head of q and k, and two kinds of
 * layers. */
#include "oracle.h"

#include <math.h>
#include <string.h>

/* GGUF files hold 1 + w, safetensors w. */
static double norm_plus(const oracle *o)
{
    return o->is_gguf ? 0 : 1;
}

static bool is_sliding(const oracle *o, int32_t l)
{
    const json_t *types = o->is_gguf ? NULL : oracle_json(o, "layer_types");
    int32_t pattern =
        (int32_t)oracle_number(o, "sliding_window_pattern", "attention.sliding_window_pattern", 6);
    if (types)
        return strcmp(json_string_value(json_array_get(types, (size_t)l)), "sliding_attention") ==
               0;
    return (l + 1) % pattern != 0;
}

/* Global layers: theta 10^6, maybe stretched linearly; sliding layers: theta 10^4. */
static void open_ropes(oracle *o)
{
    static const char *const kinds[] = {"full_attention", "sliding_attention"};
    static const char *const hf[] = {"rope_theta", "rope_local_base_freq"};
    static const char *const gguf[] = {"rope.freq_base", "rope.freq_base_swa"};
    static const double thetas[] = {1e6, 1e4};
    for (int which = 0; which < 2; which++) {
        const json_t *rope = o->is_gguf ? NULL : oracle_rope(o, kinds[which]);
        const json_t *theta_in = json_object_get(rope, "rope_theta");
        const json_t *factor_in = json_object_get(rope, "factor");
        double theta = oracle_number(o, hf[which], gguf[which], thetas[which]);
        double factor = which == 0 ? oracle_number(o, NULL, "rope.scaling.factor", 1) : 1;
        if (theta_in) theta = json_number_value(theta_in);
        if (factor_in) factor = json_number_value(factor_in);
        o->rope_factor[which] = 1;
        for (int32_t i = 0; i < o->head_dim / 2; i++)
            o->freq[which][i] = pow(theta, -2.0 * i / o->head_dim) / factor;
    }
}

static void add_attention(const oracle *o, double *x, int32_t n, int32_t l)
{
#define FIND(hf, gguf) oracle_find(o, "model.layers.#." hf, "blk.#." gguf, l)
    int32_t d = o->head_dim, which = o->window[l] > 0;
    double plus = norm_plus(o), *y = oracle_new((int64_t)n * o->width);
    oracle_norm(y, x, n, o->width, FIND("input_layernorm.weight", "attn_norm.weight"), plus,
                o->eps);
    double *q = oracle_matmul(y, n, FIND("self_attn.q_proj.weight", "attn_q.weight"), NULL);
    double *k = oracle_matmul(y, n, FIND("self_attn.k_proj.weight", "attn_k.weight"), NULL);
    double *v = oracle_matmul(y, n, FIND("self_attn.v_proj.weight", "attn_v.weight"), NULL);
    oracle_norm(q, q, (int64_t)n * o->n_heads, d,
                FIND("self_attn.q_norm.weight", "attn_q_norm.weight"), plus, o->eps);
    oracle_norm(k, k, (int64_t)n * o->n_kv_heads, d,
                FIND("self_attn.k_norm.weight", "attn_k_norm.weight"), plus, o->eps);
    oracle_rotate(o, q, n, o->n_heads, which);
    oracle_rotate(o, k, n, o->n_kv_heads, which);
    double *a = oracle_attend(o, q, k, v, n, o->window[l]);
    double *out = oracle_matmul(a, n, FIND("self_attn.o_proj.weight", "attn_output.weight"), NULL);
    oracle_norm(out, out, n, o->width,
                FIND("post_attention_layernorm.weight", "post_attention_norm.weight"), plus,
                o->eps);
    oracle_add(x, out, (int64_t)n * o->width);
    double *all[] = {y, q, k, v, a, out};
    for (size_t i = 0; i < TG_COUNT(all); i++)
        oracle_free(all[i]);
}

static void add_feed_forward(const oracle *o, double *x, int32_t n, int32_t l)
{
    double plus = norm_plus(o), *y = oracle_new((int64_t)n * o->width);
    oracle_norm(y, x, n, o->width, FIND("pre_feedforward_layernorm.weight", "ffn_norm.weight"),
                plus, o->eps);
    double *gate = oracle_matmul(y, n, FIND("mlp.gate_proj.weight", "ffn_gate.weight"), NULL);
    double *up = oracle_matmul(y, n, FIND("mlp.up_proj.weight", "ffn_up.weight"), NULL);
    for (int64_t i = 0; i < (int64_t)n * o->ffn; i++)
        gate[i] = oracle_gelu_tanh(gate[i]) * up[i];
    double *out = oracle_matmul(gate, n, FIND("mlp.down_proj.weight", "ffn_down.weight"), NULL);
    oracle_norm(out, out, n, o->width,
                FIND("post_feedforward_layernorm.weight", "post_ffw_norm.weight"), plus, o->eps);
    oracle_add(x, out, (int64_t)n * o->width);
    double *all[] = {y, gate, up, out};
    for (size_t i = 0; i < TG_COUNT(all); i++)
        oracle_free(all[i]);
}

static void run(const oracle *o, const int32_t *ids, int32_t n, double *logits)
{
    const tg_tensor *embed = oracle_find(o, "model.embed_tokens.weight", "token_embd.weight", 0);
    double *x = oracle_embed(o, embed, ids, n);
    for (int32_t l = 0; l < o->n_layers; l++) {
        add_attention(o, x, n, l);
        add_feed_forward(o, x, n, l);
    }
    oracle_norm(x, x, n, o->width, oracle_find(o, "model.norm.weight", "output_norm.weight", 0),
                norm_plus(o), o->eps);
    double *y = oracle_matmul(x, n, embed, NULL);
    memcpy(logits, y, (size_t)n * (size_t)o->n_vocab * sizeof *y);
    oracle_free(y);
    oracle_free(x);
}

void oracle_open_gemma3(oracle *o)
{
    oracle_read_sizes(o);
    o->run = run;
    o->embed_scale = (double)(float)sqrt(o->width); /* a float32 constant in the reference */
    o->attn_scale = 1 / sqrt(oracle_number(o, "query_pre_attn_scalar", NULL, o->head_dim));
    int32_t window = (int32_t)oracle_number(o, "sliding_window", "attention.sliding_window", 0);
    for (int32_t l = 0; l < o->n_layers; l++)
        o->window[l] = is_sliding(o, l) ? window : 0;
    open_ropes(o);
}
