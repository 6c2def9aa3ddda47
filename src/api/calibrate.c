/* SPDX-License-Identifier: Apache-2.0
 * calibrate.c - a run of the float model over a text at export, to see which columns matter.
 *
 * A weight that is off by some amount puts a product off by that times its column's activation, so
 * the square it is worth to save is that of the activation: its mean over a text is the diagonal of
 * what second-order quantizers call the Hessian. The run is of the weights as the checkpoint has
 * them, which are packed where the quantized ones go afterwards. A step's numbers are the same on
 * every machine (kernel.h), and sums run in the order of the text: the artifact stays a function of
 * its inputs, of which the text is one. */
#include "api/api.h"
#include "device/cpu_device.h"
#include "run/exec.h"

#include <xxhash.h>

/* Of the text the first MOST_TOKENS, as one sequence; below LEAST_TOKENS means would be chance. */
enum { LEAST_TOKENS = 64, MOST_TOKENS = 4096, MOST_BYTES = 1 << 24 };

/* A column that the text leaves still may be needed by another: none matters less than this of
 * the mean. It also keeps the sums of quantize.c, which are float32, in range. */
static const double LEAST_SHARE = 0x1p-20;

/* ---- the text */

tg_status tg_calibration_open(tg_calibration *c, const char *path, tg_err *e)
{
    *c = (tg_calibration){0};
    tg_status s = tg_file_load(&c->text, path, MOST_BYTES, e);
    if (s == TG_OK && c->text.len == 0)
        s = tg_fail(e, TG_E_ARGUMENT, "%s: the calibration text is empty", path);
    if (s == TG_OK) {
        XXH128_hash_t h = XXH3_128bits(c->text.ptr, c->text.len);
        c->path = path;
        c->hash = (tg_content_hash){.low = h.low64, .high = h.high64};
    } else {
        tg_calibration_close(c);
    }
    return s;
}

void tg_calibration_close(tg_calibration *c)
{
    tg_buf_deinit(&c->text);
    tg_arena_deinit(&c->arena);
    *c = (tg_calibration){0};
}

static tg_status encode(tg_ids *out, const tg_calibration *c, const tg_export_job *job, tg_err *e)
{
    static const tg_encode_options options = {.add_special = true};
    tg_tokenizer *t;
    if (job->assets.tokenizer.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: the model has no tokenizer to read it with; leave out --calibrate",
                       c->path);
    TG_TRY(tg_tokenizer_open(&t, job->assets.tokenizer.ptr, job->assets.tokenizer.len, e));
    tg_status s = tg_tokenizer_encode(out, t, tg_buf_str(&c->text), &options, e);
    tg_tokenizer_close(t);
    if (s != TG_OK) {
        tg_err_context(e, "%s", c->path);
        return s;
    }
    if (out->len < LEAST_TOKENS)
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: the calibration text has %zu tokens; at least %d are needed, and up to "
                       "%d are used",
                       c->path, out->len, LEAST_TOKENS, MOST_TOKENS);
    for (size_t i = 0; i < out->len; i++)
        if (out->ptr[i] >= job->compiled.program.n_embed_rows)
            return tg_fail(e, TG_E_CORRUPT, "%s: token %zu is %d, and the embedding has %d rows",
                           c->path, i, out->ptr[i], job->compiled.program.n_embed_rows);
    return TG_OK;
}

/* ---- the run */

typedef struct run {
    const tg_program *program; /* of float weights */
    double **squares;          /* [n_weights][cols] sums over tokens */
    tg_arena arena;
} run;

static void watch(void *context, const tg_weight_entry *w, const tg_cpu_input *in)
{
    run *k = context;
    double *sums = k->squares[w - k->program->weights];
    for (int32_t t = 0; t < in->n_rows; t++)
        for (int64_t c = 0; c < w->cols; c++) {
            double v = (double)in->x[t * in->stride + c];
            sums[c] += v * v;
        }
}

