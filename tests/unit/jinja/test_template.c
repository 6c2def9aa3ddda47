/* SPDX-License-Identifier: Apache-2.0 */
#include "base/file.h"
#include "base/mem.h"
#include "check.h"
#include "format/gguf.h"
#include "jinja/template.h"

#include <pthread.h>
#include <stdio.h>

/* 2025-03-07 09:05:03, the time of the goldens. */
static const tg_template_clock golden_clock = {.utc_s = 1741338303};

/* Renders; the text, or NULL after an error, which is in *e. The caller frees *b. */
static const char *render(tg_buf *b, const char *source, const json_t *context, tg_err *e)
{
    tg_template *t;
    tg_template_options o = {.clock = &golden_clock};
    *b = (tg_buf){0};
    *e = (tg_err){0};
    if (tg_template_load(&t, tg_str_from_cstr(source), e) != TG_OK) return NULL;
    tg_status s = tg_template_render(t, context, &o, b, e);
    tg_template_free(t);
    assert_int_equal(s, e->status);
    if (s != TG_OK) assert_int_equal(b->len, 0);
    return s == TG_OK ? tg_buf_cstr(b) : NULL;
}

/* Compares with what the reference gave; returns 1 and says so when it differs. */
static int compare(const char *name, const char *source, const json_t *context, const json_t *want)
{
    tg_buf b;
    tg_err e;
    const json_t *text = json_object_get(want, "output");
    const char *error = json_string_value(json_object_get(want, "error"));
    int64_t n_alive = tg_mem_n_alive();
    const char *got = render(&b, source, context, &e);
    bool is_right;
    if (text)
        is_right = got && b.len == json_string_length(text) &&
                   memcmp(got, json_string_value(text), b.len) == 0;
    else
        is_right = !got && (!*error || strcmp(error, e.msg) == 0);
    if (!is_right)
        fprintf(stderr, "--- %s: %s\n  want %s%s\n  got  %s%s\n", name, source,
                text ? "" : "an error: ", text ? json_string_value(text) : error,
                got ? "" : "an error: ", got ? got : e.msg);
    tg_buf_deinit(&b);
    assert_int_equal(tg_mem_n_alive(), n_alive);
    return is_right ? 0 : 1;
}

static json_t *load_golden(const char *path)
{
    json_t *v;
    tg_err e = {0};
    if (tg_json_load(&v, path, &e) != TG_OK) fail_msg("%s", e.msg);
    return v;
}

static void every_piece_of_the_language_renders_as_jinja2_renders_it(void **state)
{
    (void)state;
    json_t *g = load_golden("tests/golden/template/snippets.json"), *row;
    size_t i;
    int n_wrong = 0;
    json_array_foreach(json_object_get(g, "cases"), i, row) n_wrong +=
        compare("snippet", json_string_value(json_object_get(row, "template")),
                json_object_get(g, "context"), row);
    assert_true(i > 700);
    json_decref(g);
    assert_int_equal(n_wrong, 0);
}

static char *copy_text(tg_str s)
{
    char *text = calloc(1, s.len + 1);
    assert_non_null(text);
    memcpy(text, s.ptr, s.len);
    return text;
}

static char *load_gguf_template(const char *path)
{
    tg_file_map m;
    tg_arena a = {0};
    tg_gguf g;
    tg_str s;
    tg_err e = {0};
    if (tg_file_map_open(&m, path, &e) != TG_OK) return NULL;
    assert_int_equal(tg_gguf_parse(&g, &a, m.data, m.n_bytes, path, &e), TG_OK);
    assert_int_equal(tg_gguf_get_str(&g, "tokenizer.chat_template", &s, NULL, &e), TG_OK);
    char *text = copy_text(s);
    tg_arena_deinit(&a);
    tg_file_map_close(&m);
    return text;
}

