/* SPDX-License-Identifier: Apache-2.0 */
#include "format/hparams.h"

#include "base/log.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char scope_key[] = "text_config";

struct tg_config {
    tg_arena arena; /* paths, patterns, lists handed out */
    tg_checkpoint_kind kind;
    const char *file;

    const json_t *root, *scope; /* HF; scope is NULL without a text_config */
    const tg_gguf *gguf;
    tg_str arch; /* GGUF: general.architecture, or empty */

    char **read; /* full paths that were asked for; a pattern ends in '*' */
    int32_t n_read, read_room;
    bool is_failed; /* memory was refused while noting a path: unread would be wrong */
};

/* The value of a key. Absent: both pointers are NULL. */
typedef struct value {
    const json_t *json;
    const tg_gguf_kv *kv;
    const char *path; /* full, for messages */
} value;

/* ---- making */

static tg_status new_config(tg_config **out, tg_checkpoint_kind kind, const char *file, tg_err *e)
{
    tg_config *c = TG_NEW(tg_config);
    *out = c;
    if (!c) return tg_fail_nomem(e, sizeof *c, "a configuration");
    c->kind = kind;
    c->file = file;
    return TG_OK;
}

tg_status tg_config_new_json(tg_config **out, const json_t *root, const char *file, tg_err *e)
{
    *out = NULL;
    if (!json_is_object(root)) return tg_fail(e, TG_E_CORRUPT, "%s: is no JSON object", file);
    TG_TRY(new_config(out, TG_CHECKPOINT_HF, file, e));
    const json_t *scope = json_object_get(root, scope_key);
    (*out)->root = root;
    (*out)->scope = json_is_object(scope) ? scope : NULL;
    return TG_OK;
}

tg_status tg_config_new_gguf(tg_config **out, const tg_gguf *g, tg_err *e)
{
    *out = NULL;
    TG_TRY(new_config(out, TG_CHECKPOINT_GGUF, g->file, e));
    const tg_gguf_kv *kv = tg_gguf_find(g, "general.architecture");
    (*out)->gguf = g;
    if (kv) (void)tg_gguf_read_str(kv, &(*out)->arch);
    return TG_OK;
}

tg_status tg_config_new(tg_config **out, const tg_checkpoint *c, tg_err *e)
{
    if (tg_checkpoint_get_kind(c) == TG_CHECKPOINT_GGUF)
        return tg_config_new_gguf(out, tg_checkpoint_get_gguf(c), e);
    return tg_config_new_json(out, tg_checkpoint_get_json(c, TG_HF_CONFIG),
                              tg_checkpoint_get_part_path(c, TG_HF_CONFIG), e);
}

void tg_config_free(tg_config *c)
{
    if (!c) return;
    tg_arena_deinit(&c->arena);
    tg_mem_free(c);
}

tg_checkpoint_kind tg_config_get_kind(const tg_config *c)
{
    return c->kind;
}

const char *tg_config_get_file(const tg_config *c)
{
    return c->file;
}

/* jansson's iteration takes an object that is not const, and changes nothing in it. */
static json_t *for_iteration(const json_t *object)
{
    return (json_t *)(uintptr_t)object; /* NOLINT(performance-no-int-to-ptr): only drops const */
}

/* ---- what was read */

static bool is_noted(const tg_config *c, const char *path)
{
    for (int32_t i = 0; i < c->n_read; i++) {
        size_t n = strlen(c->read[i]);
        bool is_pattern = n > 0 && c->read[i][n - 1] == '*';
        if (is_pattern ? strncmp(c->read[i], path, n - 1) == 0 : strcmp(c->read[i], path) == 0)
            return true;
    }
    return false;
}

/* Was something below this path asked for? */
static bool is_entered(const tg_config *c, const char *path)
{
    size_t n = strlen(path);
    for (int32_t i = 0; i < c->n_read; i++)
        if (strncmp(c->read[i], path, n) == 0 && c->read[i][n] == '.') return true;
    return false;
}

static void note(tg_config *c, const char *path)
{
    if (c->n_read == c->read_room) {
        int32_t room = 2 * c->read_room + 64;
        char **list = TG_ARENA_ARRAY(&c->arena, char *, room);
        if (!list) {
            c->is_failed = true;
            return;
        }
        if (c->n_read) memcpy(list, c->read, (size_t)c->n_read * sizeof *list);
        c->read = list;
        c->read_room = room;
    }
    char *copy = tg_arena_copy_str(&c->arena, path, strlen(path));
    if (copy)
        c->read[c->n_read++] = copy;
    else
        c->is_failed = true;
}

