/* SPDX-License-Identifier: Apache-2.0
 * chat.c - the templates of a model: kept by name, parsed at their first use, chosen, rendered. */
#include "chat/chat.h"

#include "base/mem.h"
#include "chat/capabilities.h"

#include <pthread.h>
#include <string.h>

typedef struct entry {
    const char *name;
    tg_str text;
    /* Filled under the lock at the first use; a failure stays. */
    tg_template *parsed;
    tg_template_capabilities capabilities;
    bool is_tried;
    tg_err error;
} entry;

struct tg_chat {
    tg_arena arena; /* names and texts */
    entry *entries;
    int32_t n_entries;
    json_t *tokens; /* variables of every rendering; owned */
    const char *name;
    pthread_mutex_t lock; /* of what an entry fills */
};

static const char default_name[] = "default";

static tg_status add_entry(tg_chat *c, const char *name, tg_str text, tg_err *e)
{
    char *bytes = tg_arena_copy_str(&c->arena, text.ptr, text.len);
    char *copy = tg_arena_copy_str(&c->arena, name, strlen(name));
    if (!bytes || !copy) return tg_fail_nomem(e, text.len, "a chat template");
    c->entries[c->n_entries++] = (entry){.name = copy, .text = {bytes, text.len}};
    return TG_OK;
}

static tg_status add_named(tg_chat *c, json_t *named, const char *source, tg_err *e)
{
    const char *name;
    json_t *text;
    json_object_foreach(named, name, text)
    {
        if (!json_is_string(text))
            return tg_fail(e, TG_E_CORRUPT, "%s: the chat template '%.60s' is no text", source,
                           name);
        if (strcmp(name, default_name) == 0 && c->n_entries > 0) continue;
        TG_TRY(add_entry(c, name, (tg_str){json_string_value(text), json_string_length(text)}, e));
    }
    return TG_OK;
}

static tg_status fill(tg_chat *c, tg_str text, tg_str named, const char *name, tg_err *e)
{
    json_t *others = NULL;
    c->tokens = json_object();
    c->name = tg_arena_copy_str(&c->arena, name, strlen(name));
    if (!c->tokens || !c->name) return tg_fail_nomem(e, strlen(name), "chat templates");
    if (named.len) TG_TRY(tg_json_parse(&others, named, name, e));
    tg_status s = TG_OK;
    if (others && !json_is_object(others))
        s = tg_fail(e, TG_E_CORRUPT, "%s: is no JSON object of chat templates", name);
    c->entries = TG_ARENA_ARRAY(&c->arena, entry, json_object_size(others) + 1);
    if (s == TG_OK && !c->entries) s = tg_fail_nomem(e, sizeof(entry), "chat templates");
    if (s == TG_OK && text.len) s = add_entry(c, default_name, text, e);
    if (s == TG_OK) s = add_named(c, others, name, e);
    json_decref(others);
    return s;
}

tg_status tg_chat_new(tg_chat **out, tg_str text, tg_str named, const char *name, tg_err *e)
{
    *out = NULL;
    tg_chat *c = TG_NEW(tg_chat);
    if (!c) return tg_fail_nomem(e, sizeof *c, "chat templates");
    pthread_mutex_init(&c->lock, NULL);
    tg_status s = fill(c, text, named, name, e);
    if (s == TG_OK)
        *out = c;
    else
        tg_chat_free(c);
    return s;
}

void tg_chat_free(tg_chat *c)
{
    if (!c) return;
    for (int32_t i = 0; i < c->n_entries; i++)
        tg_template_free(c->entries[i].parsed);
    json_decref(c->tokens);
    pthread_mutex_destroy(&c->lock);
    tg_arena_deinit(&c->arena);
    tg_mem_free(c);
}

tg_status tg_chat_set_token(tg_chat *c, const char *name, tg_str spelling, tg_err *e)
{
    if (json_object_set_new(c->tokens, name, json_stringn(spelling.ptr, spelling.len)) == 0)
        return TG_OK;
    return tg_fail_nomem(e, spelling.len, "a special token");
}

int32_t tg_chat_n_templates(const tg_chat *c)
{
    return c->n_entries;
}

const char *tg_chat_get_name(const tg_chat *c, int32_t i)
{
    TG_ASSERT(i >= 0 && i < c->n_entries);
    return c->entries[i].name;
}

tg_str tg_chat_get_text(const tg_chat *c, int32_t i)
{
    TG_ASSERT(i >= 0 && i < c->n_entries);
    return c->entries[i].text;
}

/* ---- choosing */

static entry *find_entry(tg_chat *c, const char *name)
{
    for (int32_t i = 0; i < c->n_entries; i++)
        if (strcmp(c->entries[i].name, name) == 0) return &c->entries[i];
    return NULL;
}

static tg_status fail_unknown(const tg_chat *c, const char *name, tg_err *e)
{
    tg_buf names = {0};
    for (int32_t i = 0; i < c->n_entries; i++)
        tg_buf_printf(&names, "%s%s", i ? ", " : "", c->entries[i].name);
    tg_status s =
        name ? tg_fail(e, TG_E_ARGUMENT, "%s: there is no chat template '%.60s'; there are: %s",
                       c->name, name, tg_buf_cstr(&names))
             : tg_fail(e, TG_E_ARGUMENT,
                       "%s: there are several chat templates and none is the default; name one "
                       "of: %s",
                       c->name, tg_buf_cstr(&names));
    tg_buf_deinit(&names);
    return s;
}

