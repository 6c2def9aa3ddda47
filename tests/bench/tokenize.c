/* SPDX-License-Identifier: Apache-2.0
 * tokenize.c - times the tokenizer for tests/bench/tokenize, which builds it.
 *
 * usage: tokenize TOKENIZER.json CONFIG.json|- DOCUMENT-BYTES SECONDS [-s] TEXT...
 *
 * Each TEXT is cut into documents of about that many bytes, behind the first line's end after them
 * (0: not cut), and encoded document by document until SECONDS are over, at least once; -s asks for
 * the bytes of every id too. One line a text: its name, bytes, ids, a sum over them, seconds of the
 * fastest pass, seconds of all passes, their number, and the peak of memory in KiB. A line before
 * gives the seconds of compiling and opening and the bytes of the blob. */
#include "base/base.h"
#include "base/file.h"
#include "base/mem.h"
#include "token/compile/tokcompile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void die(const char *what, const tg_err *e)
{
    fprintf(stderr, "tokenize: error: %s: %s\n", what, e->msg);
    exit(1);
}

/* Where the document that begins at `at` ends. */
static size_t document_end(tg_str text, size_t at, size_t want)
{
    if (!want || text.len - at <= want) return text.len;
    const char *p = memchr(text.ptr + at + want, '\n', text.len - at - want);
    return p ? (size_t)(p - text.ptr) + 1 : text.len;
}

static void encode_all(tg_ids *ids, tg_spans *spans, const tg_tokenizer *t, tg_str text,
                       size_t want)
{
    tg_err e = {0};
    tg_encode_options o = {.parse_special = true, .spans = spans};
    tg_ids_clear(ids);
    if (spans) tg_spans_clear(spans);
    for (size_t at = 0, end; at < text.len; at = end) {
        end = document_end(text, at, want);
        if (tg_tokenizer_encode(ids, t, (tg_str){text.ptr + at, end - at}, &o, &e) != TG_OK)
            die("encoding", &e);
    }
}

static void measure(const tg_tokenizer *t, const char *path, size_t want, double seconds,
                    bool has_spans)
{
    tg_err e = {0};
    tg_buf text = {0};
    tg_ids ids = {0};
    tg_spans spans = {0};
    if (tg_file_load(&text, path, SIZE_MAX, &e) != TG_OK) die(path, &e);
    double begin = now(), best = 1e30, all = 0;
    int n = 0;
    do {
        double from = now();
        encode_all(&ids, has_spans ? &spans : NULL, t, tg_buf_str(&text), want);
        double took = now() - from;
        best = TG_MIN(best, took);
        all += took;
        n++;
    } while (now() - begin < seconds);
    uint64_t sum = 0;
    for (size_t i = 0; i < ids.len; i++)
        sum = (sum * 31 + (uint64_t)ids.ptr[i]) % 2147483647u;
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    const char *name = strrchr(path, '/');
    printf("%s %zu %zu %llu %.6f %.6f %d %lld\n", name ? name + 1 : path, text.len, ids.len,
           (unsigned long long)sum, best, all, n, (long long)use.ru_maxrss);
    fflush(stdout);
    tg_buf_deinit(&text);
    tg_ids_deinit(&ids);
    tg_spans_deinit(&spans);
}

int main(int argc, char **argv)
{
    tg_err e = {0};
    tg_buf json = {0}, config = {0}, blob = {0};
    tg_tokenizer *t = NULL;
    if (argc < 6) {
        fprintf(stderr, "usage: tokenize TOKENIZER.json CONFIG.json|- DOCUMENT-BYTES SECONDS [-s] "
                        "TEXT...\n");
        return 2;
    }
    if (tg_file_load(&json, argv[1], SIZE_MAX, &e) != TG_OK) die(argv[1], &e);
    if (strcmp(argv[2], "-") != 0 && tg_file_load(&config, argv[2], SIZE_MAX, &e) != TG_OK)
        die(argv[2], &e);
    double begin = now();
    if (tg_tokenizer_compile_json(&blob, tg_buf_str(&json), tg_buf_str(&config), &e) != TG_OK)
        die(argv[1], &e);
    double compiled = now();
    if (tg_tokenizer_open(&t, blob.ptr, blob.len, &e) != TG_OK) die(argv[1], &e);
    printf("%.6f %.6f %zu\n", compiled - begin, now() - compiled, blob.len);
    int first = 5;
    bool has_spans = strcmp(argv[first], "-s") == 0;
    for (int i = first + has_spans; i < argc; i++)
        measure(t, argv[i], (size_t)strtoull(argv[3], NULL, 10), strtod(argv[4], NULL), has_spans);
    tg_tokenizer_close(t);
    tg_buf_deinit(&json);
    tg_buf_deinit(&config);
    tg_buf_deinit(&blob);
    return 0;
}
