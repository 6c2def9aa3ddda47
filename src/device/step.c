/* SPDX-License-Identifier: Apache-2.0
 * step.c - the instructions of a plan, all but attention (attend.c). */
#include "device/step.h"

#include "base/mem.h"
#include "device/profile.h"
#include "device/token_blocks.h"

#include <math.h>
#include <string.h>

void tg_step_share(const tg_step *s, int32_t thread, int64_t n, int64_t *begin, int64_t *end)
{
    *begin = n * thread / s->n_threads;
    *end = n * (thread + 1) / s->n_threads;
}

int32_t tg_step_n_rows(const tg_step *s, int32_t value)
{
    return s->plan->values[value].dim == TG_DIM_T ? s->counts.n_tokens : s->counts.n_outs;
}

float *tg_step_value(const tg_step *s, int32_t value, int64_t *stride)
{
    const tg_plan_value *v = &s->plan->values[value];
    *stride = v->width;
    if (v->offset == TG_IO_LOGITS) {
        *stride = (int64_t)s->io.logits_stride;
        return (float *)(void *)(s->out + s->io.logits);
    }
    TG_ASSERT(v->offset >= 0);
    if (!s->is_block) return (float *)(void *)(s->shared.arena + v->offset);
    int64_t local = s->token_blocks->offsets[value];
    if (local != TG_NONE) return (float *)(void *)(s->privates->token_blocks.values + local);
    return (float *)(void *)(s->shared.arena + v->offset) + s->first_token * *stride;
}

int32_t tg_step_page_id(const tg_step *s, int32_t group, int32_t row, int32_t page)
{
    const tg_bucket *b = &s->plan->bucket;
    const int32_t *tables = (const int32_t *)(const void *)(s->in + s->io.page_tables);
    return tables[((int64_t)group * b->rows + row) * b->pages + page];
}

char *tg_step_page(const tg_step *s, int32_t layer, int32_t page_id, int32_t kv_head, char **v)
{
    const tg_layer *l = &s->program->layers[layer];
    const tg_kv_group *g = &s->program->kv_groups[l->kv_group];
    int64_t head_bytes = g->page_bytes / ((int64_t)g->n_layers * g->n_kv_heads);
    char *k = s->pools[l->kv_group] + page_id * g->page_bytes +
              ((int64_t)l->kv_index * g->n_kv_heads + kv_head) * head_bytes;
    *v = k + head_bytes / 2;
    return k;
}

static const tg_step_weight *get_weight(const tg_step *s, int32_t role, int32_t layer)
{
    int32_t l = tg_weight_role_is_per_layer((tg_weight_role)role) ? layer : 0;
    return &s->weights[(int64_t)l * TG_W_COUNT + role];
}

/* A plain vector, NULL when the slot is empty. */
static const float *get_vector(const tg_step *s, const tg_instr *x, int32_t slot, int32_t layer)
{
    int32_t role = x->weights[slot];
    if (role == TG_NONE) return NULL;
    return (const float *)(const void *)get_weight(s, role, layer)->data;
}

/* ---- weights ahead */

/* Bytes that are asked for at once: more than the lines a processor may have on their way would
 * only make it wait (16 kB and 32 kB at a time are no faster than nothing, Zen 4). */
enum { AHEAD_BYTES = 2048 };

void tg_step_ahead(const tg_step *s, int32_t thread)
{
    tg_step_private *mine = &s->privates[thread];
    size_t n = TG_MIN(mine->ahead_bytes, (size_t)AHEAD_BYTES);
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch(mine->ahead + i, 0, 2); /* to the second-level cache */
    if (n) mine->ahead += n;
    mine->ahead_bytes -= n;
}

