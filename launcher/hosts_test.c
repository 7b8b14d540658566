/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/hosts.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void check_list(const char *text, const char *want)
{
    _host_list_ struct host_list l = {0};
    struct error e = {0};
    char got[512] = "";

    if (hosts_parse(text, &l, &e) < 0) {
        snprintf(got, sizeof(got), "error: %.400s", e.text);
    }
    for (size_t i = 0; i < l.n; i++) {
        snprintf(got + strlen(got), sizeof(got) - strlen(got), "%s%s",
                 i ? " " : "", l.items[i].name);
    }
    is_str(got, want, "hosts '%s'", text);
}

static void test_file(void)
{
    _host_list_ struct host_list l = {0};
    struct error e = {0};
    char path[] = "/tmp/muster-hosts.XXXXXX";
    static const char good[] =
        "# mine\n a slots = 8 max_slots= 9\r\n\nb:4\tmax-slots=4 # second\n";
    static const struct {
        const char *text, *error;
    } bad[] = {
        {"a\n b  max-slots=4 slots=x\n", ":2:17: 'x' is not a number of slots"},
        {"a max-slots=0", ":1:3: '0' is not a number of slots"},
        {"a\nb slots=2 frobs=3", ":2:11: 'frobs' is not known in a host file; "
                                 "expected slots=N or max-slots=N"},
        {"a\nb\ngood name/x\n", ":3:6: 'name/x' is not known"},
        {"a slots", ":1:3: 'slots' is not known"},
        {"a =3", ":1:3: '' is not known"},
        {"a\n  a\n", ":2:3: host a is given twice"},
        {"127.0.0.1\na\n localhost\n", ":3:2: 127.0.0.1 and localhost are both "
                                        "this machine: expected it once"},
        {" -a slots=2", ":1:2: '-a' is not a host name"},
    };

    close(mkstemp(path));
    fs_write_replace(path, good, strlen(good), &e);
    is_int(hosts_read_file(path, &l, &e), 0, "host file");
    is_int((intmax_t)l.n, 2, "two hosts");
    is_str(l.items[1].name, "b", "names without slots and comments");
    ok(l.items[0].slots == 8 && l.items[1].slots == 4, "which are kept");
    is_int(hosts_same_slots(&l), 0, "they are not the same");
    host_list_release(&l);
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        fs_write_replace(path, bad[i].text, strlen(bad[i].text), &e);
        is_int(hosts_read_file(path, &l, &e), -ERR_USAGE, "'%s'", bad[i].text);
        like(e.text, bad[i].error, "with file, line and column");
    }
    fs_write_replace(path, "a\n\0b\n", 5, &e);
    is_int(hosts_read_file(path, &l, &e), -ERR_USAGE, "a zero byte");
    like(e.text, "has a zero byte", "hides no host behind it");
    fs_write_replace(path, "#\n", 2, &e);
    is_int(hosts_read_file(path, &l, &e), -ERR_USAGE, "empty");
    unlink(path);
}

/* Many hosts take no time that grows with their square. */
static void test_many(void)
{
    _host_list_ struct host_list l = {0}, more = {0};
    struct error e = {0};

    is_int(hosts_parse("n[1-65536]", &l, &e), 0, "as many as there may be");
    is_int((int)l.n, HOSTS_MAX, "all of them");
    is_str(l.items[HOSTS_MAX - 1].name, "n65536", "in order");
    is_int(hosts_parse("n[1-30000],m[1-30000],n7", &more, &e), -ERR_USAGE,
           "one that comes twice among many");
    like(e.text, "host n7 is given twice", "is named");
    is_int(hosts_parse("n[1-65536],m", &more, &e), -ERR_USAGE, "one too many");
    like(e.text, "more than 65536", "is said so");
}

static void test_sources(void)
{
    _host_list_ struct host_list l = {0};
    struct error e = {0};

    unsetenv("SLURM_JOB_NODELIST");
    hosts_find(NULL, NULL, &l, &e);
    ok(l.n == 1 && l.items[0].is_local && l.source == HOSTS_LOCAL,
       "this machine by default");
    host_list_release(&l);
    setenv("SLURM_JOB_NODELIST", "gpu[08-10],login1", 1);
    hosts_find(NULL, NULL, &l, &e);
    ok(l.n == 4 && l.source == HOSTS_SLURM, "Slurm's allocation");
    host_list_release(&l);
    hosts_find("x", NULL, &l, &e);
    ok(l.n == 1 && l.source == HOSTS_GIVEN, "what was asked for wins");
    host_list_release(&l);
    hosts_find("gpu09,gpu10", NULL, &l, &e);
    ok(l.n == 2 && l.source == HOSTS_SLURM, "which may be of the allocation");
    host_list_release(&l);
    hosts_find("gpu09,x", NULL, &l, &e);
    ok(l.n == 2 && l.source == HOSTS_GIVEN, "all or none");
    is_int(hosts_find("x", "y", &l, &e), -ERR_USAGE, "not both");
}

