/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lazy saves: by a way to save that stops where the test wants it to, and by ranks
 * that are threads and write to a directory.
 */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/model_bed.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[4096];
static int root_fd;

/* --- a way that can be stopped --- */

struct fake {
    sem_t may_copy;
    pthread_t caller;
    bool is_foreign;   /* somebody else called what only the caller may */
    int n_put, n_helped, n_handed, n_aborted, n_done, n_gathered;
    _Atomic int n_sent; /* by whomever */
    bool is_copied;    /* when it was sent */
    bool is_sent;      /* when it was handed over */
    int put_fails, send_fails, hand_fails;
    int32_t seen;      /* of the first piece, when it was put */
    struct muster_ckpt_group group;
};

static void by_caller(struct fake *f)
{
    f->is_foreign |= !pthread_equal(pthread_self(), f->caller);
}

static int fake_reserve(void *self, const struct save_job *job, struct error *e)
{
    (void)job;
    (void)e;
    by_caller(self);
    return 0;
}

static int fake_put(void *self, const struct save_job *job, struct error *e)
{
    struct fake *f = self;

    while (sem_wait(&f->may_copy) < 0) {
    }
    memcpy(&f->seen, job->image->pieces[0].data, sizeof(f->seen));
    f->n_put++;
    return f->put_fails ? error_set(e, f->put_fails, "copy") : 0;
}

/* Who comes to help lets it go on. */
static void fake_help(void *self, unsigned n_threads)
{
    struct fake *f = self;

    (void)n_threads;
    by_caller(f);
    f->n_helped++;
    sem_post(&f->may_copy);
}

static int fake_send(void *self, const struct save_job *job, struct error *e)
{
    struct fake *f = self;

    (void)job;
    f->is_copied = f->n_put > f->n_sent;
    f->n_sent++;
    return f->send_fails ? error_set(e, f->send_fails, "send") : 0;
}

static int fake_hand(void *self, const struct save_job *job, struct error *e)
{
    struct fake *f = self;

    (void)job;
    by_caller(f);
    f->is_sent = f->n_sent > f->n_handed;
    f->n_handed++;
    return f->hand_fails ? error_set(e, f->hand_fails, "hand over") : 0;
}

static void fake_abort(void *self, const struct save_job *job)
{
    (void)job;
    ((struct fake *)self)->n_aborted++;
}

static void fake_done(void *self, const struct save_job *job)
{
    (void)job;
    ((struct fake *)self)->n_done++;
}

static int fake_reached(void *self, const char *uuid, enum muster_ckpt_level level,
                        int64_t timeout_ms, struct error *e)
{
    struct fake *f = self;

    (void)uuid;
    (void)timeout_ms;
    (void)e;
    return level == MUSTER_CKPT_SNAPSHOT && f->n_handed > 0;
}

static void fake_destroy(void *self)
{
    (void)self;
}

static const struct save_ops fake_ops = {
    .reserve = fake_reserve, .put = fake_put, .help = fake_help,
    .send = fake_send, .hand = fake_hand, .abort = fake_abort, .done = fake_done,
    .reached = fake_reached, .destroy = fake_destroy,
};

static int fake_gather(void *arg, const void *mine, void *all, size_t len)
{
    struct fake *f = arg;

    by_caller(f);
    f->n_gathered++;
    memcpy(all, mine, len);
    memcpy((char *)all + len, mine, len); /* the other one is of the same mind */
    return 0;
}

static void by_threads(struct fake *f)
{
    *f = (struct fake){.caller = pthread_self()};
    f->group = (struct muster_ckpt_group){.rank = 0, .world = 2,
                                          .allgather = fake_gather, .arg = f};
    sem_init(&f->may_copy, 0, 0);
}

static int32_t value;
static const uint64_t one = 1;
static const struct muster_ckpt_tensor number = {.name = "v",
                                                 .dtype = MUSTER_I32,
                                                 .n_dims = 1, .shape = &one,
                                                 .data = &value};

