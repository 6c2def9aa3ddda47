/* SPDX-License-Identifier: Apache-2.0
 * opened.h - inside of a tg_checkpoint, shared by checkpoint.c and the two readers; nothing else
 * includes it.
 *
 * checkpoint.c decides what a path is, owns files and tensors and answers questions; shards.c fills
 * it from GGUF files, folder.c from a Hugging Face folder. */
#ifndef TG_FORMAT_OPENED_H
#define TG_FORMAT_OPENED_H

#include "base/file.h"
#include "format/checkpoint.h"

typedef struct tg_opened_file {
    tg_source_file about;
    tg_file_map map;
} tg_opened_file;

struct tg_checkpoint {
    tg_arena arena; /* everything below but mappings and JSON */
    tg_checkpoint_kind kind;
    const char *path;
    bool is_texts;    /* weights and config are not read */
    tg_hf_part named; /* what a file that was named alone is; TG_HF_CONFIG: a folder was named */

    tg_opened_file **files; /* single pieces, so that pointers into them stay */
    int32_t n_files, files_room;

    tg_tensor *tensors;
    int32_t n_tensors;
    tg_name_index names;   /* of tensors, by index */
    tg_name_index aliases; /* names left out at saving -> index of the tensor they share */

    const tg_gguf *gguf; /* of the first shard */

    const char *part_paths[TG_HF_PART_COUNT];
    const tg_opened_file *parts[TG_HF_PART_COUNT]; /* NULL: absent */
    json_t *json[TG_HF_PART_COUNT];                /* owned */
    tg_named_text *templates;
    int32_t n_templates;
};

/* Maps a file and adds it to the list; `part` is copied. */
TG_MUST_USE tg_status tg_checkpoint_add_file(tg_checkpoint *c, const char *path, const char *part,
                                             const tg_opened_file **out, tg_err *e);
/* Sorts the names of c->tensors; a name that is there twice is an error. */
TG_MUST_USE tg_status tg_checkpoint_index_tensors(tg_checkpoint *c, tg_err *e);
/* "dir/name" in the checkpoint's arena; NULL when memory is refused. */
const char *tg_checkpoint_join(tg_checkpoint *c, const char *dir, const char *name);

TG_MUST_USE tg_status tg_checkpoint_load_shards(tg_checkpoint *c, const char *path, tg_err *e);
TG_MUST_USE tg_status tg_checkpoint_load_folder(tg_checkpoint *c, const char *path, tg_err *e);
/* As above, with c->is_texts, of the folder that `file` lies in, and `file` as one of its parts. */
TG_MUST_USE tg_status tg_checkpoint_load_file(tg_checkpoint *c, const char *file, tg_err *e);
/* Whether a file of this name is a part that tg_checkpoint_load_file takes. */
bool tg_checkpoint_is_part(const char *name);

#endif
