/* SPDX-License-Identifier: Apache-2.0
 * toyprogram.h - the toy through all passes, packed as q8_0 with an f16 head. */
#ifndef TG_TESTS_TOYPROGRAM_H
#define TG_TESTS_TOYPROGRAM_H

#include "compile/pass.h"
#include "unit/ir/toy.h"

/* Ids that exist: one embedding row is surplus. */
enum { TOY_IDS = TOY_VOCAB - 1 };

static inline tg_status toy_choose(void *context, tg_weight_role role, int32_t layer, bool is_plain,
                                   tg_layout *out, tg_err *e)
{
    (void)context, (void)layer, (void)is_plain, (void)e;
    *out = role == TG_W_HEAD ? TG_LAYOUT_F16 : TG_LAYOUT_Q8_0;
    return TG_OK;
}

static inline tg_program toy_numbers(void)
{
    return (tg_program){.n_vocab = TOY_IDS,
                        .n_embed_rows = TOY_VOCAB,
                        .width = TOY_WIDTH,
                        .max_length = TOY_LENGTH,
                        .batch = 2,
                        .speculation = 3,
                        .kv_type = TG_KV_F16};
}

/* From a built graph on; `is_fused` leaves the first pass out when false. */
static inline tg_status toy_lower(tg_graph *g, bool is_fused, tg_program *p, tg_arena *arena,
                                  tg_err *e)
{
    static const int32_t buckets[] = {5, 32, 64};
    *p = toy_numbers();
    if (is_fused) TG_TRY(tg_graph_fuse(g, e));
    TG_TRY(tg_graph_group(g, p, arena, e));
    TG_TRY(tg_graph_place_weights(g, p, arena, toy_choose, NULL, e));
    TG_TRY(tg_graph_plan(g, p, buckets, (int32_t)TG_COUNT(buckets), arena, e));
    return tg_program_check(p, e);
}

/* The variants that tests go through. */
static const toy toys[] = {
    {.n_layers = 1},
    {.n_layers = 2, .is_tied = true},
    {.n_layers = 3, .has_bias = true},
    {.n_layers = 7, .is_gemma = true, .is_tied = true},
    {.n_layers = 4, .is_gemma = true, .has_bias = true},
};

#endif
