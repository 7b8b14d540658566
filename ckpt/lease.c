/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/lease.h"

#include "base/clock.h"
#include "base/proc.h"
#include "base/str.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NEW_SUFFIX ".new" /* while it is written */

enum { WAIT_MS = 100, LOOK_MS = 1000 };

/* --- the world --- */

static uint64_t boot_ms(void *arg)
{
    (void)arg;
    return clock_boot_ms();
}

static bool is_running(void *arg, int pid, uint64_t start)
{
    struct proc p;

    (void)arg;
    if (kill(pid, 0) < 0 && errno == ESRCH) {
        return false;
    }
    /* What may not be looked at, or cannot for want of descriptors, is there. */
    return proc_read(pid, &p) < 0 ||
           (p.start == start && p.state != 'Z' && p.state != 'X');
}

static bool wait_for(void *arg, unsigned ms)
{
    const _Atomic bool *cancel = arg;

    for (unsigned i = 0; i < ms && !(cancel && atomic_load(cancel)); i += WAIT_MS) {
        usleep(WAIT_MS * 1000);
    }
    return !(cancel && atomic_load(cancel));
}

struct lease_world lease_world(const _Atomic bool *cancel)
{
    return (struct lease_world){.now_ms = boot_ms, .is_running = is_running,
                                .wait = wait_for, .arg = (void *)cancel};
}

static uint64_t now_ms(const struct lease *l)
{
    return l->world.now_ms(l->world.arg);
}

/* --- files --- */

/* What is longer than any of ours is none, and is said to be as long as that. */
static int read_note(struct io *io, int fd, char to[LEASE_NOTE_BYTES], size_t *ret_len)
{
    uint64_t bytes = 0;
    int rc = io->ops->size(io, fd, &bytes);
    size_t len = bytes < LEASE_NOTE_BYTES ? (size_t)bytes : LEASE_NOTE_BYTES;

    rc = rc < 0 ? rc : io_read_all(io, fd, to, len, 0);
    *ret_len = len;
    return rc == -ENODATA ? 0 : rc; /* cut just now: its digest is wrong */
}

/* As it is now, with when it was changed. A name that is no file is nobody's. */
static int see(struct io *io, int root, const char *name, struct lease_sight *ret,
               int64_t *ret_changed_ns)
{
    char text[LEASE_NOTE_BYTES] = {0};
    size_t len = 0;
    int fd = io->ops->open_file(io, root, name), rc;

    *ret = (struct lease_sight){0};
    if (fd < 0) {
        return fd == -EINVAL || fd == -ELOOP || fd == -ESTALE ? -ENOENT : fd;
    }
    rc = read_note(io, fd, text, &len);
    rc = rc < 0 ? rc : io->ops->changed(io, fd, ret_changed_ns);
    rc = rc == -ESTALE ? -ENOENT : rc; /* its run has just ended */
    io->ops->close(io, fd);
    ret->is_whole = rc == 0 && lease_note_decode(text, len, &ret->note) &&
                    strcmp(name + sizeof(LEASE_PREFIX) - 1, ret->note.run) == 0;
    return rc;
}

/* A name of ours is put there, whatever was there. */
static int write_new(struct io *io, int root, const char *name, const char *text, size_t len)
{
    int fd = io->ops->create(io, root, name), rc, closed;

    if (fd == -EEXIST) { /* one was killed */
        rc = io->ops->unlink(io, root, name);
        fd = rc < 0 && rc != -ENOENT ? rc : io->ops->create(io, root, name);
    }
    if (fd < 0) {
        return fd;
    }
    rc = io_write_all(io, fd, text, len, 0);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
    closed = io->ops->close(io, fd);
    return rc < 0 ? rc : closed;
}

static int put(struct lease *l, struct io *io, int root, enum lease_state state)
{
    char text[LEASE_NOTE_BYTES], fresh[LEASE_NAME_BYTES + sizeof(NEW_SUFFIX)];
    int rc;

    l->own.state = state;
    snprintf(fresh, sizeof(fresh), "%s%s", l->name, NEW_SUFFIX);
    rc = write_new(io, root, fresh, text, lease_note_encode(&l->own, text));
    rc = rc < 0 ? rc : io->ops->rename(io, root, fresh, l->name);
    if (rc < 0) {
        io->ops->unlink(io, root, fresh);
    }
    return rc;
}

/* 0; 1: it is not there any more, or not as this one has written it; -errno. */
static int touch_own(struct lease *l, struct io *io, int root)
{
    char want[LEASE_NOTE_BYTES], text[LEASE_NOTE_BYTES];
    size_t len = 0, want_len = lease_note_encode(&l->own, want);
    int fd = io->ops->open_file(io, root, l->name), rc;

    if (fd < 0) {
        return fd == -ENOENT || fd == -EINVAL || fd == -ELOOP || fd == -ESTALE ? 1 : fd;
    }
    rc = read_note(io, fd, text, &len);
    if (rc == 0) {
        rc = len == want_len && memcmp(text, want, len) == 0 ? io->ops->touch(io, fd) : 1;
    }
    io->ops->close(io, fd);
    return rc;
}

