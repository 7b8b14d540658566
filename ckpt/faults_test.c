/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that have no better place, of saves: who is told what, and what is loaded then. The
 * list of all faults, and which test has each, is in tests/README.md.
 */
#include <config.h>

#include "ckpt/faults_bed.h"

#include "ckpt/step_priv.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

struct faults_bed faults_bed;

/* One rank cannot: none has saved, and all are told who could not, and what. */
static void test_one_rank_fails(void)
{
    static const int errors[] = {ENOSPC, EDQUOT, EFBIG, EROFS, EACCES, EIO};
    char part[PATH_MAX];

    faults_begin();
    faults_save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        const struct fault f = {.call = FAULT_WRITE, .error = errors[i],
                                .file = "r00001.safetensors"};
        struct faults_play p = faults_save(2, &f), back;

        ok(p.rc[0] == -errors[i] && p.rc[1] == -errors[i],
           "%s on rank 1: all fail of it", strerror(errors[i]));
        like(p.text[0], "rank 1", "who");
        like(p.text[0], "r00001.safetensors", "and what");
        is_int(faults_n_steps(), 1, "nothing is left of it");
        back = faults_load(NULL);
        ok(faults_is_loaded(&back, 1), "the one before is there");
    }
    is_int(faults_save(2, NULL).rc[0], 0, "and it goes on, once that is over");
    faults_path_of(2, "r00000.part", part);
    ok(access(part, F_OK) < 0, "what a rank said for that is not left");
    faults_path_of(2, "r00001.part", part);
    ok(access(part, F_OK) < 0, "of no rank");
    faults_end();
}

/* The kernel tells of lost pages once: a second fsync would say that all is well. */
static void test_sync_fails_once(void)
{
    static const char *const files[] = {"r00000.safetensors", "tensors.index",
                                        "manifest.json", STEP_COMMIT_NEW};

    faults_begin();
    faults_save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct fault f = {.call = FAULT_SYNC, .error = EIO, .file = files[i]};
        struct faults_play p = faults_save(2, &f);

        is_int(p.rc[1], -EIO, "%s: an fsync that fails", files[i]);
        is_int(faults_bed.fault.n, 1, "is not tried again");
        p = faults_load(NULL);
        ok(faults_is_loaded(&p, 1), "and what it was for is no checkpoint");
    }
    faults_end();
}

/* A server that was written to may say only then that it had no room. */
static void test_close_fails(void)
{
    static const char *const files[] = {"r00000.safetensors", "r00001.part",
                                        "manifest.json", STEP_COMMIT_NEW};

    faults_begin();
    faults_save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct fault f = {.call = FAULT_CLOSE, .error = EDQUOT, .file = files[i]};
        struct faults_play p = faults_save(2, &f);

        ok(p.rc[0] == -EDQUOT && p.rc[1] == -EDQUOT, "%s: a close that fails",
           files[i]);
        is_int(faults_n_steps(), 1, "nothing is left of it");
        p = faults_load(NULL);
        ok(faults_is_loaded(&p, 1), "and the one before is there");
    }
    faults_end();
}

/* Nobody knows whether the name of a save is on the disk: there is none. */
static void test_root_sync_fails(void)
{
    const struct fault f = {.call = FAULT_SYNC, .error = EIO, .file = ".", .limit = 1};
    struct faults_play p;

    faults_begin();
    faults_save(1, NULL);
    faults_remember(faults_bed.root, ".");
    p = faults_save(2, &f);
    faults_remember(faults_bed.root, "");
    ok(p.rc[0] == -EIO && p.rc[1] == -EIO, "an fsync of the root that fails");
    is_int(faults_n_steps(), 1, "leaves no directory");
    faults_end();
}

/* What a rank has written need not be on the disk because another one's is. */
static void test_join_sync_fails(void)
{
    const struct fault f = {.call = FAULT_SYNC, .error = EIO, .file = FAULTS_JOINED, .limit = 1};
    struct faults_play p;

    faults_begin();
    faults_save(1, NULL);
    p = faults_save(2, &f);
    ok(p.rc[0] == -EIO && p.rc[1] == -EIO, "an fsync of the directory by the other rank");
    like(p.text[0], "rank 1: sync step-000000000002-", "who");
    is_int(faults_bed.fault.n, 1, "came to it once");
    is_int(faults_n_steps(), 1, "leaves no directory either");
    faults_end();
}

/* A server did what it was asked, its answer was lost, and the question that came
 * again finds nothing to do. */
static void test_answer_lost(void)
{
    const struct fault renamed = {.call = FAULT_RENAME, .error = ENOENT,
                                  .file = STEP_COMMIT_NEW, .is_done_all_the_same = true};
    const struct fault gone = {.call = FAULT_UNLINK, .error = ENOENT, .file = "r0000",
                               .is_done_all_the_same = true};
    char name[STEP_NAME_BYTES];
    struct faults_play p;

    faults_begin();
    faults_save(1, NULL);
    p = faults_save(2, &renamed);
    ok(p.rc[0] == p.rc[1], "a rename: all say the same (%d)", p.rc[0]);
    {
        struct faults_play back = faults_load(NULL);

        ok(faults_is_loaded(&back, p.rc[0] < 0 ? 1 : 2), "and it is as they say");
    }
    p = faults_save(3, &gone);
    is_int(p.rc[0], 0, "a removal: it is gone, as it was to be");
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 3), "loaded");
    faults_dir_of(3, name);
    faults_bed.fault = gone;
    is_int(step_remove(faults_layer(), faults_bed.root, name, NULL), 0,
           "one is removed by two at once");
    faults_dir_of(3, name);
    ok(!name[0], "and gone");
    faults_end();
}

/* Somebody tidies up. */
static void test_moved_away(void)
{
    static const char *const files[] = {"r00001.safetensors", "manifest.json",
                                        STEP_COMMIT_NEW};

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        const struct fault f = {.call = FAULT_SYNC, .file = files[i], .aside = "aside"};
        struct faults_play p;

        faults_begin();
        p = faults_save(1, &f);
        ok(p.rc[0] == -ENOENT && p.rc[1] == -ENOENT, "moved away at %s: %s",
           files[i], p.text[0]);
        p = faults_load(NULL);
        is_int(p.rc[0], -ENOENT, "nothing under its name is a checkpoint");
        faults_end();
    }
}

int main(void)
{
    test_one_rank_fails();
    test_sync_fails_once();
    test_close_fails();
    test_root_sync_fails();
    test_join_sync_fails();
    test_answer_lost();
    test_moved_away();
    return tap_done();
}
