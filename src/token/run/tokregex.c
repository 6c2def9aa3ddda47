/* SPDX-License-Identifier: Apache-2.0
 * tokregex.c - Oniguruma's patterns, in Ruby's syntax, to PCRE2's; and running them.
 *
 * A translator in one pass: what both engines read alike is copied, what they read differently is
 * rewritten, everything else is refused. It keeps where the last atom began in the output, since
 * Ruby allows a quantifier on a quantified atom where PCRE2 would read another operator. */
#include "token/run/tokregex.h"

#include "base/mem.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

/* What Oniguruma's Unicode tables mean by the short classes, as the inside of a PCRE2 set. PCRE2's
 * own \s also holds U+180E, and its \w lacks marks and joining punctuation; Oniguruma's \w holds
 * the numbers of Latin-1 that are no digits. Compared over all code points: what remains different
 * are characters that Unicode got after PCRE2's version of it. */
#define SPACE "\\p{White_Space}"
#define WORD  "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"
#define HEX   "0-9A-Fa-f"

enum { MAX_DEPTH = 250 };

/* ---- translation */

typedef struct translator {
    tg_str in;
    size_t i;
    tg_buf *out;
    size_t atom;              /* where in `out` the last repeatable atom begins */
    size_t groups[MAX_DEPTH]; /* where each open group begins */
    int depth;
    bool has_atom;
    tg_err *e;
} translator;

static tg_status refuse(translator *t, const char *what)
{
    return tg_fail(t->e, TG_E_UNSUPPORTED,
                   "the pattern '%.*s' uses %s at byte %zu, which is not built",
                   (int)TG_MIN(t->in.len, (size_t)160), t->in.ptr, what, t->i);
}

static char peek(const translator *t, size_t ahead)
{
    return t->i + ahead < t->in.len ? t->in.ptr[t->i + ahead] : '\0';
}

static void begin_atom(translator *t)
{
    t->atom = t->out->len;
    t->has_atom = true;
}

/* Puts "(?:" before the last atom, for a quantifier on a quantified atom. */
static void wrap_atom(translator *t)
{
    size_t n = t->out->len - t->atom;
    tg_buf_add_cstr(t->out, "(?:");
    if (t->out->is_failed) return;
    char *at = t->out->ptr + t->atom;
    memmove(at + 3, at, n);
    at[0] = '(';
    at[1] = '?';
    at[2] = ':';
    tg_buf_add_byte(t->out, ')');
}

/* General categories and the few properties that both engines name alike; the rest are scripts,
 * which PCRE2 would read as script extensions unless told. */
static bool is_plain_property(tg_str name)
{
    static const char *const names[] = {
        "L",         "Ll",         "Lu",          "Lt",
        "Lm",        "Lo",         "M",           "Mn",
        "Mc",        "Me",         "N",           "Nd",
        "Nl",        "No",         "P",           "Pc",
        "Pd",        "Ps",         "Pe",          "Pi",
        "Pf",        "Po",         "S",           "Sm",
        "Sc",        "Sk",         "So",          "Z",
        "Zs",        "Zl",         "Zp",          "C",
        "Cc",        "Cf",         "Co",          "Cn",
        "Any",       "Alphabetic", "White_Space", "Lowercase",
        "Uppercase", "Emoji",      "Ideographic", "Extended_Pictographic"};
    for (size_t i = 0; i < TG_COUNT(names); i++)
        if (tg_str_is(name, names[i])) return true;
    return false;
}

/* Names that Oniguruma spells in a way of its own. */
static const struct {
    const char *name, *pcre2;
} property_names[] = {
    {"Letter", "L"},        {"Mark", "M"},           {"Number", "N"},
    {"Punctuation", "P"},   {"Symbol", "S"},         {"Separator", "Z"},
    {"Other", "C"},         {"Alpha", "Alphabetic"}, {"Space", "White_Space"},
    {"Lower", "Lowercase"}, {"Upper", "Uppercase"},  {"Digit", "Nd"},
};

