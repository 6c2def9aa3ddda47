/* SPDX-License-Identifier: Apache-2.0 */
#include "coll/coll.h"

#include "base/mem.h"

#include <sched.h>
#include <stdatomic.h>
#include <string.h>

enum { LINE = 128, POLLS = 2000 };

typedef struct member {
    atomic_uint flag; /* meetings entered; written by its rank alone */
    char apart[LINE - sizeof(atomic_uint)];
} member;

struct tg_coll {
    int32_t n_ranks;
    int64_t max_floats;
    member *members; /* [n_ranks] */
    float *slots;    /* [n_ranks][max_floats]: what each rank brings */
};

tg_status tg_coll_new(tg_coll **out, int32_t n_ranks, int64_t max_floats, tg_err *e)
{
    *out = NULL;
    TG_ASSERT(n_ranks >= 1 && max_floats >= 0);
    tg_coll *c = TG_NEW(tg_coll);
    if (c) {
        c->n_ranks = n_ranks;
        c->max_floats = max_floats;
        c->members = TG_NEW_ARRAY(member, n_ranks);
        int64_t n;
        if (tg_mul_i64(n_ranks, max_floats, &n)) c->slots = TG_NEW_ARRAY(float, n);
    }
    if (!c || !c->members || !c->slots) {
        tg_coll_free(c);
        return tg_fail_nomem(e, (size_t)max_floats * sizeof(float), "the exchange buffer");
    }
    *out = c;
    return TG_OK;
}

void tg_coll_free(tg_coll *c)
{
    if (!c) return;
    tg_mem_free(c->slots);
    tg_mem_free(c->members);
    tg_mem_free(c);
}

int32_t tg_coll_n_ranks(const tg_coll *c)
{
    return c->n_ranks;
}

void tg_coll_barrier(tg_coll *c, int32_t rank)
{
    atomic_uint *mine = &c->members[rank].flag;
    uint32_t meeting = atomic_load_explicit(mine, memory_order_relaxed) + 1;
    atomic_store_explicit(mine, meeting, memory_order_release);
    for (int32_t i = 0; i < c->n_ranks; i++)
        for (int32_t n = 0;
             (int32_t)(atomic_load_explicit(&c->members[i].flag, memory_order_acquire) - meeting) <
             0;
             n++)
            if (n > POLLS) sched_yield();
}

static void bring(tg_coll *c, int32_t rank, const float *x, int64_t n)
{
    TG_ASSERT(n <= c->max_floats);
    if (n) memcpy(c->slots + rank * c->max_floats, x, (size_t)n * sizeof *x);
    tg_coll_barrier(c, rank);
}

void tg_coll_all_reduce(tg_coll *c, int32_t rank, float *x, int64_t n)
{
    bring(c, rank, x, n);
    for (int64_t i = 0; i < n; i++) {
        float sum = c->slots[i];
        for (int32_t r = 1; r < c->n_ranks; r++)
            sum += c->slots[r * c->max_floats + i];
        x[i] = sum;
    }
    tg_coll_barrier(c, rank); /* nobody brings anew while another still reads */
}

void tg_coll_all_gather(tg_coll *c, int32_t rank, float *y, const float *x, int64_t n)
{
    bring(c, rank, x, n);
    for (int32_t r = 0; r < c->n_ranks && n; r++)
        memcpy(y + r * n, c->slots + r * c->max_floats, (size_t)n * sizeof *y);
    tg_coll_barrier(c, rank);
}
