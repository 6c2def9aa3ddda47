/* SPDX-License-Identifier: Apache-2.0
 * tiktoken.c - tiktoken's files to a blob.
 *
 * A line is a token in base64, a blank and its rank, which is its id too. That is all of the
 * vocabulary: of all neighbours that together are a token, join those of the lowest rank. Where
 * words begin and which special tokens there are stands in the code of the model's maker, so a file
 * alone is not enough: tokenizer_config.json must name a class that is known here. */
#include "token/compile/tokconfig.h"
#include "token/compile/tokparts.h"
#include "token/compile/tokpieces.h"
#include "token/compile/tokpre.h"

#include <inttypes.h>
#include <string.h>

/* ---- what the classes of tokenizers know */

typedef struct tokenizer_class {
    const char *name;
    const char *pre;         /* how words are cut: a name of tokpre.h */
    const char *specials[3]; /* behind the last rank, where the config lists none */
    const char *numbered[2]; /* then n_numbered of them, with the number between the two */
    int32_t n_numbered;
    bool by_id;            /* the number is the id, and a name in the config comes first */
    const char *prefix[2]; /* put before a text */
} tokenizer_class;

static const tokenizer_class classes[] = {
    {.name = "QWenTokenizer",
     .pre = "qwen2",
     .specials = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"},
     .numbered = {"<|extra_", "|>"},
     .n_numbered = 205},
    {.name = "TikTokenTokenizer", /* Kimi */
     .pre = "kimi-k2",
     .numbered = {"<|reserved_token_", "|>"},
     .n_numbered = 256,
     .by_id = true},
    {.name = "ChatGLM4Tokenizer", .pre = "chatglm-bpe", .prefix = {"[gMASK]", "<sop>"}},
    /* The class of transformers when no other is named. */
    {.name = "PreTrainedTokenizerFast", .pre = "llama3"},
    {.name = "TokenizersBackend", .pre = "llama3"},
};

static tg_status find_class(const tg_tok_config *c, const tokenizer_class **out, tg_err *e)
{
    static const char *const what =
        "tiktoken's file does not say how words are cut; save the tokenizer as tokenizer.json with "
        "transformers and use that";
    tg_str name = {0};
    bool has_name = false;
    TG_TRY(tg_json_get_str(c->config, "tokenizer_class", &name, &has_name, "tokenizer_config.json",
                           e));
    if (!has_name)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "tokenizer_config.json names no tokenizer_class, and %s", what);
    for (size_t i = 0; i < TG_COUNT(classes); i++)
        if (tg_str_is(name, classes[i].name)) {
            *out = &classes[i];
            return TG_OK;
        }
    return tg_fail(e, TG_E_UNSUPPORTED, "tokenizer_class is '%.*s', which is not known, and %s",
                   (int)TG_MIN(name.len, (size_t)80), name.ptr, what);
}

/* ---- lines */

static int digit_of(char c)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const char *p = c ? strchr(digits, c) : NULL;
    return p ? (int)(p - digits) : -1;
}

/* Strict: whole groups of four, nothing behind '=', no bits left over. False when it is not. */
static bool decode_base64(tg_buf *out, tg_str s)
{
    tg_buf_clear(out);
    if (s.len == 0 || s.len % 4) return false;
    for (size_t i = 0; i < s.len; i += 4) {
        uint32_t bits = 0;
        size_t n_pads = i + 4 < s.len ? 0 : (s.ptr[i + 3] == '=') + (size_t)(s.ptr[i + 2] == '=');
        for (size_t k = 0; k < 4; k++) {
            int digit = k < 4 - n_pads ? digit_of(s.ptr[i + k]) : 0;
            if (digit < 0 || (k >= 4 - n_pads && s.ptr[i + k] != '=')) return false;
            bits = bits << 6 | (uint32_t)digit;
        }
        if (bits & ((1u << (8 * n_pads)) - 1)) return false;
        for (size_t k = 0; k < 3 - n_pads; k++)
            tg_buf_add_byte(out, (char)(bits >> (16 - 8 * k)));
    }
    return true;
}

