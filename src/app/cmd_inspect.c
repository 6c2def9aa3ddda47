/* SPDX-License-Identifier: Apache-2.0
 * cmd_inspect.c - what an artifact or a checkpoint holds.
 *
 * A MODEL here is only looked at: nothing is exported, and of a checkpoint only the header is read.
 * --verify comes first, so that a report is never printed about bytes that are wrong. */
#include "app/command.h"
#include "app/report.h"
#include "app/term.h"
#include "base/os.h"
#include "trigraph.h"

#include <unistd.h>

int tg_run_inspect(const tg_args *a)
{
    bool is_json = a->is_set[TG_OPT_JSON];
    char *text = NULL;
    tg_term out;
    tg_err e = {0};
    tg_signals_catch();
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = TG_OK;
    if (a->is_set[TG_OPT_VERIFY]) s = tg_verify(a->operand, &e);
    if (s == TG_OK) s = tg_inspect(&text, a->operand, is_json, &e);
    if (s == TG_OK) {
        tg_str all = tg_str_from_cstr(text);
        tg_term_print(&out, all);
        if (all.len && all.ptr[all.len - 1] != '\n') tg_term_write(&out, TG_STR("\n"));
        if (a->is_set[TG_OPT_VERIFY]) tg_say("every checksum of %s is right", a->operand);
    }
    tg_free(text);
    return tg_exit_code(s, &e, &out);
}
