/* SPDX-License-Identifier: Apache-2.0
 * capabilities.c - questions to a template.
 *
 * The words asked with are such that no template has them; what a template does to text (trimming,
 * lowering roles) leaves them as they are. */
#include "chat/capabilities.h"

#include "base/number.h"

#include <stdio.h>
#include <string.h>

/* A question is a few hundred bytes; what takes longer is not a template of use. */
static const tg_template_options limits = {.max_steps = 100000};

typedef struct probe {
    const tg_template *t;
    json_t *tokens;
    tg_buf text; /* what the last question gave */
    tg_err *e;
    tg_status status; /* TG_E_NOMEM once memory was refused */
} probe;

/* Renders a conversation written as JSON; false when the template refuses it. */
static bool ask(probe *p, const char *messages, bool has_tools)
{
    static const char tool[] = "[{\"type\": \"function\", \"function\": {\"name\": \"qfn\", "
                               "\"description\": \"q\", \"parameters\": {\"type\": \"object\", "
                               "\"properties\": {\"qparam\": {\"type\": \"string\"}}}}}]";
    json_t *context = json_copy(p->tokens), *list = NULL, *tools = NULL;
    tg_err e = {0};
    tg_status s = tg_json_parse(&list, tg_str_from_cstr(messages), "question", &e);
    if (s == TG_OK && has_tools) s = tg_json_parse(&tools, TG_STR(tool), "question", &e);
    bool is_made = context && s == TG_OK && json_object_set(context, "messages", list) == 0 &&
                   json_object_set(context, "tools", tools ? tools : json_null()) == 0 &&
                   json_object_set(context, "documents", json_null()) == 0 &&
                   json_object_set(context, "add_generation_prompt", json_false()) == 0;
    tg_buf_clear(&p->text);
    s = is_made ? tg_template_render(p->t, context, &limits, &p->text, &e) : TG_E_NOMEM;
    if (s == TG_OK) s = tg_buf_check(&p->text, &e);
    if (s == TG_E_NOMEM && p->status == TG_OK)
        p->status = tg_fail_nomem(p->e, sizeof *context, "a question to the template");
    json_decref(tools);
    json_decref(list);
    json_decref(context);
    return s == TG_OK;
}

static bool has(const probe *p, const char *what)
{
    return strstr(tg_buf_cstr(&p->text), what) != NULL;
}

/* ---- content */

/* A conversation in which a message of this role has the content. */
static void print_turn(char *out, size_t size, tg_role role, const char *content)
{
    static const char *const forms[TG_ROLE_COUNT] = {
        [TG_ROLE_SYSTEM] = "[{\"role\": \"system\", \"content\": %s}, "
                           "{\"role\": \"user\", \"content\": \"u\"}]",
        [TG_ROLE_USER] = "[{\"role\": \"user\", \"content\": %s}]",
        [TG_ROLE_ASSISTANT] = "[{\"role\": \"user\", \"content\": \"u\"}, "
                              "{\"role\": \"assistant\", \"content\": %s}]",
        [TG_ROLE_TOOL] =
            "[{\"role\": \"user\", \"content\": \"u\"}, "
            "{\"role\": \"assistant\", \"content\": \"\", \"tool_calls\": [{\"id\": \"qcall1234\", "
            "\"type\": \"function\", \"function\": {\"name\": \"qfn\", \"arguments\": "
            "{\"qkey\": \"qv\"}}}]}, {\"role\": \"tool\", \"tool_call_id\": \"qcall1234\", "
            "\"name\": \"qfn\", \"content\": %s}]",
    };
    tg_print(out, size, forms[role], content);
}

/* A list that was printed and not read shows its keys, as Python or as JSON, escaped or not. */
static bool is_list_shown(const probe *p)
{
    return has(p, "'text': 'Qneedle") || has(p, "\"text\": \"Qneedle") ||
           has(p, "\"text\":\"Qneedle") || has(p, "\\\"text\\\": \\\"Qneedle");
}

