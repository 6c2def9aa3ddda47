/* SPDX-License-Identifier: Apache-2.0 Which chat templates a checkpoint brings, and which of two
 * wins: the rules of transformers 5.24 (PreTrainedTokenizerBase._from_pretrained), and GGUF's keys
 * as llama.cpp's converter writes them. */
#include "api/assets.h"
#include "check.h"
#include "format_files.h"

#include <stdio.h>

typedef struct place {
    const char *dir;
    int64_t alive;
} place;

static place begin(void)
{
    begin_log();
    return (place){make_folder(), tg_mem_n_alive()};
}

static void end(place p)
{
    assert_int_equal(tg_mem_n_alive(), p.alive);
    remove_folder(p.dir);
}

/* A folder with a config and one tensor. */
static place begin_folder(void)
{
    place p = begin();
    tg_buf b = {0};
    put_safetensors(&b, "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
    save_buf(p.dir, "model.safetensors", &b);
    save_text(p.dir, "config.json", "{\"model_type\":\"llama\"}");
    return p;
}

/* A file with one tensor and these texts. */
static const char *save_gguf(const char *dir, const char *const (*kvs)[2], size_t n)
{
    static const uint64_t dims[] = {4};
    tg_buf b = {0};
    put_header(&b, 3, 1, n + 1);
    put_kv_str(&b, "general.architecture", "llama");
    for (size_t i = 0; i < n; i++)
        put_kv_str(&b, kvs[i][0], kvs[i][1]);
    put_tensor(&b, "a", 1, dims, GGUF_F32, 0);
    put_padding(&b, 32);
    put_zeros(&b, 16);
    return save_buf(dir, "m.gguf", &b);
}

static tg_status read_assets(tg_assets *p, const char *path, tg_err *e)
{
    tg_checkpoint *c = NULL;
    *e = (tg_err){0};
    if (tg_checkpoint_open(&c, path, e) != TG_OK) fail_msg("%s", e->msg);
    tg_status s = tg_assets_read(p, c, e);
    tg_checkpoint_close(c);
    return s;
}

/* `named` is JSON on one line, or "". */
static void assert_templates(const char *path, const char *chat, const char *named)
{
    tg_assets p;
    tg_err e;
    tg_buf line = {0};
    json_t *v = NULL;
    if (read_assets(&p, path, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_string_equal(tg_buf_cstr(&p.chat), chat);
    if (p.named.len) {
        assert_int_equal(tg_json_parse(&v, tg_buf_str(&p.named), "named", &e), TG_OK);
        assert_int_equal(tg_json_print(&line, v, 0, &e), TG_OK);
    }
    assert_string_equal(tg_buf_cstr(&line), named);
    json_decref(v);
    tg_buf_deinit(&line);
    tg_assets_deinit(&p);
}

static void assert_refused(const char *path, const char *words)
{
    tg_assets p;
    tg_err e;
    assert_int_not_equal(read_assets(&p, path, &e), TG_OK);
    assert_says(&e, words);
}

static void a_template_of_the_config_is_the_default(void **state)
{
    (void)state;
    place p = begin_folder();
    assert_templates(p.dir, "", "");
    save_text(p.dir, "tokenizer_config.json", "{\"chat_template\": \"config é\"}");
    assert_templates(p.dir, "config é", "");
    save_text(p.dir, "tokenizer_config.json",
              "{\"chat_template\": [{\"name\": \"tool_use\", \"template\": \"T\"}, "
              "{\"name\": \"default\", \"template\": \"D\"}]}");
    assert_templates(p.dir, "D", "{\"tool_use\": \"T\"}");
    save_text(p.dir, "tokenizer_config.json", "{\"chat_template\": null}");
    assert_templates(p.dir, "", "");
    end(p);
}

static void files_win_over_the_config(void **state)
{
    (void)state;
    place p = begin_folder();
    save_text(p.dir, "tokenizer_config.json",
              "{\"chat_template\": [{\"name\": \"default\", \"template\": \"D\"}, "
              "{\"name\": \"old\", \"template\": \"O\"}]}");
    save_text(p.dir, "additional_chat_templates/rag.jinja", "R");
    assert_templates(p.dir, "D", "{\"rag\": \"R\"}");
    save_text(p.dir, "additional_chat_templates/tool_use.jinja", "T");
    save_text(p.dir, "additional_chat_templates/notes.md", "no template");
    save_text(p.dir, "chat_template.jinja", "J\n");
    assert_templates(p.dir, "J\n", "{\"rag\": \"R\", \"tool_use\": \"T\"}");
    end(p);
}

static void the_file_of_processors_counts_where_nothing_else_does(void **state)
{
    (void)state;
    place p = begin_folder();
    save_text(p.dir, "chat_template.json", "{\"chat_template\": \"P\"}");
    assert_templates(p.dir, "P", "");
    save_text(p.dir, "tokenizer_config.json", "{\"chat_template\": \"config\"}");
    assert_templates(p.dir, "config", "");
    end(p);
}

static void gguf_keeps_templates_under_keys_of_their_names(void **state)
{
    (void)state;
    static const char *const kvs[][2] = {
        {"tokenizer.chat_template.tool_use", "T"},
        {"tokenizer.chat_template", "D"},
        {"tokenizer.chat_template.rag", "R"},
    };
    place p = begin();
    const char *path = save_gguf(p.dir, kvs, TG_COUNT(kvs));
    assert_templates(path, "D", "{\"tool_use\": \"T\", \"rag\": \"R\"}");
    path = save_gguf(p.dir, kvs, 1);
    assert_templates(path, "", "{\"tool_use\": \"T\"}");
    path = save_gguf(p.dir, NULL, 0);
    assert_templates(path, "", "");
    end(p);
}

static void a_template_that_cannot_be_used_is_said_and_the_model_stays(void **state)
{
    (void)state;
    static const char *const rows[] = {"{% if x %}", "{{ x|no_such_filter }}"};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        place p = begin_folder();
        save_text(p.dir, "chat_template.jinja", rows[i]);
        assert_templates(p.dir, rows[i], "");
        if (!strstr(test_log, "chat template 'default': template line 1, column") ||
            !strstr(test_log, "the model continues text, and chat refuses"))
            fail_msg("%s", test_log);
        end(p);
    }
    place p = begin_folder();
    save_text(p.dir, "chat_template.jinja", "");
    assert_templates(p.dir, "", "");
    end(p);
}

static void a_chat_template_of_another_type_is_refused(void **state)
{
    (void)state;
    place p = begin_folder();
    save_text(p.dir, "tokenizer_config.json", "{\"chat_template\": 5}");
    assert_refused(p.dir,
                   "tokenizer_config.json: key 'chat_template' is neither a text nor a list");
    save_text(p.dir, "tokenizer_config.json", "{\"chat_template\": [{\"name\": \"x\"}]}");
    assert_refused(p.dir, "chat_template[0] is no object with a \"name\" and a \"template\"");
    save_text(p.dir, "tokenizer_config.json",
              "{\"chat_template\": [{\"name\": \"\", \"template\": \"x\"}]}");
    assert_refused(p.dir, "a chat template has a name of 0 bytes");
    save_file(p.dir, "chat_template.jinja", "a\xff", 2);
    assert_refused(p.dir,
                   "chat_template.jinja: the chat template 'default' is not UTF-8 at byte 1");
    size_t n = 64u << 20;
    char *big = calloc(1, n);
    memset(big, 'x', n);
    save_file(p.dir, "chat_template.jinja", big, n);
    free(big);
    assert_refused(p.dir, "of 67108864 bytes is longer than the limit of 262144");
    end(p);
}

/* C17, C36: the model of 300 ids. */
static void assert_stops(const char *path, tg_status status, const char *stops_or_words)
{
    tg_assets p;
    tg_checkpoint *c = NULL;
    tg_err e = {0};
    tg_buf line = {0};
    if (tg_checkpoint_open(&c, path, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_status s = tg_assets_read(&p, c, &e);
    if (s == TG_OK) {
        s = tg_assets_check_ids(&p, c, 300, &e);
        const json_t *ids = json_object_get(p.defaults, "stop_ids");
        assert_int_equal(tg_json_print(&line, ids, 0, NULL), TG_OK);
        tg_assets_deinit(&p);
    }
    if (s != status) fail_msg("status %d instead of %d: %s", s, status, e.msg);
    if (s == TG_OK)
        assert_string_equal(tg_buf_cstr(&line), stops_or_words);
    else
        assert_says(&e, stops_or_words);
    tg_buf_deinit(&line);
    tg_checkpoint_close(c);
}

static void an_end_is_an_id_that_the_model_has(void **state)
{
    (void)state;
    static const struct {
        const char *eos;
        tg_status status;
        const char *says;
    } rows[] = {
        {"null", TG_OK, "[]"},
        {"-1", TG_OK, "[]"},
        {"0", TG_OK, "[0]"},
        {"299", TG_OK, "[299]"},
        {"[5, 6, 5]", TG_OK, "[5, 6]"},
        {"300", TG_E_CORRUPT,
         "token 300 ends a completion (eos_token_id of config.json), but the model's ids end at 299"},
        {"[1, 4294967297]", TG_E_CORRUPT, "token 4294967297"},
        {"-2", TG_E_CORRUPT, "config.json: key 'eos_token_id' is neither an id nor a list"},
        {"2.0", TG_E_CORRUPT, "config.json: key 'eos_token_id' is neither an id nor a list"},
        {"\"</s>\"", TG_E_CORRUPT, "config.json: key 'eos_token_id' is neither an id nor a list"},
        {"[\"</s>\"]", TG_E_CORRUPT, "config.json: key 'eos_token_id' is neither an id nor a list"},
    };
    place p = begin_folder();
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char config[128];
        snprintf(config, sizeof config, "{\"model_type\":\"llama\",\"eos_token_id\":%s}",
                 rows[i].eos);
        save_text(p.dir, "config.json", config);
        assert_stops(p.dir, rows[i].status, rows[i].says);
    }
    end(p);
}

/* A GGUF file of one string key and one u32 key. */
static const char *save_ids(const char *dir, const char *key, uint32_t id)
{
    tg_buf b = {0};
    put_header(&b, 3, 0, 2);
    put_kv_str(&b, "general.architecture", "llama");
    put_kv_u32(&b, key, id);
    put_padding(&b, 32);
    return save_buf(dir, "m.gguf", &b);
}

static void an_end_that_the_model_lacks_is_reported_under_its_own_key(void **state)
{
    (void)state;
    static const char *const keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id",
                                       "tokenizer.ggml.eom_token_id"};
    place p = begin_folder();
    for (size_t i = 0; i < TG_COUNT(keys); i++) {
        char want[128];
        snprintf(want, sizeof want, "token 4294967295 ends a completion (%s)", keys[i]);
        assert_stops(save_ids(p.dir, keys[i], UINT32_MAX), TG_E_CORRUPT, want);
        assert_stops(save_ids(p.dir, keys[i], 299), TG_OK, "[299]");
    }
    end(p);
}

static void assert_named_once(const char *path, const char *words)
{
    tg_assets p;
    tg_checkpoint *c = NULL;
    tg_err e = {0};
    if (tg_checkpoint_open(&c, path, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_assets_read(&p, c, &e), TG_E_CORRUPT);
    assert_says(&e, words);
    const char *first = strstr(e.msg, "m.gguf:");
    assert_non_null(first);
    if (strstr(first + 1, "m.gguf:")) fail_msg("twice: %s", e.msg);
    tg_checkpoint_close(c);
}

static void a_message_names_the_gguf_file_once(void **state)
{
    (void)state;
    place p = begin_folder();
    const char *const kvs[][2] = {{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.tokens", "a"}};
    assert_named_once(save_gguf(p.dir, kvs, 1), "tokenizer.ggml.tokens is absent or empty");
    assert_named_once(save_gguf(p.dir, kvs, 2), "key 'tokenizer.ggml.tokens' is string");
    assert_named_once(save_ids(p.dir, "tokenizer.chat_template", 7),
                      "key 'tokenizer.chat_template'");
    assert_named_once(save_ids(p.dir, "tokenizer.chat_template.x", 7), "is no text");
    const char *const named[][2] = {{"tokenizer.chat_template.", "a"}};
    assert_named_once(save_gguf(p.dir, named, 1), "a name of 0 bytes");
    end(p);
}

/* transformers' logits processors refuse these when they are made. */
static void sampling_out_of_range_is_found_in_generation_config(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"\"top_k\": -1", "generation_config.json: top_k is -1"},
        {"\"top_k\": -5000000000", "generation_config.json: top_k is -1"},
        {"\"top_p\": 1.5", "generation_config.json: top_p is 1.5"},
        {"\"top_p\": -0.5", "generation_config.json: top_p is -0.5"},
        {"\"min_p\": 2", "generation_config.json: min_p is 2"},
        {"\"temperature\": -1", "generation_config.json: temperature is -1"},
        {"\"temperature\": 1e300", "generation_config.json: temperature is inf"},
        {"\"repetition_penalty\": -2", "generation_config.json: repeat_penalty is -2"},
    };
    place p = begin_folder();
    save_text(p.dir, "config.json", "{\"model_type\":\"llama\"}");
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char text[128];
        snprintf(text, sizeof text, "{\"do_sample\": true, %s}", rows[i][0]);
        save_text(p.dir, "generation_config.json", text);
        assert_stops(p.dir, TG_E_ARGUMENT, rows[i][1]);
        snprintf(text, sizeof text, "{\"do_sample\": false, %s}", rows[i][0]);
        save_text(p.dir, "generation_config.json", text); /* which nothing reads */
        assert_stops(p.dir, TG_OK, "[]");
    }
    end(p);
}

/* transformers' embedding has vocab_size rows: an id beyond it is an IndexError. */
static void text_becomes_only_ids_that_the_model_has(void **state)
{
    (void)state;
    tg_assets p;
    tg_checkpoint *c = NULL;
    tg_err e = {0};
    if (tg_checkpoint_open(&c, "tests/tiny/llama-mqa", &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_assets_read(&p, c, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(p.n_vocab, 288);
    assert_int_equal(tg_assets_check_ids(&p, c, 288, &e), TG_OK);
    assert_int_equal(tg_assets_check_ids(&p, c, p.n_plain, &e), TG_OK);
    json_array_clear(json_object_get(p.defaults, "stop_ids"));
    assert_int_equal(tg_assets_check_ids(&p, c, 1, &e), TG_E_CORRUPT);
    assert_says(&e, "but the model's end at 0: correct vocab_size");
    tg_assets_deinit(&p);
    tg_checkpoint_close(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_template_of_the_config_is_the_default),
        cmocka_unit_test(files_win_over_the_config),
        cmocka_unit_test(the_file_of_processors_counts_where_nothing_else_does),
        cmocka_unit_test(gguf_keeps_templates_under_keys_of_their_names),
        cmocka_unit_test(a_template_that_cannot_be_used_is_said_and_the_model_stays),
        cmocka_unit_test(a_chat_template_of_another_type_is_refused),
        cmocka_unit_test(an_end_is_an_id_that_the_model_has),
        cmocka_unit_test(an_end_that_the_model_lacks_is_reported_under_its_own_key),
        cmocka_unit_test(a_message_names_the_gguf_file_once),
        cmocka_unit_test(sampling_out_of_range_is_found_in_generation_config),
        cmocka_unit_test(text_becomes_only_ids_that_the_model_has),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
