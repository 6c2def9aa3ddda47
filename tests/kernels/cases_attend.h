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

/* Ranges as they come: whole, a causal edge, a window's edge, one key, nothing. */
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
    }
}

static void make_attend(check *c, attend_case *x, tg_kv_type type, int32_t dim, int32_t n,
                        int shape, mood how)
{
    *x = (attend_case){.a = {.head_dim = dim, .n_queries = n, .scale = 1.0f / sqrtf((float)dim)}};
    make_ranges(c, x, shape);
    for (int i = 0; i < n; i++) {
        float *q = end_buffer(i % 4, 4 * (size_t)dim * (size_t)(1 + i / 4));
        fill_floats(c, q, (size_t)dim, how);
        x->q[i] = q;
    }
    for (int i = 0; i < n; i++) { /* the buffers were patterned again and again: fill at the end */
        float *q = (float *)(uintptr_t)x->q[i];
        fill_floats(c, q, (size_t)dim, how);
    }
    size_t size = type == TG_KV_F16 ? 2 : 4, bytes = 64 * (size_t)dim * size;
    uint8_t *k = end_buffer(4, bytes), *v = end_buffer(5, bytes);
    for (size_t j = 0; j < 64; j++) {
        bool is_seen = false;
        for (int i = 0; i < n; i++)
            is_seen = is_seen || ((int32_t)j >= x->first[i] && (int32_t)j <= x->last[i]);
        for (size_t d = 0; d < (size_t)dim; d++) {
            float kv[2] = {NAN, NAN};
            uint16_t half[2] = {0x7e01, 0xfe01};
            if (is_seen) fill_floats(c, kv, 2, how);
            for (int s = 0; s < 2 && is_seen; s++) {
                half[s] = next_scale(c);
                if (how == POISONED && next_below(c, 2000) == 0) half[s] = (uint16_t)next_u32(c);
            }
            size_t at_k = (64 * d + j) * size, at_v = (j * (size_t)dim + d) * size;
            memcpy(k + at_k, size == 2 ? (void *)&half[0] : (void *)&kv[0], size);
            memcpy(v + at_v, size == 2 ? (void *)&half[1] : (void *)&kv[1], size);
        }
    }
    x->a.k = k;
    x->a.v = v;
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
    static const int32_t counts[] = {1, 2, 3, 4, 5, 6, 7, 9, 12, 13, 64};
    for (size_t i = 0; i < TG_COUNT(dims) * TG_COUNT(counts) * 6; i++) {
        int32_t dim = dims[i % TG_COUNT(dims)], n = counts[i / TG_COUNT(dims) % TG_COUNT(counts)];
        int shape = (int)(i / TG_COUNT(dims) / TG_COUNT(counts));
        mood how = dim == 512 || n == 64 ? CALM : (mood)next_below(c, N_MOODS);
        if (dim == 512 && n > 9) continue; /* the definition is slow, and says nothing new */
        snprintf(c->what, sizeof c->what, "head_dim %d, queries %d, ranges %d, mood %d", dim, n,
                 shape, how);
        attend_case x;
        make_attend(c, &x, type, dim, n, shape, how);
        x.a.is_more = next_below(c, 2);
        x.a.next = next_below(c, 2) ? x.a.k : NULL;
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

static double kv_value(const void *p, tg_kv_type type, size_t i)
{
    return type == TG_KV_F16 ? f16_value(((const uint16_t *)p)[i]) : (double)((const float *)p)[i];
}

static void truth_attend_query(check *c, const tg_attend *a, tg_kv_type type, int query)
{
    size_t n = (size_t)a->head_dim;
    double s[64], top = -INFINITY, mass = 0, l = 0;
    for (int j = a->first[query]; j <= a->last[query]; j++) {
        double dot = 0, sum = 0;
        for (size_t d = 0; d < n; d++) {
            double x = (double)a->q[query][d] * kv_value(a->k, type, 64 * d + (size_t)j);
            dot += x;
            sum += fabs(x);
        }
        s[j] = dot * (double)a->scale;
        top = fmax(top, s[j]);
        mass = fmax(mass, sum * (double)a->scale);
    }
    double c_bound = 0x1p-24 * (2 * (double)n * mass + 100);
    for (int j = a->first[query]; j <= a->last[query]; j++)
        l += exp(s[j] - top);
    if (a->first[query] > a->last[query]) {
        if (a->m[query] != -INFINITY) fail_check("%s: m of nothing", c->what);
    } else {
        compare_bound(c, "m", (size_t)query, (double)a->m[query], top, c_bound);
    }
    compare_bound(c, "l", (size_t)query, (double)a->l[query], l, c_bound * l);
    for (size_t d = 0; d < n; d++) {
        double o = 0, sum = 0;
        for (int j = a->first[query]; j <= a->last[query]; j++) {
            double x = exp(s[j] - top) * kv_value(a->v, type, (size_t)j * n + d);
            o += x;
            sum += fabs(x);
        }
        compare_bound(c, "o", d, (double)a->o[(size_t)query * n + d], o, c_bound * sum);
    }
}

/* Scores of a few units, so that the softmax is no one-hot. */
static void truth_attend_of(check *c, tg_kv_type type)
{
    for (int shape = 0; shape < 6; shape++) {
        attend_case x;
        make_attend(c, &x, type, 64, 7, shape, CALM);
        snprintf(c->what, sizeof c->what, "ranges %d", shape);
        for (size_t i = 0; i < 64 * 64 && type == TG_KV_F16; i++) { /* f16 of moderate size only */
            uint16_t *k = (uint16_t *)(uintptr_t)x.a.k, *v = (uint16_t *)(uintptr_t)x.a.v;
            k[i] = k[i] == 0x7e01 ? k[i] : (uint16_t)(0x3800 | (next_u32(c) & 0x87ff));
            v[i] = v[i] == 0xfe01 ? v[i] : (uint16_t)(0x3800 | (next_u32(c) & 0x87ff));
        }
        run_attend(c, c->ref->attend[type], &x.a, 6);
        for (int i = 0; i < x.a.n_queries; i++)
            truth_attend_query(c, &x.a, type, i);
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

static void check_kv_store_of(check *c, tg_kv_type type)
{
    static const int32_t dims[] = {8, 64, 72, 128, 256, 512};
    size_t size = type == TG_KV_F16 ? 2 : 4;
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
            uint16_t half[2] = {round_f16(key[d]), round_f16(value[d])};
            size_t at_k = (64 * d + slot) * size, at_v = (slot * dim + d) * size;
            if (size == 2 && isnan(key[d]) && isnan(f16_value(*(uint16_t *)(void *)(k + at_k))))
                memcpy(&half[0], k + at_k, 2);
            if (size == 2 && isnan(value[d]) && isnan(f16_value(*(uint16_t *)(void *)(v + at_v))))
                memcpy(&half[1], v + at_v, 2);
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

#endif
