/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/torch_file.h"

#include "base/cleanup.h"
#include "ckpt/pickle.h"
#include "ckpt/torch_archive.h"
#include "ckpt/torch_storages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 1 << 20 };

static bool is_storage(const struct zip_entry *entry, size_t prefix)
{
    return strncmp(entry->name + prefix, "data/", 5) == 0;
}

/* Of a storage that is left for others to write, as by torch.cuda.gds
 * (torch.serialization.skip_data()), torch.save has no checksum, and says 0. */
static bool is_left_out(const struct zip_entry *entry, size_t prefix)
{
    return is_storage(entry, prefix) && entry->crc == 0 && entry->end > entry->begin;
}

static int check_names(const struct torch_archive *a, struct torch_file *ret, struct error *e)
{
    const struct zip *z = &a->zip;
    size_t prefix = a->prefix;
    bool has_checksum = false, has_bytes = false;

    for (size_t i = 0; i < z->n; i++) {
        const struct zip_entry *entry = &z->entries[i];

        if (strncmp(entry->name, z->entries[0].name, prefix) != 0) {
            return error_text(e, ERR_FORMAT, "the archive is none of "
                              "torch.save: its names differ in their first "
                              "part");
        }
        if (is_storage(entry, prefix)) {
            ret->n_storages++;
            ret->bytes += entry->end - entry->begin;
        }
        has_bytes = has_bytes || entry->end > entry->begin;
        has_checksum = has_checksum || entry->crc != 0;
        ret->lacks_checksums = ret->lacks_checksums || is_left_out(entry, prefix);
    }
    ret->has_no_checksums = has_bytes && !has_checksum;
    if (!torch_archive_find(a, "version")) {
        return error_text(e, ERR_FORMAT, "the archive is none of torch.save: it "
                          "has no 'version'");
    }
    return 0;
}

/* --- storages --- */

struct storages {
    const struct torch_archive *archive;
    bool is_wrong;
    struct error *e;
};

static bool is_key(const struct torch_storage *one)
{
    for (size_t i = 0; i < one->len; i++) {
        if (one->key[i] < '0' || one->key[i] > '9') {
            return false;
        }
    }
    return one->len > 0 && one->len < 20;
}

/* What data.pkl says of one. */
static int check_storage(void *arg, const struct torch_storage *one)
{
    struct storages *s = arg;
    const struct zip_entry *entry = torch_archive_storage(s->archive, one->key, one->len);
    uint64_t bytes = entry ? entry->end - entry->begin : 0;

    if (!one->element || !one->has_n || !is_key(one)) {
        return 0;
    }
    s->is_wrong = !entry || bytes % one->element || bytes / one->element != one->n;
    return !s->is_wrong ? 0
           : !entry     ? error_text(s->e, ERR_FORMAT, "it names a storage, data/%.*s, that is "
                                     "missing", (int)one->len, one->key)
                        : error_text(s->e, ERR_FORMAT, "of data/%.*s it says %llu elements of "
                                     "%u, and that has %llu bytes", (int)one->len, one->key,
                                     (unsigned long long)one->n, one->element,
                                     (unsigned long long)bytes);
}

static int check_storages(const struct torch_archive *a, const char *pickle, size_t len,
                          struct error *e)
{
    struct storages s = {.archive = a, .e = e};
    /* More than that can be known of a pickle is no damage of it. */
    int rc = torch_storages(pickle, len, check_storage, &s, NULL);

    return s.is_wrong || rc == -ENOMEM ? rc : 0;
}

static int check_pickle(struct io *io, int fd, const struct torch_archive *a, struct error *e)
{
    _free_ char *data = NULL;
    size_t bytes = 0, len = 0;
    int rc = torch_archive_pickle(io, fd, a, &data, &bytes, e);

    if (rc < 0) {
        return rc;
    }
    rc = pickle_check(data, bytes, &len, e);
    if (rc == 0 && len != bytes) {
        rc = error_text(e, ERR_FORMAT, "data.pkl ends at its byte %zu of %zu", len, bytes);
    }
    rc = rc < 0 ? rc : check_storages(a, data, bytes, e);
    return rc < 0 ? error_wrap(e, "data.pkl") : 0;
}

