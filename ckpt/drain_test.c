/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Snapshots of two ranks become files of one step: whatever call to the filesystem
 * fails, and wherever it is ended, both are there or what failed has left nothing.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/disk_model.h"
#include "ckpt/drain.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

enum { IMAGE_BYTES = 9000, LONG_BYTES = DIGEST_BLOCK_BYTES + 5000 };
static const char uuid[] = "0f3a9c2e000000000000000000000000";

static char dir_path[PATH_MAX];
static int dir = -1;
static struct drain_progress *late; /* of cancel_late() */
static struct drain_progress *at_block; /* told at the next block that nobody wants it */

uint64_t __real_digest_short_of(const void *data, size_t len);
uint64_t __wrap_digest_short_of(const void *data, size_t len);

uint64_t __wrap_digest_short_of(const void *data, size_t len)
{
    if (at_block) {
        at_block->cancel = true;
        at_block = NULL;
    }
    return __real_digest_short_of(data, len);
}

static void make_dir(void)
{
    const char *tmp = getenv("TMPDIR");

    snprintf(dir_path, sizeof(dir_path), "%s/drain_test.XXXXXX",
             tmp ? tmp : "/tmp");
    dir = mkdtemp(dir_path) ? open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                            : -1;
    if (dir < 0) {
        bail_out("no directory %s", dir_path);
    }
}

static struct snap *make_snap(uint32_t rank, size_t bytes)
{
    const struct snap_want want = {.room = snap_room(bytes, 16)};
    struct snap *s = NULL;
    char name[32];

    snprintf(name, sizeof(name), "snap-%u", rank);
    if (snap_create(dir, name, &want, &s, NULL) < 0) {
        bail_out("no snapshot");
    }
    s->head.state = SNAP_FULL;
    s->head.rank = rank;
    s->head.n_ranks = 2;
    s->head.step = 40;
    s->head.image_bytes = bytes;
    s->head.part_bytes = 5;
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    for (size_t i = 0; i < bytes; i++) {
        s->map[SNAP_PAGE_BYTES + i] = (char)(i * 3 + rank);
    }
    snprintf(s->map + SNAP_PAGE_BYTES + snap_room(bytes, 0), 16, "part%u",
             rank);
    snap_note(s);
    return s;
}

static int finish(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e)
{
    (void)e;
    buf_append(ret, part, len);
    buf_append(ret, (const char *)blocks, n_blocks * sizeof(*blocks));
    return ret->failed ? -ENOMEM : 0;
}

static int drain(struct disk *d, const struct snap *s,
                 struct drain_progress *progress, struct digest *ret,
                 struct error *e)
{
    char file[32], part[32];
    struct drain job = {.io = disk_io(d), .root = disk_root(d), .snap = s,
                        .file = file, .part_file = part, .finish = finish,
                        .progress = progress};

    snprintf(file, sizeof(file), "r%05u.safetensors", s->head.rank);
    snprintf(part, sizeof(part), "r%05u.part", s->head.rank);
    return drain_run(&job, ret, e);
}

/* Whether both files of a rank are there: 1, neither: 0, or something else: -1. */
static int look(struct disk *d, const struct snap *s)
{
    struct io *io = disk_io(d);
    char name[STEP_NAME_BYTES], file[32];
    uint64_t block = digest_short_of(snap_image(s), IMAGE_BYTES);
    _free_ char *image = NULL, *part = NULL;
    size_t n_image = 0, n_part = 0;
    int step, has_image, has_part;

    step_name(40, uuid, name);
    step = io->ops->open_dir(io, disk_root(d), name);
    if (step < 0) {
        return 0;
    }
    snprintf(file, sizeof(file), "r%05u.safetensors", s->head.rank);
    has_image = io_read_file(io, step, file, 1 << 20, &image, &n_image) == 0;
    snprintf(file, sizeof(file), "r%05u.part", s->head.rank);
    has_part = io_read_file(io, step, file, 1 << 20, &part, &n_part) == 0;
    io->ops->close(io, step);
    if (!has_image && !has_part) {
        return 0;
    }
    return has_image && has_part && n_image == IMAGE_BYTES &&
                   memcmp(image, snap_image(s), IMAGE_BYTES) == 0 &&
                   n_part == 5 + sizeof(block) &&
                   memcmp(part, snap_part(s), 5) == 0 &&
                   memcmp(part + 5, &block, sizeof(block)) == 0
               ? 1 : -1;
}

