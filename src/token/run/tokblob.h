/* SPDX-License-Identifier: Apache-2.0
 * tokblob.h - the compiled tokenizer, byte by byte, and the objects that read it in place.
 *
 *   offset 0      tg_tok_header: numbers and the table of sections
 *   then          the sections, each aligned to 64 bytes, in any order; two may share bytes
 *
 * Integers are little-endian. Names of the form TG_TOK_* are numbers in files: append, never
 * renumber.
 *
 * A token has three strings. Its spelling is what the file writes. Its key is what the model
 * matches against: the spelling, or with a byte-level alphabet the bytes that the spelling stands
 * for. Its piece is what it prints. The spelling is not stored, since it follows from the key.
 * Where the first or the last token of a text prints something else, ENDS has it. */
#ifndef TG_TOKEN_TOKBLOB_H
#define TG_TOKEN_TOKBLOB_H

#include "base/mem.h"
#include "token/run/keytrie.h"
#include "token/run/mergequeue.h"
#include "token/run/tok.h"
#include "token/run/tokcache.h"
#include "token/run/tokdfa.h"
#include "token/run/tokregex.h"

#include <stdatomic.h>

#define TG_TOK_MAGIC "TGTOKENS"
enum { TG_TOK_VERSION = 8, TG_TOK_ALIGN = 64 };

typedef enum tg_tok_section {
    TG_TOK_KEY_AT,    /* uint32 [n_symbols + 1]: begin of each key in KEYS */
    TG_TOK_KEYS,      /* bytes */
    TG_TOK_PIECE_AT,  /* uint32 [n_vocab + 1] into PIECES */
    TG_TOK_PIECES,    /* bytes */
    TG_TOK_FLAGS,     /* uint16 [n_symbols], TG_TOK_IS_* */
    TG_TOK_SLOTS,     /* tg_tok_slot [power of two]: key -> id, open addressing */
    TG_TOK_MERGES,    /* tg_tok_merge [power of two]: (left, right) -> rank, id */
    TG_TOK_BYTE_IDS,  /* int32 [256]: symbol of a byte, or -1 */
    TG_TOK_SEAMS,     /* uint32 [power of two]: bits of the neighbours inside tokens */
    TG_TOK_STEPS,     /* tg_tok_step [n_norm + n_pre] */
    TG_TOK_STRINGS,   /* bytes that steps and added tokens refer to */
    TG_TOK_ADDED,     /* tg_tok_added [n_added], in the order of the file */
    TG_TOK_TRIE_RAW,  /* tg_tok_node [..]: added tokens looked up in the text as it came */
    TG_TOK_TRIE_NORM, /* tg_tok_node [..]: those looked up in normalized text */
    TG_TOK_AFFIX,     /* int32 [n_prefix + n_suffix]: ids put around a text */
    TG_TOK_SCORES,    /* double [n_vocab]: Unigram's, empty for other models */
    TG_TOK_KEY_TRIE,  /* tg_keytrie_unit [..]: keys to ids, where the model walks along a word */
    TG_TOK_DFA,       /* images of tokdfa.h, for patterns that have one */
    TG_TOK_ENDS,      /* tg_tok_part [n_ends * n_vocab]: what tokens print at a text's ends */
    TG_TOK_SPLITS,    /* tg_tok_split [n_vocab], with TG_TOK_HAS_SPLITS */
    TG_TOK_BIGRAMS,   /* int32 [256 * 256], with it: the rank of merging the symbols of two bytes */
    TG_TOK_EARLY,     /* uint32 [power of two], with it: whether a pair may merge below a rank */
    TG_TOK_SECTION_COUNT
} tg_tok_section;

/* tg_tok_header.model: how a word becomes ids */
typedef enum tg_tok_model {
    TG_TOK_BPE,
    TG_TOK_UNIGRAM,
    TG_TOK_WORDPIECE,
    TG_TOK_WORDLEVEL,
    TG_TOK_MODEL_COUNT
} tg_tok_model;

