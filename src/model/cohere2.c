/* SPDX-License-Identifier: Apache-2.0
 * cohere2.c - Command-R7B and Command-A: Cohere's parallel blocks, with a window in three layers of
 * four, which rotate, and none in the fourth, which does not.
 *
 * Truth: transformers' models/cohere2 and llama.cpp's cohere2. Both formats hold q and k for
 * rotating neighbors. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

#include <stddef.h>

static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-5,
    .max_positions = 8192,
    .n_vocab = 256000,
    .act = "silu",
    .is_tied = true,
};

static const tg_number_row numbers[] = {
    {"logit_scale", "*.logit_scale", offsetof(tg_hparams, logit_scale), false, true},
};

static tg_status read_hf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_err *e)
{
    int32_t pattern = 4;
    bool has_types = false, is_present = false;
    /* Older configs say which half of the numbers rotates, and the order of the blocks, which are
     * what the class does. */
    static const char *const ignored[] = {"_sliding_window_pattern",
                                          "rotary_pct",
                                          "layer_switch",
                                          "order_of_interleaved_layers",
                                          "position_embedding_type",
                                          "use_embedding_sharing",
                                          "use_gated_activation",
                                          "model_max_length"};
    for (size_t i = 0; i < TG_COUNT(ignored); i++)
        tg_config_ignore(c, ignored[i]);
    TG_TRY(
        tg_config_get_i32(c, "sliding_window_pattern", 1, TG_MAX_LAYERS, &pattern, &is_present, e));
    TG_TRY(tg_hparams_read_window(h, c, ck, 4096, true, &has_types, e));
    if (!has_types) tg_hparams_set_pattern(h, pattern);
    return TG_OK;
}

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    h->is_layer_norm = true;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    h->logit_scale = 0.0625f;
    TG_TRY(tg_hparams_read_numbers(h, c, numbers, TG_COUNT(numbers), e));
    if (tg_config_get_kind(c) == TG_CHECKPOINT_HF) {
        TG_TRY(read_hf(h, c, ck, e));
    } else {
        TG_TRY(
            tg_config_get_i32(c, "*.attention.sliding_window", 1, INT32_MAX, &h->window, NULL, e));
        TG_TRY(tg_hparams_read_gguf_pattern(h, c, 4, e));
    }
    for (int32_t l = 0; l < h->n_layers; l++)
        h->has_no_rope[l] = !h->is_sliding[l];
    return TG_OK;
}

const tg_arch tg_arch_cohere2 = {
    .name = "cohere2",
    .hf_types = {"cohere2"},
    .gguf_arch = "cohere2",
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
