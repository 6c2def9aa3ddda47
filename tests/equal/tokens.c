/* SPDX-License-Identifier: Apache-2.0
 * tokens.c - what our tokenizer makes of many texts, as bytes for tests/equal/compare-tokens.
 *
 * usage: tokens TOKENIZER.JSON <records >columns
 *
 * A record is a kind (one byte), a length (uint32) and that many bytes: 't' and a text, or 'i' and
 * ids (int32) to decode. A column is a length (uint64) and that many bytes; they come in the order
 * of `column` below, each with what all records gave, one after another.
 *
 * Decoding is done at once and id by id, and the two must agree: every piece whole characters, all
 * of them together the text at once. That and the order of offsets are checked here; whether any of
 * it is right is for the Python side, which knows the reference. */
#include "base/file.h"
#include "token/compile/tokcompile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum column {
    REFUSED,     /* uint8 a text: 1 where encoding ended with an error */
    PLAIN_N,     /* uint32 a text: ids without what the post-processor adds */
    PLAIN_IDS,   /* int32 */
    PLAIN_SPANS, /* int32 [2], bytes */
    FULL_N,      /* uint32 a text: ids with it */
    FULL_IDS,    /* int32 */
    LITERAL_N,   /* uint32 a text: special tokens in the text taken as text */
    LITERAL_IDS, /* int32 */
    TEXT_N,      /* uint32 a record: bytes of the decoded text, of the ids with what is added */
    TEXT,        /* bytes */
    SKIPPED_N,   /* uint32 a record: the same without special tokens */
    SKIPPED,     /* bytes */
    COLUMN_COUNT
} column;

typedef struct work {
    tg_tokenizer *t;
    tg_buf columns[COLUMN_COUNT];
    tg_ids ids;
    tg_spans spans;
    tg_buf whole, pieces;
    size_t record;
} work;

static _Noreturn void stop(const work *w, const char *what, const tg_err *e)
{
    fprintf(stderr, "tokens: error: record %zu: %s%s%s\n", w->record, what, e ? ": " : "",
            e ? e->msg : "");
    exit(1);
}

static void add(work *w, column c, const void *bytes, size_t n)
{
    if (n) tg_buf_add(&w->columns[c], bytes, n);
}

static void add_count(work *w, column c, size_t n)
{
    uint32_t count = (uint32_t)n;
    add(w, c, &count, sizeof count);
}

/* ---- decoding */

static void decode_by_pieces(work *w, const int32_t *ids, size_t n, bool skip)
{
    tg_err e = {0};
    tg_detok d;
    tg_buf_clear(&w->pieces);
    tg_detok_init(&d, w->t, skip);
    for (size_t i = 0; i <= n; i++) {
        size_t before = w->pieces.len;
        tg_status s =
            i < n ? tg_detok_push(&d, &w->pieces, ids[i], &e) : tg_detok_flush(&d, &w->pieces, &e);
        if (s != TG_OK) stop(w, "a piece", &e);
        if (w->pieces.len == before) continue;
        tg_str piece = {w->pieces.ptr + before, w->pieces.len - before};
        if (tg_utf8_find_invalid(piece) != piece.len) stop(w, "a piece breaks a character", NULL);
    }
    tg_detok_deinit(&d);
    if (!tg_str_is_equal(tg_buf_str(&w->pieces), tg_buf_str(&w->whole)))
        stop(w, "the pieces together are not the text at once", NULL);
}

static void decode(work *w, const int32_t *ids, size_t n)
{
    for (int skip = 0; skip < 2; skip++) {
        tg_err e = {0};
        tg_buf_clear(&w->whole);
        if (tg_tokenizer_decode(&w->whole, w->t, ids, n, skip, &e) != TG_OK) stop(w, "decode", &e);
        decode_by_pieces(w, ids, n, skip);
        add_count(w, skip ? SKIPPED_N : TEXT_N, w->whole.len);
        add(w, skip ? SKIPPED : TEXT, w->whole.ptr, w->whole.len);
    }
}

/* ---- encoding */

/* A text that one way of encoding refuses, every way must refuse. */
static bool encode(work *w, tg_str text, tg_encode_options o, column counts, column ids)
{
    tg_err e = {0};
    tg_ids_clear(&w->ids);
    tg_spans_clear(&w->spans);
    bool is_done = tg_tokenizer_encode(&w->ids, w->t, text, &o, &e) == TG_OK;
    if (!is_done) {
        if (!e.msg[0]) stop(w, "refused without a sentence", NULL);
        tg_ids_clear(&w->ids);
    }
    add_count(w, counts, w->ids.len);
    add(w, ids, w->ids.ptr, w->ids.len * sizeof *w->ids.ptr);
    return is_done;
}

