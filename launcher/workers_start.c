/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The start of a set: each worker gets two pipes for its output and waits at a
 * gate, which opens when all exist. The status pipe ends when the last of them
 * has been executed; before, muster-exec says there which step failed.
 *
 * Those that are made of blanks are waited for before the gate opens: in the place of
 * one that does not answer another process is started, with the same pipes.
 */
#include <config.h>

#include "launcher/workers_set.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_WORKERS = 4096,
    LINGER_MS = 1000, /* unless the caller says otherwise */
};

static void take_reports(struct workers *w)
{
    struct exec_report r;

    while (exec_report_decode(&w->status, &r) > 0) {
        if (r.id < w->n && !(r.stage == EXEC_GATE && w->stopping)) {
            w->all[r.id].exec_failed = true;
            w->all[r.id].report = r;
            w->any_exec_failed = true;
        }
    }
}

void workers_tell_started(struct workers *w)
{
    if (w->told_started || w->any_exec_failed || w->stopping || w->abandoned) {
        return;
    }
    w->told_started = true;
    if (w->events.on_started) {
        w->events.on_started(w->events.arg);
    }
}

void workers_read_status(struct workers *w)
{
    while (w->status_fd >= 0) {
        char chunk[4096];
        ssize_t n = read(w->status_fd, chunk, sizeof(chunk));

        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return;
        }
        if (n <= 0) {
            workers_close_status(w);
            break;
        }
        buf_append(&w->status, chunk, (size_t)n);
        take_reports(w);
    }
    if (w->status_fd < 0) {
        workers_tell_started(w);
    }
}

static void on_status(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    workers_read_status(h->data);
}

void workers_release(struct workers *w)
{
    char bytes[MAX_WORKERS + BLANKS_MAX];
    ssize_t n;

    if (w->gate_fd < 0) {
        return;
    }
    memset(bytes, 'g', w->n + w->n_lost);
    /* A socket, because it can be told not to raise SIGPIPE; a byte each fits
     * into its buffer. Nobody there: they have all ended, which we shall hear. */
    n = send(w->gate_fd, bytes, w->n + w->n_lost, MSG_NOSIGNAL);
    (void)n;
    close_fd(&w->gate_fd);
}

/* One that is made of a blank, and what another process needs to take its place. */
struct told {
    struct worker *worker;
    int out_fd, err_fd; /* the writing ends */
};

/* Descriptors of the start that go to the children. */
struct launch {
    const struct workers_config *config;
    int gate_fd;   /* the workers' end */
    int status_fd; /* the writing end */
    struct told told[BLANKS_MAX];
    unsigned n_told;
};

static void launch_release(struct launch *l)
{
    close_fd(&l->gate_fd);
    close_fd(&l->status_fd);
    while (l->n_told) {
        struct told *t = &l->told[--l->n_told];

        close_fd(&t->out_fd);
        close_fd(&t->err_fd);
    }
}

