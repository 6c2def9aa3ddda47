/* SPDX-License-Identifier: Apache-2.0
 * cmd_tokenize.c - tokenize and detokenize.
 *
 * The two directions share everything but the middle: read, open, print. Neither needs weights: a
 * source is not exported, only its tokenizer is read. */
#include "app/command.h"
#include "app/input.h"
#include "app/report.h"
#include "app/term.h"
#include "base/os.h"
#include "trigraph.h"

#include <inttypes.h>
#include <unistd.h>

/* One line of decimals, which is what --ids of the other commands reads. */
static tg_status print_ids(const tg_text *t, const tg_args *a, const tg_input *in, tg_term *out,
                           tg_err *e)
{
    bool has_special = !a->is_set[TG_OPT_NO_SPECIAL];
    tg_tokenize_options o = {.no_add_special = !has_special, .no_parse_special = !has_special};
    tg_tokens x;
    tg_buf b = {0};
    TG_TRY(tg_text_tokenize(&x, t, tg_buf_cstr(&in->text), in->text.len, &o, e));
    if (a->is_set[TG_OPT_JSON]) {
        tg_report_begin(&b, NULL);
        tg_report_add_ids(&b, "tokens", x.ids, x.n);
        tg_report_add_int(&b, "count", x.n);
        tg_report_end(&b);
    } else {
        for (int32_t i = 0; i < x.n; i++)
            tg_buf_printf(&b, "%s%" PRId32, i ? " " : "", x.ids[i]);
    }
    tg_buf_add_byte(&b, '\n');
    tg_term_write(out, tg_buf_str(&b));
    tg_tokens_deinit(&x);
    tg_status st = tg_buf_check(&b, e);
    tg_buf_deinit(&b);
    return st;
}

/* No newline is added: tokenize and detokenize give back the very bytes. */
static tg_status print_text(const tg_text *t, const tg_args *a, const tg_input *in, tg_term *out,
                            tg_err *e)
{
    char *text = NULL;
    size_t n_bytes = 0;
    tg_buf b = {0};
    TG_TRY(tg_text_detokenize(&text, &n_bytes, t, in->ids, in->n_ids, a->is_set[TG_OPT_NO_SPECIAL],
                              e));
    if (a->is_set[TG_OPT_JSON]) {
        tg_report_begin(&b, NULL);
        tg_report_add_text(&b, "text", (tg_str){text, n_bytes});
        tg_report_end(&b);
        tg_buf_add_byte(&b, '\n');
        tg_term_write(out, tg_buf_str(&b));
    } else {
        tg_term_print(out, (tg_str){text, n_bytes});
    }
    tg_free(text);
    tg_status st = tg_buf_check(&b, e);
    tg_buf_deinit(&b);
    return st;
}

typedef tg_status print_fn(const tg_text *t, const tg_args *a, const tg_input *in, tg_term *out,
                           tg_err *e);

/* `wants_ids`: what is read are ids, whichever option names it. */
static int run(const tg_args *a, bool wants_ids, print_fn *print)
{
    const char *command = tg_commands[a->command].name;
    tg_text *text = NULL;
    tg_input in = {0};
    tg_term out;
    tg_err e = {0};
    if (!tg_input_is_given(a))
        return tg_exit_usage(command, "%s needs something to read: -p or -f", command);
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = tg_input_load(&in, a, wants_ids, &e);
    tg_signals_catch();
    if (s == TG_OK) s = tg_text_open(&text, a->operand, &e);
    if (s == TG_OK && !tg_text_get_info(text).has_tokenizer)
        s = tg_fail(&e, TG_E_UNSUPPORTED, "%s has no tokenizer", a->operand);
    if (s == TG_OK) s = print(text, a, &in, &out, &e);
    int code = tg_exit_code(s, &e, &out);
    tg_text_close(text);
    tg_input_deinit(&in);
    return code;
}

int tg_run_tokenize(const tg_args *a)
{
    return run(a, false, print_ids);
}

int tg_run_detokenize(const tg_args *a)
{
    return run(a, true, print_text);
}
