/* SPDX-License-Identifier: Apache-2.0
 * bench.h - how long kernels take: the best of 200 runs, and the ratio to ref.
 *
 * For matrices also the rate at which weights are read and multiplied, at three sizes: a working
 * set in the second-level cache, one in the third, and one that comes from memory (every run
 * continues where the last one ended). */
#ifndef TG_TESTS_KERNELS_BENCH_H
#define TG_TESTS_KERNELS_BENCH_H

#include "support.h"

enum { BENCH_RUNS = 200 };

typedef void bench_body(const tg_kernels *k, void *arg);

static double time_body(bench_body *body, const tg_kernels *k, void *arg, int runs)
{
    double best = 1e30;
    for (int i = 0; i < runs; i++) {
        double t = get_ns();
        body(k, arg);
        best = fmin(best, get_ns() - t);
    }
    return best;
}

static void print_time(check *c, const char *label, bench_body *body, void *arg)
{
    double ns = time_body(body, c->k, arg, BENCH_RUNS), ref = time_body(body, c->ref, arg, 5);
    printf("    %-32s %10.0f ns  %7.1f x ref\n", label, ns, ref / ns);
}

/* ---- element-wise kernels on the width of a feed-forward layer */

typedef struct vectors {
    float x[2048], y[2048], z[2048];
    tg_a8 a8;
    _Alignas(64) char memory[32768];
    tg_act act;
    int32_t n_blocks;
} vectors;

static vectors bench_vectors;

static void fill_vectors(check *c)
{
    fill_floats(c, bench_vectors.x, 2048, CALM);
    fill_floats(c, bench_vectors.y, 2048, CALM);
    fill_floats(c, bench_vectors.z, 2048, CALM);
    const tg_a8_kind kind = {.top = TG_A8_TOP};
    tg_a8_place(&bench_vectors.a8, bench_vectors.memory, 1, 1536, &kind);
}

static void body_quantize(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    k->quantize(&v->a8, v->x, 1536);
}

static void bench_quantize(check *c)
{
    fill_vectors(c);
    print_time(c, "1536 columns", body_quantize, &bench_vectors);
}

static void body_rms_norm(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    k->rms_norm(v->y, v->x, v->z, 576, 1e-5f);
}

static void bench_rms_norm(check *c)
{
    fill_vectors(c);
    print_time(c, "576", body_rms_norm, &bench_vectors);
}

static void body_layer_norm(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    k->layer_norm(v->y, v->x, v->z, NULL, 576, 1e-5f);
}

static void bench_layer_norm(check *c)
{
    fill_vectors(c);
    print_time(c, "576", body_layer_norm, &bench_vectors);
}

static void body_cap(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    k->softcap(v->y, 1536, 30.0f);
}

static void bench_cap(check *c)
{
    fill_vectors(c);
    print_time(c, "1536", body_cap, &bench_vectors);
}

static void body_rope(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    for (int h = 0; h < 9; h++)
        k->rope(v->y + 64 * h, v->x, v->z, 64);
}

static void bench_rope(check *c)
{
    fill_vectors(c);
    print_time(c, "9 heads of 64", body_rope, &bench_vectors);
}

static void body_glu(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    k->glu[v->act](v->y, v->x, v->z, 1536);
}

static void bench_silu(check *c)
{
    fill_vectors(c);
    bench_vectors.act = TG_ACT_SILU;
    print_time(c, "1536", body_glu, &bench_vectors);
}

static void bench_gelu(check *c)
{
    fill_vectors(c);
    bench_vectors.act = TG_ACT_GELU_TANH;
    print_time(c, "1536", body_glu, &bench_vectors);
}

static void body_add(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    k->add(v->y, v->x, 576);
}

static void bench_add(check *c)
{
    fill_vectors(c);
    print_time(c, "576", body_add, &bench_vectors);
}

static void body_finish(const tg_kernels *k, void *arg)
{
    vectors *v = arg;
    tg_attend_parts parts = {.head_dim = 64,
                             .n_blocks = v->n_blocks,
                             .m = v->x,
                             .l = v->x,
                             .o = v->x,
                             .step = 1,
                             .o_step = 64};
    for (int i = 0; i < 9; i++)
        k->attend_finish(v->y + 64 * i, &parts);
}

