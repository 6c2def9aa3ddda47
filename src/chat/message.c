/* SPDX-License-Identifier: Apache-2.0
 * message.c - messages brought into the form that a template takes.
 *
 * The list of the request is never changed: every message is copied one level deep, and what is
 * replaced below is made new. */
#include "chat/capabilities.h"

#include <string.h>

/* Where a message stands in the request's list, for errors. */
typedef struct place {
    size_t i;
    const tg_template_capabilities *h;
    tg_err *e;
} place;

static tg_status refuse(const place *at, const char *what)
{
    return tg_fail(at->e, TG_E_ARGUMENT, "messages[%zu]: %s", at->i, what);
}

static tg_status set_new(json_t *object, const char *key, json_t *value, tg_err *e)
{
    if (json_object_set_new(object, key, value) == 0) return TG_OK;
    return tg_fail_nomem(e, sizeof value, "a message");
}

static tg_role role_of(const json_t *message)
{
    static const struct {
        const char *name;
        tg_role role;
    } rows[] = {
        {"system", TG_ROLE_SYSTEM},
        {"developer", TG_ROLE_SYSTEM},
        {"assistant", TG_ROLE_ASSISTANT},
        {"tool", TG_ROLE_TOOL},
    };
    const char *name = json_string_value(json_object_get(message, "role"));
    for (size_t i = 0; name && i < TG_COUNT(rows); i++)
        if (strcmp(rows[i].name, name) == 0) return rows[i].role;
    return TG_ROLE_USER;
}

/* ---- as transformers does */

/* Without the keys that are null, and with the names that reasoning has had. */
static tg_status copy_message(json_t **out, const json_t *from, tg_err *e)
{
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    json_t *reasoning = NULL, *value;
    const char *key;
    for (size_t i = 0; !reasoning && i < TG_COUNT(names); i++) {
        reasoning = json_object_get(from, names[i]);
        if (json_is_null(reasoning)) reasoning = NULL;
    }
    *out = json_object();
    bool is_made = *out != NULL;
    if (reasoning) is_made = is_made && json_object_set(*out, "thinking", reasoning) == 0;
    json_object_foreach((json_t *)(uintptr_t)from, key, value)
    {
        if (is_made && !json_is_null(value)) is_made = json_object_set(*out, key, value) == 0;
    }
    if (reasoning) is_made = is_made && json_object_set(*out, "reasoning_content", reasoning) == 0;
    return is_made ? TG_OK : tg_fail_nomem(e, sizeof *from, "a message");
}

/* ---- content */

/* The text of part k, or what is wrong with it. */
static tg_status get_part(tg_str *out, const place *at, const json_t *content, size_t k)
{
    const json_t *part = json_array_get(content, k), *text = json_object_get(part, "text");
    const char *type = json_string_value(json_object_get(part, "type"));
    if (!json_is_object(part) || !type)
        return tg_fail(at->e, TG_E_ARGUMENT,
                       "messages[%zu]: content[%zu] is no object with a \"type\"", at->i, k);
    if (strcmp(type, "text") != 0)
        return tg_fail(at->e, TG_E_ARGUMENT,
                       "messages[%zu]: content[%zu] is of type '%.60s', and only text is read",
                       at->i, k, type);
    if (!json_is_string(text))
        return tg_fail(at->e, TG_E_ARGUMENT, "messages[%zu]: content[%zu] has no \"text\"", at->i,
                       k);
    *out = (tg_str){json_string_value(text), json_string_length(text)};
    return TG_OK;
}

static tg_status join_parts(const place *at, json_t *message, const json_t *content)
{
    tg_buf text = {0};
    tg_str part;
    tg_status s = TG_OK;
    for (size_t k = 0; k < json_array_size(content) && s == TG_OK; k++) {
        s = get_part(&part, at, content, k);
        if (s == TG_OK && k > 0) tg_buf_add_byte(&text, '\n');
        if (s == TG_OK) tg_buf_add_str(&text, part);
    }
    if (s == TG_OK) s = tg_buf_check(&text, at->e);
    if (s == TG_OK)
        s = set_new(message, "content", json_stringn(tg_buf_cstr(&text), text.len), at->e);
    tg_buf_deinit(&text);
    return s;
}

static tg_status shape_content(const place *at, json_t *message)
{
    tg_role role = role_of(message);
    json_t *content = json_object_get(message, "content");
    bool takes_text = at->h->takes_text[role], takes_parts = at->h->takes_parts[role];
    if (json_is_array(content)) {
        tg_str part;
        for (size_t k = 0; k < json_array_size(content); k++)
            TG_TRY(get_part(&part, at, content, k));
        return takes_text && !takes_parts ? join_parts(at, message, content) : TG_OK;
    }
    if (!json_is_string(content) || takes_text || !takes_parts) return TG_OK;
    json_t *part = json_pack("{s:s, s:O}", "type", "text", "text", content);
    return set_new(message, "content", json_pack("[o]", part), at->e);
}

