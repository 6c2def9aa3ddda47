/* SPDX-License-Identifier: Apache-2.0
 * Templates made to cost: each must end with an error within a second of CPU time and 64 MiB of
 * address space beyond what the program had. Both are those that the engine promises, not what it
 * takes: most rows end in hundredths of a second. */
#include "base/file.h"
#include "base/mem.h"
#include "check.h"
#include "jinja/template.h"

#include <stdio.h>
#include <sys/resource.h>
#include <time.h>

/* Sanitizers are slow and reserve address space of their own: with them a tenth of the steps. */
static bool is_measured(void)
{
    return !getenv("TG_SLOW_BUILD");
}

/* Of this process alone: a machine that is busy with something else must not fail the test. */
static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Lets the address space grow by 64 MiB from here; returns what was allowed before. */
static struct rlimit begin_memory(void)
{
    struct rlimit before, now;
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    FILE *f = fopen("/proc/self/statm", "r");
    assert_non_null(f);
    unsigned long long pages = 0;
    assert_int_equal(fscanf(f, "%llu", &pages), 1);
    fclose(f);
    now = before;
    now.rlim_cur = pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64u << 20);
    if (is_measured()) assert_int_equal(setrlimit(RLIMIT_AS, &now), 0);
    return before;
}

/* Loads and renders under both limits. */
static tg_status render(tg_str source, const json_t *context, tg_err *e)
{
    tg_template *t;
    tg_buf b = {0};
    int64_t n_alive = tg_mem_n_alive();
    const tg_template_options o = {.max_steps = is_measured() ? 0 : 400000};
    struct rlimit before = begin_memory();
    double start = seconds();
    *e = (tg_err){0};
    tg_status s = tg_template_load(&t, source, e);
    if (s == TG_OK) s = tg_template_render(t, context, &o, &b, e);
    double took = seconds() - start;
    tg_buf_deinit(&b);
    tg_template_free(t);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(tg_mem_n_alive(), n_alive);
    int n_shown = (int)TG_MIN(source.len, 200u);
    if (s == TG_E_NOMEM) fail_msg("%.*s took more than 64 MiB", n_shown, source.ptr);
    if (took > 1.0 && is_measured())
        fail_msg("%.*s took %.2f s before '%s'", n_shown, source.ptr, took, e->msg);
    return s;
}