/* tg_tok_header.flags */
enum {
    TG_TOK_BYTE_LEVEL = 1,    /* symbols are bytes, not characters */
    TG_TOK_BYTE_FALLBACK = 2, /* a character without a symbol becomes its bytes */
    TG_TOK_FUSE_UNK = 4,      /* a run of unknown characters is one unknown token */
    TG_TOK_IGNORE_MERGES = 8, /* a word that is a token is that token */
    TG_TOK_HAS_SEAMS = 16,    /* SEAMS may cut a word before merging */
    TG_TOK_SPELL_BYTES = 32,  /* keys are bytes: a spelling is the key in the byte alphabet */
    TG_TOK_JOIN_SPACES = 64,  /* decoder absent: tokens are joined by spaces */
    TG_TOK_LOSSY_BYTES = 128, /* pieces are bytes of one UTF-8 stream */
    TG_TOK_BYTE_RUNS = 256,   /* byte tokens in a row are a string, or all of them U+FFFD */
    TG_TOK_CLEAN_UP = 512,    /* blanks before signs are taken out of the decoded text */
    TG_TOK_MARK_FIRST = 2048, /* WordPiece: the prefix marks tokens that begin a word, not others */
    TG_TOK_DROP_REPEATS = 1024, /* a token like the one before prints nothing */
    TG_TOK_FLOAT_SUMS = 4096,   /* Unigram as SentencePiece has it, not as the reference library */
    TG_TOK_HAS_SPLITS = 8192    /* BPE: SPLITS, with all whole tokens in KEY_TRIE, are there */
};

/* TG_TOK_FLAGS, beside the public TG_TOKEN_* */
enum {
    TG_TOK_IS_MODEL = 16,  /* the model's vocabulary holds it; others are added tokens only */
    TG_TOK_IS_MAPPED = 32, /* the key is bytes and the spelling their byte alphabet */
    TG_TOK_IS_WHOLE = 64,  /* merging its own key gives the token back */
    TG_TOK_IS_SYMBOL = 128 /* no token: a character that only merges know (256: TG_TOKEN_UNUSED) */
};

/* tg_tok_header.warnings */
enum { TG_TOK_WARN_PRE_ABSENT, TG_TOK_WARN_DROPOUT, TG_TOK_WARN_COUNT };

typedef struct tg_tok_range {
    uint64_t at, n_bytes;
} tg_tok_range;

typedef struct tg_tok_header {
    char magic[8];
    uint32_t version, header_bytes;
    uint64_t n_bytes; /* of the whole blob */
    int32_t n_vocab, n_symbols;
    int32_t bos_id, eos_id, unk_id, pad_id; /* unk_id is what encoding uses */
    int32_t unk_name_id;                    /* what the file calls its unknown token */
    uint32_t flags, warnings;
    int32_t n_norm, n_pre, n_added, n_prefix, n_suffix;
    int32_t max_key_bytes;                      /* no longer word is looked up whole */
    uint32_t word_prefix_at, word_prefix_bytes; /* put before symbols that begin no word */
    uint32_t word_suffix_at, word_suffix_bytes; /* put after the symbol that ends a word */
    int32_t n_left, n_right, left_cp, right_cp; /* characters taken off a decoded text's ends */
    int32_t n_ends;         /* 0; 1: the first token is different; 3: first, last, both at once */
    int32_t n_ranks;        /* ranks of merges are below */
    int32_t model;          /* tg_tok_model */
    double unk_score;       /* Unigram: of a character that no token is */
    int32_t max_word_chars; /* WordPiece: longer words are unknown */
    uint32_t reserved[5];
    tg_tok_range sections[TG_TOK_SECTION_COUNT];
} tg_tok_header;

/* No padding anywhere: the bytes of a blob are a function of its contents. */
_Static_assert(sizeof(tg_tok_header) == 160 + 16 * TG_TOK_SECTION_COUNT, "the header's layout");

typedef struct tg_tok_part {
    uint32_t at, n_bytes; /* in PIECES */
} tg_tok_part;

typedef struct tg_tok_slot {
    uint32_t hash; /* upper half of the key's hash */
    int32_t id;    /* -1: empty */
} tg_tok_slot;

typedef struct tg_tok_merge {
    int32_t left, right; /* left -1: empty */
    int32_t rank, id;
} tg_tok_merge;

