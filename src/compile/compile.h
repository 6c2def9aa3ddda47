/* SPDX-License-Identifier: Apache-2.0
 * compile.h - from a model to an artifact.
 *
 *   model -> graph -> fuse -> output rows -> group -> specialize (kind x bucket)
 *         -> memplan -> program;   weights -> pack -> weights.0.bin
 *
 * One pass a file; every pass leaves a graph that tg_graph_check accepts and that can be printed
 * (--dump-ir). The compiler may be slow and may allocate. It runs no model: choices that need a run
 * are made by calibrate/, which hands them back (tg_compiled_choose_outliers, tg_pack_write). */
#ifndef TG_COMPILE_COMPILE_H
#define TG_COMPILE_COMPILE_H

#include "base/json.h"
#include "ir/artifact.h"
#include "model/model.h"

enum { TG_MAX_CONTEXT_BUCKETS = 16 };

/* How weights are packed. AUTO keeps a quantized tensor as it is and a float tensor in its
 * own type; the others convert float tensors (quantized ones stay; where all matrices are, all but
 * F32 are an error). */
typedef enum tg_weights_mode {
    TG_WEIGHTS_AUTO,
    TG_WEIGHTS_F32, /* everything to float32, quantized tensors too */
    TG_WEIGHTS_BF16,
    TG_WEIGHTS_F16,
    TG_WEIGHTS_Q8_0,
    TG_WEIGHTS_Q4_0, /* this, q4_1 and q5_1: scale and minimum of least squared error */
    TG_WEIGHTS_Q4_1,
    TG_WEIGHTS_Q5_1
} tg_weights_mode;

const char *tg_weights_mode_name(tg_weights_mode m);

/* Zero means default. Row by row the keys of the config file and the options of `export`. */
typedef struct tg_export_config {
    int32_t batch;      /* rows; 1 */
    int32_t max_length; /* positions of a row; the model's, at most 4096 */
    int32_t context_buckets[TG_MAX_CONTEXT_BUCKETS]; /* tokens, ascending; 32, 128, 512 */
    int32_t n_context_buckets;
    int32_t speculation; /* K drafted tokens verified in a step; 0: no speculate plans */
    tg_weights_mode weights;
    tg_activations activations;
    bool has_kv_type;
    int32_t kv_type; /* tg_kv_type; without has_kv_type f32 for TG_WEIGHTS_F32, else q16 */
    bool is_watched; /* every layer computes all tokens, for who looks at them; not of the file */
} tg_export_config;

/* Reads {"batch": 1, "max_length": 4096, "context_buckets": [32, 128], "speculation": 0, "weights":
 * "auto", "activations": "int8", "kv": "q16"}; only keys present change *c. Unknown keys name the
 * nearest known. */
TG_MUST_USE tg_status tg_export_config_read(tg_export_config *c, const json_t *object,
                                            const char *name, tg_err *e);
/* Fills defaults and checks every rule (three-graph-decoder.md 1.3 as they apply here). */
TG_MUST_USE tg_status tg_export_config_check(tg_export_config *c, const tg_hparams *h, tg_err *e);
/* As JSON, canonical: the artifact's "config" and part of the cache key. The caller decrefs. */
json_t *tg_export_config_print(const tg_export_config *c);

typedef struct tg_compiled {
    tg_program program; /* arrays in `arena` */
    tg_arena arena;
} tg_compiled;

/* All passes. `dump` may be NULL; otherwise the graph after pass `dump_pass` ("build", "fuse",
 * "output-rows", "group", or "plan" for all plans) is appended to it; an unknown pass name is an
 * error that lists them. */
TG_MUST_USE tg_status tg_compile(tg_compiled *out, const tg_loaded_checkpoint *b,
                                 const tg_export_config *c, const char *dump_pass, tg_buf *dump,
                                 tg_err *e);
void tg_compiled_deinit(tg_compiled *c);

/* Which groups of 32 columns of the input of quantized matrix w, the program's weight `index`, take
 * two planes: writes them to `out` in ascending order, at most cols / 32 rounded up, and returns
 * how many. Weights that read one input must be told the same. */
typedef int32_t tg_choose_outliers_fn(void *context, const tg_weight_entry *w, int32_t index,
                                      int32_t *out);
/* Gives every quantized matrix its list, in place of what it had. The weight file stays as it
 * is. */
TG_MUST_USE tg_status tg_compiled_set_outliers(tg_compiled *c, tg_choose_outliers_fn *choose,
                                               void *context, tg_err *e);
/* The same by what a run of the model has shown (outlier_choice.c): squares[i] are the sums of
 * squared scales, one for each group of the input of weight i; NULL where a run shows none, as with
 * all but the first quantized weight that reads an input. `weights` is the packed file. */
TG_MUST_USE tg_status tg_compiled_choose_outliers(tg_compiled *c, const void *weights,
                                                  const double *const *squares, tg_err *e);

/* Called now and then with bytes done and in all; true ends the export with TG_E_CANCELLED. */
typedef bool tg_progress_fn(void *context, int64_t done, int64_t total);

/* Writes the packed weights of a compiled model, in the order of execution, with a thread for each
 * processor and constant memory. `progress` is called on the caller's thread. importance[i] is what
 * tg_pack_tile takes for weight i; the list, and any entry, may be NULL. */
TG_MUST_USE tg_status tg_pack_write(const tg_program *p, const tg_loaded_checkpoint *b,
                                    const float *const *importance, tg_file_writer *out,
                                    tg_progress_fn *progress, void *context, tg_err *e);

/* ---- packing, as kernels read it (also used by tests) */

/* The layout a tensor takes, and whether it can at all (TG_E_UNSUPPORTED names tensor and type). */
TG_MUST_USE tg_status tg_pack_choose_layout(tg_layout *out, const tg_tensor *t,
                                            tg_weights_mode mode, bool is_vector, tg_err *e);
/* Packs rows [16 tile, 16 tile + 16) of a matrix into dst (tg_layout_tile_bytes). Rows are read in
 * the order. Values are kept exactly where the layout can hold
 * them; float tensors are rounded or quantized as the layout says, where 4 and 5 bits weigh a
 * column's errors by importance[cols rounded up to 32], all above 0 (NULL: all alike). */
TG_MUST_USE tg_status tg_pack_tile(tg_layout l, const tg_tensor *t, const tg_row_order *order,
                                   int64_t tile, const float *importance, uint8_t *dst, tg_err *e);
/* dst[0..n) = a norm or bias of n numbers, read in the order; exact but for the addition of 1. */
void tg_pack_vector(const tg_tensor *t, const tg_row_order *order, float *dst);

#endif
