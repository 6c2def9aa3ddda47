/* SPDX-License-Identifier: Apache-2.0 */
#include "compile/compile.h"

#include "base/log.h"
#include "compile/pass.h"
#include "ir/io.h"

#include <string.h>

static const char *const passes[] = {"build", "fuse", "output-rows", "group", "plan"};
enum { PASS_BUILD, PASS_FUSE, PASS_OUTPUT_ROWS, PASS_GROUP, PASS_PLAN };

typedef struct source {
    const tg_loaded_checkpoint *b;
    tg_weights_mode mode;
    bool has_floats; /* of what was placed, a matrix that the mode decides about */
} source;

static tg_status choose_layout(void *context, tg_weight_role role, int32_t layer, bool is_plain,
                               tg_layout *out, tg_err *e)
{
    source *from = context;
    const tg_found_weight *w = tg_loaded_checkpoint_find_weight(from->b, role, layer);
    if (w && w->tensor && !is_plain && !tg_dtype_is_block(w->tensor->dtype))
        from->has_floats = true;
    /* Errors of the head go straight into every logit: 4 and 5 bits keep 8 there, as llama.cpp's
     * quantizer does. SmolLM2, mean KL to float32: 0.386 with a head of q4_0, 0.298 so. */
    tg_weights_mode mode = from->mode;
    bool is_low_bit = mode == TG_WEIGHTS_Q4_0 || mode == TG_WEIGHTS_Q4_1 || mode == TG_WEIGHTS_Q5_1;
    if (is_low_bit && (role == TG_W_EMBED || role == TG_W_HEAD)) mode = TG_WEIGHTS_Q8_0;
    if (w && w->tensor) return tg_pack_choose_layout(out, w->tensor, mode, is_plain, e);
    return tg_fail(e, TG_E_CORRUPT, "weight '%s' of layer %d is used but not in the checkpoint",
                   tg_weight_role_name(role), layer);
}

/* A quantized matrix is unpacked for f32, which is exact, and never converted to another type, as
 * that would round twice. So other types are refused for a checkpoint that has nothing else. */
static tg_status check_mode(const source *from, tg_err *e)
{
    if (from->has_floats || from->mode == TG_WEIGHTS_AUTO || from->mode == TG_WEIGHTS_F32)
        return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT,
                   "%s: --weights %s is for matrices of floats, and all of this checkpoint's are "
                   "quantized already and stay as they are; leave it out, or take f32",
                   tg_checkpoint_get_path(tg_loaded_checkpoint_checkpoint(from->b)),
                   tg_weights_mode_name(from->mode));
}

static tg_program program_of(const tg_hparams *h, const tg_export_config *c)
{
    return (tg_program){
        .n_vocab = h->n_vocab,
        .n_embed_rows = h->n_embed_rows,
        .width = h->width,
        .max_length = c->max_length,
        .original_length = tg_rope_original_length(h, c->max_length),
        .batch = c->batch,
        .speculation = c->speculation,
        .activations = (int32_t)c->activations,
        .kv_type = c->kv_type,
    };
}

/* The lengths beyond the original one have one table each in transformers, which for dynamic
 * scaling is one for every token; a cache cannot follow that. */
static void warn_of_dynamic_rope(const tg_program *p, const tg_loaded_checkpoint *b)
{
    const tg_hparams *h = tg_loaded_checkpoint_hparams(b);
    bool is_dynamic = false;
    for (int i = 0; i < TG_MAX_ROPES; i++)
        is_dynamic = is_dynamic || h->ropes[i].kind == TG_ROPE_DYNAMIC;
    if (is_dynamic && p->original_length > 0)
        tg_log_warn("%s: dynamic rope scaling: texts of more than %d tokens use the frequencies of "
                    "a text of %d (--max-length), in transformers those of their own length",
                    tg_checkpoint_get_path(tg_loaded_checkpoint_checkpoint(b)), p->original_length,
                    p->max_length);
}

static tg_status find_pass(const char *name, int *out, tg_err *e)
{
    *out = -1;
    for (size_t i = 0; name && i < TG_COUNT(passes); i++)
        if (strcmp(name, passes[i]) == 0) *out = (int)i;
    if (!name || *out >= 0) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT, "there is no pass '%s'; the passes are %s, %s, %s, %s and %s",
                   name, passes[0], passes[1], passes[2], passes[3], passes[4]);
}

static int32_t choose_all(void *context, const tg_weight_entry *w, int32_t index, int32_t *out)
{
    (void)context;
    (void)index;
    int32_t n = (int32_t)tg_div_up(w->cols, TG_GROUP_COLS);
    for (int32_t g = 0; g < n; g++)
        out[g] = g;
    return n;
}

/* Everything after the graph was built. `dumped` is the pass to print after, -1 for none. */
static tg_status run_passes(tg_compiled *out, tg_graph *g, const source *from,
                            const tg_export_config *c, int dumped, tg_buf *dump, tg_err *e)
{
    tg_program *p = &out->program;
    if (dumped == PASS_BUILD) tg_graph_print(g, dump);
    TG_TRY(tg_graph_fuse(g, e));
    if (dumped == PASS_FUSE) tg_graph_print(g, dump);
    if (!c->is_watched) TG_TRY(tg_graph_pick_output_rows(g, e));
    if (dumped == PASS_OUTPUT_ROWS) tg_graph_print(g, dump);
    TG_TRY(tg_graph_group(g, p, &out->arena, e));
    if (dumped == PASS_GROUP) tg_graph_print(g, dump);
    source copy = *from;
    TG_TRY(tg_graph_place_weights(g, p, &out->arena, choose_layout, &copy, e));
    TG_TRY(check_mode(&copy, e));
    if (p->activations == TG_ACTIVATIONS_INT16)
        TG_TRY(tg_compiled_set_outliers(out, choose_all, NULL, e));
    TG_TRY(tg_graph_plan(g, p, c->context_buckets, c->n_context_buckets, &out->arena, e));
    for (int32_t i = 0; dumped == PASS_PLAN && i < p->n_plans; i++)
        tg_plan_print(p, &p->plans[i], dump);
    /* Checked as if it came from a file: devices trust it. */
    return tg_program_check(p, e);
}

tg_status tg_compile(tg_compiled *out, const tg_loaded_checkpoint *b, const tg_export_config *c,
                     const char *dump_pass, tg_buf *dump, tg_err *e)
{
    *out = (tg_compiled){0};
    int dumped = -1;
    if (dump) TG_TRY(find_pass(dump_pass, &dumped, e));
    tg_export_config config = *c;
    const tg_hparams *h = tg_loaded_checkpoint_hparams(b);
    TG_TRY(tg_export_config_check(&config, h, e));

    tg_graph *g;
    TG_TRY(tg_loaded_checkpoint_build(b, config.max_length, &g, e));
    out->program = program_of(h, &config);
    warn_of_dynamic_rope(&out->program, b);
    source from = {.b = b, .mode = config.weights};
    tg_status s = run_passes(out, g, &from, &config, dumped, dump, e);
    tg_graph_free(g);
    if (s == TG_OK && dump) s = tg_buf_check(dump, e);
    if (s != TG_OK) tg_compiled_deinit(out);
    return s;
}

void tg_compiled_deinit(tg_compiled *c)
{
    tg_arena_deinit(&c->arena);
    *c = (tg_compiled){0};
}
