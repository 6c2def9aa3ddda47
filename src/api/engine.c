/* SPDX-License-Identifier: Apache-2.0
 * engine.c - requests on their way through a scheduler. */
#include "api/engine.h"

#include "api/stop.h"

#include <math.h>

struct tg_request {
    tg_engine *engine;
    tg_task *task;
    tg_request *next; /* in the inbox, then among the running */
    tg_request_options options;
    tg_stop_scan stops;
    tg_detok detok;
    bool has_detok;
    /* Of the stepping thread. */
    tg_buf decoded; /* text of the last token, on its way through `stops` */
    tg_buf piece;   /* text on its way to on_text */
    tg_ids piece_ids;
    tg_ids completion;
    bool is_stopped;   /* a stop string was found: nothing more is shown */
    tg_err text_error; /* the completion could not be turned into text */
    /* Under engine->lock. */
    tg_buf fresh, given; /* text to read; text lent by the last read */
    bool is_cancelled;
    tg_finish finish;
    tg_err error;
    tg_request_stats stats;
    tg_arena arena;
};

/* ---- opening */

tg_status tg_engine_open(tg_engine **out, tg_model *m, const tg_engine_options *o, tg_err *e)
{
    *out = NULL;
    tg_engine *g = TG_NEW(tg_engine);
    if (!g) return tg_fail_nomem(e, sizeof *g, "an engine");
    g->model = m;
    pthread_mutex_init(&g->step_lock, NULL);
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->changed, NULL);
    tg_cpu_options options = {0};
    if (o) options = (tg_cpu_options){.n_threads = o->n_threads, .tier = o->cpu_tier};
    const tg_program *p = &m->artifact->program;
    tg_status s =
        tg_exec_new(&g->exec, p, m->artifact->weights_map.data, &tg_cpu_device_ops, &options, e);
    if (s == TG_OK) s = tg_sched_new(&g->sched, g->exec, p, e);
    if (s != TG_OK) {
        tg_engine_close(g);
        return s;
    }
    *out = g;
    return TG_OK;
}

void tg_engine_close(tg_engine *g)
{
    if (!g) return;
    tg_engine_stop(g);
    tg_sched_free(g->sched);
    tg_exec_free(g->exec);
    pthread_cond_destroy(&g->changed);
    pthread_mutex_destroy(&g->lock);
    pthread_mutex_destroy(&g->step_lock);
    tg_mem_free(g);
}

tg_engine_info tg_engine_get_info(const tg_engine *g)
{
    tg_cpu_info i = tg_cpu_device_get_info(tg_exec_device(g->exec));
    return (tg_engine_info){.n_threads = i.n_threads, .cpu_tier = i.tier};
}

/* ---- text of a completion, on the stepping thread */

/* Moves `decoded` through the stop strings to `piece`. True when one of them ended the text. Text
 * that memory was refused for ends the request with TG_E_NOMEM. */
static bool release_text(tg_request *r, bool is_end)
{
    const tg_buf *const buffers[] = {&r->decoded, &r->stops.held, &r->piece};
    bool is_stopped = tg_stop_scan_push(&r->stops, &r->piece, tg_buf_str(&r->decoded));
    if (is_end && !is_stopped) tg_stop_scan_flush(&r->stops, &r->piece);
    for (size_t i = 0; i < TG_COUNT(buffers); i++)
        (void)!tg_buf_check(buffers[i], &r->text_error);
    tg_buf_clear(&r->decoded);
    return is_stopped;
}

/* Gives `piece` to the callback or to readers; true: cancel. */
static bool deliver(tg_request *r)
{
    bool is_cancelled = false;
    if (r->options.on_text) {
        if (r->piece.len || r->piece_ids.len)
            is_cancelled =
                r->options.on_text(r->options.context, tg_buf_cstr(&r->piece), r->piece.len,
                                   r->piece_ids.ptr, (int32_t)r->piece_ids.len);
    } else if (r->piece.len) {
        pthread_mutex_lock(&r->engine->lock);
        tg_buf_add_str(&r->fresh, tg_buf_str(&r->piece));
        pthread_mutex_unlock(&r->engine->lock);
    }
    tg_buf_clear(&r->piece);
    tg_ids_clear(&r->piece_ids);
    return is_cancelled;
}

