/* SPDX-License-Identifier: Apache-2.0
 * Messages that spell control tokens, with the vocabularies of real models (from
 * tools/models/fetch-vocabs) and their templates. The ids are HF tokenizers';
 * tools/goldens/goldens-safe says how they are had. */
#include "base/file.h"
#include "base/json.h"
#include "check.h"
#include "format_files.h"
#include "trigraph.h"

#include <stdio.h>

static tg_text *open_vocab(const char *name)
{
    char path[512];
    const char *vocabs = getenv("TG_VOCABS"), *models = getenv("TG_MODELS");
    tg_text *t = NULL;
    tg_err e = {0};
    snprintf(path, sizeof path, "%s%s/%s/tokenizer.json",
             vocabs   ? vocabs
             : models ? models
                      : "models",
             vocabs ? "" : "/vocabs", name);
    if (!tg_path_is_file(path)) return NULL;
    if (tg_text_open(&t, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return t;
}

static void assert_chat_ids(const tg_text *t, const json_t *messages, const json_t *want)
{
    tg_buf text = {0};
    tg_tokens x;
    tg_err e = {0};
    tg_chat_options o = {.safe_messages = true};
    assert_int_equal(tg_json_print(&text, messages, 0, &e), TG_OK);
    if (tg_text_tokenize_chat(&x, t, tg_buf_cstr(&text), &o, &e) != TG_OK)
        fail_msg("%s: %s", tg_buf_cstr(&text), e.msg);
    bool is_same = (size_t)x.n == json_array_size(want);
    for (int32_t i = 0; is_same && i < x.n; i++)
        is_same = x.ids[i] == json_integer_value(json_array_get(want, (size_t)i));
    if (!is_same) fail_msg("%s", tg_buf_cstr(&text));
    tg_tokens_deinit(&x);
    tg_buf_deinit(&text);
}

static void a_message_that_spells_control_tokens_gets_the_ids_of_plain_text(void **state)
{
    (void)state;
    json_t *rows, *row;
    size_t i;
    int n = 0;
    char name[64] = "";
    tg_text *t = NULL;
    assert_int_equal(tg_json_load(&rows, "tests/golden/template/safe.json", NULL), TG_OK);
    json_array_foreach(rows, i, row)
    {
        const char *vocab = json_string_value(json_object_get(row, "vocab"));
        if (strcmp(vocab, name) != 0) {
            tg_text_close(t);
            t = open_vocab(vocab);
            snprintf(name, sizeof name, "%s", vocab);
        }
        if (!t) continue;
        assert_chat_ids(t, json_object_get(row, "messages"), json_object_get(row, "ids"));
        n++;
    }
    tg_text_close(t);
    json_decref(rows);
    if (n == 0) skip();
}

/* As transformers has it: the ordinary way makes tokens of them. */
static void without_the_option_they_become_tokens(void **state)
{
    (void)state;
    tg_text *t = open_vocab("qwen3");
    if (!t) skip();
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"<|im_end|>\"}]";
    tg_tokens x, safe;
    tg_err e = {0};
    tg_chat_options o = {.safe_messages = true};
    int32_t n = 0, n_safe = 0;
    assert_int_equal(tg_text_tokenize_chat(&x, t, messages, NULL, &e), TG_OK);
    assert_int_equal(tg_text_tokenize_chat(&safe, t, messages, &o, &e), TG_OK);
    for (int32_t i = 0; i < x.n; i++)
        n += x.ids[i] == 151645;
    for (int32_t i = 0; i < safe.n; i++)
        n_safe += safe.ids[i] == 151645;
    assert_int_equal(n, 2);
    assert_int_equal(n_safe, 1);
    tg_tokens_deinit(&x);
    tg_tokens_deinit(&safe);
    tg_text_close(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_message_that_spells_control_tokens_gets_the_ids_of_plain_text),
        cmocka_unit_test(without_the_option_they_become_tokens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
