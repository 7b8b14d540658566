/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether what is on the disk is what was saved: the lead has checkpoints read again, one
 * at a time and when nobody else wants the disk. The newest that was right stays until a
 * newer one is; so not each of them is read, but one where the last that was would have
 * to go.
 */
#include <config.h>

#include "launcher/agent_snap_lead_priv.h"

#include "base/str.h"
#include "base/thread.h"

#include <errno.h>
#include <string.h>

enum { LAST_MS = 10000 };

void lead_check_know(const struct lead_snap *l, struct lead_save *s)
{
    const struct lead_check *c = &l->check;
    bool is_read = c->is_running && strcmp(c->reading.root, s->root) == 0;

    str_copy(s->verified, sizeof(s->verified),
             strcmp(c->right.root, s->root) == 0 ? c->right.name : "");
    str_copy(s->checking, sizeof(s->checking), is_read ? c->reading.name : "");
}

static void set_checked(struct lead_checked *to, const struct lead_save *s)
{
    to->step = s->step;
    str_copy(to->uuid, sizeof(to->uuid), s->uuid);
    str_copy(to->root, sizeof(to->root), s->root);
    step_name(s->step, s->uuid, to->name);
}

void lead_check_right(struct lead_snap *l, const struct lead_save *s)
{
    set_checked(&l->check.right, s);
}

void lead_check_give_way(struct lead_snap *l)
{
    bool is_held = false;

    for (const struct lead_save *s = l->saves; s && !is_held; s = s->next) {
        is_held = !s->is_settled && !lead_save_is_parked(s);
    }
    reread_gate_hold(&l->check.gate, is_held);
}

void lead_check_end(struct lead_snap *l)
{
    l->check.last_until_ms = uv_now(&l->agent->loop) + LAST_MS;
}

bool lead_check_is_awaited(const struct lead_snap *l)
{
    return l->is_ending && l->check.is_running &&
           uv_now(&l->agent->loop) < l->check.last_until_ms;
}

/* --- what came of it --- */

static void do_tidy(void *arg)
{
    const struct lead_check *c = arg;

    snap_tidy(&c->tidy, io_system());
}

static void work_on_tidy(uv_work_t *work)
{
    thread_apart(do_tidy, work->data, -1);
}

static void after_tidy(uv_work_t *work, int status)
{
    struct lead_check *c = work->data;

    (void)status;
    c->tidying.data = NULL;
    lead_snap_tell_best(c->lead, c->lacks_best, c->tidied.root);
    lead_snap_worked(c->lead);
}

/* What could not go before. */
static void tidy(struct lead_check *c)
{
    struct lead_snap *l = c->lead;

    c->is_missed = l->n_works > 0;
    if (c->is_missed || l->has_dropped) { /* or the directory is another run's by now */
        return;
    }
    c->tidied = c->right; /* the next one may be found right before this is done */
    lead_snap_pinned(l, c->tidied.root, c->pinned);
    lead_snap_copied(l, c->tidied.root, c->copied);
    lead_snap_source(l, c->tidied.root, c->source);
    lead_snap_avoided(l, c->avoided);
    c->tidy = (struct snap_commit){
        .root = c->tidied.root,
        .gather = {.step = c->tidied.step, .uuid = c->tidied.uuid},
        .rule = lead_snap_rule(l),
        .best = l->agent->config.job->checkpoint.keep_best, .pinned = c->pinned,
        .copied = c->copied,
        .source = c->source,
        .avoided = c->avoided,
        .office = &l->office, .lease = lead_lease_of(l, c->tidied.root, NULL),
        .verified = c->tidied.name,
        .checking = c->is_running ? c->reading.name : NULL,
        .ret_lacks_best = &c->lacks_best,
    };
    c->lacks_best = false;
    if (!c->tidy.lease) { /* for want of memory: another run may save there */
        return;
    }
    c->tidying.data = c;
    l->n_works++;
    uv_queue_work(&l->agent->loop, &c->tidying, work_on_tidy, after_tidy);
}

void lead_check_worked(struct lead_snap *l)
{
    if (l->check.is_missed) {
        tidy(&l->check);
    }
}

static void work_on(uv_work_t *work)
{
    struct lead_check *c = work->data;

    c->rc = snap_reread(c->reading.root, c->reading.name, &c->gate, false, &c->error);
}

static void after_work(uv_work_t *work, int status)
{
    struct lead_check *c = work->data;
    struct lead_snap *l = c->lead;

    c->is_running = false;
    if (l->is_dying || status < 0) {
        lead_snap_may_go(l);
        return;
    }
    if (c->rc == 0) {
        c->right = c->reading;
        tidy(c);
    } else if (c->rc == -ERR_FORMAT) {
        agent_note(l->agent, "%s/%s is damaged: %s; older ones stay until a newer one "
                   "is whole", c->reading.root, c->reading.name, c->error.text);
    } else if (c->rc != -ENOENT && c->rc != -ECANCELED) { /* else it has gone */
        agent_log(l->agent, "%s/%s was not read again: %s", c->reading.root,
                  c->reading.name, c->error.text);
    }
    if (l->is_ending) {
        lead_snap_look(l); /* somebody may wait for it */
    }
}

void lead_check_want(struct lead_snap *l, const struct lead_save *s)
{
    struct lead_check *c = &l->check;

    if (c->is_running || l->is_dying || c->tidying.data) {
        return;
    }
    c->lead = l;
    c->error = (struct error){0};
    set_checked(&c->reading, s);
    c->work.data = c;
    c->is_running = true;
    uv_queue_work(&l->agent->loop, &c->work, work_on, after_work);
}
