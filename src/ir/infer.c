/* SPDX-License-Identifier: Apache-2.0
 * infer.c - shape rules, one function an operation.
 *
 * A rule checks widths against weights first and attributes after, so that the message names the
 * tensor, which a user can look at, before a number that only we know. Products are taken in 64
 * bits: every factor comes from a file in the end. The result starts as a copy of the first
 * input's kind in float32, which is right for most; a rule changes what differs. */
#include "ir/infer.h"

#include "base/number.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

/* "qkv (q=q, norm=attn_norm)" for messages. */
static void print_op(const tg_infer *x, char *out, size_t size)
{
    const tg_op_row *row = tg_op_get(x->op);
    int at = snprintf(out, size, "%s", row->name);
    const char *between = " (";
    for (int32_t i = 0; i < row->n_slots && at >= 0 && (size_t)at < size; i++) {
        if (x->roles[i] == TG_NONE) continue;
        at += snprintf(out + at, size - (size_t)at, "%s%s=%s", between, row->slots[i].name,
                       tg_weight_role_name((tg_weight_role)x->roles[i]));
        between = ", ";
    }
    if (between[0] == ',' && (size_t)at < size) snprintf(out + at, size - (size_t)at, ")");
}

TG_PRINTF(3, 4) static tg_status fail(const tg_infer *x, tg_err *e, const char *fmt, ...)
{
    char op[200], why[256];
    print_op(x, op, sizeof op);
    va_list ap;
    va_start(ap, fmt);
    tg_vprint(why, sizeof why, fmt, ap);
    va_end(ap);
    return tg_fail(e, TG_E_CORRUPT, "%s: %s", op, why);
}

static bool has(const tg_infer *x, int slot)
{
    return x->roles[slot] != TG_NONE;
}

/* A matrix in `slot` that takes n_cols numbers. */
static tg_status check_cols(const tg_infer *x, int slot, int64_t n_cols, tg_err *e)
{
    if (x->weights[slot].cols == n_cols) return TG_OK;
    return fail(x, e,
                "the input is %" PRId64 " wide, but weight '%s' is [%" PRId64 ", %" PRId64 "]",
                n_cols, tg_weight_role_name((tg_weight_role)x->roles[slot]), x->weights[slot].rows,
                x->weights[slot].cols);
}

/* A vector of n numbers in `slot`, if there is one. */
static tg_status check_vector(const tg_infer *x, int slot, int64_t n, tg_err *e)
{
    const tg_weight_shape *w = &x->weights[slot];
    if (!has(x, slot) || (w->rows == n && w->cols == 1)) return TG_OK;
    return fail(x, e,
                "weight '%s' is [%" PRId64 ", %" PRId64 "] where %" PRId64 " numbers are needed",
                tg_weight_role_name((tg_weight_role)x->roles[slot]), w->rows, w->cols, n);
}

static tg_status check_rows(const tg_infer *x, int slot, int64_t n_rows, tg_err *e)
{
    if (x->weights[slot].rows == n_rows) return TG_OK;
    return fail(x, e, "weight '%s' has %" PRId64 " rows where %" PRId64 " are needed",
                tg_weight_role_name((tg_weight_role)x->roles[slot]), x->weights[slot].rows, n_rows);
}

/* `uses_norm`: some weight makes the op read attr.eps. */
static tg_status check_eps(const tg_infer *x, bool uses_norm, tg_err *e)
{
    float eps = x->attrs->eps;
    if (!uses_norm || (isfinite(eps) && eps >= 0)) return TG_OK;
    return fail(x, e, "eps is %g; it must be a finite number, 0 or more", (double)eps);
}

static tg_status check_head_dim(const tg_infer *x, tg_err *e)
{
    int32_t n = x->attrs->head_dim;
    if (n > 0 && n <= TG_MAX_HEAD_DIM && n % TG_HEAD_DIM_STEP == 0) return TG_OK;
    return fail(x, e, "head_dim %d is not a multiple of %d from %d to %d", n, TG_HEAD_DIM_STEP,
                TG_HEAD_DIM_STEP, TG_MAX_HEAD_DIM);
}

static tg_status check_heads(const tg_infer *x, int32_t n_heads, int64_t width, const char *what,
                             tg_err *e)
{
    TG_TRY(check_head_dim(x, e));
    if (n_heads > 0 && (int64_t)n_heads * x->attrs->head_dim == width) return TG_OK;
    return fail(x, e, "%s is %" PRId64 " wide, but there are %d heads of %d", what, width, n_heads,
                x->attrs->head_dim);
}

static tg_status check_grouping(const tg_infer *x, tg_err *e)
{
    int32_t q = x->attrs->n_heads, k = x->attrs->n_kv_heads;
    if (q > 0 && k > 0 && q % k == 0) return TG_OK;
    return fail(x, e, "%d query heads cannot be shared evenly by %d KV heads", q, k);
}

