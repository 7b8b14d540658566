/* SPDX-License-Identifier: Apache-2.0 */
/* A save into memory of an agent's: what it is asked for, and told; and memory that is taken
 * on the way, by two threads, where there is not enough. */
#include <config.h>

#include "ckpt/save_priv.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "base/thread.h"
#include "ckpt/digest.h"
#include "ckpt/snap.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_STATE = 20000 };

#define BYTES (2 * DIGEST_BLOCK_BYTES) /* a block for each of the two threads */

/* --- an agent of ours --- */

static int memory = -1;
static int n_asked, n_done;
static struct worker_snap_begin asked; /* last */
static struct worker_snap_fill filled; /* last ... */
static int n_filled;
static uint64_t filled_at; /* ... and how far it was then */
static char first_at;      /* the first byte of the image then */
static int cannot_tell;    /* that it is being filled: what comes of it */
static struct worker_snap_done done;   /* last */
static struct worker_snap_want wanted; /* with it; of no level: nothing was */
static size_t too_short;  /* so many bytes of what was asked for are not there */
static bool is_mapped;    /* what is handed out has its memory */
static int refusal;      /* what is answered instead; 0: that it may */
static bool is_far_behind; /* it answers what was asked before */

struct client *__wrap_client_of(struct muster *m);
struct client_place *__wrap_client_place(struct client *c);
int __wrap_client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                             struct error *e);
int __wrap_client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                              struct error *e);
int __wrap_client_snap_fill(struct client *c, const struct worker_snap_fill *told,
                            struct error *e);
int __wrap_client_snap_send(struct client *c, const struct worker_snap_done *told,
                            const struct worker_snap_want *want, struct error *e);
int __wrap_client_snap_taken(struct client *c, const char *uuid, struct error *e);

static long n_processors = 4;
long __real_sysconf(int name);
long __wrap_sysconf(int name);

long __wrap_sysconf(int name)
{
    return name == _SC_NPROCESSORS_ONLN ? n_processors : __real_sysconf(name);
}

struct client *__wrap_client_of(struct muster *m)
{
    return (struct client *)m;
}

struct client_place *__wrap_client_place(struct client *c)
{
    static struct client_place none;

    (void)c;
    none.data = NULL;
    return &none;
}

static uint64_t bytes_there(void)
{
    struct stat st;

    return fstat(memory, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
}

/* What was cut is made as long again, as the agent does. */
int __wrap_client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                             struct error *e)
{
    uint64_t len = SNAP_PAGE_BYTES + begin->bytes - too_short;

    (void)c;
    (void)e;
    asked = *begin;
    n_asked++;
    return bytes_there() < len && ftruncate(memory, (off_t)len) < 0 ? -errno : 0;
}

/* How far it is, by the page. */
static uint64_t count(void)
{
    uint64_t n = UINT64_MAX;

    return pread(memory, &n, sizeof(n), SNAP_PAGE_BYTES - sizeof(n)) == sizeof(n) ? n
                                                                                 : UINT64_MAX;
}

ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);

int __wrap_client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                              struct error *e)
{
    const uint64_t none = 0;

    (void)c;
    (void)e;
    *ret = (struct worker_snap){.bytes = asked.bytes, .is_bare = !is_mapped};
    str_copy(ret->why, sizeof(ret->why), "3 of 2 bytes");
    if (refusal) {
        return refusal;
    }
    str_copy(ret->uuid, sizeof(ret->uuid), is_far_behind ? "another one" : asked.uuid);
    if (__real_pwrite(memory, &none, sizeof(none), SNAP_PAGE_BYTES - sizeof(none)) < 0) {
        return -errno;
    }
    *ret_fd = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    return 0;
}

int __wrap_client_snap_fill(struct client *c, const struct worker_snap_fill *told,
                            struct error *e)
{
    (void)c;
    (void)e;
    filled = *told;
    n_filled++;
    filled_at = count();
    if (pread(memory, &first_at, 1, SNAP_PAGE_BYTES) != 1) {
        first_at = '\0';
    }
    return cannot_tell;
}

