/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"
#include "check.h"
#include "run/exec.h"
#include "run/token_counts.h"

#include <math.h>

enum { BATCH = 3, LENGTH = 1000, WINDOW = 100, STEP = 200 };

static tg_kv *new_kv(void)
{
    static const tg_program p = {
        .batch = BATCH,
        .max_length = LENGTH,
        .n_kv_groups = 2,
        .kv_groups =
            {{.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .page_bytes = 64},
             {.n_layers = 1, .n_kv_heads = 1, .head_dim = 8, .page_bytes = 64, .window = WINDOW}},
    };
    tg_kv *kv;
    assert_int_equal(tg_kv_new(&kv, &p, STEP, NULL), TG_OK);
    return kv;
}

/* Every page is in one table entry or free: counted again from the tables. */
static void check_invariant(tg_kv *kv)
{
    for (int32_t g = 0; g < 2; g++) {
        char seen[4096] = {0};
        int32_t n = 0;
        for (int32_t r = 0; r < BATCH; r++)
            for (int32_t i = 0; i < (LENGTH + 63) / 64; i++) {
                int32_t id = tg_kv_get_table(kv, g, r)[i];
                if (id < 0) continue;
                assert_true(id < tg_kv_n_pages(kv, g));
                assert_false(seen[id]);
                seen[id] = 1;
                n++;
            }
        assert_int_equal(n + tg_kv_n_free(kv, g), tg_kv_n_pages(kv, g));
    }
}

static void pools_hold_every_row_at_its_longest(void **state)
{
    (void)state;
    tg_kv *kv = new_kv();
    /* 1000 positions are 16 pages. A window of 100 with steps of 200: ceil(300 / 64) + 1 = 6. */
    assert_int_equal(tg_kv_n_pages(kv, 0), BATCH * 16);
    assert_int_equal(tg_kv_n_pages(kv, 1), BATCH * 6);
    for (int32_t at = 0; at < LENGTH; at += STEP)
        for (int32_t r = 0; r < BATCH; r++) {
            assert_int_equal(tg_kv_acquire(kv, r, at + STEP, NULL), TG_OK);
            tg_kv_slide(kv, r, at + STEP);
            check_invariant(kv);
        }
    assert_int_equal(tg_kv_n_free(kv, 0), 0);
    tg_kv_free(kv);
}

static void a_row_beyond_max_length_is_refused_unchanged(void **state)
{
    (void)state;
    tg_kv *kv = new_kv();
    tg_err e = {0};
    assert_int_equal(tg_kv_acquire(kv, 0, LENGTH + 1, &e), TG_E_LIMIT);
    assert_string_equal(e.msg, "position 1000 is beyond the model's max-length of 1000");
    assert_int_equal(tg_kv_n_free(kv, 0), tg_kv_n_pages(kv, 0));
    tg_kv_free(kv);
}

static void a_window_gives_back_what_no_later_token_sees(void **state)
{
    (void)state;
    tg_kv *kv = new_kv();
    assert_int_equal(tg_kv_acquire(kv, 0, 200, NULL), TG_OK);
    tg_kv_slide(kv, 0, 163); /* sees from 163 - 99 = 64: page 0 is gone, page 1 stays */
    assert_int_equal(tg_kv_get_table(kv, 1, 0)[0], -1);
    assert_true(tg_kv_get_table(kv, 1, 0)[1] >= 0);
    assert_true(tg_kv_get_table(kv, 0, 0)[0] >= 0); /* the other group keeps everything */
    assert_true(tg_kv_can_resume(kv, 0, 163));
    assert_true(tg_kv_can_resume(kv, 0, 200));
    assert_false(tg_kv_can_resume(kv, 0, 162)); /* would see position 63 */
    assert_false(tg_kv_can_resume(kv, 0, 201)); /* not held */
    assert_true(tg_kv_can_resume(kv, 0, 0));
    tg_kv_free(kv);
}

static void trimming_forgets_and_gives_pages_back(void **state)
{
    (void)state;
    tg_kv *kv = new_kv();
    assert_int_equal(tg_kv_acquire(kv, 1, 129, NULL), TG_OK);
    int32_t page = tg_kv_get_table(kv, 0, 1)[2];
    tg_kv_trim(kv, 1, 128);
    assert_int_equal(tg_kv_get_table(kv, 0, 1)[2], -1);
    assert_int_equal(tg_kv_acquire(kv, 2, 1, NULL), TG_OK);
    assert_int_equal(tg_kv_get_table(kv, 0, 2)[0], page); /* what was used last is used first */
    tg_kv_trim(kv, 1, 0);
    tg_kv_trim(kv, 2, 0);
    assert_int_equal(tg_kv_n_free(kv, 0), tg_kv_n_pages(kv, 0));
    check_invariant(kv);
    tg_kv_free(kv);
}

static void random_rows_keep_the_invariant(void **state)
{
    (void)state;
    uint64_t rng = tg_test_seed();
    tg_kv *kv = new_kv();
    int32_t held[BATCH] = {0};
    for (int i = 0; i < 5000; i++) {
        int32_t r = (int32_t)(tg_test_next(&rng) % BATCH);
        int32_t n = (int32_t)(tg_test_next(&rng) % STEP) + 1;
        if (tg_test_next(&rng) % 8 == 0 || held[r] + n > LENGTH) {
            int32_t to = (int32_t)(tg_test_next(&rng) % (uint64_t)(held[r] + 1));
            if (!tg_kv_can_resume(kv, r, to)) to = 0;
            tg_kv_trim(kv, r, to);
            held[r] = to;
        } else {
            assert_int_equal(tg_kv_acquire(kv, r, held[r] + n, NULL), TG_OK);
            held[r] += n;
            assert_true(tg_kv_can_resume(kv, r, held[r]));
            tg_kv_slide(kv, r, held[r]);
        }
        check_invariant(kv);
    }
    tg_kv_free(kv);
}

