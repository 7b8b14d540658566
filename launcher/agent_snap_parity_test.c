/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the lead hears of parity that an agent keeps: that it is whole, again and again until
 * the save is settled, and at once where another agent leads.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/fs.h"
#include "base/str.h"
#include "launcher/lead_bed.h"
#include "launcher/snap_bed.h"
#include "launcher/snap_parity_priv.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct order order;
static char told[1024]; /* the lead, of parity */
static int n_told, n_finished;

const struct order *__wrap_member_order(const struct member *m);
void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);
void __wrap_crew_finish(struct crew *c);

const struct order *__wrap_member_order(const struct member *m)
{
    (void)m;
    return &order;
}

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    if (memmem(w->to->data, w->to->len, "\"snap_parity\"", 13)) {
        n_told++;
        snprintf(told, sizeof(told), "%.*s", (int)w->to->len, w->to->data);
    }
}

void __wrap_crew_finish(struct crew *c)
{
    (void)c;
    n_finished++;
}

/* Of ranks 4 and 8 of two other agents, of which all has come. */
static void keep(struct agent_snap *p)
{
    const struct parity_group g = {.shape = {4, 1}, .agents = {0, 1, 2, 3},
                                   .ranks = {0, 4, 8, PARITY_NO_RANK}};
    const struct snap_head h = {.uuid = UUID(1), .root = "/x", .step = 9, .generation = 3,
                                .token = 77, .rank = 4, .n_ranks = 12};
    struct parity_kept *k = parity_kept_add(p->parity, &g, &h);

    if (!k) {
        bail_out("memory");
    }
    k->heads[1] = k->heads[2] = h;
    k->coming[1] = k->coming[2] = PARITY_THERE;
    k->is_whole = true;
}

static void hold_own(struct agent_snap *p)
{
    struct saved *s = calloc(1, sizeof(*s));

    if (!s) {
        bail_out("memory");
    }
    str_copy(s->head.uuid, sizeof(s->head.uuid), UUID(1));
    s->stage = SNAP_STAGE_WRITTEN;
    p->saved = s;
}

/* Time has come to tell what is not settled. */
static void tell_in_time(struct crew *c)
{
    int n = n_finished;

    c->agent->snap->waits = c;
    agent_snap_hurry(c);
    while (n_finished == n) {
        uv_run(&c->agent->loop, UV_RUN_ONCE);
    }
}

static void test_told(struct crew *c)
{
    struct agent *a = c->agent;

    keep(a->snap);
    hold_own(a->snap);
    tell_in_time(c);
    is_int(n_told, 1, "parity that is whole is told of");
    ok(strstr(told, "\"uuid\":\"" UUID(1) "\"") && strstr(told, "\"root\":\"/x\"") &&
           strstr(told, "\"step\":9") && strstr(told, "\"generation\":3") &&
           strstr(told, "\"token\":77") && strstr(told, "\"rank\":4") &&
           strstr(told, "\"ranks\":12"),
       "and of which save it is: %s", told);
    ok(strstr(told, "\"parities\":1") && strstr(told, "[[0,0],[1,4],[2,8],[3,-1]]"),
       "and of whom");
    tell_in_time(c);
    is_int(n_told, 2, "again");
    agent_snap_tell(a);
    is_int(n_told, 3, "another lead hears it before it orders anything");
    agent_partner_settled(a->snap, UUID(1), 9, true);
    tell_in_time(c);
    agent_snap_tell(a);
    is_int(n_told, 3, "not when it is settled");
}

int main(void)
{
    static uint8_t key[CHANNEL_KEY_BYTES];
    struct agent a = {.has_run = true, .key = key};
    struct crew c = {.agent = &a, .generation = 3};
    struct error e = {0};

    lead_bed_make(&a);
    snprintf(a.run.id, sizeof(a.run.id), "agent_snap_parity_test-%d", (int)getpid());
    a.config.job->checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_PARTNER;
    a.config.job->checkpoint.partner = JOB_PARTNER_XOR;
    if (agent_snap_need(&a, &e) < 0) {
        bail_out("no snapshots: %s", e.text);
    }
    test_told(&c);
    agent_snap_stop(&a, false);
    fs_remove_tree(a.run.dir, NULL);
    lead_bed_release(&a);
    return tap_done();
}
