/* SPDX-License-Identifier: Apache-2.0 */
/* A crash loop on one checkpoint: when the next generation starts from an older one. */
#include <config.h>

#include "base/str.h"
#include "rendezvous/lead_bed.h"
#include "tests/lib/tap.h"

#include <string.h>

static struct lead_config config_of(void)
{
    struct lead_config config = bed_config(1);

    config.restart.max = 20;
    config.restart.backoff_max_ms = 1;
    config.restart.backoff_min_ms = 1;
    config.avoid_after = 2;
    config.resume_path = "/c/40";
    config.resume_step = 40;
    return config;
}

/* The workers of `g` die, and those of the next one are ordered. */
static void die(struct bench *t, uint32_t g)
{
    t->now_ms += 5000;
    (void)bed_fail(t, 0, g, 9, 500, 0);
    (void)bed_tell(t, (struct report){.state = REPORT_STOPPED,
                                      .generation = g + 1});
    if (!t->a.order) {
        (void)bed_tick(t, 10);
    }
}

static void choose(struct bench *t, const char *path, int64_t step)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_CHOSEN, .text = path,
                                          .step = step});
}

static const char *start_of(const struct bench *t)
{
    const struct order *o = lead_order(t->lead);

    return o->step == ORDER_RUN ? o->resume_path : "no order to run";
}

static uint32_t n_avoided(const struct bench *t)
{
    return lead_avoid(t->lead)->n;
}

static void begin(struct bench *t, const struct lead_config *config)
{
    bed_open(t, config);
    bed_run_to(t, 1, 1);
}

static void test_loop(void)
{
    struct lead_config config = config_of();
    const struct lead_note *n;
    int64_t step;
    struct bench t;

    begin(&t, &config);
    die(&t, 1);
    ok(bed_ordered(&t, ORDER_RUN, 2) && n_avoided(&t) == 0,
       "after one death it is started from again");
    is_int(t.a.order->past.avoid.n_deaths, 1, "whoever leads next knows of it");
    die(&t, 2);
    ok(bed_ordered(&t, ORDER_RUN, 3) && n_avoided(&t) == 1 &&
           avoid_has(lead_avoid(t.lead), lead_resume(t.lead, &step)),
       "after two it is left alone, and another one to be chosen");
    choose(&t, "/c/30", 30);
    n = bed_note(&t, LEAD_NOTE_AVOIDED);
    is_str(n ? n->text : "", "2 generations in a row started from /c/40 (step 40) and "
           "died before a save or a report of progress: generation 3 starts from /c/30 "
           "(step 30)", "which is told");
    is_str(start_of(&t), "/c/30", "its workers start from that");
    is_str(lead_order(t.lead)->past.avoid.list[0].path, "/c/40",
           "and whoever leads next knows why");
    die(&t, 3);
    is_str(start_of(&t), "/c/30", "that has as many tries");
    die(&t, 4);
    choose(&t, "/c/20", 20);
    is_str(start_of(&t), "/c/20", "before an older one comes");
    die(&t, 5);
    die(&t, 6);
    n = bed_note(&t, LEAD_NOTE_AVOIDED);
    ok(n && strstr(n->text, "older ones were no better, and generation 7 starts from "
                   "/c/40 (step 40)"), "a third is not tried: %s", n ? n->text : "");
    is_str(start_of(&t), "/c/40", "the newest has its turn again");
    die(&t, 7);
    die(&t, 8);
    die(&t, 9);
    ok(n_avoided(&t) == 0 && strcmp(start_of(&t), "/c/40") == 0,
       "and again: the budget of restarts decides");
    lead_destroy(t.lead);
}

