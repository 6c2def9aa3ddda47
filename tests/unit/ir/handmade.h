/* SPDX-License-Identifier: Apache-2.0
 * handmade.h - a program of one layer written down number by number: 40 ids, 39 of them used,
 * width 16, 2 heads of 8 on 1 KV head, 130 positions, f16 pages. */
#ifndef TG_TESTS_HANDMADE_H
#define TG_TESTS_HANDMADE_H

#include "ir/program.h"

#include <string.h>

enum { HAND_VALUES = 9, HAND_INSTRS = 7, HAND_WEIGHTS = 9, HAND_PLANS = 3 };

typedef struct handmade {
    tg_program program;
    tg_layer layers[1];
    tg_weight_entry weights[HAND_WEIGHTS];
    tg_plan plans[HAND_PLANS];
    tg_plan_value values[HAND_PLANS][HAND_VALUES];
    tg_instr instrs[HAND_INSTRS];
    tg_segment segments[3];
    int32_t layer_refs[1];
    int32_t outliers[2]; /* 0: the list of q, k and v; 0: of no weight */
} handmade;

static inline tg_instr hand_instr(tg_op op, int32_t out, int32_t in0, int32_t in1, tg_attrs attrs)
{
    tg_instr x = {.op = (int32_t)op, .out = out, .in = {in0, in1}, .attrs = attrs};
    for (int32_t i = 0; i < TG_MAX_WEIGHTS; i++)
        x.weights[i] = TG_NONE;
    return x;
}

static inline void hand_instrs(tg_instr *x)
{
    tg_attrs kv = {.n_heads = 2, .n_kv_heads = 1, .head_dim = 8};
    x[0] = hand_instr(TG_OP_EMBED, 1, 0, TG_NONE, (tg_attrs){.scale = 1});
    x[0].weights[0] = TG_W_EMBED;
    x[1] = hand_instr(TG_OP_QKV, 2, 1, TG_NONE, kv);
    x[1].attrs.rotary_dim = 8;
    x[1].attrs.eps = 1e-5f;
    x[1].weights[TG_SLOT_QKV_Q] = TG_W_Q;
    x[1].weights[TG_SLOT_QKV_K] = TG_W_K;
    x[1].weights[TG_SLOT_QKV_V] = TG_W_V;
    x[1].weights[TG_SLOT_QKV_NORM] = TG_W_ATTN_NORM;
    x[1].weights[TG_SLOT_QKV_ROPE] = TG_W_ROPE_0;
    x[2] = hand_instr(TG_OP_ATTENTION, 3, 2, TG_NONE, kv);
    x[2].attrs.scale = 0.25f;
    x[3] = hand_instr(TG_OP_MATMUL_ADD, 4, 1, 3, (tg_attrs){0});
    x[3].weights[TG_SLOT_W] = TG_W_O;
    x[4] = hand_instr(TG_OP_ROWS, 5, 1, TG_NONE, (tg_attrs){0});
    x[5] = hand_instr(TG_OP_MATMUL, 6, 5, TG_NONE, (tg_attrs){.eps = 1e-5f});
    x[5].weights[TG_SLOT_W] = TG_W_EMBED;
    x[5].weights[TG_SLOT_NORM] = TG_W_OUT_NORM;
    x[6] = hand_instr(TG_OP_SAMPLE, 7, 6, TG_NONE, (tg_attrs){0});
}

/* Values 1 (and 4, over it), 2, 3, 5 lie one after another; value 8 is of no use and lies over 2.
 * */
static inline void hand_values(tg_plan_value *v, int64_t tokens)
{
    int64_t step = (tokens * 16 * 4 + 63) / 64 * 64;
    v[0] = (tg_plan_value){TG_TYPE_I32, TG_DIM_T, 1, TG_NONE, TG_IO_TOKENS};
    v[1] = (tg_plan_value){TG_TYPE_F32, TG_DIM_T, 16, TG_NONE, 0};
    v[2] = (tg_plan_value){TG_TYPE_F32, TG_DIM_T, 16, TG_NONE, step};
    v[3] = (tg_plan_value){TG_TYPE_F32, TG_DIM_T, 16, TG_NONE, 2 * step};
    v[4] = (tg_plan_value){TG_TYPE_F32, TG_DIM_T, 16, 1, 0};
    v[5] = (tg_plan_value){TG_TYPE_F32, TG_DIM_R, 16, TG_NONE, step};
    v[6] = (tg_plan_value){TG_TYPE_F32, TG_DIM_R, 39, TG_NONE, TG_IO_LOGITS};
    v[7] = (tg_plan_value){TG_TYPE_I32, TG_DIM_R, 1, TG_NONE, TG_IO_IDS};
    v[8] = (tg_plan_value){TG_TYPE_F32, TG_DIM_T, 8, TG_NONE, step};
}