static void bench_finish(check *c)
{
    fill_vectors(c);
    bench_vectors.n_blocks = 2;
    print_time(c, "9 heads of 64, 2 blocks", body_finish, &bench_vectors);
    bench_vectors.n_blocks = 4;
    print_time(c, "9 heads of 64, 4 blocks", body_finish, &bench_vectors);
    bench_vectors.n_blocks = 32;
    print_time(c, "9 heads of 64, 32 blocks", body_finish, &bench_vectors);
}

/* ---- attention over one page */

typedef struct page {
    _Alignas(64) char k[64 * 256 * 4], v[64 * 256 * 4], scratch[TG_ATTEND_SCRATCH_BYTES];
    float q[64 * 256], made[64 * 256], m[64], l[64], o[64 * 256];
    const float *rows[64];
    int32_t first[64], last[64];
    tg_attend a;
    tg_kv_type type;
} page;

static page bench_page;

static void body_attend(const tg_kernels *k, void *arg)
{
    page *p = arg;
    k->attend[p->type](&p->a);
}

static void bench_attend_of(check *c, tg_kv_type type)
{
    /* head_dim, queries, and how many of them share a token of a verified step, whose tokens see 1,
     * 2, ... keys; 0: all see all. */
    static const int32_t shapes[][3] = {{64, 3, 0},  {64, 3, 3},  {64, 12, 3},  {64, 24, 3},
                                        {64, 60, 0}, {128, 4, 0}, {128, 60, 0}, {256, 4, 0},
                                        {256, 4, 4}, {256, 60, 0}};
    page *p = &bench_page;
    fill_floats(c, p->q, TG_COUNT(p->q), CALM);
    for (size_t s = 0; s < TG_COUNT(shapes); s++) {
        int32_t dim = shapes[s][0], n = shapes[s][1], group = shapes[s][2];
        for (int32_t i = 0; i < TG_KV_PAGE_TOKENS; i++)
            c->ref->kv_store[type](p->k, p->v, i, p->q + i * dim, p->q + (63 - i) * dim, dim);
        for (int i = 0; i < n; i++) {
            p->rows[i] = p->q + i * dim;
            if (c->ref->kv_query[type]) {
                p->rows[i] = p->made + i * dim;
                c->ref->kv_query[type](p->made + i * dim, p->q + i * dim, dim);
            }
            p->first[i] = 0;
            p->last[i] = group ? i / group : TG_KV_PAGE_TOKENS - 1;
        }
        p->type = type;
        p->a = (tg_attend){.k = p->k,
                           .v = p->v,
                           .head_dim = dim,
                           .n_queries = n,
                           .q = p->rows,
                           .first = p->first,
                           .last = p->last,
                           .scale = 0.125f,
                           .m = p->m,
                           .l = p->l,
                           .o = p->o,
                           .scratch = p->scratch};
        char label[64];
        snprintf(label, sizeof label, "head_dim %d, %d queries%s", dim, n,
                 group ? ", few keys" : "");
        print_time(c, label, body_attend, p);
        if (group) continue;
        double ns = time_body(body_attend, c->k, p, BENCH_RUNS);
        printf("    %-32s %10.3f ns per query and key\n", "", ns / 64 / n);
    }
}

static void bench_attend_f32(check *c)
{
    bench_attend_of(c, TG_KV_F32);
}

static void bench_attend_bf16(check *c)
{
    bench_attend_of(c, TG_KV_BF16);
}

static void bench_attend_q8(check *c)
{
    bench_attend_of(c, TG_KV_Q8);
}

static void bench_attend_q16(check *c)
{
    bench_attend_of(c, TG_KV_Q16);
}

static void bench_attend_f16(check *c)
{
    bench_attend_of(c, TG_KV_F16);
}

static void body_kv_store(const tg_kernels *k, void *arg)
{
    page *p = arg;
    for (int i = 0; i < 3; i++)
        k->kv_store[p->type](p->k, p->v, i, p->q, p->q + 64, 64);
}

