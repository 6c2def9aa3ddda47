/* SPDX-License-Identifier: Apache-2.0
 * jinja.h - what the files of the template engine share: values, tree, and one rendering.
 *
 *   jinja_lex.c     source -> tokens, with Jinja's whitespace rules
 *   jinja_parse.c   tokens -> tree (expressions); jinja_stmt.c the same for statements;
 *                   jinja_cursor.c the parser's place, nodes and names
 *   jinja_value.c   Python's values: truth, equality, order, containers; jinja_print.c str, repr
 *   jinja_op.c      operators, attributes, subscripts, slices
 *   jinja_eval.c    tree + context -> text: scopes, loops, macros, calls; jinja_run.c budgets,
 *                   errors, arguments; jinja_loop.c the object `loop`
 *   jinja_filter.c  filters and tests; jinja_seq.c those on sequences
 *   jinja_method.c  methods of strings; jinja_char.c those that go from character to character;
 *                   jinja_container.c methods of dicts, lists and numbers; jinja_format.c
 *                   the two ways of formatting
 *   jinja_json.c    tojson; jinja_func.c global functions, strftime_now
 *
 * Errors inside a rendering are sticky: the first one stays in the run, every function then
 * returns quickly with a harmless value, and tg_template_render reports once. */
#ifndef TG_JINJA_JINJA_H
#define TG_JINJA_JINJA_H

#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/number.h"
#include "base/str.h"
#include "jinja/template.h"

typedef struct tg_jrun tg_jrun;
typedef struct tg_jnode tg_jnode;
typedef struct tg_jscope tg_jscope;

/* ---- values */

/* Kept in a byte. MISSING never reaches a template: it is an argument that was not given. */
enum {
    TG_J_MISSING,
    TG_J_UNDEFINED,
    TG_J_NONE,
    TG_J_BOOL,
    TG_J_INT,
    TG_J_FLOAT,
    TG_J_STR,
    TG_J_LIST,
    TG_J_TUPLE,
    TG_J_DICT,
    TG_J_RANGE,
    TG_J_ITER, /* what can be walked once: a generator, a reversed list */
    TG_J_VIEW, /* keys(), values(), items() of a dict */
    TG_J_FUNC,
    TG_J_METHOD,
    TG_J_MACRO,
    TG_J_NAMESPACE,
    TG_J_LOOP,
    TG_J_COUNT
};

/* 16 bytes, passed in registers. Objects behind pointers live in the arena of the rendering or of
 * the template, and do not change once they can be reached, except namespaces and iterators. */
typedef struct tg_jval {
    uint8_t kind;
    bool is_markup; /* a string that `escape` or `safe` made: joining it escapes the other side */
    bool is_ascii;  /* a string whose characters are bytes */
    uint32_t len;   /* bytes of a string */
    union {
        bool b;
        int64_t i;
        double f;
        const char *s;
        struct tg_jlist *list; /* LIST, TUPLE */
        struct tg_jdict *dict; /* DICT, NAMESPACE */
        const struct tg_jrange *range;
        struct tg_jiterator *iterator;
        const struct tg_jdict_view *view;
        const struct tg_jfunc *func;
        const struct tg_jmethod *method;
        const struct tg_jmacro *macro;
        struct tg_jloop *loop;
        const struct tg_jundef *undef; /* NULL: nothing known about it */
        const void *ptr;
    } u;
} tg_jval;

typedef struct tg_jlist {
    tg_jval *items;
    int32_t n, size;
} tg_jlist;

typedef struct tg_jentry {
    tg_jval key, value;
} tg_jentry;

/* In insertion order; `index` is a hash table of entry numbers + 1 once there are many. */
typedef struct tg_jdict {
    tg_jentry *entries;
    int32_t *index;
    int32_t n, size, index_size;
} tg_jdict;

typedef struct tg_jrange {
    int64_t start, stop, step;
    int32_t n;
} tg_jrange;

/* The items are made at once. Where that failed, those before are there, and the error comes when
 * the walk arrives at it: a template that does not get so far never sees it. */
