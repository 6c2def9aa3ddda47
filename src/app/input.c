/* SPDX-License-Identifier: Apache-2.0
 * input.c - reading what a command is given.
 *
 * One place decides what a prompt is: an option's own text, a file, "-" or nothing for standard
 * input. A terminal is never waited for, since a program that sits there in silence looks hung;
 * the command says what it needs instead. Text is checked to be UTF-8 here, where the byte's place
 * in the file is still known. */
#include "app/input.h"

#include "base/file.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* More text than any model's context, little enough to keep in memory. */
enum { MAX_BYTES = 1 << 30 };

bool tg_input_is_given(const tg_args *a)
{
    return a->is_set[TG_OPT_PROMPT] || a->is_set[TG_OPT_FILE] || a->is_set[TG_OPT_IDS] ||
           !isatty(STDIN_FILENO);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

/* The next word from *at on; empty at the end. */
static tg_str next_word(tg_str text, size_t *at)
{
    while (*at < text.len && is_space(text.ptr[*at]))
        ++*at;
    size_t start = *at;
    while (*at < text.len && !is_space(text.ptr[*at]))
        ++*at;
    return (tg_str){text.ptr + start, *at - start};
}

/* Two passes: the count is known before the list is made. A word that is no id is named by its
 * place, counted from 1, because the files are made by other programs and are long. */
tg_status tg_ids_parse(int32_t **ids, int32_t *n_ids, tg_str text, const char *name, tg_err *e)
{
    size_t at = 0, n = 0;
    tg_str word;
    *ids = NULL;
    *n_ids = 0;
    while (next_word(text, &at).len)
        n++;
    if (n > INT32_MAX) return tg_fail(e, TG_E_LIMIT, "%s: has more than 2147483647 ids", name);
    int32_t *list = TG_NEW_ARRAY(int32_t, n + 1);
    if (!list) return tg_fail_nomem(e, n * sizeof *list, "token ids");
    at = 0;
    for (size_t i = 0; (word = next_word(text, &at)).len; i++) {
        char one[32];
        int64_t id;
        (void)snprintf(one, sizeof one, "%.*s", (int)TG_MIN(word.len, sizeof one - 1), word.ptr);
        if (!tg_parse_i64(one, &id) || id < 0 || id > INT32_MAX) {
            tg_mem_free(list);
            return tg_fail(e, TG_E_ARGUMENT, "%s: word %zu, '%s', is not a token id", name, i + 1,
                           one);
        }
        list[i] = (int32_t)id;
    }
    *ids = list;
    *n_ids = (int32_t)n;
    return TG_OK;
}

/* in->name is what messages say; both strings outlive the input. */
static tg_status load_path(tg_input *in, const char *path, tg_err *e)
{
    if (strcmp(path, "-") == 0) {
        in->name = "standard input";
        return tg_fd_load(&in->text, STDIN_FILENO, in->name, MAX_BYTES, e);
    }
    in->name = path;
    return tg_stream_load(&in->text, path, MAX_BYTES, e);
}

tg_status tg_input_load(tg_input *in, const tg_args *a, bool wants_ids, tg_err *e)
{
    tg_status s;
    in->is_ids = wants_ids || a->is_set[TG_OPT_IDS];
    if (a->is_set[TG_OPT_PROMPT]) {
        in->name = "--prompt";
        tg_buf_add_cstr(&in->text, a->text[TG_OPT_PROMPT]);
        s = tg_buf_check(&in->text, e);
    } else if (a->is_set[TG_OPT_FILE]) {
        s = load_path(in, a->text[TG_OPT_FILE], e);
    } else {
        s = load_path(in, a->is_set[TG_OPT_IDS] ? a->text[TG_OPT_IDS] : "-", e);
    }
    if (s != TG_OK) return s;
    if (in->is_ids) return tg_ids_parse(&in->ids, &in->n_ids, tg_buf_str(&in->text), in->name, e);
    size_t bad = tg_utf8_find_invalid(tg_buf_str(&in->text));
    if (bad < in->text.len)
        return tg_fail(e, TG_E_ARGUMENT, "%s: byte %zu (0x%02x) does not belong to UTF-8 text",
                       in->name, bad, (unsigned char)in->text.ptr[bad]);
    return TG_OK;
}

tg_status tg_input_check(const tg_input *in, const char *what, tg_err *e)
{
    if (in->is_ids ? in->n_ids > 0 : in->text.len > 0) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT, "%s: the %s is empty", in->name, what);
}

void tg_input_deinit(tg_input *in)
{
    tg_buf_deinit(&in->text);
    tg_mem_free(in->ids);
    *in = (tg_input){0};
}