static void hostile_templates_end_with_an_error_in_time_and_memory(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{{ range(10**9)|list|length }}",
        "{% for a in range(25000) %}{% for b in range(25000) %}{% endfor %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{{ 'x' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='x') %}{% for i in range(100) %}{% set ns.s = ns.s.replace('x', 'xxxxxxxx') %}{% endfor %}",
        "{% set ns = namespace(s=[]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% endfor %}{{ ns.s|tojson }}",
        "{% set ns = namespace(s=[], q=[]) %}{% for i in range(5000) %}{% set ns.s = [ns.s] %}{% set ns.q = [ns.q] %}{% endfor %}{{ ns.s == ns.q }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
        "{% set ns = namespace(s=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s|tojson(indent=9) }}",
        "{% set ns = namespace(s=[1], q=[1]) %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}{% set ns.q = [ns.q, ns.q] %}{% endfor %}{{ ns.s == ns.q }}",
        "{% set ns = namespace(s=()) %}{% for i in range(5000) %}{% set ns.s = (ns.s,) %}{% endfor %}{{ {ns.s: 1} }}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if 'b' in s %}{% endif %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if (s ~ 'b') in s %}{% endif %}{% endfor %}",
        "{% set s = 'é' * 1000000 %}{% for i in range(100000) %}{% if s[-1] == 'x' %}{% endif %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set u = s|upper %}{% endfor %}",
        "{% set s = ' ' * 1000000 %}{% for i in range(100000) %}{% set u = s|trim %}{% endfor %}",
        "{% set s = 'ab' * 1000000 %}{% for i in range(100000) %}{% set u = s.split('b') %}{% endfor %}",
        "{% set s = 'ab' * 1000000 %}{% for i in range(100000) %}{% set u = s.rfind('c') %}{% endfor %}",
        "{% for i in range(100000) %}{{ 'x' * 1000 }}{% endfor %}",
        "{% set x = 'x' * 1000000 %}{{ '%s%s%s%s%s%s%s%s%s' % (x, x, x, x, x, x, x, x, x) }}",
        "{{ 'x'.ljust(10**12) }}",
        "{{ 'a\\n' * 100000 | indent(100000) }}",
        "{{ ('a\\n' * 100000) | indent(100000) }}",
        "{{ [[[]]]|tojson(indent='x' * 3000000) }}",
        "{{ 2 ** 3 ** 100000 }}",
        "{% for x in [[1]] recursive %}{{ loop([[1]]) }}{% endfor %}",
        "{{ range(100000)|map('string')|join('x' * 1000) }}",
        "{% set ns = namespace(d={}) %}{% for i in range(100000) %}{% set ns.d = dict(ns.d, **{i|string: 1}) %}{% endfor %}",
        "{{ (range(100000)|list) * 1000 }}",
        "{{ range(100000)|list|sort == (range(100000)|list|sort(reverse=true)) }}{% for i in range(100000) %}{{ range(100000)|sort|first }}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% if s.startswith(s) %}{% endif %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set u = s.removesuffix(s) %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set u = s.partition('b') %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% set x = 'a' * 500000 ~ 'b' %}{% for i in range(1000) %}{% set u = s.rfind(x) %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% set x = 'a' * 500000 ~ 'b' %}{% for i in range(1000) %}{% set u = s.rsplit(x) %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set u = s is lower %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set u = s.isalpha() %}{% endfor %}",
        "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set u = {s: 1, 1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 1, 8: 1, 9: 1} %}{% endfor %}",
        "{% set s = '\\t' * 1000000 %}{{ s.expandtabs(1000000) }}",
        "{% set s = 'a' * 1000000 %}{{ s.translate({97: s}) }}",
        "{% set s = '{0}' * 100000 %}{{ s.format('x' * 1000) }}",
        "{% set s = '{x}' * 100000 %}{% for i in range(100000) %}{% set u = s.format(x=1) %}{% endfor %}",
        "{% set s = '%%' * 1000000 %}{% for i in range(100000) %}{% set u = s % () %}{% endfor %}",
        "{% set ns = namespace(s=()) %}{% for i in range(31) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ {ns.s: 1} }}",
        "{% set ns = namespace(s=()) %}{% for i in range(31) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ ns.s in {1: 2} }}",
        "{% set ns = namespace(s=()) %}{% for i in range(31) %}{% set ns.s = (ns.s, ns.s) %}{% endfor %}{{ [ns.s, 1]|unique|list }}",
        "{% macro a(n) %}{{ b(n) }}{{ b(n) }}{% endmacro %}{% macro b(n) %}{{ a(n + 1) }}{{ a(n + 1) }}{% endmacro %}{{ a(0) }}",
        "{% macro m(n) %}{% if n < 60 %}{{ m(n + 1) }}{{ m(n + 1) }}{% endif %}{% endmacro %}{{ m(0) }}",
        "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
        "{% for x in range(100000) %}{% for y in range(100000) %}{% set z = x ~ y %}{% endfor %}{% endfor %}",
        "{% for x in range(99999) if x is odd %}{% for y in range(99999) if y is odd %}{{ x * y }}{% endfor %}{% endfor %}",
        "{% set f %}{% for x in range(100000) %}{{ 'y' * 100 }}{% endfor %}{% endset %}{{ f|upper|lower|title }}",
        "{{ (range(100000)|batch(1)|list) * 500 }}",
        "{{ [range(100000)|list] * 100000 | tojson }}",
        "{{ ([range(100000)|list] * 100000)|tojson }}",
        "{{ ([['x' * 100000]] * 100000)|string }}",
        "{{ (range(100000)|map('string')|list)|groupby(0)|list|tojson(indent=30) }}",
        "{{ 'a'.join(range(100000)|map('string')) * 10000 }}",
        "{{ 'x,' * 1000000 | length }}{{ ('x,' * 1000000).split(',') }}",
        "{{ ('Σ\\'' * 300000)|lower|lower|lower|lower|lower|lower|lower|lower|lower }}{% for i in range(1000) %}{{ ('Σ\\'' * 300000)|lower|length }}{% endfor %}",
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_err e;
        if (render(tg_str_from_cstr(rows[i]), NULL, &e) == TG_OK) fail_msg("%s rendered", rows[i]);
        if (!strstr(e.msg, "template line ")) fail_msg("%s: no place in '%s'", rows[i], e.msg);
    }
}

static char *repeat(const char *open, const char *middle, const char *close, int n)
{
    size_t size = (strlen(open) + strlen(close)) * (size_t)n + strlen(middle) + 1;
    char *s = calloc(1, size), *p = s;
    for (int i = 0; i < n; i++)
        p = stpcpy(p, open);
    p = stpcpy(p, middle);
    for (int i = 0; i < n; i++)
        p = stpcpy(p, close);
    return s;
}

static void deep_nesting_in_the_source_is_refused(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"(", "1", ")"},      {"[", "1", "]"},           {"{1:", "1", "}"},   {"not ", "1", ""},
        {"-", "1", ""},       {"1 if 1 else ", "1", ""}, {"f(", "1", ")"},    {"x[", "1", "]"},
        {"1 + (", "1", ")"},  {"1+", "1", ""},           {"", "x", ".a"},     {"", "x", "|e"},
        {"", "x", "()"},      {"", "x", "[0]"},          {"1 and ", "1", ""}, {"1 or ", "1", ""},
        {"", "1", " is odd"}, {"'a' ~ (", "1", ")"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_err e;
        char *inner = repeat(rows[i][0], rows[i][1], rows[i][2], 20000);
        char *source = repeat("{{ ", inner, " }}", 1);
        assert_int_not_equal(render(tg_str_from_cstr(source), NULL, &e), TG_OK);
        free(inner);
        free(source);
    }
    static const char *const blocks[][2] = {
        {"{% if 1 %}", "{% endif %}"},         {"{% for x in y %}", "{% endfor %}"},
        {"{% with %}", "{% endwith %}"},       {"{% filter e %}", "{% endfilter %}"},
        {"{% macro m() %}", "{% endmacro %}"}, {"{% if 1 %}{% else %}", "{% endif %}"},
    };
    for (size_t i = 0; i < TG_COUNT(blocks); i++) {
        tg_err e;
        char *source = repeat(blocks[i][0], "x", blocks[i][1], 5000);
        assert_int_equal(render(tg_str_from_cstr(source), NULL, &e), TG_E_LIMIT);
        free(source);
    }
}

