/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs want one directory: one after the other, both at once in every order that is drawn,
 * killed at each call to the filesystem, with each call failing, and with clocks that jump.
 * Never have two of them got it.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/disk_model.h"
#include "ckpt/lease.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MINUTE = 60 * 1000, ORDERS = 3000 };

/* The disk's clock goes with ours, from another time on. */
struct world {
    struct disk *disk;
    uint64_t now_ms;
    int64_t ahead_ms;
    int dead; /* that pid; 0: all are alive */
    struct lease *renewed; /* meanwhile by one who is alive, or NULL */
    const char *renews;    /* the same of a file that says nothing */
    bool is_ending;
    unsigned n_waits;
};

static void set_time(struct world *w, uint64_t now_ms)
{
    w->now_ms = now_ms;
    disk_set_time(w->disk, ((int64_t)now_ms + w->ahead_ms) * 1000000);
}

static uint64_t world_now(void *arg)
{
    return ((struct world *)arg)->now_ms;
}

static bool world_is_running(void *arg, int pid, uint64_t start)
{
    return start == (uint64_t)pid * 10 && pid != ((struct world *)arg)->dead;
}

static void touch(struct world *w, const char *name)
{
    struct io *io = disk_io(w->disk);
    int fd = io->ops->open_file(io, disk_root(w->disk), name);

    io->ops->touch(io, fd);
    io->ops->close(io, fd);
}

static bool world_wait(void *arg, unsigned ms)
{
    struct world *w = arg;

    set_time(w, w->now_ms + ms);
    w->n_waits++;
    if (w->renewed) {
        lease_adopt(w->renewed, disk_io(w->disk), disk_root(w->disk), NULL);
    }
    if (w->renews) {
        touch(w, w->renews);
    }
    return !w->is_ending;
}

static void world_begin(struct world *w)
{
    *w = (struct world){.disk = disk_create(DISK_SOUND), .ahead_ms = 1000 * MINUTE};
    set_time(w, 100 * MINUTE);
}

static void world_end(struct world *w)
{
    is_int((int)disk_n_open(w->disk), 0, "no descriptor is left open");
    disk_destroy(w->disk);
}

static struct lease run_of(struct world *w, const char *id, const char *machine, int pid)
{
    const struct lease_world world = {.now_ms = world_now, .is_running = world_is_running,
                                      .wait = world_wait, .arg = w};
    struct lease_note own = {.pid = pid, .start = (uint64_t)pid * 10, .is_alone = true};
    struct lease l;

    lease_note_put(&own, id, machine, machine);
    lease_init(&l, &own, world);
    return l;
}

static int hold(struct world *w, struct lease *l, struct error *e)
{
    *e = (struct error){0};
    return lease_hold(l, disk_io(w->disk), disk_root(w->disk), e);
}

static void drop(struct world *w, struct lease *l)
{
    lease_drop(l, disk_io(w->disk), disk_root(w->disk));
}

static int add_name(void *arg, const char *name)
{
    char *names = arg;
    size_t n = strlen(names);

    snprintf(names + n, 512 - n, "%s ", name);
    return 0;
}

static const char *names_in(struct world *w, char names[512])
{
    names[0] = '\0';
    disk_io(w->disk)->ops->list(disk_io(w->disk), disk_root(w->disk), add_name, names);
    return names;
}

static void put_file(struct world *w, const char *name, const char *text)
{
    struct io *io = disk_io(w->disk);
    int fd = io->ops->create(io, disk_root(w->disk), name);

    io_write_all(io, fd, text, strlen(text), 0);
    io->ops->close(io, fd);
}

/* --- one after the other --- */

static void test_one(void)
{
    struct world w;
    struct lease a, b;
    struct error e;
    char names[512];

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    b = run_of(&w, "b", "m1", 2);
    is_int(hold(&w, &a, &e), 0, "nobody is there: %s", e.text);
    is_str(names_in(&w, names), ".muster-run-a ", "one file");
    set_time(&w, w.now_ms + MINUTE / 3);
    is_int(hold(&w, &a, &e), 0, "it still has it");
    is_int(hold(&w, &b, &e), -EBUSY, "another one does not get it");
    like(e.text, "run a on m1 saves there, since ", "is told whose it is: %s", e.text);
    like(e.text, "muster cancel a", "and what to do");
    ok(!strstr(e.text, "killed"), "and that it is alive");
    is_str(names_in(&w, names), ".muster-run-a ", "and leaves nothing");
    set_time(&w, w.now_ms + 100 * MINUTE);
    is_int(hold(&w, &b, &e), -EBUSY, "nor while it was stopped for long, on this machine");
    is_int(hold(&w, &a, &e), 0, "which goes on");
    drop(&w, &a);
    is_str(names_in(&w, names), "", "at its end");
    drop(&w, &a);
    is_int(hold(&w, &b, &e), 0, "the next one has it");
    drop(&w, &b);
    is_int((int)w.n_waits, 0, "nobody has waited");
    world_end(&w);
}

