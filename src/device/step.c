/* SPDX-License-Identifier: Apache-2.0
 * step.c - running a plan, and its instructions save those of other files: products.c (matrices),
 * heads.c (norms and RoPE of heads) and attend.c (attention). */
#include "device/step.h"

#include "base/mem.h"
#include "device/profile.h"
#include "device/token_blocks.h"

#include <math.h>
#include <string.h>

void tg_step_share(const tg_step_view *v, int64_t n, int64_t *begin, int64_t *end)
{
    *begin = n * v->thread / v->n_threads;
    *end = n * (v->thread + 1) / v->n_threads;
}

int32_t tg_step_n_rows(const tg_step_view *v, int32_t value)
{
    return v->step->plan->values[value].dim == TG_DIM_T ? v->tokens.n : v->step->counts.n_outs;
}

float *tg_step_value(const tg_step_view *v, int32_t value, int64_t *stride)
{
    const tg_step *s = v->step;
    const tg_plan_value *x = &s->plan->values[value];
    *stride = x->width;
    if (x->offset == TG_IO_LOGITS) {
        *stride = (int64_t)s->io.logits_stride;
        return (float *)(void *)(s->out + s->io.logits);
    }
    TG_ASSERT(x->offset >= 0);
    if (!v->is_block) return (float *)(void *)(s->arena + x->offset);
    int64_t local = s->token_blocks->offsets[value];
    if (local != TG_NONE) return (float *)(void *)(v->mine->token_block.values + local);
    return (float *)(void *)(s->arena + x->offset) + v->first_token * *stride;
}

int32_t tg_step_page_id(const tg_step_view *v, int32_t group, int32_t row, int32_t page)
{
    const tg_bucket *b = &v->step->plan->bucket;
    const int32_t *tables = (const int32_t *)(const void *)(v->step->in + v->step->io.page_tables);
    return tables[((int64_t)group * b->rows + row) * b->pages + page];
}

char *tg_step_page(const tg_step_view *v, int32_t layer, int32_t page_id, int32_t kv_head,
                   char **values)
{
    const tg_layer *l = &v->step->program->layers[layer];
    const tg_kv_group *g = &v->step->program->kv_groups[l->kv_group];
    int64_t head_bytes = g->page_bytes / ((int64_t)g->n_layers * g->n_kv_heads);
    char *keys = v->step->pools[l->kv_group] + page_id * g->page_bytes +
                 ((int64_t)l->kv_index * g->n_kv_heads + kv_head) * head_bytes;
    *values = keys + head_bytes / 2;
    return keys;
}

const tg_step_weight *tg_step_find_weight(const tg_step_weight *weights, int32_t role,
                                          int32_t layer)
{
    int32_t l = tg_weight_role_is_per_layer((tg_weight_role)role) ? layer : 0;
    return &weights[(int64_t)l * TG_W_COUNT + role];
}

const float *tg_step_vector(const tg_step_view *v, const tg_instr *x, int32_t slot, int32_t layer)
{
    int32_t role = x->weights[slot];
    if (role == TG_NONE) return NULL;
    return (const float *)(const void *)tg_step_find_weight(v->step->weights, role, layer)->data;
}

void tg_step_barrier(const tg_step_view *v)
{
    if (v->n_threads > 1) tg_team_barrier(v->step->team, v->thread);
}

/* ---- handlers */

void tg_step_embed(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const tg_step_weight *w = tg_step_find_weight(v->step->weights, x->weights[0], layer);
    int64_t begin, end, stride;
    float *y = tg_step_value(v, x->out, &stride);
    tg_step_share(v, v->tokens.n, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int32_t id = v->tokens.ids[t];
        tg_embed embed = {
            .w = w->data + id / TG_TILE_ROWS * w->entry->tile_stride,
            .lane = id % TG_TILE_ROWS,
            .n_cols = (int32_t)w->entry->cols,
            .mul = x->attrs.scale,
            .y = y + t * stride,
        };
        v->step->kernels->embed[w->entry->layout](&embed);
    }
}

void tg_step_rms_norm(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const float *w = tg_step_vector(v, x, 0, layer);
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(v, x->in[0], &in_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    int32_t width = v->step->plan->values[x->out].width;
    int32_t n = x->attrs.head_dim > 0 ? x->attrs.head_dim : width;
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t at = 0; at < width; at += n)
            v->step->kernels->rms_norm(out + t * out_stride + at, in + t * in_stride + at, w, n,
                                       x->attrs.eps);
}

