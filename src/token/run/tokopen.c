/* SPDX-License-Identifier: Apache-2.0
 * tokopen.c - opening a compiled tokenizer, and its checks.
 *
 * Two kinds of check keep a damaged blob from doing harm. Opening looks at everything whose number
 * does not grow with the vocabulary: the header, the sections, the steps. Ids and offsets inside
 * the large tables are checked where they are read, since reading them all at open would cost what
 * the blob is there to save. */
#include "token/run/tok.h"
#include "token/run/tokblob.h"

#include <inttypes.h>
#include <string.h>

tg_status tg_tok_fail_damaged(tg_err *e, const char *what)
{
    return tg_fail(e, TG_E_CORRUPT, "the compiled tokenizer is damaged: %s; export the model again",
                   what);
}

static bool is_power_of_two(uint64_t n)
{
    return n && (n & (n - 1)) == 0;
}

static bool is_id_or_none(int32_t id, int32_t n)
{
    return id >= -1 && id < n;
}

/* Numbers first: sections are checked against them. */
static tg_status check_header(const tg_tok_header *h, size_t n_bytes, tg_err *e)
{
    if (memcmp(h->magic, TG_TOK_MAGIC, sizeof h->magic) != 0)
        return tg_tok_fail_damaged(e, "it does not begin with " TG_TOK_MAGIC);
    if (h->version != TG_TOK_VERSION)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "the compiled tokenizer has version %" PRIu32 " and this program reads %d; "
                       "export the model again",
                       h->version, TG_TOK_VERSION);
    if (h->header_bytes != sizeof *h || h->n_bytes != n_bytes)
        return tg_tok_fail_damaged(e, "its size is not what its header says");
    if (h->n_vocab < 1 || h->n_symbols < h->n_vocab || h->n_symbols == INT32_MAX)
        return tg_tok_fail_damaged(e, "its counts of tokens");
    if (h->n_norm < 0 || h->n_pre < 0 || h->n_norm > TG_TOK_MAX_STEPS ||
        h->n_pre > TG_TOK_MAX_STEPS)
        return tg_tok_fail_damaged(e, "its count of steps");
    if (h->n_added < 0 || h->n_prefix < 0 || h->n_suffix < 0 || h->n_prefix > TG_TOK_MAX_STEPS ||
        h->n_suffix > TG_TOK_MAX_STEPS || h->max_key_bytes < 0 || h->n_left < 0 || h->n_right < 0 ||
        h->max_word_chars < 0)
        return tg_tok_fail_damaged(e, "a negative or huge count");
    if (h->n_ends != 0 && h->n_ends != 1 && h->n_ends != 3)
        return tg_tok_fail_damaged(e, "its count of ends");
    if (h->model < 0 || h->model >= TG_TOK_MODEL_COUNT) return tg_tok_fail_damaged(e, "its model");
    /* One list of pairs a rank is made on demand: no more ranks than merges or tokens. */
    if (h->n_ranks < 0 ||
        (uint64_t)h->n_ranks > (uint64_t)h->n_vocab + h->sections[TG_TOK_MERGES].n_bytes / 16)
        return tg_tok_fail_damaged(e, "its count of ranks");
    /* A ring of as many scores is made on demand. */
    if ((uint64_t)h->max_key_bytes > h->sections[TG_TOK_KEYS].n_bytes)
        return tg_tok_fail_damaged(e, "the length of its longest key");
    int32_t n = h->n_vocab;
    if (!is_id_or_none(h->bos_id, n) || !is_id_or_none(h->eos_id, n) ||
        !is_id_or_none(h->unk_id, n) || !is_id_or_none(h->pad_id, n) ||
        !is_id_or_none(h->unk_name_id, n))
        return tg_tok_fail_damaged(e, "a special id outside the vocabulary");
    return TG_OK;
}

