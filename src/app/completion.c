/* SPDX-License-Identifier: Apache-2.0
 * completion.c - from a prompt to its completion.
 *
 * Messages are kept as the JSON text that tg_text_render_chat takes, because that is the only form
 * in which they are ever needed: a list that grows at its end and is cut back to a length when a
 * turn fails. The model's defaults fill what the options leave open, and greedy what the model
 * leaves open; that order stands in tg_sampling_choose and nowhere else. */
#include "app/completion.h"

#include "base/json.h"
#include "base/os.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

void tg_prompt_add_message(tg_buf *messages, const char *role, tg_str content)
{
    tg_buf_printf(messages, "%s{\"role\": \"%s\", \"content\": ", messages->len ? ", " : "[", role);
    tg_json_add_quoted(messages, content);
    tg_buf_add_byte(messages, '}');
}

/* The closing bracket goes on a copy: the list itself stays open for the next message. */
tg_status tg_prompt_render(tg_tokens *out, const tg_session *s, const tg_args *a,
                           const tg_buf *messages, tg_err *e)
{
    tg_chat_options o = {.kwargs = a->text[TG_OPT_KWARGS],
                         .template_name = a->text[TG_OPT_TEMPLATE],
                         .safe_messages = tg_args_has_safe_messages(a)};
    tg_buf list = {0};
    tg_buf_add_str(&list, tg_buf_str(messages));
    tg_buf_add_byte(&list, ']');
    tg_status st = tg_buf_check(messages, e);
    if (st == TG_OK) st = tg_buf_check(&list, e);
    if (st == TG_OK) st = tg_text_tokenize_chat(out, s->text, tg_buf_cstr(&list), &o, e);
    tg_buf_deinit(&list);
    return st;
}

/* A seed of 32 bits: short enough to be typed again. */
static uint64_t draw_seed(void)
{
    uint32_t seed = 0;
    FILE *f = fopen("/dev/urandom", "rbe");
    if (!f || fread(&seed, sizeof seed, 1, f) != 1)
        seed = (uint32_t)tg_time_ns() ^ (uint32_t)getpid();
    if (f) (void)fclose(f); /* only read */
    return seed;
}

/* The command line did not ask for sampling, so a line reports it: the values, the seed that
 * repeats it, and how to turn it off. */
static void say_sampling(const tg_sampling *p)
{
    tg_buf b = {0};
    tg_buf_printf(&b, "temperature %g", (double)p->temperature);
    if (p->top_k) tg_buf_printf(&b, ", top-k %" PRId32, p->top_k);
    if (p->top_p > 0 && p->top_p < 1) tg_buf_printf(&b, ", top-p %g", (double)p->top_p);
    if (p->min_p > 0) tg_buf_printf(&b, ", min-p %g", (double)p->min_p);
    if (p->repeat_penalty > 0 && p->repeat_penalty != 1)
        tg_buf_printf(&b, ", repeat-penalty %g", (double)p->repeat_penalty);
    tg_say("the model's generation_config asks for sampling: %s, seed %" PRIu64
           "; --temp 0 is greedy",
           tg_buf_cstr(&b), p->seed);
    tg_buf_deinit(&b);
}

tg_sampling tg_sampling_choose(const tg_session *s, const tg_args *a)
{
    static const tg_option_id asking[] = {TG_OPT_TOP_K, TG_OPT_TOP_P, TG_OPT_MIN_P};
    tg_sampling p = tg_model_get_sampling(s->model);
    /* A cut without a temperature would cut nothing from a greedy choice: who gives one samples. */
    bool is_models = p.temperature > 0 && !a->is_set[TG_OPT_TEMPERATURE];
    for (size_t i = 0; i < TG_COUNT(asking); i++)
        if (a->is_set[asking[i]] && p.temperature <= 0) p.temperature = 1;
    if (a->is_set[TG_OPT_TEMPERATURE]) p.temperature = (float)a->real[TG_OPT_TEMPERATURE];
    if (a->is_set[TG_OPT_TOP_K]) p.top_k = (int32_t)a->number[TG_OPT_TOP_K];
    if (a->is_set[TG_OPT_TOP_P]) p.top_p = (float)a->real[TG_OPT_TOP_P];
    if (a->is_set[TG_OPT_MIN_P]) p.min_p = (float)a->real[TG_OPT_MIN_P];
    if (a->is_set[TG_OPT_REPEAT_PENALTY]) p.repeat_penalty = (float)a->real[TG_OPT_REPEAT_PENALTY];
    if (a->is_set[TG_OPT_PRESENCE_PENALTY])
        p.presence_penalty = (float)a->real[TG_OPT_PRESENCE_PENALTY];
    if (a->is_set[TG_OPT_FREQUENCY_PENALTY])
        p.frequency_penalty = (float)a->real[TG_OPT_FREQUENCY_PENALTY];
    if (a->is_set[TG_OPT_SEED])
        p.seed = (uint64_t)a->number[TG_OPT_SEED];
    else
        p.seed = p.temperature > 0 ? draw_seed() : 0;
    if (is_models) say_sampling(&p);
    return p;
}

