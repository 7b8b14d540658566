/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that is taken while it is filled: by write(), and by a mapping beside that. */
#include <config.h>

#include "base/hugepages.h"
#include "base/thread.h"
#include "ckpt/fill.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    PIECE = 1 << 20,
    N = 16,
    LEN = N * PIECE + 4096 + 100,
    POPULATE_WRITE = 23,
};

/* --- a kernel of ours --- */

static atomic_int n_writes, n_maps;
static int write_errno, map_errno, n_interrupts;
static bool is_short, is_old;
static bool is_held; /* the next write() waits for `may_write` */
static sem_t is_writing, may_write;

ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    n_writes++;
    if (is_held) {
        is_held = false;
        sem_post(&is_writing);
        sem_wait(&may_write);
    }
    if (n_interrupts > 0) {
        n_interrupts--;
        errno = EINTR;
        return -1;
    }
    if (write_errno) {
        errno = write_errno;
        return -1;
    }
    return __real_pwrite(fd, data, is_short && len > 1000 ? 1000 : len, at);
}

int __wrap_madvise(void *at, size_t len, int advice)
{
    n_maps += advice == POPULATE_WRITE;
    if (advice == POPULATE_WRITE && is_old) {
        errno = EINVAL;
        return -1;
    }
    if (advice == POPULATE_WRITE && map_errno) {
        errno = EFAULT; /* it does not say more than that */
        return -1;
    }
    return __real_madvise(at, len, advice);
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    errno = map_errno;
    return map_errno ? -1 : __real_fallocate(fd, mode, at, len);
}

/* Of 2 MiB, in place of those of this machine: so many come. */
enum { HUGE = 2 << 20 };

static int n_huge_left, n_huge;

void __wrap_hugepages_look(struct hugepages *ret, size_t len);
void __wrap_hugepages_make(struct hugepages *h, char *at);

void __wrap_hugepages_look(struct hugepages *ret, size_t len)
{
    (void)len;
    *ret = (struct hugepages){.bytes = n_huge_left ? HUGE : 0};
    ret->is_over = n_huge_left == 0;
}

static char *huge_from, *huge_to; /* where one may be */

void __wrap_hugepages_make(struct hugepages *h, char *at)
{
    if (at < huge_from || at + HUGE > huge_to || (at - huge_from) % HUGE != 0) {
        bail_out("no huge page can be there");
    }
    n_huge++;
    if (--n_huge_left == 0) {
        h->is_over = true;
    }
}

/* --- */

struct bench {
    int fd;
    char *map;
    struct fill *fill;
};

static char byte_of(uint64_t at)
{
    return (char)(at * 31 + at / 4096);
}

static int source_rc;

static int make(void *arg, uint64_t at, size_t len, void *to, struct error *e)
{
    (void)arg;
    for (size_t i = 0; i < len; i++) {
        ((char *)to)[i] = byte_of(at + i);
    }
    return source_rc < 0 ? error_text(e, -source_rc, "the source's own") : 0;
}

static struct fill_source source = {make, NULL, false};

static void setup(struct bench *b)
{
    n_writes = n_maps = 0;
    b->fd = memfd_create("fill_test", MFD_CLOEXEC);
    b->map = b->fd >= 0 && ftruncate(b->fd, LEN) == 0
                 ? mmap(NULL, LEN, PROT_READ | PROT_WRITE, MAP_SHARED, b->fd, 0)
                 : MAP_FAILED;
    n_huge = 0;
    huge_from = b->map;
    huge_to = b->map + LEN;
    b->fill = b->map == MAP_FAILED ? NULL : fill_create(b->fd, b->map, LEN);
    if (!b->fill) {
        bail_out("no shared memory");
    }
}

static void teardown(struct bench *b)
{
    fill_destroy(b->fill);
    munmap(b->map, LEN);
    close(b->fd);
}

