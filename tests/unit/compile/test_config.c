/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "compile/compile.h"
#include "format/kv_type.h"

static tg_hparams model(void)
{
    return (tg_hparams){.max_positions = 8192, .position_limit = 8192};
}

/* Reads and checks; the message is "" when all is well. */
static const char *apply(tg_export_config *c, const char *text)
{
    static tg_err e;
    json_t *json = NULL;
    tg_hparams h = model();
    e = (tg_err){0};
    tg_status s = tg_json_parse(&json, tg_str_from_cstr(text), "c.json", &e);
    if (s == TG_OK) s = tg_export_config_read(c, json, "c.json", &e);
    if (s == TG_OK) s = tg_export_config_check(c, &h, &e);
    json_decref(json);
    if (s != TG_OK) assert_int_not_equal(e.msg[0], 0);
    return e.msg;
}

static void assert_says(const char *text, const char *message)
{
    tg_export_config c = {0};
    assert_string_equal(apply(&c, text), message);
}

static void nothing_said_means_the_documented_defaults(void **state)
{
    (void)state;
    tg_export_config c = {0};
    assert_string_equal(apply(&c, "{}"), "");
    assert_int_equal(c.batch, 1);
    assert_int_equal(c.max_length, 4096);
    assert_int_equal(c.n_context_buckets, 3);
    assert_int_equal(c.context_buckets[0], 32);
    assert_int_equal(c.context_buckets[1], 128);
    assert_int_equal(c.context_buckets[2], 512);
    assert_int_equal(c.speculation, 0);
    assert_int_equal(c.kv_type, TG_KV_Q16);
    c = (tg_export_config){0};
    assert_string_equal(apply(&c, "{\"weights\": \"f32\"}"), "");
    assert_int_equal(c.kv_type, TG_KV_F32);
}

static void defaults_fit_a_model_of_few_positions(void **state)
{
    (void)state;
    tg_hparams h = {.max_positions = 100, .position_limit = 400};
    tg_export_config c = {0};
    assert_int_equal(tg_export_config_check(&c, &h, NULL), TG_OK);
    assert_int_equal(c.max_length, 100);
    assert_int_equal(c.n_context_buckets, 1);
    assert_int_equal(c.context_buckets[0], 32);
    h.max_positions = 3;
    c = (tg_export_config){0};
    assert_int_equal(tg_export_config_check(&c, &h, NULL), TG_OK);
    assert_int_equal(c.context_buckets[0], 3);
    /* More is had by asking, up to what rope scaling can do. */
    c = (tg_export_config){.max_length = 400};
    assert_int_equal(tg_export_config_check(&c, &h, NULL), TG_OK);
    c = (tg_export_config){.max_length = 401};
    assert_int_equal(tg_export_config_check(&c, &h, NULL), TG_E_ARGUMENT);
}

static void every_key_is_read(void **state)
{
    (void)state;
    tg_export_config c = {0};
    assert_string_equal(
        apply(
            &c,
            "{\"batch\": 8, \"max_length\": 2048, \"context_buckets\": [16, 64], \"speculation\": "
            "0, \"weights\": \"q8_0\", \"activations\": \"int16\", \"kv\": \"f32\"}"),
        "");
    assert_int_equal(c.batch, 8);
    assert_int_equal(c.max_length, 2048);
    assert_int_equal(c.n_context_buckets, 2);
    assert_int_equal(c.context_buckets[1], 64);
    assert_int_equal(c.speculation, 0);
    assert_int_equal(c.weights, TG_WEIGHTS_Q8_0);
    assert_int_equal(c.activations, TG_ACTIVATIONS_INT16);
    assert_int_equal(c.kv_type, TG_KV_F32);
}

static void a_file_changes_only_what_it_names(void **state)
{
    (void)state;
    tg_export_config c = {
        .batch = 3, .weights = TG_WEIGHTS_F16, .has_kv_type = true, .kv_type = TG_KV_F32};
    assert_string_equal(apply(&c, "{\"speculation\": 2}"), "");
    assert_int_equal(c.batch, 3);
    assert_int_equal(c.weights, TG_WEIGHTS_F16);
    assert_int_equal(c.kv_type, TG_KV_F32);
}

