/* SPDX-License-Identifier: Apache-2.0
 * build.c - the builder: nodes are checked as they come, layers are folded into bodies.
 *
 * A new layer is built behind all values so far. When it turns out equal to an earlier body it is
 * forgotten by taking its values back, so that a model of 100 equal layers costs one. */
#include "ir/graph.h"
#include "ir/infer.h"

#include <string.h>

struct tg_build {
    tg_graph *g;
    tg_err err;            /* the first mistake */
    tg_graph_block *block; /* where nodes go; NULL between layers and after the output */
    int32_t n_begun;       /* layers begun so far */
    int32_t n_ended;
    int32_t stream; /* the value that the next layer, or the tail, takes */
    int32_t first;  /* values of the current block are from here on */
};

static bool is_failed(const tg_build *b)
{
    return b->err.status != TG_OK;
}

void tg_build_fail(tg_build *b, const char *what)
{
    tg_fail(&b->err, TG_E_CORRUPT, "%s", what);
}

static tg_value fail_value(tg_build *b, const char *what)
{
    tg_build_fail(b, what);
    return (tg_value){TG_NONE};
}

static tg_value fail_memory(tg_build *b)
{
    tg_fail_nomem(&b->err, sizeof(tg_node), "a graph");
    return (tg_value){TG_NONE};
}

tg_status tg_build_new(tg_build **out, const tg_weight_shape *shapes, int32_t n_layers, tg_err *e)
{
    *out = NULL;
    if (n_layers < 1 || n_layers > TG_MAX_LAYERS)
        return tg_fail(e, TG_E_UNSUPPORTED, "the model has %d layers; 1 to %d can be built",
                       n_layers, TG_MAX_LAYERS);
    tg_build *b = TG_NEW(tg_build);
    tg_graph *g = TG_NEW(tg_graph);
    size_t n_shapes = (size_t)TG_W_COUNT * (size_t)n_layers;
    tg_weight_shape *copy = g ? TG_ARENA_ARRAY(&g->arena, tg_weight_shape, n_shapes) : NULL;
    int32_t *layer_body = g ? TG_ARENA_ARRAY(&g->arena, int32_t, n_layers) : NULL;
    if (!b || !g || !copy || !layer_body) {
        tg_graph_free(g);
        tg_mem_free(b);
        return tg_fail_nomem(e, n_shapes * sizeof *copy, "a graph builder");
    }
    memcpy(copy, shapes, n_shapes * sizeof *copy);
    *g = (tg_graph){
        .arena = g->arena, .n_layers = n_layers, .layer_body = layer_body, .shapes = copy};
    g->head.in = g->head.out = g->tail.in = g->tail.out = TG_NONE;
    b->g = g;
    b->block = &g->head;
    b->stream = TG_NONE;
    *out = b;
    return TG_OK;
}

tg_status tg_build_finish(tg_build *b, tg_graph **out, tg_err *e)
{
    *out = NULL;
    if (!is_failed(b) && b->g->tail.out == TG_NONE)
        tg_build_fail(b, "the graph ends without an output");
    tg_status s = b->err.status;
    if (s != TG_OK)
        tg_fail(e, s, "%s", b->err.msg);
    else
        s = tg_graph_check(b->g, e);
    if (s == TG_OK)
        *out = b->g;
    else
        tg_graph_free(b->g);
    tg_mem_free(b);
    return s;
}

/* The layer whose weights the current block sees. */
static int32_t current_layer(const tg_build *b)
{
    return b->n_begun > b->n_ended ? b->n_begun - 1 : 0;
}

static bool is_present(const tg_build *b, tg_weight_role role)
{
    return tg_graph_find_shape(b->g, role, current_layer(b))->is_present;
}

/* A value of the current block; says so otherwise. Blocks are run in turn with the stream as the
 * only thing between them, so nothing else may be carried from one to another. */
static bool check_input(tg_build *b, int32_t id)
{
    if (!b->block) {
        tg_build_fail(b, b->n_ended < b->g->n_layers ? "an operation stands between two layers"
                                                     : "an operation follows the output");
        return false;
    }
    if (id >= b->first && id < b->g->n_values) return true;
    tg_build_fail(b, "an operation reads a value of another layer or block");
    return false;
}

