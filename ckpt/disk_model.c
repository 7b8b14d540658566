/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/disk_model.h"

#include "base/buf.h"
#include "base/str.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 512, MAX_FDS = 64, NAME_BYTES = 64, SECTOR = 512, ROOT = 0 };

struct entry {
    char name[NAME_BYTES]; /* "" for none */
    int node;
};

struct entries {
    struct entry *items;
    size_t n;
};

/* A change of a directory that is not on the disk yet: first a name goes, then one
 * comes. */
struct change {
    char goes[NAME_BYTES], comes[NAME_BYTES]; /* "" for none */
    int node;
};

struct node {
    bool is_dir;
    struct buf data, on_disk; /* of a file */
    bool dirty;
    int64_t changed_ns;
    bool owes_sync; /* DISK_RENAME_FIRST */
    struct entries names, names_on_disk; /* of a directory */
    struct change *changes;
    size_t n_changes;
};

struct disk {
    struct io io;
    enum disk_plant plant;
    struct node nodes[MAX_NODES];
    int n_nodes;
    int fds[MAX_FDS]; /* node, or -1 */
    uint64_t n_calls, stop_at, fail_at;
    int error;
    bool stays;
    int64_t now_ns;
};

/* A test that does not fit in here, or without memory, is of no use. */
static void expect(bool fact, const char *what)
{
    if (!fact) {
        fprintf(stderr, "disk model: %s\n", what);
        abort();
    }
}

static struct disk *of(struct io *io)
{
    return (struct disk *)io; /* its first member */
}

/* --- names --- */

static struct entry *find(const struct entries *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->items[i].name, name) == 0) {
            return &list->items[i];
        }
    }
    return NULL;
}

static void set_name(struct entries *list, const char *name, int node)
{
    struct entry *e = find(list, name);

    if (!e) {
        struct entry *fresh = reallocarray(list->items, list->n + 1,
                                           sizeof(*fresh));

        expect(fresh != NULL, "no memory");
        list->items = fresh;
        e = &list->items[list->n++];
        str_copy(e->name, sizeof(e->name), name);
    }
    e->node = node;
}

static void drop_name(struct entries *list, const char *name)
{
    struct entry *e = find(list, name);

    if (e) {
        *e = list->items[--list->n];
    }
}

static void copy_names(struct entries *to, const struct entries *from)
{
    struct entry *fresh = reallocarray(to->items, from->n + 1, sizeof(*fresh));

    expect(fresh != NULL, "no memory");
    to->items = fresh;
    to->n = from->n;
    if (from->n) {
        memcpy(to->items, from->items, from->n * sizeof(*fresh));
    }
}

static void apply(struct entries *to, const struct change *c)
{
    if (c->goes[0]) {
        drop_name(to, c->goes);
    }
    if (c->comes[0]) {
        set_name(to, c->comes, c->node);
    }
}

static void change_names(struct node *dir, const char *goes, const char *comes,
                         int node)
{
    struct change c = {.node = node};
    struct change *fresh = reallocarray(dir->changes, dir->n_changes + 1,
                                        sizeof(*fresh));

    expect(fresh != NULL && strlen(goes) < NAME_BYTES &&
               strlen(comes) < NAME_BYTES, "no room for a name");
    str_copy(c.goes, sizeof(c.goes), goes);
    str_copy(c.comes, sizeof(c.comes), comes);
    dir->changes = fresh;
    dir->changes[dir->n_changes++] = c;
    apply(&dir->names, &c);
}

/* --- calls --- */

/* Every call that changes something goes through here: 0, or its errno. */
static int enter(struct disk *d)
{
    d->n_calls++;
    if (d->stop_at && d->n_calls >= d->stop_at) {
        return -EIO;
    }
    if (d->fail_at && (d->n_calls == d->fail_at ||
                       (d->stays && d->n_calls > d->fail_at))) {
        return -d->error;
    }
    return 0;
}