static void check_spans(const work *w, tg_str text)
{
    if (w->spans.len != w->ids.len) stop(w, "not one span an id", NULL);
    for (size_t i = 0; i < w->spans.len; i++) {
        tg_span s = w->spans.ptr[i];
        if (s.begin < 0 || s.begin > s.end || (size_t)s.end > text.len)
            stop(w, "a span outside the text", NULL);
    }
}

static void encode_text(work *w, tg_str text)
{
    tg_encode_options plain = {.parse_special = true, .spans = &w->spans};
    bool is_done = encode(w, text, plain, PLAIN_N, PLAIN_IDS);
    if (is_done) {
        check_spans(w, text);
        add(w, PLAIN_SPANS, w->spans.ptr, w->spans.len * sizeof *w->spans.ptr);
    }
    bool is_literal_done = encode(w, text, (tg_encode_options){0}, LITERAL_N, LITERAL_IDS);
    tg_encode_options full = {.add_special = true, .parse_special = true};
    if (encode(w, text, full, FULL_N, FULL_IDS) != is_done)
        stop(w, "refused only with, or only without, special tokens", NULL);
    uint8_t is_refused = !is_done || !is_literal_done;
    add(w, REFUSED, &is_refused, 1);
    decode(w, w->ids.ptr, w->ids.len);
}

/* ---- files */

static void open_tokenizer(work *w, tg_buf *blob, const char *path)
{
    tg_buf json = {0};
    tg_err e = {0};
    tg_status s = tg_file_load(&json, path, 1 << 28, &e);
    if (s == TG_OK) s = tg_tokenizer_compile_json(blob, tg_buf_str(&json), (tg_str){0}, &e);
    if (s == TG_OK) s = tg_tokenizer_open(&w->t, blob->ptr, blob->len, &e);
    tg_buf_deinit(&json);
    if (s == TG_OK) return;
    fprintf(stderr, "tokens: error: %s: %s\n", path, e.msg);
    exit(s == TG_E_UNSUPPORTED ? 3 : 1);
}

static bool read_record(char *kind, tg_buf *bytes)
{
    uint32_t n;
    tg_buf_clear(bytes);
    if (fread(kind, 1, 1, stdin) != 1) return false;
    if (fread(&n, sizeof n, 1, stdin) != 1) return false;
    for (size_t left = n, k; left; left -= k) {
        char part[65536];
        k = fread(part, 1, TG_MIN(left, sizeof part), stdin);
        if (k == 0) return false;
        tg_buf_add(bytes, part, k);
    }
    return true;
}

static void write_columns(work *w)
{
    for (int c = 0; c < COLUMN_COUNT; c++) {
        tg_buf *b = &w->columns[c];
        uint64_t n = b->len;
        if (b->is_failed) stop(w, "memory is short", NULL);
        if (fwrite(&n, sizeof n, 1, stdout) != 1 || fwrite(b->ptr, 1, b->len, stdout) != b->len)
            stop(w, "could not write", NULL);
        tg_buf_deinit(b);
    }
    if (fflush(stdout) != 0) stop(w, "could not write", NULL);
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        fprintf(stderr, "usage: tokens TOKENIZER.JSON <records >columns\n");
        return 2;
    }
    work w = {0};
    tg_buf blob = {0}, bytes = {0};
    char kind;
    open_tokenizer(&w, &blob, argv[1]);
    for (; read_record(&kind, &bytes); w.record++) {
        if (kind == 't') {
            encode_text(&w, tg_buf_str(&bytes));
        } else {
            tg_ids_clear(&w.ids);
            for (size_t i = 0; i + 4 <= bytes.len; i += 4) {
                int32_t id;
                memcpy(&id, bytes.ptr + i, sizeof id);
                tg_ids_push(&w.ids, id);
            }
            decode(&w, w.ids.ptr, w.ids.len);
        }
    }
    write_columns(&w);
    tg_tokenizer_close(w.t);
    tg_buf_deinit(&blob);
    tg_buf_deinit(&bytes);
    tg_buf_deinit(&w.whole);
    tg_buf_deinit(&w.pieces);
    tg_ids_deinit(&w.ids);
    tg_spans_deinit(&w.spans);
    return 0;
}
