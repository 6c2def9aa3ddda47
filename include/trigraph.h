/* SPDX-License-Identifier: Apache-2.0
 * trigraph.h - the public face of the engine.
 *
 * Four nouns. A tg_model is a compiled artifact, opened: read-only, shared by any number of
 * threads. A tg_text is its tokenizer and its chat templates, which can be had without weights too.
 * A tg_engine runs a model: it owns the KV pages, the worker threads and the steps. A tg_request is
 * one prompt on its way through an engine. Destroy them in the opposite order.
 *
 * Every pointer that a call returns is borrowed from the object named in its comment, except
 * strings and arrays that a comment calls yours, which go back through tg_free. Every call that can
 * fail returns tg_status and takes a tg_err last; NULL is allowed there. Text is UTF-8. Options
 * structs are zero for defaults.
 *
 * Threads: functions on a tg_model or a tg_text may be called from any thread at once. Of an
 * engine, tg_engine_submit and everything on requests may be called from any thread; tg_engine_step
 * and tg_engine_eval from one thread at a time, and not between tg_engine_start and
 * tg_engine_stop. */
#ifndef TRIGRAPH_H
#define TRIGRAPH_H

#include "trigraph_status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TG_API         __attribute__((visibility("default")))
#define TG_CHECKED_API __attribute__((visibility("default"), warn_unused_result))

/* "0.1.0", of the library that is running. */
TG_API const char *tg_version(void);
/* Frees what a comment calls yours; accepts NULL. */
TG_API void tg_free(void *p);

/* ---- export: checkpoint -> artifact ---------------------------------------------------------- */

typedef struct tg_export_options {
    const char *config_file;        /* JSON with the same names as below; options given here win */
    int32_t batch;                  /* sequences that run together; 0: 1 */
    int32_t max_length;             /* tokens of a prompt and its completion; 0: the model's, at
                                     * most 4096 */
    const int32_t *context_buckets; /* [n_context_buckets] tokens of a prefill step, ascending;
                                     * NULL: 32, 128, 512 */
    int32_t n_context_buckets;
    int32_t speculation;     /* K drafted tokens verified in a step; see has_speculation */
    bool has_speculation;    /* false: that of the config file, or 0 */
    const char *weights;     /* "auto", "f32"; of matrices of floats, which have to be there,
                              * "bf16", "f16", "q8_0", "q4_0", "q4_1", "q5_1" */
    const char *activations; /* "int8" (16 bits for few groups of outliers), "int16" */
    const char *kv;          /* "q16", "f16", "bf16", "q8", "f32" */
    bool is_forced;          /* replace an existing artifact */
    /* Called now and then; true ends the export cleanly with TG_E_CANCELLED. */
    bool (*progress)(void *context, int64_t done_bytes, int64_t total_bytes);
    void *context;
    /* A text by which 4 and 5 bits are spent where the model needs them: with weights "q4_0",
     * "q4_1", "q5_1" of a checkpoint of floats. Or NULL. */
    const char *calibration_file;
} tg_export_options;

/* Compiles the checkpoint at `source` (a Hugging Face folder, a folder of the hub cache, or a GGUF
 * file) into the folder `dir`. All or nothing: `dir` appears whole at the end. */
TG_CHECKED_API tg_status tg_export(const char *source, const char *dir, const tg_export_options *o,
                                   tg_err *e);
/* The same compilation without writing: *out becomes the memory plan as text (yours), or, with
 * `pass` not NULL, the graph after that pass ("build", "fuse", "output-rows", "group", "plan"). */
TG_CHECKED_API tg_status tg_export_preview(char **out, const char *source, const char *pass,
                                           const tg_export_options *o, tg_err *e);

/* Where the artifact of `source` is: `source` itself if it is one; otherwise it is found in the
 * cache or exported into it under a lock (two callers at once: one exports, both succeed). *dir is
 * yours. `note` (may be NULL) gets one line when an export begins and why. The cache is
 * $TG_CACHE_DIR, or trigraph under $XDG_CACHE_HOME or ~/.cache. */
TG_CHECKED_API tg_status tg_cache_find(char **dir, const char *source, const tg_export_options *o,
                                       void (*note)(void *context, const char *line), tg_err *e);

