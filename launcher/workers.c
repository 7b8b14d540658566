/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a set, step by step: TERM to the groups; KILL to the groups when
 * the grace is over; once the last worker has been reaped, whatever is left of
 * it among the agent's descendants is swept until there is nothing.
 */
#include <config.h>

#include "launcher/workers.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/workers_set.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    MAX_WORKERS = 4096,
    TAIL_LINES = 100,
    LINGER_MS = 1000,
    STUCK_MS = 5000,
    FIRST_LOOK_MS = 2, /* after a kill; then twice as long each time */
    LAST_LOOK_MS = 500,
    MAX_UNCLEAR = 10,
};

/* --- the end of the set ---------------------------------------------------- */

static void on_handle_closed(uv_handle_t *h)
{
    struct workers *w = h->data;

    if (--w->n_handles == 0 && w->destroyed) {
        for (unsigned i = 0; i < w->n; i++) {
            free(w->all[i].program);
        }
        buf_release(&w->status);
        free(w->all);
        free(w);
    }
}

static void close_status(struct workers *w)
{
    if (w->status_fd >= 0) {
        uv_poll_stop(&w->status_poll);
        uv_close((uv_handle_t *)&w->status_poll, on_handle_closed);
        close_fd(&w->status_fd);
    }
}

static void leave_host(struct workers *w)
{
    struct workers **at = &w->host->sets;

    while (*at != w) {
        at = &(*at)->next;
    }
    *at = w->next;
    child_watch_remove(w->host->children, &w->watch);
}

static void close_output(struct worker *k)
{
    if (k->out) {
        output_close(k->out, NULL, NULL);
    }
    if (k->err) {
        output_close(k->err, NULL, NULL);
    }
    k->out = k->err = NULL;
}

static void become_gone(struct workers *w)
{
    uv_timer_stop(&w->grace);
    uv_timer_stop(&w->look);
    close_status(w);
    close_fd(&w->gate_fd);
    for (unsigned i = 0; i < w->n; i++) {
        close_output(&w->all[i]);
    }
    leave_host(w);
    w->gone = true;
    if (w->abandoned) {
        workers_destroy(w);
    } else if (w->events.on_gone) {
        w->events.on_gone(w->events.arg);
    }
}

static void tell_stuck(struct workers *w, const struct proc_list *left)
{
    size_t n = left->n + w->n_alive, at = 0;
    _free_ struct worker_survivor *who = calloc(n, sizeof(*who));
    struct proc p;

    if (!who || !w->events.on_stuck || w->abandoned) {
        return;
    }
    for (unsigned i = 0; i < w->n; i++) {
        if (w->all[i].pid > 0 && proc_read(w->all[i].pid, &p) == 0) {
            who[at].pid = p.pid;
            who[at].state = p.state;
            str_copy(who[at++].name, sizeof(who->name), p.name);
        }
    }
    for (size_t i = 0; i < left->n; i++) {
        who[at].pid = left->items[i].pid;
        who[at].state = left->items[i].state;
        str_copy(who[at++].name, sizeof(who->name), left->items[i].name);
    }
    w->events.on_stuck(w->events.arg, who, at);
}

static void on_look(uv_timer_t *t);

static void look_in(struct workers *w, uint64_t ms)
{
    uv_timer_start(&w->look, on_look, ms, 0);
}

/* After a kill: soon, then less and less often. */
static void look_again(struct workers *w)
{
    look_in(w, w->look_ms);
    w->look_ms = w->look_ms * 2 < LAST_LOOK_MS ? w->look_ms * 2 : LAST_LOOK_MS;
}

static void begin_killing(struct workers *w)
{
    if (!w->killing) {
        w->killing = true;
        w->killed_at_ms = clock_mono_ms();
        w->look_ms = FIRST_LOOK_MS;
    }
}

/* No worker lives. What is left? */
static void settle(struct workers *w, uint64_t now)
{
    _proc_list_ struct proc_list left = {0};
    bool unclear;

    unclear = workers_left(w, &left);
    if (left.n == 0 && unclear && w->n_unclear++ < MAX_UNCLEAR) {
        look_in(w, FIRST_LOOK_MS);
        return;
    }
    if (left.n == 0) {
        become_gone(w);
        return;
    }
    if (!w->killing && now < w->linger_until_ms) {
        look_in(w, w->linger_until_ms - now);
        return;
    }
    begin_killing(w);
    proc_sweep(getpid(), workers_own, w, NULL);
    if (!w->told_stuck && now - w->killed_at_ms >= STUCK_MS) {
        w->told_stuck = true;
        tell_stuck(w, &left);
    }
    look_again(w);
}

static void on_look(uv_timer_t *t)
{
    struct workers *w = t->data;
    uint64_t now = clock_mono_ms();

    if (w->n_alive == 0) {
        settle(w, now);
    } else if (w->killing) {
        if (!w->told_stuck && now - w->killed_at_ms >= STUCK_MS) {
            _proc_list_ struct proc_list left = {0};

            w->told_stuck = true;
            workers_left(w, &left);
            tell_stuck(w, &left);
        }
        look_again(w);
    }
}

