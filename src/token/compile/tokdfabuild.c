/* SPDX-License-Identifier: Apache-2.0
 * tokdfabuild.c - from a pattern to the automaton's tables.
 *
 * Four steps. The pattern is read into a tree (pattern.h). PCRE2 says which characters each set
 * holds; characters that no set tells apart are one class. The tree becomes a program of few kinds
 * of instructions, as for an engine that keeps a list of places. Each list that can occur, with the
 * class read next, is a row of the table.
 *
 * "Preferred" is the order in which a backtracking engine tries: a list keeps its places in that
 * order, and since the same place later in the list can only repeat what the first one does, it is
 * dropped. */
#include "token/compile/tokdfabuild.h"

#include "base/mem.h"
#include "token/compile/pattern.h"
#include "token/run/tok.h"
#include "token/run/tokregex.h"

#include <string.h>

/* Beyond these a pattern is no pre-tokenizer's. */
enum {
    MAX_CLASSES = 250,
    MAX_INSTRUCTIONS = 2000,
    MAX_STATES = 2048,
    N_CODE_POINTS = 0x110000,
    SURROGATES = 0xd800,
    N_SURROGATES = 0x800
};

enum { NONE = -1 };

typedef enum operation { OP_SET, OP_AHEAD, OP_NOT, OP_SPLIT, OP_MATCH } operation;

/* OP_SPLIT goes on at x, and if that leads nowhere at y; the others at x. */
typedef struct instruction {
    operation op;
    int32_t set, x, y;
} instruction;

typedef struct builder {
    tg_pattern pattern;
    bool members[TG_PATTERN_MAX_SETS][MAX_CLASSES + 1]; /* the classes of a set */
    tg_spans changes;  /* (code point, class): the class from there on */
    int32_t n_classes; /* of characters; the end's class is this number */
    instruction code[MAX_INSTRUCTIONS];
    int32_t n_code;
    int32_t *places; /* of all states, one list behind the other */
    int32_t n_places, size_places;
    int32_t begin_of[MAX_STATES + 1]; /* of a state's list in `places` */
    int32_t n_states;
    uint16_t *next; /* [n_states][n_classes + 1] states; then cells */
    tg_err *e;
} builder;

/* ---- characters of a set, by PCRE2 */

/* All code points in order, which but for the surrogates is UTF-8. */
static tg_status print_code_points(tg_buf *out, tg_err *e)
{
    static const char zeros[256];
    for (int i = 0; i < 4 * N_CODE_POINTS / 256; i++)
        tg_buf_add(out, zeros, sizeof zeros);
    TG_TRY(tg_buf_check(out, e));
    char *p = out->ptr;
    for (int32_t cp = 0; cp < N_CODE_POINTS; cp++)
        p += tg_utf8_encode(cp, p); /* nothing for a surrogate */
    out->len = (size_t)(p - out->ptr);
    return TG_OK;
}

/* The code point whose bytes begin there. */
static int32_t code_point_at(size_t at)
{
    size_t n = 0x80 + 0x780 * 2 + (0x10000 - 0x800 - N_SURROGATES) * 3;
    if (at >= n) return (int32_t)((at - n) / 4) + 0x10000;
    if (at < 0x80) return (int32_t)at;
    if (at < 0x80 + 0x780 * 2) return (int32_t)((at - 0x80) / 2) + 0x80;
    int32_t cp = (int32_t)((at - 0x80 - 0x780 * 2) / 3) + 0x800;
    return cp < SURROGATES ? cp : cp + N_SURROGATES;
}

/* Appends the runs of code points that the set holds. */
static tg_status ask_set(const builder *b, tg_str all, int32_t set, tg_spans *runs)
{
    tg_buf pattern = {0};
    tg_regex *regex = NULL;
    tg_regex_scratch scratch = {0};
    const tg_pattern_set *name = &b->pattern.sets[set];
    /* Not a group: a repeated group would keep every turn on a stack. */
    if (name->flags[0]) tg_buf_printf(&pattern, "(?%s)", name->flags);
    tg_buf_printf(&pattern, "%.*s++", (int)name->atom.len, name->atom.ptr);
    tg_status s = tg_buf_check(&pattern, b->e);
    if (s == TG_OK) s = tg_regex_new_translated(&regex, tg_buf_str(&pattern), b->e);
    for (size_t from = 0, begin, end; s == TG_OK; from = end) {
        s = tg_regex_find(regex, &scratch, all, from, &begin, &end, b->e);
        if (s != TG_OK || begin == SIZE_MAX) break;
        tg_spans_push(runs, code_point_at(begin),
                      end < all.len ? code_point_at(end) : N_CODE_POINTS);
    }
    tg_regex_scratch_deinit(&scratch);
    tg_regex_free(regex);
    tg_buf_deinit(&pattern);
    return s;
}

