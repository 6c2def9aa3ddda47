/* SPDX-License-Identifier: Apache-2.0
 * cases_attend.h - attention over one block, merging, finishing, storing.
 *
 * Every place beyond a query's visible range holds NaN where no other query of the call sees it, as
 * stale pages may. */
#ifndef TG_TESTS_KERNELS_CASES_ATTEND_H
#define TG_TESTS_KERNELS_CASES_ATTEND_H

#include "support.h"

enum { MAX_DIM = 512 };

typedef struct attend_case {
    tg_attend a; /* outputs not yet placed */
    const float *q[TG_ATTEND_MAX_QUERIES];
    int32_t first[TG_ATTEND_MAX_QUERIES], last[TG_ATTEND_MAX_QUERIES];
} attend_case;

/* Ranges as they come: whole, a causal edge, a window's edge, one key, nothing, and the newest
 * block of a verified step, where no query sees more than the first keys. */
static void make_ranges(check *c, attend_case *x, int shape)
{
    int32_t base = next_below(c, 64);
    for (int i = 0; i < x->a.n_queries; i++) {
        x->first[i] = 0;
        x->last[i] = 63;
        if (shape == 1) x->last[i] = TG_MIN(63, base + i);
        if (shape == 2) x->first[i] = TG_MIN(63, base + i);
        if (shape == 3) x->first[i] = x->last[i] = next_below(c, 64);
        if (shape == 4) x->last[i] = base;
        if (shape == 5) {
            x->first[i] = next_below(c, 64);
            x->last[i] = next_below(c, 64); /* often none */
        }
        if (shape == 6) x->last[i] = TG_MIN(base % 16 + i / 3, 15);
    }
}

/* ---- elements of a page: see kernel_attend.h, tg_kv_type */

static size_t kv_bytes(tg_kv_type type, size_t dim)
{
    static const size_t per_dim[TG_KV_TYPE_COUNT] = {256, 128, 128, 68, 128};
    return per_dim[type] * dim + (type == TG_KV_Q16 ? (dim + 63) / 64 * 256 : 0);
}

static bool is_coded(tg_kv_type type)
{
    return type == TG_KV_Q8 || type == TG_KV_Q16;
}

/* Bytes before the scales of a half, and dimensions that share one of K. */
static size_t scales_at(tg_kv_type type, bool is_v, size_t dim)
{
    if (type == TG_KV_Q16) return is_v ? 0 : 128 * dim;
    return 64 * dim;
}

static size_t group_dims(tg_kv_type type)
{
    return type == TG_KV_Q8 ? 32 : 64;
}

static size_t run_of(tg_kv_type type)
{
    return type == TG_KV_BF16 || type == TG_KV_Q16 ? 2 : type == TG_KV_Q8 ? 4 : 1;
}

static size_t k_index(tg_kv_type type, size_t dim, size_t key, size_t d)
{
    size_t run = run_of(type);
    (void)dim;
    return d / run * 64 * run + key * run + d % run;
}

static size_t v_index(tg_kv_type type, size_t dim, size_t key, size_t d)
{
    size_t run = run_of(type), first = type == TG_KV_Q16 ? 128 : 0; /* 64 scales before the codes */
    return first + key / run * dim * run + d * run + key % run;
}

/* Any bf16; WILD ones may be so small that products vanish. */
static uint16_t next_bf16(check *c, mood how)
{
    uint32_t r = next_u32(c), exponent = 120 + r % 9;
    if (how != CALM && (r >> 8 & 3) == 0) exponent = 58 + (r >> 12) % 12;
    if (how != CALM && (r >> 8 & 31) == 1) exponent = 0;
    if (how == POISONED && (r >> 8 & 2047) == 2) exponent = 255;
    return (uint16_t)((r >> 16 & 0x807f) | exponent << 7);
}

/* The scale of codes: not negative. */
static uint16_t next_code_scale(check *c, mood how)
{
    uint16_t scale = next_scale(c) & 0x7fff;
    if (how == POISONED && next_below(c, 500) == 0) scale = 0x7e00;
    return scale;
}

/* A code of q16; WILD ones are the largest, whose sums are the largest there can be. */
static int16_t next_code_q16(check *c, int32_t top, mood how)
{
    if (how == WILD && next_below(c, 16)) return (int16_t)(next_below(c, 8) ? top : -top);
    return (int16_t)(next_below(c, 2 * top + 1) - top);
}

/* One element of K or V, or what may lie where nobody looks; `top` is the largest code of q16. */
static void put_element(check *c, tg_kv_type type, uint8_t *half, size_t i, int32_t top, mood how,
                        bool is_counted)
{
    float x = NAN;
    uint16_t h = type == TG_KV_F16 ? 0x7e01 : 0xff81;
    uint8_t code = (uint8_t)next_u32(c);
    int16_t wide = (int16_t)next_u32(c);
    if (is_counted) {
        wide = next_code_q16(c, top, how);
        fill_floats(c, &x, 1, how);
        h = type == TG_KV_F16 ? next_scale(c) : next_bf16(c, how);
        if (type == TG_KV_F16 && how == POISONED && next_below(c, 2000) == 0)
            h = (uint16_t)next_u32(c);
        code = (uint8_t)(next_below(c, 255) - 127);
        if (how == WILD) code = next_below(c, 2) ? 127 : (uint8_t)-127;
    }
    if (type == TG_KV_F32) memcpy(half + 4 * i, &x, 4);
    if (type == TG_KV_F16 || type == TG_KV_BF16) memcpy(half + 2 * i, &h, 2);
    if (type == TG_KV_Q8) half[i] = code;
    if (type == TG_KV_Q16) memcpy(half + 2 * i, &wide, 2);
}

