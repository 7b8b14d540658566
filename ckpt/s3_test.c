/* SPDX-License-Identifier: Apache-2.0 */
/* The pure parts of the object store's client: names, credentials, signatures,
 * headers, answers, what is tried again. */
#include <config.h>

#include "ckpt/parcel.h"
#include "ckpt/s3_answer.h"
#include "ckpt/s3_config.h"
#include "ckpt/s3_role.h"
#include "ckpt/s3_head.h"
#include "ckpt/s3_sign.h"
#include "ckpt/s3_sum.h"
#include "base/s3_uri.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void test_names(void)
{
    static const char *const wrong[] = {
        "s3:/bucket", "s3://", "s3://ab", "s3://a bucket/x", "s3://-bucket",
        "s3://bucket//x", "s3://bucket/x/../y", "s3://bucket/./y", "/dir",
        "s3://bucket/x//",
    };
    struct s3_uri u;
    _buf_ struct buf b = {0};
    char text[] = "a%20b%2Bc+d";
    char bad[] = "a%2", zero[] = "%00";

    is_int(s3_uri_parse("s3://bucket/a/b c/", &u, NULL), 0, "a place");
    is_str(u.bucket, "bucket", "its bucket");
    is_str(u.prefix, "a/b c", "its prefix, without a slash");
    is_int(s3_uri_parse("s3://bucket", &u, NULL), 0, "a bucket alone");
    is_str(u.prefix, "", "has none");
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        is_int(s3_uri_parse(wrong[i], &u, NULL), -EINVAL, "refused: %s",
               wrong[i]);
    }
    s3_escape(&b, "a b/\xc3\xbc+~", true);
    is_str(buf_str(&b), "a%20b/%C3%BC%2B~", "escaped");
    buf_clear(&b);
    s3_escape(&b, "a/b", false);
    is_str(buf_str(&b), "a%2Fb", "a slash, too, in a query");
    ok(s3_unescape(text), "and back");
    is_str(text, "a b+c d", "also what forms do with blanks");
    ok(!s3_unescape(bad) && !s3_unescape(zero), "half a digit, a zero byte");
}

/* --- signatures: the examples that the service's documentation has --- */

struct example {
    const char *method, *path, *query, *payload;
    const char *headers[8];
    const char *signature;
};

#define EMPTY "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
#define HELLO "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"

static const struct example examples[] = {
    {"GET", "/test.txt", "", EMPTY, {"range", "bytes=0-9"},
     "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"},
    {"PUT", "/test%24file.text", "", HELLO,
     {"x-amz-storage-class", "REDUCED_REDUNDANCY", "date",
      "Fri, 24 May 2013 00:00:00 GMT"},
     "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"},
    {"GET", "/", "lifecycle=", EMPTY, {0},
     "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"},
    {"GET", "/", "max-keys=2&prefix=J", EMPTY, {0},
     "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"},
};

static void test_signatures(void)
{
    for (size_t i = 0; i < ARRAY_SIZE(examples); i++) {
        const struct example *x = &examples[i];
        _strlist_ struct strlist headers = {0};
        _buf_ struct buf b = {0};
        const char *signature;

        strlist_add_all(&headers, (char *const *)x->headers);
        strlist_add(&headers, "host");
        strlist_add(&headers, "examplebucket.s3.amazonaws.com");
        strlist_add(&headers, "x-amz-date");
        strlist_add(&headers, "20130524T000000Z");
        strlist_add(&headers, "x-amz-content-sha256");
        strlist_add(&headers, x->payload);
        is_int(s3_sign(&(struct s3_signing){
                           .key_id = "AKIAIOSFODNN7EXAMPLE",
                           .secret = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                           .region = "us-east-1", .now = 1369353600,
                           .method = x->method, .path = x->path,
                           .query = x->query, .headers = &headers,
                           .payload = x->payload},
                       &b),
               0, "example %zu", i);
        signature = strstr(buf_str(&b), "Signature=");
        is_str(signature ? signature + 10 : NULL, x->signature, "its signature");
    }
}

