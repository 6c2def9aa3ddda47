/* SPDX-License-Identifier: Apache-2.0
 *
 * The automata of patterns against PCRE2, which runs the same pattern by backtracking: patterns of
 * real tokenizers and random ones, on random texts, from every place. */
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokdfabuild.h"
#include "token/run/tokregex.h"

/* What the texts are made of: both cases, letters that fold to ASCII (long s, the Kelvin sign),
 * numbers of several kinds, spaces, line ends, signs, marks, scripts, emoji, the last code
 * point. */
static const char *const letters[] = {"a",
                                      "b",
                                      "B",
                                      "s",
                                      "S",
                                      "t",
                                      "'",
                                      "1",
                                      "2",
                                      " ",
                                      " ",
                                      "\n",
                                      "\r",
                                      "\t",
                                      ".",
                                      "/",
                                      "-",
                                      "l",
                                      "\xc5\xbf",
                                      "\xe2\x84\xaa",
                                      "k",
                                      "\xc3\xa9",
                                      "\xc3\x89",
                                      "\xcc\x81",
                                      "\xc2\xb2",
                                      "\xc2\xa0",
                                      "\xe3\x80\x80",
                                      "\xe6\x97\xa5",
                                      "\xe3\x81\xae",
                                      "\xd9\xa1",
                                      "\xf0\x9f\x98\x80",
                                      "\xe2\x80\x8d",
                                      "\xe1\xbb\x87",
                                      "\xc7\x85",
                                      "\xf4\x8f\xbf\xbf"};

typedef struct pattern {
    tg_buf translated, image;
    tg_regex *regex;
    tg_dfa dfa;
    bool is_built;
} pattern;

static bool open_pattern(pattern *p, const char *source)
{
    *p = (pattern){0};
    tg_err e = {0};
    if (tg_regex_translate(&p->translated, (tg_str){source, strlen(source)}, &e) != TG_OK ||
        tg_regex_new_translated(&p->regex, tg_buf_str(&p->translated), &e) != TG_OK)
        return false;
    if (tg_dfa_build(&p->image, tg_buf_str(&p->translated), &p->is_built, &e) != TG_OK)
        fail_msg("'%s': %s", source, e.msg);
    if (p->is_built) assert_true(tg_dfa_open(&p->dfa, p->image.ptr, p->image.len));
    return true;
}

static void close_pattern(pattern *p)
{
    tg_regex_free(p->regex);
    tg_buf_deinit(&p->translated);
    tg_buf_deinit(&p->image);
}

static void make_text(tg_buf *out, uint64_t *seed)
{
    tg_buf_clear(out);
    const char *last = "";
    for (uint64_t n = tg_test_next(seed) % 24; n > 0; n--) {
        /* Runs are what repetitions are about. */
        if (tg_test_next(seed) % 3) last = letters[tg_test_next(seed) % TG_COUNT(letters)];
        tg_buf_add_cstr(out, last);
    }
}

static void compare_finds(const pattern *p, const char *source, tg_str text)
{
    tg_regex_scratch scratch = {0};
    for (size_t from = 0; from <= text.len; from++) {
        if (from < text.len && ((unsigned char)text.ptr[from] & 0xc0) == 0x80) continue;
        size_t begin, end, want_begin, want_end;
        tg_err e = {0};
        assert_true(tg_dfa_find(&p->dfa, text, from, &begin, &end));
        if (tg_regex_find(p->regex, &scratch, text, from, &want_begin, &want_end, &e) != TG_OK)
            fail_msg("'%s': %s", source, e.msg);
        if (begin != want_begin || end != want_end) {
            tg_buf b = {0};
            tg_buf_add_escaped(&b, text);
            fail_msg("'%s' on '%s' from %zu: [%zu, %zu), PCRE2 says [%zu, %zu); seed %llu", source,
                     tg_buf_cstr(&b), from, begin, end, want_begin, want_end,
                     (unsigned long long)tg_test_seed());
        }
    }
    tg_regex_scratch_deinit(&scratch);
}