/* Describes an artifact or a checkpoint, as text for people or as JSON. Reads headers only, no
 * weights. Of a checkpoint also whether it will run here, exported with `o` (NULL: defaults), what
 * stands in the way if not, and the memory it needs; of an artifact `o` must be NULL. For a
 * checkpoint that will not run, *out is set all the same, and the status and *e are those of the
 * first obstacle. *out is yours. */
TG_CHECKED_API tg_status tg_inspect(char **out, const char *path, const tg_export_options *o,
                                    bool is_json, tg_err *e);
/* Compares every checksum of an artifact, the weights' too. */
TG_CHECKED_API tg_status tg_verify(const char *dir, tg_err *e);

/* ---- text: tokenizer and chat templates ------------------------------------------------------ */

typedef struct tg_text tg_text;

/* Opens the tokenizer and the chat templates of `path`, which must have at least one of them:
 *
 *   an artifact                 mapped, in milliseconds
 *   whatever tg_export takes    weights are not read and need not be there; the tokenizer is
 *                               compiled in memory, in tenths of a second
 *   one file of a folder        tokenizer.json, tokenizer.model, *.tiktoken, tokenizer_config.json,
 *                               *.jinja: the folder, with this file in place of its own of that
 *                               kind */
TG_CHECKED_API tg_status tg_text_open(tg_text **out, const char *path, tg_err *e);
TG_API void tg_text_close(tg_text *t); /* accepts NULL */

typedef struct tg_text_info {
    bool has_tokenizer;
    int32_t n_templates;                    /* chat templates */
    int32_t n_vocab;                        /* the largest id and one; 0 without a tokenizer */
    int32_t bos_id, eos_id, unk_id, pad_id; /* -1: none */
} tg_text_info;

TG_API tg_text_info tg_text_get_info(const tg_text *t);

/* ---- text in */

/* Bytes [begin, end) of a text. */
typedef struct tg_byte_range {
    int32_t begin, end;
} tg_byte_range;

/* The ids of one text; {0} is empty. Yours: tg_tokens_deinit. */
typedef struct tg_tokens {
    int32_t *ids;          /* [n] */
    tg_byte_range *ranges; /* [n] the bytes of the text that each id stands for; NULL: not asked */
    int32_t n;
} tg_tokens;

/* Raw text to be continued wants neither `no_...` (the defaults), a rendered chat no_add_special,
 * foreign text both. */
typedef struct tg_tokenize_options {
    bool no_add_special;   /* leave out what the tokenizer adds to a text by itself: BOS, EOS */
    bool no_parse_special; /* special tokens spelled in the text are plain text */
    /* Fill `ranges`. An id that the tokenizer adds has an empty one, an id that is part of a
     * character some of its bytes or all; bytes that a normalizer drops are in none. */
    bool has_ranges;
    int32_t n_threads; /* of a batch: 1 to 256; 0: as tg_engine_options */
} tg_tokenize_options;

/* `text` is UTF-8, at most 2^30 - 1 bytes; what is not UTF-8 is refused with the byte's offset. `o`
 * may be NULL. On failure *out is {0}. */
TG_CHECKED_API tg_status tg_text_tokenize(tg_tokens *out, const tg_text *t, const char *text,
                                          size_t n_bytes, const tg_tokenize_options *o, tg_err *e);
TG_API void tg_tokens_deinit(tg_tokens *x);
/* The same of many texts over threads: out[i] is of texts[i], n_bytes[i] long; results do not
 * depend on the number of threads. The error is that of the first text that has one, with its index
 * in front, and then every out[i] is {0}. */
TG_CHECKED_API tg_status tg_text_tokenize_batch(tg_tokens *out, const tg_text *t,
                                                const char *const *texts, const size_t *n_bytes,
                                                int32_t n_texts, const tg_tokenize_options *o,
                                                tg_err *e);

/* ---- text out */

/* Text of ids, special tokens left out when asked; bytes that are no characters become U+FFFD. An
 * id that is no token is an error that names its place. *text is yours, zero-terminated, *n_bytes
 * long. */
TG_CHECKED_API tg_status tg_text_detokenize(char **text, size_t *n_bytes, const tg_text *t,
                                            const int32_t *ids, int32_t n_ids, bool skip_special,
                                            tg_err *e);

/* The same, one id at a time: what comes out is whole characters that no later id can change, and
 * all of it together, flushed, is what tg_text_detokenize gives. For one thread at a time. */
typedef struct tg_detokenizer tg_detokenizer;

