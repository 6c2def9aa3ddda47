/* SPDX-License-Identifier: Apache-2.0
 * test_long.c - texts far beyond the length that a model's rotary scaling starts from, against
 * transformers (tests/golden/long.json, by tools/goldens/goldens-long); and what long texts leave
 * behind: nothing in a window's pages, nothing for the next text. */
#include "parity.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <sys/stat.h>

enum { MOST = 1024, PAGE = 64, MAX_VOCAB = 512 };

static void export_and_open(parity_run *r, const char *source, int32_t max_length)
{
    static const int32_t buckets[] = {16, 128};
    char artifact[256];
    tg_err e = {0};
    tg_export_options o = {.batch = 1,
                           .max_length = max_length,
                           .context_buckets = buckets,
                           .n_context_buckets = 2,
                           .weights = "f32",
                           .kv = "f32",
                           .is_forced = true};
    snprintf(artifact, sizeof artifact, "%s/model", parity_dir());
    if (tg_export(source, artifact, &o, &e) != TG_OK) fail_msg("%s: %s", source, e.msg);
    parity_open(r, artifact, 2, NULL);
    assert_true(r->artifact->program.n_vocab <= MAX_VOCAB);
    /* Places that no token was written to may hold anything. */
    assert_int_equal(tg_exec_fill_kv(r->exec, 0xff, NULL), TG_OK);
}

/* Tokens [at, at + n) of a text of n_text; the logits after the last are kept. */
static void read_piece(parity_run *r, const int32_t *ids, int32_t n_text, int32_t at, int32_t n,
                       float *logits)
{
    tg_err e = {0};
    const float *row;
    tg_exec_row x = {.tokens = ids + at,
                     .n_tokens = n,
                     .position = at,
                     .n_outs = 1,
                     .is_long = tg_program_is_long(&r->artifact->program, n_text)};
    if (tg_exec_step(r->exec, n == 1 ? TG_KIND_TOKEN : TG_KIND_CONTEXT, &x, 1, &e) != TG_OK)
        fail_msg("%s", e.msg);
    assert_int_equal(tg_exec_read_logits(r->exec, 0, &row, NULL), TG_OK);
    memcpy(logits, row, sizeof *logits * (size_t)r->artifact->program.n_vocab);
}

/* ---- transformers */

static void compare_case(const json_t *c, const char *folder, int32_t length, int32_t piece)
{
    parity_run r;
    int32_t ids[MOST];
    float logits[MAX_VOCAB];
    const json_t *rows = json_object_get(c, "rows"), *row;
    double worst = 0;
    size_t next = 0;
    export_and_open(&r, folder, length);
    for (int32_t i = 0; i < length; i++)
        ids[i] = 3 + (7 * i * i + 3 * i) % 250; /* as tools/goldens/goldens-long says */
    for (int32_t at = 0; (row = json_array_get(rows, next)) != NULL;) {
        int32_t stop = 1 + (int32_t)json_integer_value(json_object_get(row, "position"));
        int32_t n = TG_MIN(piece, stop - at);
        read_piece(&r, ids, length, at, n, logits);
        at += n;
        if (at < stop) continue;
        const json_t *want = json_object_get(row, "logits");
        assert_true(json_array_size(want) >= (size_t)r.artifact->program.n_vocab);
        for (int32_t i = 0; i < r.artifact->program.n_vocab; i++)
            worst = fmax(worst, fabs((double)logits[i] - parity_get_number(want, i)));
        if (!(worst <= 2e-3))
            fail_msg("%s, pieces of %d: a logit after position %d differs by %g", folder, piece,
                     stop - 1, worst);
        next++;
    }
    assert_true(next == 2);
    if (piece > 1) print_message("%-32s largest difference of a logit %.1e\n", folder, worst);
    parity_close(&r);
}

