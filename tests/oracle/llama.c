/* SPDX-License-Identifier: Apache-2.0
 * llama.c - the Llama family in double: x += attention(norm(x)); x += feed_forward(norm(x)). */
#include "oracle.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static double get(const json_t *object, const char *key, double absent)
{
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : absent;
}

/* YaRN (Peng et al. 2023): dimensions that turn often keep their frequency, those that turn rarely
 * have it divided, between is a ramp; scores grow by a factor. */
static void scale_yarn(oracle *o, const json_t *rope, double theta, double original)
{
    int32_t half = o->head_dim / 2, d = o->head_dim;
    double factor = get(rope, "factor", 1);
    double low = d * log(original / (get(rope, "beta_fast", 32) * 2 * pi)) / (2 * log(theta));
    double high = d * log(original / (get(rope, "beta_slow", 1) * 2 * pi)) / (2 * log(theta));
    if (!json_is_false(json_object_get(rope, "truncate"))) {
        low = floor(low);
        high = ceil(high);
    }
    low = fmax(low, 0);
    high = fmin(high, d - 1);
    for (int32_t i = 0; i < half; i++) {
        double ramp = fmin(fmax((i - low) / (high - low), 0), 1);
        o->freq[0][i] = o->freq[0][i] / factor * ramp + o->freq[0][i] * (1 - ramp);
    }
    o->rope_factor[0] = get(rope, "attention_factor", 0.1 * log(factor) + 1);
}

/* Llama 3.1: long waves are stretched, short ones kept, blended between. */
static void scale_llama3(oracle *o, const json_t *rope, double original)
{
    double factor = get(rope, "factor", 8), low = get(rope, "low_freq_factor", 1);
    double high = get(rope, "high_freq_factor", 4);
    for (int32_t i = 0; i < o->head_dim / 2; i++) {
        double f = o->freq[0][i], turns = original * f / (2 * pi);
        if (turns < low)
            f /= factor;
        else if (turns <= high) {
            double smooth = (turns - low) / (high - low);
            f = (1 - smooth) * f / factor + smooth * f;
        }
        o->freq[0][i] = f;
    }
}

static void scale_longrope(oracle *o, const json_t *rope, double original, double trained,
                           int32_t length)
{
    const json_t *list = json_object_get(rope, length > original ? "long_factor" : "short_factor");
    double factor = get(rope, "factor", trained / original);
    for (int32_t i = 0; i < o->head_dim / 2; i++)
        o->freq[0][i] /= json_number_value(json_array_get(list, (size_t)i));
    o->rope_factor[0] =
        get(rope, "attention_factor", factor > 1 ? sqrt(1 + log(factor) / log(original)) : 1);
}

/* GGUF keeps Llama 3's scaling as divisors. */
static void divide_by_tensor(oracle *o)
{
    const tg_tensor *t = oracle_find(o, NULL, "rope_freqs.weight", 0);
    float divisors[ORACLE_MAX_ROTARY / 2];
    if (!t) return;
    tg_dtype_unpack(t->dtype, t->data, divisors, o->head_dim / 2);
    for (int32_t i = 0; i < o->head_dim / 2; i++)
        o->freq[0][i] /= (double)divisors[i];
}

static void open_rope(oracle *o, int32_t length)
{
    const json_t *rope = o->is_gguf ? NULL : oracle_rope(o, NULL);
    const json_t *name = json_object_get(rope, "rope_type");
    if (!name) name = json_object_get(rope, "type");
    const char *kind = json_is_string(name) ? json_string_value(name) : "default";
    double trained = oracle_number(o, "max_position_embeddings", "context_length", 2048);
    double original = get(rope, "original_max_position_embeddings", trained);
    double theta = get(rope, "rope_theta", oracle_number(o, "rope_theta", "rope.freq_base", 10000));
    int32_t d = o->head_dim;

    if (strcmp(kind, "dynamic") == 0) {
        double factor = get(rope, "factor", 1), n = fmax(length, trained);
        theta *= pow(factor * n / trained - (factor - 1), d / (d - 2.0));
    }
    o->rope_factor[0] = 1;
    for (int32_t i = 0; i < d / 2; i++)
        o->freq[0][i] = pow(theta, -2.0 * i / d);
    if (strcmp(kind, "linear") == 0)
        for (int32_t i = 0; i < d / 2; i++)
            o->freq[0][i] /= get(rope, "factor", 1);
    if (strcmp(kind, "yarn") == 0) scale_yarn(o, rope, theta, original);
    if (strcmp(kind, "llama3") == 0) scale_llama3(o, rope, original);
    if (strcmp(kind, "longrope") == 0) scale_longrope(o, rope, original, trained, length);
    if (o->is_gguf) divide_by_tensor(o);
}

