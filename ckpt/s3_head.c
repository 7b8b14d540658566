/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_head.h"

#include "base/cleanup.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>

/* Servers refuse signatures that are older or younger; a bit less, for their own
 * time to answer. */
#define SKEW_S 240
#define RETRY_MAX_S 300

struct field {
    const char *name;
    size_t offset, size;
};

static const struct field fields[] = {
    {"etag", offsetof(struct s3_head, etag), sizeof(((struct s3_head *)0)->etag)},
    {S3_DIGEST_HEADER, offsetof(struct s3_head, digest),
     sizeof(((struct s3_head *)0)->digest)},
    {"x-amz-bucket-region", offsetof(struct s3_head, region),
     sizeof(((struct s3_head *)0)->region)},
};

static void take_text(struct s3_head *h, const char *name, const char *value)
{
    for (size_t i = 0; i < ARRAY_SIZE(fields); i++) {
        if (strcasecmp(name, fields[i].name) == 0) {
            str_copy((char *)h + fields[i].offset, fields[i].size, value);
        }
    }
}

static void take_retry(struct s3_head *h, const char *value, time_t now)
{
    uint64_t seconds;
    time_t at;

    if (str_to_u64(value, &seconds) == 0) {
        h->retry_after_s = seconds < RETRY_MAX_S ? (int64_t)seconds : RETRY_MAX_S;
        return;
    }
    at = curl_getdate(value, NULL);
    if (at > 0) {
        int64_t wait = (int64_t)at - (h->date ? h->date : now);

        h->retry_after_s = wait < 0 ? 0 : wait < RETRY_MAX_S ? wait : RETRY_MAX_S;
    }
}

static void take(struct s3_head *h, const char *name, const char *value,
                 time_t now)
{
    take_text(h, name, value);
    if (strcasecmp(name, "content-length") == 0) {
        h->has_length = str_to_u64(value, &h->length) == 0;
    } else if (strcasecmp(name, "date") == 0) {
        time_t at = curl_getdate(value, NULL);

        h->date = at > 0 ? at : 0;
    } else if (strcasecmp(name, "retry-after") == 0) {
        take_retry(h, value, now);
    }
}

/* "HTTP/1.1 200 OK" */
static bool take_status(struct s3_head *h, const char *line)
{
    const char *blank = strchr(line, ' ');

    if (strncasecmp(line, "HTTP/", 5) != 0 || !blank) {
        return false;
    }
    *h = (struct s3_head){.retry_after_s = -1};
    for (size_t i = 1; i <= 3 && blank[i] >= '0' && blank[i] <= '9'; i++) {
        h->status = h->status * 10 + blank[i] - '0';
    }
    return true;
}

void s3_head_line(struct s3_head *h, const char *line, size_t len, time_t now)
{
    char text[1024];
    char *value;

    if (len >= sizeof(text) || memchr(line, '\0', len)) {
        return;
    }
    memcpy(text, line, len);
    while (len && strchr(" \t\r\n", text[len - 1])) {
        len--;
    }
    text[len] = '\0';
    value = take_status(h, text) ? NULL : strchr(text, ':');
    if (value) {
        *value++ = '\0';
        value += strspn(value, " \t");
        take(h, text, value, now);
    }
}

/* --- what to do --- */

static bool is_among(const char *code, const char *const *codes)
{
    for (; *codes; codes++) {
        if (strcmp(code, *codes) == 0) {
            return true;
        }
    }
    return false;
}

/* Errors that pass although their status says that we are to blame: bytes that
 * were damaged on the way, one who did the same at the same time. */
static const char *const passing[] = {
    "RequestTimeout", "BadDigest", "XAmzContentSHA256Mismatch",
    "XAmzContentChecksumMismatch", "IncompleteBody", "OperationAborted",
    "ConditionalRequestConflict", "SlowDown", "Throttling", "ThrottlingException",
    "InternalError", "ServiceUnavailable", "TooManyRequests", NULL,
};

/* A HEAD is refused without a word: the server's date tells then. */
static bool is_skewed(const struct s3_outcome *o)
{
    int64_t apart = (int64_t)o->head->date - (int64_t)o->now;
    bool is_far = o->head->date && (apart > SKEW_S || apart < -SKEW_S);

    return strcmp(o->code, "RequestTimeTooSkewed") == 0 ||
           strcmp(o->code, "RequestExpired") == 0 ||
           (is_far && o->head->status == 403);
}

enum s3_next s3_what_next(const struct s3_outcome *o)
{
    if (!o->has_answer || o->is_cut) {
        return o->is_hopeless ? S3_GIVE_UP : S3_AGAIN;
    }
    if (is_skewed(o)) {
        return o->is_adjusted || !o->head->date ? S3_GIVE_UP : S3_ADJUST;
    }
    switch (o->head->status) {
    case 408:
    case 429:
    case 500:
    case 502:
    case 503:
    case 504:
        return S3_AGAIN;
    default:
        return is_among(o->code, passing) ? S3_AGAIN : S3_GIVE_UP;
    }
}

uint64_t s3_wait_ms(unsigned n_tries, int64_t retry_after_s, uint32_t random)
{
    uint64_t most = n_tries > 7 ? 20000 : (uint64_t)200 << n_tries;

    most = most > 20000 ? 20000 : most;
    if (retry_after_s >= 0) {
        /* Not before, and not all of us in the same moment. */
        return (uint64_t)retry_after_s * 1000 + random % 250;
    }
    return most / 2 + random % (most / 2 + 1);
}