static void bench_kv_store_of(check *c, tg_kv_type type)
{
    bench_page.type = type;
    fill_floats(c, bench_page.q, 128, CALM);
    print_time(c, "3 heads of 64", body_kv_store, &bench_page);
}

static void bench_kv_store(check *c)
{
    bench_kv_store_of(c, TG_KV_F16);
}

static void bench_kv_store_q16(check *c)
{
    bench_kv_store_of(c, TG_KV_Q16);
}

/* ---- sampling */

typedef struct sample_bench {
    float *logits;
    void *scratch;
    int32_t n;
    tg_sample_params p;
} sample_bench;

static void body_sample(const tg_kernels *k, void *arg)
{
    sample_bench *s = arg;
    k->sample_row(s->logits, s->n, &s->p, NULL, s->scratch);
}

static void bench_sample(check *c)
{
    static const struct {
        const char *name;
        tg_sample_params p;
    } ways[] = {{"greedy", {.temperature = 0}},
                {"temperature", {.temperature = 1}},
                {"top_k 40", {.temperature = 0.8f, .top_k = 40}},
                {"top_k 40, top_p 0.95", {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f}},
                {"top_p 0.95", {.temperature = 0.8f, .top_p = 0.95f}},
                {"min_p 0.05", {.temperature = 1, .min_p = 0.05f}}};
    static const int32_t sizes[] = {49152, 262144};
    for (size_t i = 0; i < TG_COUNT(ways) * TG_COUNT(sizes); i++) {
        sample_bench s = {.n = sizes[i / TG_COUNT(ways)], .p = ways[i % TG_COUNT(ways)].p};
        size_t bytes = 4 * (size_t)s.n, more = tg_align_up(tg_sample_scratch_bytes(s.n), 64);
        s.logits = tg_test_guarded(bytes);
        s.scratch = tg_test_guarded(more);
        fill_floats(c, s.logits, (size_t)s.n, CALM);
        for (int32_t j = 0; j < s.n; j++) /* a model's logits: a few stand out */
            s.logits[j] = s.logits[j] * 2 + (next_below(c, 1000) ? 0 : 8);
        char label[64];
        snprintf(label, sizeof label, "%d: %s", s.n, ways[i % TG_COUNT(ways)].name);
        print_time(c, label, body_sample, &s);
    }
}

/* ---- matrices: random bytes with tame scales */

typedef struct matmul_bench {
    tg_layout layout;
    tg_matmul m;
    uint8_t *w;
    size_t n_bytes, at; /* of all weights; where the next run starts */
} matmul_bench;

static void body_matmul(const tg_kernels *k, void *arg)
{
    matmul_bench *b = arg;
    size_t step = b->m.tile_stride * (size_t)b->m.n_tiles;
    if (b->at + step > b->n_bytes) b->at = 0;
    b->m.w = b->w + b->at;
    b->at += step;
    k->matmul[b->layout](&b->m);
}

