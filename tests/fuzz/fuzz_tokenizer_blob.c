/* SPDX-License-Identifier: Apache-2.0
 * A compiled tokenizer: any bytes either are refused or open, and then encoding, decoding and
 * looking end without a bad access, with whatever ids.
 *
 * The first byte says where the blob comes from: 255 for the rest of the input as it stands, else
 * one of a few tokenizers compiled here, and the rest is patches of three bytes, where (16 bits)
 * and what. So the seeds stay good when the format changes. */
#include "base/mem.h"
#include "token/compile/tokcompile.h"
#include "token/run/tokblob.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<m>\",\"special\":true,\"lstrip\":true,"            \
    "\"rstrip\":true},{\"id\":1,\"content\":\"aB\",\"normalized\":true,\"single_word\":true}],"

static const char *const bases[] = {
    "{" ADDED "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"},"
    "{\"type\":\"Lowercase\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
    "\"content\":\"\xe2\x96\x81\"}]},\"pre_tokenizer\":null,\"decoder\":{\"type\":\"Sequence\","
    "\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\","
    "\"content\":\"a\",\"start\":1,\"stop\":2}]},\"model\":{\"type\":\"BPE\",\"unk_token\":\"<m>\","
    "\"byte_fallback\":true,\"fuse_unk\":true,\"vocab\":{\"<m>\":0,\"aB\":1,\"a\":2,\"b\":3,"
    "\"c\":4,\"ab\":5,\"abc\":6,\"aa\":7,\"aaaa\":8,\"<0xC3>\":9,\"<0xA9>\":10},"
    "\"merges\":[\"a b\",\"ab c\",\"a a\",\"aa aa\"]}}",
    "{" ADDED "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
    "\"pattern\":{\"Regex\":\"\\\\p{N}{1,3}|\\\\s+(?!\\\\S)\"},\"behavior\":\"MergedWithNext\"},"
    "{\"type\":\"ByteLevel\"}]},\"decoder\":{\"type\":\"ByteLevel\"},\"post_processor\":{\"type\":"
    "\"BertProcessing\",\"cls\":[\"<m>\",0],\"sep\":[\"aB\",1]},\"model\":{\"type\":\"BPE\","
    "\"ignore_merges\":true,\"vocab\":{\"<m>\":0,\"aB\":1,\"a\":2,\"b\":3,\"\xc4\xa0\":4,"
    "\"\xc4\xa0"
    "a\":5,\"ab\":6,\"1\":7},\"merges\":[\"\xc4\xa0 a\",\"a b\"]}}",
    "{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\","
    "\"prepend_scheme\":\"first\"},"
    "\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\"},"
    "\"model\":{"
    "\"type\":\"BPE\",\"unk_token\":\"u\",\"end_of_word_suffix\":\"!\","
    "\"continuing_subword_prefix\":\"#\",\"vocab\":{\"u\":0,\"a\":1,\"#b\":2,\"ab\":3,\"#c!\":4,"
    "\"abc!\":5,\"\xe2\x96\x81\":6},\"merges\":[\"a #b\",\"ab #c!\"]}}",
    "{" ADDED "\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
    "\"content\":\"\xe2\x96\x81\"},\"decoder\":null,\"model\":{\"type\":\"Unigram\",\"unk_id\":0,"
    "\"byte_fallback\":true,\"vocab\":[[\"<m>\",0.0],[\"aB\",-4.0],[\"a\",-2.5],[\"b\",-3.0],"
    "[\"abc\",-5.5],[\"bca\",-5.0],[\"aa\",-4.5],[\"\xe2\x96\x81\",-1.0],[\"<0xC3>\",-9.0],"
    "[\"<0xA9>\",-9.0]]}}",
    "{" ADDED "\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"},\"decoder\":null,\"model\":{"
    "\"type\":\"WordPiece\",\"unk_token\":\"<m>\",\"continuing_subword_prefix\":\"##\","
    "\"max_input_chars_per_word\":40,\"vocab\":{\"<m>\":0,\"aB\":1,\"a\":2,\"##b\":3,\"##bc\":4,"
    "\"abc\":5,\"##a\":6,\"don\":7,\"t\":8,\"##aaaa\":9}}}",
};

