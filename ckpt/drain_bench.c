/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time to durable: a snapshot in shared memory becomes a checkpoint on a disk,
 * digests included, beside the limit that the disk sets: the same bytes into one
 * file, past the page cache, several blocks at a time, and an fsync.
 *
 *   drain_bench DIRECTORY BYTES ROUNDS     a line a round: both, in nanoseconds
 */
#include <config.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "ckpt/io_direct.h"
#include "ckpt/limits.h"
#include "ckpt/step.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct work {
    const char *data;
    uint64_t len;
    uint64_t *blocks;
};

static int fail(const char *what, const struct error *e)
{
    fprintf(stderr, "drain_bench: %s: %s\n", what, e->text);
    return 1;
}

/* As snapshots are: shared memory, faulted in. */
static char *make_data(uint64_t len)
{
    int fd = memfd_create("drain_bench", MFD_CLOEXEC);
    char *data = fd >= 0 && ftruncate(fd, (off_t)len) == 0
                     ? mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                     : MAP_FAILED;
    uint64_t x = 1;

    for (uint64_t i = 0; data != MAP_FAILED && i + 8 <= len; i += 8) {
        x = x * 6364136223846793005u + 1442695040888963407u;
        memcpy(data + i, &x, sizeof(x));
    }
    return data == MAP_FAILED ? NULL : data;
}

static int hash(void *arg, uint64_t block)
{
    struct work *w = arg;
    uint64_t at = block * DIGEST_BLOCK_BYTES;

    w->blocks[block] = digest_short_of(
        w->data + at, w->len - at < DIGEST_BLOCK_BYTES ? w->len - at
                                                       : DIGEST_BLOCK_BYTES);
    return 0;
}

static int save(struct io *io, int root, struct work *w, struct error *e)
{
    static const char uuid[] = "0f3a9c2e000000000000000000000000";
    struct io_blocks b = {.data = w->data, .len = w->len,
                          .block_bytes = DIGEST_BLOCK_BYTES,
                          .before = hash, .arg = w};
    struct manifest_file files[2] = {{.name = "r00000.safetensors"},
                                     {.name = "tensors.index"}};
    struct manifest m = {.step = 1, .version = "bench", .n_ranks = 1,
                         .n_nodes = 1, .n_files = 2, .files = files,
                         .index = 1};
    _cleanup_(step_save) struct step_save *s = NULL;
    int rc;

    memcpy(m.uuid, uuid, sizeof(uuid));
    rc = step_save_begin(io, root, 1, uuid, &s, e);
    rc = rc < 0 ? rc : step_save_blocks(s, files[0].name, &b, e);
    rc = rc < 0 ? rc : step_save_file(s, files[1].name, uuid, 16, e);
    rc = rc < 0 ? rc : step_save_sync(s, e);
    files[0].bytes = w->len;
    files[0].digest = digest_of_blocks(w->blocks, w->len);
    files[1].bytes = 16;
    return rc < 0 ? rc : step_save_commit(s, &m, e);
}

static int one_round(struct io *io, int root, struct work *w, struct error *e)
{
    char name[STEP_NAME_BYTES];
    uint64_t start, limit_ns;
    int rc = limits_write(io, root, "limit", w->data, w->len, &limit_ns, e);

    if (rc < 0) {
        return rc;
    }
    start = clock_mono_ns();
    rc = save(io, root, w, e);
    if (rc < 0) {
        return rc;
    }
    printf("%llu %llu\n", (unsigned long long)limit_ns,
           (unsigned long long)(clock_mono_ns() - start));
    fflush(stdout);
    step_name(1, "0f3a9c2e", name);
    return step_remove(io, root, name, e);
}

int main(int argc, char **argv)
{
    struct error e = {0};
    struct work w = {0};
    int root = argc == 4 ? open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                         : -1;

    if (root < 0) {
        fprintf(stderr, "usage: drain_bench DIRECTORY BYTES ROUNDS\n");
        return 2;
    }
    w.len = strtoull(argv[2], NULL, 10);
    w.data = make_data(w.len);
    w.blocks = calloc(digest_n_blocks(w.len) + 1, sizeof(*w.blocks));
    if (!w.data || !w.blocks) {
        fprintf(stderr, "drain_bench: no memory for %s bytes\n", argv[2]);
        return 1;
    }
    for (int i = 0; i < atoi(argv[3]); i++) {
        if (one_round(io_direct(), root, &w, &e) < 0) {
            return fail(argv[1], &e);
        }
    }
    free(w.blocks);
    close(root);
    return 0;
}
