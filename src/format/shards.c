/* SPDX-License-Identifier: Apache-2.0
 * shards.c - GGUF checkpoints: one file, or the numbered shards of a split one.
 *
 * A split file says so in its keys, split.no (from 0), split.count and split.tensors.count, and in
 * its name, PREFIX-00001-of-00003.gguf (from 1). The two must agree; the name then leads to the
 * others. Only the first shard has the model's keys; tensors are spread over all. */
#include "format/opened.h"

#include <inttypes.h>
#include <stdio.h>

enum { SUFFIX_BYTES = 20 }; /* of "-00001-of-00003.gguf" */

typedef struct split {
    int64_t no, count, n_tensors;
} split;

/* count 1 when the file is whole. */
static tg_status read_split(const tg_gguf *g, split *out, tg_err *e)
{
    bool is_split = false;
    *out = (split){0, 1, g->n_tensors};
    TG_TRY(tg_gguf_get_i64(g, "split.count", &out->count, &is_split, e));
    if (!is_split || out->count == 1 || out->count == 0) {
        out->count = 1;
        return TG_OK;
    }
    TG_TRY(tg_gguf_get_i64(g, "split.no", &out->no, NULL, e));
    TG_TRY(tg_gguf_get_i64(g, "split.tensors.count", &out->n_tensors, NULL, e));
    if (out->count < 1 || out->count > 65535 || out->no < 0 || out->no >= out->count)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: keys split.no and split.count are %" PRId64 " and %" PRId64
                       ", which cannot be",
                       g->file, out->no, out->count);
    return TG_OK;
}

/* "-00001-of-00003.gguf" at the end of a path. */
static void print_suffix(char out[SUFFIX_BYTES + 1], int64_t no, int64_t count)
{
    (void)snprintf(out, SUFFIX_BYTES + 1, "-%05d-of-%05d.gguf", (int)(no + 1), (int)count);
}

static tg_status check_name(const char *path, const split *s, tg_err *e)
{
    char suffix[SUFFIX_BYTES + 1];
    print_suffix(suffix, s->no, s->count);
    if (tg_str_has_suffix(tg_str_from_cstr(path), (tg_str){suffix, SUFFIX_BYTES})) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "%s: is shard %" PRId64 " of %" PRId64
                   " by its keys, but its name does not end in '%s': give the shards their names "
                   "back",
                   path, s->no + 1, s->count, suffix);
}

static tg_status parse_shard(tg_checkpoint *c, const char *path, tg_gguf *g, tg_err *e)
{
    const tg_opened_file *f = NULL;
    TG_TRY(tg_checkpoint_add_file(c, path, "", &f, e));
    return tg_gguf_parse(g, &c->arena, f->map.data, f->map.n_bytes, f->about.path, e);
}

static tg_status parse_other(tg_checkpoint *c, const char *path, const split *first, int64_t no,
                             tg_gguf *g, tg_err *e)
{
    split s;
    if (!tg_path_exists(path))
        return tg_fail(e, TG_E_IO, "%s: shard %" PRId64 " of %" PRId64 " is missing", path, no + 1,
                       first->count);
    TG_TRY(parse_shard(c, path, g, e));
    TG_TRY(read_split(g, &s, e));
    if (s.no != no || s.count != first->count)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: is shard %" PRId64 " of %" PRId64 " by its keys and %" PRId64
                       " of %" PRId64 " by its name",
                       path, s.no + 1, s.count, no + 1, first->count);
    return TG_OK;
}

/* All shards in order, whichever of them `path` is. It is parsed again with the others: that costs
 * a header, and keeps the list of files in order. */
static tg_status parse_all(tg_checkpoint *c, const char *path, const split *first, tg_gguf *shards,
                           tg_err *e)
{
    tg_buf name = {0};
    tg_status s = check_name(path, first, e);
    for (int64_t no = 0; s == TG_OK && no < first->count; no++) {
        char suffix[SUFFIX_BYTES + 1];
        print_suffix(suffix, no, first->count);
        tg_buf_clear(&name);
        tg_buf_add(&name, path, strlen(path) - SUFFIX_BYTES);
        tg_buf_add_cstr(&name, suffix);
        s = tg_buf_check(&name, e);
        if (s == TG_OK) s = parse_other(c, name.ptr, first, no, &shards[no], e);
    }
    tg_buf_deinit(&name);
    return s;
}

static tg_status merge_tensors(tg_checkpoint *c, const tg_gguf *shards, const split *sp, tg_err *e)
{
    int64_t n = 0;
    for (int64_t i = 0; i < sp->count; i++)
        n += shards[i].n_tensors;
    if (n != sp->n_tensors || n > INT32_MAX)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: its shards have %" PRId64 " tensors; split.tensors.count says %" PRId64,
                       c->path, n, sp->n_tensors);
    c->tensors = TG_ARENA_ARRAY(&c->arena, tg_tensor, n);
    if (!c->tensors) return tg_fail_nomem(e, (size_t)n * sizeof *c->tensors, "a list of tensors");
    for (int64_t i = 0; i < sp->count; i++) {
        if (shards[i].n_tensors)
            memcpy(c->tensors + c->n_tensors, shards[i].tensors,
                   (size_t)shards[i].n_tensors * sizeof *c->tensors);
        c->n_tensors += shards[i].n_tensors;
    }
    return tg_checkpoint_index_tensors(c, e);
}

tg_status tg_checkpoint_load_shards(tg_checkpoint *c, const char *path, tg_err *e)
{
    split sp = {0};
    c->kind = TG_CHECKPOINT_GGUF;
    tg_gguf *shards = TG_ARENA_NEW(&c->arena, tg_gguf);
    if (!shards) return tg_fail_nomem(e, sizeof *shards, "a GGUF file");
    TG_TRY(parse_shard(c, path, shards, e));
    TG_TRY(read_split(shards, &sp, e));
    if (sp.count > 1) {
        tg_file_map_close(&c->files[0]->map);
        c->n_files = 0;
        shards = TG_ARENA_ARRAY(&c->arena, tg_gguf, sp.count);
        if (!shards) return tg_fail_nomem(e, (size_t)sp.count * sizeof *shards, "GGUF shards");
        TG_TRY(parse_all(c, path, &sp, shards, e));
    }
    c->path = shards[0].file;
    c->gguf = &shards[0];
    return merge_tensors(c, shards, &sp, e);
}
