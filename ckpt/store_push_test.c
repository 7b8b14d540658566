/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A push to a store that is a directory. Nothing is sealed before all is there and right;
 * what is there is not sent again, whoever has sent it; what others end is begun anew; and
 * nothing is written over a seal that says otherwise.
 */
#include <config.h>

#include "ckpt/store.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/s3_uri.h"
#include "ckpt/step_bed.h"
#include "ckpt/store_bed.h"
#include "ckpt/tree.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_KEYS = 32, MAX_PARTS = 4, MAX_CALLS = 256, STEP = 10 };
static const char other[] = "checkpoint-5";
/* In the store. */
static char other_name[PARCEL_NAME_BYTES];

/* --- what the store has beside its directory --- */

struct object {
    char key[128];
    char digest[64];
    struct s3_part parts[MAX_PARTS]; /* of the upload that goes on */
    char *data[MAX_PARTS];
    bool has_upload;
};
static struct object objects[MAX_KEYS];
static int store_dir = -1;

enum call { NO_CALL, LIST, HEAD, PUT, BEGIN, PART, COMPLETE, GET };
/* Which call fails, of a key that ends so; of a part, the number. */
static struct {
    enum call call;
    const char *end;
    size_t number;
    int rc;
    unsigned n; /* times */
} fault;
/* Somebody else does so at that moment. */
static void (*meanwhile)(struct object *o);
static const char *log_of[MAX_CALLS]; /* what was sent, in order */
static size_t n_log;
static bool knows_conditions = true;
static uint64_t done, of;

static bool ends_so(const char *text, const char *end)
{
    size_t n = strlen(text), k = strlen(end);

    return n >= k && strcmp(text + n - k, end) == 0;
}

static int fail(enum call call, struct object *o, const char *key, size_t number,
                struct error *e)
{
    if (fault.call != call || fault.n == 0 || !ends_so(key, fault.end) ||
        (call == PART && number != fault.number)) {
        return 0;
    }
    fault.n--;
    if (meanwhile) {
        meanwhile(o);
    }
    return fault.rc < 0 ? error_text(e, -fault.rc, "%s: no", key) : 0;
}

static struct object *object_of(const char *key)
{
    for (size_t i = 0; i < MAX_KEYS; i++) {
        struct object *o = &objects[i];

        if (!o->key[0]) {
            snprintf(o->key, sizeof(o->key), "%s", key);
        }
        if (strcmp(o->key, key) == 0) {
            return o;
        }
    }
    bail_out("too many keys");
}

static void write_down(const struct object *o)
{
    if (n_log < MAX_CALLS) {
        log_of[n_log++] = o->key;
    }
}

static unsigned n_sent(const char *end)
{
    unsigned n = 0;

    for (size_t i = 0; i < n_log; i++) {
        n += ends_so(log_of[i], end);
    }
    return n;
}

static void drop_parts(struct object *o)
{
    for (size_t i = 0; i < MAX_PARTS; i++) {
        free(o->data[i]);
        o->data[i] = NULL;
        o->parts[i] = (struct s3_part){0};
    }
    o->has_upload = false;
}

static void put_bytes(const char *key, const void *data, size_t len, bool is_more)
{
    _close_ int fd = -1;

    if (!is_more) {
        tree_unlink(store_dir, key);
    }
    fd = is_more ? openat(store_dir, key, O_WRONLY | O_APPEND | O_CLOEXEC)
                 : tree_create_file(store_dir, key);
    if (fd < 0 || fs_write_all(fd, data, len) < 0) {
        bail_out("write %s", key);
    }
}

int s3_head(struct s3 *s, const char *key, struct s3_facts *ret, struct error *e)
{
    struct object *o = object_of(key);
    struct stat st;
    int rc = fail(HEAD, o, key, 0, e);

    (void)s;
    if (rc < 0) {
        return rc;
    }
    if (fstatat(store_dir, key, &st, 0) < 0) {
        return error_text(e, ENOENT, "%s is not there", key);
    }
    *ret = (struct s3_facts){.bytes = (uint64_t)st.st_size};
    snprintf(ret->digest, sizeof(ret->digest), "%s", o->digest);
    return 0;
}

