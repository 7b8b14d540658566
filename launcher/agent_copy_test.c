/* SPDX-License-Identifier: Apache-2.0 */
/* When the newest checkpoint is copied elsewhere, and what is said of it, and when a run ends
 * that waits for that. Whoever copies is made up, by the linker's hand. */
#include <config.h>

#include "launcher/agent_copy.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/ckpt_child.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { EVERY_MS = 1, LONG_MS = 600000 };

struct ckpt_child {
    ckpt_child_f *on_end;
    void *arg;
};

static struct {
    struct ckpt_child child;
    int n_started, n_stopped, n_finished, n_going_on, n_events;
    bool is_refused;     /* no child can be started */
    char argv[1024];     /* of the last one */
    char event[2048];    /* said last, but for "has been going on" */
    char storing[1024];
    char reading[1024];
} did;

int __wrap_ckpt_child_start(struct agent *a, const struct strlist *argv, uint64_t limit_ms,
                            ckpt_child_f *on_end, void *arg, struct ckpt_child **ret,
                            struct error *e);
void __wrap_ckpt_child_stop(struct ckpt_child *c);
uint64_t __wrap_ckpt_child_ms(const struct ckpt_child *c);
void __wrap_record_eventv(struct record *r, const char *name, uint32_t generation,
                          const char *fmt, va_list ap) __attribute__((format(printf, 4, 0)));
void __wrap_record_storing(struct record *r, const char *path);

int __wrap_ckpt_child_start(struct agent *a, const struct strlist *argv, uint64_t limit_ms,
                            ckpt_child_f *on_end, void *arg, struct ckpt_child **ret,
                            struct error *e)
{
    size_t len = 0;

    (void)a, (void)limit_ms;
    if (did.is_refused) {
        return error_text(e, EAGAIN, "no process");
    }
    for (size_t i = 0; i < argv->n; i++) {
        len += (size_t)snprintf(did.argv + len, sizeof(did.argv) - len, "%s%s", i ? " " : "",
                                argv->items[i]);
    }
    did.n_started++;
    did.child = (struct ckpt_child){on_end, arg};
    *ret = &did.child;
    return 0;
}

void __wrap_ckpt_child_stop(struct ckpt_child *c)
{
    did.n_stopped += c != NULL;
}

uint64_t __wrap_ckpt_child_ms(const struct ckpt_child *c)
{
    (void)c;
    return 60000;
}

void __wrap_record_eventv(struct record *r, const char *name, uint32_t generation,
                          const char *fmt, va_list ap)
{
    char text[1024];

    (void)r, (void)generation;
    vsnprintf(text, sizeof(text), fmt, ap);
    if (strstr(text, "has been going on")) {
        did.n_going_on++;
        return;
    }
    did.n_events++;
    snprintf(did.event, sizeof(did.event), "%s: %s", name, text);
}

void __wrap_record_storing(struct record *r, const char *path)
{
    (void)r;
    str_copy(did.storing, sizeof(did.storing), path);
}

/* --- */

struct bed {
    struct agent agent;
    struct lead_copy *copies;
};

static void on_finished(void *arg)
{
    (void)arg;
    did.n_finished++;
}

static void on_reading(void *arg, const char *path)
{
    (void)arg;
    str_copy(did.reading, sizeof(did.reading), path);
}

static const struct lead_copy_ops ops = {.on_finished = on_finished, .on_reading = on_reading};

