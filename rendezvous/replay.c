/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/replay.h"

#include "base/cleanup.h"
#include "rendezvous/steps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The core of one agent. */
struct core {
    struct replay *all;
    uint32_t rank;
    struct member *member;
    struct heir *heir;
    struct lead *lead;
    struct step born, grown; /* names that the lead borrows */
    uint64_t serial;         /* of its newest order */
    uint32_t ordered, started; /* generations */
};

void replay_release(struct replay *r)
{
    free(r->runs);
    *r = (struct replay){0};
}

static void core_release(struct core *c)
{
    member_destroy(c->member);
    heir_destroy(c->heir);
    lead_destroy(c->lead);
    step_release(&c->born);
    step_release(&c->grown);
}

static int add_run(struct core *c, const struct order *o, bool started,
                   struct error *e)
{
    struct replay *all = c->all;
    struct replay_run run = {
        .rank = c->rank, .started = started, .view = o->view.number,
        .lead = o->view.lead, .generation = o->generation};

    if (all->n_runs == all->cap_runs) {
        size_t cap = all->cap_runs ? 2 * all->cap_runs : 64;
        void *to = reallocarray(all->runs, cap, sizeof(*all->runs));

        if (!to) {
            return error_set(e, ENOMEM, "replay");
        }
        all->runs = to;
        all->cap_runs = cap;
    }
    all->runs[all->n_runs++] = run;
    return 0;
}

/* --- one step each --- */

static int differ(const struct step *s, const struct buf *now, struct error *e)
{
    const uint8_t *was = s->outcome;
    size_t at = 0;

    if (now->failed) {
        return error_set(e, ENOMEM, "replay");
    }
    if (now->len == s->outcome_len && !memcmp(was, now->data, now->len)) {
        return 0;
    }
    while (at < now->len && at < s->outcome_len &&
           was[at] == (uint8_t)now->data[at]) {
        at++;
    }
    return error_text(e, EINVAL, "it says something else than was recorded, from "
                      "byte %zu of %zu (now %zu) on", at, s->outcome_len, now->len);
}

static int step_member(struct core *c, const struct step *s, struct error *e)
{
    struct member_actions do_;
    _buf_ struct buf now = {0};
    int rc;

    if (!c->member) {
        return error_text(e, EINVAL, "a member that has not begun");
    }
    rc = member_step(c->member, &s->member, &do_);
    steps_put_member_outcome(&now, c->member, rc, &do_);
    if (do_.start) {
        if (do_.start->generation <= c->started) {
            return error_text(e, EINVAL, "the member starts generation %u after "
                              "%u", do_.start->generation, c->started);
        }
        c->started = do_.start->generation;
        rc = add_run(c, do_.start, true, e);
        if (rc < 0) {
            return rc;
        }
    }
    return differ(s, &now, e);
}

static int step_heir(struct core *c, const struct step *s, struct error *e)
{
    struct heir_actions do_;
    _buf_ struct buf now = {0};
    int rc;

    if (!c->heir) {
        return error_text(e, EINVAL, "an heir that has not begun");
    }
    rc = heir_step(c->heir, &s->heir, &do_);
    steps_put_heir_outcome(&now, c->heir, rc, &do_);
    return differ(s, &now, e);
}

static int take_order(struct core *c, const struct order *o, struct error *e)
{
    if (o->serial <= c->serial || o->generation < c->ordered) {
        return error_text(e, EINVAL, "the lead's order %llx of generation %u comes "
                          "after %llx of %u", (unsigned long long)o->serial,
                          o->generation, (unsigned long long)c->serial, c->ordered);
    }
    c->serial = o->serial;
    c->ordered = o->generation;
    return o->step == ORDER_RUN ? add_run(c, o, false, e) : 0;
}

static int step_lead(struct core *c, const struct step *s, struct error *e)
{
    _free_ struct lead_actions *do_ = calloc(1, sizeof(*do_));
    _buf_ struct buf now = {0};
    int rc;

    if (!c->lead || !do_) {
        return error_text(e, do_ ? EINVAL : ENOMEM, "a lead that has not begun");
    }
    rc = lead_step(c->lead, &s->lead, do_);
    steps_put_lead_outcome(&now, c->lead, rc, do_);
    rc = do_->order ? take_order(c, do_->order, e) : 0;
    return rc < 0 ? rc : differ(s, &now, e);
}

