/* SPDX-License-Identifier: Apache-2.0
 * cmd_export.c - a checkpoint becomes an artifact; with --dry-run or --dump-ir only text. */
#include "app/command.h"
#include "app/term.h"
#include "base/os.h"
#include "trigraph.h"

#include <unistd.h>

/* Only what was typed is passed on: what was not may still come from --config. */
static tg_export_options take_options(const tg_args *a, tg_progress *progress)
{
    tg_export_options o = {.progress = tg_progress_print, .context = progress};
    o.config_file = a->text[TG_OPT_CONFIG];
    o.is_forced = a->is_set[TG_OPT_FORCE];
    o.context_buckets = a->n_ints ? a->ints : NULL;
    o.n_context_buckets = a->n_ints;
    o.has_speculation = a->is_set[TG_OPT_SPECULATION];
    if (o.has_speculation) o.speculation = (int32_t)a->number[TG_OPT_SPECULATION];
    if (a->is_set[TG_OPT_BATCH]) o.batch = (int32_t)a->number[TG_OPT_BATCH];
    if (a->is_set[TG_OPT_MAX_LENGTH]) o.max_length = (int32_t)a->number[TG_OPT_MAX_LENGTH];
    if (a->is_set[TG_OPT_WEIGHTS]) o.weights = a->text[TG_OPT_WEIGHTS];
    if (a->is_set[TG_OPT_CALIBRATE]) o.calibration_file = a->text[TG_OPT_CALIBRATE];
    if (a->is_set[TG_OPT_ACTIVATIONS]) o.activations = a->text[TG_OPT_ACTIVATIONS];
    if (a->is_set[TG_OPT_KV]) o.kv = a->text[TG_OPT_KV];
    return o;
}

/* The same options for the preview and for disk, so that a plan that was read is the plan that is
 * made. */
int tg_run_export(const tg_args *a)
{
    tg_progress progress = {.title = "writing"};
    tg_export_options o = take_options(a, &progress);
    bool is_preview = a->is_set[TG_OPT_DRY_RUN] || a->is_set[TG_OPT_DUMP_IR];
    tg_err e = {0};
    if (!is_preview && !a->is_set[TG_OPT_OUTPUT])
        return tg_exit_usage("export", "export needs a place for the artifact: -o DIR");
    tg_signals_catch();
    if (is_preview) {
        char *text = NULL;
        tg_term out;
        tg_term_init(&out, STDOUT_FILENO);
        tg_status s = tg_export_preview(&text, a->operand, a->text[TG_OPT_DUMP_IR], &o, &e);
        if (s == TG_OK) tg_term_print(&out, tg_str_from_cstr(text));
        tg_free(text);
        return tg_exit_code(s, &e, &out);
    }
    tg_status s = tg_export(a->operand, a->text[TG_OPT_OUTPUT], &o, &e);
    tg_progress_end(&progress);
    if (s == TG_OK) tg_say("%s is ready", a->text[TG_OPT_OUTPUT]);
    return tg_exit_code(s, &e, NULL);
}
