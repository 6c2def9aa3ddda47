/* SPDX-License-Identifier: Apache-2.0 Packed tiles are read back with packed.h, which knows only
 * layout.h's drawing, and compared with the exact values of the source type (format/dtype.h, itself
 * tested against gguf-py). */
#include "check.h"
#include "compile/compile.h"
#include "packed.h"

#include <math.h>
#include <stdio.h>

static tg_tensor matrix_of(tg_dtype t, const void *data, int64_t rows, int64_t cols)
{
    tg_tensor x = {.name = TG_STR("w"), .dtype = t, .n_dims = 2, .data = data, .file = "test"};
    x.dims[0] = rows;
    x.dims[1] = cols;
    x.n_bytes = (size_t)rows * tg_dtype_row_bytes(t, cols);
    return x;
}

static tg_tensor vector_of(tg_dtype t, const void *data, int64_t n)
{
    tg_tensor x = {.name = TG_STR("v"), .dtype = t, .n_dims = 1, .data = data, .file = "test"};
    x.dims[0] = n;
    x.n_bytes = tg_dtype_row_bytes(t, n);
    return x;
}

/* All tiles; the caller frees. The buffer is dirty before, so that what is not written shows. */
static uint8_t *pack_all(tg_layout l, const tg_tensor *t, tg_weight_fix fix, int32_t head_dim)
{
    size_t tile = tg_layout_tile_bytes(l, t->dims[1]);
    int64_t n = tg_div_up(t->dims[0], 16);
    uint8_t *out = tg_mem_new(tile * (size_t)n);
    memset(out, 0xa5, tile * (size_t)n);
    for (int64_t i = 0; i < n; i++) {
        tg_err e = {0};
        if (tg_pack_tile(l, t,
                         &(tg_row_order){.fix = fix, .head_dim = head_dim, .rotary_dim = head_dim},
                         i, NULL, out + (size_t)i * tile, &e) != TG_OK)
            fail_msg("%s", e.msg);
    }
    return out;
}

/* Two bytes that are a finite f16, so that products can be compared by their bits. */
static void make_finite(uint8_t *p)
{
    if ((p[1] & 0x7c) == 0x7c) p[1] ^= 0x40;
}

/* Where f16 scales stand in a block of each type. */
static const struct {
    tg_dtype type;
    tg_layout layout;
    int f16_at[2];
} types[] = {
    {TG_DTYPE_Q4_0, TG_LAYOUT_Q4_0, {0, -1}},   {TG_DTYPE_Q4_1, TG_LAYOUT_Q4_1, {0, 2}},
    {TG_DTYPE_Q5_0, TG_LAYOUT_Q5_0, {0, -1}},   {TG_DTYPE_Q5_1, TG_LAYOUT_Q5_1, {0, 2}},
    {TG_DTYPE_Q8_0, TG_LAYOUT_Q8_0, {0, -1}},   {TG_DTYPE_Q2_K, TG_LAYOUT_Q2_K, {80, 82}},
    {TG_DTYPE_Q3_K, TG_LAYOUT_Q6_K, {108, -1}}, {TG_DTYPE_Q4_K, TG_LAYOUT_Q4_K, {0, 2}},
    {TG_DTYPE_Q5_K, TG_LAYOUT_Q5_K, {0, 2}},    {TG_DTYPE_Q6_K, TG_LAYOUT_Q6_K, {208, -1}},
    {TG_DTYPE_IQ4_NL, TG_LAYOUT_Q8_0, {0, -1}}, {TG_DTYPE_IQ4_XS, TG_LAYOUT_Q8_F, {0, -1}},
    {TG_DTYPE_MXFP4, TG_LAYOUT_Q8_F, {-1, -1}},
};

