/* SPDX-License-Identifier: Apache-2.0 */
/*
 * muster-ckpt-bench: what saving and loading take the workers of a run, beside what
 * memory and the disk of this machine take for their bytes in the same run. For
 * `muster ckpt bench`, and scripts/bench.
 *
 *   muster-ckpt-bench DIRECTORY BYTES TENSORS ROUNDS OUTPUT [PART[,PART]]
 *
 * The parts, of which all are measured where none is named: saves, lazy, restore, cold;
 * and map, only where it is named, as it needs an agent with room for the saves.
 * Rank 0 writes lines to OUTPUT: what it is, and the nanoseconds of each round, of
 * which that of the slowest rank counts; and how far it is, as "# 3 5 saves".
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/io_direct.h"
#include "ckpt/limits.h"
#include "muster.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_ROUNDS = 100, MAX_THREADS = 4, REPEATS = 200 };

static struct muster *m;
static struct muster_ckpt *ck;
static FILE *out;
static uint64_t n_bytes, n_tensors;
static int n_rounds;
static char *data;

static void fail_as(const char *what, const char *why)
{
    fprintf(stderr, "muster-ckpt-bench: %s: %s\n", what, why);
    exit(1);
}

static void fail(const char *what)
{
    fail_as(what, ck ? muster_ckpt_error_text(ck) : strerror(errno));
}

static void tell(const char *what, const uint64_t *ns, int n)
{
    if (!out) {
        return;
    }
    fprintf(out, "%s", what);
    for (int i = 0; i < n; i++) {
        fprintf(out, " %" PRIu64, ns[i]);
    }
    fprintf(out, "\n");
    fflush(out);
}

static void tell_round(const char *what, int round)
{
    if (out) {
        fprintf(out, "# %d %d %s\n", round, n_rounds, what);
        fflush(out);
    }
}

/* All ranks begin together, and the slowest counts. */
static uint64_t slowest(uint64_t ns)
{
    int64_t all = (int64_t)ns;

    if (muster_allreduce(m, &all, &all, 1, MUSTER_INT64, MUSTER_MAX) < 0) {
        fail_as("allreduce", muster_error_text(m));
    }
    return (uint64_t)all;
}

/* --- memory --- */

static char *fresh(void)
{
    char *at = mmap(NULL, n_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        fail("memory");
    }
    return at;
}

static char *fresh_shared(void)
{
    int fd = memfd_create("muster-ckpt-bench", MFD_CLOEXEC);
    char *at = fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0
                   ? mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;

    if (at == MAP_FAILED) {
        fail("shared memory");
    }
    close(fd);
    return at;
}

/* The limit. By one thread, or by as many as a save takes: whatever is faster. It is
 * measured in each round, as what else the machine does changes from one to another. */
static uint64_t copy_ns(char *to, bool is_fresh)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    uint64_t best;

    slowest(0);
    best = limits_copy(to, data, n_bytes,
                       (unsigned)(n < MAX_THREADS ? n : MAX_THREADS));
    if (!is_fresh) {
        uint64_t one = limits_copy(to, data, n_bytes, 1);

        best = one < best ? one : best;
    }
    return slowest(best);
}

static uint64_t fresh_copy_ns(bool is_shared)
{
    char *to = is_shared ? fresh_shared() : fresh();
    uint64_t ns = copy_ns(to, true);

    munmap(to, n_bytes);
    return ns;
}

/* --- what is saved --- */

static void fill(void)
{
    uint64_t x = (uint64_t)muster_rank(m) + 1;

    data = fresh();
    for (uint64_t i = 0; i + 8 <= n_bytes; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(data + i, &x, sizeof(x));
    }
}

static void tensor_name(char *to, size_t size, uint64_t rank, uint64_t i)
{
    snprintf(to, size, "rank.%" PRIu64 ".layers.%" PRIu64 ".weight", rank, i);
}

static void register_all(char *at)
{
    uint64_t n = n_bytes / n_tensors, rank = (uint64_t)muster_rank(m);

    for (uint64_t i = 0; i < n_tensors; i++) {
        char name[64];
        struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_U8,
                                       .n_dims = 1, .shape = &n,
                                       .data = at + i * n};

        tensor_name(name, sizeof(name), rank, i);
        if (muster_ckpt_tensor(ck, &t) < 0) {
            fail("register");
        }
    }
}

