/* SPDX-License-Identifier: Apache-2.0
 * SentencePiece models: any bytes either are refused with a message or become a tokenizer that
 * encodes and decodes. */
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_log_set_sink(be_quiet, NULL);
    tg_tokenizer_texts texts = {
        .config = TG_STR("{\"add_eos_token\":true,\"legacy\":false,\"added_tokens_decoder\":"
                         "{\"9\":{\"content\":\"<u>\",\"lstrip\":true}}}")};
    tg_buf blob = {0};
    tg_err e = {0};
    /* The config renames a piece that few inputs have: the empty one must do as well. */
    if (size % 2) texts = (tg_tokenizer_texts){0};
    tg_status s =
        tg_tokenizer_compile_sentencepiece(&blob, (tg_str){(const char *)data, size}, &texts, &e);
    check_compiled(s, &blob, &e);
    return 0;
}
