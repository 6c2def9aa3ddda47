/* SPDX-License-Identifier: Apache-2.0
 * input.h - what a command is given to read: a text or token ids, from an option, a file or
 * standard input.
 *
 * The options are those of the "Input" section: --prompt, --file, --ids. */
#ifndef TG_APP_INPUT_H
#define TG_APP_INPUT_H

#include "app/options.h"
#include "base/mem.h"

/* A text or a list of ids; {0} is empty. */
typedef struct tg_input {
    tg_buf text;
    const char *name; /* what messages call it: a path, "--prompt", "standard input" */
    bool is_ids;
    int32_t *ids; /* owned */
    int32_t n_ids;
} tg_input;

/* Whether anything was named, or can come through a pipe: a terminal is not waited for. */
bool tg_input_is_given(const tg_args *a);
/* Reads what the options say, else standard input. A text must be UTF-8 and is not checked for
 * being empty; `wants_ids` reads every source as ids, --ids alone does otherwise. */
TG_MUST_USE tg_status tg_input_load(tg_input *in, const tg_args *a, bool wants_ids, tg_err *e);
/* TG_E_ARGUMENT when there is neither a byte nor an id. */
TG_MUST_USE tg_status tg_input_check(const tg_input *in, const char *what, tg_err *e);
void tg_input_deinit(tg_input *in);

/* Decimal ids separated by white space. *ids is the caller's (tg_mem_free). */
TG_MUST_USE tg_status tg_ids_parse(int32_t **ids, int32_t *n_ids, tg_str text, const char *name,
                                   tg_err *e);

#endif
