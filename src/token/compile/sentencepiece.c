/* SPDX-License-Identifier: Apache-2.0
 * sentencepiece.c - a SentencePiece model (tokenizer.model) to a blob.
 *
 * The file is one protobuf message: pieces, the trainer's settings (a few matter), and the
 * normalizer's. Protobuf on the wire is a list of fields, each a number with a type and a value;
 * numbers that may change ids and are not known are refused, those of training are skipped.
 *
 * The library normalizes a text, puts a blank in front of it and lets the model loose on all of it;
 * control pieces are no part of texts to it. transformers cuts a text at added tokens first and
 * hands the library what lies between. Both are this pipeline, with and without added tokens. */
#include "token/compile/tokconfig.h"
#include "token/compile/tokparts.h"
#include "token/compile/tokpieces.h"
#include "token/run/tokmap.h"

#include <float.h>
#include <inttypes.h>
#include <string.h>

static const char file_name[] = "tokenizer.model";

/* ---- the wire */

typedef enum wire_type { WIRE_VARINT = 0, WIRE_64 = 1, WIRE_BYTES = 2, WIRE_32 = 5 } wire_type;

typedef struct field {
    uint32_t number;
    wire_type type;
    uint64_t value; /* WIRE_VARINT, WIRE_32, WIRE_64 */
    tg_str bytes;   /* WIRE_BYTES */
} field;

/* A message under way. `begin` is the whole file's, so that offsets in messages are the file's. */
typedef struct wire {
    const char *begin;
    tg_str left;
} wire;

static tg_status fail_wire(const wire *w, const char *what, tg_err *e)
{
    return tg_fail(e, TG_E_CORRUPT,
                   "%s is no SentencePiece model: %s at byte %zu; fetch the file again", file_name,
                   what, (size_t)(w->left.ptr - w->begin));
}

static void skip(wire *w, size_t n)
{
    w->left.ptr += n;
    w->left.len -= n;
}

static tg_status read_varint(wire *w, uint64_t *out, tg_err *e)
{
    *out = 0;
    for (size_t i = 0; i < 10 && i < w->left.len; i++) {
        uint8_t byte = (uint8_t)w->left.ptr[i];
        if (i == 9 && byte > 1) break; /* beyond 64 bits */
        *out |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte & 0x80) continue;
        skip(w, i + 1);
        return TG_OK;
    }
    return fail_wire(w, "a number does not end", e);
}

static tg_status read_fixed(wire *w, size_t n, uint64_t *out, tg_err *e)
{
    if (w->left.len < n) return fail_wire(w, "a number is cut short", e);
    *out = 0;
    memcpy(out, w->left.ptr, n); /* little-endian, as is this program */
    skip(w, n);
    return TG_OK;
}

static tg_status read_field(wire *w, field *f, tg_err *e)
{
    uint64_t tag = 0, n = 0;
    *f = (field){0};
    TG_TRY(read_varint(w, &tag, e));
    if (tag >> 3 == 0 || tag >> 3 > (1 << 29) - 1) return fail_wire(w, "a field has no number", e);
    f->number = (uint32_t)(tag >> 3);
    f->type = (wire_type)(tag & 7);
    if (f->type == WIRE_VARINT) return read_varint(w, &f->value, e);
    if (f->type == WIRE_32) return read_fixed(w, 4, &f->value, e);
    if (f->type == WIRE_64) return read_fixed(w, 8, &f->value, e);
    if (f->type != WIRE_BYTES) return fail_wire(w, "a field has an unknown type", e);
    TG_TRY(read_varint(w, &n, e));
    if (n > w->left.len) return fail_wire(w, "a field is longer than the file", e);
    f->bytes = (tg_str){w->left.ptr, (size_t)n};
    skip(w, (size_t)n);
    return TG_OK;
}

/* ---- messages */

typedef enum model_type { MODEL_UNIGRAM = 1, MODEL_BPE, MODEL_WORD, MODEL_CHAR } model_type;

