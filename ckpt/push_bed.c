/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/push_bed.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "ckpt/tree.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEP = 10 };

/* --- the store --- */

static int fail(enum push_call call, struct push_object *o, const char *key, size_t number,
                struct error *e)
{
    struct push_fault *f = &push_bed.fault;

    if (f->call != call || f->n == 0 || !str_ends(key, f->end) ||
        (call == PUSH_PART && number != f->number)) {
        return 0;
    }
    f->n--;
    if (push_bed.meanwhile) {
        push_bed.meanwhile(o);
    }
    return f->rc < 0 ? error_text(e, -f->rc, "%s: no", key) : 0;
}

struct push_object *push_bed_object(struct push_bed *b, const char *key)
{
    for (size_t i = 0; i < PUSH_MAX_KEYS; i++) {
        struct push_object *o = &b->objects[i];

        if (!o->key[0]) {
            snprintf(o->key, sizeof(o->key), "%s", key);
        }
        if (strcmp(o->key, key) == 0) {
            return o;
        }
    }
    bail_out("too many keys");
}

static void write_down(const struct push_object *o)
{
    if (push_bed.n_log < PUSH_MAX_CALLS) {
        push_bed.log_of[push_bed.n_log++] = o->key;
    }
}

unsigned push_bed_n_sent(const struct push_bed *b, const char *end)
{
    unsigned n = 0;

    for (size_t i = 0; i < b->n_log; i++) {
        n += str_ends(b->log_of[i], end);
    }
    return n;
}

void push_bed_drop_parts(struct push_object *o)
{
    for (size_t i = 0; i < PUSH_MAX_PARTS; i++) {
        free(o->data[i]);
        o->data[i] = NULL;
        o->parts[i] = (struct s3_part){0};
    }
    o->has_upload = false;
}

void push_bed_put(struct push_bed *b, const char *key, const void *data, size_t len,
                  bool is_more)
{
    _close_ int fd = -1;

    if (!is_more) {
        tree_unlink(b->store_dir, key);
    }
    fd = is_more ? openat(b->store_dir, key, O_WRONLY | O_APPEND | O_CLOEXEC)
                 : tree_create_file(b->store_dir, key);
    if (fd < 0 || fs_write_all(fd, data, len) < 0) {
        bail_out("write %s", key);
    }
}

int s3_head(struct s3 *s, const char *key, struct s3_facts *ret, struct error *e)
{
    struct push_object *o = push_bed_object(&push_bed, key);
    struct stat st;
    int rc = fail(PUSH_HEAD, o, key, 0, e);

    (void)s;
    if (rc < 0) {
        return rc;
    }
    if (fstatat(push_bed.store_dir, key, &st, 0) < 0) {
        return error_text(e, ENOENT, "%s is not there", key);
    }
    *ret = (struct s3_facts){.bytes = (uint64_t)st.st_size};
    snprintf(ret->digest, sizeof(ret->digest), "%s", o->digest);
    return 0;
}

int s3_put(struct s3 *s, const char *key, const void *data, size_t len,
           const char *digest, bool is_new, struct error *e)
{
    struct push_object *o = push_bed_object(&push_bed, key);
    int rc = fail(PUSH_PUT, o, key, 0, e);

    (void)s;
    if (rc < 0) {
        return rc;
    }
    if (is_new && !push_bed.is_plain && faccessat(push_bed.store_dir, key, F_OK, 0) == 0) {
        return error_text(e, EEXIST, "%s is there", key);
    }
    write_down(o);
    push_bed_put(&push_bed, key, data, len, false);
    snprintf(o->digest, sizeof(o->digest), "%s", digest);
    return 0;
}

int s3_upload_begin(struct s3 *s, const char *key, const char *digest,
                    struct s3_part *parts, size_t n_parts, char **ret_id,
                    struct error *e)
{
    struct push_object *o = push_bed_object(&push_bed, key);
    int rc = fail(PUSH_BEGIN, o, key, 0, e);

    (void)s;
    if (rc < 0) {
        return rc;
    }
    snprintf(o->digest, sizeof(o->digest), "%s", o->has_upload ? o->digest : digest);
    o->has_upload = true;
    memcpy(parts, o->parts, n_parts * sizeof(*parts));
    *ret_id = strdup("id");
    return 0;
}

bool s3_part_matches(const struct s3_part *part, const void *data, size_t len)
{
    char etag[32];

    snprintf(etag, sizeof(etag), "%llx", (unsigned long long)digest_short_of(data, len));
    return part->is_there && part->bytes == len && strcmp(part->etag, etag) == 0;
}

int s3_upload_part(struct s3 *s, const char *key, const char *id, size_t number,
                   const void *data, size_t len, struct s3_part *ret,
                   struct error *e)
{
    struct push_object *o = push_bed_object(&push_bed, key);
    int rc = fail(PUSH_PART, o, key, number, e);

    (void)s, (void)id;
    if (rc < 0) {
        return rc;
    }
    if (number < 1 || number > PUSH_MAX_PARTS || !o->has_upload) {
        return error_text(e, ENOENT, "%s has no such upload", key);
    }
    write_down(o);
    *ret = (struct s3_part){.is_there = true, .bytes = len};
    snprintf(ret->etag, sizeof(ret->etag), "%llx",
             (unsigned long long)digest_short_of(data, len));
    o->parts[number - 1] = *ret;
    free(o->data[number - 1]);
    o->data[number - 1] = malloc(len);
    memcpy(o->data[number - 1], data, len);
    return 0;
}

