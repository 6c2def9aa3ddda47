/* SPDX-License-Identifier: Apache-2.0 */
#include "token/run/tokbatch.h"

#include "base/os.h"
#include "token/run/tokblob.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>

/* Texts are taken a few at a time, since a short one is done in less time than two threads need to
 * agree on a counter. Machine stacks stay small: nothing in here recurses over a text. */
enum { MAX_TEXTS_AT_ONCE = 16, STACK_BYTES = 256 * 1024 };

typedef struct batch {
    tg_ids *out;
    tg_spans *spans;
    const tg_tokenizer *t;
    const tg_str *texts;
    int64_t n_texts, n_at_once;
    const tg_encode_options *options;
    _Atomic int64_t next;   /* the first text not yet taken */
    _Atomic int64_t failed; /* the first known to have failed; n_texts: none */
    pthread_mutex_t lock;   /* over `failed` being lowered together with what follows */
    tg_status status;
    tg_err err;
} batch;

static void report(batch *b, int64_t i, tg_status status, const tg_err *e)
{
    pthread_mutex_lock(&b->lock);
    if (i < atomic_load(&b->failed)) {
        atomic_store(&b->failed, i);
        b->status = status;
        b->err = *e;
    }
    pthread_mutex_unlock(&b->lock);
}

/* Texts are taken in order, and one in front of a failed one is never left out: so the first error
 * is found whatever the threads do. */
static void *encode_texts(void *context)
{
    batch *b = context;
    tg_tok_scratch s = {0};
    for (;;) {
        int64_t begin = atomic_fetch_add(&b->next, b->n_at_once);
        int64_t end = TG_MIN(begin + b->n_at_once, b->n_texts);
        if (begin >= end) break;
        for (int64_t i = begin; i < end && i < atomic_load(&b->failed); i++) {
            tg_encode_options o = *b->options;
            tg_err e = {0};
            o.spans = b->spans ? &b->spans[i] : NULL;
            tg_status status = tg_tok_encode(&s, &b->out[i], b->t, b->texts[i], &o, &e);
            if (status == TG_OK) continue;
            report(b, i, status, &e);
            tg_tok_scratch_deinit(&s);
        }
    }
    tg_tok_scratch_deinit(&s);
    return NULL;
}

static void run(batch *b, int32_t n_threads)
{
    pthread_t threads[TG_TOKENIZER_MAX_THREADS];
    pthread_attr_t attr;
    int32_t n = 0;
    if (n_threads > 1 && pthread_attr_init(&attr) == 0) {
        if (pthread_attr_setstacksize(&attr, STACK_BYTES) == 0)
            while (n < n_threads - 1 && pthread_create(&threads[n], &attr, encode_texts, b) == 0)
                n++;
        pthread_attr_destroy(&attr);
    }
    encode_texts(b);
    for (int32_t i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
}

tg_status tg_tokenizer_encode_batch(tg_ids *out, tg_spans *spans, const tg_tokenizer *t,
                                    const tg_str *texts, int64_t n_texts,
                                    const tg_encode_options *o, int32_t n_threads, tg_err *e)
{
    TG_ASSERT(!o->spans && n_texts >= 0);
    if (n_threads < 0 || n_threads > TG_TOKENIZER_MAX_THREADS)
        return tg_fail(e, TG_E_ARGUMENT,
                       "%" PRId32 " threads were asked for to tokenize; 0 means all CPUs, and the "
                       "limit is %d",
                       n_threads, TG_TOKENIZER_MAX_THREADS);
    if (n_threads == 0) n_threads = TG_MIN(tg_cpus_find(NULL, 0), TG_TOKENIZER_MAX_THREADS);
    n_threads = (int32_t)TG_MIN((int64_t)n_threads, n_texts);
    batch b = {.out = out,
               .spans = spans,
               .t = t,
               .texts = texts,
               .n_texts = n_texts,
               .options = o,
               .failed = n_texts,
               .status = TG_OK};
    /* At least four turns a thread, so that they end together. */
    int64_t n_turns = (int64_t)TG_MAX(n_threads, 1) * 4;
    b.n_at_once = TG_MIN(TG_MAX(n_texts / n_turns, 1), MAX_TEXTS_AT_ONCE);
    pthread_mutex_init(&b.lock, NULL);
    run(&b, n_threads);
    pthread_mutex_destroy(&b.lock);
    if (b.status == TG_OK) return TG_OK;
    if (e) *e = b.err;
    tg_err_context(e, "text %" PRId64 " of %" PRId64, (int64_t)atomic_load(&b.failed), n_texts);
    return b.status;
}
