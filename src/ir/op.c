/* SPDX-License-Identifier: Apache-2.0
 * op.c - the rows of ops.def and weights.def as tables. They are constant data, so any thread may
 * read them at any time and a forgotten row does not compile. */
#include "ir/op.h"

#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* clang-format off */
/* ops.def's words for slots ... */
#define MATRIX(x) {.name = x}
#define PLAIN(x) {.name = x, .is_plain = true}
#define TABLE(x) {.name = x, .is_plain = true, .is_table = true}
#define MAYBE(x) {.name = x, .is_plain = true, .is_optional = true}
#define MAYBE_TABLE(x) {.name = x, .is_plain = true, .is_table = true, .is_optional = true}
#define SLOTS(...) \
    .n_slots = (int32_t)TG_COUNT(((const tg_weight_slot[]){__VA_ARGS__})), .slots = {__VA_ARGS__}
#define NO_SLOTS .n_slots = 0
/* ... and for properties. */
#define PROPERTIES(...) __VA_ARGS__
#define TOKEN_LOCAL .is_token_local = true
#define ANY_ROWS .takes_any_rows = true
#define TAKES_IDS .takes_ids = true
#define NO_RESULT .has_no_result = true
#define SUM .is_sum = true
#define LOOKUP .is_lookup = true
#define HAS_ACT .has_act = true
#define INTERLEAVES .is_interleaved = true
#define IN_PLACE .in_place = TG_IN_PLACE_ALLOWED
#define ALWAYS_IN_PLACE .in_place = TG_IN_PLACE_ALWAYS
#define READS_KV .kv = TG_OP_KV_READS
#define WRITES_KV .kv = TG_OP_KV_WRITES
#define MAKES_LOGITS .logits = TG_LOGITS_MAKES
#define CHANGES_LOGITS .logits = TG_LOGITS_CHANGES
#define TAKES_LOGITS .logits = TG_LOGITS_TAKES
#define NORM_IN(slot) .norm_slot = slot
/* clang-format on */

static const tg_op_row ops[TG_OP_COUNT] = {
#define TG_OP(NAME, op_name, inputs, slots_, properties, text)                                     \
    [TG_OP_##NAME] = {.name = #op_name, .n_inputs = inputs, .meaning = text, slots_, properties},
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
    static const char *const names[] = {[TG_ACT_SILU] = "silu", [TG_ACT_GELU_TANH] = "gelu_tanh"};
    return act >= 0 && act < TG_ACT_COUNT ? names[act] : "?";
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
    if (tg_op_get(op)->has_act) tg_buf_printf(out, " act=%s", tg_act_name(a->act));
    if (tg_op_get(op)->kv && a->kv_group != TG_NONE)
        tg_buf_printf(out, " kv_group=%d", a->kv_group);
}
