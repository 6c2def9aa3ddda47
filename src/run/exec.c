/* SPDX-License-Identifier: Apache-2.0 */
#include "run/exec.h"

#include "base/os.h"

#include <string.h>

enum { MAX_ARGS = TG_ARG_KV + TG_MAX_KV_GROUPS };

struct tg_exec {
    const tg_program *program;
    const tg_device_ops *ops;
    tg_device *device;
    tg_exe **exes; /* [n_plans] */
    tg_kv *kv;
    tg_dbuf *args[MAX_ARGS];
    char *staging; /* the input image, but for the adjustments */
    int32_t *ids;  /* [n_ids] of the last step */
    int32_t n_ids;
    float *logits; /* [n_vocab] of the last read */
    bool *is_long; /* [batch] how a row's pages were computed */
    tg_io io;      /* of the last step */
    tg_arena arena;
};

/* Sizes of the step's buffers, of the largest plan each. */
typedef struct sizes {
    size_t in_bytes, out_bytes, staging_bytes;
    int32_t n_ids;
} sizes;

static sizes measure(const tg_program *p)
{
    sizes z = {0};
    for (int32_t i = 0; i < p->n_plans; i++) {
        tg_io io;
        tg_io_find(&io, p, &p->plans[i]);
        z.in_bytes = TG_MAX(z.in_bytes, io.in_bytes);
        z.out_bytes = TG_MAX(z.out_bytes, io.out_bytes);
        z.staging_bytes = TG_MAX(z.staging_bytes, io.adjust);
        z.n_ids = TG_MAX(z.n_ids, p->plans[i].bucket.outs);
    }
    return z;
}

static tg_status load_plans(tg_exec *x, const void *weights, tg_err *e)
{
    const tg_program *p = x->program;
    x->exes = TG_ARENA_ARRAY(&x->arena, tg_exe *, p->n_plans);
    if (!x->exes) return tg_fail_nomem(e, (size_t)p->n_plans, "the list of plans");
    for (int32_t i = 0; i < p->n_plans; i++)
        TG_TRY(x->ops->load(&x->exes[i], x->device, p, &p->plans[i], weights, e));
    return TG_OK;
}

static int32_t largest_step(const tg_program *p)
{
    int32_t n = 1;
    for (int32_t k = 0; k < TG_KIND_COUNT; k++)
        n = TG_MAX(n, tg_program_max_tokens(p, (tg_graph_kind)k));
    return n;
}

static tg_status make_buffers(tg_exec *x, tg_err *e)
{
    const tg_program *p = x->program;
    sizes z = measure(p);
    x->staging = tg_arena_alloc(&x->arena, z.staging_bytes);
    x->ids = TG_ARENA_ARRAY(&x->arena, int32_t, z.n_ids);
    x->logits = TG_ARENA_ARRAY(&x->arena, float, p->n_vocab);
    x->is_long = TG_ARENA_ARRAY(&x->arena, bool, p->batch);
    if (!x->staging || !x->ids || !x->logits || !x->is_long)
        return tg_fail_nomem(e, z.staging_bytes, "step buffers");
    TG_TRY(x->ops->buffer(&x->args[TG_ARG_IN], x->device, z.in_bytes, e));
    TG_TRY(x->ops->buffer(&x->args[TG_ARG_OUT], x->device, z.out_bytes, e));
    for (int32_t g = 0; g < p->n_kv_groups; g++) {
        size_t n = (size_t)tg_kv_n_pages(x->kv, g) * (size_t)p->kv_groups[g].page_bytes;
        TG_TRY(x->ops->buffer(&x->args[TG_ARG_KV + g], x->device, n, e));
    }
    return TG_OK;
}

static tg_status sum_memory(tg_exec_memory *out, const tg_program *p, const tg_kv *kv,
                            const tg_device_ops *ops, const void *device_options, tg_err *e)
{
    sizes z = measure(p);
    *out = (tg_exec_memory){.logits_bytes = (int64_t)z.out_bytes};
    TG_TRY(ops->measure(&out->step_bytes, p, device_options, e));
    out->step_bytes += (int64_t)(z.in_bytes + z.staging_bytes + z.out_bytes);
    for (int32_t g = 0; g < p->n_kv_groups; g++)
        out->kv_bytes += tg_kv_n_pages(kv, g) * p->kv_groups[g].page_bytes;
    return TG_OK;
}

tg_status tg_exec_find_memory(tg_exec_memory *out, const tg_program *p, const tg_device_ops *ops,
                              const void *device_options, tg_err *e)
{
    tg_kv *kv;
    TG_TRY(tg_kv_new(&kv, p, largest_step(p), e));
    tg_status s = sum_memory(out, p, kv, ops, device_options, e);
    tg_kv_free(kv);
    return s;
}

