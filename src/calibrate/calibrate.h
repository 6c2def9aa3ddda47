/* SPDX-License-Identifier: Apache-2.0
 * calibrate.h - choices that need a run of the model: outlier groups and importance.
 *
 * Export runs a model that was just compiled over a short text and looks at the inputs of its
 * matrices. The caller brings the text as token ids and the packed weights as mapped memory, so
 * nothing here knows a tokenizer or a file. A step gives the same numbers on every machine
 * (kernel.h) and sums run in the order of the text: an artifact stays a function of its inputs. */
#ifndef TG_CALIBRATE_CALIBRATE_H
#define TG_CALIBRATE_CALIBRATE_H

#include "compile/compile.h"
#include "ir/program.h"

/* Token ids; borrowed. */
typedef struct tg_calibration_ids {
    const int32_t *ids;
    size_t n_ids;
} tg_calibration_ids;

/* ---- outlier groups (outlier_groups.c) */

/* Changes whenever the same checkpoint may be given other outlier groups. */
enum { TG_OUTLIER_RUN_VERSION = 1 };

/* The text whose ids, with the model's special tokens, tg_calibrate_outliers runs. */
tg_str tg_calibration_text(void);

/* Runs a compiled model from its packed weights and writes into its program which groups of
 * activations take two planes. Ids that the embedding lacks are left out; when none remain, ids
 * spread over the vocabulary take their place. Does nothing where every group takes two planes or
 * nothing is quantized. */
TG_MUST_USE tg_status tg_calibrate_outliers(tg_compiled *c, const void *weights,
                                            tg_calibration_ids text, tg_err *e);

/* ---- importance (importance.c) */

/* Of a text the first MAX tokens are run, as one sequence; fewer than MIN say nothing. */
enum { TG_IMPORTANCE_MIN_TOKENS = 64, TG_IMPORTANCE_MAX_TOKENS = 4096 };

/* Which columns of a matrix matter when it is quantized. */
typedef struct tg_importance {
    const tg_program *target;    /* the program whose weights are to be quantized; borrowed */
    tg_compiled floats;          /* runs the text, with weights as the checkpoint has them */
    double **squares;            /* of the inputs: [floats.n_weights][cols], summed over tokens */
    const float *const *columns; /* after the run: [target.n_weights], what tg_pack_tile takes */
    tg_arena arena;
} tg_importance;

/* Compiles the model with float weights, for a text of n_ids tokens. TG_E_ARGUMENT when none of the
 * target's matrices is quantized from floats. The caller packs x->floats (tg_pack_write), runs it
 * and may drop the packed weights then. */
TG_MUST_USE tg_status tg_importance_init(tg_importance *x, const tg_loaded_checkpoint *b,
                                         const tg_export_config *config, const tg_program *target,
                                         size_t n_ids, tg_err *e);
/* Runs the text and sets x->columns. `weights` are those of x->floats; ids lie in the embedding. */
TG_MUST_USE tg_status tg_importance_run(tg_importance *x, const void *weights,
                                        tg_calibration_ids text, tg_err *e);
void tg_importance_deinit(tg_importance *x); /* {0} is fine */

#endif
