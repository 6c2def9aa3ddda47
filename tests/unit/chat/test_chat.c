/* SPDX-License-Identifier: Apache-2.0 Which template renders a conversation, and in what form the
 * template sees it. Expected texts are read off the short templates by hand; that they are
 * Jinja is shown in test_template. */
#include "base/file.h"
#include "base/mem.h"
#include "chat/chat.h"
#include "check.h"

#include <pthread.h>
#include <stdio.h>

static json_t *parse(const char *text)
{
    json_t *v = NULL;
    tg_err e = {0};
    if (text && tg_json_parse(&v, tg_str_from_cstr(text), "test", &e) != TG_OK)
        fail_msg("%s", e.msg);
    return v;
}

typedef struct asked {
    const char *messages, *tools, *documents, *kwargs, *name;
    bool has_no_prompt;
} asked;

/* The prompt, or NULL and an error; the text is kept until the next call. */
static const char *render(tg_chat *c, const asked *a, tg_err *e)
{
    static char text[65536];
    json_t *messages = parse(a->messages), *tools = parse(a->tools);
    json_t *documents = parse(a->documents), *kwargs = parse(a->kwargs);
    tg_conversation q = {messages, tools, documents, kwargs, a->name, !a->has_no_prompt};
    tg_buf b = {0};
    *e = (tg_err){0};
    tg_status s = tg_chat_render(&b, c, &q, NULL, e);
    assert_int_equal(s, e->status);
    snprintf(text, sizeof text, "%s", tg_buf_cstr(&b));
    tg_buf_deinit(&b);
    json_decref(messages);
    json_decref(tools);
    json_decref(documents);
    json_decref(kwargs);
    return s == TG_OK ? text : NULL;
}

static tg_chat *open_chat(const char *text, const char *named)
{
    tg_chat *c;
    tg_err e = {0};
    tg_status s = tg_chat_new(&c, tg_str_from_cstr(text), tg_str_from_cstr(named), "model", &e);
    if (s != TG_OK) fail_msg("%s", e.msg);
    return c;
}

#define HI    "[{\"role\": \"user\", \"content\": \"hi\"}]"
#define TOOLS "[{\"type\": \"function\", \"function\": {\"name\": \"f\"}}]"

/* Renders with a template of its own and compares; `want` begins with "!" where words of the error
 * are wanted. */
static void check(const char *source, const asked *a, const char *want)
{
    tg_err e;
    int64_t n_alive = tg_mem_n_alive();
    tg_chat *c = open_chat(source, "");
    const char *got = render(c, a, &e);
    if (*want == '!') {
        if (got || !strstr(e.msg, want + 1)) fail_msg("%s\n%s\n%s", source, want, e.msg);
    } else if (!got || strcmp(got, want) != 0) {
        fail_msg("%s\nwant %s\ngot  %s", source, want, got ? got : e.msg);
    }
    tg_chat_free(c);
    assert_int_equal(tg_mem_n_alive(), n_alive);
}

/* ---- which template */

static void tools_choose_the_tool_template_where_there_is_one(void **state)
{
    (void)state;
    tg_err e;
    tg_chat *c = open_chat("D{{ messages|length }}", "{\"rag\": \"R\", \"tool_use\": \"T\"}");
    assert_int_equal(tg_chat_n_templates(c), 3);
    assert_string_equal(tg_chat_get_name(c, 0), "default");
    assert_true(tg_str_is(tg_chat_get_text(c, 1), "R"));
    assert_string_equal(render(c, &(asked){.messages = HI}, &e), "D1");
    assert_string_equal(render(c, &(asked){.messages = HI, .tools = TOOLS}, &e), "T");
    /* As in transformers: an empty list is a list. */
    assert_string_equal(render(c, &(asked){.messages = HI, .tools = "[]"}, &e), "T");
    assert_string_equal(render(c, &(asked){.messages = HI, .name = "rag"}, &e), "R");
    assert_string_equal(render(c, &(asked){.messages = HI, .tools = TOOLS, .name = "default"}, &e),
                        "D1");
    assert_null(render(c, &(asked){.messages = HI, .name = "rga"}, &e));
    assert_int_equal(e.status, TG_E_ARGUMENT);
    assert_string_equal(
        e.msg, "model: there is no chat template 'rga'; there are: default, rag, tool_use");
    tg_chat_free(c);
    c = open_chat("D", "{\"rag\": \"R\"}");
    assert_string_equal(render(c, &(asked){.messages = HI, .tools = TOOLS}, &e), "D");
    tg_chat_free(c);
}