static tg_status translate_property(translator *t)
{
    bool is_negative = peek(t, 1) == 'P';
    t->i += 2;
    if (peek(t, 0) != '{') return refuse(t, "\\p without braces");
    t->i++;
    if (peek(t, 0) == '^') is_negative = !is_negative, t->i++;
    size_t begin = t->i;
    while (t->i < t->in.len && peek(t, 0) != '}')
        t->i++;
    if (t->i == t->in.len) return refuse(t, "\\p{ without }");
    tg_str name = {t->in.ptr + begin, t->i - begin};
    t->i++;
    const char *kind = "sc:";
    for (size_t i = 0; i < TG_COUNT(property_names); i++)
        if (tg_str_is(name, property_names[i].name))
            name = tg_str_from_cstr(property_names[i].pcre2);
    if (is_plain_property(name)) kind = "";
    tg_buf_printf(t->out, "\\%c{%s%.*s}", is_negative ? 'P' : 'p', kind, (int)name.len, name.ptr);
    return TG_OK;
}

/* \xHH, \x{H..}, \uHHHH as \x{...}. */
static tg_status translate_code(translator *t)
{
    char kind = peek(t, 1);
    t->i += 2;
    int32_t cp = 0;
    int n = 0, want = kind == 'u' ? 4 : 2;
    bool has_brace = kind == 'x' && peek(t, 0) == '{';
    if (has_brace) t->i++, want = 8;
    for (; n < want; n++, t->i++) {
        char c = peek(t, 0);
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0 || cp > 0x10ffff) break;
        cp = cp * 16 + digit;
    }
    if (n == 0 || cp > 0x10ffff || (has_brace && peek(t, 0) != '}') || (!has_brace && n < want) ||
        (!has_brace && kind == 'x' && cp > 0x7f))
        return refuse(t, "a malformed character code");
    if (has_brace) t->i++;
    tg_buf_printf(t->out, "\\x{%x}", (unsigned int)cp);
    return TG_OK;
}

/* An escape, inside a set or outside. */
static tg_status translate_escape(translator *t, bool in_set)
{
    char c = peek(t, 1);
    const char *set = NULL, *text = NULL;
    bool is_negative = false;
    switch (c) {
    case 'p':
    case 'P': return translate_property(t);
    case 'x':
    case 'u': return translate_code(t);
    case 's': set = SPACE; break;
    case 'S': text = "\\P{White_Space}"; break;
    case 'd': set = "\\p{Nd}"; break;
    case 'D': text = "\\P{Nd}"; break;
    case 'w': set = WORD; break;
    case 'W': set = WORD, is_negative = true; break;
    case 'h': set = HEX; break;
    case 'H': set = HEX, is_negative = true; break;
    case 'v': text = "\\x{0b}"; break;
    case 'n': text = "\\n"; break;
    case 'r': text = "\\r"; break;
    case 't': text = "\\t"; break;
    case 'f': text = "\\f"; break;
    case 'a': text = "\\x{07}"; break;
    case 'e': text = "\\x{1b}"; break;
    case 'b':
        text =
            in_set ? "\\x{08}" : "(?:(?<=[" WORD "])(?![" WORD "])|(?<![" WORD "])(?=[" WORD "]))";
        break;
    case 'B': text = "(?:(?<=[" WORD "])(?=[" WORD "])|(?<![" WORD "])(?![" WORD "]))"; break;
    case 'A': text = "\\A"; break;
    case 'z': text = "\\z"; break;
    case 'Z': text = "\\Z"; break;
    default: break;
    }
    if (in_set && (is_negative || (c && strchr("BAzZ", c))))
        return refuse(t, "this escape in a set");
    if (set)
        tg_buf_printf(t->out, in_set ? "%s%s" : is_negative ? "[^%s%s]" : "[%s%s]", "", set);
    else if (text)
        tg_buf_add_cstr(t->out, text);
    else if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || !c)
        return refuse(t, "an escape of a letter or digit");
    else {
        /* An escaped sign stands for itself; so does an escaped character beyond ASCII. */
        int32_t cp;
        int n = tg_utf8_decode(t->in.ptr + t->i + 1, t->in.len - t->i - 1, &cp);
        if (n == 0) return refuse(t, "bytes that are not UTF-8");
        if (n == 1) tg_buf_add_byte(t->out, '\\');
        tg_buf_add(t->out, t->in.ptr + t->i + 1, (size_t)n);
        t->i += 1 + (size_t)n;
        return TG_OK;
    }
    t->i += 2;
    return TG_OK;
}

