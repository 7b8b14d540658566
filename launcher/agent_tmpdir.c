/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether the workers' TMPDIR is there: it is the user's, from another host, where a
 * batch system may have made it for one job. Looked at by a thread, for that
 * filesystem may hang.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct looking {
    uv_work_t work;
    struct agent *agent;
    char path[PATH_MAX];
    int problem; /* an errno value, or 0 */
};

static void look(uv_work_t *work)
{
    struct looking *l = work->data;

    l->problem = access(l->path, W_OK | X_OK) < 0 ? errno : 0;
}

static void after_look(uv_work_t *work, int status)
{
    _free_ struct looking *l = work->data;
    const struct agent *a = l->agent;

    if (status < 0 || !l->problem || a->leaving) {
        return;
    }
    agent_note(l->agent, "TMPDIR %.200s %s on %s (%s): what workers put there "
               "fails, or goes to /tmp; set env.TMPDIR to a directory that "
               "every host has", l->path,
               l->problem == ENOENT || l->problem == ENOTDIR
                   ? "is not there" : "cannot be written to",
               a->host, strerror(l->problem));
}

void agent_look_tmpdir(struct agent *a)
{
    const char *path = strlist_getenv(&a->config.job->env, "TMPDIR");
    struct looking *l;

    path = path ? path : strlist_getenv(&a->config.env, "TMPDIR");
    if (!path || path[0] != '/' || strstr(path, "$(")) {
        return; /* that of a worker is not known before it starts */
    }
    l = calloc(1, sizeof(*l));
    if (!l) {
        return;
    }
    l->agent = a;
    l->work.data = l;
    str_copy(l->path, sizeof(l->path), path);
    if (uv_queue_work(&a->loop, &l->work, look, after_look) < 0) {
        free(l);
    }
}