/* Scale i of the half that begins at `half`, behind `at` bytes. */
static void put_scale(check *c, tg_kv_type type, uint8_t *half, size_t at, size_t i, mood how,
                      bool is_counted)
{
    uint16_t scale = is_counted ? next_code_scale(c, how) : 0x7e00;
    float single = NAN;
    if (is_counted) {
        fill_floats(c, &single, 1, how);
        single = fabsf(single) * 0x1p-11f;
    }
    if (type == TG_KV_Q8)
        memcpy(half + at + 2 * i, &scale, 2);
    else
        memcpy(half + at + 4 * i, &single, 4);
}

static void make_page(check *c, attend_case *x, tg_kv_type type, mood how)
{
    size_t dim = (size_t)x->a.head_dim, bytes = kv_bytes(type, dim);
    uint8_t *k = end_buffer(4, bytes), *v = end_buffer(5, bytes);
    for (size_t j = 0; j < 64; j++) {
        bool is_counted = false;
        for (int i = 0; i < x->a.n_queries; i++)
            is_counted = is_counted || ((int32_t)j >= x->first[i] && (int32_t)j <= x->last[i]);
        for (size_t d = 0; d < dim; d++) {
            put_element(c, type, k, k_index(type, dim, j, d), 5792, how, is_counted);
            put_element(c, type, v, v_index(type, dim, j, d), 4095, how, is_counted);
            if (type == TG_KV_Q8) k[k_index(type, dim, j, d)] ^= 0x80;
        }
        for (size_t d = 0; is_coded(type) && d < dim; d += group_dims(type))
            put_scale(c, type, k, scales_at(type, false, dim), d / group_dims(type) * 64 + j, how,
                      is_counted);
        if (is_coded(type)) put_scale(c, type, v, scales_at(type, true, dim), j, how, is_counted);
    }
    x->a.k = k;
    x->a.v = v;
}

/* Bytes of a query as attend takes it. */
static size_t query_bytes(tg_kv_type type, size_t dim)
{
    if (type == TG_KV_Q16) return 2 * dim + 4 * ((dim + 63) / 64);
    return type == TG_KV_BF16 ? 2 * dim : type == TG_KV_Q8 ? dim + dim / 4 : 4 * dim;
}

static void make_attend(check *c, attend_case *x, tg_kv_type type, int32_t dim, int32_t n,
                        int shape, mood how)
{
    *x = (attend_case){.a = {.head_dim = dim, .n_queries = n, .scale = 1.0f / sqrtf((float)dim)}};
    make_ranges(c, x, shape);
    size_t bytes = query_bytes(type, (size_t)dim);
    for (int i = 0; i < n; i++)
        x->q[i] = end_buffer(i % 4, bytes * (size_t)(1 + i / 4));
    for (int i = 0; i < n; i++) { /* the buffers were patterned again and again: fill at the end */
        float row[MAX_DIM], made[MAX_DIM];
        fill_floats(c, row, (size_t)dim, how);
        for (int32_t d = 0; type == TG_KV_BF16 && d < dim && how == WILD; d++)
            row[d] = ldexpf(row[d], -62 * next_below(c, 2)); /* products around the least normal */
        memcpy(made, row, sizeof row);
        if (c->ref->kv_query[type]) c->ref->kv_query[type](made, row, dim);
        memcpy((void *)(uintptr_t)x->q[i], made, bytes);
    }
    make_page(c, x, type, how);
    x->a.q = x->q;
    x->a.first = x->first;
    x->a.last = x->last;
}

/* Runs `f` with outputs and scratch in buffers at, at + 1, ...; outputs are returned in *a. With
 * is_more every third query has nothing to merge into. */
static void run_attend(check *c, tg_attend_fn *f, tg_attend *a, int at)
{
    size_t n = (size_t)a->n_queries, dim = (size_t)a->head_dim;
    a->m = end_buffer(at, 4 * n);
    a->l = end_buffer(at + 1, 4 * n);
    a->o = end_buffer(at + 2, 4 * n * dim);
    a->scratch = end_buffer(at + 3, TG_ATTEND_SCRATCH_BYTES);
    for (size_t i = 0; i < n && a->is_more; i++) {
        a->m[i] = i % 3 == 1 ? -INFINITY : next_normal(c) * 3;
        a->l[i] = i % 3 == 1 ? 0 : 1 + fabsf(next_normal(c));
        fill_floats(c, a->o + i * dim, dim, CALM);
    }
    f(a);
}

