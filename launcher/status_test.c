/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/status.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "spec/job.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct run_status *sample(void)
{
    struct run_status *s = run_status_create();

    str_copy(s->id, sizeof(s->id), "20261121-033400-a1b2c3");
    str_copy(s->name, sizeof(s->name), "tiny");
    str_copy(s->version, sizeof(s->version), "0.1.0");
    str_copy(s->run_dir, sizeof(s->run_dir), "/r/tiny/x");
    str_copy(s->resume_path, sizeof(s->resume_path), "/r/ckpt/step-10");
    s->resume_step = 10;
    s->avoid.n_deaths = 1;
    s->avoid.n = 2;
    s->avoid.list[0] = (struct avoid_one){.path = "/r/ckpt/step-30", .step = 30,
                                          .n_deaths = 2};
    s->avoid.list[1] = (struct avoid_one){.path = "/r/ckpt/last", .step = -1,
                                          .n_deaths = 3};
    str_copy(s->stored_path, sizeof(s->stored_path), "s3://b/run/step-12");
    s->stored_step = 12;
    str_copy(s->storing_path, sizeof(s->storing_path), "/ckpt/step-13");
    s->saved_ns = 1795206358000000000u;
    s->saving_step = 14;
    s->saving_written = 3;
    s->saving_ranks = 8;
    s->held_step = 12;
    s->held_ranks = 8;
    run_status_set_held(s, 2);
    s->held[0] = (struct status_held){0, 4, 0, 1, false};
    s->held[1] = (struct status_held){4, 2, 1, -1, true};
    s->n_asked = 2;
    s->asked[0] = (struct status_asked){.id = "a1", .state = STATUS_ASKED_SAVED,
                                        .generation = 3, .at_ns = 1795206358000000000u,
                                        .step = 14, .save = "step-14", .path = "/c/step-14"};
    s->asked[1] = (struct status_asked){.id = "a2", .state = STATUS_ASKED_REFUSED,
                                        .step = -1, .why = "it ends"};
    s->save_plan = (struct status_plan){true, true, 66.5, 1, 11160, 111600, 10};
    s->levels = 1 << INTERVAL_MEMORY | 1 << INTERVAL_PARTNER | 1 << INTERVAL_DISK;
    s->slower_known = 1 << INTERVAL_PARTNER;
    s->slower[INTERVAL_PARTNER] = 0.0625;
    s->took_s[INTERVAL_DISK] = 4;
    s->checkpoint_is_late = true;
    s->state = STATUS_RESTARTING;
    s->generation = 3;
    s->restarts = 2;
    s->max_restarts = 5;
    s->node_failures = 1;
    s->min_nodes = 2;
    s->max_nodes = 8;
    s->want_nodes = 4;
    s->starts = 2;
    s->ran_ms = 90500;
    s->elapsed_ms = 30500;
    s->deadline_ns = s->time_limit_ns = 1795209957000000000u;
    s->mpi_epoch = 4;
    s->mpi_lost = 3;
    s->mpi_late = 2;
    s->step = 12;
    s->created_ns = 1795206357123456000u;
    s->updated_ns = s->created_ns + 1000;
    run_status_set_nodes(s, 2);
    run_status_set_workers(s, 3);
    str_copy(s->nodes[0].host, sizeof(s->nodes[0].host), "n0");
    s->nodes[0].n_procs = 1;
    str_copy(s->nodes[1].host, sizeof(s->nodes[1].host), "n\"1");
    s->nodes[1].state = STATUS_NODE_LOST;
    s->nodes[1].agent_pid = 77;
    str_copy(s->nodes[1].why, sizeof(s->nodes[1].why), "silent");
    s->nodes[1].excluded = EXCLUSION_HANGS;
    s->nodes[1].n_procs = 2;
    s->workers[2].state = STATUS_WORKER_EXITED;
    s->workers[2].signal = 9;
    s->workers[2].node = 1;
    s->workers[2].pid = 1234;
    s->workers[2].ended_ns = s->created_ns;
    s->workers[1].state = STATUS_WORKER_EXITED;
    s->workers[1].exit_code = 3;
    run_status_metric(s, "loss", 0.25, 12, 1);
    run_status_metric(s, "grad", NAN, 12, 1);
    s->failure.is_set = true;
    s->failure.rank = 2;
    s->failure.node = 1;
    s->failure.signal = 9;
    s->failure.generation = 2;
    str_copy(s->failure.reason, sizeof(s->failure.reason), "killed");
    str_copy(s->failure.advice, sizeof(s->failure.advice), "take less");
    run_status_set_lines(s, "one\ntwo\xff\n", 9);
    s->verdict.is_set = true;
    s->verdict.exit_status = 75;
    s->verdict.is_resumable = true;
    str_copy(s->verdict.reason, sizeof(s->verdict.reason), "preempted");
    return s;
}

