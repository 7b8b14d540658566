/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster tidy: what muster-watch becomes when its agent was killed, or has left a run
 * that goes on. It waits for the end of the run, and then takes away what that agent
 * left on this host, unless another one has come in its place, which does that itself.
 * Where the run's directory hangs it hangs, too, and nobody waits for it.
 */
#include <config.h>

#include "launcher/commands.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "comm/agent_find.h"
#include "launcher/agent_files.h"
#include "launcher/options.h"
#include "launcher/runview.h"
#include "launcher/snap_budget.h"
#include "launcher/tidy.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LOOK_S = 2 };

struct tidy_options {
    const char *run_id;
    int64_t index;
};

static const struct option_def table[] = {
    {"run-id", "ID", "of which run", OPTION_STR,
     offsetof(struct tidy_options, run_id), NULL, 0},
    {"index", "N", "which agent of this host it was", OPTION_INT,
     offsetof(struct tidy_options, index), NULL, 0},
    {0},
};

static const struct options options = {
    .command = "tidy",
    .usage = "--run-id=ID --index=N",
    .about = "Waits for the end of a run, and takes away what an agent of it left "
             "that was killed; what muster-watch becomes.",
    .table = table,
};

static struct tidy_look look_at(const char *path)
{
    _run_view_ struct run_view v = {0};
    int rc = run_view_read(path, &v, NULL);

    if (rc < 0) {
        return (struct tidy_look){.is_gone = rc == -ENOENT};
    }
    return (struct tidy_look){.is_read = true,
                              .is_locked = v.is_locked,
                              .state = v.status->state,
                              .updated_ns = v.status->updated_ns};
}

/* Whose file it is that an agent told its run in: locked, so that one is enough; also
 * muster-mpi starts one, for the watch may be dead. False where there is another one. */
static bool claim(int told, struct stat *ret)
{
    return fstat(told, ret) == 0 && flock(told, LOCK_EX | LOCK_NB) == 0;
}

/* A newer agent has told its run in the same place. Who merely holds the lock there may
 * be muster-mpi, which sweeps up. */
static bool has_heir(const char *told, const struct stat *was)
{
    struct stat now;

    return stat(told, &now) == 0 &&
           (now.st_ino != was->st_ino || now.st_mtim.tv_sec != was->st_mtim.tv_sec ||
            now.st_mtim.tv_nsec != was->st_mtim.tv_nsec);
}

/* False while somebody has its place. */
static bool take_away(const struct tidy_options *o, bool with_memory)
{
    _close_ int place = -1;

    if (!agent_is_gone(o->run_id, (unsigned)o->index, &place)) {
        return false;
    }
    if (with_memory) {
        snap_dir_remove_agent(o->run_id, (unsigned)o->index);
    }
    close_fd(&place);
    agent_remove_leftovers(o->run_id);
    return true;
}

static void wait_for_end(const struct tidy_options *o, const char *run, const char *told,
                         const struct stat *was)
{
    static const struct timespec pause = {.tv_sec = LOOK_S};
    struct tidy t = {0};

    while (!has_heir(told, was)) {
        struct tidy_look look = look_at(run);
        enum tidy_step step = tidy_decide(&t, &look, clock_mono_ms());

        if (step != TIDY_WAIT && take_away(o, step == TIDY_ALL)) {
            return;
        }
        nanosleep(&pause, NULL);
    }
}

int cmd_tidy(int argc, char **argv)
{
    _option_args_ struct option_args args = {0};
    struct tidy_options o = {0};
    char base[PATH_MAX], dir[PATH_MAX], told[PATH_MAX], run[PATH_MAX];
    struct error e = {0};
    struct stat was;
    _close_ int fd = -1;
    int status = options_start(&options, argc, argv, &o, &args);
    int rc;

    if (status >= 0 || !o.run_id || o.index < 0 || o.index > INT_MAX) {
        return status >= 0 ? status : EXIT_USAGE;
    }
    rc = fs_runtime_dir(base, sizeof(base), &e);
    rc = rc < 0 ? rc : fs_path(dir, sizeof(dir), &e, "%s/%s", base, o.run_id);
    rc = rc < 0 ? rc : agent_files_run_path(dir, (unsigned)o.index, told, &e);
    fd = rc < 0 ? -1 : open(told, O_RDONLY | O_CLOEXEC);
    if (rc == 0 && fd < 0) {
        rc = error_set(&e, errno, "open %s", told);
    }
    rc = rc < 0 ? rc : agent_files_run(told, run, sizeof(run), &e);
    if (rc < 0) {
        return rc == -ENOENT ? EXIT_OK : command_fail(&e);
    }
    if (claim(fd, &was)) {
        wait_for_end(&o, run, told, &was);
    }
    return EXIT_OK;
}
