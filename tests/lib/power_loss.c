/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that save, commit, prune, copy, convert and pull checkpoints
 * (ckpt/sweep_cases_bed.h) on a real filesystem whose disk loses its power: after each of
 * its writes and flushes, with all that was written since the last flush, with nothing of
 * it, and with some. The filesystem is mounted again, by which it recovers; then the newest
 * checkpoint has to be the last that was told to be one, or a newer one, bit by bit,
 * and the program, started again (in a sample, now and then), comes to its end.
 * Faults are planted, too, which have to be found: syncs that are left out, or that
 * come after the rename.
 *
 *   power_loss ext4|xfs DIR [STRIDE]     of all points every STRIDEth; 1: all
 *
 * It runs in a virtual machine (tests/rigs/vm, t4203): what it needs is in
 * tests/lib/lost_disk.h. DIR is empty, and in memory.
 */
#include <config.h>

#include "base/cleanup.h"
#include "ckpt/sweep_cases_bed.h"
#include "tests/lib/lost_disk.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    USUAL_STRIDE = 40,
    XFS_STRIDE = 6, /* it writes less often */
    PLANT_STRIDE = 4, /* where one fault has to be found, not all */
    AGAIN_STRIDE = 4, /* of the losses in a sample */
    MAX_OWED = 64,
};

static const char *const left_names[] = {
    [LEFT_ALL] = "all that was written is left",
    [LEFT_NONE] = "nothing is left since the last flush",
    [LEFT_SOME] = "some is left since the last flush",
};

/* What a process says of what it looked at. */
enum seen { ALL_IS_WELL, NOT_KEPT, NO_CHECK, NOT_AGAIN };

static const char *const seen_names[] = {
    [NOT_KEPT] = "what is left is not what was told",
    [NO_CHECK] = "it cannot be looked at",
    [NOT_AGAIN] = "started again, it does not come to its end",
};

struct bench {
    const char *type;
    struct lost_disk *disk;
    char mountpoint[PATH_MAX], root[PATH_MAX + 2]; /* of the checkpoints */
    struct sweep_told *told;
    unsigned stride;
    bool is_again; /* the program is started again */
    uint64_t n_losses[ARRAY_SIZE(left_names)];
};

/* --- faults that are planted --- */

int __real_fsync(int fd);
int __wrap_fsync(int fd);

static enum plant { NO_PLANT, NO_FILES, NO_DIRS, RENAME_FIRST } plant;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int owed[MAX_OWED]; /* files that were to be synced */
static size_t n_owed;

static bool is_dir(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISDIR(st.st_mode);
}

/* Files are synced once they have their names for good. */
static int sync_late(int fd)
{
    int rc = 0;

    pthread_mutex_lock(&lock);
    if (!is_dir(fd)) {
        if (n_owed < MAX_OWED) {
            owed[n_owed++] = dup(fd);
        }
    } else {
        rc = __real_fsync(fd);
        while (n_owed > 0) {
            __real_fsync(owed[--n_owed]);
            close(owed[n_owed]);
        }
    }
    pthread_mutex_unlock(&lock);
    return rc;
}

int __wrap_fsync(int fd)
{
    switch (plant) {
    case NO_FILES:
        return is_dir(fd) ? __real_fsync(fd) : 0;
    case NO_DIRS:
        return is_dir(fd) ? 0 : __real_fsync(fd);
    case RENAME_FIRST:
        return sync_late(fd);
    case NO_PLANT:
        break;
    }
    return __real_fsync(fd);
}

/* --- a program is recorded --- */

static struct bench *bench; /* of on_tell */

static void mark(const char *what, uint64_t step)
{
    struct error e = {0};
    char text[WRITE_LOG_MARK_BYTES];

    snprintf(text, sizeof(text), "%s-%llu", what, (unsigned long long)step);
    if (lost_disk_mark(bench->disk, text, &e) < 0) {
        bail_out("%s", e.text);
    }
}

static void on_tell(uint64_t newest)
{
    mark("told", newest);
}

/* In a process of its own, which has nothing of the filesystem open afterwards. */
static int in_child(int (*f)(struct bench *b, const struct sweep_case *c),
                    struct bench *b, const struct sweep_case *c)
{
    int status;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        int rc = f(b, c);

        fflush(stdout);
        _exit(rc);
    }
    return pid > 0 && waitpid(pid, &status, 0) == pid && WIFEXITED(status) &&
                   WEXITSTATUS(status) <= NOT_AGAIN
               ? WEXITSTATUS(status)
               : NO_CHECK;
}

