/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether a checkpoint is due, for workers of a run: what muster.h would say of it is
 * said here, and the clock is the test's.
 */
#include <config.h>

#include "muster.h"

#include "base/fs.h"
#include "ckpt/team.h"
#include "comm/client.h"
#include "ckpt/save_priv.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

uint64_t __wrap_clock_mono_ns(void);

/* A worker, as far as checkpoints ask. */
struct muster {
    int rank, world;
    int n_requests; /* that are to be heard of */
    uint32_t n_told; /* that the agent has told of */
    int should_stop;
};

int __wrap_muster_rank(const struct muster *m);
int __wrap_muster_world(const struct muster *m);
int __wrap_muster_node(const struct muster *m);
int __wrap_muster_generation(const struct muster *m);
int __wrap_muster_should_stop(struct muster *m);
int __wrap_muster_checkpoint_requested(struct muster *m);
int __wrap_muster_checkpoint_saved(struct muster *m, const char *path,
                                   int64_t step);
int __wrap_client_state(struct client *c, struct worker_state *ret, struct error *e);
int __wrap_client_checkpoint_heard(struct client *c, uint32_t requests, const char *uuid,
                                   int64_t step, struct error *e);
struct client *__wrap_client_of(struct muster *m);
int __wrap_client_save_plan(struct client *c, const struct worker_save_plan *plan,
                            struct error *e);

int __wrap_muster_rank(const struct muster *m) { return m->rank; }
int __wrap_muster_world(const struct muster *m) { return m->world; }
int __wrap_muster_node(const struct muster *m) { return m->rank; }
int __wrap_muster_generation(const struct muster *m) { return m ? 1 : -EINVAL; }
int __wrap_muster_should_stop(struct muster *m) { return m->should_stop; }

int __wrap_muster_checkpoint_requested(struct muster *m)
{
    return m->n_requests > 0 && m->n_requests-- > 0;
}

int __wrap_client_state(struct client *c, struct worker_state *ret, struct error *e)
{
    (void)e;
    *ret = (struct worker_state){.checkpoint_requests = ((struct muster *)c)->n_told};
    return 0;
}

static uint32_t told_heard; /* with the last save */
static int64_t told_step;
static size_t told_uuid;

int __wrap_client_checkpoint_heard(struct client *c, uint32_t requests, const char *uuid,
                                   int64_t step, struct error *e)
{
    (void)c, (void)e;
    told_heard = requests;
    told_step = step;
    told_uuid = strlen(uuid);
    return 0;
}

int __wrap_muster_checkpoint_saved(struct muster *m, const char *path,
                                   int64_t step)
{
    return m && path && step >= 0 ? 0 : -EINVAL;
}

static bool is_heard; /* by an agent, which takes no saves */
static int n_plans;
static double plan_cost_s, plan_ran_s; /* of the last one */

struct client *__wrap_client_of(struct muster *m)
{
    return is_heard ? (struct client *)m : NULL;
}

int __wrap_client_save_plan(struct client *c, const struct worker_save_plan *plan,
                            struct error *e)
{
    (void)c, (void)e;
    n_plans++;
    plan_cost_s = plan->is_assumed ? 0 : plan->cost_s;
    plan_ran_s = plan->ran_s;
    return 0;
}

static uint64_t now_ns = 1000000000;

uint64_t __wrap_clock_mono_ns(void)
{
    return now_ns;
}

static void pass(double seconds)
{
    now_ns += (uint64_t)(seconds * 1e9);
}

static char root[4096];

static int try_open(struct muster *m, const struct muster_ckpt_group *group,
                    const struct muster_ckpt_options *o,
                    struct muster_ckpt **ret)
{
    char path[5000];

    snprintf(path, sizeof(path), "%s/ckpt", root);
    return muster_ckpt_open(m, group, path, o, ret);
}

static struct muster_ckpt *open_one(struct muster *m,
                                    const struct muster_ckpt_group *group,
                                    const struct muster_ckpt_options *o)
{
    struct muster_ckpt *ck = NULL;

    if (try_open(m, group, o, &ck) < 0) {
        bail_out("open: %s", muster_ckpt_error_text(ck));
    }
    return ck;
}

