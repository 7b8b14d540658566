/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between two holds, over a link: whole, or none. What does not fit is refused
 * with numbers; who dies, hangs or changes its mind in the middle leaves half a copy,
 * which nobody finds; and what comes from outside is held to its bounds.
 */
#include <config.h>

#include "launcher/snap_copy_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID(digit) "0000000000000000000000000000000" #digit
enum { ROOM = 5 * COPY_CHUNK_BYTES + 3 * SNAP_PAGE_BYTES, STUCK_MS = 1500,
       PATIENT_MS = 300000, LONG_ROOM = 32 * COPY_CHUNK_BYTES };

static const uint8_t key[CHANNEL_KEY_BYTES] = {1, 2, 3};
static char *const addrs[] = {(char *)"127.0.0.1", NULL};

struct bed {
    uv_loop_t loop;
    char top[64], dir[2][96];
    struct snap_hold *own, *copies;
    struct snap_copy *from, *to;
    struct link_listener *listener;
    struct snap *snap; /* borrowed: of the last one that was begun */
    int n_begun, n_sent, n_got, n_written, n_fetched;
    uint32_t got_from;
    struct snap_head got;
    struct error error;  /* of what was sent last */
    struct link *bad;    /* a sender that this test is itself */
    int n_answers;
    uint16_t answer;
};

static int finish(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e)
{
    (void)blocks, (void)n_blocks, (void)e;
    buf_append(ret, part, len);
    return 0;
}

static void on_begun(void *arg, uint64_t question, const struct snap *s,
                     const struct error *e)
{
    struct bed *b = arg;

    (void)question, (void)e;
    b->snap = (struct snap *)s;
    b->n_begun++;
}

static void on_copy_begun(void *arg, uint64_t question, const struct snap *s,
                          const struct error *e)
{
    struct bed *b = arg;

    snap_copy_begun(b->to, question, s, e);
}

static void on_written(void *arg, const struct snap_head *head,
                       const struct error *e)
{
    struct bed *b = arg;

    (void)head, (void)e;
    b->n_written++;
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, uint32_t to,
                    const struct error *e)
{
    struct bed *b = arg;

    (void)rank, (void)uuid, (void)to;
    b->n_sent++;
    b->error = *e;
}

static void on_got(void *arg, const struct snap_head *head, uint32_t from)
{
    struct bed *b = arg;

    b->n_got++;
    b->got = *head;
    b->got_from = from;
}

static void on_fetched(void *arg, uint32_t rank, const char *uuid,
                       const struct error *e)
{
    struct bed *b = arg;

    (void)rank, (void)uuid;
    b->n_fetched++;
    b->error = *e;
}

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct bed *b = ctx;

    /* Who has is asked by who has not. */
    snap_copy_take(first->type == SNAP_COPY_WANT ? b->from : b->to, l, first);
}

static struct snap_hold *make_hold(struct bed *b, int i, uint64_t budget)
{
    struct snap_hold_config config = {
        .loop = &b->loop, .dir = b->dir[i], .budget = budget,
        .budget_why = "all that this test has", .io = io_system(),
        .finish = finish, .on_begun = i ? on_copy_begun : on_begun,
        .on_written = on_written, .name = i ? "copy" : "snap",
        .is_elsewhere = true, .arg = b,
    };
    struct snap_hold *h = NULL;
    struct error e;

    if (snap_hold_create(&config, &h, &e) < 0) {
        bail_out("%s", e.text);
    }
    return h;
}

static void bed_open(struct bed *b, uint64_t budget)
{
    struct snap_copy_config config = {.loop = &b->loop, .key = key,
                                      .agent = 7, .stuck_ms = PATIENT_MS,
                                      .on_sent = on_sent, .on_got = on_got,
                                      .on_fetched = on_fetched,
                                      .arg = b};
    struct error e;

    memset(b, 0, sizeof(*b));
    str_copy(b->top, sizeof(b->top), "/tmp/snap_copy_test.XXXXXX");
    if (!mkdtemp(b->top) || uv_loop_init(&b->loop) < 0) {
        bail_out("no directory %s", b->top);
    }
    for (int i = 0; i < 2; i++) {
        snprintf(b->dir[i], sizeof(b->dir[i]), "%s/%d", b->top, i);
    }
    b->own = make_hold(b, 0, UINT64_C(1) << 30);
    b->copies = make_hold(b, 1, budget);
    config.own = b->own;
    if (snap_copy_create(&config, &b->from, &e) < 0 ||
        snap_copy_create(&config, &b->to, &e) < 0 ||
        link_listen(&b->loop, true, &b->listener, &e) < 0) {
        bail_out("%s", e.text);
    }
    snap_copy_hold(b->to, b->copies);
    link_listener_open(b->listener, key, on_peer, b);
}

