/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Load for a server of PyTorch's TCPStore protocol, for scripts/bench: many
 * clients, each with one request under way, in rounds of
 *
 *   SET of a key of its own, GET of that, ADD to a number that all share, WAIT
 *   for the key of the next client's same round.
 *
 *   store_load HOST PORT SERVER_PID CLIENTS ROUNDS
 *
 * prints a line: operations a second, the server's processor time for each in
 * microseconds, and the 99th percentile of the time until an answer in
 * microseconds. Every answer is checked. A tenth as many rounds before warm up.
 * In the end it deletes its keys, so that the next load finds the server alike.
 */
#include <config.h>

#include <dirent.h>
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

enum { VALIDATE, SET, GET = 3, ADD, WAIT = 6, DELETE_KEY = 8, PING = 13 };
enum { VALUE_BYTES = 64, PER_ROUND = 4, ANSWERS = 3, MAGIC = 0x3c85f7ce };

struct client {
    int fd;
    int id;
    int round;
    int command;        /* the one that is under way */
    uint64_t sent_ns;
    size_t got, wanted; /* bytes of its answer */
    char answer[8 + VALUE_BYTES];
};

struct load {
    int n_clients, n_done;
    int end;      /* of rounds */
    bool forgets; /* deletes the keys of all rounds, the last one first */
    double *latency_us;
    size_t n_latencies;
};

struct message {
    size_t len;
    char data[256];
};

static uint64_t now_ns(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Of all threads of a process. */
static double cpu_us(const char *pid)
{
    char path[600];
    unsigned long long ns, sum = 0;
    struct dirent *d;
    DIR *dir;

    snprintf(path, sizeof(path), "/proc/%s/task", pid);
    dir = opendir(path);
    if (!dir) {
        err(1, "%s", path);
    }
    while ((d = readdir(dir))) {
        FILE *f;

        snprintf(path, sizeof(path), "/proc/%s/task/%s/schedstat", pid,
                 d->d_name);
        f = d->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (f && fscanf(f, "%llu", &ns) == 1) {
            sum += ns;
        }
        if (f) {
            fclose(f);
        }
    }
    closedir(dir);
    return (double)sum / 1000;
}

static void put(struct message *m, const void *data, size_t len)
{
    memcpy(m->data + m->len, data, len);
    m->len += len;
}

static void put_text(struct message *m, const char *text, size_t len)
{
    uint64_t n = len;

    put(m, &n, sizeof(n));
    put(m, text, len);
}

static void put_key(struct message *m, int id, int round)
{
    char key[64];
    int n = snprintf(key, sizeof(key), "bench/client/%d/%d", id, round);

    put_text(m, key, (size_t)n);
}

static void make_value(const struct client *c, char value[VALUE_BYTES])
{
    memset(value, 'a' + c->id % 26, VALUE_BYTES);
    memcpy(value, &c->round, sizeof(c->round));
}

static void send_all(const struct client *c, const struct message *m)
{
    if (send(c->fd, m->data, m->len, MSG_NOSIGNAL) != (ssize_t)m->len) {
        err(1, "send to the store");
    }
}

/* Sends a command; the answer has so many bytes. */
static void ask(const struct load *l, struct client *c, int command,
                size_t wanted)
{
    struct message m = {.len = 1, .data = {(char)command}};
    char value[VALUE_BYTES];
    int64_t one = 1;

    if (command == SET) {
        put_key(&m, c->id, c->round);
        make_value(c, value);
        put_text(&m, value, sizeof(value));
    } else if (command == GET || command == DELETE_KEY) {
        put_key(&m, c->id, c->round);
    } else if (command == ADD) {
        put_text(&m, "bench/sum", 9);
        put(&m, &one, sizeof(one));
    } else {
        put(&m, &one, sizeof(one));
        put_key(&m, (c->id + 1) % l->n_clients, c->round);
    }
    c->command = command;
    c->wanted = wanted;
    c->got = 0;
    c->sent_ns = now_ns();
    send_all(c, &m);
}

static void begin_round(struct load *l, struct client *c)
{
    if (l->forgets && c->round-- > 0) {
        ask(l, c, DELETE_KEY, 8);
    } else if (!l->forgets && c->round < l->end) {
        ask(l, c, SET, 0);
        ask(l, c, GET, 8 + VALUE_BYTES);
    } else {
        l->n_done++;
    }
}

static void check(const struct client *c)
{
    char value[VALUE_BYTES];
    int64_t n = 0;

    memcpy(&n, c->answer, c->wanted < sizeof(n) ? c->wanted : sizeof(n));
    make_value(c, value);
    if ((c->command == GET &&
         (n != VALUE_BYTES || memcmp(c->answer + 8, value, VALUE_BYTES) != 0)) ||
        (c->command == ADD && n <= c->round) ||
        (c->command == DELETE_KEY && n != 1) ||
        (c->command == WAIT && n != 0)) {
        errx(1, "a wrong answer to command %d of client %d, round %d",
             c->command, c->id, c->round);
    }
}

/* The answer is there: the next command. */
static void next(struct load *l, struct client *c)
{
    check(c);
    if (!l->forgets) {
        l->latency_us[l->n_latencies++] =
            (double)(now_ns() - c->sent_ns) / 1000;
    }
    if (c->command == GET) {
        ask(l, c, ADD, 8);
    } else if (c->command == ADD) {
        ask(l, c, WAIT, 1);
    } else {
        c->round += c->command == WAIT;
        begin_round(l, c);
    }
}

static void on_readable(struct load *l, struct client *c)
{
    ssize_t n = recv(c->fd, c->answer + c->got, c->wanted - c->got, 0);

    if (n <= 0) {
        errx(1, "the store has closed the connection of client %d", c->id);
    }
    c->got += (size_t)n;
    if (c->got == c->wanted) {
        next(l, c);
    }
}

static int dial(const char *host, const char *port)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    int rc = getaddrinfo(host, port, &hints, &found), fd = -1, yes = 1;

    if (rc) {
        errx(1, "%s: %s", host, gai_strerror(rc));
    }
    for (struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, SOCK_STREAM, 0);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) < 0) {
            close(fd);
            fd = -1;
        }
    }
    if (fd < 0) {
        err(1, "connect to %s port %s", host, port);
    }
    freeaddrinfo(found);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    return fd;
}

