/* SPDX-License-Identifier: Apache-2.0
 * llama.c - Llama 2 and 3, and what copied them unchanged but for numbers: SmolLM2, Yi, TinyLlama,
 * Falcon 3, and Mistral and Ministral, whose layers see a window, also inside Mistral Small 3.
 *
 * Truth: transformers' models/llama, mistral, ministral and mistral3. GGUF files hold the rows
 * of q and k (biases too) with the rotary halves of each head interleaved, because ggml rotates
 * neighbors for this family. */
#include "model/block.h"
#include "model/dense.h"
#include "model/rules.h"

/* LlamaConfig's; MistralConfig's differ in what released configs all say. */
static const tg_dense absent = {
    .rope_theta = 10000,
    .norm_eps = 1e-6,
    .max_positions = 2048,
    .n_vocab = TG_KEY_NEEDED,
    .act = "silu",
};

/* Where the text model's tensors are: alone, and inside the multimodal Mistral Small 3, as
 * transformers before and since version 5 names them. */
static const char *const hf_prefixes[] = {
    "model.",
    "language_model.model.",
    "model.language_model.",
    NULL,
};

/* Of a multimodal checkpoint a text model uses the text part only. */
static const char *const hf_ignored[] = {
    "model.layers.#.self_attn.rotary_emb.inv_freq",
    "model.rotary_emb.inv_freq",
    "vision_tower.*",
    "model.vision_tower.*",
    "multi_modal_projector.*",
    "model.multi_modal_projector.*",
    NULL,
};

/* Keys of the vision tower. */
static void ignore_vision(tg_config *c)
{
    static const char *const keys[] = {
        "vision_config",        "image_token_index",  "multimodal_projector_bias", "image_token_id",
        "projector_hidden_act", "spatial_merge_size", "vision_feature_layer",
    };
    for (size_t i = 0; i < TG_COUNT(keys); i++)
        tg_config_ignore(c, keys[i]);
}

/* Mistral's window holds in every layer unless layer_types says otherwise. A config without the key
 * means 4096 (MistralConfig's default), one with null means none, and use_sliding_window can switch
 * it off. A Llama config's sliding_window is not used by Llama, and stays an unknown key. */
static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    tg_str type = {0};
    bool is_present = false, has_types = false;
    TG_TRY(tg_dense_read(h, c, ck, &absent, a, e));
    if (tg_config_get_kind(c) == TG_CHECKPOINT_GGUF) return TG_OK;
    TG_TRY(tg_config_get_str(c, "/model_type", &type, &is_present, e));
    if (tg_str_is(type, "llama")) return TG_OK;
    if (tg_str_is(type, "mistral3")) ignore_vision(c);
    return tg_hparams_read_window(h, c, ck, 4096, true, &has_types, e);
}

const tg_arch tg_arch_llama = {
    .name = "llama",
    .hf_types = {"llama", "mistral", "ministral", "mistral3"},
    .gguf_arch = "llama",
    .rules = {&tg_rules_ends, &tg_rules_attn_norm, &tg_rules_attention, &tg_rules_ffn_norm,
              &tg_rules_glu},
    .gguf_has_pairs = true,
    .hf_prefixes = hf_prefixes,
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias", .hf_type = "llama"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias", .hf_type = "llama"},
               [TG_WEIGHT_GROUP_FFN_BIAS] = {.hf = "mlp_bias", .hf_type = "llama"}},
    .hf_ignored = hf_ignored,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_pre_norm,
};
