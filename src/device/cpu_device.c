/* SPDX-License-Identifier: Apache-2.0
 * cpu_device.c - opening, loading and submitting; what a step does is in step.c and attend.c. */
#include "device/cpu_device.h"

#include "base/log.h"
#include "base/os.h"
#include "device/profile.h"
#include "device/rates.h"
#include "device/step.h"
#include "device/token_blocks.h"

#include <string.h>

struct tg_dbuf {
    tg_dbuf *next;
    char *memory; /* reserved, committed when touched */
    size_t n_bytes;
};

struct tg_exe {
    tg_exe *next;
    tg_device *device;
    const tg_program *program;
    const tg_plan *plan;
    /* Owned by the first exe of its program. */
    tg_step_weight *weights; /* [n_layers][TG_W_COUNT] */
    int16_t *maps;           /* of the weights' outlier groups, equal ones once */
    bool owns_weights;
    tg_step_glu_fn **glu; /* [plan->n_instrs][n_layers] */
    tg_io io;
    tg_token_blocks token_blocks;
    void *token_blocks_memory; /* its arrays; NULL: the plan does not run in blocks */
};

/* A reserved piece of the device's own memory. */
typedef struct piece {
    void *memory;
    size_t n_bytes;
} piece;

enum { PIECE_ARENA, PIECE_A8, PIECE_NORMED, PIECE_PRODUCTS, PIECE_PARTIAL, PIECE_COUNT };

struct tg_device {
    tg_team *team;
    tg_cpu_tier tier;
    int32_t prefetch_bytes;
    bool has_pairs; /* of this machine, see step.h */
    tg_kernels kernels;
    tg_exe *exes;
    tg_dbuf *buffers;
    tg_step_sizes sizes;
    piece pieces[PIECE_COUNT];
    piece privates_memory;
    tg_step_private *privates; /* [n_threads] */
    tg_step step;              /* the running or last one */
    tg_profile *profile;       /* NULL: nobody asked */
    tg_cpu_watch_fn *watch;
    void *watch_context;
    tg_cpu_show_fn *show;
    void *show_context;
};

static void free_piece(piece *p)
{
    tg_mem_unreserve(p->memory, p->n_bytes);
    *p = (piece){0};
}

/* Makes the piece at least n bytes; what it held is lost. */
static bool grow_piece(piece *p, size_t n)
{
    if (p->n_bytes >= n && p->memory) return true;
    free_piece(p);
    p->memory = tg_mem_reserve(n);
    p->n_bytes = p->memory ? n : 0;
    return p->memory != NULL;
}

/* Which tier first brought the function that is now in the table, for the record. */
static void note_dispatch(const tg_device *d)
{
    if (!tg_log_is_on("dispatch")) return;
    for (int32_t l = 0; l < TG_LAYOUT_COUNT; l++) {
        int32_t t = 0;
        for (; t < (int32_t)d->tier; t++) {
            tg_kernels k = {0};
            tg_kernels_fill(&k, (tg_cpu_tier)t);
            if (k.matmul[l] == d->kernels.matmul[l]) break;
        }
        bool is_vnni = t == TG_CPU_AVX2 && tg_layout_rows[l].is_quantized && tg_cpu_has_avx_vnni();
        tg_log_note("dispatch", "matmul %s: %s%s%s", tg_layout_rows[l].name,
                    tg_cpu_tier_name((tg_cpu_tier)t), is_vnni ? " with AVX-VNNI" : "",
                    t < (int32_t)d->tier ? " (no faster kernel in this tier)" : "");
    }
}

static void cpu_close(tg_device *d);