int __wrap_client_snap_send(struct client *c, const struct worker_snap_done *told,
                            const struct worker_snap_want *want, struct error *e)
{
    (void)c;
    (void)e;
    done = *told;
    wanted = want ? *want : (struct worker_snap_want){0};
    n_done++;
    return 0;
}

int __wrap_client_snap_taken(struct client *c, const char *uuid, struct error *e)
{
    (void)c;
    (void)uuid;
    (void)e;
    return 0;
}

/* --- a kernel of ours --- */

enum { POPULATE_WRITE = 23, A_MOMENT_MS = 100 };

enum fault {
    NONE,
    WRITER_FAILS, /* while the helper fills its block */
    HELPER_FAILS, /* when the writer has done its own */
};

static enum fault fault;
static pthread_t writer;
static sem_t is_writing, may_write;
static bool is_held; /* the writer's first write waits */

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at);
int __real_madvise(void *at, size_t len, int advice);
int __wrap_madvise(void *at, size_t len, int advice);
int __real_fallocate(int fd, int mode, off_t at, off_t len);
int __wrap_fallocate(int fd, int mode, off_t at, off_t len);

ssize_t __wrap_pwrite(int fd, const void *data, size_t len, off_t at)
{
    if (is_held && pthread_equal(pthread_self(), writer)) {
        is_held = false;
        sem_post(&is_writing);
        sem_wait(&may_write);
        if (fault == WRITER_FAILS) {
            errno = ENOSPC;
            return -1;
        }
    }
    return __real_pwrite(fd, data, len, at);
}

/* The helper has pages for its block: now the writer goes on, and comes to its end. */
int __wrap_madvise(void *at, size_t len, int advice)
{
    int rc = __real_madvise(at, len, advice);

    if (advice == POPULATE_WRITE && fault != NONE && !pthread_equal(pthread_self(), writer)) {
        sem_post(&may_write);
        poll(NULL, 0, A_MOMENT_MS);
        if (fault == HELPER_FAILS) {
            errno = EFAULT;
            return -1;
        }
    }
    return rc;
}

int __wrap_fallocate(int fd, int mode, off_t at, off_t len)
{
    if (fault == HELPER_FAILS) {
        errno = ENOSPC;
        return -1;
    }
    return __real_fallocate(fd, mode, at, len);
}

/* --- */

struct bench {
    struct save_way way;
    struct image image;
    struct part part;
    struct save_job job;
    struct error error;
    int rc;
};

static void setup(struct bench *b)
{
    struct load_source source;

    *b = (struct bench){.image.bytes = BYTES, .image.header.len = BYTES};
    memory = memfd_create("save_agent_test", MFD_CLOEXEC);
    b->image.header.data = malloc(BYTES);
    if (memory < 0 || !b->image.header.data ||
        save_agent_create((struct muster *)(void *)b, &b->way, &source) < 0) {
        bail_out("nothing to save to");
    }
    memset(b->image.header.data, 'x', BYTES);
    b->job = (struct save_job){.root_path = "/scratch/ck", .image = &b->image,
                               .part = &b->part, .plan = 1, .n_threads = 1};
    b->job.gather.uuid = "0123456789abcdef0123456789abcdef";
}

static void teardown(struct bench *b)
{
    b->way.ops->destroy(b->way.self);
    free(b->image.header.data);
    close_fd(&memory);
}

static void *put(void *arg)
{
    struct bench *b = arg;

    writer = pthread_self();
    b->rc = b->way.ops->put(b->way.self, &b->job, &b->error);
    return NULL;
}

