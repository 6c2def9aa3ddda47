/* SPDX-License-Identifier: Apache-2.0
 * program.bin: any bytes either are refused with a message, or describe plans in which everything a
 * device would touch is where it says. */
#include "base/mem.h"
#include "ir/io.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every weight that an instruction names is there for the layer, and inside the file. */
static void check_weights(const tg_program *p, const tg_instr *x, int32_t layer)
{
    for (int32_t i = 0; i < TG_MAX_WEIGHTS; i++) {
        if (x->weights[i] == TG_NONE) continue;
        const tg_weight_entry *w = tg_program_find_weight(p, (tg_weight_role)x->weights[i], layer);
        if (!w || w->offset < 0) abort();
        int64_t n = w->is_plain
                        ? w->rows * w->cols * 4
                        : (w->rows - 1) / TG_TILE_ROWS * w->tile_stride + tg_weight_tile_bytes(w);
        if (n < 1 || n > p->weights_bytes - w->offset) abort();
    }
}

static void check_plan(const tg_program *p, const tg_plan *plan)
{
    tg_io io;
    tg_io_find(&io, p, plan);
    if (io.out_bytes < io.logits || io.in_bytes < io.adjust) abort();
    for (int32_t i = 0; i < plan->n_values; i++) {
        const tg_plan_value *v = &plan->values[i];
        if (v->offset >= 0 && v->offset + tg_plan_value_bytes(plan, v) > plan->arena_bytes) abort();
    }
    for (int32_t s = 0; s < plan->n_segments; s++) {
        const tg_segment *g = &plan->segments[s];
        for (int32_t i = 0; i < g->n_instrs; i++)
            for (int32_t l = 0; l < TG_MAX(g->n_layers, 1); l++)
                check_weights(p, &plan->instrs[g->first_instr + i],
                              g->n_layers ? plan->layer_refs[g->first_layer + l] : 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tg_arena arena = {0};
    tg_program p;
    tg_err e = {0};
    /* As aligned as a mapping. Exactly its size, so that a read behind it is seen. */
    uint8_t *block = NULL;
    if (posix_memalign((void **)&block, 64, size ? size : 1) != 0) return 0;
    if (size) memcpy(block, data, size);
    if (tg_program_open(&p, &arena, block, size, &e) == TG_OK) {
        tg_buf text = {0};
        tg_program_print(&p, &text);
        for (int32_t i = 0; i < p.n_plans; i++) {
            check_plan(&p, &p.plans[i]);
            tg_plan_print(&p, &p.plans[i], &text);
        }
        tg_buf_deinit(&text);
    } else if (e.msg[0] == 0) {
        abort(); /* never without a word */
    }
    free(block);
    tg_arena_deinit(&arena);
    if (tg_mem_n_alive() != 0) abort();
    return 0;
}
