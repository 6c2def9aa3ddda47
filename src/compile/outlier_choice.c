/* SPDX-License-Identifier: Apache-2.0
 * outlier_choice.c - which groups of activations get a second plane.
 *
 * Rounding a group to 8 bits costs its input an error of scale^2 / 12 a column, and the results of
 * the matrices that read it that times the squares of the group's weights. In trained models a few
 * columns are much larger than all others, always the same ones, so that one group of an input may
 * carry most of its error. Groups are taken in the order of how many times the mean of its input
 * one carries, until BUDGET is spent: so a group in 48 competes with a group in 18, and inputs
 * without such columns get nothing. Measured by mean KL over kl.txt to activations of 16 bits, 8
 * bits alone 0.0030 (SmolLM2) and 0.0031 (Gemma 3): so 0.00159 and 0.00148, all codes reaching 127
 * (0.00166 and 0.00160 as tg_a8_top has them). Over 1,024 and 768 ids
 * of it, this order 0.00135 and 0.00119; two groups of q, k and v, one of gate and up, two of the
 * head, whatever they carry, 0.00133 and, without the head, 0.00153; in the order of the error
 * itself 0.00139 and 0.00317.
 *
 * All sums run in one order and in double, so the choice is the same on any machine. */
#include "compile/compile.h"
#include "kernel/kernel.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ROWS: weights are measured by this many rows of a matrix, spread evenly: 4,096 numbers of a
 * group, which know its squares to 2 %. */
enum { ROWS = 128, MAX_MEMBERS = TG_MAX_WEIGHTS };

/* BUDGET: the share of all multiply-adds that second planes may add. LEAST: a group below twice the
 * mean is no outlier, and keeps one plane whatever is left to spend. */
static const double BUDGET = 0.06, LEAST = 2;

/* An input that some quantized matrices read. */
typedef struct input {
    int32_t members[MAX_MEMBERS]; /* indices of weights; the first is what the run names it by */
    int32_t n_members;
    int32_t n_groups;
    double products;   /* multiply-adds of one group */
    bool *is_outlier;  /* [n_groups] */
    double *error;     /* [n_groups] */
    double mean_error; /* of a group */
} input;

typedef struct candidate {
    int32_t input, group;
    double share; /* its error over the mean of its input */
} candidate;

typedef struct chooser {
    const tg_program *p;
    const uint8_t *weights;
    tg_arena arena;
    input *inputs;
    int32_t *input_of; /* [n_weights] index + 1; 0: read by no instruction */
    candidate *candidates;
    int32_t n_inputs, n_candidates;
} chooser;

/* ---- inputs */

static bool is_quantized(const tg_weight_entry *w)
{
    return w && !w->is_plain && tg_layout_rows[w->layout].is_quantized;
}

/* An instruction's input for one layer, unless an earlier one has it. */
static tg_status add_input(chooser *c, const tg_instr *x, int32_t layer, tg_err *e)
{
    const tg_program *p = c->p;
    const tg_weight_entry *first = tg_program_find_quantized(p, x, layer);
    if (!first || tg_op_get((tg_op)x->op)->is_lookup || c->input_of[first - p->weights])
        return TG_OK;
    input *in = &c->inputs[c->n_inputs++];
    in->n_groups = (int32_t)tg_div_up(first->cols, TG_GROUP_COLS);
    in->is_outlier = TG_ARENA_ARRAY(&c->arena, bool, in->n_groups);
    in->error = TG_ARENA_ARRAY(&c->arena, double, in->n_groups);
    if (!in->is_outlier || !in->error)
        return tg_fail_nomem(e, (size_t)in->n_groups * sizeof(double), "a matrix's input");
    for (int32_t i = 0; i < TG_MAX_WEIGHTS; i++) {
        if (x->weights[i] == TG_NONE) continue;
        const tg_weight_entry *w = tg_program_find_weight(p, (tg_weight_role)x->weights[i], layer);
        if (!is_quantized(w)) continue;
        in->members[in->n_members++] = (int32_t)(w - p->weights);
        in->products += (double)w->rows * TG_GROUP_COLS;
        c->input_of[w - p->weights] = c->n_inputs;
    }
    c->n_candidates += in->n_groups;
    return TG_OK;
}

/* All plans have the same instructions: the first stands for all. */
static tg_status find_inputs(chooser *c, tg_err *e)
{
    const tg_plan *plan = &c->p->plans[0];
    c->inputs = TG_ARENA_ARRAY(&c->arena, input, c->p->n_weights);
    c->input_of = TG_ARENA_ARRAY(&c->arena, int32_t, c->p->n_weights);
    if (!c->inputs || !c->input_of)
        return tg_fail_nomem(e, sizeof(input) * (size_t)c->p->n_weights, "the matrices' inputs");
    for (int32_t s = 0; s < plan->n_segments; s++) {
        const tg_segment *g = &plan->segments[s];
        for (int32_t l = 0; l < TG_MAX(g->n_layers, 1); l++)
            for (int32_t i = 0; i < g->n_instrs; i++)
                TG_TRY(add_input(c, &plan->instrs[g->first_instr + i],
                                 g->n_layers ? plan->layer_refs[g->first_layer + l] : 0, e));
    }
    return TG_OK;
}

