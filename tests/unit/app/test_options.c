/* SPDX-License-Identifier: Apache-2.0 */
#include "app/options.h"
#include "check.h"

#include <math.h>
#include <stdio.h>

/* Parses words separated by spaces as the command line of `id`. */
static tg_status parse(tg_args *a, tg_command_id id, const char *line, char *hint, tg_err *e)
{
    static char words[512]; /* the result borrows from it until the next call */
    char *argv[32];
    int argc = 0;
    tg_buf said = {0};
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok(words, " "); w; w = strtok(NULL, " "))
        argv[argc++] = w;
    *e = (tg_err){0};
    tg_status s = tg_args_parse(a, id, argc, argv, &said, e);
    snprintf(hint, 128, "%s", tg_buf_cstr(&said));
    tg_buf_deinit(&said);
    return s;
}

static void check_refused(tg_command_id id, const char *line, const char *message,
                          const char *expected_hint)
{
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(parse(&a, id, line, hint, &e), TG_E_ARGUMENT);
    assert_string_equal(e.msg, message);
    assert_string_equal(hint, expected_hint);
}

static void options_and_operands_come_in_any_order_and_form(void **state)
{
    (void)state;
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(parse(&a, TG_COMMAND_GENERATE,
                           "-n4 --temp=0.5 m.tg -p hi --top_k 40 --stop a --stop=b --raw", hint,
                           &e),
                     TG_OK);
    assert_string_equal(a.operand, "m.tg");
    assert_int_equal(a.number[TG_OPT_PREDICT], 4);
    assert_true(a.real[TG_OPT_TEMPERATURE] == 0.5);
    assert_int_equal(a.number[TG_OPT_TOP_K], 40);
    assert_string_equal(a.text[TG_OPT_PROMPT], "hi");
    assert_int_equal(a.n_texts, 2);
    assert_string_equal(a.texts[1], "b");
    assert_true(a.is_set[TG_OPT_RAW]);
    assert_false(a.is_set[TG_OPT_SEED]);
}

static void a_word_after_two_dashes_is_an_operand(void **state)
{
    (void)state;
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(parse(&a, TG_COMMAND_INSPECT, "--json -- --odd", hint, &e), TG_OK);
    assert_string_equal(a.operand, "--odd");
}

static void aliases_and_unique_beginnings_are_understood(void **state)
{
    (void)state;
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(
        parse(&a, TG_COMMAND_GENERATE, "m --max-tokens 7 --temperature 1 --see 9", hint, &e),
        TG_OK);
    assert_int_equal(a.number[TG_OPT_PREDICT], 7);
    assert_true(a.real[TG_OPT_TEMPERATURE] == 1);
    assert_int_equal(a.number[TG_OPT_SEED], 9);
    check_refused(TG_COMMAND_GENERATE, "m --s", "option --s could be one of 6 options of generate",
                  "");
}

static void the_same_letter_means_what_its_command_says(void **state)
{
    (void)state;
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(parse(&a, TG_COMMAND_BENCH, "m -p 64", hint, &e), TG_OK);
    assert_int_equal(a.number[TG_OPT_N_PROMPT], 64);
    assert_int_equal(a.number[TG_OPT_N_GEN], 128);
    assert_int_equal(a.number[TG_OPT_REPETITIONS], 5);
    assert_int_equal(parse(&a, TG_COMMAND_GENERATE, "m -p 64", hint, &e), TG_OK);
    assert_string_equal(a.text[TG_OPT_PROMPT], "64");
}

static void an_unknown_option_names_the_nearest(void **state)
{
    (void)state;
    check_refused(TG_COMMAND_GENERATE, "m --tmep 1", "generate has no option --tmep",
                  "did you mean --temp?");
    check_refused(TG_COMMAND_EXPORT, "m -z", "export has no option -z", "");
    check_refused(TG_COMMAND_EXPORT, "m --temp 1", "export has no option --temp",
                  "it is an option of generate, chat");
}

static void a_value_out_of_range_names_the_limit(void **state)
{
    (void)state;
    check_refused(TG_COMMAND_GENERATE, "m -n 0", "--predict must be between 1 and 16777216 (got 0)",
                  "");
    check_refused(TG_COMMAND_GENERATE, "m -t 0", "--threads must be between 1 and 1024 (got 0)",
                  "");
    check_refused(TG_COMMAND_GENERATE, "m --top-p 7", "--top-p must be between 0 and 1 (got 7)",
                  "");
    check_refused(TG_COMMAND_GENERATE, "m --min-p 1",
                  "--min-p must be at least 0 and less than 1 (got 1)", "");
    check_refused(TG_COMMAND_GENERATE, "m --temp nan", "--temp must be a finite number (got 'nan')",
                  "");
    check_refused(TG_COMMAND_GENERATE, "m --temp inf", "--temp must be a finite number (got 'inf')",
                  "");
    check_refused(TG_COMMAND_GENERATE, "m -n 1e3", "--predict must be a whole number (got '1e3')",
                  "");
    /* Numbers that 64 bits do not hold are numbers all the same. */
    check_refused(TG_COMMAND_BENCH, "m --depth 99999999999999999999",
                  "--depth must be between 0 and 16777216 (got 99999999999999999999)", "");
    check_refused(TG_COMMAND_BENCH, "m --depth -99999999999999999999",
                  "--depth must be between 0 and 16777216 (got -99999999999999999999)", "");
    check_refused(TG_COMMAND_BENCH, "m --depth 99999999999999999999x",
                  "--depth must be a whole number (got '99999999999999999999x')", "");
    check_refused(TG_COMMAND_EXPORT, "m --context-buckets 16,99999999999999999999",
                  "--context-buckets must be between 1 and 65536 (got 99999999999999999999)", "");
    check_refused(TG_COMMAND_EXPORT, "m --speculation 16",
                  "--speculation must be between 0 and 15 (got 16)", "");
    check_refused(TG_COMMAND_EXPORT, "m --kv f64",
                  "--kv must be one of q16|f16|bf16|q8|f32 (got 'f64')", "");
}