static void bed_close(struct bed *b)
{
    snap_copy_destroy(b->from);
    snap_copy_destroy(b->to);
    link_close(b->bad);
    link_listener_close(b->listener);
    snap_hold_destroy(b->own);
    snap_hold_destroy(b->copies);
    uv_run(&b->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&b->loop), 0, "nothing is left in the loop");
    fs_remove_tree(b->top, NULL);
}

/* From now on who makes no progress is given up soon. */
static void lose_patience(struct bed *b)
{
    b->from->config.stuck_ms = b->to->config.stuck_ms = STUCK_MS;
}

static bool run_until(struct bed *b, const int *count, int n)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (*count < n && clock_mono_ms() < end) {
        uv_run(&b->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    return *count >= n;
}

/* A rank saves; `fill` is in all of it. */
static void save(struct bed *b, uint32_t rank, const char *uuid, uint64_t step,
                 uint64_t bytes, int fill)
{
    struct snap_rank who = {.rank = rank, .n_ranks = 4, .generation = 2,
                            .token = 5};
    struct error e = {0};
    int n = b->n_begun;

    if (snap_hold_begin(b->own, &who, step, uuid, b->top, bytes, 0, &e) < 0 ||
        !run_until(b, &b->n_begun, n + 1) || !b->snap) {
        bail_out("no snapshot: %s", e.text);
    }
    for (uint64_t i = 0; i < bytes; i++) {
        ((char *)snap_image(b->snap))[i] = (char)(fill + i * 7 / 5);
    }
    if (snap_hold_done(b->own, rank, uuid, bytes - SNAP_PAGE_BYTES, 100, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static int send_it(struct bed *b, uint32_t rank, const char *uuid)
{
    struct error e;

    return snap_copy_send(b->from, rank, uuid, 1, addrs,
                          link_listener_port(b->listener), &e);
}

static bool is_same(struct bed *b, uint32_t rank, const char *uuid)
{
    const struct snap *a = snap_hold_get(b->own, rank, uuid);
    const struct snap *c = snap_hold_get(b->copies, rank, uuid);

    return a && c && a->head.image_bytes == c->head.image_bytes &&
           a->head.part_bytes == c->head.part_bytes &&
           memcmp(snap_image(a), snap_image(c), a->head.image_bytes) == 0 &&
           memcmp(snap_part(a), snap_part(c), a->head.part_bytes) == 0;
}

static void test_whole(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    is_int(send_it(&b, 2, UUID(1)), -ENOENT, "nothing to copy yet");
    save(&b, 2, UUID(1), 10, ROOM, 1);
    save(&b, 3, UUID(1), 10, 2 * SNAP_PAGE_BYTES, 2);
    is_int(send_it(&b, 2, UUID(1)), 0, "one");
    is_int(send_it(&b, 3, UUID(1)), 0, "another one waits for it");
    is_int(b.n_sent, 0, "not from inside the call");
    ok(run_until(&b, &b.n_sent, 2), "both are there");
    is_int(b.error.code, 0, "without a word");
    ok(is_same(&b, 2, UUID(1)), "byte by byte");
    ok(is_same(&b, 3, UUID(1)), "both");
    is_int(b.n_got, 2, "and who got them knows");
    is_int((int)b.got_from, 7, "from whom");
    is_int((int)b.got.n_ranks, 4, "and what they are");
    save(&b, 2, UUID(2), 20, ROOM, 3);
    send_it(&b, 2, UUID(2));
    ok(run_until(&b, &b.n_sent, 3), "the next save");
    ok(is_same(&b, 2, UUID(2)), "is there");
    ok(is_same(&b, 2, UUID(1)), "and the one before");
    save(&b, 2, UUID(3), 30, ROOM, 4);
    send_it(&b, 2, UUID(3));
    ok(run_until(&b, &b.n_sent, 4), "one more");
    ok(is_same(&b, 2, UUID(3)), "is there");
    ok(!snap_hold_get(b.copies, 2, UUID(1)), "in place of the oldest");
    bed_close(&b);
}

static void test_too_large(void)
{
    struct bed b;

    bed_open(&b, 2 * COPY_CHUNK_BYTES);
    save(&b, 0, UUID(1), 10, ROOM, 1);
    send_it(&b, 0, UUID(1));
    ok(run_until(&b, &b.n_sent, 1), "an answer comes");
    is_int(b.error.code, ENOMEM, "it does not fit");
    ok(strstr(b.error.text, "does not fit into 2 MiB") != NULL, "with numbers: %s",
       b.error.text);
    is_int(b.n_got, 0, "there is no copy");
    bed_close(&b);
}

/* Who keeps none, and who does not answer. */
static void test_gone(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    save(&b, 0, UUID(1), 10, ROOM, 1);
    snap_copy_hold(b.to, NULL);
    send_it(&b, 0, UUID(1));
    ok(run_until(&b, &b.n_sent, 1), "one who keeps no copies says so");
    is_int(b.error.code, ENOTSUP, "with a reason");
    link_listener_close(b.listener);
    b.listener = NULL;
    snap_copy_send(b.from, 0, UUID(1), 1, addrs, 1, NULL);
    ok(run_until(&b, &b.n_sent, 2), "nobody listens");
    is_int(b.error.code, ECONNREFUSED, "and why is said: %s", b.error.text);
    if (link_listen(&b.loop, true, &b.listener, NULL) < 0) {
        bail_out("no port");
    }
    lose_patience(&b);
    send_it(&b, 0, UUID(1)); /* connects, and nobody ever answers */
    ok(run_until(&b, &b.n_sent, 3), "one who hangs is given up");
    is_int(b.error.code, ETIMEDOUT, "in time: %s", b.error.text);
    save(&b, 0, UUID(2), 20, ROOM, 1);
    save(&b, 0, UUID(3), 30, ROOM, 1);
    ok(snap_hold_get(b.own, 0, UUID(3)) && !snap_hold_get(b.own, 0, UUID(1)),
       "and its memory is free again");
    bed_close(&b);
}

/* One that is long, of which some has come. */
static void send_half(struct bed *b)
{
    save(b, 0, UUID(1), 10, LONG_ROOM, 1);
    send_it(b, 0, UUID(1));
    while (!b->to->ins || b->to->ins->at == 0) {
        uv_run(&b->loop, UV_RUN_ONCE);
    }
}

/* The save comes to nothing while it is sent. */
static void test_changed_mind(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    send_half(&b);
    snap_hold_settle(b.own, UUID(1), false);
    ok(run_until(&b, &b.n_sent, 1), "its copy ends");
    is_int(b.error.code, ECANCELED, "for that reason");
    while (b.to->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(!snap_hold_get(b.copies, 0, UUID(1)), "half a copy is none");
    is_int(b.n_got, 0, "and nobody heard of one");
    bed_close(&b);
}

/* The sender dies in the middle; the next one gets its place. */
static void test_sender_dies(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    send_half(&b);
    copy_outs_forget(b.from);
    while (b.to->ins) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(!snap_hold_get(b.copies, 0, UUID(1)), "half a copy is none");
    send_it(&b, 0, UUID(1));
    ok(run_until(&b, &b.n_sent, 1), "again");
    ok(is_same(&b, 0, UUID(1)), "whole this time");
    bed_close(&b);
}

/* --- memory that takes long --- */

enum { MANY_WORKS = 128 }; /* more than there are threads */

struct jam {
    uv_work_t works[MANY_WORKS];
    uv_sem_t go;
};

static void wait_go(uv_work_t *work)
{
    struct jam *j = work->data;

    uv_sem_wait(&j->go);
}

static void after_go(uv_work_t *work, int status)
{
    (void)work, (void)status;
}

static void begin_jam(struct bed *b, struct jam *j)
{
    uv_sem_init(&j->go, 0);
    for (int i = 0; i < MANY_WORKS; i++) {
        j->works[i].data = j;
        uv_queue_work(&b->loop, &j->works[i], wait_go, after_go);
    }
}

static void end_jam(struct jam *j)
{
    for (int i = 0; i < MANY_WORKS; i++) {
        uv_sem_post(&j->go);
    }
}

static void run_for(struct bed *b, unsigned ms)
{
    uint64_t end = clock_mono_ms() + ms;

    while (clock_mono_ms() < end) {
        uv_run(&b->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
}

/* Making it takes longer than anybody may make no progress. */
static void test_slow_memory(void)
{
    static struct jam jam;
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    b.from->config.stuck_ms = b.to->config.stuck_ms = 2 * STUCK_MS;
    save(&b, 2, UUID(1), 10, ROOM, 1);
    begin_jam(&b, &jam);
    send_it(&b, 2, UUID(1));
    run_for(&b, 5 * STUCK_MS);
    is_int(b.n_sent, 0, "nobody is given up: %s", b.error.text);
    b.from->config.stuck_ms = b.to->config.stuck_ms = PATIENT_MS;
    end_jam(&jam);
    ok(run_until(&b, &b.n_sent, 1), "it comes when there is memory");
    is_int(b.error.code, 0, "without a word: %s", b.error.text);
    ok(is_same(&b, 2, UUID(1)), "whole");
    bed_close(&b);
    uv_sem_destroy(&jam.go);
}

/* --- what is asked for --- */

static int fetch_it(struct bed *b, uint32_t rank, const char *uuid)
{
    struct error e;

    return snap_copy_fetch(b->to, rank, uuid, addrs,
                           link_listener_port(b->listener), &e);
}

static void test_fetch(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    save(&b, 2, UUID(1), 10, ROOM, 1);
    save(&b, 3, UUID(1), 10, ROOM, 2);
    is_int(fetch_it(&b, 2, UUID(1)), 0, "one is asked for");
    is_int(fetch_it(&b, 3, UUID(1)), 0, "and another one");
    is_int(b.n_fetched, 0, "not from inside the call");
    ok(run_until(&b, &b.n_fetched, 2), "they come");
    is_int(b.error.code, 0, "without a word");
    ok(is_same(&b, 2, UUID(1)) && is_same(&b, 3, UUID(1)), "byte by byte");
    is_int(b.n_got + b.n_sent, 0, "nobody else is told");
    fetch_it(&b, 2, UUID(7));
    ok(run_until(&b, &b.n_fetched, 3), "of one that is not there");
    is_int(b.error.code, ENOENT, "that is said: %s", b.error.text);
    snap_copy_hold(b.to, NULL);
    is_int(fetch_it(&b, 2, UUID(1)), -ENOTSUP, "who has no place for it cannot ask");
    bed_close(&b);
}

/* A copy is sent to one, and asked for by another, at the same time. */
static void test_fetch_beside(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    send_half(&b);
    fetch_it(&b, 0, UUID(1));
    while (!b.from->outs->next) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_out_end(b.from->outs, NULL); /* done with one: the other one reads it still */
    save(&b, 0, UUID(2), 20, ROOM, 1);
    save(&b, 0, UUID(3), 30, ROOM, 1);
    ok(snap_hold_get(b.own, 0, UUID(1)) != NULL, "its memory is not given up");
    ok(run_until(&b, &b.n_fetched, 1), "until it is there");
    ok(is_same(&b, 0, UUID(1)), "whole");
    bed_close(&b);
}

/* Workers wait for what is asked for: it goes before copies that wait. */
static void test_fetch_first(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    save(&b, 2, UUID(1), 10, ROOM, 1);
    save(&b, 3, UUID(1), 10, ROOM, 2);
    send_half(&b);
    send_it(&b, 2, UUID(1));
    fetch_it(&b, 3, UUID(1));
    fetch_it(&b, 2, UUID(1));
    while (b.from->outs->next->next == NULL || !b.from->outs->next->next->next) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    ok(b.from->outs->rank == 0 && b.from->outs->is_begun, "what is on its way stays so");
    ok(b.from->outs->next->is_asked && b.from->outs->next->next->is_asked,
       "then what is asked for");
    ok(!b.from->outs->next->next->next->is_asked, "then copies");
    ok(run_until(&b, &b.n_fetched, 2) && run_until(&b, &b.n_sent, 2), "all of them come");
    bed_close(&b);
}

/* Workers go while it is on its way; and who sends it changes its mind, or dies. */
static void test_fetch_ends(void)
{
    struct bed b;

    bed_open(&b, UINT64_C(1) << 30);
    save(&b, 0, UUID(1), 10, LONG_ROOM, 1);
    fetch_it(&b, 0, UUID(1));
    while (b.to->ins->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    snap_copy_fetch_forget(b.to);
    ok(!b.to->ins, "nobody waits any more");
    while (b.from->outs) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    is_int(b.n_fetched, 0, "and nobody is told");
    fetch_it(&b, 0, UUID(1));
    while (b.to->ins->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    copy_outs_forget(b.from); /* as its death */
    ok(run_until(&b, &b.n_fetched, 1), "who sends it has gone");
    is_int(b.error.code, ECONNRESET, "and why is said: %s", b.error.text);
    fetch_it(&b, 0, UUID(1));
    while (b.to->ins->at == 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    snap_hold_settle(b.own, UUID(1), false);
    ok(run_until(&b, &b.n_fetched, 2), "it came to nothing");
    is_int(b.error.code, ECANCELED, "and why is said: %s", b.error.text);
    ok(!snap_hold_get(b.copies, 0, UUID(1)), "half of one is none");
    bed_close(&b);
}

/* --- a sender that this test is itself --- */

static void on_bad_up(struct link *l, void *ctx)
{
    (void)l, (void)ctx;
}

static void on_bad_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    struct bed *b = ctx;

    (void)l;
    b->answer = f->type;
    b->n_answers++;
}

static void on_bad_down(struct link *l, bool closed, const struct error *why,
                        void *ctx)
{
    struct bed *b = ctx;

    (void)l, (void)closed, (void)why;
    b->answer = 0;
    b->n_answers++;
}

static const struct link_ops bad_ops = {.on_up = on_bad_up,
                                        .on_frame = on_bad_frame,
                                        .on_down = on_bad_down};

static void offer(struct bed *b, const struct snap_head *h)
{
    struct link_target target = {.addrs = addrs,
                                 .port = link_listener_port(b->listener),
                                 .timeout_ms = 5000};
    _buf_ struct buf bytes = {0};

    link_close(b->bad);
    b->n_answers = 0;
    if (link_connect(&b->loop, &target, key, &bad_ops, b, &b->bad, NULL) < 0) {
        bail_out("no link");
    }
    copy_offer_encode(h, 7, &bytes);
    link_send_buf(b->bad, SNAP_COPY_OFFER, &bytes);
    run_until(b, &b->n_answers, 1);
}

static struct snap_head head_of(uint64_t bytes)
{
    struct snap_head h = {.rank = 1, .n_ranks = 4, .step = 10,
                          .image_bytes = bytes, .part_bytes = 10};

    str_copy(h.uuid, sizeof(h.uuid), UUID(1));
    str_copy(h.root, sizeof(h.root), "/ck");
    return h;
}

static void test_nonsense(void)
{
    struct snap_head h;
    struct bed b;
    uint64_t zero = 0;

    bed_open(&b, UINT64_C(1) << 30);
    h = head_of(1000);
    h.rank = 4;
    offer(&b, &h);
    is_int(b.answer, SNAP_COPY_REFUSED, "a rank that is none");
    h = head_of(UINT64_MAX - 5);
    offer(&b, &h);
    is_int(b.answer, SNAP_COPY_REFUSED, "more bytes than there can be");
    h = head_of(UINT64_C(1) << 40);
    offer(&b, &h);
    is_int(b.answer, SNAP_COPY_REFUSED, "more bytes than there are");
    h = head_of(1000);
    str_copy(h.uuid, sizeof(h.uuid), "../../x");
    offer(&b, &h);
    is_int(b.answer, SNAP_COPY_REFUSED, "a name that is none");
    h = head_of(1000);
    str_copy(h.root, sizeof(h.root), "ck");
    offer(&b, &h);
    is_int(b.answer, SNAP_COPY_REFUSED, "a path that is not absolute");
    h = head_of(1000);
    offer(&b, &h);
    is_int(b.answer, SNAP_COPY_READY, "one that makes sense");
    b.n_answers = 0;
    link_send(b.bad, SNAP_COPY_DATA, key, sizeof(key));
    link_send(b.bad, SNAP_COPY_END, &zero, sizeof(zero));
    run_until(&b, &b.n_answers, 1);
    is_int(b.answer, SNAP_COPY_REFUSED, "too little came");
    offer(&b, &h);
    b.n_answers = 0;
    for (int i = 0; i < 1000; i++) {
        link_send(b.bad, SNAP_COPY_DATA, key, sizeof(key));
    }
    run_until(&b, &b.n_answers, 1);
    is_int(b.answer, SNAP_COPY_REFUSED, "more came than was offered");
    offer(&b, &h);
    b.n_answers = 0;
    while (link_queued(b.bad) > 0) {
        uv_run(&b.loop, UV_RUN_ONCE);
    }
    lose_patience(&b);
    run_until(&b, &b.n_answers, 1);
    is_int(b.answer, SNAP_COPY_REFUSED, "one that comes no further is given up");
    is_int(b.n_got, 0, "no copy came of any of them");
    bed_close(&b);
}

/* The digest: another byte than was sent, or another order. */
static void test_sum(void)
{
    uint64_t one = copy_sum(copy_sum(0, "ab", 2), "cd", 2);

    ok(one != copy_sum(copy_sum(0, "cd", 2), "ab", 2), "the order counts");
    ok(one != copy_sum(copy_sum(0, "ab", 2), "ce", 2), "and each byte");
    ok(one != copy_sum(0, "cd", 2), "and what came before");
}

int main(void)
{
    test_whole();
    test_too_large();
    test_gone();
    test_changed_mind();
    test_sender_dies();
    test_slow_memory();
    test_fetch();
    test_fetch_first();
    test_fetch_beside();
    test_fetch_ends();
    test_nonsense();
    test_sum();
    return tap_done();
}
