/* SPDX-License-Identifier: Apache-2.0 */
#include "model/dense.h"

#include <math.h>
#include <stddef.h>

/* clang-format off */
#define FIELD(name) offsetof(tg_hparams, name)
static const tg_key_row keys[] = {
    {"num_hidden_layers", "*.block_count", FIELD(n_layers), 1, TG_MAX_LAYERS, TG_KEY_NEEDED},
    {"hidden_size", "*.embedding_length", FIELD(width), 1, 1 << 20, TG_KEY_NEEDED},
    {"intermediate_size", "*.feed_forward_length", FIELD(ffn), 1, 1 << 22, TG_KEY_NEEDED},
    {"num_attention_heads", "*.attention.head_count", FIELD(n_heads), 1, 1 << 14, TG_KEY_NEEDED},
    {"num_key_value_heads", "*.attention.head_count_kv", FIELD(n_kv_heads), 1, 1 << 14, 0},
    {"head_dim", "*.attention.key_length", FIELD(head_dim), 1, 1 << 14, 0},
};

static const tg_refusal hf_refusals[] = {
    {"rope_parameters.full_attention", TG_REFUSE_PRESENT, 0, "all layers share one rotary table"},
};
/* clang-format on */

static tg_status read_hf(tg_hparams *h, tg_config *c, const tg_dense *absent, tg_arena *a,
                         tg_err *e)
{
    bool is_present = false, is_needed = absent->max_positions == TG_KEY_NEEDED;
    if (!absent->rope) TG_TRY(tg_config_refuse(c, hf_refusals, TG_COUNT(hf_refusals), e));
    TG_TRY(tg_hparams_read_act(h, c, "hidden_act", absent->act, e));
    h->max_positions = absent->max_positions;
    TG_TRY(tg_config_get_i32(c, "max_position_embeddings", 1, INT32_MAX, &h->max_positions,
                             is_needed ? NULL : &is_present, e));
    h->is_tied = absent->is_tied;
    TG_TRY(tg_config_get_bool(c, "tie_word_embeddings", &h->is_tied, &is_present, e));

    /* rope_scaling is how it was written before rope_parameters; transformers lets the older one
     * win. */
    const char *object = absent->rope ? absent->rope : "rope_parameters";
    tg_rope_keys rope = {
        .object = tg_rope_has_scaling(c) ? "rope_scaling" : object,
        .theta_key = "rope_theta",
        .theta_absent = absent->rope_theta,
        .part_absent = absent->rotary_part,
        .original_absent = absent->original_max_positions,
    };
    TG_TRY(tg_rope_read_hf(&h->ropes[0], h, c, &rope, a, e));
    return TG_OK;
}

static tg_status read_gguf(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                           const tg_dense *absent, tg_arena *a, tg_err *e)
{
    bool is_present = false;
    TG_TRY(tg_config_get_i32(c, "*.context_length", 1, INT32_MAX, &h->max_positions, NULL, e));
    TG_TRY(tg_hparams_check_values(h, c, e));
    TG_TRY(tg_config_get_i32(c, "*.attention.sliding_window", 0, INT32_MAX, &h->window, &is_present,
                             e));
    for (int32_t l = 0; l < h->n_layers; l++)
        h->is_sliding[l] = h->window > 0;
    (void)tg_config_has(c, "*.expert_used_count"); /* 0 beside expert_count 0 */
    /* llama.cpp takes the whole head, the class a part: the file must say. */
    int32_t rotary_dim;
    if (absent->rotary_part > 0)
        TG_TRY(tg_config_get_i32(c, "*.rope.dimension_count", 2, TG_MAX_ROTARY_DIM, &rotary_dim,
                                 NULL, e));
    return tg_rope_read_gguf(&h->ropes[0], h, c, ck, absent->rope_theta, a, e);
}

/* max_position_embeddings is what the model was made for: most often with its scaling, but Qwen's
 * README adds YaRN to a config that still says the original length. */
static void find_limit(tg_hparams *h)
{
    const tg_rope_spec *r = &h->ropes[0];
    double limit = h->max_positions;
    if (r->kind == TG_ROPE_DYNAMIC) limit = h->max_positions * r->factor;
    if (r->kind == TG_ROPE_YARN) limit = fmax(limit, r->original_max_positions * r->factor);
    h->position_limit = (int32_t)fmin(limit, INT32_MAX);
}

tg_status tg_dense_read(tg_hparams *h, tg_config *c, const tg_checkpoint *ck,
                        const tg_dense *absent, tg_arena *a, tg_err *e)
{
    bool is_gguf = tg_config_get_kind(c) == TG_CHECKPOINT_GGUF;
    TG_TRY(tg_hparams_read_rows(h, c, keys, TG_COUNT(keys), e));
    if (h->head_dim == 0 && !is_gguf) h->head_dim = absent->head_dim;
    TG_TRY(tg_hparams_check_heads(h, c, e));
    TG_TRY(tg_hparams_read_eps(h, c, absent->norm_eps, e));
    TG_TRY(tg_hparams_read_vocab(h, c, ck, is_gguf ? 0 : absent->n_vocab, e));
    h->attn_scale = (float)(1 / sqrt((double)h->head_dim));
    TG_TRY(is_gguf ? read_gguf(h, c, ck, absent, a, e) : read_hf(h, c, absent, a, e));
    find_limit(h);
    return TG_OK;
}
