/* SPDX-License-Identifier: Apache-2.0
 * ref.c - the definition of the element-wise kernels and of the reference tier's table.
 *
 * Scalar C, one loop nest per kernel, in the order of kernel.h. The other families stand in
 * ref_matmul.c, ref_embed.c, ref_attend.c and ref_sample.c. */
#include "kernel/ref.h"

/* One group's scale and reciprocal (contract 5); false when its codes are all 0. */
static bool scale_group(const float *x, int n, float top, float *scale, float *inv)
{
    uint32_t amax = 0;
    for (int i = 0; i < n; i++) {
        uint32_t a = tg_f32_to_bits(x[i]) & 0x7fffffff;
        amax = TG_MAX(amax, a);
    }
    float a = tg_f32_from_bits(amax);
    *scale = a;
    if (amax >= 0x7f800000u) return false; /* infinity or NaN */
    *inv = top / a;
    *scale = isinf(*inv) ? 0.0f : a / top;
    return !isinf(*inv);
}

static void quantize_group(const tg_a8 *out, int64_t g, const float *x, int n)
{
    int place = out->outliers ? out->outliers[g] : -1; /* of the group in the second plane */
    bool is_outlier = place >= 0;
    float scale, inv = 0;
    int32_t sum = 0, half = 0;
    bool has_codes = scale_group(x, n, is_outlier ? 32512.0f : (float)out->top, &scale, &inv);
    for (int i = 0; i < TG_GROUP_COLS; i++) {
        int32_t v = has_codes && i < n ? (int32_t)rintf(x[i] * inv) : 0;
        int32_t hi = is_outlier ? (v + 128) >> 8 : v;
        out->hi[g * TG_GROUP_COLS + i] = (int8_t)hi;
        if (is_outlier) out->lo[place * TG_GROUP_COLS + i] = (int8_t)(v - 256 * hi);
        sum += v;
        if (i < TG_GROUP_COLS / 2) half += v;
    }
    out->scale[g] = scale;
    out->ssum[g] = scale * (float)sum;
    out->sum[g] = sum;
    out->half[g] = half;
    if (out->pair)
        out->pair[g] = is_outlier ? 0 : tg_a8_sum_pairs(out->hi + g * TG_GROUP_COLS, out->top);
}

static void quantize(const tg_a8 *out, const float *x, int32_t n)
{
    int64_t n_groups = tg_div_up(n, TG_GROUP_COLS), all = out->padded / TG_GROUP_COLS;
    for (int64_t g = 0; g < n_groups; g++) {
        int64_t left = n - g * TG_GROUP_COLS;
        quantize_group(out, g, x + g * TG_GROUP_COLS, (int)TG_MIN(left, TG_GROUP_COLS));
    }
    for (int64_t g = n_groups; g < all; g++)
        quantize_group(out, g, x, 0);
}

static void rms_norm(float *y, const float *x, const float *w, int32_t n, float eps)
{
    float lane[16] = {0};
    for (int32_t i = 0; i < n; i++)
        lane[i % 16] = fmaf(x[i], x[i], lane[i % 16]);
    float r = 1.0f / sqrtf(tg_fold_sum16(lane) / (float)n + eps);
    for (int32_t i = 0; i < n; i++)
        y[i] = (x[i] * r) * w[i];
}

static void layer_norm(float *y, const float *x, const float *w, const float *bias, int32_t n,
                       float eps)
{
    float lane[16] = {0}, square[16] = {0};
    for (int32_t i = 0; i < n; i++)
        lane[i % 16] = lane[i % 16] + x[i];
    float mean = tg_fold_sum16(lane) / (float)n;
    for (int32_t i = 0; i < n; i++) {
        y[i] = x[i] - mean;
        square[i % 16] = fmaf(y[i], y[i], square[i % 16]);
    }
    float r = 1.0f / sqrtf(tg_fold_sum16(square) / (float)n + eps);
    for (int32_t i = 0; i < n; i++) {
        y[i] = (y[i] * r) * w[i];
        if (bias) y[i] = y[i] + bias[i];
    }
}

static void scale(float *y, int32_t n, float factor)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = y[i] * factor;
}

static void softcap(float *y, int32_t n, float c)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = tg_softcap_ref(y[i], c);
}

static void rope(float *x, const float *cos, const float *sin, int32_t n_rot)
{
    int32_t half = n_rot / 2;
    for (int32_t i = 0; i < half; i++) {
        float x0 = x[i], x1 = x[i + half];
        x[i] = fmaf(x0, cos[i], -(x1 * sin[i]));
        x[i + half] = fmaf(x1, cos[i], x0 * sin[i]);
    }
}

static void glu_silu(float *y, const float *gate, const float *up, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        float g = gate[i];
        y[i] = (g / (1.0f + tg_exp_ref(-g))) * up[i];
    }
}

static void glu_gelu_tanh(float *y, const float *gate, const float *up, int32_t n)
{
    for (int32_t i = 0; i < n; i++) {
        float g = gate[i];
        float u = 0x1.988454p-1f * fmaf(g * g * g, 0x1.6e4e26p-5f, g);
        y[i] = (g / (1.0f + tg_exp_ref(-2.0f * u))) * up[i];
    }
}

static void add(float *y, const float *x, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        y[i] = y[i] + x[i];
}

void tg_kernels_fill_ref(tg_kernels *k)
{
    *k = (tg_kernels){
        .quantize = quantize,
        .rms_norm = rms_norm,
        .layer_norm = layer_norm,
        .scale = scale,
        .softcap = softcap,
        .rope = rope,
        .glu = {[TG_ACT_SILU] = glu_silu, [TG_ACT_GELU_TANH] = glu_gelu_tanh},
        .add = add,
        .kv_store = {tg_ref_kv_store_f32, tg_ref_kv_store_f16, tg_ref_kv_store_bf16,
                     tg_ref_kv_store_q8, tg_ref_kv_store_q16},
        .kv_query = {[TG_KV_BF16] = tg_ref_kv_query_bf16,
                     [TG_KV_Q8] = tg_ref_kv_query_q8,
                     [TG_KV_Q16] = tg_ref_kv_query_q16},
        .attend = {tg_ref_attend_f32, tg_ref_attend_f16, tg_ref_attend_bf16, tg_ref_attend_q8,
                   tg_ref_attend_q16},
        .attend_finish = tg_ref_attend_finish,
        .sample_row = tg_ref_sample_row,
        .sum_words = tg_ref_sum_words,
        .sum_products = tg_ref_sum_products,
    };
    for (int l = 0; l < TG_LAYOUT_COUNT; l++) {
        k->matmul[l] = tg_ref_matmul[l];
        k->embed[l] = tg_ref_embed[l];
    }
}