/* ---- tool calls */

/* json.dumps of the arguments, as templates write them. */
static tg_status print_arguments(json_t **out, const place *at, json_t *arguments)
{
    tg_template *t;
    tg_buf text = {0};
    TG_TRY(tg_template_load(&t, TG_STR("{{ arguments|tojson }}"), at->e));
    json_t *context = json_pack("{s:O}", "arguments", arguments);
    tg_status s = context ? tg_template_render(t, context, NULL, &text, at->e)
                          : tg_fail_nomem(at->e, sizeof *context, "arguments");
    if (s == TG_OK) s = tg_buf_check(&text, at->e);
    if (s == TG_OK) *out = json_stringn(tg_buf_cstr(&text), text.len);
    json_decref(context);
    tg_buf_deinit(&text);
    tg_template_free(t);
    return s;
}

/* Arguments as a model wrote them; an empty text is a call without any. */
static tg_status parse_arguments(json_t **out, const place *at, const json_t *arguments, size_t k)
{
    tg_str text = {json_string_value(arguments), json_string_length(arguments)};
    tg_err why = {0};
    bool is_empty = text.len == 0;
    tg_status s = tg_json_parse_exact(out, is_empty ? TG_STR("{}") : text, "they", &why);
    if (s == TG_OK && json_is_object(*out)) return TG_OK;
    json_decref(*out);
    *out = NULL;
    return tg_fail(at->e, TG_E_ARGUMENT,
                   "messages[%zu]: the arguments of tool_calls[%zu] are no JSON object, which this "
                   "template needs%s%s",
                   at->i, k, s == TG_OK ? "" : ": ", s == TG_OK ? "" : why.msg);
}

/* Sets the arguments of call k in the form the template takes; `function` is a fresh copy. */
static tg_status shape_arguments(const place *at, json_t *function, size_t k)
{
    json_t *arguments = json_object_get(function, "arguments"), *other = NULL;
    if (json_is_string(arguments) && at->h->takes_object && !at->h->takes_json)
        TG_TRY(parse_arguments(&other, at, arguments, k));
    else if (json_is_object(arguments) && at->h->takes_json && !at->h->takes_object)
        TG_TRY(print_arguments(&other, at, arguments));
    else
        return TG_OK;
    return set_new(function, "arguments", other, at->e);
}

/* Calls are {"function": {"name", "arguments"}} in the API, and bare in some templates' world. */
static tg_status shape_call(const place *at, json_t *calls, size_t k)
{
    json_t *call = json_copy(json_array_get(calls, k));
    if (!call || json_array_set_new(calls, k, call) != 0)
        return tg_fail_nomem(at->e, sizeof *call, "a tool call");
    json_t *function = json_object_get(call, "function");
    if (!function) return shape_arguments(at, call, k);
    function = json_copy(function);
    if (!function || json_object_set_new(call, "function", function) != 0)
        return tg_fail_nomem(at->e, sizeof *call, "a tool call");
    return shape_arguments(at, function, k);
}

static tg_status shape_calls(const place *at, json_t *message)
{
    json_t *calls = json_object_get(message, "tool_calls");
    if (!calls || json_array_size(calls) == 0) return TG_OK;
    calls = json_copy(calls);
    TG_TRY(set_new(message, "tool_calls", calls, at->e));
    for (size_t k = 0; k < json_array_size(calls); k++)
        TG_TRY(shape_call(at, calls, k));
    if (json_object_get(message, "content") || at->h->blank == TG_BLANK_ABSENT) return TG_OK;
    return set_new(message, "content",
                   at->h->blank == TG_BLANK_NULL ? json_null() : json_string(""), at->e);
}

tg_status tg_template_capabilities_shape(json_t **out, const tg_template_capabilities *h,
                                         const json_t *messages, tg_err *e)
{
    place at = {.h = h, .e = e};
    json_t *list = json_array();
    tg_status s = list ? TG_OK : tg_fail_nomem(e, sizeof *list, "messages");
    for (; s == TG_OK && at.i < json_array_size(messages); at.i++) {
        const json_t *from = json_array_get(messages, at.i);
        json_t *message = NULL;
        if (!json_is_object(from)) {
            s = refuse(&at, "is no object");
            break;
        }
        s = copy_message(&message, from, e);
        if (s == TG_OK && json_array_append(list, message) != 0)
            s = tg_fail_nomem(e, sizeof *message, "a message");
        if (s == TG_OK) s = shape_content(&at, message);
        if (s == TG_OK) s = shape_calls(&at, message);
        json_decref(message);
    }
    if (s == TG_OK)
        *out = list;
    else
        json_decref(list);
    return s;
}
