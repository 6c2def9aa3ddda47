/* SPDX-License-Identifier: Apache-2.0 */
#include "base/str.h"

#include "base/mem.h"
#include "base/number.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tg_str tg_str_from_cstr(const char *s)
{
    return (tg_str){s ? s : "", s ? strlen(s) : 0};
}

bool tg_str_is_equal(tg_str a, tg_str b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

bool tg_str_is(tg_str a, const char *cstr)
{
    return tg_str_is_equal(a, tg_str_from_cstr(cstr));
}

bool tg_str_has_prefix(tg_str s, tg_str prefix)
{
    return s.len >= prefix.len && tg_str_is_equal((tg_str){s.ptr, prefix.len}, prefix);
}

bool tg_str_has_suffix(tg_str s, tg_str suffix)
{
    if (suffix.len == 0) return true; /* an empty string may have no pointer to add to */
    return s.len >= suffix.len &&
           tg_str_is_equal((tg_str){s.ptr + (s.len - suffix.len), suffix.len}, suffix);
}

tg_str tg_str_take_line(tg_str *text)
{
    const char *end = text->len ? memchr(text->ptr, '\n', text->len) : NULL;
    tg_str line = {text->ptr, end ? (size_t)(end - text->ptr) : text->len};
    size_t used = line.len + (end != NULL);
    text->ptr += used;
    text->len -= used;
    if (line.len && line.ptr[line.len - 1] == '\r') line.len--;
    return line;
}

/* Room for n more bytes and the final zero. */
static bool reserve(tg_buf *b, size_t n)
{
    size_t need;
    if (b->is_failed) return false;
    if (!tg_add_size(b->len, n, &need) || !tg_add_size(need, 1, &need)) goto fail;
    if (need <= b->size) return true;
    size_t size = TG_MAX(need, b->size + b->size / 2 + 64);
    char *p = tg_mem_grow(b->ptr, b->len, size);
    if (!p) goto fail;
    p[b->len] = 0;
    b->ptr = p;
    b->size = size;
    return true;
fail:
    b->is_failed = true;
    return false;
}

void tg_buf_reserve(tg_buf *b, size_t n)
{
    (void)reserve(b, n);
}

void tg_buf_add(tg_buf *b, const void *bytes, size_t n)
{
    if (n == 0 || !reserve(b, n)) return;
    memcpy(b->ptr + b->len, bytes, n);
    b->len += n;
    b->ptr[b->len] = 0;
}

void tg_buf_add_str(tg_buf *b, tg_str s)
{
    tg_buf_add(b, s.ptr, s.len);
}

void tg_buf_add_cstr(tg_buf *b, const char *s)
{
    tg_buf_add(b, s, strlen(s));
}

void tg_buf_add_byte(tg_buf *b, char c)
{
    tg_buf_add(b, &c, 1);
}

void tg_buf_add_utf8(tg_buf *b, int32_t code_point)
{
    char bytes[4];
    tg_buf_add(b, bytes, (size_t)tg_utf8_encode(code_point, bytes));
}

void tg_buf_printf(tg_buf *b, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = tg_vprint(NULL, 0, fmt, ap);
    va_end(ap);
    if (n > 0 && reserve(b, (size_t)n)) {
        tg_vprint(b->ptr + b->len, (size_t)n + 1, fmt, again);
        b->len += (size_t)n;
    }
    va_end(again);
}

void tg_buf_add_size(tg_buf *b, int64_t n_bytes)
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double x = (double)n_bytes;
    size_t unit = 0;
    while (x >= 1024 && unit + 1 < TG_COUNT(units)) {
        x /= 1024;
        unit++;
    }
    tg_buf_printf(b, unit ? "%.1f %s" : "%.0f %s", x, units[unit]);
}

void tg_buf_add_escaped(tg_buf *b, tg_str s)
{
    for (size_t i = 0; i < s.len;) {
        int32_t cp;
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &cp);
        unsigned char c = (unsigned char)s.ptr[i];
        if (n == 0)
            tg_buf_printf(b, "\\x%02x", c);
        else if (cp == '\n')
            tg_buf_add_cstr(b, "\\n");
        else if (cp == '\t')
            tg_buf_add_cstr(b, "\\t");
        else if (cp < 0x20 || cp == 0x7f)
            tg_buf_printf(b, "\\x%02x", c);
        else if (cp >= 0x80 && cp < 0xa0) /* C1 controls: two bytes, both shown */
            tg_buf_printf(b, "\\x%02x\\x%02x", c, (unsigned char)s.ptr[i + 1]);
        else
            tg_buf_add(b, s.ptr + i, (size_t)n);
        i += n ? (size_t)n : 1;
    }
}

