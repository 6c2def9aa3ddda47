/* SPDX-License-Identifier: Apache-2.0
 * jinja_loop.c - the object `loop` that the body of a for statement sees. */
#include "jinja/jinja.h"

tg_jval tg_jloop_get(tg_jrun *r, tg_jval v, tg_str name)
{
    const tg_jloop *l = v.u.loop;
    const struct {
        const char *name;
        tg_jval value;
    } rows[] = {
        {"index", tg_jint(l->index0 + 1)},
        {"index0", tg_jint(l->index0)},
        {"first", tg_jbool(l->index0 == 0)},
        {"last", tg_jbool(!l->has_next)},
        {"length", tg_jint(l->n)},
        {"revindex", tg_jint(l->n - l->index0)},
        {"revindex0", tg_jint(l->n - l->index0 - 1)},
        {"depth", tg_jint(l->depth0 + 1)},
        {"depth0", tg_jint(l->depth0)},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        if (tg_str_is(name, rows[i].name)) return rows[i].value;
    if (tg_str_is(name, "previtem"))
        return l->index0 ? l->previous : tg_jundefined_hint(r, "there is no previous item");
    if (tg_str_is(name, "nextitem"))
        return l->has_next ? l->next : tg_jundefined_hint(r, "there is no next item");
    const tg_jfunc *f = tg_jmethod_find(TG_J_LOOP, name);
    tg_jmethod *m = f ? TG_JNEW(r, tg_jmethod) : NULL;
    if (!m) return (tg_jval){.kind = TG_J_MISSING};
    *m = (tg_jmethod){.self = v, .func = f};
    return (tg_jval){.kind = TG_J_METHOD, .u.method = m};
}

static tg_jval loop_cycle(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    if (a->n_rest == 0) return tg_jrun_raise(r, "no items for cycling given");
    return a->rest[self.u.loop->index0 % a->n_rest];
}

static tg_jval loop_changed(tg_jrun *r, tg_jval self, const tg_jargs *a)
{
    tg_jval now = tg_jlist_new(r, TG_J_TUPLE, a->n_rest);
    for (int32_t i = 0; i < a->n_rest && !tg_jrun_is_failed(r); i++)
        tg_jlist_add(r, now, a->rest[i]);
    bool is = self.u.loop->changed.kind == TG_J_MISSING ||
              !tg_jval_is_equal(r, now, self.u.loop->changed);
    self.u.loop->changed = now;
    return tg_jbool(is);
}

const tg_jfunc tg_jloop_methods[] = {
    {"cycle", loop_cycle, "*", 0, TG_J_BIT(TG_J_LOOP)},
    {"changed", loop_changed, "*", 0, TG_J_BIT(TG_J_LOOP)},
    {0},
};