static void test_killed_here(void)
{
    struct world w;
    struct lease a, b;
    struct error e;
    char names[512];

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    b = run_of(&w, "b", "m1", 2);
    hold(&w, &a, &e);
    w.dead = 1;
    is_int(hold(&w, &b, &e), 0, "one that was killed here leaves it to the next at once");
    is_str(names_in(&w, names), ".muster-run-b ", "with nothing of its own");
    is_int((int)w.n_waits, 0, "without a wait");
    drop(&w, &b);
    a.own.is_alone = false;
    w.dead = 0;
    hold(&w, &a, &e);
    w.dead = 1;
    w.renewed = &a;
    is_int(hold(&w, &b, &e), -EBUSY, "but not one that others lead on: %s", e.text);
    is_int((int)w.n_waits, 1, "which is seen as soon as they renew it");
    w.renewed = NULL;
    is_int(hold(&w, &b, &e), 0, "unless they do not");
    is_int((int)w.n_waits, 1 + LEASE_STALE_MS / 1000 + 1, "for a minute");
    world_end(&w);
}

static void test_ours(void)
{
    struct world w;
    struct lease a, again, other;
    struct error e;
    char names[512];
    int64_t since;

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    again = run_of(&w, "a", "m2", 9);
    other = run_of(&w, "b", "m2", 9);
    is_int(lease_adopt(&again, disk_io(w.disk), disk_root(w.disk), &e), 0, "nothing to go on "
           "with");
    ok(!again.is_held && !names_in(&w, names)[0], "is not taken");
    hold(&w, &a, &e);
    since = a.own.since_s;
    is_int(lease_adopt(&other, disk_io(w.disk), disk_root(w.disk), &e), 0, "nor is another's");
    ok(!other.is_held, "it is not");
    is_int(lease_adopt(&again, disk_io(w.disk), disk_root(w.disk), &e), 0,
           "the same run, elsewhere");
    ok(again.is_held && again.own.since_s == since, "goes on with it");
    is_int((int)w.n_waits, 0, "at once");
    is_int(hold(&w, &other, &e), -EBUSY, "another one does not get it");
    like(e.text, "run a on m2", "from the one that leads now");
    drop(&w, &a);
    is_str(names_in(&w, names), ".muster-run-a ", "what led before does not let go of it");
    drop(&w, &again);
    is_str(names_in(&w, names), "", "the last one does");
    world_end(&w);
}

/* --- by clocks --- */

static void test_elsewhere(void)
{
    struct world w;
    struct lease a, b;
    struct error e;
    char names[512];

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    b = run_of(&w, "b", "m2", 2);
    w.dead = 1; /* of which m2 sees nothing */
    hold(&w, &a, &e);
    set_time(&w, w.now_ms + MINUTE + 1);
    w.renewed = &a;
    a.good_ms = w.now_ms;
    is_int(hold(&w, &b, &e), -EBUSY, "one who renews it under our eyes");
    like(e.text, "run a on m1", "is told of: %s", e.text);
    is_int((int)w.n_waits, 1, "after a wait");
    w.renewed = NULL;
    is_int(hold(&w, &b, &e), 0, "one who does not has it no more: %s", e.text);
    is_int((int)w.n_waits, 1 + LEASE_STALE_MS / 1000 + 1, "a minute later");
    is_str(names_in(&w, names), ".muster-run-b ", "and nothing of it is left");
    w.renewed = &b;
    is_int(hold(&w, &a, &e), -EBUSY, "it is told when it comes back");
    is_int(lease_adopt(&a, disk_io(w.disk), disk_root(w.disk), &e), 0, "gives it up");
    drop(&w, &a);
    is_str(names_in(&w, names), ".muster-run-b ", "and changes nothing");
    world_end(&w);
}

static void test_ends_meanwhile(void)
{
    struct world w;
    struct lease a, b;
    struct error e;
    char names[512];

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    b = run_of(&w, "b", "m2", 2);
    hold(&w, &a, &e);
    set_time(&w, w.now_ms + 2 * MINUTE);
    w.is_ending = true;
    is_int(hold(&w, &b, &e), -ECANCELED, "its own end comes first: %s", e.text);
    is_str(names_in(&w, names), ".muster-run-a ", "nothing was touched");
    world_end(&w);
}

