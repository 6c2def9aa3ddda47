/* SPDX-License-Identifier: Apache-2.0
 * pack.c - the weight file: every entry of a program's weight table at its offset, front to back.
 *
 * The table says where everything lies (order of execution, gate and up interleaved); this file
 * only follows it. Entries are begun in order of offset, and of those begun the one whose next
 * piece comes first is written, so that interleaving needs no special case. Between pieces are
 * zeros.
 *
 * A *batch* is made by one thread: the next few pieces (tiles, vectors, rows of a rotary table).
 * Threads begin batches in the order of the file and make them in parallel; the caller's thread
 * writes them in that order, so that the bytes, the first failure and the progress are those of one
 * thread. Memory is bounded by the batches: pages of the source are released behind them. */
#include "base/os.h"
#include "compile/compile.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>

/* ROPE_ROWS: rows of a rotary table in a piece. A megabyte a batch stays in
 * the cache of the processor that made it until it is written. */
enum {
    ROPE_ROWS = 256,
    PROGRESS_BYTES = 1 << 20,
    BATCH_BYTES = 1 << 20,
    BATCH_PIECES = 64,
    WINDOW_BYTES = 256 << 10,
    MAX_WORKERS = 32
};

/* How far one entry is. */
typedef struct cursor {
    const tg_weight_entry *entry;
    int64_t n_pieces, next; /* tiles; for plain arrays, pieces of `piece_rows` rows */
    int64_t piece_rows;
    size_t piece_bytes;
} cursor;

/* One piece of a batch. */
typedef struct part {
    const cursor *c;
    int64_t index;  /* of the piece in its entry */
    int64_t offset; /* in the file */
    size_t n_bytes; /* of room, and at last of what was made */
    uint8_t *bytes;
} part;

/*      begin_batch           make_batch        write_batch
 *  FREE ---------> BEGUN (a thread makes it) ------> MADE ------> FREE */
typedef enum batch_state { BATCH_FREE, BATCH_BEGUN, BATCH_MADE } batch_state;

typedef struct batch {
    batch_state state;
    part parts[BATCH_PIECES];
    int32_t n_parts; /* 0 in a begun batch: there are no more */
    uint8_t *bytes;
    tg_status status; /* of the making; then what `err` says */
    tg_err err;
} batch;

typedef struct packer {
    const tg_program *p;
    const tg_loaded_checkpoint *b;
    const float *const *importance; /* [p->n_weights], or NULL */
    tg_file_writer *out;
    tg_progress_fn *progress;
    void *context;
    cursor *cursors; /* [p->n_weights], by offset */
    size_t start;    /* where `out` was when we began */
    int64_t reported;

    /* Below: under the lock, but for a batch begun (its thread's) or made (the writer's). */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    batch *batches; /* [n_batches], a ring */
    int32_t n_batches, n_workers;
    int64_t n_begun;        /* batches so far; the next is begun at n_begun % n_batches */
    int32_t first, last;    /* cursors begun and not done lie in [first, last) */
    bool is_ended, is_over; /* all is begun; nothing more is to be made */
} packer;

