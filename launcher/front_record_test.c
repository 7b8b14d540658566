/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_record.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct front_record sample(const char *hosts, enum hosts_source source)
{
    struct front_record r = {
        .epoch = 7, .mpirun_pid = 4711, .mpirun_start = 1u << 31,
        .agents_per_host = 2, .gather_seconds = 61,
        .agent_is_node = true, .own_step = true, .is_kept = true,
        .detach_ms = 600000,
    };
    struct error e = {0};

    str_copy(r.host, sizeof(r.host), "login1");
    str_copy(r.machine, sizeof(r.machine), "b-1/pid:[4026531836]/login1");
    str_copy(r.mpirun, sizeof(r.mpirun), "/opt/open mpi/bin/mpirun");
    str_copy(r.ssh, sizeof(r.ssh), "ssh -F \"x\"");
    str_copy(r.key_file, sizeof(r.key_file), "/etc/key");
    str_copy(r.slurm_job, sizeof(r.slurm_job), "815");
    if (hosts_parse(hosts, &r.hosts, &e) < 0) {
        bail_out("%s", e.text);
    }
    r.hosts.source = source;
    r.n_agents = 2 * (unsigned)r.hosts.n - 1;
    return r;
}

static void test_round_trip(void)
{
    _front_record_ struct front_record r = sample("n1,n2,n3", HOSTS_SLURM);
    _front_record_ struct front_record back = {0};
    _buf_ struct buf a = {0}, b = {0};
    struct error e = {0};

    front_record_print(&r, &a);
    ok(!strstr(buf_str(&a), "slots"), "no slots, no word of them");
    a.len = 0;
    r.hosts.items[2].slots = 3;
    front_record_print(&r, &a);
    is_int(front_record_parse(a.data, a.len, &back, &e), 0, "read back: %s",
           e.text);
    is_int(back.hosts.items[2].slots, 3, "with slots");
    is_int(back.hosts.items[1].slots, 0, "or none");
    front_record_print(&back, &b);
    is_str(buf_str(&b), buf_str(&a), "as it was written");
    is_int((intmax_t)back.epoch, 7, "epoch");
    is_int((intmax_t)back.mpirun_start, 1ll << 31, "start of mpirun");
    is_str(back.machine, r.machine, "on which machine");
    is_str(back.mpirun, r.mpirun, "mpirun");
    is_int(back.hosts.source, HOSTS_SLURM, "hosts of Slurm");
    is_str(back.hosts.items[2].name, "n3", "in their order");
    ok(back.agent_is_node && back.own_step && back.is_kept && !back.by_hand,
       "and what is so");
}

/* One that has no limit, and no mpirun of ours. */
static void test_least(void)
{
    struct front_record r = {.by_hand = true, .agents_per_host = 1,
                             .detach_ms = UINT64_MAX};
    struct front_record back = {0};
    _buf_ struct buf a = {0};
    struct error e = {0};

    front_record_print(&r, &a);
    is_int(front_record_parse(a.data, a.len, &back, &e), 0, "by hand: %s",
           e.text);
    ok(back.by_hand && back.detach_ms == UINT64_MAX && !back.mpirun_pid,
       "without an end, and a process");
    is_int((intmax_t)back.hosts.n, 0, "or hosts");
    front_record_release(&back);
}

