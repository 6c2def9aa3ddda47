/* SPDX-License-Identifier: Apache-2.0
 * op.h - operations, weight roles and attributes: the vocabulary of graphs and plans.
 *
 * ops.def and weights.def hold the rows; everything indexed by an op or a role is made from them, so a
 * forgotten row does not compile. */
#ifndef TG_IR_OP_H
#define TG_IR_OP_H

#include "base/err.h"

typedef enum tg_op {
#define TG_OP(NAME, name, n_inputs, weights, meaning) TG_OP_##NAME,
#include "ir/ops.def"
#undef TG_OP
    TG_OP_COUNT
} tg_op;

typedef enum tg_weight_role {
#define TG_WEIGHT(NAME, name, is_per_layer) TG_W_##NAME,
#include "ir/weights.def"
#undef TG_WEIGHT
    TG_W_COUNT
} tg_weight_role;

enum { TG_MAX_INPUTS = 2, TG_MAX_WEIGHTS = 10, TG_NONE = -1 };

typedef struct tg_op_row {
    const char *name;
    int32_t n_inputs;
    int32_t n_weights;                      /* slots, optional ones included */
    const char *slot_names[TG_MAX_WEIGHTS]; /* "q", "norm", ... in slot order */
    bool is_optional[TG_MAX_WEIGHTS];
    const char *meaning;
} tg_op_row;

const tg_op_row *tg_op_get(tg_op op);
const char *tg_weight_role_name(tg_weight_role role);
bool tg_weight_role_is_per_layer(tg_weight_role role);

/* Slots of the fused ops, in the order of ops.def. */
enum { TG_SLOT_W = 0, TG_SLOT_BIAS = 1, TG_SLOT_NORM = 2 };
enum {
    TG_SLOT_QKV_Q,
    TG_SLOT_QKV_K,
    TG_SLOT_QKV_V,
    TG_SLOT_QKV_Q_BIAS,
    TG_SLOT_QKV_K_BIAS,
    TG_SLOT_QKV_V_BIAS,
    TG_SLOT_QKV_NORM,
    TG_SLOT_QKV_Q_NORM,
    TG_SLOT_QKV_K_NORM,
    TG_SLOT_QKV_ROPE
};
enum {
    TG_SLOT_GLU_GATE,
    TG_SLOT_GLU_UP,
    TG_SLOT_GLU_NORM,
    TG_SLOT_GLU_GATE_BIAS,
    TG_SLOT_GLU_UP_BIAS
};

/* Attributes of a node or an instruction; each op reads those its row speaks of, the rest are zero. Plain
 * numbers without padding: plans hold them as they are. */
typedef struct tg_attrs {
    float eps;       /* rms_norm and every op with a norm slot */
    float scale;     /* embed: factor; attention: of the scores */
    int32_t n_heads; /* query heads */
    int32_t n_kv_heads;
    int32_t head_dim;
    int32_t rotary_dim; /* leading dimensions of a head that rotate; 0: none */
    int32_t window;     /* attention: keys seen, itself included; 0: all */
    int32_t act;        /* glu: tg_act */
    int32_t kv_group;   /* set by the pass that groups layers (compile/group.c) */
} tg_attrs;

#endif