/* max_tokens 0 is "until the row is full" to the engine, and what no -n means here. */
tg_request_options tg_completion_options(const tg_session *s, const tg_args *a)
{
    return (tg_request_options){
        .sampling = tg_sampling_choose(s, a),
        .max_tokens = a->is_set[TG_OPT_PREDICT] ? (int32_t)a->number[TG_OPT_PREDICT] : 0,
        .stop = a->texts,
        .n_stop = a->n_texts,
        .ignore_eos = a->is_set[TG_OPT_IGNORE_EOS],
        .show_special = a->is_set[TG_OPT_SHOW_SPECIAL],
    };
}

/* Keeps the piece, shows it, and asks to end when a signal came or the reader closed the pipe. A
 * piece is whole characters, so what is printed is valid UTF-8 at any moment. */
static bool take_text(void *context, const char *text, size_t n_bytes, const int32_t *ids,
                      int32_t n_ids)
{
    tg_completion *x = context;
    (void)ids;
    (void)n_ids;
    tg_buf_add(&x->text, text, n_bytes);
    if (!x->out) return tg_signal_find() != 0;
    tg_term_print(x->out, (tg_str){text, n_bytes});
    return tg_signal_find() || tg_term_is_broken(x->out);
}

/* Steps here and not in tg_request_wait, so that a signal is heard while a long prompt is read. */
tg_status tg_completion_run(tg_completion *x, tg_session *s, const int32_t *ids, int32_t n_ids,
                            tg_request_options *o, tg_err *e)
{
    o->on_text = take_text;
    o->context = x;
    TG_TRY(tg_engine_submit(&x->request, s->engine, ids, n_ids, o, e));
    while (tg_request_get_stats(x->request).finish == TG_FINISH_NONE) {
        bool is_idle = false;
        TG_TRY(tg_engine_step(s->engine, &is_idle, e));
        if (tg_signal_find()) tg_request_cancel(x->request);
    }
    x->stats = tg_request_get_stats(x->request);
    TG_TRY(tg_request_wait(x->request, e));
    return tg_buf_check(&x->text, e);
}

/* The request refers to the completion as its callback's context: it goes first. */
void tg_completion_deinit(tg_completion *x)
{
    tg_request_free(x->request);
    x->request = NULL;
    tg_buf_deinit(&x->text);
}

/* Cached tokens were not computed, and would make the prompt look as fast as it was not. */
double tg_completion_prompt_speed(const tg_request_stats *s)
{
    int32_t n = s->n_prompt_tokens - s->n_cached_tokens;
    return n > 0 && s->prompt_ms > 0 ? 1000.0 * n / s->prompt_ms : NAN;
}

double tg_completion_decode_speed(const tg_request_stats *s)
{
    int32_t n = s->n_completion_tokens - 1; /* the first came with the prompt's last step */
    return n > 0 && s->decode_ms > 0 ? 1000.0 * n / s->decode_ms : NAN;
}

static void add_speed(tg_buf *b, double speed)
{
    if (isfinite(speed)) tg_buf_printf(b, ", %.1f tokens/s", speed);
}

void tg_completion_say_stats(const tg_session *s, const tg_request_stats *stats)
{
    tg_engine_info info = tg_engine_get_info(s->engine);
    tg_buf b = {0};
    tg_buf_printf(&b, "prefill %" PRId32 " tokens", stats->n_prompt_tokens);
    if (stats->n_cached_tokens) tg_buf_printf(&b, " (%" PRId32 " cached)", stats->n_cached_tokens);
    tg_buf_printf(&b, " in %.0f ms", stats->prompt_ms);
    add_speed(&b, tg_completion_prompt_speed(stats));
    tg_buf_printf(&b, "; decode %" PRId32 " tokens in %.0f ms", stats->n_completion_tokens,
                  stats->decode_ms);
    add_speed(&b, tg_completion_decode_speed(stats));
    if (stats->n_recomputed_tokens)
        tg_buf_printf(&b, "; %" PRId32 " tokens computed again with long rope factors",
                      stats->n_recomputed_tokens);
    tg_say("%s; first token after %.0f ms; loaded in %.1f ms; %.0f MB peak memory; %" PRId32
           " thread%s, %s",
           tg_buf_cstr(&b), stats->ttft_ms, s->load_ms, (double)tg_memory_peak_bytes() / 1e6,
           info.n_threads, info.n_threads == 1 ? "" : "s", info.cpu_tier);
    tg_buf_deinit(&b);
}