static void scalings_hold_beyond_the_length_they_start_from(void **state)
{
    (void)state;
    json_t *golden = parity_load_json("tests/golden/long.json");
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        char folder[256];
        int32_t length = (int32_t)json_integer_value(json_object_get(c, "length"));
        assert_true(length <= MOST);
        snprintf(folder, sizeof folder, "tests/tiny/%s",
                 json_string_value(json_object_get(c, "model")));
        compare_case(c, folder, length, 128);
        compare_case(c, folder, length, 7);
        compare_case(c, folder, length, 1);
    }
    assert_true(i == 6);
    json_decref(golden);
}

/* The same list: its lengths are the longest that the models can read. */
static void a_length_beyond_a_scaling_is_refused_with_the_number(void **state)
{
    (void)state;
    json_t *golden = parity_load_json("tests/golden/long.json");
    const json_t *c;
    size_t i;
    json_array_foreach(json_object_get(golden, "cases"), i, c)
    {
        char folder[256], artifact[256], number[32];
        int32_t length = (int32_t)json_integer_value(json_object_get(c, "length"));
        tg_err e = {0};
        tg_export_options o = {.max_length = length + 1, .is_forced = true};
        snprintf(folder, sizeof folder, "tests/tiny/%s",
                 json_string_value(json_object_get(c, "model")));
        snprintf(artifact, sizeof artifact, "%s/too-long", parity_dir());
        snprintf(number, sizeof number, "%d", length);
        assert_true(tg_export(folder, artifact, &o, &e) != TG_OK);
        if (!strstr(e.msg, number)) fail_msg("%s: %s", folder, e.msg);
        assert_false(tg_artifact_is_at(artifact));
    }
    json_decref(golden);
}

/* ---- what is left behind */

/* D10: others keep the base of the longest text they met. */
static void a_long_text_changes_nothing_for_a_short_one(void **state)
{
    (void)state;
    enum { SHORT = 40, LONG = 500 };
    parity_run r;
    int32_t ids[LONG];
    float fresh[MAX_VOCAB], logits[MAX_VOCAB];
    for (int32_t i = 0; i < LONG; i++)
        ids[i] = 3 + (7 * i * i + 3 * i) % 250;
    export_and_open(&r, "tests/tiny/llama-rope-dynamic", 512);
    read_piece(&r, ids, SHORT, 0, SHORT, fresh);
    tg_kv_trim(tg_exec_kv(r.exec), 0, 0);
    for (int32_t at = 0; at < LONG; at += 100)
        read_piece(&r, ids, LONG, at, 100, logits);
    tg_kv_trim(tg_exec_kv(r.exec), 0, 0);
    read_piece(&r, ids, SHORT, 0, SHORT, logits);
    assert_memory_equal(fresh, logits, sizeof *logits * (size_t)r.artifact->program.n_vocab);
    parity_close(&r);
}

/* A folder's model that may read `length` positions. */
static const char *lengthen(const char *source, int32_t length)
{
    static tg_buf dir;
    char path[300];
    tg_err e = {0};
    tg_buf text = {0};
    tg_path_join(&dir, parity_dir(), "lengthened");
    if (mkdir(dir.ptr, 0777) != 0) assert_int_equal(errno, EEXIST);
    snprintf(path, sizeof path, "%s/config.json", source);
    json_t *config = parity_load_json(path);
    json_object_set_new(config, "max_position_embeddings", json_integer(length));
    assert_int_equal(tg_json_print(&text, config, 1, &e), TG_OK);
    snprintf(path, sizeof path, "%s/config.json", dir.ptr);
    if (tg_file_save(path, tg_buf_str(&text), &e) != TG_OK) fail_msg("%s", e.msg);
    json_decref(config);
    tg_buf_clear(&text);
    snprintf(path, sizeof path, "%s/model.safetensors", source);
    assert_int_equal(tg_file_load(&text, path, 1 << 24, &e), TG_OK);
    snprintf(path, sizeof path, "%s/model.safetensors", dir.ptr);
    if (tg_file_save(path, tg_buf_str(&text), &e) != TG_OK) fail_msg("%s", e.msg);
    tg_buf_deinit(&text);
    return dir.ptr;
}

