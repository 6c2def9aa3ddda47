/* SPDX-License-Identifier: Apache-2.0
 * verify.c - everything a device relies on, checked once: numbers in range, weights inside their
 * file, KV groups as the layers need them, instructions whose inputs exist, fit and do not
 * overlap. The cost is bounded by the limits of program.h, whatever a file says. */
#include "ir/infer.h"
#include "ir/program.h"

#include <inttypes.h>
#include <string.h>

static bool is_in(int64_t n, int64_t low, int64_t high)
{
    return n >= low && n <= high;
}

static tg_status fail_number(tg_err *e, const char *what, int64_t n, int64_t low, int64_t high)
{
    return tg_fail(e, TG_E_CORRUPT, "%s is %" PRId64 "; it must be %" PRId64 " to %" PRId64, what,
                   n, low, high);
}

static tg_status check_numbers(const tg_program *p, tg_err *e)
{
    const struct {
        const char *what;
        int64_t n, low, high;
    } rules[] = {
        {"n_vocab", p->n_vocab, 1, INT32_MAX - 15}, /* logits are padded to 16 */
        {"n_embed_rows", p->n_embed_rows, p->n_vocab, INT32_MAX},
        {"width", p->width, 1, INT32_MAX},
        {"max_length", p->max_length, 1, TG_MAX_LENGTH},
        {"original_length", p->original_length, 0, TG_MAX_LENGTH - 1},
        {"batch", p->batch, 1, TG_MAX_BATCH},
        {"speculation", p->speculation, 0, TG_MAX_SPECULATION},
        {"activations", p->activations, 0, TG_ACTIVATIONS_INT16},
        {"kv_type", p->kv_type, 0, TG_KV_TYPE_COUNT - 1},
        {"n_unused", p->n_unused, 0, p->n_vocab - 1},
        {"n_layers", p->n_layers, 1, TG_MAX_LAYERS},
        {"n_weights", p->n_weights, 1, (int64_t)TG_W_COUNT * TG_MAX_LAYERS},
        {"n_kv_groups", p->n_kv_groups, 0, TG_MAX_KV_GROUPS},
        {"n_plans", p->n_plans, 1, TG_MAX_PLANS},
        {"weights_bytes", p->weights_bytes, 1, INT64_MAX},
    };
    for (size_t i = 0; i < TG_COUNT(rules); i++)
        if (!is_in(rules[i].n, rules[i].low, rules[i].high))
            return fail_number(e, rules[i].what, rules[i].n, rules[i].low, rules[i].high);
    return TG_OK;
}

static tg_status check_unused(const tg_program *p, tg_err *e)
{
    for (int32_t i = 0; i < p->n_unused; i++)
        if (!is_in(p->unused[i], i ? p->unused[i - 1] + 1 : 0, p->n_vocab - 1))
            return tg_fail(e, TG_E_CORRUPT, "unused id %d is %d; ids ascend and end at %d", i,
                           p->unused[i], p->n_vocab - 1);
    return TG_OK;
}

/* ---- weights */

/* The last byte that a weight reads, one further; false when that does not fit. */
static bool find_weight_end(const tg_weight_entry *w, int64_t *end)
{
    if (w->is_plain) {
        if (!tg_mul_i64(w->rows, w->cols, end) || !tg_mul_i64(*end, 4, end)) return false;
    } else {
        if (!tg_mul_i64((w->rows - 1) / TG_TILE_ROWS, w->tile_stride, end) ||
            __builtin_add_overflow(*end, tg_weight_tile_bytes(w), end))
            return false;
    }
    return !__builtin_add_overflow(*end, w->offset, end);
}

