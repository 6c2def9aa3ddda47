/* SPDX-License-Identifier: Apache-2.0
 * One GGUF file at a time; split files are in test_checkpoint.c. Files are written by hand here,
 * after the format's description in the ggml repository. */
#include "base/os.h"
#include "format/gguf.h"
#include "format_files.h"

#include <math.h>

static const uint64_t dims_32x2[] = {32, 2}, dims_4[] = {4};

/* Parses, wants a failure with these words, and checks that it took neither long nor much memory.
 * */
static void assert_refused(tg_buf *b, tg_status status, const char *words)
{
    tg_gguf g;
    tg_arena a = {0};
    tg_err e = {0};
    int64_t start = tg_time_ns();
    /* At an unmapped page, so that reading on is a crash. */
    uint8_t *bytes = tg_test_guarded(b->len);
    if (b->len) memcpy(bytes, b->ptr, b->len);
    assert_int_equal(tg_gguf_parse(&g, &a, bytes, b->len, "x.gguf", &e), status);
    assert_int_equal(e.status, status);
    assert_memory_equal(e.msg, "x.gguf: ", 8);
    assert_says(&e, words);
    assert_true(a.n_bytes <= 64 * b->len + 4096);
    assert_true(tg_time_ns() - start < 1000000000);
    tg_arena_deinit(&a);
    tg_buf_deinit(b);
}

static void parse(tg_gguf *g, tg_arena *a, const tg_buf *b)
{
    tg_err e = {0};
    if (tg_gguf_parse(g, a, (const uint8_t *)b->ptr, b->len, "x.gguf", &e) != TG_OK)
        fail_msg("%s", e.msg);
}

static void a_small_file_is_read_as_it_was_written(void **state)
{
    (void)state;
    for (uint32_t version = 2; version <= 3; version++) {
        tg_buf b = {0};
        tg_arena a = {0};
        tg_gguf g;
        put_header(&b, version, 2, 3);
        put_kv_str(&b, "general.architecture", "llama");
        put_kv_u32(&b, "llama.block_count", 7);
        put_array(&b, "names", KV_STRING, 3);
        put_str(&b, "one");
        put_str(&b, "");
        put_str(&b, "three");
        put_tensor(&b, "w", 2, dims_32x2, GGUF_Q4_0, 0);
        put_tensor(&b, "v", 1, dims_4, GGUF_F32, 64);
        put_padding(&b, 32);
        size_t start = b.len;
        put_zeros(&b, 64 + 16);
        parse(&g, &a, &b);

        assert_int_equal(g.version, version);
        assert_int_equal(g.n_kvs, 3);
        assert_int_equal(g.n_tensors, 2);
        const tg_tensor *w = &g.tensors[0], *v = &g.tensors[1];
        assert_true(tg_str_is(w->name, "w"));
        assert_int_equal(w->dtype, TG_DTYPE_Q4_0);
        assert_int_equal(w->n_dims, 2);
        assert_int_equal(w->dims[0], 2); /* rows first: the file has them last */
        assert_int_equal(w->dims[1], 32);
        assert_int_equal(w->n_bytes, 36);
        assert_ptr_equal(w->data, b.ptr + start);
        assert_ptr_equal(v->data, b.ptr + start + 64);
        assert_int_equal(v->n_bytes, 16);

        tg_str *names;
        int64_t n;
        tg_err e = {0};
        assert_int_equal(tg_gguf_get_strs(&g, "names", &a, &names, &n, NULL, &e), TG_OK);
        assert_int_equal(n, 3);
        assert_true(tg_str_is(names[0], "one") && names[1].len == 0 &&
                    tg_str_is(names[2], "three"));
        tg_arena_deinit(&a);
        tg_buf_deinit(&b);
    }
}

