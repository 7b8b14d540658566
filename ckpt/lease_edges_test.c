/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The edges of having a directory: for how long one has it that does not renew, what stands
 * in its way and what does not, in which order its file comes, and what a single call that
 * fails means.
 */
#include <config.h>

#include "base/proc.h"
#include "ckpt/disk_model.h"
#include "ckpt/lease.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { MINUTE = 60 * 1000, START = 100 * MINUTE };

/* Runs of one machine and of others, on a disk of which single calls are odd. */
static struct world {
    struct io io; /* what it is looked at by */
    struct disk *disk;
    uint64_t now_ms;
    int64_t ahead_ms; /* the disk's clock */
    unsigned n_waits;
    bool is_ending;
    char calls[512]; /* names of those that are listed below */
    /* Of the file with that name the n-th call from now on fails so. */
    const char *name;
    int error;
    int at_open, at_create, at_unlink;
    int error_close, error_sync, error_touch; /* of any, once */
    unsigned too_long; /* the file with that name is said to be longer by that */
    int opened;        /* a descriptor of it, or -1 */
    unsigned slow_ms;  /* a sync, and a touch, take so long */
    bool is_lost;      /* what is renamed vanishes */
    int n_long;        /* so many names are listed that are longer than any of a run */
} w;

static void set_time(uint64_t now_ms)
{
    w.now_ms = now_ms;
    disk_set_time(w.disk, ((int64_t)now_ms + w.ahead_ms) * 1000000);
}

static struct io *below(void)
{
    return disk_io(w.disk);
}

static void log_call(const char *call)
{
    size_t n = strlen(w.calls);

    snprintf(w.calls + n, sizeof(w.calls) - n, "%s ", call);
}

static bool is_now(int *at, const char *name)
{
    return w.name && strcmp(w.name, name) == 0 && *at > 0 && --*at == 0;
}

static int once(int *error)
{
    int rc = -*error;

    *error = 0;
    return rc;
}

static int odd_open(struct io *io, int dir, const char *name)
{
    int fd = is_now(&w.at_open, name) ? -w.error : below()->ops->open_file(below(), dir, name);

    (void)io;
    w.opened = w.name && strcmp(w.name, name) == 0 ? fd : -1;
    return fd;
}

static int odd_create(struct io *io, int dir, const char *name)
{
    (void)io;
    log_call("create");
    return is_now(&w.at_create, name) ? -w.error : below()->ops->create(below(), dir, name);
}

static int odd_close(struct io *io, int fd)
{
    int rc = below()->ops->close(below(), fd);

    (void)io;
    log_call("close");
    return rc < 0 ? rc : once(&w.error_close);
}

static ssize_t odd_write(struct io *io, int fd, const void *data, size_t len, uint64_t at)
{
    (void)io;
    log_call("write");
    return below()->ops->write(below(), fd, data, len, at);
}

static ssize_t odd_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    (void)io;
    return below()->ops->read(below(), fd, to, len, at);
}

static int odd_size(struct io *io, int fd, uint64_t *ret)
{
    int rc = below()->ops->size(below(), fd, ret);

    (void)io;
    *ret += rc == 0 && fd == w.opened ? w.too_long : 0;
    return rc;
}

static int odd_changed(struct io *io, int fd, int64_t *ret)
{
    (void)io;
    return below()->ops->changed(below(), fd, ret);
}

static int odd_touch(struct io *io, int fd)
{
    (void)io;
    set_time(w.now_ms + w.slow_ms);
    return w.error_touch ? once(&w.error_touch) : below()->ops->touch(below(), fd);
}

static int odd_sync(struct io *io, int fd)
{
    (void)io;
    log_call("sync");
    set_time(w.now_ms + w.slow_ms);
    return w.error_sync ? once(&w.error_sync) : below()->ops->sync(below(), fd);
}

static int odd_rename(struct io *io, int dir, const char *from, const char *to)
{
    int rc = below()->ops->rename(below(), dir, from, to);

    (void)io;
    log_call("rename");
    return rc == 0 && w.is_lost ? below()->ops->unlink(below(), dir, to) : rc;
}

static int odd_unlink(struct io *io, int dir, const char *name)
{
    (void)io;
    log_call("unlink");
    return is_now(&w.at_unlink, name) ? -w.error : below()->ops->unlink(below(), dir, name);
}