/* --- begins --- */

static int begin_lead(struct core *c, struct step *s, struct error *e)
{
    lead_destroy(c->lead);
    c->lead = NULL;
    step_release(&c->born);
    step_release(&c->grown);
    c->ordered = 0; /* it may have led before */
    c->all->n_leads++;
    c->born = *s;
    *s = (struct step){0};
    if (c->born.lead_config.heritage) {
        c->born.lead_config.heritage = &c->born.heritage;
    }
    return lead_create(&c->born.lead_config, c->born.now_ms, &c->lead, e);
}

static int grow_lead(struct core *c, struct step *s, struct error *e)
{
    int rc;

    if (!c->lead || s->n_nodes < c->born.lead_config.n_nodes ||
        s->n_nodes < c->grown.n_nodes) {
        return error_text(e, EINVAL, "a lead that has not begun grows, or one "
                          "shrinks");
    }
    rc = lead_add_nodes(c->lead, s->n_nodes, (const char *const *)s->names,
                        s->node_of);
    step_release(&c->grown);
    c->grown = *s;
    *s = (struct step){0};
    return rc;
}

static int take_step(struct core *c, struct step *s, struct error *e)
{
    switch (s->kind) {
    case STEPS_MEMBER_CREATE:
        member_destroy(take_ptr(&c->member));
        return member_create(&s->member_config, s->now_ms, &c->member, e);
    case STEPS_HEIR_CREATE:
        heir_destroy(take_ptr(&c->heir));
        return heir_create(&s->heir_config, s->now_ms, &c->heir, e);
    case STEPS_LEAD_CREATE:
        return begin_lead(c, s, e);
    case STEPS_HEIR_GROW:
        return c->heir ? heir_grow(c->heir, s->n_nodes, s->node_of)
                       : error_text(e, EINVAL, "an heir that has not begun");
    case STEPS_LEAD_GROW:
        return grow_lead(c, s, e);
    case STEPS_MEMBER:
        return step_member(c, s, e);
    case STEPS_HEIR:
        return step_heir(c, s, e);
    case STEPS_LEAD:
        return step_lead(c, s, e);
    case STEPS_CUT:
        break;
    }
    return 0;
}

int replay_log(struct replay *r, const void *data, size_t len, struct error *e)
{
    struct steps_reader reader;
    struct core c = {.all = r};
    _free_ struct step *s = calloc(1, sizeof(*s));
    uint64_t before = r->n_steps;
    size_t at = 0;
    int rc = s ? steps_open(data, len, &reader, e)
               : error_set(e, ENOMEM, "replay");

    c.rank = rc < 0 ? 0 : reader.rank;
    while (rc == 0) {
        at = reader.at;
        rc = steps_next(&reader, s, e);
        if (rc <= 0) {
            break;
        }
        rc = take_step(&c, s, e);
        r->n_steps++;
        step_release(s);
        if (rc < 0) {
            error_wrap(e, "step %llu, at byte %zu",
                       (unsigned long long)(r->n_steps - before), at);
        }
    }
    core_release(&c);
    return rc;
}

/* --- all logs together --- */

static int check_pair(const struct replay_run *a, const struct replay_run *b,
                      struct error *e)
{
    if (a->view == b->view && a->lead != b->lead) {
        return error_text(e, EINVAL, "view %u has the leads %u and %u", a->view,
                          a->lead, b->lead);
    }
    if (a->generation == b->generation && a->lead != b->lead) {
        return error_text(e, EINVAL, "generation %u is of node %u (view %u) and of "
                          "node %u (view %u)", a->generation, a->lead, a->view,
                          b->lead, b->view);
    }
    if (a->started && b->started && a->view < b->view &&
        a->generation > b->generation) {
        return error_text(e, EINVAL, "generation %u runs in view %u, and %u in view "
                          "%u", a->generation, a->view, b->generation, b->view);
    }
    return 0;
}

int replay_check(const struct replay *r, struct error *e)
{
    for (size_t i = 0; i < r->n_runs; i++) {
        for (size_t k = 0; k < r->n_runs; k++) {
            int rc = check_pair(&r->runs[i], &r->runs[k], e);

            if (rc < 0) {
                return rc;
            }
        }
    }
    return 0;
}