/* With the defaults of the format. Texts are borrowed from the file, the arrays from the arena. */
typedef struct sp_model {
    tg_str *texts;
    float *scores;
    int32_t *types;
    int32_t n_pieces, room;
    int64_t model_type;
    bool as_suffix, has_byte_fallback, has_dummy_prefix, removes_blanks, escapes_blanks;
    tg_str charsmap, denormalizer;
    tg_str unk_piece, bos_piece, eos_piece, pad_piece;
} sp_model;

static const sp_model defaults = {
    .model_type = MODEL_UNIGRAM,
    .has_dummy_prefix = true,
    .removes_blanks = true,
    .escapes_blanks = true,
    .unk_piece = {"<unk>", 5},
    .bos_piece = {"<s>", 3},
    .eos_piece = {"</s>", 4},
    .pad_piece = {"<pad>", 5},
};

/* Where a known field goes; `number` 0 ends a table. Exactly one place is set. */
typedef struct field_row {
    uint32_t number;
    int64_t *number_at;
    bool *bool_at;
    tg_str *bytes_at;
} field_row;

static const field_row *find_row(const field_row *rows, uint32_t number)
{
    for (; rows->number; rows++)
        if (rows->number == number) return rows;
    return NULL;
}

/* A message of plain fields. `skips_unknown`: numbers without a row are of no consequence. */
static tg_status read_plain(wire w, const char *name, const field_row *rows, bool skips_unknown,
                            tg_err *e)
{
    while (w.left.len) {
        field f;
        TG_TRY(read_field(&w, &f, e));
        const field_row *r = find_row(rows, f.number);
        if (!r && !skips_unknown)
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: %s has the field %" PRIu32 ", which is not "
                           "known and may change ids",
                           file_name, name, f.number);
        if (!r) continue;
        if (f.type != (r->bytes_at ? WIRE_BYTES : WIRE_VARINT))
            return fail_wire(&w, "a field has another type than its number", e);
        if (r->number_at) *r->number_at = (int64_t)f.value;
        if (r->bool_at) *r->bool_at = f.value != 0;
        if (r->bytes_at) *r->bytes_at = f.bytes;
    }
    return TG_OK;
}

static tg_status read_trainer(sp_model *m, wire w, tg_err *e)
{
    const field_row rows[] = {
        {.number = 3, .number_at = &m->model_type},       {.number = 24, .bool_at = &m->as_suffix},
        {.number = 35, .bool_at = &m->has_byte_fallback}, {.number = 45, .bytes_at = &m->unk_piece},
        {.number = 46, .bytes_at = &m->bos_piece},        {.number = 47, .bytes_at = &m->eos_piece},
        {.number = 48, .bytes_at = &m->pad_piece},        {0},
    };
    return read_plain(w, "trainer_spec", rows, true, e);
}

static tg_status read_normalizer(sp_model *m, wire w, tg_err *e)
{
    tg_str name, rules; /* how the charsmap came to be */
    const field_row rows[] = {
        {.number = 1, .bytes_at = &name},
        {.number = 2, .bytes_at = &m->charsmap},
        {.number = 3, .bool_at = &m->has_dummy_prefix},
        {.number = 4, .bool_at = &m->removes_blanks},
        {.number = 5, .bool_at = &m->escapes_blanks},
        {.number = 6, .bytes_at = &rules},
        {0},
    };
    return read_plain(w, "normalizer_spec", rows, false, e);
}

/* The denormalizer runs after decoding; only its charsmap matters. */
static tg_status read_denormalizer(sp_model *m, wire w, tg_err *e)
{
    const field_row rows[] = {{.number = 2, .bytes_at = &m->denormalizer}, {0}};
    return read_plain(w, "denormalizer_spec", rows, true, e);
}

