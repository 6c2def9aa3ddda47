/* SPDX-License-Identifier: Apache-2.0
 * program.c - the block's form: writing, finding arrays in it, and questions about a program.
 *
 * Arrays are used where they are mapped. Reading therefore checks twice: here that an array lies
 * inside the block, in verify.c that what it says holds; nothing is read between the two. */
#include "ir/program.h"

#include <inttypes.h>
#include <string.h>

/* ---- the block's form. Arrays are 64-byte aligned; offsets count from its first byte. */

static const char magic[8] = {'T', 'G', 'P', 'R', 'O', 'G', '\r', '\n'};

enum { ARRAY_ALIGN = 64 };

typedef struct header {
    char magic[8];
    int32_t version, n_plans;
    int64_t block_bytes;
    int32_t n_vocab, n_embed_rows, width, max_length, batch, speculation, activations, kv_type;
    int32_t n_layers, n_weights, n_kv_groups, n_outliers, original_length, n_unused;
    int64_t weights_bytes;
    tg_kv_group kv_groups[TG_MAX_KV_GROUPS];
    int64_t layers_at, weights_at, outliers_at, plans_at;
} header;

typedef struct plan_record {
    int32_t kind;
    tg_bucket bucket;
    int32_t n_values, n_instrs, n_segments, n_layer_refs, reserved;
    int64_t arena_bytes;
    int64_t values_at, instrs_at, segments_at, layer_refs_at;
} plan_record;

/* Arrays are written as they lie in memory: no hidden padding may be among them. */
_Static_assert(sizeof(header) == 8 + 2 * 4 + 8 + 14 * 4 + 8 + 8 * 24 + 4 * 8, "header has holes");
_Static_assert(sizeof(plan_record) == 10 * 4 + 5 * 8, "plan_record has holes");
_Static_assert(sizeof(tg_kv_group) == 24 && sizeof(tg_layer) == 8, "format of version 5");
_Static_assert(sizeof(tg_weight_entry) == 56, "format of version 5");
_Static_assert(sizeof(tg_plan_value) == 24 && sizeof(tg_segment) == 16, "format of version 5");
_Static_assert(sizeof(tg_instr) == 4 * (2 + TG_MAX_INPUTS + TG_MAX_WEIGHTS) + sizeof(tg_attrs),
               "tg_instr has holes");

const char *tg_kind_name(tg_graph_kind k)
{
    static const char *const names[TG_KIND_COUNT] = {"context", "token", "speculate"};
    TG_ASSERT((int)k >= 0 && k < TG_KIND_COUNT);
    return names[k];
}

/* ---- writing */

/* Appends an array at the next aligned place; *at is where. */
static void add_array(tg_buf *out, size_t start, const void *items, int32_t n, size_t size,
                      int64_t *at)
{
    static const char zeros[ARRAY_ALIGN];
    size_t used = out->len - start;
    tg_buf_add(out, zeros, tg_align_up(used, ARRAY_ALIGN) - used);
    *at = (int64_t)(out->len - start);
    tg_buf_add(out, items, (size_t)n * size);
}

static header header_of(const tg_program *p)
{
    header h = {
        .version = TG_PROGRAM_VERSION,
        .n_plans = p->n_plans,
        .n_vocab = p->n_vocab,
        .n_embed_rows = p->n_embed_rows,
        .width = p->width,
        .max_length = p->max_length,
        .original_length = p->original_length,
        .batch = p->batch,
        .speculation = p->speculation,
        .activations = p->activations,
        .kv_type = p->kv_type,
        .n_layers = p->n_layers,
        .n_weights = p->n_weights,
        .n_kv_groups = p->n_kv_groups,
        .n_outliers = p->n_outliers,
        .n_unused = p->n_unused,
        .weights_bytes = p->weights_bytes,
    };
    memcpy(h.magic, magic, sizeof magic);
    memcpy(h.kv_groups, p->kv_groups, sizeof h.kv_groups);
    return h;
}

