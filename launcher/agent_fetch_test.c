/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An agent fetches what its ranks load from two nodes that may have it. Workers always
 * get an answer: what was fetched, or that there is none, in time, whoever is silent,
 * refuses, dies in the middle, or says what makes no sense.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"
#include "launcher/snap_copy_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UUID_A "00000000000000000000000000000aaa"
#define UUID_B "00000000000000000000000000000bbb"

enum { GENERATION = 3, ROOM = 3 * SNAP_PAGE_BYTES, STUCK_MS = 60000,
       LONG_ROOM = 64 * COPY_CHUNK_BYTES, PATIENT_MS = 300000, SOON_MS = 1200 };

static const uint8_t key[CHANNEL_KEY_BYTES] = {4, 5, 6};

/* One that may have it. */
struct node {
    struct bed *bed;
    struct snap_hold *hold;
    struct snap_copy *copy;
    struct link_listener *listener;
    struct link *mute; /* whom it does not answer */
    bool is_mute;
    int n_asked;
    struct snap *snap; /* borrowed: of the last one that was begun */
    int n_begun;
};

struct bed {
    struct agent agent; /* of rank 0 */
    struct agent_snap snap;
    struct node nodes[2]; /* agents 1 and 2 */
    char top[64];
};

/* What the agent does, seen by the linker's hand. */
static int n_wants, n_answers, n_found;
static uint64_t answered_ms;
static int n_notes;
static char note[256];

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);
void __wrap_agent_snap_hand_out(struct agent *a, const struct snap_question *q,
                                uint32_t rank, const struct snap *s);

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    (void)a;
    jsonw_end_object(w);
    n_wants += strstr(buf_str(w->to), "\"snap_want\"") != NULL;
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    va_list ap;

    (void)a;
    va_start(ap, fmt);
    vsnprintf(note, sizeof(note), fmt, ap);
    va_end(ap);
    n_notes++;
}

void __wrap_agent_snap_hand_out(struct agent *a, const struct snap_question *q,
                                uint32_t rank, const struct snap *s)
{
    (void)q;
    n_answers++;
    n_found += s && s->head.rank == rank;
    answered_ms = uv_now(&a->loop);
}

/* --- the bed --- */

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
    struct node *n = arg;

    (void)question, (void)e;
    n->snap = (struct snap *)s;
    n->n_begun++;
}

static void on_copy_begun(void *arg, uint64_t question, const struct snap *s,
                          const struct error *e)
{
    struct bed *b = arg;

    snap_copy_begun(b->snap.copy, question, s, e);
}

static void on_written(void *arg, const struct snap_head *head,
                       const struct error *e)
{
    (void)arg, (void)head, (void)e;
}

static void on_sent(void *arg, uint32_t rank, const char *uuid, uint32_t to,
                    const struct error *e)
{
    (void)arg, (void)rank, (void)uuid, (void)to, (void)e;
}

static void on_got(void *arg, const struct snap_head *head, uint32_t from)
{
    (void)arg, (void)head, (void)from;
}

static void on_mute_frame(struct link *l, const struct channel_frame *f, void *ctx)
{
    (void)l, (void)f, (void)ctx;
}

static void on_mute_down(struct link *l, bool closed, const struct error *why,
                         void *ctx)
{
    struct node *n = ctx;

    (void)closed, (void)why;
    n->mute = NULL;
    link_close(l);
}

static const struct link_ops mute_ops = {.on_frame = on_mute_frame,
                                         .on_down = on_mute_down};

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct node *n = ctx;

    n->n_asked++;
    if (n->is_mute) {
        link_close(n->mute);
        n->mute = l;
        link_adopt(l, &mute_ops, n);
    } else {
        snap_copy_take(n->copy, l, first);
    }
}

