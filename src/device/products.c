/* SPDX-License-Identifier: Apache-2.0
 * products.c - the instructions of a plan that multiply by matrices. */
#include "device/step.h"

/* ---- prefetching weights */

/* Bytes prefetched at once: more than the lines a processor may have on their way would
 * only make it wait (16 kB and 32 kB at a time are no faster than nothing, Zen 4). */
enum { AHEAD_BYTES = 2048 };

void tg_step_prefetch(const tg_step_view *v)
{
    tg_step_private *mine = v->mine;
    size_t n = TG_MIN(mine->ahead_bytes, (size_t)AHEAD_BYTES);
    for (size_t i = 0; i < n; i += 64)
        __builtin_prefetch(mine->ahead + i, 0, 2); /* to the second-level cache */
    if (n) mine->ahead += n;
    mine->ahead_bytes -= n;
}

/* After a QKV: the thread's next weights are its tiles of the matrix behind attention. */
static void aim_prefetch(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    tg_step_private *mine = v->mine;
    mine->ahead_bytes = 0;
    const tg_instr *end = v->step->plan->instrs + v->step->plan->n_instrs;
    for (x++; x < end; x++) {
        if (x->op == TG_OP_ATTENTION) continue;
        if (x->op != TG_OP_MATMUL && x->op != TG_OP_MATMUL_ADD) return;
        const tg_step_weight *w =
            tg_step_find_weight(v->step->weights, x->weights[TG_SLOT_W], layer);
        int64_t begin, end_tile;
        tg_step_share(v, tg_div_up(w->entry->rows, TG_TILE_ROWS), &begin, &end_tile);
        mine->ahead = w->data + begin * w->entry->tile_stride;
        mine->ahead_bytes = (size_t)((end_tile - begin) * w->entry->tile_stride);
        return;
    }
}

/* ---- inputs of matrices */

/* A matrix's input in the two forms that layouts read. */
typedef struct tg_step_input {
    const float *x; /* [T][stride], normed where the instruction says so */
    int64_t stride;
    const tg_a8 *a8;
    int32_t n_rows, n_cols;
} input;

typedef struct norm {
    const float *w; /* NULL: none */
    float eps;
} norm;

static void prepare_rows(const tg_step_view *v, const input *in, const norm *n, float *normed,
                         const tg_a8 *a8, int64_t begin, int64_t end)
{
    for (int64_t t = begin; t < end; t++) {
        const float *row = in->x + t * in->stride;
        if (n->w) {
            v->step->kernels->rms_norm(normed + t * in->n_cols, row, n->w, in->n_cols, n->eps);
            row = normed + t * in->n_cols;
        }
        if (!a8) continue;
        tg_a8 to = tg_a8_from(a8, t);
        v->step->kernels->quantize(&to, row, in->n_cols);
    }
}

/* The form of input that the quantized matrices among n roles read; top is 0 where there are none.
 * All that read one input list the same outlier groups. */
static tg_a8_kind get_kind(const tg_step_view *v, const int32_t *roles, int32_t n, int32_t layer)
{
    tg_a8_kind kind = {0};
    for (int32_t i = 0; i < n; i++) {
        const tg_step_weight *w = tg_step_find_weight(v->step->weights, roles[i], layer);
        if (!w->entry || !tg_layout_rows[w->entry->layout].is_quantized) continue;
        int32_t top = tg_a8_top((tg_layout)w->entry->layout);
        kind.outliers = w->outliers;
        kind.n_outliers = w->entry->n_outliers;
        kind.top = kind.top ? TG_MIN(kind.top, top) : top;
    }
    kind.has_pairs = v->step->has_pairs && kind.top < TG_A8_TOP;
    return kind;
}

/* Norms and quantizes value `id` for an instruction whose matrices read `kind`. On return this
 * thread can read the input. */
static input prepare(const tg_step_view *v, int32_t id, norm n, tg_a8_kind kind)
{
    bool is_quantized = kind.top > 0;
    tg_step_private *mine = v->mine;
    input in = {.n_rows = tg_step_n_rows(v, id), .n_cols = v->step->plan->values[id].width};
    in.x = tg_step_value(v, id, &in.stride);
    if (!n.w && !is_quantized) return in;
    if (in.n_rows < TG_PAIR_TOKENS) kind.has_pairs = false;

    bool is_private =
        in.n_rows < TG_STEP_SHARED_ROWS || (v->n_threads == 1 && in.n_rows <= TG_STEP_GEMV_TOKENS);
    float *normed = is_private ? mine->normed : v->scratch->normed;
    /* The memory serves inputs of every width: each thread lays it out for this one, all alike. */
    tg_a8_place(&mine->a8, is_private ? mine->a8_memory : v->scratch->a8_memory,
                TG_MAX(in.n_rows, 1), in.n_cols, &kind);

    int64_t begin = 0, end = in.n_rows;
    if (!is_private) tg_step_share(v, in.n_rows, &begin, &end);
    prepare_rows(v, &in, &n, normed, is_quantized ? &mine->a8 : NULL, begin, end);
    if (n.w) {
        in.x = normed;
        in.stride = in.n_cols;
    }
    in.a8 = &mine->a8;
    if (!is_private) tg_step_barrier(v);
    return in;
}

