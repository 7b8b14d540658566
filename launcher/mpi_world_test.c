/* SPDX-License-Identifier: Apache-2.0 */
/* Where the mpirun of a generation has its ranks, by the hosts of the run and the agents
 * that came later. */
#include <config.h>

#include "launcher/mpi_world.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

static void add_agent(struct roster *r, const char *host)
{
    struct roster_entry entry = {.slots = 1, .port = host[0] ? 7 : 0};

    str_copy(entry.host, sizeof(entry.host), host);
    if (roster_add(r, &entry) < 0) {
        bail_out("out of memory");
    }
}

/* What was written is read from the start. */
static void check(const struct mpi_world *w, const char *want, const char *what)
{
    _close_ int fd = -1;
    char text[256] = "";
    struct error e = {0};

    is_int(mpi_world_hosts(w, &fd, &e), 0, "%s", what);
    if (fd >= 0 && pread(fd, text, sizeof(text) - 1, 0) < 0) {
        bail_out("read the hosts");
    }
    is_str(text, want, "by these names");
}

static void check_unknown(const struct mpi_world *w, const char *what)
{
    int fd = -1;
    struct error e = {0};

    is_int(mpi_world_hosts(w, &fd, &e), -EAGAIN, "%s", what);
    is_str(e.text, "list hosts: this agent does not know where node 4 is, which came a "
           "moment ago", "which is said");
    is_int(fd, -1, "without a file");
}

/* Two hosts have names of the list, and of their own. */
static void test_hosts(void)
{
    static const char *const own[] = {"one", "two", "one", ""};
    static const uint16_t first[] = {2, 1}, back[] = {0, 1, 2}, late[] = {1, 0, 0, 0, 1};
    static const uint16_t others[] = {0, 1, 0, 0, 0};
    struct run_config config = {0};
    _roster_ struct roster roster = {0};
    struct mpi_world w = {.config = &config, .roster = &roster};

    strlist_add(&config.hosts, "10.0.0.1");
    strlist_add(&config.hosts, "10.0.0.2");
    for (size_t i = 0; i < ARRAY_SIZE(own); i++) {
        add_agent(&roster, own[i]);
    }
    w.n_procs = first;
    w.n_nodes = 2;
    check(&w, "10.0.0.1\n10.0.0.1\n10.0.0.2\n", "the nodes of the list");
    w.n_procs = back;
    w.n_nodes = 3;
    check(&w, "10.0.0.2\n10.0.0.1\n10.0.0.1\n", "a later agent of one of its hosts");
    w.n_procs = late;
    w.n_nodes = 5;
    check_unknown(&w, "one that is not in the roster yet");
    w.n_procs = others;
    check(&w, "10.0.0.2\n", "which is nothing where it has no ranks");
    add_agent(&roster, "");
    w.n_procs = late;
    check_unknown(&w, "one that is in no world of this agent");
    str_copy(roster.entries[4].host, sizeof(roster.entries[4].host), "five");
    check(&w, "10.0.0.1\nfive\n", "one that the list does not have, by its own name");
    strlist_release(&config.hosts);
}

static void test_slurm(void)
{
    static const uint16_t n_procs[] = {1, 2, 3, 4};
    struct run_config config = {0};
    _roster_ struct roster roster = {0};
    _strlist_ struct strlist env = {0};
    struct mpi_world w = {.config = &config, .roster = &roster, .n_procs = n_procs,
                          .n_nodes = ARRAY_SIZE(n_procs)};
    struct error e = {0};

    strlist_add(&config.hosts, "n1");
    strlist_add(&config.hosts, "n2");
    strlist_setenv(&config.env, "SLURM_JOB_ID", "7");
    strlist_setenv(&config.env, "SLURM_JOB_NODELIST", "n1,n2");
    add_agent(&roster, "one");
    add_agent(&roster, "two");
    add_agent(&roster, "one");
    is_int(mpi_world_env(&w, &env, &e), 0, "the most ranks of a host are counted without "
           "who is not known");
    is_str(strlist_getenv(&env, "SLURM_TASKS_PER_NODE"), "4(x2)", "and with who is");
    strlist_release(&config.hosts);
    strlist_release(&config.env);
}

int main(void)
{
    test_hosts();
    test_slurm();
    return tap_done();
}
