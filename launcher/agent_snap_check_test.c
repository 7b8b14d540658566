/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When the lead has a checkpoint read again, what it knows of that, and who waits for it.
 */
#include <config.h>

#include "launcher/lead_snap_bed.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LAST_MS = 10000, COPIES_MS = 60000 };

static struct lead_snap *begin(struct lead_snap_bed *b)
{
    lead_snap_bed_open(b);
    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_A});
    return b->lead;
}

static void test_known(struct lead_snap_bed *b)
{
    struct lead_snap *l = begin(b);
    struct lead_save *s = l->saves;
    struct lead_check *k = &l->check;

    str_copy(k->right.root, sizeof(k->right.root), s->root);
    str_copy(k->right.name, sizeof(k->right.name), "right");
    str_copy(k->reading.root, sizeof(k->reading.root), s->root);
    str_copy(k->reading.name, sizeof(k->reading.name), "read");
    k->is_running = true;
    lead_check_know(l, s);
    ok(strcmp(s->verified, "right") == 0 && strcmp(s->checking, "read") == 0,
       "what was right of a directory, and what is read");
    str_copy(k->reading.root, sizeof(k->reading.root), "/elsewhere");
    lead_check_know(l, s);
    ok(strcmp(s->verified, "right") == 0 && !s->checking[0], "not what is read of another one");
    str_copy(k->right.root, sizeof(k->right.root), "/elsewhere");
    lead_check_know(l, s);
    ok(!s->verified[0], "nor what was right there");
    k->is_running = false;
    str_copy(k->reading.root, sizeof(k->reading.root), s->root);
    lead_check_know(l, s);
    ok(!s->checking[0], "nor what was read before, and is no longer");
    lead_snap_bed_close(b);
}

/* The disk is wanted by any that is on its way there. */
static void test_gives_way(struct lead_snap_bed *b)
{
    struct lead_snap *l = begin(b);
    struct lead_save *first = l->saves, *second;

    lead_snap_bed_say(b, 0, (struct bed_word){.uuid = UUID_B, .step = 20});
    second = l->saves;
    lead_check_give_way(l);
    ok(second != first && l->check.gate.is_held, "while saves are on their way nothing is read");
    first->is_settled = true;
    lead_check_give_way(l);
    ok(l->check.gate.is_held, "nor beside the one that is left");
    second->waits = BED_WAITS;
    second->goes = 0;
    lead_check_give_way(l);
    ok(!l->check.gate.is_held, "but beside one that stays in memory");
    first->is_settled = false;
    second->goes = 1u << INTERVAL_DISK;
    second->is_settled = true;
    lead_check_give_way(l);
    ok(l->check.gate.is_held, "an older one is as good as a newer one");
    first->is_settled = true;
    lead_check_give_way(l);
    ok(!l->check.gate.is_held, "in the end it goes on");
    lead_snap_bed_close(b);
}

static void test_wanted(struct lead_snap_bed *b)
{
    struct lead_snap *l = begin(b);

    l->check.tidying.data = l;
    lead_check_want(l, l->saves);
    ok(!l->check.is_running, "while older ones go nothing is read");
    l->check.tidying.data = NULL;
    l->is_dying = true;
    lead_check_want(l, l->saves);
    ok(!l->check.is_running, "nor for a lead that goes");
    l->is_dying = false;
    error_text(&l->check.error, EIO, "of the one before");
    lead_check_want(l, l->saves);
    ok(l->check.is_running && l->check.error.code == 0, "then it is, as if it were the first");
    lead_snap_bed_close(b);
}

/* The end of a run waits for one that is read, for a while. */
static void test_awaited(struct lead_snap_bed *b)
{
    struct lead_snap *l = begin(b);

    l->check.is_running = true;
    ok(!lead_check_is_awaited(l), "nobody waits as long as the run goes on");
    l->is_ending = true;
    lead_check_end(l);
    b->now_ms += LAST_MS - 1;
    ok(lead_check_is_awaited(l), "its end waits");
    b->now_ms++;
    ok(!lead_check_is_awaited(l), "for ten seconds");
    l->check.is_running = false;
    lead_snap_bed_close(b);
    l = begin(b);
    b->reread_code = ENOENT; /* or older ones go, for which is waited as well */
    lead_check_want(l, l->saves);
    lead_snap_end(l);
    ok(lead_snap_ask_removed(l), "somebody ends the run meanwhile");
    for (int i = 0; i < 1000 && l->check.is_running; i++) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    is_int(b->n_quiet, 1, "who hears at once that it is over");
    lead_snap_bed_close(b);
}

