/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/step_bed.h"

#include "base/str.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"r00000.safetensors", "r00001.safetensors",
                                    "tensors.index"};
enum { N_FILES = 3 };

static size_t fill(char *to, uint64_t step, size_t file)
{
    size_t n = file < BED_FILES ? BED_FILE_BYTES + file * 17 : 300;

    for (size_t i = 0; i < n; i++) {
        to[i] = (char)(step * 131 + file * 29 + i * 7 + i / 256);
    }
    return n;
}

static void make_uuid(uint64_t step, uint64_t token,
                      char to[COMMIT_UUID_BYTES])
{
    snprintf(to, COMMIT_UUID_BYTES, "%08llx%024llx",
             (unsigned long long)token, (unsigned long long)step);
}

void bed_name(uint64_t step, uint64_t token, char to[STEP_NAME_BYTES])
{
    char uuid[COMMIT_UUID_BYTES];

    make_uuid(step, token, uuid);
    step_name(step, uuid, to);
}

static int seen(void *arg, uint64_t block)
{
    *(uint64_t *)arg = block;
    return 0;
}

/* Whole, or block by block. */
static int put_file(struct step_save *s, const struct manifest_file *f,
                    const char *data, size_t i, struct error *e)
{
    uint64_t last = 0;
    struct io_blocks b = {.data = data, .len = f->bytes, .block_bytes = 512,
                          .before = seen, .arg = &last};

    return i % 2 == 0 ? step_save_file(s, f->name, data, f->bytes, e)
                      : step_save_blocks(s, f->name, &b, e);
}

static int put_all(struct step_save *s, struct manifest *m, struct error *e)
{
    char data[2 * BED_FILE_BYTES];
    int rc = 0;

    for (size_t i = 0; i < N_FILES && rc == 0; i++) {
        struct manifest_file *f = &m->files[i];
        uint64_t block;

        str_copy(f->name, sizeof(f->name), names[i]);
        f->bytes = fill(data, m->step, i);
        block = digest_short_of(data, f->bytes);
        f->digest = digest_of_blocks(&block, f->bytes);
        rc = put_file(s, f, data, i, e);
    }
    rc = rc < 0 ? rc : step_save_sync(s, e);
    return rc < 0 ? rc : step_save_commit(s, m, e);
}

int bed_save(struct io *io, int root, uint64_t step, uint64_t token,
             struct error *e)
{
    _cleanup_(step_save) struct step_save *s = NULL;
    struct manifest_file files[N_FILES];
    struct manifest m = {.step = step, .token = token, .version = "test",
                         .n_ranks = BED_FILES, .n_nodes = 1,
                         .n_files = N_FILES, .files = files,
                         .index = N_FILES - 1};
    int rc;

    make_uuid(step, token, m.uuid);
    rc = step_save_begin(io, root, step, m.uuid, &s, e);
    rc = rc < 0 ? rc : put_all(s, &m, e);
    if (rc < 0 && s) {
        step_save_abort(s);
    }
    return rc;
}

bool bed_is_right(struct step *s)
{
    char want[2 * BED_FILE_BYTES];

    for (size_t i = 0; i < N_FILES; i++) {
        _free_ char *data = NULL;
        size_t len = 0, n = fill(want, s->commit.step, i);

        if (io_read_file(s->io, s->dir, names[i], sizeof(want), &data,
                         &len) < 0 ||
            len != n || memcmp(data, want, n) != 0) {
            return false;
        }
    }
    return true;
}