/* Copies a set. Ruby's sets nest and intersect, and PCRE2 would take the signs for literal ones. */
static tg_status translate_set(translator *t)
{
    tg_buf_add_byte(t->out, '[');
    t->i++;
    if (peek(t, 0) == '^') tg_buf_add_byte(t->out, '^'), t->i++;
    for (bool is_first = true;; is_first = false) {
        char c = peek(t, 0);
        if (t->i >= t->in.len) return refuse(t, "a set without its end");
        if (c == ']' && !is_first) break;
        if (c == '[') return refuse(t, "a set inside a set");
        if (c == '&' && peek(t, 1) == '&') return refuse(t, "an intersection of sets");
        if (c == '\\') {
            TG_TRY(translate_escape(t, true));
            continue;
        }
        tg_buf_add_byte(t->out, c);
        t->i++;
    }
    tg_buf_add_byte(t->out, ']');
    t->i++;
    return TG_OK;
}

/* "(", "(?:", "(?=", "(?i:", "(?i)" ... Ruby's m is what PCRE2 calls s. */
static tg_status translate_open(translator *t)
{
    if (t->depth == MAX_DEPTH) return refuse(t, "more than 250 nested groups");
    size_t begin = t->out->len;
    t->i++;
    tg_buf_add_byte(t->out, '(');
    if (peek(t, 0) == '?') {
        t->i++;
        tg_buf_add_byte(t->out, '?');
        char c = peek(t, 0);
        if (c == ':' || c == '=' || c == '!' || c == '>') {
            tg_buf_add_byte(t->out, c);
            t->i++;
        } else if (c == '<' && (peek(t, 1) == '=' || peek(t, 1) == '!')) {
            tg_buf_add(t->out, t->in.ptr + t->i, 2);
            t->i += 2;
        } else {
            for (; (c = peek(t, 0)) && strchr("imx-", c); t->i++)
                tg_buf_add_byte(t->out, c == 'm' ? 's' : c);
            if (c != ':' && c != ')') return refuse(t, "this kind of group");
            tg_buf_add_byte(t->out, c);
            t->i++;
            if (c == ')') {
                /* Ruby closes the branch here and Perl does not; at the front both agree. */
                if (begin != 0) return refuse(t, "an option in the middle");
                t->has_atom = false;
                return TG_OK;
            }
        }
    }
    t->groups[t->depth++] = begin;
    t->has_atom = false;
    return TG_OK;
}

/* Reads {n}, {n,}, {,m}, {n,m} at t->i; 0 when it is none and thus literal text. */
static size_t interval_length(const translator *t)
{
    size_t n = 1;
    int digits = 0, commas = 0;
    for (;; n++) {
        char c = peek(t, n);
        if (c >= '0' && c <= '9')
            digits++;
        else if (c == ',' && commas == 0)
            commas++;
        else
            return c == '}' && digits ? n + 1 : 0;
    }
}

static tg_status translate_interval(translator *t, size_t n)
{
    tg_buf_add_byte(t->out, '{');
    if (peek(t, 1) == ',') tg_buf_add_byte(t->out, '0');
    tg_buf_add(t->out, t->in.ptr + t->i + 1, n - 1);
    bool is_fixed = !memchr(t->in.ptr + t->i, ',', n);
    t->i += n;
    /* In Ruby {2,3}+ is (?:{2,3})+ and {2}? is (?:{2})?, not possessive and lazy. */
    char c = peek(t, 0);
    if (c == '+' || c == '*' || (c == '?' && is_fixed)) {
        wrap_atom(t);
        tg_buf_add_byte(t->out, c);
        t->i++;
    } else if (c == '?') {
        tg_buf_add_byte(t->out, c);
        t->i++;
    }
    t->has_atom = false;
    return TG_OK;
}

