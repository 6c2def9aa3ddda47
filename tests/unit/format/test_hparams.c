/* SPDX-License-Identifier: Apache-2.0
 * The view of keys that architectures read, over JSON and over GGUF. */
#include "format/hparams.h"
#include "format_files.h"

typedef struct both {
    json_t *json;
    tg_buf bytes;
    tg_arena arena;
    tg_gguf *gguf; /* in the arena, so that it stays when this is copied */
    tg_config *c;
} both;

static both open_json(const char *text)
{
    both b = {0};
    tg_err e = {0};
    begin_log();
    if (tg_json_parse(&b.json, tg_str_from_cstr(text), "config.json", &e) != TG_OK ||
        tg_config_new_json(&b.c, b.json, "config.json", &e) != TG_OK)
        fail_msg("%s", e.msg);
    return b;
}

/* block_count u32 3, rms_eps f32 0.5, heads u32[3] {4, 4, 2}, names string[2], causal bool, u64
 * big, sliding bool[2], general.architecture "llama", tokenizer.x u32 */
static both open_gguf(void)
{
    both b = {0};
    tg_err e = {0};
    float eps = 0.5f;
    begin_log();
    put_header(&b.bytes, 3, 0, 9);
    put_kv_str(&b.bytes, "general.architecture", "llama");
    put_kv_u32(&b.bytes, "llama.block_count", 3);
    put_key(&b.bytes, "llama.rms_eps", KV_F32), put(&b.bytes, &eps, 4);
    put_array(&b.bytes, "llama.heads", KV_U32, 3);
    put_u32(&b.bytes, 4), put_u32(&b.bytes, 4), put_u32(&b.bytes, 2);
    put_array(&b.bytes, "llama.names", KV_STRING, 2);
    put_str(&b.bytes, "x"), put_str(&b.bytes, "yz");
    put_key(&b.bytes, "llama.causal", KV_BOOL), put_u8(&b.bytes, 1);
    put_key(&b.bytes, "llama.big", KV_U64), put_u64(&b.bytes, UINT64_MAX);
    put_array(&b.bytes, "llama.sliding", KV_BOOL, 2);
    put_u8(&b.bytes, 1), put_u8(&b.bytes, 0);
    put_kv_u32(&b.bytes, "tokenizer.x", 1);
    b.gguf = TG_ARENA_NEW(&b.arena, tg_gguf);
    if (tg_gguf_parse(b.gguf, &b.arena, (const uint8_t *)b.bytes.ptr, b.bytes.len, "m.gguf", &e))
        fail_msg("%s", e.msg);
    assert_int_equal(tg_config_new_gguf(&b.c, b.gguf, &e), TG_OK);
    return b;
}

static void close_both(both *b)
{
    tg_config_free(b->c);
    json_decref(b->json);
    tg_arena_deinit(&b->arena);
    tg_buf_deinit(&b->bytes);
}

/* The unread keys as one line. */
static const char *list_unread(const tg_config *c)
{
    static char line[512];
    tg_arena a = {0};
    const char **keys = NULL;
    int32_t n = 0;
    tg_err e = {0};
    line[0] = 0;
    assert_int_equal(tg_config_unread(c, &a, &keys, &n, &e), TG_OK);
    for (int32_t i = 0; i < n; i++) {
        strcat(line, i ? " " : "");
        strcat(line, keys[i]);
    }
    tg_arena_deinit(&a);
    return line;
}

