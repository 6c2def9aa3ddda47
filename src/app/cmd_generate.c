/* SPDX-License-Identifier: Apache-2.0
 * cmd_generate.c - one prompt, one completion.
 *
 * The prompt is read and checked before the model is looked for: a mistyped file name should not
 * cost an export. With --json nothing is printed until the end, and then one object; without, the
 * completion streams, and a newline ends it if the model did not. */
#include "app/command.h"
#include "app/completion.h"
#include "app/input.h"
#include "app/report.h"
#include "base/os.h"

#include <inttypes.h>
#include <unistd.h>

/* All that has to be given back, so that there is one way out of the command. */
typedef struct tg_generation {
    tg_session session;
    tg_input input;
    tg_term out;
    tg_completion completion;
    tg_tokens prompt; /* of the text; empty where ids were given */
    double tokenize_ms;
} tg_generation;

/* A shell ends what it pipes with a newline that is not part of the prompt. */
static void drop_last_newline(tg_input *in, const tg_args *a)
{
    if (a->is_set[TG_OPT_PROMPT] || !in->text.len || in->text.ptr[in->text.len - 1] != '\n') return;
    in->text.ptr[--in->text.len] = 0;
}

/* Options that say how the template is used, where none is. */
static tg_status refuse_chat_options(const tg_args *a, tg_err *e)
{
    static const tg_option_id ids[] = {TG_OPT_SYSTEM, TG_OPT_KWARGS, TG_OPT_TEMPLATE,
                                       TG_OPT_SAFE_MESSAGES};
    for (size_t i = 0; i < TG_COUNT(ids); i++)
        if (a->is_set[ids[i]])
            return tg_fail(e, TG_E_ARGUMENT,
                           "--%s needs a chat template, and here the text is continued as it is",
                           tg_options[ids[i]].name);
    return TG_OK;
}

/* The ids of the text: one user turn of the template, or the text itself. */
static tg_status tokenize_prompt(tg_generation *g, const tg_args *a, tg_err *e)
{
    tg_session *s = &g->session;
    bool is_raw = a->is_set[TG_OPT_RAW];
    if (!s->text_info.has_tokenizer)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s has no tokenizer: give token ids with --ids FILE instead of a text",
                       a->operand);
    if (!is_raw && !s->text_info.n_templates) {
        tg_say("the model has no chat template: the text is continued as it is");
        is_raw = true;
    }
    if (is_raw) {
        TG_TRY(refuse_chat_options(a, e));
        return tg_text_tokenize(&g->prompt, s->text, tg_buf_cstr(&g->input.text), g->input.text.len,
                                NULL, e);
    }
    tg_buf messages = {0};
    if (a->is_set[TG_OPT_SYSTEM])
        tg_prompt_add_message(&messages, "system", tg_str_from_cstr(a->text[TG_OPT_SYSTEM]));
    tg_prompt_add_message(&messages, "user", tg_buf_str(&g->input.text));
    tg_status st = tg_prompt_render(&g->prompt, s, a, &messages, e);
    tg_buf_deinit(&messages);
    return st;
}

/* The words of the OpenAI interface where it has one. */
static const char *finish_name(tg_finish f)
{
    switch (f) {
    case TG_FINISH_NONE: return "none";
    case TG_FINISH_STOP: return "stop";
    case TG_FINISH_LENGTH: return "length";
    case TG_FINISH_CANCELLED: return "cancelled";
    case TG_FINISH_ERROR: return "error";
    }
    return "error";
}

/* Statistics that have no value (no step to measure) are null. ttft counts from the text: what the
 * tokenizer took is added to what the engine measured from the ids on. */