static void run_says(const char *every, const char *ran, const char *failures)
{
    setenv("MUSTER_CHECKPOINT_EVERY", every, 1);
    setenv("MUSTER_RAN_SECONDS", ran, 1);
    setenv("MUSTER_FAILURE_COUNT", failures, 1);
}

static void save(struct muster_ckpt *ck, int64_t step)
{
    static int32_t v;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32,
                                   .data = &v};

    if (muster_ckpt_tensor(ck, &t) < 0 ||
        muster_ckpt_save(ck, step, 0, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
}

static void test_automatic(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt *ck;

    run_says("auto", "111600", "10"); /* a failure every 3.1 h */
    ck = open_one(&m, NULL, NULL);
    pass(140);
    is_int(muster_ckpt_due(ck, 1), 0, "not at once");
    pass(20);
    is_int(muster_ckpt_due(ck, 2), MUSTER_CKPT_AUTO, "as a save of 1 s asks for");
    save(ck, 2);
    is_int(muster_ckpt_due(ck, 3), 0, "not again");
    pass(140);
    is_int(muster_ckpt_due(ck, 4), MUSTER_CKPT_AUTO,
           "sooner where saves take no time");
    m.should_stop = 1;
    is_int(muster_ckpt_due(ck, 5), MUSTER_CKPT_AUTO | MUSTER_CKPT_STOPPING,
           "and other reasons are told as well");
    muster_ckpt_close(ck);
}

/* How far the last save is, and whether it stays in memory. */
static int last_reached;
static bool last_stays;

static int reached_so(void *self, const char *uuid, enum muster_ckpt_level level,
                      int64_t timeout_ms, struct error *e)
{
    (void)self, (void)uuid, (void)e;
    return level == MUSTER_CKPT_DURABLE && timeout_ms == 0 ? last_reached : -EINVAL;
}

static bool stays_so(void *self, const char *uuid)
{
    (void)self, (void)uuid;
    return last_stays;
}

/* One that is on its way to the disk; of one that fails no other one comes by itself. */
static void test_under_way(void)
{
    static const struct {
        int reached;
        bool stays, has_memory, is_due;
        const char *name;
    } cases[] = {
        {0, false, true, false, "is on its way to the disk"},
        {0, false, false, false, "is on its way, where none stays in memory"},
        {0, true, true, true, "stays in memory"},
        {1, false, true, true, "is on the disk"},
        {-EIO, false, true, true, "has failed"},
    };
    struct muster m = {.world = 1};
    struct save_ops ops;
    struct muster_ckpt *ck;

    run_says("auto", "111600", "10");
    ck = open_one(&m, NULL, NULL);
    save(ck, 1);
    ops = *ck->direct.ops;
    ops.reached = reached_so;
    ck->direct.ops = &ops;
    pass(1000);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        last_reached = cases[i].reached;
        last_stays = cases[i].stays;
        ops.stays = cases[i].has_memory ? stays_so : NULL;
        is_int(muster_ckpt_due(ck, 2), cases[i].is_due ? MUSTER_CKPT_AUTO : 0,
               "the last one %s", cases[i].name);
    }
    muster_ckpt_close(ck);
}

/* One that was slow says something, and not all. */
static void test_cost(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt *ck;

    run_says("auto", "111600", "10");
    ck = open_one(&m, NULL, NULL);
    ckpt_due_saved(ck, 1);
    ok(ck->automatic.cost_s >= 1 && ck->automatic.cost_s <= 1, "the first cost is taken as it is");
    ckpt_due_saved(ck, 2);
    ok(ck->automatic.cost_s > 1.299 && ck->automatic.cost_s < 1.301,
       "the second one counts for three tenths: %.3f s", ck->automatic.cost_s);
    ckpt_due_saved(ck, 0);
    ok(ck->automatic.cost_s > 0.909 && ck->automatic.cost_s < 0.911, "so does one of none: %.3f s",
       ck->automatic.cost_s);
    muster_ckpt_close(ck);
}

