/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Commands that are launchers themselves (torchrun, mpirun): their options are
 * read, and the program behind them is what muster starts.
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

/* --- for the files of launchers --- */

struct command {
    const struct context *c;
    struct node *tree;
    struct node **argv;
    size_t n;
    size_t at;            /* the next to be looked at */
    const char *launcher; /* as messages call it */
    bool is_argparse;     /* options are read as Python's argparse does */
};

struct launcher_option {
    const char *name; /* without dashes, - for _ */
    unsigned n_values;
    int meaning;
};

struct launcher_hit {
    const struct launcher_option *option;
    struct node *node;   /* the option as written */
    struct node *values[2];
    bool is_environment; /* a default that the environment gives; `node` is the
                            variable's name */
};

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

/* True, with a note, for values that a shell should have filled in. */
bool command_is_unexpanded(struct command *cmd, const struct launcher_hit *hit,
                           const struct node *value);

/* The rest of the command, from cmd->at, as the command of the tree, behind the
 * `n` nodes at `first`. */
void command_replace(struct command *cmd, struct node *const *first, size_t n);

/* What a launcher's file gives: whether the command is one of its kind, with
 * cmd->at moved behind its name; and the reading of it. */
bool command_is_torch(struct command *cmd);
bool command_read_torch(struct command *cmd);
bool command_is_mpi(struct command *cmd);
bool command_read_mpi(struct command *cmd);

/* The part of a path behind the last slash. */
const char *command_basename(const char *path);

/* True for python, python3.11 and the like. */
bool command_is_python(const char *word);

#endif
