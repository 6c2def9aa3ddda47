/* SPDX-License-Identifier: Apache-2.0
 * jinja_lex.c - template source to tokens, with Jinja's whitespace rules.
 *
 * Two states: text, and inside a tag. trim_blocks drops one newline after a block or comment tag
 * (never after {{ }}); lstrip_blocks drops blanks between the start of a line and a block or
 * comment tag; a '-' drops all white space on its side, Unicode's too; a '+' switches both off.
 * The rules are those of jinja2's regular expressions (lexer.py), followed case by case because
 * models have been trained on their corner cases. */
#include "base/err.h"
#include "jinja/jinja.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

typedef struct lexer {
    tg_jtoks *out;
    tg_arena *arena;
    tg_str src;
    size_t pos;
    bool is_line_start; /* the piece before this one ended in a newline, or there is none */
    tg_err *e;
} lexer;

tg_status tg_jfail_at(tg_err *e, tg_status s, tg_str source, int32_t pos, const char *fmt, ...)
{
    char words[sizeof e->msg];
    int line = 1, column = 1;
    for (int32_t i = 0; i < pos && (size_t)i < source.len; i++) {
        unsigned char c = (unsigned char)source.ptr[i];
        if (c == '\n') {
            line++;
            column = 1;
        } else if ((c & 0xc0) != 0x80) {
            column++;
        }
    }
    va_list ap;
    va_start(ap, fmt);
    if (tg_vprint(words, sizeof words, fmt, ap) < 0) words[0] = 0;
    va_end(ap);
    return tg_fail(e, s, "template line %d, column %d: %s", line, column, words);
}

static tg_status fail(lexer *x, size_t pos, const char *words)
{
    return tg_jfail_at(x->e, TG_E_CORRUPT, x->src, (int32_t)pos, "%s", words);
}

static tg_status add(lexer *x, tg_jtok_kind kind, size_t pos, tg_str text)
{
    tg_jtoks *t = x->out;
    if (t->n == t->size) {
        int32_t size = t->size ? t->size * 2 : 64;
        tg_jtok *items = TG_ARENA_ARRAY(&t->arena, tg_jtok, size);
        if (!items) return tg_fail_nomem(x->e, (size_t)size * sizeof *items, "template tokens");
        if (t->n) memcpy(items, t->items, (size_t)t->n * sizeof *items);
        t->items = items;
        t->size = size;
    }
    t->items[t->n++] = (tg_jtok){.kind = kind, .pos = (int32_t)pos, .text = text};
    return TG_OK;
}

/* ---- white space */

bool tg_jchar_is_space(int32_t c)
{
    return (c >= 9 && c <= 13) || (c >= 0x1c && c <= 0x20) || c == 0x85 || c == 0xa0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 || c == 0x2029 ||
           c == 0x202f || c == 0x205f || c == 0x3000;
}

/* Bytes of the white space character at s[i], or 0. */
static int space_at(tg_str s, size_t i)
{
    int32_t c;
    int n = tg_utf8_decode(s.ptr + i, s.len - i, &c);
    return n && tg_jchar_is_space(c) ? n : 0;
}

static size_t skip_space(tg_str s, size_t i)
{
    for (int n; i < s.len && (n = space_at(s, i)) > 0;)
        i += (size_t)n;
    return i;
}

static size_t strip_right(tg_str s)
{
    size_t end = s.len;
    while (end > 0) {
        size_t i = end - 1;
        while (i > 0 && ((unsigned char)s.ptr[i] & 0xc0) == 0x80)
            i--;
        if (!space_at((tg_str){s.ptr, end}, i)) break;
        end = i;
    }
    return end;
}

static bool is_at(tg_str s, size_t i, const char *what)
{
    size_t n = strlen(what);
    return i + n <= s.len && memcmp(s.ptr + i, what, n) == 0;
}

/* ---- text between tags */

