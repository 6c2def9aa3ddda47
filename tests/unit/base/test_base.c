/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fault.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/os.h"
#include "check.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

static void the_first_failure_wins(void **state)
{
    (void)state;
    tg_err e = {0};
    assert_int_equal(tg_fail(&e, TG_E_IO, "first %d", 1), TG_E_IO);
    assert_int_equal(tg_fail(&e, TG_E_CORRUPT, "second"), TG_E_CORRUPT);
    assert_string_equal(e.msg, "first 1");
    tg_err_context(&e, "%s", "file.gguf");
    assert_string_equal(e.msg, "file.gguf: first 1");
    assert_int_equal(e.status, TG_E_IO);
    assert_int_equal(tg_fail(NULL, TG_E_IO, "nobody listens"), TG_E_IO);
}

static void a_long_message_says_that_it_was_cut(void **state)
{
    (void)state;
    char words[2000];
    memset(words, 'x', sizeof words);
    words[sizeof words - 1] = 0;
    tg_err e = {0};
    tg_fail(&e, TG_E_IO, "%s", words);
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_string_equal(e.msg + sizeof e.msg - 4, "...");
    tg_err_context(&e, "%s", "path");
    assert_memory_equal(e.msg, "path: xxx", 9);
    assert_string_equal(e.msg + sizeof e.msg - 4, "...");
}

static void memory_is_zeroed_aligned_and_counted(void **state)
{
    (void)state;
    int64_t before = tg_mem_n_alive();
    for (size_t n = 0; n < 300; n += 7) {
        unsigned char *p = tg_mem_new(n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(p[i], 0);
        memset(p, 0xff, n);
        tg_mem_free(p);
    }
    assert_null(tg_mem_new(SIZE_MAX));
    assert_null(tg_mem_new_array(SIZE_MAX / 2, 3));
    assert_int_equal(tg_mem_n_alive(), before);
}

static void resizing_keeps_the_old_bytes_and_zeroes_the_new(void **state)
{
    (void)state;
    char *p = tg_mem_new(10);
    memset(p, 'a', 10);
    p = tg_mem_resize(p, 10, 200);
    assert_memory_equal(p, "aaaaaaaaaa", 10);
    for (int i = 10; i < 200; i++)
        assert_int_equal(p[i], 0);
    p = tg_mem_resize(p, 200, 3);
    assert_memory_equal(p, "aaa", 3);
    tg_mem_free(p);
}

static void a_reservation_is_zeroed_to_its_last_byte(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 4097, (2 << 20) - 1, (2 << 20) + 1, 5 << 20};
    for (size_t i = 0; i < TG_COUNT(sizes); i++) {
        char *p = tg_mem_reserve(sizes[i]);
        assert_non_null(p);
        tg_mem_prefer_large_pages(p, sizes[i]);
        for (size_t at = 0; at < sizes[i]; at += 4096)
            assert_int_equal(p[at], 0);
        if (sizes[i]) p[sizes[i] - 1]++;
        tg_mem_unreserve(p, sizes[i]);
    }
    assert_null(tg_mem_reserve(SIZE_MAX - 5));
}

static void an_arena_frees_everything_at_once(void **state)
{
    (void)state;
    int64_t before = tg_mem_n_alive();
    tg_arena a = {0};
    for (size_t n = 1; n < 300000; n = n * 3 + 1) {
        char *p = tg_arena_alloc(&a, n);
        assert_non_null(p);
        assert_int_equal((uintptr_t)p % 64, 0);
        assert_int_equal(p[0] | p[n - 1], 0);
        memset(p, 1, n);
    }
    assert_null(tg_arena_alloc(&a, SIZE_MAX - 5));
    assert_null(tg_arena_alloc_array(&a, SIZE_MAX / 4, 8));
    assert_string_equal(tg_arena_copy_str(&a, "hello", 4), "hell");
    tg_arena_deinit(&a);
    assert_int_equal(tg_mem_n_alive(), before);
}

