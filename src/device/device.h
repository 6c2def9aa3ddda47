/* SPDX-License-Identifier: Apache-2.0
 * device.h - a place that runs plans.
 *
 * A device loads a plan together with the rank's weight section (both borrowed: they are mapped and
 * outlive it), owns buffers that a step reads and writes, and runs steps. Arguments of a step, in
 * order: the input image, the output image (ir/io.h), then one KV pool per group. An exe runs on
 * one step at a time; submit queues it and wait returns when its outputs can be read.
 *
 * Nothing is allocated between submit and wait. */
#ifndef TG_DEVICE_DEVICE_H
#define TG_DEVICE_DEVICE_H

#include "ir/io.h"

typedef struct tg_device tg_device;
typedef struct tg_exe tg_exe;
typedef struct tg_dbuf tg_dbuf;

enum { TG_ARG_IN, TG_ARG_OUT, TG_ARG_KV };

typedef struct tg_device_ops {
    size_t struct_size; /* sizeof(tg_device_ops) as the implementer saw it */
    const char *name;   /* "cpu" */

    /* `options`: the implementer's own struct, NULL for defaults. */
    TG_MUST_USE tg_status (*open)(tg_device **out, const void *options, tg_err *e);
    void (*close)(tg_device *d); /* accepts NULL; frees every exe and buffer of d */

    /* Program, plan and weights are borrowed. */
    TG_MUST_USE tg_status (*load)(tg_exe **out, tg_device *d, const tg_program *p,
                                  const tg_plan *plan, const void *weights, tg_err *e);

    /* Zeroed memory the device can reach, committed as it is touched; lives until close. */
    TG_MUST_USE tg_status (*buffer)(tg_dbuf **out, tg_device *d, size_t n, tg_err *e);
    TG_MUST_USE tg_status (*write)(tg_dbuf *b, size_t at, const void *src, size_t n, tg_err *e);
    TG_MUST_USE tg_status (*read)(const tg_dbuf *b, size_t at, void *dst, size_t n, tg_err *e);

    /* Queues one step. None of the arguments may be touched before wait. */
    TG_MUST_USE tg_status (*submit)(tg_exe *x, tg_dbuf *const *args, int32_t n_args, tg_err *e);
    TG_MUST_USE tg_status (*wait)(tg_device *d, tg_err *e);

    /* Bytes that steps of a program touch on a device opened with `options`, all its plans filled:
     * beside the buffers, the weights and what a tg_device is itself. Nothing is opened. */
    TG_MUST_USE tg_status (*measure)(int64_t *out, const tg_program *p, const void *options,
                                     tg_err *e);
} tg_device_ops;

_Static_assert(offsetof(tg_device_ops, measure) + sizeof(void *) == sizeof(tg_device_ops),
               "new entries go last, and this line names the last one");

#endif
