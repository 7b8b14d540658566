/* SPDX-License-Identifier: Apache-2.0 */
/* The command lines of mpirun, whole, as they were tried by hand. */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/mpirun.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TAIL "/lib/muster-mpi --run-id=r-1 --run-dir=/runs/r-1 --epoch=2 " \
             "--front=10.0.0.1:4000 --gather-seconds=301"
#define HOSTS "--hostfile /runs/r-1/hostfile --map-by seq"

static void check(const char *what, int major, struct mpirun_plan plan,
                  const char *hosts, enum hosts_source source,
                  const char *want)
{
    struct mpirun m = {.path = "/opt/mpirun", .major = major};
    _host_list_ struct host_list list = {0};
    _strlist_ struct strlist argv = {0};
    _free_ char *line = NULL;
    struct error e = {0};

    if (hosts_parse(hosts, &list, &e) < 0) {
        bail_out("%s", e.text);
    }
    list.source = source;
    plan.hosts = &list;
    plan.hostfile = "/runs/r-1/hostfile";
    plan.helper = "/lib/muster-mpi";
    plan.run_id = "r-1";
    plan.run_dir = "/runs/r-1";
    plan.epoch = 2;
    plan.front = "10.0.0.1:4000";
    plan.gather_seconds = 301;
    mpirun_argv(&m, &plan, &argv);
    ok(!argv.failed, "%s", what);
    line = str_shell_join(argv.items);
    is_str(line, want, "its line");
}

static void test_lines(void)
{
    struct mpirun_plan one = {.agents_per_host = 1, .n_agents = 1};
    struct mpirun_plan four = {.agents_per_host = 4, .n_agents = 4,
                               .agent_is_node = true};
    struct mpirun_plan wide = {.agents_per_host = 1, .n_agents = 3,
                               .ssh = "ssh -p 22", .as_root = true};
    struct mpirun_plan keyed = {.agents_per_host = 2, .n_agents = 3,
                                .key_file = "/etc/key"};
    struct mpirun_plan kept = {.agents_per_host = 1, .n_agents = 2,
                               .is_kept = true};

    check("one machine, 4.1", 4, one, "localhost", HOSTS_LOCAL,
          "/opt/mpirun -np 1 --oversubscribe --bind-to none "
          "--enable-recovery " TAIL);
    check("one machine, 5.0", 5, one, "localhost", HOSTS_LOCAL,
          "/opt/mpirun -np 1 --oversubscribe --bind-to none " TAIL);
    check("one machine for four", 4, four, "localhost", HOSTS_LOCAL,
          "/opt/mpirun -np 4 --oversubscribe --bind-to none "
          "--enable-recovery " TAIL " --agent-is-node");
    check("hosts, 4.1", 4, wide, "a,b,c", HOSTS_GIVEN,
          "/opt/mpirun --allow-run-as-root -np 3 " HOSTS
          " --bind-to none --enable-recovery --mca plm_rsh_agent 'ssh -p 22' "
          TAIL);
    check("hosts, 5.0", 5, wide, "a,b,c", HOSTS_GIVEN,
          "/opt/mpirun --allow-run-as-root -np 3 " HOSTS
          " --bind-to none --prtemca plm_ssh_agent 'ssh -p 22' " TAIL);
    check("several agents a host, and a key", 5, keyed, "a,b", HOSTS_GIVEN,
          "/opt/mpirun -np 3 " HOSTS " --bind-to none " TAIL " --key-file=/etc/key");
    check("one node of Slurm's, 4.1", 4, one, "n1", HOSTS_SLURM,
          "/opt/mpirun -np 1 " HOSTS " --bind-to none --enable-recovery " TAIL);
    check("agents that have keepers", 4, kept, "n1,n2", HOSTS_SLURM,
          "/opt/mpirun -np 2 " HOSTS " --bind-to none --enable-recovery " TAIL
          " --kept");
    check("its own name in Slurm", 5, one, "localhost", HOSTS_SLURM,
          "/opt/mpirun -np 1 " HOSTS " --bind-to none " TAIL);
}

