/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories that the lead has to its run: which, how they are told of, and when they
 * are let go of. What has them for a run has no thread here, and no file.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "base/machine.h"
#include "base/proc.h"
#include "base/str.h"
#include "ckpt/lease.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TELL_MS = 7000, DROP_MS = 5000, ASKS_MS = LEASE_STALE_MS + LEASE_WATCH_MS };

/* What stands for one. */
struct snap_lease {
    char root[SNAP_ROOT_BYTES];
    struct lease_note own;
    bool is_alone, is_asking, is_dropping, has_ended;
    int n_dropped, n_hurried;
};

const char *__wrap_snap_lease_root(const struct snap_lease *l);
void __wrap_snap_lease_alone(struct snap_lease *l, bool is_alone);
bool __wrap_snap_lease_is_asking(const struct snap_lease *l);
void __wrap_snap_lease_hurry(struct snap_lease *l);
void __wrap_snap_lease_drop(struct snap_lease *l);
bool __wrap_snap_lease_is_dropping(struct snap_lease *l);
bool __wrap_snap_lease_end(struct snap_lease *l);

const char *__wrap_snap_lease_root(const struct snap_lease *l)
{
    return l->root;
}

void __wrap_snap_lease_alone(struct snap_lease *l, bool is_alone)
{
    l->is_alone = is_alone;
}

bool __wrap_snap_lease_is_asking(const struct snap_lease *l)
{
    return l->is_asking;
}

void __wrap_snap_lease_hurry(struct snap_lease *l)
{
    l->n_hurried++;
}

void __wrap_snap_lease_drop(struct snap_lease *l)
{
    l->n_dropped++;
    l->is_dropping = true;
}

bool __wrap_snap_lease_is_dropping(struct snap_lease *l)
{
    return l->is_dropping;
}

bool __wrap_snap_lease_end(struct snap_lease *l)
{
    bool has_ended = l->has_ended;

    if (has_ended) {
        free(l);
    }
    return has_ended;
}

static struct snap_lease *make(const char *root, const struct lease_note *own)
{
    struct snap_lease *l = calloc(1, sizeof(*l));

    if (!l) {
        bail_out("memory");
    }
    str_copy(l->root, sizeof(l->root), root);
    l->own = *own;
    return l;
}

static void begin(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    b->lease = make;
}

static struct snap_lease *of(struct lead_snap_bed *b, const char *root)
{
    return lead_lease_of(b->lead, root, NULL);
}

static void end(struct lead_snap_bed *b)
{
    for (struct lead_lease *at = b->lead->leases; at; at = at->next) {
        at->lease->has_ended = true;
    }
    lead_snap_bed_close(b);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
}

static void look_at_leases(struct lead_snap *l)
{
    l->lease_timer->timer_cb(l->lease_timer);
}

/* --- which --- */

static void test_each(struct lead_snap_bed *b)
{
    struct snap_lease *one, *other;
    struct error e = {0};

    begin(b);
    one = of(b, "/one");
    other = of(b, "/other");
    ok(one && other && one != other, "each directory has one");
    ok(of(b, "/one") == one && of(b, "/other") == other, "and keeps it");
    b->has_no_lease = true;
    ok(!lead_lease_of(b->lead, "/more", &e) && strstr(e.text, "/more"),
       "or has none, and it is said why");
    end(b);
}

static void test_note(struct lead_snap_bed *b)
{
    uint32_t n = b->agent.roster.n;
    char machine[MACHINE_ID_BYTES];
    struct proc self = {0};
    struct snap_lease *l;

    begin(b);
    machine_id(machine, sizeof(machine));
    proc_read(getpid(), &self);
    l = of(b, "/one");
    ok(l->own.pid == getpid() && l->own.start == self.start && self.start > 0,
       "another run sees which process has it");
    is_str(l->own.run, "x", "of which run");
    is_str(l->own.machine, machine, "on which machine");
    ok(!l->own.is_alone, "and that others may lead that run on");
    b->agent.roster.n = 1;
    ok(of(b, "/two")->own.is_alone, "or nobody");
    b->agent.roster.n = 2;
    ok(!of(b, "/three")->own.is_alone, "as long as there is another one");
    b->agent.roster.n = 1;
    lead_snap_bed_look(b);
    ok(l->is_alone, "which may change");
    b->agent.roster.n = n;
    lead_snap_bed_look(b);
    ok(!l->is_alone, "and change back");
    end(b);
}