static uint8_t *random_blocks(size_t which, int64_t n_blocks, uint64_t *seed)
{
    size_t block = (size_t)tg_dtype_get_row(types[which].type)->block_bytes;
    uint8_t *p = tg_mem_new(block * (size_t)n_blocks);
    for (size_t i = 0; i < block * (size_t)n_blocks; i++)
        p[i] = (uint8_t)tg_test_next(seed);
    for (int64_t b = 0; b < n_blocks; b++) {
        uint8_t *at = p + (size_t)b * block;
        for (int k = 0; k < 2; k++)
            if (types[which].f16_at[k] >= 0) make_finite(at + types[which].f16_at[k]);
        if (types[which].type == TG_DTYPE_MXFP4 && at[0] > 250)
            at[0] = 250; /* 2^127 x 6 is too large */
    }
    return p;
}

/* By bits: also the sign of a zero. */
static void check_equal(float is, float want, const char *what, int64_t row, int64_t col)
{
    if (tg_f32_to_bits(is) != tg_f32_to_bits(want))
        fail_msg("%s [%d, %d] is %.9g, not %.9g; seed %llu", what, (int)row, (int)col, (double)is,
                 (double)want, (unsigned long long)tg_test_seed());
}

static void check_type(size_t which, int64_t rows, int64_t cols, uint64_t *seed)
{
    tg_dtype t = types[which].type;
    const char *name = tg_dtype_get_name(t);
    int64_t per_row = cols / tg_dtype_get_row(t)->block_elems;
    uint8_t *data = random_blocks(which, rows * per_row, seed);
    tg_tensor x = matrix_of(t, data, rows, cols);
    tg_layout l;
    assert_int_equal(tg_pack_choose_layout(&l, &x, TG_WEIGHTS_AUTO, false, NULL), TG_OK);
    assert_int_equal(l, types[which].layout);

    size_t stride = tg_layout_tile_bytes(l, cols);
    uint8_t *packed = pack_all(l, &x, TG_WEIGHT_FIX_NONE, 0),
            *plain = pack_all(TG_LAYOUT_F32, &x, 0, 0);
    float *want = TG_NEW_ARRAY(float, cols);
    for (int64_t r = 0; r < tg_div_up(rows, 16) * 16; r++) {
        if (r < rows)
            tg_dtype_unpack(t, data + (size_t)r * tg_dtype_row_bytes(t, cols), want, cols);
        for (int64_t c = 0; c < tg_layout_padded_cols(l, cols); c++) {
            bool is_padding = r >= rows || c >= cols;
            float is = packed_get(l, packed, stride, r, c);
            if (is_padding)
                assert_true(is == 0);
            else
                check_equal(is, want[c], name, r, c);
            if (!is_padding)
                check_equal(packed_get(TG_LAYOUT_F32, plain, (size_t)cols * 64, r, c), want[c],
                            "as float32", r, c);
        }
    }
    tg_mem_free(want);
    tg_mem_free(plain);
    tg_mem_free(packed);
    tg_mem_free(data);
}

static void every_block_type_keeps_its_values_to_the_bit(void **state)
{
    (void)state;
    static const int64_t row_counts[] = {1, 15, 16, 17, 48};
    uint64_t seed = tg_test_seed();
    for (size_t which = 0; which < TG_COUNT(types); which++) {
        int64_t block = tg_dtype_get_row(types[which].type)->block_elems;
        for (size_t i = 0; i < TG_COUNT(row_counts); i++)
            for (int64_t n = 1; n <= 5; n++)
                check_type(which, row_counts[i], n * block, &seed);
    }
}

static void the_lowest_int8_code_of_q8_0_survives(void **state)
{
    (void)state;
    uint8_t block[34] = {0x00, 0x3c, 0x80, 0x81, 0x7f, 0x00}; /* d = 1; -128, -127, 127, 0 */
    tg_tensor x = matrix_of(TG_DTYPE_Q8_0, block, 1, 32);
    uint8_t *packed = pack_all(TG_LAYOUT_Q8_0, &x, TG_WEIGHT_FIX_NONE, 0);
    assert_true(packed_get(TG_LAYOUT_Q8_0, packed, 1088, 0, 0) == -128);
    assert_true(packed_get(TG_LAYOUT_Q8_0, packed, 1088, 0, 1) == -127);
    assert_true(packed_get(TG_LAYOUT_Q8_0, packed, 1088, 0, 2) == 127);
    assert_true(packed_get(TG_LAYOUT_Q8_0, packed, 1088, 0, 3) == 0);
    tg_mem_free(packed);
}

