/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/fanout.h"

#include "base/child.h"
#include "base/cleanup.h"
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_AT_ONCE = 64, MAX_ANSWER_BYTES = 1 << 20 };

struct target {
    struct running *all;
    struct fanout_task *task;
    pid_t pid;
    uv_pipe_t out;
    bool started, ended, closed;
};

struct running {
    const struct fanout *config;
    uv_loop_t loop;
    uv_timer_t deadline;
    struct child_table *children;
    struct target *targets;
    size_t n, n_done, next;
};

static void start_more(struct running *p);

static void finish_target(struct target *t)
{
    if (t->ended && t->closed) {
        t->all->n_done++;
        start_more(t->all);
    }
}

static void on_closed(uv_handle_t *h)
{
    struct target *t = h->data;

    t->closed = true;
    finish_target(t);
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *b)
{
    const struct target *t = h->data;
    struct buf *to = &t->task->answer;

    (void)size;
    b->base = to->len < MAX_ANSWER_BYTES ? buf_reserve(to, 4096) : NULL;
    b->len = b->base ? 4096 : 0;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct target *t = s->data;

    (void)b;
    if (n > 0) {
        t->task->answer.len += (size_t)n;
        t->task->answer.data[t->task->answer.len] = '\0';
    } else if (n < 0 && !uv_is_closing((uv_handle_t *)s)) {
        uv_close((uv_handle_t *)s, on_closed);
    }
}

/* What it has written is in the pipe by now. Its end may never come: a
 * connection that ssh keeps for later can hold the other side open. */
static void drain(struct target *t)
{
    uv_os_fd_t fd;

    if (uv_is_closing((uv_handle_t *)&t->out) ||
        uv_fileno((uv_handle_t *)&t->out, &fd) < 0) {
        return;
    }
    while (t->task->answer.len < MAX_ANSWER_BYTES) {
        char *to = buf_reserve(&t->task->answer, 4096);
        ssize_t n = to ? read(fd, to, 4096) : 0;

        if (n <= 0) {
            break;
        }
        t->task->answer.len += (size_t)n;
        t->task->answer.data[t->task->answer.len] = '\0';
    }
    uv_close((uv_handle_t *)&t->out, on_closed);
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct target *t = arg;

    t->ended = true;
    t->task->status = child_shell_status(how);
    drain(t);
    finish_target(t);
}

/* The input comes from a file in memory: it is small, and nobody has to write
 * while the other side reads. */
