/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What saving and loading take a worker, beside what memory and the disk of this
 * machine take for its bytes in the same run.
 *
 *   ckpt_bench DIRECTORY BYTES TENSORS ROUNDS OUTPUT         a worker of a run
 *   ckpt_bench --cold DIRECTORY BYTES TENSORS ROUNDS OUTPUT  alone, from the disk
 *   ckpt_bench --plan CHUNKS ROUNDS OUTPUT                   what a rank is to read
 *
 * Rank 0 writes lines to OUTPUT: what it is, and the nanoseconds of each round, of
 * which a whole save is that of the slowest rank.
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/thread.h"
#include "ckpt/index.h"
#include "ckpt/plan.h"
#include "muster.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <inttypes.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BLOCK = 4 << 20, MAX_ROUNDS = 100, MAX_THREADS = 4, READERS = 8 };

static struct muster *m;
static struct muster_ckpt *ck;
static FILE *out;
static uint64_t n_bytes, n_tensors;
static int n_rounds;
static char *data;

static void fail(const char *what)
{
    fprintf(stderr, "ckpt_bench: %s: %s\n", what,
            ck ? muster_ckpt_error_text(ck) : strerror(errno));
    exit(1);
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

/* All ranks begin together, and the slowest counts. */
static uint64_t slowest(uint64_t ns)
{
    int64_t all = (int64_t)ns;

    if (m && muster_allreduce(m, &all, &all, 1, MUSTER_INT64, MUSTER_MAX) < 0) {
        fail("allreduce");
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
    int fd = memfd_create("ckpt_bench", MFD_CLOEXEC);
    char *at = fd >= 0 && ftruncate(fd, (off_t)n_bytes) == 0
                   ? mmap(NULL, n_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                   : MAP_FAILED;

    if (at == MAP_FAILED) {
        fail("shared memory");
    }
    close(fd);
    return at;
}

struct copy {
    char *to;
    const char *from;
    int fd; /* to read from; -1: memory */
    _Atomic uint64_t next;
};

static void *copy_blocks(void *arg)
{
    struct copy *c = arg;
    uint64_t at;

    while ((at = BLOCK * atomic_fetch_add(&c->next, 1)) < n_bytes) {
        size_t n = n_bytes - at < BLOCK ? n_bytes - at : BLOCK;

        if (c->fd < 0) {
            memcpy(c->to + at, c->from + at, n);
        } else if (pread(c->fd, c->to + at, n, (off_t)at) != (ssize_t)n) {
            fail("read");
        }
    }
    return NULL;
}

static uint64_t copy_with(struct copy c, int n_threads)
{
    pthread_t threads[READERS];
    uint64_t begin = clock_mono_ns();
    int n = 0;

    while (n + 1 < n_threads &&
           thread_start(&threads[n], copy_blocks, &c) == 0) {
        n++;
    }
    copy_blocks(&c);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
    return clock_mono_ns() - begin;
}

/* The limit. By one thread, or by as many as a save takes: whatever is faster. It is
 * measured in each round, as what else the machine does changes from one to another. */
static uint64_t copy_ns(char *to, bool is_fresh)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    struct copy c = {.to = to, .from = data, .fd = -1};
    uint64_t best = copy_with(c, n < MAX_THREADS ? n : MAX_THREADS);

    if (!is_fresh) {
        uint64_t one = copy_with(c, 1);

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
    uint64_t x = m ? (uint64_t)muster_rank(m) + 1 : 1;

    data = fresh();
    for (uint64_t i = 0; i + 8 <= n_bytes; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(data + i, &x, sizeof(x));
    }
}

static void register_all(char *at)
{
    uint64_t n = n_bytes / n_tensors, rank = m ? (uint64_t)muster_rank(m) : 0;

    for (uint64_t i = 0; i < n_tensors; i++) {
        char name[64];
        struct muster_ckpt_tensor t = {.name = name, .dtype = MUSTER_U8,
                                       .n_dims = 1, .shape = &n,
                                       .data = at + i * n};

        snprintf(name, sizeof(name), "rank.%" PRIu64 ".layers.%" PRIu64 ".weight",
                 rank, i);
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

/* After the first one the program computes for a while, as it would: meanwhile the
 * agent makes the memory of the second. */
static void measure_eager(void)
{
    uint64_t blocked[MAX_ROUNDS], durable[MAX_ROUNDS], limit[MAX_ROUNDS];
    char *to = fresh();

    limit[0] = fresh_copy_ns(true);
    save_once(&blocked[0], &durable[0]);
    tell("first", blocked, 1);
    tell("first-limit", limit, 1);
    compute(3 * blocked[0]);
    copy_ns(to, true);
    for (int i = -1; i < n_rounds; i++) {
        int at = i < 0 ? 0 : i;

        limit[at] = copy_ns(to, false);
        save_once(&blocked[at], &durable[at]);
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
}

/* Four times as long as the copy takes is computed. */
static void measure_lazy(void)
{
    uint64_t blocked[MAX_ROUNDS], limit[MAX_ROUNDS];
    char *to = fresh();

    copy_ns(to, true);
    for (int i = 0; i < n_rounds; i++) {
        uint64_t begin, save = 0;

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
    if (data && memcmp(to, data, n_bytes / n_tensors * n_tensors) != 0) {
        fail("what was loaded is wrong");
    }
    register_all(data ? data : to);
    if (data) {
        munmap(to, n_bytes);
    }
}

static void measure_restore(void)
{
    uint64_t ns[MAX_ROUNDS], limit[MAX_ROUNDS];

    for (int i = 0; i < n_rounds; i++) {
        limit[i] = fresh_copy_ns(false);
        load_once(&ns[i]);
    }
    tell("restore", ns, n_rounds);
    tell("restore-limit", limit, n_rounds);
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

/* The limit: the same file past the page cache, many blocks at a time. */
static uint64_t read_ns(const char *pattern)
{
    struct copy c = {.fd = -1};
    glob_t found = {0};
    uint64_t ns;

    if (glob(pattern, 0, NULL, &found) == 0) {
        c.fd = open(found.gl_pathv[0], O_RDONLY | O_DIRECT | O_CLOEXEC);
    }
    globfree(&found);
    if (c.fd < 0) {
        fail("open what was saved");
    }
    c.to = fresh();
    n_bytes -= n_bytes % 4096;
    ns = copy_with(c, READERS);
    munmap(c.to, n_bytes);
    close(c.fd);
    return ns;
}

static void measure_cold(const char *dir)
{
    uint64_t limit[MAX_ROUNDS], load[MAX_ROUNDS];
    char pattern[4096];

    snprintf(pattern, sizeof(pattern), "%s/step-*/*", dir);
    for (int i = 0; i < n_rounds; i++) {
        char file[4096];
        uint64_t bytes = n_bytes;

        snprintf(file, sizeof(file), "%s/step-*/r00000.safetensors", dir);
        forget_cache(pattern);
        limit[i] = read_ns(file);
        n_bytes = bytes;
        forget_cache(pattern);
        if (muster_ckpt_open(NULL, NULL, dir, NULL, &ck) < 0) {
            fail("open");
        }
        load_once(&load[i]);
        muster_ckpt_close(ck);
        ck = NULL;
    }
    tell("cold", load, n_rounds);
    tell("cold-limit", limit, n_rounds);
}

/* --- planning --- */

enum { SAVED_BY = 1000, LOADED_BY = 64, NAME_BYTES = 64 };

/* Tensors cut by rows, a piece each by as many ranks as saved them. */
static void make_index(size_t n_chunks, struct buf *to)
{
    static const uint64_t shape[2] = {SAVED_BY * 8, 16}, len[2] = {8, 16};
    struct index_piece *pieces = calloc(n_chunks, sizeof(*pieces));
    struct index_file *files = calloc(SAVED_BY, sizeof(*files));
    uint64_t *corners = calloc(n_chunks, 2 * sizeof(*corners)), *blocks;
    char (*names)[NAME_BYTES] = calloc(n_chunks / SAVED_BY, NAME_BYTES);
    uint64_t n_blocks = n_chunks / SAVED_BY * 512 / BLOCK + 1;
    _cleanup_(index) struct index *x = NULL;

    blocks = calloc(n_blocks, sizeof(*blocks));
    if (!pieces || !files || !corners || !names || !blocks) {
        fail("memory");
    }
    for (size_t i = 0; i < n_chunks; i++) {
        size_t tensor = i / SAVED_BY, rank = i % SAVED_BY;

        snprintf(names[tensor], NAME_BYTES, "model.layers.%zu.weight", tensor);
        corners[2 * i] = 8 * rank;
        pieces[i] = (struct index_piece){names[tensor], DTYPE_F32, 2, shape,
                                         corners + 2 * i, len, (uint32_t)rank,
                                         tensor * 512};
    }
    for (size_t i = 0; i < SAVED_BY; i++) {
        files[i] = (struct index_file){blocks, n_blocks};
    }
    if (index_create(pieces, n_chunks, files, SAVED_BY, &x, NULL) < 0 ||
        index_encode(x, to) < 0) {
        fail("make an index");
    }
    free(pieces);
    free(files);
    free(corners);
    free(names);
    free(blocks);
}

/* Of each tensor the rows of one of other ranks, fewer. */
static uint64_t plan_ns(const struct buf *encoded)
{
    uint64_t begin = clock_mono_ns(), ns;
    _cleanup_(index) struct index *x = NULL;
    struct plan_want *wants;
    struct plan p = {0};
    size_t n;

    if (index_decode(encoded->data, encoded->len, &x, NULL) < 0) {
        fail("read an index");
    }
    n = index_n_tensors(x);
    wants = calloc(n, sizeof(*wants));
    for (size_t i = 0; wants && i < n; i++) {
        wants[i] = (struct plan_want){
            i, {.n_dims = 2, .at = {SAVED_BY * 8 / LOADED_BY * 5, 0},
                .len = {SAVED_BY * 8 / LOADED_BY, 16}}};
    }
    if (!wants || plan_make(x, wants, n, 32 << 20, 1 << 20, &p, NULL) < 0) {
        fail("plan");
    }
    ns = clock_mono_ns() - begin;
    plan_release(&p);
    free(wants);
    return ns;
}

static void measure_plan(size_t n_chunks)
{
    _buf_ struct buf encoded = {0};
    uint64_t ns[MAX_ROUNDS];

    make_index(n_chunks, &encoded);
    for (int i = 0; i < n_rounds; i++) {
        ns[i] = plan_ns(&encoded);
    }
    tell("plan", ns, n_rounds);
}

/* --- all --- */

static int plan(char **arg)
{
    n_rounds = atoi(arg[1]) < MAX_ROUNDS ? atoi(arg[1]) : MAX_ROUNDS;
    out = fopen(arg[2], "a");
    if (!out || strtoull(arg[0], NULL, 10) < SAVED_BY) {
        fail("expected chunks, rounds and a file");
    }
    measure_plan(strtoull(arg[0], NULL, 10) / SAVED_BY * SAVED_BY);
    return fclose(out);
}

static void measure_worker(const char *dir)
{
    struct muster_ckpt_options o = {.size = sizeof(o), .keep = 1};

    fill();
    if (muster_ckpt_open(m, NULL, dir, &o, &ck) < 0) {
        fail("open");
    }
    register_all(data);
    measure_eager();
    measure_lazy();
    measure_restore();
    muster_ckpt_close(ck);
}

int main(int argc, char **argv)
{
    bool is_cold = argc == 7 && strcmp(argv[1], "--cold") == 0;
    char **arg = argv + 1 + is_cold;

    if (argc == 5 && strcmp(argv[1], "--plan") == 0) {
        return plan(argv + 2);
    }
    if (argc != 6 && !is_cold) {
        fprintf(stderr, "usage: ckpt_bench [--cold] DIRECTORY BYTES TENSORS ROUNDS "
                        "OUTPUT\n       ckpt_bench --plan CHUNKS ROUNDS OUTPUT\n");
        return 2;
    }
    n_bytes = strtoull(arg[1], NULL, 10);
    n_tensors = strtoull(arg[2], NULL, 10);
    n_rounds = atoi(arg[3]) < MAX_ROUNDS ? atoi(arg[3]) : MAX_ROUNDS;
    if (n_tensors == 0 || n_bytes < n_tensors || n_rounds < 1) {
        fprintf(stderr, "ckpt_bench: expected bytes, tensors and rounds\n");
        return 2;
    }
    if (!is_cold && muster_init(&m) < 0) {
        fail("join the workers of a run");
    }
    if (!m || muster_rank(m) == 0) {
        out = fopen(arg[4], "a");
        if (!out) {
            fail(arg[4]);
        }
    }
    if (is_cold) {
        measure_cold(arg[0]);
    } else {
        measure_worker(arg[0]);
        muster_finalize(m);
    }
    if (out) {
        fclose(out);
    }
    return 0;
}