static void test_slots(void)
{
    static const struct {
        const char *text;
        uint32_t node;
        int want; /* -1: none */
    } lists[] = {
        {"4", 0, 4}, {"4", 1, -1}, {"2(x3),1", 2, 2}, {"2(x3),1", 3, 1},
        {"2(x3),1", 4, -1}, {"", 0, -1}, {"x", 0, -1}, {"2(x", 0, -1},
        {"2(x3", 1, 2}, {"99999999999999999999", 0, -1}, {"2,,3", 1, -1},
    };
    _host_list_ struct host_list l = {0};
    uint32_t n;

    for (size_t i = 0; i < ARRAY_SIZE(lists); i++) {
        is_int(hosts_slurm_count(lists[i].text, lists[i].node, &n) ? (int)n : -1,
               lists[i].want, "node %u of '%s'", lists[i].node, lists[i].text);
    }
    hosts_parse("n[1-2]:3,m:3", &l, NULL);
    ok(l.n == 3 && l.items[1].slots == 3, "slots of a range");
    is_int(hosts_same_slots(&l), 3, "all have the same");
    setenv("SLURM_JOB_NODELIST", "n[1-2],m", 1);
    setenv("SLURM_JOB_CPUS_PER_NODE", "8(x2),4", 1);
    hosts_add_slurm_slots(&l);
    is_int(l.items[2].slots, 3, "the list counts before Slurm");
    host_list_release(&l);
    hosts_parse("m,n2,x", &l, NULL);
    hosts_add_slurm_slots(&l);
    ok(l.items[0].slots == 4 && l.items[1].slots == 8, "Slurm's CPUs");
    is_int(l.items[2].slots, 0, "of its own nodes");
    host_list_release(&l);
    setenv("SLURM_TASKS_PER_NODE", "2(x3)", 1);
    hosts_parse("m", &l, NULL);
    hosts_add_slurm_slots(&l);
    is_int(l.items[0].slots, 2, "or its tasks");
    is_int(hosts_place(&l, "m"), 0, "a name has its place");
    is_int(hosts_place(&l, "x"), -1, "or none");
    host_list_release(&l);
    hosts_parse("n[1-2],m", &l, NULL);
    is_int(hosts_slurm_cpus(&l, "m"), 4, "CPUs of a node");
    is_int(hosts_slurm_cpus(&l, "x"), 0, "of none");
    unsetenv("SLURM_JOB_NODELIST");
    unsetenv("SLURM_JOB_CPUS_PER_NODE");
    unsetenv("SLURM_TASKS_PER_NODE");
}

/* What an allocation says of itself, and whether its tasks count. */
static void test_slurm_chose(void)
{
    static const struct {
        const char *what, *env[4][2];
        bool want;
    } cases[] = {
        {"no job", {{0}}, false},
        {"a job that asked for nodes alone",
         {{"SLURM_TASKS_PER_NODE", "2(x3)"}}, false},
        {"for so many tasks", {{"SLURM_TASKS_PER_NODE", "2(x2),1"},
                               {"SLURM_NTASKS", "5"}}, true},
        {"for tasks on each", {{"SLURM_TASKS_PER_NODE", "4(x2)"},
                               {"SLURM_NTASKS_PER_NODE", "4"}}, true},
        {"for CPUs of each", {{"SLURM_TASKS_PER_NODE", "1(x2)"},
                              {"SLURM_CPUS_PER_TASK", "8"}}, true},
        {"for one task a node, and GPUs",
         {{"SLURM_TASKS_PER_NODE", "1(x2)"}, {"SLURM_NTASKS_PER_NODE", "1"},
          {"SLURM_GPUS_ON_NODE", "8"}}, false},
        {"for one task a GPU",
         {{"SLURM_TASKS_PER_NODE", "8(x2)"}, {"SLURM_NTASKS_PER_NODE", "8"},
          {"SLURM_GPUS_ON_NODE", "8"}}, true},
        {"a step", {{"SLURM_TASKS_PER_NODE", "1"}, {"SLURM_NTASKS", "1"},
                    {"SLURM_STEP_NUM_TASKS", "1"}}, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t k = 0; k < 4 && cases[i].env[k][0]; k++) {
            setenv(cases[i].env[k][0], cases[i].env[k][1], 1);
        }
        is_int(hosts_slurm_chose(), cases[i].want, "%s", cases[i].what);
        for (size_t k = 0; k < 4 && cases[i].env[k][0]; k++) {
            unsetenv(cases[i].env[k][0]);
        }
    }
}

int main(void)
{
    unsetenv("SLURM_JOB_NODELIST");
    unsetenv("SLURM_TASKS_PER_NODE");
    test_slots();
    test_slurm_chose();
    check_list("a:x", "error: 'x' is not a number of slots; expected 1 to 1024");
    check_list("a:0", "error: '0' is not a number of slots; expected 1 to 1024");
    check_list("a:", "error: '' is not a number of slots; expected 1 to 1024");
    check_list("a", "a");
    check_list("a,b:2,c.example", "a b c.example");
    check_list("n[1-3]", "n1 n2 n3");
    check_list("n[08-10,12]-ib,x", "n08-ib n09-ib n10-ib n12-ib x");
    check_list("", "error: '' is not a host name");
    check_list("a,,b", "error: '' is not a host name");
    check_list("a,a", "error: host a is given twice");
    check_list("localhost,a,127.0.0.2", "error: localhost and 127.0.0.2 are both "
               "this machine: expected it once");
    check_list("-oProxyCommand=x", "error: '-oProxyCommand=x' is not a host "
               "name");
    check_list("-v", "error: '-v' is not a host name");
    check_list("a,-[1-2]", "error: '-1' is not a host name");
    check_list("a b", "error: 'a b' is not a host name");
    check_list("n[3-1]", "error: '3-1' is not a range of hosts");
    check_list("n[1-", "error: 'n[1-' lacks a ]");
    check_list("n[]", "error: a host range is empty or too long");
    check_list("n[1-99999999]", "error: '1-99999999' is not a range of hosts");
    test_file();
    test_many();
    test_sources();
    return tap_done();
}