static void check_attend_of(check *c, tg_kv_type type)
{
    static const int32_t dims[] = {64, 128, 256, 8, 16, 24, 72, 80, 96, 120, 512};
    static const int32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 33, 64};
    for (size_t i = 0; i < TG_COUNT(dims) * TG_COUNT(counts) * 7; i++) {
        int32_t dim = dims[i % TG_COUNT(dims)], n = counts[i / TG_COUNT(dims) % TG_COUNT(counts)];
        int shape = (int)(i / TG_COUNT(dims) / TG_COUNT(counts));
        mood how = dim == 512 || n == 64 ? CALM : (mood)next_below(c, N_MOODS);
        if (dim == 512 && n > 9) continue; /* the definition is slow, and says nothing new */
        if (type == TG_KV_Q8 && dim % 32) continue;
        snprintf(c->what, sizeof c->what, "head_dim %d, queries %d, ranges %d, mood %d", dim, n,
                 shape, how);
        attend_case x;
        make_attend(c, &x, type, dim, n, shape, how);
        x.a.is_more = next_below(c, 2);
        x.a.next = next_below(c, 2) ? x.a.k : NULL;
        x.a.softcap = next_below(c, 3) ? 0 : 2.5f;
        tg_attend got = x.a, want = x.a;
        uint64_t rng = c->rng;
        run_attend(c, c->k->attend[type], &got, 6);
        c->rng = rng;
        run_attend(c, c->ref->attend[type], &want, 10);
        compare_floats(c, "m", got.m, want.m, (size_t)n);
        compare_floats(c, "l", got.l, want.l, (size_t)n);
        compare_floats(c, "o", got.o, want.o, (size_t)n * (size_t)dim);
    }
}

/* exp by itself: key 0 scores 0, key j scores x[j] below it, and V is the identity, so that o[j] is
 * exp(x[j]) and nothing else. */
static void run_exp(check *c, const tg_kernels *k, const float x[64], float o[64])
{
    (void)c;
    static const float one[64] = {1};
    static const float *const q[1] = {one};
    static const int32_t first = 0, last = 63;
    float *keys = end_buffer(4, 64 * 64 * 4), *values = end_buffer(5, 64 * 64 * 4);
    memset(keys, 0, 64 * 64 * 4);
    memset(values, 0, 64 * 64 * 4);
    memcpy(keys, x, 64 * 4);
    for (int j = 0; j < 64; j++)
        values[65 * j] = 1;
    float m, l;
    tg_attend a = {.k = keys,
                   .v = values,
                   .head_dim = 64,
                   .n_queries = 1,
                   .q = q,
                   .first = &first,
                   .last = &last,
                   .scale = 1,
                   .m = &m,
                   .l = &l,
                   .o = o,
                   .scratch = end_buffer(6, TG_ATTEND_SCRATCH_BYTES)};
    k->attend[TG_KV_F32](&a);
}

/* From 0 to -90, and around the edge at -87. */
static void fill_exponents(check *c, float x[64])
{
    x[0] = 0;
    for (int j = 1; j < 64; j++)
        x[j] = j < 8 ? -87.0f + (float)(next_below(c, 9) - 4) * 0x1p-17f
                     : (tg_test_uniform(&c->rng) - 1) * 45;
}

static void check_exp(check *c)
{
    float x[64], got[64], want[64];
    for (int i = 0; i < 2000; i++) {
        fill_exponents(c, x);
        snprintf(c->what, sizeof c->what, "exp, case %d", i);
        run_exp(c, c->k, x, got);
        run_exp(c, c->ref, x, want);
        compare_floats(c, "exp", got, want, 64);
    }
}

static void truth_exp(check *c)
{
    float x[64], o[64];
    for (int i = 0; i < 2000; i++) {
        fill_exponents(c, x);
        run_exp(c, c->ref, x, o);
        for (size_t j = 0; j < 64; j++) {
            double want = x[j] < -87.0f ? 0 : exp((double)x[j]);
            snprintf(c->what, sizeof c->what, "exp of %a", (double)x[j]);
            compare_bound(c, "exp", j, (double)o[j], want, want * 0x1p-22);
        }
        if (o[0] != 1) fail_check("exp(0) is %a", (double)o[0]);
    }
}

static void check_attend_f32(check *c)
{
    check_exp(c);
    check_attend_of(c, TG_KV_F32);
}

static void check_attend_f16(check *c)
{
    check_attend_of(c, TG_KV_F16);
}

static double bf16_value(uint16_t h)
{
    return (double)float_from_bits((uint32_t)h << 16);
}

static double half_value(tg_kv_type type, const void *half, size_t i)
{
    if (type == TG_KV_F32) return (double)((const float *)half)[i];
    uint16_t h = ((const uint16_t *)half)[i];
    return type == TG_KV_F16 ? f16_value(h) : bf16_value(h);
}

static int32_t i16_at(const void *p, size_t i)
{
    return ((const int16_t *)p)[i];
}

/* Scale i of a half of a coded type, whose scales lie behind `at` bytes. */
static double scale_value(tg_kv_type type, size_t at, const void *half, size_t i)
{
    const char *scales = (const char *)half + at;
    return half_value(type == TG_KV_Q8 ? TG_KV_F16 : TG_KV_F32, scales, i);
}

/* Element d of key j as the page says it. */
static double key_value(const tg_attend *a, tg_kv_type type, size_t j, size_t d)
{
    size_t dim = (size_t)a->head_dim, i = k_index(type, dim, j, d);
    if (!is_coded(type)) return half_value(type, a->k, i);
    double code = type == TG_KV_Q8 ? ((const uint8_t *)a->k)[i] - 128 : i16_at(a->k, i);
    return code *
           scale_value(type, scales_at(type, false, dim), a->k, d / group_dims(type) * 64 + j);
}

static double value_scale(const tg_attend *a, tg_kv_type type, size_t j)
{
    return scale_value(type, scales_at(type, true, (size_t)a->head_dim), a->v, j);
}

