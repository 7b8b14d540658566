/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/faults_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/model_bed.h"
#include "ckpt/save_priv.h"
#include "ckpt/team.h"
#include "tests/lib/tap.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* --- the layer --- */

static const struct io_ops *const real = &io_system_ops;

int faults_remember(int fd, const char *name)
{
    if (fd >= 0 && fd < FAULTS_MAX_FDS) {
        snprintf(faults_bed.names[fd], sizeof(faults_bed.names[fd]), "%s", name);
    }
    return fd;
}

static int move_aside(void *arg, const char *name)
{
    (void)arg;
    return str_starts(name, "step-")
               ? renameat(faults_bed.root, name, faults_bed.root, faults_bed.fault.aside) : 0;
}

/* 0, or what it fails of. */
static int meet(enum fault_call call, const char *name)
{
    struct fault *f = &faults_bed.fault;

    if (f->call != call || !str_starts(name, f->file)) {
        return 0;
    }
    if (f->after > 0) {
        f->after--;
        return 0;
    }
    if (f->limit && f->n >= f->limit) {
        return 0;
    }
    f->n++;
    if (f->aside && f->n == 1) {
        real->list(io_system(), faults_bed.root, move_aside, NULL);
    }
    return -f->error;
}

static int create(struct io *io, int dir, const char *name)
{
    int rc = meet(FAULT_CREATE, name);

    return rc < 0 ? rc : faults_remember(real->create(io, dir, name), name);
}

static int open_file(struct io *io, int dir, const char *name)
{
    int rc = meet(FAULT_OPEN, name);

    return rc < 0 ? rc : faults_remember(real->open_file(io, dir, name), name);
}

static int open_dir(struct io *io, int dir, const char *name)
{
    int fd = real->open_dir(io, dir, name);

    return str_starts(name, "step-") && atomic_fetch_add(&faults_bed.n_dirs, 1) > 0
               ? faults_remember(fd, FAULTS_JOINED) : fd;
}

static ssize_t write_at(struct io *io, int fd, const void *data, size_t len,
                        uint64_t at)
{
    int rc = meet(FAULT_WRITE, faults_bed.names[fd]);

    return rc < 0 ? rc : real->write(io, fd, data, len, at);
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    int rc = meet(FAULT_READ, faults_bed.names[fd]);

    return rc < 0 ? rc : real->read(io, fd, to, len, at);
}

static int sync_fd(struct io *io, int fd)
{
    int rc = meet(FAULT_SYNC, faults_bed.names[fd]);

    return rc < 0 ? rc : real->sync(io, fd);
}

static int rename_in(struct io *io, int dir, const char *from, const char *to)
{
    int rc = meet(FAULT_RENAME, from);

    if (rc < 0 && faults_bed.fault.is_done_all_the_same) {
        real->rename(io, dir, from, to);
    }
    return rc < 0 ? rc : real->rename(io, dir, from, to);
}

static int unlink_in(struct io *io, int dir, const char *name)
{
    int rc = meet(FAULT_UNLINK, name);

    if (rc < 0 && faults_bed.fault.is_done_all_the_same) {
        real->unlink(io, dir, name);
    }
    return rc < 0 ? rc : real->unlink(io, dir, name);
}

static int close_fd_of(struct io *io, int fd)
{
    int rc = fd >= 0 && fd < FAULTS_MAX_FDS ? meet(FAULT_CLOSE, faults_bed.names[fd]) : 0, closed;

    faults_remember(fd, "");
    closed = real->close(io, fd);
    return rc < 0 ? rc : closed;
}

struct io *faults_layer(void)
{
    struct io_ops *ops = &faults_bed.ops;

    *ops = io_system_ops;
    ops->create = create;
    ops->open_dir = open_dir;
    ops->open_file = open_file;
    ops->write = write_at;
    ops->read = read_at;
    ops->sync = sync_fd;
    ops->rename = rename_in;
    ops->unlink = unlink_in;
    ops->close = close_fd_of;
    faults_bed.io.ops = ops;
    return &faults_bed.io;
}

/* --- ranks --- */

void faults_body(void *arg, const struct muster_ckpt_group *group)
{
    struct faults_play *p = arg;
    struct muster_ckpt_options o = {.size = sizeof(o), .n_threads = 1};
    struct muster_ckpt *ck = NULL;
    struct model *m;
    int r = group->rank;

    if (ckpt_create(NULL, group, faults_layer(), p->roots[r] ? p->roots[r] : faults_bed.root,
                    faults_bed.root_path, &o, &ck) < 0) {
        abort();
    }
    m = model_create(ck, (uint32_t)r, FAULTS_WORLD, p->step ? 1 : 2);
    model_set(m, p->data ? p->data : p->step);
    if (p->step) {
        p->rc[r] = muster_ckpt_save(ck, p->step, 0, NULL);
    } else {
        p->rc[r] = muster_ckpt_load(ck, MUSTER_CKPT_LATEST, 0, &p->loaded[r]);
        p->n_wrong[r] = p->rc[r] < 0 ? 1
                                     : model_wrong(m, p->data ? p->data : p->loaded[r]);
    }
    snprintf(p->text[r], sizeof(p->text[r]), "%s", muster_ckpt_error_text(ck));
    model_destroy(m);
    muster_ckpt_close(ck);
}

struct faults_play faults_save(int64_t step, const struct fault *f)
{
    struct faults_play p = {.step = step};

    faults_bed.fault = f ? *f : (struct fault){0};
    atomic_store(&faults_bed.n_dirs, 0);
    team_run(FAULTS_WORLD, true, faults_body, &p);
    return p;
}

struct faults_play faults_load(const struct fault *f)
{
    return faults_save(0, f);
}

bool faults_is_loaded(const struct faults_play *p, int64_t step)
{
    bool is_right = true;

    for (int r = 0; r < FAULTS_WORLD; r++) {
        is_right = is_right && p->rc[r] >= 0 && p->loaded[r] == step &&
                   p->n_wrong[r] == 0;
    }
    if (!is_right) {
        diag("%d, step %d: %s", p->rc[0], (int)p->loaded[0], p->text[0]);
    }
    return is_right;
}

void faults_begin(void)
{
    struct faults_bed *b = &faults_bed;
    const char *tmp = getenv("TMPDIR");

    snprintf(b->root_path, sizeof(b->root_path), "%s/faults_test.XXXXXX", tmp ? tmp : "/tmp");
    b->root = mkdtemp(b->root_path) ? open(b->root_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                                    : -1;
    if (b->root < 0) {
        bail_out("no directory %s", b->root_path);
    }
}

void faults_end(void)
{
    close(faults_bed.root);
    fs_remove_tree(faults_bed.root_path, NULL);
}

void faults_dir_of(int64_t step, char to[STEP_NAME_BYTES])
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    to[0] = '\0';
    step_list(io_system(), faults_bed.root, &entries, &n, NULL);
    for (size_t i = 0; i < n; i++) {
        if (entries[i].step == (uint64_t)step) {
            snprintf(to, STEP_NAME_BYTES, "%s", entries[i].name);
        }
    }
}

void faults_path_of(int64_t step, const char *file, char to[PATH_MAX])
{
    char name[STEP_NAME_BYTES];

    faults_dir_of(step, name);
    if (fs_path(to, PATH_MAX, NULL, "%.3000s/%s/%s", faults_bed.root_path, name, file) < 0) {
        bail_out("too long a path");
    }
}

unsigned faults_n_steps(void)
{
    _free_ struct step_entry *entries = NULL;
    size_t n = 0;

    step_list(io_system(), faults_bed.root, &entries, &n, NULL);
    return (unsigned)n;
}
