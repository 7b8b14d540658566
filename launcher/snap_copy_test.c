/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between two holds, over a link: whole, or none. What does not fit is refused
 * with numbers; who dies, hangs or changes its mind in the middle leaves half a copy,
 * which nobody finds; and what comes from outside is held to its bounds.
 */
#include <config.h>

#include "launcher/copy_bed.h"

#include "base/aead.h"
#include "base/cleanup.h"
#include "base/mapguard.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

/* Whether it is encrypted on its way. */
static bool hides;

static void open_bed(struct copy_bed *b, uint64_t budget)
{
    copy_bed_open(b, budget);
    copy_bed_hide(b, hides);
}

static void test_whole(void)
{
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    is_int(copy_bed_send(&b, 2, UUID(1)), -ENOENT, "nothing to copy yet");
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_save(&b, 3, UUID(1), 10, 2 * SNAP_PAGE_BYTES, 2);
    is_int(copy_bed_send(&b, 2, UUID(1)), 0, "one");
    is_int(copy_bed_send(&b, 3, UUID(1)), 0, "another one waits for it");
    is_int(b.copied.n_sent, 0, "not from inside the call");
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 2), "both are there");
    is_int(b.copied.error.code, 0, "without a word");
    ok(copy_bed_is_same(&b, 2, UUID(1)), "byte by byte");
    ok(copy_bed_is_same(&b, 3, UUID(1)), "both");
    is_int(b.copied.n_got, 2, "and who got them knows");
    is_int((int)b.copied.got_from, 7, "from whom");
    is_int((int)b.copied.got.n_ranks, 16, "and what they are");
    copy_bed_save(&b, 2, UUID(2), 20, COPY_ROOM, 3);
    copy_bed_send(&b, 2, UUID(2));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 3), "the next save");
    ok(copy_bed_is_same(&b, 2, UUID(2)), "is there");
    ok(copy_bed_is_same(&b, 2, UUID(1)), "and the one before");
    copy_bed_save(&b, 2, UUID(3), 30, COPY_ROOM, 4);
    copy_bed_send(&b, 2, UUID(3));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 4), "one more");
    ok(copy_bed_is_same(&b, 2, UUID(3)), "is there");
    ok(!snap_hold_get(b.copies, 2, UUID(1)), "in place of the oldest");
    copy_bed_close(&b);
}

#if defined(HAVE_LIBCRYPTO) || defined(HAVE_IPSEC_MB)

static int is_for_large(struct dl_phdr_info *info, size_t size, void *unused)
{
    (void)size, (void)unused;
    return strstr(info->dlpi_name, "libcrypto") || strstr(info->dlpi_name, "libIPSec_MB");
}

/* Before there is a large frame, for which the loop would stand still meanwhile. */
static void test_prepared(void)
{
    struct copy_bed b;
    bool was_there = dl_iterate_phdr(is_for_large, NULL);

    open_bed(&b, UINT64_C(1) << 30);
    for (int i = 0; i < 3000 && !dl_iterate_phdr(is_for_large, NULL); i++) {
        uv_run(&b.loop, UV_RUN_NOWAIT);
        uv_sleep(10);
    }
    ok(!was_there && dl_iterate_phdr(is_for_large, NULL),
       "what seals large frames is loaded with nothing sent yet");
    copy_bed_close(&b);
}

#else

static void test_prepared(void)
{
    skip("built without libcrypto and libIPSec_MB");
}

#endif

static void test_too_large(void)
{
    struct copy_bed b;

    open_bed(&b, 2 << 20);
    copy_bed_save(&b, 0, UUID(1), 10, COPY_ROOM, 1);
    copy_bed_send(&b, 0, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "an answer comes");
    is_int(b.copied.error.code, ENOMEM, "it does not fit");
    ok(strstr(b.copied.error.text, "does not fit into 2 MiB") != NULL, "with numbers: %s",
       b.copied.error.text);
    is_int(b.copied.n_got, 0, "there is no copy");
    copy_bed_close(&b);
}