static void without_a_default_a_template_must_be_named(void **state)
{
    (void)state;
    tg_err e;
    tg_chat *c = open_chat("", "{\"rag\": \"R\", \"tool_use\": \"T\"}");
    assert_null(render(c, &(asked){.messages = HI}, &e));
    assert_non_null(strstr(e.msg, "none is the default; name one of: rag, tool_use"));
    assert_string_equal(render(c, &(asked){.messages = HI, .tools = TOOLS}, &e), "T");
    tg_chat_free(c);
    c = open_chat("", "");
    assert_null(render(c, &(asked){.messages = HI}, &e));
    assert_int_equal(e.status, TG_E_UNSUPPORTED);
    assert_string_equal(e.msg, "model: the model has no chat template");
    tg_chat_free(c);
}

static void a_template_that_does_not_parse_fails_when_used_and_leaves_the_others(void **state)
{
    (void)state;
    static const char *const broken[] = {"{% if x %}unclosed", "{{ x|no_such_filter }}"};
    for (size_t i = 0; i < TG_COUNT(broken); i++) {
        tg_err e;
        tg_chat *c = open_chat(broken[i], "{\"good\": \"G\"}");
        for (int k = 0; k < 2; k++) { /* the second time too */
            assert_null(render(c, &(asked){.messages = HI}, &e));
            assert_int_equal(e.status, TG_E_CORRUPT);
            assert_non_null(strstr(e.msg, "model: chat template 'default': template line 1, col"));
        }
        assert_string_equal(render(c, &(asked){.messages = HI, .name = "good"}, &e), "G");
        assert_int_equal(tg_chat_check(c, NULL), TG_E_CORRUPT);
        tg_chat_free(c);
    }
    tg_chat *c;
    tg_err e = {0};
    assert_int_equal(tg_chat_new(&c, TG_STR("x"), TG_STR("[1]"), "t.json", &e), TG_E_CORRUPT);
    e = (tg_err){0};
    assert_int_equal(tg_chat_new(&c, TG_STR("x"), TG_STR("{\"a\": 5}"), "t.json", &e),
                     TG_E_CORRUPT);
    assert_string_equal(e.msg, "t.json: the chat template 'a' is no text");
}

/* ---- variables */

static void variables_are_those_that_transformers_gives(void **state)
{
    (void)state;
    tg_err e;
    tg_chat *c = open_chat("{{ bos_token }}{{ tools is none }}{{ documents is none }}"
                           "{{ add_generation_prompt }}{{ x }}{{ eos_token is defined }}",
                           "");
    assert_int_equal(tg_chat_set_token(c, "bos_token", TG_STR("<s>"), NULL), TG_OK);
    assert_string_equal(render(c, &(asked){.messages = HI}, &e), "<s>TrueTrueTrueFalse");
    assert_string_equal(render(c,
                               &(asked){.messages = HI,
                                        .tools = TOOLS,
                                        .documents = "[]",
                                        .kwargs = "{\"x\": 1, \"bos_token\": \"B\"}",
                                        .has_no_prompt = true},
                               &e),
                        "BFalseFalseFalse1False");
    assert_string_equal(render(c, &(asked){.messages = HI, .tools = "null"}, &e),
                        "<s>TrueTrueTrueFalse");
    tg_chat_free(c);
}