/* ---- floats */

static void floats_keep_their_type_and_their_bits(void **state)
{
    (void)state;
    static const struct {
        tg_dtype type;
        tg_layout layout;
    } floats[] = {{TG_DTYPE_F32, TG_LAYOUT_F32},
                  {TG_DTYPE_F16, TG_LAYOUT_F16},
                  {TG_DTYPE_BF16, TG_LAYOUT_BF16}};
    uint64_t seed = tg_test_seed();
    for (size_t k = 0; k < TG_COUNT(floats); k++) {
        for (int64_t cols = 1; cols <= 300; cols += 23) {
            int64_t rows = 19;
            size_t row_bytes = tg_dtype_row_bytes(floats[k].type, cols);
            uint8_t *data = tg_mem_new((size_t)rows * row_bytes);
            for (size_t i = 0; i < (size_t)rows * row_bytes; i++)
                data[i] = (uint8_t)tg_test_next(&seed);
            tg_tensor x = matrix_of(floats[k].type, data, rows, cols);
            tg_layout l;
            assert_int_equal(tg_pack_choose_layout(&l, &x, TG_WEIGHTS_AUTO, false, NULL), TG_OK);
            assert_int_equal(l, floats[k].layout);
            uint8_t *packed = pack_all(l, &x, TG_WEIGHT_FIX_NONE, 0);
            float *want = TG_NEW_ARRAY(float, cols);
            for (int64_t r = 0; r < 32; r++) {
                if (r < rows) tg_dtype_unpack(x.dtype, data + (size_t)r * row_bytes, want, cols);
                for (int64_t c = 0; c < tg_layout_padded_cols(l, cols); c++) {
                    float is = packed_get(l, packed, tg_layout_tile_bytes(l, cols), r, c);
                    if (r >= rows || c >= cols)
                        assert_true(is == 0);
                    else if (isnan(want[c]))
                        assert_true(isnan(is));
                    else
                        check_equal(is, want[c], tg_layout_rows[l].name, r, c);
                }
            }
            tg_mem_free(want);
            tg_mem_free(packed);
            tg_mem_free(data);
        }
    }
}

/* By hand: f16 has 10 bits behind the point, bf16 7; ties go to the even neighbor. */
static void floats_round_to_nearest_even(void **state)
{
    (void)state;
    static const struct {
        tg_layout layout;
        float from, to;
    } cases[] = {
        {TG_LAYOUT_F16, 0x1.002p0f, 0x1p0f},        /* 1 + 2^-11: halfway, to the even below */
        {TG_LAYOUT_F16, 0x1.006p0f, 0x1.008p0f},    /* 1 + 3 x 2^-11: halfway, to the even above */
        {TG_LAYOUT_F16, 0x1.002002p0f, 0x1.004p0f}, /* just above halfway */
        {TG_LAYOUT_F16, 65519.99f, 65504.0f},       /* 65520 would be infinity */
        {TG_LAYOUT_F16, 0x1.ffcfp15f, 65504.0f},
        {TG_LAYOUT_F16, 0x1p-24f, 0x1p-24f}, /* smallest subnormal */
        {TG_LAYOUT_F16, 0x1p-25f, 0},        /* half of it: to even, zero */
        {TG_LAYOUT_F16, 0x1.8p-25f, 0x1p-24f},
        {TG_LAYOUT_F16, 0x1.8p-24f, 0x1p-23f}, /* 1.5 steps: to even, two */
        {TG_LAYOUT_BF16, 0x1.01p0f, 0x1p0f},
        {TG_LAYOUT_BF16, 0x1.03p0f, 0x1.04p0f},
        {TG_LAYOUT_BF16, 0x1.010002p0f, 0x1.02p0f},
        {TG_LAYOUT_BF16, 0x1.fefffep127f, 0x1.fep127f}, /* just below the halfway to infinity */
        {TG_LAYOUT_BF16, -0x1.03p-130f, -0x1p-130f},    /* subnormal: steps of 2^-133 */
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        float from = cases[i].from, to = cases[i].to;
        tg_tensor x = matrix_of(TG_DTYPE_F32, &from, 1, 1);
        uint8_t *packed = pack_all(cases[i].layout, &x, TG_WEIGHT_FIX_NONE, 0);
        check_equal(packed_get(cases[i].layout, packed, 64, 0, 0), to, "rounding", 0, (int64_t)i);
        tg_mem_free(packed);
    }
}

