/* SPDX-License-Identifier: Apache-2.0
 * test_bits.c - the same question has one answer, to the bit.
 *
 * One base run of each real model over 700 tokens (beyond Gemma's window of 512), all logits rows
 * hashed; then every axis alone, and 20 seeded combinations: threads, tier, chunks, buckets, other
 * rows in the step, tokens verified by the speculate graph, a KV pool full of NaN, twice in a row.
 * The hash of every row is equal. A sample (check.h) has every axis, over 200 tokens where another
 * axis has crossed the window already, and 5 combinations. */
#include "kernel/cpu.h"
#include "parity.h"

#include <stdio.h>
#include <xxhash.h>

enum {
    N_TOKENS = 700,
    N_SAMPLED_TOKENS = 200,
    N_COMBINATIONS = 20,
    N_SAMPLED_COMBINATIONS = 5,
    N_REF_TOKENS = 80,
    N_KV_TOKENS = 140,
    N_KV_REF_TOKENS = 68,
    BATCH = 3,
    K = 4
};

/* One way to read the same tokens. */
typedef struct way {
    const char *name;
    int32_t threads;
    const char *tier;
    int32_t chunk;     /* tokens a context step; 0: as many as fit */
    int32_t verified;  /* from here on by the speculate graph, K + 1 at a time; 0: none */
    int32_t decoded;   /* from here on by the token graph, one at a time; 0: none */
    int32_t neighbors; /* other rows in every context step, 0 to 2 */
    bool has_nan;      /* the pools hold NaN before */
    bool other_buckets;
    bool is_long; /* all tokens in a sample too */
    int32_t n_tokens;
} way;

typedef struct model {
    const char *source, *ids_file;
    char artifact[256], rebucketed[256];
    int32_t ids[N_TOKENS];
    uint64_t base[N_TOKENS];
} model;

static void hash_outs(parity_run *r, int32_t first_out, int32_t n, uint64_t *hashes)
{
    for (int32_t i = 0; i < n; i++) {
        const float *logits;
        assert_int_equal(tg_exec_read_logits(r->exec, first_out + i, &logits, NULL), TG_OK);
        hashes[i] = XXH3_64bits(logits, (size_t)r->artifact->program.n_vocab * sizeof *logits);
    }
}

/* Our row is 1, with n_outs wanted; rows 0 and 2 read other tokens of their own, before and behind
 * it. */
static int32_t add_neighbors(const model *m, const way *w, int32_t at, int32_t n, int32_t n_outs,
                             int32_t room, tg_exec_row rows[BATCH], int32_t *before)
{
    int32_t n_rows = 0;
    int32_t n_other = TG_MIN(TG_MIN(5, N_TOKENS - at), (room - n) / 2);
    *before = 0;
    if (w->neighbors > 0 && n_other > 0) {
        rows[n_rows++] = (tg_exec_row){.row = 0,
                                       .tokens = m->ids + N_TOKENS - at - n_other,
                                       .n_tokens = n_other,
                                       .position = at,
                                       .n_outs = 1};
        *before = 1;
    }
    rows[n_rows++] = (tg_exec_row){
        .row = 1, .tokens = m->ids + at, .n_tokens = n, .position = at, .n_outs = n_outs};
    if (w->neighbors > 1 && n_other > 0)
        rows[n_rows++] =
            (tg_exec_row){.row = 2, .tokens = m->ids, .n_tokens = n_other, .position = 0};
    return n_rows;
}

static void step(parity_run *r, tg_graph_kind kind, const tg_exec_row *rows, int32_t n)
{
    tg_err e = {0};
    if (tg_exec_step(r->exec, kind, rows, n, &e) != TG_OK) fail_msg("%s", e.msg);
}

/* A hash of 0 stands where a step had more tokens than it has rows of logits: of its first ones. */
static void run_way(const model *m, const way *w, uint64_t *hashes)
{
    parity_run r;
    memset(hashes, 0, (size_t)w->n_tokens * sizeof *hashes);
    parity_open(&r, w->other_buckets ? m->rebucketed : m->artifact, w->threads, w->tier);
    int32_t room = tg_program_max_tokens(&r.artifact->program, TG_KIND_CONTEXT);
    int32_t most = tg_io_most_outs(&r.artifact->program) - 1; /* one is a neighbor's */
    if (w->has_nan) assert_int_equal(tg_exec_fill_kv(r.exec, 0xff, NULL), TG_OK);
    for (int32_t at = 0; at < w->n_tokens;) {
        tg_exec_row rows[BATCH];
        int32_t before = 0, n_rows = 1, n, n_outs;
        tg_graph_kind kind = TG_KIND_CONTEXT;
        bool is_decoded = w->decoded > 0 && at >= w->decoded;
        bool is_verified = w->verified > 0 && at >= w->verified && !is_decoded;
        if (is_decoded || is_verified) {
            kind = is_decoded ? TG_KIND_TOKEN : TG_KIND_SPECULATE;
            n = TG_MIN(is_decoded ? 1 : K + 1, w->n_tokens - at);
            if (is_verified && w->decoded > 0) n = TG_MIN(n, w->decoded - at);
            n_outs = n;
            rows[0] = (tg_exec_row){
                .row = 1, .tokens = m->ids + at, .n_tokens = n, .position = at, .n_outs = n};
        } else {
            int32_t switch_at = w->verified > 0 ? w->verified : w->decoded;
            n = TG_MIN(w->chunk > 0 ? w->chunk : room, w->n_tokens - at);
            if (switch_at > 0) n = TG_MIN(n, switch_at - at);
            n = TG_MIN(n, room - 4 * w->neighbors);
            n_outs = TG_MIN(n, most);
            n_rows = add_neighbors(m, w, at, n, n_outs, room, rows, &before);
        }
        step(&r, kind, rows, n_rows);
        hash_outs(&r, before, n_outs, hashes + at + n - n_outs);
        at += n;
    }
    parity_close(&r);
}

