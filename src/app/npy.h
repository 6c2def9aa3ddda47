/* SPDX-License-Identifier: Apache-2.0
 * npy.h - a float32 matrix as a file that NumPy reads, written row by row.
 *
 * Format version 1.0, little-endian, C order (numpy.lib.format). The rows go to a temporary beside
 * the target, which appears under its name when the last row is there. */
#ifndef TG_APP_NPY_H
#define TG_APP_NPY_H

#include "base/file.h"

typedef struct tg_npy tg_npy;

/* A path that exists and is no regular file is refused: it would be replaced. */
TG_MUST_USE tg_status tg_npy_open(tg_npy **out, const char *path, int64_t n_rows, int64_t n_cols,
                                  tg_err *e);
TG_MUST_USE tg_status tg_npy_write_row(tg_npy *n, const float *row, tg_err *e);
/* Publishes the file; every row must have been written. `n` is gone either way. */
TG_MUST_USE tg_status tg_npy_close(tg_npy *n, tg_err *e);
void tg_npy_abandon(tg_npy *n); /* accepts NULL; leaves nothing behind */

#endif