static void test_sums(void)
{
    unsigned char md5[S3_MD5_BYTES];
    char text[S3_SHA256_TEXT_BYTES];

    is_int(s3_md5("hello", 5, md5), 0, "MD5");
    s3_md5_base64(md5, text);
    is_str(text, "XUFAKrxLKna5cZ2REBfFkg==", "as a header");
    s3_md5_hex(md5, text);
    is_str(text, "5d41402abc4b2a76b9719d911017c592", "as an ETag");
    is_int(s3_sha256_text("", 0, text), 0, "SHA-256");
    is_str(text, EMPTY, "of nothing");
}

/* --- headers --- */

static void take_lines(struct s3_head *h, const char *lines)
{
    *h = (struct s3_head){.retry_after_s = -1};
    while (*lines) {
        size_t n = strcspn(lines, "\n");

        s3_head_line(h, lines, n + (lines[n] == '\n'), 1369353600);
        lines += n + (lines[n] == '\n');
    }
}

static void test_headers(void)
{
    struct s3_head h;

    take_lines(&h, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 206 Partial\r\n"
                   "ETag: \"abc\"\r\ncontent-length: 12\r\n"
                   "X-Amz-Meta-Muster-Digest:  0011 \r\n"
                   "Date: Fri, 24 May 2013 00:00:00 GMT\r\n\r\n");
    is_int(h.status, 206, "the last status");
    is_str(h.etag, "\"abc\"", "the ETag with its quotes");
    is_str(h.digest, "0011", "the digest, without blanks");
    ok(h.has_length && h.length == 12, "the length");
    is_int(h.date, 1369353600, "the date");
    is_int(h.retry_after_s, -1, "no word about trying again");
    take_lines(&h, "HTTP/1.1 503 Slow\r\nRetry-After: 7\r\n");
    is_int(h.retry_after_s, 7, "seconds");
    take_lines(&h, "HTTP/1.1 503 Slow\r\nDate: Fri, 24 May 2013 00:00:00 GMT\r\n"
                   "Retry-After: Fri, 24 May 2013 00:00:09 GMT\r\n");
    is_int(h.retry_after_s, 9, "a date, by the server's clock");
    take_lines(&h, "HTTP/1.1 503 Slow\r\nRetry-After: 99999999\r\n");
    is_int(h.retry_after_s, 300, "not for ever");
    take_lines(&h, "HTTP/1.1 200 OK\r\nContent-Length: -1\r\nDate: nonsense\r\n");
    ok(!h.has_length && h.date == 0, "nonsense is nothing");
}

static void test_retry_after(void)
{
    static const struct {
        const char *lines;
        int64_t want;
    } cases[] = {
        {"Retry-After: Fri, 24 May 2013 00:00:09 GMT\n", 9}, /* by our clock */
        {"Date: Fri, 24 May 2013 00:00:04 GMT\n"
         "Retry-After: Fri, 24 May 2013 00:00:09 GMT\n", 5},
        {"Retry-After: Thu, 23 May 2013 00:00:09 GMT\n", 0},
        {"Retry-After: Sat, 25 May 2013 00:00:09 GMT\n", 300},
        {"Retry-After: 299\n", 299},
        {"Retry-After: soon\n", -1},
        {"Retry-After: \n", -1},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct s3_head h;
        char lines[256];

        snprintf(lines, sizeof(lines), "HTTP/1.1 503 Slow\n%s", cases[i].lines);
        take_lines(&h, lines);
        is_int(h.retry_after_s, cases[i].want, "%s", cases[i].lines);
    }
}

static void test_odd_lines(void)
{
    static const struct {
        const char *line;
        int status;
    } cases[] = {
        {"HTTP/2 204", 204}, {"http/1.1 404 x", 404}, {"HTTP/1.1 2001", 200},
        {"HTTP/1.1 20 OK", 20}, {"HTTP/1.1 20A", 20}, {"HTTP/1.1 ", 206},
        {"HTTP/1.1", 206}, {"HTTPS 500", 206}, {"", 206}, {" \r\n", 206}, {":", 206},
    };
    char line[1100];
    struct s3_head h;

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        take_lines(&h, "HTTP/1.1 206 Partial\n");
        s3_head_line(&h, cases[i].line, strlen(cases[i].line), 0);
        is_int(h.status, cases[i].status, "'%s'", cases[i].line);
    }
    for (size_t len = 1023; len <= sizeof(line); len += len == 1023 ? 1 : 76) {
        take_lines(&h, "HTTP/1.1 206 Partial\n");
        memset(line, ' ', sizeof(line));
        memcpy(line, "content-length:", 15);
        line[len - 1] = '7';
        s3_head_line(&h, line, len, 0);
        is_int(h.has_length, len < 1024, "a line of %zu bytes", len);
    }
    s3_head_line(&h, "etag: a\0b", 9, 0);
    is_str(h.etag, "", "one with a zero byte");
    s3_head_line(&h, "etag: a\t \r\n", 11, 0);
    is_str(h.etag, "a", "one with blanks behind it");
}