static int32_t value_code(const tg_attend *a, tg_kv_type type, size_t i)
{
    return type == TG_KV_Q8 ? ((const int8_t *)a->v)[i] : i16_at(a->v, i);
}

static double value_value(const tg_attend *a, tg_kv_type type, size_t j, size_t d)
{
    size_t dim = (size_t)a->head_dim, i = v_index(type, dim, j, d);
    if (!is_coded(type)) return half_value(type, a->v, i);
    return value_code(a, type, i) * value_scale(a, type, j);
}

static double query_value(const tg_attend *a, tg_kv_type type, int query, size_t d)
{
    const void *q = a->q[query];
    if (type == TG_KV_F32 || type == TG_KV_F16) return (double)((const float *)q)[d];
    if (type == TG_KV_BF16) return bf16_value(((const uint16_t *)q)[d]);
    float scale;
    if (type == TG_KV_Q16) {
        memcpy(&scale, (const char *)q + 2 * a->head_dim + 4 * (d / 64), 4);
        return i16_at(q, d) * (double)scale;
    }
    memcpy(&scale, (const char *)q + a->head_dim + 4 * (d / 32), 4);
    return ((const int8_t *)q)[d] * (double)scale / 32;
}

static void truth_attend_query(check *c, const tg_attend *a, tg_kv_type type, int query)
{
    size_t n = (size_t)a->head_dim;
    double s[64], top = -INFINITY, mass = 0, l = 0;
    for (int j = a->first[query]; j <= a->last[query]; j++) {
        double dot = 0, sum = 0;
        for (size_t d = 0; d < n; d++) {
            double x = query_value(a, type, query, d) * key_value(a, type, (size_t)j, d);
            dot += x;
            sum += fabs(x);
        }
        s[j] = dot * (double)a->scale;
        if (a->softcap > 0) s[j] = (double)a->softcap * tanh(s[j] / (double)a->softcap);
        top = fmax(top, s[j]);
        mass = fmax(mass, sum * (double)a->scale);
    }
    double c_bound = 0x1p-24 * (2 * (double)n * mass + 100), wmax = 0;
    c_bound += 2 * (double)a->softcap * 0x1p-21;
    if (type == TG_KV_BF16) c_bound += 0x1p-8; /* probabilities keep 8 bits */
    for (int j = a->first[query]; j <= a->last[query]; j++)
        l += exp(s[j] - top);
    for (int j = a->first[query]; j <= a->last[query] && is_coded(type); j++)
        wmax = fmax(wmax, exp(s[j] - top) * value_scale(a, type, (size_t)j));
    double step = wmax / (type == TG_KV_Q8 ? 255 : 8191); /* of the weights' codes */
    if (a->first[query] > a->last[query]) {
        if (a->m[query] != -INFINITY) fail_check("%s: m of nothing", c->what);
    } else {
        compare_bound(c, "m", (size_t)query, (double)a->m[query], top, c_bound);
    }
    compare_bound(c, "l", (size_t)query, (double)a->l[query], l, c_bound * l);
    for (size_t d = 0; d < n; d++) {
        double o = 0, sum = 0, codes = 0;
        for (int j = a->first[query]; j <= a->last[query]; j++) {
            double x = exp(s[j] - top) * value_value(a, type, (size_t)j, d);
            o += x;
            sum += fabs(x);
            if (is_coded(type)) codes += abs(value_code(a, type, v_index(type, n, (size_t)j, d)));
        }
        compare_bound(c, "o", d, (double)a->o[(size_t)query * n + d], o,
                      c_bound * sum + codes * step / 2 * (1 + c_bound + 0x1p-20));
    }
}

/* f16, or scales, of moderate size only, where a query looks. */
static void calm_halves(check *c, const tg_attend *a, tg_kv_type type)
{
    size_t n = 64 * (size_t)a->head_dim, skip = type == TG_KV_Q8 ? n : 0;
    size_t n_k = type == TG_KV_Q8 ? n / 32 : n, n_v = type == TG_KV_Q8 ? 64 : n;
    uint16_t *k = (uint16_t *)((uintptr_t)a->k + skip), *v = (uint16_t *)((uintptr_t)a->v + skip);
    uint16_t low = type == TG_KV_Q8 ? 0x2000 : 0x3800, bits = type == TG_KV_Q8 ? 0x07ff : 0x87ff;
    for (size_t i = 0; i < TG_MAX(n_k, n_v); i++) {
        if (i < n_k && (k[i] & 0x7e00) != 0x7e00) k[i] = low | (uint16_t)(next_u32(c) & bits);
        if (i < n_v && (v[i] & 0x7e00) != 0x7e00) v[i] = low | (uint16_t)(next_u32(c) & bits);
    }
}

/* Scores of a few units, so that the softmax is no one-hot. */
static void truth_attend_of(check *c, tg_kv_type type)
{
    for (int i = 0; i < 24; i++) {
        attend_case x;
        int32_t dim = i < 12 ? 64 : type == TG_KV_Q8 ? 96 : 72; /* more than one scale of K */
        make_attend(c, &x, type, dim, 7, i % 12 / 2, CALM);
        x.a.softcap = i % 2 ? 1.5f : 0;
        snprintf(c->what, sizeof c->what, "head_dim %d, ranges %d, softcap %g", dim, i % 12 / 2,
                 (double)x.a.softcap);
        if (type == TG_KV_F16 || type == TG_KV_Q8) calm_halves(c, &x.a, type);
        run_attend(c, c->ref->attend[type], &x.a, 6);
        for (int j = 0; j < x.a.n_queries; j++)
            truth_attend_query(c, &x.a, type, j);
    }
}

