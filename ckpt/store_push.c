/* SPDX-License-Identifier: Apache-2.0 */
/*
 * To the store, in rounds. Of each file that is not there with its length and digest
 * the pieces are sent; when a file's last piece has gone, and what was read has its
 * digest, its parts are made an object. A round more is for files whose upload
 * somebody else has completed or ended meanwhile. The seal goes last.
 */
#include <config.h>

#include "ckpt/store_priv.h"

#include "ckpt/io.h"
#include "ckpt/tree.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_ROUNDS 5

struct sending {
    char *id; /* of the upload in parts */
    struct s3_part *parts;
    atomic_bool is_lost; /* the upload is not there any more */
};

struct push {
    const struct store *st;
    const struct parcel *p;
    int dir; /* that the paths of items begin in */
    struct store_there there;
    struct pieces pieces;
    struct sending *sending; /* as many as files */
    atomic_uint_fast64_t done, n_moved, bytes_moved, n_kept, bytes_kept;
};

static void clear_sending(struct sending *s)
{
    free(s->id);
    free(s->parts);
    s->id = NULL;
    s->parts = NULL;
    atomic_store(&s->is_lost, false);
}

static void push_release(struct push *u)
{
    for (size_t i = 0; i < u->pieces.n_files && u->sending; i++) {
        clear_sending(&u->sending[i]);
    }
    free(u->sending);
    pieces_release(&u->pieces);
    store_there_release(&u->there);
}

/* --- what is there --- */

static void keep_file(struct push *u, struct piece_file *f)
{
    f->is_done = true;
    atomic_fetch_add(&u->n_kept, 1);
    atomic_fetch_add(&u->bytes_kept, f->item->bytes);
    store_progress(u->st, &u->done, f->item->bytes, u->p->bytes);
}

/* An object with the length and the digest of the file: 1, 0, or an error. */
static int is_there(struct push *u, const struct piece_file *f, const char *key,
                    struct error *e)
{
    struct s3_facts facts = {0};
    char digest[DIGEST_TEXT_BYTES];
    int rc = s3_head(u->st->s3, key, &facts, e);

    if (rc < 0) {
        return rc == -ENOENT ? 0 : rc;
    }
    digest_format(f->item->digest, digest);
    return facts.bytes == f->item->bytes && strcmp(facts.digest, digest) == 0;
}

/* Before a round: which files are there, and what of the others. */
static int prepare(void *arg, size_t i, struct error *e)
{
    struct push *u = arg;
    struct piece_file *f = &u->pieces.files[i];
    struct sending *s = &u->sending[i];
    const struct s3_object *o = store_find(&u->there, f->item->path);
    bool was_lost = atomic_load(&s->is_lost);
    _buf_ struct buf key = {0};
    char digest[DIGEST_TEXT_BYTES];
    int rc;

    if (f->is_done) {
        return 0;
    }
    rc = store_key(u->st, u->p->name, f->item->path, &key, e);
    if (rc == 0 && (was_lost || (o && o->bytes == f->item->bytes))) {
        rc = is_there(u, f, buf_str(&key), e);
    }
    if (rc > 0) {
        keep_file(u, f);
        return 0;
    }
    clear_sending(s);
    pieces_reset(f);
    if (rc < 0 || f->n == 1 || u->st->is_dry) {
        return rc;
    }
    s->parts = calloc(f->n, sizeof(*s->parts));
    if (!s->parts) {
        return error_set(e, ENOMEM, "send %s", f->item->path);
    }
    digest_format(f->item->digest, digest);
    return s3_upload_begin(u->st->s3, buf_str(&key), digest, s->parts, f->n,
                           &s->id, e);
}

/* --- a piece --- */

static int read_piece(struct push *u, const struct piece *piece, void *to,
                      struct error *e)
{
    _close_ int fd = tree_open(u->dir, piece->file->item->path);
    int rc = fd < 0 ? fd
                    : io_read_all(io_system(), fd, to, piece->len, piece->at);

    return rc < 0 ? error_set(e, -rc, "read %s/%s", u->p->found.name,
                              piece->file->item->path)
                  : 0;
}

static int check_file(const struct push *u, const struct piece_file *f,
                      struct error *e)
{
    if (pieces_are_right(f)) {
        return 0;
    }
    return error_text(e, ERR_FORMAT, "%s/%s has changed since it was looked at, or "
                      "is damaged: its %llu bytes do not have the digest that they "
                      "should; nothing was sealed", u->p->found.name,
                      f->item->path, (unsigned long long)f->item->bytes);
}

static void count_file(struct push *u, struct piece_file *f)
{
    f->is_done = true;
    atomic_fetch_add(&u->n_moved, 1);
}

static int send_whole(struct push *u, const struct piece *piece, const char *key,
                      const void *data, struct error *e)
{
    char digest[DIGEST_TEXT_BYTES];
    int rc;

    pieces_put(piece, data);
    rc = check_file(u, piece->file, e);
    digest_format(piece->file->item->digest, digest);
    rc = rc < 0 ? rc
                : s3_put(u->st->s3, key, data, piece->len, digest, false, e);
    if (rc == 0) {
        atomic_fetch_add(&u->bytes_moved, piece->len);
        count_file(u, piece->file);
    }
    return rc;
}

static int complete(struct push *u, struct piece_file *f, struct sending *s,
                    const char *key, struct error *e)
{
    int rc = check_file(u, f, e);

    rc = rc < 0 ? rc
                : s3_upload_complete(u->st->s3, key, s->id, s->parts, f->n, e);
    if (rc == 0) {
        count_file(u, f);
    }
    return rc;
}