static void the_nth_allocation_can_be_refused(void **state)
{
    (void)state;
    tg_mem_fail_after(2);
    void *a = tg_mem_new(1), *b = tg_mem_new(1);
    assert_non_null(a);
    assert_non_null(b);
    assert_null(tg_mem_new(1));
    assert_null(tg_mem_new(1));
    tg_mem_fail_after(-1);
    tg_mem_free(a);
    tg_mem_free(b);
}

static void allocating_inside_a_step_aborts(void **state)
{
    (void)state;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY);
        dup2(null, 2);
        signal(SIGABRT, SIG_DFL);
        tg_mem_lock_begin();
        _exit(tg_mem_new(1) ? 0 : 1);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) || WEXITSTATUS(status) > 1); /* sanitizers exit instead */
}

static void a_buffer_grows_and_reports_refused_memory_once(void **state)
{
    (void)state;
    tg_buf b = {0};
    assert_string_equal(tg_buf_cstr(&b), "");
    for (int i = 0; i < 1000; i++)
        tg_buf_printf(&b, "%d,", i);
    tg_buf_add_utf8(&b, 0x1f999);
    assert_int_equal(tg_buf_check(&b, NULL), TG_OK);
    assert_int_equal(b.len, 10 * 2 + 90 * 3 + 900 * 4 + 4);
    tg_buf_deinit(&b);

    tg_mem_fail_after(0);
    tg_buf_add_cstr(&b, "text");
    tg_mem_fail_after(-1);
    tg_buf_add_cstr(&b, "more");
    tg_err e = {0};
    assert_int_equal(tg_buf_check(&b, &e), TG_E_NOMEM);
    assert_int_equal(b.len, 0);
    tg_buf_deinit(&b);
}

static void escaped_text_is_safe_on_a_terminal(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_buf_add_escaped(&b, TG_STR("a\n\t\x1b[31m\xff\xc2\x9b"
                                  "\xc3\xa9\0z"));
    assert_string_equal(tg_buf_cstr(&b), "a\\n\\t\\x1b[31m\\xff\\xc2\\x9b\xc3\xa9\\x00z");
    tg_buf_deinit(&b);
}

/* Unicode 15, table 3-7: the well-formed byte sequences, by hand at every edge. */
static void utf8_follows_the_table_of_well_formed_sequences(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        int n;
        int32_t cp;
    } rows[] = {
        {"\x7f", 1, 0x7f},
        {"\xc2\x80", 2, 0x80},
        {"\xdf\xbf", 2, 0x7ff},
        {"\xe0\xa0\x80", 3, 0x800},
        {"\xed\x9f\xbf", 3, 0xd7ff},
        {"\xee\x80\x80", 3, 0xe000},
        {"\xf0\x90\x80\x80", 4, 0x10000},
        {"\xf4\x8f\xbf\xbf", 4, 0x10ffff},
        {"\x80", 0, 0},
        {"\xc0\x80", 0, 0},
        {"\xc1\xbf", 0, 0},
        {"\xe0\x9f\xbf", 0, 0},
        {"\xed\xa0\x80", 0, 0},
        {"\xf0\x8f\xbf\xbf", 0, 0},
        {"\xf4\x90\x80\x80", 0, 0},
        {"\xf5\x80\x80\x80", 0, 0},
        {"\xe2\x82", 0, 0},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        int32_t cp = 0;
        char back[4];
        assert_int_equal(tg_utf8_decode(rows[i].bytes, strlen(rows[i].bytes), &cp), rows[i].n);
        if (rows[i].n == 0) continue;
        assert_int_equal(cp, rows[i].cp);
        assert_int_equal(tg_utf8_encode(cp, back), rows[i].n);
        assert_memory_equal(back, rows[i].bytes, (size_t)rows[i].n);
    }
    char none[4];
    assert_int_equal(tg_utf8_encode(0xd800, none), 0);
    assert_int_equal(tg_utf8_find_invalid(TG_STR("ab\xff")), 2);
}

static void the_nearest_name_is_a_hint_and_not_a_guess(void **state)
{
    (void)state;
    static const char *const names[] = {"temperature", "top_p", "top_k", "seed"};
    assert_string_equal(tg_find_nearest_name("temprature", names, 4), "temperature");
    assert_string_equal(tg_find_nearest_name("top-p", names, 4), "top_p");
    assert_null(tg_find_nearest_name("xyzzy", names, 4));
}

