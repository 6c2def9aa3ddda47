/* SPDX-License-Identifier: Apache-2.0 */
#include "check.h"
#include "ir/artifact.h"
#include "unit/ir/handmade.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static char folder[64]; /* of this run, removed at the end */

static const char *at(const char *name)
{
    static char paths[8][256];
    static int next;
    char *p = paths[next++ % 8];
    snprintf(p, sizeof paths[0], "%s/%s", folder, name);
    return p;
}

static void assert_ok(tg_status s, const tg_err *e)
{
    if (s != TG_OK) fail_msg("%s", e->msg);
}

static void add_weights(tg_artifact_writer *w, const tg_program *p)
{
    tg_file_writer *out;
    tg_err e = {0};
    assert_ok(tg_artifact_writer_begin(w, "weights.0.bin", &out, &e), &e);
    for (int64_t i = 0; i < p->weights_bytes / 64; i++) {
        uint8_t line[64];
        memset(line, (int)(i & 0xff), sizeof line);
        assert_ok(tg_file_writer_write(out, line, sizeof line, &e), &e);
    }
    assert_ok(tg_artifact_writer_end(w, &e), &e);
}

static const char *template = "{{ messages }}"; /* of the next artifact */

/* Everything but the commit. */
static tg_artifact_writer *fill(const char *path, bool is_forced)
{
    handmade h;
    tg_artifact_writer *w;
    tg_buf block = {0};
    tg_err e = {0};
    hand_make(&h);
    assert_ok(tg_artifact_writer_new(&w, path, is_forced, &e), &e);
    assert_ok(tg_program_print_block(&h.program, &block, &e), &e);
    assert_ok(tg_artifact_writer_add(w, "program.bin", tg_buf_str(&block), &e), &e);
    add_weights(w, &h.program);
    assert_ok(tg_artifact_writer_add(w, "defaults.json", TG_STR("{\"stop_ids\": [2]}"), &e), &e);
    assert_ok(tg_artifact_writer_add(w, "template.jinja", tg_str_from_cstr(template), &e), &e);
    tg_buf_deinit(&block);
    return w;
}

static tg_status commit(tg_artifact_writer *w, tg_err *e)
{
    json_t *json;
    assert_ok(tg_json_parse(&json, TG_STR("{\"architecture\": \"toy\", \"rate\": 0.1}"), "t", e),
              e);
    tg_status s = tg_artifact_writer_commit(w, json, e);
    json_decref(json);
    return s;
}

static void write_one(const char *path, bool is_forced)
{
    tg_err e = {0};
    tg_artifact_writer *w = fill(path, is_forced);
    assert_ok(commit(w, &e), &e);
    tg_artifact_writer_free(w);
}

static int32_t count_names(const char *dir)
{
    tg_arena a = {0};
    char **names;
    int32_t n = 0;
    tg_err e = {0};
    assert_ok(tg_dir_list(&a, dir, &names, &n, &e), &e);
    tg_arena_deinit(&a);
    return n;
}

static void save(const char *path, const char *text)
{
    tg_err e = {0};
    assert_ok(tg_file_save(path, tg_str_from_cstr(text), &e), &e);
}

static void assert_refuses(const char *path, const char *words)
{
    tg_artifact *a;
    tg_err e = {0};
    if (tg_artifact_open(&a, path, &e) == TG_OK || !strstr(e.msg, words))
        fail_msg("'%s' was expected, not '%s'", words, e.msg);
    assert_null(a);
}

static void what_was_written_is_found_when_opened(void **state)
{
    (void)state;
    tg_artifact *a;
    tg_err e = {0};
    const char *path = at("plain");
    assert_false(tg_artifact_is_at(path));
    write_one(path, false);
    assert_true(tg_artifact_is_at(path));
    assert_int_equal(count_names(path), 5);
    assert_ok(tg_artifact_open(&a, path, &e), &e);
    assert_int_equal(a->program.n_vocab, 39);
    assert_int_equal(a->weights_map.n_bytes, a->program.weights_bytes);
    assert_int_equal(a->weights_map.data[64 * 3], 3);
    assert_memory_equal(a->template_map.data, "{{ messages }}", 14);
    assert_int_equal(a->tokenizer_map.n_bytes, 0);
    assert_string_equal(json_string_value(json_object_get(a->json, "architecture")), "toy");
    assert_int_equal(
        json_integer_value(json_array_get(json_object_get(a->defaults, "stop_ids"), 0)), 2);
    assert_ok(tg_artifact_verify(a, &e), &e);
    tg_artifact_close(a);
}

