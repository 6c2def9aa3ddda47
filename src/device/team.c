/* SPDX-License-Identifier: Apache-2.0 */
#include "device/team.h"

#include "base/mem.h"
#include "base/os.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum {
    LINE = 128,             /* two cache lines: the prefetcher pulls neighbors along */
    POLLS_BARE = 64,        /* then with pause between polls */
    POLLS_SPIN = 2000,      /* about 50 us, then give the processor away */
    POLLS_CROWDED = 1,      /* more threads than processors: spinning only hurts the others */
    IDLE_SLEEP_NS = 2000000 /* between jobs: asleep after 2 ms */
};

typedef struct member {
    atomic_uint flag; /* barriers passed; written by this thread alone */
    char apart_from_next[LINE - sizeof(atomic_uint)];
    uint32_t n_passed;   /* the same, for the thread itself */
    int32_t thread, cpu; /* cpu -1: unpinned */
    tg_team *team;
    pthread_t id;
    char apart_from_others[LINE];
} member;

struct tg_team {
    int32_t n_threads, polls;
    member *members; /* [n_threads] */
    tg_team_fn *fn;  /* of the job; written before job_number is raised */
    void *arg;
    char apart_from_job[LINE];
    atomic_uint job_number;
    atomic_bool is_closing;
    /* Sleepers wait under this lock; n_asleep is read without it after job_number was raised. */
    atomic_int n_asleep;
    pthread_mutex_t lock;
    pthread_cond_t wake;
};

static void pause_cpu(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

/* Waits a little, longer with each poll of the same wait. */
static void relax(int32_t n_polls, int32_t limit)
{
    if (n_polls > limit)
        sched_yield();
    else if (n_polls > POLLS_BARE)
        pause_cpu();
}

void tg_team_barrier(tg_team *t, int32_t thread)
{
    member *me = &t->members[thread];
    uint32_t mine = ++me->n_passed;
    if (t->n_threads == 1) return;
    atomic_store_explicit(&me->flag, mine, memory_order_release);
    for (int32_t i = 0; i < t->n_threads; i++) {
        int32_t n_polls = 0;
        while ((int32_t)(atomic_load_explicit(&t->members[i].flag, memory_order_acquire) - mine) <
               0)
            relax(n_polls++, t->polls);
    }
}

static void sleep_until_job(tg_team *t, uint32_t seen)
{
    pthread_mutex_lock(&t->lock);
    atomic_fetch_add(&t->n_asleep, 1);
    while (atomic_load(&t->job_number) == seen)
        pthread_cond_wait(&t->wake, &t->lock);
    atomic_fetch_sub(&t->n_asleep, 1);
    pthread_mutex_unlock(&t->lock);
}

static void wait_for_job(tg_team *t, uint32_t seen)
{
    int64_t start = tg_time_ns();
    for (int32_t n_polls = 0; atomic_load_explicit(&t->job_number, memory_order_acquire) == seen;
         n_polls++) {
        relax(n_polls, t->polls);
        if (n_polls % 64 == 63 && tg_time_ns() - start > IDLE_SLEEP_NS) {
            sleep_until_job(t, seen);
            return;
        }
    }
}

static void *run_member(void *arg)
{
    member *me = arg;
    tg_team *t = me->team;
    if (me->cpu >= 0) (void)tg_thread_pin(me->cpu);
    for (uint32_t seen = 0;; seen++) {
        wait_for_job(t, seen);
        if (atomic_load(&t->is_closing)) return NULL;
        t->fn(t->arg, me->thread);
        tg_team_barrier(t, me->thread);
    }
}

static void announce_job(tg_team *t)
{
    atomic_fetch_add(&t->job_number, 1);
    if (atomic_load(&t->n_asleep) == 0) return;
    pthread_mutex_lock(&t->lock);
    pthread_cond_broadcast(&t->wake);
    pthread_mutex_unlock(&t->lock);
}

void tg_team_run(tg_team *t, tg_team_fn *fn, void *arg)
{
    t->fn = fn;
    t->arg = arg;
    if (t->n_threads > 1) announce_job(t);
    fn(arg, 0);
    tg_team_barrier(t, 0);
}

tg_status tg_team_new(tg_team **out, int32_t n_threads, tg_err *e)
{
    int32_t cpus[TG_MAX_CPUS];
    *out = NULL;
    if (n_threads < 1 || n_threads > TG_MAX_CPUS)
        return tg_fail(e, TG_E_ARGUMENT, "%d threads are outside the range 1 to %d", n_threads,
                       TG_MAX_CPUS);
    tg_team *t = TG_NEW(tg_team);
    member *members = TG_NEW_ARRAY(member, n_threads);
    if (!t || !members) {
        tg_mem_free(t);
        tg_mem_free(members);
        return tg_fail_nomem(e, sizeof *t, "the thread team");
    }
    int32_t n_cpus = tg_cpus_find(cpus, TG_MAX_CPUS);
    t->n_threads = 1; /* grows as threads start, so that a failure frees only those */
    t->members = members;
    t->polls = n_threads <= n_cpus ? POLLS_SPIN : POLLS_CROWDED;
    pthread_mutex_init(&t->lock, NULL);
    pthread_cond_init(&t->wake, NULL);
    for (int32_t i = 1; i < n_threads; i++) {
        members[i].team = t;
        members[i].thread = i;
        members[i].cpu = n_threads <= n_cpus ? cpus[i] : -1;
    }
    for (int32_t i = 1; i < n_threads; i++) {
        if (pthread_create(&members[i].id, NULL, run_member, &members[i]) != 0) {
            tg_team_free(t);
            return tg_fail(e, TG_E_IO, "the system refused thread %d of %d; ask for fewer threads",
                           i + 1, n_threads);
        }
        t->n_threads = i + 1;
    }
    *out = t;
    return TG_OK;
}

void tg_team_free(tg_team *t)
{
    if (!t) return;
    atomic_store(&t->is_closing, true);
    announce_job(t);
    for (int32_t i = 1; i < t->n_threads; i++)
        pthread_join(t->members[i].id, NULL);
    pthread_cond_destroy(&t->wake);
    pthread_mutex_destroy(&t->lock);
    tg_mem_free(t->members);
    tg_mem_free(t);
}

int32_t tg_team_n_threads(const tg_team *t)
{
    return t->n_threads;
}
