/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that are launchers themselves (torchrun, mpirun, deepspeed,
 * accelerate launch, horovodrun): their options are read, and the program
 * behind them is what muster starts.
 */
#ifndef MUSTER_SPEC_COMMAND_H
#define MUSTER_SPEC_COMMAND_H

#include "spec/form.h"

#include <stdbool.h>
#include <stddef.h>

/* Joins `command` and `args` of a tree of the short form and takes a launcher
 * off it. What the launcher's options say fills in what the tree leaves open;
 * where both say something, the tree counts and a difference is a warning.
 * False after an error. */
bool command_settle(const struct context *c, struct node *tree);

/* Reads options of torchrun, with their values, into a tree. */
void command_torch_options(const struct context *c, struct node *tree,
                           char *const *words);

/* --- for the files of launchers --- */

/* What an option of a launcher means; `text` of it says more. */
enum launcher_meaning {
    LAUNCHER_NOTED,   /* no loss, or none that matters; text: why */
    LAUNCHER_SILENT,  /* the same, and not worth a word */
    LAUNCHER_REFUSED, /* cannot be had; text: what can */
    LAUNCHER_KEY,     /* text: the key of the short form that takes its value */
    LAUNCHER_SECONDS, /* the same, where the value is seconds */
    LAUNCHER_TOTAL,   /* processes of the whole job */
    LAUNCHER_ENV,     /* text: a variable of the workers; 1 where the option has
                         no value */
    LAUNCHER_ENV_OFF, /* likewise, and 0 */
    LAUNCHER_ENV_NUMBER, /* text: the same, where the value is a number from 0 on */
    LAUNCHER_MODULE,
    LAUNCHER_NO_PYTHON,
    LAUNCHER_OWN,     /* from here on: what a launcher's file reads itself */
};

struct launcher_option {
    const char *name; /* without dashes, - for _ */
    unsigned n_values;
    int meaning;
    const char *text;
};

struct launcher_hit {
    const struct launcher_option *option;
    struct node *node;   /* the option as written */
    struct node *values[2];
    bool is_environment; /* a default that the environment gives; `node` is the
                            variable's name */
};

struct command {
    const struct context *c;
    struct node *tree;
    struct node **argv;
    size_t n;
    size_t at;            /* the next to be looked at */
    const char *launcher; /* as messages call it */
    bool is_argparse;     /* options are read as Python's argparse does */
    const char *python;   /* the interpreter that a variable names; NULL: the
                             one beside the launcher */
    /* what options that were read ask for */
    bool module;
    bool no_python;
    struct launcher_hit total; /* option is NULL: not given */
};

/* Reads all options, with `own` for those from LAUNCHER_OWN on, up to the
 * program. False after an error, also where there is no program. */
bool command_read_options(struct command *cmd,
                          const struct launcher_option *table,
                          void (*own)(struct command *cmd,
                                      const struct launcher_hit *hit,
                                      void *arg),
                          void *arg);

/* One option that has been found, if its meaning is below LAUNCHER_OWN. */
void command_take(struct command *cmd, const struct launcher_hit *hit);

/* The option at cmd->at, which moves behind it and its values. 1; 0 at the
 * first word that is no option; -1 after an error. */
int command_next(struct command *cmd, const struct launcher_option *table,
                 struct launcher_hit *ret);

/* Which option of the table a word such as --nproc_per_node=2 is to argparse, or
 * NULL; *ret_value is what is attached to it, or NULL. */
const struct launcher_option *
command_option(const struct launcher_option *table, const char *word,
               const char **ret_value);

/* One setting from an option: `value` for the path, unless the tree has one. */
void command_offer(struct command *cmd, const struct launcher_hit *hit,
                   const char *path, struct node *value);

/* A variable of the workers, unless the tree has it. */
void command_set_env(struct command *cmd, const char *name,
                     struct node *value);

/* True, with a note, for values that a shell should have filled in. */
bool command_is_unexpanded(struct command *cmd, const struct launcher_hit *hit,
                           const struct node *value);

/* "X of LAUNCHER has no effect: WHY", unless X is only a default; and
 * "X of LAUNCHER; WHAT CAN BE HAD", which does not repeat the value. */
void command_note(struct command *cmd, const struct launcher_hit *hit,
                  const char *why);
void command_refuse(struct command *cmd, const struct launcher_hit *hit,
                    const char *instead);

/* A value without a unit, of which `len` bytes count, as seconds. */
struct node *command_seconds(struct command *cmd, const struct node *value,
                             const char *text, size_t len);

/* The map in a configuration file of the launcher, with a note that it is
 * taken; NULL after an error, or where it is empty. */
const struct node *command_load(struct command *cmd, const char *path,
                                const struct place *at);

/* cmd->total, or 0 where it is not given; false after an error. */
bool command_total(struct command *cmd, uint64_t *ret);

/* Nodes and processes of each from cmd->total, as far as they are open. */
void command_settle_total(struct command *cmd);

/* -H a:2,b:2: the hosts of the run, and from them and cmd->total, which may be
 * used up by that, nodes and processes of each, as far as they are open. `is_even`:
 * not the first ones full before the next. False after an error. */
bool command_settle_hosts(struct command *cmd, const struct launcher_hit *hit,
                          bool is_even);

/* A number as if the option had said it. */
struct node *command_number(struct command *cmd, const struct launcher_hit *hit,
                            uint64_t v);

/* The rest of the command, from cmd->at, as the command of the tree, behind the
 * `n` nodes at `first`. */
void command_replace(struct command *cmd, struct node *const *first, size_t n);

/* The same for a launcher of Python: the interpreter beside it, unless
 * cmd->no_python, `-u`, `-m` if cmd->module. `argument` (NULL: none) is put
 * between the program and its own arguments. Says that it did. */
void command_start_python(struct command *cmd, struct node *argument);

/* False, after an error, where both --module and --no-python were given. */
bool command_check_python(struct command *cmd);

/* True if the command is one of these programs, or one of these modules of
 * Python (both end with NULL); then cmd->launcher and cmd->at are set. */
bool command_is_one_of(struct command *cmd, const char *const *programs,
                       const char *const *modules);

/* Whether the words at cmd->argv begin with one of the launchers. */
bool command_is_launcher(struct command *cmd);

/* What a launcher's file gives: whether the command is one of its kind, with
 * cmd->at moved behind its name; and the reading of it. */
bool command_is_torch(struct command *cmd);
bool command_read_torch(struct command *cmd);
bool command_is_mpi(struct command *cmd);
bool command_read_mpi(struct command *cmd);
bool command_is_deepspeed(struct command *cmd);
bool command_read_deepspeed(struct command *cmd);
bool command_is_accelerate(struct command *cmd);
bool command_read_accelerate(struct command *cmd);
bool command_is_horovod(struct command *cmd);
bool command_read_horovod(struct command *cmd);

/* Whether a word is an option of mpirun whose part muster plays itself. */
bool command_mpi_owns(const char *word);

/* The part of a path behind the last slash. */
const char *command_basename(const char *path);

/* True for python, python3.11 and the like. */
bool command_is_python(const char *word);

#endif
