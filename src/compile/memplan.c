/* SPDX-License-Identifier: Apache-2.0
 * memplan.c - where values lie in the step arena.
 *
 * Time is the index of an instruction; blocks never run at the same time, so a value of one body
 * may use the memory of a value of another. A value lives from the instruction that writes it to
 * the last one that reads it, both included, so results and inputs of one instruction never share
 * memory, save in place. The residual stream lives from the embedding to the tail.
 *
 * Values that are written over one another form a root and its aliases. Roots are placed one by
 * one, each into the smallest gap that holds it among the roots that live at the same time, else
 * behind them; once in the order of falling size, once long lives first, and the smaller arena is
 * kept. That takes O(n^2 log n) steps for n roots and gives at most the sum of all; no plan can be
 * smaller than the largest sum of live bytes (tg_plan_live_bytes), which the plans of Llama's and
 * Gemma's form reach (test_memplan). Finding the best order is NP-hard, so no bound in between is
 * claimed. */
#include "compile/pass.h"

#include <inttypes.h>
#include <stdlib.h>

enum { ALIGN = 64 };

typedef struct life {
    int32_t first, last; /* instructions; first is n_instrs while nothing writes it */
} life;

typedef struct root {
    int32_t value;
    life life;
    int64_t bytes, offset;
} root;

typedef struct work {
    tg_plan *plan;
    tg_plan_value *values;
    life lives[TG_MAX_INSTRS];
    int32_t stream;
    bool is_result[TG_MAX_INSTRS]; /* given to the next layer: read after its block ended */
    root roots[TG_MAX_INSTRS];
    int32_t n_roots;
} work;

static bool is_in_arena(const tg_plan_value *v)
{
    return v->offset >= 0;
}

/* A value that a block reads and another one wrote is the residual stream (specialize.c makes a
 * single one) or the output rows, which the last block before the tail gives it. */
static void find_lives(work *w)
{
    const tg_plan *p = w->plan;
    for (int32_t i = 0; i < p->n_values; i++)
        w->lives[i] = (life){p->n_instrs, TG_NONE};
    for (int32_t i = 0; i < p->n_instrs; i++) {
        const tg_instr *x = &p->instrs[i];
        for (int32_t k = 0; k < tg_op_get((tg_op)x->op)->n_inputs; k++)
            w->lives[x->in[k]].last = i;
        if (x->out == TG_NONE) continue;
        w->lives[x->out].first = TG_MIN(w->lives[x->out].first, i);
        w->lives[x->out].last = TG_MAX(w->lives[x->out].last, i);
    }
}

/* Reads of `value` among the instructions of one block, the last of them; TG_NONE: none. */
static int32_t last_read(const tg_plan *p, const tg_segment *s, int32_t value)
{
    int32_t last = TG_NONE;
    for (int32_t i = s->first_instr; i < s->first_instr + s->n_instrs; i++)
        for (int32_t k = 0; k < tg_op_get((tg_op)p->instrs[i].op)->n_inputs; k++)
            if (p->instrs[i].in[k] == value) last = i;
    return last;
}

static int32_t root_of(const work *w, int32_t value)
{
    return w->values[value].alias == TG_NONE ? value : w->values[value].alias;
}

/* The stream's own memory takes sums only: any other op over it would leave a layer that still
 * needs the place for its result without one. */
static bool may_be_in_place(const work *w, const tg_instr *x, int32_t to)
{
    const tg_op_row *row = tg_op_get((tg_op)x->op);
    return row->in_place != TG_IN_PLACE_NEVER && (to != w->stream || row->is_sum);
}

/* The last instruction of a block up to `end` that touches the memory of the stream. */
static int32_t last_stream_use(const work *w, const tg_segment *s, int32_t end)
{
    int32_t last = TG_NONE;
    for (int32_t i = s->first_instr; i < end; i++) {
        const tg_instr *x = &w->plan->instrs[i];
        for (int32_t k = 0; k < tg_op_get((tg_op)x->op)->n_inputs; k++)
            if (root_of(w, x->in[k]) == w->stream) last = i;
        if (x->out != TG_NONE && root_of(w, x->out) == w->stream) last = i;
    }
    return last;
}