static void keys_are_read_with_their_types(void **state)
{
    (void)state;
    both b = open_json("{\"n\":7,\"x\":1e-5,\"w\":10000.0,\"s\":\"silu\",\"t\":true,\"nul\":null,"
                       "\"rope\":{\"factor\":8,\"deep\":{\"er\":2}}}");
    tg_err e = {0};
    int64_t i = 0;
    double d = 0;
    bool t = false, is = true;
    tg_str s = {0};
    assert_int_equal(tg_config_get_i64(b.c, "n", &i, NULL, &e), TG_OK);
    assert_int_equal(i, 7);
    assert_int_equal(tg_config_get_f64(b.c, "x", &d, NULL, &e), TG_OK);
    assert_true(d == 1e-5);
    assert_int_equal(tg_config_get_f64(b.c, "n", &d, NULL, &e), TG_OK); /* an integer is a number */
    assert_true(d == 7);
    assert_int_equal(tg_config_get_str(b.c, "s", &s, NULL, &e), TG_OK);
    assert_true(tg_str_is(s, "silu"));
    assert_int_equal(tg_config_get_bool(b.c, "t", &t, NULL, &e), TG_OK);
    assert_true(t);
    assert_int_equal(tg_config_get_f64(b.c, "rope.factor", &d, NULL, &e), TG_OK);
    assert_true(d == 8);
    assert_int_equal(tg_config_get_i64(b.c, "rope.deep.er", &i, NULL, &e), TG_OK);
    assert_int_equal(i, 2);
    i = 99;
    assert_int_equal(tg_config_get_i64(b.c, "nul", &i, &is, &e), TG_OK); /* null is absent */
    assert_false(is);
    assert_int_equal(tg_config_get_i64(b.c, "rope.nothing.there", &i, &is, &e), TG_OK);
    assert_false(is);
    assert_int_equal(i, 99);
    close_both(&b);
}

