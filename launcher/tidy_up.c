/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/tidy.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "comm/agent_find.h"
#include "launcher/agent_files.h"
#include "launcher/runview.h"
#include "launcher/snap_budget.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    SWEPT_MS = 100, /* for muster-mpi, which may sweep up in the same place */
    LOOK_MS = 2000,
    LATER_MS = 10 * 1000, /* once it has not ended soon */
    SOON_MS = 60 * 1000,
};

struct tidying {
    const char *tag;
    unsigned index;
    char told[PATH_MAX]; /* the file in which the agent told its run */
    struct stat was;     /* of that */
    struct agent_run run;
    struct tidy tidy;
    struct tidy_look look; /* the last one ... */
    struct stat status;    /* ... at that file */
};

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_ino == b->st_ino && a->st_mtim.tv_sec == b->st_mtim.tv_sec &&
           a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

/* --- the run --- */

static struct tidy_look read_run(const struct tidying *t)
{
    _run_view_ struct run_view v = {0};
    int rc = run_view_read(t->run.dir, &v, NULL);

    if (rc < 0) {
        /* Without a shared directory there is one here of that name, with logs. */
        return (struct tidy_look){.is_gone = rc == -ENOENT || rc == -ENOTDIR ||
                                             rc == -ERR_FORMAT};
    }
    if (strcmp(v.dir->id, t->run.id) != 0) {
        return (struct tidy_look){.is_gone = true};
    }
    return (struct tidy_look){.is_read = true,
                              .state = v.status->state,
                              .updated_ns = v.status->updated_ns};
}

/* The status of many workers is long: it is read where it is another one. */
static void look_at(struct tidying *t)
{
    char path[PATH_MAX];
    struct stat now;

    if (fs_path(path, sizeof(path), NULL, "%s/status.json", t->run.dir) < 0 ||
        stat(path, &now) < 0) {
        t->look = read_run(t);
    } else if (!t->look.is_read || !is_same(&now, &t->status)) {
        t->look = read_run(t);
        t->status = now;
    }
}

/* --- what is left here --- */

/* A newer agent has told its run in the same place. Who merely holds the lock there may
 * be muster-mpi, which sweeps up. */
static bool has_heir(const struct tidying *t)
{
    struct stat now;

    return stat(t->told, &now) == 0 && !is_same(&now, &t->was);
}

/* False while somebody has its place, who may be about to use what is there. */
static bool take_away(const struct tidying *t, bool with_memory)
{
    _close_ int place = -1;

    if (!agent_is_gone(t->tag, t->index, &place)) {
        return false;
    }
    if (with_memory) {
        snap_dir_remove_agent(t->run.id, t->index);
    }
    close_fd(&place);
    agent_remove_leftovers(t->tag);
    return true;
}

static void tidy(struct tidying *t, bool waits)
{
    uint64_t began_ms = clock_mono_ms();

    while (!take_away(t, false)) {
        if (has_heir(t) || !waits) {
            return;
        }
        poll(NULL, 0, SWEPT_MS);
    }
    while (snap_dir_has_agent(t->run.id, t->index) && !has_heir(t)) {
        uint64_t now_ms = clock_mono_ms();
        enum tidy_step step;

        look_at(t);
        step = tidy_decide(&t->tidy, &t->look, now_ms);
        if (step == TIDY_LEAVE || (step == TIDY_TAKE && take_away(t, true)) || !waits) {
            return;
        }
        poll(NULL, 0, now_ms - began_ms > SOON_MS ? LATER_MS : LOOK_MS);
    }
}

int tidy_up(const char *tag, unsigned index, bool waits, struct error *e)
{
    struct tidying t = {.tag = tag, .index = index};
    char base[PATH_MAX], dir[PATH_MAX];
    _close_ int fd = -1;
    int rc;

    if ((rc = fs_runtime_dir(base, sizeof(base), e)) < 0 ||
        (rc = fs_path(dir, sizeof(dir), e, "%s/%s", base, tag)) < 0 ||
        (rc = agent_files_told(dir, index, t.told, e)) < 0) {
        return rc;
    }
    fd = open(t.told, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &t.was) < 0) {
        return error_set(e, errno, "open %s", t.told);
    }
    rc = agent_files_read(t.told, &t.run, e);
    if (rc < 0) {
        return rc;
    }
    /* One at a time: also muster-mpi starts one, for the watch may be dead. The other one
     * waits, for the first may be killed. */
    while ((rc = flock(fd, waits ? LOCK_EX : LOCK_EX | LOCK_NB)) < 0 && errno == EINTR) {
    }
    if (rc == 0) {
        t.tidy.silent_ms = tidy_silent_ms(t.run.lease_ms);
        tidy(&t, waits);
    }
    return 0;
}
