/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Launchers that stand behind something else: `bash -c "torchrun ..."`, env, exec,
 * nohup, numactl and the like. What is in front is taken off while the launcher's
 * options are read, and what matters of it is put in front of the program then.
 */
#ifndef MUSTER_SPEC_COMMAND_WRAP_H
#define MUSTER_SPEC_COMMAND_WRAP_H

#include "spec/command.h"
#include "spec/shell_line.h"

struct wrap {
    const struct context *c;
    struct node *tree;
    struct node *outer; /* words kept in front of all */
    struct node *inner; /* behind the shell */
    struct node *env;   /* variables that env or the shell would have set */
    /* A line of shell; line.n is 0 where there is none. */
    struct shell_line line;
    struct node **words; /* of the line's last command */
    struct node *shell;  /* up to -c */
    struct node *text;
    struct node **tail;  /* what is behind the text */
    size_t n_tail;
    bool keep_shell;
    bool is_wrapped; /* the tree's command is what was found */
};

/* Where the command of the tree is a launcher behind something else, makes it the
 * launcher alone: true. Warns of a launcher that is seen, but cannot be read. */
bool command_unwrap(const struct context *c, struct node *tree,
                    struct wrap *ret);

/* Puts what was kept around the command that the tree has now. */
void command_rewrap(struct wrap *w);

/* Whether the text behind `sh -c` ends so that it passes on all words behind it. */
bool command_passes_words(const char *text);

/* --- for its own files --- */

/* Warnings of launchers that are not read: the command itself, what the text of a
 * shell starts, what is behind a program that is not known. */
void command_warn_of_unread(const struct context *c, const struct node *word);
void command_warn_of_text(const struct wrap *w);
void command_warn_of_words(const struct wrap *w, struct node **words, size_t n);

/* NAME=VALUE; the length of the name, or 0. */
size_t command_assignment(const char *s);

/* Whether the part behind the last slash is one of these; NULL ends them. */
bool command_is_in(const char *const *names, const char *word);

#endif
