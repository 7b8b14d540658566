/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is on the disk is changed: who loads sees it, says where, and has the one before.
 */
#include <config.h>

#include "ckpt/api_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/commit.h"
#include "ckpt/io.h"
#include "ckpt/save_priv.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char root[API_BED_ROOT_BYTES];

static char name_of_two[64];

static int find_step_two(void *arg, const char *name)
{
    (void)arg;
    if (strncmp(name, "step-000000000002-", 18) == 0) {
        snprintf(name_of_two, sizeof(name_of_two), "%s", name);
    }
    return 0;
}

/* To verify it names the file, and of a rank's what is in it and whose it is. */
static bool is_blamed(const char *file, long byte)
{
    _step_ struct step s = {0};
    struct error e = {0};
    char dir[4200], rank[64] = "";
    _close_ int fd = -1;
    bool is_named;
    int rc;

    snprintf(dir, sizeof(dir), "%s/damage", root);
    fd = open(dir, O_RDONLY | O_DIRECTORY);
    rc = step_open(io_system(), fd, name_of_two, &s, &e);
    rc = rc < 0 ? rc : step_verify(&s, &e);
    if (file[0] == 'r') {
        snprintf(rank, sizeof(rank), " of rank %d, do not have their", file[5] - '0');
    }
    is_named = rc == -ERR_FORMAT && strstr(e.text, file) && strstr(e.text, rank) &&
               (!*rank || strstr(e.text, "tensor '") || strstr(e.text, "its header"));
    if (!is_named) {
        diag("%s, byte %ld: verified: %d, %s", file, byte, rc, e.text);
    }
    return is_named;
}

static unsigned count_unseen(const char *path, const char *file, long byte)
{
    struct api_trip back = {.root = root, .name = "damage", .step = MUSTER_CKPT_LATEST,
                        .seed = 5};
    unsigned n_bad = 0;

    if (!api_bed_flip(path, byte, (int)(byte % 8))) {
        bail_out("flip %s", path);
    }
    team_run(2, false, api_bed_travel, &back);
    for (int r = 0; r < 2; r++) {
        bool is_seen = back.rc[r] == 1 && back.got[r] == 1 &&
                       back.n_wrong[r] == 0 && strstr(back.text[r], file);

        if (!is_seen) {
            diag("%s, byte %ld: rank %d: %d, step %d: %s", file, byte, r,
                 back.rc[r], (int)back.got[r], back.text[r]);
        }
        n_bad += !is_seen;
    }
    n_bad += !is_blamed(file, byte);
    api_bed_flip(path, byte, (int)(byte % 8));
    return n_bad;
}

/* Of a file of the newer of two checkpoints, one bit is changed: both ranks load the
 * older one, and say which file it was. */
static void test_damage(int n_places)
{
    static const char *const files[] = {"COMMIT", "manifest.json",
                                        "tensors.index", "r00000.safetensors",
                                        "r00001.safetensors"};
    struct api_trip one = {.root = root, .name = "damage", .step = 1, .seed = 3,
                           .is_save = true};
    struct api_trip two = {.root = root, .name = "damage", .step = 2, .seed = 4,
                           .is_save = true};
    char dir[4200], path[4400];
    int fd;

    team_run(2, false, api_bed_travel, &one);
    team_run(2, false, api_bed_travel, &two);
    snprintf(dir, sizeof(dir), "%s/damage", root);
    fd = open(dir, O_RDONLY | O_DIRECTORY);
    io_system()->ops->list(io_system(), fd, find_step_two, NULL);
    close(fd);
    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        unsigned n_bad = 0;
        long len;

        snprintf(path, sizeof(path), "%s/%s/%s", dir, name_of_two, files[i]);
        len = api_bed_length(path);
        for (int k = 0; k <= n_places; k++) {
            n_bad += count_unseen(path, files[i], (len - 1) * k / n_places);
        }
        is_int((int)n_bad, 0, "%s: a changed bit at %d places of %ld bytes",
               files[i], n_places + 1, len);
    }
}

