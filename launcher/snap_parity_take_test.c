/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever knows the key, and says what it likes to who keeps parity: it is refused, and
 * what is there stays as it is.
 */
#include <config.h>

#include "launcher/parity_bed.h"

#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Whoever knows the key, and says what it likes. */
struct liar {
    struct link *link;
    uint16_t types[4];
    struct buf *frames[4];
    int n_down, n_refused;
    char why[256]; /* the last time */
};

static void liar_up(struct link *l, void *ctx)
{
    struct liar *x = ctx;

    for (int i = 0; i < 4 && x->frames[i]; i++) {
        link_send(l, x->types[i], x->frames[i]->data, x->frames[i]->len);
    }
}

static void liar_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct liar *x = ctx;
    struct error e = {0};

    (void)l;
    if (f->type == SNAP_COPY_REFUSED) {
        x->n_refused++;
        copy_refused_decode(f, &e);
        str_copy(x->why, sizeof(x->why), e.text);
    }
}

static void liar_down(struct link *l, bool closed, const struct error *why, void *ctx)
{
    struct liar *x = ctx;

    (void)l, (void)closed, (void)why;
    x->n_down++;
}

static void say(struct parity_bed *b, struct liar *x)
{
    static const struct link_ops ops = {.on_up = liar_up, .on_frame = liar_frame,
                                        .on_down = liar_down};
    char *const addrs[] = {(char *)"127.0.0.1", NULL};
    struct link_target t = {.addrs = addrs, .timeout_ms = 20000,
                            .port = link_listener_port(b->nodes[0].listener)};

    x->n_down = 0;
    if (link_connect(&b->loop, &t, parity_bed_key, &ops, x, &x->link, NULL) < 0) {
        bail_out("no link");
    }
}

static void lie(struct parity_bed *b, struct liar *x, const char *what)
{
    say(b, x);
    ok(snap_bed_run_until(&b->loop, &x->n_down, 1), "%s", what);
    link_close(x->link);
}

static void test_liars(void)
{
    struct parity_bed b;
    _buf_ struct buf good = {0}, big = {0}, want = {0}, none = {0}, other = {0};
    struct parity_group g;
    struct parity_want w = {UUID(1), 10, 11, 1, {{0, 0, UINT64_C(1) << 40}}};
    struct parity_want far = {UUID(1), 10, 11, 1, {{0, UINT64_C(1) << 40, 1}}};
    struct parity_want over = {UUID(1), 10, 11, 1, {{0, 1, 0}}};
    struct liar x = {.types = {SNAP_PARITY_OFFER, SNAP_PARITY_DATA, SNAP_PARITY_DATA,
                               SNAP_PARITY_END}};

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    g = b.group;
    parity_bed_offer(&good, &b.group, 11, 10);
    for (int i = 0; i < 3 * SNAP_PAGE_BYTES; i++) {
        buf_append(&big, "x", 1);
    }
    x.frames[0] = &none;
    lie(&b, &x, "an offer of nothing");
    parity_bed_offer(&other, &b.group, 10, 0);
    x.frames[0] = &other;
    lie(&b, &x, "an offer of what it has itself");
    g.agents[0] = 40;
    parity_bed_offer(&other, &g, 11, 10);
    lie(&b, &x, "an offer to others");
    ok(x.n_refused == 3 && !b.nodes[0].parity->kept, "are refused, and leave nothing");
    x.frames[0] = &good;
    x.frames[1] = &big;
    lie(&b, &x, "more than was offered");
    ok(!b.nodes[0].parity->kept, "leaves nothing");
    x.frames[1] = &none;
    lie(&b, &x, "a piece of nothing");
    ok(!b.nodes[0].parity->kept, "leaves nothing");
    x.frames[1] = &big;
    x.types[1] = SNAP_PARITY_END;
    lie(&b, &x, "an end before its time");
    ok(!b.nodes[0].parity->kept && b.nodes[0].parity->bytes == 0, "leaves nothing");
    x.types[1] = SNAP_PARITY_DONE;
    lie(&b, &x, "an answer to nothing");
    x.types[0] = SNAP_PARITY_WANT;
    x.frames[1] = NULL;
    x.frames[0] = &none;
    lie(&b, &x, "a question for nothing");
    parity_want_encode(&w, &want);
    x.frames[0] = &want;
    parity_bed_save(&b, 0, UUID(1), 10);
    lie(&b, &x, "for more than there is");
    buf_clear(&want);
    parity_want_encode(&far, &want);
    lie(&b, &x, "for what lies behind it");
    over.segs[0].len = parity_bed_bytes(0) + SNAP_PAGE_BYTES;
    buf_clear(&want);
    parity_want_encode(&over, &want);
    lie(&b, &x, "for a byte behind it");
    is_int(x.n_refused, 11, "all of that is refused");
    ok(parity_bed_save_all(&b, UUID(2), 20) && b.n_whole == 3, "others are none the worse");
    str_copy(far.uuid, sizeof(far.uuid), UUID(2));
    far.segs[0].kept = 1;
    buf_clear(&want);
    parity_want_encode(&far, &want);
    lie(&b, &x, "for what lies behind its parity");
    over = far;
    over.segs[0] = (struct parity_seg){1, 1, b.nodes[0].parity->kept->memory[0].room};
    buf_clear(&want);
    parity_want_encode(&over, &want);
    lie(&b, &x, "for a byte behind that");
    over.segs[0] = (struct parity_seg){2, 0, 1};
    buf_clear(&want);
    parity_want_encode(&over, &want);
    lie(&b, &x, "or for parity that it does not keep");
    is_int(x.n_refused, 14, "is refused, too");
    parity_bed_close(&b);
}

