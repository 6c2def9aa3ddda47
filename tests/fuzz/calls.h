/* SPDX-License-Identifier: Apache-2.0
 * calls.h - a byte string read as a sequence of calls of the public API, on one tiny model.
 *
 * Two bytes a call: which, and an argument. A caller has a few requests of its own; the model, its
 * text and the engine are shared. Whatever the order: a refusal is a status with a sentence; a
 * request that ends by itself has given the tokens that its prompt and options give alone. */
#ifndef TG_TESTS_FUZZ_CALLS_H
#define TG_TESTS_FUZZ_CALLS_H

#include "base/base.h"
#include "folder.h"
#include "trigraph.h"

enum { N_OWN = 4, N_PROMPTS = 8, PROMPT_TOKENS = 24, MOST_NEW = 12 };

static tg_model *model;

/* The greedy completion of each prompt, by an engine that runs nothing else. */
static int32_t alone[N_PROMPTS][MOST_NEW], n_alone[N_PROMPTS];

typedef struct caller {
    tg_engine *engine;
    tg_request *requests[N_OWN];
    int32_t prompts[N_OWN]; /* of a request whose tokens are known; -1: of one that is drawn */
    bool is_cut[N_OWN];     /* cancelled, or ended by a stop string */
    bool may_step;          /* the engine has no thread of its own */
} caller;

static inline void fill_prompt(int32_t ids[PROMPT_TOKENS], int32_t prompt)
{
    /* Two and two begin alike, so that prefixes are shared. */
    for (int32_t i = 0; i < PROMPT_TOKENS; i++)
        ids[i] = 10 + (i * 37 + (i < 8 ? prompt / 2 : prompt) * 11) % 200;
}

static inline void must(tg_status s, const tg_err *e)
{
    if (s == TG_OK) return;
    fprintf(stderr, "%s\n", e->msg);
    abort();
}

/* A status and its sentence go together. */
static inline void hold(tg_status s, const tg_err *e)
{
    TG_ASSERT(s == TG_OK || e->msg[0]);
}

static inline void submit(caller *c, int slot, uint8_t x)
{
    int32_t ids[PROMPT_TOKENS], prompt = x % N_PROMPTS;
    tg_err e = {0};
    tg_request_options q = {.max_tokens = 1 + x / N_PROMPTS % MOST_NEW, .ignore_eos = true};
    const char *stop[] = {"e", "th"};
    fill_prompt(ids, prompt);
    if (c->requests[slot]) return;
    c->prompts[slot] = prompt;
    c->is_cut[slot] = false;
    if (x >= 0xc0) {
        q.sampling =
            (tg_sampling){.temperature = 0.5f + (float)(x & 7), .top_k = x & 31, .seed = x};
        q.stop = stop;
        q.n_stop = x & 1 ? 2 : 0;
        c->prompts[slot] = -1;
    }
    must(tg_engine_submit(&c->requests[slot], c->engine, ids, PROMPT_TOKENS, &q, &e), &e);
}

/* Requests that may not be: each field out of its range, by turns. */
static inline void submit_wrong(caller *c, uint8_t x)
{
    static const float odd[] = {-1, 1.5f, 101, 0.0f / 1.0f, 1e30f, -1e-30f, 3};
    int32_t ids[80] = {0};
    tg_request *r = NULL;
    tg_err e = {0};
    float f = odd[x / 8 % TG_COUNT(odd)];
    tg_request_options q = {.max_tokens = 1};
    int32_t n = 4;
    switch (x % 8) {
    case 0: n = 0; break;
    case 1: n = 80; break; /* longer than max_length */
    case 2: ids[1] = x & 64 ? -1 : 288 + x; break;
    case 3: q.sampling.temperature = f; break;
    case 4: q.sampling.top_p = f; break;
    case 5: q.sampling.min_p = f; break;
    case 6: q.sampling.top_k = -(int32_t)x; break;
    case 7: q.max_tokens = -(int32_t)x; break;
    }
    tg_status s = tg_engine_submit(&r, c->engine, ids, n, &q, &e);
    hold(s, &e);
    TG_ASSERT((s == TG_OK) == (r != NULL));
    TG_ASSERT(s != TG_OK || x % 8 > 2);
    tg_request_free(r);
}

