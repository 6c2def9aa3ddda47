/* SPDX-License-Identifier: Apache-2.0
 * cmd_tokenize.c - tokenize and detokenize.
 *
 * The two directions share everything but the middle: read, open, print. Neither needs weights: a
 * source is not exported, only its tokenizer is read. One text or one a line, what is printed of
 * each is the same, so a program reads either with the same code. */
#include "app/command.h"
#include "app/input.h"
#include "app/report.h"
#include "app/term.h"
#include "base/os.h"
#include "trigraph.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Output is buffered up to this length: a million lines are neither a million writes nor
 * as much memory. */
enum { FLUSH_BYTES = 1 << 20 };

typedef struct tg_printer {
    tg_buf b;
    const tg_text *text;
    tg_term *out;
} tg_printer;

/* All but the last byte, by which a report knows whether a comma follows. */
static void flush_most(tg_printer *p)
{
    tg_buf *b = &p->b;
    if (b->len < FLUSH_BYTES || b->is_failed) return;
    tg_term_write(p->out, (tg_str){b->ptr, b->len - 1});
    b->ptr[0] = b->ptr[b->len - 1];
    b->ptr[1] = 0;
    b->len = 1;
}

/* The texts of the input: borrowed from it; the lists are owned. */
typedef struct tg_texts {
    const char **texts;
    size_t *n_bytes;
    tg_tokens *tokens;
    int32_t n;
} tg_texts;

static void deinit_texts(tg_texts *x)
{
    for (int32_t i = 0; i < x->n && x->tokens; i++)
        tg_tokens_deinit(&x->tokens[i]);
    tg_mem_free(x->tokens);
    tg_mem_free(x->texts);
    tg_mem_free(x->n_bytes);
}

/* A newline ends a line; what follows the last one is a line only when it is not empty. */
static const char *find_line_end(const char *at, const char *end)
{
    const char *newline = memchr(at, '\n', (size_t)(end - at));
    return newline ? newline : end;
}

static tg_status split(tg_texts *x, const tg_input *in, bool is_lines, tg_err *e)
{
    const char *begin = tg_buf_cstr(&in->text), *end = begin + in->text.len;
    size_t n = is_lines ? 0 : 1;
    for (const char *p = begin; is_lines && p < end; n++)
        p = find_line_end(p, end) + 1;
    if (n > INT32_MAX) return tg_fail(e, TG_E_LIMIT, "%s: has %zu lines", in->name, n);
    x->texts = TG_NEW_ARRAY(const char *, n + 1);
    x->n_bytes = TG_NEW_ARRAY(size_t, n + 1);
    x->tokens = TG_NEW_ARRAY(tg_tokens, n + 1);
    if (!x->texts || !x->n_bytes || !x->tokens)
        return tg_fail_nomem(e, n * sizeof *x->tokens, "a list of lines");
    x->n = (int32_t)n;
    if (!is_lines) {
        x->texts[0] = begin;
        x->n_bytes[0] = in->text.len;
        return TG_OK;
    }
    for (int32_t i = 0; i < x->n; i++) {
        const char *line_end = find_line_end(begin, end);
        x->texts[i] = begin;
        x->n_bytes[i] = (size_t)(line_end - begin);
        begin = line_end + 1;
    }
    return TG_OK;
}

/* ---- one text's ids, in one of four forms */

/* One line of decimals, which is what --ids of the other commands reads. */
static tg_status add_ids(tg_printer *p, const tg_tokens *x, tg_err *e)
{
    tg_buf *b = &p->b;
    (void)e;
    for (int32_t i = 0; i < x->n; i++)
        tg_buf_printf(b, "%s%" PRId32, i ? " " : "", x->ids[i]);
    tg_buf_add_byte(b, '\n');
    return TG_OK;
}

/* Quotes and backslashes too, so that what stands between the quotes can be read back. */
static void add_quoted(tg_buf *b, tg_str s)
{
    tg_buf_add_byte(b, '"');
    for (size_t start = 0, i = 0; i <= s.len; i++) {
        bool is_special = i < s.len && (s.ptr[i] == '"' || s.ptr[i] == '\\');
        if (i < s.len && !is_special) continue;
        tg_buf_add_escaped(b, (tg_str){s.ptr + start, i - start});
        if (is_special) tg_buf_add_byte(b, '\\');
        start = i;
        if (is_special) tg_buf_add_byte(b, s.ptr[start++]);
    }
    tg_buf_add_byte(b, '"');
}

