/* SPDX-License-Identifier: Apache-2.0
 * cmd_bench.c - speed, start-up and memory, as medians with their range.
 *
 * Loading is measured first and by itself, as often as the rest: an engine that is opened again for
 * every prompt would pay its page faults inside the prompt. Then one run warms up, and the others
 * count. Memory is this process': finding the model, which may export it, happens in a child. */
#include "app/command.h"
#include "app/completion.h"
#include "app/costs.h"
#include "app/report.h"
#include "app/roofline.h"
#include "app/trial.h"
#include "base/mem.h"
#include "base/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef enum tg_metric {
    TG_METRIC_PROMPT,
    TG_METRIC_DECODE,
    TG_METRIC_TTFT,
    TG_METRIC_LOAD,
    TG_METRIC_RSS,
    TG_METRIC_COUNT
} tg_metric;

/* JSON keys, and what people read. */
static const struct {
    const char *key, *title;
} metrics[TG_METRIC_COUNT] = {
    [TG_METRIC_PROMPT] = {"prompt_tokens_per_s", "prefill, tokens/s"},
    [TG_METRIC_DECODE] = {"decode_tokens_per_s", "decode, tokens/s"},
    [TG_METRIC_TTFT] = {"ttft_ms", "time to first token, ms"},
    [TG_METRIC_LOAD] = {"load_ms", "load, ms"},
    [TG_METRIC_RSS] = {"peak_rss_mb", "peak memory, MB"},
};

/* One row's request. */
typedef struct lane {
    tg_request *request;
    int32_t *prompt; /* [depth + n_prompt] */
    int32_t n_ids;   /* of the completion so far */
} lane;

typedef struct tg_bench {
    tg_session session;
    int32_t depth, n_prompt, n_gen, n_rows, n_runs;
    uint64_t n_filled;                /* times that prompts were made */
    double *samples[TG_METRIC_COUNT]; /* n_runs each; sorted at the end */
    lane *lanes;                      /* [n_rows] */
    tg_costs costs;                   /* of --profile */
    tg_verification verification;     /* of --verify */
    tg_roofline roofline;             /* of --roofline */
    tg_arena arena;
} tg_bench;

/* Ids from all over the vocabulary, other ones for every run and row: a prompt computed before
 * would be found in the prefix cache and cost nothing. (A multiplicative hash; any spread will
 * do.) */
static void fill_prompts(tg_bench *b)
{
    uint64_t run = ++b->n_filled;
    for (int32_t r = 0; r < b->n_rows; r++)
        for (int32_t i = 0; i < b->depth + b->n_prompt; i++) {
            uint64_t seed = run * (uint64_t)b->n_rows + (uint64_t)r;
            uint64_t x = (seed << 32 | (uint32_t)i) * 0x9e3779b97f4a7c15u;
            b->lanes[r].prompt[i] = (int32_t)((x >> 33) % (uint64_t)b->session.info.n_vocab);
        }
}

static bool count_ids(void *context, const char *text, size_t n_bytes, const int32_t *ids,
                      int32_t n_ids)
{
    lane *l = context;
    (void)text;
    (void)n_bytes;
    (void)ids;
    l->n_ids += n_ids;
    return tg_signal_find() != 0;
}

/* Submits the first n_tokens of every row's prompt. */
static tg_status submit(tg_bench *b, int32_t n_tokens, int32_t n_completion, tg_err *e)
{
    for (int32_t r = 0; r < b->n_rows; r++) {
        lane *l = &b->lanes[r];
        tg_request_options o = {
            .max_tokens = n_completion, .ignore_eos = true, .on_text = count_ids, .context = l};
        l->n_ids = 0;
        TG_TRY(tg_engine_submit(&l->request, b->session.engine, l->prompt, n_tokens, &o, e));
    }
    return TG_OK;
}

static bool all_have_begun(const tg_bench *b)
{
    for (int32_t r = 0; r < b->n_rows; r++)
        if (b->lanes[r].n_ids == 0) return false;
    return true;
}

static int64_t count_completed(const tg_bench *b)
{
    int64_t n = 0;
    for (int32_t r = 0; r < b->n_rows; r++)
        n += b->lanes[r].n_ids;
    return n;
}

/* Steps until every request has ended. Returns in *speed the tokens a second of those steps that
 * brought every row one, NaN where there was none: while other prompts are being read, and when
 * some rows have finished, a step does less than --batch says. */
