/* SPDX-License-Identifier: Apache-2.0
 * parity.h - what the comparisons with independent truth share: finding and exporting models,
 * running tokens through every graph, hashing rows of logits, and files of numbers. */
#ifndef TG_TESTS_PARITY_H
#define TG_TESTS_PARITY_H

#include "base/json.h"
#include "check.h"
#include "device/cpu_device.h"
#include "ir/artifact.h"
#include "run/exec.h"
#include "trigraph.h"

/* The path of a real model (tools/models/fetch-models), or NULL after a word why: in CI that is a
 * failure. */
const char *parity_find_model(const char *name);
/* A folder for this process' artifacts; removed at exit. */
const char *parity_dir(void);
/* Exports (once for each name) and returns the artifact's path. */
const char *parity_export(const char *source, const char *name, const tg_export_options *o);

/* An artifact with an executor. */
typedef struct parity_run {
    tg_artifact *artifact;
    tg_exec *exec;
} parity_run;

void parity_open(parity_run *r, const char *artifact, int32_t n_threads, const char *tier);
void parity_close(parity_run *r);

/* Decimal numbers of a file, at most `most`; the count is returned. */
int32_t parity_load_ids(const char *path, int32_t *ids, int32_t most);
/* Integers or numbers of a JSON array. */
int32_t parity_get_ids(const json_t *list, int32_t *ids, int32_t most);
double parity_get_number(const json_t *list, int32_t i);
json_t *parity_load_json(const char *path);
/* float32 [rows][cols] of a .npy file; mapped until exit. */
const float *parity_load_npy(const char *path, int64_t *rows, int64_t *cols);

#endif
