/* SPDX-License-Identifier: Apache-2.0
 *
 * A tokenizer.json and the tokenizer_config.json beside it. Expected ids and texts are those of
 * transformers 5.24's AutoTokenizer over the same two files (tokenizers 0.23.3); where the class of
 * the config is PreTrainedTokenizerFast, it changes nothing itself. */
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokcompile.h"

#include <stdio.h>

typedef struct subject {
    tg_buf blob;
    tg_tokenizer *t;
} subject;

static subject open_files(const char *json, const char *config)
{
    subject s = {0};
    tg_err e = {0};
    if (tg_tokenizer_compile_json(&s.blob, tg_str_from_cstr(json), tg_str_from_cstr(config), &e) !=
            TG_OK ||
        tg_tokenizer_open(&s.t, s.blob.ptr, s.blob.len, &e) != TG_OK)
        fail_msg("%s: %s", config, e.msg);
    return s;
}

static void close_subject(subject *s)
{
    tg_tokenizer_close(s->t);
    tg_buf_deinit(&s->blob);
}

/* Ids of a text, and what they print without special tokens: "0 7 1: ab". */
static void expect(const subject *s, const char *name, const char *text, const char *want)
{
    tg_ids ids = {0};
    tg_buf got = {0};
    tg_err e = {0};
    tg_encode_options o = {.parse_special = true};
    if (tg_tokenizer_encode(&ids, s->t, tg_str_from_cstr(text), &o, &e) != TG_OK)
        fail_msg("%s", e.msg);
    for (size_t i = 0; i < ids.len; i++)
        tg_buf_printf(&got, "%s%d", i ? " " : "", ids.ptr[i]);
    tg_buf_printf(&got, ": ");
    if (tg_tokenizer_decode(&got, s->t, ids.ptr, ids.len, true, &e) != TG_OK) fail_msg("%s", e.msg);
    if (strcmp(tg_buf_cstr(&got), want) != 0)
        fail_msg("%s: '%s' gives '%s' and not '%s'", name, text, tg_buf_cstr(&got), want);
    tg_buf_deinit(&got);
    tg_ids_deinit(&ids);
}

static void open_row(subject *s, const char *added, const char *config)
{
    char json[1024];
    (void)snprintf(json, sizeof json,
                   "{\"added_tokens\":[%s],\"decoder\":{\"type\":\"Fuse\"},\"model\":{\"type\":"
                   "\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"<\":2,\"t\":3,\">\":4,\" \":5,\"ab\":6},"
                   "\"merges\":[\"a b\"]}}",
                   added);
    *s = open_files(json, config);
}

#define LISTED(special)                                                                            \
    "{\"id\":7,\"content\":\"<t>\",\"lstrip\":false,\"rstrip\":false,\"single_word\":false,"       \
    "\"normalized\":false,\"special\":" special "}"
#define DECODER(tokens) "{\"added_tokens_decoder\":{" tokens "}}"
#define TOKEN(content, special)                                                                    \
    "{\"content\":\"" content "\",\"normalized\":false,\"special\":" special "}"

