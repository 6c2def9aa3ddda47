/* SPDX-License-Identifier: Apache-2.0
 *
 * Failures that people met with tokenizers, by their number in the list of field cases (group A).
 * Texts and right answers are in tests/golden/tokenizer/field.json, which
 * tools/goldens/goldens-fieldcases makes with Hugging Face tokenizers; each case has a small
 * tokenizer of its kind, and some a real vocabulary, read from TG_VOCABS (else models/vocabs).
 *
 *   A01 A03 A04 A05 A07 A08 A10 A12 A18 A20 A21 A22 A24 A25 A26 A28 A36 A40   here
 *   A14 A38             tiny.json, test_tokenizer.c
 *   A15                 here, on a thread with 256 KiB of stack
 *   A13 A37             test_tokenizer.c: GGUF metadata
 *   A29 A30 A32         test_tokenizer.c and trained.json: charsmap, Unigram, unknown symbols
 *   A34                 an id beyond the vocabulary: here for decoding. Requests that bring ids are
 *                       checked by the server, whose tests hold the rest of that case */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokcompile.h"

#include <pthread.h>
#include <stdio.h>

#define GOLDEN "tests/golden/tokenizer/field.json"

/* ---- tokenizers under test */

typedef struct subject {
    tg_buf blob;
    tg_tokenizer *t;
} subject;

static subject open_json(tg_str json)
{
    subject s = {0};
    tg_err e = {0};
    if (tg_tokenizer_compile_json(&s.blob, json, (tg_str){0}, &e) != TG_OK ||
        tg_tokenizer_open(&s.t, s.blob.ptr, s.blob.len, &e) != TG_OK)
        fail_msg("%s", e.msg);
    return s;
}

static void close_subject(subject *s)
{
    tg_tokenizer_close(s->t);
    tg_buf_deinit(&s->blob);
}

static json_t *load_golden(void)
{
    json_t *v = NULL;
    tg_err e = {0};
    if (tg_json_load(&v, GOLDEN, &e) != TG_OK) fail_msg("%s", e.msg);
    return v;
}

/* A small tokenizer of the golden; its model is kept apart, under a number. */
static subject open_small(const json_t *golden, const json_t *item)
{
    tg_buf text = {0};
    json_t *v = json_copy(json_object_get(item, "tokenizer"));
    json_int_t k = json_integer_value(json_object_get(v, "model"));
    json_object_set(v, "model", json_array_get(json_object_get(golden, "models"), (size_t)k));
    assert_int_equal(tg_json_print(&text, v, 0, NULL), TG_OK);
    subject s = open_json(tg_buf_str(&text));
    tg_buf_deinit(&text);
    json_decref(v);
    return s;
}

static bool open_vocabulary(subject *s, const char *name)
{
    const char *dir = getenv("TG_VOCABS");
    tg_buf path = {0}, json = {0};
    tg_err e = {0};
    tg_buf_printf(&path, "%s/%s/tokenizer.json", dir ? dir : "models/vocabs", name);
    bool is_there = tg_path_is_file(tg_buf_cstr(&path));
    if (is_there) {
        if (tg_file_load(&json, tg_buf_cstr(&path), 1 << 28, &e) != TG_OK) fail_msg("%s", e.msg);
        *s = open_json(tg_buf_str(&json));
    }
    tg_buf_deinit(&path);
    tg_buf_deinit(&json);
    return is_there;
}

/* ---- comparing */

static int n_cases, n_wrong;

static void report(const char *name, tg_str text, const char *what)
{
    tg_buf b = {0};
    tg_buf_add_escaped(&b, text);
    print_error("%s: '%s': %s differ(s)\n", name, tg_buf_cstr(&b), what);
    tg_buf_deinit(&b);
    n_wrong++;
}

static tg_str str_of(const json_t *v)
{
    return (tg_str){json_string_value(v), json_string_length(v)};
}

static void encode(tg_ids *out, const tg_tokenizer *t, tg_str text, tg_encode_options o)
{
    tg_err e = {0};
    tg_ids_clear(out);
    if (tg_tokenizer_encode(out, t, text, &o, &e) != TG_OK) fail_msg("encode: %s", e.msg);
}

static bool is_ids(const json_t *want, const tg_ids *got)
{
    if (json_array_size(want) != got->len) return false;
    for (size_t i = 0; i < got->len; i++)
        if (json_integer_value(json_array_get(want, i)) != got->ptr[i]) return false;
    return true;
}

static bool is_inside(tg_str text, int32_t at)
{
    return at < (int32_t)text.len && ((unsigned char)text.ptr[at] & 0xc0) == 0x80;
}