static void open_client(struct client *c, int id, const char *host,
                        const char *port)
{
    struct message m = {0};
    uint32_t magic = MAGIC, nonce = (uint32_t)getpid(), back;

    c->fd = dial(host, port);
    c->id = id;
    put(&m, &(char){VALIDATE}, 1);
    put(&m, &magic, sizeof(magic));
    put(&m, &(char){PING}, 1);
    put(&m, &nonce, sizeof(nonce));
    send_all(c, &m);
    if (recv(c->fd, &back, sizeof(back), MSG_WAITALL) != sizeof(back) ||
        back != nonce) {
        errx(1, "no TCPStore at %s port %s", host, port);
    }
}

static int compare(const void *a, const void *b)
{
    double d = *(const double *)a - *(const double *)b;

    return (d > 0) - (d < 0);
}

static void run(struct load *l, struct client *clients, int epoll)
{
    struct epoll_event events[64];

    l->n_done = 0;
    l->n_latencies = 0;
    for (int i = 0; i < l->n_clients; i++) {
        begin_round(l, &clients[i]);
    }
    while (l->n_done < l->n_clients) {
        int n = epoll_wait(epoll, events, 64, 60000);

        if (n <= 0) {
            errx(1, "the store has not answered for 60 s");
        }
        for (int i = 0; i < n; i++) {
            on_readable(l, events[i].data.ptr);
        }
    }
}

static struct client *open_clients(const struct load *l, char **argv, int epoll)
{
    struct client *clients = calloc((size_t)l->n_clients, sizeof(*clients));

    for (int i = 0; clients && i < l->n_clients; i++) {
        struct epoll_event e = {.events = EPOLLIN, .data.ptr = &clients[i]};

        open_client(&clients[i], i, argv[1], argv[2]);
        epoll_ctl(epoll, EPOLL_CTL_ADD, clients[i].fd, &e);
    }
    return clients;
}

int main(int argc, char **argv)
{
    struct load l = {0};
    struct client *clients;
    int epoll = epoll_create1(0), n_rounds;
    double cpu, n_ops;
    uint64_t start;

    if (argc != 6 || (l.n_clients = atoi(argv[4])) < 1 ||
        (n_rounds = atoi(argv[5])) < 1) {
        errx(2, "usage: store_load HOST PORT SERVER_PID CLIENTS ROUNDS");
    }
    clients = open_clients(&l, argv, epoll);
    l.latency_us = calloc((size_t)l.n_clients * (size_t)n_rounds * ANSWERS,
                          sizeof(double));
    if (!clients || !l.latency_us) {
        err(1, "no memory");
    }
    l.end = (n_rounds + 9) / 10;
    run(&l, clients, epoll);
    l.end += n_rounds;
    cpu = cpu_us(argv[3]);
    start = now_ns();
    run(&l, clients, epoll);
    start = now_ns() - start;
    cpu = cpu_us(argv[3]) - cpu;
    n_ops = (double)l.n_clients * n_rounds * PER_ROUND;
    qsort(l.latency_us, l.n_latencies, sizeof(double), compare);
    printf("%.1f %.4f %.1f\n", n_ops / ((double)start / 1e9), cpu / n_ops,
           l.latency_us[l.n_latencies * 99 / 100]);
    l.forgets = true;
    run(&l, clients, epoll);
    free(l.latency_us);
    free(clients);
    return 0;
}
