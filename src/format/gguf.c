/* SPDX-License-Identifier: Apache-2.0
 * gguf.c - the reader of one GGUF file.
 *
 * The file, all little-endian:
 *
 *   "GGUF"  u32 version  u64 n_tensors  u64 n_kvs
 *   n_kvs     x  string key, u32 type, value          string: u64 length, bytes
 *   n_tensors x  string name, u32 n_dims, u64 dims[n_dims] (fastest first), u32 type, u64 offset
 *   zeros up to a multiple of general.alignment (32)
 *   tensor data; an offset counts from here and is a multiple of the alignment
 *
 * Deliberately accepted, since valid files have it: tensors in any order, gaps between
 * them, a last tensor that ends at the end of the file without padding, no tensors at all. */
#include "format/gguf.h"

#include "base/log.h"

#include <inttypes.h>
#include <stdlib.h>

enum {
    DEFAULT_ALIGNMENT = 32,
    MAX_ALIGNMENT = 1 << 20, /* a page of any size we know; beyond it is a wrong number */
    MAX_NAME_BYTES = 65535,
    GGUF_MAX_DIMS = 4,
    MIN_KV_BYTES = 8 + 1 + 4 + 1,         /* the least a key can take: bounds n_kvs */
    MIN_TENSOR_BYTES = 8 + 1 + 4 + 4 + 8, /* the same for a tensor entry */
};

static const struct {
    const char *name;
    int32_t n_bytes; /* 0: not of fixed size */
    bool is_integer;
} types[] = {
    [TG_GGUF_U8] = {"u8", 1, true},          [TG_GGUF_I8] = {"i8", 1, true},
    [TG_GGUF_U16] = {"u16", 2, true},        [TG_GGUF_I16] = {"i16", 2, true},
    [TG_GGUF_U32] = {"u32", 4, true},        [TG_GGUF_I32] = {"i32", 4, true},
    [TG_GGUF_F32] = {"f32", 4, false},       [TG_GGUF_BOOL] = {"bool", 1, false},
    [TG_GGUF_STRING] = {"string", 0, false}, [TG_GGUF_ARRAY] = {"array", 0, false},
    [TG_GGUF_U64] = {"u64", 8, true},        [TG_GGUF_I64] = {"i64", 8, true},
    [TG_GGUF_F64] = {"f64", 8, false},
};
_Static_assert(TG_COUNT(types) == TG_GGUF_TYPE_COUNT, "a type has no row");

const char *tg_gguf_type_name(tg_gguf_type t)
{
    return (size_t)t < TG_GGUF_TYPE_COUNT ? types[t].name : "unknown";
}

/* ---- a cursor that cannot leave the file: pos <= n always */

typedef struct cursor {
    const uint8_t *data;
    size_t n, pos;
    bool is_cut; /* something would end behind the file: no key is to blame */
} cursor;

static size_t get_left(const cursor *c)
{
    return c->n - c->pos;
}

static tg_status fail_cut(cursor *c, const char *what, uint64_t n, tg_err *e)
{
    c->is_cut = true;
    return tg_fail(e, TG_E_CORRUPT,
                   "%s at byte %zu needs %" PRIu64 " bytes and the file ends at byte %zu: it is "
                   "truncated or damaged; fetch it again",
                   what, c->pos, n, c->n);
}

static tg_status take(cursor *c, size_t n, const uint8_t **out, const char *what, tg_err *e)
{
    if (n > get_left(c)) return fail_cut(c, what, n, e);
    *out = c->data + c->pos;
    c->pos += n;
    return TG_OK;
}