/* As many bytes as were offered, or so many more; and a digest that is not theirs. */
static void test_digests(void)
{
    struct parity_sums s = {1, {0}, {12345}};
    _buf_ struct buf good = {0}, data = {0}, two = {0}, end = {0};
    struct liar x = {.types = {SNAP_PARITY_OFFER, SNAP_PARITY_DATA, SNAP_PARITY_END}};
    struct snap_head h = {.image_bytes = 100};
    uint64_t at, len;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_offer(&good, &b.group, 11, 10);
    parity_piece(&b.group.shape, 0, 1, parity_image_bytes(&h), &at, &len);
    for (uint64_t i = 0; i < len; i++) {
        buf_append(&data, "x", 1);
    }
    parity_sums_encode(&s, &end);
    x.frames[0] = &good;
    x.frames[1] = &data;
    x.frames[2] = &end;
    lie(&b, &x, "bytes that have another digest");
    is_int(x.n_refused, 1, "are refused");
    ok(!b.nodes[0].parity->kept, "and leave nothing");
    s.sums[0] = parity_sum(0, data.data, data.len);
    buf_clear(&end);
    parity_sums_encode(&s, &end);
    x.types[3] = SNAP_PARITY_END;
    x.frames[3] = &end;
    lie(&b, &x, "an end behind the end");
    ok(x.n_refused == 2 && !b.nodes[0].parity->kept, "is refused, with what came before");
    x.frames[3] = NULL;
    s.n = 2;
    buf_clear(&end);
    parity_sums_encode(&s, &end);
    lie(&b, &x, "a digest of more than came");
    ok(x.n_refused == 3 && !b.nodes[0].parity->kept, "is refused");
    buf_append(&data, "x", 1);
    lie(&b, &x, "a byte more");
    is_int(x.n_refused, 4, "is refused");
    data.len -= 2;
    buf_append(&two, "xx", 2);
    x.types[2] = SNAP_PARITY_DATA;
    x.frames[2] = &two;
    lie(&b, &x, "or in a second part");
    is_int(x.n_refused, 5, "is refused");
    x.frames[1] = NULL;
    parity_bed_be_impatient(&b);
    lie(&b, &x, "an offer, and nothing behind it");
    is_int(x.n_refused, 6, "is not waited for");
    ok(!b.nodes[0].parity->kept, "nor kept");
    parity_bed_close(&b);
}

