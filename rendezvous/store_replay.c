/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the ranks of a program ask their store, replayed for scripts/bench by as
 * many clients, each with one request under way, as PyTorch's have.
 *
 *   store_replay TRACE HOST PORT...
 *
 * The ranks are divided among the ports in order. The trace is text:
 *
 *   ranks N
 *   add KEY | set KEY BYTES | wait KEY | get KEY
 *   each ... end       for each rank of the program what is between them
 *
 * where %r in a key is the client's rank, and %p the one that `each` is at. Prints
 * how many requests that were and how many milliseconds they took, once the
 * clients have all connected.
 */
#include <config.h>

#include <err.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { VALIDATE, SET, GET = 3, ADD, WAIT = 6, EACH = 100, END };
enum { MAX_OPS = 64, KEY_BYTES = 200, VALUE_BYTES = 4096, MAGIC = 0x3c85f7ce };

struct op {
    int command;
    size_t value; /* bytes of it */
    char key[KEY_BYTES];
};

struct trace {
    int n_ranks, n_ops;
    struct op ops[MAX_OPS];
};

struct client {
    int fd, rank;
    int at, peer, each; /* the op, and where its loop began */
    int command;        /* under way, or -1 */
    size_t got, wanted; /* bytes of its answer */
    char head[8];       /* of the answer */
};

struct message {
    size_t len;
    char data[1 + 8 + KEY_BYTES * 2 + 8 + VALUE_BYTES];
};

static void read_trace(const char *path, struct trace *t)
{
    static const struct {
        const char *name;
        int command;
    } names[] = {{"add", ADD}, {"set", SET}, {"wait", WAIT}, {"get", GET},
                 {"each", EACH}, {"end", END}};
    char line[512], name[16];
    FILE *f = fopen(path, "r");

    if (!f) {
        err(1, "%s", path);
    }
    while (fgets(line, sizeof(line), f)) {
        struct op *op = &t->ops[t->n_ops];
        size_t i = 0;
        int n = sscanf(line, "%15s %199s %zu", name, op->key, &op->value);

        if (n <= 0 || name[0] == '#') {
            continue;
        }
        if (strcmp(name, "ranks") == 0 && n == 2) {
            t->n_ranks = atoi(op->key);
            continue;
        }
        while (i < sizeof(names) / sizeof(*names) &&
               strcmp(names[i].name, name) != 0) {
            i++;
        }
        if (i == sizeof(names) / sizeof(*names) || t->n_ops + 1 == MAX_OPS ||
            op->value > VALUE_BYTES) {
            errx(1, "%s: what is %s", path, line);
        }
        op->command = names[i].command;
        t->n_ops++;
    }
    fclose(f);
}

static void put(struct message *m, const void *data, size_t len)
{
    if (m->len + len > sizeof(m->data)) {
        errx(1, "a request of the trace is too long");
    }
    memcpy(m->data + m->len, data, len);
    m->len += len;
}

static void put_key(struct message *m, const struct client *c,
                    const char *pattern)
{
    char key[KEY_BYTES * 2];
    uint64_t len = 0;

    for (const char *p = pattern; *p && len + 12 < sizeof(key); p++) {
        if (p[0] == '%' && (p[1] == 'r' || p[1] == 'p')) {
            len += (uint64_t)snprintf(key + len, sizeof(key) - len, "%d",
                                      p[1] == 'r' ? c->rank : c->peer);
            p++;
        } else {
            key[len++] = *p;
        }
    }
    put(m, &len, sizeof(len));
    put(m, key, len);
}

static void put_request(struct message *m, const struct client *c,
                        const struct op *op)
{
    static const char value[VALUE_BYTES];
    const uint64_t one = 1;
    uint64_t len = op->value;

    put(m, &(char){(char)op->command}, 1);
    if (op->command == WAIT) {
        put(m, &one, sizeof(one));
    }
    put_key(m, c, op->key);
    if (op->command == ADD) {
        put(m, &one, sizeof(one));
    } else if (op->command == SET) {
        put(m, &len, sizeof(len));
        put(m, value, len);
    }
}

static void send_all(const struct client *c, const struct message *m)
{
    if (send(c->fd, m->data, m->len, MSG_NOSIGNAL) != (ssize_t)m->len) {
        err(1, "send");
    }
}

