/* SPDX-License-Identifier: Apache-2.0
 * inspect.c - the contents of an artifact or a checkpoint, for people and as JSON.
 *
 * A checkpoint goes through every stage of an export that needs no weight data, by the code that
 * exports, so that the report is what will happen. Where a stage fails its message is kept and the
 * next stage that does not need its result is tried, so that two faults are reported at once. */
#include "api/api.h"
#include "base/os.h"
#include "device/cpu_device.h"
#include "run/exec.h"

#include <inttypes.h>
#include <string.h>

/* ---- templates and memory, which both have */

static json_t *describe_memory(const tg_exec_memory *m, const tg_program *p)
{
    return json_pack("{s:i, s:i, s:s, s:I, s:I, s:I, s:I}", "batch", p->batch, "max_length",
                     p->max_length, "kv", tg_kv_type_name(p->kv_type), "weights_bytes",
                     (json_int_t)p->weights_bytes, "kv_bytes", (json_int_t)m->kv_bytes,
                     "step_bytes", (json_int_t)m->step_bytes, "logits_bytes",
                     (json_int_t)m->logits_bytes);
}

static void print_memory(tg_buf *out, const tg_exec_memory *m, const tg_program *p)
{
    tg_buf_printf(out, "memory        batch %d, %d tokens each: weights ", p->batch, p->max_length);
    tg_buf_add_size(out, p->weights_bytes);
    tg_buf_printf(out, " (mapped), KV cache in %s ", tg_kv_type_name(p->kv_type));
    tg_buf_add_size(out, m->kv_bytes);
    tg_buf_add_cstr(out, ", a step up to ");
    tg_buf_add_size(out, m->step_bytes);
    tg_buf_add_cstr(out, " with logits of ");
    tg_buf_add_size(out, m->logits_bytes);
    tg_buf_add_byte(out, '\n');
}

/* Their names, or "none". */
static void print_templates(tg_buf *out, const tg_chat *chat)
{
    int32_t n = tg_chat_n_templates(chat);
    tg_buf_add_cstr(out, "chat template ");
    for (int32_t i = 0; i < n; i++)
        tg_buf_printf(out, "%s%s", i ? ", " : "", tg_chat_get_name(chat, i));
    tg_buf_printf(out, "%s\n", n ? "" : "none");
}

/* ---- artifacts */

static tg_status print_artifact(tg_buf *out, const tg_artifact *a, const tg_exec_memory *m,
                                tg_err *e)
{
    const json_t *source = json_object_get(a->json, "source");
    tg_chat *chat;
    TG_TRY(tg_artifact_open_chat(&chat, a, e));
    tg_buf_printf(out,
                  "artifact      %s\narchitecture  %s\nmade from     %s (%s)\ncompiler      %s\n",
                  a->path, json_string_value(json_object_get(a->json, "architecture")),
                  json_string_value(json_object_get(source, "name")),
                  json_string_value(json_object_get(source, "kind")),
                  json_string_value(json_object_get(a->json, "compiler")));
    tg_buf_printf(out, "tokenizer     %s\n", a->tokenizer_map.n_bytes ? "yes" : "none");
    print_templates(out, chat);
    print_memory(out, m, &a->program);
    tg_buf_add_byte(out, '\n');
    tg_program_print(&a->program, out);
    tg_chat_free(chat);
    return TG_OK;
}

/* artifact.json as it lies, and the memory, which follows from the program. */
static tg_status print_artifact_json(tg_buf *out, const tg_artifact *a, const tg_exec_memory *m,
                                     tg_err *e)
{
    json_t *o = json_copy(a->json);
    if (!o || json_object_set_new(o, "memory", describe_memory(m, &a->program)) != 0) {
        json_decref(o);
        return tg_fail_nomem(e, sizeof *o, "a description");
    }
    tg_status s = tg_json_print(out, o, 2, e);
    tg_buf_add_byte(out, '\n');
    json_decref(o);
    return s;
}

static tg_status inspect_artifact(tg_buf *out, const char *path, const tg_export_options *o,
                                  bool is_json, tg_err *e)
{
    tg_artifact *a;
    tg_exec_memory m;
    if (o)
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: is an artifact, whose shape and numbers are fixed; inspect the "
                       "checkpoint it was made from, or export that again",
                       path);
    TG_TRY(tg_artifact_open(&a, path, e));
    tg_status s = tg_exec_find_memory(&m, &a->program, &tg_cpu_device_ops, NULL, e);
    if (s == TG_OK)
        s = is_json ? print_artifact_json(out, a, &m, e) : print_artifact(out, a, &m, e);
    tg_artifact_close(a);
    return s;
}

