/* SPDX-License-Identifier: Apache-2.0
 * test_prequantized.c - quantized Hugging Face weights: words of hand-made files and what they
 * mean, the types that hold them, and files that contradict themselves. That whole models agree
 * with transformers is tests/parity's, whose models prequantized-* are read here too. */
#include "check.h"
#include "format/prequant_matrix.h"
#include "format/prequantized.h"
#include "format_files.h"

typedef struct prequantized_fixture {
    char *dir;
    tg_checkpoint *c;
    tg_prequantized *s;
    tg_status status;
    tg_err e;
} prequantized_fixture;

static prequantized_fixture open_folder(char *dir)
{
    prequantized_fixture f = {.dir = dir};
    begin_log();
    if (tg_checkpoint_open(&f.c, dir, &f.e) != TG_OK) fail_msg("%s", f.e.msg);
    const json_t *about =
        json_object_get(tg_checkpoint_get_json(f.c, TG_HF_CONFIG), "quantization_config");
    f.status = tg_prequantized_new(&f.s, f.c, about, &f.e);
    return f;
}

static void close_folder(prequantized_fixture *f, bool is_made)
{
    tg_prequantized_free(f->s);
    tg_checkpoint_close(f->c);
    if (is_made) remove_folder(f->dir);
}

/* A folder of one matrix "a." from the tensors' JSON and their bytes. */
static prequantized_fixture open_made(const char *about, const char *header, const void *bytes,
                                      size_t n)
{
    char *dir = make_folder(), config[1000];
    tg_buf b = {0};
    snprintf(config, sizeof config, "{\"quantization_config\": {%.900s}}", about);
    save_text(dir, "config.json", config);
    put_str(&b, header);
    put(&b, bytes, n);
    save_buf(dir, "model.safetensors", &b);
    return open_folder(dir);
}

#define GPTQ "\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": -1"
#define AWQ  "\"quant_method\": \"awq\", \"bits\": 4, \"group_size\": 32"

static const tg_tensor *find_a(const prequantized_fixture *f)
{
    if (f->status != TG_OK) fail_msg("%s", f->e.msg);
    const tg_tensor *t = tg_prequantized_find(f->s, TG_STR("a.weight"));
    assert_non_null(t);
    return t;
}

static void read_row(const tg_tensor *t, int64_t row, float *out)
{
    uint8_t made[1024];
    assert_true(tg_dtype_row_bytes(t->dtype, t->dims[1]) <= sizeof made);
    tg_prequant_matrix_read(t, row, made);
    tg_dtype_unpack(t->dtype, made, out, t->dims[1]);
}

/* ---- words by hand: 8 outputs, 32 inputs */

/* qweight [4, 8]: word k of output n holds inputs 8 k .. 8 k + 7, the first in the lowest nibble.
 * Output 3 has the words 0x76543210, 0xfedcba98, then zeros. Its zero is nibble 3 of qzeros, stored
 * as 4: in format 1 that is 5, in format 2 it is 4. Its scale is 0.5. */
static void make_gptq(uint8_t bytes[4 * 32 + 4 + 16])
{
    uint32_t words[32] = {0}, zeros = 0x77774777;
    memset(bytes, 0, 4 * 32 + 4 + 16);
    words[3] = 0x76543210;
    words[8 + 3] = 0xfedcba98;
    memcpy(bytes, words, sizeof words);
    memcpy(bytes + 128, &zeros, 4);
    bytes[132 + 2 * 3 + 1] = 0x38; /* f16 0.5 is 0x3800 */
}

static const char gptq_header[] =
    "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
    "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
    "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}";

