/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/contents.h"

#include "base/cleanup.h"
#include "ckpt/found_priv.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { READ_THREADS = 2 };

static const char BLOB_PREFIX[] = ".blob/";

void contents_release(struct contents *c)
{
    for (size_t i = 0; i < c->n_tensors; i++) {
        free(c->tensors[i].name);
        strlist_release(&c->tensors[i].files);
    }
    free(c->tensors);
    for (size_t i = 0; i < c->n_meta; i++) {
        free(c->meta[i].key);
        free(c->meta[i].value);
    }
    free(c->meta);
    for (size_t i = 0; i < c->n_fds; i++) {
        c->io->ops->close(c->io, c->fds[i]);
    }
    free(c->fds);
    if (c->load.index) {
        load_close(&c->load);
    }
    *c = (struct contents){0};
}

uint64_t contents_elements(const struct contents_tensor *t)
{
    struct box whole = box_whole(t->n_dims, t->shape);
    uint64_t n = 0;

    box_volume(&whole, &n);
    return n;
}

static int add(struct contents *c, const char *name, size_t len,
               struct contents_tensor **ret)
{
    struct contents_tensor *fresh = reallocarray(c->tensors, c->n_tensors + 1,
                                                 sizeof(*fresh));
    char *copy = fresh ? strndup(name, len) : NULL;

    c->tensors = fresh ? fresh : c->tensors;
    if (!copy) {
        return -ENOMEM;
    }
    *ret = &c->tensors[c->n_tensors++];
    **ret = (struct contents_tensor){.name = copy};
    return 0;
}

/* --- muster's own --- */

/* `newest` has for each file the number of the tensor that was last seen in it: there
 * may be thousands of ranks, and each tensor in the files of all. */
static int add_own(struct contents *c, size_t place, size_t *newest)
{
    const struct index *x = c->load.index;
    struct index_tensor from = index_tensor(x, place);
    struct contents_tensor *t;
    int rc = add(c, from.name, from.name_len, &t);

    if (rc < 0) {
        return rc;
    }
    t->dtype = from.dtype;
    t->n_dims = from.n_dims;
    if (from.n_dims) {
        memcpy(t->shape, from.shape, from.n_dims * sizeof(*t->shape));
    }
    dtype_bytes(t->dtype, contents_elements(t), &t->bytes);
    t->n_pieces = from.n_chunks;
    t->place = place;
    for (size_t i = 0; i < from.n_chunks; i++) {
        struct index_chunk k = index_chunk(x, &from, place, i);

        if (newest[k.file] != c->n_tensors) {
            newest[k.file] = c->n_tensors;
            strlist_add(&t->files, c->load.step.manifest.files[k.file].name);
        }
    }
    return t->files.failed ? -ENOMEM : 0;
}

static int open_own(struct contents *c, int dir, struct error *e)
{
    _step_ struct step s = {0};
    _free_ size_t *newest = NULL;
    int rc = c->found.is_renamed ? step_open_renamed(c->io, dir, c->found.name, &s, e)
                                 : step_open(c->io, dir, c->found.name, &s, e);

    rc = rc < 0 ? rc : load_open(&s, &c->load, e);
    if (rc < 0) {
        return rc;
    }
    newest = calloc(c->load.step.manifest.n_files + 1, sizeof(*newest));
    if (!newest) {
        return error_set(e, ENOMEM, "list what is in it");
    }
    c->is_verified = true;
    for (size_t i = 0; i < index_n_tensors(c->load.index) && rc == 0; i++) {
        struct index_tensor t = index_tensor(c->load.index, i);

        if (t.name_len < sizeof(BLOB_PREFIX) - 1 ||
            memcmp(t.name, BLOB_PREFIX, sizeof(BLOB_PREFIX) - 1) != 0) {
            rc = add_own(c, i, newest);
        }
    }
    return rc < 0 ? error_set(e, ENOMEM, "list what is in it") : 0;
}

/* --- safetensors --- */

static int keep_fd(struct contents *c, int fd)
{
    int *fresh = reallocarray(c->fds, c->n_fds + 1, sizeof(*fresh));

    if (!fresh) {
        c->io->ops->close(c->io, fd);
        return -ENOMEM;
    }
    c->fds = fresh;
    c->fds[c->n_fds++] = fd;
    return 0;
}

