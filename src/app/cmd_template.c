/* SPDX-License-Identifier: Apache-2.0
 * cmd_template.c - a conversation becomes the text of its prompt.
 *
 * It reads the files people have at hand: the list of messages, or the whole body of a chat
 * request. Of a body every key is known, or it is refused: a key that is dropped in silence would
 * be a different prompt. Whatever the template itself minds, a role or a missing tool, is its own
 * to say. */
#include "app/command.h"
#include "app/term.h"
#include "base/file.h"
#include "base/json.h"
#include "base/os.h"
#include "trigraph.h"

#include <string.h>
#include <unistd.h>

/* Far more than any context length, and little enough to be parsed at once. */
enum { MAX_BYTES = 64 << 20 };

/* Keys of a request that make its prompt, and behind them those that only concern sampling. */
static const char *const request_keys[] = {
    "messages",
    "tools",
    "documents",
    "chat_template_kwargs",
    "add_generation_prompt",
    "tool_choice", /* only "auto": another choice is the server's to enforce */
    "model",
    "stream",
    "stream_options",
    "n",
    "max_tokens",
    "max_completion_tokens",
    "stop",
    "seed",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "logit_bias",
    "logprobs",
    "top_logprobs",
    "user",
    "metadata",
    "store",
    "parallel_tool_calls",
};

/* A conversation, read; the values are owned. NULL: not given. */
typedef struct tg_conversation_input {
    json_t *messages, *tools, *documents, *kwargs;
    bool has_no_prompt; /* "add_generation_prompt": false */
} tg_conversation_input;

static void deinit_input(tg_conversation_input *x)
{
    json_decref(x->messages);
    json_decref(x->tools);
    json_decref(x->documents);
    json_decref(x->kwargs);
}

/* What messages call a file. */
static const char *name_of(const char *path)
{
    return strcmp(path, "-") == 0 ? "standard input" : path;
}

static tg_status load_json(json_t **out, const char *path, tg_err *e)
{
    const char *name = name_of(path);
    bool is_stdin = name != path;
    tg_buf text = {0};
    tg_status s = is_stdin ? tg_fd_load(&text, STDIN_FILENO, name, MAX_BYTES, e)
                           : tg_stream_load(&text, path, MAX_BYTES, e);
    if (s == TG_OK) s = tg_json_parse_exact(out, tg_buf_str(&text), name, e);
    tg_buf_deinit(&text);
    return s;
}

/* A member of the request, counted; null is as good as absent. */
static json_t *take_member(const json_t *o, const char *key)
{
    json_t *v = json_object_get(o, key);
    return json_is_null(v) ? NULL : json_incref(v);
}

static tg_status read_request(tg_conversation_input *x, const json_t *o, const char *name,
                              tg_err *e)
{
    bool has_prompt = true;
    tg_str choice = TG_STR("auto");
    TG_TRY(tg_json_check_keys(o, name, request_keys, TG_COUNT(request_keys), e));
    TG_TRY(tg_json_get_bool(o, "add_generation_prompt", &has_prompt, NULL, name, e));
    TG_TRY(tg_json_get_str(o, "tool_choice", &choice, NULL, name, e));
    if (!tg_str_is(choice, "auto"))
        return tg_fail(e, TG_E_ARGUMENT,
                       "%s: key 'tool_choice' is '%.*s', and no template can be told so; only "
                       "'auto' is taken",
                       name, (int)choice.len, choice.ptr);
    if (!json_object_get(o, "messages"))
        return tg_fail(e, TG_E_ARGUMENT, "%s: has no key 'messages'", name);
    x->messages = json_incref(json_object_get(o, "messages"));
    x->tools = take_member(o, "tools");
    x->documents = take_member(o, "documents");
    x->kwargs = take_member(o, "chat_template_kwargs");
    x->has_no_prompt = !has_prompt;
    return TG_OK;
}

