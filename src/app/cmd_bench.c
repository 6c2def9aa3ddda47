/* SPDX-License-Identifier: Apache-2.0
 * cmd_bench.c - speed, start-up and memory, as medians with their range.
 *
 * Loading is measured first and by itself, as often as the rest: an engine that is opened anew for
 * every prompt would pay its page faults inside the prompt. Then one run warms up, and the others
 * count. Memory is this process': finding the model, which may export it, happens in a child. */
#include "app/answer.h"
#include "app/command.h"
#include "app/costs.h"
#include "app/report.h"
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
    [TG_METRIC_PROMPT] = {"prompt_tokens_per_s", "prompt, tokens/s"},
    [TG_METRIC_DECODE] = {"decode_tokens_per_s", "decode, tokens/s"},
    [TG_METRIC_TTFT] = {"ttft_ms", "first token, ms"},
    [TG_METRIC_LOAD] = {"load_ms", "load, ms"},
    [TG_METRIC_RSS] = {"peak_rss_mb", "peak memory, MB"},
};

typedef struct tg_bench {
    tg_session session;
    int32_t n_prompt, n_gen, n_runs;
    double *samples[TG_METRIC_COUNT]; /* n_runs each; sorted at the end */
    int32_t *prompt;
    tg_costs costs; /* of --profile */
    tg_arena arena;
} tg_bench;

/* Ids from all over the vocabulary, other ones for every run: a prompt seen before would be found
 * in the prefix cache and cost nothing. (A multiplicative hash; any spread will do.) */
static void fill_prompt(tg_bench *b, int32_t run)
{
    for (int32_t i = 0; i < b->n_prompt; i++) {
        uint64_t x = ((uint64_t)(run + 2) << 32 | (uint32_t)i) * 0x9e3779b97f4a7c15u;
        b->prompt[i] = (int32_t)((x >> 33) % (uint64_t)b->session.info.n_vocab);
    }
}

/* One prompt and its answer. Runs from 0 to n_runs - 1 are counted. */
static tg_status measure_run(tg_bench *b, int32_t run, tg_err *e)
{
    tg_request_options o = {.max_tokens = b->n_gen, .ignore_eos = true};
    tg_answer x = {0};
    fill_prompt(b, run);
    tg_status s = tg_answer_run(&x, &b->session, b->prompt, b->n_prompt, &o, e);
    if (s == TG_OK && x.stats.finish == TG_FINISH_CANCELLED)
        s = tg_fail(e, TG_E_CANCELLED, "interrupted");
    if (s == TG_OK && run >= 0 && run < b->n_runs) {
        b->samples[TG_METRIC_PROMPT][run] = tg_answer_prompt_speed(&x.stats);
        b->samples[TG_METRIC_DECODE][run] = tg_answer_decode_speed(&x.stats);
        b->samples[TG_METRIC_TTFT][run] = x.stats.ttft_ms;
    }
    tg_answer_deinit(&x);
    return s;
}

/* One more run, which is not among the samples: being timed costs it a little. */
static tg_status measure_costs(tg_bench *b, tg_err *e)
{
    TG_TRY(tg_engine_begin_profile(b->session.engine, e));
    TG_TRY(measure_run(b, b->n_runs, e));
    tg_costs_take(&b->costs, b->session.engine);
    tg_engine_end_profile(b->session.engine);
    return TG_OK;
}

/* A prompt and an answer that do not fit are refused before anything is measured: a row that
 * fills up would end the answer early and the speed would be that of another length. */
static tg_status measure(tg_bench *b, const tg_args *a, tg_err *e)
{
    TG_TRY(tg_session_find(&b->session.dir, a->operand, e));
    for (int32_t i = 0; i < b->n_runs; i++) {
        tg_session_unload(&b->session);
        TG_TRY(tg_session_load(&b->session, a, e));
        b->samples[TG_METRIC_LOAD][i] = b->session.load_ms;
    }
    if ((int64_t)b->n_prompt + b->n_gen > b->session.info.max_length)
        return tg_fail(e, TG_E_LIMIT,
                       "a prompt of %" PRId32 " and an answer of %" PRId32
                       " tokens exceed the model's max-length of %" PRId32
                       "; take smaller -p and -n, or export it with a larger --max-length",
                       b->n_prompt, b->n_gen, b->session.info.max_length);
    for (int32_t i = -1; i < b->n_runs; i++)
        TG_TRY(measure_run(b, i, e));
    for (int32_t i = 0; i < b->n_runs; i++) /* a peak has one value */
        b->samples[TG_METRIC_RSS][i] = (double)tg_memory_peak_bytes() / 1e6;
    return a->is_set[TG_OPT_PROFILE] ? measure_costs(b, e) : TG_OK;
}

