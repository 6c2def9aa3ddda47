/* SPDX-License-Identifier: Apache-2.0
 * json.h - strict JSON over jansson.
 *
 * Parsing refuses duplicate keys, the character U+0000, trailing text, invalid UTF-8, NaN and
 * nesting beyond jansson's limit of 2,048 (an integer beyond 64 bits becomes a real number); the
 * message names the source, the line and the column. Objects keep the order of their keys. All of
 * jansson's memory goes through base/mem. */
#ifndef TG_BASE_JSON_H
#define TG_BASE_JSON_H

#include "base/str.h"

#include <jansson.h>

/* `name` is what messages call the text, usually a path. The caller owns *out (json_decref). */
TG_MUST_USE tg_status tg_json_parse(json_t **out, tg_str text, const char *name, tg_err *e);
/* The same for what a template will print: of a key that is there twice the last counts and a text
 * may hold U+0000, as Python reads JSON; an integer beyond 64 bits is an error, because it would
 * come out as another number. */
TG_MUST_USE tg_status tg_json_parse_exact(json_t **out, tg_str text, const char *name, tg_err *e);
/* Loads and parses a file of at most 1 GiB. */
TG_MUST_USE tg_status tg_json_load(json_t **out, const char *path, tg_err *e);

/* Appends `v` as JSON: indent 0 for one line, otherwise that many spaces a level. */
TG_MUST_USE tg_status tg_json_print(tg_buf *out, const json_t *v, int indent, tg_err *e);

/* Appends `s` as a quoted JSON string; bytes that are not UTF-8 become U+FFFD. */
void tg_json_add_quoted(tg_buf *out, tg_str s);

/* TG_E_ARGUMENT naming the first key of `object` that is not among `known`, and the nearest known
 * one. */
TG_MUST_USE tg_status tg_json_check_keys(const json_t *object, const char *name,
                                         const char *const *known, size_t n_known, tg_err *e);

/* Typed reads of object[key]. Absent or null: false and *out untouched, no error. Present with
 * another type: an error that names the key. */
TG_MUST_USE tg_status tg_json_get_i64(const json_t *object, const char *key, int64_t *out,
                                      bool *is_present, const char *name, tg_err *e);
TG_MUST_USE tg_status tg_json_get_f64(const json_t *object, const char *key, double *out,
                                      bool *is_present, const char *name, tg_err *e);
TG_MUST_USE tg_status tg_json_get_bool(const json_t *object, const char *key, bool *out,
                                       bool *is_present, const char *name, tg_err *e);
/* *out is borrowed from the object. */
TG_MUST_USE tg_status tg_json_get_str(const json_t *object, const char *key, tg_str *out,
                                      bool *is_present, const char *name, tg_err *e);

#endif