/* After a QKV: the thread's next weights are its tiles of the matrix behind attention. */
static void aim_ahead(const tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    tg_step_private *mine = &s->privates[thread];
    mine->ahead_bytes = 0;
    const tg_instr *end = s->plan->instrs + s->plan->n_instrs;
    for (x++; x < end; x++) {
        if (x->op == TG_OP_ATTENTION) continue;
        if (x->op != TG_OP_MATMUL && x->op != TG_OP_MATMUL_ADD) return;
        const tg_step_weight *w = get_weight(s, x->weights[TG_SLOT_W], layer);
        int64_t begin, end_tile;
        tg_step_share(s, thread, tg_div_up(w->entry->rows, TG_TILE_ROWS), &begin, &end_tile);
        mine->ahead = w->data + begin * w->entry->tile_stride;
        mine->ahead_bytes = (size_t)((end_tile - begin) * w->entry->tile_stride);
        return;
    }
}

/* All threads have come here before any goes on. A block has one. */
static void barrier(tg_step *s, int32_t thread)
{
    if (!s->is_block) tg_team_barrier(s->team, thread);
}

/* ---- inputs of matrices */

/* A matrix's input in the two forms that layouts want. */
typedef struct input {
    const float *x; /* [T][stride], normed where the instruction says so */
    int64_t stride;
    const tg_a8 *a8;
    int32_t n_rows, n_cols;
} input;

typedef struct norm {
    const float *w; /* NULL: none */
    float eps;
} norm;

static void prepare_rows(const tg_step *s, const input *in, const norm *n, float *normed,
                         const tg_a8 *a8, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const float *row = in->x + t * in->stride;
        if (n->w) {
            s->kernels->rms_norm(normed + t * in->n_cols, row, n->w, in->n_cols, n->eps);
            row = normed + t * in->n_cols;
        }
        if (!a8) continue;
        tg_a8 to = tg_a8_from(a8, t);
        s->kernels->quantize(&to, row, in->n_cols);
    }
}

/* What the quantized matrices among n roles want of their input; top is 0 where there are none.
 * All that read one input list the same outlier groups. */
static tg_a8_kind get_kind(const tg_step *s, const int32_t *roles, int32_t n, int32_t layer)
{
    tg_a8_kind kind = {0};
    for (int32_t i = 0; i < n; i++) {
        const tg_step_weight *w = get_weight(s, roles[i], layer);
        if (!w->entry || !tg_layout_rows[w->entry->layout].is_quantized) continue;
        int32_t top = tg_a8_top((tg_layout)w->entry->layout);
        kind.outliers = w->outliers;
        kind.n_outliers = w->entry->n_outliers;
        kind.top = kind.top ? TG_MIN(kind.top, top) : top;
    }
    kind.has_pairs = s->has_pairs && kind.top < TG_A8_TOP;
    return kind;
}

/* Norms and quantizes value `id` for an instruction whose matrices want `kind` of it. On return the
 * input can be read by this thread. */
static input prepare(tg_step *s, int32_t id, norm n, tg_a8_kind kind, int32_t thread)
{
    bool is_quantized = kind.top > 0;
    tg_step_private *mine = &s->privates[thread];
    input in = {.n_rows = tg_step_n_rows(s, id), .n_cols = s->plan->values[id].width};
    in.x = tg_step_value(s, id, &in.stride);
    if (!n.w && !is_quantized) return in;
    if (in.n_rows < TG_PAIR_TOKENS) kind.has_pairs = false;

    bool is_few =
        in.n_rows < TG_STEP_SHARED_ROWS || (s->n_threads == 1 && in.n_rows <= TG_STEP_GEMV_TOKENS);
    float *normed = is_few ? mine->normed : s->shared.normed;
    /* The memory serves inputs of every width: each thread lays it out for this one, all alike. */
    tg_a8_place(&mine->a8, is_few ? mine->a8_memory : s->shared.a8_memory, TG_MAX(in.n_rows, 1),
                in.n_cols, &kind);

    int64_t begin = 0, end = in.n_rows;
    if (!is_few) tg_step_share(s, thread, in.n_rows, &begin, &end);
    prepare_rows(s, &in, &n, normed, is_quantized ? &mine->a8 : NULL, begin, end);
    if (n.w) {
        in.x = normed;
        in.stride = in.n_cols;
    }
    in.a8 = &mine->a8;
    if (!is_few) barrier(s, thread);
    return in;
}

