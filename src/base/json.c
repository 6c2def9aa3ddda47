/* SPDX-License-Identifier: Apache-2.0 */
#include "base/json.h"

#include "base/file.h"
#include "base/mem.h"
#include "base/number.h"

#include <pthread.h>

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* jansson does not always say that memory was refused: some paths report a syntax error instead. */
static _Thread_local bool is_refused;

static void *new_or_note(size_t n)
{
    void *p = tg_mem_new_plain(n);
    if (!p) is_refused = true;
    return p;
}

static void use_our_memory(void)
{
    json_set_alloc_funcs(new_or_note, tg_mem_free);
}

/* Files that transformers reads go through Python's json: the last of duplicate keys counts, and a
 * text may hold a zero. */
enum { FLAGS_STRICT = JSON_REJECT_DUPLICATES, FLAGS_PYTHON = JSON_ALLOW_NUL };

static json_t *load(tg_str text, size_t flags, json_error_t *err)
{
    is_refused = false;
    tg_locale_guard g = tg_locale_begin(); /* jansson reads and prints numbers by the C library */
    json_t *v = json_loadb(text.ptr ? text.ptr : "", text.len, flags | JSON_DECODE_ANY, err);
    tg_locale_end(g);
    return v;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* Appends `text` with a ".0" behind every integer of more digits than 64 bits surely hold.
 * Transformers writes "no limit" as 1000000000000000019884624838656 into tokenizer_config.json, and
 * jansson, which knows 64-bit integers alone, takes it as a real number so. */
static void add_with_large_reals(tg_buf *out, tg_str text)
{
    enum { SURE_DIGITS = 18 };
    bool is_string = false;
    for (size_t i = 0; i < text.len;) {
        size_t n = 1;
        char c = text.ptr[i];
        if (c == '"') is_string = !is_string;
        if (is_string && c == '\\') n = TG_MIN(text.len - i, (size_t)2);
        while (!is_string && is_digit(c) && i + n < text.len && is_digit(text.ptr[i + n]))
            n++;
        tg_buf_add(out, text.ptr + i, n);
        i += n;
        bool is_real = i < text.len && (text.ptr[i] == '.' || (text.ptr[i] | 0x20) == 'e');
        bool is_fraction = i > n && text.ptr[i - n - 1] == '.';
        if (!is_string && n > SURE_DIGITS && !is_real && !is_fraction) tg_buf_add_cstr(out, ".0");
    }
}

static tg_status parse(json_t **out, tg_str text, bool is_exact, const char *name, tg_err *e)
{
    pthread_once(&once, use_our_memory);
    json_error_t err;
    size_t flags = is_exact ? FLAGS_PYTHON : FLAGS_STRICT;
    *out = load(text, flags, &err);
    if (!*out && json_error_code(&err) == json_error_numeric_overflow && !is_exact) {
        tg_buf again = {0};
        add_with_large_reals(&again, text);
        is_refused = again.is_failed;
        if (!is_refused) *out = load(tg_buf_str(&again), flags, &err);
        tg_buf_deinit(&again);
    }
    if (*out) return TG_OK;
    if (is_refused || json_error_code(&err) == json_error_out_of_memory)
        return tg_fail_nomem(e, text.len, "a JSON document");
    const char *why = err.text; /* jansson's words, but where they name its flags */
    if (json_error_code(&err) == json_error_null_character)
        why = "a string holds the character \\u0000";
    if (json_error_code(&err) == json_error_null_byte_in_key)
        why = "a key holds the character \\u0000, which no key may";
    tg_buf shown = {0}; /* jansson quotes what it met, control bytes and all */
    tg_buf_add_escaped(&shown, tg_str_from_cstr(why));
    tg_status s = tg_fail(e, TG_E_CORRUPT, "%s: line %d, column %d is not valid JSON: %s", name,
                          err.line, err.column, tg_buf_cstr(&shown));
    tg_buf_deinit(&shown);
    return s;
}

tg_status tg_json_parse(json_t **out, tg_str text, const char *name, tg_err *e)
{
    return parse(out, text, false, name, e);
}

tg_status tg_json_parse_exact(json_t **out, tg_str text, const char *name, tg_err *e)
{
    return parse(out, text, true, name, e);
}

tg_status tg_json_load(json_t **out, const char *path, tg_err *e)
{
    enum { LIMIT = 1 << 30 };
    tg_file_map m;
    *out = NULL;
    TG_TRY(tg_file_map_open(&m, path, e));
    tg_status s =
        m.n_bytes > LIMIT
            ? tg_fail(e, TG_E_LIMIT, "%s: %zu bytes of JSON are more than the limit of %d", path,
                      m.n_bytes, LIMIT)
            : tg_json_parse(out, (tg_str){(const char *)m.data, m.n_bytes}, path, e);
    tg_file_map_close(&m);
    return s;
}

static int add_dumped(const char *bytes, size_t n, void *out)
{
    tg_buf_add(out, bytes, n);
    return 0;
}

tg_status tg_json_print(tg_buf *out, const json_t *v, int indent, tg_err *e)
{
    pthread_once(&once, use_our_memory);
    size_t flags = JSON_ENCODE_ANY | (indent ? JSON_INDENT((size_t)indent) : 0);
    tg_locale_guard g = tg_locale_begin();
    int rc = json_dump_callback(v, add_dumped, out, flags);
    tg_locale_end(g);
    if (rc != 0) return tg_fail_nomem(e, out->len, "printing JSON");
    return tg_buf_check(out, e);
}

void tg_json_add_quoted(tg_buf *out, tg_str s)
{
    tg_buf_add_byte(out, '"');
    for (size_t i = 0; i < s.len;) {
        int32_t cp;
        int n = tg_utf8_decode(s.ptr + i, s.len - i, &cp);
        if (n == 0)
            tg_buf_add_cstr(out, "\xef\xbf\xbd");
        else if (cp == '"' || cp == '\\')
            tg_buf_printf(out, "\\%c", (char)cp);
        else if (cp == '\n')
            tg_buf_add_cstr(out, "\\n");
        else if (cp < 0x20 || cp == 0x7f)
            tg_buf_printf(out, "\\u%04x", (int)cp);
        else
            tg_buf_add(out, s.ptr + i, (size_t)n);
        i += n ? (size_t)n : 1;
    }
    tg_buf_add_byte(out, '"');
}

tg_status tg_json_check_keys(const json_t *object, const char *name, const char *const *known,
                             size_t n_known, tg_err *e)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)object, key, value)
    {
        bool is_known = false;
        for (size_t i = 0; i < n_known && !is_known; i++)
            is_known = tg_str_is(tg_str_from_cstr(key), known[i]);
        if (is_known) continue;
        const char *near = tg_find_nearest_name(key, known, n_known);
        return near ? tg_fail(e, TG_E_ARGUMENT, "%s: unknown key '%s'; did you mean '%s'?", name,
                              key, near)
                    : tg_fail(e, TG_E_ARGUMENT, "%s: unknown key '%s'", name, key);
    }
    return TG_OK;
}

