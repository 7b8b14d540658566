/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/fs.h"
#include "launcher/oom.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char v1_text[] = "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
static const char v2_text[] = "low 0\noom 9\noom_kill 7\noom_group_kill 2\n";

static const struct {
    const char *name;
    const char *groups; /* the file /proc/self/cgroup */
    const char *file;   /* which one counts, NULL: none */
    const char *text;
    int64_t want, groups_killed;
} cases[] = {
    {"v2", "0::/a/b\n", "a/b/memory.events", v2_text, 7, 2},
    {"v2 in a container", "0::/a/b\n", "memory.events", v2_text, 7, 2},
    {"v1", "9:pids:/x\n4:memory:/a\n0::/\n", "memory/a/memory.oom_control",
     v1_text, 3, -1},
    {"v1 in a container", "4:memory:/a/b\n", "memory/memory.oom_control",
     v1_text, 3, -1},
    {"v1 with its memory in v2", "9:pids:/x\n0::/a\n", "a/memory.events",
     v2_text, 7, 2},
    {"no count", "0::/a\n", "a/memory.events", "oom 9\n", -1, -1},
    {"no number", "0::/a\n", "a/memory.events", "oom_kill x\n", -1, -1},
    {"no file", "0::/a\n", NULL, NULL, -1, -1},
    {"no groups", "", NULL, NULL, -1, -1},
    {"what is no list of groups", "a\nb:\n:\n", NULL, NULL, -1, -1},
};

static void check_case(size_t i, const char *dir)
{
    char sys[256], proc[256], file[512], parent[512];

    snprintf(sys, sizeof(sys), "%s/%zu", dir, i);
    snprintf(proc, sizeof(proc), "%s/%zu.groups", dir, i);
    fs_write_replace(proc, cases[i].groups, strlen(cases[i].groups), NULL);
    if (cases[i].file) {
        snprintf(file, sizeof(file), "%s/%s", sys, cases[i].file);
        snprintf(parent, sizeof(parent), "%.*s",
                 (int)(strrchr(file, '/') - file), file);
        fs_mkdirs(parent, NULL);
        fs_write_replace(file, cases[i].text, strlen(cases[i].text), NULL);
    }
    is_int(oom_kills(proc, sys), cases[i].want, "%s", cases[i].name);
    is_int(oom_group_kills(proc, sys), cases[i].groups_killed,
           "%s: whole groups", cases[i].name);
}

int main(void)
{
    static const char host_text[] = "pgfault 9\noom_killer 3\noom_kill 12\n";
    char dir[] = "/tmp/muster-oom.XXXXXX";
    char vmstat[64];

    if (!mkdtemp(dir)) {
        return 1;
    }
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        check_case(i, dir);
    }
    is_int(oom_kills("/nonexistent", "/nonexistent"), -1, "nothing at all");
    snprintf(vmstat, sizeof(vmstat), "%s/vmstat", dir);
    fs_write_replace(vmstat, host_text, strlen(host_text), NULL);
    is_int(oom_kills_host(vmstat), 12, "of the host");
    is_int(oom_kills_host("/nonexistent"), -1, "which nobody counts");
    ok(oom_kills_host(NULL) >= -1, "of this host");
    ok(oom_kills(NULL, NULL) >= -1, "this machine");
    fs_remove_tree(dir, NULL);
    return tap_done();
}