static struct snap_hold *make_hold(struct bed *b, const char *name, bool is_ours,
                                   void *arg)
{
    char dir[96];
    struct snap_hold_config config = {
        .loop = &b->agent.loop, .dir = dir, .budget = UINT64_C(1) << 30,
        .budget_why = "all that this test has", .io = io_system(),
        .finish = finish, .on_begun = is_ours ? on_copy_begun : on_begun,
        .on_written = on_written, .is_elsewhere = true, .arg = arg,
    };
    struct snap_hold *h = NULL;
    struct error e;

    snprintf(dir, sizeof(dir), "%s/%s", b->top, name);
    if (snap_hold_create(&config, &h, &e) < 0) {
        bail_out("%s", e.text);
    }
    return h;
}

static void open_node(struct bed *b, int i)
{
    struct node *n = &b->nodes[i];
    struct snap_copy_config config = {.loop = &b->agent.loop, .key = key,
                                      .agent = (uint32_t)i + 1,
                                      .stuck_ms = STUCK_MS, .on_sent = on_sent,
                                      .on_got = on_got};
    struct roster_entry entry = {.slots = 1, .n_addrs = 1, .host = "somewhere"};
    struct error e;

    n->bed = b;
    n->hold = make_hold(b, i ? "two" : "one", false, n);
    config.own = n->hold;
    if (snap_copy_create(&config, &n->copy, &e) < 0 ||
        link_listen(&b->agent.loop, true, &n->listener, &e) < 0) {
        bail_out("%s", e.text);
    }
    link_listener_open(n->listener, key, on_peer, n);
    entry.port = link_listener_port(n->listener);
    str_copy(entry.addrs[0], sizeof(entry.addrs[0]), "127.0.0.1");
    if (roster_add(&b->agent.roster, &entry) < 0) {
        bail_out("no roster");
    }
}

static void open_ours(struct bed *b)
{
    struct agent_snap *p = &b->snap;
    struct snap_copy_config config = {.loop = &b->agent.loop, .key = key,
                                      .stuck_ms = STUCK_MS, .on_sent = on_sent,
                                      .on_got = on_got,
                                      .on_fetched = agent_fetch_fetched, .arg = p};
    struct roster_entry entry = {.slots = 1, .host = "here"};
    struct error e;

    b->agent.snap = p;
    b->agent.has_config = true;
    p->agent = &b->agent;
    p->copies = make_hold(b, "copies", true, b);
    if (snap_copy_create(&config, &p->copy, &e) < 0 ||
        agent_fetch_create(p, &e) < 0 ||
        roster_add(&b->agent.roster, &entry) < 0) {
        bail_out("%s", e.text);
    }
    snap_copy_hold(p->copy, p->copies);
    p->where_ms = p->fetch_ms = p->say_ms = PATIENT_MS;
}

static void bed_open(struct bed *b)
{
    memset(b, 0, sizeof(*b));
    n_wants = n_answers = n_found = n_notes = 0;
    str_copy(b->top, sizeof(b->top), "/tmp/agent_fetch_test.XXXXXX");
    if (!mkdtemp(b->top) || uv_loop_init(&b->agent.loop) < 0) {
        bail_out("no directory %s", b->top);
    }
    open_ours(b);
    open_node(b, 0);
    open_node(b, 1);
}

static void bed_close(struct bed *b)
{
    agent_fetch_destroy(&b->snap);
    snap_copy_destroy(b->snap.copy);
    snap_hold_destroy(b->snap.copies);
    for (int i = 0; i < 2; i++) {
        link_close(b->nodes[i].mute);
        snap_copy_destroy(b->nodes[i].copy);
        link_listener_close(b->nodes[i].listener);
        snap_hold_destroy(b->nodes[i].hold);
    }
    uv_run(&b->agent.loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&b->agent.loop), 0, "nothing is left in the loop");
    roster_release(&b->agent.roster);
    fs_remove_tree(b->top, NULL);
}

static bool run_until(struct bed *b, const int *count, int n)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (*count < n && clock_mono_ms() < end) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        poll(NULL, 0, 1);
    }
    return *count >= n;
}

/* --- what is said and done --- */