static void check_way(const model *m, const way *w)
{
    uint64_t hashes[N_TOKENS];
    run_way(m, w, hashes);
    for (int32_t i = 0; i < w->n_tokens; i++)
        if (hashes[i] && hashes[i] != m->base[i])
            fail_msg("%s (threads %d, tier %s, chunk %d, verified from %d, decoded from %d, "
                     "neighbors %d, nan %d, buckets %d): row %d differs from the base run",
                     w->name, w->threads, w->tier ? w->tier : "best", w->chunk, w->verified,
                     w->decoded, w->neighbors, w->has_nan, w->other_buckets, i);
}

static bool has_tier(const char *name)
{
    tg_cpu_tier t;
    return tg_cpu_choose(&t, name, NULL) == TG_OK;
}

static void check_axes(const model *m)
{
    static const way axes[] = {
        {.name = "again", .threads = 1},
        {.name = "threads", .threads = 2, .is_long = true},
        {.name = "threads", .threads = 3, .n_tokens = 200},
        {.name = "chunk", .threads = 2, .chunk = 7, .n_tokens = 200},
        {.name = "chunk", .threads = 2, .chunk = 16, .n_tokens = 200},
        {.name = "chunk", .threads = 2, .chunk = 63},
        {.name = "chunk", .threads = 2, .chunk = 64, .n_tokens = 200},
        {.name = "chunk", .threads = 2, .chunk = 65, .n_tokens = 200},
        {.name = "chunk", .threads = 1, .chunk = 499}, /* whose last block of tokens is longest */
        {.name = "chunk of 1", .threads = 2, .chunk = 1, .n_tokens = 150},
        {.name = "token graph", .threads = 2, .decoded = 560, .is_long = true},
        {.name = "speculate graph", .threads = 2, .verified = 450, .is_long = true},
        {.name = "neighbors", .threads = 2, .chunk = 100, .neighbors = 1, .n_tokens = 200},
        {.name = "neighbors", .threads = 2, .chunk = 100, .neighbors = 2},
        {.name = "NaN pool", .threads = 2, .has_nan = true},
        {.name = "buckets", .threads = 2, .other_buckets = true},
        {.name = "ref", .threads = 2, .tier = "ref", .n_tokens = N_REF_TOKENS},
        {.name = "avx2", .threads = 2, .tier = "avx2", .n_tokens = 200},
    };
    for (size_t i = 0; i < TG_COUNT(axes); i++) {
        way w = axes[i];
        bool is_short = tg_test_is_sampled() && !w.is_long;
        if (w.n_tokens == 0) w.n_tokens = is_short ? N_SAMPLED_TOKENS : N_TOKENS;
        if (w.tier && !has_tier(w.tier)) {
            print_message("tier %s is not on this machine\n", w.tier);
            continue;
        }
        check_way(m, &w);
    }
}

static int32_t pick(uint64_t *rng, int32_t n)
{
    return (int32_t)(tg_test_next(rng) % (uint64_t)n);
}

static void check_combinations(const model *m)
{
    static const char *const tiers[] = {NULL, "avx512", "avx2"};
    static const int32_t chunks[] = {0, 3, 7, 16, 33, 63, 64, 65, 127, 200};
    uint64_t rng = tg_test_seed();
    int n = tg_test_is_sampled() ? N_SAMPLED_COMBINATIONS : N_COMBINATIONS;
    for (int i = 0; i < n; i++) {
        way w = {
            .name = "combination",
            .threads = 1 + pick(&rng, 3),
            .tier = tiers[pick(&rng, 3)],
            .chunk = chunks[pick(&rng, 10)],
            .neighbors = pick(&rng, 3),
            .has_nan = pick(&rng, 2),
            .other_buckets = pick(&rng, 2),
            .n_tokens = 100 + pick(&rng, 200),
        };
        if (pick(&rng, 2)) w.verified = 20 + pick(&rng, w.n_tokens - 20);
        if (pick(&rng, 2)) w.decoded = TG_MAX(w.verified, w.n_tokens - 1 - pick(&rng, 20));
        if (w.tier && !has_tier(w.tier)) w.tier = NULL;
        check_way(m, &w);
    }
}