/* Refused without a word, by clocks that are so far apart. */
static void test_clocks(void)
{
    static const struct {
        int status;
        time_t date, now;
        const char *code;
        enum s3_next next;
    } cases[] = {
        {403, 1000240, 1000000, "", S3_GIVE_UP}, {403, 1000241, 1000000, "", S3_ADJUST},
        {403, 1000000, 1000240, "", S3_GIVE_UP}, {403, 1000000, 1000241, "", S3_ADJUST},
        {404, 1000000, 1009999, "", S3_GIVE_UP}, {500, 1000000, 1009999, "", S3_AGAIN},
        {403, 0, 1000000, "", S3_GIVE_UP}, {403, 0, 1000000, "SlowDown", S3_AGAIN},
        {403, 0, 1000000, "RequestTimeTooSkewed", S3_GIVE_UP}, /* with which clock? */
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct s3_head h = {.status = cases[i].status, .date = cases[i].date};
        struct s3_outcome o = {.has_answer = true, .head = &h, .now = cases[i].now,
                               .code = cases[i].code};

        is_int(s3_what_next(&o), cases[i].next, "%d of %lld, at %lld %s", h.status,
               (long long)h.date, (long long)o.now, o.code);
    }
}

static void test_what_next(void)
{
    static const struct {
        int status;
        const char *code;
        enum s3_next next;
    } rows[] = {
        {503, "SlowDown", S3_AGAIN},      {500, "", S3_AGAIN},
        {429, "", S3_AGAIN},              {403, "AccessDenied", S3_GIVE_UP},
        {403, "SignatureDoesNotMatch", S3_GIVE_UP},
        {404, "NoSuchKey", S3_GIVE_UP},   {400, "BadDigest", S3_AGAIN},
        {200, "InternalError", S3_AGAIN}, {412, "PreconditionFailed", S3_GIVE_UP},
        {409, "ConditionalRequestConflict", S3_AGAIN},
        {403, "RequestTimeTooSkewed", S3_ADJUST},
        {400, "RequestExpired", S3_ADJUST},
        {408, "", S3_AGAIN},              {502, "", S3_AGAIN},
        {503, "", S3_AGAIN},              {504, "", S3_AGAIN},
        {501, "", S3_GIVE_UP},            {400, "", S3_GIVE_UP},
        {400, "RequestTimeout", S3_AGAIN},
        {400, "XAmzContentSHA256Mismatch", S3_AGAIN},
        {400, "XAmzContentChecksumMismatch", S3_AGAIN},
        {400, "IncompleteBody", S3_AGAIN}, {409, "OperationAborted", S3_AGAIN},
        {400, "Throttling", S3_AGAIN},    {400, "ThrottlingException", S3_AGAIN},
        {400, "SlowDown", S3_AGAIN},      {400, "ServiceUnavailable", S3_AGAIN},
        {400, "TooManyRequests", S3_AGAIN},
    };
    struct s3_head h = {.date = 1000000};
    struct s3_outcome o = {.has_answer = true, .head = &h, .now = 1000000};

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        h.status = rows[i].status;
        o.code = rows[i].code;
        is_int(s3_what_next(&o), rows[i].next, "%d %s", h.status, o.code);
    }
    o.is_adjusted = true;
    o.code = "RequestTimeTooSkewed";
    is_int(s3_what_next(&o), S3_GIVE_UP, "the clock is taken once");
    o.is_adjusted = false;
    o.code = "";
    h.status = 403;
    o.now += 3600;
    is_int(s3_what_next(&o), S3_ADJUST, "refused without a word, an hour apart");
    o.now -= 7200;
    is_int(s3_what_next(&o), S3_ADJUST, "in either direction");
    test_clocks();
    o.is_cut = true;
    h.status = 404;
    is_int(s3_what_next(&o), S3_AGAIN, "an answer that is cut");
    o.is_cut = false;
    o.has_answer = false;
    is_int(s3_what_next(&o), S3_AGAIN, "no answer");
    o.is_hopeless = true;
    is_int(s3_what_next(&o), S3_GIVE_UP, "a certificate that is none");
    for (unsigned n = 1; n < 40; n++) {
        uint64_t ms = s3_wait_ms(n, -1, n * 2654435761u);

        if (ms < 200 || ms > 20000) {
            ok(false, "try %u waits for %llu ms", n, (unsigned long long)ms);
        }
    }
    is_int(s3_wait_ms(1, 7, 12345), 7000 + 12345 % 250, "not before the server says");
    is_int(s3_wait_ms(9, 0, 249), 249, "at once, where it says so");
    is_int(s3_wait_ms(62, -1, 0), 10000, "however often it was tried");
    is_int(s3_wait_ms(1, -1, 0), 200, "and soon at first");
}

