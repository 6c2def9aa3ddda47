/* SPDX-License-Identifier: Apache-2.0
 * costs.c - tables of a profile. */
#include "app/costs.h"

#include "app/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Kinds in the engine's order, then by time: the first line is where to look. */
static int compare(const void *a, const void *b)
{
    const tg_op_cost *x = a, *y = b;
    int kind = strcmp(x->step, y->step);
    if (kind != 0) return kind;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

void tg_costs_take(tg_costs *c, tg_engine *g, const char *step)
{
    tg_op_cost fresh[TG_MAX_COSTS];
    int32_t n = tg_engine_read_profile(g, fresh, TG_MAX_COSTS);
    for (int32_t i = 0; i < n && c->n < TG_MAX_COSTS; i++)
        if (!step || strcmp(fresh[i].step, step) == 0) c->rows[c->n++] = fresh[i];
    qsort(c->rows, (size_t)c->n, sizeof c->rows[0], compare);
}

/* Rows [*begin, *end) of the kind that row *begin has, and the seconds of its steps. */
static double find_kind(const tg_costs *c, int32_t begin, int32_t *end)
{
    double seconds = 0;
    for (*end = begin; *end < c->n && strcmp(c->rows[*end].step, c->rows[begin].step) == 0; ++*end)
        seconds += c->rows[*end].seconds;
    return seconds;
}

/* The name of an operation: "matmul_add down". */
static const char *print_name(const tg_op_cost *c, tg_buf *name)
{
    tg_buf_clear(name);
    tg_buf_printf(name, "%s%s%s", c->op, *c->weight ? " " : "", c->weight);
    return tg_buf_cstr(name);
}

static void print_rate(tg_buf *out, double n, double seconds)
{
    if (n > 0 && seconds > 0)
        tg_buf_printf(out, " %8.1f |", n / seconds / 1e9);
    else
        tg_buf_printf(out, " %8s |", "");
}

void tg_costs_print(const tg_costs *c, tg_buf *out)
{
    tg_buf name = {0};
    for (int32_t begin = 0, end; begin < c->n; begin = end) {
        double all = find_kind(c, begin, &end);
        int64_t n_steps = c->rows[begin].n_steps;
        tg_buf_printf(out, "\n%s steps: %" PRId64 " of %.0f tokens and %.1f us\n\n",
                      c->rows[begin].step, n_steps,
                      (double)c->rows[begin].n_tokens / (double)n_steps,
                      1e6 * all / (double)n_steps);
        tg_buf_printf(out, "| %-18s | %7s | %10s | %6s | %8s | %8s |\n", "operation", "share",
                      "us a step", "calls", "GB/s", "GMAC/s");
        tg_buf_add_cstr(out, "| ------------------ | ------: | ---------: | -----: | -------: | "
                             "-------: |\n");
        for (int32_t i = begin; i < end; i++) {
            const tg_op_cost *x = &c->rows[i];
            tg_buf_printf(out, "| %-18s | %5.1f %% | %10.1f | %6.0f |", print_name(x, &name),
                          100 * x->seconds / all, 1e6 * x->seconds / (double)n_steps,
                          (double)x->n_calls / (double)n_steps);
            print_rate(out, x->n_bytes, x->seconds);
            print_rate(out, x->n_products, x->seconds);
            tg_buf_add_byte(out, '\n');
        }
    }
    tg_buf_deinit(&name);
}

void tg_costs_report(const tg_costs *c, tg_buf *out)
{
    tg_buf name = {0};
    tg_report_begin(out, "profile");
    for (int32_t begin = 0, end; begin < c->n; begin = end) {
        double all = find_kind(c, begin, &end);
        tg_report_begin(out, c->rows[begin].step);
        tg_report_add_int(out, "steps", c->rows[begin].n_steps);
        tg_report_add_int(out, "tokens", c->rows[begin].n_tokens);
        tg_report_add_real(out, "seconds", all);
        tg_report_begin(out, "operations");
        for (int32_t i = begin; i < end; i++) {
            const tg_op_cost *x = &c->rows[i];
            tg_report_begin(out, print_name(x, &name));
            tg_report_add_int(out, "calls", x->n_calls);
            tg_report_add_real(out, "seconds", x->seconds);
            tg_report_add_real(out, "bytes", x->n_bytes);
            tg_report_add_real(out, "products", x->n_products);
            tg_report_end(out);
        }
        tg_report_end(out);
        tg_report_end(out);
    }
    tg_report_end(out);
    tg_buf_deinit(&name);
}
