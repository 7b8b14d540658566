/* SPDX-License-Identifier: Apache-2.0 */
/* How a run is found: by name, by id, by its Slurm job; and who has it. */
#include <config.h>

#include "launcher/rundir_bed.h"

#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Locks in another process, which then waits to be told to end. */
static pid_t lock_elsewhere(const char *path, int *ret_fd)
{
    int ready[2], hold[2];
    char c;
    pid_t pid;

    if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(hold, O_CLOEXEC) < 0) {
        bail_out("pipe");
    }
    pid = fork();
    if (pid == 0) {
        struct rundir *r = NULL;

        close(hold[1]);
        if (rundir_open(path, &r, NULL) == 0 && rundir_lock(r, NULL) == 0 &&
            write(ready[1], "x", 1) == 1 && read(hold[0], &c, 1) == 0) {
            _exit(0);
        }
        _exit(1);
    }
    close(ready[1]);
    close(hold[0]);
    if (read(ready[0], &c, 1) != 1) {
        bail_out("the other process could not lock");
    }
    close(ready[0]);
    *ret_fd = hold[1];
    return pid;
}

static void test_lock(void)
{
    struct rundir_params p = {.name = "locked"};
    _cleanup_(rundir) struct rundir *r = bed_create(&p);
    struct rundir_owner owner = {0};
    struct error e = {0};
    char expect[64], path[PATH_MAX];
    int hold = -1, status = 0;
    pid_t pid;

    ok(!rundir_is_locked(r, NULL), "free before anybody locks");
    is_int(rundir_lock(r, NULL), 0, "locked");
    rundir_path(r, path, sizeof(path), NULL, "lock");
    ok(bed_has_mode(path, 0600), "in a private file");
    ok(fcntl(r->lock_fd, F_GETFD) & FD_CLOEXEC,
       "that no program started by us holds");
    rundir_unlock(r);
    ok(!rundir_is_locked(r, NULL), "free again");
    pid = lock_elsewhere(r->path, &hold);
    ok(rundir_is_locked(r, &owner), "held by another process");
    is_int(owner.pid, pid, "its pid is known");
    is_int(rundir_lock(r, &e), -ERR_LOCKED, "cannot be locked");
    snprintf(expect, sizeof(expect), "is alive: pid %ld on ", (long)pid);
    like(e.text, expect, "says who");
    like(e.text, "muster status ", "says what to do");
    close(hold);
    waitpid(pid, &status, 0);
    ok(!rundir_is_locked(r, NULL), "its end frees the lock");
    is_int(rundir_lock(r, &e), 0, "which can be taken: %s", e.text);
}

/* Agents and commands find a run by its id alone. */
static void test_slurm_names(void)
{
    static const struct {
        const char *restart, *name, *dir, *id;
        bool reopened;
    } steps[] = {
        {"0", "one", NULL, "4712", false},
        {"0", "two", NULL, "4712.2", false},
        {"0", "three", "given", "4712.3", false},
        {"0", "three", "given2", "4712.4", false},
        {"0", "one", NULL, "4712.5", false},
        {"1", "two", NULL, "4712.2", true},
        {"1", "three", "given2", "4712.4", true},
        {"1", "one", NULL, "4712", true},
        {"1", "one", NULL, "4712.5", true},
        {"1", "two", NULL, "4712.6", false},
    };

    setenv("SLURM_JOB_ID", "4712", 1);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        struct rundir_params p = {.name = steps[i].name, .dir = steps[i].dir};
        struct rundir *r;

        setenv("SLURM_RESTART_COUNT", steps[i].restart, 1);
        r = bed_create(&p);
        is_str(r->id, steps[i].id, "run %zu of a job, %s", i, steps[i].name);
        ok(r->reopened == steps[i].reopened, "run %zu of a job: reopened or "
           "not", i);
        rundir_destroy(r);
    }
    unsetenv("SLURM_RESTART_COUNT");
}

static void test_slurm(void)
{
    struct rundir_params p = {.name = "batch"};
    struct rundir *r;
    static const struct {
        const char *restart, *id;
        bool reopened;
    } steps[] = {
        {NULL, "4711", false}, {NULL, "4711.2", false},
        {"1", "4711", true}, {"1", "4711.2", true}, {"1", "4711.3", false},
        {"2", "4711", true},
    };

    setenv("SLURM_JOB_ID", "4711", 1);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (steps[i].restart) {
            setenv("SLURM_RESTART_COUNT", steps[i].restart, 1);
        }
        r = bed_create(&p);
        is_str(r->id, steps[i].id, "Slurm run %zu", i);
        ok(r->reopened == steps[i].reopened, "Slurm run %zu: reopened or not",
           i);
        rundir_destroy(r);
    }
    unsetenv("SLURM_RESTART_COUNT");
    test_slurm_names();
    setenv("SLURM_JOB_ID", "../../etc", 1);
    r = bed_create(&p);
    ok(str_starts(r->id, "20"), "a job id that is none is ignored: %s", r->id);
    rundir_destroy(r);
    unsetenv("SLURM_JOB_ID");
}

