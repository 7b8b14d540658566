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

/* By which the list has a host that calls itself so, or NULL. */
static const char *given_name(const struct host_list *hosts, const char *own)
{
    for (size_t i = 0; i < hosts->n; i++) {
        if (hosts_is_name_of(hosts->items[i].name, own)) {
            return hosts->items[i].name;
        }
    }
    return NULL;
}

static bool has_own_names(const struct host_list *hosts, const struct run_status *s)
{
    for (size_t i = 0; i < s->n_nodes; i++) {
        if (given_name(hosts, s->nodes[i].host)) {
            return true;
        }
    }
    return false;
}

/* Places are those of the list only where none of its hosts was absent at the start, nor
 * came later: they are for lists of addresses, or of other names. */
const char *shell_way_host(const struct front_record *was, const struct run_status *s,
                           int node)
{
    const char *own = s->nodes[node].host;
    const char *given = was && !was->by_hand ? given_name(&was->hosts, own) : NULL;
    size_t place = was ? (size_t)node / was->agents_per_host : 0;

    if (given) {
        return given;
    }
    return was && !was->by_hand && place < was->hosts.n && !has_own_names(&was->hosts, s)
               ? was->hosts.items[place].name : own;
}

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
