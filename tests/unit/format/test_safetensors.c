/* SPDX-License-Identifier: Apache-2.0 */
#include "base/os.h"
#include "format/safetensors.h"
#include "format_files.h"

static const char metadata_only[] = "{\"__metadata__\":{\"format\":\"pt\"}}";

static void assert_refused(tg_buf *b, const char *words)
{
    tg_safetensors x;
    tg_arena a = {0};
    tg_err e = {0};
    int64_t start = tg_time_ns(), alive = tg_mem_n_alive();
    uint8_t *bytes = tg_test_guarded(b->len);
    if (b->len) memcpy(bytes, b->ptr, b->len);
    assert_int_not_equal(tg_safetensors_parse(&x, &a, bytes, b->len, "x.safetensors", &e), TG_OK);
    assert_memory_equal(e.msg, "x.safetensors: ", 15);
    assert_says(&e, words);
    assert_true(tg_time_ns() - start < 1000000000);
    tg_arena_deinit(&a);
    assert_int_equal(tg_mem_n_alive(), alive);
    tg_buf_deinit(b);
}

static void assert_json_refused(const char *json, size_t n_data, const char *words)
{
    tg_buf b = {0};
    put_safetensors(&b, json, n_data);
    assert_refused(&b, words);
}

static void parse(tg_safetensors *x, tg_arena *a, const tg_buf *b)
{
    tg_err e = {0};
    if (tg_safetensors_parse(x, a, (const uint8_t *)b->ptr, b->len, "x.safetensors", &e) != TG_OK)
        fail_msg("%s", e.msg);
}

static void a_small_file_is_read_as_it_was_written(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_arena a = {0};
    tg_safetensors x;
    put_safetensors(&b,
                    "{\"__metadata__\":{\"format\":\"pt\"},"
                    "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                    "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}  ",
                    16);
    parse(&x, &a, &b);
    assert_int_equal(x.n_tensors, 2);
    const tg_tensor *t = &x.tensors[0];
    assert_string_equal(t->name.ptr, "b");
    assert_int_equal(t->dtype, TG_DTYPE_BF16);
    assert_int_equal(t->n_dims, 2);
    assert_int_equal(t->dims[0], 2);
    assert_int_equal(t->dims[1], 3);
    assert_int_equal(t->n_bytes, 12);
    assert_int_equal(*(const uint8_t *)t->data, 4);
    assert_int_equal(x.n_notes, 1);
    assert_true(tg_str_is(x.notes[0].key, "format") && tg_str_is(x.notes[0].value, "pt"));
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

/* C21 */
static void a_name_that_is_there_twice_is_refused(void **state)
{
    (void)state;
    assert_json_refused("{\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                        "\"w\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                        2, "duplicate");
    assert_json_refused("{\"w\":{\"dtype\":\"U8\",\"dtype\":\"I8\",\"shape\":[2],"
                        "\"data_offsets\":[0,2]}}",
                        2, "duplicate");
}

/* C23 */
static void header_lengths_that_cannot_be_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {(uint64_t)1 << 63, UINT64_MAX, 100000001, 9};
    tg_buf b = {0};
    assert_refused(&b, "is empty");
    put(&b, "{}", 2);
    assert_refused(&b, "has 2 bytes");
    for (size_t i = 0; i < TG_COUNT(lengths); i++) {
        put_u64(&b, lengths[i]);
        put(&b, "{}      ", 8);
        assert_refused(&b, "claims a header of");
    }
    put_u64(&b, 0), put_zeros(&b, 8);
    assert_refused(&b, "does not begin with '{'");
    put_u64(&b, 1), put(&b, "{", 1);
    assert_refused(&b, "not valid JSON");
    assert_json_refused(" {}", 0, "does not begin with '{'");
    assert_json_refused("[]", 0, "does not begin with '{'");
    assert_json_refused("{\"\xff\":{}}", 0, "not valid JSON");
    assert_json_refused("{} x", 0, "not valid JSON");
    put(&b, "version https://git-lfs.github.com/spec/v1\n", 43);
    assert_refused(&b, "Git LFS pointer");
}