/* As at a fence: a thread of the save's own puts, and the caller helps. */
static int save(struct bench *b, enum fault f)
{
    pthread_t t;

    fault = f;
    is_held = true;
    b->error = (struct error){0};
    if (b->way.ops->reserve(b->way.self, &b->job, &b->error) < 0 ||
        thread_start(&t, put, b) != 0) {
        bail_out("no save: %s", b->error.text);
    }
    sem_wait(&is_writing);
    if (f == NONE) {
        sem_post(&may_write);
    }
    b->way.ops->help(b->way.self, 1);
    pthread_join(t, NULL);
    return b->rc;
}

static int hand(struct bench *b)
{
    int rc = b->way.ops->send(b->way.self, &b->job, &b->error);

    return rc < 0 ? rc : b->way.ops->hand(b->way.self, &b->job, &b->error);
}

/* Whether the memory has the image, and the part behind it. */
static bool is_right(void)
{
    uint64_t len = bytes_there();
    char *at = mmap(NULL, len, PROT_READ, MAP_SHARED, memory, 0);
    bool is_right = at != MAP_FAILED;

    for (uint64_t i = 0; is_right && i < BYTES; i++) {
        is_right = at[SNAP_PAGE_BYTES + i] == 'x';
    }
    is_right = is_right && at[SNAP_PAGE_BYTES + snap_room(BYTES, 0)] != 0;
    munmap(at, len);
    return is_right;
}

static int reserve(struct bench *b)
{
    b->error = (struct error){0};
    return b->way.ops->reserve(b->way.self, &b->job, &b->error);
}

/* The same by one thread, without anything in its way. */
static int save_alone(struct bench *b)
{
    int rc = reserve(b);

    fault = NONE;
    is_held = false;
    return rc < 0 ? rc : b->way.ops->put(b->way.self, &b->job, &b->error);
}

/* Behind the image is the part that would be made now, and nothing of one before it. */
static bool is_part_right(const struct bench *b)
{
    _buf_ struct buf part = {0};
    uint64_t len = bytes_there(), from = SNAP_PAGE_BYTES + snap_room(BYTES, 0);
    char *at = mmap(NULL, len, PROT_READ, MAP_SHARED, memory, 0);
    bool is_right = at != MAP_FAILED && part_encode(&b->part, &part, NULL) == 0 &&
                    from + part.len <= len && memcmp(at + from, part.data, part.len) == 0;

    munmap(at, len);
    return is_right;
}

static void test_too_little(const char *who, enum fault f)
{
    struct bench b;

    setup(&b);
    n_done = n_filled = 0;
    is_int(save(&b, f), -ENOMEM, "%s finds too little memory", who);
    like(b.error.text, "shared memory for a snapshot: No space left", "which is told");
    is_int((intmax_t)bytes_there(), 0, "what was taken of it is given back");
    b.way.ops->abort(b.way.self, &b.job);
    is_int(n_done, 0, "the agent is not told that it has it");
    ok(n_filled == 2 && filled.image_bytes == 0, "but that it comes to nothing");
    is_int(save(&b, NONE), 0, "the next save has memory: %s", b.error.text);
    is_int(hand(&b), 0, "and is handed over");
    ok(n_done == 1 && is_right(), "with what was saved");
    teardown(&b);
}

static void test_answers(void)
{
    struct bench b;

    setup(&b);
    refusal = -ENOSPC;
    is_int(reserve(&b), -ENOMEM, "an agent without room for it has none of memory, not of disk");
    is_str(b.error.text, "3 of 2 bytes", "and says so in its words");
    refusal = 0;
    is_far_behind = true;
    is_int(reserve(&b), -EPROTO, "memory of another save is not taken");
    like(b.error.text, "answers what was asked before", "which is said");
    is_far_behind = false;
    is_int(save(&b, NONE), 0, "the next one is: %s", b.error.text);
    teardown(&b);
}

