/* SPDX-License-Identifier: Apache-2.0
 * outlier_groups.c - a short run of the model at export, to see which activations are hard to
 * round.
 *
 * Which columns are much larger than the others is a property of the trained model and hardly
 * depends on the text: 64 tokens choose as well as a corpus. The text is fixed, so the choice
 * depends on the checkpoint alone. */
#include "base/mem.h"
#include "calibrate/calibrate.h"
#include "device/cpu_device.h"
#include "format/layout.h"
#include "run/exec.h"

/* TOKENS: of the text, one KV page. STEP_TOKENS at a time: weights are read once for all of
 * them. */
enum { TOKENS = TG_KV_PAGE_TOKENS, STEP_TOKENS = 8 };

/* A bit of everything, so that no column is missed: prose, code, a list, other languages. */
static const char text[] =
    "The river rose after three days of rain, and the old bridge was closed.\n"
    "for (int i = 0; i < 10; i++) { printf(\"%d\\n\", i * 2); }\n"
    "1. Bread 2. Milk\n"
    "Paris est la capitale de la France. Das Wetter ist sch\u00f6n. \u4eca\u5929\u5929\u6c14\u5f88"
    "\u597d\u3002";

typedef struct run {
    const tg_program *program; /* what runs: one plan, one row of one page */
    double **squares;          /* [n_weights] sums of squared scales by group, or NULL */
    tg_arena arena;
} run;

tg_str tg_calibration_text(void)
{
    return TG_STR(text);
}

/* The ids that run, at most n_max. Fails only for memory. */
static int32_t *find_ids(run *k, tg_calibration_ids text_ids, int32_t n_max, int32_t *n_ids)
{
    const tg_program *p = k->program;
    int32_t *out = TG_ARENA_ARRAY(&k->arena, int32_t, n_max), n = 0;
    if (!out) return NULL;
    for (size_t i = 0; i < text_ids.n_ids && n < n_max; i++)
        if (text_ids.ids[i] < p->n_embed_rows) out[n++] = text_ids.ids[i];
    if (n == 0)
        for (; n < n_max; n++)
            out[n] = (int32_t)((int64_t)(2 * n + 1) * p->n_vocab / (int64_t)(2 * n_max));
    *n_ids = n;
    return out;
}

/* ---- the run */

static void watch(void *context, const tg_weight_entry *w, const tg_cpu_input *in)
{
    run *k = context;
    double *sums = k->squares[w - k->program->weights];
    int64_t n_groups = tg_div_up(w->cols, TG_GROUP_COLS);
    for (int32_t t = 0; t < in->n_rows && sums; t++)
        for (int64_t g = 0; g < n_groups; g++) {
            double scale = (double)in->scales[t * in->scale_stride + g];
            sums[g] += scale * scale;
        }
}

/* Room for what watch adds up, as a step may not allocate. */
static tg_status make_room(run *k, tg_err *e)
{
    const tg_program *p = k->program;
    k->squares = TG_ARENA_ARRAY(&k->arena, double *, p->n_weights);
    if (!k->squares)
        return tg_fail_nomem(e, (size_t)p->n_weights * sizeof(double *),
                             "the sums of an outlier run");
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        if (w->is_plain || !tg_layout_rows[w->layout].is_quantized) continue;
        int64_t n_groups = tg_div_up(w->cols, TG_GROUP_COLS);
        k->squares[i] = TG_ARENA_ARRAY(&k->arena, double, n_groups);
        if (!k->squares[i])
            return tg_fail_nomem(e, (size_t)n_groups * sizeof(double),
                                 "the sums of an outlier run");
    }
    return TG_OK;
}

static tg_status run_text(run *k, const void *weights, const int32_t *ids, int32_t n_ids, tg_err *e)
{
    const tg_bucket *b = &k->program->plans[0].bucket;
    tg_exec *x;
    TG_TRY(tg_exec_new(&x, k->program, weights, &tg_cpu_device_ops, NULL, e));
    tg_cpu_device_watch(tg_exec_device(x), watch, k);
    tg_status s = TG_OK;
    bool is_long = tg_program_is_long(k->program, n_ids);
    for (int32_t at = 0, n; at < n_ids && s == TG_OK; at += n) {
        n = TG_MIN(n_ids - at, b->tokens);
        tg_exec_row row = {.tokens = ids + at,
                           .n_tokens = n,
                           .position = at,
                           .is_long = is_long,
                           .n_outs = TG_MIN(n, b->outs)};
        s = tg_exec_step(x, TG_KIND_CONTEXT, &row, 1, e);
    }
    tg_exec_free(x);
    return s;
}

/* The program's smallest context plan for one short row: all that the run needs, with
 * little memory whatever batch and length the artifact is for. */
static void shrink(const tg_program *p, tg_program *out, tg_plan *plan)
{
    *plan = p->plans[0];
    TG_ASSERT(plan->kind == TG_KIND_CONTEXT);
    plan->bucket = (tg_bucket){.rows = 1, .pages = 1};
    plan->bucket.tokens = TG_MIN(p->plans[0].bucket.tokens, STEP_TOKENS);
    plan->bucket.outs = TG_MIN(p->plans[0].bucket.outs, plan->bucket.tokens);
    *out = *p;
    out->batch = 1;
    out->max_length = TG_MIN(p->max_length, TOKENS);
    out->plans = plan;
    out->n_plans = 1;
}

static bool has_quantized(const tg_program *p)
{
    for (int32_t i = 0; i < p->n_weights; i++)
        if (tg_layout_rows[p->weights[i].layout].is_quantized) return true;
    return false;
}

tg_status tg_calibrate_outliers(tg_compiled *c, const void *weights, tg_calibration_ids text_ids,
                                tg_err *e)
{
    const tg_program *p = &c->program;
    if (p->activations == TG_ACTIVATIONS_INT16 || !has_quantized(p)) return TG_OK;
    tg_program program;
    tg_plan plan;
    run k = {.program = &program};
    int32_t n_ids = 0;
    shrink(p, &program, &plan);
    const int32_t *ids = find_ids(&k, text_ids, program.max_length, &n_ids);
    tg_status s = ids ? make_room(&k, e) : tg_fail_nomem(e, TOKENS * sizeof *ids, "token ids");
    if (s == TG_OK) s = run_text(&k, weights, ids, n_ids, e);
    if (s != TG_OK) tg_err_context(e, "choosing outlier groups");
    if (s == TG_OK)
        s = tg_compiled_choose_outliers(c, weights, (const double *const *)k.squares, e);
    tg_arena_deinit(&k.arena);
    return s;
}
