/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A snapshot goes to the disk while it is filled: no block before it is counted, all of them
 * when it is full, and nothing stays of what does not get there. Whoever fills it does so
 * while it is waited for, and the clock goes on by what is waited: no time passes.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "base/thread.h"
#include "ckpt/disk_model.h"
#include "ckpt/drain.h"
#include "ckpt/step.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define IMAGE_BYTES (2 * DIGEST_BLOCK_BYTES + 5000)

enum {
    N_BLOCKS = 3,
    PART_BYTES = 5,
    MAX_FILE_BYTES = 16 << 20,
    NOBODY_WAITS = 100000,
    SOON_NS = 10 * 1000 * 1000, /* what is there is seen then */
};

static const char uuid[] = "0f3a9c2e000000000000000000000000";
static const char garbage = '\xee'; /* what is not filled yet */

static char dir_path[PATH_MAX];
static int dir = -1;
static struct snap *snap;
static struct disk *disk;
static struct drain_progress progress;
static uint64_t digests[N_BLOCKS]; /* of blocks that are filled */

/* --- work --- */

static unsigned n_digests;

uint64_t __real_digest_short_of(const void *data, size_t len);
uint64_t __wrap_digest_short_of(const void *data, size_t len);
uint64_t __wrap_digest_short_of(const void *data, size_t len)
{
    n_digests++;
    return __real_digest_short_of(data, len);
}

/* --- time --- */

static void (*on_pause)(unsigned n); /* the n-th; NULL: another thread fills */
static unsigned n_pauses;
static uint64_t now_ns;
static long longest_ns;

uint64_t __wrap_clock_mono_ms(void);
uint64_t __wrap_clock_mono_ms(void)
{
    return now_ns / 1000000;
}

int __wrap_nanosleep(const struct timespec *t, struct timespec *left);
int __wrap_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    if (!on_pause) {
        sched_yield();
        return 0;
    }
    longest_ns = t->tv_sec > 0 || t->tv_nsec > longest_ns ? t->tv_nsec : longest_ns;
    now_ns += (uint64_t)t->tv_nsec;
    if (++n_pauses > NOBODY_WAITS) {
        bail_out("it is waited for ever");
    }
    on_pause(n_pauses);
    return 0;
}

/* --- a worker --- */

static uint64_t bytes_of(uint64_t block)
{
    uint64_t rest = IMAGE_BYTES - block * DIGEST_BLOCK_BYTES;

    return rest < DIGEST_BLOCK_BYTES ? rest : DIGEST_BLOCK_BYTES;
}

static void fill_block(uint64_t block)
{
    char *at = snap->map + SNAP_PAGE_BYTES + block * DIGEST_BLOCK_BYTES;

    memset(at, 'a' + (int)block, bytes_of(block));
}

static void count(uint64_t n)
{
    atomic_store_explicit(snap_filled(snap->map), n, memory_order_release);
}

static void fill_until(uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        fill_block(i);
    }
    count(n);
}

/* What the agent does when it is told. */
static void end_it(void)
{
    memcpy(snap->map + SNAP_PAGE_BYTES + snap_room(IMAGE_BYTES, 0), "part0", PART_BYTES);
    snap->head.part_bytes = PART_BYTES;
    progress.is_full = true;
}

/* --- */

static void make_bed(void)
{
    const struct snap_want want = {.room = snap_room(IMAGE_BYTES, PART_BYTES)};
    const char *tmp = getenv("TMPDIR");

    snprintf(dir_path, sizeof(dir_path), "%s/drain_ahead_test.XXXXXX", tmp ? tmp : "/tmp");
    dir = mkdtemp(dir_path) ? open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (dir < 0 || snap_create(dir, "snap-0", &want, &snap, NULL) < 0) {
        bail_out("no directory %s, or no snapshot", dir_path);
    }
    snap->head.state = SNAP_FILLING;
    snap->head.n_ranks = 1;
    snap->head.step = 40;
    snap->head.image_bytes = IMAGE_BYTES;
    str_copy(snap->head.uuid, sizeof(snap->head.uuid), uuid);
    fill_until(N_BLOCKS);
    for (uint64_t i = 0; i < N_BLOCKS; i++) {
        digests[i] = digest_short_of((const char *)snap_image(snap) + i * DIGEST_BLOCK_BYTES,
                                     bytes_of(i));
    }
}

