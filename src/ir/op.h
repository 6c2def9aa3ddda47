/* SPDX-License-Identifier: Apache-2.0
 * op.h - operations, weight roles and attributes: the vocabulary of graphs and plans.
 *
 * ops.def and weights.def hold the rows; everything indexed by an op or a role is made from them,
 * so a forgotten row does not compile. */
#ifndef TG_IR_OP_H
#define TG_IR_OP_H

#include "base/str.h"
#include "format/act.h"

typedef enum tg_op {
#define TG_OP(NAME, ...) TG_OP_##NAME,
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

typedef struct tg_weight_slot {
    const char *name; /* "q", "norm", ... */
    bool is_optional;
    bool is_plain; /* a float32 vector or table; otherwise a matrix in tiles */
    bool is_table; /* a plain one with a row for each position */
} tg_weight_slot;

/* Whether a result is written over the first input. */
typedef enum tg_op_in_place {
    TG_IN_PLACE_NEVER,
    TG_IN_PLACE_ALLOWED,
    TG_IN_PLACE_ALWAYS
} tg_op_in_place;

/* Whether an op uses KV pages; attr.kv_group says whose. */
typedef enum tg_op_kv { TG_OP_KV_NONE, TG_OP_KV_READS, TG_OP_KV_WRITES } tg_op_kv;

/* How an op uses the logits of a step, which lie in the step's output. */
typedef enum tg_op_logits {
    TG_LOGITS_NONE,
    TG_LOGITS_MAKES,   /* its result may be the logits: surplus rows are not computed */
    TG_LOGITS_CHANGES, /* may change them where they lie */
    TG_LOGITS_TAKES    /* reads them, gives ids and ends the plan */
} tg_op_logits;

/* A row of ops.def. The word that sets a property stands behind it; a property that no word sets is
 * 0, and 0 is what is always right, if slower. */
typedef struct tg_op_row {
    const char *name;
    int32_t n_inputs;
    int32_t n_slots; /* optional ones included */
    tg_weight_slot slots[TG_MAX_WEIGHTS];
    const char *meaning;
    /* TOKEN_LOCAL: the result's row of a token is made from the same row of the inputs. Without it
     * the op sees other tokens: all of them must have come so far. */
    bool is_token_local;
    /* ANY_ROWS: uses no position and no page, so it runs on output rows as on tokens. Without it
     * the first input must be one row per token. */
    bool takes_any_rows;
    bool takes_ids;          /* TAKES_IDS: its input is the step's tokens, not floats */
    bool has_no_result;      /* NO_RESULT */
    bool is_sum;             /* SUM: adds to its first input, which may be the residual stream */
    bool is_lookup;          /* LOOKUP: takes one row of its matrix per token, multiplies none */
    bool has_act;            /* HAS_ACT: reads attr.act */
    bool is_interleaved;     /* INTERLEAVES: slots 0 and 1 lie tile by tile where tiles are alike */
    tg_op_in_place in_place; /* IN_PLACE, ALWAYS_IN_PLACE */
    tg_op_kv kv;             /* READS_KV, WRITES_KV */
    tg_op_logits logits;     /* MAKES_LOGITS, CHANGES_LOGITS, TAKES_LOGITS */
    int32_t norm_slot;       /* NORM_IN: where fusion puts a norm of the input; 0: nowhere */
} tg_op_row;

const tg_op_row *tg_op_get(tg_op op);

const char *tg_weight_role_name(tg_weight_role role);
bool tg_weight_role_is_per_layer(tg_weight_role role);
/* No tensor of a checkpoint: made at export. */
bool tg_weight_role_is_computed(tg_weight_role role);

/* Slots in the order of ops.def: of matmul (and matmul_add; layer_norm has its bias there too),
 * qkv, glu_matmul. The first slot of embed, the norms, rope and norm_add is 0. */
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

/* Attributes of a node or an instruction; each op reads those its row speaks of, the rest are zero.
 * Plain numbers without padding: plans hold them as they are. */
typedef struct tg_attrs {
    float eps;       /* norms and every op with a norm slot */
    float scale;     /* embed, scale: factor; attention: of the scores */
    float softcap;   /* softcap; attention: of the scaled scores, 0: none */
    int32_t n_heads; /* query heads */
    int32_t n_kv_heads;
    int32_t head_dim;
    int32_t rotary_dim; /* leading dimensions of a head that rotate; 0: none */
    int32_t window;   /* attention: newest keys that a token attends to, its own included; 0: all */
    int32_t act;      /* glu: tg_act */
    int32_t kv_group; /* of kv_write, attention and qkv: set by compile/group.c, TG_NONE before */
} tg_attrs;

_Static_assert(sizeof(tg_attrs) == 40, "attributes are part of the program's format");

const char *tg_act_name(int32_t act); /* "silu", "gelu_tanh"; "?" for what is no tg_act */

/* Appends " (w=q, norm=attn_norm)": the roles [TG_MAX_WEIGHTS] that fill the slots of op. */
void tg_slots_print(const int32_t *weights, tg_op op, tg_buf *out);
/* Appends " eps=1e-05 n_heads=9": the attributes that op reads and that are set, as dumps show
 * them. */
void tg_attrs_print(const tg_attrs *a, tg_op op, tg_buf *out);
/* Appends the shortest decimal that reads back as f. */
void tg_float_print(float f, tg_buf *out);

#endif
