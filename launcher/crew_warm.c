/* SPDX-License-Identifier: Apache-2.0 */
/*
 * restart.preload: when this node has a warm interpreter, and for whom. It is
 * made, and made anew where it is needed, once all workers of a generation are
 * there: it must not make them wait. Of what it cannot do the run is told once,
 * and workers start plainly.
 */
#include <config.h>

#include "launcher/crew.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/warm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RENEWALS = 3 };

static void tell_over(struct agent *a, const char *why)
{
    size_t len = strcspn(why, "\n");

    a->warm_is_over = true;
    agent_note(a, "restart.preload: no warm interpreter on %s, workers start "
               "plainly: %.*s", a->host, (int)len, why);
    for (why += len; *why; why += len) {
        why++;
        len = strcspn(why, "\n");
        agent_note(a, "restart.preload: | %.*s", (int)len, why);
    }
}

static bool is_wanted(const struct crew *c)
{
    return c->agent->config.job->restart.preload.n && c->layout.n_local &&
           !c->agent->warm_is_over;
}

/* Whether it will do for all workers of the crew; what it will not do for is told
 * and ends it. */
static bool fits(struct crew *c)
{
    struct agent *a = c->agent;
    enum warm_fit fit = WARM_FITS;
    struct error why = {0};
    uint32_t i;

    for (i = 0; i < c->layout.n_local && fit == WARM_FITS; i++) {
        const struct outfit *o = &c->list[i].outfit;

        fit = warm_check(a->warm, o->argv.items, o->env.items, &why);
    }
    if (fit == WARM_FITS) {
        return true;
    }
    warm_destroy(take_ptr(&a->warm));
    if (fit == WARM_OLD && i > 1) {
        error_wrap(&why, "workers differ");
    }
    if (fit == WARM_NEVER || i > 1 || ++a->n_warm_renewals > MAX_RENEWALS) {
        tell_over(a, why.text);
    } else {
        agent_note(a, "restart.preload: another interpreter is started on %s: "
                   "%s", a->host, why.text);
    }
    return false;
}

static void on_told(void *arg, const char *text, bool is_over)
{
    struct agent *a = arg;

    if (is_over) {
        tell_over(a, text);
    } else if (!a->crew || fits(a->crew)) {
        agent_note(a, "restart.preload: the interpreter on %s %s", a->host,
                   text);
    }
}

struct warm *crew_warm(struct crew *c)
{
    struct agent *a = c->agent;

    return a->warm && c->layout.n_local && fits(c) ? a->warm : NULL;
}

static int make(struct crew *c, struct error *e)
{
    struct agent *a = c->agent;
    const struct job *job = a->config.job;
    const struct outfit *o = &c->list[0].outfit;
    char hook_dir[PATH_MAX];
    struct warm_config config = {
        .loop = &a->loop,
        .children = a->children,
        .exec_path = a->workers_host.exec_path,
        .hook_dir = hook_dir,
        .argv = o->argv.items,
        .envp = o->env.items,
        .cwd = outfit_cwd(job, a->config.cwd),
        .modules = &job->restart.preload,
        .oom_score_adj = OUTFIT_OOM_SCORE_ADJ,
        .on_told = on_told,
        .arg = a,
    };
    int rc;

    if (job->program == JOB_MPI) {
        return error_text(e, EINVAL, "the processes of an MPI program are "
                          "started by its mpirun");
    }
    rc = fs_helper("muster-warm", hook_dir, sizeof(hook_dir), e);
    return rc < 0 ? rc : warm_create(&config, &a->warm, e);
}

void crew_warm_up(struct crew *c)
{
    struct agent *a = c->agent;
    struct error e = {0};

    if (!is_wanted(c)) {
        return;
    }
    if (!a->warm && make(c, &e) < 0) {
        tell_over(a, e.text);
        return;
    }
    if (fits(c)) {
        warm_fill(a->warm, c->layout.n_local);
    }
}

void crew_warm_end(struct agent *a)
{
    warm_destroy(take_ptr(&a->warm));
}
