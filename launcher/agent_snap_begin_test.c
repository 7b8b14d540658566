/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What holds snapshots is made when it is needed first. Where it cannot be, workers hear why,
 * nothing of it is left behind, and it is tried again.
 */
#include <config.h>

#include "launcher/agent_snap_priv.h"

#include "base/fs.h"
#include "base/str.h"
#include "launcher/lead_bed.h"
#include "launcher/snap_bed.h"
#include "launcher/snap_budget.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GENERATION = 3, FIRST = 4, WORLD = 8 };

enum part { HOLD = 0, COPIES, FETCH, PARITY, NONE };

static enum part fails;
static int n_holds, n_answers, n_notes;
static uint64_t own_bytes; /* of snapshots that are there, as the budget was asked */
static struct worker_snap answered;
static struct worker_snap_status status;

int __real_snap_hold_create(const struct snap_hold_config *config, struct snap_hold **ret,
                            struct error *e);
int __wrap_snap_hold_create(const struct snap_hold_config *config, struct snap_hold **ret,
                            struct error *e);
int __real_agent_fetch_create(struct agent_snap *p, struct error *e);
int __wrap_agent_fetch_create(struct agent_snap *p, struct error *e);
int __real_snap_parity_create(const struct snap_parity_config *config,
                              struct snap_parity **ret, struct error *e);
int __wrap_snap_parity_create(const struct snap_parity_config *config,
                              struct snap_parity **ret, struct error *e);
void __real_snap_budget_find(uint64_t own, struct snap_budget *ret);
void __wrap_snap_budget_find(uint64_t own, struct snap_budget *ret);
void __wrap_agent_note(struct agent *a, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));
void __wrap_worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                                      const struct worker_snap *snap, int fd);
void __wrap_worker_socket_tell_snap(struct worker_socket *w,
                                    const struct worker_snap_status *said);

static int fail(struct error *e)
{
    return error_set(e, ENOMEM, "have all that it takes");
}

int __wrap_snap_hold_create(const struct snap_hold_config *config, struct snap_hold **ret,
                            struct error *e)
{
    return fails < FETCH && n_holds++ == (int)fails
               ? fail(e) : __real_snap_hold_create(config, ret, e);
}

int __wrap_agent_fetch_create(struct agent_snap *p, struct error *e)
{
    return fails == FETCH ? fail(e) : __real_agent_fetch_create(p, e);
}

int __wrap_snap_parity_create(const struct snap_parity_config *config,
                              struct snap_parity **ret, struct error *e)
{
    return fails == PARITY ? fail(e) : __real_snap_parity_create(config, ret, e);
}

void __wrap_snap_budget_find(uint64_t own, struct snap_budget *ret)
{
    own_bytes = own > own_bytes ? own : own_bytes;
    __real_snap_budget_find(own, ret);
}

void __wrap_agent_note(struct agent *a, const char *fmt, ...)
{
    (void)a, (void)fmt;
    n_notes++;
}

void __wrap_worker_socket_answer_snap(struct worker_socket *w, uint64_t connection,
                                      const struct worker_snap *snap, int fd)
{
    (void)w, (void)connection;
    n_answers++;
    answered = *snap;
    close_fd(&fd);
}

void __wrap_worker_socket_tell_snap(struct worker_socket *w,
                                    const struct worker_snap_status *said)
{
    (void)w;
    status = *said;
}

static void begin(struct crew *c)
{
    struct worker_snap_begin m = {.step = 9, .bytes = 8 * SNAP_PAGE_BYTES, .uuid = UUID(1),
                                  .root = "/tmp"};

    n_answers = 0;
    agent_snap_begin(c, 0, 70, &m);
}

static void wait_answer(struct agent *a)
{
    for (int i = 0; i < 20000 && n_answers == 0; i++) {
        uv_run(&a->loop, UV_RUN_NOWAIT);
        poll(NULL, 0, n_answers == 0);
    }
}

