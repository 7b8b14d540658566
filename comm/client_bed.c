/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/client_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

uint64_t __wrap_clock_mono_ms(void);
int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms);

uint64_t __wrap_clock_mono_ms(void)
{
    return client_bed_world.now_ms;
}

int __wrap_poll(struct pollfd *p, nfds_t n, int timeout_ms)
{
    struct client_bed *a = client_bed_world.agent;
    const struct turn *t;

    if (n != 1 || a->n_waited == CLIENT_BED_TURNS || a->n_turns == 0) {
        bail_out("a wait that nobody has thought of: %d ms", timeout_ms);
    }
    a->waited[a->n_waited] = timeout_ms;
    a->events[a->n_waited++] = p->events;
    t = a->turns++;
    a->n_turns--;
    client_bed_world.now_ms += t->rc == 0 ? (unsigned)timeout_ms : t->ms;
    if (t->act) {
        t->act(a);
    }
    errno = EINTR;
    return t->rc;
}

/* --- what the agent does --- */

void client_bed_say_with(struct client_bed *a, const struct worker_msg *m,
                         const int *fds, size_t n_fds)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {0};
    _buf_ struct buf b = {0};
    struct iovec iov;
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    worker_msg_encode(&b, m);
    iov = (struct iovec){.iov_base = b.data, .iov_len = b.len};
    if (n_fds > 0) {
        struct cmsghdr *h;

        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        memcpy(CMSG_DATA(h), fds, n_fds * sizeof(int));
    }
    if (sendmsg(a->fd, &msg, MSG_NOSIGNAL) != (ssize_t)b.len) {
        bail_out("the agent cannot answer");
    }
}

void client_bed_say(struct client_bed *a, const struct worker_msg *m)
{
    client_bed_say_with(a, m, NULL, 0);
}

void client_bed_accept(struct client_bed *a)
{
    a->fd = accept4(a->listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
}

static void welcome(struct client_bed *a)
{
    struct worker_msg m = {.type = WORKER_WELCOME};

    client_bed_accept(a);
    m.welcome = (struct worker_welcome){.version = WORKER_PROTO_VERSION, .world = 1,
                                        .local_world = 1, .n_nodes = 1,
                                        .generation = 7};
    client_bed_say(a, &m);
}

/* In the first part there is less than a length. */
void client_bed_say_part(struct client_bed *a, bool is_first)
{
    struct worker_msg m = {.type = WORKER_COMM};
    _buf_ struct buf b = {0};
    size_t from = is_first ? 0 : 3, n;

    str_copy(m.comm.why, sizeof(m.comm.why), "in parts");
    worker_msg_encode(&b, &m);
    n = is_first ? 3 : b.len - 3;
    if (send(a->fd, b.data + from, n, MSG_NOSIGNAL) != (ssize_t)n) {
        bail_out("the agent cannot answer");
    }
}

void client_bed_hear(struct client_bed *a)
{
    for (;;) {
        char *to = buf_reserve(&a->in, 65536);
        ssize_t n = to ? recv(a->fd, to, 65536, 0) : -1;

        if (n <= 0) {
            return;
        }
        a->in.len += (size_t)n;
    }
}

/* --- the bed --- */

void client_bed_open(struct client_bed *a)
{
    *a = (struct client_bed){.fd = -1};
    a->listener = agent_bed_open(&a->place);
    client_bed_world.agent = a;
    client_bed_world.now_ms = 1000000;
}

void client_bed_close(struct client_bed *a, struct client *c)
{
    client_destroy(c);
    close_fd(&a->fd);
    close_fd(&a->listener);
    buf_release(&a->in);
    agent_bed_remove(&a->place);
}

static void keep_hello(struct client_bed *a)
{
    struct worker_msg m;

    if (worker_msg_decode(a->in.data, a->in.len, &m, NULL) < 0 ||
        m.type != WORKER_HELLO) {
        bail_out("no hello");
    }
    a->hello = m.hello;
    buf_clear(&a->in);
}

struct client *client_bed_connect(struct client_bed *a)
{
    struct client *c = NULL;
    struct error e = {0};

    client_bed_open(a);
    {
        plan_turns(a, {.rc = 1, .act = welcome});
        if (client_connect(a->place.path, &c, &e) < 0) {
            bail_out("no client: %s", e.text);
        }
    }
    client_bed_hear(a);
    keep_hello(a);
    return c;
}

void client_bed_fill(struct client *c)
{
    struct worker_report r = {.step = 1, .n_metrics = 1, .metrics = {{.name = "loss"}}};
    struct error e = {0};
    int room = 4096;

    setsockopt(client_fd(c), SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    for (int i = 0; i < CLIENT_BED_REPORTS; i++) {
        if (client_report(c, &r, &e) < 0) {
            bail_out("no report: %s", e.text);
        }
    }
}

void client_bed_check_waits(const struct client_bed *a, short events, int n,
                            const int *want)
{
    is_int((intmax_t)a->n_waited, n, "waits %d times", n);
    for (int i = 0; i < n; i++) {
        ok(a->waited[i] == want[i] && a->events[i] == events,
           "the time that is left: %d ms", a->waited[i]);
    }
}
