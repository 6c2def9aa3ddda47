/* SPDX-License-Identifier: Apache-2.0
 * log.h - messages to the user on stderr.
 *
 * Warnings are always printed; notes about a topic only when TG_VERBOSE lists it ("dispatch,load")
 * or is "all". A library user may take the lines over with tg_log_set_sink. Thread-safe: a line is
 * one write. */
#ifndef TG_BASE_LOG_H
#define TG_BASE_LOG_H

#include "base/base.h"

typedef void tg_log_sink(void *context, const char *line);

/* NULL restores stderr. Set before threads start. */
void tg_log_set_sink(tg_log_sink *sink, void *context);

/* "trigraph: warning: ..." */
TG_PRINTF(1, 2) void tg_log_warn(const char *fmt, ...);

bool tg_log_is_on(const char *topic);
/* "trigraph: <topic>: ..." when the topic is on. */
TG_PRINTF(2, 3) void tg_log_note(const char *topic, const char *fmt, ...);

#endif