static tg_status reserve_piece(sp_model *m, tg_arena *a, tg_err *e)
{
    if (m->n_pieces < m->room) return TG_OK;
    if (m->n_pieces > TG_TOK_MAX_ID)
        return tg_fail(e, TG_E_LIMIT, "%s has more than %d pieces", file_name, TG_TOK_MAX_ID + 1);
    int32_t room = TG_MAX(m->room * 2, 4096);
    tg_str *texts = TG_ARENA_ARRAY(a, tg_str, room);
    float *scores = TG_ARENA_ARRAY(a, float, room);
    int32_t *types = TG_ARENA_ARRAY(a, int32_t, room);
    if (!texts || !scores || !types)
        return tg_fail_nomem(e, (size_t)room * sizeof *texts, "a list of pieces");
    if (m->n_pieces) {
        memcpy(texts, m->texts, (size_t)m->n_pieces * sizeof *texts);
        memcpy(scores, m->scores, (size_t)m->n_pieces * sizeof *scores);
        memcpy(types, m->types, (size_t)m->n_pieces * sizeof *types);
    }
    m->texts = texts;
    m->scores = scores;
    m->types = types;
    m->room = room;
    return TG_OK;
}

static tg_status read_piece(sp_model *m, tg_arena *a, wire w, tg_err *e)
{
    tg_str text = {0};
    float score = 0;
    uint64_t type = TG_PIECE_NORMAL;
    while (w.left.len) {
        field f;
        TG_TRY(read_field(&w, &f, e));
        wire_type want = f.number == 1 ? WIRE_BYTES : f.number == 2 ? WIRE_32 : WIRE_VARINT;
        if (f.number > 3) continue; /* extensions, which the library skips as well */
        if (f.type != want) return fail_wire(&w, "a field has another type than its number", e);
        if (f.number == 1) text = f.bytes;
        if (f.number == 2) memcpy(&score, &f.value, sizeof score);
        if (f.number == 3) type = f.value;
    }
    if (text.len == 0)
        return tg_fail(e, TG_E_CORRUPT, "%s: piece %" PRId32 " is empty", file_name, m->n_pieces);
    TG_TRY(reserve_piece(m, a, e));
    m->texts[m->n_pieces] = text;
    m->scores[m->n_pieces] = score;
    m->types[m->n_pieces++] = (int32_t)TG_MIN(type, (uint64_t)INT32_MAX);
    return TG_OK;
}

static tg_status read_model(sp_model *m, tg_arena *a, tg_str bytes, tg_err *e)
{
    enum { PIECES = 1, TRAINER, NORMALIZER, SELF_TEST, DENORMALIZER };
    wire w = {bytes.ptr, bytes};
    *m = defaults;
    while (w.left.len) {
        field f;
        TG_TRY(read_field(&w, &f, e));
        if (f.number > DENORMALIZER)
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: the model has the field %" PRIu32 ", which is not known and may "
                           "change ids",
                           file_name, f.number);
        if (f.type != WIRE_BYTES)
            return fail_wire(&w, "a field has another type than its number", e);
        wire inner = {bytes.ptr, f.bytes};
        if (f.number == PIECES) TG_TRY(read_piece(m, a, inner, e));
        if (f.number == TRAINER) TG_TRY(read_trainer(m, inner, e));
        if (f.number == NORMALIZER) TG_TRY(read_normalizer(m, inner, e));
        if (f.number == DENORMALIZER) TG_TRY(read_denormalizer(m, inner, e));
    }
    if (m->n_pieces == 0)
        return tg_fail(e, TG_E_CORRUPT, "%s has no pieces; fetch the file again", file_name);
    return TG_OK;
}

/* ---- what is not built */

static tg_status check_model(const sp_model *m, tg_err *e)
{
    static const char *const types[] = {[MODEL_WORD] = "WORD", [MODEL_CHAR] = "CHAR"};
    bool is_bpe = m->model_type == MODEL_BPE;
    if (!is_bpe && m->model_type != MODEL_UNIGRAM) {
        bool is_known = m->model_type == MODEL_WORD || m->model_type == MODEL_CHAR;
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: trainer_spec.model_type is %" PRId64 " (%s), which is not built; use a "
                       "tokenizer.json of the model",
                       file_name, m->model_type, is_known ? types[m->model_type] : "unknown");
    }
    if (m->as_suffix)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: trainer_spec.treat_whitespace_as_suffix is on, which is not built",
                       file_name);
    if (m->denormalizer.len)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s: denormalizer_spec.precompiled_charsmap has %zu bytes and is not built",
                       file_name, m->denormalizer.len);
    /* BPE takes it apart again by how it was made in this very text. */
    for (int32_t i = 0; is_bpe && i < m->n_pieces; i++)
        if (m->types[i] == TG_PIECE_UNUSED)
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: piece %" PRId32 " '%.*s' is of the type UNUSED, which is not built "
                           "for BPE",
                           file_name, i, (int)TG_MIN(m->texts[i].len, (size_t)80), m->texts[i].ptr);
    return TG_OK;
}