static void print_json(tg_generation *g, const int32_t *ids, int32_t n_ids, uint64_t seed)
{
    const tg_request_stats *stats = &g->completion.stats;
    tg_engine_info info = tg_engine_get_info(g->session.engine);
    int32_t n_tokens = 0;
    const int32_t *tokens = tg_request_get_tokens(g->completion.request, &n_tokens);
    tg_buf b = {0};
    tg_report_begin(&b, NULL);
    tg_report_add_ids(&b, "prompt_tokens", ids, n_ids);
    tg_report_add_ids(&b, "tokens", tokens, n_tokens);
    tg_report_add_text(&b, "text", tg_buf_str(&g->completion.text));
    tg_report_add_text(&b, "finish_reason", tg_str_from_cstr(finish_name(stats->finish)));
    tg_report_add_int(&b, "seed", (int64_t)seed);
    tg_report_begin(&b, "stats");
    tg_report_add_real(&b, "load_ms", g->session.load_ms);
    tg_report_add_real(&b, "ttft_ms", g->tokenize_ms + stats->ttft_ms);
    tg_report_add_real(&b, "prompt_tokens_per_s", tg_completion_prompt_speed(stats));
    tg_report_add_real(&b, "decode_tokens_per_s", tg_completion_decode_speed(stats));
    tg_report_add_int(&b, "cached_tokens", stats->n_cached_tokens);
    tg_report_add_int(&b, "recomputed_tokens", stats->n_recomputed_tokens);
    tg_report_add_real(&b, "peak_rss_mb", (double)tg_memory_peak_bytes() / 1e6);
    tg_report_add_int(&b, "threads", info.n_threads);
    tg_report_add_text(&b, "cpu_tier", tg_str_from_cstr(info.cpu_tier));
    tg_report_end(&b);
    tg_report_end(&b);
    tg_buf_add_byte(&b, '\n');
    tg_term_write(&g->out, tg_buf_str(&b));
    tg_buf_deinit(&b);
}

static tg_status run(tg_generation *g, const tg_args *a, tg_err *e)
{
    bool is_json = a->is_set[TG_OPT_JSON];
    TG_TRY(tg_session_open(&g->session, a, true, e));
    int64_t start = tg_time_ns();
    if (!g->input.is_ids) TG_TRY(tokenize_prompt(g, a, e));
    const int32_t *ids = g->input.is_ids ? g->input.ids : g->prompt.ids;
    int32_t n_ids = g->input.is_ids ? g->input.n_ids : g->prompt.n;
    g->tokenize_ms = (double)(tg_time_ns() - start) / 1e6;

    tg_request_options o = tg_completion_options(&g->session, a);
    g->completion.out = is_json ? NULL : &g->out;
    tg_status s = tg_completion_run(&g->completion, &g->session, ids, n_ids, &o, e);
    const tg_buf *text = &g->completion.text;
    if (!is_json && text->len && text->ptr[text->len - 1] != '\n')
        tg_term_write(&g->out, TG_STR("\n"));
    if (s != TG_OK) return s;
    if (is_json) print_json(g, ids, n_ids, o.sampling.seed);
    if (a->is_set[TG_OPT_STATS]) tg_completion_say_stats(&g->session, &g->completion.stats);
    return TG_OK;
}

int tg_run_generate(const tg_args *a)
{
    tg_generation g = {0};
    tg_err e = {0};
    if (!tg_input_is_given(a))
        return tg_exit_usage("generate", "generate needs a prompt: -p TEXT, -f FILE or --ids FILE");
    tg_term_init(&g.out, STDOUT_FILENO);
    tg_status s = tg_input_load(&g.input, a, false, &e);
    if (s == TG_OK) drop_last_newline(&g.input, a);
    if (s == TG_OK) s = tg_input_check(&g.input, "prompt", &e);
    tg_signals_catch(); /* not before: a prompt that is being typed may be left with ctrl-C */
    if (s == TG_OK) s = run(&g, a, &e);
    int code = tg_exit_code(s, &e, &g.out);
    tg_completion_deinit(&g.completion);
    tg_tokens_deinit(&g.prompt);
    tg_session_close(&g.session);
    tg_input_deinit(&g.input);
    return code;
}