/* A worker cuts what it has saved before it is copied: the zeros that are there instead
 * are no copy. */
static void test_cut(void)
{
    const struct snap *s;
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 0, UUID(1), 10, COPY_ROOM, 1);
    s = snap_hold_get(b.own, 0, UUID(1));
    ok(s && ftruncate(s->fd, 0) == 0, "a worker cuts its memory");
    copy_bed_send(&b, 0, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "the copy comes to its end");
    is_int(b.copied.error.code, EIO, "and is none: %s", b.copied.error.text);
    is_int(b.copied.n_got, 0, "nobody has got it");
    copy_bed_close(&b);
}

/* Who keeps none, and who does not answer. */
static void test_gone(void)
{
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, 0, UUID(1), 10, COPY_ROOM, 1);
    snap_copy_hold(b.to, NULL);
    copy_bed_send(&b, 0, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "one who keeps no copies says so");
    is_int(b.copied.error.code, ENOTSUP, "with a reason");
    link_listener_close(b.listener);
    b.listener = NULL;
    snap_copy_send(b.from, 0, UUID(1), 1, copy_said_addrs, 1, NULL);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 2), "nobody listens");
    is_int(b.copied.error.code, ECONNREFUSED, "and why is said: %s", b.copied.error.text);
    if (link_listen(&b.loop, true, &b.listener, NULL) < 0) {
        bail_out("no port");
    }
    copy_bed_give_up_after(&b, COPY_STUCK_MS);
    copy_bed_send(&b, 0, UUID(1)); /* connects, and nobody ever answers */
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 3), "one who hangs is given up");
    is_int(b.copied.error.code, ETIMEDOUT, "in time: %s", b.copied.error.text);
    copy_bed_save(&b, 0, UUID(2), 20, COPY_ROOM, 1);
    copy_bed_save(&b, 0, UUID(3), 30, COPY_ROOM, 1);
    ok(snap_hold_get(b.own, 0, UUID(3)) && !snap_hold_get(b.own, 0, UUID(1)),
       "and its memory is free again");
    copy_bed_close(&b);
}

/* The save comes to nothing while it is sent. */
static void test_changed_mind(void)
{
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    copy_bed_send_half(&b);
    snap_hold_settle(b.own, UUID(1), false);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "its copy ends");
    is_int(b.copied.error.code, ECANCELED, "for that reason");
    while (b.to->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(!snap_hold_get(b.copies, 0, UUID(1)), "half a copy is none");
    is_int(b.copied.n_got, 0, "and nobody heard of one");
    copy_bed_close(&b);
}

/* The sender dies in the middle; the next one gets its place. */
static void test_sender_dies(void)
{
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    copy_bed_send_half(&b);
    copy_outs_forget(b.from);
    while (b.to->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(!snap_hold_get(b.copies, 0, UUID(1)), "half a copy is none");
    copy_bed_send(&b, 0, UUID(1));
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "again");
    ok(copy_bed_is_same(&b, 0, UUID(1)), "whole this time");
    copy_bed_close(&b);
}

/* Making it takes longer than anybody may make no progress. */
static void test_slow_memory(void)
{
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    copy_bed_give_up_after(&b, 2 * COPY_STUCK_MS);
    copy_bed_save(&b, 2, UUID(1), 10, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    copy_bed_send(&b, 2, UUID(1));
    snap_bed_run_for(&b.loop, 5 * COPY_STUCK_MS);
    is_int(b.copied.n_sent, 0, "nobody is given up: %s", b.copied.error.text);
    copy_bed_give_up_after(&b, 300000);
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_sent, 1), "it comes when there is memory");
    is_int(b.copied.error.code, 0, "without a word: %s", b.copied.error.text);
    ok(copy_bed_is_same(&b, 2, UUID(1)), "whole");
    copy_bed_close(&b);
}

/* --- a sender that this test is itself --- */

struct bad_sender {
    struct copy_bed *bed;
    struct link *link;
    int n_answers;
    uint16_t answer;
};

static void on_bad_up(struct link *l, void *ctx)
{
    (void)l, (void)ctx;
}

