/* SPDX-License-Identifier: Apache-2.0
 * safetensors.c - the reader of one safetensors file.
 *
 *   u64 header length   JSON header, may end in spaces   tensor data
 *
 *   {"__metadata__": {string: string}, NAME: {"dtype", "shape", "data_offsets": [begin, end]}, ...}
 *
 * Offsets count from the end of the header. Data has no alignment. */
#include "format/safetensors.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdlib.h>

/* The reference reader's own limit. */
#define MAX_HEADER_BYTES ((uint64_t)100000000)

/* A parsed JSON value costs some 100 bytes, so a header of nothing but brackets would need a
 * hundred times its size. A tensor entry has 3 brackets in at least 50 bytes and 5 commas, and one
 * more comma in two bytes for each further dimension; beyond twice that density it is no tensor
 * list. */
static tg_status check_density(const char *p, size_t n, tg_err *e)
{
    size_t n_brackets = 0, n_commas = 0;
    bool is_quoted = false;
    for (size_t i = 0; i < n; i++) {
        if (is_quoted && p[i] == '\\')
            i++;
        else if (p[i] == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted && (p[i] == '{' || p[i] == '['))
            n_brackets++;
        else if (!is_quoted && p[i] == ',')
            n_commas++;
    }
    if (n_brackets <= n / 12 + 16 && n_commas <= n / 3 + 16) return TG_OK;
    return tg_fail(e, TG_E_CORRUPT,
                   "its header has %zu brackets and %zu commas in %zu bytes, which no list of "
                   "tensors has",
                   n_brackets, n_commas, n);
}

static tg_status parse_header(json_t **out, size_t *n_header, const uint8_t *data, size_t n_bytes,
                              tg_err *e)
{
    uint64_t n;
    if (n_bytes == 0) return tg_fail(e, TG_E_CORRUPT, "is empty");
    if (n_bytes < sizeof n)
        return tg_fail(e, TG_E_CORRUPT, "has %zu bytes; the header length alone takes %zu", n_bytes,
                       sizeof n);
    if (memcmp(data, "version ", 8) == 0)
        return tg_fail(e, TG_E_CORRUPT,
                       "looks like a Git LFS pointer instead of the file itself; run 'git lfs "
                       "pull'");
    memcpy(&n, data, sizeof n);
    if (n > MAX_HEADER_BYTES)
        return tg_fail(e, TG_E_CORRUPT,
                       "claims a header of %" PRIu64 " bytes; the format allows %" PRIu64, n,
                       MAX_HEADER_BYTES);
    if (n > n_bytes - sizeof n)
        return tg_fail(e, TG_E_CORRUPT,
                       "claims a header of %" PRIu64 " bytes and has %zu: it is truncated or no "
                       "safetensors file",
                       n, n_bytes - sizeof n);
    tg_str text = {(const char *)data + sizeof n, (size_t)n};
    if (text.len == 0 || text.ptr[0] != '{')
        return tg_fail(e, TG_E_CORRUPT, "has a header that does not begin with '{'");
    TG_TRY(check_density(text.ptr, text.len, e));
    *n_header = sizeof n + text.len;
    return tg_json_parse(out, text, "header", e);
}

static tg_status take_notes(tg_safetensors *x, tg_arena *a, json_t *notes, tg_err *e)
{
    const char *key;
    json_t *value;
    if (!json_is_object(notes))
        return tg_fail(e, TG_E_CORRUPT, "its __metadata__ is no JSON object");
    x->notes = TG_ARENA_ARRAY(a, tg_note, json_object_size(notes));
    if (!x->notes) return tg_fail_nomem(e, json_object_size(notes), "safetensors metadata");
    json_object_foreach(notes, key, value)
    {
        if (!json_is_string(value))
            return tg_fail(e, TG_E_CORRUPT, "__metadata__ key '%s' is no string",
                           tg_name_show(tg_str_from_cstr(key)).text);
        tg_note *note = &x->notes[x->n_notes++];
        size_t n_key = strlen(key), n_value = json_string_length(value);
        note->key = (tg_str){tg_arena_copy_str(a, key, n_key), n_key};
        note->value = (tg_str){tg_arena_copy_str(a, json_string_value(value), n_value), n_value};
        if (!note->key.ptr || !note->value.ptr)
            return tg_fail_nomem(e, n_key + n_value, "safetensors metadata");
    }
    return TG_OK;
}

