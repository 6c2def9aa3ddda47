/* SPDX-License-Identifier: Apache-2.0
 * specialize.c - a graph becomes a plan of one kind and bucket.
 *
 * Blocks are stored once, head, bodies, tail; consecutive layers that call the same body form one
 * segment, and a body that is called again later is the same instructions in another segment. */
#include "compile/pass.h"
#include "ir/io.h"

#include <string.h>

typedef struct work {
    const tg_graph *g;
    tg_plan *plan;
    tg_plan_value *values;
    tg_instr *instrs;
    tg_segment *segments;
    int32_t *refs;
    int32_t *number; /* [n_values of the graph]: value of the plan, or TG_NONE */
    int32_t first_instr[TG_MAX_BODIES];
} work;

static int32_t add_value(work *w, int32_t value)
{
    const tg_value_info *info = &w->g->values[value];
    if (w->number[value] != TG_NONE) return w->number[value];
    w->values[w->plan->n_values] = (tg_plan_value){.type = (int32_t)info->type,
                                                   .dim = (int32_t)info->dim,
                                                   .width = info->width,
                                                   .alias = TG_NONE};
    return w->number[value] = w->plan->n_values++;
}

static void add_block(work *w, const tg_graph_block *b)
{
    for (int32_t i = 0; i < b->n_nodes; i++) {
        const tg_node *n = &b->nodes[i];
        tg_instr *x = &w->instrs[w->plan->n_instrs++];
        *x = (tg_instr){.op = (int32_t)n->op, .out = TG_NONE, .in = {TG_NONE, TG_NONE}};
        for (int32_t k = 0; k < tg_op_get(n->op)->n_inputs; k++)
            x->in[k] = w->number[n->in[k]];
        if (n->out != TG_NONE) x->out = add_value(w, n->out);
        memcpy(x->weights, n->weights, sizeof x->weights);
        x->attrs = n->attrs;
    }
}

static void add_segment(work *w, int32_t first_instr, int32_t n_instrs, int32_t n_layers)
{
    w->segments[w->plan->n_segments++] =
        (tg_segment){first_instr, n_instrs, w->plan->n_layer_refs, n_layers};
    w->plan->n_layer_refs += n_layers;
}

/* One segment for each run of layers that call the same body. */
static void add_layers(work *w)
{
    const tg_graph *g = w->g;
    for (int32_t l = 0; l < g->n_layers;) {
        int32_t body = g->layer_body[l], end = l;
        while (end < g->n_layers && g->layer_body[end] == body) {
            w->refs[end] = end;
            end++;
        }
        add_segment(w, w->first_instr[body], g->bodies[body].n_nodes, end - l);
        l = end;
    }
}

/* Logits lie in the step's own memory from the product on, and what is done to them is done in
 * place. */
static void place_logits(work *w, const tg_program *p, int32_t value)
{
    for (int32_t i = w->plan->n_instrs - 1; i >= 0; i--) {
        const tg_instr *x = &w->instrs[i];
        if (x->out != value) continue;
        w->values[value].offset = TG_IO_LOGITS;
        w->values[value].width = TG_MIN(p->n_vocab, w->values[value].width);
        if (tg_op_get((tg_op)x->op)->logits != TG_LOGITS_CHANGES) return;
        value = x->in[0];
    }
}

static const tg_graph_block *last_body(const tg_graph *g)
{
    return &g->bodies[g->layer_body[g->n_layers - 1]];
}

static void fill(work *w, const tg_program *p)
{
    const tg_graph *g = w->g;
    int32_t tokens = add_value(w, g->head.in);
    w->values[tokens].offset = TG_IO_TOKENS;
    add_block(w, &g->head);
    add_segment(w, 0, w->plan->n_instrs, 0);

    /* The residual stream is one value, whoever reads it; what a layer gives is written over it,
     * save the output rows of the last one. */
    int32_t stream = w->number[g->head.out];
    for (int32_t k = 0; k < g->n_bodies; k++) {
        w->number[g->bodies[k].in] = stream;
        w->first_instr[k] = w->plan->n_instrs;
        add_block(w, &g->bodies[k]);
        int32_t given = w->number[g->bodies[k].out];
        if (w->values[given].dim == TG_DIM_T) w->values[given].alias = stream;
    }
    add_layers(w);
    bool is_cut = g->values[g->tail.in].dim == TG_DIM_R;
    w->number[g->tail.in] = is_cut ? w->number[last_body(g)->out] : stream;
    int32_t tail = w->plan->n_instrs;
    add_block(w, &g->tail);
    add_segment(w, tail, w->plan->n_instrs - tail, 0);

    const tg_instr *sample = &w->instrs[w->plan->n_instrs - 1];
    TG_ASSERT(sample->op == TG_OP_SAMPLE); /* tg_build_output put it there */
    w->values[sample->out].offset = TG_IO_IDS;
    place_logits(w, p, sample->in[0]);
}

