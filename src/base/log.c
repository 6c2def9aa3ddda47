/* SPDX-License-Identifier: Apache-2.0 */
#include "base/log.h"

#include "base/number.h"
#include "base/os.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* The one changing global beside base/mem: where lines go. Written before threads start. */
static tg_log_sink *sink;
static void *sink_context;

void tg_log_set_sink(tg_log_sink *s, void *context)
{
    sink = s;
    sink_context = context;
}

static void print_line(const char *head, const char *fmt, va_list ap)
{
    char line[1024];
    int n = snprintf(line, sizeof line - 1, "trigraph: %s: ", head);
    int m = tg_vprint(line + n, sizeof line - 1 - (size_t)n, fmt, ap);
    size_t len = m < 0 ? (size_t)n : TG_MIN((size_t)n + (size_t)m, sizeof line - 2);
    line[len] = 0;
    if (sink) {
        sink(sink_context, line);
        return;
    }
    line[len] = '\n';
    fwrite(line, 1, len + 1, stderr);
}

void tg_log_warn(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    print_line("warning", fmt, ap);
    va_end(ap);
}

bool tg_log_is_on(const char *topic)
{
    const char *list = tg_env_get(TG_ENV_VERBOSE);
    size_t n = strlen(topic);
    if (list && strcmp(list, "all") == 0) return true;
    while (list && *list) {
        size_t len = strcspn(list, ",");
        if (len == n && memcmp(list, topic, n) == 0) return true;
        list += len + (list[len] == ',');
    }
    return false;
}

void tg_log_note(const char *topic, const char *fmt, ...)
{
    if (!tg_log_is_on(topic)) return;
    va_list ap;
    va_start(ap, fmt);
    print_line(topic, fmt, ap);
    va_end(ap);
}