/* Bytes of one item of each section, and how many items: -1 for "any". */
static tg_status check_sections(const tg_tok_header *h, tg_err *e)
{
    bool has_splits = h->flags & TG_TOK_HAS_SPLITS;
    const struct {
        size_t item;
        int64_t count;
        bool is_table; /* a power of two */
    } rule[TG_TOK_SECTION_COUNT] = {
        [TG_TOK_KEY_AT] = {4, (int64_t)h->n_symbols + 1, false},
        [TG_TOK_KEYS] = {1, -1, false},
        [TG_TOK_PIECE_AT] = {4, (int64_t)h->n_vocab + 1, false},
        [TG_TOK_PIECES] = {1, -1, false},
        [TG_TOK_FLAGS] = {2, h->n_symbols, false},
        [TG_TOK_SLOTS] = {sizeof(tg_tok_slot), -1, true},
        [TG_TOK_MERGES] = {sizeof(tg_tok_merge), -1, true},
        [TG_TOK_BYTE_IDS] = {4, 256, false},
        [TG_TOK_SEAMS] = {4, -1, true},
        [TG_TOK_STEPS] = {sizeof(tg_tok_step), (int64_t)h->n_norm + h->n_pre, false},
        [TG_TOK_STRINGS] = {1, -1, false},
        [TG_TOK_ADDED] = {sizeof(tg_tok_added), h->n_added, false},
        [TG_TOK_TRIE_RAW] = {sizeof(tg_tok_node), -1, false},
        [TG_TOK_TRIE_NORM] = {sizeof(tg_tok_node), -1, false},
        [TG_TOK_AFFIX] = {4, (int64_t)h->n_prefix + h->n_suffix, false},
        [TG_TOK_SCORES] = {8, h->model == TG_TOK_UNIGRAM ? h->n_vocab : 0, false},
        [TG_TOK_ENDS] = {sizeof(tg_tok_part), (int64_t)h->n_ends * h->n_vocab, false},
        [TG_TOK_KEY_TRIE] = {sizeof(tg_keytrie_unit), -1, false},
        [TG_TOK_DFA] = {TG_DFA_ALIGN, -1, false},
        [TG_TOK_SPLITS] = {sizeof(tg_tok_split), has_splits ? h->n_vocab : 0, false},
        [TG_TOK_BIGRAMS] = {4, has_splits ? TG_TOK_N_BYTE_PAIRS : 0, false},
        [TG_TOK_EARLY] = {4, has_splits ? -1 : 0, has_splits},
    };
    for (int k = 0; k < TG_TOK_SECTION_COUNT; k++) {
        tg_tok_range r = h->sections[k];
        if (r.at % TG_TOK_ALIGN || r.at < sizeof *h || r.at > h->n_bytes ||
            r.n_bytes > h->n_bytes - r.at || r.n_bytes > UINT32_MAX || r.n_bytes % rule[k].item)
            return tg_fail(e, TG_E_CORRUPT,
                           "the compiled tokenizer is damaged: section %d is [%" PRIu64
                           ", +%" PRIu64 ") of %" PRIu64 " bytes; export the model again",
                           k, r.at, r.n_bytes, h->n_bytes);
        uint64_t n = r.n_bytes / rule[k].item;
        if ((rule[k].count >= 0 && n != (uint64_t)rule[k].count) ||
            (rule[k].is_table && !is_power_of_two(n)))
            return tg_fail(e, TG_E_CORRUPT,
                           "the compiled tokenizer is damaged: section %d has %" PRIu64
                           " items; export the model again",
                           k, n);
    }
    return TG_OK;
}

/* Models that search along key_trie. */
static bool walks_keys(int32_t model)
{
    return model == TG_TOK_UNIGRAM || model == TG_TOK_WORDPIECE;
}

static bool is_text(const tg_tokenizer *t, uint32_t at, uint32_t n)
{
    return tg_utf8_find_invalid((tg_str){t->strings + at, n}) == n;
}