tg_status tg_program_print_block(const tg_program *p, tg_buf *out, tg_err *e)
{
    size_t start = out->len;
    header h = header_of(p);
    tg_buf_add(out, &h, sizeof h);
    add_array(out, start, p->layers, p->n_layers, sizeof *p->layers, &h.layers_at);
    add_array(out, start, p->weights, p->n_weights, sizeof *p->weights, &h.weights_at);
    add_array(out, start, p->outliers, p->n_outliers, sizeof *p->outliers, &h.outliers_at);
    int64_t unused_at; /* found by get_unused */
    add_array(out, start, p->unused, p->n_unused, sizeof *p->unused, &unused_at);

    /* The records come before their arrays, and are filled in once the arrays have a place. */
    plan_record r = {0};
    add_array(out, start, NULL, 0, 0, &h.plans_at);
    for (int32_t i = 0; i < p->n_plans; i++)
        tg_buf_add(out, &r, sizeof r);
    for (int32_t i = 0; i < p->n_plans; i++) {
        const tg_plan *x = &p->plans[i];
        r = (plan_record){x->kind,
                          x->bucket,
                          x->n_values,
                          x->n_instrs,
                          x->n_segments,
                          x->n_layer_refs,
                          0,
                          x->arena_bytes,
                          0,
                          0,
                          0,
                          0};
        add_array(out, start, x->values, x->n_values, sizeof *x->values, &r.values_at);
        add_array(out, start, x->instrs, x->n_instrs, sizeof *x->instrs, &r.instrs_at);
        add_array(out, start, x->segments, x->n_segments, sizeof *x->segments, &r.segments_at);
        add_array(out, start, x->layer_refs, x->n_layer_refs, sizeof *x->layer_refs,
                  &r.layer_refs_at);
        if (!out->is_failed)
            memcpy(out->ptr + start + (size_t)h.plans_at + (size_t)i * sizeof r, &r, sizeof r);
    }
    h.block_bytes = (int64_t)(out->len - start);
    if (!out->is_failed) memcpy(out->ptr + start, &h, sizeof h);
    return tg_buf_check(out, e);
}

/* ---- reading: the bounds of arrays here, what they say in verify.c */

typedef struct reader {
    const uint8_t *block;
    size_t n;
} reader;

static tg_status get_array(const reader *r, int64_t at, int32_t count, size_t size,
                           const char *what, const void **out, tg_err *e)
{
    if (count < 0 || at < 0 || at % 8 || (uint64_t)at > r->n ||
        (uint64_t)count * size > r->n - (uint64_t)at)
        return tg_fail(e, TG_E_CORRUPT,
                       "the %s (%d of %zu bytes at byte %" PRId64
                       ") lie outside the program's %zu bytes",
                       what, count, size, at, r->n);
    *out = r->block + at;
    return TG_OK;
}

static tg_status read_plan(const reader *r, const plan_record *record, tg_plan *out, tg_err *e)
{
    *out = (tg_plan){.kind = record->kind,
                     .bucket = record->bucket,
                     .n_values = record->n_values,
                     .n_instrs = record->n_instrs,
                     .n_segments = record->n_segments,
                     .n_layer_refs = record->n_layer_refs,
                     .arena_bytes = record->arena_bytes};
    const void *values, *instrs, *segments, *refs;
    TG_TRY(
        get_array(r, record->values_at, out->n_values, sizeof *out->values, "values", &values, e));
    TG_TRY(get_array(r, record->instrs_at, out->n_instrs, sizeof *out->instrs, "instructions",
                     &instrs, e));
    TG_TRY(get_array(r, record->segments_at, out->n_segments, sizeof *out->segments, "segments",
                     &segments, e));
    TG_TRY(get_array(r, record->layer_refs_at, out->n_layer_refs, sizeof *out->layer_refs,
                     "layer references", &refs, e));
    out->values = values;
    out->instrs = instrs;
    out->segments = segments;
    out->layer_refs = refs;
    return TG_OK;
}