static void check_hostfile(unsigned per_host, unsigned n_agents,
                           const char *want)
{
    _host_list_ struct host_list list = {0};
    struct mpirun_plan plan = {.hosts = &list, .agents_per_host = per_host,
                               .n_agents = n_agents};
    _buf_ struct buf text = {0};

    hosts_parse("b,a,c", &list, NULL);
    mpirun_hostfile(&plan, &text);
    is_str(buf_str(&text), want, "%u agents, %u on a host", n_agents,
           per_host);
}

/* As many hosts as there may be make no longer a line. */
static void test_hostfile(void)
{
    struct mpirun m = {.path = "/opt/mpirun", .major = 5};
    _host_list_ struct host_list list = {0};
    struct mpirun_plan plan = {.hosts = &list, .agents_per_host = 1,
                               .n_agents = 6000, .hostfile = "/h",
                               .helper = "/lib/muster-mpi", .run_id = "r",
                               .run_dir = "/r", .front = "f:1"};
    _strlist_ struct strlist argv = {0};
    _buf_ struct buf text = {0};
    size_t len = 0;

    check_hostfile(1, 3, "b\na\nc\n");
    check_hostfile(2, 5, "b\nb\na\na\nc\n");
    hosts_parse("a-rather-long-host-name[1-6000]", &list, NULL);
    mpirun_argv(&m, &plan, &argv);
    mpirun_hostfile(&plan, &text);
    for (size_t i = 0; i < argv.n; i++) {
        len += strlen(argv.items[i]) + 1;
    }
    ok(!argv.failed && len < 1000, "6,000 hosts: %zu bytes of command", len);
    ok(!text.failed && text.len > 6000 * 24, "and %zu of file", text.len);
}

static void test_absent(void)
{
    struct mpirun m;
    struct error e = {0};

    is_int(mpirun_find("no-such-mpirun", &m, &e), -ENOENT, "none");
    like(e.text, "--mpirun", "says what to do");
    is_int(mpirun_find("/no/mpirun", &m, &e), -ENOENT, "a path that is none");
    is_str(e.text, "run /no/mpirun: No such file or directory", "has no PATH");
    is_int(mpirun_find("true", &m, &e), -ERR_VERSION, "something else");
    like(e.text, "Open MPI", "is told from it");
}

/* Programs called mpirun, by what they say of their version. */
static void test_versions(void)
{
    static const struct {
        const char *says;
        int rc, major, minor;
    } cases[] = {
        {"mpirun (Open MPI) 4.1.4", 0, 4, 1},
        {"mpirun (Open MPI) 5.0.7", 0, 5, 0},
        {"mpirun (Open MPI) 3.1.6", -ERR_VERSION, 3, 1},
        {"mpirun (Open MPI) 6.0.0", -ERR_VERSION, 6, 0},
        {"mpirun (Open MPI) x", -ERR_VERSION, 0, 0},
        {"HYDRA build details: Version: 4.1", -ERR_VERSION, 0, 0},
        {"", -ERR_VERSION, 0, 0},
    };
    char dir[] = "/tmp/muster-mpirun.XXXXXX", path[64], script[128];

    if (!mkdtemp(dir)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/mpirun", dir);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct mpirun m = {0};
        struct error e = {0};

        snprintf(script, sizeof(script), "#!/bin/sh\necho '%s'\n",
                 cases[i].says);
        if (fs_write_replace(path, script, strlen(script), &e) < 0 ||
            chmod(path, 0700) < 0) {
            bail_out("%s", e.text);
        }
        is_int(mpirun_find(path, &m, &e), cases[i].rc, "'%s'", cases[i].says);
        if (cases[i].major) {
            is_int(m.major * 100 + m.minor,
                   cases[i].major * 100 + cases[i].minor, "its number");
        }
    }
    unlink(path);
    rmdir(dir);
}

int main(void)
{
    test_lines();
    test_versions();
    test_hostfile();
    test_absent();
    return tap_done();
}
