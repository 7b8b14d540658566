/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/segment.h"

#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
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
    ok(ftruncate(b->fd, 0) < 0 && errno == EPERM, "can not be cut short");
    segment_destroy(a);
    segment_in(b, 0, 0)[0] = 1;
    segment_destroy(b);
    segment_destroy(NULL);
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
    test_create();
    test_bad_numbers();
    test_not_a_segment();
    test_texts();
    return tap_done();
}