typedef struct tg_jiterator {
    const tg_jlist *list;
    int32_t next;
    const tg_err *error; /* NULL: none */
    const char *type_name;
} tg_jiterator;

typedef enum tg_jdict_view_kind {
    TG_JVIEW_KEYS,
    TG_JVIEW_VALUES,
    TG_JVIEW_ITEMS
} tg_jdict_view_kind;

typedef struct tg_jdict_view {
    const tg_jdict *dict;
    tg_jdict_view_kind what;
} tg_jdict_view;

typedef struct tg_jmethod {
    tg_jval self;
    const struct tg_jfunc *func;
} tg_jmethod;

typedef struct tg_jmacro {
    const tg_jnode *node; /* MACRO or CALL statement */
    tg_jscope *scope;     /* where it was defined */
} tg_jmacro;

typedef struct tg_jundef {
    tg_str hint;    /* complete message, or empty */
    tg_jval name;   /* what was looked up */
    const char *of; /* type of the object it was looked up in; NULL for a variable */
    bool is_unsafe;
} tg_jundef;

/* ---- functions, filters, tests and methods are rows of this */

enum { TG_J_MAX_PARAMS = 6 };

/* A call after binding: `v` follows the row's parameter list, MISSING where nothing was given. Rows
 * with a '*' take what they find in `rest` and `names`/`kw`. */
typedef struct tg_jargs {
    tg_jval v[TG_J_MAX_PARAMS];
    const tg_jval *rest;
    int32_t n_rest;
    const tg_jval *names; /* strings */
    const tg_jval *kw;
    int32_t n_kw;
} tg_jargs;

typedef tg_jval tg_jfunc_fn(tg_jrun *r, tg_jval self, const tg_jargs *a);

typedef struct tg_jfunc {
    const char *name;
    tg_jfunc_fn *fn;    /* NULL: known to the reference and refused here by name */
    const char *params; /* "width first blank"; a trailing "*" takes the rest and all keywords; with
                           a "/" in front they have no names for callers */
    int32_t n_required;
    uint32_t kinds; /* methods: bit set of the kinds that have it */
} tg_jfunc;

#define TG_J_BIT(kind) (1u << (kind))

const tg_jfunc *tg_jfilter_find(tg_str name);
const tg_jfunc *tg_jtest_find(tg_str name);
const tg_jfunc *tg_jglobal_find(tg_str name);
const tg_jfunc *tg_jmethod_find(uint8_t kind, tg_str name);
/* True for a method that would change its object: the sandbox gives an undefined value instead. */
bool tg_jmethod_is_unsafe(uint8_t kind, tg_str name);

/* Filters and tests over sequences, in jinja_seq.c; ends with a row without a name. */
extern const tg_jfunc tg_jseq_filters[];
extern const tg_jfunc tg_jchar_methods[]; /* of strings, in jinja_char.c; ends in the same way */
extern const tg_jfunc tg_jcontainer_methods[]; /* of what holds items, and of numbers */
extern const tg_jfunc tg_jloop_methods[];

/* ---- tokens */

typedef enum tg_jtok_kind {
    TG_JT_EOF,
    TG_JT_DATA,
    TG_JT_VARIABLE_BEGIN,
    TG_JT_VARIABLE_END,
    TG_JT_BLOCK_BEGIN,
    TG_JT_BLOCK_END,
    TG_JT_NAME,
    TG_JT_STRING,
    TG_JT_INT,
    TG_JT_FLOAT,
    TG_JT_OPERATOR
} tg_jtok_kind;

typedef struct tg_jtok {
    tg_jtok_kind kind;
    int32_t pos; /* byte offset in the source */
    tg_str text; /* DATA, NAME, STRING: the content; OPERATOR: its characters */
    union {
        int64_t i;
        double f;
    } u;
} tg_jtok;

typedef struct tg_jtoks {
    tg_jtok *items;
    int32_t n, size;
    tg_arena arena; /* of the array; the caller's to free, also after a failure */
} tg_jtoks;

