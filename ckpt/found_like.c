/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a checkpoint lacks, told by another one of the same program that is whole: the
 * names of all files in both, with a sign for each number, so that rng_state_0.pth and
 * rng_state_1.pth are two of one kind.
 */
#include <config.h>

#include "ckpt/found_priv.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "ckpt/beside.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 100000, MAX_DEPTH = 4 };

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static char *without_numbers(const char *path, const char *name)
{
    _buf_ struct buf b = {0};

    buf_printf(&b, "%s%s", path, *path ? "/" : "");
    for (; *name; name++) {
        if (*name < '0' || *name > '9') {
            buf_putc(&b, *name);
        } else if (name[1] < '0' || name[1] > '9') {
            buf_putc(&b, '#');
        }
    }
    return b.failed ? NULL : strdup(buf_str(&b));
}

static int add_all(struct io *io, int dir, const char *path, unsigned depth,
                   bool is_needed, struct strlist *ret)
{
    _strlist_ struct strlist names = {0};
    int rc = found_names(io, dir, &names, NULL);

    for (size_t i = 0; i < names.n && rc == 0; i++) {
        int fd = depth < MAX_DEPTH ? found_open_dir(io, dir, names.items[i])
                                   : -ENOTDIR;
        _free_ char *one = without_numbers(path, names.items[i]);

        if (fd == -ENOTDIR && is_needed && !found_is_needed_name(names.items[i])) {
            continue;
        }
        if (!one || ret->n >= MAX_NAMES) {
            rc = -ENOMEM;
        } else if (fd >= 0) {
            rc = add_all(io, fd, one, depth + 1, is_needed, ret);
        } else if (fd == -ENOTDIR) {
            strlist_add(ret, one);
        } else {
            rc = fd;
        }
        if (fd >= 0) {
            io->ops->close(io, fd);
        }
    }
    return rc < 0 || !ret->failed ? rc : -ENOMEM;
}

/* Files in it, in order; those that each has to have, or all. */
static int list_files(struct io *io, int dir, const char *name, bool is_needed,
                      struct strlist *ret)
{
    int fd = io->ops->open_dir(io, dir, name);
    int rc = fd < 0 ? fd : add_all(io, fd, "", 0, is_needed, ret);

    if (fd >= 0) {
        io->ops->close(io, fd);
    }
    if (rc == 0 && ret->n) {
        qsort(ret->items, ret->n, sizeof(*ret->items), by_text);
    }
    return rc;
}

bool found_lacks(struct io *io, int dir, const struct found *f,
                 const struct found *whole, char *ret, size_t size)
{
    _strlist_ struct strlist mine = {0}, all = {0};
    bool is_needed = f->kind == FOUND_TORCH_DIR;
    size_t at = 0;

    if (!beside_is_like(f->name, whole->name) ||
        list_files(io, dir, f->name, is_needed, &mine) < 0 ||
        list_files(io, dir, whole->name, is_needed, &all) < 0) {
        return false;
    }
    for (size_t i = 0; i < all.n; i++) {
        while (at < mine.n && strcmp(mine.items[at], all.items[i]) < 0) {
            at++;
        }
        if (at == mine.n || strcmp(mine.items[at], all.items[i]) != 0) {
            str_copy(ret, size, all.items[i]);
            return true;
        }
        at++;
    }
    return false;
}
