/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/store_priv.h"

#include "ckpt/io.h"
#include "ckpt/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* --- pieces --- */

static int fetch_piece(void *arg, size_t i, struct error *e)
{
    struct store_fetch *f = arg;
    struct piece piece = pieces_get(f->pieces, i);
    const struct parcel_item *item = piece.file->item;
    _buf_ struct buf key = {0};
    _free_ char *data = NULL;
    bool is_last;
    int rc;

    if (piece.file->is_done) {
        return 0;
    }
    data = malloc(piece.len + 1);
    rc = data ? store_key(f->st, f->p->name, item->path, &key, e)
              : error_set(e, ENOMEM, "fetch %s", item->path);
    rc = rc < 0 || piece.len == 0 ? rc
                                  : s3_get_range(f->st->s3, buf_str(&key),
                                                 piece.at, data, piece.len, e);
    if (rc == -ENOENT) {
        return error_text(e, ERR_FORMAT, "%s/%s is missing", f->p->name,
                          item->path);
    }
    if (rc < 0) {
        return rc;
    }
    is_last = pieces_put(&piece, data);
    if (is_last && !pieces_are_right(piece.file)) {
        return error_text(e, ERR_FORMAT, "%s/%s is damaged in the store: its %llu "
                          "bytes do not have the digest that %s says",
                          f->p->name, item->path,
                          (unsigned long long)item->bytes,
                          f->p->found.kind == FOUND_MUSTER ? PARCEL_MANIFEST
                                                           : PARCEL_COPY);
    }
    rc = f->sink ? f->sink(f->arg, &piece, data, is_last, e) : 0;
    if (rc == 0) {
        store_progress(f->st, &f->done, piece.len, f->p->bytes);
    }
    return rc;
}

int store_fetch(struct store_fetch *f, struct error *e)
{
    return store_crowd(f->st, fetch_piece, f, f->pieces->n, e);
}

/* --- where it goes --- */

struct pull {
    const struct store *st;
    const struct parcel *p;
    int dir;  /* that was asked for */
    int work; /* that the paths of items begin in */
    char part[FOUND_NAME_BYTES + 32]; /* name of `work` in `dir`, for others' */
    struct pieces pieces;
    struct store_facts facts;
};

static void pull_release(struct pull *u)
{
    close_fd(&u->work);
    pieces_release(&u->pieces);
}

/* A file that is there, whole and right. */
static bool is_here(int dir, const struct parcel_item *item)
{
    _close_ int fd = tree_open(dir, item->path);
    struct digest digest;
    uint64_t bytes = 0;

    return fd >= 0 && io_system()->ops->size(io_system(), fd, &bytes) == 0 &&
           bytes == item->bytes && tree_digest(io_system(), fd, bytes, &digest) == 0 &&
           digest_equal(digest, item->digest);
}

/* Another checkpoint's files under this name are left alone. */
static int check_commit(const struct pull *u, struct error *e)
{
    _free_ char *commit = NULL;
    size_t len = 0;
    int rc = io_read_file(io_system(), u->work, PARCEL_COMMIT,
                          u->p->seal.len + 1, &commit, &len);

    if (rc == -ENOENT || (rc == 0 && len == u->p->seal.len &&
                          memcmp(commit, u->p->seal.data, len) == 0)) {
        return 0;
    }
    return rc < 0 && rc != -EFBIG
               ? error_set(e, -rc, "read %s/COMMIT", u->p->name)
               : error_text(e, EEXIST, "there is another checkpoint %s here",
                            u->p->name);
}