/* What the run had before this lead. */
static void test_adopted(struct lead_snap_bed *b)
{
    char deep[SNAP_ROOT_BYTES + 64];
    struct {
        const char *path, *root;
    } cases[] = {
        {"/ck/deep/step-000000000010-aaaaaaaa", "/ck/deep"},
        {"ck/step-000000000010-aaaaaaaa", NULL},
        {"/step-000000000010-aaaaaaaa", NULL},
        {"/ck/model.pt", NULL},
        {"", NULL},
        {deep, NULL},
    };

    memset(deep, 'x', sizeof(deep));
    deep[0] = '/';
    snprintf(deep + SNAP_ROOT_BYTES, 64, "/step-000000000010-aaaaaaaa");
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        begin(b);
        str_copy(b->resume, sizeof(b->resume), cases[i].path);
        lead_snap_bed_look(b);
        ok(cases[i].root ? b->lead->leases &&
                               strcmp(b->lead->leases->lease->root, cases[i].root) == 0
                         : !b->lead->leases,
           "of %.50s: %s", cases[i].path, cases[i].root ? cases[i].root : "none");
        end(b);
    }
    begin(b);
    str_copy(b->resume, sizeof(b->resume), cases[0].path);
    lead_snap_leave(b->lead);
    lead_snap_bed_look(b);
    ok(!b->lead->leases, "who leaves begins with none");
    end(b);
}

/* --- another run --- */

static void look_at(struct lead_snap_bed *b, uint64_t ms)
{
    b->now_ms += ms;
    lead_snap_bed_look(b);
}

static void test_asks(struct lead_snap_bed *b)
{
    struct snap_lease *l;

    begin(b);
    of(b, "/other");
    l = of(b, "/one");
    l->is_asking = true;
    look_at(b, 1000);
    ok(b->lead->moved_ms == b->now_ms, "a save that waits for another run to be gone gets on");
    look_at(b, TELL_MS - 1);
    is_str(b->noted, "", "for seconds it is no news");
    look_at(b, 1);
    like(b->noted, "/one: a save waits for up to a minute", "then it is told");
    lead_snap_bed_hush(b);
    look_at(b, 1);
    is_str(b->noted, "", "once");
    look_at(b, ASKS_MS - TELL_MS - 1);
    ok(b->lead->moved_ms == b->now_ms, "it gets on as long as that can take");
    look_at(b, 1);
    ok(b->lead->moved_ms == b->now_ms - 1, "and no longer");
    l->is_asking = false;
    look_at(b, 1);
    l->is_asking = true;
    look_at(b, 1);
    ok(b->lead->moved_ms == b->now_ms, "the next one has its own time");
    look_at(b, TELL_MS);
    like(b->noted, "/one: a save waits", "and is told again");
    end(b);
}

/* --- the end --- */

static void test_let_go(struct lead_snap_bed *b)
{
    struct snap_lease *one, *other;

    begin(b);
    one = of(b, "/one");
    other = of(b, "/other");
    lead_snap_leave(b->lead);
    ok(lead_snap_ask_removed(b->lead), "who leaves waits");
    ok(one->n_dropped == 1 && other->n_dropped == 1, "until all are let go of");
    look_at_leases(b->lead);
    lead_snap_bed_look(b);
    one->is_dropping = false;
    look_at_leases(b->lead);
    other->is_dropping = false;
    one->is_dropping = true;
    look_at_leases(b->lead);
    is_int(b->n_quiet, 0, "each of them");
    one->is_dropping = false;
    look_at_leases(b->lead);
    is_int(b->n_quiet, 1, "no longer");
    ok(!uv_is_active((uv_handle_t *)b->lead->lease_timer), "and nobody looks any more");
    ok(one->n_dropped == 1 && other->n_dropped == 1, "they were told once");
    end(b);
}