tg_status tg_graph_specialize(const tg_graph *g, const tg_program *p, tg_graph_kind kind,
                              tg_bucket bucket, tg_arena *arena, tg_plan *out,
                              tg_plan_value **values, tg_err *e)
{
    int32_t n_nodes = 0;
    for (int32_t i = 0; i < g->n_bodies; i++)
        n_nodes += g->bodies[i].n_nodes;
    n_nodes += g->head.n_nodes + g->tail.n_nodes;
    if (n_nodes >= TG_MAX_INSTRS)
        return tg_fail(e, TG_E_UNSUPPORTED, "the graph has %d different operations; %d can be run",
                       n_nodes, TG_MAX_INSTRS - 1);

    *out = (tg_plan){.kind = (int32_t)kind, .bucket = bucket};
    work w = {.g = g, .plan = out};
    w.values = TG_ARENA_ARRAY(arena, tg_plan_value, n_nodes + 1);
    w.instrs = TG_ARENA_ARRAY(arena, tg_instr, n_nodes);
    w.segments = TG_ARENA_ARRAY(arena, tg_segment, g->n_layers + 2);
    w.refs = TG_ARENA_ARRAY(arena, int32_t, g->n_layers);
    w.number = TG_NEW_ARRAY(int32_t, g->n_values);
    bool is_made = w.values && w.instrs && w.segments && w.refs && w.number;
    if (is_made) {
        for (int32_t i = 0; i < g->n_values; i++)
            w.number[i] = TG_NONE;
        fill(&w, p);
        out->values = *values = w.values;
        out->instrs = w.instrs;
        out->segments = w.segments;
        out->layer_refs = w.refs;
    }
    tg_mem_free(w.number);
    return is_made ? TG_OK : tg_fail_nomem(e, (size_t)n_nodes * sizeof *w.instrs, "a plan");
}

/* ---- all plans */

static tg_status add_plan(const tg_graph *g, tg_program *p, tg_plan *plans, tg_graph_kind kind,
                          int32_t tokens, tg_arena *arena, tg_err *e)
{
    tg_bucket bucket = {
        .rows = p->batch,
        .tokens = tokens,
        .outs = kind == TG_KIND_CONTEXT ? TG_MIN(tokens, tg_io_most_outs(p)) : tokens,
        .pages = (int32_t)tg_div_up(p->max_length, TG_KV_PAGE_TOKENS),
    };
    tg_plan_value *values;
    tg_plan *plan = &plans[p->n_plans];
    tg_status s = tg_graph_specialize(g, p, kind, bucket, arena, plan, &values, e);
    if (s == TG_OK) s = tg_plan_place(plan, values, e);
    if (s != TG_OK)
        tg_err_context(e, "the %s plan of %d tokens", tg_kind_name(kind), tokens);
    else
        p->n_plans++;
    return s;
}

tg_status tg_graph_plan(const tg_graph *g, tg_program *p, const int32_t *buckets, int32_t n_buckets,
                        tg_arena *arena, tg_err *e)
{
    tg_plan *plans = TG_ARENA_ARRAY(arena, tg_plan, n_buckets + 2);
    if (!plans) return tg_fail_nomem(e, (size_t)(n_buckets + 2) * sizeof *plans, "plans");
    p->plans = plans;
    p->n_plans = 0;
    for (int32_t i = 0; i < n_buckets; i++)
        TG_TRY(add_plan(g, p, plans, TG_KIND_CONTEXT, buckets[i], arena, e));
    TG_TRY(add_plan(g, p, plans, TG_KIND_TOKEN, p->batch, arena, e));
    if (p->speculation > 0)
        TG_TRY(add_plan(g, p, plans, TG_KIND_SPECULATE, p->batch * (p->speculation + 1), arena, e));
    return TG_OK;
}
