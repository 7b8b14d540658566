/* SPDX-License-Identifier: Apache-2.0 */
/* Lazy saves, by a way to save that stops where the test wants it to. */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char root[4096];
static int root_fd;

/* --- a clock that can be stopped --- */

enum { S_NS = 1000 * 1000 * 1000 };

static atomic_bool is_stopped;
static _Atomic uint64_t now_ns;

uint64_t __real_clock_mono_ns(void);
uint64_t __wrap_clock_mono_ns(void);
uint64_t __wrap_clock_mono_ns(void)
{
    return is_stopped ? now_ns : __real_clock_mono_ns();
}

/* --- a way that can be stopped --- */

struct fake {
    sem_t may_copy;
    pthread_t caller;
    bool is_foreign;   /* somebody else called what only the caller may */
    int n_put, n_helped, n_handed, n_aborted, n_done, n_gathered;
    _Atomic int n_sent; /* by whomever */
    bool is_copied;    /* when it was sent */
    bool is_sent;      /* when it was handed over */
    unsigned put_threads, help_threads;
    int put_fails, send_fails, hand_fails;
    uint64_t reserve_s, put_s, hand_s; /* how long each takes */
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
    now_ns += ((struct fake *)self)->reserve_s * S_NS;
    return 0;
}

static int fake_put(void *self, const struct save_job *job, struct error *e)
{
    struct fake *f = self;

    while (sem_wait(&f->may_copy) < 0) {
    }
    memcpy(&f->seen, job->image->pieces[0].data, sizeof(f->seen));
    f->n_put++;
    f->put_threads = job->n_threads;
    now_ns += f->put_s * S_NS;
    return f->put_fails ? error_set(e, f->put_fails, "copy") : 0;
}

/* Who comes to help lets it go on. */
static void fake_help(void *self, unsigned n_threads)
{
    struct fake *f = self;

    f->help_threads = n_threads;
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
    now_ns += f->hand_s * S_NS;
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

/* --- what several handles of an agent know of each other --- */

static bool has_agent;
static struct client_pending pending;

struct client *__real_client_of(struct muster *m);
struct client *__wrap_client_of(struct muster *m);
struct client_pending *__wrap_client_pending(struct client *c);
int __wrap_client_state(struct client *c, struct worker_state *ret, struct error *e);

struct client *__wrap_client_of(struct muster *m)
{
    static char agent;

    return has_agent ? (struct client *)(void *)&agent : __real_client_of(m);
}

struct client_pending *__wrap_client_pending(struct client *c)
{
    (void)c;
    return &pending;
}

/* Nobody asks for a checkpoint. */
int __wrap_client_state(struct client *c, struct worker_state *ret, struct error *e)
{
    (void)c, (void)e;
    *ret = (struct worker_state){0};
    return 0;
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
    ck->options.n_threads = 3;
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
    ok(f.put_threads == 1 && f.help_threads == 3, "by one thread, and at the fence by all");
    is_int(f.n_gathered, n_gathered + 1, "and hears how it went");
    is_int(f.n_done, 1, "well");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_SNAPSHOT), 1, "it is there");
    is_int(muster_ckpt_fence(ck), 0, "a second fence");
    is_int(f.n_gathered, n_gathered + 1, "does nothing");
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL), 0, "another save");
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_SNAPSHOT), 1, "leaves it there");
    is_int(muster_ckpt_fence(ck), 0, "on its way");
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
    is_int(f.n_helped, 1, "with which it need not help twice");
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
    uint64_t save = 0;

    sem_post(&f.may_copy); /* nobody helps */
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save");
    wait_for_copy(ck);
    is_int(f.n_sent * 10 + f.n_handed, 10, "is sent before the fence");
    is_int(muster_ckpt_fence(ck), 0, "which waits");
    ok(f.n_sent == 1 && f.n_handed == 1 && f.is_copied && f.is_sent && !f.is_foreign,
       "until it is there");
    sem_post(&f.may_copy);
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, &save), 0, "another");
    wait_for_copy(ck);
    is_int(muster_ckpt_test(ck, save, MUSTER_CKPT_SNAPSHOT), 1, "is there for who asks, too");
    is_int(f.n_sent * 10 + f.n_handed, 22, "as it is handed over then");
    is_int(muster_ckpt_fence(ck), 0, "and not at the fence");
    is_int(f.n_handed, 2, "again");
    ck->is_checking = true;
    sem_post(&f.may_copy);
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL), 0, "one that is checked");
    wait_for_copy(ck);
    value++;
    is_int(muster_ckpt_fence(ck), -EINVAL, "and not what it was");
    is_int(f.n_sent * 10 + f.n_handed, 22, "is not sent");
    sem_post(&f.may_copy);
    is_int(muster_ckpt_save(ck, 3, MUSTER_CKPT_LAZY, &save), 0, "one that is waited for");
    is_int(muster_ckpt_wait(ck, save, MUSTER_CKPT_SNAPSHOT, 1000), 0, "is checked then");
    value++;
    is_int(muster_ckpt_fence(ck), 0, "and what is changed before the fence is not looked at");
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
    ck = open_fake(&f);
    f.put_fails = EIO;
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "one that fails");
    muster_ckpt_close(ck);
    is_int(f.n_aborted * 10 + f.n_handed, 10, "is given up by close");
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
    like(muster_ckpt_error_text(ck), "hand over", "why");
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

