/* SPDX-License-Identifier: Apache-2.0
 * rules.h - rows of weight tables that many architectures have alike. An architecture lists those
 * that are its own too; what differs in one name or shape stands in its file. */
#ifndef TG_MODEL_RULES_H
#define TG_MODEL_RULES_H

#include "model/model.h"

#define TG_RULE_LIST(rows)                                                                         \
    {                                                                                              \
        rows, TG_COUNT(rows)                                                                       \
    }

/* Embedding, last norm, head. */
extern const tg_rule_list tg_rules_ends;
/* The norm before attention. */
extern const tg_rule_list tg_rules_attn_norm;
/* q, k, v and output matrix, with the biases that the groups allow. */
extern const tg_rule_list tg_rules_attention;
/* A norm of each head of q and k. */
extern const tg_rule_list tg_rules_qk_norm;
/* The norm before the feed-forward, which HF calls post_attention_layernorm. */
extern const tg_rule_list tg_rules_ffn_norm;
/* gate, up and down, with the biases that the group allows. */
extern const tg_rule_list tg_rules_glu;
/* The same without biases, gate and up in one tensor. */
extern const tg_rule_list tg_rules_gate_up;
/* Gemma's norms: four of a layer and the last, stored around 0 in HF; embedding and head. */
extern const tg_rule_list tg_rules_gemma;

/* Frequencies that old exporters saved beside the weights. */
extern const char *const tg_ignored_rope_hf[];
/* Tensors of a GGUF file that tg_rope_read_gguf reads. */
extern const char *const tg_ignored_rope_gguf[];

#endif