static uint32_t get_u32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t get_u64(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static tg_status take_u32(cursor *c, uint32_t *out, const char *what, tg_err *e)
{
    const uint8_t *p = c->data + c->pos;
    TG_TRY(take(c, sizeof *out, &p, what, e));
    *out = get_u32(p);
    return TG_OK;
}

static tg_status take_u64(cursor *c, uint64_t *out, const char *what, tg_err *e)
{
    const uint8_t *p = c->data + c->pos;
    TG_TRY(take(c, sizeof *out, &p, what, e));
    *out = get_u64(p);
    return TG_OK;
}

static tg_status take_str(cursor *c, tg_str *out, const char *what, tg_err *e)
{
    uint64_t n = 0;
    const uint8_t *p = NULL;
    TG_TRY(take_u64(c, &n, what, e));
    TG_TRY(take(c, (size_t)n, &p, what, e));
    *out = (tg_str){(const char *)p, (size_t)n};
    return TG_OK;
}

/* A string that will be printed in messages and looked up: checked to be fit for both. */
static tg_status take_name(cursor *c, tg_str *out, const char *what, tg_err *e)
{
    size_t start = c->pos;
    TG_TRY(take_str(c, out, what, e));
    if (out->len > MAX_NAME_BYTES)
        return tg_fail(e, TG_E_CORRUPT, "%s at byte %zu is %zu bytes long; the format allows %d",
                       what, start, out->len, MAX_NAME_BYTES);
    if (!tg_name_is_printable(*out))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s at byte %zu is empty or holds control characters or bytes that are "
                       "not UTF-8",
                       what, start);
    return TG_OK;
}

/* ---- keys */

/* Walks n strings, so that later walks need no checks. The count is bounded by the bytes left: each
 * string has at least its length. */
static tg_status skip_strings(cursor *c, uint64_t n, tg_err *e)
{
    tg_str s;
    c->is_cut = n > get_left(c) / sizeof(uint64_t);
    if (c->is_cut)
        return tg_fail(e, TG_E_CORRUPT,
                       "an array of %" PRIu64 " strings cannot fit in the %zu bytes that are left: "
                       "the file is truncated or damaged; fetch it again",
                       n, get_left(c));
    for (uint64_t i = 0; i < n; i++)
        TG_TRY(take_str(c, &s, "a string of an array", e));
    return TG_OK;
}

static tg_status skip_values(cursor *c, tg_gguf_type type, uint64_t n, tg_err *e)
{
    size_t size = (size_t)types[type].n_bytes;
    const uint8_t *p = NULL;
    if (type == TG_GGUF_STRING) return skip_strings(c, n, e);
    c->is_cut = n > get_left(c) / size;
    if (c->is_cut)
        return tg_fail(e, TG_E_CORRUPT,
                       "%" PRIu64 " values of type %s cannot fit in the %zu bytes that are left: "
                       "the file is truncated or damaged; fetch it again",
                       n, types[type].name, get_left(c));
    TG_TRY(take(c, (size_t)n * size, &p, "a value", e));
    for (size_t i = 0; type == TG_GGUF_BOOL && i < n; i++)
        if (p[i] > 1) return tg_fail(e, TG_E_CORRUPT, "a bool has the value %d", p[i]);
    return TG_OK;
}

static tg_status take_type(cursor *c, uint32_t *out, tg_err *e)
{
    TG_TRY(take_u32(c, out, "a value type", e));
    if (*out < TG_GGUF_TYPE_COUNT) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT, "its value type %" PRIu32 " is none of GGUF's (0 to %d)", *out,
                   TG_GGUF_TYPE_COUNT - 1);
}

static tg_status take_value(cursor *c, tg_gguf_kv *kv, tg_err *e)
{
    uint32_t type = 0;
    uint64_t n = 1;
    TG_TRY(take_type(c, &type, e));
    if (type == TG_GGUF_ARRAY) {
        kv->is_array = true;
        TG_TRY(take_type(c, &type, e));
        if (type == TG_GGUF_ARRAY)
            return tg_fail(e, TG_E_UNSUPPORTED, "it is an array of arrays, which no known key is");
        TG_TRY(take_u64(c, &n, "an array length", e));
    }
    kv->type = (tg_gguf_type)type;
    kv->data = c->data + c->pos;
    size_t start = c->pos;
    TG_TRY(skip_values(c, kv->type, n, e));
    kv->n = (int64_t)n; /* bounded by the file's bytes above */
    kv->n_bytes = c->pos - start;
    return TG_OK;
}

