/* SPDX-License-Identifier: Apache-2.0 */
#include "base/err.h"

#include "base/number.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

_Noreturn void tg_assert_fail(const char *file, int line, const char *condition)
{
    fprintf(stderr, "trigraph: internal error at %s:%d: %s\n", file, line, condition);
    abort();
}

static void mark_cut(char *msg, size_t size)
{
    memcpy(msg + size - 4, "...", 4);
}

tg_status tg_fail(tg_err *e, tg_status status, const char *fmt, ...)
{
    if (!e || e->status != TG_OK) return status;
    e->status = status;

    va_list ap;
    va_start(ap, fmt);
    int n = tg_vprint(e->msg, sizeof e->msg, fmt, ap);
    va_end(ap);
    if (n < 0) e->msg[0] = 0;
    if (n >= (int)sizeof e->msg) mark_cut(e->msg, sizeof e->msg);
    return status;
}

void tg_err_context(tg_err *e, const char *fmt, ...)
{
    if (!e || e->status == TG_OK) return;

    char words[sizeof e->msg], whole[2 * sizeof e->msg];
    va_list ap;
    va_start(ap, fmt);
    int n = tg_vprint(words, sizeof words, fmt, ap);
    va_end(ap);
    if (n < 0) return;
    n = tg_print(whole, sizeof whole, "%s: %s", words, e->msg);
    memcpy(e->msg, whole, sizeof e->msg - 1);
    e->msg[sizeof e->msg - 1] = 0;
    if (n >= (int)sizeof e->msg) mark_cut(e->msg, sizeof e->msg);
}

tg_status tg_fail_nomem(tg_err *e, size_t n_bytes, const char *what)
{
    return tg_fail(e, TG_E_NOMEM, "no memory for %zu bytes (%s)", n_bytes, what);
}

const char *tg_status_name(tg_status s)
{
    static const char *const names[] = {
        [TG_OK] = "ok",
        [TG_E_ARGUMENT] = "argument",
        [TG_E_IO] = "io",
        [TG_E_CORRUPT] = "corrupt",
        [TG_E_UNSUPPORTED] = "unsupported",
        [TG_E_NOMEM] = "nomem",
        [TG_E_LIMIT] = "limit",
        [TG_E_BUSY] = "busy",
        [TG_E_CANCELLED] = "cancelled",
        [TG_E_NUMERIC] = "numeric",
    };
    return (size_t)s < TG_COUNT(names) ? names[s] : "unknown";
}