static void sixteen_bit_floats_convert_exactly_or_round_once(void **state)
{
    (void)state;
    uint16_t h = 0x3c01, b = 0x3f81; /* 1 + 2^-10; 1 + 2^-7 */
    tg_tensor f16 = matrix_of(TG_DTYPE_F16, &h, 1, 1), bf16 = matrix_of(TG_DTYPE_BF16, &b, 1, 1);
    uint8_t *packed = pack_all(TG_LAYOUT_BF16, &f16, TG_WEIGHT_FIX_NONE, 0);
    check_equal(packed_get(TG_LAYOUT_BF16, packed, 64, 0, 0), 1, "f16 to bf16", 0, 0);
    tg_mem_free(packed);
    packed = pack_all(TG_LAYOUT_F16, &bf16, TG_WEIGHT_FIX_NONE, 0);
    check_equal(packed_get(TG_LAYOUT_F16, packed, 32, 0, 0), 0x1.02p0f, "bf16 to f16", 0, 0);
    tg_mem_free(packed);
}

static void check_refused(tg_layout l, float bad, const char *shown)
{
    float data[64] = {0};
    data[33] = bad;
    tg_tensor x = matrix_of(TG_DTYPE_F32, data, 1, 64);
    uint8_t *tile = tg_mem_new(tg_layout_tile_bytes(l, 64));
    tg_err e = {0};
    assert_int_equal(tg_pack_tile(l, &x, &(tg_row_order){0}, 0, NULL, tile, &e), TG_E_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "tensor 'w'"));
    assert_non_null(strstr(e.msg, "column 33"));
    assert_non_null(strstr(e.msg, shown));
    assert_non_null(strstr(e.msg, tg_layout_rows[l].name));
    tg_mem_free(tile);
}

static void a_number_that_a_layout_cannot_hold_is_refused_by_name(void **state)
{
    (void)state;
    check_refused(TG_LAYOUT_F16, 65520, "65520");
    check_refused(TG_LAYOUT_F16, -1e6f, "-1e+06");
    check_refused(TG_LAYOUT_BF16, 0x1.ffp127f, "e+38");
    check_refused(TG_LAYOUT_Q8_0, NAN, "nan");
    check_refused(TG_LAYOUT_Q8_0, INFINITY, "inf");
    check_refused(TG_LAYOUT_Q8_0, 1e7f, "1e+07"); /* a scale of 78740 */
    check_refused(TG_LAYOUT_Q4_0, NAN, "nan");
    check_refused(TG_LAYOUT_Q4_1, NAN, "nan");
    check_refused(TG_LAYOUT_Q4_1, -INFINITY, "-inf");
    check_refused(TG_LAYOUT_Q4_1, -70000, "-70000"); /* a minimum that f16 lacks */
    check_refused(TG_LAYOUT_Q5_1, 1e7f, "1e+07");    /* a step of 322,581 */
    check_refused(TG_LAYOUT_Q4_0, -1e6f, "-1e+06");
}

/* ---- quantization: golden blocks of gguf-py (tools/goldens/goldens-model) */