static unsigned n_finished;

static int finish(const void *part, size_t len, const uint64_t *blocks, size_t n_blocks,
                  struct buf *ret, struct error *e)
{
    (void)e;
    n_finished++;
    buf_append(ret, part, len);
    buf_append(ret, (const char *)blocks, n_blocks * sizeof(*blocks));
    return ret->failed ? -ENOMEM : 0;
}

/* Nothing of it is there, on an empty disk. */
static void begin(void)
{
    disk_destroy(disk);
    disk = disk_create(DISK_SOUND);
    progress = (struct drain_progress){0};
    memset(snap->map + SNAP_PAGE_BYTES, garbage, snap->room);
    snap->head.part_bytes = UINT64_MAX / 2; /* who looks at it finds no memory for that */
    count(0);
    n_pauses = 0;
    longest_ns = 0;
    n_digests = n_finished = 0;
}

static bool is_crowded;

static int drain_as(bool is_filling, struct error *e)
{
    const struct drain job = {.io = disk_io(disk), .root = disk_root(disk), .snap = snap,
                              .file = "r00000.safetensors", .part_file = "r00000.part",
                              .is_filling = is_filling, .is_crowded = is_crowded,
                              .finish = finish, .progress = &progress};
    struct digest got = {0};
    int rc = drain_run(&job, &got, e);

    if (rc == 0 && !digest_equal(got, digest_of_blocks(digests, IMAGE_BYTES))) {
        return -EINVAL;
    }
    return rc;
}

static int drain(void)
{
    return drain_as(true, NULL);
}

static bool is_image(const char *data, size_t len)
{
    bool is_right = len == IMAGE_BYTES;

    for (uint64_t i = 0; i < N_BLOCKS && is_right; i++) {
        is_right = digest_short_of(data + i * DIGEST_BLOCK_BYTES, bytes_of(i)) == digests[i];
    }
    return is_right;
}

/* Both files are there, and their bytes are those of the end. */
static bool is_right(void)
{
    struct io *io = disk_io(disk);
    char name[STEP_NAME_BYTES];
    _free_ char *image = NULL, *part = NULL;
    size_t n_image = 0, n_part = 0;
    bool are_there;
    int step;

    step_name(40, uuid, name);
    step = io->ops->open_dir(io, disk_root(disk), name);
    if (step < 0) {
        return false;
    }
    are_there = io_read_file(io, step, "r00000.safetensors", MAX_FILE_BYTES, &image,
                             &n_image) == 0 &&
                io_read_file(io, step, "r00000.part", MAX_FILE_BYTES, &part, &n_part) == 0;
    io->ops->close(io, step);
    return are_there && is_image(image, n_image) && n_part == PART_BYTES + sizeof(digests) &&
           memcmp(part, "part0", PART_BYTES) == 0 &&
           memcmp(part + PART_BYTES, digests, sizeof(digests)) == 0;
}

static int count_name(void *arg, const char *name)
{
    (void)name;
    ++*(int *)arg;
    return 0;
}

/* The step's directory is gone, too. */
static bool is_empty(void)
{
    struct io *io = disk_io(disk);
    int n = 0;

    return io->ops->list(io, disk_root(disk), count_name, &n) == 0 && n == 0 &&
           disk_n_open(disk) == 0;
}

/* --- it comes --- */

static unsigned n_behind; /* times that more, or less, was written than is there */

/* Block by block, and then what is said of it. */
static void one_more(unsigned n)
{
    uint64_t there = (n - 1) * DIGEST_BLOCK_BYTES;

    n_behind += progress.bytes != (there < IMAGE_BYTES ? there : IMAGE_BYTES);
    if (n <= N_BLOCKS) {
        fill_block(n - 1);
        count(n);
    } else {
        end_it();
    }
}

