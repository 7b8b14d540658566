/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/wire.h"
#include "rendezvous/roster.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct roster_entry entry(const char *host, uint32_t host_index)
{
    struct roster_entry e = {
        .host_index = host_index, .slots = 2, .port = 4000, .n_addrs = 2,
        .addrs = {"10.0.0.1", "fd00::1"}, .boot_id = "b", .version = "0.1"};

    snprintf(e.host, sizeof(e.host), "%s", host);
    return e;
}

static void add(struct roster *r, const char *host, uint32_t host_index)
{
    struct roster_entry e = entry(host, host_index);

    if (roster_add(r, &e) < 0) {
        bail_out("roster_add");
    }
}

static void test_sort(void)
{
    _roster_ struct roster r = {0};
    static const struct {
        const char *host;
        uint32_t host_index, origin;
    } want[] = {{"n2", 0, 0}, {"n2", 1, 3}, {"n1", 0, 4}, {"n1", 1, 1},
                {"n10", 0, 2}};

    is_int(roster_sort(&r), 0, "nothing to sort");
    add(&r, "n2", 0);
    is_int(roster_sort(&r), 0, "one");
    add(&r, "n1", 1);
    add(&r, "n10", 0);
    add(&r, "n2", 1);
    add(&r, "n1", 0);
    is_int(roster_sort(&r), 0, "sort");
    for (uint32_t i = 0; i < r.n; i++) {
        is_str(r.entries[i].host, want[i].host, "host %u", i);
        is_int(r.entries[i].host_index, want[i].host_index, "index %u", i);
        is_int(r.entries[i].origin, want[i].origin, "origin %u", i);
        is_int(r.entries[i].rank, i, "rank %u", i);
    }
    add(&r, "n3", 0);
    add(&r, "n3", 1);
    add(&r, "n3", 2);
    add(&r, "n3", 3);
    is_int(r.n, 9, "grows after a sort");
}

static void test_codec(void)
{
    _roster_ struct roster r = {0};
    _roster_ struct roster back = {0};
    _buf_ struct buf b = {0};
    _buf_ struct buf one = {0};
    struct roster_entry e;
    struct error why = {0};
    bool refused = true;

    add(&r, "n1", 0);
    add(&r, "n2", 0);
    add(&r, "n1", 1);
    roster_sort(&r);
    roster_encode(&r, &b);
    is_int(roster_decode(b.data, b.len, &back, NULL), 0, "decode");
    ok(back.n == 3 && !memcmp(back.entries, r.entries,
                              3 * sizeof(*r.entries)), "the same");
    buf_putc(&b, '\0');
    for (size_t len = 0; len <= b.len; len++) {
        struct roster cut = {0};
        void *exact = malloc(len ? len : 1);

        memcpy(exact, b.data, len);
        refused = refused && (roster_decode(exact, len, &cut, NULL) == 0) ==
                                 (len == b.len - 1);
        roster_release(&cut);
        free(exact);
    }
    ok(refused, "only as a whole");
    b.data[1] = 0x7f;
    is_int(roster_decode(b.data, b.len - 1, &back, NULL), -ERR_FORMAT,
           "an absurd count allocates nothing");
    roster_entry_encode(&r.entries[1], &one);
    is_int(roster_entry_decode(one.data, one.len, &e, NULL), 0, "one entry");
    ok(!memcmp(&e, &r.entries[1], sizeof(e)), "is the same");
    one.data[0] = 9;
    is_int(roster_entry_decode(one.data, one.len, &e, &why), -ERR_VERSION,
           "of another format");
    like(why.text, "muster is version 0.1 on n", "its muster is named");
    like(why.text, "and version " PACKAGE_VERSION " here", "and this one");
    is_int(roster_entry_decode("\xff\xff\xff\xff", 4, &e, &why), -ERR_VERSION,
           "one that lacks even that");
    like(why.text, "another version of muster than this (" PACKAGE_VERSION,
         "this one is named");
    one.data[0] = 2;
    one.data[1 + 4 + 3 + 4 + 2 + 4 * 4 + 2 + 1] = 9; /* addresses */
    is_int(roster_entry_decode(one.data, one.len, &e, NULL), -ERR_FORMAT,
           "with too many addresses");
    back.entries[0].rank = 1;
    buf_clear(&b);
    roster_encode(&back, &b);
    roster_release(&back);
    is_int(roster_decode(b.data, b.len, &back, NULL), -ERR_FORMAT,
           "a roster whose ranks are not in order");
}