static uint64_t bytes_taken(const struct bench *b)
{
    struct stat st;

    return fstat(b->fd, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_blocks * 512;
}

static bool is_right(const struct bench *b, uint64_t at, size_t len)
{
    for (uint64_t i = at; i < at + len; i++) {
        if (b->map[i] != byte_of(i)) {
            return false;
        }
    }
    return true;
}

static int piece(const struct bench *b, int i, struct error *e)
{
    uint64_t at = 4096 + (uint64_t)i * PIECE;
    size_t len = i < N ? PIECE : 100;

    return fill_piece(b->fill, at, len, &source, e);
}

static void test_alone(void)
{
    struct bench b;
    int n_failed = 0;

    setup(&b);
    is_int((intmax_t)bytes_taken(&b), 0, "nothing is taken before");
    piece(&b, 3, NULL);
    is_int((intmax_t)bytes_taken(&b), PIECE, "then what is filled");
    for (int i = 0; i <= N; i++) {
        n_failed += piece(&b, i, NULL) < 0;
    }
    is_int(n_failed, 0, "all is filled");
    ok(n_writes > 0 && n_maps == 0, "who is alone writes");
    ok(is_right(&b, 4096, LEN - 4096), "what the source says");
    is_int(b.map[4095], 0, "and nothing else");
    teardown(&b);

    setup(&b);
    source.is_far = true;
    piece(&b, 3, NULL);
    source.is_far = false;
    ok(n_writes == 0 && n_maps == 1, "what is far is read at once");
    ok(is_right(&b, 4096 + 3 * PIECE, PIECE), "as well");
    teardown(&b);
}

/* SIGXFSZ would end this test. */
static void test_size_limit(void)
{
    struct rlimit old, low;
    struct bench b;

    setup(&b);
    fill_destroy(b.fill);
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = LEN - 1;
    setrlimit(RLIMIT_FSIZE, &low);
    b.fill = fill_create(b.fd, b.map, LEN);
    is_int(piece(&b, N, NULL), 0, "what no file may have");
    setrlimit(RLIMIT_FSIZE, &old);
    ok(n_writes == 0 && n_maps == 1, "is not written");
    ok(is_right(&b, 4096 + (uint64_t)N * PIECE, 100), "and there all the same");
    teardown(&b);
}

static void *write_first(void *arg)
{
    piece(arg, 0, NULL);
    return NULL;
}

/* While one writes the other has its piece by the mapping. */
static void test_beside(void)
{
    struct bench b;
    pthread_t t;
    int rc;

    setup(&b);
    is_held = true;
    if (thread_start(&t, write_first, &b) != 0) {
        bail_out("no thread");
    }
    sem_wait(&is_writing);
    rc = piece(&b, 1, NULL);
    is_int(rc, 0, "a piece beside one that is written");
    ok(n_writes == 1 && n_maps == 1, "needs no write of its own");
    ok(is_right(&b, 4096 + PIECE, PIECE), "it is right");
    sem_post(&may_write);
    pthread_join(t, NULL);
    ok(is_right(&b, 4096, 2 * PIECE), "so is the other one");
    teardown(&b);
}

static atomic_int next_piece;

static void *fill_some(void *arg)
{
    int i;

    while ((i = next_piece++) <= N) {
        piece(arg, i, NULL);
    }
    return NULL;
}

static void test_crowd(void)
{
    struct bench b;
    pthread_t t[4];

    setup(&b);
    next_piece = 0;
    for (int i = 0; i < 4; i++) {
        thread_start(&t[i], fill_some, &b);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(t[i], NULL);
    }
    ok(is_right(&b, 4096, LEN - 4096), "many threads fill all of it");
    teardown(&b);
}

static void test_halting(void)
{
    struct bench b;

    setup(&b);
    n_interrupts = 3;
    is_short = true;
    is_int(piece(&b, 0, NULL), 0, "a write that is interrupted, and is short");
    is_short = false;
    ok(is_right(&b, 4096, PIECE), "goes on");
    teardown(&b);
}

static void test_full(void)
{
    struct error e = {0};
    struct bench b;
    pthread_t t;

    setup(&b);
    write_errno = ENOSPC;
    is_int(piece(&b, 0, &e), -ENOMEM, "no memory to write to");
    like(e.text, "shared memory for a snapshot: No space left", "is told");
    write_errno = 0;
    is_held = true;
    thread_start(&t, write_first, &b);
    sem_wait(&is_writing);
    map_errno = ENOSPC;
    e = (struct error){0};
    is_int(piece(&b, 1, &e), -ENOMEM, "nor for the mapping");
    like(e.text, "shared memory for a snapshot: No space left", "is told");
    map_errno = 0;
    sem_post(&may_write);
    pthread_join(t, NULL);
    source_rc = -EREMOTEIO;
    is_int(piece(&b, 2, &e), -EREMOTEIO, "what the source fails of is another thing");
    source_rc = 0;
    is_int(piece(&b, 2, &e), 0, "and the next piece comes");
    teardown(&b);
}

/* All are filled by the mapping as long as huge pages come. */
static void test_huge(void)
{
    struct bench b;

    n_huge_left = 100;
    setup(&b);
    for (int i = 0; i <= N; i++) {
        piece(&b, i, NULL);
    }
    ok(n_writes == 0 && n_maps == N + 1, "nobody writes where pages are huge");
    is_int(n_huge, (LEN - HUGE) / HUGE, "each is asked for once, but the one of the first page");
    ok(is_right(&b, 4096, LEN - 4096), "all is right");
    teardown(&b);

    n_huge_left = 2;
    setup(&b);
    for (int i = 0; i <= N; i++) {
        piece(&b, i, NULL);
    }
    is_int(n_huge, 2, "when there are no more of them");
    ok(n_maps < N && n_writes > 0, "the rest is written");
    ok(is_right(&b, 4096, LEN - 4096), "all is right");
    teardown(&b);
}

/* madvise() knows nothing of that. */
static void test_old_kernel(void)
{
    struct bench b;
    pthread_t t;

    setup(&b);
    is_old = true;
    is_held = true;
    thread_start(&t, write_first, &b);
    sem_wait(&is_writing);
    is_int(piece(&b, 1, NULL), 0, "a piece on an old kernel");
    is_old = false;
    sem_post(&may_write);
    pthread_join(t, NULL);
    ok(is_right(&b, 4096, 2 * PIECE), "is right");
    teardown(&b);
}

int main(void)
{
    sem_init(&is_writing, 0, 0);
    sem_init(&may_write, 0, 0);
    test_alone();
    test_size_limit();
    test_beside();
    test_crowd();
    test_halting();
    test_full();
    test_huge();
    test_old_kernel();
    return tap_done();
}
