/* SPDX-License-Identifier: Apache-2.0 The weight file of compiled tiny checkpoints, read back
 * number by number: packed.h finds a number from the drawing of the layouts, the test finds it in
 * the checkpoint. */
#include "compile/compile.h"
#include "packed.h"
#include "unit/model/changed.h"

#include <math.h>

typedef struct written {
    opened o;
    tg_compiled compiled;
    tg_file_map file;
    char dir[64];
} written;

/* Calls of a progress function; stops when `stop_at` bytes are done. */
typedef struct watch {
    int64_t last, total, stop_at;
    int32_t n_calls;
    bool is_wrong;
} watch;

static bool see_progress(void *context, int64_t done, int64_t total)
{
    watch *w = context;
    w->is_wrong = w->is_wrong || done <= w->last || done > total || (w->total && total != w->total);
    w->last = done;
    w->total = total;
    w->n_calls++;
    return w->stop_at && done >= w->stop_at;
}

static tg_status write_file(const tg_compiled *c, const tg_loaded_checkpoint *b, const char *path,
                            watch *w, tg_err *e)
{
    tg_file_writer *out = NULL;
    if (tg_file_writer_open(&out, path, e) != TG_OK) fail_msg("%s", e->msg);
    tg_status s = tg_pack_write(&c->program, b, NULL, out, w ? see_progress : NULL, w, e);
    if (s != TG_OK)
        tg_file_writer_abandon(out);
    else
        s = tg_file_writer_close(out, e);
    return s;
}