TG_CHECKED_API tg_status tg_detokenizer_new(tg_detokenizer **out, const tg_text *t,
                                            bool skip_special, tg_err *e);
TG_API void tg_detokenizer_free(tg_detokenizer *d); /* accepts NULL; before its text is closed */
/* The text that became ready, often none; *text is borrowed until the next call. */
TG_CHECKED_API tg_status tg_detokenizer_push(const char **text, size_t *n_bytes, tg_detokenizer *d,
                                             int32_t id, tg_err *e);
/* The text that was held back; then `d` is ready for other ids. */
TG_CHECKED_API tg_status tg_detokenizer_flush(const char **text, size_t *n_bytes, tg_detokenizer *d,
                                              tg_err *e);

/* One token of the vocabulary. */
typedef struct tg_token {
    const char *bytes; /* [n_bytes] what it prints, maybe a part of a character; borrowed */
    size_t n_bytes;
    bool is_special; /* skip_special leaves it out */
    bool is_added;   /* found in a text before anything else */
    bool is_byte;    /* stands for one byte of characters that the vocabulary lacks */
    bool is_unused;  /* a row of padding or a hole: prints nothing */
} tg_token;

/* An id beyond the vocabulary is an error that names its size. */
TG_CHECKED_API tg_status tg_text_get_token(tg_token *out, const tg_text *t, int32_t id, tg_err *e);
/* The token as its file spells it ("\xc4\xa0the", "<0x0A>"). *spelling is yours. */
TG_CHECKED_API tg_status tg_text_print_token(char **spelling, const tg_text *t, int32_t id,
                                             tg_err *e);

/* ---- chat */

/* Templates by the names that the checkpoint gives them, "default" where there is none; i below
 * n_templates. Borrowed. */
TG_API const char *tg_text_get_template_name(const tg_text *t, int32_t i);

/* JSON texts, each NULL when there is none. */
typedef struct tg_chat_options {
    const char *tools;         /* a list, as {"type": "function", "function": {...}} */
    const char *documents;     /* a list, for retrieval */
    const char *kwargs;        /* an object of further variables: {"enable_thinking": false} */
    const char *template_name; /* NULL: "tool_use" where there are tools and it is there, else
                                  "default"; no JSON */
    bool no_generation_prompt; /* do not begin the assistant's turn */
    /* Text of messages, tools and documents never becomes a control token, whatever it spells: see
     * tg_text_tokenize_chat. A conversation for which that cannot be held is refused. */
    bool safe_messages;
} tg_chat_options;

/* The chat template over `messages`, a JSON list of at least one {"role", "content", ...}, as
 * transformers' apply_chat_template renders it. `o` may be NULL. The text is to be tokenized with
 * no_add_special. TG_E_UNSUPPORTED when there is no template; TG_E_ARGUMENT with the template's own
 * words when it refuses the messages. *text is yours, zero-terminated, *n_bytes long. */
TG_CHECKED_API tg_status tg_text_render_chat(char **text, size_t *n_bytes, const tg_text *t,
                                             const char *messages, const tg_chat_options *o,
                                             tg_err *e);

/* The ids of the same prompt. Like transformers, it takes "<|im_end|>" in a message for the token,
 * by which a stranger's message can end its turn and begin another; with o->safe_messages such text
 * is tokenized as any other, and everything else as without. TG_E_UNSUPPORTED where the template
 * handles a message so that its text cannot be told from the template's own. */
TG_CHECKED_API tg_status tg_text_tokenize_chat(tg_tokens *out, const tg_text *t,
                                               const char *messages, const tg_chat_options *o,
                                               tg_err *e);

/* ---- model ----------------------------------------------------------------------------------- */

typedef struct tg_model tg_model;

/* Maps an artifact. Milliseconds, whatever its size. */
TG_CHECKED_API tg_status tg_model_open(tg_model **out, const char *dir, tg_err *e);
TG_API void tg_model_close(tg_model *m); /* accepts NULL; after its engines */

typedef struct tg_model_info {
    const char *architecture; /* borrowed from the model */
    int32_t n_vocab, n_embed_rows, max_length, batch, speculation;
} tg_model_info;

TG_API tg_model_info tg_model_get_info(const tg_model *m);
/* Borrowed from the model; never NULL, though it may have neither tokenizer nor template. */
TG_API const tg_text *tg_model_get_text(const tg_model *m);

/* ---- engine ---------------------------------------------------------------------------------- */

