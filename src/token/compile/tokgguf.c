/* SPDX-License-Identifier: Apache-2.0
 * tokgguf.c - the tokenizer of a GGUF file to a blob.
 *
 * GGUF names an algorithm (tokenizer.ggml.model) and, for byte-level vocabularies, a way to cut
 * words (tokenizer.ggml.pre). Both are rows of tables; a name without a row is refused, since a
 * near miss gives ids that are slightly wrong and no error at all.
 *
 * "llama" is SentencePiece's BPE, whose pieces and scores tokpieces.c knows. */
#include "token/compile/tokpieces.h"
#include "token/compile/tokpre.h"
#include "token/run/tokmap.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
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
    if (v->add_bos != TG_OPTIONAL_ABSENT) adds_bos = v->add_bos == TG_OPTIONAL_TRUE;
    bool adds_eos = v->add_eos == TG_OPTIONAL_TRUE;
    if (adds_bos && b->h.bos_id < 0 && v->add_bos == TG_OPTIONAL_TRUE)
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
    tg_status s = TG_OK;
    for (int32_t i = 0; i < v->n_merges && s == TG_OK; i++) {
        tg_str m = v->merges[i], missing;
        /* A token may begin with a blank, which therefore does not end the left part. */
        const char *space = m.len > 1 ? memchr(m.ptr + 1, ' ', m.len - 1) : NULL;
        if (!space) {
            s = tg_fail(e, TG_E_CORRUPT, "tokenizer.ggml.merges[%" PRId32 "] is not two tokens", i);
            break;
        }
        tg_str left = {m.ptr, (size_t)(space - m.ptr)};
        tg_str right = {space + 1, m.len - left.len - 1};
        s = tg_tok_build_add_listed_merge(b, left, right, 0, i, &missing, e);
        if (s == TG_OK && missing.ptr)
            s = tg_fail(e, TG_E_CORRUPT,
                        "tokenizer.ggml.merges[%" PRId32 "] '%.*s' names or makes a token that the "
                        "vocabulary lacks",
                        i, (int)TG_MIN(m.len, (size_t)100), m.ptr);
    }
    return s;
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
    TG_TRY(add_mark_steps(b, v->add_space_prefix != TG_OPTIONAL_FALSE, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(add_pieces(b, &p, e));
    TG_TRY(tg_tok_pieces_merge(b, &p, e));
    return add_affixes(b, v, true, e);
}

/* ---- tokens that swallow the blanks behind them
 *
 * No key says which; llama.cpp goes by the model's name, and so must who reads its files. */

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c | 32) : c;
}

static bool has_name(tg_str name, const char *part)
{
    size_t n = strlen(part), k = 0;
    for (size_t i = 0; i + n <= name.len && k < n; i++)
        for (k = 0; k < n && lower(name.ptr[i + k]) == part[k];)
            k++;
    return k == n;
}

/* Of Phi 3, every added token but three, as its tokenizer.json has it. */
static void set_rstrip(tg_tok_build *b, const tg_gguf_vocab *v)
{
    static const char *const others[] = {"<unk>", "<s>", "<|endoftext|>"};
    if (!has_name(v->model_name, "phi-3") && !has_name(v->model_name, "phi3")) return;
    for (int32_t i = 0; i < b->n_added; i++) {
        bool is_other = false;
        for (size_t k = 0; k < TG_COUNT(others); k++)
            is_other = is_other || tg_str_is(b->added[i].content, others[k]);
        if (!is_other) b->added[i].flags |= TG_TOK_ADDED_RSTRIP;
    }
}

/* ---- listed merges over marked text: Gemma 4 and what goes its way */