/* Strings of steps go into texts, which PCRE2 trusts to be UTF-8. */
static tg_status check_steps(const tg_tokenizer *t, tg_err *e)
{
    const tg_tok_header *h = t->h;
    for (int32_t i = 0; i < h->n_norm + h->n_pre; i++) {
        const tg_tok_step *p = &t->steps[i];
        if (p->op >= TG_TOK_OP_COUNT || !tg_tok_is_string(t, p->a_at, p->a_bytes) ||
            !tg_tok_is_string(t, p->b_at, p->b_bytes) ||
            (p->op != TG_TOK_CHARSMAP && !is_text(t, p->a_at, p->a_bytes)) ||
            !is_text(t, p->b_at, p->b_bytes))
            return tg_tok_fail_damaged(e, "a step");
        int32_t most = tg_tok_split_most(p->op);
        if (most < 0) continue;
        if (p->x < 0 || p->x >= TG_TOK_BEHAVIOR_COUNT || p->y < 0 || p->y > most)
            return tg_tok_fail_damaged(e, "the behavior of a step");
        if (i < h->n_norm) return tg_tok_fail_damaged(e, "a normalizer that splits");
    }
    if (!tg_tok_is_string(t, h->word_prefix_at, h->word_prefix_bytes) ||
        !tg_tok_is_string(t, h->word_suffix_at, h->word_suffix_bytes) ||
        h->word_prefix_bytes > TG_TOK_MAX_WORD_AFFIX ||
        h->word_suffix_bytes > TG_TOK_MAX_WORD_AFFIX)
        return tg_tok_fail_damaged(e, "the marks of words");
    for (int32_t i = 0; i < h->n_prefix + h->n_suffix; i++)
        if (t->affix[i] < 0 || t->affix[i] >= h->n_vocab)
            return tg_tok_fail_damaged(e, "an id that is put around a text");
    for (int i = 0; i < 2; i++)
        if (t->n_nodes[i] < 1) return tg_tok_fail_damaged(e, "a trie without a root");
    if ((walks_keys(h->model) || h->flags & TG_TOK_HAS_SPLITS) && t->key_trie.n_units < 1)
        return tg_tok_fail_damaged(e, "a trie of keys without a root");
    if (h->flags & TG_TOK_HAS_SPLITS &&
        h->sections[TG_TOK_EARLY].n_bytes < 2 * sizeof *t->splits.early)
        return tg_tok_fail_damaged(e, "the table of early merges");
    return TG_OK;
}

static const void *section(const tg_tok_header *h, tg_tok_section k)
{
    return (const char *)h + h->sections[k].at;
}

/* Only after check_sections: counts below are items that are really there. */
static void set_views(tg_tokenizer *t)
{
    const tg_tok_header *h = t->h;
    t->key_at = section(h, TG_TOK_KEY_AT);
    t->keys = section(h, TG_TOK_KEYS);
    t->n_key_bytes = (uint32_t)h->sections[TG_TOK_KEYS].n_bytes;
    t->piece_at = section(h, TG_TOK_PIECE_AT);
    t->pieces = section(h, TG_TOK_PIECES);
    t->n_piece_bytes = (uint32_t)h->sections[TG_TOK_PIECES].n_bytes;
    t->flags = section(h, TG_TOK_FLAGS);
    t->slots = section(h, TG_TOK_SLOTS);
    t->slot_mask = (uint32_t)(h->sections[TG_TOK_SLOTS].n_bytes / sizeof *t->slots - 1);
    t->merges = section(h, TG_TOK_MERGES);
    t->merge_mask = (uint32_t)(h->sections[TG_TOK_MERGES].n_bytes / sizeof *t->merges - 1);
    t->splits = (tg_tok_splits){
        .merges = t->merges,
        .at = section(h, TG_TOK_SPLITS),
        .bigrams = section(h, TG_TOK_BIGRAMS),
        .early = section(h, TG_TOK_EARLY),
        .merge_mask = t->merge_mask,
        .n_levels =
            tg_tok_early_level((int32_t)(h->sections[TG_TOK_EARLY].n_bytes / sizeof(uint32_t))),
        .n = h->n_vocab,
    };
    t->byte_ids = section(h, TG_TOK_BYTE_IDS);
    t->seams = section(h, TG_TOK_SEAMS);
    t->seam_mask = (uint32_t)(h->sections[TG_TOK_SEAMS].n_bytes * 8 - 1);
    t->steps = section(h, TG_TOK_STEPS);
    t->strings = section(h, TG_TOK_STRINGS);
    t->n_string_bytes = (uint32_t)h->sections[TG_TOK_STRINGS].n_bytes;
    t->added = section(h, TG_TOK_ADDED);
    t->affix = section(h, TG_TOK_AFFIX);
    t->scores = section(h, TG_TOK_SCORES);
    t->ends = section(h, TG_TOK_ENDS);
    t->key_trie.units = section(h, TG_TOK_KEY_TRIE);
    t->key_trie.n_units =
        (uint32_t)(h->sections[TG_TOK_KEY_TRIE].n_bytes / sizeof *t->key_trie.units);
    t->trie[0] = section(h, TG_TOK_TRIE_RAW);
    t->trie[1] = section(h, TG_TOK_TRIE_NORM);
    t->n_nodes[0] = (uint32_t)(h->sections[TG_TOK_TRIE_RAW].n_bytes / sizeof **t->trie);
    t->n_nodes[1] = (uint32_t)(h->sections[TG_TOK_TRIE_NORM].n_bytes / sizeof **t->trie);
}