static void on_bad_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct bad_sender *s = ctx;

    (void)l;
    s->answer = f->type;
    s->n_answers++;
}

static void on_bad_down(struct link *l, bool closed, const struct error *why,
                        void *ctx)
{
    struct bad_sender *s = ctx;

    (void)l, (void)closed, (void)why;
    s->answer = 0;
    s->n_answers++;
}

static const struct link_ops bad_ops = {.on_up = on_bad_up,
                                        .on_frame = on_bad_frame,
                                        .on_down = on_bad_down};

static void await(struct bad_sender *s)
{
    copy_bed_run_until(s->bed, &s->n_answers, 1);
    s->n_answers = 0;
}

static void offer(struct bad_sender *s, const struct snap_head *h)
{
    struct link_target target = {.addrs = copy_said_addrs,
                                 .port = link_listener_port(s->bed->listener),
                                 .timeout_ms = 5000};
    _buf_ struct buf bytes = {0};

    link_close(s->link);
    s->n_answers = 0;
    if (link_connect(&s->bed->loop, &target, copy_said_key, &bad_ops, s, &s->link,
                     NULL) < 0) {
        bail_out("no link");
    }
    copy_offer_encode(h, 7, &bytes);
    link_send_buf(s->link, SNAP_COPY_OFFER, &bytes);
    await(s);
}

static struct snap_head head_of(uint64_t bytes)
{
    struct snap_head h = {.rank = 1, .n_ranks = 4, .step = 10,
                          .image_bytes = bytes, .part_bytes = 10};

    str_copy(h.uuid, sizeof(h.uuid), UUID(1));
    str_copy(h.root, sizeof(h.root), "/ck");
    return h;
}

/* An offer that makes no sense. */
static void test_nonsense(void)
{
    struct snap_head h;
    struct copy_bed b;
    struct bad_sender s = {.bed = &b};

    open_bed(&b, UINT64_C(1) << 30);
    h = head_of(1000);
    h.rank = 4;
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "a rank that is none");
    h = head_of(1000);
    h.n_ranks = (1 << 20) + 1;
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "of more ranks than there can be");
    h = head_of(UINT64_MAX - 5);
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "more bytes than there can be");
    h = head_of(UINT64_C(1) << 40);
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "more bytes than there are");
    h = head_of(1000);
    h.step = (uint64_t)INT64_MAX + 1;
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "a step that is none");
    h = head_of(1000);
    str_copy(h.uuid, sizeof(h.uuid), "../../x");
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "a name that is none");
    h = head_of(1000);
    str_copy(h.root, sizeof(h.root), "ck");
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "a path that is not absolute");
    is_int(b.copied.n_got, 0, "no copy came of any of them");
    link_close(s.link);
    copy_bed_close(&b);
}

/* One that does, and then something else comes, or nothing. */
static void test_bad_data(void)
{
    const struct snap_head h = head_of(1000);
    const char junk[CHANNEL_KEY_BYTES] = {0};
    struct copy_bed b;
    struct bad_sender s = {.bed = &b};

    open_bed(&b, UINT64_C(1) << 30);
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_READY, "one that makes sense");
    link_send(s.link, SNAP_COPY_DATA, junk, sizeof(junk));
    link_send(s.link, SNAP_COPY_END, NULL, 0);
    await(&s);
    is_int(s.answer, SNAP_COPY_REFUSED, "too little came");
    offer(&s, &h);
    for (int i = 0; i < 1000; i++) {
        link_send(s.link, SNAP_COPY_DATA, junk, sizeof(junk));
    }
    await(&s);
    is_int(s.answer, SNAP_COPY_REFUSED, "more came than was offered");
    offer(&s, &h);
    while (link_queued(s.link) > 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_bed_give_up_after(&b, COPY_STUCK_MS);
    await(&s);
    is_int(s.answer, SNAP_COPY_REFUSED, "one that comes no further is given up");
    offer(&s, &h);
    for (uint64_t left = snap_room(h.image_bytes, h.part_bytes); left > 0;) {
        size_t n = left < sizeof(junk) ? left : sizeof(junk);

        link_send(s.link, SNAP_COPY_DATA, junk, n);
        left -= n;
    }
    link_send(s.link, SNAP_COPY_END, junk, 1);
    await(&s);
    is_int(s.answer, SNAP_COPY_REFUSED, "an end with something in it");
    is_int(b.copied.n_got, 0, "no copy came of any of them");
    link_close(s.link);
    copy_bed_close(&b);
}