static void what_a_request_gets_wrong_is_said_before_rendering(void **state)
{
    (void)state;
    static const struct {
        asked a;
        const char *want;
    } rows[] = {
        {{.messages = "[]"}, "!messages must be a list of at least one message"},
        {{.messages = "{}"}, "!messages must be a list"},
        {{.messages = "[{\"role\": \"user\"}, 5]"}, "!messages[1]: is no object"},
        {{.messages = HI, .tools = "{}"}, "!tools must be a list"},
        {{.messages = HI, .tools = "[{}, 1]"}, "!tools[1] is no object"},
        {{.messages = HI, .documents = "[\"x\"]"}, "!documents[0] is no object"},
        {{.messages = HI, .kwargs = "[]"}, "!template variables must be a JSON object"},
        {{.messages = HI, .kwargs = "{\"messages\": []}"},
         "!'messages' is part of the conversation"},
        {{.messages = HI, .kwargs = "{\"tools\": []}"}, "!'tools' is part of the conversation"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++)
        check("{{ messages[0].content }}", &rows[i].a, rows[i].want);
}

static void a_refusal_of_the_template_keeps_its_words(void **state)
{
    (void)state;
    tg_err e;
    tg_chat *c = open_chat("{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == "
                           "0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
                           "{{ m.content }}{% endfor %}",
                           "");
    const char *twice = "[{\"role\": \"user\", \"content\": \"a\"}, "
                        "{\"role\": \"user\", \"content\": \"b\"}]";
    assert_null(render(c, &(asked){.messages = twice}, &e));
    assert_int_equal(e.status, TG_E_ARGUMENT);
    assert_string_equal(e.msg, "roles must alternate");
    tg_chat_free(c);
}

/* ---- messages as transformers hands them over (5.24: _normalize_chat_messages, and
 * _alias_reasoning_fields) */

static void keys_that_are_null_are_dropped(void **state)
{
    (void)state;
    check("{% for m in messages %}{{ m|list|join(',') }};{% endfor %}",
          &(asked){.messages = "[{\"role\": \"user\", \"content\": null, \"name\": null, \"x\": 1},"
                               " {\"role\": \"assistant\", \"content\": \"\"}]"},
          "role,x;role,content;");
}

static void reasoning_is_found_under_each_of_its_names(void **state)
{
    (void)state;
    const char *source = "{{ messages[0] }}";
    check(source, &(asked){.messages = "[{\"role\": \"a\", \"reasoning\": \"r\"}]"},
          "{'thinking': 'r', 'role': 'a', 'reasoning': 'r', 'reasoning_content': 'r'}");
    check(source, &(asked){.messages = "[{\"reasoning_content\": \"r\", \"role\": \"a\"}]"},
          "{'thinking': 'r', 'reasoning_content': 'r', 'role': 'a'}");
    check(source,
          &(asked){.messages =
                       "[{\"role\": \"a\", \"thinking\": \"t\", \"reasoning_content\": null}]"},
          "{'thinking': 't', 'role': 'a', 'reasoning_content': 't'}");
    check(source,
          &(asked){.messages =
                       "[{\"role\": \"a\", \"thinking\": \"t\", \"reasoning_content\": \"r\"}]"},
          "{'thinking': 't', 'role': 'a', 'reasoning_content': 'r'}");
}

/* ---- content */

#define PARTS                                                                                      \
    "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"one\"}, "                \
    "{\"type\": \"text\", \"text\": \"two\"}]}]"

static const char takes_text[] = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
static const char adds_text[] = "{% for m in messages %}{{ '[' + m.content + ']' }}{% endfor %}";
static const char takes_parts[] = "{% for m in messages %}[{% for p in m.content %}"
                                  "{% if p.type == 'text' %}<{{ p.text }}>{% endif %}"
                                  "{% endfor %}]{% endfor %}";
static const char takes_both[] = "{% for m in messages %}[{% if m.content is string %}"
                                 "{{ m.content }}{% else %}{% for p in m.content %}<{{ p.text }}>"
                                 "{% endfor %}{% endif %}]{% endfor %}";

static void content_gets_the_form_that_the_template_takes(void **state)
{
    (void)state;
    check(takes_text, &(asked){.messages = PARTS}, "[one\ntwo]");
    check(adds_text, &(asked){.messages = PARTS}, "[one\ntwo]");
    check("{{ messages[0].content|tojson }}", &(asked){.messages = PARTS}, "\"one\\ntwo\"");
    check(takes_parts, &(asked){.messages = PARTS}, "[<one><two>]");
    check(takes_both, &(asked){.messages = PARTS}, "[<one><two>]");
    check(takes_text, &(asked){.messages = HI}, "[hi]");
    check(takes_parts, &(asked){.messages = HI}, "[<hi>]");
    check(takes_both, &(asked){.messages = HI}, "[hi]");
    check(takes_text, &(asked){.messages = "[{\"role\": \"user\", \"content\": []}]"}, "[]");
}

static void content_is_looked_at_for_each_role(void **state)
{
    (void)state;
    const char *source =
        "{% for m in messages %}{% if m.role == 'tool' %}<{{ m.content|tojson }}>"
        "{% elif m.content is string %}{{ m.content }}{% else %}"
        "{% for p in m.content %}({{ p.text }}){% endfor %}{% endif %}{% endfor %}";
    check(
        source,
        &(asked){.messages =
                     "[{\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"a\"}]}, "
                     "{\"role\": \"tool\", \"content\": [{\"type\": \"text\", \"text\": \"b\"}]}]"},
        "(a)<\"b\">");
}

static void parts_that_are_no_text_are_refused_with_their_place(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"[{\"type\": \"text\", \"text\": \"a\"}, {\"type\": \"image_url\"}]",
         "!messages[1]: content[1] is of type 'image_url', and only text is read"},
        {"[\"a\"]", "!messages[1]: content[0] is no object with a \"type\""},
        {"[{\"type\": \"text\"}]", "!messages[1]: content[0] has no \"text\""},
        {"[{\"type\": \"text\", \"text\": 5}]", "!messages[1]: content[0] has no \"text\""},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char messages[400];
        snprintf(
            messages, sizeof messages,
            "[{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": %s}]",
            rows[i][0]);
        check(takes_text, &(asked){.messages = messages}, rows[i][1]);
        check(takes_parts, &(asked){.messages = messages}, rows[i][1]);
    }
}

