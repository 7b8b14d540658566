/* SPDX-License-Identifier: Apache-2.0 */
/* Lazy saves to a directory, by ranks that are threads, and by one alone. */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/fs.h"
#include "ckpt/model_bed.h"
#include "ckpt/team.h"
#include "tests/lib/mapped.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <glob.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[4096];

static int32_t value;
static const uint64_t one = 1;
static const struct muster_ckpt_tensor number = {.name = "v",
                                                 .dtype = MUSTER_I32,
                                                 .n_dims = 1, .shape = &one,
                                                 .data = &value};

static void open_model(const struct muster_ckpt_group *group, const char *name,
                       struct muster_ckpt **ret)
{
    char path[5000];

    snprintf(path, sizeof(path), "%s/%s", root, name);
    if (muster_ckpt_open(NULL, group, path, NULL, ret) < 0) {
        bail_out("%s", muster_ckpt_error_text(*ret));
    }
}

enum { WORLD = 3 };
static int told[WORLD][4];
static uint64_t wrong[WORLD];
static int64_t loaded[WORLD];

static void save_lazily(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = NULL;
    struct model *m;
    int r = group->rank;

    (void)arg;
    open_model(group, "team", &ck);
    m = model_create(ck, (uint32_t)r, WORLD, 3);
    model_set(m, 1);
    told[r][0] = muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL);
    told[r][1] = muster_ckpt_wait(ck, 0, MUSTER_CKPT_DURABLE, 10);
    told[r][2] = muster_ckpt_fence(ck);
    model_set(m, 2);
    muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL);
    told[r][3] = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &loaded[r]);
    wrong[r] = model_wrong(m, 2);
    model_set(m, 3);
    muster_ckpt_save(ck, 3, MUSTER_CKPT_LAZY, NULL);
    muster_ckpt_close(ck); /* without the fence, of several ranks */
    model_destroy(m);
}

static void load_latest(void *arg, const struct muster_ckpt_group *group)
{
    struct muster_ckpt *ck = NULL;
    struct model *m;

    (void)arg;
    open_model(group, "team", &ck);
    m = model_create(ck, (uint32_t)group->rank, 2, 4);
    muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &loaded[group->rank]);
    wrong[group->rank] = model_wrong(m, 2);
    model_destroy(m);
    muster_ckpt_close(ck);
}

static int n_named(const char *pattern)
{
    char path[5000];
    glob_t found = {0};
    int n;

    snprintf(path, sizeof(path), "%s/%s", root, pattern);
    n = glob(path, GLOB_NOSORT, NULL, &found) == 0 ? (int)found.gl_pathc : 0;
    globfree(&found);
    return n;
}

static void test_team(void)
{
    team_run(WORLD, false, save_lazily, NULL);
    for (int r = 0; r < WORLD; r++) {
        is_int(told[r][0], 0, "rank %d saves", r);
        is_int(told[r][1], -EDEADLK, "cannot wait for what the fence makes");
        is_int(told[r][2], 0, "at the fence it is made");
        is_int(told[r][3], 0, "to load ends a save, too");
        is_int(loaded[r], 2, "and loads that");
        is_int((int)wrong[r], 0, "as it was");
    }
    is_int(n_named("team/step-000000000002-*"), 1, "what was at the fence is there");
    is_int(n_named("team/step-000000000003-*"), 0, "of what was not nothing is left");
    team_run(2, false, load_latest, NULL);
    is_int(loaded[0] * 10 + loaded[1], 22, "what was never at the fence is none");
    is_int((int)(wrong[0] + wrong[1]), 0, "and does no harm");
}

static int n_found[WORLD];

/* MUSTER_CKPT_CHECK: one rank computes on before the fence. */
static void save_and_change(void *arg, const struct muster_ckpt_group *group)
{
    static char texts[WORLD][256];
    struct muster_ckpt *ck = NULL;
    int r = group->rank;
    int32_t own[4] = {r, r, r, r}, alike = 7;
    uint64_t shape[2] = {WORLD, 4}, at[2] = {(uint64_t)r, 0}, len[2] = {1, 2};
    int64_t strides[2] = {4, 2};
    struct muster_ckpt_tensor t = {.name = "rows", .dtype = MUSTER_I32, .n_dims = 2,
                                   .shape = shape, .at = at, .len = len, .data = own,
                                   .strides = strides};

    shape[1] = 2;
    open_model(group, "checked", &ck);
    muster_ckpt_tensor(ck, &t);
    muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL);
    own[1] = 9; /* between what is registered */
    told[r][0] = muster_ckpt_fence(ck);
    muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL);
    own[2] += r == 1;
    told[r][1] = muster_ckpt_fence(ck);
    snprintf(texts[r], sizeof(texts[r]), "%s", muster_ckpt_error_text(ck));
    ((const char **)arg)[r] = texts[r];
    told[r][2] = muster_ckpt_save(ck, 3, 0, NULL);
    told[r][3] = muster_ckpt_latest(ck, 3, &loaded[r]);
    n_found[r] = 0;
    for (int who = 0; who < WORLD; who++) { /* one of them writes it, who knows which */
        muster_ckpt_clear(ck);
        muster_ckpt_tensor(ck, &(struct muster_ckpt_tensor){
            .name = "alike", .dtype = MUSTER_I32, .data = &alike});
        muster_ckpt_save(ck, 5 + who, MUSTER_CKPT_LAZY, NULL);
        alike += r == who;
        n_found[r] += muster_ckpt_fence(ck) == -EINVAL;
        alike -= r == who;
    }
    muster_ckpt_close(ck);
}