typedef struct tg_engine tg_engine;

typedef struct tg_engine_options {
    int32_t n_threads; /* 0: TG_THREADS, else every CPU that affinity and the control group allow */
    const char *cpu_tier; /* NULL: TG_CPU, else the best: "ref", "avx2", "avx512" */
} tg_engine_options;

TG_CHECKED_API tg_status tg_engine_open(tg_engine **out, tg_model *m, const tg_engine_options *o,
                                        tg_err *e);
TG_API void tg_engine_close(tg_engine *g); /* accepts NULL; after its requests */

typedef struct tg_engine_info {
    int32_t n_threads;
    const char *cpu_tier; /* static */
} tg_engine_info;

TG_API tg_engine_info tg_engine_get_info(const tg_engine *g);

/* One step for the requests that are ready: a piece of a prompt, or a token for every running row.
 * *is_idle is set when there was nothing to do. A failure of one request is reported
 * to that request and is not a failure of the step. */
TG_CHECKED_API tg_status tg_engine_step(tg_engine *g, bool *is_idle, tg_err *e);
/* Gives the engine a thread that steps by itself until tg_engine_stop. */
TG_CHECKED_API tg_status tg_engine_start(tg_engine *g, tg_err *e);
TG_API void tg_engine_stop(tg_engine *g);

/* ---- requests -------------------------------------------------------------------------------- */

/* How to choose the next token. {0} is greedy decoding. */
typedef struct tg_sampling {
    float temperature;                         /* 0: argmax */
    float top_p;                               /* (0, 1); 0 or 1: off */
    float min_p;                               /* [0, 1); 0: off */
    float repeat_penalty;                      /* > 0; 0 or 1: off */
    float presence_penalty, frequency_penalty; /* [-2, 2] */
    int32_t top_k;                             /* 0: off */
    uint64_t seed;        /* same seed, same artifact, same request: same tokens, on any machine */
    int32_t sample_index; /* tells apart several completions of one prompt under one seed */
} tg_sampling;

/* The model's own recommendation (generation_config.json); {0} when it has none. */
TG_API tg_sampling tg_model_get_sampling(const tg_model *m);

typedef enum tg_finish {
    TG_FINISH_NONE,   /* still going */
    TG_FINISH_STOP,   /* a stop token or stop string */
    TG_FINISH_LENGTH, /* max_tokens or max_length is reached */
    TG_FINISH_CANCELLED,
    TG_FINISH_ERROR
} tg_finish;

typedef struct tg_request_options {
    tg_sampling sampling;
    int32_t max_tokens; /* 0: up to max_length */
    /* [n_stop] strings, none empty, that end the completion and are not part of it; copied. The
     * first to be complete ends it; of several complete at one byte the longest. */
    const char *const *stop;
    int32_t n_stop;
    bool ignore_eos;   /* do not end at the model's stop tokens */
    bool show_special; /* special tokens appear in the text */
    /* Called with text that is ready to print (whole characters), and the ids that came with it.
     * May be NULL: then read with tg_request_read. Called on the stepping thread; true cancels
     * the request. */
    bool (*on_text)(void *context, const char *text, size_t n_bytes, const int32_t *ids,
                    int32_t n_ids);
    void *context;
} tg_request_options;

typedef struct tg_request tg_request;

/* Queues a prompt; `tokens` is copied. An empty prompt, an id that the model lacks and a prompt
 * that is not shorter than max_length are errors that name the number. */
TG_CHECKED_API tg_status tg_engine_submit(tg_request **out, tg_engine *g, const int32_t *tokens,
                                          int32_t n_tokens, const tg_request_options *o, tg_err *e);
TG_API void tg_request_cancel(tg_request *r); /* at the next step */
TG_API void tg_request_free(tg_request *r);   /* accepts NULL; cancels what still runs */

/* Steps the engine, or waits for its thread, until the request has ended. Returns the request's own
 * error when it finished with TG_FINISH_ERROR. */
TG_CHECKED_API tg_status tg_request_wait(tg_request *r, tg_err *e);

/* Takes the text that has come since the last read, without waiting; n_bytes 0 when there is none
 * yet. Borrowed until the next read. */
TG_API const char *tg_request_read(tg_request *r, size_t *n_bytes);