/* tg_tok_split.rank where it is none */
enum { TG_TOK_SPLIT_SYMBOL = -1, TG_TOK_SPLIT_NONE = -2, TG_TOK_SPLIT_LATE = -3 };
enum { TG_TOK_NO_RANK = INT32_MAX, TG_TOK_LATE_MAX_BYTES = 128, TG_TOK_N_BYTE_PAIRS = 256 * 256 };

/* The last merge that makes a token of its own key (neighbors.h). */
typedef struct tg_tok_split {
    int32_t half[2]; /* left and right; -1: no split */
    int32_t rank;
    int32_t shorter; /* the longest whole token that the key begins with; -1: none */
    int32_t first_until, last_until; /* ranks of the merges that take its first and last symbol */
    int32_t n_bytes;                 /* of the key */
    uint8_t first_byte, last_byte;
    uint8_t unused[2];
} tg_tok_split;

_Static_assert(sizeof(tg_tok_split) == 32, "two in a cache line");

/* What tells whether two tokens stay apart (neighbors.h). Borrowed. */
typedef struct tg_tok_splits {
    const tg_tok_merge *merges;
    const tg_tok_split *at; /* [n] */
    const int32_t *bigrams; /* both NULL while splits are being made: no short cuts */
    const uint32_t *early;
    uint32_t merge_mask;
    uint32_t n_levels; /* of `early` */
    int32_t n;
} tg_tok_splits;

typedef struct tg_tok_added {
    uint32_t at, n_bytes; /* the content, in STRINGS */
    int32_t id;
    uint32_t flags; /* TG_TOK_ADDED_* */
} tg_tok_added;

enum {
    TG_TOK_ADDED_LSTRIP = 1,
    TG_TOK_ADDED_RSTRIP = 2,
    TG_TOK_ADDED_SINGLE_WORD = 4,
    TG_TOK_ADDED_NORMALIZED = 8,
    TG_TOK_ADDED_SPECIAL = 16
};

/* A node of a trie. The children of a node lie together, sorted by byte; a child's index is always
 * greater than its parent's, so that a walk ends whatever the bytes say. Node 0 is the root. */
typedef struct tg_tok_node {
    uint32_t first_child;
    int32_t added; /* index of the added token that ends here, or -1 */
    uint16_t n_children;
    uint8_t byte, reserved;
} tg_tok_node;

typedef enum tg_tok_op {
    TG_TOK_NFC,
    TG_TOK_NFD,
    TG_TOK_NFKC,
    TG_TOK_NFKD,
    TG_TOK_LOWERCASE,
    TG_TOK_STRIP_ACCENTS,
    TG_TOK_TRIM,          /* x: left, y: right */
    TG_TOK_PREPEND,       /* a, unless the text is empty; x: tg_tok_lead */
    TG_TOK_REPLACE,       /* a by b */
    TG_TOK_REPLACE_REGEX, /* matches of a by b */
    TG_TOK_LEAD,          /* a before each word that does not begin with it; x: tg_tok_lead */
    TG_TOK_SPLIT,         /* at a; x: tg_tok_behavior, y: inverted */
    TG_TOK_SPLIT_REGEX,   /* at matches of a */
    TG_TOK_CLEAN,         /* BERT's: control characters go, white space becomes blanks */
    TG_TOK_SPACE_CJK,     /* blanks around Chinese characters */
    TG_TOK_STRIP_NONSPACING,
    TG_TOK_NMT,        /* SentencePiece's: the same for other characters */
    TG_TOK_BYTE_CHARS, /* bytes spelled in the byte alphabet */
    TG_TOK_CHARSMAP, /* SentencePiece's table: a its double array, b its replacements; x: longest */
    TG_TOK_SPLIT_CLASS,   /* at characters of class y, a tg_tok_class */
    TG_TOK_SPLIT_SCRIPTS, /* where scripts change */
    TG_TOK_SPLIT_EVERY,   /* into parts of y characters */
    TG_TOK_BLANKS,        /* SentencePiece's: blanks become a; x: TG_TOK_BLANKS_* */
    TG_TOK_OP_COUNT
} tg_tok_op;

