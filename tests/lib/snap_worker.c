/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that counts, and saves what it has counted through its agent: for tests.
 *
 *   snap_worker DIRECTORY ELEMENTS      of one tensor, a multiple of 12
 *
 * It says "from STEP" where it begins (-1: nothing was there), saves every ten steps,
 * and ends at a step after which there is a file "go" in the run directory. With a
 * file "die" there, the last rank kills itself after its next save, in the first
 * generation; with "spoil" it changes a byte of what it has saved on the disk before.
 * With a file "lazy" it saves lazily, and with "copying", too, the last rank kills
 * itself before the fence; with "copied" it waits there until the checkpoint is one, and
 * says so, or that it is none after 20 s. With a file "once" it saves no second time.
 * With "damage" the last rank changes a byte on the disk of each save but the first.
 * With "skip" it skips saves that would have to wait, and says "skipped STEP".
 * With "cut" the last rank cuts all that its agent has of it, once it has saved.
 * With "store" all wait until each save is in the store, and say "stored STEP".
 * With "report" it reports each step, which takes four times as long while the last save
 * is on its way.
 * With "due" it saves first, and then when muster_ckpt_due() says so.
 * With "partner" all wait for copies of each save, and say "copied STEP".
 * With "fell", in which there is a process id, the last rank kills that one as soon as
 * its next save is on the disk, and says "fells at STEP".
 * With "pace" it goes on up to the step that this has, and says "asked" where it is asked
 * for a checkpoint while it waits there; with "disk" all wait until
 * each save is on the disk, and say "on disk STEP"; with "leave" it ends without waiting
 * for its last save.
 * With "poison" the step of the save at which it dies, and what is at most as many steps
 * older as the number in that file, is death to each rank that begins there; and with
 * "hold" those of later generations wait where they have begun. They say "avoids PATH"
 * of what nobody is to begin with. With "start" those of later generations are as slow
 * to start: they load nothing until it is gone. With "whole" each rank loads what all
 * have saved.
 * A JSON value `far` is saved along: how far the step is from 30.
 */
#include <config.h>

#include "muster.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct muster *m;
static struct muster_ckpt *ck;
static int is_skipping, asks_when, saves_once; /* "skip", "due", "once": the same on all */
static char far[32];
static float *mine;
static uint64_t n, first; /* elements here, and of those before */

static int fail(const char *what)
{
    fprintf(stderr, "snap_worker: %s: %s\n", what,
            ck ? muster_ckpt_error_text(ck) : muster_error_text(m));
    return 1;
}

static int there_is(const char *name)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", muster_run_dir(m), name);
    return access(path, F_OK) == 0;
}

/* What stands in that file of the run directory: -1 for nothing. */
static int64_t number_in(const char *name, int64_t if_there_is_none)
{
    char path[4096], text[32] = "";
    FILE *f;

    snprintf(path, sizeof(path), "%s/%s", muster_run_dir(m), name);
    f = fopen(path, "r");
    if (!f) {
        return if_there_is_none;
    }
    if (!fgets(text, sizeof(text), f)) {
        text[0] = '\0';
    }
    fclose(f);
    return text[0] ? strtoll(text, NULL, 10) : -1;
}

static void count(int64_t step)
{
    for (uint64_t i = 0; i < n; i++) {
        mine[i] = (float)(step % 1000) + (float)((first + i) % 97);
    }
}

static int is_right(int64_t step)
{
    float *want = mine;
    int right;

    mine = malloc(n * sizeof(*mine));
    memcpy(mine, want, n * sizeof(*mine));
    count(step);
    right = memcmp(mine, want, n * sizeof(*mine)) == 0;
    free(want);
    return right;
}

static void poison(int64_t step)
{
    char path[4096];
    FILE *f;

    snprintf(path, sizeof(path), "%s/poisoned", muster_run_dir(m));
    f = fopen(path, "we");
    if (f) {
        fprintf(f, "%" PRId64 "\n", step);
        fclose(f);
    }
}

static void say_avoided(void)
{
    char *lines = strdup(getenv("MUSTER_AVOID_PATHS") ? getenv("MUSTER_AVOID_PATHS")
                                                      : "");
    char *rest = lines;

    for (char *line; (line = strsep(&rest, "\n"));) {
        if (line[0]) {
            printf("avoids %s\n", line);
        }
    }
    free(lines);
}

