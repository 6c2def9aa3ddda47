/* SPDX-License-Identifier: Apache-2.0
 * completion.h - a prompt on its way to a completion: the template, the sampling, the running, the
 * times.
 *
 * Shared by generate and chat. */
#ifndef TG_APP_COMPLETION_H
#define TG_APP_COMPLETION_H

#include "app/session.h"
#include "app/term.h"

/* Appends {"role": ..., "content": ...} to a list of messages that tg_prompt_render closes. */
void tg_prompt_add_message(tg_buf *messages, const char *role, tg_str content);
/* The chat template over the list, as the options want it, and its ids: special tokens the template
 * wrote are read as such, and none are added, since it wrote the first one too. *out is the
 * caller's. */
TG_MUST_USE tg_status tg_prompt_render(tg_tokens *out, const tg_session *s, const tg_args *a,
                                       const tg_buf *messages, tg_err *e);

/* The sampling of the options over the model's own recommendation. Says on standard error what
 * the model recommends when that is used. */
tg_sampling tg_sampling_choose(const tg_session *s, const tg_args *a);

/* Everything the options say of a request but the callback. */
tg_request_options tg_completion_options(const tg_session *s, const tg_args *a);

typedef struct tg_completion {
    tg_term *out; /* where text is printed as it comes; NULL: nowhere */
    tg_buf text;
    tg_request *request;
    tg_request_stats stats;
} tg_completion;

/* Runs a request to its end on this thread. A signal or a closed output ends it early, which is no
 * failure: stats.finish says so. */
TG_MUST_USE tg_status tg_completion_run(tg_completion *x, tg_session *s, const int32_t *ids,
                                        int32_t n_ids, tg_request_options *o, tg_err *e);
void tg_completion_deinit(tg_completion *x);

/* Tokens per second of the prompt's steps and of the steps after the first id; NaN where there was
 * no such step. */
double tg_completion_prompt_speed(const tg_request_stats *s);
double tg_completion_decode_speed(const tg_request_stats *s);
/* A line about it on standard error. */
void tg_completion_say_stats(const tg_session *s, const tg_request_stats *stats);

#endif
