/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is there already under the name of what is to be copied. Of muster's own COMMIT
 * says it all, for it vouches for every byte; of others all bytes are held against each
 * other. Files that only the copy has say nothing, as where one comes from a store.
 */
#include <config.h>

#include "ckpt/copy.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/step.h"
#include "ckpt/step_priv.h"
#include "ckpt/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

struct pair {
    struct io *io;
    int from, to; /* directories, borrowed */
};

/* 0, or -EEXIST where they differ; errors of reading. */
static int compare_bytes(struct io *io, int a, int b, uint64_t bytes)
{
    _free_ char *x = malloc(PIECE_BYTES), *y = malloc(PIECE_BYTES);
    int rc = x && y ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < bytes && rc == 0; at += PIECE_BYTES) {
        size_t n = bytes - at < PIECE_BYTES ? bytes - at : PIECE_BYTES;

        rc = io_read_all(io, a, x, n, at);
        rc = rc < 0 ? rc : io_read_all(io, b, y, n, at);
        rc = rc == 0 && memcmp(x, y, n) != 0 ? -EEXIST : rc;
    }
    return rc;
}

static int compare_file(void *arg, const char *path, uint64_t bytes, struct error *e)
{
    const struct pair *p = arg;
    _close_ int a = tree_open(p->from, path), b = tree_open(p->to, path);
    uint64_t n = 0;
    int rc = a < 0 ? a : b < 0 ? -EEXIST : p->io->ops->size(p->io, b, &n);

    rc = rc == 0 && n != bytes ? -EEXIST : rc;
    rc = rc < 0 ? rc : compare_bytes(p->io, a, b, bytes);
    return rc < 0 ? error_set(e, -rc, "compare %s", path) : 0;
}

/* In its directory, or the file that it is. */
static int compare_one(struct io *io, int from, const struct found *f, const char *name,
                       int to, struct error *e)
{
    _close_ int file = tree_open(from, name);
    struct pair p = {io, from, to};
    uint64_t bytes = 0;
    int rc = file < 0 ? file : io->ops->size(io, file, &bytes);

    return rc < 0 ? error_set(e, -rc, "open %s", f->name)
                  : compare_file(&p, name, bytes, e);
}

static int compare(struct io *io, int from, const struct found *f, int to, struct error *e)
{
    _close_ int a = -1, b = -1;
    struct pair p = {.io = io};

    if (found_is_file(f)) {
        return compare_one(io, from, f, f->name, to, e);
    }
    a = openat(from, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    b = openat(to, f->name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (a < 0 || b < 0) {
        return error_set(e, errno, "open %s", f->name);
    }
    if (f->kind == FOUND_MUSTER) {
        return compare_one(io, a, f, STEP_COMMIT, b, e);
    }
    p.from = a;
    p.to = b;
    return tree_walk(a, compare_file, &p, e);
}

/* What is to be said of another one. */
static int tell_other(const struct found *f, const char *to_path, struct error *e)
{
    return error_text(e, EEXIST, "%s is in %s already, and is not what is to be copied: move it "
                      "away", f->name, to_path);
}

int copy_has_grown(struct io *io, int from, const struct found *f, int to,
                   const char *to_path, struct error *e)
{
    int rc = compare(io, from, f, to, e), is_part = rc;

    if (rc == -EEXIST) {
        is_part = compare(io, to, f, from, e);
    }
    if (is_part == -EEXIST) {
        return tell_other(f, to_path, e);
    }
    return is_part < 0 ? error_wrap(e, "what %s has of it", to_path) : rc == -EEXIST;
}

int copy_is_there(struct io *io, int from, const struct found *f, int to,
                  const char *to_path, struct found_facts *ret, struct error *e)
{
    struct found there;
    bool is_other = found_one(io, to, f->name, &there) && there.kind != f->kind;
    int rc = found_check(io, to, is_other ? &there : f, true, ret, e);

    if (rc == -ENOENT || (rc == -ERR_FORMAT && !ret->is_foreign)) {
        return 0;
    }
    rc = rc == -ERR_FORMAT || (rc == 0 && is_other) ? -EEXIST
         : rc == 0 ? compare(io, from, f, to, e) : rc;
    if (rc == -EEXIST) {
        return tell_other(f, to_path, e);
    }
    return rc < 0 ? error_wrap(e, "what %s has of it", to_path) : 1;
}
