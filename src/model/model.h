/* SPDX-License-Identifier: Apache-2.0
 * model.h - architectures: what tensors a checkpoint of that kind has, and how they make a model.
 *
 * An architecture is one file with one exported tg_arch (declared by its line in archs.def): a
 * table of weights, a function that reads hyperparameters from the checkpoint's own keys, and the
 * kind of its layers (block.h). Nothing elsewhere names an architecture. A difference that is a
 * number is a hyperparameter; one that is structure is a block in block.h taking a struct. */
#ifndef TG_MODEL_MODEL_H
#define TG_MODEL_MODEL_H

#include "format/checkpoint.h"
#include "format/hparams.h"
#include "ir/graph.h"

enum { TG_MAX_ROPES = 2, TG_MAX_ROTARY_DIM = 512 };

typedef enum tg_rope_kind {
    TG_ROPE_PLAIN,
    TG_ROPE_LINEAR,
    TG_ROPE_DYNAMIC,
    TG_ROPE_LLAMA3,
    TG_ROPE_YARN,
    TG_ROPE_LONGROPE,
    TG_ROPE_KIND_COUNT
} tg_rope_kind;

/* One rotary table. Frequencies and angles follow transformers in float32. */
typedef struct tg_rope_spec {
    tg_rope_kind kind;
    int32_t rotary_dim; /* 0: the model has no such table */
    double theta;
    double factor;
    double low_freq_factor, high_freq_factor; /* llama3 */
    double beta_fast, beta_slow;              /* yarn */
    bool is_truncated;       /* yarn: correction range rounded to whole dimensions */
    double attention_factor; /* yarn, longrope: multiplies cos and sin; always set */
    int32_t original_max_positions;
    /* rotary_dim / 2 divisors of the frequencies. longrope: up to original_max_positions and
     * beyond; plain: those of GGUF's rope_freqs tensor, or NULL. Arena of the loaded checkpoint. */
    const double *freqs, *long_freqs;
} tg_rope_spec;

/* out[0 .. rotary_dim / 2): the angle that each position of a text of `length` tokens adds, in
 * float32. Only dynamic and longrope depend on the length. */
void tg_rope_freqs(const tg_rope_spec *spec, int32_t length, float *out);

/* Zero means "not there" for what an architecture may lack. */
typedef struct tg_hparams {
    int32_t n_layers, width, n_heads, n_kv_heads, head_dim, ffn;
    int32_t n_vocab; /* ids that exist; surplus embedding rows are never sampled */
    int32_t n_embed_rows;
    int32_t max_positions;  /* what the model was made for */
    int32_t position_limit; /* what can be asked for: more than that with dynamic rope scaling */
    int32_t act;            /* tg_act */
    int32_t window;         /* of sliding layers */
    float norm_eps, embed_scale, attn_scale;
    float residual_scale, logit_scale; /* of what a layer adds to the stream; of logits */
    float attn_softcap, logit_softcap; /* of scores and logits, after their scales */
    bool is_tied;
    bool is_layer_norm;               /* norms subtract the mean */
    bool is_parallel;                 /* attention and feed-forward read the same norm */
    bool is_qk_norm_whole;            /* q and k are normed over all heads together */
    tg_rope_spec ropes[TG_MAX_ROPES]; /* 0: global, 1: of sliding layers where it differs */
    bool is_sliding[TG_MAX_LAYERS];
    bool has_no_rope[TG_MAX_LAYERS];
} tg_hparams;

/* The longest text that uses the frequencies of short texts, where an export for max_length also
 * has those of longer ones (longrope, dynamic); 0 where one table serves every length. */
int32_t tg_rope_original_length(const tg_hparams *h, int32_t max_length);
/* Refuses two tables that depend on the length of a text and change at different ones. */
TG_MUST_USE tg_status tg_rope_check_lengths(const tg_hparams *h, const char *file, tg_err *e);
/* Rows [first, first + n) of a rope table: rotary_dim / 2 cosines, then as many sines. The table
 * has original_length rows for the positions of short texts (0: none), then max_length rows for
 * those of texts up to max_length. Any split into calls gives the same bits. */