tg_status tg_exec_check_memory(const tg_exec_memory *m, const tg_program *p, int64_t available,
                               tg_err *e)
{
    int64_t needed = m->kv_bytes + m->step_bytes;
    if (needed <= available) return TG_OK;
    return tg_fail(e, TG_E_LIMIT,
                   "%d rows of %d positions need up to %lld MB and %lld MB are free; export with a "
                   "smaller --max-length or --batch",
                   p->batch, p->max_length, (long long)(needed >> 20),
                   (long long)(available >> 20));
}

tg_status tg_exec_new(tg_exec **out, const tg_program *p, const void *weights,
                      const tg_device_ops *ops, const void *device_options, tg_err *e)
{
    *out = NULL;
    tg_exec *x = TG_NEW(tg_exec);
    if (!x) return tg_fail_nomem(e, sizeof *x, "the executor");
    x->program = p;
    x->ops = ops;
    tg_exec_memory m;
    tg_status s = tg_kv_new(&x->kv, p, largest_step(p), e);
    if (s == TG_OK) s = sum_memory(&m, p, x->kv, ops, device_options, e);
    if (s == TG_OK) s = tg_exec_check_memory(&m, p, tg_memory_available_bytes(), e);
    if (s == TG_OK) s = ops->open(&x->device, device_options, e);
    if (s == TG_OK) s = load_plans(x, weights, e);
    if (s == TG_OK) s = make_buffers(x, e);
    if (s != TG_OK) {
        tg_exec_free(x);
        return s;
    }
    *out = x;
    return TG_OK;
}

void tg_exec_free(tg_exec *x)
{
    if (!x) return;
    x->ops->close(x->device);
    tg_kv_free(x->kv);
    tg_arena_deinit(&x->arena);
    tg_mem_free(x);
}

tg_device *tg_exec_device(const tg_exec *x)
{
    return x->device;
}

tg_kv *tg_exec_kv(tg_exec *x)
{
    return x->kv;
}

/* ---- the input image */

static void stage_row(tg_exec *x, const tg_exec_row *r, int32_t index, int32_t *n_tokens,
                      int32_t *n_outs)
{
    char *image = x->staging;
    int32_t *tokens = (int32_t *)(void *)(image + x->io.tokens);
    int32_t *positions = (int32_t *)(void *)(image + x->io.positions);
    int32_t *rope_rows = (int32_t *)(void *)(image + x->io.rope_rows);
    int32_t *token_rows = (int32_t *)(void *)(image + x->io.token_rows);
    int32_t *row_tokens = (int32_t *)(void *)(image + x->io.row_tokens);
    int32_t *out_tokens = (int32_t *)(void *)(image + x->io.out_tokens);
    int32_t first_rope_row = r->is_long ? x->program->original_length : 0;
    row_tokens[index] = *n_tokens;
    for (int32_t i = 0; i < r->n_tokens; i++) {
        tokens[*n_tokens] = r->tokens[i];
        positions[*n_tokens] = r->position + i;
        rope_rows[*n_tokens] = first_rope_row + r->position + i;
        token_rows[*n_tokens] = index;
        if (i >= r->n_tokens - r->n_outs) out_tokens[(*n_outs)++] = *n_tokens;
        ++*n_tokens;
    }
    row_tokens[index + 1] = *n_tokens;
}

static void stage_pages(tg_exec *x, const tg_bucket *b, const tg_exec_row *rows, int32_t n_rows)
{
    int32_t *tables = (int32_t *)(void *)(x->staging + x->io.page_tables);
    for (int32_t g = 0; g < x->program->n_kv_groups; g++)
        for (int32_t r = 0; r < n_rows; r++)
            memcpy(tables + ((int64_t)g * b->rows + r) * b->pages,
                   tg_kv_get_table(x->kv, g, rows[r].row), (size_t)b->pages * sizeof *tables);
}

/* Parameters of output rows, and each row's adjustments behind one another. */
static tg_status stage_sampling(tg_exec *x, const tg_exec_row *rows, int32_t n_rows, tg_err *e)
{
    tg_sample_params *params = (void *)(x->staging + x->io.sampling);
    int32_t n_adjust = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        for (int32_t i = 0; i < rows[r].n_outs; i++) {
            *params = rows[r].params[i];
            params->adjust_at += n_adjust;
            params++;
        }
        TG_TRY(x->ops->write(
            x->args[TG_ARG_IN], x->io.adjust + (size_t)n_adjust * sizeof(tg_sample_adjust),
            rows[r].adjust, (size_t)rows[r].n_adjust * sizeof(tg_sample_adjust), e));
        n_adjust += rows[r].n_adjust;
    }
    return TG_OK;
}

static tg_status stage(tg_exec *x, const tg_plan *plan, const tg_exec_row *rows, int32_t n_rows,
                       tg_err *e)
{
    tg_step_counts c = {.n_rows = n_rows, .is_sampling = rows[0].params != NULL};
    for (int32_t r = 0; r < n_rows; r++)
        stage_row(x, &rows[r], r, &c.n_tokens, &c.n_outs);
    stage_pages(x, &plan->bucket, rows, n_rows);
    memcpy(x->staging, &c, sizeof c);
    if (c.is_sampling) TG_TRY(stage_sampling(x, rows, n_rows, e));
    return x->ops->write(x->args[TG_ARG_IN], 0, x->staging, x->io.adjust, e);
}

