/* SPDX-License-Identifier: Apache-2.0
 * test_engine.c - requests through the public API: batches, sampling, stops, streaming, reuse,
 * cancelling, errors.
 *
 * On the small model that prequantize. Expected completions are never taken from the request
 * under test: a batch is held against requests alone, a stream against the detokenized whole, a
 * stop against a search in the text without it. */
#include "base/mem.h"
#include "parity.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>

enum { MAX = 64, BATCH = 3 };

static const char *const source = "tests/tiny/offline";

typedef struct fixture {
    tg_model *model;
    tg_engine *engine;
} fixture;

static void open_fixture(fixture *f, int32_t batch, int32_t max_length)
{
    char name[64];
    tg_err e = {0};
    tg_export_options o = {.batch = batch,
                           .max_length = max_length,
                           .speculation = 4,
                           .has_speculation = true,
                           .weights = "q8_0"};
    tg_engine_options g = {.n_threads = 2};
    snprintf(name, sizeof name, "engine-%d-%d", batch, max_length);
    if (tg_model_open(&f->model, parity_export(source, name, &o), &e) != TG_OK)
        fail_msg("%s", e.msg);
    if (tg_engine_open(&f->engine, f->model, &g, &e) != TG_OK) fail_msg("%s", e.msg);
}

static void close_fixture(fixture *f)
{
    tg_engine_close(f->engine);
    tg_model_close(f->model);
}

