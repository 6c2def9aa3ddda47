/* SPDX-License-Identifier: Apache-2.0
 * fuse.c - fusions as rows of a table: what to find, what must hold besides, what to put instead.
 *
 * A pattern is a list of terms in the order of execution. A term is an operation and, for each of
 * its inputs, the earlier term that makes it. An optional term may be missing: then it stands for
 * its own first input. A kept term is only looked at. The last term is searched for in the block,
 * the others follow from its inputs, or are searched for themselves.
 *
 * For every row it must also hold that nothing outside the match reads what disappears. The new
 * nodes stand where the last removed one stood. */
#include "compile/pass.h"

#include <string.h>

enum { MAX_TERMS = 9, MAX_NEW = 2, ANY = -1 };

typedef struct term {
    tg_op op;
    int8_t in[TG_MAX_INPUTS]; /* term, or ANY */
    bool is_optional, is_kept;
} term;

typedef struct match {
    tg_graph *g;
    tg_graph_block *b;
    int32_t nodes[MAX_TERMS];  /* node of each term, TG_NONE for a missing one */
    int32_t values[MAX_TERMS]; /* what each term gives, TG_NONE: not known yet */
} match;

typedef struct fusion {
    const char *name;
    int32_t n_terms;
    int32_t result; /* the term whose value the new nodes give; TG_NONE: none */
    term terms[MAX_TERMS];
    bool (*allows)(const match *m);
    /* Writes the new nodes; their count, 0 when memory is refused. */
    int32_t (*replace)(const match *m, tg_node *out);
} fusion;

static const tg_node *node_of(const match *m, int32_t t)
{
    return m->nodes[t] == TG_NONE ? NULL : &m->b->nodes[m->nodes[t]];
}

/* ---- qkv: everything between the normed input and attention */

enum { Q, Q_NORM, Q_ROPE, K, K_NORM, K_ROPE, V, WRITE, ATTEND };

/* Head norms and rotations of q and k must be of one kind, as the fused op has one set of numbers.
 * */
static bool allows_qkv(const match *m)
{
    const tg_node *q = node_of(m, Q), *k = node_of(m, K), *v = node_of(m, V);
    const tg_node *write = node_of(m, WRITE), *attend = node_of(m, ATTEND);
    const tg_node *norms[] = {node_of(m, Q_NORM), node_of(m, K_NORM)};
    const tg_node *ropes[] = {node_of(m, Q_ROPE), node_of(m, K_ROPE)};
    int32_t head_dim = attend->attrs.head_dim;
    if (q->in[0] != k->in[0] || q->in[0] != v->in[0] || m->nodes[ATTEND] < m->nodes[WRITE])
        return false;
    if (q->weights[TG_SLOT_NORM] != TG_NONE || k->weights[TG_SLOT_NORM] != TG_NONE ||
        v->weights[TG_SLOT_NORM] != TG_NONE)
        return false;
    if (write->attrs.head_dim != head_dim || write->attrs.n_kv_heads != attend->attrs.n_kv_heads)
        return false;
    for (int i = 0; i < 2; i++) {
        if (norms[i] && norms[i]->attrs.head_dim != head_dim) return false;
        if (ropes[i] && ropes[i]->attrs.head_dim != head_dim) return false;
    }
    if (norms[0] && norms[1] && norms[0]->attrs.eps != norms[1]->attrs.eps) return false;
    if (!ropes[0] || !ropes[1]) return !ropes[0] && !ropes[1];
    return ropes[0]->weights[0] == ropes[1]->weights[0] &&
           ropes[0]->attrs.rotary_dim == ropes[1]->attrs.rotary_dim;
}

static int32_t replace_qkv(const match *m, tg_node *out)
{
    const tg_node *q_norm = node_of(m, Q_NORM), *k_norm = node_of(m, K_NORM);
    const tg_node *rope = node_of(m, Q_ROPE), *attend = node_of(m, ATTEND);
    tg_node n = tg_node_of(TG_OP_QKV, node_of(m, Q)->in[0], TG_NONE);
    n.out = m->values[Q_ROPE];
    const int32_t projections[] = {Q, K, V};
    for (int i = 0; i < 3; i++) {
        const tg_node *w = node_of(m, projections[i]);
        n.weights[TG_SLOT_QKV_Q + i] = w->weights[TG_SLOT_W];
        n.weights[TG_SLOT_QKV_Q_BIAS + i] = w->weights[TG_SLOT_BIAS];
    }
    if (q_norm) n.weights[TG_SLOT_QKV_Q_NORM] = q_norm->weights[0];
    if (k_norm) n.weights[TG_SLOT_QKV_K_NORM] = k_norm->weights[0];
    if (rope) n.weights[TG_SLOT_QKV_ROPE] = rope->weights[0];
    n.attrs.eps = q_norm ? q_norm->attrs.eps : k_norm ? k_norm->attrs.eps : 0;
    n.attrs.n_heads = attend->attrs.n_heads;
    n.attrs.n_kv_heads = attend->attrs.n_kv_heads;
    n.attrs.head_dim = attend->attrs.head_dim;
    n.attrs.rotary_dim = rope ? rope->attrs.rotary_dim : 0;
    n.attrs.kv_group = node_of(m, WRITE)->attrs.kv_group;
    out[0] = n;
    return 1;
}

