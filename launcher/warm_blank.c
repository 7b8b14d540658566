/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Blanks are forked when there is time, not when one is needed. Until it has
 * told its pid a blank is nobody's to us: should it not come so far, its socket
 * ends. It stays in the session of the interpreter until we know it, because an
 * orphan in a session of its own would be taken for something that a worker has
 * left behind.
 */
#include <config.h>

#include "launcher/warm_priv.h"

#include "base/cleanup.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void on_nobody(void *arg, const struct child_exit *how)
{
    (void)arg;
    (void)how;
}

static void forget(struct blank *b)
{
    struct blank **at = &b->warm->blanks;

    while (*at != b) {
        at = &(*at)->next;
    }
    *at = b->next;
    warm_line_close(b->line);
    free(b);
}

static void drop(struct blank *b)
{
    struct child_table *children = b->warm->config.children;

    if (b->pid > 0) {
        child_hand_over(children, b->pid, on_nobody, NULL);
        child_kill(children, b->pid, SIGKILL);
    }
    forget(b);
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct blank *b = arg;

    (void)how;
    b->pid = -1;
    forget(b);
}

static int take_birth(struct blank *b, const struct seqsock_msg *m)
{
    uint64_t pid;

    if (b->pid > 0 || str_to_u64(buf_str(&m->data), &pid) < 0 ||
        pid > INT32_MAX ||
        child_adopt(b->warm->config.children, (pid_t)pid, on_exit_, b,
                    NULL) < 0) {
        return -EINVAL;
    }
    b->pid = (pid_t)pid;
    return warm_line_send(b->line, WARM_ADOPTED, NULL, NULL, 0);
}

static void boast(struct warm *w)
{
    char text[sizeof(w->boast)];

    if (w->boast[0] && warm_waiting(w) >= w->n_wanted) {
        str_copy(text, sizeof(text), w->boast);
        w->boast[0] = '\0';
        w->config.on_told(w->config.arg, text, false); /* may destroy it */
    }
}

static void on_message(void *arg, const struct seqsock_msg *m)
{
    struct blank *b = arg;

    if (m && m->type == WARM_WAITING && b->pid > 0) {
        b->waits = true;
        boast(b->warm);
    } else if (!m || m->type != WARM_BORN || take_birth(b, m) < 0) {
        drop(b);
    }
}

static int order_one(struct warm *w)
{
    struct blank *b = calloc(1, sizeof(*b));
    _close_ int fd = -1;
    int rc;

    if (!b) {
        return -ENOMEM;
    }
    rc = warm_line_open(w, on_message, b, &b->line, &fd, NULL);
    if (rc < 0) {
        free(b);
        return rc;
    }
    b->warm = w;
    b->pid = -1;
    b->next = w->blanks;
    w->blanks = b;
    rc = warm_line_send(w->line, WARM_FORK, NULL, &fd, 1);
    if (rc < 0) {
        drop(b);
    }
    return rc;
}

void warm_order(struct warm *w)
{
    unsigned n = 0;

    for (struct blank *b = w->blanks, *next; b; b = next) {
        next = b->next;
        if (++n > w->n_wanted) {
            drop(b);
        }
    }
    while (w->state == WARM_IS_READY && n++ < w->n_wanted &&
           order_one(w) == 0) {
    }
}

void warm_drop_all(struct warm *w)
{
    while (w->blanks) {
        drop(w->blanks);
    }
}

unsigned warm_waiting(const struct warm *w)
{
    unsigned n = 0;

    for (const struct blank *b = w->blanks; b; b = b->next) {
        n += b->waits;
    }
    return n;
}

static void put_field(struct buf *to, const char *text)
{
    buf_append(to, text, strlen(text) + 1);
}

static int describe(const struct warm *w, const struct warm_job *job,
                    struct error *e)
{
    size_t skipped = w->past.argv.n - w->past.n_args, n = 0;
    _buf_ struct buf b = {0};
    char *const *args;

    while (n < skipped && job->argv[n]) {
        n++;
    }
    args = job->argv + n;
    for (n = 0; args[n]; n++) {
    }
    buf_printf(&b, "%u", (unsigned)job->id);
    buf_putc(&b, '\0');
    put_field(&b, job->cwd ? job->cwd : "");
    buf_printf(&b, "%zu", n);
    buf_putc(&b, '\0');
    for (size_t i = 0; i < n; i++) {
        put_field(&b, args[i]);
    }
    for (size_t i = 0; job->envp[i]; i++) {
        put_field(&b, job->envp[i]);
    }
    return b.failed ? error_set(e, ENOMEM, "describe a worker")
                    : seqsock_blob(b.data, b.len, e);
}

static struct blank *find_waiting(const struct warm *w)
{
    struct blank *b = w->blanks;

    while (b && !b->waits) {
        b = b->next;
    }
    return b;
}

int warm_start(struct warm *w, const struct warm_job *job,
               child_exit_f *on_exit, void *arg, pid_t *ret_pid,
               struct error *e)
{
    const int fds[] = {job->out_fd, job->err_fd, job->status_fd, job->gate_fd};
    _close_ int blob = -1;
    struct blank *b = find_waiting(w);

    if (!b) {
        return error_text(e, EAGAIN, "no process of a warm interpreter waits");
    }
    blob = describe(w, job, e);
    if (blob < 0) {
        return blob;
    }
    while (warm_line_send(b->line, WARM_JOB, NULL, &blob, 1) < 0 ||
           warm_line_send(b->line, WARM_GO, NULL, fds, ARRAY_SIZE(fds)) < 0) {
        drop(b);
        b = find_waiting(w);
        if (!b) {
            return error_text(e, EAGAIN, "no process of a warm interpreter "
                              "waits");
        }
    }
    *ret_pid = b->pid;
    child_hand_over(w->config.children, b->pid, on_exit, arg);
    forget(b);
    return 0;
}
