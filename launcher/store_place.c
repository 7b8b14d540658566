/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/store_verbs.h"

#include "base/cleanup.h"
#include "ckpt/pieces.h"
#include "launcher/commands.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_TRIES = 100 };

#define PART_BYTES (UINT64_C(16) << 20)

int store_fail(const struct error *e)
{
    int status;

    store_progress_end();
    status = command_fail(e);
    return e->code == EAGAIN ? EXIT_RESUMABLE : status;
}

/* --- a place --- */

/* As other S3 programs are told; 0 for our own number. */
static int take_tries(unsigned *ret, struct error *e)
{
    const char *text = getenv("AWS_MAX_ATTEMPTS");
    uint64_t n;

    if (!text || !*text) {
        return 0;
    }
    if (str_to_u64(text, &n) < 0 || n == 0) {
        return error_text(e, EINVAL, "AWS_MAX_ATTEMPTS is '%.60s': expected a whole number, "
                          "1 or more", text);
    }
    *ret = n < MAX_TRIES ? (unsigned)n : MAX_TRIES;
    return 0;
}

static int check_options(const struct ckpt_options *o, struct error *e)
{
    if (o->jobs < 0 || o->jobs > 64) {
        return error_text(e, ERR_USAGE, "option --jobs: expected 1 to 64");
    }
    if (o->keep < 0) {
        return error_text(e, ERR_USAGE, "option --keep: expected 1 or more");
    }
    if (o->timeout_s < 0 || o->timeout_s > 3600) {
        return error_text(e, ERR_USAGE, "option --timeout: expected 1 to 3600 "
                          "seconds");
    }
    return 0;
}

int store_place_open(const struct ckpt_options *o, const char *text,
                     struct store_place *ret, struct error *e)
{
    _s3_config_ struct s3_config config = {0};
    struct s3_limits limits = {.stall_s = (unsigned)o->timeout_s, .tell = store_tell};
    int rc = check_options(o, e);

    if (rc == 0 && s3_uri_parse(text, &ret->uri, e) < 0) {
        e->code = ERR_USAGE;
        rc = -ERR_USAGE;
    }
    rc = rc < 0 ? rc : take_tries(&limits.max_tries, e);
    rc = rc < 0 ? rc : s3_config_load(&config, e);
    rc = rc < 0 ? rc
                : s3_open(&config, ret->uri.bucket, &limits, &ret->s3, e);
    ret->store = (struct store){
        .s3 = ret->s3, .bucket = ret->uri.bucket, .prefix = ret->uri.prefix,
        .n_threads = o->jobs ? (size_t)o->jobs : 8,
        .part_bytes = pieces_round(o->part_bytes ? o->part_bytes : PART_BYTES),
        .is_dry = o->is_dry,
        .progress = store_progress_show, .count = store_count_show};
    return rc;
}

void store_place_close(struct store_place *p)
{
    s3_destroy(p->s3);
}

bool store_place_split(struct store_place *p, char name[PARCEL_NAME_BYTES])
{
    char *slash = strrchr(p->uri.prefix, '/');
    char *last = slash ? slash + 1 : p->uri.prefix;

    if (!*last || strlen(last) >= PARCEL_NAME_BYTES) {
        return false;
    }
    str_copy(name, PARCEL_NAME_BYTES, last);
    *(slash ? slash : last) = '\0';
    return true;
}