typedef enum tg_tok_lead { TG_TOK_LEAD_ALWAYS, TG_TOK_LEAD_FIRST, TG_TOK_LEAD_COUNT } tg_tok_lead;

enum {
    TG_TOK_BLANKS_MERGE = 1, /* runs become one, and none is left at the ends */
    TG_TOK_BLANKS_LEAD = 2   /* one before the first word, merged or not */
};

typedef enum tg_tok_behavior {
    TG_TOK_ISOLATED,
    TG_TOK_REMOVED,
    TG_TOK_MERGED_PREVIOUS,
    TG_TOK_MERGED_NEXT,
    TG_TOK_CONTIGUOUS,
    TG_TOK_BEHAVIOR_COUNT
} tg_tok_behavior;

typedef enum tg_tok_class {
    TG_TOK_CLASS_SPACE,
    TG_TOK_CLASS_PUNCTUATION,
    TG_TOK_CLASS_NUMERIC,
    TG_TOK_CLASS_WORD,
    TG_TOK_CLASS_COUNT
} tg_tok_class;

typedef struct tg_tok_step {
    uint32_t op;
    int32_t x, y;
    uint32_t a_at, a_bytes, b_at, b_bytes; /* in STRINGS */
    uint32_t dfa;                          /* 1 + where in DFA, in units of TG_DFA_ALIGN; 0: none */
} tg_tok_step;

_Static_assert(sizeof(tg_tok_node) == 12 && sizeof(tg_tok_step) == 32, "layouts of the blob");

enum { TG_TOK_MAX_STEPS = 256, TG_TOK_MAX_WORD_AFFIX = 60 };

/* ---- reading in place */

struct tg_tokenizer {
    const tg_tok_header *h;
    const uint32_t *key_at, *piece_at;
    const char *keys, *pieces, *strings;
    uint32_t n_key_bytes, n_piece_bytes, n_string_bytes;
    const uint16_t *flags;
    const tg_tok_slot *slots;
    const tg_tok_merge *merges;
    tg_tok_splits splits;
    const uint32_t *seams;
    uint32_t slot_mask, merge_mask, seam_mask; /* seam_mask counts bits */
    const int32_t *byte_ids, *affix;
    const double *scores;
    const tg_tok_part *ends;
    tg_keytrie key_trie;
    uint32_t marked_node; /* in key_trie, behind word_prefix */
    const tg_tok_step *steps;
    const tg_tok_added *added;
    const tg_tok_node *trie[2]; /* raw, normalized */
    uint32_t n_nodes[2];
    tg_regex **regex; /* [n_norm + n_pre], NULL where a step has none; owned */
    tg_dfa *dfa;      /* the same; a step with a pattern has the one or the other */
    struct tg_tok_spares *spares;
    tg_arena arena; /* owns this object too */
};

/* Scratches between two calls, so that a short text asks for no memory. Any thread takes one and
 * puts it back; whoever finds none makes one. */
enum { TG_TOK_MAX_SPARES = 8 };
typedef struct tg_tok_spares {
    struct tg_tok_scratch *_Atomic at[TG_TOK_MAX_SPARES];
} tg_tok_spares;

/* ---- text on its way: bytes, and where each came from */

/* Bytes of a text. The byte i came from the input's [origin[i].begin, origin[i].end), or from
 * base + i where nothing was rewritten or nobody asked (origin NULL). Borrowed. */
typedef struct tg_tok_view {
    const char *ptr;
    size_t len;
    const tg_span *origin;
    int32_t base;
} tg_tok_view;

typedef struct tg_tok_text {
    tg_buf bytes;
    tg_spans origin; /* one a byte, while is_tracked */
    bool is_tracked;
} tg_tok_text;

typedef struct tg_bpe_symbol {
    int32_t id;
    int32_t rank, merged; /* of merging with the next, and what comes out; INT32_MAX: nothing */
    int32_t prev, next, begin, end;
} tg_bpe_symbol;

/* Unigram: the token of the best path that ends, and later begins, at a byte of the word. */
typedef struct tg_lattice_step {
    int32_t id, n_bytes;
} tg_lattice_step;

/* Whether two tokens stay apart, one of them late (neighbors.h). */
typedef struct tg_late_pair {
    int32_t left, right;
    bool is_known, stay_apart;
} tg_late_pair;