static char *load_config_template(const char *path)
{
    json_t *config;
    tg_str s = {0};
    bool is_present;
    if (tg_json_load(&config, path, NULL) != TG_OK) return NULL;
    assert_int_equal(tg_json_get_str(config, "chat_template", &s, &is_present, path, NULL), TG_OK);
    assert_true(is_present);
    char *text = copy_text(s);
    json_decref(config);
    return text;
}

/* The text of a model's own template: SmolLM2's from its GGUF file (tools/models/fetch-models),
 * Gemma 3's from its vocabulary (tools/models/fetch-vocabs). NULL when that is not here; heap, ends
 * in zero. */
static char *load_model_template(const char *name)
{
    char path[512];
    const char *models = getenv("TG_MODELS"), *vocabs = getenv("TG_VOCABS");
    if (!models) models = "models";
    if (strcmp(name, "smollm2") == 0) {
        snprintf(path, sizeof path, "%s/smollm2-135m-instruct.gguf", models);
        return load_gguf_template(path);
    }
    if (vocabs)
        snprintf(path, sizeof path, "%s/%s/tokenizer_config.json", vocabs, name);
    else
        snprintf(path, sizeof path, "%s/vocabs/%s/tokenizer_config.json", models, name);
    return load_config_template(path);
}

static int compare_chats(const json_t *g, const char *name, const char *source)
{
    const char *key;
    json_t *want;
    int n_wrong = 0;
    json_t *results = json_object_get(json_object_get(g, "results"), name);
    assert_true(json_object_size(results) >= 40);
    json_object_foreach(results, key, want) n_wrong +=
        compare(key, source, json_object_get(json_object_get(g, "conversations"), key), want);
    return n_wrong;
}

static void whole_templates_render_every_conversation_as_jinja2_does(void **state)
{
    (void)state;
    json_t *g = load_golden("tests/golden/template/chats.json"), *source;
    const char *name;
    int n_wrong = 0, n_templates = 0;
    json_object_foreach(json_object_get(g, "templates"), name, source)
    {
        if (json_is_null(source)) continue;
        n_wrong += compare_chats(g, name, json_string_value(source));
        n_templates++;
    }
    json_decref(g);
    assert_int_equal(n_templates, 4);
    assert_int_equal(n_wrong, 0);
}

static void check_model(const char *name)
{
    char *source = load_model_template(name);
    if (!source) {
        fprintf(
            stderr,
            "the template of %s is not here: see tools/models/fetch-models, tools/models/fetch-vocabs\n",
            name);
        skip();
    }
    json_t *g = load_golden("tests/golden/template/chats.json");
    int n_wrong = compare_chats(g, name, source);
    json_decref(g);
    free(source);
    assert_int_equal(n_wrong, 0);
}

static void the_template_of_smollm2_renders_every_conversation_as_jinja2_does(void **state)
{
    (void)state;
    check_model("smollm2");
}

static void the_template_of_gemma3_renders_every_conversation_as_jinja2_does(void **state)
{
    (void)state;
    check_model("gemma3");
}

/* ---- the templates that models ship (tools/models/fetch-templates): known here by digests only */

static void print_digest(char *out, size_t size, const char *prefix, tg_str s)
{
    uint64_t h = 0xcbf29ce484222325u; /* FNV-1a */
    for (size_t i = 0; i < s.len; i++)
        h = (h ^ (unsigned char)s.ptr[i]) * 0x100000001b3u;
    snprintf(out, size, "%s%zu-%016llx", prefix, s.len, (unsigned long long)h);
}

/* Counts a difference and says which. */
static int compare_digest(const char *name, const char *key, const char *source,
                          const json_t *context, const char *want)
{
    tg_buf b;
    tg_err e;
    char got[64] = "";
    const char *text = render(&b, source, context, &e);
    if (text)
        print_digest(got, sizeof got, "", tg_buf_str(&b));
    else if (*want == '!')
        print_digest(got, sizeof got, "!", tg_str_from_cstr(e.msg));
    bool is_right = strcmp(got, want) == 0;
    if (!is_right)
        fprintf(stderr, "--- %s, %s: want %s, got %s: %s\n", name, key, want, got,
                text ? text : e.msg);
    tg_buf_deinit(&b);
    return is_right ? 0 : 1;
}

