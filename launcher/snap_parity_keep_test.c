/* SPDX-License-Identifier: Apache-2.0 */
/* How many saves a node keeps parity of: the newest two of each set of ranks, and none of
 * workers that have gone once later ones have a checkpoint. */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <signal.h>

static const struct parity_kept *find(const struct parity_bed *b, uint32_t rank,
                                      const char *uuid)
{
    return parity_kept_find(b->nodes[0].parity, uuid, rank);
}

/* Pieces of that save are to come, of ranks 11 and 12, or of 21 and 22 in another set. */
static void add(struct parity_bed *b, uint32_t set, const char *uuid, uint64_t step,
                uint32_t generation)
{
    struct parity_group g = b->group;
    struct snap_head h = {.step = step, .generation = generation};

    str_copy(h.uuid, sizeof(h.uuid), uuid);
    g.index = set;
    for (unsigned i = 0; i < g.shape.n; i++) {
        g.ranks[i] += 10 * set;
    }
    if (!parity_kept_add(b->nodes[0].parity, &g, &h)) {
        bail_out("memory");
    }
}

/* A node has several ranks, each of a set of its own. */
static void test_sets(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    add(&b, 0, UUID(1), 1, 2);
    add(&b, 1, UUID(1), 1, 2);
    add(&b, 0, UUID(2), 2, 2);
    ok(find(&b, 11, UUID(1)) && find(&b, 11, UUID(2)), "two saves of a set are kept");
    ok(find(&b, 21, UUID(1)) != NULL, "and one of another set");
    add(&b, 0, UUID(3), 3, 2);
    ok(!find(&b, 11, UUID(1)) && find(&b, 11, UUID(2)) && find(&b, 11, UUID(3)),
       "of a third one the oldest of its set makes way");
    ok(find(&b, 21, UUID(1)) != NULL, "and nothing of the other set");
    snap_parity_drop(b.nodes[0].parity);
    ok(!b.nodes[0].parity->kept, "all of it goes where its memory is needed");
    parity_bed_close(&b);
}

static void test_generations(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    add(&b, 0, UUID(1), 1, 2);
    add(&b, 1, UUID(2), 2, 3);
    snap_parity_settle(b.nodes[0].parity, UUID(3), true);
    ok(find(&b, 11, UUID(1)) && find(&b, 21, UUID(2)), "another save changes nothing");
    snap_parity_settle(b.nodes[0].parity, UUID(2), true);
    ok(find(&b, 21, UUID(2)) != NULL, "one that is a checkpoint stays");
    ok(!find(&b, 11, UUID(1)), "what workers of before have left goes");
    add(&b, 0, UUID(4), 4, 3);
    snap_parity_settle(b.nodes[0].parity, UUID(4), false);
    ok(!find(&b, 11, UUID(4)) && find(&b, 21, UUID(2)), "so does what came to nothing, alone");
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_sets();
    test_generations();
    return tap_done();
}
