/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/convert.h"

#include "base/cleanup.h"
#include "base/utf8.h"
#include "ckpt/dirlock.h"
#include "ckpt/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PIECE_BYTES = 32 << 20, ALIGN = 8, NAME_BYTES = 256, SHARD_NAME_BYTES = 64 };

static const char INDEX_NAME[] = "model.safetensors.index.json";

struct work {
    const struct convert *c;
    char *piece;
    size_t room;
    uint64_t done, of;
};

/* Tensors [first, end) of the contents. */
struct shard {
    size_t first, end;
    char name[SHARD_NAME_BYTES];
};

/* --- one file --- */

/* A piece has whole elements; those smaller than a byte go at once. */
static int copy_tensor(struct work *w, const struct contents_tensor *t, int fd,
                       uint64_t at, struct error *e)
{
    uint64_t n = contents_elements(t);
    uint64_t bits = dtype_bits(t->dtype);
    uint64_t step = bits % 8 ? n : w->room * 8 / bits;

    if (bits % 8 && t->bytes > w->room) {
        return error_text(e, ENOTSUP, "tensor '%.100s' of %s is too large to be "
                          "converted", t->name, dtype_name(t->dtype));
    }
    for (uint64_t begin = 0; begin < n; begin += step) {
        uint64_t end = n - begin < step ? n : begin + step, bytes = 0;
        int rc = contents_read(w->c->from, t, begin, end, w->piece, e);

        dtype_bytes(t->dtype, end - begin, &bytes);
        if (rc == 0) {
            rc = io_write_all(io_system(), fd, w->piece, bytes, at);
            rc = rc < 0 ? error_set(e, -rc, "write tensor '%.100s'", t->name) : 0;
        }
        if (rc < 0) {
            return rc;
        }
        at += bytes;
        w->done += bytes;
        if (w->c->progress && !w->c->progress(w->c->arg, w->done, w->of)) {
            return error_set(e, ECANCELED, "write tensor '%.100s'", t->name);
        }
    }
    return 0;
}

static const struct contents_tensor *find(const struct contents *c,
                                          const char *name)
{
    size_t low = 0, high = c->n_tensors;

    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int order = strcmp(c->tensors[mid].name, name);

        if (order == 0) {
            return &c->tensors[mid];
        }
        low = order < 0 ? mid + 1 : low;
        high = order < 0 ? high : mid;
    }
    return NULL;
}

static int write_file(struct work *w, const struct st_file *f,
                      const struct buf *header, int fd, struct error *e)
{
    struct io *io = io_system();
    int rc = io->ops->allocate(io, fd, st_file_bytes(f));

    rc = rc < 0 ? rc : io_write_all(io, fd, header->data, header->len, 0);
    if (rc < 0) {
        return error_set(e, -rc, "write %llu bytes",
                         (unsigned long long)st_file_bytes(f));
    }
    for (size_t i = 0; i < f->n_tensors && rc == 0; i++) {
        rc = copy_tensor(w, find(w->c->from, f->tensors[i].name), fd,
                         f->data_at + f->tensors[i].begin, e);
    }
    if (rc == 0) {
        rc = io->ops->sync(io, fd);
        rc = rc < 0 ? error_set(e, -rc, "sync it") : 0;
    }
    return rc;
}

static const char FORMAT[] = "format", FROM[] = "muster.from";

/* What the source says of itself, and what it was. The libraries of Hugging Face want
 * a format. Names and values are borrowed: not to be released. */
static void plan_meta(const struct contents *from, struct st_file *f)
{
    bool has_format = false;

    for (size_t i = 0; i < from->n_meta; i++) {
        has_format = has_format || strcmp(from->meta[i].key, FORMAT) == 0;
        if (strcmp(from->meta[i].key, FROM) != 0) {
            f->meta[f->n_meta++] = from->meta[i];
        }
    }
    if (!has_format) {
        f->meta[f->n_meta++] = (struct st_meta){(char *)FORMAT, (char *)"pt"};
    }
    if (utf8_is_valid(from->found.name)) {
        f->meta[f->n_meta++] = (struct st_meta){(char *)FROM,
                                                (char *)from->found.name};
    }
}

static int plan_file(const struct work *w, const struct shard *s,
                     struct st_file *f, struct buf *header, struct error *e)
{
    const struct contents *from = w->c->from;
    int rc;