static int add_foreign(struct contents *c, const struct st_file *f,
                       const struct st_tensor *from, const char *file)
{
    struct contents_tensor *t;
    int rc = add(c, from->name, strlen(from->name), &t);

    if (rc < 0) {
        return rc;
    }
    t->dtype = from->dtype;
    t->n_dims = from->n_dims;
    if (from->n_dims > 0) {
        memcpy(t->shape, from->shape, from->n_dims * sizeof(*t->shape));
    }
    t->bytes = from->end - from->begin;
    t->n_pieces = 1;
    t->place = c->n_fds - 1;
    t->begin = f->data_at + from->begin;
    strlist_add(&t->files, file);
    return t->files.failed ? -ENOMEM : 0;
}

/* Keys and values change hands. */
static int add_meta(struct contents *c, struct st_file *f)
{
    struct st_meta *fresh = reallocarray(c->meta, c->n_meta + f->n_meta + 1,
                                         sizeof(*fresh));

    if (!fresh) {
        return -ENOMEM;
    }
    c->meta = fresh;
    for (size_t i = 0; i < f->n_meta; i++) {
        c->meta[c->n_meta++] = f->meta[i];
    }
    f->n_meta = 0;
    return 0;
}

static int open_file(struct contents *c, int dir, const char *name,
                     struct error *e)
{
    _st_file_ struct st_file f = {0};
    int fd = c->io->ops->open_file(c->io, dir, name), rc;

    if (fd < 0) {
        return found_fail_to_open(fd, name, e);
    }
    rc = keep_fd(c, fd);
    rc = rc < 0 ? error_set(e, ENOMEM, "open %s", name)
                : st_load(c->io, fd, &f, e);
    if (rc < 0) {
        return error_wrap(e, "%s", name);
    }
    for (size_t i = 0; i < f.n_tensors && rc == 0; i++) {
        rc = add_foreign(c, &f, &f.tensors[i], name);
    }
    rc = rc < 0 ? rc : add_meta(c, &f);
    return rc < 0 ? error_set(e, ENOMEM, "list what is in %s", name) : 0;
}

static int open_directory(struct contents *c, int dir, struct error *e)
{
    _strlist_ struct strlist names = {0};
    int sub = c->io->ops->open_dir(c->io, dir, c->found.name), rc;

    if (sub < 0) {
        return error_set(e, -sub, "open %s", c->found.name);
    }
    rc = found_names(c->io, sub, &names, e);
    for (size_t i = 0; i < names.n && rc == 0; i++) {
        if (found_is_safetensors_name(names.items[i]) &&
            !found_is_shard_name(names.items[i])) {
            rc = open_file(c, sub, names.items[i], e);
        }
    }
    c->io->ops->close(c->io, sub);
    return rc < 0 ? error_wrap(e, "%s", c->found.name) : 0;
}

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct st_meta *)a)->key,
                  ((const struct st_meta *)b)->key);
}

/* Each key once; of those [first, end) all have one. */
static void keep_meta(struct contents *c, size_t *n, size_t first, size_t end)
{
    bool is_one = true;

    for (size_t i = first + 1; i < end; i++) {
        is_one = is_one && strcmp(c->meta[i].value, c->meta[first].value) == 0;
    }
    for (size_t i = first + is_one; i < end; i++) {
        free(c->meta[i].key);
        free(c->meta[i].value);
    }
    c->n_meta_left_out += !is_one;
    if (is_one) {
        c->meta[(*n)++] = c->meta[first];
    }
}

static void join_meta(struct contents *c)
{
    size_t n = 0, end;

    if (c->n_meta) {
        qsort(c->meta, c->n_meta, sizeof(*c->meta), by_key);
    }
    for (size_t i = 0; i < c->n_meta; i = end) {
        for (end = i + 1; end < c->n_meta &&
                          strcmp(c->meta[end].key, c->meta[i].key) == 0; end++) {
        }
        keep_meta(c, &n, i, end);
    }
    c->n_meta = n;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const struct contents_tensor *)a)->name,
                  ((const struct contents_tensor *)b)->name);
}

