/* SPDX-License-Identifier: Apache-2.0 */
#include "device/token_blocks.h"

#include "device/profile.h"

#include <string.h>

/* Below this many tokens for each thread the rows of weights are split instead: a block would not
 * pay for unpacking a panel. */
enum { MIN_TOKENS = 40 };

/* Kernels take 8 tokens at a time: blocks end where such a tile does, save the last, which may have
 * half a tile more than its share. */
enum { TILE_TOKENS = 8 };

_Static_assert(TG_TOKEN_BLOCK_TOKENS % TILE_TOKENS == 0 &&
                   TG_TOKEN_BLOCK_ROWS >= TG_TOKEN_BLOCK_TOKENS + TILE_TOKENS / 2,
               "a block's memory is too small for the last one");

/* Instructions of a layer, and from one barrier to the next. */
enum { MAX_STRETCH = 64 };

/* ---- when a plan is loaded */

static bool is_per_token(const tg_plan *plan, int32_t value)
{
    return value == TG_NONE || plan->values[value].dim == TG_DIM_T;
}

static bool is_block_instr(const tg_plan *plan, const tg_instr *x)
{
    bool is_block = is_per_token(plan, x->out);
    for (int32_t k = 0; k < tg_op_get((tg_op)x->op)->n_inputs; k++)
        is_block &= is_per_token(plan, x->in[k]);
    return is_block;
}

static int32_t root_of(const tg_plan *plan, int32_t value)
{
    int32_t alias = plan->values[value].alias;
    return alias == TG_NONE ? value : alias;
}

static bool reads(const tg_plan *plan, const tg_instr *x, int32_t root)
{
    for (int32_t k = 0; k < tg_op_get((tg_op)x->op)->n_inputs; k++)
        if (root_of(plan, x->in[k]) == root) return true;
    return false;
}

static bool writes(const tg_plan *plan, const tg_instr *x, int32_t root)
{
    return x->out != TG_NONE && root_of(plan, x->out) == root;
}

/* Whether there is a barrier between instruction i - 1 and i, or a layer ends there. */
static bool is_cut(const tg_plan *plan, const tg_token_blocks *m, int32_t i)
{
    if (!m->is_block[i] || !m->is_block[i - 1] ||
        !tg_op_get((tg_op)plan->instrs[i].op)->is_token_local)
        return true;
    for (int32_t k = 0; k < plan->n_segments; k++) {
        const tg_segment *g = &plan->segments[k];
        if (i == g->first_instr || i == g->first_instr + g->n_instrs) return true;
    }
    return false;
}

/* Does a value, with all that is written over it, live within one stretch? Then each thread has a
 * copy of its own, of a block's rows. */
static bool is_local(const tg_plan *plan, const tg_token_blocks *m, int32_t root)
{
    int32_t first = TG_NONE, last = TG_NONE;
    if (plan->values[root].offset < 0 || plan->values[root].dim != TG_DIM_T) return false;
    for (int32_t i = 0; i < plan->n_instrs; i++) {
        const tg_instr *x = &plan->instrs[i];
        if (!reads(plan, x, root) && !writes(plan, x, root)) continue;
        if (first == TG_NONE) first = i;
        last = i;
        if (!m->is_block[i]) return false;
    }
    if (first == TG_NONE || reads(plan, &plan->instrs[first], root)) return false;
    for (int32_t i = first + 1; i <= last; i++)
        if (is_cut(plan, m, i)) return false;
    return true;
}

/* Whether writing one token's row of a value may touch another token's row of the other. Where both
 * begin at one place and are as wide, it cannot: the queries of two bodies, say. */
static bool do_overlap(const tg_plan *plan, int32_t a, int32_t b)
{
    const tg_plan_value *u = &plan->values[a], *v = &plan->values[b];
    if (u->offset == v->offset && u->width == v->width) return false;
    return u->offset < v->offset + tg_plan_value_bytes(plan, v) &&
           v->offset < u->offset + tg_plan_value_bytes(plan, u);
}

/* Values in the arena that a stretch touches, by their roots. */
typedef struct touched {
    int32_t roots[TG_MAX_INSTRS];
    int32_t n;
    bool is_in[TG_MAX_INSTRS];
} touched;

static void touch(touched *t, const tg_plan *plan, const tg_token_blocks *m, int32_t value)
{
    if (value == TG_NONE || m->offsets[value] != TG_NONE) return;
    int32_t root = root_of(plan, value);
    if (plan->values[root].offset < 0 || t->is_in[root]) return;
    t->is_in[root] = true;
    t->roots[t->n++] = root;
}