static tg_status check_rope(const tg_infer *x, int slot, tg_err *e)
{
    int32_t n = x->attrs->rotary_dim;
    if (!has(x, slot))
        return n == 0 ? TG_OK : fail(x, e, "rotary_dim is %d without a rope table", n);
    TG_TRY(check_head_dim(x, e));
    if (n < 2 || n % 2 || n > x->attrs->head_dim)
        return fail(x, e, "rotary_dim %d is not an even number from 2 to head_dim %d", n,
                    x->attrs->head_dim);
    return check_cols(x, slot, n, e);
}

static tg_status check_alike(const tg_infer *x, tg_err *e)
{
    if (x->in[0].dim != x->in[1].dim)
        return fail(x, e, "one input counts tokens, the other output rows");
    if (x->in[0].width == x->in[1].width) return TG_OK;
    return fail(x, e, "the inputs are %d and %d wide", x->in[0].width, x->in[1].width);
}

static tg_status check_act(const tg_infer *x, tg_err *e)
{
    int32_t act = x->attrs->act;
    return act >= 0 && act < TG_ACT_COUNT ? TG_OK : fail(x, e, "activation %d is unknown", act);
}

static tg_status check_scale(const tg_infer *x, tg_err *e)
{
    return isfinite(x->attrs->scale) ? TG_OK : fail(x, e, "the scale is not a finite number");
}

static tg_status check_softcap(const tg_infer *x, tg_err *e)
{
    float softcap = x->attrs->softcap;
    return isfinite(softcap) && softcap > 0
               ? TG_OK
               : fail(x, e, "the softcap is %g; it must be a finite number above 0",
                      (double)softcap);
}

/* ---- the rules, each what ops.def's row of that name says. *out is a copy of the first input. */

static tg_status infer_scale(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    return check_scale(x, e);
}

static tg_status infer_softcap(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    return check_softcap(x, e);
}

static tg_status infer_add(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    return check_alike(x, e);
}

static tg_status infer_embed(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    if (x->in[0].width != 1) return fail(x, e, "tokens are %d wide instead of 1", x->in[0].width);
    TG_TRY(check_scale(x, e));
    out->width = (int32_t)x->weights[0].cols;
    return TG_OK;
}

static tg_status infer_rms_norm(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    int32_t n = x->attrs->head_dim, width = x->in[0].width;
    if (n < 0 || (n > 0 && width % n != 0))
        return fail(x, e, "heads of %d do not divide a width of %d", n, width);
    TG_TRY(check_eps(x, true, e));
    return check_vector(x, 0, n ? n : width, e);
}

static tg_status infer_layer_norm(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    TG_TRY(check_eps(x, true, e));
    TG_TRY(check_vector(x, TG_SLOT_W, x->in[0].width, e));
    return check_vector(x, TG_SLOT_BIAS, x->in[0].width, e);
}

static tg_status infer_matmul(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    TG_TRY(check_cols(x, TG_SLOT_W, x->in[0].width, e));
    TG_TRY(check_vector(x, TG_SLOT_BIAS, x->weights[TG_SLOT_W].rows, e));
    TG_TRY(check_eps(x, has(x, TG_SLOT_NORM), e));
    TG_TRY(check_vector(x, TG_SLOT_NORM, x->in[0].width, e));
    out->width = (int32_t)x->weights[TG_SLOT_W].rows;
    return TG_OK;
}

static tg_status infer_matmul_add(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    TG_TRY(check_cols(x, TG_SLOT_W, x->in[1].width, e));
    TG_TRY(check_vector(x, TG_SLOT_BIAS, x->weights[TG_SLOT_W].rows, e));
    if (x->in[0].dim != x->in[1].dim) return check_alike(x, e);
    return check_rows(x, TG_SLOT_W, out->width, e);
}

static tg_status infer_rope(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    TG_TRY(check_head_dim(x, e));
    if (x->in[0].width % x->attrs->head_dim != 0)
        return fail(x, e, "heads of %d do not divide a width of %d", x->attrs->head_dim,
                    x->in[0].width);
    return check_rope(x, 0, e);
}

static tg_status infer_attention(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    TG_TRY(check_heads(x, x->attrs->n_heads, x->in[0].width, "q", e));
    if (x->attrs->window < 0) return fail(x, e, "the window is %d; 0 means none", x->attrs->window);
    TG_TRY(check_scale(x, e));
    if (x->attrs->softcap != 0) TG_TRY(check_softcap(x, e));
    return check_grouping(x, e);
}

static tg_status infer_kv_write(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    TG_TRY(check_alike(x, e));
    out->width = 0;
    return check_heads(x, x->attrs->n_kv_heads, x->in[0].width, "k", e);
}

