/* SPDX-License-Identifier: Apache-2.0
 * token_counts.h - checked parameters of a request and its table of past tokens.
 *
 * The draw itself is an operation of the graph (kernel.h, tg_sample_row). Here is the state it
 * needs from outside: the tokens of prompt and completion, sorted by id and updated token by token.
 */
#ifndef TG_RUN_TOKEN_COUNTS_H
#define TG_RUN_TOKEN_COUNTS_H

#include "base/mem.h"
#include "device/device.h"

/* Ranges of every field; the message names field, value and limits. */
TG_MUST_USE tg_status tg_sample_check(const tg_sample_params *p, tg_err *e);
/* Whether any penalty is on, so that past tokens matter. */
bool tg_sample_needs_token_counts(const tg_sample_params *p);

/* Tokens of one request, ids ascending. Memory for `room` distinct ids comes from the arena. */
typedef struct tg_token_counts {
    tg_sample_adjust *entries;
    int32_t n, room;
} tg_token_counts;

TG_MUST_USE tg_status tg_token_counts_init(tg_token_counts *s, tg_arena *a, int32_t room,
                                           tg_err *e);
/* Counts one more token. At most room distinct ids. */
void tg_token_counts_add(tg_token_counts *s, int32_t id, bool is_completion);

#endif
