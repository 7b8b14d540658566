/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From the store. What is here with its length and digest is not fetched: it is synced,
 * for who wrote it may have been killed before. The rest is written anew, in rounds: a
 * piece is written, then held against the digest with the others of its file, and whoever
 * has handed over the last one syncs the file. What cannot be synced is removed, and fetched
 * once more: the kernel takes for written what it could not write, and says so once. A
 * checkpoint of muster's own is none from the first file that is written to the end.
 */
#include <config.h>

#include "ckpt/store_priv.h"

#include "ckpt/commit.h"
#include "ckpt/dirlock.h"
#include "ckpt/io.h"
#include "ckpt/step_priv.h"
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

static int end_file(struct store_fetch *f, struct piece_file *file, struct error *e)
{
    const struct parcel_item *item = file->item;

    if (!pieces_are_right(file)) {
        return error_text(e, ERR_FORMAT, "%s/%s is damaged in the store: its %llu "
                          "bytes do not have the digest that %s says",
                          f->p->name, item->path,
                          (unsigned long long)item->bytes,
                          f->p->found.kind == FOUND_MUSTER ? PARCEL_MANIFEST
                                                           : PARCEL_COPY);
    }
    return f->finish ? f->finish(f->arg, file, e) : 0;
}

static int fetch_piece(void *arg, size_t i, struct error *e)
{
    struct store_fetch *f = arg;
    struct piece piece = pieces_get(f->pieces, i);
    const struct parcel_item *item = piece.file->item;
    _buf_ struct buf key = {0};
    _free_ char *data = NULL;
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
    rc = rc < 0 || !f->sink ? rc : f->sink(f->arg, &piece, data, e);
    if (rc < 0) {
        return rc;
    }
    /* Where this was the last one the others are where they go, too. */
    rc = pieces_put(&piece, data) ? end_file(f, piece.file, e) : 0;
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

enum { MAX_LOST = 2 }; /* the last one is the end */

struct pull {
    const struct store *st;
    const struct parcel *p;
    int dir;  /* that was asked for */
    int work; /* that the paths of items begin in */
    char part[FOUND_NAME_BYTES + 32]; /* name of `work` in `dir`, for others' */
    struct pieces pieces;
    bool is_new; /* `work` was made for this */
    unsigned *n_lost; /* of each file: how often what was here of it could not be synced */
    struct store_facts facts;
};

static void pull_release(struct pull *u)
{
    close_fd(&u->work);
    free(u->n_lost);
    pieces_release(&u->pieces);
}

/* A descriptor of a file that is there, whole and right; is_another(): it is not. */
static int open_whole(int dir, const struct parcel_item *item)
{
    struct io *io = io_system();
    _close_ int fd = tree_open(dir, item->path);
    struct digest digest = {0};
    uint64_t bytes = 0;
    int rc = fd < 0 ? fd : io->ops->size(io, fd, &bytes);

    rc = rc < 0 || bytes != item->bytes ? rc : tree_digest(io, fd, bytes, &digest);
    if (rc < 0) {
        return rc;
    }
    return bytes == item->bytes && digest_equal(digest, item->digest) ? take_fd(&fd)
                                                                      : -ENODATA;
}

/* What could not be looked at, for a disk or want of memory, may be whole: it stays. */
static bool is_another(int rc)
{
    return rc == -ENOENT || rc == -ENODATA || rc == -EINVAL || rc == -ELOOP ||
           rc == -ENOTDIR;
}

/* Another checkpoint's files under this name are left alone. A COMMIT that is damaged makes
 * none: it is as if it were not there. */
static int check_commit(const struct pull *u, struct error *e)
{
    _free_ char *commit = NULL;
    struct commit read;
    size_t len = 0;
    int rc = io_read_file(io_system(), u->work, PARCEL_COMMIT, COMMIT_MAX_BYTES, &commit, &len);

    if (rc == -ENOENT || rc == -EFBIG ||
        (rc == 0 && len == u->p->seal.len && memcmp(commit, u->p->seal.data, len) == 0)) {
        return 0;
    }
    if (rc < 0) {
        return error_set(e, -rc, "read %s/COMMIT", u->p->name);
    }
    rc = commit_decode(commit, len, &read, NULL);
    if (rc == -ENOMEM) {
        return error_set(e, ENOMEM, "read %s/COMMIT", u->p->name);
    }
    return rc == -ERR_FORMAT ? 0
                             : error_text(e, EEXIST, "there is another checkpoint %s here",
                                          u->p->name);
}

/* Whether that name still leads to what is open. */
static bool is_still(const struct pull *u, const char *name)
{
    struct stat here, there;

    return fstat(u->work, &here) == 0 &&
           fstatat(u->dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 &&
           here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

/* Two who write there would cut files that the other one has finished, and given their name.
 * Where no directory can be locked nobody knows of the other. */
static int lock_work(const struct pull *u, const char *name, struct error *e)
{
    char suffix[DIRLOCK_SUFFIX_BYTES];
    int rc = u->st->is_dry ? 0 : dirlock_take(u->work, suffix);

    if (rc == -EBUSY || (rc == 0 && !is_still(u, name))) {
        return error_text(e, EBUSY, "somebody else fetches %s into this directory, or copies it "
                          "from there: try again once that is done", u->p->found.name);
    }
    return rc < 0 ? error_set(e, -rc, "lock %s", name) : 0;
}

static int open_work(struct pull *u, struct error *e)
{
    bool is_ours = u->p->found.kind == FOUND_MUSTER;
    const char *name = is_ours ? u->p->name : u->part;
    int rc;

    snprintf(u->part, sizeof(u->part), ".%s.muster-part", u->p->found.name);
    u->is_new = !u->st->is_dry && mkdirat(u->dir, name, 0700) == 0;
    if (!u->st->is_dry && !u->is_new && errno != EEXIST) {
        return error_set(e, errno, "make %s", name);
    }
    u->work = openat(u->dir, name,
                     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (u->work < 0 && u->st->is_dry && (u->dir < 0 || errno == ENOENT)) {
        return 0;
    }
    if (u->work < 0) {
        return error_set(e, errno, "open %s", name);
    }
    rc = lock_work(u, name, e);
    return rc < 0 || !is_ours ? rc : check_commit(u, e);
}

/* A file of others' checkpoint: whether it is what the store has, and on the disk. */
static int check_here(const struct pull *u, int at, const struct parcel_item *item,
                      struct error *e)
{
    const char *name = u->p->found.name;
    _close_ int fd = at < 0 ? -ENOENT : open_whole(at, item);
    int rc = fd < 0 ? fd : 0;

    if (is_another(rc)) {
        return error_text(e, EEXIST, "%s is here already, and is not what the store has: move "
                          "it away", name);
    }
    if (rc == 0 && !u->st->is_dry) {
        rc = io_system()->ops->sync(io_system(), fd);
        rc = rc < 0 ? rc : tree_sync(at, item->path);
    }
    return rc < 0 ? error_set(e, -rc, "look at %s, of %s, which is here already", item->path,
                              name)
                  : 0;
}

/* Whether others' checkpoint is here already: 1, 0; -EEXIST for another one. The pull that
 * brought it may have ended before its name was on the disk. */
static int is_all_here(const struct pull *u, struct error *e)
{
    const struct parcel *p = u->p;
    struct stat st;
    _close_ int at = -1;
    int rc = 0;

    if (p->found.kind == FOUND_MUSTER ||
        fstatat(u->dir, p->found.name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return 0;
    }
    at = parcel_open_dir(u->dir, p, NULL);
    for (size_t i = 0; i < p->n && rc == 0; i++) {
        rc = check_here(u, at, &p->items[i], e);
    }
    if (rc == 0 && !u->st->is_dry && fsync(u->dir) < 0) {
        rc = error_set(e, errno, "sync the directory of %s", p->found.name);
    }
    return rc < 0 ? rc : 1;
}

/* --- files --- */

/* Without its seal, whatever comes meanwhile: where a file is missing or damaged, or is not
 * on the disk, nobody is to take it for a checkpoint. */
static int unseal(const struct pull *u)
{
    struct io *io = io_system();
    int rc;

    if (u->p->found.kind != FOUND_MUSTER) {
        return 0;
    }
    io->ops->unlink(io, u->work, STEP_COMMIT_OLD); /* or a removal would go on */
    rc = io->ops->unlink(io, u->work, PARCEL_COMMIT);
    return rc < 0 && rc != -ENOENT ? rc : io->ops->sync(io, u->work);
}

/* One that cannot be synced must not stay: the next one who looks would find it right. */
static int lose(struct pull *u, const struct piece_file *f, int code, struct error *e)
{
    const char *name = u->p->found.name, *path = f->item->path;
    unsigned *n_lost = &u->n_lost[f - u->pieces.files];

    if (unseal(u) < 0 || tree_unlink(u->work, path) < 0) {
        return error_set(e, -code, "%s/%s cannot be put on the disk, nor removed: remove it "
                         "before you pull again", name, path);
    }
    return ++*n_lost < MAX_LOST ? 0
                                : error_set(e, -code, "%s/%s was written twice, and could not be "
                                            "put on the disk", name, path);
}

/* Not fetched, where it is here. */
static int look(void *arg, size_t i, struct error *e)
{
    struct pull *u = arg;
    struct piece_file *f = &u->pieces.files[i];
    _close_ int fd = u->work < 0 ? -ENOENT : open_whole(u->work, f->item);
    int rc;

    if (fd < 0) {
        return is_another(fd) ? 0 : error_set(e, -fd, "look at %s/%s", u->p->found.name,
                                              f->item->path);
    }
    rc = u->st->is_dry ? 0 : io_system()->ops->sync(io_system(), fd);
    f->is_done = rc == 0;
    return rc < 0 ? lose(u, f, rc, e) : 0;
}

/* Before a round. */
static int prepare(void *arg, size_t i, struct error *e)
{
    struct pull *u = arg;
    struct piece_file *f = &u->pieces.files[i];
    const char *path = f->item->path;
    int rc, fd;

    if (f->is_done) {
        return 0;
    }
    pieces_reset(f);
    fd = tree_create_file(u->work, path);
    rc = fd < 0 ? fd : 0;
    if (rc == 0 && ftruncate(fd, (off_t)f->item->bytes) < 0) {
        rc = -errno;
    }
    close_fd(&fd);
    return rc < 0 ? error_set(e, -rc, "make %s/%s", u->p->found.name, path) : 0;
}

static int write_piece(void *arg, const struct piece *piece, const void *data,
                       struct error *e)
{
    struct pull *u = arg;
    const char *path = piece->file->item->path;
    _close_ int fd = tree_create_file(u->work, path);
    int rc = fd < 0 ? fd
                    : io_write_all(io_system(), fd, data, piece->len, piece->at);

    return rc < 0 ? error_set(e, -rc, "write %s/%s", u->p->found.name, path) : 0;
}

/* All of it is written. */
static int finish_file(void *arg, struct piece_file *f, struct error *e)
{
    struct pull *u = arg;
    _close_ int fd = tree_open(u->work, f->item->path);
    int rc = fd < 0 ? fd : io_system()->ops->sync(io_system(), fd);

    f->is_done = rc == 0;
    if (fd < 0) {
        return error_set(e, -fd, "open %s/%s", u->p->found.name, f->item->path);
    }
    return rc < 0 ? lose(u, f, rc, e) : 0;
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

static bool is_all_done(const struct pull *u)
{
    for (size_t i = 0; i < u->pieces.n_files; i++) {
        if (!u->pieces.files[i].is_done) {
            return false;
        }
    }
    return true;
}

static int sync_names(const struct pull *u, struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < u->p->n && rc == 0; i++) {
        rc = tree_sync(u->work, u->p->items[i].path);
        if (rc < 0) {
            error_set(e, -rc, "sync the directory of %s", u->p->items[i].path);
        }
    }
    return rc;
}

/* A round more is for files that could not be synced: each has MAX_LOST. */
static int fetch_all(struct pull *u, struct error *e)
{
    struct store_fetch f = {.st = u->st, .p = u->p, .pieces = &u->pieces,
                            .sink = write_piece, .finish = finish_file, .arg = u};
    int rc = store_crowd(u->st, look, u, u->pieces.n_files, e);

    if (rc < 0) {
        return rc;
    }
    count(u);
    rc = check_space(u, e);
    if (rc < 0 || u->st->is_dry) {
        return rc;
    }
    rc = u->facts.n_moved == 0 ? 0 : unseal(u);
    if (rc < 0) {
        return error_set(e, -rc, "take COMMIT away from %s, of which files are to be fetched",
                         u->p->found.name);
    }
    store_progress(u->st, &f.done, u->facts.bytes_kept, u->p->bytes);
    while (rc == 0 && !is_all_done(u)) {
        rc = store_crowd(u->st, prepare, u, u->pieces.n_files, e);
        rc = rc < 0 ? rc : store_fetch(&f, e);
    }
    return rc < 0 ? rc : sync_names(u, e);
}

/* --- the end --- */

/* Its directory's name is on the disk before it says that it is a checkpoint. */
static int put_commit(const struct pull *u)
{
    static const char *const temporary = STEP_COMMIT_NEW;
    struct io *io = io_system();
    const struct buf *seal = &u->p->seal;
    int fd, rc = io->ops->sync(io, u->dir);

    if (rc < 0) {
        return rc;
    }
    unlinkat(u->work, temporary, 0);
    unlinkat(u->work, STEP_COMMIT_OLD, 0);
    fd = io->ops->create(io, u->work, temporary);
    if (fd < 0) {
        return fd;
    }
    rc = io_write_all(io, fd, seal->data, seal->len, 0);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
    io->ops->close(io, fd);
    rc = rc < 0 ? rc : io->ops->rename(io, u->work, temporary, PARCEL_COMMIT);
    return rc < 0 ? rc : io->ops->sync(io, u->work);
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

/* What was made, and has got nothing, is not left: as where there is no room. */
static void leave(const struct pull *u)
{
    if (u->is_new) {
        unlinkat(u->dir, u->p->found.kind == FOUND_MUSTER ? u->p->name : u->part, AT_REMOVEDIR);
    }
}

static int pull(const struct store *st, const struct parcel *p, int dir,
                struct store_facts *ret, struct error *e)
{
    __attribute__((cleanup(pull_release))) struct pull u = {
        .st = st, .p = p, .dir = dir, .work = -1};
    int rc = is_all_here(&u, e);

    if (rc > 0) {
        *ret = (struct store_facts){.n_kept = p->n, .bytes_kept = p->bytes};
        return 0;
    }
    u.n_lost = calloc(p->n + 1, sizeof(*u.n_lost));
    if (rc == 0 &&
        (!u.n_lost || pieces_create(p, st->part_bytes, SIZE_MAX, &u.pieces) < 0)) {
        rc = error_set(e, ENOMEM, "pull %s", p->name);
    }
    rc = rc < 0 ? rc : open_work(&u, e);
    rc = rc < 0 ? rc : fetch_all(&u, e);
    *ret = u.facts;
    if (rc < 0) {
        leave(&u);
    }
    if (rc < 0 || st->is_dry) {
        return rc;
    }
    rc = p->found.kind == FOUND_MUSTER ? put_commit(&u) : give_name(&u);
    return rc < 0 ? error_set(e, -rc, "finish %s", p->found.name) : 0;
}

/* What is gone here says nothing of what the store has. */
int store_pull(const struct store *st, const struct parcel *p, int dir,
               struct store_facts *ret, struct error *e)
{
    struct error why = {0};
    int rc = pull(st, p, dir, ret, &why);

    if (rc == -ENOENT) {
        return error_text(e, EBUSY, "%s: somebody else fetches it as well, or removes it",
                          why.text);
    }
    if (rc < 0 && e) {
        *e = why;
    }
    return rc;
}
