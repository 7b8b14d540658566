/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/store_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "ckpt/digest.h"
#include "ckpt/io.h"
#include "ckpt/tree.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct s3 {
    int dir;
};

/* --- what the store asks for --- */

void s3_stop(struct s3 *s)
{
    (void)s;
}

void s3_go_on(struct s3 *s)
{
    (void)s;
}

int s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e)
{
    _close_ int fd = tree_open(s->dir, key);
    _free_ char *data = NULL;
    uint64_t bytes = 0;
    int rc = fd < 0 ? fd : io_system()->ops->size(io_system(), fd, &bytes);

    rc = rc == 0 && bytes > max ? -ERR_FORMAT : rc;
    data = rc < 0 ? NULL : malloc(bytes + 1);
    rc = rc < 0 ? rc : !data ? -ENOMEM : io_read_all(io_system(), fd, data, bytes, 0);
    if (rc == 0) {
        buf_append(to, data, bytes);
        rc = to->failed ? -ENOMEM : 0;
    }
    return rc < 0 ? error_set(e, -rc, "get %s", key) : 0;
}

int s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                 struct error *e)
{
    _close_ int fd = tree_open(s->dir, key);
    int rc = fd < 0 ? fd : io_read_all(io_system(), fd, to, len, at);

    return rc < 0 ? error_set(e, -rc, "get %s", key) : 0;
}

int s3_delete(struct s3 *s, const char *key, struct error *e)
{
    int rc = tree_unlink(s->dir, key);

    rc = rc < 0 ? rc : tree_sync(s->dir, key);
    return rc < 0 && rc != -ENOENT ? error_set(e, -rc, "delete %s", key) : 0;
}

/* --- lists --- */

struct listing {
    const char *prefix;
    struct s3_listing *to;
};

static int add_object(void *arg, const char *path, uint64_t bytes, struct error *e)
{
    struct listing *l = arg;
    struct s3_object *more = reallocarray(l->to->objects, l->to->n + 1, sizeof(*more));
    char *key = NULL;

    if (more) {
        l->to->objects = more;
    }
    if (!more || asprintf(&key, "%s%s", l->prefix, path) < 0) {
        return error_set(e, ENOMEM, "list %s", path);
    }
    more[l->to->n++] = (struct s3_object){.key = key, .bytes = bytes};
    return 0;
}

/* A name that has nothing in it is no prefix of a key. */
static int add_name(void *arg, const char *path, uint64_t bytes, struct error *e)
{
    const struct listing *l = arg;
    struct strlist *to = &l->to->prefixes;
    char name[PATH_MAX];
    size_t n = strcspn(path, "/");

    (void)bytes, (void)e;
    snprintf(name, sizeof(name), "%s%.*s/", l->prefix, (int)n, path);
    if (path[n] == '/' && (to->n == 0 || strcmp(to->items[to->n - 1], name) != 0)) {
        strlist_add(to, name);
    }
    return 0;
}

int s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
            struct error *e)
{
    struct listing l = {.prefix = prefix, .to = ret};
    _close_ int at = prefix[0] ? openat(s->dir, prefix, O_RDONLY | O_DIRECTORY | O_CLOEXEC)
                               : fcntl(s->dir, F_DUPFD_CLOEXEC, 0);

    if (at < 0) {
        return errno == ENOENT ? 0 : error_set(e, errno, "list %s", prefix);
    }
    return tree_walk(at, is_flat ? add_name : add_object, &l, e);
}

/* --- life --- */

bool store_bed_open(const char *path, struct store *ret)
{
    struct s3 *s = calloc(1, sizeof(*s));

    if (s && (mkdir(path, 0700) == 0 || errno == EEXIST)) {
        s->dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    }
    if (!s || s->dir <= 0) {
        free(s);
        return false;
    }
    *ret = (struct store){.s3 = s, .bucket = "bucket", .prefix = "", .n_threads = 1,
                          .part_bytes = DIGEST_BLOCK_BYTES};
    return true;
}

void store_bed_close(struct store *st)
{
    if (st->s3) {
        close(st->s3->dir);
        free(st->s3);
        st->s3 = NULL;
    }
}

static int put(const struct store *st, const char *name, const char *path, const void *data,
               size_t len)
{
    char key[PATH_MAX];
    _close_ int fd = -1;

    snprintf(key, sizeof(key), "%s/%s", name, path);
    fd = tree_create_file(st->s3->dir, key);
    return fd < 0 ? fd : fs_write_all(fd, data, len);
}

static int put_item(const struct store *st, int at, const struct parcel *p,
                    const struct parcel_item *item)
{
    _close_ int fd = tree_open(at, item->path);
    _free_ char *data = malloc(item->bytes + 1);
    int rc = fd < 0  ? fd
             : !data ? -ENOMEM : io_read_all(io_system(), fd, data, item->bytes, 0);

    return rc < 0 ? rc : put(st, p->name, item->path, data, item->bytes);
}

int store_bed_put(const struct store *st, int dir, const struct found *f)
{
    _parcel_ struct parcel p = {0};
    int rc = parcel_pack(io_system(), dir, f, &p, NULL);
    _close_ int at = rc < 0 ? rc : parcel_open_dir(dir, &p, NULL);

    rc = at < 0 ? at : 0;
    for (size_t i = 0; i < p.n && rc == 0; i++) {
        rc = put_item(st, at, &p, &p.items[i]);
    }
    return rc < 0 ? rc : put(st, p.name, parcel_seal_name(&p), p.seal.data, p.seal.len);
}