void push_bed_make_object(struct push_object *o)
{
    for (size_t i = 0; i < PUSH_MAX_PARTS && o->parts[i].is_there; i++) {
        push_bed_put(&push_bed, o->key, o->data[i], o->parts[i].bytes, i > 0);
    }
    push_bed_drop_parts(o);
}

int s3_upload_complete(struct s3 *s, const char *key, const char *id,
                       const struct s3_part *parts, size_t n_parts,
                       struct error *e)
{
    struct push_object *o = push_bed_object(&push_bed, key);
    int rc = fail(PUSH_COMPLETE, o, key, 0, e);

    (void)s, (void)id;
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < n_parts; i++) {
        if (!o->parts[i].is_there || strcmp(o->parts[i].etag, parts[i].etag) != 0) {
            return error_text(e, EINVAL, "%s: part %zu is not that one", key, i + 1);
        }
    }
    push_bed_make_object(o);
    return 0;
}

int __real_s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e);
int __wrap_s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e);
int __real_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e);
int __wrap_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e);

int __wrap_s3_get(struct s3 *s, const char *key, size_t max, struct buf *to, struct error *e)
{
    int rc = fail(PUSH_GET, NULL, key, 0, e);

    return rc < 0 ? rc : __real_s3_get(s, key, max, to, e);
}

int __wrap_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e)
{
    int rc = fail(PUSH_LIST, NULL, prefix, 0, e);

    return rc < 0 ? rc : __real_s3_list(s, prefix, is_flat, ret, e);
}

static void note_progress(void *arg, uint64_t now, uint64_t all)
{
    (void)arg;
    push_bed.done = now;
    push_bed.of = all;
}

/* --- the bed --- */

static void put_files(int from)
{
    _close_ int dir = -1, a = -1, b = -1;

    if (mkdirat(from, PUSH_OTHER, 0700) < 0) {
        bail_out("mkdir %s", PUSH_OTHER);
    }
    dir = openat(from, PUSH_OTHER, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    a = openat(dir, "a.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    b = openat(dir, "b.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fs_write_all(a, "begin", 5) < 0 || ftruncate(a, DIGEST_BLOCK_BYTES) < 0 ||
        pwrite(a, "end", 3, DIGEST_BLOCK_BYTES) != 3 || fs_write_all(b, "short", 5) < 0) {
        bail_out("no files of %s", PUSH_OTHER);
    }
}

static void pack(struct push_bed *b, enum found_kind kind, const char *name, struct parcel *ret)
{
    struct found f = {.kind = kind};

    snprintf(f.name, sizeof(f.name), "%s", name);
    if (parcel_pack(io_system(), b->from, &f, ret, NULL) < 0) {
        bail_out("no %s", name);
    }
}

void push_bed_open(struct push_bed *b)
{
    char name[STEP_NAME_BYTES], path[80];

    *b = (struct push_bed){.path = "/tmp/push.XXXXXX"};
    if (!mkdtemp(b->path)) {
        bail_out("mkdtemp");
    }
    snprintf(path, sizeof(path), "%s/from", b->path);
    mkdir(path, 0700);
    b->from = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    put_files(b->from);
    bed_name(STEP, STEP, name);
    snprintf(path, sizeof(path), "%s/store", b->path);
    if (!store_bed_open(path, &b->st) ||
        bed_save(io_system(), b->from, STEP, STEP, NULL) < 0) {
        bail_out("no store in %s", b->path);
    }
    b->store_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    b->st.progress = note_progress;
    pack(b, FOUND_MUSTER, name, &b->own);
    pack(b, FOUND_TRAINER, PUSH_OTHER, &b->others);
}

void push_bed_close(struct push_bed *b)
{
    for (size_t i = 0; i < PUSH_MAX_KEYS; i++) {
        push_bed_drop_parts(&b->objects[i]);
        b->objects[i] = (struct push_object){0};
    }
    parcel_release(&b->own);
    parcel_release(&b->others);
    store_bed_close(&b->st);
    close(b->from);
    close(b->store_dir);
    fs_remove_tree(b->path, NULL);
}

int push_bed_push(struct push_bed *b, const struct parcel *p, struct error *e)
{
    int rc;

    *e = (struct error){0};
    b->n_log = 0;
    b->done = b->of = 0;
    rc = store_push(&b->st, b->from, p, &b->facts, e);
    b->fault.n = 0;
    b->meanwhile = NULL;
    return rc;
}

void push_bed_fail(struct push_bed *b, enum push_call call, const char *end, size_t number,
                   int rc, unsigned n)
{
    b->fault = (struct push_fault){.call = call, .end = end, .number = number, .rc = rc, .n = n};
}

bool push_bed_has_seal(const struct push_bed *b, const struct parcel *p)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", p->name, parcel_seal_name(p));
    return faccessat(b->store_dir, path, F_OK, 0) == 0;
}

bool push_bed_is_whole(const struct push_bed *b, const struct parcel *p)
{
    return push_bed_has_seal(b, p) && store_check(&b->st, p, true, NULL) == 0;
}

const char *push_bed_key(struct push_bed *b, const char *file)
{
    snprintf(b->key, sizeof(b->key), "%s/%s", b->others.name, file);
    return b->key;
}
