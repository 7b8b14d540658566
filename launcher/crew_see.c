/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether this node sees the checkpoint that its workers start from: one agent chose
 * it for all, and a directory may be another one on each node. A child looks, since
 * that may hang; nobody waits for it. Workers start in any case: not all have to read
 * it.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/str.h"
#include "launcher/agent_look.h"

#include <stdlib.h>

struct crew_see {
    struct agent *agent;
    char path[ORDER_PATH_BYTES];
};

static void on_exit_(void *arg, const struct child_exit *how)
{
    struct crew_see *s = arg;

    if (how->code == 1 && !s->agent->leaving) {
        agent_note(s->agent, "%s does not see the checkpoint that its workers "
                   "start from, %s", s->agent->host, s->path);
    }
    free(s);
}

void crew_see(struct agent *a, const char *path)
{
    struct crew_see *s = path[0] ? calloc(1, sizeof(*s)) : NULL;
    pid_t pid;

    if (!s) {
        return;
    }
    s->agent = a;
    str_copy(s->path, sizeof(s->path), path);
    if (agent_look_start(a, path, on_exit_, s, &pid) < 0) {
        free(s);
    }
}