/* Texts of tokens point into `source` or the arena `a`. The last token is EOF. */
TG_MUST_USE tg_status tg_jlex(tg_jtoks *out, tg_arena *a, tg_str source, tg_err *e);
/* "line 3, column 7: " in front of the message; columns count characters from 1. */
TG_PRINTF(5, 6)
tg_status tg_jfail_at(tg_err *e, tg_status s, tg_str source, int32_t pos, const char *fmt, ...);

/* ---- the tree */

typedef enum tg_jnode_kind {
    /* expressions */
    TG_JN_CONST,   /* value */
    TG_JN_NAME,    /* symbol */
    TG_JN_LIST,    /* kids */
    TG_JN_TUPLE,   /* kids */
    TG_JN_DICT,    /* kids: key, value, key, value */
    TG_JN_GETATTR, /* a.text */
    TG_JN_GETITEM, /* a[b] */
    TG_JN_SLICE,   /* a[kids0:kids1:kids2], NULL where left out */
    TG_JN_CALL,    /* a(args) */
    TG_JN_FILTER,  /* a|text(args); func NULL: unknown, an error when reached */
    TG_JN_TEST,    /* a is text(args) */
    TG_JN_COND,    /* a if b else c (may be NULL) */
    TG_JN_OR,
    TG_JN_AND,
    TG_JN_NOT,
    TG_JN_COMPARE, /* a op[0] kids0 op[1] kids1 ... */
    TG_JN_CONCAT,  /* kids */
    TG_JN_BINARY,  /* a op b */
    TG_JN_NEG,
    TG_JN_POS,
    /* statements */
    TG_JN_BODY,         /* kids */
    TG_JN_DATA,         /* value */
    TG_JN_PRINT,        /* kids */
    TG_JN_IF,           /* kids: test, body, test, body, ... and the else body last when odd */
    TG_JN_FOR,          /* for a in b if c: kids: body, else (may be NULL) */
    TG_JN_SET,          /* a = b */
    TG_JN_SET_BLOCK,    /* a = body b, through the filter chain c (may be NULL) */
    TG_JN_NSREF,        /* target: symbol.text */
    TG_JN_MACRO,        /* params; a: body */
    TG_JN_CALL_BLOCK,   /* params; a: body; b: the call */
    TG_JN_FILTER_BLOCK, /* a: body, c: filter chain */
    TG_JN_WITH,         /* kids: target, value, ...; a: body */
    TG_JN_SCOPE,        /* a: body in a scope of its own: generation */
    TG_JN_BLOCK,        /* a: body, seen from the outermost scope */
    TG_JN_BREAK,
    TG_JN_CONTINUE
} tg_jnode_kind;

/* Operators of BINARY and COMPARE. */
typedef enum tg_jop {
    TG_JOP_ADD,
    TG_JOP_SUB,
    TG_JOP_MUL,
    TG_JOP_DIV,
    TG_JOP_FLOORDIV,
    TG_JOP_MOD,
    TG_JOP_POW,
    TG_JOP_EQ,
    TG_JOP_NE,
    TG_JOP_LT,
    TG_JOP_LE,
    TG_JOP_GT,
    TG_JOP_GE,
    TG_JOP_IN,
    TG_JOP_NOT_IN
} tg_jop;

/* Arguments of a call as written: kids first, then keywords, then *star and **starstar. */
typedef struct tg_jcall {
    tg_jnode **args;
    int32_t n_args;
    tg_jval *names;
    tg_jnode **kw;
    int32_t n_kw;
    tg_jnode *star, *starstar;
} tg_jcall;

/* Parameters of a macro or a call block. */
typedef struct tg_jparams {
    int32_t *symbols;
    tg_jnode **defaults; /* NULL: none */
    int32_t n;
    bool has_caller, has_varargs, has_kwargs; /* the body names them */
} tg_jparams;

struct tg_jnode {
    tg_jnode_kind kind;
    int32_t pos;
    tg_jnode *a, *b, *c;
    tg_jnode **kids;
    int32_t n_kids;
    int32_t symbol;
    tg_jop op;
    bool is_recursive;
    tg_jop *ops;
    tg_str text;
    tg_jval value;
    const tg_jfunc *func;
    tg_jcall *call;
    tg_jparams *params;
};