/* The last base: all bytes are tokens, so that it has splits (toksplit.h). Runs of "a" are late. */
static void print_bytes(tg_buf *json)
{
    tg_buf_printf(json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
                        "\"use_regex\":false},\"decoder\":{\"type\":\"ByteLevel\"},"
                        "\"model\":{\"type\":\"BPE\",\"vocab\":{");
    for (int i = 0; i < 256; i++)
        tg_buf_printf(json, "\"\\u%04x\":%d,", (unsigned)tg_tok_byte_char((uint8_t)i), i);
    tg_buf_printf(json, "\"aa\":256,\"aaa\":257,\"aaaa\":258,\"bc\":259,\"abc\":260,\"ca\":261},"
                        "\"merges\":[\"aaa a\",\"aa aa\",\"aa a\",\"a aa\",\"a a\",\"b c\","
                        "\"c a\",\"a bc\"]}}");
}

static const tg_buf *find_base(size_t k)
{
    static tg_buf blobs[TG_COUNT(bases) + 1];
    k %= TG_COUNT(blobs);
    if (blobs[k].len) return &blobs[k];
    tg_buf json = {0};
    if (k < TG_COUNT(bases))
        tg_buf_add_str(&json, tg_str_from_cstr(bases[k]));
    else
        print_bytes(&json);
    if (tg_tokenizer_compile_json(&blobs[k], tg_buf_str(&json), (tg_str){0}, NULL) != TG_OK)
        abort();
    const tg_tok_header *h = (const void *)blobs[k].ptr;
    if (k == TG_COUNT(bases) && !(h->flags & TG_TOK_HAS_SPLITS)) abort();
    tg_buf_deinit(&json);
    return &blobs[k];
}

/* The result of a damaged blob may be anything; it must come to an end. */
static void decode_by_pieces(const tg_tokenizer *t, const tg_ids *ids, bool skip)
{
    tg_buf out = {0};
    tg_detok d;
    tg_detok_init(&d, t, skip);
    tg_status s = TG_OK;
    for (size_t i = 0; i < ids->len && s == TG_OK; i++)
        s = tg_detok_push(&d, &out, ids->ptr[i], NULL);
    if (s == TG_OK) s = tg_detok_flush(&d, &out, NULL);
    tg_detok_deinit(&d);
    tg_buf_deinit(&out);
}

static void use(const tg_tokenizer *t)
{
    static const char text[] =
        "a<m>b  Caf\xc3\xa9 e\xcc\x81 \xe6\x97\xa5 don't 1234\n\n aB <m> "
        "abcabcabc aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_buf out = {0};
    for (int i = 0; i < 4; i++) {
        tg_encode_options o = {
            .add_special = i & 1, .parse_special = i & 2, .spans = i & 1 ? &spans : NULL};
        tg_ids_clear(&ids);
        tg_spans_clear(&spans);
        tg_status s = tg_tokenizer_encode(&ids, t, (tg_str){text, sizeof text - 1}, &o, NULL);
        if (s == TG_OK) s = tg_tokenizer_decode(&out, t, ids.ptr, ids.len, i & 1, NULL);
        tg_buf_clear(&out);
        decode_by_pieces(t, &ids, i & 2);
    }
    for (int32_t id = -1; id < 300; id++)
        tg_tokenizer_print_token(&out, t, id);
    (void)tg_tokenizer_find_token(t, TG_STR("ab"));
    for (int32_t i = 0; i < TG_MIN(tg_tokenizer_n_added(t), 9); i++)
        (void)tg_tokenizer_added_id(t, i);
    (void)tg_tokenizer_find_warning(t, 0);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    tg_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    bool is_raw = data[0] == 255;
    const tg_buf *base = is_raw ? NULL : find_base(data[0]);
    size_t n = is_raw ? size - 1 : base->len;
    char *copy = tg_mem_new(n); /* aligned, as a mapped file is */
    if (!copy) return 0;
    if (n) memcpy(copy, is_raw ? (const char *)data + 1 : base->ptr, n);
    for (size_t i = 1; !is_raw && i + 3 <= size; i += 3)
        copy[(data[i] | (size_t)data[i + 1] << 8) % n] = (char)data[i + 2];
    tg_tokenizer *t = NULL;
    if (tg_tokenizer_open(&t, copy, n, NULL) == TG_OK) use(t);
    tg_tokenizer_close(t);
    tg_mem_free(copy);
    return 0;
}