/* A prompt's ids as the chat template writes it. */
static int32_t make_prompt(const fixture *f, const char *question, int32_t *ids)
{
    char messages[256], *text;
    size_t n_bytes;
    tg_tokens list;
    const tg_text *t = tg_model_get_text(f->model);
    tg_tokenize_options as_rendered = {.no_add_special = true};
    tg_err e = {0};
    snprintf(messages, sizeof messages, "[{\"role\": \"user\", \"content\": \"%s\"}]", question);
    if (tg_text_render_chat(&text, &n_bytes, t, messages, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_text_tokenize(&list, t, text, n_bytes, &as_rendered, &e) != TG_OK) fail_msg("%s", e.msg);
    int32_t n = list.n;
    assert_true(n > 0 && n <= MAX);
    memcpy(ids, list.ids, (size_t)n * sizeof *ids);
    tg_tokens_deinit(&list);
    tg_free(text);
    return n;
}

static const char *const questions[BATCH] = {"What is the capital of France?", "Who are you?",
                                             "How many legs does a spider have?"};

static tg_request *submit(fixture *f, const int32_t *ids, int32_t n, const tg_request_options *o)
{
    tg_request *r;
    tg_err e = {0};
    if (tg_engine_submit(&r, f->engine, ids, n, o, &e) != TG_OK) fail_msg("%s", e.msg);
    return r;
}

static void wait_for(tg_request *r)
{
    tg_err e = {0};
    if (tg_request_wait(r, &e) != TG_OK) fail_msg("%s", e.msg);
}

/* The answer's ids, copied. */
static int32_t take_tokens(const tg_request *r, int32_t *out)
{
    int32_t n;
    const int32_t *t = tg_request_get_tokens(r, &n);
    assert_true(n <= MAX);
    if (n) memcpy(out, t, (size_t)n * sizeof *out);
    return n;
}

static int32_t answer(fixture *f, const char *question, const tg_request_options *o, int32_t *out)
{
    int32_t ids[MAX];
    tg_request *r = submit(f, ids, make_prompt(f, question, ids), o);
    wait_for(r);
    int32_t n = take_tokens(r, out);
    tg_request_free(r);
    return n;
}

static void check_batch_against_alone(const tg_request_options *o)
{
    fixture alone, batch;
    open_fixture(&alone, 1, 128);
    open_fixture(&batch, BATCH, 128);
    tg_request *r[BATCH];
    int32_t ids[MAX], want[MAX], got[MAX];
    for (int i = 0; i < BATCH; i++)
        r[i] = submit(&batch, ids, make_prompt(&batch, questions[i], ids), o);
    for (int i = 0; i < BATCH; i++) {
        wait_for(r[i]);
        int32_t n = answer(&alone, questions[i], o, want);
        assert_true(n > 0);
        assert_int_equal(take_tokens(r[i], got), n);
        assert_memory_equal(got, want, (size_t)n * sizeof *got);
        tg_request_free(r[i]);
    }
    close_fixture(&batch);
    close_fixture(&alone);
}

static void a_batch_answers_as_each_alone(void **state)
{
    (void)state;
    check_batch_against_alone(&(tg_request_options){.max_tokens = 40});
}

static void sampled_tokens_do_not_depend_on_neighbors(void **state)
{
    (void)state;
    check_batch_against_alone(&(tg_request_options){
        .max_tokens = 40, .sampling = {.temperature = 1.5f, .top_p = 0.95f, .seed = 7}});
    /* Each row with penalties of its own, strong enough to change every answer. */
    check_batch_against_alone(&(tg_request_options){
        .max_tokens = 40,
        .ignore_eos = true,
        .sampling = {.temperature = 1, .seed = 7, .repeat_penalty = 3, .presence_penalty = 2}});
    check_batch_against_alone(&(tg_request_options){
        .max_tokens = 40, .ignore_eos = true, .sampling = {.repeat_penalty = 2}});
}

static void seeds_and_sample_indices_tell_answers_apart(void **state)
{
    (void)state;
    fixture f;
    int32_t first[MAX], again[MAX], other[MAX];
    open_fixture(&f, 1, 128);
    tg_request_options o = {
        .max_tokens = 30, .ignore_eos = true, .sampling = {.temperature = 3, .seed = 42}};
    assert_int_equal(answer(&f, questions[0], &o, first), 30);
    assert_int_equal(answer(&f, questions[0], &o, again), 30);
    assert_memory_equal(first, again, 30 * sizeof *first);
    o.sampling.sample_index = 1;
    assert_int_equal(answer(&f, questions[0], &o, other), 30);
    assert_memory_not_equal(first, other, 30 * sizeof *first);
    o.sampling = (tg_sampling){.temperature = 3, .seed = 43};
    assert_int_equal(answer(&f, questions[0], &o, other), 30);
    assert_memory_not_equal(first, other, 30 * sizeof *first);
    close_fixture(&f);
}

typedef struct stream {
    char text[4096];
    size_t n_bytes;
    int32_t n_ids, n_most;
} stream;

static bool keep_text(void *context, const char *text, size_t n_bytes, const int32_t *ids,
                      int32_t n_ids)
{
    stream *s = context;
    assert_true(s->n_bytes + n_bytes < sizeof s->text);
    assert_true(n_ids == 0 || ids);
    memcpy(s->text + s->n_bytes, text, n_bytes);
    s->n_bytes += n_bytes;
    s->text[s->n_bytes] = 0;
    s->n_ids += n_ids;
    return s->n_most > 0 && s->n_ids >= s->n_most;
}

/* The text of an answer as the callback saw it, and its ids. */
static tg_finish run_stream(fixture *f, const tg_request_options *options, stream *s,
                            int32_t *tokens, int32_t *n)
{
    int32_t ids[MAX];
    tg_request_options o = *options;
    o.on_text = keep_text;
    o.context = s;
    tg_request *r = submit(f, ids, make_prompt(f, questions[0], ids), &o);
    wait_for(r);
    *n = take_tokens(r, tokens);
    tg_finish finish = tg_request_get_stats(r).finish;
    tg_request_free(r);
    return finish;
}

static void the_stream_equals_the_detokenized_whole(void **state)
{
    (void)state;
    fixture f;
    stream s = {.n_bytes = 0};
    int32_t tokens[MAX], n, ids[MAX];
    char *whole;
    size_t n_whole, n_read = 0;
    open_fixture(&f, 1, 128);
    tg_request_options o = {
        .max_tokens = 50, .ignore_eos = true, .sampling = {.temperature = 4, .seed = 3}};
    assert_int_equal(run_stream(&f, &o, &s, tokens, &n), TG_FINISH_LENGTH);
    assert_int_equal(n, 50);
    assert_int_equal(s.n_ids, 50);
    assert_int_equal(
        tg_text_detokenize(&whole, &n_whole, tg_model_get_text(f.model), tokens, n, true, NULL),
        TG_OK);
    assert_int_equal(s.n_bytes, n_whole);
    assert_memory_equal(s.text, whole, n_whole);

    /* The same by reading. */
    tg_request *r = submit(&f, ids, make_prompt(&f, questions[0], ids), &o);
    for (bool is_idle = false; !is_idle;) {
        size_t k;
        assert_int_equal(tg_engine_step(f.engine, &is_idle, NULL), TG_OK);
        const char *piece = tg_request_read(r, &k);
        assert_true(n_read + k <= n_whole);
        assert_memory_equal(piece, whole + n_read, k);
        n_read += k;
    }
    assert_int_equal(n_read, n_whole);
    tg_request_free(r);
    tg_free(whole);
    close_fixture(&f);
}

/* For every stop string cut out of the whole text: the answer is the text before its first
 * occurrence. */
static void a_stop_string_ends_the_text_before_it(void **state)
{
    (void)state;
    fixture f;
    stream whole = {.n_bytes = 0};
    int32_t tokens[MAX], n;
    open_fixture(&f, 1, 128);
    tg_request_options o = {.max_tokens = 30};
    run_stream(&f, &o, &whole, tokens, &n);
    assert_true(whole.n_bytes > 8);
    for (size_t at = 1; at + 3 < whole.n_bytes; at++)
        for (size_t len = 1; len <= 3; len++) {
            char stop[8] = {0};
            memcpy(stop, whole.text + at, len);
            const char *stops[] = {"never there", stop};
            stream s = {.n_bytes = 0};
            o.stop = stops;
            o.n_stop = 2;
            assert_int_equal(run_stream(&f, &o, &s, tokens, &n), TG_FINISH_STOP);
            size_t want = (size_t)(strstr(whole.text, stop) - whole.text);
            assert_int_equal(s.n_bytes, want);
            assert_memory_equal(s.text, whole.text, want);
        }
    close_fixture(&f);
}

static void a_repeated_prompt_costs_one_token(void **state)
{
    (void)state;
    fixture f;
    int32_t ids[MAX], first[MAX], second[MAX];
    open_fixture(&f, 1, 128);
    int32_t n = make_prompt(&f, questions[2], ids);
    tg_request_options o = {.max_tokens = 20};
    tg_request *a = submit(&f, ids, n, &o);
    wait_for(a);
    assert_int_equal(tg_request_get_stats(a).n_cached_tokens, 0);
    int32_t n_first = take_tokens(a, first);

    tg_request *b = submit(&f, ids, n, &o);
    wait_for(b);
    assert_int_equal(tg_request_get_stats(b).n_cached_tokens, n - 1);
    assert_int_equal(take_tokens(b, second), n_first);
    assert_memory_equal(first, second, (size_t)n_first * sizeof *first);

    /* The conversation goes on: prompt, answer, and a few ids more. The last id drawn was never
     * read. */
    memcpy(ids + n, first, (size_t)n_first * sizeof *ids);
    ids[n + n_first] = ids[1];
    tg_request *c = submit(&f, ids, n + n_first + 1, &o);
    wait_for(c);
    int32_t cached = tg_request_get_stats(c).n_cached_tokens;
    assert_true(cached == n + n_first || cached == n + n_first - 1);
    int32_t n_reused = take_tokens(c, first);

    fixture fresh;
    open_fixture(&fresh, 1, 128);
    tg_request *d = submit(&fresh, ids, n + n_first + 1, &o);
    wait_for(d);
    assert_int_equal(take_tokens(d, second), n_reused);
    assert_memory_equal(first, second, (size_t)n_reused * sizeof *first);
    tg_request_free(a);
    tg_request_free(b);
    tg_request_free(c);
    tg_request_free(d);
    close_fixture(&fresh);
    close_fixture(&f);
}

static void an_answer_ends_where_its_row_is_full(void **state)
{
    (void)state;
    fixture f;
    int32_t ids[MAX];
    open_fixture(&f, 1, 48);
    int32_t n = make_prompt(&f, questions[0], ids);
    tg_request *r = submit(&f, ids, n, &(tg_request_options){.ignore_eos = true});
    wait_for(r);
    tg_request_stats s = tg_request_get_stats(r);
    assert_int_equal(s.finish, TG_FINISH_LENGTH);
    assert_int_equal(s.n_prompt_tokens + s.n_completion_tokens, 48);
    tg_request_free(r);
    close_fixture(&f);
}

static void a_cancelled_request_leaves_its_row_to_others(void **state)
{
    (void)state;
    fixture f;
    stream s = {.n_most = 3};
    int32_t tokens[MAX], n, want[MAX], ids[MAX];
    open_fixture(&f, 1, 128);
    tg_request_options o = {.max_tokens = 40, .ignore_eos = true};
    assert_int_equal(run_stream(&f, &o, &s, tokens, &n), TG_FINISH_CANCELLED);
    assert_true(n >= 3 && n < 40);

    /* One that waits is cancelled before it got a row; the other is not disturbed. */
    assert_int_equal(answer(&f, questions[1], &o, want), 40);
    tg_request *a = submit(&f, ids, make_prompt(&f, questions[1], ids), &o);
    tg_request *b = submit(&f, ids, make_prompt(&f, questions[2], ids), &o);
    tg_request_cancel(b);
    wait_for(b);
    assert_int_equal(tg_request_get_stats(b).finish, TG_FINISH_CANCELLED);
    wait_for(a);
    assert_int_equal(take_tokens(a, tokens), 40);
    assert_memory_equal(tokens, want, 40 * sizeof *want);
    tg_request_free(b);
    tg_request_free(a);
    tg_request *dropped = submit(&f, ids, make_prompt(&f, questions[2], ids), &o);
    tg_request_free(dropped); /* never stepped */
    close_fixture(&f);
}

static void check_refused(fixture *f, const int32_t *ids, int32_t n, const tg_request_options *o,
                          tg_status status, const char *words)
{
    tg_request *r;
    tg_err e = {0};
    assert_int_equal(tg_engine_submit(&r, f->engine, ids, n, o, &e), status);
    assert_null(r);
    if (!strstr(e.msg, words)) fail_msg("'%s' does not say '%s'", e.msg, words);
}

static void what_cannot_be_answered_is_refused_with_its_number(void **state)
{
    (void)state;
    fixture f;
    int32_t ids[128] = {0};
    const char *empty[] = {""};
    open_fixture(&f, 1, 128);
    int32_t n_rows = tg_model_get_info(f.model).n_embed_rows;
    tg_request_options o = {0};
    check_refused(&f, ids, 0, &o, TG_E_ARGUMENT, "no tokens");
    check_refused(&f, ids, 128, &o, TG_E_LIMIT, "128 tokens and the model's max-length is 128");
    ids[1] = n_rows;
    char words[64];
    snprintf(words, sizeof words, "token 1 of the prompt is id %d", n_rows);
    check_refused(&f, ids, 3, &o, TG_E_ARGUMENT, words);
    ids[1] = -1;
    check_refused(&f, ids, 3, &o, TG_E_ARGUMENT, "id -1");
    ids[1] = 0;
    check_refused(&f, ids, 3, &(tg_request_options){.sampling = {.top_p = 7}}, TG_E_ARGUMENT,
                  "top_p is 7");
    check_refused(&f, ids, 3, &(tg_request_options){.sampling = {.temperature = NAN}},
                  TG_E_ARGUMENT, "temperature is");
    check_refused(&f, ids, 3, &(tg_request_options){.max_tokens = -1}, TG_E_ARGUMENT,
                  "max_tokens is -1");
    check_refused(&f, ids, 3, &(tg_request_options){.stop = empty, .n_stop = 1}, TG_E_ARGUMENT,
                  "stop string 1 is empty");
    close_fixture(&f);
}

/* A folder of that name with the small model's files, but for generation_config.json. */
static const char *copy_source(const char *name)
{
    static char folder[256];
    char path[300];
    tg_buf bytes = {0};
    tg_err e = {0};
    static const char *const files[] = {"chat_template.jinja", "config.json", "model.safetensors",
                                        "tokenizer.json", "tokenizer_config.json"};
    snprintf(folder, sizeof folder, "%s/%s", parity_dir(), name);
    assert_int_equal(tg_dir_make(folder, &e), TG_OK);
    for (size_t i = 0; i < TG_COUNT(files); i++) {
        snprintf(path, sizeof path, "%s/%s", source, files[i]);
        tg_buf_clear(&bytes);
        assert_int_equal(tg_file_load(&bytes, path, 1 << 26, &e), TG_OK);
        snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        assert_int_equal(tg_file_save(path, tg_buf_str(&bytes), &e), TG_OK);
    }
    tg_buf_deinit(&bytes);
    return folder;
}

/* The small model as if its makers had written that generation_config.json. */
static void open_with_defaults(const char *name, const char *generation_config, tg_model **m)
{
    char path[300];
    tg_err e = {0};
    const char *folder = copy_source(name);
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    assert_int_equal(tg_file_save(path, tg_str_from_cstr(generation_config), &e), TG_OK);
    snprintf(path, sizeof path, "%s.tg", name);
    if (tg_model_open(m, parity_export(folder, path, NULL), &e) != TG_OK) fail_msg("%s", e.msg);
}

/* transformers samples only with do_sample, and then with temperature 1 and top_k 50 where the
 * file is silent (GenerationConfig's documented defaults). */
static void the_makers_sampling_is_taken_when_they_ask_for_it(void **state)
{
    (void)state;
    tg_model *m;
    open_with_defaults("sampled",
                       "{\"do_sample\": true, \"top_p\": 0.9, \"repetition_penalty\": 1.5}", &m);
    tg_sampling s = tg_model_get_sampling(m);
    assert_true(s.temperature == 1.0f && s.top_p == 0.9f && s.repeat_penalty == 1.5f);
    assert_true(s.top_k == 50 && s.min_p == 0.0f);
    tg_model_close(m);

    open_with_defaults("greedy", "{\"temperature\": 0.7, \"top_p\": 0.9}", &m);
    s = tg_model_get_sampling(m);
    assert_true(s.temperature == 0.0f && s.top_p == 0.0f && s.top_k == 0);
    tg_model_close(m);
}

/* Every id that generation_config names ends an answer: here the first one the model would say. */
static void every_stop_id_of_the_makers_ends_an_answer(void **state)
{
    (void)state;
    fixture f;
    char config[64];
    int32_t whole[MAX], got[MAX];
    tg_request_options o = {.max_tokens = 20};
    open_with_defaults("unstopped", "{}", &f.model);
    assert_int_equal(tg_engine_open(&f.engine, f.model, NULL, NULL), TG_OK);
    int32_t n = answer(&f, questions[0], &o, whole);
    close_fixture(&f);
    assert_true(n > 3);
    snprintf(config, sizeof config, "{\"eos_token_id\": [1, %d]}", whole[2]);
    open_with_defaults("stops", config, &f.model);
    assert_int_equal(tg_engine_open(&f.engine, f.model, NULL, NULL), TG_OK);
    assert_int_equal(answer(&f, questions[0], &o, got), 2);
    assert_memory_equal(got, whole, 2 * sizeof *got);
    o.ignore_eos = true;
    assert_int_equal(answer(&f, questions[0], &o, got), 20);
    close_fixture(&f);
}

static void an_end_beyond_the_models_ids_is_refused(void **state)
{
    (void)state;
    char path[300];
    tg_err e = {0};
    const char *folder = copy_source("endless");
    snprintf(path, sizeof path, "%s/generation_config.json", folder);
    assert_int_equal(tg_file_save(path, tg_str_from_cstr("{\"eos_token_id\": [2, 99999]}"), &e),
                     TG_OK);
    snprintf(path, sizeof path, "%s/endless.tg", parity_dir());
    assert_int_equal(tg_export(folder, path, NULL, &e), TG_E_CORRUPT);
    if (!strstr(e.msg, "token 99999 ends a completion")) fail_msg("%s", e.msg);
    assert_false(tg_artifact_is_at(path));
}

/* A weight that is NaN: the request ends with an error, and says where. */
static void a_model_that_is_not_finite_ends_the_request(void **state)
{
    (void)state;
    char path[300], artifact[300];
    tg_buf bytes = {0};
    tg_err e = {0};
    const char *folder = copy_source("nan");
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    assert_int_equal(tg_file_load(&bytes, path, 1 << 26, &e), TG_OK);
    /* The file's last bytes belong to its last tensor: bf16 0xffff is NaN. */
    memset(bytes.ptr + bytes.len - 64, 0xff, 64);
    assert_int_equal(tg_file_save(path, tg_buf_str(&bytes), &e), TG_OK);
    snprintf(artifact, sizeof artifact, "%s/nan.tg", parity_dir());
    tg_export_options o = {.weights = "f32"};
    if (tg_export(folder, artifact, &o, &e) != TG_OK) fail_msg("%s", e.msg);

    fixture f;
    int32_t ids[] = {1, 2, 3};
    assert_int_equal(tg_model_open(&f.model, artifact, &e), TG_OK);
    assert_int_equal(tg_engine_open(&f.engine, f.model, NULL, &e), TG_OK);
    tg_request *r = submit(&f, ids, 3, NULL);
    assert_int_equal(tg_request_wait(r, &e), TG_E_NUMERIC);
    assert_non_null(strstr(e.msg, "not finite"));
    assert_int_equal(tg_request_get_stats(r).finish, TG_FINISH_ERROR);
    tg_request_free(r);
    close_fixture(&f);
    tg_buf_deinit(&bytes);
}

static void count_line(void *context, const char *line)
{
    assert_non_null(strstr(line, "into the cache"));
    ++*(int *)context;
}

/* Found again, until a file of the entry is damaged: then made again, once. */
static void a_cached_artifact_that_does_not_open_is_made_anew(void **state)
{
    (void)state;
    char cache[256], path[400];
    int n_exports = 0;
    static const int wanted[] = {1, 1, 2, 2};
    tg_export_options o = {.context = &n_exports};
    tg_err e = {0};
    snprintf(cache, sizeof cache, "%s/cache", parity_dir());
    assert_int_equal(setenv("TG_CACHE_DIR", cache, 1), 0);
    for (size_t i = 0; i < TG_COUNT(wanted); i++) {
        char *dir;
        if (tg_cache_find(&dir, source, &o, count_line, &e) != TG_OK) fail_msg("%s", e.msg);
        assert_int_equal(n_exports, wanted[i]);
        snprintf(path, sizeof path, "%s/tokenizer.bin", dir);
        assert_true(tg_path_is_file(path));
        if (i == 1) assert_int_equal(tg_file_save(path, TG_STR("no tokenizer"), &e), TG_OK);
        tg_free(dir);
    }
    unsetenv("TG_CACHE_DIR");
}

/* ---- the engine's own thread */

typedef struct client {
    fixture *f;
    int32_t ids[MAX], n, tokens[MAX], n_tokens;
} client;

static void *run_client(void *arg)
{
    client *c = arg;
    tg_request *r;
    tg_request_options o = {.max_tokens = 25};
    for (int i = 0; i < 3; i++) {
        if (tg_engine_submit(&r, c->f->engine, c->ids, c->n, &o, NULL) != TG_OK) return NULL;
        if (tg_request_wait(r, NULL) == TG_OK) c->n_tokens = take_tokens(r, c->tokens);
        tg_request_free(r);
    }
    return NULL;
}

static void many_threads_share_an_engine_that_steps_itself(void **state)
{
    (void)state;
    enum { CLIENTS = 4 };
    fixture f;
    client clients[CLIENTS];
    pthread_t threads[CLIENTS];
    int32_t want[MAX];
    open_fixture(&f, BATCH, 128); /* fewer rows than clients */
    assert_int_equal(tg_engine_start(f.engine, NULL), TG_OK);
    for (int i = 0; i < CLIENTS; i++) {
        clients[i] = (client){.f = &f};
        clients[i].n = make_prompt(&f, questions[i % BATCH], clients[i].ids);
        assert_int_equal(pthread_create(&threads[i], NULL, run_client, &clients[i]), 0);
    }
    for (int i = 0; i < CLIENTS; i++)
        pthread_join(threads[i], NULL);
    tg_engine_stop(f.engine);
    for (int i = 0; i < CLIENTS; i++) {
        int32_t n = answer(&f, questions[i % BATCH], &(tg_request_options){.max_tokens = 25}, want);
        assert_int_equal(clients[i].n_tokens, n);
        assert_memory_equal(clients[i].tokens, want, (size_t)n * sizeof *want);
    }
    close_fixture(&f);
}

static void refused_memory_is_an_error_wherever_it_happens(void **state)
{
    (void)state;
    tg_export_options o = {.max_length = 64};
    const char *artifact = parity_export(source, "fault", &o);
    int64_t alive = tg_mem_n_alive();
    int n;
    for (n = 0;; n++) {
        tg_model *m = NULL;
        tg_engine *g = NULL;
        tg_err e = {0};
        tg_engine_options one = {.n_threads = 1};
        tg_mem_fail_after(n);
        tg_status s = tg_model_open(&m, artifact, &e);
        if (s == TG_OK) s = tg_engine_open(&g, m, &one, &e);
        tg_mem_fail_after(-1);
        tg_engine_close(g);
        tg_model_close(m);
        assert_int_equal(tg_mem_n_alive(), alive);
        if (s == TG_OK) break;
        if (s != TG_E_NOMEM) fail_msg("allocation %d refused: %s", n, e.msg);
    }
    assert_true(n > 20);
}

/* Steps and tokens of one kind in a profile. */
static void check_counts(tg_engine *g, const char *step, int64_t n_steps, int64_t n_tokens)
{
    tg_op_cost costs[TG_MAX_COSTS];
    int32_t n = tg_engine_read_profile(g, costs, TG_MAX_COSTS), n_found = 0;
    assert_true(n > 0 && n <= TG_MAX_COSTS);
    for (int32_t i = 0; i < n; i++) {
        if (strcmp(costs[i].step, step) != 0) continue;
        assert_int_equal(costs[i].n_steps, n_steps);
        assert_int_equal(costs[i].n_tokens, n_tokens);
        assert_true(costs[i].seconds >= 0);
        n_found++;
    }
    assert_true(n_found > 0);
}

static void measuring_counts_its_steps_and_changes_no_answer(void **state)
{
    (void)state;
    fixture f;
    tg_err e = {0};
    tg_request_options o = {.max_tokens = 20};
    int32_t want[MAX], got[MAX], n_tokens[] = {1, 3, 5};
    double ms[4][3];
    tg_step_trial t = {.n_rows = 3, .depth = 20, .n_tokens = n_tokens, .n_cases = 3, .n_rounds = 4};
    open_fixture(&f, BATCH, 128);
    int32_t n = answer(&f, questions[0], &o, want);
    assert_int_equal(tg_engine_read_profile(f.engine, NULL, 0), 0);

    if (tg_engine_begin_profile(f.engine, &e) != TG_OK) fail_msg("%s", e.msg);
    if (tg_engine_time_steps(f.engine, &t, ms[0], &e) != TG_OK) fail_msg("%s", e.msg);
    for (int i = 0; i < 12; i++)
        assert_true(ms[i / 3][i % 3] > 0);
    check_counts(f.engine, "context", 3, 3 * 20);
    check_counts(f.engine, "token", 4, 4 * 3);
    check_counts(f.engine, "speculate", 8, 4 * 3 * (3 + 5));
    tg_engine_end_profile(f.engine);
    assert_int_equal(tg_engine_read_profile(f.engine, NULL, 0), 0);

    assert_int_equal(answer(&f, questions[0], &o, got), n);
    assert_memory_equal(got, want, (size_t)n * sizeof *got);
    close_fixture(&f);
}

static void refuse_trial(fixture *f, tg_step_trial t, tg_status status, const char *part)
{
    tg_err e = {0};
    double ms[8];
    assert_int_equal(tg_engine_time_steps(f->engine, &t, ms, &e), status);
    if (!strstr(e.msg, part)) fail_msg("'%s' does not say '%s'", e.msg, part);
}

static void steps_that_cannot_be_timed_are_refused_with_their_number(void **state)
{
    (void)state;
    fixture f;
    tg_err e = {0};
    bool is_idle;
    int32_t ids[MAX], five[] = {5}, six[] = {6};
    tg_step_trial t = {.n_rows = 3, .depth = 10, .n_tokens = five, .n_cases = 1, .n_rounds = 1};
    open_fixture(&f, BATCH, 128);
    tg_step_trial rows = t, tokens = t, deep = t;
    rows.n_rows = 4;
    tokens.n_tokens = six;
    deep.depth = 124;
    refuse_trial(&f, rows, TG_E_LIMIT, "4 rows at once are outside the range 1 to 3");
    refuse_trial(&f, tokens, TG_E_LIMIT, "steps of 6 tokens a row are outside the range 1 to 5");
    refuse_trial(&f, deep, TG_E_LIMIT, "a step of 5 tokens behind 124 others");

    tg_request *r = submit(&f, ids, make_prompt(&f, questions[1], ids), NULL);
    if (tg_engine_step(f.engine, &is_idle, &e) != TG_OK) fail_msg("%s", e.msg);
    refuse_trial(&f, t, TG_E_BUSY, "a request is running");
    wait_for(r); /* it was not disturbed */
    tg_request_free(r);
    close_fixture(&f);
}

static void what_a_machine_can_do_is_more_than_nothing(void **state)
{
    (void)state;
    fixture f;
    size_t n = 1 << 20;
    open_fixture(&f, 1, 128);
    void *memory = tg_mem_new(n);
    tg_peak_rates r = tg_engine_measure_rates(f.engine, memory, n);
    assert_true(r.read_bytes_per_s > 1e6 && isfinite(r.read_bytes_per_s));
    assert_true(r.products_per_s > 1e6 && isfinite(r.products_per_s));
    assert_true(r.round_trip_ns > 0 && isfinite(r.round_trip_ns)); /* the fixture has two threads */
    tg_mem_free(memory);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_answers_as_each_alone),
        cmocka_unit_test(sampled_tokens_do_not_depend_on_neighbors),
        cmocka_unit_test(seeds_and_sample_indices_tell_answers_apart),
        cmocka_unit_test(the_stream_equals_the_detokenized_whole),
        cmocka_unit_test(a_stop_string_ends_the_text_before_it),
        cmocka_unit_test(a_repeated_prompt_costs_one_token),
        cmocka_unit_test(an_answer_ends_where_its_row_is_full),
        cmocka_unit_test(a_cancelled_request_leaves_its_row_to_others),
        cmocka_unit_test(what_cannot_be_answered_is_refused_with_its_number),
        cmocka_unit_test(the_makers_sampling_is_taken_when_they_ask_for_it),
        cmocka_unit_test(every_stop_id_of_the_makers_ends_an_answer),
        cmocka_unit_test(an_end_beyond_the_models_ids_is_refused),
        cmocka_unit_test(a_model_that_is_not_finite_ends_the_request),
        cmocka_unit_test(a_cached_artifact_that_does_not_open_is_made_anew),
        cmocka_unit_test(many_threads_share_an_engine_that_steps_itself),
        cmocka_unit_test(measuring_counts_its_steps_and_changes_no_answer),
        cmocka_unit_test(steps_that_cannot_be_timed_are_refused_with_their_number),
        cmocka_unit_test(what_a_machine_can_do_is_more_than_nothing),
        cmocka_unit_test(refused_memory_is_an_error_wherever_it_happens),
    };
    return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
