/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/ckpt_verbs.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/dirlock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
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

/* The directory that it is in, whatever links lead to it: to go through, which may be all
 * that is allowed there. */
static int open_above(const char *path, char whole[PATH_MAX], const char **ret_name,
                      struct error *e)
{
    char *slash;
    int dir;

    if (!realpath(path, whole)) {
        return error_set(e, errno, "open %s", path);
    }
    slash = strrchr(whole, '/');
    *slash = '\0';
    *ret_name = slash + 1;
    dir = open(*whole ? whole : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? error_set(e, errno, "open %s", whole) : dir;
}

/* Of one that is gone no link says anything: the directory is what is before its name. */
static int open_above_gone(const char *path, char whole[PATH_MAX], const char **ret_name,
                           struct error *e)
{
    size_t len = strlen(path);
    char *slash;
    int dir;

    str_copy(whole, PATH_MAX, path);
    while (len > 1 && whole[len - 1] == '/') {
        whole[--len] = '\0';
    }
    slash = strrchr(whole, '/');
    *ret_name = slash ? slash + 1 : whole;
    if (slash) {
        *slash = '\0';
    }
    dir = open(!slash ? "." : slash == whole ? "/" : whole, O_PATH | O_DIRECTORY | O_CLOEXEC);
    return dir < 0 ? error_set(e, errno, "open %s", whole) : dir;
}

int ckpt_place_above(const char *path, char ret_name[FOUND_NAME_BYTES], struct error *e)
{
    char whole[PATH_MAX];
    const char *name = "";
    int dir = open_above(path, whole, &name, e);

    if (dir == -ENOENT) {
        dir = open_above_gone(path, whole, &name, e);
    }
    str_copy(ret_name, FOUND_NAME_BYTES, name);
    return dir;
}

/* Of a directory whose own name says nothing: others in it do. */
static bool has_others(int dir, const char *name)
{
    _close_ int fd = openat(dir, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _free_ struct found *all = NULL;
    size_t n = 0;

    return fd < 0 || found_list(io_system(), fd, &all, &n, NULL) < 0 ||
           (n > 0 && all[0].has_step);
}

int ckpt_place_itself(const char *path, int *ret_dir, struct found *ret,
                      struct error *e)
{
    char whole[PATH_MAX];
    const char *name;
    _close_ int dir = open_above(path, whole, &name, e);
    struct stat st;
    bool is_directory;

    if (dir < 0) {
        return dir;
    }
    if (!*name) {
        return 0; /* the root is in no directory */
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return error_set(e, errno, "open %s", path);
    }
    is_directory = S_ISDIR(st.st_mode);
    if (found_renamed(io_system(), dir, name, ret)) {
        *ret_dir = take_fd(&dir);
        return 1;
    }
    if (!found_one(io_system(), dir, name, ret)) {
        return is_directory ? 0
                            : error_text(e, ERR_FORMAT, "%s is no checkpoint that is "
                                         "known", path);
    }
    if (is_directory && !ret->is_step && has_others(dir, name)) {
        return 0;
    }
    *ret_dir = take_fd(&dir);
    return 1;
}

/* Where the Trainer saves it may have put its last model, and its state, beside what it has
 * saved, and a script what is best: a name that says a step is that of a checkpoint. */
static bool is_output(const struct found *f)
{
    return (f->kind == FOUND_MODEL || f->kind == FOUND_TRAINER || f->kind == FOUND_TORCH_DIR) &&
           !f->is_step;
}

int ckpt_place_refuse_itself(const char *to, struct error *e)
{
    _close_ int above = -1;
    struct found_facts facts;
    struct found f = {0};

    if (ckpt_place_itself(to, &above, &f, NULL) <= 0 || is_output(&f) ||
        (f.kind != FOUND_MUSTER && found_check(io_system(), above, &f, false, &facts, NULL) < 0)) {
        return 0;
    }
    return error_text(e, EINVAL, "%s is a checkpoint itself: expected the directory that the "
                      "copy is to lie in", to);
}

/* Takes the last name off a path, with the slashes behind it; how long what is left is. */
static size_t go_up(char *path, size_t len)
{
    while (len > 0 && path[len - 1] == '/') {
        len--;
    }
    while (len > 0 && path[len - 1] != '/') {
        len--;
    }
    path[len] = '\0';
    return len;
}

int ckpt_place_make(const char *path, size_t *ret_there, struct error *e)
{
    char partial[PATH_MAX];
    struct stat st;
    size_t len = strlen(path);

    str_copy(partial, sizeof(partial), path);
    while (len > 0 && len < sizeof(partial) && lstat(partial, &st) < 0 && errno == ENOENT) {
        len = go_up(partial, len);
    }
    *ret_there = len;
    return fs_mkdirs(path, e);
}

/* Who fetches or copies into one has it locked: it stays for him. */
static bool is_in_use(const char *path)
{
    char suffix[DIRLOCK_SUFFIX_BYTES];
    _close_ int dir = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    return dir >= 0 && dirlock_take(dir, suffix) == -EBUSY;
}

void ckpt_place_unmake(const char *path, size_t there)
{
    char partial[PATH_MAX];
    size_t len = strlen(path);

    str_copy(partial, sizeof(partial), path);
    while (len > there && len < sizeof(partial) && !is_in_use(partial) && rmdir(partial) == 0) {
        len = go_up(partial, len);
    }
}

static bool is_known(int dir, const char *name, struct found *ret)
{
    return found_renamed(io_system(), dir, name, ret) || found_one(io_system(), dir, name, ret);
}

static int fail_unknown(const char *path, struct error *e)
{
    return error_text(e, ENOENT, "%s is no checkpoint that is known: those in a directory are "
                      "told by muster ckpt ls", path);
}

int ckpt_place_refuse_renamed(int dir, const char *name, struct error *e)
{
    struct found_facts facts;
    struct found f;

    if (!found_renamed(io_system(), dir, name, &f)) {
        return 0;
    }
    f.is_renamed = false;
    return found_check(io_system(), dir, &f, false, &facts, e);
}

int ckpt_place_find(const char *path, struct found *ret, struct error *e)
{
    char whole[PATH_MAX];
    const char *name;
    _close_ int dir = open_above(path, whole, &name, e);

    if (dir >= 0 && !is_known(dir, name, ret)) {
        return fail_unknown(path, e);
    }
    return dir < 0 ? dir : take_fd(&dir);
}

/* What is only read may be weights alone. */
int ckpt_place_open(const char *path, struct contents *ret, struct error *e)
{
    char whole[PATH_MAX];
    const char *name;
    struct found f;
    _close_ int dir = open_above(path, whole, &name, e);

    if (dir < 0) {
        return dir;
    }
    if (!is_known(dir, name, &f) && !found_weights(io_system(), dir, name, &f)) {
        return fail_unknown(path, e);
    }
    return contents_open(io_system(), dir, &f, ret, e) < 0 ? name_path(whole, f.name, e) : 0;
}
