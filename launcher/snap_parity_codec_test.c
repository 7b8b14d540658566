/* SPDX-License-Identifier: Apache-2.0 */
/* Messages about parity: what is cut, or beyond its bounds, is none. */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/cleanup.h"
#include "base/wire.h"
#include "tests/lib/tap.h"

static struct channel_frame frame_of(uint16_t type, const struct buf *b)
{
    return (struct channel_frame){.type = type, .data = (void *)b->data, .len = b->len};
}

static bool is_offer(uint16_t type, const struct buf *b)
{
    struct channel_frame f = frame_of(type, b);
    struct parity_group g;
    struct snap_head h;
    uint32_t from;

    return parity_offer_decode(&f, &g, &h, &from);
}

static bool is_want(uint16_t type, const struct buf *b)
{
    struct channel_frame f = frame_of(type, b);
    struct parity_want w;

    return parity_want_decode(&f, &w);
}

static bool is_end(uint16_t type, const struct buf *b)
{
    struct channel_frame f = frame_of(type, b);
    struct parity_sums s;

    return parity_sums_decode(&f, &s);
}

static void test_offers(void)
{
    const struct parity_group good = {{3, 1}, 0, {10, 20, 30}, {1, PARITY_NO_RANK, 3}};
    _buf_ struct buf b = {0};
    struct parity_group g;
    unsigned n_taken = 0;

    parity_bed_offer(&b, &good, 3, 30);
    ok(is_offer(SNAP_PARITY_OFFER, &b), "an offer");
    for (size_t len = 0; len < b.len; len++) {
        struct buf cut = {.data = b.data, .len = len};

        n_taken += is_offer(SNAP_PARITY_OFFER, &cut);
    }
    is_int((int)n_taken, 0, "cut anywhere it is none");
    parity_bed_offer(&b, &good, 1, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "the rank of another one");
    parity_bed_offer(&b, &good, 3, 40);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "somebody who is no member");
    g = good;
    g.agents[1] = 30;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "one agent twice");
    g = good;
    g.agents[0] = 20;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "also where that is another one");
    g = good;
    g.ranks[0] = 3;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "one rank twice");
    g.ranks[0] = 16;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "a rank beyond all");
    g = good;
    g.index = 4095;
    parity_bed_offer(&b, &g, 3, 30);
    ok(is_offer(SNAP_PARITY_OFFER, &b), "the last of so many ranks of a node as there may be");
    g.index = 4096;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "too many ranks of a node");
    g = good;
    g.shape.m = 3;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "nothing but parity");
    g.shape = (struct parity){PARITY_MAX_MEMBERS + 1, 1};
    g.shape.n = 1;
    parity_bed_offer(&b, &g, 3, 30);
    ok(!is_offer(SNAP_PARITY_OFFER, &b), "a group of one");
}