static bool take_token(void *context, int32_t id)
{
    tg_request *r = context;
    tg_ids_push(&r->completion, id);
    tg_ids_push(&r->piece_ids, id);
    if (r->has_detok && tg_detok_push(&r->detok, &r->decoded, id, &r->text_error) != TG_OK)
        return true;
    r->is_stopped = release_text(r, false);
    if (deliver(r)) tg_request_cancel(r);
    return r->is_stopped || r->text_error.status != TG_OK;
}

static tg_finish finish_of(tg_task_end end)
{
    static const tg_finish finishes[] = {
        [TG_TASK_GOING] = TG_FINISH_NONE,   [TG_TASK_STOPPED] = TG_FINISH_STOP,
        [TG_TASK_FULL] = TG_FINISH_LENGTH,  [TG_TASK_CANCELLED] = TG_FINISH_CANCELLED,
        [TG_TASK_FAILED] = TG_FINISH_ERROR,
    };
    return finishes[end];
}

static void update_stats(tg_request *r)
{
    tg_task_stats t = tg_task_get_stats(r->task);
    r->stats = (tg_request_stats){
        .finish = r->finish,
        .n_prompt_tokens = t.n_prompt,
        .n_cached_tokens = t.n_cached,
        .n_completion_tokens = t.n_completion,
        .ttft_ms = t.first_token_ns ? (double)(t.first_token_ns - t.added_ns) / 1e6 : 0,
        .prompt_ms = (double)t.prompt_ns / 1e6,
        .decode_ms = (double)t.completion_ns / 1e6,
        .n_recomputed_tokens = t.n_recomputed,
    };
}

static void end_request(void *context, tg_task_end end, const tg_err *e)
{
    tg_request *r = context;
    tg_engine *g = r->engine;
    if (!r->is_stopped && r->text_error.status == TG_OK) {
        if (!r->has_detok || tg_detok_flush(&r->detok, &r->decoded, &r->text_error) == TG_OK) {
            if (release_text(r, true)) end = TG_TASK_STOPPED;
            (void)deliver(r);
        }
    }
    if (r->text_error.status != TG_OK) {
        end = TG_TASK_FAILED;
        e = &r->text_error;
    }
    pthread_mutex_lock(&g->lock);
    r->finish = finish_of(end);
    if (e) r->error = *e;
    update_stats(r);
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
}

/* ---- requests */

static tg_task_options task_options(const tg_request *r)
{
    const tg_sampling *s = &r->options.sampling;
    const tg_model *m = r->engine->model;
    return (tg_task_options){
        .sampling = {.temperature = s->temperature,
                     .top_p = s->top_p,
                     .min_p = s->min_p,
                     .repeat_penalty = s->repeat_penalty,
                     .presence = s->presence_penalty,
                     .frequency = s->frequency_penalty,
                     .top_k = s->top_k,
                     .seed = s->seed,
                     .sample_index = s->sample_index},
        .max_tokens = r->options.max_tokens,
        .stop_ids = m->stop_ids,
        .n_stop_ids = r->options.ignore_eos ? 0 : m->n_stop_ids,
        .on_token = take_token,
        .on_end = end_request,
        .context = (void *)(uintptr_t)r,
    };
}

static void free_request(tg_request *r)
{
    tg_task_free(r->task);
    if (r->has_detok) tg_detok_deinit(&r->detok);
    tg_stop_scan_deinit(&r->stops);
    tg_buf_deinit(&r->decoded);
    tg_buf_deinit(&r->piece);
    tg_buf_deinit(&r->fresh);
    tg_buf_deinit(&r->given);
    tg_ids_deinit(&r->piece_ids);
    tg_ids_deinit(&r->completion);
    tg_arena_deinit(&r->arena);
    tg_mem_free(r);
}

tg_status tg_engine_submit(tg_request **out, tg_engine *g, const int32_t *tokens, int32_t n_tokens,
                           const tg_request_options *o, tg_err *e)
{
    static const tg_request_options defaults;
    *out = NULL;
    tg_request *r = TG_NEW(tg_request);
    if (!r) return tg_fail_nomem(e, sizeof *r, "a request");
    r->engine = g;
    r->options = o ? *o : defaults;
    tg_status s = tg_stop_scan_init(&r->stops, &r->arena, r->options.stop, r->options.n_stop, e);
    tg_task_options t = task_options(r);
    if (s == TG_OK)
        s = tg_task_new(&r->task, &g->model->artifact->program, tokens, n_tokens, &t, e);
    if (s != TG_OK) {
        free_request(r);
        return s;
    }
    if (g->model->text.tokenizer) {
        tg_detok_init(&r->detok, g->model->text.tokenizer, !r->options.show_special);
        r->has_detok = true;
        s = tg_detok_follow(&r->detok, tokens, (size_t)n_tokens, e);
        if (s != TG_OK) {
            free_request(r);
            return s;
        }
    }
    update_stats(r);
    pthread_mutex_lock(&g->lock);
    tg_request **end = &g->inbox;
    while (*end)
        end = &(*end)->next;
    *end = r;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    *out = r;
    return TG_OK;
}