static void add_flags(tg_buf *b, const tg_token *t)
{
    const char *const names[] = {t->is_special ? "special" : NULL, t->is_added ? "added" : NULL,
                                 t->is_byte ? "byte" : NULL, t->is_unused ? "unused" : NULL};
    tg_buf flags = {0};
    for (size_t i = 0; i < TG_COUNT(names); i++)
        if (names[i]) tg_buf_printf(&flags, "%s%s", flags.len ? "," : "", names[i]);
    tg_buf_printf(b, "  %-13s  ", flags.len ? tg_buf_cstr(&flags) : "-");
    tg_buf_deinit(&flags);
}

/* A line a token; ranges are those of a text that was tokenized. */
static tg_status add_lines(tg_printer *p, const tg_tokens *x, tg_err *e)
{
    tg_buf *b = &p->b;
    for (int32_t i = 0; i < x->n; i++, flush_most(p)) {
        tg_token token;
        TG_TRY(tg_text_get_token(&token, p->text, x->ids[i], e));
        size_t start = b->len;
        tg_buf_printf(b, "%8" PRId32, x->ids[i]);
        if (x->ranges)
            tg_buf_printf(b, "  %" PRId32 "-%" PRId32, x->ranges[i].begin, x->ranges[i].end);
        while (x->ranges && b->len - start < 22 && !b->is_failed)
            tg_buf_add_byte(b, ' ');
        add_flags(b, &token);
        add_quoted(b, (tg_str){token.bytes, token.n_bytes});
        tg_buf_add_byte(b, '\n');
    }
    return TG_OK;
}

static tg_status add_json(tg_printer *p, const tg_tokens *x, tg_err *e)
{
    tg_buf *b = &p->b;
    (void)e;
    tg_report_begin(b, NULL);
    tg_report_add_ids(b, "tokens", x->ids, x->n);
    tg_report_add_int(b, "count", x->n);
    tg_report_end(b);
    tg_buf_add_byte(b, '\n');
    return TG_OK;
}

/* A piece that is no text of its own, a part of a character, is the list of its bytes. */
static void add_piece(tg_buf *b, tg_str s)
{
    if (tg_utf8_find_invalid(s) == s.len) {
        tg_report_add_text(b, "piece", s);
        return;
    }
    tg_report_begin_list(b, "piece");
    for (size_t i = 0; i < s.len; i++)
        tg_report_add_int(b, NULL, (unsigned char)s.ptr[i]);
    tg_report_end_list(b);
}

static tg_status add_json_pieces(tg_printer *p, const tg_tokens *x, tg_err *e)
{
    tg_buf *b = &p->b;
    tg_report_begin(b, NULL);
    tg_report_begin_list(b, "tokens");
    for (int32_t i = 0; i < x->n; i++, flush_most(p)) {
        tg_token token;
        TG_TRY(tg_text_get_token(&token, p->text, x->ids[i], e));
        tg_report_begin(b, NULL);
        tg_report_add_int(b, "id", x->ids[i]);
        if (x->ranges) {
            tg_report_add_int(b, "begin", x->ranges[i].begin);
            tg_report_add_int(b, "end", x->ranges[i].end);
        }
        add_piece(b, (tg_str){token.bytes, token.n_bytes});
        tg_report_add_bool(b, "special", token.is_special);
        tg_report_add_bool(b, "added", token.is_added);
        tg_report_add_bool(b, "byte", token.is_byte);
        tg_report_add_bool(b, "unused", token.is_unused);
        tg_report_end(b);
    }
    tg_report_end_list(b);
    tg_report_add_int(b, "count", x->n);
    tg_report_end(b);
    tg_buf_add_byte(b, '\n');
    return TG_OK;
}

/* ---- the commands */

static tg_status print_tokens(const tg_texts *x, const tg_text *t, const tg_args *a, tg_term *out,
                              tg_err *e)
{
    static tg_status (*const forms[2][2])(tg_printer *, const tg_tokens *, tg_err *) = {
        {add_ids, add_lines}, {add_json, add_json_pieces}};
    bool is_json = a->is_set[TG_OPT_JSON], is_show = a->is_set[TG_OPT_SHOW];
    tg_printer p = {.text = t, .out = out};
    tg_status s = TG_OK;
    for (int32_t i = 0; i < x->n && s == TG_OK && !tg_term_is_broken(out); i++) {
        if (is_show && !is_json && i > 0) tg_buf_add_byte(&p.b, '\n'); /* tells texts apart */
        s = forms[is_json][is_show](&p, &x->tokens[i], e);
        flush_most(&p);
    }
    if (s == TG_OK) s = tg_buf_check(&p.b, e);
    if (s == TG_OK) tg_term_write(out, tg_buf_str(&p.b));
    tg_buf_deinit(&p.b);
    return s;
}

