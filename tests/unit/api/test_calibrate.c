/* SPDX-License-Identifier: Apache-2.0 What a calibration says of the columns of a tiny model: those
 * of the first layer against squares of normed embeddings, worked out here in double. */
#include "api/api.h"
#include "check.h"
#include "format_files.h"

#include <math.h>

enum { WIDTH = 32, CHUNK = 48 };

typedef struct calibrated {
    tg_export_job job;
    tg_calibration c;
    tg_artifact_writer *w;
    char dir[64], text[128];
} calibrated;

/* The tiny model calibrated by the numbers up to n, in chunks of 48 tokens. */
static void calibrate(calibrated *t, int n)
{
    static const int32_t buckets[] = {CHUNK};
    tg_err e = {0};
    char target[128], words[8192] = "";
    memset(t, 0, sizeof *t);
    for (int i = 1, at = 0; i <= n; i++)
        at += snprintf(words + at, sizeof words - (size_t)at, "%d ", i);
    strcpy(t->dir, make_folder());
    strcpy(t->text, save_file(t->dir, "numbers.txt", words, strlen(words)));
    snprintf(target, sizeof target, "%s/m.tg", t->dir);
    tg_export_options o = {.weights = "q4_1",
                           .calibration_file = t->text,
                           .context_buckets = buckets,
                           .n_context_buckets = 1};
    tg_status s = tg_export_job_init(&t->job, "tests/tiny/llama-mqa", &o, NULL, NULL, &e);
    if (s == TG_OK) s = tg_calibration_open(&t->c, t->text, &e);
    if (s == TG_OK) s = tg_artifact_writer_new(&t->w, target, false, &e);
    if (s == TG_OK) s = tg_export_calibrate(&t->c, &t->job, t->w, t->dir, &o, &e);
    if (s != TG_OK) fail_msg("%s", e.msg);
}

static void end(calibrated *t)
{
    tg_artifact_writer_free(t->w);
    tg_calibration_close(&t->c);
    tg_export_job_deinit(&t->job);
    assert_int_equal(tg_path_remove(t->dir, NULL), TG_OK);
}

static void read_row(const calibrated *t, tg_weight_role role, int32_t layer, int64_t row, float *x)
{
    const tg_tensor *a = tg_loaded_checkpoint_find_weight(t->job.loaded, role, layer)->tensor;
    const uint8_t *bytes = a->data;
    tg_dtype_unpack(a->dtype, bytes + (size_t)row * tg_dtype_row_bytes(a->dtype, WIDTH), x, WIDTH);
}

static void encode(const calibrated *t, tg_ids *ids)
{
    static const tg_encode_options options = {.add_special = true};
    const tg_buf *b = &t->job.assets.tokenizer;
    tg_tokenizer *k;
    assert_int_equal(tg_tokenizer_open(&k, b->ptr, b->len, NULL), TG_OK);
    assert_int_equal(tg_tokenizer_encode(ids, k, tg_buf_str(&t->c.text), &options, NULL), TG_OK);
    tg_tokenizer_close(k);
}

/* Means of the squares of what q, k and v of the first layer read, as shares of their mean. */
static void work_out_first_layer(const calibrated *t, double shares[WIDTH])
{
    tg_ids ids = {0};
    float gain[WIDTH], x[WIDTH];
    double sum = 0;
    encode(t, &ids);
    /* As many as the artifact can hold, the last chunk shorter than the others. */
    size_t n_ids = TG_MIN(ids.len, (size_t)t->job.compiled.program.max_length);
    assert_true(n_ids > 2 * CHUNK && n_ids % CHUNK != 0);
    memset(shares, 0, WIDTH * sizeof *shares);
    read_row(t, TG_W_ATTN_NORM, 0, 0, gain);
    for (size_t i = 0; i < n_ids; i++) {
        double squares = 0, eps = (double)tg_loaded_checkpoint_hparams(t->job.loaded)->norm_eps;
        read_row(t, TG_W_EMBED, 0, ids.ptr[i], x);
        for (int c = 0; c < WIDTH; c++)
            squares += (double)x[c] * (double)x[c];
        for (int c = 0; c < WIDTH; c++)
            shares[c] += pow((double)x[c] * (double)gain[c], 2) / (squares / WIDTH + eps);
    }
    for (int c = 0; c < WIDTH; c++)
        sum += shares[c];
    for (int c = 0; c < WIDTH; c++)
        shares[c] *= WIDTH / sum;
    tg_ids_deinit(&ids);
}

static void the_first_layers_columns_matter_as_the_normed_embeddings_say(void **state)
{
    (void)state;
    static const tg_weight_role roles[] = {TG_W_Q, TG_W_K, TG_W_V};
    calibrated t;
    double want[WIDTH];
    calibrate(&t, 200);
    work_out_first_layer(&t, want);
    const tg_program *p = &t.job.compiled.program;
    for (size_t k = 0; k < TG_COUNT(roles); k++) {
        const tg_weight_entry *w = tg_program_find_weight(p, roles[k], 0);
        const float *got = t.c.importance[w - p->weights];
        for (int c = 0; c < WIDTH; c++)
            if (!(fabs((double)got[c] - want[c]) <= 1e-5 * want[c]))
                fail_msg("column %d is %g, worked out %g", c, (double)got[c], want[c]);
    }
    end(&t);
}

static void every_matrix_of_four_bits_has_shares_of_mean_one(void **state)
{
    (void)state;
    calibrated t;
    calibrate(&t, 100);
    const tg_program *p = &t.job.compiled.program;
    int n_seen = 0;
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        if (w->is_plain || w->layout != TG_LAYOUT_Q4_1) continue;
        double sum = 0;
        bool is_even = true;
        for (int64_t c = 0; c < w->cols; c++) {
            assert_true(t.c.importance[i][c] > 0);
            sum += (double)t.c.importance[i][c];
            is_even = is_even && t.c.importance[i][c] == t.c.importance[i][0];
        }
        if (!(fabs(sum / (double)w->cols - 1) < 1e-4) || is_even)
            fail_msg("weight %d: a sum of %g over %d columns", i, sum, (int)w->cols);
        n_seen++;
    }
    assert_int_equal(n_seen, 7 * p->n_layers);
    end(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_layers_columns_matter_as_the_normed_embeddings_say),
        cmocka_unit_test(every_matrix_of_four_bits_has_shares_of_mean_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