/* Names that mean something else on another host. */
static void test_names(void)
{
    static const struct {
        const char *hosts;
        enum hosts_source source;
        const char *want;
        enum hosts_source want_source;
    } cases[] = {
        {"localhost", HOSTS_GIVEN, "login1", HOSTS_GIVEN},
        {"127.0.0.1,n2", HOSTS_GIVEN, "login1", HOSTS_GIVEN},
        {"localhost", HOSTS_LOCAL, "login1", HOSTS_GIVEN},
        {"login1", HOSTS_GIVEN, "login1", HOSTS_GIVEN},
    };
    _front_record_ struct front_record r = {0}, back = {0};
    _buf_ struct buf a = {0};
    char own[256] = "";

    gethostname(own, sizeof(own) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _front_record_ struct front_record of = sample(cases[i].hosts,
                                                       cases[i].source);
        _front_record_ struct front_record got = {0};
        _buf_ struct buf text = {0};

        front_record_print(&of, &text);
        front_record_parse(text.data, text.len, &got, NULL);
        is_str(got.hosts.n ? got.hosts.items[0].name : "", cases[i].want,
               "%s of another host", cases[i].hosts);
        is_int(got.hosts.source, cases[i].want_source, "as it has to be named");
    }
    r = sample("localhost", HOSTS_LOCAL);
    str_copy(r.host, sizeof(r.host), own);
    front_record_print(&r, &a);
    front_record_parse(a.data, a.len, &back, NULL);
    is_int(back.hosts.source, HOSTS_LOCAL, "here it is this machine");
}

static void test_bad(void)
{
    static const char *const bad[] = {
        "", "[]", "{}", "{\"v\":0}", "{\"v\":1}", "{\"v\":\"1\"}", "{\"v\":2}",
        "{\"v\":1,\"source\":\"local\"}",
        "{\"v\":1,\"source\":\"moon\",\"hosts\":[]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":\"a\"}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[7]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"-oProxyCommand=x\"]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a[1-9]\"]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a,b\"]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\",\"a\"]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"\"]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"epoch\":-1}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"epoch\":4294967296}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"epoch\":\"1\"}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"mpirun\":7}",
        ("{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],"
         "\"agents_per_host\":0}"),
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"n_agents\":0}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"n_agents\":2}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[],\"n_agents\":1}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"v\":1}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"slots\":7}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"slots\":[]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"slots\":[\"1\"]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"slots\":[-1]}",
        "{\"v\":1,\"source\":\"given\",\"hosts\":[\"a\"],\"slots\":[65537]}",
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct front_record r = {0};
        struct error e = {0};

        ok(front_record_parse(bad[i], strlen(bad[i]), &r, &e) < 0 && e.text[0],
           "%s is refused: %s", bad[i], e.text);
    }
}

/* A file whose commands somebody else may have written is not read. */
static void test_file(void)
{
    char where[] = "/tmp/muster-front.XXXXXX", path[PATH_MAX];
    _front_record_ struct front_record r = sample("n1", HOSTS_GIVEN);
    _front_record_ struct front_record back = {0};
    struct rundir dir = {.lock_fd = -1};
    struct error e = {0};
    struct stat st = {0};

    if (!mkdtemp(where)) {
        bail_out("mkdtemp");
    }
    str_copy(dir.path, sizeof(dir.path), where);
    rundir_path(&dir, path, sizeof(path), NULL, "front.json");
    is_int(front_record_read(&dir, &back, &e), -ENOENT, "none yet: %s", e.text);
    is_int(front_record_write(&dir, &r, &e), 0, "written: %s", e.text);
    stat(path, &st);
    is_int(st.st_mode & 0777, 0600, "for this user alone");
    is_int(front_record_read(&dir, &back, &e), 0, "and read: %s", e.text);
    if (chmod(path, 0620) == 0) {
        is_int(front_record_read(&dir, &back, &e), -EPERM, "not where others "
               "can write: %s", e.text);
    }
    chmod(path, 0600);
    if (geteuid() != 0) {
        skip("only root can give a file away");
    } else if (chown(path, 65534, (gid_t)-1) == 0) {
        is_int(front_record_read(&dir, &back, &e), -EPERM, "nor somebody "
               "else's: %s", e.text);
    }
    if (unlink(path) == 0 && symlink("/etc/passwd", path) == 0) {
        ok(front_record_read(&dir, &back, &e) < 0, "nor through a link: %s",
           e.text);
    }
    fs_remove_tree(where, NULL);
}

int main(void)
{
    test_round_trip();
    test_least();
    test_names();
    test_bad();
    test_file();
    return tap_done();
}
