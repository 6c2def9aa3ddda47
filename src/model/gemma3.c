/* SPDX-License-Identifier: Apache-2.0
 * gemma3.c - Gemma 3, the text model, alone or inside the multimodal one.
 *
 * Four norms a layer, norms over each head of q and k, embeddings scaled by sqrt(D), GeGLU, and two
 * kinds of layers: sliding ones with a rotary table of their own, and global ones.
 *
 * Truth: transformers' models/gemma3 and llama.cpp's gemma3. All norms multiply by 1 + w:
 * safetensors hold w, GGUF files hold 1 + w. GGUF does not permute q and k. */
#include "model/block.h"
#include "model/keys.h"
#include "model/rules.h"

#include <math.h>
#include <stddef.h>

/* clang-format off */
/* The head norms are stored around 0 as the others are. */
static const tg_weight_rule rules[] = {
    {.role = TG_W_Q_NORM, .hf = "model.layers.#.self_attn.q_norm.weight",
     .gguf = "blk.#.attn_q_norm.weight",
     .rows = TG_DIM_HEAD, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
    {.role = TG_W_K_NORM, .hf = "model.layers.#.self_attn.k_norm.weight",
     .gguf = "blk.#.attn_k_norm.weight",
     .rows = TG_DIM_HEAD, .cols = TG_DIM_1, .hf_fix = TG_WEIGHT_FIX_ADD_ONE},
};
static const tg_rule_list own_rules = TG_RULE_LIST(rules);

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

/* Where the text model's tensors are: alone, and inside the multimodal one as transformers before
 * and since version 5 names them. */
static const char *const hf_prefixes[] = {
    "model.", "language_model.model.", "model.language_model.", NULL,
};

/* The absent values are those of Gemma3TextConfig: released configs leave out what equals them. */
#define FIELD(name) offsetof(tg_hparams, name)
static const tg_key_row hf_keys[] = {
    {"num_hidden_layers", NULL, FIELD(n_layers), 1, TG_MAX_LAYERS, 26},
    {"hidden_size", NULL, FIELD(width), 1, 1 << 20, 2304},
    {"intermediate_size", NULL, FIELD(ffn), 1, 1 << 22, 9216},
    {"num_attention_heads", NULL, FIELD(n_heads), 1, 1 << 14, 8},
    {"num_key_value_heads", NULL, FIELD(n_kv_heads), 1, 1 << 14, 4},
    {"head_dim", NULL, FIELD(head_dim), 1, 1 << 14, 256},
    {"max_position_embeddings", NULL, FIELD(max_positions), 1, INT32_MAX, 131072},
};

static const tg_refusal hf_refusals[] = {
    {"rope_parameters.rope_theta", TG_REFUSE_PRESENT, 0, "each kind of layer has its own table"},
};
/* clang-format on */

/* Five sliding layers, then a global one: the pattern of every released Gemma 3. */
enum { DEFAULT_PATTERN = 6 };

static tg_status read_hf_layers(tg_hparams *h, tg_config *c, tg_err *e)
{
    int32_t pattern = DEFAULT_PATTERN;
    bool is_present = false;
    h->window = 4096;
    TG_TRY(tg_config_get_i32(c, "sliding_window", 1, INT32_MAX, &h->window, &is_present, e));
    TG_TRY(
        tg_config_get_i32(c, "sliding_window_pattern", 1, TG_MAX_LAYERS, &pattern, &is_present, e));
    tg_hparams_set_pattern(h, pattern);
    /* Newer configs keep the pattern here beside layer_types, which wins. */
    tg_config_ignore(c, "_sliding_window_pattern");
    return tg_hparams_read_layer_types(h, c, &is_present, e);
}

/* Older configs have rope_theta and rope_scaling for the global layers and rope_local_base_freq for
 * the sliding ones, which are never scaled; newer ones an object for each kind. */
static tg_status read_hf_ropes(tg_hparams *h, tg_config *c, tg_arena *a, tg_err *e)
{
    bool is_old = tg_rope_has_scaling(c);
    if (is_old && tg_config_has(c, "rope_parameters.full_attention"))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: rope_scaling and rope_parameters.full_attention are both there; "
                       "remove one.",
                       tg_config_get_file(c));
    tg_rope_keys global = {
        .object = is_old ? "rope_scaling" : "rope_parameters.full_attention",
        .theta_key = "rope_theta",
        .theta_absent = 1e6,
    };
    tg_rope_keys local = {
        .object = "rope_parameters.sliding_attention",
        .theta_key = "rope_local_base_freq",
        .theta_absent = 1e4,
    };
    TG_TRY(tg_rope_read_hf(&h->ropes[0], h, c, &global, a, e));
    return tg_rope_read_hf(&h->ropes[1], h, c, &local, a, e);
}