/* *, + and ?, each maybe lazy or possessive: both engines agree. */
static tg_status translate_quantifier(translator *t)
{
    if (!t->has_atom) return refuse(t, "a quantifier without anything to repeat");
    tg_buf_add_byte(t->out, peek(t, 0));
    t->i++;
    if (peek(t, 0) == '+' || peek(t, 0) == '?') {
        tg_buf_add_byte(t->out, peek(t, 0));
        t->i++;
    }
    t->has_atom = false;
    return TG_OK;
}

static tg_status translate_one(translator *t)
{
    char c = peek(t, 0);
    size_t n = c == '{' && t->has_atom ? interval_length(t) : 0;
    if (n) return translate_interval(t, n);
    switch (c) {
    case '*':
    case '+':
    case '?': return translate_quantifier(t);
    case '(': return translate_open(t);
    case ')':
        if (t->depth == 0) return refuse(t, "a ) without its (");
        tg_buf_add_byte(t->out, ')');
        t->i++;
        t->atom = t->groups[--t->depth];
        t->has_atom = true;
        return TG_OK;
    case '|':
        tg_buf_add_byte(t->out, '|');
        t->i++;
        t->has_atom = false;
        return TG_OK;
    case '[': begin_atom(t); return translate_set(t);
    case '\\': begin_atom(t); return translate_escape(t, false);
    case '^':
    case '$': /* of a line, in Ruby */
        begin_atom(t);
        tg_buf_printf(t->out, "(?m:%c)", c);
        t->i++;
        return TG_OK;
    case '{': /* literal where no interval can stand */
        begin_atom(t);
        tg_buf_add_cstr(t->out, "\\{");
        t->i++;
        return TG_OK;
    default: break;
    }
    int32_t cp;
    int len = tg_utf8_decode(t->in.ptr + t->i, t->in.len - t->i, &cp);
    if (len == 0) return refuse(t, "bytes that are not UTF-8");
    begin_atom(t);
    tg_buf_add(t->out, t->in.ptr + t->i, (size_t)len);
    t->i += (size_t)len;
    return TG_OK;
}

tg_status tg_regex_translate(tg_buf *out, tg_str pattern, tg_err *e)
{
    translator t = {.in = pattern, .out = out, .e = e};
    while (t.i < pattern.len)
        TG_TRY(translate_one(&t));
    if (t.depth) return refuse(&t, "a group without its end");
    return tg_buf_check(out, e);
}

/* ---- running */

struct tg_regex {
    pcre2_code *code;
    pcre2_general_context *memory;
    bool has_jit;
};

static void *new_bytes(size_t n, void *unused)
{
    (void)unused;
    return tg_mem_new_plain(n);
}

static void free_bytes(void *p, void *unused)
{
    (void)unused;
    tg_mem_free(p);
}

static tg_status compile(tg_regex *r, tg_str pattern, tg_str source, tg_err *e)
{
    r->memory = pcre2_general_context_create(new_bytes, free_bytes, NULL);
    pcre2_compile_context *c = r->memory ? pcre2_compile_context_create(r->memory) : NULL;
    if (!c) return tg_fail_nomem(e, pattern.len, "a pattern");
    int number = 0;
    size_t at = 0;
    /* Ruby knows no other end of a line, and PCRE2's default is the builder's choice. */
    pcre2_set_newline(c, PCRE2_NEWLINE_LF);
    r->code = pcre2_compile((PCRE2_SPTR)pattern.ptr, pattern.len,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_NO_AUTO_CAPTURE | PCRE2_NEVER_BACKSLASH_C,
                            &number, &at, c);
    pcre2_compile_context_free(c);
    if (!r->code && number == PCRE2_ERROR_HEAP_FAILED)
        return tg_fail_nomem(e, pattern.len, "a compiled pattern");
    if (!r->code) {
        char words[120] = "";
        pcre2_get_error_message(number, (PCRE2_UCHAR *)words, sizeof words);
        return tg_fail(e, TG_E_UNSUPPORTED, "the pattern '%.*s' cannot be used: %s",
                       (int)TG_MIN(source.len, (size_t)160), source.ptr, words);
    }
    /* Without machine code for this processor PCRE2 interprets: slower, the same matches. */
    r->has_jit = pcre2_jit_compile(r->code, PCRE2_JIT_COMPLETE) == 0;
    return TG_OK;
}

