/* SPDX-License-Identifier: Apache-2.0
 * test_longrope.c - a text that grows beyond the original length of its longrope model.
 *
 * The model is tests/parity/models/phi3-across, whose original length is 48; the expected ids are
 * those of transformers' generate, which computes the cache again with long factors at that point
 * (tests/parity/kit). test_models.c compares its logits on both sides. */
#include "parity.h"

#include <stdio.h>
#include <xxhash.h>

enum { N_SEQUENCES = 4, MAX_IDS = 96, ORIGINAL = 48, BATCH = 4, K = 4 };

static const char *const source = "tests/parity/models/phi3-across";

typedef struct sequence {
    int32_t ids[MAX_IDS], n, n_prompt, greedy[MAX_IDS], n_greedy;
} sequence;

static sequence sequences[N_SEQUENCES];

static int load_sequences(void **state)
{
    (void)state;
    char path[200];
    snprintf(path, sizeof path, "%s/expected.json", source);
    json_t *all = parity_load_json(path);
    for (int32_t i = 0; i < N_SEQUENCES; i++) {
        const json_t *s = json_array_get(json_object_get(all, "sequences"), (size_t)i);
        sequence *q = &sequences[i];
        q->n = parity_get_ids(json_object_get(s, "ids"), q->ids, MAX_IDS);
        q->n_greedy = parity_get_ids(json_object_get(s, "greedy"), q->greedy, MAX_IDS);
        q->n_prompt = (int32_t)json_integer_value(json_object_get(s, "prompt"));
    }
    json_decref(all);
    /* The first crosses the original length, the others stay below it. */
    assert_true(sequences[0].n_prompt < ORIGINAL);
    assert_true(sequences[0].n_prompt + sequences[0].n_greedy > ORIGINAL + 4);
    for (int32_t i = 1; i < N_SEQUENCES; i++)
        assert_true(sequences[i].n_prompt + sequences[i].n_greedy <= ORIGINAL);
    return 0;
}

typedef struct fixture {
    tg_model *model;
    tg_engine *engine;
} fixture;

static const char *export_with(int32_t batch, int32_t bucket, const char *weights)
{
    char name[64];
    tg_export_options o = {.batch = batch,
                           .context_buckets = &bucket,
                           .n_context_buckets = 1,
                           .speculation = K,
                           .has_speculation = true,
                           .weights = weights};
    snprintf(name, sizeof name, "longrope-%d-%d-%s", batch, bucket, weights);
    return parity_export(source, name, &o);
}

static void open_fixture(fixture *f, int32_t batch, int32_t bucket, const char *weights)
{
    tg_err e = {0};
    tg_engine_options o = {.n_threads = 2};
    if (tg_model_open(&f->model, export_with(batch, bucket, weights), &e) != TG_OK)
        fail_msg("%s", e.msg);
    if (tg_engine_open(&f->engine, f->model, &o, &e) != TG_OK) fail_msg("%s", e.msg);
}

static void close_fixture(fixture *f)
{
    tg_engine_close(f->engine);
    tg_model_close(f->model);
}

static tg_request *submit(fixture *f, const int32_t *ids, int32_t n, const tg_request_options *o)
{
    tg_request *r;
    tg_err e = {0};
    if (tg_engine_submit(&r, f->engine, ids, n, o, &e) != TG_OK) fail_msg("%s", e.msg);
    return r;
}

/* Waits for a request, copies its completion, and frees it. */
static tg_request_stats finish(tg_request *r, int32_t out[MAX_IDS], int32_t *n)
{
    tg_err e = {0};
    if (tg_request_wait(r, &e) != TG_OK) fail_msg("%s", e.msg);
    const int32_t *ids = tg_request_get_tokens(r, n);
    assert_true(*n <= MAX_IDS);
    memcpy(out, ids, (size_t)*n * sizeof *out);
    tg_request_stats stats = tg_request_get_stats(r);
    tg_request_free(r);
    return stats;
}

static tg_request_stats complete(fixture *f, const int32_t *ids, int32_t n_ids, int32_t max_tokens,
                                 int32_t out[MAX_IDS])
{
    int32_t n;
    tg_request_options o = {.max_tokens = max_tokens, .ignore_eos = true};
    tg_request_stats stats = finish(submit(f, ids, n_ids, &o), out, &n);
    assert_int_equal(n, max_tokens);
    return stats;
}

