/* SPDX-License-Identifier: Apache-2.0
 * gemma2.c - Gemma 2: norms before and after both halves of a layer, embeddings scaled by sqrt(D),
 * GeGLU, every other layer with a window, and caps on scores and logits.
 *
 * Truth: transformers' models/gemma2 and llama.cpp's gemma2. All norms multiply by 1 + w:
 * safetensors hold w, GGUF files hold 1 + w. GGUF does not permute q and k. */
#include "model/block.h"
#include "model/keys.h"
#include "model/rules.h"

#include <math.h>
#include <stddef.h>

/* clang-format off */
/* The absent values are those of Gemma2Config. */
#define FIELD(name) offsetof(tg_hparams, name)
static const tg_key_row hf_keys[] = {
    {"num_hidden_layers", NULL, FIELD(n_layers), 1, TG_MAX_LAYERS, 26},
    {"hidden_size", NULL, FIELD(width), 1, 1 << 20, 2304},
    {"intermediate_size", NULL, FIELD(ffn), 1, 1 << 22, 9216},
    {"num_attention_heads", NULL, FIELD(n_heads), 1, 1 << 14, 8},
    {"num_key_value_heads", NULL, FIELD(n_kv_heads), 1, 1 << 14, 4},
    {"head_dim", NULL, FIELD(head_dim), 1, 1 << 14, 256},
    {"max_position_embeddings", NULL, FIELD(max_positions), 1, INT32_MAX, 8192},
};
static const tg_key_row gguf_keys[] = {
    {NULL, "*.attention.sliding_window", FIELD(window), 1, INT32_MAX, 4096},
};
/* clang-format on */

/* The softcap of the class when the key is not there, none when it is null. */
static tg_status read_softcap(float *softcap, tg_config *c, const tg_checkpoint *ck, const char *hf,
                              const char *gguf, double absent, tg_err *e)
{
    const char *key = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF ? gguf : hf;
    double value = tg_checkpoint_names_key(ck, hf) ? 0 : absent;
    bool is_present = false;
    TG_TRY(tg_config_get_f64(c, key, &value, &is_present, e));
    *softcap = (float)value;
    return is_present ? tg_config_check_float(c, key, value, softcap, e) : TG_OK;
}

static tg_status read_hf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                         tg_err *e)
{
    double scalar = 256;
    bool is_present = false, has_types = false;
    TG_TRY(tg_hparams_read_act(h, c, "hidden_activation", "gelu_pytorch_tanh", e));
    h->is_tied = true;
    TG_TRY(tg_config_get_bool(c, "tie_word_embeddings", &h->is_tied, &is_present, e));
    TG_TRY(tg_config_get_f64(c, "query_pre_attn_scalar", &scalar, &is_present, e));
    TG_TRY(tg_config_check_float(c, "query_pre_attn_scalar", scalar, &h->attn_scale, e));
    h->attn_scale = (float)(1 / sqrt(scalar));
    /* Older names, which transformers does not read. */
    tg_config_ignore(c, "hidden_act");
    tg_config_ignore(c, "sliding_window_size");
    TG_TRY(tg_hparams_read_window(h, c, ck, 4096, true, &has_types, e));
    for (int32_t l = 0; l < h->n_layers && !has_types; l++)
        h->is_sliding[l] = h->is_sliding[l] && l % 2 == 0;
    tg_rope_keys rope = {
        .object = tg_rope_has_scaling(c) ? "rope_scaling" : "rope_parameters",
        .theta_key = "rope_theta",
        .theta_absent = 10000,
    };
    return tg_rope_read_hf(&h->ropes[0], h, c, &rope, a, e);
}

static tg_status read_gguf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                           tg_err *e)
{
    TG_TRY(tg_hparams_check_values(h, c, e));
    TG_TRY(tg_hparams_read_gguf_pattern(h, c, 2, e));
    h->act = TG_ACT_GELU_TANH; /* no Gemma has another, and the file does not say */
    /* query_pre_attn_scalar is not in the file. It is the head size but for the 27B model, known by
     * its 46 layers, where it is D / heads (144); llama.cpp decides in the same way. */
    double scalar = h->n_layers == 46 ? (double)h->width / h->n_heads : h->head_dim;
    h->attn_scale = (float)(1 / sqrt(scalar));
    return tg_rope_read_gguf(&h->ropes[0], h, c, ck, 10000, a, e);
}

static tg_status read_hparams(tg_hparams *h, tg_config *c, const tg_checkpoint *ck, tg_arena *a,
                              tg_err *e)
{
    bool is_gguf = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF;
    if (is_gguf) {
        TG_TRY(tg_hparams_read_gguf_sizes(h, c, e));
        TG_TRY(tg_hparams_read_rows(h, c, gguf_keys, TG_COUNT(gguf_keys), e));
    } else {
        TG_TRY(tg_hparams_read_rows(h, c, hf_keys, TG_COUNT(hf_keys), e));
    }
    TG_TRY(tg_hparams_check_heads(h, c, e));
    TG_TRY(tg_hparams_read_eps(h, c, 1e-6, e));
    TG_TRY(tg_hparams_read_vocab(h, c, ck, is_gguf ? 0 : 256000, e));
    TG_TRY(read_softcap(&h->attn_softcap, c, ck, "attn_logit_softcapping",
                        "*.attn_logit_softcapping", 50, e));
    TG_TRY(read_softcap(&h->logit_softcap, c, ck, "final_logit_softcapping",
                        "*.final_logit_softcapping", 30, e));
    h->position_limit = h->max_positions;
    /* Rounded to the type the reference computes in: float32. */
    h->embed_scale = (float)sqrt((double)h->width);
    return is_gguf ? read_gguf(h, c, ck, a, e) : read_hf(h, c, ck, a, e);
}

const tg_arch tg_arch_gemma2 = {
    .name = "gemma2",
    .hf_types = {"gemma2"},
    .gguf_arch = "gemma2",
    .rules = {&tg_rules_gemma, &tg_rules_attention, &tg_rules_glu},
    .groups = {[TG_WEIGHT_GROUP_QKV_BIAS] = {.hf = "attention_bias"},
               [TG_WEIGHT_GROUP_O_BIAS] = {.hf = "attention_bias"}},
    .hf_ignored = tg_ignored_rope_hf,
    .gguf_ignored = tg_ignored_rope_gguf,
    .read_hparams = read_hparams,
    .layer = tg_layer_sandwich_norm,
};
