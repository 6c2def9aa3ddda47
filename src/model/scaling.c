/* SPDX-License-Identifier: Apache-2.0
 * scaling.c - which rotary table a checkpoint asks for: the keys of rope_scaling, rope_parameters
 * and GGUF's rope.*, with the defaults that transformers 5 and ggml give them. rope.c makes the
 * tables. */
#include "base/log.h"
#include "model/keys.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { KEY_BYTES = 96, GGUF_THETA = 10000 };

/* "object.name" */
static const char *make_key(char out[KEY_BYTES], const char *object, const char *name)
{
    int n = snprintf(out, KEY_BYTES, "%s.%s", object, name);
    TG_ASSERT(n > 0 && n < KEY_BYTES);
    return out;
}

/* object.name as a number; *out stays as it was when it is absent and `is_needed` is false. */
static tg_status get_number(tg_config *c, const char *object, const char *name, bool is_needed,
                            double *out, tg_err *e)
{
    char key[KEY_BYTES];
    bool is_present;
    return tg_config_get_f64(c, make_key(key, object, name), out, is_needed ? NULL : &is_present,
                             e);
}

/* The same, and greater than 0: a zero here is a division or a silenced model. */
static tg_status get_positive(tg_config *c, const char *object, const char *name, bool is_needed,
                              double *out, tg_err *e)
{
    TG_TRY(get_number(c, object, name, is_needed, out, e));
    if (!(*out > 0))
        return tg_fail(e, TG_E_CORRUPT, "%s: %s.%s is %g, but must be greater than 0.",
                       tg_config_get_file(c), object, name, *out);
    return TG_OK;
}

static tg_status find_kind(tg_rope_kind *out, tg_config *c, const char *object, tg_err *e)
{
    static const char *const names[TG_ROPE_KIND_COUNT] = {"default", "linear", "dynamic",
                                                          "llama3",  "yarn",   "longrope"};
    char key[KEY_BYTES];
    tg_str name = TG_STR("default");
    bool is_present = false, is_old_present = false;
    /* "type" is the older spelling; a file with both means the newer. */
    TG_TRY(tg_config_get_str(c, make_key(key, object, "type"), &name, &is_old_present, e));
    TG_TRY(tg_config_get_str(c, make_key(key, object, "rope_type"), &name, &is_present, e));
    if (tg_str_is(name, "su")) name = TG_STR("longrope"); /* its first name, in old Phi-3 files */
    for (int i = 0; i < TG_ROPE_KIND_COUNT; i++) {
        if (!tg_str_is(name, names[i])) continue;
        *out = (tg_rope_kind)i;
        return TG_OK;
    }
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "%s: rope type '%.*s' in %s is not supported; known are default, linear, "
                   "dynamic, llama3, yarn and longrope.",
                   tg_config_get_file(c), (int)TG_MIN(name.len, (size_t)60), name.ptr, object);
}

/* The length the model was trained for before it was stretched: beside the object (Phi's way, which
 * wins, its default too), inside it, else all positions. */
static tg_status read_original(tg_rope_spec *r, const tg_hparams *h, tg_config *c,
                               const tg_rope_keys *k, tg_err *e)
{
    char key[KEY_BYTES];
    bool is_inside = false, is_beside = false;
    int32_t beside = k->original_absent;
    r->original_max_positions = h->max_positions;
    TG_TRY(tg_config_get_i32(c, make_key(key, k->object, "original_max_position_embeddings"), 1,
                             INT32_MAX, &r->original_max_positions, &is_inside, e));
    TG_TRY(tg_config_get_i32(c, "original_max_position_embeddings", 1, INT32_MAX, &beside,
                             &is_beside, e));
    if (beside == 0) return TG_OK;
    if (is_inside && beside != r->original_max_positions)
        tg_log_warn("%s: %s is %d and original_max_position_embeddings %d%s; the latter is used, "
                    "as in transformers",
                    tg_config_get_file(c), key, r->original_max_positions, beside,
                    is_beside ? "" : " where the key is absent");
    r->original_max_positions = beside;
    return TG_OK;
}

/* YaRN's temperature of the scores, as a factor of cosine and sine (both q and k carry its
 * root). */
static double get_mscale(double scale, double mscale)
{
    return scale <= 1 ? 1.0 : 0.1 * mscale * log(scale) + 1.0;
}