static tg_status take_kvs(tg_gguf *g, tg_arena *a, cursor *c, tg_err *e)
{
    tg_str duplicate = {0};
    g->kvs = TG_ARENA_ARRAY(a, tg_gguf_kv, g->n_kvs);
    tg_name_entry *names = TG_ARENA_ARRAY(a, tg_name_entry, g->n_kvs);
    if (!g->kvs || !names)
        return tg_fail_nomem(e, (size_t)g->n_kvs * sizeof *g->kvs, "the list of GGUF keys");
    for (int32_t i = 0; i < g->n_kvs; i++) {
        tg_gguf_kv *kv = &g->kvs[i];
        TG_TRY(take_name(c, &kv->key, "a key", e));
        tg_status s = take_value(c, kv, e);
        if (s != TG_OK) {
            if (!c->is_cut)
                tg_err_context(e, "key '%.*s'", (int)TG_MIN(kv->key.len, 200u), kv->key.ptr);
            return s;
        }
        names[i] = (tg_name_entry){kv->key, i};
    }
    if (!tg_names_init(&g->kv_names, names, g->n_kvs, &duplicate))
        return tg_fail(e, TG_E_CORRUPT, "key '%.*s' is there twice",
                       (int)TG_MIN(duplicate.len, 200u), duplicate.ptr);
    return TG_OK;
}

static tg_status find_alignment(tg_gguf *g, tg_err *e)
{
    const tg_gguf_kv *kv = tg_gguf_find(g, "general.alignment");
    g->alignment = DEFAULT_ALIGNMENT;
    if (!kv) return TG_OK;
    if (kv->is_array || kv->type != TG_GGUF_U32)
        return tg_fail(e, TG_E_CORRUPT, "key 'general.alignment' is %s%s where u32 is needed",
                       kv->is_array ? "an array of " : "", types[kv->type].name);
    uint32_t n = get_u32(kv->data);
    if (n == 0 || (n & (n - 1)) != 0 || n > MAX_ALIGNMENT)
        return tg_fail(e, TG_E_CORRUPT,
                       "key 'general.alignment' is %" PRIu32 ", not a power of two up to %d", n,
                       MAX_ALIGNMENT);
    g->alignment = n;
    return TG_OK;
}

/* ---- tensors */

/* A tensor's place while the list is checked. */
typedef struct place {
    size_t begin, end; /* from the start of the tensor region */
    int32_t id;
} place;

