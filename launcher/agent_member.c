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
#include "launcher/outfit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum {
    LINGER_MS = 1000, /* what workers leave behind, see workers.h */
    MARGIN_MS = 10000,
    PORT_TRIES = 32,
    KV_SHARE = 6, /* a connection to it for so many to the store */
    STORE_MAX_CONNS = 65536,
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

void agent_member_order(struct agent *a, const void *data, size_t len)
{
    struct member_event event = {.type = MEMBER_ORDER};
    _order_ struct order order = {0};
    struct error e = {0};
    struct soon *s;

    if (order_decode(data, len, &order, &e) < 0) {
        agent_log(a, "an order does not parse: %s", e.text);
        return;
    }
    s = queue(a, &event);
    if (s) {
        s->order = order;
        s->event.order = &s->order;
        order = (struct order){0};
    }
}

static void on_member_timer(uv_timer_t *t)
{
    struct member_event tick = {.type = MEMBER_TICK};

    agent_member_step(t->data, &tick);
}

/* --- the store of a generation --- */

static void close_store(struct agent *a)
{
    store_server_destroy(a->store, NULL, NULL);
    kv_server_destroy(a->kv);
    store_server_destroy(a->relay, NULL, NULL);
    a->relay = NULL;
    a->store = NULL;
    a->kv = NULL;
    a->store_generation = 0;
}

static int allow_hosts(struct agent *a, struct error *e)
{
    _strlist_ struct strlist addrs = {0};
    int rc;

    strlist_add(&addrs, "127.0.0.1");
    strlist_add(&addrs, "::1");
    for (uint32_t i = 0; i < a->roster.n; i++) {
        const struct roster_entry *entry = &a->roster.entries[i];

        for (size_t k = 0; k < entry->n_addrs; k++) {
            strlist_add(&addrs, entry->addrs[k]);
        }
    }
    if (addrs.failed) {
        return error_set(e, ENOMEM, "allow hosts");
    }
    rc = store_server_set_allowed(a->store, (const char *const *)addrs.items,
                                  addrs.n, e);
    return rc < 0 || !a->kv
               ? rc
               : kv_server_set_allowed(a->kv,
                                       (const char *const *)addrs.items,
                                       addrs.n, e);
}

/* Horovod's rendezvous at the third port, where the job asks for one. */
static int open_kv(struct agent *a, const struct store_config *store,
                   struct error *e)
{
    uint16_t port = outfit_third_port(store_server_port(a->store));
    struct kv_config config = {
        .address = store->addresses ? store->addresses[0] : NULL,
        .port = port,
        .max_conns = (unsigned)(store->max_conns / KV_SHARE),
    };

    if (a->config.job->horovod != JOB_HOROVOD_GLOO) {
        return 0;
    }
    return port ? kv_server_create(&a->loop, &config, &a->kv, e)
                : error_text(e, EADDRINUSE, "no port is left for Horovod's "
                             "rendezvous");
}

/* A store at a port whose second one is free as well, where that can be had, and
 * with a server at the third, where one is wanted. */
static int open_servers(struct agent *a, const struct store_config *config,
                        struct error *e)
{
    int rc = -EADDRINUSE;

    for (int i = 0; i < PORT_TRIES; i++) {
        bool is_last = i == PORT_TRIES - 1;

        close_store(a);
        rc = store_server_create(&a->loop, config, &a->store, e);
        if (rc < 0) {
            return rc;
        }
        if (!is_last && !addr_port_is_free(outfit_second_port(
                            store_server_port(a->store)))) {
            continue;
        }
        rc = open_kv(a, config, e);
        if (rc != -EADDRINUSE) {
            return rc;
        }
    }
    return rc;
}

/* Told once a generation: whoever connects could say it for ever. */
static void on_store_refused(void *ctx, const char *peer, const char *why)
{
    struct agent *a = ctx;

    if (!a->store_has_refused) {
        a->store_has_refused = true;
        agent_note(a, "the store on %s has closed a connection from %s: %s",
                   a->host, peer, why);
    }
}

