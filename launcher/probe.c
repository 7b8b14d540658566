/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/probe.h"

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/jsonw.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <limits.h>
#include <signal.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

extern char **environ;

enum {
    MAX_AT_ONCE = 64,
    MAX_ANSWER_BYTES = 16 * 1024,
    QUESTION_BYTES = 16 * 1024,
    MAX_NAMED = 8, /* bad hosts in one message */
};

struct target {
    struct probing *all;
    const struct host *host;
    pid_t pid;
    uv_pipe_t out;       /* stdout and stderr of ssh */
    struct buf answer;
    int status;          /* of ssh, once it has ended */
    bool started, ended, closed;
    char boot_id[64];
    char problem[512];   /* "" while all is well */
};

struct probing {
    const struct probe_config *config;
    uv_loop_t loop;
    uv_timer_t deadline;
    struct child_table *children;
    struct target *targets;
    size_t n, n_done, next;
    struct buf question;
    bool late;
};

static void start_more(struct probing *p);

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
    struct target *t = h->data;

    (void)size;
    b->base = t->answer.len < MAX_ANSWER_BYTES ? buf_reserve(&t->answer, 4096)
                                                : NULL;
    b->len = b->base ? 4096 : 0;
}

static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    struct target *t = s->data;

    (void)b;
    if (n > 0) {
        t->answer.len += (size_t)n;
        t->answer.data[t->answer.len] = '\0';
    } else if (n < 0 && !uv_is_closing((uv_handle_t *)s)) {
        uv_close((uv_handle_t *)s, on_closed);
    }
}

/* What ssh has written is in the pipe by now. Its end may never come: a
 * connection that ssh keeps for later can hold the other side open. */
static void drain(struct target *t)
{
    uv_os_fd_t fd;

    if (uv_is_closing((uv_handle_t *)&t->out) ||
        uv_fileno((uv_handle_t *)&t->out, &fd) < 0) {
        return;
    }
    while (t->answer.len < MAX_ANSWER_BYTES) {
        char *to = buf_reserve(&t->answer, 4096);
        ssize_t n = to ? read(fd, to, 4096) : 0;

        if (n <= 0) {
            break;
        }
        t->answer.len += (size_t)n;
        t->answer.data[t->answer.len] = '\0';
    }
    uv_close((uv_handle_t *)&t->out, on_closed);
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct target *t = arg;

    t->ended = true;
    t->status = child_shell_status(how);
    drain(t);
    finish_target(t);
}

/* The question goes to ssh's stdin from a file in memory: it is small, and
 * nobody has to write while the other side reads. */
