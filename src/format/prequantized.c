/* SPDX-License-Identifier: Apache-2.0
 * prequantized.c - which tensors of a folder are codes of matrices. quantization_config names the
 * *method*, a family of codings (prequant_matrix.h). */
#include "format/prequantized.h"

#include "base/log.h"
#include "format/prequant_matrix.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_CODINGS = 3, NAME_BYTES = 200 };

struct tg_prequantized {
    const char *file; /* config.json, for messages */
    const struct method *method;
    tg_prequant_folder folder;
    tg_tensor *tensors; /* [n] the matrices under their plain names */
    tg_str *codes;      /* [n] the names of their codes */
    int32_t n;
    tg_name_index names, code_names; /* into tensors */
    tg_arena arena;
};

typedef struct method {
    const char *name;
    const tg_coding *codings[MAX_CODINGS];
    tg_status (*read)(tg_prequantized *s, const json_t *about,
                      tg_err *e); /* NULL: nothing to read */
    const char *const *keys;      /* of quantization_config that are understood; NULL-terminated */
} method;

/* ---- matrices of a folder */

/* The name without `part` and with the dot before it; len 0 when it does not end so. */
static tg_str find_stem(tg_str name, const char *part)
{
    size_t n = strlen(part);
    bool is_end = name.len > n + 1 && name.ptr[name.len - n - 1] == '.' &&
                  memcmp(name.ptr + name.len - n, part, n) == 0;
    return (tg_str){name.ptr, is_end ? name.len - n : 0};
}

static tg_status add_matrices(tg_prequantized *s, tg_err *e)
{
    int32_t n = tg_checkpoint_n_tensors(s->folder.c);
    s->tensors = TG_ARENA_ARRAY(&s->arena, tg_tensor, n);
    s->codes = TG_ARENA_ARRAY(&s->arena, tg_str, n);
    tg_name_entry *names = TG_ARENA_ARRAY(&s->arena, tg_name_entry, n);
    tg_name_entry *code_names = TG_ARENA_ARRAY(&s->arena, tg_name_entry, n);
    if (!s->tensors || !s->codes || !names || !code_names)
        return tg_fail_nomem(e, (size_t)n * sizeof(tg_tensor), "the quantized weights");
    for (int32_t i = 0; i < n; i++) {
        const tg_tensor *t = tg_checkpoint_get_tensor(s->folder.c, i);
        for (int k = 0; k < MAX_CODINGS && s->method->codings[k]; k++) {
            const tg_coding *c = s->method->codings[k];
            tg_str stem = find_stem(t->name, c->codes);
            if (!stem.len || t->dtype != c->dtype) continue;
            TG_TRY(tg_prequant_matrix_new(&s->tensors[s->n], &s->folder, c, t, &s->arena, e));
            s->codes[s->n++] = t->name;
        }
    }
    tg_str twice = {0};
    for (int32_t i = 0; i < s->n; i++) {
        names[i] = (tg_name_entry){s->tensors[i].name, i};
        code_names[i] = (tg_name_entry){s->codes[i], i};
    }
    if (!tg_names_init(&s->names, names, s->n, &twice))
        return tg_fail(e, TG_E_CORRUPT, "%s: '%.*s' is there in two codings.",
                       tg_checkpoint_get_path(s->folder.c), (int)twice.len, twice.ptr);
    (void)tg_names_init(&s->code_names, code_names, s->n, &twice); /* names of tensors differ */
    return TG_OK;
}

/* ---- methods */
/* A number under its usual or its older name; 0 when it is absent. */
static tg_status read_number(const tg_prequantized *s, const json_t *about, const char *key,
                             const char *older, int64_t *out, tg_err *e)
{
    bool is_present = false;
    *out = 0;
    TG_TRY(tg_json_get_i64(about, key, out, &is_present, s->file, e));
    return is_present ? TG_OK : tg_json_get_i64(about, older, out, &is_present, s->file, e);
}

