/* SPDX-License-Identifier: Apache-2.0
 * options.c - the tables, and reading a command line by them.
 *
 * getopt_long would read the same lines; this reader knows which command an option belongs to, what
 * its limits are and what was probably meant, so that each refusal is a sentence about the option
 * and not about the syntax. Values are checked here, before any file is touched: a wrong one is
 * wrong usage (exit 2), whatever the model.
 *
 * Pointers into argv are kept, nothing is copied. */
#include "app/options.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const tg_command tg_commands[TG_COMMAND_COUNT] = {
    [TG_COMMAND_EXPORT] = {"export", "SOURCE", "-o DIR [options]",
                           "compile a checkpoint into an artifact",
                           "SOURCE is a Hugging Face folder, a model folder of the hub's cache or "
                           "a GGUF file. DIR appears when everything is written, or not at all."},
    [TG_COMMAND_GENERATE] =
        {"generate", "MODEL", "-p TEXT [options]", "complete one prompt",
         "The prompt becomes one user turn of the model's chat template; a model without one "
         "continues the text, and a line says so. Without -p, -f and --ids the prompt is read from "
         "standard input. The completion is printed as it comes. Decoding is greedy unless an option "
         "or the model's own generation_config asks for sampling."},
    [TG_COMMAND_CHAT] = {"chat", "MODEL", "[options]", "a conversation in the terminal",
                         "Ctrl-C stops the completion and not the program; Ctrl-D and /exit leave. "
                         "/help lists the other commands. Earlier turns stay in the KV cache and "
                         "are not computed again."},
    [TG_COMMAND_TOKENIZE] = {"tokenize", "MODEL", "-p TEXT [options]", "print the ids of a text",
                             "The ids include what the model's tokenizer adds to a text by itself, "
                             "and special tokens spelled in it are read as such. MODEL may lack "
                             "weights: a folder with a tokenizer, or tokenizer.json alone. With "
                             "--lines a line, or with --json an object on a line, is printed for "
                             "each line of the text."},
    [TG_COMMAND_DETOKENIZE] = {"detokenize", "MODEL", "-p \"ID ...\" [options]",
                               "print the text of ids",
                               "The ids are decimal numbers separated by spaces. The text is "
                               "printed as it is, with no newline added."},
    [TG_COMMAND_TEMPLATE] =
        {"template", "MODEL", "-f FILE [options]", "print the prompt of a conversation",
         "FILE holds a list of messages, {\"role\", \"content\"} each, or the body of a chat request: "
         "an object with messages and maybe tools, documents, chat_template_kwargs and "
         "add_generation_prompt; options win over it, and keys that only concern sampling are "
         "ignored. The prompt is printed as it is, with no newline added. MODEL may lack weights: "
         "a folder with a template, or a *.jinja file alone."},
    [TG_COMMAND_INSPECT] =
        {"inspect", "MODEL", "[options]", "describe a model and say whether it will run",
         "MODEL is an artifact or a checkpoint. Reads headers only, no weights. "
         "For a checkpoint it reports whether the model will run here, with the "
         "reason if not, and the memory that the batch, context length and types "
         "of the options need."},
    [TG_COMMAND_EVAL] = {"eval", "MODEL", "-f FILE [options]", "measure a text's perplexity",
                         "The perplexity is exp of the mean negative log-likelihood of every token "
                         "after the first, added up in double precision. A text longer than the "
                         "context length is cut into windows of that length, and a line says "
                         "so."},
    [TG_COMMAND_BENCH] =
        {"bench", "MODEL", "[options]", "measure speed and memory",
         "Prefill and decode speeds are tokens per second of the steps alone, without "
         "tokenizing and loading. Each repetition has its own prompt, so that none "
         "reuses another's KV cache. With --batch the time to first token is that of "
         "the last sequence. Prints median, minimum and maximum."},
};

const tg_option tg_options[TG_OPT_COUNT] = {
#define TG_OPTION(id, name, aliases, letter, commands, section, group, type, value, min, max,      \
                  fallback, help)                                                                  \
    [TG_OPT_##id] = {name,           aliases, letter, commands, section,  group,                   \
                     TG_TYPE_##type, value,   min,    max,      fallback, help},
#include "app/options.def"
#undef TG_OPTION
};

/* Whether the command has the option. */
static bool is_on(const tg_option *o, tg_command_id c)
{
    return o->commands & (1 << c);
}