/* It is asked for before the part is made, which may have become longer. */
static void test_longer_part(void)
{
    _free_ char *state = malloc(N_STATE);
    struct bench b;

    setup(&b);
    save(&b, NONE);
    n_asked = 0;
    is_int(save(&b, NONE), 0, "a save by the plan of the one before");
    is_int(n_asked, 1, "asks for memory once");
    snprintf(state, N_STATE, "{\"a\":\"%0*d\"}", N_STATE - 9, 7);
    b.part.state = state;
    is_int(save(&b, NONE), 0, "one with more to tell");
    ok(n_asked == 3 && asked.bytes >= snap_room(BYTES, N_STATE),
       "asks again where that was too little");
    is_int(hand(&b), 0, "and is handed over");
    ok(is_right(), "with what was saved");
    teardown(&b);
}

/* Pieces of other names, in as many bytes: nothing of the part before is in theirs. */
static void test_other_plan(void)
{
    uint64_t one = 1, zero = 0;
    struct part_piece piece = {.name = "a", .n_dims = 1, .shape = &one, .at = &zero,
                               .len = &one};
    struct bench b;

    setup(&b);
    b.part.pieces = &piece;
    b.part.n_pieces = 1;
    n_asked = 0;
    is_int(save_alone(&b), 0, "the first save");
    is_int(n_asked, 1, "knows its part, and asks for memory once");
    ok(is_part_right(&b), "which has it");
    piece.name = "b";
    b.job.plan = 2;
    is_int(save_alone(&b), 0, "a save by another plan");
    ok(is_part_right(&b), "has its own");
    b.part.step = 7;
    is_int(save_alone(&b), 0, "and one more by that");
    is_int(n_asked, 3, "each asks once");
    ok(is_part_right(&b), "a part that says which save it is of");
    teardown(&b);
}

/* One that cannot be made is known of before anything is asked, or while that is done. */
static void test_no_part(void)
{
    _free_ char *state = malloc(N_STATE);
    uint64_t one = 1, zero = 0;
    struct part_piece piece = {.name = "\xff", .n_dims = 1, .shape = &one, .at = &zero,
                               .len = &one};
    struct bench b;

    setup(&b);
    b.part.pieces = &piece;
    b.part.n_pieces = 1;
    n_asked = 0;
    is_int(reserve(&b), -EINVAL, "a part that cannot be made");
    is_int(reserve(&b), -EINVAL, "nor when it is tried again");
    is_int(n_asked, 0, "asks for no memory");
    piece.name = "a";
    is_int(save_alone(&b), 0, "one that can: %s", b.error.text);
    ok(is_part_right(&b), "is there");
    piece.name = "\xff";
    snprintf(state, N_STATE, "{\"a\":\"%0*d\"}", N_STATE - 9, 7);
    b.part.state = state;
    refusal = -EBUSY;
    b.job.flags = MUSTER_CKPT_SKIP;
    is_int(reserve(&b), -EINVAL, "one that cannot, when it is made beside the question");
    like(b.error.text, "not UTF-8", "which is told, whatever the agent says: %s", b.error.text);
    refusal = 0;
    teardown(&b);
}

/* Memory that has its pages is mapped, and as long as it says. */
static void test_mapped(void)
{
    _free_ char *state = malloc(N_STATE);
    struct bench b;

    setup(&b);
    is_mapped = true;
    too_short = 1;
    is_int(reserve(&b), -EPROTO, "an agent that has less than it says");
    like(b.error.text, "has less than", "%s", b.error.text);
    too_short = 0;
    is_int(save_alone(&b), 0, "one that has it: %s", b.error.text);
    ok(is_right() && is_part_right(&b), "gets all of it");
    snprintf(state, N_STATE, "{\"a\":\"%0*d\"}", N_STATE - 9, 7);
    b.part.state = state;
    is_int(save_alone(&b), 0, "and more in the same memory, when that is longer");
    ok(is_right() && is_part_right(&b), "all of that, too");
    is_mapped = false;
    teardown(&b);
}

