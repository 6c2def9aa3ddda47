/* SPDX-License-Identifier: Apache-2.0
 * Hugging Face folders: which files count, what they hold, and which faults are named. */
#include "unit/format/checkpoint_files.h"

static void a_folder_is_read_with_all_its_text_files(void **state)
{
    (void)state;
    place p = begin();
    save_sharded(p.dir);
    save_text(p.dir, "generation_config.json", "{\"eos_token_id\":[1,2]}");
    save_text(p.dir, "tokenizer_config.json", "{\"bos_token\":{\"content\":\"<s>\"}}");
    save_text(p.dir, "tokenizer.json", "{}");
    save_text(p.dir, "chat_template.jinja", "");
    save_text(p.dir, "additional_chat_templates/rag.jinja", "rag text");
    save_text(p.dir, "additional_chat_templates/notes.txt", "no template");
    tg_checkpoint *c = open_good(p.dir);
    assert_int_equal(tg_checkpoint_get_kind(c), TG_CHECKPOINT_HF);
    assert_int_equal(tg_checkpoint_n_tensors(c), 2);
    assert_non_null(tg_checkpoint_find_tensor(c, TG_STR("b")));
    assert_null(tg_checkpoint_find_tensor(c, TG_STR("c")));
    const json_t *config = tg_checkpoint_get_json(c, TG_HF_CONFIG);
    assert_string_equal(json_string_value(json_object_get(config, "model_type")), "llama");
    assert_int_equal(json_object_size(tg_checkpoint_get_json(c, TG_HF_GENERATION_CONFIG)), 1);
    assert_null(tg_checkpoint_get_json(c, TG_HF_TOKENIZER));
    assert_true(tg_str_is(tg_checkpoint_get_text(c, TG_HF_TOKENIZER), "{}"));
    tg_str template = tg_checkpoint_get_text(c, TG_HF_CHAT_TEMPLATE);
    assert_non_null(template.ptr); /* there, and empty */
    assert_int_equal(template.len, 0);
    assert_int_equal(tg_checkpoint_n_templates(c), 1);
    assert_string_equal(tg_checkpoint_get_template(c, 0)->name, "rag");
    assert_true(tg_str_is(tg_checkpoint_get_template(c, 0)->text, "rag text"));
    assert_null(tg_checkpoint_get_gguf(c));
    /* 5 parts, 1 template, the index, 2 shards */
    assert_int_equal(tg_checkpoint_n_files(c), 9);
    const tg_source_file *f = tg_checkpoint_get_file(c, 0);
    assert_string_equal(f->part, "config.json");
    assert_int_equal(f->n_bytes, 22);
    assert_true(f->mtime_ns > 0);
    assert_string_equal(test_log, "");
    end(p, c);
}

