/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint in a store, read as if it were a directory: names, descriptors and bytes are
 * those of one, in whatever pieces they are read, and small pieces do not cost a request
 * each.
 */
#include <config.h>

#include "ckpt/store.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/io.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 10, WINDOW = 256 << 10, LARGE = 4 * WINDOW + 1000 };
static const char other[] = "checkpoint-5";

static char top[] = "/tmp/store_io.XXXXXX";
static int from = -1;
static struct store st;
static char large[LARGE];

/* --- requests --- */

int __real_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e);
static unsigned n_gets;
static size_t n_last; /* bytes of the last one */
static int get_fails;

int __wrap_s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                        struct error *e)
{
    n_gets++;
    n_last = len;
    return get_fails < 0 ? error_text(e, -get_fails, "%s: failure %d", key, -get_fails)
                         : __real_s3_get_range(s, key, at, to, len, e);
}

/* --- a bed --- */

static void put(const char *name, const void *data, size_t len)
{
    _close_ int fd = openat(from, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

    if (fd < 0 || fs_write_all(fd, data, len) < 0) {
        bail_out("write %s", name);
    }
}

static void setup(void)
{
    char path[64];

    if (!mkdtemp(top)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/from", top);
    mkdir(path, 0700);
    from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; i < LARGE; i++) {
        large[i] = (char)(i * 7 + i / 251);
    }
    mkdirat(from, other, 0700);
    mkdirat(from, "checkpoint-5/sub", 0700);
    put("checkpoint-5/a.bin", large, LARGE);
    put("checkpoint-5/b.bin", "short", 5);
    put("checkpoint-5/sub/c.bin", "cc", 2);
    put("checkpoint-5/sub/d.bin", "ddd", 3);
    put("checkpoint-5/sub.x", "x", 1);
    put("checkpoint-5/zz.bin", "z", 1);
    put("checkpoint-5/COMMIT", "its own", 7);
    put("old.bin", "\x80\x02}.", 4);
    snprintf(path, sizeof(path), "%s/store", top);
    if (!store_bed_open(path, &st) || bed_save(io_system(), from, STEP, STEP, NULL) < 0) {
        bail_out("no store");
    }
}

static struct io *open_one(enum found_kind kind, const char *name, struct parcel *p)
{
    struct found f = {.kind = kind};
    struct io *io = NULL;

    snprintf(f.name, sizeof(f.name), "%s", name);
    if (store_bed_put(&st, from, &f) < 0 || parcel_pack(io_system(), from, &f, p, NULL) < 0 ||
        store_io_open(&st, p, &io, NULL) < 0) {
        bail_out("no %s in the store", name);
    }
    return io;
}

struct names {
    char text[256];
    int rc;      /* what is answered to that name ... */
    const char *to;
};

static int add_name(void *arg, const char *name)
{
    struct names *n = arg;
    size_t len = strlen(n->text);

    snprintf(n->text + len, sizeof(n->text) - len, "%s%s", len ? " " : "", name);
    return n->to && strcmp(name, n->to) == 0 ? n->rc : 0;
}

static void has_names(struct io *io, int dir, const char *want, const char *what)
{
    struct names n = {.text = ""};

    is_int(io->ops->list(io, dir, add_name, &n), 0, "%s", what);
    is_str(n.text, want, "%s: its names", what);
}

static bool is_read(struct io *io, int dir, const char *name, const char *want)
{
    char got[64] = "";
    int fd = io->ops->open_file(io, dir, name);
    ssize_t n = fd < 0 ? -1 : io->ops->read(io, fd, got, sizeof(got) - 1, 0);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    return n >= 0 && strcmp(got, want) == 0;
}

/* --- names and descriptors --- */

static void test_names(struct io *io, int dir)
{
    int sub = io->ops->open_dir(io, dir, "sub");
    struct names stop = {.to = "b.bin", .rc = -ELOOP};

    has_names(io, 0, other, "where it is in");
    has_names(io, dir, "COMMIT a.bin b.bin sub.x sub zz.bin", "a directory");
    ok(sub > 0, "a directory in it");
    has_names(io, sub, "c.bin d.bin", "that");
    is_int(io->ops->list(io, dir, add_name, &stop), -ELOOP, "who has enough says so");
    is_str(stop.text, "COMMIT a.bin b.bin", "and gets no more");
    ok(is_read(io, sub, "d.bin", "ddd"), "a file in that one");
    ok(is_read(io, dir, "COMMIT", "its own"), "one that is called as a seal of ours");
    is_int(io->ops->open_dir(io, dir, "su"), -ENOENT, "the beginning of a name is none");
    is_int(io->ops->open_dir(io, dir, "a.bin"), -ENOENT, "a file is no directory");
    is_int(io->ops->open_dir(io, dir, "zzz"), -ENOENT, "nor is what is not there");
    is_int(io->ops->open_file(io, dir, "a.bi"), -ENOENT, "nor of a file");
    is_int(io->ops->open_file(io, dir, "sub"), -ENOENT, "a directory is no file");
    is_int(io->ops->open_file(io, dir, "zzz"), -ENOENT, "nor is what is not there");
    is_int(io->ops->open_dir(io, 0, "checkpoint-6"), -ENOENT, "there is only that one");
    is_int(io->ops->open_file(io, 0, "checkpoint-6"), -ENOENT, "whatever it is");
    io->ops->close(io, sub);
}

static void test_descriptors(struct io *io, int dir)
{
    int file = io->ops->open_file(io, dir, "b.bin"), fds[40], again;
    uint64_t bytes = 0;
    unsigned n_wrong = 0;
    char c;

    ok(io->ops->size(io, file, &bytes) == 0 && bytes == 5, "a file has its length");
    is_int(io->ops->open_file(io, file, "x"), -ENOTDIR, "nothing is in it");
    is_int(io->ops->list(io, file, add_name, &(struct names){.rc = 0}), -ENOTDIR,
           "nor has it names");
    is_int(io->ops->size(io, dir, &bytes), -EISDIR, "a directory has no length");
    is_int(io->ops->read(io, dir, &c, 1, 0), -EISDIR, "nor bytes");
    is_int(io->ops->close(io, file), 0, "it is closed");
    is_int(io->ops->close(io, file), -EBADF, "once");
    is_int(io->ops->size(io, file, &bytes), -EBADF, "and has no length any more");
    is_int(io->ops->read(io, file, &c, 1, 0), -EBADF, "nor bytes");
    is_int(io->ops->open_file(io, file, "x"), -EBADF, "nor anything in it");
    is_int(io->ops->read(io, 16, &c, 1, 0), -EBADF, "so it is of one that never was");
    is_int(io->ops->close(io, 0), -EBADF, "where it is in stays open");
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        fds[i] = io->ops->open_file(io, dir, i % 2 ? "b.bin" : "sub.x");
    }
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        n_wrong += fds[i] <= 0 || io->ops->size(io, fds[i], &bytes) < 0 ||
                   bytes != (i % 2 ? 5 : 1);
    }
    is_int(n_wrong, 0, "as many as are wanted");
    io->ops->close(io, fds[20]);
    again = io->ops->open_file(io, dir, "b.bin");
    is_int(again, fds[20], "what is closed is given again");
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++) {
        io->ops->close(io, fds[i]);
    }
}