/* ---- the step */

static const tg_plan *find_plan(const tg_exec *x, tg_graph_kind kind, const tg_exec_row *rows,
                                int32_t n_rows, tg_err *e)
{
    int32_t n_tokens = 0, n_outs = 0, n_pages = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        TG_ASSERT(rows[r].n_tokens > 0 && rows[r].n_outs <= rows[r].n_tokens);
        n_tokens += rows[r].n_tokens;
        n_outs += rows[r].n_outs;
        n_pages = TG_MAX(n_pages, (rows[r].position + rows[r].n_tokens + TG_KV_PAGE_TOKENS - 1) /
                                      TG_KV_PAGE_TOKENS);
    }
    const tg_plan *plan = tg_program_find_plan(x->program, kind, n_rows, n_tokens, n_outs, n_pages);
    if (!plan)
        tg_fail(e, TG_E_LIMIT,
                "no %s plan holds %d rows, %d tokens, %d output rows and %d pages a row",
                tg_kind_name(kind), n_rows, n_tokens, n_outs, n_pages);
    return plan;
}

/* The rows end where their rope tables do, and each goes on as it began. */
static tg_status check_lengths(tg_exec *x, const tg_exec_row *rows, int32_t n_rows, tg_err *e)
{
    for (int32_t r = 0; r < n_rows; r++) {
        int32_t end = rows[r].position + rows[r].n_tokens;
        if (!rows[r].is_long && tg_program_is_long(x->program, end))
            return tg_fail(e, TG_E_LIMIT,
                           "position %d is beyond the original length of %d; a row that goes on "
                           "there is computed again from its first token",
                           end - 1, x->program->original_length);
        TG_ASSERT(rows[r].position == 0 || x->is_long[rows[r].row] == rows[r].is_long);
    }
    for (int32_t r = 0; r < n_rows; r++)
        x->is_long[rows[r].row] = rows[r].is_long;
    return TG_OK;
}

tg_status tg_exec_step(tg_exec *x, tg_graph_kind kind, const tg_exec_row *rows, int32_t n_rows,
                       tg_err *e)
{
    const tg_plan *plan = find_plan(x, kind, rows, n_rows, e);
    if (!plan) return TG_E_LIMIT;
    TG_TRY(check_lengths(x, rows, n_rows, e));
    for (int32_t r = 0; r < n_rows; r++)
        TG_TRY(tg_kv_acquire(x->kv, rows[r].row, rows[r].position + rows[r].n_tokens, e));

    tg_exe *exe = x->exes[plan - x->program->plans];
    tg_io_find(&x->io, x->program, plan);
    TG_TRY(stage(x, plan, rows, n_rows, e));
    TG_TRY(x->ops->submit(exe, x->args, TG_ARG_KV + x->program->n_kv_groups, e));
    TG_TRY(x->ops->wait(x->device, e));

    x->n_ids = 0;
    for (int32_t r = 0; r < n_rows; r++) {
        x->n_ids += rows[r].params ? rows[r].n_outs : 0;
        /* Of verified tokens only the first is sure to stay. */
        int32_t n_sure = kind == TG_KIND_SPECULATE ? 1 : rows[r].n_tokens;
        tg_kv_slide(x->kv, rows[r].row, rows[r].position + n_sure);
    }
    return x->ops->read(x->args[TG_ARG_OUT], x->io.ids, x->ids, (size_t)x->n_ids * sizeof *x->ids,
                        e);
}

int32_t tg_exec_get_id(const tg_exec *x, int32_t out)
{
    TG_ASSERT(out >= 0 && out < x->n_ids);
    return x->ids[out];
}

tg_status tg_exec_read_logits(tg_exec *x, int32_t out, const float **logits, tg_err *e)
{
    *logits = x->logits;
    size_t at = x->io.logits + (size_t)out * x->io.logits_stride * sizeof(float);
    return x->ops->read(x->args[TG_ARG_OUT], at, x->logits,
                        (size_t)x->program->n_vocab * sizeof(float), e);
}

tg_status tg_exec_fill_kv(tg_exec *x, uint8_t byte, tg_err *e)
{
    char block[4096];
    memset(block, byte, sizeof block);
    for (int32_t g = 0; g < x->program->n_kv_groups; g++) {
        size_t n = (size_t)tg_kv_n_pages(x->kv, g) * (size_t)x->program->kv_groups[g].page_bytes;
        for (size_t at = 0; at < n; at += sizeof block)
            TG_TRY(
                x->ops->write(x->args[TG_ARG_KV + g], at, block, TG_MIN(sizeof block, n - at), e));
    }
    return TG_OK;
}