/* What the first save took is told at once, and then no more than once in a second. */
static void test_told(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt *ck;

    run_says("auto", "111600", "10");
    ck = open_one(&m, NULL, NULL);
    is_heard = true;
    muster_ckpt_due(ck, 1);
    ok(n_plans == 1 && plan_cost_s <= 0, "a plan is told, whose cost is assumed");
    save(ck, 1);
    ok(n_plans == 2 && plan_cost_s > 0, "and that of the first save");
    pass(0.5);
    save(ck, 2);
    is_int(n_plans, 2, "not that of the next, which comes soon");
    muster_ckpt_due(ck, 3);
    is_int(n_plans, 2, "nor a moment later");
    pass(0.5);
    muster_ckpt_due(ck, 4);
    is_int(n_plans, 3, "but in a second");
    muster_ckpt_due(ck, 5);
    is_int(n_plans, 3, "once");
    pass(5);
    save(ck, 5);
    is_int(n_plans, 4, "and that of one that comes later");
    ok(plan_ran_s > 111605.9 && plan_ran_s < 111606.1, "with how long it has run by then: %.1f s",
       plan_ran_s);
    is_heard = false;
    muster_ckpt_close(ck);
}

/* Of one step that of the later generation counts: in a run the token begins with it. */
static void test_token(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt *ck;
    struct step s = {0};
    char path[5000];
    int dir;

    unsetenv("MUSTER_CHECKPOINT_EVERY");
    ck = open_one(&m, NULL, NULL);
    save(ck, 1000000);
    muster_ckpt_close(ck);
    snprintf(path, sizeof(path), "%s/ckpt", root);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(step_find_newest(io_system(), dir, false, NULL, NULL, &s, NULL), 0, "a checkpoint");
    ok(s.commit.step == 1000000 && s.commit.generation == 1 &&
       s.commit.token == UINT64_C(1) << 32, "has the token of its generation");
    step_close(&s);
    close(dir);
}

/* Who waits for a checkpoint learns which save began after he had asked. */
static void test_heard(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt *ck;

    unsetenv("MUSTER_CHECKPOINT_EVERY");
    ck = open_one(&m, NULL, NULL);
    is_heard = true;
    save(ck, 1);
    is_int(told_heard, 0, "nobody has asked");
    m.n_told = m.n_requests = 2;
    save(ck, 2);
    ok(told_heard == 2 && told_step == 2 && told_uuid == 32,
       "a save that begins after it, whether the program has heard of it or not");
    save(ck, 3);
    ok(told_heard == 2 && told_step == 3, "all later ones tell it, too");
    is_heard = false;
    muster_ckpt_close(ck);
}

static void test_job_says(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt_options o = {.size = sizeof(o), .every_steps = 7};
    struct muster_ckpt *ck;

    run_says("90", "0", "0");
    ck = open_one(&m, NULL, NULL);
    pass(89);
    is_int(muster_ckpt_due(ck, 7), 0, "not before the time that the job says");
    pass(1);
    is_int(muster_ckpt_due(ck, 8), MUSTER_CKPT_BY_SECONDS, "then");
    muster_ckpt_close(ck);
    ck = open_one(&m, NULL, &o);
    pass(1e5);
    is_int(muster_ckpt_due(ck, 6), 0, "what the program says counts more");
    is_int(muster_ckpt_due(ck, 7), MUSTER_CKPT_BY_STEPS, "alone");
    muster_ckpt_close(ck);
    ck = open_one(NULL, NULL, NULL);
    pass(1e5);
    is_int(muster_ckpt_due(ck, 7), 0, "without a run nobody says");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_CHECKPOINT_EVERY");
    ck = open_one(&m, NULL, NULL);
    pass(1e5);
    is_int(muster_ckpt_due(ck, 7), 0, "a job that says off");
    muster_ckpt_close(ck);
}