/* What the disk has to have: a part is for whoever commits while there is power. */
static bool has_image(struct disk *d, const struct snap *s)
{
    struct io *io = disk_io(d);
    char name[STEP_NAME_BYTES], file[32];
    _free_ char *image = NULL;
    size_t n = 0;
    int step, rc;

    step_name(40, uuid, name);
    step = io->ops->open_dir(io, disk_root(d), name);
    snprintf(file, sizeof(file), "r%05u.safetensors", s->head.rank);
    rc = step < 0 ? step : io_read_file(io, step, file, 1 << 20, &image, &n);
    if (step >= 0) {
        io->ops->close(io, step);
    }
    return rc == 0 && n == IMAGE_BYTES && memcmp(image, snap_image(s), IMAGE_BYTES) == 0;
}

/* After what whoever commits sees to: the directory's own name is on the disk. */
static void lose_power(struct disk *d, uint64_t seed)
{
    disk_io(d)->ops->sync(disk_io(d), disk_root(d));
    disk_lose_power(d, seed);
}

static uint64_t test_two(const struct snap *a, const struct snap *b)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct digest got, want;
    struct error e = {0};
    uint64_t block = digest_short_of(snap_image(a), IMAGE_BYTES), n;

    want = digest_of_blocks(&block, IMAGE_BYTES);
    is_int(drain(d, a, &progress, &got, NULL), 0, "the first one");
    ok(digest_equal(got, want), "has the digest of its bytes");
    is_int((int)progress.bytes, IMAGE_BYTES, "and counts them");
    is_int(drain(d, b, &progress, &got, &e), 0, "the second one joins");
    is_int(e.code, 0, "without a word of what is there");
    ok(look(d, a) == 1 && look(d, b) == 1, "both are there");
    is_int((int)disk_n_open(d), 0, "nothing is left open");
    n = disk_n_calls(d);
    lose_power(d, 12345);
    ok(has_image(d, a) && has_image(d, b), "their images without power, too");
    return n;
}

/* What fails cleans up, unless that fails, too; the other rank's files stay. */
static void test_failures(const struct snap *a, const struct snap *b,
                          uint64_t n_calls)
{
    static const int errors[] = {EIO, ENOSPC, EDQUOT, EROFS, ESTALE};
    unsigned n_wrong = 0, n_left = 0, n_open = 0, n_again = 0, n_lost = 0;

    for (uint64_t at = 1; at <= n_calls; at++) {
        for (size_t i = 0; i < ARRAY_SIZE(errors); i++) {
            _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
            struct drain_progress progress = {0};
            struct digest got;
            struct error e = {0};
            int first, second;

            disk_fail_at(d, at, errors[i], false);
            first = drain(d, a, &progress, &got, &e);
            second = drain(d, b, &progress, &got, &e);
            n_wrong += first < 0 && second < 0;
            n_wrong += e.code != (first < 0 || second < 0 || errors[i] != EIO ? errors[i] : 0);
            n_left += look(d, a) != (first == 0) || look(d, b) != (second == 0);
            n_open += disk_n_open(d);
            if (first == 0 && second == 0) {
                n_again++;
                lose_power(d, at);
                n_lost += !has_image(d, a) || !has_image(d, b);
            }
        }
    }
    is_int((int)n_wrong, 0, "each of %llu calls fails one of them",
           (unsigned long long)n_calls);
    ok(n_again > 0, "but for EIO of a file, which is written anew");
    is_int((int)n_lost, 0, "and there without power");
    is_int((int)n_left, 0, "which has left nothing, the other one all");
    is_int((int)n_open, 0, "and nothing open");
}

static void test_cancelled(const struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {.cancel = true};
    struct digest got;

    is_int(drain(d, a, &progress, &got, NULL), -ECANCELED, "ended before it began");
    is_int((int)disk_n_calls(d), 0, "the disk was not asked for anything");
    is_int(look(d, a), 0, "it has left nothing");
}

/* Of more than one block, the last one shorter. */
static void test_blocks(const struct snap *large)
{
    const char *image = snap_image(large);
    const uint64_t blocks[] = {
        digest_short_of(image, DIGEST_BLOCK_BYTES),
        digest_short_of(image + DIGEST_BLOCK_BYTES, LONG_BYTES - DIGEST_BLOCK_BYTES)};
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct digest got;

    is_int(drain(d, large, &progress, &got, NULL), 0, "two blocks");
    ok(digest_equal(got, digest_of_blocks(blocks, LONG_BYTES)), "with their digests");
    is_int((intmax_t)progress.bytes, LONG_BYTES, "and all bytes are counted");
}