/* Only texts: what a path gives, or the words of its refusal. */
static tg_checkpoint *open_texts(const char *dir, const char *name)
{
    char path[512];
    tg_checkpoint *c = NULL;
    tg_err e = {0};
    snprintf(path, sizeof path, "%s%s", dir, name);
    if (tg_checkpoint_open_texts(&c, path, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_checkpoint_n_tensors(c), 0);
    return c;
}

static bool has_part(const tg_checkpoint *c, tg_hf_part part, const char *text)
{
    return tg_str_is(tg_checkpoint_get_text(c, part), text);
}

static void texts_are_read_where_weights_are_missing(void **state)
{
    (void)state;
    place p = begin();
    save_text(p.dir, "config.json", "no JSON, and not read");
    save_text(p.dir, "tokenizer_config.json", "{\"a\":1}");
    save_text(p.dir, "tokenizer.json", "{}");
    save_text(p.dir, "chat_template.jinja", "x");
    save_text(p.dir, "other.json", "[]");
    save_text(p.dir, "other.jinja", "y");
    tg_checkpoint *c = open_texts(p.dir, "");
    assert_null(tg_checkpoint_get_json(c, TG_HF_CONFIG));
    assert_int_equal(json_object_size(tg_checkpoint_get_json(c, TG_HF_TOKENIZER_CONFIG)), 1);
    assert_true(has_part(c, TG_HF_TOKENIZER, "{}") && has_part(c, TG_HF_CHAT_TEMPLATE, "x"));
    tg_checkpoint_close(c);

    /* One file stands in place of the folder's own of its kind. */
    c = open_texts(p.dir, "/tokenizer.json");
    assert_true(has_part(c, TG_HF_TOKENIZER, "{}") && has_part(c, TG_HF_CHAT_TEMPLATE, "x"));
    tg_checkpoint_close(c);
    c = open_texts(p.dir, "/other.json");
    assert_true(has_part(c, TG_HF_TOKENIZER, "[]") && has_part(c, TG_HF_CHAT_TEMPLATE, "x"));
    assert_non_null(strstr(tg_checkpoint_get_part_path(c, TG_HF_TOKENIZER), "/other.json"));
    tg_checkpoint_close(c);
    c = open_texts(p.dir, "/other.jinja");
    assert_true(has_part(c, TG_HF_TOKENIZER, "{}") && has_part(c, TG_HF_CHAT_TEMPLATE, "y"));
    tg_checkpoint_close(c);
    c = open_texts(p.dir, "/tokenizer_config.json");
    assert_true(has_part(c, TG_HF_TOKENIZER, "{}"));
    assert_int_equal(json_object_size(tg_checkpoint_get_json(c, TG_HF_TOKENIZER_CONFIG)), 1);
    end(p, c);
}

/* One vocabulary: tokenizer.json, else tokenizer.model, else tiktoken's; what lies beside only
 * where tokenizer.json does not say it all. */
static void one_vocabulary_of_a_folder_is_read(void **state)
{
    (void)state;
    place p = begin();
    save_text(p.dir, "a.tiktoken", "a");
    save_text(p.dir, "added_tokens.json", "added");
    tg_checkpoint *c = open_texts(p.dir, "");
    assert_true(has_part(c, TG_HF_TIKTOKEN, "a") && has_part(c, TG_HF_ADDED_TOKENS, "added"));
    assert_non_null(strstr(tg_checkpoint_get_part_path(c, TG_HF_TIKTOKEN), "/a.tiktoken"));
    tg_checkpoint_close(c);
    save_text(p.dir, "b.tiktoken", "b");
    char path[512];
    tg_err e = {0};
    snprintf(path, sizeof path, "%s", p.dir);
    assert_int_equal(tg_checkpoint_open_texts(&c, path, &e), TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "a.tiktoken and b.tiktoken"));
    c = open_texts(p.dir, "/b.tiktoken");
    assert_true(has_part(c, TG_HF_TIKTOKEN, "b"));
    tg_checkpoint_close(c);
    save_text(p.dir, "tokenizer.model", "m");
    c = open_texts(p.dir, "");
    assert_true(has_part(c, TG_HF_TOKENIZER_MODEL, "m"));
    assert_null(tg_checkpoint_get_text(c, TG_HF_TIKTOKEN).ptr);
    tg_checkpoint_close(c);
    save_text(p.dir, "tokenizer.json", "{}");
    c = open_texts(p.dir, "");
    assert_true(has_part(c, TG_HF_TOKENIZER, "{}"));
    assert_null(tg_checkpoint_get_text(c, TG_HF_TOKENIZER_MODEL).ptr);
    assert_null(tg_checkpoint_get_text(c, TG_HF_ADDED_TOKENS).ptr);
    tg_checkpoint_close(c);
    /* A file that is named wins over the order. */
    c = open_texts(p.dir, "/tokenizer.model");
    assert_true(has_part(c, TG_HF_TOKENIZER_MODEL, "m") &&
                has_part(c, TG_HF_ADDED_TOKENS, "added"));
    assert_null(tg_checkpoint_get_text(c, TG_HF_TOKENIZER).ptr);
    end(p, c);
}

static void absent_text_files_are_absent(void **state)
{
    (void)state;
    place p = begin();
    save_text(p.dir, "config.json", "{}");
    save_weights(p.dir, "model.safetensors", U8_TENSOR("a"), 4);
    tg_checkpoint *c = open_good(p.dir);
    for (int i = TG_HF_GENERATION_CONFIG; i < TG_HF_PART_COUNT; i++) {
        assert_null(tg_checkpoint_get_json(c, (tg_hf_part)i));
        assert_null(tg_checkpoint_get_text(c, (tg_hf_part)i).ptr);
    }
    assert_non_null(strstr(tg_checkpoint_get_part_path(c, TG_HF_TOKENIZER), "/tokenizer.json"));
    assert_int_equal(tg_checkpoint_n_templates(c), 0);
    end(p, c);
}

/* C27 */
static void the_index_is_authoritative(void **state)
{
    (void)state;
    place p = begin();
    save_sharded(p.dir);
    /* Strays with other values of the same tensors, and a tensor the index does not list. */
    save_weights(p.dir, "model.safetensors", U8_TENSOR("a"), 4);
    save_weights(p.dir, "consolidated.safetensors", U8_TENSOR("b"), 4);
    save_weights(p.dir, "model-00002-of-00002.safetensors",
                 "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                 "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[4,8]}}",
                 8);
    tg_checkpoint *c = open_good(p.dir);
    assert_int_equal(tg_checkpoint_n_tensors(c), 2);
    const tg_tensor *a = tg_checkpoint_find_tensor(c, TG_STR("a"));
    const tg_tensor *b = tg_checkpoint_find_tensor(c, TG_STR("b"));
    assert_non_null(strstr(a->file, "model-00001-of-00002.safetensors"));
    assert_int_equal(*(const uint8_t *)b->data, 4);
    assert_non_null(strstr(test_log, "1 tensors are not in the index and are not used, such as 'a' "
                                     "in "));
    end(p, c);
}

