/* SPDX-License-Identifier: Apache-2.0 */
/* What is in a directory, as a parcel. */
#include <config.h>

#include "ckpt/parcel.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/commit.h"
#include "ckpt/io.h"
#include "ckpt/manifest.h"
#include "ckpt/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

int parcel_open_dir(int dir, const struct parcel *p, struct error *e)
{
    int fd = parcel_is_file(p)
                 ? fcntl(dir, F_DUPFD_CLOEXEC, 0)
                 : openat(dir, p->found.name,
                          O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return fd < 0 ? error_set(e, errno, "open %s", p->found.name) : fd;
}

/* --- of others --- */

struct packing {
    struct io *io;
    int dir;
    struct parcel *p;
};

static int add_file(void *arg, const char *path, uint64_t bytes, struct error *e)
{
    struct packing *k = arg;
    _close_ int fd = tree_open(k->dir, path);
    struct digest digest;
    int rc = fd < 0 ? fd : tree_digest(k->io, fd, bytes, &digest);

    if (rc < 0) {
        return error_set(e, -rc, "read %s/%s", k->p->found.name, path);
    }
    return parcel_add(k->p, path, bytes, digest, e);
}

static int by_path(const void *a, const void *b)
{
    return strcmp(((const struct parcel_item *)a)->path,
                  ((const struct parcel_item *)b)->path);
}

static int add_size(void *arg, const char *path, struct error *e)
{
    struct packing *k = arg;
    _close_ int fd = tree_open(k->dir, path);
    uint64_t bytes = 0;
    int rc = fd < 0 ? fd : io_system()->ops->size(io_system(), fd, &bytes);

    return rc < 0 ? error_set(e, -rc, "open %s", path)
                  : add_file(arg, path, bytes, e);
}

static int pack_foreign(struct io *io, int dir, struct parcel *p, struct error *e)
{
    _close_ int fd = parcel_open_dir(dir, p, e);
    struct packing k = {io, fd, p};
    int rc = fd < 0               ? fd
             : parcel_is_file(p) ? add_size(&k, p->found.name, e)
                                 : tree_walk(fd, add_file, &k, e);

    if (rc < 0) {
        return rc;
    }
    /* The same files make the same seal, whatever order they lie in. */
    qsort(p->items, p->n, sizeof(*p->items), by_path);
    return parcel_seal(p, e);
}

/* --- of our own --- */

static int pack_step(int dir, const struct found *f, struct parcel *ret,
                     struct error *e)
{
    struct parcel p = {.found = *f};
    _close_ int fd = parcel_open_dir(dir, &p, e);
    _free_ char *commit = NULL, *manifest = NULL;
    size_t commit_len, manifest_len;
    int rc;

    if (fd < 0) {
        return fd;
    }
    rc = io_read_file(io_system(), fd, PARCEL_COMMIT, COMMIT_MAX_BYTES, &commit,
                      &commit_len);
    if (rc < 0) {
        return error_set(e, -rc, "read %s/COMMIT", f->name);
    }
    rc = io_read_file(io_system(), fd, PARCEL_MANIFEST, MANIFEST_MAX_BYTES,
                      &manifest, &manifest_len);
    if (rc < 0) {
        return error_set(e, -rc, "read %s/manifest.json", f->name);
    }
    return parcel_from_step(f->name, commit, commit_len, manifest, manifest_len,
                            ret, e);
}

int parcel_pack(struct io *io, int dir, const struct found *f, struct parcel *ret,
                struct error *e)
{
    _parcel_ struct parcel p = {.found = *f};
    int rc;

    if (f->kind == FOUND_MUSTER) {
        return pack_step(dir, f, ret, e);
    }
    rc = pack_foreign(io, dir, &p, e);
    if (rc == 0) {
        *ret = p;
        p = (struct parcel){0};
    }
    return rc;
}
