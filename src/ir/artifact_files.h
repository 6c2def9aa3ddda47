/* SPDX-License-Identifier: Apache-2.0
 * artifact_files.h - the files of an artifact and their checksums, for reading and writing it. */
#ifndef TG_IR_ARTIFACT_FILES_H
#define TG_IR_ARTIFACT_FILES_H

#include "ir/artifact.h"

#define XXH_STATIC_LINKING_ONLY /* the size of XXH3_state_t, to have it from our heap */
#include <xxhash.h>

/* The files beside artifact.json. Weights are hashed only by verification. */
enum {
    TG_ARTIFACT_PROGRAM,
    TG_ARTIFACT_WEIGHTS,
    TG_ARTIFACT_TOKENIZER,
    TG_ARTIFACT_TEMPLATE,
    TG_ARTIFACT_TEMPLATES,
    TG_ARTIFACT_DEFAULTS,
    TG_ARTIFACT_N_FILES
};

typedef struct tg_artifact_file {
    const char *name;
    bool is_required, is_lazy;
} tg_artifact_file;

extern const tg_artifact_file tg_artifact_files[TG_ARTIFACT_N_FILES];

int tg_artifact_find_file(const char *name); /* -1: none */

enum { TG_HASH_HEX_BYTES = 33 };
/* XXH3 with 128 bits as 32 hex digits, high half first. */
void tg_artifact_print_hash(XXH128_hash_t h, char out[TG_HASH_HEX_BYTES]);
/* artifact.json without its "checksum", printed as it is written: what that checksum is of. */
TG_MUST_USE tg_status tg_artifact_hash_json(const json_t *json, char out[TG_HASH_HEX_BYTES],
                                            tg_err *e);
/* Takes the checksum out of the object, whose it is. */
TG_MUST_USE tg_status tg_artifact_check_checksum(json_t *json, tg_err *e);

/* artifact.json of an open folder; *out is the caller's. */
TG_MUST_USE tg_status tg_artifact_load_json(json_t **out, int dir_fd, tg_err *e);
/* The artifact in an open folder; `path` is for messages. */
TG_MUST_USE tg_status tg_artifact_open_at(tg_artifact **out, int dir_fd, const char *path,
                                          tg_err *e);
/* Does `path`, in the folder dir_fd, lead to what was opened as fd? */
bool tg_is_same_file(int fd, int dir_fd, const char *path);

#endif
