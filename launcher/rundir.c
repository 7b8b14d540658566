/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir_priv.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/key.h"
#include "base/str.h"
#include "launcher/runindex.h"

#include <dirent.h>
#include <errno.h>
#include <sodium.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NONCE_HEX = 2 * RUNDIR_NONCE_BYTES + 1 };

static int make_layout(struct rundir *r, struct error *e)
{
    static const char *const below[] = {
        "logs", "errors", "ckpt", "control",
    };
    char path[PATH_MAX];
    int rc;

    for (size_t i = 0; i < ARRAY_SIZE(below); i++) {
        rc = rundir_path(r, path, sizeof(path), e, "%s", below[i]);
        if (rc < 0) {
            return rc;
        }
        if (mkdir(path, 0700) < 0 && errno != EEXIST) {
            return error_set(e, errno, "make directory %s", path);
        }
    }
    rc = rundir_make_key(r, e);
    /* Last: only a directory that is whole is a run directory. */
    return rc < 0 ? rc : run_file_write(r, e);
}

/* Replaces <dir>/latest whole: a reader sees the old one or the new one. */
static void point_latest(const struct rundir *r)
{
    char link[PATH_MAX], temporary[PATH_MAX];

    if (fs_path(link, sizeof(link), NULL, "%s/../latest", r->path) < 0 ||
        fs_path(temporary, sizeof(temporary), NULL, "%s/../.latest.%s",
                r->path, r->id) < 0) {
        return;
    }
    if ((symlink(r->id, temporary) < 0 && errno != EEXIST) ||
        rename(temporary, link) < 0) {
        unlink(temporary);
    }
}

static struct rundir *alloc_rundir(struct error *e)
{
    struct rundir *r = calloc(1, sizeof(*r));

    if (!r) {
        error_set(e, ENOMEM, "open a run directory");
        return NULL;
    }
    r->lock_fd = -1;
    return r;
}

/* It is there, and whose it is stands in its run.json. */
static void take_over(struct rundir *r, const struct run_file *f)
{
    str_copy(r->id, sizeof(r->id), f->id);
    str_copy(r->name, sizeof(r->name), f->name);
    r->created_ns = f->created_ns;
    r->reopened = true;
}

int rundir_create(const struct rundir_params *p, struct rundir **ret,
                  struct error *e)
{
    _cleanup_(rundir) struct rundir *r = NULL;
    struct run_file f = {.slurm_restart = -1};
    _close_ int guard = -1;
    int rc;

    if (!run_file_is_word(p->name, sizeof(r->name)) ||
        (p->id && !run_file_is_word(p->id, sizeof(r->id)))) {
        return error_text(e, EINVAL, "run name '%.80s'%s%.80s: expected "
                          "letters, digits, '.', '_' and '-', at most %d",
                          p->name, p->id ? ", id " : "", p->id ? p->id : "",
                          RUNDIR_NAME_SIZE - 1);
    }
    r = alloc_rundir(e);
    if (!r) {
        return -ENOMEM;
    }
    str_copy(r->name, sizeof(r->name), p->name);
    str_copy(r->id, sizeof(r->id), p->id ? p->id : "");
    r->created_ns = clock_wall_ns();
    /* Runs of one job draw their ids from the same few. */
    guard = rundir_slurm_job() ? runindex_guard() : -1;
    rc = rundir_claim(r, p, &f, e);
    if (rc < 0) {
        return rc;
    }
    if (rc == 0) {
        take_over(r, &f);
    }
    rc = make_layout(r, e);
    if (rc == -EEXIST && !r->reopened) { /* another one has come a moment before */
        rc = run_file_read(r->path, &f, e);
        if (rc == 0) {
            take_over(r, &f);
        }
    }
    if (rc < 0) {
        if (!p->dir && !p->id && !rundir_slurm_job()) {
            fs_remove_tree(r->path, NULL); /* nobody else's: the id is new */
        }
        return error_wrap(e, "run directory %s", r->path);
    }
    if (!p->dir) {
        point_latest(r);
    }
    runindex_add(r);
    *ret = take_ptr(&r);
    return 0;
}

