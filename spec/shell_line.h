/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line of shell as words, as far as it is simple: commands one after the other,
 * by ; && or new lines, without pipes, redirections, loops and the like. Nothing is
 * run and nothing expanded.
 */
#ifndef MUSTER_SPEC_SHELL_LINE_H
#define MUSTER_SPEC_SHELL_LINE_H

#include "spec/node.h"

#include <stdbool.h>
#include <stddef.h>

#define SHELL_LINE_MAX_WORDS 1000

struct shell_word {
    const char *text; /* without quotes; what expands is left as it is written */
    const char *raw;  /* as written */
    bool expands;     /* a shell would put something else in its place */
    bool is_first;    /* of a command */
};

struct shell_line {
    struct shell_word *words; /* of all commands */
    size_t n;
    size_t last;      /* the first one of the last command */
    size_t last_at;   /* where that begins in the text */
};

/* False where the text is not that simple. All of it is in the arena. */
bool shell_line_read(struct arena *a, const char *text, struct shell_line *ret);

#endif