static int check_bytes(struct io *io, int fd, const struct zip *z, size_t prefix,
                       struct error *e)
{
    _free_ void *block = malloc(BLOCK_BYTES);
    int rc = block ? 0 : error_set(e, ENOMEM, "verify a file of torch.save");

    for (size_t i = 0; i < z->n && rc == 0; i++) {
        if (!is_left_out(&z->entries[i], prefix)) {
            rc = zip_verify(io, fd, &z->entries[i], block, BLOCK_BYTES, e);
        }
    }
    return rc;
}

int torch_file_check(struct io *io, int fd, bool is_deep,
                     struct torch_file *ret, struct error *e)
{
    struct torch_file facts = {0};
    _torch_archive_ struct torch_archive a = {0};
    int rc = torch_archive_open(io, fd, &a, e);

    rc = rc < 0 ? rc : check_names(&a, &facts, e);
    rc = rc < 0 ? rc : check_pickle(io, fd, &a, e);
    if (rc == 0 && is_deep && !facts.has_no_checksums) {
        rc = check_bytes(io, fd, &a.zip, a.prefix, e);
    }
    if (rc == 0) {
        *ret = facts;
    }
    return rc;
}

bool torch_file_is_program(struct io *io, int fd)
{
    return zip_mentions(io, fd, "/constants.pkl") ||
           zip_mentions(io, fd, "/archive_format");
}

bool torch_file_is_other(struct io *io, int fd)
{
    static const char entry[] = "PK\1\2"; /* what each begins with, there */

    return zip_mentions(io, fd, entry) && !zip_mentions(io, fd, "/data.pkl") &&
           !zip_mentions(io, fd, "/version");
}

/* --- what is under keys --- */

struct search {
    struct torch_asked *asked;
    size_t n;
    bool *was_key;    /* of each: it was the last value */
    bool *was_behind; /* of each: what comes before it has come */
};

static void take_answer(struct torch_asked *a, const struct pickle_value *v)
{
    if (v->is_number && !a->is_number) {
        a->number = v->number;
        a->is_number = true;
    }
    a->is_none = a->is_there ? a->is_none : v->is_none;
    a->is_there = true;
}

static int take_value(void *arg, const struct pickle_value *v)
{
    struct search *s = arg;
    bool has_all = true;

    for (size_t i = 0; i < s->n; i++) {
        struct torch_asked *a = &s->asked[i];

        if (s->was_key[i]) {
            take_answer(a, v);
        }
        s->was_key[i] = s->was_behind[i] && pickle_is_text(v, a->key);
        s->was_behind[i] |= a->behind && pickle_is_text(v, a->behind);
        has_all = has_all && a->is_number;
    }
    return has_all ? -ECANCELED : 0;
}

void torch_file_ask(struct io *io, int fd, struct torch_asked *asked, size_t n)
{
    _free_ bool *was = calloc(2 * n + 1, sizeof(*was));
    struct search s = {.asked = asked, .n = n, .was_key = was,
                       .was_behind = was ? was + n : NULL};
    _torch_archive_ struct torch_archive a = {0};
    _free_ char *data = NULL;
    size_t len = 0;

    if (!was || torch_archive_open(io, fd, &a, NULL) < 0 ||
        torch_archive_pickle(io, fd, &a, &data, &len, NULL) < 0) {
        return;
    }
    for (size_t i = 0; i < n; i++) {
        s.was_behind[i] = !asked[i].behind;
    }
    pickle_values(data, len, take_value, &s, NULL);
}

bool torch_file_number(struct io *io, int fd, const char *key, uint64_t *ret)
{
    struct torch_asked asked = {.key = key};

    torch_file_ask(io, fd, &asked, 1);
    *ret = asked.is_number ? asked.number : *ret;
    return asked.is_number;
}
