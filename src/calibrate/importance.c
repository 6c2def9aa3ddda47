/* SPDX-License-Identifier: Apache-2.0
 * importance.c - a run of the float model over a text at export, to see which columns matter.
 *
 * A weight that is off by some amount puts a product off by that times its column's activation, so
 * a column's errors count by the square of its activation: the mean over a text is the diagonal of
 * what second-order quantizers call the Hessian. The run is of the weights as the checkpoint has
 * them. */
#include "base/mem.h"
#include "calibrate/calibrate.h"
#include "device/cpu_device.h"
#include "format/layout.h"
#include "model/model.h"
#include "run/exec.h"

/* A column that the text leaves still may be needed by another: none matters less than this of
 * the mean. It also keeps the sums of quantize.c, which are float32, in range. */
static const double LEAST_SHARE = 0x1p-20;

/* ---- the run */

static void watch(void *context, const tg_weight_entry *w, const tg_cpu_input *in)
{
    const tg_importance *k = context;
    double *sums = k->squares[w - k->floats.program.weights];
    for (int32_t t = 0; t < in->n_rows; t++)
        for (int64_t c = 0; c < w->cols; c++) {
            double v = (double)in->x[t * in->stride + c];
            sums[c] += v * v;
        }
}

/* Room for what watch adds up, as a step may not allocate. */
static tg_status make_room(tg_importance *k, tg_err *e)
{
    const tg_program *p = &k->floats.program;
    k->squares = TG_ARENA_ARRAY(&k->arena, double *, p->n_weights);
    if (!k->squares)
        return tg_fail_nomem(e, (size_t)p->n_weights * sizeof(double *), "a calibration");
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        if (w->is_plain) continue;
        k->squares[i] = TG_ARENA_ARRAY(&k->arena, double, w->cols);
        if (!k->squares[i])
            return tg_fail_nomem(e, (size_t)w->cols * sizeof(double), "a calibration");
    }
    return TG_OK;
}

static tg_status run_text(tg_importance *k, const void *weights, tg_calibration_ids text, tg_err *e)
{
    const tg_program *p = &k->floats.program;
    const tg_bucket *b = &p->plans[0].bucket;
    int32_t n_ids = (int32_t)TG_MIN(text.n_ids, (size_t)p->max_length);
    tg_exec *x;
    TG_TRY(tg_exec_new(&x, p, weights, &tg_cpu_device_ops, NULL, e));
    tg_cpu_device_watch(tg_exec_device(x), watch, k);
    tg_status s = TG_OK;
    bool is_long = tg_program_is_long(p, n_ids);
    for (int32_t at = 0, n; at < n_ids && s == TG_OK; at += n) {
        n = TG_MIN(n_ids - at, b->tokens);
        tg_exec_row row = {.tokens = text.ids + at,
                           .n_tokens = n,
                           .position = at,
                           .is_long = is_long,
                           .n_outs = 1};
        s = tg_exec_step(x, TG_KIND_CONTEXT, &row, 1, e);
    }
    tg_exec_free(x);
    return s;
}

/* ---- what it has shown */

/* Shares of the mean; 1 for padding, and for all where the text leaves every column at 0. */
static void weigh(float *out, const double *squares, int64_t n)
{
    double sum = 0;
    for (int64_t c = 0; c < n; c++)
        sum += squares[c];
    for (int64_t c = 0; c < tg_div_up(n, TG_GROUP_COLS) * TG_GROUP_COLS; c++) {
        double share = c < n && sum > 0 ? squares[c] * (double)n / sum : 1;
        out[c] = (float)TG_MAX(share, LEAST_SHARE);
    }
}

/* The float weight that w is quantized from with weighted errors; NULL when there is none. */
static const tg_weight_entry *find_float(const tg_importance *k, const tg_weight_entry *w)
{
    if (w->is_plain || !tg_layout_rows[w->layout].is_quantized || w->layout == TG_LAYOUT_Q8_0)
        return NULL;
    const tg_weight_entry *from =
        tg_program_find_weight(&k->floats.program, (tg_weight_role)w->role, w->layer);
    TG_ASSERT(from && from->cols == w->cols);
    return tg_layout_rows[from->layout].is_quantized ? NULL : from;
}

/* Asked before the work. */
static tg_status check_use(const tg_importance *k, tg_err *e)
{
    for (int32_t i = 0; i < k->target->n_weights; i++)
        if (find_float(k, &k->target->weights[i])) return TG_OK;
    return tg_fail(
        e, TG_E_ARGUMENT,
        "the checkpoint's matrices are quantized already and stay as they are; leave out "
        "--calibrate");
}

static tg_status conclude(tg_importance *k, tg_err *e)
{
    const tg_program *p = k->target;
    float **all = TG_ARENA_ARRAY(&k->arena, float *, p->n_weights);
    if (!all) return tg_fail_nomem(e, (size_t)p->n_weights * sizeof *all, "a calibration");
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i], *from = find_float(k, w);
        if (!from) continue;
        size_t n = (size_t)(tg_div_up(w->cols, TG_GROUP_COLS) * TG_GROUP_COLS);
        all[i] = TG_ARENA_ARRAY(&k->arena, float, n);
        if (!all[i]) return tg_fail_nomem(e, n * sizeof(float), "a calibration");
        weigh(all[i], k->squares[from - k->floats.program.weights], w->cols);
    }
    k->columns = (const float *const *)all;
    return TG_OK;
}

/* Weights as they come, one row of one context plan. */
static tg_export_config float_config(const tg_export_config *c, size_t n_ids)
{
    int32_t n =
        (int32_t)TG_MIN(TG_MIN(n_ids, (size_t)TG_IMPORTANCE_MAX_TOKENS), (size_t)c->max_length);
    tg_export_config out = {.batch = 1, .max_length = n, .is_watched = true};
    out.weights = TG_WEIGHTS_AUTO;
    out.has_kv_type = c->has_kv_type;
    out.kv_type = c->kv_type;
    out.context_buckets[0] = TG_MIN(n, c->context_buckets[c->n_context_buckets - 1]);
    out.n_context_buckets = 1;
    return out;
}

tg_status tg_importance_init(tg_importance *x, const tg_loaded_checkpoint *b,
                             const tg_export_config *config, const tg_program *target, size_t n_ids,
                             tg_err *e)
{
    tg_export_config floats = float_config(config, n_ids);
    *x = (tg_importance){.target = target};
    tg_status s = tg_compile(&x->floats, b, &floats, NULL, NULL, e);
    if (s == TG_OK) s = check_use(x, e);
    if (s == TG_OK) s = make_room(x, e);
    if (s != TG_OK) tg_importance_deinit(x);
    return s;
}

tg_status tg_importance_run(tg_importance *x, const void *weights, tg_calibration_ids text,
                            tg_err *e)
{
    tg_status s = run_text(x, weights, text, e);
    if (s == TG_OK) s = conclude(x, e);
    if (s != TG_OK) tg_err_context(e, "calibrating");
    return s;
}

void tg_importance_deinit(tg_importance *x)
{
    tg_compiled_deinit(&x->floats);
    tg_arena_deinit(&x->arena);
    *x = (tg_importance){0};
}
