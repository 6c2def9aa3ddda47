/* SPDX-License-Identifier: Apache-2.0
 * report.h - the JSON objects that commands print, member by member, in the order written.
 *
 * Commas come by themselves. Text that is not UTF-8 gets U+FFFD, numbers that JSON lacks become
 * null, so that what is printed can always be read back. */
#ifndef TG_APP_REPORT_H
#define TG_APP_REPORT_H

#include "base/str.h"

/* `key` NULL: the outermost object. */
void tg_report_begin(tg_buf *b, const char *key);
void tg_report_end(tg_buf *b); /* the outermost end needs a newline of the caller's */
/* A list, in which objects begin with key NULL. */
void tg_report_begin_list(tg_buf *b, const char *key);
void tg_report_end_list(tg_buf *b);
void tg_report_add_text(tg_buf *b, const char *key, tg_str value);
void tg_report_add_int(tg_buf *b, const char *key, int64_t value);
void tg_report_add_real(tg_buf *b, const char *key, double value);
void tg_report_add_bool(tg_buf *b, const char *key, bool value);
void tg_report_add_ids(tg_buf *b, const char *key, const int32_t *ids, int32_t n_ids);

#endif