/* As long as templates may be, of one small piece: they render or not, in time and memory. */
static void long_templates_cost_what_their_length_is(void **state)
{
    (void)state;
    static const char *const rows[][3] = {
        {"{{ [", "1,", "] }}"},
        {"{{ [", "a,", "] }}"},
        {"{{ [", "[],", "] }}"},
        {"{{ {", "1:2,", "} }}"},
        {"{{ f(", "1,", ") }}"},
        {"{{ ", "'a' ", "}}"},
        {"{{ 1", "~1", "}}"},
        {"{{ 1", "<1", "}}"},
        {"", "{{a}}", ""},
        {"", "{{[]}}", ""},
        {"", "{#", "#}"},
        {"", "{##}", ""},
        {"", "{%set a=1%}", ""},
        {"{% if 0 %}", "{%elif 0%}", "{% endif %}"},
        {"{% for i in range(100000) %}", "{%set a=1%}", "{% endfor %}"},
        {"", "{%macro m()%}{%endmacro%}", ""},
        {"", "\n  {%+if 1%}{%endif%}", ""},
        {"", "                                {%- if 1 -%}{% endif %}", ""},
        {"{{ '", "\\x41", "' }}"},
        {"{% raw %}", "{% endra", "{% endraw %}"},
    };
    for (size_t i = 0; i < TG_COUNT(rows); i++) {
        tg_err e;
        size_t rest = strlen(rows[i][0]) + strlen(rows[i][2]);
        int n = (int)((TG_TEMPLATE_MAX_BYTES - rest) / strlen(rows[i][1]));
        char *inner = repeat(rows[i][1], "", "", n), *source = calloc(1, TG_TEMPLATE_MAX_BYTES + 1);
        snprintf(source, TG_TEMPLATE_MAX_BYTES + 1, "%s%s%s", rows[i][0], inner, rows[i][2]);
        tg_status s = render(tg_str_from_cstr(source), NULL, &e);
        if (s != TG_OK && !strstr(e.msg, "template line ")) fail_msg("%s: %s", rows[i][1], e.msg);
        free(inner);
        free(source);
    }
    tg_buf names = {0};
    for (int i = 0; i < 20000; i++)
        tg_buf_printf(&names, "{{n%d}}", i);
    tg_err e;
    assert_int_equal(render(tg_buf_str(&names), NULL, &e), TG_E_LIMIT);
    assert_non_null(strstr(e.msg, "more than 8192 variables"));
    tg_buf_deinit(&names);
}

static void a_template_of_64_megabytes_is_refused_by_its_length(void **state)
{
    (void)state;
    size_t n = 64u << 20;
    char *big = calloc(1, n);
    memset(big, 'x', n);
    tg_err e;
    assert_int_equal(render((tg_str){big, n}, NULL, &e), TG_E_LIMIT);
    assert_string_equal(e.msg, "a template of 67108864 bytes is longer than the limit of 262144");
    free(big);
}

/* Variables are strangers' too: nested as deep as JSON may be, and long. */
static void deep_and_long_variables_are_bounded(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "{{ x }}",
        "{{ x|tojson }}",
        "{{ x == x }}",
        "{{ x|string|length }}",
        "{{ x is sequence }}",
        "{% for y in x recursive %}{{ loop(y) }}{% endfor %}",
        "{{ [x]|tojson(indent=8) }}",
    };
    char *deep = repeat("[", "", "]", 2000), *numbers = repeat("1,", "1", "", 400000);
    char *list = repeat("[", numbers, "]", 1);
    char *texts[] = {deep, list};
    for (size_t k = 0; k < TG_COUNT(texts); k++) {
        json_t *value = NULL;
        tg_err e = {0};
        assert_int_equal(tg_json_parse(&value, tg_str_from_cstr(texts[k]), "x", &e), TG_OK);
        json_t *context = json_pack("{s:o}", "x", value);
        for (size_t i = 0; i < TG_COUNT(rows); i++) {
            tg_status s = render(tg_str_from_cstr(rows[i]), context, &e);
            if (k == 0) assert_int_equal(s, TG_E_LIMIT);
        }
        json_decref(context);
    }
    free(deep);
    free(numbers);
    free(list);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_templates_end_with_an_error_in_time_and_memory),
        cmocka_unit_test(deep_nesting_in_the_source_is_refused),
        cmocka_unit_test(long_templates_cost_what_their_length_is),
        cmocka_unit_test(a_template_of_64_megabytes_is_refused_by_its_length),
        cmocka_unit_test(deep_and_long_variables_are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
