/* SPDX-License-Identifier: Apache-2.0 */
#include "token/compile/tokbuild.h"

#include <inttypes.h>
#include <string.h>

/* A fact of the GPT-2 release: contractions, words, numbers, signs, each with the blank before. */
const char tg_tok_gpt2_pattern[] =
    "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

tg_status tg_tok_build_fail_memory(tg_err *e, size_t n)
{
    return tg_fail_nomem(e, n, "compiling a tokenizer");
}

void tg_tok_build_init(tg_tok_build *b)
{
    *b = (tg_tok_build){0};
    tg_tok_header *h = &b->h;
    h->bos_id = h->eos_id = h->unk_id = h->pad_id = h->unk_name_id = TG_TOKEN_NONE;
    for (int i = 0; i < 256; i++)
        b->byte_ids[i] = -1;
}

void tg_tok_build_deinit(tg_tok_build *b)
{
    tg_mem_free(b->entries);
    tg_mem_free(b->index);
    tg_mem_free(b->merges);
    tg_mem_free(b->added);
    tg_buf_deinit(&b->joined);
    tg_buf_deinit(&b->steps);
    tg_buf_deinit(&b->strings);
    tg_ids_deinit(&b->prefix);
    tg_ids_deinit(&b->suffix);
    tg_arena_deinit(&b->arena);
}

char *tg_tok_build_room(tg_tok_build *b, size_t n)
{
    enum { ROOM_BYTES = 32 * 1024 };
    if (n > b->room_bytes || !b->room) {
        size_t size = TG_MAX(n, (size_t)ROOM_BYTES);
        char *p = tg_arena_alloc(&b->arena, size);
        if (!p) return NULL;
        b->room = p;
        b->room_bytes = size;
    }
    char *p = b->room;
    b->room += n;
    b->room_bytes -= n;
    return p;
}

void tg_tok_build_give_back(tg_tok_build *b, size_t n)
{
    b->room -= n;
    b->room_bytes += n;
}

tg_str tg_tok_build_copy(tg_tok_build *b, tg_str s)
{
    char *p = tg_tok_build_room(b, s.len);
    if (p && s.len) memcpy(p, s.ptr, s.len);
    return (tg_str){p, p ? s.len : 0};
}

/* ---- tokens */

tg_status tg_tok_build_reserve(tg_tok_build *b, int32_t n, tg_err *e)
{
    if (n <= b->size_entries) return TG_OK;
    void *p = tg_mem_resize(b->entries, (size_t)b->size_entries * sizeof *b->entries,
                            (size_t)n * sizeof *b->entries);
    if (!p) return tg_tok_build_fail_memory(e, (size_t)n * sizeof *b->entries);
    b->entries = p;
    b->size_entries = n;
    return TG_OK;
}

/* By id, not by count: files list tokens in any order. By a quarter: they are 72 bytes each. */
static tg_status grow_entries(tg_tok_build *b, int32_t n, tg_err *e)
{
    if (n <= b->size_entries) return TG_OK;
    return tg_tok_build_reserve(b, TG_MAX(n, b->size_entries + b->size_entries / 4 + 64), e);
}

tg_status tg_tok_build_add_token(tg_tok_build *b, int32_t id, tg_str text, uint16_t flags,
                                 tg_err *e)
{
    if (id < 0 || id > TG_TOK_MAX_ID)
        return tg_fail(e, TG_E_LIMIT, "token '%.*s' has id %" PRId32 "; ids are 0 to %d",
                       (int)TG_MIN(text.len, (size_t)80), text.ptr, id, TG_TOK_MAX_ID);
    TG_TRY(grow_entries(b, id + 1, e));
    b->n_entries = TG_MAX(b->n_entries, id + 1);
    tg_tok_entry *x = &b->entries[id];
    if (x->is_present)
        return tg_fail(e, TG_E_CORRUPT, "tokens '%.*s' and '%.*s' have the same id %" PRId32,
                       (int)TG_MIN(x->text.len, (size_t)80), x->text.ptr,
                       (int)TG_MIN(text.len, (size_t)80), text.ptr, id);
    tg_str copy = tg_tok_build_copy(b, text);
    if (!copy.ptr) return tg_tok_build_fail_memory(e, text.len);
    *x = (tg_tok_entry){
        .text = copy, .key = copy, .piece = copy, .flags = flags, .is_present = true};
    return TG_OK;
}

