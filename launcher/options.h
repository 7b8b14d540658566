/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line options from a table: the same table parses and prints --help.
 *
 * Long options are `--name`, `--name=value` or `--name value`; underscores in
 * the name read as dashes, because that is how torchrun's users write them.
 * Names are never abbreviated: a short form of today would be a breaking change
 * tomorrow. Short options are `-f`, `-o value`, `-ovalue`, and flags bundle.
 * `--` ends the options. Every table has `-h`/`--help` without listing it.
 *
 * A later option overrides an earlier one, except OPTION_LIST, which collects.
 * Values stay in argv's memory. Not thread-safe only in that it prints.
 */
#ifndef MUSTER_LAUNCHER_OPTIONS_H
#define MUSTER_LAUNCHER_OPTIONS_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct option_def;

/* Takes one value (NULL for a flag) into the caller's struct. Its error text
 * is put behind "option --NAME: ". */
typedef int option_f(void *into, const struct option_def *def,
                     const char *value, struct error *e);

enum option_type {
    OPTION_FLAG, /* bool: becomes true */
    OPTION_STR,  /* const char *: borrowed from argv */
    OPTION_MAYBE, /* the same, "" without one: only --name=value gives one */
    OPTION_INT,  /* int64_t: a whole decimal number */
    OPTION_LIST, /* struct strlist: each value is added */
    OPTION_CALL, /* `call` is asked; `offset` is its own affair */
};

struct option_def {
    const char *name;      /* with dashes, without the leading two */
    const char *value;     /* what --help calls the value; NULL for a flag */
    const char *help;      /* a phrase for --help; NULL hides it */
    enum option_type type;
    size_t offset;         /* of the field in the caller's struct */
    option_f *call;        /* for OPTION_CALL */
    char letter;           /* the short form, or 0 */
};

struct options {
    const char *command; /* e.g. "status" */
    const char *usage;   /* what follows "muster COMMAND"; lines for several */
    const char *about;   /* a paragraph for --help */
    const struct option_def *table; /* ends with a zero entry; NULL for none */
    bool stops_at_positional;       /* all after the first one are positional */
    size_t min_args, max_args;      /* positional ones before `--`; 0 max means
                                       none, SIZE_MAX means any number */
    bool takes_rest;                /* words may follow `--` as `rest` */
    bool takes_numbers;             /* -1 is a word, and no option */
    /* Whose else an option may be that the table does not have: how many words
     * behind it are its values, or -1. They are kept as `others`. NULL: nobody's */
    int (*n_values_elsewhere)(const char *word);
};

/* What was not an option. Release with option_args_release(). */
struct option_args {
    struct strlist words; /* positional arguments before `--` */
    struct strlist rest;  /* all after `--`; without takes_rest they are words */
    struct strlist others; /* options that are not of the table, with values */
    bool has_rest;        /* `--` was there */
};

void option_args_release(struct option_args *a);
#define _option_args_ __attribute__((cleanup(option_args_release)))

enum { OPTIONS_HELP = 1 };

/* Parses argv[1..]. 0, OPTIONS_HELP if help was asked for (nothing is printed),
 * or -ERR_USAGE with a text that names the option and, for an unknown one, the
 * nearest that exists. `into` and `ret_args` may be half filled on failure and
 * are the caller's to release. */
int options_parse(const struct options *o, int argc, char **argv, void *into,
                  struct option_args *ret_args, struct error *e);

/* How many words behind it are values of a word that is an option of the table;
 * -1 if it is none. */
int options_n_values(const struct options *o, const char *word);

/* The text of --help. */
void options_help(const struct options *o, struct buf *to);

/* For commands: parses, prints --help to stdout or the error to stderr. -1 to go
 * on, else the exit status to return. */
int options_start(const struct options *o, int argc, char **argv, void *into,
                  struct option_args *ret_args);

/* Prints "muster: TEXT" of a failure to stderr, and returns the exit status
 * that fits its code: 2 for ERR_USAGE and ERR_SPEC, 75 for ERR_SUSPENDED, 124 for
 * ERR_DEADLINE, else 1. */
int command_fail(const struct error *e);

#endif
