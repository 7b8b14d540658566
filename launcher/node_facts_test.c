/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/node_facts.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[] = "/tmp/muster-facts.XXXXXX";

static void put(const char *name, const char *text)
{
    char path[256], *slash;
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", root, name);
    slash = strrchr(path, '/');
    *slash = '\0';
    fs_mkdirs(path, NULL);
    *slash = '/';
    f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f) != 0) {
        bail_out("write %s", path);
    }
}

static void check(const char *what, const char *cgroup, int64_t quota,
                  int64_t period)
{
    struct procs_node n = {.n_cpus = 64};
    char self[256];

    put("self", cgroup);
    snprintf(self, sizeof(self), "%s/self", root);
    node_facts_quota(self, root, &n);
    is_int(n.quota_us, quota, "%s: quota", what);
    is_int(n.period_us, period, "%s: period", what);
}

static void test_quota(void)
{
    put("cpu.max", "max 100000\n");
    put("pod/cpu.max", "400000 100000\n");
    put("pod/job/cpu.max", "50000 10000\n");
    put("pod/other/cpu.max", "max 100000\n");
    put("pod/bad/cpu.max", "nonsense\n");
    put("pod/zero/cpu.max", "0 0\n");
    put("pod/far/cpu.max", "50 9223372036854775808\n");
    check("no group", "", 0, 0);
    check("no quota", "0::/\n", 0, 0);
    check("own, above that of the parent", "0::/pod/job\n", 400000, 100000);
    check("the parent's", "0::/pod/other\n", 400000, 100000);
    check("a file that does not parse", "0::/pod/bad\n", 400000, 100000);
    check("a quota of nothing", "0::/pod/zero\n", 400000, 100000);
    check("a period without end", "0::/pod/far\n", 400000, 100000);
    check("a group that is not there", "0::/pod/absent/x\n", 400000, 100000);
    check("a group outside of what is seen", "0::/../../x\n", 0, 0);
    check("lines that do not parse", "x\n:\n::\n1:cpu\n", 0, 0);
    put("cpu/cpu.cfs_quota_us", "-1\n");
    put("cpu/cpu.cfs_period_us", "100000\n");
    put("cpu/a/cpu.cfs_quota_us", "150000\n");
    put("cpu/a/cpu.cfs_period_us", "100000\n");
    check("version 1", "3:cpu,cpuacct:/a\n", 150000, 100000);
    check("version 1, the other way round", "3:cpuacct,cpu:/a\n", 150000,
          100000);
    check("another controller", "3:cpuset:/a\n4:cpuacct:/a\n", 0, 0);
    check("both", "3:cpu:/a\n0::/pod\n", 150000, 100000);
}

static void test_here(void)
{
    struct procs_node n;
    _strlist_ struct strlist env = {0};

    strlist_add(&env, "CUDA_VISIBLE_DEVICES=0,2");
    node_facts(&env, &n);
    ok(n.n_cpus >= 1, "this machine has CPUs (%u)", n.n_cpus);
    is_str(n.visible, "0,2", "what the user's environment says counts");
}

int main(void)
{
    if (!mkdtemp(root)) {
        bail_out("mkdtemp");
    }
    test_quota();
    test_here();
    fs_remove_tree(root, NULL);
    return tap_done();
}