static tg_status check_weight(const tg_program *p, const tg_weight_entry *w, tg_err *e)
{
    if (!is_in(w->role, 0, TG_W_COUNT - 1))
        return fail_number(e, "the weight's role", w->role, 0, TG_W_COUNT - 1);
    const char *name = tg_weight_role_name((tg_weight_role)w->role);
    int32_t last = tg_weight_role_is_per_layer((tg_weight_role)w->role) ? p->n_layers - 1 : 0;
    if (!is_in(w->layer, 0, last)) return fail_number(e, "the weight's layer", w->layer, 0, last);
    if (!is_in(w->layout, 0, TG_LAYOUT_COUNT - 1))
        return fail_number(e, "the weight's layout", w->layout, 0, TG_LAYOUT_COUNT - 1);
    /* Columns are padded to a quantum of 256 at most, which must still fit. */
    if (!is_in(w->rows, 1, INT32_MAX) || !is_in(w->cols, 1, INT32_MAX - 256))
        return tg_fail(e, TG_E_CORRUPT, "weight '%s' is [%" PRId64 ", %" PRId64 "]", name, w->rows,
                       w->cols);
    if (!is_in(w->is_plain, 0, 1)) return fail_number(e, "is_plain", w->is_plain, 0, 1);
    if (w->is_plain ? w->layout != TG_LAYOUT_F32 || w->tile_stride != 0
                    : w->tile_stride < tg_weight_tile_bytes(w) || w->tile_stride % 64 != 0)
        return tg_fail(e, TG_E_CORRUPT, "weight '%s' has a tile stride of %" PRId64 " bytes", name,
                       w->tile_stride);
    int64_t end;
    if (w->offset < 0 || w->offset % 64 || !find_weight_end(w, &end) || end > p->weights_bytes)
        return tg_fail(e, TG_E_CORRUPT,
                       "weight '%s' of layer %d at byte %" PRId64 " is not inside the %" PRId64
                       " bytes of the weight file",
                       name, w->layer, w->offset, p->weights_bytes);
    return TG_OK;
}

/* The list of a weight's outlier groups. A device counts them in an int16. */
static tg_status check_outliers(const tg_program *p, const tg_weight_entry *w, tg_err *e)
{
    bool is_quantized = !w->is_plain && tg_layout_rows[w->layout].is_quantized;
    int64_t n_groups = tg_div_up(w->cols, TG_GROUP_COLS);
    int64_t most = is_quantized ? TG_MIN(n_groups, (int64_t)INT16_MAX) : 0;
    const char *name = tg_weight_role_name((tg_weight_role)w->role);
    if (!is_in(w->n_outliers, 0, most) ||
        !is_in(w->first_outlier, 0, p->n_outliers - w->n_outliers))
        return tg_fail(
            e, TG_E_CORRUPT,
            "weight '%s' of layer %d has %d outlier groups from entry %d; at most %" PRId64
            " of the table's %d are possible",
            name, w->layer, w->n_outliers, w->first_outlier, most, p->n_outliers);
    for (int32_t i = 0; i < w->n_outliers; i++) {
        const int32_t *g = p->outliers + w->first_outlier + i;
        if (!is_in(*g, i > 0 ? (int64_t)g[-1] + 1 : 0, n_groups - 1))
            return tg_fail(
                e, TG_E_CORRUPT,
                "weight '%s' of layer %d: outlier group %d is %d, which is out of order or "
                "beyond the %" PRId64 " groups",
                name, w->layer, i, *g, n_groups);
    }
    return TG_OK;
}

static tg_status check_weights(const tg_program *p, tg_err *e)
{
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        TG_TRY(check_weight(p, w, e));
        TG_TRY(check_outliers(p, w, e));
        if (i > 0 && (w->role < w[-1].role || (w->role == w[-1].role && w->layer <= w[-1].layer)))
            return tg_fail(e, TG_E_CORRUPT, "weights %d and %d are not in order", i - 1, i);
    }
    return TG_OK;
}

/* ---- KV groups */

static tg_status check_groups(const tg_program *p, tg_err *e)
{
    int32_t n_layers[TG_MAX_KV_GROUPS] = {0};
    for (int32_t l = 0; l < p->n_layers; l++) {
        const tg_layer *layer = &p->layers[l];
        if (layer->kv_group == TG_NONE && layer->kv_index == TG_NONE) continue;
        if (!is_in(layer->kv_group, 0, p->n_kv_groups - 1))
            return fail_number(e, "a layer's KV group", layer->kv_group, 0, p->n_kv_groups - 1);
        if (layer->kv_index != n_layers[layer->kv_group]++)
            return tg_fail(e, TG_E_CORRUPT, "layer %d has index %d in KV group %d instead of %d", l,
                           layer->kv_index, layer->kv_group, n_layers[layer->kv_group] - 1);
    }
    for (int32_t i = 0; i < p->n_kv_groups; i++) {
        const tg_kv_group *g = &p->kv_groups[i];
        if (g->n_layers < 1 || g->n_layers != n_layers[i])
            return tg_fail(e, TG_E_CORRUPT, "KV group %d says %d layers and has %d", i, g->n_layers,
                           n_layers[i]);
        if (g->n_kv_heads < 1 || g->head_dim < 1 || g->head_dim > TG_MAX_HEAD_DIM ||
            g->window < 0 || g->page_bytes < 1 || g->page_bytes != tg_kv_page_bytes(g, p->kv_type))
            return tg_fail(e, TG_E_CORRUPT,
                           "KV group %d: %d heads of %d, window %d, pages of %" PRId64
                           " bytes do not fit together",
                           i, g->n_kv_heads, g->head_dim, g->window, g->page_bytes);
    }
    return TG_OK;
}