/* ---- tool calls */

#define CALL(content, arguments)                                                                   \
    "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", " content                \
    "\"tool_calls\": [{\"type\": \"function\", \"function\": {\"name\": \"f\", "                   \
    "\"arguments\": " arguments "}}]}]"

static const char wants_object[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
                                   "{{ c.function.name }} {{ c.function.arguments|tojson }}"
                                   "{% endfor %}{% endfor %}";
static const char walks_object[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
                                   "{% for k, v in c.function.arguments|items %}{{ k }}={{ v }};"
                                   "{% endfor %}{% endfor %}{% endfor %}";
static const char wants_json[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
                                 "{{ c.function.name + ' ' + c.function.arguments }}"
                                 "{% endfor %}{% endfor %}";
static const char wants_either[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
                                   "{{ c.function.arguments if c.function.arguments is string "
                                   "else c.function.arguments|tojson }}{% endfor %}{% endfor %}";

static void arguments_get_the_form_that_the_template_takes(void **state)
{
    (void)state;
    const char *text = CALL("", "\"{\\\"x\\\":1, \\\"y\\\": 0.1}\"");
    const char *object = CALL("", "{\"x\": 1, \"y\": 0.1}");
    check(wants_object, &(asked){.messages = text}, "f {\"x\": 1, \"y\": 0.1}");
    check(wants_object, &(asked){.messages = object}, "f {\"x\": 1, \"y\": 0.1}");
    check(walks_object, &(asked){.messages = text}, "x=1;y=0.1;");
    check(wants_json, &(asked){.messages = text}, "f {\"x\":1, \"y\": 0.1}");
    check(wants_json, &(asked){.messages = object}, "f {\"x\": 1, \"y\": 0.1}");
    /* Where both are taken nothing changes: the text a model wrote stays as it wrote it. */
    check(wants_either, &(asked){.messages = text}, "{\"x\":1, \"y\": 0.1}");
    check(wants_either, &(asked){.messages = object}, "{\"x\": 1, \"y\": 0.1}");
}

/* As transformers 5.24 renders it: the object as Python prints it. */
static void an_object_that_the_template_prints_stays_an_object(void **state)
{
    (void)state;
    static const char source[] = "{% for m in messages %}{% for c in m.tool_calls or [] %}"
                                 "({{ c.function.arguments }}){% endfor %}{% endfor %}";
    asked a = {.messages = CALL("", "{\"city\": \"Oslo\", \"n\": null}")};
    check(source, &a, "({'city': 'Oslo', 'n': None})");
    a.messages = CALL("", "\"{\\\"city\\\": \\\"Oslo\\\"}\"");
    check(source, &a, "({\"city\": \"Oslo\"})");
}

/* The engine's own errors; those of raise_exception keep their words. */
static void an_error_names_the_model_and_the_template(void **state)
{
    (void)state;
    asked a = {.messages = HI};
    check("{{ none + 'a' }}", &a,
          "!model: chat template 'default': template line 1, column 9: unsupported operand");
    check("{{ messages[0].x.y }}", &a,
          "!model: chat template 'default': template line 1, column 17: 'dict object'");
}

/* Python's json.loads: of a key that is there twice the last counts, a text may hold U+0000. */
static void conversations_are_read_as_python_reads_json(void **state)
{
    (void)state;
    json_t *messages;
    tg_err e = {0};
    tg_str text = TG_STR("[{\"role\": \"user\", \"content\": \"a\", \"content\": \"b\\u0000c\"}]");
    if (tg_json_parse_exact(&messages, text, "test", &e) != TG_OK) fail_msg("%s", e.msg);
    tg_chat *c = open_chat("{{ messages[0].content }}", "");
    tg_conversation q = {.messages = messages};
    tg_buf b = {0};
    if (tg_chat_render(&b, c, &q, NULL, &e) != TG_OK) fail_msg("%s", e.msg);
    assert_int_equal(b.len, 3);
    assert_memory_equal(b.ptr, "b\0c", 3);
    tg_buf_deinit(&b);
    tg_chat_free(c);
    json_decref(messages);
    messages = NULL;
    assert_int_equal(tg_json_parse_exact(&messages, TG_STR("{\"a\\u0000\": 1}"), "test", &e),
                     TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "a key holds the character \\u0000, which no key may"));
    e = (tg_err){0};
    assert_int_equal(tg_json_parse(&messages, TG_STR("[\"a\\u0000\"]"), "test", &e), TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "a string holds the character \\u0000"));
}

static void arguments_that_are_no_object_are_refused_or_stay_text(void **state)
{
    (void)state;
    static const char *const rows[] = {"\"{\\\"a\\\":\"", "\"null\"", "\"[1]\""};
    static const char *const texts[] = {"{\"a\":", "null", "[1]"};
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char messages[400];
        snprintf(messages, sizeof messages, CALL("", "%s"), rows[i]);
        check(
            wants_object, &(asked){.messages = messages},
            "!messages[1]: the arguments of tool_calls[0] are no JSON object, which this template "
            "needs");
        check(wants_either, &(asked){.messages = messages}, texts[i]);
    }
    check(wants_object, &(asked){.messages = CALL("", "\"\"")}, "f {}");
    check(wants_either, &(asked){.messages = CALL("", "\"\"")}, "");
}

static void a_message_that_only_calls_has_the_content_its_template_takes(void **state)
{
    (void)state;
    const char *rows[][2] = {
        /* absent where that is taken */
        {"{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments|tojson }}"
         "{{ 'content' in m }}{% endfor %}{% endfor %}",
         "{}False"},
        /* "is none" is false of what is not there */
        {"{% for m in messages %}{% if m.content is none %}{% for c in m.tool_calls %}"
         "{{ c.function.arguments|tojson }}{% endfor %}{% else %}{{ m.content + '.' }}{% endif %}"
         "{% endfor %}",
         "u.{}"},
        {"{% for m in messages %}{{ m.content + '.' }}{% for c in m.tool_calls or [] %}"
         "{{ c.function.arguments|tojson }}{% endfor %}{% endfor %}",
         "u..{}"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        check(rows[i][0], &(asked){.messages = CALL("\"content\": null, ", "{}")}, rows[i][1]);
        check(rows[i][0], &(asked){.messages = CALL("", "{}")}, rows[i][1]);
    }
}

/* ---- the templates that models ship (tools/models/fetch-templates) */

static char *load_real(const char *name)
{
    char path[512];
    const char *dir = getenv("TG_TEMPLATES"), *models = getenv("TG_MODELS");
    tg_buf b = {0};
    snprintf(path, sizeof path, "%s%s/%s.jinja",
             dir      ? dir
             : models ? models
                      : "models",
             dir ? "" : "/templates", name);
    if (!tg_path_is_file(path) || tg_file_load(&b, path, 1 << 20, NULL) != TG_OK) return NULL;
    char *text = strdup(tg_buf_cstr(&b));
    tg_buf_deinit(&b);
    return text;
}

/* Renders both; 1 where both give the same text, 0 where neither gives one. */
static int compare_forms(tg_chat *c, const char *name, const char *one, const char *other)
{
    tg_err e, e2;
    asked a = {.messages = one, .tools = TOOLS}, b = {.messages = other, .tools = TOOLS};
    const char *text = render(c, &a, &e);
    char *kept = text ? strdup(text) : NULL;
    text = render(c, &b, &e2);
    if (!kept != !text || (kept && strcmp(kept, text) != 0))
        fail_msg("%s\n--- %s\n%s\n--- %s\n%s", name, one, kept ? kept : e.msg, other,
                 text ? text : e2.msg);
    bool is_text = kept != NULL;
    free(kept);
    return is_text;
}

#define TURN(content) "[{\"role\": \"user\", \"content\": " content "}]"
#define TURNS(content)                                                                             \
    "[{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": " content   \
    "}, {\"role\": \"user\", \"content\": \"v\"}]"
#define PART "[{\"type\": \"text\", \"text\": \"some text\"}]"

static void both_forms_of_a_message_give_one_text_in_every_template_that_models_ship(void **state)
{
    (void)state;
    json_t *real, *row;
    const char *name;
    int n_templates = 0, n_texts = 0;
    assert_int_equal(tg_json_load(&real, "tests/golden/template/real.json", NULL), TG_OK);
    json_object_foreach(real, name, row)
    {
        char *source = load_real(name);
        if (!source) continue;
        tg_chat *c = open_chat(source, "");
        n_texts += compare_forms(c, name, TURN("\"some text\""), TURN(PART));
        n_texts += compare_forms(c, name, TURNS("\"some text\""), TURNS(PART));
        n_texts += compare_forms(c, name, CALL("", "{\"a\": [1, 0.1, true, null]}"),
                                 CALL("", "\"{\\\"a\\\": [1, 0.1, true, null]}\""));
        n_texts += compare_forms(c, name, CALL("\"content\": null, ", "{\"a\": 1}"),
                                 CALL("", "{\"a\": 1}"));
        tg_chat_free(c);
        free(source);
        n_templates++;
    }
    json_decref(real);
    if (n_templates == 0) {
        fprintf(stderr, "the templates of models are not here: see tools/models/fetch-templates\n");
        skip();
    }
    printf("%d templates, %d of %d pairs are texts\n", n_templates, n_texts, n_templates * 4);
    assert_true(n_texts > n_templates * 3);
}

/* ---- threads, memory */

static void *render_often(void *chat)
{
    for (int i = 0; i < 200; i++) {
        tg_err e;
        tg_buf b = {0};
        json_t *messages = json_pack("[{s:s, s:[{s:s, s:s}]}]", "role", "user", "content", "type",
                                     "text", "text", "hi");
        tg_conversation q = {.messages = messages};
        bool is_right =
            tg_chat_render(&b, chat, &q, NULL, &e) == TG_OK && strcmp(tg_buf_cstr(&b), "[hi]") == 0;
        tg_buf_deinit(&b);
        json_decref(messages);
        if (!is_right) return chat;
    }
    return NULL;
}

static void threads_share_the_templates_of_a_model(void **state)
{
    (void)state;
    pthread_t threads[4];
    tg_chat *c = open_chat(takes_text, "");
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_often, c), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    tg_chat_free(c);
}

/* Every allocation refused in turn: an error or the right text, no crash, nothing left behind. */
static void a_refused_allocation_is_an_error(void **state)
{
    (void)state;
    json_t *messages = parse(PARTS);
    int64_t n_alive = tg_mem_n_alive();
    tg_status s = TG_E_NOMEM;
    int n = 0;
    for (; s != TG_OK; n += 1 + n / 40) {
        tg_chat *c = NULL;
        tg_buf b = {0};
        tg_err e = {0};
        tg_conversation q = {.messages = messages};
        tg_mem_fail_after(n);
        s = tg_chat_new(&c, tg_str_from_cstr(takes_text), TG_STR("{\"a\": \"b\"}"), "m", &e);
        if (s == TG_OK) s = tg_chat_set_token(c, "bos_token", TG_STR("<s>"), &e);
        if (s == TG_OK) s = tg_chat_render(&b, c, &q, NULL, &e);
        tg_mem_fail_after(-1);
        if (s == TG_OK) assert_string_equal(tg_buf_cstr(&b), "[one\ntwo]");
        tg_buf_deinit(&b);
        tg_chat_free(c);
        assert_int_equal(tg_mem_n_alive(), n_alive);
        assert_true(n < 100000);
    }
    assert_true(n > 100);
    json_decref(messages);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tools_choose_the_tool_template_where_there_is_one),
        cmocka_unit_test(without_a_default_a_template_must_be_named),
        cmocka_unit_test(a_template_that_does_not_parse_fails_when_used_and_leaves_the_others),
        cmocka_unit_test(variables_are_those_that_transformers_gives),
        cmocka_unit_test(what_a_request_gets_wrong_is_said_before_rendering),
        cmocka_unit_test(a_refusal_of_the_template_keeps_its_words),
        cmocka_unit_test(keys_that_are_null_are_dropped),
        cmocka_unit_test(reasoning_is_found_under_each_of_its_names),
        cmocka_unit_test(content_gets_the_form_that_the_template_takes),
        cmocka_unit_test(content_is_looked_at_for_each_role),
        cmocka_unit_test(parts_that_are_no_text_are_refused_with_their_place),
        cmocka_unit_test(arguments_get_the_form_that_the_template_takes),
        cmocka_unit_test(an_object_that_the_template_prints_stays_an_object),
        cmocka_unit_test(an_error_names_the_model_and_the_template),
        cmocka_unit_test(conversations_are_read_as_python_reads_json),
        cmocka_unit_test(arguments_that_are_no_object_are_refused_or_stay_text),
        cmocka_unit_test(a_message_that_only_calls_has_the_content_its_template_takes),
        cmocka_unit_test(both_forms_of_a_message_give_one_text_in_every_template_that_models_ship),
        cmocka_unit_test(threads_share_the_templates_of_a_model),
        cmocka_unit_test(a_refused_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
