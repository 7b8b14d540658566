/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/step.h"

#include "base/str.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_ALIGN = 4096 };

struct step_save {
    struct io *io;
    int root;
    int dir;
    char name[STEP_NAME_BYTES];
    struct file *files; /* that were put in here, newest first */
};

struct file {
    struct file *next;
    uint64_t identity; /* 0: not known */
    int fd;            /* open until it is synced; -1: it is, or need not be */
    char name[MANIFEST_NAME_BYTES];
};

/* --- beginning --- */

static int open_save(struct io *io, int root, const char *name,
                     struct step_save **ret, struct error *e)
{
    _cleanup_(step_save) struct step_save *s = calloc(1, sizeof(*s));

    if (!s) {
        return error_set(e, ENOMEM, "save %s", name);
    }
    s->io = io;
    s->root = root;
    str_copy(s->name, sizeof(s->name), name);
    s->dir = io->ops->open_dir(io, root, name);
    if (s->dir < 0) {
        return error_set(e, -s->dir, "open %s", name);
    }
    *ret = take_ptr(&s);
    return 0;
}

int step_save_join(struct io *io, int root, const char *name,
                   struct step_save **ret, struct error *e)
{
    uint64_t step;

    if (!step_parse_name(name, &step)) {
        return error_text(e, EINVAL, "'%.60s' is no checkpoint's directory",
                          name);
    }
    return open_save(io, root, name, ret, e);
}

int step_save_begin(struct io *io, int root, uint64_t step, const char *uuid,
                    struct step_save **ret, struct error *e)
{
    char name[STEP_NAME_BYTES];
    int rc;

    step_name(step, uuid, name);
    rc = io->ops->make_dir(io, root, name);
    if (rc < 0) {
        return error_set(e, -rc, "make %s", name);
    }
    rc = open_save(io, root, name, ret, e);
    if (rc < 0) {
        io->ops->remove_dir(io, root, name);
    }
    return rc;
}

static int close_file(struct step_save *s, struct file *f)
{
    int fd = f->fd;

    f->fd = -1;
    return fd < 0 ? 0 : s->io->ops->close(s->io, fd);
}

void step_save_destroy(struct step_save *s)
{
    if (!s) {
        return;
    }
    while (s->files) {
        struct file *f = s->files;

        s->files = f->next;
        close_file(s, f);
        free(f);
    }
    if (s->dir >= 0) {
        s->io->ops->close(s->io, s->dir);
    }
    free(s);
}

/* --- files --- */

/* What a file is filled with. */
struct content {
    const struct io_blocks *blocks; /* in memory; NULL: made block by block */
    step_block_f *make;
    void *arg;
    uint64_t len;
    enum { NEVER, NOW, LATER } synced;
};

static int write_blocks(struct io *io, int fd, const struct content *c)
{
    _free_ char *block = aligned_alloc(BLOCK_ALIGN, DIGEST_BLOCK_BYTES);
    int rc = block ? 0 : -ENOMEM;

    for (uint64_t at = 0; at < c->len && rc == 0; at += DIGEST_BLOCK_BYTES) {
        uint64_t left = c->len - at;
        size_t n = left < DIGEST_BLOCK_BYTES ? left : DIGEST_BLOCK_BYTES;

        c->make(c->arg, at, n, block);
        rc = io_write_all(io, fd, block, n, at);
    }
    return rc;
}

/* By that name somebody else's may be there now. */
static void unlink_own(const struct step_save *s, const struct file *f)
{
    uint64_t now = 0;

    if (f->identity && s->io->ops->identity(s->io, s->dir, f->name, &now) == 0 &&
        now != f->identity) {
        return;
    }
    s->io->ops->unlink(s->io, s->dir, f->name);
}

/* Writes an open file. */
static int fill(struct io *io, int fd, const struct content *c)
{
    int rc = io->ops->allocate(io, fd, c->len);

    if (rc == 0) {
        rc = c->blocks ? io_write_blocks(io, fd, c->blocks)
                       : write_blocks(io, fd, c);
    }
    return rc < 0 || c->synced != NOW ? rc : io->ops->sync(io, fd);
}

static int put(struct step_save *s, const char *name, const struct content *c,
               struct error *e)
{
    struct file *f = calloc(1, sizeof(*f));
    int rc, closed = 0;