static inline void hand_weights(handmade *h)
{
    /* Q8_0: a tile of 16 rows x 64 columns has 1088 bytes; plain ones have rows * cols * 4. */
    const struct {
        tg_weight_role role;
        int32_t is_plain;
        int64_t rows, cols;
    } rows[HAND_WEIGHTS] = {
        {TG_W_EMBED, 0, 40, 16},    {TG_W_OUT_NORM, 1, 16, 1}, {TG_W_HEAD, 0, 40, 16},
        {TG_W_ATTN_NORM, 1, 16, 1}, {TG_W_Q, 0, 16, 16},       {TG_W_K, 0, 8, 16},
        {TG_W_V, 0, 8, 16},         {TG_W_O, 0, 16, 16},       {TG_W_ROPE_0, 1, 130, 8},
    };
    int64_t at = 0;
    for (int32_t i = 0; i < HAND_WEIGHTS; i++) {
        int64_t n = rows[i].is_plain ? (rows[i].rows * rows[i].cols * 4 + 63) / 64 * 64
                                     : (rows[i].rows + 15) / 16 * 1088;
        h->weights[i] =
            (tg_weight_entry){.role = (int32_t)rows[i].role,
                              .layout = rows[i].is_plain ? TG_LAYOUT_F32 : TG_LAYOUT_Q8_0,
                              .is_plain = rows[i].is_plain,
                              .rows = rows[i].rows,
                              .cols = rows[i].cols,
                              .offset = at,
                              .tile_stride = rows[i].is_plain ? 0 : 1088};
        bool is_qkv = rows[i].role >= TG_W_Q && rows[i].role <= TG_W_V;
        h->weights[i].n_outliers = is_qkv; /* the only group of 16 columns */
        at += n;
    }
    h->program.weights_bytes = at;
}

static inline void hand_make(handmade *h)
{
    const struct {
        tg_graph_kind kind;
        tg_bucket bucket;
    } plans[HAND_PLANS] = {{TG_KIND_CONTEXT, {2, 32, 32, 3}},
                           {TG_KIND_TOKEN, {2, 2, 2, 3}},
                           {TG_KIND_SPECULATE, {2, 8, 8, 3}}};
    memset(h, 0, sizeof *h);
    h->program = (tg_program){.n_vocab = 39,
                              .n_embed_rows = 40,
                              .width = 16,
                              .max_length = 130,
                              .batch = 2,
                              .speculation = 3,
                              .kv_type = TG_KV_F16,
                              .n_layers = 1,
                              .n_weights = HAND_WEIGHTS,
                              .n_kv_groups = 1,
                              .n_plans = HAND_PLANS,
                              .n_outliers = 2,
                              .outliers = h->outliers,
                              .layers = h->layers,
                              .weights = h->weights,
                              .plans = h->plans};
    /* 1 layer * 1 head * 8 dims * 64 positions * 2 (K, V) * 2 bytes */
    h->program.kv_groups[0] = (tg_kv_group){1, 1, 8, 0, 2048};
    hand_weights(h);
    hand_instrs(h->instrs);
    h->segments[0] = (tg_segment){0, 1, 0, 0};
    h->segments[1] = (tg_segment){1, 3, 0, 1};
    h->segments[2] = (tg_segment){4, 3, 1, 0};
    for (int32_t i = 0; i < HAND_PLANS; i++) {
        hand_values(h->values[i], plans[i].bucket.tokens);
        h->plans[i] = (tg_plan){.kind = (int32_t)plans[i].kind,
                                .bucket = plans[i].bucket,
                                .n_values = HAND_VALUES,
                                .n_instrs = HAND_INSTRS,
                                .n_segments = 3,
                                .n_layer_refs = 1,
                                .arena_bytes = 3 * h->values[i][2].offset,
                                .values = h->values[i],
                                .instrs = h->instrs,
                                .segments = h->segments,
                                .layer_refs = h->layer_refs};
    }
}

#endif
