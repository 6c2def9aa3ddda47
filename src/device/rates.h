/* SPDX-License-Identifier: Apache-2.0
 * rates.h - what this machine's processors can do at this moment, measured by the threads of a team
 * with the tier's peak rates (internal to src/device). */
#ifndef TG_DEVICE_RATES_H
#define TG_DEVICE_RATES_H

#include "device/cpu_device.h"
#include "device/team.h"
#include "kernel/kernel.h"

void tg_rates_measure(tg_cpu_rates *out, tg_team *team, const tg_kernels *k, const void *memory,
                      size_t n_bytes);

#endif
