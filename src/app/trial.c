/* SPDX-License-Identifier: Apache-2.0 */
#include "app/trial.h"

#include "app/report.h"
#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 4 }; /* of a repetition */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void tg_sort(double *x, int32_t n)
{
    qsort(x, (size_t)n, sizeof *x, compare);
}

double tg_median(const double *sorted, int32_t n)
{
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

static tg_sample summarise(double *x, int32_t n)
{
    tg_sort(x, n);
    return (tg_sample){tg_median(x, n), x[0], x[n - 1]};
}

static void choose_cases(tg_verification *v)
{
    int32_t most = TG_MIN(v->speculation + 1, TG_MAX_VERIFIED);
    v->n_cases = 0;
    for (int32_t n = v->is_longest_only ? most : 1; n <= most; n++)
        v->n_tokens[v->n_cases++] = n;
}

/* ms [n_rounds][n_cases], column [n_rounds] */
static void take_rounds(tg_verification *v, const double *ms, double *column, int32_t n_rounds)
{
    for (int32_t c = 0; c < v->n_cases; c++) {
        for (int32_t i = 0; i < n_rounds; i++)
            column[i] = ms[i * v->n_cases + c];
        v->ms[c] = summarise(column, n_rounds);
        for (int32_t i = 0; i < n_rounds; i++)
            column[i] = ms[i * v->n_cases + c] / ms[i * v->n_cases];
        v->ratios[c] = summarise(column, n_rounds);
    }
}

/* The first round finds the caches as something else left them: it is measured and left out. */
tg_status tg_verification_run(tg_verification *v, tg_session *s, int32_t n_rows, int32_t depth,
                              int32_t n_repetitions, tg_err *e)
{
    tg_arena arena = {0};
    int32_t n_rounds = ROUNDS * n_repetitions;
    v->n_rows = n_rows;
    v->depth = depth;
    v->speculation = s->info.speculation;
    choose_cases(v);
    tg_step_trial t = {.n_rows = n_rows,
                       .depth = depth,
                       .n_tokens = v->n_tokens,
                       .n_cases = v->n_cases,
                       .n_rounds = n_rounds + 1};
    double *ms = TG_ARENA_ARRAY(&arena, double, (int64_t)(n_rounds + 1) * v->n_cases);
    double *column = TG_ARENA_ARRAY(&arena, double, n_rounds);
    tg_status status = TG_OK;
    if (!ms || !column) status = tg_fail_nomem(e, (size_t)n_rounds * 8, "measurements");
    if (status == TG_OK) status = tg_engine_time_steps(s->engine, &t, ms, e);
    if (status == TG_OK) take_rounds(v, ms + v->n_cases, column, n_rounds);
    tg_arena_deinit(&arena);
    return status;
}

void tg_verification_print(const tg_verification *v, tg_buf *out)
{
    tg_buf_printf(out, "\nsteps of several tokens a row, %" PRId32 " tokens before", v->depth);
    if (v->n_rows > 1) tg_buf_printf(out, ", %" PRId32 " sequences", v->n_rows);
    tg_buf_printf(out, "\n\n| %-18s | %10s | %10s | %10s | %10s |\n", "tokens a row", "ms",
                  "to plain", "min", "max");
    tg_buf_add_cstr(out, "| ------------------ | ---------: | ---------: | ---------: | "
                         "---------: |\n");
    for (int32_t c = 0; c < v->n_cases; c++) {
        const tg_sample *r = &v->ratios[c];
        tg_buf_printf(out, "| %-18" PRId32 " | %10.3f | %10.3f | %10.3f | %10.3f |\n",
                      v->n_tokens[c], v->ms[c].median, r->median, r->min, r->max);
    }
    if (v->speculation + 1 < TG_MAX_VERIFIED)
        tg_buf_printf(out,
                      "\nexported with --speculation %" PRId32 ": no step has more than %" PRId32
                      " tokens a row\n",
                      v->speculation, v->speculation + 1);
}

static void report_sample(const tg_sample *x, const char *key, tg_buf *out)
{
    tg_report_begin(out, key);
    tg_report_add_real(out, "median", x->median);
    tg_report_add_real(out, "min", x->min);
    tg_report_add_real(out, "max", x->max);
    tg_report_end(out);
}

void tg_verification_report(const tg_verification *v, tg_buf *out)
{
    char key[16];
    tg_report_begin(out, "verify");
    tg_report_add_int(out, "depth", v->depth);
    tg_report_add_int(out, "speculation", v->speculation);
    tg_report_begin(out, "tokens");
    for (int32_t c = 0; c < v->n_cases; c++) {
        (void)snprintf(key, sizeof key, "%" PRId32, v->n_tokens[c]);
        tg_report_begin(out, key);
        report_sample(&v->ms[c], "ms", out);
        report_sample(&v->ratios[c], "ratio", out);
        tg_report_end(out);
    }
    tg_report_end(out);
    tg_report_end(out);
}
