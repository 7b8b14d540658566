/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/save_ahead.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hugepages.h"
#include "base/pages.h"
#include "base/thread.h"
#include "ckpt/snap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    LOOK_MS = 5,           /* at first, and then less and less often ... */
    LOOK_SELDOM_MS = 500,
    LOOK_MAX_MS = 300000,  /* ... for so long: it was not made, then */
    PIECE_BYTES = 4 << 20, /* what an end waits for */
};

struct save_ahead {
    char path[PATH_MAX];
    int wake;          /* readable: the thread is to end */
    atomic_bool is_over;
    pid_t pid;         /* who has the thread; a child that was forked since has not */
    bool is_started;
    pthread_t thread;
    struct save_map first, map; /* the thread's, until it has ended */
};

/* ".../snap-AGENT-RANK-0" and "-1". */
static bool find_path(int fd, char path[PATH_MAX])
{
    char link[64];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, path, PATH_MAX - 1);
    if (n < 2 || path[0] != '/' || path[n - 2] != '-' ||
        (path[n - 1] != '0' && path[n - 1] != '1')) {
        return false;
    }
    path[n - 1] = path[n - 1] == '0' ? '1' : '0';
    path[n] = '\0';
    return true;
}

struct save_ahead *save_ahead_create(int fd)
{
    _free_ struct save_ahead *a = calloc(1, sizeof(*a));

    if (!a || !find_path(fd, a->path)) {
        return NULL;
    }
    a->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return a->wake < 0 ? NULL : take_ptr(&a);
}

/* Its first page says that it is a snapshot once all its memory is there, or where it is
 * bare: it was asked for, then, and nobody waits for this thread any more. */
static bool map_it(struct save_ahead *a)
{
    _close_ int fd = open(a->path, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    char page[SNAP_PAGE_BYTES];
    struct snap_head head;
    struct stat st;
    void *at;

    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
        st.st_uid != geteuid() ||
        pread(fd, page, sizeof(page), 0) != (ssize_t)sizeof(page) ||
        snap_decode(page, &head, NULL) < 0) {
        return false;
    }
    at = hugepages_map((size_t)st.st_size, PROT_READ | PROT_WRITE, fd);
    if (at == MAP_FAILED) {
        return false;
    }
    a->map = (struct save_map){.file = st.st_ino, .at = at,
                               .len = (size_t)st.st_size};
    return true;
}

struct touching {
    const struct save_map *map;
    size_t done;
    bool is_over;
};

/* As to be written to: else the processor notes with the first byte of each page that it is
 * changed, which takes a third of what it takes to copy it. */
static void touch_piece(struct touching *t)
{
    size_t left = t->map->len - t->done, n = left < PIECE_BYTES ? left : PIECE_BYTES;

    if (n == 0 || pages_take(t->map->at + t->done, n) < 0) {
        t->is_over = true;
    } else {
        t->done += n;
    }
}

/* All that is left. Whether it has been touched then. */
static bool touch(const struct save_ahead *a, struct touching *t)
{
    while (!a->is_over && !t->is_over) {
        touch_piece(t);
    }
    return t->map->at && t->done == t->map->len;
}

static int look_later(int ms)
{
    return ms + ms / 4 < LOOK_SELDOM_MS ? ms + ms / 4 : LOOK_SELDOM_MS;
}

static void *map_ahead(void *arg)
{
    struct save_ahead *a = arg;
    struct pollfd wake = {.fd = a->wake, .events = POLLIN};
    uint64_t end_ms = clock_mono_ms() + LOOK_MAX_MS;
    struct touching first = {.map = &a->first, .is_over = a->first.is_touched};
    struct touching second = {.map = &a->map};
    int wait_ms = LOOK_MS;

    /* The second one is wanted first; the other one is for the time until it is there. */
    while (!a->is_over && !map_it(a) && (!first.is_over || clock_mono_ms() < end_ms)) {
        if (!first.is_over) {
            touch_piece(&first);
        } else {
            poll(&wake, 1, wait_ms);
            wait_ms = look_later(wait_ms);
        }
    }
    a->map.is_touched = a->map.at && touch(a, &second);
    a->first.is_touched = a->first.is_touched || touch(a, &first);
    return NULL;
}

void save_ahead_start(struct save_ahead *a, const struct save_map *first)
{
    if (!a->is_started) {
        a->first = *first;
        a->pid = getpid();
        a->is_started = thread_start(&a->thread, map_ahead, a) == 0;
    }
}

bool save_ahead_end(struct save_ahead *a, ino_t file, struct save_map *ret)
{
    bool is_touched;

    *ret = (struct save_map){0};
    if (!a) {
        return false;
    }
    if (a->is_started && a->pid != getpid()) {
        close(a->wake);
        free(a); /* what the thread of the parent had mapped by then is unknown */
        return false;
    }
    a->is_over = true;
    if (a->is_started) {
        eventfd_write(a->wake, 1);
        pthread_join(a->thread, NULL);
    }
    if (a->map.at && a->map.file == file) {
        *ret = a->map;
    } else if (a->map.at) {
        munmap(a->map.at, a->map.len);
    }
    is_touched = a->first.is_touched;
    close(a->wake);
    free(a);
    return is_touched;
}