static int hex_digit(int c)
{
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

/* q8_0 to the bit; q4_0 with no more squared error, and on most blocks with less. */
static void floats_are_quantized_as_gguf_py_does_or_better(void **state)
{
    (void)state;
    FILE *f = fopen("tests/golden/quantized.txt", "r");
    if (!f) fail_msg("tests/golden/quantized.txt is missing; run from the repository's root");
    char line[1024];
    int n = 0, n_q4 = 0, n_better = 0;
    for (; fgets(line, sizeof line, f); n++) {
        char *at = strtok(line, " \n");
        bool is_q8 = strcmp(at, "q8_0") == 0;
        tg_dtype t = is_q8 ? TG_DTYPE_Q8_0 : TG_DTYPE_Q4_0;
        tg_layout l = is_q8 ? TG_LAYOUT_Q8_0 : TG_LAYOUT_Q4_0;
        float x[32], want[32];
        uint8_t block[34];
        for (int i = 0; i < 32; i++)
            x[i] = tg_f32_from_bits((uint32_t)strtoul(strtok(NULL, " \n"), NULL, 16));
        at = strtok(NULL, " \n");
        for (int i = 0; at[2 * i]; i++)
            block[i] = (uint8_t)(hex_digit(at[2 * i]) << 4 | hex_digit(at[2 * i + 1]));
        tg_dtype_unpack(t, block, want, 32);
        tg_tensor m = matrix_of(TG_DTYPE_F32, x, 1, 32);
        uint8_t *packed = pack_all(l, &m, TG_WEIGHT_FIX_NONE, 0);
        double error = 0, most = 0;
        for (int i = 0; i < 32; i++) {
            float is = packed_get(l, packed, 0, 0, i);
            if (is_q8) check_equal(is, want[i], "q8_0", n, i);
            error += ((double)is - x[i]) * ((double)is - x[i]);
            most += ((double)want[i] - x[i]) * ((double)want[i] - x[i]);
        }
        if (!(error <= most)) fail_msg("line %d is off by %g, gguf-py's by %g", n, error, most);
        n_q4 += !is_q8;
        n_better += error < most;
        tg_mem_free(packed);
    }
    fclose(f);
    print_message("q4_0: %d of %d blocks are nearer than gguf-py's\n", n_better, n_q4);
    assert_true(n >= 40 && n_q4 > 0 && 2 * n_better > n_q4);
}

static void a_quantized_row_may_end_inside_a_group(void **state)
{
    (void)state;
    float x[40], padded[64] = {0};
    uint64_t seed = tg_test_seed();
    for (int i = 0; i < 40; i++)
        padded[i] = x[i] = tg_test_uniform(&seed);
    static const tg_layout layouts[] = {TG_LAYOUT_Q8_0, TG_LAYOUT_Q4_0};
    for (size_t k = 0; k < 2; k++) {
        tg_layout l = layouts[k];
        tg_tensor shorter = matrix_of(TG_DTYPE_F32, x, 1, 40);
        tg_tensor whole = matrix_of(TG_DTYPE_F32, padded, 1, 64);
        uint8_t *a = pack_all(l, &shorter, TG_WEIGHT_FIX_NONE, 0),
                *b = pack_all(l, &whole, TG_WEIGHT_FIX_NONE, 0);
        assert_memory_equal(a, b, tg_layout_tile_bytes(l, 40));
        for (int c = 40; c < 64; c++)
            assert_true(packed_get(l, a, 0, 0, c) == 0);
        tg_mem_free(a);
        tg_mem_free(b);
    }
}

/* ---- fixes */

/* llama.cpp's converter: w.reshape(heads, 2, dim / 2, cols).swapaxes(1, 2), so that the file's row
 * 2 i + j of a head is the model's row j dim / 2 + i. */
static void rotary_rows_are_put_back_in_the_papers_order(void **state)
{
    (void)state;
    enum { HEADS = 3, DIM = 24, ROWS = HEADS * DIM };
    float file[ROWS], bias[ROWS];
    for (int head = 0; head < HEADS; head++)
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < DIM / 2; i++)
                file[head * DIM + 2 * i + j] = (float)(100 * head + j * DIM / 2 + i);
    tg_tensor x = matrix_of(TG_DTYPE_F32, file, ROWS, 1), v = vector_of(TG_DTYPE_F32, file, ROWS);
    uint8_t *packed = pack_all(TG_LAYOUT_F32, &x, TG_WEIGHT_FIX_UNPERMUTE_K, DIM);
    tg_pack_vector(
        &v, &(tg_row_order){.fix = TG_WEIGHT_FIX_UNPERMUTE_Q, .head_dim = DIM, .rotary_dim = DIM},
        bias);
    for (int row = 0; row < ROWS; row++) {
        float want = (float)(100 * (row / DIM) + row % DIM);
        check_equal(packed_get(TG_LAYOUT_F32, packed, 64, row, 0), want, "row", row, 0);
        check_equal(bias[row], want, "bias", row, 0);
    }
    tg_mem_free(packed);
}

