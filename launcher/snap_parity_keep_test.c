/* SPDX-License-Identifier: Apache-2.0 */
/* How many saves a node keeps parity of: the newest two of each set of ranks, and none of
 * workers that have gone once later ones have a checkpoint. */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/str.h"
#include "launcher/snap_hold_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

static struct parity_kept *find(const struct parity_bed *b, uint32_t rank, const char *uuid)
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

/* What goes for a third save of the set: the first that is named here, of two. */
static void test_which(void)
{
    static const struct {
        struct {
            uint64_t step;
            bool is_whole, is_settled;
        } goes, stays;
        const char *what;
    } cases[] = {
        {{1, true, false}, {2, true, false}, "of two that are whole the older one goes"},
        {{2, true, true}, {1, true, false}, "before that one that is on the disk"},
        {{2, false, false}, {1, true, false}, "and one that will not be whole"},
        {{2, true, true}, {1, false, false}, "and of these two the one that is on the disk"},
        {{1, true, true}, {2, true, true}, "of two that are on it the older one"},
    };

    for (size_t i = 0; i < 2 * sizeof(cases) / sizeof(cases[0]); i++) {
        bool comes_first = i % 2; /* in whichever order they came */
        const char *goes = comes_first ? UUID(1) : UUID(2), *stays = comes_first ? UUID(2)
                                                                                : UUID(1);
        struct parity_bed b;

        parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
        for (int k = 0; k < 2; k++) {
            bool is_it = comes_first == (k == 0);
            uint64_t step = is_it ? cases[i / 2].goes.step : cases[i / 2].stays.step;

            add(&b, 0, is_it ? goes : stays, step, 2);
        }
        find(&b, 11, goes)->is_whole = cases[i / 2].goes.is_whole;
        find(&b, 11, goes)->is_settled = cases[i / 2].goes.is_settled;
        find(&b, 11, stays)->is_whole = cases[i / 2].stays.is_whole;
        find(&b, 11, stays)->is_settled = cases[i / 2].stays.is_settled;
        add(&b, 0, UUID(3), 3, 2);
        ok(!find(&b, 11, goes) && find(&b, 11, stays) && find(&b, 11, UUID(3)), "%s, come %s",
           cases[i / 2].what, comes_first ? "first" : "last");
        parity_bed_close(&b);
    }
}

static bool is_mapped(void *at, size_t len)
{
    unsigned char there[16];

    return mincore(at, len, there) == 0 || errno != ENOMEM;
}

/* Parity is added up in it: it is the new one's, with nothing of the old one in it. */
static void test_memory(void)
{
    struct parity_memory *m, before;
    struct snap_parity *c;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    c = b.nodes[0].parity;
    add(&b, 0, UUID(1), 1, 2);
    m = &find(&b, 11, UUID(1))->memory[0];
    if (parity_kept_grow(c, m, 3 * SNAP_PAGE_BYTES - 1, NULL) < 0) {
        bail_out("memory");
    }
    is_int(c->bytes, 3 * SNAP_PAGE_BYTES, "memory of whole pages");
    memset(m->at, 'x', m->room);
    before = *m;
    add(&b, 0, UUID(2), 2, 2);
    add(&b, 0, UUID(3), 3, 2);
    m = &find(&b, 11, UUID(3))->memory[0];
    ok(m->at == before.at && m->room == before.room && c->bytes == before.room,
       "of the one that goes is the new one's");
    for (size_t i = 0; i < m->room; i++) {
        if (m->at[i]) {
            m->at[0] = 1;
        }
    }
    is_int(m->at[0], 0, "and nothing is left in it");
    ok(snap_hold_beside(b.nodes[0].copies, (UINT64_C(1) << 30) + 1, NULL) < 0 &&
           snap_hold_beside(b.nodes[0].copies, UINT64_C(1) << 30, NULL) == 0,
       "the budget is what it was");
    before = *m;
    ok(is_mapped(before.at, before.room), "it is there");
    snap_parity_settle(c, UUID(3), false);
    ok(!is_mapped(before.at, before.room), "and is given back");
    ok(c->bytes == 0 && !find(&b, 11, UUID(3)), "that of a save that came to nothing is none's");
    parity_bed_close(&b);
}

