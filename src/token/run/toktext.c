/* SPDX-License-Identifier: Apache-2.0
 * toktext.c - what happens to a text before the model sees it: normalizers and pre-tokenizers.
 *
 * Every kind that tokenizer.json knows is written by the compiler as a few steps of two sorts. A
 * rewriting step copies words into a new text, changed; a splitting step replaces each word by its
 * parts. Both see a word alone, so that \A, look-behind and "the first" mean the word's. A
 * normalizer is a rewriting step over one word, the whole text. */
#include "token/run/tokblob.h"
#include "token/run/tokmap.h"
#include "token/run/tokunicode.h"

#include <string.h>
#include <utf8proc.h>

/* ---- writing a new text */

/* Where bytes [begin, end) of v came from in the input. */
static tg_span origin_of(const tg_tok_view *v, size_t begin, size_t end)
{
    if (begin >= end) { /* nothing: a point between its neighbours */
        int32_t at = begin < v->len
                         ? (v->origin ? v->origin[begin].begin : v->base + (int32_t)begin)
                     : v->len ? (v->origin ? v->origin[v->len - 1].end : v->base + (int32_t)v->len)
                              : v->base;
        return (tg_span){at, at};
    }
    if (!v->origin) return (tg_span){v->base + (int32_t)begin, v->base + (int32_t)end};
    return (tg_span){v->origin[begin].begin, v->origin[end - 1].end};
}

/* Bytes as they were. */
static void keep(tg_tok_text *dst, const tg_tok_view *v, size_t begin, size_t end)
{
    tg_buf_add(&dst->bytes, v->ptr + begin, end - begin);
    if (!dst->is_tracked) return;
    for (size_t i = begin; i < end; i++) {
        tg_span o = origin_of(v, i, i + 1);
        tg_spans_push(&dst->origin, o.begin, o.end);
    }
}

/* New bytes in the place of [begin, end). */
static void put(tg_tok_text *dst, const tg_tok_view *v, size_t begin, size_t end, const char *bytes,
                size_t n)
{
    tg_buf_add(&dst->bytes, bytes, n);
    if (!dst->is_tracked) return;
    tg_span o = origin_of(v, begin, end);
    for (size_t i = 0; i < n; i++)
        tg_spans_push(&dst->origin, o.begin, o.end);
}

/* ---- rewriting steps: append the word [w.begin, w.end) of v, changed */

typedef struct rewrite {
    tg_tok_scratch *s;
    const tg_tok_view *v;
    const tg_tok_step *step;
    const tg_regex *regex;
    const tg_dfa *dfa; /* `next` NULL: regex */
    tg_str a, b;       /* the step's strings */
    tg_tok_text *dst;
    tg_spans *words; /* of a splitting step: what it makes, */
    int32_t base;    /* and where the word begins that it splits */
    tg_tok_take_fn *take;
    tg_status taken; /* what it said */
    tg_err *e;
} rewrite;

static size_t decode(const tg_tok_view *v, size_t i, size_t end, int32_t *cp)
{
    int n = tg_utf8_decode(v->ptr + i, end - i, cp);
    return n ? (size_t)n : 1; /* valid by contract; a damaged blob may still bring anything */
}

