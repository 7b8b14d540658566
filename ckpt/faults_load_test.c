/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults that have no better place (ckpt/faults_test.c), of loads: files that cannot be read,
 * are of others, or are seen by one; times and places that mislead.
 */
#include <config.h>

#include "ckpt/faults_bed.h"

#include "ckpt/step_priv.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

struct faults_bed faults_bed;

static void test_unreadable(void)
{
    static const int errors[] = {EIO, ESTALE};
    static const char *const files[] = {"r00000.safetensors", "r00001.safetensors"};

    faults_begin();
    faults_save(1, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
        for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
            const struct fault f = {.call = FAULT_READ, .error = errors[i],
                                    .file = files[k]};
            struct faults_play p = faults_load(&f);

            ok(p.rc[0] < 0 && p.rc[0] == p.rc[1], "%s: %s: all fail alike",
               files[k], strerror(errors[i]));
            like(p.text[0], files[k], "which is named");
        }
    }
    faults_save(2, NULL);
    for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
        const struct fault f = {.call = FAULT_READ, .error = EIO, .file = files[k],
                                .limit = 1};
        struct faults_play p = faults_load(&f);

        ok(faults_is_loaded(&p, 1), "%s of the newest: all load the one before", files[k]);
    }
    faults_end();
}

/* What a process has not says nothing of a checkpoint: nobody takes an older one for it. */
static void test_no_descriptors(void)
{
    const struct fault all = {.call = FAULT_OPEN, .error = EMFILE, .file = STEP_COMMIT};
    const struct fault second = {.call = FAULT_OPEN, .error = EMFILE, .file = STEP_COMMIT,
                                 .after = 1};
    char why[2][PATH_MAX + 64];
    struct faults_play p;

    faults_begin();
    for (size_t r = 0; r < 2; r++) {
        snprintf(why[r], sizeof(why[r]), "rank %zu: %s: read step-000000000002", r,
                 faults_bed.root_path);
    }
    faults_save(1, NULL);
    faults_save(2, NULL);
    p = faults_load(&all);
    ok(p.rc[0] == -EMFILE && p.rc[1] == -EMFILE, "nobody can open a COMMIT: all fail of that");
    like(p.text[0], why[0], "which is told");
    p = faults_load(&second);
    ok(p.rc[0] == -EMFILE && p.rc[1] == -EMFILE, "rank 1 cannot: all fail of that");
    like(p.text[0], why[1], "who is told");
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 2), "once it can they load the newest");
    faults_end();
}

static int link_here(void *arg, const char *name)
{
    const int *dirs = arg;

    return linkat(dirs[0], name, dirs[1], name, 0);
}

