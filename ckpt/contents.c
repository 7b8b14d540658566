/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/contents_priv.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/utf8.h"
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
        free(c->tensors[i].pieces);
        strlist_release(&c->tensors[i].files);
    }
    free(c->tensors);
    for (size_t i = 0; i < c->n_meta; i++) {
        free(c->meta[i].key);
        free(c->meta[i].value);
    }
    free(c->meta);
    contents_files_release(c);
    contents_span_release(c);
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

int contents_add(struct contents *c, const char *name, size_t len,
                 struct contents_tensor **ret)
{
    char *copy = strndup(name, len);

    if (copy && c->n_tensors == c->room) {
        size_t room = c->room ? 2 * c->room : 64;
        struct contents_tensor *fresh = reallocarray(c->tensors, room, sizeof(*fresh));

        c->tensors = fresh ? fresh : c->tensors;
        c->room = fresh ? room : c->room;
    }
    if (!copy || c->n_tensors == c->room) {
        free(copy);
        return -ENOMEM;
    }
    *ret = &c->tensors[c->n_tensors++];
    **ret = (struct contents_tensor){.name = copy};
    return 0;
}

int contents_add_of(struct contents *c, const char *name, enum dtype dtype, uint32_t n_dims,
                    const uint64_t *shape, const char *file, struct contents_tensor **ret)
{
    struct contents_tensor *t = NULL;
    uint64_t n = 0;
    int rc = contents_add(c, name, strlen(name), &t);

    if (rc < 0) {
        return rc;
    }
    t->dtype = dtype;
    t->n_dims = n_dims;
    if (n_dims > 0) {
        memcpy(t->shape, shape, n_dims * sizeof(*t->shape));
    }
    if (file) {
        strlist_add(&t->files, file);
    }
    *ret = t;
    return t->files.failed ? -ENOMEM
           : box_volume_of(n_dims, shape, &n) && dtype_bytes(dtype, n, &t->bytes) ? 0
                                                                               : -ERR_FORMAT;
}

/* For people: names are whoever's who made the file. */
static void copy_printable(char *to, size_t size, const char *text)
{
    _buf_ struct buf clean = {0};

    utf8_put_printable(&clean, text, size - 1);
    str_copy(to, size, buf_str(&clean));
}

void contents_leave_out(struct contents *c, const char *name, bool is_tensor)
{
    if (is_tensor && c->n_tensors_left_out++ == 0) {
        copy_printable(c->left_out, sizeof(c->left_out), name);
    }
    c->n_values_left_out += !is_tensor;
}

/* --- muster's own --- */

/* `newest` has for each file the number of the tensor that was last seen in it: there
 * may be thousands of ranks, and each tensor in the files of all. */
static int add_own(struct contents *c, size_t place, size_t *newest)
{
    const struct index *x = c->load.index;
    struct index_tensor from = index_tensor(x, place);
    struct contents_tensor *t;
    int rc = contents_add(c, from.name, from.name_len, &t);

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

static int add_foreign(struct contents *c, const struct st_file *f,
                       const struct st_tensor *from, size_t file)
{
    struct contents_tensor *t = NULL;
    int rc = contents_add_of(c, from->name, from->dtype, from->n_dims, from->shape,
                             contents_file_name(c, file), &t);

    if (rc == 0) {
        t->n_pieces = 1;
        t->place = file;
        t->begin = f->data_at + from->begin;
    }
    return rc;
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
    int fd = c->io->ops->open_file(c->io, dir, name), file, rc;

    if (fd < 0) {
        return found_fail_to_open(fd, name, e);
    }
    file = contents_file_add(c, name, fd);
    rc = file < 0 ? error_set(e, ENOMEM, "open %s", name) : st_load(c->io, fd, &f, e);
    if (rc < 0) {
        return error_wrap(e, "%s", name);
    }
    for (size_t i = 0; i < f.n_tensors && rc == 0; i++) {
        rc = add_foreign(c, &f, &f.tensors[i], (size_t)file);
    }
    rc = rc < 0 ? rc : add_meta(c, &f);
    return rc < 0 ? error_set(e, ENOMEM, "list what is in %s", name) : 0;
}

static int open_safetensors(struct contents *c, int dir, const struct strlist *names,
                            struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        if (found_is_safetensors_name(names->items[i]) &&
            !found_is_shard_name(names->items[i])) {
            rc = open_file(c, dir, names->items[i], e);
        }
    }
    return rc;
}

/* --- torch.save --- */

/* What is not looked into is no failure: others may be. */
static int open_torch(struct contents *c, int dir, const char *name, const char *prefix,
                      struct error *e)
{
    struct error why = {0};
    int rc = contents_add_torch(c, dir, name, prefix, &why);

    if (rc == -ENOTSUP && c->found.kind != FOUND_TORCH) {
        error_wrap(&why, "%s", name);
    }
    if (rc == -ENOTSUP) {
        c->n_files_left_out++;
        copy_printable(c->why, sizeof(c->why), why.text);
        return 0;
    }
    if (rc < 0 && e) {
        *e = why;
    }
    return rc;
}

