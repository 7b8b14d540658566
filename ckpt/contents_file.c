/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/contents_priv.h"

#include "ckpt/found_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* There may be a file of each of thousands of ranks. */
enum { MAX_OPEN = 64 };

struct contents_file {
    char *name; /* owned */
    int fd;
    bool stays; /* it is not known where it could be opened again */
};

int contents_file_add(struct contents *c, const char *name, int fd)
{
    struct contents_file *fresh = reallocarray(c->files, c->n_files + 1, sizeof(*fresh));
    char *copy = fresh ? strdup(name) : NULL;

    c->files = fresh ? fresh : c->files;
    if (!copy) {
        if (fd >= 0) {
            c->io->ops->close(c->io, fd);
        }
        return -ENOMEM;
    }
    c->files[c->n_files] = (struct contents_file){copy, fd, fd >= 0};
    return (int)c->n_files++;
}

static void close_file(const struct contents *c, struct contents_file *f)
{
    if (f->fd >= 0) {
        c->io->ops->close(c->io, f->fd);
        f->fd = -1;
    }
}

/* Who reads goes through them in their order, most times: those before are done. */
static void make_room(const struct contents *c, size_t file)
{
    size_t n = 0;

    for (size_t i = 0; i < c->n_files; i++) {
        n += c->files[i].fd >= 0 && !c->files[i].stays;
    }
    for (size_t i = 0; i < c->n_files && n >= MAX_OPEN; i++) {
        if (i != file && c->files[i].fd >= 0 && !c->files[i].stays) {
            close_file(c, &c->files[i]);
            n--;
        }
    }
}

int contents_file_open(const struct contents *c, size_t file, struct error *e)
{
    struct contents_file *f = &c->files[file];
    int fd;

    if (f->fd >= 0) {
        return f->fd;
    }
    make_room(c, file);
    fd = c->io->ops->open_file(c->io, c->dir, f->name);
    if (fd < 0) {
        return found_fail_to_open(fd, f->name, e);
    }
    f->fd = fd;
    return fd;
}

const char *contents_file_name(const struct contents *c, size_t file)
{
    return c->files[file].name;
}

void contents_files_release(struct contents *c)
{
    for (size_t i = 0; i < c->n_files; i++) {
        close_file(c, &c->files[i]);
        free(c->files[i].name);
    }
    free(c->files);
    if (c->has_dir) {
        c->io->ops->close(c->io, c->dir);
    }
}
