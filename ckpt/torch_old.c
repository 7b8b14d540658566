/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Five pickles, one after the other: a number that all begin with, the version, what
 * the machine is like, the object, and the keys of its storages. Then for each key
 * 8 bytes that say how many elements it has, and these. How large an element is follows
 * from the class that the object names beside the key.
 */
#include <config.h>

#include "ckpt/torch_old.h"

#include "base/cleanup.h"
#include "ckpt/pickle.h"
#include "ckpt/torch_storages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PICKLE_BYTES (UINT64_C(1) << 30)
enum {
    FIRST_BYTES = 64 << 10,
    N_PICKLES = 5,
    MAX_STORAGES = 1 << 20,
};

/* The number, as an instruction says it: LONG1 of 10 bytes, or LONG, of protocols 0
 * and 1. */
static const uint8_t magic[] = {0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46,
                                0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19};
static const char magic_line[] = TORCH_OLD_LINE;

struct file {
    struct io *io;
    int fd;
    uint64_t bytes;
    uint8_t *data; /* owned: its beginning */
    size_t len;
};

static int read_more(struct file *f, struct error *e)
{
    size_t want = f->len ? f->len * 4 : FIRST_BYTES;
    uint8_t *fresh;
    int rc;

    want = want < f->bytes ? want : f->bytes;
    want = want < MAX_PICKLE_BYTES ? want : MAX_PICKLE_BYTES;
    fresh = realloc(f->data, want);
    if (!fresh) {
        return error_set(e, ENOMEM, "read a pickle of %zu bytes", want);
    }
    f->data = fresh;
    rc = io_read_all(f->io, f->fd, f->data + f->len, want - f->len, f->len);
    if (rc < 0) {
        return error_set(e, -rc, "read it");
    }
    f->len = want;
    return 0;
}

/* The pickle at `at`: where it ends. As much of the file is read as that takes. */
static int find_end(struct file *f, size_t at, size_t *ret, struct error *e)
{
    for (;;) {
        size_t len = 0;
        int rc = pickle_check(f->data + at, f->len - at, &len, e);

        if (rc == 0) {
            *ret = at + len;
            return 0;
        }
        if (f->len == f->bytes) {
            return rc;
        }
        if (f->len == MAX_PICKLE_BYTES) {
            return error_text(e, EFBIG, "a pickle of more than %llu bytes",
                              (unsigned long long)MAX_PICKLE_BYTES);
        }
        if (e) {
            *e = (struct error){0};
        }
        rc = read_more(f, e);
        if (rc < 0) {
            return rc;
        }
    }
}

/* --- storages --- */

struct storages {
    struct torch_storage *items; /* owned */
    size_t n, room;
};

static int add_storage(void *arg, const struct torch_storage *one)
{
    struct storages *s = arg;

    if (s->n == MAX_STORAGES) {
        return -EFBIG;
    }
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct torch_storage *fresh = reallocarray(s->items, room, sizeof(*fresh));

        if (!fresh) {
            return -ENOMEM;
        }
        s->items = fresh;
        s->room = room;
    }
    s->items[s->n++] = *one;
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct torch_storage *x = a, *y = b;
    size_t n = x->len < y->len ? x->len : y->len;
    int rc = memcmp(x->key, y->key, n);

    return rc ? rc : x->len < y->len ? -1 : x->len > y->len;
}

/* --- their bytes --- */

struct walk {
    const struct file *file;
    const struct storages *storages;
    uint64_t at;
    bool is_known; /* so far: where the next one begins */
    struct torch_old *found; /* what is listed; NULL: nothing is */
    struct error *e;
};

/* Keys lie in f->data, which is handed over with them. */
static int note_place(struct walk *w, const struct torch_storage *key, uint64_t end)
{
    struct torch_old *f = w->found;

    if (!f) {
        return 0;
    }
    if ((f->n_storages & (f->n_storages - 1)) == 0) { /* room is for a power of two of them */
        size_t room = f->n_storages ? 2 * f->n_storages : 1;
        struct torch_old_storage *fresh = reallocarray(f->storages, room, sizeof(*fresh));

        if (!fresh) {
            return error_set(w->e, ENOMEM, "list storages");
        }
        f->storages = fresh;
    }
    f->storages[f->n_storages++] = (struct torch_old_storage){key->key, key->len, w->at, end};
    return 0;
}

static int walk_one(void *arg, const struct pickle_value *v)
{
    struct walk *w = arg;
    struct torch_storage key = {.key = v->text, .len = v->len};
    const struct torch_storage *s;
    uint8_t bytes[8];
    uint64_t n = 0, end;
    int rc;

    if (!v->text || !w->is_known) {
        return 0;
    }
    s = w->storages->n ? bsearch(&key, w->storages->items, w->storages->n,
                                 sizeof(key), by_key) : NULL;
    if (!s || s->element == 0) {
        w->is_known = false;
        return 0;
    }
    if (sizeof(bytes) > w->file->bytes - w->at) {
        return error_text(w->e, ERR_FORMAT, "it is cut: %llu bytes, and a storage "
                          "begins at %llu", (unsigned long long)w->file->bytes,
                          (unsigned long long)w->at);
    }
    rc = io_read_all(w->file->io, w->file->fd, bytes, sizeof(bytes), w->at);
    if (rc < 0) {
        return error_set(w->e, -rc, "read it");
    }
    for (size_t i = sizeof(bytes); i-- > 0;) {
        n = n << 8 | bytes[i];
    }
    w->at += sizeof(bytes);
    if (n > (w->file->bytes - w->at) / s->element) {
        return error_text(w->e, ERR_FORMAT, "it is cut: %llu bytes, and a storage "
                          "at %llu has %llu elements of %u",
                          (unsigned long long)w->file->bytes,
                          (unsigned long long)w->at, (unsigned long long)n,
                          s->element);
    }
    end = w->at + n * s->element;
    rc = note_place(w, &key, end);
    w->at = end;
    return rc;
}

