/* SPDX-License-Identifier: Apache-2.0
 * str.h - borrowed strings, growing buffers, UTF-8, and names close to a name.
 *
 * A tg_str is a pointer and a length into somebody else's bytes; it may hold zeros and need not end
 * in one. A tg_buf owns its bytes and is sticky: when memory is refused it keeps what it had,
 * ignores what follows and reports once in tg_buf_check. */
#ifndef TG_BASE_STR_H
#define TG_BASE_STR_H

#include "base/err.h"

typedef struct tg_str {
    const char *ptr;
    size_t len;
} tg_str;

#define TG_STR(literal) ((tg_str){(literal), sizeof(literal) - 1})

tg_str tg_str_from_cstr(const char *s); /* NULL gives the empty string */
bool tg_str_is_equal(tg_str a, tg_str b);
bool tg_str_is(tg_str a, const char *cstr);
bool tg_str_has_prefix(tg_str s, tg_str prefix);
bool tg_str_has_suffix(tg_str s, tg_str suffix);
/* One line off the front of *text, without the "\n" or "\r\n" that ends it. */
tg_str tg_str_take_line(tg_str *text);

/* {0} is an empty buffer. `ptr` is NULL or ends in a zero that `len` does not count. */
typedef struct tg_buf {
    char *ptr;
    size_t len, size;
    bool is_failed;
} tg_buf;

void tg_buf_reserve(tg_buf *b, size_t n); /* room for n more bytes: an empty one has just that */
void tg_buf_add(tg_buf *b, const void *bytes, size_t n);
void tg_buf_add_str(tg_buf *b, tg_str s);
void tg_buf_add_cstr(tg_buf *b, const char *s);
void tg_buf_add_byte(tg_buf *b, char c);
void tg_buf_add_utf8(tg_buf *b, int32_t code_point);
TG_PRINTF(2, 3) void tg_buf_printf(tg_buf *b, const char *fmt, ...);
/* "243.6 MiB": for people. */
void tg_buf_add_size(tg_buf *b, int64_t n_bytes);
/* Text with control bytes and invalid UTF-8 as \n, \t, \xNN: safe on a terminal, in a message. */
void tg_buf_add_escaped(tg_buf *b, tg_str s);
/* The bytes so far; valid until the next change. "" when empty. */
const char *tg_buf_cstr(const tg_buf *b);
tg_str tg_buf_str(const tg_buf *b);
/* TG_E_NOMEM if any addition was refused. */
TG_MUST_USE tg_status tg_buf_check(const tg_buf *b, tg_err *e);
void tg_buf_clear(tg_buf *b); /* length 0, memory kept */
void tg_buf_deinit(tg_buf *b);

/* Decodes one code point of at most n bytes; returns how many bytes it took, 0 when they are not
 * well-formed UTF-8 (overlong, surrogate, beyond U+10FFFF, cut short, or n is 0). */
int tg_utf8_decode(const char *s, size_t n, int32_t *code_point);
int tg_utf8_encode(int32_t code_point, char out[4]); /* 0 for no code point */
/* Index of the first byte that is not part of a well-formed character; s.len when all are. */
size_t tg_utf8_find_invalid(tg_str s);

/* The name closest to `name` by edits, or NULL when none is close enough to be worth a hint. */
const char *tg_find_nearest_name(const char *name, const char *const *names, size_t n_names);

/* Whole-string numbers, no spaces, no locale; false when malformed or out of range. */
bool tg_parse_i64(const char *s, int64_t *out);
bool tg_parse_f64(const char *s, double *out);

#endif
