/* SPDX-License-Identifier: Apache-2.0
 * err.h - making and passing on errors.
 *
 * The place that knows writes the message; the way up puts words in front ("model.gguf: tensor
 * 'x' starts at ..."), never behind, never instead. The first failure wins: failing an error that
 * is already set changes nothing, so cleanup and parallel ranks cannot bury the cause. */
#ifndef TG_BASE_ERR_H
#define TG_BASE_ERR_H

#include "base/base.h"
#include "trigraph_status.h"

/* Sets *e unless it is NULL or already set; returns `status`, so that a caller can return it.
 * A message longer than the buffer ends in "...". */
TG_PRINTF(3, 4) tg_status tg_fail(tg_err *e, tg_status status, const char *fmt, ...);

/* Puts "<words>: " in front of the message of a set error. */
TG_PRINTF(2, 3) void tg_err_context(tg_err *e, const char *fmt, ...);

/* "No memory for 12345 bytes (tensor list)." in one form everywhere. */
tg_status tg_fail_nomem(tg_err *e, size_t n_bytes, const char *what);

/* The short name of a status ("corrupt"), for logs and JSON. */
const char *tg_status_name(tg_status s);

/* The one macro that returns: for functions with nothing to undo. */
#define TG_TRY(x)                                                                                  \
    do {                                                                                           \
        tg_status tg_try_s = (x);                                                                  \
        if (tg_try_s != TG_OK) return tg_try_s;                                                    \
    } while (0)

#endif