static void test_follows(void)
{
    begin();
    on_pause = one_more;
    is_int(drain(), 0, "what is filled block by block is written, with its digest");
    is_int(n_pauses, N_BLOCKS + 1, "each is waited for, and the part");
    is_int((int)n_behind, 0, "what is there is written before the next one is waited for");
    ok(is_right(), "it is what it is at the end");
    is_int((intmax_t)progress.bytes, IMAGE_BYTES, "and all of it is counted");
    is_int((int)n_finished, 1, "of which is told once");
}

/* There is a part of a snapshot before, whose length is the same. */
static void test_part_of_before(void)
{
    begin();
    snap->head.part_bytes = PART_BYTES;
    on_pause = one_more;
    is_int(drain(), 0, "one over what another one has left");
    ok(is_right(), "has the part that comes last");
}

/* The n-th is waited for as long as can be. */
static void one_more_late(unsigned n)
{
    static uint64_t since_ms;

    (void)n;
    if (now_ns / 1000000 - since_ms > DRAIN_STALL_MS - 2 * SOON_NS / 1000000) {
        since_ms = now_ns / 1000000;
        if (snap_n_filled(snap) < N_BLOCKS) {
            fill_until(snap_n_filled(snap) + 1);
        } else {
            end_it();
        }
    }
}

static void test_slow(void)
{
    begin();
    on_pause = one_more_late;
    now_ns = 0;
    is_int(drain(), 0, "one that is slow is followed as well");
    ok(now_ns / 1000000 > 3 * DRAIN_STALL_MS, "as long as it goes on: %llu ms",
       (unsigned long long)now_ns / 1000000);
    ok(is_right(), "to its end");
    ok(longest_ns <= SOON_NS, "each block is seen soon");
}

static void all_at_once(unsigned n)
{
    (void)n;
    fill_until(N_BLOCKS);
    count(0); /* it counts no more */
    end_it();
}

static void rest_at_once(unsigned n)
{
    if (n == 1) {
        fill_until(1);
        return;
    }
    all_at_once(n);
    count(1);
}

static void test_full(void)
{
    begin();
    on_pause = all_at_once;
    is_int(drain(), 0, "what is full is written, whatever was counted");
    ok(n_pauses == 1 && is_right(), "all of it");
    begin();
    on_pause = rest_at_once;
    is_int(drain(), 0, "also where some was");
    ok(n_pauses == 2 && is_right(), "all of that");
    begin();
    all_at_once(0);
    is_int(drain(), 0, "what was full before it began");
    ok(n_pauses == 0 && is_right(), "is not waited for");
    is_int((int)n_finished, 1, "and made into one part");
    begin();
    all_at_once(0);
    progress.is_full = false;
    is_int(drain_as(false, NULL), 0, "nor what nobody fills");
    ok(n_pauses == 0 && is_right(), "whatever it counts");
}

static void end_at_once(unsigned n)
{
    (void)n;
    end_it();
}

/* Its number is a worker's: it says nothing of what is behind the image. */
static void test_large_count(void)
{
    static const uint64_t counts[] = {N_BLOCKS + 1, UINT64_MAX - 1, UINT64_MAX};

    for (size_t i = 0; i < ARRAY_SIZE(counts); i++) {
        begin();
        fill_until(N_BLOCKS);
        count(counts[i]);
        on_pause = end_at_once;
        is_int(drain(), 0, "%llu blocks are counted", (unsigned long long)counts[i]);
        ok(is_right(), "as many are written as there are");
        is_int(n_pauses, 1, "and the part is waited for all the same");
        is_int((intmax_t)progress.bytes, IMAGE_BYTES, "no more bytes than there are");
    }
}

/* It is counted no further than it was once: that is written already. */
static void count_back(unsigned n)
{
    count(n <= 3 ? N_BLOCKS - n : 0);
    if (n == 5) {
        end_it();
    }
}

static void test_counts_back(void)
{
    begin();
    fill_until(N_BLOCKS);
    on_pause = count_back;
    is_int(drain(), 0, "a count that goes back");
    ok(n_pauses == 5 && is_right(), "takes nothing back");
}

