/* SPDX-License-Identifier: Apache-2.0
 * tokjson.c - tokenizer.json to a blob: model, added tokens, and the order of it all.
 *
 * The file is read strictly: a key that is not known may change ids, so it is refused. "truncation"
 * and "padding" are for training and batches of equal length, "version" has had one value; they
 * are accepted and not obeyed. */
#include "token/compile/tokconfig.h"
#include "token/compile/tokparts.h"

#include <inttypes.h>
#include <string.h>

static const char file_name[] = "tokenizer.json";

/* ---- added tokens */

/* Linear, and the list is short: thousands at most in real files, and the caller stops asking when
 * a hostile one has more. */
static bool is_added(const tg_tok_build *b, tg_str content)
{
    for (int32_t i = 0; i < b->n_added; i++)
        if (tg_str_is_equal(b->added[i].content, content)) return true;
    return false;
}

static tg_status add_added(tg_tok_build *b, const json_t *item, const tg_tok_place *at, tg_err *e)
{
    static const char *const known[] = {"id",     "content", "single_word", "lstrip",
                                        "rstrip", "special", "normalized"};
    tg_str content;
    int64_t id = -1;
    uint32_t set = 0;
    if (!json_is_object(item)) return tg_fail(e, TG_E_CORRUPT, "%s is not an object", at->path);
    TG_TRY(tg_json_check_keys(item, at->path, known, TG_COUNT(known), e));
    TG_TRY(tg_tok_part_str(item, "content", at, &content, e));
    TG_TRY(tg_json_get_i64(item, "id", &id, NULL, at->path, e));
    TG_TRY(tg_tok_config_read_flags(item, at->path, &set, e));
    /* The library leaves out empty contents, and contents it has already. */
    if (content.len == 0) return TG_OK;
    if (b->n_added < 20000 && is_added(b, content)) return TG_OK;
    if (id < 0 || id > INT32_MAX)
        return tg_fail(e, TG_E_CORRUPT, "%s: id %" PRId64 " is not 0 to %d", at->path, id,
                       INT32_MAX);
    return tg_tok_build_add_added_token(b, content, (int32_t)id, set, e);
}

static tg_status add_all_added(tg_tok_build *b, const json_t *root, tg_err *e)
{
    const json_t *list = json_object_get(root, "added_tokens"), *item;
    tg_tok_place top = {""};
    size_t i;
    if (list && !json_is_null(list) && !json_is_array(list))
        return tg_fail(e, TG_E_CORRUPT, "%s: added_tokens is not a list", file_name);
    json_array_foreach(list, i, item)
    {
        tg_tok_place at = tg_tok_place_under(&top, "added_tokens", (int64_t)i);
        TG_TRY(add_added(b, item, &at, e));
    }
    return TG_OK;
}

/* ---- all of it */

/* The byte alphabet is known from the pre-tokenizer before the model is read. */
static tg_status build(tg_tok_build *b, const json_t *root, const tg_tok_config *config, tg_err *e)
{
    static const char *const known[] = {"version",        "truncation", "padding",
                                        "added_tokens",   "normalizer", "pre_tokenizer",
                                        "post_processor", "decoder",    "model"};
    tg_tok_place top = {""}, at;
    if (!json_is_object(root)) return tg_fail(e, TG_E_CORRUPT, "%s is not an object", file_name);
    TG_TRY(tg_json_check_keys(root, file_name, known, TG_COUNT(known), e));
    at = tg_tok_place_under(&top, "normalizer", -1);
    TG_TRY(tg_tok_add_normalizer(b, json_object_get(root, "normalizer"), &at, e));
    at = tg_tok_place_under(&top, "pre_tokenizer", -1);
    TG_TRY(tg_tok_add_pre_tokenizer(b, json_object_get(root, "pre_tokenizer"), &at, e));
    at = tg_tok_place_under(&top, "model", -1);
    TG_TRY(tg_tok_add_model(b, json_object_get(root, "model"), &at, e));
    TG_TRY(add_all_added(b, root, e));
    TG_TRY(tg_tok_config_merge(b, config, e));
    TG_TRY(tg_tok_build_normalize_added(b, e));
    at = tg_tok_place_under(&top, "decoder", -1);
    TG_TRY(tg_tok_add_decoder(b, json_object_get(root, "decoder"), &at, e));
    at = tg_tok_place_under(&top, "post_processor", -1);
    TG_TRY(tg_tok_add_post_processor(b, json_object_get(root, "post_processor"), &at, e));
    return tg_tok_config_apply(b, config, e);
}

tg_status tg_tokenizer_compile_json(tg_buf *blob, tg_str json, tg_str config, tg_err *e)
{
    json_t *root = NULL;
    tg_tok_config settings = {0};
    tg_tok_build b;
    tg_tok_build_init(&b);
    tg_status s = tg_json_parse(&root, json, file_name, e);
    if (s == TG_OK) s = tg_tok_config_init(&settings, &(tg_tokenizer_texts){.config = config}, e);
    if (s == TG_OK) s = build(&b, root, &settings, e);
    if (s == TG_OK) s = tg_tok_build_finish(&b, blob, e);
    json_decref(root);
    tg_tok_config_deinit(&settings);
    tg_tok_build_deinit(&b);
    return s;
}
