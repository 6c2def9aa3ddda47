/* SPDX-License-Identifier: Apache-2.0
 * help.c - texts out of tables.
 *
 * Nothing here knows an option: a row added to options.def is in the help of its commands, in the
 * manual page and in three shells' completions, or the golden files say that it is not. The texts
 * are printed to buffers, so that they can be compared without running a program. */
#include "app/help.h"

#include <string.h>

/* Help is 80 columns wide wherever it goes: the same text in every terminal, pipe and test. */
enum { WIDTH = 80, HELP_COLUMN = 26 };

static bool is_on(const tg_option *o, tg_command_id c)
{
    return o->commands & (1 << c);
}

static void add_spaces(tg_buf *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tg_buf_add_byte(out, ' ');
}

/* Words of `text` from `column` on, broken before WIDTH and continued at `indent`. */
static void add_wrapped(tg_buf *out, const char *text, size_t column, size_t indent)
{
    bool is_first = true;
    while (*text) {
        size_t n = strcspn(text, " ");
        if (!is_first && column + 1 + n > WIDTH) {
            tg_buf_add_byte(out, '\n');
            add_spaces(out, indent);
            column = indent;
        } else if (!is_first) {
            tg_buf_add_byte(out, ' ');
            column++;
        }
        tg_buf_add(out, text, n);
        column += n;
        text += n + (text[n] == ' ');
        is_first = false;
    }
    tg_buf_add_byte(out, '\n');
}

/* "  -n, --predict N         help (default: ...)". A head too long for its column gets a line of
 * its own, as GNU programs do it. */
static void add_option(tg_buf *out, const tg_option *o)
{
    tg_buf text = {0};
    size_t start = out->len, column;
    if (o->letter)
        tg_buf_printf(out, "  -%c, --%s", o->letter, o->name);
    else
        tg_buf_printf(out, "      --%s", o->name);
    if (*o->value) tg_buf_printf(out, " %s", o->value);
    column = out->len - start;
    if (column + 2 > HELP_COLUMN) {
        tg_buf_add_byte(out, '\n');
        column = 0;
    }
    add_spaces(out, HELP_COLUMN - column);
    tg_buf_add_cstr(&text, o->help);
    if (*o->fallback) tg_buf_printf(&text, " (default: %s)", o->fallback);
    add_wrapped(out, tg_buf_cstr(&text), HELP_COLUMN, HELP_COLUMN);
    tg_buf_deinit(&text);
}

void tg_help_print_commands(tg_buf *out)
{
    tg_buf_add_cstr(out, "usage: trigraph COMMAND ...\n\n"
                         "Compiles decoder language models ahead of time and runs them.\n\n"
                         "Commands\n");
    for (int i = 0; i < TG_COMMAND_COUNT; i++)
        tg_buf_printf(out, "  %-12s %-8s %s\n", tg_commands[i].name, tg_commands[i].operand,
                      tg_commands[i].summary);
    tg_buf_add_cstr(
        out, "\n"
             "MODEL is an artifact, or a source: a Hugging Face folder or a GGUF file, which is\n"
             "exported once into the cache, and a line says so.\n\n"
             "Other\n"
             "  trigraph COMMAND --help    the options of a command\n"
             "  trigraph --version         the version\n"
             "  trigraph --man             the manual page, for man -l -\n"
             "  trigraph --completion SHELL\n"
             "                             a completion script for bash, zsh or fish\n");
}

/* Rows of a section stand together in the table, so a change of section is a new title. */
void tg_help_print_command(tg_buf *out, tg_command_id c)
{
    const tg_command *cmd = &tg_commands[c];
    const char *section = "";
    tg_buf_printf(out, "usage: trigraph %s %s %s\n\n", cmd->name, cmd->operand, cmd->synopsis);
    add_wrapped(out, cmd->text, 0, 0);
    for (int i = 0; i < TG_OPT_COUNT; i++) {
        if (!is_on(&tg_options[i], c)) continue;
        if (strcmp(section, tg_options[i].section) != 0) {
            section = tg_options[i].section;
            tg_buf_printf(out, "\n%s\n", section);
        }
        add_option(out, &tg_options[i]);
    }
}

/* ---- man page */

/* Text for roff: hyphens that may be typed stay hyphens, and a line may not begin with a dot. */
static void add_roff(tg_buf *out, const char *text)
{
    for (const char *p = text; *p; p++) {
        if (*p == '-')
            tg_buf_add_cstr(out, "\\-");
        else if (*p == '\\')
            tg_buf_add_cstr(out, "\\e");
        else
            tg_buf_add_byte(out, *p);
    }
}

