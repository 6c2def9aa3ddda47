/* SPDX-License-Identifier: Apache-2.0
 * wordpiece.c - models that take the longest token: WordPiece from left to right, with a mark
 * before tokens that begin no word (in GGUF files: that begin one), and WordLevel, whose only
 * tokens are words.
 *
 * A word that cannot be covered to its end is one unknown token, whatever its beginning was. */
#include "token/run/tokblob.h"

static tg_status emit_unknown(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    if (s->t->h->unk_id < 0) return tg_tok_fail_unknown(v, word.begin, e);
    tg_tok_emit(s, v, s->t->h->unk_id, word.begin, word.end);
    return TG_OK;
}

/* The longest token that begins at `at`: its id, or -1; *end is where it ends. */
static int32_t find_longest(const tg_tokenizer *t, const tg_tok_view *v, int32_t at,
                            int32_t word_end, bool is_inner, int32_t *end)
{
    bool marks_first = t->h->flags & TG_TOK_MARK_FIRST, is_marked = is_inner != marks_first;
    uint32_t unit = is_marked ? t->marked_node : 0;
    int32_t best = -1;
    for (int32_t i = at; i < word_end && unit != TG_KEYTRIE_NONE; i++) {
        unit = tg_keytrie_find_child(&t->key_trie, unit, (uint8_t)v->ptr[i]);
        if (unit == TG_KEYTRIE_NONE) break;
        /* A mark that stands in the text is no mark. */
        if (marks_first && is_inner && unit == t->marked_node) return -1;
        int32_t id = t->key_trie.units[unit].id;
        if ((uint32_t)id >= (uint32_t)t->h->n_vocab) continue;
        best = id;
        *end = i + 1;
    }
    return best;
}

static bool has_more_chars(const tg_tok_view *v, tg_span word, int32_t most, bool is_bytes)
{
    if (word.end - word.begin <= most) return false; /* no more characters than bytes */
    int32_t n = 0;
    for (int32_t i = word.begin; i < word.end && n <= most; i++)
        n += is_bytes || ((unsigned char)v->ptr[i] & 0xc0) != 0x80;
    return n > most;
}

tg_status tg_wordpiece_encode(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    const tg_tokenizer *t = s->t;
    if (word.begin >= word.end) return TG_OK;
    if (has_more_chars(v, word, t->h->max_word_chars, t->h->flags & TG_TOK_BYTE_LEVEL))
        return emit_unknown(s, v, word, e);
    size_t n_ids = s->out->len, n_spans = s->spans ? s->spans->len : 0;
    for (int32_t at = word.begin, end = 0; at < word.end; at = end) {
        int32_t id = find_longest(t, v, at, word.end, at > word.begin, &end);
        if (id < 0) { /* takes back what was emitted */
            s->out->len = n_ids;
            if (s->spans) s->spans->len = n_spans;
            return emit_unknown(s, v, word, e);
        }
        tg_tok_emit(s, v, id, at, end);
    }
    return TG_OK;
}

tg_status tg_wordlevel_encode(tg_tok_scratch *s, const tg_tok_view *v, tg_span word, tg_err *e)
{
    const tg_tokenizer *t = s->t;
    int32_t n = word.end - word.begin, id = -1;
    if (n <= 0) return TG_OK;
    if (n <= t->h->max_key_bytes) id = tg_tok_find_key(t, v->ptr + word.begin, (size_t)n);
    if ((uint32_t)id >= (uint32_t)t->h->n_vocab) return emit_unknown(s, v, word, e);
    tg_tok_emit(s, v, id, word.begin, word.end);
    return TG_OK;
}