static void test_none(void)
{
    struct lead_config config = config_of();
    const struct lead_note *n;
    struct bench t;

    begin(&t, &config);
    die(&t, 1);
    die(&t, 2);
    choose(&t, "", -1);
    n = bed_note(&t, LEAD_NOTE_AVOIDED);
    ok(n && strstr(n->text, "none that is older can be used, and generation 3 starts "
                   "from it again"), "where none is older: %s", n ? n->text : "");
    ok(strcmp(start_of(&t), "/c/40") == 0 && n_avoided(&t) == 0,
       "it is not given up for nothing at all");
    ok(lead_order(t.lead)->past.avoid.n == 0 && lead_order(t.lead)->past.avoid.is_spent,
       "as whoever leads next knows");
    lead_destroy(t.lead);
}

static void progress(struct bench *t, int64_t step)
{
    (void)bed_step(t, (struct lead_event){.type = LEAD_PROGRESS, .step = step});
}

/* What says that a generation got somewhere, and what does not. */
static void test_progress(void)
{
    static const struct {
        const char *name;
        int64_t first, second; /* reports; -1: none */
        bool is_loop;
    } cases[] = {
        {"no report", -1, -1, true},
        {"one of the step that it started from", 40, -1, true},
        {"one of a number that counts otherwise", 3, -1, true},
        {"the same again", 3, 3, true},
        {"one of the next step", 41, -1, false},
        {"two that differ", 3, 4, false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct lead_config config = config_of();
        struct bench t;

        begin(&t, &config);
        for (uint32_t g = 1; g <= 4; g++) {
            if (cases[i].first >= 0) {
                progress(&t, cases[i].first);
            }
            if (cases[i].second >= 0) {
                progress(&t, cases[i].second);
            }
            die(&t, g);
        }
        is_int(n_avoided(&t) > 0, cases[i].is_loop, "%s", cases[i].name);
        lead_destroy(t.lead);
    }
}

static void saved(struct bench *t, uint32_t g, const char *path, int64_t step)
{
    struct report r = {.state = REPORT_RUNNING, .generation = g,
                       .saved_generation = g, .saved_step = step};

    str_copy(r.saved_path, sizeof(r.saved_path), path);
    (void)bed_tell(t, r);
}

static void test_saves(void)
{
    struct lead_config config = config_of();
    struct bench t;
    int64_t step;

    begin(&t, &config);
    die(&t, 1);
    saved(&t, 2, "/c/41", 41);
    die(&t, 2);
    die(&t, 3);
    ok(n_avoided(&t) == 0, "a generation that has saved is none of the row");
    die(&t, 4);
    choose(&t, "/c/40", 40);
    ok(n_avoided(&t) == 1, "/c/41 is left alone");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "/c/41",
                                           .step = 41});
    is_str(lead_resume(t.lead, &step), "/c/40",
           "who finds that one has found nothing new");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "/c/41",
                                           .step = 41, .force = true});
    ok(n_avoided(&t) == 0 && strcmp(lead_resume(t.lead, &step), "/c/41") == 0,
       "but one of its name that was written since is another one");
    (void)bed_tick(&t, 1000);
    die(&t, 5);
    die(&t, 6);
    die(&t, 7);
    choose(&t, "/c/40", 40);
    ok(n_avoided(&t) == 1, "which is left alone as any");
    saved(&t, 8, "/c/40b", 40);
    ok(n_avoided(&t) == 1, "as long as there is none of its step");
    (void)bed_step(&t, (struct lead_event){.type = LEAD_SAVED, .text = "/c/42",
                                           .step = 42});
    ok(n_avoided(&t) == 0 && strcmp(lead_resume(t.lead, &step), "/c/42") == 0,
       "then all is as ever");
    (void)bed_tick(&t, 1000);
    die(&t, 8);
    is_str(start_of(&t), "/c/42", "and the next ones start from the newest");
    lead_destroy(t.lead);
}

/* One that nobody had told of lies there. */
static void test_newer(void)
{
    struct lead_config config = config_of();
    struct bench t;

    begin(&t, &config);
    die(&t, 1);
    die(&t, 2);
    choose(&t, "/c/45", 45);
    ok(n_avoided(&t) == 0 && !bed_note(&t, LEAD_NOTE_AVOIDED) &&
           strcmp(start_of(&t), "/c/45") == 0, "a newer one is no older one");
    die(&t, 3);
    choose(&t, "/c/44", 44);
    die(&t, 4);
    ok(n_avoided(&t) == 0, "each has a row of its own");
    lead_destroy(t.lead);
}