/* All the memory of a call, which the next call on the same thread may use again. {0} is empty. */
typedef struct tg_tok_scratch {
    tg_tok_text text[3];
    int pinned; /* index of the text that later segments still lie in; -1: none */
    tg_spans words[2], matches;
    tg_regex_scratch regex;
    tg_bpe_symbol *symbols;
    size_t n_symbols; /* capacity */
    tg_merge_queue queue;
    uint32_t *dead;        /* a bit for each byte of a word */
    size_t n_dead;         /* capacity */
    tg_late_pair late[64]; /* pairs seen, each in the place of its hash */
    tg_lattice_step *path;
    double *best;                     /* scores of the last places, a ring */
    size_t n_path, n_best;            /* capacities */
    tg_word_cache known[2];           /* words seen, and parts where those may differ */
    tg_span noted[TG_WORD_MAX_BYTES]; /* while is_noting: the bytes of each id of a short word */
    int32_t n_noted;
    bool is_noting;
    tg_tokenizer const *t;
    tg_ids *out;
    tg_spans *spans;        /* NULL: not asked for */
    const int32_t *literal; /* [n_literal] of the options */
    int32_t n_literal;
} tg_tok_scratch;

/* tokscratch.c */
void tg_tok_scratch_deinit(tg_tok_scratch *s);
void tg_tok_scratch_free(tg_tok_scratch *s); /* of the heap; accepts NULL */
/* One of the tokenizer's spares, or a new one; NULL when memory is refused. */
tg_tok_scratch *tg_tok_scratch_take(const tg_tokenizer *t);
/* Puts it among the spares, with no more memory than a text of moderate length needs, or frees it
 * where there are enough. */
void tg_tok_scratch_put_back(const tg_tokenizer *t, tg_tok_scratch *s);

/* tok.c: tg_tokenizer_encode with memory that outlives the call; one tokenizer a scratch. After an
 * error it must be given back before it is used again. */
TG_MUST_USE tg_status tg_tok_encode(tg_tok_scratch *s, tg_ids *out, const tg_tokenizer *t,
                                    tg_str text, const tg_encode_options *o, tg_err *e);

/* toktext.c: runs steps [from, to) over the words of `v` (s->words[*w], spans in v). A rewriting
 * step moves the text into one of s->text, never the pinned one; *v and *w then say where. `take`,
 * unless NULL, gets the words of the last step in lots, as they are found; what s->words holds in
 * the end is the last lot. */
typedef tg_status tg_tok_take_fn(tg_tok_scratch *s, const tg_tok_view *v, const tg_spans *words,
                                 tg_err *e);
TG_MUST_USE tg_status tg_tok_steps_run(tg_tok_scratch *s, tg_tok_view *v, int *w, int32_t from,
                                       int32_t to, tg_tok_take_fn *take, tg_err *e);

/* The greatest y of a splitting step; -1 for a rewriting one. */
int32_t tg_tok_split_most(uint32_t op);

/* bpe.c, unigram.c, wordpiece.c: append the ids of one word, bytes [word.begin, word.end) of v. */
typedef tg_status tg_tok_encode_fn(tg_tok_scratch *s, const tg_tok_view *v, tg_span word,
                                   tg_err *e);
TG_MUST_USE tg_tok_encode_fn tg_bpe_encode, tg_unigram_encode, tg_wordpiece_encode,
    tg_wordlevel_encode;
/* The same without looking the word up whole: what merging, or the best path, makes of it. */
TG_MUST_USE tg_tok_encode_fn tg_bpe_merge, tg_unigram_search;

/* tokadded.c: the next added token at or after `from`: its index, and in *at the bytes it takes;
 * -1 when there is none. `trie` 0 looks in raw, 1 in normalized text. */
int32_t tg_tok_added_find(const tg_tokenizer *t, int trie, tg_str text, size_t from, tg_span *at);
/* Whether the token may stand at *at, which then grows by the blanks it swallows; not to the left
 * of `floor`, where the token before ended. */
bool tg_tok_added_accept(const tg_tokenizer *t, int32_t k, tg_str text, size_t floor, tg_span *at);