/* What goes at the end goes by what was found right. */
static void test_swept(struct lead_snap_bed *b)
{
    struct lead_snap *l;
    int n;

    lead_snap_bed_open(b);
    l = b->lead;
    b->is_due = true;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = SNAP_STAGE_WRITTEN});
    while (!l->check.is_running) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    n = b->tidy.n;
    lead_snap_end(l);
    ok(l->n_works == 0 && b->tidy.n == n, "nothing goes as long as it is read");
    lead_snap_bed_run(b);
    ok(b->tidy.n > n && b->tidy.verified[0], "then older ones do");
    lead_snap_bed_close(b);
}

/* Of what is not right somebody is told, and nothing goes for it. */
static void test_damaged(struct lead_snap_bed *b)
{
    struct lead_snap *l = begin(b);
    int n = b->tidy.n;

    b->reread_code = ERR_FORMAT;
    lead_check_want(l, l->saves);
    lead_snap_bed_run(b);
    like(b->noted, "is damaged: by order; older ones stay until a newer one is whole",
         "one that is damaged is told of");
    ok(b->tidy.n == n && !l->check.right.name[0], "and none goes for it");
    lead_snap_bed_close(b);
}

/* As after a save: what somebody needs stays. */
static void test_swept_around(struct lead_snap_bed *b)
{
    struct job_checkpoint *k = &b->agent.config.job->checkpoint;
    struct lead_snap *l;
    int n;

    lead_snap_bed_open(b);
    k->keep = 3;
    k->keep_best = strdup("loss");
    l = b->lead;
    b->is_due = true;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A, .stage = SNAP_STAGE_WRITTEN});
    while (!l->check.is_running || l->n_works > 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    snprintf(b->pinned, sizeof(b->pinned), "%s/step-1", b->agent.run.dir);
    snprintf(b->copied, sizeof(b->copied), "%s/step-2", b->agent.run.dir);
    snprintf(b->source, sizeof(b->source), "%s/step-3", b->agent.run.dir);
    str_copy(b->avoided, sizeof(b->avoided), "step-4\n");
    b->started = 2; /* who has saved has read what it has started from */
    b->lacks_best = true;
    n = b->tidy.n;
    lead_snap_bed_run(b);
    is_int(b->tidy.n, n + 1, "what was read is right, and older ones go");
    like(b->noted, "loss", "none of them has a metric, which is told");
    ok(!l->check.tidying.data, "then the next one may be read");
    is_int((intmax_t)b->tidy.facts.rule.keep, 3, "but for as many as the job wants");
    is_str(b->tidy.facts.best, "loss", "the best one");
    is_str(b->tidy.pinned, "step-1", "one that is read");
    is_str(b->tidy.copied, "step-2", "one that is copied");
    is_str(b->tidy.source, "step-3", "one that workers start from");
    is_str(b->tidy.avoided, "step-4\n", "and those that they avoid");
    is_str(b->tidy.checking, "", "nothing is read then");
    l->check.is_missed = l->check.is_running = true; /* the next one */
    str_copy(l->check.reading.name, sizeof(l->check.reading.name), "step-5");
    lead_check_worked(l);
    while (l->n_works > 0) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    is_str(b->tidy.checking, "step-5", "or it stays as well");
    l->check.is_running = false;
    k->keep = 0;
    free(k->keep_best);
    k->keep_best = NULL;
    lead_snap_bed_close(b);
}

/* Another run may have the directory. */
static void test_no_lease(struct lead_snap_bed *b)
{
    struct lead_snap *l = begin(b);
    int n = b->tidy.n;

    b->has_no_lease = true;
    lead_check_right(l, l->saves);
    l->check.lead = l;
    l->check.is_missed = true;
    lead_check_worked(l);
    ok(l->n_works == 0 && b->tidy.n == n, "where nobody knows whose it is nothing goes");
    lead_snap_bed_close(b);
}

/* --- what is on its way --- */

static void test_copies(struct lead_snap_bed *b)
{
    struct lead_snap *l;

    lead_snap_bed_open(b);
    l = b->lead;
    lead_snap_bed_say_all(b, (struct bed_word){.uuid = UUID_A});
    b->now_ms += COPIES_MS - 1;
    lead_levels_show_busy(l);
    ok(b->is_busy[INTERVAL_PARTNER], "copies are under way for a minute");
    b->now_ms++;
    lead_levels_show_busy(l);
    ok(!b->is_busy[INTERVAL_PARTNER], "then nobody makes them");
    lead_snap_bed_close(b);
}

int main(void)
{
    struct lead_snap_bed *b = lead_snap_bed_make();

    test_known(b);
    test_gives_way(b);
    test_wanted(b);
    test_awaited(b);
    test_damaged(b);
    test_swept(b);
    test_swept_around(b);
    test_no_lease(b);
    test_copies(b);
    lead_snap_bed_free(b);
    return tap_done();
}
