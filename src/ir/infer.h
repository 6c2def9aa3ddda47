/* SPDX-License-Identifier: Apache-2.0
 * infer.h - the shape rule of every operation, in one place.
 *
 * The builder asks for the result of each node as it is added; the graph check asks again after
 * every pass, for every layer; and opening a program asks once more about bytes from a file, so
 * that a device may trust widths, heads and weights afterwards. */
#ifndef TG_IR_INFER_H
#define TG_IR_INFER_H

#include "ir/graph.h"

/* An operation with what it is applied to. */
typedef struct tg_infer {
    tg_op op;
    const tg_attrs *attrs;
    const int32_t *roles;                    /* [TG_MAX_WEIGHTS]; TG_NONE where absent */
    tg_value_info in[TG_MAX_INPUTS];         /* the first n_inputs of the op */
    tg_weight_shape weights[TG_MAX_WEIGHTS]; /* by slot; read where there is a role */
} tg_infer;

/* The result's kind; width 0 when the op has none (kv_write). Every attribute the op reads is in
 * range afterwards, save attr.kv_group. TG_E_CORRUPT naming op and roles: "matmul (w=q): ...". */
TG_MUST_USE tg_status tg_infer_value(tg_value_info *out, const tg_infer *x, tg_err *e);

/* The heads that kernels can take (kernel/kernel.h, tg_attend). */
enum { TG_HEAD_DIM_STEP = 8, TG_MAX_HEAD_DIM = 512 };

#endif