/* Decides for one instruction whether its result takes the memory of its first input. */
static tg_status alias_instr(work *w, const tg_segment *s, int32_t i, tg_err *e)
{
    const tg_instr *x = &w->plan->instrs[i];
    const tg_op_row *row = tg_op_get((tg_op)x->op);
    if (x->out == TG_NONE || !is_in_arena(&w->values[x->out])) return TG_OK;
    tg_plan_value *out = &w->values[x->out];
    int32_t to = root_of(w, x->in[0]), target = out->alias; /* specialize.c: a layer's result */
    bool is_free = is_in_arena(&w->values[x->in[0]]) && !w->is_result[x->in[0]] &&
                   last_read(w->plan, s, x->in[0]) == i &&
                   (row->n_inputs < 2 || root_of(w, x->in[1]) != to) && may_be_in_place(w, x, to);
    if (target == TG_NONE) {
        if (is_free)
            out->alias = to;
        else if (row->in_place == TG_IN_PLACE_ALWAYS)
            return tg_fail(e, TG_E_UNSUPPORTED, "instruction %d, %s: its residual is read later", i,
                           row->name);
        return TG_OK;
    }
    bool is_over_stream = is_free && to == target;
    out->alias = TG_NONE; /* so that it does not count as a use itself */
    bool is_stream_idle = last_stream_use(w, s, i + 1) < i;
    out->alias = target;
    if (is_over_stream || (is_stream_idle && row->in_place != TG_IN_PLACE_ALWAYS)) return TG_OK;
    return tg_fail(
        e, TG_E_UNSUPPORTED,
        "a layer's result (%s) cannot take the place of the layer's input, which is still "
        "read; the residual must be the first input of its last add",
        row->name);
}

/* Blocks as segments name them; a body that several segments run is decided once. */
static tg_status find_aliases(work *w, tg_err *e)
{
    const tg_plan *p = w->plan;
    int32_t next = 0;
    while (next < p->n_instrs) {
        const tg_segment *s = NULL;
        for (int32_t i = 0; i < p->n_segments && !s; i++)
            if (p->segments[i].first_instr == next) s = &p->segments[i];
        TG_ASSERT(s); /* specialize.c lays blocks one after another */
        for (int32_t i = 0; i < s->n_instrs; i++)
            TG_TRY(alias_instr(w, s, next + i, e));
        next += s->n_instrs;
    }
    return TG_OK;
}

static void find_roots(work *w)
{
    int32_t index[TG_MAX_INSTRS];
    for (int32_t i = 0; i < w->plan->n_values; i++) {
        const tg_plan_value *v = &w->values[i];
        if (!is_in_arena(v) || v->alias != TG_NONE) continue;
        index[i] = w->n_roots;
        w->roots[w->n_roots++] =
            (root){.value = i,
                   .life = w->lives[i],
                   .bytes = (int64_t)tg_align_up((size_t)tg_plan_value_bytes(w->plan, v), ALIGN)};
    }
    for (int32_t i = 0; i < w->plan->n_values; i++) {
        if (!is_in_arena(&w->values[i]) || w->values[i].alias == TG_NONE) continue;
        life *l = &w->roots[index[w->values[i].alias]].life;
        l->first = TG_MIN(l->first, w->lives[i].first);
        l->last = TG_MAX(l->last, w->lives[i].last);
    }
}

/* Larger first; ties by number, so that the order is one and only one. */
static int compare_bytes(const void *a, const void *b)
{
    const root *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
    return x->value < y->value ? -1 : x->value > y->value;
}

/* Longer lives first: the residual stream at one end leaves the rest in one piece. */
static int compare_lives(const void *a, const void *b)
{
    const root *x = a, *y = b;
    int32_t p = x->life.last - x->life.first, q = y->life.last - y->life.first;
    return p != q ? (p > q ? -1 : 1) : compare_bytes(a, b);
}

static int compare_offsets(const void *a, const void *b)
{
    const root *const *x = a, *const *y = b;
    if ((*x)->offset != (*y)->offset) return (*x)->offset < (*y)->offset ? -1 : 1;
    return (*x)->value < (*y)->value ? -1 : (*x)->value > (*y)->value;
}

