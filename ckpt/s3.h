/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bucket of an object store that speaks S3, over libcurl. One struct serves many
 * threads; each call blocks.
 *
 * What may pass is tried again: lost connections, cut answers, 429 and 5xx, after
 * the time that the server asks for, or in doubling steps. What does not pass by
 * itself (wrong keys, no such bucket) is told at once. Where the clocks are too far
 * apart for signatures, the server's is taken. TLS certificates are verified;
 * without TLS it goes only to an endpoint given as http://.
 *
 * Errors: -ENOENT no such object, -ENXIO no such bucket, -EACCES refused, -EEXIST
 * it is there already (where asked not to overwrite), -ERR_FORMAT an answer that is
 * none, -EAGAIN it
 * may pass, and did not in all tries, -EIO all else. -ECANCELED after s3_stop().
 */
#ifndef MUSTER_CKPT_S3_H
#define MUSTER_CKPT_S3_H

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/error.h"
#include "ckpt/s3_answer.h"
#include "ckpt/s3_config.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct s3;

struct s3_limits {
    unsigned max_tries;   /* of each request; 0: 8 */
    unsigned stall_s;     /* without a byte, then it is tried again; 0: 60 */
    /* Told why a request is tried again; any thread. May be NULL. */
    void (*tell)(void *arg, const char *text);
    void *arg;
};

/* 0, -ENOMEM. Nothing is sent yet. `config` is copied. */
int s3_open(const struct s3_config *config, const char *bucket,
            const struct s3_limits *limits, struct s3 **ret, struct error *e);
void s3_destroy(struct s3 *s);
DEFINE_CLEANUP(s3);
/* Requests that run end soon, and no more begin, until it goes on. */
void s3_stop(struct s3 *s);
void s3_go_on(struct s3 *s);

/* --- objects --- */

struct s3_facts {
    uint64_t bytes;
    char etag[S3_ETAG_BYTES];
    char digest[64]; /* what s3_put() was given; "" for none */
};
int s3_head(struct s3 *s, const char *key, struct s3_facts *ret, struct error *e);

/* A whole object of at most `max` bytes; -ERR_FORMAT: it has more. */
int s3_get(struct s3 *s, const char *key, size_t max, struct buf *to,
           struct error *e);
/* Just bytes [at, at + len) of one that has them; len > 0. */
int s3_get_range(struct s3 *s, const char *key, uint64_t at, void *to, size_t len,
                 struct error *e);

/* A whole object in one request. The server holds it against its checksum.
 * `digest` ("" for none) is kept beside it. With `is_new` not over one that is
 * there, where the store can tell. */
int s3_put(struct s3 *s, const char *key, const void *data, size_t len,
           const char *digest, bool is_new, struct error *e);

/* One that is not there is no error. */
int s3_delete(struct s3 *s, const char *key, struct error *e);

/* All keys that begin with `prefix`; with a delimiter only up to it, and what goes
 * on behind it as prefixes. */
int s3_list(struct s3 *s, const char *prefix, bool is_flat,
            struct s3_listing *ret, struct error *e);

/* --- objects in parts --- */

/* The id of the newest upload of this key that somebody began, or a new one, with
 * the parts [0, n_parts) that are there. The caller frees *ret_id. */
int s3_upload_begin(struct s3 *s, const char *key, const char *digest,
                    struct s3_part *parts, size_t n_parts, char **ret_id,
                    struct error *e);
/* -ENOENT: somebody has completed or ended the upload. */
int s3_upload_part(struct s3 *s, const char *key, const char *id, size_t number,
                   const void *data, size_t len, struct s3_part *ret,
                   struct error *e);
/* Whether a part that is there has these bytes, as far as its ETag tells. */
bool s3_part_matches(const struct s3_part *part, const void *data, size_t len);
/* All parts are there: makes the object, and ends other uploads of its key. -ENOENT
 * as above; -EINVAL: a part is not, or is another. */
int s3_upload_complete(struct s3 *s, const char *key, const char *id,
                       const struct s3_part *parts, size_t n_parts,
                       struct error *e);

#endif
