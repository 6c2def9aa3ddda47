/* SPDX-License-Identifier: Apache-2.0
 * profile.h - costs of a step's operations, added up (internal to src/device).
 *
 * A row is an operation with the role of its first matrix, for one kind of step. Its time is thread
 * 0's, from the end of the instruction before to the barrier that ends this one: all the threads'
 * work and waits at barriers, so that the rows of a step sum to the step. Bytes and products are
 * what the arithmetic needs, not the fetches of a kernel: each weight once an instruction, each
 * visible cached position once a row. Rates made of them compare with the machine's peak rates. */
#ifndef TG_DEVICE_PROFILE_H
#define TG_DEVICE_PROFILE_H

#include "device/cpu_device.h"
#include "device/step.h"

typedef struct tg_profile tg_profile;

TG_MUST_USE tg_status tg_profile_new(tg_profile **out, tg_err *e);
void tg_profile_free(tg_profile *p); /* accepts NULL */

/* Thread 0 alone calls these. A step begins; then, after the barrier of each instruction: */
void tg_profile_begin(tg_profile *p, const tg_step *s);
void tg_profile_add(tg_profile *p, const tg_step_view *v, const tg_instr *x, int32_t layer);

/* The same in two: the time of thread 0's own blocks of tokens, one after the other, and the work
 * of all threads, once an instruction. */
void tg_profile_add_time(tg_profile *p, const tg_step_view *v, const tg_instr *x, int32_t layer);
void tg_profile_add_work(tg_profile *p, const tg_step_view *v, const tg_instr *x, int32_t layer);

/* Rows with calls, by kind, op and role. Returns how many there are; writes at most n_max. */
int32_t tg_profile_read(const tg_profile *p, tg_cpu_cost *rows, int32_t n_max);

#endif