/* For qsort. NaN, a speed without a step, compares equal to all: it stays where it is. */
static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The mean of the middle two when n is even, as Python's statistics.median has it. */
static double median(const double *sorted, int32_t n)
{
    return n % 2 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Keys that others parse: the five metrics first, then the circumstances. */
static void print_json(const tg_bench *b, tg_buf *out)
{
    tg_engine_info info = tg_engine_get_info(b->session.engine);
    tg_report_begin(out, NULL);
    for (int m = 0; m < TG_METRIC_COUNT; m++) {
        const double *x = b->samples[m];
        tg_report_begin(out, metrics[m].key);
        tg_report_add_real(out, "median", median(x, b->n_runs));
        tg_report_add_real(out, "min", x[0]);
        tg_report_add_real(out, "max", x[b->n_runs - 1]);
        tg_report_end(out);
    }
    tg_report_add_int(out, "n_prompt", b->n_prompt);
    tg_report_add_int(out, "n_gen", b->n_gen);
    tg_report_add_int(out, "repetitions", b->n_runs);
    tg_report_add_int(out, "threads", info.n_threads);
    tg_report_add_text(out, "cpu_tier", tg_str_from_cstr(info.cpu_tier));
    tg_report_add_text(out, "version", tg_str_from_cstr(tg_version()));
    if (b->costs.n > 0) tg_costs_report(&b->costs, out);
    tg_report_end(out);
    tg_buf_add_byte(out, '\n');
}

/* A table in Markdown: it is what people paste next to another engine's. */
static void print_table(const tg_bench *b, tg_buf *out)
{
    tg_engine_info info = tg_engine_get_info(b->session.engine);
    tg_buf_printf(out, "| %-18s | %10s | %10s | %10s |\n", "", "median", "min", "max");
    tg_buf_add_cstr(out, "| ------------------ | ---------: | ---------: | ---------: |\n");
    for (int m = 0; m < TG_METRIC_COUNT; m++) {
        const double *x = b->samples[m];
        tg_buf_printf(out, "| %-18s | %10.2f | %10.2f | %10.2f |\n", metrics[m].title,
                      median(x, b->n_runs), x[0], x[b->n_runs - 1]);
    }
    tg_buf_printf(out,
                  "\n%s: prompt %" PRId32 ", answer %" PRId32 ", %" PRId32 " runs, %" PRId32
                  " threads, %s, trigraph %s\n",
                  tg_model_get_info(b->session.model).architecture, b->n_prompt, b->n_gen,
                  b->n_runs, info.n_threads, info.cpu_tier, tg_version());
    tg_costs_print(&b->costs, out);
}

int tg_run_bench(const tg_args *a)
{
    tg_bench b = {0};
    tg_term out;
    tg_buf text = {0};
    tg_err e = {0};
    tg_status s = TG_OK;
    tg_signals_catch();
    tg_term_init(&out, STDOUT_FILENO);
    b.n_prompt = (int32_t)a->number[TG_OPT_N_PROMPT];
    b.n_gen = (int32_t)a->number[TG_OPT_N_GEN];
    b.n_runs = (int32_t)a->number[TG_OPT_REPETITIONS];
    b.prompt = TG_ARENA_ARRAY(&b.arena, int32_t, b.n_prompt);
    if (!b.prompt) s = tg_fail_nomem(&e, (size_t)b.n_prompt * 4, "a prompt");
    for (int m = 0; m < TG_METRIC_COUNT && s == TG_OK; m++) {
        b.samples[m] = TG_ARENA_ARRAY(&b.arena, double, b.n_runs);
        if (!b.samples[m]) s = tg_fail_nomem(&e, (size_t)b.n_runs * 8, "measurements");
    }
    if (s == TG_OK) s = measure(&b, a, &e);
    if (s == TG_OK) {
        for (int m = 0; m < TG_METRIC_COUNT; m++)
            qsort(b.samples[m], (size_t)b.n_runs, sizeof(double), compare);
        (a->is_set[TG_OPT_JSON] ? print_json : print_table)(&b, &text);
        tg_term_write(&out, tg_buf_str(&text));
        s = tg_buf_check(&text, &e);
    }
    int code = tg_exit_code(s, &e, &out);
    tg_session_close(&b.session);
    tg_arena_deinit(&b.arena);
    tg_buf_deinit(&text);
    return code;
}