/* y = W x for the tiles [begin, end) of a matrix. */
typedef struct product {
    int32_t role;
    int32_t n_rows; /* of W to multiply: the width of the result */
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

static void show_input(const tg_step_view *v, const tg_step_weight *w, const input *in)
{
    tg_cpu_input shown = {.x = in->x, .stride = in->stride, .n_rows = in->n_rows};
    if (in->a8) {
        shown.scales = in->a8->scale;
        shown.scale_stride = in->a8->padded / TG_GROUP_COLS;
    }
    v->step->watch(v->step->watch_context, w->entry, &shown);
}

static void multiply(const tg_step_view *v, const input *in, const product *p, int32_t layer,
                     int64_t begin, int64_t end)
{
    const tg_step_weight *w = tg_step_find_weight(v->step->weights, p->role, layer);
    if (begin >= end || in->n_rows == 0) return;
    if (v->step->watch && begin == 0) show_input(v, w, in); /* one thread has the first tile */
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
        .prefetch_bytes = v->step->prefetch_bytes,
        .scratch = v->mine->matmul,
    };
    v->step->kernels->matmul[w->entry->layout](&m);
}

/* ---- handlers */

void tg_step_matmul(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    int32_t role = x->weights[TG_SLOT_W];
    norm n = {tg_step_vector(v, x, TG_SLOT_NORM, layer), x->attrs.eps};
    input in = prepare(v, x->in[0], n, get_kind(v, &role, 1, layer));
    product p = {.role = role,
                 .n_rows = v->step->plan->values[x->out].width,
                 .bias = tg_step_vector(v, x, TG_SLOT_BIAS, layer)};
    int64_t begin, end;
    p.y = tg_step_value(v, x->out, &p.y_stride);
    tg_step_share(v, n_tiles_of(&p), &begin, &end);
    multiply(v, &in, &p, layer, begin, end);
}

void tg_step_matmul_add(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    int32_t role = x->weights[TG_SLOT_W];
    input in = prepare(v, x->in[1], (norm){0}, get_kind(v, &role, 1, layer));
    product p = {.role = role,
                 .n_rows = v->step->plan->values[x->out].width,
                 .bias = tg_step_vector(v, x, TG_SLOT_BIAS, layer),
                 .is_add = true};
    int64_t begin, end, stride;
    p.y = tg_step_value(v, x->out, &p.y_stride);
    TG_ASSERT(p.y == tg_step_value(v, x->in[0], &stride)); /* the plan made it in place */
    tg_step_share(v, n_tiles_of(&p), &begin, &end);
    multiply(v, &in, &p, layer, begin, end);
}

/* ---- gate and up
 *
 * A thread's weight rows of gate and up are the same: what it multiplies it also combines. Three
 * ways, the same bits. */

static product make_glu_half(const tg_step_view *v, const tg_instr *x, int32_t slot, int32_t layer)
{
    bool is_gate = slot == TG_SLOT_GLU_GATE;
    int32_t bias = is_gate ? TG_SLOT_GLU_GATE_BIAS : TG_SLOT_GLU_UP_BIAS;
    return (product){.role = x->weights[slot],
                     .n_rows = v->step->plan->values[x->out].width,
                     .bias = tg_step_vector(v, x, bias, layer)};
}

/* The matrices one after the other, gate straight into the result. */
static void run_glu_apart(const tg_step_view *v, const tg_instr *x, const input *in, int32_t layer,
                          int64_t begin, int64_t end)
{
    product gate = make_glu_half(v, x, TG_SLOT_GLU_GATE, layer);
    product up = make_glu_half(v, x, TG_SLOT_GLU_UP, layer);
    int64_t at = begin * TG_TILE_ROWS, n_cols = TG_MIN(end * TG_TILE_ROWS, gate.n_rows) - at;
    gate.y = tg_step_value(v, x->out, &gate.y_stride);
    up.y = v->scratch->products.up;
    up.y_stride = up.n_rows;
    multiply(v, in, &gate, layer, begin, end);
    multiply(v, in, &up, layer, begin, end);
    for (int64_t t = 0; t < in->n_rows && n_cols > 0; t++) {
        float *y = gate.y + t * gate.y_stride + at;
        v->step->kernels->glu[x->attrs.act](y, y, up.y + t * up.y_stride + at, (int32_t)n_cols);
    }
}

