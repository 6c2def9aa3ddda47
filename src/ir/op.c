/* SPDX-License-Identifier: Apache-2.0
 * op.c - the rows of ops.def and weights.def as tables. They are constant data, so any thread may
 * read them at any time and a forgotten row does not compile. */
#include "ir/op.h"

#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ops.def's slot words, as initialisers of n_slots and slots. */
#define MATRIX(name)                                                                               \
    {                                                                                              \
        name, false, false                                                                         \
    }
#define PLAIN(name)                                                                                \
    {                                                                                              \
        name, false, true                                                                          \
    }
#define MAYBE(name)                                                                                \
    {                                                                                              \
        name, true, true                                                                           \
    }
#define SLOTS(...)                                                                                 \
    (int32_t) TG_COUNT(((const tg_slot[]){__VA_ARGS__})),                                          \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
#define NO_SLOTS                                                                                   \
    0,                                                                                             \
    {                                                                                              \
        {                                                                                          \
            NULL, false, false                                                                     \
        }                                                                                          \
    }
/* One more step, so that the slot words are expanded before the row is taken apart. */
#define ROW(name, n_inputs, meaning, ...) {name, n_inputs, __VA_ARGS__, meaning},

static const tg_op_row ops[TG_OP_COUNT] = {
#define TG_OP(NAME, name, n_inputs, slots, meaning)                                                \
    [TG_OP_##NAME] = ROW(name, n_inputs, meaning, slots)
#include "ir/ops.def"
#undef TG_OP
};

static const struct {
    const char *name;
    bool is_per_layer;
} roles[TG_W_COUNT] = {
#define TG_WEIGHT(NAME, name, is_per_layer) [TG_W_##NAME] = {name, is_per_layer},
#include "ir/weights.def"
#undef TG_WEIGHT
};

const tg_op_row *tg_op_get(tg_op op)
{
    TG_ASSERT((int)op >= 0 && op < TG_OP_COUNT);
    return &ops[op];
}

bool tg_op_has_kv(tg_op op)
{
    return op == TG_OP_KV_WRITE || op == TG_OP_ATTENTION || op == TG_OP_QKV;
}

bool tg_op_is_always_in_place(tg_op op)
{
    return op == TG_OP_MATMUL_ADD || op == TG_OP_NORM_ADD;
}

bool tg_op_sees_other_tokens(tg_op op)
{
    return op == TG_OP_ATTENTION || op == TG_OP_ROWS;
}

bool tg_op_can_be_in_place(tg_op op)
{
    return tg_op_is_always_in_place(op) || op == TG_OP_ADD || op == TG_OP_ROPE || op == TG_OP_GLU ||
           op == TG_OP_RMS_NORM || op == TG_OP_LAYER_NORM || op == TG_OP_SCALE ||
           op == TG_OP_SOFTCAP;
}

const char *tg_weight_role_name(tg_weight_role role)
{
    TG_ASSERT((int)role >= 0 && role < TG_W_COUNT);
    return roles[role].name;
}

bool tg_weight_role_is_per_layer(tg_weight_role role)
{
    TG_ASSERT((int)role >= 0 && role < TG_W_COUNT);
    return roles[role].is_per_layer;
}

bool tg_weight_role_is_computed(tg_weight_role role)
{
    return role == TG_W_ROPE_0 || role == TG_W_ROPE_1;
}

const char *tg_act_name(int32_t act)
{
    static const char *const names[TG_N_ACTS] = {"silu", "gelu_tanh"};
    return act >= 0 && act < TG_N_ACTS ? names[act] : "?";
}

void tg_float_print(float f, tg_buf *out)
{
    char text[32];
    for (int digits = 1; digits <= 9; digits++) {
        tg_print(text, sizeof text, "%.*g", digits, (double)f);
        if (!isfinite(f) || tg_f32_parse(text, NULL) == f) break;
    }
    tg_buf_add_cstr(out, text);
}

static void print_float(const char *name, float f, tg_buf *out)
{
    if (f == 0) return;
    tg_buf_printf(out, " %s=", name);
    tg_float_print(f, out);
}

static void print_int(const char *name, int32_t n, tg_buf *out)
{
    if (n != 0) tg_buf_printf(out, " %s=%d", name, n);
}

void tg_slots_print(const int32_t *weights, tg_op op, tg_buf *out)
{
    const tg_op_row *row = tg_op_get(op);
    const char *between = " (";
    for (int32_t i = 0; i < row->n_slots; i++) {
        if (weights[i] == TG_NONE) continue;
        tg_buf_printf(out, "%s%s=%s", between, row->slots[i].name,
                      tg_weight_role_name((tg_weight_role)weights[i]));
        between = ", ";
    }
    if (between[0] == ',') tg_buf_add_byte(out, ')');
}

void tg_attrs_print(const tg_attrs *a, tg_op op, tg_buf *out)
{
    print_float("eps", a->eps, out);
    print_float("scale", a->scale, out);
    print_float("softcap", a->softcap, out);
    print_int("n_heads", a->n_heads, out);
    print_int("n_kv_heads", a->n_kv_heads, out);
    print_int("head_dim", a->head_dim, out);
    print_int("rotary_dim", a->rotary_dim, out);
    print_int("window", a->window, out);
    if (op == TG_OP_GLU || op == TG_OP_GLU_MATMUL)
        tg_buf_printf(out, " act=%s", tg_act_name(a->act));
    if (tg_op_has_kv(op) && a->kv_group != TG_NONE) tg_buf_printf(out, " kv_group=%d", a->kv_group);
}
