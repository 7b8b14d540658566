/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/agent_copy.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "launcher/outfit.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct lead_copy {
    struct agent *agent; /* NULL: destroyed */
    struct record *record;
    uv_timer_t timer;
    bool timer_is_closed;
    pid_t pid; /* -1: none */
    int said;  /* what it prints */
    uint64_t began_ms;
    char to[PATH_MAX];
    char newest[PATH_MAX], copied[PATH_MAX], under_way[PATH_MAX];
};

static void free_if_over(struct lead_copy *c)
{
    if (!c->agent && c->timer_is_closed && c->pid < 0) {
        close_fd(&c->said);
        free(c);
    }
}

static void event(struct lead_copy *c, const char *name, const char *text)
{
    record_event(c->record, name,
                 (uint32_t)record_status(c->record)->generation, text, NULL, 0);
}

/* Its last line, without what all its messages begin with. */
static void read_word(const struct lead_copy *c, char *to, size_t size)
{
    static const char prefix[] = "muster: error: ";
    char text[4096];
    ssize_t n = pread(c->said, text, sizeof(text) - 1, 0);
    char *rest = text, *line;

    to[0] = '\0';
    text[n > 0 ? n : 0] = '\0';
    while ((line = strsep(&rest, "\n"))) {
        if (line[0]) {
            str_copy(to, size, str_starts(line, prefix)
                                   ? line + strlen(prefix) : line);
        }
    }
}

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct lead_copy *c = arg;
    char word[1024], span[32];
    _buf_ struct buf text = {0};

    c->pid = -1;
    if (!c->agent) {
        free_if_over(c);
        return;
    }
    read_word(c, word, sizeof(word));
    close_fd(&c->said);
    if (how->code == 0 && !how->signal) {
        str_copy(c->copied, sizeof(c->copied), c->under_way);
        clock_format_span(uv_now(&c->agent->loop) - c->began_ms, span,
                          sizeof(span));
        buf_printf(&text, "%s was copied to %s in %s", c->under_way, c->to, span);
        event(c, "checkpoint_copied", buf_str(&text));
        return;
    }
    buf_printf(&text, "%s was not copied to %s: %s", c->under_way, c->to,
               word[0] ? word : how->signal ? child_signal_name(how->signal)
                                            : "it says nothing");
    event(c, "checkpoint_trouble", buf_str(&text));
}

/* In the environment in which the run was started: what a store asks for is there,
 * and not where this agent was started. */
static int spawn(struct lead_copy *c, struct error *e)
{
    bool is_store = strstr(c->to, "://") != NULL;
    uint32_t keep = c->agent->config.job->checkpoint.copy_keep;
    char program[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    struct child_spec spec = {.path = program, .stdio = {-1, -1, -1},
                              .envp = c->agent->config.env.items,
                              .new_session = true};
    int rc = fs_program(program, sizeof(program), e);

    if (rc < 0) {
        return rc;
    }
    c->said = memfd_create("muster-copy", MFD_CLOEXEC);
    if (c->said < 0) {
        return error_set(e, errno, "make a memory file");
    }
    strlist_add(&argv, "muster");
    strlist_add(&argv, is_store ? "ckpt" : "ckpt-copy");
    if (is_store) {
        strlist_add(&argv, "push");
    } else {
        strlist_addf(&argv, "--keep=%u", keep);
    }
    strlist_add(&argv, "--");
    strlist_add(&argv, c->under_way);
    strlist_add(&argv, c->to);
    if (argv.failed) {
        return error_set(e, ENOMEM, "copy a checkpoint");
    }
    spec.argv = argv.items;
    spec.stdio[1] = spec.stdio[2] = c->said;
    return child_spawn(c->agent->children, &spec, on_exit_, c, &c->pid, e);
}

static void on_timer(uv_timer_t *t)
{
    struct lead_copy *c = t->data;
    char span[32], text[128];
    struct error e = {0};

    if (c->pid > 0) {
        clock_format_span(uv_now(t->loop) - c->began_ms, span, sizeof(span));
        snprintf(text, sizeof(text), "the copy of a checkpoint has been going on "
                 "for %s", span);
        event(c, "checkpoint_trouble", text);
        return;
    }
    if (!c->newest[0] || strcmp(c->newest, c->copied) == 0) {
        return;
    }
    str_copy(c->under_way, sizeof(c->under_way), c->newest);
    c->began_ms = uv_now(t->loop);
    if (spawn(c, &e) < 0) {
        close_fd(&c->said);
        event(c, "checkpoint_trouble", e.text);
    }
}

/* One without a step is written again under its name. */
void lead_copy_saved(struct lead_copy *c, const char *path)
{
    if (c) {
        str_copy(c->newest, sizeof(c->newest), path);
        if (strcmp(c->copied, path) == 0) {
            c->copied[0] = '\0';
        }
    }
}

static void on_closed(uv_handle_t *h)
{
    struct lead_copy *c = h->data;

    c->timer_is_closed = true;
    free_if_over(c);
}

static void on_nobody(void *arg, const struct child_exit *how)
{
    (void)arg;
    (void)how;
}

/* A copy that is not finished is not there. */
void lead_copy_destroy(struct lead_copy *c)
{
    if (!c) {
        return;
    }
    if (c->pid > 0) {
        child_hand_over(c->agent->children, c->pid, on_nobody, NULL);
        child_kill(c->agent->children, c->pid, SIGKILL);
        c->pid = -1;
    }
    c->agent = NULL;
    uv_close((uv_handle_t *)&c->timer, on_closed);
}

int lead_copy_create(struct agent *a, struct record *record,
                     struct lead_copy **ret, struct error *e)
{
    const struct job_checkpoint *k = &a->config.job->checkpoint;
    struct lead_copy *c;
    int rc;

    if (!k->copy_to || !k->watch) {
        return 0;
    }
    c = calloc(1, sizeof(*c));
    if (!c) {
        return error_set(e, ENOMEM, "copy checkpoints");
    }
    rc = strstr(k->copy_to, "://")
             ? fs_path(c->to, sizeof(c->to), e, "%s", k->copy_to)
             : outfit_path(a->config.job, a->config.cwd, k->copy_to, c->to,
                           sizeof(c->to), e);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->agent = a;
    c->record = record;
    c->pid = c->said = -1;
    uv_timer_init(&a->loop, &c->timer);
    c->timer.data = c;
    uv_timer_start(&c->timer, on_timer, k->copy_every_ms, k->copy_every_ms);
    *ret = c;
    return 0;
}
