/* SPDX-License-Identifier: Apache-2.0
 * cmd_inspect.c - what an artifact or a checkpoint holds.
 *
 * A MODEL here is only looked at: nothing is exported.
 * --verify comes first, so that a report is never printed about bytes that are wrong. */
#include "app/command.h"
#include "app/report.h"
#include "app/term.h"
#include "base/os.h"
#include "trigraph.h"

#include <unistd.h>

/* What an export would be asked for; NULL when nothing was. */
static const tg_export_options *take_options(tg_export_options *o, const tg_args *a)
{
    static const tg_option_id ids[] = {TG_OPT_BATCH, TG_OPT_MAX_LENGTH, TG_OPT_WEIGHTS, TG_OPT_KV};
    bool is_asked = false;
    for (size_t i = 0; i < TG_COUNT(ids); i++)
        is_asked = is_asked || a->is_set[ids[i]];
    if (a->is_set[TG_OPT_BATCH]) o->batch = (int32_t)a->number[TG_OPT_BATCH];
    if (a->is_set[TG_OPT_MAX_LENGTH]) o->max_length = (int32_t)a->number[TG_OPT_MAX_LENGTH];
    if (a->is_set[TG_OPT_WEIGHTS]) o->weights = a->text[TG_OPT_WEIGHTS];
    if (a->is_set[TG_OPT_KV]) o->kv = a->text[TG_OPT_KV];
    return is_asked ? o : NULL;
}

int tg_run_inspect(const tg_args *a)
{
    tg_export_options options = {0};
    const tg_export_options *o = take_options(&options, a);
    bool is_json = a->is_set[TG_OPT_JSON];
    char *text = NULL;
    tg_term out;
    tg_err e = {0};
    tg_signals_catch();
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = TG_OK;
    if (a->is_set[TG_OPT_VERIFY]) s = tg_verify(a->operand, &e);
    if (s == TG_OK) s = tg_inspect(&text, a->operand, o, is_json, &e);
    /* A model that will not run is described with its obstacles: the failure's sentence. */
    bool is_obstructed = text && s != TG_OK;
    if (text) {
        tg_str all = tg_str_from_cstr(text);
        tg_term_print(&out, all);
        if (all.len && all.ptr[all.len - 1] != '\n') tg_term_write(&out, TG_STR("\n"));
        if (a->is_set[TG_OPT_VERIFY] && s == TG_OK)
            tg_say("every checksum of %s is right", a->operand);
    }
    tg_free(text);
    int code = tg_exit_code(is_obstructed ? TG_OK : s, &e, &out);
    return is_obstructed && code == 0 ? 1 : code;
}
