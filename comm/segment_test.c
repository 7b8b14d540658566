/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/segment.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

static const struct segment_spec good = {
    .generation = 3, .n_nodes = 2, .node = 1, .world = 5, .n_local = 2,
    .max_local = 3, .first_rank = 3,
};

static void test_create(void)
{
    struct segment *a = NULL, *b = NULL;
    struct error e = {0};
    char why[SEGMENT_WHY_SIZE];

    is_int(segment_create(&good, &a, &e), 0, "create");
    is_int(segment_map(a->fd, a->event_fd, &b, &e), 0, "map");
    is_int((intmax_t)b->size, (intmax_t)a->size, "the same size");
    is_int(b->spec.chunk_bytes, 1 << 20, "chunks for several nodes");
    ok(b->fd != a->fd && (fcntl(b->fd, F_GETFD) & FD_CLOEXEC), "its own fd");
    segment_in(a, 1, 7)[5] = 42;
    is_int(segment_in(b, 1, 3)[5], 42, "the same memory");
    ok(segment_global(a, 15) + a->spec.chunk_bytes <=
           (uint8_t *)a->head + a->size, "all inside");
    is_int(segment_aborted(b, why), SEGMENT_OK, "not aborted");
    segment_abort(a, SEGMENT_ABORT_LOST, "worker 4 died");
    segment_abort(b, SEGMENT_ABORT_MISMATCH, "later");
    is_int(segment_aborted(b, why), SEGMENT_ABORT_LOST, "the first one counts");
    is_str(why, "worker 4 died", "with its text");
    segment_aborted(a, why);
    is_str(why, "worker 4 died", "everywhere");
    ok(ftruncate(b->fd, 0) < 0 && errno == EPERM, "can not be cut short");
    segment_destroy(a);
    segment_in(b, 0, 0)[0] = 1;
    segment_destroy(b);
    segment_destroy(NULL);
}

/* Who aborts may be stopped, or die of the same thing, in the middle of it. */
static void test_abort_in_part(void)
{
    struct segment *s = NULL;
    char why[SEGMENT_WHY_SIZE] = "";

    if (segment_create(&good, &s, NULL) < 0) {
        bail_out("segment_create");
    }
    atomic_fetch_add(&s->head->n_whys, 1);
    is_int(segment_aborted(s, why), SEGMENT_OK, "begun, but not yet aborted");
    segment_abort(s, SEGMENT_ABORT_MISMATCH, "a text");
    is_int(segment_aborted(s, why), SEGMENT_ABORT_MISMATCH, "the next one does");
    is_str(why, "a text", "with a text that is whole");
    segment_destroy(s);
}

/* More at once than there is room for their texts, or nonsense in their place. */
static void test_abort_crowd(void)
{
    struct segment *s = NULL;
    char why[SEGMENT_WHY_SIZE] = "";

    if (segment_create(&good, &s, NULL) < 0) {
        bail_out("segment_create");
    }
    atomic_store(&s->head->n_whys, UINT32_MAX);
    segment_abort(s, SEGMENT_ABORT_LOST, "a text");
    is_int(segment_aborted(s, why), SEGMENT_ABORT_LOST, "aborted all the same");
    is_str(why, "the group was ended", "without a text");
    segment_destroy(s);
}

/* All of a node's events, and a thread that sleeps on one of them. */
struct sleeper {
    struct segment_event *event;
    pthread_t thread;
};

enum { LONG_MS = 600000 };

static void *sleep_once(void *arg)
{
    struct sleeper *s = arg;

    segment_event_sleep(s->event, 0, LONG_MS);
    return NULL;
}

static void start_sleepers(struct segment *s, struct sleeper *all, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        all[i].event = i == 0 ? &s->head->mover : &s->head->workers[i - 1].event;
        pthread_create(&all[i].thread, NULL, sleep_once, &all[i]);
    }
    for (size_t i = 0; i < n; i++) {
        while (atomic_load(&all[i].event->n_waiting) == 0) {
            poll(NULL, 0, 1);
        }
    }
}