/* Nobody waits for a large one to end. */
static void test_cancelled_between(const struct snap *large)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct digest got;

    at_block = &progress;
    is_int(drain(d, large, &progress, &got, NULL), -ECANCELED, "ended at its first block");
    is_int((intmax_t)progress.bytes, DIGEST_BLOCK_BYTES, "it went no further");
    is_int(look(d, large), 0, "it has left nothing");
}

/* Nobody waits for a file to be written anew. */
static void test_cancelled_again(const struct snap *a, uint64_t n_calls)
{
    unsigned n_cancelled = 0, n_blamed = 0;

    for (uint64_t at = 1; at <= n_calls; at++) {
        _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
        struct drain_progress progress = {0};
        struct digest got;
        struct error e = {0};
        int rc;

        disk_fail_at(d, at, EIO, false);
        at_block = &progress; /* by the time that it is written first */
        rc = drain(d, a, &progress, &got, &e);
        at_block = NULL;
        n_cancelled += rc == -ECANCELED && e.code == ECANCELED;
        n_blamed += strstr(e.text, "and again, with a new file") != NULL;
    }
    ok(n_cancelled > 2, "EIO of %u calls, and nobody wants it any more", n_cancelled);
    is_int((int)n_blamed, 0, "the disk is not to blame for what was not written anew");
}

/* Told so when the image is on the disk. */
static int cancel_late(const void *part, size_t len, const uint64_t *blocks,
                       size_t n_blocks, struct buf *ret, struct error *e)
{
    late->cancel = true;
    return finish(part, len, blocks, n_blocks, ret, e);
}

static void test_cancelled_late(const struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct drain job = {.io = disk_io(d), .root = disk_root(d), .snap = a,
                        .file = "r00000.safetensors", .part_file = "r00000.part",
                        .finish = cancel_late, .progress = &progress};
    struct digest got;

    late = &progress;
    is_int(drain_run(&job, &got, NULL), -ECANCELED, "ended when all was there");
    is_int(look(d, a), 0, "it has left nothing, either");
}

/* The worker can write to its part at any time. */
static struct snap *spoilt;

static int spoil(const void *part, size_t len, const uint64_t *blocks, size_t n_blocks,
                 struct buf *ret, struct error *e)
{
    memset(spoilt->map + SNAP_PAGE_BYTES + snap_room(IMAGE_BYTES, 0), 'x', len);
    return finish(part, len, blocks, n_blocks, ret, e);
}

static void test_spoilt(struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct drain job = {.io = disk_io(d), .root = disk_root(d), .snap = a,
                        .file = "r00000.safetensors", .part_file = "r00000.part",
                        .finish = spoil, .progress = &progress};
    char part[5];
    struct digest got;

    memcpy(part, snap_part(a), sizeof(part));
    spoilt = a;
    is_int(drain_run(&job, &got, NULL), 0, "a part that changes while it is looked at");
    memcpy(a->map + SNAP_PAGE_BYTES + snap_room(IMAGE_BYTES, 0), part, sizeof(part));
    is_int(look(d, a), 1, "is what it was at first");
}

/* A part that does not parse, say, from some place on. */
static int refuse(const void *part, size_t len, const uint64_t *blocks,
                  size_t n_blocks, struct buf *ret, struct error *e)
{
    (void)len, (void)blocks, (void)n_blocks;
    buf_append(ret, part, 1);
    return error_text(e, ERR_FORMAT, "no part");
}

static void test_bad_part(const struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct drain job = {.io = disk_io(d), .root = disk_root(d), .snap = a,
                        .file = "r00000.safetensors", .part_file = "r00000.part",
                        .finish = refuse, .progress = &progress};
    struct digest got;

    is_int(drain_run(&job, &got, NULL), -ERR_FORMAT, "a part that is none");
    is_int(look(d, a), 0, "leaves nothing");
}

/* --- instead of another one --- */

/* What another node has left of the first rank, or puts there only now. */
static struct disk *late_disk;

static void leave(struct disk *d, const char *file)
{
    struct io *io = disk_io(d);
    char name[STEP_NAME_BYTES];
    int step, fd;

    step_name(40, uuid, name);
    io->ops->make_dir(io, disk_root(d), name);
    step = io->ops->open_dir(io, disk_root(d), name);
    fd = io->ops->create(io, step, file);
    if (fd < 0 || io_write_all(io, fd, "left", 4, 0) < 0) {
        bail_out("no %s", file);
    }
    io->ops->close(io, fd);
    io->ops->close(io, step);
}

