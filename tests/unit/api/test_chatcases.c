/* SPDX-License-Identifier: Apache-2.0
 * Known faults of engines of this kind with chat templates, by the public API and with the
 * vocabularies and templates of real models (tools/models/fetch-vocabs); those cases that need none
 * stand in test_template, test_chat, test_hostile and test_assets. Ids and texts were given by
 * transformers and jinja2 when the cases were collected. */
#include "base/log.h"
#include "check.h"
#include "format_files.h"
#include "trigraph.h"

/* A vocabulary of TG_VOCABS; skips the test where it is not. */
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
    if (!tg_path_is_file(path)) {
        fprintf(stderr, "the vocabulary of %s is not here: see tools/models/fetch-vocabs\n", name);
        skip();
    }
    if (tg_text_open(&t, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return t;
}

/* The prompt of the messages, to be freed; NULL after an error. */
static char *render(const tg_text *t, const char *messages, const tg_chat_options *o, tg_err *e)
{
    char *text = NULL;
    size_t n;
    *e = (tg_err){0};
    if (tg_text_render_chat(&text, &n, t, messages, o, e) != TG_OK) assert_null(text);
    return text;
}

static void assert_prompt(const tg_text *t, const char *messages, const char *want)
{
    tg_err e;
    char *text = render(t, messages, NULL, &e);
    if (!text) fail_msg("%s: %s", messages, e.msg);
    assert_string_equal(text, want);
    tg_free(text);
}

static void assert_ids(const tg_text *t, const char *text, bool is_chat, const int32_t *ids,
                       size_t n)
{
    tg_tokens x;
    tg_err e = {0};
    tg_tokenize_options o = {.no_add_special = is_chat};
    if (tg_text_tokenize(&x, t, text, strlen(text), &o, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(x.n, n);
    assert_memory_equal(x.ids, ids, n * sizeof *ids);
    tg_tokens_deinit(&x);
}

/* One BOS: in a chat the template's, in raw text the tokenizer's where it adds one. This file of
 * Llama 3's says nothing of BOS, so nothing is added, as in transformers. */
static void llama_3_gets_one_bos_in_a_chat(void **state)
{
    (void)state;
    static const int32_t chat[] = {128000, 128006, 882,   128007, 271, 1985,
                                   128009, 128006, 78191, 128007, 271};
    tg_text *t = open_vocab("llama3");
    tg_err e;
    char *text = render(t, "[{\"role\": \"user\", \"content\": \"test\"}]", NULL, &e);
    if (!text) fail_msg("%s", e.msg);
    assert_ids(t, text, true, chat, TG_COUNT(chat));
    tg_free(text);
    assert_ids(t, "test", false, chat + 5, 1);
    static const int32_t typed[] = {128000, 1985};
    assert_ids(t, "<|begin_of_text|>test", false, typed, TG_COUNT(typed));
    tg_text_close(t);
}

static void gemma_3_gets_one_bos_on_every_way(void **state)
{
    (void)state;
    static const int32_t chat[] = {2, 105, 2364, 107, 2181, 106, 107, 105, 4368, 107};
    static const int32_t raw[] = {2, 2181};
    tg_text *t = open_vocab("gemma3");
    tg_err e;
    char *text = render(t, "[{\"role\": \"user\", \"content\": \"test\"}]", NULL, &e);
    if (!text) fail_msg("%s", e.msg);
    assert_ids(t, text, true, chat, TG_COUNT(chat));
    tg_free(text);
    begin_log();
    assert_ids(t, "test", false, raw, TG_COUNT(raw));
    assert_string_equal(test_log, "");
    assert_ids(t, "<bos>test", false, raw, TG_COUNT(raw)); /* the library gives two */
    assert_non_null(strstr(test_log, "it is used once"));
    tg_log_set_sink(NULL, NULL);
    tg_text_close(t);
}

/* Qwen 3 reads text only: its template throws at a list of parts. */
static void qwen_3_gets_the_text_of_parts(void **state)
{
    (void)state;
    const char *want = "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n";
    tg_text *t = open_vocab("qwen3");
    tg_err e;
    assert_prompt(t, "[{\"role\": \"user\", \"content\": \"hi\"}]", want);
    assert_prompt(
        t, "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hi\"}]}]", want);
    assert_prompt(t,
                  "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"hi\"}, "
                  "{\"type\": \"text\", \"text\": \"you\"}]}]",
                  "<|im_start|>user\nhi\nyou<|im_end|>\n<|im_start|>assistant\n");
    char *text = render(t,
                        "[{\"role\": \"user\", \"content\": [{\"type\": \"image_url\", "
                        "\"image_url\": {\"url\": \"x\"}}]}]",
                        NULL, &e);
    assert_null(text);
    assert_int_equal(e.status, TG_E_ARGUMENT);
    assert_says(&e, "messages[0]: content[0] is of type 'image_url'");
    tg_text_close(t);
}

/* Its own template drops what stands before the tag, and rendering is the template's. */
static void qwen_3_drops_what_stands_before_the_end_of_thinking(void **state)
{
    (void)state;
    tg_text *t = open_vocab("qwen3");
    assert_prompt(t,
                  "[{\"role\": \"user\", \"content\": \"q\"}, {\"role\": \"assistant\", "
                  "\"content\": \"hello </think> world\"}, {\"role\": \"user\", \"content\": "
                  "\"r\"}]",
                  "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n world<|im_end|>\n"
                  "<|im_start|>user\nr<|im_end|>\n<|im_start|>assistant\n");
    tg_text_close(t);
}

static void qwen_3_thinks_or_not_as_it_is_told(void **state)
{
    (void)state;
    tg_text *t = open_vocab("qwen3");
    tg_err e;
    tg_chat_options o = {.kwargs = "{\"enable_thinking\": false}"};
    char *text = render(t, "[{\"role\": \"user\", \"content\": \"q\"}]", &o, &e);
    assert_string_equal(text, "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\n"
                              "<think>\n\n</think>\n\n");
    tg_free(text);
    tg_text_close(t);
}

static void gemma_3_folds_the_system_message_and_wants_turns(void **state)
{
    (void)state;
    tg_text *t = open_vocab("gemma3");
    tg_err e;
    assert_prompt(t,
                  "[{\"role\": \"system\", \"content\": \"S\"}, {\"role\": \"user\", \"content\": "
                  "\" hi \"}]",
                  "<bos><start_of_turn>user\nS\n\nhi<end_of_turn>\n<start_of_turn>model\n");
    char *text = render(t,
                        "[{\"role\": \"user\", \"content\": \"a\"}, {\"role\": \"user\", "
                        "\"content\": \"b\"}]",
                        NULL, &e);
    assert_null(text);
    assert_int_equal(e.status, TG_E_ARGUMENT);
    assert_string_equal(e.msg,
                        "Conversation roles must alternate user/assistant/user/assistant/...");
    assert_null(render(t, "[]", NULL, &e));
    assert_says(&e, "messages must be a list of at least one message");
    tg_text_close(t);
}

/* DeepSeek's template joins arguments as text, and looks for calls only where content is null. */
static void deepseek_3_gets_arguments_as_text_and_null_content(void **state)
{
    (void)state;
    static const char form[] =
        "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", %s\"tool_calls\": "
        "[{\"type\": \"function\", \"function\": {\"name\": \"f\", \"arguments\": %s}}]}]";
    static const char *const rows[][2] = {
        {"\"content\": null, ", "\"{\\\"x\\\": 1}\""},
        {"\"content\": null, ", "{\"x\": 1}"},
        {"", "{\"x\": 1}"},
    };
    tg_text *t = open_vocab("deepseek_v3");
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_err e;
        char messages[400];
        snprintf(messages, sizeof messages, form, rows[i][0], rows[i][1]);
        char *text = render(t, messages, NULL, &e);
        if (!text) fail_msg("%s: %s", messages, e.msg);
        assert_non_null(strstr(text, "{\"x\": 1}"));
        assert_null(strstr(text, "None"));
        tg_free(text);
    }
    tg_text_close(t);
}

/* A broken template keeps nobody from completing text. */
static void a_model_with_a_broken_template_tokenizes_and_refuses_to_chat(void **state)
{
    (void)state;
    const char *dir = make_folder();
    tg_buf tokenizer = {0};
    tg_text *t = NULL;
    tg_tokens x;
    tg_err e = {0};
    assert_int_equal(tg_file_load(&tokenizer, "tests/tiny/llama-mqa/tokenizer.json", 1 << 20, &e),
                     TG_OK);
    save_text(dir, "chat_template.jinja", "{% if x %}unclosed");
    const char *path = save_buf(dir, "tokenizer.json", &tokenizer);
    if (tg_text_open(&t, path, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_text_tokenize(&x, t, "hi", 2, NULL, &e), TG_OK);
    assert_true(x.n > 0);
    tg_tokens_deinit(&x);
    assert_null(render(t, "[{\"role\": \"user\", \"content\": \"a\"}]", NULL, &e));
    assert_int_equal(e.status, TG_E_CORRUPT);
    assert_says(&e,
                "chat template 'default': template line 1, column 4: the block that begins here "
                "has no end");
    tg_text_close(t);
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(llama_3_gets_one_bos_in_a_chat),
        cmocka_unit_test(gemma_3_gets_one_bos_on_every_way),
        cmocka_unit_test(qwen_3_gets_the_text_of_parts),
        cmocka_unit_test(qwen_3_drops_what_stands_before_the_end_of_thinking),
        cmocka_unit_test(qwen_3_thinks_or_not_as_it_is_told),
        cmocka_unit_test(gemma_3_folds_the_system_message_and_wants_turns),
        cmocka_unit_test(deepseek_3_gets_arguments_as_text_and_null_content),
        cmocka_unit_test(a_model_with_a_broken_template_tokenizes_and_refuses_to_chat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
