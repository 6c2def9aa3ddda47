/* SPDX-License-Identifier: Apache-2.0
 * jinja_run.c - what one rendering may use, its first error, and calls of table functions. */
#include "jinja/jinja.h"

#include <stdarg.h>
#include <string.h>

tg_jval tg_jrun_fail(tg_jrun *r, tg_status s, const char *fmt, ...)
{
    char words[400];
    if (tg_jrun_is_failed(r)) return tg_jnone();
    va_list ap;
    va_start(ap, fmt);
    if (tg_vprint(words, sizeof words, fmt, ap) < 0) words[0] = 0;
    va_end(ap);
    r->status = tg_jfail_at(r->e, s, r->t->source, r->pos, "%s", words);
    return tg_jnone();
}

tg_jval tg_jrun_raise(tg_jrun *r, const char *fmt, ...)
{
    char words[400];
    va_list ap;
    va_start(ap, fmt);
    if (tg_vprint(words, sizeof words, fmt, ap) < 0) words[0] = 0;
    va_end(ap);
    return tg_jrun_fail(r, TG_E_ARGUMENT, "%s", words);
}

bool tg_jrun_pay(tg_jrun *r, int64_t n)
{
    r->n_steps -= n;
    if (r->n_steps < 0) tg_jrun_fail(r, TG_E_LIMIT, "the template exceeds its budget of steps");
    return !tg_jrun_is_failed(r);
}

enum { BUMP_BYTES = 32 * 1024, BUMP_ALIGN = 16 };

/* Makes room for n_bytes at r->bump. */
static bool reserve(tg_jrun *r, size_t n_bytes)
{
    if (tg_jrun_is_failed(r)) return false;
    if (n_bytes <= r->n_bump) return true;
    size_t size = TG_MAX(n_bytes, (size_t)BUMP_BYTES);
    if (n_bytes > r->max_memory || r->arena.n_bytes + size > r->max_memory) {
        tg_jrun_fail(r, TG_E_LIMIT, "the template exceeds its memory budget of %zu bytes",
                     r->max_memory);
        return false;
    }
    r->bump = tg_arena_alloc(&r->arena, size);
    r->n_bump = r->bump ? size : 0;
    if (!r->bump) tg_jrun_fail(r, TG_E_NOMEM, "no memory for %zu bytes", size);
    return r->bump != NULL;
}

static void align_bump(tg_jrun *r)
{
    if (!r->bump) return;
    size_t off = (BUMP_ALIGN - (uintptr_t)r->bump % BUMP_ALIGN) % BUMP_ALIGN;
    off = TG_MIN(off, r->n_bump);
    r->bump += off;
    r->n_bump -= off;
}

void *tg_jrun_alloc(tg_jrun *r, size_t n_bytes)
{
    align_bump(r);
    n_bytes = tg_align_up(n_bytes ? n_bytes : 1, BUMP_ALIGN);
    if (!reserve(r, n_bytes)) return NULL;
    char *p = r->bump;
    r->bump += n_bytes;
    r->n_bump -= n_bytes;
    return p;
}

char *tg_jrun_alloc_open(tg_jrun *r, size_t n_bytes, size_t n_room)
{
    align_bump(r);
    if (!reserve(r, n_bytes + n_room) && r->status != TG_OK) return NULL;
    char *p = r->bump;
    r->bump += n_bytes;
    r->n_bump -= n_bytes;
    return p;
}

/* ---- calls */

