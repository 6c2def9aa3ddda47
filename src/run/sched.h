/* SPDX-License-Identifier: Apache-2.0
 * sched.h - tasks sharing an executor: who gets a row, and what the next step computes.
 *
 * A task is one prompt and its completion. The scheduler has as many rows as the program's batch; a
 * waiting task takes the free row whose cached tokens share the longest prefix with it, so a
 * conversation that goes on finds its own past and a repeated prompt costs one token. Prompts are
 * read in chunks of the largest context bucket; while some rows read, others still get a token
 * every other step.
 *
 *      add            row free           prompt read           last token, stop, cancel, error
 *  NEW -----> WAITING ---------> PROMPT -------------> DECODE ------------------------------> DONE
 *
 *  WAITING owns nothing but its tokens. PROMPT and DECODE own a row. DONE has left its row, which
 *  keeps its pages until another task wants them.
 *
 *  Where rope tables depend on the length of a text (tg_program_is_long), the token that makes a
 *  text long leads back from DECODE to PROMPT, once: the row's pages are dropped, and prompt and
 *  completion so far are read again as a long text. Rows of long and of short texts run in the same
 *  steps, and neither reuses the other's pages.
 *
 * The tokens of a task depend on its own prompt, parameters and seed alone, never on its neighbors,
 * the row or the chunks. One thread at a time; nothing is allocated in a step. */
#ifndef TG_RUN_SCHED_H
#define TG_RUN_SCHED_H

#include "run/exec.h"
#include "run/token_counts.h"

typedef struct tg_sched tg_sched;
typedef struct tg_task tg_task;

typedef enum tg_task_end {
    TG_TASK_GOING,
    TG_TASK_STOPPED, /* a stop id, or the callback said so */
    TG_TASK_FULL,    /* max_tokens, or max_length */
    TG_TASK_CANCELLED,
    TG_TASK_FAILED /* its error tells why */
} tg_task_end;

typedef struct tg_task_options {
    tg_sample_params sampling; /* position and adjust fields are the scheduler's */
    int32_t max_tokens;        /* of the completion; 0: until the row is full */
    const int32_t
        *stop_ids; /* end the completion and are not part of it; borrowed until the task ends */
    int32_t n_stop_ids;
    /* A token was drawn (a stop id is not told). True ends the task as stopped. */
    bool (*on_token)(void *context, int32_t id);
    /* The task has ended. */
    void (*on_end)(void *context, tg_task_end end, const tg_err *e);
    void *context;
} tg_task_options;

/* Borrows the executor until free. */
TG_MUST_USE tg_status tg_sched_new(tg_sched **out, tg_exec *x, const tg_program *p, tg_err *e);
void tg_sched_free(tg_sched *s); /* accepts NULL; after its tasks */

/* A task that no scheduler has yet: needs no scheduler's thread. The prompt is copied. Refused: no
 * tokens, an id outside the embedding, a prompt that leaves no room for a token. */
TG_MUST_USE tg_status tg_task_new(tg_task **out, const tg_program *p, const int32_t *tokens,
                                  int32_t n_tokens, const tg_task_options *o, tg_err *e);
/* Accepts NULL; takes the task out of its scheduler and ends it without a word if it is going. */
void tg_task_free(tg_task *t);

/* Queues a new task, behind the others. */
void tg_sched_add(tg_sched *s, tg_task *t);
void tg_task_cancel(tg_task *t); /* at the next step */

typedef struct tg_task_stats {
    int32_t n_prompt, n_cached, n_completion;
    int32_t n_recomputed;             /* positions computed twice, as the text became a long one */
    int64_t added_ns, first_token_ns; /* monotonic clock; 0: not yet */
    int64_t prompt_ns, completion_ns; /* time of the steps it took part in */
} tg_task_stats;

tg_task_stats tg_task_get_stats(const tg_task *t);

/* Gives the caller the executor's first n rows for work of its own, empty: TG_E_BUSY while a task
 * has one of them. Their contents are forgotten. */
TG_MUST_USE tg_status tg_sched_clear_rows(tg_sched *s, int32_t n, tg_err *e);

/* One step. *is_idle when no task wants one. */
TG_MUST_USE tg_status tg_sched_step(tg_sched *s, bool *is_idle, tg_err *e);

#endif
