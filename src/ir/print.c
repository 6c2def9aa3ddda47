/* SPDX-License-Identifier: Apache-2.0
 * print.c - programs and plans as people read them. */
#include "ir/io.h"
#include "ir/program.h"

#include <inttypes.h>

/* "1 page", "2 pages". */
static void print_count(int64_t n, const char *noun, tg_buf *out)
{
    tg_buf_printf(out, "%" PRId64 " %s%s", n, noun, n == 1 ? "" : "s");
}

static void print_group(const tg_program *p, int32_t i, tg_buf *out)
{
    const tg_kv_group *g = &p->kv_groups[i];
    int64_t n_pages = tg_div_up(p->max_length, TG_KV_PAGE_TOKENS);
    tg_buf_printf(out, "KV group %d: ", i);
    print_count(g->n_layers, "layer", out);
    tg_buf_add_cstr(out, ", ");
    print_count(g->n_kv_heads, "KV head", out);
    tg_buf_printf(out, " of %d, %s, ", g->head_dim, tg_kv_type_name(p->kv_type));
    if (g->window) tg_buf_printf(out, "window %d, ", g->window);
    tg_buf_add_size(out, g->page_bytes);
    tg_buf_printf(out, " per page of %d positions, ", TG_KV_PAGE_TOKENS);
    tg_buf_add_size(out, g->page_bytes * n_pages);
    tg_buf_add_cstr(out, " per full sequence\n");
}

static void print_plan_line(const tg_program *p, const tg_plan *x, tg_buf *out)
{
    tg_io io;
    tg_io_find(&io, p, x);
    tg_buf_printf(out, "plan %-9s %5d token%s, ", tg_kind_name((tg_graph_kind)x->kind),
                  x->bucket.tokens, x->bucket.tokens == 1 ? "" : "s");
    print_count(x->bucket.rows, "sequence", out);
    tg_buf_add_cstr(out, ", ");
    print_count(x->bucket.outs, "output row", out);
    tg_buf_add_cstr(out, ", ");
    print_count(x->bucket.pages, "page", out);
    tg_buf_add_cstr(out, ": step ");
    tg_buf_add_size(out, x->arena_bytes);
    tg_buf_add_cstr(out, ", inputs ");
    tg_buf_add_size(out, (int64_t)io.in_bytes);
    tg_buf_add_cstr(out, ", outputs ");
    tg_buf_add_size(out, (int64_t)io.out_bytes);
    tg_buf_add_byte(out, '\n');
}

/* Number and cost of the outlier groups of a token step; nothing where there are none. */
static void print_outliers(const tg_program *p, tg_buf *out)
{
    const tg_plan *x = tg_program_find_plan(p, TG_KIND_TOKEN, 1, 1, 1, 1);
    int64_t n_outliers = 0, n_groups = 0;
    double more = 0, macs = 0; /* multiply-adds */
    for (int32_t s = 0; x && s < x->n_segments; s++) {
        const tg_segment *seg = &x->segments[s];
        for (int32_t i = 0; i < seg->n_instrs * TG_MAX(seg->n_layers, 1); i++) {
            const tg_instr *n = &x->instrs[seg->first_instr + i % seg->n_instrs];
            int32_t layer = seg->n_layers ? x->layer_refs[seg->first_layer + i / seg->n_instrs] : 0;
            const tg_weight_entry *first = tg_program_find_quantized(p, n, layer);
            if (!first || tg_op_get((tg_op)n->op)->is_lookup) continue;
            n_outliers += first->n_outliers;
            n_groups += tg_div_up(first->cols, TG_GROUP_COLS);
            for (int32_t k = 0; k < TG_MAX_WEIGHTS; k++) {
                const tg_weight_entry *w =
                    n->weights[k] == TG_NONE
                        ? NULL
                        : tg_program_find_weight(p, (tg_weight_role)n->weights[k], layer);
                if (!w || w->is_plain) continue;
                macs += (double)w->rows * (double)w->cols;
                more += (double)w->rows * (double)w->n_outliers * TG_GROUP_COLS;
            }
        }
    }
    if (n_outliers)
        tg_buf_printf(out,
                      "%" PRId64 " of %" PRId64
                      " input groups are outlier groups: %.1f %% more multiply-adds\n",
                      n_outliers, n_groups, 100 * more / macs);
}

void tg_program_print(const tg_program *p, tg_buf *out)
{
    print_count(p->n_layers, "layer", out);
    tg_buf_printf(out, " of width %d, vocabulary size %d, ", p->width, p->n_vocab);
    print_count(p->n_embed_rows, "embedding row", out);
    tg_buf_printf(out, "\nbatch %d, context length %d, speculation %d, %s activations\n", p->batch,
                  p->max_length, p->speculation,
                  p->activations == TG_ACTIVATIONS_INT16 ? "int16" : "int8");
    if (p->original_length)
        tg_buf_printf(out, "rope tables for texts of up to %d tokens and for longer ones\n",
                      p->original_length);
    print_outliers(p, out);
    print_count(p->n_weights, "weight", out);
    tg_buf_add_cstr(out, ": ");
    tg_buf_add_size(out, p->weights_bytes);
    tg_buf_add_byte(out, '\n');
    for (int32_t i = 0; i < p->n_kv_groups; i++)
        print_group(p, i, out);
    for (int32_t i = 0; i < p->n_plans; i++)
        print_plan_line(p, &p->plans[i], out);
}

static void print_value(const tg_plan *x, int32_t i, tg_buf *out)
{
    static const char *const places[] = {"tokens", "logits", "ids"};
    const tg_plan_value *v = &x->values[i];
    tg_buf_printf(out, "v%d [%d, %d]", i, tg_plan_n_rows(x, v), v->width);
    if (v->offset < 0)
        tg_buf_printf(out, " %s", places[-1 - v->offset]);
    else
        tg_buf_printf(out, " @%" PRId64, v->offset);
    if (v->alias != TG_NONE) tg_buf_printf(out, " over v%d", v->alias);
}

static void print_instr(const tg_plan *x, const tg_instr *n, tg_buf *out)
{
    const tg_op_row *row = tg_op_get((tg_op)n->op);
    tg_buf_add_cstr(out, "  ");
    if (n->out != TG_NONE) {
        print_value(x, n->out, out);
        tg_buf_add_cstr(out, " = ");
    }
    tg_buf_add_cstr(out, row->name);
    for (int32_t i = 0; i < row->n_inputs; i++)
        tg_buf_printf(out, "%s v%d", i ? "," : "", n->in[i]);
    tg_slots_print(n->weights, (tg_op)n->op, out);
    tg_attrs_print(&n->attrs, (tg_op)n->op, out);
    tg_buf_add_byte(out, '\n');
}

void tg_plan_print(const tg_program *p, const tg_plan *x, tg_buf *out)
{
    print_plan_line(p, x, out);
    for (int32_t s = 0; s < x->n_segments; s++) {
        const tg_segment *seg = &x->segments[s];
        tg_buf_printf(out, " segment %d", s);
        for (int32_t l = 0; l < seg->n_layers; l++)
            tg_buf_printf(out, "%s%d", l ? ", " : ": layers ", x->layer_refs[seg->first_layer + l]);
        tg_buf_add_byte(out, '\n');
        for (int32_t i = 0; i < seg->n_instrs; i++)
            print_instr(x, &x->instrs[seg->first_instr + i], out);
    }
}