/* Weights as the libraries of Hugging Face have named them: keys are names of their own. */
static bool is_weights(const struct contents *c, const char *name)
{
    return c->found.kind != FOUND_TORCH_DIR && found_is_torch_name(name) &&
           found_is_weights_name(name) && !found_is_of_rank_name(name);
}

/* Several dicts, each by itself: the name of its file comes first. */
static bool is_plain(const struct contents *c, const char *name)
{
    return c->found.kind == FOUND_TORCH_DIR && found_is_torch_name(name);
}

static int open_pickles(struct contents *c, int dir, const struct strlist *names,
                        struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < names->n && rc == 0; i++) {
        const char *name = names->items[i];
        char stem[FOUND_NAME_BYTES] = "";

        if (is_plain(c, name)) {
            str_copy(stem, sizeof(stem), name);
            stem[found_stem(stem)] = '\0';
        }
        if (is_plain(c, name) || is_weights(c, name)) {
            rc = open_torch(c, dir, name, stem, e);
        }
    }
    return rc;
}

/* Weights that Accelerate has left in pieces, by torch.distributed.checkpoint: of one model. */
static int open_inner(struct contents *c, int dir, const struct strlist *names, struct error *e)
{
    const char *inner = NULL;
    int rc;

    for (size_t i = 0; i < names->n; i++) {
        if (found_matches(names->items[i], "pytorch_model_fsdp_", "")) {
            c->why_no_tensors = inner ? "it has several models, in directories of their own: each "
                                        "can be looked at by its path" : NULL;
            inner = inner ? inner : names->items[i];
        }
    }
    if (!inner || c->why_no_tensors) {
        return 0;
    }
    c->dir = c->io->ops->open_dir(c->io, dir, inner);
    c->has_dir = c->dir >= 0;
    rc = c->dir < 0 ? error_set(e, -c->dir, "open it") : contents_add_dcp(c, e);
    return rc < 0 ? error_wrap(e, "%s", inner) : 0;
}

/* Of weights there may be both, the same in two forms. */
static int open_directory(struct contents *c, int dir, struct error *e)
{
    _strlist_ struct strlist names = {0};
    int sub = c->io->ops->open_dir(c->io, dir, c->found.name), rc;

    if (sub < 0) {
        return error_set(e, -sub, "open %s", c->found.name);
    }
    rc = found_names(c->io, sub, &names, e);
    rc = rc < 0 ? rc : open_safetensors(c, sub, &names, e);
    if (rc == 0 && (c->n_tensors == 0 || c->found.kind == FOUND_TORCH_DIR)) {
        rc = open_pickles(c, sub, &names, e);
    }
    if (rc == 0 && c->n_files == 0) {
        rc = open_inner(c, sub, &names, e);
    }
    c->io->ops->close(c->io, sub);
    return rc < 0 ? error_wrap(e, "%s", c->found.name) : 0;
}

static int open_dcp(struct contents *c, int dir, struct error *e)
{
    int rc;

    c->dir = c->io->ops->open_dir(c->io, dir, c->found.name);
    c->has_dir = c->dir >= 0;
    rc = c->dir < 0 ? error_set(e, -c->dir, "open it") : contents_add_dcp(c, e);
    return rc < 0 ? error_wrap(e, "%s", c->found.name) : 0;
}

/* --- any --- */

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

/* Of one file, or of two of a directory. */
static int say_twice(const struct contents *c, const struct contents_tensor *a,
                     const struct contents_tensor *b, struct error *e)
{
    if (strcmp(a->files.items[0], b->files.items[0]) == 0) {
        return error_text(e, EINVAL, "%s: two ways of keys in %s lead to a tensor '%.100s'",
                          c->found.name, a->files.items[0], a->name);
    }
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
        return open_dcp(c, dir, e);
    case FOUND_TORCH:
        return open_torch(c, dir, c->found.name, "", e);
    case FOUND_DEEPSPEED:
    case FOUND_MEGATRON:
        break;
    }
    c->why_no_tensors = "they are cut into pieces of each rank, in a way that only the program "
                        "knows which wrote them";
    return 0;
}

/* What was left out is no reason where there is something else. */
static void tell_why(struct contents *c)
{
    if (c->n_tensors > 0 || c->why_no_tensors) {
        return;
    }
    if (c->n_files_left_out > 0) {
        c->why_no_tensors = c->why;
    } else if (c->n_files == 0 && c->found.kind != FOUND_MUSTER) {
        c->why_no_tensors = "its files have pieces of tensors of each rank";
    }
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
    *ret = c;
    tell_why(ret);
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
    int fd, rc;

    if (begin >= end) {
        return 0;
    }
    if (c->load.index) {
        return read_own(c, t, begin, end, to, e);
    }
    if (t->pieces) {
        return contents_read_pieces(c, t, begin, end, to, e);
    }
    dtype_bytes(t->dtype, begin, &at);
    dtype_bytes(t->dtype, end - begin, &len);
    fd = contents_file_open(c, t->place, e);
    if (fd < 0) {
        return fd;
    }
    rc = io_read_all(c->io, fd, to, len, t->begin + at);
    return rc < 0 ? error_set(e, -rc, "read %s", t->files.items[0]) : 0;
}