static int prepare(struct bench *b, const struct sweep_case *c)
{
    if (mkdir(b->root, 0700) < 0) {
        return NO_CHECK;
    }
    if (c->prepare) {
        c->prepare(b->root, b->told);
    }
    return 0;
}

static int play(struct bench *b, const struct sweep_case *c)
{
    c->play(b->root, 1, b->told);
    return 0;
}

static const struct write_log *record(struct bench *b, const struct sweep_case *c,
                                      enum plant planted)
{
    const struct write_log *log = NULL;
    struct error e = {0};
    int rc;

    *b->told = (struct sweep_told){0};
    if (lost_disk_record(b->disk, &e) < 0) {
        bail_out("%s: %s", b->type, e.text);
    }
    rc = in_child(prepare, b, c);
    sync();
    mark("begin", b->told->newest);
    b->told->on_tell = on_tell;
    plant = planted;
    rc = rc != 0 ? rc : in_child(play, b, c);
    plant = NO_PLANT;
    b->told->on_tell = NULL;
    mark("end", b->told->newest);
    if (lost_disk_stop(b->disk, &log, &e) < 0) {
        bail_out("%s: %s", b->type, e.text);
    }
    if (rc != 0 || b->told->newest != c->newest) {
        bail_out("%s, %s: it does not come to its end", b->type, c->name);
    }
    return log;
}

/* --- and loses the power --- */

/* What the mark says was told; false where there is none. */
static bool read_mark(const struct write_log_entry *en, const char *what,
                      struct sweep_told *told)
{
    size_t n = strlen(what);

    if (strncmp(en->mark, what, n) != 0 || en->mark[n] != '-') {
        return false;
    }
    told->newest = strtoull(en->mark + n + 1, NULL, 10);
    return true;
}

static int look(struct bench *b, const struct sweep_case *c)
{
    if (!c->is_kept(b->root, b->told)) {
        return NOT_KEPT;
    }
    if (!b->is_again) {
        return ALL_IS_WELL;
    }
    c->play(b->root, 2, b->told);
    return b->told->newest != c->newest || !c->is_kept(b->root, b->told)
               ? NOT_AGAIN
               : ALL_IS_WELL;
}

static int look_quietly(struct bench *b, const struct sweep_case *c)
{
    int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

    return dup2(null, STDOUT_FILENO) < 0        ? NO_CHECK
           : !c->is_kept(b->root, b->told) ? NOT_KEPT : ALL_IS_WELL;
}

/* Whether all is there that was told after the first n entries. */
static bool is_kept_after(struct bench *b, const struct sweep_case *c, size_t n,
                          enum lost_left left, bool is_planted)
{
    uint64_t told = b->told->newest;
    struct error e = {0};
    int rc;

    if (lost_disk_mount(b->disk, n, left, &e) < 0) {
        diag("%s, %s: entry %zu: %s", b->type, c->name, n, e.text);
        return false;
    }
    rc = in_child(is_planted ? look_quietly : look, b, c);
    if (lost_disk_unmount(b->disk, &e) < 0) {
        bail_out("%s", e.text);
    }
    if (rc != 0 && !is_planted) {
        diag("%s, %s: entry %zu, %s: %s (told of %llu)", b->type, c->name, n,
             left_names[left], seen_names[rc], (unsigned long long)told);
    }
    b->told->newest = told;
    return rc == 0;
}

/* How the points of one program are taken. */
struct course {
    bool is_planted, at_marks, to_first;
    unsigned stride;
    uint64_t n_points[ARRAY_SIZE(left_names)], n_losses, n_wrong;
};

static uint64_t all_points(const struct course *way)
{
    uint64_t n = 0;

    for (size_t i = 0; i < ARRAY_SIZE(left_names); i++) {
        n += way->n_points[i];
    }
    return n;
}

static void lose_at(struct bench *b, const struct sweep_case *c, size_t n,
                    bool is_mark, struct course *way)
{
    for (size_t left = 0; left < ARRAY_SIZE(left_names); left++) {
        if (!lost_disk_differs(b->disk, n, (enum lost_left)left)) {
            continue;
        }
        way->n_points[left]++;
        if (way->at_marks ? !is_mark
                          : way->n_points[left] % way->stride != 0) {
            continue;
        }
        b->is_again = b->stride == 1 || way->n_losses % AGAIN_STRIDE == 0;
        way->n_losses++;
        b->n_losses[left] += !way->is_planted;
        way->n_wrong += !is_kept_after(b, c, n, (enum lost_left)left,
                                       way->is_planted);
    }
}

