/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/dirlock.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/random.h>

/* NFS has locks for files that are open for writing, which no directory is: EBADF. */
static bool no_locks_here(int err)
{
    return err == EBADF || err == ENOLCK || err == ENOSYS || err == EOPNOTSUPP ||
           err == EINVAL;
}

int dirlock_take(int dir, char ret_suffix[DIRLOCK_SUFFIX_BYTES])
{
    unsigned mine;
    int rc;

    do {
        rc = flock(dir, LOCK_EX | LOCK_NB) < 0 ? errno : 0;
    } while (rc == EINTR);
    ret_suffix[0] = '\0';
    if (rc == 0) {
        return 0;
    }
    if (!no_locks_here(rc)) {
        return rc == EWOULDBLOCK ? -EBUSY : -rc;
    }
    if (getrandom(&mine, sizeof(mine), 0) != (ssize_t)sizeof(mine)) {
        return -EIO;
    }
    snprintf(ret_suffix, DIRLOCK_SUFFIX_BYTES, "-%08x", mine);
    return 0;
}
