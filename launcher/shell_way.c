/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/shell.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/commands.h"
#include "launcher/remote.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <unistd.h>

extern char **environ;

/* What is to be run there: it needs neither the run directory nor the index. */
static void add_command(const struct shell_way *way, const char *muster,
                        struct strlist *to)
{
    strlist_add(to, muster);
    strlist_add(to, "shell");
    strlist_addf(to, "--here=%s", way->run_id);
    strlist_addf(to, "%lld", (long long)way->rank);
    if (way->argv->n) {
        strlist_add(to, "--");
        strlist_add_all(to, way->argv->items);
    }
}

int shell_way_argv(const struct shell_way *way, const char *muster,
                   const char *srun, struct strlist *to, struct error *e)
{
    struct remote there = {.host = way->host, .was = way->was, .srun = srun,
                           .job_name = "muster-shell",
                           .on_terminal = way->on_terminal};
    _strlist_ struct strlist command = {0};

    add_command(way, muster, &command);
    return remote_argv(&there, &command, to, e);
}

int shell_go(const struct shell_way *way, struct error *e)
{
    char muster[PATH_MAX], srun[PATH_MAX], path[PATH_MAX];
    _strlist_ struct strlist argv = {0}, env = {0};
    const char *path_env = getenv("PATH");
    bool has_srun = fs_which("srun", path_env, srun, sizeof(srun)) == 0;
    int rc = fs_program(muster, sizeof(muster), e);

    rc = rc < 0 ? rc : shell_way_argv(way, muster, has_srun ? srun : NULL,
                                      &argv, e);
    if (rc < 0) {
        return EXIT_FAILED;
    }
    slurm_step_env(environ, &env);
    rc = fs_which(argv.items[0], path_env, path, sizeof(path));
    if (rc == 0 && !env.failed) {
        execve(path, argv.items, env.items);
        rc = -errno;
    }
    error_set(e, env.failed ? ENOMEM : -rc, "run %s to go to %s",
              argv.items[0], way->host);
    return EXIT_FAILED;
}
