/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to s3*.c.
 *
 *   s3.c            the client, its connections
 *   s3_call.c       one request, tried until it is answered
 *   s3_objects.c    heads, bytes, lists
 *   s3_upload.c     objects in parts
 */
#ifndef MUSTER_CKPT_S3_PRIV_H
#define MUSTER_CKPT_S3_PRIV_H

#include "base/str.h"
#include "ckpt/s3.h"
#include "ckpt/s3_head.h"

#include <curl/curl.h>
#include <pthread.h>
#include <stdatomic.h>

/* Answers other than bytes of objects. */
#define ANSWER_MAX_BYTES (16u << 20)

struct s3 {
    struct s3_config config;
    struct s3_limits limits;
    bool has_tls;
    char *host;      /* with its port */
    char *path;      /* of the bucket, "" where the host is the bucket's */
    char *bucket;
    atomic_bool is_stopped;
    atomic_bool has_told_uploads; /* that nobody can tell which there are */
    atomic_bool is_adjusted;     /* skew_s is the server's */
    _Atomic int64_t skew_s;      /* its clock less ours */
    pthread_mutex_t lock;        /* of what follows */
    CURL *idle[64];
    size_t n_idle;
};

struct s3_request {
    const char *method;
    const char *key;             /* NULL: the bucket itself */
    const char *query;           /* escaped, in order; NULL for none */
    struct strlist headers;      /* owned */
    const void *body;
    size_t body_len;
    /* Where bytes of an object go: exactly so many. NULL: to the reply's body. */
    void *to;
    size_t to_len;
    size_t max_bytes;            /* of the reply's body; 0: ANSWER_MAX_BYTES */
};

struct s3_reply {
    struct s3_head head;
    struct s3_fault fault;
    size_t got;                  /* bytes in `to` */
    struct buf body;
};
void s3_reply_release(struct s3_reply *r);
#define _s3_reply_ __attribute__((cleanup(s3_reply_release)))

CURL *s3_take_handle(struct s3 *s);
void s3_give_handle(struct s3 *s, CURL *handle);

/* Sends it until there is an answer that counts: 0 for 2xx, else as in s3.h, worded
 * with the method and the key. Releases the request. */
int s3_call(struct s3 *s, struct s3_request *q, struct s3_reply *ret,
            struct error *e);

#endif