/* ---- steps */

/* Blanks side by side inside a replacement are no run of blanks to the library. */
static tg_status read_charsmap(tg_charsmap *map, const sp_model *m, tg_err *e)
{
    TG_TRY(tg_charsmap_parse(map, m->charsmap,
                             "tokenizer.model: normalizer_spec.precompiled_charsmap", e));
    for (size_t i = 1; m->removes_blanks && i < map->replacements.len; i++)
        if (map->replacements.ptr[i] == ' ' && map->replacements.ptr[i - 1] == ' ')
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: normalizer_spec.precompiled_charsmap makes two blanks of a "
                           "character while remove_extra_whitespaces is on, which is not built",
                           file_name);
    return TG_OK;
}

static tg_status add_replace(tg_tok_build *b, tg_tok_op op, const char *what, tg_str with,
                             tg_err *e)
{
    return tg_tok_build_add_step(b, false, (tg_tok_step){.op = op}, tg_str_from_cstr(what), with,
                                 e);
}

/* The library takes blanks off the front, puts one there, makes runs of them one, writes them as
 * marks and takes marks off the end. The blank goes in front before anything else here, since it
 * must know whether its text begins the input; with runs made one, it comes to the same. */
static tg_status add_steps(tg_tok_build *b, const sp_model *m, bool has_prefix, bool is_legacy,
                           tg_err *e)
{
    tg_str blank = TG_STR(" ");
    if (has_prefix)
        TG_TRY(tg_tok_build_add_step(
            b, false, (tg_tok_step){.op = TG_TOK_PREPEND, .x = is_legacy ? 0 : TG_TOK_LEAD_FIRST},
            blank, TG_STR(""), e));
    if (m->charsmap.len) {
        tg_charsmap map;
        TG_TRY(read_charsmap(&map, m, e));
        TG_TRY(tg_tok_build_add_step(b, false, (tg_tok_step){.op = TG_TOK_CHARSMAP, .x = 1},
                                     map.units, map.replacements, e));
    }
    if (m->removes_blanks) {
        if (!has_prefix) TG_TRY(add_replace(b, TG_TOK_REPLACE_REGEX, "\\A +", TG_STR(""), e));
        TG_TRY(add_replace(b, TG_TOK_REPLACE_REGEX, " {2,}", blank, e));
    }
    if (m->escapes_blanks) TG_TRY(add_replace(b, TG_TOK_REPLACE, " ", tg_piece_mark, e));
    if (m->removes_blanks)
        TG_TRY(add_replace(b, TG_TOK_REPLACE_REGEX,
                           m->escapes_blanks ? "\xe2\x96\x81+\\z" : " +\\z", TG_STR(""), e));
    if (has_prefix) {
        b->h.n_left = 1;
        b->h.left_cp = ' ';
    }
    return TG_OK;
}

/* Whether the charsmap leaves the piece as it is. */
static bool is_stable(const tg_charsmap *map, tg_str s)
{
    while (s.len) {
        int32_t cp;
        tg_str with;
        size_t n = tg_charsmap_find(map, s, true, &with);
        if (n && !tg_str_is_equal(with, (tg_str){s.ptr, n})) return false;
        if (!n) n = (size_t)TG_MAX(tg_utf8_decode(s.ptr, s.len, &cp), 1);
        s.ptr += n;
        s.len -= n;
    }
    return true;
}