static void completions_cross_the_original_length_as_generate_does(void **state)
{
    (void)state;
    static const int32_t buckets[] = {128, 16, 7};
    for (size_t b = 0; b < TG_COUNT(buckets); b++)
        for (int32_t batch = 1; batch <= BATCH; batch += BATCH - 1) {
            fixture f;
            tg_request *r[N_SEQUENCES];
            open_fixture(&f, batch, buckets[b], "f32");
            for (int32_t i = 0; i < N_SEQUENCES; i++) {
                const sequence *q = &sequences[i];
                r[i] = submit(&f, q->ids, q->n_prompt,
                              &(tg_request_options){.max_tokens = q->n_greedy, .ignore_eos = true});
            }
            for (int32_t i = 0; i < N_SEQUENCES; i++) {
                int32_t got[MAX_IDS], n;
                tg_request_stats stats = finish(r[i], got, &n);
                assert_int_equal(n, sequences[i].n_greedy);
                assert_memory_equal(got, sequences[i].greedy, (size_t)n * sizeof *got);
                assert_int_equal(stats.n_recomputed_tokens, i == 0 ? ORIGINAL : 0);
            }
            close_fixture(&f);
        }
}

/* Sampled from quantized weights: any other bit of a logit or a key shows sooner or later. */
static void sampled_completions_do_not_depend_on_chunks_or_neighbors(void **state)
{
    (void)state;
    enum { N = 40 };
    static const int32_t buckets[] = {128, 16, 7};
    const sequence *q = &sequences[0];
    int32_t want[MAX_IDS], got[MAX_IDS], n;
    tg_request_options o = {
        .max_tokens = N, .ignore_eos = true, .sampling = {.temperature = 2, .seed = 5}};
    for (size_t b = 0; b < TG_COUNT(buckets); b++)
        for (int32_t batch = 1; batch <= BATCH; batch += BATCH - 1) {
            fixture f;
            bool is_first = b == 0 && batch == 1;
            open_fixture(&f, batch, buckets[b], "auto");
            tg_request *other = submit(&f, q->ids, q->n, &(tg_request_options){.max_tokens = 20});
            tg_request *r = submit(&f, q->ids, q->n_prompt, &o);
            finish(r, is_first ? want : got, &n);
            assert_int_equal(n, N);
            if (!is_first) assert_memory_equal(got, want, sizeof *got * N);
            tg_request_free(other);
            close_fixture(&f);
        }
}

static void a_completion_that_ends_at_the_original_length_is_computed_once(void **state)
{
    (void)state;
    fixture f;
    int32_t got[MAX_IDS];
    const sequence *q = &sequences[0];
    open_fixture(&f, 1, 128, "f32");
    /* The token drawn last is not read: 48 tokens are, then 49. */
    int32_t n = ORIGINAL - q->n_prompt + 1;
    assert_int_equal(complete(&f, q->ids, q->n_prompt, n, got).n_recomputed_tokens, 0);
    assert_int_equal(complete(&f, q->ids, q->n_prompt, n + 1, got).n_recomputed_tokens, ORIGINAL);
    assert_memory_equal(got, q->greedy, sizeof *got * (size_t)(n + 1));
    close_fixture(&f);
}

static void short_and_long_texts_share_no_prefix(void **state)
{
    (void)state;
    enum { N = 6 };
    fixture f, fresh;
    int32_t first[MAX_IDS], want[MAX_IDS], got[MAX_IDS], text[MAX_IDS];
    const sequence *q = &sequences[0];
    open_fixture(&f, 1, 128, "f32");
    open_fixture(&fresh, 1, 128, "f32");
    complete(&fresh, q->ids, q->n, N, want);
    complete(&f, q->ids, q->n_prompt, N, first);
    /* The same first 40 tokens, in a long text, again, and in a short one. */
    assert_int_equal(complete(&f, q->ids, q->n, N, got).n_cached_tokens, 0);
    assert_memory_equal(got, want, sizeof *got * N);
    assert_int_equal(complete(&f, q->ids, q->n, N, got).n_cached_tokens, q->n - 1);
    assert_memory_equal(got, want, sizeof *got * N);
    assert_int_equal(complete(&f, q->ids, q->n_prompt, N, got).n_cached_tokens, 0);
    assert_memory_equal(got, first, sizeof *got * N);
    /* A conversation that became long goes on from its cache. */
    complete(&f, q->ids, q->n_prompt, q->n_greedy, got);
    memcpy(text, q->ids, (size_t)q->n_prompt * sizeof *text);
    memcpy(text + q->n_prompt, got, (size_t)q->n_greedy * sizeof *text);
    int32_t n = q->n_prompt + q->n_greedy;
    complete(&fresh, text, n, N, want);
    assert_int_equal(complete(&f, text, n, N, got).n_cached_tokens, n - 1);
    assert_memory_equal(got, want, sizeof *got * N);
    close_fixture(&f);
    close_fixture(&fresh);
}

