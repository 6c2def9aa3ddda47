/* SPDX-License-Identifier: Apache-2.0
 * Whole checkpoints: split GGUF sets, Hugging Face folders, hub caches, and the real models. */
#include "unit/format/checkpoint_files.h"

#include <sys/stat.h>

/* ---- GGUF */

/* A shard with one tensor of four floats. */
static void save_shard(const char *dir, const char *name, int no, int count, int n_all,
                       const char *tensor)
{
    tg_buf b = {0};
    put_header(&b, 3, 1, no == 0 ? 4 : 3);
    put_kv_u16(&b, "split.no", (uint16_t)no);
    put_kv_u16(&b, "split.count", (uint16_t)count);
    put_key(&b, "split.tensors.count", KV_I32), put_u32(&b, (uint32_t)n_all);
    if (no == 0) put_kv_str(&b, "general.architecture", "llama");
    put_tensor(&b, tensor, 1, dims_4, GGUF_F32, 0);
    put_padding(&b, 32);
    for (int i = 0; i < 4; i++) {
        float f = (float)(10 * no + i);
        put(&b, &f, sizeof f);
    }
    save_buf(dir, name, &b);
}

static void save_three(const char *dir)
{
    save_shard(dir, "m-00001-of-00003.gguf", 0, 3, 3, "a");
    save_shard(dir, "m-00002-of-00003.gguf", 1, 3, 3, "b");
    save_shard(dir, "m-00003-of-00003.gguf", 2, 3, 3, "c");
}

static void any_shard_opens_the_whole_set(void **state)
{
    (void)state;
    place p = begin();
    char path[128];
    save_three(p.dir);
    for (int shard = 0; shard <= 3; shard++) {
        if (shard == 0)
            snprintf(path, sizeof path, "%s", p.dir); /* the folder: its first shard counts */
        else
            snprintf(path, sizeof path, "%s/m-0000%d-of-00003.gguf", p.dir, shard);
        tg_checkpoint *c = open_good(path);
        assert_int_equal(tg_checkpoint_get_kind(c), TG_CHECKPOINT_GGUF);
        assert_int_equal(tg_checkpoint_n_files(c), 3);
        assert_int_equal(tg_checkpoint_n_tensors(c), 3);
        assert_non_null(strstr(tg_checkpoint_get_path(c), "-00001-of-"));
        const tg_tensor *t = tg_checkpoint_find_tensor(c, TG_STR("c"));
        assert_non_null(t);
        assert_non_null(strstr(t->file, "-00003-of-"));
        float f[4];
        tg_dtype_unpack(t->dtype, t->data, f, 4);
        assert_true(f[0] == 20 && f[3] == 23);
        assert_non_null(tg_gguf_find(tg_checkpoint_get_gguf(c), "general.architecture"));
        tg_checkpoint_close(c);
    }
    end(p, NULL);
}

/* C15, one fault after another. */
static void faults_of_split_files_are_named(void **state)
{
    (void)state;
    place p = begin();
    char first[128], third[128], other[128];
    snprintf(first, sizeof first, "%s/m-00001-of-00003.gguf", p.dir);
    snprintf(third, sizeof third, "%s/m-00003-of-00003.gguf", p.dir);
    snprintf(other, sizeof other, "%s/renamed.gguf", p.dir);

    save_three(p.dir);
    assert_int_equal(unlink(third), 0);
    assert_refused(first, "m-00003-of-00003.gguf: shard 3 of 3 is missing");

    save_shard(p.dir, "m-00003-of-00003.gguf", 1, 3, 3, "c");
    assert_refused(first, "is shard 2 of 3 by its keys and 3 of 3 by its name");

    save_shard(p.dir, "m-00003-of-00003.gguf", 2, 4, 3, "c");
    assert_refused(first, "is shard 3 of 4 by its keys and 3 of 3 by its name");

    save_shard(p.dir, "m-00003-of-00003.gguf", 2, 3, 3, "a");
    assert_refused(first, "tensor 'a' is in two files");

    save_three(p.dir);
    save_shard(p.dir, "m-00001-of-00003.gguf", 0, 3, 7, "a");
    assert_refused(first, "its shards have 3 tensors; split.tensors.count says 7");

    save_three(p.dir);
    assert_int_equal(rename(first, other), 0);
    assert_refused(other, "is shard 1 of 3 by its keys, but its name does not end in "
                          "'-00001-of-00003.gguf'");

    save_shard(p.dir, "m-00001-of-00003.gguf", 0, 2, 3, "a");
    assert_refused(first, "is shard 1 of 2 by its keys, but its name");

    save_shard(p.dir, "m-00001-of-00003.gguf", 5, 3, 3, "a");
    assert_refused(first, "split.no and split.count are 5 and 3");
    end(p, NULL);
}