/* Tiles of gate and of up that are multiplied before they are combined. */
enum { GLU_TILES = 8 };

/* y = W x for the tiles [begin, end) of a matrix. */
typedef struct product {
    int32_t role;
    int32_t n_rows; /* of W that are wanted: the width of the result */
    const float *bias;
    float *y;
    int64_t y_stride;
    int64_t first_row; /* of W, that y begins with */
    bool is_add;
} product;

static int64_t n_tiles_of(const product *p)
{
    return tg_div_up(p->n_rows, TG_TILE_ROWS);
}

static void show_input(const tg_step *s, const tg_step_weight *w, const input *in)
{
    tg_cpu_input shown = {.x = in->x, .stride = in->stride, .n_rows = in->n_rows};
    if (in->a8) {
        shown.scales = in->a8->scale;
        shown.scale_stride = in->a8->padded / TG_GROUP_COLS;
    }
    s->watch(s->watch_context, w->entry, &shown);
}

static void multiply(tg_step *s, const input *in, const product *p, int32_t layer, int32_t thread,
                     int64_t begin, int64_t end)
{
    const tg_step_weight *w = get_weight(s, p->role, layer);
    if (begin >= end || in->n_rows == 0) return;
    if (s->watch && begin == 0) show_input(s, w, in); /* one thread has the first tile */
    int64_t first_row = begin * TG_TILE_ROWS;
    int64_t n_rows = TG_MIN(end * TG_TILE_ROWS, p->n_rows) - first_row;
    tg_matmul m = {
        .w = w->data + begin * w->entry->tile_stride,
        .tile_stride = (size_t)w->entry->tile_stride,
        .n_tiles = (int32_t)(end - begin),
        .n_rows = (int32_t)n_rows,
        .n_cols = (int32_t)w->entry->cols,
        .n_tokens = in->n_rows,
        .a8 = in->a8,
        .x = in->x,
        .x_stride = in->stride,
        .bias = p->bias ? p->bias + first_row : NULL,
        .y = p->y + (first_row - p->first_row),
        .y_stride = p->y_stride,
        .is_add = p->is_add,
        .prefetch_bytes = s->prefetch_bytes,
        .scratch = s->privates[thread].matmul,
    };
    s->kernels->matmul[w->entry->layout](&m);
}

/* ---- handlers */

void tg_step_embed(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    const tg_step_weight *w = get_weight(s, x->weights[0], layer);
    int64_t begin, end, stride;
    float *y = tg_step_value(s, x->out, &stride);
    tg_step_share(s, thread, s->counts.n_tokens, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int32_t id = s->tokens[t];
        tg_embed embed = {
            .w = w->data + id / TG_TILE_ROWS * w->entry->tile_stride,
            .lane = id % TG_TILE_ROWS,
            .n_cols = (int32_t)w->entry->cols,
            .mul = x->attrs.scale,
            .y = y + t * stride,
        };
        s->kernels->embed[w->entry->layout](&embed);
    }
}

void tg_step_rms_norm(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    const float *w = get_vector(s, x, 0, layer);
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(s, x->in[0], &in_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    int32_t width = s->plan->values[x->out].width;
    int32_t n = x->attrs.head_dim > 0 ? x->attrs.head_dim : width;
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t at = 0; at < width; at += n)
            s->kernels->rms_norm(out + t * out_stride + at, in + t * in_stride + at, w, n,
                                 x->attrs.eps);
}

