/* SPDX-License-Identifier: Apache-2.0
 * npy.c - NumPy's file format, as far as a float32 matrix needs it.
 *
 * Written from the description of numpy.lib.format, version 1.0: the header is a Python dict as
 * text, which numpy reads back with a literal parser. The number of rows is in it and must be
 * known at the start, so a file that ends early is never given its name. */
#include "app/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* `temporary` is empty once the file has its name: then there is nothing to clean up. */
struct tg_npy {
    tg_file_writer *out;
    tg_buf path, temporary;
    int64_t n_rows, n_cols, n_done;
};

/* Magic, version, header length, and a Python dict that is padded with spaces so that the data
 * begins at a multiple of 64. */
static tg_status write_header(tg_npy *n, tg_err *e)
{
    char dict[192], head[10] = "\x93NUMPY\x01\x00";
    int len =
        snprintf(dict, sizeof dict,
                 "{'descr': '<f4', 'fortran_order': False, 'shape': (%" PRId64 ", %" PRId64 "), }",
                 n->n_rows, n->n_cols);
    size_t whole = tg_align_up(sizeof head + (size_t)len + 1, 64) - sizeof head;
    TG_ASSERT(len > 0 && whole <= sizeof dict);
    memset(dict + len, ' ', whole - (size_t)len);
    dict[whole - 1] = '\n';
    head[8] = (char)(whole & 255);
    head[9] = (char)(whole >> 8);
    TG_TRY(tg_file_writer_write(n->out, head, sizeof head, e));
    return tg_file_writer_write(n->out, dict, whole, e);
}

/* The process id is in the temporary's name: two runs into one file do not meet. */
tg_status tg_npy_open(tg_npy **out, const char *path, int64_t n_rows, int64_t n_cols, tg_err *e)
{
    *out = NULL;
    if (tg_path_exists(path) && !tg_path_is_file(path))
        return tg_fail(e, TG_E_ARGUMENT, "%s: is not a regular file, and a file is to be written",
                       path);
    tg_npy *n = TG_NEW(tg_npy);
    if (!n) return tg_fail_nomem(e, sizeof *n, "a NumPy file");
    n->n_rows = n_rows;
    n->n_cols = n_cols;
    tg_buf_add_cstr(&n->path, path);
    tg_buf_printf(&n->temporary, "%s.%d.tmp", path, (int)getpid());
    tg_status s = tg_buf_check(&n->path, e);
    if (s == TG_OK) s = tg_buf_check(&n->temporary, e);
    if (s == TG_OK) s = tg_file_writer_open(&n->out, tg_buf_cstr(&n->temporary), e);
    if (s == TG_OK) s = write_header(n, e);
    if (s != TG_OK) {
        tg_npy_abandon(n);
        return s;
    }
    *out = n;
    return TG_OK;
}

tg_status tg_npy_write_row(tg_npy *n, const float *row, tg_err *e)
{
    TG_ASSERT(n->n_done < n->n_rows);
    TG_TRY(tg_file_writer_write(n->out, row, (size_t)n->n_cols * sizeof *row, e));
    n->n_done++;
    return TG_OK;
}

/* Synced before it is renamed, so that a crash leaves the old file or the whole new one. */
tg_status tg_npy_close(tg_npy *n, tg_err *e)
{
    TG_ASSERT(n->n_done == n->n_rows);
    tg_status s = tg_file_writer_close(n->out, e);
    n->out = NULL;
    if (s == TG_OK && rename(tg_buf_cstr(&n->temporary), tg_buf_cstr(&n->path)) != 0)
        s = tg_fail(e, TG_E_IO, "%s: cannot write: %s", tg_buf_cstr(&n->path), strerror(errno));
    if (s == TG_OK) tg_buf_clear(&n->temporary); /* its name is gone: nothing to remove */
    tg_npy_abandon(n);
    return s;
}

void tg_npy_abandon(tg_npy *n)
{
    if (!n) return;
    tg_file_writer_abandon(n->out);
    if (n->temporary.len) unlink(tg_buf_cstr(&n->temporary));
    tg_buf_deinit(&n->path);
    tg_buf_deinit(&n->temporary);
    tg_mem_free(n);
}
