/* SPDX-License-Identifier: Apache-2.0 */
/* A save into memory of an agent's that is taken on the way: two threads fill it, and there
 * is not enough. */
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
static int refusal;      /* what is answered instead; 0: that it may */
static bool is_far_behind; /* it answers what was asked before */

struct client *__wrap_client_of(struct muster *m);
struct client_place *__wrap_client_place(struct client *c);
int __wrap_client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                             struct error *e);
int __wrap_client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                              struct error *e);
int __wrap_client_snap_send(struct client *c, const struct worker_snap_done *done,
                            const struct worker_snap_want *want, struct error *e);
int __wrap_client_snap_taken(struct client *c, const char *uuid, struct error *e);

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

/* What was cut is made as long again, as the agent does. */
int __wrap_client_snap_begin(struct client *c, const struct worker_snap_begin *begin,
                             struct error *e)
{
    (void)c;
    (void)e;
    asked = *begin;
    n_asked++;
    return ftruncate(memory, (off_t)(SNAP_PAGE_BYTES + begin->bytes)) < 0 ? -errno : 0;
}

int __wrap_client_snap_answer(struct client *c, struct worker_snap *ret, int *ret_fd,
                              struct error *e)
{
    (void)c;
    (void)e;
    *ret = (struct worker_snap){.bytes = asked.bytes, .is_bare = 1};
    str_copy(ret->why, sizeof(ret->why), "3 of 2 bytes");
    if (refusal) {
        return refusal;
    }
    str_copy(ret->uuid, sizeof(ret->uuid), is_far_behind ? "another one" : asked.uuid);
    *ret_fd = fcntl(memory, F_DUPFD_CLOEXEC, 0);
    return 0;
}

int __wrap_client_snap_send(struct client *c, const struct worker_snap_done *done,
                            const struct worker_snap_want *want, struct error *e)
{
    (void)c;
    (void)done;
    (void)want;
    (void)e;
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

ssize_t __real_pwrite(int fd, const void *data, size_t len, off_t at);
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

static uint64_t bytes_there(void)
{
    struct stat st;

    return fstat(memory, &st) < 0 ? UINT64_MAX : (uint64_t)st.st_size;
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

static void test_too_little(const char *who, enum fault f)
{
    struct bench b;

    setup(&b);
    n_done = 0;
    is_int(save(&b, f), -ENOMEM, "%s finds too little memory", who);
    like(b.error.text, "shared memory for a snapshot: No space left", "which is told");
    is_int((intmax_t)bytes_there(), 0, "what was taken of it is given back");
    b.way.ops->abort(b.way.self, &b.job);
    is_int(n_done, 0, "the agent is told nothing");
    is_int(save(&b, NONE), 0, "the next save has memory: %s", b.error.text);
    is_int(hand(&b), 0, "and is handed over");
    ok(n_done == 1 && is_right(), "with what was saved");
    teardown(&b);
}

static int reserve(struct bench *b)
{
    b->error = (struct error){0};
    return b->way.ops->reserve(b->way.self, &b->job, &b->error);
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

int main(void)
{
    sem_init(&is_writing, 0, 0);
    sem_init(&may_write, 0, 0);
    test_answers();
    test_longer_part();
    test_too_little("who writes", WRITER_FAILS);
    test_too_little("who helps", HELPER_FAILS);
    return tap_done();
}
