/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the kernel alone costs, for scripts/bench: answers the requests of
 * store_load with as many bytes as a store would, one receive and one send for
 * what came at once, and keeps no keys. The value of a GET is that of the last
 * SET of its connection, which is what store_load asks for.
 *
 *   store_bare      prints its port, serves until it is killed
 */
#include <config.h>

#include <arpa/inet.h>
#include <err.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { VALIDATE, SET, GET = 3, ADD, WAIT = 6, DELETE_KEY = 8, PING = 13 };
enum { EVENTS = 1024, VALUE_BYTES = 64 };

struct peer {
    int fd;
    char value[VALUE_BYTES];
    size_t n_out;
    char out[4096];
};

static void put(struct peer *p, const void *data, size_t len)
{
    if (p->n_out + len > sizeof(p->out)) {
        errx(1, "more requests at once than store_load sends");
    }
    memcpy(p->out + p->n_out, data, len);
    p->n_out += len;
}

static uint64_t u64(const char *from)
{
    uint64_t n;

    memcpy(&n, from, sizeof(n));
    return n;
}

/* Answers the request at `at`; returns its length. */
static size_t answer(struct peer *p, const char *at, uint64_t *sum)
{
    uint64_t value_bytes = VALUE_BYTES;

    switch (*at) {
    case VALIDATE:
        return 5;
    case PING:
        put(p, at + 1, 4);
        return 5;
    case SET:
        memcpy(p->value, at + 17 + u64(at + 1), VALUE_BYTES);
        return 17 + u64(at + 1) + VALUE_BYTES;
    case GET:
        put(p, &value_bytes, 8);
        put(p, p->value, VALUE_BYTES);
        return 9 + u64(at + 1);
    case ADD:
        ++*sum;
        put(p, sum, 8);
        return 17 + u64(at + 1);
    case DELETE_KEY:
        put(p, &(uint64_t){1}, 8);
        return 9 + u64(at + 1);
    case WAIT:
        put(p, "", 1);
        return 17 + u64(at + 9);
    default:
        errx(1, "command %d is none of store_load", *at);
    }
}

/* False when it has gone. Requests come whole: store_load sends them so, and has
 * at most two of a connection under way. */
static bool serve(struct peer *p, uint64_t *sum)
{
    char in[4096];
    ssize_t n = recv(p->fd, in, sizeof(in), MSG_DONTWAIT);
    size_t at = 0;

    while (n > 0 && at < (size_t)n) {
        at += answer(p, in + at, sum);
    }
    if (n <= 0 || (p->n_out > 0 &&
                   send(p->fd, p->out, p->n_out, MSG_NOSIGNAL) < 0)) {
        return false;
    }
    p->n_out = 0;
    return true;
}

static void take(int listener, int epoll)
{
    struct peer *p = calloc(1, sizeof(*p));
    struct epoll_event e = {.events = EPOLLIN, .data.ptr = p};
    int yes = 1;

    if (!p || (p->fd = accept(listener, NULL, NULL)) < 0) {
        err(1, "accept");
    }
    setsockopt(p->fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    epoll_ctl(epoll, EPOLL_CTL_ADD, p->fd, &e);
}

static int listen_here(void)
{
    struct sockaddr_in a = {.sin_family = AF_INET,
                            .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(a);
    int fd = socket(AF_INET, SOCK_STREAM, 0);

    if (fd < 0 || bind(fd, (struct sockaddr *)&a, sizeof(a)) < 0 ||
        listen(fd, SOMAXCONN) < 0 ||
        getsockname(fd, (struct sockaddr *)&a, &len) < 0) {
        err(1, "listen");
    }
    printf("%d\n", ntohs(a.sin_port));
    fflush(stdout);
    return fd;
}

int main(void)
{
    int listener = listen_here(), epoll = epoll_create1(0);
    struct epoll_event events[EVENTS], e = {.events = EPOLLIN};
    uint64_t sum = 0;

    epoll_ctl(epoll, EPOLL_CTL_ADD, listener, &e);
    for (;;) {
        int n = epoll_wait(epoll, events, EVENTS, -1);

        for (int i = 0; i < n; i++) {
            struct peer *p = events[i].data.ptr;

            if (!p) {
                take(listener, epoll);
            } else if (!serve(p, &sum)) {
                close(p->fd);
                free(p);
            }
        }
    }
}
