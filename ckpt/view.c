/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/view.h"

#include "base/cleanup.h"
#include "base/pages.h"
#include "base/str.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { COPY_ALIGN = 64 };

struct view {
    struct muster_ckpt_view view; /* what the caller sees */
    struct view_map *map;
    struct view *next; /* of that map */
};

struct view_map {
    struct views *list; /* NULL: forgotten */
    struct view_map *next;
    char uuid[COMMIT_UUID_BYTES]; /* "": not to be found */
    uint32_t file;
    enum muster_ckpt_where where;
    bool is_writable, is_heap;
    dev_t dev;
    ino_t ino;
    char *at;
    size_t len;
    uint64_t first; /* which byte of the file is at its beginning, behind `skip` ... */
    uint64_t skip;  /* ... bytes that are not of the file */
    struct view *views;
};

struct views {
    struct view_map *maps;
};

int views_create(struct views **ret)
{
    *ret = calloc(1, sizeof(**ret));
    return *ret ? 0 : -ENOMEM;
}

void views_forget(void *views)
{
    struct views *l = views;

    for (struct view_map *m = l ? l->maps : NULL, *next; m; m = next) {
        next = m->next;
        m->list = NULL;
        m->next = NULL;
    }
    free(l);
}

/* --- maps --- */

static void free_map(struct view_map *m)
{
    if (m->list) {
        struct view_map **at = &m->list->maps;

        while (*at != m) {
            at = &(*at)->next;
        }
        *at = m->next;
    }
    if (m->is_heap) {
        free(m->at);
    } else {
        munmap(m->at, m->len);
    }
    free(m);
}

void view_map_drop(struct view_map *m)
{
    if (m && !m->views) {
        free_map(m);
    }
}

struct view_map *views_find(struct views *l, const struct view_source *s)
{
    for (struct view_map *m = l->maps; m; m = m->next) {
        if (!m->is_writable && m->where == s->where && m->file == s->file &&
            strcmp(m->uuid, s->uuid) == 0) {
            return m;
        }
    }
    return NULL;
}

static int check_file(const struct view_source *s, struct view_map *m, struct error *e)
{
    struct stat st;

    if (fstat(s->fd, &st) < 0) {
        return error_set(e, errno, "look at what is to be mapped");
    }
    if (s->bytes > (uint64_t)INT64_MAX - s->skip ||
        (uint64_t)st.st_size < s->skip + s->bytes) {
        return error_text(e, ERR_FORMAT, "what is to be mapped has %lld bytes, "
                          "expected %llu", (long long)st.st_size,
                          (unsigned long long)s->bytes);
    }
    m->dev = st.st_dev;
    m->ino = st.st_ino;
    return 0;
}

static int map_bytes(const struct view_source *s, struct view_map *m, uint64_t begin,
                     uint64_t end, struct error *e)
{
    uint64_t from = (s->skip + begin) / pages_bytes() * pages_bytes();
    int access = m->is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
    void *at = mmap(NULL, s->skip + end - from, access, MAP_PRIVATE, s->fd,
                    (off_t)from);

    if (at == MAP_FAILED) {
        return error_set(e, errno, "map %llu bytes of a checkpoint",
                         (unsigned long long)(end - begin));
    }
    m->at = at;
    m->len = s->skip + end - from;
    m->first = from;
    m->skip = s->skip;
    return 0;
}

static void add_map(struct views *l, struct view_map *m)
{
    m->list = l;
    m->next = l->maps;
    l->maps = m;
}

int views_map(struct views *l, const struct view_source *s, bool is_writable,
              uint64_t begin, uint64_t end, struct view_map **ret, struct error *e)
{
    _free_ struct view_map *m = calloc(1, sizeof(*m));
    int rc = m ? check_file(s, m, e) : error_set(e, ENOMEM, "map a checkpoint");

    if (rc < 0) {
        return rc;
    }
    str_copy(m->uuid, sizeof(m->uuid), s->uuid);
    m->file = s->file;
    m->where = s->where;
    m->is_writable = is_writable;
    rc = map_bytes(s, m, is_writable ? begin : 0, is_writable ? end : s->bytes, e);
    if (rc == 0) {
        add_map(l, m);
        *ret = take_ptr(&m);
    }
    return rc;
}

/* No mapping: a process may have some ten thousands only. */
int views_make(struct views *l, uint64_t bytes, struct view_map **ret, struct error *e)
{
    _free_ struct view_map *m = calloc(1, sizeof(*m));
    size_t len = (bytes / COPY_ALIGN + 1) * COPY_ALIGN;
    char *at = m && bytes <= SIZE_MAX / 2 ? aligned_alloc(COPY_ALIGN, len) : NULL;

    if (!at) {
        return error_set(e, ENOMEM, "a copy of %llu bytes of a checkpoint",
                         (unsigned long long)bytes);
    }
    m->where = MUSTER_CKPT_COPIED;
    m->is_writable = true;
    m->is_heap = true;
    m->at = at;
    m->len = len;
    add_map(l, m);
    *ret = take_ptr(&m);
    return 0;
}

char *view_map_at(const struct view_map *m, uint64_t at)
{
    return m->at + (m->skip + at - m->first);
}

/* --- views --- */

int view_create(struct view_map *m, uint64_t begin, uint64_t bytes,
                struct muster_ckpt_view **ret, struct error *e)
{
    struct view *v = calloc(1, sizeof(*v));

    if (!v) {
        view_map_drop(m);
        return error_set(e, ENOMEM, "map a checkpoint");
    }
    v->view.data = view_map_at(m, begin);
    v->view.bytes = bytes;
    v->view.where = m->where;
    v->map = m;
    v->next = m->views;
    m->views = v;
    *ret = &v->view;
    return 0;
}

void view_destroy(struct muster_ckpt_view *view)
{
    struct view *v = (struct view *)view, **at;

    if (!v) {
        return;
    }
    for (at = &v->map->views; *at != v; at = &(*at)->next) {
    }
    *at = v->next;
    view_map_drop(v->map);
    free(v);
}

/* Other threads may read meanwhile: the kernel puts the copy in the old one's place in
 * one step. */
static int become_copy(struct view_map *m, struct error *e)
{
    char *to = mmap(NULL, m->len, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    to = to == MAP_FAILED ? NULL : to;

    for (struct view *v = m->views; to && v; v = v->next) {
        memcpy(to + ((char *)v->view.data - m->at), v->view.data, v->view.bytes);
    }
    if (to && ((!m->is_writable && mprotect(to, m->len, PROT_READ) < 0) ||
               mremap(to, m->len, m->len, MREMAP_MAYMOVE | MREMAP_FIXED, m->at) ==
                   MAP_FAILED)) {
        munmap(to, m->len);
        to = NULL;
    }
    if (!to) {
        return error_text(e, ENOMEM, "no memory to keep what is mapped of an earlier "
                          "save (%zu MiB), whose place this one takes: unmap it first",
                          m->len >> 20);
    }
    for (struct view *v = m->views; v; v = v->next) {
        v->view.where = MUSTER_CKPT_COPIED;
    }
    m->where = MUSTER_CKPT_COPIED;
    m->uuid[0] = '\0';
    return 0;
}

int views_leave(struct views *l, dev_t dev, ino_t ino, struct error *e)
{
    int rc = 0;

    for (struct view_map *m = l ? l->maps : NULL; m && rc == 0; m = m->next) {
        if (m->where == MUSTER_CKPT_IN_MEMORY && m->dev == dev && m->ino == ino) {
            rc = become_copy(m, e);
        }
    }
    return rc;
}
