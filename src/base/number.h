/* SPDX-License-Identifier: Apache-2.0
 * number.h - numbers as text and back, the same under every locale.
 *
 * A host program may call setlocale, and under a German one C's strtod stops at the point of "1.5"
 * and printf writes "1,5". These functions switch the calling thread, and no other, to the "C"
 * locale for as long as they run; the digits are the C library's, correctly rounded both ways.
 * They are the only door: tools/checks/check-layers refuses strtod, a printf of floating-point
 * numbers and the letter tests of <ctype.h> elsewhere in src/. */
#ifndef TG_BASE_NUMBER_H
#define TG_BASE_NUMBER_H

#include "base/base.h"

#include <stdarg.h>

/* snprintf and vsnprintf: what would have been written, at most size - 1 bytes of it and a zero
 * are. Negative for a format that cannot be printed. */
TG_PRINTF(3, 4) int tg_print(char *out, size_t size, const char *fmt, ...);
TG_PRINTF(3, 0) int tg_vprint(char *out, size_t size, const char *fmt, va_list ap);

/* strtod and strtof: *end, where it is not NULL, is what follows the number, and `s` itself where
 * there is none; errno is ERANGE for what is too large or too small. */
double tg_f64_parse(const char *s, char **end);
float tg_f32_parse(const char *s, char **end);

enum { TG_SHORTEST_BYTES = 32 };
/* Prints |x| as "d.ddde+XX" with the fewest digits that read back as the same number, and returns
 * how many those are; `x` is finite. */
int tg_f64_print_shortest(char out[TG_SHORTEST_BYTES], double x);

/* For a library that prints or reads numbers itself: what runs between these two on this thread
 * sees the "C" locale. They nest. */
typedef struct tg_locale_guard {
    void *outer;
} tg_locale_guard;
tg_locale_guard tg_locale_begin(void);
void tg_locale_end(tg_locale_guard g);

#endif
