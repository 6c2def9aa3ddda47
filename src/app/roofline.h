/* SPDX-License-Identifier: Apache-2.0
 * roofline.h - what a step needs, held against what the machine gave in the same seconds.
 *
 * A machine is slower one minute and faster the next, so its rates are measured right before and
 * after each run, by the threads that run it. Bytes are compared with reading a buffer of the
 * weights' size over and over, because some of it stays in the caches from one token to the next;
 * products with the widest dot of bytes that the engine's tier has. */
#ifndef TG_APP_ROOFLINE_H
#define TG_APP_ROOFLINE_H

#include "app/costs.h"
#include "app/trial.h"
#include "base/mem.h"

typedef struct tg_roofline {
    int32_t n_rows; /* 0: not measured */
    int32_t n_threads, n_runs;
    /* Of a token step; and of a prompt's token. */
    double weight_bytes, cache_bytes, products, prompt_products;
    size_t cyclic_bytes, memory_bytes; /* what is read, of the buffer */
    void *buffer;
    /* By run, then sorted. */
    double *cyclic, *dots, *decode, *prompt; /* bytes, products, tokens, tokens a second */
    double *decode_share, *decode_dots_share, *prompt_share;
    double memory_rate, round_trip_ns;
} tg_roofline;

/* Takes the needs from a profile of one run and makes the buffer. */
TG_MUST_USE tg_status tg_roofline_init(tg_roofline *r, const tg_costs *c, int32_t n_rows,
                                       int32_t n_runs, tg_arena *arena, tg_err *e);
void tg_roofline_deinit(tg_roofline *r);

/* The machine before run i, and the machine after it with what it reached. */
void tg_roofline_begin_run(tg_roofline *r, int32_t i, tg_engine *g);
void tg_roofline_end_run(tg_roofline *r, int32_t i, tg_engine *g, double decode, double prompt);
/* After the runs. */
void tg_roofline_finish(tg_roofline *r, tg_engine *g);

void tg_roofline_print(const tg_roofline *r, tg_buf *out);
/* Appends the member "roofline". */
void tg_roofline_report(const tg_roofline *r, tg_buf *out);

#endif