/* The alarm is for those that sleep on. */
static void test_wake(void)
{
    struct sleeper all[3];
    struct segment *s = NULL;
    struct pollfd p;
    char why[SEGMENT_WHY_SIZE];

    if (segment_create(&good, &s, NULL) < 0) {
        bail_out("segment_create");
    }
    p = (struct pollfd){.fd = s->event_fd, .events = POLLIN};
    is_int(poll(&p, 1, 0), 0, "the mover has nothing to do");
    start_sleepers(s, all, 3);
    segment_abort(s, SEGMENT_ABORT_LOST, "over");
    for (int i = 0; i < 3; i++) {
        pthread_join(all[i].thread, NULL);
    }
    ok(true, "an abort wakes all workers, and those who wait for the mover");
    is_int(poll(&p, 1, 0), 1, "and the mover");
    segment_destroy(s);
    if (segment_create(&good, &s, NULL) < 0) {
        bail_out("segment_create");
    }
    p.fd = s->event_fd;
    start_sleepers(s, all, 3);
    segment_leave(s, 2);
    is_int(poll(&p, 1, 0), 0, "no such worker: nothing happens");
    segment_leave(s, 1);
    pthread_join(all[2].thread, NULL);
    is_int(poll(&p, 1, 0), 1, "who has left is told to the mover");
    ok(atomic_load(&s->head->workers[1].left) &&
           !atomic_load(&s->head->workers[0].left), "and to who waits for it");
    ok(segment_lacks_one(s, why), "and nobody gets past it");
    is_str(why, "worker 4 has ended, and others wait for it in a collective",
           "which is said");
    segment_finish(s, 1);
    ok(!segment_lacks_one(s, why), "unless it had finished");
    segment_event_signal(&s->head->mover);
    segment_event_signal(&s->head->workers[0].event);
    for (int i = 0; i < 2; i++) {
        pthread_join(all[i].thread, NULL);
    }
    ok(true, "a signal wakes who sleeps on that event");
    segment_event_sleep(&s->head->mover, 0, LONG_MS);
    ok(true, "what has moved on is not slept on");
    segment_destroy(s);
}

/* What a worker leaves for the bulk mover. */
static void post(struct segment *s, uint64_t chunk)
{
    atomic_store(&segment_post(s, chunk)->seq, chunk + 1);
}

static void test_waits(void)
{
    struct segment *s = NULL;

    if (segment_create(&good, &s, NULL) < 0) {
        bail_out("segment_create");
    }
    ok(!segment_waits(s), "nobody waits before the first chunk");
    post(s, 0);
    ok(segment_waits(s), "a chunk that is not done is waited for");
    atomic_store(&s->head->done, 1);
    ok(!segment_waits(s), "one that is done is not");
    for (uint64_t c = 1; c < 3 * SEGMENT_DEPTH; c++) {
        post(s, c);
        atomic_store(&s->head->done, c + 1);
    }
    ok(!segment_waits(s), "nor are those before, whose places are used again");
    post(s, 3 * SEGMENT_DEPTH);
    ok(segment_waits(s), "the next one is");
    segment_destroy(s);
}

/* A limit of the file size, say: told, not died of. */
static void test_no_memory(void)
{
    struct rlimit old, low;
    struct segment *s = NULL;
    struct error e = {0};

    getrlimit(RLIMIT_FSIZE, &old);
    low = (struct rlimit){.rlim_cur = 4096, .rlim_max = old.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low);
    is_int(segment_create(&good, &s, &e), -EFBIG, "no room for a segment");
    setrlimit(RLIMIT_FSIZE, &old);
    like(e.text, "a segment of 20", "names its size");
    ok(s == NULL, "and makes none");
}

