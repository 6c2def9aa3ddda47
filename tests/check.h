/* SPDX-License-Identifier: Apache-2.0
 * check.h - what every test shares: cmocka with its includes, a seeded generator, guard pages.
 *
 * A test that uses random data takes its seed from tg_test_seed() (TG_SEED in the environment, else
 * fixed) and prints it when it fails. One that is exhaustive runs a part of its cases, the same
 * each time, where TG_SAMPLE is set: that is `./check`, and `./check --all` runs them all. */
#ifndef TG_TESTS_CHECK_H
#define TG_TESTS_CHECK_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
/* cmocka wants the four above first. */
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static inline uint64_t tg_test_seed(void)
{
    const char *s = getenv("TG_SEED");
    return s ? strtoull(s, NULL, 0) : 0x7216a9f3u;
}

static inline bool tg_test_is_sampled(void)
{
    return getenv("TG_SAMPLE") != NULL;
}

/* splitmix64: one state word, good enough to shake code with. */
static inline uint64_t tg_test_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* Uniform in [-1, 1). */
static inline float tg_test_uniform(uint64_t *state)
{
    return (float)((double)(tg_test_next(state) >> 11) * 0x1p-52 - 1.0);
}

/* n bytes that end exactly where an unmapped page begins; freed by the end of the program. */
static inline void *tg_test_guarded(size_t n)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE), whole = (n + page - 1) / page * page + page;
    char *p = mmap(NULL, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    assert_int_equal(mprotect(p + whole - page, page, PROT_NONE), 0);
    return p + whole - page - n;
}

#endif