int rundir_open(const char *path, struct rundir **ret, struct error *e)
{
    _cleanup_(rundir) struct rundir *r = alloc_rundir(e);
    struct run_file f;
    int rc;

    if (!r) {
        return -ENOMEM;
    }
    if (!realpath(path, r->path)) {
        return error_set(e, errno, "open run directory %s", path);
    }
    rc = run_file_read(r->path, &f, e);
    if (rc < 0) {
        return rc;
    }
    str_copy(r->id, sizeof(r->id), f.id);
    str_copy(r->name, sizeof(r->name), f.name);
    r->created_ns = f.created_ns;
    r->reopened = true;
    *ret = take_ptr(&r);
    return 0;
}

void rundir_destroy(struct rundir *r)
{
    if (r) {
        rundir_unlock(r);
        free(r);
    }
}

int rundir_path(const struct rundir *r, char *to, size_t size, struct error *e,
                const char *fmt, ...)
{
    char below[PATH_MAX];
    va_list ap;
    int n;

    va_start(ap, fmt);
    n = vsnprintf(below, sizeof(below), fmt, ap);
    va_end(ap);
    if (n < 0 || (size_t)n >= sizeof(below)) {
        return error_set(e, ENAMETOOLONG, "path %.80s...", below);
    }
    return fs_path(to, size, e, "%s/%s", r->path, below);
}

int rundir_make_key(const struct rundir *r, struct error *e)
{
    char path[PATH_MAX];
    int rc = rundir_path(r, path, sizeof(path), e, "key");

    return rc < 0 ? rc : key_create(path, e);
}

static int nonce_path(const char *dir, char *to, size_t size, struct error *e)
{
    return fs_path(to, size, e, "%s/nonce", dir);
}

int rundir_write_nonce(const char *path, const void *nonce, struct error *e)
{
    char file[PATH_MAX], hex[NONCE_HEX];
    int rc = nonce_path(path, file, sizeof(file), e);

    if (rc < 0) {
        return rc;
    }
    sodium_bin2hex(hex, sizeof(hex), nonce, RUNDIR_NONCE_BYTES);
    return fs_write_atomic(file, hex, strlen(hex), e);
}

int rundir_read_nonce(const char *path, void *ret, struct error *e)
{
    char file[PATH_MAX];
    _free_ char *hex = NULL;
    size_t n = 0;
    int rc = nonce_path(path, file, sizeof(file), e);

    rc = rc < 0 ? rc : fs_read_regular(file, 1024, &hex, NULL, e);
    if (rc < 0) {
        return rc;
    }
    if (sodium_hex2bin(ret, RUNDIR_NONCE_BYTES, hex, strlen(hex), NULL, &n, NULL) < 0 ||
        n != RUNDIR_NONCE_BYTES) {
        return error_text(e, ERR_FORMAT, "%s: expected %d bytes in hexadecimal", file,
                          RUNDIR_NONCE_BYTES);
    }
    return 0;
}

int rundir_check_nonce(const char *path, const void *nonce, struct error *e)
{
    char file[PATH_MAX], hex[NONCE_HEX];
    _free_ char *found = NULL;
    int rc = nonce_path(path, file, sizeof(file), e);

    if (rc < 0) {
        return rc;
    }
    rc = fs_read_regular(file, 1024, &found, NULL, e);
    if (rc == -ENOENT || rc == -ENOTDIR) {
        return 0;
    }
    sodium_bin2hex(hex, sizeof(hex), nonce, RUNDIR_NONCE_BYTES);
    return rc < 0 ? rc : strcmp(found, hex) == 0;
}

void rundir_drop_requests(const struct rundir *r)
{
    char path[PATH_MAX];
    struct dirent *d;
    DIR *dir;

    if (rundir_path(r, path, sizeof(path), NULL, "control") < 0) {
        return;
    }
    dir = opendir(path);
    while (dir && (d = readdir(dir))) {
        if (d->d_name[0] != '.') {
            unlinkat(dirfd(dir), d->d_name, 0);
        }
    }
    if (dir) {
        closedir(dir);
    }
}
