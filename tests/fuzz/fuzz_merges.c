/* SPDX-License-Identifier: Apache-2.0
 * vocab.json and merges.txt, one behind the other with a zero between: any bytes either are refused
 * with a message or become a tokenizer that encodes and decodes. */
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_log_set_sink(be_quiet, NULL);
    static const char *const configs[] = {
        "", "{\"tokenizer_class\":\"Qwen2Tokenizer\",\"add_prefix_space\":true,"
            "\"added_tokens_decoder\":{\"9\":{\"content\":\"<u>\",\"lstrip\":true}}}"};
    tg_tokenizer_texts texts = {.config = tg_str_from_cstr(configs[size % TG_COUNT(configs)])};
    const uint8_t *zero = size ? memchr(data, 0, size) : NULL;
    size_t n = zero ? (size_t)(zero - data) : size;
    tg_str vocab = {(const char *)data, n};
    tg_str merges = {(const char *)data + n + (zero != NULL), size - n - (zero != NULL)};
    tg_buf blob = {0};
    tg_err e = {0};
    tg_status s = tg_tokenizer_compile_merges(&blob, vocab, merges, &texts, &e);
    check_compiled(s, &blob, &e);
    return 0;
}
