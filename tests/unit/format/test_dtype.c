/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "format/dtype.h"

#include <math.h>
#include <stdio.h>

/* Values of gguf-py (tools/goldens/goldens-format): name[16], u32 n_elems, u32 n_bytes, bytes,
 * f32s. */
static void block_formats_have_the_values_of_gguf_py_to_the_bit(void **state)
{
    (void)state;
    enum { MAX_ELEMS = 1024, MAX_BYTES = 4096 };
    static unsigned char raw[MAX_BYTES];
    static float want[MAX_ELEMS], got[MAX_ELEMS];
    FILE *f = fopen("tests/golden/dtypes.bin", "rb");
    assert_non_null(f);
    int n_formats = 0;
    for (char name[17] = {0}; fread(name, 1, 16, f) == 16; n_formats++) {
        uint32_t n[2];
        tg_dtype t;
        size_t n_bytes;
        assert_int_equal(fread(n, 4, 2, f), 2);
        assert_true(n[0] <= MAX_ELEMS && n[1] <= MAX_BYTES);
        assert_int_equal(fread(raw, 1, n[1], f), n[1]);
        assert_int_equal(fread(want, 4, n[0], f), n[0]);
        assert_true(tg_dtype_find(&t, tg_str_from_cstr(name)));
        assert_true(tg_dtype_size(t, n[0], &n_bytes));
        assert_int_equal(n_bytes, n[1]);
        /* The bytes end at an unmapped page. */
        unsigned char *src = tg_test_guarded(n[1]);
        memcpy(src, raw, n[1]);
        tg_dtype_unpack(t, src, got, n[0]);
        for (uint32_t i = 0; i < n[0]; i++)
            if (tg_f32_to_bits(got[i]) != tg_f32_to_bits(want[i]))
                fail_msg("%s: element %u is %a, gguf-py has %a", name, i, (double)got[i],
                         (double)want[i]);
    }
    fclose(f);
    assert_int_equal(n_formats, 16); /* F32 to MXFP4 */
}

static void block_formats_may_lie_at_odd_addresses(void **state)
{
    (void)state;
    static unsigned char raw[2 * 300];
    static float even[256], odd[256];
    uint64_t seed = tg_test_seed();
    for (size_t i = 0; i < sizeof raw; i++)
        raw[i] = (unsigned char)(tg_test_next(&seed) & 0x3f); /* keeps f16 scales finite */
    for (int t = 0; t < TG_DTYPE_COUNT; t++) {
        int32_t n = tg_dtype_get_row((tg_dtype)t)->block_elems;
        size_t n_bytes = tg_dtype_row_bytes((tg_dtype)t, n);
        tg_dtype_unpack((tg_dtype)t, raw, even, n);
        memmove(raw + 301, raw, n_bytes);
        tg_dtype_unpack((tg_dtype)t, raw + 301, odd, n);
        assert_memory_equal(even, odd, (size_t)n * sizeof *even);
    }
}

/* IEEE 754 by arithmetic in double: sign * 2^(e - 15) * (1 + m / 1024), e = 0: 2^-14 * m / 1024. */
static void every_f16_has_its_value_and_comes_back(void **state)
{
    (void)state;
    for (uint32_t h = 0; h <= 0xffff; h++) {
        int e = (int)(h >> 10 & 31), m = (int)(h & 1023);
        float got = tg_f16_to_f32((uint16_t)h);
        if (e == 31 && m) {
            assert_true(isnan(got));
            assert_int_equal(tg_f32_to_bits(got) >> 22 & 1, 1); /* quiet */
            assert_int_equal(tg_f32_to_f16(got), h | 0x200u);
            continue;
        }
        double want = e == 31 ? INFINITY : e ? ldexp(1 + m / 1024.0, e - 15) : ldexp(m, -24);
        assert_true((double)got == (h >> 15 ? -want : want));
        assert_int_equal(!!signbit(got), h >> 15);
        assert_int_equal(tg_f32_to_f16(got), h);
    }
}