static void a_wrong_type_names_file_key_and_type(void **state)
{
    (void)state;
    both b = open_json("{\"n\":7.0,\"s\":3,\"l\":[1,\"x\"],\"o\":{\"k\":\"v\"},\"h\":99}");
    int64_t i = 0;
    int32_t h = 0, n = 0;
    const int64_t *list = NULL;
    tg_str s = {0};
    tg_err e = {0};
    assert_int_equal(tg_config_get_i64(b.c, "n", &i, NULL, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg,
                        "config.json: key 'n' is a real number where an integer of at most 63 "
                        "bits is needed");
    e = (tg_err){0};
    assert_int_equal(tg_config_get_str(b.c, "s", &s, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "key 's' is an integer where a string is needed");
    e = (tg_err){0};
    assert_int_equal(tg_config_get_i64s(b.c, "l", &list, &n, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "element 1 of key 'l' is not an integer");
    e = (tg_err){0};
    assert_int_equal(tg_config_get_i64(b.c, "o.k", &i, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "key 'o.k' is a string");
    e = (tg_err){0};
    assert_int_equal(tg_config_get_i64(b.c, "l", &i, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "key 'l' is a list where");
    e = (tg_err){0};
    assert_int_equal(tg_config_get_i32(b.c, "h", 1, 64, &h, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "key 'h' is 99; it must be from 1 to 64");
    close_both(&b);
}

static void a_needed_key_that_is_absent_is_missed_with_the_nearest(void **state)
{
    (void)state;
    both b = open_json("{\"num_hidden_layer\":3}");
    int64_t i = 0;
    tg_err e = {0};
    assert_int_equal(tg_config_get_i64(b.c, "num_hidden_layers", &i, NULL, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "config.json: key 'num_hidden_layers' is missing; the nearest is "
                               "'num_hidden_layer'");
    close_both(&b);
    b = open_gguf();
    e = (tg_err){0};
    assert_int_equal(tg_config_get_i64(b.c, "*.blockcount", &i, NULL, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "m.gguf: key 'llama.blockcount' is missing; the nearest is "
                               "'llama.block_count'");
    close_both(&b);
}

static void gguf_keys_are_read_below_the_architecture(void **state)
{
    (void)state;
    both b = open_gguf();
    tg_err e = {0};
    int64_t i = 0, each[3];
    int32_t n = 0;
    double d = 0;
    bool is = false;
    const int64_t *list = NULL;
    const tg_str *names = NULL;
    const bool *flags = NULL;
    tg_str s = {0};
    assert_int_equal(tg_config_get_kind(b.c), TG_CHECKPOINT_GGUF);
    assert_int_equal(tg_config_get_i64(b.c, "*.block_count", &i, NULL, &e), TG_OK);
    assert_int_equal(i, 3);
    assert_int_equal(tg_config_get_f64(b.c, "*.rms_eps", &d, NULL, &e), TG_OK);
    assert_true(d == 0.5);
    assert_int_equal(tg_config_get_i64s(b.c, "*.heads", &list, &n, NULL, &e), TG_OK);
    assert_int_equal(n, 3);
    assert_int_equal(list[2], 2);
    assert_int_equal(tg_config_get_i64s(b.c, "*.block_count", &list, &n, NULL, &e), TG_OK);
    assert_int_equal(n, 1); /* one value is a list of one */
    assert_int_equal(tg_config_get_strs(b.c, "*.names", &names, &n, NULL, &e), TG_OK);
    assert_true(n == 2 && tg_str_is(names[1], "yz"));
    assert_int_equal(tg_config_get_bools(b.c, "*.sliding", &flags, &n, NULL, &e), TG_OK);
    assert_true(n == 2 && flags[0] && !flags[1]);
    assert_int_equal(tg_config_get_str(b.c, "general.architecture", &s, NULL, &e), TG_OK);
    assert_int_equal(tg_config_get_i64_each(b.c, "*.heads", each, 3, &is, &e), TG_OK);
    assert_true(is && each[0] == 4 && each[2] == 2);
    assert_int_equal(tg_config_get_i64_each(b.c, "*.block_count", each, 3, &is, &e), TG_OK);
    assert_true(each[0] == 3 && each[2] == 3);
    assert_int_equal(tg_config_get_i64(b.c, "*.big", &i, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "m.gguf: key 'llama.big' is u64 where an integer of at most 63 bits");
    close_both(&b);
}

/* C20 */
static void a_list_per_layer_has_one_element_per_layer(void **state)
{
    (void)state;
    both b = open_gguf();
    tg_err e = {0};
    int64_t each[4];
    assert_int_equal(tg_config_get_i64_each(b.c, "*.heads", each, 4, NULL, &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "m.gguf: key 'llama.heads' is a list of 3 and there are 4 layers");
    close_both(&b);
}

static void unread_keys_are_listed_by_their_paths(void **state)
{
    (void)state;
    both b = open_json("{\"a\":1,\"new_thing\":2,\"nul\":null,\"rope\":{\"type\":\"x\",\"odd\":3},"
                       "\"vision\":{\"v\":1},\"dtype\":\"f\",\"dt\":1,\"bad\\u001b[2J\":1}");
    tg_err e = {0};
    int64_t i = 0;
    tg_str s = {0};
    assert_string_equal(list_unread(b.c), "a new_thing rope vision dtype dt bad\\x1b[2J");
    assert_int_equal(tg_config_get_i64(b.c, "a", &i, NULL, &e), TG_OK);
    assert_true(tg_config_has(b.c, "rope"));
    assert_int_equal(tg_config_get_str(b.c, "rope.type", &s, NULL, &e), TG_OK);
    tg_config_ignore(b.c, "dt*");
    assert_string_equal(list_unread(b.c), "new_thing rope.odd vision bad\\x1b[2J");
    tg_config_ignore(b.c, "vision");
    assert_non_null(tg_config_get_json(b.c, "rope"));
    assert_string_equal(list_unread(b.c), "new_thing bad\\x1b[2J");
    close_both(&b);

    b = open_gguf();
    tg_config_ignore(b.c, "tokenizer.*");
    tg_config_ignore(b.c, "general.*");
    assert_int_equal(tg_config_get_i64(b.c, "*.block_count", &i, NULL, &e), TG_OK);
    assert_string_equal(list_unread(b.c), "llama.rms_eps llama.heads llama.names llama.causal "
                                          "llama.big llama.sliding");
    close_both(&b);
}

/* C38 */
static void the_nested_text_config_wins_and_a_difference_is_said(void **state)
{
    (void)state;
    both b =
        open_json("{\"model_type\":\"outer\",\"hidden_size\":1,\"same\":5,\"top\":6,\"more\":0,"
                  "\"text_config\":{\"model_type\":\"inner\",\"hidden_size\":2,\"same\":5,"
                  "\"rope\":{\"f\":3},\"odd\":4}}");
    tg_err e = {0};
    int64_t i = 0;
    tg_str s = {0};
    assert_int_equal(tg_config_get_i64(b.c, "hidden_size", &i, NULL, &e), TG_OK);
    assert_int_equal(i, 2);
    assert_non_null(strstr(test_log, "'hidden_size' differs at the root and in text_config"));
    begin_log();
    assert_int_equal(tg_config_get_i64(b.c, "hidden_size", &i, NULL, &e), TG_OK);
    assert_int_equal(tg_config_get_i64(b.c, "same", &i, NULL, &e), TG_OK);
    assert_int_equal(tg_config_get_i64(b.c, "top", &i, NULL, &e), TG_OK);
    assert_int_equal(i, 6);
    assert_int_equal(tg_config_get_str(b.c, "/model_type", &s, NULL, &e), TG_OK);
    assert_true(tg_str_is(s, "outer"));
    assert_int_equal(tg_config_get_i64(b.c, "rope.f", &i, NULL, &e), TG_OK);
    assert_string_equal(test_log, ""); /* said once, and not for what is equal */
    assert_string_equal(list_unread(b.c), "more text_config.model_type text_config.odd");
    tg_config_ignore(b.c, "odd");
    assert_string_equal(list_unread(b.c), "more text_config.model_type");
    close_both(&b);
}

static void a_checkpoint_gives_its_own_view(void **state)
{
    (void)state;
    tg_checkpoint *ck = NULL;
    tg_config *c = NULL;
    tg_err e = {0};
    tg_str s = {0};
    assert_int_equal(tg_checkpoint_open(&ck, "tests/tiny/llama-mqa", &e), TG_OK);
    assert_int_equal(tg_config_new(&c, ck, &e), TG_OK);
    assert_int_equal(tg_config_get_kind(c), TG_CHECKPOINT_HF);
    assert_non_null(strstr(tg_config_get_file(c), "llama-mqa/config.json"));
    assert_int_equal(tg_config_get_str(c, "/model_type", &s, NULL, &e), TG_OK);
    assert_true(tg_str_is(s, "llama"));
    tg_config_free(c);
    tg_checkpoint_close(ck);
}

/* Also later on: a key that could not be noted would be listed as unread. */
static void refused_memory_is_reported_by_every_call_after_it(void **state)
{
    (void)state;
    both b = open_json("{\"a\":1,\"b\":2}");
    tg_arena arena = {0};
    const char **keys = NULL;
    int32_t n = 0;
    tg_mem_fail_after(0);
    int64_t i = 0;
    assert_int_equal(tg_config_get_i64(b.c, "a", &i, NULL, NULL), TG_E_NOMEM);
    tg_mem_fail_after(-1);
    assert_int_equal(tg_config_get_i64(b.c, "b", &i, NULL, NULL), TG_E_NOMEM);
    assert_int_equal(tg_config_unread(b.c, &arena, &keys, &n, NULL), TG_E_NOMEM);
    tg_arena_deinit(&arena);
    close_both(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keys_are_read_with_their_types),
        cmocka_unit_test(a_wrong_type_names_file_key_and_type),
        cmocka_unit_test(a_needed_key_that_is_absent_is_missed_with_the_nearest),
        cmocka_unit_test(gguf_keys_are_read_below_the_architecture),
        cmocka_unit_test(a_list_per_layer_has_one_element_per_layer),
        cmocka_unit_test(unread_keys_are_listed_by_their_paths),
        cmocka_unit_test(the_nested_text_config_wins_and_a_difference_is_said),
        cmocka_unit_test(a_checkpoint_gives_its_own_view),
        cmocka_unit_test(refused_memory_is_reported_by_every_call_after_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
