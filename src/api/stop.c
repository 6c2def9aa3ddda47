/* SPDX-License-Identifier: Apache-2.0
 * stop.c - stop strings, found in a text that comes in pieces.
 *
 * `held` is always the longest end of the text that is the beginning of a stop string and not all
 * of it. A stop string that completes later cannot have begun before it: its beginning would be a
 * longer such end. So everything in front of `held` is free to go, and looking for a complete one
 * begins at the first byte of the new piece. */
#include "api/stop.h"

#include <string.h>

tg_status tg_stop_scan_init(tg_stop_scan *x, tg_arena *arena, const char *const *strings, int32_t n,
                            tg_err *e)
{
    *x = (tg_stop_scan){.strings = TG_ARENA_ARRAY(arena, tg_str, n + 1)};
    if (!x->strings) return tg_fail_nomem(e, (size_t)n * sizeof *x->strings, "stop strings");
    for (int32_t i = 0; i < n; i++) {
        size_t len = strlen(strings[i]);
        if (len == 0)
            return tg_fail(e, TG_E_ARGUMENT,
                           "stop string %d is empty; it would end every completion at once", i + 1);
        const char *copy = tg_arena_copy_str(arena, strings[i], len);
        if (!copy) return tg_fail_nomem(e, len, "a stop string");
        x->strings[x->n++] = (tg_str){copy, len};
        x->longest = TG_MAX(x->longest, len);
    }
    return TG_OK;
}

void tg_stop_scan_deinit(tg_stop_scan *x)
{
    tg_buf_deinit(&x->held);
}

/* Bytes of the longest stop string that `text` ends with; 0: none. */
static size_t find_complete(const tg_stop_scan *x, tg_str text)
{
    size_t longest = 0;
    for (int32_t i = 0; i < x->n; i++)
        if (x->strings[i].len > longest && tg_str_has_suffix(text, x->strings[i]))
            longest = x->strings[i].len;
    return longest;
}

/* Bytes of the longest end of `text` with which a stop string begins. */
static size_t find_begun(const tg_stop_scan *x, tg_str text)
{
    for (size_t n = TG_MIN(text.len, x->longest ? x->longest - 1 : 0); n > 0; n--)
        for (int32_t i = 0; i < x->n; i++)
            if (x->strings[i].len > n && memcmp(x->strings[i].ptr, text.ptr + text.len - n, n) == 0)
                return n;
    return 0;
}

bool tg_stop_scan_push(tg_stop_scan *x, tg_buf *out, tg_str text)
{
    size_t looked_at = x->held.len;
    tg_buf_add_str(&x->held, text);
    tg_str all = tg_buf_str(&x->held);
    for (size_t end = looked_at + 1; x->n > 0 && end <= all.len; end++) {
        size_t n = find_complete(x, (tg_str){all.ptr, end});
        if (n == 0) continue;
        tg_buf_add(out, all.ptr, end - n);
        tg_buf_clear(&x->held);
        return true;
    }
    size_t n = all.len - find_begun(x, all);
    tg_buf_add(out, all.ptr, n);
    if (n > 0) {
        memmove(x->held.ptr, x->held.ptr + n, x->held.len - n + 1);
        x->held.len -= n;
    }
    return false;
}

void tg_stop_scan_flush(tg_stop_scan *x, tg_buf *out)
{
    tg_buf_add_str(out, tg_buf_str(&x->held));
    tg_buf_clear(&x->held);
}