/* One more of everything than there is room for. */
static void test_too_many(void)
{
    _buf_ struct buf b = {0};
    struct roster full = {.n = ROSTER_MAX_NODES};
    struct roster_entry e = entry("n1", 0);
    int rc;

    wire_put_u8(&b, 2);
    wire_put_str(&b, "0.1");
    wire_put_str(&b, "n1");
    for (int i = 0; i < 4; i++) {
        wire_put_u32(&b, 0);
    }
    wire_put_u16(&b, 4000);
    wire_put_u16(&b, ROSTER_MAX_ADDRS + 1);
    for (int i = 0; i < ROSTER_MAX_ADDRS + 1 + 1; i++) {
        wire_put_str(&b, "x");
    }
    is_int(roster_entry_decode(b.data, b.len, &e, NULL), -ERR_FORMAT,
           "an address too many");
    rc = roster_add(&full, &e);
    is_int(rc, -E2BIG, "a node too many");
    roster_release(&full);
}

static void test_check(void)
{
    _roster_ struct roster r = {0};
    struct error e;

    is_int(roster_check(&r, &e), 0, "nobody");
    add(&r, "n1", 0);
    add(&r, "n2", 0);
    add(&r, "n1", 1);
    is_int(roster_check(&r, &e), 0, "fine");
    snprintf(r.entries[1].version, sizeof(r.entries[1].version), "0.2");
    is_int(roster_check(&r, &e), -ERR_VERSION, "versions differ");
    is_str(e.text, "muster is version 0.1 on n1, but version 0.2 on n2: "
           "install the same one on all hosts",
           "and are named");
    r.entries[1] = r.entries[0];
    r.entries[1].rank = 1;
    is_int(roster_check(&r, &e), -EEXIST, "the same agent twice");
    like(e.text, "agents 0 and 1 are the same: number 0 on n1", "named");
    snprintf(r.entries[1].boot_id, sizeof(r.entries[1].boot_id), "c");
    is_int(roster_check(&r, &e), 0, "one name for two machines");
    r.entries[2].slots = 0;
    is_int(roster_check(&r, &e), -EINVAL, "no slots");
    r.entries[2].slots = 1;
    r.entries[2].port = 0;
    is_int(roster_check(&r, &e), -EINVAL, "no port");
    r.entries[2].port = 1;
    r.entries[2].n_addrs = 0;
    is_int(roster_check(&r, &e), -EINVAL, "no address");
    r.entries[2].host[0] = '\0';
    is_int(roster_check(&r, &e), -EINVAL, "no name");
}

/* Every rank but 0 is a child of its parent, and of nobody else. */
static void test_tree(void)
{
    static const uint32_t sizes[] = {1, 2, 3, 16, 17, 18, 100, 273, 274};

    for (uint32_t arity = 1; arity <= 16; arity += 5) {
        for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
            uint32_t n = sizes[i];
            uint32_t n_children = 0;
            bool fine = true;

            for (uint32_t rank = 0; rank < n; rank++) {
                uint32_t first;
                uint32_t count = tree_children(rank, arity, n, &first);
                uint32_t up[300];
                size_t depth = tree_ancestors(rank, arity, up, 300);

                n_children += count;
                fine = fine && depth <= tree_depth(n, arity);
                fine = fine && (rank == 0 ? depth == 0 : up[depth - 1] == 0);
                for (uint32_t k = first; k < first + count; k++) {
                    fine = fine && tree_parent(k, arity) == rank;
                }
            }
            ok(fine && n_children == n - 1, "%u ranks, arity %u", n, arity);
        }
    }
    is_int(tree_parent(0, 4), 0, "the top is its own parent");
    is_int(tree_depth(0, 4), 0, "no ranks");
    is_int(tree_depth(65536, 16), 4, "65536 ranks, arity 16");
}

static void test_layout(void)
{
    static const uint16_t n_procs[] = {4, 0, 2, 4};
    static const struct {
        uint32_t node, local, rank, size;
    } cross[] = {{0, 0, 0, 3}, {2, 1, 1, 3}, {3, 1, 2, 3}, {0, 2, 0, 2},
                 {3, 3, 1, 2}, {3, 4, 0, 0}};
    struct layout l = layout_of(n_procs, 4, 2);
    uint32_t local = 99;

    ok(l.first_rank == 4 && l.n_local == 2 && l.world == 10 && l.group == 1 &&
           l.n_groups == 3, "a node in the middle");
    l = layout_of(n_procs, 4, 1);
    ok(l.n_local == 0 && l.group == 0 && l.world == 10, "one without any");
    for (uint32_t node = 0; node < 4; node++) {
        l = layout_of(n_procs, 4, node);
        for (uint32_t k = 0; k < l.n_local; k++) {
            ok(layout_node_of(n_procs, 4, l.first_rank + k, &local) == node &&
                   local == k, "node %u worker %u and back", node, k);
        }
    }
    is_int(layout_node_of(n_procs, 4, 10, &local), 4, "no such rank");
    for (size_t i = 0; i < ARRAY_SIZE(cross); i++) {
        uint32_t rank = 99, size = 99;

        layout_cross(n_procs, 4, cross[i].node, cross[i].local, &rank, &size);
        ok(rank == cross[i].rank && size == cross[i].size,
           "node %u, local rank %u: %u of %u", cross[i].node, cross[i].local,
           rank, size);
    }
}

