/* SPDX-License-Identifier: Apache-2.0
 * Stop strings. Expected is the plain definition in this file, written from the rule, and the
 * cases at the end, worked out by hand. */
#include "api/stop.h"
#include "check.h"

#include <stdio.h>

/* The rule, word for word: at the first byte where a stop string is complete, the text ends before
 * the one of them that began first. Returns the length that is shown. */
static size_t define_end(const char *text, const char *const *stops, int32_t n)
{
    size_t len = strlen(text);
    for (size_t end = 1; end <= len; end++) {
        size_t first = SIZE_MAX;
        for (int32_t i = 0; i < n; i++) {
            size_t of = strlen(stops[i]);
            if (of <= end && memcmp(text + end - of, stops[i], of) == 0 && end - of < first)
                first = end - of;
        }
        if (first != SIZE_MAX) return first;
    }
    return len;
}

/* Pushes the text in pieces: bit i of `cuts` cuts after byte i. */
static void scan(char *shown, size_t size, tg_stop_scan *x, const char *text, uint64_t cuts)
{
    tg_buf out = {0};
    size_t len = strlen(text), from = 0;
    bool is_stopped = false;
    for (size_t i = 0; i < len && !is_stopped; i++) {
        if (i + 1 < len && !(cuts >> i & 1)) continue;
        is_stopped = tg_stop_scan_push(x, &out, (tg_str){text + from, i + 1 - from});
        from = i + 1;
    }
    if (!is_stopped) tg_stop_scan_flush(x, &out);
    snprintf(shown, size, "%s", tg_buf_cstr(&out));
    tg_buf_deinit(&out);
}

static void check_all_splits(const char *text, const char *const *stops, int32_t n)
{
    tg_arena arena = {0};
    tg_stop_scan x;
    char shown[64], right[64];
    size_t len = strlen(text);
    snprintf(right, sizeof right, "%.*s", (int)define_end(text, stops, n), text);
    if (tg_stop_scan_init(&x, &arena, stops, n, NULL) != TG_OK) fail();
    for (uint64_t cuts = 0; cuts < (uint64_t)1 << (len ? len - 1 : 0); cuts++) {
        scan(shown, sizeof shown, &x, text, cuts);
        if (strcmp(shown, right) != 0)
            fail_msg("\"%s\" cut at %llx with stops \"%s\" \"%s\": \"%s\" and not \"%s\"", text,
                     (unsigned long long)cuts, stops[0], stops[n - 1], shown, right);
    }
    tg_stop_scan_deinit(&x);
    tg_arena_deinit(&arena);
}

enum { N_WORDS = 30, MAX_WORD = 4, TEXT_LEN = 7 };

/* "a", "b", "aa", "ab", ...: every word of one to four letters of two. */
static void make_words(char words[N_WORDS][MAX_WORD + 1])
{
    int32_t n = 0;
    for (int len = 1; len <= MAX_WORD; len++)
        for (int bits = 0; bits < 1 << len; bits++, n++)
            for (int i = 0; i < len; i++)
                words[n][i] = bits >> i & 1 ? 'b' : 'a';
}

static void every_split_of_every_short_text_gives_what_the_definition_gives(void **state)
{
    (void)state;
    char words[N_WORDS][MAX_WORD + 1] = {0}, text[TEXT_LEN + 1] = {0};
    make_words(words);
    for (int32_t i = 0; i < N_WORDS; i++)
        for (int32_t k = i; k < N_WORDS; k++)
            for (int bits = 0; bits < 1 << TEXT_LEN; bits++) {
                const char *const stops[] = {words[i], words[k]};
                for (int c = 0; c < TEXT_LEN; c++)
                    text[c] = bits >> c & 1 ? 'b' : 'a';
                check_all_splits(text, stops, 2);
            }
}

/* Longer ones, with more stops and with characters of several bytes, which tokens may cut too. */
static void random_texts_and_stops_agree_with_the_definition(void **state)
{
    (void)state;
    static const char *const letters[] = {"a", "b", "\xc3\xa9", "\xe2\x82\xac", "\n"};
    uint64_t seed = tg_test_seed();
    for (int round = 0; round < 400; round++) {
        char text[64] = {0}, words[5][32] = {{0}};
        const char *stops[5];
        int32_t n = 1 + (int32_t)(tg_test_next(&seed) % 5);
        for (int32_t i = 0; i < n; i++) {
            int len = 1 + (int)(tg_test_next(&seed) % 4);
            for (int c = 0; c < len; c++)
                strcat(words[i], letters[tg_test_next(&seed) % TG_COUNT(letters)]);
            stops[i] = words[i];
        }
        while (strlen(text) < 9)
            strcat(text, letters[tg_test_next(&seed) % TG_COUNT(letters)]);
        check_all_splits(text, stops, n);
    }
}

