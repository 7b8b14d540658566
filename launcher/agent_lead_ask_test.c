/* SPDX-License-Identifier: Apache-2.0 */
/* For what a run stops: what commands ask for, and what agents tell of their nodes. The clock,
 * and what comes of it, are made up, by the linker's hand. */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/fs.h"
#include "launcher/agent_hang.h"
#include "launcher/agent_record.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { HEARTBEAT_MS = 5000, WORLD_END_MS = 10000, GENERATION = 3 };

static struct {
    uint64_t now_ms;
    uv_timer_cb due; /* NULL: nothing is */
    uint64_t due_ms;
    int n_halts, n_asked, n_others;
    enum lead_stop kind;
    bool force;
    char text[256], who[64], id[64];
} w;

uint64_t __wrap_uv_now(const uv_loop_t *loop);
int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat);
int __wrap_uv_is_active(const uv_handle_t *h);
void __wrap_agent_lead_halt(struct agent_lead *l, enum lead_stop kind, bool force,
                            const char *text);
int __wrap_record_ask_checkpoint(struct record *r, struct agent *a, const struct lead *core,
                                 const char *who, const char *id, struct error *e);
bool __wrap_lead_hang_fact(struct lead_hang *h, uint32_t rank, const char *kind,
                           const json_t *fact);
uint32_t __wrap_lead_generation(const struct lead *l);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return w.now_ms;
}

int __wrap_uv_timer_start(uv_timer_t *t, uv_timer_cb cb, uint64_t timeout, uint64_t repeat)
{
    (void)t, (void)repeat;
    w.due = cb;
    w.due_ms = w.now_ms + timeout;
    return 0;
}

int __wrap_uv_is_active(const uv_handle_t *h)
{
    (void)h;
    return w.due != NULL;
}

void __wrap_agent_lead_halt(struct agent_lead *l, enum lead_stop kind, bool force,
                            const char *text)
{
    (void)l;
    w.n_halts++;
    w.kind = kind;
    w.force = force;
    snprintf(w.text, sizeof(w.text), "%s", text);
}

int __wrap_record_ask_checkpoint(struct record *r, struct agent *a, const struct lead *core,
                                 const char *who, const char *id, struct error *e)
{
    (void)r, (void)a, (void)core, (void)e;
    w.n_asked++;
    snprintf(w.who, sizeof(w.who), "%s", who);
    snprintf(w.id, sizeof(w.id), "%s", id ? id : "");
    return 0;
}

bool __wrap_lead_hang_fact(struct lead_hang *h, uint32_t rank, const char *kind,
                           const json_t *fact)
{
    (void)h, (void)rank, (void)kind, (void)fact;
    w.n_others++;
    return true;
}

uint32_t __wrap_lead_generation(const struct lead *l)
{
    (void)l;
    return GENERATION;
}

/* --- */

struct bed {
    struct agent agent;
    struct agent_lead lead;
    uv_timer_t term;
};

static void open_bed(struct bed *b)
{
    memset(b, 0, sizeof(*b));
    memset(&w, 0, sizeof(w));
    lead_bed_make(&b->agent);
    w.due = NULL;
    w.now_ms = 1000000;
    b->agent.config.job->heartbeat_timeout_ms = HEARTBEAT_MS;
    b->agent.config.by_hand = true;
    b->agent.lead = &b->lead;
    b->lead.agent = &b->agent;
    b->lead.term = &b->term;
    b->term.data = &b->lead;
}

static void close_bed(struct bed *b)
{
    b->agent.lead = NULL;
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}

static int ask(struct bed *b, const char *op, const char *body, struct error *e)
{
    json_t *o = json_loads(body, 0, NULL);
    int rc = agent_lead_request(&b->agent, op, o, "muster cancel", e);

    json_decref(o);
    return rc;
}

static void tell(struct bed *b, const char *fact)
{
    agent_lead_fact(&b->agent, 1, fact, strlen(fact));
}

static bool halts(enum lead_stop kind, bool force, const char *text)
{
    bool is = w.n_halts == 1 && w.kind == kind && w.force == force && strcmp(w.text, text) == 0;

    w.n_halts = 0;
    return is;
}

/* --- what is asked for --- */

