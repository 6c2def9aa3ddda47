/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include "base/os.h"
#include "check.h"
#include "device/team.h"

#include <time.h>

enum { MAX_THREADS = 5 };

typedef struct job {
    tg_team *team;
    int32_t n_threads, n_rounds;
    int32_t
        seen[MAX_THREADS]; /* rounds each thread has finished; read by the others after a barrier */
    int32_t n_wrong[MAX_THREADS];
} job;

/* After every barrier, all threads have done the same number of rounds. */
static void run_rounds(void *arg, int32_t thread)
{
    job *j = arg;
    for (int32_t i = 0; i < j->n_rounds; i++) {
        j->seen[thread]++;
        tg_team_barrier(j->team, thread);
        for (int32_t t = 0; t < j->n_threads; t++)
            j->n_wrong[thread] += j->seen[t] != j->seen[thread];
        tg_team_barrier(j->team, thread);
    }
}

static void every_thread_meets_at_every_barrier(void **state)
{
    (void)state;
    for (int32_t n = 1; n <= MAX_THREADS; n++) { /* more threads than processors, too */
        tg_err e = {0};
        job j = {.n_threads = n, .n_rounds = 50};
        assert_int_equal(tg_team_new(&j.team, n, &e), TG_OK);
        assert_int_equal(tg_team_n_threads(j.team), n);
        for (int32_t jobs = 1; jobs <= 20; jobs++) {
            tg_team_run(j.team, run_rounds, &j);
            for (int32_t t = 0; t < n; t++) {
                assert_int_equal(j.seen[t], jobs * j.n_rounds);
                assert_int_equal(j.n_wrong[t], 0);
            }
        }
        tg_team_free(j.team);
    }
}

static void a_team_that_fell_asleep_wakes_up(void **state)
{
    (void)state;
    job j = {.n_threads = 2, .n_rounds = 1};
    assert_int_equal(tg_team_new(&j.team, 2, NULL), TG_OK);
    for (int i = 1; i <= 5; i++) {
        struct timespec pause = {.tv_nsec = 10000000}; /* five times what it spins */
        nanosleep(&pause, NULL);
        tg_team_run(j.team, run_rounds, &j);
        assert_int_equal(j.seen[1], i);
    }
    tg_team_free(j.team);
}

static void an_idle_team_costs_no_processor_time(void **state)
{
    (void)state;
    job j = {.n_threads = 2, .n_rounds = 1};
    assert_int_equal(tg_team_new(&j.team, 2, NULL), TG_OK);
    tg_team_run(j.team, run_rounds, &j);
    struct timespec pause = {.tv_nsec = 200000000}, before, after;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
    nanosleep(&pause, NULL);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
    int64_t ns = (after.tv_sec - before.tv_sec) * 1000000000 + (after.tv_nsec - before.tv_nsec);
    assert_true(ns < 50000000); /* of 200 ms: it spins for 2 */
    tg_team_free(j.team);
}

static void impossible_counts_are_refused(void **state)
{
    (void)state;
    tg_team *t;
    tg_err e = {0};
    assert_int_equal(tg_team_new(&t, 0, &e), TG_E_ARGUMENT);
    assert_string_equal(e.msg, "0 threads are outside the range 1 to 1024");
    assert_int_equal(tg_team_new(&t, TG_MAX_CPUS + 1, NULL), TG_E_ARGUMENT);
    assert_null(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_meets_at_every_barrier),
        cmocka_unit_test(a_team_that_fell_asleep_wakes_up),
        cmocka_unit_test(an_idle_team_costs_no_processor_time),
        cmocka_unit_test(impossible_counts_are_refused),
    };
    return cmocka_run_group_tests_name("team", tests, NULL, NULL);
}
