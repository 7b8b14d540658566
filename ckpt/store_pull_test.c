/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pull from a store that is a directory. What it seals was synced by itself, whoever
 * wrote it; what could not be synced is fetched once more; and a file is synced when all
 * of its pieces are written, whichever thread has the last one.
 */
#include <config.h>

#include "ckpt/pull_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

struct pull_world pull_world;

/* Who wrote the files may have been killed before they were on the disk. */
static void test_synced_again(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    unlinkat(own, "COMMIT", 0);
    b.st.is_dry = true;
    is_int(pull_run(&b, &b.own, &e), 0, "all but its seal is here, a dry run says");
    is_int(pull_world.n_synced, 0,
           "which syncs nothing: an error that is told once is the next one's");
    b.st.is_dry = false;
    is_int(pull_run(&b, &b.own, &e), 0, "it is pulled again%s", e.text);
    is_int(atomic_load(&pull_world.n_gets), 0, "nothing is fetched");
    ok(b.facts.n_kept == b.own.n && b.facts.bytes_kept == b.own.bytes && b.facts.n_moved == 0,
       "which is told: %llu files of %llu bytes were here",
       (unsigned long long)b.facts.n_kept, (unsigned long long)b.facts.bytes_kept);
    for (size_t i = 0; i < b.own.n; i++) {
        ok(pull_was_synced(b.own.items[i].path), "%s is synced", b.own.items[i].path);
    }
    ok(pull_bed_is_whole(&b), "and it is whole");
    pull_bed_close(&b);
}

/* A file that is here, and cannot be put on the disk. */
static void test_here_is_lost(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1, before = -1;
    struct stat st;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    before = openat(own, PULL_FIRST, O_RDONLY | O_CLOEXEC);
    pull_world.fault.name = PULL_FIRST;
    pull_world.fault.n = 1;
    pull_world.sealed_dir = own;
    pull_world.was_sealed = false;
    is_int(pull_run(&b, &b.own, &e), 0, "of which a file cannot be synced%s", e.text);
    is_int(atomic_load(&pull_world.n_gets), 1, "it alone is fetched");
    ok(pull_bed_has(own, PULL_FIRST) && fstat(before, &st) == 0 && st.st_nlink == 0,
       "into a new file");
    ok(!pull_world.was_sealed, "while nothing says that there is a checkpoint");
    ok(pull_bed_is_whole(&b), "in the end it is whole");
    pull_world.sealed_dir = -1;
    pull_world.fault.n = 2;
    is_int(pull_run(&b, &b.own, &e), -EIO, "where the new one cannot be synced either");
    like(e.text, "r00000.safetensors was written twice", "that is told");
    ok(!pull_bed_has(own, PULL_FIRST) && !pull_bed_has(own, "COMMIT"),
       "no such file is left, nor a seal");
    is_int(pull_run(&b, &b.own, &e), 0, "and the next pull");
    ok(pull_bed_is_whole(&b), "brings it");
    pull_bed_close(&b);
}

static void test_fetched_is_lost(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;

    pull_bed_open(&b);
    pull_world.fault.name = PULL_FIRST;
    pull_world.fault.n = 1;
    is_int(pull_run(&b, &b.own, &e), 0, "what was fetched cannot be synced%s", e.text);
    is_int(atomic_load(&pull_world.n_gets), (int)b.own.n + 1, "and is fetched once more");
    is_int(b.facts.n_moved, b.own.n, "each file counts once");
    ok(pull_bed_is_whole(&b), "it is whole");
    own = pull_bed_own(&b);
    unlinkat(own, "COMMIT", 0);
    unlinkat(own, PULL_FIRST, 0);
    pull_world.fault.n = 2;
    is_int(pull_run(&b, &b.own, &e), -EIO, "not twice");
    ok(!pull_bed_has(own, PULL_FIRST) && !pull_bed_has(own, "COMMIT"),
       "what could not be synced is gone, and there is no seal");
    pull_bed_close(&b);
}

/* What is mended is none until it is whole: it may never be. */
static void test_unsealed(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    unlinkat(own, PULL_FIRST, 0);
    pull_world.no_get = PULL_FIRST;
    is_int(pull_run(&b, &b.own, &e), -EAGAIN, "a file is missing, and not to be had");
    pull_world.no_get = NULL;
    ok(!pull_bed_has(own, "COMMIT"), "nothing says that there is a checkpoint");
    is_int(pull_run(&b, &b.own, &e), 0, "then it is");
    ok(pull_bed_is_whole(&b), "and there is one");
    pull_bed_close(&b);
}

