/* SPDX-License-Identifier: Apache-2.0
 * command.h - the commands, one file each. Each returns the exit code and has said what failed. */
#ifndef TG_APP_COMMAND_H
#define TG_APP_COMMAND_H

#include "app/options.h"

int tg_run_export(const tg_args *a);
int tg_run_generate(const tg_args *a);
int tg_run_chat(const tg_args *a);
int tg_run_tokenize(const tg_args *a);
int tg_run_detokenize(const tg_args *a);
int tg_run_template(const tg_args *a);
int tg_run_inspect(const tg_args *a);
int tg_run_eval(const tg_args *a);
int tg_run_bench(const tg_args *a);

#endif
