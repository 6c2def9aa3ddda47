/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids and texts come from tests/golden/tokenizer, which tools/goldens/goldens-tokenizer makes with
 * Hugging Face tokenizers and llama.cpp, or from the field cases, whose values were confirmed with
 * the former. Real vocabularies are read where they are: TG_MODELS (else models/) holds GGUF files,
 * TG_VOCABS (else models/vocabs) holds NAME/tokenizer.json, as tools/models/fetch-vocabs leaves
 * them. Tests that find none of theirs are skipped. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "check.h"
#include "format/gguf.h"
#include "token/compile/tokcompile.h"
#include "token/run/tokregex.h"

#include <pthread.h>
#include <stdio.h>

#define GOLDEN "tests/golden/tokenizer/"

/* ---- tokenizers under test */

typedef struct subject {
    tg_buf blob;
    tg_tokenizer *t;
} subject;

static void open_subject(subject *s)
{
    tg_err e = {0};
    if (tg_tokenizer_open(&s->t, s->blob.ptr, s->blob.len, &e) != TG_OK)
        fail_msg("open: %s", e.msg);
}

static subject from_json(tg_str json, tg_str config)
{
    subject s = {0};
    tg_err e = {0};
    if (tg_tokenizer_compile_json(&s.blob, json, config, &e) != TG_OK)
        fail_msg("compile: %s", e.msg);
    open_subject(&s);
    return s;
}

/* `config`, what stands in tokenizer_config.json, may be NULL. */
static subject from_values(const json_t *v, const json_t *config)
{
    tg_buf text = {0}, more = {0};
    assert_int_equal(tg_json_print(&text, v, 0, NULL), TG_OK);
    if (config) assert_int_equal(tg_json_print(&more, config, 0, NULL), TG_OK);
    subject s = from_json(tg_buf_str(&text), tg_buf_str(&more));
    tg_buf_deinit(&text);
    tg_buf_deinit(&more);
    return s;
}

static subject from_value(const json_t *v)
{
    return from_values(v, NULL);
}

static void close_subject(subject *s)
{
    tg_tokenizer_close(s->t);
    tg_buf_deinit(&s->blob);
}