static int compare_places(const void *a, const void *b)
{
    const place *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static tg_status find_dtype(tg_tensor *t, uint32_t id, tg_err *e)
{
    bool is_removed = false;
    if (tg_dtype_find_gguf(&t->dtype, id)) return TG_OK;
    const char *name = tg_dtype_find_foreign_gguf(id, &is_removed);
    if (!name)
        return tg_fail(e, TG_E_CORRUPT,
                       "tensor '%.*s' has type %" PRIu32 ", a number that GGUF never gave out",
                       (int)t->name.len, t->name.ptr, id);
    return tg_fail(e, TG_E_UNSUPPORTED,
                   is_removed ? "tensor '%.*s' has type %" PRIu32
                                " (%s), which was removed from GGUF: convert the model again"
                              : "tensor '%.*s' has type %" PRIu32
                                " (%s), which this program does not read: take another "
                                "quantization of the model, such as Q4_K_M or Q8_0",
                   (int)t->name.len, t->name.ptr, id, name);
}

static tg_status take_dims(cursor *c, tg_tensor *t, tg_err *e)
{
    uint32_t n = 0;
    TG_TRY(take_u32(c, &n, "a number of dimensions", e));
    if (n > GGUF_MAX_DIMS)
        return tg_fail(e, TG_E_CORRUPT, "tensor '%.*s' has %" PRIu32 " dimensions; GGUF allows %d",
                       (int)t->name.len, t->name.ptr, n, GGUF_MAX_DIMS);
    t->n_dims = (int32_t)n;
    for (int32_t i = t->n_dims - 1; i >= 0; i--) { /* the file has the fastest first */
        uint64_t d = 0;
        TG_TRY(take_u64(c, &d, "a dimension", e));
        if (d > INT64_MAX)
            return tg_fail(e, TG_E_CORRUPT,
                           "tensor '%.*s' has a dimension of %" PRIu64
                           ", more than 63 bits can count",
                           (int)t->name.len, t->name.ptr, d);
        t->dims[i] = (int64_t)d;
    }
    return TG_OK;
}

static tg_status take_tensor(tg_gguf *g, cursor *c, tg_tensor *t, place *p, tg_err *e)
{
    uint32_t type = 0;
    uint64_t offset = 0;
    size_t start = c->pos;
    TG_TRY(take_name(c, &t->name, "a tensor name", e));
    if (t->name.len > 400) /* so that messages can hold it; ggml itself stops at 63 bytes */
        return tg_fail(e, TG_E_CORRUPT, "the tensor name at byte %zu is %zu bytes long", start,
                       t->name.len);
    TG_TRY(take_dims(c, t, e));
    TG_TRY(take_u32(c, &type, "a tensor type", e));
    TG_TRY(take_u64(c, &offset, "a tensor offset", e));
    TG_TRY(find_dtype(t, type, e));
    TG_TRY(tg_tensor_plan_bytes(t, e));
    if (offset % g->alignment != 0)
        return tg_fail(e, TG_E_CORRUPT,
                       "tensor '%.*s' has offset %" PRIu64
                       ", which is no multiple of the alignment %zu",
                       (int)t->name.len, t->name.ptr, offset, g->alignment);
    t->file = g->file;
    p->begin = (size_t)offset;
    return TG_OK;
}

/* Points every tensor into the file, and refuses one that leaves it or shares bytes with another.
 * */
static tg_status place_tensors(tg_gguf *g, const cursor *c, place *places, size_t *end, tg_err *e)
{
    size_t room = g->data_offset < c->n ? c->n - g->data_offset : 0;
    for (int32_t i = 0; i < g->n_tensors; i++) {
        tg_tensor *t = &g->tensors[i];
        place *p = &places[i];
        if (t->n_bytes == 0) p->begin = TG_MIN(p->begin, room); /* no bytes: any place will do */
        if (p->begin > room || t->n_bytes > room - p->begin)
            return tg_fail(e, TG_E_CORRUPT,
                           "tensor '%.*s' needs %zu bytes at offset %zu and the tensor region has "
                           "%zu: the file is truncated; fetch it again",
                           (int)t->name.len, t->name.ptr, t->n_bytes, p->begin, room);
        p->end = p->begin + t->n_bytes;
        p->id = i;
        t->data = room ? c->data + g->data_offset + p->begin : c->data;
    }
    if (g->n_tensors) qsort(places, (size_t)g->n_tensors, sizeof *places, compare_places);
    *end = 0;
    int32_t last = -1; /* the one that ends at *end */
    for (int32_t i = 0; i < g->n_tensors; i++) {
        const tg_tensor *t = &g->tensors[places[i].id];
        if (t->n_bytes == 0) continue;
        if (places[i].begin < *end) {
            const tg_tensor *u = &g->tensors[last];
            return tg_fail(e, TG_E_CORRUPT,
                           "tensor '%.*s' begins at offset %zu, inside tensor '%.*s', which ends "
                           "at %zu",
                           (int)t->name.len, t->name.ptr, places[i].begin, (int)u->name.len,
                           u->name.ptr, *end);
        }
        *end = places[i].end;
        last = places[i].id;
    }
    return TG_OK;
}

/* Shards glued with cat look like a good file with something behind it; reading on would lose
 * every tensor of the others. Other trailing bytes are harmless and get a warning. */
static tg_status check_tail(const tg_gguf *g, const cursor *c, size_t end, tg_err *e)
{
    size_t at[] = {g->data_offset + end, tg_align_up(g->data_offset + end, g->alignment)};
    for (size_t i = 0; i < TG_COUNT(at); i++)
        if (at[i] < c->n && c->n - at[i] >= 4 && memcmp(c->data + at[i], "GGUF", 4) == 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "a second GGUF file begins at byte %zu: these are shards glued "
                           "together; open them as separate files, or merge them with "
                           "llama-gguf-split --merge",
                           at[i]);
    if (at[1] < c->n)
        tg_log_warn("%s: %zu bytes behind the last tensor are not used", g->file, c->n - at[1]);
    return TG_OK;
}

static tg_status take_tensors(tg_gguf *g, tg_arena *a, cursor *c, tg_err *e)
{
    tg_name_index names;
    tg_str duplicate = {0};
    size_t end = 0;
    g->tensors = TG_ARENA_ARRAY(a, tg_tensor, g->n_tensors);
    place *places = TG_ARENA_ARRAY(a, place, g->n_tensors);
    tg_name_entry *list = TG_ARENA_ARRAY(a, tg_name_entry, g->n_tensors);
    if (!g->tensors || !places || !list)
        return tg_fail_nomem(e, (size_t)g->n_tensors * sizeof *g->tensors, "the list of tensors");
    for (int32_t i = 0; i < g->n_tensors; i++) {
        TG_TRY(take_tensor(g, c, &g->tensors[i], &places[i], e));
        list[i] = (tg_name_entry){g->tensors[i].name, i};
    }
    if (!tg_names_init(&names, list, g->n_tensors, &duplicate))
        return tg_fail(e, TG_E_CORRUPT, "tensor '%.*s' is there twice", (int)duplicate.len,
                       duplicate.ptr);
    g->data_offset = tg_align_up(c->pos, g->alignment);
    TG_TRY(place_tensors(g, c, places, &end, e));
    return check_tail(g, c, end, e);
}

/* ---- the header */

/* Files that are given instead of a GGUF file, by their first bytes. */
static const struct {
    const char *magic, *words;
} strangers[] = {
    {"FUGG", "is a GGUF file of a big-endian machine; convert it for little-endian ones"},
    {"tjgg", "is of the old ggml format 'ggjt'; convert the model again to GGUF"},
    {"lmgg", "is of the old ggml format; convert the model again to GGUF"},
    {"fmgg", "is of the old ggml format 'ggmf'; convert the model again to GGUF"},
    {"algg", "is a LoRA adapter of the old ggml format, not a model"},
    {"PK\3\4", "is a zip file (a PyTorch checkpoint?); Trigraph reads GGUF and safetensors"},
    {"vers", "looks like a Git LFS pointer instead of the file itself; run 'git lfs pull'"},
};

static tg_status check_magic(const cursor *c, tg_err *e)
{
    if (c->n == 0) return tg_fail(e, TG_E_CORRUPT, "is empty");
    if (c->n >= 4 && memcmp(c->data, "GGUF", 4) == 0) return TG_OK;
    for (size_t i = 0; i < TG_COUNT(strangers); i++)
        if (c->n >= 4 && memcmp(c->data, strangers[i].magic, 4) == 0)
            return tg_fail(e, TG_E_CORRUPT, "%s", strangers[i].words);
    return tg_fail(e, TG_E_CORRUPT, "is no GGUF file: it does not begin with 'GGUF'");
}

static tg_status take_header(tg_gguf *g, cursor *c, tg_err *e)
{
    uint32_t version = 0;
    uint64_t n_tensors = 0, n_kvs = 0;
    TG_TRY(check_magic(c, e));
    c->pos = 4;
    TG_TRY(take_u32(c, &version, "the version", e));
    if (version != 0 && (version & 0xffffu) == 0)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "is a GGUF file of a big-endian machine; convert it for little-endian ones");
    if (version == 1)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "is GGUF version 1, which is not read; convert the model again");
    if (version != 2 && version != 3)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "is GGUF version %" PRIu32 "; this program reads versions 2 and 3", version);
    g->version = (int32_t)version;
    TG_TRY(take_u64(c, &n_tensors, "the number of tensors", e));
    TG_TRY(take_u64(c, &n_kvs, "the number of keys", e));
    if (n_tensors > get_left(c) / MIN_TENSOR_BYTES || n_tensors > INT32_MAX)
        return tg_fail(e, TG_E_CORRUPT,
                       "claims %" PRIu64 " tensors, more than its %zu bytes can describe: it is "
                       "truncated or damaged",
                       n_tensors, c->n);
    if (n_kvs > get_left(c) / MIN_KV_BYTES || n_kvs > INT32_MAX)
        return tg_fail(e, TG_E_CORRUPT,
                       "claims %" PRIu64 " keys, more than its %zu bytes can hold: it is "
                       "truncated or damaged",
                       n_kvs, c->n);
    g->n_tensors = (int32_t)n_tensors;
    g->n_kvs = (int32_t)n_kvs;
    return TG_OK;
}

