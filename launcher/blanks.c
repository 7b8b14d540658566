/* SPDX-License-Identifier: Apache-2.0 */
/*
 * They are not started with a lower priority, although that is when there is time: a
 * process may not take that back. They come one at a time instead, with pauses.
 *
 * A blank may have been stopped, or be out of memory that hangs: so it has to say that
 * it has understood. Until then it cannot pass the gate, which is still closed, and
 * another process can have its place.
 */
#include <config.h>

#include "launcher/blanks.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/seqsock.h"
#include "base/wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum {
    FIRST_MS = 200, /* workers have their own start behind them, if it was short */
    PACE_MS = 10,
    SETTLE_MS = 250,
};

struct blank {
    struct blank *next;
    struct blanks *of;
    pid_t pid;
    int fd;
    void *arg; /* of the worker that it was told to be */
};

struct blanks {
    uv_loop_t *loop;
    struct child_table *children;
    char *exec_path;
    struct strlist env;
    unsigned first_ms, pace_ms;
    uv_timer_t timer;
    unsigned n_wanted, n_waiting;
    struct blank *waiting;
    struct blank *told; /* that have not been settled */
};

static void blank_free(struct blank *k)
{
    close_fd(&k->fd);
    free(k);
}

static void on_nobody(void *arg, const struct child_exit *how)
{
    (void)arg;
    (void)how;
}

static void drop(struct blank *k)
{
    child_hand_over(k->of->children, k->pid, on_nobody, NULL);
    child_kill(k->of->children, k->pid, SIGKILL);
    blank_free(k);
}

static struct blank *take_waiting(struct blanks *b)
{
    struct blank *k = b->waiting;

    if (k) {
        b->waiting = k->next;
        b->n_waiting--;
    }
    return k;
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct blank *k = arg, **at = &k->of->waiting;

    (void)how;
    while (*at != k) {
        at = &(*at)->next;
    }
    *at = k->next;
    k->of->n_waiting--;
    blank_free(k);
}

/* --- getting them ready --- */

static int spawn(struct blanks *b, int fd, struct blank *k)
{
    _strlist_ struct strlist argv = {0};
    struct child_spec child = {
        .path = b->exec_path, .envp = b->env.items, .stdio = {-1, -1, -1},
        .pass = &fd, .n_pass = 1, .new_session = true,
    };

    exec_wait_argv(&argv, fd);
    if (argv.failed) {
        return -ENOMEM;
    }
    child.argv = argv.items;
    return child_spawn(b->children, &child, on_exit_, k, &k->pid, NULL);
}

static int add_one(struct blanks *b)
{
    struct blank *k = calloc(1, sizeof(*k));
    int pair[2], rc;

    if (!k) {
        return -ENOMEM;
    }
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        rc = -errno;
        free(k);
        return rc;
    }
    fcntl(pair[0], F_SETFL, O_NONBLOCK);
    k->of = b;
    k->fd = pair[0];
    rc = spawn(b, pair[1], k);
    close(pair[1]);
    if (rc < 0) {
        blank_free(k);
        return rc;
    }
    k->next = b->waiting;
    b->waiting = k;
    b->n_waiting++;
    return 0;
}

static void on_time(uv_timer_t *t)
{
    struct blanks *b = t->data;

    /* Where it cannot be, as at a limit of processes, it cannot be for now. */
    if (b->n_waiting < b->n_wanted && add_one(b) == 0 &&
        b->n_waiting < b->n_wanted) {
        uv_timer_start(t, on_time, b->pace_ms, 0);
    }
}

void blanks_fill(struct blanks *b, unsigned n)
{
    b->n_wanted = n < BLANKS_MAX ? n : BLANKS_MAX;
    while (b->n_waiting > b->n_wanted) {
        drop(take_waiting(b));
    }
    if (b->n_waiting < b->n_wanted) {
        uv_timer_start(&b->timer, on_time, b->first_ms, 0);
    } else {
        uv_timer_stop(&b->timer);
    }
}

void blanks_rest(struct blanks *b)
{
    uv_timer_stop(&b->timer);
}

unsigned blanks_waiting(const struct blanks *b)
{
    return b->n_waiting;
}

/* --- life --- */

static void on_closed(uv_handle_t *h)
{
    struct blanks *b = h->data;

    strlist_release(&b->env);
    free(b->exec_path);
    free(b);
}