static void truth_attend_more(check *c);

static void truth_attend_f32(check *c)
{
    truth_exp(c);
    truth_attend_of(c, TG_KV_F32);
    truth_attend_more(c);
}

static void truth_attend_f16(check *c)
{
    truth_attend_of(c, TG_KV_F16);
}

static void check_attend_bf16(check *c)
{
    check_attend_of(c, TG_KV_BF16);
}

static void truth_attend_bf16(check *c)
{
    truth_attend_of(c, TG_KV_BF16);
}

static void check_attend_q8(check *c)
{
    check_attend_of(c, TG_KV_Q8);
}

static void truth_attend_q8(check *c)
{
    truth_attend_of(c, TG_KV_Q8);
}

static void check_attend_q16(check *c)
{
    check_attend_of(c, TG_KV_Q16);
}

static void truth_attend_q16(check *c)
{
    truth_attend_of(c, TG_KV_Q16);
}

/* Blocks of one query as attend leaves them: apart by more than their length, some empty. */
typedef struct parts_case {
    tg_attend_parts parts;
    float *m, *l, *o;
} parts_case;

static void make_parts(check *c, parts_case *x, int32_t n, int32_t n_blocks, int kind)
{
    int32_t step = 1 + next_below(c, 4), o_step = n + next_below(c, 3);
    size_t n_steps = (size_t)step * (size_t)(n_blocks - 1) + 1;
    size_t n_floats = (size_t)o_step * (size_t)(n_blocks - 1) + (size_t)n;
    x->m = end_buffer(0, 4 * n_steps);
    x->l = end_buffer(1, 4 * n_steps);
    x->o = end_buffer(2, 4 * n_floats);
    fill_floats(c, x->o, n_floats, kind == 5 ? POISONED : CALM);
    for (int32_t b = 0; b < n_blocks; b++) {
        bool is_empty = kind == 1 || (kind == 2 && next_below(c, 3) == 0);
        x->m[b * step] = is_empty ? -INFINITY : kind == 3 ? 7 : next_normal(c) * 30;
        x->l[b * step] = is_empty ? 0 : 1 + fabsf(next_normal(c));
        if (kind == 4 && next_below(c, 8) == 0) x->l[b * step] = NAN;
    }
    x->parts = (tg_attend_parts){.head_dim = n,
                                 .n_blocks = n_blocks,
                                 .m = x->m,
                                 .l = x->l,
                                 .o = x->o,
                                 .step = step,
                                 .o_step = o_step};
}

static void check_finish(check *c)
{
    static const int32_t dims[] = {8, 16, 24, 64, 72, 80, 128, 200, 256, 512};
    static const int32_t counts[] = {1, 2, 3, 15, 16, 17, 18, 33, 70};
    for (size_t i = 0; i < TG_COUNT(dims) * TG_COUNT(counts) * 6; i++) {
        int32_t n = dims[i % TG_COUNT(dims)];
        int32_t n_blocks = counts[i / TG_COUNT(dims) % TG_COUNT(counts)];
        int kind = (int)(i / TG_COUNT(dims) / TG_COUNT(counts));
        snprintf(c->what, sizeof c->what, "head_dim %d, blocks %d, kind %d", n, n_blocks, kind);
        parts_case x;
        make_parts(c, &x, n, n_blocks, kind);
        float *got = end_buffer(3, 4 * (size_t)n), *want = end_buffer(4, 4 * (size_t)n);
        c->k->attend_finish(got, &x.parts);
        c->ref->attend_finish(want, &x.parts);
        compare_floats(c, "y", got, want, (size_t)n);
    }
}

/* Blocks merged are the softmax over all of them. */
static void truth_finish(check *c)
{
    for (int i = 0; i < 1000; i++) {
        parts_case x;
        int32_t n = 8, n_blocks = 1 + next_below(c, 40), kind = next_below(c, 3);
        make_parts(c, &x, n, n_blocks, kind);
        float y[8];
        double top = -INFINITY, L = 0;
        c->ref->attend_finish(y, &x.parts);
        for (int32_t b = 0; b < n_blocks; b++)
            top = fmax(top, (double)x.m[b * x.parts.step]);
        for (int32_t b = 0; b < n_blocks; b++)
            if (x.l[b * x.parts.step] > 0)
                L += (double)x.l[b * x.parts.step] * exp((double)x.m[b * x.parts.step] - top);
        for (int32_t d = 0; d < n; d++) {
            double o = 0, mass = 0;
            for (int32_t b = 0; b < n_blocks && L > 0; b++) {
                double w = exp((double)x.m[b * x.parts.step] - top) / L;
                w = x.l[b * x.parts.step] > 0 ? w * (double)x.o[b * x.parts.o_step + d] : 0;
                o += w;
                mass += fabs(w);
            }
            snprintf(c->what, sizeof c->what, "%d blocks, kind %d", n_blocks, kind);
            compare_bound(c, "y", (size_t)d, (double)y[d], o, mass * (100 + n_blocks) * 0x1p-24);
        }
    }
}