typedef struct tg_request_stats {
    tg_finish finish;
    int32_t n_prompt_tokens, n_cached_tokens, n_completion_tokens;
    double ttft_ms;   /* submit to the first id */
    double prompt_ms; /* the steps that read the prompt */
    double decode_ms; /* the steps after the first id */
    /* Tokens computed a second time, with the rope factors of long texts, because prompt and
     * completion grew beyond the length that the model was first trained for; 0: none. Their time
     * is in decode_ms. */
    int32_t n_recomputed_tokens;
} tg_request_stats;

TG_API tg_request_stats tg_request_get_stats(const tg_request *r);
/* The ids of the completion so far, borrowed until the next step; stop tokens are not among
 * them. */
TG_API const int32_t *tg_request_get_tokens(const tg_request *r, int32_t *n_tokens);

/* ---- measuring ------------------------------------------------------------------------------- */

/* The cost of one operation of a step since the profile began. The seconds of all operations
 * of one kind of step sum to the time of its steps, waiting between threads included. Bytes and
 * products are those that the arithmetic needs: every weight once, and every visible key and
 * value once a row. */
typedef struct tg_op_cost {
    const char *step;   /* "context", "token" or "speculate"; static */
    const char *op;     /* "qkv", "attention", ...; static */
    const char *weight; /* the role of its first matrix, "" where it has none; static */
    int64_t n_steps;    /* steps of this kind */
    int64_t n_tokens;   /* computed in them, of all rows */
    int64_t n_calls;    /* of the operation, in all of them */
    double seconds, n_bytes, n_products;
} tg_op_cost;

enum { TG_MAX_COSTS = 128 }; /* no model has more kinds of operations */

/* Between begin and end every operation is timed, at a few nanoseconds each; beginning again starts
 * from nothing. Outside it costs nothing. */
TG_CHECKED_API tg_status tg_engine_begin_profile(tg_engine *g, tg_err *e);
TG_API void tg_engine_end_profile(tg_engine *g);
/* Returns how many there are so far; writes at most n_max. */
TG_API int32_t tg_engine_read_profile(tg_engine *g, tg_op_cost *costs, int32_t n_max);

/* Peak rates of this machine, measured now with the engine's own threads and its tier's
 * instructions: the limits to compare a step's bytes and products with. */
typedef struct tg_peak_rates {
    double read_bytes_per_s; /* of some memory over and over, each thread its own part of it */
    double products_per_s;   /* of 8-bit integers, added up; all threads */
    double round_trip_ns;    /* of a cache line between threads 0 and 1; 0 with one thread */
} tg_peak_rates;

/* Takes about 50 ms, or reading memory [n_bytes] three times; memory is 64-byte aligned. From the
 * thread that may call tg_engine_step. */
TG_API tg_peak_rates tg_engine_measure_rates(tg_engine *g, const void *memory, size_t n_bytes);

/* Steps to be timed by themselves, over made-up tokens. A step of one token a row is what decoding
 * does; one of n tokens verifies n - 1 drafts in every row. */
typedef struct tg_step_trial {
    int32_t n_rows;          /* rows that take part, 1 to the model's batch */
    int32_t depth;           /* tokens that every row holds before each step */
    const int32_t *n_tokens; /* [n_cases] of a row and step: 1 to the model's speculation + 1 */
    int32_t n_cases;
    int32_t n_rounds; /* each round runs every case once, in turn */
} tg_step_trial;

/* Milliseconds of every step, ms [n_rounds][n_cases]. TG_E_BUSY while a request is running; what
 * the rows had cached is forgotten. From the thread that may call tg_engine_step. */
TG_CHECKED_API tg_status tg_engine_time_steps(tg_engine *g, const tg_step_trial *o, double *ms,
                                              tg_err *e);

/* ---- evaluation ------------------------------------------------------------------------------ */

/* Runs `tokens` through the model and hands out the logits after each of them: row i is the
 * prediction after tokens 0..i, n_vocab floats, borrowed for the call. `on_row` true ends it early
 * with TG_E_CANCELLED. Results do not depend on chunk (tokens a step; 0 and more than it: what a
 * bucket and 64 MB of logits hold). */
TG_CHECKED_API tg_status tg_engine_eval(tg_engine *g, const int32_t *tokens, int32_t n_tokens,
                                        int32_t chunk,
                                        bool (*on_row)(void *context, int32_t i,
                                                       const float *logits, int32_t n_vocab),
                                        void *context, tg_err *e);

#ifdef __cplusplus
}
#endif
#endif