static bool is_same_avoid(const struct avoid *a, const struct avoid *b)
{
    bool same = a->n_deaths == b->n_deaths && a->is_spent == b->is_spent && a->n == b->n;

    for (uint32_t i = 0; same && i < a->n; i++) {
        same = strcmp(a->list[i].path, b->list[i].path) == 0 &&
               a->list[i].step == b->list[i].step &&
               a->list[i].n_deaths == b->list[i].n_deaths;
    }
    return same;
}

static void test_round_trip(void)
{
    _cleanup_(run_status) struct run_status *s = sample(), *back = NULL;
    _cleanup_(run_status) struct run_status *copy = NULL;
    static const char *const said[] = {
        "\"id\":\"20261121-033400-a1b2c3\"", "\"name\":\"tiny\"",
        "\"muster\":\"0.1.0\"", "\"run_dir\":\"/r/tiny/x\"",
        "\"state\":\"Restarting\"", "\"generation\":3", "\"restarts\":2",
        "\"max_restarts\":5", "\"node_failures\":1",
        "\"min_nodes\":2,\"max_nodes\":8,\"want_nodes\":4",
        "\"starts\":2,\"ran\":90.5,\"elapsed\":30.5,\"deadline\":1795209957",
        "\"time_limit\":1795209957",
        "\"mpi_epoch\":4,\"mpi_lost\":3,\"mpi_late\":2",
        "\"created\":1795206357.123456", "\"step\":12",
        "\"resume_path\":\"/r/ckpt/step-10\"", "\"resume_step\":10",
        "\"resume_deaths\":1,\"avoided\":[{\"path\":\"/r/ckpt/step-30\",\"step\":30,"
        "\"deaths\":2},{\"path\":\"/r/ckpt/last\",\"deaths\":3}]",
        "\"stored_path\":\"s3://b/run/step-12\",\"stored_step\":12,"
        "\"storing\":\"/ckpt/step-13\","
        "\"saved\":1795206358.000000,\"saving\":{\"step\":14,\"written\":3,"
        "\"ranks\":8},\"in_memory\":{\"step\":12,\"ranks\":8,\"held\":["
        "{\"first\":0,\"ranks\":4,\"node\":0,\"copied_to\":1},"
        "{\"first\":4,\"ranks\":2,\"node\":1,\"parity\":true}]},"
        "\"asked\":[{\"id\":\"a1\",\"state\":\"Saved\",\"generation\":3,"
        "\"t\":1795206358.000000,\"step\":14,\"save\":\"step-14\","
        "\"path\":\"/c/step-14\"},{\"id\":\"a2\",\"state\":\"Refused\","
        "\"generation\":0,\"why\":\"it ends\"}],"
        "\"save_plan\":{\"every\":66.5,\"cost\":1,\"assumed\":true,"
        "\"mtbf\":11160,\"failures\":10,\"ran\":111600},\"save_levels\":["
        "{\"level\":\"memory\",\"saves\":1,\"every\":66.5,",
        "{\"level\":\"partner\",\"saves\":3,\"every\":199.5,\"best\":",
        "\"cost\":1,\"assumed\":true,\"took\":0,\"slower\":0.0625,",
        "{\"level\":\"disk\",\"saves\":3,\"every\":199.5,",
        "\"assumed\":false,\"took\":4,", "\"checkpoint_late\":true",
        "{\"name\":\"loss\",\"value\":0.25,\"step\":12,\"rank\":1}",
        "\"failure\":{\"generation\":2,\"rank\":2,\"node\":1,",
        "\"signal\":9,\"reason\":\"killed\",\"advice\":\"take less\",\"lines\":\"one",
        "\"verdict\":{\"exit_status\":75,\"resumable\":true,"
        "\"reason\":\"preempted\"}",
        "{\"rank\":1,\"host\":\"n\\\"1\",\"state\":\"Lost\","
        "\"agent_pid\":77,\"n_procs\":2,\"why\":\"silent\",\"excluded\":\"hangs\"}",
        "{\"rank\":1,\"node\":0,\"pid\":0,\"state\":\"Exited\","
        "\"exit_code\":3}",
        "{\"rank\":2,\"node\":1,\"pid\":1234,\"state\":\"Exited\","
        "\"signal\":9,\"ended\":",
    };
    _buf_ struct buf a = {0}, b = {0}, c = {0};
    struct error e = {0};

    run_status_to_json(s, &a);
    ok(!a.failed && a.data[a.len - 1] == '\n', "written");
    is_int(run_status_from_json(a.data, a.len, &back, &e), 0, "read back: %s",
           e.text);
    if (!back) {
        return;
    }
    run_status_to_json(back, &b);
    is_str(buf_str(&b), buf_str(&a), "the same once more");
    ok(isnan(back->metrics[1].value), "NaN survives");
    ok(back->ran_ms == 90500 && back->elapsed_ms == 30500, "how long it has run");
    ok(back->nodes[1].excluded == EXCLUSION_HANGS && !back->nodes[0].excluded,
       "who is excluded, and for what");
    for (size_t i = 0; i < ARRAY_SIZE(said); i++) {
        like(buf_str(&a), said[i], "says it");
    }
    ok(is_same_avoid(&back->avoid, &s->avoid), "what is avoided");
    is_int(back->failure.signal, 9, "signal");
    is_str(back->failure.advice, "take less", "advice");
    is_int(back->workers[1].exit_code, 3, "exit code");
    is_str(back->failure.lines, "one\ntwo\xef\xbf\xbd\n", "lines are UTF-8");
    copy = run_status_copy(back);
    ok(copy && copy->nodes != back->nodes &&
       copy->failure.lines != back->failure.lines, "a deep copy");
    run_status_to_json(copy, &c);
    is_str(buf_str(&c), buf_str(&a), "of the same");
}