/* Splits every class into characters inside the set and outside. Where classes change is a list of
 * (code point, class), since an array of all code points would be walked once for each set. False
 * when there are too many classes. */
static bool split_classes(builder *b, int32_t set, const tg_spans *runs)
{
    int32_t split[2][MAX_CLASSES]; /* outside, inside */
    bool was_member[TG_PATTERN_MAX_SETS][MAX_CLASSES + 1];
    tg_spans old = b->changes;
    memset(split, -1, sizeof split);
    memcpy(was_member, b->members, sizeof was_member);
    b->changes = (tg_spans){0};
    b->n_classes = 0;
    size_t r = 0;
    for (size_t k = 0; k < old.len; k++) {
        int32_t last = k + 1 < old.len ? old.ptr[k + 1].begin : N_CODE_POINTS;
        int32_t was = old.ptr[k].end;
        for (int32_t p = old.ptr[k].begin, q; p < last; p = q) {
            while (r < runs->len && runs->ptr[r].end <= p)
                r++;
            bool is_in = r < runs->len && runs->ptr[r].begin <= p;
            q = r == runs->len ? last : TG_MIN(last, is_in ? runs->ptr[r].end : runs->ptr[r].begin);
            int32_t *now = &split[is_in][was];
            if (*now < 0) {
                if (b->n_classes == MAX_CLASSES) {
                    tg_spans_deinit(&old);
                    return false;
                }
                *now = b->n_classes++;
                for (int32_t i = 0; i < set; i++)
                    b->members[i][*now] = was_member[i][was];
                b->members[set][*now] = is_in;
            }
            tg_spans_push(&b->changes, p, *now);
        }
    }
    tg_spans_deinit(&old);
    return true;
}

/* *is_built becomes false where there are too many classes. A set that PCRE2 refuses is refused
 * again, with the whole pattern in the message, where the pattern itself is compiled. */
static tg_status make_classes(builder *b, bool *is_built)
{
    tg_buf all = {0};
    tg_spans runs = {0};
    b->n_classes = 1;
    tg_spans_push(&b->changes, 0, 0);
    tg_status s = print_code_points(&all, b->e);
    for (int32_t i = 0; i < b->pattern.n_sets && s == TG_OK && *is_built; i++) {
        tg_spans_clear(&runs);
        s = ask_set(b, tg_buf_str(&all), i, &runs);
        if (s == TG_E_UNSUPPORTED) {
            s = TG_OK;
            *is_built = false;
        } else if (s == TG_OK) {
            *is_built = split_classes(b, i, &runs);
        }
        if (runs.is_failed || b->changes.is_failed)
            s = tg_fail_nomem(b->e, N_CODE_POINTS, "the characters of a pattern");
    }
    tg_spans_deinit(&runs);
    tg_buf_deinit(&all);
    return s;
}

/* ---- the program */

/* False when it is too long. Instructions go on at the next one unless told otherwise. */
static bool add_code(builder *b, instruction x)
{
    if (b->n_code == MAX_INSTRUCTIONS) return false;
    b->code[b->n_code++] = x;
    return true;
}

static bool emit(builder *b, int32_t k);

/* The child, zero times or once; or, as a loop, any number of times. */
static bool emit_optional(builder *b, const tg_pattern_node *r, bool is_loop)
{
    int32_t split = b->n_code;
    if (!add_code(b, (instruction){.op = OP_SPLIT}) || !emit(b, r->child)) return false;
    if (is_loop && !add_code(b, (instruction){.op = OP_SPLIT, .x = split, .y = split}))
        return false;
    b->code[split].x = r->is_lazy ? b->n_code : split + 1;
    b->code[split].y = r->is_lazy ? split + 1 : b->n_code;
    return true;
}

static bool emit_repeat(builder *b, const tg_pattern_node *r)
{
    for (int32_t i = 0; i < r->least; i++)
        if (!emit(b, r->child)) return false;
    if (r->most == TG_PATTERN_UNBOUNDED) return emit_optional(b, r, true);
    /* x{0,2} is (x(x)?)?: each split goes to the end of all. */
    int32_t last = NONE;
    for (int32_t i = r->least; i < r->most; i++) {
        instruction split = {.op = OP_SPLIT, .x = last}; /* until the end is known */
        last = b->n_code;
        if (!add_code(b, split) || !emit(b, r->child)) return false;
    }
    for (int32_t k = last, before; k >= 0; k = before) {
        before = b->code[k].x;
        b->code[k].x = r->is_lazy ? b->n_code : k + 1;
        b->code[k].y = r->is_lazy ? k + 1 : b->n_code;
    }
    return true;
}

