/* SPDX-License-Identifier: Apache-2.0
 * fuzz_calls.c - the public API called in any order by one thread; the engine steps when it is told
 * to, on a thread of its own, and both by turns. Done twice, the second time leaves nothing
 * allocated. */
#include "base/mem.h"
#include "calls.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void run(const uint8_t *data, size_t size)
{
    caller c = {.may_step = true};
    tg_engine_options o = {.n_threads = size > 0 && data[0] & 1 ? 2 : 1};
    tg_err e = {0};
    must(tg_engine_open(&c.engine, model, &o, &e), &e);
    for (size_t i = 0; i + 1 < size && i < 256; i += 2) {
        if (data[i] < 0xf0) {
            call(&c, data[i], data[i + 1]);
        } else if (c.may_step) {
            must(tg_engine_start(c.engine, &e), &e);
            c.may_step = false;
        } else {
            tg_engine_stop(c.engine);
            c.may_step = true;
        }
    }
    end_calls(&c);
    tg_engine_close(c.engine);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    begin_calls();
    run(data, size);
    /* A text keeps the memory that its first uses needed; the second time nothing is new. */
    int64_t n_alive = tg_mem_n_alive();
    run(data, size);
    TG_ASSERT(tg_mem_n_alive() == n_alive);
    return 0;
}