static struct node *node_of(struct disk *d, int fd)
{
    expect(fd >= 0 && fd < MAX_FDS && d->fds[fd] >= 0, "a closed descriptor");
    return &d->nodes[d->fds[fd]];
}

static int open_node(struct disk *d, int node)
{
    for (int fd = 0; fd < MAX_FDS; fd++) {
        if (d->fds[fd] < 0) {
            d->fds[fd] = node;
            return fd;
        }
    }
    expect(false, "too many descriptors");
    return -1;
}

static int open_named(struct io *io, int dir, const char *name, bool is_dir)
{
    struct disk *d = of(io);
    const struct entry *e = find(&node_of(d, dir)->names, name);

    if (!e) {
        return -ENOENT;
    }
    if (d->nodes[e->node].is_dir != is_dir) {
        return is_dir ? -ENOTDIR : -EINVAL;
    }
    return open_node(d, e->node);
}

static int open_dir(struct io *io, int dir, const char *name)
{
    return open_named(io, dir, name, true);
}

static int open_file(struct io *io, int dir, const char *name)
{
    return open_named(io, dir, name, false);
}

static int make_node(struct disk *d, int dir, const char *name, bool is_dir)
{
    int rc = enter(d);

    if (rc < 0) {
        return rc;
    }
    if (find(&node_of(d, dir)->names, name)) {
        return -EEXIST;
    }
    expect(d->n_nodes < MAX_NODES, "too many files");
    d->nodes[d->n_nodes].is_dir = is_dir;
    d->nodes[d->n_nodes].changed_ns = d->now_ns;
    change_names(node_of(d, dir), "", name, d->n_nodes);
    return d->n_nodes++;
}

static int create(struct io *io, int dir, const char *name)
{
    int node = make_node(of(io), dir, name, false);

    return node < 0 ? node : open_node(of(io), node);
}

static int make_dir(struct io *io, int dir, const char *name)
{
    int node = make_node(of(io), dir, name, true);

    return node < 0 ? node : 0;
}

static int close_fd_of(struct io *io, int fd)
{
    node_of(of(io), fd);
    of(io)->fds[fd] = -1;
    return 0;
}

static void extend(struct node *n, uint64_t len)
{
    static const char zeros[SECTOR];

    while (n->data.len < len) {
        uint64_t more = len - n->data.len;

        buf_append(&n->data, zeros, more < SECTOR ? more : SECTOR);
    }
    expect(!n->data.failed, "no memory");
}

static int allocate(struct io *io, int fd, uint64_t len)
{
    int rc = enter(of(io));

    if (rc == 0) {
        extend(node_of(of(io), fd), len);
        node_of(of(io), fd)->dirty = true;
    }
    return rc;
}

static ssize_t write_at(struct io *io, int fd, const void *data, size_t len,
                        uint64_t at)
{
    struct node *n = node_of(of(io), fd);
    int rc = enter(of(io));
    bool is_dead = of(io)->stop_at && of(io)->n_calls >= of(io)->stop_at;

    /* Never all at once: callers go on with the rest. */
    len = rc < 0 ? len / 2 : len > 700 ? 700 : len;
    if (len > 0 && !is_dead) {
        extend(n, at + len);
        memcpy(n->data.data + at, data, len);
        n->dirty = true;
        n->changed_ns = of(io)->now_ns;
    }
    return rc < 0 ? rc : (ssize_t)len;
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    const struct node *n = node_of(of(io), fd);

    if (at >= n->data.len) {
        return 0;
    }
    len = len < n->data.len - at ? len : n->data.len - at;
    memcpy(to, n->data.data + at, len);
    return (ssize_t)len;
}

static int size(struct io *io, int fd, uint64_t *ret)
{
    *ret = node_of(of(io), fd)->data.len;
    return 0;
}

static int identity(struct io *io, int fd, const char *name, uint64_t *ret)
{
    struct disk *d = of(io);
    const struct entry *e = name ? find(&node_of(d, fd)->names, name) : NULL;

    if (name && !e) {
        return -ENOENT;
    }
    *ret = (uint64_t)(e ? e->node : d->fds[fd]);
    return 0;
}