static bool emit_choice(builder *b, const tg_pattern_node *c)
{
    int32_t last = NONE; /* of the jumps to the end */
    for (int32_t k = c->child; k >= 0; k = b->pattern.nodes[k].next) {
        bool is_last = b->pattern.nodes[k].next < 0;
        int32_t split = b->n_code;
        if (!is_last && !add_code(b, (instruction){.op = OP_SPLIT, .x = split + 1})) return false;
        if (!emit(b, k)) return false;
        if (is_last) break;
        instruction jump = {.op = OP_SPLIT, .x = last};
        last = b->n_code;
        if (!add_code(b, jump)) return false;
        b->code[split].y = b->n_code;
    }
    for (int32_t k = last, before; k >= 0; k = before) {
        before = b->code[k].x;
        b->code[k].x = b->code[k].y = b->n_code;
    }
    return true;
}

static bool emit(builder *b, int32_t k)
{
    const tg_pattern_node *n = &b->pattern.nodes[k];
    instruction x = {.set = n->set, .x = b->n_code + 1};
    switch (n->kind) {
    case TG_PATTERN_SET: x.op = OP_SET; return add_code(b, x);
    case TG_PATTERN_AHEAD: x.op = OP_AHEAD; return add_code(b, x);
    case TG_PATTERN_NOT: x.op = OP_NOT; return add_code(b, x);
    case TG_PATTERN_CAT:
        for (int32_t c = n->child; c >= 0; c = b->pattern.nodes[c].next)
            if (!emit(b, c)) return false;
        return true;
    case TG_PATTERN_CHOICE: return emit_choice(b, n);
    case TG_PATTERN_REPEAT: return emit_repeat(b, n);
    }
    return false;
}

/* ---- the automaton */

/* Follows the list of a state, given the class of what comes next, to the places that read it;
 * true when a match is met, behind which nothing is preferred. */
typedef struct walk {
    int32_t leaves[MAX_INSTRUCTIONS], n_leaves;
    int32_t stack[MAX_INSTRUCTIONS * 2];
    bool is_visited[MAX_INSTRUCTIONS];
} walk;

static bool follow(const builder *b, walk *w, int32_t state, int32_t class)
{
    memset(w->is_visited, 0, sizeof w->is_visited);
    w->n_leaves = 0;
    for (int32_t i = b->begin_of[state]; i < b->begin_of[state + 1]; i++) {
        int32_t n = 0;
        w->stack[n++] = b->places[i];
        while (n > 0) {
            int32_t at = w->stack[--n];
            if (w->is_visited[at]) continue;
            w->is_visited[at] = true;
            const instruction *x = &b->code[at];
            bool is_in = (x->op == OP_SET || x->op == OP_AHEAD || x->op == OP_NOT) &&
                         class < b->n_classes && b->members[x->set][class];
            switch (x->op) {
            case OP_MATCH: return true;
            case OP_SET:
                if (is_in) w->leaves[w->n_leaves++] = x->x;
                break;
            case OP_AHEAD:
                if (is_in) w->stack[n++] = x->x;
                break;
            case OP_NOT:
                if (!is_in) w->stack[n++] = x->x;
                break;
            case OP_SPLIT:
                w->stack[n++] = x->y;
                w->stack[n++] = x->x;
                break;
            }
        }
    }
    return false;
}

/* The state of a list, made if it is new; NONE when there are too many. Duplicates are dropped. */
static int32_t find_state(builder *b, const int32_t *places, int32_t n_places)
{
    bool is_visited[MAX_INSTRUCTIONS] = {false};
    int32_t begin = b->n_places, n;
    if (begin + n_places > b->size_places) return NONE;
    for (int32_t i = 0; i < n_places; i++) {
        if (is_visited[places[i]]) continue;
        is_visited[places[i]] = true;
        b->places[b->n_places++] = places[i];
    }
    n = b->n_places - begin;
    for (int32_t s = 0; s < b->n_states; s++)
        if (b->begin_of[s + 1] - b->begin_of[s] == n &&
            memcmp(b->places + b->begin_of[s], b->places + begin, (size_t)n * sizeof *places) ==
                0) {
            b->n_places = begin;
            return s;
        }
    if (b->n_states == MAX_STATES || (b->n_states + 1) * (b->n_classes + 1) > TG_DFA_MATCH)
        return NONE;
    b->begin_of[++b->n_states] = b->n_places;
    return b->n_states - 1;
}