/* The next request that has an answer, with those before it: false at the end. */
static bool ask(struct client *c, const struct trace *t, long *n_requests)
{
    struct message m = {0};

    while (c->at < t->n_ops) {
        const struct op *op = &t->ops[c->at];

        if (op->command == EACH) {
            c->peer = 0;
            c->each = c->at++;
            continue;
        }
        if (op->command == END) {
            c->at = ++c->peer < t->n_ranks ? c->each + 1 : c->at + 1;
            continue;
        }
        put_request(&m, c, op);
        ++*n_requests;
        c->at++;
        if (op->command != SET) {
            c->command = op->command;
            c->got = 0;
            c->wanted = op->command == WAIT ? 1 : 8;
            send_all(c, &m);
            return true;
        }
    }
    if (m.len) {
        send_all(c, &m);
    }
    c->command = -1;
    return false;
}

/* True when the answer is whole. */
static bool take(struct client *c)
{
    char data[VALUE_BYTES + 8];
    ssize_t n = recv(c->fd, data, sizeof(data), 0);
    uint64_t len;

    if (n <= 0) {
        err(1, "rank %d: no answer to its command %d", c->rank, c->command);
    }
    for (ssize_t i = 0; i < n && c->got + (size_t)i < sizeof(c->head); i++) {
        c->head[c->got + (size_t)i] = data[i];
    }
    c->got += (size_t)n;
    if (c->command == GET && c->got >= 8 && c->wanted == 8) {
        memcpy(&len, c->head, sizeof(len));
        c->wanted = 8 + len;
    }
    if (c->got > c->wanted || (c->command == WAIT && c->head[0] != 0)) {
        errx(1, "rank %d: a wrong answer to its command %d", c->rank,
             c->command);
    }
    return c->got == c->wanted;
}

static int dial(const char *host, const char *port)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM};
    const uint32_t magic = MAGIC;
    struct message m = {0};
    struct addrinfo *at;
    struct client c;
    int one = 1;

    if (getaddrinfo(host, port, &hints, &at) != 0) {
        errx(1, "no such address: %s %s", host, port);
    }
    c.fd = socket(at->ai_family, SOCK_STREAM, 0);
    if (c.fd < 0 || connect(c.fd, at->ai_addr, at->ai_addrlen) < 0) {
        err(1, "%s port %s", host, port);
    }
    freeaddrinfo(at);
    setsockopt(c.fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    put(&m, &(char){VALIDATE}, 1);
    put(&m, &magic, sizeof(magic));
    send_all(&c, &m);
    return c.fd;
}

static double now_ms(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void run(struct client *clients, const struct trace *t, int epoll)
{
    struct epoll_event events[256];
    double begin = now_ms();
    long n_requests = 0;
    int left = 0;

    for (int i = 0; i < t->n_ranks; i++) {
        left += ask(&clients[i], t, &n_requests);
    }
    while (left > 0) {
        int n = epoll_wait(epoll, events, 256, 120 * 1000);

        if (n <= 0) {
            errx(1, "no answer in 120 s");
        }
        for (int i = 0; i < n; i++) {
            struct client *c = events[i].data.ptr;

            if (take(c)) {
                left -= !ask(c, t, &n_requests);
            }
        }
    }
    printf("%ld %.1f\n", n_requests, now_ms() - begin);
}

int main(int argc, char **argv)
{
    static struct trace t;
    struct client *clients;
    int epoll = epoll_create1(0);

    if (argc < 4 || epoll < 0) {
        errx(2, "usage: store_replay TRACE HOST PORT...");
    }
    read_trace(argv[1], &t);
    clients = calloc((size_t)t.n_ranks, sizeof(*clients));
    if (!clients || t.n_ranks <= 0) {
        errx(1, "no ranks");
    }
    for (int i = 0; i < t.n_ranks; i++) {
        struct epoll_event event = {.events = EPOLLIN,
                                    .data.ptr = &clients[i]};

        clients[i].rank = i;
        clients[i].fd = dial(argv[2], argv[3 + i * (argc - 3) / t.n_ranks]);
        if (epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &event) < 0) {
            err(1, "epoll");
        }
    }
    run(clients, &t, epoll);
    return 0;
}
