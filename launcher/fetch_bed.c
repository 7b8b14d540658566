/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/fetch_bed.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "tests/lib/tap.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { STUCK_MS = 60000 };

static const uint8_t key[CHANNEL_KEY_BYTES] = {4, 5, 6};

/* --- what the agent does, seen by the linker's hand --- */

static struct fetch_did *did_of(struct agent *a)
{
    return &((struct fetch_bed *)a)->did;
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_agent_fact_send(struct agent *a, struct jsonw *w);
void __wrap_agent_snap_hand_out(struct agent *a, const struct snap_question *q,
                                uint32_t rank, const struct snap *s);

void __wrap_agent_fact_send(struct agent *a, struct jsonw *w)
{
    struct fetch_did *did = did_of(a);

    jsonw_end_object(w);
    if (strstr(buf_str(w->to), "\"snap_want\"")) {
        did->n_wants++;
        snprintf(did->want, sizeof(did->want), "%s", buf_str(w->to));
    }
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    struct fetch_did *did = did_of(a);
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(did->note, sizeof(did->note), fmt, ap);
    va_end(ap);
    did->n_notes++;
}

void __wrap_agent_snap_hand_out(struct agent *a, const struct snap_question *q,
                                uint32_t rank, const struct snap *s)
{
    struct fetch_did *did = did_of(a);

    (void)q;
    did->n_answers++;
    did->n_found += s && s->head.rank == rank;
    did->n_coming += s && s->head.state == SNAP_FILLING && s->head.image_bytes > 0;
    did->answered_ms = uv_now(&a->loop);
}

/* --- the bed --- */

static void on_copy_begun(void *arg, uint64_t question, const struct snap *s,
                          const struct error *e)
{
    struct agent_snap *p = arg;

    snap_copy_begun(p->copy, question, s, e);
}

static void on_copy_written(void *arg, const struct snap_head *head,
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
    struct fetch_node *n = ctx;

    (void)closed, (void)why;
    n->mute = NULL;
    link_close(l);
}

static const struct link_ops mute_ops = {.on_frame = on_mute_frame,
                                         .on_down = on_mute_down};

static void on_peer(struct link *l, const struct channel_frame *first, void *ctx)
{
    struct fetch_node *n = ctx;

    n->n_asked++;
    if (n->is_mute) {
        link_close(n->mute);
        n->mute = l;
        link_adopt(l, &mute_ops, n);
    } else {
        snap_copy_take(n->copy, l, first);
    }
}

static struct snap_hold *make_hold(struct fetch_bed *b, int i, struct snap_said *said)
{
    char dir[96] = "";
    struct snap_hold_config config = snap_bed_config(&b->agent.loop, dir, said);

    snprintf(dir, sizeof(dir), "%s/%d", b->top, i);
    config.is_elsewhere = true; /* the disk is for other tests */
    return snap_bed_hold(&config);
}

static struct snap_hold *make_copies(struct fetch_bed *b)
{
    struct snap_said unused;
    char dir[96] = "";
    struct snap_hold_config config = snap_bed_config(&b->agent.loop, dir, &unused);