static void numbers_of_every_type_are_read(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    tg_err e = {0};
    int64_t i = 0;
    double d = 0;
    bool is = false;
    float f32 = 0.1f;
    double f64 = -2.5;
    put_header(&b, 3, 0, 9);
    put_key(&b, "u8", KV_U8), put_u8(&b, 200);
    put_key(&b, "i8", KV_I8), put_u8(&b, 0x80);
    put_key(&b, "i16", KV_I16), put_u16(&b, 0xfffe);
    put_key(&b, "i32", KV_I32), put_u32(&b, 0xffffffffu);
    put_key(&b, "u64", KV_U64), put_u64(&b, UINT64_MAX);
    put_key(&b, "i64", KV_I64), put_u64(&b, (uint64_t)INT64_MIN);
    put_key(&b, "f32", KV_F32), put(&b, &f32, 4);
    put_key(&b, "f64", KV_F64), put(&b, &f64, 8);
    put_key(&b, "yes", KV_BOOL), put_u8(&b, 1);
    parse(&g, &a, &b);
    assert_int_equal(tg_gguf_get_i64(&g, "u8", &i, NULL, &e), TG_OK);
    assert_int_equal(i, 200);
    assert_int_equal(tg_gguf_get_i64(&g, "i8", &i, NULL, &e), TG_OK);
    assert_int_equal(i, -128);
    assert_int_equal(tg_gguf_get_i64(&g, "i16", &i, NULL, &e), TG_OK);
    assert_int_equal(i, -2);
    assert_int_equal(tg_gguf_get_i64(&g, "i32", &i, NULL, &e), TG_OK);
    assert_int_equal(i, -1);
    assert_int_equal(tg_gguf_get_i64(&g, "i64", &i, NULL, &e), TG_OK);
    assert_true(i == INT64_MIN);
    assert_int_equal(tg_gguf_get_f64(&g, "f32", &d, NULL, &e), TG_OK);
    assert_true(d == (double)0.1f);
    assert_int_equal(tg_gguf_get_f64(&g, "f64", &d, NULL, &e), TG_OK);
    assert_true(d == -2.5);
    assert_int_equal(tg_gguf_get_f64(&g, "u8", &d, NULL, &e), TG_OK);
    assert_true(d == 200);
    assert_int_equal(tg_gguf_get_bool(&g, "yes", &is, NULL, &e), TG_OK);
    assert_true(is);

    assert_int_equal(tg_gguf_get_i64(&g, "u64", &i, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "key 'u64' is u64 where an integer of at most 63 bits is needed");
    e = (tg_err){0};
    assert_int_equal(tg_gguf_get_i64(&g, "f32", &i, NULL, &e), TG_E_CORRUPT);
    e = (tg_err){0};
    assert_int_equal(tg_gguf_get_i64(&g, "yes", &i, NULL, &e), TG_E_CORRUPT);
    e = (tg_err){0};
    assert_int_equal(tg_gguf_get_i64(&g, "absent", &i, &is, &e), TG_OK);
    assert_false(is);
    assert_int_equal(tg_gguf_get_i64(&g, "i6", &i, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "x.gguf: key 'i6' is missing; the nearest is 'i");
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

/* C13: what a strict reader wrongly refuses. */
static void order_gaps_and_a_last_tensor_without_padding_are_fine(void **state)
{
    (void)state;
    static const uint64_t dims_256[] = {256};
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    begin_log();
    put_header(&b, 3, 3, 0);
    put_tensor(&b, "last", 1, dims_256, GGUF_Q5_K, 256); /* 176 bytes, no multiple of 32 */
    put_tensor(&b, "first", 1, dims_4, GGUF_F32, 0);
    put_tensor(&b, "middle", 1, dims_4, GGUF_F32, 96);
    put_padding(&b, 32);
    put_zeros(&b, 256 + 176);
    parse(&g, &a, &b);
    assert_ptr_equal((const char *)g.tensors[0].data + 176, b.ptr + b.len);
    assert_string_equal(test_log, "");
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

static void another_alignment_moves_the_tensors(void **state)
{
    (void)state;
    for (uint32_t align = 1; align <= 4096; align *= 2) {
        tg_buf b = {0};
        tg_arena a = {0};
        tg_gguf g;
        put_header(&b, 3, 1, 1);
        put_kv_u32(&b, "general.alignment", align);
        put_tensor(&b, "t", 1, dims_4, GGUF_F32, align);
        put_padding(&b, align);
        size_t start = b.len;
        put_zeros(&b, align + 16);
        parse(&g, &a, &b);
        assert_ptr_equal(g.tensors[0].data, b.ptr + start + align);
        tg_arena_deinit(&a);
        tg_buf_deinit(&b);
    }
}

static void a_scalar_and_an_empty_tensor_have_their_sizes(void **state)
{
    (void)state;
    static const uint64_t empty[] = {32, 0};
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "scalar", 0, NULL, GGUF_F32, 0);
    put_tensor(&b, "empty", 2, empty, GGUF_Q4_0, 32);
    put_padding(&b, 32);
    put_zeros(&b, 4);
    parse(&g, &a, &b);
    assert_int_equal(g.tensors[0].n_bytes, 4);
    assert_int_equal(tg_tensor_n_elems(&g.tensors[0]), 1);
    assert_int_equal(g.tensors[1].n_bytes, 0);
    assert_int_equal(tg_tensor_n_elems(&g.tensors[1]), 0);
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

static void other_files_are_called_what_they_are(void **state)
{
    (void)state;
    tg_buf b = {0};
    assert_refused(&b, TG_E_CORRUPT, "is empty");
    put(&b, "GGU", 3);
    assert_refused(&b, TG_E_CORRUPT, "does not begin with 'GGUF'");
    put(&b, "tjgg....", 8);
    assert_refused(&b, TG_E_CORRUPT, "old ggml format");
    put(&b, "FUGG....", 8);
    assert_refused(&b, TG_E_CORRUPT, "big-endian");
    put(&b, "PK\3\4....", 8);
    assert_refused(&b, TG_E_CORRUPT, "zip file");
    put(&b, "version https://git-lfs.github.com/spec/v1", 42);
    assert_refused(&b, TG_E_CORRUPT, "Git LFS pointer");
}

/* C44 */
static void versions_other_than_two_and_three_are_refused(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_header(&b, 1, 0, 0);
    assert_refused(&b, TG_E_UNSUPPORTED, "version 1");
    put_header(&b, 4, 0, 0);
    assert_refused(&b, TG_E_UNSUPPORTED, "version 4; this program reads versions 2 and 3");
    put_header(&b, 0, 0, 0);
    assert_refused(&b, TG_E_UNSUPPORTED, "version 0");
    put_header(&b, 0x03000000u, 0, 0);
    assert_refused(&b, TG_E_UNSUPPORTED, "big-endian");
}

/* C01: 2^42 + 1 times 2^22 wraps 64 bits to 2^22; with 4 bytes each, a quarter of that wraps too.
 * */
static void products_of_dimensions_do_not_wrap(void **state)
{
    (void)state;
    static const uint64_t wraps[] = {((uint64_t)1 << 42) + 1, (uint64_t)1 << 22, 1, 1},
                          bytes_wrap[] = {(uint64_t)1 << 31, (uint64_t)1 << 31},
                          big[] = {(uint64_t)1 << 63};
    tg_buf b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 4, wraps, GGUF_F32, 0);
    put_padding(&b, 32), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT, "tensor 'w' of f32 [1, 1, 4194304, 4398046511105] needs more");
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 2, bytes_wrap, GGUF_F32, 0); /* 2^62 elements fit, 2^64 bytes do not */
    put_padding(&b, 32), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT, "tensor 'w' of f32 [2147483648, 2147483648] needs more");
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, big, GGUF_F32, 0);
    put_padding(&b, 32), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT, "tensor 'w' has a dimension of 9223372036854775808");
}

