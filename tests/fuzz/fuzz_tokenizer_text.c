/* SPDX-License-Identifier: Apache-2.0
 * Text through tokenizers: the first byte chooses one of a few, the rest is the text, UTF-8 or not.
 * Besides what tokenizer_use.h asks of all, a byte-level tokenizer without a normalizer prints the
 * text itself, and its spans are the text's bytes, one behind the other. */
#include "base/mem.h"
#include "tokenizer_use.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define ADDED                                                                                      \
    "\"added_tokens\":[{\"id\":0,\"content\":\"<m>\",\"special\":true,\"lstrip\":true,"            \
    "\"rstrip\":true},{\"id\":1,\"content\":\"aB\",\"normalized\":true,\"single_word\":true}],"
#define WORDS                                                                                      \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|\\\\p{N}{1,3}|"          \
    " ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+"
/* Every byte of the byte alphabet would be a page; these few make text that is mostly dropped. */
#define FEW                                                                                        \
    "\"<m>\":0,\"aB\":1,\"a\":2,\"b\":3,\"\xc4\xa0\":4,\"\xc4\xa0"                                 \
    "a\":5,\"ab\":6,\"\xc3\x83\":7"

static const char *const bases[] = {
    "{" ADDED "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
    "\"pattern\":{\"Regex\":\"" WORDS "\"},\"behavior\":\"Isolated\"},{\"type\":\"ByteLevel\","
    "\"use_regex\":false,\"add_prefix_space\":false}]},\"decoder\":{\"type\":\"ByteLevel\"},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{" FEW "},"
    "\"merges\":[\"\xc4\xa0 a\",\"a b\"]}}",
    "{" ADDED "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
    "{\"type\":\"Prepend\",\"prepend\":\"_\"},{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},"
    "\"content\":\"_\"}]},\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\","
    "\"pattern\":{\"String\":\"_\"},\"content\":\" \"},{\"type\":\"ByteFallback\"},{\"type\":"
    "\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":2}]},\"model\":{\"type\":"
    "\"BPE\",\"unk_token\":\"<m>\",\"byte_fallback\":true,\"fuse_unk\":true,\"vocab\":{\"<m>\":0,"
    "\"aB\":1,\"a\":2,\"b\":3,\"_\":4,\"_a\":5,\"ab\":6,\"<0xC3>\":7,\"<0xA9>\":8,\"<0xF0>\":9},"
    "\"merges\":[\"_ a\",\"a b\"]}}",
    "{" ADDED "\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":"
    "\"first\"},\"decoder\":{\"type\":\"Metaspace\",\"replacement\":\"_\"},\"model\":{\"type\":"
    "\"Unigram\",\"unk_id\":0,\"byte_fallback\":false,\"vocab\":[[\"<m>\",0],[\"aB\",-1],[\"a\",-2],"
    "[\"_a\",-1.5],[\"ab\",-2.5],[\"aba\",-3],[\"_\",-2],[\"\xc3\xa9\",-4]]}}",
    "{" ADDED "\"normalizer\":{\"type\":\"BertNormalizer\",\"clean_text\":true,"
    "\"handle_chinese_chars\":true,\"strip_accents\":null,\"lowercase\":true},\"pre_tokenizer\":{"
    "\"type\":\"BertPreTokenizer\"},\"model\":{\"type\":\"WordPiece\",\"unk_token\":\"<m>\","
    "\"continuing_subword_prefix\":\"##\",\"max_input_chars_per_word\":20,\"vocab\":{\"<m>\":0,"
    "\"aB\":1,\"a\":2,\"##a\":3,\"ab\":4,\"##b\":5,\"e\":6,\"'\":7}}}",
};

/* All 256 bytes, so that nothing is dropped: made once. */
static void add_all_bytes(tg_buf *json)
{
    tg_buf_add_cstr(json, "{\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false},"
                          "\"decoder\":{\"type\":\"ByteLevel\"},\"model\":{\"type\":\"BPE\","
                          "\"vocab\":{");
    for (int i = 0; i < 256; i++) {
        bool is_itself = (i >= 0x21 && i <= 0x7e) || (i >= 0xa1 && i <= 0xac) || i >= 0xae;
        int32_t cp = is_itself ? i : 0x100 + (i <= 0x20 ? i : i <= 0xa0 ? i - 0x5e : 0x43);
        tg_buf_add_cstr(json, i ? ",\"" : "\"");
        if (cp == '"' || cp == '\\') tg_buf_add_byte(json, '\\');
        tg_buf_add_utf8(json, cp);
        tg_buf_printf(json, "\":%d", i);
    }
    tg_buf_add_cstr(json, ",\"ab\":256,\"\xc4\xa0"
                          "a\":257},\"merges\":[\"a b\",\"\xc4\xa0 a\"]}}");
}

enum { ALL_BYTES = TG_COUNT(bases), N_TOKENIZERS };

static const tg_tokenizer *find_tokenizer(size_t k)
{
    static tg_tokenizer *open[N_TOKENIZERS];
    if (open[k]) return open[k];
    static tg_buf blobs[N_TOKENIZERS];
    tg_buf json = {0};
    if (k == ALL_BYTES)
        add_all_bytes(&json);
    else
        tg_buf_add_cstr(&json, bases[k]);
    tg_err e = {0};
    must(tg_tokenizer_compile_json(&blobs[k], tg_buf_str(&json), (tg_str){0}, &e) == TG_OK);
    must(tg_tokenizer_open(&open[k], blobs[k].ptr, blobs[k].len, &e) == TG_OK);
    tg_buf_deinit(&json);
    return open[k];
}

static void check_bytes(const tg_tokenizer *t, tg_str text)
{
    tg_ids ids = {0};
    tg_spans spans = {0};
    tg_buf out = {0};
    tg_encode_options o = {.spans = &spans};
    if (tg_tokenizer_encode(&ids, t, text, &o, NULL) == TG_OK) {
        int32_t at = 0;
        for (size_t i = 0; i < ids.len; i++) {
            must(spans.ptr[i].begin == at);
            at = spans.ptr[i].end;
            tg_str piece = tg_tokenizer_get_token(t, ids.ptr[i], NULL);
            must(piece.len == (size_t)(at - spans.ptr[i].begin));
            must(memcmp(piece.ptr, text.ptr + spans.ptr[i].begin, piece.len) == 0);
        }
        must((size_t)at == text.len);
        must(tg_tokenizer_decode(&out, t, ids.ptr, ids.len, false, NULL) == TG_OK);
        must(tg_str_is_equal(tg_buf_str(&out), text));
    }
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
    tg_buf_deinit(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0) return 0;
    size_t k = data[0] % N_TOKENIZERS;
    tg_str text = {(const char *)data + 1, size - 1};
    const tg_tokenizer *t = find_tokenizer(k);
    check_tokenizer(t, text);
    if (k == ALL_BYTES) check_bytes(t, text);
    return 0;
}
