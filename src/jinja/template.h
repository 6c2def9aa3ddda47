/* SPDX-License-Identifier: Apache-2.0
 * template.h - chat templates: a Jinja subset with the semantics transformers gives it.
 *
 * The reference is jinja2's ImmutableSandboxedEnvironment with trim_blocks, lstrip_blocks, the
 * loop controls, a `generation` tag that renders its body, a `tojson` that leaves text as it is,
 * `raise_exception` and `strftime_now`. Undefined values, scopes, printing and errors follow
 * Python: where the reference raises, rendering fails; what this engine does not have is refused by
 * its name, with line and column, and never rendered differently.
 *
 * A template is parsed once. Rendering works on borrowed, immutable data, so that any number of
 * threads may render one template at the same time. */
#ifndef TG_JINJA_TEMPLATE_H
#define TG_JINJA_TEMPLATE_H

#include "base/json.h"
#include "base/str.h"

typedef struct tg_template tg_template;

enum { TG_TEMPLATE_MAX_BYTES = 256 * 1024 }; /* the longest template in use has about 40 KiB */

/* Parses `source`, which is copied (at most TG_TEMPLATE_MAX_BYTES). TG_E_CORRUPT for broken syntax,
 * TG_E_UNSUPPORTED for what is well formed but not built; the message says line and column. */
TG_MUST_USE tg_status tg_template_load(tg_template **out, tg_str source, tg_err *e);
void tg_template_free(tg_template *t); /* accepts NULL */

/* A wall clock as strftime_now prints it. */
typedef struct tg_template_clock {
    int64_t utc_s;        /* seconds since 1970-01-01 00:00:00 UTC */
    int32_t utc_offset_s; /* local time minus UTC */
} tg_template_clock;

/* Limits of one rendering; templates come from strangers. Zero means the default, which ends a
 * hostile template within a second and 64 MB. */
typedef struct tg_template_options {
    int64_t max_steps;              /* nodes evaluated, and bytes moved / 64: 4,000,000 */
    size_t max_output_bytes;        /* of the whole, and of any one string: 8 MiB */
    size_t max_memory_bytes;        /* values made while rendering, freed at its end: 24 MiB */
    int32_t max_depth;              /* nested evaluations, about 0.5 KiB of stack each: 1,000 */
    const tg_template_clock *clock; /* NULL: the system's time zone and time */
} tg_template_options;

/* Appends the rendered text to `out`. `context` is an object of variables: messages, tools,
 * documents, add_generation_prompt, bos_token, eos_token and whatever the request adds; NULL for
 * none. `o` may be NULL. On failure `out` is as it was before; a call of raise_exception gives
 * TG_E_ARGUMENT with exactly the template's message, a budget that ran out TG_E_LIMIT. */
TG_MUST_USE tg_status tg_template_render(const tg_template *t, const json_t *context,
                                         const tg_template_options *o, tg_buf *out, tg_err *e);

/* True if the template names the variable anywhere: whether it can use `tools`, for example. */
bool tg_template_has_variable(const tg_template *t, tg_str name);

#endif
