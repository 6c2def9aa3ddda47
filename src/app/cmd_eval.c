/* SPDX-License-Identifier: Apache-2.0
 * cmd_eval.c - perplexity, and logits as NumPy reads them.
 *
 * Rows come from the engine one by one and are used at once: a vocabulary of 262,144 entries over
 * 4,096 tokens would be 4 GiB. Chunk and thread count change no bit of them. */
#include "app/command.h"
#include "app/input.h"
#include "app/npy.h"
#include "app/report.h"
#include "app/session.h"
#include "app/term.h"
#include "base/os.h"

#include <inttypes.h>
#include <math.h>
#include <unistd.h>

/* What take_row adds to. A failure to write ends the run from inside and is kept in *e, which wins
 * over the cancellation that the engine then reports. */
typedef struct tg_scoring {
    const int32_t *ids; /* of the window at hand */
    int32_t n_ids;
    double nll; /* sum over all windows */
    int64_t n_predicted;
    tg_npy *npy; /* NULL: logits are not kept */
    tg_err *e;
} tg_scoring;

/* Minus log softmax(logits)[id]. The largest is taken out first, so that exp cannot overflow; sums
 * are in double, where the order of a vocabulary's worth of terms does not show. */
static double negative_log_likelihood(const float *logits, int32_t n_vocab, int32_t id)
{
    double most = (double)logits[0], sum = 0;
    for (int32_t v = 1; v < n_vocab; v++)
        most = TG_MAX(most, (double)logits[v]);
    for (int32_t v = 0; v < n_vocab; v++)
        sum += exp((double)logits[v] - most);
    return log(sum) + most - (double)logits[id];
}

/* Row i predicts id i + 1; the last row predicts nothing that is known, and only the file wants
 * it. */
static bool take_row(void *context, int32_t i, const float *logits, int32_t n_vocab)
{
    tg_scoring *x = context;
    if (i + 1 < x->n_ids && x->ids[i + 1] < n_vocab) {
        x->nll += negative_log_likelihood(logits, n_vocab, x->ids[i + 1]);
        x->n_predicted++;
    }
    if (x->npy && tg_npy_write_row(x->npy, logits, x->e) != TG_OK) return true;
    return tg_signal_find() != 0;
}

/* One run where the ids fit, else windows of max-length, each starting afresh. */
static tg_status score(tg_scoring *x, tg_session *s, const tg_args *a, const int32_t *ids,
                       int32_t n_ids, tg_err *e)
{
    int32_t window = s->info.max_length;
    int32_t chunk = a->is_set[TG_OPT_CHUNK] ? (int32_t)a->number[TG_OPT_CHUNK] : 0;
    if (n_ids > window && a->is_set[TG_OPT_LOGITS])
        return tg_fail(e, TG_E_LIMIT,
                       "%" PRId32 " tokens are more than the model's max-length of %" PRId32
                       ", and --logits is for one run; export it with a larger --max-length",
                       n_ids, window);
    if (n_ids > window)
        tg_say("%" PRId32 " tokens are evaluated in windows of %" PRId32, n_ids, window);
    for (int32_t at = 0; at < n_ids; at += window) {
        tg_err mine = {0};
        x->ids = ids + at;
        x->n_ids = TG_MIN(window, n_ids - at);
        x->e = e;
        tg_status st = tg_engine_eval(s->engine, x->ids, x->n_ids, chunk, take_row, x, &mine);
        if (st == TG_OK) continue;
        if (e->status != TG_OK) return e->status; /* the file's failure ended it */
        *e = mine;
        return st;
    }
    return TG_OK;
}

/* A text of one token has no perplexity: null in JSON, words for people, and never a NaN. */
static void print_result(const tg_scoring *x, int32_t n_ids, const tg_args *a, tg_term *out)
{
    double perplexity = x->n_predicted ? exp(x->nll / (double)x->n_predicted) : NAN;
    tg_buf b = {0};
    if (a->is_set[TG_OPT_JSON]) {
        tg_report_begin(&b, NULL);
        tg_report_add_real(&b, "perplexity", perplexity);
        tg_report_add_int(&b, "tokens", n_ids);
        tg_report_add_int(&b, "predicted_tokens", x->n_predicted);
        tg_report_end(&b);
        tg_buf_add_byte(&b, '\n');
    } else if (x->n_predicted) {
        tg_buf_printf(&b, "perplexity %.6f over %" PRId64 " predicted tokens of %" PRId32 "\n",
                      perplexity, x->n_predicted, n_ids);
    } else {
        tg_buf_printf(&b, "no perplexity: %" PRId32 " token predicts none\n", n_ids);
    }
    tg_term_write(out, tg_buf_str(&b));
    tg_buf_deinit(&b);
}

static tg_status run(tg_session *s, const tg_args *a, tg_input *in, tg_term *out, tg_err *e)
{
    tg_scoring x = {0};
    tg_tokens made = {0};
    TG_TRY(tg_session_open(s, a, true, e));
    if (!in->is_ids && !s->text_info.has_tokenizer)
        return tg_fail(e, TG_E_UNSUPPORTED,
                       "%s has no tokenizer: give token ids with --ids FILE instead of a text",
                       a->operand);
    if (!in->is_ids)
        TG_TRY(tg_text_tokenize(&made, s->text, tg_buf_cstr(&in->text), in->text.len, NULL, e));
    const int32_t *ids = in->is_ids ? in->ids : made.ids;
    int32_t n_ids = in->is_ids ? in->n_ids : made.n;
    tg_status st = TG_OK;
    if (a->is_set[TG_OPT_LOGITS])
        st = tg_npy_open(&x.npy, a->text[TG_OPT_LOGITS], n_ids, s->info.n_vocab, e);
    if (st == TG_OK) st = score(&x, s, a, ids, n_ids, e);
    if (st == TG_OK && x.npy)
        st = tg_npy_close(x.npy, e);
    else
        tg_npy_abandon(x.npy);
    if (st == TG_OK) print_result(&x, n_ids, a, out);
    tg_tokens_deinit(&made);
    return st;
}

int tg_run_eval(const tg_args *a)
{
    tg_session session = {0};
    tg_input in = {0};
    tg_term out;
    tg_err e = {0};
    if (!tg_input_is_given(a))
        return tg_exit_usage("eval", "eval needs a text: -f FILE, -p TEXT or --ids FILE");
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = tg_input_load(&in, a, false, &e);
    if (s == TG_OK) s = tg_input_check(&in, "text", &e);
    tg_signals_catch();
    if (s == TG_OK) s = run(&session, a, &in, &out, &e);
    int code = tg_exit_code(s, &e, &out);
    tg_session_close(&session);
    tg_input_deinit(&in);
    return code;
}