static tg_status tokenize(const tg_text *t, const tg_args *a, const tg_input *in, tg_term *out,
                          tg_err *e)
{
    bool is_plain = a->is_set[TG_OPT_NO_SPECIAL], is_lines = a->is_set[TG_OPT_LINES];
    tg_tokenize_options o = {
        .no_add_special = is_plain || a->is_set[TG_OPT_NO_ADD_SPECIAL],
        .no_parse_special = is_plain || a->is_set[TG_OPT_NO_PARSE_SPECIAL],
        .has_ranges = a->is_set[TG_OPT_SHOW],
        .n_threads = (int32_t)a->number[TG_OPT_THREADS],
    };
    tg_texts x = {0};
    tg_status s = split(&x, in, is_lines, e);
    if (s == TG_OK && is_lines)
        s = tg_text_tokenize_batch(x.tokens, t, x.texts, x.n_bytes, x.n, &o, e);
    else if (s == TG_OK)
        s = tg_text_tokenize(x.tokens, t, x.texts[0], x.n_bytes[0], &o, e);
    if (s != TG_OK) tg_err_context(e, "%s", in->name);
    if (s == TG_OK) s = print_tokens(&x, t, a, out, e);
    deinit_texts(&x);
    return s;
}

/* No newline is added: tokenize and detokenize give back the very bytes. */
static tg_status detokenize(const tg_text *t, const tg_args *a, const tg_input *in, tg_term *out,
                            tg_err *e)
{
    char *text = NULL;
    size_t n_bytes = 0;
    tg_buf b = {0};
    if (a->is_set[TG_OPT_SHOW]) {
        tg_tokens ids = {.ids = in->ids, .n = in->n_ids};
        return print_tokens(&(tg_texts){.tokens = &ids, .n = 1}, t, a, out, e);
    }
    TG_TRY(tg_text_detokenize(&text, &n_bytes, t, in->ids, in->n_ids, a->is_set[TG_OPT_NO_SPECIAL],
                              e));
    if (a->is_set[TG_OPT_JSON]) {
        tg_report_begin(&b, NULL);
        tg_report_add_text(&b, "text", (tg_str){text, n_bytes});
        tg_report_end(&b);
        tg_buf_add_byte(&b, '\n');
        tg_term_write(out, tg_buf_str(&b));
    } else {
        tg_term_print(out, (tg_str){text, n_bytes});
    }
    tg_free(text);
    tg_status st = tg_buf_check(&b, e);
    tg_buf_deinit(&b);
    return st;
}

typedef tg_status direction_fn(const tg_text *t, const tg_args *a, const tg_input *in, tg_term *out,
                               tg_err *e);

/* `wants_ids`: what is read are ids, whichever option names it. */
static int run(const tg_args *a, bool wants_ids, direction_fn *direction)
{
    const char *command = tg_commands[a->command].name;
    tg_text *text = NULL;
    tg_input in = {0};
    tg_term out;
    tg_err e = {0};
    if (!tg_input_is_given(a))
        return tg_exit_usage(command, "%s needs something to read: -p or -f", command);
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = tg_input_load(&in, a, wants_ids, &e);
    tg_signals_catch();
    if (s == TG_OK) s = tg_text_open(&text, a->operand, &e);
    if (s == TG_OK && !tg_text_get_info(text).has_tokenizer)
        s = tg_fail(&e, TG_E_UNSUPPORTED, "%s has no tokenizer", a->operand);
    if (s == TG_OK) s = direction(text, a, &in, &out, &e);
    int code = tg_exit_code(s, &e, &out);
    tg_text_close(text);
    tg_input_deinit(&in);
    return code;
}

int tg_run_tokenize(const tg_args *a)
{
    return run(a, false, tokenize);
}

int tg_run_detokenize(const tg_args *a)
{
    return run(a, true, detokenize);
}