static void numbers_are_whole_strings(void **state)
{
    (void)state;
    int64_t i;
    double f;
    assert_true(tg_parse_i64("-12", &i) && i == -12);
    assert_false(tg_parse_i64("12x", &i) || tg_parse_i64("", &i) || tg_parse_i64(" 1", &i) ||
                 tg_parse_i64("+1", &i) || tg_parse_i64("99999999999999999999", &i));
    assert_true(tg_parse_f64("0.5", &f) && f == 0.5);
    assert_false(tg_parse_f64("0.5.", &f) || tg_parse_f64("", &f) || tg_parse_f64("1e999", &f));
}

static void json_is_strict_and_names_the_place(void **state)
{
    (void)state;
    tg_err e = {0};
    json_t *v;
    assert_int_equal(tg_json_parse(&v, TG_STR("{\"a\": 1,\n \"a\": 2}"), "x.json", &e),
                     TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "x.json: line 2"));
    static const char *const bad[] = {"{", "{\"a\":NaN}", "[1,]", "{} {}", "\"\\ud800\"", ""};
    for (size_t i = 0; i < TG_COUNT(bad); i++)
        assert_int_equal(tg_json_parse(&v, tg_str_from_cstr(bad[i]), "x", NULL), TG_E_CORRUPT);

    tg_buf deep = {0};
    for (int i = 0; i < 100000; i++)
        tg_buf_add_byte(&deep, '[');
    assert_int_equal(tg_json_parse(&v, tg_buf_str(&deep), "x", NULL), TG_E_CORRUPT);
    tg_buf_deinit(&deep);
}

/* The value transformers writes for "no limit", and its kin. */
static void integers_beyond_64_bits_become_real_numbers(void **state)
{
    (void)state;
    json_t *v;
    tg_err e = {0};
    static const char text[] =
        "{\"a\": 1000000000000000019884624838656, \"b\": \"12345678901234567890123\","
        " \"c\": [-99999999999999999999, 0.12345678901234567890123],"
        " \"d\": 9223372036854775807, \"\\\"1\": 12345678901234567890e2}";
    assert_int_equal(tg_json_parse(&v, TG_STR(text), "x", &e), TG_OK);
    assert_true(json_real_value(json_object_get(v, "a")) == 1e30);
    assert_string_equal(json_string_value(json_object_get(v, "b")), "12345678901234567890123");
    const json_t *c = json_object_get(v, "c");
    assert_true(json_real_value(json_array_get(c, 0)) == -1e20);
    assert_true(json_real_value(json_array_get(c, 1)) == 0.12345678901234567890123);
    assert_true(json_real_value(json_object_get(v, "\"1")) == 12345678901234567890e2);
    json_decref(v);
    /* 300 digits and an exponent fit no double: an error with its place. */
    assert_int_equal(tg_json_parse(&v, TG_STR("[1,\n 1e400]"), "x", &e), TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "x: line 2"));
}

static void json_values_have_types_and_known_keys(void **state)
{
    (void)state;
    static const char *const known[] = {"batch", "max_length"};
    tg_err e = {0};
    json_t *v;
    assert_int_equal(tg_json_parse(&v, TG_STR("{\"batch\": \"4\", \"max_lenght\": null}"), "c", &e),
                     TG_OK);
    int64_t n = 7;
    bool is_present;
    assert_int_equal(tg_json_get_i64(v, "max_lenght", &n, &is_present, "c", &e), TG_OK);
    assert_false(is_present);
    assert_int_equal(tg_json_get_i64(v, "batch", &n, &is_present, "c", &e), TG_E_CORRUPT);
    assert_string_equal(e.msg, "c: key 'batch' is a string where an integer is needed");
    e = (tg_err){0};
    assert_int_equal(tg_json_check_keys(v, "c", known, 2, &e), TG_E_ARGUMENT);
    assert_string_equal(e.msg, "c: unknown key 'max_lenght'; did you mean 'max_length'?");
    json_decref(v);
}

