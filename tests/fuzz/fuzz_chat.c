/* SPDX-License-Identifier: Apache-2.0
 * fuzz_chat.c - a conversation from a stranger, brought into the form of a template and rendered.
 *
 * The input is JSON: {"template", "named", "messages", "tools", "documents", "kwargs", "name"}.
 * A missing or mistyped field gets the test's value. Whatever it says, rendering ends with a
 * text or one sentence, the request is as it was, and a second time gives the same. Told from the
 * conversation's own text it is the same too, or refused. */
#include "base/mem.h"
#include "chat/literal.h"

#include <string.h>

static const char template[] =
    "{{ bos_token }}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for c in m.tool_calls or "
    "[] %}{{ c.function.name }}{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static tg_str text_of(const json_t *v, tg_str otherwise)
{
    if (!json_is_string(v)) return otherwise;
    return (tg_str){json_string_value(v), json_string_length(v)};
}

/* Without limits of its own a rendering may end otherwise, so the two are not compared. */
static void check_literal(tg_chat *c, const tg_conversation *q)
{
    static const tg_str texts[] = {{"<s>", 3}, {"<|im_end|>", 10}, {"[INST]", 6}};
    const tg_spellings controls = {texts, TG_COUNT(texts)};
    tg_buf text = {0};
    tg_offsets literal;
    tg_err e = {0};
    tg_status s = tg_chat_render_literal(&text, &literal, c, q, &controls, &e);
    TG_ASSERT(s == TG_OK || e.msg[0]);
    for (int32_t i = 0; i < literal.n; i++)
        TG_ASSERT((size_t)literal.at[i] <= text.len &&
                  (i == 0 || literal.at[i - 1] <= literal.at[i]));
    tg_offsets_deinit(&literal);
    tg_buf_deinit(&text);
}

static void render(const json_t *x)
{
    static const tg_template_options limits = {.max_steps = 100000, .max_memory_bytes = 4 << 20};
    tg_conversation q = {.messages = json_object_get(x, "messages"),
                         .tools = json_object_get(x, "tools"),
                         .documents = json_object_get(x, "documents"),
                         .kwargs = json_object_get(x, "kwargs"),
                         .template_name = json_string_value(json_object_get(x, "name"))};
    tg_chat *c = NULL;
    tg_err e = {0};
    tg_str text = text_of(json_object_get(x, "template"), TG_STR(template));
    tg_str named = text_of(json_object_get(x, "named"), TG_STR(""));
    json_t *copy = json_deep_copy(x);
    if (tg_chat_new(&c, text, named, "m", &e) == TG_OK) {
        tg_buf once = {0}, again = {0};
        TG_ASSERT(tg_chat_set_token(c, "bos_token", TG_STR("<s>"), NULL) == TG_OK);
        tg_status first = tg_chat_render(&once, c, &q, &limits, &e);
        tg_status second = tg_chat_render(&again, c, &q, &limits, NULL);
        TG_ASSERT(first == second && tg_str_is_equal(tg_buf_str(&once), tg_buf_str(&again)));
        TG_ASSERT(first == TG_OK ? tg_utf8_find_invalid(tg_buf_str(&once)) == once.len
                                 : once.len == 0 && e.msg[0]);
        check_literal(c, &q);
        tg_buf_deinit(&once);
        tg_buf_deinit(&again);
    }
    TG_ASSERT(json_equal(x, copy));
    json_decref(copy);
    tg_chat_free(c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int64_t n_alive = tg_mem_n_alive();
    json_t *x = NULL;
    if (tg_json_parse(&x, (tg_str){(const char *)data, size}, "input", NULL) == TG_OK) render(x);
    json_decref(x);
    TG_ASSERT(tg_mem_n_alive() == n_alive);
    return 0;
}