static void test_clock_jumps(void)
{
    struct world w;
    struct lease a, b;
    struct error e;

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    b = run_of(&w, "b", "m2", 2);
    hold(&w, &a, &e);
    w.ahead_ms += 24 * 60 * MINUTE;
    w.renewed = &a;
    set_time(&w, w.now_ms + 1000);
    is_int(hold(&w, &b, &e), -EBUSY, "a day ahead: who is alive keeps it");
    is_int(hold(&w, &a, &e), 0, "and has it");
    w.renewed = NULL;
    w.ahead_ms -= 48 * 60 * MINUTE;
    set_time(&w, w.now_ms + 1000);
    w.n_waits = 0;
    is_int(hold(&w, &b, &e), 0, "two days back: it may be alive: %s", e.text);
    is_int((int)w.n_waits, LEASE_STALE_MS / 1000, "but not without a word for a minute");
    world_end(&w);
}

/* --- what others put there --- */

static void test_strange(void)
{
    struct world w;
    struct lease b;
    struct error e;
    char names[512], name[64];

    world_begin(&w);
    b = run_of(&w, "b", "m2", 2);
    put_file(&w, ".muster-run-x", "");
    put_file(&w, ".muster-run-z.new", "muster-run 1 wan");
    put_file(&w, ".muster", "?");
    w.renews = ".muster-run-x";
    is_int(hold(&w, &b, &e), -EBUSY, "an empty one is somebody's");
    like(e.text, ".muster-run-x that is damaged", "which is named: %s", e.text);
    w.renews = NULL;
    is_int(hold(&w, &b, &e), 0, "as long as it is renewed: %s", e.text);
    is_str(names_in(&w, names), ".muster-run-b .muster-run-z.new .muster ",
           "and goes; what is being written, or is none, does not");
    drop(&w, &b);
    for (int i = 0; i <= LEASE_MAX_OTHERS; i++) {
        snprintf(name, sizeof(name), ".muster-run-%d", i);
        put_file(&w, name, "");
    }
    set_time(&w, w.now_ms + 9 * MINUTE);
    is_int(hold(&w, &b, &e), -EBUSY, "too many: %s", e.text);
    like(e.text, "remove those of runs that are over", "says what to do");
    world_end(&w);
}

/* --- killed, and failing --- */

static uint64_t calls_of_life(void)
{
    struct world w;
    struct lease a;
    struct error e;
    uint64_t n;

    world_begin(&w);
    a = run_of(&w, "a", "m1", 1);
    hold(&w, &a, &e);
    hold(&w, &a, &e);
    drop(&w, &a);
    n = disk_n_calls(w.disk);
    disk_destroy(w.disk);
    return n;
}

static void test_killed_at_each_call(void)
{
    uint64_t n = calls_of_life();
    unsigned n_stuck = 0, n_left = 0;

    for (uint64_t at = 1; at <= n; at++) {
        for (int same = 0; same < 2; same++) {
            struct world w;
            struct lease a, b;
            struct error e;
            char names[512];

            world_begin(&w);
            a = run_of(&w, "a", "m1", 1);
            b = run_of(&w, same ? "a" : "b", "m1", 2);
            disk_stop_at(w.disk, at);
            hold(&w, &a, &e);
            hold(&w, &a, &e);
            drop(&w, &a);
            disk_restart(w.disk);
            w.dead = 1;
            n_stuck += hold(&w, &b, &e) < 0 || w.n_waits > 0;
            drop(&w, &b);
            names_in(&w, names);
            /* What it was writing when nothing else of it was there is nobody's: the
             * second to the fourth call, before the first rename. */
            n_left += strcmp(names, !same && at > 1 && at < 5 ? ".muster-run-a.new " : "") != 0;
            disk_destroy(w.disk);
        }
    }
    is_int((int)n_stuck, 0, "killed at each of %u calls: the next one has it at once",
           (unsigned)n);
    is_int((int)n_left, 0, "and nothing of either is left");
}

