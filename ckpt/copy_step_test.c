/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of checkpoints of muster's own: what is on the disk before they say that they are
 * ones, and what is left where something fails; and whether what is there is the same.
 */
#include <config.h>

#include "ckpt/copy_priv.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/step_bed.h"
#include "ckpt/step_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char top[] = "/tmp/copy_step_test.XXXXXX", name[STEP_NAME_BYTES];
static int from = -1, to = -1;

/* --- calls --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static struct {
    int n_syncs, at_sync;         /* the n-th fails */
    int n_root, n_bare, n_sealed; /* of `to`; of the copy, without and with a COMMIT */
} syncs;

static bool has(int dir, const char *file)
{
    char path[STEP_NAME_BYTES + 64];

    snprintf(path, sizeof(path), "%s/%s", name, file);
    return faccessat(dir, path, F_OK, 0) == 0;
}

static bool is_that(int fd, const char *path)
{
    struct stat a, b;

    return fstat(fd, &a) == 0 && fstatat(to, path, &b, 0) == 0 && a.st_ino == b.st_ino;
}

int __wrap_fsync(int fd)
{
    if (++syncs.n_syncs == syncs.at_sync) {
        errno = EIO;
        return -1;
    }
    syncs.n_root += is_that(fd, ".");
    if (is_that(fd, name)) {
        syncs.n_sealed += has(to, "COMMIT");
        syncs.n_bare += !has(to, "COMMIT");
    }
    return __real_fsync(fd);
}

static int n_reads, spoilt_read, read_code; /* the n-th is spoilt, or fails */

static ssize_t read_odd(struct io *io, int fd, void *data, size_t len, uint64_t at)
{
    ssize_t n = io_system()->ops->read(io_system(), fd, data, len, at);

    (void)io;
    if (++n_reads == spoilt_read && n > 0) {
        ((char *)data)[n - 1] ^= 1;
        return read_code ? read_code : n;
    }
    return n;
}

static int copy(struct found_facts *facts, struct error *e)
{
    static struct io_ops ops;
    static struct io io = {.ops = &ops};

    ops = *io_system()->ops;
    ops.read = read_odd;
    n_reads = 0;
    syncs.n_syncs = syncs.n_root = syncs.n_bare = syncs.n_sealed = 0;
    *e = (struct error){0};
    return copy_step(&io, from, name, to, facts, e);
}

static bool is_whole(int dir)
{
    _step_ struct step s = {0};

    return step_open(io_system(), dir, name, &s, NULL) == 0 && step_verify(&s, NULL) == 0 &&
           bed_is_right(&s);
}

/* --- copies --- */

static void test_order(void)
{
    struct found_facts facts = {0};
    _step_ struct step s = {0};
    struct error e;

    is_int(copy(&facts, &e), 0, "a copy: %s", e.text);
    ok(is_whole(to), "is whole");
    is_int(step_open(io_system(), from, name, &s, &e), 0, "and what it was made of");
    ok(facts.bytes == s.commit.total_bytes && facts.n_files == s.commit.n_files && facts.bytes > 0,
       "has so many bytes, and files");
    ok(syncs.n_root > 0, "its name is on the disk");
    ok(syncs.n_bare > 0, "its files' names are before there is a COMMIT");
    ok(syncs.n_sealed > 0, "and that is, too");
    is_int(syncs.n_syncs, 8, "each file was synced, as well");
    step_remove(io_system(), to, name, NULL);
}

static void test_syncs(void)
{
    struct found_facts facts = {0};
    struct error e;

    for (int n = 1; n <= 8; n++) {
        syncs.at_sync = n;
        is_int(copy(&facts, &e), -EIO, "sync %d fails: %s", n, e.text);
        ok(!has(to, "COMMIT") && (n == 1 || !has(to, "")), "and there is no copy");
        syncs.at_sync = 0;
        step_remove(io_system(), to, name, NULL);
    }
    is_int(copy(&facts, &e), 0, "without that there is: %s", e.text);
    step_remove(io_system(), to, name, NULL);
}