static tg_status parse(tg_gguf *g, tg_arena *a, cursor *c, tg_err *e)
{
    TG_TRY(take_header(g, c, e));
    TG_TRY(take_kvs(g, a, c, e));
    TG_TRY(find_alignment(g, e));
    return take_tensors(g, a, c, e);
}

tg_status tg_gguf_parse(tg_gguf *out, tg_arena *a, const uint8_t *data, size_t n_bytes,
                        const char *file, tg_err *e)
{
    cursor c = {.data = data, .n = n_bytes};
    *out = (tg_gguf){.file = file};
    tg_status s = parse(out, a, &c, e);
    if (s != TG_OK) tg_err_context(e, "%s", file);
    return s;
}

/* ---- values */

const tg_gguf_kv *tg_gguf_find(const tg_gguf *g, const char *key)
{
    int32_t i = tg_names_find(&g->kv_names, tg_str_from_cstr(key));
    return i < 0 ? NULL : &g->kvs[i];
}

bool tg_gguf_read_i64(const tg_gguf_kv *kv, int64_t i, int64_t *out)
{
    if (i < 0 || i >= kv->n || !types[kv->type].is_integer) return false;
    size_t size = (size_t)types[kv->type].n_bytes;
    const uint8_t *p = kv->data + (size_t)i * size;
    uint64_t u = 0;
    memcpy(&u, p, size); /* little-endian hosts */
    bool is_signed = kv->type == TG_GGUF_I8 || kv->type == TG_GGUF_I16 || kv->type == TG_GGUF_I32;
    if (is_signed && p[size - 1] & 0x80) u |= ~(uint64_t)0 << (8 * size);
    if (kv->type == TG_GGUF_U64 && u > INT64_MAX) return false;
    memcpy(out, &u, sizeof u);
    return true;
}