const char *tg_buf_cstr(const tg_buf *b)
{
    return b->ptr ? b->ptr : "";
}

tg_str tg_buf_str(const tg_buf *b)
{
    return (tg_str){tg_buf_cstr(b), b->len};
}

tg_status tg_buf_check(const tg_buf *b, tg_err *e)
{
    return b->is_failed ? tg_fail_nomem(e, b->size, "a text buffer") : TG_OK;
}

void tg_buf_clear(tg_buf *b)
{
    b->len = 0;
    b->is_failed = false;
    if (b->ptr) b->ptr[0] = 0;
}

void tg_buf_deinit(tg_buf *b)
{
    tg_mem_free(b->ptr);
    *b = (tg_buf){0};
}

int tg_utf8_decode(const char *s, size_t n, int32_t *code_point)
{
    const unsigned char *u = (const unsigned char *)s;
    if (n == 0) return 0;
    if (u[0] < 0x80) {
        *code_point = u[0];
        return 1;
    }
    int len = u[0] >= 0xf0 ? 4 : u[0] >= 0xe0 ? 3 : 2;
    static const int32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (u[0] < 0xc2 || u[0] > 0xf4 || (size_t)len > n) return 0;
    int32_t cp = u[0] & (0x7f >> len);
    for (int i = 1; i < len; i++) {
        if ((u[i] & 0xc0) != 0x80) return 0;
        cp = cp << 6 | (u[i] & 0x3f);
    }
    if (cp < least[len] || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return 0;
    *code_point = cp;
    return len;
}

int tg_utf8_encode(int32_t cp, char out[4])
{
    if (cp < 0 || cp > 0x10ffff || (cp >= 0xd800 && cp < 0xe000)) return 0;
    if (cp < 0x80) {
        out[0] = (char)cp;
        return 1;
    }
    int len = cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4;
    static const unsigned char lead[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = len - 1; i > 0; i--, cp >>= 6)
        out[i] = (char)(0x80 | (cp & 0x3f));
    out[0] = (char)(lead[len] | cp);
    return len;
}

size_t tg_utf8_find_invalid(tg_str s)
{
    size_t i = 0;
    while (i < s.len) {
        uint64_t eight; /* letters of ASCII at once: the top bit of none is set */
        if (s.len - i >= sizeof eight) {
            memcpy(&eight, s.ptr + i, sizeof eight);
            if ((eight & 0x8080808080808080u) == 0) {
                i += sizeof eight;
                continue;
            }
        }
        int32_t cp;
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &cp);
        if (n == 0) break;
        i += (size_t)n;
    }
    return i;
}

enum { NEAREST_MAX = 64 };

static char to_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 0x20) : c;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Levenshtein distance of two names of at most NEAREST_MAX bytes, case ignored. */
static int edit_distance(const char *a, size_t n, const char *b, size_t m)
{
    int row[NEAREST_MAX + 1];
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int up = row[j];
            int is_other = to_lower(a[i - 1]) != to_lower(b[j - 1]);
            row[j] = TG_MIN(TG_MIN(row[j - 1], up) + 1, diagonal + is_other);
            diagonal = up;
        }
    }
    return row[m];
}

const char *tg_find_nearest_name(const char *name, const char *const *names, size_t n_names)
{
    size_t n = strlen(name);
    const char *best = NULL;
    int best_distance = (int)(n / 2) + 1; /* more than half the name changed is no hint */
    for (size_t i = 0; n <= NEAREST_MAX && i < n_names; i++) {
        size_t m = strlen(names[i]);
        if (m > NEAREST_MAX) continue;
        int d = edit_distance(name, n, names[i], m);
        if (d < best_distance) {
            best_distance = d;
            best = names[i];
        }
    }
    return best;
}

bool tg_parse_i64(const char *s, int64_t *out)
{
    char *end;
    if (!is_digit(s[s[0] == '-'])) return false;
    errno = 0;
    long long v = strtoll(s, &end, 10);
    if (errno || *end) return false;
    *out = v;
    return true;
}

bool tg_parse_f64(const char *s, double *out)
{
    char *end;
    if (s[0] == 0 || s[0] == ' ' || (s[0] >= '\t' && s[0] <= '\r')) return false;
    errno = 0;
    double v = tg_f64_parse(s, &end);
    if (errno == ERANGE || *end) return false;
    *out = v;
    return true;
}