/* --- bytes --- */

static void test_bytes(struct io *io, int dir)
{
    static const size_t ats[] = {0, 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW - 1,
                                 3 * WINDOW + 5, 1, LARGE - 1, LARGE, LARGE + 5, 0};
    static const size_t lens[] = {0, 1, 100, WINDOW - 1, WINDOW, WINDOW + 1, LARGE};
    _free_ char *got = malloc(LARGE + 1);
    int fd = io->ops->open_file(io, dir, "a.bin");
    unsigned n_wrong = 0;

    for (size_t i = 0; i < ARRAY_SIZE(ats); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(lens); k++) {
            size_t left = ats[i] < LARGE ? LARGE - ats[i] : 0;
            size_t want = lens[k] < left ? lens[k] : left;

            memset(got, 0, LARGE + 1);
            n_wrong += io->ops->read(io, fd, got, lens[k], ats[i]) != (ssize_t)want ||
                       (want && memcmp(got, large + ats[i], want) != 0) || got[want];
        }
    }
    is_int(n_wrong, 0, "any piece of a file");
    io->ops->close(io, fd);
    fd = io->ops->open_file(io, dir, "a.bin");
    n_gets = 0;
    for (size_t i = 0; i < 100; i++) {
        n_wrong += io->ops->read(io, fd, got, 100, i * 100) != 100;
    }
    n_wrong += io->ops->read(io, fd, got, WINDOW, WINDOW / 2) != WINDOW;
    ok(n_wrong == 0 && n_gets == 1, "small pieces come with one request");
    n_wrong += io->ops->read(io, fd, got, WINDOW + 1, 10) != WINDOW + 1;
    ok(n_wrong == 0 && n_gets == 2 && n_last == WINDOW + 1, "a large one with its own");
    n_wrong += io->ops->read(io, fd, got, 1, 100) != 1;
    ok(n_wrong == 0 && n_gets == 2, "which leaves what is here");
    io->ops->close(io, fd);
}

