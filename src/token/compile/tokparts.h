/* SPDX-License-Identifier: Apache-2.0
 * tokparts.h - the components of tokenizer.json: normalizers, pre-tokenizers, models, decoders,
 * post-processors. Each kind is a row in a table of tokparts.c, tokmodel.c or tokdecode.c: its
 * name, the keys it may have, and the function that writes it as steps. */
#ifndef TG_TOKEN_TOKPARTS_H
#define TG_TOKEN_TOKPARTS_H

#include "base/json.h"
#include "token/compile/tokbuild.h"

/* Where in the file a component stands, for messages: "pre_tokenizer.pretokenizers[1]". */
typedef struct tg_tok_place {
    char path[200];
} tg_tok_place;

tg_tok_place tg_tok_place_under(const tg_tok_place *p, const char *key, int64_t index);

typedef struct tg_tok_part_row tg_tok_part_row;
typedef tg_status tg_tok_part_fn(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                 tg_err *e);

/* A kind of component. */
struct tg_tok_part_row {
    const char *type;
    tg_tok_part_fn *add;
    const char *keys[10]; /* beside "type" */
};

/* Finds the row of part["type"], checks the keys and calls it. JSON null does nothing. */
TG_MUST_USE tg_status tg_tok_part_add(tg_tok_build *b, const json_t *part, const tg_tok_place *at,
                                      const tg_tok_part_row *rows, size_t n_rows, tg_err *e);
/* The same for a type that the caller knows. */
TG_MUST_USE tg_status tg_tok_part_add_as(tg_tok_build *b, const json_t *part, tg_str type,
                                         const tg_tok_place *at, const tg_tok_part_row *rows,
                                         size_t n_rows, tg_err *e);
/* The same for every item of part[key], an array. */
TG_MUST_USE tg_status tg_tok_part_add_all(tg_tok_build *b, const json_t *part, const char *key,
                                          const tg_tok_place *at, const tg_tok_part_row *rows,
                                          size_t n_rows, tg_err *e);

/* {"String": ...} or {"Regex": ...} under part["pattern"]. */
TG_MUST_USE tg_status tg_tok_part_pattern(const json_t *part, const tg_tok_place *at,
                                          tg_str *pattern, bool *is_regex, tg_err *e);
/* A string that must be there. */
TG_MUST_USE tg_status tg_tok_part_str(const json_t *part, const char *key, const tg_tok_place *at,
                                      tg_str *out, tg_err *e);
/* One character, in a string that must be there. */
TG_MUST_USE tg_status tg_tok_part_char(const json_t *part, const char *key, const tg_tok_place *at,
                                       tg_str *out, int32_t *cp, tg_err *e);

/* The model comes after the pre-tokenizer, which says whether there is a byte alphabet. */
tg_tok_part_fn tg_tok_add_normalizer, tg_tok_add_pre_tokenizer, tg_tok_add_model,
    tg_tok_add_decoder, tg_tok_add_post_processor;

/* Splits at matches, or cuts out what is between them, in PCRE2's and Oniguruma's common syntax. */
TG_MUST_USE tg_status tg_tok_add_split(tg_tok_build *b, tg_str regex, tg_tok_behavior behavior,
                                       bool is_inverted, tg_err *e);

#endif