/* The newest is on one node alone: all load what both have. */
static void test_seen_by_one(void)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];
    struct faults_play p = {0};
    int dirs[2];

    faults_begin();
    faults_save(1, NULL);
    faults_save(2, NULL);
    faults_dir_of(1, name);
    snprintf(path, sizeof(path), "%.4000s/other", faults_bed.root_path);
    if (mkdir(path, 0700) < 0) {
        bail_out("no %s", path);
    }
    p.roots[1] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dirs[0] = openat(faults_bed.root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(p.roots[1], name, 0700);
    dirs[1] = openat(p.roots[1], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(io_system_ops.list(io_system(), dirs[0], link_here, dirs), 0, "the other node");
    faults_bed.fault = (struct fault){0};
    team_run(FAULTS_WORLD, true, faults_body, &p);
    ok(faults_is_loaded(&p, 1), "has not the newest: all load the one before");
    close(dirs[0]);
    close(dirs[1]);
    close(p.roots[1]);
    faults_end();
}

/* Of one step there are two, and one node has the first alone: all load that. */
static void test_one_step_seen_by_one(void)
{
    char name[STEP_NAME_BYTES], path[PATH_MAX];
    struct faults_play p = {.step = 1, .data = 5};
    int dirs[2];

    faults_begin();
    faults_save(1, NULL);
    faults_dir_of(1, name);
    team_run(FAULTS_WORLD, true, faults_body, &p);
    is_int(faults_n_steps(), 2, "two of one step");
    snprintf(path, sizeof(path), "%.4000s/other", faults_bed.root_path);
    if (p.rc[0] < 0 || mkdir(path, 0700) < 0) {
        bail_out("no %s: %s", path, p.text[0]);
    }
    p = (struct faults_play){.data = 5};
    team_run(FAULTS_WORLD, true, faults_body, &p);
    ok(faults_is_loaded(&p, 1), "who sees both loads the later one");
    p = (struct faults_play){.data = 1};
    p.roots[1] = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    dirs[0] = openat(faults_bed.root, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    mkdirat(p.roots[1], name, 0700);
    dirs[1] = openat(p.roots[1], name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(io_system_ops.list(io_system(), dirs[0], link_here, dirs), 0, "the other node");
    team_run(FAULTS_WORLD, true, faults_body, &p);
    ok(faults_is_loaded(&p, 1), "has the first alone: all load that, and none the later one");
    close(dirs[0]);
    close(dirs[1]);
    close(p.roots[1]);
    faults_end();
}

static void swap(const char *a, const char *b)
{
    if (renameat2(AT_FDCWD, a, AT_FDCWD, b, RENAME_EXCHANGE) < 0) {
        bail_out("%s and %s not swapped", a, b);
    }
}

/* Files of one checkpoint, or of two, in each other's place: of equal length, and each
 * whole in itself. */
static void test_swapped(void)
{
    static const char *const files[] = {"r00000.safetensors", "r00001.safetensors",
                                        "tensors.index"};
    char one[PATH_MAX], two[PATH_MAX];
    struct faults_play p;

    faults_begin();
    faults_save(1, NULL);
    faults_save(2, NULL);
    faults_path_of(2, files[0], one);
    faults_path_of(2, files[1], two);
    swap(one, two);
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 1), "files of two ranks");
    swap(one, two);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        struct stat a, b;

        faults_path_of(1, files[i], one);
        faults_path_of(2, files[i], two);
        if (stat(one, &a) < 0 || stat(two, &b) < 0 || a.st_size != b.st_size) {
            bail_out("%s is of another length", two);
        }
        if (strcmp(files[i], "tensors.index") == 0) {
            unlink(two); /* that of step 1 would be right for both, but for digests */
            if (link(one, two) < 0) {
                bail_out("no link %s", two);
            }
        } else {
            swap(one, two);
        }
        p = faults_load(NULL);
        ok(p.rc[0] == -EILSEQ || faults_is_loaded(&p, 1), "%s of another step", files[i]);
        ok(strstr(p.text[0], files[i]), "is named");
        if (strcmp(files[i], "tensors.index") != 0) {
            swap(one, two);
        }
    }
    faults_end();
}

/* A tail that never reached the disk, and a file that has no byte. */
static void test_torn(void)
{
    char path[PATH_MAX], zeros[512] = {0};
    struct faults_play p;
    struct stat st;
    int fd;

    faults_begin();
    faults_save(1, NULL);
    faults_save(2, NULL);
    faults_path_of(2, "r00000.safetensors", path);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) < 0 ||
        pwrite(fd, zeros, sizeof(zeros), st.st_size - (off_t)sizeof(zeros)) < 0) {
        bail_out("no %s", path);
    }
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 1), "the last sector is zeros");
    is_int(ftruncate(fd, 0), 0, "it has no byte");
    close(fd);
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 1), "the one before");
    faults_end();
}

/* --- time and places --- */

static void set_age(const char *path, time_t seconds)
{
    const struct timespec times[2] = {{.tv_sec = seconds}, {.tv_sec = seconds}};

    if (utimensat(AT_FDCWD, path, times, AT_SYMLINK_NOFOLLOW) < 0) {
        bail_out("no time for %s", path);
    }
}

