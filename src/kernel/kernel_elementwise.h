/* SPDX-License-Identifier: Apache-2.0
 * kernel_elementwise.h - what works on a row of floats: norms, rope, the gated activation, softcap,
 * scale and add. The numbers of the contract go on from kernel.h.
 *
 *  9. rms_norm: s = sum16 of squares; r = 1 / sqrtf(s / (float)n + eps); y = (x * r) * w. Relative
 *     error (n / 32 + 6) 2^-24.
 * 10. rope, half-split pairs (i, i + n/2): y0 = fma(x0, c, -(x1 * s)); y1 = fma(x1, c, x0 * s).
 *     Error 2^-23 (|x0| + |x1|) for |c|, |s| <= 1.
 * 11. glu: silu(g) = g / (1 + exp(-g)); gelu_tanh(g) = g / (1 + exp(-2 u)), u = 0x1.988454p-1f *
 *     fma(g * g * g, 0x1.6e4e26p-5f, g); y = act(g) * up, exp as in 4, each operation rounded.
 *     Error 2^-21 |g up|.
 * 14. layer_norm: m = sum16(x) / (float)n; d = x - m; r = 1 / sqrtf(s / (float)n + eps), s = sum16
 *     of squares of d; y = (d * r) * w; with bias y = y + bias. Error 2^-24 of (n / 32 + 10) times
 *     (|d| + (n / 16 + 6) 2^-24 * the mean of |x|) r |w|, and of |y|.
 * 15. softcap: c * (1 - 2 / (1 + exp(2 * (x / c)))), exp as in 4, each operation rounded. Error
 *     c 2^-21. */
#ifndef TG_KERNEL_KERNEL_ELEMENTWISE_H
#define TG_KERNEL_KERNEL_ELEMENTWISE_H

#include "base/base.h"
#include "format/act.h"

/* y [n] = rms_norm(x); in place allowed. */
typedef void tg_rms_norm_fn(float *y, const float *x, const float *w, int32_t n, float eps);

/* y [n] = layer_norm(x); bias may be NULL; in place allowed. */
typedef void tg_layer_norm_fn(float *y, const float *x, const float *w, const float *bias,
                              int32_t n, float eps);

/* y [n] *= factor, in place. */
typedef void tg_scale_fn(float *y, int32_t n, float factor);

/* y [n] = softcap(y) (contract 15), in place. */
typedef void tg_softcap_fn(float *y, int32_t n, float softcap);

/* Rotates the first n_rot (even) of a head in place; cos, sin [n_rot / 2]. */
typedef void tg_rope_fn(float *x, const float *cos, const float *sin, int32_t n_rot);

/* y [n] = act(gate) * up; y may be gate. */
typedef void tg_glu_fn(float *y, const float *gate, const float *up, int32_t n);

/* y [n] += x. */
typedef void tg_add_fn(float *y, const float *x, int32_t n);

#endif
