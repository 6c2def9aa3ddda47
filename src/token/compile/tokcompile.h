/* SPDX-License-Identifier: Apache-2.0
 * tokcompile.h - compiles the tokenizer of a checkpoint into a blob that run/tok.h opens.
 *
 * May be slow and may allocate. This folder may include src/token/run; never the other way round,
 * which tools/checks/check-layers sees to. */
#ifndef TG_TOKEN_TOKCOMPILE_H
#define TG_TOKEN_TOKCOMPILE_H

#include "token/run/tok.h"

/* Appends the blob made of a tokenizer.json. `config` is the text of tokenizer_config.json beside
 * it and may be empty: from it come the names of the special ids and add_bos_token. */
TG_MUST_USE tg_status tg_tokenizer_compile_json(tg_buf *blob, tg_str json, tg_str config,
                                                tg_err *e);

/* The small files beside a vocabulary that says nothing of these itself; empty: absent. */
typedef struct tg_tokenizer_texts {
    tg_str config;             /* tokenizer_config.json */
    tg_str special_tokens_map; /* special_tokens_map.json */
    tg_str added_tokens;       /* added_tokens.json, where the config has no added_tokens_decoder */
} tg_tokenizer_texts;

/* Appends the blob made of a SentencePiece model, the file that is mostly called tokenizer.model.
 * Ids are those of the sentencepiece library; added tokens, and what stands around a text, are
 * those of transformers' Llama tokenizer: "legacy" of the config says whether each text between
 * added tokens begins with a blank (true, as when it is absent) or only the first. */
TG_MUST_USE tg_status tg_tokenizer_compile_sentencepiece(tg_buf *blob, tg_str model,
                                                         const tg_tokenizer_texts *texts,
                                                         tg_err *e);

/* Appends the blob made of a tiktoken file: lines of a token in base64 and its rank. Ids are those
 * of the tiktoken library with the pattern and the special tokens of the tokenizer_class that the
 * config names; a class that is not known is refused, since the file does not say them. */
TG_MUST_USE tg_status tg_tokenizer_compile_tiktoken(tg_buf *blob, tg_str file,
                                                    const tg_tokenizer_texts *texts, tg_err *e);
/* Whether a file is a tiktoken file: by its first line, since names tell nothing. */
bool tg_tokenizer_is_tiktoken(tg_str file);

/* Appends the blob made of GPT-2's pair of files, vocab.json and merges.txt. Ids are those of the
 * transformers class that the config names (GPT-2, Qwen 2; GPT-2 where it names none). */
TG_MUST_USE tg_status tg_tokenizer_compile_merges(tg_buf *blob, tg_str vocab, tg_str merges,
                                                  const tg_tokenizer_texts *texts, tg_err *e);

/* A yes-or-no key of a file that may be absent. */
typedef enum tg_optional_bool {
    TG_OPTIONAL_ABSENT = 0,
    TG_OPTIONAL_FALSE,
    TG_OPTIONAL_TRUE
} tg_optional_bool;

/* What GGUF metadata says under tokenizer.ggml.*; everything is borrowed until the call returns.
 * The ids must be set: TG_TOKEN_NONE where the key is absent, so {0} is not a valid value. */
typedef struct tg_gguf_vocab {
    tg_str model;         /* tokenizer.ggml.model */
    tg_str pre;           /* tokenizer.ggml.pre; empty: absent */
    const tg_str *tokens; /* [n_tokens] */
    const float *scores;  /* [n_tokens] or NULL */
    const int32_t *types; /* [n_tokens] or NULL: all normal */
    const tg_str *merges; /* [n_merges] "left right" */
    int32_t n_tokens, n_merges;
    int64_t bos_id, eos_id, unk_id, pad_id; /* as in the file: checked against n_tokens */
    int64_t cls_id, sep_id;                 /* of model "bert" only */
    tg_optional_bool add_bos, add_eos, add_sep, add_space_prefix, remove_extra_whitespaces;
    tg_optional_bool lowercase, strip_accents; /* tokenizer.ggml.normalizer.* */
    tg_str charsmap;   /* tokenizer.ggml.precompiled_charsmap; empty: absent */
    tg_str model_name; /* general.name: some tokens swallow blanks by it alone */
} tg_gguf_vocab;

TG_MUST_USE tg_status tg_tokenizer_compile_gguf(tg_buf *blob, const tg_gguf_vocab *v, tg_err *e);

#endif