/* ---- checkpoints: how far one gets */

enum { MAX_OBSTACLES = 4 };

typedef struct tg_survey {
    tg_checkpoint *checkpoint;
    tg_assets assets;            /* empty: there are none, or they are an obstacle */
    tg_chat *chat;               /* of the assets; NULL with them */
    tg_loaded_checkpoint *model; /* NULL: not understood */
    tg_compiled compiled;        /* with is_compiled */
    bool is_compiled;
    tg_exec_memory memory; /* with is_compiled */
    tg_err obstacles[MAX_OBSTACLES];
    int n_obstacles;
} tg_survey;

static void deinit_survey(tg_survey *x)
{
    tg_compiled_deinit(&x->compiled);
    tg_loaded_checkpoint_free(x->model);
    tg_chat_free(x->chat);
    tg_assets_deinit(&x->assets);
    tg_checkpoint_close(x->checkpoint);
}

/* Keeps the sentence of a stage that failed. Refused memory says nothing about a checkpoint and is
 * the caller's failure. */
static tg_status note(tg_survey *x, tg_status s, const tg_err *why, tg_err *e)
{
    if (s == TG_OK) return TG_OK;
    if (s == TG_E_NOMEM) return tg_fail(e, s, "%s", why->msg);
    TG_ASSERT(x->n_obstacles < MAX_OBSTACLES);
    x->obstacles[x->n_obstacles++] = *why;
    return TG_OK;
}

static tg_status survey_assets(tg_survey *x, tg_err *e)
{
    tg_err why = {0};
    tg_status s = tg_assets_read(&x->assets, x->checkpoint, &why);
    if (s == TG_OK)
        s = tg_chat_new(&x->chat, tg_buf_str(&x->assets.chat), tg_buf_str(&x->assets.named),
                        tg_checkpoint_get_path(x->checkpoint), &why);
    return note(x, s, &why, e);
}

/* Everything of a compilation but packing. */
static tg_status survey_program(tg_survey *x, tg_export_config *config, tg_err *e)
{
    tg_err why = {0}, too_large = {0};
    tg_status s = tg_assets_check_ids(&x->assets, x->checkpoint,
                                      tg_loaded_checkpoint_hparams(x->model)->n_vocab, &why);
    if (x->assets.n_vocab > 0) tg_loaded_checkpoint_limit_vocab(x->model, x->assets.n_sampled);
    if (s == TG_OK)
        s = tg_export_config_check(config, tg_loaded_checkpoint_hparams(x->model), &why);
    if (s == TG_OK) s = tg_compile(&x->compiled, x->model, config, NULL, NULL, &why);
    if (s != TG_OK) return note(x, s, &why, e);
    x->is_compiled = true;
    const tg_program *p = &x->compiled.program;
    TG_TRY(tg_exec_find_memory(&x->memory, p, &tg_cpu_device_ops, NULL, e));
    s = tg_exec_check_memory(&x->memory, p, tg_memory_available_bytes(), &too_large);
    return note(x, s, &too_large, e);
}

/* Weights in a form that is not read leave the texts to be looked at; a broken file leaves
 * nothing. */
static tg_status open_surveyed(tg_survey *x, const char *path, bool *has_weights, tg_err *e)
{
    tg_err why = {0};
    tg_status s = tg_checkpoint_open(&x->checkpoint, path, &why);
    *has_weights = s == TG_OK;
    if (s != TG_OK && s != TG_E_UNSUPPORTED) return tg_fail(e, s, "%s", why.msg);
    TG_TRY(note(x, s, &why, e));
    return s == TG_OK ? TG_OK : tg_checkpoint_open_texts(&x->checkpoint, path, e);
}

