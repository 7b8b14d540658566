/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/warm_priv.h"

#include "base/cleanup.h"
#include "launcher/exec.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    IMPORT_MS = 300000, /* a cold file server, and every node asks it */
    MAX_LIVES = 3,
    SAID_BYTES = 4096,
};

void warm_handle_closed(struct warm *w)
{
    if (--w->n_handles || !w->destroyed) {
        return;
    }
    warm_past_release(&w->past);
    free(w->exec_path);
    free(w->hook_dir);
    free(w->cwd);
    free(w->core);
    free(w->modules);
    free(w);
}

static void on_timer_closed(uv_handle_t *h)
{
    warm_handle_closed(h->data);
}

static void on_nobody(void *arg, const struct child_exit *how)
{
    (void)arg;
    (void)how;
}

static void end_interpreter(struct warm *w)
{
    uv_timer_stop(&w->timer);
    if (w->pid > 0) {
        child_hand_over(w->config.children, w->pid, on_nobody, NULL);
        child_kill_group(w->config.children, w->pid, SIGKILL);
        w->pid = -1;
    }
    warm_line_close(take_ptr(&w->line));
    close_fd(&w->said_fd);
}

static void be_over(struct warm *w, const char *why)
{
    w->state = WARM_IS_OVER;
    end_interpreter(w);
    w->config.on_told(w->config.arg, why, true);
}

/* --- what it says --- */

/* Number of arguments, words, names. */
static void take_ready(struct warm *w, const struct seqsock_msg *m)
{
    const char *at = buf_str(&m->data), *end = at + m->data.len;
    char text[300];
    uint64_t n;

    if (str_to_u64(at, &n) < 0 || n >= w->past.argv.n) {
        be_over(w, "the command of the interpreter has been changed by "
                   "somebody");
        return;
    }
    w->past.n_args = (size_t)n;
    at += strlen(at) + 1;
    snprintf(text, sizeof(text), "has imported %.200s (%.60s)", w->modules,
             at < end ? at : "");
    strlist_release(&w->past.names);
    while (at < end && (at += strlen(at) + 1) < end) {
        strlist_add(&w->past.names, at);
    }
    if (w->past.names.failed) {
        be_over(w, "out of memory");
        return;
    }
    uv_timer_stop(&w->timer);
    w->state = WARM_IS_READY;
    str_copy(w->boast, sizeof(w->boast), w->n_lives == 1 ? text : "");
    warm_order(w);
}

static void on_message(void *arg, const struct seqsock_msg *m)
{
    struct warm *w = arg;

    if (!m) {
        warm_line_close(take_ptr(&w->line)); /* its end will be told */
    } else if (m->type == WARM_PROBED && w->state == WARM_IS_PROBING) {
        w->was_probed = true;
    } else if (m->type == WARM_READY && w->state == WARM_IS_IMPORTING) {
        take_ready(w, m);
    } else if (m->type == WARM_REFUSED && w->state <= WARM_IS_IMPORTING) {
        be_over(w, buf_str(&m->data));
    }
}

/* --- its life --- */

static int launch(struct warm *w, struct error *e);

static void relaunch(struct warm *w)
{
    struct error e = {0};

    if (launch(w, &e) < 0) {
        be_over(w, e.text);
    }
}

/* The last line that it printed by itself, without who says it. */
static void read_said(struct warm *w, char *to, size_t size)
{
    static const char who[] = "muster-exec: ";
    char said[SAID_BYTES + 1], *line;
    ssize_t n = w->said_fd < 0 ? -1 : read(w->said_fd, said, SAID_BYTES);

    while (n > 0 && said[n - 1] == '\n') {
        n--;
    }
    said[n < 0 ? 0 : n] = '\0';
    line = strrchr(said, '\n');
    line = line ? line + 1 : said;
    line += str_starts(line, who) ? strlen(who) : 0;
    str_copy(to, size, line);
}

static void word_end(struct warm *w, const struct child_exit *how, char *to,
                     size_t size)
{
    char said[400];

    read_said(w, said, sizeof(said));
    if (said[0]) {
        snprintf(to, size, "%s", said);
    } else if (how->signal) {
        snprintf(to, size, "it was killed by %s while it imported %.200s",
                 child_signal_name(how->signal), w->modules);
    } else if (w->state == WARM_IS_PROBING) {
        snprintf(to, size, "this Python does not run a sitecustomize of "
                 "PYTHONPATH");
    } else {
        snprintf(to, size, "it ended with status %d while it imported %.200s",
                 how->code, w->modules);
    }
}

static void on_ready_end(struct warm *w, const struct child_exit *how)
{
    char text[200];

    end_interpreter(w);
    if (w->n_lives == MAX_LIVES) {
        be_over(w, "it has been killed again and again");
        return;
    }
    snprintf(text, sizeof(text), "was killed by %s: another one is started",
             how->signal ? child_signal_name(how->signal) : "somebody");
    w->config.on_told(w->config.arg, text, false);
    w->state = WARM_IS_IMPORTING;
    relaunch(w);
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct warm *w = arg;
    char text[600];

    w->pid = -1;
    warm_line_drain(w->line); /* it may have said why */
    if (w->state == WARM_IS_OVER) {
        return;
    }
    if (w->state == WARM_IS_READY) {
        on_ready_end(w, how);
        return;
    }
    word_end(w, how, text, sizeof(text));
    end_interpreter(w);
    if (w->state == WARM_IS_PROBING && w->was_probed) {
        w->state = WARM_IS_IMPORTING;
        relaunch(w);
        return;
    }
    be_over(w, text);
}