/* Tiles [begin, end) of both as one matrix of twice the tiles: 16 rows of gate, 16 of up, and so
 * on. */
static void multiply_interleaved(const tg_step_view *v, const tg_step_weight *gate, const input *in,
                                 float *y, int64_t y_stride, int64_t begin, int64_t end)
{
    int64_t n_tiles = 2 * (end - begin);
    tg_matmul m = {
        .w = gate->data + begin * gate->entry->tile_stride,
        .tile_stride = (size_t)gate->entry->tile_stride / 2,
        .n_tiles = (int32_t)n_tiles,
        .n_rows = (int32_t)(n_tiles * TG_TILE_ROWS),
        .n_cols = (int32_t)gate->entry->cols,
        .n_tokens = in->n_rows,
        .a8 = in->a8,
        .x = in->x,
        .x_stride = in->stride,
        .y = y + 2 * begin * TG_TILE_ROWS,
        .y_stride = y_stride,
        .prefetch_bytes = v->step->prefetch_bytes,
        .scratch = v->mine->matmul,
    };
    v->step->kernels->matmul[gate->entry->layout](&m);
}

/* Gate and up interleaved by the packer, without biases, which are not interleaved. */
static void run_glu_interleaved(const tg_step_view *v, const tg_instr *x, const input *in,
                                int32_t layer, int64_t begin, int64_t end)
{
    const tg_step_weight *gate =
        tg_step_find_weight(v->step->weights, x->weights[TG_SLOT_GLU_GATE], layer);
    int64_t width = v->step->plan->values[x->out].width;
    int64_t stride = 2 * tg_div_up(width, TG_TILE_ROWS) * TG_TILE_ROWS, y_stride;
    float *tiles = v->scratch->products.interleaved, *y = tg_step_value(v, x->out, &y_stride);
    int64_t at = begin * TG_TILE_ROWS, limit = TG_MIN(end * TG_TILE_ROWS, width);
    if (begin >= end || in->n_rows == 0) return;
    if (v->step->watch && begin == 0) {
        show_input(v, gate, in);
        show_input(v, tg_step_find_weight(v->step->weights, x->weights[TG_SLOT_GLU_UP], layer), in);
    }
    multiply_interleaved(v, gate, in, tiles, stride, begin, end);
    const tg_kernels *kernels = v->step->kernels;
    int32_t act = x->attrs.act;
    for (int64_t t = 0; t < in->n_rows; t++)
        for (int64_t c = at; c < limit; c += TG_TILE_ROWS) {
            const float *gate_tile = tiles + t * stride + 2 * c;
            kernels->glu[act](y + t * y_stride + c, gate_tile, gate_tile + TG_TILE_ROWS,
                              (int32_t)TG_MIN(limit - c, TG_TILE_ROWS));
        }
}

/* Tiles of gate and of up that run_glu_gemm multiplies before it combines them. */
enum { GLU_TILES = 8 };

/* Of many tokens, GLU_TILES at a time: gate and up are combined in the second-level cache, where
 * they were made, and never reach memory. */
static void run_glu_gemm(const tg_step_view *v, const tg_instr *x, const input *in, int32_t layer,
                         int64_t begin, int64_t end)
{
    product gate = make_glu_half(v, x, TG_SLOT_GLU_GATE, layer);
    product up = make_glu_half(v, x, TG_SLOT_GLU_UP, layer);
    int64_t stride;
    float *y = tg_step_value(v, x->out, &stride);
    gate.y = v->scratch->products.tiles + 2 * begin * TG_TILE_ROWS * in->n_rows;
    for (int64_t i = begin; i < end; i += GLU_TILES) {
        int64_t next = TG_MIN(i + GLU_TILES, end), at = i * TG_TILE_ROWS;
        int64_t n_cols = TG_MIN(next * TG_TILE_ROWS, gate.n_rows) - at;
        gate.first_row = up.first_row = at;
        gate.y_stride = up.y_stride = n_cols;
        up.y = gate.y + in->n_rows * n_cols;
        multiply(v, in, &gate, layer, i, next);
        multiply(v, in, &up, layer, i, next);
        for (int64_t t = 0; t < in->n_rows; t++)
            v->step->kernels->glu[x->attrs.act](y + t * stride + at, gate.y + t * n_cols,
                                                up.y + t * n_cols, (int32_t)n_cols);
    }
}