/* Where marked tokens begin in the trie. */
static void find_marked_node(tg_tokenizer *t)
{
    t->marked_node = t->key_trie.n_units ? 0 : TG_KEYTRIE_NONE;
    const char *mark = t->strings + t->h->word_prefix_at;
    for (uint32_t i = 0; i < t->h->word_prefix_bytes && t->marked_node != TG_KEYTRIE_NONE; i++)
        t->marked_node = tg_keytrie_find_child(&t->key_trie, t->marked_node, (uint8_t)mark[i]);
}

static tg_status open_pattern(tg_tokenizer *t, int32_t i, tg_err *e)
{
    const tg_tok_step *p = &t->steps[i];
    const tg_tok_range *dfa = &t->h->sections[TG_TOK_DFA];
    if (p->dfa == 0) {
        tg_str pattern = {t->strings + p->a_at, p->a_bytes};
        return tg_regex_new(&t->regex[i], pattern, e);
    }
    uint64_t at = ((uint64_t)p->dfa - 1) * TG_DFA_ALIGN;
    if (at >= dfa->n_bytes ||
        !tg_dfa_open(&t->dfa[i], (const char *)t->h + dfa->at + at, (size_t)(dfa->n_bytes - at)))
        return tg_tok_fail_damaged(e, "the automaton of a pattern");
    return TG_OK;
}

/* Patterns without an automaton become machine code, which cannot lie in the blob: a tenth of a
 * millisecond each. */
static tg_status open_patterns(tg_tokenizer *t, tg_err *e)
{
    int32_t n = t->h->n_norm + t->h->n_pre;
    t->regex = TG_ARENA_ARRAY(&t->arena, tg_regex *, n);
    t->dfa = TG_ARENA_ARRAY(&t->arena, tg_dfa, n);
    if (!t->regex || !t->dfa) return tg_fail_nomem(e, (size_t)n * sizeof(tg_dfa), "the patterns");
    for (int32_t i = 0; i < n; i++)
        if (t->steps[i].op == TG_TOK_SPLIT_REGEX || t->steps[i].op == TG_TOK_REPLACE_REGEX)
            TG_TRY(open_pattern(t, i, e));
    return TG_OK;
}

tg_status tg_tokenizer_open(tg_tokenizer **out, const void *blob, size_t n_bytes, tg_err *e)
{
    *out = NULL;
    if ((uintptr_t)blob % TG_TOK_ALIGN)
        return tg_fail(e, TG_E_ARGUMENT, "a compiled tokenizer must lie at a multiple of %d bytes",
                       TG_TOK_ALIGN);
    if (n_bytes < sizeof(tg_tok_header))
        return tg_fail(e, TG_E_CORRUPT,
                       "%zu bytes are too few for a compiled tokenizer, whose header has %zu; "
                       "export the model again",
                       n_bytes, sizeof(tg_tok_header));
    TG_TRY(check_header(blob, n_bytes, e));
    TG_TRY(check_sections(blob, e));
    /* The object lies in the arena that it owns. */
    tg_arena arena = {0};
    tg_tokenizer *t = TG_ARENA_NEW(&arena, tg_tokenizer);
    if (!t) return tg_fail_nomem(e, sizeof *t, "a tokenizer");
    t->arena = arena;
    t->h = blob;
    set_views(t);
    t->spares = TG_ARENA_NEW(&t->arena, tg_tok_spares);
    tg_status s = t->spares ? check_steps(t, e) : tg_fail_nomem(e, sizeof *t, "a tokenizer");
    if (s == TG_OK) find_marked_node(t);
    if (s == TG_OK) s = open_patterns(t, e);
    if (s != TG_OK) {
        tg_tokenizer_close(t);
        return s;
    }
    *out = t;
    return TG_OK;
}

void tg_tokenizer_close(tg_tokenizer *t)
{
    if (!t) return;
    for (int32_t i = 0; t->regex && i < t->h->n_norm + t->h->n_pre; i++)
        tg_regex_free(t->regex[i]);
    for (int i = 0; t->spares && i < TG_TOK_MAX_SPARES; i++)
        tg_tok_scratch_free(t->spares->at[i]);
    tg_arena arena = t->arena;
    tg_arena_deinit(&arena);
}