/* --- it comes to nothing --- */

static uint64_t stops_at; /* so many blocks come */
static bool is_cancelled, comes_too;

static void come_and_stop(unsigned n)
{
    (void)n;
    if (snap_n_filled(snap) < stops_at) {
        fill_until(snap_n_filled(snap) + 1);
    } else if (is_cancelled) {
        fill_until(stops_at + comes_too);
        progress.cancel = true;
    }
}

/* At any block, and behind the last one: then it is the part that is waited for. */
static void test_cancelled(void)
{
    on_pause = come_and_stop;
    is_cancelled = true;
    for (int with = 0; with < 2; with++) {
        comes_too = with;
        for (stops_at = 0; stops_at + comes_too <= N_BLOCKS; stops_at++) {
            struct error e = {0};

            begin();
            is_int(drain_as(true, &e), -ECANCELED, "%llu blocks are there when it is given up",
                   (unsigned long long)stops_at);
            is_int(e.code, ECANCELED, "which is said");
            ok(n_pauses == stops_at + 1 &&
                   progress.bytes == (stops_at < N_BLOCKS ? stops_at * DIGEST_BLOCK_BYTES
                                                          : IMAGE_BYTES),
               "%s", comes_too ? "at once, also where one more has come" : "at once");
            ok(is_empty(), "nothing is left");
        }
    }
    begin();
    progress.cancel = true;
    is_int(drain(), -ECANCELED, "or none, and it was before");
    ok(n_pauses == 0 && is_empty(), "then nothing is begun");
    is_cancelled = false;
}

static void test_stalled(void)
{
    enum { NOT_OFTEN = DRAIN_STALL_MS / 4 };

    on_pause = come_and_stop;
    for (stops_at = 0; stops_at <= N_BLOCKS; stops_at++) {
        struct error e = {0};
        uint64_t ms;

        begin();
        now_ns = 0;
        is_int(drain_as(true, &e), -ETIME, "nothing comes after %llu blocks",
               (unsigned long long)stops_at);
        is_int(e.code, ETIME, "which is said");
        ms = now_ns / 1000000;
        ok(ms > DRAIN_STALL_MS && ms < DRAIN_STALL_MS + 100, "when it was waited for: %llu ms",
           (unsigned long long)ms);
        ok(n_pauses < NOT_OFTEN * (stops_at + 1), "by few looks: %u", n_pauses);
        ok(is_empty(), "nothing is left");
    }
}

/* Until it is stopped, at the latest. */
static void count_on(unsigned n)
{
    atomic_fetch_add(snap_filled(snap->map), 1);
    progress.cancel = n > 100 * 1000;
}

/* Another program's word is no reason to wait for ever. */
static void test_counts_on(void)
{
    struct error e = {0};

    on_pause = count_on;
    begin();
    is_int(drain_as(true, &e), -ETIME, "who counts on behind the last block gets nowhere");
    ok(is_empty(), "and nothing is left");
}

/* --- the disk --- */

static unsigned depth_at[N_BLOCKS + 1], digests_at[N_BLOCKS + 1];
static struct io_blocks theirs;

static int note_depth(void *arg, uint64_t block)
{
    int rc = theirs.before(arg, block);

    digests_at[block] = n_digests;
    depth_at[block] = theirs.depth ? theirs.depth(arg) : UINT_MAX;
    return rc;
}

/* One that could have several blocks under way. */
static int write_blocks(struct io *io, int fd, const struct io_blocks *b)
{
    struct io_blocks mine = *b;
    int rc;

    theirs = *b;
    mine.before = b->before ? note_depth : NULL; /* that of the image */
    io->write_blocks = NULL;
    rc = io_write_blocks(io, fd, &mine);
    io->write_blocks = write_blocks;
    return rc;
}

/* Two blocks, and when the second one is written all are there. */
static void all_at_third(unsigned n)
{
    if (n < N_BLOCKS) {
        fill_until(n);
        return;
    }
    all_at_once(n);
}

