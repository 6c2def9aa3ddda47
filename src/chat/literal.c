/* SPDX-License-Identifier: Apache-2.0
 * literal.c - a rendering that remembers which of its characters came out of the conversation.
 *
 * A template is a program and may cut, join and escape what it is given, so where a message's text
 * ends up cannot be computed; it can be marked. A character that occurs nowhere in the template and
 * the conversation is put in front of characters of the messages, and where it stands in the
 * rendered text, the next character is the conversation's. Marks must not change what the template
 * does: the marked rendering without its marks has to be the ordinary one, byte for byte.
 *
 * Three levels are tried, and the first that passes this test is used:
 *
 *   punctuation   every character by which control tokens differ from words: also what a template
 *                 would make a control token of by cutting out of the middle has its marks
 *   pieces        every spelling of a control token, and pieces of one at the ends of a string,
 *                 which may meet the other piece in the rendered text
 *   spellings     every spelling of a control token
 *
 * A lower level must not leave more control tokens unmarked than the first one does, and where no
 * level passes the conversation is refused. A template that looks for "</think>" in a message fails
 * the first level, since it does not find it with marks inside, and passes the second. */
#include "chat/literal.h"

#include "base/mem.h"

#include <string.h>

typedef enum level { LEVEL_PUNCTUATION, LEVEL_PIECES, LEVEL_SPELLINGS, N_LEVELS } level;

/* Marks are hieroglyphs: printable, without case, no space to Python, and rare. */
enum { FIRST_MARK = 0x13000, LAST_MARK = 0x1342e, MARK_BYTES = 4 };

typedef struct marker {
    const tg_spellings *controls;
    size_t longest;           /* bytes of a control token */
    bool is_first[256];       /* bytes that begin a control token */
    bool is_punctuation[256]; /* first bytes of their characters that belong to no word */
    level level;
    char mark[MARK_BYTES];
    tg_err *e;
} marker;

void tg_offsets_deinit(tg_offsets *x)
{
    tg_mem_free(x->at);
    *x = (tg_offsets){0};
}

/* A part of a word or a blank of ASCII; characters beyond ASCII in control tokens ("<｜User｜>") are
 * rare elsewhere. */
static bool is_wordly(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c == '_' ||
           c == ' ' || (c >= '\t' && c <= '\r');
}

static bool is_tail(char c)
{
    return ((unsigned char)c & 0xc0) == 0x80;
}

static void init_marker(marker *m, const tg_spellings *controls, tg_err *e)
{
    *m = (marker){.controls = controls, .e = e};
    for (int32_t k = 0; k < controls->n; k++) {
        tg_str s = controls->texts[k];
        m->longest = TG_MAX(m->longest, s.len);
        if (s.len) m->is_first[(unsigned char)s.ptr[0]] = true;
        for (size_t i = 0; i < s.len; i++)
            if (!is_wordly(s.ptr[i]) && !is_tail(s.ptr[i]))
                m->is_punctuation[(unsigned char)s.ptr[i]] = true;
    }
}

/* Bytes of the longest control token that `s` begins with; 0 for none. With `has_pieces` a piece of
 * one counts that is all of `s`. */
static size_t find_control(const marker *m, tg_str s, bool has_pieces)
{
    size_t best = 0;
    if (!s.len || !m->is_first[(unsigned char)s.ptr[0]]) return 0;
    for (int32_t k = 0; k < m->controls->n; k++) {
        tg_str c = m->controls->texts[k];
        if (tg_str_has_prefix(s, c) || (has_pieces && tg_str_has_prefix(c, s)))
            best = TG_MAX(best, TG_MIN(c.len, s.len));
    }
    return best;
}

/* True where the string begins with the end of a control token. */
static bool begins_with_end(const marker *m, tg_str s)
{
    for (int32_t k = 0; k < m->controls->n; k++) {
        tg_str c = m->controls->texts[k];
        for (size_t n = 1; n < c.len && n <= s.len; n++)
            if (memcmp(s.ptr, c.ptr + (c.len - n), n) == 0) return true;
    }
    return false;
}