/* From Python's xxhash: xxh3_128_hexdigest(b'{{ messages }}'). */
static void checksums_are_those_of_other_programs(void **state)
{
    (void)state;
    json_t *json;
    tg_err e = {0};
    write_one(at("sums"), false);
    assert_ok(tg_json_load(&json, at("sums/artifact.json"), &e), &e);
    const json_t *x = json_object_get(json_object_get(json, "files"), "template.jinja");
    assert_int_equal(json_integer_value(json_object_get(x, "bytes")), 14);
    assert_string_equal(json_string_value(json_object_get(x, "xxh3_128")),
                        "6b3d80cfa9a53fc3a5863d2d1164e7a8");
    json_decref(json);
}

static void writing_twice_gives_the_same_bytes(void **state)
{
    (void)state;
    static const char *const names[] = {"artifact.json", "program.bin", "weights.0.bin"};
    write_one(at("first"), false);
    write_one(at("second"), false);
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        tg_buf a = {0}, b = {0}, path = {0};
        tg_err e = {0};
        assert_ok(tg_file_load(&a, tg_path_join(&path, at("first"), names[i]), 1 << 20, &e), &e);
        assert_ok(tg_file_load(&b, tg_path_join(&path, at("second"), names[i]), 1 << 20, &e), &e);
        assert_true(tg_str_is_equal(tg_buf_str(&a), tg_buf_str(&b)));
        tg_buf_deinit(&a);
        tg_buf_deinit(&b);
        tg_buf_deinit(&path);
    }
}

static void nothing_shows_before_commit_and_nothing_remains_of_an_abandoned_one(void **state)
{
    (void)state;
    tg_err e = {0};
    assert_ok(tg_dir_make(at("empty"), &e), &e);
    tg_artifact_writer *w = fill(at("empty/x"), false);
    assert_false(tg_path_exists(at("empty/x")));
    tg_artifact_writer_free(w);
    assert_int_equal(count_names(at("empty")), 0);

    w = fill(at("empty/x"), false);
    assert_ok(commit(w, &e), &e);
    tg_artifact_writer_free(w);
    assert_int_equal(count_names(at("empty")), 1);
}

static void an_existing_artifact_is_replaced_only_by_force(void **state)
{
    (void)state;
    tg_artifact_writer *w;
    tg_artifact *open;
    tg_err e = {0};
    write_one(at("old"), false);
    assert_int_equal(tg_artifact_writer_new(&w, at("old"), false, &e), TG_E_ARGUMENT);
    assert_non_null(strstr(e.msg, "/old is an artifact already; --force replaces it"));
    e = (tg_err){0};
    /* One that is open stays readable when another takes its place. */
    assert_ok(tg_artifact_open(&open, at("old"), &e), &e);
    write_one(at("old"), true);
    assert_ok(tg_artifact_verify(open, &e), &e);
    tg_artifact_close(open);
}

static void what_is_no_artifact_is_never_replaced(void **state)
{
    (void)state;
    tg_artifact_writer *w;
    tg_err e = {0};
    save(at("file"), "mine");
    assert_ok(tg_dir_make(at("dir/mine"), &e), &e);
    const char *const paths[] = {at("file"), at("dir")};
    for (size_t i = 0; i < TG_COUNT(paths); i++) {
        e = (tg_err){0};
        assert_int_equal(tg_artifact_writer_new(&w, paths[i], true, &e), TG_E_ARGUMENT);
        assert_non_null(strstr(e.msg, "exists and is no artifact"));
        assert_null(w);
    }
    e = (tg_err){0};
    assert_int_not_equal(tg_artifact_writer_new(&w, at("file/below/x"), false, &e), TG_OK);
    assert_non_null(strstr(e.msg, "is not a directory"));
    e = (tg_err){0};
    assert_int_equal(tg_artifact_writer_new(&w, "..", true, &e), TG_E_ARGUMENT);
    assert_true(tg_path_is_dir(at("dir/mine")));
}