static int finish_late(const void *part, size_t len, const uint64_t *blocks,
                       size_t n_blocks, struct buf *ret, struct error *e)
{
    leave(late_disk, "r00000.part");
    return finish(part, len, blocks, n_blocks, ret, e);
}

static void test_instead(const struct snap *a)
{
    static const struct {
        int (*finish)(const void *part, size_t len, const uint64_t *blocks,
                      size_t n_blocks, struct buf *ret, struct error *e);
        int rc, look;
        const char *what;
    } cases[] = {
        {finish, 0, 1, "over what another one has left"},
        {finish_late, 0, 1, "also of what comes only now"},
        {refuse, -ERR_FORMAT, 0, "where it fails nothing is left of that"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
        struct drain_progress progress = {0};
        struct drain job = {.io = disk_io(d), .root = disk_root(d), .snap = a,
                            .file = "r00000.safetensors", .part_file = "r00000.part",
                            .progress = &progress};
        struct digest got;

        late_disk = d;
        job.finish = cases[i].finish;
        if (job.finish != finish_late) {
            leave(d, "r00000.safetensors");
            leave(d, "r00000.part");
        }
        is_int(drain_run(&job, &got, NULL), -EEXIST, "what is there, or comes, is somebody's");
        job.is_instead = true;
        is_int(drain_run(&job, &got, NULL), cases[i].rc, "%s", cases[i].what);
        is_int(look(d, a), cases[i].look, "as it should be");
    }
}

static void test_sealed(const struct snap *a, const struct snap *b)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct drain job = {.io = disk_io(d), .root = disk_root(d), .snap = a,
                        .file = "r00000.safetensors", .part_file = "r00000.part",
                        .finish = finish, .progress = &progress, .is_instead = true};
    struct digest got;
    struct error e = {0};

    is_int(drain(d, a, &progress, &got, NULL), 0, "the first one");
    leave(d, "COMMIT");
    is_int(drain(d, b, &progress, &got, &e), -EEXIST, "one that comes too late: %s", e.text);
    like(e.text, "is a checkpoint, or about to be one", "is told why");
    is_int(drain_run(&job, &got, &e), -EEXIST, "also instead of the first");
    ok(look(d, a) == 1 && look(d, b) == 0, "and nothing is touched");
}

/* --- room, and memory --- */

static struct statvfs room_is;
static int room_error, memory_error;
static uid_t user;

int __wrap_fstatvfs(int fd, struct statvfs *ret);
int __wrap_fstatvfs(int fd, struct statvfs *ret)
{
    (void)fd;
    errno = EIO;
    *ret = room_is;
    return -room_error;
}

uid_t __wrap_geteuid(void);
uid_t __wrap_geteuid(void)
{
    return user;
}

int __real_snap_check(const struct snap *s, struct error *e);
int __wrap_snap_check(const struct snap *s, struct error *e);
int __wrap_snap_check(const struct snap *s, struct error *e)
{
    return memory_error ? error_text(e, memory_error, "memory that is gone")
                        : __real_snap_check(s, e);
}