static written write_tiny(const char *name, tg_weights_mode mode)
{
    written w = {.o = open_tiny(name)};
    tg_export_config config = {.max_length = 100, .weights = mode};
    char path[128];
    tg_err e = {0};
    if (tg_compile(&w.compiled, w.o.b, &config, NULL, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    strcpy(w.dir, make_folder());
    snprintf(path, sizeof path, "%s/weights.0.bin", w.dir);
    if (write_file(&w.compiled, w.o.b, path, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_file_map_open(&w.file, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return w;
}

static void close_written(written *w)
{
    tg_file_map_close(&w->file);
    tg_compiled_deinit(&w->compiled);
    close_opened(&w->o);
    remove_folder(w->dir);
}

/* Number (row, col) of the model's weight, from the checkpoint's tensor: GGUF files hold row j dim
 * / 2 + i of a rotary head at 2 i + j, safetensors hold Gemma's norms around 0. */
static float find_source(const tg_found_weight *f, int32_t head_dim, int64_t row, int64_t col)
{
    const tg_tensor *t = f->tensor;
    int64_t cols = t->n_dims == 2 ? t->dims[1] : 1, block = tg_dtype_get_row(t->dtype)->block_elems;
    if (f->order.fix == TG_WEIGHT_FIX_UNPERMUTE_Q || f->order.fix == TG_WEIGHT_FIX_UNPERMUTE_K) {
        int64_t half = head_dim / 2, in = row % head_dim, i = in % half, j = in / half;
        row = row / head_dim * head_dim + 2 * i + j;
    }
    float values[TG_MAX_BLOCK_ELEMS];
    int64_t at = row * cols + col;
    tg_dtype_unpack(t->dtype,
                    (const uint8_t *)t->data + tg_dtype_row_bytes(t->dtype, at / block * block),
                    values, block);
    return values[at % block] + (f->order.fix == TG_WEIGHT_FIX_ADD_ONE ? 1.0f : 0.0f);
}

/* A number as the mode stores it, and by how much it may be off. */
static float convert(const tg_weight_entry *w, float x)
{
    if (w->layout == TG_LAYOUT_BF16) return tg_bf16_to_f32(tg_f32_to_bf16(x));
    if (w->layout == TG_LAYOUT_F16) return tg_f16_to_f32(tg_f32_to_f16(x));
    return x;
}

static void check_entry(const written *w, const tg_weight_entry *x)
{
    const tg_hparams *h = w->o.h;
    if (x->role == TG_W_ROPE_0 || x->role == TG_W_ROPE_1) {
        float row[TG_MAX_ROTARY_DIM];
        const tg_rope_spec *spec = &h->ropes[x->role == TG_W_ROPE_1];
        for (int64_t p = 0; p < x->rows; p++) {
            tg_rope_fill(spec, 0, (int32_t)x->rows, (int32_t)p, 1, row);
            assert_memory_equal(w->file.data + x->offset + p * x->cols * 4, row,
                                (size_t)x->cols * 4);
        }
        return;
    }
    const tg_found_weight *f =
        tg_loaded_checkpoint_find_weight(w->o.b, (tg_weight_role)x->role, x->layer);
    bool is_rounded = x->layout == TG_LAYOUT_Q8_0 && f->tensor->dtype != TG_DTYPE_Q8_0;
    bool is_fitted = x->layout == TG_LAYOUT_Q5_1 && f->tensor->dtype != TG_DTYPE_Q5_1;
    for (int64_t r = 0; r < x->rows; r++)
        for (int64_t c = 0; c < x->cols; c++) {
            float want = convert(x, find_source(f, h->head_dim, r, c)), is;
            if (x->is_plain)
                is = packed_f32(w->file.data + x->offset + (r * x->cols + c) * 4);
            else
                is = packed_get((tg_layout)x->layout, w->file.data + x->offset,
                                (size_t)x->tile_stride, r, c);
            /* q8_0: half a step of at most 4 / 127, and the scale's f16 */
            float bound = is_rounded ? 0.5f * 4 / 127 + 4 * 0x1p-11f : 0;
            /* q5_1: the error of one number is at most that of its group, which is at most that of
             * 32 numbers half a step of at most 8 / 31 from where they belong, and the f16 */
            if (is_fitted) bound = sqrtf(32) * (0.5f * 8 / 31 + 12 * 0x1p-11f);
            if (!(fabsf(is - want) <= bound))
                fail_msg("%s of layer %d [%d, %d] is %g, not %g",
                         tg_weight_role_name((tg_weight_role)x->role), x->layer, (int)r, (int)c,
                         (double)is, (double)want);
        }
}

static void check_file(const char *name, tg_weights_mode mode)
{
    written w = write_tiny(name, mode);
    const tg_program *p = &w.compiled.program;
    assert_int_equal(w.file.n_bytes, p->weights_bytes);
    for (int32_t i = 0; i < p->n_weights; i++)
        check_entry(&w, &p->weights[i]);
    close_written(&w);
}

static void every_number_of_a_checkpoint_is_where_the_table_says(void **state)
{
    (void)state;
    static const char *const names[] = {
        "llama-bias",        "llama-bf16",     "llama-bf16/model.gguf",
        "llama-f16-old",     "llama-headdim8", "llama-mha-old/model.gguf",
        "llama-gqa2-untied", "gemma3",         "gemma3-pattern6/model.gguf",
        "mistral-window",    "gemma3-vision",
    };
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        check_file(names[i], TG_WEIGHTS_AUTO);
        check_file(names[i], TG_WEIGHTS_F32);
    }
}

static void other_modes_round_each_number_once(void **state)
{
    (void)state;
    check_file("llama-bias", TG_WEIGHTS_BF16);
    check_file("llama-bias", TG_WEIGHTS_F16);
    check_file("llama-bf16", TG_WEIGHTS_F16);
    check_file("llama-bias", TG_WEIGHTS_Q8_0);
    check_file("llama-bias", TG_WEIGHTS_Q5_1);
    check_file("gemma3", TG_WEIGHTS_Q8_0); /* 32 columns: half a quantum */
}

/* gate and up share a range of the file, tile by tile. */
static void gate_and_up_are_interleaved(void **state)
{
    (void)state;
    written w = write_tiny("llama-bias", TG_WEIGHTS_AUTO);
    const tg_program *p = &w.compiled.program;
    const tg_weight_entry *gate = tg_program_find_weight(p, TG_W_GATE, 1);
    const tg_weight_entry *up = tg_program_find_weight(p, TG_W_UP, 1);
    size_t tile = tg_layout_tile_bytes(TG_LAYOUT_F32, 32);
    assert_int_equal(gate->tile_stride, 2 * tile);
    assert_int_equal(up->offset - gate->offset, tile);
    close_written(&w);
}

static void writing_twice_gives_the_same_bytes(void **state)
{
    (void)state;
    static const tg_weights_mode modes[] = {TG_WEIGHTS_Q4_0, TG_WEIGHTS_Q4_1, TG_WEIGHTS_Q5_1};
    for (size_t i = 0; i < TG_COUNT(modes); i++) {
        written a = write_tiny("gemma3", modes[i]), b = write_tiny("gemma3", modes[i]);
        assert_int_equal(a.file.n_bytes, b.file.n_bytes);
        assert_memory_equal(a.file.data, b.file.data, a.file.n_bytes);
        close_written(&b);
        close_written(&a);
    }
}

/* All offsets count from where the writer finds its file. */
static void what_stands_before_in_the_file_stays(void **state)
{
    (void)state;
    written w = write_tiny("llama-mqa", TG_WEIGHTS_AUTO);
    char path[128];
    tg_err e = {0};
    tg_file_writer *out = NULL;
    tg_file_map map;
    snprintf(path, sizeof path, "%s/with-head", w.dir);
    assert_int_equal(tg_file_writer_open(&out, path, &e), TG_OK);
    assert_int_equal(tg_file_writer_write(out, "head", 4, &e), TG_OK);
    assert_int_equal(tg_pack_write(&w.compiled.program, w.o.b, NULL, out, NULL, NULL, &e), TG_OK);
    assert_int_equal(tg_file_writer_close(out, &e), TG_OK);
    assert_int_equal(tg_file_map_open(&map, path, &e), TG_OK);
    assert_int_equal(map.n_bytes, 4 + w.file.n_bytes);
    assert_memory_equal(map.data, "head", 4);
    assert_memory_equal(map.data + 4, w.file.data, w.file.n_bytes);
    tg_file_map_close(&map);
    close_written(&w);
}

static void progress_grows_to_the_whole_and_can_stop_it(void **state)
{
    (void)state;
    written w = write_tiny("llama-bf16", TG_WEIGHTS_F32);
    char path[128];
    tg_err e = {0};
    watch seen = {0};
    snprintf(path, sizeof path, "%s/again", w.dir);
    assert_int_equal(write_file(&w.compiled, w.o.b, path, &seen, &e), TG_OK);
    assert_true(seen.n_calls > 0 && !seen.is_wrong);
    assert_int_equal(seen.last, w.compiled.program.weights_bytes);
    watch stop = {.stop_at = 1};
    assert_int_equal(write_file(&w.compiled, w.o.b, path, &stop, &e), TG_E_CANCELLED);
    assert_non_null(strstr(e.msg, "cancelled"));
    close_written(&w);
}

static void refused_memory_is_an_error_and_leaks_nothing(void **state)
{
    (void)state;
    written w = write_tiny("llama-mqa", TG_WEIGHTS_AUTO);
    char path[128];
    tg_err e = {0};
    tg_file_writer *out = NULL;
    snprintf(path, sizeof path, "%s/again", w.dir);
    assert_int_equal(tg_file_writer_open(&out, path, &e), TG_OK);
    int64_t before = tg_mem_n_alive();
    for (int64_t n = 0; n < 3; n++) { /* the list, the batches and their bytes: all there is */
        tg_err failed = {0};
        tg_mem_fail_after(n);
        tg_status s = tg_pack_write(&w.compiled.program, w.o.b, NULL, out, NULL, NULL, &failed);
        tg_mem_fail_after(-1);
        assert_int_equal(s, TG_E_NOMEM);
        assert_int_equal(tg_mem_n_alive(), before);
    }
    tg_file_writer_abandon(out);
    close_written(&w);
}

/* A table made for more positions than the model knew rotates every position otherwise, so that
 * there is none without asking. */
static void the_length_is_the_models_unless_asked_for(void **state)
{
    (void)state;
    opened o = open_tiny("llama-rope-dynamic");
    tg_export_config config = {0};
    tg_err e = {0};
    if (tg_export_config_check(&config, o.h, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(config.max_length, 256);
    config = (tg_export_config){.max_length = 512};
    if (tg_export_config_check(&config, o.h, &e) != TG_OK) fail_msg("%s", e.msg);
    config = (tg_export_config){.max_length = 513};
    assert_int_not_equal(tg_export_config_check(&config, o.h, &e), TG_OK);
    close_opened(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_length_is_the_models_unless_asked_for),
        cmocka_unit_test(every_number_of_a_checkpoint_is_where_the_table_says),
        cmocka_unit_test(other_modes_round_each_number_once),
        cmocka_unit_test(gate_and_up_are_interleaved),
        cmocka_unit_test(writing_twice_gives_the_same_bytes),
        cmocka_unit_test(what_stands_before_in_the_file_stays),
        cmocka_unit_test(progress_grows_to_the_whole_and_can_stop_it),
        cmocka_unit_test(refused_memory_is_an_error_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
