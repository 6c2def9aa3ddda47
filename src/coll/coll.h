/* SPDX-License-Identifier: Apache-2.0
 * coll.h - ranks talking to each other.
 *
 * A rank is a tensor-parallel shard with its own weights and KV heads. A group of N ranks meets in
 * collectives, each called by every rank in the same order with equal sizes. Sums are taken in rank
 * order
 * 0, 1, ... N-1, so a result depends on the number of ranks and on nothing else. One rank is a
 * group too: every collective is then the identity.
 *
 * Ranks are threads of one process here; processes and hosts fill the same table (tg_coll_ops). */
#ifndef TG_COLL_COLL_H
#define TG_COLL_COLL_H

#include "base/err.h"

typedef struct tg_coll tg_coll;

/* A group of n_ranks threads over shared memory; each collective moves at most max_floats a
 * rank. */
TG_MUST_USE tg_status tg_coll_new(tg_coll **out, int32_t n_ranks, int64_t max_floats, tg_err *e);
void tg_coll_free(tg_coll *c); /* accepts NULL; after every rank has left */

int32_t tg_coll_n_ranks(const tg_coll *c);
/* All ranks have entered before any leaves. */
void tg_coll_barrier(tg_coll *c, int32_t rank);
/* x [n] becomes the sum over ranks, in rank order, on every rank. */
void tg_coll_all_reduce(tg_coll *c, int32_t rank, float *x, int64_t n);
/* y [n_ranks][n] receives every rank's x [n]. */
void tg_coll_all_gather(tg_coll *c, int32_t rank, float *y, const float *x, int64_t n);

#endif
