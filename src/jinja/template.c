/* SPDX-License-Identifier: Apache-2.0
 * template.c - loading and rendering: the public face of the template engine. */
#include "jinja/template.h"

#include "base/mem.h"
#include "jinja/jinja.h"

#include <string.h>

enum {
    DEFAULT_STEPS = 4000000,
    DEFAULT_OUTPUT_BYTES = 8 << 20,
    DEFAULT_MEMORY_BYTES = 24 << 20,
    DEFAULT_DEPTH = 1000,
};

/* A copy with \r\n and \r as \n, and without one newline at the end, as Jinja reads files. */
static bool copy_source(tg_template *t, tg_str source)
{
    char *p = tg_arena_alloc(&t->arena, source.len + 1);
    size_t n = 0;
    if (!p) return false;
    for (size_t i = 0; i < source.len; i++) {
        char c = source.ptr[i];
        if (c == '\r' && i + 1 < source.len && source.ptr[i + 1] == '\n') continue;
        p[n++] = c == '\r' ? '\n' : c;
    }
    if (n > 0 && p[n - 1] == '\n') n--;
    t->source = (tg_str){p, n};
    return true;
}

tg_status tg_template_load(tg_template **out, tg_str source, tg_err *e)
{
    *out = NULL;
    if (source.len > TG_TEMPLATE_MAX_BYTES)
        return tg_fail(e, TG_E_LIMIT, "a template of %zu bytes is longer than the limit of %d",
                       source.len, TG_TEMPLATE_MAX_BYTES);
    size_t invalid = tg_utf8_find_invalid(source);
    if (invalid < source.len)
        return tg_fail(e, TG_E_CORRUPT, "the template is not UTF-8 at byte %zu", invalid);
    tg_template *t = TG_NEW(tg_template);
    if (!t) return tg_fail_nomem(e, sizeof *t, "a template");
    tg_status s = copy_source(t, source) ? tg_jparse(t, e)
                                         : tg_fail_nomem(e, source.len, "a template's text");
    if (s != TG_OK) {
        tg_template_free(t);
        return s;
    }
    *out = t;
    return TG_OK;
}

void tg_template_free(tg_template *t)
{
    if (!t) return;
    tg_arena_deinit(&t->arena);
    tg_mem_free(t);
}

bool tg_template_has_variable(const tg_template *t, tg_str name)
{
    for (int32_t i = TG_JSYM_FIXED; i < t->n_symbols; i++)
        if (tg_str_is_equal(t->symbols[i], name)) return true;
    return false;
}

tg_status tg_template_render(const tg_template *t, const json_t *context,
                             const tg_template_options *o, tg_buf *out, tg_err *e)
{
    static const tg_template_options defaults;
    tg_err error = {0}; /* a generator may take an error back */
    if (!o) o = &defaults;
    if (context && !json_is_object(context))
        return tg_fail(e, TG_E_ARGUMENT, "the variables of a template must be a JSON object");
    tg_jrun r = {
        .t = t,
        .context = context,
        .clock = o->clock,
        .out = out,
        .out_start = out->len,
        .max_output = o->max_output_bytes ? o->max_output_bytes : DEFAULT_OUTPUT_BYTES,
        .max_memory = o->max_memory_bytes ? o->max_memory_bytes : DEFAULT_MEMORY_BYTES,
        .n_steps = o->max_steps ? o->max_steps : DEFAULT_STEPS,
        .n_depth = o->max_depth ? o->max_depth : DEFAULT_DEPTH,
        .e = &error,
    };
    r.globals = TG_JARRAY(&r, tg_jval, t->n_symbols);
    r.root_scope = r.scope = TG_JNEW(&r, tg_jscope);
    if (r.status == TG_OK) tg_jrun_exec(&r, t->root);
    if (r.status == TG_OK) r.status = tg_buf_check(out, &error);
    if (r.status != TG_OK && out->len > r.out_start) {
        out->len = r.out_start;
        out->ptr[out->len] = 0;
    }
    tg_arena_deinit(&r.arena);
    return r.status == TG_OK ? TG_OK : tg_fail(e, r.status, "%s", error.msg);
}