static void a_saved_file_replaces_the_old_one_whole(void **state)
{
    (void)state;
    char dir[] = "/tmp/tg-base-XXXXXX";
    assert_non_null(mkdtemp(dir));
    tg_buf path = {0}, text = {0};
    tg_err e = {0};
    tg_path_join(&path, dir, "a");
    assert_int_equal(tg_file_save(path.ptr, TG_STR("one"), &e), TG_OK);
    assert_int_equal(tg_file_save(path.ptr, TG_STR("two"), &e), TG_OK);
    assert_int_equal(tg_file_load(&text, path.ptr, 100, &e), TG_OK);
    assert_string_equal(text.ptr, "two");
    assert_int_equal(tg_file_load(&text, path.ptr, 2, &e), TG_E_LIMIT);
    e = (tg_err){0};
    assert_int_equal(tg_file_save("/dev/full/x", TG_STR("x"), &e), TG_E_IO);

    tg_file_map m;
    e = (tg_err){0};
    assert_int_equal(tg_file_map_open(&m, dir, &e), TG_E_IO);
    assert_non_null(strstr(e.msg, "is a folder; a regular file is needed"));
    e = (tg_err){0};
    assert_int_equal(tg_file_map_open(&m, path.ptr, &e), TG_OK);
    assert_int_equal(m.n_bytes, 3);
    tg_file_map_close(&m);
    assert_int_equal(tg_path_remove(dir, &e), TG_OK);
    assert_false(tg_path_exists(dir));
    tg_buf_deinit(&path);
    tg_buf_deinit(&text);
}

/* Pieces smaller than the buffer, larger, and such that end inside and at its 2 MB; the file must
 * be the pieces one after another. */
static void a_file_is_its_pieces_whatever_their_sizes(void **state)
{
    (void)state;
    static const size_t sizes[] = {1, 4096, (2 << 20) - 4097, 3 << 20, 0, 5 << 20, 77, 2 << 20};
    tg_err e = {0};
    tg_file_writer *o;
    tg_file_map m;
    char path[] = "/tmp/tg-base-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    uint8_t *bytes = tg_mem_new(5 << 20);
    assert_non_null(bytes);
    assert_int_equal(tg_file_writer_open(&o, path, &e), TG_OK);
    size_t n_all = 0;
    for (size_t i = 0; i < TG_COUNT(sizes); n_all += sizes[i++]) {
        for (size_t k = 0; k < sizes[i]; k++)
            bytes[k] = (uint8_t)((n_all + k) * 2654435761u >> 13);
        assert_int_equal(tg_file_writer_write(o, bytes, sizes[i], &e), TG_OK);
        assert_int_equal(tg_file_writer_n_bytes(o), n_all + sizes[i]);
    }
    assert_int_equal(tg_file_writer_close(o, &e), TG_OK);
    assert_int_equal(tg_file_map_open(&m, path, &e), TG_OK);
    assert_int_equal(m.n_bytes, n_all);
    tg_file_map_expect_stream(&m);
    for (size_t i = 0; i < n_all; i++)
        if (m.data[i] != (uint8_t)(i * 2654435761u >> 13)) fail_msg("byte %zu differs", i);
    tg_file_map_close(&m);
    unlink(path);
    tg_mem_free(bytes);
}

/* Writes of many sizes against the copy that the watcher and the file must equal. */
static void watch_into_buf(void *context, const void *bytes, size_t n)
{
    tg_buf_add(context, bytes, n);
}