static void test_empty(void)
{
    _cleanup_(run_status) struct run_status *s = run_status_create(),
                                            *back = NULL, *copy = NULL;
    _buf_ struct buf a = {0};

    run_status_to_json(s, &a);
    is_int(run_status_from_json(a.data, a.len, &back, NULL), 0, "empty");
    is_int(back->step, -1, "no step");
    is_int(back->failure.rank, -1, "no rank");
    copy = run_status_copy(back);
    ok(copy, "copy of an empty one");
}

static void test_bad(void)
{
    static const struct {
        const char *json, *error;
        int want;
    } cases[] = {
        {"", "status: line", -ERR_FORMAT},
        {"{", "status: line", -ERR_FORMAT},
        {"[]", "expected an object", -ERR_FORMAT},
        {"{}", "expected an object", -ERR_FORMAT},
        {"{\"v\":2,\"state\":\"Running\"}", "newer muster", -ERR_VERSION},
        {"{\"v\":\"1\"}", "format version", -ERR_FORMAT},
        {"{\"v\":0}", "format version", -ERR_FORMAT},
        {"{\"v\":1}", "state: expected the name", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Flying\"}", "state", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"unknown\":[1,{}]}", "", 0},
        {"{\"v\":1,\"state\":\"Running\",\"id\":7}", "id: expected a string",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"generation\":-1}", "generation",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"generation\":1e3}", "generation",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"created\":-5}", "created",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"ran\":-1}", "ran: expected seconds",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"ran\":\"1\"}", "ran", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"ran\":1e300}", "ran", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"nodes\":{}}", "nodes", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"nodes\":[1]}", "nodes[].state",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"workers\":[{\"state\":\"Exited\","
         "\"exit_code\":256}]}", "workers[].exit_code", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"metrics\":[{\"name\":\"x\","
         "\"value\":\"much\"}]}", "metrics[].value", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"failure\":[]}", "", 0},
        {"{\"v\":1,\"state\":\"Running\",\"resume_spent\":true}", "", 0},
        {"{\"v\":1,\"state\":\"Running\",\"resume_deaths\":-1}", "resume_deaths",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"avoided\":{}}", "", 0},
        {"{\"v\":1,\"state\":\"Running\",\"avoided\":[1]}", "avoided", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"avoided\":[{\"path\":\"\"}]}", "avoided",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"avoided\":[{\"path\":\"/a\\n/b\"}]}",
         "avoided", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"avoided\":[{\"path\":\"/a\"},"
         "{\"path\":\"/b\"},{\"path\":\"/c\"}]}", "avoided", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"resume_spent\":true,"
         "\"avoided\":[{\"path\":\"/a\"}]}", "avoided", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"asked\":[{\"id\":\"a\"}]}", "asked[].state",
         -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"asked\":[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,"
         "17]}", "asked", -ERR_FORMAT},
        {"{\"v\":1,\"state\":\"Running\",\"verdict\":{\"exit_status\":999}}",
         "verdict.exit_status", -ERR_FORMAT},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        _cleanup_(run_status) struct run_status *s = NULL;
        struct error e = {0};

        is_int(run_status_from_json(cases[i].json, strlen(cases[i].json), &s,
                                    &e), cases[i].want, "bad %zu", i);
        like(e.text, cases[i].error, "bad %zu: text", i);
    }
}