/* Adds text that stands before a tag whose sign is '-', '+' or 0. */
static tg_status add_text(lexer *x, size_t from, size_t to, char sign, bool is_block)
{
    tg_str text = {x->src.ptr + from, to - from};
    if (sign == '-') {
        text.len = strip_right(text);
    } else if (sign != '+' && is_block) {
        size_t line = text.len;
        while (line > 0 && text.ptr[line - 1] != '\n')
            line--;
        if ((line > 0 || x->is_line_start) && line < text.len && skip_space(text, line) == text.len)
            text.len = line;
    }
    return text.len ? add(x, TG_JT_DATA, from, text) : TG_OK;
}

/* The sign right after an opening tag. */
static char sign_at(tg_str s, size_t i)
{
    return i < s.len && (s.ptr[i] == '-' || s.ptr[i] == '+') ? s.ptr[i] : 0;
}

/* The end of a block or comment tag at i: "+%}", "-%}" and white space, "%}" and one newline.
 * Returns the position behind it, or 0 when there is no end here. */
static size_t end_tag_at(tg_str s, size_t i, const char *close)
{
    if (is_at(s, i, close)) return i + 2 + (is_at(s, i + 2, "\n") ? 1 : 0);
    if (i < s.len && s.ptr[i] == '+' && is_at(s, i + 1, close)) return i + 3;
    if (i < s.len && s.ptr[i] == '-' && is_at(s, i + 1, close)) return skip_space(s, i + 3);
    return 0;
}

static void move_to(lexer *x, size_t pos)
{
    x->is_line_start = pos > 0 && x->src.ptr[pos - 1] == '\n';
    x->pos = pos;
}

static tg_status skip_comment(lexer *x, size_t open)
{
    size_t begin = open + 2 + (sign_at(x->src, open + 2) ? 1 : 0);
    /* The reference looks no further when nothing follows, here and behind {% raw %}. */
    if (begin == x->src.len) move_to(x, begin);
    if (begin == x->src.len) return TG_OK;
    for (size_t i = begin; i < x->src.len; i++) {
        size_t end = end_tag_at(x->src, i, "#}");
        if (end) {
            move_to(x, end);
            return TG_OK;
        }
    }
    return fail(x, open, "this comment has no end; close it with '#}'");
}

/* "{%- raw -%}" at `open`: where its content begins, or 0. No newline is dropped behind it. */
static size_t raw_begin_at(tg_str s, size_t open)
{
    size_t i = skip_space(s, open + 2 + (sign_at(s, open + 2) ? 1 : 0));
    if (!is_at(s, i, "raw")) return 0;
    i = skip_space(s, i + 3);
    if (is_at(s, i, "%}")) return i + 2;
    return is_at(s, i, "-%}") ? skip_space(s, i + 3) : 0;
}

static tg_status lex_raw(lexer *x, size_t open, size_t begin)
{
    move_to(x, begin);
    if (begin == x->src.len) return TG_OK;
    for (size_t i = begin; i < x->src.len; i++) {
        if (!is_at(x->src, i, "{%")) continue;
        char sign = sign_at(x->src, i + 2);
        size_t k = skip_space(x->src, i + 2 + (sign ? 1 : 0));
        if (!is_at(x->src, k, "endraw")) continue;
        size_t end = end_tag_at(x->src, skip_space(x->src, k + 6), "%}");
        if (!end) continue;
        TG_TRY(add_text(x, begin, i, sign, true));
        move_to(x, end);
        return TG_OK;
    }
    return fail(x, open, "this raw block has no end; close it with '{% endraw %}'");
}

/* ---- inside a tag */

static bool is_digit(char c, int base)
{
    if (base == 16) return (c >= '0' && c <= '9') || ((c | 32) >= 'a' && (c | 32) <= 'f');
    return c >= '0' && c < '0' + base;
}

/* Digits with single underscores between them from i; the position behind, or i for none. */
static size_t skip_digits(tg_str s, size_t i, int base, bool may_start_underscore)
{
    size_t end = i;
    if (may_start_underscore && i < s.len && s.ptr[i] == '_') i++;
    while (i < s.len && is_digit(s.ptr[i], base)) {
        end = ++i;
        if (i < s.len && s.ptr[i] == '_') i++;
    }
    return end;
}

