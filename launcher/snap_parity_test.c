/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parity over agents on one loop: whoever is lost, its snapshot is made again byte by
 * byte, from images of any lengths; keeping it takes less memory than copies; what is
 * short of memory, damaged or lost with too many others is refused, with the reason.
 */
#include <config.h>

#include "launcher/parity_bed.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <sys/statvfs.h>

int __real_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret);

/* The filesystem of the test may have little: what there is is the budget's to say. */
int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    int rc = __real_fstatvfs(fd, ret);

    ret->f_blocks = 0;
    return rc;
}

enum { MIB = 1 << 20 };

/* Each by each of the others, of which one more may be lost. */
static void rebuild_all(unsigned n, unsigned m)
{
    unsigned n_wrong = 0, n_made = 0;
    struct parity_bed b;

    parity_bed_open(&b, n, m, UINT64_C(1) << 30);
    ok(parity_bed_save_all(&b, UUID(1), 10), "all of %u are sent", n);
    for (unsigned i = 0; i < n; i++) {
        n_wrong += b.nodes[i].sent.code != 0 || b.nodes[i].n_whole != 1;
    }
    for (unsigned i = 0; i < n; i++) {
        for (unsigned at = 0; at < n; at++) {
            for (unsigned other = 0; at != i && other < n; other++) {
                uint32_t lost[] = {i * 10, other * 10};

                if (other == at || (m == 1 && other != i)) {
                    continue;
                }
                n_wrong += parity_bed_build(&b, at, i, UUID(1), lost, 2) != 0 ||
                           !parity_bed_is_same(&b, at, i, UUID(1));
                n_made++;
            }
        }
    }
    ok(n_wrong == 0 && n_made >= n * (n - 1), "%u of %u, %u parities: %u are wrong",
       n_made, n, m, n_wrong);
    parity_bed_close(&b);
}

static void test_rebuild(void)
{
    rebuild_all(2, 1);
    rebuild_all(3, 1);
    rebuild_all(4, 1);
    rebuild_all(4, 2);
    rebuild_all(5, 2);
    rebuild_all(5, 3);
}

static void test_too_many(void)
{
    const uint32_t lost[] = {0, 10}, elsewhere[] = {10, 990};
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), ENOENT, "nobody has saved");
    parity_bed_save_all(&b, UUID(1), 10);
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 2), ENODATA, "two are lost of four");
    like(b.nodes[2].built.text, "2 of 4 nodes of the group are gone, and parity makes "
         "up for 1", "the reason has numbers");
    ok(!snap_hold_get(b.nodes[2].copies, 10, UUID(1)), "nothing is made");
    is_int((int)b.nodes[2].built_from, 0, "it says whose it was");
    is_int(parity_bed_build(&b, 2, 1, UUID(1), elsewhere, 2), 0,
           "a node that is lost of another group is none of this one");
    is_int((int)b.nodes[2].built_from, 10, "whose it was is said by its agent");
    b.nodes[1].is_gone = true; /* nobody has said so */
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), ECONNREFUSED,
           "one more does not answer");
    like(b.nodes[2].built.text, "node 10: ", "which one");
    is_int(parity_bed_build(&b, 2, 2, UUID(1), lost, 1), ENOENT, "its own rank");
    parity_bed_close(&b);
}

/* With two parities it is left out. */
static void test_left_out(void)
{
    const uint32_t lost[] = {0};
    struct snap_parity_order order = {10, UUID(1), lost, 1, true};
    struct parity_bed b;

    parity_bed_open(&b, 4, 2, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    b.nodes[1].is_gone = true;
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), 0,
           "another one that does not answer");
    ok(parity_bed_is_same(&b, 2, 0, UUID(1)), "is made up for");
    snap_hold_settle(b.nodes[3].own, UUID(1), false);
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), ENOENT, "a third is not: %s",
           b.nodes[2].built.text);
    b.nodes[1].is_gone = false;
    snap_hold_settle(b.nodes[2].copies, UUID(1), false);
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), 0, "but for one of them");
    b.nodes[1].is_gone = b.nodes[3].is_gone = true;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    order.is_ordered = false;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    ok(snap_bed_run_until(&b.loop, &b.nodes[2].n_built, 4) &&
           b.nodes[2].built.code == 0, "it is there already: nobody is asked");
    is_int(b.nodes[2].n_ordered, 1, "and who has asked last has not ordered it");
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    order.is_ordered = true;
    snap_parity_build(b.nodes[2].parity, &order, NULL);
    ok(snap_bed_run_until(&b.loop, &b.nodes[2].n_built, 5) && b.nodes[2].n_ordered == 2,
       "it is ordered, though who has asked first has not");
    parity_bed_close(&b);
}