/* --- answers --- */

#define TEXT(s) s, strlen(s)

static void test_listing(void)
{
    static const char page[] =
        "<?xml version='1.0'?><ListBucketResult xmlns='http://x/'>"
        "<IsTruncated>true</IsTruncated><NextContinuationToken>t&amp;1"
        "</NextContinuationToken><Contents><Key>a%20b%3C</Key><Size>5</Size>"
        "<Owner><ID>me</ID></Owner></Contents><CommonPrefixes><Prefix>p%2F"
        "</Prefix></CommonPrefixes></ListBucketResult>";
    static const char *const wrong[] = {
        "", "no", "<ListBucketResult>", "<Other><Contents/></Other>",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Key>a</Key><Size>-1</Size></Contents>"
        "</ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<!DOCTYPE x [<!ENTITY a 'b'>]><ListBucketResult/>",
        "<ListBucketResult><Contents><Key>%zz</Key><Size>1</Size></Contents>"
        "</ListBucketResult>",
    };
    _s3_listing_ struct s3_listing l = {0};

    is_int(s3_listing_add(TEXT(page), &l, NULL), 0, "a page");
    is_int(l.n, 1, "one object");
    is_str(l.objects[0].key, "a b<", "its key");
    is_int(l.objects[0].bytes, 5, "its length");
    is_str(l.prefixes.items[0], "p/", "a prefix");
    ok(l.is_truncated, "there is more");
    is_str(l.next, "t&1", "behind this");
    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++) {
        _s3_listing_ struct s3_listing bad = {0};

        is_int(s3_listing_add(TEXT(wrong[i]), &bad, NULL), -ERR_FORMAT,
               "damaged: %s", wrong[i]);
    }
}

static void test_uploads(void)
{
    static const char page[] =
        "<ListMultipartUploadsResult><Upload><Key>k</Key><UploadId>old</UploadId>"
        "<Initiated>2026-01-01T00:00:00.000Z</Initiated></Upload><Upload>"
        "<Key>k</Key><UploadId>new</UploadId><Initiated>2026-01-02T00:00:00.000Z"
        "</Initiated></Upload><Upload><Key>k2</Key><UploadId>other</UploadId>"
        "<Initiated>2026-01-03T00:00:00.000Z</Initiated></Upload>"
        "</ListMultipartUploadsResult>";
    static const char list[] =
        "<ListPartsResult><Part><PartNumber>2</PartNumber><ETag>\"x\"</ETag>"
        "<Size>7</Size></Part><Part><PartNumber>9</PartNumber><ETag>y</ETag>"
        "<Size>7</Size></Part><IsTruncated>true</IsTruncated>"
        "<NextPartNumberMarker>9</NextPartNumberMarker></ListPartsResult>";
    static const char other[] =
        "<ListPartsResponse><Part><PartNumber>1</PartNumber><ETag>z</ETag><Size>7</Size></Part>"
        "</ListPartsResponse>";
    _s3_uploads_ struct s3_uploads u = {.key = "k"};
    struct s3_part parts[3] = {0};
    _free_ char *text = NULL;
    uint64_t next = 0;

    is_int(s3_uploads_add(TEXT(page), &u, NULL), 0, "uploads");
    is_str(u.newest, "new", "the one that began last, of this key");
    is_int(u.ids.n, 2, "all of this key");
    is_int(s3_parts_add(TEXT(list), parts, 3, &next, NULL), 0, "parts");
    ok(!parts[0].is_there && parts[1].is_there && !parts[2].is_there,
       "one of ours");
    is_str(parts[1].etag, "\"x\"", "its ETag");
    is_int(next, 9, "the next page");
    is_int(s3_parts_add(TEXT(other), parts, 3, &next, NULL), 0, "parts, as others call them");
    ok(parts[0].is_there && next == 0, "one, and no further page");
    is_int(s3_parts_add(TEXT("<Parts/>"), parts, 3, &next, NULL), -ERR_FORMAT, "no list");
    is_int(s3_answer_text(TEXT("<R><UploadId>id</UploadId></R>"), "UploadId",
                          &text, NULL),
           0, "a text");
    is_str(text, "id", "its value");
    is_int(s3_answer_text(TEXT("<R/>"), "UploadId", &text, NULL), -ERR_FORMAT,
           "none");
}

