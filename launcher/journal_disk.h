/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a journal, and what waits to be written to them. Private to
 * journal*.c; the writer's alone: everything here may block as long as the
 * filesystem does.
 */
#ifndef MUSTER_LAUNCHER_JOURNAL_DISK_H
#define MUSTER_LAUNCHER_JOURNAL_DISK_H

#include "launcher/journal.h"

#include <limits.h>
#include <stdbool.h>

struct journal_sink {
    int fd;
    bool is_torn;     /* what was there before ends inside a line */
    struct buf batch; /* taken from the queue, written from `done` on */
    size_t done;
};

/* Members are for journal_disk.c, but for what says when. */
struct journal_disk {
    char dir[PATH_MAX];
    struct journal_sink sinks[JOURNAL_N_FILES];
    struct run_status *status; /* taken, not yet on disk */
    uint64_t status_at_ns;     /* when the last was written, or failed */
    int generation;            /* of the last that was written; INT_MIN: none */
    bool was_whole;   /* the run directory had its run.json */
    bool has_reserve; /* room is kept for a status on a full disk */
};

extern const char *const journal_file_names[JOURNAL_N_FILES];

/* Touches no file. */
int journal_disk_init(struct journal_disk *d, const char *dir,
                      struct error *e);
/* Its files are closed. */
void journal_disk_release(struct journal_disk *d);

/* Takes what is pending for a file, and leaves an empty buffer for it; nothing
 * while the last batch still waits for the disk. */
void journal_disk_take(struct journal_disk *d, enum journal_file file,
                       struct buf *pending);
/* The newest one counts; owned from here. */
void journal_disk_take_status(struct journal_disk *d, struct run_status *s);

/* Bytes of the batch that are not written yet; whether there is anything. */
size_t journal_disk_left(const struct journal_disk *d, enum journal_file file);
bool journal_disk_has_work(const struct journal_disk *d);

/* Files fail one by one: a status can be written where events cannot. The first
 * failure is told; what is left waits for the next call. */
int journal_disk_write(struct journal_disk *d, struct error *e);

/* Syncs the files and closes them; for the thread that wrote, whose descriptors are
 * nobody else's (base/thread.h). A failure is told unless `e` has one already. */
void journal_disk_close(struct journal_disk *d, struct error *e);

#endif
