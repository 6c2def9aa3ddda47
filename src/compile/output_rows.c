/* SPDX-License-Identifier: Apache-2.0
 * output_rows.c - the last layer computes the output rows alone after its attention.
 *
 * The tail begins with the output rows, one of a prompt's hundreds. Operations before it in the
 * last layer, after the last one that needs every token, make each row from the same row of their
 * inputs. So rows are gathered there instead, from every value that is read later, and no bit
 * changes. A prompt then skips most of the products of one layer; a chunk of a long prompt without
 * output rows skips all of them. */
#include "compile/pass.h"

#include <string.h>

enum { MAX_NODES = 128 };

/* The last layer's body while it is rebuilt. */
typedef struct work {
    tg_graph *g;
    tg_graph_block *body;
    int32_t *picked; /* [n_values before]: the value that counts output rows, or TG_NONE */
    tg_node nodes[MAX_NODES];
    int32_t n_nodes;
} work;

/* Cannot be done for the output rows alone. */
static bool needs_all_tokens(tg_op op)
{
    return !tg_op_get(op)->is_token_local || !tg_op_get(op)->takes_any_rows;
}

static bool is_read_from(const tg_graph_block *b, int32_t first, int32_t value)
{
    bool is_read = b->out == value;
    for (int32_t i = first; i < b->n_nodes; i++)
        for (int32_t k = 0; k < tg_op_get(b->nodes[i].op)->n_inputs; k++)
            is_read |= b->nodes[i].in[k] == value;
    return is_read;
}

/* A value like `value` that counts output rows; false: no memory. */
static bool add_picked(work *w, int32_t value)
{
    tg_value_info info = w->g->values[value];
    info.dim = TG_DIM_R;
    return (w->picked[value] = tg_graph_add_value(w->g, info)) != TG_NONE;
}

/* Picks the rows of a value that the nodes from `first` on read, as the tail does. */
static bool pick(work *w, int32_t first, int32_t value)
{
    if (value == TG_NONE || !is_read_from(w->body, first, value)) return true;
    tg_node rows = w->g->tail.nodes[0];
    bool is_made = add_picked(w, value);
    rows.in[0] = value;
    rows.out = w->picked[value];
    w->nodes[w->n_nodes++] = rows;
    return is_made;
}

/* The body's nodes with rows picked before node `first`. */
static bool make_nodes(work *w, int32_t first)
{
    const tg_graph_block *b = w->body;
    memcpy(w->nodes, b->nodes, (size_t)first * sizeof *w->nodes);
    w->n_nodes = first;
    bool is_made = pick(w, first, b->in);
    for (int32_t i = 0; i < first && is_made; i++)
        is_made = pick(w, first, b->nodes[i].out);
    for (int32_t i = first; i < b->n_nodes && is_made; i++) {
        tg_node n = b->nodes[i];
        for (int32_t k = 0; k < tg_op_get(n.op)->n_inputs; k++)
            n.in[k] = w->picked[n.in[k]];
        is_made = add_picked(w, n.out);
        n.out = w->picked[n.out];
        w->nodes[w->n_nodes++] = n;
    }
    return is_made;
}

/* A copy of `from` with values of its own; false: no memory. */
static bool copy_block(tg_graph *g, const tg_graph_block *from, tg_graph_block *out)
{
    int32_t n_values = g->n_values, *copy = TG_NEW_ARRAY(int32_t, n_values);
    bool is_made = copy && tg_graph_set_nodes(g, out, from->nodes, from->n_nodes);
    if (is_made) is_made = (copy[from->in] = tg_graph_add_value(g, g->values[from->in])) != TG_NONE;
    for (int32_t i = 0; i < from->n_nodes && is_made; i++) {
        tg_node *n = &out->nodes[i];
        for (int32_t k = 0; k < tg_op_get(n->op)->n_inputs; k++)
            n->in[k] = copy[n->in[k]];
        if (n->out == TG_NONE) continue;
        copy[n->out] = tg_graph_add_value(g, g->values[n->out]);
        is_made = copy[n->out] != TG_NONE;
        n->out = copy[n->out];
    }
    if (is_made) {
        out->in = copy[from->in];
        out->out = copy[from->out];
    }
    tg_mem_free(copy);
    return is_made;
}

/* The last layer's body, for it alone: its own already, or a copy. NULL: no memory. */
static tg_graph_block *take_body(tg_graph *g)
{
    int32_t last = g->n_layers - 1, body = g->layer_body[last];
    bool is_shared = false;
    for (int32_t l = 0; l < last; l++)
        is_shared |= g->layer_body[l] == body;
    if (!is_shared) return &g->bodies[body];
    tg_graph_block *own = &g->bodies[g->n_bodies];
    *own = (tg_graph_block){0};
    if (!copy_block(g, &g->bodies[body], own)) return NULL;
    g->layer_body[last] = g->n_bodies++;
    return own;
}

/* The first node of the last layer behind all that need every token; 0 where the tail does not
 * begin with the output rows, or nothing can be saved. */
static int32_t find_cut(const tg_graph *g)
{
    const tg_graph_block *b = &g->bodies[g->layer_body[g->n_layers - 1]], *tail = &g->tail;
    bool is_first = tail->n_nodes > 0 && tail->nodes[0].op == TG_OP_ROWS &&
                    tail->nodes[0].in[0] == tail->in && !is_read_from(tail, 1, tail->in);
    if (!is_first || g->n_bodies == TG_MAX_BODIES) return 0;
    int32_t first = b->n_nodes;
    while (first > 0 && !needs_all_tokens(b->nodes[first - 1].op))
        first--;
    /* In the worst case each value before the cut is picked. */
    return first < b->n_nodes && b->n_nodes + first + 1 <= MAX_NODES ? first : 0;
}

static bool cut(work *w, int32_t first)
{
    tg_graph *g = w->g;
    for (int32_t i = 0, n = g->n_values; i < n; i++)
        w->picked[i] = TG_NONE;
    if (!make_nodes(w, first)) return false;
    w->body->out = w->picked[w->body->out];
    if (!tg_graph_set_nodes(g, w->body, w->nodes, w->n_nodes)) return false;
    /* The tail takes what its first node made. */
    tg_graph_block *tail = &g->tail;
    tail->in = tail->nodes[0].out;
    return tg_graph_set_nodes(g, tail, tail->nodes + 1, tail->n_nodes - 1);
}

tg_status tg_graph_pick_output_rows(tg_graph *g, tg_err *e)
{
    int32_t first = find_cut(g);
    if (first == 0) return TG_OK;
    work *w = TG_NEW(work);
    bool is_made = w != NULL;
    if (is_made) {
        w->g = g;
        w->body = take_body(g);
        w->picked = TG_NEW_ARRAY(int32_t, g->n_values);
        is_made = w->body && w->picked && cut(w, first);
        tg_mem_free(w->picked);
    }
    tg_mem_free(w);
    if (!is_made) return tg_fail_nomem(e, sizeof *w, "picking the output rows of a graph");
    return tg_graph_check(g, e);
}