static void save(struct bed *b, int i, uint32_t rank, const char *uuid, uint64_t bytes)
{
    struct snap_rank who = {.rank = rank, .n_ranks = 16, .generation = 2, .token = 5};
    struct node *node = &b->nodes[i];
    struct error e = {0};
    int n = node->n_begun;

    if (snap_hold_begin(node->hold, &who, 10, uuid, b->top, bytes, 0, &e) < 0 ||
        !run_until(b, &node->n_begun, n + 1) || !node->snap ||
        snap_hold_done(node->hold, rank, uuid, bytes - SNAP_PAGE_BYTES, 100, &e) < 0) {
        bail_out("no snapshot: %s", e.text);
    }
}

/* `ranks` as in lead_snap_want(). */
static void tell(struct bed *b, const char *uuid, int generation, const char *ranks)
{
    _free_ char *text = NULL;
    json_t *told;

    if (asprintf(&text, "{\"uuid\":\"%s\",\"generation\":%d,\"ranks\":%s}", uuid,
                 generation, ranks) < 0 || !(told = json_loads(text, 0, NULL))) {
        bail_out("what the lead says: %s", ranks);
    }
    agent_fetch_told(&b->agent, told);
    json_decref(told);
}

static void begin(struct bed *b, uint32_t rank, const char *uuid)
{
    struct snap_question q = {.generation = GENERATION};

    uv_update_time(&b->agent.loop);
    ok(agent_fetch_begin(&b->snap, &q, rank, uuid), "rank %u asks", rank);
}

static void wait_under_way(struct bed *b)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (!b->snap.copy->ins || b->snap.copy->ins->at == 0) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        if (clock_mono_ms() >= end) {
            bail_out("nothing comes");
        }
    }
}

static void test_fetch(void)
{
    struct bed b;

    bed_open(&b);
    save(&b, 0, 5, UUID_A, ROOM);
    save(&b, 0, 6, UUID_A, ROOM);
    begin(&b, 5, UUID_A);
    begin(&b, 6, UUID_A);
    ok(n_wants > 0, "the lead is asked who has it");
    is_int(n_answers, 0, "nobody has an answer yet");
    tell(&b, UUID_A, GENERATION, "[[0,4,2],[5,2,1]]");
    is_int(b.nodes[0].n_asked + b.nodes[1].n_asked, 0, "not from inside the call");
    ok(run_until(&b, &n_answers, 2), "both are answered");
    is_int(n_found, 2, "with what was fetched");
    is_int(b.nodes[1].n_asked, 0, "from who has it");
    is_int(n_notes, 0, "the journal hears of it when that was all");
    b.snap.say_ms = 1;
    ok(run_until(&b, &n_notes, 1), "now");
    is_str(note, "node 0 has fetched what 2 of its ranks start from from memory of "
           "node 1", "once");
    ok(!b.snap.fetches && !uv_is_active((uv_handle_t *)b.snap.fetch_timer),
       "and nobody waits");
    bed_close(&b);
    is_int(n_notes, 1, "nor is there more to say");
}

static void fetch(struct bed *b, int i, uint32_t rank, const char *uuid, const char *from)
{
    int n = n_answers;

    save(b, i, rank, uuid, ROOM);
    tell(b, uuid, GENERATION, from);
    begin(b, rank, uuid);
    ok(run_until(b, &n_answers, n + 1), "it comes");
}

/* One note a save, of all its ranks here. */
static void test_notes(void)
{
    struct bed b;

    bed_open(&b);
    fetch(&b, 0, 5, UUID_A, "[[5,1,1]]");
    fetch(&b, 1, 6, UUID_B, "[[6,1,2]]");
    is_str(note, "node 0 has fetched what rank 5 starts from from memory of node 1",
           "another save: the one before was all");
    fetch(&b, 0, 7, UUID_B, "[[7,1,1]]");
    is_int(n_notes, 1, "more of it may come");
    agent_fetch_forget(&b.snap);
    is_str(note, "node 0 has fetched what 2 of its ranks start from from memory of "
           "several nodes", "the workers go: that was all");
    ok(!uv_is_active((uv_handle_t *)b.snap.fetch_timer), "nothing is left to say");
    fetch(&b, 0, 8, UUID_B, "[[8,1,1]]");
    bed_close(&b);
    is_int(n_notes, 3, "at the end of the agent, likewise");
}