/* Symbols the evaluator itself binds; they are interned first, in this order. */
enum { TG_JSYM_LOOP, TG_JSYM_CALLER, TG_JSYM_VARARGS, TG_JSYM_KWARGS, TG_JSYM_FIXED };

struct tg_template {
    tg_arena arena;
    tg_str source; /* line ends are \n, one at the end is dropped */
    tg_jnode *root;
    tg_str *symbols; /* [n_symbols], names of variables */
    int32_t n_symbols;
};

TG_MUST_USE tg_status tg_jparse(tg_template *t, tg_err *e);

/* ---- one rendering */

/* Variables of one scope; few, so a list. */
struct tg_jscope {
    tg_jscope *parent;
    struct tg_jbinding {
        int32_t symbol;
        tg_jval value;
    } * vars;
    int32_t n, size;
    bool is_kept; /* a macro was defined in it, and looks things up here when called */
};

struct tg_jrun {
    const tg_template *t;
    const json_t *context;
    const tg_template_clock *clock;
    tg_buf *out;
    size_t out_start, max_output;
    tg_arena arena;
    char *bump; /* small pieces are cut from here: arena pieces are 64-byte aligned */
    size_t n_bump, max_memory;
    int64_t n_steps;  /* left */
    int32_t n_depth;  /* left */
    int32_t pos;      /* of the node being evaluated */
    tg_jval *globals; /* [n_symbols]: variables of the context, converted when first named */
    tg_jscope *root_scope, *scope;
    tg_status status;
    tg_err *e;
};

static inline bool tg_jrun_is_failed(const tg_jrun *r)
{
    return r->status != TG_OK;
}

/* Sets the sticky error, "line L, column C: <message>" at the current node; returns None. */
TG_PRINTF(3, 4) tg_jval tg_jrun_fail(tg_jrun *r, tg_status s, const char *fmt, ...);
/* The same for what the reference raises: TG_E_ARGUMENT. */
TG_PRINTF(2, 3) tg_jval tg_jrun_raise(tg_jrun *r, const char *fmt, ...);
/* Pays for n steps; false when the run has failed or the budget is spent. */
bool tg_jrun_pay(tg_jrun *r, int64_t n);
/* Zeroed, 16-byte aligned; NULL after failing. */
void *tg_jrun_alloc(tg_jrun *r, size_t n_bytes);
/* The same for text that may be extended later: at least n_bytes now, and `n_room` more stay free
 * behind it until the next request. Not aligned at its end. */
char *tg_jrun_alloc_open(tg_jrun *r, size_t n_bytes, size_t n_room);
#define TG_JNEW(r, T)      ((T *)tg_jrun_alloc((r), sizeof(T)))
#define TG_JARRAY(r, T, n) ((T *)tg_jrun_alloc((r), sizeof(T) * (size_t)(n)))

/* Evaluates arguments into fresh arrays: raw->rest and raw->kw. */
void tg_jrun_eval_arguments(tg_jrun *r, const tg_jcall *c, tg_jargs *raw);
tg_jval tg_jrun_call(tg_jrun *r, tg_jval callee, tg_jargs *raw);
/* Binds raw->rest and raw->kw to the row's parameters and calls it; `what` is "filter", ... */
tg_jval tg_jrun_apply(tg_jrun *r, const tg_jfunc *f, const char *what, tg_jval self,
                      const tg_jargs *raw);
tg_jval tg_jrun_eval(tg_jrun *r, const tg_jnode *n);
void tg_jrun_exec(tg_jrun *r, const tg_jnode *n);
tg_jval tg_jloop_get(tg_jrun *r, tg_jval loop, tg_str name);
tg_jval tg_jloop_call(tg_jrun *r, tg_jval loop, const tg_jargs *raw);

/* ---- making values */

