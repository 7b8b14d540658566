/* SPDX-License-Identifier: Apache-2.0 */
/* What the lead makes of a checkpoint that is there, or not, or of which nobody can
 * tell: nodes 0 and 2 run the generation. */
#include <config.h>

#include "launcher/agent_look.h"

#include "base/clock.h"
#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLOSE_MS = 60000, SOON_MS = 900 };

struct bed {
    struct agent agent;
    struct record *record;
    struct lead_look *lead;
    unsigned n_found;
    int64_t n_asked; /* the serial of the question */
    char path[ORDER_PATH_BYTES];
    int64_t step;
};

static void on_found(void *arg, const char *path, int64_t step)
{
    struct bed *b = arg;

    b->n_found++;
    snprintf(b->path, sizeof(b->path), "%s", path);
    b->step = step;
}

static const struct lead_look_ops ops = {.on_found = on_found};

static bool ask_besides(struct bed *b, const char *path, const char *avoided)
{
    uint16_t n_procs[BED_NODES];
    struct order run = lead_bed_run(7, n_procs);

    b->n_found = 0;
    return lead_look_ask(b->lead, &run, path, 20, avoided);
}

static bool ask(struct bed *b, const char *path)
{
    return ask_besides(b, path, NULL);
}

/* Once its own child has looked all are asked, the first time with serial 1. */
static void wait_child(struct bed *b)
{
    uint64_t until_ms = clock_mono_ms() + SOON_MS;

    while (b->n_found == 0 && clock_mono_ms() < until_ms) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    }
}

static void say(struct bed *b, uint32_t rank, const char *state, const char *path,
                int64_t changed)
{
    json_t *fact = json_pack("{s:I, s:s, s:s, s:i, s:I, s:b}", "serial",
                             (json_int_t)b->n_asked, "state", state, "path", path, "step",
                             40, "changed", (json_int_t)changed, "whole", 1);

    lead_look_fact(b->lead, rank, fact);
    json_decref(fact);
}

static void test_there(struct bed *b)
{
    ok(!ask(b, "") && !ask(b, "s3://bucket/at-20") && !ask(b, "/a\xff"),
       "what is no path of a filesystem is not looked for");
    ok(ask(b, b->agent.run.dir) && b->n_found == 0, "not from inside the question");
    wait_child(b);
    ok(b->n_found == 1 && b->step == 20, "it is there");
    is_str(b->path, b->agent.run.dir, "so that is it");
}

static void test_seen_elsewhere(struct bed *b)
{
    ok(ask(b, "/nowhere/at-20"), "one that is not there");
    b->n_asked++;
    wait_child(b);
    is_int((int)b->n_found, 0, "is asked of all");
    say(b, 1, "itself", "", 0);
    say(b, 9, "itself", "", 0);
    b->n_asked--;
    say(b, 0, "itself", "", 0);
    b->n_asked++;
    is_int((int)b->n_found, 0, "who has no workers, and late answers, do not count");
    say(b, 2, "itself", "", 0);
    ok(b->n_found == 1 && b->step == 20, "one sees it: that is enough");
}

static void test_gone(struct bed *b)
{
    ok(ask(b, "/nowhere/at-20"), "again");
    b->n_asked++;
    wait_child(b);
    say(b, 0, "other", "/nowhere/at-40", 5);
    say(b, 0, "other", "/nowhere/at-50", 9);
    is_int((int)b->n_found, 0, "each answers once, and the others may see it");
    say(b, 2, "none", "", 0);
    ok(b->n_found == 1 && b->step == 40, "nobody does: what lies beside it");
    is_str(b->path, "/nowhere/at-40", "is taken");
    ok(ask(b, "/nowhere/at-20"), "again");
    b->n_asked++;
    wait_child(b);
    say(b, 0, "none", "", 0);
    say(b, 2, "none", "", 0);
    ok(b->n_found == 1 && b->step == -1 && !b->path[0], "nothing does: nothing");
}

/* It is there, and nobody starts from it: what is older is looked for. */
static void test_avoided(struct bed *b)
{
    for (int is_other = 0; is_other < 2; is_other++) {
        ok(ask_besides(b, b->agent.run.dir, b->agent.run.dir), "an older one is wanted");
        b->n_asked++;
        say(b, 0, "none", "", 0);
        is_int((int)b->n_found, 0, "all are asked");
        say(b, 2, is_other ? "other" : "none", is_other ? "/nowhere/at-10" : "", 5);
        ok(b->n_found == 1 && b->step == (is_other ? 40 : -1), "they have answered");
        is_str(b->path, is_other ? "/nowhere/at-10" : "", "%s",
               is_other ? "one of them sees it" : "none is older");
    }
    ok(ask_besides(b, b->agent.run.dir, b->agent.run.dir), "one more time");
    b->n_asked++;
    say(b, 0, "no directory", "", 0);
    say(b, 2, "no directory", "", 0);
    ok(b->n_found == 1 && !b->path[0], "nobody can tell: none is, and no pause is made");
    ok(!ask_besides(b, b->agent.run.dir, "/a\xff"), "what cannot be told is not asked");
}

/* Last, for questions are numbered from there on. */
static void test_lead_before(struct bed *b)
{
    b->agent.view = 3;
    ok(ask(b, "/nowhere/at-20"), "a lead of another view asks");
    b->n_asked++;
    wait_child(b);
    say(b, 2, "itself", "", 0);
    is_int((int)b->n_found, 0, "what was said to the lead before does not count");
    b->n_asked = (INT64_C(3) << 31) + 1;
    say(b, 2, "itself", "", 0);
    is_int((int)b->n_found, 1, "what is said to it does");
    b->agent.view = 0;
}

static void blind(struct bed *b)
{
    b->n_asked++;
    wait_child(b);
    say(b, 0, "no directory", "", 0);
    say(b, 2, b->n_asked % 2 ? "no directory" : "what?", "", 0);
}

static void test_unknown(struct bed *b)
{
    ok(ask(b, "/nowhere/at-20"), "again");
    blind(b);
    ok(b->n_found == 1 && b->step == 20, "nobody can tell: as it was told");
    ok(ask(b, "/nowhere/at-20"), "and the next time");
    blind(b);
    is_int((int)b->n_found, 0, "after a pause");
    wait_child(b);
    is_int((int)b->n_found, 0, "of a second");
    wait_child(b);
    blind(b);
    ok(b->n_found == 1, "in which it did not come");
    ok(ask(b, "/elsewhere/at-20"), "another one");
    blind(b);
    is_int((int)b->n_found, 1, "is no matter for a pause");
    ok(ask(b, "/elsewhere/at-20"), "it is again");
    blind(b);
    lead_look_forget(b->lead);
    wait_child(b);
    wait_child(b);
    is_int((int)b->n_found, 0, "who does not wait is told nothing");
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));
    struct error e = {0};

    if (!b) {
        bail_out("memory");
    }
    lead_bed_make(&b->agent);
    if (child_table_create(&b->agent.loop, &b->agent.children, &e) < 0 ||
        record_create(&b->agent, &b->record, &e) < 0 ||
        lead_look_create(&b->agent, b->record, &ops, b, &b->lead, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_there(b);
    test_seen_elsewhere(b);
    test_gone(b);
    test_unknown(b);
    test_avoided(b);
    test_lead_before(b);
    lead_look_destroy(b->lead);
    record_destroy(b->record, CLOSE_MS);
    fs_remove_tree(b->agent.run.dir, NULL);
    child_table_destroy(b->agent.children);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