/* The lead has said so to others, before a worker here asks. */
static void test_told_before(void)
{
    struct bed b;

    bed_open(&b);
    save(&b, 1, 5, UUID_A, ROOM);
    tell(&b, UUID_A, GENERATION, "[[5,1,2]]");
    begin(&b, 5, UUID_A);
    is_int(n_wants, 0, "the lead is not asked again");
    ok(run_until(&b, &n_answers, 1) && n_found == 1, "it is fetched");
    tell(&b, UUID_A, GENERATION - 1, "[[6,1,2]]");
    begin(&b, 6, UUID_A);
    is_int(n_wants, 1, "but of another generation is another matter");
    bed_close(&b);
}

/* The first one that has it has it no more, or dies in the middle. */
static void test_next(void)
{
    struct bed b;

    bed_open(&b);
    save(&b, 1, 5, UUID_A, ROOM);
    begin(&b, 5, UUID_A);
    tell(&b, UUID_A, GENERATION, "[[5,1,1,2]]");
    ok(run_until(&b, &n_answers, 1), "an answer");
    is_int(b.nodes[0].n_asked, 1, "the first one is asked");
    ok(n_found == 1 && b.nodes[1].n_asked == 1, "refuses, and the next one sends it");
    save(&b, 0, 6, UUID_B, LONG_ROOM);
    save(&b, 1, 6, UUID_B, ROOM);
    begin(&b, 6, UUID_B);
    tell(&b, UUID_B, GENERATION, "[[6,2,1,2]]");
    wait_under_way(&b);
    copy_outs_forget(b.nodes[0].copy); /* as its death */
    ok(run_until(&b, &n_answers, 2) && n_found == 2,
       "one dies in the middle: the next one sends it");
    begin(&b, 7, UUID_B);
    ok(run_until(&b, &n_answers, 3) && n_found == 2, "nobody has it: the disk");
    is_int(b.nodes[0].n_asked + b.nodes[1].n_asked, 6, "all were asked, once");
    bed_close(&b);
}

/* The lead gives up the first one while that is asked, and speaks of the other alone. */
static void test_told_meanwhile(void)
{
    struct bed b;

    bed_open(&b);
    b.nodes[0].is_mute = true;
    save(&b, 1, 5, UUID_A, ROOM);
    begin(&b, 5, UUID_A);
    tell(&b, UUID_A, GENERATION, "[[5,1,1,2]]");
    ok(run_until(&b, &b.nodes[0].n_asked, 1), "the first one is asked");
    tell(&b, UUID_A, GENERATION, "[[5,1,2]]");
    is_int(b.nodes[1].n_asked, 0, "and has its time");
    link_close(take_ptr(&b.nodes[0].mute));
    ok(run_until(&b, &n_answers, 1) && n_found == 1, "the other one sends it");
    bed_close(&b);
}

/* Of a save of which the lead says what makes no sense, or nothing of use. */
static void test_nonsense(void)
{
    static const char *const said[] = {
        "[]", "[[5,1,0]]", "[[5,1]]", "[[5,0,1]]", "[[4,1,1]]", "[[6,9,1]]",
        "[[5,1,3]]", "[[5,1,-1]]", "[[5,1,4294967297]]", "[[5,1,\"1\"]]", "7", "[5,1]",
        "[[-9223372036854775808,9223372036854775807,1]]", "{}", "[[\"\",{},[]]]",
        "[[5,-1,1]]",
    };
    struct bed b;

    bed_open(&b);
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        begin(&b, 5, UUID_A);
        tell(&b, UUID_A, GENERATION, said[i]);
        run_until(&b, &n_answers, (int)i + 1);
        is_int(n_answers, (int)i + 1, "%s: the disk", said[i]);
        tell(&b, "", GENERATION, "[]"); /* the next one asks anew */
    }
    is_int(n_found, 0, "nobody has it");
    ok(!agent_fetch_begin(&b.snap, &(struct snap_question){0}, 5, ""),
       "the newest, whichever, is looked for by nobody");
    bed_close(&b);
}