/* Somebody's project with an artifact.json of its own; an artifact with notes beside it; a link to
 * one. */
static void force_replaces_artifacts_that_hold_nothing_else(void **state)
{
    (void)state;
    tg_artifact_writer *w;
    tg_err e = {0};
    assert_ok(tg_dir_make(at("project/src"), &e), &e);
    save(at("project/artifact.json"), "{\"format\": 1, \"files\": {}, \"checksum\": \"0\"}");
    write_one(at("noted"), false);
    save(at("noted/notes.txt"), "mine");
    write_one(at("linked"), false);
    assert_int_equal(symlink(at("linked"), at("link")), 0);
    const struct {
        const char *path, *words;
    } rows[] = {{"project", "exists and is no artifact that an export wrote"},
                {"noted", "holds 'notes.txt', which is no part of the artifact"},
                {"link", "exists and is no artifact"}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        e = (tg_err){0};
        assert_int_equal(tg_artifact_writer_new(&w, at(rows[i].path), true, &e), TG_E_ARGUMENT);
        if (!strstr(e.msg, rows[i].words)) fail_msg("%s: not '%s'", e.msg, rows[i].words);
        assert_null(w);
    }
    assert_true(tg_path_is_dir(at("project/src")) && tg_path_is_file(at("noted/notes.txt")));
}

/* CWE-59: a link in the place of remains, to a folder with something of somebody's. */
static void remains_are_not_looked_for_behind_a_link(void **state)
{
    (void)state;
    tg_err e = {0};
    assert_ok(tg_dir_make(at("theirs/new"), &e), &e);
    assert_ok(tg_dir_make(at("trap"), &e), &e);
    save(at("theirs/new/keep"), "theirs");
    assert_int_equal(symlink(at("theirs"), at("trap/.x.tmp.7.0")), 0);
    assert_ok(tg_dir_make(at("trap/.x.tmp.8.0"), &e), &e);
    assert_int_equal(symlink(at("theirs/new"), at("trap/.x.tmp.8.0/new")), 0);
    write_one(at("trap/x"), false);
    assert_true(tg_path_is_file(at("theirs/new/keep")));
    assert_true(tg_path_exists(at("trap/.x.tmp.7.0")));
    assert_false(tg_path_exists(at("trap/.x.tmp.8.0")));
}

/* As cp and rsync over a live artifact do: the same files, other bytes. */
static void an_open_artifact_keeps_what_it_checked_when_files_are_written_over(void **state)
{
    (void)state;
    static const char *const names[] = {"program.bin", "template.jinja"};
    tg_artifact *a;
    tg_err e = {0};
    char noise[4096];
    memset(noise, 0xff, sizeof noise);
    write_one(at("live"), false);
    assert_ok(tg_artifact_open(&a, at("live"), &e), &e);
    for (size_t i = 0; i < TG_COUNT(names); i++) {
        char path[300];
        snprintf(path, sizeof path, "%s/%s", at("live"), names[i]);
        int fd = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, noise, sizeof noise), sizeof noise);
        close(fd);
    }
    assert_ok(tg_program_check(&a->program, &e), &e);
    assert_memory_equal(a->template_map.data, "{{ messages }}", 14);
    tg_artifact_close(a);
}

static void a_foreign_folder_that_appears_meanwhile_is_not_replaced(void **state)
{
    (void)state;
    tg_err e = {0};
    tg_artifact_writer *w = fill(at("race"), false);
    assert_ok(tg_dir_make(at("race/mine"), &e), &e);
    assert_int_equal(commit(w, &e), TG_E_ARGUMENT);
    tg_artifact_writer_free(w);
    assert_true(tg_path_is_dir(at("race/mine")));
}