/* State 0 has no place and ends everything, state 1 is the beginning of the pattern. */
static tg_status make_states(builder *b, bool *is_built)
{
    walk *w = TG_NEW(walk);
    int32_t n = b->n_classes + 1, start = 0;
    b->size_places = MAX_STATES * 64;
    b->places = TG_NEW_ARRAY(int32_t, b->size_places);
    b->next = TG_NEW_ARRAY(uint16_t, TG_DFA_MATCH);
    bool has_memory = w && b->places && b->next;
    *is_built = has_memory && find_state(b, NULL, 0) == 0 && find_state(b, &start, 1) == 1;
    for (int32_t s = 1; s < b->n_states && *is_built; s++)
        for (int32_t class = 0; class < n && *is_built; class ++) {
            bool is_match = follow(b, w, s, class);
            int32_t to = class < b->n_classes ? find_state(b, w->leaves, w->n_leaves) : 0;
            *is_built = to >= 0;
            b->next[s * n + class] = (uint16_t)(to * n | (is_match ? TG_DFA_MATCH : 0));
        }
    tg_mem_free(w);
    return has_memory ? TG_OK : tg_fail_nomem(b->e, sizeof *w, "a pattern's states");
}

/* ---- the image */

/* The classes of 256 code points; *k is the change in force, which only grows. */
static void fill_page(const builder *b, int32_t first, size_t *k, char page[256])
{
    for (int32_t i = 0, n; i < 256; i += n) {
        while (*k + 1 < b->changes.len && b->changes.ptr[*k + 1].begin <= first + i)
            (*k)++;
        int32_t end = *k + 1 < b->changes.len ? b->changes.ptr[*k + 1].begin : N_CODE_POINTS;
        n = TG_MIN(end - first, 256) - i;
        memset(page + i, b->changes.ptr[*k].end, (size_t)n);
    }
}

/* Pages of 256 classes, equal ones once. */
static tg_status add_image(const builder *b, tg_buf *out)
{
    uint16_t page_of[TG_DFA_N_PAGES_OF];
    tg_buf pages = {0};
    uint32_t n_pages = 0;
    size_t k_change = 0;
    for (uint32_t i = 0; i < TG_DFA_N_PAGES_OF; i++) {
        char page[256];
        fill_page(b, (int32_t)i * 256, &k_change, page);
        uint32_t k = 0;
        while (k < n_pages && memcmp(pages.ptr + k * 256, page, 256) != 0)
            k++;
        if (k == n_pages) {
            tg_buf_add(&pages, page, 256);
            if (pages.is_failed) break;
            n_pages++;
        }
        page_of[i] = (uint16_t)k;
    }
    tg_status s = tg_buf_check(&pages, b->e);
    uint32_t n_cells = (uint32_t)(b->n_states * (b->n_classes + 1));
    tg_dfa_header h = {
        .n_cells = n_cells, .n_classes = (uint32_t)b->n_classes + 1, .n_pages = n_pages};
    size_t n = sizeof h + (n_cells + TG_DFA_N_PAGES_OF) * sizeof(uint16_t) + n_pages * 256;
    h.n_bytes = (uint32_t)tg_align_up(n, TG_DFA_ALIGN);
    tg_buf_add(out, &h, sizeof h);
    tg_buf_add(out, b->next, n_cells * sizeof(uint16_t));
    tg_buf_add(out, page_of, sizeof page_of);
    tg_buf_add_str(out, tg_buf_str(&pages));
    for (; n < h.n_bytes && !out->is_failed; n++)
        tg_buf_add_byte(out, 0);
    tg_buf_deinit(&pages);
    return s == TG_OK ? tg_buf_check(out, b->e) : s;
}

static tg_status build(builder *b, tg_buf *out, tg_str pattern, bool *is_built)
{
    int32_t root = tg_pattern_read(&b->pattern, pattern);
    *is_built = root >= 0 && b->pattern.n_sets > 0;
    if (!*is_built) return TG_OK;
    TG_TRY(make_classes(b, is_built));
    *is_built = *is_built && emit(b, root) && add_code(b, (instruction){.op = OP_MATCH});
    if (*is_built) TG_TRY(make_states(b, is_built));
    return *is_built ? add_image(b, out) : TG_OK;
}

tg_status tg_dfa_build(tg_buf *out, tg_str pattern, bool *is_built, tg_err *e)
{
    builder *b = TG_NEW(builder);
    *is_built = false;
    if (!b) return tg_fail_nomem(e, sizeof *b, "a pattern's automaton");
    b->e = e;
    tg_status s = build(b, out, pattern, is_built);
    tg_spans_deinit(&b->changes);
    tg_mem_free(b->places);
    tg_mem_free(b->next);
    tg_mem_free(b);
    return s;
}
