/* SPDX-License-Identifier: Apache-2.0
 * Folders whose tokenizer is a SentencePiece model or a tiktoken file, by the public API. Ids are
 * those of tests/golden/tokenizer: the sentencepiece and tiktoken libraries'. */
#include "base/file.h"
#include "base/json.h"
#include "check.h"
#include "format_files.h"
#include "trigraph.h"

#define GOLDEN "tests/golden/tokenizer/"

static json_t *load_golden(const char *path)
{
    json_t *v = NULL;
    tg_err e = {0};
    if (tg_json_load(&v, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return v;
}

static void copy_file(const char *dir, const char *name, const char *from)
{
    char path[512];
    tg_buf b = {0};
    tg_err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (tg_file_load(&b, from, 1 << 24, &e) != TG_OK ||
        tg_file_save(path, tg_buf_str(&b), &e) != TG_OK)
        fail_msg("%s", e.msg);
    tg_buf_deinit(&b);
}

static void save_json(const char *dir, const char *name, const json_t *v)
{
    char path[512];
    tg_buf b = {0};
    tg_err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(tg_json_print(&b, v, 0, NULL), TG_OK);
    if (tg_file_save(path, tg_buf_str(&b), &e) != TG_OK) fail_msg("%s", e.msg);
    tg_buf_deinit(&b);
}

/* The ids of all cases, those of special tokens in the text included. */
static void check_cases(const char *path, const json_t *cases)
{
    tg_text *t = NULL;
    tg_err e = {0};
    const json_t *c;
    size_t i;
    if (tg_text_open(&t, path, &e) != TG_OK) fail_msg("%s", e.msg);
    json_array_foreach(cases, i, c)
    {
        const json_t *text = json_object_get(c, "text");
        tg_tokens x;
        tg_tokenize_options o = {.no_add_special = true};
        const json_t *want = json_object_get(c, "ids");
        if (tg_text_tokenize(&x, t, json_string_value(text), json_string_length(text), &o, &e) !=
            TG_OK)
            fail_msg("%s", e.msg);
        assert_int_equal(x.n, json_array_size(want));
        for (int32_t k = 0; k < x.n; k++)
            assert_int_equal(x.ids[k], json_integer_value(json_array_get(want, (size_t)k)));
        tg_tokens_deinit(&x);
    }
    tg_text_close(t);
}

/* The same name for both formats: the bytes decide. */
static void a_folder_without_tokenizer_json_is_read_by_its_vocabulary(void **state)
{
    (void)state;
    int64_t alive = tg_mem_n_alive();
    char *dir = make_folder(), path[512];
    json_t *sp = load_golden(GOLDEN "sp.json"), *tt = load_golden(GOLDEN "tiktoken.json");
    json_t *model = json_array_get(json_object_get(sp, "models"), 0);
    json_t *config = json_array_get(json_object_get(model, "configs"), 0);
    save_json(dir, "tokenizer_config.json", json_object_get(config, "config"));
    copy_file(dir, "tokenizer.model", GOLDEN "sp-bytes.model");
    check_cases(dir, json_object_get(config, "cases"));
    snprintf(path, sizeof path, "%s/tokenizer.model", dir);
    check_cases(path, json_object_get(config, "cases"));

    const json_t *class = json_array_get(json_object_get(tt, "classes"), 2);
    save_json(dir, "tokenizer_config.json", json_object_get(class, "config"));
    copy_file(dir, "tokenizer.model", GOLDEN "small.tiktoken");
    check_cases(dir, json_object_get(class, "cases"));
    remove(path);
    copy_file(dir, "glm.tiktoken", GOLDEN "small.tiktoken");
    check_cases(dir, json_object_get(class, "cases"));
    snprintf(path, sizeof path, "%s/glm.tiktoken", dir);
    remove(path);

    tg_err e = {0};
    tg_text *t = NULL;
    json_t *mm = load_golden(GOLDEN "merges.json");
    class = json_array_get(json_object_get(mm, "classes"), 2);
    save_json(dir, "tokenizer_config.json", json_object_get(class, "config"));
    copy_file(dir, "vocab.json", GOLDEN "small-vocab.json");
    assert_int_equal(tg_text_open(&t, dir, &e), TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "/vocab.json"));
    assert_non_null(strstr(e.msg, "without merges.txt"));
    copy_file(dir, "merges.txt", GOLDEN "small-merges.txt");
    check_cases(dir, json_object_get(class, "cases"));
    json_decref(mm);
    json_decref(sp);
    json_decref(tt);
    remove_folder(dir);
    assert_int_equal(tg_mem_n_alive(), alive);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_without_tokenizer_json_is_read_by_its_vocabulary),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
