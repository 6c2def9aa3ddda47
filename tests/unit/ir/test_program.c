/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "check.h"
#include "ir/io.h"
#include "unit/ir/handmade.h"

#include <math.h>

static void assert_ok(tg_status s, const tg_err *e)
{
    if (s != TG_OK) fail_msg("%s", e->msg);
}

/* A block in memory of its own, as aligned as a mapping. */
static uint8_t *print(const tg_program *p, size_t *n)
{
    tg_buf b = {0};
    tg_err e = {0};
    assert_ok(tg_program_print_block(p, &b, &e), &e);
    uint8_t *copy = tg_mem_new(b.len);
    assert_non_null(copy);
    memcpy(copy, b.ptr, b.len);
    *n = b.len;
    tg_buf_deinit(&b);
    return copy;
}

static void opening_what_was_printed_gives_the_same_program(void **state)
{
    (void)state;
    handmade h;
    size_t n, m;
    tg_arena arena = {0};
    tg_program p;
    tg_err e = {0};
    hand_make(&h);
    uint8_t *block = print(&h.program, &n);
    assert_ok(tg_program_open(&p, &arena, block, n, &e), &e);
    assert_int_equal(p.n_vocab, 39);
    assert_int_equal(p.max_length, 130);
    assert_int_equal(p.weights_bytes, h.program.weights_bytes);
    assert_memory_equal(p.kv_groups, h.program.kv_groups, sizeof p.kv_groups);
    assert_memory_equal(p.weights, h.weights, sizeof h.weights);
    assert_memory_equal(p.layers, h.layers, sizeof h.layers);
    assert_int_equal(p.n_outliers, 2);
    assert_memory_equal(p.outliers, h.outliers, sizeof h.outliers);
    for (int32_t i = 0; i < HAND_PLANS; i++) {
        assert_int_equal(p.plans[i].kind, h.plans[i].kind);
        assert_memory_equal(&p.plans[i].bucket, &h.plans[i].bucket, sizeof(tg_bucket));
        assert_memory_equal(p.plans[i].values, h.values[i], sizeof h.values[i]);
        assert_memory_equal(p.plans[i].instrs, h.instrs, sizeof h.instrs);
        assert_memory_equal(p.plans[i].segments, h.segments, sizeof h.segments);
    }
    uint8_t *again = print(&p, &m);
    assert_int_equal(n, m);
    assert_memory_equal(block, again, n);
    tg_mem_free(block);
    tg_mem_free(again);
    tg_arena_deinit(&arena);
}

static void a_weight_is_found_by_role_and_layer(void **state)
{
    (void)state;
    handmade h;
    hand_make(&h);
    for (int32_t i = 0; i < HAND_WEIGHTS; i++)
        assert_ptr_equal(tg_program_find_weight(&h.program, (tg_weight_role)h.weights[i].role, 0),
                         &h.weights[i]);
    assert_null(tg_program_find_weight(&h.program, TG_W_DOWN, 0));
    assert_null(tg_program_find_weight(&h.program, TG_W_Q, 1));
    /* Outside layers the layer does not matter. */
    assert_ptr_equal(tg_program_find_weight(&h.program, TG_W_EMBED, 7), &h.weights[0]);
}

static void the_smallest_plan_that_fits_is_found(void **state)
{
    (void)state;
    handmade h;
    hand_make(&h);
    const tg_program *p = &h.program;
    assert_ptr_equal(tg_program_find_plan(p, TG_KIND_CONTEXT, 1, 7, 1, 1), &h.plans[0]);
    assert_ptr_equal(tg_program_find_plan(p, TG_KIND_TOKEN, 2, 2, 2, 3), &h.plans[1]);
    assert_null(tg_program_find_plan(p, TG_KIND_CONTEXT, 1, 33, 1, 1));
    assert_null(tg_program_find_plan(p, TG_KIND_CONTEXT, 3, 3, 1, 1));
    assert_null(tg_program_find_plan(p, TG_KIND_TOKEN, 1, 1, 1, 4));
    assert_int_equal(tg_program_max_tokens(p, TG_KIND_SPECULATE), 8);
}