static void test_errors(void)
{
    static const int errors[] = {ENOSPC, EIO, EROFS, EACCES, EDQUOT};
    uint64_t n = calls_of_life();
    unsigned n_wrong = 0;

    for (uint64_t at = 1; at <= n; at++) {
        for (size_t i = 0; i < 2 * ARRAY_SIZE(errors); i++) {
            struct world w;
            struct lease a, b;
            struct error e;
            int rc;

            world_begin(&w);
            a = run_of(&w, "a", "m1", 1);
            b = run_of(&w, "b", "m1", 2);
            disk_fail_at(w.disk, at, errors[i / 2], i % 2);
            rc = hold(&w, &a, &e);
            n_wrong += rc < 0 ? rc != -errors[i / 2] || !e.text[0] || a.is_held : !a.is_held;
            hold(&w, &a, &e);
            disk_fail_at(w.disk, 0, 0, false);
            n_wrong += hold(&w, &a, &e) < 0 || !a.is_held;
            n_wrong += hold(&w, &b, &e) != -EBUSY;
            n_wrong += disk_n_open(w.disk) > 0;
            disk_destroy(w.disk);
        }
    }
    is_int((int)n_wrong, 0, "each of %u calls fails: it says of what, and has it later",
           (unsigned)n);
}

/* One that is led on by another agent, which fails of a call: it has it still. */
static void test_inherits_errors(void)
{
    unsigned n_lost = 0, n_failed = 0;

    for (uint64_t at = 1; at < 12; at++) {
        struct world w;
        struct lease a, heir;
        struct error e;
        char names[512];

        world_begin(&w);
        a = run_of(&w, "a", "m1", 1);
        heir = run_of(&w, "a", "m2", 2);
        hold(&w, &a, &e);
        disk_fail_at(w.disk, disk_n_calls(w.disk) + at, EIO, false);
        n_failed += hold(&w, &heir, &e) < 0;
        n_lost += !strstr(names_in(&w, names), ".muster-run-a ");
        disk_destroy(w.disk);
    }
    ok(n_failed > 2 && n_lost == 0, "each of %u calls fails, and it has the directory still",
       n_failed);
}

/* --- at once --- */

/* Whose turn it is, at each call to the filesystem. */
struct turns {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int whose;
    bool is_over[2];
    uint64_t seed;
};

struct player {
    struct io io; /* its first member */
    struct turns *turns;
    int me;
    struct io *below;
    int root;
    struct lease lease;
    int rc;
};

/* A good enough draw of orders (splitmix64). */
static uint64_t draw(uint64_t *seed)
{
    uint64_t z = (*seed += 0x9e3779b97f4a7c15);

    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
}

static void pass(struct turns *t, int me)
{
    if (t->is_over[me] || (!t->is_over[!me] && draw(&t->seed) % 3 == 0)) {
        t->whose = !me;
        pthread_cond_broadcast(&t->changed);
    }
    while (!t->is_over[me] && t->whose != me) {
        pthread_cond_wait(&t->changed, &t->lock);
    }
}

static struct io *turn(struct io *io)
{
    struct player *p = (struct player *)io;

    pass(p->turns, p->me);
    return p->below;
}

static int p_open(struct io *io, int dir, const char *name)
{
    struct io *b = turn(io);

    return b->ops->open_file(b, dir, name);
}

static int p_create(struct io *io, int dir, const char *name)
{
    struct io *b = turn(io);

    return b->ops->create(b, dir, name);
}

static int p_close(struct io *io, int fd)
{
    struct io *b = turn(io);

    return b->ops->close(b, fd);
}

static ssize_t p_write(struct io *io, int fd, const void *data, size_t len, uint64_t at)
{
    struct io *b = turn(io);

    return b->ops->write(b, fd, data, len, at);
}

static ssize_t p_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct io *b = turn(io);

    return b->ops->read(b, fd, to, len, at);
}

static int p_size(struct io *io, int fd, uint64_t *ret)
{
    struct io *b = turn(io);

    return b->ops->size(b, fd, ret);
}

static int p_changed(struct io *io, int fd, int64_t *ret)
{
    struct io *b = turn(io);

    return b->ops->changed(b, fd, ret);
}

static int p_touch(struct io *io, int fd)
{
    struct io *b = turn(io);

    return b->ops->touch(b, fd);
}

static int p_sync(struct io *io, int fd)
{
    struct io *b = turn(io);

    return b->ops->sync(b, fd);
}

static int p_rename(struct io *io, int dir, const char *from, const char *to)
{
    struct io *b = turn(io);

    return b->ops->rename(b, dir, from, to);
}

static int p_unlink(struct io *io, int dir, const char *name)
{
    struct io *b = turn(io);

    return b->ops->unlink(b, dir, name);
}

static int p_list(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    struct io *b = turn(io);

    return b->ops->list(b, dir, each, arg);
}

