/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.json: any text either is refused with a message or becomes a tokenizer that keeps
 * the rules of tokenizer_use.h. */
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_log_set_sink(be_quiet, NULL);
    tg_str json = {(const char *)data, size};
    tg_str config = TG_STR("{\"bos_token\":\"<s>\",\"add_bos_token\":true}");
    tg_buf blob = {0};
    tg_err e = {0};
    /* The config names a token that few inputs have: the empty one must do as well. */
    tg_status s = tg_tokenizer_compile_json(&blob, json, size % 2 ? config : (tg_str){0}, &e);
    check_compiled(s, &blob, &e);
    return 0;
}