void tg_rope_fill(const tg_rope_spec *spec, int32_t original_length, int32_t max_length,
                  int32_t first, int32_t n, float *table);

/* Shapes in the weight table, in the letters of the hyperparameters. */
typedef enum tg_weight_dim {
    TG_DIM_1,
    TG_DIM_D,    /* width */
    TG_DIM_HD,   /* n_heads * head_dim */
    TG_DIM_KD,   /* n_kv_heads * head_dim */
    TG_DIM_HEAD, /* head_dim */
    TG_DIM_F,    /* ffn */
    TG_DIM_V     /* n_embed_rows */
} tg_weight_dim;

/* How a file format changed the weight of the model's definition; undone when packing. */
typedef enum tg_weight_fix {
    TG_WEIGHT_FIX_NONE,
    TG_WEIGHT_FIX_UNPERMUTE_Q, /* GGUF interleaves the rotary halves of each query head */
    TG_WEIGHT_FIX_UNPERMUTE_K, /* and of each key head */
    TG_WEIGHT_FIX_ADD_ONE      /* stored around 0, used as 1 + w */
} tg_weight_fix;

/* How the rows of a tensor are those of a weight: with r what the fix makes of a row, row r / run *
 * step + r % run of it; run 0: row r. */
typedef struct tg_row_order {
    tg_weight_fix fix;
    int32_t head_dim, rotary_dim; /* of the fix: the leading rows of a head that it reorders */
    int32_t run, step;
} tg_row_order;

/* Which rows of a tensor are the weight, where the file keeps several in one. */
typedef enum tg_weight_part {
    TG_WEIGHT_PART_ALL,
    TG_WEIGHT_PART_Q, /* all queries, then all keys, then all values */
    TG_WEIGHT_PART_K,
    TG_WEIGHT_PART_V,
    TG_WEIGHT_PART_GROUP_Q, /* for each KV head its queries, its key and its value */
    TG_WEIGHT_PART_GROUP_K,
    TG_WEIGHT_PART_GROUP_V,
    TG_WEIGHT_PART_GATE, /* gate, then up */
    TG_WEIGHT_PART_UP
} tg_weight_part;

/* Weights that a checkpoint has together or not at all: tg_arch.groups says what decides. */
typedef enum tg_weight_group {
    TG_WEIGHT_GROUP_CORE, /* always there */
    TG_WEIGHT_GROUP_QKV_BIAS,
    TG_WEIGHT_GROUP_O_BIAS,
    TG_WEIGHT_GROUP_FFN_BIAS,
    TG_WEIGHT_GROUP_FFN_NORM, /* not where attention and feed-forward read one norm */
    TG_WEIGHT_GROUP_COUNT
} tg_weight_group;

/* A group that has no row is never there. */
typedef struct tg_group_rule {
    bool is_always;      /* in both formats */
    const char *hf;      /* config.json's key that says, false when it is absent */
    const char *gguf;    /* the same in a GGUF file; NULL beside an `hf`: its tensors say */
    bool is_inverse;     /* the group is there where the key is false */
    const char *hf_type; /* the only "model_type" that has the group; NULL: all */
} tg_group_rule;

typedef struct tg_weight_rule {
    tg_weight_role role;
    const char *hf, *gguf; /* tensor names, '#' is the layer; NULL: the format has none */
    tg_weight_dim rows, cols;
    tg_weight_group group;
    tg_weight_fix hf_fix, gguf_fix;
    tg_weight_part hf_part, gguf_part;
} tg_weight_rule;

/* One layer (block.h): the residual stream in and out, [T, D]. */
typedef tg_value tg_layer_fn(tg_build *b, const tg_hparams *h, int32_t layer, tg_value x);

/* Rules that several architectures share (rules.h), or an architecture's own. */
typedef struct tg_rule_list {
    const tg_weight_rule *rules;
    int32_t n;
} tg_rule_list;