/* Clocks go back, copies have times of their own: what counts is the step. */
static void test_times(void)
{
    const time_t now = time(NULL), day = 86400;
    const time_t ages[][2] = {{now + day, now - day}, {now, now}, {0, now + day}};

    faults_begin();
    faults_save(1, NULL);
    faults_save(2, NULL);
    for (size_t i = 0; i < ARRAY_SIZE(ages); i++) {
        for (int64_t step = 1; step <= 2; step++) {
            static const char *const files[] = {"COMMIT", "manifest.json",
                                                "r00000.safetensors", "."};

            for (size_t k = 0; k < ARRAY_SIZE(files); k++) {
                char path[PATH_MAX];

                faults_path_of(step, files[k], path);
                set_age(path, ages[i][step - 1]);
            }
        }
        {
            struct faults_play p = faults_load(NULL);

            ok(faults_is_loaded(&p, 2), "the higher step, whatever times files have");
        }
    }
    faults_end();
}

/* The directory that people name may be reached by a link; a link that changes its
 * target meanwhile leaves who has opened it where he is. */
static void test_root_is_link(void)
{
    char link_path[PATH_MAX], other[PATH_MAX], name[STEP_NAME_BYTES];
    int real_root;
    struct faults_play p;

    faults_begin();
    real_root = faults_bed.root;
    snprintf(link_path, sizeof(link_path), "%.4000s.link", faults_bed.root_path);
    snprintf(other, sizeof(other), "%.4000s.other", faults_bed.root_path);
    if (symlink(faults_bed.root_path, link_path) < 0 || mkdir(other, 0700) < 0) {
        bail_out("no %s", link_path);
    }
    faults_bed.root = open(link_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    faults_save(1, NULL);
    unlink(link_path);
    if (symlink(other, link_path) < 0) {
        bail_out("no %s", link_path);
    }
    is_int(faults_save(2, NULL).rc[0], 0, "its link leads elsewhere now");
    close(faults_bed.root);
    faults_bed.root = real_root;
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 2), "all is in the one that was opened");
    is_int(rmdir(other), 0, "and nothing in the other");
    faults_dir_of(1, name);
    if (symlinkat(name, faults_bed.root, "LATEST") < 0 || symlinkat("gone", faults_bed.root,
                                                                    "step-x") < 0) {
        bail_out("no links");
    }
    p = faults_load(NULL);
    ok(faults_is_loaded(&p, 2), "links beside them say nothing");
    unlink(link_path);
    faults_end();
}

/* More than one call takes: counts of bytes are not ints. */
static void test_large(void)
{
    const uint64_t len = UINT64_C(5) << 30;
    void *data = mmap(NULL, len, PROT_READ,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    char byte = 'x', got = 0;

    if (data == MAP_FAILED || fd < 0) {
        skip("no room for 5 GiB of addresses");
    } else if (getenv("MUSTER_INSTRUMENTED")) {
        skip("what keeps a book of each byte takes 20 GiB for it");
    } else {
        is_int(io_write_all(io_system(), fd, data, len, 0), 0, "5 GiB at once");
        munmap(data, len);
    }
    close(fd);
    faults_begin();
    fd = openat(faults_bed.root, "sparse", O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ok(io_write_all(io_system(), fd, &byte, 1, len) == 0 &&
           io_read_all(io_system(), fd, &got, 1, len) == 0 && got == 'x',
       "a byte behind 5 GiB of a file");
    is_int(io_read_all(io_system(), fd, &got, 1, len + 1), -ENODATA, "and its end");
    close(fd);
    faults_end();
}

int main(void)
{
    test_unreadable();
    test_no_descriptors();
    test_seen_by_one();
    test_one_step_seen_by_one();
    test_swapped();
    test_torn();
    test_times();
    test_root_is_link();
    test_large();
    return tap_done();
}