/* A file of several blocks and an odd end, which is not in the page cache. */
static void test_from_disk(void)
{
    enum { N = 9000001 };
    struct muster_ckpt *ck = api_bed_open(root, "cold", NULL, NULL);
    const uint64_t shape[1] = {N};
    unsigned char *v = malloc(N), *to = malloc(N);
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_U8, .n_dims = 1,
                                   .shape = shape, .data = v};
    char path[5000];
    int fd;

    for (size_t i = 0; v && i < N; i++) {
        v[i] = (unsigned char)(i * 7 + i / 251);
    }
    muster_ckpt_tensor(ck, &t);
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "a save of %d bytes", N);
    api_bed_find_file(root, "cold", NULL, path, sizeof(path));
    t.data = to;
    muster_ckpt_tensor(ck, &t);
    for (int i = 0; i < 2; i++) {
        fd = open(path, O_RDONLY);
        is_int(i == 0 ? posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) : 0, 0,
               i == 0 ? "out of the page cache" : "as it is now");
        close(fd);
        memset(to, 0, N);
        is_int(muster_ckpt_load(ck, 1, 0, NULL), 0, "loaded: %s",
               muster_ckpt_error_text(ck));
        ok(memcmp(to, v, N) == 0, "every byte");
    }
    ok(api_bed_flip(path, api_bed_length(path) - 1, 3), "its last byte is changed");
    is_int(muster_ckpt_load(ck, 1, 0, NULL), -EILSEQ, "which is seen");
    muster_ckpt_close(ck);
    free(v);
    free(to);
}

/* The path of the file of that step in `name`; of the newest of those of that step. */
/* Of those of a step that with the highest token, which was saved last. */
static void find_file(const char *name, int step, char *to, size_t size)
{
    char pattern[5000];
    glob_t found = {0};
    struct commit c, newest = {0};

    snprintf(pattern, sizeof(pattern), "%s/%s/step-%012d-*/COMMIT", root, name, step);
    if (glob(pattern, 0, NULL, &found) != 0) {
        bail_out("nothing of step %d in %s", step, name);
    }
    for (size_t i = 0; i < found.gl_pathc; i++) {
        _free_ char *data = NULL;
        size_t len = 0;

        if (fs_read(found.gl_pathv[i], COMMIT_MAX_BYTES, &data, &len, NULL) == 0 &&
            commit_decode(data, len, &c, NULL) == 0 && c.token >= newest.token) {
            newest = c;
            snprintf(to, size, "%.*s/r00000.safetensors",
                     (int)strlen(found.gl_pathv[i]) - 7, found.gl_pathv[i]);
        }
    }
    globfree(&found);
}

static void cut(const char *name, int step)
{
    char path[5000];

    find_file(name, step, path, sizeof(path));
    is_int(truncate(path, api_bed_length(path) - 1), 0, "step %d is cut", step);
}

static void save_steps(struct muster_ckpt *ck, int32_t *v, int first, int last)
{
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = v};
    int rc = muster_ckpt_tensor(ck, &t);

    for (*v = first; *v <= last; ++*v) {
        rc |= muster_ckpt_save(ck, *v, MUSTER_CKPT_WAIT, NULL);
    }
    is_int(rc, 0, "steps %d to %d: %s", first, last, muster_ckpt_error_text(ck));
}

/* Files of that name may not be read: of the first checkpoint that is asked for. */
static const char *refused;
static int n_refused;

static int refuse_file(struct io *io, int dir, const char *name)
{
    (void)io;
    return refused && strcmp(name, refused) == 0 && n_refused++ == 0
               ? -EACCES : io_system()->ops->open_file(io_system(), dir, name);
}

/* The newest is not damaged, and nobody goes on from an older one without a word: who may
 * read it, or says which may, can help. */
static void test_forbidden(void)
{
    static const char *const names[] = {"COMMIT", "manifest.json", "tensors.index",
                                        "r00000.safetensors"};
    struct muster_ckpt *ck = api_bed_open(root, "forbidden", NULL, NULL);
    struct io_ops ops = *io_system()->ops;
    struct io io = *io_system(), *own = ck->io;
    int64_t step = -1;
    int32_t v = 0;

    save_steps(ck, &v, 1, 2);
    ops.open_file = refuse_file;
    io.ops = &ops;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        refused = names[i];
        n_refused = 0;
        ck->io = &io;
        is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), -EACCES,
               "the newest's %s may not be read", names[i]);
        like(muster_ckpt_error_text(ck), names[i], "which is said");
        ck->io = own;
        is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step), 0, "then it may");
        is_int((int)step, 2, "and is what is loaded");
    }
    muster_ckpt_close(ck);
}