/* Large frames are opened where the copy lies. */
static void test_bad_large(void)
{
    static const struct {
        uint16_t type;
        size_t len;
        const char *what;
    } cases[] = {
        {SNAP_COPY_END, 64 << 10, "an end that is as long as data"},
        {SNAP_COPY_OFFER, 64 << 10, "another offer that is"},
        {SNAP_COPY_DATA, 128 << 10, "data that is more than was offered"},
    };
    const struct snap_head h = head_of(100000);
    _free_ char *junk = calloc(1, 128 << 10);
    struct copy_bed b;
    struct bad_sender s = {.bed = &b};

    open_bed(&b, UINT64_C(1) << 30);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        offer(&s, &h);
        is_int(s.answer, SNAP_COPY_READY, "one that makes sense");
        (hides ? link_send : link_send_open)(s.link, cases[i].type, junk, cases[i].len);
        await(&s);
        is_int(s.answer, SNAP_COPY_REFUSED, "%s", cases[i].what);
    }
    is_int(b.copied.n_got, 0, "no copy came of any of them");
    link_close(s.link);
    copy_bed_close(&b);
}

/* More senders than one node has partners: others are told, and nobody is cut off. */
static void test_many_senders(void)
{
    enum { MOST = 16 };
    struct bad_sender all[MOST + 1] = {0};
    struct snap_head h = head_of(1000);
    struct copy_bed b;

    open_bed(&b, UINT64_C(1) << 30);
    h.n_ranks = MOST + 1;
    for (uint32_t i = 0; i <= MOST; i++) {
        all[i].bed = &b;
        h.rank = i;
        offer(&all[i], &h);
        is_int(all[i].answer, i < MOST ? SNAP_COPY_READY : SNAP_COPY_REFUSED,
               "sender %u of %d", i + 1, MOST + 1);
    }
    for (uint32_t i = 0; i <= MOST; i++) {
        link_close(all[i].link);
    }
    copy_bed_close(&b);
}

/* Two send the same one at a time: what was asked for goes on, alone. */
static void test_two_senders(void)
{
    struct snap_head h = head_of(1000);
    struct copy_bed b;
    struct bad_sender s = {.bed = &b};

    open_bed(&b, UINT64_C(1) << 30);
    copy_bed_save(&b, h.rank, h.uuid, h.step, COPY_ROOM, 1);
    snap_jam_begin(&b.jam, &b.loop);
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_MAKING, "a copy, for which memory is made");
    copy_bed_fetch(&b, h.rank, h.uuid);
    await(&s);
    is_int(s.answer, 0, "gives way to what is asked for");
    offer(&s, &h);
    is_int(s.answer, SNAP_COPY_REFUSED, "nor is it taken meanwhile");
    snap_jam_end(&b.jam);
    ok(copy_bed_run_until(&b, &b.copied.n_fetched, 1) &&
           b.copied.error.code == 0, "that comes");
    ok(copy_bed_is_same(&b, h.rank, h.uuid), "whole");
    link_close(s.link);
    copy_bed_close(&b);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN); /* as in all that have links */
    mapguard_install();
    mapguard_admit();
    if (aead_best() != AEAD_CHACHA20_POLY1305) {
        test_prepared();
    }
    for (int i = 0; i < 2; i++) {
        hides = i;
        test_whole();
        test_cut();
        test_changed_mind();
        test_sender_dies();
        test_bad_large();
    }
    test_too_large();
    test_gone();
    test_slow_memory();
    test_nonsense();
    test_bad_data();
    test_many_senders();
    test_two_senders();
    return tap_done();
}
