/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How commands print: `-o`, tables whose columns line up, JSON and YAML from the
 * same data, colours for people only. For short-lived commands: prints to
 * stdout through stdio.
 */
#ifndef MUSTER_LAUNCHER_SHOW_H
#define MUSTER_LAUNCHER_SHOW_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"
#include "launcher/options.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

enum show_format {
    SHOW_TABLE,
    SHOW_WIDE,
    SHOW_JSON,
    SHOW_YAML,
};

/* The -o option of a command whose struct has an `enum show_format` field. */
#define SHOW_OPTION(where, field)                                  \
    {                                                              \
        .name = "output", .value = "FORMAT", .letter = 'o',        \
        .help = "print as json, yaml or wide (a table with more "  \
                "columns)",                                       \
        .type = OPTION_CALL, .offset = offsetof(where, field),     \
        .call = show_set_format,                                   \
    }
/* -w, for `bool` fields; with what show_check_watch() says. */
#define WATCH_OPTION(where, field, what)                                    \
    {                                                                       \
        .name = "watch", .letter = 'w', .help = what, .type = OPTION_FLAG,  \
        .offset = offsetof(where, field),                                   \
    }
/* -ERR_USAGE for a format that cannot be watched. */
int show_check_watch(bool is_watched, enum show_format format,
                     struct error *e);

int show_set_format(void *into, const struct option_def *def,
                    const char *value, struct error *e);

/* Prints a JSON text, indented, or the same as YAML. Returns the exit status. */
int show_json(const struct buf *json, enum show_format format);

/* A YAML rendering of a JSON text (block style). 0, or -ERR_FORMAT. */
int show_yaml(const char *json, size_t len, struct buf *to, struct error *e);

/* Rows of cells: the first `n_columns` are the header. Cells are padded to the
 * widest of their column but the last one; columns are two blanks apart.
 * Control characters in cells are shown as '?'. */
void show_table(const struct strlist *cells, size_t n_columns, struct buf *to);

/* Columns that a text takes on a terminal: code points, not bytes. */
size_t show_width(const char *s);

/* Adds text with what is no printable UTF-8 (but tabs) as '?': what came from
 * outside must not drive the user's terminal. */
void show_clean(struct buf *to, const char *s, size_t len);

/* Whether `f` is a terminal that may get colours (NO_COLOR, TERM=dumb). */
bool show_has_colour(FILE *f);

/* On stderr, that there are none, or none called `name`. */
void show_no_runs(const char *name);

/* Flushes stdout at the end of a command. A reader that went away (EPIPE) is no
 * failure; any other failed write is reported and makes the status 1. */
int show_finish(int exit_status);

#endif
