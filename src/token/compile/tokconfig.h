/* SPDX-License-Identifier: Apache-2.0
 * tokconfig.h - what the small files beside a vocabulary say of its tokens: tokenizer_config.json,
 * special_tokens_map.json, added_tokens.json. */
#ifndef TG_TOKEN_TOKCONFIG_H
#define TG_TOKEN_TOKCONFIG_H

#include "base/json.h"
#include "token/compile/tokbuild.h"

/* Parsed; NULL where a text is absent. {0} is all absent. */
typedef struct tg_tok_config {
    json_t *config, *special_map, *added;
} tg_tok_config;

TG_MUST_USE tg_status tg_tok_config_init(tg_tok_config *c, const tg_tokenizer_texts *texts,
                                         tg_err *e);
void tg_tok_config_deinit(tg_tok_config *c);

/* The flags of an added token, {"content": "<x>", "lstrip": false, ...}. Absent ones are false;
 * TG_TOK_ADDED_NORMALIZED, absent, is the opposite of "special". */
TG_MUST_USE tg_status tg_tok_config_read_flags(const json_t *item, const char *name, uint32_t *out,
                                               tg_err *e);

/* What transformers' AutoTokenizer adds to a tokenizer.json: the tokens of added_tokens_decoder
 * that the file lacks or gives other flags, by id, then special tokens that only a name knows. Each
 * has the id that its content has in the file, or else the next free one, whatever its key says.
 * After the file's own added tokens. */
TG_MUST_USE tg_status tg_tok_config_merge(tg_tok_build *b, const tg_tok_config *c, tg_err *e);

/* Adds the tokens that added_tokens_decoder lists or, where that is absent, added_tokens.json. All
 * are looked up in the text as it came: "normalized" has no meaning outside tokenizer.json. After
 * the last model token. */
TG_MUST_USE tg_status tg_tok_config_add_listed(tg_tok_build *b, const tg_tok_config *c, tg_err *e);
/* Makes special tokens of what bos_token, additional_special_tokens and their like name. After the
 * last token of any kind. */
TG_MUST_USE tg_status tg_tok_config_add_named(tg_tok_build *b, const tg_tok_config *c, tg_err *e);

/* Sets the ids of bos_token and its like where the config names them, and obeys add_bos_token,
 * add_eos_token and clean_up_tokenization_spaces. */
TG_MUST_USE tg_status tg_tok_config_apply(tg_tok_build *b, const tg_tok_config *c, tg_err *e);

/* A yes-or-no key of tokenizer_config.json. */
TG_MUST_USE tg_status tg_tok_config_get(const tg_tok_config *c, const char *key,
                                        tg_optional_bool *out, tg_err *e);

#endif
