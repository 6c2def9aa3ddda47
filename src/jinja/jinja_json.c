/* SPDX-License-Identifier: Apache-2.0
 * jinja_json.c - the tojson filter: Python's json.dumps with the arguments transformers passes.
 *
 * Unlike Jinja's own filter it does not escape HTML; text beyond ASCII stays as it is unless
 * ensure_ascii is given. Models were trained on its output: spaces, key order and the form of
 * numbers count. */
#include "jinja/jinja.h"

#include <math.h>
#include <string.h>

typedef struct writer {
    tg_jrun *r;
    tg_buf *b;
    tg_str item, key; /* separators */
    tg_str indent;
    bool has_indent, is_ascii, is_sorted;
} writer;

static void write_value(writer *w, tg_jval v, int32_t level);

static void write_char(writer *w, int32_t c, const char *bytes, int n)
{
    static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
    const char *at = c > 0 && c < 0x80 ? strchr(from, (char)c) : NULL;
    if (at) {
        tg_buf_add_byte(w->b, '\\');
        tg_buf_add_byte(w->b, to[at - from]);
    } else if (c < 0x20 || (c == 0x7f && w->is_ascii)) {
        tg_buf_printf(w->b, "\\u%04x", (int)c);
    } else if (c < 0x80 || !w->is_ascii) {
        tg_buf_add(w->b, bytes, (size_t)n);
    } else if (c < 0x10000) {
        tg_buf_printf(w->b, "\\u%04x", (int)c);
    } else {
        c -= 0x10000;
        tg_buf_printf(w->b, "\\u%04x\\u%04x", (int)(0xd800 + (c >> 10)),
                      (int)(0xdc00 + (c & 0x3ff)));
    }
}

static void write_str(writer *w, tg_str s)
{
    tg_jrun_pay(w->r, (int64_t)s.len / 8);
    tg_buf_add_byte(w->b, '"');
    for (size_t i = 0; i < s.len;) {
        int32_t c = 0;
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &c);
        if (n == 0) break; /* strings are valid UTF-8 */
        write_char(w, c, s.ptr + i, n);
        i += (size_t)n;
    }
    tg_buf_add_byte(w->b, '"');
}