bool tg_gguf_read_f64(const tg_gguf_kv *kv, int64_t i, double *out)
{
    if (i < 0 || i >= kv->n) return false;
    if (kv->type == TG_GGUF_F32) {
        float f;
        memcpy(&f, kv->data + (size_t)i * sizeof f, sizeof f);
        *out = f;
        return true;
    }
    if (kv->type == TG_GGUF_F64) {
        memcpy(out, kv->data + (size_t)i * sizeof *out, sizeof *out);
        return true;
    }
    int64_t v;
    if (!tg_gguf_read_i64(kv, i, &v)) return false;
    *out = (double)v;
    return true;
}

bool tg_gguf_read_bool(const tg_gguf_kv *kv, int64_t i, bool *out)
{
    if (i < 0 || i >= kv->n || kv->type != TG_GGUF_BOOL) return false;
    *out = kv->data[i] != 0;
    return true;
}

bool tg_gguf_read_str(const tg_gguf_kv *kv, tg_str *out)
{
    if (kv->is_array || kv->type != TG_GGUF_STRING) return false;
    *out = (tg_str){(const char *)kv->data + sizeof(uint64_t), kv->n_bytes - sizeof(uint64_t)};
    return true;
}

/* The key, or NULL: absent and allowed to be (TG_OK), or absent and needed (an error). */
static tg_status find_key(const tg_gguf *g, const char *key, const tg_gguf_kv **kv,
                          bool *is_present, tg_err *e)
{
    *kv = tg_gguf_find(g, key);
    if (is_present) *is_present = *kv != NULL;
    if (*kv || is_present) return TG_OK;
    tg_buf hint = {0};
    tg_names_print_hint(&hint, &g->kv_names, tg_str_from_cstr(key));
    tg_status s =
        tg_fail(e, TG_E_CORRUPT, "%s: key '%s' is missing%s", g->file, key, tg_buf_cstr(&hint));
    tg_buf_deinit(&hint);
    return s;
}

static tg_status fail_type(const tg_gguf *g, const tg_gguf_kv *kv, const char *key,
                           const char *needed, tg_err *e)
{
    return tg_fail(e, TG_E_CORRUPT, "%s: key '%s' is %s%s where %s is needed", g->file, key,
                   kv->is_array ? "an array of " : "", types[kv->type].name, needed);
}

tg_status tg_gguf_get_i64(const tg_gguf *g, const char *key, int64_t *out, bool *is_present,
                          tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv || (!kv->is_array && tg_gguf_read_i64(kv, 0, out))) return TG_OK;
    return fail_type(g, kv, key, "an integer of at most 63 bits", e);
}

tg_status tg_gguf_get_f64(const tg_gguf *g, const char *key, double *out, bool *is_present,
                          tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv || (!kv->is_array && tg_gguf_read_f64(kv, 0, out))) return TG_OK;
    return fail_type(g, kv, key, "a number", e);
}