/* A user piece is safe from normalization in the library. Here it is looked up in what
 * normalization left, so it must be something that normalization leaves. */
static tg_status check_user_pieces(const sp_model *m, tg_err *e)
{
    tg_charsmap map = {0};
    if (m->charsmap.len) TG_TRY(read_charsmap(&map, m, e));
    for (int32_t i = 0; i < m->n_pieces; i++) {
        tg_str s = m->texts[i];
        if (m->types[i] != TG_PIECE_USER) continue;
        bool has_blank = m->removes_blanks && memchr(s.ptr, ' ', s.len);
        if (has_blank || !is_stable(&map, s))
            return tg_fail(e, TG_E_UNSUPPORTED,
                           "%s: the user defined piece %" PRId32 " '%.*s' is one that %s would "
                           "change, which is not built",
                           file_name, i, (int)TG_MIN(s.len, (size_t)80), s.ptr,
                           has_blank ? "remove_extra_whitespaces" : "the charsmap");
    }
    return TG_OK;
}

/* ---- ids and bytes */

/* As the library finds them: by spelling, and only where the type agrees. */
static int32_t find_piece(const sp_model *m, tg_str text, int32_t type)
{
    for (int32_t i = 0; i < m->n_pieces; i++)
        if (m->types[i] == type && tg_str_is_equal(m->texts[i], text)) return i;
    return TG_TOKEN_NONE;
}

static tg_status set_ids(tg_tok_build *b, const sp_model *m, tg_err *e)
{
    for (int32_t i = 0; i < m->n_pieces; i++) {
        if (m->types[i] != TG_PIECE_UNKNOWN) continue;
        if (b->h.unk_id >= 0)
            return tg_fail(e, TG_E_CORRUPT,
                           "%s: pieces %" PRId32 " and %" PRId32 " are both of the type UNKNOWN",
                           file_name, b->h.unk_id, i);
        b->h.unk_id = b->h.unk_name_id = i;
    }
    if (b->h.unk_id < 0)
        return tg_fail(e, TG_E_CORRUPT, "%s: no piece is of the type UNKNOWN", file_name);
    b->h.bos_id = find_piece(m, m->bos_piece, TG_PIECE_CONTROL);
    b->h.eos_id = find_piece(m, m->eos_piece, TG_PIECE_CONTROL);
    b->h.pad_id = find_piece(m, m->pad_piece, TG_PIECE_CONTROL);
    return TG_OK;
}

static tg_status set_bytes(tg_tok_build *b, const sp_model *m, const tg_tok_pieces *p, tg_err *e)
{
    int n_bytes = 0;
    TG_TRY(tg_tok_pieces_mark(b, p, &n_bytes, e));
    if (n_bytes != (m->has_byte_fallback ? 256 : 0))
        return tg_fail(e, TG_E_CORRUPT,
                       "%s: trainer_spec.byte_fallback is %s and %d pieces are of the type BYTE",
                       file_name, m->has_byte_fallback ? "on" : "off", n_bytes);
    b->h.flags |= TG_TOK_BYTE_RUNS | TG_TOK_FUSE_UNK;
    if (n_bytes) b->h.flags |= TG_TOK_BYTE_FALLBACK;
    b->may_cut = n_bytes == 256;
    return TG_OK;
}

/* A mark prints as a blank wherever it stands, in added tokens too. */
static tg_status unmark_added(tg_tok_build *b, tg_err *e)
{
    for (int32_t i = 0; i < b->n_entries; i++) {
        tg_tok_entry *x = &b->entries[i];
        if (!(x->flags & TG_TOKEN_ADDED)) continue;
        x->piece = tg_piece_unmark(b, x->piece);
        if (!x->piece.ptr) return tg_fail_nomem(e, x->text.len, "compiling a tokenizer");
    }
    return TG_OK;
}

