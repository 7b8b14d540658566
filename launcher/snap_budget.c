/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/snap_budget.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define SHM "/dev/shm"

enum { MAX_BYTES = 64 * 1024 };

/* The number that a file begins with; false for "max", too. */
static bool read_number(const char *path, uint64_t *ret)
{
    _free_ char *text = NULL;
    int64_t n;

    if (fs_read(path, MAX_BYTES, &text, NULL, NULL) < 0) {
        return false;
    }
    text[strcspn(text, "\n")] = '\0';
    if (str_to_i64(text, &n) < 0 || n < 0) {
        return false;
    }
    *ret = (uint64_t)n;
    return true;
}

static void lower(struct snap_budget *b, uint64_t bytes, const char *why)
{
    if (bytes < b->bytes) {
        b->bytes = bytes;
        str_copy(b->why, sizeof(b->why), why);
    }
}

static void look_at_shm(struct snap_budget *b, uint64_t own)
{
    struct statvfs st;

    if (statvfs(SHM, &st) == 0) {
        lower(b, (st.f_bavail * st.f_frsize + own) / 10 * 9,
              "nine tenths of what is free in " SHM);
    }
}

/* What the kernel could give without swapping; the workers want some, too. */
static void look_at_memory(struct snap_budget *b, uint64_t own)
{
    _free_ char *text = NULL;
    const char *at;

    if (fs_read("/proc/meminfo", MAX_BYTES, &text, NULL, NULL) < 0) {
        return;
    }
    at = strstr(text, "MemAvailable:");
    if (at) {
        lower(b, (strtoull(at + strlen("MemAvailable:"), NULL, 10) * 1024 + own) / 2,
              "half of the memory that is free");
    }
}

/* cgroup v2, of this process or of the container that it is in. */
static void look_at_cgroup(struct snap_budget *b, uint64_t own)
{
    _free_ char *text = NULL;
    char path[PATH_MAX], *group;
    uint64_t max, now;

    if (fs_read("/proc/self/cgroup", MAX_BYTES, &text, NULL, NULL) < 0) {
        return;
    }
    group = strstr(text, "0::");
    group = group ? group + 3 : text + strlen(text);
    group[strcspn(group, "\n")] = '\0';
    for (int i = 0; i < 2; i++) {
        if (fs_path(path, sizeof(path), NULL, "/sys/fs/cgroup%s/memory.max",
                    i ? "" : group) == 0 && read_number(path, &max) &&
            fs_path(path, sizeof(path), NULL,
                    "/sys/fs/cgroup%s/memory.current", i ? "" : group) == 0 &&
            read_number(path, &now)) {
            lower(b, ((max > now ? max - now : 0) + own) / 2,
                  "half of what the memory limit of the cgroup leaves");
            return;
        }
    }
}

void snap_budget_find(uint64_t own, struct snap_budget *ret)
{
    *ret = (struct snap_budget){.bytes = UINT64_MAX};
    look_at_shm(ret, own);
    look_at_memory(ret, own);
    look_at_cgroup(ret, own);
}

int snap_dir(const char *run_id, char *to, size_t size, struct error *e)
{
    return fs_path(to, size, e, SHM "/muster-%u-%s", (unsigned)geteuid(),
                   run_id);
}

void snap_dir_each(void (*f)(void *arg, const char *run_id), void *arg)
{
    char prefix[64];
    const struct dirent *d;
    DIR *dir = opendir(SHM);

    snprintf(prefix, sizeof(prefix), "muster-%u-", (unsigned)geteuid());
    while (dir && (d = readdir(dir))) {
        if (str_starts(d->d_name, prefix) && d->d_name[strlen(prefix)]) {
            f(arg, d->d_name + strlen(prefix));
        }
    }
    if (dir) {
        closedir(dir);
    }
}

int snap_dir_remove(const char *run_id, struct error *e)
{
    char path[PATH_MAX];
    int rc = snap_dir(run_id, path, sizeof(path), e);

    rc = rc < 0 ? rc : fs_remove_tree(path, e);
    return rc == -ENOENT ? 0 : rc;
}

static bool is_of_agent(const char *name, unsigned agent)
{
    unsigned of, rank, which;

    return sscanf(name, "%*[a-z]-%u-%u-%u", &of, &rank, &which) == 3 && of == agent;
}

/* What this user has made there; anybody may make something of that name. */
static DIR *open_own_dir(const char *run_id, char *path, size_t size)
{
    struct stat st;
    DIR *dir = NULL;
    int fd = snap_dir(run_id, path, size, NULL) < 0
                 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd >= 0 && fstat(fd, &st) == 0 && st.st_uid == geteuid()) {
        dir = fdopendir(fd);
    }
    if (!dir && fd >= 0) {
        close(fd);
    }
    return dir;
}

void snap_dir_remove_agent(const char *run_id, unsigned agent)
{
    char path[PATH_MAX];
    const struct dirent *d;
    DIR *dir = open_own_dir(run_id, path, sizeof(path));

    while (dir && (d = readdir(dir))) {
        if (is_of_agent(d->d_name, agent)) {
            unlinkat(dirfd(dir), d->d_name, 0);
        }
    }
    if (dir) {
        closedir(dir);
        rmdir(path); /* unless others have something there */
    }
}

uint64_t snap_dir_agent_bytes(const char *run_id, unsigned agent)
{
    char path[PATH_MAX];
    const struct dirent *d;
    DIR *dir = open_own_dir(run_id, path, sizeof(path));
    uint64_t sum = 0;
    struct stat st;

    while (dir && (d = readdir(dir))) {
        if (is_of_agent(d->d_name, agent) &&
            fstatat(dirfd(dir), d->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            sum += (uint64_t)st.st_blocks * 512;
        }
    }
    if (dir) {
        closedir(dir);
    }
    return sum;
}

bool snap_dir_has_agent(const char *run_id, unsigned agent)
{
    char path[PATH_MAX];
    const struct dirent *d;
    DIR *dir = open_own_dir(run_id, path, sizeof(path));
    bool has = false;

    while (dir && !has && (d = readdir(dir))) {
        has = is_of_agent(d->d_name, agent);
    }
    if (dir) {
        closedir(dir);
    }
    return has;
}
