/* SPDX-License-Identifier: Apache-2.0
 * cpu_device.h - the host's processors as a device.
 *
 * Work inside a step is split over a team of threads by rows of weights, by tokens or by heads,
 * never along a sum, so that the number of threads changes no bit. Each thread always owns the same
 * rows, so its weights stay in its own cache. Kernels are chosen when the device is opened, for the
 * tier of this machine; TG_VERBOSE=dispatch says which tier serves which operation. */
#ifndef TG_DEVICE_CPU_DEVICE_H
#define TG_DEVICE_CPU_DEVICE_H

#include "device/device.h"

typedef struct tg_cpu_options {
    int32_t n_threads; /* 0: every processor that affinity and the control group allow */
    const char *tier;  /* NULL: TG_CPU, else the best */
} tg_cpu_options;

extern const tg_device_ops tg_cpu_device_ops;

typedef struct tg_cpu_info {
    int32_t n_threads;
    const char *tier; /* static */
} tg_cpu_info;

tg_cpu_info tg_cpu_device_get_info(const tg_device *d);

/* The cost of one operation since the profile began, for one kind of step (profile.h says how it
 * is counted). */
typedef struct tg_cpu_cost {
    int32_t kind, op,
        role;         /* tg_graph_kind, tg_op; tg_weight_role of its first matrix or TG_NONE */
    int64_t n_steps;  /* of that kind */
    int64_t n_tokens; /* in them */
    int64_t n_calls, ns, n_bytes, n_products;
} tg_cpu_cost;

/* From begin to end every instruction is timed; beginning again starts from nothing. Outside, it
 * costs one branch an instruction. Not while a step runs. */
TG_MUST_USE tg_status tg_cpu_device_begin_profile(tg_device *d, tg_err *e);
void tg_cpu_device_end_profile(tg_device *d);
/* Returns how many rows there are, 0 without a profile; writes at most n_max of them. */
int32_t tg_cpu_device_read_profile(const tg_device *d, tg_cpu_cost *rows, int32_t n_max);

typedef struct tg_cpu_rates {
    double read_bytes_per_s; /* of n_bytes over and over, each thread its own part */
    double products_per_s;   /* of bytes, added up as 32-bit integers, by all threads */
    double round_trip_ns;    /* of a cache line between threads 0 and 1; 0 with one thread */
} tg_cpu_rates;

/* Measures the machine by the device's threads, for about 50 ms, or three times over memory, which
 * is 64-byte aligned. Not while a step runs. */
tg_cpu_rates tg_cpu_device_measure_rates(tg_device *d, const void *memory, size_t n_bytes);

/* What a step multiplies a matrix by: n_rows rows of w->cols numbers. */
typedef struct tg_cpu_input {
    const float *x; /* before they are quantized, `stride` apart */
    int64_t stride;
    const float *scales; /* [n_rows][scale_stride], one for each group of 32 columns; they mean
                            something where the matrix is quantized */
    int64_t scale_stride;
    int32_t n_rows;
} tg_cpu_input;

/* Called once for each matrix of each step, for the head only where outputs are wanted; for
 * different matrices by several threads at once. */
typedef void tg_cpu_watch_fn(void *context, const tg_weight_entry *w, const tg_cpu_input *in);

/* Shows every product's input to `watch` from the next step on; NULL ends it. */
void tg_cpu_device_watch(tg_device *d, tg_cpu_watch_fn *watch, void *context);

/* The result of an instruction: n_rows rows of `width` numbers. */
typedef struct tg_cpu_result {
    const tg_instr *instr; /* of the step's plan */
    int32_t layer;         /* 0 outside layers */
    const float *x;
    int64_t stride;
    int32_t n_rows, width;
} tg_cpu_result;

/* Called after each instruction that makes floats, in the order of execution and by one thread. */
typedef void tg_cpu_show_fn(void *context, const tg_cpu_result *r);

/* Shows every result to `show` from the next step on; NULL ends it. Outside, it costs one branch an
 * instruction. */
void tg_cpu_device_show(tg_device *d, tg_cpu_show_fn *show, void *context);

#endif
