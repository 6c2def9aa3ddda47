/* SPDX-License-Identifier: Apache-2.0
 * tokbuild.h - a tokenizer under construction, and the step that writes it as a blob.
 *
 * A front end (tokjson.c, tokgguf.c) fills tokens, merges, steps and added tokens; the back end
 * lays out the tables. What a token owns lives in one arena until tg_tok_build_deinit; large tables
 * end with their last use, for a vocabulary of 262,144 needs 140 MB of them.  */
#ifndef TG_TOKEN_TOKBUILD_H
#define TG_TOKEN_TOKBUILD_H

#include "token/compile/tokcompile.h"
#include "token/run/tokblob.h"

/* Ids beyond this are no vocabulary but a damaged or hostile file. */
enum { TG_TOK_MAX_ID = (1 << 22) - 1, TG_TOK_MAX_ADDED_BYTES = 4096 };

typedef struct tg_tok_entry {
    tg_str text;  /* as the file spells it */
    tg_str key;   /* what the model matches; ptr NULL: nothing does */
    tg_str piece; /* what it prints */
    /* What it prints as the first, the last, the only one; ptr NULL, and all where ends is: its
     * piece. Few tokenizers have any. */
    tg_str *ends;
    uint16_t flags; /* TG_TOKEN_*, TG_TOK_IS_* */
    bool is_present;
    double score; /* Unigram's */
} tg_tok_entry;

static inline bool tg_tok_entry_has_end(const tg_tok_entry *x, int32_t k)
{
    return x->ends && x->ends[k].ptr;
}

typedef struct tg_tok_build_added {
    tg_str content, match; /* match: normalized where that is what is looked up */
    int32_t id;
    uint32_t flags; /* TG_TOK_ADDED_* */
} tg_tok_build_added;

typedef struct tg_tok_build {
    tg_arena arena;
    char *room; /* of the arena, for strings: they need no alignment and are many */
    size_t room_bytes;
    tg_tok_header h; /* numbers and flags; offsets are filled at the end */
    tg_tok_entry *entries;
    int32_t n_entries, size_entries;
    tg_tok_slot *index; /* spelling -> id of the model's tokens */
    uint32_t index_mask;
    tg_tok_merge *merges; /* open addressing from the start */
    uint32_t merge_mask;
    bool keeps_first_merge; /* of two merges of one pair; otherwise the last counts */
    tg_buf joined;          /* spelling of the whole of a listed merge */
    int32_t byte_ids[256];
    tg_buf steps, strings; /* tg_tok_step items; bytes */
    tg_tok_build_added *added;
    int32_t n_added, size_added;
    tg_ids prefix, suffix;
    bool has_affix; /* a post-processor has put ids around the text */
    bool may_cut;   /* a character without a symbol always becomes its bytes: seams are safe */
} tg_tok_build;

void tg_tok_build_init(tg_tok_build *b);
void tg_tok_build_deinit(tg_tok_build *b);
/* The error of n bytes that were refused. */
TG_MUST_USE tg_status tg_tok_build_fail_memory(tg_err *e, size_t n);

/* Room for a vocabulary of known size; others may follow. */
TG_MUST_USE tg_status tg_tok_build_reserve(tg_tok_build *b, int32_t n, tg_err *e);
/* Declares id with its spelling, copied. An id or a spelling given twice is an error. */
TG_MUST_USE tg_status tg_tok_build_add_token(tg_tok_build *b, int32_t id, tg_str text,
                                             uint16_t flags, tg_err *e);
/* Makes spellings findable, after the last model token. Of equal spellings the last counts. */
TG_MUST_USE tg_status tg_tok_build_index(tg_tok_build *b, tg_err *e);
int32_t tg_tok_build_find(const tg_tok_build *b, tg_str text); /* -1: none */

/* Slots of a hash table of n keys, a power of two. At most half full: a miss, the usual answer,
 * then looks at two slots on average. */
uint32_t tg_tok_slots_size(size_t n);
tg_tok_slot *tg_tok_slots_new(uint32_t size); /* empty; the caller frees it */
/* Puts id under its key, or its spelling; a key already there gets the new id. */
void tg_tok_slots_insert(tg_tok_slot *slots, uint32_t mask, const tg_tok_entry *entries,
                         bool by_text, int32_t id);

/* Announces how many merges may come, then takes them. */
TG_MUST_USE tg_status tg_tok_build_begin_merges(tg_tok_build *b, size_t n, tg_err *e);
void tg_tok_build_add_merge(tg_tok_build *b, int32_t left, int32_t right, int32_t rank, int32_t id);

/* Adds the merge of two spellings. The whole is spelled as both, without the first n_mark bytes of
 * the second, which has them. *missing is the spelling that no token has; ptr NULL: there is none,
 * and the merge is added. Valid until the next call. */
TG_MUST_USE tg_status tg_tok_build_add_listed_merge(tg_tok_build *b, tg_str left, tg_str right,
                                                    size_t n_mark, int32_t rank, tg_str *missing,
                                                    tg_err *e);

/* Appends a step; normalizers first, then pre-tokenizers (is_pre). */
TG_MUST_USE tg_status tg_tok_build_add_step(tg_tok_build *b, bool is_pre, tg_tok_step step,
                                            tg_str first, tg_str second, tg_err *e);
TG_MUST_USE tg_status tg_tok_build_add_added(tg_tok_build *b, tg_str content, int32_t id,
                                             uint32_t flags, tg_err *e);
/* Adds a token to a vocabulary that gives ids itself: the id that its content has, or the next free
 * one. An `id` other than TG_TOKEN_NONE must be that. */
TG_MUST_USE tg_status tg_tok_build_add_added_token(tg_tok_build *b, tg_str content, int32_t id,
                                                   uint32_t flags, tg_err *e);
uint32_t tg_tok_build_add_string(tg_tok_build *b, tg_str s);

/* Runs the normalizers over the contents that are looked up in normalized text. Such a token also
 * prints what it was normalized to: so does the reference library. Before the decoders. */
TG_MUST_USE tg_status tg_tok_build_normalize_added(tg_tok_build *b, tg_err *e);

/* n bytes in the arena for the caller's string; the last ones may be given back; NULL
 * when memory is refused. */
char *tg_tok_build_room(tg_tok_build *b, size_t n);
void tg_tok_build_give_back(tg_tok_build *b, size_t n);
/* A copy in the arena; NULL ptr when memory is refused. */
tg_str tg_tok_build_copy(tg_tok_build *b, tg_str s);

/* Gives every token the bytes that its spelling stands for as key, where it has them. */
TG_MUST_USE tg_status tg_tok_build_map_bytes(tg_tok_build *b, tg_err *e);
/* The bytes of a spelling in the byte alphabet, in the arena; ptr NULL when it has none. */
tg_str tg_tok_build_bytes_of(tg_tok_build *b, tg_str text);
/* "<0x41>": the byte, or -1. Two hexadecimal digits of either case, nothing else. */
int tg_tok_parse_byte(tg_str text);

/* tokwrite.c: appends the blob. */
TG_MUST_USE tg_status tg_tok_build_finish(tg_tok_build *b, tg_buf *blob, tg_err *e);

/* The pattern of GPT-2, which ByteLevel means by use_regex. */
extern const char tg_tok_gpt2_pattern[];

#endif