/* What one has sent stays whatever others say of that save. */
static void test_strangers(void)
{
    const struct parity_want half = {UUID(1), PARITY_NO_RANK, 11, 1, {{1, 0, 8}}};
    struct parity_group other;
    _buf_ struct buf first = {0}, want = {0};
    struct liar x = {.types = {SNAP_PARITY_OFFER}, .frames = {&first}};
    struct parity_kept *k;
    struct parity_bed b;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    for (unsigned i = 0; i < 3; i++) {
        parity_bed_save(&b, i, UUID(1), 10);
    }
    parity_bed_send(&b, 1, UUID(1));
    do {
        uv_run(&b.loop, UV_RUN_ONCE);
        k = b.nodes[0].parity->kept;
    } while (!k || k->coming[1] != PARITY_THERE);
    parity_bed_offer(&first, &b.group, 11, 10);
    lie(&b, &x, "one that has sent it offers it again");
    other = b.group;
    other.shape.m = 2;
    parity_bed_offer(&first, &other, 12, 20);
    lie(&b, &x, "another one sees another group");
    other = b.group;
    other.ranks[1] = 15;
    parity_bed_offer(&first, &other, 12, 20);
    lie(&b, &x, "or other ranks,");
    other = b.group;
    other.agents[1] = 40;
    parity_bed_offer(&first, &other, 12, 20);
    lie(&b, &x, "or other nodes,");
    other = b.group;
    other.shape.n = 4;
    parity_bed_offer(&first, &other, 12, 20);
    lie(&b, &x, "or one more,");
    other = b.group;
    other.index = 1;
    parity_bed_offer(&first, &other, 12, 20);
    lie(&b, &x, "or another set");
    is_int(x.n_refused, 6, "all are refused");
    snap_parity_tell(b.nodes[0].parity);
    ok(b.n_whole == 0 && !snap_parity_find(b.nodes[0].parity, 11, UUID(1)),
       "what has not come whole is nobody's");
    parity_want_encode(&half, &want);
    x.types[0] = SNAP_PARITY_WANT;
    x.frames[0] = &want;
    lie(&b, &x, "who asks for parity that is not whole");
    is_int(x.n_refused, 7, "gets none");
    ok(b.nodes[0].parity->kept == k && k->coming[1] == PARITY_THERE &&
           k->coming[2] == PARITY_NONE, "and what is here stays");
    parity_bed_send(&b, 0, UUID(1));
    parity_bed_send(&b, 2, UUID(1));
    ok(snap_bed_run_until(&b.loop, &b.n_sent, 3) && b.n_whole == 3, "it becomes whole");
    parity_bed_close(&b);
}

/* A part has come: that is progress, and nobody else's of that rank is added to it. */
static void test_part(void)
{
    _buf_ struct buf first = {0}, part = {0};
    struct liar slow = {.types = {SNAP_PARITY_OFFER}, .frames = {&first}}, again = slow;
    struct parity_in *in;
    struct parity_bed b;
    uint64_t before;

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_offer(&first, &b.group, 11, 10);
    buf_append(&part, "xxxx", 4);
    say(&b, &slow);
    while (!b.nodes[0].parity->ins) {
        uv_run(&b.loop, UV_RUN_NOWAIT);
    }
    in = b.nodes[0].parity->ins;
    in->moved_ms = before = uv_now(&b.loop) - 1000;
    link_send_buf(slow.link, SNAP_PARITY_DATA, &part);
    while (in->at == 0) {
        uv_run(&b.loop, UV_RUN_NOWAIT);
    }
    ok(in->moved_ms > before, "bytes that come are progress");
    lie(&b, &again, "what comes is offered by another one, too");
    ok(again.n_refused == 1 && slow.n_down == 0 && b.nodes[0].parity->ins == in && in->at == 4,
       "who is refused");
    link_close(slow.link);
    parity_bed_close(&b);
}

/* Whoever asks is sent something: no more than 256 at once, whatever else is on its way. */
static void test_many_ask(void)
{
    enum { MANY = 256, OTHERS = 8 };
    struct parity_want w = {UUID(1), 10, 11, 1, {{0, 0, 100}}};
    struct parity_way *ways = calloc(MANY + OTHERS, sizeof(*ways));
    struct liar x = {.types = {SNAP_PARITY_WANT}};
    struct parity_out out = {0};
    struct snap_parity *c;
    struct parity_bed b;
    _buf_ struct buf want = {0};

    parity_bed_open(&b, 3, 1, UINT64_C(1) << 30);
    parity_bed_save(&b, 0, UUID(1), 10);
    parity_want_encode(&w, &want);
    x.frames[0] = &want;
    c = b.nodes[0].parity;
    for (int i = 0; ways && i < MANY + OTHERS; i++) {
        ways[i] = (struct parity_way){.next = i > 0 ? &ways[i - 1] : NULL, .parity = c,
                                      .out = i < OTHERS ? &out : NULL,
                                      .moved_ms = uv_now(&b.loop)};
    }
    c->ways = &ways[MANY + OTHERS - 2];
    lie(&b, &x, "one asks, as 255 others do, and all are served");
    ok(x.n_refused == 0 && c->ways == &ways[MANY + OTHERS - 2], "it has what it has asked for");
    c->ways = &ways[MANY + OTHERS - 1];
    lie(&b, &x, "and one more");
    is_int(x.n_refused, 1, "which is refused");
    is_str(x.why, "256 others ask", "and hears why");
    c->ways = NULL;
    free(ways);
    parity_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    test_liars();
    test_digests();
    test_strangers();
    test_part();
    test_many_ask();
    return tap_done();
}