static void a_request_is_cancelled_while_it_is_computed_again(void **state)
{
    (void)state;
    fixture f;
    bool is_idle = false;
    const sequence *q = &sequences[0];
    int32_t n;
    open_fixture(&f, 1, 7, "f32");
    /* Six steps read the prompt and draw a token, eight draw one each; the seven after those read
     * all 49 tokens again. */
    assert_int_equal(q->n_prompt, 40);
    tg_request *r = submit(&f, q->ids, q->n_prompt, &(tg_request_options){.ignore_eos = true});
    for (int32_t i = 0; i < 6 + 8 + 3; i++)
        assert_int_equal(tg_engine_step(f.engine, &is_idle, NULL), TG_OK);
    tg_request_get_tokens(r, &n);
    assert_int_equal(n, 9);
    tg_request_cancel(r);
    assert_int_equal(tg_request_wait(r, NULL), TG_OK);
    tg_request_stats stats = tg_request_get_stats(r);
    assert_int_equal(stats.finish, TG_FINISH_CANCELLED);
    assert_int_equal(stats.n_completion_tokens, 9);
    assert_int_equal(stats.n_recomputed_tokens, ORIGINAL);
    tg_request_free(r);
    close_fixture(&f);
}

/* ---- steps */

typedef struct hashes {
    uint64_t of[MAX_IDS];
} hashes;

static bool hash_row(void *context, int32_t i, const float *logits, int32_t n_vocab)
{
    ((hashes *)context)->of[i] = XXH3_64bits(logits, (size_t)n_vocab * sizeof *logits);
    return false;
}

static void evaluated_logits_depend_on_the_texts_length_and_not_on_chunks(void **state)
{
    (void)state;
    static const int32_t chunks[] = {0, 1, 5, 16, 47, 48, 49};
    const sequence *q = &sequences[0];
    hashes first[2], got;
    fixture f;
    open_fixture(&f, 1, 128, "auto");
    for (int32_t extra = 0; extra < 2; extra++)
        for (size_t i = 0; i < TG_COUNT(chunks); i++) {
            hashes *to = i == 0 ? &first[extra] : &got;
            int32_t n = ORIGINAL + extra;
            assert_int_equal(tg_engine_eval(f.engine, q->ids, n, chunks[i], hash_row, to, NULL),
                             TG_OK);
            assert_memory_equal(to->of, first[extra].of, sizeof *to->of * (size_t)n);
        }
    for (int32_t i = 1; i < ORIGINAL; i++)
        assert_true(first[0].of[i] != first[1].of[i]);
    close_fixture(&f);
}

static tg_status step(parity_run *r, tg_graph_kind kind, int32_t at, int32_t n, int32_t n_outs,
                      tg_err *e)
{
    tg_exec_row row = {
        .tokens = sequences[0].ids + at, .n_tokens = n, .position = at, .n_outs = n_outs};
    return tg_exec_step(r->exec, kind, &row, 1, e);
}

static uint64_t hash_output(parity_run *r, int32_t out)
{
    const float *logits;
    assert_int_equal(tg_exec_read_logits(r->exec, out, &logits, NULL), TG_OK);
    return XXH3_64bits(logits, (size_t)r->artifact->program.n_vocab * sizeof *logits);
}

static void drafts_end_at_the_original_length(void **state)
{
    (void)state;
    enum { FIRST = ORIGINAL - 3 };
    parity_run r;
    tg_err e = {0};
    uint64_t want[3];
    parity_open(&r, export_with(1, 128, "auto"), 2, NULL);
    assert_int_equal(step(&r, TG_KIND_CONTEXT, 0, FIRST, 1, &e), TG_OK);
    for (int32_t i = 0; i < 3; i++) {
        assert_int_equal(step(&r, TG_KIND_TOKEN, FIRST + i, 1, 1, &e), TG_OK);
        want[i] = hash_output(&r, 0);
    }
    assert_int_equal(step(&r, TG_KIND_SPECULATE, FIRST, 3, 3, &e), TG_OK);
    for (int32_t i = 0; i < 3; i++)
        assert_true(hash_output(&r, i) == want[i]);
    assert_int_equal(step(&r, TG_KIND_SPECULATE, FIRST, 4, 4, &e), TG_E_LIMIT);
    assert_string_equal(e.msg, "position 48 is beyond the original length of 48; a row that goes "
                               "on there is computed again from its first token");
    parity_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(completions_cross_the_original_length_as_generate_does),
        cmocka_unit_test(sampled_completions_do_not_depend_on_chunks_or_neighbors),
        cmocka_unit_test(a_completion_that_ends_at_the_original_length_is_computed_once),
        cmocka_unit_test(short_and_long_texts_share_no_prefix),
        cmocka_unit_test(a_request_is_cancelled_while_it_is_computed_again),
        cmocka_unit_test(evaluated_logits_depend_on_the_texts_length_and_not_on_chunks),
        cmocka_unit_test(drafts_end_at_the_original_length),
    };
    return cmocka_run_group_tests_name("longrope", tests, load_sequences, NULL);
}