static void glued_shards_are_refused(void **state)
{
    (void)state;
    place p = begin();
    tg_buf all = {0};
    tg_err e = {0};
    char path[128];
    save_three(p.dir);
    for (int i = 1; i <= 3; i++) {
        snprintf(path, sizeof path, "%s/m-0000%d-of-00003.gguf", p.dir, i);
        assert_int_equal(tg_file_load(&all, path, 1 << 20, &e), TG_OK);
    }
    assert_refused(save_buf(p.dir, "glued.gguf", &all), "a second GGUF file begins at byte");
    end(p, NULL);
}

static void a_folder_with_several_models_asks_which(void **state)
{
    (void)state;
    place p = begin();
    tg_buf b = {0};
    for (int i = 0; i < 2; i++) {
        put_header(&b, 3, 0, 0);
        save_buf(p.dir, i ? "b.gguf" : "a.gguf", &b);
    }
    assert_refused(p.dir, "holds 2 GGUF models (a.gguf, b.gguf): name one");
    put_header(&b, 3, 0, 0);
    const char *path = save_buf(p.dir, "a.gguf", &b);
    tg_checkpoint *c = open_good(path);
    end(p, c);
}

static void a_path_that_is_no_model_is_said_to_be_none(void **state)
{
    (void)state;
    place p = begin();
    char path[128];
    assert_refused("", "the path of the model is empty");
    assert_refused("/nonexistent/model.gguf", "No such file");
    assert_refused(p.dir, "holds neither a config.json nor a GGUF file");
    assert_refused(save_text(p.dir, "x.gguf", ""), "x.gguf: is empty");
    assert_refused(save_text(p.dir, "model.safetensors", "x"), "name the folder");
    snprintf(path, sizeof path, "%s/dangling.gguf", p.dir);
    assert_int_equal(symlink("/nonexistent/blob", path), 0);
    assert_refused(path, "the download did not finish");
    end(p, NULL);
}

/* ---- the hub's cache */

static const char commit[] = "0123456789abcdef0123456789abcdef01234567";

/* Files are blobs, snapshots are relative links to them. */
static void save_hub(const char *dir)
{
    char path[256];
    tg_err e = {0};
    save_text(dir, "blobs/c0", "{\"model_type\":\"llama\"}");
    save_weights(dir, "blobs/w0", U8_TENSOR("a"), 4);
    snprintf(path, sizeof path, "%s/snapshots/%s", dir, commit);
    assert_int_equal(tg_dir_make(path, &e), TG_OK);
    snprintf(path, sizeof path, "%s/snapshots/%s/config.json", dir, commit);
    assert_int_equal(symlink("../../blobs/c0", path), 0);
    snprintf(path, sizeof path, "%s/snapshots/%s/model.safetensors", dir, commit);
    assert_int_equal(symlink("../../blobs/w0", path), 0);
}

