/* SPDX-License-Identifier: Apache-2.0
 * tokenizer.json: any text either is refused with a message or becomes a tokenizer, of which all
 * that tokenizer_use.h says must hold. */
#include "base/log.h"
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void be_quiet(void *context, const char *line)
{
    (void)context;
    (void)line;
}

/* The same few texts for all: what the file says of them is what differs. */
static void use(const tg_tokenizer *t)
{
    check_tokenizer(t, TG_STR("a<m>b  Caf\xc3\xa9 e\xcc\x81 \xe6\x97\xa5 don't 1234\n\n"
                              "\xf0\x9f\x98\x80 <s>AB"));
    check_tokenizer(t, TG_STR("\xef\xac\x81 \xc4\xb0\xc2\xaa\xcc\x80 ab_\xe2\x96\x81"
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\r\n\xe3\x80\x80"));
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
