/* SPDX-License-Identifier: Apache-2.0
 * eval.h - what a graph means, in double, written from the meanings in ops.def: the judge of
 * passes. It runs a graph with memory of its own for every value, or a plan inside one arena at the
 * plan's offsets, so that a fusion that changes the function or a place that is used twice shows in
 * numbers. One row, positions from 0; weights are a hash of role, layer and index. */
#ifndef TG_TESTS_EVAL_H
#define TG_TESTS_EVAL_H

#include "ir/program.h"
#include "unit/ir/toy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { EVAL_TOKENS = 5, EVAL_OUTS = 2, EVAL_MAX_WIDTH = 64 };

static const int32_t eval_tokens[EVAL_TOKENS] = {3, 17, 0, 38, 9};
static const int32_t eval_outs[EVAL_OUTS] = {1, 4};

typedef struct eval {
    const tg_graph *g; /* for the shapes of weights */
    double k[TOY_MAX_LAYERS][EVAL_TOKENS][EVAL_MAX_WIDTH],
        v[TOY_MAX_LAYERS][EVAL_TOKENS][EVAL_MAX_WIDTH];
    double logits[EVAL_OUTS][EVAL_MAX_WIDTH];
    int32_t ids[EVAL_OUTS];
} eval;

/* One operation at work: rows [n][width]. */
typedef struct eval_call {
    tg_op op;
    const tg_attrs *attrs;
    const int32_t *weights;
    int32_t layer, n;
    const double *in[2];
    int32_t in_width[2], out_width;
    double *out;
} eval_call;

static inline double eval_weight(const eval_call *c, int slot, int64_t i)
{
    int32_t role = c->weights[slot];
    int32_t layer = tg_weight_role_is_per_layer((tg_weight_role)role) ? c->layer : 0;
    uint64_t z = (uint64_t)role * 1000003u + (uint64_t)layer * 7919u + (uint64_t)i + 1;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-52 - 1.0;
}

static inline bool eval_has(const eval_call *c, int slot)
{
    return c->weights[slot] != TG_NONE;
}

static inline void eval_norm(const eval_call *c, int slot, const double *x, double *y,
                             int32_t width, int32_t n)
{
    for (int32_t at = 0; at < width; at += n) {
        double sum = 0;
        for (int32_t i = 0; i < n; i++)
            sum += x[at + i] * x[at + i];
        double r = 1 / sqrt(sum / n + (double)c->attrs->eps);
        for (int32_t i = 0; i < n; i++)
            y[at + i] = x[at + i] * r * eval_weight(c, slot, i);
    }
}

static inline void eval_matmul(const eval_call *c, int slot, int bias, const double *x,
                               int32_t n_in, double *y, int32_t n_out)
{
    for (int32_t r = 0; r < n_out; r++) {
        y[r] = bias >= 0 && eval_has(c, bias) ? eval_weight(c, bias, r) : 0;
        for (int32_t i = 0; i < n_in; i++)
            y[r] += eval_weight(c, slot, (int64_t)r * n_in + i) * x[i];
    }
}

static inline void eval_rope(const eval_call *c, int slot, double *x, int32_t width,
                             int32_t position)
{
    int32_t n = c->attrs->rotary_dim, half = n / 2;
    for (int32_t at = 0; at < width; at += c->attrs->head_dim)
        for (int32_t i = 0; i < half; i++) {
            double cs = eval_weight(c, slot, (int64_t)position * n + i);
            double sn = eval_weight(c, slot, (int64_t)position * n + half + i);
            double a = x[at + i], b = x[at + i + half];
            x[at + i] = a * cs - b * sn;
            x[at + i + half] = b * cs + a * sn;
        }
}

static inline double eval_act(int32_t act, double g)
{
    if (act == 0) return g / (1 + exp(-g));
    return 0.5 * g * (1 + tanh(0.7978845608028654 * (g + 0.044715 * g * g * g)));
}