    f->tensors = calloc(s->end - s->first + 1, sizeof(*f->tensors));
    f->meta = calloc(from->n_meta + 2, sizeof(*f->meta));
    if (!f->tensors || !f->meta) {
        return error_set(e, ENOMEM, "write its header");
    }
    for (size_t i = s->first; i < s->end; i++) {
        const struct contents_tensor *t = &from->tensors[i];
        struct st_tensor *to = &f->tensors[f->n_tensors++];

        *to = (struct st_tensor){.name = t->name, .dtype = t->dtype,
                                 .n_dims = t->n_dims, .shape = t->shape};
    }
    plan_meta(from, f);
    rc = st_layout(f, e);
    rc = rc < 0 ? rc : st_write(f, ALIGN, header, e);
    return rc < 0 ? rc : header->failed ? error_set(e, ENOMEM, "write its header")
                                        : 0;
}

static int write_shard(struct work *w, const struct shard *s, int dir,
                       const char *name, struct error *e)
{
    struct st_file f = {0};
    _buf_ struct buf header = {0};
    struct io *io = io_system();
    int fd = -1, closed = 0, rc = plan_file(w, s, &f, &header, e);

    if (rc == 0) {
        fd = io->ops->create(io, dir, name);
        rc = fd < 0 ? error_set(e, -fd, "make it")
                    : write_file(w, &f, &header, fd, e);
    }
    closed = fd < 0 ? 0 : io->ops->close(io, fd);
    free(f.tensors);
    free(f.meta);
    return rc < 0 ? rc : closed < 0 ? error_set(e, -closed, "close it") : 0;
}

/* --- a directory --- */

static size_t cut(const struct convert *c, struct shard *ret)
{
    const struct contents *from = c->from;
    size_t n = 0;
    uint64_t bytes = 0;

    ret[n++] = (struct shard){0};
    for (size_t i = 0; i < from->n_tensors; i++) {
        uint64_t more = from->tensors[i].bytes;

        if (ret[n - 1].end > ret[n - 1].first &&
            (bytes + more > c->shard_bytes || bytes + more < bytes)) {
            ret[n++] = (struct shard){.first = i};
            bytes = 0;
        }
        ret[n - 1].end = i + 1;
        bytes += more;
    }
    for (size_t i = 0; i < n; i++) {
        if (n == 1) {
            str_copy(ret[i].name, sizeof(ret[i].name), "model.safetensors");
        } else {
            snprintf(ret[i].name, sizeof(ret[i].name),
                     "model-%05zu-of-%05zu.safetensors", i + 1, n);
        }
    }
    return n;
}

static json_t *make_index(const struct work *w, const struct shard *shards,
                          size_t n)
{
    json_t *map = json_object();
    int failed = !map;

    for (size_t i = 0; i < n && !failed; i++) {
        for (size_t k = shards[i].first; k < shards[i].end && !failed; k++) {
            failed = json_object_set_new(map, w->c->from->tensors[k].name,
                                         json_string(shards[i].name));
        }
    }
    if (failed) {
        json_decref(map);
        return NULL;
    }
    return json_pack("{s:{s:I}, s:o}", "metadata", "total_size", (json_int_t)w->of,
                     "weight_map", map);
}

static int write_index(const struct work *w, const struct shard *shards, size_t n,
                       int dir, struct error *e)
{
    json_t *index = make_index(w, shards, n);
    _free_ char *text = index ? json_dumps(index, JSON_INDENT(2) | JSON_SORT_KEYS)
                              : NULL;
    struct io *io = io_system();
    int fd, closed, rc;

    json_decref(index);
    if (!text) {
        return error_set(e, ENOMEM, "write %s", INDEX_NAME);
    }
    fd = io->ops->create(io, dir, INDEX_NAME);
    if (fd < 0) {
        return error_set(e, -fd, "make %s", INDEX_NAME);
    }
    rc = io_write_all(io, fd, text, strlen(text), 0);
    rc = rc < 0 ? rc : io->ops->sync(io, fd);
    closed = io->ops->close(io, fd);
    rc = rc < 0 ? rc : closed;
    return rc < 0 ? error_set(e, -rc, "write %s", INDEX_NAME) : 0;
}

static int write_directory(struct work *w, int dir, const char *temp,
                           struct convert_facts *facts, struct error *e)
{
    _free_ struct shard *shards = calloc(w->c->from->n_tensors + 1,
                                         sizeof(*shards));
    _close_ int sub = -1;
    int rc = 0;

