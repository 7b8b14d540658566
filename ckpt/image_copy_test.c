/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of an image by several threads, past the caches and not, is what image_read() reads
 * of it, byte by byte; and whoever asks how far it is hears of no block that is not whole,
 * whichever comes last. (There every block is a GPU's, which is as slow as we want.)
 */
#include <config.h>

#include "ckpt/image.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/thread.h"
#include "ckpt/digest.h"
#include "ckpt/streamed.h"
#include "ckpt/threads_bed.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { N = 20000, MANY = 1 << 20 };

struct threads_bed threads_bed = {.n_granted = UINT_MAX};

static char names[N][16];
static uint64_t lens[N];
static struct image_piece pieces[N];
static char data[MANY];
static const char uuid[] = "0123456789abcdef0123456789abcdef";

/* N tensors of `bytes` at most, of odd lengths, and from any place. */
static uint64_t plan(uint64_t bytes, struct image *im)
{
    static const uint64_t zero;
    struct error e = {0};
    uint64_t sum = 0;

    for (size_t i = 0; i < N; i++) {
        snprintf(names[i], sizeof(names[i]), "t%zu", i * 7919 % N);
        lens[i] = i * 2654435761u % bytes;
        pieces[i] = (struct image_piece){
            .tensor = {.name = names[i], .dtype = DTYPE_U8, .n_dims = 1, .shape = &lens[i]},
            .name = names[i], .shape = &lens[i], .at = &zero,
            .data = data + i * 31 % (MANY - bytes)};
        sum += lens[i];
    }
    if (image_plan(pieces, N, &(struct image_of){.step = 1, .uuid = uuid}, im, &e) < 0) {
        bail_out("no image: %s", e.text);
    }
    return sum;
}

void __real_streamed_end(void);
void __wrap_streamed_end(void);

static atomic_uint n_streamed; /* blocks that were copied past the caches, to their end */

void __wrap_streamed_end(void)
{
    n_streamed++;
    __real_streamed_end();
}

static void test_copy(uint64_t bytes, uint64_t least, bool is_past)
{
    enum { BEFORE = 24, BEHIND = 8, PART = 1 << 16 };
    static char part[PART + BEHIND];
    _image_ struct image im = {0};
    struct image_copy c;
    struct error e = {0};
    uint64_t sum = plan(bytes, &im), n_wrong = 0;
    _free_ char *room = malloc(BEFORE + im.bytes + BEHIND);
    char *to = room ? room + BEFORE : NULL;

    if (!room) {
        bail_out("no memory");
    }
    ok(sum > least, "%llu bytes of tensors", (unsigned long long)sum);
    memset(room, 0x5a, BEFORE + im.bytes + BEHIND);
    n_streamed = 0;
    image_copy_begin(&c, &im, to, false);
    image_copy_help(&c, 3, NULL, NULL);
    is_int(image_copy_end(&c, &e), 0, "are copied");
    is_int((intmax_t)n_streamed, is_past ? (intmax_t)digest_n_blocks(im.bytes) : 0,
           "so many blocks past the caches");
    for (uint64_t at = 0; at < im.bytes; at += PART) {
        size_t n = im.bytes - at < PART ? im.bytes - at : PART;

        memset(part, 0x5a, sizeof(part));
        n_wrong += image_read(&im, at, n, part, &e) < 0 || memcmp(part, to + at, n) != 0;
        for (size_t i = n; i < n + BEHIND; i++) {
            n_wrong += part[i] != 0x5a;
        }
    }
    for (int i = 0; i < BEFORE; i++) {
        n_wrong += room[i] != 0x5a;
    }
    for (int i = 0; i < BEHIND; i++) {
        n_wrong += to[im.bytes + (uint64_t)i] != 0x5a;
    }
    is_int((intmax_t)n_wrong, 0, "as they are read, and nothing beside them");
}

/* --- how far it is --- */

enum { N_BLOCKS = 6, N_MANY = 80, NONE = -1 };

static struct image_piece blocks[N_MANY];
static char whole[N_MANY]; /* what they are read from: a byte for each */
static char *to;           /* where they are copied to */
static struct image_copy copy;
static struct image image;
static bool flags[N_MANY + 1]; /* is_there, and one more */
static _Atomic uint64_t n_there;
static int held = NONE, failing = NONE; /* blocks */
static sem_t is_held, may_go;
static atomic_uint n_early; /* blocks that were counted before they were there */
static bool is_taken[N_MANY]; /* of each block: its pages are there */
static atomic_uint n_untaken; /* blocks that were copied before that */

int __wrap_device_get(const struct device *d, void *dest, const void *from, size_t len,
                      struct error *e);

/* Of a block just the first and the last byte, in this order. */
int __wrap_device_get(const struct device *d, void *dest, const void *from, size_t len,
                      struct error *e)
{
    int i = (int)((const char *)from - whole);
    char *at = dest;

    (void)d;
    n_early += n_there > (uint64_t)i;
    n_untaken += !is_taken[i];
    at[0] = (char)(i + 1);
    if (i == held) {
        sem_post(&is_held);
        sem_wait(&may_go);
    }
    if (i == failing) {
        return error_text(e, EREMOTEIO, "block %d", i);
    }
    at[len - 1] = (char)(i + 1);
    n_early += n_there > (uint64_t)i;
    return 0;
}

static uint64_t bytes_of(uint64_t block)
{
    uint64_t at = block * DIGEST_BLOCK_BYTES;

    return image.bytes - at < DIGEST_BLOCK_BYTES ? image.bytes - at : DIGEST_BLOCK_BYTES;
}

static bool is_whole(uint64_t block)
{
    const char *at = to + block * DIGEST_BLOCK_BYTES;

    return at[0] == (char)(block + 1) && at[bytes_of(block) - 1] == (char)(block + 1);
}

/* `n` blocks, each a piece, the last one shorter. */
static void begin(int n)
{
    static const char gpu;

    image = (struct image){.pieces = blocks, .n = (size_t)n,
                           .bytes = (uint64_t)n * DIGEST_BLOCK_BYTES - 5000};
    for (int i = 0; i < n; i++) {
        uint64_t at = (uint64_t)i * DIGEST_BLOCK_BYTES;

        blocks[i] = (struct image_piece){
            .tensor = {.begin = at, .end = at + bytes_of((uint64_t)i)}, .name = "block",
            .data = whole + i, .device = (const struct device *)(const void *)&gpu};
    }
    to = mmap(NULL, image.bytes, PROT_READ | PROT_WRITE,
              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (to == MAP_FAILED) {
        bail_out("no memory");
    }
    memset(flags, 0, sizeof(flags));
    flags[n] = true; /* nobody's */
    n_there = 0;
    image_copy_begin(&copy, &image, to, false);
    image_copy_tell(&copy, &n_there, flags);
}

static int end_as(struct error *e)
{
    int rc = image_copy_end(&copy, e);

    munmap(to, image.bytes);
    return rc;
}

static int end(void)
{
    return end_as(NULL);
}

static void *help(void *arg)
{
    image_copy_help(&copy, 1, NULL, NULL);
    return arg;
}

/* A thread comes as far as that block, and waits in it, while all others are copied. */
static pthread_t hold(int block)
{
    pthread_t t;

    held = block;
    if (thread_start(&t, help, NULL) != 0) {
        bail_out("no thread");
    }
    sem_wait(&is_held);
    image_copy_help(&copy, 1, NULL, NULL);
    return t;
}

static void let_go(pthread_t t)
{
    sem_post(&may_go);
    pthread_join(t, NULL);
    held = NONE;
}

static void test_held(void)
{
    for (int i = 0; i < N_BLOCKS; i++) {
        pthread_t t;

        begin(N_BLOCKS);
        t = hold(i);
        is_int((intmax_t)n_there, i, "block %d is not whole, whatever is behind it", i);
        let_go(t);
        is_int((intmax_t)n_there, N_BLOCKS, "once it is, all are");
        is_int(end(), 0, "and it ends");
    }
}

static void test_failed(void)
{
    struct error e = {0};
    pthread_t t;

    for (failing = 0; failing < N_BLOCKS; failing++) {
        begin(N_BLOCKS);
        image_copy_help(&copy, 1, NULL, NULL);
        is_int((intmax_t)n_there, failing, "block %d fails", failing);
        ok(failing + 1 == N_BLOCKS || !is_whole((uint64_t)failing + 1), "no more is begun");
        is_int(end(), -EREMOTEIO, "and the copy");
        begin(N_BLOCKS);
        let_go(hold(failing));
        is_int((intmax_t)n_there, failing, "or fails last, and none behind it counts");
        is_int(end(), -EREMOTEIO, "nor the copy");
    }
    failing = 2;
    begin(N_BLOCKS);
    let_go(hold(0));
    is_int((intmax_t)n_there, 2, "what was under way before one that fails is there");
    is_int(end(), -EREMOTEIO, "all the same");
    begin(N_BLOCKS);
    t = hold(0);
    failing = 0;
    let_go(t);
    is_int(end_as(&e), -EREMOTEIO, "two of them fail");
    like(e.text, "tensor 'block': block 2", "and the first is told");
    failing = NONE;
}

/* One of several in a block. */
static void test_failed_piece(void)
{
    char bytes[3] = "";
    struct error e = {0};

    begin(3);
    for (uint64_t i = 0; i < 3; i++) {
        blocks[i].tensor.begin = i;
        blocks[i].tensor.end = i + 1;
    }
    for (failing = 0; failing < 3; failing++) {
        is_int(image_read(&image, 0, 3, bytes, &e), -EREMOTEIO, "piece %d of a block fails",
               failing);
        ok(failing == 2 || bytes[failing + 1] == 0, "none behind it is read");
        memset(bytes, 0, sizeof(bytes));
    }
    failing = NONE;
    is_int(end(), 0, "nothing was copied");
}

/* A save may be given up before anybody helps. */
static void test_late(void)
{
    begin(N_BLOCKS);
    is_int(image_copy_end(&copy, NULL), 0, "a copy that is over before anybody has come");
    image_copy_help(&copy, 2, NULL, NULL);
    ok(n_there == 0 && to[0] == 0, "who comes then copies nothing");
    is_int(end(), 0, "and it stays over");
}

/* It is another save's by then, or nobody looks. */
static void test_not_told(void)
{
    begin(N_BLOCKS);
    image_copy_begin(&copy, &image, to, false);
    image_copy_help(&copy, 2, NULL, NULL);
    is_int((intmax_t)n_there, 0, "who does not ask is not told");
    ok(!flags[0] && is_whole(N_BLOCKS - 1), "it is copied as well");
    is_int(end(), 0, "to its end");
}

/* --- memory that is not there yet --- */

static int n_pieces, n_far;
static uint64_t far_at;

int __wrap_fill_piece(struct fill *f, uint64_t at, size_t len, const struct fill_source *from,
                      struct error *e);
int __wrap_fill_piece(struct fill *f, uint64_t at, size_t len, const struct fill_source *from,
                      struct error *e)
{
    (void)f, (void)len, (void)e;
    n_pieces++;
    n_far += from->is_far;
    far_at = from->is_far ? at : far_at;
    return 0;
}

/* Each call of a GPU costs something: not so where there is none. */
static void test_far(void)
{
    enum { FILL_AT = 4096 };
    static char fill;
    struct fill *f = (struct fill *)(void *)&fill;

    for (size_t gpu = 0; gpu < N_BLOCKS; gpu++) {
        begin(N_BLOCKS);
        for (size_t i = 0; i < N_BLOCKS; i++) {
            blocks[i].device = i == gpu ? blocks[i].device : NULL;
        }
        n_pieces = n_far = 0;
        image_copy_begin_fill(&copy, &image, f, FILL_AT);
        image_copy_help(&copy, 1, NULL, NULL);
        is_int(n_pieces, N_BLOCKS, "all blocks are filled, of which %zu is a GPU's", gpu);
        ok(n_far == 1 && far_at == FILL_AT + gpu * DIGEST_BLOCK_BYTES, "it alone is read at once");
        is_int(end(), 0, "it ends");
    }
    begin(N_BLOCKS);
    n_pieces = 0;
    image_copy_help(&copy, 1, NULL, NULL);
    ok(n_pieces == 0 && is_whole(0), "the next one is copied to memory again");
    is_int(end(), 0, "as it was before");
}

int __wrap_pages_take(void *at, size_t len);

int __wrap_pages_take(void *at, size_t len)
{
    uint64_t i = (uint64_t)((char *)at - to) / DIGEST_BLOCK_BYTES;

    is_taken[i] = (char *)at == to + i * DIGEST_BLOCK_BYTES && len == bytes_of(i);
    return 0;
}

static void test_untouched(void)
{
    for (int is_untouched = 0; is_untouched < 2; is_untouched++) {
        begin(N_BLOCKS);
        memset(is_taken, 0, sizeof(is_taken));
        n_untaken = 0;
        image_copy_begin(&copy, &image, to, is_untouched);
        image_copy_help(&copy, 1, NULL, NULL);
        is_int((intmax_t)n_untaken, is_untouched ? 0 : N_BLOCKS, "%s", is_untouched
               ? "of memory that is new each block's pages come first"
               : "of other memory none are asked for");
        is_int(end(), 0, "it is copied");
    }
}

/* --- by how many --- */

static void help_by(unsigned n_threads, unsigned least, unsigned most, const char *what)
{
    threads_bed_reset();
    image_copy_help(&copy, n_threads, NULL, NULL);
    ok(threads_bed.n_started >= least && threads_bed.n_started <= most, "%s: %u", what,
       threads_bed.n_started);
    is_int((intmax_t)threads_bed.n_joined, threads_bed.n_started, "which are waited for");
}

static void test_threads(void)
{
    begin(N_BLOCKS);
    help_by(100, N_BLOCKS - 1, N_BLOCKS - 1, "a thread more for each other block, at most");
    help_by(100, 0, 0, "and none where none is left");
    is_int((intmax_t)n_there, N_BLOCKS, "they copy");
    is_int(end(), 0, "all");
    begin(N_MANY);
    help_by(1000, 1, N_MANY - 2, "of very many threads not all");
    is_int((intmax_t)n_there, N_MANY, "and they copy");
    is_int(end(), 0, "all");
}

/* --- from elsewhere --- */

static unsigned n_not_whole;
static atomic_bool is_over;

/* Whoever reads it from elsewhere, at any time. */
static void *watch(void *arg)
{
    uint64_t seen = 0;

    while (!is_over) {
        uint64_t n = atomic_load_explicit(&n_there, memory_order_acquire);

        for (; seen < n && seen < N_MANY; seen++) {
            n_not_whole += !is_whole(seen);
        }
        sched_yield();
    }
    return arg;
}

static void test_watched(void)
{
    pthread_t t;

    begin(N_MANY);
    if (thread_start(&t, watch, NULL) != 0) {
        bail_out("no thread");
    }
    image_copy_help(&copy, 4, NULL, NULL);
    is_over = true;
    pthread_join(t, NULL);
    is_int((int)n_not_whole, 0, "all that is counted is whole, by four threads");
    is_int((intmax_t)n_there, N_MANY, "and it comes to its end");
    is_int(end(), 0, "without a failure");
}

/* What is to be done beside it is done at once, while others copy: all of it here, as it
 * waits for that; or before, where nobody helps. */
static int n_first;
static uint64_t n_first_there;

static void first(void *arg)
{
    (void)arg;
    n_first++;
    for (int i = 0; i < 20000 && n_there < n_first_there; i++) {
        usleep(1000);
    }
    n_first_there = n_there;
}

static void test_first(void)
{
    begin(N_MANY);
    n_first_there = N_MANY;
    image_copy_help(&copy, 2, first, NULL);
    ok(n_first == 1 && n_first_there == N_MANY, "others copy while something else is done");
    is_int(end(), 0, "and nothing is missing");
    begin(N_MANY);
    n_first_there = 0;
    image_copy_help(&copy, 1, first, NULL);
    ok(n_first == 2 && n_first_there == 0, "one alone does that first");
    is_int((intmax_t)n_there, N_MANY, "and then copies");
    is_int(end(), 0, "all of it");
}

/* --- who else wants the processor --- */

int __real_sched_yield(void);
int __wrap_sched_yield(void);

enum { BY_SAVER = 100 };

static atomic_int n_polite;
static pthread_t saver;

int __wrap_sched_yield(void)
{
    n_polite += pthread_equal(pthread_self(), saver) ? BY_SAVER : 1;
    return __real_sched_yield();
}

static int count_polite(unsigned n_threads)
{
    n_polite = 0;
    n_first_there = n_threads > 1 ? N_MANY : 0;
    image_copy_help(&copy, n_threads, first, NULL);
    return end() == 0 ? n_polite : -1;
}

static void test_polite(void)
{
    saver = pthread_self();
    begin(N_MANY);
    is_int(count_polite(2), 3, "who helps lets others go first, before a few blocks");
    begin(N_MANY);
    is_int(count_polite(1), 0, "not so who saves, for whom the program waits");
    begin(N_MANY);
    image_copy_begin(&copy, &image, to, false);
    n_first_there = 0;
    n_polite = 0;
    image_copy_help(&copy, 2, NULL, NULL);
    is_int(n_polite, 0, "nor who helps where nobody brings to the disk what is there");
    is_int(end(), 0, "all is copied");
}

int main(void)
{
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (char)(i * 7 + i / 251);
    }
    test_copy(200, 1 << 20, false);
    test_copy(4500, 40 << 20, true); /* more than stays in a cache */
    sem_init(&is_held, 0, 0);
    sem_init(&may_go, 0, 0);
    test_held();
    test_failed();
    test_failed_piece();
    test_late();
    test_not_told();
    test_far();
    test_untouched();
    test_threads();
    test_watched();
    test_first();
    test_polite();
    is_int((int)n_early, 0, "no block is counted while it is copied");
    return tap_done();
}
