/* SPDX-License-Identifier: Apache-2.0
 * tokscratch.c - the memory of an encoding, and the spares that an open tokenizer keeps. */
#include "token/run/tokblob.h"

#include <stdatomic.h>

void tg_tok_scratch_deinit(tg_tok_scratch *s)
{
    for (size_t i = 0; i < TG_COUNT(s->text); i++) {
        tg_buf_deinit(&s->text[i].bytes);
        tg_spans_deinit(&s->text[i].origin);
    }
    for (size_t i = 0; i < TG_COUNT(s->words); i++)
        tg_spans_deinit(&s->words[i]);
    tg_spans_deinit(&s->matches);
    tg_regex_scratch_deinit(&s->regex);
    tg_mem_free(s->symbols);
    tg_mem_free(s->path);
    tg_mem_free(s->best);
    tg_merge_queue_deinit(&s->queue);
    tg_mem_free(s->dead);
    for (size_t i = 0; i < TG_COUNT(s->known); i++)
        tg_word_cache_deinit(&s->known[i]);
    *s = (tg_tok_scratch){0};
}

void tg_tok_scratch_free(tg_tok_scratch *s)
{
    if (!s) return;
    tg_tok_scratch_deinit(s);
    tg_mem_free(s);
}

/* ---- spares of an open tokenizer */

static void trim(tg_tok_scratch *s)
{
    enum { KEPT_BYTES = 1 << 18 }; /* of each list */
    for (size_t i = 0; i < TG_COUNT(s->text); i++) {
        if (s->text[i].bytes.size > KEPT_BYTES) tg_buf_deinit(&s->text[i].bytes);
        if (s->text[i].origin.size > KEPT_BYTES / sizeof(tg_span))
            tg_spans_deinit(&s->text[i].origin);
    }
    for (size_t i = 0; i < TG_COUNT(s->words); i++)
        if (s->words[i].size > KEPT_BYTES / sizeof(tg_span)) tg_spans_deinit(&s->words[i]);
    if (s->matches.size > KEPT_BYTES / sizeof(tg_span)) tg_spans_deinit(&s->matches);
    if (s->n_symbols > KEPT_BYTES / sizeof *s->symbols) {
        tg_mem_free(s->symbols);
        s->symbols = NULL;
        s->n_symbols = 0;
    }
    if (s->n_dead > KEPT_BYTES / sizeof *s->dead) {
        tg_mem_free(s->dead);
        s->dead = NULL;
        s->n_dead = 0;
    }
    if (s->queue.size > KEPT_BYTES / sizeof *s->queue.at) tg_merge_queue_deinit(&s->queue);
}

tg_tok_scratch *tg_tok_scratch_take(const tg_tokenizer *t)
{
    for (int i = 0; i < TG_TOK_MAX_SPARES; i++) {
        tg_tok_scratch *s = atomic_exchange(&t->spares->at[i], NULL);
        if (s) return s;
    }
    return TG_NEW(tg_tok_scratch);
}

void tg_tok_scratch_put_back(const tg_tokenizer *t, tg_tok_scratch *s)
{
    trim(s);
    for (int i = 0; s && i < TG_TOK_MAX_SPARES; i++)
        s = atomic_exchange(&t->spares->at[i], s); /* what lay there looks for another place */
    tg_tok_scratch_free(s);
}
