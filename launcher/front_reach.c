/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which hosts the next MPI world is made of. Those of living agents are in it: it
 * is made for them. Any other is asked first, for mpirun fails as a whole with one
 * that does not answer: `muster reach` does it, under a deadline, while this loop
 * goes on. One that answers gets a new agent; Slurm's are left out, for Slurm has
 * given them up, too, unless their agents live, and mpirun hangs there. front_grow.c asks
 * in between.
 *
 * A host that does not answer, or does and gets no agent, is asked again after a
 * pause, which doubles each time. Hosts at which mpirun hangs are asked by an mpirun
 * (front_hung.c).
 */
#include <config.h>

#include "launcher/front_priv.h"

#include "base/cleanup.h"
#include "launcher/cmd_run.h"

#include <errno.h>
#include <stdlib.h>

enum {
    FRESH_MS = 15000,      /* for so long an answer counts */
    FIRST_PAUSE_MS = 5000, /* between two questions to a host ... */
    LAST_PAUSE_MS = 60000, /* ... at most */
    MAX_NAMED = 8, /* hosts in one message */
};

/* Nobody has to ask this machine: that it asks is the answer. */
static void answer_by_itself(struct reach_host *h, uint64_t now_ms)
{
    h->is_out = h->is_asked = false;
    h->answered_ms = now_ms;
}

/* Leaves out who is not there, but for those that have just answered. The rest of
 * them that may be asked now; how many these are. */
static size_t find_lost(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    bool is_slurm = hosts->source == HOSTS_SLURM;
    uint64_t now = front_now_ms(f);
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        h->is_asked = false;
        h->is_tried = front_host_hangs(f, i);
        if (!front_is_newcomer(f, i)) {
            h->is_out = false;
            h->again_ms = h->pause_ms = h->answered_ms = 0;
        } else if (!h->answered_ms || now - h->answered_ms > FRESH_MS) {
            h->is_out = true;
            h->is_asked = now >= h->again_ms && (!is_slurm || h->is_tried);
            if (h->is_asked && hosts->items[i].is_local) {
                answer_by_itself(h, now);
            }
            n += h->is_asked;
        }
    }
    return n;
}

/* Before the next question to it. */
static void pause_host(struct front *f, struct reach_host *h)
{
    h->pause_ms = !h->pause_ms ? FIRST_PAUSE_MS
                  : h->pause_ms < LAST_PAUSE_MS / 2 ? 2 * h->pause_ms
                                                    : LAST_PAUSE_MS;
    h->again_ms = front_now_ms(f) + h->pause_ms;
}

/* Those that have not answered. */
static void pause_silent(struct front *f)
{
    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (h->is_asked) {
            h->is_asked = false;
            pause_host(f, h);
        }
    }
}

static void tell_left_out(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    _buf_ struct buf names = {0};
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        if (f->reach->hosts[i].is_out && n++ < MAX_NAMED) {
            buf_printf(&names, "%s%s", names.len ? ", " : "",
                       hosts->items[i].name);
        }
    }
    if (n) {
        screen_note(f->screen, "the new MPI world is made without %s%s",
                    buf_str(&names), n > MAX_NAMED ? " and others" : "");
    }
}

/* Those that come in with this world have to show up: until then they are not
 * tried again. */
static void await_newcomers(struct front *f)
{
    for (size_t i = 0; i < f->config->plan.hosts->n; i++) {
        struct reach_host *h = &f->reach->hosts[i];

        if (!h->is_out && front_is_newcomer(f, i)) {
            h->answered_ms = 0;
            h->pause_ms = LAST_PAUSE_MS / 2;
            pause_host(f, h);
        }
    }
}

static void go_on(struct front *f)
{
    tell_left_out(f);
    await_newcomers(f);
    front_repeat_mpirun(f);
}

void front_on_asked(void *arg, const struct child_exit *how)
{
    struct front *f = arg;

    (void)how;
    proc_end_session(f->reach->pid, NULL); /* ssh, or srun, of an mpirun that was killed */
    f->reach->pid = 0;
    if (f->phase == FRONT_OVER) {
        front_finish_if_done(f);
        return;
    }
    front_read_answer(f);
    if (f->reach->is_trial) {
        front_judge_trial(f);
        return;
    }
    pause_silent(f);
    if (f->reach->is_for_world) {
        go_on(f);
    } else {
        front_take_newcomers(f);
    }
}