/* A call that merges is the block and then the merging of contract 12. */
static void truth_attend_more(check *c)
{
    for (int i = 0; i < 200; i++) {
        attend_case x;
        make_attend(c, &x, TG_KV_F32, 16, 1, i % 6, CALM);
        snprintf(c->what, sizeof c->what, "merging, case %d", i);
        x.a.is_more = i % 2;
        run_attend(c, c->ref->attend[TG_KV_F32], &x.a, 6);
        float m[2] = {x.a.m[0], 0}, l[2] = {x.a.l[0], 0}, o[32], y[16], want[16];
        memcpy(o, x.a.o, sizeof want);
        tg_attend block = x.a;
        block.is_more = false;
        run_attend(c, c->ref->attend[TG_KV_F32], &block, 10);
        m[1] = block.m[0];
        l[1] = block.l[0];
        memcpy(o + 16, block.o, sizeof want);
        tg_attend_parts both = {
            .head_dim = 16, .n_blocks = 2, .m = m, .l = l, .o = o, .step = 1, .o_step = 16};
        c->ref->attend_finish(want, &both);
        x.a.is_more = true;
        x.a.m[0] = m[0];
        x.a.l[0] = l[0];
        memcpy(x.a.o, o, sizeof want);
        c->ref->attend[TG_KV_F32](&x.a);
        both.n_blocks = 1;
        both.m = x.a.m;
        both.l = x.a.l;
        both.o = x.a.o;
        c->ref->attend_finish(y, &both);
        compare_floats(c, "y", y, want, 16);
    }
}

/* Against f16 rounding by arithmetic: the nearest of all finite f16 values, the even one of two. */
static uint16_t round_f16(float x)
{
    double a = fabs((double)x);
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7e00;
    if (a >= 65520) return sign | 0x7c00;
    int e = a >= 0x1p-14 ? ilogb(a) : -14;
    double steps = rint(ldexp(a, 10 - e)); /* to nearest even, in units of the last place */
    if (steps == 0) return sign;
    return (uint16_t)(sign | (uint16_t)((e + 14) * 1024 + (int)steps));
}

/* The same for bf16: 7 bits of fraction, float's exponents. */
static uint16_t round_bf16(float x)
{
    double a = fabs((double)x);
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x)) return 0x7fc0;
    if (a >= 0x1.ffp127) return sign | 0x7f80;
    int e = a >= 0x1p-126 ? ilogb(a) : -126;
    double steps = rint(ldexp(a, 7 - e));
    if (steps == 0) return sign;
    return (uint16_t)(sign | (uint16_t)((e + 126) * 128 + (int)steps));
}

/* x rounded to a 16-bit type; a NaN may be any, and is taken from `got`. */
static uint16_t round_half(tg_kv_type type, float x, const uint8_t *got)
{
    uint16_t h;
    memcpy(&h, got, sizeof h);
    if (isnan(x) && isnan(type == TG_KV_F16 ? f16_value(h) : bf16_value(h))) return h;
    return type == TG_KV_F16 ? round_f16(x) : round_bf16(x);
}

static void check_kv_store_of(check *c, tg_kv_type type)
{
    static const int32_t dims[] = {8, 64, 72, 128, 256, 512};
    size_t size = type == TG_KV_F32 ? 4 : 2;
    for (size_t i = 0; i < TG_COUNT(dims) * 64; i++) {
        size_t dim = (size_t)dims[i / 64], slot = i % 64, bytes = 64 * dim * size;
        snprintf(c->what, sizeof c->what, "head_dim %zu, slot %zu", dim, slot);
        float *key = end_buffer(0, 4 * dim), *value = end_buffer(1, 4 * dim);
        fill_floats(c, key, dim, (mood)(i % N_MOODS));
        fill_floats(c, value, dim, (mood)(i % N_MOODS));
        for (size_t d = 0; d < dim; d++) /* f16's own edges */
            if (next_below(c, 4) == 0) key[d] = ldexpf(key[d], next_below(c, 48) - 30);
        uint8_t *k = end_buffer(2, bytes), *v = end_buffer(3, bytes);
        uint8_t *want_k = end_buffer(4, bytes), *want_v = end_buffer(5, bytes);
        c->k->kv_store[type](k, v, (int32_t)slot, key, value, (int32_t)dim);
        for (size_t d = 0; d < dim; d++) {
            size_t at_k = k_index(type, dim, slot, d) * size;
            size_t at_v = v_index(type, dim, slot, d) * size;
            uint16_t half[2] = {0};
            if (size == 2) half[0] = round_half(type, key[d], k + at_k);
            if (size == 2) half[1] = round_half(type, value[d], v + at_v);
            memcpy(want_k + at_k, size == 2 ? (void *)&half[0] : (void *)&key[d], size);
            memcpy(want_v + at_v, size == 2 ? (void *)&half[1] : (void *)&value[d], size);
        }
        compare_bytes(c, "k", k, want_k, bytes);
        compare_bytes(c, "v", v, want_v, bytes);
    }
}

static void check_kv_store_f32(check *c)
{
    check_kv_store_of(c, TG_KV_F32);
}

static void check_kv_store_f16(check *c)
{
    check_kv_store_of(c, TG_KV_F16);
}

static void check_kv_store_bf16(check *c)
{
    check_kv_store_of(c, TG_KV_BF16);
}