static tg_status read_header(const reader *r, header *h, tg_err *e)
{
    if (r->n < sizeof *h || memcmp(r->block, magic, sizeof magic) != 0)
        return tg_fail(e, TG_E_CORRUPT, "this is no program: %zu bytes without its header", r->n);
    memcpy(h, r->block, sizeof *h);
    if (h->version != TG_PROGRAM_VERSION)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "the program has format %d, this build reads %d; export the model again",
                       h->version, TG_PROGRAM_VERSION);
    if (h->block_bytes != (int64_t)r->n)
        return tg_fail(e, TG_E_CORRUPT, "the program says %" PRId64 " bytes and has %zu",
                       h->block_bytes, r->n);
    if (h->n_plans < 1 || h->n_plans > TG_MAX_PLANS)
        return tg_fail(e, TG_E_CORRUPT, "the program has %d plans; 1 to %d are allowed", h->n_plans,
                       TG_MAX_PLANS);
    return TG_OK;
}

/* Unused ids follow the outlier groups, which were checked: their place is not stored. */
static tg_status get_unused(const reader *r, const header *h, const void **out, tg_err *e)
{
    size_t end = (size_t)h->outliers_at + (size_t)h->n_outliers * sizeof(int32_t);
    *out = NULL;
    if (h->n_unused == 0) return TG_OK;
    return get_array(r, (int64_t)tg_align_up(end, ARRAY_ALIGN), h->n_unused, sizeof(int32_t),
                     "unused ids", out, e);
}

tg_status tg_program_open(tg_program *out, tg_arena *arena, const void *block, size_t n, tg_err *e)
{
    *out = (tg_program){0};
    TG_ASSERT((uintptr_t)block % 8 == 0);
    reader r = {block, n};
    header h;
    TG_TRY(read_header(&r, &h, e));
    tg_program p = {
        .n_vocab = h.n_vocab,
        .n_embed_rows = h.n_embed_rows,
        .width = h.width,
        .max_length = h.max_length,
        .original_length = h.original_length,
        .batch = h.batch,
        .speculation = h.speculation,
        .activations = h.activations,
        .kv_type = h.kv_type,
        .n_layers = h.n_layers,
        .n_weights = h.n_weights,
        .n_kv_groups = h.n_kv_groups,
        .n_outliers = h.n_outliers,
        .n_unused = h.n_unused,
        .n_plans = h.n_plans,
        .weights_bytes = h.weights_bytes,
    };
    memcpy(p.kv_groups, h.kv_groups, sizeof p.kv_groups);
    const void *layers, *weights, *outliers, *unused, *records;
    TG_TRY(get_array(&r, h.layers_at, h.n_layers, sizeof *p.layers, "layers", &layers, e));
    TG_TRY(get_array(&r, h.weights_at, h.n_weights, sizeof *p.weights, "weights", &weights, e));
    TG_TRY(get_array(&r, h.outliers_at, h.n_outliers, sizeof *p.outliers, "outlier groups",
                     &outliers, e));
    TG_TRY(get_unused(&r, &h, &unused, e));
    TG_TRY(get_array(&r, h.plans_at, h.n_plans, sizeof(plan_record), "plans", &records, e));
    tg_plan *plans = TG_ARENA_ARRAY(arena, tg_plan, h.n_plans);
    if (!plans) return tg_fail_nomem(e, sizeof *plans * (size_t)h.n_plans, "the table of plans");
    for (int32_t i = 0; i < h.n_plans; i++) {
        plan_record record;
        memcpy(&record, (const plan_record *)records + i, sizeof record);
        TG_TRY(read_plan(&r, &record, &plans[i], e));
    }
    p.layers = layers;
    p.weights = weights;
    p.outliers = outliers;
    p.unused = unused;
    p.plans = plans;
    TG_TRY(tg_program_check(&p, e));
    *out = p;
    return TG_OK;
}

/* ---- asking */

/* One row per tg_kv_type: its name, the bytes that 64 positions of one dimension take, how many
 * dimensions go together, and the bytes that each SCALE_DIMS of them take besides. */
enum { SCALE_DIMS = 64 };