static struct muster_ckpt *open_fake(struct fake *f)
{
    struct muster_ckpt *ck = NULL;

    by_threads(f);
    if (ckpt_create(NULL, &f->group, io_system(), root_fd, root, NULL, &ck) < 0) {
        bail_out("open");
    }
    ck->agent = (struct save_way){&fake_ops, f};
    if (muster_ckpt_tensor(ck, &number) < 0) {
        bail_out("%s", muster_ckpt_error_text(ck));
    }
    return ck;
}

static void test_order(void)
{
    struct fake f;
    struct muster_ckpt *ck = open_fake(&f);
    uint64_t save = 0;
    int n_gathered;

    value = 1;
    is_int(muster_ckpt_fence(ck), 0, "a fence without a save");
    is_int(f.n_gathered, 0, "asks nobody");
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, &save), 0, "a lazy save");
    is_int(f.n_handed, 0, "returns before it is copied");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_SNAPSHOT), 0, "it is on its way");
    n_gathered = f.n_gathered;
    is_int(muster_ckpt_fence(ck), 0, "the fence");
    is_int(f.n_helped * 10 + f.n_handed, 11, "helps, and hands over");
    ok(f.is_copied && f.is_sent && f.n_sent == 1 && f.seen == 1, "what was copied");
    is_int(f.n_gathered, n_gathered + 1, "and hears how it went");
    is_int(f.n_done, 1, "well");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_SNAPSHOT), 1, "it is there");
    is_int(muster_ckpt_fence(ck), 0, "a second fence");
    is_int(f.n_gathered, n_gathered + 1, "does nothing");
    ok(!f.is_foreign, "all but the copy is the caller's");
    muster_ckpt_close(ck);
}

/* Without a fence. */
static void test_implied(void)
{
    struct fake f;
    struct muster_ckpt *ck = open_fake(&f);
    int32_t other = 7;
    struct muster_ckpt_tensor again = number;
    uint64_t first = 0, second = 0;

    value = 2;
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, &first), 0, "a lazy save");
    again.data = &other;
    is_int(muster_ckpt_tensor(ck, &again), 0, "registered anew");
    is_int(f.seen, 2, "once the old is copied");
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, &second), 0, "another save");
    is_int(f.n_done * 10 + f.n_handed, 11, "ends the first");
    is_int(muster_ckpt_wait(ck, second, MUSTER_CKPT_SNAPSHOT, 1000), 0,
           "to wait for it does not need the fence");
    is_int(f.seen, 7, "the new one is saved");
    is_int(muster_ckpt_fence(ck), 0, "which may come later");
    is_int(f.n_handed, 2, "and hands over once");
    sem_post(&f.may_copy); /* nobody helps */
    is_int(muster_ckpt_save(ck, 3, MUSTER_CKPT_LAZY | MUSTER_CKPT_WAIT, NULL) < 0 ||
               ck->lazy != NULL, 0, "one to wait for is not lazy");
    muster_ckpt_close(ck);
}

static void wait_for_copy(const struct muster_ckpt *ck)
{
    for (int i = 0; i < 10000 && !atomic_load(&ck->lazy->is_put); i++) {
        poll(NULL, 0, 1);
    }
}

/* The agent is told as soon as it is copied, and nobody but the caller waits for it. */
static void test_sent_behind(void)
{
    struct fake f;
    struct muster_ckpt *ck = open_fake(&f);

    sem_post(&f.may_copy); /* nobody helps */
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save");
    wait_for_copy(ck);
    is_int(f.n_sent * 10 + f.n_handed, 10, "is sent before the fence");
    is_int(muster_ckpt_fence(ck), 0, "which waits");
    ok(f.n_sent == 1 && f.n_handed == 1 && f.is_copied && f.is_sent && !f.is_foreign,
       "until it is there");
    ck->is_checking = true;
    sem_post(&f.may_copy);
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL), 0, "one that is checked");
    wait_for_copy(ck);
    value++;
    is_int(muster_ckpt_fence(ck), -EINVAL, "and not what it was");
    is_int(f.n_sent * 10 + f.n_handed, 11, "is not sent");
    muster_ckpt_close(ck);
}