static tg_status survey(tg_survey *x, const char *path, const tg_export_options *o, tg_err *e)
{
    tg_export_config config;
    tg_err why = {0};
    bool has_weights;
    TG_TRY(tg_export_options_read(&config, o, e));
    TG_TRY(open_surveyed(x, path, &has_weights, e));
    TG_TRY(survey_assets(x, e));
    if (has_weights)
        TG_TRY(note(x, tg_loaded_checkpoint_open(&x->model, x->checkpoint, &why), &why, e));
    return x->model ? survey_program(x, &config, e) : TG_OK;
}

/* ---- the report */

typedef struct type_count {
    int32_t n;
    int64_t n_bytes;
} type_count;

static void count_types(type_count counts[TG_DTYPE_COUNT], const tg_checkpoint *c)
{
    for (int32_t i = 0; i < tg_checkpoint_n_tensors(c); i++) {
        const tg_tensor *t = tg_checkpoint_get_tensor(c, i);
        counts[t->dtype].n++;
        counts[t->dtype].n_bytes += (int64_t)t->n_bytes;
    }
}

static const char *kind_name(const tg_checkpoint *c)
{
    return tg_checkpoint_get_kind(c) == TG_CHECKPOINT_GGUF ? "gguf" : "huggingface";
}

static json_t *describe_types(const tg_checkpoint *c)
{
    type_count counts[TG_DTYPE_COUNT] = {0};
    json_t *types = json_object();
    count_types(counts, c);
    for (int32_t i = 0; i < TG_DTYPE_COUNT; i++)
        if (counts[i].n)
            json_object_set_new(types, tg_dtype_get_name((tg_dtype)i),
                                json_pack("{s:i, s:I}", "tensors", counts[i].n, "bytes",
                                          (json_int_t)counts[i].n_bytes));
    return types;
}

static json_t *describe_model(const tg_hparams *h)
{
    return json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i}", "n_layers", h->n_layers, "width",
                     h->width, "n_heads", h->n_heads, "n_kv_heads", h->n_kv_heads, "head_dim",
                     h->head_dim, "ffn", h->ffn, "n_vocab", h->n_vocab, "max_positions",
                     h->max_positions);
}

/* config.json's name of the way its weights are quantized; NULL where it has none. */
static const char *find_method(const tg_checkpoint *c)
{
    const json_t *config = tg_checkpoint_get_json(c, TG_HF_CONFIG);
    const json_t *about = json_object_get(config, "quantization_config");
    return json_string_value(json_object_get(about, "quant_method"));
}

static json_t *describe_assets(const tg_survey *x)
{
    json_t *names = json_array();
    for (int32_t i = 0; x->chat && i < tg_chat_n_templates(x->chat); i++)
        json_array_append_new(names, json_string(tg_chat_get_name(x->chat, i)));
    return json_pack("{s:i, s:o}", "n_vocab", x->assets.n_vocab, "templates", names);
}

static tg_status print_checkpoint_json(tg_buf *out, const tg_survey *x, tg_err *e)
{
    json_t *obstacles = json_array();
    for (int i = 0; i < x->n_obstacles; i++)
        json_array_append_new(obstacles, json_string(x->obstacles[i].msg));
    json_t *o = json_pack("{s:s, s:s, s:i, s:o, s:b, s:o, s:o}", "path",
                          tg_checkpoint_get_path(x->checkpoint), "kind", kind_name(x->checkpoint),
                          "n_tensors", tg_checkpoint_n_tensors(x->checkpoint), "types",
                          describe_types(x->checkpoint), "runs", x->n_obstacles == 0, "obstacles",
                          obstacles, "tokenizer", describe_assets(x));
    if (!o) return tg_fail_nomem(e, sizeof *o, "a description");
    if (x->model) {
        json_object_set_new(o, "architecture",
                            json_string(tg_loaded_checkpoint_arch(x->model)->name));
        json_object_set_new(o, "model", describe_model(tg_loaded_checkpoint_hparams(x->model)));
    }
    if (find_method(x->checkpoint))
        json_object_set_new(o, "quantized", json_string(find_method(x->checkpoint)));
    if (x->is_compiled)
        json_object_set_new(o, "memory", describe_memory(&x->memory, &x->compiled.program));
    tg_status s = tg_json_print(out, o, 2, e);
    tg_buf_add_byte(out, '\n');
    json_decref(o);
    return s;
}

static const char *plural(int32_t n)
{
    return n == 1 ? "" : "s";
}