/* The tokens around a text where the config is silent: as GGUF's "llama" has it, and "t5". */
static tg_status add_affix(tg_tok_build *b, const tg_tok_config *c, tg_err *e)
{
    tg_str name = {0};
    TG_TRY(tg_json_get_str(c->config, "tokenizer_class", &name, NULL, "tokenizer_config.json", e));
    bool is_t5 = tg_str_is(name, "T5Tokenizer") || tg_str_is(name, "T5TokenizerFast");
    int32_t id = is_t5 ? b->h.eos_id : b->h.bos_id;
    if (id >= 0) tg_ids_push(is_t5 ? &b->suffix : &b->prefix, id);
    TG_TRY(tg_ids_check(&b->suffix, e));
    return tg_ids_check(&b->prefix, e);
}

/* ---- the two models */

/* The library gives a character without a piece 10 less than the worst of the normal ones, and a
 * user piece nothing, whatever its score, so that it is taken almost always. */
static tg_status build_unigram(tg_tok_build *b, const tg_tok_pieces *p, tg_err *e)
{
    float least = FLT_MAX;
    b->h.model = TG_TOK_UNIGRAM;
    b->h.flags |= TG_TOK_FLOAT_SUMS;
    b->may_cut = false;
    for (int32_t i = 0; i < p->n; i++) {
        tg_tok_entry *x = &b->entries[i];
        if (p->scores[i] != p->scores[i])
            return tg_fail(e, TG_E_CORRUPT, "%s[%" PRId32 "] is not a number", p->score_key, i);
        if (p->types[i] == TG_PIECE_UNUSED) x->flags &= (uint16_t)~TG_TOK_IS_MODEL;
        if (p->types[i] != TG_PIECE_NORMAL) continue;
        x->score = (double)p->scores[i];
        least = TG_MIN(least, p->scores[i]);
    }
    b->h.unk_score = (double)(least - 10.0f);
    return TG_OK;
}

static tg_status build(tg_tok_build *b, const sp_model *m, const tg_tok_config *c, tg_err *e)
{
    tg_optional_bool legacy, prefix;
    bool is_unigram = m->model_type == MODEL_UNIGRAM;
    tg_tok_pieces p = {.texts = m->texts,
                       .scores = m->scores,
                       .types = m->types,
                       .n = m->n_pieces,
                       .type_key = "tokenizer.model: the type",
                       .score_key = "tokenizer.model: pieces.score",
                       .user_flags = TG_TOK_ADDED_NORMALIZED,
                       .keeps_users = is_unigram};
    TG_TRY(check_model(m, e));
    TG_TRY(check_user_pieces(m, e));
    TG_TRY(tg_tok_config_get(c, "legacy", &legacy, e));
    TG_TRY(tg_tok_config_get(c, "add_prefix_space", &prefix, e));
    TG_TRY(add_steps(b, m, m->has_dummy_prefix && prefix != TG_OPTIONAL_FALSE,
                     legacy != TG_OPTIONAL_FALSE, e));
    TG_TRY(set_ids(b, m, e));
    TG_TRY(tg_tok_pieces_declare(b, &p, e));
    TG_TRY(set_bytes(b, m, &p, e));
    TG_TRY(tg_tok_config_add_listed(b, c, e));
    TG_TRY(tg_tok_config_add_named(b, c, e));
    TG_TRY(unmark_added(b, e));
    TG_TRY(add_affix(b, c, e));
    TG_TRY(tg_tok_config_apply(b, c, e));
    return is_unigram ? build_unigram(b, &p, e) : tg_tok_pieces_merge(b, &p, e);
}

tg_status tg_tokenizer_compile_sentencepiece(tg_buf *blob, tg_str model,
                                             const tg_tokenizer_texts *texts, tg_err *e)
{
    sp_model m;
    tg_tok_config c = {0};
    tg_tok_build b;
    tg_tok_build_init(&b);
    tg_status s = tg_tok_config_init(&c, texts, e);
    if (s == TG_OK) s = read_model(&m, &b.arena, model, e);
    if (s == TG_OK) s = build(&b, &m, &c, e);
    if (s == TG_OK) s = tg_tok_build_finish(&b, blob, e);
    tg_tok_config_deinit(&c);
    tg_tok_build_deinit(&b);
    return s;
}
