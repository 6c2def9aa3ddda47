/* SPDX-License-Identifier: Apache-2.0
 * options.h - the command line: one table of commands, one of options, and what was typed.
 *
 * The tables (options.c, options.def) are all there is: parsing here and the texts of help.h read
 * nothing else. GNU rules: options and operands in any order, "--name=value" or "--name value",
 * "-n4" or "-n 4", letters that take no value may be run together, "--" ends options, a long name
 * may be shortened while it stays unique, and - and _ are the same in it. */
#ifndef TG_APP_OPTIONS_H
#define TG_APP_OPTIONS_H

#include "base/str.h"

typedef enum tg_command_id {
    TG_COMMAND_EXPORT,
    TG_COMMAND_GENERATE,
    TG_COMMAND_CHAT,
    TG_COMMAND_TOKENIZE,
    TG_COMMAND_DETOKENIZE,
    TG_COMMAND_TEMPLATE,
    TG_COMMAND_INSPECT,
    TG_COMMAND_EVAL,
    TG_COMMAND_BENCH,
    TG_COMMAND_COUNT
} tg_command_id;

/* Sets of commands, for the option table. */
enum {
    TG_ON_EXPORT = 1 << TG_COMMAND_EXPORT,
    TG_ON_GENERATE = 1 << TG_COMMAND_GENERATE,
    TG_ON_CHAT = 1 << TG_COMMAND_CHAT,
    TG_ON_TOKENIZE = 1 << TG_COMMAND_TOKENIZE,
    TG_ON_DETOKENIZE = 1 << TG_COMMAND_DETOKENIZE,
    TG_ON_TEMPLATE = 1 << TG_COMMAND_TEMPLATE,
    TG_ON_INSPECT = 1 << TG_COMMAND_INSPECT,
    TG_ON_EVAL = 1 << TG_COMMAND_EVAL,
    TG_ON_BENCH = 1 << TG_COMMAND_BENCH,
    TG_ON_ALL = (1 << TG_COMMAND_COUNT) - 1
};

typedef struct tg_command {
    const char *name;
    const char *operand;  /* the word help shows: "MODEL" */
    const char *synopsis; /* what follows the operand in the usage line */
    const char *summary;  /* a phrase, for lists */
    const char *text;     /* sentences, for the command's own help */
} tg_command;

typedef enum tg_option_type {
    TG_TYPE_FLAG,
    TG_TYPE_TEXT,
    TG_TYPE_TEXTS, /* may be repeated */
    TG_TYPE_INT,
    TG_TYPE_INTS, /* "32,128" */
    TG_TYPE_FLOAT,
    TG_TYPE_FLOAT_BELOW, /* [min, max) */
    TG_TYPE_CHOICE
} tg_option_type;

typedef enum tg_option_id {
#define TG_OPTION(id, ...) TG_OPT_##id,
#include "app/options.def"
#undef TG_OPTION
    TG_OPT_COUNT
} tg_option_id;

typedef struct tg_option {
    const char *name, *aliases;
    char letter;
    int32_t commands; /* of TG_ON_* */
    const char *section;
    char group;
    tg_option_type type;
    const char *value;
    double min, max;
    const char *fallback, *help;
} tg_option;

extern const tg_command tg_commands[TG_COMMAND_COUNT];
extern const tg_option tg_options[TG_OPT_COUNT];

enum { TG_MAX_LIST = 16 }; /* values of a repeated option, numbers of a list */

/* What was typed. Every pointer is borrowed from argv or from the tables. */
typedef struct tg_args {
    tg_command_id command;
    const char *operand; /* NULL: none given */
    bool is_set[TG_OPT_COUNT];
    int64_t number[TG_OPT_COUNT]; /* INT; the table's default where not set */
    double real[TG_OPT_COUNT];
    const char *text[TG_OPT_COUNT]; /* TEXT, CHOICE; NULL or the table's default where not set */
    const char *texts[TG_MAX_LIST]; /* of the one TEXTS option a command may have */
    int32_t n_texts;
    int32_t ints[TG_MAX_LIST]; /* of the one INTS option a command may have */
    int32_t n_ints;
} tg_args;

/* Reads a command line after the program's and the command's name. TG_E_ARGUMENT is wrong usage;
 * `hint` then holds a line that helps, or stays empty. --help and --version end the reading
 * at once, and what is missing then is no error. */
TG_MUST_USE tg_status tg_args_parse(tg_args *a, tg_command_id command, int argc, char *const *argv,
                                    tg_buf *hint, tg_err *e);

/* --safe-messages, whose default is the command's. */
bool tg_args_has_safe_messages(const tg_args *a);

/* The command of a name; TG_COMMAND_COUNT when there is none, and `hint` may name the nearest. */
tg_command_id tg_command_find(const char *name, tg_buf *hint);

#endif
