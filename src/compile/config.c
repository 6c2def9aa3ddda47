/* SPDX-License-Identifier: Apache-2.0
 * config.c - the export configuration: strict reading, defaults, rules, and its canonical form. */
#include "compile/compile.h"
#include "format/kv_type.h"

#include <inttypes.h>
#include <string.h>

static const char *const weights_names[] = {
    [TG_WEIGHTS_AUTO] = "auto", [TG_WEIGHTS_F32] = "f32",   [TG_WEIGHTS_BF16] = "bf16",
    [TG_WEIGHTS_F16] = "f16",   [TG_WEIGHTS_Q8_0] = "q8_0", [TG_WEIGHTS_Q4_0] = "q4_0",
    [TG_WEIGHTS_Q4_1] = "q4_1", [TG_WEIGHTS_Q5_1] = "q5_1",
};
static const char *const activations_names[] = {
    [TG_ACTIVATIONS_INT8] = "int8",
    [TG_ACTIVATIONS_INT16] = "int16",
};
static const char *const kv_names[TG_KV_TYPE_COUNT] = {[TG_KV_F32] = "f32",
                                                       [TG_KV_F16] = "f16",
                                                       [TG_KV_BF16] = "bf16",
                                                       [TG_KV_Q8] = "q8",
                                                       [TG_KV_Q16] = "q16"};

enum { DEFAULT_BATCH = 1, DEFAULT_LENGTH = 4096 };
static const int32_t default_buckets[] = {32, 128, 512};

const char *tg_weights_mode_name(tg_weights_mode m)
{
    TG_ASSERT((size_t)m < TG_COUNT(weights_names));
    return weights_names[m];
}

/* ---- reading */

/* A word of a list: index into names. */
static tg_status read_name(const json_t *object, const char *key, const char *const *names,
                           size_t n_names, int32_t *out, const char *file, tg_err *e)
{
    tg_str text;
    bool is_present;
    TG_TRY(tg_json_get_str(object, key, &text, &is_present, file, e));
    if (!is_present) return TG_OK;
    for (size_t i = 0; i < n_names; i++) {
        if (!tg_str_is(text, names[i])) continue;
        *out = (int32_t)i;
        return TG_OK;
    }
    char list[128] = "", word[64] = "";
    for (size_t i = 0; i < n_names; i++) {
        if (i) strcat(list, ", ");
        strcat(list, names[i]);
    }
    memcpy(word, text.ptr, TG_MIN(text.len, sizeof word - 1));
    const char *near = tg_find_nearest_name(word, names, n_names);
    return tg_fail(e, TG_E_ARGUMENT, "%s: %s is '%s'%s%s%s; known are %s", file, key, word,
                   near ? ", did you mean '" : "", near ? near : "", near ? "'?" : "", list);
}

/* An integer that a config field can hold; its range is the business of the check. */
static tg_status read_int(const json_t *object, const char *key, int32_t *out, bool may_be_0,
                          const char *file, tg_err *e)
{
    int64_t n;
    bool is_present;
    TG_TRY(tg_json_get_i64(object, key, &n, &is_present, file, e));
    if (!is_present) return TG_OK;
    /* In the struct 0 may mean "default": a 0 that was written down must not become one. */
    if (n <= INT32_MIN || n >= INT32_MAX || (n == 0 && !may_be_0))
        return tg_fail(e, TG_E_ARGUMENT, "%s: %s is %" PRId64 ", which is out of range", file, key,
                       n);
    *out = (int32_t)n;
    return TG_OK;
}

static tg_status read_buckets(tg_export_config *c, const json_t *object, const char *file,
                              tg_err *e)
{
    const json_t *list = json_object_get(object, "context_buckets");
    if (!list || json_is_null(list)) return TG_OK;
    size_t n = json_array_size(list);
    if (!json_is_array(list) || n == 0)
        return tg_fail(e, TG_E_ARGUMENT, "%s: context_buckets must be a list of token counts",
                       file);
    if (n > TG_MAX_CONTEXT_BUCKETS)
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: context_buckets has %zu entries; at most %d are possible", file, n,
                       TG_MAX_CONTEXT_BUCKETS);
    for (size_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(list, i);
        json_int_t v = json_integer_value(x);
        if (!json_is_integer(x) || v < 1 || v > INT32_MAX)
            return tg_fail(
                e, TG_E_ARGUMENT,
                "%s: entry %zu of context_buckets is not a whole number of tokens above 0", file,
                i);
        c->context_buckets[i] = (int32_t)v;
    }
    c->n_context_buckets = (int32_t)n;
    return TG_OK;
}

tg_status tg_export_config_read(tg_export_config *c, const json_t *object, const char *name,
                                tg_err *e)
{
    static const char *const keys[] = {
        "batch", "max_length", "context_buckets", "speculation", "weights", "activations", "kv"};
    if (!json_is_object(object))
        return tg_fail(e, TG_E_ARGUMENT, "%s: an export configuration is a JSON object", name);
    TG_TRY(tg_json_check_keys(object, name, keys, TG_COUNT(keys), e));
    int32_t weights = (int32_t)c->weights, activations = (int32_t)c->activations;
    int32_t kv = TG_NONE;
    TG_TRY(read_int(object, "batch", &c->batch, false, name, e));
    TG_TRY(read_int(object, "max_length", &c->max_length, false, name, e));
    TG_TRY(read_int(object, "speculation", &c->speculation, true, name, e));
    TG_TRY(read_buckets(c, object, name, e));
    TG_TRY(read_name(object, "weights", weights_names, TG_COUNT(weights_names), &weights, name, e));
    TG_TRY(read_name(object, "activations", activations_names, TG_COUNT(activations_names),
                     &activations, name, e));
    TG_TRY(read_name(object, "kv", kv_names, TG_COUNT(kv_names), &kv, name, e));
    c->weights = (tg_weights_mode)weights;
    c->activations = (tg_activations)activations;
    if (kv == TG_NONE) return TG_OK;
    c->has_kv_type = true;
    c->kv_type = kv;
    return TG_OK;
}