/* What was read while it was copied is not what is there. */
static void test_spoilt(void)
{
    struct found_facts facts = {0};
    struct error e;

    spoilt_read = 3; /* of the first file: two are of the manifest */
    is_int(copy(&facts, &e), -ERR_FORMAT, "a byte that changes on its way");
    like(e.text, "do not have the digest in the manifest", "is told: %s", e.text);
    ok(!has(to, "") && is_whole(from), "there is no copy, and the first one is whole");
    read_code = -EIO;
    is_int(copy(&facts, &e), -EIO, "one that cannot be read");
    ok(!has(to, ""), "is no copy, either");
    spoilt_read = read_code = 0;
}

static void test_itself(void)
{
    struct found_facts facts = {0};
    struct error e = {0};

    is_int(copy_step(io_system(), from, name, from, &facts, &e), -EINVAL, "one over itself");
    like(e.text, "would be copied over itself", "is told");
    ok(is_whole(from), "and is as it was");
}

/* --- what is there already --- */

static void put(int dir, const char *path, const void *data, size_t len)
{
    _close_ int fd = openat(dir, path, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0 || fs_write_all(fd, data, len) < 0) {
        bail_out("no %s", path);
    }
}

static int same(const struct found *f, struct error *e)
{
    static struct io_ops ops;
    static struct io io = {.ops = &ops};
    struct found_facts facts = {0};

    ops = *io_system()->ops;
    ops.read = read_odd;
    n_reads = 0;
    *e = (struct error){0};
    return copy_is_there(&io, from, f, to, "/to", &facts, e);
}

static void test_same(void)
{
    static const char weights[] = "\x40\0\0\0\0\0\0\0{\"t\":{\"dtype\":\"U8\",\"shape\":[1],"
                                  "\"data_offsets\":[0,1]}}           x";
    static const char state[] = "{\"global_step\": 5}";
    const struct found file = {.name = "m-5.safetensors", .kind = FOUND_SAFETENSORS,
                               .has_step = true, .step = 5};
    const struct found dir = {.name = "checkpoint-5", .kind = FOUND_TRAINER, .has_step = true,
                              .step = 5};
    const int both[] = {from, to};
    const size_t len = sizeof(weights) - 1;
    char other[sizeof(weights)];
    struct error e;
    int n;

    memcpy(other, weights, sizeof(other));
    other[len - 1] = 'y';
    for (int i = 0; i < 2; i++) {
        put(both[i], file.name, weights, len);
        mkdirat(both[i], dir.name, 0700);
        put(both[i], "checkpoint-5/model.safetensors", weights, len);
        put(both[i], "checkpoint-5/trainer_state.json", state, sizeof(state) - 1);
    }
    is_int(same(&file, &e), 1, "a file that is there: %s", e.text);
    n = n_reads;
    is_int(same(&dir, &e), 1, "and a directory: %s", e.text);
    spoilt_read = n; /* the last one compares */
    read_code = -EIO;
    is_int(same(&file, &e), -EIO, "of what cannot be read nobody knows");
    like(e.text, "what /to has of it", "which is told");
    spoilt_read = read_code = 0;
    put(to, file.name, other, len);
    is_int(same(&file, &e), -EEXIST, "as long, and with another last byte");
    like(e.text, "m-5.safetensors is in /to already", "is told");
    put(from, "checkpoint-5/notes.txt", "x", 1);
    is_int(same(&dir, &e), -EEXIST, "one that lacks a file");
    put(to, "checkpoint-5/notes.txt", "xy", 2);
    is_int(same(&dir, &e), -EEXIST, "has a longer one");
    put(to, "checkpoint-5/notes.txt", "x", 1);
    is_int(same(&dir, &e), 1, "or the same one again");
}

static int open_new(const char *dir)
{
    char path[64];

    snprintf(path, sizeof(path), "%s/%s", top, dir);
    return mkdir(path, 0700) < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

int main(void)
{
    if (!mkdtemp(top) || (from = open_new("from")) < 0 || (to = open_new("to")) < 0 ||
        bed_save(io_system(), from, 5, 1, NULL) < 0) {
        bail_out("no checkpoint in %s", top);
    }
    bed_name(5, 1, name);
    test_order();
    test_syncs();
    test_spoilt();
    test_itself();
    test_same();
    close(from);
    close(to);
    fs_remove_tree(top, NULL);
    return tap_done();
}