static void add_attention(const oracle *o, double *x, int32_t n, int32_t l)
{
#define FIND(hf, gguf) oracle_find(o, "model.layers.#." hf, "blk.#." gguf, l)
    double *y = oracle_new((int64_t)n * o->width);
    oracle_norm(y, x, n, o->width, FIND("input_layernorm.weight", "attn_norm.weight"), 0, o->eps);
    double *q = oracle_matmul(y, n, FIND("self_attn.q_proj.weight", "attn_q.weight"),
                              FIND("self_attn.q_proj.bias", "attn_q.bias"));
    double *k = oracle_matmul(y, n, FIND("self_attn.k_proj.weight", "attn_k.weight"),
                              FIND("self_attn.k_proj.bias", "attn_k.bias"));
    double *v = oracle_matmul(y, n, FIND("self_attn.v_proj.weight", "attn_v.weight"),
                              FIND("self_attn.v_proj.bias", "attn_v.bias"));
    oracle_rotate(o, q, n, o->n_heads, 0);
    oracle_rotate(o, k, n, o->n_kv_heads, 0);
    double *a = oracle_attend(o, q, k, v, n, o->window[l]);
    double *out = oracle_matmul(a, n, FIND("self_attn.o_proj.weight", "attn_output.weight"),
                                FIND("self_attn.o_proj.bias", "attn_output.bias"));
    oracle_add(x, out, (int64_t)n * o->width);
    double *all[] = {y, q, k, v, a, out};
    for (size_t i = 0; i < TG_COUNT(all); i++)
        oracle_free(all[i]);
}

static void add_feed_forward(const oracle *o, double *x, int32_t n, int32_t l)
{
    double *y = oracle_new((int64_t)n * o->width);
    oracle_norm(y, x, n, o->width, FIND("post_attention_layernorm.weight", "ffn_norm.weight"), 0,
                o->eps);
    double *gate = oracle_matmul(y, n, FIND("mlp.gate_proj.weight", "ffn_gate.weight"),
                                 FIND("mlp.gate_proj.bias", "ffn_gate.bias"));
    double *up = oracle_matmul(y, n, FIND("mlp.up_proj.weight", "ffn_up.weight"),
                               FIND("mlp.up_proj.bias", "ffn_up.bias"));
    for (int64_t i = 0; i < (int64_t)n * o->ffn; i++)
        gate[i] = oracle_silu(gate[i]) * up[i];
    double *out = oracle_matmul(gate, n, FIND("mlp.down_proj.weight", "ffn_down.weight"),
                                FIND("mlp.down_proj.bias", "ffn_down.bias"));
    oracle_add(x, out, (int64_t)n * o->width);
    double *all[] = {y, gate, up, out};
    for (size_t i = 0; i < TG_COUNT(all); i++)
        oracle_free(all[i]);
}

static void run(const oracle *o, const int32_t *ids, int32_t n, double *logits)
{
    const tg_tensor *embed = oracle_find(o, "model.embed_tokens.weight", "token_embd.weight", 0);
    const tg_tensor *head = oracle_find(o, "lm_head.weight", "output.weight", 0);
    double *x = oracle_embed(o, embed, ids, n);
    for (int32_t l = 0; l < o->n_layers; l++) {
        add_attention(o, x, n, l);
        add_feed_forward(o, x, n, l);
    }
    oracle_norm(x, x, n, o->width, oracle_find(o, "model.norm.weight", "output_norm.weight", 0), 0,
                o->eps);
    double *y = oracle_matmul(x, n, head ? head : embed, NULL);
    memcpy(logits, y, (size_t)n * (size_t)o->n_vocab * sizeof *y);
    oracle_free(y);
    oracle_free(x);
}

void oracle_open_llama(oracle *o, int32_t length)
{
    oracle_read_sizes(o);
    o->run = run;
    o->embed_scale = 1;
    o->attn_scale = 1 / sqrt(o->head_dim);
    o->is_interleaved = o->is_gguf;
    /* Mistral looks back over a window in every layer. */
    int32_t window = (int32_t)oracle_number(o, "sliding_window", "attention.sliding_window", 0);
    for (int32_t l = 0; l < o->n_layers; l++)
        o->window[l] = window;
    open_rope(o, length);
}
