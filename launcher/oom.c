/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/oom.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_BYTES = 64 * 1024 };

/* The number after `name` in a file of "name number" lines. */
static int64_t read_count(const char *path, const char *name)
{
    size_t len = strlen(name);
    _free_ char *text = NULL;
    char *rest, *line;
    int64_t n;

    if (fs_read(path, MAX_BYTES, &text, NULL, NULL) < 0) {
        return -1;
    }
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        if (str_starts(line, name) && line[len] == ' ' &&
            str_to_i64(line + len + 1, &n) == 0) {
            return n;
        }
    }
    return -1;
}

/* Inside a container the group's path may not exist there: the root of what is
 * mounted is then the group itself. */
static int64_t count_in(const char *sys, const char *group, bool is_v2,
                        const char *name)
{
    const char *file = is_v2 ? "memory.events" : "memory/memory.oom_control";
    char path[PATH_MAX];
    int64_t n = -1;

    if (is_v2) {
        if (fs_path(path, sizeof(path), NULL, "%s%s/%s", sys, group, file) ==
            0) {
            n = read_count(path, name);
        }
    } else if (fs_path(path, sizeof(path), NULL,
                       "%s/memory%s/memory.oom_control", sys, group) == 0) {
        n = read_count(path, name);
    }
    if (n < 0 && fs_path(path, sizeof(path), NULL, "%s/%s", sys, file) == 0) {
        n = read_count(path, name);
    }
    return n;
}

static int64_t count(const char *proc, const char *sys, const char *name)
{
    _free_ char *text = NULL;
    char *rest, *line;
    int64_t n = -1;

    if (fs_read(proc ? proc : "/proc/self/cgroup", MAX_BYTES, &text, NULL,
                NULL) < 0) {
        return -1;
    }
    rest = text;
    while (n < 0 && (line = strsep(&rest, "\n"))) {
        char *kinds = strchr(line, ':');
        char *group = kinds ? strchr(kinds + 1, ':') : NULL;

        if (!group) {
            continue;
        }
        *group++ = '\0';
        if (!kinds[1] || strcmp(kinds + 1, "memory") == 0) {
            n = count_in(sys ? sys : "/sys/fs/cgroup", group, !kinds[1],
                         name);
        }
    }
    return n;
}

int64_t oom_kills(const char *proc, const char *sys)
{
    return count(proc, sys, "oom_kill");
}

int64_t oom_kills_host(const char *vmstat)
{
    return read_count(vmstat ? vmstat : "/proc/vmstat", "oom_kill");
}

int64_t oom_group_kills(const char *proc, const char *sys)
{
    return count(proc, sys, "oom_group_kill");
}