    if (!f) {
        return error_set(e, ENOMEM, "write %s/%s", s->name, name);
    }
    f->fd = s->io->ops->create(s->io, s->dir, name);
    if (f->fd < 0) {
        rc = f->fd;
        free(f);
        return error_set(e, -rc, "make %s/%s", s->name, name);
    }
    str_copy(f->name, sizeof(f->name), name);
    if (s->io->ops->identity(s->io, f->fd, NULL, &f->identity) < 0) {
        f->identity = 0;
    }
    rc = fill(s->io, f->fd, c);
    if (rc < 0 || c->synced != LATER) {
        closed = close_file(s, f);
    }
    rc = rc < 0 ? rc : closed;
    if (rc < 0) {
        unlink_own(s, f);
        free(f);
        return error_set(e, -rc, "write %s/%s of %llu bytes", s->name, name,
                         (unsigned long long)c->len);
    }
    f->next = s->files;
    s->files = f;
    return 0;
}

static int put_named(struct step_save *s, const char *name,
                     const struct content *c, struct error *e)
{
    if (!manifest_is_name(name)) {
        return error_text(e, EINVAL, "'%.60s' cannot be a file of a checkpoint",
                          name);
    }
    return put(s, name, c, e);
}

static struct io_blocks all_at_once(const void *data, size_t len)
{
    return (struct io_blocks){.data = data, .len = len,
                              .block_bytes = len ? len : 1};
}

int step_save_file(struct step_save *s, const char *name, const void *data,
                   size_t len, struct error *e)
{
    struct io_blocks b = all_at_once(data, len);

    return step_save_blocks(s, name, &b, e);
}

int step_save_blocks(struct step_save *s, const char *name,
                     const struct io_blocks *blocks, struct error *e)
{
    struct content c = {.blocks = blocks, .len = blocks->len, .synced = NOW};

    return put_named(s, name, &c, e);
}

int step_save_later(struct step_save *s, const char *name,
                    const struct io_blocks *blocks, struct error *e)
{
    struct content c = {.blocks = blocks, .len = blocks->len, .synced = LATER};

    return put_named(s, name, &c, e);
}

int step_save_made(struct step_save *s, const char *name, uint64_t len,
                   step_block_f *make, void *arg, struct error *e)
{
    struct content c = {.make = make, .arg = arg, .len = len, .synced = NOW};

    return put_named(s, name, &c, e);
}

int step_save_note(struct step_save *s, const char *name, const void *data,
                   size_t len, struct error *e)
{
    struct io_blocks b = all_at_once(data, len);
    struct content c = {.blocks = &b, .len = len};

    return put_named(s, name, &c, e);
}

static void forget(struct step_save *s, const char *name)
{
    struct file **at = &s->files;

    while (*at) {
        struct file *f = *at;

        if (strcmp(f->name, name) == 0) {
            *at = f->next;
            close_file(s, f);
            free(f);
        } else {
            at = &f->next;
        }
    }
}

int step_save_drop(struct step_save *s, const char *name, struct error *e)
{
    int rc = s->io->ops->unlink(s->io, s->dir, name);

    forget(s, name);

    return rc < 0 && rc != -ENOENT
               ? error_set(e, -rc, "remove %s/%s", s->name, name) : 0;
}

int step_save_mark(struct step_save *s, const void *data, size_t len, struct error *e)
{
    struct io_blocks b = all_at_once(data, len);
    struct content c = {.blocks = &b, .len = len};

    return put(s, STEP_SAVER, &c, e);
}

void step_save_unmark(struct step_save *s)
{
    (void)step_save_drop(s, STEP_SAVER, NULL);
}

struct io *step_save_io(const struct step_save *s)
{
    return s->io;
}

int step_save_root(const struct step_save *s)
{
    return s->root;
}

int step_save_dir(const struct step_save *s)
{
    return s->dir;
}

const char *step_save_name(const struct step_save *s)
{
    return s->name;
}

static int sync_files(struct step_save *s, struct error *e)
{
    for (struct file *f = s->files; f; f = f->next) {
        int rc = f->fd < 0 ? 0 : s->io->ops->sync(s->io, f->fd);
        int closed = close_file(s, f);

        rc = rc < 0 ? rc : closed;
        if (rc < 0) {
            return error_set(e, -rc, "sync %s/%s", s->name, f->name);
        }
    }
    return 0;
}

