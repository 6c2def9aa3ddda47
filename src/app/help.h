/* SPDX-License-Identifier: Apache-2.0
 * help.h - the texts made from the tables of options.h: help, man page, shell completions.
 *
 * Each appends to a buffer, so that tests compare them with golden files without a program. */
#ifndef TG_APP_HELP_H
#define TG_APP_HELP_H

#include "app/options.h"

/* The list of commands: what "trigraph --help" prints. */
void tg_help_print_commands(tg_buf *out);
/* One command: usage, what it does, its options by section. */
void tg_help_print_command(tg_buf *out, tg_command_id c);
/* trigraph(1) in the man macros. */
void tg_help_print_man(tg_buf *out, const char *version);
/* A completion script for "bash", "zsh" or "fish"; false for another shell. */
bool tg_help_print_completion(tg_buf *out, const char *shell);

#endif
