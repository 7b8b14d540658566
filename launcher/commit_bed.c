/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/commit_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/part.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N = COMMIT_BED_RANKS, BYTES = COMMIT_BED_BYTES };

void commit_bed_must(int rc, const struct error *e)
{
    if (rc < 0) {
        bail_out("%s", e->text);
    }
}

/* --- the directory --- */

void commit_bed_open(struct commit_bed *b, const char *dir)
{
    str_copy(b->top, sizeof(b->top), dir);
    b->root = open(b->top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (b->root < 0) {
        bail_out("no directory %s", b->top);
    }
}

void commit_bed_make(struct commit_bed *b, const char *name)
{
    char dir[sizeof(b->top)];

    snprintf(dir, sizeof(dir), "/tmp/%s.XXXXXX", name);
    if (!mkdtemp(dir)) {
        bail_out("no directory %s", dir);
    }
    commit_bed_open(b, dir);
}

void commit_bed_close(struct commit_bed *b)
{
    close(b->root);
    fs_remove_tree(b->top, NULL);
}

void commit_bed_clear(struct commit_bed *b)
{
    char dir[sizeof(b->top)];

    str_copy(dir, sizeof(dir), b->top);
    commit_bed_close(b);
    mkdir(dir, 0700);
    commit_bed_open(b, dir);
}

/* --- a save --- */

/* Names of directories have its first eight digits. */
static void put_uuid(const struct commit_bed *b, uint64_t step, char uuid[COMMIT_UUID_BYTES])
{
    snprintf(uuid, COMMIT_UUID_BYTES, "%07x%x%024x", (unsigned)step & 0xfffffff, b->nth & 0xf,
             0);
}

const char *commit_bed_uuid(struct commit_bed *b, uint64_t step)
{
    put_uuid(b, step, b->uuid);
    return b->uuid;
}

void commit_bed_name(struct commit_bed *b, uint64_t step, char name[STEP_NAME_BYTES])
{
    step_name(step, commit_bed_uuid(b, step), name);
}

bool commit_bed_has(struct commit_bed *b, uint64_t step, const char *file)
{
    char path[PATH_MAX], name[STEP_NAME_BYTES];

    commit_bed_name(b, step, name);
    snprintf(path, sizeof(path), "%s/%s/%s", b->top, name, file);
    return access(path, F_OK) == 0;
}

uint64_t commit_bed_token(struct commit_bed *b, uint64_t step)
{
    _step_ struct step found = {0};
    char name[STEP_NAME_BYTES];
    struct error e = {0};

    commit_bed_name(b, step, name);
    commit_bed_must(step_open(io_system(), b->root, name, &found, &e), &e);
    return found.commit.token;
}

void commit_bed_remove(struct commit_bed *b, uint64_t step)
{
    char name[STEP_NAME_BYTES];

    commit_bed_name(b, step, name);
    step_remove(io_system(), b->root, name, NULL);
}

static void put_rank(struct commit_bed *b, struct step_save *s, uint64_t step, uint32_t rank)
{
    const uint64_t shape = N * BYTES, at = rank * BYTES, len = BYTES;
    char data[BYTES] = "abcdefg", name[PART_NAME_BYTES];
    uint64_t block = digest_short_of(data, BYTES);
    struct part_piece piece = {"t", DTYPE_U8, 1, &shape, &at, &len, 0};
    struct part p = {.step = step, .rank = rank, .n_ranks = N, .file_bytes = BYTES,
                     .n_pieces = 1, .pieces = &piece, .n_blocks = 1, .blocks = &block};
    _free_ char *state = b->state && rank == 0 ? strdup(b->state) : NULL;
    _buf_ struct buf bytes = {0};
    struct error e = {0};

    p.state = state;
    str_copy(p.uuid, sizeof(p.uuid), commit_bed_uuid(b, step));
    commit_bed_must(part_encode(&p, &bytes, &e), &e);
    part_data_name(rank, name);
    commit_bed_must(step_save_file(s, name, data, BYTES, &e), &e);
    part_file_name(rank, name);
    commit_bed_must(step_save_file(s, name, bytes.data, bytes.len, &e), &e);
}

void commit_bed_write(struct commit_bed *b, uint64_t step, uint32_t n)
{
    _cleanup_(step_save) struct step_save *s = NULL;
    struct error e = {0};

    commit_bed_must(step_save_begin(io_system(), b->root, step, commit_bed_uuid(b, step), &s,
                                    &e), &e);
    for (uint32_t r = 0; r < n; r++) {
        put_rank(b, s, step, r);
    }
}

/* --- the lead --- */

struct snap_commit commit_bed_facts(const struct commit_bed *b, uint64_t step,
                                    char uuid[COMMIT_UUID_BYTES])
{
    put_uuid(b, step, uuid);
    return (struct snap_commit){
        .root = b->top, .n_written = N, .rule.keep = 2, .busy_from = UINT64_MAX,
        .gather = {.step = step, .uuid = uuid, .generation = 1, .token = 1,
                   .n_ranks = N},
    };
}

int commit_bed_run(const struct snap_commit *c, struct io *io, const struct error *why,
                   struct error *e)
{
    int rc = snap_commit(c, io, why, e);

    if (rc == 0) {
        snap_tidy(c, io);
    }
    return rc;
}

int commit_bed_commit(struct commit_bed *b, uint64_t step, uint32_t n_written,
                      uint64_t busy_from, const struct error *why, struct error *e)
{
    char uuid[COMMIT_UUID_BYTES];
    struct snap_commit c = commit_bed_facts(b, step, uuid);

    c.n_written = n_written;
    c.busy_from = busy_from;
    *e = (struct error){0};
    return commit_bed_run(&c, io_system(), why, e);
}

void commit_bed_save(struct commit_bed *b, uint64_t step)
{
    struct error e;

    commit_bed_write(b, step, N);
    is_int(commit_bed_commit(b, step, N, UINT64_MAX, NULL, &e), 0, "step %d: %s", (int)step,
           e.text);
}