static void the_images_of_a_step_follow_from_the_bucket(void **state)
{
    (void)state;
    handmade h;
    tg_io io;
    hand_make(&h);
    tg_io_find(&io, &h.program, &h.plans[2]);
    /* 8 tokens, 2 rows, 3 pages; every part begins at a multiple of 64: 16 bytes of counts, then
     * 4 x 32 bytes by token, 12 by row, 32 by out, 1 * 2 * 3 * 4 = 24 of pages, 8 * 56 = 448 of
     * sampling, and 8 ids x 130 entries of 16 bytes. */
    assert_int_equal(io.tokens, 64);
    assert_int_equal(io.positions, 128);
    assert_int_equal(io.rope_rows, 192);
    assert_int_equal(io.token_rows, 256);
    assert_int_equal(io.row_tokens, 320);
    assert_int_equal(io.out_tokens, 384);
    assert_int_equal(io.page_tables, 448);
    assert_int_equal(io.sampling, 512);
    assert_int_equal(io.adjust, 960);
    assert_int_equal(io.n_sampled, 8);
    assert_int_equal(io.in_bytes, 960 + 8 * 130 * 16);
    assert_int_equal(io.ids, 0);
    assert_int_equal(io.logits, 64);
    assert_int_equal(io.logits_stride, 48); /* 39 rounded up to 16 */
    assert_int_equal(io.out_bytes, 64 + 8 * 48 * 4);
    tg_io_find(&io, &h.program, &h.plans[0]);
    assert_int_equal(io.n_sampled, 2);
}

static void unused_ids_come_back(void **state)
{
    (void)state;
    static const int32_t ids[] = {0, 3, 38}, falling[] = {3, 3}, beyond[] = {39};
    const struct {
        const int32_t *ids;
        int32_t n;
        bool is_right;
    } cases[] = {{ids, 3, true}, {falling, 2, false}, {beyond, 1, false}};
    for (size_t i = 0; i < TG_COUNT(cases); i++) {
        handmade h;
        size_t n;
        tg_arena arena = {0};
        tg_program p;
        tg_err e = {0};
        hand_make(&h);
        h.program.unused = cases[i].ids;
        h.program.n_unused = cases[i].n;
        uint8_t *block = print(&h.program, &n);
        tg_status s = tg_program_open(&p, &arena, block, n, &e);
        assert_int_equal(s, cases[i].is_right ? TG_OK : TG_E_CORRUPT);
        if (cases[i].is_right) assert_memory_equal(p.unused, ids, sizeof ids);
        if (!cases[i].is_right && !strstr(e.msg, "unused id")) fail_msg("%s", e.msg);
        tg_mem_free(block);
        tg_arena_deinit(&arena);
    }
}

/* One change that must be refused, and the words that say so. */
typedef struct wrong {
    const char *words;
    void (*make)(handmade *h);
} wrong;