/* The end of a float at i, or i when it is none: "1.5", "1e3", "1.5e-3". */
static size_t skip_float(tg_str s, size_t i)
{
    if (i > 0 && s.ptr[i - 1] == '.') return i;
    size_t k = skip_digits(s, i, 10, false), end = i;
    if (k == i) return i;
    if (k + 1 < s.len && s.ptr[k] == '.') {
        size_t m = skip_digits(s, k + 1, 10, false);
        if (m > k + 1) end = k = m;
    }
    if (k < s.len && (s.ptr[k] | 32) == 'e') {
        size_t m = k + 1;
        if (m < s.len && (s.ptr[m] == '+' || s.ptr[m] == '-')) m++;
        size_t z = skip_digits(s, m, 10, false);
        if (z > m) end = z;
    }
    return end;
}

static tg_status lex_number(lexer *x)
{
    tg_str s = x->src;
    size_t i = x->pos, end = skip_float(s, i);
    char digits[400];
    bool is_float = end > i;
    int base = 10;
    if (!is_float && s.ptr[i] == '0' && i + 1 < s.len) {
        char c = (char)(s.ptr[i + 1] | 32);
        int b = c == 'x' ? 16 : c == 'o' ? 8 : c == 'b' ? 2 : 10;
        if (b != 10 && (end = skip_digits(s, i + 2, b, true)) > i + 2) base = b;
    }
    if (!is_float && base == 10) {
        end = i + 1;
        if (s.ptr[i] != '0') end = skip_digits(s, i, 10, false);
        while (s.ptr[i] == '0' && end < s.len &&
               (s.ptr[end] == '0' || (s.ptr[end] == '_' && is_at(s, end + 1, "0"))))
            end++;
    }
    if (end - i >= sizeof digits) return fail(x, i, "this number has more than 399 digits");
    tg_str text = {s.ptr + i, end - i};
    TG_TRY(add(x, is_float ? TG_JT_FLOAT : TG_JT_INT, i, text));
    tg_jtok *t = &x->out->items[x->out->n - 1];
    if (is_float && !tg_jparse_float(text, &t->u.f)) return fail(x, i, "this number is malformed");
    bool is_int = !is_float && tg_jparse_int(text, base == 10 ? 10 : 0, &t->u.i) == 0;
    /* 2^63, which fits behind a minus alone: the parser sees to it. */
    if (!is_float && !is_int && tg_str_is(text, "9223372036854775808"))
        t->u.i = INT64_MIN;
    else if (!is_float && !is_int)
        return tg_jfail_at(x->e, TG_E_UNSUPPORTED, s, (int32_t)i,
                           "the integer %.*s does not fit 64 bits", (int)TG_MIN(text.len, 40u),
                           text.ptr);
    x->pos = end;
    return TG_OK;
}

static bool is_name_char(int32_t c, bool is_first)
{
    if (c < 0x80)
        return c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
               (!is_first && c >= '0' && c <= '9');
    switch ((int)utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_NL: return true;
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_PC: return !is_first;
    default: return false;
    }
}

static size_t skip_name(tg_str s, size_t i)
{
    int32_t c;
    bool is_first = true;
    for (int n; i < s.len && (n = tg_utf8_decode(s.ptr + i, s.len - i, &c)) > 0 &&
                is_name_char(c, is_first);
         is_first = false)
        i += (size_t)n;
    return i;
}

/* Up to n hex digits at s[i]; -1 when there are fewer. */
static int32_t read_hex(tg_str s, size_t i, int n)
{
    int64_t v = 0;
    for (int k = 0; k < n; k++) {
        if (i + (size_t)k >= s.len || !is_digit(s.ptr[i + (size_t)k], 16)) return -1;
        int d = s.ptr[i + (size_t)k];
        v = v * 16 + (d <= '9' ? d - '0' : (d | 32) - 'a' + 10);
    }
    return v > 0x10ffff ? -1 : (int32_t)v;
}

