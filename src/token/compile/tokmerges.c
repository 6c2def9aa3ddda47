/* SPDX-License-Identifier: Apache-2.0
 * tokmerges.c - vocab.json and merges.txt, as GPT-2 was published, to a blob.
 *
 * vocab.json gives each token's id; a line of merges.txt is two tokens, the first line the first to
 * be joined. Both are spelled in the byte alphabet. How words are cut follows from the class that
 * tokenizer_config.json names; without one it is GPT-2's way, whose format this is. */
#include "token/compile/tokconfig.h"
#include "token/compile/tokparts.h"
#include "token/compile/tokpre.h"

#include <inttypes.h>
#include <string.h>

static const char vocab_name[] = "vocab.json";
static const char merges_name[] = "merges.txt";

/* How the classes of transformers treat the two files; `pre` is a name of tokpre.h. */
static const struct {
    const char *name, *pre;
} classes[] = {
    {"GPT2Tokenizer", "gpt-2"},
    {"GPT2TokenizerFast", "gpt-2"},
    {"Qwen2Tokenizer", "qwen2"},
    {"Qwen2TokenizerFast", "qwen2"},
};

static tg_status find_pre(const tg_tok_config *c, const tg_tok_pre **out, tg_err *e)
{
    tg_str name = TG_STR("GPT2Tokenizer");
    TG_TRY(tg_json_get_str(c->config, "tokenizer_class", &name, NULL, "tokenizer_config.json", e));
    for (size_t i = 0; i < TG_COUNT(classes); i++)
        if (tg_str_is(name, classes[i].name))
            return tg_tok_pre_find(out, tg_str_from_cstr(classes[i].pre), "tokenizer_class", e);
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "tokenizer_class is '%.*s', which cuts words for %s in an unknown way; "
                   "save the tokenizer as tokenizer.json with transformers and use that",
                   (int)TG_MIN(name.len, (size_t)80), name.ptr, vocab_name);
}

static tg_status add_vocabulary(tg_tok_build *b, json_t *vocab, tg_err *e)
{
    const char *key;
    json_t *value;
    if (!json_is_object(vocab)) return tg_fail(e, TG_E_CORRUPT, "%s is not an object", vocab_name);
    int64_t limit = TG_MIN((int64_t)TG_TOK_MAX_ID, 4 * (int64_t)json_object_size(vocab) + 65536);
    json_object_foreach(vocab, key, value)
    {
        int64_t id = json_is_integer(value) ? json_integer_value(value) : -1;
        if (id < 0 || id > limit)
            return tg_fail(e, TG_E_CORRUPT, "%s: the id of '%.100s' is not 0 to %" PRId64,
                           vocab_name, key, limit);
        TG_TRY(tg_tok_build_add_token(b, (int32_t)id, tg_str_from_cstr(key), TG_TOK_IS_MODEL, e));
    }
    return tg_tok_build_index(b, e);
}

static tg_status add_merge(tg_tok_build *b, tg_str line, int32_t number, int32_t rank, tg_err *e)
{
    const char *blank = line.len ? memchr(line.ptr, ' ', line.len) : NULL;
    size_t n = blank ? (size_t)(blank - line.ptr) : 0;
    if (n == 0 || n + 1 == line.len || memchr(blank + 1, ' ', line.len - n - 1))
        return tg_fail(e, TG_E_CORRUPT, "%s: line %" PRId32 " is not two tokens", merges_name,
                       number);
    tg_str left = {line.ptr, n}, right = {blank + 1, line.len - n - 1}, missing;
    TG_TRY(tg_tok_build_add_listed_merge(b, left, right, 0, rank, &missing, e));
    if (!missing.ptr) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: line %" PRId32 " '%.*s' names or makes a token that %s lacks", merges_name,
                   number, (int)TG_MIN(line.len, (size_t)100), line.ptr, vocab_name);
}

/* The first line may say the version of the format; empty lines are nothing. */
static tg_status add_merges(tg_tok_build *b, tg_str text, tg_err *e)
{
    tg_status s = TG_OK;
    int32_t number = 0, rank = 0;
    size_t n_lines = 1;
    for (size_t i = 0; i < text.len; i++)
        n_lines += text.ptr[i] == '\n';
    TG_TRY(tg_tok_build_begin_merges(b, n_lines, e));
    while (text.len && s == TG_OK) {
        tg_str line = tg_str_take_line(&text);
        bool is_version = ++number == 1 && tg_str_has_prefix(line, TG_STR("#version"));
        if (line.len && !is_version) s = add_merge(b, line, number, rank++, e);
    }
    return s;
}

static tg_status build(tg_tok_build *b, json_t *vocab, tg_str merges, const tg_tok_config *c,
                       tg_err *e)
{
    const tg_tok_pre *pre = NULL;
    tg_optional_bool leads;
    TG_TRY(find_pre(c, &pre, e));
    TG_TRY(tg_tok_config_get(c, "add_prefix_space", &leads, e));
    if (pre->has_nfc)
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_NFC}, TG_STR(""),
                                     TG_STR(""), e));
    if (leads == TG_OPTIONAL_TRUE)
        TG_TRY(tg_tok_build_add_step(b, true, (tg_tok_step){.op = TG_TOK_LEAD}, TG_STR(" "),
                                     TG_STR(""), e));
    TG_TRY(tg_tok_pre_add_splits(b, pre, e));
    TG_TRY(add_vocabulary(b, vocab, e));
    TG_TRY(add_merges(b, merges, e));
    TG_TRY(tg_tok_build_map_bytes(b, e));
    b->h.flags |= TG_TOK_LOSSY_BYTES;
    for (int32_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].key.ptr) b->entries[i].piece = b->entries[i].key;
    TG_TRY(tg_tok_config_add_listed(b, c, e));
    TG_TRY(tg_tok_config_add_named(b, c, e));
    return tg_tok_config_apply(b, c, e);
}

tg_status tg_tokenizer_compile_merges(tg_buf *blob, tg_str vocab, tg_str merges,
                                      const tg_tokenizer_texts *texts, tg_err *e)
{
    json_t *root = NULL;
    tg_tok_config c = {0};
    tg_tok_build b;
    tg_tok_build_init(&b);
    tg_status s = tg_tok_config_init(&c, texts, e);
    if (s == TG_OK) s = tg_json_parse(&root, vocab, vocab_name, e);
    if (s == TG_OK) s = build(&b, root, merges, &c, e);
    if (s == TG_OK) s = tg_tok_build_finish(&b, blob, e);
    json_decref(root);
    tg_tok_config_deinit(&c);
    tg_tok_build_deinit(&b);
    return s;
}