static void gptq_words_are_read_along_the_inputs_and_zeros_by_format(void **state)
{
    (void)state;
    uint8_t bytes[148];
    float v[32];
    make_gptq(bytes);
    for (int version = 1; version <= 2; version++) {
        prequantized_fixture f =
            open_made(version == 1 ? GPTQ : GPTQ ", \"checkpoint_format\": \"gptq_v2\"",
                      gptq_header, bytes, sizeof bytes);
        const tg_tensor *t = find_a(&f);
        assert_int_equal(t->dims[0], 8);
        assert_int_equal(t->dims[1], 32);
        assert_int_equal(t->dtype, TG_DTYPE_Q5_0); /* zeros of 4 and 7, or of 5 and 8 */
        read_row(t, 3, v);
        float zero = version == 1 ? 5 : 4;
        for (int i = 0; i < 32; i++)
            assert_true(v[i] == 0.5f * ((i < 16 ? (float)i : 0) - zero));
        read_row(t, 4, v);
        assert_true(v[0] == 0); /* its scale is 0 */
        close_folder(&f, true);
    }
}

/* qweight [32, 1]: the word of input k holds the eight outputs, output n in nibble
 * 0 4 1 5 2 6 3 7 of n: so 0x76543210 gives output 0 code 0, output 1 code 4, output 2 code 1. */
static void awq_words_hold_outputs_in_an_order_of_their_own(void **state)
{
    (void)state;
    static const float codes[8] = {0, 4, 1, 5, 2, 6, 3, 7};
    uint8_t bytes[128 + 4 + 16] = {0};
    uint32_t word = 0x76543210, zeros = 0x11111111;
    float v[32];
    memcpy(bytes + 4 * 5, &word, 4); /* input 5 */
    memcpy(bytes + 128, &zeros, 4);
    for (int n = 0; n < 8; n++)
        bytes[132 + 2 * n + 1] = 0x3c; /* f16 1 is 0x3c00 */
    prequantized_fixture f =
        open_made(AWQ,
                  "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[32,1],\"data_offsets\":[0,128]},"
                  "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
                  "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}",
                  bytes, sizeof bytes);
    const tg_tensor *t = find_a(&f);
    for (int n = 0; n < 8; n++) {
        read_row(t, n, v);
        assert_true(v[5] == codes[n] - 1);
        assert_true(v[4] == -1);
    }
    close_folder(&f, true);
}

/* ---- what cannot be right */

static void a_matrix_without_its_scale_is_refused_by_name(void **state) /* C33 */
{
    (void)state;
    uint8_t bytes[148] = {0};
    /* each by the name that its own writer gives the scale */
    static const char *const abouts[][2] = {
        {"\"quant_method\": \"fp8\"", "'a.weight_scale_inv'"},
        {"\"quant_method\": \"fbgemm_fp8\"", "'a.weight_scale'"},
        {"\"quant_method\": \"compressed-tensors\", \"format\": \"float-quantized\"",
         "'a.weight_scale'"},
    };
    for (size_t i = 0; i < TG_COUNT(abouts); i++) {
        prequantized_fixture f = open_made(
            abouts[i][0],
            "{\"a.weight\":{\"dtype\":\"F8_E4M3\",\"shape\":[4,4],\"data_offsets\":[0,16]}}", bytes,
            16);
        assert_int_equal(f.status, TG_E_CORRUPT);
        assert_says(&f.e, "'a.weight' is quantized, but ");
        assert_says(&f.e, abouts[i][1]);
        assert_says(&f.e, "is missing");
        close_folder(&f, true);
    }
}

static void scales_without_a_quantized_weight_are_a_warning(void **state) /* C33 */
{
    (void)state;
    uint8_t bytes[36] = {0};
    prequantized_fixture f = open_made(
        "\"quant_method\": \"fp8\"",
        "{\"a.weight\":{\"dtype\":\"BF16\",\"shape\":[4,4],\"data_offsets\":[0,32]},"
        "\"a.weight_scale_inv\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[32,36]}}",
        bytes, sizeof bytes);
    if (f.status != TG_OK) fail_msg("%s", f.e.msg);
    assert_null(tg_prequantized_find(f.s, TG_STR("a.weight")));
    assert_non_null(strstr(test_log, "such as 'a.weight_scale_inv'"));
    assert_true(tg_str_is(tg_prequantized_find_stem(TG_STR("a.weight_scale_inv")), "a."));
    assert_int_equal(tg_prequantized_find_stem(TG_STR("a.weight")).len, 0);
    close_folder(&f, true);
}