/* Options win; of variables, each by itself. */
static tg_status read_options(tg_conversation_input *x, const tg_args *a, tg_err *e)
{
    static const struct {
        tg_option_id id;
        size_t at;
    } files[] = {{TG_OPT_TOOLS, offsetof(tg_conversation_input, tools)},
                 {TG_OPT_DOCUMENTS, offsetof(tg_conversation_input, documents)}};
    for (size_t i = 0; i < TG_COUNT(files); i++) {
        json_t **value = (json_t **)(void *)((char *)x + files[i].at);
        if (!a->is_set[files[i].id]) continue;
        json_decref(*value);
        *value = NULL;
        TG_TRY(load_json(value, a->text[files[i].id], e));
    }
    if (!a->is_set[TG_OPT_KWARGS]) return TG_OK;
    json_t *more = NULL;
    TG_TRY(tg_json_parse_exact(&more, tg_str_from_cstr(a->text[TG_OPT_KWARGS]), "--kwargs", e));
    if (json_is_object(more) && json_is_object(x->kwargs)) {
        json_object_update(x->kwargs, more);
        json_decref(more);
    } else {
        json_decref(x->kwargs);
        x->kwargs = more;
    }
    return TG_OK;
}

static tg_status read_input(tg_conversation_input *x, const tg_args *a, tg_err *e)
{
    const char *path = a->is_set[TG_OPT_MESSAGES] ? a->text[TG_OPT_MESSAGES] : "-";
    json_t *all = NULL;
    TG_TRY(load_json(&all, path, e));
    tg_status s = TG_OK;
    if (json_is_object(all))
        s = read_request(x, all, name_of(path), e);
    else
        x->messages = json_incref(all);
    json_decref(all);
    return s == TG_OK ? read_options(x, a, e) : s;
}

/* ---- printing */

/* NULL for a value that is not there: in the interface too. */
static tg_status print_value(tg_buf *b, const json_t *v, const char **text, tg_err *e)
{
    *text = NULL;
    if (!v) return TG_OK;
    TG_TRY(tg_json_print(b, v, 0, e));
    *text = tg_buf_cstr(b);
    return tg_buf_check(b, e);
}

static tg_status render(const tg_text *t, const tg_conversation_input *x, const tg_args *a,
                        tg_term *out, tg_err *e)
{
    tg_chat_options o = {.template_name = a->text[TG_OPT_TEMPLATE],
                         .safe_messages = tg_args_has_safe_messages(a),
                         .no_generation_prompt =
                             x->has_no_prompt || a->is_set[TG_OPT_NO_GENERATION_PROMPT]};
    tg_buf b[4] = {0};
    const char *messages = NULL;
    char *text = NULL;
    size_t n_bytes = 0;
    tg_status s = print_value(&b[0], x->messages, &messages, e);
    if (s == TG_OK) s = print_value(&b[1], x->tools, &o.tools, e);
    if (s == TG_OK) s = print_value(&b[2], x->documents, &o.documents, e);
    if (s == TG_OK) s = print_value(&b[3], x->kwargs, &o.kwargs, e);
    if (s == TG_OK) s = tg_text_render_chat(&text, &n_bytes, t, messages, &o, e);
    if (s == TG_OK) tg_term_print(out, (tg_str){text, n_bytes});
    for (size_t i = 0; i < TG_COUNT(b); i++)
        tg_buf_deinit(&b[i]);
    tg_free(text);
    return s;
}

static tg_status print_names(const tg_text *t, tg_term *out, tg_err *e)
{
    tg_buf b = {0};
    if (tg_text_get_info(t).n_templates == 0) tg_say("the model has no chat template");
    for (int32_t i = 0; i < tg_text_get_info(t).n_templates; i++)
        tg_buf_printf(&b, "%s\n", tg_text_get_template_name(t, i));
    tg_term_print(out, tg_buf_str(&b));
    tg_status s = tg_buf_check(&b, e);
    tg_buf_deinit(&b);
    return s;
}

/* The conversation is read before the model is looked for: a mistyped name should cost nothing. */
int tg_run_template(const tg_args *a)
{
    bool is_list = a->is_set[TG_OPT_LIST];
    tg_conversation_input x = {0};
    tg_text *text = NULL;
    tg_term out;
    tg_err e = {0};
    if (!is_list && !a->is_set[TG_OPT_MESSAGES] && isatty(STDIN_FILENO))
        return tg_exit_usage("template", "template needs the messages: -f FILE");
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = is_list ? TG_OK : read_input(&x, a, &e);
    tg_signals_catch();
    if (s == TG_OK) s = tg_text_open(&text, a->operand, &e);
    if (s == TG_OK) s = is_list ? print_names(text, &out, &e) : render(text, &x, a, &out, &e);
    int code = tg_exit_code(s, &e, &out);
    tg_text_close(text);
    deinit_input(&x);
    return code;
}