static tg_status take_dtype(tg_tensor *t, const json_t *entry, tg_err *e)
{
    const json_t *v = json_object_get(entry, "dtype");
    if (!json_is_string(v))
        return tg_fail(e, TG_E_CORRUPT, "tensor '%s' has no \"dtype\" string", t->name.ptr);
    const char *name = json_string_value(v);
    if (tg_dtype_find_safetensors(&t->dtype, tg_str_from_cstr(name))) return TG_OK;
    const char *known[TG_DTYPE_COUNT];
    size_t n = 0;
    for (int i = 0; i < TG_DTYPE_COUNT; i++)
        if (tg_dtype_get_row((tg_dtype)i)->safetensors)
            known[n++] = tg_dtype_get_row((tg_dtype)i)->safetensors;
    const char *near = tg_find_nearest_name(name, known, n);
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "tensor '%s' has dtype '%s', which this program does not read; the nearest "
                   "it reads is %s",
                   t->name.ptr, tg_name_show(tg_str_from_cstr(name)).text, near ? near : "F32");
}

static tg_status take_shape(tg_tensor *t, const json_t *entry, tg_err *e)
{
    const json_t *v = json_object_get(entry, "shape");
    if (!json_is_array(v))
        return tg_fail(e, TG_E_CORRUPT, "tensor '%s' has no \"shape\" list", t->name.ptr);
    size_t n = json_array_size(v);
    if (n > TG_MAX_DIMS)
        return tg_fail(e, TG_E_UNSUPPORTED, "tensor '%s' has %zu dimensions; %d are supported",
                       t->name.ptr, n, TG_MAX_DIMS);
    t->n_dims = (int32_t)n;
    for (size_t i = 0; i < n; i++) {
        const json_t *d = json_array_get(v, i);
        if (!json_is_integer(d) || json_integer_value(d) < 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "tensor '%s' has a dimension %zu that is no integer from 0 on",
                           t->name.ptr, i);
        t->dims[i] = json_integer_value(d);
    }
    return TG_OK;
}

static tg_status take_offsets(const tg_tensor *t, const json_t *entry, size_t room, size_t *begin,
                              tg_err *e)
{
    const json_t *v = json_object_get(entry, "data_offsets");
    const json_t *b = json_array_get(v, 0), *z = json_array_get(v, 1);
    if (json_array_size(v) != 2 || !json_is_integer(b) || !json_is_integer(z))
        return tg_fail(e, TG_E_CORRUPT, "tensor '%s' has no \"data_offsets\" of two integers",
                       t->name.ptr);
    int64_t from = json_integer_value(b), to = json_integer_value(z);
    if (from < 0 || to < from)
        return tg_fail(e, TG_E_CORRUPT,
                       "tensor '%s' lies from offset %" PRId64 " to %" PRId64 ", which is no range",
                       t->name.ptr, from, to);
    if ((uint64_t)to > room)
        return tg_fail(e, TG_E_CORRUPT,
                       "tensor '%s' ends at offset %" PRId64 " and the file has %zu bytes of data: "
                       "it is truncated; fetch it again",
                       t->name.ptr, to, room);
    if ((size_t)(to - from) != t->n_bytes)
        return tg_fail(e, TG_E_CORRUPT,
                       "tensor '%s' has %" PRId64 " bytes by its offsets and %zu by its shape and "
                       "dtype",
                       t->name.ptr, to - from, t->n_bytes);
    *begin = (size_t)from;
    return TG_OK;
}