static void shapes_that_do_not_fit_are_named_with_what_they_must_be(void **state)
{
    (void)state;
    uint8_t bytes[148];
    make_gptq(bytes);
    static const char *const cases[][3] = {
        {GPTQ,
         "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
         "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
         "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[2,4],\"data_offsets\":[132,148]}}",
         "'a.scales' is f16 [2, 4], but with 'a.qweight' of [4, 8] it must be [1, 8]"},
        {GPTQ,
         "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
         "\"a.qzeros\":{\"dtype\":\"F32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
         "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}",
         "'a.qzeros' is f32 [1, 1], but"},
        {GPTQ,
         "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[2,16],\"data_offsets\":[0,128]},"
         "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[128,144]}}",
         "'a.qzeros', without which its numbers mean nothing, is missing"},
        {GPTQ,
         "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[32],\"data_offsets\":[0,128]},"
         "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
         "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}",
         "'a.qweight' is [32], but codes are a matrix"},
        {GPTQ,
         "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
         "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
         "\"a.scales\":{\"dtype\":\"I16\",\"shape\":[1,8],\"data_offsets\":[132,148]}}",
         "'a.scales' has type i16; scales are f32, f16 or bf16"},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        size_t n = strstr(cases[i][1], "148") ? 148 : 144;
        prequantized_fixture f = open_made(cases[i][0], cases[i][1], bytes, n);
        assert_int_not_equal(f.status, TG_OK);
        assert_says(&f.e, cases[i][2]);
        close_folder(&f, true);
    }
}

static void methods_and_choices_that_are_not_built_are_refused_by_name(void **state)
{
    (void)state;
    uint8_t bytes[4] = {0};
    static const char header[] = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}";
    static const char *const cases[][2] = {
        {"\"quant_method\": \"bitsandbytes\"", "quant_method is 'bitsandbytes'; built are gptq"},
        {"\"bits\": 4", "quant_method is ''"},
        {"\"quant_method\": \"gptq\", \"bits\": 3, \"group_size\": 128", "bits is 3; 4 and 8 are"},
        {"\"quant_method\": \"gptq\", \"bits\": 4", "group_size is 0"},
        {"\"quant_method\": \"gptq\", \"bits\": 4, \"group_size\": 32, \"checkpoint_format\": "
         "\"marlin\"",
         "checkpoint_format is 'marlin'; built are gptq, gptq_v2"},
        {"\"quant_method\": \"awq\", \"bits\": 8, \"group_size\": 32", "bits is 8; only 4 is"},
        {AWQ ", \"version\": \"gemv\"", "version is 'gemv'; built are gemm"},
        {"\"quant_method\": \"fp8\", \"fmt\": \"e5m2\"", "fmt is 'e5m2'"},
        {"\"quant_method\": \"fp8\", \"weight_block_size\": [128]",
         "weight_block_size is not [rows, columns]"},
        {"\"quant_method\": \"compressed-tensors\", \"format\": \"nvfp4-pack-quantized\"",
         "format is 'nvfp4-pack-quantized'"},
        {"\"quant_method\": \"compressed-tensors\", \"transform_config\": {\"config_groups\": "
         "{\"u\": {}}}",
         "transform_config rotates the weights"},
        {"\"quant_method\": \"compressed-tensors\", \"sparsity_config\": {\"format\": "
         "\"sparse-24-bitmask\"}",
         "sparsity_config.format is 'sparse-24-bitmask'"},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        prequantized_fixture f = open_made(cases[i][0], header, bytes, sizeof bytes);
        assert_int_not_equal(f.status, TG_OK);
        assert_says(&f.e, "config.json");
        assert_says(&f.e, cases[i][1]);
        close_folder(&f, true);
    }
}