static void a_hub_cache_folder_is_read_in_place(void **state)
{
    (void)state;
    place p = begin();
    char dir[128], path[256];
    snprintf(dir, sizeof dir, "%s/models--org--name", p.dir);
    save_hub(dir);
    tg_checkpoint *c = open_good(dir); /* no refs: the only snapshot, with a word */
    assert_non_null(strstr(test_log, "no refs/main; its only snapshot"));
    tg_checkpoint_close(c);

    begin_log();
    save_text(dir, "refs/main", commit);
    c = open_good(dir);
    assert_string_equal(test_log, "");
    assert_non_null(tg_checkpoint_find_tensor(c, TG_STR("a")));
    const tg_source_file *f = tg_checkpoint_get_file(c, 1);
    assert_non_null(strstr(f->path, "model.safetensors"));
    assert_non_null(strstr(f->real_path, "/blobs/w0"));
    tg_checkpoint_close(c);

    snprintf(path, sizeof path, "%s/snapshots/%s", dir, commit);
    tg_checkpoint_close(open_good(path)); /* a snapshot is a folder as any other */

    save_text(dir, "snapshots/fedcba/config.json", "{}");
    tg_checkpoint_close(open_good(dir));
    snprintf(path, sizeof path, "%s/refs/main", dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(dir, "has 2 snapshots and no refs/main that chooses one");
    save_text(dir, "refs/main", "ffffff\n");
    assert_refused(dir, "names snapshot ffffff, which is not there");
    save_text(dir, "refs/main", "../../..");
    assert_refused(dir, "does not hold the name of a snapshot");
    end(p, NULL);
}

static void a_hub_download_that_did_not_finish_is_said_to_be_one(void **state)
{
    (void)state;
    place p = begin();
    char path[256];
    save_hub(p.dir);
    save_text(p.dir, "refs/main", commit);
    snprintf(path, sizeof path, "%s/blobs/w0", p.dir);
    assert_int_equal(unlink(path), 0);
    assert_refused(p.dir, "model.safetensors: is a link to a file that is not there");
    end(p, NULL);
}

/* ---- keys of the compile cache */

static void the_content_hash_is_of_bytes_and_not_of_places(void **state)
{
    (void)state;
    place p = begin();
    char one[128], two[128];
    snprintf(one, sizeof one, "%s/one", p.dir);
    snprintf(two, sizeof two, "%s/two", p.dir);
    save_sharded(one);
    save_sharded(two);
    tg_checkpoint *a = open_good(one), *b = open_good(two);
    tg_content_hash x = tg_checkpoint_hash(a), y = tg_checkpoint_hash(b);
    assert_memory_equal(&x, &y, sizeof x);
    tg_checkpoint_close(b);
    save_text(two, "config.json", "{\"model_type\":\"llamb\"}");
    b = open_good(two);
    y = tg_checkpoint_hash(b);
    assert_memory_not_equal(&x, &y, sizeof x);
    tg_checkpoint_close(b);
    /* The same bytes under another name are another checkpoint. */
    save_sharded(two);
    save_text(two, "chat_template.jinja", "x");
    b = open_good(two);
    x = tg_checkpoint_hash(b);
    tg_checkpoint_close(b);
    char path[256];
    snprintf(path, sizeof path, "%s/chat_template.jinja", two);
    assert_int_equal(unlink(path), 0);
    save_text(two, "additional_chat_templates/a.jinja", "x");
    b = open_good(two);
    y = tg_checkpoint_hash(b);
    assert_memory_not_equal(&x, &y, sizeof x);
    tg_checkpoint_close(b);
    end(p, a);
}

static void refused_memory_is_an_error_and_no_crash(void **state)
{
    (void)state;
    place p = begin();
    save_sharded(p.dir);
    save_text(p.dir, "additional_chat_templates/rag.jinja", "rag text");
    tg_status s = TG_E_NOMEM;
    int64_t n = 0;
    for (; s == TG_E_NOMEM && n < 10000; n++) {
        tg_checkpoint *c = NULL;
        tg_mem_fail_after(n);
        s = tg_checkpoint_open(&c, p.dir, NULL);
        tg_mem_fail_after(-1);
        assert_true((s == TG_OK) == (c != NULL));
        tg_checkpoint_close(c);
        assert_int_equal(tg_mem_n_alive(), p.alive);
    }
    assert_int_equal(s, TG_OK);
    assert_true(n > 20);
    end(p, NULL);
}

/* ---- files that others wrote */

/* The sum of bits[i] * (2 i + 1): tools/goldens/goldens-format computes the same over gguf-py's
 * values. */
static uint64_t get_fingerprint(const tg_tensor *t)
{
    enum { PIECE = 4096 };
    static float piece[PIECE];
    uint64_t sum = 0;
    int64_t n = tg_tensor_n_elems(t);
    for (int64_t at = 0; at < n; at += PIECE) {
        int64_t m = TG_MIN(n - at, (int64_t)PIECE);
        const char *src = (const char *)t->data + tg_dtype_row_bytes(t->dtype, at);
        tg_dtype_unpack(t->dtype, src, piece, m);
        for (int64_t i = 0; i < m; i++)
            sum += tg_f32_to_bits(piece[i]) * (2 * (uint64_t)(at + i) + 1);
    }
    return sum;
}

static void check_real_model(const char *file, const char *golden)
{
    const char *path = find_model(file);
    if (!path) {
        print_message("%s is not in models/; skipped\n", file);
        skip();
    }
    tg_checkpoint *c = open_good(path);
    FILE *f = fopen(golden, "r");
    assert_non_null(f);
    char line[512];
    int32_t n = 0;
    for (; fgets(line, sizeof line, f); n++) {
        char name[128], dtype[32], dims[64], want[32];
        assert_int_equal(sscanf(line, "%127s %31s %63s %31s", name, dtype, dims, want), 4);
        const tg_tensor *t = tg_checkpoint_find_tensor(c, tg_str_from_cstr(name));
        assert_non_null(t);
        tg_buf b = {0};
        tg_buf_printf(&b, "%s %s ", name, tg_dtype_get_name(t->dtype));
        for (int32_t i = 0; i < t->n_dims; i++)
            tg_buf_printf(&b, "%s%lld", i ? "x" : "", (long long)t->dims[i]);
        tg_buf_printf(&b, " %016llx\n", (unsigned long long)get_fingerprint(t));
        assert_string_equal(b.ptr, line);
        tg_buf_deinit(&b);
    }
    fclose(f);
    assert_int_equal(n, tg_checkpoint_n_tensors(c));
    tg_checkpoint_close(c);
}

static void smollm2_has_the_tensors_that_gguf_py_sees(void **state)
{
    (void)state;
    check_real_model("smollm2-135m-instruct.gguf", "tests/golden/tensors-smollm2.txt");
}

static void gemma3_has_the_tensors_that_gguf_py_sees(void **state)
{
    (void)state;
    check_real_model("gemma3-270m.gguf", "tests/golden/tensors-gemma3.txt");
}

/* Facts of the published tokenizer: 49,152 tokens, "<|endoftext|>" first, the byte-level form of a
 * space is U+0120. */
static void the_vocabulary_of_smollm2_is_read_without_copying(void **state)
{
    (void)state;
    const char *path = find_model("smollm2-135m-instruct.gguf");
    if (!path) skip();
    tg_checkpoint *c = open_good(path);
    const tg_gguf *g = tg_checkpoint_get_gguf(c);
    tg_arena a = {0};
    tg_err e = {0};
    tg_str *tokens = NULL;
    int32_t *kinds = NULL, eos = -1;
    int64_t n = 0, n_kinds = 0;
    assert_int_equal(tg_gguf_get_strs(g, "tokenizer.ggml.tokens", &a, &tokens, &n, NULL, &e), 0);
    assert_int_equal(
        tg_gguf_get_i32s(g, "tokenizer.ggml.token_type", &a, &kinds, &n_kinds, NULL, &e), 0);
    assert_int_equal(n, 49152);
    assert_int_equal(n_kinds, n);
    assert_true(tg_str_is(tokens[0], "<|endoftext|>"));
    assert_true(tg_str_is(tokens[1], "<|im_start|>"));
    assert_int_equal(kinds[1], 3); /* control */
    assert_int_equal(tg_gguf_get_token_id(g, "tokenizer.ggml.eos_token_id", n, &eos, &e), 0);
    assert_int_equal(eos, 2);
    tg_arena_deinit(&a);
    tg_checkpoint_close(c);
}

/* tests/tiny was written by transformers' save_pretrained and by gguf-py. */
static void tiny_checkpoints_of_transformers_open(void **state)
{
    (void)state;
    tg_checkpoint *c = open_good("tests/tiny/llama-sharded");
    assert_true(tg_checkpoint_n_files(c) > 5);
    assert_non_null(tg_checkpoint_find_tensor(c, TG_STR("model.embed_tokens.weight")));
    tg_checkpoint_close(c);
    c = open_good("tests/tiny/gemma3");
    assert_non_null(tg_checkpoint_get_text(c, TG_HF_TOKENIZER).ptr);
    const tg_tensor *t = tg_checkpoint_find_tensor(c, TG_STR("model.norm.weight"));
    assert_non_null(t);
    assert_int_equal(t->n_dims, 1);
    tg_checkpoint_close(c);
}

/* The same matrix as transformers and as a GGUF writer stored it: one orientation, equal values. */
static void both_formats_give_one_matrix(void **state)
{
    (void)state;
    tg_checkpoint *hf = open_good("tests/tiny/gemma3-pattern6");
    tg_checkpoint *gguf = open_good("tests/tiny/gemma3-pattern6/model.gguf");
    static const char *const names[][2] = {
        {"model.embed_tokens.weight", "token_embd.weight"},
        {"model.layers.0.mlp.down_proj.weight", "blk.0.ffn_down.weight"},
    };
    assert_int_equal(tg_checkpoint_get_kind(hf), TG_CHECKPOINT_HF);
    assert_int_equal(tg_checkpoint_get_kind(gguf), TG_CHECKPOINT_GGUF);
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        const tg_tensor *a = tg_checkpoint_find_tensor(hf, tg_str_from_cstr(names[i][0]));
        const tg_tensor *b = tg_checkpoint_find_tensor(gguf, tg_str_from_cstr(names[i][1]));
        assert_non_null(a);
        assert_non_null(b);
        assert_int_equal(a->n_dims, 2);
        assert_int_equal(b->n_dims, 2);
        if (i == 0) assert_int_not_equal(a->dims[0], a->dims[1]); /* the other one is square */
        assert_int_equal(a->dims[0], b->dims[0]);
        assert_int_equal(a->dims[1], b->dims[1]);
        assert_true(get_fingerprint(a) == get_fingerprint(b));
    }
    tg_checkpoint_close(gguf);
    tg_checkpoint_close(hf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_shard_opens_the_whole_set),
        cmocka_unit_test(faults_of_split_files_are_named),
        cmocka_unit_test(glued_shards_are_refused),
        cmocka_unit_test(a_folder_with_several_models_asks_which),
        cmocka_unit_test(a_path_that_is_no_model_is_said_to_be_none),
        cmocka_unit_test(a_hub_cache_folder_is_read_in_place),
        cmocka_unit_test(a_hub_download_that_did_not_finish_is_said_to_be_one),
        cmocka_unit_test(the_content_hash_is_of_bytes_and_not_of_places),
        cmocka_unit_test(refused_memory_is_an_error_and_no_crash),
        cmocka_unit_test(smollm2_has_the_tensors_that_gguf_py_sees),
        cmocka_unit_test(gemma3_has_the_tensors_that_gguf_py_sees),
        cmocka_unit_test(the_vocabulary_of_smollm2_is_read_without_copying),
        cmocka_unit_test(tiny_checkpoints_of_transformers_open),
        cmocka_unit_test(both_formats_give_one_matrix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
