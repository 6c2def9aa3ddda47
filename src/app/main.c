/* SPDX-License-Identifier: Apache-2.0
 * main.c - the program's door: which command, or which of the texts about commands. */
#include "app/command.h"
#include "app/help.h"
#include "app/term.h"
#include "base/fault.h"
#include "trigraph.h"

#include <string.h>
#include <unistd.h>

/* A command without its line here is NULL and would crash at once: the e2e help test calls each. */
static int (*const commands[TG_COMMAND_COUNT])(const tg_args *) = {
    [TG_COMMAND_EXPORT] = tg_run_export,
    [TG_COMMAND_GENERATE] = tg_run_generate,
    [TG_COMMAND_CHAT] = tg_run_chat,
    [TG_COMMAND_TOKENIZE] = tg_run_tokenize,
    [TG_COMMAND_DETOKENIZE] = tg_run_detokenize,
    [TG_COMMAND_TEMPLATE] = tg_run_template,
    [TG_COMMAND_INSPECT] = tg_run_inspect,
    [TG_COMMAND_EVAL] = tg_run_eval,
    [TG_COMMAND_BENCH] = tg_run_bench,
};

/* Prints a text about the program and gives its memory back. */
static int print_text(tg_buf *text)
{
    tg_err e = {0};
    tg_term out;
    tg_term_init(&out, STDOUT_FILENO);
    tg_status s = tg_buf_check(text, &e);
    tg_term_write(&out, tg_buf_str(text));
    tg_buf_deinit(text);
    return tg_exit_code(s, &e, &out);
}

/* The library's version, not a constant of the program: with a shared library they may differ. */
static int print_version(void)
{
    tg_buf text = {0};
    tg_buf_printf(&text, "trigraph %s\n", tg_version());
    return print_text(&text);
}

/* Wrong usage before a command is known: one sentence, one hint, 2. */
static int fail_usage(const char *hint, const char *words, const char *value)
{
    tg_err e = {0};
    tg_fail(&e, TG_E_ARGUMENT, "%s%s", words, value);
    tg_say_error(&e, *hint ? hint : "trigraph --help lists the commands");
    return TG_EXIT_USAGE;
}

/* The options that stand before any command. -1: the word is none of them. */
static int run_global(int argc, char **argv)
{
    tg_buf text = {0};
    const char *word = argv[1];
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0 || strcmp(word, "help") == 0) {
        if (argc > 2) {
            tg_buf hint = {0};
            tg_command_id c = tg_command_find(argv[2], &hint);
            if (c == TG_COMMAND_COUNT) {
                int code = fail_usage(tg_buf_cstr(&hint), "there is no command ", argv[2]);
                tg_buf_deinit(&hint);
                return code;
            }
            tg_help_print_command(&text, c);
        } else {
            tg_help_print_commands(&text);
        }
        return print_text(&text);
    }
    if (strcmp(word, "--version") == 0 || strcmp(word, "-V") == 0) return print_version();
    if (strcmp(word, "--man") == 0) {
        tg_help_print_man(&text, tg_version());
        return print_text(&text);
    }
    if (strcmp(word, "--completion") == 0) {
        if (argc > 2 && tg_help_print_completion(&text, argv[2])) return print_text(&text);
        return fail_usage("trigraph --completion bash, zsh or fish",
                          "--completion has no script for the shell ", argc > 2 ? argv[2] : "''");
    }
    return -1;
}

/* Help and version win over what is missing, so that "generate --help" needs no model. */
static int run_command(tg_command_id id, int argc, char **argv)
{
    tg_args args;
    tg_buf hint = {0};
    tg_err e = {0};
    int code;
    if (tg_args_parse(&args, id, argc, argv, &hint, &e) != TG_OK) {
        if (!hint.len) tg_buf_printf(&hint, "trigraph %s --help lists the options", argv[-1]);
        tg_say_error(&e, tg_buf_cstr(&hint));
        code = TG_EXIT_USAGE;
    } else if (args.is_set[TG_OPT_HELP]) {
        tg_buf text = {0};
        tg_help_print_command(&text, id);
        code = print_text(&text);
    } else if (args.is_set[TG_OPT_VERSION]) {
        code = print_version();
    } else {
        code = commands[id](&args);
    }
    tg_buf_deinit(&hint);
    return code;
}

int main(int argc, char **argv)
{
    tg_buf hint = {0};
    tg_faults_catch();
    if (argc < 2) return fail_usage("", "no command is given", "");
    int code = run_global(argc, argv);
    if (code >= 0) return code;
    tg_command_id id = tg_command_find(argv[1], &hint);
    if (id == TG_COMMAND_COUNT)
        code =
            fail_usage(tg_buf_cstr(&hint),
                       argv[1][0] == '-' ? "there is no option " : "there is no command ", argv[1]);
    else
        code = run_command(id, argc - 2, argv + 2);
    tg_buf_deinit(&hint);
    return code;
}