static void w_vocab(handmade *h)
{
    h->program.n_vocab = 41;
}
static void w_length(handmade *h)
{
    h->program.max_length = 131;
}
static void w_speculation(handmade *h)
{
    h->program.speculation = 2;
}
static void w_no_speculation(handmade *h)
{
    h->program.speculation = 0;
}
static void w_batch(handmade *h)
{
    h->program.batch = 1;
}
static void w_beyond(handmade *h)
{
    h->weights[8].offset += 64;
}
static void w_beyond_tiles(handmade *h)
{
    h->weights[2].tile_stride = 1 << 20;
}
static void w_negative(handmade *h)
{
    h->weights[2].offset = -64;
}
static void w_unaligned(handmade *h)
{
    h->weights[2].offset += 4;
}
static void w_stride(handmade *h)
{
    h->weights[2].tile_stride = 1024;
}
static void w_wraps(handmade *h)
{
    h->weights[2].tile_stride = INT64_MAX / 64 * 64;
}
static void w_order(handmade *h)
{
    h->weights[4].role = TG_W_ATTN_NORM;
}
static void w_layer(handmade *h)
{
    h->weights[4].layer = 1;
}
static void w_layout(handmade *h)
{
    h->weights[4].layout = TG_LAYOUT_COUNT;
}
static void w_plain_matrix(handmade *h)
{
    h->weights[4].is_plain = 1;
    h->weights[4].layout = TG_LAYOUT_F32;
    h->weights[4].tile_stride = 0;
    h->weights[4].n_outliers = 0;
}
static void w_tiled_norm(handmade *h)
{
    h->weights[3] = (tg_weight_entry){TG_W_ATTN_NORM, 0, TG_LAYOUT_Q8_0, 0, 16, 1, 0, 1088, 0, 0};
}
static void w_wide_count(handmade *h)
{
    h->weights[4].n_outliers = 2;
}
static void w_wide_place(handmade *h)
{
    h->weights[4].first_outlier = 2;
}
static void w_wide_beyond(handmade *h)
{
    h->outliers[0] = 1;
}
static void w_wide_order(handmade *h)
{
    h->weights[4].cols = 64; /* two groups, both said to be the first */
    h->weights[4].n_outliers = 2;
}
static void w_wide_floats(handmade *h)
{
    h->weights[3].n_outliers = 1;
}
static void w_wide_differ(handmade *h)
{
    h->weights[5].n_outliers = 0;
}
static void w_head_dim(handmade *h)
{
    h->instrs[1].attrs.head_dim = 16;
}
static void w_group_heads(handmade *h)
{
    h->program.kv_groups[0].n_kv_heads = 2;
}
static void w_page(handmade *h)
{
    h->program.kv_groups[0].page_bytes = 4096;
}
static void w_kv_index(handmade *h)
{
    h->layers[0].kv_index = 1;
}
static void w_kv_group(handmade *h)
{
    h->layers[0].kv_group = 1;
}
static void w_attr_group(handmade *h)
{
    h->instrs[2].attrs.kv_group = 1;
}
static void w_window(handmade *h)
{
    h->instrs[2].attrs.window = 64;
}
static void w_scale(handmade *h)
{
    h->instrs[2].attrs.scale = (float)NAN;
}
static void w_original(handmade *h)
{
    h->program.original_length = 1;
}

static void w_original_sign(handmade *h)
{
    h->program.original_length = -1;
}

static void w_rotary(handmade *h)
{
    h->instrs[1].attrs.rotary_dim = 6;
}
static void w_eps(handmade *h)
{
    h->instrs[1].attrs.eps = -1;
}
static void w_op(handmade *h)
{
    h->instrs[3].op = TG_OP_COUNT;
}
static void w_role(handmade *h)
{
    h->instrs[3].weights[0] = TG_W_COUNT;
}
static void w_slot(handmade *h)
{
    h->instrs[4].weights[0] = TG_W_Q;
}
static void w_absent(handmade *h)
{
    h->instrs[3].weights[0] = TG_W_DOWN;
}
static void w_undefined(handmade *h)
{
    h->instrs[3].in[1] = 8;
}
static void w_input(handmade *h)
{
    h->instrs[3].in[1] = HAND_VALUES;
}
static void w_no_result(handmade *h)
{
    h->instrs[3].out = TG_NONE;
}
static void w_arena(handmade *h)
{
    h->plans[0].arena_bytes -= 64;
}
static void w_value_width(handmade *h)
{
    h->values[0][2].width = 24;
}
static void w_value_type(handmade *h)
{
    h->values[0][2].type = TG_TYPE_I32;
}
static void w_overlap(handmade *h)
{
    h->values[0][3].offset -= 64;
}
static void w_not_in_place(handmade *h)
{
    h->values[0][4].alias = TG_NONE;
    h->values[0][4].offset = h->values[0][2].offset;
}
static void w_in_place(handmade *h)
{
    h->values[0][2].offset = 0;
}
static void w_alias(handmade *h)
{
    h->values[0][4].alias = 4;
}
static void w_tokens_written(handmade *h)
{
    h->values[0][1].offset = TG_IO_TOKENS;
}
static void w_logits_read(handmade *h)
{
    h->instrs[5].in[0] = 6;
}
static void w_logits_width(handmade *h)
{
    h->values[0][6].width = 40;
}
static void w_segment(handmade *h)
{
    h->segments[2].n_instrs = 4;
}
static void w_segment_layers(handmade *h)
{
    h->segments[1].first_layer = 1;
}
static void w_layer_ref(handmade *h)
{
    h->layer_refs[0] = 1;
}
static void w_no_sample(handmade *h)
{
    h->segments[2].n_instrs = 2;
}
static void w_kind_order(handmade *h)
{
    h->plans[1].kind = TG_KIND_CONTEXT;
}
static void w_pages(handmade *h)
{
    h->plans[0].bucket.pages = 4;
}
static void w_outs(handmade *h)
{
    h->plans[0].bucket.outs = 33;
}
static void w_token_count(handmade *h)
{
    h->plans[1].bucket.tokens = 3;
}
static void w_embed_rows(handmade *h)
{
    h->program.n_embed_rows = 48;
}