static void wait_durable(uint64_t save)
{
    if (muster_ckpt_wait(ck, save, MUSTER_CKPT_DURABLE, -1) < 0) {
        fail("wait");
    }
}

/* --- saving --- */

static int64_t n_steps;

/* In `ns`, how long the caller was held up, and until it was durable. */
static void save_once(uint64_t *ret_blocked, uint64_t *ret_durable)
{
    uint64_t begin, save = 0;

    slowest(0);
    begin = clock_mono_ns();
    if (muster_ckpt_save(ck, ++n_steps, 0, &save) < 0) {
        fail("save");
    }
    *ret_blocked = slowest(clock_mono_ns() - begin);
    wait_durable(save);
    *ret_durable = slowest(clock_mono_ns() - begin);
}

/* Arithmetic that needs no memory, for so long. */
static void compute(uint64_t ns)
{
    uint64_t end = clock_mono_ns() + ns;
    volatile uint64_t x = 1;

    while (clock_mono_ns() < end) {
        for (int i = 0; i < 1000; i++) {
            x = x * 3 + 1;
        }
    }
}

/* The limit of that: of all ranks, a file each. */
static uint64_t write_ns(int dir)
{
    char name[64];
    struct error e = {0};
    uint64_t ns = 0;

    snprintf(name, sizeof(name), "limit-%d", muster_rank(m));
    slowest(0);
    if (limits_write(io_direct(), dir, name, data, n_bytes, &ns, &e) < 0) {
        fprintf(stderr, "muster-ckpt-bench: %s\n", e.text);
        exit(1);
    }
    return slowest(ns);
}

/* After the first one the program computes for a while, as it would: meanwhile the
 * agent makes the memory of the second. */
static void measure_eager(int dir)
{
    uint64_t blocked[MAX_ROUNDS], durable[MAX_ROUNDS], limit[MAX_ROUNDS];
    uint64_t disk[MAX_ROUNDS];
    char *to = fresh();

    limit[0] = fresh_copy_ns(true);
    save_once(&blocked[0], &durable[0]);
    tell("first", blocked, 1);
    tell("first-limit", limit, 1);
    compute(3 * blocked[0]);
    copy_ns(to, true);
    for (int i = -1; i < n_rounds; i++) {
        int at = i < 0 ? 0 : i;

        tell_round("saves", i + 1);
        limit[at] = copy_ns(to, false);
        save_once(&blocked[at], &durable[at]);
        disk[at] = write_ns(dir);
        if (i < 0) {
            tell("second", blocked, 1);
            tell("second-limit", limit, 1);
        } else if (i == 0) {
            tell("third", blocked, 1);
            tell("third-limit", limit, 1);
        }
    }
    munmap(to, n_bytes);
    tell("eager", blocked, n_rounds);
    tell("eager-limit", limit, n_rounds);
    tell("durable", durable, n_rounds);
    tell("durable-limit", disk, n_rounds);
}

/* Four times as long as the copy takes is computed. */
static void measure_lazy(void)
{
    uint64_t blocked[MAX_ROUNDS], limit[MAX_ROUNDS];
    char *to = fresh();

    copy_ns(to, true);
    for (int i = 0; i < n_rounds; i++) {
        uint64_t begin, save = 0;

        tell_round("lazy saves", i);
        limit[i] = copy_ns(to, false);
        begin = clock_mono_ns();
        if (muster_ckpt_save(ck, ++n_steps, MUSTER_CKPT_LAZY, &save) < 0) {
            fail("save");
        }
        blocked[i] = clock_mono_ns() - begin;
        compute(4 * limit[i] + 2000000);
        begin = clock_mono_ns();
        if (muster_ckpt_fence(ck) < 0) {
            fail("fence");
        }
        blocked[i] = slowest(blocked[i] + clock_mono_ns() - begin);
        wait_durable(save);
    }
    munmap(to, n_bytes);
    tell("lazy", blocked, n_rounds);
    tell("lazy-limit", limit, n_rounds);
}

/* --- loading --- */