static void open_slow(struct bed *b, const char *to, uint32_t keep, uint64_t every_ms)
{
    struct job_checkpoint *k;
    struct error e = {0};

    memset(b, 0, sizeof(*b));
    memset(&did, 0, sizeof(did));
    lead_bed_make(&b->agent);
    k = &b->agent.config.job->checkpoint;
    k->watch = strdup("/ck");
    k->copy_to = strdup(to);
    k->copy_every_ms = every_ms;
    k->copy_keep = keep;
    if (lead_copy_create(&b->agent, NULL, &ops, NULL, &b->copies, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void open_bed(struct bed *b, const char *to, uint32_t keep)
{
    open_slow(b, to, keep, EVERY_MS);
}

static void close_bed(struct bed *b)
{
    lead_copy_destroy(b->copies);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
}

/* The timer has its turn, some times. */
static void turn(struct bed *b)
{
    for (int i = 0; i < 5; i++) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
}

static void end(bool is_ok)
{
    struct ckpt_child c = did.child;

    c.on_end(c.arg, &(struct ckpt_child_end){.is_ok = is_ok, .ms = 3000, .out = "",
                                             .why = is_ok ? "" : "it is full"});
}

/* --- as the run goes on --- */

static void test_none(struct bed *b)
{
    struct lead_copy *c = NULL;

    open_bed(b, "/mirror", 0);
    free(b->agent.config.job->checkpoint.watch);
    b->agent.config.job->checkpoint.watch = NULL;
    ok(lead_copy_create(&b->agent, NULL, &ops, NULL, &c, NULL) == 0 && !c,
       "a job whose program says nothing of checkpoints has no copies");
    lead_copy_saved(NULL, "/ck/1");
    ok(!lead_copy_finish(NULL, LONG_MS) && !lead_copy_forget(NULL) &&
           !lead_copy_is_awaited(NULL), "nor anything to wait for");
    lead_copy_destroy(NULL);
    close_bed(b);
}

static void test_every_so_often(struct bed *b)
{
    open_bed(b, "/mirror", 3);
    turn(b);
    is_int(did.n_started, 0, "nothing was saved");
    lead_copy_saved(b->copies, "/ck/1");
    is_int(did.n_started, 0, "one is saved: it has time");
    turn(b);
    is_str(did.argv, "muster ckpt-copy --keep=3 -- /ck/1 /mirror", "then it is copied");
    is_str(lead_copy_under_way(b->copies), "/ck/1", "and is to stay so long");
    is_str(did.reading, "/ck/1", "which whoever removes some is told");
    lead_copy_saved(b->copies, "/ck/2");
    turn(b);
    is_int(did.n_started, 1, "one at a time");
    ok(did.n_going_on > 0, "one that goes on and on is told of");
    end(true);
    is_str(did.event, "checkpoint_copied: /ck/1 was copied to /mirror in 3s", "it is there");
    is_str(lead_copy_under_way(b->copies), "", "and may go");
    is_str(did.reading, "", "as is told");
    turn(b);
    is_str(did.argv, "muster ckpt-copy --keep=3 -- /ck/2 /mirror", "the next one");
    end(true);
    turn(b);
    is_int(did.n_started, 2, "is not copied twice");
    lead_copy_saved(b->copies, "/ck/2");
    turn(b);
    is_int(did.n_started, 3, "unless it was written again");
    lead_copy_saved(b->copies, "/ck/2");
    end(true);
    turn(b);
    is_int(did.n_started, 4, "also while it is copied");
    end(true);
    turn(b);
    is_int(did.n_started, 4, "and then no more");
    is_int(did.n_finished, 0, "nobody waits for any of them");
    close_bed(b);
}

static void test_fails(struct bed *b)
{
    open_bed(b, "s3://bucket/x", 0);
    did.is_refused = true;
    lead_copy_saved(b->copies, "/ck/1");
    turn(b);
    is_str(did.event, "checkpoint_trouble: /ck/1 was not copied to s3://bucket/x: no process",
           "one that cannot be begun");
    is_str(did.reading, "", "is read by nobody");
    did.is_refused = false;
    turn(b);
    is_str(did.argv, "muster ckpt push -- /ck/1 s3://bucket/x", "is begun later, to a store");
    is_str(did.reading, "/ck/1", "and is to stay");
    end(false);
    is_str(did.event, "checkpoint_trouble: /ck/1 was not copied to s3://bucket/x: it is full",
           "one that fails");
    turn(b);
    is_int(did.n_started, 2, "is tried again");
    close_bed(b);
    is_int(did.n_stopped, 1, "the agent ends: so does it");
    is_str(did.reading, "/ck/1", "and nobody is told, who may be gone");
}

/* --- at the end of the run --- */

static void test_finish(struct bed *b)
{
    open_bed(b, "/mirror", 0);
    ok(!lead_copy_finish(b->copies, LONG_MS), "nothing was saved: nobody waits");
    lead_copy_saved(b->copies, "/ck/1");
    ok(!lead_copy_finish(b->copies, 0) && did.n_started == 0, "nor where there is no time");
    ok(lead_copy_finish(b->copies, LONG_MS) && lead_copy_is_awaited(b->copies),
       "one was: it is waited for");
    is_int(did.n_started, 1, "and copied at once");
    is_str(did.storing, "/ck/1", "which is shown");
    end(true);
    is_int(did.n_finished, 1, "until it is there");
    ok(!lead_copy_is_awaited(b->copies) && !did.storing[0], "then nobody waits");
    ok(!lead_copy_finish(b->copies, LONG_MS), "it is there: nothing is left to do");
    ok(!lead_copy_forget(b->copies), "nor to give up");
    close_bed(b);
}

/* The program has put another file there: the copy that is under way may lack it. */
static void test_finish_again(struct bed *b)
{
    open_bed(b, "/mirror", 0);
    lead_copy_saved(b->copies, "/ck/1");
    turn(b);
    lead_copy_saved(b->copies, "/ck/1");
    ok(lead_copy_finish(b->copies, LONG_MS) && did.n_started == 1, "one is under way");
    end(true);
    ok(did.n_finished == 0 && did.n_started == 2, "it is begun again");
    end(true);
    is_int(did.n_finished, 1, "once");
    close_bed(b);
}

/* What is under way is not the newest, and may fail. */
static void test_finish_two(struct bed *b)
{
    for (int is_ok = 0; is_ok < 2; is_ok++) {
        open_bed(b, "/mirror", 0);
        lead_copy_saved(b->copies, "/ck/1");
        turn(b);
        lead_copy_saved(b->copies, "/ck/2");
        ok(lead_copy_finish(b->copies, LONG_MS) && did.n_started == 1, "one is under way");
        is_str(did.storing, "/ck/2", "the one that counts is the newest");
        end(is_ok);
        ok(did.n_finished == 0 && did.n_started == 2, "after the first it is begun");
        end(is_ok);
        is_int(did.n_finished, 1, "and is the last, whatever becomes of it");
        is_int(did.n_started, 2, "it is not tried again");
        close_bed(b);
    }
}

static void test_finish_refused(struct bed *b)
{
    open_bed(b, "/mirror", 0);
    did.is_refused = true;
    lead_copy_saved(b->copies, "/ck/1");
    ok(!lead_copy_finish(b->copies, LONG_MS), "one that cannot be begun is not waited for");
    like(did.event, "no process", "which is told: %s", did.event);
    did.is_refused = false;
    ok(lead_copy_finish(b->copies, LONG_MS), "one that can is");
    lead_copy_saved(b->copies, "/ck/2");
    did.is_refused = true;
    end(true);
    is_int(did.n_finished, 1, "the next one cannot: the run ends");
    close_bed(b);
}

static void test_too_long(struct bed *b)
{
    open_slow(b, "/mirror", 0, LONG_MS); /* no other copy is begun meanwhile */
    lead_copy_saved(b->copies, "/ck/1");
    ok(lead_copy_finish(b->copies, 1), "it may take no time");
    while (did.n_finished == 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    is_int(did.n_stopped, 1, "it is stopped");
    is_str(did.reading, "", "and may go");
    like(did.event, "checkpoint_trouble: /ck/1 is not in /mirror after", "which is told: %s",
         did.event);
    ok(!lead_copy_is_awaited(b->copies) && !did.storing[0], "nobody waits any more");
    close_bed(b);
    is_int(did.n_stopped, 1, "once");
}

/* The time that it had is over when nobody waits any more. */
static void test_too_long_ago(struct bed *b)
{
    for (int is_there = 0; is_there < 2; is_there++) {
        open_bed(b, "/mirror", 0);
        lead_copy_saved(b->copies, "/ck/1");
        lead_copy_finish(b->copies, 1);
        if (is_there) {
            end(true);
        } else {
            lead_copy_forget(b->copies);
        }
        did.n_events = 0;
        uv_sleep(3);
        turn(b);
        ok(did.n_finished == is_there && did.n_events == 0, "nothing more is said of it");
        close_bed(b);
    }
}

static void test_forget(struct bed *b)
{
    open_bed(b, "/mirror", 1);
    lead_copy_saved(b->copies, "/ck/1");
    lead_copy_finish(b->copies, LONG_MS);
    is_str(did.argv, "muster ckpt-copy --keep=1 -- /ck/1 /mirror", "the only one that is kept");
    ok(lead_copy_forget(b->copies), "somebody will not wait");
    is_str(did.event, "checkpoint_trouble: /ck/1 is not in /mirror: the run ends without it",
           "which is told");
    is_int(did.n_stopped, 1, "it is stopped");
    ok(!lead_copy_is_awaited(b->copies) && !did.storing[0], "nobody waits any more");
    ok(!lead_copy_forget(b->copies), "that is all");
    is_int(did.n_finished, 0, "and nobody is told that it is there");
    close_bed(b);
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));

    if (!b) {
        bail_out("memory");
    }
    test_none(b);
    test_every_so_often(b);
    test_fails(b);
    test_finish(b);
    test_finish_again(b);
    test_finish_two(b);
    test_finish_refused(b);
    test_too_long(b);
    test_too_long_ago(b);
    test_forget(b);
    free(b);
    return tap_done();
}
