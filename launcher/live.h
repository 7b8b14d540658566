/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `--watch` of the commands that show something: looks again and again, and shows
 * what changed. On a terminal a table is painted over the one before; elsewhere,
 * and for JSON, each row or object that changed is printed as a line.
 *
 * The terminal keeps its modes, so that Ctrl-C needs no handling: it ends the
 * process, and what was painted last stays.
 */
#ifndef MUSTER_LAUNCHER_LIVE_H
#define MUSTER_LAUNCHER_LIVE_H

#include "base/buf.h"
#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

/* What one look has found. */
struct live_look {
    struct buf screen;    /* all of it, for a terminal */
    struct strlist keys;  /* which things there are, for all others */
    struct strlist marks; /* of each: differs where it has changed */
    struct strlist lines; /* of each: what to print then */
    bool is_over;         /* nothing will change any more */
};

/* Adds one thing. */
void live_add(struct live_look *v, const char *key, const char *mark,
              const char *line);

/* A table (show.h), to the screen and each row as a thing, known by a column;
 * bits of `restless` are columns that change by themselves and are no news. */
void live_add_table(struct live_look *v, const struct strlist *cells,
                    size_t n_columns, size_t key_column, unsigned restless);

/* The objects of a JSON array, known by a member; the members of `restless`
 * (NULL-terminated) are no news. */
void live_add_objects(struct live_look *v, const struct buf *array,
                      const char *key, const char *const *restless);

struct live {
    int (*look)(void *arg, struct live_look *ret, struct error *e);
    void *arg;
    unsigned period_ms;  /* between looks, at most */
    const char *dir;     /* news come there as status.json, or NULL; where the
                            kernel does not tell (NFS), the period holds */
    bool has_lines;      /* also on a terminal */
};

/* Until it is over or nobody reads. 0, or what `look` failed with. */
int live_run(const struct live *w, struct error *e);

#endif