static void check_resolve(const char *arg, const char *want, const char *name)
{
    char path[PATH_MAX] = "";
    struct error e = {0};
    int rc = rundir_resolve(arg, path, sizeof(path), &e);

    ok(rc == 0 && strcmp(path, want) == 0, "%s: %s%s", name, path, e.text);
}

/* The run directory of somebody else. */
static void test_closed(const char *path)
{
    bool is_root = geteuid() == 0;
    char found[PATH_MAX];
    struct error e = {0};

    if (is_root && (chmod(".", 0711) < 0 || seteuid(65534) < 0)) {
        skip("cannot be another user");
        skip("cannot be another user");
        return;
    }
    if (!is_root) {
        chmod(path, 0);
    }
    is_int(rundir_resolve(path, found, sizeof(found), &e), -EACCES, "closed");
    like(e.text, "Permission denied", "said so");
    if (is_root && seteuid(0) < 0) {
        bail_out("seteuid");
    }
    if (!is_root) {
        chmod(path, 0700);
    }
}

static void test_resolve(void)
{
    struct rundir_params p = {.name = "find-me"};
    _cleanup_(rundir) struct rundir *a = bed_create(&p), *b = bed_create(&p);
    struct rundir_entry *entries = NULL;
    char path[PATH_MAX], cwd[PATH_MAX];
    struct error e = {0};
    size_t n = 0;

    is_int(rundir_index("find-me", &entries, &n, NULL), 0, "index");
    ok(n == 2 && strcmp(entries[0].id, b->id) == 0, "newest first");
    free(entries);
    is_int(rundir_index("nobody", &entries, &n, NULL), 0, "unknown name");
    ok(n == 0, "has none");
    free(entries);
    is_int(rundir_index("../runs/find-me", &entries, &n, NULL), 0, "no name");
    ok(n == 0, "leads nowhere");
    free(entries);
    check_resolve("find-me", b->path, "name");
    check_resolve(a->id, a->path, "id");
    check_resolve(a->path, a->path, "path");
    check_resolve("muster-runs/find-me", b->path, "the name's directory");
    check_resolve("muster-runs/find-me/latest", b->path, "latest");
    check_resolve(NULL, b->path, "the newest of all");
    is_int(rundir_resolve("find-em", path, sizeof(path), &e), -ENOENT, "typo");
    like(e.text, "did you mean find-me?", "nearest");
    is_int(rundir_resolve("a/b", path, sizeof(path), &e), -ENOENT, "no path");
    is_int(rundir_resolve("", path, sizeof(path), &e), -ENOENT, "nothing");
    test_closed(a->path);
    is_int(fs_remove_tree(b->path, NULL), 0, "newest removed");
    check_resolve("find-me", a->path, "removed runs are passed over");

    /* Without an index: what lies here. */
    setenv("XDG_STATE_HOME", "/proc/nonexistent", 1);
    check_resolve(a->id, a->path, "id, found here");
    is_int(rundir_resolve(NULL, path, sizeof(path), &e), -ENOENT, "no newest");
    like(e.text, "there is no run yet", "said so");
    if (!getcwd(cwd, sizeof(cwd))) {
        bail_out("getcwd");
    }
    snprintf(path, sizeof(path), "%.4000s/state", cwd);
    setenv("XDG_STATE_HOME", path, 1);
}

/* As rm -r and the same --run-dir again would have it. */
static void test_reused_directory(void)
{
    struct rundir_params p = {.name = "reused", .dir = "mine"};
    struct rundir *first = bed_create(&p);
    struct rundir *second;
    char path[PATH_MAX];

    fs_remove_tree(first->path, NULL);
    second = bed_create(&p);
    ok(strcmp(first->id, second->id) != 0 &&
           strcmp(first->path, second->path) == 0,
       "another run in the same directory");
    is_int(rundir_resolve(first->id, path, sizeof(path), NULL), -ENOENT,
           "the id of the first one does not lead there");
    check_resolve(second->id, second->path, "that of the second one does");
    rundir_destroy(first);
    rundir_destroy(second);
}

int main(void)
{
    bed_up();
    test_lock();
    test_slurm();
    test_resolve();
    test_reused_directory();
    bed_down();
    return tap_done();
}