/* Without a step nothing is known of which is the older one: it is the one that was
 * chosen instead. */
static void test_no_step(void)
{
    struct lead_config config = config_of();
    const struct lead_note *n;
    struct bench t;

    config.resume_path = "/c/best";
    config.resume_step = -1;
    begin(&t, &config);
    die(&t, 1);
    die(&t, 2);
    choose(&t, "/c/30", 30);
    n = bed_note(&t, LEAD_NOTE_AVOIDED);
    ok(n && strstr(n->text, "started from /c/best and died") && n_avoided(&t) == 1,
       "one without a step is left alone: %s", n ? n->text : "");
    lead_destroy(t.lead);
}

/* What a worker still says when its generation has failed. */
static void test_too_late(void)
{
    struct lead_config config = config_of();
    struct bench t;

    begin(&t, &config);
    for (uint32_t g = 1; g <= 2; g++) {
        t.now_ms += 5000;
        (void)bed_fail(&t, 0, g, 9, 500, 0);
        progress(&t, 41);
        (void)bed_tell(&t, (struct report){.state = REPORT_STOPPED,
                                           .generation = g + 1});
        if (!t.a.order) {
            (void)bed_tick(&t, 10);
        }
    }
    is_int((int)n_avoided(&t), 1, "a report that comes after the death is none of a life");
    lead_destroy(t.lead);
}

static void test_off(void)
{
    struct lead_config config = config_of();
    struct bench t;

    config.avoid_after = 0;
    begin(&t, &config);
    for (uint32_t g = 1; g < 8; g++) {
        die(&t, g);
    }
    ok(n_avoided(&t) == 0 && strcmp(start_of(&t), "/c/40") == 0,
       "switched off, it is started from for ever");
    lead_destroy(t.lead);
}

/* What is not the workers' fault: the same deaths, each with the loss of a node. */
static void test_losses(void)
{
    struct lead_config config = config_of();
    struct bench t;

    config.n_nodes = 3;
    config.min_nodes = 1;
    config.max_losses = 9;
    bed_open(&t, &config);
    bed_run_to(&t, 3, 1);
    for (uint32_t g = 1; g < 3; g++) {
        (void)bed_fail(&t, 0, g, 9, 500, 0);
        (void)bed_step(&t, (struct lead_event){.type = LEAD_LOST, .rank = 3 - g,
                                               .dead = true, .text = "gone"});
        bed_tell_all(&t, 3 - g, REPORT_STOPPED, g + 1);
        (void)bed_tick(&t, 5000);
    }
    ok(bed_ordered(&t, ORDER_RUN, 3) || lead_generation(t.lead) == 3,
       "two generations have died");
    ok(lead_n_losses(t.lead) == 2 && n_avoided(&t) == 0 &&
           lead_avoid(t.lead)->n_deaths == 0, "losses of nodes do not count");
    lead_destroy(t.lead);
}

/* By a start of the run before, or from another lead. */
static void test_heritage(void)
{
    struct lead_config config = config_of();
    struct bench t;

    config.avoid = (struct avoid){.n_deaths = 1};
    begin(&t, &config);
    die(&t, 1);
    ok(n_avoided(&t) == 1, "what an earlier start has counted counts");
    choose(&t, "/c/30", 30);
    is_int(t.a.order ? -1 : (int)lead_order(t.lead)->past.avoid.n, 1,
           "the order that waits says so");
    lead_destroy(t.lead);
}

int main(void)
{
    test_loop();
    test_none();
    test_progress();
    test_saves();
    test_newer();
    test_no_step();
    test_too_late();
    test_off();
    test_losses();
    test_heritage();
    return tap_done();
}