static tg_status cpu_open(tg_device **out, const void *options, tg_err *e)
{
    static const tg_cpu_options defaults;
    const tg_cpu_options *o = options ? options : &defaults;
    int32_t n_threads = 1;
    *out = NULL;
    TG_TRY(tg_threads_find(&n_threads, o->n_threads, e));
    tg_device *d = TG_NEW(tg_device);
    if (!d) return tg_fail_nomem(e, sizeof *d, "the device");
    d->privates = TG_NEW_ARRAY(tg_step_private, n_threads);
    tg_status s = d->privates ? TG_OK : tg_fail_nomem(e, (size_t)n_threads, "thread state");
    if (s == TG_OK) s = tg_cpu_choose(&d->tier, o->tier, e);
    if (s == TG_OK) s = tg_team_new(&d->team, n_threads, e);
    if (s != TG_OK) {
        cpu_close(d);
        return s;
    }
    tg_kernels_fill(&d->kernels, d->tier);
    d->prefetch_bytes = tg_cpu_prefetch_bytes(tg_cpu_find_model());
    d->has_pairs = tg_cpu_gains_by_pairs(tg_cpu_find_model(), d->tier);
    note_dispatch(d);
    *out = d;
    return TG_OK;
}

static void free_exe(tg_exe *x)
{
    if (x->owns_weights) {
        tg_mem_free(x->weights);
        tg_mem_free(x->maps);
    }
    tg_mem_free(x->glu);
    tg_mem_free(x->token_blocks_memory);
    tg_mem_free(x);
}

static void cpu_close(tg_device *d)
{
    if (!d) return;
    tg_team_free(d->team);
    while (d->exes) {
        tg_exe *x = d->exes;
        d->exes = x->next;
        free_exe(x);
    }
    while (d->buffers) {
        tg_dbuf *b = d->buffers;
        d->buffers = b->next;
        tg_mem_unreserve(b->memory, b->n_bytes);
        tg_mem_free(b);
    }
    for (int32_t i = 0; i < PIECE_COUNT; i++)
        free_piece(&d->pieces[i]);
    free_piece(&d->privates_memory);
    tg_profile_free(d->profile);
    tg_mem_free(d->privates);
    tg_mem_free(d);
}

static size_t carve(size_t *at, size_t n)
{
    size_t here = *at;
    *at += tg_align_up(n, 128); /* threads never share a line, nor the line beside it */
    return here;
}

/* Lays the private memory of n_threads into one reservation; with memory NULL only measures. */
static size_t place_privates(tg_step_private *out, const tg_step_sizes *z, int32_t n_threads,
                             char *memory)
{
    size_t few = TG_STEP_GEMV_TOKENS, many = TG_TOKEN_BLOCK_ROWS, at = 0;
    size_t n_made = TG_MAX((size_t)TG_ATTEND_MAX_QUERIES, few * (size_t)z->n_heads);
    size_t made = n_made * (size_t)z->head_dim * sizeof(float);
    size_t block = (size_t)TG_ATTEND_MAX_QUERIES * (size_t)z->head_dim * sizeof(float);
    for (int32_t i = 0; i < n_threads; i++) {
        size_t matmul = carve(&at, TG_MATMUL_SCRATCH_BYTES);
        size_t attend = carve(&at, TG_ATTEND_SCRATCH_BYTES);
        size_t sample = carve(&at, tg_sample_scratch_bytes(z->n_vocab));
        size_t a8 = carve(&at, tg_a8_bytes((int64_t)few, z->cols, z->n_outliers));
        size_t normed = carve(&at, few * (size_t)z->cols * sizeof(float));
        size_t running = carve(&at, block), queries = carve(&at, made);
        size_t values = carve(&at, (size_t)z->block_bytes);
        size_t block_a8 = carve(&at, tg_a8_bytes(TG_TOKEN_BLOCK_ROWS, z->cols, z->n_outliers));
        size_t block_normed = carve(&at, many * (size_t)z->cols * sizeof(float));
        size_t block_products = carve(&at, many * (size_t)z->products_row_floats * sizeof(float));
        size_t row_tokens = carve(&at, ((size_t)z->rows + 1) * sizeof(int32_t));
        if (!memory) continue;
        out[i] = (tg_step_private){
            .matmul = memory + matmul,
            .attend = memory + attend,
            .sample = memory + sample,
            .a8_memory = memory + a8,
            .normed = (float *)(void *)(memory + normed),
            .queries = (float *)(void *)(memory + queries),
            .running = (float *)(void *)(memory + running),
            .token_block = {.values = memory + values,
                            .scratch = {.a8_memory = memory + block_a8,
                                        .normed = (float *)(void *)(memory + block_normed),
                                        .products = {.memory = memory + block_products}},
                            .row_tokens = (int32_t *)(void *)(memory + row_tokens)},
        };
    }
    return at;
}