static void test_begin(struct agent *a, struct crew *c, enum part part, const char *name)
{
    const struct worker_snap_find find = {.rank = FIRST, .uuid = UUID(1)};

    fails = part;
    n_holds = n_notes = 0;
    begin(c);
    ok(n_answers == 1 && answered.error == ENOMEM, "no %s: who saves hears it", name);
    like(answered.why, "have all that it takes", "and why");
    ok(!a->snap && n_notes == 0, "nothing is there");
    n_answers = n_holds = 0;
    agent_snap_find(c, 0, 70, &find);
    ok(n_answers == 1 && answered.error == ENOENT && !a->snap, "who looks for one finds none");
    fails = NONE;
    begin(c);
    wait_answer(a);
    ok(n_answers == 1 && answered.error == 0 && answered.bytes > 0,
       "the next one is saved: %s", answered.why);
    agent_snap_stop(a, false);
}

/* Who looks for a save may be the first: others may have it. */
static void test_look(struct agent *a, struct crew *c)
{
    const struct worker_snap_find other = {.rank = FIRST + 1, .uuid = UUID(1)};
    const struct worker_snap_done done = {.image_bytes = 1, .uuid = UUID(1)};

    agent_snap_done(c, 0, &done);
    ok(!a->snap && status.level == WORKER_SNAP_NONE && status.error == ENOENT,
       "what was never begun is not saved");
    agent_snap_find(c, 0, 70, &other);
    ok(a->snap && answered.error == ENOENT, "who looks for a save has what it takes");
    agent_snap_stop(a, false);
}

/* Ranks that ran here before, and run elsewhere now, leave nothing. */
static void test_moved(struct agent *a, struct crew *c)
{
    const struct snap *s;

    begin(c);
    wait_answer(a);
    s = snap_hold_fill(a->snap->hold, FIRST, UUID(1));
    ok(s && s->head.generation == GENERATION && s->head.n_ranks == WORLD,
       "a rank saves, as one of its generation");
    c->generation++;
    c->layout.first_rank++;
    begin(c);
    ok(!snap_hold_fill(a->snap->hold, FIRST, UUID(1)), "its memory goes when others save here");
    agent_snap_stop(a, false);
}

/* What an agent before this one has left is not lost to the budget. */
static void test_left(struct agent *a, struct crew *c)
{
    static const char bytes[4 * SNAP_PAGE_BYTES];
    char dir[PATH_MAX], path[PATH_MAX];

    snap_dir(a->run.id, dir, sizeof(dir), NULL);
    fs_path(path, sizeof(path), NULL, "%s/snap-%u-%u-0", dir, a->index, c->layout.first_rank);
    ok(fs_mkdirs(dir, NULL) == 0 && chmod(dir, 0700) == 0 &&
           fs_write_replace(path, bytes, sizeof(bytes), NULL) == 0, "some memory was left");
    own_bytes = 0;
    begin(c);
    wait_answer(a);
    is_int((intmax_t)own_bytes, sizeof(bytes), "it is part of what there is");
    agent_snap_stop(a, false);
}

int main(void)
{
    static const char *const names[] = {"snapshots", "copies", "way to fetch any", "parity"};
    static uint8_t key[CHANNEL_KEY_BYTES];
    struct agent a = {.has_run = true, .key = key};
    struct crew_worker worker = {.socket = (struct worker_socket *)key};
    struct crew c = {.agent = &a, .generation = GENERATION, .list = &worker,
                     .layout = {.first_rank = FIRST, .n_local = 1, .world = WORLD}};
    struct sigaction bus;

    signal(SIGBUS, SIG_DFL);
    lead_bed_make(&a);
    snprintf(a.run.id, sizeof(a.run.id), "agent_snap_begin_test-%d", (int)getpid());
    a.config.job->checkpoint.levels = JOB_LEVEL_MEMORY | JOB_LEVEL_PARTNER;
    a.config.job->checkpoint.partner = JOB_PARTNER_XOR;
    a.crew = &c;
    for (int i = 0; i < (int)NONE; i++) {
        test_begin(&a, &c, (enum part)i, names[i]);
    }
    ok(sigaction(SIGBUS, NULL, &bus) == 0 && bus.sa_handler != SIG_DFL,
       "snapshots that are cut while they are read end no agent");
    test_look(&a, &c);
    test_moved(&a, &c);
    test_left(&a, &c);
    fs_remove_tree(a.run.dir, NULL);
    lead_bed_release(&a); /* nothing is left in its loop */
    return tap_done();
}
