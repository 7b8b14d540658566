/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time to durable: a snapshot in shared memory becomes a checkpoint on a disk, as an agent
 * makes it of one that was full before it began (ckpt/drain.h), digests included; beside the
 * limit that the disk sets: the same bytes into one file, past the page cache, several blocks
 * at a time, and an fsync.
 *
 *   drain_bench DIRECTORY BYTES ROUNDS     a line a round: both, in nanoseconds
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/str.h"
#include "ckpt/drain.h"
#include "ckpt/io_direct.h"
#include "ckpt/limits.h"
#include "ckpt/step.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SAID_BYTES = 16, MAX_THREADS = 2 };

static const char uuid[] = "0f3a9c2e000000000000000000000000";
static const char image[] = "r00000.safetensors", part[] = "r00000.part";

static int fail(const char *what, const struct error *e)
{
    fprintf(stderr, "drain_bench: %s: %s\n", what, e->text);
    return 1;
}

static void fill(struct snap *s, uint64_t len)
{
    uint64_t x = 1;

    for (uint64_t i = 0; i + sizeof(x) <= len; i += sizeof(x)) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(s->map + SNAP_PAGE_BYTES + i, &x, sizeof(x));
    }
    s->head = (struct snap_head){.state = SNAP_FULL, .n_ranks = 1, .step = 1,
                                 .image_bytes = len, .part_bytes = SAID_BYTES};
    str_copy(s->head.uuid, sizeof(s->head.uuid), uuid);
    snap_note(s);
}

/* In memory, as those of agents are. Nothing is left of its name. */
static int make_snap(uint64_t len, struct snap **ret, struct error *e)
{
    const struct snap_want want = {.room = snap_room(len, SAID_BYTES),
                                   .n_threads = MAX_THREADS};
    char path[] = "/dev/shm/drain_bench.XXXXXX";
    _close_ int dir = mkdtemp(path) ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    int rc;

    if (dir < 0) {
        return error_set(e, errno, "a directory in /dev/shm");
    }
    rc = snap_create(dir, "snap", &want, ret, e);
    unlinkat(dir, "snap", 0);
    rmdir(path);
    if (rc == 0) {
        fill(*ret, len);
    }
    return rc;
}

static int finish(const void *said, size_t len, const uint64_t *blocks, size_t n_blocks,
                  struct buf *ret, struct error *e)
{
    buf_append(ret, said, len);
    buf_append(ret, (const char *)blocks, n_blocks * sizeof(*blocks));
    return ret->failed ? error_set(e, ENOMEM, "a part") : 0;
}

static int commit(struct io *io, int root, uint64_t len, struct digest digest, struct error *e)
{
    struct manifest_file files[2] = {{.name = "r00000.safetensors", .bytes = len,
                                      .digest = digest},
                                     {.name = "tensors.index", .bytes = SAID_BYTES}};
    struct manifest m = {.step = 1, .version = "bench", .n_ranks = 1,
                         .n_nodes = 1, .n_files = 2, .files = files,
                         .index = 1};
    _cleanup_(step_save) struct step_save *s = NULL;
    char name[STEP_NAME_BYTES];
    int rc;

    memcpy(m.uuid, uuid, sizeof(uuid));
    step_name(1, uuid, name);
    rc = step_save_join(io, root, name, &s, e);
    rc = rc < 0 ? rc : step_save_file(s, files[1].name, uuid, SAID_BYTES, e);
    rc = rc < 0 ? rc : step_save_drop(s, part, e);
    rc = rc < 0 ? rc : step_save_sync(s, e);
    return rc < 0 ? rc : step_save_commit(s, &m, e);
}

static int save(struct io *io, int root, const struct snap *s, struct error *e)
{
    struct drain_progress progress = {0};
    const struct drain d = {.io = io, .root = root, .snap = s, .file = image,
                            .part_file = part, .finish = finish, .progress = &progress};
    struct digest digest;
    int rc = drain_run(&d, &digest, e);

    return rc < 0 ? rc : commit(io, root, s->head.image_bytes, digest, e);
}

static int one_round(struct io *io, int root, const struct snap *s, struct error *e)
{
    char name[STEP_NAME_BYTES];
    uint64_t start, limit_ns;
    int rc = limits_write(io, root, "limit", snap_image(s), s->head.image_bytes, &limit_ns, e);

    if (rc < 0) {
        return rc;
    }
    start = clock_mono_ns();
    rc = save(io, root, s, e);
    if (rc < 0) {
        return rc;
    }
    printf("%llu %llu\n", (unsigned long long)limit_ns,
           (unsigned long long)(clock_mono_ns() - start));
    fflush(stdout);
    step_name(1, uuid, name);
    return step_remove(io, root, name, e);
}

int main(int argc, char **argv)
{
    struct error e = {0};
    _cleanup_(snap) struct snap *s = NULL;
    _close_ int root = argc == 4 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                 : -1;

    if (root < 0) {
        fprintf(stderr, "usage: drain_bench DIRECTORY BYTES ROUNDS\n");
        return 2;
    }
    if (make_snap(strtoull(argv[2], NULL, 10), &s, &e) < 0) {
        return fail("a snapshot", &e);
    }
    for (int i = 0; i < atoi(argv[3]); i++) {
        if (one_round(io_direct(), root, s, &e) < 0) {
            return fail(argv[1], &e);
        }
    }
    return 0;
}