static void a_column_of_a_group_that_is_not_there_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[148 + 128];
    int32_t index[32] = {[7] = 1};
    make_gptq(bytes);
    memcpy(bytes + 148, index, sizeof index);
    prequantized_fixture f =
        open_made(GPTQ,
                  "{\"a.qweight\":{\"dtype\":\"I32\",\"shape\":[4,8],\"data_offsets\":[0,128]},"
                  "\"a.qzeros\":{\"dtype\":\"I32\",\"shape\":[1,1],\"data_offsets\":[128,132]},"
                  "\"a.scales\":{\"dtype\":\"F16\",\"shape\":[1,8],\"data_offsets\":[132,148]},"
                  "\"a.g_idx\":{\"dtype\":\"I32\",\"shape\":[32],\"data_offsets\":[148,276]}}",
                  bytes, sizeof bytes);
    assert_int_equal(f.status, TG_E_CORRUPT);
    assert_says(&f.e, "gives column 7 group 1, but there are 1");
    close_folder(&f, true);
}

/* ---- the type that holds all values exactly: what the kernels will read */

static void the_smallest_exact_type_is_chosen(void **state)
{
    (void)state;
    static const struct {
        const char *folder;
        tg_dtype dtype;
    } want[] = {
        {"gptq32", TG_DTYPE_Q4_0},       {"gptq128", TG_DTYPE_Q5_0},
        {"gptq-order", TG_DTYPE_F32},    {"gptq8", TG_DTYPE_Q8_0},
        {"awq32", TG_DTYPE_Q5_0},        {"awq64", TG_DTYPE_Q5_0},
        {"packed32", TG_DTYPE_Q4_0},     {"packed64", TG_DTYPE_Q5_0},
        {"packed-order", TG_DTYPE_F32},  {"packed8", TG_DTYPE_Q8_0},
        {"int8-channel", TG_DTYPE_Q8_F}, {"int8-tensor", TG_DTYPE_Q8_0},
        {"fp8-block", TG_DTYPE_F32},     {"fp8-tensor", TG_DTYPE_F32},
        {"fbgemm", TG_DTYPE_F32},        {"float-block", TG_DTYPE_F32},
        {"float-channel", TG_DTYPE_F32},
    };
    for (size_t i = 0; i < TG_COUNT(want); i++) {
        char path[100];
        snprintf(path, sizeof path, "tests/parity/models/prequantized-%.20s", want[i].folder);
        prequantized_fixture f = open_folder(path);
        if (f.status != TG_OK) fail_msg("%s", f.e.msg);
        const tg_tensor *t =
            tg_prequantized_find(f.s, TG_STR("model.layers.0.self_attn.o_proj.weight"));
        assert_non_null(t);
        if (t->dtype != want[i].dtype) fail_msg("%s becomes %s", path, tg_dtype_get_name(t->dtype));
        assert_string_equal(test_log, "");
        close_folder(&f, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gptq_words_are_read_along_the_inputs_and_zeros_by_format),
        cmocka_unit_test(awq_words_hold_outputs_in_an_order_of_their_own),
        cmocka_unit_test(a_matrix_without_its_scale_is_refused_by_name),
        cmocka_unit_test(scales_without_a_quantized_weight_are_a_warning),
        cmocka_unit_test(shapes_that_do_not_fit_are_named_with_what_they_must_be),
        cmocka_unit_test(methods_and_choices_that_are_not_built_are_refused_by_name),
        cmocka_unit_test(a_column_of_a_group_that_is_not_there_is_refused),
        cmocka_unit_test(the_smallest_exact_type_is_chosen),
    };
    return cmocka_run_group_tests_name("prequantized", tests, NULL, NULL);
}
