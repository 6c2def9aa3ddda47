/* SPDX-License-Identifier: Apache-2.0
 * rates.c - reading, multiplying, and passing a cache line back and forth.
 *
 * Every thread does its part between two barriers, and the time is thread 0's: what the slowest
 * needs, as in a step. */
#include "device/rates.h"

#include "base/os.h"

#include <sched.h>
#include <stdatomic.h>

enum {
    LINE = 128,
    UNIT_BYTES = 512,         /* what sum_words takes at a time */
    READ_NS = 25000000,       /* at least, and three times over */
    PRODUCT_ROUNDS = 4000000, /* about 15 ms of 64-byte dots, one a cycle */
    ROUND_TRIPS = 1000, /* of a batch; the quickest of BATCHES counts: the others were disturbed */
    BATCHES = 20,
    POLLS = 1000 /* then the other thread may be waiting for this processor */
};

typedef struct job {
    tg_team *team;
    const tg_kernels *kernels;
    const char *memory;
    size_t n_bytes;
    int32_t n_passes; /* of reading */
    int64_t ns;
    atomic_uint_fast64_t ignored; /* results go here, so that they are results */
    char apart[LINE];
    atomic_uint ping;
    char apart_too[LINE];
    atomic_uint pong;
} job;

static void read_part(void *arg, int32_t thread)
{
    job *j = arg;
    int64_t n_units = (int64_t)(j->n_bytes / UNIT_BYTES), n = tg_team_n_threads(j->team);
    int64_t begin = n_units * thread / n, end = n_units * (thread + 1) / n;
    const uint64_t *p = (const uint64_t *)(const void *)(j->memory + begin * UNIT_BYTES);
    uint64_t sum = 0;
    tg_team_barrier(j->team, thread);
    int64_t start = tg_time_ns();
    for (int32_t i = 0; i < j->n_passes; i++)
        sum += j->kernels->sum_words(p, (end - begin) * (UNIT_BYTES / 8));
    tg_team_barrier(j->team, thread);
    if (thread == 0) j->ns = tg_time_ns() - start;
    atomic_fetch_add(&j->ignored, sum);
}

static void multiply(void *arg, int32_t thread)
{
    job *j = arg;
    uint8_t u[TG_PEAK_BYTES];
    int8_t s[64];
    for (int32_t i = 0; i < TG_PEAK_BYTES; i++)
        u[i] = (uint8_t)(i * 7 % 16);
    for (int32_t i = 0; i < 64; i++)
        s[i] = (int8_t)(i * 37 % 256 - 128);
    tg_team_barrier(j->team, thread);
    int64_t start = tg_time_ns();
    uint32_t sum = j->kernels->sum_products(u, s, j->n_passes);
    tg_team_barrier(j->team, thread);
    if (thread == 0) j->ns = tg_time_ns() - start;
    atomic_fetch_add(&j->ignored, sum);
}

/* Threads 0 and 1; the others wait at the barrier. */
static void play(void *arg, int32_t thread)
{
    job *j = arg;
    tg_team_barrier(j->team, thread);
    int64_t start = tg_time_ns();
    for (uint32_t i = 1; i <= BATCHES * ROUND_TRIPS && thread < 2; i++) {
        if (thread == 0) atomic_store_explicit(&j->ping, i, memory_order_release);
        atomic_uint *theirs = thread == 0 ? &j->pong : &j->ping;
        for (int32_t n = 0; atomic_load_explicit(theirs, memory_order_acquire) != i; n++)
            if (n > POLLS) sched_yield();
        if (thread == 1) atomic_store_explicit(&j->pong, i, memory_order_release);
        if (thread == 1 || i % ROUND_TRIPS != 0) continue;
        int64_t now = tg_time_ns();
        j->ns = i == ROUND_TRIPS ? now - start : TG_MIN(j->ns, now - start);
        start = now;
    }
}

/* As many passes as take READ_NS by what one took, which also brought the bytes as near as they
 * come. */
static double measure_reads(job *j)
{
    j->n_passes = 1;
    tg_team_run(j->team, read_part, j);
    tg_team_run(j->team, read_part, j);
    j->n_passes = (int32_t)TG_MIN(3 + READ_NS / TG_MAX(j->ns, 1), 100000);
    tg_team_run(j->team, read_part, j);
    return (double)(j->n_bytes / UNIT_BYTES * UNIT_BYTES) * j->n_passes / ((double)j->ns / 1e9);
}

/* The slowest tier gets a hundredth of the rounds: it takes a second for what others do in 15
 * ms. */
static double measure_products(job *j, bool is_ref)
{
    int32_t n_threads = tg_team_n_threads(j->team);
    j->n_passes = is_ref ? PRODUCT_ROUNDS / 100 : PRODUCT_ROUNDS;
    tg_team_run(j->team, multiply, j);
    return (double)TG_PEAK_BYTES * j->n_passes * n_threads / ((double)j->ns / 1e9);
}

void tg_rates_measure(tg_cpu_rates *out, tg_team *team, const tg_kernels *k, const void *memory,
                      size_t n_bytes)
{
    job j = {.team = team, .kernels = k, .memory = memory, .n_bytes = n_bytes};
    tg_kernels ref = {0};
    tg_kernels_fill_ref(&ref);
    *out =
        (tg_cpu_rates){.read_bytes_per_s = measure_reads(&j),
                       .products_per_s = measure_products(&j, k->sum_products == ref.sum_products)};
    if (tg_team_n_threads(team) < 2) return;
    tg_team_run(team, play, &j);
    out->round_trip_ns = (double)j.ns / ROUND_TRIPS;
}