static int check_storages(const struct file *f, const size_t ends[N_PICKLES],
                          struct torch_old *found, struct error *e)
{
    struct storages s = {0};
    struct walk w = {.file = f, .storages = &s, .at = ends[4], .is_known = true,
                     .found = found, .e = e};
    int rc = torch_storages(f->data + ends[2], ends[3] - ends[2], add_storage, &s, e);

    if (rc == -EFBIG) {
        w.is_known = false;
        rc = 0;
    }
    if (rc == 0 && s.n) {
        qsort(s.items, s.n, sizeof(*s.items), by_key);
    }
    if (rc == 0) {
        rc = pickle_values(f->data + ends[3], ends[4] - ends[3], walk_one, &w, e);
    }
    free(s.items);
    if (rc == 0 && w.is_known && w.at != f->bytes) {
        rc = error_text(e, ERR_FORMAT, "too long a file: expected %llu bytes, found "
                        "%llu", (unsigned long long)w.at,
                        (unsigned long long)f->bytes);
    }
    return rc == 0 && found && !w.is_known
               ? error_text(e, ENOTSUP, "it has storages of a type that is not known")
               : rc;
}

/* --- files --- */

static int find_pickles(struct file *f, size_t ends[N_PICKLES], struct error *e)
{
    int rc = 0;

    for (size_t i = 0; i < N_PICKLES && rc == 0; i++) {
        rc = find_end(f, i ? ends[i - 1] : 0, &ends[i], e);
    }
    return rc;
}

static int check_torch(struct file *f, struct error *e)
{
    size_t ends[N_PICKLES] = {0};
    int rc = find_pickles(f, ends, e);

    return rc < 0 ? rc : check_storages(f, ends, NULL, e);
}

/* Its first pickle is the number, of whichever protocol. */
static bool has_magic(const struct file *f)
{
    struct pickle_op op = {0};
    size_t at = 0;
    int rc = 0;

    do {
        rc = pickle_next(f->data, f->len, &at, &op, NULL);
    } while (rc == 0 && (op.op == 0x80 || op.op == 0x95)); /* PROTO, FRAME */
    if (rc < 0) {
        return false;
    }
    return op.op == 'L' ? op.len == strlen(magic_line) - 1 &&
                              memcmp(op.argument, magic_line + 1, op.len) == 0
                        : op.op == magic[0] && op.len == sizeof(magic) - 1 &&
                              memcmp(op.argument, magic + 1, op.len) == 0;
}

int torch_old_check(struct io *io, int fd, uint64_t bytes, struct error *e)
{
    struct file f = {.io = io, .fd = fd, .bytes = bytes};
    int rc = read_more(&f, e);
    size_t end = 0;

    if (rc == 0 && has_magic(&f)) {
        rc = check_torch(&f, e);
    } else if (rc == 0) {
        rc = find_end(&f, 0, &end, e);
    }
    free(f.data);
    return rc == -EFBIG ? 0 : rc;
}

void torch_old_release(struct torch_old *f)
{
    free(f->data);
    free(f->storages);
    *f = (struct torch_old){0};
}

static int compare_places(const void *a, const void *b)
{
    const struct torch_old_storage *x = a, *y = b;
    struct torch_storage one = {.key = x->key, .len = x->len}, two = {.key = y->key, .len = y->len};

    return by_key(&one, &two);
}

int torch_old_open(struct io *io, int fd, uint64_t bytes, struct torch_old *ret, struct error *e)
{
    struct file f = {.io = io, .fd = fd, .bytes = bytes};
    _torch_old_ struct torch_old found = {0};
    size_t ends[N_PICKLES] = {0};
    int rc = read_more(&f, e);

    if (rc == 0 && !has_magic(&f)) {
        rc = error_text(e, ENOTSUP, "it is a pickle, and none of torch.save");
    }
    rc = rc < 0 ? rc : find_pickles(&f, ends, e);
    rc = rc < 0 ? rc : check_storages(&f, ends, &found, e);
    found.data = f.data;
    if (rc == 0) {
        found.pickle_at = ends[2];
        found.pickle_len = ends[3] - ends[2];
        if (found.n_storages) {
            qsort(found.storages, found.n_storages, sizeof(*found.storages), compare_places);
        }
        *ret = found;
        found = (struct torch_old){0};
    }
    return rc;
}

const struct torch_old_storage *torch_old_storage(const struct torch_old *f, const char *key,
                                                  size_t len)
{
    const struct torch_old_storage want = {.key = key, .len = len};

    return f->n_storages ? bsearch(&want, f->storages, f->n_storages, sizeof(want),
                                   compare_places) : NULL;
}