/* What is passed over is counted once, and only where it was looked for. */
static void test_counted(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "counted", NULL, NULL);
    const char *why = NULL;
    int64_t step = -1;
    int32_t v = 0;
    char said[9000];

    save_steps(ck, &v, 1, 4);
    is_int(muster_ckpt_passed_over(ck, &why), 0, "nothing is damaged");
    is_str(why, "", "and nothing said");
    cut("counted", 3);
    cut("counted", 4);
    is_int(muster_ckpt_load(ck, 2, 0, &step), 0, "what is newer than a step that is "
           "asked for was not passed over: %s", muster_ckpt_error_text(ck));
    is_int(v, 2, "loaded");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "the newest");
    is_int(step, 2, "that opens");
    is_int(muster_ckpt_passed_over(ck, &why), 2, "two are newer");
    like(why, "step-000000000004-", "the first of which is named");
    like(why, "; step-000000000003-", "and the other");
    is_int(muster_ckpt_latest(ck, 4, &step), 0, "the newest below a step");
    is_int(muster_ckpt_passed_over(ck, NULL), 1, "of which the damaged one is none");
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, NULL), 2, "load counts both");
    is_int(muster_ckpt_load(ck, 3, 0, NULL), -EILSEQ, "by its step");
    is_int(muster_ckpt_passed_over(ck, &why), 1, "it is that one");
    is_int(strncmp(why, "step-000000000003-", 18), 0, "named, and nothing else: %s", why);
    fs_path(said, sizeof(said), NULL, "no checkpoint of step 3 in %s/counted is whole (muster "
            "ckpt verify %s/counted tells of each); step-000000000003-", root, root);
    like(muster_ckpt_error_text(ck), said, "in the error, too, with the directory");
    is_int(muster_ckpt_load(ck, 5, 0, NULL), -ENOENT, "one that there is not");
    is_int(muster_ckpt_read_blob(ck, 3, "b", NULL, 0, NULL), -EILSEQ, "who reads one "
           "that is damaged is told so");
    cut("counted", 1);
    cut("counted", 2);
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), -EILSEQ, "only damaged ones");
    is_int(muster_ckpt_passed_over(ck, NULL), 4, "all");
    fs_path(said, sizeof(said), NULL, "no checkpoint in %s/counted is whole (muster ckpt verify "
            "%s/counted tells of each); 4 passed over; step-000000000004-", root, root);
    like(muster_ckpt_error_text(ck), said, "where, and why the newest is none");
    is_int(muster_ckpt_latest(ck, 1, &step), -ENOENT, "and below them none");
    muster_ckpt_close(ck);
}

/* Three of one step: that whose file is cut is the newest, and one that has a changed bit
 * comes next. */
static void test_counted_same_step(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "three", NULL, NULL);
    char path[5000];
    int64_t step = -1;
    int32_t v = 0;

    save_steps(ck, &v, 7, 7);
    save_steps(ck, &v, 7, 7);
    find_file("three", 7, path, sizeof(path));
    ok(api_bed_flip(path, api_bed_length(path) - 1, 1), "a bit of one is changed");
    save_steps(ck, &v, 7, 7);
    cut("three", 7);
    is_int(muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, NULL), 2, "two are passed over");
    is_int(muster_ckpt_load(ck, 7, 0, NULL), 2, "also by their step");
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "there is one of it");
    is_int(muster_ckpt_passed_over(ck, NULL), 0, "and none of a later step");
    muster_ckpt_close(ck);
}

/* Two of one step, the newer one with a damaged blob, which is longer: what is read, and then
 * loaded, is of the other one. */
static void test_read_same_step(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "blobs", NULL, NULL);
    enum { N = 9000001 }; /* more than a block, so that the tensor is in another one */
    char path[5000], *text = calloc(1, N);
    int64_t step = -1;
    int32_t v = 0;
    size_t n = 0;

    str_copy(text, N, "older");
    muster_ckpt_blob(ck, "b", text, 5, MUSTER_REPLICATED);
    save_steps(ck, &v, 7, 7);
    muster_ckpt_blob(ck, "b", text, N, MUSTER_REPLICATED);
    v = 8;
    is_int(muster_ckpt_save(ck, 7, 0, NULL), 0, "the newer one");
    find_file("blobs", 7, path, sizeof(path));
    is_int(muster_ckpt_clear(ck), 0, "nothing is registered");
    muster_ckpt_tensor(ck, &(struct muster_ckpt_tensor){.name = "v", .dtype = MUSTER_I32,
                                                         .data = &v});
    ok(api_bed_flip(path, api_bed_length(path) - 1, 1), "a bit of it is changed");
    is_int(muster_ckpt_read_blob(ck, 7, "b", text, N, &n), 0, "the blob is read");
    ok(n == 5 && memcmp(text, "older", 5) == 0, "that of the older one");
    is_int(muster_ckpt_load(ck, 7, 0, &step), 1, "of which the tensor is loaded");
    is_int(v, 7, "it is that one");
    is_int(muster_ckpt_load(ck, 7, 0, &step), 0, "but not again by who has read nothing");
    is_int(v, 8, "whose tensor is whole");
    muster_ckpt_close(ck);
    free(text);
}