static tg_status take_tensor(tg_safetensors *x, tg_arena *a, const char *name, const json_t *entry,
                             const uint8_t *region, size_t room, tg_err *e)
{
    size_t begin = 0, n = strlen(name);
    tg_tensor *t = &x->tensors[x->n_tensors++];
    if (n > 400 || !tg_name_is_printable((tg_str){name, n}))
        return tg_fail(e, TG_E_CORRUPT,
                       "the name of tensor %d is empty, longer than 400 bytes or holds control "
                       "characters",
                       x->n_tensors);
    *t = (tg_tensor){.name = {tg_arena_copy_str(a, name, n), n}, .file = x->file};
    if (!t->name.ptr) return tg_fail_nomem(e, n, "a tensor name");
    if (!json_is_object(entry))
        return tg_fail(e, TG_E_CORRUPT, "tensor '%s' is described by no JSON object", name);
    TG_TRY(take_dtype(t, entry, e));
    TG_TRY(take_shape(t, entry, e));
    TG_TRY(tg_tensor_plan_bytes(t, e));
    TG_TRY(take_offsets(t, entry, room, &begin, e));
    t->data = region + begin;
    return TG_OK;
}

static int compare_tensors(const void *a, const void *b)
{
    const tg_tensor *x = *(const tg_tensor *const *)a, *y = *(const tg_tensor *const *)b;
    const char *p = x->data, *q = y->data;
    if (p != q) return p < q ? -1 : 1;
    return (x->n_bytes > y->n_bytes) - (x->n_bytes < y->n_bytes); /* empty ones first */
}

/* Each tensor begins where the one before it ends, and the last one ends the file. */
static tg_status check_cover(const tg_safetensors *x, tg_arena *a, const uint8_t *region,
                             size_t room, tg_err *e)
{
    const tg_tensor **list = TG_ARENA_ARRAY(a, const tg_tensor *, x->n_tensors);
    if (!list) return tg_fail_nomem(e, (size_t)x->n_tensors * sizeof(void *), "a list of tensors");
    for (int32_t i = 0; i < x->n_tensors; i++)
        list[i] = &x->tensors[i];
    if (x->n_tensors > 0) qsort(list, (size_t)x->n_tensors, sizeof(void *), compare_tensors);
    size_t end = 0;
    for (int32_t i = 0; i < x->n_tensors; i++) {
        size_t begin = (size_t)((const uint8_t *)list[i]->data - region);
        if (begin != end)
            return tg_fail(e, TG_E_CORRUPT,
                           "tensor '%s' begins at offset %zu where the one before it ends at %zu: "
                           "they %s",
                           list[i]->name.ptr, begin, end, begin < end ? "overlap" : "leave a hole");
        end = begin + list[i]->n_bytes;
    }
    if (end != room)
        return tg_fail(e, TG_E_CORRUPT,
                       "its tensors end at offset %zu and the file has %zu bytes of data", end,
                       room);
    return TG_OK;
}

static tg_status take_entries(tg_safetensors *x, tg_arena *a, json_t *root, const uint8_t *region,
                              size_t room, tg_err *e)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(root)) return tg_fail(e, TG_E_CORRUPT, "its header is no JSON object");
    if (json_object_size(root) > INT32_MAX)
        return tg_fail(e, TG_E_LIMIT, "has %zu tensors", json_object_size(root));
    x->tensors = TG_ARENA_ARRAY(a, tg_tensor, json_object_size(root));
    if (!x->tensors)
        return tg_fail_nomem(e, json_object_size(root) * sizeof *x->tensors, "a list of tensors");
    json_object_foreach(root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            TG_TRY(take_notes(x, a, entry, e));
        else
            TG_TRY(take_tensor(x, a, name, entry, region, room, e));
    }
    return check_cover(x, a, region, room, e);
}

tg_status tg_safetensors_parse(tg_safetensors *out, tg_arena *a, const uint8_t *data,
                               size_t n_bytes, const char *file, tg_err *e)
{
    json_t *root = NULL;
    size_t n_header = 0;
    *out = (tg_safetensors){.file = file};
    tg_status s = parse_header(&root, &n_header, data, n_bytes, e);
    if (s == TG_OK) s = take_entries(out, a, root, data + n_header, n_bytes - n_header, e);
    json_decref(root);
    if (s != TG_OK) tg_err_context(e, "%s", file);
    return s;
}
