/* SPDX-License-Identifier: Apache-2.0
 * act.h - the activation functions of a gated MLP; kernel/kernel.h says what each computes. */
#ifndef TG_FORMAT_ACT_H
#define TG_FORMAT_ACT_H

typedef enum tg_act { TG_ACT_SILU, TG_ACT_GELU_TANH, TG_ACT_COUNT } tg_act;

#endif
