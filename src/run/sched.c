/* SPDX-License-Identifier: Apache-2.0 */
#include "run/sched.h"

#include "base/os.h"

#include <string.h>

typedef enum state { NEW, WAITING, PROMPT, DECODE, DONE } state;

struct tg_task {
    tg_task *next; /* in the scheduler's list, oldest first */
    const tg_program *program;
    tg_sched *sched; /* NULL while NEW */
    state state;
    int32_t *tokens; /* [max_length] prompt, then completion */
    int32_t *stop_ids;
    int32_t n_prompt, n_tokens;
    int32_t row;
    tg_task_options options;
    tg_token_counts token_counts;
    bool is_cancelled;
    tg_task_stats stats;
    tg_arena arena;
};

/* A row remembers what its pages hold after its task has left. */
typedef struct row {
    tg_task *task;    /* NULL: free */
    int32_t *tokens;  /* [max_length] */
    int32_t n_cached; /* positions whose keys and values are there */
    bool is_long;     /* they are those of a long text (tg_program_is_long) */
    int64_t last_used;
} row;

struct tg_sched {
    tg_exec *exec;
    const tg_program *program;
    tg_task *tasks;
    row *rows;                /* [batch] */
    tg_exec_row *step;        /* [batch] of the running step */
    tg_task **step_tasks;     /* [batch] */
    tg_sample_params *params; /* [batch] */
    int64_t n_steps;
    bool was_prompt; /* the last step read a prompt: now the others' turn */
    tg_arena arena;
};

tg_status tg_sched_new(tg_sched **out, tg_exec *x, const tg_program *p, tg_err *e)
{
    *out = NULL;
    tg_sched *s = TG_NEW(tg_sched);
    if (!s) return tg_fail_nomem(e, sizeof *s, "the scheduler");
    s->exec = x;
    s->program = p;
    s->rows = TG_ARENA_ARRAY(&s->arena, row, p->batch);
    s->step = TG_ARENA_ARRAY(&s->arena, tg_exec_row, p->batch);
    s->step_tasks = TG_ARENA_ARRAY(&s->arena, tg_task *, p->batch);
    s->params = TG_ARENA_ARRAY(&s->arena, tg_sample_params, p->batch);
    bool is_ok = s->rows && s->step && s->step_tasks && s->params;
    for (int32_t i = 0; is_ok && i < p->batch; i++) {
        s->rows[i].tokens = TG_ARENA_ARRAY(&s->arena, int32_t, p->max_length);
        is_ok = s->rows[i].tokens != NULL;
    }
    if (!is_ok) {
        tg_sched_free(s);
        return tg_fail_nomem(e, (size_t)p->batch, "the scheduler's rows");
    }
    *out = s;
    return TG_OK;
}

void tg_sched_free(tg_sched *s)
{
    if (!s) return;
    TG_ASSERT(s->tasks == NULL);
    tg_arena_deinit(&s->arena);
    tg_mem_free(s);
}

/* ---- tasks */

static tg_status check_prompt(const tg_program *p, const int32_t *tokens, int32_t n, tg_err *e)
{
    if (n <= 0) return tg_fail(e, TG_E_ARGUMENT, "the prompt has no tokens");
    if (n >= p->max_length)
        return tg_fail(e, TG_E_LIMIT,
                       "the prompt has %d tokens and the model's max-length is %d: prompt and "
                       "completion must fit; export again with a larger --max-length",
                       n, p->max_length);
    for (int32_t i = 0; i < n; i++)
        if (tokens[i] < 0 || tokens[i] >= p->n_embed_rows)
            return tg_fail(e, TG_E_ARGUMENT,
                           "token %d of the prompt is id %d; the model has ids 0 to %d", i,
                           tokens[i], p->n_embed_rows - 1);
    return TG_OK;
}

static tg_status fill_task(tg_task *t, const int32_t *tokens, int32_t n, const tg_task_options *o,
                           tg_err *e)
{
    const tg_program *p = t->program;
    size_t stop_bytes = (size_t)o->n_stop_ids * sizeof *tokens;
    t->tokens = TG_ARENA_ARRAY(&t->arena, int32_t, p->max_length);
    t->stop_ids = tg_arena_alloc(&t->arena, stop_bytes);
    if (!t->tokens || !t->stop_ids)
        return tg_fail_nomem(e, (size_t)p->max_length * sizeof *tokens, "a request's tokens");
    memcpy(t->tokens, tokens, (size_t)n * sizeof *tokens);
    if (stop_bytes) memcpy(t->stop_ids, o->stop_ids, stop_bytes);
    t->n_prompt = t->n_tokens = n;
    t->stats = (tg_task_stats){.n_prompt = n, .added_ns = tg_time_ns()};
    if (!tg_sample_needs_token_counts(&o->sampling)) return TG_OK;
    TG_TRY(tg_token_counts_init(&t->token_counts, &t->arena, p->max_length, e));
    for (int32_t i = 0; i < n; i++)
        tg_token_counts_add(&t->token_counts, tokens[i], false);
    return TG_OK;
}