static json_t *load_golden(const char *path)
{
    json_t *v = NULL;
    tg_err e = {0};
    if (tg_json_load(&v, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return v;
}

/* The tokenizer of tiny.json with that name, as a copy to change. */
static json_t *find_tiny(const char *name)
{
    json_t *all = load_golden(GOLDEN "tiny.json"), *item, *found = NULL;
    size_t i;
    json_array_foreach(json_object_get(all, "tokenizers"), i, item)
    {
        if (strcmp(json_string_value(json_object_get(item, "name")), name) != 0) continue;
        found = json_deep_copy(json_object_get(item, "tokenizer"));
        json_int_t k = json_integer_value(json_object_get(found, "model"));
        json_object_set_new(
            found, "model",
            json_deep_copy(json_array_get(json_object_get(all, "models"), (size_t)k)));
    }
    json_decref(all);
    assert_non_null(found);
    return found;
}

static subject open_tiny(const char *name)
{
    json_t *v = find_tiny(name);
    subject s = from_value(v);
    json_decref(v);
    return s;
}

/* ---- comparing */

static int n_cases, n_wrong;

static void report(const char *name, tg_str text, const char *what)
{
    tg_buf b = {0};
    tg_buf_add_escaped(&b, (tg_str){text.ptr, TG_MIN(text.len, (size_t)80)});
    if (n_wrong++ < 20) print_error("%s: '%s': %s differs\n", name, tg_buf_cstr(&b), what);
    tg_buf_deinit(&b);
}

static bool is_list(const json_t *want, const tg_ids *got)
{
    if (json_array_size(want) != got->len) return false;
    for (size_t i = 0; i < got->len; i++)
        if (json_integer_value(json_array_get(want, i)) != got->ptr[i]) return false;
    return true;
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

/* Decodes at once, and one id at a time, where each piece must be whole characters. */
static void decode(tg_buf *out, const tg_tokenizer *t, const tg_ids *ids, bool skip)
{
    tg_err e = {0};
    tg_buf streamed = {0}, one = {0};
    tg_detok d;
    tg_buf_clear(out);
    if (tg_tokenizer_decode(out, t, ids->ptr, ids->len, skip, &e) != TG_OK)
        fail_msg("decode: %s", e.msg);
    tg_detok_init(&d, t, skip);
    for (size_t i = 0; i <= ids->len; i++) {
        tg_buf_clear(&one);
        tg_status s =
            i < ids->len ? tg_detok_push(&d, &one, ids->ptr[i], &e) : tg_detok_flush(&d, &one, &e);
        assert_int_equal(s, TG_OK);
        assert_int_equal(tg_utf8_find_invalid(tg_buf_str(&one)), one.len);
        tg_buf_add_str(&streamed, tg_buf_str(&one));
    }
    tg_detok_deinit(&d);
    assert_true(tg_str_is_equal(tg_buf_str(&streamed), tg_buf_str(out)));
    tg_buf_deinit(&streamed);
    tg_buf_deinit(&one);
}

static bool is_spans(const json_t *want, const tg_spans *got)
{
    if (json_array_size(want) != got->len) return false;
    for (size_t i = 0; i < got->len; i++) {
        const json_t *w = json_array_get(want, i);
        if (json_integer_value(json_array_get(w, 0)) != got->ptr[i].begin ||
            json_integer_value(json_array_get(w, 1)) != got->ptr[i].end)
            return false;
    }
    return true;
}

static void check_case(const char *name, const tg_tokenizer *t, const json_t *c)
{
    tg_str text = str_of(json_object_get(c, "text"));
    const json_t *full = json_object_get(c, "ids_special"), *v;
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_buf out = {0};
    n_cases++;
    encode(&ids, t, text, (tg_encode_options){.parse_special = true, .spans = &spans});
    if (!is_list(json_object_get(c, "ids"), &ids)) report(name, text, "ids");
    if (spans.len != ids.len) report(name, text, "number of spans");
    if ((v = json_object_get(c, "spans")) && !is_spans(v, &spans)) report(name, text, "spans");
    if ((v = json_object_get(c, "ids_literal"))) {
        encode(&ids, t, text, (tg_encode_options){0});
        if (!is_list(v, &ids)) report(name, text, "ids without special tokens");
    }
    encode(&ids, t, text, (tg_encode_options){.add_special = true, .parse_special = true});
    if (!is_list(full ? full : json_object_get(c, "ids"), &ids)) report(name, text, "special ids");
    if ((v = json_object_get(c, "decoded"))) {
        decode(&out, t, &ids, false);
        if (!tg_str_is_equal(str_of(v), tg_buf_str(&out))) report(name, text, "decoded text");
        const json_t *skip = json_object_get(c, "decoded_skip");
        decode(&out, t, &ids, true);
        if (!tg_str_is_equal(str_of(skip ? skip : v), tg_buf_str(&out)))
            report(name, text, "decoded text without special tokens");
    }
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    tg_buf_deinit(&out);
}

static void check_cases(const char *name, const tg_tokenizer *t, const json_t *golden)
{
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(golden, "cases"), i, c) check_case(name, t, c);
    /* Runs of one character: how many ids, and the run comes back. */
    json_array_foreach(json_object_get(golden, "runs"), i, c)
    {
        tg_str unit = str_of(json_array_get(c, 0));
        tg_buf text = {0}, out = {0};
        tg_ids ids = {0};
        for (json_int_t k = json_integer_value(json_array_get(c, 1)); k > 0; k--)
            tg_buf_add_str(&text, unit);
        encode(&ids, t, tg_buf_str(&text), (tg_encode_options){.parse_special = true});
        if ((json_int_t)ids.len != json_integer_value(json_array_get(c, 2)))
            report(name, unit, "number of ids of a run");
        decode(&out, t, &ids, false);
        if (!tg_str_is_equal(tg_buf_str(&out), tg_buf_str(&text))) report(name, unit, "a run");
        n_cases++;
        tg_buf_deinit(&text);
        tg_buf_deinit(&out);
        tg_ids_deinit(&ids);
    }
}

static void begin_comparing(void)
{
    n_cases = n_wrong = 0;
}

static void end_comparing(int least)
{
    print_message("%d cases compared, %d differ\n", n_cases, n_wrong);
    assert_true(n_cases >= least);
    assert_int_equal(n_wrong, 0);
}

/* Where all tokenizers of a file have the same texts, a case gives a text's number. */
static void look_up_texts(json_t *item, const json_t *texts)
{
    json_t *c;
    size_t i;
    json_array_foreach(json_object_get(item, "cases"), i, c)
    {
        const json_t *k = json_object_get(c, "text");
        if (json_is_integer(k))
            json_object_set(c, "text", json_array_get(texts, (size_t)json_integer_value(k)));
    }
}

static void check_small(const char *path)
{
    json_t *all = load_golden(path), *item;
    size_t i;
    json_array_foreach(json_object_get(all, "tokenizers"), i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        json_t *tokenizer = json_object_get(item, "tokenizer");
        json_int_t k = json_integer_value(json_object_get(tokenizer, "model"));
        json_object_set(tokenizer, "model",
                        json_array_get(json_object_get(all, "models"), (size_t)k));
        subject s = from_values(tokenizer, json_object_get(item, "config"));
        look_up_texts(item, json_object_get(all, "texts"));
        check_cases(name, s.t, item);
        close_subject(&s);
    }
    json_decref(all);
}

static void small_tokenizers_equal_the_reference(void **state)
{
    (void)state;
    begin_comparing();
    check_small(GOLDEN "tiny.json");
    end_comparing(1500);
}

static void trained_vocabularies_of_every_model_equal_the_reference(void **state)
{
    (void)state;
    begin_comparing();
    check_small(GOLDEN "trained.json");
    end_comparing(3000);
}

/* ---- real vocabularies */

static bool open_vocabulary(subject *s, const char *name)
{
    const char *dir = getenv("TG_VOCABS");
    tg_buf path = {0}, json = {0};
    tg_err e = {0};
    tg_buf_printf(&path, "%s/%s/tokenizer.json", dir ? dir : "models/vocabs", name);
    bool is_there = tg_path_is_file(tg_buf_cstr(&path));
    if (is_there) {
        if (tg_file_load(&json, tg_buf_cstr(&path), 1 << 28, &e) != TG_OK) fail_msg("%s", e.msg);
        *s = from_json(tg_buf_str(&json), (tg_str){0});
    }
    tg_buf_deinit(&path);
    tg_buf_deinit(&json);
    return is_there;
}

static void real_vocabularies_equal_the_reference(void **state)
{
    (void)state;
    static const char *const names[] = {"deepseek_v3", "gemma3", "gpt4o", "gptoss",
                                        "llama2",      "llama3", "qwen3"};
    int n_found = 0;
    begin_comparing();
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        subject s;
        tg_buf path = {0};
        if (!open_vocabulary(&s, names[i])) continue;
        n_found++;
        tg_buf_printf(&path, GOLDEN "hf-%s.json", names[i]);
        json_t *golden = load_golden(tg_buf_cstr(&path));
        check_cases(names[i], s.t, golden);
        json_decref(golden);
        tg_buf_deinit(&path);
        close_subject(&s);
    }
    if (n_found == 0) {
        print_message("neither TG_VOCABS nor models/vocabs holds a vocabulary\n");
        skip();
    }
    end_comparing(150 * n_found);
}

static tg_optional_bool given(const tg_gguf *g, const char *key)
{
    bool is_on = false, is_present = false;
    assert_int_equal(tg_gguf_get_bool(g, key, &is_on, &is_present, NULL), TG_OK);
    return !is_present ? TG_OPTIONAL_ABSENT : is_on ? TG_OPTIONAL_TRUE : TG_OPTIONAL_FALSE;
}

static int64_t id_of(const tg_gguf *g, const char *key)
{
    int64_t id = TG_TOKEN_NONE;
    bool is_present;
    assert_int_equal(tg_gguf_get_i64(g, key, &id, &is_present, NULL), TG_OK);
    return id;
}

static void read_gguf(tg_gguf_vocab *v, const tg_gguf *g, tg_arena *a)
{
    tg_str *tokens = NULL, *merges = NULL;
    float *scores = NULL;
    int32_t *types = NULL;
    int64_t n_tokens = 0, n_merges = 0, n = 0;
    bool is_present;
    *v = (tg_gguf_vocab){0};
    assert_int_equal(tg_gguf_get_str(g, "tokenizer.ggml.model", &v->model, &is_present, NULL),
                     TG_OK);
    assert_int_equal(tg_gguf_get_str(g, "tokenizer.ggml.pre", &v->pre, &is_present, NULL), TG_OK);
    assert_int_equal(
        tg_gguf_get_strs(g, "tokenizer.ggml.tokens", a, &tokens, &n_tokens, &is_present, NULL),
        TG_OK);
    assert_int_equal(
        tg_gguf_get_strs(g, "tokenizer.ggml.merges", a, &merges, &n_merges, &is_present, NULL),
        TG_OK);
    assert_int_equal(
        tg_gguf_get_f32s(g, "tokenizer.ggml.scores", a, &scores, &n, &is_present, NULL), TG_OK);
    assert_int_equal(
        tg_gguf_get_i32s(g, "tokenizer.ggml.token_type", a, &types, &n, &is_present, NULL), TG_OK);
    v->tokens = tokens;
    v->merges = merges;
    v->scores = scores;
    v->types = types;
    v->n_tokens = (int32_t)n_tokens;
    v->n_merges = (int32_t)n_merges;
    v->bos_id = id_of(g, "tokenizer.ggml.bos_token_id");
    v->eos_id = id_of(g, "tokenizer.ggml.eos_token_id");
    v->unk_id = id_of(g, "tokenizer.ggml.unknown_token_id");
    v->pad_id = id_of(g, "tokenizer.ggml.padding_token_id");
    v->cls_id = id_of(g, "tokenizer.ggml.cls_token_id");
    v->sep_id = id_of(g, "tokenizer.ggml.seperator_token_id");
    v->remove_extra_whitespaces = given(g, "tokenizer.ggml.remove_extra_whitespaces");
    const tg_gguf_kv *map = tg_gguf_find(g, "tokenizer.ggml.precompiled_charsmap");
    if (map) v->charsmap = (tg_str){(const char *)map->data, map->n_bytes};
    v->add_bos = given(g, "tokenizer.ggml.add_bos_token");
    v->add_eos = given(g, "tokenizer.ggml.add_eos_token");
    v->add_space_prefix = given(g, "tokenizer.ggml.add_space_prefix");
}

static bool open_model(subject *s, const char *dir, const char *name)
{
    tg_buf path = {0};
    tg_file_map map;
    tg_arena a = {0};
    tg_gguf g;
    tg_gguf_vocab v;
    tg_err e = {0};
    tg_buf_printf(&path, "%s/%s.gguf", dir, name);
    bool is_there = tg_path_is_file(tg_buf_cstr(&path));
    if (is_there) {
        *s = (subject){0};
        if (tg_file_map_open(&map, tg_buf_cstr(&path), &e) != TG_OK ||
            tg_gguf_parse(&g, &a, map.data, map.n_bytes, tg_buf_cstr(&path), &e) != TG_OK)
            fail_msg("%s", e.msg);
        read_gguf(&v, &g, &a);
        if (tg_tokenizer_compile_gguf(&s->blob, &v, &e) != TG_OK) fail_msg("%s", e.msg);
        tg_arena_deinit(&a);
        tg_file_map_close(&map);
        open_subject(s);
    }
    tg_buf_deinit(&path);
    return is_there;
}

/* Whether the folder has the file. */
static bool check_gguf(const char *dir, const char *name)
{
    subject s;
    tg_buf path = {0};
    if (!open_model(&s, dir, name)) return false;
    tg_buf_printf(&path, GOLDEN "gguf-%s.json", name);
    json_t *golden = load_golden(tg_buf_cstr(&path));
    check_cases(name, s.t, golden);
    json_decref(golden);
    tg_buf_deinit(&path);
    close_subject(&s);
    return true;
}

/* bert's ids are those of the tokenizer that its vocabulary is from. */
static void small_gguf_vocabularies_equal_the_reference(void **state)
{
    (void)state;
    begin_comparing();
    assert_true(check_gguf(GOLDEN, "small-t5"));
    assert_true(check_gguf(GOLDEN, "small-bert"));
    end_comparing(500);
}

static void gguf_vocabularies_equal_llama_cpp(void **state)
{
    (void)state;
    static const char *const names[] = {"smollm2-135m-instruct", "gemma3-270m"};
    const char *dir = getenv("TG_MODELS");
    int n_found = 0;
    begin_comparing();
    for (size_t i = 0; i < TG_COUNT(names); i++)
        n_found += check_gguf(dir ? dir : "models", names[i]);
    if (n_found == 0) {
        print_message("neither TG_MODELS nor models/ holds a model\n");
        skip();
    }
    end_comparing(150 * n_found);
}

/* ---- field cases with values of their own */

static void check_ids(const tg_tokenizer *t, const char *text, bool add_special,
                      const int32_t *want, size_t n)
{
    tg_ids ids = {0};
    encode(&ids, t, tg_str_from_cstr(text),
           (tg_encode_options){.add_special = add_special, .parse_special = true});
    if (ids.len != n || (n && memcmp(ids.ptr, want, n * sizeof *want) != 0)) {
        tg_buf b = {0};
        for (size_t i = 0; i < ids.len; i++)
            tg_buf_printf(&b, " %d", ids.ptr[i]);
        fail_msg("'%s' has the ids%s", text, tg_buf_cstr(&b));
    }
    tg_ids_deinit(&ids);
}

#define IDS(t, text, special, ...)                                                                 \
    check_ids(t, text, special, (const int32_t[]){__VA_ARGS__},                                    \
              TG_COUNT(((const int32_t[]){__VA_ARGS__})))

/* A13: both lists there, the declared model decides. Scores would join "ba" first, merges "ab". */
static void the_declared_model_decides_between_merges_and_scores(void **state)
{
    (void)state;
    tg_str tokens[256 + 8] = {TG_STR("<unk>"), TG_STR("<bos>"), TG_STR("a"),    TG_STR("b"),
                              TG_STR("ab"),    TG_STR("ba"),    TG_STR("abab"), TG_STR("\n")};
    char names[256][8];
    float scores[264] = {0, 0, -10, -11, -3, -1, -2, -4};
    int32_t types[264] = {2, 3, 1, 1, 1, 1, 1, 1};
    for (int i = 0; i < 256; i++) {
        snprintf(names[i], sizeof names[i], "<0x%02X>", (unsigned)i);
        tokens[8 + i] = tg_str_from_cstr(names[i]);
        types[8 + i] = 6;
    }
    const tg_str merges[] = {TG_STR("a b"), TG_STR("ab ab")};
    tg_gguf_vocab v = {.model = TG_STR("llama"),
                       .tokens = tokens,
                       .scores = scores,
                       .types = types,
                       .merges = merges,
                       .n_tokens = 264,
                       .n_merges = 2,
                       .bos_id = 1,
                       .eos_id = TG_TOKEN_NONE,
                       .unk_id = 0,
                       .pad_id = TG_TOKEN_NONE,
                       .add_space_prefix = TG_OPTIONAL_FALSE};
    subject s = {0};
    assert_int_equal(tg_tokenizer_compile_gguf(&s.blob, &v, NULL), TG_OK);
    open_subject(&s);
    IDS(s.t, "abab", true, 1, 2, 5, 3); /* bos a ba b */
    close_subject(&s);
    v.model = TG_STR("gemma4");
    s = (subject){0};
    assert_int_equal(tg_tokenizer_compile_gguf(&s.blob, &v, NULL), TG_OK);
    open_subject(&s);
    IDS(s.t, "abab", true, 1, 6);
    IDS(s.t, "ab\n\nab", false, 4, 7, 7, 4);
    IDS(s.t, "z", false, 8 + 'z');
    close_subject(&s);
}

/* ---- refusals */

static void text_that_is_not_utf8_is_refused_with_its_offset(void **state)
{
    (void)state;
    subject s = open_tiny("byte level");
    static const struct {
        const char *text;
        const char *want;
    } cases[] = {
        {"ab\xff", "byte 2"},          {"\xc3", "byte 0"},     {"a\xed\xa0\x80", "byte 1"},
        {"abc\xf0\x9f\x99", "byte 3"}, {"\xc0\x80", "byte 0"},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        tg_ids ids = {0};
        tg_err e = {0};
        tg_encode_options o = {0};
        assert_int_equal(tg_tokenizer_encode(&ids, s.t, tg_str_from_cstr(cases[i].text), &o, &e),
                         TG_E_ARGUMENT);
        assert_non_null(strstr(e.msg, cases[i].want));
        assert_int_equal(ids.len, 0);
    }
    close_subject(&s);
}

/* Sets the value at a path of keys ("model/type"); JSON null values are given as "null". */
static void set_at(json_t *root, const char *path, const char *json)
{
    char key[80];
    json_t *value = json_loads(json, JSON_DECODE_ANY, NULL);
    assert_non_null(value);
    for (;;) {
        size_t n = strcspn(path, "/");
        memcpy(key, path, n);
        key[n] = 0;
        if (!path[n]) break;
        root = json_object_get(root, key);
        path += n + 1;
    }
    json_object_set_new(root, key, value);
}

static void what_is_not_built_is_refused_by_its_name_and_place(void **state)
{
    (void)state;
    static const struct {
        const char *path, *value, *words[3];
    } cases[] = {
        {"version2", "1", {"version2"}},
        {"normalizer", "{\"type\":\"Precompiled\"}", {"normalizer", "precompiled_charsmap"}},
        {"normalizer",
         "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"BAAA\"}",
         {"normalizer", "3 bytes"}},
        {"normalizer",
         "{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"B?AA\"}",
         {"normalizer", "base64"}},
        {"normalizer", "{\"type\":\"NFC\",\"form\":1}", {"normalizer", "form"}},
        {"normalizer",
         "{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},{\"type\":\"NFX\"}]}",
         {"normalizer.normalizers[1]", "NFX"}},
        {"normalizer",
         "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"(\"},\"content\":\"\"}",
         {"group"}},
        {"pre_tokenizer", "{\"type\":\"Scripts\"}", {"pre_tokenizer", "Scripts"}},
        {"pre_tokenizer", "{\"type\":\"FixedLength\",\"length\":0}", {"pre_tokenizer.length", "0"}},
        {"pre_tokenizer",
         "{\"type\":\"Split\",\"pattern\":{\"Regex\":\"[a[b]]\"},\"behavior\":\"Removed\"}",
         {"set inside a set"}},
        {"pre_tokenizer",
         "{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Sideways\"}",
         {"pre_tokenizer.behavior", "Sideways"}},
        {"decoder", "{\"type\":\"TTC\"}", {"decoder", "TTC"}},
        {"decoder", "{\"type\":\"BPEDecoder\",\"suffix\":\"\"}", {"decoder.suffix"}},
        {"decoder",
         "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"CTC\"},{\"type\":\"WordPiece\"}]}",
         {"decoder.decoders[1]", "CTC"}},
        {"decoder",
         "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"WordPiece\"},{\"type\":\"CTC\"}]}",
         {"decoder.decoders[1]", "first"}},
        {"decoder",
         "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}",
         {"decoder.decoders[1]"}},
        {"post_processor", "{\"type\":\"Other\"}", {"post_processor", "Other"}},
        {"post_processor",
         "{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}],"
         "\"special_tokens\":{}}",
         {"post_processor.single"}},
        {"post_processor",
         "{\"type\":\"BertProcessing\",\"cls\":[\"x\",9999999],\"sep\":[\"y\",1]}",
         {"post_processor"}},
        {"model/type", "\"Bag\"", {"model", "Bag"}},
        {"model", "{\"type\":\"WordPiece\",\"dropout\":1}", {"model", "dropout"}},
        {"model", "{\"type\":\"Unigram\",\"vocab\":{}}", {"model", "vocab"}},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[[\"a\"]]}", {"vocab[0]"}},
        {"model", "{\"type\":\"Unigram\",\"vocab\":[]}", {"vocabulary is empty"}},
        {"model",
         "{\"type\":\"Unigram\",\"unk_id\":1,\"vocab\":[[\"a\",0]]}",
         {"unk_id is 1", "0 to 0"}},
        {"model",
         "{\"type\":\"WordPiece\",\"max_input_chars_per_word\":-1,\"vocab\":{\"a\":0}}",
         {"max_input_chars_per_word is -1"}},
        {"model/unk_token", "\"nowhere\"", {"unk_token", "nowhere"}}, /* A32 */
        {"model/merges", "[\"a zzz\"]", {"zzz"}},
        {"model/merges", "[\"ab\"]", {"merges[0]"}},
        {"model/merges", "[\"a b c\"]", {"merges[0]"}},
        {"model/merges", "[[\"a\"]]", {"merges[0]"}},
        {"model/merges", "[\"' '\"]", {"''"}},
        {"model/vocab/a", "-1", {"'a'"}},
        {"model/vocab/a", "4194304", {"'a'", "4194303"}},
        {"model/vocab/a", "4194303", {"4194303"}},
        {"model/vocab/a", "1", {"same id 1"}},
        {"model/vocab/a", "\"1\"", {"'a'"}},
        {"model/vocab", "[]", {"vocab"}},
        {"model/extra", "1", {"extra"}},
        {"added_tokens", "[{\"id\":3,\"content\":\"brandnew\"}]", {"brandnew", "3"}},
        {"added_tokens", "[{\"id\":9,\"content\":\"a\"}]", {"'a'", "9"}},
        {"added_tokens",
         "[{\"id\":9,\"content\":\"a\",\"colour\":1}]",
         {"added_tokens[0]", "colour"}},
        {"added_tokens", "[7]", {"added_tokens[0]"}},
        {"added_tokens", "{}", {"added_tokens"}},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        json_t *v = find_tiny("no decoder");
        tg_buf text = {0}, blob = {0};
        tg_err e = {0};
        set_at(v, cases[i].path, cases[i].value);
        assert_int_equal(tg_json_print(&text, v, 0, NULL), TG_OK);
        tg_status s = tg_tokenizer_compile_json(&blob, tg_buf_str(&text), (tg_str){0}, &e);
        if (s == TG_OK) fail_msg("%s = %s was accepted", cases[i].path, cases[i].value);
        for (size_t k = 0; k < 3 && cases[i].words[k]; k++)
            if (!strstr(e.msg, cases[i].words[k]))
                fail_msg("%s = %s says: %s", cases[i].path, cases[i].value, e.msg);
        assert_int_equal(blob.len, 0);
        tg_buf_deinit(&blob);
        tg_buf_deinit(&text);
        json_decref(v);
    }
}

/* The reference raises "WordPiece error: Missing [UNK] token" and its like for these texts. */
static void a_model_without_an_unknown_token_refuses_what_it_does_not_know(void **state)
{
    (void)state;
    static const char *const models[] = {
        "{\"type\":\"WordPiece\",\"unk_token\":\"?\",\"vocab\":{\"a\":0,\"##b\":1}}",
        "{\"type\":\"WordLevel\",\"unk_token\":\"?\",\"vocab\":{\"a\":0,\"ab\":1}}",
        "{\"type\":\"Unigram\",\"unk_id\":null,\"vocab\":[[\"a\",-1.0],[\"b\",-2.5]]}",
    };
    for (size_t i = 0; i < TG_COUNT(models); i++) {
        json_t *v = find_tiny("no decoder");
        set_at(v, "model", models[i]);
        set_at(v, "pre_tokenizer", "{\"type\":\"WhitespaceSplit\"}");
        subject s = from_value(v);
        tg_ids ids = {0};
        tg_err e = {0};
        encode(&ids, s.t, TG_STR("a ab"), (tg_encode_options){0});
        assert_true(ids.len >= 2);
        tg_encode_options o = {0};
        assert_int_equal(tg_tokenizer_encode(&ids, s.t, TG_STR("a  ?"), &o, &e), TG_E_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "at byte 3"));
        tg_ids_deinit(&ids);
        close_subject(&s);
        json_decref(v);
    }
}

/* A small byte-level vocabulary as a GGUF file would have it. */
static const tg_str gguf_tokens[] = {{"<|end|>", 7},
                                     {"a", 1},
                                     {"b", 1},
                                     {"ab", 2},
                                     {"\xc4\xa0", 2},
                                     {"\xc4\xa0"
                                      "a",
                                      3},
                                     {"<x>", 3},
                                     {"1", 1}};
static const int32_t gguf_types[] = {3, 1, 1, 1, 1, 1, 4, 1};
static const tg_str gguf_merges[] = {{"\xc4\xa0 a", 4}, {"a b", 3}};

static tg_gguf_vocab small_gguf(void)
{
    return (tg_gguf_vocab){.model = TG_STR("gpt2"),
                           .pre = TG_STR("smollm"),
                           .tokens = gguf_tokens,
                           .types = gguf_types,
                           .merges = gguf_merges,
                           .n_tokens = 8,
                           .n_merges = 2,
                           .bos_id = 0,
                           .eos_id = 0,
                           .unk_id = TG_TOKEN_NONE,
                           .pad_id = TG_TOKEN_NONE};
}

static void expect_gguf(const tg_gguf_vocab *v, const char *word)
{
    tg_buf blob = {0};
    tg_err e = {0};
    tg_status s = tg_tokenizer_compile_gguf(&blob, v, &e);
    if (word) {
        if (s == TG_OK) fail_msg("accepted, where '%s' was expected", word);
        if (!strstr(e.msg, word)) fail_msg("'%s' is not in: %s", word, e.msg);
    } else if (s != TG_OK) {
        fail_msg("%s", e.msg);
    }
    tg_buf_deinit(&blob);
}

/* A37, C17 */
static void gguf_metadata_that_is_wrong_is_refused(void **state)
{
    (void)state;
    tg_gguf_vocab v = small_gguf();
    expect_gguf(&v, NULL);
    v.pre = TG_STR("no-such-pre");
    expect_gguf(&v, "no-such-pre");
    v.pre = TG_STR("llama-bpf");
    expect_gguf(&v, "llama-bpe");
    v = small_gguf();
    v.model = TG_STR("rwkv");
    expect_gguf(&v, "rwkv");
    v.model = TG_STR("llama");
    expect_gguf(&v, "tokenizer.ggml.scores");
    v = small_gguf();
    v.eos_id = 8;
    expect_gguf(&v, "tokenizer.ggml.eos_token_id is 8");
    v.eos_id = 0xffffffff;
    expect_gguf(&v, "4294967295");
    v.eos_id = TG_TOKEN_NONE;
    v.add_eos = TG_OPTIONAL_TRUE;
    expect_gguf(&v, "add_eos_token");
    v = small_gguf();
    v.bos_id = TG_TOKEN_NONE;
    expect_gguf(&v, NULL);
    v.add_bos = TG_OPTIONAL_TRUE;
    expect_gguf(&v, "add_bos_token");
    v = small_gguf();
    v.merges = NULL;
    v.n_merges = 0;
    expect_gguf(&v, "tokenizer.ggml.merges");
    const tg_str broken[] = {TG_STR("ab")}, unknown[] = {TG_STR("b a")};
    v.merges = broken;
    v.n_merges = 1;
    expect_gguf(&v, "merges[0]");
    v.merges = unknown;
    expect_gguf(&v, "merges[0]");
    v = small_gguf();
    const int32_t types[] = {3, 1, 1, 1, 1, 1, 9, 1};
    v.types = types;
    expect_gguf(&v, "token 6 is 9");
    v = small_gguf();
    v.n_tokens = 0;
    expect_gguf(&v, "tokenizer.ggml.tokens");
}

/* C18: what is no byte is no byte, and never an index. */
static void byte_tokens_are_spelled_with_two_digits(void **state)
{
    (void)state;
    static const char *const bad[] = {"<0x-1>", "<0x100>", "<0xZZ>", "<0x>", "<0x1>", ""};
    const float scores[] = {0, -1};
    const int32_t byte_type[] = {2, 6}, normal[] = {2, 1};
    for (size_t i = 0; i < TG_COUNT(bad); i++) {
        const tg_str tokens[] = {TG_STR("<unk>"), tg_str_from_cstr(bad[i])};
        tg_gguf_vocab v = {.model = TG_STR("llama"),
                           .tokens = tokens,
                           .scores = scores,
                           .types = byte_type,
                           .n_tokens = 2,
                           .bos_id = -1,
                           .eos_id = -1,
                           .unk_id = 0,
                           .pad_id = -1};
        expect_gguf(&v, "token 1");
        v.types = normal;
        expect_gguf(&v, NULL);
    }
}

static void a_gguf_file_without_a_pre_tokenizer_warns(void **state)
{
    (void)state;
    tg_gguf_vocab v = small_gguf();
    subject s = {0};
    assert_int_equal(tg_tokenizer_compile_gguf(&s.blob, &v, NULL), TG_OK);
    open_subject(&s);
    assert_null(tg_tokenizer_find_warning(s.t, 0));
    IDS(s.t, "ab a1<x>", true, 3, 5, 7, 6);
    close_subject(&s);
    v.pre = (tg_str){0};
    v.add_bos = v.add_eos = TG_OPTIONAL_TRUE;
    s = (subject){0};
    assert_int_equal(tg_tokenizer_compile_gguf(&s.blob, &v, NULL), TG_OK);
    open_subject(&s);
    assert_non_null(strstr(tg_tokenizer_find_warning(s.t, 0), "tokenizer.ggml.pre"));
    assert_null(tg_tokenizer_find_warning(s.t, 1));
    IDS(s.t, "ab a", true, 0, 3, 5, 0);
    close_subject(&s);
}

/* ---- tokenizer_config.json */

/* C36: a string, an object, null; B21: BOS exactly once. */
static void special_ids_come_from_the_config_in_every_form(void **state)
{
    (void)state;
    static const struct {
        const char *name, *config;
        int32_t bos, eos;
        size_t n; /* ids of "a" with what is added */
    } cases[] = {
        {"post-processor template", "{\"bos_token\":\"<s>\",\"eos_token\":{\"content\":\"</s>\"}}",
         1, 2, 4},
        {"post-processor template", "{\"bos_token\":\"<s>\",\"add_bos_token\":true}", 1, -1, 4},
        {"post-processor template", "{\"bos_token\":\"<s>\",\"add_bos_token\":false}", 1, -1, 3},
        {"post-processor byte level", "{\"bos_token\":null,\"eos_token\":\"</s>\"}", -1, 2, 1},
        {"post-processor byte level",
         "{\"bos_token\":{\"content\":\"<s>\",\"normalized\":true},\"add_bos_token\":true}", 1, -1,
         2},
        {"post-processor byte level",
         "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"add_bos_token\":true,"
         "\"add_eos_token\":true}",
         1, 2, 3},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        json_t *v = find_tiny(cases[i].name);
        tg_buf text = {0};
        tg_ids ids = {0};
        assert_int_equal(tg_json_print(&text, v, 0, NULL), TG_OK);
        subject s = from_json(tg_buf_str(&text), tg_str_from_cstr(cases[i].config));
        assert_int_equal(tg_tokenizer_bos_id(s.t), cases[i].bos);
        assert_int_equal(tg_tokenizer_eos_id(s.t), cases[i].eos);
        assert_int_equal(tg_tokenizer_pad_id(s.t), TG_TOKEN_NONE);
        encode(&ids, s.t, TG_STR("a"), (tg_encode_options){.add_special = true});
        assert_int_equal(ids.len, cases[i].n);
        tg_ids_deinit(&ids);
        close_subject(&s);
        tg_buf_deinit(&text);
        json_decref(v);
    }
}

/* ---- looking, decoding */

static void tokens_are_found_printed_and_flagged(void **state)
{
    (void)state;
    subject s = open_tiny("byte level with added tokens");
    uint32_t flags;
    int32_t n = tg_tokenizer_n_vocab(s.t);
    assert_int_equal(tg_tokenizer_n_added(s.t), 4);
    int32_t x = tg_tokenizer_find_token(s.t, TG_STR("<|x|>")),
            y = tg_tokenizer_find_token(s.t, TG_STR("<y>"));
    assert_int_equal(tg_tokenizer_added_id(s.t, 1), x); /* [0] is one of the model's */
    tg_tokenizer_get_token(s.t, x, &flags);
    assert_int_equal(flags, TG_TOKEN_ADDED | TG_TOKEN_SPECIAL);
    tg_str bytes = tg_tokenizer_get_token(s.t, y, &flags);
    assert_int_equal(flags, TG_TOKEN_ADDED);
    assert_true(tg_str_is(bytes, "<y>"));
    int32_t space = tg_tokenizer_find_token(s.t, TG_STR("\xc4\xa0"));
    assert_true(space >= 0);
    assert_true(tg_str_is(tg_tokenizer_get_token(s.t, space, &flags), " "));
    assert_int_equal(flags, 0);
    assert_int_equal(tg_tokenizer_find_token(s.t, TG_STR("no such token")), TG_TOKEN_NONE);
    assert_int_equal(tg_tokenizer_find_token(s.t, TG_STR("")), TG_TOKEN_NONE);
    /* Every token is found by the spelling it prints. */
    for (int32_t i = 0; i < n; i++) {
        tg_buf b = {0};
        tg_tokenizer_print_token(&b, s.t, i);
        assert_int_equal(tg_tokenizer_find_token(s.t, tg_buf_str(&b)), i);
        tg_buf_deinit(&b);
    }
    tg_tokenizer_get_token(s.t, n, &flags);
    assert_int_equal(flags, TG_TOKEN_HOLE);
    tg_tokenizer_get_token(s.t, -1, &flags);
    assert_int_equal(flags, TG_TOKEN_HOLE);
    close_subject(&s);
}

static void an_id_that_is_no_token_is_refused_with_its_place(void **state)
{
    (void)state;
    subject s = open_tiny("byte level");
    const int32_t bad[] = {-1, tg_tokenizer_n_vocab(s.t), INT32_MAX, INT32_MIN};
    for (size_t i = 0; i < TG_COUNT(bad); i++) {
        const int32_t ids[] = {1, 2, bad[i]};
        tg_buf out = {0};
        tg_err e = {0};
        assert_int_equal(tg_tokenizer_decode(&out, s.t, ids, 3, false, &e), TG_E_ARGUMENT);
        assert_non_null(strstr(e.msg, "place 2"));
        tg_buf_deinit(&out);
    }
    close_subject(&s);
}

/* A18, with the ids of random bytes: what is broken becomes U+FFFD where the reference puts it (its
 * own values are in tiny.json); here, every split gives what the whole gives. */
static void decoding_in_pieces_equals_decoding_at_once(void **state)
{
    (void)state;
    static const char *const names[] = {"byte level",          "fallback",
                                        "fallback with seams", "strip both ends",
                                        "metaspace always",    "no decoder"};
    uint64_t seed = tg_test_seed();
    for (size_t k = 0; k < TG_COUNT(names); k++) {
        subject s = open_tiny(names[k]);
        tg_ids ids = {0};
        tg_buf out = {0};
        for (int round = 0; round < 300; round++) {
            tg_ids_clear(&ids);
            int n = (int)(tg_test_next(&seed) % 12);
            uint64_t bound = (uint64_t)tg_tokenizer_n_vocab(s.t);
            for (int i = 0; i < n; i++)
                tg_ids_push(&ids, (int32_t)(tg_test_next(&seed) % bound));
            decode(&out, s.t, &ids, round % 2);
        }
        tg_ids_deinit(&ids);
        tg_buf_deinit(&out);
        close_subject(&s);
    }
}

static void spans_follow_a_text_through_its_rewriting(void **state)
{
    (void)state;
    subject s = open_tiny("normalizer nfc over bytes");
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_str text = TG_STR("xe\xcc\x81z q"); /* e and an accent become one character of two bytes */
    encode(&ids, s.t, text, (tg_encode_options){.spans = &spans});
    assert_int_equal(spans.len, ids.len);
    int32_t at = 0;
    for (size_t i = 0; i < spans.len; i++) {
        bool is_accented = spans.ptr[i].begin == 1;
        if (is_accented) assert_int_equal(spans.ptr[i].end, 4);
        assert_true(spans.ptr[i].begin <= at || spans.ptr[i].begin == at);
        at = TG_MAX(at, spans.ptr[i].end);
    }
    assert_int_equal(at, (int32_t)text.len);
    close_subject(&s);
    /* What the normalizer put in front stands for nothing; special ids have empty spans. */
    s = open_tiny("post-processor template");
    encode(&ids, s.t, TG_STR("ab"), (tg_encode_options){.add_special = true, .spans = &spans});
    close_subject(&s);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
}

/* "ab " again and again, cut at blanks: the ids that a word and its blank become, but for the first
 * and the last ones where words go together with the blank before. */
static void a_text_may_have_any_number_of_words(void **state)
{
    (void)state;
    enum { N_WORDS = 5000, BLANK = 2, AB, AB_BLANK, BLANK_AB };
    static const struct {
        const char *behavior;
        int32_t first, ids[2]; /* -1: none */
    } rows[] = {{"Isolated", -1, {AB, BLANK}},
                {"Removed", -1, {AB, -1}},
                {"MergedWithPrevious", -1, {AB_BLANK, -1}},
                {"MergedWithNext", AB, {BLANK_AB, -1}},
                {"Contiguous", -1, {AB, BLANK}}};
    tg_buf text = {0};
    for (int i = 0; i < N_WORDS; i++)
        tg_buf_add(&text, "ab ", 3);
    for (size_t k = 0; k < TG_COUNT(rows); k++) {
        tg_buf json = {0};
        tg_ids ids = {0};
        tg_spans spans = {0};
        tg_buf_printf(&json,
                      "{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\" \"},"
                      "\"invert\":false,\"behavior\":\"%s\"},\"decoder\":null,\"model\":{"
                      "\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\" \":2,\"ab\":3,\"ab \":4,"
                      "\" ab\":5},\"merges\":[[\"a\",\"b\"],[\"ab\",\" \"],[\" \",\"ab\"]]}}",
                      rows[k].behavior);
        subject s = from_json(tg_buf_str(&json), (tg_str){0});
        encode(&ids, s.t, tg_buf_str(&text), (tg_encode_options){.spans = &spans});
        size_t at = 0;
        if (rows[k].first >= 0) assert_int_equal(ids.ptr[at++], rows[k].first);
        for (int i = rows[k].first >= 0; i < N_WORDS; i++)
            for (int j = 0; j < 2 && rows[k].ids[j] >= 0; j++)
                assert_int_equal(ids.ptr[at++], rows[k].ids[j]);
        if (rows[k].first >= 0) assert_int_equal(ids.ptr[at++], BLANK);
        assert_int_equal(ids.len, at);
        assert_int_equal(spans.len, at);
        assert_true(spans.ptr[at - 1].end >= 3 * N_WORDS - 1);
        close_subject(&s);
        tg_buf_deinit(&json);
        tg_ids_deinit(&ids);
        tg_spans_deinit(&spans);
    }
    tg_buf_deinit(&text);
}

/* ---- patterns */

static void patterns_keep_their_meaning_in_pcre2(void **state)
{
    (void)state;
    static const struct {
        const char *ruby, *pcre2;
    } cases[] = {
        {"\\p{Han}", "\\p{sc:Han}"},
        {"\\p{^L}", "\\P{L}"},
        {"a{2,3}+", "(?:a{2,3})+"},
        {"(ab){2}?", "(?:(ab){2})?"},
        {"a{,4}", "a{0,4}"},
        {"(?m:.)", "(?s:.)"},
        {"x{", "x\\{"},
        {"[\\s]", "[\\p{White_Space}]"},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        tg_buf b = {0};
        assert_int_equal(tg_regex_translate(&b, tg_str_from_cstr(cases[i].ruby), NULL), TG_OK);
        assert_string_equal(tg_buf_cstr(&b), cases[i].pcre2);
        tg_buf_deinit(&b);
    }
    static const char *const refused[] = {
        "\\1", "\\K", "(?<n>a)", "[a&&b]", "a(?i)b", "\\pL", "*a",          "(a",    "a)",
        "[a",  "\\",  "\\x",     "\\u12",  "[\\W]",  "\\Q",  "[[:alpha:]]", "(?#c)", "\\p{L"};
    for (size_t i = 0; i < TG_COUNT(refused); i++) {
        tg_buf b = {0};
        tg_err e = {0};
        if (tg_regex_translate(&b, tg_str_from_cstr(refused[i]), &e) != TG_E_UNSUPPORTED)
            fail_msg("'%s' became '%s'", refused[i], tg_buf_cstr(&b));
        assert_non_null(strstr(e.msg, "at byte"));
        tg_buf_deinit(&b);
    }
}

static void a_pattern_that_explodes_is_stopped(void **state)
{
    (void)state;
    tg_regex *r;
    tg_regex_scratch s = {0};
    tg_err e = {0};
    size_t begin, end;
    char text[64];
    memset(text, 'a', sizeof text);
    memcpy(text + sizeof text - 2, "cb", 2);
    assert_int_equal(tg_regex_new(&r, TG_STR("(?:a+)+b"), NULL), TG_OK);
    assert_int_equal(tg_regex_find(r, &s, (tg_str){text, sizeof text}, 0, &begin, &end, &e),
                     TG_E_LIMIT);
    tg_regex_scratch_deinit(&s);
    tg_regex_free(r);
}

/* ---- the blob */

static void compiling_twice_gives_the_same_bytes(void **state)
{
    (void)state;
    subject a = open_tiny("fallback"), b = open_tiny("fallback");
    assert_int_equal(a.blob.len, b.blob.len);
    assert_memory_equal(a.blob.ptr, b.blob.ptr, a.blob.len);
    close_subject(&a);
    close_subject(&b);
}

/* Whatever a damaged blob says, it opens or not, and then encodes and decodes something or not. */
static void use_damaged(const void *bytes, size_t n)
{
    char *copy = tg_mem_new(n); /* its end is the end of a heap block, which the sanitizer guards */
    memcpy(copy, bytes, n);
    tg_tokenizer *t = NULL;
    if (tg_tokenizer_open(&t, copy, n, NULL) == TG_OK) {
        tg_ids ids = {0};
        tg_buf out = {0};
        tg_encode_options o = {.add_special = true, .parse_special = true};
        tg_status s = tg_tokenizer_encode(
            &ids, t, TG_STR("a<m>b \xe6\x97\xa5 don't 123 \n\n caaab<|x|>"), &o, NULL);
        if (s == TG_OK) s = tg_tokenizer_decode(&out, t, ids.ptr, ids.len, true, NULL);
        for (int32_t i = 0; i < 40; i++)
            tg_tokenizer_print_token(&out, t, i);
        (void)tg_tokenizer_find_token(t, TG_STR("ab"));
        tg_ids_deinit(&ids);
        tg_buf_deinit(&out);
    }
    tg_tokenizer_close(t);
    tg_mem_free(copy);
}

static void a_damaged_blob_is_refused_or_harmless(void **state)
{
    (void)state;
    static const char *const names[] = {"fallback", "byte level with added tokens",
                                        "metaspace first", "word marks"};
    uint64_t seed = tg_test_seed();
    for (size_t k = 0; k < TG_COUNT(names); k++) {
        subject s = open_tiny(names[k]);
        tg_tokenizer *t;
        for (size_t n = 0; n < s.blob.len; n += n < 600 ? 1 : 997) {
            char *copy = tg_mem_new(n);
            memcpy(copy, s.blob.ptr, n);
            assert_int_not_equal(tg_tokenizer_open(&t, copy, n, NULL), TG_OK);
            tg_mem_free(copy);
        }
        for (int round = 0; round < 3000; round++) {
            /* Half of the hits fall on the header, which the rest hangs on. */
            size_t at = tg_test_next(&seed) % (round % 2 ? s.blob.len : 420);
            char old = s.blob.ptr[at];
            uint64_t r = tg_test_next(&seed);
            s.blob.ptr[at] = (char)(round % 3 ? r : (uint64_t)old ^ (uint64_t)1 << r % 8);
            use_damaged(s.blob.ptr, s.blob.len);
            s.blob.ptr[at] = old;
        }
        close_subject(&s);
    }
}

/* ---- memory, threads */

static void refused_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    json_t *v = find_tiny("added normalized");
    tg_buf text = {0};
    assert_int_equal(tg_json_print(&text, v, 0, NULL), TG_OK);
    json_decref(v);
    int64_t before = tg_mem_n_alive();
    tg_status s = TG_E_NOMEM;
    for (int64_t n = 0; s != TG_OK; n = n < 300 ? n + 1 : n + 37) {
        tg_buf blob = {0}, out = {0};
        tg_tokenizer *t = NULL;
        tg_ids ids = {0};
        tg_spans spans = {0};
        tg_err e = {0};
        tg_encode_options o = {.parse_special = true, .spans = &spans};
        tg_mem_fail_after(n);
        s = tg_tokenizer_compile_json(&blob, tg_buf_str(&text), (tg_str){0}, &e);
        if (s == TG_OK) s = tg_tokenizer_open(&t, blob.ptr, blob.len, &e);
        if (s == TG_OK)
            s = tg_tokenizer_encode(&ids, t, TG_STR("a cat<m> \xf0\x9f\x98\x80 dog"), &o, &e);
        if (s == TG_OK) s = tg_tokenizer_decode(&out, t, ids.ptr, ids.len, false, &e);
        tg_mem_fail_after(-1);
        if (s != TG_OK && s != TG_E_NOMEM) fail_msg("allocation %lld: %s", (long long)n, e.msg);
        tg_tokenizer_close(t);
        tg_buf_deinit(&blob);
        tg_buf_deinit(&out);
        tg_ids_deinit(&ids);
        tg_spans_deinit(&spans);
        assert_int_equal(tg_mem_n_alive(), before);
    }
    tg_buf_deinit(&text);
}

static void *encode_many(void *context)
{
    const subject *s = context;
    tg_ids ids = {0};
    size_t n = 0;
    for (int i = 0; i < 300; i++) {
        encode(&ids, s->t,
               TG_STR("Don't stop: it's 1234 \xe6\x97\xa5\xe6\x9c\xac <|x|> naive caf\xc3\xa9"),
               (tg_encode_options){.parse_special = true});
        if (n && ids.len != n) return NULL;
        n = ids.len;
    }
    tg_ids_deinit(&ids);
    return context;
}

static void threads_share_an_open_tokenizer(void **state)
{
    (void)state;
    subject s = open_tiny("split and byte level");
    pthread_t threads[4];
    void *ok;
    for (size_t i = 0; i < TG_COUNT(threads); i++)
        assert_int_equal(pthread_create(&threads[i], NULL, encode_many, &s), 0);
    for (size_t i = 0; i < TG_COUNT(threads); i++) {
        assert_int_equal(pthread_join(threads[i], &ok), 0);
        assert_non_null(ok);
    }
    close_subject(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(small_tokenizers_equal_the_reference),
        cmocka_unit_test(trained_vocabularies_of_every_model_equal_the_reference),
        cmocka_unit_test(real_vocabularies_equal_the_reference),
        cmocka_unit_test(small_gguf_vocabularies_equal_the_reference),
        cmocka_unit_test(gguf_vocabularies_equal_llama_cpp),
        cmocka_unit_test(the_declared_model_decides_between_merges_and_scores),
        cmocka_unit_test(text_that_is_not_utf8_is_refused_with_its_offset),
        cmocka_unit_test(what_is_not_built_is_refused_by_its_name_and_place),
        cmocka_unit_test(a_model_without_an_unknown_token_refuses_what_it_does_not_know),
        cmocka_unit_test(gguf_metadata_that_is_wrong_is_refused),
        cmocka_unit_test(byte_tokens_are_spelled_with_two_digits),
        cmocka_unit_test(a_gguf_file_without_a_pre_tokenizer_warns),
        cmocka_unit_test(special_ids_come_from_the_config_in_every_form),
        cmocka_unit_test(tokens_are_found_printed_and_flagged),
        cmocka_unit_test(an_id_that_is_no_token_is_refused_with_its_place),
        cmocka_unit_test(decoding_in_pieces_equals_decoding_at_once),
        cmocka_unit_test(spans_follow_a_text_through_its_rewriting),
        cmocka_unit_test(a_text_may_have_any_number_of_words),
        cmocka_unit_test(patterns_keep_their_meaning_in_pcre2),
        cmocka_unit_test(a_pattern_that_explodes_is_stopped),
        cmocka_unit_test(compiling_twice_gives_the_same_bytes),
        cmocka_unit_test(a_damaged_blob_is_refused_or_harmless),
        cmocka_unit_test(refused_memory_is_an_error_and_leaks_nothing),
        cmocka_unit_test(threads_share_an_open_tokenizer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