uint32_t tg_tok_slots_size(size_t n)
{
    uint32_t size = 16;
    while (size < 2 * n)
        size *= 2;
    return size;
}

void tg_tok_slots_insert(tg_tok_slot *slots, uint32_t mask, const tg_tok_entry *entries,
                         bool by_text, int32_t id)
{
    tg_str key = by_text ? entries[id].text : entries[id].key;
    uint64_t hash = tg_tok_hash(key.ptr, key.len);
    uint32_t i = (uint32_t)hash & mask, upper = (uint32_t)(hash >> 32);
    for (; slots[i].id >= 0; i = (i + 1) & mask) {
        const tg_tok_entry *x = &entries[slots[i].id];
        if (slots[i].hash == upper && tg_str_is_equal(by_text ? x->text : x->key, key)) break;
    }
    slots[i] = (tg_tok_slot){upper, id};
}

tg_tok_slot *tg_tok_slots_new(uint32_t size)
{
    tg_tok_slot *slots = tg_mem_new_array(size, sizeof *slots);
    for (uint32_t i = 0; slots && i < size; i++)
        slots[i].id = -1;
    return slots;
}

tg_status tg_tok_build_index(tg_tok_build *b, tg_err *e)
{
    uint32_t size = tg_tok_slots_size((size_t)b->n_entries);
    tg_mem_free(b->index);
    b->index = tg_tok_slots_new(size);
    if (!b->index) return tg_tok_build_fail_memory(e, size * sizeof *b->index);
    b->index_mask = size - 1;
    for (int32_t i = 0; i < b->n_entries; i++)
        if (b->entries[i].flags & (TG_TOK_IS_MODEL | TG_TOK_IS_SYMBOL))
            tg_tok_slots_insert(b->index, size - 1, b->entries, true, i);
    return TG_OK;
}

int32_t tg_tok_build_find(const tg_tok_build *b, tg_str text)
{
    uint64_t hash = tg_tok_hash(text.ptr, text.len);
    uint32_t i = (uint32_t)hash & b->index_mask, upper = (uint32_t)(hash >> 32);
    for (; b->index[i].id >= 0; i = (i + 1) & b->index_mask)
        if (b->index[i].hash == upper && tg_str_is_equal(b->entries[b->index[i].id].text, text))
            return b->index[i].id;
    return -1;
}

/* ---- merges */

tg_status tg_tok_build_begin_merges(tg_tok_build *b, size_t n, tg_err *e)
{
    if (n > (size_t)1 << 28)
        return tg_fail(e, TG_E_LIMIT, "%zu merges are more than the limit of %d", n, 1 << 28);
    /* At most five eighths full: four of these are a cache line, and memory counts. */
    uint32_t size = tg_tok_slots_size(n * 4 / 5);
    tg_mem_free(b->merges);
    b->merges = tg_mem_new_array(size, sizeof *b->merges);
    if (!b->merges) return tg_tok_build_fail_memory(e, size * sizeof *b->merges);
    b->merge_mask = size - 1;
    for (uint32_t i = 0; i < size; i++)
        b->merges[i].left = -1;
    return TG_OK;
}

void tg_tok_build_add_merge(tg_tok_build *b, int32_t left, int32_t right, int32_t rank, int32_t id)
{
    uint32_t i = tg_tok_merge_hash(left, right) & b->merge_mask;
    for (; b->merges[i].left >= 0; i = (i + 1) & b->merge_mask)
        if (b->merges[i].left == left && b->merges[i].right == right) {
            if (b->keeps_first_merge) return;
            break;
        }
    b->merges[i] = (tg_tok_merge){left, right, rank, id};
    b->h.n_ranks = TG_MAX(b->h.n_ranks, rank + 1);
}

