/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/held.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

static int open_it(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
}

/* Whoever looks whether it is held has all of it for a moment. */
int held_take(int dir, const char *name)
{
    enum { TRIES = 10 };
    const struct timespec moment = {.tv_nsec = 1000 * 1000};
    _close_ int fd = open_it(dir, name);

    for (int i = 0; fd >= 0 && i < TRIES; i++) {
        if (flock(fd, LOCK_SH | LOCK_NB) == 0) {
            return take_fd(&fd);
        }
        if (errno != EWOULDBLOCK) {
            break;
        }
        nanosleep(&moment, NULL);
    }
    return -1;
}

void held_give(int fd)
{
    if (fd >= 0) {
        (void)flock(fd, LOCK_UN);
        close(fd);
    }
}

int held_take_all(int dir, const char *name)
{
    _close_ int fd = open_it(dir, name);

    if (fd < 0) {
        return -errno;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return errno == EWOULDBLOCK ? -EBUSY : -errno;
    }
    return take_fd(&fd);
}

bool held_is(int dir, const char *name)
{
    _close_ int fd = held_take_all(dir, name);

    return fd == -EBUSY;
}