int step_save_sync(struct step_save *s, struct error *e)
{
    int rc = sync_files(s, e);

    if (rc == 0) {
        rc = s->io->ops->sync(s->io, s->dir);
        rc = rc < 0 ? error_set(e, -rc, "sync %s", s->name) : 0;
    }
    return rc;
}

bool step_save_is_sealed(const struct step_save *s)
{
    return step_is_sealed(s->io, s->dir);
}

static void remove_own(struct step_save *s)
{
    for (const struct file *f = s->files; f; f = f->next) {
        unlink_own(s, f);
    }
    s->io->ops->remove_dir(s->io, s->root, s->name);
}

/* A commit that failed may have come through. */
void step_save_abort(struct step_save *s)
{
    if (step_uncommit(s->io, s->dir) == 0) {
        remove_own(s);
    }
}

void step_save_leave(struct step_save *s)
{
    if (!step_is_sealed(s->io, s->dir)) {
        remove_own(s);
    }
}

/* --- commit --- */

static void describe(const struct manifest *m, const struct buf *text,
                     struct commit *ret)
{
    char host[256] = "";

    *ret = (struct commit){
        .step = m->step,
        .generation = m->generation,
        .token = m->token,
        .manifest_bytes = text->len,
        .manifest_digest = digest_of(text->data, text->len),
        .n_files = m->n_files + 1,
        .total_bytes = text->len,
    };
    str_copy(ret->uuid, sizeof(ret->uuid), m->uuid);
    commit_put_writer(ret->version, m->version);
    if (gethostname(host, sizeof(host) - 1) == 0) {
        commit_put_writer(ret->host, host);
    }
    for (size_t i = 0; i < m->n_files; i++) {
        ret->total_bytes += m->files[i].bytes;
    }
}

static int put_manifest(struct step_save *s, const struct buf *b, struct error *e)
{
    struct io_blocks blocks = all_at_once(b->data, b->len);
    struct content c = {.blocks = &blocks, .len = b->len, .synced = LATER};

    return put(s, STEP_MANIFEST, &c, e);
}

static int put_commit(struct step_save *s, const struct buf *b, struct error *e)
{
    struct io_blocks blocks = all_at_once(b->data, b->len);
    struct content c = {.blocks = &blocks, .len = b->len, .synced = NOW};

    return put(s, STEP_COMMIT_NEW, &c, e);
}

/* All that a COMMIT vouches for, up to the directory's own name. */
static int sync_all(struct step_save *s, struct error *e)
{
    int rc = step_save_sync(s, e);

    if (rc == 0) {
        rc = s->io->ops->sync(s->io, s->root);
        rc = rc < 0 ? error_set(e, -rc, "sync the directory of %s", s->name) : 0;
    }
    return rc;
}

/* Whoever tidies up meanwhile may have moved it, with all that we hold open: it is
 * whole there, and nobody would find it. */
static int check_place(struct step_save *s, struct error *e)
{
    int dir = s->io->ops->open_dir(s->io, s->root, s->name);

    if (dir < 0) {
        return error_set(e, -dir, "%s was moved or removed while it was saved",
                         s->name);
    }
    s->io->ops->close(s->io, dir);
    return 0;
}

int step_save_commit(struct step_save *s, const struct manifest *m,
                     struct error *e)
{
    _buf_ struct buf text = {0}, line = {0};
    struct commit commit;
    int rc = manifest_encode(m, &text, e);

    rc = rc < 0 ? rc : put_manifest(s, &text, e);
    rc = rc < 0 ? rc : sync_all(s, e);
    if (rc < 0) {
        return rc;
    }
    describe(m, &text, &commit);
    commit_encode(&commit, &line);
    if (line.failed) {
        return error_set(e, ENOMEM, "commit %s", s->name);
    }
    rc = put_commit(s, &line, e);
    if (rc < 0) {
        return rc;
    }
    rc = s->io->ops->rename(s->io, s->dir, STEP_COMMIT_NEW, STEP_COMMIT);
    if (rc < 0) {
        return error_set(e, -rc, "commit %s", s->name);
    }
    rc = step_save_sync(s, e);
    return rc < 0 ? rc : check_place(s, e);
}