static tg_status check_kv(const tg_program *p, const tg_instr *x, int32_t layer, tg_err *e)
{
    tg_op_kv kv = tg_op_get((tg_op)x->op)->kv;
    if (kv == TG_OP_KV_NONE) return TG_OK;
    if (!is_in(x->attrs.kv_group, 0, p->n_kv_groups - 1))
        return fail_number(e, "kv_group", x->attrs.kv_group, 0, p->n_kv_groups - 1);
    const tg_kv_group *g = &p->kv_groups[x->attrs.kv_group];
    bool is_window_equal = kv != TG_OP_KV_READS || x->attrs.window == g->window;
    if (p->layers[layer].kv_group == x->attrs.kv_group && x->attrs.n_kv_heads == g->n_kv_heads &&
        x->attrs.head_dim == g->head_dim && is_window_equal)
        return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "its heads or its window are not those of KV group %d",
                   x->attrs.kv_group);
}

/* ---- plans */

static tg_status check_bucket(const tg_program *p, const tg_plan *x, tg_err *e)
{
    const tg_bucket *b = &x->bucket;
    int64_t per_row = x->kind == TG_KIND_SPECULATE ? p->speculation + 1 : 1;
    bool is_exact = x->kind == TG_KIND_CONTEXT || b->tokens == b->rows * per_row;
    if (!is_in(x->kind, 0, TG_KIND_COUNT - 1)) return fail_number(e, "kind", x->kind, 0, 2);
    if (x->kind == TG_KIND_SPECULATE && p->speculation == 0)
        return tg_fail(e, TG_E_CORRUPT, "a speculate plan needs a speculation of 1 or more");
    if (!is_in(b->rows, 1, p->batch) || !is_in(b->tokens, 1, TG_MAX_LENGTH) ||
        !is_in(b->outs, 1, b->tokens) || !is_exact ||
        !is_in(b->pages, 1, tg_div_up(p->max_length, TG_KV_PAGE_TOKENS)))
        return tg_fail(e, TG_E_CORRUPT,
                       "the bucket of %d rows, %d tokens, %d outs and %d pages cannot be", b->rows,
                       b->tokens, b->outs, b->pages);
    return TG_OK;
}

static tg_status check_value(const tg_program *p, const tg_plan *x, int32_t i, tg_err *e)
{
    const tg_plan_value *v = &x->values[i];
    bool is_int = v->type == TG_TYPE_I32, is_outs = v->dim == TG_DIM_R;
    if (!is_in(v->type, 0, TG_TYPE_I32) || !is_in(v->dim, 0, TG_DIM_R) || v->width < 1)
        return tg_fail(e, TG_E_CORRUPT, "value %d has no kind", i);
    if (v->alias != TG_NONE) {
        const tg_plan_value *w = is_in(v->alias, 0, x->n_values - 1) ? &x->values[v->alias] : NULL;
        if (!w || w->alias != TG_NONE || w->offset != v->offset || w->width != v->width ||
            w->dim != v->dim || w->type != v->type || v->offset < 0)
            return tg_fail(e, TG_E_CORRUPT, "value %d is no alias of value %d", i, v->alias);
    }
    bool is_right;
    switch (v->offset) {
    case TG_IO_TOKENS: is_right = is_int && !is_outs && v->width == 1; break;
    case TG_IO_LOGITS: is_right = !is_int && is_outs && v->width == p->n_vocab; break;
    case TG_IO_IDS: is_right = is_int && is_outs && v->width == 1; break;
    default:
        is_right = !is_int && v->offset >= 0 && v->offset % 64 == 0 &&
                   v->offset <= x->arena_bytes &&
                   tg_plan_value_bytes(x, v) <= x->arena_bytes - v->offset;
    }
    if (is_right) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "value %d at byte %" PRId64 " is not inside the step's %" PRId64 " bytes", i,
                   v->offset, x->arena_bytes);
}

