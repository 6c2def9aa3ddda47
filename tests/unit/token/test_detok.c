/* SPDX-License-Identifier: Apache-2.0
 *
 * Text out: what ids print, piece by piece, and which bytes of a text an id stands for. The
 * tokenizers are small enough to be read here. Expected values are those of Hugging Face tokenizers
 * 0.23.3, or follow from the rule that the comment gives. */
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokcompile.h"

#include <stdio.h>

/* ---- tokenizers under test */

typedef struct subject {
    tg_buf blob;
    tg_tokenizer *t;
} subject;

static subject open_json(const char *json)
{
    subject s = {0};
    tg_err e = {0};
    if (tg_tokenizer_compile_json(&s.blob, tg_str_from_cstr(json), (tg_str){0}, &e) != TG_OK ||
        tg_tokenizer_open(&s.t, s.blob.ptr, s.blob.len, &e) != TG_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void close_subject(subject *s)
{
    tg_tokenizer_close(s->t);
    tg_buf_deinit(&s->blob);
}

#define MODEL(vocab, merges)                                                                       \
    "\"model\":{\"type\":\"BPE\",\"unk_token\":\"?\",\"vocab\":{" vocab "},\"merges\":[" merges "]}"

/* Ids and spans as "id:begin-end ...", with what the post-processor adds. */
static void expect(const subject *s, tg_str text, const char *want)
{
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_buf got = {0};
    tg_err e = {0};
    tg_encode_options o = {.add_special = true, .parse_special = true, .spans = &spans};
    if (tg_tokenizer_encode(&ids, s->t, text, &o, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(ids.len, spans.len);
    for (size_t i = 0; i < ids.len; i++)
        tg_buf_printf(&got, "%s%d:%d-%d", i ? " " : "", ids.ptr[i], spans.ptr[i].begin,
                      spans.ptr[i].end);
    assert_string_equal(tg_buf_cstr(&got), want);
    tg_buf_deinit(&got);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
}

/* ---- offsets of rewritten text */

static void what_is_put_in_front_has_the_span_of_the_first_character(void **state)
{
    (void)state;
    subject s = open_json("{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"__\"}," MODEL(
        "\"?\":0,\"a\":1,\"_\":2,\"\xc3\xa9\":3", "") "}");
    expect(&s, TG_STR("a?"), "2:0-1 2:0-1 1:0-1 0:1-2");
    expect(&s,
           TG_STR("\xc3\xa9"
                  "a"),
           "2:0-2 2:0-2 3:0-2 1:2-3");
    expect(&s, TG_STR(""), "");
    close_subject(&s);
    s = open_json(
        "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\","
        "\"prepend_scheme\":\"always\"}," MODEL("\"?\":0,\"a\":1,\"_\":2,\"_a\":3", "\"_ a\"") "}");
    expect(&s, TG_STR("aa ba"), "3:0-1 1:1-2 2:2-3 0:3-4 1:4-5");
    close_subject(&s);
}

/* The library names the first of the characters that became one; ours are all of them, so that what
 * lies between two spans was dropped by the normalizer and not lost by us. */
static void a_composed_character_has_the_span_of_all_that_made_it(void **state)
{
    (void)state;
    subject s = open_json("{\"normalizer\":{\"type\":\"NFC\"}," MODEL(
        "\"?\":0,\"a\":1,\"\xc3\xa9\":2,\"z\":3", "") "}");
    expect(&s, TG_STR("ae\xcc\x81z"), "1:0-1 2:1-4 3:4-5");
    expect(&s, TG_STR("a\xc3\xa9z"), "1:0-1 2:1-3 3:3-4");
    close_subject(&s);
}

/* U+11A7 is the place before the first final consonant of Hangul and composes with nothing. */
static void hangul_composes_with_true_final_consonants_only(void **state)
{
    (void)state;
    subject s = open_json("{\"normalizer\":{\"type\":\"NFC\"}," MODEL(
        "\"?\":0,\"\xea\xb0\x80\":1,\"\xea\xb0\x81\":2,\"\xe1\x86\xa7\":3", "") "}");
    expect(&s, TG_STR("\xea\xb0\x80\xe1\x86\xa7"), "1:0-3 3:3-6"); /* AC00 11A7: as they are */
    expect(&s, TG_STR("\xea\xb0\x80\xe1\x86\xa8"), "2:0-6");       /* AC00 11A8: AC01 */
    expect(&s, TG_STR("\xe1\x84\x80\xe1\x85\xa1\xe1\x86\xa7"), "1:0-6 3:6-9");
    close_subject(&s);
}

/* StripAccents drops marks of every kind (U+0301 is Mn, U+0903 Mc, U+20DD Me). */
static void all_kinds_of_marks_are_accents(void **state)
{
    (void)state;
    subject s = open_json(
        "{\"normalizer\":{\"type\":\"StripAccents\"}," MODEL("\"?\":0,\"a\":1,\"z\":2", "") "}");
    expect(&s, TG_STR("a\xcc\x81\xe0\xa4\x83\xe2\x83\x9dz"), "1:0-1 2:9-10");
    close_subject(&s);
}

/* ---- when text comes out */

/* Pieces of ids one by one, and of the flush, joined by bars. */
static void expect_pieces(const subject *s, bool skip, const int32_t *ids, size_t n,
                          const char *want)
{
    tg_buf got = {0};
    tg_detok d;
    tg_detok_init(&d, s->t, skip);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(tg_detok_push(&d, &got, ids[i], NULL), TG_OK);
        tg_buf_add_byte(&got, '|');
    }
    assert_int_equal(tg_detok_flush(&d, &got, NULL), TG_OK);
    assert_string_equal(tg_buf_cstr(&got), want);
    tg_detok_deinit(&d);
    tg_buf_deinit(&got);
}

#define BROKEN "\xef\xbf\xbd" /* U+FFFD */
#define PIECES(s, skip, want, ...)                                                                 \
    expect_pieces(s, skip, (const int32_t[]){__VA_ARGS__},                                         \
                  TG_COUNT(((const int32_t[]){__VA_ARGS__})), want)

/* Bytes of a stream: a character comes out with its last byte, a broken one with the byte that
 * breaks it, and what never ends with the flush. F0 9F 99 82 is a face, C3 A9 an accented e. */
static void a_character_comes_out_with_its_last_byte(void **state)
{
    (void)state;
    subject s = open_json(
        "{\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true}],"
        "\"decoder\":{\"type\":\"ByteLevel\"},\"pre_tokenizer\":{\"type\":\"ByteLevel\"},"
        "\"model\":{\"type\":\"BPE\",\"merges\":[],\"vocab\":{\"a\":0,\"\xc3\x83\":1,"
        "\"\xc2\xa9\":2,\"\xc3\xb0\":3,\"\xc5\x81\":4,\"\xc4\xbb\":5,\"\xc4\xa4\":6,\"a\xc3\x83\":7,"
        "\"\xc4\xbb\xc4\xa4"
        "a\":8}}}");
    PIECES(&s, false, "a||\xc3\xa9|a|", 0, 1, 2, 0);
    PIECES(&s, false, "a|\xc3\xa9|", 7, 2);
    PIECES(&s, false,
           "||\xf0\x9f\x99\x82"
           "a|",
           3, 4, 8);
    PIECES(&s, false, "||" BROKEN "a|", 3, 4, 0);
    PIECES(&s, false, "|" BROKEN "|" BROKEN "a|" BROKEN, 3, 3, 7);
    PIECES(&s, false, "||" BROKEN, 3, 4);
    PIECES(&s, false, "|" BROKEN "<s>|" BROKEN "|", 1, 9, 2);
    PIECES(&s, true, "||\xc3\xa9|", 1, 9, 2); /* what is skipped breaks no character */
    PIECES(&s, true, "||" BROKEN "a|", 1, 9, 0);
    close_subject(&s);
}

/* Byte fallback: the library makes of a run of byte tokens either its characters or, where one is
 * broken, U+FFFD for every byte, so nothing of a run can come out before it ends. */
static void a_run_of_byte_tokens_comes_out_when_it_ends(void **state)
{
    (void)state;
    subject s = open_json(
        "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":"
        "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":1}]},\"model\":{"
        "\"type\":\"BPE\",\"merges\":[],\"byte_fallback\":true,\"vocab\":{\"a\":0,\"<0xC3>\":1,"
        "\"<0xA9>\":2,\" \":3,\" a\":4}}}");
    PIECES(&s, false,
           "||\xc3\xa9"
           "a|",
           1, 2, 0);
    PIECES(&s, false, "|||" BROKEN BROKEN BROKEN "a|", 1, 2, 1, 0);
    PIECES(&s, false, "||\xc3\xa9", 1, 2);
    /* One blank is cut off either end: the last waits until something follows. */
    PIECES(&s, false, "a|| a|| |", 4, 3, 0, 3, 3);
    PIECES(&s, false, "|", 3);
    close_subject(&s);
}