/* On the stack, so that refused memory cannot make a key unread. */
bool tg_config_was_read(const tg_config *c, const char *key)
{
    char path[256];
    bool has_star = c->gguf && key[0] == '*' && key[1] == '.';
    (void)snprintf(path, sizeof path, "%.*s%s", has_star ? (int)TG_MIN(c->arch.len, 128u) : 0,
                   has_star ? c->arch.ptr : "", has_star ? key + 1 : key);
    if (is_noted(c, path)) return true;
    (void)snprintf(path, sizeof path, "%s.%s", scope_key, key);
    return c->scope && is_noted(c, path);
}

void tg_config_ignore(tg_config *c, const char *pattern)
{
    tg_buf nested = {0};
    note(c, pattern);
    if (c->scope) {
        tg_buf_printf(&nested, "%s.%s", scope_key, pattern);
        note(c, tg_buf_cstr(&nested));
        c->is_failed = c->is_failed || nested.is_failed;
    }
    tg_buf_deinit(&nested);
}

/* ---- looking up */

/* Follows a dotted path; NULL when a part is absent, null, or not inside an object. */
static const json_t *walk(const json_t *at, const char *path)
{
    while (at) {
        const char *dot = strchr(path, '.');
        size_t n = dot ? (size_t)(dot - path) : strlen(path);
        char part[128];
        if (n >= sizeof part || !json_is_object(at)) return NULL;
        memcpy(part, path, n);
        part[n] = 0;
        at = json_object_get(at, part);
        if (!dot) return json_is_null(at) ? NULL : at;
        path = dot + 1;
    }
    return NULL;
}

/* Looks in the scope, then at the root, and notes the places where something is. */
static void look_up_json(tg_config *c, const char *key, value *v)
{
    bool is_root_only = key[0] == '/';
    key += is_root_only;
    const json_t *nested = c->scope && !is_root_only ? walk(c->scope, key) : NULL;
    const json_t *outer = walk(c->root, key);
    bool is_new = !is_noted(c, key);
    if (is_new) note(c, key);
    v->path = key;
    v->json = outer;
    if (!nested) return;
    tg_buf path = {0};
    tg_buf_printf(&path, "%s.%s", scope_key, key);
    char *copy = path.is_failed ? NULL : tg_arena_copy_str(&c->arena, path.ptr, path.len);
    tg_buf_deinit(&path);
    if (copy && !is_noted(c, copy)) note(c, copy);
    if (!copy) c->is_failed = true;
    v->path = copy ? copy : key;
    v->json = nested;
    if (is_new && outer && !json_equal(outer, nested))
        tg_log_warn("%s: '%s' differs at the root and in %s; that in %s is used", c->file, key,
                    scope_key, scope_key);
}

static void look_up_gguf(tg_config *c, const char *key, value *v)
{
    tg_buf full = {0};
    if (key[0] == '*' && key[1] == '.') {
        tg_buf_add_str(&full, c->arch);
        key++;
    }
    tg_buf_add_cstr(&full, key);
    char *path = full.is_failed ? NULL : tg_arena_copy_str(&c->arena, full.ptr, full.len);
    tg_buf_deinit(&full);
    if (!path) {
        c->is_failed = true;
        v->path = key;
        return;
    }
    v->path = path;
    v->kv = tg_gguf_find(c->gguf, path);
    if (!is_noted(c, path)) note(c, path);
}

static tg_status fail_absent(const tg_config *c, const char *path, tg_err *e)
{
    tg_buf hint = {0};
    if (c->gguf) {
        tg_names_print_hint(&hint, &c->gguf->kv_names, tg_str_from_cstr(path));
    } else {
        tg_arena a = {0};
        const json_t *in = c->scope ? c->scope : c->root;
        const char **keys = TG_ARENA_ARRAY(&a, const char *, json_object_size(in));
        const char *key;
        json_t *v;
        size_t n = 0;
        if (keys) json_object_foreach(for_iteration(in), key, v) keys[n++] = key;
        const char *near = tg_find_nearest_name(path, keys, n);
        if (near) tg_buf_printf(&hint, "; the nearest is '%s'", near);
        tg_arena_deinit(&a);
    }
    tg_status s =
        tg_fail(e, TG_E_CORRUPT, "%s: key '%s' is missing%s", c->file, path, tg_buf_cstr(&hint));
    tg_buf_deinit(&hint);
    return s;
}

