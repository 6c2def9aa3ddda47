/* SPDX-License-Identifier: Apache-2.0
 * export.c - checkpoint to artifact: the passes in order, and the folder they fill. */
#include "api/api.h"
#include "base/log.h"
#include "base/os.h"

#include <stdio.h>

/* ---- options */

static tg_status read_config_file(tg_export_config *c, const char *path, tg_err *e)
{
    json_t *object;
    TG_TRY(tg_json_load(&object, path, e));
    tg_status s = tg_export_config_read(c, object, path, e);
    json_decref(object);
    return s;
}

/* The named options go the same road as a config file, so that names are checked in one place. */
static tg_status read_names(tg_export_config *c, const tg_export_options *o, tg_err *e)
{
    json_t *object = json_object();
    if (!object) return tg_fail_nomem(e, sizeof object, "export options");
    if (o->weights) json_object_set_new(object, "weights", json_string(o->weights));
    if (o->activations) json_object_set_new(object, "activations", json_string(o->activations));
    if (o->kv) json_object_set_new(object, "kv", json_string(o->kv));
    if (o->has_speculation)
        json_object_set_new(object, "speculation", json_integer(o->speculation));
    if (o->batch) json_object_set_new(object, "batch", json_integer(o->batch));
    if (o->max_length) json_object_set_new(object, "max_length", json_integer(o->max_length));
    if (o->n_context_buckets) {
        json_t *list = json_array();
        for (int32_t i = 0; i < o->n_context_buckets; i++)
            json_array_append_new(list, json_integer(o->context_buckets[i]));
        json_object_set_new(object, "context_buckets", list);
    }
    tg_status s = tg_export_config_read(c, object, "export options", e);
    json_decref(object);
    return s;
}

tg_status tg_export_options_read(tg_export_config *out, const tg_export_options *o, tg_err *e)
{
    *out = (tg_export_config){0};
    if (!o) return TG_OK;
    if (o->config_file) TG_TRY(read_config_file(out, o->config_file, e));
    return read_names(out, o, e);
}

static tg_status check_calibration(const tg_export_config *c, const tg_export_options *o, tg_err *e)
{
    bool is_low_bit = c->weights == TG_WEIGHTS_Q4_0 || c->weights == TG_WEIGHTS_Q4_1 ||
                      c->weights == TG_WEIGHTS_Q5_1;
    if (!o || !o->calibration_file || is_low_bit) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT,
                   "%s: a calibration text serves weights that are quantized to 4 or 5 bits; add "
                   "--weights q4_0, q4_1 or q5_1, or leave out --calibrate",
                   o->calibration_file);
}

/* ---- compiling */

/* The program borrows the ids of the assets that its vocabulary has. */
static void mask_unused(tg_export_job *job)
{
    tg_program *p = &job->compiled.program;
    p->unused = job->assets.unused.ptr;
    p->n_unused = (int32_t)job->assets.unused.len;
    while (p->n_unused > 0 && p->unused[p->n_unused - 1] >= p->n_vocab)
        p->n_unused--;
}

tg_status tg_export_job_init(tg_export_job *job, const char *source, const tg_export_options *o,
                             const char *dump_pass, tg_buf *dump, tg_err *e)
{
    *job = (tg_export_job){0};
    tg_status s = tg_export_options_read(&job->config, o, e);
    if (s == TG_OK) s = check_calibration(&job->config, o, e);
    if (s == TG_OK) s = tg_checkpoint_open(&job->checkpoint, source, e);
    if (s == TG_OK) s = tg_loaded_checkpoint_open(&job->loaded, job->checkpoint, e);
    if (s == TG_OK) s = tg_assets_read(&job->assets, job->checkpoint, e);
    if (s == TG_OK)
        s = tg_assets_check_ids(&job->assets, job->checkpoint,
                                tg_loaded_checkpoint_hparams(job->loaded)->n_vocab, e);
    if (s == TG_OK && job->assets.n_vocab > 0)
        tg_loaded_checkpoint_limit_vocab(job->loaded, job->assets.n_sampled);
    if (s == TG_OK)
        s = tg_export_config_check(&job->config, tg_loaded_checkpoint_hparams(job->loaded), e);
    if (s == TG_OK) s = tg_compile(&job->compiled, job->loaded, &job->config, dump_pass, dump, e);
    if (s == TG_OK) mask_unused(job);
    if (s != TG_OK) tg_export_job_deinit(job);
    return s;
}

void tg_export_job_deinit(tg_export_job *job)
{
    tg_compiled_deinit(&job->compiled);
    tg_loaded_checkpoint_free(job->loaded);
    tg_assets_deinit(&job->assets);
    tg_checkpoint_close(job->checkpoint);
    *job = (tg_export_job){0};
}

tg_status tg_export_preview(char **out, const char *source, const char *pass,
                            const tg_export_options *o, tg_err *e)
{
    tg_export_job job;
    tg_buf text = {0};
    *out = NULL;
    tg_status s = tg_export_job_init(&job, source, o, pass, pass ? &text : NULL, e);
    if (s == TG_OK) {
        if (!pass) tg_program_print(&job.compiled.program, &text);
        s = tg_buf_check(&text, e);
        if (s == TG_OK) s = tg_give_text(out, tg_buf_str(&text), e);
        tg_export_job_deinit(&job);
    }
    tg_buf_deinit(&text);
    return s;
}

/* ---- writing. The program comes after the weights, for it says what running them has shown. */

/* Beside weights and assets lie the program and two texts, some hundred KB, and
 * what the file system needs for itself. */