static void print_model(tg_buf *out, const tg_loaded_checkpoint *b)
{
    const tg_hparams *h = tg_loaded_checkpoint_hparams(b);
    tg_buf_printf(out,
                  "architecture  %s\n"
                  "model         %d layer%s of width %d, %d head%s and %d KV head%s of %d, ffn %d, "
                  "vocabulary size %d, context length %d\n",
                  tg_loaded_checkpoint_arch(b)->name, h->n_layers, plural(h->n_layers), h->width,
                  h->n_heads, plural(h->n_heads), h->n_kv_heads, plural(h->n_kv_heads), h->head_dim,
                  h->ffn, h->n_vocab, h->max_positions);
}

static void print_types(tg_buf *out, const tg_checkpoint *c)
{
    type_count counts[TG_DTYPE_COUNT] = {0};
    count_types(counts, c);
    tg_buf_printf(out, "tensors       %" PRId32, tg_checkpoint_n_tensors(c));
    for (int32_t i = 0, n = 0; i < TG_DTYPE_COUNT; i++) {
        if (!counts[i].n) continue;
        tg_buf_printf(out, "%s%" PRId32 " in %s (", n++ ? ", " : ": ", counts[i].n,
                      tg_dtype_get_name((tg_dtype)i));
        tg_buf_add_size(out, counts[i].n_bytes);
        tg_buf_add_byte(out, ')');
    }
    tg_buf_add_byte(out, '\n');
    if (find_method(c))
        tg_buf_printf(out, "quantized     %s\n",
                      tg_name_show(tg_str_from_cstr(find_method(c))).text);
}

static void print_checkpoint(tg_buf *out, const tg_survey *x)
{
    tg_buf_printf(out, "checkpoint    %s (%s)\n", tg_checkpoint_get_path(x->checkpoint),
                  kind_name(x->checkpoint));
    if (x->model) print_model(out, x->model);
    print_types(out, x->checkpoint);
    if (x->assets.n_vocab > 0)
        tg_buf_printf(out, "tokenizer     %" PRId32 " tokens\n", x->assets.n_vocab);
    else if (x->chat)
        tg_buf_add_cstr(out, "tokenizer     none\n");
    if (x->chat) print_templates(out, x->chat);
    if (x->is_compiled) print_memory(out, &x->memory, &x->compiled.program);
    tg_buf_printf(out, "will run      %s\n", x->n_obstacles ? "no" : "yes");
    for (int i = 0; i < x->n_obstacles; i++) {
        tg_buf_add_cstr(out, "in the way    ");
        tg_buf_add_escaped(out, tg_str_from_cstr(x->obstacles[i].msg));
        tg_buf_add_byte(out, '\n');
    }
}

static tg_status inspect_checkpoint(tg_buf *out, const char *path, const tg_export_options *o,
                                    bool is_json, tg_err *e)
{
    tg_survey x = {0};
    tg_status s = survey(&x, path, o, e);
    if (s == TG_OK && is_json)
        s = print_checkpoint_json(out, &x, e);
    else if (s == TG_OK)
        print_checkpoint(out, &x);
    if (s == TG_OK && x.n_obstacles > 0)
        s = tg_fail(e, x.obstacles[0].status, "%s", x.obstacles[0].msg);
    deinit_survey(&x);
    return s;
}

tg_status tg_inspect(char **out, const char *path, const tg_export_options *o, bool is_json,
                     tg_err *e)
{
    tg_buf text = {0};
    *out = NULL;
    tg_status s = tg_artifact_is_at(path) ? inspect_artifact(&text, path, o, is_json, e)
                                          : inspect_checkpoint(&text, path, o, is_json, e);
    /* A checkpoint that will not run has its description too. */
    bool is_described = s == TG_OK || text.len > 0;
    if (is_described && text.is_failed) s = tg_buf_check(&text, e);
    if (is_described && !text.is_failed) {
        tg_err why = {0};
        tg_status given = tg_give_text(out, tg_buf_str(&text), &why);
        if (given != TG_OK && s == TG_OK) s = tg_fail(e, given, "%s", why.msg);
    }
    tg_buf_deinit(&text);
    return s;
}

tg_status tg_verify(const char *dir, tg_err *e)
{
    tg_artifact *a;
    TG_TRY(tg_artifact_open(&a, dir, e));
    tg_status s = tg_artifact_verify(a, e);
    tg_artifact_close(a);
    return s;
}