/* What was loaded is right, and ends all the same where it was saved to do so. */
static void live_or_die(int64_t step)
{
    int64_t last = number_in("poisoned", -1), far_back = number_in("poison", -1);

    if (last >= 0 && step <= last && step >= last - far_back) {
        printf("poisoned by %" PRId64 "\n", step);
        fflush(stdout);
        _exit(7);
    }
    while (muster_generation(m) > 1 && there_is("hold")) {
        usleep(10000);
    }
}

/* Bytes that this process has had from a disk. */
static long long n_read(void)
{
    FILE *f = fopen("/proc/self/io", "re");
    char line[128];
    long long bytes = -1;

    while (f && fgets(line, sizeof(line), f) && sscanf(line, "read_bytes: %lld", &bytes) < 1) {
    }
    if (f) {
        fclose(f);
    }
    return bytes;
}

/* All of the tensor, of which its own part is this rank's. */
static int load_whole(const struct muster_ckpt_tensor *own, int64_t *ret_step)
{
    long long before = n_read();
    uint64_t zero = 0, n_all = own->shape[0], wrong = 0;
    float *all = malloc(n_all * sizeof(*all));
    struct muster_ckpt_tensor t = *own;
    int rc;

    t.at = &zero;
    t.len = own->shape;
    t.data = all;
    rc = muster_ckpt_tensor(ck, &t);
    rc = rc < 0 ? rc : muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, ret_step);
    for (uint64_t i = 0; rc == 0 && i < n_all; i++) {
        wrong += all[i] != (float)(*ret_step % 1000) + (float)(i % 97);
    }
    if (rc == 0) {
        memcpy(mine, all + first, n * sizeof(*mine));
        printf("has loaded all, %" PRIu64 " of it wrong\n", wrong);
        printf("has read %lld of %" PRIu64 " bytes\n", n_read() - before,
               n_all * sizeof(*all));
    }
    /* Saves are of its own part again. */
    muster_ckpt_clear(ck);
    muster_ckpt_tensor(ck, own);
    free(all);
    return rc;
}

static int begin(const char *uri, int64_t *ret_step)
{
    uint64_t shape[1] = {n * (uint64_t)muster_world(m)};
    struct muster_ckpt_tensor t = {.name = "count", .dtype = MUSTER_F32,
                                   .n_dims = 1, .shape = shape, .at = &first,
                                   .len = &n, .data = mine};
    int rc;

    *ret_step = -1;
    while (muster_generation(m) > 1 && there_is("start")) {
        usleep(10000);
    }
    if (muster_ckpt_open(m, NULL, uri, NULL, &ck) < 0 ||
        muster_ckpt_tensor(ck, &t) < 0) {
        return fail("open");
    }
    rc = there_is("whole")
             ? load_whole(&t, ret_step)
             : muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, ret_step);
    if (rc < 0 && rc != -ENOENT) {
        return fail("load");
    }
    if (rc == 0 && !is_right(*ret_step)) {
        return fail("what was loaded is wrong");
    }
    if (rc == 0) {
        t.data = mine;
        muster_ckpt_tensor(ck, &t);
    }
    say_avoided();
    printf("from %" PRId64 "\n", *ret_step);
    fflush(stdout);
    live_or_die(*ret_step);
    return 0;
}

/* Changes the last byte of this rank's file. */
static int spoil(const char *dir, int64_t step, uint64_t save)
{
    char pattern[4096];
    glob_t found = {0};
    int fd = -1, rc = muster_ckpt_wait(ck, save, MUSTER_CKPT_DURABLE, 60000);
    char c = 0;

    if (rc < 0) {
        return fail("wait");
    }
    snprintf(pattern, sizeof(pattern), "%s/step-%012" PRId64 "-*/r%05d.safetensors",
             dir, step, muster_rank(m));
    if (glob(pattern, 0, NULL, &found) == 0 && found.gl_pathc == 1) {
        fd = open(found.gl_pathv[0], O_RDWR);
    }
    rc = fd >= 0 && lseek(fd, -1, SEEK_END) >= 0 && read(fd, &c, 1) == 1;
    c ^= 1;
    rc = rc && lseek(fd, -1, SEEK_END) >= 0 && write(fd, &c, 1) == 1;
    globfree(&found);
    printf("spoilt %" PRId64 "\n", rc ? step : -1);
    fflush(stdout);
    return 0;
}

