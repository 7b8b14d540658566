/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/store_priv.h"

#include "ckpt/commit.h"
#include "ckpt/manifest.h"
#include "ckpt/metric.h"
#include "ckpt/step.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* --- names --- */

int store_key(const struct store *st, const char *name, const char *path,
              struct buf *to, struct error *e)
{
    buf_clear(to);
    buf_printf(to, "%s%s%s/%s", st->prefix, st->prefix[0] ? "/" : "", name, path);
    if (to->failed) {
        return error_set(e, ENOMEM, "%s/%s", name, path);
    }
    if (to->len > S3_KEY_MAX_BYTES) {
        return error_text(e, ENAMETOOLONG, "%s/%s: with its prefix a key of %zu "
                          "bytes, and stores take %d", name, path, to->len,
                          S3_KEY_MAX_BYTES);
    }
    return 0;
}

static void stop(void *s3)
{
    s3_stop(s3);
}

int store_crowd(const struct store *st,
                int (*work)(void *arg, size_t i, struct error *e), void *arg,
                size_t n, struct error *e)
{
    struct crowd crowd = {.n_threads = st->n_threads, .work = work,
                          .arg = arg, .stop = stop, .stop_arg = st->s3};
    int rc = crowd_run(&crowd, n, e);

    s3_go_on(st->s3);
    return rc;
}

void store_progress(const struct store *st, atomic_uint_fast64_t *done,
                    uint64_t more, uint64_t of)
{
    uint64_t now = atomic_fetch_add(done, more) + more;

    if (st->progress) {
        st->progress(st->arg, now, of);
    }
}

void store_count(const struct store *st, const char *doing, atomic_uint_fast64_t *done,
                 uint64_t of)
{
    uint64_t now = atomic_fetch_add(done, 1) + 1;

    if (st->count) {
        st->count(st->arg, doing, now, of);
    }
}

/* --- what is there --- */

static int by_key(const void *a, const void *b)
{
    return strcmp(((const struct s3_object *)a)->key,
                  ((const struct s3_object *)b)->key);
}

int store_there(const struct store *st, const char *name, struct store_there *ret,
                struct error *e)
{
    _buf_ struct buf prefix = {0};
    int rc = store_key(st, name, "", &prefix, e);

    ret->skip = prefix.len;
    rc = rc < 0 ? rc
                : s3_list(st->s3, buf_str(&prefix), false, &ret->listing, e);
    if (rc == 0 && ret->listing.n) {
        qsort(ret->listing.objects, ret->listing.n,
              sizeof(*ret->listing.objects), by_key);
    }
    return rc;
}

void store_there_release(struct store_there *t)
{
    s3_listing_release(&t->listing);
}

const struct s3_object *store_find(const struct store_there *t, const char *path)
{
    size_t low = 0, high = t->listing.n;

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct s3_object *o = &t->listing.objects[middle];
        int order = strcmp(path, strlen(o->key) >= t->skip ? o->key + t->skip
                                                           : "");

        if (order == 0) {
            return o;
        }
        if (order < 0) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    return NULL;
}

/* --- seals --- */

static int get(const struct store *st, const char *name, const char *path,
               size_t max, struct buf *to, struct error *e)
{
    _buf_ struct buf key = {0};
    int rc = store_key(st, name, path, &key, e);

    return rc < 0 ? rc : s3_get(st->s3, buf_str(&key), max, to, e);
}

static int open_step(const struct store *st, const char *name,
                     struct parcel *ret, struct error *e)
{
    _buf_ struct buf commit = {0}, manifest = {0};
    struct commit c = {0};
    int rc = get(st, name, PARCEL_COMMIT, COMMIT_MAX_BYTES, &commit, e);

    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "%s was never finished: no COMMIT", name);
    }
    rc = rc < 0 ? rc : commit_decode(commit.data, commit.len, &c, e);
    rc = rc < 0 ? rc
                : get(st, name, PARCEL_MANIFEST, MANIFEST_MAX_BYTES, &manifest, e);
    if (rc == -ENOENT) {
        return error_text(e, ERR_FORMAT, "%s/manifest.json is missing", name);
    }
    return rc < 0 ? rc
                  : parcel_from_step(name, commit.data, commit.len,
                                     buf_str(&manifest), manifest.len, ret, e);
}