static tg_status read_yarn(tg_rope_spec *r, const tg_hparams *h, tg_config *c, const char *object,
                           tg_err *e)
{
    char key[KEY_BYTES];
    double mscale = 0, mscale_all_dim = 0;
    bool is_present = false;
    /* Without a factor it is what the lengths say: how DeepSeek's configs are read. */
    r->factor = (double)h->max_positions / r->original_max_positions;
    TG_TRY(get_positive(c, object, "factor", false, &r->factor, e));
    r->beta_fast = 32;
    r->beta_slow = 1;
    TG_TRY(get_positive(c, object, "beta_fast", false, &r->beta_fast, e));
    TG_TRY(get_positive(c, object, "beta_slow", false, &r->beta_slow, e));
    r->is_truncated = true;
    TG_TRY(
        tg_config_get_bool(c, make_key(key, object, "truncate"), &r->is_truncated, &is_present, e));
    TG_TRY(get_number(c, object, "mscale", false, &mscale, e));
    TG_TRY(get_number(c, object, "mscale_all_dim", false, &mscale_all_dim, e));
    r->attention_factor = get_mscale(r->factor, 1);
    if (mscale != 0 && mscale_all_dim != 0)
        r->attention_factor = get_mscale(r->factor, mscale) / get_mscale(r->factor, mscale_all_dim);
    /* An explicit value wins, 1.0 too. */
    return get_positive(c, object, "attention_factor", false, &r->attention_factor, e);
}

/* A list of divisors, one for each rotary pair: neither more nor fewer, or dimensions would
 * shift. */
static tg_status read_factors(const double **out, const tg_rope_spec *r, tg_config *c,
                              const char *object, const char *name, tg_arena *a, tg_err *e)
{
    char key[KEY_BYTES];
    const double *list = NULL;
    int32_t n = 0;
    TG_TRY(tg_config_get_f64s(c, make_key(key, object, name), &list, &n, NULL, e));
    if (n != r->rotary_dim / 2)
        return tg_fail(e, TG_E_CORRUPT, "%s: %s has %d entries, but %d rotary pairs need one each.",
                       tg_config_get_file(c), key, n, r->rotary_dim / 2);
    double *copy = TG_ARENA_ARRAY(a, double, n);
    if (!copy) return tg_fail_nomem(e, (size_t)n * sizeof *copy, "rope factors");
    for (int32_t i = 0; i < n; i++) {
        copy[i] = list[i];
        if (!(list[i] > 0))
            return tg_fail(e, TG_E_CORRUPT, "%s: %s[%d] is %g, but must be greater than 0.",
                           tg_config_get_file(c), key, i, list[i]);
    }
    *out = copy;
    return TG_OK;
}

static tg_status read_longrope(tg_rope_spec *r, const tg_hparams *h, tg_config *c,
                               const char *object, tg_arena *a, tg_err *e)
{
    /* Which list is used, the compiled length decides (tg_rope_freqs); the factor of cosine and
     * sine is the same for both. */
    TG_TRY(read_factors(&r->freqs, r, c, object, "short_factor", a, e));
    TG_TRY(read_factors(&r->long_freqs, r, c, object, "long_factor", a, e));
    r->factor = (double)h->max_positions / r->original_max_positions;
    TG_TRY(get_positive(c, object, "factor", false, &r->factor, e));
    r->attention_factor =
        r->factor <= 1 ? 1.0 : sqrt(1 + log(r->factor) / log((double)r->original_max_positions));
    return get_positive(c, object, "attention_factor", false, &r->attention_factor, e);
}

/* No defaults: the numbers of the first file (8, 1, 4) are not those of the next (32, 1, 4). */
static tg_status read_llama3(tg_rope_spec *r, tg_config *c, const char *object, tg_err *e)
{
    TG_TRY(get_positive(c, object, "factor", true, &r->factor, e));
    TG_TRY(get_positive(c, object, "low_freq_factor", true, &r->low_freq_factor, e));
    TG_TRY(get_positive(c, object, "high_freq_factor", true, &r->high_freq_factor, e));
    if (r->high_freq_factor <= r->low_freq_factor)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: %s.high_freq_factor is %g, but must be greater than low_freq_factor, "
                       "%g.",
                       tg_config_get_file(c), object, r->high_freq_factor, r->low_freq_factor);
    return TG_OK;
}

