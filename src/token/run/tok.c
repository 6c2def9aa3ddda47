/* SPDX-License-Identifier: Apache-2.0
 * tok.c - an open tokenizer: the path of a text through it, and look-ups. */
#include "token/run/tok.h"

#include "token/run/tokblob.h"

#include <inttypes.h>
#include <string.h>
#include <xxhash.h>

/* ---- lists */

/* Doubling keeps pushing linear; the list keeps what it had when memory is refused. */
static bool grow(void **ptr, size_t len, size_t *size, size_t item, bool *is_failed)
{
    if (*is_failed) return false;
    if (len < *size) return true;
    size_t want = *size ? *size * 2 : 64, bytes;
    void *p = tg_mul_size(want, item, &bytes) ? tg_mem_resize(*ptr, len * item, bytes) : NULL;
    if (!p) {
        *is_failed = true;
        return false;
    }
    *ptr = p;
    *size = want;
    return true;
}

bool tg_ids_grow(tg_ids *s)
{
    void *p = s->ptr;
    bool has_room = grow(&p, s->len, &s->size, sizeof *s->ptr, &s->is_failed);
    s->ptr = p;
    return has_room;
}

tg_status tg_ids_check(const tg_ids *s, tg_err *e)
{
    return s->is_failed ? tg_fail_nomem(e, s->size * sizeof *s->ptr, "token ids") : TG_OK;
}

void tg_ids_clear(tg_ids *s)
{
    s->len = 0;
    s->is_failed = false;
}

void tg_ids_deinit(tg_ids *s)
{
    tg_mem_free(s->ptr);
    *s = (tg_ids){0};
}

bool tg_spans_grow(tg_spans *s)
{
    void *p = s->ptr;
    bool has_room = grow(&p, s->len, &s->size, sizeof *s->ptr, &s->is_failed);
    s->ptr = p;
    return has_room;
}

void tg_spans_clear(tg_spans *s)
{
    s->len = 0;
    s->is_failed = false;
}

void tg_spans_deinit(tg_spans *s)
{
    tg_mem_free(s->ptr);
    *s = (tg_spans){0};
}

/* ---- hashes and the byte alphabet: facts that compiler and reader share */

/* The lower half picks the slot, the upper half is stored in it: most misses end without a look at
 * the key's bytes. */
uint64_t tg_tok_hash(const char *key, size_t n)
{
    return XXH3_64bits(key, n);
}

/* Printable characters of Latin-1 stand for their own byte; the other 68 bytes, in order, for the
 * characters from U+0100 on. It is the alphabet of GPT-2's vocabulary. */
