/* SPDX-License-Identifier: Apache-2.0
 * pack.c - the weight file: every entry of a program's weight table at its offset, front to back.
 *
 * The table says where everything lies (order of execution, gate and up interleaved); this file
 * only follows it. Entries are begun in order of offset, and of those begun the one whose next
 * piece comes first is written, so that interleaving needs no special case. Between pieces are
 * zeros. Memory is one piece: a tile, a vector, or some rows of a rotary table. */
#include "compile/compile.h"

#include <inttypes.h>
#include <stdlib.h>

/* Rows of a rotary table written at once. */
enum { ROPE_ROWS = 256, PROGRESS_BYTES = 1 << 20 };

/* How far one entry is. */
typedef struct cursor {
    const tg_weight_entry *entry;
    int64_t n_pieces, next; /* tiles; for plain arrays, pieces of `piece_rows` rows */
    int64_t piece_rows;
    size_t piece_bytes;
} cursor;

typedef struct packer {
    const tg_program *p;
    const tg_blueprint *b;
    tg_out *out;
    tg_progress_fn *progress;
    void *context;
    cursor *cursors; /* [p->n_weights], by offset */
    uint8_t *piece;  /* the largest piece of all */
    size_t start;    /* where `out` was when we began */
    int64_t reported;
} packer;

static const tg_rope_spec *find_rope(const packer *k, const tg_weight_entry *w)
{
    const tg_hparams *h = tg_blueprint_hparams(k->b);
    if (w->role == TG_W_ROPE_0) return &h->ropes[0];
    return w->role == TG_W_ROPE_1 ? &h->ropes[1] : NULL;
}

static cursor begin_entry(const packer *k, const tg_weight_entry *w)
{
    cursor c = {.entry = w};
    if (!w->is_plain) {
        c.n_pieces = tg_div_up(w->rows, TG_TILE_ROWS);
        c.piece_bytes = tg_layout_tile_bytes((tg_layout)w->layout, w->cols);
        TG_ASSERT((size_t)w->tile_stride >= c.piece_bytes);
        return c;
    }
    c.piece_rows = find_rope(k, w) ? ROPE_ROWS : w->rows;
    c.n_pieces = tg_div_up(w->rows, c.piece_rows);
    c.piece_bytes = (size_t)TG_MIN(c.piece_rows, w->rows) * (size_t)w->cols * sizeof(float);
    return c;
}

/* Where the entry's next piece lies in the file. */
static int64_t find_next_offset(const cursor *c)
{
    const tg_weight_entry *w = c->entry;
    if (!w->is_plain) return w->offset + c->next * w->tile_stride;
    return w->offset + c->next * c->piece_rows * w->cols * (int64_t)sizeof(float);
}

/* Fills k->piece with the next piece; *n_bytes are its bytes. */
static tg_status make_piece(const packer *k, const cursor *c, size_t *n_bytes, tg_err *e)
{
    const tg_weight_entry *w = c->entry;
    const tg_hparams *h = tg_blueprint_hparams(k->b);
    const tg_rope_spec *rope = find_rope(k, w);
    *n_bytes = c->piece_bytes;
    if (rope) {
        int64_t first = c->next * c->piece_rows, n = TG_MIN(c->piece_rows, w->rows - first);
        TG_ASSERT(w->is_plain && w->cols == rope->rotary_dim && w->rows <= INT32_MAX);
        *n_bytes = (size_t)n * (size_t)w->cols * sizeof(float);
        tg_rope_fill(rope, (int32_t)w->rows, (int32_t)first, (int32_t)n, (float *)(void *)k->piece);
        return TG_OK;
    }
    const tg_found_weight *f = tg_blueprint_find_weight(k->b, (tg_weight_role)w->role, w->layer);
    TG_ASSERT(f->tensor && f->tensor->dims[0] == w->rows);
    if (!w->is_plain)
        return tg_pack_tile((tg_layout)w->layout, f->tensor, f->fix, h->head_dim, c->next, k->piece,
                            e);
    tg_pack_vector(f->tensor, f->fix, h->head_dim, (float *)(void *)k->piece);
    return TG_OK;
}