static inline tg_jval tg_jnone(void)
{
    return (tg_jval){.kind = TG_J_NONE};
}
static inline tg_jval tg_jbool(bool b)
{
    return (tg_jval){.kind = TG_J_BOOL, .u.b = b};
}
static inline tg_jval tg_jint(int64_t i)
{
    return (tg_jval){.kind = TG_J_INT, .u.i = i};
}
static inline tg_jval tg_jfloat(double f)
{
    return (tg_jval){.kind = TG_J_FLOAT, .u.f = f};
}
static inline tg_str tg_jval_str(tg_jval v)
{
    return (tg_str){v.u.s, v.len};
}
tg_jval tg_jstr(tg_str borrowed);
tg_jval tg_jstr_copy(tg_jrun *r, tg_str s);
/* The bytes of `b`, copied; `b` is freed. */
tg_jval tg_jstr_take(tg_jrun *r, tg_buf *b);
tg_jval tg_jundefined(tg_jrun *r, const char *of, tg_jval name);
tg_jval tg_jundefined_hint(tg_jrun *r, const char *hint);
tg_jval tg_jlist_new(tg_jrun *r, uint8_t kind, int32_t size);
void tg_jlist_add(tg_jrun *r, tg_jval list, tg_jval item);
tg_jval tg_jtuple2(tg_jrun *r, tg_jval a, tg_jval b);
/* A value that can be walked once, over the items of `list`. */
tg_jval tg_jiterator_new(tg_jrun *r, tg_jval list, const char *type_name);
tg_jval tg_jdict_new(tg_jrun *r, int32_t size);
/* Fails for keys that Python cannot hash. */
void tg_jdict_put(tg_jrun *r, tg_jdict *d, tg_jval key, tg_jval value);
tg_jval *tg_jdict_find(tg_jrun *r, const tg_jdict *d, tg_jval key);
bool tg_jval_is_hashable(tg_jrun *r, tg_jval v);
tg_jval tg_jval_from_json(tg_jrun *r, const json_t *v);

/* ---- what Python does with any value */

const char *tg_jkind_name(tg_jval v); /* "str", "NoneType", ... */
bool tg_jval_is_true(tg_jval v);
bool tg_jval_is_equal(tg_jrun *r, tg_jval a, tg_jval b);
/* a < b; fails for what Python does not order. `op` is for the message. */
bool tg_jval_is_less(tg_jrun *r, tg_jval a, tg_jval b, const char *op);
bool tg_jval_is_in(tg_jrun *r, tg_jval item, tg_jval in);
static inline bool tg_jval_is_number(tg_jval v)
{
    return v.kind == TG_J_INT || v.kind == TG_J_FLOAT || v.kind == TG_J_BOOL;
}
/* The integer of an INT or BOOL. */
static inline int64_t tg_jval_int(tg_jval v)
{
    return v.kind == TG_J_BOOL ? v.u.b : v.u.i;
}
static inline bool tg_jval_is_int(tg_jval v)
{
    return v.kind == TG_J_INT || v.kind == TG_J_BOOL;
}
double tg_jval_float(tg_jval v); /* of a number */
/* Fails with the undefined value's own message. */
tg_jval tg_jrun_raise_undefined(tg_jrun *r, tg_jval undefined);
/* str(v) and repr(v), appended. */
void tg_jval_print(tg_jrun *r, tg_buf *b, tg_jval v);
void tg_jval_print_repr(tg_jrun *r, tg_buf *b, tg_jval v);
/* str(v) as a value; a string is returned as it is. */
tg_jval tg_jval_to_str(tg_jrun *r, tg_jval v);
void tg_jfloat_print(tg_buf *b, double f);
int64_t tg_jstr_count(tg_jrun *r, tg_jval s); /* code points */
/* Characters [from, to) of a string, by code points, both within it. */
tg_jval tg_jstr_cut(tg_jrun *r, tg_jval s, int64_t from, int64_t to);
bool tg_jchar_is_space(int32_t c);
/* len(v); fails where there is none. */
int64_t tg_jval_len(tg_jrun *r, tg_jval v);
bool tg_jval_has_len(tg_jval v);

/* Walking: for x in v. */
typedef struct tg_jwalk {
    tg_jval v;
    int32_t i, n; /* n: items in all; of a string, bytes */
} tg_jwalk;