static void faults_of_the_index_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *index, *words;
    } cases[] = {
        {"{\"weight_map\":{\"a\":\"model-00003-of-00003.safetensors\"}}",
         "index.json: lists the file model-00003-of-00003.safetensors, which is missing"},
        {"{\"weight_map\":{\"zz\":\"model-00001-of-00002.safetensors\"}}",
         "puts tensor 'zz' into model-00001-of-00002.safetensors, which does not hold it"},
        {"{\"weight_map\":{\"a\":\"../model-00001-of-00002.safetensors\"}}",
         "is said to be in '../model-00001-of-00002.safetensors', which is no plain file name"},
        {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"..\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"\"}}", "no plain file name"},
        {"{\"weight_map\":{\"a\":\"\\u001b[2J\"}}", "is said to be in '\\x1b[2J'"},
        {"{\"weight_map\":{\"a\":\"pytorch_model.bin\"}}", "which is no safetensors file"},
        {"{\"weight_map\":{\"a\":1}}", "the file of tensor 'a' is no string"},
        {"{\"weight_map\":[]}", "has no \"weight_map\" object"},
        {"[]", "has no \"weight_map\" object"},
        {"{\"weight_map\":{\"a\":\"x.safetensors\",\"a\":\"y.safetensors\"}}", "duplicate"},
        {"{", "index.json: line 1"},
        {"{\"a\": \x1b[2J}", "near '\\x1b'"},
        {"", "index.json: line 1"},
    };
    place p = begin();
    save_sharded(p.dir);
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        save_text(p.dir, "model.safetensors.index.json", cases[i].index);
        assert_refused(p.dir, cases[i].words);
    }
    end(p, NULL);
}

static void folders_without_an_index_need_one_file(void **state)
{
    (void)state;
    place p = begin();
    char path[128];
    save_text(p.dir, "config.json", "{}");
    assert_refused(p.dir, "has no weights: no safetensors file is in it");
    save_text(p.dir, "pytorch_model.bin", "x");
    assert_refused(p.dir, "has weights only as pytorch_model.bin, which is not read");
    save_weights(p.dir, "consolidated.safetensors", U8_TENSOR("a"), 4);
    assert_refused(p.dir, "which is not read");
    save_weights(p.dir, "one.safetensors", U8_TENSOR("a"), 4);
    tg_checkpoint *c = open_good(p.dir); /* the only one, whatever its name */
    tg_checkpoint_close(c);
    save_weights(p.dir, "two.safetensors", U8_TENSOR("a"), 4);
    assert_refused(p.dir, "has 2 safetensors files and no model.safetensors.index.json");
    save_weights(p.dir, "model.safetensors", U8_TENSOR("b"), 4);
    c = open_good(p.dir);
    assert_non_null(tg_checkpoint_find_tensor(c, TG_STR("b")));
    tg_checkpoint_close(c);
    snprintf(path, sizeof path, "%s/model.safetensors", p.dir);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(symlink("/nonexistent/blob", path), 0);
    assert_refused(p.dir, "the download did not finish");
    end(p, NULL);
}

/* C28 */
static void a_tensor_left_out_at_saving_is_found_by_its_note(void **state)
{
    (void)state;
    place p = begin();
    save_text(p.dir, "config.json", "{}");
    save_weights(p.dir, "model.safetensors",
                 "{\"__metadata__\":{\"format\":\"pt\",\"lm_head.weight\":\"embed.weight\","
                 "\"gone\":\"nowhere\"},"
                 "\"embed.weight\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
                 4);
    tg_checkpoint *c = open_good(p.dir);
    assert_int_equal(tg_checkpoint_n_tensors(c), 1);
    assert_ptr_equal(tg_checkpoint_find_tensor(c, TG_STR("lm_head.weight")),
                     tg_checkpoint_get_tensor(c, 0));
    assert_null(tg_checkpoint_find_tensor(c, TG_STR("gone")));
    end(p, c);
}

/* C14 */
static void an_absent_tensor_is_called_absent_with_the_nearest_name(void **state)
{
    (void)state;
    place p = begin();
    const tg_tensor *t = NULL;
    tg_err e = {0};
    save_text(p.dir, "config.json", "{}");
    save_weights(p.dir, "model.safetensors", U8_TENSOR("model.norm.weight"), 4);
    tg_checkpoint *c = open_good(p.dir);
    tg_str name = TG_STR("model.norms.weight");
    assert_int_equal(tg_checkpoint_get_named_tensor(c, name, &t, &e), TG_E_CORRUPT);
    assert_says(&e, "has no tensor 'model.norms.weight'; the nearest is 'model.norm.weight'");
    end(p, c);
}