static int open_pipe(int p[2], struct error *e)
{
    if (pipe2(p, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe for a worker");
    }
    return 0;
}

/* "" for none. */
static int log_path(const struct workers_config *c, uint32_t rank,
                    const char *stream, char *to, size_t size, struct error *e)
{
    to[0] = '\0';
    return c->log_file ? fs_path(to, size, e, "%s", c->log_file)
           : c->logs_dir ? fs_path(to, size, e, "%s/%u/%s", c->logs_dir, rank,
                                   stream)
                         : 0;
}

static int open_streams(struct worker *k, const struct workers_config *c,
                        int out, int err, struct error *e)
{
    char path[PATH_MAX];
    struct output *o = k->set->host->output;
    const char *name[] = {"stdout", "stderr"};
    struct output_stream **stream[] = {&k->out, &k->err};
    int fds[] = {out, err};

    for (int i = 0; i < 2; i++) {
        struct output_source from = {
            .rank = k->rank,
            .which = i ? OUTPUT_STDERR : OUTPUT_STDOUT,
            .shares_file = c->log_file,
        };
        int rc = log_path(c, k->rank, name[i], path, sizeof(path), e);

        if (rc == 0) {
            rc = output_open(o, fds[i], &from, path[0] ? path : NULL,
                             stream[i], e);
        } else {
            close(fds[i]);
        }
        if (rc < 0) {
            if (i == 0) {
                close(fds[1]);
            }
            return rc;
        }
    }
    return 0;
}

/* The environment with the tag of the set; the strings stay the caller's. */
static char **tag_env(char *const *envp, const char *tag)
{
    size_t n = 0;
    char **tagged;

    while (envp[n]) {
        n++;
    }
    tagged = calloc(n + 2, sizeof(*tagged));
    if (tagged) {
        memcpy(tagged, envp, n * sizeof(*tagged));
        tagged[n] = (char *)(uintptr_t)tag;
    }
    return tagged;
}

/* False where that cannot be: then as any other. */
static bool spawn_warm(struct worker *k, const struct launch *l,
                       char *const *envp, int out, int err)
{
    const struct worker_spec *spec = &l->config->workers[k->local_rank];
    struct warm_job job = {
        .id = k->local_rank, .argv = spec->argv, .envp = envp,
        .cwd = l->config->cwd, .out_fd = out, .err_fd = err,
        .status_fd = l->status_fd, .gate_fd = l->gate_fd,
    };

    return l->config->warm && !spec->cpus &&
           warm_start(l->config->warm, &job, workers_on_exit, k, &k->pid,
                      NULL) == 0;
}

static struct exec_options options_of(const struct worker *k,
                                      const struct launch *l)
{
    const struct worker_spec *spec = &l->config->workers[k->local_rank];

    return (struct exec_options){
        .id = k->local_rank,
        .cwd = l->config->cwd,
        .cpus = spec->cpus,
        .find = spec->starts,
        .oom_score_adj = l->config->oom_score_adj,
        .core = l->config->core,
        .status_fd = l->status_fd,
        .gate_fd = l->gate_fd,
    };
}

/* Likewise. Where it can be, the descriptors are those of `l` from then on. */
static bool tell_blank(struct worker *k, struct launch *l, char *const *envp,
                       int *out, int *err)
{
    struct exec_options o = options_of(k, l);
    struct blank_job job = {
        .o = &o, .argv = l->config->workers[k->local_rank].argv, .envp = envp,
        .out_fd = *out, .err_fd = *err,
    };

    if (!l->config->blanks || l->n_told == BLANKS_MAX ||
        blanks_start(l->config->blanks, &job, workers_on_exit, k, &k->pid,
                     NULL) < 0) {
        return false;
    }
    l->told[l->n_told++] = (struct told){k, take_fd(out), take_fd(err)};
    return true;
}

static int spawn_plainly(struct worker *k, const struct launch *l,
                         char *const *envp, int out, int err, struct error *e)
{
    const int pass[] = {l->status_fd, l->gate_fd};
    struct exec_options o = options_of(k, l);
    _strlist_ struct strlist argv = {0};
    struct child_spec child = {
        .path = k->set->host->exec_path, .envp = envp,
        .stdio = {-1, out, err}, .pass = pass, .n_pass = 2,
        .new_session = true,
    };

    exec_argv(&argv, &o, l->config->workers[k->local_rank].argv);
    if (argv.failed) {
        return error_set(e, ENOMEM, "start worker %u", k->rank);
    }
    child.argv = argv.items;
    return child_spawn(k->set->host->children, &child, workers_on_exit, k,
                       &k->pid, e);
}

static int spawn_with(struct worker *k, struct launch *l, int *out, int *err,
                      struct error *e)
{
    _free_ char **envp = tag_env(l->config->workers[k->local_rank].envp,
                                 k->set->tag);

    if (!envp) {
        return error_set(e, ENOMEM, "start worker %u", k->rank);
    }
    if (spawn_warm(k, l, envp, *out, *err) ||
        tell_blank(k, l, envp, out, err)) {
        return 0;
    }
    return spawn_plainly(k, l, envp, *out, *err, e);
}

static int start_one(struct worker *k, struct launch *l, struct error *e)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    int rc = open_pipe(out, e);

    if (rc < 0) {
        return rc;
    }
    rc = open_pipe(err, e);
    if (rc == 0) {
        rc = spawn_with(k, l, &out[1], &err[1], e);
    }
    close_fd(&out[1]);
    close_fd(&err[1]);
    if (rc < 0) {
        close_fd(&out[0]);
        close_fd(&err[0]);
        return rc;
    }
    k->was = k->pid;
    k->set->n_alive++;
    return open_streams(k, l->config, out[0], err[0], e);
}

/* The blank that it was to be made of is gone. */
static int start_instead(struct worker *k, const struct launch *l,
                         struct error *e)
{
    _free_ char **envp = tag_env(l->config->workers[k->local_rank].envp,
                                 k->set->tag);
    const struct told *t = l->told;
    int rc;

    while (t->worker != k) {
        t++;
    }
    rc = envp ? spawn_plainly(k, l, envp, t->out_fd, t->err_fd, e)
              : error_set(e, ENOMEM, "start worker %u", k->rank);
    if (rc == 0) {
        k->was = k->pid;
        k->set->n_alive++;
    }
    return rc;
}