/* What connections leave of the descriptors is for workers, logs and peers. */
static size_t max_store_conns(void)
{
    struct rlimit files;

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 ||
        files.rlim_cur / 4 * 3 >= STORE_MAX_CONNS) {
        return STORE_MAX_CONNS;
    }
    return files.rlim_cur / 4 * 3;
}

static void open_store(struct agent *a, uint32_t generation)
{
    static const char *const loopback[] = {"127.0.0.1", NULL};
    bool local = agent_on_one_host(a);
    struct store_config config = {.addresses = local ? loopback : NULL,
                                  .max_conns = max_store_conns(),
                                  .on_refused = on_store_refused, .ctx = a};
    struct member_event event = {.type = MEMBER_STORE_OPEN,
                                 .generation = generation};
    struct error e = {0};

    if (open_servers(a, &config, &e) < 0 || allow_hosts(a, &e) < 0) {
        close_store(a);
        event.type = MEMBER_STORE_FAILED;
        event.text = e.text;
    } else {
        a->store_generation = generation;
        a->store_has_refused = false;
        event.addr = local ? loopback[0]
                           : a->roster.entries[a->rank].addrs[0];
        event.port = store_server_port(a->store);
    }
    agent_member_soon(a, &event);
}

/* With store: tree the workers of this node have a store of their own, which
 * asks that of rank 0's node. */
static int open_relay(struct agent *a, const struct order *order,
                      struct error *e)
{
    static const char *const loopback[] = {"127.0.0.1", NULL};
    struct store_config config = {.addresses = loopback,
                                  .upstream = order->master_addr,
                                  .upstream_port = order->master_port,
                                  .max_conns = max_store_conns(),
                                  .on_refused = on_store_refused, .ctx = a};
    int rc;

    store_server_destroy(a->relay, NULL, NULL);
    a->relay = NULL;
    if (a->config.job->store != JOB_STORE_TREE || order->n_nodes < 2 ||
        (a->store && a->store_generation == order->generation)) {
        return 0;
    }
    rc = store_server_create(&a->loop, &config, &a->relay, e);
    return rc < 0 ? rc : store_server_set_allowed(a->relay, loopback, 1, e);
}

/* --- actions --- */

static void start_workers(struct agent *a, const struct order *order)
{
    struct error e = {0};
    struct failure f = {.kind = FAILURE_AGENT, .rank = -1, .local_rank = -1,
                        .generation = order->generation, .node = a->rank};
    struct member_event event = {.type = MEMBER_START_FAILED,
                                 .generation = order->generation,
                                 .failure = &f};
    struct rlimit files = {0};

    if (open_relay(a, order, &e) == 0 && crew_start(a, order, &e) == 0) {
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
    agent_member_soon(a, &event);
    event = (struct member_event){.type = MEMBER_GONE,
                                  .generation = order->generation};
    agent_member_soon(a, &event);
}

static void send_report(struct agent *a, const struct report *report)
{
    _buf_ struct buf b = {0};

    report_encode(report, &b);
    tree_report(a->tree, &b);
}

void agent_member_step(struct agent *a, struct member_event *event)
{
    struct member_actions do_;

    if (!a->member || a->leaving) {
        return;
    }
    uv_update_time(&a->loop);
    event->now_ms = uv_now(&a->loop);
    if (member_step(a->member, event, &do_) == -ENOMEM) {
        agent_log(a, "out of memory: an order is lost");
    }
    if (do_.stop != MEMBER_STOP_NONE) {
        crew_stop(a, do_.stop == MEMBER_STOP_KILL);
    }
    if (a->store && a->store_generation <= do_.close_store) {
        close_store(a);
    }
    if (do_.open_store) {
        open_store(a, do_.open_store);
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
        .lease_ms = a->config.job->heartbeat_timeout_ms,
        .join_ms = a->config.job->gang_timeout_ms,
        .linger_ms = LINGER_MS,
        .margin_ms = MARGIN_MS,
    };
    struct member_event event = {.type = MEMBER_UPLINK_UP};
    int rc;

    uv_update_time(&a->loop);
    rc = member_create(&config, uv_now(&a->loop), &a->member, e);
    if (rc == 0) {
        agent_member_soon(a, &event);
    }
    return rc;
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
    close_store(a);
}
