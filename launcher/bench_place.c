/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/bench_place.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/leftover.h"
#include "base/str.h"
#include "launcher/rundir.h"
#include "launcher/snap_budget.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PAUSE_MS = 50,
    AGENTS_MS = 60 * 1000, /* they end by themselves without a front end */
    KEEPER_MS = 90 * 1000,
    YOUNG_S = 60, /* one without a lock may be about to get it */
};

static const char PREFIX[] = ".muster-bench-";

/* --- taking away --- */

/* What the run has outside of its directory, once its agents have ended. */
static void clear_run(const char *path)
{
    _cleanup_(rundir) struct rundir *run = NULL;
    char dir[PATH_MAX], runtime[PATH_MAX];
    uint64_t end_ms = clock_mono_ms() + AGENTS_MS;

    if (fs_path(dir, sizeof(dir), NULL, "%s/run", path) < 0 ||
        rundir_open(dir, &run, NULL) < 0) {
        return;
    }
    if (fs_runtime_dir(runtime, sizeof(runtime), NULL) == 0 &&
        fs_path(dir, sizeof(dir), NULL, "%s/%s", runtime, run->id) == 0) {
        while (leftover_is_inhabited(dir, NULL) == 1 &&
               clock_mono_ms() < end_ms) {
            poll(NULL, 0, PAUSE_MS);
        }
        leftover_remove(dir, NULL);
    }
    snap_dir_remove(run->id, NULL);
}

static int clear(const char *path, struct error *e)
{
    clear_run(path);
    return fs_remove_tree(path, e);
}

/* Nobody has its lock, which is ours then. What others put there under such a name is
 * not looked into. */
static bool is_left(const char *path, int *ret_lock)
{
    char name[PATH_MAX];
    struct stat st;

    if (fs_path(name, sizeof(name), NULL, "%s/lock", path) < 0 ||
        lstat(path, &st) < 0 || !S_ISDIR(st.st_mode) ||
        st.st_uid != geteuid() || (st.st_mode & 077)) {
        return false;
    }
    *ret_lock = open(name, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (*ret_lock < 0) {
        return errno == ENOENT && time(NULL) - st.st_mtime > YOUNG_S;
    }
    return flock(*ret_lock, LOCK_EX | LOCK_NB) == 0;
}

static void clear_others(const char *dir)
{
    DIR *d = opendir(dir);
    struct dirent *entry;

    while (d && (entry = readdir(d))) {
        char path[PATH_MAX];
        _close_ int lock = -1;

        if (str_starts(entry->d_name, PREFIX) &&
            fs_path(path, sizeof(path), NULL, "%s/%s", dir, entry->d_name) == 0 &&
            is_left(path, &lock) && clear(path, NULL) == 0) {
            fprintf(stderr, "muster: removed %s, which one that was killed has "
                    "left\n", path);
        }
    }
    if (d) {
        closedir(d);
    }
}

/* --- the keeper --- */

static void be_deaf(void)
{
    static const int sigs[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGPIPE};

    for (size_t i = 0; i < ARRAY_SIZE(sigs); i++) {
        signal(sigs[i], SIG_IGN);
    }
}

/* Holds nobody's terminal or pipe open. */
static void be_silent(void)
{
    int null = open("/dev/null", O_RDWR);

    for (int fd = 0; fd <= 2 && null >= 0; fd++) {
        dup2(null, fd);
    }
    if (null > 2) {
        close(null);
    }
}

static void keep(int held, const char *path)
{
    char c;

    be_deaf();
    be_silent();
    while (read(held, &c, 1) < 0 && errno == EINTR) {
    }
    _exit(clear(path, NULL) < 0);
}

static int start_keeper(struct bench_place *p, struct error *e)
{
    int ends[2];

    if (pipe2(ends, O_CLOEXEC) < 0 || (p->keeper = fork()) < 0) {
        return error_set(e, errno, "start who takes away %s", p->path);
    }
    if (p->keeper == 0) {
        close(ends[1]);
        keep(ends[0], p->path);
    }
    close(ends[0]);
    p->held = ends[1];
    return 0;
}

/* --- all of it --- */

static int make_lock(struct bench_place *p, struct error *e)
{
    char name[PATH_MAX];
    int rc = fs_path(name, sizeof(name), e, "%s/lock", p->path);

    if (rc < 0) {
        return rc;
    }
    p->lock = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (p->lock < 0) {
        return error_set(e, errno, "make %s", name);
    }
    /* Without locks it is never taken for what a killed one has left. */
    (void)flock(p->lock, LOCK_EX | LOCK_NB);
    return 0;
}

int bench_place_make(const char *dir, struct bench_place *ret, struct error *e)
{
    struct bench_place p = {.held = -1, .lock = -1};
    int rc = fs_path(p.path, sizeof(p.path), e, "%s/%sXXXXXX", dir, PREFIX);

    if (rc < 0) {
        return rc;
    }
    clear_others(dir);
    if (!mkdtemp(p.path)) {
        return error_set(e, errno, "make a directory in %s", dir);
    }
    rc = make_lock(&p, e);
    rc = rc < 0 ? rc : start_keeper(&p, e);
    if (rc < 0) {
        fs_remove_tree(p.path, NULL);
        close_fd(&p.lock);
        return rc;
    }
    *ret = p;
    return 0;
}

int bench_place_remove(struct bench_place *p, struct error *e)
{
    uint64_t end_ms = clock_mono_ms() + KEEPER_MS;
    int status = 0, rc;

    close_fd(&p->held);
    while ((rc = waitpid(p->keeper, &status, WNOHANG)) == 0 &&
           clock_mono_ms() < end_ms) {
        poll(NULL, 0, PAUSE_MS);
    }
    close_fd(&p->lock);
    if (rc == 0) {
        return error_text(e, EBUSY, "%s is not removed yet: somebody of its run "
                          "does not end, and process %ld waits for that", p->path,
                          (long)p->keeper);
    }
    /* Whoever killed the keeper has left its work to us. */
    return rc > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0 : clear(p->path, e);
}