void tg_request_cancel(tg_request *r)
{
    pthread_mutex_lock(&r->engine->lock);
    r->is_cancelled = true;
    pthread_cond_broadcast(&r->engine->changed);
    pthread_mutex_unlock(&r->engine->lock);
}

static void remove_from(tg_request **list, const tg_request *r)
{
    while (*list && *list != r)
        list = &(*list)->next;
    if (*list) *list = r->next;
}

void tg_request_free(tg_request *r)
{
    if (!r) return;
    tg_engine *g = r->engine;
    pthread_mutex_lock(&g->step_lock);
    pthread_mutex_lock(&g->lock);
    remove_from(&g->inbox, r);
    remove_from(&g->running, r);
    pthread_mutex_unlock(&g->lock);
    free_request(r);
    pthread_mutex_unlock(&g->step_lock);
}

const char *tg_request_read(tg_request *r, size_t *n_bytes)
{
    pthread_mutex_lock(&r->engine->lock);
    tg_buf lent = r->given;
    r->given = r->fresh;
    r->fresh = lent;
    tg_buf_clear(&r->fresh);
    pthread_mutex_unlock(&r->engine->lock);
    *n_bytes = r->given.len;
    return tg_buf_cstr(&r->given);
}

tg_request_stats tg_request_get_stats(const tg_request *r)
{
    pthread_mutex_lock(&r->engine->lock);
    tg_request_stats s = r->stats;
    pthread_mutex_unlock(&r->engine->lock);
    return s;
}

const int32_t *tg_request_get_tokens(const tg_request *r, int32_t *n_tokens)
{
    *n_tokens = (int32_t)r->completion.len;
    return r->completion.ptr;
}

/* ---- stepping */

/* Moves new requests into the scheduler and tells it which were cancelled. */
static void take_inbox(tg_engine *g)
{
    pthread_mutex_lock(&g->lock);
    while (g->inbox) {
        tg_request *r = g->inbox;
        g->inbox = r->next;
        r->next = g->running;
        g->running = r;
        tg_sched_add(g->sched, r->task);
    }
    for (tg_request **at = &g->running; *at;) {
        tg_request *r = *at;
        if (r->finish != TG_FINISH_NONE) {
            *at = r->next;
            continue;
        }
        if (r->is_cancelled) tg_task_cancel(r->task);
        at = &r->next;
    }
    pthread_mutex_unlock(&g->lock);
}

tg_status tg_engine_step(tg_engine *g, bool *is_idle, tg_err *e)
{
    pthread_mutex_lock(&g->step_lock);
    take_inbox(g);
    tg_status s = tg_sched_step(g->sched, is_idle, e);
    pthread_mutex_unlock(&g->step_lock);
    return s;
}

static void *run_engine(void *arg)
{
    tg_engine *g = arg;
    for (;;) {
        bool is_idle;
        /* A failure is reported to every request in the step. */
        tg_status s = tg_engine_step(g, &is_idle, NULL);
        pthread_mutex_lock(&g->lock);
        while (s == TG_OK && is_idle && !g->inbox && !g->is_stopping)
            pthread_cond_wait(&g->changed, &g->lock);
        bool is_stopping = g->is_stopping;
        pthread_mutex_unlock(&g->lock);
        if (is_stopping) return NULL;
    }
}

tg_status tg_engine_start(tg_engine *g, tg_err *e)
{
    TG_ASSERT(!g->is_started);
    g->is_stopping = false;
    if (pthread_create(&g->thread, NULL, run_engine, g) != 0)
        return tg_fail(e, TG_E_IO, "the system refused a thread for the engine");
    g->is_started = true;
    return TG_OK;
}

void tg_engine_stop(tg_engine *g)
{
    if (!g->is_started) return;
    pthread_mutex_lock(&g->lock);
    g->is_stopping = true;
    pthread_cond_broadcast(&g->changed);
    pthread_mutex_unlock(&g->lock);
    pthread_join(g->thread, NULL);
    g->is_started = false;
}

static bool is_done(const tg_request *r)
{
    pthread_mutex_lock(&r->engine->lock);
    bool is = r->finish != TG_FINISH_NONE;
    pthread_mutex_unlock(&r->engine->lock);
    return is;
}

