/* SPDX-License-Identifier: Apache-2.0
 *
 * What a batch must give is what one text at a time gives: ids are compared with
 * tg_tokenizer_encode, whose own tests compare it with the reference library. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokcompile.h"
#include "token/run/tokbatch.h"

#define TINY "tests/golden/tokenizer/tiny.json"

typedef struct subject {
    tg_buf blob;
    tg_tokenizer *t;
} subject;

/* The tokenizer of tiny.json with that name. */
static subject open_tiny(const char *name)
{
    subject s = {0};
    tg_buf text = {0};
    json_t *all = NULL, *item;
    tg_err e = {0};
    size_t i;
    if (tg_json_load(&all, TINY, &e) != TG_OK) fail_msg("%s", e.msg);
    json_array_foreach(json_object_get(all, "tokenizers"), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) != 0) continue;
        json_t *t = json_object_get(item, "tokenizer");
        json_int_t k = json_integer_value(json_object_get(t, "model"));
        json_object_set(t, "model", json_array_get(json_object_get(all, "models"), (size_t)k));
        assert_int_equal(tg_json_print(&text, t, 0, NULL), TG_OK);
    }
    if (tg_tokenizer_compile_json(&s.blob, tg_buf_str(&text), (tg_str){0}, &e) != TG_OK)
        fail_msg("compile: %s", e.msg);
    if (tg_tokenizer_open(&s.t, s.blob.ptr, s.blob.len, &e) != TG_OK) fail_msg("open: %s", e.msg);
    tg_buf_deinit(&text);
    json_decref(all);
    return s;
}

static void close_subject(subject *s)
{
    tg_tokenizer_close(s->t);
    tg_buf_deinit(&s->blob);
}

enum { N_TEXTS = 500 };

typedef struct texts {
    tg_buf bytes[N_TEXTS];
    tg_str at[N_TEXTS];
    tg_ids ids[N_TEXTS];
    tg_spans spans[N_TEXTS];
} texts;

/* Of 0 to 15 words, one in fifty a hundred times longer. */
static texts *make_texts(uint64_t *seed)
{
    static const char *const words[] = {
        "Don't",  " stop",   ": it's",      " 1234",
        " <|x|>", "\n\n",    "caf\xc3\xa9", "\xe6\x97\xa5\xe6\x9c\xac",
        "   ",    "aaaaaaaa"};
    texts *x = TG_NEW(texts);
    assert_non_null(x);
    for (size_t i = 0; i < N_TEXTS; i++) {
        uint64_t n = tg_test_next(seed) % 16 * (i % 50 == 7 ? 100u : 1u);
        while (n--)
            tg_buf_add_cstr(&x->bytes[i], words[tg_test_next(seed) % TG_COUNT(words)]);
        x->at[i] = tg_buf_str(&x->bytes[i]);
    }
    return x;
}

static void clear_lists(texts *x)
{
    for (size_t i = 0; i < N_TEXTS; i++) {
        tg_ids_deinit(&x->ids[i]);
        tg_spans_deinit(&x->spans[i]);
    }
}

static void free_texts(texts *x)
{
    clear_lists(x);
    for (size_t i = 0; i < N_TEXTS; i++)
        tg_buf_deinit(&x->bytes[i]);
    tg_mem_free(x);
}

static void a_batch_equals_its_texts_one_by_one(void **state)
{
    (void)state;
    subject s = open_tiny("split and byte level");
    uint64_t seed = tg_test_seed();
    texts *x = make_texts(&seed);
    tg_encode_options o = {.add_special = true, .parse_special = true};
    for (int32_t n_threads = 0; n_threads <= 9; n_threads += 3) {
        tg_err e = {0};
        if (tg_tokenizer_encode_batch(x->ids, x->spans, s.t, x->at, N_TEXTS, &o, n_threads, &e) !=
            TG_OK)
            fail_msg("%s", e.msg);
        for (size_t i = 0; i < N_TEXTS; i++) {
            tg_ids ids = {0};
            tg_spans spans = {0};
            tg_encode_options one = o;
            one.spans = &spans;
            assert_int_equal(tg_tokenizer_encode(&ids, s.t, x->at[i], &one, &e), TG_OK);
            assert_int_equal(x->ids[i].len, ids.len);
            assert_int_equal(x->spans[i].len, ids.len);
            for (size_t k = 0; k < ids.len; k++) {
                assert_int_equal(x->ids[i].ptr[k], ids.ptr[k]);
                assert_int_equal(x->spans[i].ptr[k].begin, spans.ptr[k].begin);
                assert_int_equal(x->spans[i].ptr[k].end, spans.ptr[k].end);
            }
            tg_ids_deinit(&ids);
            tg_spans_deinit(&spans);
        }
        clear_lists(x);
    }
    free_texts(x);
    close_subject(&s);
}

static void no_texts_give_nothing(void **state)
{
    (void)state;
    subject s = open_tiny("split and byte level");
    tg_encode_options o = {0};
    assert_int_equal(tg_tokenizer_encode_batch(NULL, NULL, s.t, NULL, 0, &o, 4, NULL), TG_OK);
    close_subject(&s);
}

/* The texts 123 and 321 are not UTF-8. */
static void the_first_text_that_fails_is_named_whatever_the_threads_do(void **state)
{
    (void)state;
    subject s = open_tiny("split and byte level");
    uint64_t seed = tg_test_seed();
    texts *x = make_texts(&seed);
    x->at[123] = TG_STR("abc\xff");
    x->at[321] = TG_STR("\xff");
    tg_encode_options o = {0};
    for (int i = 0; i < 20; i++) {
        tg_err e = {0};
        assert_int_equal(tg_tokenizer_encode_batch(x->ids, NULL, s.t, x->at, N_TEXTS, &o, 4, &e),
                         TG_E_ARGUMENT);
        assert_string_equal(e.msg, "text 123 of 500: the text is not UTF-8 at byte 3 (0xff)");
        for (size_t k = 0; k < 123; k++) /* those in front of it are done */
            assert_true(x->at[k].len == 0 || x->ids[k].len > 0);
        clear_lists(x);
    }
    free_texts(x);
    close_subject(&s);
}

static void a_wrong_number_of_threads_is_refused(void **state)
{
    (void)state;
    subject s = open_tiny("split and byte level");
    tg_encode_options o = {0};
    tg_err e = {0};
    assert_int_equal(tg_tokenizer_encode_batch(NULL, NULL, s.t, NULL, 0, &o, 257, &e),
                     TG_E_ARGUMENT);
    assert_non_null(strstr(e.msg, "257 threads"));
    assert_int_equal(tg_tokenizer_encode_batch(NULL, NULL, s.t, NULL, 0, &o, -1, &e),
                     TG_E_ARGUMENT);
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_equals_its_texts_one_by_one),
        cmocka_unit_test(no_texts_give_nothing),
        cmocka_unit_test(the_first_text_that_fails_is_named_whatever_the_threads_do),
        cmocka_unit_test(a_wrong_number_of_threads_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