static const struct io_ops turn_ops = {
    .open_file = p_open, .create = p_create, .close = p_close, .write = p_write,
    .read = p_read, .size = p_size, .changed = p_changed, .touch = p_touch,
    .sync = p_sync, .rename = p_rename, .unlink = p_unlink, .list = p_list,
};

static void *play(void *arg)
{
    struct player *p = arg;

    pthread_mutex_lock(&p->turns->lock);
    pass(p->turns, p->me);
    p->rc = lease_hold(&p->lease, &p->io, p->root, NULL);
    if (p->rc == 0) { /* and goes on */
        ((struct world *)p->lease.world.arg)->renewed = &p->lease;
    }
    p->turns->is_over[p->me] = true;
    pass(p->turns, p->me);
    pthread_mutex_unlock(&p->turns->lock);
    return NULL;
}

/* Two begin; how many have it in the end, by what they were told and by the file. */
struct score {
    unsigned n_both, n_one, n_none, n_wrong;
};

static void race(struct world *w, struct lease a, struct lease b, uint64_t seed,
                 struct score *score)
{
    struct turns t = {.lock = PTHREAD_MUTEX_INITIALIZER,
                      .changed = PTHREAD_COND_INITIALIZER, .seed = seed};
    struct player p[2] = {{.me = 0, .lease = a}, {.me = 1, .lease = b}};
    pthread_t threads[2];
    unsigned n_won = 0, n_held = 0;
    struct error e;

    for (int i = 0; i < 2; i++) {
        p[i].io.ops = &turn_ops;
        p[i].turns = &t;
        p[i].below = disk_io(w->disk);
        p[i].root = disk_root(w->disk);
    }
    for (int i = 0; i < 2; i++) {
        if (pthread_create(&threads[i], NULL, play, &p[i]) != 0) {
            abort();
        }
    }
    for (int i = 0; i < 2; i++) {
        pthread_join(threads[i], NULL);
        n_won += p[i].rc == 0;
    }
    score->n_both += n_won == 2;
    score->n_one += n_won == 1;
    score->n_none += n_won == 0;
    for (int i = 0; i < 2; i++) { /* and it stays as it is */
        n_held += p[i].rc == 0 && hold(w, &p[i].lease, &e) == 0;
    }
    score->n_wrong += n_won != n_held;
}

static void test_race(void)
{
    struct score free_s = {0}, stale = {0}, back = {0};
    unsigned n = tap_valgrind() ? ORDERS / 30 : ORDERS;

    for (uint64_t seed = 0; seed < n; seed++) {
        struct world w;
        struct lease dead, a, b;
        struct error e;

        world_begin(&w);
        a = run_of(&w, "a", "m2", 2);
        b = run_of(&w, "b", "m3", 3);
        race(&w, a, b, seed, &free_s);
        disk_destroy(w.disk);

        world_begin(&w);
        dead = run_of(&w, "dead", "m2", 1);
        hold(&w, &dead, &e);
        w.dead = 1;
        race(&w, a, run_of(&w, "b", "m2", 3), seed, &stale);
        disk_destroy(w.disk);

        /* One that was away comes back, while another one takes its place. */
        world_begin(&w);
        a = run_of(&w, "c", "m2", 2);
        b = run_of(&w, seed % 2 ? "b" : "d", "m3", 3);
        hold(&w, &a, &e);
        set_time(&w, w.now_ms + 2 * MINUTE);
        b.n_others = 1;
        b.others[0] = (struct lease_other){.name = ".muster-run-c"};
        b.others[0].changed_ns = ((int64_t)w.now_ms - 2 * MINUTE + w.ahead_ms) * 1000000;
        race(&w, a, b, seed, &back);
        disk_destroy(w.disk);
    }
    is_int((int)(free_s.n_both + stale.n_both + back.n_both), 0, "of two at once never have "
           "both got it, in %u orders each", n);
    is_int((int)(free_s.n_wrong + stale.n_wrong + back.n_wrong), 0,
           "and who has got it has it");
    ok(free_s.n_one > free_s.n_none, "mostly one has: %u of %u", free_s.n_one, n);
    ok(stale.n_one > stale.n_none, "also after one that was killed: %u", stale.n_one);
    ok(back.n_one > back.n_none, "or that comes back: %u", back.n_one);
}

int main(void)
{
    test_one();
    test_killed_here();
    test_ours();
    test_elsewhere();
    test_ends_meanwhile();
    test_clock_jumps();
    test_strange();
    test_killed_at_each_call();
    test_errors();
    test_inherits_errors();
    test_race();
    return tap_done();
}