/* Between two neighboring f16 the nearer one wins, and in the middle the one with an even last
 * bit. All of that is exact in double. */
static void rounding_to_f16_is_to_nearest_even(void **state)
{
    (void)state;
    for (uint16_t h = 0; h < 0x7c00; h++) {
        double a = tg_f16_to_f32(h);
        double b = h == 0x7bff ? 65536.0 : (double)tg_f16_to_f32((uint16_t)(h + 1));
        float mid = (float)((a + b) / 2); /* exact: one more bit than f16 has */
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        assert_int_equal(tg_f32_to_f16(mid), even);
        assert_int_equal(tg_f32_to_f16(-mid), even | 0x8000);
        assert_int_equal(tg_f32_to_f16(nextafterf(mid, 0)), h);
        assert_int_equal(tg_f32_to_f16(nextafterf(mid, INFINITY)), h + 1);
    }
    assert_int_equal(tg_f32_to_f16(1e30f), 0x7c00);
    assert_int_equal(tg_f32_to_f16(-INFINITY), 0xfc00);
    assert_int_equal(tg_f32_to_f16(1e-30f), 0);
    assert_int_equal(tg_f32_to_f16(-1e-45f), 0x8000);
}

static void rounding_to_bf16_is_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t h = 0; h < 0x7f80; h++) {
        uint32_t mid = h << 16 | 0x8000u;
        uint16_t even = (uint16_t)(h & 1 ? h + 1 : h);
        assert_int_equal(tg_f32_to_bf16(tg_f32_from_bits(h << 16)), h);
        assert_int_equal(tg_f32_to_bf16(tg_f32_from_bits(mid)), even);
        assert_int_equal(tg_f32_to_bf16(tg_f32_from_bits(mid - 1)), h);
        assert_int_equal(tg_f32_to_bf16(tg_f32_from_bits(mid + 1)), h + 1);
    }
    assert_int_equal(tg_f32_to_bf16(tg_f32_from_bits(0x7f800001u)), 0x7fc0);
    assert_int_equal(tg_f32_to_bits(tg_bf16_to_f32(0xff81)), 0xffc10000u);
}

/* OCP 8-bit floats: e4m3 has bias 7 and no infinity, e5m2 bias 15, e8m0 is 2^(b - 127). */
static void every_f8_has_its_value(void **state)
{
    (void)state;
    for (int b = 0; b < 256; b++) {
        int e = b >> 3 & 15, m = b & 7;
        double want = e ? ldexp(1 + m / 8.0, e - 7) : ldexp(m, -9);
        float got = tg_f8_e4m3_to_f32((uint8_t)b);
        if ((b & 0x7f) == 0x7f)
            assert_true(isnan(got));
        else
            assert_true((double)got == (b & 0x80 ? -want : want));

        e = b >> 2 & 31, m = b & 3;
        want = e == 31 ? INFINITY : e ? ldexp(1 + m / 4.0, e - 15) : ldexp(m, -16);
        got = tg_f8_e5m2_to_f32((uint8_t)b);
        if (e == 31 && m)
            assert_true(isnan(got));
        else
            assert_true((double)got == (b & 0x80 ? -want : want));

        got = tg_f8_e8m0_to_f32((uint8_t)b);
        if (b == 255)
            assert_true(isnan(got));
        else
            assert_true((double)got == ldexp(1, b - 127));
    }
    assert_true(tg_f8_e4m3_to_f32(0x7e) == 448.0f); /* the largest, by the OCP table */
}

