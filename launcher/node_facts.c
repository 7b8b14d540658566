/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/node_facts.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_BYTES = 64 * 1024,
    MAX_CPUS = 16384,
    MAX_PERIOD_US = 1000000, /* the kernel's own */
};
#define MAX_QUOTA_US INT64_C(1000000000000)

static uint32_t count_affinity(void)
{
    cpu_set_t *set = CPU_ALLOC(MAX_CPUS);
    size_t size = CPU_ALLOC_SIZE(MAX_CPUS);
    int n = 0;

    if (set && sched_getaffinity(0, size, set) == 0) {
        n = CPU_COUNT_S(size, set);
    }
    CPU_FREE(set);
    return n > 0 ? (uint32_t)n : 1;
}

/* The first line of a small file into `to`; false where there is none. */
static bool read_line(const char *path, char *to, size_t size)
{
    _free_ char *text = NULL;

    if (fs_read(path, MAX_BYTES, &text, NULL, NULL) < 0) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    str_copy(to, size, text);
    return true;
}

/* Keeps the tighter of two quotas. */
static void take_quota(struct procs_node *n, long long quota, long long period)
{
    if (quota < 1 || period < 1 || quota > MAX_QUOTA_US ||
        period > MAX_PERIOD_US) {
        return; /* nothing that the kernel says */
    }
    if (n->quota_us < 1 ||
        quota * n->period_us < n->quota_us * (int64_t)period) {
        n->quota_us = quota;
        n->period_us = period;
    }
}

static void read_quota(struct procs_node *n, const char *dir, bool is_v2)
{
    char path[PATH_MAX], line[64], second[64];
    long long quota, period;

    if (is_v2) {
        if (fs_path(path, sizeof(path), NULL, "%s/cpu.max", dir) == 0 &&
            read_line(path, line, sizeof(line)) &&
            sscanf(line, "%lld %lld", &quota, &period) == 2) {
            take_quota(n, quota, period);
        }
        return;
    }
    if (fs_path(path, sizeof(path), NULL, "%s/cpu.cfs_quota_us", dir) == 0 &&
        read_line(path, line, sizeof(line)) &&
        fs_path(path, sizeof(path), NULL, "%s/cpu.cfs_period_us", dir) == 0 &&
        read_line(path, second, sizeof(second))) {
        take_quota(n, strtoll(line, NULL, 10), strtoll(second, NULL, 10));
    }
}

/* The group's own directory and all above it: a quota anywhere counts. Inside a
 * container the path may not exist, and the root is the group itself. */
static void read_up(struct procs_node *n, const char *root, const char *group,
                    bool is_v2)
{
    char dir[PATH_MAX];

    if (fs_path(dir, sizeof(dir), NULL, "%s%s", root, group) < 0) {
        return;
    }
    while (strlen(dir) > strlen(root)) {
        read_quota(n, dir, is_v2);
        *strrchr(dir, '/') = '\0';
    }
    read_quota(n, root, is_v2);
}

/* Of a list like "cpu,cpuacct". */
static bool has_cpu(const char *kinds)
{
    while (*kinds) {
        size_t len = strcspn(kinds, ",");

        if (len == 3 && strncmp(kinds, "cpu", 3) == 0) {
            return true;
        }
        kinds += len + (kinds[len] == ',');
    }
    return false;
}

/* Lines of /proc/self/cgroup: "0::/path" (v2), "4:cpu,cpuacct:/path" (v1). */
void node_facts_quota(const char *self, const char *root,
                      struct procs_node *n)
{
    _free_ char *text = NULL;
    char v1_root[PATH_MAX];
    char *rest, *line;

    if (fs_read(self, MAX_BYTES, &text, NULL, NULL) < 0 ||
        fs_path(v1_root, sizeof(v1_root), NULL, "%s/cpu", root) < 0) {
        return;
    }
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        char *kinds = strchr(line, ':');
        char *group = kinds ? strchr(kinds + 1, ':') : NULL;

        if (!group) {
            continue;
        }
        *group++ = '\0';
        if (!kinds[1]) {
            read_up(n, root, group, true);
        } else if (has_cpu(kinds + 1)) {
            read_up(n, v1_root, group, false);
        }
    }
}

/* /dev/nvidia0, /dev/nvidia1, ... */
static uint32_t count_gpus(void)
{
    DIR *dir = opendir("/dev");
    const struct dirent *d;
    uint32_t n = 0;

    while (dir && (d = readdir(dir))) {
        if (str_starts(d->d_name, "nvidia") &&
            isdigit((unsigned char)d->d_name[6])) {
            n++;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return n;
}

void node_facts(const struct strlist *env, struct procs_node *ret)
{
    *ret = (struct procs_node){.n_cpus = count_affinity(),
                               .n_gpus = count_gpus()};
    node_facts_quota("/proc/self/cgroup", "/sys/fs/cgroup", ret);
    ret->visible = env ? strlist_getenv(env, "CUDA_VISIBLE_DEVICES") : NULL;
    if (!ret->visible) {
        ret->visible = getenv("CUDA_VISIBLE_DEVICES");
    }
}