static void check_kv_query_bf16(check *c)
{
    static const int32_t dims[] = {8, 24, 64, 256, 512};
    for (size_t i = 0; i < TG_COUNT(dims) * 60; i++) {
        size_t dim = (size_t)dims[i / 60];
        float *q = end_buffer(0, 4 * dim);
        uint8_t *out = end_buffer(1, 2 * dim), *want = end_buffer(2, 2 * dim);
        fill_floats(c, q, dim, (mood)(i % N_MOODS));
        snprintf(c->what, sizeof c->what, "head_dim %zu, case %zu", dim, i);
        c->k->kv_query[TG_KV_BF16]((float *)(void *)out, q, (int32_t)dim);
        for (size_t d = 0; d < dim; d++) {
            uint16_t h = round_half(TG_KV_BF16, q[d], out + 2 * d);
            memcpy(want + 2 * d, &h, 2);
        }
        compare_bytes(c, "query", out, want, 2 * dim);
    }
}

/* ---- q8: codes of turned vectors, against the matrix itself */

/* Element d of H x, H the Hadamard matrix of 32 from its bits, and the mass of the sum. */
static double turned(const float *x, size_t d, double *mass)
{
    double y = 0;
    *mass = 0;
    for (size_t i = 0; i < 32; i++) {
        double v = (double)x[d / 32 * 32 + i];
        y += __builtin_parity((unsigned)(i & d)) ? -v : v;
        *mass += fabs(v);
    }
    return y;
}

/* code * scale is `want`, to half a scale and the rounding of sums (and of the scale: f16). */
static void compare_code(check *c, const char *name, size_t d, double code, double scale,
                         double want, double mass)
{
    compare_bound(c, name, d, code * scale, want, scale * 0.5001 + mass * 0x1p-19 + 127 * 0x1p-25);
}

static void check_q8_row(check *c, size_t dim, size_t slot, mood how)
{
    size_t bytes = kv_bytes(TG_KV_Q8, dim);
    float *key = end_buffer(0, 4 * dim), *value = end_buffer(1, 4 * dim);
    fill_floats(c, key, dim, how);
    fill_floats(c, value, dim, how);
    uint8_t *k = end_buffer(2, bytes), *v = end_buffer(3, bytes);
    uint8_t *want_k = end_buffer(4, bytes), *want_v = end_buffer(5, bytes);
    c->k->kv_store[TG_KV_Q8](k, v, (int32_t)slot, key, value, (int32_t)dim);
    c->ref->kv_store[TG_KV_Q8](want_k, want_v, (int32_t)slot, key, value, (int32_t)dim);
    compare_bytes(c, "k", k, want_k, bytes);
    compare_bytes(c, "v", v, want_v, bytes);
    tg_attend a = {.k = k, .v = v, .head_dim = (int32_t)dim};
    for (size_t d = 0; d < dim && how == CALM; d++) {
        double mass, want = turned(key, d, &mass);
        double scale = half_value(TG_KV_F16, k + 64 * dim, d / 32 * 64 + slot);
        compare_code(c, "k", d, k[k_index(TG_KV_Q8, dim, slot, d)] - 128.0, scale, want, mass);
        compare_code(c, "v", d, ((const int8_t *)v)[v_index(TG_KV_Q8, dim, slot, d)],
                     value_scale(&a, TG_KV_Q8, slot), (double)value[d], 0);
    }
}

static void check_kv_store_q8(check *c)
{
    static const int32_t dims[] = {32, 64, 96, 128, 256, 512};
    for (size_t i = 0; i < TG_COUNT(dims) * 64 * 3; i++) {
        size_t dim = (size_t)dims[i / 192], slot = i % 64;
        snprintf(c->what, sizeof c->what, "head_dim %zu, slot %zu, case %zu", dim, slot, i);
        check_q8_row(c, dim, slot, (mood)(i / 64 % 3));
    }
}

static void check_kv_query_q8(check *c)
{
    static const int32_t dims[] = {32, 64, 96, 256, 512};
    for (size_t i = 0; i < TG_COUNT(dims) * 60; i++) {
        size_t dim = (size_t)dims[i / 60], bytes = query_bytes(TG_KV_Q8, dim);
        float *q = end_buffer(0, 4 * dim);
        char *out = end_buffer(1, bytes), *want = end_buffer(2, bytes);
        mood how = (mood)(i % N_MOODS);
        fill_floats(c, q, dim, how);
        snprintf(c->what, sizeof c->what, "head_dim %zu, case %zu", dim, i);
        c->k->kv_query[TG_KV_Q8]((float *)(void *)out, q, (int32_t)dim);
        c->ref->kv_query[TG_KV_Q8]((float *)(void *)want, q, (int32_t)dim);
        for (size_t g = 0; g < dim / 32; g++) { /* a NaN may be any */
            float scale;
            memcpy(&scale, out + dim + 4 * g, 4);
            if (isnan(scale)) memcpy(want + dim + 4 * g, &scale, 4);
        }
        compare_bytes(c, "query", out, want, bytes);
        for (size_t d = 0; d < dim && how == CALM; d++) {
            float scale;
            int32_t sum, codes = 0;
            double mass, exact = turned(q, d, &mass);
            memcpy(&scale, out + dim + 4 * (d / 32), 4);
            memcpy(&sum, out + dim + dim / 8 + 4 * (d / 32), 4);
            compare_code(c, "q", d, ((int8_t *)out)[d], (double)scale, exact, mass);
            for (size_t e = 0; e < 32; e++)
                codes += ((int8_t *)out)[d / 32 * 32 + e];
            if (codes != sum) fail_check("%s: the sum of codes is %d, not %d", c->what, sum, codes);
        }
    }
}