static void write_float(writer *w, double f)
{
    if (isnan(f) || isinf(f))
        tg_buf_add_cstr(w->b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        tg_jfloat_print(w->b, f);
}

static void write_line(writer *w, int32_t level)
{
    if (!w->has_indent) return;
    tg_buf_add_byte(w->b, '\n');
    tg_jrun_pay(w->r, 1 + level * (int64_t)w->indent.len / 64);
    for (int32_t i = 0; i < level && !tg_jrun_is_failed(w->r); i++)
        tg_buf_add_str(w->b, w->indent);
}

static void write_list(writer *w, const tg_jlist *l, int32_t level)
{
    tg_buf_add_byte(w->b, '[');
    for (int32_t i = 0; i < l->n && !tg_jrun_is_failed(w->r); i++) {
        if (i) tg_buf_add_str(w->b, w->item);
        write_line(w, level + 1);
        write_value(w, l->items[i], level + 1);
    }
    if (l->n) write_line(w, level);
    tg_buf_add_byte(w->b, ']');
}

/* Keys are text; numbers, booleans and None become it. */
static void write_key(writer *w, tg_jval key)
{
    tg_buf text = {0};
    switch (key.kind) {
    case TG_J_STR: write_str(w, tg_jval_str(key)); return;
    case TG_J_NONE: tg_buf_add_cstr(&text, "null"); break;
    case TG_J_BOOL: tg_buf_add_cstr(&text, key.u.b ? "true" : "false"); break;
    case TG_J_INT: tg_jval_print(w->r, &text, key); break;
    case TG_J_FLOAT: {
        writer inner = *w;
        inner.b = &text;
        write_float(&inner, key.u.f);
        break;
    }
    default:
        tg_jrun_raise(w->r, "keys must be str, int, float, bool or None, not %s",
                      tg_jkind_name(key));
    }
    write_str(w, tg_buf_str(&text));
    tg_buf_deinit(&text);
}

static void write_dict(writer *w, tg_jval v, int32_t level)
{
    tg_jval items = v;
    if (w->is_sorted) {
        items = tg_jdict_sorted(w->r, v);
        if (tg_jrun_is_failed(w->r)) return;
    }
    int32_t n = v.u.dict->n;
    tg_buf_add_byte(w->b, '{');
    for (int32_t i = 0; i < n && !tg_jrun_is_failed(w->r); i++) {
        tg_jentry x = w->is_sorted ? (tg_jentry){items.u.list->items[i].u.list->items[0],
                                                 items.u.list->items[i].u.list->items[1]}
                                   : v.u.dict->entries[i];
        if (i) tg_buf_add_str(w->b, w->item);
        write_line(w, level + 1);
        write_key(w, x.key);
        tg_buf_add_str(w->b, w->key);
        write_value(w, x.value, level + 1);
    }
    if (n) write_line(w, level);
    tg_buf_add_byte(w->b, '}');
}

static void write_nested(writer *w, tg_jval v, int32_t level)
{
    tg_jrun *r = w->r;
    if (r->n_depth <= 0) {
        tg_jrun_fail(r, TG_E_LIMIT, "a value is nested too deep for the budget of tojson");
        return;
    }
    r->n_depth--;
    if (v.kind == TG_J_DICT)
        write_dict(w, v, level);
    else
        write_list(w, v.u.list, level);
    r->n_depth++;
}

static void write_value(writer *w, tg_jval v, int32_t level)
{
    if (!tg_jrun_pay(w->r, 1)) return;
    if (w->b->len > w->r->max_output) {
        tg_jrun_fail(w->r, TG_E_LIMIT, "the text of tojson exceeds the limit of %zu bytes",
                     w->r->max_output);
        return;
    }
    switch (v.kind) {
    case TG_J_NONE: tg_buf_add_cstr(w->b, "null"); break;
    case TG_J_BOOL: tg_buf_add_cstr(w->b, v.u.b ? "true" : "false"); break;
    case TG_J_INT: tg_jval_print(w->r, w->b, v); break;
    case TG_J_FLOAT: write_float(w, v.u.f); break;
    case TG_J_STR: write_str(w, tg_jval_str(v)); break;
    case TG_J_LIST:
    case TG_J_TUPLE:
    case TG_J_DICT: write_nested(w, v, level); break;
    default: tg_jrun_raise(w->r, "Object of type %s is not JSON serializable", tg_jkind_name(v));
    }
}

/* "ensure_ascii indent separators sort_keys" */
tg_jval tg_jval_to_json(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    tg_buf b = {0};
    tg_jval indent = a->v[1], separators = a->v[2];
    writer w = {.r = r, .b = &b, .item = TG_STR(", "), .key = TG_STR(": ")};
    w.is_ascii = tg_jval_is_true(a->v[0]);
    w.is_sorted = tg_jval_is_true(a->v[3]);
    if (tg_jval_is_int(indent)) {
        static const char spaces[] = "                                ";
        if (tg_jval_int(indent) > (int64_t)sizeof spaces - 1)
            return tg_jrun_fail(r, TG_E_LIMIT, "an indent of %lld is wider than the limit of 32",
                                (long long)tg_jval_int(indent));
        w.has_indent = true;
        w.indent = (tg_str){spaces, (size_t)TG_MAX(tg_jval_int(indent), 0)};
    } else if (indent.kind == TG_J_STR) {
        w.has_indent = true;
        w.indent = tg_jval_str(indent);
    } else if (indent.kind != TG_J_MISSING && indent.kind != TG_J_NONE) {
        return tg_jrun_raise(r, "the indent of tojson must be an integer or a string, not %s",
                             tg_jkind_name(indent));
    }
    if (w.has_indent) w.item = TG_STR(",");
    if (separators.kind != TG_J_MISSING && separators.kind != TG_J_NONE) {
        bool is_pair = (separators.kind == TG_J_TUPLE || separators.kind == TG_J_LIST) &&
                       separators.u.list->n == 2 && separators.u.list->items[0].kind == TG_J_STR &&
                       separators.u.list->items[1].kind == TG_J_STR;
        if (!is_pair) return tg_jrun_raise(r, "the separators of tojson must be two strings");
        w.item = tg_jval_str(separators.u.list->items[0]);
        w.key = tg_jval_str(separators.u.list->items[1]);
    }
    write_value(&w, self, 0);
    return tg_jstr_take(r, &b);
}
