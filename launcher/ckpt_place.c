/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Most failures begin with the checkpoint's name, which becomes its path; others have it
 * somewhere. It is said once. */
static int name_path(const char *dir, const char *name, struct error *e)
{
    char text[sizeof(e->text)];

    if (!str_starts(e->text, name)) {
        return error_wrap(e, "%s", *dir ? dir : "/");
    }
    str_copy(text, sizeof(text), e->text);
    return error_text(e, e->code, "%s/%s", dir, text);
}

/* `whole` gets the path of the directory. */
static int find(const char *path, char whole[PATH_MAX], struct found *ret,
                struct error *e)
{
    _close_ int dir = -1;
    char *slash;

    if (!realpath(path, whole)) {
        return error_set(e, errno, "open %s", path);
    }
    slash = strrchr(whole, '/');
    *slash = '\0';
    dir = open(*whole ? whole : "/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return error_set(e, errno, "open %s", whole);
    }
    if (!found_one(io_system(), dir, slash + 1, ret)) {
        return error_text(e, ENOENT, "%s is no checkpoint that is known: those in a "
                          "directory are told by muster ckpt ls", path);
    }
    return take_fd(&dir);
}

int ckpt_place_find(const char *path, struct found *ret, struct error *e)
{
    char whole[PATH_MAX];

    return find(path, whole, ret, e);
}

int ckpt_place_open(const char *path, struct contents *ret, struct error *e)
{
    char whole[PATH_MAX];
    struct found f;
    _close_ int dir = find(path, whole, &f, e);
    int rc = dir < 0 ? dir : contents_open(io_system(), dir, &f, ret, e);

    return dir >= 0 && rc < 0 ? name_path(whole, f.name, e) : rc;
}
