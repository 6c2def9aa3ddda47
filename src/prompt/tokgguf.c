/* SPDX-License-Identifier: Apache-2.0
 * tokgguf.c - the tokenizer of a GGUF file to a blob.
 *
 * GGUF names an algorithm (tokenizer.ggml.model) and, for byte-level vocabularies, a way to cut
 * words (tokenizer.ggml.pre). Both are rows of tables; a name without a row is refused, since a
 * near miss gives ids that are slightly wrong and no error at all.
 *
 * "llama" is SentencePiece's BPE: of all neighbours that together are a token, join those with the
 * best score. Written out as merges it is the same as any other BPE: each way to cut a token in
 * two tokens is a merge, ranked by the score of the whole. */
#include "prompt/tokparts.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* tokenizer.ggml.token_type */
enum { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

static int32_t type_of(const tg_gguf_vocab *v, int32_t id)
{
    return v->types ? v->types[id] : TYPE_NORMAL;
}

/* ---- ways to cut words
 *
 * Facts of the tokenizer.json of the models that the names stand for, put together from the parts
 * they share. */

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define BLANKS       "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LETTERS      "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define SIGNS        " ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*"
#define UPPER        "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

#define GPT2   "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3 CONTRACTIONS "|" LETTERS "|\\p{N}{1,3}|" SIGNS "|" BLANKS
#define QWEN2  CONTRACTIONS "|" LETTERS "|\\p{N}|" SIGNS "|" BLANKS
#define QWEN35                                                                                     \
    CONTRACTIONS                                                                                   \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" BLANKS
#define CASED(digits, tail)                                                                        \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" tail "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER    \
    "*" tail "|" digits "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" BLANKS
#define ASCII_SIGNS "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~]"
#define DEEPSEEK3                                                                                  \
    ASCII_SIGNS "[A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"                            \
                "| ?[\\p{P}\\p{S}]+[\\r\\n]*|" BLANKS

#define SEED CONTRACTIONS "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|" BLANKS
#define BAILING                                                                                    \
    CONTRACTIONS "|" LETTERS "|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define BLOOM " ?[^(\\s|.,!?\\u2026\\u3002\\uff0c\\u3001\\u0964\\u06d4\\u060c)]+"
#define CJK   "[\\u4e00-\\u9fa5\\u0800-\\u4e00\\uac00-\\ud7ff]+"

/* What the tokenizer.json of the model each name was made for says. `has_nfc`: it normalizes. */
static const struct {
    const char *name;
    const char *patterns[5];
    bool ignores_merges, adds_bos, has_nfc;
} pre_tokenizers[] = {
    {.name = "gpt-2", .patterns = {GPT2}},
    {.name = "phi-2", .patterns = {GPT2}},
    {.name = "olmo", .patterns = {GPT2}},
    {.name = "mpt", .patterns = {GPT2}},
    {.name = "exaone4", .patterns = {GPT2}},
    {.name = "gigachat", .patterns = {GPT2}},
    {.name = "a.x-4.0", .patterns = {GPT2}},
    {.name = "mellum", .patterns = {GPT2}},
    {.name = "modern-bert", .patterns = {GPT2}},
    {.name = "jais", .patterns = {GPT2}},
    {.name = "trillion", .patterns = {GPT2}},
    {.name = "granite-docling", .patterns = {GPT2}},
    {.name = "smollm", .patterns = {"\\p{N}", GPT2}},
    {.name = "starcoder", .patterns = {"\\p{N}", GPT2}},
    {.name = "refact", .patterns = {"\\p{N}", GPT2}},
    {.name = "command-r", .patterns = {"\\p{N}", GPT2}},
    {.name = "codeshell", .patterns = {"\\p{N}", GPT2}},
    {.name = "exaone", .patterns = {"\\p{N}", GPT2}},
    {.name = "minerva-7b", .patterns = {"\\p{N}", GPT2}},
    {.name = "falcon", .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}},
    {.name = "llama3", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-v3", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "llama-bpe", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon3", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "pixtral", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "lfm2", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "falcon-h1", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "midm-2.0", .patterns = {LLAMA3}, .ignores_merges = true, .adds_bos = true},
    {.name = "dbrx", .patterns = {LLAMA3}},
    {.name = "smaug-bpe", .patterns = {LLAMA3}},
    {.name = "chatglm-bpe", .patterns = {LLAMA3}},
    {.name = "glm4", .patterns = {LLAMA3}, .ignores_merges = true},
    {.name = "glm5", .patterns = {LLAMA3}, .ignores_merges = true},
    {.name = "qwen2", .patterns = {QWEN2}, .has_nfc = true},
    {.name = "megrez", .patterns = {QWEN2}},
    {.name = "stablelm2", .patterns = {QWEN2}},
    {.name = "deepseek-r1-qwen", .patterns = {QWEN2}},
    {.name = "kormo", .patterns = {QWEN2}},
    {.name = "f2llmv2", .patterns = {QWEN2}},
    {.name = "hunyuan", .patterns = {QWEN2}},
    {.name = "grok-2", .patterns = {QWEN2}},
    {.name = "seed-coder", .patterns = {SEED}},
    {.name = "bailingmoe", .patterns = {BAILING}},
    {.name = "bailingmoe2", .patterns = {BAILING}},
    {.name = "llada-moe", .patterns = {BAILING}},
    {.name = "deepseek-coder",
     .patterns = {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", CJK, "\\p{N}"}},
    {.name = "bloom", .patterns = {BLOOM}},
    {.name = "poro-chat", .patterns = {BLOOM}},
    {.name = "gpt3-finnish", .patterns = {BLOOM}},
    {.name = "viking", .patterns = {BLOOM, "\\p{N}"}},
    {.name = "qwen35", .patterns = {QWEN35}, .has_nfc = true},
    {.name = "deepseek-v3",
     .patterns = {"\\p{N}{1,3}", "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+", DEEPSEEK3}},
    {.name = "hunyuan-dense",
     .patterns = {"\\p{N}{1,3}", "[\\u4e00-\\u9fa5\\u3040-\\u309f\\u30a0-\\u30ff]+", DEEPSEEK3}},
    {.name = "gpt-4o", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "llama4", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "kanana2", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "minimax-m2", .patterns = {CASED("\\p{N}{1,3}", CONTRACTIONS "?")}},
    {.name = "tekken", .patterns = {CASED("\\p{N}", "")}, .ignores_merges = true, .adds_bos = true},
    /* The rule of files older than the key: signs apart, then words, then numbers in threes. */
    {.name = "default",
     .patterns = {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}},
};

static tg_status find_pre(const tg_gguf_vocab *v, size_t *out, tg_err *e)
{
    tg_str name = v->pre.len ? v->pre : TG_STR("default");
    const char *names[TG_COUNT(pre_tokenizers)];
    for (size_t i = 0; i < TG_COUNT(pre_tokenizers); i++) {
        names[i] = pre_tokenizers[i].name;
        if (!tg_str_is(name, names[i])) continue;
        *out = i;
        return TG_OK;
    }
    char copy[80] = "";
    memcpy(copy, name.ptr, TG_MIN(name.len, sizeof copy - 1));
    const char *near = tg_find_nearest_name(copy, names, TG_COUNT(names));
    return tg_fail(
        e, TG_E_UNSUPPORTED,
        "tokenizer.ggml.pre is '%s', which is not built%s%s; use the model's Hugging Face "
        "folder instead",
        copy, near ? "; the nearest known is " : "", near ? near : "");
}

/* ---- tokens */

/* Types decide what a token takes part in; spellings never do. */
static tg_status add_tokens(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    for (int32_t i = 0; i < v->n_tokens; i++) {
        int32_t type = type_of(v, i);
        if (type < TYPE_NORMAL || type > TYPE_BYTE)
            return tg_fail(e, TG_E_CORRUPT,
                           "tokenizer.ggml.token_type of token %" PRId32 " is %" PRId32
                           "; known are 1 to 6",
                           i, type);
        size_t bad = tg_utf8_find_invalid(v->tokens[i]);
        if (bad < v->tokens[i].len)
            return tg_fail(e, TG_E_CORRUPT, "token %" PRId32 " is not UTF-8 at byte %zu", i, bad);
        /* What the model may make of text: not control tokens, whose spelling in a text is text. */
        bool is_text = type == TYPE_NORMAL || type == TYPE_USER || type == TYPE_UNUSED;
        uint16_t flags = is_text ? TG_TOK_IS_MODEL : 0;
        if (type == TYPE_CONTROL || type == TYPE_UNKNOWN) flags |= TG_TOKEN_SPECIAL;
        TG_TRY(tg_tok_build_add_token(b, i, v->tokens[i], flags, e));
        if (type != TYPE_CONTROL && type != TYPE_USER && type != TYPE_UNKNOWN) continue;
        b->entries[i].flags |= TG_TOKEN_ADDED;
        uint32_t added = type == TYPE_USER ? 0 : TG_TOK_ADDED_SPECIAL;
        if (v->tokens[i].len) TG_TRY(tg_tok_build_add_added(b, v->tokens[i], i, added, e));
    }
    return tg_tok_build_index(b, e);
}

/* As 64 bits, so that 0xffffffff, which some writers mean as "none", is named in the message. */
static tg_status set_id(const tg_gguf_vocab *v, const char *key, int64_t id, int32_t *out,
                        tg_err *e)
{
    if (id < TG_TOKEN_NONE || id >= v->n_tokens)
        return tg_fail(e, TG_E_CORRUPT, "%s is %" PRId64 "; the vocabulary has ids 0 to %" PRId32,
                       key, id, v->n_tokens - 1);
    *out = (int32_t)id;
    return TG_OK;
}

static tg_status set_ids(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    TG_TRY(set_id(v, "tokenizer.ggml.bos_token_id", v->bos_id, &b->h.bos_id, e));
    TG_TRY(set_id(v, "tokenizer.ggml.eos_token_id", v->eos_id, &b->h.eos_id, e));
    TG_TRY(set_id(v, "tokenizer.ggml.unknown_token_id", v->unk_id, &b->h.unk_name_id, e));
    return set_id(v, "tokenizer.ggml.padding_token_id", v->pad_id, &b->h.pad_id, e);
}

/* BOS and EOS around a text: as the file says, else as its kind does. */
static tg_status add_affixes(tg_tok_build *b, const tg_gguf_vocab *v, bool adds_bos, tg_err *e)
{
    if (v->add_bos != TG_GIVEN_ABSENT) adds_bos = v->add_bos == TG_GIVEN_TRUE;
    bool adds_eos = v->add_eos == TG_GIVEN_TRUE;
    if (adds_bos && b->h.bos_id < 0 && v->add_bos == TG_GIVEN_TRUE)
        return tg_fail(
            e, TG_E_CORRUPT,
            "tokenizer.ggml.add_bos_token is true and tokenizer.ggml.bos_token_id absent");
    if (adds_eos && b->h.eos_id < 0)
        return tg_fail(
            e, TG_E_CORRUPT,
            "tokenizer.ggml.add_eos_token is true and tokenizer.ggml.eos_token_id absent");
    if (adds_bos && b->h.bos_id >= 0) tg_ids_push(&b->prefix, b->h.bos_id);
    if (adds_eos) tg_ids_push(&b->suffix, b->h.eos_id);
    TG_TRY(tg_ids_check(&b->prefix, e));
    return tg_ids_check(&b->suffix, e);
}

/* ---- listed merges: models "gpt2" and "gemma4" */

static tg_status add_listed_merges(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    if (!v->merges)
        return tg_fail(e, TG_E_CORRUPT,
                       "tokenizer.ggml.model is '%.*s' and tokenizer.ggml.merges is absent",
                       (int)v->model.len, v->model.ptr);
    TG_TRY(tg_tok_build_begin_merges(b, (size_t)v->n_merges, e));
    b->keeps_first_merge = true;
    tg_buf joined = {0};
    tg_status s = TG_OK;
    for (int32_t i = 0; i < v->n_merges && s == TG_OK; i++) {
        tg_str m = v->merges[i];
        /* A token may begin with a blank, which therefore does not end the left part. */
        const char *space = m.len > 1 ? memchr(m.ptr + 1, ' ', m.len - 1) : NULL;
        if (!space) {
            s = tg_fail(e, TG_E_CORRUPT, "tokenizer.ggml.merges[%" PRId32 "] is not two tokens", i);
            break;
        }
        tg_str left = {m.ptr, (size_t)(space - m.ptr)};
        tg_str right = {space + 1, m.len - left.len - 1};
        tg_buf_clear(&joined);
        tg_buf_add_str(&joined, left);
        tg_buf_add_str(&joined, right);
        int32_t l = tg_tok_build_find(b, left), r = tg_tok_build_find(b, right);
        int32_t id = tg_tok_build_find(b, tg_buf_str(&joined));
        if (l < 0 || r < 0 || id < 0)
            s = tg_fail(e, TG_E_CORRUPT,
                        "tokenizer.ggml.merges[%" PRId32 "] '%.*s' names or makes a token that the "
                        "vocabulary lacks",
                        i, (int)TG_MIN(m.len, (size_t)100), m.ptr);
        else
            tg_tok_build_add_merge(b, l, r, i, id);
    }
    tg_buf_deinit(&joined);
    return s;
}

static tg_status build_byte_level(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    size_t k = 0;
    TG_TRY(find_pre(v, &k, e));
    if (v->pre.len == 0) b->h.warnings |= 1u << TG_TOK_WARN_PRE_ABSENT;
    if (pre_tokenizers[k].has_nfc)
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_NFC}, TG_STR(""),
                                     TG_STR(""), e));
    if (v->add_space_prefix == TG_GIVEN_TRUE)
        TG_TRY(tg_tok_build_add_step(b, true,
                                     (tg_tok_step){.op = TG_TOK_LEAD, .x = TG_TOK_LEAD_FIRST},
                                     TG_STR(" "), TG_STR(""), e));
    for (size_t i = 0; i < TG_COUNT(pre_tokenizers[k].patterns); i++)
        if (pre_tokenizers[k].patterns[i])
            TG_TRY(tg_tok_add_split(b, tg_str_from_cstr(pre_tokenizers[k].patterns[i]),
                                    TG_TOK_ISOLATED, false, e));
    TG_TRY(add_tokens(b, v, e));
    TG_TRY(add_listed_merges(b, v, e));
    TG_TRY(tg_tok_build_map_bytes(b, e));
    if (pre_tokenizers[k].ignores_merges) b->h.flags |= TG_TOK_IGNORE_MERGES;
    b->h.flags |= TG_TOK_LOSSY_BYTES;
    /* Normal tokens print the bytes they spell; the others are spelled as they print. */
    for (int32_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].key.ptr && (b->entries[i].flags & TG_TOK_IS_MODEL) &&
            type_of(v, i) != TYPE_USER)
            b->entries[i].piece = b->entries[i].key;
    return add_affixes(b, v, pre_tokenizers[k].adds_bos, e);
}

