/* SPDX-License-Identifier: Apache-2.0
 * graph.h - the model graph, and the builder that model files use.
 *
 * A graph is a head (before the layers), distinct layer bodies, the order in which layers call
 * bodies, and a tail. A body is stored once: when a layer ends, its nodes are compared with the
 * bodies so far, and an equal one is called again with the layer's own weights. A body has one
 * input and one output, the residual stream; that of the last layer may give its output rows, which
 * the tail then takes. Models write one sequence: no batch, no buckets, no
 * ranks.
 *
 * Values are 2-D: [tokens or output rows, width]. The number of tokens is symbolic here (TG_DIM_T,
 * TG_DIM_R) and becomes a number when a plan is specialized.
 *
 * The builder is sticky: the first mistake is kept, dummies are handed out, and tg_build_finish
 * reports; so a model file contains no error handling. */
#ifndef TG_IR_GRAPH_H
#define TG_IR_GRAPH_H

#include "base/mem.h"
#include "ir/op.h"

/* Which rows the first dimension of a value counts: tokens or output rows. */
typedef enum tg_dim { TG_DIM_T, TG_DIM_R } tg_dim;

typedef enum tg_value_type { TG_TYPE_F32, TG_TYPE_I32 } tg_value_type;

typedef struct tg_value {
    int32_t id; /* index into the graph's values; TG_NONE: no value */
} tg_value;

typedef struct tg_value_info {
    tg_value_type type;
    tg_dim dim;
    int32_t width;
} tg_value_info;

typedef struct tg_node {
    tg_op op;
    int32_t out;                     /* value; TG_NONE for kv_write */
    int32_t in[TG_MAX_INPUTS];       /* values; TG_NONE when unused */
    int32_t weights[TG_MAX_WEIGHTS]; /* roles by slot; TG_NONE when absent */
    tg_attrs attrs;
} tg_node;

/* A node that reads two values, or fewer (TG_NONE), without weights and without a result yet; its
 * KV group is unset until layers are grouped. */
tg_node tg_node_of(tg_op op, int32_t in0, int32_t in1);

/* A straight list of nodes. Its input is value `in` (the tokens for the head, the residual stream
 * for the others), its result value `out` (the sampled ids for the tail). */
typedef struct tg_graph_block {
    tg_node *nodes; /* grows; arena of the graph */
    int32_t n_nodes, room;
    int32_t in, out;
} tg_graph_block;

/* The shape of a weight, by role and layer. */
typedef struct tg_weight_shape {
    bool is_present;
    int64_t rows, cols; /* a vector is [n, 1] */
} tg_weight_shape;

enum { TG_MAX_BODIES = 16, TG_MAX_LAYERS = 1024 };

typedef struct tg_graph {
    tg_arena arena;
    tg_value_info *values;
    int32_t n_values, values_room;
    tg_graph_block head, tail;
    tg_graph_block bodies[TG_MAX_BODIES];
    int32_t n_bodies;
    int32_t n_layers;
    int32_t *layer_body;           /* [n_layers] */
    const tg_weight_shape *shapes; /* [TG_W_COUNT][n_layers], a copy */
} tg_graph;

/* Column 0 for roles outside layers. */
const tg_weight_shape *tg_graph_find_shape(const tg_graph *g, tg_weight_role role, int32_t layer);

/* The block's number for loops over all of them: 0 head, 1 .. n_bodies bodies, n_bodies + 1 tail.
 * */
int32_t tg_graph_n_blocks(const tg_graph *g);
tg_graph_block *tg_graph_get_block(tg_graph *g, int32_t i);

/* For passes: a value of that kind; new nodes for a block. TG_NONE, false: no memory. */
int32_t tg_graph_add_value(tg_graph *g, tg_value_info info);
bool tg_graph_set_nodes(tg_graph *g, tg_graph_block *b, const tg_node *nodes, int32_t n_nodes);

void tg_graph_free(tg_graph *g); /* accepts NULL */

/* Appends the readable form: one line a node, "x4 [T, 576] = matmul x3 (w=q, norm=attn_norm)
 * eps=1e-05". Values are numbered within their block, x0 is its input. */
void tg_graph_print(const tg_graph *g, tg_buf *out);

/* TG_E_CORRUPT if an invariant is broken: used after every pass; names the node. */
TG_MUST_USE tg_status tg_graph_check(const tg_graph *g, tg_err *e);

/* ---- the builder */
typedef struct tg_build tg_build;

/* `shapes` is [TG_W_COUNT][n_layers]; roles outside layers use column 0. */
TG_MUST_USE tg_status tg_build_new(tg_build **out, const tg_weight_shape *shapes, int32_t n_layers,
                                   tg_err *e);
/* Hands over the graph (the caller frees it) or the first mistake; the builder is gone either way.
 * */
TG_MUST_USE tg_status tg_build_finish(tg_build *b, tg_graph **out, tg_err *e);
void tg_build_fail(tg_build *b, const char *what); /* keeps the first */

/* ---- building. `w` arguments are roles. An absent bias or head norm drops out (the architecture's
 * table says which may be absent); any other absent weight is a mistake. */
tg_value tg_build_tokens(tg_build *b); /* [T] int32, the step's tokens */
tg_value tg_build_embed(tg_build *b, tg_weight_role w, tg_value tokens, float scale);

/* Brackets layer l (0, 1, ... in order): takes the residual stream, gives it to the body and takes
 * it back. */
tg_value tg_build_layer_begin(tg_build *b, int32_t layer, tg_value x);
tg_value tg_build_layer_end(tg_build *b, tg_value x);

tg_value tg_build_rms_norm(tg_build *b, tg_value x, tg_weight_role w, float eps);
/* bias: a role, or TG_W_COUNT for none. */
tg_value tg_build_layer_norm(tg_build *b, tg_value x, tg_weight_role w, tg_weight_role bias,
                             float eps);
/* x times a number; x unchanged when that is 1. */
tg_value tg_build_scale(tg_build *b, tg_value x, float scale);
/* Each head of head_dim numbers alone, or the whole width at once (0); x unchanged when the weight
 * is absent. */
tg_value tg_build_head_norm(tg_build *b, tg_value x, tg_weight_role w, int32_t head_dim, float eps);
/* bias: a role, or TG_W_COUNT for none. */
tg_value tg_build_matmul(tg_build *b, tg_value x, tg_weight_role w, tg_weight_role bias);
tg_value tg_build_rope(tg_build *b, tg_value x, tg_weight_role table, int32_t head_dim,
                       int32_t rotary_dim);
void tg_build_kv_write(tg_build *b, tg_value k, tg_value v, int32_t n_kv_heads, int32_t head_dim);

typedef struct tg_attention {
    int32_t n_heads, n_kv_heads, head_dim;
    float scale;
    float softcap;  /* of the scores; 0: none */
    int32_t window; /* 0: all */
} tg_attention;

tg_value tg_build_attention(tg_build *b, tg_value q, const tg_attention *a);
tg_value tg_build_glu(tg_build *b, tg_value gate, tg_value up, int32_t act);
tg_value tg_build_add(tg_build *b, tg_value residual, tg_value y);
/* The output rows, their logits by `head` times `scale`, capped after that (0: not), and the
 * sampler: ends the graph. */
void tg_build_output(tg_build *b, tg_value x, tg_weight_role head, float scale, float softcap);

#endif
