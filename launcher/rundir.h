/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directory of one run: made, reopened, locked, found again. doc/formats.md
 * describes what lies in it. `run.json` makes a directory a run directory and
 * carries the version of the layout; one of a later version is refused.
 *
 * Everything here touches the filesystem and may block for as long as that
 * does: commands and the front end call it directly, an agent's loop thread
 * never does.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_H
#define MUSTER_LAUNCHER_RUNDIR_H

#include "base/cleanup.h"
#include "base/error.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    RUNDIR_FORMAT = 1,
    RUNDIR_ID_SIZE = 64,   /* with the terminator; [A-Za-z0-9._-] only */
    RUNDIR_NAME_SIZE = 64, /* a DNS label */
    RUNDIR_NONCE_BYTES = 16,
};

struct rundir {
    char path[PATH_MAX]; /* absolute */
    char id[RUNDIR_ID_SIZE];
    char name[RUNDIR_NAME_SIZE];
    uint64_t created_ns; /* wall clock */
    bool reopened;       /* rundir_create() found it there: a requeued job */
    int lock_fd;         /* -1 unless rundir_lock() succeeded */
};

struct rundir_params {
    const char *name; /* the job's */
    const char *id;   /* NULL: Slurm's job id, else time plus random */
    const char *dir;  /* exactly this directory; NULL: <base>/<name>/<id> */
    const char *base; /* NULL: "muster-runs" here */
};

/* Makes a run directory with its subdirectories, points `latest` beside it to
 * it (unless `dir` was given) and enters it into the index. Inside a Slurm job
 * runs get the ids JOBID, JOBID.2, ..., each one once, as far as the index knows;
 * after a requeue the k-th run of a name is the k-th one reopened. An explicit
 * `dir` that already is a run directory is reopened too. A lost index entry is no
 * failure. The caller owns *ret. */
int rundir_create(const struct rundir_params *p, struct rundir **ret,
                  struct error *e);

/* What rundir_create() would fail of, in its words, without making anything. What
 * only the attempt shows (a quota, a disk that is full) it does not know. */
int rundir_check(const struct rundir_params *p, struct error *e);

/* An existing one, by its path. -ENOENT, -ERR_FORMAT (no run directory),
 * -ERR_VERSION (a newer muster's). */
int rundir_open(const char *path, struct rundir **ret, struct error *e);

/* Unlocks too. NULL is allowed. */
void rundir_destroy(struct rundir *r);
DEFINE_CLEANUP(rundir);

/* Who holds a run. `since_ns` is the wall clock. */
struct rundir_owner {
    char host[256];
    pid_t pid;
    uint64_t start_ticks; /* of the process, since boot: tells pids apart */
    uint64_t since_ns;
};

/* Claims the run for this process until rundir_unlock() or its end (the kernel
 * drops the lock, also over NFS). -ERR_LOCKED names the owner and where to look.
 * Where the filesystem has no locks, the owner written in the lock file counts
 * as long as its process lives, as far as this host can tell. */
int rundir_lock(struct rundir *r, struct error *e);
void rundir_unlock(struct rundir *r);
/* In a child of the process that has the lock: it is the child's now. */
int rundir_inherit(const struct rundir *r, struct error *e);

/* Whether somebody holds it now, and who (ret_owner may be NULL). */
bool rundir_is_locked(const struct rundir *r, struct rundir_owner *ret_owner);

/* <run dir>/key: made once with fresh random bytes, 0600. See base/key.h
 * for reading. Returns 0 also where it exists already. */
int rundir_make_key(const struct rundir *r, struct error *e);

/* The nonce that shows whether another host sees this very directory: written
 * where a run starts, the same to its end, and compared by everybody else.
 * rundir_check_nonce() returns 1 if it is the same, 0 if the directory or the file is
 * missing or another. */
int rundir_write_nonce(const char *path, const void *nonce, struct error *e);
int rundir_read_nonce(const char *path, void *ret, struct error *e);
int rundir_check_nonce(const char *path, const void *nonce, struct error *e);

/* Forgets requests that lie in control/ from an earlier life of the run. */
void rundir_drop_requests(const struct rundir *r);

/* The path of a file below, checked for length. */
int rundir_path(const struct rundir *r, char *to, size_t size, struct error *e,
                const char *fmt, ...) __attribute__((format(printf, 5, 6)));

/* Which run a command's argument means: a run directory (or one with a `latest`
 * in it), a run id, or a name (its newest run); NULL: the newest run of all.
 * Writes the path of a directory that holds a run.json, else -ENOENT with the
 * nearest name that exists. */
int rundir_resolve(const char *arg, char *to, size_t size, struct error *e);

struct rundir_entry {
    char name[RUNDIR_NAME_SIZE];
    char id[RUNDIR_ID_SIZE];
    char path[PATH_MAX];
    uint64_t entered_ns; /* wall clock */
};

/* Whether the directory at `path` is a run directory, by its run.json. */
bool rundir_is_one(const char *path);

/* Whether the run of an entry is still in its directory: that may be gone, or be
 * another run's by now. One that cannot be read counts as there. */
bool rundir_is_current(const struct rundir_entry *entry);

/* The index ($XDG_STATE_HOME/muster/runs), newest first; `name` NULL for all.
 * A missing index is an empty one. The caller frees *ret. */
int rundir_index(const char *name, struct rundir_entry **ret, size_t *ret_n,
                 struct error *e);

#endif