/* tok.c: appends an id that stands for bytes [begin, end) of v, and its span. */
void tg_tok_emit(tg_tok_scratch *s, const tg_tok_view *v, int32_t id, int32_t begin, int32_t end);
/* Only the span, for an id that was pushed. */
void tg_tok_locate(tg_tok_scratch *s, const tg_tok_view *v, int32_t begin, int32_t end);
/* tok.c: the error of a model that has no token for those bytes, nor an unknown token. */
TG_MUST_USE tg_status tg_tok_fail_unknown(const tg_tok_view *v, int32_t begin, tg_err *e);
/* tokopen.c: the error of a damaged blob; `what` is the damaged part. */
TG_MUST_USE tg_status tg_tok_fail_damaged(tg_err *e, const char *what);
/* Which end of a text a token stands at. */
enum { TG_TOK_AT_FIRST = 1, TG_TOK_AT_LAST = 2 };
/* tok.c: what the token prints there. */
tg_str tg_tok_piece_at(const tg_tokenizer *t, int32_t id, int end);
/* tok.c: the id of a key of the model, or -1. */
int32_t tg_tok_find_key(const tg_tokenizer *t, const char *key, size_t n);
uint64_t tg_tok_hash(const char *key, size_t n);

/* Two shifts of one product: the table is a power of two in size, and ids of neighbours in the
 * vocabulary differ in their low bits only. */
TG_INLINE uint32_t tg_tok_merge_hash(int32_t left, int32_t right)
{
    uint64_t x = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9e3779b97f4a7c15u;
    return (uint32_t)(x >> 32) ^ (uint32_t)(x >> 15);
}

/* EARLY says of a pair whether it may merge below a rank; "no" is certain, and the answer to most.
 * Level k, from 2 on, has two bits in one word for each merge of a rank below 2^k: 2^(k - 2) words,
 * which begin at word 2^(k - 2). Most ranks that are asked about are low, those of short tokens;
 * their levels stay in the first caches, where the table of merges has megabytes. */
typedef struct tg_tok_early_bits {
    uint32_t word, mask;
} tg_tok_early_bits;

/* The lowest level that has the merges of a rank. */
TG_INLINE uint32_t tg_tok_early_level(int32_t rank)
{
    return 32 - (uint32_t)__builtin_clz((uint32_t)rank | 2);
}

TG_INLINE tg_tok_early_bits tg_tok_early_at(int32_t left, int32_t right, uint32_t level)
{
    uint32_t hash = tg_tok_merge_hash(left, right), first = 1u << (level - 2);
    return (tg_tok_early_bits){first | (hash & (first - 1)),
                               1u << (hash >> 27) | 1u << (hash >> 22 & 31)};
}

TG_INLINE uint32_t tg_tok_seam_hash(int32_t left_cp, int32_t right_cp)
{
    return tg_tok_merge_hash(left_cp, right_cp);
}

/* Beyond all code points. */
TG_INLINE uint32_t tg_tok_byte_seam_hash(char left, char right)
{
    return tg_tok_merge_hash(0x200000 | (uint8_t)left, 0x200000 | (uint8_t)right);
}

TG_INLINE tg_str tg_tok_key(const tg_tokenizer *t, int32_t id)
{
    uint32_t a = t->key_at[id], b = t->key_at[id + 1];
    return a <= b && b <= t->n_key_bytes ? (tg_str){t->keys + a, b - a} : (tg_str){"", 0};
}

/* Whether the bytes lie inside the strings of steps and added tokens. */
TG_INLINE bool tg_tok_is_string(const tg_tokenizer *t, uint32_t at, uint32_t n)
{
    return at <= t->n_string_bytes && n <= t->n_string_bytes - at;
}

/* Whether the byte continues a character of UTF-8. */
TG_INLINE bool tg_tok_is_tail(char byte)
{
    return ((unsigned char)byte & 0xc0) == 0x80;
}

/* ---- the byte alphabet of byte-level vocabularies: each byte has a printable character */

int32_t tg_tok_byte_char(uint8_t byte);
int tg_tok_char_byte(int32_t cp); /* -1: no byte has it */

#endif