static void load_once(uint64_t *ret)
{
    char *to = fresh();
    uint64_t begin;

    register_all(to);
    slowest(0);
    begin = clock_mono_ns();
    if (muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, NULL) != 0) {
        fail("load");
    }
    *ret = slowest(clock_mono_ns() - begin);
    if (memcmp(to, data, n_bytes / n_tensors * n_tensors) != 0) {
        fail("what was loaded is wrong");
    }
    register_all(data);
    munmap(to, n_bytes);
}

static void measure_restore(void)
{
    uint64_t ns[MAX_ROUNDS], limit[MAX_ROUNDS];

    for (int i = 0; i < n_rounds; i++) {
        tell_round("loads from memory", i);
        limit[i] = fresh_copy_ns(false);
        load_once(&ns[i]);
    }
    tell("restore", ns, n_rounds);
    tell("restore-limit", limit, n_rounds);
}

static struct muster_ckpt_view *map_one(int64_t step, uint64_t k)
{
    uint64_t n = n_bytes / n_tensors;
    char name[64];
    struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_U8, .n_dims = 1,
                                   .shape = &n};
    struct muster_ckpt_view *ret;

    tensor_name(name, sizeof(name), (uint64_t)muster_rank(m), k);
    if (muster_ckpt_map(ck, step, &t, 0, &ret) < 0) {
        fail("map");
    }
    return ret;
}

static uint64_t map_all(int64_t step, struct muster_ckpt_view **views)
{
    uint64_t begin = clock_mono_ns();

    for (uint64_t k = 0; k < n_tensors; k++) {
        views[k] = map_one(step, k);
    }
    return clock_mono_ns() - begin;
}

static void unmap_all(struct muster_ckpt_view **views)
{
    for (uint64_t k = 0; k < n_tensors; k++) {
        muster_ckpt_unmap(views[k]);
    }
}

/* All that the agent has: the first of each round maps the file, and when the last one
 * goes it is unmapped. That what is there is right is not measured; nor is how long the
 * agent takes to wake, which on a virtual machine takes longer than the rest: the fastest
 * of many counts. */
static void measure_map(void)
{
    struct muster_ckpt_view **views = calloc(n_tensors, sizeof(*views));
    uint64_t ns[MAX_ROUNDS], n = n_bytes / n_tensors;
    uint64_t took, best;
    int64_t step;

    if (!views || muster_ckpt_latest(ck, MUSTER_CKPT_LATEST, &step) < 0) {
        fail("look for what is to be mapped");
    }
    for (int i = -1; i < n_rounds; i++) { /* the first one reads the index */
        tell_round("maps", i < 0 ? 0 : i);
        best = map_all(step, views);
        for (int k = 1; k < REPEATS; k++) {
            unmap_all(views);
            took = map_all(step, views);
            best = took < best ? took : best;
        }
        ns[i < 0 ? 0 : i] = slowest(best);
        for (uint64_t k = 0; k < n_tensors; k++) {
            if (views[k]->where != MUSTER_CKPT_IN_MEMORY ||
                memcmp(views[k]->data, data + k * n, n) != 0) {
                fail_as("map", "it is not the agent's memory, or wrong");
            }
        }
        unmap_all(views);
    }
    free(views);
    tell("map", ns, n_rounds);
}

/* --- from the disk --- */

static void forget_cache(const char *pattern)
{
    glob_t found = {0};

    if (glob(pattern, 0, NULL, &found) == 0) {
        for (size_t i = 0; i < found.gl_pathc; i++) {
            int fd = open(found.gl_pathv[i], O_RDONLY | O_CLOEXEC);

            if (fd >= 0) {
                posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
                close(fd);
            }
        }
    }
    globfree(&found);
}

/* Past the page cache, where the filesystem can. */
static int open_direct(const char *path)
{
    int fd = open(path, O_RDONLY | O_DIRECT | O_CLOEXEC);

    return fd < 0 && errno == EINVAL ? open(path, O_RDONLY | O_CLOEXEC) : fd;
}

/* The limit: this rank's file of the newest, many blocks at a time. */
static uint64_t read_ns(const char *dir)
{
    char pattern[PATH_MAX];
    glob_t found = {0};
    uint64_t ns = 0;
    char *to = fresh();
    int fd = -1;

    snprintf(pattern, sizeof(pattern), "%s/step-*/r%05d.safetensors", dir,
             muster_rank(m));
    if (glob(pattern, 0, NULL, &found) == 0) {
        fd = open_direct(found.gl_pathv[found.gl_pathc - 1]);
    }
    globfree(&found);
    slowest(0);
    errno = fd < 0 ? errno : -limits_read(fd, to, n_bytes, &ns);
    if (errno) {
        ck = NULL; /* it has nothing to say of this */
        fail("read what was saved");
    }
    munmap(to, n_bytes);
    close(fd);
    return slowest(ns);
}