static void test_check(void)
{
    const char *texts[WORLD] = {"", "", ""};

    setenv("MUSTER_CKPT_CHECK", "1", 1);
    team_run(WORLD, false, save_and_change, texts);
    for (int r = 0; r < WORLD; r++) {
        is_int(told[r][0], 0, "rank %d changes what is not saved", r);
        is_int(told[r][1], -EINVAL, "what rank 1 changes fails at the fence");
        like(texts[r], "rank 1: 'rows' was changed while it was copied", "and how");
        is_int(told[r][2], 0, "the next one is saved");
        is_int(told[r][3] == 0 && loaded[r] == 1, 1, "that one is none");
        is_int(n_found[r], WORLD, "what all have alike is looked at on each of them");
    }
    setenv("MUSTER_CKPT_CHECK", "0", 1);
    team_run(WORLD, false, save_and_change, texts);
    is_int(told[0][1], 0, "without it nobody looks");
    unsetenv("MUSTER_CKPT_CHECK");
}

static void test_alone(void)
{
    struct muster_ckpt *ck = NULL;
    int64_t step = 0;
    uint64_t save = 0;

    open_model(NULL, "alone", &ck);
    muster_ckpt_tensor(ck, &number);
    value = 5;
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, &save), 0, "alone");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE), 0, "not at once");
    for (int i = 0; i < 10000 && !atomic_load(&ck->lazy->is_put); i++) {
        poll(NULL, 0, 1);
    }
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE), 0, "nor when it is copied");
    is_int(muster_ckpt_wait(ck, save, MUSTER_CKPT_DURABLE, -1), 0,
           "to wait is a fence");
    value = 6;
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL), 0, "another");
    muster_ckpt_close(ck);
    value = 0;
    open_model(NULL, "alone", &ck);
    muster_ckpt_tensor(ck, &number);
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "and so is close");
    is_int((int)step * 10 + value, 26, "which was saved");
    muster_ckpt_close(ck);
}

/* Each handle has a thread, as long as it is open. */
static void test_gone(void)
{
    enum { TIMES = 100, MOST_BYTES = 300 << 20 }; /* a stack has 8 MB */
    unsigned long long before = mapped_bytes();
    int n_failed = 0;

    for (int i = 0; i < TIMES; i++) {
        struct muster_ckpt *ck = NULL;

        open_model(NULL, "gone", &ck);
        muster_ckpt_tensor(ck, &number);
        n_failed += muster_ckpt_save(ck, i, MUSTER_CKPT_LAZY, NULL) < 0;
        muster_ckpt_close(ck);
    }
    ok(n_failed == 0 && mapped_bytes() < before + MOST_BYTES,
       "of handles that are closed no thread stays: %lld bytes",
       (long long)(mapped_bytes() - before));
}

/* The thread that copied before is its parent's. */
static void test_fork_alone(void)
{
    struct muster_ckpt *ck = NULL;
    int status = -1;
    pid_t pid;

    open_model(NULL, "forked", &ck);
    muster_ckpt_tensor(ck, &number);
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "alone, a lazy save");
    is_int(muster_ckpt_fence(ck), 0, "is made");
    pid = fork();
    if (pid == 0) {
        int rc;

        alarm(60); /* it waits for nobody */
        rc = muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL);
        rc = rc < 0 ? rc : muster_ckpt_fence(ck);
        muster_ckpt_close(ck);
        _exit(rc != 0);
    }
    is_int(waitpid(pid, &status, 0), pid, "a child");
    is_int(status, 0, "makes one of its own");
    is_int(muster_ckpt_save(ck, 3, MUSTER_CKPT_LAZY, NULL), 0, "and its parent");
    is_int(muster_ckpt_fence(ck), 0, "the next");
    muster_ckpt_close(ck);
}

int main(void)
{
    snprintf(root, sizeof(root), "%s/lazy-team-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        bail_out("no temporary directory");
    }
    test_team();
    if (TAP_FINDS_RACES) {
        skip("memory that is changed while it is copied is a race");
    } else {
        test_check();
    }
    test_alone();
    if (TAP_FINDS_RACES) {
        skip("a child that was forked beside threads starts none under such a tool");
    } else {
        test_fork_alone();
    }
    test_gone();
    fs_remove_tree(root, NULL);
    return tap_done();
}
