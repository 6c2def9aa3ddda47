/* SPDX-License-Identifier: Apache-2.0
 * group.c - layers that can share KV pages. A page of a group holds the same positions of all its
 * layers, so only layers that forget the same positions (equal window) and store the same shape
 * belong together. */
#include "compile/pass.h"

/* The KV heads that the layers of a body store; n_kv_heads 0: none. */
static tg_status find_kept(const tg_graph_block *b, tg_kv_group *out, tg_err *e)
{
    int32_t n_writes = 0, n_reads = 0;
    *out = (tg_kv_group){0};
    for (int32_t i = 0; i < b->n_nodes; i++) {
        const tg_node *n = &b->nodes[i];
        tg_op_kv kv = tg_op_get(n->op)->kv;
        if (kv == TG_OP_KV_NONE) continue;
        bool is_read = kv == TG_OP_KV_READS;
        if (n_writes + n_reads > 0 &&
            (out->n_kv_heads != n->attrs.n_kv_heads || out->head_dim != n->attrs.head_dim))
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "a layer writes KV heads of another number or size than it reads");
        out->n_kv_heads = n->attrs.n_kv_heads;
        out->head_dim = n->attrs.head_dim;
        if (is_read && n_reads > 0 && n->attrs.window != out->window)
            return tg_fail(e, TG_E_UNSUPPORTED, "a layer attends with two different windows");
        if (is_read) out->window = n->attrs.window;
        n_reads += is_read;
        n_writes += !is_read;
    }
    if ((n_reads == 0 && n_writes == 0) || (n_reads > 0 && n_writes == 1)) return TG_OK;
    return tg_fail(
        e, TG_E_UNSUPPORTED,
        "a layer writes keys and values %d times and attends %d times; once and at least "
        "once can be compiled",
        n_writes, n_reads);
}

/* The group of that shape, made if need be; TG_NONE when there are too many. */
static int32_t find_group(tg_program *p, const tg_kv_group *kept)
{
    for (int32_t i = 0; i < p->n_kv_groups; i++) {
        const tg_kv_group *g = &p->kv_groups[i];
        if (g->window == kept->window && g->n_kv_heads == kept->n_kv_heads &&
            g->head_dim == kept->head_dim)
            return i;
    }
    if (p->n_kv_groups == TG_MAX_KV_GROUPS) return TG_NONE;
    p->kv_groups[p->n_kv_groups] = *kept;
    return p->n_kv_groups++;
}

static void set_group(tg_graph_block *b, int32_t group)
{
    for (int32_t i = 0; i < b->n_nodes; i++)
        if (tg_op_get(b->nodes[i].op)->kv) b->nodes[i].attrs.kv_group = group;
}

tg_status tg_graph_group(tg_graph *g, tg_program *p, tg_arena *arena, tg_err *e)
{
    tg_layer *layers = TG_ARENA_ARRAY(arena, tg_layer, g->n_layers);
    if (!layers)
        return tg_fail_nomem(e, (size_t)g->n_layers * sizeof *layers, "the table of layers");
    p->n_kv_groups = 0;
    for (int32_t l = 0; l < g->n_layers; l++) {
        tg_graph_block *body = &g->bodies[g->layer_body[l]];
        tg_kv_group kept;
        tg_status s = find_kept(body, &kept, e);
        if (s != TG_OK) tg_err_context(e, "layer %d", l);
        if (s != TG_OK) return s;
        layers[l] = (tg_layer){TG_NONE, TG_NONE};
        if (kept.n_kv_heads == 0) continue;
        int32_t group = find_group(p, &kept);
        if (group == TG_NONE)
            return tg_fail(
                e, TG_E_UNSUPPORTED,
                "layer %d needs KV group %d; layers of at most %d shapes can be compiled", l,
                TG_MAX_KV_GROUPS + 1, TG_MAX_KV_GROUPS);
        set_group(body, group);
        layers[l] = (tg_layer){group, p->kv_groups[group].n_layers++};
    }
    for (int32_t i = 0; i < p->n_kv_groups; i++) {
        int32_t n_dims = tg_kv_type_dims(p->kv_type), head_dim = p->kv_groups[i].head_dim;
        if (head_dim % n_dims != 0)
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "kv %s takes heads whose dimensions are a multiple of %d, and this "
                           "model's have %d; use f16",
                           tg_kv_type_name(p->kv_type), n_dims, head_dim);
        p->kv_groups[i].page_bytes = tg_kv_page_bytes(&p->kv_groups[i], p->kv_type);
        if (p->kv_groups[i].page_bytes < 0)
            return tg_fail(e, TG_E_UNSUPPORTED, "a page of KV group %d does not fit in memory", i);
    }
    p->layers = layers;
    p->n_layers = g->n_layers;
    return tg_graph_check(g, e);
}