static void a_file_that_the_format_does_not_have_is_refused(void **state)
{
    (void)state;
    tg_err e = {0};
    tg_artifact_writer *w = fill(at("names"), false);
    assert_int_equal(tg_artifact_writer_add(w, "../x", TG_STR("y"), &e), TG_E_ARGUMENT);
    e = (tg_err){0};
    assert_int_equal(tg_artifact_writer_add(w, "program.bin", TG_STR("y"), &e), TG_E_ARGUMENT);
    tg_artifact_writer_free(w);
}

static void what_could_not_be_opened_is_not_put_in_place(void **state)
{
    (void)state;
    tg_artifact_writer *w;
    tg_err e = {0};
    assert_ok(tg_artifact_writer_new(&w, at("bad"), false, &e), &e);
    assert_ok(tg_artifact_writer_add(w, "program.bin", TG_STR("no program"), &e), &e);
    assert_ok(tg_artifact_writer_add(w, "weights.0.bin", TG_STR("no weights"), &e), &e);
    assert_int_equal(commit(w, &e), TG_E_CORRUPT);
    tg_artifact_writer_free(w);
    assert_false(tg_path_exists(at("bad")));
}

static void remains_of_the_dead_go_and_work_of_the_living_stays(void **state)
{
    (void)state;
    tg_err e = {0};
    assert_ok(tg_dir_make(at("shared"), &e), &e);
    tg_artifact_writer *living = fill(at("shared/x"), false);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        fill(at("shared/x"), false); /* killed in the middle: nobody cleans up */
        kill(getpid(), SIGKILL);
    }
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(count_names(at("shared")), 2);

    /* A folder without any lock is remains too, and one of another target is none of our business.
     * */
    assert_ok(tg_dir_make(at("shared/.x.tmp.1.0/new"), &e), &e);
    assert_ok(tg_dir_make(at("shared/.xy.tmp.1.0/new"), &e), &e);
    write_one(at("shared/x"), false);
    assert_true(tg_path_exists(at("shared/.xy.tmp.1.0")));
    assert_false(tg_path_exists(at("shared/.x.tmp.1.0")));
    assert_int_equal(count_names(at("shared")), 3); /* x, the living one, the other target's */

    /* The living one began first and ends later: both succeed, one result. */
    assert_ok(commit(living, &e), &e);
    tg_artifact_writer_free(living);
    assert_int_equal(count_names(at("shared")), 2);
}

static void many_exports_to_one_place_all_succeed(void **state)
{
    (void)state;
    enum { N = 6, ROUNDS = 5 };
    tg_artifact *a;
    tg_err e = {0};
    for (int round = 0; round < ROUNDS; round++) {
        char name[32];
        pid_t pids[N];
        snprintf(name, sizeof name, "many%d/x", round);
        for (int i = 0; i < N; i++) {
            pids[i] = fork();
            assert_true(pids[i] >= 0);
            if (pids[i] != 0) continue;
            tg_err mine = {0};
            tg_artifact_writer *w = fill(at(name), true);
            tg_status s = commit(w, &mine);
            if (s != TG_OK) fprintf(stderr, "%s\n", mine.msg);
            tg_artifact_writer_free(w);
            _exit(s == TG_OK ? 0 : 1);
        }
        for (int i = 0; i < N; i++) {
            int status;
            assert_int_equal(waitpid(pids[i], &status, 0), pids[i]);
            assert_int_equal(status, 0);
        }
        assert_ok(tg_artifact_open(&a, at(name), &e), &e);
        assert_ok(tg_artifact_verify(a, &e), &e);
        tg_artifact_close(a);
        *strchr(name, '/') = 0;
        assert_int_equal(count_names(at(name)), 1);
    }
}