static tg_status read_sizes(tg_prequantized *s, const json_t *about, int32_t most_bits, tg_err *e)
{
    int64_t bits;
    TG_TRY(read_number(s, about, "bits", "w_bit", &bits, e));
    if (bits != 4 && bits != most_bits)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: quantization_config.bits is %" PRId64 "; %s built. Use another "
                       "quantization of the model.",
                       s->file, bits, most_bits == 8 ? "4 and 8 are" : "only 4 is");
    s->folder.bits = (int32_t)bits;
    TG_TRY(read_number(s, about, "group_size", "q_group_size", &s->folder.group_size, e));
    if (s->folder.group_size == -1 ||
        (s->folder.group_size > 0 && s->folder.group_size < INT32_MAX))
        return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: quantization_config.group_size is %" PRId64
                   ", but must be -1 or a number of columns.",
                   s->file, s->folder.group_size);
}

/* A string key whose value must be one of a list. */
static tg_status check_choice(const tg_prequantized *s, const json_t *object, const char *key,
                              const char *const *known, int32_t *which, tg_err *e)
{
    tg_str value = {0};
    bool is_present = false;
    *which = 0;
    TG_TRY(tg_json_get_str(object, key, &value, &is_present, s->file, e));
    if (!is_present) return TG_OK;
    for (; known[*which]; ++*which)
        if (tg_str_is(value, known[*which])) return TG_OK;
    tg_buf list = {0};
    for (int32_t i = 0; known[i]; i++)
        tg_buf_printf(&list, "%s%s", i ? ", " : "", known[i]);
    tg_status st = tg_fail(e, TG_E_UNSUPPORTED, "%s: quantization_config.%s is '%s'; built are %s.",
                           s->file, key, tg_name_show(value).text, tg_buf_cstr(&list));
    tg_buf_deinit(&list);
    return st;
}

static tg_status read_gptq(tg_prequantized *s, const json_t *about, tg_err *e)
{
    static const char *const formats[] = {"gptq", "gptq_v2", NULL};
    int32_t which = 0;
    TG_TRY(read_sizes(s, about, 8, e));
    TG_TRY(check_choice(s, about, "checkpoint_format", formats, &which, e));
    s->folder.zero_shift = which == 0; /* v2 stores zeros as they are */
    return TG_OK;
}

static tg_status read_awq(tg_prequantized *s, const json_t *about, tg_err *e)
{
    static const char *const versions[] = {"gemm", "GEMM", NULL};
    int32_t which = 0;
    TG_TRY(read_sizes(s, about, 4, e));
    return check_choice(s, about, "version", versions, &which, e);
}

/* [rows, columns] of a block that has one scale. */
static tg_status read_block(tg_prequantized *s, const json_t *list, const char *key, tg_err *e)
{
    if (!list || json_is_null(list)) return TG_OK;
    s->folder.block_rows = json_integer_value(json_array_get(list, 0));
    s->folder.block_cols = json_integer_value(json_array_get(list, 1));
    if (json_array_size(list) == 2 && s->folder.block_rows > 0 &&
        s->folder.block_rows < INT32_MAX && s->folder.block_cols > 0 &&
        s->folder.block_cols < INT32_MAX)
        return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "%s: quantization_config's %s is not [rows, columns].", s->file,
                   key);
}

static tg_status read_fp8(tg_prequantized *s, const json_t *about, tg_err *e)
{
    static const char *const forms[] = {"e4m3", "float8_e4m3fn", NULL};
    int32_t which = 0;
    TG_TRY(check_choice(s, about, "fmt", forms, &which, e));
    return read_block(s, json_object_get(about, "weight_block_size"), "weight_block_size", e);
}

/* Bits, groups and blocks (but for their size) follow from the tensors and are not read here. */
static tg_status read_group(tg_prequantized *s, const json_t *group, tg_err *e)
{
    static const char *const formats[] = {"pack-quantized", "int-quantized", "naive-quantized",
                                          "float-quantized", NULL};
    static const char *const strategies[] = {"channel", "tensor", "group", "block", NULL};
    const json_t *w = json_object_get(group, "weights");
    int32_t which = 0;
    TG_TRY(check_choice(s, group, "format", formats, &which, e));
    if (!json_is_object(w)) return TG_OK; /* only activations */
    TG_TRY(check_choice(s, w, "strategy", strategies, &which, e));
    return read_block(s, json_object_get(w, "block_structure"), "block_structure", e);
}

