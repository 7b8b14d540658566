/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Setting aside what is broken: one rename in the directory itself, which needs no
 * room and can be killed at any point. A filesystem that cannot rename (directories,
 * on some) or is full says so, and the checkpoint stays where it is, passed over.
 */
#include <config.h>

#include "ckpt/watch.h"

#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ASIDE = 1000 };

/* Not every filesystem can promise that nothing is there; then it is looked. Nobody
 * but us makes such names. */
static int rename_new(int dir, const char *from, const char *to)
{
    struct stat st;

    if (renameat2(dir, from, dir, to, RENAME_NOREPLACE) == 0) {
        return 0;
    }
    if (errno != EINVAL && errno != ENOSYS) {
        return -errno;
    }
    if (fstatat(dir, to, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return -EEXIST;
    }
    if (errno != ENOENT) {
        return -errno;
    }
    return renameat(dir, from, dir, to) < 0 ? -errno : 0;
}

/* For people; one that is cut or missing loses nothing. */
static void note_why(int dir, const char *aside, const char *why)
{
    char name[FOUND_NAME_BYTES + 64];
    _close_ int fd = -1;

    snprintf(name, sizeof(name), "%s.why", aside);
    fd = openat(dir, name,
                O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd >= 0 && (fs_write_all(fd, why, strlen(why)) < 0 ||
                    fs_write_all(fd, "\n", 1) < 0)) {
        unlinkat(dir, name, 0);
    }
}

int watch_set_aside(int dir, const char *name, const char *why,
                    char ret[FOUND_NAME_BYTES], struct error *e)
{
    char to[FOUND_NAME_BYTES + 32];
    int rc = -EEXIST;

    for (unsigned i = 1; i <= MAX_ASIDE && rc == -EEXIST; i++) {
        int n = i == 1 ? snprintf(to, sizeof(to), "%s" FOUND_ASIDE, name)
                       : snprintf(to, sizeof(to), "%s" FOUND_ASIDE "-%u", name,
                                  i);

        rc = n < FOUND_NAME_BYTES ? rename_new(dir, name, to) : -ENAMETOOLONG;
    }
    if (rc < 0) {
        return error_set(e, -rc, "set %s aside", name);
    }
    note_why(dir, to, why);
    (void)fsync(dir); /* lost with the power: it is found and renamed again */
    memcpy(ret, to, FOUND_NAME_BYTES);
    return 0;
}