/* Nobody starts from the first of those of the step that is told: newer ones are newer all
 * the same. */
static void test_counted_avoided(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "avoided", NULL, NULL);
    _free_ struct step_entry *entries = NULL;
    char path[5000], line[8192];
    _close_ int dir = -1;
    int64_t step = -1;
    int32_t v = 0;
    size_t n = 0;

    save_steps(ck, &v, 2, 2);
    save_steps(ck, &v, 2, 3);
    muster_ckpt_close(ck);
    cut("avoided", 3);
    snprintf(path, sizeof(path), "%s/avoided", root);
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    is_int(step_list(io_system(), dir, &entries, &n, NULL), 0, "a list");
    is_int((int)n, 3, "of three");
    snprintf(line, sizeof(line), "%s/%s\n", path, n > 1 ? entries[1].name : "");
    setenv("MUSTER_AVOID_PATHS", line, 1);
    ck = api_bed_open(root, "avoided", NULL, NULL);
    is_int(muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step), 0, "one of two is avoided");
    is_int(step, 2, "the other is told");
    is_int(muster_ckpt_passed_over(ck, NULL), 1, "and that one newer is damaged");
    muster_ckpt_close(ck);
    unsetenv("MUSTER_AVOID_PATHS");
}

/* A filesystem on which somebody removes the checkpoint of step 2 before the nth file of all
 * is opened. */
struct removing {
    struct io io;
    struct io_ops ops;
    int root, left;   /* files until then */
    const char *next; /* a newer one, which has come by then; or NULL */
};

static void bring(const struct removing *r)
{
    const char *name = strrchr(r->next, '/') + 1;

    if (renameat(AT_FDCWD, r->next, r->root, name) < 0) {
        bail_out("bring %s", r->next);
    }
}

static int open_counted(struct io *io, int dir, const char *name)
{
    struct removing *r = (struct removing *)io;

    if (r->left-- == 0) {
        if (r->next) {
            bring(r);
        }
        if (step_remove(io_system(), r->root, name_of_two, NULL) < 0) {
            bail_out("remove %s", name_of_two);
        }
    }
    return io_system()->ops->open_file(io_system(), dir, name);
}

static struct muster_ckpt *open_with(struct removing *r, const char *dir, int32_t *v)
{
    struct muster_ckpt *ck = NULL;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = v};

    if (ckpt_create(NULL, NULL, &r->io, r->root, dir, NULL, &ck) < 0 ||
        muster_ckpt_tensor(ck, &t) < 0) {
        bail_out("open %s", dir);
    }
    return ck;
}

/* Of that directory, with a checkpoint of step 2. */
static struct muster_ckpt *begin_removing(struct removing *r, const char *name, int32_t *v)
{
    char dir[4200];
    struct muster_ckpt *ck;

    *r = (struct removing){.ops = *io_system()->ops, .left = INT_MAX};
    r->ops.open_file = open_counted;
    r->io.ops = &r->ops;
    snprintf(dir, sizeof(dir), "%s/%s", root, name);
    r->root = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    ck = open_with(r, dir, v);
    *v = 2;
    if (muster_ckpt_save(ck, 2, 0, NULL) < 0) {
        bail_out("save: %s", muster_ckpt_error_text(ck));
    }
    io_system()->ops->list(io_system(), r->root, find_step_two, NULL);
    return ck;
}

/* 0: it was removed too late for that load; -1: something is wrong; 1: the older one is
 * loaded; 2: and it is told that one was removed. */
static int load_while_removed(int n)
{
    struct removing r;
    int64_t step = -1;
    int32_t v;
    struct muster_ckpt *ck = begin_removing(&r, "vanishing", &v);
    bool is_told;
    int rc;

    r.left = n;
    rc = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step);
    is_told = strstr(muster_ckpt_error_text(ck), "is being removed");
    if (step != v || rc != 0 || (is_told && step != 1) ||
        muster_ckpt_passed_over(ck, NULL) != 0) {
        diag("file %d: %d, step %d with %d: %s", n, rc, (int)step, v,
             muster_ckpt_error_text(ck));
        rc = -1;
    } else {
        rc = step == 1 ? is_told + 1 : 0;
    }
    step_remove(io_system(), r.root, name_of_two, NULL);
    muster_ckpt_close(ck);
    close(r.root);
    return rc;
}