static void test_depth(void)
{
    begin();
    on_pause = all_at_third;
    disk_io(disk)->write_blocks = write_blocks;
    is_int(drain(), 0, "a disk that takes many blocks at once");
    ok(depth_at[0] == 4 && depth_at[1] == 4, "has a few of them while it is filled");
    ok(depth_at[2] > 100 && is_right(), "and all when it is full");
    begin();
    all_at_once(0);
    progress.is_full = false;
    disk_io(disk)->write_blocks = write_blocks;
    is_int(drain_as(false, NULL), 0, "what nobody fills");
    ok(depth_at[0] > 100 && is_right(), "it has at once");
}

static unsigned n_ahead; /* digests before it was full */

static void one_more_counted(unsigned n)
{
    n_ahead = progress.is_full ? n_ahead : n_digests;
    one_more(n);
}

static void all_at_third_counted(unsigned n)
{
    n_ahead = n_digests;
    all_at_third(n);
}

/* Those that copy have all processors. */
static void test_crowded(void)
{
    static void (*const fills[])(unsigned n) = {one_more_counted, all_at_third_counted};
    static const unsigned n_left[] = {3, 2}; /* blocks before it is full */

    for (int i = 0; i < 4; i++) {
        begin();
        is_crowded = i % 2 > 0;
        n_ahead = 0;
        on_pause = fills[i / 2];
        is_int(drain(), 0, "one that is filled %s", i < 2 ? "block by block" : "all at once");
        is_int((int)n_ahead, is_crowded ? 0 : (int)n_left[i / 2], "digests are found %s",
               is_crowded ? "when it is full" : "while it is filled");
        is_int((int)n_digests, N_BLOCKS, "each once");
        ok(is_right(), "and are right");
    }
    begin();
    is_crowded = true;
    on_pause = all_at_once;
    disk_io(disk)->write_blocks = write_blocks;
    is_int(drain(), 0, "or is full at once");
    is_int((int)digests_at[2], 2, "then they are found while the disk writes");
    is_crowded = false;
}

/* The first calls, some while the image is written, and the last ones. */
enum { FEW = 5 };

static uint64_t call_of(unsigned i, uint64_t n_calls)
{
    return i < FEW       ? i + 1
           : i < 2 * FEW ? n_calls * (i - FEW + 1) / (FEW + 1)
                         : n_calls - (i - 2 * FEW);
}

static void test_failures(void)
{
    unsigned n_again = 0, n_wrong = 0;
    uint64_t n_calls;

    on_pause = one_more;
    begin();
    is_int(drain(), 0, "a disk that does not fail");
    n_calls = disk_n_calls(disk);
    for (unsigned i = 0; i < 3 * FEW; i++) {
        int rc;

        begin();
        disk_fail_at(disk, call_of(i, n_calls), EIO, false);
        rc = drain();
        n_again += rc == 0;
        n_wrong += rc == 0 ? !is_right() : rc != -EIO || !is_empty();
    }
    ok(n_again > FEW, "one of %llu calls fails, and the file is written anew: %u times",
       (unsigned long long)n_calls, n_again);
    is_int((int)n_wrong, 0, "or nothing is left");
}

/* --- by another thread --- */

static void *fill_all(void *arg)
{
    for (uint64_t i = 0; i < N_BLOCKS; i++) {
        fill_block(i);
        count(i + 1);
    }
    end_it();
    return arg;
}

static void test_thread(void)
{
    pthread_t t;

    begin();
    on_pause = NULL;
    if (thread_start(&t, fill_all, NULL) != 0) {
        bail_out("no thread");
    }
    is_int(drain(), 0, "what another thread fills meanwhile");
    pthread_join(t, NULL);
    ok(is_right(), "is what it is at the end");
}

int main(void)
{
    make_bed();
    test_follows();
    test_part_of_before();
    test_slow();
    test_full();
    test_large_count();
    test_counts_back();
    test_cancelled();
    test_stalled();
    test_counts_on();
    test_depth();
    test_crowded();
    test_failures();
    test_thread();
    disk_destroy(disk);
    snap_destroy(snap);
    close(dir);
    fs_remove_tree(dir_path, NULL);
    return tap_done();
}