static tg_status grow_memory(tg_device *d, tg_err *e)
{
    const tg_step_sizes *z = &d->sizes;
    size_t rows = (size_t)z->tokens, cols = (size_t)z->cols, f = sizeof(float);
    size_t n[PIECE_COUNT] = {
        [PIECE_ARENA] = (size_t)z->arena_bytes,
        [PIECE_A8] = tg_a8_bytes(z->tokens, z->cols, z->n_outliers),
        [PIECE_NORMED] = rows * cols * f,
        [PIECE_PRODUCTS] = (size_t)z->products_floats * f,
        [PIECE_PARTIAL] = (size_t)z->partial_floats * f,
    };
    for (int32_t i = 0; i < PIECE_COUNT; i++)
        if (!grow_piece(&d->pieces[i], n[i])) return tg_fail_nomem(e, n[i], "step memory");
    int32_t n_threads = tg_team_n_threads(d->team);
    size_t bytes = place_privates(NULL, z, n_threads, NULL);
    if (!grow_piece(&d->privates_memory, bytes))
        return tg_fail_nomem(e, bytes, "the threads' memory");
    place_privates(d->privates, z, n_threads, d->privates_memory.memory);
    return TG_OK;
}

/* The weight before `at` whose map serves it too, or NULL. */
static const tg_weight_entry *find_equal_map(const tg_program *p, int32_t at)
{
    const tg_weight_entry *x = &p->weights[at];
    for (const tg_weight_entry *w = p->weights; w < x; w++)
        if (w->n_outliers == x->n_outliers && w->first_outlier == x->first_outlier &&
            w->cols == x->cols)
            return w;
    return NULL;
}

static tg_step_weight *find_slot(const tg_exe *x, const tg_weight_entry *w)
{
    return &x->weights[(int64_t)w->layer * TG_W_COUNT + w->role];
}

/* The lists of outlier groups as the maps that kernels read. */
static tg_status make_maps(tg_exe *x, tg_err *e)
{
    const tg_program *p = x->program;
    int64_t n = 0;
    for (int32_t i = 0; i < p->n_weights; i++)
        if (p->weights[i].n_outliers && !find_equal_map(p, i))
            n += tg_a8_n_groups(p->weights[i].cols);
    x->maps = TG_NEW_ARRAY(int16_t, TG_MAX(n, 1));
    if (!x->maps) return tg_fail_nomem(e, (size_t)n * sizeof *x->maps, "maps of outlier groups");
    n = 0;
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i], *equal = find_equal_map(p, i);
        if (w->n_outliers == 0) continue;
        if (!equal) tg_a8_map(x->maps + n, w->cols, p->outliers + w->first_outlier, w->n_outliers);
        find_slot(x, w)->outliers = equal ? find_slot(x, equal)->outliers : x->maps + n;
        if (!equal) n += tg_a8_n_groups(w->cols);
    }
    return TG_OK;
}

/* Resolves every weight of a program once; exes of one program share the table. */
static tg_status resolve_weights(tg_exe *x, const void *weights, tg_err *e)
{
    const tg_program *p = x->program;
    for (const tg_exe *o = x->device->exes; o; o = o->next)
        if (o->program == p) {
            x->weights = o->weights;
            return TG_OK;
        }
    int32_t n_layers = TG_MAX(p->n_layers, 1);
    x->weights = TG_NEW_ARRAY(tg_step_weight, (int64_t)n_layers * TG_W_COUNT);
    if (!x->weights) return tg_fail_nomem(e, (size_t)n_layers * TG_W_COUNT, "the weight table");
    x->owns_weights = true;
    for (int32_t i = 0; i < p->n_weights; i++) {
        const tg_weight_entry *w = &p->weights[i];
        *find_slot(x, w) = (tg_step_weight){w, (const uint8_t *)weights + w->offset, NULL};
    }
    return make_maps(x, e);
}