    if (!shards) {
        return error_set(e, ENOMEM, "cut it into files");
    }
    facts->n_files = cut(w->c, shards);
    if (mkdirat(dir, temp, 0700) < 0) {
        return error_set(e, errno, "make it");
    }
    sub = openat(dir, temp, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (sub < 0) {
        return error_set(e, errno, "open it");
    }
    for (size_t i = 0; i < facts->n_files && rc == 0; i++) {
        rc = write_shard(w, &shards[i], sub, shards[i].name, e);
        rc = rc < 0 ? error_wrap(e, "%s", shards[i].name) : 0;
    }
    if (rc == 0 && facts->n_files > 1) {
        rc = write_index(w, shards, facts->n_files, sub, e);
    }
    return rc < 0 ? rc : fsync(sub) < 0 ? error_set(e, errno, "sync it") : 0;
}

/* --- all of it --- */

/* Where a filesystem knows no such rename, a look before it has to do: the directory
 * is locked, and others are not meant to write here. */
static int give_name(int dir, const char *temp, const char *name,
                     struct error *e)
{
    struct stat st;
    int rc = renameat2(dir, temp, dir, name, RENAME_NOREPLACE);

    if (rc < 0 && (errno == EINVAL || errno == ENOSYS) &&
        fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT) {
        rc = renameat(dir, temp, dir, name);
    }
    return rc < 0 ? error_set(e, errno, "name it %s", name)
           : fsync(dir) < 0 ? error_set(e, errno, "sync its directory") : 0;
}

static int write_all(struct work *w, int dir, const char *temp, const char *name,
                     struct convert_facts *facts, struct error *e)
{
    const struct shard all = {.end = w->c->from->n_tensors};
    int rc;

    facts->bytes = w->of;
    facts->n_files = 1;
    rc = w->c->shard_bytes ? write_directory(w, dir, temp, facts, e)
                           : write_shard(w, &all, dir, temp, e);
    return rc < 0 ? rc : give_name(dir, temp, name, e);
}

static int check(const struct convert *c, int dir, const char *name,
                 char suffix[DIRLOCK_SUFFIX_BYTES], struct error *e)
{
    struct stat st;
    int rc;

    if (c->from->why_no_tensors) {
        return error_text(e, ENOTSUP, "%s cannot be converted: %s",
                          c->from->found.name, c->from->why_no_tensors);
    }
    if (c->from->n_tensors == 0 && c->from->n_values_left_out + c->from->n_tensors_left_out > 0) {
        return error_text(e, ENOTSUP, "%s cannot be converted: nothing in it is a tensor that "
                          "safetensors files have the like of: expected a state_dict, or other "
                          "dicts and lists of tensors", c->from->found.name);
    }
    if (strlen(name) >= NAME_BYTES - 32) {
        return error_set(e, ENAMETOOLONG, "convert to %.60s", name);
    }
    rc = dirlock_take(dir, suffix);
    if (rc == -EBUSY) {
        return error_text(e, EBUSY, "somebody else writes into the directory of "
                          "%s: try again once that is done", name);
    }
    if (rc < 0) {
        return error_set(e, -rc, "lock the directory of %s", name);
    }
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return error_text(e, EEXIST, "%s is there already, and is not written "
                          "over", name);
    }
    return 0;
}

static int remove_one(void *arg, const char *name)
{
    return io_system()->ops->unlink(io_system(), *(int *)arg, name);
}

/* A file, or a directory of files. */
static void remove_temp(int dir, const char *temp)
{
    struct io *io = io_system();
    int sub;

    if (unlinkat(dir, temp, 0) == 0 || errno == ENOENT) {
        return;
    }
    sub = io->ops->open_dir(io, dir, temp);
    if (sub >= 0) {
        io->ops->list(io, sub, remove_one, &sub);
        io->ops->close(io, sub);
        io->ops->remove_dir(io, dir, temp);
    }
}

int convert_run(const struct convert *c, int dir, const char *name,
                struct convert_facts *ret, struct error *e)
{
    struct work w = {.c = c, .room = c->piece_bytes ? c->piece_bytes
                                                    : PIECE_BYTES};
    struct convert_facts facts = {0};
    char temp[NAME_BYTES], suffix[DIRLOCK_SUFFIX_BYTES];
    int rc = check(c, dir, name, suffix, e);

    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < c->from->n_tensors; i++) {
        w.of += c->from->tensors[i].bytes;
    }
    w.piece = malloc(w.room);
    if (!w.piece) {
        return error_set(e, ENOMEM, "convert %s", c->from->found.name);
    }
    snprintf(temp, sizeof(temp), ".%s.muster-part%s", name, suffix);
    remove_temp(dir, temp);
    rc = write_all(&w, dir, temp, name, &facts, e);
    free(w.piece);
    if (rc < 0) {
        remove_temp(dir, temp);
        return error_wrap(e, "convert to %s", name);
    }
    *ret = facts;
    return 0;
}