static void the_config_adds_tokens_and_flags_as_transformers_does(void **state)
{
    (void)state;
    static const struct {
        const char *name, *added, *config, *want, *want_spaced, *want_ab;
    } rows[] = {
        {"neither", "", "{}", "0 2 3 4 1: a<t>b", "0 5 2 3 4 5 1: a <t> b", "6: ab"},
        {"missing", "", DECODER("\"7\":" TOKEN("<t>", "false")), "0 7 1: a<t>b",
         "0 5 7 5 1: a <t> b", "6: ab"},
        {"missing and special", "", DECODER("\"7\":" TOKEN("<t>", "true")), "0 7 1: ab",
         "0 5 7 5 1: a  b", "6: ab"},
        {"special by the config", LISTED("false"), DECODER("\"7\":" TOKEN("<t>", "true")),
         "0 7 1: ab", "0 5 7 5 1: a  b", "6: ab"},
        {"not special by the config", LISTED("true"), DECODER("\"7\":" TOKEN("<t>", "false")),
         "0 7 1: a<t>b", "0 5 7 5 1: a <t> b", "6: ab"},
        {"lstrip by the config", LISTED("false"),
         DECODER("\"7\":{\"content\":\"<t>\",\"lstrip\":true}"), "0 7 1: a<t>b", "0 7 5 1: a<t> b",
         "6: ab"},
        {"a key that is not the next id", "", DECODER("\"9\":" TOKEN("<t>", "false")),
         "0 7 1: a<t>b", "0 5 7 5 1: a <t> b", "6: ab"},
        {"another content under the id", LISTED("false"), DECODER("\"7\":" TOKEN("<u>", "false")),
         "0 7 1: a<t>b", "0 5 7 5 1: a <t> b", "6: ab"},
        {"the content under another id", LISTED("false"), DECODER("\"8\":" TOKEN("<t>", "false")),
         "0 7 1: a<t>b", "0 5 7 5 1: a <t> b", "6: ab"},
        {"a token of the model", "", DECODER("\"6\":" TOKEN("ab", "true")), "0 2 3 4 1: a<t>b",
         "0 5 2 3 4 5 1: a <t> b", "6: "},
        {"a token of the model under another id", "", DECODER("\"3\":" TOKEN("ab", "true")),
         "0 2 3 4 1: a<t>b", "0 5 2 3 4 5 1: a <t> b", "6: "},
        {"two, by id and not by place", "",
         DECODER("\"8\":" TOKEN("<t>", "false") ",\"7\":" TOKEN("<", "true")), "0 7 1: a<t>b",
         "0 5 7 5 1: a <t> b", "6: ab"},
        {"an end that only its name knows", "", "{\"eos_token\":\"<t>\"}", "0 7 1: ab",
         "0 5 7 5 1: a  b", "6: ab"},
        {"an end that is listed", LISTED("false"), "{\"eos_token\":\"<t>\"}", "0 7 1: a<t>b",
         "0 5 7 5 1: a <t> b", "6: ab"},
        {"an additional token", "", "{\"additional_special_tokens\":[\"<t>\"]}", "0 7 1: ab",
         "0 5 7 5 1: a  b", "6: ab"},
        {"an extra token that is listed", LISTED("false"), "{\"extra_special_tokens\":[\"<t>\"]}",
         "0 7 1: a<t>b", "0 5 7 5 1: a <t> b", "6: ab"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        subject s;
        open_row(&s, rows[i].added, rows[i].config);
        expect(&s, rows[i].name, "a<t>b", rows[i].want);
        expect(&s, rows[i].name, "a <t> b", rows[i].want_spaced);
        expect(&s, rows[i].name, "ab", rows[i].want_ab);
        close_subject(&s);
    }
}

static void a_decoder_list_that_is_no_list_of_tokens_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *config, *word;
    } rows[] = {
        {DECODER("\"x\":" TOKEN("<t>", "false")), "'x' is not an id"},
        {DECODER("\"7\":{\"special\":true}"), "the token 7 has no 'content'"},
        {DECODER("\"7\":3"), "the token 7 has no 'content'"},
        {DECODER("\"7\":" TOKEN("<t>", "1")), "special"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf blob = {0};
        tg_err e = {0};
        const char *json = "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[]}}";
        assert_int_not_equal(tg_tokenizer_compile_json(&blob, tg_str_from_cstr(json),
                                                       tg_str_from_cstr(rows[i].config), &e),
                             TG_OK);
        if (!strstr(e.msg, rows[i].word)) fail_msg("'%s' is not in: %s", rows[i].word, e.msg);
        tg_buf_deinit(&blob);
    }
}

/* The first line of a merges.txt that was put into the list as it was; tokenizers passes by every
 * string that begins so, wherever it stands. */
static void a_version_among_the_merges_is_no_merge(void **state)
{
    (void)state;
    static const char *const merges[] = {
        "\"#version: 0.2\",\"a b\",\"ab c\"",
        "\"a b\",\"#version: 0.2\",\"ab c\"",
        "\"#versionx\",\"a b\",\"ab c\"",
    };
    for (size_t i = 0; i < TG_COUNT(merges); i++) {
        char json[512];
        (void)snprintf(json, sizeof json,
                       "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"c\":3,"
                       "\"abc\":4},\"merges\":[%s]}}",
                       merges[i]);
        subject s = open_files(json, "");
        expect(&s, merges[i], "abc", "4: abc");
        expect(&s, merges[i], "bca", "1 3 0: b c a");
        close_subject(&s);
    }
}