/* What the filesystem's clock says now. */
static int ask_clock(struct lease *l, struct io *io, int root, int64_t *ret_ns)
{
    struct lease_sight own;
    int rc = touch_own(l, io, root);

    return rc == 0 ? see(io, root, l->name, &own, ret_ns) : rc > 0 ? -ENOENT : rc;
}

/* --- the others --- */

static bool is_others(const struct lease *l, const char *name)
{
    size_t n = strlen(name), tail = sizeof(NEW_SUFFIX) - 1;

    return str_starts(name, LEASE_PREFIX) && strcmp(name, l->name) != 0 &&
           !(n > tail && strcmp(name + n - tail, NEW_SUFFIX) == 0);
}

struct listing {
    struct lease *lease;
    bool is_full;
};

static int take_name(void *arg, const char *name)
{
    struct listing *list = arg;
    struct lease *l = list->lease;
    size_t i = 0;

    if (!is_others(l, name) || strlen(name) >= LEASE_NAME_BYTES) {
        return 0;
    }
    while (i < l->n_others && strcmp(l->others[i].name, name) != 0) {
        i++;
    }
    if (i == LEASE_MAX_OTHERS) {
        list->is_full = true;
        return 0;
    }
    if (i == l->n_others) {
        l->others[l->n_others++] = (struct lease_other){.changed_ns = INT64_MIN};
        str_copy(l->others[i].name, LEASE_NAME_BYTES, name);
    }
    l->others[i].is_there = true;
    return 0;
}

/* Those that are there; what was seen of them before stays. */
static int list_others(struct lease *l, struct io *io, int root, struct error *e)
{
    struct listing list = {.lease = l};
    size_t n = 0;
    int rc;

    for (size_t i = 0; i < l->n_others; i++) {
        l->others[i].is_there = false;
    }
    rc = io->ops->list(io, root, take_name, &list);
    for (size_t i = 0; i < l->n_others; i++) {
        if (l->others[i].is_there) {
            l->others[n++] = l->others[i];
        }
    }
    l->n_others = n;
    if (rc < 0) {
        return error_set(e, -rc, "list it");
    }
    return list.is_full ? error_text(e, EBUSY, "more than %d files %s* are there, one of each "
                                     "run: remove those of runs that are over",
                                     LEASE_MAX_OTHERS, LEASE_PREFIX) : 0;
}

static int refuse(const struct lease_other *o, const struct lease_sight *s, struct error *e)
{
    char since[32];

    if (!s->is_whole) {
        return error_text(e, EBUSY, "another run saves there, by a file %s that is damaged",
                          o->name);
    }
    clock_format((uint64_t)s->note.since_s * 1000000000, since, sizeof(since));
    return error_text(e, EBUSY, "run %s on %s saves there, since %s: give this one a directory "
                      "of its own, or stop that one (muster cancel %s)", s->note.run,
                      s->note.host, since, s->note.run);
}

/* One look at all of them. */
struct look {
    struct lease *lease;
    struct io *io;
    int root;
    bool had;       /* we have had the directory all the time */
    int64_t now_ns; /* by the filesystem's clock */
};

/* Whether it is in our way, being there. Who has had the directory all the time does not
 * mind those that only want it: they see that. */
static bool hinders(const struct look *v, const struct lease_sight *s)
{
    if (!s->is_whole || s->note.state == LEASE_HAS) {
        return true;
    }
    return !v->had && strcmp(s->note.run, v->lease->own.run) < 0;
}

/* What there is to go by beside its file. */
static void know(const struct look *v, struct lease_other *o, int64_t changed_ns,
                 struct lease_sight *s)
{
    const struct lease *l = v->lease;

    if (o->changed_ns != changed_ns) {
        o->changed_ns = changed_ns;
        o->first_ms = now_ms(l);
    }
    if (!o->is_watched) {
        o->is_watched = true;
        o->begin_ns = changed_ns;
    }
    s->is_renewed = changed_ns != o->begin_ns;
    s->still_ms = now_ms(l) - o->first_ms;
    s->age_ms = v->now_ns / 1000000 - changed_ns / 1000000;
    s->is_here = strcmp(s->note.machine, l->own.machine) == 0;
    s->is_running = s->is_here &&
                    l->world.is_running(l->world.arg, s->note.pid, s->note.start);
}

/* 0; 1: it has to be watched; -EBUSY and others. */
static int look_at(const struct look *v, struct lease_other *o, struct error *e)
{
    struct lease_sight s;
    int64_t changed_ns = 0;
    int rc = see(v->io, v->root, o->name, &s, &changed_ns);
    enum lease_fate fate;

    o->is_gone = false;
    if (rc < 0) {
        return rc == -ENOENT ? 0 : error_set(e, -rc, "read %s, by which another run saves there "
                                             "(remove it if that is over)", o->name);
    }
    know(v, o, changed_ns, &s);
    fate = lease_judge(&s);
    o->is_gone = fate == LEASE_GONE;
    if (o->is_gone || !hinders(v, &s)) {
        return 0;
    }
    return fate == LEASE_WATCH ? 1 : refuse(o, &s, e);
}