static bool is_mark(int32_t cp)
{
    utf8proc_category_t c = utf8proc_category(cp);
    return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

/* Normalization forms leave alone what the reference library's version of Unicode has not. */
static bool is_known(int32_t cp)
{
    return tg_unicode_is(TG_UNICODE_PRESENT, cp);
}

/* Whether normalization may join `cp` with what stands before it: marks, the vowels and final
 * consonants of Hangul, and the two halfwidth signs that are marks when they are as wide as others.
 * Text between two characters that are neither can be done by itself.
 *
 * U+11A7 is where the arithmetic of final consonants begins and is none itself: it joins nothing.
 * utf8proc takes it for one and would make it vanish into the syllable before it. */
static bool joins_before(int32_t cp)
{
    bool is_jamo = cp >= 0x1160 && cp <= 0x11ff && cp != 0x11a7;
    return cp >= 0x300 && (is_jamo || is_mark(cp) || cp == 0xff9e || cp == 0xff9f) && is_known(cp);
}

/* One character and what joins it. Most need a few code points; a hostile run of marks may have a
 * million, which then lie in the heap. */
static tg_status normalize_part(rewrite *r, size_t begin, size_t end, utf8proc_option_t options)
{
    enum { ON_STACK = 64 };
    utf8proc_int32_t some[ON_STACK], *cps = some;
    const utf8proc_uint8_t *src = (const utf8proc_uint8_t *)r->v->ptr + begin;
    utf8proc_ssize_t n =
        utf8proc_decompose(src, (utf8proc_ssize_t)(end - begin), cps, ON_STACK, options);
    if (n > ON_STACK) { /* a long run of marks */
        cps = tg_mem_new_array((size_t)n + 1, sizeof *cps);
        if (!cps) return tg_fail_nomem(r->e, (size_t)n * sizeof *cps, "normalizing text");
        n = utf8proc_decompose(src, (utf8proc_ssize_t)(end - begin), cps, n, options);
    }
    if (n >= 0) n = utf8proc_normalize_utf32(cps, n, options);
    tg_status s =
        n < 0 ? tg_fail(r->e, TG_E_CORRUPT, "normalizing text failed: %s", utf8proc_errmsg(n))
              : TG_OK;
    char bytes[4];
    size_t at = r->dst->bytes.len;
    for (utf8proc_ssize_t i = 0; i < n; i++)
        put(r->dst, r->v, begin, end, bytes, (size_t)tg_utf8_encode(cps[i], bytes));
    /* What came out as it went in keeps the offsets of its single bytes. */
    if (r->dst->is_tracked && !r->dst->origin.is_failed && !r->dst->bytes.is_failed &&
        r->dst->bytes.len - at == end - begin &&
        memcmp(r->dst->bytes.ptr + at, src, end - begin) == 0)
        for (size_t i = begin; i < end; i++)
            r->dst->origin.ptr[at + i - begin] = origin_of(r->v, i, i + 1);
    if (cps != some) tg_mem_free(cps);
    return s;
}

/* The bytes of a character that every normal form leaves alone and that joins none before it, 0 for
 * others: ASCII, and U+3400 to U+9FFF, the Han characters but for rare ones. */
static size_t inert_bytes(const char *p, size_t n_left)
{
    const unsigned char *u = (const unsigned char *)p;
    if (n_left && u[0] < 0x80) return 1;
    bool is_han = n_left >= 3 && u[0] >= 0xe3 && u[0] <= 0xe9 && (u[0] > 0xe3 || u[1] >= 0x90);
    return is_han ? 3 : 0;
}

/* Where such characters end: not behind the last, which a mark behind it may join. */
static size_t skip_inert(const char *text, size_t i, size_t end)
{
    for (size_t n = inert_bytes(text + i, end - i), next; n; n = next) {
        next = inert_bytes(text + i + n, end - i - n);
        if (next == 0 && i + n < end) break;
        i += n;
    }
    return i;
}

/* Part by part, so that offsets stay as fine as the rewriting, and text that is normal already is
 * copied: what is inert, and single characters that do not decompose. */
static tg_status normalize(rewrite *r, tg_span w, utf8proc_option_t options)
{
    bool composes = options & UTF8PROC_COMPOSE;
    for (size_t i = (size_t)w.begin, end = (size_t)w.end; i < end;) {
        size_t j = skip_inert(r->v->ptr, i, end);
        int32_t cp, next;
        keep(r->dst, r->v, i, j);
        if ((i = j) == end) break;
        j += decode(r->v, j, end, &cp);
        size_t first = j;
        while (j < end) {
            size_t n = decode(r->v, j, end, &next);
            if (!is_known(cp) || !joins_before(next)) break;
            j += n;
        }
        const utf8proc_property_t *p = utf8proc_get_property(cp);
        bool is_hangul = cp >= 0xac00 && cp <= 0xd7a3;
        bool is_plain = p->decomp_seqindex == UINT16_MAX && (composes || !is_hangul);
        if (!is_known(cp) || (j == first && is_plain))
            keep(r->dst, r->v, i, j);
        else
            TG_TRY(normalize_part(r, i, j, options));
        i = j;
    }
    return TG_OK;
}

static tg_status run_nfc(rewrite *r, tg_span w)
{
    return normalize(r, w, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
}

static tg_status run_nfd(rewrite *r, tg_span w)
{
    return normalize(r, w, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
}

static tg_status run_nfkc(rewrite *r, tg_span w)
{
    return normalize(r, w, UTF8PROC_STABLE | UTF8PROC_COMPOSE | UTF8PROC_COMPAT);
}

static tg_status run_nfkd(rewrite *r, tg_span w)
{
    return normalize(r, w, UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
}

/* Characters that stay are copied as runs. */
static tg_status map_chars(rewrite *r, tg_span w, tg_tok_map_fn *map)
{
    size_t done = (size_t)w.begin;
    for (size_t i = (size_t)w.begin, n; i < (size_t)w.end; i += n) {
        int32_t cp;
        char bytes[TG_TOK_MAP_BYTES];
        n = decode(r->v, i, (size_t)w.end, &cp);
        int n_bytes = map(cp, bytes);
        if (n_bytes < 0) continue;
        keep(r->dst, r->v, done, i);
        put(r->dst, r->v, i, i + n, bytes, (size_t)n_bytes);
        done = i + n;
    }
    keep(r->dst, r->v, done, (size_t)w.end);
    return TG_OK;
}

/* SentencePiece's own way: at each place the longest key. */
static tg_status map_longest(rewrite *r, tg_span w, const tg_charsmap *map)
{
    tg_str with;
    for (size_t i = (size_t)w.begin, end = (size_t)w.end, n; i < end; i += n) {
        int32_t cp;
        n = tg_charsmap_find(map, (tg_str){r->v->ptr + i, end - i}, true, &with);
        if (n) {
            put(r->dst, r->v, i, i + n, with.ptr, with.len);
        } else {
            n = decode(r->v, i, end, &cp);
            keep(r->dst, r->v, i, i + n);
        }
    }
    return TG_OK;
}

/* The reference library's way: the table is asked for a short cluster as a whole, and for its
 * characters where it has nothing that the whole begins with. The shortest key counts, and stands
 * for all that was asked for. */
static tg_status map_clusters(rewrite *r, tg_span w, const tg_charsmap *map)
{
    enum { LONGEST_KEY = 5 };
    tg_str word = {r->v->ptr + w.begin, (size_t)(w.end - w.begin)}, with;
    size_t base = (size_t)w.begin;
    for (size_t i = 0, end; i < word.len; i = end) {
        size_t n = tg_charsmap_cluster_bytes(word, i);
        end = i + n;
        if (n <= LONGEST_KEY && tg_charsmap_find(map, (tg_str){word.ptr + i, n}, false, &with)) {
            put(r->dst, r->v, base + i, base + end, with.ptr, with.len);
            continue;
        }
        for (; i < end; i += n) {
            int32_t cp;
            n = decode(r->v, base + i, base + end, &cp);
            if (tg_charsmap_find(map, (tg_str){word.ptr + i, n}, false, &with))
                put(r->dst, r->v, base + i, base + i + n, with.ptr, with.len);
            else
                keep(r->dst, r->v, base + i, base + i + n);
        }
    }
    return TG_OK;
}

static tg_status run_charsmap(rewrite *r, tg_span w)
{
    const tg_charsmap map = {r->a, r->b};
    return r->step->x ? map_longest(r, w, &map) : map_clusters(r, w, &map);
}

/* A mark stands for the blank before a word, or for the word's first character. */
static tg_status run_blanks(rewrite *r, tg_span w)
{
    bool merges = r->step->x & TG_TOK_BLANKS_MERGE, leads = r->step->x & TG_TOK_BLANKS_LEAD;
    bool in_word = false;
    for (size_t i = (size_t)w.begin, n; i < (size_t)w.end; i += n) {
        int32_t cp;
        n = decode(r->v, i, (size_t)w.end, &cp);
        if (cp == ' ') {
            in_word = false;
            if (!merges) put(r->dst, r->v, i, i + 1, r->a.ptr, r->a.len);
            continue;
        }
        if (!in_word && (merges || leads)) {
            bool has_blank = merges && i > (size_t)w.begin;
            put(r->dst, r->v, has_blank ? i - 1 : i, has_blank ? i : i + n, r->a.ptr, r->a.len);
            leads = false;
        }
        in_word = true;
        keep(r->dst, r->v, i, i + n);
    }
    return TG_OK;
}

static tg_status run_trim(rewrite *r, tg_span w)
{
    size_t begin = (size_t)w.begin, end = (size_t)w.end, last = begin;
    bool has_begun = !r->step->x;
    for (size_t i = begin, n; i < end; i += n) {
        int32_t cp;
        n = decode(r->v, i, end, &cp);
        if (tg_unicode_is_space(cp)) continue;
        if (!has_begun) begin = i, has_begun = true;
        last = i + n;
    }
    if (!has_begun) begin = end;
    if (r->step->y) end = TG_MAX(last, begin);
    keep(r->dst, r->v, begin, end);
    return TG_OK;
}

/* "First" means the word that begins the input, not each text between added tokens. */
static bool is_led(const rewrite *r, tg_span w)
{
    return r->step->x == TG_TOK_LEAD_ALWAYS ||
           origin_of(r->v, (size_t)w.begin, (size_t)w.end).begin == 0;
}

/* The prefix stands for the word's first character, as in the reference library. */
static void put_in_front(rewrite *r, tg_span w)
{
    int32_t cp;
    size_t first = decode(r->v, (size_t)w.begin, (size_t)w.end, &cp);
    put(r->dst, r->v, (size_t)w.begin, (size_t)w.begin + first, r->a.ptr, r->a.len);
}

static tg_status run_prepend(rewrite *r, tg_span w)
{
    if (w.begin == w.end) return TG_OK;
    if (is_led(r, w)) put_in_front(r, w);
    keep(r->dst, r->v, (size_t)w.begin, (size_t)w.end);
    return TG_OK;
}

/* memmem, which POSIX lacks. */
static const char *find_bytes(const char *text, size_t n, tg_str what)
{
    while (n >= what.len) {
        const char *p = memchr(text, what.ptr[0], n - what.len + 1);
        if (!p) return NULL;
        if (memcmp(p, what.ptr, what.len) == 0) return p;
        n -= (size_t)(p - text) + 1;
        text = p + 1;
    }
    return NULL;
}

static tg_status run_replace(rewrite *r, tg_span w)
{
    size_t i = (size_t)w.begin, end = (size_t)w.end;
    const char *p;
    while (r->a.len && (p = find_bytes(r->v->ptr + i, end - i, r->a)) != NULL) {
        size_t at = (size_t)(p - r->v->ptr);
        keep(r->dst, r->v, i, at);
        put(r->dst, r->v, at, at + r->a.len, r->b.ptr, r->b.len);
        i = at + r->a.len;
    }
    keep(r->dst, r->v, i, end);
    return TG_OK;
}

static tg_status find_pattern(const rewrite *r, tg_str word, size_t from, size_t *begin,
                              size_t *end)
{
    if (!r->dfa->next) return tg_regex_find(r->regex, &r->s->regex, word, from, begin, end, r->e);
    if (tg_dfa_find(r->dfa, word, from, begin, end)) return TG_OK;
    return tg_fail(r->e, TG_E_LIMIT,
                   "a pattern of the tokenizer takes too many steps on this text of %zu bytes",
                   word.len);
}

/* The next match of a word at or after *from, with the rule of both libraries for empty matches:
 * none right behind the match before. Offsets are the word's. */
static tg_status find_match(const rewrite *r, tg_str word, size_t *from, size_t *last_end,
                            size_t *begin, size_t *end)
{
    for (;;) {
        *begin = SIZE_MAX;
        if (*from > word.len) return TG_OK;
        TG_TRY(find_pattern(r, word, *from, begin, end));
        if (*begin == SIZE_MAX) return TG_OK;
        bool is_empty = *begin == *end;
        *from = *end;
        if (!is_empty || *begin != *last_end) break;
        int32_t cp;
        if (*from == word.len) {
            *from = word.len + 1;
            continue;
        }
        int n = tg_utf8_decode(word.ptr + *from, word.len - *from, &cp);
        *from += n ? (size_t)n : 1;
    }
    *last_end = *end;
    return TG_OK;
}

static tg_status run_replace_regex(rewrite *r, tg_span w)
{
    tg_str word = {r->v->ptr + w.begin, (size_t)(w.end - w.begin)};
    size_t at = 0, from = 0, last_end = SIZE_MAX, begin, end, base = (size_t)w.begin;
    for (;;) {
        TG_TRY(find_match(r, word, &from, &last_end, &begin, &end));
        if (begin == SIZE_MAX) break;
        keep(r->dst, r->v, base + at, base + begin);
        put(r->dst, r->v, base + begin, base + end, r->b.ptr, r->b.len);
        at = end;
    }
    keep(r->dst, r->v, base + at, (size_t)w.end);
    return TG_OK;
}

static tg_status run_lead(rewrite *r, tg_span w)
{
    tg_str word = {r->v->ptr + w.begin, (size_t)(w.end - w.begin)};
    if (!tg_str_has_prefix(word, r->a) && is_led(r, w)) put_in_front(r, w);
    keep(r->dst, r->v, (size_t)w.begin, (size_t)w.end);
    return TG_OK;
}

/* ---- splitting steps: s->matches receives the parts of a word, then `behavior` joins them */

enum { IS_MATCH = 1 };

/* A lot stays in the first cache, where the words of a long text are more memory than the text. */
static void hand_out(rewrite *r)
{
    enum { LOT = 1024 };
    if (r->words->len < LOT || !r->take || r->taken != TG_OK || r->words->is_failed) return;
    r->taken = r->take(r->s, r->v, r->words, r->e);
    tg_spans_clear(r->words);
}

/* A part that no other can join is a word already. Others wait in s->matches: spans of the word,
 * the lowest bit of `end` carries whether the part is a match. */
static void push_part(rewrite *r, size_t begin, size_t end, bool is_match)
{
    tg_tok_behavior behavior = (tg_tok_behavior)r->step->x;
    if (behavior != TG_TOK_ISOLATED && behavior != TG_TOK_REMOVED)
        tg_spans_push(&r->s->matches, (int32_t)begin, (int32_t)(end << 1 | is_match));
    else if (begin < end && (behavior == TG_TOK_ISOLATED || !is_match)) {
        tg_spans_push(r->words, r->base + (int32_t)begin, r->base + (int32_t)end);
        hand_out(r);
    }
}

static tg_status find_string_parts(rewrite *r, tg_str word)
{
    size_t at = 0;
    const char *p;
    while (r->a.len && (p = find_bytes(word.ptr + at, word.len - at, r->a)) != NULL) {
        size_t begin = (size_t)(p - word.ptr);
        if (begin > at) push_part(r, at, begin, r->step->y);
        push_part(r, begin, begin + r->a.len, !r->step->y);
        at = begin + r->a.len;
    }
    if (at < word.len) push_part(r, at, word.len, r->step->y);
    return TG_OK;
}

static tg_status find_regex_parts(rewrite *r, tg_str word)
{
    size_t at = 0, from = 0, last_end = SIZE_MAX, begin, end;
    for (;;) {
        TG_TRY(find_match(r, word, &from, &last_end, &begin, &end));
        if (begin == SIZE_MAX) break;
        if (begin > at) push_part(r, at, begin, r->step->y);
        push_part(r, begin, end, !r->step->y);
        at = end;
    }
    if (at < word.len) push_part(r, at, word.len, r->step->y);
    return TG_OK;
}

static bool is_of_class(int32_t k, int32_t cp)
{
    static const tg_unicode_class unicode[TG_TOK_CLASS_COUNT] = {
        [TG_TOK_CLASS_PUNCTUATION] = TG_UNICODE_PUNCTUATION,
        [TG_TOK_CLASS_NUMERIC] = TG_UNICODE_NUMERIC,
        [TG_TOK_CLASS_WORD] = TG_UNICODE_WORD,
    };
    return k == TG_TOK_CLASS_SPACE ? tg_unicode_is_space(cp) : tg_unicode_is(unicode[k], cp);
}

/* Each character of the class is a match of its own. */
static tg_status find_class_parts(rewrite *r, tg_str word)
{
    size_t at = 0;
    for (size_t i = 0, n; i < word.len; i += n) {
        int32_t cp;
        n = (size_t)TG_MAX(tg_utf8_decode(word.ptr + i, word.len - i, &cp), 1);
        if (!is_of_class(r->step->y, cp)) continue;
        if (i > at) push_part(r, at, i, false);
        push_part(r, i, i + n, true);
        at = i + n;
    }
    if (at < word.len) push_part(r, at, word.len, false);
    return TG_OK;
}

/* Characters of any script go with what stands before them. Those before the first of a script
 * belong nowhere: the reference library drops them, and so does the step, as a match. */
static tg_status find_script_parts(rewrite *r, tg_str word)
{
    size_t at = 0;
    int last = 0;
    for (size_t i = 0, n; i < word.len; i += n) {
        int32_t cp;
        n = (size_t)TG_MAX(tg_utf8_decode(word.ptr + i, word.len - i, &cp), 1);
        int script = tg_unicode_script(cp);
        if (script == 0 || script == last) continue;
        if (i > at) push_part(r, at, i, last == 0);
        last = script;
        at = i;
    }
    if (at < word.len) push_part(r, at, word.len, last == 0);
    return TG_OK;
}

static tg_status find_equal_parts(rewrite *r, tg_str word)
{
    size_t at = 0;
    int32_t n_chars = 0;
    for (size_t i = 0, n; i < word.len; i += n) {
        int32_t cp;
        n = (size_t)TG_MAX(tg_utf8_decode(word.ptr + i, word.len - i, &cp), 1);
        if (++n_chars < r->step->y && i + n < word.len) continue;
        push_part(r, at, i + n, false);
        at = i + n;
        n_chars = 0;
    }
    return TG_OK;
}

static void push_word(tg_spans *out, int32_t base, tg_span part)
{
    if (part.begin < part.end) tg_spans_push(out, base + part.begin, base + part.end);
}

/* Joins a part to the word under way when `joins` says so. Walking backwards serves "merged with
 * next", whose rule is that of "merged with previous" in a mirror. */
static void join_parts(tg_spans *out, const tg_spans *parts, int32_t base, tg_tok_behavior behavior)
{
    bool is_back = behavior == TG_TOK_MERGED_NEXT, was_match = false, has = false;
    tg_span word = {0, 0};
    size_t first = out->len;
    for (size_t k = 0; k < parts->len; k++) {
        tg_span part = parts->ptr[is_back ? parts->len - 1 - k : k];
        bool is_match = part.end & IS_MATCH;
        part.end >>= 1;
        bool joins = behavior == TG_TOK_CONTIGUOUS ? is_match == was_match : is_match && !was_match;
        was_match = is_match;
        if (has && joins) {
            if (is_back)
                word.begin = part.begin;
            else
                word.end = part.end;
            continue;
        }
        if (has) push_word(out, base, word);
        word = part;
        has = true;
    }
    if (has) push_word(out, base, word);
    if (!is_back || out->len == first) return;
    for (size_t i = first, j = out->len - 1; i < j; i++, j--) {
        tg_span swap = out->ptr[i];
        out->ptr[i] = out->ptr[j];
        out->ptr[j] = swap;
    }
}

/* ---- the table, and the loop over it */

static const struct {
    tg_status (*rewrite)(rewrite *r, tg_span word);
    tg_tok_map_fn *map; /* of a rewriting step that is one */
    tg_status (*find_parts)(rewrite *r, tg_str word);
    int32_t most; /* the greatest y of a splitting step */
} ops[] = {
    [TG_TOK_NFC] = {.rewrite = run_nfc},
    [TG_TOK_NFD] = {.rewrite = run_nfd},
    [TG_TOK_NFKC] = {.rewrite = run_nfkc},
    [TG_TOK_NFKD] = {.rewrite = run_nfkd},
    [TG_TOK_LOWERCASE] = {.map = tg_tok_map_lowercase},
    [TG_TOK_STRIP_ACCENTS] = {.map = tg_tok_map_strip_accents},
    [TG_TOK_TRIM] = {.rewrite = run_trim},
    [TG_TOK_PREPEND] = {.rewrite = run_prepend},
    [TG_TOK_REPLACE] = {.rewrite = run_replace},
    [TG_TOK_REPLACE_REGEX] = {.rewrite = run_replace_regex},
    [TG_TOK_LEAD] = {.rewrite = run_lead},
    [TG_TOK_SPLIT] = {.find_parts = find_string_parts, .most = 1},
    [TG_TOK_SPLIT_REGEX] = {.find_parts = find_regex_parts, .most = 1},
    [TG_TOK_CLEAN] = {.map = tg_tok_map_clean},
    [TG_TOK_SPACE_CJK] = {.map = tg_tok_map_space_cjk},
    [TG_TOK_STRIP_NONSPACING] = {.map = tg_tok_map_strip_nonspacing},
    [TG_TOK_NMT] = {.map = tg_tok_map_nmt},
    [TG_TOK_BYTE_CHARS] = {.map = tg_tok_map_byte_chars},
    [TG_TOK_CHARSMAP] = {.rewrite = run_charsmap},
    [TG_TOK_BLANKS] = {.rewrite = run_blanks},
    [TG_TOK_SPLIT_CLASS] = {.find_parts = find_class_parts, .most = TG_TOK_CLASS_COUNT - 1},
    [TG_TOK_SPLIT_SCRIPTS] = {.find_parts = find_script_parts},
    [TG_TOK_SPLIT_EVERY] = {.find_parts = find_equal_parts, .most = INT32_MAX},
};
_Static_assert(TG_COUNT(ops) == TG_TOK_OP_COUNT, "every step has a row");

int32_t tg_tok_split_most(uint32_t op)
{
    return ops[op].find_parts ? ops[op].most : -1;
}

/* Parts of one word at a time: behaviors never join across words. */
static tg_status split_words(rewrite *r, const tg_spans *words, tg_spans *out)
{
    tg_spans_clear(out);
    for (size_t i = 0; i < words->len; i++) {
        tg_span w = words->ptr[i];
        tg_spans_clear(&r->s->matches);
        r->words = out;
        r->base = w.begin;
        TG_TRY(ops[r->step->op].find_parts(
            r, (tg_str){r->v->ptr + w.begin, (size_t)(w.end - w.begin)}));
        join_parts(out, &r->s->matches, w.begin, (tg_tok_behavior)r->step->x);
        hand_out(r);
        TG_TRY(r->taken);
    }
    return out->is_failed || r->s->matches.is_failed
               ? tg_fail_nomem(r->e, out->size * sizeof(tg_span), "the words of a text")
               : TG_OK;
}

static tg_status rewrite_words(rewrite *r, const tg_spans *words, tg_spans *out)
{
    tg_spans_clear(out);
    tg_buf_clear(&r->dst->bytes);
    tg_spans_clear(&r->dst->origin);
    for (size_t i = 0; i < words->len; i++) {
        size_t begin = r->dst->bytes.len;
        tg_tok_map_fn *map = ops[r->step->op].map;
        TG_TRY(map ? map_chars(r, words->ptr[i], map) : ops[r->step->op].rewrite(r, words->ptr[i]));
        /* A replacement may grow the text; offsets have 31 bits, and one marks matches. */
        if (r->dst->bytes.len > TG_ENCODE_MAX_BYTES)
            return tg_fail(r->e, TG_E_LIMIT, "the text is longer than %d bytes once normalized",
                           TG_ENCODE_MAX_BYTES);
        if (r->dst->bytes.len > begin)
            tg_spans_push(out, (int32_t)begin, (int32_t)r->dst->bytes.len);
    }
    if (out->is_failed || r->dst->origin.is_failed)
        return tg_fail_nomem(r->e, out->size * sizeof(tg_span), "the words of a text");
    return tg_buf_check(&r->dst->bytes, r->e);
}

tg_status tg_tok_steps_run(tg_tok_scratch *s, tg_tok_view *v, int *w, int32_t from, int32_t to,
                           tg_tok_take_fn *take, tg_err *e)
{
    const tg_tokenizer *t = s->t;
    for (int32_t k = from; k < to; k++) {
        const tg_tok_step *step = &t->steps[k];
        int free_text = 0;
        /* A text that became empty may have no memory, as a text not used yet. */
        while (free_text == s->pinned || (v->ptr && v->ptr == s->text[free_text].bytes.ptr))
            free_text++;
        rewrite r = {.s = s,
                     .v = v,
                     .step = step,
                     .regex = t->regex[k],
                     .dfa = &t->dfa[k],
                     .take = k == to - 1 ? take : NULL,
                     .e = e,
                     .a = {t->strings + step->a_at, step->a_bytes},
                     .b = {t->strings + step->b_at, step->b_bytes},
                     .dst = &s->text[free_text]};
        r.dst->is_tracked = s->spans != NULL;
        tg_spans *from_words = &s->words[*w], *to_words = &s->words[*w ^ 1];
        if (!ops[step->op].find_parts) {
            TG_TRY(rewrite_words(&r, from_words, to_words));
            int32_t base = origin_of(v, 0, v->len).begin;
            *v = (tg_tok_view){r.dst->bytes.ptr, r.dst->bytes.len,
                               r.dst->is_tracked ? r.dst->origin.ptr : NULL, base};
        } else {
            TG_TRY(split_words(&r, from_words, to_words));
        }
        *w ^= 1;
    }
    return TG_OK;
}