/* ---- q16 */

/* code * scale is `want`, to half a scale and the roundings of scale and product. */
static void compare_code_q16(check *c, const char *name, size_t d, int32_t code, double scale,
                             double want)
{
    compare_bound(c, name, d, code * scale, want, scale * (0.5 + 5792 * 3 * 0x1p-24));
}

/* The scale of n numbers with codes up to `top`: their largest divided by it; or what is not
 * finite, a NaN rather than an infinity; or 0 where they are so small that codes would overflow. */
static void compare_scale_q16(check *c, const char *name, float got, const float *x, size_t n,
                              float top)
{
    float most = 0;
    for (size_t i = 0; i < n; i++)
        most = isnan(most) || isnan(x[i]) ? NAN : fmaxf(most, fabsf(x[i]));
    float want = !isfinite(most) ? most : isfinite(top / most) ? most / top : 0;
    compare_floats(c, name, &got, &want, 1);
}

static void check_q16_row(check *c, size_t dim, size_t slot, mood how)
{
    size_t bytes = kv_bytes(TG_KV_Q16, dim);
    float *key = end_buffer(0, 4 * dim), *value = end_buffer(1, 4 * dim);
    fill_floats(c, key, dim, how);
    fill_floats(c, value, dim, how);
    for (size_t d = 0; d < dim && next_below(c, 16) == 0; d++) /* none, or next to none */
        key[d] = value[d] = how == WILD ? ldexpf(key[d], -126) : 0;
    uint8_t *k = end_buffer(2, bytes), *v = end_buffer(3, bytes);
    uint8_t *want_k = end_buffer(4, bytes), *want_v = end_buffer(5, bytes);
    c->k->kv_store[TG_KV_Q16](k, v, (int32_t)slot, key, value, (int32_t)dim);
    c->ref->kv_store[TG_KV_Q16](want_k, want_v, (int32_t)slot, key, value, (int32_t)dim);
    compare_bytes(c, "k", k, want_k, bytes);
    compare_bytes(c, "v", v, want_v, bytes);
    double sv = scale_value(TG_KV_Q16, 0, v, slot);
    compare_scale_q16(c, "scale of v", (float)sv, value, dim, 4095);
    for (size_t d = 0; d < dim; d++) {
        size_t at_k = k_index(TG_KV_Q16, dim, slot, d), at_v = v_index(TG_KV_Q16, dim, slot, d);
        double sk = scale_value(TG_KV_Q16, 128 * dim, k, d / 64 * 64 + slot);
        if (d % 64 == 0)
            compare_scale_q16(c, "scale of k", (float)sk, key + d, TG_MIN(dim - d, 64), 5792);
        if (sk > 0x1p-120 && isfinite(sk))
            compare_code_q16(c, "k", d, i16_at(k, at_k), sk, (double)key[d]);
        else if (i16_at(k, at_k) && !(sk > 0))
            fail_check("%s: k[%zu] has a code without a scale", c->what, d);
        if (sv > 0x1p-120 && isfinite(sv))
            compare_code_q16(c, "v", d, i16_at(v, at_v), sv, (double)value[d]);
    }
}

static void check_kv_store_q16(check *c)
{
    static const int32_t dims[] = {8, 64, 72, 96, 120, 128, 256, 512};
    for (size_t i = 0; i < TG_COUNT(dims) * 64 * 3; i++) {
        size_t dim = (size_t)dims[i / 192], slot = i % 64;
        snprintf(c->what, sizeof c->what, "head_dim %zu, slot %zu, case %zu", dim, slot, i);
        check_q16_row(c, dim, slot, (mood)(i / 64 % 3));
    }
}

static void check_kv_query_q16(check *c)
{
    static const int32_t dims[] = {8, 24, 64, 72, 80, 128, 200, 256, 512};
    for (size_t i = 0; i < TG_COUNT(dims) * 60; i++) {
        size_t dim = (size_t)dims[i / 60], bytes = query_bytes(TG_KV_Q16, dim);
        float *q = end_buffer(0, 4 * dim);
        char *out = end_buffer(1, bytes), *want = end_buffer(2, bytes);
        mood how = (mood)(i % N_MOODS);
        fill_floats(c, q, dim, how);
        snprintf(c->what, sizeof c->what, "head_dim %zu, case %zu", dim, i);
        c->k->kv_query[TG_KV_Q16]((float *)(void *)out, q, (int32_t)dim);
        c->ref->kv_query[TG_KV_Q16]((float *)(void *)want, q, (int32_t)dim);
        compare_bytes(c, "query", out, want, bytes);
        for (size_t d = 0; d < dim; d++) {
            float scale;
            memcpy(&scale, out + 2 * dim + 4 * (d / 64), 4);
            if (d % 64 == 0)
                compare_scale_q16(c, "scale of q", scale, q + d, TG_MIN(dim - d, 64), 5792);
            if (scale > 0x1p-120f && isfinite(scale))
                compare_code_q16(c, "q", d, i16_at(out, d), (double)scale, (double)q[d]);
        }
    }
}

#endif
