/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the member and the world: hands it events, carries out its actions.
 *
 * Carrying out an action can make the next event at once (a store that opens, a
 * start that fails). The member must not be stepped inside its own actions, so
 * such events wait in a queue for the next turn of the loop.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/agent_snap.h"
#include "launcher/agent_steps.h"
#include "launcher/outfit.h"
#include "rendezvous/restart.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    LINGER_MS = 1000, /* what workers leave behind, see workers.h */
    MARGIN_MS = 10000,
};

struct soon {
    struct soon *next;
    struct member_event event;
    struct failure failure;
    struct order order;
    char addr[ORDER_ADDR_BYTES];
    char text[ORDER_TEXT_BYTES];
};

static void soon_destroy(struct soon *s)
{
    order_release(&s->order);
    free(s);
}

static void on_soon(uv_timer_t *t)
{
    struct agent *a = t->data;

    while (a->soon) {
        struct soon *s = a->soon;

        a->soon = s->next;
        if (s->event.type == MEMBER_ORDER) {
            /* A worker that died by itself just before must be known as such:
             * the order may be to stop it. */
            child_table_reap(a->children);
        }
        agent_member_step(a, &s->event);
        soon_destroy(s);
    }
}

static struct soon *queue(struct agent *a, const struct member_event *event)
{
    struct soon *s = calloc(1, sizeof(*s));
    struct soon **at = &a->soon;

    if (!s) {
        agent_log(a, "out of memory: an event is lost");
        return NULL;
    }
    s->event = *event;
    while (*at) {
        at = &(*at)->next;
    }
    *at = s;
    uv_timer_start(&a->soon_timer, on_soon, 0, 0);
    return s;
}

void agent_member_soon(struct agent *a, const struct member_event *event)
{
    struct soon *s = queue(a, event);

    if (!s) {
        return;
    }
    if (event->failure) {
        s->failure = *event->failure;
        s->event.failure = &s->failure;
    }
    if (event->addr) {
        str_copy(s->addr, sizeof(s->addr), event->addr);
        s->event.addr = s->addr;
    }
    if (event->text) {
        str_copy(s->text, sizeof(s->text), event->text);
        s->event.text = s->text;
    }
}

void agent_member_order(struct agent *a, const struct order *order)
{
    struct member_event event = {.type = MEMBER_ORDER};
    struct soon *s = queue(a, &event);

    if (s && order_copy(&s->order, order) < 0) {
        agent_log(a, "out of memory: an order is lost");
    }
    if (s) {
        s->event.order = &s->order;
    }
}

static void on_member_timer(uv_timer_t *t)
{
    struct member_event tick = {.type = MEMBER_TICK};

    agent_member_step(t->data, &tick);
}

/* --- actions --- */

/* What the kernel refuses before there is a process, and would refuse again. */
static void blame_command(const struct agent *a, struct failure *f)
{
    f->kind = FAILURE_EXEC;
    f->exit_code = RUN_NOT_EXECUTABLE;
    snprintf(f->text, sizeof(f->text), "cannot run %.200s: its arguments and "
             "environment are too long together", a->config.job->command.items[0]);
}

static void start_workers(struct agent *a, const struct order *order)
{
    struct error e = {0};
    struct failure f = {.kind = FAILURE_AGENT, .rank = -1, .local_rank = -1,
                        .generation = order->generation, .node = a->rank};
    struct member_event event = {.type = MEMBER_START_FAILED,
                                 .generation = order->generation,
                                 .failure = &f};
    struct rlimit files = {0};

    if (agent_store_run(a, order, &e) == 0 && crew_start(a, order, &e) == 0) {
        return;
    }
    if (e.code == EMFILE) {
        getrlimit(RLIMIT_NOFILE, &files);
        error_wrap(&e, "%u workers need more open files than the limit of %llu "
                   "(ulimit -Hn)", a->n_procs,
                   (unsigned long long)files.rlim_cur);
    }
    str_copy(f.host, sizeof(f.host), a->host);
    str_copy(f.text, sizeof(f.text), e.text);
    if (e.code == E2BIG) {
        blame_command(a, &f);
    }
    agent_member_soon(a, &event);
    event = (struct member_event){.type = MEMBER_GONE,
                                  .generation = order->generation};
    agent_member_soon(a, &event);
}

static void send_report(struct agent *a, const struct report *report)
{
    _buf_ struct buf b = {0};

    if (!agent_heir_may_report(a)) {
        return; /* it comes again */
    }
    if (report->state == REPORT_JOINED) {
        agent_snap_tell(a); /* the order that follows is to know of it */
    }
    report_encode(report, &b);
    tree_report(a->tree, &b);
}

void agent_member_step(struct agent *a, struct member_event *event)
{
    struct member_actions do_;
    int rc;

    if (!a->member || a->leaving) {
        return;
    }
    uv_update_time(&a->loop);
    event->now_ms = uv_now(&a->loop);
    rc = member_step(a->member, event, &do_);
    agent_steps_member(a, event, rc, &do_);
    if (rc == -ENOMEM) {
        agent_log(a, "out of memory: an order is lost");
    }
    if (do_.stop != MEMBER_STOP_NONE) {
        crew_stop(a, do_.stop == MEMBER_STOP_KILL);
    }
    if (a->store && a->store_generation <= do_.close_store) {
        agent_store_close(a);
    }
    if (do_.open_store) {
        agent_store_open(a, do_.open_store);
    }
    if (do_.start) {
        start_workers(a, do_.start);
    }
    if (do_.wake_ms != MEMBER_NEVER) {
        uint64_t now = uv_now(&a->loop);

        uv_timer_start(&a->member_timer, on_member_timer,
                       do_.wake_ms > now ? do_.wake_ms - now : 0, 0);
    } else {
        uv_timer_stop(&a->member_timer);
    }
    if (do_.send) {
        send_report(a, do_.send);
    }
    if (do_.leave) {
        agent_leave(a, member_status(a->member), member_reason(a->member));
    }
}

int agent_member_start(struct agent *a, struct error *e)
{
    struct member_config config = {
        .rank = a->rank,
        .n_procs = a->n_procs,
        .host = a->host,
        .lease_ms = agent_lease_ms(a),
        .waits = a->heir != NULL,
        .join_ms = a->config.job->gang_timeout_ms,
        .linger_ms = LINGER_MS,
        .margin_ms = MARGIN_MS,
    };

    uv_update_time(&a->loop);
    agent_steps_member_begins(a, &config, uv_now(&a->loop));
    return member_create(&config, uv_now(&a->loop), &a->member, e);
}

void agent_member_report(struct agent *a)
{
    struct member_event event = {.type = MEMBER_UPLINK_UP};

    agent_member_soon(a, &event);
}

void agent_member_stop(struct agent *a)
{
    uv_timer_stop(&a->member_timer);
    uv_timer_stop(&a->soon_timer);
    while (a->soon) {
        struct soon *s = a->soon;

        a->soon = s->next;
        soon_destroy(s);
    }
    agent_store_close(a);
}
