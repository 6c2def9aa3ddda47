/* SPDX-License-Identifier: Apache-2.0
 * number.c - the one file that may ask the C library to print or read floating-point numbers.
 *
 * uselocale sets a pointer of the thread: a few nanoseconds beside the hundreds that printing a
 * number takes. In glibc and musl the "C" locale is a constant, so newlocale allocates nothing and
 * cannot fail; elsewhere a failure leaves the host's locale in place. */
#include "base/number.h"

#include <float.h>
#include <locale.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;
static locale_t c_locale;

static void open_c_locale(void)
{
    c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
}

tg_locale_guard tg_locale_begin(void)
{
    pthread_once(&once, open_c_locale);
    return (tg_locale_guard){uselocale(c_locale)};
}

void tg_locale_end(tg_locale_guard g)
{
    uselocale(g.outer);
}

int tg_vprint(char *out, size_t size, const char *fmt, va_list ap)
{
    tg_locale_guard g = tg_locale_begin();
    int n = vsnprintf(out, size, fmt, ap);
    tg_locale_end(g);
    return n;
}

int tg_print(char *out, size_t size, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = tg_vprint(out, size, fmt, ap);
    va_end(ap);
    return n;
}

double tg_f64_parse(const char *s, char **end)
{
    tg_locale_guard g = tg_locale_begin();
    double v = strtod(s, end);
    tg_locale_end(g);
    return v;
}

float tg_f32_parse(const char *s, char **end)
{
    tg_locale_guard g = tg_locale_begin();
    float v = strtof(s, end);
    tg_locale_end(g);
    return v;
}

/* Takes zeros off the end of the digits: "1.50e+00" becomes "1.5e+00", "1.0e+00" "1e+00". */
static int drop_zeros(char *text, int n_digits)
{
    char *mark = strchr(text, 'e'), *end = mark;
    for (; n_digits > 1 && end[-1] == '0'; n_digits--)
        end--;
    if (end[-1] == '.') end--;
    memmove(end, mark, strlen(mark) + 1);
    return n_digits;
}

/* A decimal of at most DBL_DIG digits survives the way into a normal double and back, so the
 * shortest one is what DBL_DIG digits show, less the zeros at its end. Subnormals hold fewer. */
int tg_f64_print_shortest(char out[TG_SHORTEST_BYTES], double x)
{
    enum { SURE_DIGITS = 17 }; /* every double reads back from so many */
    x = fabs(x);
    int n_digits = x < DBL_MIN ? 0 : DBL_DIG - 1;
    tg_locale_guard g = tg_locale_begin();
    do
        snprintf(out, TG_SHORTEST_BYTES, "%.*e", n_digits++, x);
    while (strtod(out, NULL) != x && n_digits < SURE_DIGITS);
    tg_locale_end(g);
    return n_digits == DBL_DIG ? drop_zeros(out, n_digits) : n_digits;
}