static tg_status find(tg_config *c, const char *key, value *v, bool *is_present, tg_err *e)
{
    *v = (value){0};
    if (c->gguf)
        look_up_gguf(c, key, v);
    else
        look_up_json(c, key, v);
    if (c->is_failed) return tg_fail_nomem(e, c->arena.n_bytes, "the keys of a checkpoint");
    bool is = v->json || v->kv;
    if (is_present) *is_present = is;
    return is || is_present ? TG_OK : fail_absent(c, v->path, e);
}

static bool is_absent(const value *v)
{
    return !v->json && !v->kv;
}

static const char *type_name(const value *v)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "a list",       [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a real number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null",
    };
    if (v->json) return names[json_typeof(v->json)];
    return v->kv->is_array ? "a list" : tg_gguf_type_name(v->kv->type);
}

static tg_status fail_type(const tg_config *c, const value *v, const char *needed, tg_err *e)
{
    return tg_fail(e, TG_E_CORRUPT, "%s: key '%s' is %s where %s is needed", c->file, v->path,
                   type_name(v), needed);
}

bool tg_config_has(tg_config *c, const char *key)
{
    value v;
    bool is_present = false;
    int32_t n_before = c->n_read;
    (void)find(c, key, &v, &is_present, NULL);
    if (json_is_object(v.json)) c->n_read = n_before; /* its keys are still to be read */
    return is_present;
}

/* ---- elements: of a list, or the value itself as a list of one */

static bool is_list(const value *v)
{
    return v->json ? json_is_array(v->json) : v->kv->is_array;
}

static int64_t get_length(const value *v)
{
    if (v->kv) return v->kv->n;
    return json_is_array(v->json) ? (int64_t)json_array_size(v->json) : 1;
}

static const json_t *get_element(const value *v, int64_t i)
{
    return json_is_array(v->json) ? json_array_get(v->json, (size_t)i) : v->json;
}

static bool read_i64(const value *v, int64_t i, int64_t *out)
{
    if (v->kv) return tg_gguf_read_i64(v->kv, i, out);
    const json_t *j = get_element(v, i);
    if (!json_is_integer(j)) return false;
    *out = json_integer_value(j);
    return true;
}

static bool read_f64(const value *v, int64_t i, double *out)
{
    double x = 0;
    const json_t *j = v->json ? get_element(v, i) : NULL;
    if (v->kv ? !tg_gguf_read_f64(v->kv, i, &x) : !json_is_number(j)) return false;
    if (j) x = json_number_value(j);
    if (!isfinite(x)) return false;
    *out = x;
    return true;
}

static bool read_bool(const value *v, int64_t i, bool *out)
{
    if (v->kv) return tg_gguf_read_bool(v->kv, i, out);
    const json_t *j = get_element(v, i);
    if (!json_is_boolean(j)) return false;
    *out = json_is_true(j);
    return true;
}

/* ---- single values */

static const char an_i64[] = "an integer of at most 63 bits", an_f64[] = "a finite number",
                  a_bool[] = "true or false", a_str[] = "a string";

tg_status tg_config_get_i64(tg_config *c, const char *key, int64_t *out, bool *is_present,
                            tg_err *e)
{
    value v;
    TG_TRY(find(c, key, &v, is_present, e));
    if (is_absent(&v) || (!is_list(&v) && read_i64(&v, 0, out))) return TG_OK;
    return fail_type(c, &v, an_i64, e);
}

tg_status tg_config_get_i32(tg_config *c, const char *key, int32_t low, int32_t high, int32_t *out,
                            bool *is_present, tg_err *e)
{
    value v;
    int64_t x = 0;
    TG_TRY(find(c, key, &v, is_present, e));
    if (is_absent(&v)) return TG_OK;
    if (is_list(&v) || !read_i64(&v, 0, &x)) return fail_type(c, &v, "an integer", e);
    if (x < low || x > high)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: key '%s' is %" PRId64 "; it must be from %" PRId32 " to %" PRId32,
                       c->file, v.path, x, low, high);
    *out = (int32_t)x;
    return TG_OK;
}