/* Appends a node, its result inferred. TG_NONE for an op without result and after a mistake. */
static tg_value emit(tg_build *b, tg_node n)
{
    if (is_failed(b)) return (tg_value){TG_NONE};
    const tg_op_row *row = tg_op_get(n.op);
    tg_infer x = {.op = n.op, .attrs = &n.attrs, .roles = n.weights};
    for (int32_t i = row->n_inputs; i < TG_MAX_INPUTS; i++)
        n.in[i] = TG_NONE;
    for (int32_t i = 0; i < row->n_inputs; i++) {
        if (!check_input(b, n.in[i])) return (tg_value){TG_NONE};
        x.in[i] = b->g->values[n.in[i]];
    }
    for (int32_t i = 0; i < row->n_slots; i++)
        if (n.weights[i] != TG_NONE)
            x.weights[i] =
                *tg_graph_find_shape(b->g, (tg_weight_role)n.weights[i], current_layer(b));
    tg_value_info info;
    if (tg_infer_value(&info, &x, &b->err) != TG_OK) {
        if (b->n_begun > b->n_ended) tg_err_context(&b->err, "layer %d", current_layer(b));
        return (tg_value){TG_NONE};
    }
    n.out = info.width ? tg_graph_add_value(b->g, info) : TG_NONE;
    if (info.width && n.out == TG_NONE) return fail_memory(b);

    tg_graph_block *block = b->block;
    if (block->n_nodes == block->room) {
        tg_node *more = TG_ARENA_ARRAY(&b->g->arena, tg_node, 2 * block->room + 16);
        if (!more) return fail_memory(b);
        if (block->n_nodes) memcpy(more, block->nodes, (size_t)block->n_nodes * sizeof *more);
        block->nodes = more;
        block->room = 2 * block->room + 16;
    }
    block->nodes[block->n_nodes++] = n;
    return (tg_value){n.out};
}

/* ---- blocks */

tg_value tg_build_tokens(tg_build *b)
{
    if (is_failed(b)) return (tg_value){TG_NONE};
    if (b->g->head.in != TG_NONE) return fail_value(b, "the graph has tokens twice");
    b->g->head.in = tg_graph_add_value(b->g, (tg_value_info){TG_TYPE_I32, TG_DIM_T, 1});
    if (b->g->head.in == TG_NONE) return fail_memory(b);
    return (tg_value){b->g->head.in};
}

tg_value tg_build_layer_begin(tg_build *b, int32_t layer, tg_value x)
{
    tg_graph *g = b->g;
    if (is_failed(b)) return (tg_value){TG_NONE};
    if (layer != b->n_begun || b->n_begun != b->n_ended || layer >= g->n_layers)
        return fail_value(b, "layers must be begun and ended one by one, in order");
    if (layer == 0) {
        /* The head ends here; every later layer takes what the one before it gave. */
        if (!check_input(b, x.id)) return (tg_value){TG_NONE};
        g->head.out = x.id;
        b->stream = tg_graph_add_value(g, g->values[x.id]);
        if (b->stream == TG_NONE) return fail_memory(b);
    } else if (x.id != b->stream) {
        return fail_value(b, "a layer takes something else than the result of the layer before");
    }
    if (g->n_bodies == TG_MAX_BODIES) {
        tg_fail(&b->err, TG_E_UNSUPPORTED, "layer %d: the model has more than %d kinds of layers",
                layer, TG_MAX_BODIES);
        return (tg_value){TG_NONE};
    }
    tg_graph_block *body = &g->bodies[g->n_bodies];
    *body = (tg_graph_block){.in = b->stream, .out = TG_NONE};
    b->block = body;
    b->first = b->stream;
    b->n_begun++;
    return (tg_value){b->stream};
}

static bool is_same_node(const tg_node *a, const tg_node *b, int32_t shift)
{
    if (a->op != b->op || memcmp(a->weights, b->weights, sizeof a->weights) != 0 ||
        memcmp(&a->attrs, &b->attrs, sizeof a->attrs) != 0)
        return false;
    if ((a->out == TG_NONE) != (b->out == TG_NONE)) return false;
    if (a->out != TG_NONE && a->out + shift != b->out) return false;
    for (int32_t i = 0; i < tg_op_get(a->op)->n_inputs; i++)
        if (a->in[i] + shift != b->in[i]) return false;
    return true;
}

/* Equal up to value numbering. Values are numbered in the order of building, so equal bodies differ
 * by one constant. */
static bool is_same_body(const tg_graph_block *a, const tg_graph_block *b)
{
    int32_t shift = b->in - a->in;
    if (a->n_nodes != b->n_nodes || a->out + shift != b->out) return false;
    for (int32_t i = 0; i < a->n_nodes; i++)
        if (!is_same_node(&a->nodes[i], &b->nodes[i], shift)) return false;
    return true;
}

tg_value tg_build_layer_end(tg_build *b, tg_value x)
{
    tg_graph *g = b->g;
    if (is_failed(b)) return (tg_value){TG_NONE};
    if (b->n_begun != b->n_ended + 1) return fail_value(b, "a layer ends that was not begun");
    if (!check_input(b, x.id)) return (tg_value){TG_NONE};
    tg_value_info info = g->values[x.id];
    const tg_value_info *in = &g->values[b->stream];
    if (info.width != in->width || info.dim != in->dim || info.type != in->type)
        return fail_value(b, "a layer must give back a value like the one it took");

    tg_graph_block *body = &g->bodies[g->n_bodies];
    body->out = x.id;
    int32_t k = 0;
    while (k < g->n_bodies && !is_same_body(&g->bodies[k], body))
        k++;
    g->layer_body[b->n_ended++] = k;
    if (k == g->n_bodies)
        g->n_bodies++;
    else
        g->n_values = body->in; /* the copy is forgotten, with its values */
    b->block = NULL;
    b->stream = tg_graph_add_value(g, info);
    if (b->stream == TG_NONE) return fail_memory(b);
    b->first = b->stream;
    if (b->n_ended == g->n_layers) {
        g->tail.in = b->stream;
        b->block = &g->tail;
    }
    return (tg_value){b->stream};
}