static void refused_memory_is_an_error(void **state)
{
    (void)state;
    static const tg_program p = {.batch = 2, .max_length = 64, .n_kv_groups = 1};
    int64_t alive = tg_mem_n_alive();
    for (int n = 0;; n++) {
        tg_kv *kv;
        tg_mem_fail_after(n);
        tg_status s = tg_kv_new(&kv, &p, 1, NULL);
        tg_mem_fail_after(-1);
        if (s == TG_OK) {
            tg_kv_free(kv);
            break;
        }
        assert_int_equal(s, TG_E_NOMEM);
        assert_int_equal(tg_mem_n_alive(), alive);
    }
}

static tg_status measure_one_mib(int64_t *out, const tg_program *p, const void *options, tg_err *e)
{
    (void)p;
    (void)options;
    (void)e;
    *out = 1 << 20;
    return TG_OK;
}

/* 3 rows of 16 pages of 64 bytes and, with the window, of 6: 3 * 22 * 64 = 4224 bytes. A step is
 * 1 MiB of the device's and the two images: ids and logits of 7 rows of 100 floats, 448 apart, are
 * 64 + 3136 bytes, and the input's are in the machine's memory twice, save the adjustments. */
static void what_does_not_fit_names_sizes_and_options(void **state)
{
    (void)state;
    const tg_device_ops ops = {.measure = measure_one_mib};
    tg_plan plan = {.kind = TG_KIND_CONTEXT,
                    .bucket = {.rows = BATCH, .tokens = STEP, .outs = 7, .pages = 16}};
    tg_program p = {.batch = BATCH,
                    .n_vocab = 100,
                    .max_length = LENGTH,
                    .n_kv_groups = 2,
                    .n_plans = 1,
                    .plans = &plan,
                    .kv_groups = {{.page_bytes = 64}, {.page_bytes = 64, .window = WINDOW}}};
    tg_exec_memory m;
    tg_err e = {0};
    assert_int_equal(tg_exec_find_memory(&m, &p, &ops, NULL, &e), TG_OK);
    tg_io io;
    tg_io_find(&io, &p, &plan);
    assert_int_equal(m.kv_bytes, 4224);
    assert_int_equal(m.logits_bytes, 64 + 3136);
    assert_int_equal(m.step_bytes, (1 << 20) + io.in_bytes + io.adjust + 64 + 3136);
    int64_t all = m.step_bytes + 4224;
    assert_int_equal(tg_exec_check_memory(&m, &p, all, &e), TG_OK);
    assert_int_equal(tg_exec_check_memory(&m, &p, all - 1, &e), TG_E_LIMIT);
    assert_string_equal(e.msg, "3 rows of 1000 positions need up to 1 MB and 1 MB are free; export "
                               "with a smaller --max-length or --batch");
}

static void sampling_outside_its_ranges_names_the_field(void **state)
{
    (void)state;
    static const struct {
        tg_sample_params p;
        const char *msg;
    } rows[] = {
        {{.top_p = 7}, "top_p is 7; it must lie between 0 and 1"},
        {{.temperature = -1}, "temperature is -1; it must lie between 0 and 100"},
        {{.min_p = 1}, "min_p is 1; it must lie between 0 and 1 (itself excluded)"},
        {{.presence = 3}, "presence_penalty is 3; it must lie between -2 and 2"},
        {{.top_k = -2}, "top_k is -2; it must be 0 (off) or more"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_err e = {0};
        assert_int_equal(tg_sample_check(&rows[i].p, &e), TG_E_ARGUMENT);
        assert_string_equal(e.msg, rows[i].msg);
    }
    tg_sample_params nan = {.temperature = NAN};
    assert_int_equal(tg_sample_check(&nan, NULL), TG_E_ARGUMENT);
    assert_int_equal(tg_sample_check(&(tg_sample_params){0}, NULL), TG_OK);
}

static void seen_tokens_are_sorted_and_counted(void **state)
{
    (void)state;
    static const int32_t prompt[] = {5, 3, 5, 9}, answer[] = {3, 1, 3};
    tg_arena a = {0};
    tg_token_counts s;
    assert_int_equal(tg_token_counts_init(&s, &a, 8, NULL), TG_OK);
    for (size_t i = 0; i < TG_COUNT(prompt); i++)
        tg_token_counts_add(&s, prompt[i], false);
    for (size_t i = 0; i < TG_COUNT(answer); i++)
        tg_token_counts_add(&s, answer[i], true);
    static const int32_t ids[] = {1, 3, 5, 9}, counts[] = {1, 2, 0, 0};
    assert_int_equal(s.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(s.entries[i].id, ids[i]);
        assert_int_equal(s.entries[i].n_completion, counts[i]);
        assert_int_equal(s.entries[i].is_counted, 1);
    }
    tg_arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_hold_every_row_at_its_longest),
        cmocka_unit_test(a_row_beyond_max_length_is_refused_unchanged),
        cmocka_unit_test(a_window_gives_back_what_no_later_token_sees),
        cmocka_unit_test(trimming_forgets_and_gives_pages_back),
        cmocka_unit_test(random_rows_keep_the_invariant),
        cmocka_unit_test(refused_memory_is_an_error),
        cmocka_unit_test(what_does_not_fit_names_sizes_and_options),
        cmocka_unit_test(sampling_outside_its_ranges_names_the_field),
        cmocka_unit_test(seen_tokens_are_sorted_and_counted),
    };
    return cmocka_run_group_tests_name("kv", tests, NULL, NULL);
}
