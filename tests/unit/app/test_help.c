/* SPDX-License-Identifier: Apache-2.0
 * The texts made from the option table, against reviewed golden files. With TG_BLESS
 * set the files are rewritten instead; the diff is the review. */
#include "app/help.h"
#include "base/file.h"
#include "check.h"

#include <stdio.h>

static void check_golden(const char *name, tg_buf *text)
{
    char path[128];
    tg_buf golden = {0};
    tg_err e = {0};
    snprintf(path, sizeof path, "tests/golden/help/%s", name);
    assert_int_equal(tg_buf_check(text, &e), TG_OK);
    if (getenv("TG_BLESS")) assert_int_equal(tg_file_save(path, tg_buf_str(text), &e), TG_OK);
    if (tg_file_load(&golden, path, 1 << 20, &e) != TG_OK) fail_msg("%s", e.msg);
    if (strcmp(tg_buf_cstr(&golden), tg_buf_cstr(text)) != 0)
        fail_msg("%s differs; tools/goldens/bless rewrites it", path);
    tg_buf_deinit(&golden);
    tg_buf_deinit(text);
}

static void the_list_of_commands_is_as_read(void **state)
{
    (void)state;
    tg_buf text = {0};
    tg_help_print_commands(&text);
    check_golden("commands.txt", &text);
}

static void the_help_of_each_command_is_as_read(void **state)
{
    (void)state;
    for (int c = 0; c < TG_COMMAND_COUNT; c++) {
        char name[64];
        tg_buf text = {0};
        tg_help_print_command(&text, (tg_command_id)c);
        snprintf(name, sizeof name, "%s.txt", tg_commands[c].name);
        check_golden(name, &text);
    }
}

static void no_line_of_help_is_wider_than_80_columns(void **state)
{
    (void)state;
    for (int c = 0; c < TG_COMMAND_COUNT; c++) {
        tg_buf text = {0};
        tg_help_print_command(&text, (tg_command_id)c);
        for (const char *p = tg_buf_cstr(&text); *p;) {
            size_t n = strcspn(p, "\n");
            assert_true(n <= 80);
            p += n + (p[n] == '\n');
        }
        tg_buf_deinit(&text);
    }
}

static void the_manual_page_is_as_read(void **state)
{
    (void)state;
    tg_buf text = {0};
    tg_help_print_man(&text, "0.0.0");
    check_golden("trigraph.1", &text);
}

static void the_completions_are_as_read(void **state)
{
    (void)state;
    static const char *const shells[] = {"bash", "zsh", "fish"};
    for (size_t i = 0; i < TG_COUNT(shells); i++) {
        char name[64];
        tg_buf text = {0};
        assert_true(tg_help_print_completion(&text, shells[i]));
        snprintf(name, sizeof name, "completion.%s", shells[i]);
        check_golden(name, &text);
    }
    tg_buf none = {0};
    assert_false(tg_help_print_completion(&none, "tcsh"));
    assert_int_equal(none.len, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_list_of_commands_is_as_read),
        cmocka_unit_test(the_help_of_each_command_is_as_read),
        cmocka_unit_test(no_line_of_help_is_wider_than_80_columns),
        cmocka_unit_test(the_manual_page_is_as_read),
        cmocka_unit_test(the_completions_are_as_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