static tg_status write_zeros(tg_out *out, size_t n, tg_err *e)
{
    static const uint8_t zeros[4096];
    for (; n > 0; n -= TG_MIN(n, sizeof zeros))
        TG_TRY(tg_out_write(out, zeros, TG_MIN(n, sizeof zeros), e));
    return TG_OK;
}

static tg_status report(packer *k, tg_err *e)
{
    int64_t done = (int64_t)(tg_out_n_bytes(k->out) - k->start);
    if (!k->progress || (done - k->reported < PROGRESS_BYTES && done < k->p->weights_bytes))
        return TG_OK;
    k->reported = done;
    if (k->progress(k->context, done, k->p->weights_bytes))
        return tg_fail(e, TG_E_CANCELLED,
                       "The export was cancelled after %" PRId64 " of %" PRId64
                       " bytes of weights.",
                       done, k->p->weights_bytes);
    return TG_OK;
}

/* Zeros up to `offset`, which an entry or the end of the file asks for. */
static tg_status pad_to(packer *k, int64_t offset, tg_err *e)
{
    size_t at = tg_out_n_bytes(k->out) - k->start;
    TG_ASSERT((size_t)offset >= at && "weights overlap in the table");
    return write_zeros(k->out, (size_t)offset - at, e);
}

static bool is_done(const cursor *c)
{
    return c->next == c->n_pieces;
}

/* The cursor whose next piece lies first, among those begun, [*first, *last), and the next to
 * begin. */
static cursor *find_next(const packer *k, int32_t *first, int32_t *last)
{
    cursor *best = NULL;
    while (*first < *last && is_done(&k->cursors[*first]))
        ++*first;
    for (cursor *c = k->cursors + *first; c < k->cursors + *last; c++)
        if (!is_done(c) && (!best || find_next_offset(c) < find_next_offset(best))) best = c;
    if (*last == k->p->n_weights) return best;
    cursor *fresh = &k->cursors[*last];
    if (best && find_next_offset(best) < fresh->entry->offset) return best;
    ++*last;
    return fresh;
}

static tg_status write_pieces(packer *k, tg_err *e)
{
    int32_t first = 0, last = 0;
    cursor *c;
    while ((c = find_next(k, &first, &last)) != NULL) {
        size_t n_bytes;
        TG_TRY(pad_to(k, find_next_offset(c), e));
        TG_TRY(make_piece(k, c, &n_bytes, e));
        TG_TRY(tg_out_write(k->out, k->piece, n_bytes, e));
        c->next++;
        TG_TRY(report(k, e));
    }
    return pad_to(k, k->p->weights_bytes, e);
}

static int compare_offsets(const void *x, const void *y)
{
    int64_t a = ((const cursor *)x)->entry->offset, b = ((const cursor *)y)->entry->offset;
    return (a > b) - (a < b);
}

/* Returns the bytes of the largest piece. */
static size_t begin_entries(packer *k)
{
    size_t largest = 0;
    for (int32_t i = 0; i < k->p->n_weights; i++) {
        k->cursors[i] = begin_entry(k, &k->p->weights[i]);
        largest = TG_MAX(largest, k->cursors[i].piece_bytes);
    }
    qsort(k->cursors, (size_t)k->p->n_weights, sizeof *k->cursors, compare_offsets);
    return largest;
}

tg_status tg_pack_write(const tg_program *p, const tg_blueprint *b, tg_out *out,
                        tg_progress_fn *progress, void *context, tg_err *e)
{
    packer k = {.p = p, .b = b, .out = out, .progress = progress, .context = context};
    k.start = tg_out_n_bytes(out);
    k.cursors = TG_NEW_ARRAY(cursor, p->n_weights);
    if (!k.cursors)
        return tg_fail_nomem(e, (size_t)p->n_weights * sizeof(cursor), "the list of weights");
    size_t largest = begin_entries(&k);
    k.piece = tg_mem_new(largest);
    tg_status s = k.piece ? write_pieces(&k, e) : tg_fail_nomem(e, largest, "a piece of weights");
    tg_mem_free(k.piece);
    tg_mem_free(k.cursors);
    return s;
}
