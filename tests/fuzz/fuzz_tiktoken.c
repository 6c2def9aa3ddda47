/* SPDX-License-Identifier: Apache-2.0
 * tiktoken files: any bytes either are refused with a message or become a tokenizer that
 * encodes and decodes. */
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

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
    tg_err e = {0};
    tg_status s =
        tg_tokenizer_compile_tiktoken(&blob, (tg_str){(const char *)data, size}, &texts, &e);
    check_compiled(s, &blob, &e);
    return 0;
}