static tg_status infer_qkv(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    const tg_weight_shape *w = x->weights;
    for (int i = 0; i < 3; i++) {
        TG_TRY(check_cols(x, TG_SLOT_QKV_Q + i, x->in[0].width, e));
        TG_TRY(check_vector(x, TG_SLOT_QKV_Q_BIAS + i, w[TG_SLOT_QKV_Q + i].rows, e));
    }
    TG_TRY(check_heads(x, x->attrs->n_heads, w[TG_SLOT_QKV_Q].rows, "q", e));
    TG_TRY(check_heads(x, x->attrs->n_kv_heads, w[TG_SLOT_QKV_K].rows, "k", e));
    TG_TRY(check_heads(x, x->attrs->n_kv_heads, w[TG_SLOT_QKV_V].rows, "v", e));
    TG_TRY(check_grouping(x, e));
    bool uses_norm =
        has(x, TG_SLOT_QKV_NORM) || has(x, TG_SLOT_QKV_Q_NORM) || has(x, TG_SLOT_QKV_K_NORM);
    TG_TRY(check_eps(x, uses_norm, e));
    TG_TRY(check_vector(x, TG_SLOT_QKV_NORM, x->in[0].width, e));
    TG_TRY(check_vector(x, TG_SLOT_QKV_Q_NORM, x->attrs->head_dim, e));
    TG_TRY(check_vector(x, TG_SLOT_QKV_K_NORM, x->attrs->head_dim, e));
    out->width = (int32_t)w[TG_SLOT_QKV_Q].rows;
    return check_rope(x, TG_SLOT_QKV_ROPE, e);
}

static tg_status infer_glu_matmul(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    int64_t rows = x->weights[TG_SLOT_GLU_GATE].rows;
    TG_TRY(check_cols(x, TG_SLOT_GLU_GATE, x->in[0].width, e));
    TG_TRY(check_cols(x, TG_SLOT_GLU_UP, x->in[0].width, e));
    TG_TRY(check_rows(x, TG_SLOT_GLU_UP, rows, e));
    TG_TRY(check_vector(x, TG_SLOT_GLU_GATE_BIAS, rows, e));
    TG_TRY(check_vector(x, TG_SLOT_GLU_UP_BIAS, rows, e));
    TG_TRY(check_eps(x, has(x, TG_SLOT_GLU_NORM), e));
    TG_TRY(check_vector(x, TG_SLOT_GLU_NORM, x->in[0].width, e));
    out->width = (int32_t)rows;
    return check_act(x, e);
}

static tg_status infer_rows(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)x, (void)e;
    out->dim = TG_DIM_R;
    return TG_OK;
}

static tg_status infer_sample(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    if (x->in[0].dim != TG_DIM_R) return fail(x, e, "the logits must be those of output rows");
    *out = (tg_value_info){TG_TYPE_I32, TG_DIM_R, 1};
    return TG_OK;
}

static tg_status infer_norm_add(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    TG_TRY(check_alike(x, e));
    TG_TRY(check_eps(x, true, e));
    return check_vector(x, 0, x->in[1].width, e);
}

static tg_status infer_glu(const tg_infer *x, tg_value_info *out, tg_err *e)
{
    (void)out;
    TG_TRY(check_alike(x, e));
    return check_act(x, e);
}

/* Done before any rule, so that a rule may use every required weight and input without asking.
 * Holds for every op: inputs of the right type, required weights there, sizes that fit. */
static tg_status check_common(const tg_infer *x, tg_err *e)
{
    const tg_op_row *row = tg_op_get(x->op);
    for (int32_t i = 0; i < row->n_inputs; i++) {
        tg_value_type want = row->takes_ids ? TG_TYPE_I32 : TG_TYPE_F32;
        if (x->in[i].type != want)
            return fail(x, e, "input %d must be %s", i, want == TG_TYPE_I32 ? "int32" : "float32");
        if (x->in[i].width <= 0) return fail(x, e, "input %d is %d wide", i, x->in[i].width);
    }
    for (int32_t i = 0; i < row->n_slots; i++) {
        const tg_weight_shape *w = &x->weights[i];
        if (!has(x, i)) {
            if (row->slots[i].is_optional) continue;
            return fail(x, e, "weight '%s' is missing", row->slots[i].name);
        }
        const char *name = tg_weight_role_name((tg_weight_role)x->roles[i]);
        if (!w->is_present) return fail(x, e, "the model has no weight '%s'", name);
        if (w->rows <= 0 || w->cols <= 0 || w->rows > INT32_MAX || w->cols > INT32_MAX)
            return fail(x, e, "weight '%s' is [%" PRId64 ", %" PRId64 "]", name, w->rows, w->cols);
    }
    /* Positions and pages are known of tokens alone. */
    if (!row->takes_any_rows && x->in[0].dim != TG_DIM_T)
        return fail(x, e, "the input must be one row per token");
    return TG_OK;
}

static tg_status (*const rules[TG_OP_COUNT])(const tg_infer *x, tg_value_info *out, tg_err *e) = {
#define TG_OP(NAME, name, ...) [TG_OP_##NAME] = infer_##name,
#include "ir/ops.def"
#undef TG_OP
};

tg_status tg_infer_value(tg_value_info *out, const tg_infer *x, tg_err *e)
{
    TG_TRY(check_common(x, e));
    *out = x->in[0];
    out->type = TG_TYPE_F32;
    return rules[x->op](x, out, e);
}
