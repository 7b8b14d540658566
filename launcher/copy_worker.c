/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/copy_worker.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/hugepages.h"
#include "base/pages.h"
#include "base/seqsock.h"
#include "base/thread.h"
#include "ckpt/digest.h"
#include "ckpt/load_priv.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MAX_THREADS = 4 };

/* What is said between the two: of each one number. */
enum { ASK = 1, GIVE, GIVE_COMING, LOADED };

static _Noreturn void die(const char *what, const char *why)
{
    fprintf(stderr, "copy_bench: a worker: %s: %s\n", what, why);
    exit(1);
}

static void say(int fd, uint16_t type, uint64_t number, int passed)
{
    struct buf b = {.data = (char *)&number, .len = sizeof(number)};
    int rc = seqsock_send(fd, type, &b, &passed, passed < 0 ? 0 : 1);

    if (rc < 0) {
        die("send", strerror(-rc));
    }
}

/* False: there is nobody any more. `ret_fd` is the caller's. */
static bool hear(int fd, uint16_t *ret_type, uint64_t *ret_number, int *ret_fd)
{
    _seqsock_msg_ struct seqsock_msg m;
    int rc;

    seqsock_msg_init(&m);
    rc = seqsock_recv(fd, &m);
    if (rc <= 0) {
        return false;
    }
    if (m.data.len != sizeof(*ret_number)) {
        die("receive", "that is no number");
    }
    memcpy(ret_number, m.data.data, sizeof(*ret_number));
    *ret_type = m.type;
    *ret_fd = take_fd(&m.fds[0]);
    return true;
}

/* --- loading, as ckpt/load_read.c does it: threads take block by block, get the memory that
 * it goes to, wait until it is there, and copy it while they verify it --- */

struct loading {
    char *to;
    uint64_t len;
    struct load_want want;
    struct load_pages pages; /* of what it loads into; got ahead until it starts */
    char *from;
    size_t room;
    bool is_coming;
    _Atomic uint64_t next;
    _Atomic bool is_wrong;
    unsigned n;
    pthread_t threads[MAX_THREADS];
};

static unsigned n_processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;

    return (unsigned)(n < MAX_THREADS ? n : MAX_THREADS);
}

static void begin(struct loading *l, uint64_t len)
{
    *l = (struct loading){.len = len};
    l->want = (struct load_want){.dtype = DTYPE_U8, .n_dims = 1, .len = &l->len};
    l->to = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (l->to == MAP_FAILED) {
        die("memory", strerror(errno));
    }
    load_pages_begin(&l->pages, &l->want, &l->to, 1, n_processors());
    load_pages_planned(&l->pages);
}

/* A block, and where it goes. */
struct span {
    const char *from;
    char *to;
};

static void copy_part(void *arg, size_t at, size_t n)
{
    const struct span *s = arg;

    memcpy(s->to + at, s->from + at, n);
}

static void *load_blocks(void *arg)
{
    enum { NEAR_BYTES = 128 << 10 };
    struct loading *l = arg;
    uint64_t at;

    while ((at = atomic_fetch_add(&l->next, DIGEST_BLOCK_BYTES)) < l->len) {
        size_t n = l->len - at < DIGEST_BLOCK_BYTES ? l->len - at : DIGEST_BLOCK_BYTES;
        struct span s = {l->from + SNAP_PAGE_BYTES + at, l->to + at};

        load_pages_get(&l->pages, 0, at, n);
        if (l->is_coming && !snap_await(l->from, digest_n_blocks(at + n))) {
            l->is_wrong = true;
            break;
        }
        pages_map((char *)s.from, n);
        l->is_wrong |= digest_short_while(s.from, n, NEAR_BYTES, copy_part, &s) == 0;
    }
    return NULL;
}

static void start(struct loading *l, bool is_coming, uint64_t room, int fd)
{
    load_pages_end(&l->pages);
    l->room = room;
    l->from = hugepages_map(room, PROT_READ, fd);
    if (l->from == MAP_FAILED) {
        die("map what comes", strerror(errno));
    }
    l->is_coming = is_coming;
    for (l->n = 0; l->n + 1 < n_processors(); l->n++) { /* this one is one, too */
        if (thread_start_beside(&l->threads[l->n], load_blocks, l) != 0) {
            die("threads", strerror(EAGAIN));
        }
    }
}

/* Returns when it was there. */
static uint64_t finish(struct loading *l)
{
    uint64_t end;

    load_blocks(l);
    while (l->n > 0) {
        pthread_join(l->threads[--l->n], NULL);
    }
    end = clock_mono_ns();
    load_pages_release(&l->pages);
    if (l->is_wrong || memcmp(l->to, l->from + SNAP_PAGE_BYTES, l->len) != 0) {
        die("what it has loaded", "it differs");
    }
    munmap(l->to, l->len);
    munmap(l->from, l->room);
    return end;
}

/* --- the process --- */

static _Noreturn void work(int fd)
{
    struct loading l = {0};
    uint64_t number;
    uint16_t type;
    int passed;

    while (hear(fd, &type, &number, &passed)) {
        if (type == ASK) {
            begin(&l, number);
        } else {
            start(&l, type == GIVE_COMING, number, passed);
            close(passed);
            say(fd, LOADED, finish(&l), -1);
        }
    }
    exit(0);
}

void copy_worker_start(struct copy_worker *w)
{
    int fds[2];
    pid_t pid = socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) < 0 ? -1 : fork();

    if (pid < 0) {
        die("begin", strerror(errno));
    }
    if (pid == 0) {
        close(fds[0]);
        work(fds[1]);
    }
    close(fds[1]);
    w->fd = fds[0];
}

void copy_worker_ask(const struct copy_worker *w, uint64_t bytes)
{
    say(w->fd, ASK, bytes, -1);
}

void copy_worker_give(const struct copy_worker *w, const struct snap *s)
{
    _close_ int fd = snap_for_reading(s);

    say(w->fd, s->head.state == SNAP_FILLING ? GIVE_COMING : GIVE, SNAP_PAGE_BYTES + s->room,
        fd);
}

uint64_t copy_worker_end(const struct copy_worker *w)
{
    uint64_t end;
    uint16_t type;
    int fd;

    if (!hear(w->fd, &type, &end, &fd) || type != LOADED) {
        die("its end", "it is gone");
    }
    return end;
}
