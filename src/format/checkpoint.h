/* SPDX-License-Identifier: Apache-2.0
 * checkpoint.h - a published model in either format: named tensors and the assets beside them.
 *
 * tg_checkpoint_open takes
 *
 *   a GGUF file; any shard of a split one opens the whole set
 *   a Hugging Face folder: config.json, safetensors with or without an index, tokenizer files
 *   a folder of the hub's cache, models--ORG--NAME: refs/main says which snapshot
 *   a folder with one GGUF model and no config.json
 *
 * All files are mapped and none is read whole; everything handed out is borrowed from the
 * checkpoint and lives until it is closed. The files must not change meanwhile. A checkpoint is
 * read-only after it was opened: any number of threads may use it.
 *
 * Rules where files disagree: an index is authoritative (files and tensors it does not list are not
 * used), chat_template.jinja wins over the template inside tokenizer_config.json (the caller looks
 * at both), and the first shard's keys are the GGUF keys. */
#ifndef TG_FORMAT_CHECKPOINT_H
#define TG_FORMAT_CHECKPOINT_H

#include "base/json.h"
#include "format/gguf.h"

typedef enum tg_checkpoint_kind { TG_CHECKPOINT_GGUF, TG_CHECKPOINT_HF } tg_checkpoint_kind;

/* The text files of a Hugging Face folder that we read. */
typedef enum tg_hf_part {
    TG_HF_CONFIG,            /* config.json, always there beside weights */
    TG_HF_GENERATION_CONFIG, /* generation_config.json */
    TG_HF_TOKENIZER_CONFIG,  /* tokenizer_config.json */
    TG_HF_TOKENIZER,         /* tokenizer.json: only as bytes, it is large */
    TG_HF_CHAT_TEMPLATE,     /* chat_template.jinja: only as bytes */
    TG_HF_CHAT_CONFIG,       /* chat_template.json: what processors had before the .jinja */
    /* Only where there is no tokenizer.json, the first of these that is there; as bytes. */
    TG_HF_TOKENIZER_MODEL, /* tokenizer.model: SentencePiece's, or tiktoken's */
    TG_HF_TIKTOKEN,        /* tiktoken.model, or the only *.tiktoken */
    TG_HF_VOCAB,           /* vocab.json */
    /* Only beside one of those; as bytes. */
    TG_HF_SPECIAL_TOKENS_MAP, /* special_tokens_map.json */
    TG_HF_ADDED_TOKENS,       /* added_tokens.json */
    TG_HF_MERGES,             /* merges.txt, of vocab.json */
    TG_HF_PART_COUNT
} tg_hf_part;

/* One of additional_chat_templates/, by its name without ".jinja". */
typedef struct tg_named_text {
    const char *name;
    tg_str text;
} tg_named_text;

/* A file that the checkpoint consists of: with the others, the key under which a compiled model is
 * found again. */
typedef struct tg_source_file {
    const char *path;      /* as opened, for messages */
    const char *real_path; /* absolute, links resolved */
    const char *part;      /* inside an HF folder: its name there; GGUF: "" */
    int64_t n_bytes;
    int64_t mtime_ns;
} tg_source_file;

typedef struct tg_content_hash {
    uint64_t low, high; /* XXH3, 128 bits */
} tg_content_hash;

typedef struct tg_checkpoint tg_checkpoint;

TG_MUST_USE tg_status tg_checkpoint_open(tg_checkpoint **out, const char *path, tg_err *e);
/* Only the tokenizer and the chat templates: weights and config.json are neither looked at nor
 * missed, and a folder has no tensors. Takes one file of a folder too, which then stands in place
 * of the folder's own of its kind: tokenizer_config.json by its name, another *.json as the
 * tokenizer, *.jinja as the chat template. */
TG_MUST_USE tg_status tg_checkpoint_open_texts(tg_checkpoint **out, const char *path, tg_err *e);
void tg_checkpoint_close(tg_checkpoint *c); /* accepts NULL */

tg_checkpoint_kind tg_checkpoint_get_kind(const tg_checkpoint *c);
/* The first GGUF file, or the folder with config.json: what messages should name. */
const char *tg_checkpoint_get_path(const tg_checkpoint *c);

int32_t tg_checkpoint_n_tensors(const tg_checkpoint *c);
const tg_tensor *tg_checkpoint_get_tensor(const tg_checkpoint *c, int32_t i);
/* NULL when absent. Also finds a tensor by a name that was left out at saving because it shares
 * another's bytes, when the file's metadata says so. */
const tg_tensor *tg_checkpoint_find_tensor(const tg_checkpoint *c, tg_str name);
/* As above, but absent is an error that names the nearest tensor. */
TG_MUST_USE tg_status tg_checkpoint_get_named_tensor(const tg_checkpoint *c, tg_str name,
                                                     const tg_tensor **out, tg_err *e);

/* The keys of a GGUF checkpoint; NULL for the other kind. */
const tg_gguf *tg_checkpoint_get_gguf(const tg_checkpoint *c);

/* HF: the parsed object; NULL when the file is absent, for parts that are only bytes, and for a
 * GGUF checkpoint. */
const json_t *tg_checkpoint_get_json(const tg_checkpoint *c, tg_hf_part part);
/* HF: the mapped bytes; {0} when absent. */
tg_str tg_checkpoint_get_text(const tg_checkpoint *c, tg_hf_part part);
/* The path of a part for messages, whether or not it is there. */
const char *tg_checkpoint_get_part_path(const tg_checkpoint *c, tg_hf_part part);
int32_t tg_checkpoint_n_templates(const tg_checkpoint *c);
const tg_named_text *tg_checkpoint_get_template(const tg_checkpoint *c, int32_t i);

/* A special token in tokenizer_config.json: a string, an object with "content", null or absent. */
TG_MUST_USE tg_status tg_hf_get_token(const json_t *object, const char *key, tg_str *out,
                                      bool *is_present, const char *name, tg_err *e);

/* Every file in a fixed order: config first, then weights; GGUF: shards in order. */
int32_t tg_checkpoint_n_files(const tg_checkpoint *c);
const tg_source_file *tg_checkpoint_get_file(const tg_checkpoint *c, int32_t i);
/* Hashes parts, sizes and bytes of all files: reads everything once. Paths and times are not in it,
 * so that a copy of a checkpoint has the same hash. */
tg_content_hash tg_checkpoint_hash(const tg_checkpoint *c);
/* The caller is done with these bytes of a tensor: memory need not hold them. */
void tg_checkpoint_release(const tg_checkpoint *c, const void *p, size_t n_bytes);

#endif
