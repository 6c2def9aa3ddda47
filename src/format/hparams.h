/* SPDX-License-Identifier: Apache-2.0
 * hparams.h - one way to ask for a model's keys, whichever file holds them.
 *
 * A tg_config is a view of config.json or of GGUF metadata that checks types strictly and remembers
 * what was asked for, so that an architecture can be told which keys it did not understand. Which
 * keys there are is the architecture's knowledge, and differs by kind.
 *
 *   HF     "rope_scaling.factor": a dotted path. When the root has an object "text_config", keys
 *          are looked up there first and then at the root (the nested one wins; values that differ
 *          get a warning); "/model_type" is looked up at the root alone. null is as good as absent.
 *   GGUF   "*.block_count": a leading "*." is replaced by the value of general.architecture.
 *
 * Every getter: absent gives *is_present = false, TG_OK and an untouched *out; with is_present NULL
 * the key is needed, and its absence an error that names the nearest key. A value of another type
 * is always an error. An integer is a number, a real number is no integer. */
#ifndef TG_FORMAT_HPARAMS_H
#define TG_FORMAT_HPARAMS_H

#include "format/checkpoint.h"

typedef struct tg_config tg_config;

/* The checkpoint is borrowed until free. */
TG_MUST_USE tg_status tg_config_new(tg_config **out, const tg_checkpoint *c, tg_err *e);
/* The same over one parsed object or one GGUF file, named for messages. */
TG_MUST_USE tg_status tg_config_new_json(tg_config **out, const json_t *root, const char *file,
                                         tg_err *e);
TG_MUST_USE tg_status tg_config_new_gguf(tg_config **out, const tg_gguf *g, tg_err *e);
void tg_config_free(tg_config *c); /* accepts NULL */

tg_checkpoint_kind tg_config_get_kind(const tg_config *c);
const char *tg_config_get_file(const tg_config *c); /* for messages */

/* Present and not null? Counts as read, except an object, whose keys are still to be read. */
bool tg_config_has(tg_config *c, const char *key);

TG_MUST_USE tg_status tg_config_get_i64(tg_config *c, const char *key, int64_t *out,
                                        bool *is_present, tg_err *e);
/* Also checks low <= *out <= high. */
TG_MUST_USE tg_status tg_config_get_i32(tg_config *c, const char *key, int32_t low, int32_t high,
                                        int32_t *out, bool *is_present, tg_err *e);
/* Finite numbers only. */
TG_MUST_USE tg_status tg_config_get_f64(tg_config *c, const char *key, double *out,
                                        bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_config_get_bool(tg_config *c, const char *key, bool *out, bool *is_present,
                                         tg_err *e);
/* Borrowed from the checkpoint. */
TG_MUST_USE tg_status tg_config_get_str(tg_config *c, const char *key, tg_str *out,
                                        bool *is_present, tg_err *e);

/* Lists, made in the config and living as long. A single value is a list of one (eos_token_id). */
TG_MUST_USE tg_status tg_config_get_i64s(tg_config *c, const char *key, const int64_t **out,
                                         int32_t *n, bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_config_get_f64s(tg_config *c, const char *key, const double **out,
                                         int32_t *n, bool *is_present, tg_err *e);
TG_MUST_USE tg_status tg_config_get_strs(tg_config *c, const char *key, const tg_str **out,
                                         int32_t *n, bool *is_present, tg_err *e);
/* GGUF holds bool arrays for layers ("sliding_window_pattern"), HF rarely. */
TG_MUST_USE tg_status tg_config_get_bools(tg_config *c, const char *key, const bool **out,
                                          int32_t *n, bool *is_present, tg_err *e);
/* One number per layer: out[0..n) from a list of exactly n, or from one value for all. */
TG_MUST_USE tg_status tg_config_get_i64_each(tg_config *c, const char *key, int64_t *out, int32_t n,
                                             bool *is_present, tg_err *e);

/* Was the key asked for, by any of the functions here? */
bool tg_config_was_read(const tg_config *c, const char *key);

/* HF: the value itself, when no getter fits; NULL when absent or null. All its keys count as
 * read. NULL for GGUF. */
const json_t *tg_config_get_json(tg_config *c, const char *key);

/* Counts keys as read that the caller knows and does not need. A trailing '*' stands for any end:
 * "general.*", "tokenizer.*". */
void tg_config_ignore(tg_config *c, const char *pattern);

/* The keys that were not read, as full paths sorted in the file's order; an object with no read
 * key is one entry. Absent values and nulls are left out. */
TG_MUST_USE tg_status tg_config_unread(const tg_config *c, tg_arena *a, const char ***keys,
                                       int32_t *n, tg_err *e);

#endif