static tg_status build_marked(tg_tok_build *b, const tg_gguf_vocab *v, const tg_tok_pre *pre,
                              tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    TG_TRY(add_mark_steps(b, false, e));
    TG_TRY(tg_tok_pre_add_splits(b, pre, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(add_listed_merges(b, v, e));
    TG_TRY(add_pieces(b, &p, e));
    return add_affixes(b, v, pre->adds_bos, e);
}

/* The model's own pre-tokenizer, whatever tokenizer.ggml.pre says. */
static tg_status build_gemma4(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    const tg_tok_pre *pre = NULL;
    TG_TRY(tg_tok_pre_find(&pre, TG_STR("gemma4"), "tokenizer.ggml.model", e));
    return build_marked(b, v, pre, e);
}

/* ---- model "gpt2" */

/* A token that swallows blanks; which one, no key of the file says. */
static void set_lstrip(tg_tok_build *b, const char *content)
{
    for (int32_t i = 0; content && i < b->n_added; i++)
        if (tg_str_is(b->added[i].content, content)) b->added[i].flags |= TG_TOK_ADDED_LSTRIP;
}

static tg_status build_byte_level(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    const tg_tok_pre *pre = NULL;
    tg_str name = v->pre.len ? v->pre : TG_STR("default");
    TG_TRY(tg_tok_pre_find(&pre, name, "tokenizer.ggml.pre", e));
    if (pre->is_marked) return build_marked(b, v, pre, e);
    if (v->pre.len == 0) b->h.warnings |= 1u << TG_TOK_WARN_PRE_ABSENT;
    if (pre->has_nfc)
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_NFC}, TG_STR(""),
                                     TG_STR(""), e));
    if (v->add_space_prefix == TG_OPTIONAL_TRUE)
        TG_TRY(tg_tok_build_add_step(b, true,
                                     (tg_tok_step){.op = TG_TOK_LEAD, .x = TG_TOK_LEAD_FIRST},
                                     TG_STR(" "), TG_STR(""), e));
    TG_TRY(tg_tok_pre_add_splits(b, pre, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(add_listed_merges(b, v, e));
    TG_TRY(tg_tok_build_map_bytes(b, e));
    if (pre->ignores_merges) b->h.flags |= TG_TOK_IGNORE_MERGES;
    b->h.flags |= TG_TOK_LOSSY_BYTES;
    set_lstrip(b, pre->lstrip);
    /* Normal tokens print the bytes they spell; the others are spelled as they print. */
    for (int32_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].key.ptr && (b->entries[i].flags & TG_TOK_IS_MODEL) &&
            tg_tok_piece_type(&p, i) != TG_PIECE_USER)
            b->entries[i].piece = b->entries[i].key;
    return add_affixes(b, v, pre->adds_bos, e);
}

/* ---- model "t5": SentencePiece's Unigram */

/* As llama.cpp: the least score is that of normal pieces, and user pieces cost nothing. */
static tg_status add_scores(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    float least = FLT_MAX;
    for (int32_t i = 0; i < v->n_tokens; i++) {
        if (isnan(v->scores[i]))
            return tg_fail(e, TG_E_CORRUPT, "tokenizer.ggml.scores[%" PRId32 "] is not a number",
                           i);
        int32_t type = tg_tok_piece_type(&p, i);
        b->entries[i].score = type == TG_PIECE_USER ? 0 : (double)v->scores[i];
        if (type == TG_PIECE_NORMAL) least = TG_MIN(least, v->scores[i]);
    }
    b->h.unk_score = (double)(least - 10.0f);
    return TG_OK;
}

static tg_status build_unigram(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    int n_bytes = 0;
    bool leads = v->add_space_prefix != TG_OPTIONAL_FALSE;
    int32_t blanks = (leads ? TG_TOK_BLANKS_LEAD : 0) |
                     (v->remove_extra_whitespaces == TG_OPTIONAL_TRUE ? TG_TOK_BLANKS_MERGE : 0);
    if (!v->scores)
        return tg_fail(e, TG_E_CORRUPT,
                       "tokenizer.ggml.model is 't5' and tokenizer.ggml.scores is absent");
    if (v->charsmap.len) {
        tg_charsmap map;
        TG_TRY(tg_charsmap_parse(&map, v->charsmap, "tokenizer.ggml.precompiled_charsmap", e));
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_CHARSMAP, .x = 1},
                                     map.units, map.replacements, e));
    }
    TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_BLANKS, .x = blanks},
                                 tg_piece_mark, TG_STR(""), e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(tg_tok_pieces_mark(b, &p, &n_bytes, e));
    TG_TRY(add_scores(b, v, e));
    b->h.model = TG_TOK_UNIGRAM;
    b->h.flags |= TG_TOK_LOSSY_BYTES;
    b->h.unk_id = b->h.unk_name_id;
    if (leads || (blanks & TG_TOK_BLANKS_MERGE)) b->h.n_left = 1, b->h.left_cp = ' ';
    TG_TRY(add_affixes(b, v, false, e));
    /* Where the file does not say, EOS ends a text. */
    if (v->add_eos == TG_OPTIONAL_ABSENT && b->h.eos_id >= 0) tg_ids_push(&b->suffix, b->h.eos_id);
    return tg_ids_check(&b->suffix, e);
}

/* ---- model "bert": WordPiece, whose words begin with U+2581 here and others lose their ## */