/* The library counts characters: a token that is a part of one has the span of all of it. */
static bool is_spans(const json_t *want, tg_str text, const tg_spans *got)
{
    if (json_array_size(want) != got->len) return false;
    for (size_t i = 0; i < got->len; i++) {
        const json_t *w = json_array_get(want, i);
        tg_span s = got->ptr[i];
        while (is_inside(text, s.begin))
            s.begin--;
        while (is_inside(text, s.end))
            s.end++;
        if (json_integer_value(json_array_get(w, 0)) != s.begin ||
            json_integer_value(json_array_get(w, 1)) != s.end)
            return false;
    }
    return true;
}

static bool is_decoded(const tg_tokenizer *t, const int32_t *ids, size_t n, bool skip,
                       const json_t *want)
{
    tg_buf out = {0};
    tg_err e = {0};
    if (tg_tokenizer_decode(&out, t, ids, n, skip, &e) != TG_OK) fail_msg("decode: %s", e.msg);
    bool is_same = tg_str_is_equal(tg_buf_str(&out), str_of(want));
    tg_buf_deinit(&out);
    return is_same;
}

/* A18: what has come out after each id is whole characters and the beginning of what comes out in
 * the end, and ending there gives what the reference makes of the ids so far. */
static void check_prefixes(const char *name, const tg_tokenizer *t, tg_str text, const tg_ids *ids,
                           const json_t *prefixes)
{
    tg_buf so_far = {0};
    tg_detok d;
    tg_detok_init(&d, t, false);
    for (size_t k = 0; k < json_array_size(prefixes); k++) {
        tg_str want = str_of(json_array_get(prefixes, k));
        if (k) assert_int_equal(tg_detok_push(&d, &so_far, ids->ptr[k - 1], NULL), TG_OK);
        assert_int_equal(tg_utf8_find_invalid(tg_buf_str(&so_far)), so_far.len);
        if (!is_decoded(t, ids->ptr, k, false, json_array_get(prefixes, k)))
            report(name, text, "a prefix");
        if (!tg_str_has_prefix(want, tg_buf_str(&so_far))) report(name, text, "a piece");
    }
    tg_detok_deinit(&d);
    tg_buf_deinit(&so_far);
}

static void check_case(const char *name, const tg_tokenizer *t, const json_t *c)
{
    tg_str text = str_of(json_object_get(c, "text"));
    const json_t *ids_special = json_object_get(c, "ids_special"), *v;
    tg_ids ids = {0};
    tg_spans spans = {0};
    n_cases++;
    encode(&ids, t, text, (tg_encode_options){.parse_special = true, .spans = &spans});
    if (!is_ids(json_object_get(c, "ids"), &ids)) report(name, text, "ids");
    if ((v = json_object_get(c, "spans")) && !is_spans(v, text, &spans))
        report(name, text, "spans");
    encode(&ids, t, text, (tg_encode_options){.add_special = true, .parse_special = true});
    if (!is_ids(ids_special ? ids_special : json_object_get(c, "ids"), &ids))
        report(name, text, "ids with what is added");
    v = json_object_get(c, "decoded");
    if (!is_decoded(t, ids.ptr, ids.len, false, v)) report(name, text, "decoded text");
    const json_t *skip = json_object_get(c, "decoded_skip");
    if (!is_decoded(t, ids.ptr, ids.len, true, skip ? skip : v))
        report(name, text, "decoded text without special tokens");
    if ((v = json_object_get(c, "prefixes"))) check_prefixes(name, t, text, &ids, v);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
}

static void small_tokenizers_answer_the_field_cases(void **state)
{
    (void)state;
    json_t *golden = load_golden(), *item, *c;
    size_t i, k;
    n_cases = n_wrong = 0;
    json_array_foreach(json_object_get(golden, "tokenizers"), i, item)
    {
        subject s = open_small(golden, item);
        const char *name = json_string_value(json_object_get(item, "name"));
        json_array_foreach(json_object_get(item, "cases"), k, c) check_case(name, s.t, c);
        close_subject(&s);
    }
    json_decref(golden);
    assert_true(n_cases > 100);
    assert_int_equal(n_wrong, 0);
}

/* ---- A15: long runs of one character */

typedef struct run {
    const subject *s;
    tg_str unit;
    int64_t n, n_ids; /* n_ids -1: any number will do */
} run;