/* Keys of a tensor that holds, for each of 3 KV heads, 2 queries, a key and a value of 8 rows, the
 * rotary halves interleaved: row 32 h + 16 + 2 i + j is the model's 8 h + 4 j + i. */
static void rows_of_groups_are_picked_out(void **state)
{
    (void)state;
    enum { HEADS = 3, DIM = 8, STEP = 4 * DIM };
    float file[HEADS * STEP], out[HEADS * DIM];
    for (int i = 0; i < HEADS * STEP; i++)
        file[i] = (float)i;
    tg_tensor v = vector_of(TG_DTYPE_F32, file + 2 * DIM, HEADS * DIM);
    tg_row_order keys = {.fix = TG_WEIGHT_FIX_UNPERMUTE_K,
                         .head_dim = DIM,
                         .rotary_dim = DIM,
                         .run = DIM,
                         .step = STEP};
    tg_pack_vector(&v, &keys, out);
    for (int h = 0; h < HEADS; h++)
        for (int j = 0; j < 2; j++)
            for (int i = 0; i < DIM / 2; i++) {
                int row = h * DIM + j * DIM / 2 + i;
                check_equal(out[row], (float)(32 * h + 16 + 2 * i + j), "row", row, 0);
            }
}

static void one_is_added_in_float32(void **state)
{
    (void)state;
    uint16_t w[2] = {0x3b00, 0xbf80}; /* bf16: 2^-9, which 1 + w cannot keep in bf16; -1 */
    float out[2];
    tg_tensor v = vector_of(TG_DTYPE_BF16, w, 2);
    tg_pack_vector(&v, &(tg_row_order){.fix = TG_WEIGHT_FIX_ADD_ONE}, out);
    check_equal(out[0], 0x1.008p0f, "1 + 2^-9", 0, 0);
    check_equal(out[1], 0, "1 - 1", 0, 1);
}

/* ---- which layout */