void tg_build_output(tg_build *b, tg_value x, tg_weight_role head, float scale, float softcap)
{
    if (is_failed(b)) return;
    if (b->block != &b->g->tail) {
        tg_build_fail(b, "the output comes before the last layer ended, or twice");
        return;
    }
    tg_value rows = emit(b, tg_node_of(TG_OP_ROWS, x.id, TG_NONE));
    tg_value logits = tg_build_scale(b, tg_build_matmul(b, rows, head, TG_W_COUNT), scale);
    if (softcap != 0) {
        tg_node n = tg_node_of(TG_OP_SOFTCAP, logits.id, TG_NONE);
        n.attrs.softcap = softcap;
        logits = emit(b, n);
    }
    tg_value ids = emit(b, tg_node_of(TG_OP_SAMPLE, logits.id, TG_NONE));
    b->g->tail.out = ids.id;
    b->block = NULL;
}

/* ---- operations */

tg_value tg_build_embed(tg_build *b, tg_weight_role w, tg_value tokens, float scale)
{
    tg_node n = tg_node_of(TG_OP_EMBED, tokens.id, TG_NONE);
    n.weights[0] = (int32_t)w;
    n.attrs.scale = scale;
    return emit(b, n);
}

tg_value tg_build_rms_norm(tg_build *b, tg_value x, tg_weight_role w, float eps)
{
    tg_node n = tg_node_of(TG_OP_RMS_NORM, x.id, TG_NONE);
    n.weights[0] = (int32_t)w;
    n.attrs.eps = eps;
    return emit(b, n);
}

tg_value tg_build_layer_norm(tg_build *b, tg_value x, tg_weight_role w, tg_weight_role bias,
                             float eps)
{
    tg_node n = tg_node_of(TG_OP_LAYER_NORM, x.id, TG_NONE);
    n.weights[TG_SLOT_W] = (int32_t)w;
    if (bias != TG_W_COUNT && is_present(b, bias)) n.weights[TG_SLOT_BIAS] = (int32_t)bias;
    n.attrs.eps = eps;
    return emit(b, n);
}

tg_value tg_build_scale(tg_build *b, tg_value x, float scale)
{
    if (scale == 1) return x;
    tg_node n = tg_node_of(TG_OP_SCALE, x.id, TG_NONE);
    n.attrs.scale = scale;
    return emit(b, n);
}

tg_value tg_build_head_norm(tg_build *b, tg_value x, tg_weight_role w, int32_t head_dim, float eps)
{
    if (!is_present(b, w)) return x;
    tg_node n = tg_node_of(TG_OP_RMS_NORM, x.id, TG_NONE);
    n.weights[0] = (int32_t)w;
    n.attrs.eps = eps;
    n.attrs.head_dim = head_dim;
    return emit(b, n);
}

tg_value tg_build_matmul(tg_build *b, tg_value x, tg_weight_role w, tg_weight_role bias)
{
    tg_node n = tg_node_of(TG_OP_MATMUL, x.id, TG_NONE);
    n.weights[TG_SLOT_W] = (int32_t)w;
    if (bias != TG_W_COUNT && is_present(b, bias)) n.weights[TG_SLOT_BIAS] = (int32_t)bias;
    return emit(b, n);
}

tg_value tg_build_rope(tg_build *b, tg_value x, tg_weight_role table, int32_t head_dim,
                       int32_t rotary_dim)
{
    tg_node n = tg_node_of(TG_OP_ROPE, x.id, TG_NONE);
    n.weights[0] = (int32_t)table;
    n.attrs.head_dim = head_dim;
    n.attrs.rotary_dim = rotary_dim;
    return emit(b, n);
}

void tg_build_kv_write(tg_build *b, tg_value k, tg_value v, int32_t n_kv_heads, int32_t head_dim)
{
    tg_node n = tg_node_of(TG_OP_KV_WRITE, k.id, v.id);
    n.attrs.n_kv_heads = n_kv_heads;
    n.attrs.head_dim = head_dim;
    (void)emit(b, n);
}

tg_value tg_build_attention(tg_build *b, tg_value q, const tg_attention *a)
{
    tg_node n = tg_node_of(TG_OP_ATTENTION, q.id, TG_NONE);
    n.attrs.n_heads = a->n_heads;
    n.attrs.n_kv_heads = a->n_kv_heads;
    n.attrs.head_dim = a->head_dim;
    n.attrs.scale = a->scale;
    n.attrs.softcap = a->softcap;
    n.attrs.window = a->window;
    return emit(b, n);
}

tg_value tg_build_glu(tg_build *b, tg_value gate, tg_value up, int32_t act)
{
    tg_node n = tg_node_of(TG_OP_GLU, gate.id, up.id);
    n.attrs.act = act;
    return emit(b, n);
}

tg_value tg_build_add(tg_build *b, tg_value residual, tg_value y)
{
    return emit(b, tg_node_of(TG_OP_ADD, residual.id, y.id));
}
