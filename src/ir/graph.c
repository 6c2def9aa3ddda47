/* SPDX-License-Identifier: Apache-2.0
 * graph.c - checking and printing graphs.
 *
 * The check repeats what the builder knew, for every layer and with that layer's weights: a body is
 * shared, the shapes of its weights need not be. Passes change nodes freely and are caught here. */
#include "ir/graph.h"

#include "ir/infer.h"

#include <string.h>

const tg_weight_shape *tg_graph_find_shape(const tg_graph *g, tg_weight_role role, int32_t layer)
{
    int32_t column = tg_weight_role_is_per_layer(role) ? layer : 0;
    TG_ASSERT(column >= 0 && column < g->n_layers);
    return &g->shapes[(size_t)role * (size_t)g->n_layers + (size_t)column];
}

int32_t tg_graph_n_blocks(const tg_graph *g)
{
    return g->n_bodies + 2;
}

tg_graph_block *tg_graph_get_block(tg_graph *g, int32_t i)
{
    TG_ASSERT(i >= 0 && i <= g->n_bodies + 1);
    if (i == 0) return &g->head;
    return i <= g->n_bodies ? &g->bodies[i - 1] : &g->tail;
}

/* The same for readers. */
static const tg_graph_block *find_block(const tg_graph *g, int32_t i)
{
    if (i == 0) return &g->head;
    return i <= g->n_bodies ? &g->bodies[i - 1] : &g->tail;
}

int32_t tg_graph_add_value(tg_graph *g, tg_value_info info)
{
    if (g->n_values == g->values_room) {
        int32_t room = 2 * g->values_room + 64;
        tg_value_info *more = TG_ARENA_ARRAY(&g->arena, tg_value_info, room);
        if (!more) return TG_NONE;
        if (g->n_values) memcpy(more, g->values, (size_t)g->n_values * sizeof *more);
        g->values = more;
        g->values_room = room;
    }
    g->values[g->n_values] = info;
    return g->n_values++;
}

bool tg_graph_set_nodes(tg_graph *g, tg_graph_block *b, const tg_node *nodes, int32_t n_nodes)
{
    if (n_nodes > b->room) {
        tg_node *more = TG_ARENA_ARRAY(&g->arena, tg_node, n_nodes);
        if (!more) return false;
        b->nodes = more;
        b->room = n_nodes;
    }
    if (n_nodes) memmove(b->nodes, nodes, (size_t)n_nodes * sizeof *nodes);
    b->n_nodes = n_nodes;
    return true;
}

tg_node tg_node_of(tg_op op, int32_t in0, int32_t in1)
{
    tg_node n = {.op = op, .out = TG_NONE, .in = {in0, in1}};
    for (int32_t i = 0; i < TG_MAX_WEIGHTS; i++)
        n.weights[i] = TG_NONE;
    if (tg_op_get(op)->kv) n.attrs.kv_group = TG_NONE;
    return n;
}

void tg_graph_free(tg_graph *g)
{
    if (!g) return;
    tg_arena_deinit(&g->arena);
    tg_mem_free(g);
}

/* ---- checking */

/* Applies the shape rule of a node as layer `layer` calls it. */
static tg_status check_node(const tg_graph *g, const tg_node *n, int32_t layer, tg_err *e)
{
    tg_infer x = {.op = n->op, .attrs = &n->attrs, .roles = n->weights};
    const tg_op_row *row = tg_op_get(n->op);
    for (int32_t i = 0; i < row->n_inputs; i++)
        x.in[i] = g->values[n->in[i]];
    for (int32_t i = 0; i < row->n_slots; i++)
        if (n->weights[i] != TG_NONE)
            x.weights[i] = *tg_graph_find_shape(g, (tg_weight_role)n->weights[i], layer);
    tg_value_info want;
    TG_TRY(tg_infer_value(&want, &x, e));
    if (want.width == 0 && n->out == TG_NONE) return TG_OK;
    const tg_value_info *got = n->out == TG_NONE ? NULL : &g->values[n->out];
    if (!got || got->width != want.width || got->type != want.type || got->dim != want.dim)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: its result is not the %d-wide value that its rule gives", row->name,
                       want.width);
    return TG_OK;
}

