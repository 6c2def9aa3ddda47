/* SPDX-License-Identifier: Apache-2.0
 * tokbatch.h - many texts to token ids, over threads.
 *
 * A text is encoded by one thread, as tg_tokenizer_encode does it: ids do not depend on the number
 * of threads, and neither does the error. Threads take texts in order from a shared counter, so a
 * few long texts among many short ones keep nobody waiting. */
#ifndef TG_TOKEN_TOKBATCH_H
#define TG_TOKEN_TOKBATCH_H

#include "token/run/tok.h"

enum { TG_TOKENIZER_MAX_THREADS = 256 };

/* Appends the ids of texts[i] to out[i], and where `spans` is not NULL the bytes they stand for to
 * spans[i]; o->spans must be NULL. `n_threads` counts the caller's thread, which works too; 0 means
 * the CPUs that this process may use, and none is started without texts for it. Where the system
 * refuses a thread, those that run do its work.
 *
 * The error is that of the first text that has one, with its index in front. Lists of texts behind
 * it may hold ids by then or may not; all lists remain the caller's to free. */
TG_MUST_USE tg_status tg_tokenizer_encode_batch(tg_ids *out, tg_spans *spans, const tg_tokenizer *t,
                                                const tg_str *texts, int64_t n_texts,
                                                const tg_encode_options *o, int32_t n_threads,
                                                tg_err *e);

#endif