/* "aGVsbG8= 15339" */
static bool parse_line(tg_str line, tg_buf *bytes, int64_t *rank)
{
    const char *blank = line.len ? memchr(line.ptr, ' ', line.len) : NULL;
    if (!blank) return false;
    size_t n = (size_t)(blank - line.ptr), n_digits = line.len - n - 1;
    if (n_digits < 1 || n_digits > 10) return false;
    *rank = 0;
    for (size_t i = n + 1; i < line.len; i++) {
        if (line.ptr[i] < '0' || line.ptr[i] > '9') return false;
        *rank = *rank * 10 + (line.ptr[i] - '0');
    }
    return decode_base64(bytes, (tg_str){line.ptr, n});
}

bool tg_tokenizer_is_tiktoken(tg_str file)
{
    tg_buf bytes = {0};
    int64_t rank;
    bool is_line = parse_line(tg_str_take_line(&file), &bytes, &rank);
    tg_buf_deinit(&bytes);
    return is_line;
}

/* A token is spelled in the byte alphabet, so that every one is text. */
static tg_status add_token(tg_tok_build *b, tg_str bytes, int64_t rank, tg_buf *spelling, tg_err *e)
{
    tg_buf_clear(spelling);
    for (size_t i = 0; i < bytes.len; i++)
        tg_buf_add_utf8(spelling, tg_tok_byte_char((uint8_t)bytes.ptr[i]));
    TG_TRY(tg_buf_check(spelling, e));
    return tg_tok_build_add_token(b, (int32_t)TG_MIN(rank, (int64_t)INT32_MAX),
                                  tg_buf_str(spelling), TG_TOK_IS_MODEL, e);
}

static tg_status add_lines(tg_tok_build *b, tg_str file, tg_err *e)
{
    tg_buf bytes = {0}, spelling = {0};
    tg_status s = TG_OK;
    int64_t rank = 0, n_lines = 0, n_tokens = 0;
    while (file.len && s == TG_OK) {
        tg_str line = tg_str_take_line(&file);
        n_lines++;
        if (line.len == 0) continue;
        if (!parse_line(line, &bytes, &rank))
            s = tg_fail(e, TG_E_CORRUPT,
                        "line %" PRId64
                        " of tiktoken's file is not a token in base64, a blank and a "
                        "rank",
                        n_lines);
        else if (rank > 4 * n_tokens + 65536) /* a table of nothing but holes */
            s = tg_fail(e, TG_E_CORRUPT,
                        "line %" PRId64 " of tiktoken's file has the rank %" PRId64
                        " after %" PRId64 " tokens",
                        n_lines, rank, n_tokens);
        else
            s = add_token(b, tg_buf_str(&bytes), rank, &spelling, e);
        n_tokens++;
    }
    tg_buf_deinit(&bytes);
    tg_buf_deinit(&spelling);
    if (s == TG_OK && n_tokens == 0)
        s = tg_fail(e, TG_E_CORRUPT, "tiktoken's file has no tokens; fetch it again");
    return s;
}

static tg_status check_tokens(const tg_tok_build *b, tg_err *e)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        if (!b->entries[i].is_present) continue;
        int32_t last = tg_tok_build_find(b, b->entries[i].text);
        if (last != i)
            return tg_fail(e, TG_E_CORRUPT,
                           "tiktoken's file has one token twice, with the ranks %" PRId32
                           " and %" PRId32,
                           i, last);
    }
    for (int i = 0; i < 256; i++)
        if (b->byte_ids[i] < 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "tiktoken's file has no token for the byte 0x%02x: it is cut short or "
                           "another file",
                           (unsigned)i);
    return TG_OK;
}

/* ---- special tokens */

static tg_status add_special(tg_tok_build *b, int32_t id, tg_str content, tg_err *e)
{
    uint16_t flags = TG_TOKEN_ADDED | TG_TOKEN_SPECIAL;
    if (id < b->n_entries && b->entries[id].is_present) return TG_OK;
    TG_TRY(tg_tok_build_add_token(b, id, content, flags, e));
    return tg_tok_build_add_added(b, content, id, TG_TOK_ADDED_SPECIAL, e);
}