static void test_hangs(struct lead_snap_bed *b)
{
    begin(b);
    of(b, "/one");
    lead_snap_leave(b->lead);
    ok(lead_snap_ask_removed(b->lead), "one hangs as it is let go of");
    b->now_ms += DROP_MS - 1;
    look_at_leases(b->lead);
    ok(b->n_quiet == 0 && lead_lease_drop(b->lead), "it has its time");
    b->now_ms++;
    ok(!lead_lease_drop(b->lead), "but nobody waits longer");
    look_at_leases(b->lead);
    is_int(b->n_quiet, 1, "as is told");
    end(b);
}

/* Another agent leads the run on: they stay the run's. */
static void test_dies(struct lead_snap_bed *b)
{
    struct snap_lease *one, *other;
    struct lead_snap *l;

    begin(b);
    l = b->lead;
    one = of(b, "/one");
    other = of(b, "/other");
    one->has_ended = true;
    lead_snap_destroy(l);
    ok(other->n_hurried == 1, "no thread waits for other runs any more");
    ok(l->check.gate.is_over, "nor reads what is there again");
    ok(other->n_dropped == 0, "nor lets go");
    ok(l->leases && !l->leases->next && l->leases->lease == other,
       "one whose thread has ended is gone before the others");
    one = other;
    look_at_leases(l);
    ok(l->leases && l->leases->lease == one, "which stay until then");
    one->has_ended = true;
    look_at_leases(l); /* all goes */
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
}

/* The first one in the list is the last that was asked for. */
static void test_dies_in_any_order(struct lead_snap_bed *b)
{
    struct snap_lease *one, *other;
    struct lead_snap *l;

    begin(b);
    l = b->lead;
    one = of(b, "/one");
    other = of(b, "/other");
    other->has_ended = true;
    lead_snap_leave(l);
    lead_snap_destroy(l);
    ok(one->n_hurried == 1 && one->n_dropped == 1, "all hear that the run is over");
    ok(l->leases && l->leases->lease == one, "and one that has not ended stays");
    one->has_ended = true;
    look_at_leases(l);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
}

/* A save that comes after that. */
static void test_late(struct lead_snap_bed *b)
{
    struct snap_lease *one, *late;
    struct lead_snap *l;

    begin(b);
    l = b->lead;
    lead_snap_leave(l);
    ok(!lead_snap_ask_removed(l), "who has none lets go of none");
    one = of(b, "/one");
    ok(lead_snap_ask_removed(l) && one->n_dropped == 1, "but of one that comes");
    one->is_dropping = false;
    late = of(b, "/late");
    lead_snap_destroy(l);
    is_int(late->n_dropped, 1, "and of one after that, as the agent ends");
    one->has_ended = true;
    b->now_ms += DROP_MS;
    look_at_leases(l);
    ok(!l->lease_timer, "which does not wait for one that hangs");
    late->has_ended = true;
    lead_snap_may_go(l);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
}

/* Nor does it go before a thread that reads what was saved, also where it has none. */
static void test_dies_as_it_reads(struct lead_snap_bed *b)
{
    struct lead_snap *l;

    begin(b);
    l = b->lead;
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
    lead_check_want(l, l->saves);
    ok(!l->leases, "a lead that has no directory, and reads a checkpoint again");
    lead_snap_destroy(l);
    is_int(b->n_freed, 0, "is there as long as that is read");
    for (int i = 0; i < 1000 && b->n_freed == 0; i++) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    is_int(b->n_freed, 1, "and no longer");
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_each(b);
    test_note(b);
    test_adopted(b);
    test_asks(b);
    test_let_go(b);
    test_hangs(b);
    test_dies(b);
    test_dies_in_any_order(b);
    test_late(b);
    test_dies_as_it_reads(b);
    lead_snap_bed_free(b);
    return tap_done();
}