static int open_work(struct pull *u, struct error *e)
{
    bool is_ours = u->p->found.kind == FOUND_MUSTER;
    const char *name = is_ours ? u->p->name : u->part;

    snprintf(u->part, sizeof(u->part), ".%s.muster-part", u->p->found.name);
    if (!u->st->is_dry && mkdirat(u->dir, name, 0700) < 0 && errno != EEXIST) {
        return error_set(e, errno, "make %s", name);
    }
    u->work = openat(u->dir, name,
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (u->work < 0 && u->st->is_dry && errno == ENOENT) {
        return 0;
    }
    if (u->work < 0) {
        return error_set(e, errno, "open %s", name);
    }
    return is_ours ? check_commit(u, e) : 0;
}

/* Whether others' checkpoint is here already: 1, 0; -EEXIST for another one. */
static int is_all_here(const struct pull *u, struct error *e)
{
    const struct parcel *p = u->p;
    struct stat st;
    _close_ int at = -1;

    if (p->found.kind == FOUND_MUSTER ||
        fstatat(u->dir, p->found.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return 0;
    }
    at = parcel_open_dir(u->dir, p, NULL);
    for (size_t i = 0; i < p->n; i++) {
        if (at < 0 || !is_here(at, &p->items[i])) {
            return error_text(e, EEXIST, "%s is here already, and is not what the "
                              "store has: move it away", p->found.name);
        }
    }
    return 1;
}

/* --- files --- */

static int prepare(void *arg, size_t i, struct error *e)
{
    struct pull *u = arg;
    struct piece_file *f = &u->pieces.files[i];
    int rc, fd;

    if (is_here(u->work, f->item)) {
        f->is_done = true;
        return 0;
    }
    if (u->st->is_dry) {
        return 0;
    }
    fd = tree_create_file(u->work, f->item->path);
    rc = fd < 0 ? fd : 0;
    if (rc == 0 && ftruncate(fd, (off_t)f->item->bytes) < 0) {
        rc = -errno;
    }
    close_fd(&fd);
    return rc < 0 ? error_set(e, -rc, "make %s/%s", u->p->found.name,
                              f->item->path)
                  : 0;
}

static int write_piece(void *arg, const struct piece *piece, const void *data,
                       bool is_last, struct error *e)
{
    struct pull *u = arg;
    const char *path = piece->file->item->path;
    _close_ int fd = tree_create_file(u->work, path);
    int rc = fd < 0 ? fd
                    : io_write_all(io_system(), fd, data, piece->len, piece->at);

    rc = rc < 0 || !is_last ? rc : io_system()->ops->sync(io_system(), fd);
    return rc < 0 ? error_set(e, -rc, "write %s/%s", u->p->found.name, path) : 0;
}

static int check_space(const struct pull *u, struct error *e)
{
    struct statvfs fs;
    uint64_t room;

    if (fstatvfs(u->dir, &fs) < 0) {
        return 0;
    }
    room = (uint64_t)fs.f_bavail * fs.f_frsize;
    if (room >= u->facts.bytes_moved) {
        return 0;
    }
    return error_text(e, ENOSPC, "%s needs %llu bytes more, and the filesystem has "
                      "%llu left", u->p->found.name,
                      (unsigned long long)u->facts.bytes_moved,
                      (unsigned long long)room);
}

static void count(struct pull *u)
{
    for (size_t i = 0; i < u->pieces.n_files; i++) {
        const struct piece_file *f = &u->pieces.files[i];

        if (f->is_done) {
            u->facts.n_kept++;
            u->facts.bytes_kept += f->item->bytes;
        } else {
            u->facts.n_moved++;
            u->facts.bytes_moved += f->item->bytes;
        }
    }
}

static int fetch_all(struct pull *u, struct error *e)
{
    struct store_fetch f = {.st = u->st, .p = u->p, .pieces = &u->pieces,
                            .sink = write_piece, .arg = u};
    int rc = store_crowd(u->st, prepare, u, u->pieces.n_files, e);

    if (rc < 0) {
        return rc;
    }
    count(u);
    rc = check_space(u, e);
    if (rc < 0 || u->st->is_dry) {
        return rc;
    }
    store_progress(u->st, &f.done, u->facts.bytes_kept, u->p->bytes);
    rc = store_fetch(&f, e);
    for (size_t i = 0; i < u->p->n && rc == 0; i++) {
        rc = tree_sync(u->work, u->p->items[i].path);
        if (rc < 0) {
            error_set(e, -rc, "sync the directory of %s", u->p->items[i].path);
        }
    }
    return rc;
}

/* --- the end --- */

static int put_commit(const struct pull *u)
{
    static const char *const temporary = ".COMMIT.new";
    struct io *io = io_system();
    const struct buf *seal = &u->p->seal;
    int fd, rc;

    unlinkat(u->work, temporary, 0);
    fd = io->ops->create(io, u->work, temporary);
    if (fd < 0) {
        return fd;
    }
    rc = io_write_all(io, fd, seal->data, seal->len, 0);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
    io->ops->close(io, fd);
    rc = rc < 0 ? rc : io->ops->rename(io, u->work, temporary, PARCEL_COMMIT);
    rc = rc < 0 ? rc : io->ops->sync(io, u->work);
    return rc < 0 ? rc : io->ops->sync(io, u->dir);
}

/* The name that it had: never over one that has come meanwhile. */
static int give_name(const struct pull *u)
{
    const char *name = u->p->found.name;
    bool is_file = parcel_is_file(u->p);

    if (renameat2(is_file ? u->work : u->dir, is_file ? name : u->part, u->dir,
                  name, RENAME_NOREPLACE) < 0) {
        return -errno;
    }
    if (is_file) {
        unlinkat(u->dir, u->part, AT_REMOVEDIR);
    }
    return fsync(u->dir) < 0 ? -errno : 0;
}

int store_pull(const struct store *st, const struct parcel *p, int dir,
               struct store_facts *ret, struct error *e)
{
    __attribute__((cleanup(pull_release))) struct pull u = {
        .st = st, .p = p, .dir = dir, .work = -1};
    int rc = is_all_here(&u, e);

    if (rc > 0) {
        *ret = (struct store_facts){.n_kept = p->n, .bytes_kept = p->bytes};
        return 0;
    }
    if (rc == 0 && pieces_create(p, st->part_bytes, SIZE_MAX, &u.pieces) < 0) {
        rc = error_set(e, ENOMEM, "pull %s", p->name);
    }
    rc = rc < 0 ? rc : open_work(&u, e);
    rc = rc < 0 ? rc : fetch_all(&u, e);
    *ret = u.facts;
    if (rc < 0 || st->is_dry) {
        return rc;
    }
    rc = p->found.kind == FOUND_MUSTER ? put_commit(&u) : give_name(&u);
    return rc < 0 ? error_set(e, -rc, "finish %s", p->found.name) : 0;
}