void tg_step_layer_norm(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    const float *w = get_vector(s, x, TG_SLOT_W, layer);
    const float *bias = get_vector(s, x, TG_SLOT_BIAS, layer);
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(s, x->in[0], &in_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        s->kernels->layer_norm(out + t * out_stride, in + t * in_stride, w, bias,
                               s->plan->values[x->out].width, x->attrs.eps);
}

/* Row t of a result, with a copy of the first input's row where the two have places of their
 * own. */
static float *take_row(const tg_step *s, const tg_instr *x, int64_t t)
{
    int64_t in_stride, out_stride;
    const float *in = tg_step_value(s, x->in[0], &in_stride);
    float *out = tg_step_value(s, x->out, &out_stride), *y = out + t * out_stride;
    if (out != in) memcpy(y, in + t * in_stride, (size_t)s->plan->values[x->out].width * sizeof *y);
    return y;
}

void tg_step_scale(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    int64_t begin, end;
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        s->kernels->scale(take_row(s, x, t), s->plan->values[x->out].width, x->attrs.scale);
}

void tg_step_softcap(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    int64_t begin, end;
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        s->kernels->softcap(take_row(s, x, t), s->plan->values[x->out].width, x->attrs.softcap);
}

void tg_step_matmul(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    int32_t role = x->weights[TG_SLOT_W];
    norm n = {get_vector(s, x, TG_SLOT_NORM, layer), x->attrs.eps};
    input in = prepare(s, x->in[0], n, get_kind(s, &role, 1, layer), thread);
    product p = {.role = role,
                 .n_rows = s->plan->values[x->out].width,
                 .bias = get_vector(s, x, TG_SLOT_BIAS, layer)};
    int64_t begin, end;
    p.y = tg_step_value(s, x->out, &p.y_stride);
    tg_step_share(s, thread, n_tiles_of(&p), &begin, &end);
    multiply(s, &in, &p, layer, thread, begin, end);
}

void tg_step_matmul_add(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    int32_t role = x->weights[TG_SLOT_W];
    input in = prepare(s, x->in[1], (norm){0}, get_kind(s, &role, 1, layer), thread);
    product p = {.role = role,
                 .n_rows = s->plan->values[x->out].width,
                 .bias = get_vector(s, x, TG_SLOT_BIAS, layer),
                 .is_add = true};
    int64_t begin, end, stride;
    p.y = tg_step_value(s, x->out, &p.y_stride);
    TG_ASSERT(p.y == tg_step_value(s, x->in[0], &stride)); /* the plan made it in place */
    tg_step_share(s, thread, n_tiles_of(&p), &begin, &end);
    multiply(s, &in, &p, layer, thread, begin, end);
}

/* Whether the packer laid gate and up tile by tile, so that both are one stream. */
static bool is_interleaved(const tg_step_weight *gate, const tg_step_weight *up)
{
    const tg_weight_entry *g = gate->entry, *u = up->entry;
    int64_t tile_bytes = u->offset - g->offset;
    return g->layout == u->layout && tile_bytes > 0 && g->tile_stride == 2 * tile_bytes &&
           u->tile_stride == g->tile_stride;
}

/* Tiles [begin, end) of both as one matrix of twice the tiles: 16 rows of gate, 16 of up, and so
 * on. Without biases, which are not interleaved. */
static void multiply_pairs(tg_step *s, const input *in, int32_t role, int32_t layer, int32_t thread,
                           int64_t begin, int64_t end, int32_t width)
{
    const tg_step_weight *w = get_weight(s, role, layer);
    int64_t n_tiles = 2 * (end - begin), padded = tg_div_up(width, TG_TILE_ROWS) * TG_TILE_ROWS;
    if (n_tiles == 0 || in->n_rows == 0) return;
    tg_matmul m = {
        .w = w->data + begin * w->entry->tile_stride,
        .tile_stride = (size_t)w->entry->tile_stride / 2,
        .n_tiles = (int32_t)n_tiles,
        .n_rows = (int32_t)(n_tiles * TG_TILE_ROWS),
        .n_cols = (int32_t)w->entry->cols,
        .n_tokens = in->n_rows,
        .a8 = in->a8,
        .x = in->x,
        .x_stride = in->stride,
        .y = s->shared.pair + 2 * begin * TG_TILE_ROWS,
        .y_stride = 2 * padded,
        .prefetch_bytes = s->prefetch_bytes,
        .scratch = s->privates[thread].matmul,
    };
    s->kernels->matmul[w->entry->layout](&m);
}

/* y [at, at + n_cols) of every row from the pairs of tiles. */
static void combine_pairs(tg_step *s, int32_t act, const product *y, int32_t n_rows, int64_t at,
                          int64_t n_cols)
{
    int64_t stride = 2 * tg_div_up(y->n_rows, TG_TILE_ROWS) * TG_TILE_ROWS;
    for (int64_t t = 0; t < n_rows; t++)
        for (int64_t c = at; c < at + n_cols; c += TG_TILE_ROWS) {
            const float *pair = s->shared.pair + t * stride + 2 * c;
            s->kernels->glu[act](y->y + t * y->y_stride + c, pair, pair + TG_TILE_ROWS,
                                 (int32_t)TG_MIN(at + n_cols - c, TG_TILE_ROWS));
        }
}

/* Tiles [begin, end) of a gated product of many tokens, GLU_TILES at a time: their gates and ups
 * are combined where they were made, in the second cache, and never reach memory. */
static void run_glu_tiles(tg_step *s, const tg_instr *x, const input *in, product gu[2],
                          int32_t layer, int32_t thread, int64_t begin, int64_t end)
{
    float *y = gu[0].y, *pair = s->shared.pair + 2 * begin * TG_TILE_ROWS * in->n_rows;
    int64_t stride = gu[0].y_stride;
    for (int64_t i = begin; i < end; i += GLU_TILES) {
        int64_t next = TG_MIN(i + GLU_TILES, end), at = i * TG_TILE_ROWS;
        int64_t n_cols = TG_MIN(next * TG_TILE_ROWS, gu[0].n_rows) - at;
        for (int32_t k = 0; k < 2; k++) {
            gu[k].first_row = at;
            gu[k].y = pair + k * in->n_rows * n_cols;
            gu[k].y_stride = n_cols;
            multiply(s, in, &gu[k], layer, thread, i, next);
        }
        for (int64_t t = 0; t < in->n_rows; t++)
            s->kernels->glu[x->attrs.act](y + t * stride + at, gu[0].y + t * n_cols,
                                          gu[1].y + t * n_cols, (int32_t)n_cols);
    }
}

void tg_step_glu_matmul(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    int32_t gate = x->weights[TG_SLOT_GLU_GATE], up = x->weights[TG_SLOT_GLU_UP];
    norm n = {get_vector(s, x, TG_SLOT_GLU_NORM, layer), x->attrs.eps};
    input in = prepare(s, x->in[0], n, get_kind(s, (int32_t[]){gate, up}, 2, layer), thread);
    int32_t width = s->plan->values[x->out].width;
    product gu[2] = {
        {.role = gate, .n_rows = width, .bias = get_vector(s, x, TG_SLOT_GLU_GATE_BIAS, layer)},
        {.role = up, .n_rows = width, .bias = get_vector(s, x, TG_SLOT_GLU_UP_BIAS, layer)}};
    product *g = &gu[0], *u = &gu[1];
    g->y = tg_step_value(s, x->out, &g->y_stride);

    /* A thread's rows of gate and up are the same: what it multiplies it also combines. */
    int64_t begin, end;
    tg_step_share(s, thread, n_tiles_of(g), &begin, &end);
    if (in.n_rows > TG_STEP_GEMV_TOKENS) {
        run_glu_tiles(s, x, &in, gu, layer, thread, begin, end);
        return;
    }
    int64_t at = begin * TG_TILE_ROWS, n_cols = TG_MIN(end * TG_TILE_ROWS, width) - at;
    if (!g->bias && !u->bias && !s->watch &&
        is_interleaved(get_weight(s, gate, layer), get_weight(s, up, layer))) {
        multiply_pairs(s, &in, gate, layer, thread, begin, end, width);
        combine_pairs(s, x->attrs.act, g, in.n_rows, at, n_cols);
        return;
    }
    u->y = s->shared.pair;
    u->y_stride = width;
    multiply(s, &in, g, layer, thread, begin, end);
    multiply(s, &in, u, layer, thread, begin, end);
    for (int64_t t = 0; t < in.n_rows && n_cols > 0; t++) {
        float *y = g->y + t * g->y_stride + at;
        s->kernels->glu[x->attrs.act](y, y, u->y + t * u->y_stride + at, (int32_t)n_cols);
    }
}

static const float *rope_row(const tg_step *s, const tg_instr *x, int32_t slot, int32_t token)
{
    const float *table = get_vector(s, x, slot, 0);
    return table ? table + (int64_t)s->rope_rows[token] * x->attrs.rotary_dim : NULL;
}

/* Norm and rotation of one head in place. */
static void finish_head(const tg_step *s, float *head, const float *w, const tg_attrs *a,
                        const float *rope)
{
    if (w) s->kernels->rms_norm(head, head, w, a->head_dim, a->eps);
    if (rope) s->kernels->rope(head, rope, rope + a->rotary_dim / 2, a->rotary_dim);
}

static void store_kv(tg_step *s, int32_t layer, int32_t token, int32_t kv_head, const float *key,
                     const float *value, int32_t head_dim)
{
    int32_t position = s->positions[token];
    int32_t group = s->program->layers[layer].kv_group;
    int32_t page = tg_step_page_id(s, group, s->token_rows[token], position / TG_PAGE_TOKENS);
    char *v, *k = tg_step_page(s, layer, page, kv_head, &v);
    s->kernels->kv_store[s->program->kv_type](k, v, position % TG_PAGE_TOKENS, key, value,
                                              head_dim);
}

/* The tiles of q, k and v, one after the other, are dealt as one list. */
static void multiply_qkv(tg_step *s, const input *in, const product p[3], int32_t layer,
                         int32_t thread)
{
    int64_t begin, end, before = 0, n_all = 0;
    for (int32_t i = 0; i < 3; i++)
        n_all += n_tiles_of(&p[i]);
    tg_step_share(s, thread, n_all, &begin, &end);
    for (int32_t i = 0; i < 3; i++) {
        int64_t n = n_tiles_of(&p[i]);
        multiply(s, in, &p[i], layer, thread, TG_MAX(begin - before, 0), TG_MIN(end - before, n));
        before += n;
    }
}

/* The input of q, k and v keeps all codes: smaller ones would cost most of the accuracy there, and
 * are a sixth of what pairs bring. Mean KL with none, so, and with all: SmolLM2 0.00159, 0.00166,
 * 0.00178; Gemma 3 0.00145, 0.00160, 0.00184. */
static tg_a8_kind get_qkv_kind(const tg_step *s, const int32_t *roles, int32_t layer)
{
    tg_a8_kind kind = get_kind(s, roles, 3, layer);
    kind.has_pairs = false;
    if (kind.top) kind.top = TG_A8_TOP;
    return kind;
}

void tg_step_qkv(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    const tg_attrs *a = &x->attrs;
    const int32_t *w = x->weights;
    norm n = {get_vector(s, x, TG_SLOT_QKV_NORM, layer), a->eps};
    input in = prepare(s, x->in[0], n, get_qkv_kind(s, &w[TG_SLOT_QKV_Q], layer), thread);
    int64_t kv_width = (int64_t)a->n_kv_heads * a->head_dim;
    product p[3];
    for (int32_t i = 0; i < 3; i++)
        p[i] = (product){.role = w[TG_SLOT_QKV_Q + i],
                         .n_rows = (int32_t)kv_width,
                         .bias = get_vector(s, x, TG_SLOT_QKV_Q_BIAS + i, layer),
                         .y = s->shared.pair + (i == 2 ? kv_width : 0),
                         .y_stride = 2 * kv_width};
    p[0].n_rows = s->plan->values[x->out].width;
    p[0].y = tg_step_value(s, x->out, &p[0].y_stride);
    multiply_qkv(s, &in, p, layer, thread);
    aim_ahead(s, x, layer, thread);
    barrier(s, thread); /* tiles do not end where heads do */

    const float *q_norm = get_vector(s, x, TG_SLOT_QKV_Q_NORM, layer);
    const float *k_norm = get_vector(s, x, TG_SLOT_QKV_K_NORM, layer);
    int32_t n_heads = a->n_heads + a->n_kv_heads;
    int64_t begin, end;
    tg_step_share(s, thread, (int64_t)in.n_rows * n_heads, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        tg_step_ahead(s, thread);
        int32_t t = (int32_t)(i / n_heads), h = (int32_t)(i % n_heads);
        const float *rope = rope_row(s, x, TG_SLOT_QKV_ROPE, t);
        if (h < a->n_heads) {
            finish_head(s, p[0].y + t * p[0].y_stride + (int64_t)h * a->head_dim, q_norm, a, rope);
            continue;
        }
        int64_t at = t * 2 * kv_width + (int64_t)(h - a->n_heads) * a->head_dim;
        finish_head(s, p[1].y + at, k_norm, a, rope);
        store_kv(s, layer, t, h - a->n_heads, p[1].y + at, p[2].y + at, a->head_dim);
    }
}

void tg_step_rope(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(s, x->in[0], &in_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    int32_t width = s->plan->values[x->out].width;
    tg_step_share(s, thread, s->counts.n_tokens, &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *y = out + t * out_stride;
        if (out != in) memcpy(y, in + t * in_stride, (size_t)width * sizeof *y);
        const float *rope = rope_row(s, x, 0, (int32_t)t);
        for (int32_t at = 0; at < width; at += x->attrs.head_dim)
            finish_head(s, y + at, NULL, &x->attrs, rope);
    }
}

void tg_step_kv_write(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    int64_t begin, end, k_stride, v_stride;
    const float *k = tg_step_value(s, x->in[0], &k_stride);
    const float *v = tg_step_value(s, x->in[1], &v_stride);
    tg_step_share(s, thread, s->counts.n_tokens, &begin, &end);
    for (int64_t t = begin; t < end; t++)
        for (int32_t h = 0; h < x->attrs.n_kv_heads; h++) {
            int64_t at = (int64_t)h * x->attrs.head_dim;
            store_kv(s, layer, (int32_t)t, h, k + t * k_stride + at, v + t * v_stride + at,
                     x->attrs.head_dim);
        }
}

void tg_step_glu(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    int64_t begin, end, gate_stride, up_stride, out_stride;
    const float *gate = tg_step_value(s, x->in[0], &gate_stride);
    const float *up = tg_step_value(s, x->in[1], &up_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++)
        s->kernels->glu[x->attrs.act](out + t * out_stride, gate + t * gate_stride,
                                      up + t * up_stride, s->plan->values[x->out].width);
}

void tg_step_add(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    int64_t begin, end, x_stride, y_stride, out_stride;
    const float *residual = tg_step_value(s, x->in[0], &x_stride);
    const float *y = tg_step_value(s, x->in[1], &y_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    int32_t width = s->plan->values[x->out].width;
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *to = out + t * out_stride;
        if (out != residual) memcpy(to, residual + t * x_stride, (size_t)width * sizeof *to);
        s->kernels->add(to, y + t * y_stride, width);
    }
}

void tg_step_norm_add(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    const float *w = get_vector(s, x, 0, layer);
    int64_t begin, end, y_stride, out_stride, stride;
    const float *y = tg_step_value(s, x->in[1], &y_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    TG_ASSERT(out == tg_step_value(s, x->in[0], &stride));
    int32_t width = s->plan->values[x->out].width;
    tg_step_share(s, thread, tg_step_n_rows(s, x->out), &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        float *row = s->privates[thread].normed;
        s->kernels->rms_norm(row, y + t * y_stride, w, width, x->attrs.eps);
        s->kernels->add(out + t * out_stride, row, width);
    }
}

void tg_step_rows(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    int64_t begin, end, in_stride, out_stride;
    const float *in = tg_step_value(s, x->in[0], &in_stride);
    float *out = tg_step_value(s, x->out, &out_stride);
    tg_step_share(s, thread, s->counts.n_outs, &begin, &end);
    for (int64_t r = begin; r < end; r++)
        memcpy(out + r * out_stride, in + s->out_tokens[r] * in_stride,
               (size_t)s->plan->values[x->out].width * sizeof *out);
}

void tg_step_sample(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    (void)layer;
    if (!s->counts.is_sampling) return;
    const tg_sample_params *params = (const void *)(s->in + s->io.sampling);
    const tg_sample_adjust *adjust = (const void *)(s->in + s->io.adjust);
    int32_t *ids = (int32_t *)(void *)(s->out + s->io.ids);
    int64_t begin, end, stride;
    float *logits = tg_step_value(s, x->in[0], &stride);
    tg_step_share(s, thread, s->counts.n_outs, &begin, &end);
    for (int64_t r = begin; r < end; r++) {
        float *row = logits + r * stride;
        for (int32_t i = 0; i < s->program->n_unused; i++)
            row[s->program->unused[i]] = -INFINITY;
        ids[r] = s->kernels->sample_row(row, s->program->n_vocab, &params[r], adjust,
                                        s->privates[thread].sample);
    }
}

static tg_step_fn *const handlers[TG_OP_COUNT] = {
#define TG_OP(NAME, name, ...) [TG_OP_##NAME] = tg_step_##name,
#include "ir/ops.def"
#undef TG_OP
};

void tg_step_handle(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    handlers[x->op](s, x, layer, thread);
}

/* Nobody goes on while one looks: the next instruction may write over what is shown. */
static void show_result(tg_step *s, const tg_instr *x, int32_t layer, int32_t thread)
{
    if (thread == 0 && x->out != TG_NONE && s->plan->values[x->out].type == (int32_t)TG_TYPE_F32) {
        tg_cpu_result r = {.instr = x,
                           .layer = layer,
                           .n_rows = tg_step_n_rows(s, x->out),
                           .width = s->plan->values[x->out].width};
        r.x = tg_step_value(s, x->out, &r.stride);
        s->show(s->show_context, &r);
    }
    tg_team_barrier(s->team, thread);
}

static void run_layer(tg_step *s, const tg_segment *g, int32_t layer, int32_t thread)
{
    for (int32_t i = 0; i < g->n_instrs; i++) {
        const tg_instr *x = &s->plan->instrs[g->first_instr + i];
        handlers[x->op](s, x, layer, thread);
        tg_team_barrier(s->team, thread);
        if (s->show) show_result(s, x, layer, thread);
        if (s->profile && thread == 0) tg_profile_add(s->profile, s, x, layer);
    }
}

static void run_plan(tg_step *s, int32_t thread)
{
    for (int32_t i = 0; i < s->plan->n_segments; i++) {
        const tg_segment *g = &s->plan->segments[i];
        if (g->n_layers == 0) run_layer(s, g, 0, thread);
        for (int32_t l = 0; l < g->n_layers; l++)
            run_layer(s, g, s->plan->layer_refs[g->first_layer + l], thread);
    }
}

void tg_step_run(tg_step *s, int32_t thread)
{
    uint32_t fp = tg_fp_begin();
    tg_mem_lock_begin();
    if (s->profile && thread == 0) tg_profile_begin(s->profile, s);
    if (tg_token_blocks_is_worth(s))
        tg_token_blocks_run(s, thread);
    else
        run_plan(s, thread);
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
        int64_t pair = 0, partial = 0;
        z->head_dim = TG_MAX(z->head_dim, a->head_dim);
        z->n_heads = TG_MAX(z->n_heads, a->n_heads);
        if (x->op == TG_OP_QKV) pair = (int64_t)b->tokens * 2 * a->n_kv_heads * a->head_dim;
        if (x->op == TG_OP_GLU_MATMUL)
            pair = (int64_t)b->tokens * 2 *
                   (int64_t)tg_align_up((size_t)plan->values[x->out].width, TG_TILE_ROWS);
        if (x->op == TG_OP_ATTENTION)
            partial = (int64_t)TG_MIN(b->tokens, TG_STEP_GEMV_TOKENS) * a->n_heads * b->pages *
                      (a->head_dim + 2);
        z->pair_floats = TG_MAX(z->pair_floats, pair);
        z->pair_row_floats = TG_MAX(z->pair_row_floats, pair / b->tokens);
        z->partial_floats = TG_MAX(z->partial_floats, partial);
    }
}