static tg_status choose_glu(tg_exe *x, tg_err *e)
{
    const tg_plan *plan = x->plan;
    int64_t n_layers = x->program->n_layers, n = (int64_t)plan->n_instrs * n_layers;
    x->glu = TG_NEW_ARRAY(tg_step_glu_fn *, n);
    if (!x->glu) return tg_fail_nomem(e, (size_t)n * sizeof *x->glu, "a loaded plan");
    for (int32_t k = 0; k < plan->n_segments; k++) {
        const tg_segment *g = &plan->segments[k];
        for (int32_t at = 0; at < g->n_instrs * TG_MAX(g->n_layers, 1); at++) {
            int32_t i = g->first_instr + at % g->n_instrs, l = at / g->n_instrs;
            int32_t layer = g->n_layers ? plan->layer_refs[g->first_layer + l] : 0;
            if (plan->instrs[i].op == TG_OP_GLU_MATMUL)
                x->glu[i * n_layers + layer] =
                    tg_step_choose_glu(x->weights, &plan->instrs[i], layer);
        }
    }
    return TG_OK;
}

/* How the plan runs in blocks of tokens, if it has enough of them; else *memory, which the caller
 * frees, is NULL. */
static tg_status find_blocks(tg_token_blocks *out, void **memory, tg_step_sizes *z,
                             const tg_plan *plan, tg_err *e)
{
    *memory = NULL;
    if (plan->bucket.tokens <= TG_STEP_GEMV_TOKENS) return TG_OK;
    size_t bytes = tg_token_blocks_bytes(plan);
    *memory = tg_mem_new(bytes);
    if (!*memory) return tg_fail_nomem(e, bytes, "a loaded plan");
    if (tg_token_blocks_find(out, plan, *memory)) {
        z->block_bytes = TG_MAX(z->block_bytes, out->block_bytes);
        return TG_OK;
    }
    tg_mem_free(*memory);
    *memory = NULL;
    return TG_OK;
}

static tg_status cpu_load(tg_exe **out, tg_device *d, const tg_program *p, const tg_plan *plan,
                          const void *weights, tg_err *e)
{
    *out = NULL;
    tg_exe *x = TG_NEW(tg_exe);
    if (!x) return tg_fail_nomem(e, sizeof *x, "a loaded plan");
    x->device = d;
    x->program = p;
    x->plan = plan;
    tg_io_find(&x->io, p, plan);
    tg_step_measure(&d->sizes, p, plan);
    tg_status s = find_blocks(&x->token_blocks, &x->token_blocks_memory, &d->sizes, plan, e);
    if (s == TG_OK && !x->token_blocks_memory && plan->bucket.tokens > TG_STEP_GEMV_TOKENS)
        tg_log_note("dispatch", "the %s plan of %d tokens runs one instruction at a time",
                    tg_kind_name((tg_graph_kind)plan->kind), plan->bucket.tokens);
    if (s == TG_OK) s = grow_memory(d, e);
    if (s == TG_OK) s = resolve_weights(x, weights, e);
    if (s == TG_OK) s = choose_glu(x, e);
    if (s != TG_OK) {
        free_exe(x);
        return s;
    }
    x->next = d->exes;
    d->exes = x;
    *out = x;
    return TG_OK;
}

/* ---- what steps touch of what is reserved */

typedef struct footprint {
    int64_t arena_bytes, rows; /* rows: of the memory that all threads share for inputs */
} footprint;

/* Bytes of the arena that a plan's values cover, together: those of a block's own are only there in
 * a step of few tokens, n_plain at most, that does not run in blocks. */
static int64_t count_arena(const tg_plan *plan, const tg_token_blocks *token_blocks,
                           int32_t n_plain)
{
    int64_t at = 0, sum = 0;
    /* From one end of a covered piece to the next that begins behind it; values are few. */
    while (at < plan->arena_bytes) {
        int64_t end = at, next = plan->arena_bytes;
        for (int32_t i = 0; i < plan->n_values; i++) {
            const tg_plan_value *v = &plan->values[i];
            if (v->offset < 0 || v->alias != TG_NONE) continue;
            int64_t n_rows = tg_plan_n_rows(plan, v);
            if (token_blocks && token_blocks->offsets[i] != TG_NONE)
                n_rows = TG_MIN(n_rows, n_plain);
            int64_t v_end = v->offset + n_rows * v->width * (int64_t)sizeof(float);
            if (v->offset <= at)
                end = TG_MAX(end, v_end);
            else
                next = TG_MIN(next, v->offset);
        }
        sum += end - at;
        at = end > at ? end : next;
    }
    return sum;
}

