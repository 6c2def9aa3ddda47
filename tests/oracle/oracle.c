/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn static void give_up(const char *what, const char *which)
{
    fprintf(stderr, "oracle: %s: %s\n", what, which);
    abort();
}

void oracle_open(oracle *o, const tg_checkpoint *c, int32_t length)
{
    *o = (oracle){.c = c, .is_gguf = tg_checkpoint_get_kind(c) == TG_CHECKPOINT_GGUF};
    char name[64] = "";
    if (o->is_gguf) {
        tg_str s = {0};
        if (tg_gguf_get_str(tg_checkpoint_get_gguf(c), "general.architecture", &s, NULL, NULL))
            give_up("no architecture", tg_checkpoint_get_path(c));
        snprintf(name, sizeof name, "%.*s", (int)s.len, s.ptr);
    } else {
        const json_t *type = json_object_get(tg_checkpoint_get_json(c, TG_HF_CONFIG), "model_type");
        snprintf(name, sizeof name, "%s", json_string_value(type));
    }
    if (strcmp(name, "llama") == 0 || strcmp(name, "mistral") == 0)
        oracle_open_llama(o, length);
    else if (strcmp(name, "gemma3") == 0 || strcmp(name, "gemma3_text") == 0)
        oracle_open_gemma3(o);
    else
        give_up("no oracle for", name);
}

void oracle_run(const oracle *o, const int32_t *ids, int32_t n, double *logits)
{
    o->run(o, ids, n, logits);
}

/* ---- keys */

const json_t *oracle_json(const oracle *o, const char *key)
{
    const json_t *root = tg_checkpoint_get_json(o->c, TG_HF_CONFIG);
    const json_t *v = json_object_get(json_object_get(root, "text_config"), key);
    if (!v) v = json_object_get(root, key);
    return json_is_null(v) ? NULL : v;
}

double oracle_number(const oracle *o, const char *hf, const char *gguf, double absent)
{
    if (!o->is_gguf) {
        const json_t *v = hf ? oracle_json(o, hf) : NULL;
        return v ? json_number_value(v) : absent;
    }
    const tg_gguf *g = tg_checkpoint_get_gguf(o->c);
    tg_str arch = {0};
    char key[128];
    double x = absent;
    bool is_present = false;
    if (!gguf) return absent;
    if (tg_gguf_get_str(g, "general.architecture", &arch, NULL, NULL)) return absent;
    snprintf(key, sizeof key, "%.*s.%s", (int)arch.len, arch.ptr, gguf);
    if (tg_gguf_get_f64(g, key, &x, &is_present, NULL)) give_up("no number", key);
    return x;
}

const json_t *oracle_rope(const oracle *o, const char *kind)
{
    const json_t *old = oracle_json(o, "rope_scaling"), *now = oracle_json(o, "rope_parameters");
    if (json_object_size(old) > 0)
        return kind && strcmp(kind, "sliding_attention") == 0 ? NULL : old;
    return kind ? json_object_get(now, kind) : now;
}

void oracle_read_sizes(oracle *o)
{
    const tg_tensor *embed = oracle_find(o, "model.embed_tokens.weight", "token_embd.weight", 0);
    if (!embed) give_up("no embedding in", tg_checkpoint_get_path(o->c));
    o->n_vocab = (int32_t)embed->dims[0];
    o->width = (int32_t)embed->dims[1];
    o->n_layers = (int32_t)oracle_number(o, "num_hidden_layers", "block_count", 0);
    o->n_heads = (int32_t)oracle_number(o, "num_attention_heads", "attention.head_count", 0);
    o->n_kv_heads =
        (int32_t)oracle_number(o, "num_key_value_heads", "attention.head_count_kv", o->n_heads);
    o->head_dim = (int32_t)oracle_number(o, "head_dim", "attention.key_length",
                                         o->n_heads ? o->width / o->n_heads : 0);
    o->ffn = (int32_t)oracle_number(o, "intermediate_size", "feed_forward_length", 0);
    o->eps = oracle_number(o, "rms_norm_eps", "attention.layer_norm_rms_epsilon", 1e-6);
    if (o->n_layers < 1 || o->n_layers > ORACLE_MAX_LAYERS || o->n_heads < 1 || o->head_dim < 2 ||
        o->head_dim > ORACLE_MAX_ROTARY)
        give_up("odd sizes in", tg_checkpoint_get_path(o->c));
}

/* ---- weights */

const tg_tensor *oracle_find(const oracle *o, const char *hf, const char *gguf, int32_t layer)
{
    /* Where the text model of a multimodal checkpoint may hide. */
    static const char *const inside[] = {"", "language_model.", "model.language_model."};
    const char *pattern = o->is_gguf ? gguf : hf;
    for (size_t k = 0; pattern && k < (o->is_gguf ? 1 : TG_COUNT(inside)); k++) {
        char name[256];
        size_t at = (size_t)snprintf(name, sizeof name, "%s", inside[k]);
        const char *p = pattern + (k == 2 && strncmp(pattern, "model.", 6) == 0 ? 6 : 0);
        for (; *p && at < 200; p++) {
            if (*p == '#')
                at += (size_t)snprintf(name + at, sizeof name - at, "%d", layer);
            else
                name[at++] = *p;
        }
        const tg_tensor *t = tg_checkpoint_find_tensor(o->c, (tg_str){name, at});
        if (t) return t;
    }
    return NULL;
}

/* ---- arithmetic */

double *oracle_new(int64_t n)
{
    double *x = tg_mem_new_array((size_t)n, sizeof *x);
    if (!x) give_up("no memory", "");
    return x;
}

void oracle_free(double *x)
{
    tg_mem_free(x);
}