static void test_faults(void)
{
    struct s3_fault f;

    s3_fault_read(TEXT("<Error><Code>SlowDown</Code><Message>Wait</Message>"
                       "</Error>"), &f);
    is_str(f.code, "SlowDown", "an error's code");
    is_str(f.message, "Wait", "its message");
    s3_fault_read(TEXT("<html><Code>x</Code></html>"), &f);
    is_str(f.code, "", "a proxy's page is no error of S3");
}

/* --- credentials --- */

static const char *const variables[] = {
    "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN",
    "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3", "AWS_CA_BUNDLE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_EC2_METADATA_SERVICE_ENDPOINT",
};

static int load(struct s3_config *c, struct error *e)
{
    s3_config_release(c);
    *e = (struct error){0};
    return s3_config_load(c, e);
}

static void test_config(void)
{
    _s3_config_ struct s3_config c = {0};
    struct error e = {0};
    char dir[] = "/tmp/s3_test.XXXXXX", path[64];
    static const char credentials[] =
        "# mine\n[default]\naws_access_key_id = one\naws_secret_access_key=two=2\n"
        "[work]\naws_access_key_id=three\naws_secret_access_key=four\n"
        "aws_session_token=five\n";
    static const char config[] =
        "[profile work]\nregion = eu-west-1\n"
        "s3 =\n  endpoint_url = http://no\nendpoint_url = https://store:9000/\n"
        "ca_bundle = /etc/passwd\n";

    for (size_t i = 0; i < ARRAY_SIZE(variables); i++) {
        unsetenv(variables[i]);
    }
    setenv("AWS_EC2_METADATA_DISABLED", "true", 1); /* this may be an instance */
    if (!mkdtemp(dir)) {
        bail_out("no directory");
    }
    snprintf(path, sizeof(path), "%s/credentials", dir);
    setenv("AWS_SHARED_CREDENTIALS_FILE", path, 1);
    is_int(load(&c, &e), -EACCES, "no credentials");
    like(e.text, "set AWS_ACCESS_KEY_ID", "and what to do");
    fs_write_replace(path, TEXT(credentials), NULL);
    snprintf(path, sizeof(path), "%s/config", dir);
    fs_write_replace(path, TEXT(config), NULL);
    setenv("AWS_CONFIG_FILE", path, 1);
    is_int(load(&c, &e), 0, "the profile default");
    is_str(c.key_id, "one", "its key");
    is_str(c.secret, "two=2", "its secret");
    ok(!c.token && !c.endpoint && !c.ca_bundle, "nothing more");
    is_str(c.region, "us-east-1", "the region that is the default");
    setenv("AWS_PROFILE", "work", 1);
    is_int(load(&c, &e), 0, "another profile");
    is_str(c.token, "five", "its token");
    is_str(c.region, "eu-west-1", "its region");
    is_str(c.endpoint, "https://store:9000", "its endpoint");
    is_str(c.ca_bundle, "/etc/passwd", "its certificates");
    setenv("AWS_CA_BUNDLE", "/nowhere/ca.pem", 1);
    is_int(load(&c, &e), -EINVAL, "certificates that are not there");
    like(e.text, "AWS_CA_BUNDLE or ca_bundle, /nowhere/ca.pem: No such", "named");
    unsetenv("AWS_CA_BUNDLE");
    setenv("AWS_ENDPOINT_URL_S3", "ftp://x", 1);
    is_int(load(&c, &e), -EINVAL, "an endpoint that is none");
    setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:99999", 1);
    is_int(load(&c, &e), -EINVAL, "one with a port that is none");
    like(e.text, "'http://127.0.0.1:99999' (AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL or",
         "is told with the variables");
    setenv("AWS_ENDPOINT_URL_S3", "http://[::1", 1);
    is_int(load(&c, &e), -EINVAL, "one with half an address");
    setenv("AWS_ENDPOINT_URL_S3", "http://[::1]:9000/path", 1);
    is_int(load(&c, &e), 0, "one with a whole one");
    setenv("AWS_ENDPOINT_URL_S3", "http://x", 1);
    setenv("AWS_ACCESS_KEY_ID", "id", 1);
    is_int(load(&c, &e), -EACCES, "half of the environment's");
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    is_int(load(&c, &e), 0, "the environment comes first");
    is_str(c.key_id, "id", "its key");
    ok(!c.token, "and no token of a profile");
    unsetenv("AWS_ACCESS_KEY_ID");
    unsetenv("AWS_SECRET_ACCESS_KEY");
    setenv("AWS_PROFILE", "nobody", 1);
    is_int(load(&c, &e), -EINVAL, "a profile that is not there");
    like(e.text, "'nobody'", "named");
    setenv("AWS_PROFILE", "work", 1);
    setenv("AWS_REGION", "eu west", 1);
    is_int(load(&c, &e), -EINVAL, "a region that is none");
    fs_remove_tree(dir, NULL);
}

