/* SPDX-License-Identifier: Apache-2.0
 * The public API in a host program whose locale writes numbers with a comma, as a German one does.
 *
 * Expected texts are jinja2's (3.1, its sandbox as transformers sets it up), which knows no locale;
 * an artifact is held against the one that the same checkpoint gives under "C". The locale is made
 * here by localedef, since few machines have one: it needs nothing but LC_NUMERIC. */
#include "base/file.h"
#include "base/json.h"
#include "check.h"
#include "format_files.h"
#include "trigraph.h"

#include <locale.h>

/* Sets a locale with a decimal comma; skips the test where none can be made. */
static void set_comma_locale(void)
{
    static const char text[] = "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\n"
                               "thousands_sep \".\"\ngrouping 3;3\nEND LC_NUMERIC\n";
    char path[256], command[600];
    const char *dir = make_folder();
    snprintf(path, sizeof path, "%s/comma", dir);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    snprintf(command, sizeof command, "localedef -c -i %s %s/xx_XX 2>/dev/null", path, dir);
    if (system(command) < 0) fail();
    setenv("LOCPATH", dir, 1);
    if (!setlocale(LC_ALL, "xx_XX") || strcmp(localeconv()->decimal_point, ",") != 0) {
        fprintf(stderr, "no locale with a decimal comma: localedef makes none here\n");
        skip();
    }
}

static int reset_locale(void **state)
{
    (void)state;
    setlocale(LC_ALL, "C");
    return 0;
}

static void assert_rendered(const char *source, const char *want)
{
    char path[256];
    char *text = NULL;
    size_t n;
    tg_text *t = NULL;
    tg_err e = {0};
    tg_chat_options o = {.kwargs = "{\"x\": 2.5, \"big\": 1e300, \"small\": -1.25e-7}"};
    snprintf(path, sizeof path, "%s/one.jinja", make_folder());
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    fputs(source, f);
    fclose(f);
    if (tg_text_open(&t, path, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_text_render_chat(&text, &n, t, "[{\"role\": \"user\", \"content\": \"q\"}]", &o, &e) !=
        TG_OK)
        fail_msg("%s: %s", source, e.msg);
    assert_string_equal(text, want);
    tg_free(text);
    tg_text_close(t);
}

static void templates_write_and_read_numbers_as_python_does(void **state)
{
    (void)state;
    set_comma_locale();
    static const char *const cases[][2] = {
        {"{{ 1.5 }} {{ 1e300 }} {{ 1.5e-7 }} {{ 0.1 + 0.2 }} {{ -2.0 }}",
         "1.5 1e+300 1.5e-07 0.30000000000000004 -2.0"},
        {"{{ '2.5'|float }} {{ '2,5'|float }} {{ '7.9'|int }}", "2.5 0.0 7"},
        {"{{ 1.5|tojson }} {{ x|tojson }} {{ [big, small]|tojson }}",
         "1.5 2.5 [1e+300, -1.25e-07]"},
        {"{{ x }} {{ big }} {{ small }}", "2.5 1e+300 -1.25e-07"},
        {"{{ '%d|%s' % (x, x) }} {{ '{}|{}'.format(x, 1234567.5) }}", "2|2.5 2.5|1234567.5"},
        {"{{ 2.567|round(1) }} {{ 2.567|round(2, 'floor') }}", "2.6 2.56"},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++)
        assert_rendered(cases[i][0], cases[i][1]);
    assert_string_equal(localeconv()->decimal_point, ","); /* and the host's is as it was */
}

static void assert_same_file(const char *a, const char *b, const char *name)
{
    char path[300];
    tg_buf x = {0}, y = {0};
    tg_err e = {0};
    snprintf(path, sizeof path, "%s/%s", a, name);
    if (tg_file_load(&x, path, 1 << 26, &e) != TG_OK) fail_msg("%s", e.msg);
    snprintf(path, sizeof path, "%s/%s", b, name);
    if (tg_file_load(&y, path, 1 << 26, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(x.len, y.len);
    assert_memory_equal(x.ptr, y.ptr, x.len);
    tg_buf_deinit(&x);
    tg_buf_deinit(&y);
}

/* Theta and epsilon from config.json, scores of a tokenizer, the text form of numbers, JSON. */
static void an_export_gives_the_same_bytes(void **state)
{
    (void)state;
    char plain[256], comma[256];
    tg_err e = {0};
    snprintf(plain, sizeof plain, "%s/m.tg", make_folder());
    snprintf(comma, sizeof comma, "%s/m.tg", make_folder());
    if (tg_export("tests/tiny/llama-mqa", plain, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    set_comma_locale();
    if (tg_export("tests/tiny/llama-mqa", comma, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    static const char *const names[] = {"artifact.json", "program.bin", "tokenizer.bin",
                                        "weights.0.bin"};
    for (size_t i = 0; i < TG_COUNT(names); i++)
        assert_same_file(plain, comma, names[i]);
    tg_model *m = NULL;
    if (tg_model_open(&m, comma, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_model_close(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(templates_write_and_read_numbers_as_python_does, reset_locale),
        cmocka_unit_test_teardown(an_export_gives_the_same_bytes, reset_locale),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
