/* SPDX-License-Identifier: Apache-2.0
 * probe.c - a short run of the model at export, to see which activations are hard to round.
 *
 * Which columns are much larger than the others is a property of the trained model and hardly
 * depends on the text: 64 tokens choose as well as a corpus. The text is fixed, its ids are the
 * model's own, and a step's numbers are the same on every machine (kernel.h), so an export stays a
 * function of its inputs. */
#include "api/api.h"
#include "device/cpu_device.h"
#include "run/exec.h"

/* TOKENS: of the text, one KV page. STEP_TOKENS at a time: weights are read once for all of
 * them. */
enum { TOKENS = TG_KV_PAGE_TOKENS, STEP_TOKENS = 8 };

/* A bit of everything, so that no column goes unseen: prose, code, a list, other languages. */
static const char text[] =
    "The river rose after three days of rain, and the old bridge was closed.\n"
    "for (int i = 0; i < 10; i++) { printf(\"%d\\n\", i * 2); }\n"
    "1. Bread 2. Milk\n"
    "Paris est la capitale de la France. Das Wetter ist sch\u00f6n. \u4eca\u5929\u5929\u6c14\u5f88"
    "\u597d\u3002";

typedef struct probe {
    const tg_program *program; /* what runs: one plan, one row of one page */
    double **squares;          /* [n_weights] sums of squared scales by group, or NULL */
    tg_arena arena;
} probe;

/* ---- ids */

static tg_status encode(tg_ids *out, const tg_export_job *job, tg_err *e)
{
    static const tg_encode_options options = {.add_special = true};
    tg_tokenizer *t;
    TG_TRY(tg_tokenizer_open(&t, job->assets.tokenizer.ptr, job->assets.tokenizer.len, e));
    tg_status s = tg_tokenizer_encode(out, t, TG_STR(text), &options, e);
    tg_tokenizer_close(t);
    return s;
}

/* At most n_max ids that the embedding has. Where there is no tokenizer, or it makes none of the
 * text, ids spread over the vocabulary. */
static tg_status find_ids(tg_ids *out, const tg_export_job *job, size_t n_max, tg_err *e)
{
    const tg_program *p = &job->compiled.program;
    if (job->assets.tokenizer.len) TG_TRY(encode(out, job, e));
    size_t n = 0;
    for (size_t i = 0; i < out->len && n < n_max; i++)
        if (out->ptr[i] < p->n_embed_rows) out->ptr[n++] = out->ptr[i];
    out->len = n;
    for (size_t i = 0; n == 0 && i < n_max; i++)
        tg_ids_push(out, (int32_t)((int64_t)(2 * i + 1) * p->n_vocab / (int64_t)(2 * n_max)));
    return tg_ids_check(out, e);
}

/* ---- the run */

static void watch(void *context, const tg_weight_entry *w, const tg_cpu_input *in)
{
    probe *k = context;
    double *sums = k->squares[w - k->program->weights];
    int64_t n_groups = tg_div_up(w->cols, TG_GROUP_COLS);
    for (int32_t t = 0; t < in->n_rows && sums; t++)
        for (int64_t g = 0; g < n_groups; g++) {
            double scale = (double)in->scales[t * in->scale_stride + g];
            sums[g] += scale * scale;
        }
}

/* Room for what watch adds up, as a step may not allocate. */
static tg_status make_room(probe *k, tg_err *e)
{
    const tg_program *p = k->program;
    k->squares = TG_ARENA_ARRAY(&k->arena, double *, p->n_weights);
    if (!k->squares) return tg_fail_nomem(e, (size_t)p->n_weights * sizeof(double *), "a probe");
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        if (w->is_plain || !tg_layout_rows[w->layout].is_quantized) continue;
        int64_t n_groups = tg_div_up(w->cols, TG_GROUP_COLS);
        k->squares[i] = TG_ARENA_ARRAY(&k->arena, double, n_groups);
        if (!k->squares[i]) return tg_fail_nomem(e, (size_t)n_groups * sizeof(double), "a probe");
    }
    return TG_OK;
}

static tg_status run(probe *k, const void *weights, const tg_ids *ids, tg_err *e)
{
    const tg_bucket *b = &k->program->plans[0].bucket;
    tg_exec *x;
    TG_TRY(tg_exec_new(&x, k->program, weights, &tg_cpu_device_ops, NULL, e));
    tg_cpu_device_watch(tg_exec_device(x), watch, k);
    tg_status s = TG_OK;
    for (int32_t at = 0, n; at < (int32_t)ids->len && s == TG_OK; at += n) {
        n = TG_MIN((int32_t)ids->len - at, b->tokens);
        tg_exec_row row = {
            .tokens = ids->ptr + at, .n_tokens = n, .position = at, .n_outs = TG_MIN(n, b->outs)};
        s = tg_exec_step(x, TG_KIND_CONTEXT, &row, 1, e);
    }
    tg_exec_free(x);
    return s;
}

/* The program's smallest context plan for one short row: all a probe needs, and little memory
 * whatever batch and length the artifact is for. */
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

tg_status tg_export_probe(tg_export_job *job, const void *weights, tg_err *e)
{
    const tg_program *p = &job->compiled.program;
    if (p->activations == TG_ACTIVATIONS_INT16 || !has_quantized(p)) return TG_OK;
    tg_program program;
    tg_plan plan;
    probe k = {.program = &program};
    tg_ids ids = {0};
    shrink(p, &program, &plan);
    tg_status s = find_ids(&ids, job, (size_t)program.max_length, e);
    if (s == TG_OK) s = make_room(&k, e);
    if (s == TG_OK) s = run(&k, weights, &ids, e);
    if (s != TG_OK) tg_err_context(e, "trying the model out");
    if (s == TG_OK)
        s = tg_compiled_choose_outliers(&job->compiled, weights, (const double *const *)k.squares,
                                        e);
    tg_ids_deinit(&ids);
    tg_arena_deinit(&k.arena);
    return s;
}