static void *encode_run(void *context)
{
    const run *r = context;
    tg_buf text = {0}, out = {0};
    tg_ids ids = {0};
    tg_encode_options o = {.parse_special = true};
    for (int64_t i = 0; i < r->n; i++)
        tg_buf_add_str(&text, r->unit);
    bool is_good = tg_tokenizer_encode(&ids, r->s->t, tg_buf_str(&text), &o, NULL) == TG_OK &&
                   (r->n_ids < 0 || (int64_t)ids.len == r->n_ids) &&
                   tg_tokenizer_decode(&out, r->s->t, ids.ptr, ids.len, false, NULL) == TG_OK &&
                   tg_str_is_equal(tg_buf_str(&out), tg_buf_str(&text));
    tg_buf_deinit(&text);
    tg_buf_deinit(&out);
    tg_ids_deinit(&ids);
    return is_good ? context : NULL;
}

static void expect_run(run r)
{
    pthread_attr_t attr;
    pthread_t thread;
    void *result;
    pthread_attr_init(&attr);
    assert_int_equal(pthread_attr_setstacksize(&attr, 256 * 1024), 0);
    assert_int_equal(pthread_create(&thread, &attr, encode_run, &r), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    pthread_attr_destroy(&attr);
    if (!result) fail_msg("a run of %lld '%.*s'", (long long)r.n, (int)r.unit.len, r.unit.ptr);
    n_cases++;
}

static void a_long_run_needs_no_stack(void **state)
{
    (void)state;
    static const char *const units[] = {"x", "X", ".", " ", "\n", "Z", "1", "\xe6\x97\xa5"};
    json_t *golden = load_golden(), *item;
    size_t i, k;
    n_cases = 0;
    json_array_foreach(json_object_get(golden, "tokenizers"), i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        /* Byte fallback without words, byte-level without words, and words by patterns. */
        if (!strstr(name, "A18") && !strstr(name, "A10")) continue;
        subject s = open_small(golden, item);
        for (k = 0; k < TG_COUNT(units); k++)
            expect_run((run){&s, tg_str_from_cstr(units[k]), 131072, -1});
        close_subject(&s);
    }
    json_decref(golden);
    assert_true(n_cases >= 5 * 8);
}

/* ---- real vocabularies: all of it */

/* The folder named llama2 holds Mistral 7B's vocabulary. Opening is most of the time, and with
 * sanitizers minutes, which test_tokenizer.c spends on the same vocabularies already. */
static void real_vocabularies_answer_the_field_cases(void **state)
{
    (void)state;
    if (getenv("TG_SLOW_BUILD")) skip();
    json_t *golden = load_golden(), *item, *c;
    size_t i, k;
    n_cases = n_wrong = 0;
    json_array_foreach(json_object_get(golden, "vocabularies"), i, item)
    {
        subject s;
        const char *name = json_string_value(json_object_get(item, "name"));
        if (!open_vocabulary(&s, name)) continue;
        json_array_foreach(json_object_get(item, "cases"), k, c) check_case(name, s.t, c);
        json_array_foreach(json_object_get(item, "runs"), k, c) expect_run(
            (run){&s, str_of(json_array_get(c, 0)), json_integer_value(json_array_get(c, 1)),
                  json_integer_value(json_array_get(c, 2))});
        close_subject(&s);
    }
    json_decref(golden);
    if (n_cases == 0) {
        print_message("neither TG_VOCABS nor models/vocabs holds a vocabulary\n");
        skip();
    }
    assert_int_equal(n_wrong, 0);
}

/* ---- A34: the first id beyond the vocabulary */

static void the_first_id_beyond_the_vocabulary_is_none(void **state)
{
    (void)state;
    json_t *golden = load_golden();
    subject s = open_small(golden, json_array_get(json_object_get(golden, "tokenizers"), 0));
    int32_t n = tg_tokenizer_n_vocab(s.t);
    const int32_t ids[] = {n - 1, n, -1, INT32_MAX, INT32_MIN};
    tg_buf out = {0};
    for (size_t i = 0; i < TG_COUNT(ids); i++) {
        tg_err e = {0};
        tg_status status = tg_tokenizer_decode(&out, s.t, &ids[i], 1, false, &e);
        assert_int_equal(status, i == 0 ? TG_OK : TG_E_ARGUMENT);
        if (i) assert_non_null(strstr(e.msg, "place 0"));
    }
    tg_buf_deinit(&out);
    close_subject(&s);
    json_decref(golden);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tokenizers_answer_the_field_cases),
        cmocka_unit_test(a_long_run_needs_no_stack),
        cmocka_unit_test(real_vocabularies_answer_the_field_cases),
        cmocka_unit_test(the_first_id_beyond_the_vocabulary_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