tg_status tg_tok_build_add_listed_merge(tg_tok_build *b, tg_str left, tg_str right, size_t n_mark,
                                        int32_t rank, tg_str *missing, tg_err *e)
{
    int32_t l = tg_tok_build_find(b, left), r = tg_tok_build_find(b, right);
    *missing = l < 0 ? left : r < 0 ? right : (tg_str){NULL, 0};
    if (missing->ptr) return TG_OK;
    tg_buf_clear(&b->joined);
    tg_buf_add_str(&b->joined, left);
    tg_buf_add(&b->joined, right.ptr + n_mark, right.len - n_mark);
    TG_TRY(tg_buf_check(&b->joined, e));
    int32_t id = tg_tok_build_find(b, tg_buf_str(&b->joined));
    if (id < 0)
        *missing = tg_buf_str(&b->joined);
    else
        tg_tok_build_add_merge(b, l, r, rank, id);
    return TG_OK;
}

/* ---- steps, strings, added tokens */

uint32_t tg_tok_build_add_string(tg_tok_build *b, tg_str s)
{
    uint32_t at = (uint32_t)b->strings.len;
    tg_buf_add_str(&b->strings, s);
    return at;
}

tg_status tg_tok_build_add_step(tg_tok_build *b, bool is_pre, tg_tok_step step, tg_str first,
                                tg_str second, tg_err *e)
{
    int32_t *n = is_pre ? &b->h.n_pre : &b->h.n_norm;
    TG_ASSERT(is_pre || b->h.n_pre == 0);
    if (++*n > TG_TOK_MAX_STEPS)
        return tg_fail(e, TG_E_LIMIT, "a tokenizer of more than %d steps", TG_TOK_MAX_STEPS);
    step.a_at = tg_tok_build_add_string(b, first);
    step.a_bytes = (uint32_t)first.len;
    step.b_at = tg_tok_build_add_string(b, second);
    step.b_bytes = (uint32_t)second.len;
    tg_buf_add(&b->steps, &step, sizeof step);
    return tg_buf_check(&b->steps, e);
}

tg_status tg_tok_build_add_added(tg_tok_build *b, tg_str content, int32_t id, uint32_t flags,
                                 tg_err *e)
{
    if (content.len > TG_TOK_MAX_ADDED_BYTES)
        return tg_fail(e, TG_E_LIMIT, "added token %" PRId32 " has %zu bytes; the limit is %d", id,
                       content.len, TG_TOK_MAX_ADDED_BYTES);
    if (b->n_added == b->size_added) {
        int32_t want = b->size_added ? b->size_added * 2 : 64;
        void *p = tg_mem_resize(b->added, (size_t)b->n_added * sizeof *b->added,
                                (size_t)want * sizeof *b->added);
        if (!p) return tg_tok_build_fail_memory(e, (size_t)want * sizeof *b->added);
        b->added = p;
        b->size_added = want;
    }
    tg_str copy = tg_tok_build_copy(b, content);
    if (!copy.ptr) return tg_tok_build_fail_memory(e, content.len);
    b->added[b->n_added++] = (tg_tok_build_added){copy, copy, id, flags};
    return TG_OK;
}

/* The library gives a content that the model knows the model's id, and others the next free one;
 * a file that says otherwise is read one way by it and another way by its writer. */
tg_status tg_tok_build_add_added_token(tg_tok_build *b, tg_str content, int32_t id, uint32_t flags,
                                       tg_err *e)
{
    int32_t known = tg_tok_build_find(b, content), place = known >= 0 ? known : b->n_entries;
    if (id != TG_TOKEN_NONE && id != place)
        return tg_fail(e, TG_E_CORRUPT,
                       "tokenizer.json: added_tokens gives '%.*s' id %" PRId32 " where %" PRId32
                       " is its place",
                       (int)TG_MIN(content.len, (size_t)100), content.ptr, id, place);
    if (known < 0) TG_TRY(tg_tok_build_add_token(b, place, content, 0, e));
    tg_tok_entry *x = &b->entries[place];
    x->flags |= TG_TOKEN_ADDED | (flags & TG_TOK_ADDED_SPECIAL ? TG_TOKEN_SPECIAL : 0);
    if (known < 0 && b->h.flags & TG_TOK_BYTE_LEVEL) {
        x->key = tg_tok_build_bytes_of(b, content);
        if (x->key.ptr) x->flags |= TG_TOK_IS_MAPPED;
    }
    return tg_tok_build_add_added(b, content, place, flags, e);
}

/* ---- the byte alphabet */