static void test_job_says_steps(void)
{
    struct muster m = {.world = 1};
    struct muster_ckpt_options o = {.size = sizeof(o), .every_seconds = 1e6};
    struct muster_ckpt *ck;

    setenv("MUSTER_CHECKPOINT_EVERY_STEPS", "5", 1);
    ck = open_one(&m, NULL, NULL);
    pass(1e5);
    is_int(muster_ckpt_due(ck, 9), 0, "not between the steps that the job says");
    is_int(muster_ckpt_due(ck, 10), MUSTER_CKPT_BY_STEPS, "but after each so many");
    muster_ckpt_close(ck);
    run_says("90", "0", "0");
    ck = open_one(&m, NULL, NULL);
    pass(91);
    is_int(muster_ckpt_due(ck, 10), MUSTER_CKPT_BY_STEPS | MUSTER_CKPT_BY_SECONDS,
           "a job may say both");
    muster_ckpt_close(ck);
    ck = open_one(&m, NULL, &o);
    is_int(muster_ckpt_due(ck, 10), 0, "what the program says counts more");
    muster_ckpt_close(ck);
    ck = open_one(NULL, NULL, NULL);
    is_int(muster_ckpt_due(ck, 10), 0, "without a run nobody says");
    muster_ckpt_close(ck);
    setenv("MUSTER_CHECKPOINT_EVERY_STEPS", "5x", 1);
    is_int(try_open(&m, NULL, NULL, &ck), -EINVAL, "a number that is none");
    like(muster_ckpt_error_text(ck), "MUSTER_CHECKPOINT_EVERY_STEPS is '5x'", "is named");
    muster_ckpt_close(ck);
    setenv("MUSTER_CHECKPOINT_EVERY_STEPS", "9223372036854775808", 1);
    is_int(try_open(&m, NULL, NULL, &ck), -EINVAL, "more than there are steps");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_CHECKPOINT_EVERY_STEPS");
    unsetenv("MUSTER_CHECKPOINT_EVERY");
}

/* What a save is for decides where it goes: once. */
static void test_where(void)
{
    static const struct {
        int reasons;
        unsigned flags;
        bool is_stopping, may_stay, is_chosen;
        const char *name;
    } cases[] = {
        {0, 0, false, true, false, "of the program's own accord"},
        {MUSTER_CKPT_AUTO, 0, false, true, true, "as muster chose"},
        {MUSTER_CKPT_AUTO | MUSTER_CKPT_BY_STEPS, 0, false, true, false, "and by steps"},
        {MUSTER_CKPT_AUTO, MUSTER_CKPT_WAIT, false, false, true, "that is waited for"},
        {MUSTER_CKPT_REQUESTED, 0, false, false, false, "that was asked for"},
        {MUSTER_CKPT_STOPPING, 0, false, false, false, "before the end"},
        {0, 0, true, false, false, "when the run is being stopped"},
    };
    struct muster m = {.world = 1};
    struct muster_ckpt *ck;

    unsetenv("MUSTER_CHECKPOINT_EVERY");
    ck = open_one(&m, NULL, NULL);
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct save_job job = {.flags = cases[i].flags}, next = {0};

        ck->reasons = cases[i].reasons;
        ck->is_stopping = cases[i].is_stopping;
        ckpt_due_begins(ck, &job);
        ok(job.may_stay == cases[i].may_stay && job.is_chosen == cases[i].is_chosen,
           "a save %s", cases[i].name);
        ck->is_stopping = false;
        ckpt_due_begins(ck, &next);
        ok(next.may_stay && !next.is_chosen, "and the next one has nothing of it");
    }
    muster_ckpt_close(ck);
}

/* Memory is taken by earlier saves; with which flags it was asked for. */
static unsigned asked_flags;

static int reserve_none(void *self, const struct save_job *job, struct error *e)
{
    (void)self;
    asked_flags = job->flags;
    return error_text(e, EBUSY, "no memory");
}

/* The last chance is not skipped. */
static void test_skip(void)
{
    struct muster m = {.world = 1};
    struct save_ops ops;
    struct muster_ckpt *ck;

    ck = open_one(&m, NULL, NULL);
    save(ck, 1);
    ops = *ck->direct.ops;
    ops.reserve = reserve_none;
    ck->direct.ops = &ops;
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_SKIP, NULL), -EBUSY, "no memory is free");
    like(muster_ckpt_error_text(ck), "step 2 is skipped", "so this one is left out");
    ok(asked_flags & MUSTER_CKPT_SKIP, "nobody waits for any");
    ck->is_stopping = true;
    is_int(muster_ckpt_save(ck, 3, MUSTER_CKPT_SKIP, NULL), -EBUSY, "before the end");
    like(muster_ckpt_error_text(ck), "save step 3: no memory", "that is a failure");
    ok(!(asked_flags & MUSTER_CKPT_SKIP), "memory is waited for");
    muster_ckpt_close(ck);
}

/* What the agent says, whichever save it is asked for; and how often it heard that none comes. */
static int agent_says;
static size_t n_aborted;

static int reserve_of_agent(void *self, const struct save_job *job, struct error *e)
{
    (void)self, (void)job;
    return error_text(e, agent_says, "the agent says so");
}