/* The next word of a list separated by `sep`; false at its end. */
static bool next_word(const char **list, char sep, tg_str *word)
{
    const char *p = *list, *end;
    if (!p || !*p) return false;
    end = strchr(p, sep);
    *word = (tg_str){p, end ? (size_t)(end - p) : strlen(p)};
    *list = end ? end + 1 : NULL;
    return true;
}

/* How much of `name` the typed text covers, - and _ being equal: 0 none, 1 a prefix, 2 all. */
static int match_name(tg_str typed, tg_str name)
{
    if (typed.len > name.len || typed.len == 0) return 0;
    for (size_t i = 0; i < typed.len; i++)
        if ((typed.ptr[i] == '_' ? '-' : typed.ptr[i]) != name.ptr[i]) return 0;
    return typed.len == name.len ? 2 : 1;
}

/* The best match among the option's name and its aliases. */
static int match_option(tg_str typed, const tg_option *o)
{
    const char *aliases = o->aliases;
    tg_str alias;
    int best = match_name(typed, tg_str_from_cstr(o->name));
    while (next_word(&aliases, ',', &alias))
        best = TG_MAX(best, match_name(typed, alias));
    return best;
}

/* Says which commands have an option of this very name. */
static bool hint_other_commands(const char *name, tg_buf *hint)
{
    int n_found = 0;
    for (int i = 0; i < TG_OPT_COUNT; i++) {
        if (match_option(tg_str_from_cstr(name), &tg_options[i]) != 2) continue;
        for (int c = 0; c < TG_COMMAND_COUNT; c++)
            if (is_on(&tg_options[i], (tg_command_id)c))
                tg_buf_printf(hint, n_found++ ? ", %s" : "it is an option of %s",
                              tg_commands[c].name);
    }
    return n_found > 0;
}

/* The option of a long name, whole or shortened. -1: none, or several. */
static int find_long(tg_command_id c, tg_str typed, tg_buf *hint, tg_err *e)
{
    const char *names[TG_OPT_COUNT], *nearest;
    char word[64];
    size_t n_names = 0;
    int found = -1, n_found = 0;
    for (int i = 0; i < TG_OPT_COUNT; i++) {
        if (!is_on(&tg_options[i], c)) continue;
        int m = match_option(typed, &tg_options[i]);
        if (m == 2) return i;
        if (m == 1) found = i, n_found++;
        names[n_names++] = tg_options[i].name;
    }
    if (n_found == 1) return found;
    (void)snprintf(word, sizeof word, "%.*s", (int)TG_MIN(typed.len, sizeof word - 1), typed.ptr);
    if (n_found > 1) {
        tg_fail(e, TG_E_ARGUMENT, "option --%s could be one of %d options of %s", word, n_found,
                tg_commands[c].name);
        return -1;
    }
    tg_fail(e, TG_E_ARGUMENT, "%s has no option --%s", tg_commands[c].name, word);
    nearest = tg_find_nearest_name(word, names, n_names);
    if (!hint_other_commands(word, hint) && nearest)
        tg_buf_printf(hint, "did you mean --%s?", nearest);
    return -1;
}

/* A letter has one meaning per command; -p is a text for generate and a number for bench. */
static int find_letter(tg_command_id c, char letter, tg_err *e)
{
    for (int i = 0; i < TG_OPT_COUNT; i++)
        if (tg_options[i].letter == letter && is_on(&tg_options[i], c)) return i;
    tg_buf shown = {0};
    tg_buf_add_escaped(&shown, (tg_str){&letter, 1});
    tg_fail(e, TG_E_ARGUMENT, "%s has no option -%s", tg_commands[c].name, tg_buf_cstr(&shown));
    tg_buf_deinit(&shown);
    return -1;
}

/* A whole number, be it one that no int64_t holds. */
static bool is_whole(const char *value)
{
    const char *digits = value + (*value == '-');
    return *digits && digits[strspn(digits, "0123456789")] == 0;
}

/* Limits are doubles in the table and exact up to 2^53, beyond every limit that stands there. */
static tg_status parse_int(const tg_option *o, const char *value, int64_t *out, tg_err *e)
{
    bool is_read = tg_parse_i64(value, out);
    if (!is_read && !is_whole(value))
        return tg_fail(e, TG_E_ARGUMENT, "--%s must be a whole number (got '%s')", o->name, value);
    if (!is_read || (double)*out < o->min || (double)*out > o->max)
        return tg_fail(e, TG_E_ARGUMENT, "--%s must be between %.0f and %.0f (got %s)", o->name,
                       o->min, o->max, value);
    return TG_OK;
}

