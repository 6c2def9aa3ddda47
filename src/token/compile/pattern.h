/* SPDX-License-Identifier: Apache-2.0
 * pattern.h - the tree of a regular expression.
 *
 * Sets, sequences, alternatives, repetitions and a look at the next character: all that real
 * pre-tokenizers use. Whether PCRE2 knows a set is found out when it is asked for its members. */
#ifndef TG_TOKEN_PATTERN_H
#define TG_TOKEN_PATTERN_H

#include "base/str.h"

/* Beyond these a pattern is no pre-tokenizer's. */
enum { TG_PATTERN_MAX_NODES = 1024, TG_PATTERN_MAX_SETS = 64 };

typedef enum tg_pattern_kind {
    TG_PATTERN_SET,    /* one character of a set */
    TG_PATTERN_AHEAD,  /* nothing, if the next character is in the set; the end is in none */
    TG_PATTERN_NOT,    /* nothing, if it is not */
    TG_PATTERN_CAT,    /* children one after the other */
    TG_PATTERN_CHOICE, /* children in the order of preference */
    TG_PATTERN_REPEAT  /* the child `least` to `most` times */
} tg_pattern_kind;

enum { TG_PATTERN_UNBOUNDED = -1 };

typedef struct tg_pattern_node {
    tg_pattern_kind kind;
    int32_t set;
    int32_t child, next; /* the first child; the next of the same parent; -1: none */
    int32_t least, most;
    bool is_lazy;
    bool may_be_empty;
} tg_pattern_node;

typedef struct tg_pattern_set {
    tg_str atom; /* as the pattern writes it */
    char flags[4];
} tg_pattern_set;

typedef struct tg_pattern {
    tg_str in;
    size_t i;
    bool has_i, has_s; /* (?i), (?s): in force at `i` */
    int depth;
    tg_pattern_node nodes[TG_PATTERN_MAX_NODES];
    int32_t n_nodes;
    tg_pattern_set sets[TG_PATTERN_MAX_SETS];
    int32_t n_sets;
} tg_pattern;

/* Reads `text`, borrowed, into *p, which is zero before. The root's number; negative for a pattern
 * of another kind or beyond the limits. */
int32_t tg_pattern_read(tg_pattern *p, tg_str text);

#endif