/* The smallest gap between placed roots that live at the same time as roots[n]; behind them if
 * none. */
static int64_t find_gap(const work *w, int32_t n)
{
    const root *x = &w->roots[n], *others[TG_MAX_INSTRS];
    int32_t n_others = 0;
    for (int32_t i = 0; i < n; i++)
        if (w->roots[i].life.first <= x->life.last && x->life.first <= w->roots[i].life.last)
            others[n_others++] = &w->roots[i];
    qsort(others, (size_t)n_others, sizeof *others, compare_offsets);
    int64_t end = 0, best = -1, best_bytes = INT64_MAX;
    for (int32_t i = 0; i < n_others; i++) {
        int64_t gap = others[i]->offset - end;
        if (gap >= x->bytes && gap < best_bytes) {
            best = end;
            best_bytes = gap;
        }
        end = TG_MAX(end, others[i]->offset + others[i]->bytes);
    }
    return best >= 0 ? best : end;
}

/* Places all roots in one order; returns the size of the arena. */
static int64_t place_in_order(work *w, int (*compare)(const void *, const void *))
{
    int64_t end = 0;
    qsort(w->roots, (size_t)w->n_roots, sizeof *w->roots, compare);
    for (int32_t i = 0; i < w->n_roots; i++) {
        w->roots[i].offset = find_gap(w, i);
        end = TG_MAX(end, w->roots[i].offset + w->roots[i].bytes);
    }
    return end;
}

static void place_roots(work *w)
{
    int64_t by_lives = place_in_order(w, compare_lives);
    w->plan->arena_bytes = place_in_order(w, compare_bytes);
    if (by_lives <= w->plan->arena_bytes) w->plan->arena_bytes = place_in_order(w, compare_lives);
    for (int32_t i = 0; i < w->n_roots; i++)
        w->values[w->roots[i].value].offset = w->roots[i].offset;
    for (int32_t i = 0; i < w->plan->n_values; i++)
        if (w->values[i].alias != TG_NONE)
            w->values[i].offset = w->values[w->values[i].alias].offset;
}

tg_status tg_plan_place(tg_plan *plan, tg_plan_value *values, tg_err *e)
{
    work *w = TG_NEW(work);
    if (!w) return tg_fail_nomem(e, sizeof *w, "planning memory");
    w->plan = plan;
    w->values = values;
    w->stream = TG_NONE;
    for (int32_t i = 0; i < plan->n_values; i++) {
        w->is_result[i] = values[i].alias != TG_NONE;
        if (w->is_result[i]) w->stream = values[i].alias;
    }
    plan->arena_bytes = 0;
    find_lives(w);
    tg_status s = find_aliases(w, e);
    if (s == TG_OK) {
        find_roots(w);
        place_roots(w);
    }
    tg_mem_free(w);
    return s;
}

int64_t tg_plan_live_bytes(const tg_plan *plan)
{
    int64_t most = 0;
    for (int32_t i = 0; i < plan->n_instrs; i++) {
        int64_t sum = 0;
        for (int32_t v = 0; v < plan->n_values; v++) {
            if (!is_in_arena(&plan->values[v]) || plan->values[v].alias != TG_NONE) continue;
            int32_t first = plan->n_instrs, last = TG_NONE;
            for (int32_t k = 0; k < plan->n_instrs; k++) {
                const tg_instr *x = &plan->instrs[k];
                int32_t touched[] = {x->out, x->in[0], x->in[1]};
                for (size_t t = 0; t < TG_COUNT(touched); t++) {
                    if (touched[t] == TG_NONE) continue;
                    if (touched[t] != v && plan->values[touched[t]].alias != v) continue;
                    first = TG_MIN(first, k);
                    last = TG_MAX(last, k);
                }
            }
            if (first <= i && i <= last)
                sum += (int64_t)tg_align_up((size_t)tg_plan_value_bytes(plan, &plan->values[v]),
                                            ALIGN);
        }
        most = TG_MAX(most, sum);
    }
    return most;
}