static void test_metrics(void)
{
    _cleanup_(run_status) struct run_status *s = run_status_create();
    char name[100];

    run_status_metric(s, "loss", 3, 1, 4);
    run_status_metric(s, "loss", 2, 1, 0);
    run_status_metric(s, "loss", 9, 2, 4);
    ok(s->n_metrics == 1 && s->metrics[0].value == 2 &&
       s->metrics[0].rank == 0, "rank 0 is preferred");
    run_status_metric(s, "loss", 1, 3, 0);
    ok(s->metrics[0].value == 1 && s->metrics[0].step == 3, "newest wins");
    memset(name, 'x', sizeof(name));
    name[99] = '\0';
    run_status_metric(s, name, 1, 1, 0);
    is_int(s->n_metrics, 1, "a name that is too long is left out");
    for (int i = 0; i < 2 * STATUS_MAX_METRICS; i++) {
        snprintf(name, sizeof(name), "m%d", i);
        run_status_metric(s, name, i, 1, 0);
    }
    is_int(s->n_metrics, STATUS_MAX_METRICS, "bounded");
}

static void test_lines(void)
{
    _cleanup_(run_status) struct run_status *s = run_status_create();
    char big[STATUS_MAX_LINES_BYTES + 2];

    memset(big, 'a', sizeof(big));
    big[sizeof(big) - 1] = 'z';
    run_status_set_lines(s, big, sizeof(big));
    is_int(strlen(s->failure.lines), STATUS_MAX_LINES_BYTES, "bounded");
    ok(s->failure.lines[STATUS_MAX_LINES_BYTES - 1] == 'z', "the last ones");
}

static void test_arrays(void)
{
    _cleanup_(run_status) struct run_status *s = run_status_create();

    is_int(run_status_set_workers(s, STATUS_MAX_WORKERS + 1), -E2BIG,
           "too many workers");
    is_int(run_status_set_nodes(s, STATUS_MAX_NODES + 1), -E2BIG,
           "too many nodes");
    run_status_set_workers(s, 4);
    s->workers[1].pid = 5;
    run_status_set_workers(s, 2);
    run_status_set_workers(s, 8);
    ok(s->workers[1].pid == 5 && s->workers[7].rank == 7 &&
       s->workers[3].pid == 0, "shrunk and grown");
    run_status_set_workers(s, 0);
    ok(!s->workers, "none");
}

/* The targets are 10,000 workers and five status files a second. */
static void test_large(void)
{
    _cleanup_(run_status) struct run_status *s = sample(), *back = NULL;
    _buf_ struct buf a = {0};
    uint64_t t0, t1, t2;

    run_status_set_nodes(s, 1250);
    run_status_set_workers(s, 10000);
    t0 = clock_mono_ns();
    run_status_to_json(s, &a);
    t1 = clock_mono_ns();
    is_int(run_status_from_json(a.data, a.len, &back, NULL), 0, "10,000 ranks");
    t2 = clock_mono_ns();
    diag("10,000 workers: %zu bytes, written in %.1f ms, read in %.1f ms",
         a.len, (double)(t1 - t0) / 1e6, (double)(t2 - t1) / 1e6);
    ok(back && back->n_workers == 10000, "all there");
}

static void test_names(void)
{
    is_str(status_run_name((enum status_run_state)99), "Unknown", "run");
    is_str(status_node_name((enum status_node_state)-1), "Unknown", "node");
    is_str(status_worker_name(STATUS_WORKER_N_STATES), "Unknown", "worker");
    ok(!status_run_is_over(STATUS_STOPPING) &&
       status_run_is_over(STATUS_SUCCEEDED) &&
       status_run_is_over(STATUS_STOPPED) && status_run_is_over(STATUS_SUSPENDED),
       "which states are the end");
}