/* Files of one export alone, and none that went while it was opened. */
static void what_is_opened_while_exports_replace_it_is_whole(void **state)
{
    (void)state;
    enum { N = 300 };
    tg_artifact *a;
    tg_err e = {0};
    int status, n_opened = 0;
    write_one(at("moving/x"), true);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        for (int i = 0; i < N; i++) {
            template = i % 2 ? "{{ messages }}" : "{{ documents }}";
            write_one(at("moving/x"), true);
        }
        _exit(0);
    }
    for (; waitpid(pid, &status, WNOHANG) == 0; n_opened++) {
        assert_ok(tg_artifact_open(&a, at("moving/x"), &e), &e);
        assert_ok(tg_artifact_verify(a, &e), &e);
        tg_artifact_close(a);
    }
    assert_int_equal(status, 0);
    assert_true(n_opened > 0);
}

/* Replaces one text by another of any length in a file. */
static void replace(const char *path, const char *from, const char *to)
{
    tg_buf text = {0}, changed = {0};
    tg_err e = {0};
    assert_ok(tg_file_load(&text, path, 1 << 20, &e), &e);
    char *hit = strstr(text.ptr, from);
    assert_non_null(hit);
    tg_buf_add(&changed, text.ptr, (size_t)(hit - text.ptr));
    tg_buf_add_cstr(&changed, to);
    tg_buf_add_cstr(&changed, hit + strlen(from));
    assert_ok(tg_file_save(path, tg_buf_str(&changed), &e), &e);
    tg_buf_deinit(&text);
    tg_buf_deinit(&changed);
}

static void damage_is_named_by_file(void **state)
{
    (void)state;
    tg_artifact *a;
    tg_err e = {0};
    write_one(at("d1"), false);
    replace(at("d1/artifact.json"), "\"toy\"", "\"boy\"");
    assert_refuses(at("d1"), "artifact.json is not what the export wrote");
    write_one(at("d2"), false);
    replace(at("d2/artifact.json"), "\"format\": 1", "\"format\": 2");
    assert_refuses(at("d2"), "the artifact has format 2, this program reads 1");
    write_one(at("d3"), false);
    assert_int_equal(truncate(at("d3/program.bin"), 100), 0);
    assert_refuses(at("d3"), "program.bin has 100 bytes where artifact.json says");
    write_one(at("d4"), false);
    save(at("d4/template.jinja"), "{{ Messages }}");
    assert_refuses(at("d4"), "template.jinja has not the checksum");
    write_one(at("d5"), false);
    assert_int_equal(unlink(at("d5/weights.0.bin")), 0);
    assert_refuses(at("d5"), "weights.0.bin: cannot open");
    write_one(at("d6"), false);
    assert_int_equal(truncate(at("d6/artifact.json"), 60), 0);
    assert_refuses(at("d6"), "artifact.json: line");
    assert_refuses(at("nowhere"), "is no artifact");
    save(at("d1/artifact.json"), "[]");
    assert_refuses(at("d1"), "artifact.json is no JSON object");

    /* Weights are looked at by verification alone. */
    write_one(at("d7"), false);
    int fd = open(at("d7/weights.0.bin"), O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 1000), 1);
    close(fd);
    assert_ok(tg_artifact_open(&a, at("d7"), &e), &e);
    assert_int_equal(tg_artifact_verify(a, &e), TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "weights.0.bin has not the checksum"));
    tg_artifact_close(a);
}

