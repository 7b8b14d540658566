/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_child.h"

#include "base/buf.h"
#include "base/child.h"
#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/commands.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    OUT_BYTES = 64 << 10,
    MAX_LINES = 50, /* in the log, of what it says */
};

struct ckpt_child {
    struct agent *agent;
    ckpt_child_f *on_end;
    void *arg;
    uv_timer_t timer; /* its time is over */
    pid_t pid;
    int out, said;    /* memory files: a pipe that nobody reads would stop it */
    uint64_t began_ms;
    char verb[32];
};

uint64_t ckpt_child_ms(const struct ckpt_child *c)
{
    return uv_now(&c->agent->loop) - c->began_ms;
}

/* --- its end --- */

static void free_child(uv_handle_t *h)
{
    free(h->data);
}

static void release(struct ckpt_child *c)
{
    close_fd(&c->out);
    close_fd(&c->said);
    uv_close((uv_handle_t *)&c->timer, free_child);
}

static void on_nobody(void *arg, const struct child_exit *how)
{
    (void)arg;
    (void)how;
}

/* It may take that in when it can: in a call that hangs, much later. */
static void leave(struct ckpt_child *c)
{
    child_hand_over(c->agent->children, c->pid, on_nobody, NULL);
    child_kill(c->agent->children, c->pid, SIGKILL);
}

static char *read_all(int fd)
{
    char *text = malloc(OUT_BYTES);
    ssize_t n = text ? pread(fd, text, OUT_BYTES - 1, 0) : 0;

    if (text) {
        n = n > 0 ? n : 0;
        while (n > 0 && text[n - 1] == '\n') {
            n--;
        }
        text[n] = '\0';
    }
    return text;
}

/* To the log, and the last line, without what all messages begin with, to `why`. */
static void take_words(const struct ckpt_child *c, char *why, size_t size)
{
    static const char prefix[] = "muster: ", error[] = "error: ";
    _free_ char *text = read_all(c->said);
    char *rest = text, *line;
    int n = 0;

    while (rest && (line = strsep(&rest, "\n"))) {
        line += str_starts(line, prefix) ? strlen(prefix) : 0;
        if (!line[0]) {
            continue;
        }
        if (n++ < MAX_LINES) {
            agent_log(c->agent, "%s: %s", c->verb, line);
        }
        str_copy(why, size, line + (str_starts(line, error) ? strlen(error) : 0));
    }
}

/* `code`: its exit status; `how`: of what it has ended instead, or "". */
static void finish(struct ckpt_child *c, int code, const char *how)
{
    _free_ char *out = read_all(c->out);
    char why[1024] = "";
    struct ckpt_child_end end = {.is_ok = code == EXIT_OK && !how[0],
                                 .may_pass = code == EXIT_RESUMABLE || how[0],
                                 .ms = ckpt_child_ms(c), .out = out ? out : "",
                                 .why = ""};
    ckpt_child_f *on_end = c->on_end;
    void *arg = c->arg;

    take_words(c, why, sizeof(why));
    if (!end.is_ok) {
        end.why = how[0] ? how : why[0] ? why : "it says nothing";
    }
    release(c);
    on_end(arg, &end);
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    char text[64] = "";

    if (how->signal) {
        snprintf(text, sizeof(text), "ended by %s", child_signal_name(how->signal));
    }
    finish(arg, how->code, text);
}

static void on_limit(uv_timer_t *t)
{
    struct ckpt_child *c = t->data;
    char span[32], text[64];

    clock_format_span(ckpt_child_ms(c), span, sizeof(span));
    snprintf(text, sizeof(text), "not done after %s", span);
    leave(c);
    finish(c, -1, text);
}

void ckpt_child_stop(struct ckpt_child *c)
{
    if (c) {
        leave(c);
        release(c);
    }
}

/* --- its begin --- */

static int spawn(struct ckpt_child *c, const struct strlist *argv, struct error *e)
{
    char program[PATH_MAX];
    struct child_spec spec = {.path = program, .argv = argv->items,
                              .envp = c->agent->config.env.items,
                              .new_session = true};
    int rc = fs_program(program, sizeof(program), e);

    if (rc < 0) {
        return rc;
    }
    c->out = memfd_create("muster-ckpt-out", MFD_CLOEXEC);
    c->said = memfd_create("muster-ckpt-said", MFD_CLOEXEC);
    if (c->out < 0 || c->said < 0) {
        return error_set(e, errno, "make a memory file");
    }
    spec.stdio[0] = -1;
    spec.stdio[1] = c->out;
    spec.stdio[2] = c->said;
    return child_spawn(c->agent->children, &spec, on_exit_, c, &c->pid, e);
}

int ckpt_child_start(struct agent *a, const struct strlist *argv, uint64_t limit_ms,
                     ckpt_child_f *on_end, void *arg, struct ckpt_child **ret,
                     struct error *e)
{
    struct ckpt_child *c = argv->failed ? NULL : calloc(1, sizeof(*c));
    int rc;

    if (!c) {
        return error_set(e, ENOMEM, "start a process");
    }
    c->agent = a;
    c->on_end = on_end;
    c->arg = arg;
    c->out = c->said = -1;
    c->began_ms = uv_now(&a->loop);
    snprintf(c->verb, sizeof(c->verb), "%s %s", argv->items[1], argv->items[2]);
    uv_timer_init(&a->loop, &c->timer);
    c->timer.data = c;
    rc = spawn(c, argv, e);
    if (rc < 0) {
        release(c);
        return rc;
    }
    if (limit_ms) {
        uv_timer_start(&c->timer, on_limit, limit_ms, 0);
    }
    *ret = c;
    return 0;
}