static void count_abort(void *self, const struct save_job *job)
{
    (void)self, (void)job;
    n_aborted++;
}

/* Where the agent has no memory for a save of that size, or none at all, the ranks write it
 * themselves; what is over soon, or would fail as well, is no reason to. */
static void test_ways(void)
{
    static const struct {
        int says;
        bool is_saved;
        const char *name;
    } cases[] = {
        {EBUSY, false, "its memory is taken by earlier saves"},
        {ENOSPC, false, "the disk is full"},
        {ECONNABORTED, false, "a rank is gone"},
        {ENOMEM, true, "it has not so much memory"},
        {ENOTSUP, true, "it does not save"},
        {EIO, true, "it does not answer"},
    };
    static const struct save_ops ops = {.reserve = reserve_of_agent, .abort = count_abort};
    struct muster m = {.world = 1};
    struct muster_ckpt *ck = open_one(&m, NULL, NULL);
    int64_t step = -1;

    save(ck, 1);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        int64_t next = 10 + (int64_t)i;

        agent_says = cases[i].says;
        ck->agent.ops = &ops;
        is_int(muster_ckpt_save(ck, next, 0, NULL), cases[i].is_saved ? 0 : -cases[i].says,
               "the agent says that %s: %s", cases[i].name, muster_ckpt_error_text(ck));
        ck->agent.ops = NULL;
        is_int((int)n_aborted, (int)i + 1, "it hears that nothing comes of it");
        is_int(muster_ckpt_latest(ck, next + 1, &step), 0, "up to there is one");
        is_int(step == next, cases[i].is_saved, "which is %s that save",
               cases[i].is_saved ? "of" : "not of");
    }
    muster_ckpt_close(ck);
}

static void test_nonsense(void)
{
    static const char *const cases[][3] = {
        {"1x", "0", "0"}, {"", "0", "0"}, {"-1", "0", "0"},
        {"nan", "0", "0"}, {"auto", "x", "0"}, {"auto", "0", "inf"},
    };
    struct muster m = {.world = 1};

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct muster_ckpt *ck = NULL;

        run_says(cases[i][0], cases[i][1], cases[i][2]);
        is_int(try_open(&m, NULL, NULL, &ck), -EINVAL, "'%s' '%s' '%s'",
               cases[i][0], cases[i][1], cases[i][2]);
        like(muster_ckpt_error_text(ck), "environment MUSTER_", "which is named");
        muster_ckpt_close(ck);
    }
}

/* --- together --- */

enum { WORLD = 3 };

struct heard {
    int at[6][WORLD];
};

/* Of the first request rank 1 hears first, of the second rank 0. */
static void three_ranks(void *arg, const struct muster_ckpt_group *group)
{
    static const int heard_at[WORLD][2] = {{1, 4}, {2, 3}, {0, 5}};
    struct muster m = {.rank = group->rank, .world = WORLD};
    struct muster_ckpt *ck = open_one(&m, group, NULL);
    struct heard *h = arg;

    for (int step = 0; step < 6; step++) {
        m.n_requests += heard_at[group->rank][0] == step;
        m.n_requests += heard_at[group->rank][1] == step;
        h->at[step][group->rank] = muster_ckpt_due(ck, step);
    }
    muster_ckpt_close(ck);
}

static void test_requests(void)
{
    static const int want[6] = {MUSTER_CKPT_REQUESTED, 0, 0,
                                MUSTER_CKPT_REQUESTED, 0, 0};
    struct heard h;

    unsetenv("MUSTER_CHECKPOINT_EVERY");
    team_run(WORLD, false, three_ranks, &h);
    for (int step = 0; step < 6; step++) {
        for (int r = 0; r < WORLD; r++) {
            is_int(h.at[step][r], want[step], "step %d, rank %d", step, r);
        }
    }
}

int main(void)
{
    struct error e = {0};

    snprintf(root, sizeof(root), "%s/ckpt_due_test.XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        bail_out("mkdtemp: %s", strerror(errno));
    }
    test_automatic();
    test_under_way();
    test_cost();
    test_told();
    test_token();
    test_heard();
    test_job_says();
    test_job_says_steps();
    test_where();
    test_skip();
    test_ways();
    test_nonsense();
    test_requests();
    fs_remove_tree(root, &e);
    return tap_done();
}
