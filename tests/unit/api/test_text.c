/* SPDX-License-Identifier: Apache-2.0
 * Tokenizer and templates without weights, by the public API. Ids and rendered text are those that
 * transformers gave for the tiny checkpoint (its expected.json); byte ranges are the offsets of
 * tokenizers 0.23, counted in bytes. */
#include "base/file.h"
#include "base/json.h"
#include "check.h"
#include "format_files.h"
#include "trigraph.h"

static const char *const tiny = "tests/tiny/llama-mqa";

/* expected.json of the tiny checkpoint. */
static json_t *load_expected(void)
{
    json_t *d = NULL;
    tg_err e = {0};
    if (tg_json_load(&d, "tests/tiny/llama-mqa/expected.json", &e) != TG_OK) fail_msg("%s", e.msg);
    return d;
}

static tg_text *open_text(const char *path)
{
    tg_text *t = NULL;
    tg_err e = {0};
    if (tg_text_open(&t, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return t;
}

static tg_tokens tokenize(const tg_text *t, const char *text, const tg_tokenize_options *o)
{
    tg_tokens x;
    tg_err e = {0};
    if (tg_text_tokenize(&x, t, text, strlen(text), o, &e) != TG_OK) fail_msg("%s", e.msg);
    return x;
}

static void assert_ids(const tg_tokens *x, const json_t *wanted)
{
    assert_int_equal(x->n, json_array_size(wanted));
    for (int32_t i = 0; i < x->n; i++)
        assert_int_equal(x->ids[i], json_integer_value(json_array_get(wanted, (size_t)i)));
}

/* The folder, one file of it, and an artifact of it are one tokenizer. */
static void every_form_of_a_checkpoint_gives_the_ids_of_transformers(void **state)
{
    (void)state;
    int64_t alive = tg_mem_n_alive();
    json_t *d = load_expected();
    char dir[128];
    tg_err e = {0};
    snprintf(dir, sizeof dir, "%s/m.tg", make_folder());
    if (tg_export(tiny, dir, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    const char *const paths[] = {tiny, "tests/tiny/llama-mqa/tokenizer.json",
                                 "tests/tiny/llama-mqa/chat_template.jinja", dir};
    for (size_t i = 0; i < TG_COUNT(paths); i++) {
        tg_text *t = open_text(paths[i]);
        const char *text = json_string_value(json_object_get(d, "text"));
        tg_tokens x = tokenize(t, text, NULL);
        assert_ids(&x, json_object_get(d, "text_ids"));
        assert_null(x.ranges);
        tg_text_info info = tg_text_get_info(t);
        assert_true(info.has_tokenizer);
        assert_int_equal(info.n_templates, 1);
        assert_string_equal(tg_text_get_template_name(t, 0), "default");
        assert_int_equal(info.n_vocab, 288);
        assert_int_equal(info.bos_id, 0);
        assert_int_equal(info.eos_id, 1);
        assert_int_equal(info.pad_id, 2);
        assert_int_equal(info.unk_id, -1);
        tg_tokens_deinit(&x);
        tg_text_close(t);
    }
    json_decref(d);
    snprintf(dir + strlen(dir) - strlen("/m.tg"), 1, "%s", "");
    remove_folder(dir);
    assert_int_equal(tg_mem_n_alive(), alive);
}

static void ranges_are_the_bytes_of_the_text_that_an_id_stands_for(void **state)
{
    (void)state;
    static const int32_t ids[] = {3, 41, 87, 88, 17, 71, 73, 279, 11, 132, 107, 88, 132, 107, 35};
    static const tg_byte_range ranges[] = {{0, 8},   {8, 9},   {9, 10},  {10, 11}, {11, 12},
                                           {12, 13}, {13, 14}, {14, 16}, {16, 17}, {17, 19},
                                           {17, 19}, {19, 20}, {20, 22}, {20, 22}, {22, 23}};
    tg_text *t = open_text(tiny);
    tg_tokens x = tokenize(t, "<|user|>Est-ce l'\xc3\xa9t\xc3\xa9?",
                           &(tg_tokenize_options){.has_ranges = true});
    assert_int_equal(x.n, TG_COUNT(ids));
    for (int32_t i = 0; i < x.n; i++) {
        assert_int_equal(x.ids[i], ids[i]);
        bool is_part = x.ids[i] == 132 || x.ids[i] == 107; /* one byte of two */
        int32_t begin = ranges[i].begin + (is_part && x.ids[i] == 107);
        int32_t end = ranges[i].end - (is_part && x.ids[i] == 132);
        bool is_byte = x.ranges[i].begin == begin && x.ranges[i].end == end;
        assert_true(is_byte || (is_part && x.ranges[i].begin == ranges[i].begin &&
                                x.ranges[i].end == ranges[i].end));
    }
    tg_tokens_deinit(&x);
    tg_text_close(t);
}

/* A batch is its texts alone, whatever the threads; a bad text is named, and nothing is left. */
static void a_batch_gives_what_each_text_gives_alone(void **state)
{
    (void)state;
    enum { N = 40 };
    int64_t alive = tg_mem_n_alive();
    tg_text *t = open_text(tiny);
    char lines[N][64];
    const char *texts[N];
    size_t n_bytes[N];
    tg_tokens all[N];
    tg_err e = {0};
    for (int i = 0; i < N; i++) {
        n_bytes[i] = (size_t)snprintf(lines[i], sizeof lines[i], "<|user|> boat %d of %d", i, N);
        texts[i] = lines[i];
    }
    n_bytes[7] = 0;
    for (int32_t n_threads = 0; n_threads < 4; n_threads++) {
        tg_tokenize_options o = {.has_ranges = n_threads % 2, .n_threads = n_threads};
        if (tg_text_tokenize_batch(all, t, texts, n_bytes, N, &o, &e) != TG_OK)
            fail_msg("%s", e.msg);
        for (int i = 0; i < N; i++) {
            tg_tokens one;
            assert_int_equal(tg_text_tokenize(&one, t, texts[i], n_bytes[i], &o, &e), TG_OK);
            assert_int_equal(all[i].n, one.n);
            if (one.n) assert_memory_equal(all[i].ids, one.ids, (size_t)one.n * sizeof *one.ids);
            if (one.n && o.has_ranges)
                assert_memory_equal(all[i].ranges, one.ranges, (size_t)one.n * sizeof *one.ranges);
            tg_tokens_deinit(&one);
            tg_tokens_deinit(&all[i]);
        }
    }
    memcpy(lines[31], "\xff", 2);
    assert_int_not_equal(tg_text_tokenize_batch(all, t, texts, n_bytes, N, NULL, &e), TG_OK);
    assert_non_null(strstr(e.msg, "text 31 of 40"));
    for (int i = 0; i < N; i++)
        assert_true(!all[i].ids && !all[i].n);
    assert_int_equal(tg_text_tokenize_batch(NULL, t, NULL, NULL, 0, NULL, &e), TG_OK);
    tg_text_close(t);
    assert_int_equal(tg_mem_n_alive(), alive);
}

static void special_tokens_in_foreign_text_are_plain_text(void **state)
{
    (void)state;
    tg_text *t = open_text(tiny);
    tg_tokens x = tokenize(t, "<|user|>", &(tg_tokenize_options){.no_parse_special = true});
    assert_true(x.n > 1);
    for (int32_t i = 0; i < x.n; i++)
        assert_int_not_equal(x.ids[i], 3);
    tg_tokens_deinit(&x);
    x = tokenize(t, "<|user|>", NULL);
    assert_int_equal(x.n, 1);
    assert_int_equal(x.ids[0], 3);
    tg_tokens_deinit(&x);
    tg_text_close(t);
}

/* Pushed one by one, every id's text is whole characters, and all together the text. */
static void text_comes_back_whole_and_piece_by_piece(void **state)
{
    (void)state;
    json_t *d = load_expected();
    tg_text *t = open_text(tiny);
    const char *text = json_string_value(json_object_get(d, "text"));
    tg_tokens x = tokenize(t, text, NULL);
    char *whole = NULL;
    size_t n_whole = 0, n = 0;
    const char *piece;
    tg_err e = {0};
    assert_int_equal(tg_text_detokenize(&whole, &n_whole, t, x.ids, x.n, true, &e), TG_OK);
    assert_string_equal(whole, text);
    tg_detokenizer *detok = NULL;
    tg_buf sum = {0};
    assert_int_equal(tg_detokenizer_new(&detok, t, true, &e), TG_OK);
    for (int round = 0; round < 2; round++) { /* after a flush it starts over */
        tg_buf_clear(&sum);
        for (int32_t i = 0; i < x.n; i++) {
            assert_int_equal(tg_detokenizer_push(&piece, &n, detok, x.ids[i], &e), TG_OK);
            assert_int_equal(tg_utf8_find_invalid((tg_str){piece, n}), n);
            tg_buf_add(&sum, piece, n);
        }
        assert_int_equal(tg_detokenizer_flush(&piece, &n, detok, &e), TG_OK);
        tg_buf_add(&sum, piece, n);
        assert_string_equal(tg_buf_cstr(&sum), text);
    }
    assert_int_equal(tg_detokenizer_push(&piece, &n, detok, 288, &e), TG_E_ARGUMENT);
    assert_non_null(
        strstr(e.msg, "id 288 at place 0 is no token; the vocabulary has ids 0 to 287"));
    tg_detokenizer_free(detok);
    tg_buf_deinit(&sum);
    tg_tokens_deinit(&x);
    tg_free(whole);
    tg_text_close(t);
    json_decref(d);
}

static void a_token_is_shown_with_its_bytes_and_flags(void **state)
{
    (void)state;
    tg_text *t = open_text(tiny);
    tg_token token;
    char *spelling = NULL;
    tg_err e = {0};
    assert_int_equal(tg_text_get_token(&token, t, 279, &e), TG_OK); /* "Ġl" */
    assert_int_equal(token.n_bytes, 2);
    assert_memory_equal(token.bytes, " l", 2);
    assert_false(token.is_special || token.is_added);
    assert_int_equal(tg_text_print_token(&spelling, t, 279, &e), TG_OK);
    assert_string_equal(spelling, "\xc4\xa0l");
    tg_free(spelling);
    assert_int_equal(tg_text_get_token(&token, t, 3, &e), TG_OK);
    assert_true(token.is_special && token.is_added);
    assert_int_equal(token.n_bytes, strlen("<|user|>"));
    static const int32_t wrong[] = {-1, 288, INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < TG_COUNT(wrong); i++) {
        e = (tg_err){0};
        assert_int_equal(tg_text_get_token(&token, t, wrong[i], &e), TG_E_ARGUMENT);
        assert_non_null(strstr(e.msg, "the vocabulary has ids 0 to 287"));
    }
    tg_text_close(t);
}

static void a_chat_is_rendered_as_transformers_renders_it(void **state)
{
    (void)state;
    json_t *d = load_expected();
    tg_text *t = open_text(tiny);
    tg_buf messages = {0};
    tg_err e = {0};
    char *text = NULL;
    size_t n_bytes = 0;
    assert_int_equal(tg_json_print(&messages, json_object_get(d, "chat"), 0, &e), TG_OK);
    if (tg_text_render_chat(&text, &n_bytes, t, tg_buf_cstr(&messages), NULL, &e) != TG_OK)
        fail_msg("%s", e.msg);
    assert_string_equal(text, json_string_value(json_object_get(d, "chat_text")));
    assert_int_equal(n_bytes, strlen(text));
    tg_tokens x = tokenize(t, text, &(tg_tokenize_options){.no_add_special = true});
    assert_ids(&x, json_object_get(d, "chat_ids"));
    tg_tokens_deinit(&x);
    size_t n_whole = n_bytes;
    tg_free(text);
    tg_chat_options o = {.no_generation_prompt = true};
    assert_int_equal(tg_text_render_chat(&text, &n_bytes, t, tg_buf_cstr(&messages), &o, &e),
                     TG_OK);
    assert_int_equal(n_bytes, n_whole - strlen("<|assistant|>\n"));
    tg_free(text);
    tg_buf_deinit(&messages);
    tg_text_close(t);
    json_decref(d);
}

/* {messages, tools, documents, kwargs, name} and words of the refusal. */
static void what_is_no_conversation_is_refused_with_a_sentence(void **state)
{
    (void)state;
    static const struct {
        const char *messages;
        tg_chat_options o;
        const char *words;
    } cases[] = {
        {"[]", {0}, "at least one message"},
        {"{}", {0}, "must be a list"},
        {"[", {0}, "messages"},
        {"", {0}, "messages"},
        {"[{\"role\":\"user\",\"content\":18446744073709551616}]", {0}, "too big integer"},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", {.tools = "{}"}, "tools"},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", {.tools = "x"}, "tools"},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", {.documents = "1"}, "documents"},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", {.kwargs = "[]"}, "template variables"},
        {"[{\"role\":\"user\",\"content\":\"a\"}]", {.template_name = "rag"}, "'rag'"},
    };
    tg_text *t = open_text(tiny);
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        char *text = NULL;
        size_t n = 0;
        tg_err e = {0};
        assert_int_not_equal(tg_text_render_chat(&text, &n, t, cases[i].messages, &cases[i].o, &e),
                             TG_OK);
        assert_null(text);
        if (!strstr(e.msg, cases[i].words)) fail_msg("%zu: %s", i, e.msg);
    }
    tg_text_close(t);
}

static void a_path_without_texts_is_said_to_be_one(void **state)
{
    (void)state;
    int64_t alive = tg_mem_n_alive();
    const char *dir = make_folder();
    tg_text *t = NULL;
    tg_err e = {0};
    assert_int_equal(tg_text_open(&t, dir, &e), TG_E_UNSUPPORTED);
    assert_null(t);
    assert_non_null(strstr(e.msg, "has neither a tokenizer nor a chat template"));
    e = (tg_err){0};
    assert_int_not_equal(tg_text_open(&t, "nothing/here.json", &e), TG_OK);
    assert_non_null(strstr(e.msg, "nothing/here.json"));

    /* A template alone renders, and has no ids to give. */
    const char *path = save_file(dir, "only.jinja", "{{ messages[0].content }}", 25);
    t = open_text(path);
    char *text = NULL;
    size_t n = 0;
    tg_tokens x;
    e = (tg_err){0};
    assert_false(tg_text_get_info(t).has_tokenizer);
    assert_int_equal(tg_text_render_chat(&text, &n, t, "[{\"content\":\"hi\"}]", NULL, &e), TG_OK);
    assert_string_equal(text, "hi");
    tg_free(text);
    assert_int_equal(tg_text_tokenize(&x, t, "hi", 2, NULL, &e), TG_E_UNSUPPORTED);
    assert_null(x.ids);
    tg_text_close(t);
    remove_folder(dir);
    assert_int_equal(tg_mem_n_alive(), alive);
}

/* Opens, reads, writes and renders; what became of it. */
static tg_status use_everything(const char *path)
{
    static const char *const texts[] = {"one", "<|user|>two", ""};
    static const size_t n_bytes[] = {3, 11, 0};
    static const char messages[] = "[{\"role\": \"user\", \"content\": \"<|eos|>\"}]";
    tg_tokenize_options o = {.has_ranges = true, .n_threads = 2};
    tg_chat_options chat = {.tools = "[]", .kwargs = "{\"a\": 1}", .safe_messages = true};
    tg_tokens tokens[3] = {0}, one = {0}, prompt = {0};
    tg_text *t = NULL;
    tg_detokenizer *d = NULL;
    char *text = NULL, *whole = NULL, *spelling = NULL;
    const char *piece;
    size_t n;
    tg_status s = tg_text_open(&t, path, NULL);
    if (s == TG_OK) s = tg_text_tokenize(&one, t, texts[1], n_bytes[1], &o, NULL);
    if (s == TG_OK) s = tg_text_tokenize_batch(tokens, t, texts, n_bytes, 3, &o, NULL);
    if (s == TG_OK) s = tg_text_detokenize(&whole, &n, t, one.ids, one.n, false, NULL);
    if (s == TG_OK) s = tg_text_print_token(&spelling, t, 279, NULL);
    if (s == TG_OK) s = tg_detokenizer_new(&d, t, false, NULL);
    for (int32_t i = 0; s == TG_OK && i < one.n; i++)
        s = tg_detokenizer_push(&piece, &n, d, one.ids[i], NULL);
    if (s == TG_OK) s = tg_detokenizer_flush(&piece, &n, d, NULL);
    if (s == TG_OK) s = tg_text_render_chat(&text, &n, t, messages, &chat, NULL);
    if (s == TG_OK) s = tg_text_tokenize_chat(&prompt, t, messages, &chat, NULL);
    for (int i = 0; i < 3; i++)
        tg_tokens_deinit(&tokens[i]);
    tg_tokens_deinit(&one);
    tg_tokens_deinit(&prompt);
    tg_detokenizer_free(d);
    tg_free(text);
    tg_free(whole);
    tg_free(spelling);
    tg_text_close(t);
    return s;
}

/* Of this thread's; the batch's other thread is not refused any, and does its work. */
static void refused_memory_is_an_error_wherever_it_happens(void **state)
{
    (void)state;
    char dir[128];
    tg_err e = {0};
    snprintf(dir, sizeof dir, "%s/m.tg", make_folder());
    if (tg_export(tiny, dir, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    int64_t alive = tg_mem_n_alive();
    const char *const paths[] = {dir, tiny};
    for (size_t i = 0; i < TG_COUNT(paths); i++) {
        /* A source is compiled, with thousands of allocations: some of them. */
        int64_t stride = i == 0 ? 1 : 151, n = 0;
        for (;; n += stride) {
            tg_mem_fail_after(n);
            tg_status s = use_everything(paths[i]);
            tg_mem_fail_after(-1);
            assert_int_equal(tg_mem_n_alive(), alive);
            if (s == TG_OK) break;
            assert_int_equal(s, TG_E_NOMEM);
        }
        assert_true(n > 20);
    }
    *strrchr(dir, '/') = 0;
    remove_folder(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_of_a_checkpoint_gives_the_ids_of_transformers),
        cmocka_unit_test(ranges_are_the_bytes_of_the_text_that_an_id_stands_for),
        cmocka_unit_test(a_batch_gives_what_each_text_gives_alone),
        cmocka_unit_test(special_tokens_in_foreign_text_are_plain_text),
        cmocka_unit_test(text_comes_back_whole_and_piece_by_piece),
        cmocka_unit_test(a_token_is_shown_with_its_bytes_and_flags),
        cmocka_unit_test(a_chat_is_rendered_as_transformers_renders_it),
        cmocka_unit_test(what_is_no_conversation_is_refused_with_a_sentence),
        cmocka_unit_test(a_path_without_texts_is_said_to_be_one),
        cmocka_unit_test(refused_memory_is_an_error_wherever_it_happens),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