static void a_header_that_fills_the_file_and_ends_in_spaces_is_fine(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_arena a = {0};
    tg_safetensors x;
    put_safetensors(&b, "{}      ", 0);
    parse(&x, &a, &b);
    assert_int_equal(x.n_tensors, 0);
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

/* C25 */
static void files_of_metadata_alone_are_fine(void **state)
{
    (void)state;
    static const char *const good[] = {metadata_only, "{\"__metadata__\":{}}"};
    for (size_t i = 0; i < TG_COUNT(good); i++) {
        tg_buf b = {0};
        tg_arena a = {0};
        tg_safetensors x;
        put_safetensors(&b, good[i], 0);
        parse(&x, &a, &b);
        assert_int_equal(x.n_tensors, 0);
        tg_arena_deinit(&a);
        tg_buf_deinit(&b);
    }
    assert_json_refused("{\"__metadata__\":{\"format\":1}}", 0,
                        "__metadata__ key 'format' is no string");
    assert_json_refused("{\"__metadata__\":[]}", 0, "__metadata__ is no JSON object");
}

/* C46 */
static void empty_tensors_scalars_and_single_numbers_are_fine(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_arena a = {0};
    tg_safetensors x;
    put_safetensors(&b,
                    "{\"none\":{\"dtype\":\"F32\",\"shape\":[0,8],\"data_offsets\":[4,4]},"
                    "\"scalar\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                    "\"one\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[4,5]}}",
                    5);
    parse(&x, &a, &b);
    assert_int_equal(x.tensors[0].n_bytes, 0);
    assert_int_equal(x.tensors[1].n_dims, 0);
    assert_int_equal(tg_tensor_n_elems(&x.tensors[1]), 1);
    assert_int_equal(*(const uint8_t *)x.tensors[2].data, 4);
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

static void tensors_cover_the_data_exactly(void **state)
{
    (void)state;
#define TENSOR(name, n, from, to)                                                                  \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" n "],\"data_offsets\":[" from "," to "]}"
    assert_json_refused("{" TENSOR("a", "4", "0", "4") "," TENSOR("b", "4", "2", "6") "}", 6,
                        "tensor 'b' begins at offset 2 where the one before it ends at 4: they "
                        "overlap");
    assert_json_refused("{" TENSOR("a", "4", "0", "4") "," TENSOR("b", "4", "6", "10") "}", 10,
                        "they leave a hole");
    assert_json_refused("{" TENSOR("a", "4", "1", "5") "}", 5, "they leave a hole");
    assert_json_refused("{" TENSOR("a", "4", "0", "4") "}", 5,
                        "end at offset 4 and the file has 5");
    assert_json_refused("{" TENSOR("a", "4", "0", "4") "}", 3,
                        "tensor 'a' ends at offset 4 and the file has 3 bytes of data: it is "
                        "truncated");
    assert_json_refused("{" TENSOR("a", "4", "0", "3") "}", 3,
                        "tensor 'a' has 3 bytes by its offsets and 4 by its shape");
    assert_json_refused("{" TENSOR("a", "4", "4", "0") "}", 4, "which is no range");
    assert_json_refused("{" TENSOR("a", "4", "-4", "0") "}", 4, "which is no range");
    assert_json_refused("{" TENSOR("a", "-4", "0", "4") "}", 4, "no integer from 0 on");
    assert_json_refused("{" TENSOR("a", "4.0", "0", "4") "}", 4, "no integer from 0 on");
    assert_json_refused("{" TENSOR("a", "4", "0", "9223372036854775808") "}", 4, "two integers");
    assert_json_refused("{" TENSOR("a", "4294967296,4294967296", "0", "0") "}", 0,
                        "needs more bytes than 63 bits can count");
    assert_json_refused("{" TENSOR("a", "0,4294967296,4294967296,4294967296", "0", "4") "}", 4,
                        "tensor 'a' has 4 bytes by its offsets and 0 by its shape");
    assert_json_refused("{" TENSOR("a", "1,1,1,1,1,1,1,1,1", "0", "1") "}", 1,
                        "tensor 'a' has 9 dimensions; 8 are supported");
#undef TENSOR
}

static void entries_that_are_no_tensors_are_refused(void **state)
{
    (void)state;
    assert_json_refused("{\"a\":{\"dtype\":\"F31\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                        "tensor 'a' has dtype 'F31', which this program does not read; the nearest "
                        "it reads is F");
    assert_json_refused("{\"a\":{\"dtype\":1,\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
                        "no \"dtype\" string");
    assert_json_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":1,\"data_offsets\":[0,4]}}", 4,
                        "no \"shape\" list");
    assert_json_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", 4,
                        "no \"data_offsets\" of two integers");
    assert_json_refused("{\"a\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, "no \"data_offsets\"");
    assert_json_refused("{\"a\":[1]}", 0, "tensor 'a' is described by no JSON object");
    assert_json_refused("{\"a\\u001b[2J\":{}}", 0, "control");
    assert_json_refused("{\"\":{}}", 0, "the name of tensor 1 is empty");
}