/* NaN compares false with every limit, so finiteness is asked first. */
static tg_status parse_real(const tg_option *o, const char *value, double *out, tg_err *e)
{
    bool is_open = o->type == TG_TYPE_FLOAT_BELOW;
    if (!tg_parse_f64(value, out) || !isfinite(*out))
        return tg_fail(e, TG_E_ARGUMENT, "--%s must be a finite number (got '%s')", o->name, value);
    if (*out < o->min || *out > o->max || (is_open && *out >= o->max))
        return tg_fail(e, TG_E_ARGUMENT,
                       is_open ? "--%s must be at least %g and less than %g (got %s)"
                               : "--%s must be between %g and %g (got %s)",
                       o->name, o->min, o->max, value);
    return TG_OK;
}

/* Ascending is the rule of every list there is (buckets), so it is the type's. */
static tg_status parse_ints(tg_args *a, const tg_option *o, const char *value, tg_err *e)
{
    const char *rest = value;
    tg_str word;
    a->n_ints = 0;
    while (next_word(&rest, ',', &word)) {
        char one[24];
        int64_t n;
        if (a->n_ints == TG_MAX_LIST)
            return tg_fail(e, TG_E_ARGUMENT, "--%s has more than %d numbers", o->name, TG_MAX_LIST);
        (void)snprintf(one, sizeof one, "%.*s", (int)TG_MIN(word.len, sizeof one - 1), word.ptr);
        TG_TRY(parse_int(o, one, &n, e));
        if (a->n_ints && n <= a->ints[a->n_ints - 1])
            return tg_fail(e, TG_E_ARGUMENT,
                           "--%s must be in ascending order, and %" PRId64 " follows %d (got %s)",
                           o->name, n, (int)a->ints[a->n_ints - 1], value);
        a->ints[a->n_ints++] = (int32_t)n;
    }
    if (!a->n_ints || (rest && !*rest))
        return tg_fail(e, TG_E_ARGUMENT, "--%s must be numbers separated by commas (got '%s')",
                       o->name, value);
    return TG_OK;
}

/* With e NULL: only asks. */
static tg_status parse_choice(const tg_option *o, const char *value, tg_err *e)
{
    const char *rest = o->value;
    tg_str word;
    while (next_word(&rest, '|', &word))
        if (tg_str_is(word, value)) return TG_OK;
    return tg_fail(e, TG_E_ARGUMENT, "--%s must be one of %s (got '%s')", o->name, o->value, value);
}

/* A repeated option: the last one counts, as everywhere; two of one group do not agree. */
static tg_status set_value(tg_args *a, int id, const char *value, tg_err *e)
{
    const tg_option *o = &tg_options[id];
    switch (o->type) {
    case TG_TYPE_FLAG: break;
    case TG_TYPE_TEXT: a->text[id] = value; break;
    case TG_TYPE_TEXTS:
        if (a->n_texts == TG_MAX_LIST)
            return tg_fail(e, TG_E_ARGUMENT, "--%s may be given at most %d times", o->name,
                           TG_MAX_LIST);
        if (!*value) return tg_fail(e, TG_E_ARGUMENT, "--%s is empty", o->name);
        a->texts[a->n_texts++] = value;
        break;
    case TG_TYPE_INT: TG_TRY(parse_int(o, value, &a->number[id], e)); break;
    case TG_TYPE_INTS: TG_TRY(parse_ints(a, o, value, e)); break;
    case TG_TYPE_FLOAT:
    case TG_TYPE_FLOAT_BELOW: TG_TRY(parse_real(o, value, &a->real[id], e)); break;
    case TG_TYPE_CHOICE:
        TG_TRY(parse_choice(o, value, e));
        a->text[id] = value;
        break;
    }
    for (int i = 0; o->group && i < TG_OPT_COUNT; i++)
        if (i != id && a->is_set[i] && tg_options[i].group == o->group)
            return tg_fail(e, TG_E_ARGUMENT, "--%s and --%s cannot be used together",
                           tg_options[i].name, o->name);
    a->is_set[id] = true;
    return TG_OK;
}

/* Only defaults that are values; "the model's" and the like are the command's to fill in. */
static void set_defaults(tg_args *a)
{
    for (int i = 0; i < TG_OPT_COUNT; i++) {
        const tg_option *o = &tg_options[i];
        if (o->type == TG_TYPE_INT) tg_parse_i64(o->fallback, &a->number[i]);
        if (o->type == TG_TYPE_FLOAT) tg_parse_f64(o->fallback, &a->real[i]);
        if (o->type == TG_TYPE_CHOICE && parse_choice(o, o->fallback, NULL) == TG_OK)
            a->text[i] = o->fallback;
    }
}