static void bench_matmul_shape(check *c, matmul_bench *b, int32_t cols, int32_t n_tokens,
                               size_t set, int32_t n_outliers)
{
    static int16_t map[256];
    int32_t list[128];
    static _Alignas(64) char scratch[TG_MATMUL_SCRATCH_BYTES], memory[2 << 20];
    static float x[64 * 2048], y[64 * 4096];
    size_t tile = tg_layout_tile_bytes(b->layout, cols);
    b->m = (tg_matmul){.tile_stride = tile,
                       .n_cols = cols,
                       .n_tokens = n_tokens,
                       .x = x,
                       .x_stride = cols,
                       .y = y,
                       .scratch = scratch,
                       .prefetch_bytes = tg_cpu_prefetch_bytes(tg_cpu_find_model())};
    b->m.n_tiles = (int32_t)TG_MIN(TG_MAX(set, tile) / tile, 64u);
    b->m.n_rows = 16 * b->m.n_tiles;
    b->m.y_stride = b->m.n_rows;
    b->n_bytes = set / (tile * (size_t)b->m.n_tiles) * (tile * (size_t)b->m.n_tiles);
    tg_a8 a;
    for (int32_t i = 0; i < n_outliers; i++)
        list[i] = i * (cols / 32) / n_outliers; /* spread evenly */
    tg_a8_map(map, cols, list, n_outliers);
    const tg_a8_kind kind = {.outliers = map,
                             .n_outliers = n_outliers,
                             .top = tg_a8_top(b->layout),
                             .has_pairs =
                                 tg_cpu_gains_by_pairs(tg_cpu_find_model(), tg_cpu_detect())};
    tg_a8_place(&a, memory, n_tokens, cols, &kind);
    fill_floats(c, x, (size_t)(cols * n_tokens), CALM);
    for (int32_t t = 0; t < n_tokens; t++) {
        tg_a8 row = tg_a8_from(&a, t);
        c->ref->quantize(&row, x + t * cols, cols);
    }
    b->m.a8 = &a;
    for (int i = 0; i < 3; i++)
        body_matmul(c->k, b); /* warm up the first-touched weights */
    double ns = time_body(body_matmul, c->k, b, BENCH_RUNS);
    if (set > (32u << 20)) { /* memory: an average over a pass, the best would be a lucky cache */
        int n = (int)(b->n_bytes / (tile * (size_t)b->m.n_tiles));
        b->at = 0;
        double t = get_ns();
        for (int i = 0; i < n; i++)
            body_matmul(c->k, b);
        ns = (get_ns() - t) / n;
    }
    double bytes = (double)(tile * (size_t)b->m.n_tiles);
    double macs = (double)b->m.n_rows * cols * n_tokens;
    printf("    K %4d, set %6zu kB, %2d tokens, %2d wide  %9.0f ns  %6.1f GB/s  %6.1f GMAC/s\n",
           cols, set >> 10, n_tokens, n_outliers, ns, bytes / ns, macs / ns);
}

static void bench_matmul_of(check *c, tg_layout l)
{
    static uint8_t *weights;
    enum { ALL = 256 << 20 };
    matmul_bench b = {.layout = l};
    if (!weights) weights = tg_test_guarded(ALL);
    uint64_t *words = (uint64_t *)(void *)weights;
    uint64_t state = tg_test_seed(), z = tg_test_next(&state);
    for (size_t i = 0; i < ALL / 8; i++) { /* scales 2^-7..: every 16 bits a small positive f16 */
        z = z * 6364136223846793005u + 1442695040888963407u;
        words[i] = l <= TG_LAYOUT_BF16 ? 0x3c003c003c003c00u : (z >> 3 & 0x27ff27ff27ff27ffu);
    }
    b.w = weights;
    bool is_slow = c->k->matmul[l] == c->ref->matmul[l];
    if (is_slow) {
        bench_matmul_shape(c, &b, 576, 1, 512 << 10, 0);
        return;
    }
    for (int s = 0; s < 3; s++)
        for (int32_t t = 1; t <= 8; t += t < 4 ? 1 : 2)
            bench_matmul_shape(c, &b, 576, t, (size_t[]){512 << 10, 6 << 20, 192 << 20}[s], 0);
    for (int32_t t = 1; t <= 4; t *= 2)
        for (int32_t n_outliers = 1; n_outliers <= 18 && l > TG_LAYOUT_BF16;
             n_outliers += n_outliers == 1 ? 1 : 16)
            bench_matmul_shape(c, &b, 576, t, 512 << 10, n_outliers);
    static const int32_t counts[] = {12, 32, 48, 64};
    for (size_t i = 0; i < TG_COUNT(counts); i++)
        bench_matmul_shape(c, &b, 576, counts[i], 512 << 10, 0);
    bench_matmul_shape(c, &b, 1536, 48, 2 << 20, 0);
    bench_matmul_shape(c, &b, 2048, 48, 2 << 20, 0);
    if (l <= TG_LAYOUT_BF16) return;
    bench_matmul_shape(c, &b, 576, 48, 512 << 10, 1);
    bench_matmul_shape(c, &b, 576, 48, 512 << 10, 2);
    bench_matmul_shape(c, &b, 1536, 48, 2 << 20, 48);
}

#endif
