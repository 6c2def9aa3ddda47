/* SPDX-License-Identifier: Apache-2.0 */
#include "format/tensor.h"

#include <inttypes.h>
#include <stdlib.h>

int64_t tg_tensor_n_elems(const tg_tensor *t)
{
    int64_t n = 1;
    for (int32_t i = 0; i < t->n_dims; i++)
        n *= t->dims[i];
    return n;
}

void tg_tensor_print_dims(tg_buf *out, const tg_tensor *t)
{
    tg_buf_add_byte(out, '[');
    for (int32_t i = 0; i < t->n_dims; i++)
        tg_buf_printf(out, "%s%" PRId64, i ? ", " : "", t->dims[i]);
    tg_buf_add_byte(out, ']');
}

tg_status tg_tensor_plan_bytes(tg_tensor *t, tg_err *e)
{
    const tg_dtype_row *r = tg_dtype_get_row(t->dtype);
    int64_t row = t->n_dims ? t->dims[t->n_dims - 1] : 1, n = 1;
    bool does_fit = true;
    for (int32_t i = 0; i < t->n_dims; i++) {
        TG_ASSERT(t->dims[i] >= 0);
        does_fit = does_fit && tg_mul_i64(n, t->dims[i], &n);
    }
    if (does_fit && row % r->block_elems != 0)
        return tg_fail(e, TG_E_CORRUPT,
                       "tensor '%.*s' has rows of %" PRId64 " elements, which is no multiple of "
                       "the %d that a block of %s holds",
                       (int)t->name.len, t->name.ptr, row, r->block_elems, r->name);
    if (!does_fit || !tg_dtype_size(t->dtype, n, &t->n_bytes) || t->n_bytes > INT64_MAX) {
        tg_buf dims = {0};
        tg_tensor_print_dims(&dims, t);
        tg_status s = tg_fail(e, TG_E_CORRUPT,
                              "tensor '%.*s' of %s %s needs more bytes than 63 bits can count",
                              (int)t->name.len, t->name.ptr, r->name, tg_buf_cstr(&dims));
        tg_buf_deinit(&dims);
        return s;
    }
    return TG_OK;
}

static int compare_strs(tg_str a, tg_str b)
{
    size_t n = TG_MIN(a.len, b.len);
    int c = n ? memcmp(a.ptr, b.ptr, n) : 0;
    return c ? c : (a.len > b.len) - (a.len < b.len);
}

static int compare_names(const void *a, const void *b)
{
    return compare_strs(((const tg_name_entry *)a)->text, ((const tg_name_entry *)b)->text);
}

bool tg_names_init(tg_name_index *out, tg_name_entry *names, int32_t n, tg_str *duplicate)
{
    *out = (tg_name_index){names, n};
    if (n > 0) qsort(names, (size_t)n, sizeof *names, compare_names);
    for (int32_t i = 1; i < n; i++) {
        if (!tg_str_is_equal(names[i - 1].text, names[i].text)) continue;
        *duplicate = names[i].text;
        return false;
    }
    return true;
}

int32_t tg_names_find(const tg_name_index *x, tg_str text)
{
    int32_t low = 0, high = x->n;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        int c = compare_strs(text, x->sorted[mid].text);
        if (c == 0) return x->sorted[mid].id;
        if (c < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return -1;
}

void tg_names_print_hint(tg_buf *out, const tg_name_index *x, tg_str text)
{
    /* tg_find_nearest_name wants terminated strings; ours are views. */
    tg_arena a = {0};
    char *searched = tg_arena_copy_str(&a, text.ptr, text.len);
    const char **names = TG_ARENA_ARRAY(&a, const char *, x->n);
    bool is_made = searched && names;
    for (int32_t i = 0; is_made && i < x->n; i++) {
        names[i] = tg_arena_copy_str(&a, x->sorted[i].text.ptr, x->sorted[i].text.len);
        is_made = names[i] != NULL;
    }
    const char *near = is_made ? tg_find_nearest_name(searched, names, (size_t)x->n) : NULL;
    if (near) tg_buf_printf(out, "; the nearest is '%s'", near);
    tg_arena_deinit(&a);
}

bool tg_name_is_printable(tg_str s)
{
    if (s.len == 0 || tg_utf8_find_invalid(s) != s.len) return false;
    for (size_t i = 0; i < s.len; i++)
        if ((unsigned char)s.ptr[i] < 0x20 || s.ptr[i] == 0x7f) return false;
    return true;
}

tg_shown_name tg_name_show(tg_str s)
{
    tg_shown_name out = {{0}};
    tg_buf b = {0};
    tg_buf_add_escaped(&b, (tg_str){s.ptr, TG_MIN(s.len, sizeof out.text)});
    size_t n = TG_MIN(b.len, sizeof out.text - 4);
    if (n) memcpy(out.text, b.ptr, n);
    if (b.len > n || s.len > sizeof out.text) memcpy(out.text + n, "...", 4);
    tg_buf_deinit(&b);
    return out;
}
