/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_step.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum {
    UP_MS = 60000,      /* for all keepers to come up */
    MAX_LOG = 64 << 20,
    MAX_WHY = 512,
};

struct agent_step {
    const struct agent_step_config *config;
    uv_pipe_t out;     /* a line from each keeper */
    uv_timer_t late;
    unsigned n_closing;
    char bytes[4096];
    size_t n_up;
    bool has_told;     /* on_up() was called */
    bool is_over;
    bool is_destroyed;
    pid_t pid;         /* of srun; -1 when it has ended */
};

bool agent_step_lives(const struct agent_step *s)
{
    return s && s->pid > 0;
}

bool agent_step_is_over(const struct agent_step *s)
{
    return s && s->is_over;
}

void agent_step_kill(struct agent_step *s, int sig)
{
    if (agent_step_lives(s)) {
        child_kill(s->config->children, s->pid, sig);
    }
}

static void tell(struct agent_step *s, const char *why_not)
{
    if (!s->has_told) {
        s->has_told = true;
        uv_timer_stop(&s->late);
        s->config->on_up(s->config->arg, why_not);
    }
}

/* The last line of the log that is worth showing. */
static void read_last_word(const struct agent_step *s, char *to, size_t size)
{
    _free_ char *text = NULL;
    char *rest, *line;

    to[0] = '\0';
    if (fs_read(s->config->log_path, MAX_LOG, &text, NULL, NULL) < 0) {
        return;
    }
    rest = text;
    while ((line = strsep(&rest, "\n"))) {
        if (line[0] && !strstr(line, "--help")) {
            str_copy(to, size, line);
        }
    }
}

static void on_exit_of_srun(void *arg, const struct child_exit *how)
{
    struct agent_step *s = arg;
    char why[MAX_WHY + 64], word[MAX_WHY];

    s->pid = -1;
    s->is_over = !how->signal;
    if (s->is_destroyed) {
        return;
    }
    read_last_word(s, word, sizeof(word));
    snprintf(why, sizeof(why), "%s", word[0] ? word : "srun ended");
    if (!word[0] && how->signal) {
        snprintf(why, sizeof(why), "srun was ended by %s",
                 child_signal_name(how->signal));
    }
    tell(s, why);
    s->config->on_end(s->config->arg);
}

static void on_late(uv_timer_t *t)
{
    struct agent_step *s = t->data;
    char why[128];

    snprintf(why, sizeof(why), "%zu of %zu nodes have taken part in it within "
             "%d s", s->n_up, s->config->hosts->n, UP_MS / 1000);
    agent_step_kill(s, SIGTERM);
    tell(s, why);
}

static void on_alloc(uv_handle_t *h, size_t size, uv_buf_t *ret)
{
    struct agent_step *s = h->data;

    (void)size;
    *ret = uv_buf_init(s->bytes, sizeof(s->bytes));
}

static void on_read(uv_stream_t *stream, ssize_t n, const uv_buf_t *buf)
{
    struct agent_step *s = stream->data;

    if (n < 0) {
        uv_read_stop(stream);
        return;
    }
    for (ssize_t i = 0; i < n; i++) {
        s->n_up += buf->base[i] == '\n';
    }
    if (s->n_up >= s->config->hosts->n) {
        tell(s, NULL);
    }
}

static int write_nodelist(const struct agent_step_config *c, struct error *e)
{
    _buf_ struct buf text = {0};

    slurm_nodelist(c->hosts, &text);
    return text.failed
               ? error_set(e, ENOMEM, "write %s", c->nodelist_path)
               : fs_write_replace(c->nodelist_path, text.data, text.len, e);
}

static int start(struct agent_step *s, int out, struct error *e)
{
    const struct agent_step_config *c = s->config;
    struct slurm_step step = {
        .hosts = c->hosts, .nodelist = c->nodelist_path, .run_id = c->run_id,
        .wait_seconds = c->wait_seconds,
    };
    char srun[PATH_MAX], muster[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    _strlist_ struct strlist env = {0};
    _close_ int log = -1;
    struct child_spec spec = {.path = srun, .new_session = true};
    int rc = fs_which("srun", getenv("PATH"), srun, sizeof(srun));

    if (rc < 0) {
        return error_text(e, -rc, "srun is not in PATH");
    }
    rc = fs_program(muster, sizeof(muster), e);
    if (rc < 0) {
        return rc;
    }
    log = open(c->log_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (log < 0) {
        return error_set(e, errno, "open %s", c->log_path);
    }
    rc = write_nodelist(c, e);
    if (rc < 0) {
        return rc;
    }
    step.muster = muster;
    slurm_step_argv(srun, &step, &argv);
    slurm_step_env(environ, &env);
    if (argv.failed || env.failed) {
        return error_set(e, ENOMEM, "start srun");
    }
    spec.argv = argv.items;
    spec.envp = env.items;
    spec.stdio[0] = -1;
    spec.stdio[1] = out;
    spec.stdio[2] = log;
    return child_spawn(c->children, &spec, on_exit_of_srun, s, &s->pid, e);
}

static void on_closed(uv_handle_t *h)
{
    struct agent_step *s = h->data;

    if (--s->n_closing == 0) {
        free(s);
    }
}

void agent_step_destroy(struct agent_step *s)
{
    if (s) {
        s->is_destroyed = true;
        s->n_closing = 2;
        uv_close((uv_handle_t *)&s->out, on_closed);
        uv_close((uv_handle_t *)&s->late, on_closed);
    }
}

int agent_step_create(const struct agent_step_config *config,
                      struct agent_step **ret, struct error *e)
{
    struct agent_step *s = calloc(1, sizeof(*s));
    _close_ int far = -1;
    int ends[2], rc;

    if (!s) {
        return error_set(e, ENOMEM, "start srun");
    }
    if (pipe2(ends, O_CLOEXEC) < 0) {
        free(s);
        return error_set(e, errno, "make a pipe");
    }
    far = ends[1];
    s->config = config;
    s->pid = -1;
    uv_timer_init(config->loop, &s->late);
    uv_pipe_init(config->loop, &s->out, 0);
    s->late.data = s->out.data = s;
    uv_pipe_open(&s->out, ends[0]);
    rc = start(s, far, e);
    if (rc < 0) {
        agent_step_destroy(s);
        return rc;
    }
    uv_read_start((uv_stream_t *)&s->out, on_alloc, on_read);
    uv_timer_start(&s->late, on_late, UP_MS, 0);
    *ret = s;
    return 0;
}