/* C37 where it concerns reading. Python's json would take the duplicates, the lone surrogate, NaN
 * and the infinities; no key of a model we know needs them, and each hides a mistake. */
static void config_files_that_are_not_strict_json_are_refused_with_their_line(void **state)
{
    (void)state;
    static const struct {
        const char *text, *words;
    } cases[] = {
        {"\xef\xbb\xbf{}", "config.json: line 1"},
        {"{\n// comment\n\"a\":1}", "config.json: line 2"},
        {"{\"a\":1,\n}", "config.json: line 2"},
        {"{\"a\":1,\n\"a\":2}", "config.json: line 2"},
        {"{\"a\":\"\xff\"}", "config.json: line 1"},
        {"{\"a\":\"\\ud800\"}", "config.json: line 1"},
        {"{\"a\":1e999}", "config.json: line 1"},
        {"{\"a\":1,\n\"b\":NaN}", "config.json: line 2"},
        {"{\"a\":Infinity}", "config.json: line 1"},
        {"{\"a\":1} x", "config.json: line 1"},
        {"", "config.json: line 1"},
        {"[1]", "config.json: is no JSON object"},
        {"3", "config.json: is no JSON object"},
    };
    place p = begin();
    save_weights(p.dir, "model.safetensors", U8_TENSOR("a"), 4);
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        save_text(p.dir, "config.json", cases[i].text);
        assert_refused(p.dir, cases[i].words);
    }
    tg_buf deep = {0};
    tg_buf_add_cstr(&deep, "{\"a\":");
    for (int i = 0; i < 5000; i++)
        tg_buf_add_byte(&deep, '[');
    for (int i = 0; i < 5000; i++)
        tg_buf_add_byte(&deep, ']');
    tg_buf_add_byte(&deep, '}');
    save_buf(p.dir, "config.json", &deep);
    assert_refused(p.dir, "maximum parsing depth");

    tg_buf digits = {0};
    tg_buf_add_cstr(&digits, "{\"a\":0.");
    for (int i = 0; i < 300; i++)
        tg_buf_add_byte(&digits, '1');
    tg_buf_add_byte(&digits, '}');
    save_buf(p.dir, "config.json", &digits);
    tg_checkpoint *c = open_good(p.dir);
    json_t *a = json_object_get(tg_checkpoint_get_json(c, TG_HF_CONFIG), "a");
    assert_true(json_real_value(a) == 1.0 / 9);
    end(p, c);
}

/* C36 */
static void a_special_token_is_a_string_an_object_null_or_absent(void **state)
{
    (void)state;
    tg_err e = {0};
    tg_str s = {0};
    bool is = false;
    json_t *o = NULL;
    tg_str text = TG_STR("{\"bos_token\":\"<s>\",\"pad_token\":null,\"unk_token\":3,"
                         "\"eos_token\":{\"__type\":\"AddedToken\",\"content\":\"</s>\","
                         "\"lstrip\":false,\"normalized\":true}}");
    assert_int_equal(tg_json_parse(&o, text, "t", &e), TG_OK);
    assert_int_equal(tg_hf_get_token(o, "bos_token", &s, &is, "t", &e), TG_OK);
    assert_true(is && tg_str_is(s, "<s>"));
    assert_int_equal(tg_hf_get_token(o, "eos_token", &s, &is, "t", &e), TG_OK);
    assert_true(is && tg_str_is(s, "</s>"));
    assert_int_equal(tg_hf_get_token(o, "pad_token", &s, &is, "t", &e), TG_OK);
    assert_false(is);
    assert_int_equal(tg_hf_get_token(o, "cls_token", &s, &is, "t", &e), TG_OK);
    assert_false(is);
    assert_int_equal(tg_hf_get_token(o, "unk_token", &s, &is, "t", &e), TG_E_CORRUPT);
    assert_says(&e, "t: key 'unk_token' is neither a string nor an object");
    json_decref(o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_is_read_with_all_its_text_files),
        cmocka_unit_test(texts_are_read_where_weights_are_missing),
        cmocka_unit_test(one_vocabulary_of_a_folder_is_read),
        cmocka_unit_test(absent_text_files_are_absent),
        cmocka_unit_test(the_index_is_authoritative),
        cmocka_unit_test(faults_of_the_index_are_named),
        cmocka_unit_test(folders_without_an_index_need_one_file),
        cmocka_unit_test(a_tensor_left_out_at_saving_is_found_by_its_note),
        cmocka_unit_test(an_absent_tensor_is_called_absent_with_the_nearest_name),
        cmocka_unit_test(config_files_that_are_not_strict_json_are_refused_with_their_line),
        cmocka_unit_test(a_special_token_is_a_string_an_object_null_or_absent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