/* Pages of a group that are in use. */
static int32_t count_used(parity_run *r, int32_t group)
{
    tg_kv *kv = tg_exec_kv(r->exec);
    return tg_kv_n_pages(kv, group) - tg_kv_n_free(kv, group);
}

/* 1,000 tokens through windows of 16: positions seen from the next token on, 15 of them, lie in two
 * pages at most; the layers without a window keep all. */
static void a_window_gives_its_pages_back_while_full_layers_keep_theirs(void **state)
{
    (void)state;
    enum { LENGTH = 1000, WINDOW = 16, STEP = 16 };
    parity_run r;
    int32_t ids[LENGTH], n_sliding = 0, n_full = 0;
    float logits[MAX_VOCAB];
    for (int32_t i = 0; i < LENGTH; i++)
        ids[i] = 3 + (7 * i * i + 3 * i) % 90;
    export_and_open(&r, lengthen("tests/parity/models/mistral-ministral", MOST), MOST);
    const tg_program *p = &r.artifact->program;
    for (int32_t at = 0; at < LENGTH; at += STEP) {
        int32_t n = TG_MIN(STEP, LENGTH - at);
        read_piece(&r, ids, LENGTH, at, n, logits);
        n_sliding = n_full = 0;
        for (int32_t g = 0; g < p->n_kv_groups; g++) {
            int32_t used = count_used(&r, g), all = (at + n + PAGE - 1) / PAGE;
            bool is_sliding = p->kv_groups[g].window > 0;
            int32_t first_seen = TG_MAX(at + n - WINDOW + 1, 0) / PAGE;
            assert_int_equal(used, is_sliding ? all - first_seen : all);
            assert_true(!is_sliding || used <= 2);
            n_sliding += is_sliding;
            n_full += !is_sliding;
        }
    }
    assert_true(n_sliding == 1 && n_full == 1);
    tg_kv_trim(tg_exec_kv(r.exec), 0, 0);
    assert_true(count_used(&r, 0) == 0 && count_used(&r, 1) == 0);
    parity_close(&r);
}

/* Where every layer has a window, pages that others used before hold nothing of them: two texts
 * that differ only in what lies beyond all windows (two layers, 2 x 15 tokens) end alike. D18, D27:
 * the pages were NaN before. */
static void pages_that_come_back_bring_nothing_along(void **state)
{
    (void)state;
    enum { LENGTH = 600, SAME = 31 };
    parity_run r;
    int32_t ids[LENGTH];
    float first[MAX_VOCAB], second[MAX_VOCAB];
    uint64_t rng = tg_test_seed();
    export_and_open(&r, lengthen("tests/parity/models/mistral-window", MOST), MOST);
    for (int32_t i = 0; i < LENGTH; i++)
        ids[i] = 3 + (int32_t)(tg_test_next(&rng) % 90);
    for (int32_t at = 0; at < LENGTH; at += 100)
        read_piece(&r, ids, LENGTH, at, 100, first);
    tg_kv_trim(tg_exec_kv(r.exec), 0, 0);
    for (int32_t i = 0; i < LENGTH - SAME; i++)
        ids[i] = 3 + (int32_t)(tg_test_next(&rng) % 90);
    for (int32_t at = 0; at < LENGTH; at += 8)
        read_piece(&r, ids, LENGTH, at, 8, second);
    for (int32_t i = 0; i < r.artifact->program.n_vocab; i++)
        assert_true(isfinite(first[i]));
    assert_memory_equal(first, second, sizeof *first * (size_t)r.artifact->program.n_vocab);
    parity_close(&r);
}

/* ---- memory */