static void test_implied_by_close(void)
{
    struct fake f;
    struct muster_ckpt *ck = open_fake(&f);

    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save");
    muster_ckpt_close(ck);
    is_int(f.n_put * 10 + f.n_handed, 11, "is handed over by close");
    ok(!f.is_foreign, "by the caller");
}

static void test_failures(void)
{
    struct fake f;
    struct muster_ckpt *ck = open_fake(&f);
    uint64_t save = 0;

    f.put_fails = EIO;
    is_int(muster_ckpt_save(ck, 5, MUSTER_CKPT_LAZY, &save), 0, "a lazy save");
    is_int(muster_ckpt_fence(ck), -EIO, "fails at the fence");
    like(muster_ckpt_error_text(ck), "save step 5: rank 0: copy", "which says it");
    is_int(f.n_handed * 10 + f.n_aborted, 1, "nothing is handed over");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE), -EIO, "it has failed");
    like(muster_ckpt_error_text(ck), "save step 5", "of what");
    is_int(muster_ckpt_wait(ck, save, MUSTER_CKPT_DURABLE, -1), -EIO,
           "nobody waits for it");
    is_int(muster_ckpt_save(ck, 6, MUSTER_CKPT_LAZY, &save), 0, "the next");
    f.put_fails = 0;
    f.hand_fails = EPIPE;
    is_int(muster_ckpt_fence(ck), -EPIPE, "fails as well");
    is_int(muster_ckpt_save(ck, 7, MUSTER_CKPT_LAZY, &save), 0, "one more");
    is_int(muster_ckpt_wait(ck, save, MUSTER_CKPT_SNAPSHOT, -1), -EPIPE,
           "cannot be handed over");
    f.hand_fails = 0;
    f.send_fails = ENOTCONN;
    is_int(muster_ckpt_save(ck, 7, MUSTER_CKPT_LAZY, &save), 0, "and one");
    is_int(muster_ckpt_fence(ck), -ENOTCONN, "of which nobody could be told");
    is_int(f.n_handed, 2, "is waited for by nobody");
    f.send_fails = 0;
    sem_post(&f.may_copy);
    is_int(muster_ckpt_save(ck, 8, 0, NULL), 0, "a save after it is its own");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_SNAPSHOT), -ENOTCONN,
           "that one has failed");
    muster_ckpt_close(ck);
}

/* The thread is not in the child, which must neither wait for it nor hand over. */
static void test_fork(void)
{
    struct fake f;
    struct muster_ckpt *ck = open_fake(&f);
    int status = -1;
    pid_t pid;

    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save");
    pid = fork();
    if (pid == 0) {
        int rc = muster_ckpt_fence(ck);

        muster_ckpt_close(ck);
        _exit(rc != 0 || f.n_handed != 0 || f.n_aborted != 0);
    }
    is_int(waitpid(pid, &status, 0), pid, "a child");
    is_int(status, 0, "has no part in it");
    is_int(muster_ckpt_fence(ck), 0, "its parent has");
    is_int(f.n_handed, 1, "and hands it over");
    muster_ckpt_close(ck);
}

/* --- to a directory --- */

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

int main(void)
{
    snprintf(root, sizeof(root), "%s/lazy-XXXXXX",
             getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    if (!mkdtemp(root)) {
        bail_out("no temporary directory");
    }
    root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    test_order();
    test_implied();
    test_sent_behind();
    test_implied_by_close();
    test_failures();
    test_fork();
    test_team();
    if (TAP_FINDS_RACES) {
        skip("memory that is changed while it is copied is a race");
    } else {
        test_check();
    }
    test_alone();
    close(root_fd);
    fs_remove_tree(root, NULL);
    return tap_done();
}