/* By hand: the position of each stop string's last byte decides, then that of its first. */
static void cases_worked_out_by_hand_hold(void **state)
{
    (void)state;
    static const struct {
        const char *text, *stops[3];
        int32_t n;
        const char *shown;
    } cases[] = {
        {"abcd", {"bcd", "c"}, 2, "ab"},           /* "c" ends at 3, "bcd" at 4 */
        {"abcd", {"c", "bcd"}, 2, "ab"},           /* in any order */
        {"abcd", {"cd", "bcd"}, 2, "a"},           /* both end at 4; "bcd" began first */
        {"abab!", {"abab!", "bab"}, 2, "a"},       /* "bab" ends at 4 */
        {"aab", {"ab"}, 1, "a"},                   /* a false start does not hide a true one */
        {"aaab", {"aab", "aaaa"}, 2, "a"},         /* "aaaa" never ends */
        {"x\nUser:", {"\nUser:", "\n\n"}, 2, "x"}, /* what chat templates use */
        {"ab", {"abc"}, 1, "ab"},                  /* begun and never complete: shown at the end */
        {"STOP", {"STOP"}, 1, ""},                 /* all of the text */
        {"", {"a"}, 1, ""},                        /* none of it */
        {"abc", {NULL}, 0, "abc"},                 /* no stop strings */
        {"a\xe2\x82\xac!", {"\xe2\x82\xac", "!"}, 2, "a"}, /* a character of three bytes */
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        char shown[64];
        tg_arena arena = {0};
        tg_stop_scan x;
        assert_int_equal(tg_stop_scan_init(&x, &arena, cases[i].stops, cases[i].n, NULL), TG_OK);
        for (uint64_t cuts = 0; cuts < 1 << 6; cuts++) {
            scan(shown, sizeof shown, &x, cases[i].text, cuts);
            assert_string_equal(shown, cases[i].shown);
        }
        tg_stop_scan_deinit(&x);
        tg_arena_deinit(&arena);
    }
}

/* Streaming waits only for what may still become a stop string. */
static void only_the_beginning_of_a_stop_string_is_held_back(void **state)
{
    (void)state;
    static const char *const stops[] = {"</end>", "\n\n"};
    tg_arena arena = {0};
    tg_stop_scan x;
    tg_buf out = {0};
    assert_int_equal(tg_stop_scan_init(&x, &arena, stops, 2, NULL), TG_OK);
    assert_false(tg_stop_scan_push(&x, &out, TG_STR("one\n")));
    assert_string_equal(tg_buf_cstr(&out), "one");
    assert_false(tg_stop_scan_push(&x, &out, TG_STR("two </e")));
    assert_string_equal(tg_buf_cstr(&out), "one\ntwo ");
    assert_false(tg_stop_scan_push(&x, &out, TG_STR("m>")));
    assert_string_equal(tg_buf_cstr(&out), "one\ntwo </em>");
    assert_true(tg_stop_scan_push(&x, &out, TG_STR("!</end> and more")));
    assert_string_equal(tg_buf_cstr(&out), "one\ntwo </em>!");
    tg_buf_deinit(&out);
    tg_stop_scan_deinit(&x);
    tg_arena_deinit(&arena);
}

static void an_empty_stop_string_is_refused_by_its_place(void **state)
{
    (void)state;
    static const char *const stops[] = {"a", ""};
    tg_arena arena = {0};
    tg_stop_scan x;
    tg_err e = {0};
    assert_int_equal(tg_stop_scan_init(&x, &arena, stops, 2, &e), TG_E_ARGUMENT);
    assert_string_equal(e.msg, "stop string 2 is empty; it would end every completion at once");
    tg_stop_scan_deinit(&x);
    tg_arena_deinit(&arena);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_split_of_every_short_text_gives_what_the_definition_gives),
        cmocka_unit_test(random_texts_and_stops_agree_with_the_definition),
        cmocka_unit_test(cases_worked_out_by_hand_hold),
        cmocka_unit_test(only_the_beginning_of_a_stop_string_is_held_back),
        cmocka_unit_test(an_empty_stop_string_is_refused_by_its_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