/* Places in the step's own buffers are negative and overlap only themselves. */
static bool overlap(const tg_plan *x, const tg_plan_value *a, const tg_plan_value *b)
{
    if (a->offset < 0 || b->offset < 0) return a->offset == b->offset;
    return a->offset < b->offset + tg_plan_value_bytes(x, b) &&
           b->offset < a->offset + tg_plan_value_bytes(x, a);
}

/* Where inputs and result lie: the step's own buffers are for the ops that know them, and a result
 * is written over its first input entirely or not at all. */
static tg_status check_places(const tg_plan *x, const tg_instr *n, tg_err *e)
{
    const tg_op_row *row = tg_op_get((tg_op)n->op);
    const tg_plan_value *out = n->out == TG_NONE ? NULL : &x->values[n->out];
    for (int32_t i = 0; i < row->n_inputs; i++) {
        int64_t at = x->values[n->in[i]].offset;
        bool is_right = row->takes_ids                     ? at == TG_IO_TOKENS
                        : row->logits == TG_LOGITS_TAKES   ? at == TG_IO_LOGITS
                        : row->logits == TG_LOGITS_CHANGES ? at >= 0 || at == TG_IO_LOGITS
                                                           : at >= 0;
        if (!is_right) return tg_fail(e, TG_E_CORRUPT, "input %d is in the wrong buffer", i);
    }
    if (!out) return TG_OK;
    bool may_hold_logits = row->logits == TG_LOGITS_MAKES || row->logits == TG_LOGITS_CHANGES;
    if ((row->logits == TG_LOGITS_TAKES) != (out->offset == TG_IO_IDS) ||
        out->offset == TG_IO_TOKENS || (out->offset == TG_IO_LOGITS && !may_hold_logits))
        return tg_fail(e, TG_E_CORRUPT, "its result is in the wrong buffer");
    bool is_in_place = x->values[n->in[0]].offset == out->offset;
    if (row->in_place == (is_in_place ? TG_IN_PLACE_NEVER : TG_IN_PLACE_ALWAYS))
        return tg_fail(e, TG_E_CORRUPT, "its result must %sbe written over its first input",
                       is_in_place ? "not " : "");
    for (int32_t i = is_in_place ? 1 : 0; i < row->n_inputs; i++)
        if (overlap(x, out, &x->values[n->in[i]]))
            return tg_fail(e, TG_E_CORRUPT, "its result overlaps input %d", i);
    return TG_OK;
}

/* Indices, order of definition and places: what does not depend on the layer. */
static tg_status check_instr(const tg_plan *x, const tg_instr *n, bool *is_defined, tg_err *e)
{
    if (!is_in(n->op, 0, TG_OP_COUNT - 1))
        return fail_number(e, "the operation", n->op, 0, TG_OP_COUNT - 1);
    const tg_op_row *row = tg_op_get((tg_op)n->op);
    for (int32_t i = 0; i < row->n_inputs; i++)
        if (!is_in(n->in[i], 0, x->n_values - 1) || !is_defined[n->in[i]])
            return tg_fail(e, TG_E_CORRUPT, "input %d is not defined before", i);
    for (int32_t i = 0; i < TG_MAX_WEIGHTS; i++) {
        bool is_there = n->weights[i] != TG_NONE;
        if (is_there && (i >= row->n_slots || !is_in(n->weights[i], 0, TG_W_COUNT - 1)))
            return tg_fail(e, TG_E_CORRUPT, "weight slot %d holds role %d", i, n->weights[i]);
    }
    if ((n->out == TG_NONE) != row->has_no_result || !is_in(n->out, TG_NONE, x->n_values - 1))
        return tg_fail(e, TG_E_CORRUPT, "its result is value %d", n->out);
    TG_TRY(check_places(x, n, e));
    if (n->out != TG_NONE) is_defined[n->out] = true;
    return TG_OK;
}