static tg_status read_compressed(tg_prequantized *s, const json_t *about, tg_err *e)
{
    static const char *const formats[] = {"pack-quantized",  "int-quantized",   "naive-quantized",
                                          "float-quantized", "mixed-precision", NULL};
    const json_t *group, *turned = json_object_get(about, "transform_config");
    const char *name;
    int32_t which = 0;
    TG_TRY(check_choice(s, about, "format", formats, &which, e));
    if (json_object_size(json_object_get(turned, "config_groups")) > 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: quantization_config.transform_config rotates the weights, which is "
                       "not built.",
                       s->file);
    const json_t *sparse = json_object_get(json_object_get(about, "sparsity_config"), "format");
    if (json_is_string(sparse) && strcmp(json_string_value(sparse), "dense") != 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: quantization_config.sparsity_config.format is '%s'; only dense is "
                       "built.",
                       s->file, tg_name_show(tg_str_from_cstr(json_string_value(sparse))).text);
    json_object_foreach((json_t *)(uintptr_t)json_object_get(about, "config_groups"), name, group)
        TG_TRY(read_group(s, group, e));
    return TG_OK;
}

/* Beside what is read: how it was made, what it leaves alone (the tensors say that), and what
 * activations would be rounded to. */
static const char *const gptq_keys[] = {
    "quant_method",
    "bits",
    "w_bit",
    "checkpoint_format",
    "group_size",
    "desc_act",
    "sym",
    "damp_percent",
    "static_groups",
    "true_sequential",
    "dataset",
    "model_*",
    "block_name_*",
    "module_name_*",
    "modules_in_block*",
    "batch_size",
    "backend",
    "use_*",
    "disable_exllama",
    "exllama_config",
    "max_input_length",
    "pad_token_id",
    "tokenizer",
    "cache_block_outputs",
    "lm_head",
    "meta",
    "pack_dtype",
    "quantizer",
    "damp_auto_increment",
    "mse",
    "dynamic",
    NULL,
};
static const char *const awq_keys[] = {
    "quant_method",
    "bits",
    "w_bit",
    "group_size",
    "q_group_size",
    "version",
    "zero_point",
    "modules_to_not_convert",
    "backend",
    "do_fuse",
    "fuse_max_seq_len",
    "modules_to_fuse",
    "exllama_config",
    NULL,
};
static const char *const fp8_keys[] = {
    "quant_method",
    "fmt",
    "weight_block_size",
    "activation_scheme",
    "modules_to_not_convert",
    "ignored_layers",
    "scale_fmt",
    "dequantize",
    "activation_scale_ub",
    NULL,
};
static const char *const compressed_keys[] = {
    "quant_method",
    "format",
    "config_groups",
    "ignore",
    "kv_cache_scheme",
    "quantization_status",
    "global_compression_ratio",
    "sparsity_config",
    "transform_config",
    "version",
    NULL,
};

static const method methods[] = {
    {"gptq", {&tg_coding_gptq}, read_gptq, gptq_keys},
    {"awq", {&tg_coding_awq}, read_awq, awq_keys},
    {"fp8", {&tg_coding_fp8}, read_fp8, fp8_keys},
    {"fbgemm_fp8", {&tg_coding_fp8_scale}, NULL, fp8_keys},
    {"compressed-tensors",
     {&tg_coding_packed, &tg_coding_int8, &tg_coding_fp8_scale},
     read_compressed,
     compressed_keys},
};

/* The last parts of names beside codes; some belong to activations and the cache. */
static const char *const side_parts[] = {
    "scales",       "qzeros",           "g_idx",        "weight_scale",
    "weight_shape", "weight_scale_inv", "weight_g_idx", "weight_zero_point",
    "input_scale",  "input_zero_point", "output_scale", "input_scale_ub",
    "k_scale",      "v_scale",          "q_scale",      "activation_scale",
};

static tg_status find_method(tg_prequantized *s, const json_t *about, tg_err *e)
{
    tg_str name = {0};
    bool is_present = false;
    TG_TRY(tg_json_get_str(about, "quant_method", &name, &is_present, s->file, e));
    for (size_t i = 0; i < TG_COUNT(methods); i++)
        if (tg_str_is(name, methods[i].name)) s->method = &methods[i];
    if (s->method) return TG_OK;
    tg_buf known = {0};
    for (size_t i = 0; i < TG_COUNT(methods); i++)
        tg_buf_printf(&known, "%s%s", i ? ", " : "", methods[i].name);
    tg_status st = tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: quantization_config.quant_method is '%s'; built are %s. Use the "
                           "model without quantization, and let the export quantize it.",
                           s->file, tg_name_show(name).text, tg_buf_cstr(&known));
    tg_buf_deinit(&known);
    return st;
}

