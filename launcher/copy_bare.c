/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/copy_bare.h"

#include "base/aead.h"
#include "base/cleanup.h"
#include "base/clock.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEAD_BYTES = 4 };

struct side {
    int fd;
    int processor; /* or -1 */
    char *data;
    uint64_t len;
    size_t chunk;
    bool hides;
    struct aead aead;
    uint8_t *frame;
    bool failed;
};

static const uint8_t key[AEAD_KEY_BYTES] = {4, 5, 6};

/* --- a connection --- */

static int listen_here(struct sockaddr_in *ret)
{
    socklen_t len = sizeof(*ret);
    _close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    *ret = (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (fd < 0 || bind(fd, (struct sockaddr *)ret, sizeof(*ret)) < 0 ||
        listen(fd, 1) < 0 || getsockname(fd, (struct sockaddr *)ret, &len) < 0) {
        return -1;
    }
    return take_fd(&fd);
}

static bool connect_pair(int ret[2])
{
    struct sockaddr_in at;
    int yes = 1;
    _close_ int listener = listen_here(&at);
    _close_ int near = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    _close_ int far = -1;

    if (listener < 0 || near < 0 ||
        connect(near, (struct sockaddr *)&at, sizeof(at)) < 0) {
        return false;
    }
    far = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (far < 0) {
        return false;
    }
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    ret[0] = take_fd(&near);
    ret[1] = take_fd(&far);
    return true;
}

/* --- the ends --- */

static bool send_part(int fd, const void *data, size_t len, int flags)
{
    const char *at = data;

    while (len > 0) {
        ssize_t n = send(fd, at, len, MSG_NOSIGNAL | flags);

        if (n < 0) {
            return false;
        }
        at += n;
        len -= (size_t)n;
    }
    return true;
}

static bool send_all(int fd, const void *data, size_t len)
{
    return send_part(fd, data, len, 0);
}

/* The tag goes before the bytes that it is of. */
static bool send_open(struct side *s, uint64_t at, size_t n)
{
    return aead_sign(&s->aead, at, s->data + at, n, s->frame) &&
           send_part(s->fd, s->frame, AEAD_TAG_BYTES, MSG_MORE) &&
           send_all(s->fd, s->data + at, n);
}

static bool take_open(struct side *s, uint64_t at, size_t n)
{
    return recv(s->fd, s->frame, AEAD_TAG_BYTES, MSG_WAITALL) == AEAD_TAG_BYTES &&
           recv(s->fd, s->data + at, n, MSG_WAITALL) == (ssize_t)n &&
           aead_check(&s->aead, at, s->data + at, n, s->frame);
}

static bool send_chunk(struct side *s, uint64_t at, size_t n)
{
    struct aead_text text = {s->frame, HEAD_BYTES, n, s->data + at, n};

    if (!s->hides) {
        return send_open(s, at, n);
    }
    return aead_seal(&s->aead, at, &text) &&
           send_all(s->fd, s->frame, HEAD_BYTES + n + AEAD_TAG_BYTES);
}

static bool take_chunk(struct side *s, uint64_t at, size_t n)
{
    struct aead_text text = {s->frame, HEAD_BYTES, n + AEAD_TAG_BYTES, s->data + at, n};
    size_t all = HEAD_BYTES + n + AEAD_TAG_BYTES;

    if (!s->hides) {
        return take_open(s, at, n);
    }
    return recv(s->fd, s->frame, all, MSG_WAITALL) == (ssize_t)all &&
           aead_open(&s->aead, at, &text);
}

static bool for_each(struct side *s, uint64_t len,
                     bool (*act)(struct side *s, uint64_t at, size_t n))
{
    bool is_well = true;

    for (uint64_t at = 0; at < len && is_well; at += s->chunk) {
        is_well = act(s, at, len - at < s->chunk ? (size_t)(len - at) : s->chunk);
    }
    return is_well;
}

static bool warm_up(struct side *s, bool (*act)(struct side *s, uint64_t at, size_t n))
{
    return for_each(s, s->len < s->chunk ? s->len : s->chunk, act);
}

static void stay(const struct side *s)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    if (s->processor >= 0) {
        CPU_SET(s->processor, &set);
        pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    }
}

static void *take_all(void *arg)
{
    struct side *s = arg;

    stay(s);
    s->failed = !warm_up(s, take_chunk) || !send_all(s->fd, "", 1) ||
                !for_each(s, s->len, take_chunk) || !send_all(s->fd, "", 1);
    if (s->failed) {
        shutdown(s->fd, SHUT_RDWR); /* nobody waits for more */
    }
    return NULL;
}

static bool hear(const struct side *s)
{
    char done;

    return recv(s->fd, &done, 1, 0) == 1;
}

static uint64_t send_it(struct side *s)
{
    uint64_t begin;

    if (!warm_up(s, send_chunk) || !hear(s)) {
        return 0;
    }
    begin = clock_mono_ns();
    if (!for_each(s, s->len, send_chunk) || !hear(s)) {
        return 0;
    }
    return clock_mono_ns() - begin;
}

/* --- both --- */

/* The first one, and the last one, of those that this thread may run on. */
static void choose(cpu_set_t *was, int ret[2])
{
    ret[0] = ret[1] = -1;
    if (sched_getaffinity(0, sizeof(*was), was) < 0) {
        CPU_ZERO(was);
    }
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (CPU_ISSET(i, was)) {
            ret[0] = ret[0] < 0 ? i : ret[0];
            ret[1] = i;
        }
    }
}

static bool open_side(struct side *s)
{
    aead_init(&s->aead, aead_best(), key);
    s->frame = calloc(1, HEAD_BYTES + s->chunk + AEAD_TAG_BYTES);
    return s->frame != NULL;
}

static uint64_t run(struct side sides[2])
{
    cpu_set_t was;
    int processors[2];
    pthread_t taker;
    uint64_t ns;

    choose(&was, processors);
    sides[0].processor = processors[0];
    sides[1].processor = processors[1];
    if (pthread_create(&taker, NULL, take_all, &sides[1]) != 0) {
        return 0;
    }
    stay(&sides[0]);
    ns = send_it(&sides[0]);
    if (ns == 0) {
        shutdown(sides[0].fd, SHUT_RDWR);
    }
    pthread_join(taker, NULL);
    pthread_setaffinity_np(pthread_self(), sizeof(was), &was);
    return sides[1].failed ? 0 : ns;
}

uint64_t copy_bare_ns(const char *from, char *to, uint64_t len, size_t chunk,
                      bool hides)
{
    struct side sides[2];
    int fds[2];
    uint64_t ns = 0;

    if (!connect_pair(fds)) {
        return 0;
    }
    for (int i = 0; i < 2; i++) {
        sides[i] = (struct side){.fd = fds[i], .len = len, .chunk = chunk,
                                 .hides = hides,
                                 .data = i == 0 ? (char *)(uintptr_t)from : to};
    }
    if (open_side(&sides[0]) && open_side(&sides[1])) {
        ns = run(sides);
    }
    for (int i = 0; i < 2; i++) {
        aead_release(&sides[i].aead);
        free(sides[i].frame);
        close(fds[i]);
    }
    return ns;
}