/* A header of brackets would take a hundred times its size to parse. */
static void a_header_of_nothing_but_brackets_is_refused_unparsed(void **state)
{
    (void)state;
    tg_buf b = {0};
    size_t n = 10000000;
    put_u64(&b, n);
    put(&b, "{\"a\":[", 6);
    for (size_t i = 6; i + 3 < n; i += 3)
        put(&b, "[],", 3);
    while (b.len < n + 8)
        put_u8(&b, ' ');
    assert_refused(&b, "which no list of tensors has");
    put_u64(&b, 9000);
    put(&b, "{\"a\":", 5);
    while (b.len < 9008)
        put_u8(&b, '[');
    assert_refused(&b, "which no list of tensors has");
}

static void the_densest_lists_that_tensors_make_are_accepted(void **state)
{
    (void)state;
    tg_buf json = {0}, b = {0};
    tg_arena a = {0};
    tg_safetensors x;
    tg_buf_add_byte(&json, '{');
    for (int i = 0; i < 2000; i++)
        tg_buf_printf(&json,
                      "%s\"%x\":{\"dtype\":\"I8\",\"shape\":[0,0,0,0,0,0,0,0],"
                      "\"data_offsets\":[0,0]}",
                      i ? "," : "", i);
    tg_buf_add_byte(&json, '}');
    put_safetensors(&b, json.ptr, 0);
    parse(&x, &a, &b);
    assert_int_equal(x.n_tensors, 2000);
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
    tg_buf_deinit(&json);
}

static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_safetensors(&b,
                    "{\"__metadata__\":{\"format\":\"pt\"},"
                    "\"a\":{\"dtype\":\"F16\",\"shape\":[4],\"data_offsets\":[0,8]},"
                    "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
                    16);
    uint8_t *end = (uint8_t *)tg_test_guarded(b.len) + b.len;
    for (size_t n = 0; n <= b.len; n++) {
        tg_arena a = {0};
        tg_safetensors x;
        tg_err e = {0};
        memcpy(end - n, b.ptr, n);
        tg_status want = n == b.len ? TG_OK : TG_E_CORRUPT;
        if (tg_safetensors_parse(&x, &a, end - n, n, "cut", &e) != want)
            fail_msg("%zu of %zu bytes: %s", n, b.len, e.msg);
        tg_arena_deinit(&a);
    }
    tg_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_file_is_read_as_it_was_written),
        cmocka_unit_test(a_name_that_is_there_twice_is_refused),
        cmocka_unit_test(header_lengths_that_cannot_be_are_refused),
        cmocka_unit_test(a_header_that_fills_the_file_and_ends_in_spaces_is_fine),
        cmocka_unit_test(files_of_metadata_alone_are_fine),
        cmocka_unit_test(empty_tensors_scalars_and_single_numbers_are_fine),
        cmocka_unit_test(tensors_cover_the_data_exactly),
        cmocka_unit_test(entries_that_are_no_tensors_are_refused),
        cmocka_unit_test(a_header_of_nothing_but_brackets_is_refused_unparsed),
        cmocka_unit_test(the_densest_lists_that_tensors_make_are_accepted),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