int store_open(const struct store *st, const char *name, struct parcel *ret,
               struct error *e)
{
    _buf_ struct buf seal = {0};
    uint64_t step;
    int rc;

    if (step_parse_name(name, &step)) {
        return open_step(st, name, ret, e);
    }
    rc = get(st, name, PARCEL_COPY, MANIFEST_MAX_BYTES, &seal, e);
    if (rc == -ENOENT) {
        return error_text(e, ENOENT, "%s was never finished: no " PARCEL_COPY,
                          name);
    }
    return rc < 0 ? rc : parcel_unseal(seal.data, seal.len, name, ret, e);
}

/* --- checks --- */

static int check_lengths(const struct parcel *p, const struct store_there *there,
                         struct error *e)
{
    for (size_t i = 0; i < p->n; i++) {
        const struct parcel_item *item = &p->items[i];
        const struct s3_object *o = store_find(there, item->path);

        if (!o) {
            return error_text(e, ERR_FORMAT, "%s/%s is missing", p->name,
                              item->path);
        }
        if (o->bytes != item->bytes) {
            return error_text(e, ERR_FORMAT, "%s/%s is %s: expected %llu bytes, "
                              "found %llu", p->name, item->path,
                              o->bytes < item->bytes ? "cut" : "too long",
                              (unsigned long long)item->bytes,
                              (unsigned long long)o->bytes);
        }
    }
    return 0;
}

/* The first that has come as a whole, with other bytes. */
static struct piece_file *find_damaged(struct pieces *pieces)
{
    for (size_t i = 0; i < pieces->n_files; i++) {
        struct piece_file *f = &pieces->files[i];

        if (atomic_load(&f->n_left) == 0 && !pieces_are_right(f)) {
            return f;
        }
    }
    return NULL;
}

/* Of muster's own the index tells whose bytes they are, as in a directory: it is fetched
 * for that. Where it cannot be `e` stays as it is. */
static void blame(const struct store *st, const struct parcel *p,
                  const struct piece_file *f, struct error *e)
{
    struct step s = {0};
    struct io *io;

    if (!f || p->found.kind != FOUND_MUSTER || store_io_open(st, p, &io, NULL) < 0) {
        return;
    }
    if (step_open(io, 0, p->found.name, &s, NULL) == 0) {
        for (size_t i = 0; i < s.manifest.n_files; i++) {
            if (strcmp(s.manifest.files[i].name, f->item->path) == 0) {
                step_blame(&s, i, f->blocks, digest_n_blocks(f->item->bytes), e);
            }
        }
        step_close(&s);
    }
    store_io_close(io);
}

static int check_bytes(const struct store *st, const struct parcel *p,
                       struct error *e)
{
    _pieces_ struct pieces pieces = {0};
    struct store_fetch f = {.st = st, .p = p, .pieces = &pieces};
    int rc;

    if (pieces_create(p, st->part_bytes, SIZE_MAX, &pieces) < 0) {
        return error_set(e, ENOMEM, "verify %s", p->name);
    }
    rc = store_fetch(&f, e);
    if (rc == -ERR_FORMAT) {
        blame(st, p, find_damaged(&pieces), e);
    }
    return rc;
}

int store_check(const struct store *st, const struct parcel *p, bool is_deep,
                struct error *e)
{
    __attribute__((cleanup(store_there_release))) struct store_there there = {0};
    int rc = store_there(st, p->name, &there, e);

    rc = rc < 0 ? rc : check_lengths(p, &there, e);
    return rc < 0 || !is_deep ? rc : check_bytes(st, p, e);
}

/* --- removing --- */

struct removal {
    const struct store *st;
    const struct s3_listing *listing;
    atomic_uint_fast64_t done;
};

static int remove_one(void *arg, size_t i, struct error *e)
{
    struct removal *r = arg;
    int rc = s3_delete(r->st->s3, r->listing->objects[i].key, e);

    store_count(r->st, "removing files", &r->done, r->listing->n);
    return rc;
}