void tg_jrun_eval_arguments(tg_jrun *r, const tg_jcall *c, tg_jargs *raw)
{
    *raw = (tg_jargs){.rest = NULL};
    if (!c) return;
    tg_jval args = tg_jlist_new(r, TG_J_LIST, c->n_args);
    tg_jval names = tg_jlist_new(r, TG_J_LIST, c->n_kw);
    tg_jval kw = tg_jlist_new(r, TG_J_LIST, c->n_kw);
    for (int32_t i = 0; i < c->n_args && !tg_jrun_is_failed(r); i++)
        tg_jlist_add(r, args, tg_jrun_eval(r, c->args[i]));
    for (int32_t i = 0; i < c->n_kw && !tg_jrun_is_failed(r); i++) {
        tg_jlist_add(r, names, c->names[i]);
        tg_jlist_add(r, kw, tg_jrun_eval(r, c->kw[i]));
    }
    if (c->star && !tg_jrun_is_failed(r)) {
        tg_jwalk w;
        tg_jval item;
        if (tg_jwalk_begin(r, &w, tg_jrun_eval(r, c->star)))
            while (tg_jwalk_next(r, &w, &item))
                tg_jlist_add(r, args, item);
    }
    if (c->starstar && !tg_jrun_is_failed(r)) {
        tg_jval d = tg_jrun_eval(r, c->starstar);
        if (d.kind != TG_J_DICT)
            tg_jrun_raise(r, "argument after ** must be a mapping, not %s", tg_jkind_name(d));
        for (int32_t i = 0; !tg_jrun_is_failed(r) && i < d.u.dict->n; i++) {
            if (d.u.dict->entries[i].key.kind != TG_J_STR)
                tg_jrun_raise(r, "keywords must be strings");
            for (int32_t k = 0; !tg_jrun_is_failed(r) && k < names.u.list->n; k++)
                if (tg_jval_is_equal(r, names.u.list->items[k], d.u.dict->entries[i].key))
                    tg_jrun_raise(r, "a keyword argument is given twice");
            tg_jlist_add(r, names, d.u.dict->entries[i].key);
            tg_jlist_add(r, kw, d.u.dict->entries[i].value);
        }
    }
    if (tg_jrun_is_failed(r)) return;
    raw->rest = args.u.list->items;
    raw->n_rest = args.u.list->n;
    raw->names = names.u.list->items;
    raw->kw = kw.u.list->items;
    raw->n_kw = kw.u.list->n;
}

/* The index of `name` in "width first blank", or -1. */
static int find_param(const char *params, tg_str name)
{
    int i = 0;
    if (*params == '/') return -1;
    for (const char *p = params; *p; i++) {
        size_t n = strcspn(p, " ");
        if (*p != '*' && tg_str_is_equal((tg_str){p, n}, name)) return i;
        p += n + (p[n] == ' ');
    }
    return -1;
}

tg_jval tg_jrun_apply(tg_jrun *r, const tg_jfunc *f, const char *what, tg_jval self,
                      const tg_jargs *raw)
{
    if (tg_jrun_is_failed(r)) return tg_jnone();
    if (!f->fn)
        return tg_jrun_fail(r, TG_E_UNSUPPORTED, "the %s '%s' is not built in this engine", what,
                            f->name);
    bool is_open = strchr(f->params, '*') != NULL;
    int n_params = *f->params && *f->params != '*' ? 1 : 0;
    for (const char *p = f->params; *p; p++)
        n_params += *p == ' ' && p[1] != '*';
    tg_jargs a = {.rest = raw->rest, .names = raw->names, .kw = raw->kw, .n_kw = raw->n_kw};
    int n_taken = TG_MIN(raw->n_rest, n_params);
    for (int i = 0; i < n_taken; i++)
        a.v[i] = raw->rest[i];
    if (n_taken) a.rest += n_taken;
    a.n_rest = raw->n_rest - n_taken;
    if (a.n_rest > 0 && !is_open)
        return tg_jrun_raise(r, "the %s '%s' takes at most %d arguments, %d are given", what,
                             f->name, n_params, raw->n_rest);
    for (int32_t i = 0; i < raw->n_kw && !is_open; i++) {
        tg_str name = tg_jval_str(raw->names[i]);
        int k = find_param(f->params, name);
        if (k < 0)
            return tg_jrun_raise(r, "the %s '%s' takes no keyword argument '%.*s'", what, f->name,
                                 (int)TG_MIN(name.len, 60u), name.ptr);
        if (a.v[k].kind != TG_J_MISSING)
            return tg_jrun_raise(r, "the %s '%s' is given argument '%.*s' twice", what, f->name,
                                 (int)TG_MIN(name.len, 60u), name.ptr);
        a.v[k] = raw->kw[i];
    }
    for (int i = 0; i < f->n_required; i++)
        if (a.v[i].kind == TG_J_MISSING)
            return tg_jrun_raise(r, "the %s '%s' needs %d arguments", what, f->name, f->n_required);
    /* Whatever is done with texts goes over them once at least. */
    int64_t n_bytes = self.kind == TG_J_STR ? self.len : 0;
    for (int i = 0; i < n_params; i++)
        n_bytes += a.v[i].kind == TG_J_STR ? a.v[i].len : 0;
    return tg_jrun_pay(r, n_bytes / 64) ? f->fn(r, self, &a) : tg_jnone();
}