static void a_watcher_sees_what_the_file_gets_and_let_go_pages_return(void **state)
{
    (void)state;
    char dir[] = "/tmp/tg-base-XXXXXX";
    assert_non_null(mkdtemp(dir));
    tg_buf path = {0}, seen = {0}, want = {0};
    tg_err e = {0};
    tg_file_writer *o;
    tg_path_join(&path, dir, "a");
    assert_int_equal(tg_file_writer_open(&o, path.ptr, &e), TG_OK);
    tg_file_writer_watch(o, watch_into_buf, &seen);
    for (size_t n = 1; n < 6000000; n *= 5) { /* up to beyond the buffer: 9.8 MB in all */
        size_t at = want.len;
        for (size_t i = 0; i < n; i++)
            tg_buf_add_byte(&want, (char)(at + i * 7 % 251));
        assert_int_equal(tg_file_writer_write(o, want.ptr + at, n, &e), TG_OK);
    }
    assert_int_equal(tg_file_writer_pad(o, 4096, &e), TG_OK);
    while (want.len % 4096)
        tg_buf_add_byte(&want, 0);
    assert_int_equal(tg_file_writer_n_bytes(o), want.len);
    assert_int_equal(tg_file_writer_close(o, &e), TG_OK);
    assert_int_equal(seen.len, want.len);
    assert_memory_equal(seen.ptr, want.ptr, want.len);

    tg_file_map m;
    assert_int_equal(tg_file_map_open(&m, path.ptr, &e), TG_OK);
    assert_int_equal(m.n_bytes, want.len);
    assert_memory_equal(m.data, want.ptr, want.len);
    tg_file_map_release(&m, m.data + 5000, 100000);
    tg_file_map_release(&m, m.data, m.n_bytes);
    assert_memory_equal(m.data, want.ptr, want.len);
    tg_file_map_close(&m);
    assert_int_equal(tg_path_remove(dir, &e), TG_OK);
    tg_buf_deinit(&path);
    tg_buf_deinit(&seen);
    tg_buf_deinit(&want);
}

static void a_folder_is_exchanged_and_links_are_not_followed(void **state)
{
    (void)state;
    char dir[] = "/tmp/tg-base-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char a[64], b[64], keep[64], path[80];
    snprintf(a, sizeof a, "%s/new", dir);
    snprintf(b, sizeof b, "%s/old", dir);
    snprintf(keep, sizeof keep, "%s/keep", dir);
    tg_err e = {0};
    assert_int_equal(tg_dir_make(a, &e), TG_OK);
    assert_int_equal(tg_dir_make(b, &e), TG_OK);
    assert_int_equal(tg_dir_make(keep, &e), TG_OK);
    snprintf(path, sizeof path, "%s/link", b);
    assert_int_equal(symlink(keep, path), 0);
    snprintf(path, sizeof path, "%s/mark", a);
    assert_int_equal(tg_file_save(path, TG_STR("new"), &e), TG_OK);

    bool is_exchanged = false;
    int fd = open(dir, O_RDONLY | O_DIRECTORY);
    assert_int_equal(tg_path_exchange_at(fd, "new", fd, "old", &is_exchanged, &e), TG_OK);
    close(fd);
    assert_true(is_exchanged);
    assert_int_equal(tg_path_remove(a, &e), TG_OK);
    snprintf(path, sizeof path, "%s/mark", b);
    assert_true(tg_path_is_file(path));
    assert_false(tg_path_exists(a));
    assert_true(tg_path_is_dir(keep));

    tg_arena arena = {0};
    char **names;
    int32_t n;
    assert_int_equal(tg_dir_list(&arena, dir, &names, &n, &e), TG_OK);
    assert_int_equal(n, 2);
    assert_string_equal(names[0], "keep");
    tg_arena_deinit(&arena);

    snprintf(path, sizeof path, "%s/mark/below", b);
    assert_int_equal(tg_dir_make(path, &e), TG_E_IO);
    assert_non_null(strstr(e.msg, "mark"));
    assert_int_equal(tg_path_remove(dir, NULL), TG_OK);
}

static void a_lock_is_held_once(void **state)
{
    (void)state;
    char path[] = "/tmp/tg-lock-XXXXXX";
    close(mkstemp(path));
    int a, b;
    tg_err e = {0};
    assert_int_equal(tg_lock_acquire(&a, path, &e), TG_OK);
    assert_int_equal(tg_lock_try_at(&b, AT_FDCWD, path, &e), TG_E_BUSY);
    tg_lock_release(a);
    assert_int_equal(tg_lock_try_at(&b, AT_FDCWD, path, NULL), TG_OK);
    tg_lock_release(b);
    unlink(path);
}