/* Reads the option argv[*at] names, and its value; *at becomes the last word it used. */
static tg_status parse_long(tg_args *a, int argc, char *const *argv, int *at, tg_buf *hint,
                            tg_err *e)
{
    const char *name = argv[*at] + 2, *equals = strchr(name, '=');
    size_t n = equals ? (size_t)(equals - name) : strlen(name);
    int id = find_long(a->command, (tg_str){name, n}, hint, e);
    if (id < 0) return TG_E_ARGUMENT;
    const tg_option *o = &tg_options[id];
    if (o->type == TG_TYPE_FLAG) {
        if (equals) return tg_fail(e, TG_E_ARGUMENT, "--%s takes no value", o->name);
        return set_value(a, id, NULL, e);
    }
    if (equals) return set_value(a, id, equals + 1, e);
    if (*at + 1 >= argc)
        return tg_fail(e, TG_E_ARGUMENT, "--%s needs a value: %s", o->name, o->value);
    return set_value(a, id, argv[++*at], e);
}

/* "-n4", "-n=4", "-n 4", and flags run together; the first that takes a value takes the rest. */
static tg_status parse_letters(tg_args *a, int argc, char *const *argv, int *at, tg_err *e)
{
    for (const char *p = argv[*at] + 1; *p; p++) {
        int id = find_letter(a->command, *p, e);
        if (id < 0) return TG_E_ARGUMENT;
        if (tg_options[id].type == TG_TYPE_FLAG) {
            TG_TRY(set_value(a, id, NULL, e));
            continue;
        }
        if (p[1]) return set_value(a, id, p[1] == '=' ? p + 2 : p + 1, e);
        if (*at + 1 >= argc)
            return tg_fail(e, TG_E_ARGUMENT, "-%c (--%s) needs a value: %s", *p,
                           tg_options[id].name, tg_options[id].value);
        return set_value(a, id, argv[++*at], e);
    }
    return TG_OK;
}

/* Every command takes exactly one. */
static tg_status set_operand(tg_args *a, const char *word, tg_err *e)
{
    const tg_command *c = &tg_commands[a->command];
    if (a->operand)
        return tg_fail(e, TG_E_ARGUMENT, "%s takes one %s, and '%s' follows '%s'", c->name,
                       c->operand, word, a->operand);
    if (!*word) return tg_fail(e, TG_E_ARGUMENT, "%s is empty", c->operand);
    a->operand = word;
    return TG_OK;
}

tg_status tg_args_parse(tg_args *a, tg_command_id command, int argc, char *const *argv,
                        tg_buf *hint, tg_err *e)
{
    bool is_ended = false;
    memset(a, 0, sizeof *a);
    a->command = command;
    set_defaults(a);
    for (int i = 0; i < argc; i++) {
        const char *word = argv[i];
        if (is_ended || word[0] != '-' || !word[1])
            TG_TRY(set_operand(a, word, e));
        else if (strcmp(word, "--") == 0)
            is_ended = true;
        else if (word[1] == '-')
            TG_TRY(parse_long(a, argc, argv, &i, hint, e));
        else
            TG_TRY(parse_letters(a, argc, argv, &i, e));
        if (a->is_set[TG_OPT_HELP] || a->is_set[TG_OPT_VERSION]) return TG_OK;
    }
    if (!a->operand)
        return tg_fail(e, TG_E_ARGUMENT, "%s needs a %s", tg_commands[command].name,
                       tg_commands[command].operand);
    return TG_OK;
}

tg_command_id tg_command_find(const char *name, tg_buf *hint)
{
    const char *names[TG_COMMAND_COUNT], *nearest;
    for (int i = 0; i < TG_COMMAND_COUNT; i++) {
        if (strcmp(name, tg_commands[i].name) == 0) return (tg_command_id)i;
        names[i] = tg_commands[i].name;
    }
    nearest = tg_find_nearest_name(name, names, TG_COMMAND_COUNT);
    if (nearest) tg_buf_printf(hint, "did you mean '%s'?", nearest);
    return TG_COMMAND_COUNT;
}

bool tg_args_has_safe_messages(const tg_args *a)
{
    const char *given = a->text[TG_OPT_SAFE_MESSAGES];
    return given ? strcmp(given, "on") == 0 : a->command == TG_COMMAND_CHAT;
}
