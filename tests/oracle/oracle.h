/* SPDX-License-Identifier: Apache-2.0
 * oracle.h - the second implementation: one plain forward pass per family, in double.
 *
 * Written from the papers and from transformers, to be read and believed. It shares no code with
 * src/ but the readers of checkpoints and of number formats; it knows no graph, no cache, no batch
 * and no layout. All tokens go through layer by layer; a matrix is unpacked row by row.
 *
 * llama.c and gemma3.c are the families; oracle.c is the arithmetic they share. */
#ifndef TG_TESTS_ORACLE_H
#define TG_TESTS_ORACLE_H

#include "format/checkpoint.h"

enum { ORACLE_MAX_LAYERS = 128, ORACLE_MAX_ROTARY = 512 };

/* Numbers of a model, read from config.json or GGUF keys. Mistakes in them abort: oracles are for
 * tests. */
typedef struct oracle {
    const tg_checkpoint *c;
    bool is_gguf;
    int32_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn;
    int32_t n_vocab; /* rows of the embedding */
    double eps, embed_scale, attn_scale;
    int32_t window[ORACLE_MAX_LAYERS]; /* 0: everything before is seen */
    bool is_interleaved;               /* rotary pairs are neighbours (GGUF's llama), not halves */
    double freq[2][ORACLE_MAX_ROTARY / 2]; /* angle per position; [1] for layers with a window */
    double rope_factor[2];                 /* multiplies cosine and sine */
    void (*run)(const struct oracle *o, const int32_t *ids, int32_t n, double *logits);
} oracle;

/* The family that the checkpoint says. `length`: the positions that dynamic and longrope scaling
 * are chosen by; where a model is compiled, what it is compiled for. */
void oracle_open(oracle *o, const tg_checkpoint *c, int32_t length);

/* logits[n][n_vocab]: row i after ids[0..i]. */
void oracle_run(const oracle *o, const int32_t *ids, int32_t n, double *logits);

/* ---- families: the numbers, and `run` */
void oracle_open_llama(oracle *o, int32_t length);
void oracle_open_gemma3(oracle *o);

/* ---- keys: in text_config, else at the root of config.json; in GGUF after the architecture's
 * name */
double oracle_number(const oracle *o, const char *hf, const char *gguf, double absent);
/* The object of rotary settings: config.json's rope_scaling, or rope_parameters, or inside it
 * `kind`. */
const json_t *oracle_rope(const oracle *o, const char *kind);
const json_t *oracle_json(const oracle *o, const char *key);
/* Sizes that every family has. */
void oracle_read_sizes(oracle *o);

/* ---- weights: the tensor of a layer, '#' in the name is the number; NULL when absent */
const tg_tensor *oracle_find(const oracle *o, const char *hf, const char *gguf, int32_t layer);

/* ---- arithmetic on [n][width] arrays */
double *oracle_new(int64_t n); /* zeroed; aborts when there is no memory */
void oracle_free(double *x);
/* y[n][rows] = x[n][cols] times the matrix, plus the bias where there is one. */
double *oracle_matmul(const double *x, int32_t n, const tg_tensor *w, const tg_tensor *bias);
/* out = x / sqrt(mean(x^2) + eps) * (w + plus), in groups of `size` numbers; may be in place. */
void oracle_norm(double *out, const double *x, int64_t n_groups, int32_t size, const tg_tensor *w,
                 double plus, double eps);
/* The rows of the embedding that belong to the ids, times embed_scale. */
double *oracle_embed(const oracle *o, const tg_tensor *w, const int32_t *ids, int32_t n);
/* Rotates every head of x[n][n_heads head_dim], token t by angle t freq. */
void oracle_rotate(const oracle *o, double *x, int32_t n, int32_t n_heads, int which);
/* Causal attention with a window (0: none): q[n][H head_dim] over k, v[n][K head_dim]. */
double *oracle_attend(const oracle *o, const double *q, const double *k, const double *v, int32_t n,
                      int32_t window);
void oracle_add(double *x, const double *y, int64_t n);
double oracle_silu(double x);
double oracle_gelu_tanh(double x);

#endif
