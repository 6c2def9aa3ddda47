/* SPDX-License-Identifier: Apache-2.0
 * Files that the program reads and writes besides the model: ids, JSON reports, NumPy files. */
#include "app/input.h"
#include "app/npy.h"
#include "app/report.h"
#include "check.h"

#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

static void ids_are_decimal_words_between_white_space(void **state)
{
    (void)state;
    int32_t *ids, n;
    tg_err e = {0};
    assert_int_equal(tg_ids_parse(&ids, &n, TG_STR(" 1 22\n333\t0\r\n"), "f", &e), TG_OK);
    assert_int_equal(n, 4);
    assert_int_equal(ids[0], 1);
    assert_int_equal(ids[1], 22);
    assert_int_equal(ids[2], 333);
    assert_int_equal(ids[3], 0);
    tg_mem_free(ids);
    assert_int_equal(tg_ids_parse(&ids, &n, TG_STR(" \n"), "f", &e), TG_OK);
    assert_int_equal(n, 0);
    tg_mem_free(ids);
}

static void a_word_that_is_no_id_is_named_with_its_place(void **state)
{
    (void)state;
    static const char *const words[] = {"x", "-1", "1,2", "2147483648", "1.0", "0x10"};
    for (size_t i = 0; i < TG_COUNT(words); i++) {
        char text[64], expected[128];
        int32_t *ids, n;
        tg_err e = {0};
        snprintf(text, sizeof text, "5 6 %s 7", words[i]);
        snprintf(expected, sizeof expected, "ids.txt: word 3, '%s', is not a token id", words[i]);
        assert_int_equal(tg_ids_parse(&ids, &n, tg_str_from_cstr(text), "ids.txt", &e),
                         TG_E_ARGUMENT);
        assert_string_equal(e.msg, expected);
    }
}

static tg_args args_with(tg_option_id id, const char *text)
{
    tg_args a = {.command = TG_COMMAND_GENERATE};
    a.is_set[id] = true;
    a.text[id] = text;
    return a;
}

static void a_text_that_is_not_utf8_names_the_byte(void **state)
{
    (void)state;
    tg_input in = {0};
    tg_err e = {0};
    tg_args a = args_with(TG_OPT_PROMPT, "ab\xff");
    assert_int_equal(tg_input_load(&in, &a, false, &e), TG_E_ARGUMENT);
    assert_string_equal(e.msg, "--prompt: byte 2 (0xff) does not belong to UTF-8 text");
    tg_input_deinit(&in);
}

static void an_empty_text_is_named(void **state)
{
    (void)state;
    tg_input in = {0};
    tg_err e = {0};
    tg_args a = args_with(TG_OPT_PROMPT, "");
    assert_int_equal(tg_input_load(&in, &a, false, &e), TG_OK);
    assert_int_equal(tg_input_check(&in, "prompt", &e), TG_E_ARGUMENT);
    assert_string_equal(e.msg, "--prompt: the prompt is empty");
    tg_input_deinit(&in);
}

static void a_file_that_is_not_there_is_named(void **state)
{
    (void)state;
    tg_input in = {0};
    tg_err e = {0};
    tg_args a = args_with(TG_OPT_FILE, "/no/such/file");
    assert_int_equal(tg_input_load(&in, &a, false, &e), TG_E_IO);
    assert_string_equal(e.msg, "/no/such/file: cannot open: No such file or directory");
    tg_input_deinit(&in);
}

/* Expected: json.loads accepts it and gives these values; written out by hand from RFC 8259. */
static void a_report_is_json_whatever_it_is_told(void **state)
{
    (void)state;
    tg_buf b = {0};
    const int32_t ids[] = {1, 2};
    tg_report_begin(&b, NULL);
    tg_report_add_text(&b, "text", TG_STR("a\"\n\xff{"));
    tg_report_add_int(&b, "count", -3);
    tg_report_begin(&b, "stats");
    tg_report_add_real(&b, "speed", 2.5);
    tg_report_add_real(&b, "none", NAN);
    tg_report_end(&b);
    tg_report_add_ids(&b, "ids", ids, 2);
    tg_report_add_ids(&b, "empty", ids, 0);
    tg_report_end(&b);
    assert_string_equal(
        tg_buf_cstr(&b),
        "{\"text\": \"a\\\"\\n\xef\xbf\xbd{\", \"count\": -3, \"stats\": {\"speed\": "
        "2.5, \"none\": null}, \"ids\": [1, 2], \"empty\": []}");
    tg_buf_deinit(&b);
}

/* The bytes numpy 2.4's numpy.save writes for [[1, 2, 3], [-0.5, 0, 1e30]] in float32. */
static const char saved_by_numpy[] =
    "\x93NUMPY\x01\x00v\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }"
    "                                                          \n"
    "\x00\x00\x80?\x00\x00\x00@\x00\x00@@\x00\x00\x00\xbf\x00\x00\x00\x00\xca\xf2Iq";

static void a_matrix_is_written_as_numpy_writes_it(void **state)
{
    (void)state;
    static const float rows[2][3] = {{1, 2, 3}, {-0.5f, 0, 1e30f}};
    char path[] = "/tmp/test_npy_XXXXXX";
    int fd = mkstemp(path);
    tg_npy *n;
    tg_buf got = {0};
    tg_err e = {0};
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(tg_npy_open(&n, path, 2, 3, &e), TG_OK);
    assert_int_equal(tg_npy_write_row(n, rows[0], &e), TG_OK);
    assert_int_equal(tg_npy_write_row(n, rows[1], &e), TG_OK);
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 0); /* not published yet */
    assert_int_equal(tg_npy_close(n, &e), TG_OK);
    assert_int_equal(tg_file_load(&got, path, 4096, &e), TG_OK);
    assert_int_equal(got.len, sizeof saved_by_numpy - 1);
    assert_memory_equal(got.ptr, saved_by_numpy, got.len);
    tg_buf_deinit(&got);
    unlink(path);
}

static void an_abandoned_matrix_leaves_nothing(void **state)
{
    (void)state;
    char dir[] = "/tmp/test_npy_XXXXXX", path[64];
    tg_arena arena = {0};
    char **names;
    int32_t n_names;
    tg_npy *n;
    tg_err e = {0};
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/x.npy", dir);
    assert_int_equal(tg_npy_open(&n, path, 2, 3, &e), TG_OK);
    tg_npy_abandon(n);
    assert_int_equal(tg_dir_list(&arena, dir, &names, &n_names, &e), TG_OK);
    assert_int_equal(n_names, 0);
    tg_arena_deinit(&arena);
    assert_int_equal(rmdir(dir), 0);
}

static void a_matrix_does_not_replace_what_is_no_file(void **state)
{
    (void)state;
    tg_npy *n;
    tg_err e = {0};
    assert_int_equal(tg_npy_open(&n, "/dev/null", 1, 1, &e), TG_E_ARGUMENT);
    assert_null(n);
    assert_string_equal(e.msg, "/dev/null: is not a regular file, and a file is to be written");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_decimal_words_between_white_space),
        cmocka_unit_test(a_word_that_is_no_id_is_named_with_its_place),
        cmocka_unit_test(a_text_that_is_not_utf8_names_the_byte),
        cmocka_unit_test(an_empty_text_is_named),
        cmocka_unit_test(a_file_that_is_not_there_is_named),
        cmocka_unit_test(a_report_is_json_whatever_it_is_told),
        cmocka_unit_test(a_matrix_is_written_as_numpy_writes_it),
        cmocka_unit_test(an_abandoned_matrix_leaves_nothing),
        cmocka_unit_test(a_matrix_does_not_replace_what_is_no_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