static void a_list_of_buckets_ascends(void **state)
{
    (void)state;
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(parse(&a, TG_COMMAND_EXPORT, "m --context-buckets 16,64", hint, &e), TG_OK);
    assert_int_equal(a.n_ints, 2);
    assert_int_equal(a.ints[0], 16);
    assert_int_equal(a.ints[1], 64);
    check_refused(TG_COMMAND_EXPORT, "m --context-buckets 64,16",
                  "--context-buckets must be in ascending order, and 16 follows 64 (got 64,16)",
                  "");
    check_refused(TG_COMMAND_EXPORT, "m --context-buckets 0",
                  "--context-buckets must be between 1 and 65536 (got 0)", "");
    check_refused(TG_COMMAND_EXPORT, "m --context-buckets 16,",
                  "--context-buckets must be numbers separated by commas (got '16,')", "");
    check_refused(TG_COMMAND_EXPORT, "m --context-buckets 16,,32",
                  "--context-buckets must be a whole number (got '')", "");
}

static void options_that_exclude_each_other_are_named(void **state)
{
    (void)state;
    check_refused(TG_COMMAND_GENERATE, "m -p a -f b", "--prompt and --file cannot be used together",
                  "");
    check_refused(TG_COMMAND_EVAL, "m --ids a -f b", "--ids and --file cannot be used together",
                  "");
}

static void what_is_missing_or_too_much_is_named(void **state)
{
    (void)state;
    check_refused(TG_COMMAND_GENERATE, "-p hi", "generate needs a MODEL", "");
    check_refused(TG_COMMAND_EXPORT, "-o d", "export needs a SOURCE", "");
    check_refused(TG_COMMAND_GENERATE, "a b", "generate takes one MODEL, and 'b' follows 'a'", "");
    check_refused(TG_COMMAND_GENERATE, "m -p", "-p (--prompt) needs a value: TEXT", "");
    check_refused(TG_COMMAND_GENERATE, "m --seed", "--seed needs a value: N", "");
    check_refused(TG_COMMAND_GENERATE, "m --raw=1", "--raw takes no value", "");
}

static void help_is_answered_even_when_things_are_missing(void **state)
{
    (void)state;
    tg_args a;
    tg_err e;
    char hint[128];
    assert_int_equal(parse(&a, TG_COMMAND_GENERATE, "--help --no-such-thing", hint, &e), TG_OK);
    assert_true(a.is_set[TG_OPT_HELP]);
}

static void a_mistyped_command_names_the_nearest(void **state)
{
    (void)state;
    tg_buf hint = {0};
    assert_int_equal(tg_command_find("bench", &hint), TG_COMMAND_BENCH);
    assert_int_equal(hint.len, 0);
    assert_int_equal(tg_command_find("genrate", &hint), TG_COMMAND_COUNT);
    assert_string_equal(tg_buf_cstr(&hint), "did you mean 'generate'?");
    tg_buf_deinit(&hint);
}

static bool share_a_name(const char *a, const char *b)
{
    return *a && strcmp(a, b) == 0;
}

/* The table is data, and data can be wrong: two rows of one command must not share a name or a
 * letter, every default must be one the option would accept, and help must be a phrase. */
static void the_rows_of_the_table_agree(void **state)
{
    (void)state;
    for (int i = 0; i < TG_OPT_COUNT; i++) {
        const tg_option *o = &tg_options[i];
        assert_true(o->commands != 0 && *o->name && *o->help);
        assert_true(o->help[strlen(o->help) - 1] != '.');
        assert_true((o->type == TG_TYPE_FLAG) == !*o->value);
        for (int k = 0; k < i; k++) {
            if (!(o->commands & tg_options[k].commands)) continue;
            assert_false(share_a_name(o->name, tg_options[k].name));
            assert_false(o->letter && o->letter == tg_options[k].letter);
        }
        double number;
        if (tg_parse_f64(o->fallback, &number) && o->type != TG_TYPE_TEXT)
            assert_true(number >= o->min && number <= o->max);
        if (o->type == TG_TYPE_CHOICE && *o->fallback && !strchr(o->fallback, ' '))
            assert_non_null(strstr(o->value, o->fallback));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_operands_come_in_any_order_and_form),
        cmocka_unit_test(a_word_after_two_dashes_is_an_operand),
        cmocka_unit_test(aliases_and_unique_beginnings_are_understood),
        cmocka_unit_test(the_same_letter_means_what_its_command_says),
        cmocka_unit_test(an_unknown_option_names_the_nearest),
        cmocka_unit_test(a_value_out_of_range_names_the_limit),
        cmocka_unit_test(a_list_of_buckets_ascends),
        cmocka_unit_test(options_that_exclude_each_other_are_named),
        cmocka_unit_test(what_is_missing_or_too_much_is_named),
        cmocka_unit_test(help_is_answered_even_when_things_are_missing),
        cmocka_unit_test(a_mistyped_command_names_the_nearest),
        cmocka_unit_test(the_rows_of_the_table_agree),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
