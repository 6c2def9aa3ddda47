/* SPDX-License-Identifier: Apache-2.0
 * report.c - JSON by appending.
 *
 * No document tree: what is printed is known in order, and a tree would be a second copy of
 * every list of ids. The comma before a member is decided by the byte before it, which is '{' or
 * '[' exactly when the member is the first of its object or list: keys and values never end in one
 * outside quotes. */
#include "app/report.h"

#include "base/json.h"

#include <inttypes.h>
#include <math.h>

static void add_key(tg_buf *b, const char *key)
{
    char last = b->len ? b->ptr[b->len - 1] : '\n'; /* of an object before this one */
    if (last != '{' && last != '[' && last != '\n') tg_buf_add_cstr(b, ", ");
    if (key) tg_buf_printf(b, "\"%s\": ", key);
}

void tg_report_begin(tg_buf *b, const char *key)
{
    add_key(b, key);
    tg_buf_add_byte(b, '{');
}

void tg_report_end(tg_buf *b)
{
    tg_buf_add_byte(b, '}');
}

void tg_report_begin_list(tg_buf *b, const char *key)
{
    add_key(b, key);
    tg_buf_add_byte(b, '[');
}

void tg_report_end_list(tg_buf *b)
{
    tg_buf_add_byte(b, ']');
}

void tg_report_add_text(tg_buf *b, const char *key, tg_str value)
{
    add_key(b, key);
    tg_json_add_quoted(b, value);
}

void tg_report_add_int(tg_buf *b, const char *key, int64_t value)
{
    add_key(b, key);
    tg_buf_printf(b, "%" PRId64, value);
}

/* Nine digits: more than any measurement here has, and what float32 needs to come back. */
void tg_report_add_real(tg_buf *b, const char *key, double value)
{
    add_key(b, key);
    if (isfinite(value))
        tg_buf_printf(b, "%.9g", value);
    else
        tg_buf_add_cstr(b, "null");
}

void tg_report_add_bool(tg_buf *b, const char *key, bool value)
{
    add_key(b, key);
    tg_buf_add_cstr(b, value ? "true" : "false");
}

void tg_report_add_ids(tg_buf *b, const char *key, const int32_t *ids, int32_t n_ids)
{
    add_key(b, key);
    tg_buf_add_byte(b, '[');
    for (int32_t i = 0; i < n_ids; i++)
        tg_buf_printf(b, "%s%" PRId32, i ? ", " : "", ids[i]);
    tg_buf_add_byte(b, ']');
}