/* State of a for loop. The object outlives its loop in the arena, for values that hold on to it. */
typedef struct tg_jloop {
    const tg_jnode *node;
    tg_jscope *scope; /* where the loop stands: recursion runs its body there */
    tg_jwalk walk;
    int32_t index0, n;
    int32_t depth0;
    bool has_next;
    tg_jval previous, current, next;
    tg_jval changed; /* the arguments of the last changed() */
} tg_jloop;
bool tg_jval_is_iterable(tg_jval v);
/* Fails for what cannot be walked. Undefined is empty. */
bool tg_jwalk_begin(tg_jrun *r, tg_jwalk *w, tg_jval v);
bool tg_jwalk_next(tg_jrun *r, tg_jwalk *w, tg_jval *item);
/* All items, as a fresh list of the kind. */
tg_jval tg_jval_to_list(tg_jrun *r, tg_jval v, uint8_t kind);

/* ---- operators (jinja_op.c) */

tg_jval tg_jval_binary(tg_jrun *r, tg_jop op, tg_jval a, tg_jval b);
bool tg_jval_compare(tg_jrun *r, tg_jop op, tg_jval a, tg_jval b);
tg_jval tg_jval_negate(tg_jrun *r, tg_jval v);
tg_jval tg_jval_get_attribute(tg_jrun *r, tg_jval v, tg_str name);
tg_jval tg_jval_get_item(tg_jrun *r, tg_jval v, tg_jval key);
/* Parts may be MISSING or None. */
tg_jval tg_jval_slice(tg_jrun *r, tg_jval v, const tg_jval parts[3]);
tg_jval tg_jstr_concat(tg_jrun *r, tg_jval a, tg_jval b);
tg_jval tg_jstr_escape(tg_jrun *r, tg_jval v); /* HTML, as markup */

/* ---- text (jinja_text.c) */

typedef enum tg_jcase {
    TG_JCASE_UPPER,
    TG_JCASE_LOWER,
    TG_JCASE_TITLE,
    TG_JCASE_SWAP,
    TG_JCASE_FOLD /* for comparing without case */
} tg_jcase;
/* Full case mapping of code points [0, len) bytes of s, as str.upper and str.lower do. */
void tg_jcase_add(tg_buf *b, tg_str s, tg_jcase how);
tg_jval tg_jstr_map_case(tg_jrun *r, tg_jval s, tg_jcase how);
tg_jval tg_jstr_capitalize(tg_jrun *r, tg_jval s);
tg_jval tg_jstr_strip(tg_jrun *r, tg_jval s, tg_jval chars, bool left, bool right);
tg_jval tg_jstr_replace(tg_jrun *r, tg_jval s, tg_jval from, tg_jval to, int64_t max);
tg_jval tg_jstr_split_lines(tg_jrun *r, tg_jval s, bool keep_ends);
bool tg_jchar_is_printable(int32_t c);
bool tg_jchar_is_upper(int32_t c); /* Unicode's properties, not the categories */
bool tg_jchar_is_lower(int32_t c);
bool tg_jchar_is_cased(int32_t c);
int tg_jchar_digit(int32_t c);    /* value of a decimal digit of any script, or -1 */
bool tg_jchar_is_word(int32_t c); /* \w of Python's regular expressions */
/* str.islower, str.isupper: there is a cased letter, and none of the other case. */
bool tg_jstr_is_cased_as(tg_jrun *r, tg_jval s, tg_jcase how);
/* int(text, base) and float(text) of Python; 0 parsed, 1 malformed, 2 beyond 64 bits. */
int tg_jparse_int(tg_str s, int64_t base, int64_t *out);
bool tg_jparse_float(tg_str s, double *out);

/* "..." % value, and str.format. */
tg_jval tg_jstr_percent(tg_jrun *r, tg_jval format, tg_jval value);
tg_jval tg_jstr_format(tg_jrun *r, tg_jval format, const tg_jargs *a);
/* The items of a dict as a list of pairs, sorted by key. */
tg_jval tg_jdict_sorted(tg_jrun *r, tg_jval dict);
/* json.dumps. */
tg_jval tg_jval_to_json(tg_jrun *r, tg_jval self, const tg_jargs *a);
tg_jval tg_jclock_print(tg_jrun *r, tg_str format);

#endif