/* Its agent's memory, which the files are of, is gone. */
static void cut(int64_t step)
{
    const char *run = getenv("MUSTER_RUN_ID");
    char pattern[4096];
    glob_t found = {0};
    size_t k = 0;

    snprintf(pattern, sizeof(pattern), "/dev/shm/muster-%u-%s/snap-*-%d-*",
             (unsigned)geteuid(), run ? run : "", muster_rank(m));
    if (glob(pattern, 0, NULL, &found) == 0) {
        for (; k < found.gl_pathc && truncate(found.gl_pathv[k], 0) == 0; k++) {
        }
    }
    globfree(&found);
    printf("has cut %zu files at %" PRId64 "\n", k, step);
    fflush(stdout);
}

/* The process whose number is in that file, once. */
static void fell(int64_t step, uint64_t save)
{
    static int64_t felled;
    int64_t pid;

    if (felled || muster_ckpt_wait(ck, save, MUSTER_CKPT_DURABLE, 60000) < 0) {
        return;
    }
    pid = number_in("fell", 0);
    if (pid > 1 && kill((pid_t)pid, SIGKILL) == 0) {
        felled = pid;
        printf("fells at %" PRId64 "\n", step);
        fflush(stdout);
    }
}

/* The last rank, once, where it is told to. */
static void die(const char *dir, int64_t step, uint64_t save)
{
    if (muster_generation(m) > 1 || muster_rank(m) < muster_world(m) - 1) {
        return;
    }
    if (there_is("spoil")) {
        spoil(dir, step, save);
        raise(SIGKILL);
    }
    if (there_is("fell")) {
        fell(step, save);
    }
    if (there_is("poison")) {
        poison(step);
    }
    if (there_is("die") || there_is("poison")) {
        printf("dies at %" PRId64 "\n", step);
        fflush(stdout);
        raise(SIGKILL);
    }
}

/* What all say: 1 if any has a reason to end. A file that comes meanwhile is not seen by
 * all at the same step. */
static int is_over(void)
{
    int32_t x[4] = {there_is("go") || muster_should_stop(m) > 0, there_is("skip"),
                    there_is("due"), there_is("once")};
    int rc = muster_allreduce(m, x, x, 4, MUSTER_INT32, MUSTER_MAX);

    is_skipping = x[1];
    asks_when = x[2];
    saves_once = x[3];
    if (rc < 0) {
        fail("allreduce");
    }
    return rc < 0 || x[0];
}

/* The library is not asked, which would hand it over. */
static void await_commit(const char *dir, int64_t step)
{
    char pattern[4096];
    glob_t found = {0};
    int n_found = 0;

    snprintf(pattern, sizeof(pattern), "%s/step-%012" PRId64 "-*/COMMIT", dir, step);
    for (int i = 0; i < 2000 && !n_found; i++) {
        n_found = glob(pattern, 0, NULL, &found) == 0;
        globfree(&found);
        usleep(10000);
    }
    printf("%s before the fence: %" PRId64 "\n", n_found ? "whole" : "none", step);
    fflush(stdout);
}

/* What was saved is changed only then, as by an optimizer. */
static int save_lazily(const char *dir, int64_t step, uint64_t *ret_save)
{
    if (muster_ckpt_save(ck, step, MUSTER_CKPT_LAZY, ret_save) < 0) {
        return -1;
    }
    if (there_is("copied") && muster_rank(m) == muster_world(m) - 1) {
        await_commit(dir, step);
    }
    if (there_is("copying") && muster_generation(m) == 1 &&
        muster_rank(m) == muster_world(m) - 1) {
        printf("dies copying at %" PRId64 "\n", step);
        fflush(stdout);
        raise(SIGKILL);
    }
    return muster_ckpt_fence(ck);
}