/* What the class gives in its code; the config's own tokens are there already. */
static tg_status add_class_tokens(tg_tok_build *b, const tokenizer_class *k, int32_t n_ranks,
                                  bool has_listed, tg_err *e)
{
    int32_t id = n_ranks;
    tg_buf name = {0};
    tg_status s = TG_OK;
    if (has_listed && !k->by_id) return TG_OK;
    for (size_t i = 0; i < TG_COUNT(k->specials) && k->specials[i] && s == TG_OK; i++)
        s = add_special(b, id++, tg_str_from_cstr(k->specials[i]), e);
    for (int32_t i = 0; i < k->n_numbered && s == TG_OK; i++, id++) {
        tg_buf_clear(&name);
        tg_buf_printf(&name, "%s%" PRId32 "%s", k->numbered[0], k->by_id ? id : i, k->numbered[1]);
        s = tg_buf_check(&name, e);
        if (s == TG_OK) s = add_special(b, id, tg_buf_str(&name), e);
    }
    tg_buf_deinit(&name);
    return s;
}

/* Ids below the last rank that no line has; a special token may stand there. */
static tg_status check_ranks(const tg_tok_build *b, int32_t n_ranks, tg_err *e)
{
    for (int32_t i = 0; i < n_ranks; i++)
        if (!b->entries[i].is_present)
            return tg_fail(e, TG_E_CORRUPT,
                           "tiktoken's file has ranks up to %" PRId32 " and none is %" PRId32
                           "; fetch it again",
                           n_ranks - 1, i);
    return TG_OK;
}

static tg_status add_prefix(tg_tok_build *b, const tokenizer_class *k, tg_err *e)
{
    for (size_t i = 0; i < TG_COUNT(k->prefix) && k->prefix[i]; i++)
        for (int32_t n = 0; n < b->n_added; n++)
            if (tg_str_is(b->added[n].content, k->prefix[i]))
                tg_ids_push(&b->prefix, b->added[n].id);
    return tg_ids_check(&b->prefix, e);
}

/* ---- all of it */

static tg_status add_merges(tg_tok_build *b, tg_err *e)
{
    int32_t *rank = TG_ARENA_ARRAY(&b->arena, int32_t, b->n_entries);
    if (!rank) return tg_fail_nomem(e, (size_t)b->n_entries * sizeof *rank, "ranks of tokens");
    for (int32_t i = 0; i < b->n_entries; i++)
        rank[i] = i;
    return tg_tok_build_merge_cuts(b, rank, e);
}

static tg_status build(tg_tok_build *b, tg_str file, const tg_tok_config *c, tg_err *e)
{
    const tokenizer_class *k = NULL;
    const tg_tok_pre *pre = NULL;
    TG_TRY(find_class(c, &k, e));
    TG_TRY(tg_tok_pre_find(&pre, tg_str_from_cstr(k->pre), "tokenizer_class", e));
    if (pre->has_nfc)
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_NFC}, TG_STR(""),
                                     TG_STR(""), e));
    TG_TRY(tg_tok_pre_add_splits(b, pre, e));
    TG_TRY(add_lines(b, file, e));
    TG_TRY(tg_tok_build_index(b, e));
    TG_TRY(add_merges(b, e));
    TG_TRY(tg_tok_build_map_bytes(b, e));
    TG_TRY(check_tokens(b, e));
    b->h.flags |= TG_TOK_IGNORE_MERGES | TG_TOK_LOSSY_BYTES;
    int32_t n_ranks = b->n_entries;
    for (int32_t i = 0; i < n_ranks; i++)
        b->entries[i].piece = b->entries[i].key;
    TG_TRY(tg_tok_config_add_listed(b, c, e));
    TG_TRY(add_class_tokens(b, k, n_ranks, b->n_added > 0, e));
    TG_TRY(tg_tok_config_add_named(b, c, e));
    TG_TRY(check_ranks(b, n_ranks, e));
    TG_TRY(add_prefix(b, k, e));
    return tg_tok_config_apply(b, c, e);
}

tg_status tg_tokenizer_compile_tiktoken(tg_buf *blob, tg_str file, const tg_tokenizer_texts *texts,
                                        tg_err *e)
{
    tg_tok_config c = {0};
    tg_tok_build b;
    tg_tok_build_init(&b);
    tg_status s = tg_tok_config_init(&c, texts, e);
    if (s == TG_OK) s = build(&b, file, &c, e);
    if (s == TG_OK) s = tg_tok_build_finish(&b, blob, e);
    tg_tok_config_deinit(&c);
    tg_tok_build_deinit(&b);
    return s;
}