static bool is_interleaved(const tg_weight_entry *gate, const tg_weight_entry *up)
{
    int64_t tile_bytes = up->offset - gate->offset;
    return gate->layout == up->layout && tile_bytes > 0 && gate->tile_stride == 2 * tile_bytes &&
           up->tile_stride == gate->tile_stride;
}

static const tg_step_weight *find_slot(const tg_step_weight *weights, const tg_instr *x,
                                       int32_t slot, int32_t layer)
{
    int32_t role = x->weights[slot];
    return role == TG_NONE ? NULL : tg_step_find_weight(weights, role, layer);
}

tg_step_glu_fn *tg_step_choose_glu(const tg_step_weight *weights, const tg_instr *x, int32_t layer)
{
    const tg_step_weight *gate_bias = find_slot(weights, x, TG_SLOT_GLU_GATE_BIAS, layer);
    const tg_step_weight *up_bias = find_slot(weights, x, TG_SLOT_GLU_UP_BIAS, layer);
    bool has_bias = (gate_bias && gate_bias->data) || (up_bias && up_bias->data);
    const tg_step_weight *gate = find_slot(weights, x, TG_SLOT_GLU_GATE, layer);
    const tg_step_weight *up = find_slot(weights, x, TG_SLOT_GLU_UP, layer);
    return !has_bias && is_interleaved(gate->entry, up->entry) ? run_glu_interleaved
                                                               : run_glu_apart;
}

void tg_step_glu_matmul(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const int32_t *w = x->weights;
    norm n = {tg_step_vector(v, x, TG_SLOT_GLU_NORM, layer), x->attrs.eps};
    int32_t roles[] = {w[TG_SLOT_GLU_GATE], w[TG_SLOT_GLU_UP]};
    input in = prepare(v, x->in[0], n, get_kind(v, roles, 2, layer));
    int64_t begin, end;
    tg_step_share(v, tg_div_up(v->step->plan->values[x->out].width, TG_TILE_ROWS), &begin, &end);
    int64_t at = (x - v->step->plan->instrs) * (int64_t)v->step->program->n_layers + layer;
    tg_step_glu_fn *run = in.n_rows > TG_STEP_GEMV_TOKENS ? run_glu_gemm : v->step->glu[at];
    run(v, x, &in, layer, begin, end);
}

/* ---- q, k and v */

/* The tiles of q, k and v, one after the other, are dealt as one list. */
static void multiply_qkv(const tg_step_view *v, const input *in, const product p[3], int32_t layer)
{
    int64_t begin, end, before = 0, n_all = 0;
    for (int32_t i = 0; i < 3; i++)
        n_all += n_tiles_of(&p[i]);
    tg_step_share(v, n_all, &begin, &end);
    for (int32_t i = 0; i < 3; i++) {
        int64_t n = n_tiles_of(&p[i]);
        multiply(v, in, &p[i], layer, TG_MAX(begin - before, 0), TG_MIN(end - before, n));
        before += n;
    }
}

/* The input of q, k and v keeps all codes: smaller ones would cost most of the accuracy there, and
 * bring a sixth of the time that column pairs save. Mean KL without column pairs, with them except
 * here, and with them everywhere: SmolLM2 0.00159, 0.00166, 0.00178; Gemma 3 0.00145, 0.00160,
 * 0.00184. */
static tg_a8_kind get_qkv_kind(const tg_step_view *v, const int32_t *roles, int32_t layer)
{
    tg_a8_kind kind = get_kind(v, roles, 3, layer);
    kind.has_pairs = false;
    if (kind.top) kind.top = TG_A8_TOP;
    return kind;
}

void tg_step_qkv(const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const tg_attrs *a = &x->attrs;
    const int32_t *w = x->weights;
    norm n = {tg_step_vector(v, x, TG_SLOT_QKV_NORM, layer), a->eps};
    input in = prepare(v, x->in[0], n, get_qkv_kind(v, &w[TG_SLOT_QKV_Q], layer));
    int64_t kv_width = (int64_t)a->n_kv_heads * a->head_dim;
    product p[3];
    for (int32_t i = 0; i < 3; i++)
        p[i] = (product){.role = w[TG_SLOT_QKV_Q + i],
                         .n_rows = (int32_t)kv_width,
                         .bias = tg_step_vector(v, x, TG_SLOT_QKV_Q_BIAS + i, layer),
                         .y = v->scratch->products.keys_values + (i == 2 ? kv_width : 0),
                         .y_stride = 2 * kv_width};
    p[0].n_rows = v->step->plan->values[x->out].width;
    p[0].y = tg_step_value(v, x->out, &p[0].y_stride);
    multiply_qkv(v, &in, p, layer);
    aim_prefetch(v, x, layer);
    tg_step_barrier(v); /* tiles do not end where heads do */
    tg_step_finish_heads(v, x, layer);
}