/* Both are files of a directory. */
static int say_twice(const struct contents *c, const struct contents_tensor *a,
                     const struct contents_tensor *b, struct error *e)
{
    return error_text(e, EINVAL, "%s: %s and %s both have a tensor '%.100s'", c->found.name,
                      a->files.items[0], b->files.items[0], a->name);
}

static int sort(struct contents *c, struct error *e)
{
    if (c->n_tensors) {
        qsort(c->tensors, c->n_tensors, sizeof(*c->tensors), by_name);
    }
    for (size_t i = 1; i < c->n_tensors; i++) {
        const struct contents_tensor *a = &c->tensors[i - 1], *b = a + 1;

        if (strcmp(a->name, b->name) == 0) {
            return say_twice(c, a, b, e);
        }
    }
    return 0;
}

static int open_any(struct contents *c, int dir, struct error *e)
{
    switch (c->found.kind) {
    case FOUND_MUSTER:
        return open_own(c, dir, e);
    case FOUND_SAFETENSORS:
        return open_file(c, dir, c->found.name, e);
    case FOUND_TRAINER:
    case FOUND_ACCELERATE:
    case FOUND_MODEL:
    case FOUND_TORCH_DIR:
        return open_directory(c, dir, e);
    case FOUND_DCP:
        c->why_no_tensors = "their names and shapes are in .metadata, a pickle, "
                            "which muster does not run";
        return 0;
    case FOUND_DEEPSPEED:
    case FOUND_MEGATRON:
    case FOUND_TORCH:
        break;
    }
    c->why_no_tensors = "their names and shapes are in a pickle, which muster does "
                        "not run";
    return 0;
}

int contents_open(struct io *io, int dir, const struct found *f,
                  struct contents *ret, struct error *e)
{
    struct contents c = {.found = *f, .io = io};
    int rc = found_check(io, dir, f, false, &c.facts, e);

    rc = rc < 0 ? rc : open_any(&c, dir, e);
    rc = rc < 0 ? rc : sort(&c, e);
    if (rc < 0) {
        contents_release(&c);
        return rc;
    }
    join_meta(&c);
    if (f->kind == FOUND_MODEL && c.n_tensors == 0) {
        c.why_no_tensors = "its files are of torch.save, pickles which muster does not "
                           "run, or have pieces of tensors of each rank";
    }
    if ((f->kind == FOUND_TRAINER || f->kind == FOUND_ACCELERATE ||
         f->kind == FOUND_TORCH_DIR) &&
        c.n_tensors == 0) {
        c.why_no_tensors = "there are no safetensors files in it; those of "
                           "torch.save are pickles, which muster does not run";
    }
    *ret = c;
    return 0;
}

/* --- bytes --- */

static int read_own(const struct contents *c, const struct contents_tensor *t,
                    uint64_t begin, uint64_t end, char *to, struct error *e)
{
    struct box whole = box_whole(t->n_dims, t->shape), boxes[BOX_MAX_FLAT];
    struct load_want wants[BOX_MAX_FLAT];
    size_t n = box_from_flat(&whole, begin, end, boxes);

    for (size_t i = 0; i < n; i++) {
        uint64_t volume = 0, bytes = 0;

        box_volume(&boxes[i], &volume);
        dtype_bytes(t->dtype, volume, &bytes);
        wants[i] = (struct load_want){
            .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims,
            .shape = t->shape, .at = boxes[i].at, .len = boxes[i].len,
            .data = to};
        to += bytes;
    }
    return load_boxes(&c->load, NULL, wants, n, READ_THREADS, e);
}

int contents_read(const struct contents *c, const struct contents_tensor *t,
                  uint64_t begin, uint64_t end, void *to, struct error *e)
{
    uint64_t at = 0, len = 0;
    int rc;

    if (begin >= end) {
        return 0;
    }
    if (c->load.index) {
        return read_own(c, t, begin, end, to, e);
    }
    dtype_bytes(t->dtype, begin, &at);
    dtype_bytes(t->dtype, end - begin, &len);
    rc = io_read_all(c->io, c->fds[t->place], to, len, t->begin + at);
    return rc < 0 ? error_set(e, -rc, "read %s", t->files.items[0]) : 0;
}
