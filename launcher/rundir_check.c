/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rundir_priv.h"

#include "base/fs.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Whether something may be made in a directory that is there. */
static int ask_room(const char *dir)
{
    return faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) < 0 ? -errno : 0;
}

/* The part of a path before its last slash. */
static void parent_of(const char *path, char *to, size_t size)
{
    char *slash;

    str_copy(to, size, path);
    slash = strrchr(to, '/');
    slash[slash == to] = '\0';
}

/* As fs_mkdirs() would go through them: 0 where all are there, 1 where some are
 * not and could be made. */
static int check_dirs(const char *path, struct error *e)
{
    char partial[PATH_MAX], parent[PATH_MAX];
    struct stat st = {0};
    int rc = fs_path(partial, sizeof(partial), e, "%s", path);

    for (char *p = partial + 1; rc == 0; p++) {
        char at = *p;

        if (at != '/' && at != '\0') {
            continue;
        }
        *p = '\0';
        if (stat(partial, &st) < 0) {
            rc = -errno;
            parent_of(partial, parent, sizeof(parent));
            rc = rc == -ENOENT ? ask_room(parent) : rc;
            return rc < 0 ? error_set(e, -rc, "make directory %s", partial) : 1;
        }
        *p = at;
        if (at == '\0') {
            break;
        }
    }
    return rc < 0 || S_ISDIR(st.st_mode)
               ? rc : error_set(e, ENOTDIR, "make directory %s", path);
}

static int check_given(const char *dir, struct error *e)
{
    char path[PATH_MAX], parent[PATH_MAX];
    struct run_file f;
    struct stat st;
    int rc = rundir_absolute(dir, path, sizeof(path), e);

    if (rc < 0) {
        return rc;
    }
    parent_of(path, parent, sizeof(parent));
    rc = check_dirs(parent, e);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    if (stat(path, &st) < 0) {
        rc = errno == ENOENT ? ask_room(parent) : -errno;
        return rc < 0 ? error_set(e, -rc, "make run directory %s", path) : 0;
    }
    rc = rundir_adopt(path, false, &f, e);
    if (rc < 0) {
        return rc;
    }
    rc = ask_room(path);
    return rc < 0 ? error_set(e, -rc, "open %s/lock", path) : 0;
}

int rundir_check(const struct rundir_params *p, struct error *e)
{
    char base[PATH_MAX], path[PATH_MAX];
    int rc;

    if (p->dir) {
        return check_given(p->dir, e);
    }
    rc = rundir_absolute(p->base ? p->base : "muster-runs", base, sizeof(base), e);
    rc = rc < 0 ? rc : fs_path(path, sizeof(path), e, "%s/%s", base, p->name);
    rc = rc < 0 ? rc : check_dirs(path, e);
    if (rc != 0) {
        return rc < 0 ? rc : 0;
    }
    rc = ask_room(path);
    return rc < 0 ? error_set(e, -rc, "make run directory %s/%s", path,
                              p->id ? p->id : "RUN-ID") : 0;
}
