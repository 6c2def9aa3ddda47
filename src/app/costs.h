/* SPDX-License-Identifier: Apache-2.0
 * costs.h - a profile (tg_op_cost of trigraph.h) as people and programs read it. */
#ifndef TG_APP_COSTS_H
#define TG_APP_COSTS_H

#include "base/str.h"
#include "trigraph.h"

/* The rows of one engine's profile, dearest first within a kind of step. */
typedef struct tg_costs {
    tg_op_cost rows[TG_MAX_COSTS];
    int32_t n;
} tg_costs;

/* Adds what the engine has counted since its profile began: of one kind of step, or with NULL of
 * all. */
void tg_costs_take(tg_costs *c, tg_engine *g, const char *step);

/* Appends a table per kind of step: share of the step, microseconds and calls of a step, and the
 * rates at which the operation read its bytes and made its products. */
void tg_costs_print(const tg_costs *c, tg_buf *out);
/* Appends the member "profile". */
void tg_costs_report(const tg_costs *c, tg_buf *out);

#endif