/* The part of a head that rotates; where both places name one, the object wins. */
static tg_status read_rotary_dim(tg_rope_spec *r, const tg_hparams *h, tg_config *c,
                                 const tg_rope_keys *k, tg_err *e)
{
    double part = k->part_absent > 0 ? k->part_absent : 1;
    bool is_present = false;
    TG_TRY(tg_config_get_f64(c, "partial_rotary_factor", &part, &is_present, e));
    TG_TRY(get_number(c, k->object, "partial_rotary_factor", false, &part, e));
    if (!(part > 0 && part <= 1))
        return tg_fail(e, TG_E_CORRUPT, "%s: partial_rotary_factor is %g, but must be in (0, 1].",
                       tg_config_get_file(c), part);
    r->rotary_dim = (int32_t)(h->head_dim * part);
    if (r->rotary_dim < 2 || r->rotary_dim % 2 != 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: %d of %d dimensions of a head would rotate, but rotation goes by "
                       "pairs.",
                       tg_config_get_file(c), r->rotary_dim, h->head_dim);
    return TG_OK;
}

/* The frequencies for texts of `length` tokens, rounded as they will be, must still be numbers that
 * turn positions: a factor of 1e-320 makes them infinite, one of 1e39 makes them 0. */
static tg_status check_freqs(const tg_rope_spec *r, const tg_hparams *h, tg_config *c,
                             int32_t length, tg_err *e)
{
    float freqs[TG_MAX_ROTARY_DIM / 2];
    tg_rope_freqs(r, length, freqs);
    for (int32_t i = 0; i < r->rotary_dim / 2; i++)
        if (!(freqs[i] >= FLT_MIN && freqs[i] <= FLT_MAX / (float)h->max_positions))
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: the rope settings (theta %g, factor %g) give rotary pair %d a "
                           "frequency of %g, which float32 cannot use; correct them.",
                           tg_config_get_file(c), r->theta, r->factor, i, (double)freqs[i]);
    return TG_OK;
}

/* Rules that hold for any kind and source. */
static tg_status check_spec(const tg_rope_spec *r, const tg_hparams *h, tg_config *c, tg_err *e)
{
    float factor;
    if (!(r->theta > 1))
        return tg_fail(e, TG_E_CORRUPT, "%s: a rope theta of %g must be greater than 1.",
                       tg_config_get_file(c), r->theta);
    if (r->kind == TG_ROPE_DYNAMIC && r->rotary_dim <= 2)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: dynamic rope scaling needs more than one rotary pair.",
                       tg_config_get_file(c));
    if (r->rotary_dim > TG_MAX_ROTARY_DIM) return TG_OK; /* refused with the head size */
    TG_TRY(tg_config_check_float(c, "the rope attention factor", r->attention_factor, &factor, e));
    TG_TRY(check_freqs(r, h, c, 1, e));
    return check_freqs(r, h, c, h->max_positions, e);
}

bool tg_rope_has_scaling(tg_config *c)
{
    return tg_config_has(c, "rope_scaling.rope_type") || tg_config_has(c, "rope_scaling.type");
}

tg_status tg_rope_read_hf(tg_rope_spec *r, const tg_hparams *h, tg_config *c, const tg_rope_keys *k,
                          tg_arena *a, tg_err *e)
{
    *r = (tg_rope_spec){.theta = k->theta_absent, .factor = 1, .attention_factor = 1};
    bool is_present = false;
    if (k->theta_key) TG_TRY(tg_config_get_f64(c, k->theta_key, &r->theta, &is_present, e));
    double root = r->theta;
    TG_TRY(get_number(c, k->object, "rope_theta", false, &r->theta, e));
    if (is_present && r->theta != root)
        tg_log_warn("%s: %s is %g and %s.rope_theta %g; the latter is used, as in transformers",
                    tg_config_get_file(c), k->theta_key, root, k->object, r->theta);
    TG_TRY(find_kind(&r->kind, c, k->object, e));
    TG_TRY(read_rotary_dim(r, h, c, k, e));
    switch (r->kind) {
    case TG_ROPE_PLAIN: break;
    case TG_ROPE_LINEAR: TG_TRY(get_positive(c, k->object, "factor", true, &r->factor, e)); break;
    case TG_ROPE_DYNAMIC:
        r->original_max_positions = h->max_positions;
        TG_TRY(get_positive(c, k->object, "factor", true, &r->factor, e));
        break;
    case TG_ROPE_LLAMA3:
        TG_TRY(read_original(r, h, c, k, e));
        TG_TRY(read_llama3(r, c, k->object, e));
        break;
    case TG_ROPE_YARN:
        TG_TRY(read_original(r, h, c, k, e));
        TG_TRY(read_yarn(r, h, c, k->object, e));
        break;
    case TG_ROPE_LONGROPE:
        TG_TRY(read_original(r, h, c, k, e));
        TG_TRY(read_longrope(r, h, c, k->object, a, e));
        break;
    case TG_ROPE_KIND_COUNT: TG_ASSERT(false && "no kind"); break;
    }
    return check_spec(r, h, c, e);
}