static bool is_key_known(const method *m, const char *key)
{
    for (const char *const *k = m->keys; *k; k++) {
        size_t n = strlen(*k);
        if ((*k)[n - 1] == '*' ? strncmp(key, *k, n - 1) == 0 : strcmp(key, *k) == 0) return true;
    }
    return false;
}

static void warn_keys(const tg_prequantized *s, const json_t *about)
{
    const char *key;
    const json_t *v;
    json_object_foreach((json_t *)(uintptr_t)about, key,
                        v) if (!json_is_null(v) && !is_key_known(s->method, key))
        tg_log_warn("%s: quantization_config.%s is not known and was not used", s->file,
                    tg_name_show(tg_str_from_cstr(key)).text);
}

/* Scales of weights that are not quantized: a drafting head's, or a mistake. */
static void warn_unused(const tg_prequantized *s)
{
    int32_t n = 0;
    tg_str first = {0};
    for (int32_t i = 0; i < tg_checkpoint_n_tensors(s->folder.c); i++) {
        tg_str name = tg_checkpoint_get_tensor(s->folder.c, i)->name, stem = {0};
        for (int k = 0; k < MAX_CODINGS && s->method->codings[k] && !stem.len; k++)
            for (size_t j = 0; j < TG_COUNT(s->method->codings[k]->scales) && !stem.len; j++)
                if (s->method->codings[k]->scales[j])
                    stem = find_stem(name, s->method->codings[k]->scales[j]);
        char weight[NAME_BYTES];
        if (!stem.len || stem.len + 6 > sizeof weight) continue;
        memcpy(weight, stem.ptr, stem.len);
        memcpy(weight + stem.len, "weight", 6);
        if (tg_prequantized_find(s, (tg_str){weight, stem.len + 6})) continue;
        if (n++ == 0) first = name;
    }
    if (n > 0)
        tg_log_warn("%s: %" PRId32 " scales have no quantized weight and are not used, such as "
                    "'%.*s'",
                    tg_checkpoint_get_path(s->folder.c), n, (int)first.len, first.ptr);
}
/* ---- the interface */

tg_status tg_prequantized_new(tg_prequantized **out, const tg_checkpoint *c, const json_t *about,
                              tg_err *e)
{
    *out = NULL;
    const char *file = tg_checkpoint_get_part_path(c, TG_HF_CONFIG);
    if (!json_is_object(about))
        return tg_fail(e, TG_E_CORRUPT, "%s: quantization_config is no object.", file);
    tg_prequantized *s = TG_NEW(tg_prequantized);
    if (!s) return tg_fail_nomem(e, sizeof *s, "the quantized weights");
    s->folder.c = c;
    s->file = file;
    tg_status st = find_method(s, about, e);
    if (st == TG_OK && s->method->read) st = s->method->read(s, about, e);
    if (st == TG_OK) st = add_matrices(s, e);
    if (st != TG_OK) {
        tg_prequantized_free(s);
        return st;
    }
    warn_keys(s, about);
    warn_unused(s);
    *out = s;
    return TG_OK;
}

void tg_prequantized_free(tg_prequantized *s)
{
    if (!s) return;
    tg_arena_deinit(&s->arena);
    tg_mem_free(s);
}

const tg_tensor *tg_prequantized_find(const tg_prequantized *s, tg_str name)
{
    int32_t i = tg_names_find(&s->names, name);
    return i < 0 ? NULL : &s->tensors[i];
}

const tg_tensor *tg_prequantized_find_codes(const tg_prequantized *s, tg_str name)
{
    int32_t i = tg_names_find(&s->code_names, name);
    return i < 0 ? NULL : &s->tensors[i];
}

tg_str tg_prequantized_find_stem(tg_str name)
{
    for (size_t i = 0; i < TG_COUNT(side_parts); i++) {
        tg_str stem = find_stem(name, side_parts[i]);
        if (stem.len) return stem;
    }
    return (tg_str){0};
}
