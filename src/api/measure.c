/* SPDX-License-Identifier: Apache-2.0
 * measure.c - an engine measured by itself: profiles, and steps of a chosen shape. */
#include "api/engine.h"
#include "base/os.h"

/* ---- profiles and rates */

tg_status tg_engine_begin_profile(tg_engine *g, tg_err *e)
{
    pthread_mutex_lock(&g->step_lock);
    tg_status s = tg_cpu_device_begin_profile(tg_exec_device(g->exec), e);
    pthread_mutex_unlock(&g->step_lock);
    return s;
}

void tg_engine_end_profile(tg_engine *g)
{
    pthread_mutex_lock(&g->step_lock);
    tg_cpu_device_end_profile(tg_exec_device(g->exec));
    pthread_mutex_unlock(&g->step_lock);
}

int32_t tg_engine_read_profile(tg_engine *g, tg_op_cost *costs, int32_t n_max)
{
    tg_cpu_cost rows[TG_MAX_COSTS];
    pthread_mutex_lock(&g->step_lock);
    int32_t n = tg_cpu_device_read_profile(tg_exec_device(g->exec), rows, TG_MAX_COSTS);
    pthread_mutex_unlock(&g->step_lock);
    TG_ASSERT(n <= TG_MAX_COSTS);
    for (int32_t i = 0; i < TG_MIN(n, n_max); i++) {
        const tg_cpu_cost *r = &rows[i];
        costs[i] = (tg_op_cost){
            .step = tg_kind_name((tg_graph_kind)r->kind),
            .op = tg_op_get((tg_op)r->op)->name,
            .weight = r->role == TG_NONE ? "" : tg_weight_role_name((tg_weight_role)r->role),
            .n_steps = r->n_steps,
            .n_tokens = r->n_tokens,
            .n_calls = r->n_calls,
            .seconds = (double)r->ns / 1e9,
            .n_bytes = (double)r->n_bytes,
            .n_products = (double)r->n_products,
        };
    }
    return n;
}

tg_peak_rates tg_engine_measure_rates(tg_engine *g, const void *memory, size_t n_bytes)
{
    pthread_mutex_lock(&g->step_lock);
    tg_cpu_rates r = tg_cpu_device_measure_rates(tg_exec_device(g->exec), memory, n_bytes);
    pthread_mutex_unlock(&g->step_lock);
    return (tg_peak_rates){r.read_bytes_per_s, r.products_per_s, r.round_trip_ns};
}

/* ---- steps of a chosen shape */

typedef struct trial {
    tg_engine *engine;
    const tg_step_trial *options;
    int32_t *tokens;          /* [rows][most tokens of a step] */
    tg_sample_params *params; /* greedy; as many as tokens */
    tg_exec_row *rows;
    tg_arena arena;
} trial;

/* Ids from all over the vocabulary, the same every time. (A multiplicative hash; any will do.) */
static int32_t make_id(const trial *t, int32_t row, int32_t position)
{
    uint64_t x = ((uint64_t)(row + 1) << 32 | (uint32_t)position) * 0x9e3779b97f4a7c15u;
    return (int32_t)((x >> 33) % (uint64_t)t->engine->model->artifact->program.n_vocab);
}

static int32_t most_tokens(const tg_step_trial *o)
{
    int32_t n = 1;
    for (int32_t i = 0; i < o->n_cases; i++)
        n = TG_MAX(n, o->n_tokens[i]);
    return n;
}

static tg_status check_trial(const tg_program *p, const tg_step_trial *o, tg_err *e)
{
    if (o->n_rows < 1 || o->n_rows > p->batch)
        return tg_fail(e, TG_E_LIMIT,
                       "%d rows at once are outside the range 1 to %d; export with a larger "
                       "--batch",
                       o->n_rows, p->batch);
    for (int32_t i = 0; i < o->n_cases; i++)
        if (o->n_tokens[i] < 1 || o->n_tokens[i] > p->speculation + 1)
            return tg_fail(e, TG_E_LIMIT,
                           "steps of %d tokens a row are outside the range 1 to %d; export with a "
                           "larger --speculation",
                           o->n_tokens[i], p->speculation + 1);
    if (o->depth < 0 || (int64_t)o->depth + most_tokens(o) > p->max_length)
        return tg_fail(e, TG_E_LIMIT,
                       "a step of %d tokens behind %d others does not fit into the model's "
                       "max-length of %d; export with a larger --max-length",
                       most_tokens(o), o->depth, p->max_length);
    return TG_OK;
}

