/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A run as commands see it from outside: its directory, its last status, and
 * whether anybody still stands behind that.
 *
 * A filesystem may answer nobody. What reads here does so in a thread, which is left
 * behind after some time: then the error is -ETIMEDOUT.
 */
#ifndef MUSTER_LAUNCHER_RUNVIEW_H
#define MUSTER_LAUNCHER_RUNVIEW_H

#include "base/buf.h"
#include "base/error.h"
#include "launcher/rundir.h"
#include "launcher/status.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct run_view {
    struct rundir *dir;
    struct run_status *status; /* never NULL: a fresh run is Created */
    json_t *json;              /* the same as it was read, with all its keys */
    bool has_status;           /* status.json was there */
    bool is_locked;
    struct rundir_owner owner; /* where locked */
    bool is_stale;             /* not over, but not refreshed for long */
    bool is_silent;            /* its directory answers nobody: run_view_heard() */
    uint64_t age_ms;           /* of the status */
};

enum {
    RUN_VIEW_PATIENCE_MS = 10 * 1000, /* of a command that is about one run */
    RUN_VIEW_BRIEF_MS = 2 * 1000,     /* where there are other things to show */
};

/* What rundir_resolve() makes of `arg`, read. The caller releases *ret. */
int run_view_load(const char *arg, struct run_view *ret, struct error *e);
int run_view_load_within(const char *arg, unsigned ms, struct run_view *ret,
                         struct error *e);

/* As run_view_load() for a known path. */
int run_view_open(const char *path, struct run_view *ret, struct error *e);

/* As that for an entry of the index. -ENOENT: the run is not there any more. */
int run_view_entry(const struct rundir_entry *entry, unsigned ms,
                   struct run_view *ret, struct error *e);

/* Whether the run of an entry is not in its directory any more; false where nobody
 * answers. */
bool run_view_entry_is_gone(const struct rundir_entry *entry, unsigned ms);

/* Where the directory of a run answers nobody: the run that `arg` means, as far as the
 * index and the sockets of this host know it. It lives, and its state is not known.
 * -ENOENT where nobody of it is on this host. */
int run_view_heard(const char *arg, struct run_view *ret, struct error *e);

/* As run_view_open(), for as long as it takes. */
int run_view_read(const char *path, struct run_view *ret, struct error *e);

/* What it makes of a run that has written nothing. */
int run_view_make_fresh(struct run_view *v, struct error *e);

/* Reads the status again, for as long as it takes. */
int run_view_refresh(struct run_view *v, struct error *e);

void run_view_release(struct run_view *v);
#define _run_view_ __attribute__((cleanup(run_view_release)))

/* Not over, and somebody is behind it as far as one can tell. */
bool run_view_is_alive(const struct run_view *v);

/* All of its nodes are this host. */
bool run_view_is_all_here(const struct run_view *v);

/* Not over, without a front end, and somebody of it would be heard here by this user if it were
 * alive, as far as one can tell; but nobody is. */
bool run_view_is_unheard(const struct run_view *v);

/* "Running", or "Running (stale: ...)" for people. */
void run_view_state(const struct run_view *v, char *to, size_t size);

/* The JSON of the status with "stale" and "locked" added. */
void run_view_json(const struct run_view *v, struct buf *to);

#endif
