/* SPDX-License-Identifier: Apache-2.0 */
/* For tests, linked with --wrap=flock: locks that fail. */
#ifndef MUSTER_CKPT_FLOCK_FAILS_H
#define MUSTER_CKPT_FLOCK_FAILS_H

#include <errno.h>
#include <sys/file.h>

int __real_flock(int fd, int operation);
int __wrap_flock(int fd, int operation);

static int flock_fails_of; /* errno; 0: it does not */

int __wrap_flock(int fd, int operation)
{
    if (flock_fails_of) {
        errno = flock_fails_of;
        return -1;
    }
    return __real_flock(fd, operation);
}

#endif
