/* SPDX-License-Identifier: Apache-2.0
 * support.h - what the kernel cases share: guarded memory, hostile numbers, comparison to the bit.
 *
 * A case runs the kernel under test and the reference on equal inputs that end at an unmapped page,
 * into equal outputs that lie in a patterned buffer and end at one too, and compares the whole
 * buffers: what a kernel must not touch is compared like what it must write. */
#ifndef TG_TESTS_KERNELS_SUPPORT_H
#define TG_TESTS_KERNELS_SUPPORT_H

#include "check.h"
#include "kernel/kernel.h"

#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

typedef struct check {
    const tg_kernels *k;   /* under test */
    const tg_kernels *ref; /* the definition */
    uint64_t rng;
    char what[256]; /* the parameters being tried, for the report */
} check;

static sigjmp_buf check_escape; /* where a failed or crashed check goes */
static char check_message[512];

TG_PRINTF(1, 2) static _Noreturn void fail_check(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(check_message, sizeof check_message, fmt, args);
    va_end(args);
    siglongjmp(check_escape, 1000);
}

/* ---- memory: buffers that live for the program, reused by every case */

enum { BUFFER_BYTES = 4 << 20, N_BUFFERS = 16 };

/* n bytes at the end of buffer `which`, filled with a pattern, right before the unmapped page. */
static void *end_buffer(int which, size_t n)
{
    static char *buffers[N_BUFFERS];
    if (!buffers[which]) buffers[which] = tg_test_guarded(BUFFER_BYTES);
    if (n > BUFFER_BYTES) fail_check("a case wants %zu bytes of a test buffer", n);
    char *p = buffers[which] + BUFFER_BYTES - n;
    memset(p, 0xa5, n);
    return p;
}

/* ---- numbers */

static uint32_t next_u32(check *c)
{
    return (uint32_t)(tg_test_next(&c->rng) >> 32);
}

static int32_t next_below(check *c, int32_t n)
{
    return (int32_t)(next_u32(c) % (uint32_t)n);
}

static uint32_t float_bits(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static float float_from_bits(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/* About normal: the sum of four uniforms, standard deviation 1. */
static float next_normal(check *c)
{
    float s = 0;
    for (int i = 0; i < 4; i++)
        s += tg_test_uniform(&c->rng);
    return s * 0.8660254f;
}

/* How hostile the floats of a case are. */
typedef enum mood { CALM, WILD, POISONED, N_MOODS } mood;

/* CALM: normal. WILD: any exponent, denormals, zeros of both signs. POISONED: with infinities
 * and NaN. */
static void fill_floats(check *c, float *x, size_t n, mood how)
{
    static const float special[] = {0.0f,      -0.0f,           0x1p-149f,        -0x1p-149f,
                                    0x1p-126f, 0x1.fffffep127f, -0x1.fffffep127f, 1.0f,
                                    -1.0f,     0x1p-120f,       0x1p120f};
    for (size_t i = 0; i < n; i++) {
        x[i] = next_normal(c);
        if (how == CALM) continue;
        uint32_t dice = next_u32(c) % 64;
        if (dice < 4) x[i] = special[next_u32(c) % TG_COUNT(special)];
        if (dice >= 4 && dice < 16) x[i] = ldexpf(x[i], next_below(c, 60) - 30);
        if (how == POISONED && dice == 63)
            x[i] =
                (float[]){INFINITY, -INFINITY, NAN, float_from_bits(0x7f800123)}[next_u32(c) % 4];
    }
}

static bool is_same(float a, float b)
{
    return float_bits(a) == float_bits(b) || (isnan(a) && isnan(b));
}

/* ---- f16, by arithmetic that shares nothing with the kernels */

static double f16_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 0x3ff;
    double x = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -x : x;
}

/* A finite f16 of moderate size, rarely 0, denormal or large. */
static uint16_t next_scale(check *c)
{
    uint32_t r = next_u32(c), sign = r & 0x8000, dice = r >> 16 & 31;
    if (dice == 0) return (uint16_t)(sign | (r & 0x3ff));          /* denormal */
    if (dice == 1) return (uint16_t)(sign | 0x7800 | (r & 0x3ff)); /* about 2^15 */
    if (dice == 2) return (uint16_t)sign;
    return (uint16_t)(sign | (8 + (r >> 21) % 6) << 10 | (r & 0x3ff));
}

/* ---- comparison */

static void compare_floats(check *c, const char *array, const float *got, const float *want,
                           size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!is_same(got[i], want[i]))
            fail_check("%s: %s[%zu] is %a, should be %a", c->what, array, i, (double)got[i],
                       (double)want[i]);
}

