/* SPDX-License-Identifier: Apache-2.0
 * pass.h - the steps between a model's graph and a program, one file each, in the order they run.
 *
 * Graph passes change the graph in place and leave one that tg_graph_check accepts. Whatever a
 * program keeps is taken from the arena that is handed in, which is the program's. */
#ifndef TG_COMPILE_PASS_H
#define TG_COMPILE_PASS_H

#include "ir/program.h"

/* fuse.c: replaces groups of operations by what a device does in one go. Fusing is never needed:
 * what matches no row of the table stays as it is. */
TG_MUST_USE tg_status tg_graph_fuse(tg_graph *g, tg_err *e);

/* output_rows.c: what the last layer does behind its attention, row by row, is done for the output
 * rows alone: it gets a body of its own, whose result counts them, and the tail takes that. Graphs
 * whose last layer or tail have another form stay as they are. */
TG_MUST_USE tg_status tg_graph_pick_output_rows(tg_graph *g, tg_err *e);

/* group.c: layers with equal window and head shape form a KV group. Sets attr.kv_group in the
 * graph, and kv_groups, layers and n_layers of *p, whose kv_type is set. */
TG_MUST_USE tg_status tg_graph_group(tg_graph *g, tg_program *p, tg_arena *arena, tg_err *e);

/* specialize.c: the graph for one kind and bucket, as instructions over values that have no place
 * yet. *values are the plan's, for the memory plan to write to. */
TG_MUST_USE tg_status tg_graph_specialize(const tg_graph *g, const tg_program *p,
                                          tg_graph_kind kind, tg_bucket bucket, tg_arena *arena,
                                          tg_plan *out, tg_plan_value **values, tg_err *e);

/* memplan.c: gives every value a place in the step arena, and the arena its size. */
TG_MUST_USE tg_status tg_plan_place(tg_plan *plan, tg_plan_value *values, tg_err *e);
/* The largest sum of bytes that are live at one instruction: no plan can need less. */
int64_t tg_plan_live_bytes(const tg_plan *plan);

/* weight_table.c: the weight table, in the file's order of execution. `choose` says the layout of a
 * matrix, or that a vector can be had as float32; it is not asked about rope tables, which are
 * computed. */
typedef tg_status tg_choose_layout_fn(void *context, tg_weight_role role, int32_t layer,
                                      bool is_plain, tg_layout *out, tg_err *e);
TG_MUST_USE tg_status tg_graph_place_weights(const tg_graph *g, tg_program *p, tg_arena *arena,
                                             tg_choose_layout_fn *choose, void *context, tg_err *e);

/* specialize.c and memplan.c: all plans of a fused and grouped graph, by kind and bucket. The
 * numbers of *p (batch, max_length, speculation) are set. */
TG_MUST_USE tg_status tg_graph_plan(const tg_graph *g, tg_program *p, const int32_t *buckets,
                                    int32_t n_buckets, tg_arena *arena, tg_err *e);

#endif