static int send_part(struct push *u, const struct piece *piece,
                     struct sending *s, const char *key, const void *data,
                     struct error *e)
{
    struct s3_part *part = &s->parts[piece->number];
    int rc = 0;

    if (s3_part_matches(part, data, piece->len)) {
        atomic_fetch_add(&u->bytes_kept, piece->len);
    } else {
        rc = s3_upload_part(u->st->s3, key, s->id, piece->number + 1, data,
                            piece->len, part, e);
        atomic_fetch_add(&u->bytes_moved, rc == 0 ? piece->len : 0);
    }
    return rc < 0 || !pieces_put(piece, data)
               ? rc
               : complete(u, piece->file, s, key, e);
}

static int send_piece(void *arg, size_t i, struct error *e)
{
    struct push *u = arg;
    struct piece piece = pieces_get(&u->pieces, i);
    struct sending *s = &u->sending[piece.file - u->pieces.files];
    _buf_ struct buf key = {0};
    _free_ char *data = NULL;
    int rc;

    if (piece.file->is_done || atomic_load(&s->is_lost)) {
        return 0;
    }
    data = malloc(piece.len + 1);
    rc = data ? store_key(u->st, u->p->name, piece.file->item->path, &key, e)
              : error_set(e, ENOMEM, "send %s", piece.file->item->path);
    rc = rc < 0 ? rc : read_piece(u, &piece, data, e);
    if (rc < 0) {
        return rc;
    }
    rc = s->id ? send_part(u, &piece, s, buf_str(&key), data, e)
               : send_whole(u, &piece, buf_str(&key), data, e);
    /* Another one who pushes the same has taken this upload, or a part of it was
     * lost: the next round sees. */
    if (s->id && (rc == -ENOENT || rc == -EINVAL)) {
        atomic_store(&s->is_lost, true);
        return 0;
    }
    if (rc == 0) {
        store_progress(u->st, &u->done, piece.len, u->p->bytes);
    }
    return rc;
}

/* --- the seal --- */

static int put_seal(struct push *u, struct error *e)
{
    const struct store *st = u->st;
    _buf_ struct buf key = {0}, there = {0};
    const struct buf *seal = &u->p->seal;
    int rc = store_key(st, u->p->name, parcel_seal_name(u->p), &key, e);

    /* Not every store knows conditions: what was there at the beginning counts, too. */
    if (rc == 0 && !store_find(&u->there, parcel_seal_name(u->p))) {
        rc = s3_put(st->s3, buf_str(&key), seal->data, seal->len, "", true, e);
        if (rc != -EEXIST) {
            return rc;
        }
    }
    rc = s3_get(st->s3, buf_str(&key), seal->len + 1, &there, e);
    if (rc == 0 && there.len == seal->len &&
        memcmp(there.data, seal->data, seal->len) == 0) {
        return 0;
    }
    if (rc < 0 && rc != -ERR_FORMAT) {
        return rc;
    }
    return error_text(e, EEXIST, "s3://%s/%s is there already, with other content: "
                      "it is not replaced", st->bucket, buf_str(&key));
}

/* --- all of it --- */

static bool is_all_done(const struct push *u)
{
    for (size_t i = 0; i < u->pieces.n_files; i++) {
        if (!u->pieces.files[i].is_done) {
            return false;
        }
    }
    return true;
}

static void count_dry(struct push *u)
{
    for (size_t i = 0; i < u->pieces.n_files; i++) {
        if (!u->pieces.files[i].is_done) {
            atomic_fetch_add(&u->n_moved, 1);
            atomic_fetch_add(&u->bytes_moved, u->p->items[i].bytes);
        }
    }
}

static int send_all(struct push *u, struct error *e)
{
    for (int round = 0; round < MAX_ROUNDS; round++) {
        int rc = store_crowd(u->st, prepare, u, u->pieces.n_files, e);

        if (rc == 0 && u->st->is_dry) {
            count_dry(u);
            return 0;
        }
        rc = rc < 0 ? rc : store_crowd(u->st, send_piece, u, u->pieces.n, e);
        if (rc < 0) {
            return rc;
        }
        if (is_all_done(u)) {
            return put_seal(u, e);
        }
    }
    return error_text(e, EAGAIN, "%s: somebody else ends the uploads that this "
                      "push begins, %d times now: push again when they are done",
                      u->p->name, MAX_ROUNDS);
}

int store_push(const struct store *st, int dir, const struct parcel *p,
               struct store_facts *ret, struct error *e)
{
    __attribute__((cleanup(push_release))) struct push u = {.st = st, .p = p};
    _close_ int items = parcel_open_dir(dir, p, e);
    int rc = items < 0 ? items : store_there(st, p->name, &u.there, e);

    u.dir = items;
    if (rc < 0) {
        return rc;
    }
    u.sending = calloc(p->n + 1, sizeof(*u.sending));
    if (!u.sending ||
        pieces_create(p, st->part_bytes, S3_MAX_PARTS, &u.pieces) < 0) {
        return error_set(e, ENOMEM, "push %s", p->name);
    }
    rc = send_all(&u, e);
    *ret = (struct store_facts){
        .n_moved = u.n_moved, .bytes_moved = u.bytes_moved,
        .n_kept = u.n_kept, .bytes_kept = u.bytes_kept};
    return rc;
}
