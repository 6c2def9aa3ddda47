/* SPDX-License-Identifier: Apache-2.0
 * granite.c - Granite 3: Llama with four multipliers, of embeddings, scores, what layers add to the
 * stream, and logits.
 *
 * Truth: transformers' models/granite and llama.cpp's granite, whose files permute q and k as
 * Llama's do. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

#include <stddef.h>

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-6,
    .max_positions = 2048,
    .n_vocab = 32000,
    .act = "silu",
};

/* clang-format off */
#define FIELD(name) offsetof(tg_hparams, name)
static const tg_number_row numbers[] = {
    {"embedding_multiplier", "*.embedding_scale", FIELD(embed_scale), false, false},
    {"attention_multiplier", "*.attention.scale", FIELD(attn_scale), false, false},
    {"residual_multiplier", "*.residual_scale", FIELD(residual_scale), false, false},
    {"logits_scaling", "*.logit_scale", FIELD(logit_scale), true,
     true}, /* divides in both formats */
};

static const tg_refusal gguf_refusals[] = {
    {"*.rope.scaling.finetuned", TG_REFUSE_FALSE, 0, "every layer rotates"},
};
/* clang-format on */

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    /* A config.json without attention_multiplier means 1, a GGUF file the head size. llama.cpp
     * takes rope.scaling.finetuned as a switch of rotation for this family. */
    if (tg_config_get_kind(c) == TG_CHECKPOINT_HF)
        h->attn_scale = 1;
    else
        TG_TRY(tg_config_refuse(c, gguf_refusals, TG_COUNT(gguf_refusals), e));
    return tg_hparams_read_numbers(h, c, numbers, TG_COUNT(numbers), e);
}

const tg_arch tg_arch_granite = {
    .name = "granite",
    .hf_types = {"granite"},
    .gguf_arch = "granite",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_ffn_norm,
              &tg_rules_glu},
    .gguf_has_pairs = true,
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_FFN_BIAS] = {.hf = "mlp_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
