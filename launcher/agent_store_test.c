/* SPDX-License-Identifier: Apache-2.0 */
/* From which hosts the store of a generation takes connections. */
#include <config.h>

#include "launcher/agent.h"

#include "base/addr.h"
#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static const char newcomer[] = "127.0.0.5";

struct bed {
    struct agent agent;
    struct roster fresh; /* of the world that comes */
};

static void add_newcomer(struct roster *r)
{
    struct roster_entry entry = {.rank = BED_NODES, .slots = BED_PROCS, .port = 1,
                                 .n_addrs = 1, .host = "elsewhere"};

    str_copy(entry.addrs[0], sizeof(entry.addrs[0]), newcomer);
    roster_add(r, &entry);
}

static void start(struct bed *b)
{
    struct agent *a = &b->agent;
    _buf_ struct buf info = {0};
    char path[PATH_MAX];

    memset(b, 0, sizeof(*b));
    lead_bed_make(a);
    for (uint32_t i = 0; i < BED_NODES; i++) {
        a->roster.entries[i].host_index = i;
        roster_add(&b->fresh, &a->roster.entries[i]);
    }
    add_newcomer(&b->fresh);
    fs_path(path, sizeof(path), NULL, "%s/companion", a->run.dir);
    roster_entry_encode(&a->roster.entries[0], &info);
    if (companion_link_create(&a->loop, path, &info, &agent_companion_ops, a,
                              &a->companion, NULL) < 0) {
        bail_out("no companion's socket");
    }
    a->has_run = true;
    agent_store_open(a, 1);
    if (!a->store) {
        bail_out("no store");
    }
}

static void stop(struct bed *b)
{
    struct agent *a = &b->agent;

    agent_member_stop(a);
    companion_link_destroy(a->companion);
    fs_remove_tree(a->run.dir, NULL);
    roster_release(&b->fresh);
    lead_bed_release(a);
}

static size_t count_conns(const struct agent *a)
{
    struct store_stats stats;

    store_server_stats(a->store, &stats);
    return stats.n_conns;
}

/* Whether it stays; only the newcomer has that address. */
static bool may_connect(struct agent *a)
{
    _close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_storage from, to;
    bool is_in;

    addr_parse(newcomer, 0, &from, NULL);
    addr_parse("127.0.0.1", store_server_port(a->store), &to, NULL);
    if (bind(fd, (struct sockaddr *)&from, sizeof(struct sockaddr_in)) < 0 ||
        connect(fd, (struct sockaddr *)&to, sizeof(struct sockaddr_in)) < 0) {
        bail_out("cannot connect from %s", newcomer);
    }
    a->store_has_refused = false;
    while (!a->store_has_refused && !count_conns(a)) {
        uv_run(&a->loop, UV_RUN_ONCE);
    }
    is_in = count_conns(a);
    close(take_fd(&fd));
    while (count_conns(a)) {
        uv_run(&a->loop, UV_RUN_ONCE);
    }
    return is_in;
}

static void bring_world(struct bed *b)
{
    const struct companion_world w = {.epoch = 2};

    agent_companion_ops.on_world(&b->agent, &w, &b->fresh);
}

static void test_newcomer(void)
{
    struct bed b;

    start(&b);
    ok(!may_connect(&b.agent), "the store is for hosts of the run alone");
    bring_world(&b);
    ok(may_connect(&b.agent), "one that comes in another world is among them");
    stop(&b);
}

/* There workers connect to the store of their own node. */
static void test_newcomer_in_tree(void)
{
    struct bed b;

    start(&b);
    b.agent.store_is_tree = true;
    bring_world(&b);
    ok(!may_connect(&b.agent), "in a tree the store stays closed to others");
    stop(&b);
}

int main(void)
{
    test_newcomer();
    test_newcomer_in_tree();
    return tap_done();
}
