/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/s3_answer.h"

#include "base/cleanup.h"
#include "base/s3_uri.h"
#include "ckpt/s3_xml.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The name of an element, without those around it. */
static const char *last_of(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

static int keep(char **to, const char *text)
{
    free(*to);
    *to = strdup(text);
    return *to ? 0 : -ENOMEM;
}

/* --- errors --- */

static int take_fault(void *arg, const char *path, const char *text)
{
    struct s3_fault *f = arg;

    if (strcmp(path, "Error/Code") == 0) {
        str_copy(f->code, sizeof(f->code), text);
    } else if (strcmp(path, "Error/Message") == 0) {
        str_copy(f->message, sizeof(f->message), text);
    } else if (strcmp(path, "Error/Region") == 0) {
        str_copy(f->region, sizeof(f->region), text);
    }
    return 0;
}

void s3_fault_read(const void *data, size_t len, struct s3_fault *ret)
{
    struct s3_fault f = {0};

    *ret = f;
    if (s3_xml_walk(data, len, take_fault, &f, NULL) == 0) {
        *ret = f;
    }
}

/* --- lists of objects --- */

struct taking {
    struct s3_listing *to;
    char *key;
    uint64_t bytes;
    bool has_bytes;
};

static int add_object(struct taking *t)
{
    struct s3_listing *l = t->to;

    if (!t->key || !t->has_bytes) {
        return -ERR_FORMAT;
    }
    if (l->n == l->cap) {
        size_t cap = l->cap ? l->cap * 2 : 64;
        struct s3_object *more = reallocarray(l->objects, cap, sizeof(*more));

        if (!more) {
            return -ENOMEM;
        }
        l->objects = more;
        l->cap = cap;
    }
    l->objects[l->n++] = (struct s3_object){take_ptr(&t->key), t->bytes};
    t->has_bytes = false;
    return 0;
}

static int take_prefix(struct s3_listing *l, const char *text)
{
    _free_ char *prefix = strdup(text);

    if (!prefix) {
        return -ENOMEM;
    }
    if (!s3_unescape(prefix)) {
        return -ERR_FORMAT;
    }
    strlist_add(&l->prefixes, prefix);
    return l->prefixes.failed ? -ENOMEM : 0;
}

static int take_listing(void *arg, const char *path, const char *text)
{
    struct taking *t = arg;
    const char *name = last_of(path);

    if (!str_starts(path, "ListBucketResult")) {
        return -ERR_FORMAT;
    }
    if (strcmp(path, "ListBucketResult/Contents/Key") == 0) {
        int rc = keep(&t->key, text);

        return rc < 0 ? rc : s3_unescape(t->key) ? 0 : -ERR_FORMAT;
    }
    if (strcmp(path, "ListBucketResult/Contents/Size") == 0) {
        t->has_bytes = str_to_u64(text, &t->bytes) == 0;
        return t->has_bytes ? 0 : -ERR_FORMAT;
    }
    if (strcmp(path, "ListBucketResult/Contents") == 0) {
        return add_object(t);
    }
    if (strcmp(path, "ListBucketResult/CommonPrefixes/Prefix") == 0) {
        return take_prefix(t->to, text);
    }
    if (strcmp(name, "IsTruncated") == 0) {
        t->to->is_truncated = strcmp(text, "true") == 0;
    }
    return strcmp(name, "NextContinuationToken") == 0 ? keep(&t->to->next, text)
                                                      : 0;
}

int s3_listing_add(const void *data, size_t len, struct s3_listing *to,
                   struct error *e)
{
    struct taking t = {.to = to};
    struct error why = {0};
    int rc;

    to->is_truncated = false;
    rc = s3_xml_walk(data, len, take_listing, &t, &why);
    free(t.key);
    if (rc == 0 && to->is_truncated && (!to->next || !*to->next)) {
        rc = -ERR_FORMAT;
    }
    if (rc < 0) {
        return error_text(e, -rc, "the list of objects is damaged%s%s",
                          why.code ? ": " : "", why.text);
    }
    return 0;
}

/* --- uploads --- */

void s3_uploads_release(struct s3_uploads *u)
{
    strlist_release(&u->ids);
    free(u->newest);
    free(u->next_key);
    free(u->next_id);
    *u = (struct s3_uploads){.key = u->key};
}

struct upload {
    struct s3_uploads *to;
    char *key, *id;
    char began[40];
};

/* Times are RFC 3339 in UTC: their texts are in their order. */
static int add_upload(struct upload *t)
{
    struct s3_uploads *u = t->to;

    if (!t->key || !t->id || strcmp(t->key, u->key) != 0) {
        return 0;
    }
    strlist_add(&u->ids, t->id);
    if (u->ids.failed) {
        return -ENOMEM;
    }
    if (!u->newest || strcmp(t->began, u->began) >= 0) {
        str_copy(u->began, sizeof(u->began), t->began);
        return keep(&u->newest, t->id);
    }
    return 0;
}

static int take_upload(void *arg, const char *path, const char *text)
{
    struct upload *t = arg;
    const char *name = last_of(path);

    if (!str_starts(path, "ListMultipartUploadsResult")) {
        return -ERR_FORMAT;
    }
    if (str_ends(path, "/Upload/Key") || strcmp(name, "NextKeyMarker") == 0) {
        char **to = *name == 'K' ? &t->key : &t->to->next_key;
        int rc = keep(to, text);

        return rc < 0 ? rc : s3_unescape(*to) ? 0 : -ERR_FORMAT;
    }
    if (strcmp(name, "UploadId") == 0) {
        return keep(&t->id, text);
    }
    if (strcmp(name, "NextUploadIdMarker") == 0) {
        return keep(&t->to->next_id, text);
    }
    if (strcmp(name, "Initiated") == 0) {
        str_copy(t->began, sizeof(t->began), text);
    } else if (strcmp(name, "IsTruncated") == 0) {
        t->to->is_truncated = strcmp(text, "true") == 0;
    }
    return strcmp(name, "Upload") == 0 ? add_upload(t) : 0;
}

int s3_uploads_add(const void *data, size_t len, struct s3_uploads *to,
                   struct error *e)
{
    struct upload t = {.to = to};
    int rc;

    to->is_truncated = false;
    rc = s3_xml_walk(data, len, take_upload, &t, NULL);
    free(t.key);
    free(t.id);
    if (rc == 0 && to->is_truncated && (!to->next_key || !*to->next_key)) {
        rc = -ERR_FORMAT;
    }
    return rc < 0 ? error_text(e, -rc, "the list of uploads is damaged") : 0;
}

/* --- parts --- */

struct part {
    struct s3_part *parts;
    size_t n;
    uint64_t number;
    struct s3_part now;
    bool is_truncated;
    uint64_t next;
};

static int take_part(void *arg, const char *path, const char *text)
{
    struct part *t = arg;
    const char *name = last_of(path);

    if (!str_starts(path, "ListParts")) { /* ...Result of most, ...Response of some */
        return -ERR_FORMAT;
    }
    if (strcmp(name, "PartNumber") == 0) {
        return str_to_u64(text, &t->number) < 0 ? -ERR_FORMAT : 0;
    }
    if (strcmp(name, "Size") == 0) {
        return str_to_u64(text, &t->now.bytes) < 0 ? -ERR_FORMAT : 0;
    }
    if (strcmp(name, "ETag") == 0) {
        str_copy(t->now.etag, sizeof(t->now.etag), text);
    } else if (strcmp(name, "NextPartNumberMarker") == 0) {
        t->next = str_to_u64(text, &t->next) < 0 ? 0 : t->next;
    } else if (strcmp(name, "IsTruncated") == 0) {
        t->is_truncated = strcmp(text, "true") == 0;
    } else if (strcmp(name, "Part") == 0) {
        if (t->number >= 1 && t->number <= t->n) {
            t->now.is_there = true;
            t->parts[t->number - 1] = t->now;
        }
        t->number = 0;
        t->now = (struct s3_part){0};
    }
    return 0;
}

int s3_parts_add(const void *data, size_t len, struct s3_part *parts, size_t n,
                 uint64_t *ret_next, struct error *e)
{
    struct part t = {.parts = parts, .n = n};
    int rc = s3_xml_walk(data, len, take_part, &t, NULL);

    if (rc == 0 && t.is_truncated && t.next == 0) {
        rc = -ERR_FORMAT;
    }
    if (rc < 0) {
        return error_text(e, -rc, "the list of parts is damaged");
    }
    *ret_next = t.is_truncated ? t.next : 0;
    return 0;
}

/* --- one text --- */

struct one {
    const char *name;
    char *text;
};

static int take_one(void *arg, const char *path, const char *text)
{
    struct one *o = arg;

    return strcmp(last_of(path), o->name) == 0 ? keep(&o->text, text) : 0;
}

int s3_answer_text(const void *data, size_t len, const char *name, char **ret,
                   struct error *e)
{
    struct one o = {.name = name};
    int rc = s3_xml_walk(data, len, take_one, &o, e);

    if (rc == 0 && (!o.text || !*o.text)) {
        rc = error_text(e, ERR_FORMAT, "the answer has no %s", name);
    }
    if (rc < 0) {
        free(o.text);
        return rc;
    }
    *ret = o.text;
    return 0;
}