/* ---- GGUF */

/* Divisors that a GGUF file keeps as a tensor of rotary_dim / 2 floats; NULL when it is absent. */
static tg_status read_divisors(const double **out, const tg_rope_spec *r, const tg_checkpoint *ck,
                               const char *name, tg_arena *a, tg_err *e)
{
    int32_t n = r->rotary_dim / 2;
    const tg_tensor *t = tg_checkpoint_find_tensor(ck, tg_str_from_cstr(name));
    *out = NULL;
    if (!t) return TG_OK;
    if (t->dtype != TG_DTYPE_F32 || t->n_dims != 1 || t->dims[0] != n)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: tensor '%s' must be %d numbers of type f32, one for each rotary pair.",
                       t->file, name, n);
    float values[TG_MAX_ROTARY_DIM / 2];
    double *list = TG_ARENA_ARRAY(a, double, n);
    if (!list) return tg_fail_nomem(e, (size_t)n * sizeof *list, "rope factors");
    tg_dtype_unpack(t->dtype, t->data, values, n);
    for (int32_t i = 0; i < n; i++) {
        list[i] = (double)values[i];
        if (!(values[i] > 0) || !isfinite(values[i]))
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: tensor '%s' holds %g at %d, but a rope factor must be greater "
                           "than 0.",
                           t->file, name, list[i], i);
    }
    *out = list;
    return TG_OK;
}

/* "none" and no type at all mean a plain table; ggml takes a missing type as linear with the factor
 * it finds, which is 1 when it finds none. */
static tg_status find_gguf_kind(tg_rope_spec *r, tg_config *c, const tg_checkpoint *ck, tg_err *e)
{
    /* Phi-3's files say longrope by the tensors alone. */
    bool has_factors = tg_checkpoint_find_tensor(ck, TG_STR("rope_factors_long.weight"));
    tg_str name = has_factors ? TG_STR("longrope") : TG_STR("linear");
    bool has_type = false, has_old = false, has_factor = false;
    TG_TRY(tg_config_get_str(c, "*.rope.scaling.type", &name, &has_type, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.scale_linear", &r->factor, &has_old, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.factor", &r->factor, &has_factor, e));
    bool is_scaled = has_type && (tg_str_is(name, "linear") || tg_str_is(name, "yarn"));
    if (is_scaled && ((!has_old && !has_factor) || r->factor == 0))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: rope.scaling.type is %.*s, but rope.scaling.factor is %s; convert the "
                       "model again.",
                       tg_config_get_file(c), (int)name.len, name.ptr,
                       r->factor == 0 ? "0" : "missing");
    if (r->factor == 0) r->factor = 1; /* written by old converters for "no scaling" */
    if (!(r->factor > 0))
        return tg_fail(e, TG_E_CORRUPT, "%s: rope.scaling.factor is %g, but must not be negative.",
                       tg_config_get_file(c), r->factor);
    if (tg_str_is(name, "none")) {
        r->kind = TG_ROPE_PLAIN;
    } else if (tg_str_is(name, "linear")) {
        r->kind = r->factor == 1 ? TG_ROPE_PLAIN : TG_ROPE_LINEAR;
    } else if (tg_str_is(name, "yarn")) {
        r->kind = TG_ROPE_YARN;
    } else if (tg_str_is(name, "longrope")) {
        r->kind = TG_ROPE_LONGROPE;
    } else {
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: rope.scaling.type '%.*s' is not supported; known are none, linear, "
                       "yarn and longrope.",
                       tg_config_get_file(c), (int)TG_MIN(name.len, (size_t)60), name.ptr);
    }
    return TG_OK;
}

/* ggml multiplies by 1 + 0.1 ln(factor) on its own; ext_factor blends its two ways of scaling and
 * is 1 in every file that says yarn. */