static void test_requests(struct bed *b)
{
    struct error e = {0};

    open_bed(b);
    is_int(ask(b, "cancel", "{}", &e), 0, "a run is cancelled");
    ok(halts(LEAD_STOP_CANCEL, false, "asked for by muster cancel"), "and who has asked: %s",
       w.text);
    ask(b, "preempt", "{}", &e);
    ok(halts(LEAD_STOP_PREEMPT, false, "asked for by muster cancel"), "or is to make room: %s",
       w.text);
    ask(b, "preempt", "{\"force\":true}", &e);
    ok(halts(LEAD_STOP_PREEMPT, true, "forced by muster cancel"), "at once: %s", w.text);
    ask(b, "suspend", "{}", &e);
    ok(halts(LEAD_STOP_SUSPEND, false, "suspended by muster cancel"), "or is suspended: %s",
       w.text);
    ask(b, "checkpoint", "{\"id\":\"a7\"}", &e);
    ok(w.n_asked == 1 && strcmp(w.id, "a7") == 0 && strcmp(w.who, "muster cancel") == 0 &&
           w.n_halts == 0, "or saves, for one who waits");
    is_int(ask(b, "dance", "{}", &e), -ERR_USAGE, "nothing else");
    like(e.text, "unknown request 'dance'", "%s", e.text);
    b->agent.lead = NULL;
    is_int(ask(b, "cancel", "{}", &e), -EAGAIN, "nor is one that nobody leads yet");
    is_int(w.n_halts, 0, "it goes on");
    close_bed(b);
}

/* --- what agents tell --- */

static void test_passed_on(struct bed *b)
{
    open_bed(b);
    tell(b, "{\"fact\":\"request\",\"op\":\"preempt\",\"from\":\"node 7\"}");
    ok(halts(LEAD_STOP_PREEMPT, false, "asked for by node 7"), "what an agent was asked for "
       "counts as well: %s", w.text);
    tell(b, "{\"fact\":\"request\",\"op\":\"cancel\"}");
    ok(halts(LEAD_STOP_CANCEL, false, "asked for by somewhere"), "by the name of its host: %s",
       w.text);
    tell(b, "{\"fact\":\"request\"}");
    is_int(w.n_halts, 0, "but not one of nothing");
    tell(b, "{\"fact\":\"notice\"}");
    ok(halts(LEAD_STOP_PREEMPT, false, "a signal to mpirun says that the end is near"),
       "a notice is a reason to save, and to end: %s", w.text);
    tell(b, "{\"fact\":\"noti");
    tell(b, "{\"fact\":7}");
    tell(b, "{}");
    b->agent.lead = NULL;
    tell(b, "{\"fact\":\"notice\"}");
    is_int(w.n_halts, 0, "what does not parse is none, nor is there one for who does not lead");
    close_bed(b);
}

static void pass(uint64_t ms)
{
    w.now_ms += ms;
}

static void end_term(struct bed *b)
{
    uv_timer_cb cb = w.due;

    if (!cb) {
        bail_out("nothing is due");
    }
    w.now_ms = w.due_ms;
    w.due = NULL;
    cb(&b->term);
}

/* mpirun ends its ranks because it was told to, or because one was lost. */
static void test_term(struct bed *b)
{
    open_bed(b);
    w.now_ms = 1; /* the machine has just come up */
    tell(b, "{\"fact\":\"term\"}");
    ok(w.n_halts == 0 && w.due && w.due_ms - w.now_ms == HEARTBEAT_MS,
       "whether a node is lost is not known yet");
    pass(HEARTBEAT_MS - 1);
    tell(b, "{\"fact\":\"term\"}");
    is_int((int)(w.due_ms - w.now_ms), 1, "the first of those that tell counts");
    end_term(b);
    ok(halts(LEAD_STOP_PREEMPT, false, "mpirun was told to end"), "none was: it was meant for "
       "the run: %s", w.text);
    pass(1000000);
    b->lead.lost_ms = w.now_ms - HEARTBEAT_MS - WORLD_END_MS + 1;
    tell(b, "{\"fact\":\"term\"}");
    end_term(b);
    is_int(w.n_halts, 0, "one was: it was for that");
    b->lead.lost_ms = w.now_ms - HEARTBEAT_MS - WORLD_END_MS;
    tell(b, "{\"fact\":\"term\"}");
    end_term(b);
    is_int(w.n_halts, 1, "but not long before");
    b->agent.config.by_hand = false;
    tell(b, "{\"fact\":\"term\"}");
    ok(!w.due, "where muster runs mpirun it knows");
    close_bed(b);
}

static void test_stranded(struct bed *b)
{
    open_bed(b);
    tell(b, "{\"fact\":\"stranded\",\"generation\":2}");
    is_int(w.n_halts, 0, "workers of before that wait for a world wait no more");
    tell(b, "{\"fact\":\"stranded\",\"generation\":3}");
    ok(w.n_halts == 1 && w.kind == LEAD_STOP_PREEMPT && !w.force, "those of now would for ever");
    like(w.text, "wait in a collective for an MPI world", "%s", w.text);
    b->agent.config.by_hand = false;
    tell(b, "{\"fact\":\"stranded\",\"generation\":3}");
    is_int(w.n_halts, 1, "where muster runs mpirun another world comes");
    close_bed(b);
}

int main(void)
{
    static struct bed b;

    test_requests(&b);
    test_passed_on(&b);
    test_term(&b);
    test_stranded(&b);
    return tap_done();
}
