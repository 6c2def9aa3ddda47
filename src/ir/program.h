/* SPDX-License-Identifier: Apache-2.0
 * program.h - what a compiler hands to a device: plans over one table of packed weights.
 *
 * A program is everything of one rank but the weights' bytes: the model's numbers that a run needs,
 * where every weight lies, the KV groups, and a plan for each (kind, bucket). It is one relocatable
 * block: a header, then arrays found by offset, little-endian, no pointers. Writing the same
 * program gives the same bytes. tg_program_open checks every offset, index and shape once, so that
 * a device may trust it afterwards, whatever the file said.
 *
 * A plan is a list of instructions over values at fixed offsets of a step arena. Instructions lie
 * in segments; a segment runs once per layer of its list, its weights taken from that layer. Sizes
 * are bounds: a step brings its true counts, and results never depend on the bucket. */
#ifndef TG_IR_PROGRAM_H
#define TG_IR_PROGRAM_H

#include "base/str.h"
#include "format/kv_type.h"
#include "format/layout.h"
#include "ir/graph.h"

enum {
    TG_PROGRAM_VERSION = 5,
    TG_MAX_KV_GROUPS = 8,
    TG_MAX_SPECULATION = 15,
    TG_MAX_BATCH = 256,
    TG_MAX_LENGTH = 1 << 24, /* positions of a row */
    TG_MAX_PLANS = 64,
    TG_MAX_INSTRS = 1024 /* of a plan; its values likewise */
};

/* The three graphs. */
typedef enum tg_graph_kind {
    TG_KIND_CONTEXT,   /* prompt tokens of any rows, from any start position */
    TG_KIND_TOKEN,     /* one token a row */
    TG_KIND_SPECULATE, /* the last token and K drafts a row */
    TG_KIND_COUNT
} tg_graph_kind;

const char *tg_kind_name(tg_graph_kind k); /* "context", "token", "speculate" */

/* Bounds of one plan. */
typedef struct tg_bucket {
    int32_t rows;   /* sequences in a step */
    int32_t tokens; /* tokens of all rows together */
    int32_t outs;   /* output rows: tokens whose logits are computed */
    int32_t pages;  /* pages of one row, in each KV group */
} tg_bucket;

/* Where a weight lies: tile i of 16 rows at offset + i * tile_stride of the rank's weight file.
 * Vectors (norms, biases) and rope tables are plain float32 arrays: layout TG_LAYOUT_F32 with
 * is_plain.
 *
 * A quantized matrix multiplies integers: its input in groups of 32 columns, each of one plane of
 * int8, or of two where it is an outlier group. An ascending list in the program's table names the
 * outlier groups; the matrices that read one input have one list. */
typedef struct tg_weight_entry {
    int32_t role, layer; /* layer 0 for roles outside layers */
    int32_t layout;      /* tg_layout */
    int32_t is_plain;    /* 1: float32 [rows][cols], row-major, no tiles */
    int64_t rows, cols;
    int64_t offset; /* 64-byte aligned */
    int64_t tile_stride;
    int32_t first_outlier, n_outliers; /* into the program's `outliers`; 0, 0 for floats */
} tg_weight_entry;

/* Layers with equal window and head shape share pools and block tables.
 *
 * A page holds 64 positions of every layer of its group:
 *
 *     [layer of the group][kv head][K: head_dim x 64 positions][V: 64 positions x head_dim]
 *
 * of kv_type, as format/kv_type.h draws them: 64 positions of a dimension take 256 bytes
 * (f32), 128 (f16, bf16, q16) or 68 (q8: 64 codes and 4 bytes of scales), and q16 has 256 bytes of
 * scales for each 64 dimensions begun. The group's layers are numbered in the model's order
 * (tg_layer.kv_index). */
typedef struct tg_kv_group {
    int32_t n_layers, n_kv_heads, head_dim;
    int32_t window;     /* 0: all positions stay */
    int64_t page_bytes; /* tg_kv_page_bytes */
} tg_kv_group;

const char *tg_kv_type_name(int32_t kv_type); /* "f32", "f16", "bf16", "q8", "q16" */
int32_t tg_kv_type_dims(int32_t kv_type);     /* head_dim must be a multiple of it */
/* n_layers * n_kv_heads * 2 (K and V) * bytes of 64 positions of a head; -1 when that does not fit,
 * or the type cannot hold such heads. */
int64_t tg_kv_page_bytes(const tg_kv_group *g, int32_t kv_type);

typedef struct tg_layer {
    int32_t kv_group,
        kv_index; /* which group, and the layer's place in its pages; TG_NONE: no KV */
} tg_layer;

/* Rows are dense: row i of a value is at offset + i * width * 4. The logits' width is n_vocab:
 * surplus rows of the head are not computed; their stride is tg_io's.
 *
 * A value with an alias has its kind and its memory, and is written by an instruction in place
 * (op.h); MATMUL_ADD and NORM_ADD always write in place. Otherwise results never overlap inputs.
 * The residual stream is one value of the head; a layer's result is aliased to it, so that the next
 * layer, or the tail, reads it where the layer before left it. */
typedef struct tg_plan_value {
    int32_t type; /* tg_value_type */
    int32_t dim;  /* tg_dim */
    int32_t width;
    int32_t alias;  /* value whose memory this one is and that has no alias itself, or TG_NONE */
    int64_t offset; /* into the step arena, 64-aligned; TG_IO_* below for step inputs and outputs */
} tg_plan_value;