int s3_put(struct s3 *s, const char *key, const void *data, size_t len,
           const char *digest, bool is_new, struct error *e)
{
    struct object *o = object_of(key);
    int rc = fail(PUT, o, key, 0, e);

    (void)s;
    if (rc < 0) {
        return rc;
    }
    if (is_new && knows_conditions && faccessat(store_dir, key, F_OK, 0) == 0) {
        return error_text(e, EEXIST, "%s is there", key);
    }
    write_down(o);
    put_bytes(key, data, len, false);
    snprintf(o->digest, sizeof(o->digest), "%s", digest);
    return 0;
}

int s3_upload_begin(struct s3 *s, const char *key, const char *digest,
                    struct s3_part *parts, size_t n_parts, char **ret_id,
                    struct error *e)
{
    struct object *o = object_of(key);
    int rc = fail(BEGIN, o, key, 0, e);

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
    struct object *o = object_of(key);
    int rc = fail(PART, o, key, number, e);

    (void)s, (void)id;
    if (rc < 0) {
        return rc;
    }
    if (number < 1 || number > MAX_PARTS || !o->has_upload) {
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

static void make_object(struct object *o)
{
    for (size_t i = 0; i < MAX_PARTS && o->parts[i].is_there; i++) {
        put_bytes(o->key, o->data[i], o->parts[i].bytes, i > 0);
    }
    drop_parts(o);
}

int s3_upload_complete(struct s3 *s, const char *key, const char *id,
                       const struct s3_part *parts, size_t n_parts,
                       struct error *e)
{
    struct object *o = object_of(key);
    int rc = fail(COMPLETE, o, key, 0, e);

    (void)s, (void)id;
    if (rc < 0) {
        return rc;
    }
    for (size_t i = 0; i < n_parts; i++) {
        if (!o->parts[i].is_there || strcmp(o->parts[i].etag, parts[i].etag) != 0) {
            return error_text(e, EINVAL, "%s: part %zu is not that one", key, i + 1);
        }
    }
    make_object(o);
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
    int rc = fail(GET, NULL, key, 0, e);

    return rc < 0 ? rc : __real_s3_get(s, key, max, to, e);
}

int __wrap_s3_list(struct s3 *s, const char *prefix, bool is_flat, struct s3_listing *ret,
                   struct error *e)
{
    int rc = fail(LIST, NULL, prefix, 0, e);

    return rc < 0 ? rc : __real_s3_list(s, prefix, is_flat, ret, e);
}

static void note_progress(void *arg, uint64_t now, uint64_t all)
{
    (void)arg;
    done = now;
    of = all;
}

/* --- a bed --- */

struct bench {
    char path[64];
    int from;
    struct store st;
    struct parcel own, others;
    struct store_facts facts;
};

/* "a.bin" is of two parts, "b.bin" is sent as a whole. */
static void put_files(int from)
{
    _close_ int dir = -1, a = -1, b = -1;

    if (mkdirat(from, other, 0700) < 0) {
        bail_out("mkdir %s", other);
    }
    dir = openat(from, other, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    a = openat(dir, "a.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    b = openat(dir, "b.bin", O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    if (fs_write_all(a, "begin", 5) < 0 || ftruncate(a, DIGEST_BLOCK_BYTES) < 0 ||
        pwrite(a, "end", 3, DIGEST_BLOCK_BYTES) != 3 || fs_write_all(b, "short", 5) < 0) {
        bail_out("no files of %s", other);
    }
}

static void pack(struct bench *b, enum found_kind kind, const char *name, struct parcel *ret)
{
    struct found f = {.kind = kind};

    snprintf(f.name, sizeof(f.name), "%s", name);
    if (parcel_pack(io_system(), b->from, &f, ret, NULL) < 0) {
        bail_out("no %s", name);
    }
}

static void setup(struct bench *b)
{
    char name[STEP_NAME_BYTES], path[80];

    *b = (struct bench){.path = "/tmp/push.XXXXXX"};
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
    store_dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    b->st.progress = note_progress;
    pack(b, FOUND_MUSTER, name, &b->own);
    pack(b, FOUND_TRAINER, other, &b->others);
    memcpy(other_name, b->others.name, sizeof(other_name));
}

static void teardown(struct bench *b)
{
    for (size_t i = 0; i < MAX_KEYS; i++) {
        drop_parts(&objects[i]);
        objects[i] = (struct object){0};
    }
    parcel_release(&b->own);
    parcel_release(&b->others);
    store_bed_close(&b->st);
    close(b->from);
    close(store_dir);
    fs_remove_tree(b->path, NULL);
}

static int push(struct bench *b, const struct parcel *p, struct error *e)
{
    int rc;

    *e = (struct error){0};
    n_log = 0;
    done = of = 0;
    rc = store_push(&b->st, b->from, p, &b->facts, e);
    fault.n = 0;
    meanwhile = NULL;
    return rc;
}

static void fails(enum call call, const char *end, size_t number, int rc, unsigned n)
{
    fault.call = call;
    fault.end = end;
    fault.number = number;
    fault.rc = rc;
    fault.n = n;
}

static bool has_seal(const struct parcel *p)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", p->name, parcel_seal_name(p));
    return faccessat(store_dir, path, F_OK, 0) == 0;
}

static bool is_whole(const struct bench *b, const struct parcel *p)
{
    return has_seal(p) && store_check(&b->st, p, true, NULL) == 0;
}

static const char *in_store(const char *file)
{
    static char key[PATH_MAX];

    snprintf(key, sizeof(key), "%s/%s", other_name, file);
    return key;
}

/* --- tests --- */

static void test_pushed(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    is_int(push(&b, &b.own, &e), 0, "one of ours%s", e.text);
    ok(done == b.own.bytes && of == b.own.bytes, "all its bytes are told on the way");
    ok(is_whole(&b, &b.own), "it is in the store");
    ok(n_log > 1 && ends_so(log_of[n_log - 1], "COMMIT") && n_sent("COMMIT") == 1,
       "its seal was sent last, and once");
    is_int(b.facts.n_moved, b.own.n, "all its files were sent");
    ok(b.facts.bytes_moved == b.own.bytes && b.facts.n_kept == 0 && b.facts.bytes_kept == 0,
       "with all their bytes");
    is_int(push(&b, &b.others, &e), 0, "another program's%s", e.text);
    ok(is_whole(&b, &b.others), "is there, too");
    is_int(n_sent("a.bin"), 2, "a large file in two parts");
    ok(b.facts.n_moved == 2 && b.facts.bytes_moved == b.others.bytes, "of which all counts");
    is_int(push(&b, &b.others, &e), 0, "sent again%s", e.text);
    is_int(n_log, 0, "nothing is");
    ok(b.facts.n_moved == 0 && b.facts.bytes_moved == 0 && b.facts.n_kept == 2 &&
           b.facts.bytes_kept == b.others.bytes && done == of && of == b.others.bytes,
       "all was there");
    teardown(&b);
}

/* One of the same length, or with the same digest beside it. */
static void test_others_bytes(void)
{
    struct error e;
    struct bench b;
    struct object *o;

    setup(&b);
    is_int(push(&b, &b.others, &e), 0, "one%s", e.text);
    o = object_of(in_store("b.bin"));
    put_bytes(o->key, "wrong", 5, false);
    snprintf(o->digest, sizeof(o->digest), "of something else");
    is_int(push(&b, &b.others, &e), 0, "of which a file is another one of that length%s",
           e.text);
    ok(n_log == 1 && n_sent("b.bin") == 1 && is_whole(&b, &b.others), "that alone is sent");
    put_bytes(o->key, "longer", 6, false);
    is_int(push(&b, &b.others, &e), 0, "of which one has another length%s", e.text);
    ok(n_log == 1 && n_sent("b.bin") == 1 && is_whole(&b, &b.others), "that alone is sent");
    fails(HEAD, "b.bin", 0, -EACCES, 1);
    is_int(push(&b, &b.others, &e), -EACCES, "one at which nobody may look");
    is_int(n_log, 0, "is not sent");
    teardown(&b);
}

/* After a kill, with one of two parts there; and with one that is another. */
static void test_goes_on(void)
{
    struct error e;
    struct bench b;
    struct object *o;

    setup(&b);
    fails(PART, "a.bin", 2, -EIO, 1);
    is_int(push(&b, &b.others, &e), -EIO, "the second part is not taken");
    ok(!has_seal(&b.others) && n_sent("a.bin") == 1, "nothing is sealed");
    is_int(push(&b, &b.others, &e), 0, "then it is%s", e.text);
    ok(n_sent("a.bin") == 1 && is_whole(&b, &b.others), "it alone is sent");
    ok(b.facts.bytes_kept >= DIGEST_BLOCK_BYTES, "the first was there");
    teardown(&b);
    setup(&b);
    fails(PART, "a.bin", 2, -EIO, 1);
    is_int(push(&b, &b.others, &e), -EIO, "the same again");
    o = object_of(in_store("a.bin"));
    snprintf(o->parts[0].etag, sizeof(o->parts[0].etag), "other");
    o->data[0][0] ^= 1;
    is_int(push(&b, &b.others, &e), 0, "of a part with other bytes%s", e.text);
    ok(n_sent("a.bin") == 2 && is_whole(&b, &b.others), "both are sent");
    teardown(&b);
}

/* --- another one who pushes the same --- */

/* It has sent what is missing. */
static void complete(struct object *o)
{
    if (!o->parts[1].is_there) {
        o->parts[1] = (struct s3_part){.is_there = true, .bytes = 3};
        o->data[1] = malloc(3);
        memcpy(o->data[1], "end", 3);
    }
    make_object(o);
}

static void test_others_push(void)
{
    static const struct {
        enum call call;
        int rc;
        void (*meanwhile)(struct object *o);
        unsigned n_parts; /* that we send */
        const char *what;
    } cases[] = {
        {PART, -ENOENT, complete, 1, "who completes our upload before its last part"},
        {COMPLETE, -ENOENT, complete, 2, "who completes it just before us"},
        {PART, -ENOENT, drop_parts, 3, "who ends it"},
        {COMPLETE, -EINVAL, drop_parts, 4, "who takes a part of it away"},
    };
    struct error e;
    struct bench b;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        setup(&b);
        fails(cases[i].call, "a.bin", 2, cases[i].rc, 1);
        meanwhile = cases[i].meanwhile;
        is_int(push(&b, &b.others, &e), 0, "another one %s: %s", cases[i].what, e.text);
        ok(is_whole(&b, &b.others), "all is there");
        is_int(n_sent("a.bin"), cases[i].n_parts, "and nothing was sent that was");
        is_int(n_sent("b.bin"), 1, "what has nothing to do with it once");
        is_int(b.facts.n_moved + b.facts.n_kept, 2, "each file counts once");
        teardown(&b);
    }
    setup(&b);
    fails(COMPLETE, "a.bin", 2, -ENOENT, 100);
    meanwhile = drop_parts;
    is_int(push(&b, &b.others, &e), -EAGAIN, "one who always does it");
    like(e.text, "somebody else ends the uploads", "is told");
    ok(!has_seal(&b.others), "nothing is sealed");
    teardown(&b);
    setup(&b);
    fails(PUT, "b.bin", 0, -ENOENT, 1);
    is_int(push(&b, &b.others, &e), -ENOENT, "a bucket that is not there is no upload");
    teardown(&b);
}

/* --- what is read here --- */

static void write_over(const struct bench *b, const char *file)
{
    _close_ int dir = openat(b->from, other, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    _close_ int fd = openat(dir, file, O_WRONLY | O_CLOEXEC);

    if (pwrite(fd, "X", 1, 0) != 1) {
        bail_out("write %s", file);
    }
}

static void test_changed(void)
{
    static const char *const files[] = {"a.bin", "b.bin"};
    char path[128];
    struct error e;
    struct bench b;

    for (size_t i = 0; i < ARRAY_SIZE(files); i++) {
        setup(&b);
        write_over(&b, files[i]);
        is_int(push(&b, &b.others, &e), -ERR_FORMAT, "%s has changed meanwhile", files[i]);
        like(e.text, files[i], "which is told");
        ok(!has_seal(&b.others) &&
               faccessat(store_dir, in_store(files[i]), F_OK, 0) < 0,
           "neither it nor a seal is there");
        snprintf(path, sizeof(path), "%s/from/%s/%s", b.path, other, files[i]);
        unlink(path);
        is_int(push(&b, &b.others, &e), -ENOENT, "or is gone");
        like(e.text, files[i], "which is told");
        ok(!has_seal(&b.others), "nothing is sealed");
        teardown(&b);
    }
}

static void test_refused(void)
{
    static const struct {
        enum call call;
        const char *end, *what;
    } cases[] = {
        {LIST, "", "a list"}, {BEGIN, "a.bin", "an upload"}, {PART, "a.bin", "a part"},
        {COMPLETE, "a.bin", "its end"}, {PUT, "b.bin", "a file"},
        {PUT, PARCEL_COPY, "the seal"},
    };
    struct error e;
    struct bench b;

    setup(&b);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        fails(cases[i].call, cases[i].end, 1, -EACCES, 1);
        is_int(push(&b, &b.others, &e), -EACCES, "%s is refused", cases[i].what);
        like(e.text, "no", "which is told: %s", e.text);
        ok(!has_seal(&b.others), "nothing is sealed");
    }
    is_int(push(&b, &b.others, &e), 0, "in the end nothing is%s", e.text);
    ok(is_whole(&b, &b.others), "all is there");
    teardown(&b);
}

/* --- the seal --- */

/* What comes while the files are sent; NULL: the same. */
static struct bench *sealed;
static const char *seal_there;

static void put_seal(struct object *o)
{
    const struct buf *seal = &sealed->others.seal;

    (void)o;
    put_bytes(in_store(PARCEL_COPY), seal_there ? seal_there : seal->data,
              seal_there ? strlen(seal_there) : seal->len, false);
}

/* Of a store that can tell, when it is written, and of one that cannot, which was asked
 * before. */
static void test_seals(void)
{
    _free_ char *longer = NULL, *odd = NULL, *shorter = NULL, *much = NULL;
    struct error e;
    struct bench b;

    setup(&b);
    sealed = &b;
    longer = calloc(1, b.others.seal.len + 2);
    much = calloc(1, b.others.seal.len + 100);
    memset(much, 'a', b.others.seal.len + 99);
    memcpy(longer, b.others.seal.data, b.others.seal.len);
    longer[b.others.seal.len] = '\n';
    odd = strndup(b.others.seal.data, b.others.seal.len);
    odd[b.others.seal.len / 2] ^= 1;
    shorter = strndup(b.others.seal.data, b.others.seal.len - 1);
    for (size_t i = 0; i < 10; i++) {
        const char *const texts[] = {NULL, longer, odd, shorter, much};
        bool is_before = i >= 5;
        int want = i % 5 == 0 ? 0 : -EEXIST;

        seal_there = texts[i % 5];
        knows_conditions = !is_before;
        tree_unlink(store_dir, in_store(PARCEL_COPY));
        if (is_before) {
            put_seal(NULL);
        } else {
            fails(PUT, PARCEL_COPY, 0, 0, 1);
            meanwhile = put_seal;
        }
        is_int(push(&b, &b.others, &e), want, "%s, %s: %s",
               want < 0 ? "a seal with other content" : "the same seal",
               is_before ? "before" : "meanwhile", e.text);
        ok(want == 0 || strstr(e.text, "is there already"), "which is told");
        is_int(n_sent(PARCEL_COPY), 0, "it is not written over");
    }
    knows_conditions = true;
    fails(GET, PARCEL_COPY, 0, -EIO, 1);
    is_int(push(&b, &b.others, &e), -EIO, "one that cannot be read");
    teardown(&b);
}

static void test_dry(void)
{
    struct error e;
    struct bench b;

    setup(&b);
    b.st.is_dry = true;
    is_int(push(&b, &b.others, &e), 0, "what would be sent%s", e.text);
    ok(b.facts.n_moved == 2 && b.facts.bytes_moved == b.others.bytes && b.facts.n_kept == 0,
       "is all of it");
    ok(n_log == 0 && !has_seal(&b.others) && !object_of(in_store("a.bin"))->has_upload,
       "and nothing is begun");
    fails(HEAD, "", 0, -EACCES, 1);
    put_bytes(in_store("b.bin"), "short", 5, false);
    is_int(push(&b, &b.others, &e), -EACCES, "what may not be looked at is told");
    snprintf(object_of(in_store("b.bin"))->digest, 64, "?");
    b.st.is_dry = false;
    is_int(push(&b, &b.others, &e), 0, "it is sent%s", e.text);
    unlinkat(store_dir, in_store("b.bin"), 0);
    b.st.is_dry = true;
    is_int(push(&b, &b.others, &e), 0, "one file is missing%s", e.text);
    ok(b.facts.n_moved == 1 && b.facts.bytes_moved == 5 && b.facts.n_kept == 1 &&
           b.facts.bytes_kept == b.others.bytes - 5,
       "it alone would be sent");
    teardown(&b);
}

int main(void)
{
    test_pushed();
    test_others_bytes();
    test_goes_on();
    test_others_push();
    test_changed();
    test_refused();
    test_seals();
    test_dry();
    return tap_done();
}
