/* SPDX-License-Identifier: Apache-2.0
 * engine.h - what requests (engine.c) and measurements (measure.c) share of an engine.
 *
 * Two locks. `step_lock` is held while a step runs and by whoever takes a request out of the
 * scheduler: it protects executor, scheduler and tasks. `lock` is held for moments: it protects the
 * inbox and what readers of a request see. They are taken in this order; callbacks run under the
 * first one only. */
#ifndef TG_API_ENGINE_H
#define TG_API_ENGINE_H

#include "api/api.h"
#include "device/cpu_device.h"
#include "run/sched.h"

#include <pthread.h>

struct tg_engine {
    tg_model *model;
    tg_exec *exec;
    tg_sched *sched;
    pthread_mutex_t step_lock, lock;
    pthread_cond_t changed; /* with `lock`: a request came, ended, or the engine stops */
    tg_request *inbox;      /* submitted, not yet in the scheduler; oldest first */
    tg_request *running;    /* in the scheduler; may hold some that have just ended */
    pthread_t thread;
    bool is_started, is_stopping;
};

#endif