static int input_fd(const struct running *p)
{
    const struct buf *in = p->config->input;
    int fd = memfd_create("muster-input", MFD_CLOEXEC);

    if (fd >= 0 && (fs_write_all(fd, in->data, in->len) < 0 ||
                    lseek(fd, 0, SEEK_SET) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int start_command(struct target *t, int out_fd, struct error *e)
{
    _close_ int in = input_fd(t->all);
    char *const *argv = t->task->argv.items;
    char path[PATH_MAX];
    struct child_spec spec = {.path = path, .argv = argv,
                              .envp = t->all->config->env,
                              .stdio = {in, out_fd, out_fd},
                              .new_session = true};
    int rc;

    if (in < 0) {
        return error_set(e, errno, "make a memory file");
    }
    rc = fs_which(argv[0], getenv("PATH"), path, sizeof(path));
    if (rc < 0) {
        return error_set(e, -rc, "find %s", argv[0]);
    }
    return child_spawn(t->all->children, &spec, on_exit_, t, &t->pid, e);
}

static void start_target(struct target *t)
{
    struct error e = {0};
    int ends[2];

    t->started = true;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set(&e, errno, "make a pipe");
        str_copy(t->task->problem, sizeof(t->task->problem), e.text);
        t->all->n_done++;
        return;
    }
    uv_pipe_init(&t->all->loop, &t->out, 0);
    t->out.data = t;
    uv_pipe_open(&t->out, ends[0]);
    if (start_command(t, ends[1], &e) < 0) {
        str_copy(t->task->problem, sizeof(t->task->problem), e.text);
        t->ended = true;
        uv_close((uv_handle_t *)&t->out, on_closed);
    } else {
        uv_read_start((uv_stream_t *)&t->out, on_alloc, on_read);
    }
    close(ends[1]);
}

static void start_more(struct running *p)
{
    while (p->next < p->n && p->next - p->n_done < MAX_AT_ONCE) {
        start_target(&p->targets[p->next++]);
    }
    if (p->n_done == p->n) {
        uv_stop(&p->loop);
    }
}

static void on_deadline(uv_timer_t *timer)
{
    struct running *p = timer->data;

    for (size_t i = 0; i < p->n; i++) {
        struct target *t = &p->targets[i];

        if (t->started && !t->ended && t->pid > 0) {
            snprintf(t->task->problem, sizeof(t->task->problem),
                     "no answer within %u s", p->config->timeout_ms / 1000);
            child_kill_group(p->children, t->pid, SIGKILL);
        } else if (!t->started) {
            str_copy(t->task->problem, sizeof(t->task->problem),
                     "not tried: others took too long");
        }
    }
    p->n = p->next; /* those not started are not waited for */
}

/* --- life --- */

static void wait_for_all(struct running *p)
{
    uv_timer_init(&p->loop, &p->deadline);
    p->deadline.data = p;
    uv_timer_start(&p->deadline, on_deadline, p->config->timeout_ms, 0);
    start_more(p);
    if (p->n_done < p->n) {
        uv_run(&p->loop, UV_RUN_DEFAULT);
    }
    uv_close((uv_handle_t *)&p->deadline, NULL);
}

int fanout_run(const struct fanout *f, struct error *e)
{
    struct running p = {.config = f, .n = f->n};
    int rc;

    if (f->n == 0) {
        return 0;
    }
    p.targets = calloc(f->n, sizeof(*p.targets));
    uv_loop_init(&p.loop);
    rc = p.targets ? child_table_create(&p.loop, &p.children, e)
                   : error_set(e, ENOMEM, "run commands");
    for (size_t i = 0; rc == 0 && i < f->n; i++) {
        p.targets[i].all = &p;
        p.targets[i].task = &f->tasks[i];
        if (f->tasks[i].argv.failed) {
            rc = error_set(e, ENOMEM, "run commands");
        }
    }
    if (rc == 0) {
        wait_for_all(&p);
    }
    child_table_destroy(p.children);
    uv_run(&p.loop, UV_RUN_DEFAULT);
    uv_loop_close(&p.loop);
    free(p.targets);
    return rc;
}

void fanout_task_release(struct fanout_task *t)
{
    strlist_release(&t->argv);
    buf_release(&t->answer);
}

/* --- answers --- */

json_t *fanout_next(const struct fanout_task *t, size_t *at)
{
    const char *text = buf_str(&t->answer);

    while (text[*at]) {
        const char *line = text + *at;
        size_t len = strcspn(line, "\n");
        json_t *o = *line == '{' ? json_loadb(line, len, 0, NULL) : NULL;

        *at += len + (line[len] == '\n');
        if (o) {
            return o;
        }
    }
    return NULL;
}

json_t *fanout_answer(const struct fanout_task *t)
{
    json_t *found = NULL, *o;
    size_t at = 0;

    while ((o = fanout_next(t, &at))) {
        json_decref(found);
        found = o;
    }
    return found;
}

void fanout_last_line(const struct fanout_task *t, char *to, size_t size)
{
    const char *text = buf_str(&t->answer);
    size_t len = t->answer.len, from;

    while (len && strchr("\r\n ", text[len - 1])) {
        len--;
    }
    from = len;
    while (from && text[from - 1] != '\n') {
        from--;
    }
    snprintf(to, size, "%.*s", (int)(len - from), text + from);
}