static void test_failure(struct io *io, int dir)
{
    int fd = io->ops->open_file(io, dir, "b.bin");
    char got[6] = "";

    ok(!store_io_failure(io), "nothing has failed");
    get_fails = -EACCES;
    is_int(io->ops->read(io, fd, got, 5, 0), -EACCES, "a request fails");
    get_fails = -EIO;
    is_int(io->ops->read(io, fd, got, 5, 0), -EIO, "and another one");
    get_fails = 0;
    is_int(io->ops->read(io, fd, got, 5, 0), 5, "the next does not");
    is_str(got, "short", "and has the bytes");
    ok(store_io_failure(io) && store_io_failure(io)->code == EACCES, "the first one is told");
    io->ops->close(io, fd);
}

static void test_others(void)
{
    _parcel_ struct parcel p = {0};
    struct io *io = open_one(FOUND_TRAINER, other, &p);
    int dir = io->ops->open_dir(io, 0, other);

    ok(dir > 0, "another program's");
    test_names(io, dir);
    test_descriptors(io, dir);
    test_bytes(io, dir);
    test_failure(io, dir);
    store_io_close(io); /* with one that is open */
}

/* Of ours the seal is here already. */
static void test_own(void)
{
    _parcel_ struct parcel p = {0};
    char name[STEP_NAME_BYTES], got[64] = "";
    struct names n = {.text = ""};
    uint64_t bytes = 0;
    struct io *io;
    int dir, fd;

    bed_name(STEP, STEP, name);
    io = open_one(FOUND_MUSTER, name, &p);
    dir = io->ops->open_dir(io, 0, name);
    is_int(io->ops->list(io, dir, add_name, &n), 0, "one of ours");
    like(n.text, "tensors.index COMMIT", "has a COMMIT");
    n_gets = 0;
    fd = io->ops->open_file(io, dir, "COMMIT");
    ok(io->ops->size(io, fd, &bytes) == 0 && bytes == p.seal.len, "with its length");
    is_int(io->ops->read(io, fd, got, 20, 5), 20, "of which a piece is read");
    ok(memcmp(got, p.seal.data + 5, 20) == 0 && n_gets == 0, "and no request is made");
    is_int(io->ops->read(io, fd, got, 20, p.seal.len - 1), 1, "its last byte");
    is_int(io->ops->read(io, fd, got, 20, p.seal.len), 0, "and its end");
    store_io_close(io);
    store_io_close(NULL);
}

static void test_file(void)
{
    _parcel_ struct parcel p = {0};
    struct io *io = open_one(FOUND_TORCH, "old.bin", &p);

    is_int(io->ops->open_dir(io, 0, "old.bin"), -ENOTDIR, "a file is no directory");
    ok(is_read(io, 0, "old.bin", "\x80\x02}."), "it is read");
    store_io_close(io);
}

int main(void)
{
    setup();
    test_others();
    test_own();
    test_file();
    store_bed_close(&st);
    close(from);
    fs_remove_tree(top, NULL);
    return tap_done();
}