/* The store goes by the plan, where it is to. */
static void test_store_ms(void)
{
    struct run_status s = {.n_nodes = 1, .n_workers = 8, .starts = 1,
                           .levels = 1 << INTERVAL_MEMORY | 1 << INTERVAL_STORE};

    is_int((int)run_status_store_ms(&s, 5000), 5000, "as the job says");
    is_int((int)run_status_store_ms(&s, JOB_AUTO), 0, "at once without a plan");
    s.save_plan = (struct status_plan){true, false, 66, 0.2, 11160, 111600, 9};
    run_status_took(&s, INTERVAL_STORE, 40);
    /* By hand: nodes 45111600 s, runs 225111600, all 2250111600: together 36963165 s
     * apart; sqrt(2 * 2 * that) = 12159 s, with Daly's terms 12158, of 66 s 184.2 */
    is_int((int)run_status_store_ms(&s, JOB_AUTO), 184 * 66000, "as is planned");
    run_status_took(&s, INTERVAL_STORE, 140);
    is_int((int)(s.took_s[INTERVAL_STORE] * 10), 700, "newer ones count for more");
    run_status_took(&s, INTERVAL_STORE, -1);
    is_int((int)(s.took_s[INTERVAL_STORE] * 10), 700, "what makes no sense does not");
}

/* Saves go to a level by the plan, a bit early where that is nearer to it. */
static void test_save_ms(void)
{
    struct status_node nodes[2] = {{.n_procs = 4, .host = "a"}, {.n_procs = 4, .host = "a"}};
    struct run_status s = {.n_nodes = 2, .nodes = nodes, .n_workers = 8, .starts = 1,
                           .levels = 1 << INTERVAL_MEMORY | 1 << INTERVAL_PARTNER |
                                     1 << INTERVAL_DISK};

    is_int((int)run_status_save_ms(&s, INTERVAL_DISK, 7000), 7000, "as the job says");
    is_int((int)run_status_save_ms(&s, INTERVAL_DISK, 0), 0, "which may be each save");
    is_int((int)run_status_save_ms(&s, INTERVAL_DISK, JOB_AUTO), 0, "each without a plan");
    s.save_plan = (struct status_plan){true, false, 66, 0.2, 11160, 111600, 9};
    run_status_took(&s, INTERVAL_DISK, 0.4);
    run_status_took(&s, INTERVAL_PARTNER, 40);
    /* By hand: nodes 45111600 s, runs 225111600: together 37580692 s apart;
     * sqrt(2 * 0.02 * that) = 1226 s, of 66 s 18.6 */
    is_int((int)run_status_save_ms(&s, INTERVAL_DISK, JOB_AUTO), 19 * 66000 - 33000,
           "as is planned");
    is_int((int)run_status_save_ms(&s, INTERVAL_PARTNER, JOB_AUTO), 0,
           "nobody on the same host is a partner");
    str_copy(nodes[1].host, sizeof(nodes[1].host), "b");
    ok(run_status_save_ms(&s, INTERVAL_PARTNER, JOB_AUTO) > 66000, "who is on another, is");
    nodes[1].n_procs = 0;
    is_int((int)run_status_save_ms(&s, INTERVAL_PARTNER, JOB_AUTO), 0,
           "unless it has no workers");
}

static void test_elapsed(void)
{
    static const uint64_t s_ns = 1000000000u;
    struct run_status s = {.created_ns = 9 * s_ns, .started_ns = 10 * s_ns};

    is_int((int)run_status_elapsed_ms(&s, 30 * s_ns), 20000, "by the wall clock where "
           "nobody has told");
    is_int((int)run_status_elapsed_ms(&s, 5 * s_ns), 0, "never less than nothing");
    s.ended_ns = 15 * s_ns;
    is_int((int)run_status_elapsed_ms(&s, 30 * s_ns), 5000, "until its end");
    s.elapsed_ms = 7000;
    is_int((int)run_status_elapsed_ms(&s, 30 * s_ns), 7000, "as its lead has told, by "
           "another clock");
    s.ended_ns = 0;
    s.updated_ns = 28 * s_ns;
    is_int((int)run_status_elapsed_ms(&s, 30 * s_ns), 9000, "and what has passed since");
}

int main(void)
{
    test_elapsed();
    test_round_trip();
    test_empty();
    test_bad();
    test_metrics();
    test_lines();
    test_arrays();
    test_large();
    test_names();
    test_store_ms();
    test_save_ms();
    return tap_done();
}
