/* SPDX-License-Identifier: Apache-2.0 */
/* The ways to the host of a worker. */
#include <config.h>

#include "launcher/shell.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <stdlib.h>

static void check(const struct shell_way *way, const char *srun,
                  const char *want, const char *what)
{
    _strlist_ struct strlist argv = {0};
    _free_ char *got = NULL;
    struct error e = {0};

    is_int(shell_way_argv(way, "/opt/muster", srun, &argv, &e), 0, "%s", what);
    got = str_shell_join(argv.items);
    is_str(got, want, "the command");
}

static void check_host(const char *list, const char *const *own, size_t n,
                       const char *const *want, const char *what)
{
    struct status_node nodes[8] = {0};
    struct run_status s = {.nodes = nodes, .n_nodes = n};
    _front_record_ struct front_record was = {.agents_per_host = 1};
    struct error e = {0};

    if (hosts_parse(list, &was.hosts, &e) < 0) {
        bail_out("%s", e.text);
    }
    for (size_t i = 0; i < n; i++) {
        str_copy(nodes[i].host, sizeof(nodes[i].host), own[i]);
    }
    for (size_t i = 0; i < n; i++) {
        is_str(shell_way_host(&was, &s, (int)i), want[i], "%s: node %zu", what, i);
    }
    was.by_hand = true;
    is_str(shell_way_host(&was, &s, (int)n - 1), own[n - 1], "of none is anything known "
           "where mpirun was started by hand");
    is_str(shell_way_host(NULL, &s, 0), own[0], "nor without a record");
}

/* The lists that users give, and what hosts call themselves, by the ranks of agents. */
static void test_hosts(void)
{
    check_host("n1,n2,n3,n4", (const char *[]){"n1", "n3", "n4", "n2"}, 4,
               (const char *[]){"n1", "n3", "n4", "n2"}, "one was absent, and came later");
    check_host("n1,n2.x,n3", (const char *[]){"n1", "n3", "n2"}, 3,
               (const char *[]){"n1", "n3", "n2.x"}, "with a domain");
    check_host("n1,n2", (const char *[]){"n1", "n2", "n1"}, 3,
               (const char *[]){"n1", "n2", "n1"}, "a later agent of a host");
    check_host("10.0.0.1,10.0.0.2", (const char *[]){"n1", "n2", "n1"}, 3,
               (const char *[]){"10.0.0.1", "10.0.0.2", "n1"}, "addresses: by place");
    check_host("n1,10.0.0.2", (const char *[]){"n1", "n2"}, 2,
               (const char *[]){"n1", "n2"}, "names, and others: by no place");
}

int main(void)
{
    struct front_record was = {0};
    _strlist_ struct strlist none = {0}, words = {0};
    struct shell_way way = {.run_id = "id-1", .rank = 3, .host = "n2",
                            .argv = &none};

    unsetenv("MUSTER_SSH");
    unsetenv("OMPI_MCA_plm_rsh_agent");
    unsetenv("PRTE_MCA_plm_ssh_agent");
    check(&way, NULL, "ssh -o BatchMode=yes -o ConnectTimeout=10 n2 "
          "/opt/muster shell --here=id-1 3", "nothing known of the front end");
    way.was = &was;
    way.on_terminal = true;
    str_copy(was.ssh, sizeof(was.ssh), "/bed/ssh -F x");
    check(&way, "/bin/srun", "/bed/ssh -F x -t n2 /opt/muster shell "
          "--here=id-1 3", "as the front end went, on a terminal");
    strlist_add(&words, "echo");
    strlist_add(&words, "a b; $x");
    strlist_add(&words, "");
    way.argv = &words;
    way.on_terminal = false;
    /* Quoted for the shell there, and then by the test for people. */
    check(&way, NULL, "/bed/ssh -F x n2 /opt/muster shell --here=id-1 3 -- echo "
          "''\\''a b; $x'\\''' ''\\'''\\'''", "words arrive as they are");
    setenv("MUSTER_SSH", "rsh", 1);
    check(&way, NULL, "rsh n2 /opt/muster shell --here=id-1 3 -- echo "
          "''\\''a b; $x'\\''' ''\\'''\\'''", "MUSTER_SSH is newer");
    str_copy(was.slurm_job, sizeof(was.slurm_job), "815");
    check(&way, "/bin/srun", "/bin/srun --overlap --no-kill "
          "--kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none "
          "--export=ALL --ntasks-per-node=1 --nodes=1 --ntasks=1 "
          "--nodelist=n2 --jobid=815 --job-name=muster-shell /opt/muster shell "
          "--here=id-1 3 -- echo 'a b; $x' ''", "in a Slurm job");
    way.on_terminal = true;
    way.argv = &none;
    check(&way, "/bin/srun", "/bin/srun --overlap --no-kill "
          "--kill-on-bad-exit=0 --wait=0 --mpi=none --cpu-bind=none "
          "--export=ALL --ntasks-per-node=1 --nodes=1 --ntasks=1 "
          "--nodelist=n2 --jobid=815 --job-name=muster-shell --pty /opt/muster "
          "shell --here=id-1 3", "on a terminal");
    check(&way, NULL, "rsh -t n2 /opt/muster shell --here=id-1 3",
          "without srun");
    test_hosts();
    return tap_done();
}