static tg_status run_steps(tg_bench *b, double *speed, tg_err *e)
{
    int64_t n_steps = 0, ns = 0;
    for (bool is_idle = false; !is_idle;) {
        bool is_decoding = all_have_begun(b);
        int64_t before = count_completed(b), start = tg_time_ns();
        TG_TRY(tg_engine_step(b->session.engine, &is_idle, e));
        if (is_decoding && count_completed(b) == before + b->n_rows) {
            ns += tg_time_ns() - start;
            n_steps++;
        }
        for (int32_t r = 0; tg_signal_find() && r < b->n_rows; r++)
            tg_request_cancel(b->lanes[r].request);
    }
    *speed = n_steps > 0 ? 1e9 * (double)n_steps * b->n_rows / (double)ns : NAN;
    return TG_OK;
}

/* What the requests say of themselves; the first failure is the run's. */
static tg_status take_stats(tg_bench *b, int32_t n_cached, double *prompt_speed, double *ttft,
                            tg_err *e)
{
    double n_tokens = 0, ms = 0;
    *ttft = 0;
    for (int32_t r = 0; r < b->n_rows; r++) {
        TG_TRY(tg_request_wait(b->lanes[r].request, e));
        tg_request_stats s = tg_request_get_stats(b->lanes[r].request);
        if (s.finish == TG_FINISH_CANCELLED) return tg_fail(e, TG_E_CANCELLED, "interrupted");
        /* More is chance: with few ids in the vocabulary two made-up prompts may begin alike. */
        if (s.n_cached_tokens < n_cached)
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "row %d went on from %d tokens and not from --depth %d", r + 1,
                           s.n_cached_tokens, n_cached);
        n_tokens += s.n_prompt_tokens - s.n_cached_tokens;
        ms += s.prompt_ms;
        *ttft = TG_MAX(*ttft, s.ttft_ms);
    }
    *prompt_speed = ms > 0 ? 1000 * n_tokens / ms : NAN;
    return TG_OK;
}

static void free_requests(tg_bench *b)
{
    for (int32_t r = 0; r < b->n_rows; r++) {
        tg_request_free(b->lanes[r].request);
        b->lanes[r].request = NULL;
    }
}

/* Every row reads its first `depth` tokens, which the prompt then finds cached. */
static tg_status fill_rows(tg_bench *b, tg_err *e)
{
    double ignored, ttft;
    if (b->depth == 0) return TG_OK;
    tg_status s = submit(b, b->depth, 1, e);
    if (s == TG_OK) s = run_steps(b, &ignored, e);
    if (s == TG_OK) s = take_stats(b, 0, &ignored, &ttft, e);
    free_requests(b);
    return s;
}

/* Tokens per second, and milliseconds to the first. */
typedef struct speeds {
    double prompt, decode, ttft;
} speeds;

/* Batch rows read their prompts in turn: a short completion may be over before the last one begins,
 * and then there is no speed of all of them to report. */
static tg_status check_decoded(const tg_bench *b, double speed, tg_err *e)
{
    if (!isnan(speed)) return TG_OK;
    return tg_fail(e, TG_E_LIMIT,
                   "no step decoded all of --batch %" PRId32 ": some completions of %" PRId32
                   " tokens ended before others began; use a larger -n",
                   b->n_rows, b->n_gen);
}

/* A prompt and a completion in every batch row. */
static tg_status measure_run(tg_bench *b, bool is_profiled, speeds *x, tg_err *e)
{
    fill_prompts(b);
    TG_TRY(fill_rows(b, e));
    if (is_profiled) TG_TRY(tg_engine_begin_profile(b->session.engine, e));
    tg_status s = submit(b, b->depth + b->n_prompt, b->n_gen, e);
    if (s == TG_OK) s = run_steps(b, &x->decode, e);
    if (s == TG_OK) s = take_stats(b, b->depth, &x->prompt, &x->ttft, e);
    if (s == TG_OK) s = check_decoded(b, x->decode, e);
    free_requests(b);
    return s;
}

/* One run to warm up, then those that count. */
static tg_status measure_speeds(tg_bench *b, tg_err *e)
{
    for (int32_t i = -1; i < b->n_runs; i++) {
        speeds x = {0};
        TG_TRY(measure_run(b, false, &x, e));
        if (i < 0) continue;
        b->samples[TG_METRIC_PROMPT][i] = x.prompt;
        b->samples[TG_METRIC_DECODE][i] = x.decode;
        b->samples[TG_METRIC_TTFT][i] = x.ttft;
    }
    return TG_OK;
}

/* One more run, apart from the others: being timed costs it a little. */
static tg_status measure_costs(tg_bench *b, tg_costs *c, tg_err *e)
{
    speeds ignored;
    TG_TRY(measure_run(b, true, &ignored, e));
    tg_costs_take(c, b->session.engine, NULL);
    tg_engine_end_profile(b->session.engine);
    return TG_OK;
}

