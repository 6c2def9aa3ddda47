/* SPDX-License-Identifier: Apache-2.0
 * io.c - offsets of the step's two images. Both sides compute them from the plan, so that nothing
 * about them needs to be stored. */
#include "ir/io.h"

enum { ALIGN = 64, LOGITS_BYTES = 64 << 20 };

/* Takes n_bytes behind *end, aligned. The program's limits keep every product below 2^63. */
static size_t take(size_t *end, size_t n_bytes)
{
    size_t at = *end;
    *end = tg_align_up(at + n_bytes, ALIGN);
    return at;
}

void tg_io_find(tg_io *out, const tg_program *p, const tg_plan *plan)
{
    size_t rows = (size_t)plan->bucket.rows, tokens = (size_t)plan->bucket.tokens;
    size_t outs = (size_t)plan->bucket.outs, pages = (size_t)plan->bucket.pages;
    size_t per_row = plan->kind == TG_KIND_SPECULATE ? (size_t)p->speculation + 1 : 1;
    *out = (tg_io){.n_sampled = (int32_t)(rows * per_row), .max_adjust = p->max_length};

    size_t end = 0;
    take(&end, sizeof(tg_step_counts));
    out->tokens = take(&end, tokens * 4);
    out->positions = take(&end, tokens * 4);
    out->rope_rows = take(&end, tokens * 4);
    out->token_rows = take(&end, tokens * 4);
    out->row_tokens = take(&end, (rows + 1) * 4);
    out->out_tokens = take(&end, outs * 4);
    out->page_tables = take(&end, (size_t)p->n_kv_groups * rows * pages * 4);
    out->sampling = take(&end, outs * sizeof(tg_sample_params));
    out->adjust =
        take(&end, (size_t)out->n_sampled * (size_t)out->max_adjust * sizeof(tg_sample_adjust));
    out->in_bytes = end;

    end = 0;
    out->logits_stride = tg_align_up((size_t)p->n_vocab, 16);
    out->ids = take(&end, outs * 4);
    out->logits = take(&end, outs * out->logits_stride * 4);
    out->out_bytes = end;
}

int32_t tg_io_most_outs(const tg_program *p)
{
    int64_t row_bytes = (int64_t)tg_align_up((size_t)p->n_vocab, 16) * (int64_t)sizeof(float);
    return (int32_t)TG_MAX(LOGITS_BYTES / row_bytes, p->batch);
}
