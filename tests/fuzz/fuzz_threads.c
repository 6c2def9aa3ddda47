/* SPDX-License-Identifier: Apache-2.0
 * fuzz_threads.c - the public API called in any order by three threads at once, each with requests
 * of its own, on one started engine. The bytes of the input go to them by turns. */
#include "calls.h"

#include <pthread.h>

enum { N_CALLERS = 3 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

typedef struct program {
    caller caller;
    const uint8_t *data;
    size_t size;
    int first;
} program;

static void *run(void *context)
{
    program *p = context;
    for (size_t i = 2 * (size_t)p->first; i + 1 < p->size && i < 256; i += 2 * N_CALLERS)
        call(&p->caller, p->data[i], p->data[i + 1]);
    end_calls(&p->caller);
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_calls();
    program programs[N_CALLERS] = {{{0}, NULL, 0, 0}};
    pthread_t threads[N_CALLERS];
    tg_engine_options o = {.n_threads = 2};
    tg_engine *g;
    tg_err e = {0};
    must(tg_engine_open(&g, model, &o, &e), &e);
    must(tg_engine_start(g, &e), &e);
    for (int i = 0; i < N_CALLERS; i++) {
        programs[i] = (program){.caller = {.engine = g}, .data = data, .size = size, .first = i};
        if (pthread_create(&threads[i], NULL, run, &programs[i]) != 0) abort();
    }
    for (int i = 0; i < N_CALLERS; i++)
        pthread_join(threads[i], NULL);
    tg_engine_close(g);
    return 0;
}