static tg_status new_compiled(tg_regex **out, tg_str pattern, tg_str source, tg_err *e)
{
    tg_regex *r = TG_NEW(tg_regex);
    *out = NULL;
    if (!r) return tg_fail_nomem(e, sizeof *r, "a pattern");
    tg_status s = compile(r, pattern, source, e);
    if (s == TG_OK)
        *out = r;
    else
        tg_regex_free(r);
    return s;
}

tg_status tg_regex_new(tg_regex **out, tg_str pattern, tg_err *e)
{
    tg_buf translated = {0};
    *out = NULL;
    tg_status s = tg_regex_translate(&translated, pattern, e);
    if (s == TG_OK) s = new_compiled(out, tg_buf_str(&translated), pattern, e);
    tg_buf_deinit(&translated);
    return s;
}

tg_status tg_regex_new_translated(tg_regex **out, tg_str pattern, tg_err *e)
{
    return new_compiled(out, pattern, pattern, e);
}

void tg_regex_free(tg_regex *r)
{
    if (!r) return;
    pcre2_code_free(r->code);
    pcre2_general_context_free(r->memory);
    tg_mem_free(r);
}

void tg_regex_scratch_deinit(tg_regex_scratch *s)
{
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->context);
    *s = (tg_regex_scratch){0};
}

/* On the first match of a call: a text without words to split never pays for it. */
static tg_status prepare(const tg_regex *r, tg_regex_scratch *s, tg_err *e)
{
    if (!s->match) s->match = pcre2_match_data_create(1, r->memory);
    if (!s->context) s->context = pcre2_match_context_create(r->memory);
    return s->match && s->context ? TG_OK : tg_fail_nomem(e, sizeof *s, "matching a pattern");
}

tg_status tg_regex_find(const tg_regex *r, tg_regex_scratch *s, tg_str text, size_t from,
                        size_t *begin, size_t *end, tg_err *e)
{
    if (!s->match || !s->context) TG_TRY(prepare(r, s, e));
    /* A pattern that reads the text once from each position takes a few steps a byte. One that
     * takes hundreds is quadratic or worse and would hold the thread for minutes. */
    size_t limit = text.len < UINT32_MAX / 400 ? 1000000 + text.len * 256 : UINT32_MAX;
    pcre2_set_match_limit(s->context, (uint32_t)limit);
    PCRE2_SPTR subject = (PCRE2_SPTR)text.ptr;
    int n = PCRE2_ERROR_JIT_STACKLIMIT;
    if (r->has_jit)
        n = pcre2_jit_match(r->code, subject, text.len, from, PCRE2_NO_UTF_CHECK, s->match,
                            s->context);
    /* The interpreter keeps its backtracking on the heap: no depth of the text can overflow it. */
    if (n == PCRE2_ERROR_JIT_STACKLIMIT)
        n = pcre2_match(r->code, subject, text.len, from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        s->match, s->context);
    *begin = *end = SIZE_MAX;
    if (n == PCRE2_ERROR_NOMATCH) return TG_OK;
    if (n == PCRE2_ERROR_MATCHLIMIT || n == PCRE2_ERROR_HEAPLIMIT)
        return tg_fail(e, TG_E_LIMIT,
                       "a pattern of the tokenizer takes more than %zu steps on this text of %zu "
                       "bytes",
                       limit, text.len);
    if (n == PCRE2_ERROR_NOMEMORY) return tg_fail_nomem(e, text.len, "matching a pattern");
    if (n < 0)
        return tg_fail(e, TG_E_CORRUPT, "a pattern of the tokenizer fails with PCRE2's error %d",
                       n);
    const size_t *ov = pcre2_get_ovector_pointer(s->match);
    *begin = ov[0];
    *end = TG_MAX(ov[0], ov[1]);
    return TG_OK;
}