static void compare_bytes(check *c, const char *array, const void *got, const void *want, size_t n)
{
    const uint8_t *a = got, *b = want;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i])
            fail_check("%s: byte %zu of %s is %d, should be %d", c->what, i, array, a[i], b[i]);
}

/* |got - want| <= bound, and finite where the bound is. */
static void compare_bound(check *c, const char *array, size_t i, double got, double want,
                          double bound)
{
    if (!(fabs(got - want) <= bound))
        fail_check("%s: %s[%zu] is %.9g, exact %.17g, off by %.3g, allowed %.3g", c->what, array, i,
                   got, want, fabs(got - want), bound);
}

/* ---- time */

static double get_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e9 * (double)t.tv_sec + (double)t.tv_nsec;
}

/* ---- which groups of an input take two planes */

typedef enum map_kind {
    MAP_NONE,
    MAP_ALL,
    MAP_FIRST,
    MAP_LAST, /* the group that columns may end in */
    MAP_ADJACENT,
    MAP_RANDOM,
    MAP_KIND_COUNT
} map_kind;

/* Draws a map into buffer `which`; *n_outliers are its outlier groups. */
static const int16_t *draw_map(check *c, int which, int64_t n_cols, map_kind kind,
                               int32_t *n_outliers)
{
    static int32_t list[4096];
    int32_t n = (int32_t)((n_cols + 31) / 32), at = n > 1 ? next_below(c, n - 1) : 0;
    int16_t *map = end_buffer(which, 2 * (size_t)tg_a8_n_groups(n_cols));
    *n_outliers = 0;
    for (int32_t g = 0; g < n; g++) {
        bool is_outlier = kind == MAP_ALL || (kind == MAP_FIRST && g == 0) ||
                          (kind == MAP_LAST && g == n - 1) ||
                          (kind == MAP_ADJACENT && (g == at || g == at + 1)) ||
                          (kind == MAP_RANDOM && next_below(c, 3) == 0);
        if (is_outlier) list[(*n_outliers)++] = g;
    }
    tg_a8_map(map, n_cols, list, *n_outliers);
    return map;
}

/* Draws what the matrices of a layout may want: any top that leaves them room, pairs or none. */
static tg_a8_kind draw_kind(check *c, const int16_t *map, int32_t n_outliers, tg_layout l)
{
    static const int32_t tops[] = {112, 120, 127};
    tg_a8_kind kind = {.outliers = map, .n_outliers = n_outliers, .has_pairs = next_below(c, 3)};
    do
        kind.top = tops[next_below(c, 3)];
    while (kind.top > tg_a8_top(l));
    return kind;
}

/* Column `col` of a row as the integer that contract 5 made of it. */
static int32_t get_code(const tg_a8 *row, int64_t col)
{
    int place = row->outliers ? row->outliers[col / 32] : -1;
    return place < 0 ? row->hi[col] : 256 * row->hi[col] + row->lo[32 * place + col % 32];
}

/* Multiplying by pairs in a group of a matrix whose codes are all 0: sums of (a[c + 4] +
 * top) (a[c] - rest), less the same sum where a is 0 too. None in outlier groups. */
static int32_t sum_pairs(const tg_a8 *row, int64_t g)
{
    int32_t sum = 0, rest = 128 - row->top;
    if (row->outliers && row->outliers[g] >= 0) return 0;
    for (int64_t c = 32 * g; c < 32 * g + 32; c++)
        if (c % 8 < 4) sum += (row->hi[c + 4] + row->top) * (row->hi[c] - rest) + row->top * rest;
    return sum;
}

#endif