/* C03: the small file that made others divide by zero; here it is an empty tensor. */
static void a_zero_dimension_divides_nothing(void **state)
{
    (void)state;
    static const uint64_t dims[] = {4, 0}, zero_first[] = {0, 4};
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "a", 2, dims, GGUF_F32, 0);
    put_tensor(&b, "b", 2, zero_first, GGUF_Q8_0, 0);
    parse(&g, &a, &b);
    assert_int_equal(g.tensors[0].n_bytes + g.tensors[1].n_bytes, 0);
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

/* C04 */
static void more_than_four_dimensions_are_refused(void **state)
{
    (void)state;
    static const uint32_t counts[] = {5, 1000000, 0xffffffffu};
    for (size_t i = 0; i < TG_COUNT(counts); i++) {
        tg_buf b = {0};
        put_header(&b, 3, 1, 0);
        put_str(&b, "w");
        put_u32(&b, counts[i]);
        put_zeros(&b, 128);
        assert_refused(&b, TG_E_CORRUPT, "dimensions; GGUF allows 4");
    }
}

/* C06 */
static void odd_alignments_are_refused(void **state)
{
    (void)state;
    static const uint32_t values[] = {0, 3, 1u << 30, 0xffffffffu, 48};
    for (size_t i = 0; i < TG_COUNT(values); i++) {
        tg_buf b = {0};
        put_header(&b, 3, 0, 1);
        put_kv_u32(&b, "general.alignment", values[i]);
        assert_refused(&b, TG_E_CORRUPT, "not a power of two up to");
    }
    tg_buf b = {0};
    put_header(&b, 3, 0, 1);
    put_key(&b, "general.alignment", KV_I32), put_u32(&b, 32);
    assert_refused(&b, TG_E_CORRUPT, "key 'general.alignment' is i32 where u32 is needed");
    put_header(&b, 3, 0, 1);
    put_key(&b, "general.alignment", KV_U64), put_u64(&b, 32);
    assert_refused(&b, TG_E_CORRUPT, "is u64 where u32 is needed");
    put_header(&b, 3, 0, 1);
    put_array(&b, "general.alignment", KV_U32, 1), put_u32(&b, 32);
    assert_refused(&b, TG_E_CORRUPT, "is an array of u32 where u32 is needed");
}