/* What the agent is told when it is there. */
static void test_told(void)
{
    struct bench b;

    setup(&b);
    save_alone(&b);
    is_int(hand(&b), 0, "a save is handed over");
    ok(done.image_bytes == BYTES && done.part_bytes > 0 &&
           snap_room(done.image_bytes, done.part_bytes) == asked.bytes,
       "with what is in it");
    is_str(done.uuid, b.job.gather.uuid, "and its name");
    is_int(wanted.level, WORKER_SNAP_NONE, "it goes to the disk");
    b.job.may_stay = b.job.is_chosen = true;
    save_alone(&b);
    hand(&b);
    is_int(wanted.level, WORKER_SNAP_HELD, "one that may stay in memory may");
    is_str(wanted.uuid, b.job.gather.uuid, "that one");
    ok(wanted.is_chosen, "where muster has chosen when");
    b.job.is_chosen = false;
    save_alone(&b);
    hand(&b);
    ok(!wanted.is_chosen, "or has not");
    teardown(&b);
}

/* A directory that agents cannot name to each other. */
static void test_root(void)
{
    char path[WORKER_ROOT_SIZE + 1];
    struct bench b;

    setup(&b);
    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[WORKER_ROOT_SIZE] = '\0';
    b.job.root_path = path;
    n_asked = 0;
    is_int(reserve(&b), -ENAMETOOLONG, "a path that is too long");
    b.job.root_path = "/scratch/\xff";
    is_int(reserve(&b), -EILSEQ, "one that is no text");
    is_int(n_asked, 0, "nothing is asked for them");
    path[WORKER_ROOT_SIZE - 1] = '\0';
    b.job.root_path = path;
    is_int(reserve(&b), 0, "the longest that may be");
    is_str(asked.root, path, "as it is");
    teardown(&b);
}

/* --- while it is filled --- */

/* Of so many bytes, none of which is as it was. */
static void resize(struct bench *b, uint64_t bytes)
{
    static char byte = 'a';
    char *data = realloc(b->image.header.data, bytes + 1);

    if (!data) {
        bail_out("no memory");
    }
    byte = byte < 'z' ? (char)(byte + 1) : 'a';
    memset(data, byte, bytes);
    b->image.header.data = data;
    b->image.header.len = b->image.bytes = bytes;
}

static void test_filling(bool mapped)
{
    struct bench b;

    setup(&b);
    is_mapped = mapped;
    for (int i = 0; i < 4; i++) {
        n_filled = 0;
        b.job.may_stay = i & 1;
        b.job.is_chosen = i & 2;
        resize(&b, BYTES - (uint64_t)i);
        is_int(save_alone(&b), 0, "a save into memory that %s: %s",
               mapped ? "is there" : "is taken on the way", b.error.text);
        is_int(n_filled, 1, "the agent is told of it once");
        ok(filled.image_bytes == BYTES - (uint64_t)i && filled.may_stay == (i & 1) &&
               filled.is_chosen == (i >> 1), "how much it is, and where to it goes: %d", i);
        is_str(filled.uuid, b.job.gather.uuid, "and which");
        ok(filled_at == 0 && first_at != b.image.header.data[0], "before anything is copied");
        is_int((intmax_t)count(), 2, "then it can be seen that all of it is there");
        is_int(hand(&b), 0, "it is handed over");
        b.way.ops->done(b.way.self, &b.job);
        is_int(n_filled, 1, "and nothing else is told");
    }
    is_mapped = false;
    teardown(&b);
}

/* Who writes what is there would take a processor from those that copy. */
static void test_no_processor(void)
{
    struct bench b;

    setup(&b);
    for (unsigned n = 3; n <= 5; n++) {
        n_filled = 0;
        b.job.n_threads = n;
        resize(&b, BYTES);
        is_int(save_alone(&b), 0, "%u threads copy", n);
        is_int(n_filled, n < 4, "of 4 processors %s is left", n < 4 ? "one" : "none");
        is_int((intmax_t)count(), 2, "all of it is there");
        is_int(hand(&b), 0, "it is handed over");
        b.way.ops->done(b.way.self, &b.job);
    }
    teardown(&b);
}