static const struct kv_row {
    const char *name;
    int32_t dim_bytes, n_dims, scale_bytes;
} kv_rows[TG_KV_TYPE_COUNT] = {[TG_KV_F32] = {"f32", 256, 1, 0},
                               [TG_KV_F16] = {"f16", 128, 1, 0},
                               [TG_KV_BF16] = {"bf16", 128, 2, 0},
                               [TG_KV_Q8] = {"q8", 68, 32, 0},
                               [TG_KV_Q16] = {"q16", 128, 2, 256}};

const char *tg_kv_type_name(int32_t kv_type)
{
    return kv_rows[kv_type].name;
}

int32_t tg_kv_type_dims(int32_t kv_type)
{
    return kv_rows[kv_type].n_dims;
}

int64_t tg_kv_page_bytes(const tg_kv_group *g, int32_t kv_type)
{
    const struct kv_row *row = &kv_rows[kv_type];
    if (g->head_dim % row->n_dims != 0) return -1;
    int64_t n = (int64_t)g->head_dim * row->dim_bytes;
    n += tg_div_up(g->head_dim, SCALE_DIMS) * row->scale_bytes;
    if (!tg_mul_i64(n, g->n_layers, &n) || !tg_mul_i64(n, g->n_kv_heads, &n) ||
        !tg_mul_i64(n, 2, &n))
        return -1;
    return n;
}

int64_t tg_weight_tile_bytes(const tg_weight_entry *w)
{
    return (int64_t)tg_layout_tile_bytes((tg_layout)w->layout, w->cols);
}

int32_t tg_plan_n_rows(const tg_plan *plan, const tg_plan_value *v)
{
    return v->dim == TG_DIM_T ? plan->bucket.tokens : plan->bucket.outs;
}

int64_t tg_plan_value_bytes(const tg_plan *plan, const tg_plan_value *v)
{
    return (int64_t)tg_plan_n_rows(plan, v) * v->width * 4;
}

/* Order of the weight table. */
static int compare_weights(int32_t role, int32_t layer, const tg_weight_entry *w)
{
    if (role != w->role) return role < w->role ? -1 : 1;
    return layer < w->layer ? -1 : layer > w->layer;
}

bool tg_program_is_long(const tg_program *p, int32_t n_tokens)
{
    return p->original_length > 0 && n_tokens > p->original_length;
}

const tg_weight_entry *tg_program_find_weight(const tg_program *p, tg_weight_role role,
                                              int32_t layer)
{
    if (!tg_weight_role_is_per_layer(role)) layer = 0;
    int32_t low = 0, high = p->n_weights;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        int order = compare_weights((int32_t)role, layer, &p->weights[mid]);
        if (order == 0) return &p->weights[mid];
        if (order < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

const tg_weight_entry *tg_program_find_quantized(const tg_program *p, const tg_instr *x,
                                                 int32_t layer)
{
    const tg_op_row *row = tg_op_get((tg_op)x->op);
    for (int32_t i = 0; i < row->n_slots; i++) {
        if (x->weights[i] == TG_NONE || row->slots[i].is_plain) continue;
        const tg_weight_entry *w = tg_program_find_weight(p, (tg_weight_role)x->weights[i], layer);
        if (w && tg_layout_rows[w->layout].is_quantized) return w;
    }
    return NULL;
}

const tg_plan *tg_program_find_plan(const tg_program *p, tg_graph_kind kind, int32_t rows,
                                    int32_t tokens, int32_t outs, int32_t pages)
{
    for (int32_t i = 0; i < p->n_plans; i++) {
        const tg_bucket *b = &p->plans[i].bucket;
        if (p->plans[i].kind == (int32_t)kind && b->rows >= rows && b->tokens >= tokens &&
            b->outs >= outs && b->pages >= pages)
            return &p->plans[i];
    }
    return NULL;
}

int32_t tg_program_max_tokens(const tg_program *p, tg_graph_kind kind)
{
    int32_t most = 0;
    for (int32_t i = 0; i < p->n_plans; i++)
        if (p->plans[i].kind == (int32_t)kind) most = TG_MAX(most, p->plans[i].bucket.tokens);
    return most;
}
