/* SPDX-License-Identifier: Apache-2.0
 * base.h - what the language lacks: attributes, assertions and checked arithmetic.
 *
 * The only place with compiler conditionals. Nothing here knows of files, memory or models. */
#ifndef TG_BASE_BASE_H
#define TG_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__FAST_MATH__) || (defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__)
#error "Trigraph's results depend on NaN and infinity: build without -ffast-math and -Ofast"
#endif

#define TG_MUST_USE     __attribute__((warn_unused_result))
#define TG_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define TG_INLINE       static inline __attribute__((always_inline))
#define TG_NOINLINE     __attribute__((noinline))
#define TG_LIKELY(x)    __builtin_expect(!!(x), 1)
#define TG_UNLIKELY(x)  __builtin_expect(!!(x), 0)
#define TG_COUNT(a)     (sizeof(a) / sizeof((a)[0]))
#define TG_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define TG_MAX(a, b)    ((a) > (b) ? (a) : (b))

/* Before the loops of a register tile: gcc would leave the outer ones, and what they shift by, to
 * run time, or keep the tile in memory before and after the loop it is for. clang does not, and
 * rejects the pragma where a loop has one turn. */
#ifdef __clang__
#define TG_UNROLL
#else
#define TG_UNROLL _Pragma("GCC unroll 16")
#endif

/* Our own mistakes only, in every build; never for a file, a request or a user. */
#define TG_ASSERT(cond) (TG_LIKELY(cond) ? (void)0 : tg_assert_fail(__FILE__, __LINE__, #cond))
_Noreturn void tg_assert_fail(const char *file, int line, const char *condition);

/* Rounds up to a multiple of `align`, a power of two. Must not wrap: sizes from files are checked
 * with the functions below first. */
static inline size_t tg_align_up(size_t n, size_t align)
{
    return (n + align - 1) & ~(align - 1);
}

static inline int64_t tg_div_up(int64_t n, int64_t by)
{
    return (n + by - 1) / by;
}

/* *out = a * b, a + b; false when the result does not fit, and then *out is unspecified. */
static inline bool tg_mul_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static inline bool tg_add_size(size_t a, size_t b, size_t *out)
{
    return !__builtin_add_overflow(a, b, out);
}

static inline bool tg_mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

#endif
