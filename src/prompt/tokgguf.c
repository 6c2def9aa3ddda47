/* SPDX-License-Identifier: Apache-2.0
 * tokgguf.c - the tokenizer of a GGUF file to a blob.
 *
 * GGUF names an algorithm (tokenizer.ggml.model) and, for byte-level vocabularies, a way to cut
 * words (tokenizer.ggml.pre). Both are rows of tables; a name without a row is refused, since a
 * near miss gives ids that are slightly wrong and no error at all.
 *
 * "llama" is SentencePiece's BPE, whose pieces and scores tokpieces.c knows. */
#include "prompt/tokparts.h"
#include "prompt/tokpieces.h"

#include <inttypes.h>
#include <string.h>

static tg_tok_pieces pieces_of(const tg_gguf_vocab *v)
{
    return (tg_tok_pieces){.texts = v->tokens,
                           .scores = v->scores,
                           .types = v->types,
                           .n = v->n_tokens,
                           .type_key = "tokenizer.ggml.token_type",
                           .score_key = "tokenizer.ggml.scores"};
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

/* ---- special ids */

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
    tg_tok_pieces p = pieces_of(v);
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
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(add_listed_merges(b, v, e));
    TG_TRY(tg_tok_build_map_bytes(b, e));
    if (pre_tokenizers[k].ignores_merges) b->h.flags |= TG_TOK_IGNORE_MERGES;
    b->h.flags |= TG_TOK_LOSSY_BYTES;
    /* Normal tokens print the bytes they spell; the others are spelled as they print. */
    for (int32_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].key.ptr && (b->entries[i].flags & TG_TOK_IS_MODEL) &&
            tg_tok_piece_type(&p, i) != TG_PIECE_USER)
            b->entries[i].piece = b->entries[i].key;
    return add_affixes(b, v, pre_tokenizers[k].adds_bos, e);
}

/* ---- the SentencePiece alphabet: U+2581 for blanks, <0x..> for bytes */

/* The pieces as SentencePiece made them; bytes are one stream of UTF-8, as llama.cpp prints it. */
static tg_status add_pieces(tg_tok_build *b, const tg_tok_pieces *p, tg_err *e)
{
    int n_bytes = 0;
    TG_TRY(tg_tok_pieces_mark(b, p, &n_bytes, e));
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
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_REPLACE}, TG_STR(" "),
                                 tg_piece_mark, e);
}

/* ---- merges made of scores: model "llama" */

static tg_status build_scored(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    if (!v->scores)
        return tg_fail(e, TG_E_CORRUPT,
                       "tokenizer.ggml.model is 'llama' and tokenizer.ggml.scores is absent");
    TG_TRY(add_mark_steps(b, v->add_space_prefix != TG_GIVEN_FALSE, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(add_pieces(b, &p, e));
    TG_TRY(tg_tok_pieces_merge(b, &p, e));
    return add_affixes(b, v, true, e);
}

/* Gemma 4: listed merges over marked text, cut between lines. */
static tg_status build_marked(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    TG_TRY(add_mark_steps(b, false, e));
    TG_TRY(tg_tok_add_split(b, TG_STR("[^\\n]+|\\n+"), TG_TOK_ISOLATED, false, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(add_listed_merges(b, v, e));
    TG_TRY(add_pieces(b, &p, e));
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
