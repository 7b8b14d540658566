/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two runs want one directory at once, in every order of their calls to the filesystem that is
 * drawn. Never have both of them got it.
 */
#include <config.h>

#include "ckpt/lease_bed.h"

#include "tests/lib/tap.h"

#include <pthread.h>
#include <stdlib.h>

enum { ORDERS = 3000 };

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
        ((struct lease_bed *)p->lease.world.arg)->renewed = &p->lease;
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

static void race(struct lease_bed *w, struct lease a, struct lease b, uint64_t seed,
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
        n_held += p[i].rc == 0 && lease_bed_hold(w, &p[i].lease, &e) == 0;
    }
    score->n_wrong += n_won != n_held;
}

static void test_race(void)
{
    struct score free_s = {0}, stale = {0}, back = {0};
    unsigned n = tap_valgrind() ? ORDERS / 30 : ORDERS;

    for (uint64_t seed = 0; seed < n; seed++) {
        struct lease_bed w;
        struct lease dead, a, b;
        struct error e;

        lease_bed_begin(&w);
        a = lease_bed_run(&w, "a", "m2", 2);
        b = lease_bed_run(&w, "b", "m3", 3);
        race(&w, a, b, seed, &free_s);
        disk_destroy(w.disk);

        lease_bed_begin(&w);
        dead = lease_bed_run(&w, "dead", "m2", 1);
        lease_bed_hold(&w, &dead, &e);
        w.dead = 1;
        race(&w, a, lease_bed_run(&w, "b", "m2", 3), seed, &stale);
        disk_destroy(w.disk);

        /* One that was away comes back, while another one takes its place. */
        lease_bed_begin(&w);
        a = lease_bed_run(&w, "c", "m2", 2);
        b = lease_bed_run(&w, seed % 2 ? "b" : "d", "m3", 3);
        lease_bed_hold(&w, &a, &e);
        lease_bed_set_time(&w, w.now_ms + 2 * LEASE_BED_MINUTE);
        b.n_others = 1;
        b.others[0] = (struct lease_other){.name = ".muster-run-c"};
        b.others[0].changed_ns = ((int64_t)w.now_ms - 2 * LEASE_BED_MINUTE + w.ahead_ms) * 1000000;
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
    test_race();
    return tap_done();
}