/* Ends the stretch; true when blocks would fight: those at different instructions of a stretch
 * touch all its shared values at once. */
static bool end_stretch(touched *t, const tg_plan *plan)
{
    bool is_conflict = false;
    for (int32_t a = 0; a < t->n; a++) {
        for (int32_t b = 0; b < a; b++)
            is_conflict |= do_overlap(plan, t->roots[a], t->roots[b]);
        t->is_in[t->roots[a]] = false;
    }
    t->n = 0;
    return is_conflict;
}

/* Goes through the stretches as tg_token_blocks_run does. */
static bool has_conflict(const tg_plan *plan, const tg_token_blocks *m)
{
    touched t = {.n = 0};
    bool is_conflict = false;
    for (int32_t k = 0; k < plan->n_segments; k++) {
        const tg_segment *g = &plan->segments[k];
        for (int32_t at = 0; at < TG_MAX(g->n_layers, 1) * g->n_instrs; at++) {
            int32_t i = g->first_instr + at % g->n_instrs;
            const tg_instr *x = &plan->instrs[i];
            if (!m->is_block[i] || !tg_op_get((tg_op)x->op)->is_token_local)
                is_conflict |= end_stretch(&t, plan);
            if (!m->is_block[i]) continue;
            touch(&t, plan, m, x->out);
            for (int32_t n = 0; n < tg_op_get((tg_op)x->op)->n_inputs; n++)
                touch(&t, plan, m, x->in[n]);
        }
    }
    return end_stretch(&t, plan) || is_conflict;
}

size_t tg_token_blocks_bytes(const tg_plan *plan)
{
    return (size_t)plan->n_values * sizeof(int64_t) + (size_t)plan->n_instrs * sizeof(bool);
}

/* The arena's layout, scaled down to a block's rows, is a layout of the block: values that do not
 * overlap still do not, for each begins at its offset divided by one number and rounded down to 64,
 * and its bytes, a multiple of TG_TOKEN_BLOCK_ROWS floats, are whole lines. A plan of fewer tokens
 * keeps its own. */
static int64_t scale_offset(const tg_plan *plan, int64_t offset)
{
    int64_t tokens = plan->bucket.tokens;
    if (tokens <= TG_TOKEN_BLOCK_ROWS) return offset;
    return offset * TG_TOKEN_BLOCK_ROWS / tokens / 64 * 64;
}

bool tg_token_blocks_find(tg_token_blocks *out, const tg_plan *plan, void *memory)
{
    int64_t *offsets = memory;
    bool *is_block = (bool *)(offsets + plan->n_values);
    *out = (tg_token_blocks){.offsets = offsets, .is_block = is_block};
    for (int32_t i = 0; i < plan->n_instrs; i++)
        is_block[i] = is_block_instr(plan, &plan->instrs[i]);
    for (int32_t v = 0; v < plan->n_values; v++) {
        bool is_mine = is_local(plan, out, root_of(plan, v));
        offsets[v] = is_mine ? scale_offset(plan, plan->values[v].offset) : TG_NONE;
    }
    out->block_bytes = scale_offset(plan, plan->arena_bytes) + 64;
    for (int32_t k = 0; k < plan->n_segments; k++)
        if (plan->segments[k].n_instrs > MAX_STRETCH) return false;
    return !has_conflict(plan, out);
}

/* ---- in a step */

/* Instructions that a thread takes each of its blocks through. */
typedef struct stretch {
    const tg_instr *instrs[MAX_STRETCH];
    int32_t layers[MAX_STRETCH];
    int32_t n;
} stretch;

int32_t tg_token_blocks_most_plain(int32_t n_threads)
{
    return n_threads == 1 ? TG_STEP_GEMV_TOKENS : MIN_TOKENS * n_threads - 1;
}

bool tg_token_blocks_is_worth(const tg_step *s)
{
    return s->token_blocks && !s->watch && !s->show &&
           s->counts.n_tokens > tg_token_blocks_most_plain(s->n_threads);
}

/* Blocks of nearly equal size, as many for each thread. */
static int32_t n_blocks(const tg_step *s)
{
    int64_t n = tg_div_up(s->counts.n_tokens, TG_TOKEN_BLOCK_TOKENS);
    return (int32_t)(tg_div_up(n, s->n_threads) * s->n_threads);
}

