/* SPDX-License-Identifier: Apache-2.0
 *
 * Vocabularies in other wrappings than tokenizer.json: SentencePiece models, tiktoken files, GGUF
 * metadata. Ids and texts come from tests/golden/tokenizer, which tools/goldens/goldens-files makes
 * with the libraries the files were made for. */
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "check.h"
#include "token/compile/tokcompile.h"

#include <math.h>
#include <stdio.h>

#define GOLDEN "tests/golden/tokenizer/"

/* ---- loading */

static json_t *load_golden(const char *name)
{
    json_t *v = NULL;
    tg_buf path = {0};
    tg_err e = {0};
    tg_buf_printf(&path, GOLDEN "%s", name);
    if (tg_json_load(&v, tg_buf_cstr(&path), &e) != TG_OK) fail_msg("%s", e.msg);
    tg_buf_deinit(&path);
    return v;
}

static void load_bytes(tg_buf *out, const char *name)
{
    tg_buf path = {0};
    tg_err e = {0};
    tg_buf_clear(out);
    tg_buf_printf(&path, GOLDEN "%s", name);
    if (tg_file_load(out, tg_buf_cstr(&path), 1 << 28, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_buf_deinit(&path);
}

static tg_str str_of(const json_t *v)
{
    return (tg_str){json_string_value(v), json_string_length(v)};
}

/* ---- comparing */

static int n_cases, n_wrong;

static void report(const char *name, tg_str text, const char *what, const tg_ids *got)
{
    tg_buf b = {0};
    tg_buf_add_escaped(&b, (tg_str){text.ptr, TG_MIN(text.len, (size_t)80)});
    tg_buf_add_cstr(&b, "':");
    for (size_t i = 0; got && i < got->len && i < 40; i++)
        tg_buf_printf(&b, " %d", got->ptr[i]);
    if (n_wrong++ < 20) print_error("%s: %s differ for '%s\n", name, what, tg_buf_cstr(&b));
    tg_buf_deinit(&b);
}

static bool is_list(const json_t *want, const tg_ids *got)
{
    if (json_array_size(want) != got->len) return false;
    for (size_t i = 0; i < got->len; i++)
        if (json_integer_value(json_array_get(want, i)) != got->ptr[i]) return false;
    return true;
}

static void check_ids(const char *name, const tg_tokenizer *t, tg_str text, const char *what,
                      const json_t *want, tg_encode_options o, tg_ids *ids)
{
    tg_err e = {0};
    tg_spans spans = {0};
    o.spans = &spans;
    tg_ids_clear(ids);
    if (tg_tokenizer_encode(ids, t, text, &o, &e) != TG_OK) fail_msg("encode: %s", e.msg);
    if (!is_list(want, ids)) report(name, text, what, ids);
    assert_int_equal(spans.len, ids->len);
    for (size_t i = 0; i < spans.len; i++)
        assert_true(spans.ptr[i].begin >= 0 && spans.ptr[i].begin <= spans.ptr[i].end &&
                    (size_t)spans.ptr[i].end <= text.len);
    tg_spans_deinit(&spans);
}

/* At once, and one id at a time. */
static void check_text(const char *name, const tg_tokenizer *t, const tg_ids *ids, tg_str text,
                       const json_t *want, bool skip)
{
    tg_err e = {0};
    tg_buf whole = {0}, streamed = {0};
    tg_detok d;
    if (tg_tokenizer_decode(&whole, t, ids->ptr, ids->len, skip, &e) != TG_OK)
        fail_msg("decode: %s", e.msg);
    tg_detok_init(&d, t, skip);
    for (size_t i = 0; i < ids->len; i++)
        assert_int_equal(tg_detok_push(&d, &streamed, ids->ptr[i], &e), TG_OK);
    assert_int_equal(tg_detok_flush(&d, &streamed, &e), TG_OK);
    tg_detok_deinit(&d);
    assert_true(tg_str_is_equal(tg_buf_str(&whole), tg_buf_str(&streamed)));
    if (!tg_str_is_equal(tg_buf_str(&whole), str_of(want)))
        report(name, text, skip ? "decoded texts without special tokens" : "decoded texts", ids);
    tg_buf_deinit(&whole);
    tg_buf_deinit(&streamed);
}

static void check_case(const char *name, const tg_tokenizer *t, const json_t *c)
{
    tg_str text = str_of(json_object_get(c, "text"));
    const json_t *want, *full = json_object_get(c, "ids_special");
    tg_ids ids = {0};
    n_cases++;
    if ((want = json_object_get(c, "ids_literal")))
        check_ids(name, t, text, "ids of plain text", want, (tg_encode_options){0}, &ids);
    if ((want = json_object_get(c, "ids"))) {
        check_ids(name, t, text, "ids", want, (tg_encode_options){.parse_special = true}, &ids);
        check_ids(name, t, text, "ids with what stands around", full ? full : want,
                  (tg_encode_options){.add_special = true, .parse_special = true}, &ids);
    }
    if ((want = json_object_get(c, "decoded"))) {
        const json_t *skipped = json_object_get(c, "decoded_skip");
        check_text(name, t, &ids, text, want, false);
        check_text(name, t, &ids, text, skipped ? skipped : want, true);
    }
    tg_ids_deinit(&ids);
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

/* ---- SentencePiece */

typedef tg_status compile_fn(tg_buf *blob, tg_str bytes, const tg_tokenizer_texts *texts,
                             tg_err *e);

static void check_file(compile_fn *compile, const char *name, tg_str bytes, const json_t *config,
                       const json_t *cases)
{
    const json_t *c;
    size_t i;
    tg_buf blob = {0}, text = {0};
    tg_tokenizer *t = NULL;
    tg_err e = {0};
    if (config) assert_int_equal(tg_json_print(&text, config, 0, NULL), TG_OK);
    tg_tokenizer_texts texts = {.config = tg_buf_str(&text)};
    if (compile(&blob, bytes, &texts, &e) != TG_OK) fail_msg("%s: %s", name, e.msg);
    if (tg_tokenizer_open(&t, blob.ptr, blob.len, &e) != TG_OK) fail_msg("%s: %s", name, e.msg);
    json_array_foreach(cases, i, c) check_case(name, t, c);
    tg_tokenizer_close(t);
    tg_buf_deinit(&blob);
    tg_buf_deinit(&text);
}

static void sentencepiece_models_equal_the_library(void **state)
{
    (void)state;
    json_t *all = load_golden("sp.json");
    const json_t *item, *c;
    size_t i, k;
    tg_buf bytes = {0};
    begin_comparing();
    json_array_foreach(json_object_get(all, "models"), i, item)
    {
        const char *name = json_string_value(json_object_get(item, "name"));
        load_bytes(&bytes, json_string_value(json_object_get(item, "model")));
        check_file(tg_tokenizer_compile_sentencepiece, name, tg_buf_str(&bytes), NULL,
                   json_object_get(item, "cases"));
        json_array_foreach(json_object_get(item, "configs"), k, c)
        {
            tg_buf about = {0};
            tg_buf_printf(&about, "%s, %s", name, json_string_value(json_object_get(c, "name")));
            check_file(tg_tokenizer_compile_sentencepiece, tg_buf_cstr(&about), tg_buf_str(&bytes),
                       json_object_get(c, "config"), json_object_get(c, "cases"));
            tg_buf_deinit(&about);
        }
    }
    tg_buf_deinit(&bytes);
    json_decref(all);
    end_comparing(2400);
}

/* Protobuf by hand: what no library would write. */
static void put_varint(tg_buf *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        tg_buf_add_byte(b, (char)(v | 128));
    tg_buf_add_byte(b, (char)v);
}

static void put_bytes(tg_buf *b, uint32_t number, tg_str bytes)
{
    put_varint(b, number << 3 | 2);
    put_varint(b, bytes.len);
    tg_buf_add_str(b, bytes);
}

static void put_number(tg_buf *b, uint32_t number, uint64_t v)
{
    put_varint(b, number << 3);
    put_varint(b, v);
}

static void put_piece(tg_buf *b, const char *text, float score, uint64_t type)
{
    tg_buf piece = {0};
    put_bytes(&piece, 1, tg_str_from_cstr(text));
    put_varint(&piece, 2 << 3 | 5);
    tg_buf_add(&piece, &score, sizeof score);
    put_number(&piece, 3, type);
    put_bytes(b, 1, tg_buf_str(&piece));
    tg_buf_deinit(&piece);
}

/* A message of one number, as the field `outer` of the model. */
static void put_setting(tg_buf *b, uint32_t outer, uint32_t number, uint64_t v)
{
    tg_buf inner = {0};
    put_number(&inner, number, v);
    put_bytes(b, outer, tg_buf_str(&inner));
    tg_buf_deinit(&inner);
}

enum { TRAINER = 2, NORMALIZER = 3, DENORMALIZER = 5, UNIGRAM = 1, BPE = 2 };

static void begin_model(tg_buf *b)
{
    tg_buf_clear(b);
    put_piece(b, "<unk>", 0, 2);
    put_piece(b, "<s>", 0, 3);
    put_piece(b, "a", -1, 1);
    put_setting(b, TRAINER, 3, BPE);
}

static void expect(compile_fn *compile, tg_str bytes, const char *config, const char *word)
{
    tg_buf blob = {0};
    tg_err e = {0};
    tg_tokenizer_texts texts = {.config = tg_str_from_cstr(config)};
    tg_status s = compile(&blob, bytes, &texts, &e);
    if (word ? s == TG_OK || !strstr(e.msg, word) : s != TG_OK)
        fail_msg("expected '%s', got '%s'", word ? word : "success", e.msg);
    if (word) assert_int_equal(blob.len, 0);
    tg_buf_deinit(&blob);
}

static void expect_model(const tg_buf *b, const char *word)
{
    expect(tg_tokenizer_compile_sentencepiece, tg_buf_str(b), NULL, word);
}

static void damaged_sentencepiece_models_are_refused(void **state)
{
    (void)state;
    tg_buf b = {0};
    expect_model(&b, "has no pieces");
    begin_model(&b);
    expect_model(&b, NULL);
    /* Cut anywhere but between fields of the outer message, a model is no model. */
    load_bytes(&b, "sp-unknown.model");
    for (size_t n = 1; n < b.len; n += 97) {
        tg_err e = {0};
        tg_buf blob = {0};
        tg_status s = tg_tokenizer_compile_sentencepiece(&blob, (tg_str){b.ptr, n},
                                                         &(tg_tokenizer_texts){0}, &e);
        assert_true(s == TG_OK || e.msg[0]);
        tg_buf_deinit(&blob);
    }
    expect(tg_tokenizer_compile_sentencepiece, (tg_str){b.ptr, b.len - 1}, NULL, "longer than");
    tg_buf_clear(&b);
    tg_buf_add_cstr(&b, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    expect_model(&b, "longer than the file at byte 11");
    tg_buf_clear(&b);
    tg_buf_add_cstr(&b, "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02");
    expect_model(&b, "a number does not end at byte 1");
    begin_model(&b);
    tg_buf_add(&b, "\x0b", 1); /* groups are of an older format */
    expect_model(&b, "unknown type");
    begin_model(&b);
    tg_buf_add(&b, "\x02\0", 2);
    expect_model(&b, "has no number");
    begin_model(&b);
    put_number(&b, 1, 5);
    expect_model(&b, "another type than its number");
    begin_model(&b);
    put_number(&b, 9, 5);
    expect_model(&b, "the field 9");
    begin_model(&b);
    put_bytes(&b, 1, TG_STR(""));
    expect_model(&b, "piece 3 is empty");
    begin_model(&b);
    put_piece(&b, "\xff", -2, 1);
    expect_model(&b, "token 3 is not UTF-8 at byte 0");
    begin_model(&b);
    put_piece(&b, "a", -2, 1);
    expect_model(&b, "tokens 2 and 3 are both spelled 'a'");
    begin_model(&b);
    put_piece(&b, "b", -2, 7);
    expect_model(&b, "the type of token 3 is 7");
    begin_model(&b);
    put_piece(&b, "b", -2, UINT64_MAX);
    expect_model(&b, "the type of token 3 is 2147483647");
    begin_model(&b);
    put_piece(&b, "b", nanf(""), 1);
    expect_model(&b, "pieces.score[3] is not a number");
    begin_model(&b);
    put_piece(&b, "<unk2>", 0, 2);
    expect_model(&b, "both of the type UNKNOWN");
    begin_model(&b);
    put_piece(&b, "<0x41>", 0, 6);
    expect_model(&b, "byte_fallback is off and 1 pieces");
    put_setting(&b, TRAINER, 35, 1);
    expect_model(&b, "byte_fallback is on and 1 pieces");
    begin_model(&b);
    put_piece(&b, "<41>", 0, 6);
    expect_model(&b, "not spelled <0x..>");
    tg_buf_deinit(&b);
}

static void sentencepiece_settings_that_are_not_built_are_named(void **state)
{
    (void)state;
    tg_buf b = {0}, inner = {0};
    begin_model(&b);
    put_setting(&b, TRAINER, 3, 3);
    expect_model(&b, "model_type is 3 (WORD)");
    begin_model(&b);
    put_setting(&b, TRAINER, 3, 4);
    expect_model(&b, "model_type is 4 (CHAR)");
    begin_model(&b);
    put_setting(&b, TRAINER, 3, 5);
    expect_model(&b, "model_type is 5 (unknown)");
    begin_model(&b);
    put_setting(&b, TRAINER, 24, 1);
    expect_model(&b, "treat_whitespace_as_suffix");
    begin_model(&b);
    put_setting(&b, NORMALIZER, 7, 1);
    expect_model(&b, "normalizer_spec has the field 7");
    begin_model(&b);
    put_bytes(&inner, 2, TG_STR("x"));
    put_bytes(&b, DENORMALIZER, tg_buf_str(&inner));
    expect_model(&b, "denormalizer_spec.precompiled_charsmap has 1 bytes");
    begin_model(&b);
    put_bytes(&b, NORMALIZER, tg_buf_str(&inner));
    expect_model(&b, "normalizer_spec.precompiled_charsmap has 1 bytes");
    /* A table without a key, and a replacement that is two blanks. */
    tg_buf_clear(&inner);
    put_bytes(&inner, 2, (tg_str){"\4\0\0\0\0\0\0\0a  b", 13});
    begin_model(&b);
    put_bytes(&b, NORMALIZER, tg_buf_str(&inner));
    expect_model(&b, "makes two blanks of a character");
    begin_model(&b);
    put_piece(&b, "b", -1, 5);
    expect_model(&b, "of the type UNUSED");
    put_setting(&b, TRAINER, 3, UNIGRAM); /* the last value counts */
    expect_model(&b, NULL);
    begin_model(&b);
    put_piece(&b, "x y", -1, 4);
    expect_model(&b, "remove_extra_whitespaces would change");
    put_setting(&b, NORMALIZER, 4, 0);
    expect_model(&b, NULL);
    tg_buf_deinit(&b);
    tg_buf_deinit(&inner);
}

static void the_files_beside_a_vocabulary_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *config, *word;
    } rows[] = {
        {"[]", "tokenizer_config.json is not an object"},
        {"{\"legacy\":1}", "legacy"},
        {"{\"bos_token\":\"<b>\"}", "bos_token '<b>' is not in the vocabulary"},
        {"{\"bos_token\":7}", "bos_token is not a token"},
        {"{\"added_tokens_decoder\":{\"x\":{\"content\":\"y\"}}}", "the id x is not 0 to"},
        {"{\"added_tokens_decoder\":{\"99999999\":{\"content\":\"y\"}}}", "the id 99999999"},
        {"{\"added_tokens_decoder\":{\"3\":{}}}", "the token 3 has no 'content'"},
        {"{\"added_tokens_decoder\":{\"3\":{\"content\":\"\"}}}", "token 3 is empty"},
        {"{\"added_tokens_decoder\":{\"3\":{\"content\":\"<s>\"}}}", "has it as 1"},
        {"{\"added_tokens_decoder\":{\"3\":{\"content\":\"x\"},\"4\":{\"content\":\"x\"}}}",
         "has it as 3"},
        {"{\"added_tokens_decoder\":{\"9\":{\"content\":\"x\"}},\"pad_token\":\"x\"}", NULL},
    };
    tg_buf b = {0};
    begin_model(&b);
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        expect(tg_tokenizer_compile_sentencepiece, tg_buf_str(&b), rows[i].config, rows[i].word);
    tg_buf_deinit(&b);
}

static tg_tokenizer *open_model(tg_buf *blob, const tg_buf *model, const tg_tokenizer_texts *texts)
{
    tg_err e = {0};
    tg_tokenizer *t = NULL;
    tg_buf_clear(blob);
    if (tg_tokenizer_compile_sentencepiece(blob, tg_buf_str(model), texts, &e) != TG_OK ||
        tg_tokenizer_open(&t, blob->ptr, blob->len, &e) != TG_OK)
        fail_msg("%s", e.msg);
    return t;
}

/* Folders from before added_tokens_decoder: InternLM2 and CodeLlama have renamed spare pieces, or
 * tokens in added_tokens.json. */
static void older_files_name_added_tokens_too(void **state)
{
    (void)state;
    tg_buf b = {0}, blob = {0}, text = {0};
    uint32_t flags;
    begin_model(&b);
    put_piece(&b, "[SPARE]", -5, 1);
    tg_tokenizer_texts texts = {.added_tokens = TG_STR("{\"<x>\": 4, \"<pad>\": 7}"),
                                .special_tokens_map =
                                    TG_STR("{\"pad_token\": {\"content\": \"<pad>\"}, "
                                           "\"additional_special_tokens\": [\"a\"]}")};
    tg_tokenizer *t = open_model(&blob, &b, &texts);
    assert_int_equal(tg_tokenizer_n_vocab(t), 8);
    assert_int_equal(tg_tokenizer_pad_id(t), 7);
    assert_int_equal(tg_tokenizer_find_token(t, TG_STR("<x>")), 4);
    tg_tokenizer_get_token(t, 4, &flags);
    assert_int_equal(flags, TG_TOKEN_ADDED);
    tg_tokenizer_get_token(t, 2, &flags);
    assert_int_equal(flags, TG_TOKEN_ADDED | TG_TOKEN_SPECIAL);
    tg_tokenizer_get_token(t, 6, &flags);
    assert_int_equal(flags, TG_TOKEN_HOLE);
    tg_tokenizer_close(t);
    texts = (tg_tokenizer_texts){
        .config = TG_STR("{\"added_tokens_decoder\": {\"3\": {\"content\": \"<tool>\"}}}")};
    t = open_model(&blob, &b, &texts);
    assert_int_equal(tg_tokenizer_find_token(t, TG_STR("<tool>")), 3);
    int32_t id = 3;
    assert_int_equal(tg_tokenizer_decode(&text, t, &id, 1, false, NULL), TG_OK);
    assert_true(tg_str_is(tg_buf_str(&text), "<tool>"));
    tg_tokenizer_close(t);
    tg_buf_deinit(&b);
    tg_buf_deinit(&blob);
    tg_buf_deinit(&text);
}

/* ---- tiktoken */

static void tiktoken_files_equal_the_library(void **state)
{
    (void)state;
    json_t *all = load_golden("tiktoken.json");
    const json_t *item;
    size_t i;
    tg_buf bytes = {0};
    load_bytes(&bytes, "small.tiktoken");
    assert_true(tg_tokenizer_is_tiktoken(tg_buf_str(&bytes)));
    begin_comparing();
    json_array_foreach(json_object_get(all, "classes"), i, item) check_file(
        tg_tokenizer_compile_tiktoken, json_string_value(json_object_get(item, "name")),
        tg_buf_str(&bytes), json_object_get(item, "config"), json_object_get(item, "cases"));
    load_bytes(&bytes, "sp-bytes.model");
    assert_false(tg_tokenizer_is_tiktoken(tg_buf_str(&bytes)));
    tg_buf_deinit(&bytes);
    json_decref(all);
    end_comparing(900);
}

#define LLAMA_CLASS "{\"tokenizer_class\":\"PreTrainedTokenizerFast\"}"

static void expect_tiktoken(tg_str bytes, const char *more, const char *word)
{
    tg_buf b = {0};
    tg_buf_add_str(&b, bytes);
    tg_buf_add_cstr(&b, more);
    expect(tg_tokenizer_compile_tiktoken, tg_buf_str(&b), LLAMA_CLASS, word);
    tg_buf_deinit(&b);
}

static void damaged_tiktoken_files_are_refused(void **state)
{
    (void)state;
    static const char *const bad[] = {"YWI",          "YWI= ",     " 700",      "YWI=  700",
                                      "YWI=\t700",    "YWI= 7x",   "YWI= -1",   "YWI= 99999999999",
                                      "YW=I 700",     "YWJ= 700",  "Y=== 700",  "==== 700",
                                      "YWI=YWI= 700", "YW I= 700", "YWI= 700 1"};
    tg_buf whole = {0};
    load_bytes(&whole, "small.tiktoken");
    tg_str good = tg_buf_str(&whole);
    expect_tiktoken(good, "", NULL);
    expect_tiktoken(good, "\n\r\n", NULL);
    for (size_t i = 0; i < TG_COUNT(bad); i++) {
        expect_tiktoken(good, bad[i], "line 701 of tiktoken's file is not a token in base64");
        assert_false(tg_tokenizer_is_tiktoken(tg_str_from_cstr(bad[i])));
    }
    expect_tiktoken((tg_str){"", 0}, "", "has no tokens");
    expect_tiktoken((tg_str){"", 0}, "IQ== 0\n", "no token for the byte 0x00");
    expect_tiktoken(good, "IQ== 700\n", "one token twice, with the ranks 0 and 700");
    expect_tiktoken(good, "/////// 0\n", "line 701");
    expect_tiktoken(good, "//////// 5\n", "have the same id 5");
    expect_tiktoken(good, "//////// 701\n", "ranks up to 701 and none is 700");
    expect_tiktoken(good, "//////// 9000000\n", "has the rank 9000000 after 700 tokens");
    expect(tg_tokenizer_compile_tiktoken, good, NULL, "names no tokenizer_class");
    expect(tg_tokenizer_compile_tiktoken, good, "{\"tokenizer_class\":\"HYTokenizer\"}",
           "tokenizer_class is 'HYTokenizer', which is not known");
    /* A special token may stand in a hole of the ranks. */
    tg_buf holed = {0};
    tg_buf_add_str(&holed, good);
    tg_buf_add_cstr(&holed, "//////// 701\n");
    expect(tg_tokenizer_compile_tiktoken, tg_buf_str(&holed),
           "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"added_tokens_decoder\":"
           "{\"700\":{\"content\":\"<e>\",\"special\":true}}}",
           NULL);
    tg_buf_deinit(&holed);
    tg_buf_deinit(&whole);
}

/* ---- vocab.json and merges.txt */

static const char small_merges[] = "#version: 0.2\na b\r\n\nab c\n";

/* check_file compiles one file; the other of the pair lies here. */
static tg_buf pair_merges;

static tg_status compile_pair(tg_buf *blob, tg_str vocab, const tg_tokenizer_texts *texts,
                              tg_err *e)
{
    return tg_tokenizer_compile_merges(blob, vocab, tg_buf_str(&pair_merges), texts, e);
}

static void merges_equal_transformers(void **state)
{
    (void)state;
    json_t *all = load_golden("merges.json");
    const json_t *item;
    size_t i;
    tg_buf vocab = {0};
    load_bytes(&vocab, "small-vocab.json");
    load_bytes(&pair_merges, "small-merges.txt");
    begin_comparing();
    json_array_foreach(json_object_get(all, "classes"), i, item) check_file(
        compile_pair, json_string_value(json_object_get(item, "name")), tg_buf_str(&vocab),
        json_object_get(item, "config"), json_object_get(item, "cases"));
    tg_buf_deinit(&vocab);
    tg_buf_deinit(&pair_merges);
    json_decref(all);
    end_comparing(700);
}

static void pairs_of_files_that_do_not_fit_are_refused(void **state)
{
    (void)state;
    static const char good[] = "{\"a\":0,\"b\":1,\"c\":2,\"ab\":3,\"abc\":4}";
    static const struct {
        const char *vocab, *merges, *config, *word;
    } rows[] = {
        {good, "a b", "", NULL},
        {good, "", "", NULL},
        {"[]", "", "", "vocab.json is not an object"},
        {"{\"a\":-1}", "", "", "the id of 'a' is not 0 to"},
        {"{\"a\":1.5}", "", "", "the id of 'a' is not 0 to"},
        {"{\"a\":9999999}", "", "", "the id of 'a' is not 0 to"},
        {"{\"a\":0,\"b\":0}", "", "", "have the same id 0"},
        {"{}", "", "", "vocabulary is empty"},
        {good, "a b c", "", "line 1 is not two tokens"},
        {good, "#version\na b\nab", "", "line 3 is not two tokens"},
        {good, " a", "", "line 1 is not two tokens"},
        {good, "a ", "", "line 1 is not two tokens"},
        {good, "a x", "", "line 1 'a x' names or makes a token that vocab.json lacks"},
        {good, "b a", "", "line 1 'b a' names or makes"},
        {good, "a b", "{\"tokenizer_class\":\"BertTokenizer\"}",
         "tokenizer_class is 'BertTokenizer'"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf_clear(&pair_merges);
        tg_buf_add_cstr(&pair_merges, rows[i].merges);
        expect(compile_pair, tg_str_from_cstr(rows[i].vocab), rows[i].config, rows[i].word);
    }
    /* Ends of lines of either kind, empty lines and the version are no merges. */
    tg_buf blob = {0};
    tg_tokenizer *t = NULL;
    tg_ids ids = {0};
    assert_int_equal(tg_tokenizer_compile_merges(&blob, tg_str_from_cstr(good),
                                                 tg_str_from_cstr(small_merges),
                                                 &(tg_tokenizer_texts){0}, NULL),
                     TG_OK);
    assert_int_equal(tg_tokenizer_open(&t, blob.ptr, blob.len, NULL), TG_OK);
    assert_int_equal(tg_tokenizer_encode(&ids, t, TG_STR("abcab"), &(tg_encode_options){0}, NULL),
                     TG_OK);
    assert_int_equal(ids.len, 2);
    assert_int_equal(ids.ptr[0], 4);
    assert_int_equal(ids.ptr[1], 3);
    tg_ids_deinit(&ids);
    tg_tokenizer_close(t);
    tg_buf_deinit(&blob);
    tg_buf_deinit(&pair_merges);
}

/* ---- ways to cut words: tokenizer.ggml.pre */

/* CRC-32 as zlib has it, over ids of four bytes. */
static uint32_t sum_ids(const tg_ids *ids)
{
    uint32_t c = UINT32_MAX;
    for (size_t i = 0; i < ids->len * 4; i++) {
        c ^= (uint32_t)ids->ptr[i / 4] >> (8 * (i % 4)) & 255;
        for (int k = 0; k < 8; k++)
            c = c >> 1 ^ (c & 1 ? 0xedb88320 : 0);
    }
    return ~c;
}

static tg_str *list_of(const json_t *v)
{
    const json_t *x;
    size_t i;
    tg_str *out = TG_NEW_ARRAY(tg_str, json_array_size(v));
    json_array_foreach(v, i, x) out[i] = str_of(x);
    return out;
}

/* What one name makes of every text; a text without a sum is one that the reference cuts by
 * characters it does not see. */
static void check_pre(const tg_gguf_vocab *v, const json_t *texts, const json_t *sums)
{
    tg_buf blob = {0};
    tg_tokenizer *t = NULL;
    tg_ids ids = {0};
    tg_err e = {0};
    const json_t *x;
    size_t i;
    if (tg_tokenizer_compile_gguf(&blob, v, &e) != TG_OK) fail_msg("%s: %s", v->pre.ptr, e.msg);
    if (tg_tokenizer_open(&t, blob.ptr, blob.len, &e) != TG_OK) fail_msg("%s", e.msg);
    json_array_foreach(texts, i, x)
    {
        char sum[16];
        const char *want = json_string_value(json_array_get(sums, i));
        if (!want) continue;
        tg_ids_clear(&ids);
        if (tg_tokenizer_encode(&ids, t, str_of(x), &(tg_encode_options){0}, &e) != TG_OK)
            fail_msg("%s: %s", v->pre.ptr, e.msg);
        snprintf(sum, sizeof sum, "%08x", sum_ids(&ids));
        n_cases++;
        if (strcmp(sum, want) != 0) report(v->pre.ptr, str_of(x), "ids", &ids);
    }
    tg_ids_deinit(&ids);
    tg_tokenizer_close(t);
    tg_buf_deinit(&blob);
}

static void words_are_cut_as_each_name_says(void **state)
{
    (void)state;
    json_t *all = load_golden("pre.json"), *list;
    const char *name;
    const json_t *tokens = json_object_get(all, "tokens"), *merges = json_object_get(all, "merges");
    tg_gguf_vocab v = {.model = TG_STR("gpt2"),
                       .tokens = list_of(tokens),
                       .merges = list_of(merges),
                       .n_tokens = (int32_t)json_array_size(tokens),
                       .n_merges = (int32_t)json_array_size(merges),
                       .bos_id = TG_TOKEN_NONE,
                       .eos_id = TG_TOKEN_NONE,
                       .unk_id = TG_TOKEN_NONE,
                       .pad_id = TG_TOKEN_NONE};
    begin_comparing();
    json_object_foreach(json_object_get(all, "names"), name, list)
    {
        v.pre = tg_str_from_cstr(name);
        check_pre(&v, json_object_get(all, "texts"),
                  json_array_get(json_object_get(all, "lists"), (size_t)json_integer_value(list)));
    }
    tg_mem_free((void *)(uintptr_t)v.tokens);
    tg_mem_free((void *)(uintptr_t)v.merges);
    json_decref(all);
    end_comparing(30000);
}

/* Files of both alphabets under one model name: the name of the pre-tokenizer decides. */
static void marked_vocabularies_go_by_their_pre_tokenizer(void **state)
{
    (void)state;
    static const tg_str tokens[] = {{"a", 1},
                                    {"\xe2\x96\x81", 3},
                                    {"\xe2\x96\x81"
                                     "a",
                                     4},
                                    {"<0x0A>", 6},
                                    {"\n", 1}};
    static const int32_t types[] = {1, 1, 1, 6, 1};
    static const tg_str merges[] = {{"\xe2\x96\x81 a", 5}};
    tg_gguf_vocab v = {.model = TG_STR("gpt2"),
                       .pre = TG_STR("sarvam-moe"),
                       .tokens = tokens,
                       .types = types,
                       .merges = merges,
                       .n_tokens = 5,
                       .n_merges = 1,
                       .bos_id = 0,
                       .eos_id = TG_TOKEN_NONE,
                       .unk_id = TG_TOKEN_NONE,
                       .pad_id = TG_TOKEN_NONE};
    static const int32_t bare[] = {2, 4, 0}, begun[] = {0, 2, 4, 0};
    static const struct {
        const char *model, *pre;
        const int32_t *want;
        size_t n;
    } rows[] = {
        {"gpt2", "sarvam-moe", bare, 3}, {"gpt2", "gemma4", begun, 4}, {"gemma4", "", begun, 4}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf blob = {0};
        tg_tokenizer *t = NULL;
        tg_ids ids = {0};
        v.model = tg_str_from_cstr(rows[i].model);
        v.pre = tg_str_from_cstr(rows[i].pre);
        assert_int_equal(tg_tokenizer_compile_gguf(&blob, &v, NULL), TG_OK);
        assert_int_equal(tg_tokenizer_open(&t, blob.ptr, blob.len, NULL), TG_OK);
        tg_encode_options o = {.add_special = true};
        assert_int_equal(tg_tokenizer_encode(&ids, t, TG_STR(" a\na"), &o, NULL), TG_OK);
        assert_int_equal(ids.len, rows[i].n);
        assert_memory_equal(ids.ptr, rows[i].want, rows[i].n * sizeof *ids.ptr);
        tg_ids_deinit(&ids);
        tg_tokenizer_close(t);
        tg_buf_deinit(&blob);
    }
}

/* A21. llama.cpp gives <|end|> of a Phi-3 file the blanks behind it, <s> none of them. */
static void phi_3_swallows_blanks_by_its_name(void **state)
{
    (void)state;
    const tg_str tokens[] = {TG_STR("<s>"), TG_STR("<|end|>"), TG_STR("a"), TG_STR("\xc4\x8a")};
    static const int32_t types[] = {3, 3, 1, 1}, swallowed[] = {1, 2, 0, 3, 2},
                         kept[] = {1, 3, 3, 2, 0, 3, 2};
    tg_gguf_vocab v = {.model = TG_STR("gpt2"),
                       .pre = TG_STR("gpt-2"),
                       .tokens = tokens,
                       .types = types,
                       .merges = tokens,
                       .n_tokens = 4,
                       .bos_id = TG_TOKEN_NONE,
                       .eos_id = TG_TOKEN_NONE,
                       .unk_id = TG_TOKEN_NONE,
                       .pad_id = TG_TOKEN_NONE};
    static const struct {
        const char *name;
        const int32_t *want;
        size_t n;
    } rows[] = {
        {"Phi-3 Mini", swallowed, 5}, {"PHI3", swallowed, 5}, {"Phi 2", kept, 7}, {"", kept, 7}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf blob = {0};
        tg_tokenizer *t = NULL;
        tg_ids ids = {0};
        v.model_name = tg_str_from_cstr(rows[i].name);
        assert_int_equal(tg_tokenizer_compile_gguf(&blob, &v, NULL), TG_OK);
        assert_int_equal(tg_tokenizer_open(&t, blob.ptr, blob.len, NULL), TG_OK);
        tg_encode_options o = {.parse_special = true};
        assert_int_equal(tg_tokenizer_encode(&ids, t, TG_STR("<|end|>\n\na<s>\na"), &o, NULL),
                         TG_OK);
        assert_int_equal(ids.len, rows[i].n);
        assert_memory_equal(ids.ptr, rows[i].want, rows[i].n * sizeof *ids.ptr);
        tg_ids_deinit(&ids);
        tg_tokenizer_close(t);
        tg_buf_deinit(&blob);
    }
}

static void gguf_models_that_are_not_built_are_refused_by_name(void **state)
{
    (void)state;
    static const char *const names[] = {"rwkv", "plamo2",   "hybriddna", "whitespace",
                                        "none", "no_vocab", "unheard-of"};
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        tg_buf blob = {0};
        tg_err e = {0};
        tg_gguf_vocab v = {.model = tg_str_from_cstr(names[i])};
        assert_int_equal(tg_tokenizer_compile_gguf(&blob, &v, &e), TG_E_UNSUPPORTED);
        assert_non_null(strstr(e.msg, names[i]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sentencepiece_models_equal_the_library),
        cmocka_unit_test(damaged_sentencepiece_models_are_refused),
        cmocka_unit_test(sentencepiece_settings_that_are_not_built_are_named),
        cmocka_unit_test(the_files_beside_a_vocabulary_are_read_strictly),
        cmocka_unit_test(older_files_name_added_tokens_too),
        cmocka_unit_test(tiktoken_files_equal_the_library),
        cmocka_unit_test(damaged_tiktoken_files_are_refused),
        cmocka_unit_test(merges_equal_transformers),
        cmocka_unit_test(pairs_of_files_that_do_not_fit_are_refused),
        cmocka_unit_test(words_are_cut_as_each_name_says),
        cmocka_unit_test(marked_vocabularies_go_by_their_pre_tokenizer),
        cmocka_unit_test(phi_3_swallows_blanks_by_its_name),
        cmocka_unit_test(gguf_models_that_are_not_built_are_refused_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