int store_remove(const struct store *st, const char *name, struct error *e)
{
    static const char *const seals[] = {PARCEL_COMMIT, PARCEL_COPY};
    __attribute__((cleanup(store_there_release))) struct store_there there = {0};
    struct removal r = {.st = st, .listing = &there.listing};
    int rc = store_there(st, name, &there, e);

    for (size_t i = 0; i < ARRAY_SIZE(seals) && rc == 0; i++) {
        const struct s3_object *seal = store_find(&there, seals[i]);

        rc = seal ? s3_delete(st->s3, seal->key, e) : 0;
    }
    return rc < 0 ? rc : store_crowd(st, remove_one, &r, there.listing.n, e);
}

int store_metric(const struct store *st, const struct store_entry *entry,
                 const char *name, double *ret, struct error *e)
{
    const char *file = metric_file(entry->found.kind);
    _buf_ struct buf text = {0};
    int rc = file ? get(st, entry->name, file, METRIC_MAX_FILE_BYTES, &text, e) : 0;

    if (!file || rc < 0) {
        return rc;
    }
    rc = metric_parse(entry->found.kind, buf_str(&text), text.len, name, ret);
    return rc < 0 ? metric_fail(rc, entry->name, file, e) : rc;
}

/* --- lists --- */

struct looking {
    const struct store *st;
    struct store_entry *entries;
    size_t n;
    atomic_uint_fast64_t done;
};

bool store_is_known(int rc)
{
    return rc == 0 || rc == -ENOENT || rc == -ERR_FORMAT;
}

/* What was pushed as NAME is called NAME-1a2b3c4d: how long NAME is. */
static size_t name_bytes(const char *name)
{
    enum { DIGITS = 8 };
    size_t len = strlen(name);

    return len > DIGITS + 1 && name[len - DIGITS - 1] == '-' &&
                   strspn(name + len - DIGITS, "0123456789abcdef") == DIGITS
               ? len - DIGITS - 1 : len;
}

/* Where the seal of what was pushed does not say so its name has to: without a word for a
 * step among them others would be taken for one series. */
static bool says_step(const char *name)
{
    struct found f = {.kind = FOUND_TORCH, .has_step = true};
    size_t len = name_bytes(name);

    str_copy(f.name, len < sizeof(f.name) ? len + 1 : sizeof(f.name), name);
    found_recall(&f);
    return f.is_step;
}

/* As the name of what was pushed: of muster's own, or with a digest behind it. */
static bool is_pushed_name(const char *name)
{
    uint64_t step;

    return step_parse_name(name, &step) || name_bytes(name) < strlen(name);
}

/* Whether that is a prefix above what was pushed, as of several runs, and so nothing that was
 * begun. */
static bool is_above(const struct store *st, const char *name)
{
    _s3_listing_ struct s3_listing listing = {0};
    _buf_ struct buf prefix = {0};

    if (is_pushed_name(name) || store_key(st, name, "", &prefix, NULL) < 0 ||
        s3_list(st->s3, buf_str(&prefix), true, &listing, NULL) < 0) {
        return false;
    }
    for (size_t i = 0; i < listing.prefixes.n; i++) {
        char *text = listing.prefixes.items[i] + prefix.len;
        size_t len = strlen(text);

        text[len > 0 ? len - 1 : 0] = '\0'; /* the slash */
        if (is_pushed_name(text)) {
            return true;
        }
    }
    return false;
}

static int look_at(void *arg, size_t i, struct error *e)
{
    struct looking *l = arg;
    struct store_entry *entry = &l->entries[i];
    _parcel_ struct parcel p = {0};

    (void)e;
    entry->found.has_step = step_parse_name(entry->name, &entry->found.step);
    entry->found.is_step = entry->found.has_step || says_step(entry->name);
    entry->rc = store_open(l->st, entry->name, &p, &entry->why);
    if (entry->rc == 0) {
        entry->has_seal = true;
        entry->found = p.found;
        entry->bytes = p.bytes;
        entry->n_files = p.n;
        entry->rc = store_check(l->st, &p, false, &entry->why);
    } else if (entry->rc == -ENOENT) {
        entry->is_above = is_above(l->st, entry->name);
    }
    store_count(l->st, "looking at checkpoints", &l->done, l->n);
    /* Refused here is refused everywhere. */
    return entry->rc == -EACCES || entry->rc == -ENXIO
               ? error_text(e, -entry->rc, "%s", entry->why.text)
               : 0;
}

