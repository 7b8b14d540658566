/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store of a generation. That with the keys is on the node of worker 0, and
 * opens before the generation runs. Workers of other nodes are its clients, or,
 * in a tree, those of a store of their own node's, which asks it over a trunk:
 * a link to the listener of that node's agent. Then the port of the store itself
 * is for its own node alone.
 */
#include <config.h>

#include "launcher/agent.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "launcher/outfit.h"
#include "rendezvous/store_line.h"

#include <errno.h>
#include <sys/resource.h>

enum {
    PORT_TRIES = 32,
    KV_SHARE = 6, /* a connection to it for so many to the store */
    STORE_MAX_CONNS = 65536,
    TREE_NODES = 128, /* from so many nodes on, where the job does not say */
};

static const char *const loopback[] = {"127.0.0.1", NULL};

void agent_store_close(struct agent *a)
{
    store_server_destroy(a->store, NULL, NULL);
    kv_server_destroy(a->kv);
    store_server_destroy(a->relay, NULL, NULL);
    a->relay = NULL;
    a->store = NULL;
    a->kv = NULL;
    a->store_is_tree = false;
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

/* In a tree, which uses loopback alone, others come through their own node's. */
void agent_store_grow(struct agent *a)
{
    struct error e = {0};

    if (a->store && !a->store_is_tree && allow_hosts(a, &e) < 0) {
        agent_log(a, "the store refuses hosts that are new: %s", e.text);
    }
}

/* Horovod's rendezvous at the third port, where the job asks for one. */
static int open_kv(struct agent *a, const struct store_config *store,
                   struct error *e)
{
    uint16_t port = outfit_third_port(store_server_port(a->store));
    struct kv_config config = {
        .address = agent_on_one_host(a) ? "127.0.0.1" : NULL,
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

        agent_store_close(a);
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
static void on_refused(void *ctx, const char *peer, const char *why)
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

void agent_store_open(struct agent *a, uint32_t generation)
{
    bool local = agent_on_one_host(a);
    bool closed = local || a->config.job->store == JOB_STORE_TREE;
    struct store_config config = {.addresses = closed ? loopback : NULL,
                                  .max_conns = max_store_conns(),
                                  .trunk_timeout_ms =
                                      a->config.job->heartbeat_timeout_ms,
                                  .on_refused = on_refused, .ctx = a};
    struct member_event event = {.type = MEMBER_STORE_OPEN,
                                 .generation = generation};
    struct error e = {0};

    if (open_servers(a, &config, &e) < 0 || allow_hosts(a, &e) < 0) {
        agent_store_close(a);
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

/* All nodes have the same order and the same job, so all come to the same. */
static bool is_tree(const struct agent *a, const struct order *run)
{
    uint32_t n_nodes = layout_of(run->n_procs, run->n_nodes, a->rank).n_groups;

    return a->config.job->store == JOB_STORE_TREE ||
           (a->config.job->store == JOB_STORE_AUTO && n_nodes >= TREE_NODES);
}

static void on_unreached(void *ctx, const char *why)
{
    agent_note(ctx, "workers of %s wait for the store of worker 0's node, which "
               "this node's agent cannot reach: %s; let it connect to the port "
               "of that agent, or set store: direct",
               ((const struct agent *)ctx)->host, why);
}

static int open_relay(struct agent *a, const struct order *run,
                      const struct roster_entry *first, struct error *e)
{
    _strlist_ struct strlist addrs = {0};
    struct store_upstream to = {.port = first->port, .key = a->key,
                                .rank = a->rank,
                                .generation = run->generation};
    struct store_config config = {.addresses = loopback, .upstream = &to,
                                  .max_conns = max_store_conns(),
                                  .on_refused = on_refused,
                                  .on_unreached = on_unreached, .ctx = a};
    int rc;

    for (size_t i = 0; i < first->n_addrs; i++) {
        strlist_add(&addrs, first->addrs[i]);
    }
    if (addrs.failed) {
        return error_set(e, ENOMEM, "store of this node");
    }
    to.addrs = addrs.items;
    rc = store_server_create(&a->loop, &config, &a->relay, e);
    return rc < 0 ? rc : store_server_set_allowed(a->relay, loopback, 1, e);
}

int agent_store_run(struct agent *a, const struct order *run, struct error *e)
{
    uint32_t unused;
    uint32_t first = layout_node_of(run->n_procs, run->n_nodes, 0, &unused);

    store_server_destroy(a->relay, NULL, NULL);
    a->relay = NULL;
    a->store_is_tree = is_tree(a, run);
    if (!a->store_is_tree || first >= a->roster.n) {
        return 0;
    }
    return a->rank == first && a->store
               ? store_server_set_allowed(a->store, loopback, 1, e)
               : open_relay(a, run, &a->roster.entries[first], e);
}

uint16_t agent_store_port(const struct agent *a)
{
    const struct store_server *srv = a->relay ? a->relay : a->store;

    return a->store_is_tree && srv ? store_server_port(srv) : 0;
}

void agent_store_stranger(struct agent *a, struct link *l,
                          const struct channel_frame *first)
{
    struct store_hello h;

    if (store_hello_decode(first, &h) && a->store && h.rank < a->roster.n &&
        h.generation == a->store_generation) {
        store_server_add_trunk(a->store, l, h.rank);
    } else {
        link_close(l);
    }
}
