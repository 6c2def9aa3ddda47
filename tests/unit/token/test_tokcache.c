/* SPDX-License-Identifier: Apache-2.0
 *
 * An open tokenizer keeps words that it has seen, with their ids. Nothing may come of it: what it
 * gives must be what one gives that was opened for this text alone, whose ids other tests compare
 * with the reference library. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokcompile.h"

#define TINY "tests/golden/tokenizer/tiny.json"

typedef struct encoded {
    tg_ids ids;
    tg_spans spans;
} encoded;

static tg_status encode(encoded *out, const tg_tokenizer *t, tg_str text, bool has_spans)
{
    tg_err e = {0};
    tg_encode_options o = {.parse_special = true, .spans = has_spans ? &out->spans : NULL};
    tg_ids_clear(&out->ids);
    tg_spans_clear(&out->spans);
    return tg_tokenizer_encode(&out->ids, t, text, &o, &e);
}

static void free_encoded(encoded *x)
{
    tg_ids_deinit(&x->ids);
    tg_spans_deinit(&x->spans);
}

/* Short words of letters that vocabularies hold and of some that none does, runs, marks. */
static void make_text(tg_buf *out, uint64_t *seed)
{
    static const char *const bits[] = {"a",
                                       "e",
                                       "th",
                                       "in",
                                       "ing",
                                       "er",
                                       "<m>",
                                       "Don't",
                                       "12",
                                       " ",
                                       " ",
                                       "  ",
                                       "\n",
                                       "...",
                                       "aa",
                                       "caf\xc3\xa9",
                                       "\xe6\x97\xa5\xe6\x9c\xac",
                                       "\xf0\x9f\x98\x80",
                                       "\xce\xb1\xce\xb2",
                                       "\xe1\x88\xb4\xe1\x88\xb5",
                                       "e\xcc\x81",
                                       "\xe2\x96\x81",
                                       "\xea\xb0\x80"};
    tg_buf_clear(out);
    for (uint64_t n = tg_test_next(seed) % 40 + 1; n > 0; n--)
        tg_buf_add_cstr(out, bits[tg_test_next(seed) % TG_COUNT(bits)]);
}

static void compare(const char *name, const tg_buf *blob, const tg_tokenizer *warm, tg_str text)
{
    encoded seen = {0}, fresh = {0};
    tg_tokenizer *t = NULL;
    assert_int_equal(tg_tokenizer_open(&t, blob->ptr, blob->len, NULL), TG_OK);
    tg_status want = encode(&fresh, t, text, true);
    for (int k = 0; k < 4; k++) { /* without offsets and with, each when new and when known */
        bool has_spans = k % 2, is_equal;
        tg_status got = encode(&seen, warm, text, has_spans);
        is_equal = got == want && (got != TG_OK || seen.ids.len == fresh.ids.len);
        for (size_t i = 0; is_equal && got == TG_OK && i < fresh.ids.len; i++)
            is_equal = seen.ids.ptr[i] == fresh.ids.ptr[i] &&
                       (!has_spans || (seen.spans.ptr[i].begin == fresh.spans.ptr[i].begin &&
                                       seen.spans.ptr[i].end == fresh.spans.ptr[i].end));
        if (!is_equal)
            fail_msg("%s: '%.*s' differs; seed %llu", name, (int)text.len, text.ptr,
                     (unsigned long long)tg_test_seed());
    }
    tg_tokenizer_close(t);
    free_encoded(&seen);
    free_encoded(&fresh);
}

static void compare_many(const char *name, tg_buf *blob, uint64_t *seed)
{
    tg_buf text = {0};
    tg_tokenizer *warm = NULL;
    assert_int_equal(tg_tokenizer_open(&warm, blob->ptr, blob->len, NULL), TG_OK);
    for (int i = 0; i < 100; i++) {
        make_text(&text, seed);
        compare(name, blob, warm, tg_buf_str(&text));
    }
    tg_tokenizer_close(warm);
    tg_buf_deinit(blob);
    tg_buf_deinit(&text);
}

static void compare_json(const char *name, tg_str json, uint64_t *seed)
{
    tg_buf blob = {0};
    tg_err e = {0};
    if (tg_tokenizer_compile_json(&blob, json, (tg_str){0}, &e) != TG_OK)
        fail_msg("%s: %s", name, e.msg);
    compare_many(name, &blob, seed);
}

static void words_seen_before_give_what_they_gave(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    json_t *all = NULL, *item;
    tg_err e = {0};
    size_t i;
    if (tg_json_load(&all, TINY, &e) != TG_OK) fail_msg("%s", e.msg);
    json_array_foreach(json_object_get(all, "tokenizers"), i, item)
    {
        tg_buf text = {0};
        json_t *t = json_object_get(item, "tokenizer");
        json_t *k = json_object_get(t, "model");
        if (json_is_integer(k))
            json_object_set(
                t, "model",
                json_array_get(json_object_get(all, "models"), (size_t)json_integer_value(k)));
        assert_int_equal(tg_json_print(&text, t, 0, NULL), TG_OK);
        compare_json(json_string_value(json_object_get(item, "name")), tg_buf_str(&text), &seed);
        tg_buf_deinit(&text);
    }
    assert_true(i > 20);
    json_decref(all);
}

/* With ignore_merges "abc" is a token as a word, and "ab", "c" inside of one. */
static void a_word_and_a_part_of_one_are_told_apart(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    compare_json("ignore_merges",
                 TG_STR("{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":"
                        "\"BPE\",\"ignore_merges\":true,\"vocab\":{\"a\":0,\"e\":1,\"t\":2,"
                        "\"h\":3,\"i\":4,\"n\":5,\"g\":6,\"th\":7,\"ing\":8,\"aa\":9,\"in\":10},"
                        "\"merges\":[\"i n\",\"a a\"]}}"),
                 &seed);
}

/* A word of two characters that the vocabulary lacks is one unknown token, and spans both. */
static void fused_unknowns_keep_their_span(void **state)
{
    (void)state;
    uint64_t seed = tg_test_seed();
    compare_json("fuse_unk",
                 TG_STR("{\"pre_tokenizer\":{\"type\":\"WhitespaceSplit\"},\"model\":{\"type\":"
                        "\"BPE\",\"unk_token\":\"u\",\"fuse_unk\":true,\"vocab\":{\"u\":0,"
                        "\"a\":1,\"e\":2,\"aa\":3},\"merges\":[\"a a\"]}}"),
                 &seed);
    /* SentencePiece joins them in another way: only what no merge took is unknown. */
    tg_buf model = {0}, blob = {0};
    tg_tokenizer_texts texts = {0};
    tg_err e = {0};
    if (tg_file_load(&model, "tests/golden/tokenizer/sp-unknown.model", SIZE_MAX, &e) != TG_OK ||
        tg_tokenizer_compile_sentencepiece(&blob, tg_buf_str(&model), &texts, &e) != TG_OK)
        fail_msg("%s", e.msg);
    compare_many("sp-unknown", &blob, &seed);
    tg_buf_deinit(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_seen_before_give_what_they_gave),
        cmocka_unit_test(a_word_and_a_part_of_one_are_told_apart),
        cmocka_unit_test(fused_unknowns_keep_their_span),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