tg_str tg_tok_build_bytes_of(tg_tok_build *b, tg_str text)
{
    char *bytes = tg_tok_build_room(b, text.len);
    size_t n = 0;
    for (size_t i = 0; bytes && i < text.len;) {
        int32_t cp;
        int len = tg_utf8_decode(text.ptr + i, text.len - i, &cp);
        int byte = len ? tg_tok_char_byte(cp) : -1;
        if (byte < 0) {
            tg_tok_build_give_back(b, text.len);
            return (tg_str){NULL, 0};
        }
        bytes[n++] = (char)byte;
        i += (size_t)len;
    }
    if (bytes) tg_tok_build_give_back(b, text.len - n);
    return (tg_str){bytes, n};
}

tg_status tg_tok_build_map_bytes(tg_tok_build *b, tg_err *e)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_tok_entry *x = &b->entries[i];
        if (!x->is_present) continue;
        tg_str bytes = tg_tok_build_bytes_of(b, x->text);
        if (bytes.ptr) {
            x->key = bytes;
            x->flags |= TG_TOK_IS_MAPPED;
            if (bytes.len == 1 && (x->flags & TG_TOK_IS_MODEL))
                b->byte_ids[(uint8_t)*bytes.ptr] = i;
        } else {
            x->key = (tg_str){NULL, 0};
        }
    }
    b->h.flags |= TG_TOK_BYTE_LEVEL | TG_TOK_SPELL_BYTES;
    return b->arena.chunks || b->n_entries == 0 ? TG_OK : tg_tok_build_fail_memory(e, 0);
}

int tg_tok_parse_byte(tg_str text)
{
    if (text.len != 6 || memcmp(text.ptr, "<0x", 3) != 0 || text.ptr[5] != '>') return -1;
    int byte = 0;
    for (int i = 3; i < 5; i++) {
        char c = text.ptr[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                           : -1;
        if (digit < 0) return -1;
        byte = byte * 16 + digit;
    }
    return byte;
}

/* ---- normalized contents */

static tg_status normalize_contents(tg_tok_build *b, tg_tok_scratch *s, tg_err *e)
{
    for (int32_t i = 0; i < b->n_added; i++) {
        tg_tok_build_added *a = &b->added[i];
        if (!(a->flags & TG_TOK_ADDED_NORMALIZED)) continue;
        int w = 0;
        tg_tok_view v = {a->content.ptr, a->content.len, NULL, 0};
        tg_spans_clear(&s->words[0]);
        tg_spans_push(&s->words[0], 0, (int32_t)v.len);
        TG_TRY(tg_tok_steps_run(s, &v, &w, 0, b->h.n_norm, NULL, e));
        a->match = tg_tok_build_copy(b, (tg_str){v.ptr ? v.ptr : "", v.len});
        if (!a->match.ptr) return tg_tok_build_fail_memory(e, v.len);
        b->entries[a->id].piece = a->match;
    }
    return TG_OK;
}

/* Runs before the blob exists, since decoders must see what the normalizers made. */
tg_status tg_tok_build_normalize_added(tg_tok_build *b, tg_err *e)
{
    /* As much of an open tokenizer as its normalizers need. */
    tg_regex **regex = TG_ARENA_ARRAY(&b->arena, tg_regex *, b->h.n_norm);
    tg_dfa *dfa = TG_ARENA_ARRAY(&b->arena, tg_dfa, b->h.n_norm);
    const tg_tok_step *steps = (const void *)tg_buf_cstr(&b->steps);
    tg_tokenizer t = {.h = &b->h,
                      .steps = steps,
                      .strings = tg_buf_cstr(&b->strings),
                      .regex = regex,
                      .dfa = dfa};
    tg_status status =
        regex && dfa ? TG_OK : tg_tok_build_fail_memory(e, (size_t)b->h.n_norm * sizeof(void *));
    for (int32_t i = 0; i < b->h.n_norm && status == TG_OK; i++)
        if (steps[i].op == TG_TOK_REPLACE_REGEX)
            status =
                tg_regex_new(&regex[i], (tg_str){t.strings + steps[i].a_at, steps[i].a_bytes}, e);
    tg_tok_scratch s = {.t = &t, .pinned = -1};
    if (status == TG_OK) status = normalize_contents(b, &s, e);
    tg_tok_scratch_deinit(&s);
    for (int32_t i = 0; regex && i < b->h.n_norm; i++)
        tg_regex_free(regex[i]);
    return status;
}