/* GPT-2; Llama 3; Qwen; GPT-4 with what it never gives back; GPT-4o; DeepSeek's three; StarCoder;
 * and constructs that some of the rest use. */
static const char *const real[] = {
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+"
    "[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]"
    "*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++|\\p{N}{1,3}+| ?[^\\s\\p{L}\\p{N}]"
    "++[\\r\\n]*+|\\s*[\\r\\n]|\\s+(?!\\S)|\\s++$",
    "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s"
    "|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}"
    "\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*"
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
    "\\p{N}{1,3}",
    "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]"
    "+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    "\\p{Nd}| ?[^(\\s|.,!?)]+",
    "\\s+$|\\w+|[^\\w\\s]+?",
    "(?i)kelvin|str(?:a|ss)?|k+",
    ".+?\\n|(?m:.)|a{2,}?b",
};

static void patterns_of_real_tokenizers_match_as_in_pcre2(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    tg_buf text = {0};
    for (size_t i = 0; i < TG_COUNT(real); i++) {
        pattern p;
        assert_true(open_pattern(&p, real[i]));
        if (!p.is_built) fail_msg("'%s' has no automaton", real[i]);
        for (int k = 0; k < 3000; k++) {
            make_text(&text, &seed);
            compare_finds(&p, real[i], tg_buf_str(&text));
        }
        close_pattern(&p);
    }
    tg_buf_deinit(&text);
}

/* ---- random patterns */

static void add_choice(tg_buf *out, uint64_t *seed, int depth);

static void add_atom(tg_buf *out, uint64_t *seed)
{
    static const char *const atoms[] = {
        "a",     "b",      "s",   "'",        " ",   "\\p{L}",     "\\p{Lu}", "\\p{N}",
        "\\s",   "\\S",    ".",   "[\\r\\n]", "\\n", "[^a\\s]",    "[ab]",    "[^\\p{L}]",
        "[a-t]", "\\p{M}", "\\w", "\xc3\xa9", "\\-", "[\\p{Han}]", "\\x{41}", "[]a]"};
    tg_buf_add_cstr(out, atoms[tg_test_next(seed) % TG_COUNT(atoms)]);
}

static void add_repeated(tg_buf *out, uint64_t *seed, int depth)
{
    static const char *const groups[] = {"(?:", "(", "(?i:", "(?m:"};
    static const char *const counts[] = {"*",  "+",  "?",     "*?",  "+?",    "??",   "*+",
                                         "++", "?+", "{1,3}", "{2}", "{0,2}", "{2,}", "{1,2}?"};
    uint64_t kind = tg_test_next(seed) % 12;
    if (kind == 0) { /* a look ahead is never repeated */
        tg_buf_add_cstr(out, tg_test_next(seed) % 2 ? "(?=" : "(?!");
        add_atom(out, seed);
        tg_buf_add_byte(out, ')');
        return;
    }
    if (kind == 1) {
        tg_buf_add_byte(out, '$');
        return;
    }
    if (kind < 5 && depth > 0) {
        tg_buf_add_cstr(out, groups[tg_test_next(seed) % TG_COUNT(groups)]);
        add_choice(out, seed, depth - 1);
        tg_buf_add_byte(out, ')');
    } else {
        add_atom(out, seed);
    }
    if (tg_test_next(seed) % 2) tg_buf_add_cstr(out, counts[tg_test_next(seed) % TG_COUNT(counts)]);
}

static void add_choice(tg_buf *out, uint64_t *seed, int depth)
{
    for (uint64_t n = tg_test_next(seed) % 3 + 1; n > 0; n--) {
        for (uint64_t k = tg_test_next(seed) % 3 + 1; k > 0; k--)
            add_repeated(out, seed, depth);
        if (n > 1) tg_buf_add_byte(out, '|');
    }
}

