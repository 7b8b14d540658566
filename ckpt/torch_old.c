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

struct storage {
    const char *key; /* in the pickle's bytes */
    size_t len;
    unsigned element; /* bytes; 0: not known */
};

struct storages {
    struct storage *items; /* owned */
    size_t n, room;
    int after; /* how many values ago the word `storage` came */
    struct storage now;
};

unsigned torch_old_element(const struct pickle_value *v)
{
    static const struct {
        const char *name;
        unsigned bytes;
    } classes[] = {
        {"DoubleStorage", 8}, {"FloatStorage", 4}, {"HalfStorage", 2},
        {"BFloat16Storage", 2}, {"LongStorage", 8}, {"IntStorage", 4},
        {"ShortStorage", 2}, {"CharStorage", 1}, {"ByteStorage", 1},
        {"BoolStorage", 1}, {"UntypedStorage", 1}, {"ComplexFloatStorage", 8},
        {"ComplexDoubleStorage", 16}, {"QInt8Storage", 1}, {"QUInt8Storage", 1},
        {"QInt32Storage", 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
        if (pickle_is_text(v, classes[i].name)) {
            return classes[i].bytes;
        }
    }
    return 0;
}

static int add_storage(struct storages *s)
{
    if (s->n == MAX_STORAGES) {
        return -EFBIG;
    }
    if (s->n == s->room) {
        size_t room = s->room ? 2 * s->room : 64;
        struct storage *fresh = reallocarray(s->items, room, sizeof(*fresh));

        if (!fresh) {
            return -ENOMEM;
        }
        s->items = fresh;
        s->room = room;
    }
    s->items[s->n++] = s->now;
    return 0;
}

/* The part of `v` from the next place on where `begin` is, up to `end`; and `v` goes
 * on behind that. */
static bool take_between(struct pickle_value *v, const char *begin, const char *end,
                         struct pickle_value *ret)
{
    const char *from = memmem(v->text, v->len, begin, strlen(begin));
    size_t at = from ? (size_t)(from - v->text) + strlen(begin) : 0;
    const char *to = from ? memmem(v->text + at, v->len - at, end, strlen(end)) : NULL;

    if (!to) {
        return false;
    }
    *ret = (struct pickle_value){.text = v->text + at,
                                 .len = (size_t)(to - v->text) - at};
    v->len -= (size_t)(to - v->text);
    v->text = to;
    return true;
}

/* The same in one line, of protocol 0:
 *   ('storage', <class 'torch.FloatStorage'>, '7', 'cpu', 2, None) */
static int take_line(struct storages *s, struct pickle_value v)
{
    struct pickle_value name, key;

    if (!take_between(&v, "<class 'torch.", "'>", &name) ||
        !take_between(&v, ", '", "'", &key)) {
        return 0;
    }
    s->now = (struct storage){.key = key.text, .len = key.len,
                              .element = torch_old_element(&name)};
    return add_storage(s);
}

/* ('storage', class, key, ...). One that is shared comes more than once. By protocols
 * from 4 on a class is three values: module, name, and what the two make. */
static int take_persistent(void *arg, const struct pickle_value *v)
{
    static const char line[] = "('storage', ";
    struct storages *s = arg;

    if (v->text && v->len > strlen(line) && memcmp(v->text, line, strlen(line)) == 0) {
        s->after = 3;
        return take_line(s, *v);
    }
    if ((s->after == 0 && pickle_is_text(v, "torch")) ||
        (s->after == 1 && torch_old_element(v) > 0)) {
        return 0;
    }
    s->after = pickle_is_text(v, "storage") ? 0 : s->after + 1;
    if (s->after == 1) {
        s->now = (struct storage){.element = torch_old_element(v)};
    } else if (s->after == 2 && v->text) {
        s->now.key = v->text;
        s->now.len = v->len;
        return add_storage(s);
    }
    return 0;
}

static int by_key(const void *a, const void *b)
{
    const struct storage *x = a, *y = b;
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
    struct error *e;
};

static int walk_one(void *arg, const struct pickle_value *v)
{
    struct walk *w = arg;
    struct storage key = {.key = v->text, .len = v->len};
    const struct storage *s;
    uint8_t bytes[8];
    uint64_t n = 0;
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
    w->at += n * s->element;
    return 0;
}

static int check_storages(const struct file *f, const size_t ends[N_PICKLES],
                          struct error *e)
{
    struct storages s = {.after = 3};
    struct walk w = {.file = f, .storages = &s, .at = ends[4], .is_known = true,
                     .e = e};
    int rc = pickle_values(f->data + ends[2], ends[3] - ends[2], take_persistent,
                           &s, e);

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
    return rc;
}

/* --- files --- */

static int check_torch(struct file *f, struct error *e)
{
    size_t ends[N_PICKLES] = {0};
    int rc = 0;

    for (size_t i = 0; i < N_PICKLES && rc == 0; i++) {
        rc = find_end(f, i ? ends[i - 1] : 0, &ends[i], e);
    }
    return rc < 0 ? rc : check_storages(f, ends, e);
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
