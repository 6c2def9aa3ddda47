/* SPDX-License-Identifier: Apache-2.0
 * fuzz_template.c - a template from a stranger, rendered with a small conversation.
 *
 * Whatever the bytes say, loading and rendering end soon with a text or an error; a text is valid
 * UTF-8, and rendering twice gives the same. Seeds are templates; the context is fixed. */
#include "base/json.h"
#include "base/mem.h"
#include "jinja/template.h"

#include <string.h>

static const char context_text[] =
    "{\"messages\": [{\"role\": \"system\", \"content\": \"Be \\u00e9.\"},"
    " {\"role\": \"user\", \"content\": \"hi <b>\\n 日本 \"},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"function\": {\"name\": \"f\","
    " \"arguments\": {\"x\": [1, 2.5, true, null]}}}]},"
    " {\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"3\"}]}],"
    " \"tools\": [{\"type\": \"function\", \"function\": {\"name\": \"f\"}}],"
    " \"add_generation_prompt\": true, \"bos_token\": \"<s>\", \"eos_token\": \"</s>\","
    " \"n\": -7, \"f\": 0.1}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const tg_template_clock clock = {.utc_s = 1741338303};
    const tg_template_options o = {.max_steps = 100000,
                                   .max_output_bytes = 1 << 20,
                                   .max_memory_bytes = 4 << 20,
                                   .clock = &clock};
    int64_t n_alive = tg_mem_n_alive();
    json_t *context = NULL;
    tg_template *t = NULL;
    tg_err e = {0};
    TG_ASSERT(tg_json_parse(&context, TG_STR(context_text), "context", &e) == TG_OK);
    tg_status s = tg_template_load(&t, (tg_str){(const char *)data, size}, &e);
    TG_ASSERT((s == TG_OK) == (t != NULL));
    TG_ASSERT(s == TG_OK || e.msg[0]);
    if (t) {
        tg_buf once = {0}, again = {0};
        tg_status first = tg_template_render(t, context, &o, &once, &e);
        tg_status second = tg_template_render(t, context, &o, &again, NULL);
        TG_ASSERT(first == second && tg_str_is_equal(tg_buf_str(&once), tg_buf_str(&again)));
        TG_ASSERT(first == TG_OK || once.len == 0);
        TG_ASSERT(tg_utf8_find_invalid(tg_buf_str(&once)) == once.len);
        tg_buf_deinit(&once);
        tg_buf_deinit(&again);
    }
    tg_template_free(t);
    json_decref(context);
    TG_ASSERT(tg_mem_n_alive() == n_alive);
    return 0;
}
