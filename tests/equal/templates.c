/* SPDX-License-Identifier: Apache-2.0
 * templates.c - what our engine makes of many templates, for tests/equal/compare-templates.
 *
 * usage: templates <cases >results
 *
 * A case is a line of JSON, {"template": text, "context": object}; a result is one too: {"text":
 * text}, or {"status": name, "error": message}. The clock stands at 2025-03-07 09:05:03. */
#include "base/file.h"
#include "jinja/template.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Noreturn void stop(size_t line, const char *what)
{
    fprintf(stderr, "templates: error: line %zu: %s\n", line, what);
    exit(1);
}

static const char *name_of(tg_status s)
{
    return s == TG_E_UNSUPPORTED ? "unsupported" : s == TG_E_LIMIT ? "limit" : "error";
}

static void render(tg_buf *out, tg_str source, const json_t *context)
{
    static const tg_template_clock clock = {.utc_s = 1741338303};
    static const tg_template_options options = {.clock = &clock};
    tg_template *t = NULL;
    tg_buf text = {0};
    tg_err e = {0};
    tg_status s = tg_template_load(&t, source, &e);
    if (s == TG_OK) s = tg_template_render(t, context, &options, &text, &e);
    if (s == TG_OK) {
        tg_buf_add_cstr(out, "{\"text\": ");
        tg_json_add_quoted(out, tg_buf_str(&text));
    } else {
        tg_buf_printf(out, "{\"status\": \"%s\", \"error\": ", name_of(s));
        tg_json_add_quoted(out, tg_str_from_cstr(e.msg));
    }
    tg_buf_add_cstr(out, "}\n");
    tg_buf_deinit(&text);
    tg_template_free(t);
}

int main(void)
{
    char *line = NULL;
    size_t size = 0, n_lines = 0;
    for (ssize_t n; (n = getline(&line, &size, stdin)) > 0;) {
        json_t *x = NULL;
        tg_err e = {0};
        tg_buf out = {0};
        n_lines++;
        if (tg_json_parse(&x, (tg_str){line, (size_t)n}, "the case", &e) != TG_OK)
            stop(n_lines, e.msg);
        const json_t *source = json_object_get(x, "template");
        if (!json_is_string(source)) stop(n_lines, "has no template");
        render(&out, (tg_str){json_string_value(source), json_string_length(source)},
               json_object_get(x, "context"));
        if (out.is_failed) stop(n_lines, "no memory");
        fwrite(out.ptr, 1, out.len, stdout);
        tg_buf_deinit(&out);
        json_decref(x);
    }
    free(line);
    return ferror(stdin) || fflush(stdout) != 0;
}