static void on_orphan(void *arg, const struct child_exit *how)
{
    struct workers *w = arg;

    (void)how;
    /* Once a turn, however many ended in it. */
    if (w->n_alive == 0) {
        look_in(w, 0);
    }
}

static void signal_groups(struct workers *w, int sig)
{
    for (unsigned i = 0; i < w->n; i++) {
        if (w->all[i].pid > 0) {
            child_kill_group(w->host->children, w->all[i].pid, sig);
        }
    }
}

static void kill_now(struct workers *w)
{
    uv_timer_stop(&w->grace);
    begin_killing(w);
    signal_groups(w, SIGKILL);
    look_in(w, w->n_alive ? w->look_ms : 0);
}

static void on_grace_over(uv_timer_t *t)
{
    kill_now(t->data);
}

void workers_stop(struct workers *w, unsigned grace_ms)
{
    uint64_t at = clock_mono_ms() + grace_ms;
    bool first = !w->stopping;

    if (w->gone || w->killing) {
        return;
    }
    w->stopping = true;
    if (grace_ms == 0) {
        kill_now(w);
        return;
    }
    if (first) {
        signal_groups(w, SIGTERM);
        signal_groups(w, SIGCONT);
    }
    if (first || at < w->kill_at_ms) {
        w->kill_at_ms = at;
        uv_timer_start(&w->grace, on_grace_over, grace_ms, 0);
    }
    if (w->linger_until_ms > at) {
        w->linger_until_ms = at;
    }
}

/* --- one worker ------------------------------------------------------------ */

static void word_end(const struct worker *k, const struct worker_end *end,
                     char *to, size_t size)
{
    const char *node = k->set->host->node;
    char who[300];

    snprintf(who, sizeof(who), "worker %u%s%s", k->rank, node ? " on " : "",
             node ? node : "");
    if (end->exec_failed) {
        char why[700];

        exec_report_text(&k->report, k->program, why, sizeof(why));
        snprintf(to, size, "%s: %s", who, why);
    } else if (end->how.signal) {
        snprintf(to, size, "%s was %s by %s%s", who,
                 end->stopped ? "stopped" : "killed",
                 child_signal_name(end->how.signal),
                 end->how.core ? " (core dumped)" : "");
    } else if (end->how.code) {
        snprintf(to, size, "%s exited with status %d", who, end->how.code);
    } else {
        snprintf(to, size, "%s finished", who);
    }
}

static void collect_tail(struct worker *k, struct buf *b)
{
    struct output_stream *const both[] = {k->err, k->out};

    for (int i = 0; i < 2; i++) {
        if (both[i]) {
            output_drain(both[i]);
        }
        if (both[i] && b->len == 0) {
            output_tail(both[i], TAIL_LINES, b);
        }
    }
}

static void read_status(struct workers *w);

static void on_worker_exit(void *arg, const struct child_exit *how)
{
    struct worker *k = arg;
    struct workers *w = k->set;
    _buf_ struct buf tail = {0};
    struct worker_end end = {
        .local_rank = k->local_rank,
        .rank = k->rank,
        .how = *how,
        .at_mono_ns = clock_mono_ns(),
        .at_wall_ns = clock_wall_ns(),
        .stopped = w->stopping,
        .status = child_shell_status(how),
    };
    char text[1200];

    /* Its report may be there and not read yet. */
    read_status(w);
    end.exec_failed = k->exec_failed;
    collect_tail(k, &tail);
    word_end(k, &end, text, sizeof(text));
    end.text = text;
    end.tail = buf_str(&tail);
    k->pid = -1;
    w->n_alive--;
    if (w->killing) {
        child_kill_group(w->host->children, how->pid, SIGKILL);
    }
    if (w->n_alive == 0) {
        w->linger_until_ms = clock_mono_ms() + w->linger_ms;
        if (w->stopping && w->kill_at_ms < w->linger_until_ms) {
            w->linger_until_ms = w->kill_at_ms;
        }
        look_in(w, 0);
    }
    if (!w->abandoned && w->events.on_exit) {
        w->events.on_exit(w->events.arg, &end);
    }
}

/* --- the start ------------------------------------------------------------- */

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

static void read_status(struct workers *w)
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
            close_status(w);
            break;
        }
        buf_append(&w->status, chunk, (size_t)n);
        take_reports(w);
    }
    if (w->status_fd < 0 && !w->told_started && !w->any_exec_failed &&
        !w->stopping && !w->abandoned) {
        w->told_started = true;
        if (w->events.on_started) {
            w->events.on_started(w->events.arg);
        }
    }
}

static void on_status(uv_poll_t *h, int status, int events)
{
    (void)status;
    (void)events;
    read_status(h->data);
}

void workers_release(struct workers *w)
{
    char bytes[MAX_WORKERS];
    ssize_t n;

    if (w->gate_fd < 0) {
        return;
    }
    memset(bytes, 'g', w->n);
    /* A socket, because it can be told not to raise SIGPIPE; a byte each fits
     * into its buffer. Nobody there: they have all ended, which we shall hear. */
    n = send(w->gate_fd, bytes, w->n, MSG_NOSIGNAL);
    (void)n;
    close_fd(&w->gate_fd);
}