/* C07 */
static void lengths_beyond_the_file_are_refused(void **state)
{
    (void)state;
    static const uint64_t lengths[] = {0xffffffffffffu, UINT64_MAX, UINT64_MAX - 31, 17};
    for (size_t i = 0; i < TG_COUNT(lengths); i++) {
        tg_buf b = {0};
        put_header(&b, 3, 0, 1);
        put_u64(&b, lengths[i]);
        put_zeros(&b, 16);
        assert_refused(&b, TG_E_CORRUPT, "truncated");
    }
}

static void counts_beyond_the_file_are_refused(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_header(&b, 3, (uint64_t)1 << 60, 0);
    assert_refused(&b, TG_E_CORRUPT, "claims 1152921504606846976 tensors");
    put_header(&b, 3, 0, UINT64_MAX);
    assert_refused(&b, TG_E_CORRUPT, "claims 18446744073709551615 keys");
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "only one", 1, dims_4, GGUF_F32, 0);
    assert_refused(&b, TG_E_CORRUPT, "truncated");
}

/* The key in which a file ends is not the one that is wrong. */
static void a_file_cut_off_in_a_key_blames_no_key(void **state)
{
    (void)state;
    static const size_t kept[] = {24 + 20, 24 + 8 + 21 + 4 + 12 + 30, 24 + 8 + 21 + 4 + 12 + 83};
    for (size_t i = 0; i < TG_COUNT(kept); i++) {
        tg_buf b = {0};
        put_header(&b, 3, 0, 1);
        put_array(&b, "tokenizer.ggml.merges", KV_STRING, 10);
        for (int k = 0; k < 10; k++)
            put_str(&b, "a b");
        b.len = kept[i];
        tg_gguf g;
        tg_arena a = {0};
        tg_err e = {0};
        assert_int_equal(tg_gguf_parse(&g, &a, (uint8_t *)b.ptr, b.len, "x.gguf", &e),
                         TG_E_CORRUPT);
        assert_says(&e, "truncated or damaged; fetch it again");
        if (strstr(e.msg, "merges")) fail_msg("%s", e.msg);
        tg_arena_deinit(&a);
        tg_buf_deinit(&b);
    }
}