/* Values that live in the step's input and output buffers instead of the arena. */
enum { TG_IO_TOKENS = -1, TG_IO_LOGITS = -2, TG_IO_IDS = -3 };

/* A node of the graph, its values those of the plan. The memory of a value is used again as soon as
 * its last reader is done: an instruction ends everywhere before the next begins, unless a device
 * has made sure that the two share no memory. */
typedef struct tg_instr {
    int32_t op;
    int32_t out;
    int32_t in[TG_MAX_INPUTS];
    int32_t weights[TG_MAX_WEIGHTS]; /* roles */
    tg_attrs attrs;
} tg_instr;

/* Instructions that run once for each layer of a list; several segments may share instructions. */
typedef struct tg_segment {
    int32_t first_instr, n_instrs;
    int32_t first_layer, n_layers; /* into the plan's layer list; n_layers 0: runs once, layer 0 */
} tg_segment;

typedef struct tg_plan {
    int32_t kind; /* tg_graph_kind */
    tg_bucket bucket;
    int32_t n_values, n_instrs, n_segments, n_layer_refs;
    int64_t arena_bytes;
    /* Borrowed arrays: of the mapped block once opened, of the compiler's arena before. */
    const tg_plan_value *values;
    const tg_instr *instrs;
    const tg_segment *segments;
    const int32_t *layer_refs;
} tg_plan;

/* Precision of the inputs of quantized matrices: in int8 some groups are outlier groups, in int16
 * all are. */
typedef enum tg_activations { TG_ACTIVATIONS_INT8, TG_ACTIVATIONS_INT16 } tg_activations;

typedef struct tg_program {
    int32_t n_vocab;      /* ids the model may produce: logits beyond are never sampled */
    int32_t n_embed_rows; /* ids the embedding has: larger ones are an error */
    int32_t width;        /* D */
    int32_t max_length;   /* positions of a row */
    /* Rope tables have original_length rows for texts of at most that many tokens, then max_length
     * rows for longer texts. 0: max_length rows, for texts of any length. */
    int32_t original_length;
    int32_t batch;       /* rows */
    int32_t speculation; /* K; 0: no speculate plans */
    int32_t activations; /* tg_activations */
    int32_t kv_type;     /* tg_kv_type */
    int32_t n_layers, n_weights, n_kv_groups, n_plans;
    int32_t n_outliers;    /* entries of `outliers` */
    int32_t n_unused;      /* entries of `unused` */
    int64_t weights_bytes; /* size of the weight file */
    tg_kv_group kv_groups[TG_MAX_KV_GROUPS];
    const tg_layer *layers;         /* [n_layers] */
    const int32_t *outliers;        /* [n_outliers] lists of outlier groups, equal ones once */
    const int32_t *unused;          /* [n_unused] ids below n_vocab, ascending, never sampled */
    const tg_weight_entry *weights; /* [n_weights], sorted by (role, layer) */
    const tg_plan *plans;           /* [n_plans], by kind, then by size */
} tg_program;

/* Appends the block. */
TG_MUST_USE tg_status tg_program_print_block(const tg_program *p, tg_buf *out, tg_err *e);

/* Reads a block of n bytes that stays mapped and 64-byte aligned: arrays are borrowed from it. The
 * small table of plans is taken from `arena`. Everything is checked. */
TG_MUST_USE tg_status tg_program_open(tg_program *out, tg_arena *arena, const void *block, size_t n,
                                      tg_err *e);

/* Checks the contents, after opening and after compiling: see verify.c. */
TG_MUST_USE tg_status tg_program_check(const tg_program *p, tg_err *e);

/* Rows of a value in a full bucket, and its bytes. */
int32_t tg_plan_n_rows(const tg_plan *plan, const tg_plan_value *v);
int64_t tg_plan_value_bytes(const tg_plan *plan, const tg_plan_value *v);

/* Whether a text of that many tokens uses the rope tables' second part. */
bool tg_program_is_long(const tg_program *p, int32_t n_tokens);

/* NULL when absent. */
const tg_weight_entry *tg_program_find_weight(const tg_program *p, tg_weight_role role,
                                              int32_t layer);
/* The first quantized matrix among the weights of an instruction for a layer, NULL when there is
 * none: all its matrices read one input, which is quantized by this one's list. */
const tg_weight_entry *tg_program_find_quantized(const tg_program *p, const tg_instr *x,
                                                 int32_t layer);
/* Bytes of a tile that are read: what tile_stride is at least. */
int64_t tg_weight_tile_bytes(const tg_weight_entry *w);
/* The smallest plan of a kind that holds the counts, or NULL. */
const tg_plan *tg_program_find_plan(const tg_program *p, tg_graph_kind kind, int32_t rows,
                                    int32_t tokens, int32_t outs, int32_t pages);
/* The largest token count of a kind's buckets, 0 when it has none. */
int32_t tg_program_max_tokens(const tg_program *p, tg_graph_kind kind);

/* Readable text: the memory plan (for --dry-run and inspect), and one plan. */
void tg_program_print(const tg_program *p, tg_buf *out);
void tg_plan_print(const tg_program *p, const tg_plan *plan, tg_buf *out);

#endif
