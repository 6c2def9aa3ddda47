/* SPDX-License-Identifier: Apache-2.0
 * tiktoken files: any bytes either are refused with a message or become a tokenizer that
 * encodes and decodes. */
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
    static const char text[] = " a<u>b  Caf\xc3\xa9 \xe2\x96\x81 \xf0\x9f\x98\x80 <s>AB\n\n ";
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_buf out = {0};
    tg_encode_options o = {.add_special = true, .parse_special = true, .spans = &spans};
    if (tg_tokenizer_encode(&ids, t, (tg_str){text, sizeof text - 1}, &o, NULL) == TG_OK) {
        if (ids.len != spans.len) abort();
        if (tg_tokenizer_decode(&out, t, ids.ptr, ids.len, false, NULL) != TG_OK) abort();
    }
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    tg_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_log_set_sink(be_quiet, NULL);
    static const char *const configs[] = {
        "{\"tokenizer_class\":\"QWenTokenizer\"}",
        ("{\"tokenizer_class\":\"TikTokenTokenizer\",\"added_tokens_decoder\":"
         "{\"300\":{\"content\":\"<u>\",\"lstrip\":true}}}"),
        "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}"};
    tg_tokenizer_texts texts = {.config = tg_str_from_cstr(configs[size % TG_COUNT(configs)])};
    tg_buf blob = {0};
    tg_tokenizer *t = NULL;
    tg_err e = {0};
    tg_status s =
        tg_tokenizer_compile_tiktoken(&blob, (tg_str){(const char *)data, size}, &texts, &e);
    if (s == TG_OK) {
        if (tg_tokenizer_open(&t, blob.ptr, blob.len, &e) != TG_OK) abort();
        use(t);
    } else if (!e.msg[0]) {
        abort();
    }
    tg_tokenizer_close(t);
    tg_buf_deinit(&blob);
    return 0;
}