static tg_status choose(entry **out, tg_chat *c, const tg_conversation *q, tg_err *e)
{
    *out = NULL;
    if (c->n_entries == 0)
        return tg_fail(e, TG_E_UNSUPPORTED, "%s: the model has no chat template", c->name);
    if (q->template_name)
        *out = find_entry(c, q->template_name);
    else if (q->tools && !json_is_null(q->tools))
        *out = find_entry(c, "tool_use");
    if (!*out && !q->template_name) *out = find_entry(c, default_name);
    return *out ? TG_OK : fail_unknown(c, q->template_name, e);
}

/* Parses and asks, once for each template. */
static tg_status prepare(tg_chat *c, entry *x, tg_err *e)
{
    pthread_mutex_lock(&c->lock);
    if (!x->is_tried) {
        tg_status s = tg_template_load(&x->parsed, x->text, &x->error);
        if (s == TG_OK)
            s = tg_template_capabilities_find(&x->capabilities, x->parsed, c->tokens, &x->error);
        if (s != TG_OK) tg_err_context(&x->error, "%s: chat template '%s'", c->name, x->name);
        x->is_tried = s != TG_E_NOMEM;
        if (s == TG_E_NOMEM) {
            tg_template_free(x->parsed);
            x->parsed = NULL;
        }
    }
    tg_err error = x->error;
    if (!x->is_tried) x->error = (tg_err){0};
    pthread_mutex_unlock(&c->lock);
    return error.status == TG_OK ? TG_OK : tg_fail(e, error.status, "%s", error.msg);
}

tg_status tg_chat_check(tg_chat *c, tg_err *e)
{
    for (int32_t i = 0; i < c->n_entries; i++)
        TG_TRY(prepare(c, &c->entries[i], e));
    return TG_OK;
}

/* ---- rendering */

static tg_status check_list(const json_t *list, const char *name, tg_err *e)
{
    size_t i;
    const json_t *x;
    if (!list || json_is_null(list)) return TG_OK;
    if (!json_is_array(list)) return tg_fail(e, TG_E_ARGUMENT, "%s must be a list", name);
    json_array_foreach(list, i, x)
    {
        if (!json_is_object(x)) return tg_fail(e, TG_E_ARGUMENT, "%s[%zu] is no object", name, i);
    }
    return TG_OK;
}

static tg_status check_conversation(const tg_conversation *q, tg_err *e)
{
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    if (!json_is_array(q->messages) || json_array_size(q->messages) == 0)
        return tg_fail(e, TG_E_ARGUMENT, "messages must be a list of at least one message");
    TG_TRY(check_list(q->tools, "tools", e));
    TG_TRY(check_list(q->documents, "documents", e));
    if (q->kwargs && !json_is_object(q->kwargs))
        return tg_fail(e, TG_E_ARGUMENT, "template variables must be a JSON object");
    for (size_t i = 0; i < TG_COUNT(own); i++)
        if (json_object_get(q->kwargs, own[i]))
            return tg_fail(e, TG_E_ARGUMENT,
                           "'%s' is part of the conversation and cannot be a further variable",
                           own[i]);
    return TG_OK;
}

static bool set_or_null(json_t *context, const char *name, const json_t *value)
{
    /* Counting a reference is all that happens to the caller's value. */
    json_t *v = value ? json_incref((json_t *)(uintptr_t)value) : json_null();
    return json_object_set_new(context, name, v) == 0;
}

static tg_status make_context(json_t **out, const tg_chat *c, const tg_conversation *q,
                              json_t *messages, tg_err *e)
{
    *out = json_copy(c->tokens);
    bool is_made = *out != NULL;
    if (q->kwargs)
        is_made = is_made && json_object_update(*out, (json_t *)(uintptr_t)q->kwargs) == 0;
    is_made = is_made && set_or_null(*out, "messages", messages) &&
              set_or_null(*out, "tools", q->tools) &&
              set_or_null(*out, "documents", q->documents) &&
              json_object_set_new(*out, "add_generation_prompt",
                                  json_boolean(q->add_generation_prompt)) == 0;
    return is_made ? TG_OK : tg_fail_nomem(e, sizeof **out, "template variables");
}

tg_status tg_chat_render(tg_buf *out, tg_chat *c, const tg_conversation *q,
                         const tg_template_options *o, tg_err *e)
{
    entry *x;
    json_t *messages = NULL, *context = NULL;
    TG_TRY(choose(&x, c, q, e));
    TG_TRY(check_conversation(q, e));
    TG_TRY(prepare(c, x, e));
    tg_status s = tg_template_capabilities_shape(&messages, &x->capabilities, q->messages, e);
    if (s == TG_OK) s = make_context(&context, c, q, messages, e);
    tg_err why = {0};
    if (s == TG_OK) {
        s = tg_template_render(x->parsed, context, o, out, &why);
        /* The text of raise_exception stays as it is; the engine's own errors name a place. */
        bool is_ours = tg_str_has_prefix(tg_str_from_cstr(why.msg), TG_STR("template line "));
        if (is_ours) tg_err_context(&why, "%s: chat template '%s'", c->name, x->name);
        if (s != TG_OK) tg_fail(e, s, "%s", why.msg);
    }
    json_decref(context);
    json_decref(messages);
    return s;
}
