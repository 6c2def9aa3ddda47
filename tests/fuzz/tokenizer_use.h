/* SPDX-License-Identifier: Apache-2.0
 * tokenizer_use.h - what must hold of every tokenizer that the compiler made, whatever the text: it
 * is refused when it is not UTF-8, and never without a sentence; asking for spans changes no id;
 * spans lie in the text; and both ways of decoding give the same whole characters. */
#ifndef TG_TESTS_FUZZ_TOKENIZER_USE_H
#define TG_TESTS_FUZZ_TOKENIZER_USE_H

#include "base/log.h"
#include "token/compile/tokcompile.h"

#include <stdlib.h>
#include <string.h>

static inline void must(bool holds)
{
    if (!holds) abort();
}

/* All ids at once, and one by one. */
static inline void check_decoding(const tg_tokenizer *t, const tg_ids *ids, bool skip)
{
    tg_buf whole = {0}, pieces = {0};
    tg_detok d;
    tg_status status = tg_tokenizer_decode(&whole, t, ids->ptr, ids->len, skip, NULL);
    tg_detok_init(&d, t, skip);
    for (size_t i = 0; i < ids->len && status == TG_OK; i++) {
        size_t before = pieces.len;
        must(tg_detok_push(&d, &pieces, ids->ptr[i], NULL) == TG_OK);
        if (pieces.len == before) continue;
        tg_str piece = {pieces.ptr + before, pieces.len - before};
        must(tg_utf8_find_invalid(piece) == piece.len);
    }
    if (status == TG_OK) {
        must(tg_detok_flush(&d, &pieces, NULL) == TG_OK);
        must(tg_str_is_equal(tg_buf_str(&whole), tg_buf_str(&pieces)));
        must(!whole.len || tg_utf8_find_invalid(tg_buf_str(&whole)) == whole.len);
    }
    tg_detok_deinit(&d);
    tg_buf_deinit(&whole);
    tg_buf_deinit(&pieces);
}

static inline void check_encoding(const tg_tokenizer *t, tg_str text, tg_encode_options o)
{
    tg_ids ids = {0}, same = {0};
    tg_spans spans = {0};
    tg_err e = {0};
    bool is_text = text.len == 0 || tg_utf8_find_invalid(text) == text.len;
    tg_status status = tg_tokenizer_encode(&same, t, text, &o, &e);
    must(is_text || status == TG_E_ARGUMENT);
    must(status == TG_OK || e.msg[0]);
    o.spans = &spans;
    must(tg_tokenizer_encode(&ids, t, text, &o, NULL) == status);
    if (status == TG_OK) {
        must(ids.len == same.len && spans.len == ids.len);
        must(!ids.len || memcmp(ids.ptr, same.ptr, ids.len * sizeof *ids.ptr) == 0);
        for (size_t i = 0; i < spans.len; i++)
            must(spans.ptr[i].begin >= 0 && spans.ptr[i].begin <= spans.ptr[i].end &&
                 (size_t)spans.ptr[i].end <= text.len);
        check_decoding(t, &ids, false);
        check_decoding(t, &ids, true);
    }
    tg_ids_deinit(&ids);
    tg_ids_deinit(&same);
    tg_spans_deinit(&spans);
}

/* Every way of encoding the text; then its bytes, taken for ids, to be decoded. */
static inline void check_tokenizer(const tg_tokenizer *t, tg_str text)
{
    for (int k = 0; k < 4; k++)
        check_encoding(t, text, (tg_encode_options){.add_special = k & 1, .parse_special = k & 2});
    tg_ids ids = {0};
    int32_t n = tg_tokenizer_n_vocab(t);
    for (size_t i = 0; n && i < text.len && i < 200; i++) {
        uint32_t flags;
        int32_t id = (int32_t)((uint8_t)text.ptr[i] * (i % 3 + 1)) % n;
        tg_tokenizer_get_token(t, id, &flags);
        if (!(flags & TG_TOKEN_HOLE)) tg_ids_push(&ids, id);
    }
    check_decoding(t, &ids, false);
    check_decoding(t, &ids, true);
    tg_ids_deinit(&ids);
}

static inline void be_quiet(void *context, const char *line)
{
    (void)context;
    (void)line;
}

/* The compiler's result for an input: a blob that opens and a tokenizer that keeps the rules over
 * the same few texts for all, or a refusal in words. */
static inline void check_compiled(tg_status status, tg_buf *blob, const tg_err *e)
{
    tg_tokenizer *t = NULL;
    must(status == TG_OK || e->msg[0]);
    if (status == TG_OK) {
        must(tg_tokenizer_open(&t, blob->ptr, blob->len, NULL) == TG_OK);
        check_tokenizer(t, TG_STR("a<m>b  Caf\xc3\xa9 e\xcc\x81 \xe6\x97\xa5 don't 1234\n\n"
                                  "\xf0\x9f\x98\x80 <s>AB"));
        check_tokenizer(t,
                        TG_STR("\xef\xac\x81 \xc4\xb0\xc2\xaa\xcc\x80 ab_\xe2\x96\x81"
                               "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\xe3\x80\x80"));
        check_tokenizer(t, TG_STR(" a<u>b  Caf\xc3\xa9 \xe2\x96\x81 \xf0\x9f\x98\x80 <s>AB\n\n "));
    }
    tg_tokenizer_close(t);
    tg_buf_deinit(blob);
}

#endif
