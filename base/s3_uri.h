/* SPDX-License-Identifier: Apache-2.0 */
/* Names in object stores: s3://BUCKET[/PREFIX], and how they stand in URLs. */
#ifndef MUSTER_BASE_S3_URI_H
#define MUSTER_BASE_S3_URI_H

#include "base/buf.h"
#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>

#define S3_KEY_MAX_BYTES 1024

struct s3_uri {
    char bucket[64];
    char prefix[S3_KEY_MAX_BYTES + 1]; /* without slashes around; "" for none */
};

bool s3_is_uri(const char *text);

/* 0, or -EINVAL: the bucket's name is none, the prefix is too long or has a part
 * that is empty, "." or "..", which servers take for other ones. */
int s3_uri_parse(const char *text, struct s3_uri *ret, struct error *e);

/* Adds text as signatures want it: all but letters, digits and "-._~" as %XX. */
void s3_escape(struct buf *to, const char *text, bool keeps_slashes);
/* The other way, in place. False for a % without two hexadecimal digits, and for
 * a zero byte. */
bool s3_unescape(char *text);

#endif