tg_status tg_task_new(tg_task **out, const tg_program *p, const int32_t *tokens, int32_t n_tokens,
                      const tg_task_options *o, tg_err *e)
{
    *out = NULL;
    TG_TRY(check_prompt(p, tokens, n_tokens, e));
    TG_TRY(tg_sample_check(&o->sampling, e));
    if (o->max_tokens < 0)
        return tg_fail(e, TG_E_ARGUMENT, "max_tokens is %d; it must be 0 (no limit) or more",
                       o->max_tokens);
    tg_task *t = TG_NEW(tg_task);
    if (!t) return tg_fail_nomem(e, sizeof *t, "a request");
    t->program = p;
    t->row = -1;
    t->options = *o;
    tg_status status = fill_task(t, tokens, n_tokens, o, e);
    if (status != TG_OK) {
        tg_arena_deinit(&t->arena);
        tg_mem_free(t);
        return status;
    }
    *out = t;
    return TG_OK;
}

void tg_sched_add(tg_sched *s, tg_task *t)
{
    TG_ASSERT(t->state == NEW);
    tg_task **end = &s->tasks;
    while (*end)
        end = &(*end)->next;
    *end = t;
    t->sched = s;
    t->state = WAITING;
}

static void leave_row(tg_task *t)
{
    if (t->row < 0) return;
    row *r = &t->sched->rows[t->row];
    r->task = NULL;
    r->last_used = t->sched->n_steps;
    t->row = -1;
}

static void end_task(tg_task *t, tg_task_end end, const tg_err *e)
{
    if (t->state == DONE) return;
    leave_row(t);
    t->state = DONE;
    if (t->options.on_end) t->options.on_end(t->options.context, end, e);
}

void tg_task_free(tg_task *t)
{
    if (!t) return;
    leave_row(t);
    tg_task **at = t->sched ? &t->sched->tasks : NULL;
    while (at && *at != t)
        at = &(*at)->next;
    if (at) *at = t->next;
    tg_arena_deinit(&t->arena);
    tg_mem_free(t);
}

void tg_task_cancel(tg_task *t)
{
    t->is_cancelled = true;
}

tg_task_stats tg_task_get_stats(const tg_task *t)
{
    return t->stats;
}

/* ---- rows */

/* Cached positions of the row that the task can go on from; at least its last prompt token is
 * computed again, since its logits are needed. Short and long texts have different keys for the
 * same tokens. */
static int32_t count_reusable(const tg_sched *s, int32_t row_id, const tg_task *t)
{
    const row *r = &s->rows[row_id];
    int32_t n = 0, most = TG_MIN(r->n_cached, t->n_prompt - 1);
    if (r->is_long != tg_program_is_long(s->program, t->n_prompt)) return 0;
    while (n < most && r->tokens[n] == t->tokens[n])
        n++;
    return tg_kv_can_resume(tg_exec_kv(s->exec), row_id, n) ? n : 0;
}

static bool admit(tg_sched *s, tg_task *t)
{
    int32_t best = -1, best_n = -1;
    for (int32_t i = 0; i < s->program->batch; i++) {
        if (s->rows[i].task) continue;
        int32_t n = count_reusable(s, i, t);
        bool is_better =
            n > best_n || (n == best_n && s->rows[i].last_used < s->rows[best].last_used);
        if (best >= 0 && !is_better) continue;
        best = i;
        best_n = n;
    }
    if (best < 0) return false;
    row *r = &s->rows[best];
    tg_kv_trim(tg_exec_kv(s->exec), best, best_n);
    memcpy(r->tokens, t->tokens, (size_t)t->n_prompt * sizeof *t->tokens);
    r->n_cached = best_n;
    r->is_long = tg_program_is_long(s->program, t->n_prompt);
    r->task = t;
    t->row = best;
    t->state = PROMPT;
    t->stats.n_cached = best_n;
    return true;
}

static void admit_waiting(tg_sched *s)
{
    for (tg_task *t = s->tasks; t; t = t->next) {
        if (t->is_cancelled) end_task(t, TG_TASK_CANCELLED, NULL);
        if (t->state == WAITING && !admit(s, t)) return;
    }
}

tg_status tg_sched_clear_rows(tg_sched *s, int32_t n, tg_err *e)
{
    for (int32_t i = 0; i < n; i++)
        if (s->rows[i].task)
            return tg_fail(e, TG_E_BUSY, "a request is running; wait until the engine is idle");
    for (int32_t i = 0; i < n; i++) {
        tg_kv_trim(tg_exec_kv(s->exec), i, 0);
        s->rows[i].n_cached = 0;
    }
    return TG_OK;
}

/* ---- steps */

static void add_to_step(tg_sched *s, int32_t i, tg_task *t, int32_t n_tokens)
{
    row *r = &s->rows[t->row];
    bool is_last = r->n_cached + n_tokens == t->n_tokens;
    s->params[i] = t->options.sampling;
    s->params[i].position = t->n_tokens;
    s->params[i].adjust_at = 0;
    s->params[i].n_adjust = t->token_counts.n;
    s->step[i] = (tg_exec_row){
        .row = t->row,
        .tokens = t->tokens + r->n_cached,
        .n_tokens = n_tokens,
        .position = r->n_cached,
        .is_long = r->is_long,
        .n_outs = is_last,
        .params = &s->params[i],
        .adjust = t->token_counts.entries,
        .n_adjust = t->token_counts.n,
    };
    s->step_tasks[i] = t;
}