/* Descriptors of the start that go to the children. */
struct launch {
    const struct workers_config *config;
    int gate_fd;   /* the workers' end */
    int status_fd; /* the writing end */
};

static void launch_release(struct launch *l)
{
    close_fd(&l->gate_fd);
    close_fd(&l->status_fd);
}

static int open_pipe(int p[2], struct error *e)
{
    if (pipe2(p, O_CLOEXEC) < 0) {
        return error_set(e, errno, "make a pipe for a worker");
    }
    return 0;
}

static int open_streams(struct worker *k, const char *logs_dir, int out, int err,
                        struct error *e)
{
    char path[PATH_MAX];
    struct output *o = k->set->host->output;
    const char *name[] = {"stdout", "stderr"};
    struct output_stream **stream[] = {&k->out, &k->err};
    int fds[] = {out, err};

    for (int i = 0; i < 2; i++) {
        int rc = logs_dir ? fs_path(path, sizeof(path), e, "%s/%u/%s",
                                    logs_dir, k->rank, name[i]) : 0;

        if (rc == 0) {
            rc = output_open(o, fds[i], k->rank,
                             i ? OUTPUT_STDERR : OUTPUT_STDOUT,
                             logs_dir ? path : NULL, stream[i], e);
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

static int spawn_with(struct worker *k, const struct launch *l, int out,
                      int err, struct error *e)
{
    const struct worker_spec *spec = &l->config->workers[k->local_rank];
    struct workers_host *host = k->set->host;
    const int pass[] = {l->status_fd, l->gate_fd};
    struct exec_options o = {
        .id = k->local_rank,
        .cwd = l->config->cwd,
        .cpus = spec->cpus,
        .oom_score_adj = l->config->oom_score_adj,
        .core = l->config->core,
        .status_fd = l->status_fd,
        .gate_fd = l->gate_fd,
    };
    _free_ char **envp = tag_env(spec->envp, k->set->tag);
    _strlist_ struct strlist argv = {0};
    struct child_spec child = {
        .path = host->exec_path, .envp = envp, .stdio = {-1, out, err},
        .pass = pass, .n_pass = 2, .new_session = true,
    };

    exec_argv(&argv, &o, spec->argv);
    if (argv.failed || !envp) {
        return error_set(e, ENOMEM, "start worker %u", k->rank);
    }
    child.argv = argv.items;
    return child_spawn(host->children, &child, on_worker_exit, k, &k->pid, e);
}

static int start_one(struct worker *k, const struct launch *l,
                     struct error *e)
{
    int out[2] = {-1, -1}, err[2] = {-1, -1};
    int rc = open_pipe(out, e);

    if (rc < 0) {
        return rc;
    }
    rc = open_pipe(err, e);
    if (rc == 0) {
        rc = spawn_with(k, l, out[1], err[1], e);
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
    return open_streams(k, l->config->logs_dir, out[0], err[0], e);
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
    snprintf(w->tag, sizeof(w->tag), "MUSTER_SET=%d.%llu", (int)getpid(),
             (unsigned long long)++host->serial);
    for (unsigned i = 0; i < w->n; i++) {
        struct worker *k = &w->all[i];

        k->set = w;
        k->local_rank = i;
        k->rank = config->workers[i].rank;
        k->pid = k->was = -1;
        k->program = strdup(config->workers[i].argv[0]);
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
    w->watch = (struct child_watch){.on_orphan = on_orphan, .arg = w};
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

/* --- questions ------------------------------------------------------------- */

void workers_signal(struct workers *w, int sig)
{
    for (unsigned i = 0; i < w->n; i++) {
        if (w->all[i].pid > 0) {
            child_kill(w->host->children, w->all[i].pid, sig);
        }
    }
}

pid_t worker_pid(const struct workers *w, unsigned local_rank)
{
    return local_rank < w->n ? w->all[local_rank].pid : -1;
}

unsigned workers_count(const struct workers *w)
{
    return w->n;
}

unsigned workers_alive(const struct workers *w)
{
    return w->n_alive;
}

bool workers_are_gone(const struct workers *w)
{
    return w->gone;
}

void worker_tail(struct workers *w, unsigned local_rank, struct buf *b)
{
    if (local_rank < w->n) {
        collect_tail(&w->all[local_rank], b);
    }
}

uint64_t worker_last_output_ms(const struct workers *w, unsigned local_rank)
{
    const struct worker *k;
    uint64_t out, err;

    if (local_rank >= w->n) {
        return 0;
    }
    k = &w->all[local_rank];
    out = k->out ? output_last_ms(k->out) : 0;
    err = k->err ? output_last_ms(k->err) : 0;
    return out > err ? out : err;
}

void workers_destroy(struct workers *w)
{
    if (!w || w->destroyed) {
        return;
    }
    w->destroyed = true;
    uv_close((uv_handle_t *)&w->grace, on_handle_closed);
    uv_close((uv_handle_t *)&w->look, on_handle_closed);
}