/* One escape at s[i], which is a backslash that is not the last byte. Appends what it stands for
 * and returns its length in the source, 0 when it is broken. Python decodes with unicode-escape
 * after writing every character beyond ASCII as an escape of its own; so a backslash before such a
 * character leaves that escape's text in the string. */
static size_t add_escape(tg_buf *b, tg_str s, size_t i)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    char c = s.ptr[i + 1];
    const char *at = c ? strchr(from, c) : NULL;
    if (at) {
        tg_buf_add_byte(b, to[at - from]);
        return 2;
    }
    if (c == '\n') return 2;
    if (c == 'x' || c == 'u' || c == 'U') {
        int n = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        int32_t cp = read_hex(s, i + 2, n);
        if (cp < 0 || (cp >= 0xd800 && cp < 0xe000)) return 0;
        tg_buf_add_utf8(b, cp);
        return 2 + (size_t)n;
    }
    if (c >= '0' && c <= '7') {
        int32_t cp = 0;
        size_t k = 1;
        for (; k <= 3 && i + k < s.len && s.ptr[i + k] >= '0' && s.ptr[i + k] <= '7'; k++)
            cp = cp * 8 + (s.ptr[i + k] - '0');
        tg_buf_add_utf8(b, cp);
        return k;
    }
    if (c == 'N') return 0;
    int32_t cp;
    int n = tg_utf8_decode(s.ptr + i + 1, s.len - i - 1, &cp);
    if (n <= 1) {
        tg_buf_add(b, s.ptr + i, 2);
        return 2;
    }
    if (cp < 0x100)
        tg_buf_printf(b, "\\x%02x", (int)cp);
    else if (cp < 0x10000)
        tg_buf_printf(b, "\\u%04x", (int)cp);
    else
        tg_buf_printf(b, "\\U%08x", (int)cp);
    return 1 + (size_t)n;
}

static tg_status lex_string(lexer *x)
{
    tg_str s = x->src;
    size_t open = x->pos, i = open + 1;
    char quote = s.ptr[open];
    bool has_escape = false;
    while (i < s.len && s.ptr[i] != quote) {
        has_escape |= s.ptr[i] == '\\';
        i += s.ptr[i] == '\\' ? 2 : 1;
    }
    if (i >= s.len) return fail(x, open, "this string has no end");
    tg_str text = {s.ptr + open + 1, i - open - 1};
    x->pos = i + 1;
    if (!has_escape) return add(x, TG_JT_STRING, open, text);

    tg_buf b = {0};
    tg_status status = TG_OK;
    for (size_t k = 0; k < text.len && status == TG_OK;) {
        size_t n = 1;
        if (text.ptr[k] != '\\')
            tg_buf_add_byte(&b, text.ptr[k]);
        else if ((n = add_escape(&b, text, k)) == 0)
            status = fail(x, open + 1 + k, "this escape does not name a character");
        k += n;
    }
    if (status == TG_OK) status = tg_buf_check(&b, x->e);
    if (status == TG_OK) {
        char *copy = tg_arena_copy_str(x->arena, tg_buf_cstr(&b), b.len);
        status = copy ? add(x, TG_JT_STRING, open, (tg_str){copy, b.len})
                      : tg_fail_nomem(x->e, b.len, "a template string");
    }
    tg_buf_deinit(&b);
    return status;
}

/* Longest first. */
static const char *const operators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                        "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                        ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

enum { MAX_NESTING = 256 };

/* Brackets open inside the current tag: its end is only seen when there are none, so that
 * {{ {'a': {}}}} is a dictionary. */
typedef struct brackets {
    char close[MAX_NESTING];
    int n;
} brackets;