static char *load_real_template(const char *name, const char *digest)
{
    char path[512], found[64];
    const char *dir = getenv("TG_TEMPLATES"), *models = getenv("TG_MODELS");
    tg_buf b = {0};
    snprintf(path, sizeof path, "%s%s/%s.jinja",
             dir      ? dir
             : models ? models
                      : "models",
             dir ? "" : "/templates", name);
    if (!tg_path_is_file(path)) return NULL;
    assert_int_equal(tg_file_load(&b, path, 1 << 20, NULL), TG_OK);
    print_digest(found, sizeof found, "", tg_buf_str(&b));
    assert_string_equal(found, digest);
    char *text = copy_text(tg_buf_str(&b));
    tg_buf_deinit(&b);
    return text;
}

static void templates_that_models_ship_render_every_conversation_as_jinja2_does(void **state)
{
    (void)state;
    json_t *chats = load_golden("tests/golden/template/chats.json"), *row, *context;
    json_t *real = load_golden("tests/golden/template/real.json");
    const char *name, *key;
    int n_templates = 0, n_wrong = 0, n_compared = 0, n_texts = 0;
    json_object_foreach(real, name, row)
    {
        char *source = load_real_template(name, json_string_value(json_object_get(row, "source")));
        if (!source) continue;
        const json_t *results = json_object_get(row, "results");
        size_t i = 0;
        json_object_foreach(json_object_get(chats, "conversations"), key, context)
        {
            const char *want = json_string_value(json_array_get(results, i++));
            n_wrong += compare_digest(name, key, source, context, want);
            n_texts += *want && *want != '!';
        }
        assert_int_equal(i, json_array_size(results));
        n_compared += (int)i;
        n_templates++;
        free(source);
    }
    size_t n_known = json_object_size(real);
    json_decref(real);
    json_decref(chats);
    if (n_templates == 0) {
        fprintf(stderr, "the templates of models are not here: see tools/models/fetch-templates\n");
        skip();
    }
    printf("%d templates, %d renderings, %d of them texts\n", n_templates, n_compared, n_texts);
    assert_int_equal(n_templates, n_known);
    assert_true(n_templates >= 25 && n_compared >= n_templates * 40);
    assert_int_equal(n_wrong, 0);
}

/* ---- errors */

/* The words are jinja2's and Python's. */
static void errors_name_types_as_python_does(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{{ none + 'a' }}", "unsupported operand type(s) for +: 'NoneType' and 'str'"},
        {"{{ 'a' + none }}", "can only concatenate str (not \"NoneType\") to str"},
        {"{{ none|length }}", "object of type 'NoneType' has no len()"},
        {"{{ 1 < none }}", "'<' not supported between instances of 'int' and 'NoneType'"},
        {"{% for x in none %}{% endfor %}", "'NoneType' object is not iterable"},
        {"{{ none() }}", "'NoneType' object is not callable"},
        {"{{ none.x.y }}", ": 'None' has no attribute 'x'"},
        {"{{ none[0].a }}", ": None has no element 0"},
        {"{{ [1].x.y }}", ": 'list object' has no attribute 'x'"},
        {"{{ {}.keys() + 1 }}", "for +: 'dict_keys' and 'int'"},
        {"{{ {}.values() < 1 }}", "instances of 'dict_values' and 'int'"},
        {"{{ ({}.items()[0]).x }}", ": dict_items object has no element 0"},
        {"{{ ([1]|reverse) + 1 }}", "for +: 'list_reverseiterator' and 'int'"},
        {"{{ [1]|map('upper') + 1 }}", "for +: 'generator' and 'int'"},
        {"{% block a %}{% endblock %}{% block a %}{% endblock %}", "block 'a' defined twice"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf b;
        tg_err e;
        assert_null(render(&b, rows[i][0], NULL, &e));
        if (!strstr(e.msg, rows[i][1])) fail_msg("%s: %s", rows[i][0], e.msg);
        tg_buf_deinit(&b);
    }
}

