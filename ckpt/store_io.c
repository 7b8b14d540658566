/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint in a store, read as if it were a directory. What is read in small
 * pieces (headers, the end of an archive) comes in windows, one for each open file;
 * large pieces come as they are asked for.
 */
#include <config.h>

#include "ckpt/store_priv.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WINDOW_BYTES ((size_t)256 << 10)

/* What a descriptor stands for: a directory, by what paths in it begin with, or a
 * file. */
struct node {
    char *prefix; /* owned; NULL for a file */
    const struct parcel_item *item;
    const char *data; /* the file's, where it is here already */
    uint64_t bytes;
    pthread_mutex_t lock; /* of the window */
    char *window;
    uint64_t window_at;
    size_t window_len;
};

struct store_io {
    struct io io;
    const struct store *st;
    const struct parcel *p;
    const struct parcel_item **by_path; /* all items */
    pthread_mutex_t lock; /* of the rest */
    struct node **nodes;  /* by descriptor; NULL for one that is closed; 0 is the root */
    size_t n;
    struct error failure; /* the first */
};

static struct store_io *of(struct io *io)
{
    return (struct store_io *)io;
}

/* --- descriptors --- */

static void node_destroy(struct node *node)
{
    if (node) {
        pthread_mutex_destroy(&node->lock);
        free(node->prefix);
        free(node->window);
        free(node);
    }
}

static struct node *node_of(struct store_io *s, int fd)
{
    struct node *node;

    pthread_mutex_lock(&s->lock);
    node = fd > 0 && (size_t)fd < s->n ? s->nodes[fd] : NULL;
    pthread_mutex_unlock(&s->lock);
    return node;
}

static int place(struct store_io *s, struct node *node)
{
    struct node **fresh;
    size_t fd = 1;

    pthread_mutex_lock(&s->lock);
    while (fd < s->n && s->nodes[fd]) {
        fd++;
    }
    if (fd >= s->n) {
        fresh = reallocarray(s->nodes, fd + 16, sizeof(*fresh));
        if (fresh) {
            memset(fresh + s->n, 0, (fd + 16 - s->n) * sizeof(*fresh));
            s->nodes = fresh;
            s->n = fd + 16;
        } else {
            fd = 0;
        }
    }
    if (fd) {
        s->nodes[fd] = node;
    }
    pthread_mutex_unlock(&s->lock);
    return fd ? (int)fd : -ENOMEM;
}

static int give(struct store_io *s, char *prefix, const struct parcel_item *item)
{
    struct node *node = calloc(1, sizeof(*node));
    int fd;

    if (!node) {
        free(prefix);
        return -ENOMEM;
    }
    pthread_mutex_init(&node->lock, NULL);
    node->prefix = prefix;
    node->item = item;
    node->data = !prefix && !item ? s->p->seal.data : NULL;
    node->bytes = item ? item->bytes : s->p->seal.len;
    fd = place(s, node);
    if (fd < 0) {
        node_destroy(node);
    }
    return fd;
}

static int do_close(struct io *io, int fd)
{
    struct store_io *s = of(io);
    struct node *node = node_of(s, fd);

    if (node) {
        pthread_mutex_lock(&s->lock);
        s->nodes[fd] = NULL;
        pthread_mutex_unlock(&s->lock);
        node_destroy(node);
    }
    return node ? 0 : -EBADF;
}

/* --- names --- */