static int save_step(const char *dir, int64_t step, uint64_t *ret_save)
{
    snprintf(far, sizeof(far), "%" PRId64, step < 30 ? 30 - step : step - 30);
    if (muster_ckpt_blob(ck, "far", far, strlen(far), MUSTER_JSON) < 0) {
        return -1;
    }
    return there_is("lazy") ? save_lazily(dir, step, ret_save)
                            : muster_ckpt_save(ck, step, is_skipping ? MUSTER_CKPT_SKIP : 0,
                                               ret_save);
}

/* Outlives the node now, or is on the disk. */
static int see_copy(int64_t step, uint64_t save)
{
    if (muster_ckpt_wait(ck, save, MUSTER_CKPT_PARTNER, 60000) < 0) {
        return fail("wait for the partner");
    }
    printf("copied %" PRId64 "%s\n", step,
           muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE) > 0 ? ", and on the disk"
                                                              : "");
    fflush(stdout);
    return 0;
}

/* It is there, and that is said. */
static int see(const char *said, enum muster_ckpt_level level, int64_t step, uint64_t save)
{
    if (muster_ckpt_wait(ck, save, level, 60000) < 0) {
        return fail("wait for a level");
    }
    printf("%s %" PRId64 "\n", said, step);
    fflush(stdout);
    return 0;
}

/* The step up to which it may go. */
static int64_t pace(void)
{
    return number_in("pace", INT64_MAX);
}

static useconds_t slow_us(uint64_t save)
{
    return save && muster_ckpt_test(ck, save, MUSTER_CKPT_DURABLE) == 0 ? 80000 : 20000;
}

static int is_due(int64_t step, int has_saved)
{
    if (asks_when) {
        return muster_ckpt_due(ck, step) > 0 || !has_saved;
    }
    return step % 10 == 0 && !(has_saved && saves_once);
}

static int run(const char *dir, int64_t step)
{
    uint64_t save = 0;

    is_over(); /* one step and its save come in any case */
    for (;;) {
        while (step + 1 > pace() && !there_is("go") && muster_should_stop(m) == 0) {
            if (muster_checkpoint_requested(m) > 0) {
                printf("asked\n");
                fflush(stdout);
            }
            usleep(5000);
        }
        step++;
        count(step);
        if (is_due(step, save > 0)) {
            int rc = save_step(dir, step, &save);

            if (rc == -EBUSY && is_skipping) {
                printf("skipped %" PRId64 ": %s\n", step, muster_ckpt_error_text(ck));
                fflush(stdout);
                continue;
            }
            if (rc < 0) {
                return fail("save");
            }
            printf("held %" PRId64 "\n", step);
            fflush(stdout);
            if (there_is("damage") && step > 0 && muster_rank(m) == muster_world(m) - 1) {
                spoil(dir, step, save);
            }
            if (there_is("cut") && muster_rank(m) == muster_world(m) - 1) {
                cut(step);
            }
            if (there_is("partner") && see_copy(step, save) != 0) {
                return 1;
            }
            if (there_is("disk") && see("on disk", MUSTER_CKPT_DURABLE, step, save) != 0) {
                return 1;
            }
            if (there_is("store") && see("stored", MUSTER_CKPT_REMOTE, step, save) != 0) {
                return 1;
            }
            die(dir, step, save);
        }
        if (is_over()) {
            break;
        }
        usleep(there_is("report") ? slow_us(save) : 5000);
        if (there_is("report")) {
            muster_report(m, step, NULL, 0);
        }
    }
    if (save && !there_is("leave") && muster_ckpt_wait(ck, save, MUSTER_CKPT_DURABLE, 60000) < 0) {
        return fail("wait");
    }
    printf("ended %" PRId64 "\n", step);
    return 0;
}

int main(int argc, char **argv)
{
    int64_t step;
    int rc;

    if (argc != 3 || muster_init(&m) < 0) {
        fprintf(stderr, "usage: snap_worker DIRECTORY ELEMENTS\n");
        return 2;
    }
    n = strtoull(argv[2], NULL, 10) / (uint64_t)muster_world(m);
    first = n * (uint64_t)muster_rank(m);
    mine = calloc(n, sizeof(*mine));
    rc = begin(argv[1], &step);
    rc = rc ? rc : run(argv[1], step);
    muster_ckpt_close(ck);
    muster_finalize(m);
    free(mine);
    return rc;
}
