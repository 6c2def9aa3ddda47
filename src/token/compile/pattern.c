/* SPDX-License-Identifier: Apache-2.0
 * pattern.c - reads a regular expression into its tree. */
#include "token/compile/pattern.h"

#include <string.h>

enum { MAX_DEPTH = 100 };

/* Readers return the index of a node, or one of these. */
enum { NONE = -1, REFUSED = -2 };

static int32_t add_node(tg_pattern *p, tg_pattern_node n)
{
    if (p->n_nodes == TG_PATTERN_MAX_NODES) return REFUSED;
    p->nodes[p->n_nodes] = n;
    return p->n_nodes++;
}

static char peek(const tg_pattern *p, size_t ahead)
{
    return p->i + ahead < p->in.len ? p->in.ptr[p->i + ahead] : '\0';
}

static bool take(tg_pattern *p, const char *word)
{
    size_t n = strlen(word);
    if (p->in.len - p->i < n || memcmp(p->in.ptr + p->i, word, n) != 0) return false;
    p->i += n;
    return true;
}

static bool is_letter_or_digit(char c)
{
    return ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || (c >= '0' && c <= '9');
}

/* The bytes of the atom for one character at p->i: a set, an escape, a dot or a character; 0 when
 * what stands there is none. Whether PCRE2 understands it is found out when it is asked. */
static size_t atom_length(const tg_pattern *p)
{
    char c = peek(p, 0);
    if (c == '[') {
        size_t n = peek(p, 1) == '^' ? 2 : 1;
        if (peek(p, n) == ']') n++; /* the first ] is literal */
        for (; p->i + n < p->in.len; n++) {
            if (peek(p, n) == '\\')
                n++;
            else if (peek(p, n) == ']')
                return n + 1;
        }
        return 0;
    }
    if (c == '\\') {
        char kind = peek(p, 1);
        if (kind > ' ' && kind < 0x7f && (!is_letter_or_digit(kind) || strchr("nrtf", kind)))
            return 2;
        if (!kind || !strchr("pPx", kind) || peek(p, 2) != '{') return 0;
        for (size_t n = 3; p->i + n < p->in.len; n++)
            if (peek(p, n) == '}') return n + 1;
        return 0;
    }
    int32_t cp;
    if (!c || strchr("()|*+?^${", c)) return 0;
    return (size_t)tg_utf8_decode(p->in.ptr + p->i, p->in.len - p->i, &cp);
}

/* The number of the set of an atom under the options in force; equal spellings are one set. */
static int32_t find_set(tg_pattern *p, tg_str atom)
{
    tg_pattern_set name = {.atom = atom};
    size_t n = 0;
    if (p->has_i) name.flags[n++] = 'i';
    if (p->has_s) name.flags[n++] = 's';
    for (int32_t i = 0; i < p->n_sets; i++)
        if (tg_str_is_equal(p->sets[i].atom, atom) &&
            memcmp(p->sets[i].flags, name.flags, sizeof name.flags) == 0)
            return i;
    if (p->n_sets == TG_PATTERN_MAX_SETS) return REFUSED;
    p->sets[p->n_sets] = name;
    return p->n_sets++;
}

static int32_t read_atom(tg_pattern *p, tg_pattern_kind kind)
{
    size_t n = atom_length(p);
    if (n == 0) return REFUSED;
    int32_t set = find_set(p, (tg_str){p->in.ptr + p->i, n});
    p->i += n;
    if (set < 0) return REFUSED;
    return add_node(p, (tg_pattern_node){.kind = kind,
                                         .set = set,
                                         .child = NONE,
                                         .next = NONE,
                                         .may_be_empty = kind != TG_PATTERN_SET});
}

static int32_t read_choice(tg_pattern *p);

/* Behind "(?": letters up to ':' or ')'. At the front of the pattern, ')' holds for all of it. */
static bool read_options(tg_pattern *p)
{
    bool is_on = true;
    for (;; p->i++) {
        char c = peek(p, 0);
        if (c == '-')
            is_on = false;
        else if (c == 'i')
            p->has_i = is_on;
        else if (c == 's')
            p->has_s = is_on;
        else
            return c == ':';
    }
}

static int32_t read_group(tg_pattern *p)
{
    if (take(p, "(?=") || take(p, "(?!")) {
        tg_pattern_kind kind = p->in.ptr[p->i - 1] == '=' ? TG_PATTERN_AHEAD : TG_PATTERN_NOT;
        int32_t n = read_atom(p, kind);
        return n >= 0 && take(p, ")") ? n : REFUSED;
    }
    /* The end of a line: a line feed comes next, or nothing. */
    if (take(p, "(?m:$)")) {
        int32_t set = find_set(p, TG_STR("[^\\n]"));
        tg_pattern_node n = {
            .kind = TG_PATTERN_NOT, .set = set, .child = NONE, .next = NONE, .may_be_empty = true};
        return set < 0 ? REFUSED : add_node(p, n);
    }
    bool had_i = p->has_i, had_s = p->has_s;
    p->i++;
    if (take(p, "?") && (!read_options(p) || !take(p, ":"))) return REFUSED;
    int32_t n = read_choice(p);
    if (n >= 0 && !take(p, ")")) n = REFUSED;
    p->has_i = had_i;
    p->has_s = had_s;
    return n;
}

