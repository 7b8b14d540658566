/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint, or what was never one, is removed, and something fails: in which order that
 * reaches the disk, what is left, and what is said of it.
 */
#include <config.h>

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

static char root_path[] = "/tmp/step_remove_test.XXXXXX";
static int root = -1;

/* Calls that fail: 0, they do not. */
static struct odd {
    struct io io;
    struct io_ops ops;
    int rename, sync, remove_dir, unlink;
    const char *stuck;   /* which file's unlink() */
    bool is_unsynced;    /* COMMIT has gone, and the disk was not asked */
    unsigned n_too_soon; /* files that have gone meanwhile */
} odd;

static int rename_odd(struct io *io, int dir, const char *from, const char *to)
{
    (void)io;
    odd.is_unsynced = true;
    return odd.rename ? odd.rename : io_system()->ops->rename(io_system(), dir, from, to);
}

static int sync_odd(struct io *io, int fd)
{
    (void)io;
    odd.is_unsynced = false;
    return odd.sync ? odd.sync : io_system()->ops->sync(io_system(), fd);
}

static int unlink_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    if (strcmp(name, STEP_COMMIT) == 0) {
        odd.is_unsynced = true;
    } else {
        odd.n_too_soon += odd.is_unsynced;
    }
    return odd.unlink && strcmp(name, odd.stuck) == 0
               ? odd.unlink : io_system()->ops->unlink(io_system(), dir, name);
}

static int remove_dir_odd(struct io *io, int dir, const char *name)
{
    (void)io;
    return odd.remove_dir ? odd.remove_dir
                          : io_system()->ops->remove_dir(io_system(), dir, name);
}

static struct io *with(struct odd faults)
{
    odd = faults;
    odd.ops = *io_system()->ops;
    odd.ops.rename = rename_odd;
    odd.ops.sync = sync_odd;
    odd.ops.unlink = unlink_odd;
    odd.ops.remove_dir = remove_dir_odd;
    odd.io.ops = &odd.ops;
    return &odd.io;
}

static char path[STEP_NAME_BYTES + 64], name[STEP_NAME_BYTES];

static const char *in(const char *dir, const char *file)
{
    snprintf(path, sizeof(path), "%s/%s", dir, file);
    return path;
}

static bool has(const char *dir, const char *file)
{
    return faccessat(root, in(dir, file), F_OK, 0) == 0;
}