/* Where no step is known, its kind may not be either. */
static bool is_own(const struct store_entry *entry)
{
    return entry->found.has_step && entry->found.kind == FOUND_MUSTER;
}

/* By what they were pushed as. Of two of one name that with more files has what the other
 * had, as where a script had not put its last file there: the digests say nothing of that. */
static int compare_pushed(const struct store_entry *x, const struct store_entry *y)
{
    size_t n_x = name_bytes(x->name), n_y = name_bytes(y->name);
    int rc = strncmp(x->name, y->name, n_x < n_y ? n_x : n_y);

    rc = rc ? rc : (n_x > n_y) - (n_x < n_y);
    rc = rc ? rc : (y->n_files > x->n_files) - (y->n_files < x->n_files);
    return rc ? rc : strcmp(x->name, y->name);
}

int store_newest_first(const void *a, const void *b)
{
    const struct store_entry *x = a, *y = b;

    if (x->found.has_step != y->found.has_step) {
        return x->found.has_step ? -1 : 1;
    }
    if (x->found.step != y->found.step) {
        return x->found.step > y->found.step ? -1 : 1;
    }
    if (is_own(x) != is_own(y)) {
        return is_own(x) ? -1 : 1;
    }
    return is_own(x) ? step_compare(x->found.token, x->name, y->found.token, y->name)
                     : compare_pushed(x, y);
}

static int check_deep(const struct store *st, struct store_entry *entry)
{
    _parcel_ struct parcel p = {0};

    entry->rc = store_open(st, entry->name, &p, &entry->why);
    if (entry->rc == 0) {
        entry->rc = store_check(st, &p, true, &entry->why);
    }
    return entry->rc;
}

/* "PREFIX/NAME/" as it comes from the store. */
static bool take_name(const struct store *st, const char *text, char *to)
{
    size_t skip = st->prefix[0] ? strlen(st->prefix) + 1 : 0;
    size_t len = strlen(text);

    if (len <= skip + 1 || len - skip - 1 >= PARCEL_NAME_BYTES) {
        return false;
    }
    memcpy(to, text + skip, len - skip - 1);
    to[len - skip - 1] = '\0';
    return parcel_is_path(to) && !strchr(to, '/');
}

static size_t drop_above(struct store_entry *entries, size_t n)
{
    size_t n_left = 0;

    for (size_t i = 0; i < n; i++) {
        if (!entries[i].is_above && n_left != i) {
            entries[n_left] = entries[i];
        }
        n_left += !entries[i].is_above;
    }
    return n_left;
}

int store_list(const struct store *st, bool is_deep, struct store_entry **ret,
               size_t *ret_n, struct error *e)
{
    _s3_listing_ struct s3_listing listing = {0};
    _buf_ struct buf prefix = {0};
    _free_ struct store_entry *entries = NULL;
    struct looking looking = {.st = st};
    size_t n = 0;
    int rc;

    buf_printf(&prefix, "%s%s", st->prefix, st->prefix[0] ? "/" : "");
    rc = prefix.failed ? error_set(e, ENOMEM, "list")
                       : s3_list(st->s3, buf_str(&prefix), true, &listing, e);
    entries = rc < 0 ? NULL : calloc(listing.prefixes.n + 1, sizeof(*entries));
    if (!entries) {
        return rc < 0 ? rc : error_set(e, ENOMEM, "list");
    }
    for (size_t i = 0; i < listing.prefixes.n; i++) {
        n += take_name(st, listing.prefixes.items[i], entries[n].name);
    }
    looking.entries = entries;
    looking.n = n;
    rc = store_crowd(st, look_at, &looking, n, e);
    for (size_t i = 0; i < n && rc == 0 && is_deep; i++) {
        if (entries[i].rc == 0) {
            check_deep(st, &entries[i]);
        }
    }
    if (rc == 0) {
        n = drop_above(entries, n);
        qsort(entries, n, sizeof(*entries), store_newest_first);
        *ret = take_ptr(&entries);
        *ret_n = n;
    }
    return rc;
}