/* Indices in range, inputs defined before they are read and in the same block, every value defined
 * once in the whole graph. owner[v] is the mark of the block that defines v, 0 for none yet. */
static tg_status check_order(const tg_graph *g, const tg_graph_block *b, int32_t *owner,
                             int32_t mark, tg_err *e)
{
    if (b->in < 0 || b->in >= g->n_values || owner[b->in] != 0)
        return tg_fail(e, TG_E_CORRUPT, "the block has no input of its own");
    owner[b->in] = mark;
    for (int32_t i = 0; i < b->n_nodes; i++) {
        const tg_node *n = &b->nodes[i];
        if ((int)n->op < 0 || n->op >= TG_OP_COUNT)
            return tg_fail(e, TG_E_CORRUPT, "node %d has no operation", i);
        const tg_op_row *row = tg_op_get(n->op);
        for (int32_t k = 0; k < row->n_inputs; k++)
            if (n->in[k] < 0 || n->in[k] >= g->n_values || owner[n->in[k]] != mark)
                return tg_fail(e, TG_E_CORRUPT, "node %d, %s: input %d is not defined before", i,
                               row->name, k);
        for (int32_t k = 0; k < TG_MAX_WEIGHTS; k++)
            if (n->weights[k] < TG_NONE || n->weights[k] >= TG_W_COUNT)
                return tg_fail(e, TG_E_CORRUPT, "node %d, %s: weight slot %d holds no role", i,
                               row->name, k);
        if (n->out == TG_NONE) continue;
        if (n->out < 0 || n->out >= g->n_values || owner[n->out] != 0)
            return tg_fail(e, TG_E_CORRUPT, "node %d, %s: its result is defined twice", i,
                           row->name);
        owner[n->out] = mark;
    }
    if (b->out < 0 || b->out >= g->n_values || owner[b->out] != mark)
        return tg_fail(e, TG_E_CORRUPT, "the block's result is not defined in it");
    return TG_OK;
}

static tg_status check_block(const tg_graph *g, const tg_graph_block *b, int32_t layer, tg_err *e)
{
    for (int32_t i = 0; i < b->n_nodes; i++) {
        tg_status s = check_node(g, &b->nodes[i], layer, e);
        if (s == TG_OK) continue;
        tg_err_context(e, "node %d", i);
        return s;
    }
    return TG_OK;
}

static bool is_same_kind(const tg_value_info *a, const tg_value_info *b)
{
    return a->type == b->type && a->dim == b->dim && a->width == b->width;
}

/* Every layer hands the same residual stream on; the last may give the output rows alone. */
static tg_status check_stream(const tg_graph *g, tg_err *e)
{
    tg_value_info stream = g->values[g->head.out], output = stream;
    output.dim = TG_DIM_R;
    const tg_value_info *given = &stream;
    for (int32_t l = 0; l < g->n_layers; l++) {
        if (g->layer_body[l] < 0 || g->layer_body[l] >= g->n_bodies)
            return tg_fail(e, TG_E_CORRUPT, "layer %d calls body %d of %d", l, g->layer_body[l],
                           g->n_bodies);
        const tg_graph_block *b = &g->bodies[g->layer_body[l]];
        if (!is_same_kind(&g->values[b->in], given))
            return tg_fail(e, TG_E_CORRUPT, "layer %d does not take the residual stream", l);
        given = &g->values[b->out];
        bool is_last = l == g->n_layers - 1;
        if (!is_same_kind(given, &stream) && !(is_last && is_same_kind(given, &output)))
            return tg_fail(e, TG_E_CORRUPT, "layer %d does not give the residual stream", l);
    }
    if (is_same_kind(&g->values[g->tail.in], given)) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "the tail does not take what the last layer gives");
}