/* C09 */
static void arrays_are_bounded_by_the_bytes_left(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", KV_ARRAY, 1), put_zeros(&b, 16);
    assert_refused(&b, TG_E_UNSUPPORTED, "key 'k': it is an array of arrays");
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", 99, 1), put_zeros(&b, 16);
    assert_refused(&b, TG_E_CORRUPT, "key 'k': its value type 99");
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", KV_F64, ((uint64_t)1 << 61) + 1), put_zeros(&b, 64); /* times 8 wraps to 8 */
    assert_refused(&b, TG_E_CORRUPT, "values of type f64 cannot fit in the 64 bytes");
    put_header(&b, 3, 0, 1);
    put_array(&b, "k", KV_STRING, (uint64_t)1 << 40), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT, "an array of 1099511627776 strings cannot fit");
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", 13), put_zeros(&b, 16);
    assert_refused(&b, TG_E_CORRUPT, "key 'k': its value type 13");
    put_header(&b, 3, 0, 1);
    put_key(&b, "k", KV_BOOL), put_u8(&b, 2);
    assert_refused(&b, TG_E_CORRUPT, "key 'k': a bool has the value 2");
}

/* C10 */
static void tensor_types_we_do_not_read_are_named(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        tg_status status;
        const char *words;
    } cases[] = {
        {36, TG_E_UNSUPPORTED, "type 36 (IQ4_NL_4_4), which was removed from GGUF: convert"},
        {4, TG_E_UNSUPPORTED, "type 4 (Q4_2), which was removed"},
        {16, TG_E_UNSUPPORTED, "type 16 (IQ2_XXS), which this program does not read"},
        {1000, TG_E_CORRUPT, "type 1000, a number that GGUF never gave out"},
        {0xffffffffu, TG_E_CORRUPT, "type 4294967295"},
    };
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        tg_buf b = {0};
        put_header(&b, 3, 1, 0);
        put_tensor(&b, "blk.0.w", 1, dims_4, cases[i].type, 0);
        put_padding(&b, 32), put_zeros(&b, 64);
        assert_refused(&b, cases[i].status, cases[i].words);
    }
}

static void rows_that_are_no_whole_blocks_are_refused(void **state)
{
    (void)state;
    static const uint64_t dims[] = {33, 32};
    tg_buf b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 2, dims, GGUF_Q4_0, 0);
    put_padding(&b, 32), put_zeros(&b, 1024);
    assert_refused(&b, TG_E_CORRUPT, "tensor 'w' has rows of 33 elements");
}

static void tensors_outside_the_file_are_refused(void **state)
{
    (void)state;
    static const uint64_t offsets[] = {32, 64, (uint64_t)1 << 63, UINT64_MAX - 31};
    for (size_t i = 0; i < TG_COUNT(offsets); i++) {
        tg_buf b = {0};
        put_header(&b, 3, 1, 0);
        put_tensor(&b, "w", 1, dims_4, GGUF_F32, offsets[i]);
        put_padding(&b, 32), put_zeros(&b, 32 + 15);
        assert_refused(&b, TG_E_CORRUPT, "tensor 'w' needs 16 bytes at offset");
    }
    tg_buf b = {0};
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, dims_4, GGUF_F32, 8);
    put_padding(&b, 32), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT, "offset 8, which is no multiple of the alignment 32");
}

static void tensors_that_share_bytes_are_refused(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "w", 2, dims_32x2, GGUF_Q4_0, 0); /* 36 bytes */
    put_tensor(&b, "v", 1, dims_4, GGUF_F32, 32);
    put_padding(&b, 32), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT,
                   "tensor 'v' begins at offset 32, inside tensor 'w', which ends at 36");
}