static int allgather(void *arg, const void *mine, void *all, size_t len)
{
    int rc = 0;

    (void)arg;
    memcpy((char *)all + (size_t)muster_rank(m) * len, mine, len);
    for (int r = 0; r < muster_world(m) && rc == 0; r++) {
        rc = muster_broadcast(m, (char *)all + (size_t)r * len, len, r);
    }
    return rc;
}

/* The same ranks as a group of their own, of which no agent knows: what they load comes
 * from the disk. */
static void measure_cold(const char *dir)
{
    const struct muster_ckpt_group group = {.rank = muster_rank(m),
                                            .world = muster_world(m),
                                            .allgather = allgather};
    uint64_t limit[MAX_ROUNDS], load[MAX_ROUNDS];
    char pattern[PATH_MAX];

    snprintf(pattern, sizeof(pattern), "%s/step-*/*", dir);
    for (int i = 0; i < n_rounds; i++) {
        tell_round("loads from the disk", i);
        slowest(0);
        forget_cache(pattern);
        limit[i] = read_ns(dir);
        forget_cache(pattern);
        if (muster_ckpt_open(NULL, &group, dir, NULL, &ck) < 0) {
            fail("open");
        }
        load_once(&load[i]);
        muster_ckpt_close(ck);
        ck = NULL;
    }
    tell("cold", load, n_rounds);
    tell("cold-limit", limit, n_rounds);
}

/* --- all --- */

/* Whether it is one of the parts, between commas; NULL: all are. */
static bool has_part(const char *parts, const char *part)
{
    size_t len = strlen(part);

    for (const char *at = parts; at; at = strchr(at, ',')) {
        at += *at == ',';
        if (strncmp(at, part, len) == 0 && (at[len] == ',' || at[len] == '\0')) {
            return true;
        }
    }
    return !parts;
}

/* What the other parts need: both of the agent's buffers, and a checkpoint. */
static void save_twice(void)
{
    uint64_t blocked, durable;

    save_once(&blocked, &durable);
    save_once(&blocked, &durable);
}

static void measure(const char *path, const char *parts)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1};
    int dir;

    fill();
    if (muster_ckpt_open(m, NULL, path, &o, &ck) < 0) {
        fail("open");
    }
    dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        fail(path);
    }
    register_all(data);
    if (has_part(parts, "saves")) {
        measure_eager(dir);
    } else {
        save_twice();
    }
    if (has_part(parts, "lazy")) {
        measure_lazy();
    }
    if (has_part(parts, "restore")) {
        measure_restore();
    }
    if (parts && has_part(parts, "map")) {
        measure_map();
    }
    close(dir);
    muster_ckpt_close(ck);
    ck = NULL;
    if (has_part(parts, "cold")) {
        measure_cold(path);
    }
}

int main(int argc, char **argv)
{
    if (argc != 6 && argc != 7) {
        fprintf(stderr, "usage: muster-ckpt-bench DIRECTORY BYTES TENSORS ROUNDS "
                        "OUTPUT [PART[,PART]]\n");
        return 2;
    }
    n_bytes = strtoull(argv[2], NULL, 10);
    n_tensors = strtoull(argv[3], NULL, 10);
    n_rounds = atoi(argv[4]) < MAX_ROUNDS ? atoi(argv[4]) : MAX_ROUNDS;
    if (n_tensors == 0 || n_bytes < n_tensors || n_rounds < 1) {
        fprintf(stderr, "muster-ckpt-bench: expected bytes, tensors and rounds\n");
        return 2;
    }
    if (muster_init(&m) < 0) {
        fail("join the workers of a run");
    }
    if (muster_rank(m) == 0) {
        out = fopen(argv[5], "a");
        if (!out) {
            fail(argv[5]);
        }
    }
    measure(argv[1], argv[6]); /* NULL, where there is none */
    muster_finalize(m);
    return out && fclose(out) != 0;
}