/* ---- glu_matmul: 0 gate, 1 up, 2 glu */

static bool allows_glu_matmul(const match *m)
{
    const tg_node *gate = node_of(m, 0), *up = node_of(m, 1);
    return gate != up && gate->in[0] == up->in[0] && gate->weights[TG_SLOT_NORM] == TG_NONE &&
           up->weights[TG_SLOT_NORM] == TG_NONE;
}

static int32_t replace_glu_matmul(const match *m, tg_node *out)
{
    const tg_node *gate = node_of(m, 0), *up = node_of(m, 1);
    out[0] = tg_node_of(TG_OP_GLU_MATMUL, gate->in[0], TG_NONE);
    out[0].out = m->values[2];
    out[0].weights[TG_SLOT_GLU_GATE] = gate->weights[TG_SLOT_W];
    out[0].weights[TG_SLOT_GLU_UP] = up->weights[TG_SLOT_W];
    out[0].weights[TG_SLOT_GLU_GATE_BIAS] = gate->weights[TG_SLOT_BIAS];
    out[0].weights[TG_SLOT_GLU_UP_BIAS] = up->weights[TG_SLOT_BIAS];
    out[0].attrs.act = node_of(m, 2)->attrs.act;
    return 1;
}

/* ---- additions in place: 0 the summand, 1 the add */

/* Does the value hold the residual stream, as the block's input with sums added to it? A layer's
 * result must end up in the memory of its input, and only such a chain does so in place. */
static bool is_stream(const tg_graph_block *b, int32_t value)
{
    while (value != b->in) {
        const tg_node *n = NULL;
        for (int32_t i = 0; i < b->n_nodes; i++)
            if (b->nodes[i].out == value) n = &b->nodes[i];
        if (!n || !tg_op_get(n->op)->is_sum) return false;
        value = n->in[0];
    }
    return true;
}

/* The sum may be written over the residual when nothing reads the old residual afterwards. */
static bool allows_in_place(const match *m)
{
    const tg_node *add = node_of(m, 1), *summand = node_of(m, 0);
    int32_t residual = add->in[0];
    if (residual == summand->in[0] || residual == m->b->out) return false;
    for (int32_t i = m->nodes[1]; i < m->b->n_nodes; i++) {
        const tg_node *n = &m->b->nodes[i];
        for (int32_t k = 0; k < tg_op_get(n->op)->n_inputs; k++)
            if (n->in[k] == residual && (i != m->nodes[1] || k != 0)) return false;
    }
    return add->out != m->b->out || is_stream(m->b, residual);
}

static bool allows_norm_add(const match *m)
{
    return node_of(m, 0)->attrs.head_dim == 0 && allows_in_place(m);
}

static bool allows_matmul_add(const match *m)
{
    return node_of(m, 0)->weights[TG_SLOT_NORM] == TG_NONE && allows_in_place(m);
}

static int32_t replace_add(const match *m, tg_op op, tg_node *out)
{
    const tg_node *summand = node_of(m, 0), *add = node_of(m, 1);
    out[0] = tg_node_of(op, add->in[0], summand->in[0]);
    out[0].out = add->out;
    for (int32_t i = 0; i < tg_op_get(op)->n_slots; i++)
        out[0].weights[i] = summand->weights[i];
    out[0].attrs.eps = summand->attrs.eps;
    return 1;
}

static int32_t replace_norm_add(const match *m, tg_node *out)
{
    return replace_add(m, TG_OP_NORM_ADD, out);
}

static int32_t replace_matmul_add(const match *m, tg_node *out)
{
    return replace_add(m, TG_OP_MATMUL_ADD, out);
}

/* ---- rows before norm: 0 norm, 1 rows. Only output rows are normed then, and each row of a norm
 * is that row's own affair, so no bit changes. */

static bool allows_always(const match *m)
{
    (void)m;
    return true;
}

static int32_t replace_norm_rows(const match *m, tg_node *out)
{
    const tg_node *norm = node_of(m, 0), *rows = node_of(m, 1);
    tg_value_info info = m->g->values[norm->in[0]];
    info.dim = TG_DIM_R;
    int32_t picked = tg_graph_add_value(m->g, info);
    if (picked == TG_NONE) return 0;
    out[0] = *rows;
    out[0].out = picked;
    out[0].in[0] = norm->in[0];
    out[1] = *norm;
    out[1].out = rows->out;
    out[1].in[0] = picked;
    return 2;
}