/* ---- the SentencePiece alphabet: U+2581 for blanks, <0x..> for bytes */

static const tg_str mark = {"\xe2\x96\x81", 3};

static tg_str without_marks(tg_tok_build *b, tg_str text)
{
    char *s = tg_arena_alloc(&b->arena, text.len + 1);
    size_t n = 0;
    for (size_t i = 0; s && i < text.len;) {
        bool is_mark = tg_str_has_prefix((tg_str){text.ptr + i, text.len - i}, mark);
        s[n++] = is_mark ? ' ' : text.ptr[i];
        i += is_mark ? mark.len : 1;
    }
    return (tg_str){s, n};
}

/* Pieces and byte tokens. Without types, the spelling <0x..> alone says what a byte token is. */
static tg_status add_marked_pieces(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    int n_bytes = 0;
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_tok_entry *x = &b->entries[i];
        int32_t type = type_of(v, i);
        int byte = type == TYPE_BYTE || !v->types ? tg_tok_parse_byte(x->text) : -1;
        if (type == TYPE_BYTE && byte < 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "token %" PRId32 " '%.*s' is a byte by its type and not spelled <0x..>",
                           i, (int)TG_MIN(x->text.len, (size_t)80), x->text.ptr);
        if (byte >= 0) {
            char c = (char)byte;
            x->piece = tg_tok_build_copy(b, (tg_str){&c, 1});
            x->flags = (uint16_t)((x->flags & ~TG_TOK_IS_MODEL) | TG_TOKEN_BYTE);
            n_bytes += b->byte_ids[byte] < 0;
            b->byte_ids[byte] = i;
        } else if (type == TYPE_NORMAL || type == TYPE_UNUSED) {
            x->piece = without_marks(b, x->text);
        }
        if (!x->piece.ptr) return tg_fail_nomem(e, x->text.len, "compiling a tokenizer");
    }
    b->h.flags |= TG_TOK_BYTE_FALLBACK | TG_TOK_LOSSY_BYTES;
    b->may_cut = n_bytes == 256;
    b->h.unk_id = b->h.unk_name_id;
    return TG_OK;
}