/* Names are bold and values slanted, as man pages have it since the beginning. */
static void add_roff_option(tg_buf *out, const tg_option *o)
{
    tg_buf_add_cstr(out, ".TP\n");
    if (o->letter) tg_buf_printf(out, "\\fB\\-%c\\fR, ", o->letter);
    tg_buf_add_cstr(out, "\\fB\\-\\-");
    add_roff(out, o->name);
    tg_buf_add_cstr(out, "\\fR");
    if (*o->value) {
        tg_buf_add_cstr(out, " \\fI");
        add_roff(out, o->value);
        tg_buf_add_cstr(out, "\\fR");
    }
    tg_buf_add_byte(out, '\n');
    add_roff(out, o->help);
    if (*o->fallback) {
        tg_buf_add_cstr(out, " (default: ");
        add_roff(out, o->fallback);
        tg_buf_add_byte(out, ')');
    }
    tg_buf_add_byte(out, '\n');
}

/* What is not in a table: the environment and the exit codes. */
static const char *const man_tail =
    ".SH FILES AND ENVIRONMENT\n"
    ".TP\n\\fBTG_CACHE_DIR\\fR\n"
    "Where artifacts of sources are kept (default: trigraph under XDG_CACHE_HOME or ~/.cache).\n"
    ".TP\n\\fBTG_THREADS\\fR\nThe number of worker threads where \\fB\\-\\-threads\\fR is not "
    "given.\n"
    ".TP\n\\fBTG_CPU\\fR\nLowers the kernels to a tier: ref, avx2 or avx512. No result changes.\n"
    ".TP\n\\fBTG_VERBOSE\\fR\nTopics to talk about on standard error, separated by commas, or "
    "all.\n"
    ".TP\n\\fBNO_COLOR\\fR\nNo colours on a terminal.\n"
    ".SH EXIT STATUS\n"
    "0 when all went well, 1 for failures, 2 for wrong usage, 130 and 143 after SIGINT and "
    "SIGTERM,\n141 when the reader of the output went away.\n";

/* No date on the page: the same version prints the same bytes (reproducible builds). */
void tg_help_print_man(tg_buf *out, const char *version)
{
    tg_buf_printf(out,
                  ".TH TRIGRAPH 1 \"\" \"trigraph %s\" \"User Commands\"\n.SH NAME\n"
                  "trigraph \\- compile decoder language models ahead of time and run them\n"
                  ".SH SYNOPSIS\n",
                  version);
    for (int i = 0; i < TG_COMMAND_COUNT; i++) {
        const tg_command *c = &tg_commands[i];
        tg_buf_printf(out, "%s\\fBtrigraph %s\\fR \\fI%s\\fR ", i ? ".br\n" : "", c->name,
                      c->operand);
        add_roff(out, c->synopsis);
        tg_buf_add_byte(out, '\n');
    }
    tg_buf_add_cstr(out, ".SH DESCRIPTION\nMODEL is an artifact made by \\fBexport\\fR, or a "
                         "source: a Hugging Face folder or a GGUF\nfile, which is exported once "
                         "into the cache. Completions go to standard output, everything\nelse to "
                         "standard error.\n.SH COMMANDS\n");
    for (int i = 0; i < TG_COMMAND_COUNT; i++) {
        tg_buf_printf(out, ".SS %s \\- ", tg_commands[i].name);
        add_roff(out, tg_commands[i].summary);
        tg_buf_add_byte(out, '\n');
        add_roff(out, tg_commands[i].text);
        tg_buf_add_byte(out, '\n');
        for (int k = 0; k < TG_OPT_COUNT; k++)
            if (is_on(&tg_options[k], (tg_command_id)i)) add_roff_option(out, &tg_options[k]);
    }
    tg_buf_add_cstr(out, man_tail);
}

/* ---- completions */

static void add_command_names(tg_buf *out)
{
    for (int i = 0; i < TG_COMMAND_COUNT; i++)
        tg_buf_printf(out, "%s%s", i ? " " : "", tg_commands[i].name);
}

/* bash asks a function and reads COMPREPLY. Words that are no option are completed as files, since
 * every operand is a path. */