static tg_status read_gguf_yarn(tg_rope_spec *r, tg_config *c, tg_err *e)
{
    double log_mul = 0, ext_factor = 1, factor = 1;
    bool is_present = false;
    r->beta_fast = 32;
    r->beta_slow = 1;
    r->is_truncated = true;
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.yarn_beta_fast", &r->beta_fast, &is_present, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.yarn_beta_slow", &r->beta_slow, &is_present, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.yarn_log_multiplier", &log_mul, &is_present, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.yarn_ext_factor", &ext_factor, &is_present, e));
    if (!(r->beta_fast > 0 && r->beta_slow > 0) || ext_factor != 1)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: yarn with beta_fast %g, beta_slow %g and ext_factor %g is not "
                       "supported; the betas must be greater than 0 and the last 1.",
                       tg_config_get_file(c), r->beta_fast, r->beta_slow, ext_factor);
    r->attention_factor = get_mscale(r->factor, 1);
    if (log_mul != 0) r->attention_factor /= get_mscale(r->factor, log_mul);
    /* The first is transformers' attention_factor, the second multiplies whatever there is. */
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.yarn_attn_factor", &r->attention_factor,
                             &is_present, e));
    TG_TRY(tg_config_get_f64(c, "*.rope.scaling.attn_factor", &factor, &is_present, e));
    r->attention_factor *= factor;
    return TG_OK;
}

/* Tensors and keys that say how positions are stretched must be the ones that this kind uses. */
static tg_status check_gguf_factors(const tg_rope_spec *r, const tg_hparams *h, tg_config *c,
                                    const tg_checkpoint *ck, tg_err *e)
{
    static const char *const names[] = {"rope_factors_short.weight", "rope_factors_long.weight",
                                        "rope_freqs.weight"};
    bool is_longrope = r->kind == TG_ROPE_LONGROPE;
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        bool is_used = i == 2 ? !is_longrope && r->kind != TG_ROPE_YARN : is_longrope;
        if (!is_used && tg_checkpoint_find_tensor(ck, tg_str_from_cstr(names[i])))
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: has the tensor %s, which rope.scaling.type does not use; convert "
                           "the model again.",
                           tg_config_get_file(c), names[i]);
    }
    if (r->kind == TG_ROPE_PLAIN && !r->freqs && r->original_max_positions < h->max_positions)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: rope.scaling.original_context_length is %d and context_length %d, but "
                       "nothing says how positions are stretched: no rope.scaling.type, and no "
                       "tensor rope_factors_long.weight; convert the model again.",
                       tg_config_get_file(c), r->original_max_positions, h->max_positions);
    return TG_OK;
}

tg_status tg_rope_read_gguf(tg_rope_spec *r, const tg_hparams *h, tg_config *c,
                            const tg_checkpoint *ck, double theta_absent, tg_arena *a, tg_err *e)
{
    *r = (tg_rope_spec){.theta = theta_absent, .factor = 1, .attention_factor = 1};
    r->original_max_positions = h->max_positions;
    r->rotary_dim = h->head_dim;
    bool is_present = false;
    TG_TRY(tg_config_get_f64(c, "*.rope.freq_base", &r->theta,
                             theta_absent == GGUF_THETA ? &is_present : NULL, e));
    TG_TRY(tg_config_get_i32(c, "*.rope.dimension_count", 2, TG_MAX_ROTARY_DIM, &r->rotary_dim,
                             &is_present, e));
    TG_TRY(tg_config_get_i32(c, "*.rope.scaling.original_context_length", 1, INT32_MAX,
                             &r->original_max_positions, &is_present, e));
    if (r->rotary_dim % 2 != 0 || r->rotary_dim > h->head_dim)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: rope.dimension_count is %d, but must be even and at most the head "
                       "size, %d.",
                       tg_config_get_file(c), r->rotary_dim, h->head_dim);
    TG_TRY(find_gguf_kind(r, c, ck, e));
    if (r->kind == TG_ROPE_YARN) TG_TRY(read_gguf_yarn(r, c, e));
    if (r->kind == TG_ROPE_LONGROPE) {
        TG_TRY(read_divisors(&r->freqs, r, ck, "rope_factors_short.weight", a, e));
        TG_TRY(read_divisors(&r->long_freqs, r, ck, "rope_factors_long.weight", a, e));
        if (!r->freqs || !r->long_freqs)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: longrope needs the tensors rope_factors_short.weight and "
                           "rope_factors_long.weight.",
                           tg_config_get_file(c));
        /* 1 in llama.cpp, and a root of logarithms in transformers: the file must say. */
        TG_TRY(tg_config_get_f64(c, "*.rope.scaling.attn_factor", &r->attention_factor, NULL, e));
    } else {
        TG_TRY(read_divisors(&r->freqs, r, ck, "rope_freqs.weight", a, e));
    }
    TG_TRY(check_gguf_factors(r, h, c, ck, e));
    return check_spec(r, h, c, e);
}