/* Steps that verify come from no request here: they are made. */
static tg_status measure_verify_costs(tg_bench *b, tg_err *e)
{
    tg_verification longest = {.is_longest_only = true};
    if (b->session.info.speculation == 0) return TG_OK;
    TG_TRY(tg_engine_begin_profile(b->session.engine, e));
    TG_TRY(tg_verification_run(&longest, &b->session, b->n_rows, b->depth + b->n_prompt, 1, e));
    tg_costs_take(&b->costs, b->session.engine, "speculate");
    tg_engine_end_profile(b->session.engine);
    return TG_OK;
}

static tg_status measure_roofline(tg_bench *b, tg_err *e)
{
    tg_costs costs = {0};
    tg_engine *g = b->session.engine;
    TG_TRY(measure_costs(b, &costs, e));
    TG_TRY(tg_roofline_init(&b->roofline, &costs, b->n_rows, b->n_runs, &b->arena, e));
    for (int32_t i = 0; i < b->n_runs; i++) {
        speeds x;
        tg_roofline_begin_run(&b->roofline, i, g);
        TG_TRY(measure_run(b, false, &x, e));
        tg_roofline_end_run(&b->roofline, i, g, x.decode, x.prompt);
    }
    tg_roofline_finish(&b->roofline, g);
    return TG_OK;
}

/* Refuses what cannot be measured before it begins: a full batch row would end the completion
 * early, and the speed would be that of another length. */
static tg_status check_shape(const tg_bench *b, const tg_args *a, tg_err *e)
{
    const tg_model_info *m = &b->session.info;
    if ((int64_t)b->depth + b->n_prompt + b->n_gen > m->max_length)
        return tg_fail(e, TG_E_LIMIT,
                       "%" PRId32 " tokens before, a prompt of %" PRId32
                       " and a completion of %" PRId32
                       " exceed the model's context length of %" PRId32
                       "; use smaller --depth, -p and -n, or export it with a larger --max-length",
                       b->depth, b->n_prompt, b->n_gen, m->max_length);
    if (b->n_rows > m->batch)
        return tg_fail(e, TG_E_LIMIT,
                       "--batch %" PRId32 " is more than the batch of %" PRId32
                       " that the model was exported with; export it with --batch %" PRId32,
                       b->n_rows, m->batch, b->n_rows);
    if (a->is_set[TG_OPT_BENCH_VERIFY] && m->speculation == 0)
        return tg_fail(e, TG_E_LIMIT,
                       "--verify has no steps to measure: the model was exported with "
                       "--speculation 0; export it with --speculation 7");
    return TG_OK;
}

static tg_status make_samples(tg_bench *b, tg_err *e)
{
    for (int m = 0; m < TG_METRIC_COUNT; m++) {
        b->samples[m] = TG_ARENA_ARRAY(&b->arena, double, b->n_runs);
        if (!b->samples[m]) return tg_fail_nomem(e, (size_t)b->n_runs * 8, "measurements");
    }
    return TG_OK;
}

/* For a shape that was checked: what was only asked for may be 256 rows of 128 MB. */
static tg_status make_lanes(tg_bench *b, tg_err *e)
{
    int64_t n_tokens = (int64_t)b->depth + b->n_prompt;
    b->lanes = TG_ARENA_ARRAY(&b->arena, lane, b->n_rows);
    if (!b->lanes) return tg_fail_nomem(e, (size_t)b->n_rows * sizeof(lane), "rows");
    for (int32_t r = 0; r < b->n_rows; r++) {
        b->lanes[r].prompt = TG_ARENA_ARRAY(&b->arena, int32_t, n_tokens);
        if (!b->lanes[r].prompt) return tg_fail_nomem(e, (size_t)n_tokens * 4, "a prompt");
    }
    return TG_OK;
}

static tg_status measure(tg_bench *b, const tg_args *a, tg_err *e)
{
    TG_TRY(tg_session_find(&b->session.dir, a->operand, e));
    TG_TRY(make_samples(b, e));
    for (int32_t i = 0; i < b->n_runs; i++) {
        tg_session_unload(&b->session);
        TG_TRY(tg_session_load(&b->session, a, e));
        b->samples[TG_METRIC_LOAD][i] = b->session.load_ms;
    }
    TG_TRY(check_shape(b, a, e));
    TG_TRY(make_lanes(b, e));
    TG_TRY(measure_speeds(b, e));
    for (int32_t i = 0; i < b->n_runs; i++) /* a peak has one value */
        b->samples[TG_METRIC_RSS][i] = (double)tg_memory_peak_bytes() / 1e6;
    if (a->is_set[TG_OPT_BENCH_VERIFY])
        TG_TRY(tg_verification_run(&b->verification, &b->session, b->n_rows, b->depth + b->n_prompt,
                                   b->n_runs, e));
    if (a->is_set[TG_OPT_ROOFLINE]) TG_TRY(measure_roofline(b, e));
    if (!a->is_set[TG_OPT_PROFILE]) return TG_OK;
    TG_TRY(measure_costs(b, &b->costs, e));
    return measure_verify_costs(b, e);
}

