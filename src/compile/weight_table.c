/* SPDX-License-Identifier: Apache-2.0
 * weight_table.c - where each weight lies in the rank's file.
 *
 * First the vectors and tables, then the matrices in the order in which a step reads them: layer by
 * layer, within a layer as the instructions stand, then the head and last the embedding (the same
 * bytes when they are tied). So each thread reads one ascending stream. Gate and up of one
 * glu_matmul are interleaved tile by tile when their tiles are alike, as they are multiplied
 * together. */
#include "compile/pass.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ALIGN = 64 };

typedef struct work {
    const tg_graph *g;
    tg_choose_layout_fn *choose;
    void *context;
    tg_weight_entry *entries;
    int32_t n_entries;
    bool *is_placed; /* [TG_W_COUNT][n_layers] */
    int64_t end;     /* of the file so far */
    bool is_plain;   /* which of the two sorts this walk places */
} work;

static bool *find_placed(const work *w, int32_t role, int32_t layer)
{
    int32_t column = tg_weight_role_is_per_layer((tg_weight_role)role) ? layer : 0;
    return &w->is_placed[(size_t)role * (size_t)w->g->n_layers + (size_t)column];
}

/* Takes n_bytes at the end of the file; false when the file grows beyond what can be counted. */
static bool take(work *w, int64_t n_bytes, int64_t *offset)
{
    *offset = w->end;
    if (n_bytes < 0 || n_bytes > INT64_MAX - ALIGN - w->end) return false;
    w->end += (int64_t)tg_align_up((size_t)n_bytes, ALIGN);
    return true;
}

/* Bytes from one tile to the next when nothing lies between them. */
static int64_t tile_step(const tg_weight_entry *x)
{
    return (int64_t)tg_align_up((size_t)tg_weight_tile_bytes(x), ALIGN);
}

/* A new entry with everything but its place. */
static tg_status add_entry(work *w, int32_t role, int32_t layer, tg_weight_entry **out, tg_err *e)
{
    const tg_weight_shape *shape = tg_graph_find_shape(w->g, (tg_weight_role)role, layer);
    bool is_per_layer = tg_weight_role_is_per_layer((tg_weight_role)role);
    tg_layout layout = TG_LAYOUT_F32;
    if (!tg_weight_role_is_computed((tg_weight_role)role))
        TG_TRY(w->choose(w->context, (tg_weight_role)role, layer, w->is_plain, &layout, e));
    *find_placed(w, role, layer) = true;
    *out = &w->entries[w->n_entries++];
    **out = (tg_weight_entry){.role = role,
                              .layer = is_per_layer ? layer : 0,
                              .layout = (int32_t)(w->is_plain ? TG_LAYOUT_F32 : layout),
                              .is_plain = w->is_plain,
                              .rows = shape->rows,
                              .cols = shape->cols};
    return TG_OK;
}

static tg_status place_entry(work *w, tg_weight_entry *x, tg_err *e)
{
    int64_t n_bytes, n_tiles = tg_div_up(x->rows, TG_TILE_ROWS);
    bool is_right;
    if (x->is_plain) {
        is_right = tg_mul_i64(x->rows, x->cols, &n_bytes) && tg_mul_i64(n_bytes, 4, &n_bytes);
    } else {
        x->tile_stride = tile_step(x);
        is_right = tg_mul_i64(n_tiles, x->tile_stride, &n_bytes);
    }
    if (is_right && take(w, n_bytes, &x->offset)) return TG_OK;
    return tg_fail(e, TG_E_UNSUPPORTED, "weight '%s' of [%" PRId64 ", %" PRId64 "] is too large",
                   tg_weight_role_name((tg_weight_role)x->role), x->rows, x->cols);
}

static bool is_alike(const tg_weight_entry *a, const tg_weight_entry *b)
{
    return a->layout == b->layout && a->rows == b->rows && a->cols == b->cols;
}

/* The matrices of slots 0 and 1 (gate and up) tile by tile, or one after the other where their
 * tiles differ. */
static tg_status place_interleaved(work *w, const tg_node *n, int32_t layer, tg_err *e)
{
    tg_weight_entry *first, *second;
    TG_TRY(add_entry(w, n->weights[0], layer, &first, e));
    TG_TRY(add_entry(w, n->weights[1], layer, &second, e));
    TG_TRY(place_entry(w, first, e));
    TG_TRY(place_entry(w, second, e));
    if (!is_alike(first, second)) return TG_OK;
    first->tile_stride = second->tile_stride = 2 * tile_step(first);
    second->offset = first->offset + tile_step(first);
    return TG_OK;
}

static tg_status place_node(work *w, const tg_node *n, int32_t layer, tg_err *e)
{
    const tg_op_row *row = tg_op_get(n->op);
    if (!w->is_plain && row->is_interleaved && n->weights[0] != n->weights[1] &&
        !*find_placed(w, n->weights[0], layer) && !*find_placed(w, n->weights[1], layer))
        return place_interleaved(w, n, layer, e);
    for (int32_t i = 0; i < row->n_slots; i++) {
        if (n->weights[i] == TG_NONE || row->slots[i].is_plain != w->is_plain ||
            *find_placed(w, n->weights[i], layer))
            continue;
        tg_weight_entry *x;
        TG_TRY(add_entry(w, n->weights[i], layer, &x, e));
        TG_TRY(place_entry(w, x, e));
    }
    return TG_OK;
}

static tg_status place_block(work *w, const tg_graph_block *b, int32_t layer, tg_err *e)
{
    for (int32_t i = 0; i < b->n_nodes; i++)
        TG_TRY(place_node(w, &b->nodes[i], layer, e));
    return TG_OK;
}

static tg_status place_all(work *w, tg_err *e)
{
    for (int sort = 0; sort < 2; sort++) {
        w->is_plain = sort == 0;
        for (int32_t l = 0; l < w->g->n_layers; l++)
            TG_TRY(place_block(w, &w->g->bodies[w->g->layer_body[l]], l, e));
        TG_TRY(place_block(w, &w->g->tail, 0, e));
        TG_TRY(place_block(w, &w->g->head, 0, e));
    }
    return TG_OK;
}

/* The order of the table: role, then layer. */
static int compare_entries(const void *a, const void *b)
{
    const tg_weight_entry *x = a, *y = b;
    if (x->role != y->role) return x->role < y->role ? -1 : 1;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

tg_status tg_graph_place_weights(const tg_graph *g, tg_program *p, tg_arena *arena,
                                 tg_choose_layout_fn *choose, void *context, tg_err *e)
{
    int32_t n_most = TG_W_COUNT * g->n_layers, n_uses = 0;
    for (int32_t role = 0; role < TG_W_COUNT; role++)
        for (int32_t l = 0; l < g->n_layers; l++)
            n_uses += tg_graph_find_shape(g, (tg_weight_role)role, l)->is_present;
    work w = {.g = g, .choose = choose, .context = context};
    w.entries = TG_ARENA_ARRAY(arena, tg_weight_entry, n_uses);
    w.is_placed = TG_NEW_ARRAY(bool, n_most);
    tg_status s = w.entries && w.is_placed ? place_all(&w, e)
                                           : tg_fail_nomem(e, (size_t)n_uses * sizeof *w.entries,
                                                           "the table of weights");
    tg_mem_free(w.is_placed);
    if (s != TG_OK) return s;
    if (w.n_entries) qsort(w.entries, (size_t)w.n_entries, sizeof *w.entries, compare_entries);
    p->weights = w.entries;
    p->n_weights = w.n_entries;
    p->weights_bytes = w.end;
    return TG_OK;
}