/* Features of jinja2 3.1 and transformers that are refused, as docs/templates.md lists them. */
static void what_the_page_lists_is_refused_by_name(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"filesizeformat", "{{ 1|%s }}"},
        {"pprint", "{{ 1|%s }}"},
        {"random", "{{ [1]|%s }}"},
        {"striptags", "{{ 'a'|%s }}"},
        {"urlize", "{{ 'a'|%s }}"},
        {"wordwrap", "{{ 'a'|%s }}"},
        {"xmlattr", "{{ {}|%s }}"},
        {"cycler", "{{ %s(1) }}"},
        {"joiner", "{{ %s() }}"},
        {"lipsum", "{{ %s() }}"},
        {"isidentifier", "{{ 'a'.%s() }}"},
        {"encode", "{{ 'a'.%s() }}"},
        {"format_map", "{{ 'a'.%s({}) }}"},
        {"maketrans", "{{ 'a'.%s({}) }}"},
        {"as_integer_ratio", "{{ (1).%s() }}"},
        {"to_bytes", "{{ (1).%s() }}"},
        {"from_bytes", "{{ (1).%s() }}"},
        {"hex", "{{ (1.5).%s() }}"},
        {"fromhex", "{{ (1.5).%s('1') }}"},
        {"isdisjoint", "{{ {}.keys().%s([]) }}"},
        {"include", "{%% %s 'x' %%}"},
        {"import", "{%% %s 'x' as y %%}"},
        {"from", "{%% %s 'x' import y %%}"},
        {"extends", "{%% %s 'x' %%}"},
        {"autoescape", "{%% %s true %%}{%% endautoescape %%}"},
    };
    tg_buf page = {0};
    assert_int_equal(tg_file_load(&page, "docs/templates.md", 1 << 20, NULL), TG_OK);
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        char source[200], quoted[64];
        tg_buf b;
        tg_err e;
        snprintf(source, sizeof source, rows[i][1], rows[i][0]);
        assert_null(render(&b, source, NULL, &e));
        snprintf(quoted, sizeof quoted, "'%s' is not built", rows[i][0]);
        if (!strstr(e.msg, quoted)) fail_msg("%s: %s", source, e.msg);
        snprintf(quoted, sizeof quoted, "`%s`", rows[i][0]);
        if (!strstr(tg_buf_cstr(&page), quoted)) fail_msg("the page lacks %s", quoted);
        tg_buf_deinit(&b);
    }
    tg_buf_deinit(&page);
}

static void what_is_not_built_is_refused_by_name_with_its_place(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"a\n{{ x|urlize }}", "line 2, column 6: the filter 'urlize'"},
        {"{{ x|pprint }}", "the filter 'pprint'"},
        {"{{ 'x'.encode() }}", "the method 'encode'"},
        {"{{ cycler(1) }}", "the function 'cycler'"},
        {"{{ self }}", "printing a value of type 'function'"},
        {"{% include 'x' %}", "the tag 'include'"},
        {"é{% autoescape true %}{% endautoescape %}", "line 1, column 5: the tag 'autoescape'"},
        {"{{ 99999999999999999999 }}", "does not fit 64 bits"},
        {"{{ 9223372036854775807 + 1 }}", "does not fit 64 bits"},
        {"{{ -1 * (-9223372036854775807 - 1) }}", "does not fit 64 bits"},
        {"{{ 1e30|int }}", "does not fit 64 bits"},
        {"{{ [1]|map('string') }}", "printing a value of type 'generator'"},
        {"{{ '{:>5}'.format(1) }}", "the format '{:>5}'"},
        {"{{ '{!r}'.format(1) }}", "the format '{!r}'"},
        {"{{ '{a.b}'.format(a=1) }}", "the format '{a.b}'"},
        {"{{ '%5.2f' % 1 }}", "the format '%5'"},
        {"{{ '%(a)s' % {} }}", "the format '%('"},
        {"{{ strftime_now('%Q') }}", "the time format '%Q'"},
        {"{{ (-8) ** 0.5 }}", "complex numbers"},
        {"{{ '\\N{BULLET}' }}", "escape"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf b;
        tg_err e;
        assert_null(render(&b, rows[i][0], NULL, &e));
        if (!strstr(e.msg, rows[i][1])) fail_msg("%s: %s", rows[i][0], e.msg);
        if (!strstr(e.msg, "line ")) fail_msg("%s: %s", rows[i][0], e.msg);
        tg_buf_deinit(&b);
    }
}

