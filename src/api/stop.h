/* SPDX-License-Identifier: Apache-2.0
 * stop.h - stop strings: where a completion ends, and how much of it can be shown already.
 *
 * The rule: reading the text byte by byte, the first stop string to be complete ends it; of several
 * that are complete at the same byte, the one that began first, which is the longest. So the result
 * depends on the text alone, never on how tokens cut it into pieces, and nothing waits longer than
 * it must: of "bcd" and "c" the text "abc" ends at "c", whether or not a "d" would follow. */
#ifndef TG_API_STOP_H
#define TG_API_STOP_H

#include "base/mem.h"
#include "base/str.h"

typedef struct tg_stop_scan {
    tg_str *strings; /* [n] in the arena given to init */
    int32_t n;
    size_t longest;
    tg_buf held; /* the end of the text so far: it may be the beginning of a stop string */
} tg_stop_scan;

/* Copies n strings into the arena, which outlives the scan. An empty one is an error. */
TG_MUST_USE tg_status tg_stop_scan_init(tg_stop_scan *x, tg_arena *arena,
                                        const char *const *strings, int32_t n, tg_err *e);
void tg_stop_scan_deinit(tg_stop_scan *x);

/* Appends to `out` what can be shown now that `text` has come: everything up to the stop string, or
 * up to what may become one. True when the text has ended; then nothing may be pushed after it. */
bool tg_stop_scan_push(tg_stop_scan *x, tg_buf *out, tg_str text);
/* The text ended without a stop string: appends what was held back. */
void tg_stop_scan_flush(tg_stop_scan *x, tg_buf *out);

#endif
