/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/mpi_world.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/mpirun.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Its name in the list of the run, which mpirun can reach. Who came later than the list was
 * made is on one of its hosts, as a rule. NULL: this agent has not heard of it yet, as its
 * own MPI world is older. */
static const char *host_of(const struct mpi_world *w, uint32_t node)
{
    const struct strlist *hosts = &w->config->hosts;
    const struct roster *r = w->roster;

    if (node < hosts->n) {
        return hosts->items[node];
    }
    if (node >= r->n || roster_is_absent(&r->entries[node])) {
        return NULL;
    }
    for (uint32_t i = 0; i < hosts->n; i++) {
        if (strcmp(r->entries[i].host, r->entries[node].host) == 0) {
            return hosts->items[i];
        }
    }
    return r->entries[node].host;
}

static int add_hosts(const struct mpi_world *w, struct buf *to, struct error *e)
{
    for (uint32_t i = 0; i < w->n_nodes; i++) {
        const char *host = host_of(w, i);

        if (w->n_procs[i] && !host) {
            return error_text(e, EAGAIN, "list hosts: this agent does not know where "
                              "node %u is, which came a moment ago", (unsigned)i);
        }
        for (uint32_t k = 0; k < w->n_procs[i]; k++) {
            buf_printf(to, "%s\n", host);
        }
    }
    return 0;
}

int mpi_world_hosts(const struct mpi_world *w, int *ret_fd, struct error *e)
{
    _buf_ struct buf text = {0};
    _close_ int fd = -1;
    int rc;

    *ret_fd = -1;
    if (w->config->hosts.n == 0) {
        return 0;
    }
    rc = add_hosts(w, &text, e);
    if (rc < 0) {
        return rc;
    }
    /* Open MPI opens the file again by its name: nothing is left of this one
     * when it ends. */
    fd = memfd_create("hosts", MFD_CLOEXEC);
    if (text.failed || fd < 0) {
        return error_set(e, text.failed ? ENOMEM : errno, "list hosts");
    }
    rc = fs_write_all(fd, text.data, text.len);
    if (rc < 0) {
        return error_set(e, -rc, "list hosts");
    }
    *ret_fd = take_fd(&fd);
    return 0;
}

static uint32_t count_ranks(const struct mpi_world *w)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < w->n_nodes; i++) {
        n += w->n_procs[i];
    }
    return n;
}

static bool binds(const struct strlist *words)
{
    for (size_t i = 0; i < words->n; i++) {
        const char *word = words->items[i] + strspn(words->items[i], "-");

        if (words->items[i][0] == '-' && str_starts(word, "bind-to")) {
            return true;
        }
    }
    return false;
}

void mpi_world_line(const struct mpi_world_line *l, struct strlist *to)
{
    strlist_add_all(to, l->words->items);
    strlist_add(to, "-np");
    strlist_add(to, l->n_ranks);
    if (l->hosts) {
        strlist_add(to, "--hostfile");
        strlist_add(to, l->hosts);
        strlist_add(to, "--map-by");
        strlist_add(to, "seq");
    } else {
        strlist_add(to, "--oversubscribe");
    }
    if (!binds(l->words)) {
        strlist_add(to, "--bind-to");
        strlist_add(to, "none");
    }
    strlist_add(to, l->program);
    strlist_add(to, "exec");
    strlist_addf(to, "--run-id=%s", l->run_id);
    strlist_addf(to, "--generation=%s", l->generation);
}

int mpi_world_argv(const struct mpi_world *w, int hosts_fd, struct strlist *to,
                   struct error *e)
{
    char program[PATH_MAX], n_ranks[16], hosts[32], generation[16];
    struct mpi_world_line line = {
        .words = &w->config->mpirun, .n_ranks = n_ranks,
        .hosts = hosts_fd >= 0 ? hosts : NULL, .program = program,
        .run_id = w->run_id, .generation = generation,
    };
    int rc = fs_program(program, sizeof(program), e);

    if (rc < 0) {
        return rc;
    }
    if (line.words->n == 0) {
        return error_text(e, EINVAL, "the run has no mpirun for an MPI program");
    }
    snprintf(n_ranks, sizeof(n_ranks), "%u", (unsigned)count_ranks(w));
    snprintf(hosts, sizeof(hosts), "/proc/self/fd/%d", hosts_fd);
    snprintf(generation, sizeof(generation), "%u", (unsigned)w->generation);
    mpi_world_line(&line, to);
    return to->failed ? error_set(e, ENOMEM, "start mpirun") : 0;
}

static unsigned count_on(const struct mpi_world *w, const char *host)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < w->n_nodes; i++) {
        const char *other = host_of(w, i);

        n += other && strcmp(host, other) == 0 ? w->n_procs[i] : 0;
    }
    return n;
}

static unsigned most_on_a_host(const struct mpi_world *w)
{
    unsigned most = 0;

    for (uint32_t i = 0; i < w->n_nodes; i++) {
        const char *host = host_of(w, i);
        unsigned here = host ? count_on(w, host) : 0;

        most = here > most ? here : most;
    }
    return most;
}

/* What names the directory of sockets must be as for this agent. */
static void take_own(struct strlist *env)
{
    static const char *const names[] = {"XDG_RUNTIME_DIR", "TMPDIR"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *own = getenv(names[i]);

        if (own) {
            strlist_setenv(env, names[i], own);
        } else {
            strlist_unsetenv(env, names[i]);
        }
    }
}

int mpi_world_env(const struct mpi_world *w, struct strlist *to,
                  struct error *e)
{
    const struct strlist *env = &w->config->env;

    if (strlist_getenv(env, "SLURM_JOB_ID") && w->config->hosts.n) {
        slurm_mpirun_env(env->items, most_on_a_host(w), to);
    } else {
        strlist_add_all(to, env->items);
    }
    take_own(to);
    return to->failed ? error_set(e, ENOMEM, "start mpirun") : 0;
}

void mpi_world_words(const struct mpirun *m, bool as_root, const char *ssh,
                     const struct strlist *args, struct strlist *to)
{
    strlist_add(to, m->path);
    if (as_root) {
        strlist_add(to, "--allow-run-as-root");
    }
    mpirun_add_ssh(m, ssh, to);
    if (args->n) {
        strlist_add_all(to, args->items);
    }
}