static const wrong wrongs[] = {
    {"n_embed_rows is 40; it must be 41", w_vocab},
    {"rope table has 130 of 131", w_length},
    {"the bucket of 2 rows, 8 tokens", w_speculation},
    {"needs a speculation of 1", w_no_speculation},
    {"the bucket of 2 rows", w_batch},
    {"'rope_0' of layer 0", w_beyond},
    {"'head' of layer 0 at byte", w_beyond_tiles},
    {"'head' of layer 0 at byte -64", w_negative},
    {"'head' of layer 0 at byte", w_unaligned},
    {"'head' has a tile stride of 1024", w_stride},
    {"'head' of layer 0 at byte", w_wraps},
    {"weights 3 and 4 are not in order", w_order},
    {"the weight's layer is 1", w_layer},
    {"the weight's layout is 13", w_layout},
    {"weight 'q' must be in tiles", w_plain_matrix},
    {"weight 'attn_norm' must not be in tiles", w_tiled_norm},
    {"q is 16 wide, but there are 2 heads of 16", w_head_dim},
    {"KV group 0: 2 heads of 8", w_group_heads},
    {"pages of 4096 bytes", w_page},
    {"layer 0 has index 1", w_kv_index},
    {"a layer's KV group is 1", w_kv_group},
    {"kv_group is 1", w_attr_group},
    {"not those of KV group 0", w_window},
    {"the scale is not a finite number", w_scale},
    {"weight 'rope_0' is [130, 8]", w_rotary},
    {"rope table has 130 of 131 rows", w_original},
    {"original_length is -1", w_original_sign},
    {"eps is -1", w_eps},
    {"the operation is", w_op},
    {"weight slot 0 holds role", w_role},
    {"weight slot 0 holds role", w_slot},
    {"the model has no weight 'down'", w_absent},
    {"input 1 is not defined", w_undefined},
    {"input 1 is not defined", w_input},
    {"its result is value -1", w_no_result},
    {"is not inside the step's", w_arena},
    {"24", w_value_width},
    {"value 2 at byte", w_value_type},
    {"overlaps input 0", w_overlap},
    {"must be written over its first input", w_not_in_place},
    {"must not be written over its first input", w_in_place},
    {"value 4 is no alias of value 4", w_alias},
    {"value 1 at byte -1", w_tokens_written},
    {"input 0 is not defined before", w_logits_read},
    {"value 6 at byte -2", w_logits_width},
    {"segment 2 lies outside", w_segment},
    {"segment 1 lies outside", w_segment_layers},
    {"a layer reference is 1", w_layer_ref},
    {"end with a sample", w_no_sample},
    {"plans 0 and 1 are not in order", w_kind_order},
    {"and 4 pages cannot be", w_pages},
    {"33 outs", w_outs},
    {"3 tokens", w_token_count},
    {"weight 'q' of layer 0 has 2 outlier groups from entry 0; at most 1 of the", w_wide_count},
    {"has 1 outlier groups from entry 2", w_wide_place},
    {"weight 'q' of layer 0: outlier group 0 is 1, which is out of order or beyond the 1",
     w_wide_beyond},
    {"outlier group 1 is 0, which is out of order", w_wide_order},
    {"weight 'attn_norm' of layer 0 has 1 outlier groups from entry 0; at most 0", w_wide_floats},
    {"weights 'q' and 'k' of layer 0 read one input", w_wide_differ},
    {"the table has 40 rows instead of 48", w_embed_rows},
};

