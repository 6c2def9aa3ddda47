/* SPDX-License-Identifier: Apache-2.0
 * team.h - the threads of one device: pinned, spinning, synchronized by barriers.
 *
 * Thread 0 is the caller's; the others belong to the team and are bound to processors of their own
 * when there are enough. A job runs on all threads at once. Inside a job threads wait at a barrier
 * of one padded flag each (a futex barrier costs 23 us here, this one 0.05-0.3 us); a waiter spins,
 * then gives its processor away, so that an overcommitted machine still moves. Between jobs the
 * team's threads spin for about 2 ms, then sleep until the next one. */
#ifndef TG_DEVICE_TEAM_H
#define TG_DEVICE_TEAM_H

#include "base/err.h"

typedef struct tg_team tg_team;

typedef void tg_team_fn(void *arg, int32_t thread);

/* Starts n_threads - 1 threads (n_threads from 1 to 1024). */
TG_MUST_USE tg_status tg_team_new(tg_team **out, int32_t n_threads, tg_err *e);
void tg_team_free(tg_team *t); /* accepts NULL */
int32_t tg_team_n_threads(const tg_team *t);

/* Runs fn(arg, thread) on every thread; returns when all are done. One caller at a time. */
void tg_team_run(tg_team *t, tg_team_fn *fn, void *arg);
/* No thread goes on before all threads of the running job are here. */
void tg_team_barrier(tg_team *t, int32_t thread);

#endif