/* The next chunk of the oldest prompt, or of a text that became long. */
static int32_t plan_prompt(tg_sched *s)
{
    for (tg_task *t = s->tasks; t; t = t->next) {
        if (t->state != PROMPT) continue;
        int32_t left = t->n_tokens - s->rows[t->row].n_cached;
        add_to_step(s, 0, t, TG_MIN(left, tg_program_max_tokens(s->program, TG_KIND_CONTEXT)));
        return 1;
    }
    return 0;
}

static int32_t plan_decode(tg_sched *s)
{
    int32_t n = 0;
    for (tg_task *t = s->tasks; t; t = t->next)
        if (t->state == DECODE) add_to_step(s, n++, t, 1);
    return n;
}

static bool is_stop_id(const tg_task *t, int32_t id)
{
    for (int32_t i = 0; i < t->options.n_stop_ids; i++)
        if (t->stop_ids[i] == id) return true;
    return false;
}

static void fail_numeric(tg_task *t)
{
    tg_err e = {0};
    tg_fail(
        &e, TG_E_NUMERIC,
        "the logits after position %d are not finite: the model or its weights overflow float32",
        t->n_tokens - 1);
    end_task(t, TG_TASK_FAILED, &e);
}

/* With its last token the text became long: what the row holds is that of a short text, and is
 * computed again before the next token is drawn. */
static void restart_as_long(tg_task *t)
{
    row *r = &t->sched->rows[t->row];
    t->stats.n_recomputed = r->n_cached;
    tg_kv_trim(tg_exec_kv(t->sched->exec), t->row, 0);
    r->n_cached = 0;
    r->is_long = true;
    t->state = PROMPT;
}

static void take_token(tg_task *t, int32_t id)
{
    tg_sched *s = t->sched;
    t->state = DECODE;
    if (t->stats.first_token_ns == 0) t->stats.first_token_ns = tg_time_ns();
    if (id < 0) {
        fail_numeric(t);
        return;
    }
    if (is_stop_id(t, id)) {
        end_task(t, TG_TASK_STOPPED, NULL);
        return;
    }
    s->rows[t->row].tokens[t->n_tokens] = id;
    t->tokens[t->n_tokens++] = id;
    t->stats.n_completion++;
    if (t->token_counts.room) tg_token_counts_add(&t->token_counts, id, true);
    bool is_stopped = t->options.on_token && t->options.on_token(t->options.context, id);
    if (is_stopped)
        end_task(t, TG_TASK_STOPPED, NULL);
    else if (t->stats.n_completion == t->options.max_tokens ||
             t->n_tokens == s->program->max_length)
        end_task(t, TG_TASK_FULL, NULL);
    else if (!s->rows[t->row].is_long && tg_program_is_long(s->program, t->n_tokens))
        restart_as_long(t);
}

static void finish_step(tg_sched *s, int32_t n_rows, int64_t ns)
{
    int32_t out = 0;
    for (int32_t i = 0; i < n_rows; i++) {
        tg_task *t = s->step_tasks[i];
        *(t->stats.n_completion == 0 ? &t->stats.prompt_ns : &t->stats.completion_ns) += ns;
        s->rows[t->row].n_cached += s->step[i].n_tokens;
        if (s->step[i].n_outs > 0) take_token(t, tg_exec_get_id(s->exec, out++));
    }
}

tg_status tg_sched_step(tg_sched *s, bool *is_idle, tg_err *e)
{
    admit_waiting(s);
    for (tg_task *t = s->tasks; t; t = t->next)
        if (t->is_cancelled) end_task(t, TG_TASK_CANCELLED, NULL);

    tg_graph_kind kind = TG_KIND_CONTEXT;
    int32_t n_rows = s->was_prompt ? 0 : plan_prompt(s);
    if (n_rows == 0) {
        kind = TG_KIND_TOKEN;
        n_rows = plan_decode(s);
    }
    if (n_rows == 0) {
        kind = TG_KIND_CONTEXT;
        n_rows = plan_prompt(s);
    }
    *is_idle = n_rows == 0;
    if (n_rows == 0) return TG_OK;
    s->was_prompt = kind == TG_KIND_CONTEXT;
    s->n_steps++;

    int64_t start = tg_time_ns();
    tg_mem_lock_begin();
    tg_status status = tg_exec_step(s->exec, kind, s->step, n_rows, e);
    tg_mem_lock_end();
    if (status == TG_OK) {
        finish_step(s, n_rows, tg_time_ns() - start);
        return TG_OK;
    }
    /* The step as a whole failed: its tasks end with its error, the others go on. */
    tg_err none = {.status = status};
    for (int32_t i = 0; i < n_rows; i++)
        end_task(s->step_tasks[i], TG_TASK_FAILED, e ? e : &none);
    return status;
}