/* A node with no such rank, and one with nothing else beside it. */
static void test_no_rank(void)
{
    const uint32_t lost[] = {0};
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    b.group.ranks[1] = PARITY_NO_RANK;
    ok(parity_bed_save_all(&b, UUID(1), 10), "three ranks of four nodes");
    is_int(b.n_whole, 4, "all keep parity");
    is_int(parity_bed_build(&b, 3, 0, UUID(1), lost, 1), 0, "one is lost");
    ok(parity_bed_is_same(&b, 3, 0, UUID(1)), "and there again");
    b.group.index = 1;
    b.group.ranks[2] = b.group.ranks[3] = PARITY_NO_RANK;
    ok(parity_bed_save_all(&b, UUID(2), 10), "one rank alone");
    is_int(parity_bed_build(&b, 3, 0, UUID(2), lost, 1), 0, "is lost");
    ok(parity_bed_is_same(&b, 3, 0, UUID(2)), "and there again");
    parity_bed_close(&b);
}

/* Nothing is missed of a node that had no such rank, but the parity that it kept. */
static void test_no_rank_lost(void)
{
    const uint32_t lost[] = {10, 30, 0};
    struct parity_bed b;

    parity_bed_open(&b, 5, 2, UINT64_C(1) << 30);
    b.group.ranks[0] = b.group.ranks[3] = PARITY_NO_RANK;
    ok(parity_bed_save_all(&b, UUID(1), 10) && b.n_whole == 5, "three ranks of five nodes");
    b.nodes[0].is_gone = b.nodes[3].is_gone = true;
    is_int(parity_bed_build(&b, 4, 1, UUID(1), lost, 3), 0,
           "two parities make up for one rank on three nodes");
    ok(parity_bed_is_same(&b, 4, 1, UUID(1)), "to the last byte");
    parity_bed_close(&b);
}

/* Of as many pieces as there are nodes, the last ones of a short image have no bytes. */
static void test_largest(void)
{
    const uint32_t lost[] = {0};
    struct parity_bed b;

    parity_bed_open(&b, PARITY_MAX_MEMBERS, 2, UINT64_C(1) << 30);
    for (unsigned i = 2; i < PARITY_MAX_MEMBERS; i++) {
        b.group.ranks[i] = PARITY_NO_RANK;
    }
    ok(parity_bed_save_all(&b, UUID(1), 10), "two ranks of as many nodes as there may be");
    for (unsigned i = 1; i < PARITY_MAX_MEMBERS; i += PARITY_MAX_MEMBERS - 2) {
        is_int(parity_bed_build(&b, i, 0, UUID(1), lost, 1), 0, "one is lost");
        ok(parity_bed_is_same(&b, i, 0, UUID(1)), "and on node %u", i);
    }
    parity_bed_close(&b);
}

/* Two saves of a set stay, in memory that is used again. */
static void test_saves(void)
{
    const uint32_t lost[] = {0};
    struct parity_bed b;
    uint64_t bytes;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    bytes = b.nodes[0].parity->bytes;
    ok(bytes >= parity_piece_bytes(&b.group.shape, parity_bed_bytes(3)) &&
           bytes < parity_bed_bytes(3) / 2, "%u bytes of parity, of an image of %u",
       (unsigned)bytes, (unsigned)parity_bed_bytes(3));
    parity_bed_save_all(&b, UUID(2), 20);
    is_int((int)b.nodes[0].parity->bytes, (int)(2 * bytes), "as much for the next");
    snap_parity_settle(b.nodes[1].parity, UUID(1), true);
    parity_bed_save_all(&b, UUID(3), 30);
    is_int((int)b.nodes[1].parity->bytes, (int)(2 * bytes), "and no more for a third");
    is_int(parity_bed_build(&b, 1, 0, UUID(3), lost, 1), 0, "which is right");
    ok(parity_bed_is_same(&b, 1, 0, UUID(3)), "to the last byte");
    is_int(parity_bed_build(&b, 1, 0, UUID(2), lost, 1), 0, "so is the one before");
    ok(parity_bed_is_same(&b, 1, 0, UUID(2)), "to the last byte, too");
    is_int(parity_bed_build(&b, 1, 0, UUID(1), lost, 1), ENOENT, "the first one is gone");
    b.n_whole = 0;
    snap_parity_tell(b.nodes[1].parity);
    is_int(b.n_whole, 2, "both are told of");
    snap_parity_settle(b.nodes[1].parity, UUID(3), false);
    is_int((int)b.nodes[1].parity->bytes, (int)bytes, "what came to nothing, too");
    b.n_whole = 0;
    snap_parity_tell(b.nodes[1].parity);
    is_int(b.n_whole, 1, "what is not settled is told again");
    snap_parity_settle(b.nodes[1].parity, UUID(2), true);
    snap_parity_tell(b.nodes[1].parity);
    is_int(b.n_whole, 1, "and no more when it is");
    parity_bed_close(&b);
}