static void broken_syntax_says_line_column_and_what_was_found(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{% if x %}\n  abc",
         "line 1, column 4: the block that begins here has no end; '{% endif %}'"},
        {"ab\n {{ 1 + }}", "line 2, column 9: expected an expression, found '}}'"},
        {"{{ x", "line 1, column 1: this expression has no end"},
        {"\n\n{# x", "line 3, column 1: this comment has no end"},
        {"{{ 'x }}", "line 1, column 4: this string has no end"},
        {"{{ x|nope }}", "line 1, column 6: the filter 'nope' does not exist"},
        {"{% wibble %}", "line 1, column 4: unknown tag 'wibble'"},
        {"日本 {{ $ }}", "line 1, column 7: unexpected character '$'"},
        {"{{ (1] }}", "line 1, column 6: unexpected ']'"},
        {"{% break %}", "'break' stands outside a loop"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_template *t;
        tg_err e = {0};
        assert_int_equal(tg_template_load(&t, tg_str_from_cstr(rows[i][0]), &e), TG_E_CORRUPT);
        assert_null(t);
        if (!strstr(e.msg, rows[i][1])) fail_msg("%s: %s", rows[i][0], e.msg);
    }
}

static void an_undefined_value_says_what_was_looked_up(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"{{ messages[0] }}", "line 1, column 12: 'messages' is undefined"},
        {"{{ {'a': 1}.b.c }}", "'dict object' has no attribute 'b'"},
        {"{{ [1][5].x }}", "list object has no element 5"},
        {"{{ [1].append(2) }}", "access to attribute 'append' of a 'list' object is unsafe"},
        {"{{ ''.__class__.__mro__ }}", "'__class__'"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_buf b;
        tg_err e;
        assert_null(render(&b, rows[i][0], NULL, &e));
        assert_int_equal(e.status, TG_E_ARGUMENT);
        if (!strstr(e.msg, rows[i][1])) fail_msg("%s: %s", rows[i][0], e.msg);
        tg_buf_deinit(&b);
    }
}

static void raise_exception_gives_exactly_the_message_of_the_template(void **state)
{
    (void)state;
    tg_buf b;
    tg_err e;
    assert_null(render(&b, "text{{ raise_exception('Roles must alternate, ' ~ 2) }}", NULL, &e));
    assert_int_equal(e.status, TG_E_ARGUMENT);
    assert_string_equal(e.msg, "Roles must alternate, 2");
    tg_buf_deinit(&b);
}

static void bytes_that_are_no_template_are_refused(void **state)
{
    (void)state;
    tg_template *t;
    tg_err e = {0};
    assert_int_equal(tg_template_load(&t, TG_STR("a\xff{{ 1 }}"), &e), TG_E_CORRUPT);
    assert_non_null(strstr(e.msg, "byte 1"));
    size_t n = 64u << 20;
    char *big = calloc(1, n);
    memset(big, 'x', n);
    e = (tg_err){0};
    assert_int_equal(tg_template_load(&t, (tg_str){big, n}, &e), TG_E_LIMIT);
    assert_non_null(strstr(e.msg, "67108864"));
    free(big);
}

