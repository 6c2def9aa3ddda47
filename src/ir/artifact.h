/* SPDX-License-Identifier: Apache-2.0
 * artifact.h - the folder between compiler and runtime.
 *
 *   artifact.json    for people and for the first look: format version, compiler version, where
 *                    the model came from, its numbers, the config, the memory plan, and for every
 *                    other file its size and XXH3-128 checksum
 *   program.bin      tg_program
 *   weights.0.bin    packed weights of rank 0 (weights.1.bin ... later)
 *   tokenizer.bin    compiled tokenizer, absent when the checkpoint has none
 *   template.jinja   default chat template, absent when the checkpoint has none
 *   templates.json   further chat templates by name, absent when the checkpoint has none
 *   defaults.json    what generation_config.json said: sampling defaults, stop ids
 *
 * Opening maps the weights and copies the rest, so that nobody who writes to a file changes what
 * was checked; it checks the version, the names and sizes of all files, and the checksums of all
 * but the weights, whose checksum only verification reads. Files are never rewritten in place: an
 * artifact is built in a temporary folder beside its place and put there in one step; what a killed
 * export left is removed by the next one. Documented in docs/artifact.md. */
#ifndef TG_IR_ARTIFACT_H
#define TG_IR_ARTIFACT_H

#include "base/file.h"
#include "base/json.h"
#include "ir/program.h"

enum { TG_ARTIFACT_VERSION = 1 };

/* Borrowed from the mappings until close. */
typedef struct tg_artifact {
    char *path;
    json_t *json;     /* artifact.json */
    json_t *defaults; /* defaults.json; an empty object when absent */
    tg_program program;
    tg_file_map program_map, weights_map, tokenizer_map, template_map, templates_map;
    tg_arena arena;
} tg_artifact;

/* True when `path` is a folder that holds an artifact.json: cheap, no checks. */
bool tg_artifact_is_at(const char *path);

TG_MUST_USE tg_status tg_artifact_open(tg_artifact **out, const char *path, tg_err *e);
void tg_artifact_close(tg_artifact *a); /* accepts NULL */
/* Reads every byte and compares the checksums, weights included. */
TG_MUST_USE tg_status tg_artifact_verify(const tg_artifact *a, tg_err *e);

/* Writing: begin, add files in any order, then commit or abandon. Nothing shows under `path` before
 * commit; an existing artifact there is refused at begin unless `is_forced`, anything that is no
 * artifact, or holds more than one, is always refused. Stale temporaries of this user's dead
 * processes beside `path` are removed at begin. */
typedef struct tg_artifact_writer tg_artifact_writer;

TG_MUST_USE tg_status tg_artifact_writer_new(tg_artifact_writer **out, const char *path,
                                             bool is_forced, tg_err *e);
/* A file written at once. */
TG_MUST_USE tg_status tg_artifact_writer_add(tg_artifact_writer *w, const char *name, tg_str bytes,
                                             tg_err *e);
/* A file written in a stream: the caller writes to *out (borrowed) and calls end. */
TG_MUST_USE tg_status tg_artifact_writer_begin(tg_artifact_writer *w, const char *name,
                                               tg_file_writer **out, tg_err *e);
TG_MUST_USE tg_status tg_artifact_writer_end(tg_artifact_writer *w, tg_err *e);
/* Removes a file that was written, which may then be written again. */
TG_MUST_USE tg_status tg_artifact_writer_drop(tg_artifact_writer *w, const char *name, tg_err *e);
/* Maps a file that was written, to be closed by the caller before commit. */
TG_MUST_USE tg_status tg_artifact_writer_map(tg_artifact_writer *w, const char *name,
                                             tg_file_map *out, tg_err *e);
/* Adds the "files" table to `json` (borrowed), writes it as artifact.json and puts the folder in
 * place. */
TG_MUST_USE tg_status tg_artifact_writer_commit(tg_artifact_writer *w, json_t *json, tg_err *e);
/* Abandons what was not committed; accepts NULL. */
void tg_artifact_writer_free(tg_artifact_writer *w);

#endif
