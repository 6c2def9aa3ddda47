/* SPDX-License-Identifier: Apache-2.0
 * safetensors.h - one safetensors file: its tensors and its notes, as views into the bytes.
 *
 * Accepts and refuses what the reference reader does: the header is at most 100 MB of JSON without
 * duplicate keys, tensors follow each other without holes or overlaps and fill the file exactly. */
#ifndef TG_FORMAT_SAFETENSORS_H
#define TG_FORMAT_SAFETENSORS_H

#include "format/tensor.h"

/* An entry of "__metadata__". */
typedef struct tg_note {
    tg_str key, value;
} tg_note;

typedef struct tg_safetensors {
    const char *file; /* for messages; borrowed */
    int32_t n_tensors, n_notes;
    tg_tensor *tensors; /* in the header's order; names end in a zero */
    tg_note *notes;
} tg_safetensors;

/* `data` is borrowed and must outlive *out; lists and names go into the arena. */
TG_MUST_USE tg_status tg_safetensors_parse(tg_safetensors *out, tg_arena *a, const uint8_t *data,
                                           size_t n_bytes, const char *file, tg_err *e);

#endif