/* Kinds of things in a file's place, and the words for each; none of them may be waited for. */
static void only_a_regular_file_is_read_and_nothing_else_is_waited_for(void **state)
{
    (void)state;
    char dir[] = "/tmp/tg-base-XXXXXX", fifo[64], loop[64];
    assert_non_null(mkdtemp(dir));
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    snprintf(loop, sizeof loop, "%s/loop", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(symlink(loop, loop), 0);
    const struct {
        const char *path, *words;
    } rows[] = {{fifo, "is a FIFO (a named pipe); a regular file is needed"},
                {"/dev/zero", "is a device; a regular file is needed"},
                {dir, "is a folder; a regular file is needed"},
                {loop, "Too many levels of symbolic links"}};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_file_map m;
        tg_buf text = {0};
        int64_t n, t;
        for (int way = 0; way < 4; way++) {
            tg_err e = {0};
            tg_status s = way == 0   ? tg_file_map_open(&m, rows[i].path, &e)
                          : way == 1 ? tg_file_copy_open_at(&m, AT_FDCWD, rows[i].path, 9, &e)
                          : way == 2 ? tg_file_load(&text, rows[i].path, 9, &e)
                                     : tg_file_stat(rows[i].path, &n, &t, &e);
            assert_int_equal(s, TG_E_IO);
            if (!strstr(e.msg, rows[i].words)) fail_msg("%s: not '%s'", e.msg, rows[i].words);
        }
    }
    assert_false(tg_path_is_dangling(loop));
    assert_int_equal(tg_path_remove(dir, NULL), TG_OK);
}

/* A pipe is waited for until somebody has written: the writer comes after the reader. */
static void a_stream_may_be_a_pipe_whose_writer_comes_later(void **state)
{
    (void)state;
    char dir[] = "/tmp/tg-base-XXXXXX", fifo[64];
    tg_buf text = {0};
    tg_err e = {0};
    int status;
    assert_non_null(mkdtemp(dir));
    snprintf(fifo, sizeof fifo, "%s/fifo", dir);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        usleep(100000);
        int fd = open(fifo, O_WRONLY);
        _exit(write(fd, "late", 4) == 4 ? 0 : 1);
    }
    assert_int_equal(tg_stream_load(&text, fifo, 100, &e), TG_OK);
    assert_string_equal(tg_buf_cstr(&text), "late");
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    tg_buf_deinit(&text);
    assert_int_equal(tg_path_remove(dir, NULL), TG_OK);
}

static void a_copy_keeps_its_bytes_when_the_file_changes(void **state)
{
    (void)state;
    char path[] = "/tmp/tg-base-XXXXXX";
    tg_file_map m;
    tg_err e = {0};
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "before", 6), 6);
    assert_int_equal(tg_file_copy_open_at(&m, AT_FDCWD, path, 5, &e), TG_E_LIMIT);
    e = (tg_err){0};
    assert_int_equal(tg_file_copy_open_at(&m, AT_FDCWD, path, 6, &e), TG_OK);
    assert_int_equal(pwrite(fd, "after!", 6, 0), 6);
    assert_memory_equal(m.data, "before", 6);
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_memory_equal(m.data, "before", 6);
    tg_file_map_close(&m);
    close(fd);
    unlink(path);
}

/* The child touches a page that its file has lost; the expected sentence gives both sizes, which
 * are the test's own. */