static int odd_list(struct io *io, int dir, int (*each)(void *arg, const char *name), void *arg)
{
    char name[LEASE_NAME_BYTES + 32];

    (void)io;
    for (int i = 0; i < w.n_long; i++) {
        snprintf(name, sizeof(name), LEASE_PREFIX "%0*d", LEASE_NAME_BYTES, i);
        each(arg, name);
    }
    return below()->ops->list(below(), dir, each, arg);
}

static const struct io_ops odd_ops = {
    .open_file = odd_open, .create = odd_create, .close = odd_close, .write = odd_write,
    .read = odd_read, .size = odd_size, .changed = odd_changed, .touch = odd_touch,
    .sync = odd_sync, .rename = odd_rename, .unlink = odd_unlink, .list = odd_list,
};

static uint64_t world_now(void *arg)
{
    (void)arg;
    return w.now_ms;
}

static bool world_is_running(void *arg, int pid, uint64_t start)
{
    (void)arg;
    return start == (uint64_t)pid * 10;
}

static bool world_wait(void *arg, unsigned ms)
{
    (void)arg;
    set_time(w.now_ms + ms);
    w.n_waits++;
    return !w.is_ending;
}

static void begin(void)
{
    w = (struct world){.io = {.ops = &odd_ops}, .disk = disk_create(DISK_SOUND),
                       .ahead_ms = 1000 * MINUTE};
    set_time(START);
}

static void end(void)
{
    is_int((int)disk_n_open(w.disk), 0, "no descriptor is left open");
    disk_destroy(w.disk);
}

static struct lease run_of(const char *id, const char *machine, int pid)
{
    const struct lease_world world = {.now_ms = world_now, .is_running = world_is_running,
                                      .wait = world_wait};
    struct lease_note own = {.pid = pid, .start = (uint64_t)pid * 10, .is_alone = true};
    struct lease l;

    lease_note_put(&own, id, machine, machine);
    lease_init(&l, &own, world);
    return l;
}

static int hold(struct lease *l, struct error *e)
{
    *e = (struct error){0};
    return lease_hold(l, &w.io, disk_root(w.disk), e);
}

static int adopt(struct lease *l)
{
    return lease_adopt(l, &w.io, disk_root(w.disk), NULL);
}

static int add_name(void *arg, const char *name)
{
    char *names = arg;
    size_t n = strlen(names);

    snprintf(names + n, 512 - n, "%s ", name);
    return 0;
}

static const char *names(void)
{
    static char all[512];

    all[0] = '\0';
    below()->ops->list(below(), disk_root(w.disk), add_name, all);
    return all;
}

static void put_text(const char *name, const char *text, size_t len)
{
    int root = disk_root(w.disk), fd;

    below()->ops->unlink(below(), root, name);
    fd = below()->ops->create(below(), root, name);
    io_write_all(below(), fd, text, len, 0);
    below()->ops->close(below(), fd);
}

/* A file under the name of `as`, as that run writes it. */
static void put_note(const struct lease *l, const char *as, enum lease_state state)
{
    char text[LEASE_NOTE_BYTES];
    struct lease_note note = l->own;

    note.state = state;
    put_text(as, text, lease_note_encode(&note, text));
}

static void drop_file(const char *name)
{
    below()->ops->unlink(below(), disk_root(w.disk), name);
}

/* --- for how long --- */

/* Another one is about to get what was not renewed for too long; its file is still there. */
static void test_asleep(void)
{
    struct lease a, b;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of("b", "m1", 2);
    hold(&a, &e);
    put_note(&b, ".muster-run-b", LEASE_HAS);
    set_time(START + LEASE_GOOD_MS);
    is_int(hold(&a, &e), 0, "what was renewed so long ago is still had");
    set_time(START + 2 * LEASE_GOOD_MS);
    is_int(hold(&a, &e), 0, "and as long again once it is renewed");
    set_time(START + 3 * LEASE_GOOD_MS + 1);
    is_int(hold(&a, &e), -EBUSY, "a moment longer: it looks who is there (%s)", e.text);
    ok(!a.is_held, "and has it no more");
    is_str(names(), ".muster-run-b ", "nor says so");
    drop_file(".muster-run-b");
    is_int(hold(&a, &e), 0, "it may have it again");
    set_time(w.now_ms + LEASE_GOOD_MS + 1);
    is_int(hold(&a, &e), 0, "also after it slept where nobody came");
    end();
}