static void test_bad_numbers(void)
{
    static const struct {
        const char *name;
        size_t at;
        uint32_t value;
    } cases[] = {
#define FIELD(f, v) {#f " " #v, offsetof(struct segment_spec, f), v}
        FIELD(n_nodes, 0), FIELD(n_nodes, 6), FIELD(node, 2), FIELD(world, 4),
        FIELD(world, UINT32_MAX), FIELD(n_local, 0), FIELD(n_local, 4),
        FIELD(max_local, 1), FIELD(max_local, 1025), FIELD(first_rank, 4),
        FIELD(first_rank, UINT32_MAX), FIELD(chunk_bytes, 1),
        FIELD(chunk_bytes, 4097), FIELD(chunk_bytes, 1u << 31),
        FIELD(n_nodes, 1),
#undef FIELD
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct segment_spec bad = good;
        struct segment *s = NULL;

        memcpy((char *)&bad + cases[i].at, &cases[i].value, sizeof(uint32_t));
        is_int(segment_create(&bad, &s, NULL), -EINVAL, "%s", cases[i].name);
    }
}

static int map_of(int fd)
{
    struct segment *s = NULL;
    int rc = segment_map(fd, fd, &s, NULL);

    segment_destroy(s);
    return rc;
}

static void test_not_a_segment(void)
{
    struct segment *s = NULL;
    int fd = memfd_create("x", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int half = memfd_create("y", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct segment_head head;

    is_int(map_of(-1), -EBADF, "no descriptor");
    is_int(map_of(0), -EINVAL, "something else");
    is_int(map_of(fd), -EINVAL, "an empty memfd");
    if (segment_create(&good, &s, NULL) < 0) {
        bail_out("segment_create");
    }
    memcpy(&head, s->head, sizeof(head));
    if (ftruncate(fd, (off_t)s->size) < 0 ||
        pwrite(fd, &head, sizeof(head), 0) < 0) {
        bail_out("memfd");
    }
    is_int(map_of(fd), -EINVAL, "not sealed");
    fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    is_int(map_of(fd), 0, "sealed");
    if (ftruncate(half, (off_t)s->size / 2) < 0 ||
        pwrite(half, &head, sizeof(head), 0) < 0) {
        bail_out("memfd");
    }
    fcntl(half, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    is_int(map_of(half), -EINVAL, "less memory than its numbers say");
    close(half);
    s->head->spec.n_local = 1000;
    is_int(map_of(s->fd), -EINVAL, "numbers scribbled over");
    s->head->spec.n_local = good.n_local;
    s->head->spec.max_local = 9;
    is_int(map_of(s->fd), 0, "numbers that change nothing");
    s->head->magic++;
    is_int(map_of(s->fd), -EINVAL, "another version");
    segment_destroy(s);
    close(fd);
}

static void test_texts(void)
{
    static const struct {
        struct segment_call call;
        const char *want;
    } cases[] = {
        {{.count = 12, .kind = SEGMENT_ALLREDUCE}, "allreduce of 12 float32 (sum)"},
        {{.count = 1, .kind = SEGMENT_ALLREDUCE, .type = 4, .op = 2},
         "allreduce of 1 uint8 (max)"},
        {{.kind = SEGMENT_ALLREDUCE, .type = 99, .op = 99}, "allreduce of 0 ? (?)"},
        {{.count = 7, .kind = SEGMENT_BROADCAST, .root = 3},
         "broadcast of 7 bytes from 3"},
        {{.kind = SEGMENT_BARRIER}, "barrier"},
        {{.kind = 77}, "something unknown"},
    };
    char text[96];

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        segment_call_text(&cases[i].call, text, sizeof(text));
        is_str(text, cases[i].want, "text %zu", i);
    }
}

int main(void)
{
    alarm(300);
    test_create();
    test_abort_in_part();
    test_abort_crowd();
    test_wake();
    test_waits();
    test_no_memory();
    test_bad_numbers();
    test_not_a_segment();
    test_texts();
    return tap_done();
}
