/* SPDX-License-Identifier: Apache-2.0
 * model.c - a loaded checkpoint: architecture, numbers, and a tensor for every weight.
 *
 * Nothing is guessed and nothing initialized. found.c finds the tensors. */
#include "base/log.h"
#include "model/block.h"
#include "model/found.h"
#include "model/keys.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const tg_arch *const archs[] = {
#define TG_ARCH(name) &tg_arch_##name,
#include "model/archs.def"
#undef TG_ARCH
};

/* ---- which architecture */

bool tg_loaded_checkpoint_is_gguf(const tg_loaded_checkpoint *b)
{
    return tg_checkpoint_get_kind(b->c) == TG_CHECKPOINT_GGUF;
}

/* An unknown name, with those that would be known in that kind of file. */
static tg_status fail_arch(const tg_config *keys, tg_str name, tg_err *e)
{
    bool gguf = tg_config_get_kind(keys) == TG_CHECKPOINT_GGUF;
    tg_buf known = {0};
    for (size_t i = 0; i < TG_COUNT(archs); i++) {
        if (gguf) tg_buf_printf(&known, "%s%s", known.len ? ", " : "", archs[i]->gguf_arch);
        for (size_t j = 0; !gguf && j < TG_COUNT(archs[i]->hf_types) && archs[i]->hf_types[j]; j++)
            tg_buf_printf(&known, "%s%s", known.len ? ", " : "", archs[i]->hf_types[j]);
    }
    tg_status s = tg_fail(e, TG_E_UNSUPPORTED,
                          "%s: %s '%.*s' is not an architecture this build knows; it knows %s.",
                          tg_config_get_file(keys), gguf ? "general.architecture" : "model_type",
                          (int)TG_MIN(name.len, (size_t)60), name.ptr, tg_buf_cstr(&known));
    tg_buf_deinit(&known);
    return s;
}

static bool is_arch(const tg_arch *arch, tg_checkpoint_kind kind, tg_str name)
{
    if (kind == TG_CHECKPOINT_GGUF) return tg_str_is(name, arch->gguf_arch);
    for (size_t i = 0; i < TG_COUNT(arch->hf_types) && arch->hf_types[i]; i++)
        if (tg_str_is(name, arch->hf_types[i])) return true;
    return false;
}

static tg_status find_arch(const tg_arch **out, tg_config *keys, tg_err *e)
{
    tg_checkpoint_kind kind = tg_config_get_kind(keys);
    const char *key = kind == TG_CHECKPOINT_GGUF ? "general.architecture" : "/model_type";
    tg_str name = {0};
    TG_TRY(tg_config_get_str(keys, key, &name, NULL, e));
    for (size_t i = 0; i < TG_COUNT(archs); i++) {
        if (!is_arch(archs[i], kind, name)) continue;
        *out = archs[i];
        return TG_OK;
    }
    return fail_arch(keys, name, e);
}

/* Keys that were not read may be harmless or the reason of wrong completions: said once. */
static tg_status warn_unread(const tg_loaded_checkpoint *b, const tg_config *keys, tg_err *e)
{
    tg_arena a = {0};
    const char **list = NULL;
    int32_t n = 0;
    tg_status s = tg_config_unread(keys, &a, &list, &n, e);
    if (s == TG_OK && n > 0) {
        tg_buf text = {0};
        for (int32_t i = 0; i < n; i++)
            tg_buf_printf(&text, "%s%s", i ? ", " : "", list[i]);
        tg_log_warn("%s: %s does not know, and did not use: %s", tg_config_get_file(keys),
                    b->arch->name, tg_buf_cstr(&text));
        tg_buf_deinit(&text);
    }
    tg_arena_deinit(&a);
    return s;
}

/* ---- which weights there must be */

static tg_status find_group(tg_loaded_checkpoint *b, tg_weight_group g, tg_config *keys, tg_err *e)
{
    const tg_group_rule *r = &b->arch->groups[g];
    bool is_gguf = tg_loaded_checkpoint_is_gguf(b), value = false, is_present = false;
    const char *key = is_gguf ? r->gguf : r->hf;
    b->groups[g] = r->is_always ? TG_PRESENCE_ALWAYS : TG_PRESENCE_NEVER;
    if (is_gguf && !r->is_always && !key && r->hf) b->groups[g] = TG_PRESENCE_BY_FILE;
    if (!key) return TG_OK;
    if (!is_gguf && r->hf_type) {
        tg_str type = {0};
        TG_TRY(tg_config_get_str(keys, "/model_type", &type, NULL, e));
        if (!tg_str_is(type, r->hf_type)) return TG_OK;
    }
    TG_TRY(tg_config_get_bool(keys, key, &value, &is_present, e));
    if (r->is_always) {
        if (is_present && !value)
            tg_log_warn("%s: %s is false, but %s always has these weights, and they are used",
                        tg_config_get_file(keys), key, b->arch->name);
        return TG_OK;
    }
    b->groups[g] = value != r->is_inverse ? TG_PRESENCE_ALWAYS : TG_PRESENCE_NEVER;
    b->group_keys[g] = key[0] == '*' ? key + 2 : key;
    b->is_key_absent[g] = !is_present;
    return TG_OK;
}