/* `rc` tells whether all have been started that far. */
static int settle(struct workers *w, struct launch *l, int rc, struct error *e)
{
    void *lost[BLANKS_MAX];
    unsigned n = l->n_told ? blanks_settle(l->config->blanks, lost) : 0;

    for (unsigned i = 0; i < n; i++) {
        struct worker *k = lost[i];

        k->pid = k->was = -1;
        w->n_lost++;
        w->n_alive--;
        rc = rc < 0 ? rc : start_instead(k, l, e);
    }
    return rc;
}

static int open_launch(struct workers *w, struct launch *l, struct error *e)
{
    int gate[2], status[2];

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, gate) < 0) {
        return error_set(e, errno, "make the gate of the workers");
    }
    w->gate_fd = gate[1];
    l->gate_fd = gate[0];
    if (pipe2(status, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make the status pipe of the workers");
    }
    w->status_fd = status[0];
    l->status_fd = status[1];
    fcntl(status[0], F_SETFL, O_NONBLOCK);
    return 0;
}

static struct workers *make_set(struct workers_host *host,
                                const struct workers_config *config,
                                const struct workers_events *events)
{
    struct workers *w = calloc(1, sizeof(*w));

    if (!w) {
        return NULL;
    }
    w->all = calloc(config->n, sizeof(*w->all));
    if (!w->all) {
        free(w);
        return NULL;
    }
    w->host = host;
    w->events = *events;
    w->n = config->n;
    w->linger_ms = config->linger_ms ? config->linger_ms : LINGER_MS;
    w->gate_fd = w->status_fd = -1;
    snprintf(w->tag, sizeof(w->tag), WORKERS_MARK "=%d.%llu", (int)getpid(),
             (unsigned long long)++host->serial);
    for (unsigned i = 0; i < w->n; i++) {
        struct worker *k = &w->all[i];

        k->set = w;
        k->local_rank = i;
        k->rank = config->workers[i].rank;
        k->pid = k->was = -1;
        k->program = strdup(config->workers[i].starts
                                ? config->workers[i].starts
                                : config->workers[i].argv[0]);
        if (!k->program) {
            w->n = i;
            break;
        }
    }
    return w;
}

static void init_handles(struct workers *w)
{
    uv_timer_init(w->host->loop, &w->grace);
    uv_timer_init(w->host->loop, &w->look);
    w->grace.data = w->look.data = w;
    w->n_handles = 2;
    w->watch = (struct child_watch){.on_orphan = workers_on_orphan, .arg = w};
    child_watch_add(w->host->children, &w->watch);
    w->next = w->host->sets;
    w->host->sets = w;
}

static int watch_status(struct workers *w, struct error *e)
{
    int rc = uv_poll_init(w->host->loop, &w->status_poll, w->status_fd);

    if (rc < 0) {
        close_fd(&w->status_fd);
        return error_set(e, -rc, "watch the start of the workers");
    }
    w->status_poll.data = w;
    w->n_handles++;
    uv_poll_start(&w->status_poll, UV_READABLE, on_status);
    return 0;
}

static int check_config(const struct workers_config *c, struct error *e)
{
    if (c->n == 0 || c->n > MAX_WORKERS) {
        return error_text(e, EINVAL, "%u workers on one node: between 1 and %d "
                          "are possible", c->n, MAX_WORKERS);
    }
    for (unsigned i = 0; i < c->n; i++) {
        if (!c->workers[i].argv[0]) {
            return error_text(e, EINVAL, "worker %u has no command",
                              c->workers[i].rank);
        }
    }
    return 0;
}

int workers_start(struct workers_host *host,
                  const struct workers_config *config,
                  const struct workers_events *events, struct workers **ret,
                  struct error *e)
{
    __attribute__((cleanup(launch_release))) struct launch l = {
        .config = config, .gate_fd = -1, .status_fd = -1};
    struct workers *w;
    int rc = check_config(config, e);

    if (rc < 0) {
        return rc;
    }
    w = make_set(host, config, events);
    if (!w) {
        return error_set(e, ENOMEM, "start workers");
    }
    init_handles(w);
    rc = w->n < config->n ? error_set(e, ENOMEM, "start workers") : 0;
    if (rc == 0) {
        rc = open_launch(w, &l, e);
    }
    if (rc == 0) {
        rc = watch_status(w, e);
    }
    for (unsigned i = 0; i < w->n && rc == 0; i++) {
        rc = start_one(&w->all[i], &l, e);
    }
    rc = settle(w, &l, rc, e);
    if (rc < 0) {
        /* Those that were started wait at the gate; they go unheard. */
        w->abandoned = true;
        workers_stop(w, 0);
        return rc;
    }
    if (!config->hold) {
        workers_release(w);
    }
    *ret = w;
    return 0;
}
