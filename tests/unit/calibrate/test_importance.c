/* SPDX-License-Identifier: Apache-2.0 What a calibration says of the columns of a tiny model: those
 * of the first layer against squares of normed embeddings, worked out here in double. */
#include "calibrate/calibrate.h"
#include "check.h"
#include "format_files.h"

#include <math.h>

enum { WIDTH = 32, CHUNK = 48, MAX_IDS = 256 };

typedef struct calibrated {
    tg_checkpoint *checkpoint;
    tg_loaded_checkpoint *loaded;
    tg_export_config config;
    tg_compiled compiled;
    tg_importance importance;
    int32_t ids[MAX_IDS];
    char *dir;
} calibrated;

/* The packed float weights, through a file as an export does it. */
static tg_status pack(const calibrated *t, tg_file_map *out, tg_err *e)
{
    const char *path = save_file(t->dir, "weights", "", 0);
    tg_file_writer *o;
    TG_TRY(tg_file_writer_open(&o, path, e));
    TG_TRY(tg_pack_write(&t->importance.floats.program, t->loaded, NULL, o, NULL, NULL, e));
    TG_TRY(tg_file_writer_close(o, e));
    return tg_file_map_open(out, path, e);
}

/* The tiny model calibrated by n ids from all over its vocabulary, in chunks of 48. */
static void calibrate(calibrated *t, int n)
{
    tg_err e = {0};
    tg_file_map weights = {0};
    memset(t, 0, sizeof *t);
    t->dir = make_folder();
    t->config = (tg_export_config){
        .weights = TG_WEIGHTS_Q4_1, .context_buckets = {CHUNK}, .n_context_buckets = 1};
    tg_status s = tg_checkpoint_open(&t->checkpoint, "tests/tiny/llama-mqa", &e);
    if (s == TG_OK) s = tg_loaded_checkpoint_open(&t->loaded, t->checkpoint, &e);
    if (s == TG_OK)
        s = tg_export_config_check(&t->config, tg_loaded_checkpoint_hparams(t->loaded), &e);
    if (s == TG_OK) s = tg_compile(&t->compiled, t->loaded, &t->config, NULL, NULL, &e);
    for (int i = 0; i < n; i++)
        t->ids[i] = (7 * i + i / 11) % t->compiled.program.n_embed_rows;
    if (s == TG_OK)
        s = tg_importance_init(&t->importance, t->loaded, &t->config, &t->compiled.program,
                               (size_t)n, &e);
    if (s == TG_OK) s = pack(t, &weights, &e);
    if (s == TG_OK)
        s = tg_importance_run(&t->importance, weights.data, (tg_calibration_ids){t->ids, (size_t)n},
                              &e);
    tg_file_map_close(&weights);
    if (s != TG_OK) fail_msg("%s", e.msg);
}

static void end(calibrated *t)
{
    tg_importance_deinit(&t->importance);
    tg_compiled_deinit(&t->compiled);
    tg_loaded_checkpoint_free(t->loaded);
    tg_checkpoint_close(t->checkpoint);
    assert_int_equal(tg_path_remove(t->dir, NULL), TG_OK);
}

static void read_row(const calibrated *t, tg_weight_role role, int32_t layer, int64_t row, float *x)
{
    const tg_tensor *a = tg_loaded_checkpoint_find_weight(t->loaded, role, layer)->tensor;
    const uint8_t *bytes = a->data;
    tg_dtype_unpack(a->dtype, bytes + (size_t)row * tg_dtype_row_bytes(a->dtype, WIDTH), x, WIDTH);
}

/* Means of the squares of what q, k and v of the first layer read, as shares of their mean. */
static void work_out_first_layer(const calibrated *t, int n, double shares[WIDTH])
{
    float gain[WIDTH], x[WIDTH];
    double sum = 0;
    /* As many as the artifact can hold, the last chunk shorter than the others. */
    int n_ids = TG_MIN(n, t->compiled.program.max_length);
    assert_true(n_ids > 2 * CHUNK && n_ids % CHUNK != 0);
    memset(shares, 0, WIDTH * sizeof *shares);
    read_row(t, TG_W_ATTN_NORM, 0, 0, gain);
    for (int i = 0; i < n_ids; i++) {
        double squares = 0, eps = (double)tg_loaded_checkpoint_hparams(t->loaded)->norm_eps;
        read_row(t, TG_W_EMBED, 0, t->ids[i], x);
        for (int c = 0; c < WIDTH; c++)
            squares += (double)x[c] * (double)x[c];
        for (int c = 0; c < WIDTH; c++)
            shares[c] += pow((double)x[c] * (double)gain[c], 2) / (squares / WIDTH + eps);
    }
    for (int c = 0; c < WIDTH; c++)
        sum += shares[c];
    for (int c = 0; c < WIDTH; c++)
        shares[c] *= WIDTH / sum;
}

static void the_first_layers_columns_matter_as_the_normed_embeddings_say(void **state)
{
    (void)state;
    static const tg_weight_role roles[] = {TG_W_Q, TG_W_K, TG_W_V};
    calibrated t;
    double want[WIDTH];
    calibrate(&t, 200);
    work_out_first_layer(&t, 200, want);
    const tg_program *p = &t.compiled.program;
    for (size_t k = 0; k < TG_COUNT(roles); k++) {
        const tg_weight_entry *w = tg_program_find_weight(p, roles[k], 0);
        const float *got = t.importance.columns[w - p->weights];
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
    const tg_program *p = &t.compiled.program;
    int n_seen = 0;
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        if (w->is_plain || w->layout != TG_LAYOUT_Q4_1) continue;
        double sum = 0;
        bool is_even = true;
        for (int64_t c = 0; c < w->cols; c++) {
            assert_true(t.importance.columns[i][c] > 0);
            sum += (double)t.importance.columns[i][c];
            is_even = is_even && t.importance.columns[i][c] == t.importance.columns[i][0];
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