static tg_status resolve(tg_loaded_checkpoint *b, tg_config *keys, tg_err *e)
{
    TG_TRY(find_arch(&b->arch, keys, e));
    b->h.embed_scale = b->h.residual_scale = b->h.logit_scale = 1;
    TG_TRY(b->arch->read_hparams(&b->h, keys, b->c, &b->arena, e));
    TG_TRY(tg_rope_check_lengths(&b->h, tg_config_get_file(keys), e));
    b->groups[TG_WEIGHT_GROUP_CORE] = TG_PRESENCE_ALWAYS;
    for (int g = TG_WEIGHT_GROUP_CORE + 1; g < TG_WEIGHT_GROUP_COUNT; g++)
        TG_TRY(find_group(b, (tg_weight_group)g, keys, e));
    const json_t *quantization = tg_config_get_json(keys, "quantization_config");
    if (quantization) TG_TRY(tg_prequantized_new(&b->prequantized, b->c, quantization, e));
    /* After the architecture asked: what is left has a reader nowhere. */
    TG_TRY(tg_config_refuse_unread(keys, e));
    tg_config_ignore_common(keys);
    TG_TRY(warn_unread(b, keys, e));
    return tg_loaded_checkpoint_find_weights(b, e);
}

tg_status tg_loaded_checkpoint_open(tg_loaded_checkpoint **out, const tg_checkpoint *c, tg_err *e)
{
    tg_config *keys = NULL;
    *out = NULL;
    tg_loaded_checkpoint *b = TG_NEW(tg_loaded_checkpoint);
    if (!b) return tg_fail_nomem(e, sizeof *b, "a loaded checkpoint");
    b->c = c;
    tg_status s = tg_config_new(&keys, c, e);
    if (s == TG_OK) s = resolve(b, keys, e);
    tg_config_free(keys);
    if (s != TG_OK) {
        tg_loaded_checkpoint_free(b);
        return s;
    }
    *out = b;
    return TG_OK;
}

void tg_loaded_checkpoint_free(tg_loaded_checkpoint *b)
{
    if (!b) return;
    tg_prequantized_free(b->prequantized);
    tg_arena_deinit(&b->arena);
    tg_mem_free(b);
}

void tg_loaded_checkpoint_limit_vocab(tg_loaded_checkpoint *b, int32_t n_vocab)
{
    b->h.n_vocab = TG_MIN(b->h.n_vocab, n_vocab);
}

const tg_hparams *tg_loaded_checkpoint_hparams(const tg_loaded_checkpoint *b)
{
    return &b->h;
}

const tg_checkpoint *tg_loaded_checkpoint_checkpoint(const tg_loaded_checkpoint *b)
{
    return b->c;
}

const tg_arch *tg_loaded_checkpoint_arch(const tg_loaded_checkpoint *b)
{
    return b->arch;
}

const tg_found_weight *tg_loaded_checkpoint_find_weight(const tg_loaded_checkpoint *b,
                                                        tg_weight_role role, int32_t layer)
{
    TG_ASSERT((int)role >= 0 && role < TG_W_COUNT && layer >= 0 &&
              layer < tg_loaded_checkpoint_n_layers(b, role));
    return &b->found[(int64_t)role * b->h.n_layers + layer];
}

/* A table that no layer reads is not there. */
static bool is_rope_used(const tg_loaded_checkpoint *b, int32_t which)
{
    if (b->h.ropes[which].rotary_dim == 0) return false;
    for (int32_t l = 0; l < b->h.n_layers; l++) {
        if (b->h.has_no_rope[l]) continue;
        bool is_second = b->h.is_sliding[l] && b->h.ropes[1].rotary_dim > 0;
        if (is_second == (which == 1)) return true;
    }
    return false;
}

tg_weight_shape tg_loaded_checkpoint_weight_shape(const tg_loaded_checkpoint *b,
                                                  tg_weight_role role, int32_t layer,
                                                  int32_t max_length)
{
    tg_weight_shape shape = {0};
    if (role == TG_W_ROPE_0 || role == TG_W_ROPE_1) {
        int32_t which = role == TG_W_ROPE_1;
        shape.is_present = is_rope_used(b, which);
        shape.rows = max_length + tg_rope_original_length(&b->h, max_length);
        shape.cols = b->h.ropes[which].rotary_dim;
        return shape;
    }
    const tg_found_weight *w = tg_loaded_checkpoint_find_weight(b, role, layer);
    if (!w->tensor) return shape;
    shape.is_present = true;
    shape.rows = w->tensor->dims[0];
    shape.cols = w->tensor->n_dims == 2 ? w->tensor->dims[1] : 1;
    return shape;
}

tg_status tg_loaded_checkpoint_build(const tg_loaded_checkpoint *b, int32_t max_length,
                                     tg_graph **out, tg_err *e)
{
    int32_t n_layers = b->h.n_layers;
    tg_weight_shape *shapes = TG_NEW_ARRAY(tg_weight_shape, (size_t)TG_W_COUNT * (size_t)n_layers);
    tg_build *build = NULL;
    if (!shapes)
        return tg_fail_nomem(e, (size_t)TG_W_COUNT * (size_t)n_layers * sizeof *shapes,
                             "weight shapes");
    for (int role = 0; role < TG_W_COUNT; role++)
        for (int32_t l = 0; l < tg_loaded_checkpoint_n_layers(b, (tg_weight_role)role); l++)
            shapes[(int64_t)role * n_layers + l] =
                tg_loaded_checkpoint_weight_shape(b, (tg_weight_role)role, l, max_length);

    tg_status s = tg_build_new(&build, shapes, n_layers, e);
    if (s == TG_OK) {
        tg_block_decoder(build, &b->h, b->arch->layer);
        s = tg_build_finish(build, out, e);
        if (s != TG_OK) tg_err_context(e, "%s", tg_checkpoint_get_path(b->c));
    }
    tg_mem_free(shapes);
    return s;
}