static void test_wants(void)
{
    struct parity_want w = {UUID(2), 3, 4, 2, {{0, 5, 6}, {8, 0, 1}}}, back;
    struct parity_sums s = {2, {5, 63}, {7, 8}}, sums;
    _buf_ struct buf b = {0};
    struct channel_frame f = {.type = SNAP_PARITY_WANT};
    static const struct parity_seg bad[] = {
        {9, 0, 1}, {0, 0, 0}, {0, UINT64_MAX, 1}, {0, 1, UINT64_MAX}};
    unsigned n_taken = 0;

    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_want_decode(&f, &back) && back.n == 2 && back.segs[1].kept == 8 &&
           back.lost == 4, "what is asked for");
    for (f.len = 0; f.len < b.len; f.len++) {
        n_taken += parity_want_decode(&f, &back);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        w.segs[1] = bad[i];
        buf_clear(&b);
        parity_want_encode(&w, &b);
        f.data = (void *)b.data;
        f.len = b.len;
        n_taken += parity_want_decode(&f, &back);
    }
    w.segs[1] = w.segs[0];
    w.lost = 1 << 20;
    buf_clear(&b);
    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    n_taken += parity_want_decode(&f, &back);
    w.lost = 4;
    w.rank = 1 << 20;
    buf_clear(&b);
    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    n_taken += parity_want_decode(&f, &back);
    w.rank = PARITY_NO_RANK;
    w.uuid[COMMIT_UUID_BYTES - 2] = '\0';
    buf_clear(&b);
    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    n_taken += parity_want_decode(&f, &back);
    w.uuid[COMMIT_UUID_BYTES - 2] = '2';
    w.n = PARITY_MAX_SEGS;
    for (unsigned i = 0; i < w.n; i++) {
        w.segs[i] = w.segs[0];
    }
    buf_clear(&b);
    parity_want_encode(&w, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_want_decode(&f, &back) && back.n == PARITY_MAX_SEGS, "as many as there can be");
    buf_clear(&b);
    wire_put_str(&b, w.uuid);
    wire_put_u32(&b, 3);
    wire_put_u32(&b, 4);
    wire_put_u32(&b, PARITY_MAX_SEGS + 1);
    for (unsigned i = 0; i <= PARITY_MAX_SEGS; i++) {
        wire_put_u8(&b, 0);
        wire_put_u64(&b, 0);
        wire_put_u64(&b, 1);
    }
    f.data = (void *)b.data;
    f.len = b.len;
    n_taken += parity_want_decode(&f, &back);
    is_int((int)n_taken, 0, "cut, or beyond its bounds, it is nothing");
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    f.type = SNAP_PARITY_END;
    f.data = (void *)b.data;
    f.len = b.len;
    ok(parity_sums_decode(&f, &sums) && sums.sums[1] == 8, "digests");
    f.len--;
    ok(!parity_sums_decode(&f, &sums), "cut");
    s = (struct parity_sums){PARITY_MAX_SEGS, {0}, {0}};
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    ok(parity_sums_decode(&(struct channel_frame){.type = SNAP_PARITY_END,
                                                  .data = (void *)b.data, .len = b.len},
                          &sums), "as many as there can be");
    buf_append(&b, "\0\0\0\0\0\0\0\0\0\0\0", 12);
    b.data[0] = (char)(b.data[0] + (b.data[0] ? 1 : 0));
    b.data[3] = (char)(b.data[3] + (b.data[3] ? 1 : 0));
    ok(!parity_sums_decode(&(struct channel_frame){.type = SNAP_PARITY_END,
                                                   .data = (void *)b.data, .len = b.len},
                           &sums), "and one more");
    s = (struct parity_sums){2, {5, 63}, {7, 8}};
    s.stripes[0] = 64;
    buf_clear(&b);
    parity_sums_encode(&s, &b);
    f.data = (void *)b.data;
    f.len = b.len;
    ok(!parity_sums_decode(&f, &sums), "of no stripe");
}

/* By its bytes it could be one, but it is another message, or there is something behind it. */
static void test_others(void)
{
    const struct parity_group g = {{3, 1}, 0, {10, 20, 30}, {1, 2, 3}};
    const struct parity_want w = {UUID(2), 3, 4, 1, {{0, 5, 6}}};
    const struct parity_sums s = {1, {5}, {7}};
    _buf_ struct buf offer = {0}, want = {0}, end = {0};

    parity_bed_offer(&offer, &g, 3, 30);
    ok(is_offer(SNAP_PARITY_OFFER, &offer) && !is_offer(SNAP_PARITY_WANT, &offer), "an offer");
    buf_append(&offer, "", 1);
    ok(!is_offer(SNAP_PARITY_OFFER, &offer), "and one byte more");
    parity_want_encode(&w, &want);
    ok(is_want(SNAP_PARITY_WANT, &want) && !is_want(SNAP_PARITY_END, &want), "a question");
    buf_append(&want, "", 1);
    ok(!is_want(SNAP_PARITY_WANT, &want), "and one byte more");
    parity_sums_encode(&s, &end);
    ok(is_end(SNAP_PARITY_END, &end) && !is_end(SNAP_PARITY_OFFER, &end), "digests");
    buf_append(&end, "", 1);
    ok(!is_end(SNAP_PARITY_END, &end), "and one byte more");
}

/* The digest: another byte than was sent, or another order. */
static void test_sum(void)
{
    uint64_t one = parity_sum(parity_sum(0, "ab", 2), "cd", 2);

    ok(one != parity_sum(parity_sum(0, "cd", 2), "ab", 2), "the order counts");
    ok(one != parity_sum(parity_sum(0, "ab", 2), "ce", 2), "and each byte");
    ok(one != parity_sum(0, "cd", 2), "and what came before");
}

int main(void)
{
    test_sum();
    test_offers();
    test_wants();
    test_others();
    return tap_done();
}