static void print_bash(tg_buf *out)
{
    tg_buf_add_cstr(out, "# bash completion for trigraph; made by: trigraph --completion bash\n"
                         "_trigraph() {\n"
                         "    local word=${COMP_WORDS[COMP_CWORD]} options=\n"
                         "    if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
                         "        COMPREPLY=($(compgen -W \"");
    add_command_names(out);
    tg_buf_add_cstr(out, " --help --version --man --completion\" -- \"$word\"))\n"
                         "        return\n    fi\n    case ${COMP_WORDS[1]} in\n");
    for (int c = 0; c < TG_COMMAND_COUNT; c++) {
        tg_buf_printf(out, "    %s) options=\"", tg_commands[c].name);
        for (int i = 0, n = 0; i < TG_OPT_COUNT; i++)
            if (is_on(&tg_options[i], (tg_command_id)c))
                tg_buf_printf(out, "%s--%s", n++ ? " " : "", tg_options[i].name);
        tg_buf_add_cstr(out, "\" ;;\n");
    }
    tg_buf_add_cstr(out, "    esac\n"
                         "    case $word in\n"
                         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$word\")) ;;\n"
                         "    *) COMPREPLY=($(compgen -f -- \"$word\")) ;;\n"
                         "    esac\n}\n"
                         "complete -o filenames -F _trigraph trigraph\n");
}

/* zsh reads [ ] : and ' in a specification itself; our texts have none but the last two. */
static void add_zsh_text(tg_buf *out, const char *text)
{
    for (const char *p = text; *p; p++)
        if (*p == '\'')
            tg_buf_add_cstr(out, "'\\''");
        else if (*p == ':')
            tg_buf_add_cstr(out, "\\:");
        else
            tg_buf_add_byte(out, *p);
}

/* zsh takes one specification an option, with its help, and shows it beside the name. */
static void print_zsh(tg_buf *out)
{
    tg_buf_add_cstr(out, "#compdef trigraph\n# made by: trigraph --completion zsh\n"
                         "if (( CURRENT == 2 )); then\n    compadd -- ");
    add_command_names(out);
    tg_buf_add_cstr(out, "\n    return\nfi\ncase $words[2] in\n");
    for (int c = 0; c < TG_COMMAND_COUNT; c++) {
        tg_buf_printf(out, "%s)\n    _arguments '2:model:_files'", tg_commands[c].name);
        for (int i = 0; i < TG_OPT_COUNT; i++) {
            const tg_option *o = &tg_options[i];
            if (!is_on(o, (tg_command_id)c)) continue;
            tg_buf_printf(out, " \\\n        '--%s%s[", o->name,
                          o->type == TG_TYPE_FLAG ? "" : "=");
            add_zsh_text(out, o->help);
            tg_buf_add_cstr(out, o->type == TG_TYPE_FLAG ? "]'" : "]:value:_files'");
        }
        tg_buf_add_cstr(out, "\n    ;;\n");
    }
    tg_buf_add_cstr(out, "esac\n");
}

/* fish takes one command an option; the condition keeps it to its subcommand. */
static void print_fish(tg_buf *out)
{
    tg_buf_add_cstr(out, "# fish completion for trigraph; made by: trigraph --completion fish\n");
    for (int c = 0; c < TG_COMMAND_COUNT; c++) {
        const char *name = tg_commands[c].name;
        tg_buf_printf(out, "complete -c trigraph -n __fish_use_subcommand -a %s -d '%s'\n", name,
                      tg_commands[c].summary);
        for (int i = 0; i < TG_OPT_COUNT; i++) {
            const tg_option *o = &tg_options[i];
            if (!is_on(o, (tg_command_id)c)) continue;
            tg_buf_printf(out, "complete -c trigraph -n '__fish_seen_subcommand_from %s' -l %s",
                          name, o->name);
            if (o->letter) tg_buf_printf(out, " -s %c", o->letter);
            tg_buf_add_cstr(out, o->type == TG_TYPE_FLAG ? " -d '" : " -r -d '");
            for (const char *p = o->help; *p; p++)
                tg_buf_printf(out, "%s%c", *p == '\'' ? "\\" : "", *p);
            tg_buf_add_cstr(out, "'\n");
        }
    }
}

bool tg_help_print_completion(tg_buf *out, const char *shell)
{
    static const struct {
        const char *shell;
        void (*print)(tg_buf *out);
    } shells[] = {{"bash", print_bash}, {"zsh", print_zsh}, {"fish", print_fish}};
    for (size_t i = 0; i < TG_COUNT(shells); i++)
        if (strcmp(shell, shells[i].shell) == 0) {
            shells[i].print(out);
            return true;
        }
    return false;
}