static const char *type_name(const json_t *v)
{
    static const char *const names[] = {
        [JSON_OBJECT] = "an object",   [JSON_ARRAY] = "an array",     [JSON_STRING] = "a string",
        [JSON_INTEGER] = "an integer", [JSON_REAL] = "a real number", [JSON_TRUE] = "true",
        [JSON_FALSE] = "false",        [JSON_NULL] = "null",
    };
    return names[json_typeof(v)];
}

/* The value of a key that is present and not null; NULL otherwise. */
static const json_t *find(const json_t *object, const char *key, bool *is_present)
{
    const json_t *v = json_object_get(object, key);
    bool is = v && !json_is_null(v);
    if (is_present) *is_present = is;
    return is ? v : NULL;
}

static tg_status fail_type(tg_err *e, const char *name, const char *key, const json_t *v,
                           const char *expected)
{
    return tg_fail(e, TG_E_CORRUPT, "%s: key '%s' is %s where %s is needed", name, key,
                   type_name(v), expected);
}

tg_status tg_json_get_i64(const json_t *object, const char *key, int64_t *out, bool *is_present,
                          const char *name, tg_err *e)
{
    const json_t *v = find(object, key, is_present);
    if (!v) return TG_OK;
    if (!json_is_integer(v)) return fail_type(e, name, key, v, "an integer");
    *out = json_integer_value(v);
    return TG_OK;
}

tg_status tg_json_get_f64(const json_t *object, const char *key, double *out, bool *is_present,
                          const char *name, tg_err *e)
{
    const json_t *v = find(object, key, is_present);
    if (!v) return TG_OK;
    if (!json_is_number(v)) return fail_type(e, name, key, v, "a number");
    *out = json_number_value(v);
    return TG_OK;
}

tg_status tg_json_get_bool(const json_t *object, const char *key, bool *out, bool *is_present,
                           const char *name, tg_err *e)
{
    const json_t *v = find(object, key, is_present);
    if (!v) return TG_OK;
    if (!json_is_boolean(v)) return fail_type(e, name, key, v, "true or false");
    *out = json_is_true(v);
    return TG_OK;
}

tg_status tg_json_get_str(const json_t *object, const char *key, tg_str *out, bool *is_present,
                          const char *name, tg_err *e)
{
    const json_t *v = find(object, key, is_present);
    if (!v) return TG_OK;
    if (!json_is_string(v)) return fail_type(e, name, key, v, "a string");
    *out = (tg_str){json_string_value(v), json_string_length(v)};
    return TG_OK;
}