static int32_t first_token(const tg_step *s, int32_t block)
{
    int64_t n = s->counts.n_tokens, blocks = n_blocks(s);
    if (block == blocks) return (int32_t)n;
    return (int32_t)((n * block / blocks + TILE_TOKENS / 2) / TILE_TOKENS * TILE_TOKENS);
}

/* Later blocks see more keys: dealing there and back (0 1 1 0 0 1 ..) evens that out. */
static int32_t owner_of(const tg_step *s, int32_t block)
{
    int32_t round = block / s->n_threads, place = block % s->n_threads;
    return round % 2 == 0 ? place : s->n_threads - 1 - place;
}

/* A view of the tokens [first, end) for one thread. Rows keep their numbers, which index page
 * tables; those without a token here are empty. */
static tg_step_view make_block(const tg_step_view *whole, int32_t first, int32_t end)
{
    const tg_step *s = whole->step;
    const tg_step_tokens *tokens = &whole->tokens;
    int32_t *row_tokens = whole->mine->token_block.row_tokens;
    TG_ASSERT(end - first <= TG_TOKEN_BLOCK_ROWS);
    for (int32_t r = 0; r <= s->counts.n_rows; r++)
        row_tokens[r] = TG_MIN(TG_MAX(tokens->row_tokens[r], first), end) - first;
    return (tg_step_view){.step = s,
                          .thread = 0,
                          .n_threads = 1,
                          .mine = whole->mine,
                          .tokens = {.n = end - first,
                                     .ids = tokens->ids + first,
                                     .positions = tokens->positions + first,
                                     .rope_rows = tokens->rope_rows + first,
                                     .token_rows = tokens->token_rows + first,
                                     .row_tokens = row_tokens},
                          .scratch = &whole->mine->token_block.scratch,
                          .is_block = true,
                          .first_token = first};
}

static void run_block(const tg_step_view *block, const stretch *z, tg_profile *profile)
{
    for (int32_t i = 0; i < z->n; i++) {
        tg_step_handle(block, z->instrs[i], z->layers[i]);
        if (profile) tg_profile_add_time(profile, block, z->instrs[i], z->layers[i]);
    }
}

/* Takes the thread's blocks through the stretch, which is empty afterwards, and waits for the other
 * threads. */
static void run_stretch(const tg_step_view *v, stretch *z)
{
    if (z->n == 0) return;
    const tg_step *s = v->step;
    tg_profile *profile = v->thread == 0 ? s->profile : NULL;
    for (int32_t i = 0; i < n_blocks(s); i++) {
        if (owner_of(s, i) != v->thread) continue;
        tg_step_view block = make_block(v, first_token(s, i), first_token(s, i + 1));
        run_block(&block, z, profile);
    }
    for (int32_t i = 0; i < z->n && profile; i++)
        tg_profile_add_work(profile, v, z->instrs[i], z->layers[i]);
    z->n = 0;
    tg_step_barrier(v);
}

static void run_instr(const tg_step_view *v, stretch *z, int32_t i, int32_t layer)
{
    const tg_step *s = v->step;
    const tg_instr *x = &s->plan->instrs[i];
    bool is_block = s->token_blocks->is_block[i];
    if (!is_block || !tg_op_get((tg_op)x->op)->is_token_local) run_stretch(v, z);
    if (is_block) {
        z->instrs[z->n] = x;
        z->layers[z->n++] = layer;
        return;
    }
    tg_step_handle(v, x, layer);
    tg_step_barrier(v);
    if (s->profile && v->thread == 0) tg_profile_add(s->profile, v, x, layer);
}

/* A layer may continue the stretch of the layer before: only values in the arena outlive it. */
static void run_layer(const tg_step_view *v, stretch *z, const tg_segment *g, int32_t layer)
{
    if (z->n + g->n_instrs > MAX_STRETCH) run_stretch(v, z);
    for (int32_t i = 0; i < g->n_instrs; i++)
        run_instr(v, z, g->first_instr + i, layer);
}

void tg_token_blocks_run(const tg_step_view *v)
{
    const tg_plan *plan = v->step->plan;
    stretch z = {.n = 0};
    for (int32_t k = 0; k < plan->n_segments; k++) {
        const tg_segment *g = &plan->segments[k];
        if (g->n_layers == 0) run_layer(v, &z, g, 0);
        for (int32_t l = 0; l < g->n_layers; l++)
            run_layer(v, &z, g, plan->layer_refs[g->first_layer + l]);
    }
    run_stretch(v, &z);
}