enum { TG_MAX_RULE_LISTS = 6 };

typedef struct tg_arch {
    const char *name;
    const char *hf_types[8]; /* config.json "model_type"s; NULL-terminated */
    const char *gguf_arch;   /* general.architecture */
    /* NULL-terminated; a role stands in one of them. */
    const tg_rule_list *rules[TG_MAX_RULE_LISTS];
    /* The format's q and k are for rotating neighbors: their rows (biases too) go back to halves
     * of a head. */
    bool hf_has_pairs, gguf_has_pairs;
    /* Prefixes that may replace the "model." of HF names, NULL-terminated: the one that leads to
     * the embedding is used. NULL: none. */
    const char *const *hf_prefixes;
    tg_group_rule groups[TG_WEIGHT_GROUP_COUNT];
    /* Tensors that may stay unused: whole names as in the rules, or the beginning of a subtree,
     * "vision_tower.*", as it stands in the file. NULL-terminated. */
    const char *const *hf_ignored, *const *gguf_ignored;
    /* Reads and checks the checkpoint's keys; those it asks for count as understood
     * (format/hparams.h). The checkpoint is there for numbers that a format keeps as tensors. */
    tg_status (*read_hparams)(tg_hparams *out, tg_config *keys, const tg_checkpoint *c,
                              tg_arena *arena, tg_err *e);
    tg_layer_fn *layer; /* what hparams do not decide: block.h */
} tg_arch;

#define TG_ARCH(name) extern const tg_arch tg_arch_##name;
#include "model/archs.def"
#undef TG_ARCH

/* One weight of one layer, found in the checkpoint. */
typedef struct tg_found_weight {
    /* NULL: absent (optional), or computed (rope tables). Its rows are the weight's own: where a
     * tensor holds several weights this is a view. */
    const tg_tensor *tensor;
    const tg_weight_rule *rule;
    tg_row_order order;
} tg_found_weight;

/* A checkpoint understood: its architecture, numbers and weights. (tg_model is the public name of
 * an opened artifact.) */
typedef struct tg_loaded_checkpoint tg_loaded_checkpoint;

/* Finds the architecture, reads its hyperparameters, finds every weight. The checkpoint is borrowed
 * until free. Errors name the unknown architecture and list the known ones; the missing, surplus or
 * misshapen tensors (three of each at most, with a hint when a common prefix explains them). */
TG_MUST_USE tg_status tg_loaded_checkpoint_open(tg_loaded_checkpoint **out, const tg_checkpoint *c,
                                                tg_err *e);
void tg_loaded_checkpoint_free(tg_loaded_checkpoint *b); /* accepts NULL */

/* The tokenizer has fewer ids than the model: those beyond are padding, never sampled. */
void tg_loaded_checkpoint_limit_vocab(tg_loaded_checkpoint *b, int32_t n_vocab);
const tg_hparams *tg_loaded_checkpoint_hparams(const tg_loaded_checkpoint *b);
const tg_arch *tg_loaded_checkpoint_arch(const tg_loaded_checkpoint *b);
const tg_checkpoint *tg_loaded_checkpoint_checkpoint(const tg_loaded_checkpoint *b);
/* Layer 0 for roles outside layers. The head of a tied model is the embedding: TG_W_HEAD is
 * absent. */
const tg_found_weight *tg_loaded_checkpoint_find_weight(const tg_loaded_checkpoint *b,
                                                        tg_weight_role role, int32_t layer);
/* Shape by role and layer, rope tables of an export for max_length included. */
tg_weight_shape tg_loaded_checkpoint_weight_shape(const tg_loaded_checkpoint *b,
                                                  tg_weight_role role, int32_t layer,
                                                  int32_t max_length);
/* The model graph; the caller frees it. */
TG_MUST_USE tg_status tg_loaded_checkpoint_build(const tg_loaded_checkpoint *b, int32_t max_length,
                                                 tg_graph **out, tg_err *e);

#endif