/* What is on its way is handed over before another handle asks the agent for memory. */
static void test_two_handles(void)
{
    struct fake f, g;
    struct muster_ckpt *first = open_fake(&f), *second = open_fake(&g);

    has_agent = true;
    is_int(muster_ckpt_save(first, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save of a handle");
    ckpt_lazy_await_others(first);
    is_int(f.n_handed, 0, "that asks again has its own to end itself");
    is_int(muster_ckpt_save(second, 1, MUSTER_CKPT_LAZY, NULL), 0, "one of another");
    ok(f.n_handed == 1 && f.n_done == 0 && g.n_handed == 0, "for that the first is handed over");
    is_int(muster_ckpt_fence(first), 0, "its fence");
    ok(f.n_handed == 1 && pending.arg == second, "leaves the other on its way");
    is_int(muster_ckpt_fence(second), 0, "the fence of that one");
    ok(g.n_handed == 1 && !pending.hand, "ends it");
    is_int(muster_ckpt_save(first, 2, MUSTER_CKPT_LAZY, NULL), 0, "one more");
    ok(pending.hand, "is on its way");
    muster_ckpt_close(first);
    ok(f.n_handed == 2 && !pending.hand, "until its handle is closed");
    muster_ckpt_close(second);
    has_agent = false;
}

/* What the program waits for: at the save, and at the fence, and not between them. */
static void test_cost(void)
{
    struct fake f;
    struct muster_ckpt *ck;
    double cost_s;

    now_ns = 1000ull * S_NS;
    is_stopped = true;
    ck = open_fake(&f);
    f.reserve_s = 2;
    f.put_s = 40;
    f.hand_s = 3;
    is_int(muster_ckpt_save(ck, 1, MUSTER_CKPT_LAZY, NULL), 0, "a lazy save");
    sem_post(&f.may_copy); /* not before: it is the thread's time, and nobody helps */
    wait_for_copy(ck);
    now_ns += 100ull * S_NS;
    is_int(muster_ckpt_fence(ck), 0, "is slow");
    cost_s = ck->automatic.cost_s;
    ok(cost_s > 4.9 && cost_s < 5.1, "it takes as long as it holds the program up: %.1f s", cost_s);
    f.put_fails = EIO;
    is_int(muster_ckpt_save(ck, 2, MUSTER_CKPT_LAZY, NULL), 0, "another");
    is_int(muster_ckpt_fence(ck), -EIO, "that fails");
    cost_s -= ck->automatic.cost_s;
    ok(cost_s >= 0 && cost_s <= 0, "says nothing of that");
    muster_ckpt_close(ck);
    is_stopped = false;
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
    test_two_handles();
    test_cost();
    test_fork();
    close(root_fd);
    fs_remove_tree(root, NULL);
    return tap_done();
}