static void check_model(const char *file, const char *ids_file)
{
    static model m;
    static const int32_t buckets[] = {32, 128, 512}, other[] = {64, 700};
    tg_export_options o = {.batch = BATCH,
                           .max_length = 1024,
                           .context_buckets = buckets,
                           .n_context_buckets = 3,
                           .speculation = K,
                           .has_speculation = true};
    m.source = parity_find_model(file);
    if (!m.source) skip();
    char name[64];
    snprintf(name, sizeof name, "%s.bits", file);
    snprintf(m.artifact, sizeof m.artifact, "%s", parity_export(m.source, name, &o));
    o.context_buckets = other;
    o.n_context_buckets = 2;
    snprintf(name, sizeof name, "%s.rebucketed", file);
    snprintf(m.rebucketed, sizeof m.rebucketed, "%s", parity_export(m.source, name, &o));
    assert_int_equal(parity_load_ids(ids_file, m.ids, N_TOKENS), N_TOKENS);

    way base = {.name = "base", .threads = 1, .chunk = 50, .n_tokens = N_TOKENS};
    run_way(&m, &base, m.base);
    check_axes(&m);
    check_combinations(&m);
}

/* The other cache types and activations, over a page's edge or two: prompt, decode, verification,
 * tiers; the slow one in a sample only where it is asked for. */
static void check_numbers(const char *kv, const char *activations, bool is_ref_sampled)
{
    static model m;
    static const way axes[] = {
        {.threads = 2, .chunk = 7, .n_tokens = N_KV_TOKENS},
        {.threads = 2, .chunk = 65, .has_nan = true, .n_tokens = N_KV_TOKENS},
        {.threads = 3, .chunk = 40, .neighbors = 2, .n_tokens = N_KV_TOKENS},
        {.threads = 2, .decoded = 60, .n_tokens = N_KV_TOKENS},
        {.threads = 1, .verified = 50, .decoded = 120, .n_tokens = N_KV_TOKENS},
        {.threads = 2, .tier = "avx2", .verified = 100, .n_tokens = N_KV_TOKENS},
        {.threads = 2, .tier = "ref", .n_tokens = N_KV_REF_TOKENS},
    };
    tg_export_options o = {.batch = BATCH,
                           .max_length = 256,
                           .speculation = K,
                           .has_speculation = true,
                           .activations = activations,
                           .kv = kv};
    m.source = parity_find_model("smollm2-135m-instruct.gguf");
    if (!m.source) skip();
    char name[64];
    snprintf(name, sizeof name, "smollm2.%s.%s.bits", activations, kv);
    snprintf(m.artifact, sizeof m.artifact, "%s", parity_export(m.source, name, &o));
    assert_int_equal(parity_load_ids("tests/golden/kl-ids-smollm2.txt", m.ids, N_TOKENS), N_TOKENS);
    way base = {.name = "base", .threads = 1, .chunk = 50, .n_tokens = N_KV_TOKENS};
    run_way(&m, &base, m.base);
    for (size_t i = 0; i < TG_COUNT(axes); i++) {
        way w = axes[i];
        w.name = name;
        bool is_slow = w.tier && strcmp(w.tier, "ref") == 0;
        if (is_slow && tg_test_is_sampled() && !is_ref_sampled) continue;
        if (!w.tier || has_tier(w.tier)) check_way(&m, &w);
    }
}

static void every_kv_type_has_one_answer_to_the_bit(void **state)
{
    (void)state;
    check_numbers("f32", "int8", false);
    check_numbers("f16", "int8", false);
    check_numbers("bf16", "int8", false);
    check_numbers("q8", "int8", false);
    check_numbers("q16", "int8", true);
}

static void activations_of_16_bits_have_one_answer_to_the_bit(void **state)
{
    (void)state;
    check_numbers("q16", "int16", false);
    check_numbers("q8", "int16", true);
}

static void smollm2_has_one_answer_to_the_bit(void **state)
{
    (void)state;
    check_model("smollm2-135m-instruct.gguf", "tests/golden/kl-ids-smollm2.txt");
}

static void gemma3_has_one_answer_to_the_bit(void **state)
{
    (void)state;
    check_model("gemma3-270m.gguf", "tests/golden/kl-ids-gemma3.txt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kv_type_has_one_answer_to_the_bit),
        cmocka_unit_test(activations_of_16_bits_have_one_answer_to_the_bit),
        cmocka_unit_test(smollm2_has_one_answer_to_the_bit),
        cmocka_unit_test(gemma3_has_one_answer_to_the_bit),
    };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