/* ---- a completion behind a prompt */

/* What ids print behind others, one by one and with the flush. */
static void expect_behind(const subject *s, const int32_t *ids, int n_prompt, int n,
                          const char *want)
{
    tg_buf got = {0};
    tg_detok d;
    tg_detok_init(&d, s->t, true);
    assert_int_equal(tg_detok_follow(&d, ids, (size_t)n_prompt, NULL), TG_OK);
    for (int i = n_prompt; i < n; i++)
        assert_int_equal(tg_detok_push(&d, &got, ids[i], NULL), TG_OK);
    assert_int_equal(tg_detok_flush(&d, &got, NULL), TG_OK);
    assert_string_equal(tg_buf_cstr(&got), want);
    tg_detok_deinit(&d);
    tg_buf_deinit(&got);
}

#define MARK "\xe2\x96\x81" /* U+2581 */

/* The text of prompt and completion less what it has in common with the prompt's, both decoded by
 * HF tokenizers 0.23.3 without special tokens. An id beyond the vocabulary counts for nothing. */
static void a_completion_is_the_text_of_all_less_the_text_of_the_prompt(void **state)
{
    (void)state;
    static const char *const decoders[] = {
        "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"" MARK
        "\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":"
        "\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}]}",
        "{\"type\":\"Metaspace\",\"replacement\":\"" MARK
        "\",\"prepend_scheme\":\"always\",\"split\":true}",
        "{\"type\":\"WordPiece\",\"prefix\":\"##\",\"cleanup\":true}",
        "{\"type\":\"BPEDecoder\",\"suffix\":\"</w>\"}",
        "null",
    };
    static const struct {
        int32_t ids[5];
        int n_prompt, n;
        const char *want[5]; /* by decoder */
    } rows[] = {
        {{0, 1, 2}, 1, 3, {"ab", "ab", MARK "a b", MARK "ab", MARK "a b"}},
        {{0, 1, 1, 2}, 2, 4, {" ab", " ab", " " MARK "a b", MARK "ab", " " MARK "a b"}},
        {{1, 3, 2}, 1, 3, {" b", " b", " " MARK " b", MARK "b", " " MARK " b"}},
        {{1, 2, 2, 1}, 2, 4, {"b a", "b a", " b " MARK "a", "b" MARK "a", " b " MARK "a"}},
        {{1, 4, 5, 2},
         2,
         4,
         {"\xc3\xa9"
          "b",
          "<0xA9>b", " <0xA9> b", "<0xA9>b", " <0xA9> b"}},
        {{1, 8, 9, 10, 2},
         2,
         5,
         {"\xef\xbc\x81"
          "b",
          "<0xBC><0x81>b", " <0xBC> <0x81> b", "<0xBC><0x81>b", " <0xBC> <0x81> b"}},
        {{2, 6, 7}, 1, 3, {"##cd</w>", "##cd</w>", "c d</w>", "##cd", " ##c d</w>"}},
        {{7, 7, 2}, 1, 3, {"d</w>b", "d</w>b", " d</w> b", " d b", " d</w> b"}},
        {{1}, 0, 1, {"a", "a", MARK "a", MARK "a", MARK "a"}},
        {{0, 3, 3, 1},
         2,
         4,
         {"  a", "  a", " " MARK " " MARK "a", MARK MARK "a", " " MARK " " MARK "a"}},
        {{99, 1, 1, 2}, 2, 4, {" ab", " ab", " " MARK "a b", MARK "ab", " " MARK "a b"}},
    };
    for (size_t k = 0; k < TG_COUNT(decoders); k++) {
        char json[1024];
        (void)snprintf(json, sizeof json,
                       "{\"added_tokens\":[{\"id\":0,\"content\":\"<s>\",\"special\":true}],"
                       "\"decoder\":%s,\"model\":{\"type\":\"BPE\",\"byte_fallback\":true,"
                       "\"merges\":[],\"vocab\":{\"<s>\":0,\"" MARK "a\":1,\"b\":2,\"" MARK
                       "\":3,\"<0xC3>\":4,\"<0xA9>\":5,\"##c\":6,\"d</w>\":7,\"<0xEF>\":8,"
                       "\"<0xBC>\":9,\"<0x81>\":10}}}",
                       decoders[k]);
        subject s = open_json(json);
        for (size_t i = 0; i < TG_COUNT(rows); i++)
            expect_behind(&s, rows[i].ids, rows[i].n_prompt, rows[i].n, rows[i].want[k]);
        close_subject(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_put_in_front_has_the_span_of_the_first_character),
        cmocka_unit_test(a_composed_character_has_the_span_of_all_that_made_it),
        cmocka_unit_test(hangul_composes_with_true_final_consonants_only),
        cmocka_unit_test(all_kinds_of_marks_are_accents),
        cmocka_unit_test(a_character_comes_out_with_its_last_byte),
        cmocka_unit_test(a_run_of_byte_tokens_comes_out_when_it_ends),
        cmocka_unit_test(a_completion_is_the_text_of_all_less_the_text_of_the_prompt),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