static void appending_to_a_string_in_a_loop_costs_what_it_adds(void **state)
{
    (void)state;
    tg_buf b;
    tg_err e;
    const char *source = "{% set ns = namespace(s='') %}{% for i in range(50000) %}"
                         "{% set ns.s = ns.s + 'abcdefghij' %}{% endfor %}{{ ns.s|length }}";
    assert_string_equal(render(&b, source, NULL, &e), "500000");
    tg_buf_deinit(&b);
}

static void an_extended_string_leaves_the_shorter_one_as_it_was(void **state)
{
    (void)state;
    tg_buf b;
    tg_err e;
    const char *source = "{% set a = 'x' ~ 'y' %}{% set b = a ~ '1' %}{% set c = a ~ '2' %}"
                         "{% set d = b ~ '3' %}{{ a }} {{ b }} {{ c }} {{ d }} {{ a ~ a ~ a }}";
    assert_string_equal(render(&b, source, NULL, &e), "xy xy1 xy2 xy13 xyxyxy");
    tg_buf_deinit(&b);
}

/* ---- options, threads, memory */

static void budgets_are_the_callers_to_choose(void **state)
{
    (void)state;
    tg_template *t;
    tg_err e = {0};
    tg_buf b = {0};
    tg_buf_add_cstr(&b, "before");
    assert_int_equal(
        tg_template_load(&t, TG_STR("{% for i in range(100) %}0123456789{% endfor %}"), &e), TG_OK);
    tg_template_options o = {.max_output_bytes = 999};
    assert_int_equal(tg_template_render(t, NULL, &o, &b, &e), TG_E_LIMIT);
    assert_string_equal(tg_buf_cstr(&b), "before");
    o = (tg_template_options){.max_steps = 50};
    e = (tg_err){0};
    assert_int_equal(tg_template_render(t, NULL, &o, &b, &e), TG_E_LIMIT);
    o = (tg_template_options){.max_depth = 2};
    e = (tg_err){0};
    assert_int_equal(tg_template_render(t, NULL, &o, &b, &e), TG_E_LIMIT);
    o = (tg_template_options){.max_output_bytes = 1000};
    e = (tg_err){0};
    assert_int_equal(tg_template_render(t, NULL, &o, &b, &e), TG_OK);
    assert_int_equal(b.len, 1006);
    tg_buf_deinit(&b);
    tg_template_free(t);
}

static void the_clock_is_asked_at_each_rendering(void **state)
{
    (void)state;
    tg_template *t;
    tg_err e = {0};
    assert_int_equal(tg_template_load(&t, TG_STR("{{ strftime_now('%F %T') }}"), &e), TG_OK);
    for (int i = 0; i < 2; i++) {
        /* date -u -d @86400 and one second before the epoch, an hour east of Greenwich */
        const tg_template_clock clock = {.utc_s = i ? -1 : 86400, .utc_offset_s = i ? 3600 : 0};
        tg_template_options o = {.clock = &clock};
        tg_buf b = {0};
        assert_int_equal(tg_template_render(t, NULL, &o, &b, &e), TG_OK);
        assert_string_equal(tg_buf_cstr(&b), i ? "1970-01-01 00:59:59" : "1970-01-02 00:00:00");
        tg_buf_deinit(&b);
    }
    tg_template_free(t);
}

static void a_template_knows_which_variables_it_names(void **state)
{
    (void)state;
    tg_template *t;
    tg_err e = {0};
    assert_int_equal(tg_template_load(&t, TG_STR("{% if tools %}{{ x.y }}{% endif %}"), &e), TG_OK);
    assert_true(tg_template_has_variable(t, TG_STR("tools")));
    assert_true(tg_template_has_variable(t, TG_STR("x")));
    assert_false(tg_template_has_variable(t, TG_STR("y")));
    assert_false(tg_template_has_variable(t, TG_STR("messages")));
    tg_template_free(t);
}