/* The older one is loaded then, and nobody calls what was removed damaged. */
static void test_removed_meanwhile(void)
{
    struct muster_ckpt *ck = api_bed_open(root, "vanishing", NULL, NULL);
    int32_t v = 1;
    struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
    int n_of[3] = {0}, n = 0, got;

    muster_ckpt_tensor(ck, &t);
    is_int(muster_ckpt_save(ck, 1, 0, NULL), 0, "the older one");
    muster_ckpt_close(ck);
    do {
        got = load_while_removed(n++);
        n_of[got > 0 ? got : 0]++;
    } while (got > 0 && n < 100);
    is_int(got, 0, "a load is right, before whichever file the checkpoint is removed");
    ok(n_of[1] >= 3, "that is looked at: it is none (%d)", n_of[1]);
    ok(n_of[2] >= 1, "or that is loaded: it is told, and does not count as damaged (%d)", n_of[2]);
}

/* That is no damage: there is none of that step any more. */
static void test_removed_of_step(void)
{
    int n_gone = 0, n = 0, rc;

    muster_ckpt_close(api_bed_open(root, "asked", NULL, NULL));
    do {
        struct removing r;
        int64_t step = -1;
        int32_t v;
        struct muster_ckpt *ck = begin_removing(&r, "asked", &v);

        r.left = n++;
        v = 0;
        rc = muster_ckpt_load(ck, 2, 0, &step);
        n_gone += rc == -ENOENT && strstr(muster_ckpt_error_text(ck), "is being removed");
        if (rc == 0 ? step != 2 || v != 2 : rc != -ENOENT) {
            diag("file %d: %d, step %d with %d: %s", n, rc, (int)step, v,
                 muster_ckpt_error_text(ck));
            rc = 1;
        }
        step_remove(io_system(), r.root, name_of_two, NULL);
        muster_ckpt_close(ck);
        close(r.root);
    } while (rc == -ENOENT && n < 100);
    is_int(rc, 0, "one that is asked for by its step is loaded, or is not there any more");
    ok(n_gone >= 1, "which is said of what was removed under way (%d)", n_gone);
}

/* Who saves keeps one: before it goes a newer one is there. */
static void test_replaced_meanwhile(void)
{
    int n_newer = 0, n = 0, rc;
    int64_t step;

    muster_ckpt_close(api_bed_open(root, "replaced", NULL, NULL));
    do {
        struct muster_ckpt *next = api_bed_open(root, "next", NULL, NULL);
        int32_t v = 3;
        struct muster_ckpt_tensor t = {.name = "v", .dtype = MUSTER_I32, .data = &v};
        char pattern[4200];
        glob_t found = {0};
        struct removing r;
        struct muster_ckpt *ck;

        snprintf(pattern, sizeof(pattern), "%s/next/step-*", root);
        muster_ckpt_tensor(next, &t);
        if (muster_ckpt_save(next, 3, 0, NULL) < 0 || glob(pattern, 0, NULL, &found) != 0) {
            bail_out("make the next one");
        }
        muster_ckpt_close(next);
        ck = begin_removing(&r, "replaced", &v);
        r.next = found.gl_pathv[0];
        r.left = n++;
        step = -1;
        v = 0;
        rc = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &step);
        n_newer += rc >= 0 && step == 3;
        if (rc < 0 || step != v || step < 2) {
            diag("file %d: %d, step %d with %d: %s", n, rc, (int)step, v,
                 muster_ckpt_error_text(ck));
            rc = -1;
        }
        step_remove(io_system(), r.root, name_of_two, NULL);
        step_remove(io_system(), r.root, strrchr(r.next, '/') + 1, NULL);
        muster_ckpt_close(ck);
        close(r.root);
        fs_remove_tree(found.gl_pathv[0], NULL);
        globfree(&found);
    } while (rc >= 0 && step == 3 && n < 100);
    ok(rc >= 0 && step == 2, "one that is replaced is loaded, or the newer one");
    ok(n_newer >= 3, "before whichever file that is (%d)", n_newer);
}

int main(void)
{
    api_bed_begin(root);
    test_forbidden();
    test_counted();
    test_counted_same_step();
    test_read_same_step();
    test_counted_avoided();
    test_damage(tap_valgrind() ? 2 : 25);
    test_from_disk();
    test_removed_meanwhile();
    test_removed_of_step();
    test_replaced_meanwhile();
    return api_bed_end(root);
}
