/* SPDX-License-Identifier: Apache-2.0 */
/* What an object store answers: lists, parts, errors. Pure: bytes in, structs out. */
#ifndef MUSTER_CKPT_S3_ANSWER_H
#define MUSTER_CKPT_S3_ANSWER_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define S3_ETAG_BYTES 128
#define S3_CODE_BYTES 64

/* An <Error>: its code is "" where there is none. */
struct s3_fault {
    char code[S3_CODE_BYTES];
    char message[256];
    char region[64]; /* where it would have been right */
};
/* Never fails: what is no error of S3 has no code. */
void s3_fault_read(const void *data, size_t len, struct s3_fault *ret);

struct s3_object {
    char *key;
    uint64_t bytes;
};

struct s3_listing {
    struct s3_object *objects; /* in the order of their keys' bytes */
    size_t n, cap;
    struct strlist prefixes;   /* up to the delimiter, with it */
    bool is_truncated;
    char *next;                /* continuation token */
};
void s3_listing_release(struct s3_listing *l);
#define _s3_listing_ __attribute__((cleanup(s3_listing_release)))

/* A page of ListObjectsV2 with encoding-type=url, added to `to`. 0, -ERR_FORMAT,
 * -ENOMEM. */
int s3_listing_add(const void *data, size_t len, struct s3_listing *to,
                   struct error *e);

/* A page of ListMultipartUploads: of the uploads of just this key the one that
 * began last (`id`, in the caller's care), and where the next page begins. */
struct s3_uploads {
    const char *key;
    struct strlist ids; /* all of that key */
    char *newest;       /* one of them */
    char began[40];     /* its time, as the server writes it */
    bool is_truncated;
    char *next_key, *next_id;
};
void s3_uploads_release(struct s3_uploads *u);
#define _s3_uploads_ __attribute__((cleanup(s3_uploads_release)))
int s3_uploads_add(const void *data, size_t len, struct s3_uploads *to,
                   struct error *e);

#define S3_MAX_PARTS 10000

struct s3_part {
    bool is_there;
    uint64_t bytes;
    char etag[S3_ETAG_BYTES]; /* as the server writes it, with its quotes */
};

/* A page of ListParts, into parts[0..n-1] for numbers 1 to n; others are passed
 * over. *ret_next is the marker of the next page, 0 after the last. */
int s3_parts_add(const void *data, size_t len, struct s3_part *parts, size_t n,
                 uint64_t *ret_next, struct error *e);

/* The one text of an element, by its name without a path; the caller frees it.
 * -ERR_FORMAT if there is none. */
int s3_answer_text(const void *data, size_t len, const char *name, char **ret,
                   struct error *e);

#endif