/* ---- checking */

static int32_t most_positions(const tg_hparams *h)
{
    return TG_MIN(h->position_limit, TG_MAX_LENGTH);
}

static void fill_defaults(tg_export_config *c, const tg_hparams *h)
{
    if (c->batch == 0) c->batch = DEFAULT_BATCH;
    /* The length that the model was trained for; rope scaling beyond it needs an option. */
    if (c->max_length == 0)
        c->max_length = TG_MIN(TG_MIN(h->max_positions, most_positions(h)), DEFAULT_LENGTH);
    if (!c->has_kv_type) c->kv_type = c->weights == TG_WEIGHTS_F32 ? TG_KV_F32 : TG_KV_Q16;
    c->has_kv_type = true;
    if (c->n_context_buckets > 0) return;
    /* Those that a row can fill; for a very short one its whole length. */
    for (size_t i = 0; i < TG_COUNT(default_buckets); i++)
        if (default_buckets[i] <= c->max_length)
            c->context_buckets[c->n_context_buckets++] = default_buckets[i];
    if (c->n_context_buckets == 0) c->context_buckets[c->n_context_buckets++] = c->max_length;
}

static tg_status check_range(const char *key, int32_t n, int32_t low, int32_t high, const char *why,
                             tg_err *e)
{
    if (n >= low && n <= high) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT, "%s is %d; it must be %d to %d%s", key, n, low, high, why);
}

/* Memory grows with the bucket, so one that no single row can fill is a mistake rather than a wish.
 * */
static tg_status check_buckets(const tg_export_config *c, tg_err *e)
{
    TG_TRY(check_range("the number of context_buckets", c->n_context_buckets, 1,
                       TG_MAX_CONTEXT_BUCKETS, "", e));
    for (int32_t i = 0; i < c->n_context_buckets; i++) {
        int32_t n = c->context_buckets[i];
        if (n < 1 || n > c->max_length)
            return tg_fail(e, TG_E_ARGUMENT,
                           "context bucket %d is not 1 to max_length (%d); leave it out, or raise "
                           "max_length",
                           n, c->max_length);
        if (i > 0 && n <= c->context_buckets[i - 1])
            return tg_fail(e, TG_E_ARGUMENT,
                           "context_buckets must ascend, but %d is followed by %d",
                           c->context_buckets[i - 1], n);
    }
    return TG_OK;
}

tg_status tg_export_config_check(tg_export_config *c, const tg_hparams *h, tg_err *e)
{
    int32_t most = most_positions(h);
    fill_defaults(c, h);
    TG_TRY(check_range("batch", c->batch, 1, TG_MAX_BATCH, "", e));
    TG_TRY(check_range("max_length", c->max_length, 1, most, ", the positions of this model", e));
    TG_TRY(check_range("speculation", c->speculation, 0, TG_MAX_SPECULATION,
                       " drafted tokens; 0 is none", e));
    if (c->speculation >= c->max_length)
        return tg_fail(
            e, TG_E_ARGUMENT,
            "speculation %d verifies %d tokens at once, more than max_length %d; lower the "
            "one or raise the other",
            c->speculation, c->speculation + 1, c->max_length);
    TG_TRY(check_range("weights", (int32_t)c->weights, 0, (int32_t)TG_COUNT(weights_names) - 1, "",
                       e));
    TG_TRY(check_range("activations", (int32_t)c->activations, 0, TG_ACTIVATIONS_INT16, "", e));
    TG_TRY(check_range("kv", c->kv_type, 0, TG_KV_TYPE_COUNT - 1, "", e));
    return check_buckets(c, e);
}

/* ---- printing */

/* Through text, so that the object is made by the one JSON reader and its memory. */
json_t *tg_export_config_print(const tg_export_config *c)
{
    tg_buf text = {0};
    tg_buf_printf(&text, "{\"batch\": %d, \"max_length\": %d, \"context_buckets\": [", c->batch,
                  c->max_length);
    for (int32_t i = 0; i < c->n_context_buckets; i++)
        tg_buf_printf(&text, "%s%d", i ? ", " : "", c->context_buckets[i]);
    tg_buf_printf(&text, "], \"speculation\": %d, \"weights\": \"%s\", ", c->speculation,
                  weights_names[c->weights]);
    tg_buf_printf(&text, "\"activations\": \"%s\", \"kv\": \"%s\"}",
                  activations_names[c->activations], kv_names[c->kv_type]);
    json_t *out = NULL;
    tg_status s = tg_buf_check(&text, NULL);
    if (s == TG_OK) s = tg_json_parse(&out, tg_buf_str(&text), "export config", NULL);
    tg_buf_deinit(&text);
    return s == TG_OK ? out : NULL;
}