/* Time counts from before it was written: that may take long. */
static void test_slow_disk(void)
{
    struct lease a;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    w.slow_ms = 1000;
    is_int(hold(&a, &e), 0, "written slowly");
    ok(w.now_ms == START + 4000, "with a second for each file, and look");
    ok(a.good_ms == START + 2000, "good from when the second file was begun");
    is_int(hold(&a, &e), 0, "renewed slowly");
    ok(a.good_ms == START + 4000 && w.now_ms == START + 5000, "good from before that");
    end();
}

static void test_renewal_fails(void)
{
    struct lease a;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    hold(&a, &e);
    set_time(START + 1000);
    w.error_touch = EIO;
    is_int(hold(&a, &e), -EIO, "an error: %s", e.text);
    like(e.text, "renew .muster-run-a", "which says of what");
    ok(a.is_held && a.good_ms == START, "it has it, and as long as before");
    w.calls[0] = '\0';
    is_int(hold(&a, &e), 0, "the next time it is renewed");
    is_str(w.calls, "close ", "and not taken once more");
    end();
}

static void test_drop(void)
{
    struct lease a, again;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    again = run_of("a", "m1", 1);
    hold(&a, &e);
    again.own = a.own;
    lease_drop(&again, &w.io, disk_root(w.disk));
    is_str(names(), ".muster-run-a ", "who does not have it does not let go of it");
    lease_drop(&a, &w.io, disk_root(w.disk));
    ok(!a.is_held, "who has let go has it no more");
    is_str(names(), "", "and no file");
    end();
}

/* --- who goes on --- */

static void test_file_is_gone(void)
{
    static const int errors[] = {ENOENT, EINVAL, ELOOP, ESTALE};
    struct lease a;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    hold(&a, &e);
    drop_file(".muster-run-a");
    is_int(adopt(&a), 0, "who has it, and whose file somebody removed,");
    is_str(names(), ".muster-run-a ", "puts it there again");
    w.name = ".muster-run-a";
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        w.error = errors[i];
        w.at_open = 1;
        w.calls[0] = '\0';
        is_int(hold(&a, &e), 0, "so does who finds something else: %s", strerror(w.error));
        like(w.calls, "rename", "written anew");
    }
    w.error = EACCES;
    w.at_open = 1;
    is_int(hold(&a, &e), -EACCES, "but not who cannot look");
    w.is_lost = true;
    drop_file(".muster-run-a");
    is_int(hold(&a, &e), -ENOENT, "a file that goes again and again: %s", e.text);
    ok(!a.is_held, "is not had");
    end();
}

static void test_not_inherited(void)
{
    struct lease a, b;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of("b", "m1", 2);
    put_note(&a, ".muster-run-a", LEASE_WANTS);
    is_int(adopt(&a), 0, "a file of a lead that only wanted it");
    ok(!a.is_held, "is no more than that");
    put_note(&b, ".muster-run-a", LEASE_HAS);
    is_int(adopt(&a), 0, "one with the words of another run");
    ok(!a.is_held, "neither");
    put_text(".muster-run-a", "muster-run 1 has a", 18);
    is_int(adopt(&a), 0, "one that is cut");
    ok(!a.is_held, "nor that");
    put_note(&a, ".muster-run-a", LEASE_HAS);
    is_int(adopt(&a), 0, "but one that has it");
    ok(a.is_held, "goes on");
    end();
}

/* The heir of one that has it: who else is there. */
static void inherit(const char *other, const char *text, int want, const char *what)
{
    struct lease a, b;
    char want_names[64];

    begin();
    a = run_of("a", "m1", 1);
    b = run_of(other + strlen(LEASE_PREFIX), "m1", 2);
    put_note(&a, ".muster-run-a", LEASE_HAS);
    if (text) {
        put_text(other, text, strlen(text));
    } else {
        put_note(&b, other, LEASE_WANTS);
    }
    w.is_ending = true; /* it waits for nobody */
    is_int(adopt(&a), want, "%s", what);
    snprintf(want_names, sizeof(want_names), ".muster-run-a %s ", other);
    is_str(names(), want_names, "the other one's stays, and its own");
    end();
}

static void test_heir(void)
{
    inherit(".muster-run-0", NULL, 0, "one that only wants it does not hinder who has it");
    inherit(".muster-run-z", NULL, 0, "whatever its name");
    inherit(".muster-run-z", "?", -ECANCELED, "a file that says nothing is watched first");
}

/* --- who comes first --- */

