/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "check.h"
#include "coll/coll.h"

#include <pthread.h>

enum { RANKS = 4, FLOATS = 300, ROUNDS = 200 };

typedef struct member {
    tg_coll *coll;
    int32_t rank;
    int n_wrong;
} member;

/* Values whose float sum depends on the order: the sum in rank order is computed by hand beside
 * it. */
static float value(int round, int32_t rank, int i)
{
    static const float scale[RANKS] = {1e8f, 1.0f, -1e8f, 0.25f};
    return scale[rank] * (1.0f + (float)((round + i) % 7));
}

static void *run_rank(void *arg)
{
    member *m = arg;
    float x[FLOATS], all[RANKS * FLOATS];
    for (int round = 0; round < ROUNDS; round++) {
        int n = round % 3 == 0 ? 0 : round % 3 == 1 ? 1 : FLOATS;
        for (int i = 0; i < n; i++)
            x[i] = value(round, m->rank, i);
        tg_coll_all_gather(m->coll, m->rank, all, x, n);
        tg_coll_all_reduce(m->coll, m->rank, x, n);
        for (int i = 0; i < n; i++) {
            float sum = value(round, 0, i);
            for (int32_t r = 1; r < RANKS; r++)
                sum += value(round, r, i);
            m->n_wrong += x[i] != sum;
            for (int32_t r = 0; r < RANKS; r++)
                m->n_wrong += all[r * n + i] != value(round, r, i);
        }
    }
    return NULL;
}

static void sums_are_taken_in_rank_order_on_every_rank(void **state)
{
    (void)state;
    tg_coll *c;
    tg_err e = {0};
    member members[RANKS];
    pthread_t threads[RANKS];
    assert_int_equal(tg_coll_new(&c, RANKS, FLOATS, &e), TG_OK);
    assert_int_equal(tg_coll_n_ranks(c), RANKS);
    for (int32_t r = 0; r < RANKS; r++) {
        members[r] = (member){c, r, 0};
        assert_int_equal(pthread_create(&threads[r], NULL, run_rank, &members[r]), 0);
    }
    for (int32_t r = 0; r < RANKS; r++) {
        pthread_join(threads[r], NULL);
        assert_int_equal(members[r].n_wrong, 0);
    }
    tg_coll_free(c);
}

static void one_rank_keeps_its_values(void **state)
{
    (void)state;
    tg_coll *c;
    float x[2] = {1, 2}, y[2];
    assert_int_equal(tg_coll_new(&c, 1, 2, NULL), TG_OK);
    tg_coll_all_reduce(c, 0, x, 2);
    tg_coll_all_gather(c, 0, y, x, 2);
    assert_true(x[0] == 1 && x[1] == 2 && y[0] == 1 && y[1] == 2);
    tg_coll_free(c);
}

static void refused_memory_is_an_error(void **state)
{
    (void)state;
    tg_coll *c;
    for (int n = 0; n < 3; n++) {
        tg_err e = {0};
        tg_mem_fail_after(n);
        assert_int_equal(tg_coll_new(&c, 2, 8, &e), TG_E_NOMEM);
        tg_mem_fail_after(-1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_are_taken_in_rank_order_on_every_rank),
        cmocka_unit_test(one_rank_keeps_its_values),
        cmocka_unit_test(refused_memory_is_an_error),
    };
    return cmocka_run_group_tests_name("coll", tests, NULL, NULL);
}