/* Keys are asked for over the wire in the clear only where nobody else hears it. */
static void test_roles(void)
{
    static const struct {
        const char *url;
        bool may;
    } cases[] = {
        {"https://anywhere/keys", true}, {"http://127.0.0.1:80/keys", true},
        {"http://localhost/keys", true}, {"http://[::1]:1/keys", true},
        {"http://169.254.170.2/keys", true}, {"http://169.254.170.23", true},
        {"http://[fd00:ec2::23]/v1", true}, {"http://169.254.170.21/keys", false},
        {"http://localhost.evil/keys", false}, {"http://127.0.0.1@evil/", false},
        {"http://10.0.0.1/keys", false}, {"ftp://127.0.0.1/", false}, {"", false},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        ok(s3_role_may_ask(cases[i].url) == cases[i].may, "'%s' %s", cases[i].url,
           cases[i].may ? "may be asked" : "may not");
    }
}

/* As the first version has written it: whatever comes later reads it. */
static void test_seal(void)
{
    static const char seal[] =
        "{\"v\":1,\"name\":\"checkpoint-30\",\"kind\":\"hf-trainer\",\"files\":[{\"path\":"
        "\"model.safetensors\",\"bytes\":5083,\"digest\":\"112233445566778899aabbccddeeff00\"},"
        "{\"path\":\"trainer_state.json\",\"bytes\":19,\"digest\":"
        "\"112233445566778899aabbccddeeff00\"}],\"step\":30}\nxxh3 161483d6b112fa58\n";
    static const char name[] = "checkpoint-30-65616fcd";
    _parcel_ struct parcel p = {0};
    struct error e = {0};

    is_int(parcel_unseal(seal, sizeof(seal) - 1, name, &p, &e), 0, "a seal is read: %s", e.text);
    is_str(p.found.name, "checkpoint-30", "what it is of");
    ok(p.found.kind == FOUND_TRAINER && p.found.is_step && p.found.step == 30 && p.n == 2 &&
           p.bytes == 5102 && strcmp(p.items[1].path, "trainer_state.json") == 0 &&
           p.items[1].digest.low == 0x99aabbccddeeff00,
       "and all that it says");
    is_int(parcel_seal(&p, NULL), 0, "sealed again");
    ok(p.seal.len == sizeof(seal) - 1 && memcmp(p.seal.data, seal, p.seal.len) == 0,
       "it has the same bytes");
    is_str(p.name, name, "and the same name");
}

int main(void)
{
    test_roles();
    test_names();
    test_signatures();
    test_sums();
    test_headers();
    test_retry_after();
    test_odd_lines();
    test_what_next();
    test_listing();
    test_uploads();
    test_faults();
    test_config();
    test_seal();
    return tap_done();
}