/* ---- a norm into what alone reads it: 0 norm, 1 reader */

static bool allows_norm(const match *m)
{
    const tg_node *norm = node_of(m, 0), *n = node_of(m, 1);
    if (norm->attrs.head_dim != 0 || n->weights[tg_op_get(n->op)->norm_slot] != TG_NONE)
        return false;
    bool has_head_norm = n->op == TG_OP_QKV && (n->weights[TG_SLOT_QKV_Q_NORM] != TG_NONE ||
                                                n->weights[TG_SLOT_QKV_K_NORM] != TG_NONE);
    return !has_head_norm || n->attrs.eps == norm->attrs.eps; /* the op has one eps */
}

static int32_t replace_norm(const match *m, tg_node *out)
{
    const tg_node *norm = node_of(m, 0);
    out[0] = *node_of(m, 1);
    out[0].in[0] = norm->in[0];
    out[0].weights[tg_op_get(out[0].op)->norm_slot] = norm->weights[0];
    out[0].attrs.eps = norm->attrs.eps;
    return 1;
}

/* Tried in this order, each until it matches nowhere. Norms go last: they join what the other rows
 * made.
 */
static const fusion fusions[] = {
    {"qkv",
     9,
     Q_ROPE,
     {[Q] = {TG_OP_MATMUL, {ANY, ANY}, false, false},
      [Q_NORM] = {TG_OP_RMS_NORM, {Q, ANY}, true, false},
      [Q_ROPE] = {TG_OP_ROPE, {Q_NORM, ANY}, true, false},
      [K] = {TG_OP_MATMUL, {ANY, ANY}, false, false},
      [K_NORM] = {TG_OP_RMS_NORM, {K, ANY}, true, false},
      [K_ROPE] = {TG_OP_ROPE, {K_NORM, ANY}, true, false},
      [V] = {TG_OP_MATMUL, {ANY, ANY}, false, false},
      [WRITE] = {TG_OP_KV_WRITE, {K_ROPE, V}, false, false},
      [ATTEND] = {TG_OP_ATTENTION, {Q_ROPE, ANY}, false, true}},
     allows_qkv,
     replace_qkv},
    {"glu_matmul",
     3,
     2,
     {{TG_OP_MATMUL, {ANY, ANY}, false, false},
      {TG_OP_MATMUL, {ANY, ANY}, false, false},
      {TG_OP_GLU, {0, 1}, false, false}},
     allows_glu_matmul,
     replace_glu_matmul},
    {"norm_add",
     2,
     1,
     {{TG_OP_RMS_NORM, {ANY, ANY}, false, false}, {TG_OP_ADD, {ANY, 0}, false, false}},
     allows_norm_add,
     replace_norm_add},
    {"matmul_add",
     2,
     1,
     {{TG_OP_MATMUL, {ANY, ANY}, false, false}, {TG_OP_ADD, {ANY, 0}, false, false}},
     allows_matmul_add,
     replace_matmul_add},
    {"rows_before_norm",
     2,
     1,
     {{TG_OP_RMS_NORM, {ANY, ANY}, false, false}, {TG_OP_ROWS, {0, ANY}, false, false}},
     allows_always,
     replace_norm_rows},
    {"rows_before_layer_norm",
     2,
     1,
     {{TG_OP_LAYER_NORM, {ANY, ANY}, false, false}, {TG_OP_ROWS, {0, ANY}, false, false}},
     allows_always,
     replace_norm_rows},
    {"norm_matmul",
     2,
     1,
     {{TG_OP_RMS_NORM, {ANY, ANY}, false, false}, {TG_OP_MATMUL, {0, ANY}, false, false}},
     allows_norm,
     replace_norm},
    {"norm_qkv",
     2,
     1,
     {{TG_OP_RMS_NORM, {ANY, ANY}, false, false}, {TG_OP_QKV, {0, ANY}, false, false}},
     allows_norm,
     replace_norm},
    {"norm_glu_matmul",
     2,
     1,
     {{TG_OP_RMS_NORM, {ANY, ANY}, false, false}, {TG_OP_GLU_MATMUL, {0, ANY}, false, false}},
     allows_norm,
     replace_norm},
};

/* ---- the matcher */

static bool is_removed(const fusion *f, const match *m, int32_t node)
{
    for (int32_t t = 0; t < f->n_terms; t++)
        if (m->nodes[t] == node && !f->terms[t].is_kept) return true;
    return false;
}

static int32_t last_removed(const fusion *f, const match *m)
{
    int32_t last = TG_NONE;
    for (int32_t t = 0; t < f->n_terms; t++)
        if (!f->terms[t].is_kept) last = TG_MAX(last, m->nodes[t]);
    return last;
}