tg_status tg_export_check_disk(int64_t n_bytes, const char *dir, tg_err *e)
{
    int64_t n_free = 0, needed = n_bytes + n_bytes / 64 + (1 << 20);
    TG_TRY(tg_disk_free_bytes(&n_free, dir, e));
    if (n_free >= needed) return TG_OK;
    return tg_fail(e, TG_E_IO,
                   "%s: the export needs about %lld MB and %lld MB are free; choose another place "
                   "or make room",
                   dir, (long long)(needed >> 20), (long long)(n_free >> 20));
}

void tg_content_hash_print(char hex[33], const tg_content_hash *hash)
{
    snprintf(hex, 33, "%016llx%016llx", (unsigned long long)hash->high,
             (unsigned long long)hash->low);
}

static json_t *describe(const tg_export_job *job, const tg_content_hash *hash,
                        const tg_calibration *c)
{
    const tg_program *p = &job->compiled.program;
    char hex[33];
    tg_content_hash_print(hex, hash);
    /* No path and no time: the same inputs give the same bytes, wherever they lie. */
    json_t *source = json_pack(
        "{s:s, s:s, s:s}", "kind",
        tg_checkpoint_get_kind(job->checkpoint) == TG_CHECKPOINT_GGUF ? "gguf" : "huggingface",
        "name", tg_path_name(tg_checkpoint_get_path(job->checkpoint)), "xxh3_128", hex);
    json_t *all =
        json_pack("{s:s, s:s, s:o, s:o, s:{s:i, s:i, s:i, s:i, s:I}}", "architecture",
                  tg_loaded_checkpoint_arch(job->loaded)->name, "compiler", TG_VERSION, "source",
                  source, "config", tg_export_config_print(&job->config), "model", "n_layers",
                  p->n_layers, "width", p->width, "n_vocab", p->n_vocab, "max_length",
                  p->max_length, "weights_bytes", (json_int_t)p->weights_bytes);
    if (!c->path) return all;
    tg_content_hash_print(hex, &c->hash);
    if (all && json_object_set_new(all, "calibration", json_pack("{s:s}", "xxh3_128", hex)) == 0)
        return all;
    json_decref(all);
    return NULL;
}

static tg_status write_program(tg_artifact_writer *w, const tg_export_job *job, tg_err *e)
{
    tg_buf block = {0};
    tg_status s = tg_program_print_block(&job->compiled.program, &block, e);
    if (s == TG_OK) s = tg_artifact_writer_add(w, "program.bin", tg_buf_str(&block), e);
    tg_buf_deinit(&block);
    return s;
}

static tg_status write_assets(tg_artifact_writer *w, const tg_assets *p, tg_err *e)
{
    tg_buf defaults = {0};
    tg_status s = TG_OK;
    if (p->tokenizer.len)
        s = tg_artifact_writer_add(w, "tokenizer.bin", tg_buf_str(&p->tokenizer), e);
    if (s == TG_OK && p->chat.len)
        s = tg_artifact_writer_add(w, "template.jinja", tg_buf_str(&p->chat), e);
    if (s == TG_OK && p->named.len)
        s = tg_artifact_writer_add(w, "templates.json", tg_buf_str(&p->named), e);
    if (s == TG_OK) s = tg_json_print(&defaults, p->defaults, 2, e);
    if (s == TG_OK) s = tg_artifact_writer_add(w, "defaults.json", tg_buf_str(&defaults), e);
    tg_buf_deinit(&defaults);
    return s;
}

static int64_t count_bytes(const tg_assets *p)
{
    return (int64_t)(p->tokenizer.len + p->chat.len + p->named.len);
}

/* The source is hashed while the disk is still busy with the weights. */
static tg_status write_weights(tg_artifact_writer *w, const tg_export_job *job,
                               const tg_export_options *o, const tg_calibration *c,
                               tg_content_hash *hash, tg_err *e)
{
    tg_file_writer *out;
    TG_TRY(tg_artifact_writer_begin(w, "weights.0.bin", &out, e));
    TG_TRY(tg_pack_write(&job->compiled.program, job->loaded, c->importance.columns, out,
                         o->progress, o->context, e));
    *hash = tg_checkpoint_hash(job->checkpoint);
    return tg_artifact_writer_end(w, e);
}

static tg_status write_artifact(tg_artifact_writer *w, tg_export_job *job,
                                const tg_export_options *o, const tg_calibration *c, tg_err *e)
{
    TG_TRY(write_assets(w, &job->assets, e));
    tg_content_hash hash;
    TG_TRY(write_weights(w, job, o, c, &hash, e));
    TG_TRY(tg_export_choose_outliers(job, w, e));
    TG_TRY(write_program(w, job, e));
    json_t *json = describe(job, &hash, c);
    if (!json) return tg_fail_nomem(e, sizeof json, "artifact.json");
    tg_status s = tg_artifact_writer_commit(w, json, e);
    json_decref(json);
    return s;
}

tg_status tg_export(const char *source, const char *dir, const tg_export_options *o, tg_err *e)
{
    static const tg_export_options defaults;
    if (!o) o = &defaults;
    tg_export_job job;
    tg_artifact_writer *w = NULL;
    tg_calibration c = {0};
    TG_TRY(tg_export_job_init(&job, source, o, NULL, NULL, e));
    int64_t n_bytes = job.compiled.program.weights_bytes + count_bytes(&job.assets);
    tg_status s = tg_export_check_disk(n_bytes, dir, e);
    if (s == TG_OK && o->calibration_file) s = tg_calibration_open(&c, o->calibration_file, e);
    if (s == TG_OK) s = tg_artifact_writer_new(&w, dir, o->is_forced, e);
    if (s == TG_OK && c.path) s = tg_export_calibrate(&c, &job, w, dir, o, e);
    if (s == TG_OK) s = write_artifact(w, &job, o, &c, e);
    tg_calibration_close(&c);
    tg_artifact_writer_free(w);
    tg_export_job_deinit(&job);
    return s;
}