/* What is on the disk makes way before what only memory has, newer as it may be. */
static void test_settled_first(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    parity_bed_save_all(&b, UUID(2), 20);
    snap_parity_settle(b.nodes[1].parity, UUID(2), true);
    parity_bed_save_all(&b, UUID(3), 30);
    ok(snap_parity_find(b.nodes[1].parity, 10, UUID(1)) &&
           !snap_parity_find(b.nodes[1].parity, 10, UUID(2)) &&
           snap_parity_find(b.nodes[1].parity, 10, UUID(3)),
       "the one on the disk has gone");
    ok(snap_parity_find(b.nodes[2].parity, 10, UUID(2)) &&
           !snap_parity_find(b.nodes[2].parity, 10, UUID(1)), "else the older one goes");
    parity_bed_close(&b);
}

static bool all_know(const struct parity_bed *b, const char *uuid)
{
    for (unsigned i = 0; i < b->group.shape.n; i++) {
        unsigned any = 10;

        while (any < 14 && !parity_kept_find(b->nodes[i].parity, uuid, any)) {
            any++;
        }
        if (any == 14) {
            return false;
        }
    }
    return true;
}

static void save_two(struct parity_bed *b, unsigned i, const char *uuid, uint64_t step)
{
    for (unsigned end = i + 2; i < end; i++) {
        parity_bed_save(b, i, uuid, step);
        parity_bed_send(b, i, uuid);
    }
    while (!all_know(b, uuid)) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

/* What not all have sent never makes what is whole go. */
static void test_not_whole(void)
{
    const uint32_t lost[] = {0};
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    save_two(&b, 0, UUID(2), 20);
    save_two(&b, 2, UUID(3), 30);
    ok(snap_bed_run_until(&b.loop, &b.nodes[0].n_sent, 2) &&
           b.nodes[0].sent.code == ECANCELED, "who has sent the first of two hears that it "
       "is not kept: %s", b.nodes[0].sent.text);
    is_int(parity_bed_build(&b, 1, 0, UUID(1), lost, 1), 0,
           "two saves have come that are not whole: the one before is there");
    ok(parity_bed_is_same(&b, 1, 0, UUID(1)), "to the last byte");
    parity_bed_close(&b);
}

/* Memory of one image becomes that of a longer one: no more is taken than that. */
static void test_grows(void)
{
    struct parity_bed b;
    uint64_t bytes;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    bytes = b.nodes[0].parity->bytes;
    parity_bed_close(&b);

    parity_bed_open(&b, 4, 1, bytes);
    for (unsigned i = 0; i < 4; i++) {
        parity_bed_save(&b, i, UUID(1), 10);
    }
    parity_bed_send(&b, 1, UUID(1));
    while (!b.nodes[0].parity->bytes) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(b.nodes[0].parity->bytes < bytes, "parity of a short image");
    parity_bed_send(&b, 0, UUID(1));
    parity_bed_send(&b, 2, UUID(1));
    parity_bed_send(&b, 3, UUID(1));
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 4), "others are longer");
    ok(b.nodes[0].n_whole == 1 && b.nodes[0].parity->bytes == bytes,
       "and it is whole, in just that memory: %s", b.nodes[3].sent.text);
    parity_bed_close(&b);
}

