/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What launches have left whose node lost its power: nobody else would ever remove
 * it. Age is by the clock of the filesystem, which nodes agree on.
 */
#include <config.h>

#include "launcher/rank_meet.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = ".muster-mpi-";

static bool is_meeting(const char *name)
{
    size_t n = strlen(prefix);

    return strncmp(name, prefix, n) == 0 &&
           strspn(name + n, "0123456789abcdef") == 16 && !name[n + 16];
}

static bool is_old(const char *path, time_t now)
{
    struct stat st;

    return lstat(path, &st) == 0 && S_ISDIR(st.st_mode) &&
           st.st_uid == geteuid() && !(st.st_mode & 077) &&
           now - st.st_mtime > RANK_MEET_OLD_S;
}

void rank_meet_sweep(const char *dir)
{
    char base[PATH_MAX], path[PATH_MAX];
    const struct dirent *entry;
    struct stat own;
    DIR *d;

    str_copy(base, sizeof(base), dir);
    *(strrchr(base, '/') + 1) = '\0'; /* it is absolute */
    d = lstat(dir, &own) == 0 ? opendir(base) : NULL;
    while (d && (entry = readdir(d))) {
        if (is_meeting(entry->d_name) &&
            fs_path(path, sizeof(path), NULL, "%s%s", base,
                    entry->d_name) == 0 &&
            is_old(path, own.st_mtime)) {
            fs_remove_tree(path, NULL);
        }
    }
    if (d) {
        closedir(d);
    }
}
