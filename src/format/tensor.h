/* SPDX-License-Identifier: Apache-2.0
 * tensor.h - a named tensor in a mapped file, and looking names up.
 *
 * The same form for both kinds of checkpoint: row-major, dims[0] slowest, so that a matrix is
 * [outputs, inputs]. GGUF writes its dimensions the other way round; the reader turns them. */
#ifndef TG_FORMAT_TENSOR_H
#define TG_FORMAT_TENSOR_H

#include "base/mem.h"
#include "format/dtype.h"

/* GGUF has at most 4; vision towers in safetensors have 5 (a convolution over time). */
enum { TG_MAX_DIMS = 8 };

typedef struct tg_tensor {
    tg_str name; /* printable UTF-8, not empty */
    tg_dtype dtype;
    int32_t n_dims;            /* 0: a scalar */
    int64_t dims[TG_MAX_DIMS]; /* each >= 0; unused ones are 0 */
    const void *data;          /* into the mapping, of any alignment; NULL: see `prequant` */
    size_t n_bytes;
    const char *file; /* for messages */
    /* Set where rows are made of several tensors (prequant_matrix.h): row 0 is its row
     * first_row. */
    const struct tg_prequant_matrix *prequant;
    int64_t first_row;
} tg_tensor;

/* The product of the dimensions: 1 for a scalar. Cannot wrap for a tensor that a reader made. */
int64_t tg_tensor_n_elems(const tg_tensor *t);

/* "[576, 1536]" */
void tg_tensor_print_dims(tg_buf *out, const tg_tensor *t);

/* Sets n_bytes from dtype and dims; TG_E_CORRUPT naming the tensor when a product does not fit or a
 * row is no whole number of blocks. */
TG_MUST_USE tg_status tg_tensor_plan_bytes(tg_tensor *t, tg_err *e);

/* An index over names: sorted, so that no choice of names makes it slow. */
typedef struct tg_name_entry {
    tg_str text;
    int32_t id;
} tg_name_entry;

typedef struct tg_name_index {
    tg_name_entry *sorted;
    int32_t n;
} tg_name_index;

/* Sorts n names in place. When two are equal *duplicate is one of them and the result is false. */
bool tg_names_init(tg_name_index *out, tg_name_entry *names, int32_t n, tg_str *duplicate);
/* -1 when it is not there. */
int32_t tg_names_find(const tg_name_index *x, tg_str text);
/* Appends "; the nearest is 'x'" for the name most like `text`, or nothing when none is like it:
 * the end of a message about an absent name. Compares with every name, so only for messages. */
void tg_names_print_hint(tg_buf *out, const tg_name_index *x, tg_str text);

/* Not empty, UTF-8, and no control characters: fit for a message. */
bool tg_name_is_printable(tg_str s);

/* Anything else from a file in a message: escaped and cut, as a value, tg_name_show(s).text. */
typedef struct tg_shown_name {
    char text[128];
} tg_shown_name;

tg_shown_name tg_name_show(tg_str s);

#endif