int front_know_hosts(struct front *f, const bool *absent)
{
    size_t n = f->config->plan.hosts ? f->config->plan.hosts->n : 0;

    f->reach = calloc(1, sizeof(*f->reach));
    if (f->reach) {
        f->reach->answer = -1;
        f->reach->hosts = calloc(n + 1, sizeof(*f->reach->hosts));
    }
    if (!f->reach || !f->reach->hosts) {
        return -ENOMEM;
    }
    for (size_t i = 0; absent && i < n; i++) {
        if (absent[i]) {
            f->reach->hosts[i].is_out = f->reach->hosts[i].came_later = true;
            pause_host(f, &f->reach->hosts[i]);
        }
    }
    return 0;
}

bool front_look_for_hosts(struct front *f)
{
    struct error e = {0};

    if (f->reach->pid) {
        return false;
    }
    f->reach->is_for_world = false;
    if (find_lost(f) > 0) {
        return front_ask_hosts(f, &e) == 0;
    }
    if (front_has_newcomers(f, NULL)) {
        front_take_newcomers(f);
    }
    return false;
}

bool front_has_newcomers(struct front *f, struct buf *names)
{
    const struct host_list *hosts = f->config->plan.hosts;
    size_t n = 0;

    for (size_t i = 0; i < hosts->n; i++) {
        const struct reach_host *h = &f->reach->hosts[i];

        if (!h->is_out && h->answered_ms && front_is_newcomer(f, i) &&
            n++ < MAX_NAMED && names) {
            buf_printf(names, "%s%s", names->len ? ", " : "",
                       hosts->items[i].name);
        }
    }
    return n > 0;
}

void front_choose_hosts(struct front *f)
{
    const struct host_list *hosts = f->config->plan.hosts;
    struct error e = {0};

    if (f->reach->pid) {
        f->reach->is_for_world = true; /* go_on() comes */
        return;
    }
    if (hosts_all_local(hosts)) {
        front_repeat_mpirun(f);
    } else if (front_choose_suspects(f)) {
        f->reach->is_trial = front_ask_hosts(f, &e) == 0;
        f->repeat_at_ms = f->reach->is_trial ? 0 : front_now_ms(f);
    } else if (find_lost(f) == 0 || hosts->source == HOSTS_SLURM) {
        go_on(f);
    } else {
        f->reach->is_for_world = true;
        if (front_ask_hosts(f, &e) < 0) {
            screen_note(f->screen, "lost hosts are not asked whether they are "
                        "back: %s", e.text);
            go_on(f);
        }
    }
}

/* --- those that are left --- */

int front_plan_world(struct front *f, struct mpirun_plan *plan,
                     struct error *e)
{
    const struct host_list *all = f->config->plan.hosts;
    struct front_reach *r = f->reach;

    if (hosts_all_local(all)) {
        return 0;
    }
    host_list_release(&r->world);
    r->world = (struct host_list){.source = all->source};
    r->world.items = calloc(all->n + 1, sizeof(*r->world.items));
    if (!r->world.items) {
        return error_set(e, ENOMEM, "list hosts");
    }
    plan->n_agents = 0;
    for (size_t i = 0; i < all->n; i++) {
        if (!r->hosts[i].is_out) {
            r->world.items[r->world.n++] = all->items[i];
            plan->n_agents += front_agents_of(&f->config->plan, i);
        }
    }
    plan->hosts = &r->world;
    r->n_agents = plan->n_agents;
    return plan->n_agents
               ? run_write_hostfile(f->config->dir, plan, r->path,
                                    sizeof(r->path), e)
               : error_text(e, EHOSTDOWN, "no host is left");
}

bool front_reach_is_gone(struct front *f)
{
    if (!f->reach || !f->reach->pid) {
        return true;
    }
    child_kill(f->children, f->reach->pid, SIGKILL);
    return false;
}

void front_forget_reach(struct front *f)
{
    struct front_reach *r = f->reach;

    if (r) {
        close_fd(&r->answer);
        free(r->hosts);
        host_list_release(&r->world);
        free(r);
        f->reach = NULL;
    }
}