static tg_status measure_plan(footprint *f, tg_step_sizes *z, const tg_program *p,
                              const tg_plan *plan, int32_t n_threads, tg_err *e)
{
    tg_token_blocks token_blocks;
    void *memory;
    tg_step_measure(z, p, plan);
    TG_TRY(find_blocks(&token_blocks, &memory, z, plan, e));
    int32_t n_plain = plan->bucket.tokens;
    if (memory) n_plain = TG_MIN(n_plain, tg_token_blocks_most_plain(n_threads));
    int64_t arena_bytes = count_arena(plan, memory ? &token_blocks : NULL, n_plain);
    f->arena_bytes = TG_MAX(f->arena_bytes, arena_bytes);
    f->rows = TG_MAX(f->rows, TG_MAX(n_plain, plan->bucket.outs));
    tg_mem_free(memory);
    return TG_OK;
}

/* As grow_memory, save that shared rows and values of a block are counted as far as steps reach.
 * Whoever watches products makes all rows of every input, and is not counted. */
static tg_status cpu_measure(int64_t *out, const tg_program *p, const void *options, tg_err *e)
{
    const tg_cpu_options *o = options;
    int32_t n_threads = 1;
    tg_step_sizes z = {0};
    footprint f = {0};
    TG_TRY(tg_threads_find(&n_threads, o ? o->n_threads : 0, e));
    for (int32_t i = 0; i < p->n_plans; i++)
        TG_TRY(measure_plan(&f, &z, p, &p->plans[i], n_threads, e));
    int64_t row_floats = z.cols + z.products_row_floats;
    *out = f.arena_bytes + (int64_t)tg_a8_bytes(f.rows, z.cols, z.n_outliers) +
           (f.rows * row_floats + z.partial_floats) * (int64_t)sizeof(float) +
           (int64_t)place_privates(NULL, &z, n_threads, NULL);
    return TG_OK;
}

static tg_status cpu_buffer(tg_dbuf **out, tg_device *d, size_t n, tg_err *e)
{
    tg_dbuf *b = TG_NEW(tg_dbuf);
    *out = NULL;
    if (b) b->memory = tg_mem_reserve(n);
    if (!b || !b->memory) {
        tg_mem_free(b);
        return tg_fail_nomem(e, n, "a device buffer");
    }
    /* Attention reads keys and values of one layer from pages of all layers: a new page of 4 KB for
     * each head's half of one. Walking the tables for them took half as long as reading. */
    tg_mem_prefer_large_pages(b->memory, n);
    b->n_bytes = n;
    b->next = d->buffers;
    d->buffers = b;
    *out = b;
    return TG_OK;
}

static tg_status check_range(const tg_dbuf *b, size_t at, size_t n, tg_err *e)
{
    if (at <= b->n_bytes && n <= b->n_bytes - at) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT, "bytes %zu to %zu are outside a device buffer of %zu", at,
                   at + n, b->n_bytes);
}

static tg_status cpu_write(tg_dbuf *b, size_t at, const void *src, size_t n, tg_err *e)
{
    TG_TRY(check_range(b, at, n, e));
    if (n) memcpy(b->memory + at, src, n);
    return TG_OK;
}

static tg_status cpu_read(const tg_dbuf *b, size_t at, void *dst, size_t n, tg_err *e)
{
    TG_TRY(check_range(b, at, n, e));
    if (n) memcpy(dst, b->memory + at, n);
    return TG_OK;
}

static void run_thread(void *arg, int32_t thread)
{
    tg_step_run(arg, thread);
}

static const int32_t *in_array(const tg_step *s, size_t at)
{
    return (const int32_t *)(const void *)(s->in + at);
}