tg_status tg_graph_check(const tg_graph *g, tg_err *e)
{
    int32_t *owner = TG_NEW_ARRAY(int32_t, g->n_values);
    if (!owner) return tg_fail_nomem(e, (size_t)g->n_values * sizeof *owner, "checking a graph");
    tg_status s = TG_OK;
    for (int32_t i = 0; s == TG_OK && i < tg_graph_n_blocks(g); i++) {
        s = check_order(g, find_block(g, i), owner, i + 1, e);
        if (s != TG_OK) tg_err_context(e, "block %d", i);
    }
    tg_mem_free(owner);
    if (s != TG_OK) return s;

    TG_TRY(check_stream(g, e));
    TG_TRY(check_block(g, &g->head, 0, e));
    for (int32_t l = 0; l < g->n_layers; l++) {
        s = check_block(g, &g->bodies[g->layer_body[l]], l, e);
        if (s != TG_OK) tg_err_context(e, "layer %d", l);
        if (s != TG_OK) return s;
    }
    return check_block(g, &g->tail, 0, e);
}

/* ---- printing */

static void print_kind(const tg_value_info *v, tg_buf *out)
{
    tg_buf_printf(out, "[%s, %d]%s", v->dim == TG_DIM_T ? "T" : "R", v->width,
                  v->type == TG_TYPE_I32 ? " i32" : "");
}

/* The number of a value within its block: its input is 0, results follow in order. */
static int32_t number_of(const tg_graph_block *b, int32_t value)
{
    if (value == b->in) return 0;
    int32_t number = 0;
    for (int32_t i = 0; i < b->n_nodes; i++) {
        if (b->nodes[i].out != TG_NONE) number++;
        if (b->nodes[i].out == value) return number;
    }
    return TG_NONE;
}

static void print_node(const tg_graph *g, const tg_graph_block *b, const tg_node *n, tg_buf *out)
{
    const tg_op_row *row = tg_op_get(n->op);
    tg_buf_add_cstr(out, "  ");
    if (n->out != TG_NONE) {
        tg_buf_printf(out, "x%d ", number_of(b, n->out));
        print_kind(&g->values[n->out], out);
        tg_buf_add_cstr(out, " = ");
    }
    tg_buf_add_cstr(out, row->name);
    for (int32_t i = 0; i < row->n_inputs; i++)
        tg_buf_printf(out, "%s x%d", i ? "," : "", number_of(b, n->in[i]));
    tg_slots_print(n->weights, n->op, out);
    tg_attrs_print(&n->attrs, n->op, out);
    tg_buf_add_byte(out, '\n');
}

static void print_block(const tg_graph *g, const tg_graph_block *b, tg_buf *out)
{
    tg_buf_add_cstr(out, " x0 ");
    print_kind(&g->values[b->in], out);
    tg_buf_printf(out, " -> x%d\n", number_of(b, b->out));
    for (int32_t i = 0; i < b->n_nodes; i++)
        print_node(g, b, &b->nodes[i], out);
}

/* "layers 0-4, 6-10": those that call body k. */
static void print_layers(const tg_graph *g, int32_t k, tg_buf *out)
{
    const char *before = " (layers ";
    for (int32_t l = 0; l < g->n_layers; l++) {
        if (g->layer_body[l] != k) continue;
        int32_t last = l;
        while (last + 1 < g->n_layers && g->layer_body[last + 1] == k)
            last++;
        tg_buf_printf(out, last > l ? "%s%d-%d" : "%s%d", before, l, last);
        before = ", ";
        l = last;
    }
    tg_buf_add_cstr(out, "):");
}

void tg_graph_print(const tg_graph *g, tg_buf *out)
{
    tg_buf_add_cstr(out, "head:");
    print_block(g, &g->head, out);
    for (int32_t k = 0; k < g->n_bodies; k++) {
        tg_buf_printf(out, "body %d", k);
        print_layers(g, k, out);
        print_block(g, &g->bodies[k], out);
    }
    tg_buf_add_cstr(out, "tail:");
    print_block(g, &g->tail, out);
}