static void names_are_unique_and_printable(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_header(&b, 3, 0, 2);
    put_kv_u32(&b, "twice", 1);
    put_kv_u32(&b, "twice", 1);
    assert_refused(&b, TG_E_CORRUPT, "key 'twice' is there twice");
    put_header(&b, 3, 2, 0);
    put_tensor(&b, "w", 1, dims_4, GGUF_F32, 0);
    put_tensor(&b, "w", 1, dims_4, GGUF_F32, 32);
    put_padding(&b, 32), put_zeros(&b, 64);
    assert_refused(&b, TG_E_CORRUPT, "tensor 'w' is there twice");
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "\x1b[2J", 1);
    assert_refused(&b, TG_E_CORRUPT, "control characters");
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "\xff", 1);
    assert_refused(&b, TG_E_CORRUPT, "not UTF-8");
    put_header(&b, 3, 0, 1);
    put_kv_u32(&b, "", 1);
    assert_refused(&b, TG_E_CORRUPT, "is empty");
}

/* C15: two whole files in one. */
static void a_second_file_behind_the_first_is_seen(void **state)
{
    (void)state;
    for (int is_padded = 0; is_padded < 2; is_padded++) {
        tg_buf b = {0};
        put_header(&b, 3, 1, 0);
        put_tensor(&b, "w", 1, dims_4, GGUF_F32, 0);
        put_padding(&b, 32), put_zeros(&b, is_padded ? 32 : 16);
        put_header(&b, 3, 0, 0);
        assert_refused(&b, TG_E_CORRUPT, "a second GGUF file begins at byte");
    }
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    begin_log();
    put_header(&b, 3, 1, 0);
    put_tensor(&b, "w", 1, dims_4, GGUF_F32, 0);
    put_padding(&b, 32), put_zeros(&b, 32 + 100);
    parse(&g, &a, &b);
    assert_non_null(strstr(test_log, "100 bytes behind the last tensor are not used"));
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

/* Every prefix of a good file is refused, and none is read beyond. */
static void a_file_cut_anywhere_is_refused(void **state)
{
    (void)state;
    tg_buf b = {0};
    put_header(&b, 3, 2, 3);
    put_kv_str(&b, "general.architecture", "llama");
    put_array(&b, "tokens", KV_STRING, 2);
    put_str(&b, "a"), put_str(&b, "bc");
    put_array(&b, "scores", KV_F32, 2);
    put_zeros(&b, 8);
    put_tensor(&b, "w", 2, dims_32x2, GGUF_Q4_0, 0);
    put_tensor(&b, "v", 1, dims_4, GGUF_F32, 64);
    put_padding(&b, 32), put_zeros(&b, 64 + 16);
    uint8_t *end = (uint8_t *)tg_test_guarded(b.len) + b.len;
    for (size_t n = 0; n <= b.len; n++) {
        tg_arena a = {0};
        tg_gguf g;
        tg_err e = {0};
        memcpy(end - n, b.ptr, n);
        tg_status want = n == b.len ? TG_OK : TG_E_CORRUPT;
        if (tg_gguf_parse(&g, &a, end - n, n, "cut", &e) != want)
            fail_msg("%zu of %zu bytes: %s", n, b.len, e.msg);
        tg_arena_deinit(&a);
    }
    tg_buf_deinit(&b);
}

/* C17 */
static void a_token_id_is_absent_or_inside_the_vocabulary(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    tg_err e = {0};
    int32_t id = 0;
    put_header(&b, 3, 0, 3);
    put_kv_u32(&b, "good", 1);
    put_kv_u32(&b, "size", 2);
    put_kv_u32(&b, "huge", 0xffffffffu);
    parse(&g, &a, &b);
    assert_int_equal(tg_gguf_get_token_id(&g, "absent", 2, &id, &e), TG_OK);
    assert_int_equal(id, -1);
    assert_int_equal(tg_gguf_get_token_id(&g, "good", 2, &id, &e), TG_OK);
    assert_int_equal(id, 1);
    assert_int_equal(tg_gguf_get_token_id(&g, "size", 2, &id, &e), TG_E_CORRUPT);
    assert_says(&e, "key 'size' is token 2 and the vocabulary has 2");
    e = (tg_err){0};
    assert_int_equal(tg_gguf_get_token_id(&g, "huge", 2, &id, &e), TG_E_CORRUPT);
    assert_int_equal(id, -1);
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

static void refused_memory_is_an_error_and_no_crash(void **state)
{
    (void)state;
    int64_t before = tg_mem_n_alive();
    tg_buf b = {0};
    put_header(&b, 3, 1, 1);
    put_kv_str(&b, "k", "v");
    put_tensor(&b, "w", 1, dims_4, GGUF_F32, 0);
    put_padding(&b, 32), put_zeros(&b, 32);
    tg_status s = TG_E_NOMEM;
    for (int64_t n = 0; s == TG_E_NOMEM && n < 100; n++) {
        tg_arena a = {0};
        tg_gguf g;
        tg_mem_fail_after(n);
        s = tg_gguf_parse(&g, &a, (const uint8_t *)b.ptr, b.len, "x", NULL);
        tg_mem_fail_after(-1);
        tg_arena_deinit(&a);
    }
    assert_int_equal(s, TG_OK);
    tg_buf_deinit(&b);
    assert_int_equal(tg_mem_n_alive(), before);
}

/* Another process changes a mapped file between the check and the use. */
static void a_string_that_grows_after_the_check_is_an_error(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_arena a = {0};
    tg_gguf g;
    tg_str *names;
    int64_t n;
    tg_err e = {0};
    put_header(&b, 3, 0, 1);
    put_array(&b, "names", 8, 2);
    size_t at = b.len;
    put_str(&b, "one");
    put_str(&b, "two");
    put_padding(&b, 32);
    assert_int_equal(tg_gguf_parse(&g, &a, (const uint8_t *)b.ptr, b.len, "t", &e), TG_OK);
    b.ptr[at + 5] = 1; /* 3 becomes 3 + 2^40 */
    assert_int_equal(tg_gguf_get_strs(&g, "names", &a, &names, &n, NULL, &e), TG_E_CORRUPT);
    assert_says(&e, "key 'names' was changed while it was being read");
    tg_arena_deinit(&a);
    tg_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_small_file_is_read_as_it_was_written),
        cmocka_unit_test(numbers_of_every_type_are_read),
        cmocka_unit_test(order_gaps_and_a_last_tensor_without_padding_are_fine),
        cmocka_unit_test(another_alignment_moves_the_tensors),
        cmocka_unit_test(a_scalar_and_an_empty_tensor_have_their_sizes),
        cmocka_unit_test(other_files_are_called_what_they_are),
        cmocka_unit_test(versions_other_than_two_and_three_are_refused),
        cmocka_unit_test(products_of_dimensions_do_not_wrap),
        cmocka_unit_test(a_zero_dimension_divides_nothing),
        cmocka_unit_test(more_than_four_dimensions_are_refused),
        cmocka_unit_test(odd_alignments_are_refused),
        cmocka_unit_test(lengths_beyond_the_file_are_refused),
        cmocka_unit_test(counts_beyond_the_file_are_refused),
        cmocka_unit_test(a_file_cut_off_in_a_key_blames_no_key),
        cmocka_unit_test(arrays_are_bounded_by_the_bytes_left),
        cmocka_unit_test(tensor_types_we_do_not_read_are_named),
        cmocka_unit_test(rows_that_are_no_whole_blocks_are_refused),
        cmocka_unit_test(tensors_outside_the_file_are_refused),
        cmocka_unit_test(tensors_that_share_bytes_are_refused),
        cmocka_unit_test(names_are_unique_and_printable),
        cmocka_unit_test(a_second_file_behind_the_first_is_seen),
        cmocka_unit_test(a_file_cut_anywhere_is_refused),
        cmocka_unit_test(a_token_id_is_absent_or_inside_the_vocabulary),
        cmocka_unit_test(a_string_that_grows_after_the_check_is_an_error),
        cmocka_unit_test(refused_memory_is_an_error_and_no_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