/* By hand: the normalizers make three bytes of "a" and one of a decomposed accented e. */
static void an_unknown_byte_is_named_by_its_place_in_the_text_given(void **state)
{
    (void)state;
    static const struct {
        const char *normalizer, *text, *word;
    } rows[] = {
        {"{\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"bbb\"}", "aa?",
         "at byte 2 "},
        {"{\"type\":\"Prepend\",\"prepend\":\"bb\"}", "b?", "at byte 1 "},
        {"{\"type\":\"NFC\"}", "be\xcc\x81?", "at byte 1 "},
        {"{\"type\":\"Lowercase\"}", "B?", "at byte 1 "},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char json[512];
        tg_ids ids = {0};
        tg_err e = {0};
        (void)snprintf(json, sizeof json,
                       "{\"normalizer\":%s,\"model\":{\"type\":\"Unigram\",\"unk_id\":null,"
                       "\"vocab\":[[\"b\",-1.0]]}}",
                       rows[i].normalizer);
        subject s = open_files(json, "");
        tg_encode_options o = {0};
        tg_ids_push(&ids, 5); /* what stands in the list already stays as it is */
        assert_int_equal(tg_tokenizer_encode(&ids, s.t, tg_str_from_cstr(rows[i].text), &o, &e),
                         TG_E_UNSUPPORTED);
        if (!strstr(e.msg, rows[i].word)) fail_msg("'%s' is not in: %s", rows[i].word, e.msg);
        assert_int_equal(ids.ptr[0], 5);
        tg_ids_deinit(&ids);
        close_subject(&s);
    }
}

/* A piece of the type UNUSED is what converters make of a row of padding; llama.cpp's
 * llama_token_to_piece gives no bytes for it, transformers none for an id it does not have. */
static void an_unused_piece_of_a_gguf_file_prints_nothing(void **state)
{
    (void)state;
    static const tg_str bytes[] = {{"a", 1}, {"b", 1}, {"[PAD2]", 6}, {"<e>", 3}},
                        pieces[] = {{"a", 1}, {"b", 1}, {"[PAD2]", 6}, {"<e>", 3}};
    static const float scores[] = {-1, -2, -1000, 0};
    static const int32_t types[] = {1, 1, 5, 3};
    const tg_gguf_vocab vocabs[] = {
        {.model = TG_STR("gpt2"), .pre = TG_STR("smollm"), .tokens = bytes, .merges = bytes},
        {.model = TG_STR("llama"), .tokens = pieces, .scores = scores},
        {.model = TG_STR("t5"), .tokens = pieces, .scores = scores},
    };
    for (size_t i = 0; i < TG_COUNT(vocabs); i++) {
        tg_gguf_vocab v = vocabs[i];
        subject s = {0};
        tg_buf text = {0};
        tg_err e = {0};
        uint32_t flags = 0;
        v.types = types;
        v.n_tokens = 4;
        v.bos_id = v.unk_id = v.pad_id = v.cls_id = v.sep_id = TG_TOKEN_NONE;
        v.eos_id = 3;
        v.add_space_prefix = TG_OPTIONAL_FALSE;
        if (tg_tokenizer_compile_gguf(&s.blob, &v, &e) != TG_OK ||
            tg_tokenizer_open(&s.t, s.blob.ptr, s.blob.len, &e) != TG_OK)
            fail_msg("%s", e.msg);
        const int32_t ids[] = {0, 2, 1, 2};
        assert_int_equal(tg_tokenizer_decode(&text, s.t, ids, 4, false, &e), TG_OK);
        assert_string_equal(tg_buf_cstr(&text), "ab");
        (void)tg_tokenizer_get_token(s.t, 2, &flags);
        assert_true(flags & TG_TOKEN_UNUSED);
        (void)tg_tokenizer_get_token(s.t, 1, &flags);
        assert_false(flags & TG_TOKEN_UNUSED);
        tg_buf_deinit(&text);
        close_subject(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_config_adds_tokens_and_flags_as_transformers_does),
        cmocka_unit_test(a_decoder_list_that_is_no_list_of_tokens_is_refused),
        cmocka_unit_test(a_version_among_the_merges_is_no_merge),
        cmocka_unit_test(an_unknown_byte_is_named_by_its_place_in_the_text_given),
        cmocka_unit_test(an_unused_piece_of_a_gguf_file_prints_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
