/* SPDX-License-Identifier: Apache-2.0
 * calibration.c - what an export brings to the runs of src/calibrate: texts as token ids, and
 * packed weights in the folder that is being written. */
#include "api/api.h"
#include "calibrate/calibrate.h"

#include <xxhash.h>

enum { MAX_BYTES = 1 << 24 };

/* ---- the text of --calibrate */

tg_status tg_calibration_open(tg_calibration *c, const char *path, tg_err *e)
{
    *c = (tg_calibration){0};
    tg_status s = tg_file_load(&c->text, path, MAX_BYTES, e);
    if (s == TG_OK && c->text.len == 0)
        s = tg_fail(e, TG_E_ARGUMENT, "%s: the calibration text is empty", path);
    if (s == TG_OK) {
        XXH128_hash_t h = XXH3_128bits(c->text.ptr, c->text.len);
        c->path = path;
        c->hash = (tg_content_hash){.low = h.low64, .high = h.high64};
    } else {
        tg_calibration_close(c);
    }
    return s;
}

void tg_calibration_close(tg_calibration *c)
{
    tg_buf_deinit(&c->text);
    tg_importance_deinit(&c->importance);
    *c = (tg_calibration){0};
}

/* ---- token ids */

/* None where there is no tokenizer. */
static tg_status encode(tg_ids *out, const tg_export_job *job, tg_str text, tg_err *e)
{
    static const tg_encode_options options = {.add_special = true};
    const tg_buf *blob = &job->assets.tokenizer;
    tg_tokenizer *t;
    if (blob->len == 0) return TG_OK;
    TG_TRY(tg_tokenizer_open(&t, blob->ptr, blob->len, e));
    tg_status s = tg_tokenizer_encode(out, t, text, &options, e);
    tg_tokenizer_close(t);
    return s;
}

static tg_calibration_ids borrow(const tg_ids *ids)
{
    return (tg_calibration_ids){ids->ptr, ids->len};
}

static tg_status encode_calibration(tg_ids *out, const tg_calibration *c, const tg_export_job *job,
                                    tg_err *e)
{
    int32_t n_rows = job->compiled.program.n_embed_rows;
    if (job->assets.tokenizer.len == 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: the model has no tokenizer to read it with; leave out --calibrate",
                       c->path);
    tg_status s = encode(out, job, tg_buf_str(&c->text), e);
    if (s != TG_OK) {
        tg_err_context(e, "%s", c->path);
        return s;
    }
    if (out->len < TG_IMPORTANCE_MIN_TOKENS)
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: the calibration text has %zu tokens; at least %d are needed, and up to "
                       "%d are used",
                       c->path, out->len, TG_IMPORTANCE_MIN_TOKENS, TG_IMPORTANCE_MAX_TOKENS);
    for (size_t i = 0; i < out->len; i++)
        if (out->ptr[i] >= n_rows)
            return tg_fail(e, TG_E_CORRUPT, "%s: token %zu is %d, and the embedding has %d rows",
                           c->path, i, out->ptr[i], n_rows);
    return TG_OK;
}

/* ---- runs */

tg_status tg_export_choose_outliers(tg_export_job *job, tg_artifact_writer *w, tg_err *e)
{
    tg_ids ids = {0};
    tg_file_map weights = {0};
    tg_status s = encode(&ids, job, tg_calibration_text(), e);
    if (s == TG_OK) s = tg_artifact_writer_map(w, "weights.0.bin", &weights, e);
    if (s == TG_OK) s = tg_calibrate_outliers(&job->compiled, weights.data, borrow(&ids), e);
    tg_file_map_close(&weights);
    tg_ids_deinit(&ids);
    return s;
}

static tg_status write_floats(tg_artifact_writer *w, const tg_program *p,
                              const tg_loaded_checkpoint *b, const tg_export_options *o, tg_err *e)
{
    tg_file_writer *out;
    TG_TRY(tg_artifact_writer_begin(w, "weights.0.bin", &out, e));
    TG_TRY(tg_pack_write(p, b, NULL, out, o->progress, o->context, e));
    return tg_artifact_writer_end(w, e);
}

tg_status tg_export_calibrate(tg_calibration *c, const tg_export_job *job, tg_artifact_writer *w,
                              const char *dir, const tg_export_options *o, tg_err *e)
{
    tg_ids ids = {0};
    tg_file_map weights = {0};
    tg_importance *x = &c->importance;
    tg_status s = encode_calibration(&ids, c, job, e);
    if (s == TG_OK) {
        s = tg_importance_init(x, job->loaded, &job->config, &job->compiled.program, ids.len, e);
        if (s != TG_OK) tg_err_context(e, "%s", c->path);
    }
    const tg_program *floats = &x->floats.program;
    if (s == TG_OK) s = tg_export_check_disk(floats->weights_bytes, dir, e);
    if (s == TG_OK) s = write_floats(w, floats, job->loaded, o, e);
    if (s == TG_OK) s = tg_artifact_writer_map(w, "weights.0.bin", &weights, e);
    if (s == TG_OK) s = tg_importance_run(x, weights.data, borrow(&ids), e);
    tg_file_map_close(&weights);
    if (s == TG_OK) s = tg_artifact_writer_drop(w, "weights.0.bin", e);
    tg_ids_deinit(&ids);
    return s;
}