static void a_mapped_file_that_shrinks_is_one_sentence_and_leaves_no_temporary(void **state)
{
    (void)state;
    char dir[] = "/tmp/tg-base-XXXXXX", path[64], text[512] = "";
    int fds[2], status;
    tg_err e = {0};
    assert_non_null(mkdtemp(dir));
    assert_int_equal(pipe(fds), 0);
    snprintf(path, sizeof path, "%s/big", dir);
    int fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(ftruncate(fd, 100000), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        tg_file_map m;
        int dir_fd = open(dir, O_RDONLY | O_DIRECTORY);
        (void)!mkdirat(dir_fd, "tmp", 0700);
        (void)!mkdirat(dir_fd, "tmp/new", 0700);
        close(openat(dir_fd, "tmp/new/file", O_CREAT | O_WRONLY, 0600));
        tg_temporary_add(dir_fd, "tmp");
        dup2(fds[1], STDERR_FILENO);
        tg_faults_catch();
        if (tg_file_map_open(&m, path, &e) != TG_OK || ftruncate(fd, 5000) != 0) _exit(2);
        _exit(((volatile const uint8_t *)m.data)[90000] + 3);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_true(read(fds[0], text, sizeof text - 1) > 0);
    char want[512];
    snprintf(want, sizeof want,
             "trigraph: error: %s: had 100000 bytes when it was opened and has 5000 now; do not "
             "write to a file that is in use, fetch or export it again\n",
             path);
    assert_string_equal(text, want);
    snprintf(path, sizeof path, "%s/tmp", dir);
    assert_false(tg_path_exists(path));
    close(fd);
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(tg_path_remove(dir, NULL), TG_OK);
}

static void the_machine_answers(void **state)
{
    (void)state;
    int32_t ids[4];
    tg_err e = {0};
    int64_t n = -1;
    assert_true(tg_cpus_find(ids, 4) >= 1);
    assert_true(tg_memory_available_bytes() > 0);
    assert_true(tg_memory_peak_bytes() > 0);
    assert_int_equal(tg_disk_free_bytes(&n, "/tmp/not/there/yet", &e), TG_OK);
    assert_true(n >= 0);
    int64_t t = tg_time_ns();
    assert_true(tg_time_ns() >= t);
}

static void keep_line(void *context, const char *line)
{
    tg_buf_add_cstr(context, line);
}

static void warnings_can_be_taken_over(void **state)
{
    (void)state;
    tg_buf b = {0};
    tg_log_set_sink(keep_line, &b);
    tg_log_warn("key '%s' is ignored", "x");
    tg_log_note("no-such-topic", "silent");
    tg_log_set_sink(NULL, NULL);
    assert_string_equal(tg_buf_cstr(&b), "trigraph: warning: key 'x' is ignored");
    tg_buf_deinit(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_failure_wins),
        cmocka_unit_test(a_long_message_says_that_it_was_cut),
        cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
        cmocka_unit_test(resizing_keeps_the_old_bytes_and_zeroes_the_new),
        cmocka_unit_test(a_reservation_is_zeroed_to_its_last_byte),
        cmocka_unit_test(an_arena_frees_everything_at_once),
        cmocka_unit_test(the_nth_allocation_can_be_refused),
        cmocka_unit_test(allocating_inside_a_step_aborts),
        cmocka_unit_test(a_buffer_grows_and_reports_refused_memory_once),
        cmocka_unit_test(escaped_text_is_safe_on_a_terminal),
        cmocka_unit_test(utf8_follows_the_table_of_well_formed_sequences),
        cmocka_unit_test(the_nearest_name_is_a_hint_and_not_a_guess),
        cmocka_unit_test(numbers_are_whole_strings),
        cmocka_unit_test(json_is_strict_and_names_the_place),
        cmocka_unit_test(integers_beyond_64_bits_become_real_numbers),
        cmocka_unit_test(json_values_have_types_and_known_keys),
        cmocka_unit_test(a_saved_file_replaces_the_old_one_whole),
        cmocka_unit_test(a_file_is_its_pieces_whatever_their_sizes),
        cmocka_unit_test(a_watcher_sees_what_the_file_gets_and_let_go_pages_return),
        cmocka_unit_test(a_folder_is_exchanged_and_links_are_not_followed),
        cmocka_unit_test(a_lock_is_held_once),
        cmocka_unit_test(only_a_regular_file_is_read_and_nothing_else_is_waited_for),
        cmocka_unit_test(a_stream_may_be_a_pipe_whose_writer_comes_later),
        cmocka_unit_test(a_copy_keeps_its_bytes_when_the_file_changes),
        cmocka_unit_test(a_mapped_file_that_shrinks_is_one_sentence_and_leaves_no_temporary),
        cmocka_unit_test(the_machine_answers),
        cmocka_unit_test(warnings_can_be_taken_over),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