static void every_refused_allocation_leaves_neither_memory_nor_files(void **state)
{
    (void)state;
    int64_t before = tg_mem_n_alive();
    bool is_done = false;
    tg_err e = {0};
    assert_ok(tg_dir_make(at("fault"), &e), &e);
    for (int64_t n = 0; !is_done; n++) {
        tg_artifact_writer *w = NULL;
        handmade h;
        tg_buf block = {0};
        json_t *json = NULL;
        tg_file_writer *out;
        tg_artifact *a = NULL;
        hand_make(&h);
        e = (tg_err){0};
        const char *path = at("fault/x");
        tg_mem_fail_after(n);
        tg_status s = tg_json_parse(&json, TG_STR("{\"a\": 1}"), "t", &e);
        if (s == TG_OK) s = tg_artifact_writer_new(&w, path, true, &e);
        if (s == TG_OK) s = tg_program_print_block(&h.program, &block, &e);
        if (s == TG_OK) s = tg_artifact_writer_add(w, "program.bin", tg_buf_str(&block), &e);
        if (s == TG_OK) s = tg_artifact_writer_begin(w, "weights.0.bin", &out, &e);
        for (int64_t i = 0; s == TG_OK && i < h.program.weights_bytes; i++)
            s = tg_file_writer_write(out, "w", 1, &e);
        if (s == TG_OK) s = tg_artifact_writer_end(w, &e);
        if (s == TG_OK) s = tg_artifact_writer_commit(w, json, &e);
        if (s == TG_OK) s = tg_artifact_open(&a, path, &e);
        if (s == TG_OK) s = tg_artifact_verify(a, &e);
        tg_mem_fail_after(-1);
        if (s != TG_OK && s != TG_E_NOMEM) fail_msg("%s", e.msg);
        is_done = s == TG_OK;
        json_decref(json);
        tg_artifact_close(a);
        tg_artifact_writer_free(w);
        tg_buf_deinit(&block);
        assert_int_equal(tg_mem_n_alive(), before);
        assert_true(count_names(at("fault")) <= 1);
    }
}

/* The system refuses a write, as a full disk does; a limit on file sizes needs no disk of its own.
 * */
static void a_refused_write_is_one_sentence_and_leaves_nothing(void **state)
{
    (void)state;
    tg_artifact_writer *w;
    tg_err e = {0};
    struct rlimit old, small;
    assert_ok(tg_dir_make(at("full"), &e), &e);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &old), 0);
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    char *bytes = calloc(1, 1 << 20);
    assert_ok(tg_artifact_writer_new(&w, at("full/x"), false, &e), &e);
    small = (struct rlimit){65536, old.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    tg_status s = tg_artifact_writer_add(w, "program.bin", (tg_str){bytes, 1 << 20}, &e);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &old), 0);
    signal(SIGXFSZ, handler);
    free(bytes);
    assert_int_equal(s, TG_E_IO);
    assert_non_null(strstr(e.msg, "program.bin: cannot write: File too large"));
    tg_artifact_writer_free(w);
    assert_int_equal(count_names(at("full")), 0);
}

static int make_folder(void **state)
{
    (void)state;
    /* In memory where there is such a place: a commit syncs every file. */
    strcpy(folder, "/dev/shm/tg_artifact_XXXXXX");
    if (mkdtemp(folder)) return 0;
    strcpy(folder, "/tmp/tg_artifact_XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

static int remove_folder(void **state)
{
    (void)state;
    return tg_path_remove(folder, NULL) == TG_OK ? 0 : 1;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_found_when_opened),
        cmocka_unit_test(checksums_are_those_of_other_programs),
        cmocka_unit_test(writing_twice_gives_the_same_bytes),
        cmocka_unit_test(nothing_shows_before_commit_and_nothing_remains_of_an_abandoned_one),
        cmocka_unit_test(an_existing_artifact_is_replaced_only_by_force),
        cmocka_unit_test(what_is_no_artifact_is_never_replaced),
        cmocka_unit_test(force_replaces_artifacts_that_hold_nothing_else),
        cmocka_unit_test(remains_are_not_looked_for_behind_a_link),
        cmocka_unit_test(an_open_artifact_keeps_what_it_checked_when_files_are_written_over),
        cmocka_unit_test(a_foreign_folder_that_appears_meanwhile_is_not_replaced),
        cmocka_unit_test(a_file_that_the_format_does_not_have_is_refused),
        cmocka_unit_test(what_could_not_be_opened_is_not_put_in_place),
        cmocka_unit_test(remains_of_the_dead_go_and_work_of_the_living_stays),
        cmocka_unit_test(many_exports_to_one_place_all_succeed),
        cmocka_unit_test(what_is_opened_while_exports_replace_it_is_whole),
        cmocka_unit_test(damage_is_named_by_file),
        cmocka_unit_test(a_refused_write_is_one_sentence_and_leaves_nothing),
        cmocka_unit_test(every_refused_allocation_leaves_neither_memory_nor_files),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