static void on_late(uv_timer_t *t)
{
    struct warm *w = t->data;
    char text[300];

    snprintf(text, sizeof(text), "it has not imported %.200s in %u s",
             w->modules, w->config.import_ms / 1000);
    be_over(w, text);
}

static void make_env(const struct warm *w, int fd, struct strlist *ret)
{
    const char *path = strlist_getenv(&w->past.env, "PYTHONPATH");
    _buf_ struct buf whole = {0}, word = {0};

    strlist_add_all(ret, w->past.env.items);
    buf_printf(&whole, "%s%s%s", w->hook_dir, path && path[0] ? ":" : "",
               path ? path : "");
    buf_printf(&word, "%d:%d", fd, (int)getpid());
    if (path) {
        strlist_setenv(ret, "MUSTER_WARM_PATH", path);
    }
    strlist_setenv(ret, "PYTHONPATH", buf_str(&whole));
    strlist_setenv(ret, "MUSTER_WARM", buf_str(&word));
    if (w->state != WARM_IS_PROBING) {
        strlist_setenv(ret, "MUSTER_WARM_IMPORT", w->modules);
    }
    ret->failed = ret->failed || whole.failed || word.failed;
}

static int spawn(struct warm *w, int fd, int said, struct error *e)
{
    struct exec_options o = {
        .cwd = w->cwd,
        .oom_score_adj = w->config.oom_score_adj,
        .core = w->core,
        .status_fd = -1,
        .gate_fd = -1,
        .keep = &fd,
        .n_keep = 1,
        .python_only = w->state == WARM_IS_PROBING,
    };
    _strlist_ struct strlist argv = {0}, env = {0};
    struct child_spec child = {
        .path = w->exec_path, .stdio = {-1, said, said}, .pass = &fd,
        .n_pass = 1, .new_session = true,
    };

    exec_argv(&argv, &o, w->past.argv.items);
    make_env(w, fd, &env);
    if (argv.failed || env.failed) {
        return error_set(e, ENOMEM, "start an interpreter");
    }
    child.argv = argv.items;
    child.envp = env.items;
    return child_spawn(w->config.children, &child, on_exit_, w, &w->pid, e);
}

static int launch(struct warm *w, struct error *e)
{
    _close_ int fd = -1, said = -1;
    int p[2];
    int rc = warm_line_open(w, on_message, w, &w->line, &fd, e);

    if (rc < 0) {
        return rc;
    }
    if (pipe2(p, O_CLOEXEC | O_NONBLOCK) < 0) {
        return error_set(e, errno, "start an interpreter");
    }
    w->said_fd = p[0];
    said = p[1];
    uv_timer_start(&w->timer, on_late, w->config.import_ms, 0);
    w->n_lives += w->state != WARM_IS_PROBING;
    return spawn(w, fd, said, e);
}

static char *join_modules(const struct strlist *l)
{
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < l->n; i++) {
        buf_printf(&b, "%s%s", i ? "," : "", l->items[i]);
    }
    return buf_take(&b);
}

static bool copy_config(struct warm *w, const struct warm_config *config)
{
    w->config = *config;
    w->config.import_ms = config->import_ms ? config->import_ms : IMPORT_MS;
    w->exec_path = strdup(config->exec_path);
    w->hook_dir = strdup(config->hook_dir);
    w->cwd = config->cwd ? strdup(config->cwd) : NULL;
    w->core = config->core ? strdup(config->core) : NULL;
    w->modules = join_modules(config->modules);
    strlist_add_all(&w->past.argv, config->argv);
    w->past.n_args = w->past.argv.n; /* until the interpreter says how many */
    warm_base_env(config->envp, &w->past.env);
    return w->exec_path && w->hook_dir && (w->cwd || !config->cwd) &&
           (w->core || !config->core) && w->modules && !w->past.argv.failed &&
           !w->past.env.failed;
}

int warm_create(const struct warm_config *config, struct warm **ret,
                struct error *e)
{
    struct warm *w = calloc(1, sizeof(*w));
    int rc;

    if (!w) {
        return error_set(e, ENOMEM, "start an interpreter");
    }
    w->pid = w->said_fd = -1;
    uv_timer_init(config->loop, &w->timer);
    uv_unref((uv_handle_t *)&w->timer);
    w->timer.data = w;
    w->n_handles = 1;
    rc = copy_config(w, config)
             ? launch(w, e)
             : error_set(e, ENOMEM, "start an interpreter");
    if (rc < 0) {
        warm_destroy(w);
        return rc;
    }
    *ret = w;
    return 0;
}

void warm_destroy(struct warm *w)
{
    if (!w || w->destroyed) {
        return;
    }
    warm_drop_all(w);
    end_interpreter(w);
    w->destroyed = true;
    uv_close((uv_handle_t *)&w->timer, on_timer_closed);
}

void warm_fill(struct warm *w, unsigned n)
{
    w->n_wanted = n;
    warm_order(w);
}

enum warm_fit warm_check(const struct warm *w, char *const *argv,
                         char *const *envp, struct error *why)
{
    return warm_past_check(&w->past, argv, envp, why);
}