/* Row r with n tokens from `position` on; all of them are output rows, or none. */
static void set_row(trial *t, int32_t r, int32_t position, int32_t n, bool is_output_row,
                    int32_t room)
{
    int32_t *tokens = t->tokens + (int64_t)r * room;
    for (int32_t i = 0; i < n; i++)
        tokens[i] = make_id(t, r, position + i);
    t->rows[r] = (tg_exec_row){
        .row = r,
        .tokens = tokens,
        .n_tokens = n,
        .position = position,
        .is_long = tg_program_is_long(&t->engine->model->artifact->program,
                                      t->options->depth + most_tokens(t->options)),
        .n_outs = is_output_row ? n : 0,
        .params = t->params,
    };
}

/* Every row reads its first `depth` tokens, as a prompt is read. */
static tg_status fill_rows(trial *t, int32_t room, tg_err *e)
{
    for (int32_t r = 0; r < t->options->n_rows; r++)
        for (int32_t at = 0; at < t->options->depth; at += room) {
            set_row(t, r, at, TG_MIN(room, t->options->depth - at), false, room);
            TG_TRY(tg_exec_step(t->engine->exec, TG_KIND_CONTEXT, &t->rows[r], 1, e));
        }
    return TG_OK;
}

/* One step. It writes behind `depth`, where the next one writes again: like drafts that were all
 * rejected. */
static tg_status time_step(trial *t, int32_t n_tokens, double *ms, tg_err *e)
{
    const tg_step_trial *o = t->options;
    for (int32_t r = 0; r < o->n_rows; r++)
        set_row(t, r, o->depth, n_tokens, true, n_tokens);
    int64_t start = tg_time_ns();
    tg_mem_lock_begin();
    tg_status s = tg_exec_step(t->engine->exec, n_tokens > 1 ? TG_KIND_SPECULATE : TG_KIND_TOKEN,
                               t->rows, o->n_rows, e);
    tg_mem_lock_end();
    *ms = (double)(tg_time_ns() - start) / 1e6;
    return s;
}

static tg_status run_trial(trial *t, double *ms, tg_err *e)
{
    const tg_step_trial *o = t->options;
    const tg_program *p = &t->engine->model->artifact->program;
    int32_t room = TG_MAX(tg_program_max_tokens(p, TG_KIND_CONTEXT), most_tokens(o));
    TG_TRY(check_trial(p, o, e));
    t->tokens = TG_ARENA_ARRAY(&t->arena, int32_t, (int64_t)o->n_rows * room);
    t->params = TG_ARENA_ARRAY(&t->arena, tg_sample_params, most_tokens(o));
    t->rows = TG_ARENA_ARRAY(&t->arena, tg_exec_row, o->n_rows);
    if (!t->tokens || !t->params || !t->rows)
        return tg_fail_nomem(e, (size_t)o->n_rows * (size_t)room * 4, "the rows of a trial");
    TG_TRY(tg_sched_clear_rows(t->engine->sched, o->n_rows, e));
    TG_TRY(fill_rows(t, room, e));
    for (int32_t i = 0; i < o->n_rounds * o->n_cases; i++)
        TG_TRY(time_step(t, o->n_tokens[i % o->n_cases], &ms[i], e));
    return TG_OK;
}

tg_status tg_engine_time_steps(tg_engine *g, const tg_step_trial *o, double *ms, tg_err *e)
{
    trial t = {.engine = g, .options = o};
    pthread_mutex_lock(&g->step_lock);
    tg_status s = run_trial(&t, ms, e);
    /* The rows hold made-up tokens that no request has: they begin empty again. */
    if (t.rows) (void)!tg_sched_clear_rows(g->sched, o->n_rows, NULL);
    pthread_mutex_unlock(&g->step_lock);
    tg_arena_deinit(&t.arena);
    return s;
}
