/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.json: any text either is refused with a message or becomes a tokenizer that encodes and
 * decodes, and whose decoding in pieces equals decoding at once. */
#include "base/log.h"
#include "prompt/tok.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void be_quiet(void *context, const char *line)
{
    (void)context;
    (void)line;
}

static void use(const tg_tokenizer *t)
{
    static const char text[] =
        "a<m>b  Caf\xc3\xa9 e\xcc\x81 \xe6\x97\xa5 don't 1234\n\n\xf0\x9f\x98\x80 <s>AB";
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_buf whole = {0}, pieces = {0};
    tg_encode_options o = {.add_special = true, .parse_special = true, .spans = &spans};
    tg_detok d;
    tg_detok_init(&d, t, true);
    if (tg_tokenizer_encode(&ids, t, (tg_str){text, sizeof text - 1}, &o, NULL) == TG_OK) {
        if (ids.len != spans.len) abort();
        if (tg_tokenizer_decode(&whole, t, ids.ptr, ids.len, true, NULL) != TG_OK) abort();
        for (size_t i = 0; i < ids.len; i++)
            if (tg_detok_push(&d, &pieces, ids.ptr[i], NULL) != TG_OK) abort();
        if (tg_detok_flush(&d, &pieces, NULL) != TG_OK) abort();
        if (!tg_str_is_equal(tg_buf_str(&whole), tg_buf_str(&pieces))) abort();
    }
    tg_detok_deinit(&d);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    tg_buf_deinit(&whole);
    tg_buf_deinit(&pieces);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_log_set_sink(be_quiet, NULL);
    tg_str json = {(const char *)data, size};
    tg_str config = TG_STR("{\"bos_token\":\"<s>\",\"add_bos_token\":true}");
    tg_buf blob = {0};
    tg_tokenizer *t = NULL;
    tg_err e = {0};
    /* The config names a token that few inputs have: the empty one must do as well. */
    tg_status s = tg_tokenizer_compile_json(&blob, json, size % 2 ? config : (tg_str){0}, &e);
    if (s == TG_OK) {
        /* What the compiler wrote opens, or one of its patterns does not compile. */
        if (tg_tokenizer_open(&t, blob.ptr, blob.len, &e) != TG_OK) abort();
        use(t);
    } else if (!e.msg[0]) {
        abort();
    }
    tg_tokenizer_close(t);
    tg_buf_deinit(&blob);
    return 0;
}
