/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signatures of requests, version 4 (AWS4-HMAC-SHA256). Pure: time is an input.
 *
 * libcurl can sign by itself, but not with another clock than this machine's (7.88
 * sends X-Amz-Date twice then), it signs an "Expect:" that it does not send, and from
 * version to version it takes queries as they are or not.
 */
#ifndef MUSTER_CKPT_S3_SIGN_H
#define MUSTER_CKPT_S3_SIGN_H

#include "base/buf.h"
#include "base/str.h"

#include <time.h>

struct s3_signing {
    const char *key_id, *secret, *region;
    time_t now;
    const char *method;
    const char *path;  /* escaped, with its slash */
    const char *query; /* escaped, in the order of names; "" for none */
    /* Pairs of a name, lower case, and a value: all that are to be signed, "host"
     * among them. In any order. */
    const struct strlist *headers;
    const char *payload; /* what x-amz-content-sha256 says */
};

#define S3_DATE_BYTES 17
/* "20260102T030405Z", for x-amz-date. */
void s3_format_date(time_t now, char to[S3_DATE_BYTES]);

/* Adds the value of the header Authorization. 0, -ENOMEM. */
int s3_sign(const struct s3_signing *s, struct buf *to);

#endif