tg_status tg_request_wait(tg_request *r, tg_err *e)
{
    tg_engine *g = r->engine;
    if (g->is_started) {
        pthread_mutex_lock(&g->lock);
        while (r->finish == TG_FINISH_NONE)
            pthread_cond_wait(&g->changed, &g->lock);
        pthread_mutex_unlock(&g->lock);
    }
    while (!is_done(r)) {
        bool is_idle;
        tg_err ignored = {0};
        /* A failed step ends its requests with the reason; ours tells it below if it was one. */
        (void)!tg_engine_step(g, &is_idle, &ignored);
    }
    if (r->finish != TG_FINISH_ERROR) return TG_OK;
    return tg_fail(e, r->error.status, "%s", r->error.msg);
}

/* ---- evaluation */

typedef struct eval {
    tg_engine *engine;
    const int32_t *tokens;
    int32_t n_tokens, chunk;
    bool (*on_row)(void *context, int32_t i, const float *logits, int32_t n_vocab);
    void *context;
} eval;

static tg_status show_row(const eval *v, int32_t i, int32_t out, tg_err *e)
{
    const float *logits;
    int32_t n_vocab = v->engine->model->artifact->program.n_vocab;
    TG_TRY(tg_exec_read_logits(v->engine->exec, out, &logits, e));
    for (int32_t k = 0; k < n_vocab; k++)
        if (!isfinite(logits[k]))
            return tg_fail(e, TG_E_NUMERIC, "the logit of id %d after position %d is not finite", k,
                           i);
    if (v->on_row(v->context, i, logits, n_vocab))
        return tg_fail(e, TG_E_CANCELLED, "the evaluation was cancelled at position %d", i);
    return TG_OK;
}

static tg_status run_eval(const eval *v, tg_err *e)
{
    TG_TRY(tg_sched_clear_rows(v->engine->sched, 1, e));
    bool is_long = tg_program_is_long(&v->engine->model->artifact->program, v->n_tokens);
    for (int32_t at = 0; at < v->n_tokens; at += v->chunk) {
        int32_t n = TG_MIN(v->chunk, v->n_tokens - at);
        tg_exec_row row = {.tokens = v->tokens + at,
                           .n_tokens = n,
                           .position = at,
                           .is_long = is_long,
                           .n_outs = n};
        TG_TRY(tg_exec_step(v->engine->exec, TG_KIND_CONTEXT, &row, 1, e));
        for (int32_t i = 0; i < n; i++)
            TG_TRY(show_row(v, at + i, i, e));
    }
    return TG_OK;
}

/* A step keeps the logits of all its tokens, so that it has no more of them than its plan has rows
 * of logits. Pages of more would take longer to come by than a larger step saves (Gemma 3, 682 ids,
 * two threads: 512 tokens a step 3.8 s, the 64 that 64 MB hold 2.8 s). */
static int32_t choose_chunk(const tg_program *p, int32_t asked)
{
    int32_t most = TG_MIN(tg_program_max_tokens(p, TG_KIND_CONTEXT), tg_io_most_outs(p));
    return asked > 0 ? TG_MIN(asked, most) : most;
}

tg_status tg_engine_eval(tg_engine *g, const int32_t *tokens, int32_t n_tokens, int32_t chunk,
                         bool (*on_row)(void *context, int32_t i, const float *logits,
                                        int32_t n_vocab),
                         void *context, tg_err *e)
{
    const tg_program *p = &g->model->artifact->program;
    if (chunk < 0)
        return tg_fail(e, TG_E_ARGUMENT, "a chunk of %d tokens is impossible; 0 leaves it open",
                       chunk);
    if (n_tokens > p->max_length)
        return tg_fail(e, TG_E_LIMIT, "%d tokens are more than the model's max-length of %d",
                       n_tokens, p->max_length);
    for (int32_t i = 0; i < n_tokens; i++)
        if (tokens[i] < 0 || tokens[i] >= p->n_embed_rows)
            return tg_fail(e, TG_E_ARGUMENT, "token %d is id %d; the model has ids 0 to %d", i,
                           tokens[i], p->n_embed_rows - 1);
    eval v = {g, tokens, n_tokens, choose_chunk(p, chunk), on_row, context};
    pthread_mutex_lock(&g->step_lock);
    tg_status s = run_eval(&v, e);
    pthread_mutex_unlock(&g->step_lock);
    return s;
}