static inline void finish(caller *c, int slot)
{
    tg_request *r = c->requests[slot];
    int32_t n, prompt = c->prompts[slot];
    tg_err e = {0};
    if (!r) return;
    hold(tg_request_wait(r, &e), &e);
    tg_request_stats stats = tg_request_get_stats(r);
    const int32_t *ids = tg_request_get_tokens(r, &n);
    TG_ASSERT(stats.finish != TG_FINISH_NONE && stats.n_completion_tokens == n);
    if (prompt >= 0) {
        TG_ASSERT(n <= n_alone[prompt]);
        TG_ASSERT(n == 0 || memcmp(ids, alone[prompt], (size_t)n * sizeof *ids) == 0);
        TG_ASSERT(c->is_cut[slot] || stats.finish == TG_FINISH_LENGTH);
    }
}

static inline void use_text(uint8_t x)
{
    static const char *const messages[] = {"[{\"role\":\"user\",\"content\":\"hi\"}]", "[]", "{",
                                           "[1]"};
    const tg_text *t = tg_model_get_text(model);
    tg_tokens tokens;
    tg_err e = {0};
    char *text = NULL;
    size_t n;
    char bytes[4] = {(char)x, 'a', (char)(x * 7), 0};
    tg_status s = tg_text_tokenize(&tokens, t, bytes, 3, NULL, &e);
    hold(s, &e);
    if (s == TG_OK) {
        must(tg_text_detokenize(&text, &n, t, tokens.ids, tokens.n, x & 1, &e), &e);
        tg_free(text);
        tg_tokens_deinit(&tokens);
    }
    text = NULL;
    s = tg_text_render_chat(&text, &n, t, messages[x % TG_COUNT(messages)], NULL, &e);
    hold(s, &e);
    tg_free(text);
}

static inline void begin_calls(void)
{
    if (!begin_folder()) return;
    char path[96];
    tg_err e = {0};
    snprintf(path, sizeof path, "%s/model.tg", folder);
    tg_export_options o = {.batch = 3, .max_length = 64};
    must(tg_export("tests/tiny/llama-mqa", path, &o, &e), &e);
    must(tg_model_open(&model, path, &e), &e);
    for (int32_t k = 0; k < N_PROMPTS; k++) {
        tg_engine *g;
        tg_request *r;
        int32_t ids[PROMPT_TOKENS];
        tg_engine_options one = {.n_threads = 1};
        tg_request_options q = {.max_tokens = MOST_NEW, .ignore_eos = true};
        fill_prompt(ids, k);
        must(tg_engine_open(&g, model, &one, &e), &e);
        must(tg_engine_submit(&r, g, ids, PROMPT_TOKENS, &q, &e), &e);
        must(tg_request_wait(r, &e), &e);
        const int32_t *got = tg_request_get_tokens(r, &n_alone[k]);
        memcpy(alone[k], got, (size_t)n_alone[k] * sizeof *got);
        tg_request_free(r);
        tg_engine_close(g);
    }
}

static inline void call(caller *c, uint8_t which, uint8_t x)
{
    int slot = x % N_OWN;
    size_t n_bytes;
    bool is_idle;
    int32_t n;
    tg_err e = {0};
    switch (which % 12) {
    case 0:
    case 1:
    case 2: submit(c, which / 12 % N_OWN, x); break;
    case 3: submit_wrong(c, x); break;
    case 4:
        if (c->requests[slot]) tg_request_cancel(c->requests[slot]);
        c->is_cut[slot] = true;
        break;
    case 5:
        if (c->requests[slot]) (void)tg_request_read(c->requests[slot], &n_bytes);
        break;
    case 6: finish(c, slot); break;
    case 7:
        tg_request_free(c->requests[slot]);
        c->requests[slot] = NULL;
        break;
    case 8: use_text(x); break;
    case 9:
        if (c->requests[slot] && c->may_step) (void)tg_request_get_tokens(c->requests[slot], &n);
        break;
    case 10: /* fallthrough */
    case 11:
        for (int i = 0; c->may_step && i <= x % 8; i++)
            must(tg_engine_step(c->engine, &is_idle, &e), &e);
        break;
    }
}

static inline void end_calls(caller *c)
{
    for (int i = 0; i < N_OWN; i++) {
        if (i % 2) finish(c, i); /* some are freed while they run */
        tg_request_free(c->requests[i]);
        c->requests[i] = NULL;
    }
}

#endif
