/* SPDX-License-Identifier: Apache-2.0
 * cohere.c - Command-R and Aya: attention and feed-forward side by side behind one layer norm,
 * logits scaled, the embedding as head.
 *
 * Truth: transformers' models/cohere and llama.cpp's command-r. Both formats hold q and k for
 * rotating neighbors. Command-R+ also norms q and k, which is refused by its key. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

#include <stddef.h>

static const tg_dense absent = {
    .rope_theta = 500000,
    .norm_eps = 1e-5,
    .max_positions = 8192,
    .n_vocab = 256000,
    .act = "silu",
    .is_tied = true,
};

static const tg_number_row numbers[] = {
    {"logit_scale", "*.logit_scale", offsetof(tg_hparams, logit_scale), false, true},
};

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    h->is_layer_norm = true;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    tg_config_ignore(c, "model_max_length"); /* the tokenizer's */
    h->logit_scale = 0.0625f;
    return tg_hparams_read_numbers(h, c, numbers, TG_COUNT(numbers), e);
}

const tg_arch tg_arch_cohere = {
    .name = "cohere",
    .hf_types = {"cohere"},
    .gguf_arch = "command-r",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_glu},
    .hf_has_pairs = true,
    .gguf_has_pairs = true,
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_parallel,
};