static void test_short(void)
{
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, MIB / 4);
    parity_bed_save_all(&b, UUID(1), 10);
    is_int(b.nodes[3].sent.code, ENOMEM, "no memory for parity");
    like(b.nodes[3].sent.text, "parity of 1 MiB beside 0 MiB of others does not fit "
         "into 0 MiB, all that this test has", "with numbers");
    is_int(b.n_whole, 0, "nobody has any");
    is_int((int)b.nodes[0].parity->bytes, 0, "nor keeps memory for it");
    parity_bed_close(&b);

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    snap_hold_lend(b.nodes[0].own, b.nodes[0].copies);
    parity_bed_save_all(&b, UUID(1), 10);
    ok(b.nodes[0].parity->bytes > 0, "where there is memory");
    is_int(snap_hold_begin(b.nodes[0].own, &(struct snap_rank){.rank = 9, .n_ranks = 16},
                           11, UUID(7), "/", (UINT64_C(1) << 30) - MIB / 2, 1, NULL), 0,
           "and all of it is needed");
    is_int((int)b.nodes[0].parity->bytes, 0, "parity gives way");
    snap_hold_serve(b.nodes[0].own, 0, 0);
    snap_hold_lend(b.nodes[0].own, NULL);
    parity_bed_close(&b);
}

/* What differs from what was saved is never handed out. */
static void test_damaged(void)
{
    const uint32_t lost[] = {0};
    struct snap_head *h;
    char *changed;
    struct parity_bed b;

    parity_bed_open(&b, 4, 1, UINT64_C(1) << 30);
    parity_bed_save_all(&b, UUID(1), 10);
    b.nodes[2].parity->kept->memory[0].at[77] ^= 0x20;
    is_int(parity_bed_build(&b, 1, 0, UUID(1), lost, 1), ERR_FORMAT,
           "a bit of another's parity");
    ok(!snap_hold_get(b.nodes[1].copies, 10, UUID(1)), "is no snapshot");
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), ERR_FORMAT, "of its own");
    b.nodes[2].parity->kept->memory[0].at[77] ^= 0x20;
    is_int(parity_bed_build(&b, 2, 0, UUID(1), lost, 1), 0, "put back, it is right");
    changed = (char *)snap_image(snap_hold_get(b.nodes[3].own, 13, UUID(1))) +
              parity_piece_bytes(&b.group.shape,
                                 parity_bed_bytes(3) + SNAP_PAGE_BYTES) + 99;
    *changed ^= 1;
    is_int(parity_bed_build(&b, 1, 0, UUID(1), lost, 1), ERR_FORMAT,
           "a bit that a worker changed");
    *changed ^= 1;
    h = &b.nodes[1].parity->kept->heads[3];
    h->image_bytes -= 3 * SNAP_PAGE_BYTES;
    is_int(parity_bed_build(&b, 1, 0, UUID(1), lost, 1), ERR_FORMAT,
           "and another length");
    parity_bed_close(&b);
}

/* Memory that parity had is for copies again; and what workers that have gone had saved
 * makes way when a save of others counts. */
static void test_memory(void)
{
    const struct snap_rank who = {.rank = 9, .n_ranks = 16};
    struct parity_kept *k;
    struct parity_node *n;
    struct parity_bed b;
    uint64_t bytes, most;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    n = &b.nodes[1];
    parity_bed_save_all(&b, UUID(1), 10);
    bytes = n->parity->bytes;
    parity_bed_save_all(&b, UUID(2), 20);
    is_int((int)n->parity->bytes, (int)(2 * bytes), "parity of two saves");
    most = (UINT64_C(1) << 30) - bytes / 2;
    k = parity_kept_find(n->parity, UUID(2), 10);
    k->generation++; /* of later workers */
    snap_parity_settle(n->parity, UUID(2), true);
    is_int((int)n->parity->bytes, (int)bytes, "of which that of earlier workers goes");
    ok(!parity_kept_find(n->parity, UUID(1), 10) &&
           parity_kept_find(n->parity, UUID(2), 10), "and no other");
    is_int(snap_hold_begin(n->copies, &who, 11, UUID(7), "/", most, 1, NULL),
           -ENOMEM, "a copy that takes all that there is");
    snap_parity_drop(n->parity);
    is_int(snap_hold_begin(n->copies, &who, 11, UUID(7), "/", most, 1, NULL),
           0, "has it when parity goes");
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_rebuild();
    test_too_many();
    test_left_out();
    test_no_rank();
    test_no_rank_lost();
    test_largest();
    test_saves();
    test_settled_first();
    test_not_whole();
    test_grows();
    test_short();
    test_damaged();
    test_memory();
    return tap_done();
}