static bool is_to_mark(const marker *m, tg_str s, size_t i)
{
    if (is_tail(s.ptr[i])) return false;
    tg_str rest = {s.ptr + i, s.len - i};
    if (find_control(m, rest, m->level != LEVEL_SPELLINGS && rest.len < m->longest)) return true;
    if (m->level == LEVEL_SPELLINGS) return false;
    if (i == 0 && begins_with_end(m, s)) return true;
    return m->level == LEVEL_PUNCTUATION && m->is_punctuation[(unsigned char)s.ptr[i]];
}

static void add_marked(const marker *m, tg_buf *out, tg_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        if (is_to_mark(m, s, i)) tg_buf_add(out, m->mark, MARK_BYTES);
        tg_buf_add_byte(out, s.ptr[i]);
    }
}

static json_t *copy_marked(const marker *m, const json_t *v);

static json_t *copy_members(const marker *m, const json_t *v)
{
    const char *key;
    json_t *item, *copy = json_object();
    bool is_made = copy != NULL;
    json_object_foreach((json_t *)(uintptr_t)v, key, item)
    {
        tg_buf name = {0};
        add_marked(m, &name, tg_str_from_cstr(key));
        is_made = is_made && !name.is_failed &&
                  json_object_set_new(copy, tg_buf_cstr(&name), copy_marked(m, item)) == 0;
        tg_buf_deinit(&name);
    }
    if (is_made) return copy;
    json_decref(copy);
    return NULL;
}

/* A copy with marks in every string and key; NULL when memory was refused. */
static json_t *copy_marked(const marker *m, const json_t *v)
{
    size_t i;
    json_t *item, *copy;
    tg_buf text = {0};
    switch (json_typeof(v)) {
    case JSON_OBJECT: return copy_members(m, v);
    case JSON_ARRAY:
        copy = json_array();
        json_array_foreach(v, i, item)
        {
            if (copy && json_array_append_new(copy, copy_marked(m, item)) != 0) {
                json_decref(copy);
                copy = NULL;
            }
        }
        return copy;
    case JSON_STRING:
        add_marked(m, &text, (tg_str){json_string_value(v), json_string_length(v)});
        copy = text.is_failed ? NULL : json_stringn(tg_buf_cstr(&text), text.len);
        tg_buf_deinit(&text);
        return copy;
    case JSON_INTEGER:
    case JSON_REAL:
    case JSON_TRUE:
    case JSON_FALSE:
    case JSON_NULL: break;
    }
    return json_deep_copy(v);
}

static size_t count(tg_str text, tg_str what)
{
    size_t n = 0;
    for (size_t i = 0; i + what.len <= text.len; i++)
        n += memcmp(text.ptr + i, what.ptr, what.len) == 0;
    return n;
}

/* A character that is in no value and in no rendered text, which shows the template's own. */
static tg_status choose_mark(marker *m, const tg_conversation *q, tg_str plain, tg_err *e)
{
    const json_t *const parts[] = {q->messages, q->tools, q->documents, q->kwargs};
    tg_buf all = {0};
    tg_status s = TG_OK;
    tg_buf_add_str(&all, plain);
    for (size_t i = 0; i < TG_COUNT(parts) && s == TG_OK; i++)
        if (parts[i]) s = tg_json_print(&all, parts[i], 0, e);
    if (s == TG_OK) s = tg_buf_check(&all, e);
    int32_t c = FIRST_MARK;
    for (; s == TG_OK && c <= LAST_MARK; c++) {
        tg_utf8_encode(c, m->mark);
        if (count(tg_buf_str(&all), (tg_str){m->mark, MARK_BYTES}) == 0) break;
    }
    tg_buf_deinit(&all);
    if (s == TG_OK && c > LAST_MARK)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "the conversation holds every character that could mark its text");
    return s;
}