    snprintf(dir, sizeof(dir), "%s/copies", b->top);
    config.left = NULL;
    config.on_begun = on_copy_begun;
    config.on_written = on_copy_written;
    config.arg = &b->snap;
    config.is_elsewhere = true;
    return snap_bed_hold(&config);
}

static void open_node(struct fetch_bed *b, int i)
{
    struct fetch_node *n = &b->nodes[i];
    struct snap_copy_config config = {.loop = &b->agent.loop, .key = key,
                                      .agent = (uint32_t)i + 1,
                                      .stuck_ms = STUCK_MS, .on_sent = on_sent,
                                      .on_got = on_got};
    struct roster_entry entry = {.slots = 1, .n_addrs = 1, .host = "somewhere"};
    struct error e;

    n->hold = make_hold(b, i, &n->said);
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

static void open_ours(struct fetch_bed *b)
{
    struct agent_snap *p = &b->snap;
    struct snap_copy_config config = {.loop = &b->agent.loop, .key = key,
                                      .stuck_ms = STUCK_MS, .on_sent = on_sent,
                                      .on_got = on_got,
                                      .on_coming = agent_fetch_coming,
                                      .on_fetched = agent_fetch_fetched, .arg = p};
    struct roster_entry entry = {.slots = 1, .host = "here"};
    struct error e;

    b->agent.snap = p;
    b->agent.has_config = true;
    p->agent = &b->agent;
    p->hold = make_hold(b, -1, &b->said);
    p->copies = make_copies(b);
    if (snap_copy_create(&config, &p->copy, &e) < 0 ||
        agent_fetch_create(p, &e) < 0 ||
        roster_add(&b->agent.roster, &entry) < 0) {
        bail_out("%s", e.text);
    }
    snap_copy_hold(p->copy, p->copies);
    p->where_ms = p->fetch_ms = p->say_ms = FETCH_PATIENT_MS;
}

void fetch_bed_open(struct fetch_bed *b)
{
    memset(b, 0, sizeof(*b));
    snap_bed_open("fetch_bed", &b->agent.loop, b->top);
    open_ours(b);
    open_node(b, 0);
    open_node(b, 1);
}

void fetch_bed_close(struct fetch_bed *b)
{
    agent_fetch_destroy(&b->snap);
    snap_copy_destroy(b->snap.copy);
    snap_hold_destroy(b->snap.copies);
    snap_hold_destroy(b->snap.hold);
    for (int i = 0; i < 2; i++) {
        link_close(b->nodes[i].mute);
        snap_copy_destroy(b->nodes[i].copy);
        link_listener_close(b->nodes[i].listener);
        snap_hold_destroy(b->nodes[i].hold);
    }
    snap_bed_close(&b->agent.loop, b->top);
    roster_release(&b->agent.roster);
}

bool fetch_bed_run_until(struct fetch_bed *b, const int *count, int n)
{
    return snap_bed_run_until(&b->agent.loop, count, n);
}

/* --- what is said and done --- */

void fetch_bed_save(struct fetch_bed *b, int i, uint32_t rank, const char *uuid,
                    uint64_t bytes)
{
    struct snap_hold *hold = i < 0 ? b->snap.hold : b->nodes[i].hold;
    struct snap_said *said = i < 0 ? &b->said : &b->nodes[i].said;
    struct error e;

    snap_bed_begin(&b->agent.loop, hold, said, rank, uuid, FETCH_STEP, b->top, bytes);
    if (snap_hold_done(hold, rank, uuid, bytes - SNAP_PAGE_BYTES, 100, &e) < 0) {
        bail_out("%s", e.text);
    }
}

void fetch_bed_tell_all(struct fetch_bed *b, const char *text)
{
    json_t *told = json_loads(text, 0, NULL);

    if (!told) {
        bail_out("what the lead says: %s", text);
    }
    agent_fetch_told(&b->agent, told);
    json_decref(told);
}

void fetch_bed_tell(struct fetch_bed *b, const char *uuid, int generation,
                    const char *ranks)
{
    _free_ char *text = NULL;

    if (asprintf(&text, "{\"uuid\":\"%s\",\"generation\":%d,\"ranks\":%s}", uuid,
                 generation, ranks) < 0) {
        bail_out("no memory");
    }
    fetch_bed_tell_all(b, text);
}

void fetch_bed_begin(struct fetch_bed *b, uint32_t rank, const char *uuid)
{
    struct snap_question q = {.generation = FETCH_GENERATION};

    uv_update_time(&b->agent.loop);
    ok(agent_fetch_begin(&b->snap, &q, rank, uuid), "rank %u asks", rank);
}

void fetch_bed_wait_under_way(struct fetch_bed *b)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (!b->snap.copy->ins || b->snap.copy->ins->at == 0) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        if (clock_mono_ms() >= end) {
            bail_out("nothing comes");
        }
    }
}

void fetch_bed_settle(struct fetch_bed *b)
{
    uint64_t end = clock_mono_ms() + 60000;

    while (b->snap.fetches) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
        if (clock_mono_ms() >= end) {
            bail_out("it does not come to an end");
        }
    }
}
