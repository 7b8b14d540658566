/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/fs.h"
#include "launcher/commands.h"

#include <signal.h>

enum {
    STEP_END_MS = 15000, /* for the agents' step to end after the lead */
    STEP_LOST_MS = 3000, /* the same, when a node of it is lost */
    STEP_KILL_MS = 5000, /* for srun to kill it */
};

static void begin(struct front *f)
{
    struct error e = {0};

    if (f->phase == FRONT_STARTING && front_start_mpirun(f, &e) < 0) {
        front_settle(f, EXIT_FAILED, e.text);
    }
}

static void on_step_up(void *arg, const char *why_not)
{
    struct front *f = arg;

    f->is_kept = !why_not;
    if (why_not && f->phase == FRONT_STARTING) {
        screen_note(f->screen, "the agents get no step of their own, and will "
                    "end with that of mpirun: %s", why_not);
    }
    begin(f);
}

static void on_step_end(void *arg)
{
    front_finish_if_done(arg);
}

int front_start_step(struct front *f, struct error *e)
{
    const struct front_config *c = f->config;
    int rc = fs_path(f->step_log, sizeof(f->step_log), e, "%s/agents.log",
                     c->dir->path);

    if (rc < 0 || (rc = fs_path(f->step_nodes, sizeof(f->step_nodes), e,
                                "%s/agents.nodes", c->dir->path)) < 0) {
        return rc;
    }
    f->step_config = (struct agent_step_config){
        .loop = &f->loop,
        .children = f->children,
        .hosts = c->plan.hosts,
        .run_id = c->dir->id,
        .nodelist_path = f->step_nodes,
        .log_path = f->step_log,
        .wait_seconds = c->plan.gather_seconds,
        .on_up = on_step_up,
        .on_end = on_step_end,
        .arg = f,
    };
    if (agent_step_create(&f->step_config, &f->step, e) < 0) {
        on_step_up(f, e->text);
    }
    return 0;
}

/* The step of the agents ends with them: soon after the lead where all is in
 * order, or when their grace time is over. srun waits for a lost node as well,
 * which never answers. One that never had agents is of no use, and one that
 * this process leaves alone goes on. */
bool front_step_is_gone(struct front *f, uint64_t waited)
{
    uint64_t end_ms = !f->began ? 0 : !f->in_order ? FRONT_LEAD_END_MS
                      : f->lost_node ? STEP_LOST_MS : STEP_END_MS;

    if (!agent_step_lives(f->step) || f->leaves_ms || f->n_signals > 2) {
        return true;
    }
    if (waited > end_ms + STEP_KILL_MS) {
        agent_step_kill(f->step, SIGKILL);
    } else if (waited >= end_ms) {
        agent_step_kill(f->step, SIGTERM);
    }
    return false;
}
