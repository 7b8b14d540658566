/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/shell.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/commands.h"
#include "launcher/slurm.h"
#include "launcher/ssh.h"

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

/* ssh hands the words to the user's shell there: all of ours are quoted. */
static void add_quoted(const struct strlist *words, struct strlist *to)
{
    for (size_t i = 0; i < words->n; i++) {
        char *quoted = str_shell_quote(words->items[i]);

        if (!quoted) {
            to->failed = true;
            return;
        }
        strlist_take(to, quoted);
    }
}

int shell_way_argv(const struct shell_way *way, const char *muster,
                   const char *srun, struct strlist *to, struct error *e)
{
    const struct front_record *was = way->was;
    _strlist_ struct strlist command = {0};

    add_command(way, muster, &command);
    if (was && was->slurm_job[0] && srun) {
        slurm_shell_argv(srun, was->slurm_job, way->host, way->on_terminal, to);
        strlist_add_all(to, command.items);
    } else {
        /* $MUSTER_SSH is newer than what the front end was told. */
        ssh_argv(!getenv("MUSTER_SSH") && was && was->ssh[0] ? was->ssh : NULL,
                 to);
        if (way->on_terminal) {
            strlist_add(to, "-t");
        }
        strlist_add(to, way->host);
        add_quoted(&command, to);
    }
    return to->failed || command.failed
               ? error_set(e, ENOMEM, "go to %s", way->host) : 0;
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
