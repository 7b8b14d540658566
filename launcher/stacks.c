/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/stacks.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/loop_timer.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { MAX_TEXT = 4 << 20 };

struct stacks {
    struct child_table *children;
    stacks_done_f *done; /* NULL: cancelled */
    void *arg;
    uv_timer_t *late;
    pid_t pid;
    char prefix[PATH_MAX];
    char out[PATH_MAX];
};

/* The prefix is a path of our own, without anything that a pattern means. */
void stacks_remove(const char *prefix)
{
    char pattern[PATH_MAX];
    glob_t found;

    if (fs_path(pattern, sizeof(pattern), NULL, "%s.*", prefix) < 0 ||
        glob(pattern, GLOB_NOSORT, NULL, &found) != 0) {
        return;
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        unlink(found.gl_pathv[i]);
    }
    globfree(&found);
}

static void kill_helper(struct stacks *s)
{
    child_kill_group(s->children, s->pid, SIGKILL);
}

static void on_late(uv_timer_t *t)
{
    kill_helper(t->data);
}

/* What it writes is text, but the command line of a process may be anything. */
static void on_exit_(void *arg, const struct child_exit *how)
{
    struct stacks *s = arg;
    _free_ char *text = NULL;
    size_t len = 0;

    if (how->signal) {
        kill_helper(s); /* what it had started */
    }
    if (fs_read(s->out, MAX_TEXT, &text, &len, NULL) < 0) {
        text = NULL;
        len = 0;
    }
    for (size_t i = 0; i < len; i++) {
        text[i] = text[i] ? text[i] : ' ';
    }
    stacks_remove(s->prefix);
    if (s->done) {
        s->done(s->arg, text ? text : "");
    }
    loop_timer_close(s->late);
    free(s);
}

void stacks_cancel(struct stacks *s)
{
    if (s) {
        s->done = NULL;
        kill_helper(s);
    }
}

static int spawn(struct stacks *s, const struct stacks_config *config,
                 struct error *e)
{
    char helper[PATH_MAX];
    _strlist_ struct strlist argv = {0};
    _close_ int out = -1;
    struct child_spec spec = {.path = helper, .envp = environ,
                              .new_session = true};
    int rc = fs_helper("muster-stacks", helper, sizeof(helper), e);

    if (rc < 0) {
        return rc;
    }
    out = open(s->out, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (out < 0) {
        return error_set(e, errno, "open %s", s->out);
    }
    strlist_add(&argv, helper);
    strlist_add(&argv, s->prefix);
    for (size_t i = 0; i < config->n_pids && i < STACKS_MAX_PIDS; i++) {
        strlist_addf(&argv, "%ld", (long)config->pids[i]);
    }
    if (argv.failed) {
        return error_set(e, ENOMEM, "run %s", helper);
    }
    spec.argv = argv.items;
    spec.stdio[0] = spec.stdio[2] = -1;
    spec.stdio[1] = out;
    return child_spawn(s->children, &spec, on_exit_, s, &s->pid, e);
}

int stacks_start(const struct stacks_config *config, struct stacks **ret,
                 struct error *e)
{
    struct stacks *s = calloc(1, sizeof(*s));
    uv_timer_t *late = loop_timer_create(config->loop, s);
    int rc = s && late ? fs_path(s->out, sizeof(s->out), e, "%s.out",
                                 config->prefix)
                       : error_set(e, ENOMEM, "look where a worker is");

    if (rc == 0) {
        s->children = config->children;
        s->done = config->done;
        s->arg = config->arg;
        str_copy(s->prefix, sizeof(s->prefix), config->prefix);
        rc = spawn(s, config, e);
    }
    if (rc < 0) {
        free(s);
        loop_timer_close(late);
        return rc;
    }
    s->late = late;
    uv_timer_start(late, on_late, STACKS_MS, 0);
    *ret = s;
    return 0;
}

int stacks_python_dir(char *to, size_t size, struct error *e)
{
    char helper[PATH_MAX];
    int rc = fs_helper("muster-stacks", helper, sizeof(helper), e);
    char *slash = rc < 0 ? NULL : strrchr(helper, '/');

    if (!slash) {
        return rc;
    }
    *slash = '\0';
    return fs_path(to, size, e, "%s/muster-python", helper);
}
