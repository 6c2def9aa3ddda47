/* SPDX-License-Identifier: Apache-2.0
 * smollm3.c - SmolLM 3: Llama with layers that do not rotate, every fourth unless a list says
 * which.
 *
 * Truth: transformers' models/smollm3 and llama.cpp's smollm3, whose files permute q and k as
 * Llama's do, and which knows every fourth layer only. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

#include <inttypes.h>

static const tg_dense absent = {
    .rope_theta = 2e6,
    .norm_eps = 1e-6,
    .max_positions = 32768,
    .n_vocab = 128256,
    .act = "silu",
    .is_tied = true,
};

/* no_rope_layers says, despite its name, 1 where a layer rotates. */
static tg_status read_rotating(tg_hparams *h, tg_config *c, tg_err *e)
{
    const int64_t *list = NULL;
    int32_t n = 0, interval = 4;
    bool is_present = false, has_list = false;
    TG_TRY(tg_config_get_i64s(c, "no_rope_layers", &list, &n, &has_list, e));
    TG_TRY(tg_config_get_i32(c, "no_rope_layer_interval", 1, INT32_MAX, &interval, &is_present, e));
    if (has_list && n != h->n_layers)
        return tg_fail(e, TG_E_CORRUPT, "%s: no_rope_layers has %d entries for %d layers.",
                       tg_config_get_file(c), n, h->n_layers);
    for (int32_t l = 0; l < h->n_layers; l++)
        h->has_no_rope[l] = has_list ? list[l] == 0 : (l + 1) % interval == 0;
    return TG_OK;
}

/* Where nothing says which layers slide, those that do not rotate do. */
static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool has_types = false;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    if (tg_config_get_kind(c) == TG_CHECKPOINT_GGUF) {
        for (int32_t l = 0; l < h->n_layers; l++)
            h->has_no_rope[l] = (l + 1) % 4 == 0;
        return TG_OK;
    }
    TG_TRY(read_rotating(h, c, e));
    tg_config_ignore(c, "max_window_layers"); /* of Qwen's class, from which the configs came */
    TG_TRY(tg_hparams_read_window(h, c, ck, 0, false, &has_types, e));
    for (int32_t l = 0; l < h->n_layers && !has_types; l++)
        h->is_sliding[l] = h->is_sliding[l] && h->has_no_rope[l];
    return TG_OK;
}

const tg_arch tg_arch_smollm3 = {
    .name = "smollm3",
    .hf_types = {"smollm3"},
    .gguf_arch = "smollm3",
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