static int changed(struct io *io, int fd, int64_t *ret_ns)
{
    *ret_ns = node_of(of(io), fd)->changed_ns;
    return 0;
}

static int touch(struct io *io, int fd)
{
    struct node *n = node_of(of(io), fd);
    int rc = enter(of(io));

    if (rc == 0) {
        n->changed_ns = of(io)->now_ns;
    }
    return rc;
}

static void sync_file(struct node *n)
{
    buf_clear(&n->on_disk);
    buf_append(&n->on_disk, n->data.data, n->data.len);
    expect(!n->on_disk.failed, "no memory");
    n->dirty = false;
    n->owes_sync = false;
}

static int sync_fd(struct io *io, int fd)
{
    struct disk *d = of(io);
    struct node *n = node_of(d, fd);
    int rc = enter(d);

    if (rc < 0) {
        return rc;
    }
    if (n->is_dir && d->plant != DISK_NO_DIR_SYNC) {
        copy_names(&n->names_on_disk, &n->names);
        n->n_changes = 0;
    } else if (!n->is_dir && d->plant == DISK_RENAME_FIRST) {
        n->owes_sync = true;
    } else if (!n->is_dir && d->plant != DISK_NO_FILE_SYNC) {
        sync_file(n);
    }
    return 0;
}

static int rename_in(struct io *io, int dir, const char *from, const char *to)
{
    struct disk *d = of(io);
    struct node *n = node_of(d, dir);
    const struct entry *e = find(&n->names, from);
    int rc = enter(d);

    if (rc < 0 || !e) {
        return rc < 0 ? rc : -ENOENT;
    }
    change_names(n, from, to, e->node);
    return 0;
}

static int unlink_in(struct io *io, int dir, const char *name)
{
    struct node *n = node_of(of(io), dir);
    int rc = enter(of(io));

    if (rc < 0 || !find(&n->names, name)) {
        return rc < 0 ? rc : -ENOENT;
    }
    change_names(n, name, "", 0);
    return 0;
}

static int remove_dir(struct io *io, int dir, const char *name)
{
    const struct entry *e = find(&node_of(of(io), dir)->names, name);

    if (e && of(io)->nodes[e->node].names.n > 0) {
        return -ENOTEMPTY;
    }
    return unlink_in(io, dir, name);
}

static int list(struct io *io, int dir,
                int (*each)(void *arg, const char *name), void *arg)
{
    struct entries names = {0};
    int rc = 0;

    copy_names(&names, &node_of(of(io), dir)->names);
    for (size_t i = 0; i < names.n && rc >= 0; i++) {
        rc = each(arg, names.items[i].name);
    }
    free(names.items);
    return rc;
}

static int rename_and_sync(struct io *io, int dir, const char *from,
                           const char *to)
{
    struct disk *d = of(io);
    int rc = rename_in(io, dir, from, to);

    for (int i = 0; i < d->n_nodes && rc == 0; i++) {
        if (d->nodes[i].owes_sync) { /* at the next call that gets so far */
            rc = enter(d);
            if (rc == 0) {
                sync_file(&d->nodes[i]);
            }
        }
    }
    return rc;
}

static const struct io_ops ops = {
    .open_dir = open_dir,
    .open_file = open_file,
    .create = create,
    .make_dir = make_dir,
    .close = close_fd_of,
    .allocate = allocate,
    .write = write_at,
    .read = read_at,
    .size = size,
    .identity = identity,
    .changed = changed,
    .touch = touch,
    .sync = sync_fd,
    .rename = rename_and_sync,
    .unlink = unlink_in,
    .remove_dir = remove_dir,
    .list = list,
};

/* --- life --- */

struct disk *disk_create(enum disk_plant plant)
{
    struct disk *d = calloc(1, sizeof(*d));

    expect(d != NULL, "no memory");
    d->io.ops = &ops;
    d->plant = plant;
    d->nodes[ROOT].is_dir = true;
    d->n_nodes = 1;
    memset(d->fds, 0xff, sizeof(d->fds));
    d->fds[ROOT] = ROOT;
    return d;
}