/* Keys that others parse: the five metrics first, then the circumstances, then what was asked for
 * beyond. */
static void print_json(const tg_bench *b, tg_buf *out)
{
    tg_engine_info info = tg_engine_get_info(b->session.engine);
    tg_report_begin(out, NULL);
    for (int m = 0; m < TG_METRIC_COUNT; m++) {
        const double *x = b->samples[m];
        tg_report_begin(out, metrics[m].key);
        tg_report_add_real(out, "median", tg_median(x, b->n_runs));
        tg_report_add_real(out, "min", x[0]);
        tg_report_add_real(out, "max", x[b->n_runs - 1]);
        tg_report_end(out);
    }
    tg_report_add_int(out, "n_prompt", b->n_prompt);
    tg_report_add_int(out, "n_gen", b->n_gen);
    tg_report_add_int(out, "depth", b->depth);
    tg_report_add_int(out, "batch", b->n_rows);
    tg_report_add_int(out, "repetitions", b->n_runs);
    tg_report_add_int(out, "threads", info.n_threads);
    tg_report_add_text(out, "cpu_tier", tg_str_from_cstr(info.cpu_tier));
    tg_report_add_text(out, "version", tg_str_from_cstr(tg_version()));
    if (b->verification.n_cases > 0) tg_verification_report(&b->verification, out);
    if (b->roofline.n_rows > 0) tg_roofline_report(&b->roofline, out);
    if (b->costs.n > 0) tg_costs_report(&b->costs, out);
    tg_report_end(out);
    tg_buf_add_byte(out, '\n');
}

/* Tables in Markdown: they are what people paste next to another engine's. */
static void print_table(const tg_bench *b, tg_buf *out)
{
    tg_engine_info info = tg_engine_get_info(b->session.engine);
    tg_buf_printf(out, "| %-23s | %10s | %10s | %10s |\n", "", "median", "min", "max");
    tg_buf_add_cstr(out, "| ----------------------- | ---------: | ---------: | ---------: |\n");
    for (int m = 0; m < TG_METRIC_COUNT; m++) {
        const double *x = b->samples[m];
        tg_buf_printf(out, "| %-23s | %10.2f | %10.2f | %10.2f |\n", metrics[m].title,
                      tg_median(x, b->n_runs), x[0], x[b->n_runs - 1]);
    }
    tg_buf_printf(out, "\n%s: ", tg_model_get_info(b->session.model).architecture);
    if (b->n_rows > 1) tg_buf_printf(out, "%" PRId32 " sequences, ", b->n_rows);
    if (b->depth > 0) tg_buf_printf(out, "depth %" PRId32 ", ", b->depth);
    tg_buf_printf(out,
                  "prefill %" PRId32 ", decode %" PRId32 ", %" PRId32 " runs, %" PRId32
                  " threads, %s, trigraph %s\n",
                  b->n_prompt, b->n_gen, b->n_runs, info.n_threads, info.cpu_tier, tg_version());
    if (b->verification.n_cases > 0) tg_verification_print(&b->verification, out);
    if (b->roofline.n_rows > 0) tg_roofline_print(&b->roofline, out);
    tg_costs_print(&b->costs, out);
}

int tg_run_bench(const tg_args *a)
{
    tg_bench b = {0};
    tg_term out;
    tg_buf text = {0};
    tg_err e = {0};
    tg_signals_catch();
    tg_term_init(&out, STDOUT_FILENO);
    b.depth = (int32_t)a->number[TG_OPT_DEPTH];
    b.n_prompt = (int32_t)a->number[TG_OPT_N_PROMPT];
    b.n_gen = (int32_t)a->number[TG_OPT_N_GEN];
    b.n_rows = (int32_t)a->number[TG_OPT_BENCH_BATCH];
    b.n_runs = (int32_t)a->number[TG_OPT_REPETITIONS];
    tg_status s = measure(&b, a, &e);
    if (s == TG_OK) {
        for (int m = 0; m < TG_METRIC_COUNT; m++)
            tg_sort(b.samples[m], b.n_runs);
        (a->is_set[TG_OPT_JSON] ? print_json : print_table)(&b, &text);
        tg_term_write(&out, tg_buf_str(&text));
        s = tg_buf_check(&text, &e);
    }
    int code = tg_exit_code(s, &e, &out);
    tg_roofline_deinit(&b.roofline);
    tg_session_close(&b.session);
    tg_arena_deinit(&b.arena);
    tg_buf_deinit(&text);
    return code;
}