static int look_at_all(struct look *v, struct error *e)
{
    struct lease *l = v->lease;
    bool watch = false;
    int rc = ask_clock(l, v->io, v->root, &v->now_ns);

    rc = rc < 0 ? error_set(e, -rc, "write %s", l->name) : list_others(l, v->io, v->root, e);
    for (size_t i = 0; rc >= 0 && i < l->n_others; i++) {
        rc = look_at(v, &l->others[i], e);
        watch |= rc > 0;
    }
    return rc < 0 ? rc : watch;
}

/* Until nobody has to be watched: then it was renewed, or has not been for long enough. */
static int look(struct lease *l, struct io *io, int root, bool had, struct error *e)
{
    struct look v = {.lease = l, .io = io, .root = root, .had = had};
    int rc;

    for (size_t i = 0; i < l->n_others; i++) {
        l->others[i].is_watched = false;
    }
    while ((rc = look_at_all(&v, e)) > 0) {
        if (!l->world.wait(l->world.arg, LOOK_MS)) {
            return error_text(e, ECANCELED, "the end of this run came first");
        }
    }
    return rc;
}

/* Those that are gone, and what they were writing. */
static void remove_gone(struct lease *l, struct io *io, int root)
{
    char fresh[LEASE_NAME_BYTES + sizeof(NEW_SUFFIX)];

    for (size_t i = 0; i < l->n_others; i++) {
        if (l->others[i].is_gone) {
            snprintf(fresh, sizeof(fresh), "%s%s", l->others[i].name, NEW_SUFFIX);
            io->ops->unlink(io, root, fresh);
            io->ops->unlink(io, root, l->others[i].name);
        }
    }
}

/* --- ours --- */

/* Of a lead before this one, which has it still. */
static bool is_inherited(struct lease *l, struct io *io, int root)
{
    struct lease_sight s;
    int64_t changed_ns;

    if (see(io, root, l->name, &s, &changed_ns) < 0 || !s.is_whole ||
        s.note.state != LEASE_HAS) {
        return false;
    }
    l->own.since_s = s.note.since_s;
    return true;
}

static int put_and_look(struct lease *l, struct io *io, int root, enum lease_state state,
                        bool had, struct error *e)
{
    int rc = put(l, io, root, state);

    if (rc < 0) {
        return error_set(e, -rc, "write %s", l->name);
    }
    rc = look(l, io, root, had, e);
    if (rc < 0 && (!had || rc == -EBUSY)) { /* what it had, it has for all that is known */
        io->ops->unlink(io, root, l->name);
    }
    return rc;
}

static int take(struct lease *l, struct io *io, int root, struct error *e)
{
    bool had = is_inherited(l, io, root);
    uint64_t began_ms;
    int rc = 0;

    if (!had) {
        l->own.since_s = (int64_t)(clock_wall_ns() / 1000000000);
        rc = put_and_look(l, io, root, LEASE_WANTS, false, e);
    }
    began_ms = now_ms(l);
    rc = rc < 0 ? rc : put_and_look(l, io, root, LEASE_HAS, had, e);
    if (rc < 0) {
        return rc;
    }
    l->is_held = true;
    l->good_ms = began_ms;
    remove_gone(l, io, root);
    return 0;
}

void lease_init(struct lease *l, const struct lease_note *own, struct lease_world world)
{
    *l = (struct lease){.own = *own, .world = world};
    snprintf(l->name, sizeof(l->name), "%s%s", LEASE_PREFIX, own->run);
}

/* 0; 1: it is lost, or may be; -errno. */
static int renew(struct lease *l, struct io *io, int root)
{
    uint64_t began_ms = now_ms(l);
    int rc = began_ms - l->good_ms > LEASE_GOOD_MS ? 1 : touch_own(l, io, root);

    if (rc == 0) {
        l->good_ms = began_ms;
    }
    l->is_held = rc <= 0;
    return rc;
}

int lease_hold(struct lease *l, struct io *io, int root, struct error *e)
{
    int rc = l->is_held ? renew(l, io, root) : 1;

    if (rc < 0) {
        return error_set(e, -rc, "renew %s", l->name);
    }
    return rc > 0 ? take(l, io, root, e) : 0;
}

int lease_adopt(struct lease *l, struct io *io, int root, struct error *e)
{
    return l->is_held || is_inherited(l, io, root) ? lease_hold(l, io, root, e) : 0;
}

void lease_drop(struct lease *l, struct io *io, int root)
{
    if (l->is_held && touch_own(l, io, root) == 0) {
        io->ops->unlink(io, root, l->name);
    }
    l->is_held = false;
}