/* Bytes that Linux has given this process and that are of no file. */
static int64_t find_anonymous(void)
{
    FILE *f = fopen("/proc/self/status", "re");
    char line[128];
    int64_t kb = -1;
    assert_non_null(f);
    while (fgets(line, sizeof line, f))
        if (sscanf(line, "RssAnon: %" SCNd64, &kb) == 1) break;
    fclose(f);
    assert_true(kb > 0);
    return kb * 1024;
}

/* A bucket filled, all logits wanted: once in blocks of tokens, then with the most tokens that two
 * threads take instruction by instruction. The system may give more, by what it rounds to large
 * pages (three buffers), and less, by a third at most: scratch is sized for the widest input. */
static void full_steps_touch_as_much_memory_as_is_said(void **state)
{
    (void)state;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    skip(); /* their shadows are memory too */
#endif
    enum { LENGTH = 8192, THREADS = 2, SOME = 79, LARGE_PAGE = 2 << 20 };
    static const int32_t buckets[] = {16, LENGTH};
    static int32_t ids[LENGTH];
    char artifact[256];
    parity_run r;
    tg_exec_memory m;
    tg_err e = {0};
    tg_export_options o = {.batch = 1,
                           .max_length = LENGTH,
                           .context_buckets = buckets,
                           .n_context_buckets = 2,
                           .is_forced = true};
    snprintf(artifact, sizeof artifact, "%s/filled", parity_dir());
    if (tg_export(lengthen("tests/tiny/llama-mqa", LENGTH), artifact, &o, &e) != TG_OK)
        fail_msg("%s", e.msg);
    for (int32_t i = 0; i < LENGTH; i++)
        ids[i] = 3 + i % 90;
    int64_t before = find_anonymous();
    parity_open(&r, artifact, THREADS, NULL);
    const tg_cpu_options options = {.n_threads = THREADS};
    assert_int_equal(
        tg_exec_find_memory(&m, &r.artifact->program, &tg_cpu_device_ops, &options, &e), TG_OK);
    static const int32_t sizes[] = {LENGTH, SOME};
    for (size_t i = 0; i < TG_COUNT(sizes); i++) {
        tg_exec_row x = {.tokens = ids, .n_tokens = sizes[i], .n_outs = sizes[i]};
        if (tg_exec_step(r.exec, TG_KIND_CONTEXT, &x, 1, &e) != TG_OK) fail_msg("%s", e.msg);
        tg_kv_trim(tg_exec_kv(r.exec), 0, 0);
    }
    int64_t said = m.kv_bytes + m.step_bytes, touched = find_anonymous() - before;
    print_message("said %" PRId64 " KB, touched %" PRId64 " KB\n", said >> 10, touched >> 10);
    parity_close(&r);
    if (touched > said + 3 * LARGE_PAGE || touched < said / 3 * 2)
        fail_msg("%" PRId64 " bytes were touched and %" PRId64 " said", touched, said);
}

/* 64 MB over the bytes of a row: 49,152 and 262,144 floats. A row of each sequence is the least. */
static void prompts_keep_64_MB_of_logits(void **state)
{
    (void)state;
    assert_int_equal(tg_io_most_outs(&(tg_program){.n_vocab = 49152, .batch = 1}), 341);
    assert_int_equal(tg_io_most_outs(&(tg_program){.n_vocab = 262144, .batch = 1}), 64);
    assert_int_equal(tg_io_most_outs(&(tg_program){.n_vocab = 262144, .batch = 256}), 256);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(scalings_hold_beyond_the_length_they_start_from),
        cmocka_unit_test(a_length_beyond_a_scaling_is_refused_with_the_number),
        cmocka_unit_test(a_long_text_changes_nothing_for_a_short_one),
        cmocka_unit_test(a_window_gives_its_pages_back_while_full_layers_keep_theirs),
        cmocka_unit_test(pages_that_come_back_bring_nothing_along),
        cmocka_unit_test(full_steps_touch_as_much_memory_as_is_said),
        cmocka_unit_test(prompts_keep_64_MB_of_logits),
    };
    return cmocka_run_group_tests_name("long", tests, NULL, NULL);
}
