/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/held.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

static int open_it(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

int held_take(int dir, const char *name)
{
    _close_ int fd = open_it(dir, name);

    return fd >= 0 && flock(fd, LOCK_SH | LOCK_NB) == 0 ? take_fd(&fd) : -1;
}

bool held_is(int dir, const char *name)
{
    _close_ int fd = open_it(dir, name);

    return fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) < 0 && errno == EWOULDBLOCK;
}
