/* SPDX-License-Identifier: Apache-2.0
 * ref_embed.c - one row of a packed matrix as float32.
 *
 * Codes are read one by one: a step embeds a row per token, which is nothing beside its
 * matrices. d q and (d sc) q have at most 24 bits, so they are exact and w is rounded at most
 * once (q8_f's d is a float: there the product rounds). */
#include "kernel/form.h"
#include "kernel/ref.h"

/* Code of column c (0..63) of a part, zero not yet subtracted. */
TG_INLINE int32_t load_code(const tg_layout_form *f, const uint8_t *part, int lane, int c)
{
    int v = c / 4, i = 4 * lane + c % 4;
    if (f->bytes >= 0) return part[f->bytes + 64 * v + i];
    int32_t q = 0;
    if (f->nibbles >= 0) q = part[f->nibbles + 64 * (v / 2) + i] >> 4 * (v % 2) & 15;
    if (f->bits >= 0) q += (part[f->bits + 8 * v + i / 8] >> i % 8 & 1) * 16;
    if (f->pairs >= 0) {
        int32_t pair = part[f->pairs + 64 * (v / 4) + i] >> 2 * (v % 4) & 3;
        q += f->nibbles >= 0 ? 16 * pair : pair;
    }
    return q;
}

/* w of layout.h. */
TG_INLINE float load_weight(tg_layout l, const uint8_t *head, const uint8_t *part, int lane, int c)
{
    const tg_layout_form *f = &tg_layout_forms[l];
    float q = (float)(load_code(f, part, lane, c) - f->zero);
    int at = c / TG_GROUP_COLS * TG_TILE_ROWS + lane;
    if (!f->is_k) {
        float d = l == TG_LAYOUT_Q8_F ? tg_load_f32(part + f->d, (size_t)at)
                                      : tg_load_f16(part + f->d, (size_t)at);
        return f->m >= 0 ? d * q + tg_load_f16(part + f->m, (size_t)at) : d * q;
    }
    if (f->is_per16) at = c / 16 * TG_TILE_ROWS + lane;
    float sc = l == TG_LAYOUT_Q6_K ? (float)(int8_t)part[f->sc + at] : (float)part[f->sc + at];
    float w = tg_load_f16(head, (size_t)lane) * sc * q;
    if (f->mn < 0) return w;
    return w - tg_load_f16(head, (size_t)(TG_TILE_ROWS + lane)) * (float)part[f->mn + at];
}

TG_INLINE void embed_quantized(const tg_embed *x, tg_layout l)
{
    for (int32_t c = 0; c < x->n_cols; c++) {
        const uint8_t *head, *part = tg_form_part(l, x->w, c / TG_PART_COLS, &head);
        x->y[c] = load_weight(l, head, part, x->lane, c % TG_PART_COLS) * x->mul;
    }
}

static void embed_f32(const tg_embed *x)
{
    for (int32_t c = 0; c < x->n_cols; c++)
        x->y[c] = tg_load_f32(x->w, (size_t)(c * TG_TILE_ROWS + x->lane)) * x->mul;
}

static void embed_f16(const tg_embed *x)
{
    for (int32_t c = 0; c < x->n_cols; c++)
        x->y[c] = tg_load_f16(x->w, (size_t)(c * TG_TILE_ROWS + x->lane)) * x->mul;
}

static void embed_bf16(const tg_embed *x)
{
    for (int32_t c = 0; c < x->n_cols; c++) {
        uint16_t b;
        memcpy(&b, x->w + c / 2 * 64 + 4 * x->lane + 2 * (c % 2), sizeof b);
        x->y[c] = tg_f32_from_bits((uint32_t)b << 16) * x->mul;
    }
}

static void embed_q4_0(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q4_0);
}

static void embed_q4_1(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q4_1);
}

static void embed_q5_0(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q5_0);
}

static void embed_q5_1(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q5_1);
}

static void embed_q8_0(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q8_0);
}

static void embed_q8_f(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q8_F);
}

static void embed_q4_k(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q4_K);
}

static void embed_q5_k(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q5_K);
}

static void embed_q6_k(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q6_K);
}

static void embed_q2_k(const tg_embed *x)
{
    embed_quantized(x, TG_LAYOUT_Q2_K);
}

tg_embed_fn *const tg_ref_embed[TG_LAYOUT_COUNT] = {
    [TG_LAYOUT_F32] = embed_f32,   [TG_LAYOUT_F16] = embed_f16,   [TG_LAYOUT_BF16] = embed_bf16,
    [TG_LAYOUT_Q4_0] = embed_q4_0, [TG_LAYOUT_Q4_1] = embed_q4_1, [TG_LAYOUT_Q5_0] = embed_q5_0,
    [TG_LAYOUT_Q5_1] = embed_q5_1, [TG_LAYOUT_Q8_0] = embed_q8_0, [TG_LAYOUT_Q8_F] = embed_q8_f,
    [TG_LAYOUT_Q4_K] = embed_q4_k, [TG_LAYOUT_Q5_K] = embed_q5_k, [TG_LAYOUT_Q6_K] = embed_q6_k,
    [TG_LAYOUT_Q2_K] = embed_q2_k,
};