/* Whoever keeps parity no more has nothing of the budget, and of memory. */
static void test_destroyed(void)
{
    struct parity_memory m;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    add(&b, 0, UUID(1), 1, 2);
    if (parity_kept_grow(b.nodes[0].parity, &find(&b, 11, UUID(1))->memory[0], SNAP_PAGE_BYTES,
                         NULL) < 0) {
        bail_out("memory");
    }
    m = find(&b, 11, UUID(1))->memory[0];
    ok(b.nodes[0].copies->beside == SNAP_PAGE_BYTES, "parity counts beside copies");
    snap_parity_destroy(b.nodes[0].parity);
    b.nodes[0].parity = NULL;
    ok(b.nodes[0].copies->beside == 0 && !is_mapped(m.at, m.room), "until nobody keeps it");
    parity_bed_close(&b);
}

/* Of all chunks of a piece, in their order: one that differs makes another digest. */
static void test_sum(void)
{
    uint64_t first = parity_sum(0, "abc", 3), other = parity_sum(0, "abd", 3);

    ok(first != other, "another chunk");
    ok(parity_sum(first, "x", 1) != parity_sum(other, "x", 1), "and another one before it");
    ok(parity_sum(parity_sum(0, "a", 1), "b", 1) != parity_sum(parity_sum(0, "b", 1), "a", 1),
       "are another piece, as are the same in another order");
}

/* Another one may have asked for memory of that save, and for less. */
static void test_target(void)
{
    const struct snap_rank who = {.rank = 11, .n_ranks = 3, .generation = 2};
    struct parity_build build = {.head = {.rank = 11, .image_bytes = 2 * SNAP_PAGE_BYTES}};
    struct snap_hold *copies;
    struct parity_bed b;
    const struct snap *s;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    copies = b.nodes[0].copies;
    build.parity = b.nodes[0].parity;
    str_copy(build.head.uuid, sizeof(build.head.uuid), UUID(1));
    if (snap_hold_begin(copies, &who, 1, UUID(1), "/ck", SNAP_PAGE_BYTES, 99, NULL) < 0) {
        bail_out("memory");
    }
    for (int i = 0; i < 100 && !snap_hold_fill(copies, 11, UUID(1)); i++) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    s = snap_hold_fill(copies, 11, UUID(1));
    ok(s && !parity_build_target(&build), "what does not fit is not made there");
    build.head.image_bytes = 100;
    ok(s && parity_build_target(&build) == (unsigned char *)s->map + SNAP_PAGE_BYTES,
       "what does is");
    parity_bed_close(&b);
}

/* Nobody looks where nothing is to come. */
static void test_idle(void)
{
    struct snap_parity *c;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    c = b.nodes[0].parity;
    parity_watch(c);
    ok(!uv_is_active((uv_handle_t *)c->watch), "who waits for nothing has no timer");
    parity_bed_close(&b);
}

/* Digests are of what has come: of a piece that has not there is none. */
static void test_sums(void)
{
    struct parity_sums sums;
    struct parity_kept *k;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    add(&b, 0, UUID(1), 1, 2);
    k = find(&b, 11, UUID(1));
    for (int i = PARITY_NONE; i <= PARITY_COMING; i++) {
        k->coming[1] = (uint8_t)i;
        parity_kept_sums(k, 1, &sums);
        is_int(sums.n, 0, "what has not come, or not all of it, has no digest");
    }
    k->coming[1] = PARITY_THERE;
    k->sums[1][0] = 12345;
    parity_kept_sums(k, 1, &sums);
    ok(sums.n == 1 && sums.sums[0] == 12345, "what has come has");
    parity_bed_close(&b);
}

/* What nobody can have counts for nothing. */
static void test_too_large(void)
{
    const uint64_t huge = UINT64_C(1) << 60;
    struct parity_memory m = {0};
    struct error e = {0};
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, huge + SNAP_PAGE_BYTES);
    ok(parity_kept_grow(b.nodes[0].parity, &m, huge, &e) < 0,
       "memory that cannot be had: %s", e.text);
    ok(!m.at && m.room == 0 && b.nodes[0].parity->bytes == 0 && b.nodes[0].copies->beside == 0,
       "takes nothing of the budget");
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_sets();
    test_which();
    test_memory();
    test_destroyed();
    test_sum();
    test_target();
    test_idle();
    test_sums();
    test_too_large();
    test_generations();
    return tap_done();
}
