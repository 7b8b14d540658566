/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/step.h"

#include "base/cleanup.h"
#include "base/str.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <limits.h>
#include <string.h>

enum { MAX_DIGITS = 10 };

/* Names that we give: what was begun and never finished has no manifest to list
 * them. */
static bool is_ours(const char *name)
{
    size_t n;

    if (strcmp(name, STEP_COMMIT) == 0 || strcmp(name, STEP_COMMIT_NEW) == 0 ||
        strcmp(name, STEP_MANIFEST) == 0 || strcmp(name, STEP_INDEX) == 0) {
        return true;
    }
    n = name[0] == 'r' ? strspn(name + 1, "0123456789") : 0;
    return n > 0 && n <= MAX_DIGITS &&
           (strcmp(name + 1 + n, ".safetensors") == 0 ||
            strcmp(name + 1 + n, ".part") == 0);
}

struct removal {
    struct io *io;
    int dir;
    char stuck[NAME_MAX + 1]; /* the file that cannot be removed; "": none by itself */
};

static int remove_ours(void *arg, const char *name)
{
    struct removal *r = arg;
    int rc;

    if (!is_ours(name)) {
        return 0;
    }
    rc = r->io->ops->unlink(r->io, r->dir, name);
    if (rc < 0 && rc != -ENOENT) {
        str_copy(r->stuck, sizeof(r->stuck), name);
    }
    return rc == -ENOENT ? 0 : rc;
}

/* COMMIT under another name says that this was one, and is to go: whoever finds that goes
 * on, and takes nothing for it that somebody is saving. On the disk before the rest goes. */
static int mark(struct io *io, int dir)
{
    int rc = io->ops->rename(io, dir, STEP_COMMIT, STEP_COMMIT_OLD);

    return rc < 0 && rc != -ENOENT ? rc : io->ops->sync(io, dir);
}

static bool is_no_room(int rc)
{
    return rc == -ENOSPC || rc == -EDQUOT;
}

/* Some have no room for another name. Once COMMIT has gone without one nothing says that the
 * rest is to go, so it goes now, even if that COMMIT has gone may not be on the disk: were it
 * back after a loss of power it would lack files, and nobody takes that for whole. */
static int mark_or_uncommit(struct io *io, int dir)
{
    int rc = mark(io, dir);

    if (is_no_room(rc)) {
        rc = step_uncommit(io, dir);
        return is_no_room(rc) && step_look_for(io, dir, STEP_COMMIT) == 0 ? 0 : rc;
    }
    return rc;
}

/* What says that the rest may go does so last. */
static int remove_marks(struct removal *r)
{
    static const char *const marks[] = {STEP_COMMIT_OLD, STEP_SAVER};
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(marks) && rc == 0; i++) {
        rc = r->io->ops->unlink(r->io, r->dir, marks[i]);
        rc = rc == -ENOENT ? 0 : rc;
    }
    return rc;
}

static int remove_files(struct removal *r)
{
    int rc = mark_or_uncommit(r->io, r->dir);

    rc = rc < 0 ? rc : r->io->ops->list(r->io, r->dir, remove_ours, r);
    return rc < 0 ? rc : remove_marks(r);
}

int step_uncommit(struct io *io, int dir)
{
    int rc = io->ops->unlink(io, dir, STEP_COMMIT);

    if (rc == -ENOENT) {
        return 0;
    }
    return rc < 0 ? rc : io->ops->sync(io, dir);
}

struct strangers {
    char name[NAME_MAX + 1]; /* of the first; "": none */
    size_t n;
};

static int count_stranger(void *arg, const char *name)
{
    struct strangers *s = arg;

    if (s->n++ == 0) {
        str_copy(s->name, sizeof(s->name), name);
    }
    return 0;
}

/* What is left once all that is ours has gone. */
static int tell_left(struct io *io, int root, const char *name, struct error *e)
{
    struct strangers s = {0};
    int dir = io->ops->open_dir(io, root, name);

    if (dir >= 0) {
        io->ops->list(io, dir, count_stranger, &s);
        io->ops->close(io, dir);
    }
    return s.n > 1 ? error_text(e, ENOTEMPTY, "%s/%s and %zu more are not muster's: they stay, "
                                "in what is no checkpoint any more", name, s.name, s.n - 1)
                   : error_text(e, ENOTEMPTY, "%s/%s is not muster's: it stays, in what is no "
                                "checkpoint any more", name, s.name);
}

static int remove_step(struct io *io, int root, const char *name, bool is_told,
                       struct error *e)
{
    struct removal r = {.io = io};
    uint64_t step;
    int rc;

    if (!step_parse_name(name, &step)) {
        return error_text(e, EINVAL, "'%.60s' is no checkpoint's directory",
                          name);
    }
    r.dir = io->ops->open_dir(io, root, name);
    if (r.dir < 0) {
        return r.dir == -ENOENT ? 0 : error_set(e, -r.dir, "open %s", name);
    }
    rc = remove_files(&r);
    io->ops->close(io, r.dir);
    rc = rc < 0 ? rc : io->ops->remove_dir(io, root, name);
    if (rc == -ENOTEMPTY || rc == -EEXIST) {
        return is_told ? tell_left(io, root, name, e) : 0;
    }
    return rc < 0 && rc != -ENOENT
               ? error_set(e, -rc, "remove %s%s%s", name, *r.stuck ? "/" : "", r.stuck) : 0;
}

int step_remove(struct io *io, int root, const char *name, struct error *e)
{
    return remove_step(io, root, name, false, e);
}

int step_remove_all(struct io *io, int root, const char *name, struct error *e)
{
    return remove_step(io, root, name, true, e);
}

/* Where nobody can tell whether it has a COMMIT it may be a checkpoint. */
static bool is_half_removed(struct io *io, int root, const char *name)
{
    int dir = io->ops->open_dir(io, root, name);
    bool is = dir >= 0 && step_look_for(io, dir, STEP_COMMIT_OLD) > 0 &&
              step_look_for(io, dir, STEP_COMMIT) == 0;

    if (dir >= 0) {
        io->ops->close(io, dir);
    }
    return is;
}

int step_sweep(struct io *io, int root, struct error *e)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;
    int rc = step_list(io, root, &entries, &n, e);

    for (size_t i = 0; i < n; i++) {
        if (is_half_removed(io, root, entries[i].name)) {
            int one = step_remove(io, root, entries[i].name, rc < 0 ? NULL : e);

            rc = rc < 0 ? rc : one;
        }
    }
    return rc;
}

bool step_is_sealed(struct io *io, int dir)
{
    return step_look_for(io, dir, STEP_COMMIT) != 0 ||
           step_look_for(io, dir, STEP_MANIFEST) != 0;
}

int step_remove_files(struct io *io, int root, const char *name,
                      const char *const *files, size_t n, struct error *e)
{
    int dir = io->ops->open_dir(io, root, name), rc = 0;

    if (dir < 0) {
        return dir == -ENOENT ? 0 : error_set(e, -dir, "open %s", name);
    }
    if (step_is_sealed(io, dir)) {
        io->ops->close(io, dir);
        return 0;
    }
    for (size_t i = 0; i < n && (rc == 0 || rc == -ENOENT); i++) {
        rc = io->ops->unlink(io, dir, files[i]);
    }
    io->ops->close(io, dir);
    rc = rc < 0 && rc != -ENOENT ? rc : io->ops->remove_dir(io, root, name);
    return rc == 0 || rc == -ENOENT || rc == -ENOTEMPTY || rc == -EEXIST
               ? 0 : error_set(e, -rc, "remove %s", name);
}