/* An input is quantized once, for all matrices that read it. */
static tg_status check_lists(const tg_program *p, const tg_instr *n, int32_t layer, tg_err *e)
{
    const tg_op_row *row = tg_op_get((tg_op)n->op);
    const tg_weight_entry *first = tg_program_find_quantized(p, n, layer);
    for (int32_t i = 0; first && i < row->n_slots; i++) {
        if (n->weights[i] == TG_NONE || row->slots[i].is_plain) continue;
        const tg_weight_entry *w = tg_program_find_weight(p, (tg_weight_role)n->weights[i], layer);
        if (!w || !tg_layout_rows[w->layout].is_quantized) continue;
        if (w->n_outliers == first->n_outliers &&
            (w->n_outliers == 0 ||
             memcmp(p->outliers + w->first_outlier, p->outliers + first->first_outlier,
                    (size_t)w->n_outliers * sizeof *p->outliers) == 0))
            continue;
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: weights '%s' and '%s' of layer %d read one input and list different "
                       "outlier groups",
                       row->name, tg_weight_role_name((tg_weight_role)first->role),
                       tg_weight_role_name((tg_weight_role)w->role), layer);
    }
    return TG_OK;
}

static tg_value_info info_of(const tg_plan_value *v)
{
    return (tg_value_info){(tg_value_type)v->type, (tg_dim)v->dim, v->width};
}

/* The weights of one layer, and the shape rule with them. */
static tg_status check_call(const tg_program *p, const tg_plan *x, const tg_instr *n, int32_t layer,
                            tg_err *e)
{
    const tg_op_row *row = tg_op_get((tg_op)n->op);
    tg_infer in = {.op = (tg_op)n->op, .attrs = &n->attrs, .roles = n->weights};
    for (int32_t i = 0; i < row->n_inputs; i++)
        in.in[i] = info_of(&x->values[n->in[i]]);
    for (int32_t i = 0; i < row->n_slots; i++) {
        if (n->weights[i] == TG_NONE) continue;
        const tg_weight_entry *w = tg_program_find_weight(p, (tg_weight_role)n->weights[i], layer);
        if (w && (w->is_plain != 0) != row->slots[i].is_plain)
            return tg_fail(e, TG_E_CORRUPT, "%s: weight '%s' must %sbe in tiles", row->name,
                           tg_weight_role_name((tg_weight_role)w->role), w->is_plain ? "" : "not ");
        if (w) in.weights[i] = (tg_weight_shape){true, w->rows, w->cols};
    }
    tg_value_info want;
    TG_TRY(tg_infer_value(&want, &in, e));
    TG_TRY(check_kv(p, n, layer, e));
    TG_TRY(check_lists(p, n, layer, e));
    int64_t n_rope_rows = (int64_t)p->original_length + p->max_length;
    for (int32_t i = 0; i < row->n_slots; i++)
        if (row->slots[i].is_table && n->weights[i] != TG_NONE && in.weights[i].rows < n_rope_rows)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: the rope table has %" PRId64 " of %" PRId64 " rows", row->name,
                           in.weights[i].rows, n_rope_rows);
    if (row->is_lookup && in.weights[0].rows != p->n_embed_rows)
        return tg_fail(e, TG_E_CORRUPT, "%s: the table has %" PRId64 " rows instead of %d",
                       row->name, in.weights[0].rows, p->n_embed_rows);
    if (n->out == TG_NONE) return TG_OK;
    tg_value_info got = info_of(&x->values[n->out]);
    if (x->values[n->out].offset == TG_IO_LOGITS && want.width >= p->n_vocab)
        want.width = p->n_vocab; /* surplus rows are not computed */
    if (got.width == want.width && got.dim == want.dim && got.type == want.type) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: its result is %d wide instead of %d", row->name, got.width,
                   want.width);
}

/* The same body may stand in several segments; it is checked for each, with the layers of each.
 * Work is bounded by layers x instructions, as layer lists may not overlap.
 * Runs through the segments as a device does. `is_defined` is cleared by the caller. */