static tg_status add_bert_steps(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    bool lowers = v->lowercase != TG_OPTIONAL_FALSE;
    bool strips =
        v->strip_accents == TG_OPTIONAL_ABSENT ? lowers : v->strip_accents == TG_OPTIONAL_TRUE;
    const struct {
        tg_tok_op op;
        bool is_asked;
    } steps[] = {{TG_TOK_CLEAN, true},
                 {TG_TOK_SPACE_CJK, true},
                 {TG_TOK_NFD, strips},
                 {TG_TOK_STRIP_NONSPACING, strips},
                 {TG_TOK_LOWERCASE, lowers}};
    for (size_t i = 0; i < TG_COUNT(steps); i++)
        if (steps[i].is_asked)
            TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = steps[i].op}, TG_STR(""),
                                         TG_STR(""), e));
    tg_tok_step split = {.op = TG_TOK_SPLIT_CLASS, .x = TG_TOK_REMOVED, .y = TG_TOK_CLASS_SPACE};
    TG_TRY(tg_tok_build_add_step(b, true, split, TG_STR(""), TG_STR(""), e));
    split.x = TG_TOK_ISOLATED;
    split.y = TG_TOK_CLASS_PUNCTUATION;
    return tg_tok_build_add_step(b, true, split, TG_STR(""), TG_STR(""), e);
}

static tg_status build_wordpiece(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e)
{
    tg_tok_pieces p = pieces_of(v);
    int n_bytes = 0;
    int32_t cls = TG_TOKEN_NONE, sep = TG_TOKEN_NONE;
    TG_TRY(set_id(v, "tokenizer.ggml.cls_token_id", v->cls_id, &cls, e));
    TG_TRY(set_id(v, "tokenizer.ggml.seperator_token_id", v->sep_id, &sep, e));
    TG_TRY(add_bert_steps(b, v, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(tg_tok_pieces_mark(b, &p, &n_bytes, e));
    b->h.model = TG_TOK_WORDPIECE;
    b->h.flags |= TG_TOK_LOSSY_BYTES | TG_TOK_MARK_FIRST | TG_TOK_CLEAN_UP;
    b->h.max_word_chars = INT32_MAX; /* GGUF has no key for it */
    b->h.word_prefix_at = tg_tok_build_add_string(b, tg_piece_mark);
    b->h.word_prefix_bytes = (uint32_t)tg_piece_mark.len;
    b->h.n_left = 1;
    b->h.left_cp = ' ';
    b->h.unk_id = b->h.unk_name_id;
    if (b->h.bos_id < 0) b->h.bos_id = cls;
    TG_TRY(add_affixes(b, v, true, e));
    if (v->add_sep != TG_OPTIONAL_FALSE && sep >= 0) tg_ids_push(&b->suffix, sep);
    return tg_ids_check(&b->suffix, e);
}

static const struct {
    const char *name;
    tg_status (*build)(tg_tok_build *b, const tg_gguf_vocab *v, tg_err *e);
} models[] = {
    {"gpt2", build_byte_level}, {"llama", build_scored},   {"gemma4", build_gemma4},
    {"t5", build_unigram},      {"bert", build_wordpiece},
};

/* Rows of padding, [PADn] as converters write them: neither printed nor drawn. */
static void set_unused(tg_tok_build *b, const tg_gguf_vocab *v)
{
    for (int32_t i = 0; v->types && i < v->n_tokens; i++)
        if (v->types[i] == TG_PIECE_UNUSED) b->entries[i].flags |= TG_TOKEN_UNUSED;
}

/* Known and not built: why, and what else there is. */
static const struct {
    const char *name, *about;
} refused[] = {
    {"rwkv", "a trie of RWKV's own"},
    {"plamo2", "a table of PLaMo's own"},
    {"hybriddna", "words of DNA between words of text"},
    {"whitespace", "words between blanks, for embeddings"},
    {"none", "no vocabulary: the model takes and gives token ids only"},
    {"no_vocab", "no vocabulary: the model takes and gives token ids only"},
};

static tg_status fail_model(tg_str name, tg_err *e)
{
    for (size_t i = 0; i < TG_COUNT(refused); i++)
        if (tg_str_is(name, refused[i].name))
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "tokenizer.ggml.model is '%s' (%s), which is not built; use a file of "
                           "the model with another tokenizer",
                           refused[i].name, refused[i].about);
    return tg_fail(e, TG_E_UNSUPPORTED, "tokenizer.ggml.model is '%.*s', which is not known",
                   (int)TG_MIN(name.len, (size_t)80), name.ptr);
}

tg_status tg_tokenizer_compile_gguf(tg_buf *blob, const tg_gguf_vocab *v, tg_err *e)
{
    for (size_t i = 0; i < TG_COUNT(models); i++) {
        if (!tg_str_is(v->model, models[i].name)) continue;
        if (v->n_tokens < 1)
            return tg_fail(e, TG_E_CORRUPT, "tokenizer.ggml.tokens is absent or empty");
        tg_tok_build b;
        tg_tok_build_init(&b);
        tg_status s = set_ids(&b, v, e);
        if (s == TG_OK) s = models[i].build(&b, v, e);
        set_rstrip(&b, v);
        if (s == TG_OK) set_unused(&b, v);
        if (s == TG_OK) s = tg_tok_build_finish(&b, blob, e);
        tg_tok_build_deinit(&b);
        return s;
    }
    return fail_model(v->model, e);
}