/* What is one block is with the disk at once. */
static void test_few(void)
{
    static const struct {
        uint64_t bytes;
        int n_told, n_blocks;
    } cases[] = {{0, 0, 0}, {1, 0, 1}, {DIGEST_BLOCK_BYTES, 0, 1}, {DIGEST_BLOCK_BYTES + 1, 1, 2}};
    struct bench b;

    setup(&b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        n_filled = 0;
        resize(&b, cases[i].bytes);
        is_int(save_alone(&b), 0, "a save of %llu bytes", (unsigned long long)cases[i].bytes);
        is_int(n_filled, cases[i].n_told, "the agent is told of it or not");
        is_int((intmax_t)count(), cases[i].n_blocks, "what there is can be seen");
        b.way.ops->abort(b.way.self, &b.job);
        is_int(n_filled, 2 * cases[i].n_told, "and that it comes to nothing");
    }
    teardown(&b);
}

static void test_given_up(void)
{
    struct bench b;

    setup(&b);
    n_filled = 0;
    is_int(reserve(&b), 0, "memory for a save");
    b.way.ops->abort(b.way.self, &b.job);
    is_int(n_filled, 0, "that is given up before it is filled: nothing is told");
    is_int(save_alone(&b), 0, "one that is filled");
    b.way.ops->abort(b.way.self, &b.job);
    ok(n_filled == 2 && filled.image_bytes == 0, "and given up: that is told");
    is_str(filled.uuid, b.job.gather.uuid, "of that one");
    b.way.ops->abort(b.way.self, &b.job);
    is_int(n_filled, 2, "once");
    is_int(save_alone(&b), 0, "one that the agent has");
    is_int(b.way.ops->send(b.way.self, &b.job, &b.error), 0, "as it is told");
    b.way.ops->abort(b.way.self, &b.job);
    is_int(n_filled, 3, "before others give it up: that is not told");
    cannot_tell = -EPIPE;
    is_int(save_alone(&b), 0, "one that the agent cannot be told of");
    cannot_tell = 0;
    b.way.ops->abort(b.way.self, &b.job);
    is_int(n_filled, 4, "is not told that it comes to nothing, either");
    teardown(&b);
}

/* The first block is held back, while all others are filled. */
static void test_sizes(void)
{
    static const unsigned sizes[] = {2, 5, 3, 2, 4, 5, 6}; /* in blocks */
    struct bench b;
    pthread_t t;

    setup(&b);
    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        resize(&b, sizes[i] * DIGEST_BLOCK_BYTES - 5000);
        fault = NONE;
        is_held = true;
        if (reserve(&b) < 0 || thread_start(&t, put, &b) != 0) {
            bail_out("no save: %s", b.error.text);
        }
        sem_wait(&is_writing);
        b.way.ops->help(b.way.self, 1);
        is_int((intmax_t)count(), 0, "%u blocks, all of which but the first are there", sizes[i]);
        sem_post(&may_write);
        pthread_join(t, NULL);
        is_int(b.rc, 0, "and then that: %s", b.error.text);
        is_int((intmax_t)count(), sizes[i], "which can be seen");
        is_int(hand(&b), 0, "it is handed over");
    }
    teardown(&b);
}

int main(void)
{
    sem_init(&is_writing, 0, 0);
    sem_init(&may_write, 0, 0);
    test_answers();
    test_longer_part();
    test_other_plan();
    test_no_part();
    test_mapped();
    test_told();
    test_root();
    test_filling(false);
    test_filling(true);
    test_no_processor();
    test_few();
    test_given_up();
    test_sizes();
    test_too_little("who writes", WRITER_FAILS);
    test_too_little("who helps", HELPER_FAILS);
    return tap_done();
}