/* Steps run at once: threads are this device's queue. */
static tg_status cpu_submit(tg_exe *x, tg_dbuf *const *args, int32_t n_args, tg_err *e)
{
    tg_device *d = x->device;
    tg_step *s = &d->step;
    if (n_args != TG_ARG_KV + x->program->n_kv_groups)
        return tg_fail(e, TG_E_ARGUMENT, "a step takes %d buffers and got %d",
                       TG_ARG_KV + x->program->n_kv_groups, n_args);
    TG_TRY(check_range(args[TG_ARG_IN], 0, x->io.in_bytes, e));
    TG_TRY(check_range(args[TG_ARG_OUT], 0, x->io.out_bytes, e));
    *s = (tg_step){
        .program = x->program,
        .plan = x->plan,
        .weights = x->weights,
        .glu = x->glu,
        .kernels = &d->kernels,
        .team = d->team,
        .n_threads = tg_team_n_threads(d->team),
        .prefetch_bytes = d->prefetch_bytes,
        .has_pairs = d->has_pairs,
        .io = x->io,
        .in = args[TG_ARG_IN]->memory,
        .out = args[TG_ARG_OUT]->memory,
        .privates = d->privates,
        .profile = d->profile,
        .watch = d->watch,
        .watch_context = d->watch_context,
        .show = d->show,
        .show_context = d->show_context,
        .arena = d->pieces[PIECE_ARENA].memory,
        .partial = d->pieces[PIECE_PARTIAL].memory,
        .scratch = {.a8_memory = d->pieces[PIECE_A8].memory,
                    .normed = d->pieces[PIECE_NORMED].memory,
                    .products = {.memory = d->pieces[PIECE_PRODUCTS].memory}},
        .token_blocks = x->token_blocks_memory ? &x->token_blocks : NULL,
    };
    for (int32_t g = 0; g < x->program->n_kv_groups; g++)
        s->pools[g] = args[TG_ARG_KV + g]->memory;
    memcpy(&s->counts, s->in, sizeof s->counts);
    s->tokens = (tg_step_tokens){.n = s->counts.n_tokens,
                                 .ids = in_array(s, s->io.tokens),
                                 .positions = in_array(s, s->io.positions),
                                 .rope_rows = in_array(s, s->io.rope_rows),
                                 .token_rows = in_array(s, s->io.token_rows),
                                 .row_tokens = in_array(s, s->io.row_tokens)};
    s->out_tokens = in_array(s, s->io.out_tokens);
    tg_team_run(d->team, run_thread, s);
    return TG_OK;
}

static tg_status cpu_wait(tg_device *d, tg_err *e)
{
    (void)d;
    (void)e;
    return TG_OK;
}

const tg_device_ops tg_cpu_device_ops = {
    .struct_size = sizeof(tg_device_ops),
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .load = cpu_load,
    .buffer = cpu_buffer,
    .write = cpu_write,
    .read = cpu_read,
    .submit = cpu_submit,
    .wait = cpu_wait,
    .measure = cpu_measure,
};

tg_cpu_info tg_cpu_device_get_info(const tg_device *d)
{
    return (tg_cpu_info){tg_team_n_threads(d->team), tg_cpu_tier_name(d->tier)};
}

tg_status tg_cpu_device_begin_profile(tg_device *d, tg_err *e)
{
    tg_cpu_device_end_profile(d);
    return tg_profile_new(&d->profile, e);
}

void tg_cpu_device_end_profile(tg_device *d)
{
    tg_profile_free(d->profile);
    d->profile = NULL;
}

int32_t tg_cpu_device_read_profile(const tg_device *d, tg_cpu_cost *rows, int32_t n_max)
{
    return d->profile ? tg_profile_read(d->profile, rows, n_max) : 0;
}

tg_cpu_rates tg_cpu_device_measure_rates(tg_device *d, const void *memory, size_t n_bytes)
{
    tg_cpu_rates r;
    tg_rates_measure(&r, d->team, &d->kernels, memory, n_bytes);
    return r;
}

void tg_cpu_device_watch(tg_device *d, tg_cpu_watch_fn *watch, void *context)
{
    d->watch = watch;
    d->watch_context = context;
}

void tg_cpu_device_show(tg_device *d, tg_cpu_show_fn *show, void *context)
{
    d->show = show;
    d->show_context = context;
}