static void lose_power(struct bench *b, const struct sweep_case *c,
                       const struct write_log *log, struct course *way)
{
    bool is_begun = false;

    for (size_t n = 1; n <= log->n; n++) {
        const struct write_log_entry *en = &log->entries[n - 1];
        struct sweep_told end;
        bool is_mark = read_mark(en, "begin", b->told);

        is_begun = is_begun || is_mark;
        if (read_mark(en, "end", &end) || (way->to_first && way->n_wrong > 0)) {
            break;
        }
        is_mark = read_mark(en, "told", b->told);
        if (is_begun) {
            lose_at(b, c, n, is_mark, way);
        }
    }
}

static void test_cases(struct bench *b)
{
    size_t n;
    const struct sweep_case *cases = sweep_cases(&n);
    struct course way = {.stride = b->stride};

    for (size_t i = 0; i < n; i++) {
        uint64_t n_points = all_points(&way), n_losses = way.n_losses;

        way.n_wrong = 0;
        lose_power(b, &cases[i], record(b, &cases[i], NO_PLANT), &way);
        is_int(way.n_wrong, 0, "%s, %s: power lost at %llu of %llu points",
               b->type, cases[i].name,
               (unsigned long long)(way.n_losses - n_losses),
               (unsigned long long)(all_points(&way) - n_points));
    }
    diag("%s: power lost at %llu of %llu points: %llu with all that was written, "
         "%llu with nothing since the last flush, %llu with some",
         b->type, (unsigned long long)way.n_losses,
         (unsigned long long)all_points(&way),
         (unsigned long long)b->n_losses[LEFT_ALL],
         (unsigned long long)b->n_losses[LEFT_NONE],
         (unsigned long long)b->n_losses[LEFT_SOME]);
}

/* In a sample each fault is to be found once: right after something was told, or
 * anywhere. */
static void try_plant(struct bench *b, const struct sweep_case *c,
                      enum plant planted, struct course *total)
{
    bool is_sample = b->stride > 1;
    struct course way = {.is_planted = true, .at_marks = is_sample,
                         .to_first = is_sample, .stride = 1};

    lose_power(b, c, record(b, c, planted), &way);
    if (is_sample && way.n_wrong == 0) {
        way.at_marks = false;
        way.stride = PLANT_STRIDE;
        lose_power(b, c, record(b, c, planted), &way);
    }
    total->n_losses += way.n_losses;
    total->n_wrong += way.n_wrong;
}

static void test_plants(struct bench *b)
{
    /* A COMMIT says what belongs to it, so that one without its bytes is none; the file
     * that is converted to has only its name. */
    static const struct {
        enum plant plant;
        const char *name, *in;
    } plants[] = {
        {NO_FILES, "files that are not synced", "save and commit"},
        {NO_DIRS, "directories that are not synced", "save and commit"},
        {RENAME_FIRST, "a rename before the sync", "convert"},
    };
    size_t n;
    const struct sweep_case *cases = sweep_cases(&n);
    struct course total = {0};

    for (size_t i = 0; i < ARRAY_SIZE(plants); i++) {
        for (size_t k = 0; k < n; k++) {
            uint64_t n_wrong = total.n_wrong;
            bool is_it = strcmp(cases[k].name, plants[i].in) == 0;

            if (b->stride == 1 || is_it) {
                try_plant(b, &cases[k], plants[i].plant, &total);
            }
            if (is_it) {
                ok(total.n_wrong > n_wrong, "%s, %s: %s: seen", b->type,
                   cases[k].name, plants[i].name);
            }
        }
    }
    diag("%s: with planted faults power lost %llu times, %llu of them seen",
         b->type, (unsigned long long)total.n_losses,
         (unsigned long long)total.n_wrong);
}

int main(int argc, char **argv)
{
    struct bench b = {.type = argc > 1 ? argv[1] : ""};
    bool is_xfs = strcmp(b.type, "xfs") == 0;
    struct error e = {0};

    if (argc < 3) {
        bail_out("usage: power_loss ext4|xfs DIR [STRIDE]");
    }
    b.stride = sweep_stride(argc - 2, argv + 2,
                            is_xfs ? XFS_STRIDE : USUAL_STRIDE);
    bench = &b;
    b.told = mmap(NULL, sizeof(*b.told), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    snprintf(b.mountpoint, sizeof(b.mountpoint), "%.4000s/mnt", argv[2]);
    snprintf(b.root, sizeof(b.root), "%s/d", b.mountpoint);
    if (b.told == MAP_FAILED || mkdir(b.mountpoint, 0700) < 0 ||
        lost_disk_create(b.type, argv[2], b.mountpoint, &b.disk, &e) < 0) {
        bail_out("%s in %s: %s", b.type, argv[2], e.text);
    }
    test_cases(&b);
    test_plants(&b);
    lost_disk_destroy(b.disk);
    return tap_done();
}