/* The first item whose path is not less. */
static size_t lower(const struct store_io *s, const char *path)
{
    size_t low = 0, high = s->p->n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;

        if (strcmp(s->by_path[middle]->path, path) < 0) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* What is behind a name in a directory: `*ret` is for the caller to free. */
static int path_of(struct store_io *s, int dir, const char *name, char **ret)
{
    struct node *at = node_of(s, dir);

    if (dir == 0) {
        if (strcmp(name, s->p->found.name) != 0) {
            return -ENOENT;
        }
        *ret = strdup(parcel_is_file(s->p) ? name : "");
        return *ret ? 0 : -ENOMEM;
    }
    if (!at || !at->prefix) {
        return at ? -ENOTDIR : -EBADF;
    }
    return asprintf(ret, "%s%s", at->prefix, name) < 0 ? -ENOMEM : 0;
}

static int do_open_dir(struct io *io, int dir, const char *name)
{
    struct store_io *s = of(io);
    _free_ char *path = NULL;
    char *prefix;
    size_t i;
    int rc = path_of(s, dir, name, &path);

    if (rc < 0) {
        return rc;
    }
    if (dir == 0) {
        return parcel_is_file(s->p) ? -ENOTDIR : give(s, take_ptr(&path), NULL);
    }
    if (asprintf(&prefix, "%s/", path) < 0) {
        return -ENOMEM;
    }
    i = lower(s, prefix);
    if (i == s->p->n || !str_starts(s->by_path[i]->path, prefix)) {
        free(prefix);
        return -ENOENT;
    }
    return give(s, prefix, NULL);
}

static bool is_commit(const struct store_io *s, const char *path)
{
    return s->p->found.kind == FOUND_MUSTER && strcmp(path, PARCEL_COMMIT) == 0;
}

static int do_open_file(struct io *io, int dir, const char *name)
{
    struct store_io *s = of(io);
    _free_ char *path = NULL;
    size_t i;
    int rc = path_of(s, dir, name, &path);

    if (rc < 0) {
        return rc;
    }
    if (is_commit(s, path)) {
        return give(s, NULL, NULL);
    }
    i = lower(s, path);
    return i < s->p->n && strcmp(s->by_path[i]->path, path) == 0
               ? give(s, NULL, s->by_path[i]) : -ENOENT;
}

/* Of paths with one beginning those of one directory lie together. */
static int do_list(struct io *io, int dir, int (*each)(void *arg, const char *name),
                   void *arg)
{
    struct store_io *s = of(io);
    struct node *at = node_of(s, dir);
    _free_ char *last = NULL;
    size_t skip;
    int rc = 0;

    if (dir == 0) {
        return each(arg, s->p->found.name);
    }
    if (!at || !at->prefix) {
        return at ? -ENOTDIR : -EBADF;
    }
    skip = strlen(at->prefix);
    for (size_t i = lower(s, at->prefix); rc >= 0 && i < s->p->n &&
         str_starts(s->by_path[i]->path, at->prefix); i++) {
        const char *name = s->by_path[i]->path + skip;
        char *one = strndup(name, strcspn(name, "/"));

        if (!one) {
            return -ENOMEM;
        }
        rc = last && strcmp(last, one) == 0 ? 0 : each(arg, one);
        free(last);
        last = one;
    }
    return rc >= 0 && skip == 0 && is_commit(s, PARCEL_COMMIT)
               ? each(arg, PARCEL_COMMIT) : rc;
}

/* --- bytes --- */

static int do_size(struct io *io, int fd, uint64_t *ret)
{
    struct node *node = node_of(of(io), fd);

    if (!node || node->prefix) {
        return node ? -EISDIR : -EBADF;
    }
    *ret = node->bytes;
    return 0;
}

static int fetch(struct store_io *s, const struct node *node, uint64_t at, void *to,
                 size_t len)
{
    _buf_ struct buf key = {0};
    struct error why = {0};
    int rc = store_key(s->st, s->p->name, node->item->path, &key, &why);

    rc = rc < 0 ? rc : s3_get_range(s->st->s3, buf_str(&key), at, to, len, &why);
    if (rc < 0) {
        pthread_mutex_lock(&s->lock);
        s->failure = s->failure.code ? s->failure : why;
        pthread_mutex_unlock(&s->lock);
    }
    return rc;
}

static int fetch_small(struct store_io *s, struct node *node, uint64_t at, void *to,
                       size_t len)
{
    uint64_t begin = at - at % WINDOW_BYTES;
    uint64_t rest = node->bytes - begin;
    size_t want = rest < 2 * WINDOW_BYTES ? (size_t)rest : 2 * WINDOW_BYTES;
    int rc = 0;

    pthread_mutex_lock(&node->lock);
    node->window = node->window ? node->window : malloc(2 * WINDOW_BYTES);
    if (!node->window) {
        rc = -ENOMEM;
    } else if (node->window_len == 0 || begin != node->window_at) {
        rc = fetch(s, node, begin, node->window, want);
        node->window_at = begin;
        node->window_len = rc < 0 ? 0 : want;
    }
    if (rc == 0) {
        memcpy(to, node->window + (at - begin), len);
    }
    pthread_mutex_unlock(&node->lock);
    return rc;
}

static ssize_t do_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct store_io *s = of(io);
    struct node *node = node_of(s, fd);
    int rc = 0;

    if (!node || node->prefix) {
        return node ? -EISDIR : -EBADF;
    }
    if (at >= node->bytes || len == 0) {
        return 0;
    }
    len = len < node->bytes - at ? len : (size_t)(node->bytes - at);
    if (node->data) {
        memcpy(to, node->data + at, len);
    } else {
        rc = len <= WINDOW_BYTES ? fetch_small(s, node, at, to, len)
                                 : fetch(s, node, at, to, len);
    }
    return rc < 0 ? rc : (ssize_t)len;
}

/* --- one to be read --- */

static const struct io_ops ops = {
    .open_dir = do_open_dir, .open_file = do_open_file, .close = do_close,
    .read = do_read, .size = do_size, .list = do_list,
};

static int by_path(const void *a, const void *b)
{
    return strcmp((*(const struct parcel_item *const *)a)->path,
                  (*(const struct parcel_item *const *)b)->path);
}

int store_io_open(const struct store *st, const struct parcel *p, struct io **ret,
                  struct error *e)
{
    struct store_io *s = calloc(1, sizeof(*s));

    if (!s || !(s->by_path = calloc(p->n + 1, sizeof(*s->by_path)))) {
        free(s);
        return error_set(e, ENOMEM, "open %s", p->name);
    }
    s->io.ops = &ops;
    s->st = st;
    s->p = p;
    for (size_t i = 0; i < p->n; i++) {
        s->by_path[i] = &p->items[i];
    }
    qsort(s->by_path, p->n, sizeof(*s->by_path), by_path);
    pthread_mutex_init(&s->lock, NULL);
    *ret = &s->io;
    return 0;
}

const struct error *store_io_failure(struct io *io)
{
    return of(io)->failure.code ? &of(io)->failure : NULL;
}

void store_io_close(struct io *io)
{
    struct store_io *s = io ? of(io) : NULL;

    if (s) {
        for (size_t i = 0; i < s->n; i++) {
            node_destroy(s->nodes[i]);
        }
        pthread_mutex_destroy(&s->lock);
        free(s->by_path);
        free(s->nodes);
        free(s);
    }
}