tg_status tg_gguf_get_bool(const tg_gguf *g, const char *key, bool *out, bool *is_present,
                           tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv || (!kv->is_array && tg_gguf_read_bool(kv, 0, out))) return TG_OK;
    return fail_type(g, kv, key, "a bool", e);
}

tg_status tg_gguf_get_str(const tg_gguf *g, const char *key, tg_str *out, bool *is_present,
                          tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv || tg_gguf_read_str(kv, out)) return TG_OK;
    return fail_type(g, kv, key, "a string", e);
}

tg_status tg_gguf_get_strs(const tg_gguf *g, const char *key, tg_arena *a, tg_str **out, int64_t *n,
                           bool *is_present, tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    *out = NULL;
    *n = 0;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv) return TG_OK;
    if (!kv->is_array || kv->type != TG_GGUF_STRING)
        return fail_type(g, kv, key, "an array of strings", e);
    tg_str *list = TG_ARENA_ARRAY(a, tg_str, kv->n);
    if (!list) return tg_fail_nomem(e, (size_t)kv->n * sizeof *list, "a list of strings");
    /* skip_strings walked here once, but the file is mapped: somebody may have written to it. Each
     * length is read once, checked, and kept. */
    cursor c = {.data = kv->data, .n = kv->n_bytes};
    for (int64_t i = 0; i < kv->n; i++)
        if (take_str(&c, &list[i], "a string", NULL) != TG_OK)
            return tg_fail(e, TG_E_CORRUPT, "%s: key '%s' was changed while it was being read",
                           g->file, key);
    *out = list;
    *n = kv->n;
    return TG_OK;
}

tg_status tg_gguf_get_f32s(const tg_gguf *g, const char *key, tg_arena *a, float **out, int64_t *n,
                           bool *is_present, tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    *out = NULL;
    *n = 0;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv) return TG_OK;
    double v;
    if (!kv->is_array || (kv->n > 0 && !tg_gguf_read_f64(kv, 0, &v)))
        return fail_type(g, kv, key, "an array of numbers", e);
    float *list = TG_ARENA_ARRAY(a, float, kv->n);
    if (!list) return tg_fail_nomem(e, (size_t)kv->n * sizeof *list, "a list of numbers");
    for (int64_t i = 0; i < kv->n; i++) {
        if (!tg_gguf_read_f64(kv, i, &v)) return fail_type(g, kv, key, "an array of numbers", e);
        list[i] = (float)v;
    }
    *out = list;
    *n = kv->n;
    return TG_OK;
}

tg_status tg_gguf_get_i32s(const tg_gguf *g, const char *key, tg_arena *a, int32_t **out,
                           int64_t *n, bool *is_present, tg_err *e)
{
    const tg_gguf_kv *kv = NULL;
    *out = NULL;
    *n = 0;
    TG_TRY(find_key(g, key, &kv, is_present, e));
    if (!kv) return TG_OK;
    if (!kv->is_array) return fail_type(g, kv, key, "an array of integers", e);
    int32_t *list = TG_ARENA_ARRAY(a, int32_t, kv->n);
    if (!list) return tg_fail_nomem(e, (size_t)kv->n * sizeof *list, "a list of integers");
    for (int64_t i = 0; i < kv->n; i++) {
        int64_t v;
        if (!tg_gguf_read_i64(kv, i, &v) || v < INT32_MIN || v > INT32_MAX)
            return fail_type(g, kv, key, "an array of integers of 32 bits", e);
        list[i] = (int32_t)v;
    }
    *out = list;
    *n = kv->n;
    return TG_OK;
}

tg_status tg_gguf_get_token_id(const tg_gguf *g, const char *key, int64_t n_tokens, int32_t *out,
                               tg_err *e)
{
    int64_t id = 0;
    bool is_present = false;
    *out = -1;
    TG_TRY(tg_gguf_get_i64(g, key, &id, &is_present, e));
    if (!is_present) return TG_OK;
    if (id < 0 || id >= n_tokens || id > INT32_MAX)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: key '%s' is token %" PRId64 " and the vocabulary has %" PRId64, g->file,
                       key, id, n_tokens);
    *out = (int32_t)id;
    return TG_OK;
}