static tg_status lex_operator(lexer *x, brackets *open)
{
    size_t i = x->pos;
    const char *op = NULL;
    for (size_t k = 0; k < TG_COUNT(operators) && !op; k++)
        if (is_at(x->src, i, operators[k])) op = operators[k];
    if (!op) {
        int32_t cp = 0;
        int n = tg_utf8_decode(x->src.ptr + i, x->src.len - i, &cp);
        return tg_jfail_at(x->e, TG_E_CORRUPT, x->src, (int32_t)i, "unexpected character '%.*s'",
                           n > 0 ? n : 1, x->src.ptr + i);
    }
    const char *bracket = op[1] ? NULL : strchr("{}()[]", op[0]);
    if (bracket && strchr("{([", op[0])) {
        if (open->n == MAX_NESTING) return fail(x, i, "more than 256 brackets are open here");
        open->close[open->n++] = op[0] == '{' ? '}' : op[0] == '(' ? ')' : ']';
    } else if (bracket) {
        if (open->n == 0 || open->close[--open->n] != op[0])
            return tg_jfail_at(x->e, TG_E_CORRUPT, x->src, (int32_t)i, "unexpected '%s'", op);
    }
    x->pos = i + strlen(op);
    return add(x, TG_JT_OPERATOR, i, (tg_str){op, strlen(op)});
}

/* Everything up to the end of a {{ }} or {% %} tag; the opening is behind us. */
static tg_status lex_tag(lexer *x, size_t open_pos, bool is_block)
{
    brackets open = {.n = 0};
    while ((x->pos = skip_space(x->src, x->pos)) < x->src.len) {
        size_t i = x->pos, end = 0;
        if (open.n == 0 && is_block)
            end = end_tag_at(x->src, i, "%}");
        else if (open.n == 0)
            end = is_at(x->src, i, "}}")    ? i + 2
                  : is_at(x->src, i, "-}}") ? skip_space(x->src, i + 3)
                                            : 0;
        if (end) {
            TG_TRY(add(x, is_block ? TG_JT_BLOCK_END : TG_JT_VARIABLE_END, i, TG_STR("")));
            move_to(x, end);
            return TG_OK;
        }
        char c = x->src.ptr[i];
        size_t name_end = skip_name(x->src, i);
        if (c >= '0' && c <= '9') {
            TG_TRY(lex_number(x));
        } else if (name_end > i) {
            TG_TRY(add(x, TG_JT_NAME, i, (tg_str){x->src.ptr + i, name_end - i}));
            x->pos = name_end;
        } else if (c == '\'' || c == '"') {
            TG_TRY(lex_string(x));
        } else {
            TG_TRY(lex_operator(x, &open));
        }
    }
    return fail(x, open_pos,
                is_block ? "this tag has no end; close it with '%}'"
                         : "this expression has no end; close it with '}}'");
}

tg_status tg_jlex(tg_jtoks *out, tg_arena *a, tg_str source, tg_err *e)
{
    lexer x = {.out = out, .arena = a, .src = source, .is_line_start = true, .e = e};
    while (x.pos < source.len) {
        size_t from = x.pos, i = from;
        while (i < source.len && !(source.ptr[i] == '{' && i + 1 < source.len &&
                                   strchr("{%#", source.ptr[i + 1]) && source.ptr[i + 1]))
            i++;
        if (i == source.len) {
            TG_TRY(add(&x, TG_JT_DATA, from, (tg_str){source.ptr + from, i - from}));
            break;
        }
        char kind = source.ptr[i + 1], sign = sign_at(source, i + 2);
        TG_TRY(add_text(&x, from, i, sign, kind != '{'));
        if (kind == '#') {
            TG_TRY(skip_comment(&x, i));
            continue;
        }
        size_t raw = kind == '%' ? raw_begin_at(source, i) : 0;
        if (raw) {
            TG_TRY(lex_raw(&x, i, raw));
            continue;
        }
        TG_TRY(add(&x, kind == '%' ? TG_JT_BLOCK_BEGIN : TG_JT_VARIABLE_BEGIN, i, TG_STR("")));
        x.pos = i + 2 + (sign ? 1 : 0);
        TG_TRY(lex_tag(&x, i, kind == '%'));
    }
    return add(&x, TG_JT_EOF, source.len, TG_STR(""));
}