static void modes_convert_floats_and_leave_blocks_alone(void **state)
{
    (void)state;
    static const tg_layout want[][4] = {
        /* mode:             f32             f16               bf16              q4_1 */
        [TG_WEIGHTS_AUTO] = {TG_LAYOUT_F32, TG_LAYOUT_F16, TG_LAYOUT_BF16, TG_LAYOUT_Q4_1},
        [TG_WEIGHTS_F32] = {TG_LAYOUT_F32, TG_LAYOUT_F32, TG_LAYOUT_F32, TG_LAYOUT_F32},
        [TG_WEIGHTS_BF16] = {TG_LAYOUT_BF16, TG_LAYOUT_BF16, TG_LAYOUT_BF16, TG_LAYOUT_Q4_1},
        [TG_WEIGHTS_F16] = {TG_LAYOUT_F16, TG_LAYOUT_F16, TG_LAYOUT_F16, TG_LAYOUT_Q4_1},
        [TG_WEIGHTS_Q8_0] = {TG_LAYOUT_Q8_0, TG_LAYOUT_Q8_0, TG_LAYOUT_Q8_0, TG_LAYOUT_Q4_1},
        [TG_WEIGHTS_Q4_0] = {TG_LAYOUT_Q4_0, TG_LAYOUT_Q4_0, TG_LAYOUT_Q4_0, TG_LAYOUT_Q4_1},
        [TG_WEIGHTS_Q4_1] = {TG_LAYOUT_Q4_1, TG_LAYOUT_Q4_1, TG_LAYOUT_Q4_1, TG_LAYOUT_Q4_1},
        [TG_WEIGHTS_Q5_1] = {TG_LAYOUT_Q5_1, TG_LAYOUT_Q5_1, TG_LAYOUT_Q5_1, TG_LAYOUT_Q4_1},
    };
    static const tg_dtype from[] = {TG_DTYPE_F32, TG_DTYPE_F16, TG_DTYPE_BF16, TG_DTYPE_Q4_1};
    for (int mode = TG_WEIGHTS_AUTO; mode <= TG_WEIGHTS_Q5_1; mode++)
        for (int k = 0; k < 4; k++) {
            tg_layout l = TG_LAYOUT_COUNT;
            tg_tensor x = matrix_of(from[k], NULL, 16, 32), v = vector_of(from[k], NULL, 32);
            assert_int_equal(tg_pack_choose_layout(&l, &x, (tg_weights_mode)mode, false, NULL),
                             TG_OK);
            assert_int_equal(l, want[mode][k]);
            if (k == 3) continue;
            assert_int_equal(tg_pack_choose_layout(&l, &v, (tg_weights_mode)mode, true, NULL),
                             TG_OK);
            assert_int_equal(l, TG_LAYOUT_F32);
        }
}

static void types_without_a_layout_are_named(void **state)
{
    (void)state;
    static const tg_dtype bad[] = {TG_DTYPE_F8_E4M3, TG_DTYPE_F64, TG_DTYPE_I32, TG_DTYPE_BOOL};
    for (size_t i = 0; i < TG_COUNT(bad); i++) {
        tg_err e = {0};
        tg_layout l;
        tg_tensor x = matrix_of(bad[i], NULL, 16, 32);
        assert_int_equal(tg_pack_choose_layout(&l, &x, TG_WEIGHTS_AUTO, false, &e),
                         TG_E_UNSUPPORTED);
        assert_non_null(strstr(e.msg, "'w'"));
        assert_non_null(strstr(e.msg, tg_dtype_get_name(bad[i])));
    }
    tg_err e = {0};
    tg_layout l;
    tg_tensor v = vector_of(TG_DTYPE_Q8_0, NULL, 32);
    assert_int_equal(tg_pack_choose_layout(&l, &v, TG_WEIGHTS_AUTO, true, &e), TG_E_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "vector"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_block_type_keeps_its_values_to_the_bit),
        cmocka_unit_test(the_lowest_int8_code_of_q8_0_survives),
        cmocka_unit_test(floats_keep_their_type_and_their_bits),
        cmocka_unit_test(floats_round_to_nearest_even),
        cmocka_unit_test(sixteen_bit_floats_convert_exactly_or_round_once),
        cmocka_unit_test(a_number_that_a_layout_cannot_hold_is_refused_by_name),
        cmocka_unit_test(floats_are_quantized_as_gguf_py_does_or_better),
        cmocka_unit_test(a_quantized_row_may_end_inside_a_group),
        cmocka_unit_test(rotary_rows_are_put_back_in_the_papers_order),
        cmocka_unit_test(rows_of_groups_are_picked_out),
        cmocka_unit_test(one_is_added_in_float32),
        cmocka_unit_test(modes_convert_floats_and_leave_blocks_alone),
        cmocka_unit_test(types_without_a_layout_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