static void wants(const char *other, int want, const char *what)
{
    struct lease a, b;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of(other + strlen(LEASE_PREFIX), "m1", 2);
    put_note(&b, other, LEASE_WANTS);
    is_int(hold(&a, &e), want, "%s: %s", what, e.text);
    like(names(), other, "and leaves that one's file");
    end();
}

static void test_order(void)
{
    wants(".muster-run-0", -EBUSY, "two want it: that with the first name goes before");
    wants(".muster-run-b", 0, "any other one does not");
}

/* Two have to be looked at: that one of them is nobody's says nothing of the other. */
static void test_watches_all(void)
{
    struct lease a, b, c;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of("b", "m2", 2);
    c = run_of("c", "m1", 3);
    c.own.start++; /* another process has that number now */
    put_note(&b, ".muster-run-b", LEASE_HAS);
    put_note(&c, ".muster-run-c", LEASE_HAS);
    is_int(hold(&a, &e), 0, "one elsewhere, and one here that is gone");
    is_int((int)w.n_waits, LEASE_STALE_MS / 1000 + 1, "a minute has to pass");
    is_str(names(), ".muster-run-a ", "before it has it");
    end();

    begin();
    put_note(&c, ".muster-run-c", LEASE_HAS);
    put_note(&b, ".muster-run-b", LEASE_HAS);
    is_int(hold(&a, &e), 0, "in the other order");
    is_int((int)w.n_waits, LEASE_STALE_MS / 1000 + 1, "likewise");
    end();
}

/* A clock of the disk that says 0, as one that is not set. */
static void test_zero_time(void)
{
    struct lease a, b;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of("b", "m2", 2);
    w.ahead_ms = -START;
    set_time(START);
    put_note(&b, ".muster-run-b", LEASE_HAS);
    w.is_ending = true;
    is_int(hold(&a, &e), -ECANCELED, "a file of time 0 was not seen before");
    is_str(names(), ".muster-run-b ", "and stays");
    end();
}

/* --- what others put there --- */

static void test_strange_names(void)
{
    static const char large[8 * LEASE_NOTE_BYTES] = "muster-run 1 has";
    static const int errors[] = {EINVAL, ELOOP, ESTALE, ENOENT};
    struct lease a, b;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of("b", "m1", 2);
    put_note(&b, ".muster-run-x", LEASE_HAS);
    w.is_ending = true;
    is_int(hold(&a, &e), -ECANCELED, "a copy under another name is not believed, and watched");
    put_text(".muster-run-x", large, sizeof(large));
    is_int(hold(&a, &e), -ECANCELED, "likewise one that is larger than any");
    end();

    begin();
    put_note(&b, ".muster-run-b", LEASE_HAS);
    w.name = ".muster-run-b";
    for (size_t i = 0; i < sizeof(errors) / sizeof(errors[0]); i++) {
        a = run_of("a", "m1", 1);
        w.error = errors[i];
        w.at_open = 1;
        is_int(hold(&a, &e), -EBUSY, "no file any more at the first look: %s", strerror(w.error));
        like(w.calls, "rename close close create", "wants it, and then has it");
        w.calls[0] = '\0';
    }
    w.error = EACCES;
    w.at_open = 1;
    is_int(hold(&a, &e), -EACCES, "one that cannot be looked at is somebody's");
    like(e.text, "read .muster-run-b, by which another run saves there", "which is named");
    end();
}

/* It is written while it is read. */
static void test_cut_now(void)
{
    struct lease a, b;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    b = run_of("b", "m1", 2);
    hold(&a, &e);
    w.name = ".muster-run-a";
    w.too_long = 10;
    w.is_ending = true;
    is_int(hold(&b, &e), -ECANCELED, "one that is shorter than it was just now is watched: %s",
           e.text);
    is_str(names(), ".muster-run-a ", "and stays");
    end();
}

static void test_many_names(void)
{
    struct lease a, b;
    struct error e;
    unsigned n_other = 0;

    begin();
    a = run_of("a", "m1", 1);
    w.n_long = LEASE_MAX_OTHERS + 1;
    is_int(hold(&a, &e), 0, "names that no run has count for none");
    end();

    begin();
    a = run_of("a", "m1", 1);
    for (int i = 0; i <= LEASE_MAX_OTHERS; i++) {
        char name[16];

        snprintf(name, sizeof(name), "%d", i);
        b = run_of(name, "m1", 2);
        put_note(&b, b.name, LEASE_HAS);
        n_other += hold(&a, &e) != -EBUSY || !strstr(e.text, " on m1 saves there");
        drop_file(b.name);
    }
    is_int((int)n_other, 0, "one after the other has it");
    is_int(hold(&a, &e), 0, "and they count no more once they went: %s", e.text);
    end();
}