static const tg_rope_spec *find_rope(const packer *k, const tg_weight_entry *w)
{
    const tg_hparams *h = tg_loaded_checkpoint_hparams(k->b);
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

/* Lets go of the rows that tiles were made of, a window of addresses at a time: with the page that
 * is touched the system maps its neighbors (64 KiB on Linux), those behind it too. Rotary rows are
 * read within their head, so a page may be needed again: then it is read again. */
static void release_rows(const packer *k, const tg_tensor *t, int64_t tile)
{
    int64_t end_row = TG_MIN((tile + 1) * TG_TILE_ROWS, t->dims[0]);
    size_t row_bytes = tg_dtype_row_bytes(t->dtype, t->dims[1]);
    uintptr_t data = (uintptr_t)t->data, window = (uintptr_t)WINDOW_BYTES - 1;
    uintptr_t first = data + (size_t)(tile * TG_TILE_ROWS) * row_bytes;
    uintptr_t end = data + (size_t)end_row * row_bytes;
    bool is_last = end_row == t->dims[0];
    if ((first & ~window) == (end & ~window) && !is_last) return;
    first = is_last ? data : TG_MAX(first & ~window, data); /* and what threads crossed over */
    tg_checkpoint_release(tg_loaded_checkpoint_checkpoint(k->b), (const void *)first, end - first);
}

static tg_status make_part(const packer *k, part *x, tg_err *e)
{
    const tg_weight_entry *w = x->c->entry;
    const tg_rope_spec *rope = find_rope(k, w);
    if (rope) {
        int64_t first = x->index * x->c->piece_rows;
        int64_t n = TG_MIN(x->c->piece_rows, w->rows - first);
        TG_ASSERT(w->is_plain && w->cols == rope->rotary_dim &&
                  w->rows == (int64_t)k->p->original_length + k->p->max_length);
        x->n_bytes = (size_t)n * (size_t)w->cols * sizeof(float);
        tg_rope_fill(rope, k->p->original_length, k->p->max_length, (int32_t)first, (int32_t)n,
                     (float *)(void *)x->bytes);
        return TG_OK;
    }
    const tg_found_weight *f =
        tg_loaded_checkpoint_find_weight(k->b, (tg_weight_role)w->role, w->layer);
    TG_ASSERT(f->tensor && f->tensor->dims[0] == w->rows);
    if (w->is_plain) {
        tg_pack_vector(f->tensor, &f->order, (float *)(void *)x->bytes);
        return TG_OK;
    }
    const float *importance = k->importance ? k->importance[w - k->p->weights] : NULL;
    TG_TRY(tg_pack_tile((tg_layout)w->layout, f->tensor, &f->order, x->index, importance, x->bytes,
                        e));
    if (f->order.run == 0 && !f->tensor->prequant) release_rows(k, f->tensor, x->index);
    return TG_OK;
}

static tg_status write_zeros(tg_file_writer *out, size_t n, tg_err *e)
{
    static const uint8_t zeros[4096];
    for (; n > 0; n -= TG_MIN(n, sizeof zeros))
        TG_TRY(tg_file_writer_write(out, zeros, TG_MIN(n, sizeof zeros), e));
    return TG_OK;
}

static tg_status report(packer *k, tg_err *e)
{
    int64_t done = (int64_t)(tg_file_writer_n_bytes(k->out) - k->start);
    bool is_due = done - k->reported >= PROGRESS_BYTES || done == k->p->weights_bytes;
    if (!k->progress || !is_due || done == k->reported) return TG_OK;
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
    size_t at = tg_file_writer_n_bytes(k->out) - k->start;
    TG_ASSERT((size_t)offset >= at && "weights overlap in the table");
    return write_zeros(k->out, (size_t)offset - at, e);
}

static bool is_done(const cursor *c)
{
    return c->next == c->n_pieces;
}

/* The cursor whose next piece lies first, among those begun and the next to begin; NULL: all is
 * done. */
static cursor *find_next(packer *k)
{
    cursor *best = NULL;
    while (k->first < k->last && is_done(&k->cursors[k->first]))
        k->first++;
    for (cursor *c = k->cursors + k->first; c < k->cursors + k->last; c++)
        if (!is_done(c) && (!best || find_next_offset(c) < find_next_offset(best))) best = c;
    if (k->last == k->p->n_weights) return best;
    cursor *fresh = &k->cursors[k->last];
    if (best && find_next_offset(best) < fresh->entry->offset) return best;
    k->last++;
    return fresh;
}

/* ---- batches */

/* The next batch of the ring is free: gives it the next pieces, as many as its room holds, and one
 * whatever its size. The lock is held. */
static batch *begin_batch(packer *k)
{
    batch *t = &k->batches[k->n_begun % k->n_batches];
    size_t used = 0;
    TG_ASSERT(t->state == BATCH_FREE && !k->is_ended);
    t->n_parts = 0;
    t->status = TG_OK;
    for (cursor *c; t->n_parts < BATCH_PIECES && (c = find_next(k)) != NULL;) {
        if (t->n_parts > 0 && used + c->piece_bytes > BATCH_BYTES) break;
        t->parts[t->n_parts++] =
            (part){c, c->next, find_next_offset(c), c->piece_bytes, t->bytes + used};
        used = tg_align_up(used + c->piece_bytes, 64);
        c->next++;
    }
    k->is_ended = t->n_parts == 0;
    t->state = BATCH_BEGUN;
    k->n_begun++;
    return t;
}

static void make_batch(const packer *k, batch *t)
{
    t->err = (tg_err){0};
    for (int32_t i = 0; i < t->n_parts && t->status == TG_OK; i++)
        t->status = make_part(k, &t->parts[i], &t->err);
}

/* Neighbors in memory that are neighbors in the file go in one write. */
static tg_status write_batch(packer *k, const batch *t, tg_err *e)
{
    for (int32_t i = 0; i < t->n_parts;) {
        const part *x = &t->parts[i];
        size_t n = x->n_bytes;
        for (i++; i < t->n_parts && t->parts[i].bytes == x->bytes + n &&
                  t->parts[i].offset == x->offset + (int64_t)n;
             i++)
            n += t->parts[i].n_bytes;
        TG_TRY(pad_to(k, x->offset, e));
        TG_TRY(tg_file_writer_write(k->out, x->bytes, n, e));
    }
    return report(k, e);
}

static void *run_worker(void *context)
{
    packer *k = context;
    pthread_mutex_lock(&k->lock);
    for (;;) {
        while (!k->is_over && !k->is_ended &&
               k->batches[k->n_begun % k->n_batches].state != BATCH_FREE)
            pthread_cond_wait(&k->changed, &k->lock);
        if (k->is_over || k->is_ended) break;
        batch *t = begin_batch(k);
        pthread_mutex_unlock(&k->lock);
        make_batch(k, t);
        pthread_mutex_lock(&k->lock);
        t->state = BATCH_MADE;
        pthread_cond_broadcast(&k->changed);
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

/* The batch that is to be written next, made. Where the system gave us no threads we make it. */
static batch *take_batch(packer *k, int64_t turn)
{
    batch *t = &k->batches[turn % k->n_batches];
    pthread_mutex_lock(&k->lock);
    if (k->n_workers == 0) {
        make_batch(k, begin_batch(k));
        t->state = BATCH_MADE;
    }
    while (t->state != BATCH_MADE)
        pthread_cond_wait(&k->changed, &k->lock);
    pthread_mutex_unlock(&k->lock);
    return t;
}

static void give_batch(packer *k, batch *t)
{
    pthread_mutex_lock(&k->lock);
    t->state = BATCH_FREE;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
}

static tg_status write_batches(packer *k, tg_err *e)
{
    for (int64_t turn = 0;; turn++) {
        batch *t = take_batch(k, turn);
        if (t->status != TG_OK) return tg_fail(e, t->status, "%s", t->err.msg);
        if (t->n_parts == 0) break;
        TG_TRY(write_batch(k, t, e));
        give_batch(k, t);
    }
    TG_TRY(pad_to(k, k->p->weights_bytes, e));
    return report(k, e);
}

static tg_status run_workers(packer *k, int32_t n_output_rows, tg_err *e)
{
    pthread_t workers[MAX_WORKERS];
    pthread_mutex_init(&k->lock, NULL);
    pthread_cond_init(&k->changed, NULL);
    int32_t n = 0;
    while (n < n_output_rows && pthread_create(&workers[n], NULL, run_worker, k) == 0)
        n++;
    k->n_workers = n;
    tg_status s = write_batches(k, e);
    pthread_mutex_lock(&k->lock);
    k->is_over = true;
    pthread_cond_broadcast(&k->changed);
    pthread_mutex_unlock(&k->lock);
    for (int32_t i = 0; i < n; i++)
        pthread_join(workers[i], NULL);
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    return s;
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

tg_status tg_pack_write(const tg_program *p, const tg_loaded_checkpoint *b,
                        const float *const *importance, tg_file_writer *out,
                        tg_progress_fn *progress, void *context, tg_err *e)
{
    packer k = {.p = p, .b = b, .importance = importance, .out = out};
    k.progress = progress;
    k.context = context;
    k.start = tg_file_writer_n_bytes(out);
    k.cursors = TG_NEW_ARRAY(cursor, p->n_weights);
    if (!k.cursors)
        return tg_fail_nomem(e, (size_t)p->n_weights * sizeof(cursor), "the list of weights");
    int32_t n_workers = TG_MIN(tg_cpus_find(NULL, 0), MAX_WORKERS);
    k.n_batches = 2 * n_workers; /* while one is written, another waits, and all can work */
    size_t room = tg_align_up(TG_MAX(begin_entries(&k), (size_t)BATCH_BYTES), 64);
    uint8_t *bytes = tg_mem_new_array((size_t)k.n_batches, room);
    k.batches = TG_NEW_ARRAY(batch, k.n_batches);
    tg_status s = TG_OK;
    if (bytes && k.batches) {
        for (int32_t i = 0; i < k.n_batches; i++)
            k.batches[i].bytes = bytes + (size_t)i * room;
        s = run_workers(&k, n_workers, e);
    } else {
        s = tg_fail_nomem(e, (size_t)k.n_batches * room, "batches of weights");
    }
    tg_mem_free(k.batches);
    tg_mem_free(bytes);
    tg_mem_free(k.cursors);
    return s;
}
