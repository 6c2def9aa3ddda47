/* SPDX-License-Identifier: Apache-2.0 Rotary tables against transformers (tests/golden/rope.txt,
 * made by tools/goldens/goldens-model), read from the same config.json through the same door as a
 * checkpoint's.
 *
 * torch computes powers and cosines in float32 with a unit of error that differs between
 * processors, we in double rounded once; so frequencies may differ by 2 units, and the tables by
 * what that does to an angle. */
#include "check.h"
#include "format_files.h"
#include "model/keys.h"

#include <math.h>
#include <stdio.h>

enum { MAX_DIM = 256 };

static float read_hex(char **at)
{
    return tg_f32_from_bits((uint32_t)strtoul(*at, at, 16));
}

/* The spec that config.json asks for; lists stay in the arena. */
static tg_rope_spec read_spec(const char *text, tg_arena *a)
{
    tg_err e = {0};
    json_t *root = NULL;
    tg_config *c = NULL;
    tg_rope_spec spec;
    tg_hparams *h = TG_NEW(tg_hparams);
    tg_rope_keys keys = {
        .object = "rope_parameters", .theta_key = "rope_theta", .theta_absent = 1e4};
    int64_t n = 0;
    if (tg_json_parse(&root, tg_str_from_cstr(text), "golden", &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_config_new_json(&c, root, "golden", &e), TG_OK);
    assert_int_equal(tg_config_get_i64(c, "head_dim", &n, NULL, &e), TG_OK);
    h->head_dim = (int32_t)n;
    assert_int_equal(tg_config_get_i64(c, "max_position_embeddings", &n, NULL, &e), TG_OK);
    h->max_positions = (int32_t)n;
    if (tg_rope_read_hf(&spec, h, c, &keys, a, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_mem_free(h);
    tg_config_free(c);
    json_decref(root);
    return spec;
}

static void check_near(float is, float want, double bound, const char *what, int32_t i)
{
    if (!(fabs((double)is - (double)want) <= bound))
        fail_msg("%s %d is %.9g, transformers has %.9g", what, i, (double)is, (double)want);
}

static void tables_are_those_of_transformers(void **state)
{
    (void)state;
    static char line[1 << 16];
    float freqs[MAX_DIM / 2] = {0}, row[MAX_DIM];
    char name[128] = "";
    int32_t length = 0, n_checked = 0;
    tg_rope_spec spec = {0};
    tg_arena a = {0};
    FILE *f = fopen("tests/golden/rope.txt", "r");
    if (!f) fail_msg("tests/golden/rope.txt is missing; run from the repository's root");
    while (fgets(line, sizeof line, f)) {
        char *at = line + 7;
        if (strncmp(line, "case ", 5) == 0) snprintf(name, sizeof name, "%.100s", line + 5);
        if (strncmp(line, "config ", 7) == 0) spec = read_spec(at, &a);
        if (strncmp(line, "length ", 7) == 0) length = atoi(at);
        if (strncmp(line, "factor ", 7) == 0)
            check_near((float)spec.attention_factor, read_hex(&at), 0, name, 0);
        if (strncmp(line, "freq ", 5) == 0) {
            at = line + 5;
            tg_rope_freqs(&spec, length, freqs);
            for (int32_t i = 0; i < spec.rotary_dim / 2; i++) {
                float want = read_hex(&at);
                check_near(freqs[i], want, (double)want * 0x1p-22, name, i);
            }
        }
        if (strncmp(line, "cos ", 4) != 0 && strncmp(line, "sin ", 4) != 0) continue;
        at = line + 4;
        int32_t position = (int32_t)strtol(at, &at, 10), half = spec.rotary_dim / 2;
        tg_rope_fill(&spec, 0, length, position, 1, row);
        for (int32_t i = 0; i < half; i++) {
            double bound = 0x1p-22 + (double)position * (double)freqs[i] * 0x1p-22;
            check_near(row[line[0] == 's' ? half + i : i], read_hex(&at), bound, name, i);
        }
        n_checked++;
    }
    fclose(f);
    tg_arena_deinit(&a);
    assert_true(n_checked > 200);
}

/* Llama 3.2 1B, worked out by hand from the formula: pairs 0-14 are left alone, three are blended,
 * the rest divided by 32. */
static void llama_3_scaling_has_its_known_boundaries(void **state)
{
    (void)state;
    tg_rope_spec plain = {.rotary_dim = 64, .theta = 500000, .factor = 1, .attention_factor = 1};
    tg_rope_spec scaled = {.kind = TG_ROPE_LLAMA3,
                           .rotary_dim = 64,
                           .theta = 500000,
                           .factor = 32,
                           .low_freq_factor = 1,
                           .high_freq_factor = 4,
                           .attention_factor = 1,
                           .original_max_positions = 8192};
    static const double weights[] = {0.5928, 0.2813, 0.0745};
    float a[32], b[32];
    tg_rope_freqs(&plain, 4096, a);
    tg_rope_freqs(&scaled, 4096, b);
    for (int i = 0; i < 32; i++) {
        double ratio = (double)b[i] / (double)a[i];
        if (i < 15)
            assert_true(b[i] == a[i]);
        else if (i < 18)
            assert_true(fabs(ratio - ((1 - weights[i - 15]) / 32 + weights[i - 15])) < 1e-4);
        else
            assert_true(b[i] == a[i] / 32);
    }
}

static void a_table_is_the_same_in_any_pieces(void **state)
{
    (void)state;
    enum { LENGTH = 300, DIM = 24 };
    static float whole[LENGTH * DIM], pieces[LENGTH * DIM];
    tg_rope_spec s = {.rotary_dim = DIM, .theta = 1e4, .factor = 1, .attention_factor = 1};
    tg_rope_fill(&s, 0, LENGTH, 0, LENGTH, whole);
    for (int32_t first = 0, n = 1; first < LENGTH; first += n, n = TG_MIN(3 * n, LENGTH - first))
        tg_rope_fill(&s, 0, LENGTH, first, n, pieces + first * DIM);
    assert_memory_equal(whole, pieces, sizeof whole);
    for (int i = 0; i < DIM / 2; i++) {
        assert_true(whole[i] == 1);
        assert_true(whole[DIM / 2 + i] == 0);
    }
}

static void divisors_of_a_gguf_file_divide_the_frequencies(void **state)
{
    (void)state;
    static const double divisors[4] = {1, 2, 4, 32};
    tg_rope_spec s = {.rotary_dim = 8, .theta = 1e4, .factor = 1, .attention_factor = 1};
    float plain[4], divided[4];
    tg_rope_freqs(&s, 100, plain);
    s.freqs = divisors;
    tg_rope_freqs(&s, 100, divided);
    for (int i = 0; i < 4; i++)
        assert_true(divided[i] == plain[i] / (float)divisors[i]);
}

/* ---- configurations */

/* Reads the rope of `json`; the message must name what is wrong. */
static void check_refused(const char *json, tg_status status, const char *const *words)
{
    tg_err e = {0};
    json_t *root = NULL;
    tg_config *c = NULL;
    tg_arena a = {0};
    tg_rope_spec spec;
    tg_hparams *h = TG_NEW(tg_hparams);
    h->head_dim = 16;
    h->max_positions = 256;
    tg_rope_keys keys = {.object = "rope_scaling", .theta_key = "rope_theta", .theta_absent = 1e4};
    assert_int_equal(tg_json_parse(&root, tg_str_from_cstr(json), "config.json", &e), TG_OK);
    assert_int_equal(tg_config_new_json(&c, root, "config.json", &e), TG_OK);
    tg_status s = tg_rope_read_hf(&spec, h, c, &keys, &a, &e);
    if (s != status) fail_msg("%s: status %d, %s", json, s, e.msg);
    for (; *words; words++)
        if (!strstr(e.msg, *words)) fail_msg("'%s' is not in: %s", *words, e.msg);
    tg_mem_free(h);
    tg_arena_deinit(&a);
    tg_config_free(c);
    json_decref(root);
}

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

static void wrong_rope_keys_are_refused_by_name(void **state)
{
    (void)state;
    check_refused("{\"rope_scaling\": {\"type\": \"spiral\", \"factor\": 2}}", TG_E_UNSUPPORTED,
                  WORDS("config.json", "spiral", "llama3, yarn"));
    check_refused("{\"rope_scaling\": {\"type\": \"linear\"}}", TG_E_CORRUPT,
                  WORDS("config.json", "rope_scaling.factor"));
    check_refused("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0}}", TG_E_CORRUPT,
                  WORDS("rope_scaling.factor is 0"));
    check_refused("{\"rope_scaling\": {\"type\": \"linear\", \"factor\": \"2\"}}", TG_E_CORRUPT,
                  WORDS("rope_scaling.factor"));
    check_refused("{\"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2, "
                  "\"attention_factor\": 0.0}}",
                  TG_E_CORRUPT, WORDS("attention_factor is 0"));
    check_refused("{\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
                  "\"low_freq_factor\": 4, \"high_freq_factor\": 4}}",
                  TG_E_CORRUPT, WORDS("high_freq_factor is 4", "low_freq_factor"));
    check_refused("{\"rope_scaling\": {\"rope_type\": \"longrope\", \"short_factor\": [1, 2], "
                  "\"long_factor\": [1, 2]}}",
                  TG_E_CORRUPT, WORDS("short_factor has 2 entries", "8"));
    check_refused("{\"partial_rotary_factor\": 1.5}", TG_E_CORRUPT, WORDS("1.5"));
    check_refused("{\"partial_rotary_factor\": 0.2}", TG_E_UNSUPPORTED, WORDS("3 of 16"));
    check_refused("{\"rope_theta\": 0}", TG_E_CORRUPT, WORDS("theta"));
}

/* ---- GGUF keys: what llama.cpp's converter writes for a config.json must give that config's
 * table */

static void put_kv_f32(tg_buf *b, const char *key, float v)
{
    put_key(b, key, KV_F32);
    put(b, &v, 4);
}

/* The rope of a GGUF file of keys alone: `factor` 0 and `type` NULL leave those keys out. */
static tg_rope_spec read_gguf_spec(const char *type, float factor, uint32_t original,
                                   float attention_factor)
{
    tg_buf b = {0};
    char dir[64];
    tg_err e = {0};
    tg_checkpoint *ck = NULL;
    tg_config *c = NULL;
    tg_arena a = {0};
    tg_rope_spec spec;
    tg_hparams *h = TG_NEW(tg_hparams);
    h->head_dim = 64;
    h->max_positions = 4096;
    int n = 2 + (type != NULL) + (factor > 0) + (original > 0) + (attention_factor > 0);
    put_header(&b, 3, 0, (uint64_t)n);
    put_kv_str(&b, "general.architecture", "llama");
    put_kv_f32(&b, "llama.rope.freq_base", 10000);
    if (type) put_kv_str(&b, "llama.rope.scaling.type", type);
    if (factor > 0)
        put_kv_f32(&b, type ? "llama.rope.scaling.factor" : "llama.rope.scale_linear", factor);
    if (original) put_kv_u32(&b, "llama.rope.scaling.original_context_length", original);
    if (attention_factor > 0)
        put_kv_f32(&b, "llama.rope.scaling.yarn_attn_factor", attention_factor);
    put_padding(&b, 32);
    strcpy(dir, make_folder());
    if (tg_checkpoint_open(&ck, save_buf(dir, "keys.gguf", &b), &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(tg_config_new(&c, ck, &e), TG_OK);
    if (tg_rope_read_gguf(&spec, h, c, ck, 10000, &a, &e) != TG_OK) fail_msg("%s", e.msg);
    tg_config_free(c);
    tg_checkpoint_close(ck);
    tg_arena_deinit(&a);
    tg_mem_free(h);
    remove_folder(dir);
    return spec;
}

static void check_same(tg_rope_spec gguf, const char *hf)
{
    tg_arena a = {0};
    tg_rope_spec want = read_spec(hf, &a);
    float freqs[32], want_freqs[32];
    tg_rope_freqs(&gguf, 4096, freqs);
    tg_rope_freqs(&want, 4096, want_freqs);
    assert_memory_equal(freqs, want_freqs, sizeof freqs);
    assert_true(fabs(gguf.attention_factor - want.attention_factor) < 1e-7);
    tg_arena_deinit(&a);
}

#define HF(scaling)                                                                                \
    "{\"head_dim\": 64, \"max_position_embeddings\": 4096, \"rope_parameters\": "                  \
    "{\"rope_theta\": 10000.0" scaling "}}"

static void gguf_keys_give_the_table_of_the_config_they_were_made_from(void **state)
{
    (void)state;
    check_same(read_gguf_spec(NULL, 0, 0, 0), HF(""));
    check_same(read_gguf_spec("none", 4, 0, 0), HF("")); /* ggml: never scaled */
    check_same(read_gguf_spec("linear", 4, 0, 0), HF(", \"rope_type\": \"linear\", \"factor\": 4"));
    check_same(read_gguf_spec(NULL, 4, 0, 0), /* the older key */
               HF(", \"rope_type\": \"linear\", \"factor\": 4"));
    check_same(read_gguf_spec("yarn", 4, 1024, 0),
               HF(", \"rope_type\": \"yarn\", \"factor\": 4, "
                  "\"original_max_position_embeddings\": 1024"));
    check_same(read_gguf_spec("yarn", 4, 1024, 1),
               HF(", \"rope_type\": \"yarn\", \"factor\": 4, \"attention_factor\": 1.0, "
                  "\"original_max_position_embeddings\": 1024"));
}

static void an_explicit_attention_factor_of_one_wins(void **state)
{
    (void)state;
    tg_arena a = {0};
    tg_rope_spec s = read_spec("{\"head_dim\": 16, \"max_position_embeddings\": 256, "
                               "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 64, "
                               "\"attention_factor\": 1.0}}",
                               &a);
    assert_true(s.attention_factor == 1.0);
    s = read_spec("{\"head_dim\": 16, \"max_position_embeddings\": 256, "
                  "\"rope_parameters\": {\"rope_type\": \"yarn\", \"factor\": 64}}",
                  &a);
    assert_true(fabs(s.attention_factor - 1.4158883) < 1e-6); /* 0.1 ln 64 + 1 */
    tg_arena_deinit(&a);
}

/* D07: _compute_yarn_parameters of transformers 5.24 takes truncate, absent, as true; what each
 * gives is in rope.txt. */
static void yarns_range_is_rounded_unless_told_otherwise(void **state)
{
    (void)state;
    static const struct {
        const char *key;
        bool is_rounded;
    } rows[] = {{"", true}, {", \"truncate\": true", true}, {", \"truncate\": false", false}};
    tg_arena a = {0};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char json[200];
        snprintf(json, sizeof json,
                 "{\"head_dim\": 64, \"max_position_embeddings\": 4096, \"rope_parameters\": "
                 "{\"rope_type\": \"yarn\", \"factor\": 4%s}}",
                 rows[i].key);
        assert_int_equal(read_spec(json, &a).is_truncated, rows[i].is_rounded);
    }
    tg_arena_deinit(&a);
}

/* The first part against transformers' short factors (a table for the original length alone), the
 * second against its long ones; both are held against transformers above. */
static void tables_of_two_parts_have_short_texts_first(void **state)
{
    (void)state;
    enum { ORIGINAL = 40, LENGTH = 100, DIM = 8, N = ORIGINAL + LENGTH };
    static float all[N * DIM], pieces[N * DIM], parts[N * DIM];
    static const double short_factors[] = {1, 1.5, 2, 3}, long_factors[] = {2, 5, 9, 30};
    static tg_hparams h;
    const tg_rope_spec specs[] = {
        {.kind = TG_ROPE_LONGROPE, .freqs = short_factors, .long_freqs = long_factors},
        {.kind = TG_ROPE_DYNAMIC, .factor = 4},
    };
    for (size_t i = 0; i < TG_COUNT(specs); i++) {
        tg_rope_spec *s = &h.ropes[0];
        *s = specs[i];
        s->rotary_dim = DIM;
        s->theta = 1e4;
        s->attention_factor = 1;
        s->original_max_positions = ORIGINAL;
        assert_int_equal(tg_rope_original_length(&h, ORIGINAL), 0);
        assert_int_equal(tg_rope_original_length(&h, ORIGINAL + 1), ORIGINAL);
        tg_rope_fill(s, ORIGINAL, LENGTH, 0, N, all);
        tg_rope_fill(s, 0, ORIGINAL, 0, ORIGINAL, parts);
        tg_rope_fill(s, 0, LENGTH, 0, LENGTH, parts + ORIGINAL * DIM);
        assert_memory_equal(all, parts, sizeof all);
        assert_memory_not_equal(all, all + ORIGINAL * DIM, ORIGINAL * DIM * sizeof *all);
        for (int32_t first = 0, n = 1; first < N; first += n, n = TG_MIN(3 * n, N - first))
            tg_rope_fill(s, ORIGINAL, LENGTH, first, n, pieces + first * DIM);
        assert_memory_equal(all, pieces, sizeof all);
    }
    h.ropes[0].kind = TG_ROPE_YARN;
    assert_int_equal(tg_rope_original_length(&h, LENGTH), 0);
}

static void tables_that_change_at_different_lengths_are_refused(void **state)
{
    (void)state;
    static tg_hparams h;
    tg_err e = {0};
    h.ropes[0] = (tg_rope_spec){.kind = TG_ROPE_LONGROPE, .original_max_positions = 40};
    h.ropes[1] = (tg_rope_spec){.kind = TG_ROPE_DYNAMIC, .original_max_positions = 40};
    assert_int_equal(tg_rope_check_lengths(&h, "config.json", &e), TG_OK);
    h.ropes[1].original_max_positions = 50;
    assert_int_equal(tg_rope_check_lengths(&h, "config.json", &e), TG_E_UNSUPPORTED);
    assert_string_equal(e.msg, "config.json: the rope tables of global and of sliding layers have "
                               "the original lengths 40 and 50; only equal ones are supported.");
    h.ropes[1].kind = TG_ROPE_YARN;
    assert_int_equal(tg_rope_check_lengths(&h, "config.json", &e), TG_OK);
}

static void a_part_of_a_head_may_rotate(void **state)
{
    (void)state;
    tg_arena a = {0};
    tg_rope_spec s = read_spec("{\"head_dim\": 80, \"max_position_embeddings\": 256, "
                               "\"partial_rotary_factor\": 0.25}",
                               &a);
    float freqs[10];
    assert_int_equal(s.rotary_dim, 20);
    tg_rope_freqs(&s, 256, freqs);
    assert_true(freqs[0] == 1);
    assert_true(fabs((double)freqs[5] - 0.01) < 1e-8); /* 10000^(-10/20) */
    static const int32_t dims[][4] = {{64, 16, 32, 48}, {80, 20, 40, 60}, {96, 24, 48, 72}};
    for (size_t i = 0; i < TG_COUNT(dims); i++)
        for (int32_t quarters = 1; quarters <= 3; quarters++) {
            char json[160];
            snprintf(json, sizeof json,
                     "{\"head_dim\": %d, \"max_position_embeddings\": 256, "
                     "\"partial_rotary_factor\": %g}",
                     dims[i][0], 0.25 * quarters);
            assert_int_equal(read_spec(json, &a).rotary_dim, dims[i][quarters]);
        }
    tg_arena_deinit(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tables_are_those_of_transformers),
        cmocka_unit_test(llama_3_scaling_has_its_known_boundaries),
        cmocka_unit_test(a_table_is_the_same_in_any_pieces),
        cmocka_unit_test(divisors_of_a_gguf_file_divide_the_frequencies),
        cmocka_unit_test(wrong_rope_keys_are_refused_by_name),
        cmocka_unit_test(gguf_keys_give_the_table_of_the_config_they_were_made_from),
        cmocka_unit_test(an_explicit_attention_factor_of_one_wins),
        cmocka_unit_test(yarns_range_is_rounded_unless_told_otherwise),
        cmocka_unit_test(tables_of_two_parts_have_short_texts_first),
        cmocka_unit_test(tables_that_change_at_different_lengths_are_refused),
        cmocka_unit_test(a_part_of_a_head_may_rotate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