static void test_arrange(void)
{
    static const uint32_t back[] = {4, ROSTER_NO_RANK, 0, 1};
    static const uint32_t beyond[] = {5, ROSTER_NO_RANK, 0, 1};
    static const uint32_t twice[] = {1, ROSTER_NO_RANK, 0, 1};
    _roster_ struct roster r = {0};
    _roster_ struct roster decoded = {0};
    _buf_ struct buf b = {0};
    struct error e = {0};

    for (int i = 0; i < 4; i++) {
        char host[8];

        snprintf(host, sizeof(host), "h%d", i);
        add(&r, host, 0);
    }
    is_int(roster_arrange(&r, beyond, 5, &e), -EINVAL, "a place beyond all");
    like(e.text, "h0 has been number 5", "who tells that");
    is_int(roster_arrange(&r, twice, 5, &e), -EINVAL, "two in one place");
    is_str(r.entries[0].host, "h0", "nothing was moved");
    is_int(roster_arrange(&r, back, 5, &e), 0, "members that come again");
    is_str(r.entries[0].host, "h2", "keep their places");
    ok(r.n == 6 && !strcmp(r.entries[5].host, "h1") &&
           !strcmp(r.entries[4].host, "h0"), "and a newcomer follows");
    ok(r.entries[0].origin == 2 && r.entries[0].rank == 0,
       "the place in MPI is kept beside it");
    ok(roster_is_absent(&r.entries[2]) && roster_is_absent(&r.entries[3]) &&
           r.entries[3].rank == 3, "who did not come leaves an empty one");
    is_int(roster_check(&r, &e), 0, "which is no fault");
    roster_encode(&r, &b);
    is_int(roster_decode(b.data, b.len, &decoded, NULL), 0, "and can be sent");
}

/* A roster of these hosts by place, as "ab-d": nobody is where "-" is. */
static struct roster world_of(const char *hosts)
{
    static const struct roster_entry nobody = {0};
    struct roster r = {0};

    for (uint32_t i = 0; hosts[i]; i++) {
        char host[2] = {hosts[i], '\0'};

        if (hosts[i] == '-') {
            (void)roster_add(&r, &nobody);
        } else {
            add(&r, host, 0);
        }
        r.entries[i].origin = 10 + i;
    }
    return r;
}

static void test_renew(void)
{
    static const struct {
        const char *was, *fresh, *is;
        bool is_news;
        const char *what;
    } cases[] = {
        {"abc", "abc", "abc", false, "the same agents: no news"},
        {"abc", "a-c", "abc", false, "who is not in the world stays known"},
        {"abc", "a-cd", "abcd", true, "a newcomer is news"},
        {"a-c", "abc", "abc", true, "so is who was in no world before"},
        {"a-c", "a-c", "a-c", false, "but not who still is in none"},
        {"ab", "ab-", "ab-", true, "a place of which only this is known counts"},
        {"ab-", "abc", "abc", true, "as its agent does, which comes later"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _roster_ struct roster r = world_of(cases[i].was);
        _roster_ struct roster fresh = world_of(cases[i].fresh);
        bool is_news = !cases[i].is_news, fine;

        fine = roster_renew(&r, &fresh, &is_news) == 0 && r.n == strlen(cases[i].is);
        for (uint32_t k = 0; fine && k < r.n; k++) {
            bool is_there = fresh.n > k && !roster_is_absent(&fresh.entries[k]);

            fine = r.entries[k].rank == k &&
                   (cases[i].is[k] == '-' ? roster_is_absent(&r.entries[k])
                                          : r.entries[k].host[0] == cases[i].is[k]) &&
                   r.entries[k].origin == (is_there ? 10 + k : ROSTER_NO_RANK);
        }
        ok(fine && is_news == cases[i].is_news, "%s", cases[i].what);
    }
}

int main(void)
{
    test_sort();
    test_arrange();
    test_renew();
    test_codec();
    test_too_many();
    test_check();
    test_tree();
    test_layout();
    return tap_done();
}