/* The same rank asks twice, by two connections. */
static void test_twice(void)
{
    struct bed b;

    bed_open(&b);
    save(&b, 0, 5, UUID_A, ROOM);
    begin(&b, 5, UUID_A);
    begin(&b, 5, UUID_A);
    tell(&b, UUID_A, GENERATION, "[[5,1,1]]");
    ok(run_until(&b, &n_answers, 2) && n_found == 2, "both get it");
    is_int(b.nodes[0].n_asked, 1, "it was sent once");
    bed_close(&b);
}

/* --- time --- */

static void test_lead_is_silent(void)
{
    struct bed b;
    uint64_t begin_ms;

    bed_open(&b);
    b.snap.where_ms = SOON_MS;
    begin(&b, 5, UUID_A);
    begin_ms = uv_now(&b.agent.loop);
    tell(&b, UUID_B, GENERATION, "[[5,1,1]]");
    ok(run_until(&b, &n_answers, 1), "a lead that says nothing is not waited for");
    ok(answered_ms - begin_ms >= SOON_MS, "too soon");
    ok(n_wants > 1, "and was asked again");
    is_int(n_found + b.nodes[0].n_asked, 0, "what it says of others is for others");
    bed_close(&b);
}

/* It takes longer than the lead may take, and the lead goes on speaking. */
static void test_holder_is_silent(void)
{
    struct bed b;
    uint64_t begin_ms;
    int n;

    bed_open(&b);
    b.snap.where_ms = 1;
    b.snap.fetch_ms = 3 * SOON_MS;
    b.nodes[0].is_mute = true;
    save(&b, 1, 6, UUID_A, ROOM);
    tell(&b, UUID_A, GENERATION, "[[5,1,1],[6,1,2]]");
    begin(&b, 5, UUID_A);
    begin_ms = uv_now(&b.agent.loop);
    ok(run_until(&b, &b.nodes[0].n_asked, 1), "one is asked, and says nothing");
    tell(&b, UUID_B, GENERATION, "[]");
    n = n_wants;
    ok(run_until(&b, &n_answers, 1), "it is given up");
    ok(answered_ms - begin_ms >= 3 * SOON_MS, "but not before its time");
    is_int(n_wants, n, "nor is the lead asked meanwhile");
    is_int(n_found, 0, "the disk");
    b.snap.where_ms = PATIENT_MS;
    begin(&b, 6, UUID_A);
    tell(&b, UUID_A, GENERATION, "[[5,1,1],[6,1,2]]");
    ok(run_until(&b, &n_answers, 2) && n_found == 1, "the next one goes on");
    bed_close(&b);
}

/* Workers go, and the agent, while it is on its way. */
static void test_ends(void)
{
    struct bed b;

    bed_open(&b);
    save(&b, 0, 5, UUID_A, LONG_ROOM);
    tell(&b, UUID_A, GENERATION, "[[5,2,1]]");
    begin(&b, 5, UUID_A);
    begin(&b, 6, UUID_A);
    wait_under_way(&b);
    agent_fetch_forget(&b.snap);
    ok(!b.snap.fetches && !b.snap.copy->ins, "nobody waits any more");
    while (b.nodes[0].copy->outs) {
        uv_run(&b.agent.loop, UV_RUN_ONCE);
    }
    is_int(n_answers, 0, "nor is told");
    begin(&b, 5, UUID_A);
    wait_under_way(&b);
    bed_close(&b);
    is_int(n_answers, 0, "the end of the agent, likewise");
}

int main(void)
{
    test_fetch();
    test_notes();
    test_told_before();
    test_next();
    test_told_meanwhile();
    test_nonsense();
    test_twice();
    test_lead_is_silent();
    test_holder_is_silent();
    test_ends();
    return tap_done();
}