static bool stands_for_itself(int byte)
{
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

int32_t tg_tok_byte_char(uint8_t byte)
{
    if (stands_for_itself(byte)) return byte;
    /* How many bytes before this one do not stand for themselves: 33 up to 20, then 34 from 7f to
     * a0, then ad. */
    return 0x100 + (byte <= 0x20 ? byte : byte <= 0xa0 ? byte - 0x7f + 0x21 : 0x43);
}

int tg_tok_char_byte(int32_t cp)
{
    if (cp < 0x100) return cp >= 0 && stands_for_itself(cp) ? cp : -1;
    int k = cp - 0x100;
    if (k <= 0x20) return k;
    if (k <= 0x42) return k - 0x21 + 0x7f;
    return k == 0x43 ? 0xad : -1;
}

/* ---- models */

static tg_tok_encode_fn *const models[] = {
    [TG_TOK_BPE] = tg_bpe_encode,
    [TG_TOK_UNIGRAM] = tg_unigram_encode,
    [TG_TOK_WORDPIECE] = tg_wordpiece_encode,
    [TG_TOK_WORDLEVEL] = tg_wordlevel_encode,
};
_Static_assert(TG_COUNT(models) == TG_TOK_MODEL_COUNT, "every model has a row");

void tg_tok_locate(tg_tok_scratch *s, const tg_tok_view *v, int32_t begin, int32_t end)
{
    if (!s->spans) return;
    if (v->origin)
        tg_spans_push(s->spans, v->origin[begin].begin, v->origin[end - 1].end);
    else
        tg_spans_push(s->spans, v->base + begin, v->base + end);
}

void tg_tok_emit(tg_tok_scratch *s, const tg_tok_view *v, int32_t id, int32_t begin, int32_t end)
{
    tg_ids_push(s->out, id);
    tg_tok_locate(s, v, begin, end);
}

tg_status tg_tok_fail_unknown(const tg_tok_view *v, int32_t begin, tg_err *e)
{
    return tg_fail(e, TG_E_UNSUPPORTED,
                   "the text at byte %" PRId32 " is not in the vocabulary, which has no token for "
                   "what it does not know",
                   v->origin ? v->origin[begin].begin : v->base + begin);
}

/* ---- encoding */

/* A damaged table may have no empty slot: `k` ends the walk after one round. */
int32_t tg_tok_find_key(const tg_tokenizer *t, const char *key, size_t n)
{
    uint64_t hash = tg_tok_hash(key, n);
    uint32_t upper = (uint32_t)(hash >> 32), mask = t->slot_mask;
    for (uint32_t i = (uint32_t)hash & mask, k = 0; k <= mask; i = (i + 1) & mask, k++) {
        tg_tok_slot slot = t->slots[i];
        if (slot.id < 0 || slot.id >= t->h->n_symbols) break;
        if (slot.hash != upper) continue;
        tg_str s = tg_tok_key(t, slot.id);
        if (s.len == n && memcmp(s.ptr, key, n) == 0) return slot.id;
    }
    return -1;
}

/* A part of v, as a view of its own. */
static tg_tok_view view_part(const tg_tok_view *v, size_t begin, size_t end)
{
    return (tg_tok_view){v->ptr + begin, end - begin, v->origin ? v->origin + begin : NULL,
                         v->base + (int32_t)begin};
}

static tg_status encode_words(tg_tok_scratch *s, const tg_tok_view *v, const tg_spans *words,
                              tg_err *e)
{
    tg_tok_encode_fn *encode = models[s->t->h->model];
    for (size_t i = 0; i < words->len; i++)
        TG_TRY(encode(s, v, words->ptr[i], e));
    return TG_OK;
}

/* Text that holds no added token: words, then the model. */
static tg_status encode_plain(tg_tok_scratch *s, tg_tok_view v, tg_err *e)
{
    int w = 0;
    const tg_tok_header *h = s->t->h;
    tg_spans_clear(&s->words[w]);
    tg_spans_push(&s->words[w], 0, (int32_t)v.len);
    TG_TRY(tg_tok_steps_run(s, &v, &w, h->n_norm, h->n_norm + h->n_pre, encode_words, e));
    return encode_words(s, &v, &s->words[w], e);
}

/* What is done with text between added tokens of one trie. */
typedef tg_status encode_fn(tg_tok_scratch *s, tg_tok_view v, tg_err *e);

/* The bytes of the text that were given, for some of a view. */
static tg_span find_origin(const tg_tok_view *v, tg_span at)
{
    if (!v->origin) return (tg_span){v->base + at.begin, v->base + at.end};
    return (tg_span){v->origin[at.begin].begin, v->origin[at.end - 1].end};
}

static void emit_added(tg_tok_scratch *s, const tg_tok_view *v, int32_t k, tg_span at)
{
    tg_ids_push(s->out, s->t->added[k].id);
    if (!s->spans) return;
    tg_span origin = find_origin(v, at);
    tg_spans_push(s->spans, origin.begin, origin.end);
}

/* Whether the bytes hold one of the offsets that are plain text; by halving. */
static bool is_literal(const tg_tok_scratch *s, const tg_tok_view *v, tg_span at)
{
    if (!s->n_literal) return false;
    tg_span origin = find_origin(v, at);
    int32_t low = 0, high = s->n_literal;
    while (low < high) {
        int32_t mid = low + (high - low) / 2;
        if (s->literal[mid] < origin.begin)
            low = mid + 1;
        else
            high = mid;
    }
    return low < s->n_literal && s->literal[low] < origin.end;
}

/* True only for a damaged trie: contents are whole characters, and PCRE2 relies on it. */
static bool is_inside_char(tg_str text, size_t at)
{
    return text.ptr && at < text.len && tg_tok_is_tail(text.ptr[at]);
}

/* Cuts the text at the added tokens of one trie and hands what lies between to `encode_rest`. */
static tg_status encode_added(tg_tok_scratch *s, tg_tok_view v, int trie, bool parse_special,
                              encode_fn *encode_rest, tg_err *e)
{
    const tg_tokenizer *t = s->t;
    tg_str text = {v.ptr, v.len};
    size_t done = 0, from = 0;
    tg_span at;
    for (int32_t k; (k = tg_tok_added_find(t, trie, text, from, &at)) >= 0;) {
        from = (size_t)at.end; /* the search goes on behind the token, not behind its blanks */
        int32_t id = t->added[k].id;
        if (id < 0 || id >= t->h->n_vocab)
            return tg_tok_fail_damaged(e, "the id of an added token");
        if (is_inside_char(text, (size_t)at.begin) || is_inside_char(text, from))
            return tg_tok_fail_damaged(e, "an added token");
        if ((t->added[k].flags & TG_TOK_ADDED_SPECIAL) && (!parse_special || is_literal(s, &v, at)))
            continue;
        if (!tg_tok_added_accept(t, k, text, TG_MIN(done, (size_t)at.begin), &at)) continue;
        if ((size_t)at.begin > done)
            TG_TRY(encode_rest(s, view_part(&v, done, (size_t)at.begin), e));
        emit_added(s, &v, k, at);
        /* A token that stands in blanks which the one before swallowed gives the rest of them
         * back; so does the reference library. */
        done = (size_t)at.end;
    }
    return done < v.len ? encode_rest(s, view_part(&v, done, v.len), e) : TG_OK;
}

/* Text between added tokens of the raw kind: normalized, then cut at those of the other kind. */
static tg_status encode_raw_part(tg_tok_scratch *s, tg_tok_view v, bool parse_special, tg_err *e)
{
    int w = 0;
    tg_spans_clear(&s->words[w]);
    tg_spans_push(&s->words[w], 0, (int32_t)v.len);
    s->pinned = -1;
    TG_TRY(tg_tok_steps_run(s, &v, &w, 0, s->t->h->n_norm, NULL, e));
    /* What normalizing made, if it made anything, stays where it is until its last part is done. */
    for (int i = 0; i < (int)TG_COUNT(s->text); i++)
        if (v.ptr && v.ptr == s->text[i].bytes.ptr) s->pinned = i;
    return encode_added(s, v, 1, parse_special, encode_plain, e);
}

static tg_status encode_raw_special(tg_tok_scratch *s, tg_tok_view v, tg_err *e)
{
    return encode_raw_part(s, v, true, e);
}

static tg_status encode_raw_literal(tg_tok_scratch *s, tg_tok_view v, tg_err *e)
{
    return encode_raw_part(s, v, false, e);
}

static void emit_affix(tg_tok_scratch *s, int32_t from, int32_t n, int32_t at)
{
    for (int32_t i = from; i < from + n; i++) {
        tg_ids_push(s->out, s->t->affix[i]);
        if (s->spans) tg_spans_push(s->spans, at, at);
    }
}

static tg_status encode_once(tg_tok_scratch *s, tg_ids *out, const tg_tokenizer *t, tg_str text,
                             const tg_encode_options *o, tg_err *e)
{
    const tg_tok_header *h = t->h;
    if (text.len > TG_ENCODE_MAX_BYTES)
        return tg_fail(e, TG_E_LIMIT, "the text has %zu bytes and the limit is %d", text.len,
                       TG_ENCODE_MAX_BYTES);
    size_t bad = tg_utf8_find_invalid(text);
    if (bad < text.len)
        return tg_fail(e, TG_E_ARGUMENT, "the text is not UTF-8 at byte %zu (0x%02x)", bad,
                       (unsigned char)text.ptr[bad]);
    s->t = t;
    s->out = out;
    s->spans = o->spans;
    TG_ASSERT(o->n_literal == 0 || o->spans);
    s->literal = o->literal;
    s->n_literal = o->n_literal;
    s->pinned = -1;
    for (size_t i = 0; i < TG_COUNT(s->known); i++)
        tg_word_cache_begin(&s->known[i]);
    tg_tok_view v = {text.ptr, text.len, NULL, 0};
    if (o->add_special) emit_affix(s, 0, h->n_prefix, 0);
    if (text.len)
        TG_TRY(encode_added(s, v, 0, o->parse_special,
                            o->parse_special ? encode_raw_special : encode_raw_literal, e));
    if (o->add_special) emit_affix(s, h->n_prefix, h->n_suffix, (int32_t)text.len);
    if (o->spans && o->spans->is_failed)
        return tg_fail_nomem(e, o->spans->size * sizeof(tg_span), "offsets of tokens");
    return tg_ids_check(out, e);
}

tg_status tg_tok_encode(tg_tok_scratch *s, tg_ids *out, const tg_tokenizer *t, tg_str text,
                        const tg_encode_options *o, tg_err *e)
{
    size_t n_before = out->len;
    tg_status status = encode_once(s, out, t, text, o, e);
    if (status != TG_E_UNSUPPORTED || o->spans || !e) return status;
    /* Only an encoding with spans follows the text through its rewriting and knows which byte of
     * the caller's text the message is about. */
    tg_spans spans = {0};
    tg_encode_options with_spans = *o;
    with_spans.spans = &spans;
    out->len = n_before;
    *e = (tg_err){0};
    tg_tok_scratch_deinit(s);
    status = encode_once(s, out, t, text, &with_spans, e);
    tg_spans_deinit(&spans);
    return status;
}

tg_status tg_tokenizer_encode(tg_ids *out, const tg_tokenizer *t, tg_str text,
                              const tg_encode_options *o, tg_err *e)
{
    tg_tok_scratch *s = tg_tok_scratch_take(t);
    if (!s) return tg_fail_nomem(e, sizeof *s, "encoding a text");
    tg_status status = tg_tok_encode(s, out, t, text, o, e);
    if (status == TG_OK)
        tg_tok_scratch_put_back(t, s);
    else
        tg_tok_scratch_free(s);
    return status;
}

/* ---- looking */

int32_t tg_tokenizer_n_vocab(const tg_tokenizer *t)
{
    return t->h->n_vocab;
}

int32_t tg_tokenizer_bos_id(const tg_tokenizer *t)
{
    return t->h->bos_id;
}

int32_t tg_tokenizer_eos_id(const tg_tokenizer *t)
{
    return t->h->eos_id;
}

int32_t tg_tokenizer_unk_id(const tg_tokenizer *t)
{
    return t->h->unk_name_id;
}

int32_t tg_tokenizer_pad_id(const tg_tokenizer *t)
{
    return t->h->pad_id;
}

int32_t tg_tokenizer_n_prefix(const tg_tokenizer *t)
{
    return t->h->n_prefix;
}

int32_t tg_tokenizer_n_added(const tg_tokenizer *t)
{
    return t->h->n_added;
}

int32_t tg_tokenizer_added_id(const tg_tokenizer *t, int32_t i)
{
    TG_ASSERT(i >= 0 && i < t->h->n_added);
    return t->added[i].id;
}

tg_str tg_tokenizer_get_token(const tg_tokenizer *t, int32_t id, uint32_t *flags)
{
    bool is_token = id >= 0 && id < t->h->n_vocab;
    if (flags) *flags = is_token ? t->flags[id] & TG_TOKEN_FLAGS : TG_TOKEN_HOLE;
    if (!is_token) return (tg_str){"", 0};
    uint32_t a = t->piece_at[id], b = t->piece_at[id + 1];
    return a <= b && b <= t->n_piece_bytes ? (tg_str){t->pieces + a, b - a} : (tg_str){"", 0};
}

tg_str tg_tok_piece_at(const tg_tokenizer *t, int32_t id, int end)
{
    if (end == 0 || end > t->h->n_ends) return tg_tokenizer_get_token(t, id, NULL);
    tg_tok_part p = t->ends[(int64_t)(end - 1) * t->h->n_vocab + id];
    bool is_inside = p.at <= t->n_piece_bytes && p.n_bytes <= t->n_piece_bytes - p.at;
    return is_inside ? (tg_str){t->pieces + p.at, p.n_bytes} : (tg_str){"", 0};
}

void tg_tokenizer_print_token(tg_buf *out, const tg_tokenizer *t, int32_t id)
{
    if (id < 0 || id >= t->h->n_vocab) return;
    tg_str key = tg_tok_key(t, id);
    if (!(t->flags[id] & TG_TOK_IS_MAPPED)) {
        tg_buf_add_str(out, key);
        return;
    }
    for (size_t i = 0; i < key.len; i++)
        tg_buf_add_utf8(out, tg_tok_byte_char((uint8_t)key.ptr[i]));
}

int32_t tg_tokenizer_find_token(const tg_tokenizer *t, tg_str spelling)
{
    /* Added tokens come first, as in the reference library: theirs is the id a caller means. */
    for (int32_t i = 0; i < t->h->n_added; i++) {
        const tg_tok_added *a = &t->added[i];
        if (tg_tok_is_string(t, a->at, a->n_bytes) &&
            tg_str_is_equal(spelling, (tg_str){t->strings + a->at, a->n_bytes}))
            return a->id;
    }
    if (!(t->h->flags & TG_TOK_SPELL_BYTES)) {
        int32_t id = tg_tok_find_key(t, spelling.ptr, spelling.len);
        return id < t->h->n_vocab ? id : TG_TOKEN_NONE;
    }
    tg_buf key = {0};
    for (size_t i = 0, n; i < spelling.len; i += n) {
        int32_t cp;
        n = (size_t)tg_utf8_decode(spelling.ptr + i, spelling.len - i, &cp);
        int byte = n ? tg_tok_char_byte(cp) : -1;
        if (byte < 0) break;
        tg_buf_add_byte(&key, (char)byte);
    }
    int32_t id = key.len ? tg_tok_find_key(t, key.ptr, key.len) : TG_TOKEN_NONE;
    tg_buf_deinit(&key);
    return id >= 0 && id < t->h->n_vocab ? id : TG_TOKEN_NONE;
}

const char *tg_tokenizer_find_warning(const tg_tokenizer *t, int32_t i)
{
    static const char *const sentences[TG_TOK_WARN_COUNT] = {
        [TG_TOK_WARN_PRE_ABSENT] =
            "the file does not name its pre-tokenizer (tokenizer.ggml.pre), so the rule 'default' "
            "is used; ids may differ from those the model was trained with",
        [TG_TOK_WARN_DROPOUT] =
            "the tokenizer asks for dropout of merges, which is for training and is not done",
    };
    for (int32_t k = 0; k < TG_TOK_WARN_COUNT; k++)
        if (t->h->warnings >> k & 1 && i-- == 0) return sentences[k];
    return NULL;
}