static void what_is_wrong_is_named_with_its_number_and_limit(void **state)
{
    (void)state;
    assert_says("{\"batch\": 0}", "c.json: batch is 0, which is out of range");
    assert_says("{\"batch\": 257}", "batch is 257; it must be 1 to 256");
    assert_says("{\"batch\": -1}", "batch is -1; it must be 1 to 256");
    assert_says("{\"batch\": 4294967297}", "c.json: batch is 4294967297, which is out of range");
    assert_says("{\"batch\": 1.5}",
                "c.json: key 'batch' is a real number where an integer is needed");
    assert_says("{\"max_length\": 8193}",
                "max_length is 8193; it must be 1 to 8192, the positions of this model");
    assert_says("{\"speculation\": 16}",
                "speculation is 16; it must be 0 to 15 drafted tokens; 0 is none");
    assert_says("{\"speculation\": -1}",
                "speculation is -1; it must be 0 to 15 drafted tokens; 0 is none");
    assert_says("{\"max_length\": 4, \"speculation\": 4}",
                "speculation 4 verifies 5 tokens at once, more than max_length 4; lower the one or "
                "raise the other");
    assert_says("{\"context_buckets\": [128, 32]}",
                "context_buckets must ascend, but 128 is followed by 32");
    assert_says("{\"context_buckets\": [32, 32]}",
                "context_buckets must ascend, but 32 is followed by 32");
    assert_says("{\"context_buckets\": []}",
                "c.json: context_buckets must be a list of token counts");
    assert_says("{\"context_buckets\": 32}",
                "c.json: context_buckets must be a list of token counts");
    assert_says("{\"context_buckets\": [0]}", "c.json: entry 0 of context_buckets is not a whole "
                                              "number of tokens above 0");
    assert_says("{\"context_buckets\": [1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]}",
                "c.json: context_buckets has 17 entries; at most 16 are possible");
    assert_says(
        "{\"max_length\": 100, \"context_buckets\": [32, 128]}",
        "context bucket 128 is not 1 to max_length (100); leave it out, or raise max_length");
}

static void unknown_words_name_the_nearest_known_one(void **state)
{
    (void)state;
    assert_says("{\"max_lenght\": 9}",
                "c.json: unknown key 'max_lenght'; did you mean 'max_length'?");
    assert_says(
        "{\"weights\": \"q8_\"}",
        "c.json: weights is 'q8_', did you mean 'q8_0'?; known are auto, f32, bf16, f16, q8_0, "
        "q4_0, q4_1, q5_1");
    assert_says("{\"activations\": \"int166\"}", "c.json: activations is 'int166', did you mean "
                                                 "'int16'?; known are int8, int16");
    assert_says("[]", "c.json: an export configuration is a JSON object");
}

static void the_canonical_form_reads_back_as_the_same_config(void **state)
{
    (void)state;
    tg_export_config a = {0}, b = {0};
    tg_buf first = {0}, second = {0};
    assert_string_equal(apply(&a, "{\"batch\": 2, \"speculation\": 0, \"weights\": \"q4_0\"}"), "");
    json_t *json = tg_export_config_print(&a);
    assert_int_equal(tg_json_print(&first, json, 0, NULL), TG_OK);
    assert_string_equal(
        tg_buf_cstr(&first),
        "{\"batch\": 2, \"max_length\": 4096, \"context_buckets\": [32, 128, 512], "
        "\"speculation\": 0, \"weights\": \"q4_0\", \"activations\": \"int8\", \"kv\": "
        "\"q16\"}");
    assert_string_equal(apply(&b, first.ptr), "");
    assert_memory_equal(&a, &b, sizeof a);
    json_t *again = tg_export_config_print(&b);
    assert_int_equal(tg_json_print(&second, again, 0, NULL), TG_OK);
    assert_string_equal(first.ptr, second.ptr);
    json_decref(json);
    json_decref(again);
    tg_buf_deinit(&first);
    tg_buf_deinit(&second);
}

static void checking_twice_changes_nothing(void **state)
{
    (void)state;
    tg_hparams h = model();
    tg_export_config a = {0};
    assert_int_equal(tg_export_config_check(&a, &h, NULL), TG_OK);
    tg_export_config b = a;
    assert_int_equal(tg_export_config_check(&b, &h, NULL), TG_OK);
    assert_memory_equal(&a, &b, sizeof a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_said_means_the_documented_defaults),
        cmocka_unit_test(defaults_fit_a_model_of_few_positions),
        cmocka_unit_test(every_key_is_read),
        cmocka_unit_test(a_file_changes_only_what_it_names),
        cmocka_unit_test(what_is_wrong_is_named_with_its_number_and_limit),
        cmocka_unit_test(unknown_words_name_the_nearest_known_one),
        cmocka_unit_test(the_canonical_form_reads_back_as_the_same_config),
        cmocka_unit_test(checking_twice_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