/* tanh as it is written in books, where ours goes through one exp. */
static inline double eval_cap(const eval_call *c, double x)
{
    double softcap = (double)c->attrs->softcap;
    return softcap > 0 ? softcap * tanh(x / softcap) : x;
}

static inline void eval_layer_norm(const eval_call *c, const double *x, double *y, int32_t n)
{
    double mean = 0, sum = 0;
    for (int32_t i = 0; i < n; i++)
        mean += x[i] / n;
    for (int32_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    for (int32_t i = 0; i < n; i++) {
        y[i] = (x[i] - mean) / sqrt(sum / n + (double)c->attrs->eps) * eval_weight(c, 0, i);
        if (eval_has(c, TG_SLOT_BIAS)) y[i] += eval_weight(c, TG_SLOT_BIAS, i);
    }
}

static inline void eval_attend(const eval *x, const eval_call *c, int32_t t, double *y)
{
    int32_t n = c->attrs->head_dim, share = c->attrs->n_heads / c->attrs->n_kv_heads;
    int32_t first = c->attrs->window && t >= c->attrs->window ? t - c->attrs->window + 1 : 0;
    for (int32_t h = 0; h < c->attrs->n_heads; h++) {
        const double *q = c->in[0] + t * c->in_width[0] + h * n;
        int32_t at = h / share * n;
        double p[EVAL_TOKENS], sum = 0;
        for (int32_t j = first; j <= t; j++) {
            double dot = 0;
            for (int32_t i = 0; i < n; i++)
                dot += q[i] * x->k[c->layer][j][at + i];
            dot *= (double)c->attrs->scale;
            sum += p[j] = exp(eval_cap(c, dot));
        }
        for (int32_t i = 0; i < n; i++) {
            y[h * n + i] = 0;
            for (int32_t j = first; j <= t; j++)
                y[h * n + i] += p[j] / sum * x->v[c->layer][j][at + i];
        }
    }
}

static inline void eval_qkv(eval *x, const eval_call *c, int32_t t, const double *in, double *q)
{
    int32_t kd = c->attrs->n_kv_heads * c->attrs->head_dim, n = c->attrs->head_dim;
    double *k = x->k[c->layer][t], *v = x->v[c->layer][t];
    eval_matmul(c, TG_SLOT_QKV_Q, TG_SLOT_QKV_Q_BIAS, in, c->in_width[0], q, c->out_width);
    eval_matmul(c, TG_SLOT_QKV_K, TG_SLOT_QKV_K_BIAS, in, c->in_width[0], k, kd);
    eval_matmul(c, TG_SLOT_QKV_V, TG_SLOT_QKV_V_BIAS, in, c->in_width[0], v, kd);
    if (eval_has(c, TG_SLOT_QKV_Q_NORM)) eval_norm(c, TG_SLOT_QKV_Q_NORM, q, q, c->out_width, n);
    if (eval_has(c, TG_SLOT_QKV_K_NORM)) eval_norm(c, TG_SLOT_QKV_K_NORM, k, k, kd, n);
    if (!eval_has(c, TG_SLOT_QKV_ROPE)) return;
    eval_rope(c, TG_SLOT_QKV_ROPE, q, c->out_width, t);
    eval_rope(c, TG_SLOT_QKV_ROPE, k, kd, t);
}

/* Row t of a call; the result goes through `y` so that it may lie over an input. */
static inline void eval_row(eval *x, const eval_call *c, int32_t t)
{
    double y[EVAL_MAX_WIDTH], z[EVAL_MAX_WIDTH], normed[EVAL_MAX_WIDTH];
    const double *a = c->in[0] + t * c->in_width[0];
    const double *b = c->in[1] ? c->in[1] + t * c->in_width[1] : NULL;
    int32_t n = c->out_width, norm = c->op == TG_OP_MATMUL       ? TG_SLOT_NORM
                                     : c->op == TG_OP_QKV        ? TG_SLOT_QKV_NORM
                                     : c->op == TG_OP_GLU_MATMUL ? TG_SLOT_GLU_NORM
                                                                 : -1;
    if (norm >= 0 && eval_has(c, norm)) {
        eval_norm(c, norm, a, normed, c->in_width[0], c->in_width[0]);
        a = normed;
    }
    memcpy(y, a, (size_t)TG_MIN(c->in_width[0], n) * sizeof *y);
    switch (c->op) {
    case TG_OP_EMBED:
        for (int32_t i = 0; i < n; i++)
            y[i] = (double)c->attrs->scale * eval_weight(c, 0, (int64_t)eval_tokens[t] * n + i);
        break;
    case TG_OP_RMS_NORM:
        eval_norm(c, 0, a, y, n, c->attrs->head_dim ? c->attrs->head_dim : n);
        break;
    case TG_OP_MATMUL: eval_matmul(c, TG_SLOT_W, TG_SLOT_BIAS, a, c->in_width[0], y, n); break;
    case TG_OP_ROPE: eval_rope(c, 0, y, n, t); break;
    case TG_OP_KV_WRITE:
        memcpy(x->k[c->layer][t], a, (size_t)c->in_width[0] * sizeof *a);
        memcpy(x->v[c->layer][t], b, (size_t)c->in_width[1] * sizeof *b);
        return;
    case TG_OP_ATTENTION: eval_attend(x, c, t, y); break;
    case TG_OP_GLU:
        for (int32_t i = 0; i < n; i++)
            y[i] = eval_act(c->attrs->act, a[i]) * b[i];
        break;
    case TG_OP_ADD:
        for (int32_t i = 0; i < n; i++)
            y[i] = a[i] + b[i];
        break;
    case TG_OP_ROWS:
        memcpy(y, c->in[0] + eval_outs[t] * c->in_width[0], (size_t)n * sizeof *y);
        break;
    case TG_OP_SAMPLE:
        for (int32_t i = 0; i < c->in_width[0]; i++)
            x->logits[t][i] = a[i];
        return;
    case TG_OP_QKV: eval_qkv(x, c, t, a, y); break;
    case TG_OP_GLU_MATMUL:
        eval_matmul(c, TG_SLOT_GLU_GATE, TG_SLOT_GLU_GATE_BIAS, a, c->in_width[0], y, n);
        eval_matmul(c, TG_SLOT_GLU_UP, TG_SLOT_GLU_UP_BIAS, a, c->in_width[0], z, n);
        for (int32_t i = 0; i < n; i++)
            y[i] = eval_act(c->attrs->act, y[i]) * z[i];
        break;
    case TG_OP_MATMUL_ADD:
        eval_matmul(c, TG_SLOT_W, TG_SLOT_BIAS, b, c->in_width[1], z, n);
        for (int32_t i = 0; i < n; i++)
            y[i] = a[i] + z[i];
        break;
    case TG_OP_NORM_ADD:
        eval_norm(c, 0, b, z, n, n);
        for (int32_t i = 0; i < n; i++)
            y[i] = a[i] + z[i];
        break;
    case TG_OP_LAYER_NORM: eval_layer_norm(c, a, y, n); break;
    case TG_OP_SCALE:
    case TG_OP_SOFTCAP:
        for (int32_t i = 0; i < n; i++)
            y[i] = c->op == TG_OP_SOFTCAP ? eval_cap(c, a[i]) : (double)c->attrs->scale * a[i];
        break;
    case TG_OP_COUNT: abort();
    }
    memcpy(c->out + t * n, y, (size_t)n * sizeof *y);
}

static inline void eval_run(eval *x, const eval_call *c)
{
    for (int32_t t = 0; t < c->n; t++)
        eval_row(x, c, t);
}

static inline int32_t eval_rows(tg_dim dim)
{
    return dim == TG_DIM_T ? EVAL_TOKENS : EVAL_OUTS;
}

static inline void eval_block(eval *x, const tg_graph_block *b, double *const *memory,
                              int32_t layer)
{
    const tg_value_info *values = x->g->values;
    for (int32_t i = 0; i < b->n_nodes; i++) {
        const tg_node *n = &b->nodes[i];
        eval_call c = {.op = n->op, .attrs = &n->attrs, .weights = n->weights, .layer = layer};
        for (int32_t k = 0; k < tg_op_get(n->op)->n_inputs; k++) {
            c.in[k] = memory[n->in[k]];
            c.in_width[k] = values[n->in[k]].width;
        }
        int32_t counted = n->out == TG_NONE ? n->in[0] : n->out;
        c.n = eval_rows(values[counted].dim);
        if (n->out != TG_NONE) c.out = memory[n->out];
        if (n->out != TG_NONE) c.out_width = values[n->out].width;
        eval_run(x, &c);
    }
}

/* Every value has memory of its own. */
static inline void eval_graph(eval *x, const tg_graph *g)
{
    double **memory = calloc((size_t)g->n_values, sizeof *memory);
    size_t size = EVAL_TOKENS * EVAL_MAX_WIDTH * sizeof(double);
    for (int32_t i = 0; i < g->n_values; i++)
        memory[i] = calloc(1, size);
    memset(x, 0, sizeof *x);
    x->g = g;
    eval_block(x, &g->head, memory, 0);
    int32_t stream = g->head.out;
    for (int32_t l = 0; l < g->n_layers; l++) {
        const tg_graph_block *b = &g->bodies[g->layer_body[l]];
        memcpy(memory[b->in], memory[stream], size);
        eval_block(x, b, memory, l);
        stream = b->out;
    }
    memcpy(memory[g->tail.in], memory[stream], size);
    eval_block(x, &g->tail, memory, 0);
    for (int32_t i = 0; i < g->n_values; i++)
        free(memory[i]);
    free(memory);
}

static inline double *eval_place(const tg_plan *p, int32_t value, double *arena, double *logits)
{
    int64_t at = p->values[value].offset;
    return at < 0 ? logits : arena + at / 4;
}

/* Inside one arena, at the plan's offsets; the bucket is larger than what is run. */
static inline void eval_plan(eval *x, const tg_graph *g, const tg_plan *p)
{
    double *arena = calloc((size_t)p->arena_bytes / 4 + 1, sizeof *arena);
    double *logits = calloc(EVAL_TOKENS * EVAL_MAX_WIDTH, sizeof *logits);
    memset(x, 0, sizeof *x);
    x->g = g;
    for (int32_t s = 0; s < p->n_segments; s++)
        for (int32_t l = 0; l < TG_MAX(p->segments[s].n_layers, 1); l++)
            for (int32_t i = 0; i < p->segments[s].n_instrs; i++) {
                const tg_segment *seg = &p->segments[s];
                const tg_instr *n = &p->instrs[seg->first_instr + i];
                eval_call c = {.op = (tg_op)n->op, .attrs = &n->attrs, .weights = n->weights};
                c.layer = seg->n_layers ? p->layer_refs[seg->first_layer + l] : 0;
                for (int32_t k = 0; k < tg_op_get((tg_op)n->op)->n_inputs; k++) {
                    c.in[k] = eval_place(p, n->in[k], arena, logits);
                    c.in_width[k] = p->values[n->in[k]].width;
                }
                int32_t counted = n->out == TG_NONE ? n->in[0] : n->out;
                c.n = eval_rows((tg_dim)p->values[counted].dim);
                if (n->out != TG_NONE) c.out = eval_place(p, n->out, arena, logits);
                if (n->out != TG_NONE) c.out_width = p->values[n->out].width;
                eval_run(x, &c);
            }
    free(arena);
    free(logits);
}

#endif