static void what_a_device_could_not_trust_is_refused_by_name(void **state)
{
    (void)state;
    for (size_t i = 0; i < TG_COUNT(wrongs); i++) {
        handmade h;
        size_t n;
        tg_arena arena = {0};
        tg_program p;
        tg_err e = {0};
        hand_make(&h);
        wrongs[i].make(&h);
        uint8_t *block = print(&h.program, &n);
        if (tg_program_open(&p, &arena, block, n, &e) == TG_OK || !strstr(e.msg, wrongs[i].words))
            fail_msg("row %zu ('%s') gave '%s'", i, wrongs[i].words, e.msg);
        tg_mem_free(block);
        tg_arena_deinit(&arena);
    }
}

static void a_block_cut_anywhere_is_refused(void **state)
{
    (void)state;
    handmade h;
    size_t n;
    hand_make(&h);
    uint8_t *block = print(&h.program, &n);
    for (size_t cut = 0; cut < n; cut += cut < 600 ? 1 : 37) {
        tg_arena arena = {0};
        tg_program p;
        tg_err e = {0};
        uint8_t *part = tg_mem_new(cut);
        memcpy(part, block, cut);
        assert_int_not_equal(tg_program_open(&p, &arena, part, cut, &e), TG_OK);
        assert_true(e.msg[0] != 0);
        tg_mem_free(part);
        tg_arena_deinit(&arena);
    }
    tg_mem_free(block);
}

static void a_block_of_another_version_says_so(void **state)
{
    (void)state;
    handmade h;
    size_t n;
    tg_arena arena = {0};
    tg_program p;
    tg_err e = {0};
    hand_make(&h);
    uint8_t *block = print(&h.program, &n);
    block[8] = 3;
    assert_int_equal(tg_program_open(&p, &arena, block, n, &e), TG_E_UNSUPPORTED);
    assert_string_equal(e.msg,
                        "the program has format 3, this build reads 5; export the model again");
    tg_mem_free(block);
}

/* Whatever bytes change: either refused, or every number that a device uses stays in bounds, which
 * the printers and the image walk through under the sanitizers. */
static void random_changes_never_break_the_reader(void **state)
{
    (void)state;
    handmade h;
    size_t n;
    uint64_t seed = tg_test_seed();
    int32_t n_opened = 0;
    hand_make(&h);
    uint8_t *good = print(&h.program, &n), *block = tg_mem_new(n);
    for (int i = 0; i < 2000; i++) {
        static const uint8_t special[] = {0, 1, 2, 0x7f, 0x80, 0xff};
        tg_arena arena = {0};
        tg_program p;
        tg_err e = {0};
        memcpy(block, good, n);
        for (uint64_t k = tg_test_next(&seed) % 3 + 1; k > 0; k--) {
            uint64_t r = tg_test_next(&seed);
            block[r % n] = r >> 62 ? special[(r >> 32) % sizeof special] : (uint8_t)(r >> 32);
        }
        if (tg_program_open(&p, &arena, block, n, &e) == TG_OK) {
            tg_buf text = {0};
            tg_program_print(&p, &text);
            for (int32_t k = 0; k < p.n_plans; k++)
                tg_plan_print(&p, &p.plans[k], &text);
            tg_buf_deinit(&text);
            n_opened++;
        } else {
            assert_true(e.msg[0] != 0);
        }
        tg_arena_deinit(&arena);
    }
    assert_true(n_opened > 0); /* padding and unused values may change */
    tg_mem_free(good);
    tg_mem_free(block);
}