static int question_fd(const struct probing *p)
{
    int fd = memfd_create("muster-probe", MFD_CLOEXEC);

    if (fd >= 0 && (fs_write_all(fd, p->question.data, p->question.len) < 0 ||
                    lseek(fd, 0, SEEK_SET) < 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static int start_ssh(struct target *t, int out_fd, struct error *e)
{
    const struct probe_config *c = t->all->config;
    _close_ int in = question_fd(t->all);
    _strlist_ struct strlist argv = {0};
    _free_ char *quoted = NULL;
    char muster[PATH_MAX], path[PATH_MAX];
    struct child_spec spec = {.path = path, .envp = environ,
                              .stdio = {in, out_fd, out_fd},
                              .new_session = true};
    int rc = in < 0 ? error_set(e, errno, "make a memory file")
                    : fs_program(muster, sizeof(muster), e);

    if (rc < 0) {
        return rc;
    }
    rc = fs_which(c->ssh[0], getenv("PATH"), path, sizeof(path));
    if (rc < 0) {
        return error_set(e, -rc, "find %s", c->ssh[0]);
    }
    /* ssh hands the words to the user's shell there: quote what we add. */
    quoted = str_shell_quote(muster);
    strlist_add_all(&argv, c->ssh);
    strlist_add(&argv, t->host->name);
    strlist_add(&argv, quoted ? quoted : muster);
    strlist_add(&argv, "probe");
    if (argv.failed) {
        return error_set(e, ENOMEM, "start ssh");
    }
    spec.argv = argv.items;
    return child_spawn(t->all->children, &spec, on_exit_, t, &t->pid, e);
}

static void start_target(struct target *t)
{
    struct error e = {0};
    int ends[2];

    t->started = true;
    if (pipe2(ends, O_CLOEXEC) < 0) {
        error_set(&e, errno, "make a pipe");
        str_copy(t->problem, sizeof(t->problem), e.text);
        t->all->n_done++;
        return;
    }
    uv_pipe_init(&t->all->loop, &t->out, 0);
    t->out.data = t;
    uv_pipe_open(&t->out, ends[0]);
    if (start_ssh(t, ends[1], &e) < 0) {
        str_copy(t->problem, sizeof(t->problem), e.text);
        t->ended = true;
        uv_close((uv_handle_t *)&t->out, on_closed);
    } else {
        uv_read_start((uv_stream_t *)&t->out, on_alloc, on_read);
    }
    close(ends[1]);
}

static void start_more(struct probing *p)
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
    struct probing *p = timer->data;

    p->late = true;
    for (size_t i = 0; i < p->n; i++) {
        struct target *t = &p->targets[i];

        if (t->started && !t->ended && t->pid > 0) {
            snprintf(t->problem, sizeof(t->problem), "no answer over ssh "
                     "within %u s", p->config->timeout_ms / 1000);
            child_kill_group(p->children, t->pid, SIGKILL);
        } else if (!t->started) {
            str_copy(t->problem, sizeof(t->problem), "not tried: others took "
                     "too long");
        }
    }
    p->n = p->next; /* those not started are not waited for */
}

/* --- judging --- */

/* The last line that is a JSON object: a login shell may chat before. */
static json_t *find_answer(const struct buf *b)
{
    const char *text = buf_str(b);
    const char *line = text;
    json_t *found = NULL;

    while (line && *line) {
        size_t len = strcspn(line, "\n");
        json_t *o = *line == '{' ? json_loadb(line, len, 0, NULL) : NULL;

        if (o) {
            json_decref(found);
            found = o;
        }
        line = line[len] ? line + len + 1 : NULL;
    }
    return found;
}

static void last_line(const struct buf *b, char *to, size_t size)
{
    const char *text = buf_str(b);
    size_t len = b->len;

    while (len && strchr("\r\n ", text[len - 1])) {
        len--;
    }
    size_t from = len;

    while (from && text[from - 1] != '\n') {
        from--;
    }
    snprintf(to, size, "%.*s", (int)(len - from), text + from);
}

static void judge(struct target *t)
{
    json_t *o;
    const char *version, *error;

    if (t->problem[0]) {
        return;
    }
    o = find_answer(&t->answer);
    version = json_string_value(json_object_get(o, "version"));
    error = json_string_value(json_object_get(o, "error"));
    if (error) {
        str_copy(t->problem, sizeof(t->problem), error);
    } else if (!version) {
        char line[300];

        last_line(&t->answer, line, sizeof(line));
        snprintf(t->problem, sizeof(t->problem), t->status == 127
                 ? "muster is not installed there at the same path (%s)"
                 : "cannot be reached over ssh (%s)",
                 line[0] ? line : "no output");
    } else if (strcmp(version, PACKAGE_VERSION) != 0) {
        snprintf(t->problem, sizeof(t->problem), "has muster %.60s, this "
                 "machine has %s", version, PACKAGE_VERSION);
    }
    str_copy(t->boot_id, sizeof(t->boot_id),
             json_string_value(json_object_get(o, "id"))
                 ? json_string_value(json_object_get(o, "id")) : "");
    json_decref(o);
}

static void find_twins(struct probing *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        for (size_t k = 0; k < i; k++) {
            struct target *t = &p->targets[i];

            if (t->boot_id[0] && !t->problem[0] &&
                strcmp(t->boot_id, p->targets[k].boot_id) == 0) {
                snprintf(t->problem, sizeof(t->problem), "is the same machine "
                         "as %s", p->targets[k].host->name);
            }
        }
    }
}

static int report(struct probing *p, size_t n, struct error *e)
{
    _buf_ struct buf b = {0};
    size_t n_bad = 0;

    for (size_t i = 0; i < n; i++) {
        const struct target *t = &p->targets[i];

        if (t->problem[0] && n_bad++ < MAX_NAMED) {
            buf_printf(&b, "%shost %s: %s", b.len ? "; " : "", t->host->name,
                       t->problem);
        }
    }
    if (n_bad > MAX_NAMED) {
        buf_printf(&b, "; and %zu more", n_bad - MAX_NAMED);
    }
    return n_bad ? error_text(e, ERR_LOST, "%s", buf_str(&b)) : 0;
}

static void ask(struct probing *p)
{
    const struct probe_config *c = p->config;
    struct jsonw w = jsonw_start(&p->question);
    char hex[2 * 32 + 1];

    /* At once: one that grows leaves the key behind, where it was. */
    buf_reserve(&p->question, QUESTION_BYTES);
    jsonw_object(&w, NULL);
    jsonw_int(&w, "v", 1);
    jsonw_str(&w, "run_id", c->dir->id);
    jsonw_str(&w, "run_dir", c->dir->path);
    sodium_bin2hex(hex, sizeof(hex), c->nonce, RUNDIR_NONCE_BYTES);
    jsonw_str(&w, "nonce", hex);
    sodium_bin2hex(hex, sizeof(hex), c->key, 32);
    jsonw_str(&w, "key", hex);
    sodium_memzero(hex, sizeof(hex));
    jsonw_end_object(&w);
    buf_putc(&p->question, '\n');
}

static void probing_release(struct probing *p)
{
    for (size_t i = 0; p->targets && i < p->n; i++) {
        buf_release(&p->targets[i].answer);
    }
    free(p->targets);
    if (p->question.data) {
        sodium_memzero(p->question.data, p->question.len);
    }
    buf_release(&p->question);
}

static void run_probing(struct probing *p)
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

int probe_hosts(const struct probe_config *config, struct error *e)
{
    struct probing p = {.config = config};
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < config->hosts->n; i++) {
        n += !config->hosts->items[i].is_local;
    }
    if (n == 0) {
        return 0;
    }
    p.targets = calloc(n, sizeof(*p.targets));
    uv_loop_init(&p.loop);
    ask(&p);
    if (!p.targets || p.question.failed ||
        child_table_create(&p.loop, &p.children, e) < 0) {
        free(p.targets);
        return error_set(e, ENOMEM, "probe hosts");
    }
    for (size_t i = 0; i < config->hosts->n; i++) {
        if (!config->hosts->items[i].is_local) {
            p.targets[p.n].all = &p;
            p.targets[p.n++].host = &config->hosts->items[i];
        }
    }
    run_probing(&p);
    for (size_t i = 0; i < n; i++) {
        judge(&p.targets[i]);
    }
    find_twins(&p, n);
    rc = report(&p, n, e);
    p.n = n;
    probing_release(&p);
    child_table_destroy(p.children);
    uv_run(&p.loop, UV_RUN_DEFAULT);
    uv_loop_close(&p.loop);
    return rc;
}