void disk_destroy(struct disk *d)
{
    for (int i = 0; d && i < d->n_nodes; i++) {
        struct node *n = &d->nodes[i];

        buf_release(&n->data);
        buf_release(&n->on_disk);
        free(n->names.items);
        free(n->names_on_disk.items);
        free(n->changes);
    }
    free(d);
}

struct io *disk_io(struct disk *d)
{
    return &d->io;
}

int disk_root(const struct disk *d)
{
    (void)d;
    return ROOT;
}

void disk_set_time(struct disk *d, int64_t ns)
{
    d->now_ns = ns;
}

uint64_t disk_n_calls(const struct disk *d)
{
    return d->n_calls;
}

void disk_stop_at(struct disk *d, uint64_t at)
{
    d->stop_at = at;
}

void disk_fail_at(struct disk *d, uint64_t at, int error, bool stays)
{
    d->fail_at = at;
    d->error = error;
    d->stays = stays;
}

void disk_restart(struct disk *d)
{
    memset(d->fds, 0xff, sizeof(d->fds));
    d->fds[ROOT] = ROOT;
    d->stop_at = d->fail_at = 0;
}

unsigned disk_n_open(const struct disk *d)
{
    unsigned n = 0;

    for (int fd = 1; fd < MAX_FDS; fd++) {
        n += d->fds[fd] >= 0;
    }
    return n;
}

bool disk_flip(struct disk *d, const char *dir, const char *name, uint64_t bit)
{
    const struct entry *in = find(&d->nodes[ROOT].names, dir);
    const struct entry *e = in ? find(&d->nodes[in->node].names, name) : NULL;
    struct buf *data = e ? &d->nodes[e->node].data : NULL;

    if (!data || bit / 8 >= data->len) {
        return false;
    }
    data->data[bit / 8] = (char)(data->data[bit / 8] ^ 1 << bit % 8);
    return true;
}

/* --- power --- */

static uint64_t next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

static void lose_names(struct node *n, uint64_t *seed)
{
    for (size_t i = 0; i < n->n_changes; i++) {
        if (next(seed) % 2) {
            apply(&n->names_on_disk, &n->changes[i]);
        }
    }
    n->n_changes = 0;
    copy_names(&n->names, &n->names_on_disk);
}

/* Sector by sector as it was, as it became, or zeros; the length old, new, or
 * anything between. */
static void lose_data(struct node *n, uint64_t *seed)
{
    _buf_ struct buf left = {0};
    uint64_t low = n->on_disk.len < n->data.len ? n->on_disk.len : n->data.len;
    uint64_t high = n->on_disk.len > n->data.len ? n->on_disk.len : n->data.len;
    uint64_t len = next(seed) % 4 == 0   ? n->on_disk.len
                   : next(seed) % 3 == 0 ? low + next(seed) % (high - low + 1)
                                         : n->data.len;
    bool is_all_new = next(seed) % 4 == 0;

    for (uint64_t at = 0; at < len; at += SECTOR) {
        uint64_t end = len - at < SECTOR ? len : at + SECTOR;
        uint64_t which = is_all_new ? 1 : next(seed) % 3;
        const struct buf *from = which == 0 ? &n->on_disk : &n->data;

        for (uint64_t i = at; i < end; i++) {
            buf_putc(&left, which < 2 && i < from->len ? from->data[i] : 0);
        }
    }
    expect(!left.failed, "no memory");
    buf_clear(&n->data);
    buf_append(&n->data, left.data ? left.data : "", left.len);
    sync_file(n);
}

void disk_lose_power(struct disk *d, uint64_t seed)
{
    disk_restart(d);
    for (int i = 0; i < d->n_nodes; i++) {
        struct node *n = &d->nodes[i];

        if (n->is_dir) {
            lose_names(n, &seed);
        } else if (n->dirty) {
            lose_data(n, &seed);
        }
    }
}
