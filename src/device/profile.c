/* SPDX-License-Identifier: Apache-2.0 */
#include "device/profile.h"

#include "base/mem.h"
#include "base/os.h"

enum { NO_ROLE = TG_W_COUNT }; /* the place of operations without a matrix */

typedef struct cost {
    int64_t n_calls, ns, n_bytes, n_products;
} cost;

/* Indexed, not searched: adding takes the same few nanoseconds for every operation. */
struct tg_profile {
    int64_t mark_ns; /* the end of the last instruction */
    int64_t n_steps[TG_KIND_COUNT], n_tokens[TG_KIND_COUNT];
    cost costs[TG_KIND_COUNT][TG_OP_COUNT][NO_ROLE + 1];
};

tg_status tg_profile_new(tg_profile **out, tg_err *e)
{
    *out = TG_NEW(tg_profile);
    return *out ? TG_OK : tg_fail_nomem(e, sizeof **out, "the profile");
}

void tg_profile_free(tg_profile *p)
{
    tg_mem_free(p);
}

void tg_profile_begin(tg_profile *p, const tg_step *s)
{
    p->n_steps[s->plan->kind]++;
    p->n_tokens[s->plan->kind] += s->counts.n_tokens;
    p->mark_ns = tg_time_ns();
}

/* The matrix in a slot, NULL when it is none or is absent. */
static const tg_weight_entry *find_matrix(const tg_step *s, const tg_instr *x, int32_t slot,
                                          int32_t layer)
{
    int32_t role = x->weights[slot];
    if (role == TG_NONE || tg_op_get((tg_op)x->op)->slots[slot].is_plain) return NULL;
    int32_t l = tg_weight_role_is_per_layer((tg_weight_role)role) ? layer : 0;
    return s->weights[(int64_t)l * TG_W_COUNT + role].entry;
}

/* A token takes one row of the embedding table; of the others every row is used. */
static void add_matrix(cost *c, const tg_step_view *v, const tg_instr *x, const tg_weight_entry *w)
{
    int64_t n_tokens = tg_step_n_rows(v, x->out), tile_bytes = tg_weight_tile_bytes(w);
    if (tg_op_get((tg_op)x->op)->is_lookup) {
        c->n_bytes += n_tokens * tile_bytes / TG_TILE_ROWS;
        return;
    }
    /* Surplus rows of a head that is also the embedding are not computed. */
    bool may_be_head = tg_op_get((tg_op)x->op)->logits == TG_LOGITS_MAKES;
    int64_t rows = may_be_head ? TG_MIN(w->rows, v->step->plan->values[x->out].width) : w->rows;
    c->n_bytes += tg_div_up(rows, TG_TILE_ROWS) * tile_bytes;
    c->n_products += rows * w->cols * n_tokens;
}

/* Keys and values that the rows see: each once, however many tokens of the row see it. */
static void add_attention(cost *c, const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    const tg_attrs *a = &x->attrs;
    const tg_kv_group *g = &v->step->program->kv_groups[v->step->program->layers[layer].kv_group];
    int64_t position_bytes = g->page_bytes / TG_KV_PAGE_TOKENS / g->n_layers;
    for (int32_t r = 0; r < v->step->counts.n_rows; r++) {
        int32_t first = v->tokens.row_tokens[r], end = v->tokens.row_tokens[r + 1];
        for (int32_t t = first; t < end; t++) {
            int64_t n = v->tokens.positions[t] + 1;
            if (a->window > 0) n = TG_MIN(n, a->window);
            c->n_products += 2 * n * a->n_heads * a->head_dim;
            /* The first token's whole view, then the one new position of each other. */
            c->n_bytes += (t == first ? n : 1) * position_bytes;
        }
    }
}

static cost *find_cost(tg_profile *p, const tg_step *s, const tg_instr *x, int32_t layer)
{
    int32_t first_role = x->weights[0];
    bool has_matrix = find_matrix(s, x, 0, layer) != NULL;
    return &p->costs[s->plan->kind][x->op][has_matrix ? first_role : NO_ROLE];
}

void tg_profile_add_time(tg_profile *p, const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    int64_t now = tg_time_ns();
    find_cost(p, v->step, x, layer)->ns += now - p->mark_ns;
    p->mark_ns = tg_time_ns(); /* leaves out the time of counting itself */
}

void tg_profile_add_work(tg_profile *p, const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    cost *c = find_cost(p, v->step, x, layer);
    c->n_calls++;
    for (int32_t slot = 0; slot < tg_op_get((tg_op)x->op)->n_slots; slot++) {
        const tg_weight_entry *w = find_matrix(v->step, x, slot, layer);
        if (w) add_matrix(c, v, x, w);
    }
    if (tg_op_get((tg_op)x->op)->kv == TG_OP_KV_READS) add_attention(c, v, x, layer);
}

void tg_profile_add(tg_profile *p, const tg_step_view *v, const tg_instr *x, int32_t layer)
{
    tg_profile_add_time(p, v, x, layer);
    tg_profile_add_work(p, v, x, layer);
    p->mark_ns = tg_time_ns();
}

int32_t tg_profile_read(const tg_profile *p, tg_cpu_cost *rows, int32_t n_max)
{
    int32_t n = 0;
    for (int32_t k = 0; k < TG_KIND_COUNT; k++)
        for (int32_t op = 0; op < TG_OP_COUNT; op++)
            for (int32_t role = 0; role <= NO_ROLE; role++) {
                const cost *c = &p->costs[k][op][role];
                if (c->n_calls == 0) continue;
                if (n < n_max)
                    rows[n] = (tg_cpu_cost){
                        .kind = k,
                        .op = op,
                        .role = role == NO_ROLE ? TG_NONE : role,
                        .n_steps = p->n_steps[k],
                        .n_tokens = p->n_tokens[k],
                        .n_calls = c->n_calls,
                        .ns = c->ns,
                        .n_bytes = c->n_bytes,
                        .n_products = c->n_products,
                    };
                n++;
            }
    return n;
}