static void ask_content(probe *p, tg_template_capabilities *h, tg_role role, bool has_tools)
{
    char turn[800];
    print_turn(turn, sizeof turn, role, "\"Qneedle\"");
    h->takes_text[role] = ask(p, turn, has_tools) && has(p, "Qneedle");
    print_turn(turn, sizeof turn, role, "[{\"type\": \"text\", \"text\": \"Qneedle\"}]");
    h->takes_parts[role] = ask(p, turn, has_tools) && has(p, "Qneedle") && !is_list_shown(p);
}

/* ---- tool calls */

static void print_call(char *out, size_t size, const char *blank, const char *arguments)
{
    snprintf(out, size,
             "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", %s"
             "\"tool_calls\": [{\"id\": \"qcall1234\", \"type\": \"function\", \"function\": "
             "{\"name\": \"qfn\", \"arguments\": %s}}]}]",
             blank, arguments);
}

/* An object and its text; the value is what must come out. */
static const char object[] = "{\"qkey\": \"Qneedle\"}",
                  json_text[] = "\"{\\\"qkey\\\": \\\"Qneedle\\\"}\"";

typedef enum call_form { CALL_REFUSED, CALL_SHOWN, CALL_READ } call_form;

/* SHOWN: the value came out inside of the whole, an object printed as Python does or a text written
 * as a JSON string once more. */
static call_form ask_call(probe *p, const char *blank, bool is_text, bool *is_rendered)
{
    char turn[800];
    print_call(turn, sizeof turn, blank, is_text ? json_text : object);
    if (!ask(p, turn, true)) return CALL_REFUSED;
    *is_rendered = true;
    if (!has(p, "Qneedle") || (strstr(blank, "null") && (has(p, "None") || has(p, "null"))))
        return CALL_REFUSED;
    return has(p, is_text ? "\\\"qkey" : "'qkey'") ? CALL_SHOWN : CALL_READ;
}

/* Text is taken where it gives what its object gives, or an object cannot be given: a template that
 * writes arguments in a form of its own may put text into it as it is. */
static void ask_arguments(probe *p, tg_template_capabilities *h, const char *blank,
                          bool *is_rendered)
{
    call_form object_form = ask_call(p, blank, false, is_rendered);
    tg_buf of_object = p->text;
    p->text = (tg_buf){0};
    h->takes_object = object_form != CALL_REFUSED;
    h->takes_json = ask_call(p, blank, true, is_rendered) == CALL_READ;
    if (object_form == CALL_READ && !tg_str_is_equal(tg_buf_str(&of_object), tg_buf_str(&p->text)))
        h->takes_json = false;
    tg_buf_deinit(&of_object);
}

static void ask_calls(probe *p, tg_template_capabilities *h)
{
    static const char *const blanks[] = {
        [TG_BLANK_ABSENT] = "",
        [TG_BLANK_NULL] = "\"content\": null, ",
        [TG_BLANK_EMPTY] = "\"content\": \"\", ",
    };
    bool is_any_rendered = false;
    for (size_t i = 0; i < TG_COUNT(blanks); i++) {
        bool is_rendered = false;
        ask_arguments(p, h, blanks[i], &is_rendered);
        bool is_taken = h->takes_object || h->takes_json;
        /* Of one that leaves calls out, a form that it renders at all; null only for want of
         * others, since it may print it. */
        bool is_better = is_rendered && (!is_any_rendered || h->blank == TG_BLANK_NULL);
        if (is_taken || is_better) h->blank = (tg_blank)i;
        if (is_taken) return;
        is_any_rendered |= is_rendered;
    }
}

tg_status tg_template_capabilities_find(tg_template_capabilities *out, const tg_template *t,
                                        json_t *tokens, tg_err *e)
{
    probe p = {.t = t, .tokens = tokens, .e = e, .status = TG_OK};
    *out = (tg_template_capabilities){.blank = TG_BLANK_ABSENT};
    for (int role = 0; role < TG_ROLE_COUNT; role++) {
        ask_content(&p, out, (tg_role)role, role == TG_ROLE_TOOL);
        if (!out->takes_text[role] && !out->takes_parts[role]) /* some render nothing without */
            ask_content(&p, out, (tg_role)role, true);
    }
    ask_calls(&p, out);
    tg_buf_deinit(&p.text);
    return p.status;
}
