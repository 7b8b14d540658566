/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/mpirun.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { VERSION_MS = 20000 };

/* What `path --version` prints, at most a few KiB of it. */
static int run_version(const char *path, struct buf *ret, struct error *e)
{
    char *argv[] = {(char *)path, (char *)"--version", NULL};
    posix_spawn_file_actions_t actions;
    _close_ int near = -1;
    int ends[2], rc;
    pid_t pid;

    if (pipe2(ends, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe");
    }
    near = ends[0];
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    rc = posix_spawn(&pid, path, &actions, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&actions);
    close(ends[1]);
    if (rc) {
        return error_set(e, rc, "run %s", path);
    }
    for (ssize_t n = 1; n > 0 && ret->len < 4096;) {
        struct pollfd p = {.fd = near, .events = POLLIN};
        char *to = buf_reserve(ret, 512);

        n = to && poll(&p, 1, VERSION_MS) == 1 ? read(near, to, 512) : -1;
        ret->len += n > 0 ? (size_t)n : 0;
    }
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    buf_putc(ret, '\0');
    return 0;
}

int mpirun_find(const char *name, struct mpirun *ret, struct error *e)
{
    _buf_ struct buf text = {0};
    const char *version;
    int rc = fs_which(name ? name : "mpirun", getenv("PATH"), ret->path,
                      sizeof(ret->path));

    if (rc < 0 && name && strchr(name, '/')) {
        return error_set(e, -rc, "run %s", name);
    }
    if (rc < 0) {
        return error_text(e, -rc, "%s is not in PATH: install Open MPI, or "
                          "name it with --mpirun", name ? name : "mpirun");
    }
    rc = run_version(ret->path, &text, e);
    if (rc < 0) {
        return rc;
    }
    version = strstr(buf_str(&text), "(Open MPI) ");
    if (!version ||
        sscanf(version, "(Open MPI) %d.%d", &ret->major, &ret->minor) != 2) {
        return error_text(e, ERR_VERSION, "%s is not Open MPI's", ret->path);
    }
    if (ret->major != 4 && ret->major != 5) {
        return error_text(e, ERR_VERSION, "%s is of Open MPI %d.%d, expected "
                          "4.1 or 5.0", ret->path, ret->major, ret->minor);
    }
    return 0;
}

static bool is_this_machine(const struct host_list *hosts)
{
    return hosts->n == 1 && hosts->items[0].is_local;
}

bool mpirun_needs_hostfile(const struct mpirun_plan *plan)
{
    return plan->hosts->source == HOSTS_SLURM || !is_this_machine(plan->hosts);
}

void mpirun_hostfile(const struct mpirun_plan *plan, struct buf *to)
{
    for (unsigned i = 0; i < plan->n_agents; i++) {
        buf_printf(to, "%s\n",
                   plan->hosts->items[i / plan->agents_per_host].name);
    }
}

static void add_hosts(const struct mpirun_plan *plan, struct strlist *to)
{
    if (!mpirun_needs_hostfile(plan)) {
        strlist_add(to, "--oversubscribe");
        return;
    }
    strlist_add(to, "--hostfile");
    strlist_add(to, plan->hostfile);
    strlist_add(to, "--map-by");
    strlist_add(to, "seq");
}

void mpirun_add_ssh(const struct mpirun *m, const char *ssh,
                    struct strlist *to)
{
    if (ssh) {
        strlist_add(to, m->major == 4 ? "--mca" : "--prtemca");
        strlist_add(to, m->major == 4 ? "plm_rsh_agent" : "plm_ssh_agent");
        strlist_add(to, ssh);
    }
}

static void add_version_options(const struct mpirun *m,
                                const struct mpirun_plan *plan,
                                struct strlist *to)
{
    if (m->major == 4) {
        strlist_add(to, "--enable-recovery");
    }
    mpirun_add_ssh(m, plan->ssh, to);
}

void mpirun_try_argv(const struct mpirun *m, const struct mpirun_plan *plan,
                     struct strlist *to)
{
    strlist_add(to, m->path);
    if (plan->as_root) {
        strlist_add(to, "--allow-run-as-root");
    }
    strlist_add(to, "-np");
    strlist_add(to, "1");
    strlist_add(to, "--bind-to");
    strlist_add(to, "none");
    mpirun_add_ssh(m, plan->ssh, to);
    strlist_add(to, "--host");
}

void mpirun_argv(const struct mpirun *m, const struct mpirun_plan *plan,
                 struct strlist *to)
{
    strlist_add(to, m->path);
    if (plan->as_root) {
        strlist_add(to, "--allow-run-as-root");
    }
    strlist_add(to, "-np");
    strlist_addf(to, "%u", plan->n_agents);
    add_hosts(plan, to);
    strlist_add(to, "--bind-to");
    strlist_add(to, "none");
    add_version_options(m, plan, to);
    strlist_add(to, plan->helper);
    strlist_addf(to, "--run-id=%s", plan->run_id);
    strlist_addf(to, "--run-dir=%s", plan->run_dir);
    strlist_addf(to, "--epoch=%llu", (unsigned long long)plan->epoch);
    strlist_addf(to, "--front=%s", plan->front);
    strlist_addf(to, "--gather-seconds=%u", plan->gather_seconds);
    if (plan->key_file) {
        strlist_addf(to, "--key-file=%s", plan->key_file);
    }
    if (plan->interface) {
        strlist_addf(to, "--interface=%s", plan->interface);
    }
    if (plan->agent_is_node) {
        strlist_add(to, "--agent-is-node");
    }
    if (plan->is_kept) {
        strlist_add(to, "--kept");
    }
}