static tg_status add_mark_steps(tg_tok_build *b, bool has_lead, tg_err *e)
{
    if (has_lead) {
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_PREPEND}, TG_STR(" "),
                                     TG_STR(""), e));
        b->h.n_left = 1;
        b->h.left_cp = ' ';
    }
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_REPLACE}, TG_STR(" "), mark,
                                 e);
}

/* ---- merges made of scores */

typedef struct scored {
    float score;
    int32_t id;
} scored;

static int compare_scores(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Ranks by falling score; equal scores get equal ranks, so that the leftmost pair wins. */
static tg_status rank_scores(tg_tok_build *b, const tg_gguf_vocab *v, int32_t **out, tg_err *e)
{
    scored *order = TG_ARENA_ARRAY(&b->arena, scored, v->n_tokens);
    int32_t *rank = TG_ARENA_ARRAY(&b->arena, int32_t, v->n_tokens);
    if (!order || !rank)
        return tg_fail_nomem(e, (size_t)v->n_tokens * sizeof *order, "the scores of tokens");
    for (int32_t i = 0; i < v->n_tokens; i++) {
        order[i] = (scored){v->scores[i], i};
        if (v->scores[i] != v->scores[i])
            return tg_fail(e, TG_E_CORRUPT, "tokenizer.ggml.scores[%" PRId32 "] is not a number",
                           i);
    }
    qsort(order, (size_t)v->n_tokens, sizeof *order, compare_scores);
    for (int32_t i = 1; i < v->n_tokens; i++)
        rank[order[i].id] = rank[order[i - 1].id] + (order[i].score < order[i - 1].score);
    *out = rank;
    return TG_OK;
}

/* Characters that occur only inside tokens become symbols, for the merges that need them. */
static tg_status add_symbols(tg_tok_build *b, tg_err *e)
{
    enum { N_CODE_POINTS = 0x110000 };
    uint32_t *seen = TG_ARENA_ARRAY(&b->arena, uint32_t, N_CODE_POINTS / 32);
    if (!seen) return tg_fail_nomem(e, N_CODE_POINTS / 8, "compiling a tokenizer");
    b->h.n_vocab = b->n_entries;
    for (int32_t i = 0; i < b->h.n_vocab; i++) {
        tg_str text = b->entries[i].text;
        if (!(b->entries[i].flags & TG_TOK_IS_MODEL)) continue;
        int32_t cp;
        for (size_t k = 0, n; k < text.len; k += n) {
            n = (size_t)tg_utf8_decode(text.ptr + k, text.len - k, &cp);
            if (seen[cp >> 5] >> (cp & 31) & 1) continue;
            seen[cp >> 5] |= 1u << (cp & 31);
            tg_str c = {text.ptr + k, n};
            if (tg_tok_build_find(b, c) < 0)
                TG_TRY(tg_tok_build_add_token(b, b->n_entries, c, TG_TOK_IS_SYMBOL, e));
        }
    }
    return tg_tok_build_index(b, e);
}

/* Each cut of each token between characters where both parts are tokens: counted, and added as a
 * merge once `rank` is known. */
static size_t visit_cuts(tg_tok_build *b, const int32_t *rank)
{
    size_t n = 0;
    for (int32_t i = 0; i < b->h.n_vocab; i++) {
        tg_str text = b->entries[i].text;
        if (!(b->entries[i].flags & TG_TOK_IS_MODEL)) continue;
        for (size_t k = 1; k < text.len; k++) {
            if (((unsigned char)text.ptr[k] & 0xc0) == 0x80) continue;
            int32_t l = tg_tok_build_find(b, (tg_str){text.ptr, k});
            if (l < 0) continue;
            int32_t r = tg_tok_build_find(b, (tg_str){text.ptr + k, text.len - k});
            if (r < 0) continue;
            n++;
            if (rank) tg_tok_build_add_merge(b, l, r, rank[i], i);
        }
    }
    return n;
}

/* SentencePiece. The index is made again twice, since byte tokens leave it and symbols enter. */
static tg_status build_scored(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    int32_t *rank = NULL;
    if (!v->scores)
        return tg_fail(e, TG_E_CORRUPT,
                       "tokenizer.ggml.model is 'llama' and tokenizer.ggml.scores is absent");
    TG_TRY(add_mark_steps(b, v->add_space_prefix != TG_GIVEN_FALSE, e));
    TG_TRY(add_tokens(b, v, e));
    TG_TRY(add_marked_pieces(b, v, e));
    TG_TRY(tg_tok_build_index(b, e)); /* byte tokens are no longer of the model */
    TG_TRY(add_symbols(b, e));
    TG_TRY(rank_scores(b, v, &rank, e));
    TG_TRY(tg_tok_build_begin_merges(b, visit_cuts(b, NULL), e));
    visit_cuts(b, rank);
    return add_affixes(b, v, true, e);
}

/* Gemma 4: listed merges over marked text, cut between lines. */
static tg_status build_marked(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    TG_TRY(add_mark_steps(b, false, e));
    TG_TRY(tg_tok_add_split(b, TG_STR("[^\\n]+|\\n+"), TG_TOK_ISOLATED, false, e));
    TG_TRY(add_tokens(b, v, e));
    TG_TRY(add_listed_merges(b, v, e));
    TG_TRY(add_marked_pieces(b, v, e));
    return add_affixes(b, v, true, e);
}

static const struct {
    const char *name;
    tg_status (*build)(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e);
} models[] = {
    {"gpt2", build_byte_level},
    {"llama", build_scored},
    {"gemma4", build_marked},
};

tg_status tg_tokenizer_compile_gguf(tg_buf *blob, const tg_gguf_vocab *v, tg_err *e)
{
    if (v->n_tokens < 1)
        return tg_fail(e, TG_E_CORRUPT, "tokenizer.ggml.tokens is absent or empty");
    for (size_t i = 0; i < TG_COUNT(models); i++) {
        if (!tg_str_is(v->model, models[i].name)) continue;
        tg_tok_build b;
        tg_tok_build_init(&b);
        tg_status s = set_ids(&b, v, e);
        if (s == TG_OK) s = models[i].build(&b, v, e);
        if (s == TG_OK) s = tg_tok_build_finish(&b, blob, e);
        tg_tok_build_deinit(&b);
        return s;
    }
    return tg_fail(e, TG_E_UNSUPPORTED, "tokenizer.ggml.model is '%.*s', which is not built",
                   (int)TG_MIN(v->model.len, (size_t)80), v->model.ptr);
}