static tg_status check_segments(const tg_program *p, const tg_plan *x, bool *is_defined, tg_err *e)
{
    int32_t next_layer = 0;
    tg_op_logits last = TG_LOGITS_NONE;
    for (int32_t s = 0; s < x->n_segments; s++) {
        const tg_segment *seg = &x->segments[s];
        if (!is_in(seg->first_instr, 0, x->n_instrs) ||
            !is_in(seg->n_instrs, 1, x->n_instrs - seg->first_instr) ||
            seg->first_layer != next_layer ||
            !is_in(seg->n_layers, 0, x->n_layer_refs - next_layer))
            return tg_fail(e, TG_E_CORRUPT, "segment %d lies outside the plan", s);
        for (int32_t i = seg->first_instr; i < seg->first_instr + seg->n_instrs; i++) {
            const tg_instr *n = &x->instrs[i];
            tg_status st = check_instr(x, n, is_defined, e);
            for (int32_t l = 0; st == TG_OK && l < TG_MAX(seg->n_layers, 1); l++)
                st = check_call(p, x, n, seg->n_layers ? x->layer_refs[next_layer + l] : 0, e);
            if (st != TG_OK) tg_err_context(e, "instruction %d", i);
            if (st != TG_OK) return st;
            last = tg_op_get((tg_op)n->op)->logits;
        }
        next_layer += seg->n_layers;
    }
    if (next_layer != x->n_layer_refs || last != TG_LOGITS_TAKES)
        return tg_fail(e, TG_E_CORRUPT, "the plan does not run its layers and end with a sample");
    return TG_OK;
}

static tg_status check_plan(const tg_program *p, const tg_plan *x, tg_err *e)
{
    TG_TRY(check_bucket(p, x, e));
    if (!is_in(x->n_values, 1, TG_MAX_INSTRS))
        return fail_number(e, "n_values", x->n_values, 1, TG_MAX_INSTRS);
    if (!is_in(x->n_instrs, 1, TG_MAX_INSTRS))
        return fail_number(e, "n_instrs", x->n_instrs, 1, TG_MAX_INSTRS);
    if (!is_in(x->n_segments, 1, p->n_layers + 2))
        return fail_number(e, "n_segments", x->n_segments, 1, p->n_layers + 2);
    if (!is_in(x->n_layer_refs, 0, p->n_layers))
        return fail_number(e, "n_layer_refs", x->n_layer_refs, 0, p->n_layers);
    if (x->arena_bytes < 0) return fail_number(e, "arena_bytes", x->arena_bytes, 0, INT64_MAX);
    for (int32_t i = 0; i < x->n_layer_refs; i++)
        if (!is_in(x->layer_refs[i], 0, p->n_layers - 1))
            return fail_number(e, "a layer reference", x->layer_refs[i], 0, p->n_layers - 1);
    bool is_defined[TG_MAX_INSTRS] = {false};
    for (int32_t i = 0; i < x->n_values; i++) {
        TG_TRY(check_value(p, x, i, e));
        is_defined[i] = x->values[i].offset == TG_IO_TOKENS;
    }
    return check_segments(p, x, is_defined, e);
}

/* Plans by kind, then by size; the kinds that a run cannot do without are there. */
static tg_status check_order(const tg_program *p, tg_err *e)
{
    bool is_there[TG_KIND_COUNT] = {false};
    for (int32_t i = 0; i < p->n_plans; i++) {
        const tg_plan *a = &p->plans[i > 0 ? i - 1 : 0], *b = &p->plans[i];
        is_there[b->kind] = true;
        if (i > 0 &&
            (b->kind < a->kind || (b->kind == a->kind && b->bucket.tokens <= a->bucket.tokens)))
            return tg_fail(e, TG_E_CORRUPT, "plans %d and %d are not in order", i - 1, i);
    }
    for (int k = 0; k < TG_KIND_COUNT; k++)
        if (!is_there[k] && (k != TG_KIND_SPECULATE || p->speculation > 0))
            return tg_fail(e, TG_E_CORRUPT, "there is no %s plan", tg_kind_name((tg_graph_kind)k));
    return TG_OK;
}

tg_status tg_program_check(const tg_program *p, tg_err *e)
{
    TG_TRY(check_numbers(p, e));
    TG_TRY(check_unused(p, e));
    TG_TRY(check_weights(p, e));
    TG_TRY(check_groups(p, e));
    for (int32_t i = 0; i < p->n_plans; i++) {
        tg_status s = check_plan(p, &p->plans[i], e);
        if (s != TG_OK) tg_err_context(e, "plan %d", i);
        if (s != TG_OK) return s;
    }
    return check_order(p, e);
}