/* Nothing that stays reads what goes, and nothing reads the result before the place of the new
 * nodes. */
static bool is_closed(const fusion *f, const match *m)
{
    int32_t place = last_removed(f, m);
    int32_t result = f->result == TG_NONE ? TG_NONE : m->values[f->result];
    for (int32_t t = 0; t < f->n_terms; t++) {
        if (m->nodes[t] == TG_NONE || f->terms[t].is_kept) continue;
        int32_t gone = m->b->nodes[m->nodes[t]].out;
        if (gone == TG_NONE) continue;
        if (gone == m->b->out && gone != result) return false;
        for (int32_t i = 0; i < m->b->n_nodes; i++) {
            const tg_node *n = &m->b->nodes[i];
            bool is_reader = false;
            for (int32_t k = 0; k < tg_op_get(n->op)->n_inputs; k++)
                is_reader |= n->in[k] == gone;
            if (is_reader && !is_removed(f, m, i) && (gone != result || i < place)) return false;
        }
    }
    return true;
}

static bool match_term(const fusion *f, match *m, int32_t t);

/* Binds term t to a node: its inputs become what earlier terms must give. */
static bool bind(const fusion *f, match *m, int32_t t, int32_t node)
{
    match before = *m;
    const tg_node *n = &m->b->nodes[node];
    bool is_right = true;
    m->nodes[t] = node;
    m->values[t] = n->out;
    for (int32_t k = 0; k < TG_MAX_INPUTS; k++) {
        int32_t from = f->terms[t].in[k];
        if (from == ANY) continue;
        is_right &= m->values[from] == TG_NONE || m->values[from] == n->in[k];
        m->values[from] = n->in[k];
    }
    if (is_right && match_term(f, m, t - 1)) return true;
    *m = before;
    return false;
}

/* Finds nodes for terms t, t - 1, ... 0. */
static bool match_term(const fusion *f, match *m, int32_t t)
{
    if (t < 0) return f->allows(m) && is_closed(f, m);
    const term *x = &f->terms[t];
    bool is_asked = m->values[t] != TG_NONE;
    for (int32_t i = 0; i < m->b->n_nodes; i++) {
        const tg_node *n = &m->b->nodes[i];
        if (n->op == x->op && (!is_asked || n->out == m->values[t]) && bind(f, m, t, i))
            return true;
    }
    if (!x->is_optional || !is_asked) return false;
    /* Missing: what is asked of it is asked of its input. */
    int32_t from = x->in[0], value = m->values[t];
    match before = *m;
    if (m->values[from] == TG_NONE || m->values[from] == value) {
        m->values[from] = value;
        if (match_term(f, m, t - 1)) return true;
    }
    *m = before;
    return false;
}

/* Puts the new nodes where the last removed one stood. */
static tg_status rewrite(const fusion *f, const match *m, tg_err *e)
{
    tg_node added[MAX_NEW];
    int32_t n_added = f->replace(m, added), place = last_removed(f, m), n = 0;
    tg_graph_block *b = m->b;
    tg_node *nodes = TG_NEW_ARRAY(tg_node, b->n_nodes + MAX_NEW);
    bool is_done = n_added > 0 && nodes;
    for (int32_t i = 0; is_done && i < b->n_nodes; i++) {
        if (!is_removed(f, m, i)) nodes[n++] = b->nodes[i];
        for (int32_t k = 0; i == place && k < n_added; k++)
            nodes[n++] = added[k];
    }
    is_done = is_done && tg_graph_set_nodes(m->g, b, nodes, n);
    tg_mem_free(nodes);
    return is_done ? TG_OK : tg_fail_nomem(e, sizeof(tg_node), "fusing a graph");
}

/* Ends, as every row leaves fewer nodes or (rows_before_norm) one node nearer to the end. */
static tg_status fuse_block(tg_graph *g, tg_graph_block *b, const fusion *f, tg_err *e)
{
    for (;;) {
        match m = {.g = g, .b = b};
        for (int32_t t = 0; t < MAX_TERMS; t++)
            m.nodes[t] = m.values[t] = TG_NONE;
        if (!match_term(f, &m, f->n_terms - 1)) return TG_OK;
        tg_status s = rewrite(f, &m, e);
        if (s != TG_OK) tg_err_context(e, "fusion %s", f->name);
        if (s != TG_OK) return s;
    }
}

tg_status tg_graph_fuse(tg_graph *g, tg_err *e)
{
    for (int32_t i = 0; i < tg_graph_n_blocks(g); i++)
        for (size_t f = 0; f < TG_COUNT(fusions); f++)
            TG_TRY(fuse_block(g, tg_graph_get_block(g, i), &fusions[f], e));
    return tg_graph_check(g, e);
}