static void a_plan_prints_places_and_layers(void **state)
{
    (void)state;
    handmade h;
    tg_buf text = {0};
    hand_make(&h);
    tg_plan_print(&h.program, &h.plans[1], &text);
    assert_string_equal(
        tg_buf_cstr(&text),
        "plan token         2 tokens, 2 sequences, 2 output rows, 3 pages: step 384 bytes, "
        "inputs 4.7 KiB, outputs 448 bytes\n"
        " segment 0\n"
        "  v1 [2, 16] @0 = embed v0 (embed=embed) scale=1\n"
        " segment 1: layers 0\n"
        "  v2 [2, 16] @128 = qkv v1 (q=q, k=k, v=v, norm=attn_norm, rope=rope_0) eps=1e-05 "
        "n_heads=2 n_kv_heads=1 head_dim=8 rotary_dim=8 kv_group=0\n"
        "  v3 [2, 16] @256 = attention v2 scale=0.25 n_heads=2 n_kv_heads=1 head_dim=8 kv_group=0\n"
        "  v4 [2, 16] @0 over v1 = matmul_add v1, v3 (w=o)\n"
        " segment 2\n"
        "  v5 [2, 16] @128 = rows v1\n"
        "  v6 [2, 39] logits = matmul v5 (w=embed, norm=out_norm) eps=1e-05\n"
        "  v7 [2, 1] ids = sample v6\n");
    tg_buf_deinit(&text);
}

/* The fuzzer starts from today's format. TG_BLESS=1 writes the seed again. */
static void the_fuzz_seed_is_the_program_of_these_tests(void **state)
{
    (void)state;
    static const char path[] = "tests/fuzz/seeds/program/handmade";
    handmade h;
    tg_buf want = {0}, got = {0};
    tg_err e = {0};
    hand_make(&h);
    assert_ok(tg_program_print_block(&h.program, &got, &e), &e);
    if (getenv("TG_BLESS")) assert_ok(tg_file_save(path, tg_buf_str(&got), &e), &e);
    assert_ok(tg_file_load(&want, path, 1 << 20, &e), &e);
    assert_true(tg_str_is_equal(tg_buf_str(&want), tg_buf_str(&got)));
    tg_buf_deinit(&want);
    tg_buf_deinit(&got);
}

static void a_page_has_the_bytes_of_its_kv_type(void **state)
{
    (void)state;
    tg_kv_group g = {.n_layers = 2, .n_kv_heads = 3, .head_dim = 64};
    const int64_t numbers =
        2LL * 3 * 64 * 64 * 2; /* layers, heads, dimensions, positions, K and V */
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_F32), numbers * 4);
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_F16), numbers * 2);
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_BF16), numbers * 2);
    /* A byte each, and an f16 per 32 of K and, in as much room, per head of V. */
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_Q8), numbers + numbers / 32 * 2);
    /* Two bytes each, and in each half a float per position and 64 dimensions begun. */
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_Q16), numbers * 2 + numbers / 64 * 4);
    g.head_dim = 72;
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_Q16), 2LL * 3 * 64 * 2 * (72 * 2 + 2 * 4));
    g.head_dim = 24;
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_Q8), -1);
    assert_int_equal(tg_kv_page_bytes(&g, TG_KV_Q16), 2LL * 3 * 64 * 2 * (24 * 2 + 4));
    assert_string_equal(tg_kv_type_name(TG_KV_Q8), "q8");
    assert_string_equal(tg_kv_type_name(TG_KV_Q16), "q16");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_page_has_the_bytes_of_its_kv_type),
        cmocka_unit_test(opening_what_was_printed_gives_the_same_program),
        cmocka_unit_test(a_weight_is_found_by_role_and_layer),
        cmocka_unit_test(the_smallest_plan_that_fits_is_found),
        cmocka_unit_test(the_images_of_a_step_follow_from_the_bucket),
        cmocka_unit_test(unused_ids_come_back),
        cmocka_unit_test(what_a_device_could_not_trust_is_refused_by_name),
        cmocka_unit_test(a_block_cut_anywhere_is_refused),
        cmocka_unit_test(a_block_of_another_version_says_so),
        cmocka_unit_test(random_changes_never_break_the_reader),
        cmocka_unit_test(a_plan_prints_places_and_layers),
        cmocka_unit_test(the_fuzz_seed_is_the_program_of_these_tests),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