int blanks_create(const struct blanks_config *config, struct blanks **ret,
                  struct error *e)
{
    struct blanks *b = calloc(1, sizeof(*b));

    if (!b) {
        return error_set(e, ENOMEM, "start processes ahead");
    }
    b->children = config->children;
    b->first_ms = config->first_ms ? config->first_ms : FIRST_MS;
    b->pace_ms = config->pace_ms ? config->pace_ms : PACE_MS;
    b->exec_path = strdup(config->exec_path);
    strlist_add_all(&b->env, config->envp);
    uv_timer_init(config->loop, &b->timer);
    uv_unref((uv_handle_t *)&b->timer);
    b->timer.data = b;
    if (!b->exec_path || b->env.failed) {
        blanks_destroy(b);
        return error_set(e, ENOMEM, "start processes ahead");
    }
    *ret = b;
    return 0;
}

void blanks_destroy(struct blanks *b)
{
    if (!b) {
        return;
    }
    while (b->waiting) {
        drop(take_waiting(b));
    }
    uv_close((uv_handle_t *)&b->timer, on_closed);
}

/* --- what they are to be --- */

static void put_all(struct buf *to, char *const *words)
{
    for (; *words; words++) {
        buf_append(to, *words, strlen(*words) + 1);
    }
}

static int describe(const struct blank_job *job, struct error *e)
{
    struct exec_options o = *job->o;
    _strlist_ struct strlist argv = {0};
    _buf_ struct buf said = {0};

    o.status_fd = o.gate_fd = -1; /* have other numbers there */
    exec_argv(&argv, &o, job->argv);
    if (argv.failed) {
        return error_set(e, ENOMEM, "describe a worker");
    }
    wire_put_u32(&said, (uint32_t)argv.n);
    put_all(&said, argv.items);
    put_all(&said, job->envp);
    if (said.failed || said.len > EXEC_ROLE_MAX) {
        return error_set(e, ENOMEM, "describe a worker");
    }
    return seqsock_blob(said.data, said.len, e);
}

int blanks_start(struct blanks *b, const struct blank_job *job,
                 child_exit_f *on_exit, void *arg, pid_t *ret_pid,
                 struct error *e)
{
    int fds[EXEC_ROLE_N_FDS] = {
        [EXEC_ROLE_OUT] = job->out_fd, [EXEC_ROLE_ERR] = job->err_fd,
        [EXEC_ROLE_STATUS] = job->o->status_fd,
        [EXEC_ROLE_GATE] = job->o->gate_fd,
    };
    _close_ int blob = -1;
    struct blank *k;

    blanks_rest(b);
    blob = b->waiting ? describe(job, e) : -EAGAIN;
    if (blob < 0) {
        return b->waiting ? blob
                          : error_text(e, EAGAIN, "no process was started ahead");
    }
    fds[EXEC_ROLE_BLOB] = blob;
    while ((k = take_waiting(b))) {
        if (seqsock_send(k->fd, EXEC_ROLE, NULL, fds, EXEC_ROLE_N_FDS) == 0) {
            break;
        }
        drop(k); /* it has ended, which we have not heard of yet */
    }
    if (!k) {
        return error_text(e, EAGAIN, "no process was started ahead");
    }
    k->arg = arg;
    k->next = b->told;
    b->told = k;
    child_hand_over(b->children, k->pid, on_exit, arg);
    *ret_pid = k->pid;
    return 0;
}

/* Whether it says so before the time is over. */
static bool has_understood(const struct blank *k, uint64_t until_ms)
{
    struct pollfd p = {.fd = k->fd, .events = POLLIN};
    _seqsock_msg_ struct seqsock_msg m;
    int rc;

    do {
        uint64_t now = clock_mono_ms();

        rc = poll(&p, 1, now < until_ms ? (int)(until_ms - now) : 0);
    } while (rc < 0 && errno == EINTR);
    seqsock_msg_init(&m);
    return rc > 0 && seqsock_recv(k->fd, &m) > 0 && m.type == EXEC_ROLE_TAKEN;
}

unsigned blanks_settle(struct blanks *b, void *ret_lost[BLANKS_MAX])
{
    uint64_t until_ms = clock_mono_ms() + SETTLE_MS;
    unsigned n = 0;

    while (b->told) {
        struct blank *k = b->told;

        b->told = k->next;
        if (has_understood(k, until_ms)) {
            blank_free(k);
        } else {
            ret_lost[n++] = k->arg;
            drop(k);
        }
    }
    return n;
}