static void unpack_row(const tg_tensor *w, int64_t row, float *out)
{
    int64_t cols = w->n_dims == 2 ? w->dims[1] : w->dims[0];
    size_t bytes = tg_dtype_row_bytes(w->dtype, cols);
    tg_dtype_unpack(w->dtype, (const uint8_t *)w->data + (size_t)row * bytes, out, cols);
}

/* Four sums side by side: only so that 135 million weights do not take all day. */
static double dot(const double *x, const double *w, int64_t n)
{
    double a = 0, b = 0, c = 0, d = 0;
    int64_t i = 0;
    for (; i + 4 <= n; i += 4) {
        a += x[i] * w[i];
        b += x[i + 1] * w[i + 1];
        c += x[i + 2] * w[i + 2];
        d += x[i + 3] * w[i + 3];
    }
    for (; i < n; i++)
        a += x[i] * w[i];
    return (a + b) + (c + d);
}

double *oracle_matmul(const double *x, int32_t n, const tg_tensor *w, const tg_tensor *bias)
{
    if (!w || w->n_dims != 2) give_up("a matrix is missing", "");
    int64_t rows = w->dims[0], cols = w->dims[1];
    double *y = oracle_new(n * rows), *row = oracle_new(cols);
    float *packed = tg_mem_new_array((size_t)TG_MAX(cols, rows), sizeof *packed);
    if (!packed) give_up("no memory", "");
    for (int64_t r = 0; r < rows; r++) {
        unpack_row(w, r, packed);
        for (int64_t i = 0; i < cols; i++)
            row[i] = (double)packed[i];
        for (int32_t t = 0; t < n; t++)
            y[t * rows + r] = dot(x + t * cols, row, cols);
    }
    if (bias) {
        unpack_row(bias, 0, packed);
        for (int32_t t = 0; t < n; t++)
            for (int64_t r = 0; r < rows; r++)
                y[t * rows + r] += (double)packed[r];
    }
    tg_mem_free(packed);
    oracle_free(row);
    return y;
}

void oracle_norm(double *out, const double *x, int64_t n_groups, int32_t size, const tg_tensor *w,
                 double plus, double eps)
{
    if (!w || w->n_dims != 1 || w->dims[0] != size) give_up("a norm is missing", "");
    float *gain = tg_mem_new_array((size_t)size, sizeof *gain);
    if (!gain) give_up("no memory", "");
    unpack_row(w, 0, gain);
    for (int64_t g = 0; g < n_groups; g++) {
        const double *from = x + g * size;
        double *to = out + g * size;
        double scale = 1 / sqrt(dot(from, from, size) / size + eps);
        for (int32_t i = 0; i < size; i++)
            to[i] = from[i] * scale * ((double)gain[i] + plus);
    }
    tg_mem_free(gain);
}

double *oracle_embed(const oracle *o, const tg_tensor *w, const int32_t *ids, int32_t n)
{
    double *x = oracle_new((int64_t)n * o->width);
    float *row = tg_mem_new_array((size_t)o->width, sizeof *row);
    if (!row) give_up("no memory", "");
    for (int32_t t = 0; t < n; t++) {
        unpack_row(w, ids[t], row);
        for (int32_t i = 0; i < o->width; i++)
            x[(int64_t)t * o->width + i] = (double)row[i] * o->embed_scale;
    }
    tg_mem_free(row);
    return x;
}

void oracle_rotate(const oracle *o, double *x, int32_t n, int32_t n_heads, int which)
{
    int32_t half = o->head_dim / 2;
    for (int32_t t = 0; t < n; t++)
        for (int32_t h = 0; h < n_heads; h++) {
            double *head = x + ((int64_t)t * n_heads + h) * o->head_dim;
            for (int32_t i = 0; i < half; i++) {
                double *a = o->is_interleaved ? head + 2 * i : head + i;
                double *b = o->is_interleaved ? head + 2 * i + 1 : head + half + i;
                double angle = t * o->freq[which][i], x0 = *a, x1 = *b;
                double cosine = cos(angle) * o->rope_factor[which];
                double sine = sin(angle) * o->rope_factor[which];
                *a = x0 * cosine - x1 * sine;
                *b = x1 * cosine + x0 * sine;
            }
        }
}

double *oracle_attend(const oracle *o, const double *q, const double *k, const double *v, int32_t n,
                      int32_t window)
{
    int32_t d = o->head_dim, shared = o->n_heads / o->n_kv_heads;
    int64_t q_width = (int64_t)o->n_heads * d, kv_width = (int64_t)o->n_kv_heads * d;
    double *y = oracle_new(n * q_width), *p = oracle_new(n);
    for (int32_t t = 0; t < n; t++)
        for (int32_t h = 0; h < o->n_heads; h++) {
            int32_t first = window > 0 && t >= window ? t - window + 1 : 0;
            const double *query = q + t * q_width + (int64_t)h * d;
            double *out = y + t * q_width + (int64_t)h * d, max = -INFINITY, sum = 0;
            int64_t at = (int64_t)(h / shared) * d;
            for (int32_t j = first; j <= t; j++) {
                p[j] = dot(query, k + j * kv_width + at, d) * o->attn_scale;
                max = fmax(max, p[j]);
            }
            for (int32_t j = first; j <= t; j++)
                sum += p[j] = exp(p[j] - max);
            for (int32_t j = first; j <= t; j++)
                for (int32_t i = 0; i < d; i++)
                    out[i] += p[j] / sum * v[j * kv_width + at + i];
        }
    oracle_free(p);
    return y;
}

void oracle_add(double *x, const double *y, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        x[i] += y[i];
}

double oracle_silu(double x)
{
    return x / (1 + exp(-x));
}

double oracle_gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(0.7978845608028653559 * (x + 0.044715 * x * x * x)));
}
