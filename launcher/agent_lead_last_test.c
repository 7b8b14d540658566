/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The end of a run waits for its last checkpoint: to be looked at, to be in the store, and to
 * be copied, one after the other, and no longer in all than who stops the run has left. Each
 * of the three is made up, by the linker's hand.
 */
#include <config.h>

#include "launcher/agent_lead_priv.h"

#include "base/fs.h"
#include "base/str.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    bool looks, stores, copies; /* it is waited for */
    char asked[16];             /* for which, one after the other */
    uint64_t limit_ms;          /* of the last one */
    struct avoid avoid;
    int n_doubts;
    uint64_t now_ms;
} at;

bool __wrap_lead_watch_finish(struct lead_watch *w, uint64_t limit_ms);
bool __wrap_lead_bucket_finish(struct lead_bucket *b, uint64_t limit_ms);
bool __wrap_lead_copy_finish(struct lead_copy *c, uint64_t limit_ms);
bool __wrap_lead_watch_forget(struct lead_watch *w);
bool __wrap_lead_bucket_forget(struct lead_bucket *b);
bool __wrap_lead_copy_forget(struct lead_copy *c);
bool __wrap_lead_watch_is_finishing(const struct lead_watch *w);
bool __wrap_lead_bucket_is_awaited(const struct lead_bucket *b);
bool __wrap_lead_copy_is_awaited(const struct lead_copy *c);
void __wrap_lead_bucket_doubt(struct lead_bucket *b, bool is_in_doubt);
const struct avoid *__wrap_lead_avoid(const struct lead *lead);
uint64_t __wrap_uv_now(const uv_loop_t *loop);

uint64_t __wrap_uv_now(const uv_loop_t *loop)
{
    (void)loop;
    return at.now_ms;
}

static bool ask(char which, bool waits, uint64_t limit_ms)
{
    size_t n = strlen(at.asked);

    at.asked[n] = which;
    at.asked[n + 1] = '\0';
    at.limit_ms = limit_ms;
    return waits;
}

bool __wrap_lead_watch_finish(struct lead_watch *w, uint64_t limit_ms)
{
    (void)w;
    return ask('l', at.looks, limit_ms);
}

bool __wrap_lead_bucket_finish(struct lead_bucket *b, uint64_t limit_ms)
{
    (void)b;
    return ask('s', at.stores, limit_ms);
}

bool __wrap_lead_copy_finish(struct lead_copy *c, uint64_t limit_ms)
{
    (void)c;
    return ask('c', at.copies, limit_ms);
}

bool __wrap_lead_watch_forget(struct lead_watch *w)
{
    (void)w;
    return ask('L', at.looks, 0);
}

bool __wrap_lead_bucket_forget(struct lead_bucket *b)
{
    (void)b;
    return ask('S', at.stores, 0);
}

bool __wrap_lead_copy_forget(struct lead_copy *c)
{
    (void)c;
    return ask('C', at.copies, 0);
}

bool __wrap_lead_watch_is_finishing(const struct lead_watch *w)
{
    (void)w;
    return at.looks;
}

bool __wrap_lead_bucket_is_awaited(const struct lead_bucket *b)
{
    (void)b;
    return at.stores;
}

bool __wrap_lead_copy_is_awaited(const struct lead_copy *c)
{
    (void)c;
    return at.copies;
}

void __wrap_lead_bucket_doubt(struct lead_bucket *b, bool is_in_doubt)
{
    (void)b;
    at.n_doubts += is_in_doubt ? 100 : 1;
}

const struct avoid *__wrap_lead_avoid(const struct lead *lead)
{
    (void)lead;
    return &at.avoid;
}

/* --- */

struct bed {
    struct agent agent;
    struct agent_lead lead;
};

static void begin(struct bed *b)
{
    memset(&at, 0, sizeof(at));
    at.now_ms = 5000;
    agent_lead_last_begin(&b->lead);
}

static void test_order(struct bed *b)
{
    begin(b);
    ok(!agent_lead_last_next(&b->lead), "nothing is waited for");
    is_str(at.asked, "lsc", "a look, the store, and copies: each was asked");
    ok(!agent_lead_last_next(&b->lead), "nor later");
    is_str(at.asked, "lsc", "when nothing is asked again");
    begin(b);
    at.looks = at.stores = at.copies = true;
    ok(agent_lead_last_next(&b->lead), "one looks");
    is_str(at.asked, "l", "first");
    ok(agent_lead_last_next(&b->lead), "then it goes to the store");
    is_str(at.asked, "ls", "when it was looked at");
    ok(agent_lead_last_next(&b->lead), "then it is copied");
    is_str(at.asked, "lsc", "when it is there");
    ok(!agent_lead_last_next(&b->lead), "and that was all");
    begin(b);
    at.copies = true;
    ok(agent_lead_last_next(&b->lead), "where there is no store");
    is_str(at.asked, "lsc", "nobody waits for one");
}

/* One that may not be started from is none that a store is to have as its newest. */
static void test_avoided(struct bed *b)
{
    begin(b);
    agent_lead_last_next(&b->lead);
    is_int(at.n_doubts, 0, "nothing is in doubt");
    begin(b);
    at.avoid.n = 1;
    agent_lead_last_next(&b->lead);
    is_int(at.n_doubts, 1, "what was in doubt is no more, at the end");
}

static uint64_t limit(struct bed *b, uint64_t grace_ms, uint64_t passed_ms)
{
    b->agent.config.job->limits.grace_ms = grace_ms;
    begin(b);
    at.looks = true;
    at.now_ms += passed_ms;
    agent_lead_last_next(&b->lead);
    return at.limit_ms;
}

static void test_limits(struct bed *b)
{
    is_int((intmax_t)limit(b, 30000, 0), 600000, "a run that ends by itself has ten minutes");
    is_int((intmax_t)limit(b, 30000, 100000), 500000, "in all");
    is_int((intmax_t)limit(b, 30000, 600001), 0, "and no longer");
    b->lead.is_stopping = true;
    is_int((intmax_t)limit(b, 30000, 0), 10000, "one that is stopped has ten seconds");
    is_int((intmax_t)limit(b, 4000, 0), 4000, "or what it is given to end");
    b->lead.is_forced = true;
    is_int((intmax_t)limit(b, 30000, 0), 0, "one that is to end at once has none");
    b->lead.is_stopping = b->lead.is_forced = false;
}

static void test_forget(struct bed *b)
{
    for (int i = 0; i < 4; i++) {
        begin(b);
        at.looks = i == 0;
        at.stores = i == 1;
        at.copies = i == 2;
        is_int(agent_lead_last_is_awaited(&b->lead), i < 3, "%s is waited for",
               i == 0 ? "the look" : i == 1 ? "the store" : i == 2 ? "the copy" : "nothing");
        is_int(agent_lead_last_forget(&b->lead), i < 3, "who does not wait any more is told");
        is_int((intmax_t)strlen(at.asked), 3, "all three are given up");
    }
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    at.now_ms = 5000;
    lead_bed_make(&b->agent);
    b->lead.agent = &b->agent;
    test_order(b);
    test_avoided(b);
    test_limits(b);
    test_forget(b);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