/* Room for what watch adds up, as a step may not allocate. */
static tg_status make_room(run *k, tg_err *e)
{
    const tg_program *p = k->program;
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

static tg_status run_text(run *k, const void *weights, const tg_ids *ids, tg_err *e)
{
    const tg_bucket *b = &k->program->plans[0].bucket;
    int32_t n_ids = (int32_t)TG_MIN(ids->len, (size_t)k->program->max_length);
    tg_exec *x;
    TG_TRY(tg_exec_new(&x, k->program, weights, &tg_cpu_device_ops, NULL, e));
    tg_cpu_device_watch(tg_exec_device(x), watch, k);
    tg_status s = TG_OK;
    for (int32_t at = 0, n; at < n_ids && s == TG_OK; at += n) {
        n = TG_MIN(n_ids - at, b->tokens);
        tg_exec_row row = {.tokens = ids->ptr + at, .n_tokens = n, .position = at, .n_outs = 1};
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

/* What w is quantized from, with weighted errors; NULL where it is not. */
static const tg_weight_entry *find_float(const run *k, const tg_weight_entry *w)
{
    if (w->is_plain || !tg_layout_rows[w->layout].is_quantized || w->layout == TG_LAYOUT_Q8_0)
        return NULL;
    const tg_weight_entry *from =
        tg_program_find_weight(k->program, (tg_weight_role)w->role, w->layer);
    TG_ASSERT(from && from->cols == w->cols);
    return tg_layout_rows[from->layout].is_quantized ? NULL : from;
}

/* Asked before the work. */
static tg_status check_use(const tg_calibration *c, const run *k, const tg_program *p, tg_err *e)
{
    for (int32_t i = 0; i < p->n_weights; i++)
        if (find_float(k, &p->weights[i])) return TG_OK;
    return tg_fail(
        e, TG_E_ARGUMENT,
        "%s: the checkpoint's matrices are quantized already and stay as they are; leave "
        "out --calibrate",
        c->path);
}

static tg_status conclude(tg_calibration *c, const run *k, const tg_program *p, tg_err *e)
{
    float **all = TG_ARENA_ARRAY(&c->arena, float *, p->n_weights);
    if (!all) return tg_fail_nomem(e, (size_t)p->n_weights * sizeof *all, "a calibration");
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i], *from = find_float(k, w);
        if (!from) continue;
        size_t n = (size_t)(tg_div_up(w->cols, TG_GROUP_COLS) * TG_GROUP_COLS);
        all[i] = TG_ARENA_ARRAY(&c->arena, float, n);
        if (!all[i]) return tg_fail_nomem(e, n * sizeof(float), "a calibration");
        weigh(all[i], k->squares[from - k->program->weights], w->cols);
    }
    c->importance = (const float *const *)all;
    return TG_OK;
}

/* Weights as they come, one row of one context plan. */
static tg_export_config float_config(const tg_export_config *c, size_t n_ids)
{
    int32_t n = (int32_t)TG_MIN(TG_MIN(n_ids, (size_t)MOST_TOKENS), (size_t)c->max_length);
    tg_export_config out = {.batch = 1, .max_length = n, .speculation = 1, .is_watched = true};
    out.weights = TG_WEIGHTS_AUTO;
    out.kv_type = c->kv_type;
    out.context_buckets[0] = TG_MIN(n, c->context_buckets[c->n_context_buckets - 1]);
    out.n_context_buckets = 1;
    return out;
}

static tg_status write_floats(tg_artifact_writer *w, const tg_program *p,
                              const tg_loaded_checkpoint *b, const tg_export_options *o, tg_err *e)
{
    tg_out *out;
    TG_TRY(tg_artifact_writer_begin(w, "weights.0.bin", &out, e));
    TG_TRY(tg_pack_write(p, b, NULL, out, o->progress, o->context, e));
    return tg_artifact_writer_end(w, e);
}

tg_status tg_export_calibrate(tg_calibration *c, const tg_export_job *job, tg_artifact_writer *w,
                              const char *dir, const tg_export_options *o, tg_err *e)
{
    tg_ids ids = {0};
    tg_compiled floats = {0};
    tg_map weights = {0};
    run k = {.program = &floats.program};
    tg_status s = encode(&ids, c, job, e);
    if (s == TG_OK) {
        tg_export_config config = float_config(&job->config, ids.len);
        s = tg_compile(&floats, job->loaded, &config, NULL, NULL, e);
    }
    if (s == TG_OK) s = check_use(c, &k, &job->compiled.program, e);
    if (s == TG_OK) s = make_room(&k, e);
    if (s == TG_OK) s = tg_export_check_disk(floats.program.weights_bytes, dir, e);
    if (s == TG_OK) s = write_floats(w, &floats.program, job->loaded, o, e);
    if (s == TG_OK) s = tg_artifact_writer_map(w, "weights.0.bin", &weights, e);
    if (s == TG_OK) {
        s = run_text(&k, weights.data, &ids, e);
        if (s == TG_OK) s = conclude(c, &k, &job->compiled.program, e);
        if (s != TG_OK) tg_err_context(e, "calibrating");
    }
    tg_map_close(&weights);
    if (s == TG_OK) s = tg_artifact_writer_drop(w, "weights.0.bin", e);
    tg_compiled_deinit(&floats);
    tg_arena_deinit(&k.arena);
    tg_ids_deinit(&ids);
    return s;
}