static void put(const char *dir, const char *file)
{
    int fd = openat(root, in(dir, file), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

    if (fd < 0) {
        bail_out("no %s", path);
    }
    close(fd);
}

static void save(uint64_t step)
{
    if (bed_save(io_system(), root, step, 1, NULL) < 0) {
        bail_out("no checkpoint");
    }
    bed_name(step, 1, name);
}

static const char BARE[] = "step-000000000009-00000000";

static void test_names(void)
{
    static const char *const ours[] = {".COMMIT.new", "manifest.json", "tensors.index",
                                       "r0.part", "r4294967295.safetensors", "r123456.part"};
    static const char *const others[] = {"r.part", "r12345678901.part", "r00000.safetensors.1",
                                         "r00000", "x00000.part"};
    struct error e = {0};

    mkdirat(root, BARE, 0700);
    for (size_t i = 0; i < ARRAY_SIZE(ours); i++) {
        put(BARE, ours[i]);
    }
    is_int(step_remove_all(io_system(), root, BARE, &e), 0, "what was never finished: %s", e.text);
    ok(!has(BARE, ""), "goes, with all of muster's names");
    for (size_t i = 0; i < ARRAY_SIZE(others); i++) {
        mkdirat(root, BARE, 0700);
        put(BARE, others[i]);
        is_int(step_remove(io_system(), root, BARE, NULL), 0, "with '%s'", others[i]);
        ok(has(BARE, others[i]), "which is none, and stays");
        unlinkat(root, path, 0);
    }
    is_int(step_remove(io_system(), root, BARE, NULL), 0, "until that has gone");
}

static void test_order(void)
{
    _cleanup_(step_save) struct step_save *s = NULL;

    save(1);
    is_int(step_remove(with((struct odd){0}), root, name, NULL), 0, "removed");
    is_int((int)odd.n_too_soon, 0, "no file before the disk has it that COMMIT has gone");
    save(1);
    is_int(step_remove(with((struct odd){.rename = -ENOSPC}), root, name, NULL), 0,
           "also where there is no room for another name");
    is_int((int)odd.n_too_soon, 0, "no file before");
    save(1);
    is_int(step_save_join(with((struct odd){0}), root, name, &s, NULL), 0, "one that is saved");
    unlinkat(root, in(name, "r00000.safetensors"), 0);
    is_int(step_save_file(s, "r00000.safetensors", "abc", 3, NULL), 0, "in part");
    step_save_abort(s);
    ok(!has(name, "COMMIT") && !has(name, "r00000.safetensors"), "and given up");
    is_int((int)odd.n_too_soon, 0, "loses no file before, either");
    is_int(step_remove(io_system(), root, name, NULL), 0, "the rest goes");
}

static bool has_files(void)
{
    return has(name, "r00000.safetensors") && has(name, "r00001.safetensors") &&
           has(name, "tensors.index") && has(name, "manifest.json");
}

static void test_no_room(void)
{
    struct error e = {0};

    save(2);
    is_int(step_remove(with((struct odd){.rename = -ENOSPC, .unlink = -ENOSPC, .stuck = "COMMIT"}),
                       root, name, &e), -ENOSPC, "a COMMIT for whose end there is no room");
    ok(has(name, "COMMIT") && has_files(), "keeps all files");
    is_int(step_remove(with((struct odd){.rename = -ENOSPC, .sync = -EIO}), root, name, &e), -EIO,
           "one of which the disk does not take that it has gone");
    ok(!has(name, "COMMIT") && has_files(), "the others");
    is_int(step_remove(io_system(), root, name, NULL), 0, "until it can be removed");
}

static void test_stuck(void)
{
    struct error e = {0};

    save(3);
    is_int(step_remove(with((struct odd){.unlink = -EPERM, .stuck = "r00001.safetensors"}), root,
                       name, &e), -EPERM, "a file that cannot be removed");
    like(e.text, "remove step-000000000003-00000001/r00001.safetensors: Operation not permitted",
         "is named");
    ok(has(name, ".COMMIT.old"), "and what is left says that it is to go");
    is_int(step_remove(with((struct odd){.remove_dir = -EBUSY}), root, name, &e), -EBUSY,
           "nor its directory");
    like(e.text, "remove step-000000000003-00000001: ", "which is alone then");
    is_int(step_remove(with((struct odd){.remove_dir = -EEXIST}), root, name, &e), 0,
           "where something is in it, by another word, that is none of ours");
    is_int(step_remove(io_system(), root, name, &e), 0, "it goes");
}

static void test_sweep(void)
{
    struct error e = {0};
    char first[STEP_NAME_BYTES];

    save(5);
    save(4);
    bed_name(5, 1, first);
    for (int i = 0; i < 2; i++) {
        char from[sizeof(path)];

        snprintf(from, sizeof(from), "%s", in(i ? name : first, "COMMIT"));
        renameat(root, from, root, in(i ? name : first, ".COMMIT.old"));
    }
    put(first, "r00007.part");
    is_int(step_sweep(with((struct odd){.unlink = -EIO, .stuck = "r00007.part"}), root, &e), -EIO,
           "of two that were cut the first cannot be removed");
    like(e.text, "step-000000000005-00000001/r00007.part", "which is told");
    ok(has(first, ".COMMIT.old") && !has(name, ""), "and the second one goes");
    is_int(step_sweep(io_system(), root, &e), 0, "later the first");
    ok(!has(first, ""), "goes, too");
}

static void test_files(void)
{
    static const char *const files[] = {"r00000.part", "r00000.safetensors"};
    struct error e = {0};

    mkdirat(root, BARE, 0700);
    put(BARE, files[1]);
    put(BARE, "manifest.json");
    is_int(step_remove_files(io_system(), root, BARE, files, 2, &e), 0, "with a manifest");
    ok(has(BARE, files[1]), "it is about to be a checkpoint, and loses no file");
    unlinkat(root, in(BARE, "manifest.json"), 0);
    is_int(step_remove_files(with((struct odd){.unlink = -EPERM, .stuck = files[1]}), root, BARE,
                             files, 2, &e), -EPERM, "where one cannot be removed");
    like(e.text, "remove step-000000000009-00000000: ", "that is told");
    is_int(step_remove_files(with((struct odd){.remove_dir = -EEXIST}), root, BARE, files, 2,
                             &e), 0, "others' files may be left");
    ok(!has(BARE, files[1]), "when its own have gone, of which one was not there");
    is_int(step_remove_files(with((struct odd){.remove_dir = -EPERM}), root, BARE, files, 2,
                             &e), -EPERM, "that it cannot go is told");
    is_int(step_remove_files(io_system(), root, BARE, files, 2, &e), 0, "it goes");
    is_int(step_remove_files(io_system(), root, BARE, files, 2, &e), 0, "and may have gone");
}

int main(void)
{
    root = mkdtemp(root_path) ? open(root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (root < 0) {
        bail_out("no directory %s", root_path);
    }
    test_names();
    test_order();
    test_no_room();
    test_stuck();
    test_sweep();
    test_files();
    close(root);
    fs_remove_tree(root_path, NULL);
    return tap_done();
}
