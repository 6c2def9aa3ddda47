/* SPDX-License-Identifier: Apache-2.0
 * api.h - what the files of src/api share. */
#ifndef TG_API_API_H
#define TG_API_API_H

#include "api/assets.h"
#include "api/text.h"
#include "base/str.h"
#include "calibrate/calibrate.h"
#include "compile/compile.h"
#include "ir/artifact.h"
#include "trigraph.h"

struct tg_model {
    tg_artifact *artifact;
    tg_text text;         /* of the artifact */
    tg_sampling sampling; /* the defaults of generation_config.json */
    int32_t *stop_ids;
    int32_t n_stop_ids;
};

/* The options as the compiler wants them: config file first, then what the caller set. */
TG_MUST_USE tg_status tg_export_options_read(tg_export_config *out, const tg_export_options *o,
                                             tg_err *e);
/* Opens and compiles in one go; everything is closed by tg_export_job_deinit. */
typedef struct tg_export_job {
    tg_checkpoint *checkpoint;
    tg_assets assets;
    tg_loaded_checkpoint *loaded;
    tg_export_config config;
    tg_compiled compiled;
} tg_export_job;

TG_MUST_USE tg_status tg_export_job_init(tg_export_job *job, const char *source,
                                         const tg_export_options *o, const char *dump_pass,
                                         tg_buf *dump, tg_err *e);
void tg_export_job_deinit(tg_export_job *job);

/* Runs the compiled model over a fixed text and writes into its program which groups of activations
 * take two planes. Its weights are in the artifact that `w` writes. */
TG_MUST_USE tg_status tg_export_choose_outliers(tg_export_job *job, tg_artifact_writer *w,
                                                tg_err *e);

/* The text of --calibrate, and after tg_export_calibrate what it says of each weight. */
typedef struct tg_calibration {
    const char *path; /* borrowed; for messages */
    tg_buf text;
    tg_content_hash hash;
    tg_importance importance; /* borrows the job's program */
} tg_calibration;

TG_MUST_USE tg_status tg_calibration_open(tg_calibration *c, const char *path, tg_err *e);
void tg_calibration_close(tg_calibration *c);
/* Runs the text through the model with its weights as the checkpoint has them. They are packed into
 * the artifact that `w` writes, whose place is `dir`, and are gone from it on return. */
TG_MUST_USE tg_status tg_export_calibrate(tg_calibration *c, const tg_export_job *job,
                                          tg_artifact_writer *w, const char *dir,
                                          const tg_export_options *o, tg_err *e);

/* Whether the disk of `dir` holds n_bytes of weights and texts, and the little that lies beside. */
TG_MUST_USE tg_status tg_export_check_disk(int64_t n_bytes, const char *dir, tg_err *e);

/* 32 hex digits, the high half first. */
void tg_content_hash_print(char hex[33], const tg_content_hash *hash);

#endif