/* Gone at the first look, then away, and there again: by then it is nobody that is gone. */
static void test_comes_back(void)
{
    struct lease a, c;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    c = run_of("c", "m1", 3);
    c.own.start++;
    put_note(&c, ".muster-run-c", LEASE_HAS);
    w.name = ".muster-run-c";
    w.error = ENOENT;
    w.at_open = 2;
    is_int(hold(&a, &e), 0, "one that was gone, and then not there");
    is_str(names(), ".muster-run-c .muster-run-a ", "is not removed");
    end();
}

/* --- its file --- */

static void test_order_of_calls(void)
{
    struct lease a;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    w.is_lost = true;
    is_int(hold(&a, &e), -ENOENT, "a file that is not there when it was put: %s", e.text);
    is_str(w.calls, "create write sync close rename unlink ",
           "on the disk first, and then under its name");
    end();
}

static void test_one_call_fails(void)
{
    struct lease a;
    struct error e;

    begin();
    a = run_of("a", "m1", 1);
    w.error_sync = EIO;
    is_int(hold(&a, &e), -EIO, "not on the disk");
    is_str(names(), "", "leaves nothing");
    w.error_close = EDQUOT;
    is_int(hold(&a, &e), -EDQUOT, "or not closed: %s", e.text);
    is_str(names(), "", "likewise");
    put_text(".muster-run-a.new", "m", 1);
    w.name = ".muster-run-a.new";
    w.at_unlink = 1;
    w.error = EACCES;
    is_int(hold(&a, &e), -EACCES, "what somebody left cannot be removed");
    drop_file(".muster-run-a.new");
    w.at_create = 1;
    w.error = EEXIST;
    is_int(hold(&a, &e), 0, "or is gone just then: %s", e.text);
    end();
}

/* --- the real world --- */

/* In place of libc's: what may not be asked for, and how often it is waited. */
static bool is_refused;
static unsigned n_sleeps;
static _Atomic bool *set_at_sleep;

int kill(pid_t pid, int signal)
{
    (void)pid, (void)signal;
    errno = EPERM;
    return is_refused ? -1 : 0;
}

int usleep(useconds_t us)
{
    (void)us;
    n_sleeps++;
    if (set_at_sleep) {
        *set_at_sleep = true;
    }
    return 0;
}

static void test_running(void)
{
    struct lease_world world = lease_world(NULL);
    struct rlimit was, none;
    struct proc own;

    is_int(proc_read(getpid(), &own), 0, "this process");
    is_refused = true;
    ok(world.is_running(world.arg, getpid(), own.start), "one that is not for us is there");
    is_refused = false;
    getrlimit(RLIMIT_NOFILE, &was);
    none = was;
    none.rlim_cur = 0;
    setrlimit(RLIMIT_NOFILE, &none);
    ok(world.is_running(world.arg, getpid(), own.start + 1), "and one of which nothing is known");
    setrlimit(RLIMIT_NOFILE, &was);
    ok(!world.is_running(world.arg, getpid(), own.start + 1), "known, it is another one");
}

static void test_waiting(void)
{
    _Atomic bool cancel = false;
    struct lease_world world = lease_world(&cancel);

    ok(world.wait(world.arg, 1000) && n_sleeps == 10, "ten times a tenth of a second");
    n_sleeps = 0;
    set_at_sleep = &cancel;
    ok(!world.wait(world.arg, 1000) && n_sleeps == 1, "no more once it is to end");
    ok(!world.wait(world.arg, 1000) && n_sleeps == 1, "and never again");
    set_at_sleep = NULL;
    world = lease_world(NULL);
    ok(world.wait(world.arg, 1000) && n_sleeps == 11, "where there is nothing that ends it");
}

int main(void)
{
    test_asleep();
    test_slow_disk();
    test_renewal_fails();
    test_drop();
    test_file_is_gone();
    test_not_inherited();
    test_heir();
    test_order();
    test_watches_all();
    test_zero_time();
    test_strange_names();
    test_cut_now();
    test_many_names();
    test_comes_back();
    test_order_of_calls();
    test_one_call_fails();
    test_running();
    test_waiting();
    return tap_done();
}