/* The conversation rendered with marks. */
static tg_status render_marked(const marker *m, tg_buf *out, tg_chat *c, const tg_conversation *q,
                               tg_err *e)
{
    const json_t *const from[] = {q->messages, q->tools, q->documents};
    json_t *copies[3] = {NULL};
    bool is_made = true;
    for (size_t i = 0; i < TG_COUNT(from); i++)
        if (from[i]) is_made &= (copies[i] = copy_marked(m, from[i])) != NULL;
    tg_conversation marked = *q;
    marked.messages = copies[0];
    marked.tools = copies[1];
    marked.documents = copies[2];
    tg_status s = is_made ? tg_chat_render(out, c, &marked, NULL, e)
                          : tg_fail_nomem(e, sizeof marked, "a marked conversation");
    for (size_t i = 0; i < TG_COUNT(from); i++)
        json_decref(copies[i]);
    return s;
}

/* Takes the marks out of the text: what is left, and where they stood. */
static tg_status take_marks(const marker *m, tg_buf *text, tg_offsets *out, tg_err *e)
{
    size_t n = 0, n_marks = count(tg_buf_str(text), (tg_str){m->mark, MARK_BYTES});
    out->at = TG_NEW_ARRAY(int32_t, n_marks + 1);
    if (!out->at) return tg_fail_nomem(e, n_marks * sizeof *out->at, "offsets of a prompt");
    for (size_t i = 0; i < text->len;) {
        if (text->len - i >= MARK_BYTES && memcmp(text->ptr + i, m->mark, MARK_BYTES) == 0) {
            out->at[out->n++] = (int32_t)n;
            i += MARK_BYTES;
        } else {
            text->ptr[n++] = text->ptr[i++];
        }
    }
    text->len = n;
    return TG_OK;
}

/* Control tokens in the text that cover no offset. */
static int32_t count_free(const marker *m, tg_str text, const tg_offsets *literal)
{
    int32_t n = 0, k = 0;
    for (size_t i = 0; i < text.len;) {
        size_t len = find_control(m, (tg_str){text.ptr + i, text.len - i}, false);
        while (k < literal->n && (size_t)literal->at[k] < i)
            k++;
        if (len) n += k == literal->n || (size_t)literal->at[k] >= i + len;
        i += len ? len : 1;
    }
    return n;
}

/* One level: whether the marked rendering is the ordinary one, `plain`, and *literal where it is.
 * *n_free counts control tokens of what was rendered, -1 where the template refused it. */
static tg_status try_level(marker *m, tg_offsets *literal, int32_t *n_free, tg_str plain,
                           tg_chat *c, const tg_conversation *q, bool *is_same)
{
    tg_buf text = {0};
    tg_err why = {0};
    *n_free = -1;
    *is_same = false;
    tg_status s = render_marked(m, &text, c, q, &why);
    if (s == TG_OK) s = tg_buf_check(&text, &why);
    if (s == TG_OK) s = take_marks(m, &text, literal, &why);
    if (s == TG_OK) {
        *n_free = count_free(m, tg_buf_str(&text), literal);
        *is_same = tg_str_is_equal(tg_buf_str(&text), plain);
    }
    tg_buf_deinit(&text);
    return s == TG_E_NOMEM ? tg_fail(m->e, s, "%s", why.msg) : TG_OK;
}

tg_status tg_chat_render_literal(tg_buf *out, tg_offsets *literal, tg_chat *c,
                                 const tg_conversation *q, const tg_spellings *controls, tg_err *e)
{
    marker m;
    *literal = (tg_offsets){0};
    init_marker(&m, controls, e);
    TG_TRY(tg_chat_render(out, c, q, NULL, e));
    TG_TRY(tg_buf_check(out, e));
    TG_TRY(choose_mark(&m, q, tg_buf_str(out), e));
    int32_t most = -1; /* control tokens that are the template's, as the first level has it */
    for (int l = 0; l < N_LEVELS; l++) {
        int32_t n_free;
        bool is_same;
        m.level = (level)l;
        TG_TRY(try_level(&m, literal, &n_free, tg_buf_str(out), c, q, &is_same));
        if (most < 0) most = n_free;
        if (is_same && n_free <= most) return TG_OK;
        tg_offsets_deinit(literal);
    }
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "a message spells a control token of the model, and this template handles the "
                   "text so that the two cannot be told apart; remove it from the message, or "
                   "render without safe messages");
}