static void random_patterns_match_as_in_pcre2(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    tg_buf source = {0}, text = {0};
    int n_built = 0, n = getenv("TG_SLOW_BUILD") ? 40 : 400;
    for (int i = 0; i < n; i++) {
        pattern p;
        tg_buf_clear(&source);
        add_choice(&source, &seed, 2);
        if (open_pattern(&p, tg_buf_cstr(&source)) && p.is_built) {
            n_built++;
            for (int k = 0; k < 200; k++) {
                make_text(&text, &seed);
                compare_finds(&p, tg_buf_cstr(&source), tg_buf_str(&text));
            }
        }
        close_pattern(&p);
    }
    tg_buf_deinit(&source);
    tg_buf_deinit(&text);
    /* The rest repeat what may be empty, or a group that never gives back. */
    if (n_built < n / 2) fail_msg("only %d of %d patterns were built", n_built, n);
}

static void what_no_automaton_can_do_is_left_alone(void **state)
{
    (void)state;
    static const char *const sources[] = {"(?<=a)b", "\\Aa",    "^a",   "a(?=bc)",
                                          "(?:a?)*", "(?>ab)",  "a\\b", "(?:ab)++",
                                          "a\\z",    "(?!a+)b", ""};
    for (size_t i = 0; i < TG_COUNT(sources); i++) {
        pattern p;
        assert_true(open_pattern(&p, sources[i]));
        if (p.is_built) fail_msg("'%s' has an automaton", sources[i]);
        assert_int_equal(p.image.len, 0);
        close_pattern(&p);
    }
}

/* "a+b" from each of a million letters would read half a trillion characters. */
static void looking_for_what_never_comes_is_stopped(void **state)
{
    (void)state;
    pattern p;
    size_t n = 1000000, begin, end;
    char *text = tg_mem_new(n);
    assert_non_null(text);
    memset(text, 'a', n);
    assert_true(open_pattern(&p, "a+b"));
    assert_true(p.is_built);
    assert_false(tg_dfa_find(&p.dfa, (tg_str){text, n}, 0, &begin, &end));
    text[n - 1] = 'b';
    assert_true(tg_dfa_find(&p.dfa, (tg_str){text, n}, 0, &begin, &end));
    assert_int_equal(begin, 0);
    assert_int_equal(end, n);
    close_pattern(&p);
    tg_mem_free(text);
}

/* Whatever the bytes, opening says no or finding stays inside text and tables (sanitizers look). */
static void a_damaged_image_is_refused_or_harmless(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    pattern p;
    assert_true(open_pattern(&p, real[2]));
    char *bytes = tg_mem_new(p.image.len);
    assert_non_null(bytes);
    for (int i = 0; i < 2000; i++) {
        memcpy(bytes, p.image.ptr, p.image.len);
        for (int k = 0; k < 3; k++) {
            size_t at = tg_test_next(&seed) % (i % 2 ? p.image.len : 400);
            bytes[at] = (char)tg_test_next(&seed);
        }
        tg_dfa d;
        size_t begin, end;
        size_t n = i % 5 ? p.image.len : tg_test_next(&seed) % p.image.len;
        if (tg_dfa_open(&d, bytes, n) &&
            tg_dfa_find(&d, TG_STR("Don't \xe6\x97\xa5\xf4\x8f\xbf\xbf 12\xe6"), 0, &begin, &end))
            assert_true(begin == SIZE_MAX || begin <= end);
    }
    tg_mem_free(bytes);
    close_pattern(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_of_real_tokenizers_match_as_in_pcre2),
        cmocka_unit_test(random_patterns_match_as_in_pcre2),
        cmocka_unit_test(what_no_automaton_can_do_is_left_alone),
        cmocka_unit_test(looking_for_what_never_comes_is_stopped),
        cmocka_unit_test(a_damaged_image_is_refused_or_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
