/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint of muster's own keeps its name, and is one when COMMIT is there:
 *
 *   the directory's name; the files, each on the disk; their names
 *   all of their bytes are held against the digests that the source vouches for
 *   COMMIT under another name; its own name
 *
 * Killed before the end it leaves what was never finished, which the next copy of it
 * takes away.
 */
#include <config.h>

#include "ckpt/copy_priv.h"

#include "base/cleanup.h"
#include "ckpt/step.h"
#include "ckpt/step_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

static bool is_same_directory(int a, int b)
{
    struct stat x, y;

    return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_ino == y.st_ino &&
           x.st_dev == y.st_dev;
}

/* An empty directory of that name, whatever was begun there before. */
static int make_place(int from, int to, const char *name, int *ret, struct error *e)
{
    int rc = is_same_directory(from, to)
                 ? error_text(e, EINVAL, "%s would be copied over itself", name)
                 : step_remove(io_system(), to, name, e);

    if (rc < 0) {
        return rc;
    }
    if (mkdirat(to, name, 0700) < 0 || fsync(to) < 0) {
        return error_set(e, errno, "make %s", name);
    }
    *ret = openat(to, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return *ret < 0 ? error_set(e, errno, "open %s", name) : 0;
}

static int copy_files(struct io *io, const struct step *s, int work, struct error *e)
{
    int rc = copy_file(io, s->dir, STEP_MANIFEST, work, STEP_MANIFEST, e);

    for (size_t i = 0; i < s->manifest.n_files && rc == 0; i++) {
        const char *name = s->manifest.files[i].name;

        rc = copy_file(io, s->dir, name, work, name, e);
    }
    return rc < 0 ? rc : fsync(work) < 0 ? error_set(e, errno, "sync %s", s->name)
                                         : 0;
}

static int verify(struct io *io, const struct step *s, int work, struct error *e)
{
    struct step there = *s; /* borrowed */

    there.io = io;
    there.dir = work;
    return step_verify(&there, e);
}

static int put_commit(const struct step *s, int work, struct error *e)
{
    int rc = copy_file(io_system(), s->dir, STEP_COMMIT, work, STEP_COMMIT_NEW, e);

    return rc < 0 ? rc
           : renameat(work, STEP_COMMIT_NEW, work, STEP_COMMIT) < 0 ||
                   fsync(work) < 0
               ? error_set(e, errno, "commit %s", s->name)
               : 0;
}

int copy_step(struct io *io, int from, const char *name, int to,
              struct found_facts *ret, struct error *e)
{
    _step_ struct step s = {0};
    _close_ int work = -1;
    int rc = step_open(io_system(), from, name, &s, e);

    rc = rc < 0 ? rc : make_place(from, to, name, &work, e);
    if (rc < 0) {
        return rc;
    }
    rc = copy_files(io, &s, work, e);
    rc = rc < 0 ? rc : verify(io, &s, work, e);
    rc = rc < 0 ? rc : put_commit(&s, work, e);
    if (rc < 0) {
        step_remove(io_system(), to, name, NULL);
        return rc;
    }
    ret->bytes = s.commit.total_bytes;
    ret->n_files = s.commit.n_files;
    return 0;
}