/* ---- errors */

/* Adds the squares of a weight's groups, from ROWS of its rows, to squares [n_groups]. */
static void add_squares(const chooser *c, const tg_weight_entry *w, float *row, double *squares)
{
    tg_kernels k;
    tg_kernels_fill(&k, TG_CPU_REF);
    int64_t n = TG_MIN(w->rows, (int64_t)ROWS);
    for (int64_t i = 0; i < n; i++) {
        int64_t r = i * w->rows / n;
        tg_embed x = {
            .w = c->weights + w->offset + r / TG_TILE_ROWS * w->tile_stride,
            .lane = (int32_t)(r % TG_TILE_ROWS),
            .n_cols = (int32_t)w->cols,
            .mul = 1,
            .y = row,
        };
        k.embed[w->layout](&x);
        for (int64_t col = 0; col < w->cols; col++) {
            double v = (double)row[col];
            squares[col / TG_GROUP_COLS] += v * v * (double)w->rows / (double)n;
        }
    }
}

/* Inputs that no run has shown, or whose errors are no numbers, keep errors of 0. */
static tg_status measure(chooser *c, const double *const *squares, tg_err *e)
{
    int64_t most = 1;
    for (int32_t i = 0; i < c->p->n_weights; i++)
        most = TG_MAX(most, c->p->weights[i].cols);
    float *row = TG_NEW_ARRAY(float, most);
    if (!row) return tg_fail_nomem(e, (size_t)most * sizeof *row, "a row of weights");
    for (int32_t i = 0; i < c->n_inputs; i++) {
        input *in = &c->inputs[i];
        const double *s = squares[in->members[0]];
        double sum = 0;
        if (!s) continue;
        for (int32_t m = 0; m < in->n_members; m++)
            add_squares(c, &c->p->weights[in->members[m]], row, in->error);
        for (int32_t g = 0; g < in->n_groups; g++) {
            in->error[g] *= s[g];
            sum += in->error[g];
        }
        in->mean_error = sum / in->n_groups;
    }
    tg_mem_free(row);
    return TG_OK;
}

/* ---- choosing */

/* The highest share first; equal ones as they lie in the model. */
static int compare_candidates(const void *x, const void *y)
{
    const candidate *a = x, *b = y;
    if (a->share != b->share) return a->share < b->share ? 1 : -1;
    if (a->input != b->input) return a->input < b->input ? -1 : 1;
    return a->group < b->group ? -1 : a->group > b->group;
}

static tg_status rank(chooser *c, tg_err *e)
{
    int32_t n = 0;
    c->candidates = TG_ARENA_ARRAY(&c->arena, candidate, c->n_candidates);
    if (!c->candidates)
        return tg_fail_nomem(e, (size_t)c->n_candidates * sizeof(candidate), "groups");
    for (int32_t i = 0; i < c->n_inputs; i++) {
        const input *in = &c->inputs[i];
        if (!isfinite(in->mean_error)) continue;
        for (int32_t g = 0; g < in->n_groups; g++)
            if (in->error[g] > LEAST * in->mean_error)
                c->candidates[n++] = (candidate){i, g, in->error[g] / in->mean_error};
    }
    c->n_candidates = n;
    qsort(c->candidates, (size_t)n, sizeof *c->candidates, compare_candidates);
    return TG_OK;
}

static void spend(chooser *c)
{
    double left = 0;
    for (int32_t i = 0; i < c->n_inputs; i++)
        left += BUDGET * c->inputs[i].products * c->inputs[i].n_groups;
    for (int32_t i = 0; i < c->n_candidates; i++) {
        const candidate *x = &c->candidates[i];
        input *in = &c->inputs[x->input];
        if (in->products > left) continue;
        in->is_outlier[x->group] = true;
        left -= in->products;
    }
}

static int32_t choose(void *context, const tg_weight_entry *w, int32_t index, int32_t *out)
{
    const chooser *c = context;
    int32_t n = 0;
    (void)w;
    if (c->input_of[index] == 0) return 0;
    const input *in = &c->inputs[c->input_of[index] - 1];
    for (int32_t g = 0; g < in->n_groups; g++)
        if (in->is_outlier[g]) out[n++] = g;
    return n;
}

tg_status tg_compiled_choose_outliers(tg_compiled *compiled, const void *weights,
                                      const double *const *squares, tg_err *e)
{
    chooser c = {.p = &compiled->program, .weights = weights};
    tg_status s = find_inputs(&c, e);
    if (s == TG_OK) s = measure(&c, squares, e);
    if (s == TG_OK) s = rank(&c, e);
    if (s == TG_OK) spend(&c);
    if (s == TG_OK) s = tg_compiled_set_outliers(compiled, choose, &c, e);
    tg_arena_deinit(&c.arena);
    return s;
}