tg_status tg_config_get_f64(tg_config *c, const char *key, double *out, bool *is_present, tg_err *e)
{
    value v;
    TG_TRY(find(c, key, &v, is_present, e));
    if (is_absent(&v) || (!is_list(&v) && read_f64(&v, 0, out))) return TG_OK;
    return fail_type(c, &v, an_f64, e);
}

tg_status tg_config_get_bool(tg_config *c, const char *key, bool *out, bool *is_present, tg_err *e)
{
    value v;
    TG_TRY(find(c, key, &v, is_present, e));
    if (is_absent(&v) || (!is_list(&v) && read_bool(&v, 0, out))) return TG_OK;
    return fail_type(c, &v, a_bool, e);
}

tg_status tg_config_get_str(tg_config *c, const char *key, tg_str *out, bool *is_present, tg_err *e)
{
    value v;
    TG_TRY(find(c, key, &v, is_present, e));
    if (is_absent(&v) || (v.kv && tg_gguf_read_str(v.kv, out))) return TG_OK;
    if (!json_is_string(v.json)) return fail_type(c, &v, a_str, e);
    *out = (tg_str){json_string_value(v.json), json_string_length(v.json)};
    return TG_OK;
}

const json_t *tg_config_get_json(tg_config *c, const char *key)
{
    value v;
    bool is_present = false;
    (void)find(c, key, &v, &is_present, NULL);
    return v.json;
}

/* ---- lists */

/* Finds a key and makes room for its elements; *n is 0 when it is absent. */
static tg_status begin_list(tg_config *c, const char *key, value *v, size_t elem_bytes, void **list,
                            int32_t *n, bool *is_present, tg_err *e)
{
    *n = 0;
    *list = NULL;
    TG_TRY(find(c, key, v, is_present, e));
    if (is_absent(v)) return TG_OK;
    if (get_length(v) > INT32_MAX)
        return tg_fail(e, TG_E_LIMIT, "%s: key '%s' is a list of %" PRId64 " elements", c->file,
                       v->path, get_length(v));
    *n = (int32_t)get_length(v);
    *list = tg_arena_alloc_array(&c->arena, (size_t)*n, elem_bytes);
    return *list ? TG_OK : tg_fail_nomem(e, (size_t)*n * elem_bytes, v->path);
}

static tg_status fail_element(const tg_config *c, const value *v, int32_t i, const char *needed,
                              tg_err *e)
{
    if (!is_list(v)) return fail_type(c, v, needed, e);
    return tg_fail(e, TG_E_CORRUPT, "%s: element %" PRId32 " of key '%s' is not %s", c->file, i,
                   v->path, needed);
}

tg_status tg_config_get_i64s(tg_config *c, const char *key, const int64_t **out, int32_t *n,
                             bool *is_present, tg_err *e)
{
    value v;
    void *list;
    TG_TRY(begin_list(c, key, &v, sizeof **out, &list, n, is_present, e));
    int64_t *x = list;
    for (int32_t i = 0; i < *n; i++)
        if (!read_i64(&v, i, &x[i])) return fail_element(c, &v, i, an_i64, e);
    *out = x;
    return TG_OK;
}

tg_status tg_config_get_f64s(tg_config *c, const char *key, const double **out, int32_t *n,
                             bool *is_present, tg_err *e)
{
    value v;
    void *list;
    TG_TRY(begin_list(c, key, &v, sizeof **out, &list, n, is_present, e));
    double *x = list;
    for (int32_t i = 0; i < *n; i++)
        if (!read_f64(&v, i, &x[i])) return fail_element(c, &v, i, an_f64, e);
    *out = x;
    return TG_OK;
}

tg_status tg_config_get_bools(tg_config *c, const char *key, const bool **out, int32_t *n,
                              bool *is_present, tg_err *e)
{
    value v;
    void *list;
    TG_TRY(begin_list(c, key, &v, sizeof **out, &list, n, is_present, e));
    bool *x = list;
    for (int32_t i = 0; i < *n; i++)
        if (!read_bool(&v, i, &x[i])) return fail_element(c, &v, i, a_bool, e);
    *out = x;
    return TG_OK;
}

