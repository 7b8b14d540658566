/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/slurm_ask.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "base/loop_timer.h"
#include "launcher/slurm.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LATE_MS = 15000,
    MAX_READ_BYTES = 1024 * 1024, /* as much as a pipe can be made to hold */
};

static void close_question(struct slurm_ask *q)
{
    if (q->timer) {
        loop_timer_close(take_ptr(&q->timer));
        close_fd(&q->out);
    }
}

/* Of all that is in the pipe: a line that is cut off could be taken for another
 * answer. */
static void read_last_line(const struct slurm_ask *q, char *to, size_t size)
{
    _buf_ struct buf all = {0};
    char part[4096];
    ssize_t n;

    while ((n = read(q->out, part, sizeof(part))) > 0 &&
           all.len < MAX_READ_BYTES) {
        buf_append(&all, part, (size_t)n);
    }
    slurm_last_line(all.data, all.failed ? 0 : all.len, to, size);
}

static void on_exit_of_command(void *arg, const struct child_exit *how)
{
    struct slurm_ask *q = arg;
    char text[SLURM_ANSWER_BYTES];

    q->pid = 0;
    if (!q->timer) {
        return; /* forgotten */
    }
    read_last_line(q, text, sizeof(text));
    if (q->is_late) {
        str_copy(text, sizeof(text), "Slurm does not answer");
    } else if (!text[0] && how->signal) {
        snprintf(text, sizeof(text), "ended by %s",
                 child_signal_name(how->signal));
    }
    close_question(q);
    q->on_answer(q->arg, !how->signal && how->code == 0, text);
}

static void on_late(uv_timer_t *t)
{
    struct slurm_ask *q = t->data;

    q->is_late = true;
    child_kill(q->children, q->pid, SIGKILL);
}

/* Without what would choose other jobs, or print them in another way. */
static void make_env(const struct strlist *env, struct strlist *to)
{
    for (size_t i = 0; i < env->n; i++) {
        if (!str_starts(env->items[i], "SQUEUE_")) {
            strlist_add(to, env->items[i]);
        }
    }
}

static int spawn(struct slurm_ask *q, const char *const *words,
                 const struct strlist *env, int out, struct error *e)
{
    char path[PATH_MAX];
    _strlist_ struct strlist argv = {0}, vars = {0};
    struct child_spec spec = {.path = path, .stdio = {-1, out, out},
                              .new_session = true};
    int rc = fs_which(words[0], strlist_getenv(env, "PATH"), path,
                      sizeof(path));

    if (rc < 0) {
        return error_text(e, -rc, "%s is not in PATH", words[0]);
    }
    for (size_t i = 0; words[i]; i++) {
        strlist_add(&argv, words[i]);
    }
    make_env(env, &vars);
    if (argv.failed || vars.failed) {
        return error_set(e, ENOMEM, "run %s", words[0]);
    }
    spec.argv = argv.items;
    spec.envp = vars.items;
    return child_spawn(q->children, &spec, on_exit_of_command, q, &q->pid, e);
}

int slurm_ask(struct slurm_ask *q, uv_loop_t *loop,
              struct child_table *children, const char *const *words,
              const struct strlist *env,
              void (*on_answer)(void *arg, bool ok, const char *text),
              void *arg, struct error *e)
{
    _close_ int far = -1;
    int ends[2], rc;

    if (q->pid > 0) {
        return error_text(e, EBUSY, "Slurm is being asked already");
    }
    q->timer = loop_timer_create(loop, q);
    if (!q->timer) {
        return error_set(e, ENOMEM, "ask Slurm");
    }
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0) {
        loop_timer_close(take_ptr(&q->timer));
        return error_set(e, errno, "make a pipe");
    }
    far = ends[1];
    q->out = ends[0];
    q->children = children;
    q->is_late = false;
    q->on_answer = on_answer;
    q->arg = arg;
    rc = spawn(q, words, env, far, e);
    if (rc < 0) {
        close_question(q);
        return rc;
    }
    uv_timer_start(q->timer, on_late, LATE_MS, 0);
    return 0;
}

void slurm_ask_forget(struct slurm_ask *q)
{
    close_question(q);
    if (q->pid > 0) {
        child_kill(q->children, q->pid, SIGKILL);
    }
}
