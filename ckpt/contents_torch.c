/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/contents_priv.h"

#include "base/cleanup.h"
#include "ckpt/found_priv.h"
#include "ckpt/pickle_tree.h"
#include "ckpt/strided.h"
#include "ckpt/torch_archive.h"
#include "ckpt/torch_old.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool contents_torch_is_dense(const struct torch_tensor *t)
{
    struct strided s = {.dtype = t->dtype, .n_dims = t->n_dims, .len = t->shape,
                        .strides = t->strides};

    return strided_is_dense(&s);
}

/* In a storage that is bytes [begin, end) of the file; none, where they are equal. */
static int place_in(const struct torch_tensor *t, uint64_t begin, uint64_t end, uint64_t *ret,
                    struct error *e)
{
    uint64_t size = dtype_bits(t->dtype) / 8;

    if (t->end > (end - begin) / size) {
        return error_text(e, ERR_FORMAT, "data/%.*s, where it lies, %s", (int)t->key_len, t->key,
                          end > begin ? "is too short" : "is missing");
    }
    *ret = t->end ? begin + t->offset * size : begin;
    return 0;
}

int contents_torch_place(const struct torch_archive *a, const struct torch_tensor *t,
                         uint64_t *ret, struct error *e)
{
    const struct zip_entry *entry = torch_archive_storage(a, t->key, t->key_len);

    return place_in(t, entry ? entry->begin : 0, entry ? entry->end : 0, ret, e);
}

struct adding {
    struct contents *c;
    const struct torch_archive *archive; /* or */
    const struct torch_old *old;
    size_t file;
};

static int place_of(const struct adding *a, const struct torch_tensor *t, uint64_t *ret,
                    struct error *e)
{
    const struct torch_old_storage *s;

    if (a->archive) {
        return contents_torch_place(a->archive, t, ret, e);
    }
    s = torch_old_storage(a->old, t->key, t->key_len);
    return place_in(t, s ? s->begin : 0, s ? s->end : 0, ret, e);
}

static int add_piece(struct contents_tensor *t, const struct torch_tensor *from, size_t file,
                     uint64_t begin)
{
    t->pieces = calloc(1, sizeof(*t->pieces));
    if (!t->pieces) {
        return -ENOMEM;
    }
    *t->pieces = (struct contents_piece){.box = box_whole(from->n_dims, from->shape),
                                         .file = file, .begin = begin, .is_strided = true};
    memcpy(t->pieces->strides, from->strides, sizeof(from->strides));
    return 0;
}

static int add_tensor(void *arg, const char *name, const struct torch_tensor *from,
                      struct error *e)
{
    struct adding *a = arg;
    struct contents_tensor *t = NULL;
    uint64_t begin = 0;
    int rc = place_of(a, from, &begin, e);

    if (rc < 0) {
        return error_wrap(e, "tensor '%.100s'", name);
    }
    rc = contents_add_of(a->c, name, from->dtype, from->n_dims, from->shape,
                         contents_file_name(a->c, a->file), &t);
    if (rc == 0) {
        t->n_pieces = 1;
        t->place = a->file;
        t->begin = begin;
        rc = contents_torch_is_dense(from) ? 0 : add_piece(t, from, a->file, begin);
    }
    return rc < 0 ? error_set(e, ENOMEM, "list tensors") : 0;
}

static int leave_out(void *arg, const char *name, bool is_tensor, struct error *e)
{
    struct adding *a = arg;

    (void)e;
    contents_leave_out(a->c, name, is_tensor);
    return 0;
}

/* Numbers are as the machine had them that saved: all that PyTorch runs on have little-endian
 * ones, but for some. */
int contents_torch_check_order(struct io *io, int fd, const struct torch_archive *a,
                               struct error *e)
{
    static const char big[] = "big";
    const struct zip_entry *entry = torch_archive_find(a, "byteorder");
    char text[sizeof(big) - 1];
    int rc = 0;

    if (entry && entry->end - entry->begin == sizeof(text)) {
        rc = io_read_all(io, fd, text, sizeof(text), entry->begin);
        if (rc == 0 && memcmp(text, big, sizeof(text)) == 0) {
            return error_text(e, ENOTSUP, "its numbers are big-endian");
        }
    }
    return rc < 0 ? error_set(e, -rc, "read byteorder") : 0;
}

static int walk_pickle(const struct adding *a, const void *pickle, size_t len,
                       const char *prefix, struct error *e)
{
    _pickle_tree_ struct pickle_tree tree = {0};
    struct torch_walk walk = {.each = add_tensor, .other = leave_out, .arg = (void *)a};
    int rc = pickle_tree_read(pickle, len, &tree, e);

    return rc < 0 ? rc : torch_tensors(tree.root, prefix, "tensor", &walk, e);
}

static int read_archive(struct contents *c, size_t file, int fd, const char *prefix,
                        struct error *e)
{
    _torch_archive_ struct torch_archive a = {0};
    struct adding adding = {.c = c, .archive = &a, .file = file};
    _free_ char *pickle = NULL;
    size_t len = 0;
    int rc = torch_archive_open(c->io, fd, &a, e);

    c->has_sums = true;
    rc = rc < 0 ? rc : contents_torch_check_order(c->io, fd, &a, e);
    rc = rc < 0 ? rc : torch_archive_pickle(c->io, fd, &a, &pickle, &len, e);
    return rc < 0 ? rc : walk_pickle(&adding, pickle, len, prefix, e);
}

/* As before PyTorch 1.6, and on demand since. */
static int read_old(struct contents *c, size_t file, int fd, const char *prefix, struct error *e)
{
    _torch_old_ struct torch_old old = {0};
    struct adding adding = {.c = c, .old = &old, .file = file};
    uint64_t bytes = 0;
    int rc = c->io->ops->size(c->io, fd, &bytes);

    rc = rc < 0 ? error_set(e, -rc, "read it") : torch_old_open(c->io, fd, bytes, &old, e);
    return rc < 0 ? rc : walk_pickle(&adding, old.data + old.pickle_at, old.pickle_len, prefix, e);
}

/* 1, 0, or errors of reading. */
static int is_archive(const struct contents *c, int fd, struct error *e)
{
    char first[4];
    int rc = io_read_all(c->io, fd, first, sizeof(first), 0);

    return rc == -ENODATA ? 0
           : rc < 0       ? error_set(e, -rc, "read it")
                          : memcmp(first, "PK\3\4", sizeof(first)) == 0;
}

int contents_add_torch(struct contents *c, int dir, const char *file, const char *prefix,
                       struct error *e)
{
    int fd = c->io->ops->open_file(c->io, dir, file), place, rc;

    if (fd < 0) {
        return found_fail_to_open(fd, file, e);
    }
    place = contents_file_add(c, file, fd);
    if (place < 0 || contents_span_create(c) < 0) {
        return error_set(e, ENOMEM, "open %s", file);
    }
    rc = is_archive(c, fd, e);
    rc = rc < 0    ? rc
         : rc == 1 ? read_archive(c, (size_t)place, fd, prefix, e)
                   : read_old(c, (size_t)place, fd, prefix, e);
    return rc < 0 && rc != -ENOTSUP ? error_wrap(e, "%s", file) : rc;
}
