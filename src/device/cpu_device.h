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

#endif