/* No file goes of what says that it is a checkpoint. */
static void test_stuck(void)
{
    struct error e;
    struct pull_bed b;
    _close_ int own = -1;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    own = pull_bed_own(&b);
    pull_world.fault.name = pull_world.stuck = PULL_FIRST;
    pull_world.fault.n = 1;
    pull_world.went_sealed = false;
    is_int(pull_run(&b, &b.own, &e), -EIO, "of which a file cannot be synced, nor removed");
    like(e.text, "r00000.safetensors cannot be put on the disk, nor removed", "which is told");
    ok(!pull_world.went_sealed && !pull_bed_has(own, "COMMIT"),
       "is no checkpoint, and was none by then");
    pull_world.stuck = NULL;
    pull_world.fault.n = 0;
    is_int(pull_run(&b, &b.own, &e), 0, "until that can be done%s", e.text);
    ok(pull_bed_is_whole(&b), "then it is whole");
    pull_bed_close(&b);
}

/* What cannot be read may be right: it is neither fetched anew nor another one's. */
static void test_unread(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    is_int(pull_run(&b, &b.others, &e), 0, "and another program's%s", e.text);
    pull_world.unread = PULL_FIRST;
    is_int(pull_run(&b, &b.own, &e), -EIO, "of which a file cannot be read");
    like(e.text, "look at step-000000000010-0000000a/r00000.safetensors", "which is told");
    pull_world.unread = "b.bin";
    is_int(pull_run(&b, &b.others, &e), -EIO, "nor one of the other");
    like(e.text, "look at b.bin, of checkpoint-5", "which is told");
    pull_world.unread = NULL;
    is_int(atomic_load(&pull_world.n_gets), 0, "nothing is fetched");
    ok(pull_bed_is_whole(&b) && pull_bed_has(b.to, "checkpoint-5/b.bin"),
       "and both are as they were");
    pull_bed_close(&b);
}

/* What was synced last, the last one last. */
static void synced_last(const char *const *want, size_t n)
{
    const struct pull_world *w = &pull_world;

    for (size_t i = 0; i < n; i++) {
        is_str(w->n_synced >= n ? w->synced[w->n_synced - n + i] : "", want[i],
               "%zu before the end", n - 1 - i);
    }
}

static void test_order(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.own, &e), 0, "one of ours%s", e.text);
    synced_last((const char *const[]){b.own.name, "to", ".COMMIT.new", b.own.name}, 4);
    is_int(pull_run(&b, &b.others, &e), 0, "another program's%s", e.text);
    synced_last((const char *const[]){"to"}, 1);
    pull_bed_close(&b);
}

static void test_others_are_here(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    is_int(pull_run(&b, &b.others, &e), 0, "another program's%s", e.text);
    is_int(pull_run(&b, &b.others, &e), 0, "is here already%s", e.text);
    is_int(atomic_load(&pull_world.n_gets), 0, "nothing is fetched");
    ok(pull_was_synced("a.bin") && pull_was_synced("b.bin") && pull_was_synced(PULL_OTHER) &&
           pull_was_synced("to"),
       "but all of it is synced, its name too");
    pull_world.fault.name = "b.bin";
    pull_world.fault.n = 1;
    is_int(pull_run(&b, &b.others, &e), -EIO, "where that fails");
    like(e.text, "b.bin, of checkpoint-5, which is here already", "it is told");
    is_int(pull_run(&b, &b.others, &e), 0, "nothing was taken away");
    pull_bed_close(&b);
}

static void test_two_threads(void)
{
    struct error e;
    struct pull_bed b;

    pull_bed_open(&b);
    b.st.n_threads = 2;
    atomic_store(&pull_world.is_held, true);
    atomic_store(&pull_world.is_early, false);
    is_int(pull_run(&b, &b.others, &e), 0, "the first of two pieces is written late%s", e.text);
    ok(!atomic_load(&pull_world.is_held), "the other one has been, and its thread has gone on");
    ok(!atomic_load(&pull_world.is_early), "the file was not synced meanwhile");
    ok(pull_was_synced("a.bin"), "but then it was");
    pull_bed_close(&b);
}

/* Nobody writes what is only held against its digest. */
static void test_verified(void)
{
    struct error e = {0};
    struct pull_bed b;
    char path[PATH_MAX];

    pull_bed_open(&b);
    pull_world.n_synced = 0;
    is_int(store_check(&b.st, &b.others, true, &e), 0, "in the store it is right%s", e.text);
    is_int(pull_world.n_synced, 0, "nothing was synced");
    snprintf(path, sizeof(path), "%s/store/%s/b.bin", b.path, b.others.name);
    fs_write_replace(path, "shorT", 5, NULL);
    is_int(store_check(&b.st, &b.others, true, &e), -ERR_FORMAT, "and then it is not");
    is_int(pull_run(&b, &b.others, &e), -ERR_FORMAT, "a pull says so, too");
    like(e.text, "b.bin is damaged in the store", "in words");
    ok(!pull_was_synced("b.bin"), "and syncs nothing that is wrong");
    pull_bed_close(&b);
}

int main(void)
{
    test_synced_again();
    test_here_is_lost();
    test_fetched_is_lost();
    test_unsealed();
    test_stuck();
    test_unread();
    test_order();
    test_others_are_here();
    test_two_threads();
    test_verified();
    return tap_done();
}