void tg_step_layer_norm(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const float *w = tg_step_vector(v, x, TG_SLOT_W, layer);
    const float *bias = tg_step_vector(v, x, TG_SLOT_BIAS, layer);
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(v, x->in[0], &in_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        v->step->kernels->layer_norm(out + t * out_stride, in + t * in_stride, w, bias,
                                     v->step->plan->values[x->out].width, x->attrs.eps);
}

/* Row t of a result, with a copy of the first input's row where the two have places of their
 * own. */
static float *take_row(const tg_step_view *v, const tg_instr *x, int64_t t)
{
    int64_t in_stride, out_stride;
    const float *in = tg_step_value(v, x->in[0], &in_stride);
    float *out = tg_step_value(v, x->out, &out_stride), *y = out + t * out_stride;
    if (out != in)
        memcpy(y, in + t * in_stride, (size_t)v->step->plan->values[x->out].width * sizeof *y);
    return y;
}

void tg_step_scale(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    int64_t begin, end;
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        v->step->kernels->scale(take_row(v, x, t), v->step->plan->values[x->out].width,
                                x->attrs.scale);
}

void tg_step_softcap(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    int64_t begin, end;
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        v->step->kernels->softcap(take_row(v, x, t), v->step->plan->values[x->out].width,
                                  x->attrs.softcap);
}

void tg_step_glu(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    int64_t begin, end, gate_stride, up_stride, out_stride;
    const float *gate = tg_step_value(v, x->in[0], &gate_stride);
    const float *up = tg_step_value(v, x->in[1], &up_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        v->step->kernels->glu[x->attrs.act](out + t * out_stride, gate + t * gate_stride,
                                            up + t * up_stride,
                                            v->step->plan->values[x->out].width);
}

void tg_step_add(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    int64_t begin, end, x_stride, y_stride, out_stride;
    const float *residual = tg_step_value(v, x->in[0], &x_stride);
    const float *y = tg_step_value(v, x->in[1], &y_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    int32_t width = v->step->plan->values[x->out].width;
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *to = out + t * out_stride;
        if (out != residual) memcpy(to, residual + t * x_stride, (size_t)width * sizeof *to);
        v->step->kernels->add(to, y + t * y_stride, width);
    }
}

void tg_step_norm_add(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const float *w = tg_step_vector(v, x, 0, layer);
    int64_t begin, end, y_stride, out_stride, stride;
    const float *y = tg_step_value(v, x->in[1], &y_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    TG_ASSERT(out == tg_step_value(v, x->in[0], &stride));
    int32_t width = v->step->plan->values[x->out].width;
    tg_step_share(v, tg_step_n_rows(v, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *row = v->mine->normed;
        v->step->kernels->rms_norm(row, y + t * y_stride, w, width, x->attrs.eps);
        v->step->kernels->add(out + t * out_stride, row, width);
    }
}

void tg_step_rows(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(v, x->in[0], &in_stride);
    float *out = tg_step_value(v, x->out, &out_stride);
    tg_step_share(v, v->step->counts.n_outs, &begin, &end);
    for (int64_t r = begin; r < end; r++)
        memcpy(out + r * out_stride, in + v->step->out_tokens[r] * in_stride,
               (size_t)v->step->plan->values[x->out].width * sizeof *out);
}

void tg_step_sample(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    (void)layer;
    const tg_step *s = v->step;
    if (!s->counts.is_sampling) return;
    const tg_sample_params *params = (const void *)(s->in + s->io.sampling);
    const tg_sample_adjust *adjust = (const void *)(s->in + s->io.adjust);
    int32_t *ids = (int32_t *)(void *)(s->out + s->io.ids);
    int64_t begin, end, stride;
    float *logits = tg_step_value(v, x->in[0], &stride);
    tg_step_share(v, s->counts.n_outs, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        float *row = logits + r * stride;
        for (int32_t i = 0; i < s->program->n_unused; i++)
            row[s->program->unused[i]] = -INFINITY;
        ids[r] =
            s->kernels->sample_row(row, s->program->n_vocab, &params[r], adjust, v->mine->sample);
    }
}

static tg_step_fn *const handlers[TG_OP_COUNT] = {
#define TG_OP(NAME, name, ...) [TG_OP_##NAME] = tg_step_##name,
#include "ir/ops.def"
#undef TG_OP
};

void tg_step_handle(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    handlers[x->op](v, x, layer);
}

/* All threads wait, because the next instruction may overwrite what is shown. */
static void show_result(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const tg_step *s = v->step;
    if (v->thread == 0 && x->out != TG_NONE &&
        s->plan->values[x->out].type == (int32_t)TG_TYPE_F32) {
        tg_cpu_result r = {.instr = x,
                           .layer = layer,
                           .n_rows = tg_step_n_rows(v, x->out),
                           .width = s->plan->values[x->out].width};
        r.x = tg_step_value(v, x->out, &r.stride);
        s->show(s->show_context, &r);
    }
    tg_step_barrier(v);
}

static void run_layer(const tg_step_view *v, const tg_segment *g, int32_t layer)
{
    const tg_step *s = v->step;
    for (int32_t i = 0; i < g->n_instrs; i++) {
        const tg_instr *x = &s->plan->instrs[g->first_instr + i];
        handlers[x->op](v, x, layer);
        tg_step_barrier(v);
        if (s->show) show_result(v, x, layer);
        if (s->profile && v->thread == 0) tg_profile_add(s->profile, v, x, layer);
    }
}

static void run_plan(const tg_step_view *v)
{
    const tg_plan *plan = v->step->plan;
    for (int32_t i = 0; i < plan->n_segments; i++) {
        const tg_segment *g = &plan->segments[i];
        if (g->n_layers == 0) run_layer(v, g, 0);
        for (int32_t l = 0; l < g->n_layers; l++)
            run_layer(v, g, plan->layer_refs[g->first_layer + l]);
    }
}

void tg_step_run(const tg_step *s, int32_t thread)
{
    tg_step_view v = {.step = s,
                      .thread = thread,
                      .n_threads = s->n_threads,
                      .mine = &s->privates[thread],
                      .tokens = s->tokens,
                      .scratch = &s->scratch};
    uint32_t fp = tg_fp_begin();
    tg_mem_lock_begin();
    if (s->profile && thread == 0) tg_profile_begin(s->profile, s);
    if (tg_token_blocks_is_worth(s))
        tg_token_blocks_run(&v);
    else
        run_plan(&v);
    tg_mem_lock_end();
    tg_fp_restore(fp);
}

void tg_step_measure(tg_step_sizes *z, const tg_program *p, const tg_plan *plan)
{
    const tg_bucket *b = &plan->bucket;
    z->arena_bytes = TG_MAX(z->arena_bytes, plan->arena_bytes);
    z->rows = TG_MAX(z->rows, b->rows);
    z->tokens = TG_MAX(z->tokens, TG_MAX(b->tokens, b->outs));
    z->n_vocab = TG_MAX(z->n_vocab, p->n_vocab);
    for (int32_t i = 0; i < p->n_weights; i++)
        z->n_outliers = TG_MAX(z->n_outliers, p->weights[i].n_outliers);
    for (int32_t i = 0; i < plan->n_values; i++)
        if (plan->values[i].offset >= 0) z->cols = TG_MAX(z->cols, plan->values[i].width);
    for (int32_t i = 0; i < plan->n_instrs; i++) {
        const tg_instr *x = &plan->instrs[i];
        const tg_attrs *a = &x->attrs;
        int64_t products = 0, partial = 0;
        z->head_dim = TG_MAX(z->head_dim, a->head_dim);
        z->n_heads = TG_MAX(z->n_heads, a->n_heads);
        if (x->op == TG_OP_QKV) products = (int64_t)b->tokens * 2 * a->n_kv_heads * a->head_dim;
        if (x->op == TG_OP_GLU_MATMUL)
            products = (int64_t)b->tokens * 2 *
                       (int64_t)tg_align_up((size_t)plan->values[x->out].width, TG_TILE_ROWS);
        if (x->op == TG_OP_ATTENTION)
            partial = (int64_t)TG_MIN(b->tokens, TG_STEP_GEMV_TOKENS) * a->n_heads * b->pages *
                      (a->head_dim + 2);
        z->products_floats = TG_MAX(z->products_floats, products);
        z->products_row_floats = TG_MAX(z->products_row_floats, products / b->tokens);
        z->partial_floats = TG_MAX(z->partial_floats, partial);
    }
}
