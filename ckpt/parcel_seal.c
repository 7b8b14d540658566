/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/parcel.h"

#include "base/cleanup.h"
#include "base/str.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum {
    FORMAT = 1,
    CHECK_BYTES = 5 + 16 + 1, /* "xxh3 ", the digits, a newline */
};

/* --- writing --- */

static json_t *item_json(const struct parcel_item *item)
{
    char digest[DIGEST_TEXT_BYTES];

    digest_format(item->digest, digest);
    return json_pack("{s:s, s:I, s:s}", "path", item->path, "bytes",
                     (json_int_t)item->bytes, "digest", digest);
}

static json_t *to_json(const struct parcel *p)
{
    json_t *files = json_array();
    json_t *all;

    for (size_t i = 0; i < p->n; i++) {
        if (json_array_append_new(files, item_json(&p->items[i])) < 0) {
            json_decref(files);
            return NULL;
        }
    }
    all = json_pack("{s:i, s:s, s:s, s:o}", "v", FORMAT, "name", p->found.name,
                    "kind", found_kind_name(p->found.kind), "files", files);
    if (all && p->found.has_step &&
        json_object_set_new(all, "step",
                            json_integer((json_int_t)p->found.step)) < 0) {
        json_decref(all);
        return NULL;
    }
    return all;
}

int parcel_seal(struct parcel *p, struct error *e)
{
    json_t *json = to_json(p);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    struct digest digest;

    json_decref(json);
    if (!text) {
        return error_text(e, EINVAL, "%s: a file's name is no UTF-8, or there is "
                          "no memory", p->found.name);
    }
    buf_clear(&p->seal);
    buf_printf(&p->seal, "%s\n", text);
    free(text);
    digest = digest_of(p->seal.data, p->seal.len);
    buf_printf(&p->seal, "xxh3 %016llx\n",
               (unsigned long long)digest_short_of(p->seal.data, p->seal.len));
    if (p->seal.failed) {
        return error_set(e, ENOMEM, "%s", p->found.name);
    }
    snprintf(p->name, sizeof(p->name), "%s-%08llx", p->found.name,
             (unsigned long long)digest.high >> 32);
    return 0;
}

/* --- reading --- */

static bool check(const char *data, size_t len, size_t *ret_len)
{
    const char *end = memchr(data, '\n', len);
    char want[CHECK_BYTES + 1];

    if (!end || (size_t)(data + len - end) != 1 + CHECK_BYTES) {
        return false;
    }
    *ret_len = (size_t)(end - data) + 1;
    snprintf(want, sizeof(want), "xxh3 %016llx\n",
             (unsigned long long)digest_short_of(data, *ret_len));
    return memcmp(end + 1, want, CHECK_BYTES) == 0;
}

static bool take_kind(const char *name, enum found_kind *ret)
{
    static const enum found_kind kinds[] = {
        FOUND_TRAINER, FOUND_ACCELERATE, FOUND_DEEPSPEED, FOUND_MEGATRON,
        FOUND_MODEL,   FOUND_DCP,        FOUND_TORCH_DIR, FOUND_TORCH,
        FOUND_SAFETENSORS};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (name && strcmp(name, found_kind_name(kinds[i])) == 0) {
            *ret = kinds[i];
            return true;
        }
    }
    return false;
}

static int take_item(const json_t *from, struct parcel *p, struct error *e)
{
    const char *path = json_string_value(json_object_get(from, "path"));
    const char *digest = json_string_value(json_object_get(from, "digest"));
    const json_t *bytes = json_object_get(from, "bytes");
    struct digest d;

    if (!path || !digest || !json_is_integer(bytes) ||
        json_integer_value(bytes) < 0 || !digest_parse(digest, &d)) {
        return error_text(e, ERR_FORMAT, PARCEL_COPY " has a file without path, "
                          "bytes or digest");
    }
    return parcel_add(p, path, (uint64_t)json_integer_value(bytes), d, e) ==
                   -ENOMEM
               ? -ENOMEM
               : 0;
}

static int take(const json_t *from, struct parcel *p, struct error *e)
{
    const char *name = json_string_value(json_object_get(from, "name"));
    const json_t *files = json_object_get(from, "files");
    const json_t *step = json_object_get(from, "step");
    json_int_t version = json_integer_value(json_object_get(from, "v"));
    size_t n = json_array_size(files);

    if (version > FORMAT) {
        return error_text(e, ERR_VERSION, PARCEL_COPY " of version %lld, and this "
                          "muster knows %d", (long long)version, FORMAT);
    }
    if (version != FORMAT || !name || strlen(name) >= FOUND_NAME_BYTES ||
        strchr(name, '/') || !parcel_is_path(name) ||
        !take_kind(json_string_value(json_object_get(from, "kind")),
                   &p->found.kind) ||
        !json_is_array(files)) {
        return error_text(e, ERR_FORMAT, PARCEL_COPY " lacks a value, or has a "
                          "wrong one");
    }
    str_copy(p->found.name, sizeof(p->found.name), name);
    p->found.has_step = json_is_integer(step) && json_integer_value(step) >= 0;
    p->found.step = p->found.has_step ? (uint64_t)json_integer_value(step) : 0;
    found_recall(&p->found);
    for (size_t i = 0; i < n; i++) {
        int rc = take_item(json_array_get(files, i), p, e);

        if (rc < 0) {
            return rc;
        }
    }
    /* One that was refused by its path, or stands there twice. */
    if (p->n != n || (parcel_is_file(p) &&
                      (n != 1 || strcmp(p->items[0].path, name) != 0))) {
        return error_text(e, ERR_FORMAT, PARCEL_COPY " lists files that cannot be "
                          "of %s", name);
    }
    return 0;
}

int parcel_unseal(const void *data, size_t len, const char *name,
                  struct parcel *ret, struct error *e)
{
    _parcel_ struct parcel p = {0};
    size_t line = 0;
    json_t *json;
    int rc;

    if (!check(data, len, &line)) {
        return error_text(e, ERR_FORMAT, "%s/" PARCEL_COPY " is cut or damaged: its "
                          "%zu bytes do not have the digest that they say", name,
                          len);
    }
    json = json_loadb(data, line, JSON_REJECT_DUPLICATES, NULL);
    rc = json ? take(json, &p, e)
              : error_text(e, ERR_FORMAT, "%s/" PARCEL_COPY " is no JSON", name);
    json_decref(json);
    buf_append(&p.seal, data, len);
    str_copy(p.name, sizeof(p.name), name);
    if (rc == 0 && p.seal.failed) {
        rc = error_set(e, ENOMEM, "%s", name);
    }
    if (rc == 0) {
        *ret = p;
        p = (struct parcel){0};
    }
    return rc;
}