/* {n}, {n,} or {n,m} at p->i. */
static bool read_interval(tg_pattern *p, int32_t *least, int32_t *most)
{
    int32_t number[2] = {0, 0};
    int n_digits[2] = {0, 0}, k = 0;
    for (p->i++;; p->i++) {
        char c = peek(p, 0);
        if (c == ',' && k == 0)
            k = 1;
        else if (c < '0' || c > '9')
            break;
        else if (++n_digits[k] > 3)
            return false;
        else
            number[k] = number[k] * 10 + (c - '0');
    }
    if (!take(p, "}") || n_digits[0] == 0) return false;
    *least = number[0];
    *most = k == 0 ? number[0] : n_digits[1] ? number[1] : TG_PATTERN_UNBOUNDED;
    return *most == TG_PATTERN_UNBOUNDED || *most >= *least;
}

static int32_t join(tg_pattern *p, tg_pattern_kind kind, int32_t first, int32_t second)
{
    p->nodes[first].next = second;
    bool is_empty[2] = {p->nodes[first].may_be_empty, p->nodes[second].may_be_empty};
    return add_node(p, (tg_pattern_node){.kind = kind,
                                         .child = first,
                                         .next = NONE,
                                         .may_be_empty = kind == TG_PATTERN_CAT
                                                             ? is_empty[0] && is_empty[1]
                                                             : is_empty[0] || is_empty[1]});
}

/* Never giving back means that none follows: so much for a single set. One that gives way once
 * taken has but the choice to take it, or to see that none is there. */
static int32_t add_possessive(tg_pattern *p, int32_t repeat)
{
    const tg_pattern_node *r = &p->nodes[repeat], *x = &p->nodes[r->child];
    if (x->kind != TG_PATTERN_SET ||
        (r->most != TG_PATTERN_UNBOUNDED && (r->least != 0 || r->most != 1)))
        return REFUSED;
    tg_pattern_node behind = {
        .kind = TG_PATTERN_NOT, .set = x->set, .child = NONE, .next = NONE, .may_be_empty = true};
    bool is_one = r->most == 1;
    int32_t first = is_one ? r->child : repeat, second = add_node(p, behind);
    return second < 0 ? REFUSED
                      : join(p, is_one ? TG_PATTERN_CHOICE : TG_PATTERN_CAT, first, second);
}

static int32_t read_repeated(tg_pattern *p)
{
    int32_t n = peek(p, 0) == '(' ? read_group(p) : read_atom(p, TG_PATTERN_SET);
    if (n < 0) return n;
    tg_pattern_node r = {.kind = TG_PATTERN_REPEAT, .child = n, .next = NONE};
    char c = peek(p, 0);
    if (c == '*' || c == '+' || c == '?') {
        r.least = c == '+';
        r.most = c == '?' ? 1 : TG_PATTERN_UNBOUNDED;
        p->i++;
    } else if (c == '{') {
        if (!read_interval(p, &r.least, &r.most)) return REFUSED;
    } else {
        return n;
    }
    /* What PCRE2 does with turns of a loop that take nothing is its own affair. */
    if (p->nodes[n].may_be_empty) return REFUSED;
    r.may_be_empty = r.least == 0;
    bool is_possessive = take(p, "+");
    r.is_lazy = !is_possessive && take(p, "?");
    int32_t repeat = add_node(p, r);
    return repeat >= 0 && is_possessive ? add_possessive(p, repeat) : repeat;
}

static int32_t read_sequence(tg_pattern *p)
{
    tg_pattern_node cat = {
        .kind = TG_PATTERN_CAT, .child = NONE, .next = NONE, .may_be_empty = true};
    int32_t last = NONE;
    while (p->i < p->in.len && peek(p, 0) != '|' && peek(p, 0) != ')') {
        int32_t n = read_repeated(p);
        if (n < 0) return n;
        if (last < 0)
            cat.child = n;
        else
            p->nodes[last].next = n;
        cat.may_be_empty &= p->nodes[n].may_be_empty;
        last = n;
    }
    return add_node(p, cat);
}

static int32_t read_choice(tg_pattern *p)
{
    if (++p->depth > MAX_DEPTH) return REFUSED;
    tg_pattern_node choice = {.kind = TG_PATTERN_CHOICE, .child = NONE, .next = NONE};
    int32_t last = NONE;
    do {
        int32_t n = read_sequence(p);
        if (n < 0) return n;
        if (last < 0)
            choice.child = n;
        else
            p->nodes[last].next = n;
        choice.may_be_empty |= p->nodes[n].may_be_empty;
        last = n;
    } while (take(p, "|"));
    p->depth--;
    return add_node(p, choice);
}

int32_t tg_pattern_read(tg_pattern *p, tg_str text)
{
    p->in = text;
    if (p->in.len > 1 && p->in.ptr[0] == '(' && p->in.ptr[1] == '?') { /* "(?i)" */
        p->i = 2;
        read_options(p);
        if (p->i == 2 || !take(p, ")")) {
            p->i = 0;
            p->has_i = p->has_s = false;
        }
    }
    int32_t root = read_choice(p);
    return p->i == p->in.len ? root : REFUSED;
}