static void *render_many(void *template)
{
    json_t *context = json_pack("{s:[i,i,i]}", "x", 1, 2, 3);
    for (int i = 0; i < 200; i++) {
        tg_buf b = {0};
        if (tg_template_render(template, context, NULL, &b, NULL) != TG_OK ||
            strcmp(tg_buf_cstr(&b), "1-2-3-") != 0)
            return template;
        tg_buf_deinit(&b);
    }
    json_decref(context);
    return NULL;
}

static void threads_render_one_template_at_the_same_time(void **state)
{
    (void)state;
    tg_template *t;
    tg_err e = {0};
    pthread_t threads[4];
    assert_int_equal(tg_template_load(&t,
                                      TG_STR("{% macro m(i) %}{{ i }}-{% endmacro %}"
                                             "{% for i in x %}{{ m(i) }}{% endfor %}"),
                                      &e),
                     TG_OK);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, render_many, t), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    tg_template_free(t);
}

/* Every allocation refused in turn: an error, no crash, nothing left behind. */
static void a_refused_allocation_is_an_error(void **state)
{
    (void)state;
    const char *source = "{% set a %}x{% endset %}{% macro m(x, y=2) %}{{ x|tojson }}{% endmacro %}"
                         "{% for k, v in {'a': [1, 2], 'b': 'c'}|dictsort %}{{ m(v) ~ 'é'|upper }}"
                         "{{ 'a,b'.split(',')|join('-') }}{{ '%d' % 5 }}{% endfor %}{{ '\\t' }}";
    int64_t n_alive = tg_mem_n_alive();
    tg_status s = TG_E_NOMEM;
    for (int n = 0; s != TG_OK; n++) {
        tg_template *t = NULL;
        tg_buf b = {0};
        tg_err e = {0};
        tg_mem_fail_after(n);
        s = tg_template_load(&t, tg_str_from_cstr(source), &e);
        if (s == TG_OK) s = tg_template_render(t, NULL, NULL, &b, &e);
        tg_mem_fail_after(-1);
        if (s != TG_OK) assert_int_equal(s, TG_E_NOMEM);
        assert_true(n < 1000);
        tg_buf_deinit(&b);
        tg_template_free(t);
        assert_int_equal(tg_mem_n_alive(), n_alive);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_piece_of_the_language_renders_as_jinja2_renders_it),
        cmocka_unit_test(whole_templates_render_every_conversation_as_jinja2_does),
        cmocka_unit_test(the_template_of_smollm2_renders_every_conversation_as_jinja2_does),
        cmocka_unit_test(the_template_of_gemma3_renders_every_conversation_as_jinja2_does),
        cmocka_unit_test(templates_that_models_ship_render_every_conversation_as_jinja2_does),
        cmocka_unit_test(errors_name_types_as_python_does),
        cmocka_unit_test(what_the_page_lists_is_refused_by_name),
        cmocka_unit_test(what_is_not_built_is_refused_by_name_with_its_place),
        cmocka_unit_test(broken_syntax_says_line_column_and_what_was_found),
        cmocka_unit_test(an_undefined_value_says_what_was_looked_up),
        cmocka_unit_test(raise_exception_gives_exactly_the_message_of_the_template),
        cmocka_unit_test(bytes_that_are_no_template_are_refused),
        cmocka_unit_test(appending_to_a_string_in_a_loop_costs_what_it_adds),
        cmocka_unit_test(an_extended_string_leaves_the_shorter_one_as_it_was),
        cmocka_unit_test(budgets_are_the_callers_to_choose),
        cmocka_unit_test(the_clock_is_asked_at_each_rendering),
        cmocka_unit_test(a_template_knows_which_variables_it_names),
        cmocka_unit_test(threads_render_one_template_at_the_same_time),
        cmocka_unit_test(a_refused_allocation_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