static tg_status read_hf(tg_hparams *h, tg_config *c, tg_arena *a, tg_err *e)
{
    double scalar = 256;
    bool is_present = false;
    TG_TRY(tg_config_refuse(c, hf_refusals, TG_COUNT(hf_refusals), e));
    TG_TRY(tg_hparams_read_act(h, c, "hidden_activation", "gelu_pytorch_tanh", e));
    h->is_tied = true;
    TG_TRY(tg_config_get_bool(c, "tie_word_embeddings", &h->is_tied, &is_present, e));
    TG_TRY(tg_config_get_f64(c, "query_pre_attn_scalar", &scalar, &is_present, e));
    TG_TRY(tg_config_check_float(c, "query_pre_attn_scalar", scalar, &h->attn_scale, e));
    h->attn_scale = (float)(1 / sqrt(scalar));
    /* Settings of images, and an older name of the activation. */
    static const char *const ignored[] = {
        "vision_config",   "mm_tokens_per_image", "boi_token_index",
        "eoi_token_index", "image_token_index",   "hidden_act",
        "image_token_id",  "boi_token_id",        "eoi_token_id",
    };
    for (size_t i = 0; i < TG_COUNT(ignored); i++)
        tg_config_ignore(c, ignored[i]);
    TG_TRY(read_hf_layers(h, c, e));
    return read_hf_ropes(h, c, a, e);
}

/* A window of 0: every layer is global, and the second rotary table is not there. Without the key
 * llama.cpp takes 0 and the class 4096, so the file must say. */
static tg_status read_gguf_layers(tg_hparams *h, tg_config *c, tg_err *e)
{
    TG_TRY(tg_config_get_i32(c, "*.attention.sliding_window", 0, INT32_MAX, &h->window, NULL, e));
    return h->window ? tg_hparams_read_gguf_pattern(h, c, DEFAULT_PATTERN, e) : TG_OK;
}

static tg_status read_gguf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                           tg_err *e)
{
    double local_theta = 1e4;
    bool is_present = false;
    TG_TRY(tg_hparams_check_values(h, c, e));
    TG_TRY(read_gguf_layers(h, c, e));
    TG_TRY(tg_rope_read_gguf(&h->ropes[0], h, c, ck, 1e6, a, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.freq_base_swa", &local_theta, &is_present, e));
    if (!(local_theta > 1))
        return tg_fail(e, TG_E_CORRUPT, "%s: rope.freq_base_swa is %g, but must be greater than 1.",
                       tg_config_get_file(c), local_theta);
    h->ropes[1] = (tg_rope_spec){.rotary_dim = h->ropes[0].rotary_dim,
                                 .theta = local_theta,
                                 .factor = 1,
                                 .attention_factor = 1,
                                 .original_max_positions = h->max_positions};
    h->act = TG_ACT_GELU_TANH; /* no Gemma has another, and the file does not say */
    /* query_pre_attn_scalar is not in the file. It is the head size but for the 27B model, known by
     * its 62 layers, where it is D / heads (168); llama.cpp decides in the same way. */
    double scalar = h->n_layers == 62 ? (double)h->width / h->n_heads : h->head_dim;
    h->attn_scale = (float)(1 / sqrt(scalar));
    return TG_OK;
}

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool is_gguf = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF;
    if (is_gguf)
        TG_TRY(tg_hparams_read_gguf_sizes(h, c, e));
    else
        TG_TRY(tg_hparams_read_rows(h, c, hf_keys, TG_COUNT(hf_keys), e));
    TG_TRY(tg_hparams_check_heads(h, c, e));
    TG_TRY(tg_hparams_read_eps(h, c, 1e-6, e));
    TG_TRY(tg_hparams_read_vocab(h, c, ck, is_gguf ? 0 : 262208, e));
    TG_TRY(is_gguf ? read_gguf(h, c, ck, a, e) : read_hf(h, c, a, e));
    h->position_limit = h->max_positions;
    /* Rounded to the type the reference computes in: float32. */
    h->embed_scale = (float)sqrt((double)h->width);
    return TG_OK;
}

const tg_arch tg_arch_gemma3 = {
    .name = "gemma3",
    .hf_types = {"gemma3_text", "gemma3"},
    .gguf_arch = "gemma3",
    .rules = {&tg_rules_gemma, &tg_rules_attention, &own_rules, &tg_rules_glu},
    .hf_prefixes = hf_prefixes,
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias"}},
    .hf_ignored = hf_ignored,
    .read_hparams = read_hparams,
    .layer = tg_layer_sandwich_norm,
};