static void test_room(const struct snap *a)
{
    static const struct {
        uid_t user;
        fsblkcnt_t blocks, free, available;
        int error, rc;
    } cases[] = {
        {0, 100, 9, 0, 0, 0}, {0, 100, 8, 8, 0, -ENOSPC}, {1000, 100, 9, 9, 0, 0},
        {1000, 100, 9, 8, 0, -ENOSPC}, {1000, 0, 0, 0, 0, 0}, {1000, 100, 0, 0, 1, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
        struct drain_progress progress = {0};
        struct error e = {0};
        struct digest got;

        user = cases[i].user;
        room_error = cases[i].error;
        room_is = (struct statvfs){.f_frsize = 1000, .f_blocks = cases[i].blocks,
                                   .f_bfree = cases[i].free, .f_bavail = cases[i].available};
        is_int(drain(d, a, &progress, &got, &e), cases[i].rc, "room %zu: %s", i, e.text);
        ok((disk_n_calls(d) == 0) == (cases[i].rc < 0), "before anything is written");
    }
    room_is = (struct statvfs){0};
}

static void test_memory(const struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct drain_progress progress = {0};
    struct error e = {0};
    struct digest got;

    memory_error = ENODATA;
    is_int(drain(d, a, &progress, &got, &e), -ENODATA, "what was read may be zeros: %s", e.text);
    is_int(look(d, a), 0, "nothing is left");
    at_block = &progress;
    is_int(drain(d, a, &progress, &got, &e), -ECANCELED, "unless nobody wants it");
    memory_error = 0;
}

/* --- in which order --- */

static const struct io_ops *real_ops;
static int n_synced, n_synced_before_part = -1;

static int count_sync(struct io *io, int fd)
{
    n_synced++;
    return real_ops->sync(io, fd);
}

static int look_at_create(struct io *io, int dir_fd, const char *name)
{
    if (strcmp(name, "r00000.part") == 0) {
        n_synced_before_part = n_synced;
    }
    return real_ops->create(io, dir_fd, name);
}

/* Where a node is lost its part says that all else is on the disk. */
static void test_part_last(const struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);
    struct io *io = disk_io(d);
    struct io_ops ops = *io->ops;
    struct drain_progress progress = {0};
    struct digest got;

    real_ops = io->ops;
    ops.sync = count_sync;
    ops.create = look_at_create;
    io->ops = &ops;
    is_int(drain(d, a, &progress, &got, NULL), 0, "a rank's files are written");
    io->ops = real_ops;
    is_int(n_synced_before_part, 1, "its image is synced before there is a part");
    is_int(n_synced, 2, "then their names, and of a part no more");
}

static int n_pauses, gets_room_at, gives_up_at, ends_at;
static struct drain_progress *waiting;

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)t, (void)left;
    n_pauses++;
    room_is.f_bfree = room_is.f_bavail += n_pauses == gets_room_at;
    waiting->may_get_room = n_pauses != gives_up_at;
    waiting->cancel = n_pauses == ends_at;
    return 0;
}

static int drain_full(const struct snap *a, struct disk *d, bool may_get_room)
{
    struct drain_progress progress = {.may_get_room = may_get_room};
    struct digest got;

    room_error = 0;
    waiting = &progress;
    n_pauses = 0;
    room_is = (struct statvfs){.f_frsize = 1, .f_blocks = 1 << 20,
                               .f_bfree = IMAGE_BYTES - 1, .f_bavail = IMAGE_BYTES - 1};
    return drain(d, a, &progress, &got, NULL);
}

/* Older checkpoints may go when another save is settled: that is waited for, and for no
 * other thing. */
static void test_full(const struct snap *a)
{
    _cleanup_(disk) struct disk *d = disk_create(DISK_SOUND);

    gets_room_at = 3;
    is_int(drain_full(a, d, false), -ENOSPC, "a disk is a byte too small");
    is_int(n_pauses, 0, "which is told at once");
    is_int(drain_full(a, d, true), 0, "older ones may go soon");
    is_int(n_pauses, 3, "and when they have it is written");
    is_int(look(d, a), 1, "all of it");
    gets_room_at = 0;
    gives_up_at = 5;
    is_int(drain_full(a, d, true), -ENOSPC, "they have gone, and that was not enough");
    is_int(n_pauses, 5, "which is told then");
    gives_up_at = 0;
    is_int(drain_full(a, d, true), -ENOSPC, "or they do not go");
    ok(n_pauses > 100, "which takes a minute: %d", n_pauses);
    ends_at = 7;
    is_int(drain_full(a, d, true), -ECANCELED, "nobody wants it any more");
    is_int(n_pauses, 7, "so it does not wait on");
    room_is = (struct statvfs){0};
}

int main(void)
{
    _cleanup_(snap) struct snap *a = NULL, *b = NULL, *large = NULL;
    uint64_t n_calls;

    make_dir();
    a = make_snap(0, IMAGE_BYTES);
    b = make_snap(1, IMAGE_BYTES);
    large = make_snap(2, LONG_BYTES);
    n_calls = test_two(a, b);
    test_failures(a, b, n_calls);
    test_cancelled(a);
    test_cancelled_again(a, n_calls);
    test_cancelled_late(a);
    test_blocks(large);
    test_cancelled_between(large);
    test_spoilt(a);
    test_bad_part(a);
    test_instead(a);
    test_sealed(a, b);
    test_room(a);
    test_memory(a);
    test_part_last(a);
    test_full(a);
    close(dir);
    fs_remove_tree(dir_path, NULL);
    return tap_done();
}