static void integers_and_bools_become_their_number(void **state)
{
    (void)state;
    float out[2];
    const int8_t i8[] = {-128, 127};
    const int64_t i64[] = {-(1LL << 40), 16777217};
    const uint64_t u64[] = {1, UINT64_MAX};
    const double f64[] = {0.1, 1e300};
    const uint8_t flags[] = {0, 1};
    tg_dtype_unpack(TG_DTYPE_I8, i8, out, 2);
    assert_true(out[0] == -128.0f && out[1] == 127.0f);
    tg_dtype_unpack(TG_DTYPE_I64, i64, out, 2);
    assert_true(out[0] == -0x1p40f && out[1] == 16777216.0f); /* 2^24 + 1: tie to even */
    tg_dtype_unpack(TG_DTYPE_U64, u64, out, 2);
    assert_true(out[0] == 1.0f && out[1] == 0x1p64f);
    tg_dtype_unpack(TG_DTYPE_F64, f64, out, 2);
    assert_true(out[0] == 0.1f && isinf(out[1]));
    tg_dtype_unpack(TG_DTYPE_BOOL, flags, out, 2);
    assert_true(out[0] == 0.0f && out[1] == 1.0f);
}

static void sizes_are_checked_products_of_whole_blocks(void **state)
{
    (void)state;
    size_t n = 0;
    assert_true(tg_dtype_size(TG_DTYPE_Q4_K, 512, &n));
    assert_int_equal(n, 288);
    assert_false(tg_dtype_size(TG_DTYPE_Q4_K, 511, &n));
    assert_false(tg_dtype_size(TG_DTYPE_F32, -1, &n));
    assert_false(tg_dtype_size(TG_DTYPE_F32, INT64_MAX, &n));
    assert_true(tg_dtype_size(TG_DTYPE_Q8_0, 0, &n));
    assert_int_equal(n, 0);
}

/* Numbers and names from ggml.h and the safetensors documentation. */
static void formats_are_found_by_every_name_they_have(void **state)
{
    (void)state;
    static const struct {
        uint32_t id;
        const char *name;
    } gguf[] = {{0, "f32"},    {1, "f16"},   {30, "bf16"}, {2, "q4_0"},    {3, "q4_1"},
                {6, "q5_0"},   {7, "q5_1"},  {8, "q8_0"},  {10, "q2_k"},   {11, "q3_k"},
                {12, "q4_k"},  {13, "q5_k"}, {14, "q6_k"}, {20, "iq4_nl"}, {23, "iq4_xs"},
                {39, "mxfp4"}, {24, "i8"},   {27, "i64"},  {28, "f64"}};
    tg_dtype t = TG_DTYPE_COUNT;
    for (size_t i = 0; i < TG_COUNT(gguf); i++) {
        assert_true(tg_dtype_find_gguf(&t, gguf[i].id));
        assert_string_equal(tg_dtype_get_name(t), gguf[i].name);
    }
    assert_true(tg_dtype_find_safetensors(&t, TG_STR("F8_E4M3")));
    assert_int_equal(t, TG_DTYPE_F8_E4M3);
    assert_false(tg_dtype_find_safetensors(&t, TG_STR("f32")));
    assert_false(tg_dtype_find_gguf(&t, 36));
    bool is_removed = false;
    assert_string_equal(tg_dtype_find_foreign_gguf(36, &is_removed), "IQ4_NL_4_4");
    assert_true(is_removed);
    assert_null(tg_dtype_find_foreign_gguf(4000000000u, &is_removed));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(block_formats_have_the_values_of_gguf_py_to_the_bit),
        cmocka_unit_test(block_formats_may_lie_at_odd_addresses),
        cmocka_unit_test(every_f16_has_its_value_and_comes_back),
        cmocka_unit_test(rounding_to_f16_is_to_nearest_even),
        cmocka_unit_test(rounding_to_bf16_is_to_nearest_even),
        cmocka_unit_test(every_f8_has_its_value),
        cmocka_unit_test(integers_and_bools_become_their_number),
        cmocka_unit_test(sizes_are_checked_products_of_whole_blocks),
        cmocka_unit_test(formats_are_found_by_every_name_they_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