tg_status tg_config_get_strs(tg_config *c, const char *key, const tg_str **out, int32_t *n,
                             bool *is_present, tg_err *e)
{
    value v;
    void *list;
    TG_TRY(begin_list(c, key, &v, sizeof **out, &list, n, is_present, e));
    tg_str *x = list;
    *out = x;
    if (v.kv && v.kv->is_array) {
        tg_str *views = NULL;
        int64_t n_views = 0;
        TG_TRY(tg_gguf_get_strs(c->gguf, v.path, &c->arena, &views, &n_views, NULL, e));
        *out = views;
        return TG_OK;
    }
    for (int32_t i = 0; i < *n; i++) {
        if (v.kv && tg_gguf_read_str(v.kv, &x[i])) continue;
        const json_t *j = v.json ? get_element(&v, i) : NULL;
        if (!json_is_string(j)) return fail_element(c, &v, i, a_str, e);
        x[i] = (tg_str){json_string_value(j), json_string_length(j)};
    }
    return TG_OK;
}

tg_status tg_config_get_i64_each(tg_config *c, const char *key, int64_t *out, int32_t n,
                                 bool *is_present, tg_err *e)
{
    value v;
    TG_TRY(find(c, key, &v, is_present, e));
    if (is_absent(&v)) return TG_OK;
    if (is_list(&v) && get_length(&v) != n)
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: key '%s' is a list of %" PRId64 " and there are %" PRId32 " layers",
                       c->file, v.path, get_length(&v), n);
    for (int32_t i = 0; i < n; i++)
        if (!read_i64(&v, is_list(&v) ? i : 0, &out[i])) return fail_element(c, &v, i, an_i64, e);
    return TG_OK;
}

/* ---- unread keys */

typedef struct unread_list {
    const tg_config *c;
    tg_arena *a;
    const char **keys;
    int32_t n, room;
    bool is_failed;
} unread_list;

/* Keys are the file's and end up on terminals: escaped here. */
static void add_unread(unread_list *u, tg_str path)
{
    tg_buf shown = {0};
    if (u->n == u->room) {
        int32_t room = 2 * u->room + 16;
        const char **list = TG_ARENA_ARRAY(u->a, const char *, room);
        u->is_failed = u->is_failed || !list;
        if (!list) return;
        if (u->n) memcpy(list, u->keys, (size_t)u->n * sizeof *list);
        u->keys = list;
        u->room = room;
    }
    tg_buf_add_escaped(&shown, path);
    u->keys[u->n] = tg_arena_copy_str(u->a, tg_buf_cstr(&shown), shown.len);
    u->is_failed = u->is_failed || shown.is_failed || !u->keys[u->n];
    u->n++;
    tg_buf_deinit(&shown);
}

/* `path` is the prefix so far, with its dot; it comes back unchanged. Goes only as deep as keys
 * were asked for, so that nesting in the file is no danger. */
static void collect_json(unread_list *u, const json_t *object, tg_buf *path)
{
    const char *key;
    json_t *v;
    size_t n = path->len;
    json_object_foreach(for_iteration(object), key, v)
    {
        if (json_is_null(v)) continue;
        tg_buf_add_cstr(path, key);
        if (path->is_failed) break;
        if (!is_noted(u->c, tg_buf_cstr(path))) {
            if (json_is_object(v) && is_entered(u->c, tg_buf_cstr(path))) {
                tg_buf_add_byte(path, '.');
                collect_json(u, v, path);
            } else {
                add_unread(u, tg_buf_str(path));
            }
        }
        path->len = n;
        if (path->ptr) path->ptr[n] = 0;
    }
    u->is_failed = u->is_failed || path->is_failed;
}

static void collect_gguf(unread_list *u, tg_buf *path)
{
    for (int32_t i = 0; i < u->c->gguf->n_kvs; i++) {
        tg_buf_clear(path);
        tg_buf_add_str(path, u->c->gguf->kvs[i].key);
        if (!path->is_failed && !is_noted(u->c, tg_buf_cstr(path))) add_unread(u, tg_buf_str(path));
    }
    u->is_failed = u->is_failed || path->is_failed;
}

tg_status tg_config_unread(const tg_config *c, tg_arena *a, const char ***keys, int32_t *n,
                           tg_err *e)
{
    unread_list u = {.c = c, .a = a};
    tg_buf path = {0};
    if (c->gguf)
        collect_gguf(&u, &path);
    else
        collect_json(&u, c->root, &path);
    tg_buf_deinit(&path);
    if (u.is_failed || c->is_failed) return tg_fail_nomem(e, a->n_bytes, "a list of keys");
    *keys = u.keys;
    *n = u.n;
    return TG_OK;
}
