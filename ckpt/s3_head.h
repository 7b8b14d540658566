/* SPDX-License-Identifier: Apache-2.0 */
/* The header lines of an object store's answer that mean something to us, and what
 * is to be done about an answer that is no success. Pure. */
#ifndef MUSTER_CKPT_S3_HEAD_H
#define MUSTER_CKPT_S3_HEAD_H

#include "ckpt/s3_answer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* With what our objects are marked: the digest of their bytes. */
#define S3_DIGEST_HEADER "x-amz-meta-muster-digest"

struct s3_head {
    int status;
    bool has_length;
    uint64_t length;
    char etag[S3_ETAG_BYTES];
    char digest[64];        /* of S3_DIGEST_HEADER */
    char region[64];        /* where the bucket is */
    time_t date;            /* of the server's clock; 0 for none */
    int64_t retry_after_s;  /* -1 for none */
};

/* One line, with or without its end. A status line begins anew: only the last
 * answer of several (100 Continue) counts. `now` turns a date in Retry-After into
 * seconds where the server said no date of its own. */
void s3_head_line(struct s3_head *h, const char *line, size_t len, time_t now);

/* --- what to do --- */

enum s3_next {
    S3_GIVE_UP,
    S3_AGAIN,  /* after a while */
    S3_ADJUST, /* with the server's clock, once */
};

/* An answer with its error, or none at all (`has_answer` is false), or one that was
 * cut; `is_adjusted`: the clock is the server's already. */
struct s3_outcome {
    bool has_answer;
    bool is_cut;
    bool is_hopeless; /* without an answer: it will not be better next time */
    const struct s3_head *head;
    const char *code;
    bool is_adjusted;
    time_t now;
};
enum s3_next s3_what_next(const struct s3_outcome *o);

/* How long to wait before try number `n_tries` + 1, by what the server asked for
 * or, in doubling steps, by ourselves; `random` has any bits, so that many clients
 * do not come back at once. */
uint64_t s3_wait_ms(unsigned n_tries, int64_t retry_after_s, uint32_t random);

#endif
