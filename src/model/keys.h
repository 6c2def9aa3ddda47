/* SPDX-License-Identifier: Apache-2.0
 * keys.h - reading hyperparameters that many architectures spell alike.
 *
 * Sizes are rows of a table, so that an architecture lists its keys, limits and defaults in one
 * place; rotary settings have one reader, because every family took them over with all their
 * spellings; and a key that a family must not miss in silence is a row with the reason. */
#ifndef TG_MODEL_KEYS_H
#define TG_MODEL_KEYS_H

#include "model/model.h"

enum { TG_KEY_NEEDED = -1 };

/* A whole number in a checkpoint's keys, for an int32_t field of tg_hparams. */
typedef struct tg_key_row {
    const char *hf, *gguf; /* NULL: that format has no such key, and `absent` is taken */
    size_t field;          /* offsetof */
    int32_t low, high;
    int32_t absent; /* the value when the key is not there, or TG_KEY_NEEDED */
} tg_key_row;

TG_MUST_USE tg_status tg_hparams_read_rows(tg_hparams *h, tg_config *c, const tg_key_row *rows,
                                           int32_t n, tg_err *e);

/* `value` as a float that arithmetic can use: above 0, and neither rounded to 0 nor to infinity. */
TG_MUST_USE tg_status tg_config_check_float(const tg_config *c, const char *key, double value,
                                            float *out, tg_err *e);

/* A number above 0 for a float field. Where the key is not there: config.json means the field's own
 * value, the default of the class; a GGUF file must say it where `is_gguf_needed`, and otherwise
 * one line names all that are absent and what is used. */
typedef struct tg_number_row {
    const char *hf, *gguf; /* NULL: that format has no such key */
    size_t field;
    bool is_inverse; /* the field is 1 over the number */
    bool is_gguf_needed;
} tg_number_row;

TG_MUST_USE tg_status tg_hparams_read_numbers(tg_hparams *h, tg_config *c,
                                              const tg_number_row *rows, int32_t n, tg_err *e);

/* All sizes of a GGUF file that must say each of them, max_positions too. */
TG_MUST_USE tg_status tg_hparams_read_gguf_sizes(tg_hparams *h, tg_config *c, tg_err *e);

/* After the rows: key heads and head size where absent (0) follow from the others, and the sizes
 * are ones the kernels and the attention can do. */
TG_MUST_USE tg_status tg_hparams_check_heads(tg_hparams *h, tg_config *c, tg_err *e);

/* GGUF can give values another size than keys, which attention cannot do. After head_dim. */
TG_MUST_USE tg_status tg_hparams_check_values(const tg_hparams *h, tg_config *c, tg_err *e);

/* norm_eps, under the name that the kind of norm has (is_layer_norm is set); `absent` is taken
 * when an HF config does not say. */
TG_MUST_USE tg_status tg_hparams_read_eps(tg_hparams *h, tg_config *c, double absent, tg_err *e);
/* act, from the first of the two keys that is there, else `absent`. HF only: in a GGUF file the
 * architecture says it. */
TG_MUST_USE tg_status tg_hparams_read_act(tg_hparams *h, tg_config *c, const char *key,
                                          const char *absent, tg_err *e);
/* n_vocab: config.json's vocab_size (`absent` when it does not say), or how many tokens a GGUF file
 * lists. */
TG_MUST_USE tg_status tg_hparams_read_vocab(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                                            int32_t absent, tg_err *e);
/* is_sliding from "layer_types", which wins over any pattern; its length must be n_layers. */
TG_MUST_USE tg_status tg_hparams_read_layer_types(tg_hparams *h, tg_config *c, bool *is_present,
                                                  tg_err *e);

/* is_sliding of a GGUF file: attention.sliding_window_pattern, a number or a flag for each layer;
 * without it every pattern-th layer is global. */
TG_MUST_USE tg_status tg_hparams_read_gguf_pattern(tg_hparams *h, tg_config *c, int32_t pattern,
                                                   tg_err *e);
/* Every pattern-th layer is global, the others slide. */
void tg_hparams_set_pattern(tg_hparams *h, int32_t pattern);

/* Does config.json have the key, be its value null? Where a class has a default, null means none,
 * and absent means the default. */
bool tg_checkpoint_names_key(const tg_checkpoint *ck, const char *key);

/* window and is_sliding of config.json: "sliding_window", `absent` tokens when the key is not there
 * and none when it is null; switched by "use_sliding_window", which is `is_on` when absent. All
 * layers slide, or those that layer_types says; *has_types tells which. */
TG_MUST_USE tg_status tg_hparams_read_window(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                                             int32_t absent, bool is_on, bool *has_types,
                                             tg_err *e);

/* The same for families whose windows begin at "max_window_layers" and are off unless switched on:
 * Qwen. Nothing of a GGUF file. */
TG_MUST_USE tg_status tg_hparams_read_late_window(tg_hparams *h, tg_config *c,
                                                  const tg_checkpoint *ck, tg_err *e);

/* One rotary table from config.json: `object` is the path of the object that holds rope_type and
 * its numbers ("rope_scaling", "rope_parameters.full_attention"; it may be absent: a plain table).
 * `theta_key` is the place outside it, NULL for none. Needs head_dim and max_positions. */
typedef struct tg_rope_keys {
    const char *object;
    const char *theta_key;
    double theta_absent;
    double part_absent;      /* of a head that rotates; 0: all */
    int32_t original_absent; /* original_max_position_embeddings beside the object; 0: none */
} tg_rope_keys;

TG_MUST_USE tg_status tg_rope_read_hf(tg_rope_spec *out, const tg_hparams *h, tg_config *c,
                                      const tg_rope_keys *k, tg_arena *a, tg_err *e);
/* Does config.json have the older object, rope_scaling, with a type in it? It wins where both are,
 * as in transformers. */
bool tg_rope_has_scaling(tg_config *c);
/* The global table of a GGUF file: rope.freq_base, rope.scaling.*, and the tensors rope_freqs,
 * rope_factors_short, rope_factors_long. llama.cpp takes 10000 for an absent freq_base; a family
 * whose class means another theta must say it. */
TG_MUST_USE tg_status tg_rope_read_gguf(tg_rope_spec *out, const tg_hparams *h, tg_config *c,
                                        const tg_checkpoint *ck, double theta_absent, tg_arena *a,
                                        tg_err *e);

/* Keys that would change the arithmetic in a way this build does not do. */
typedef enum tg_refuse_when {
    TG_REFUSE_PRESENT, /* anything but null */
    TG_REFUSE_TRUE,
    TG_REFUSE_FALSE,
    TG_REFUSE_UNLESS /* a number other than `neutral` */
} tg_refuse_when;

typedef struct tg_refusal {
    const char *key;
    tg_refuse_when when;
    double neutral;
    const char *reason; /* "quantized Hugging Face weights are not read" */
} tg_refusal;

TG_MUST_USE tg_status tg_config_refuse(tg_config *c, const tg_refusal *rows, int32_t n, tg_err *e);
/* The keys of any family that change the arithmetic, where the architecture has not read them. */
TG_MUST_USE tg_status tg_config_refuse_unread(tg_config *c, tg_err *e);

/* Keys that say nothing about a forward pass, in either kind of file. */
void tg_config_ignore_common(tg_config *c);

#endif
