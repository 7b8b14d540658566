/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/torch_archive.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PICKLE_BYTES (UINT64_C(1) << 30)

static const char DATA[] = "data/";

void torch_archive_release(struct torch_archive *a)
{
    zip_release(&a->zip);
    free(a->storages);
    *a = (struct torch_archive){0};
}

/* "archive/" of "archive/data.pkl": what all names begin with; 0 if there is no
 * such name. */
static size_t prefix_of(const struct zip *z)
{
    for (size_t i = 0; i < z->n; i++) {
        const char *slash = strchr(z->entries[i].name, '/');

        if (slash && strcmp(slash, "/data.pkl") == 0) {
            return (size_t)(slash - z->entries[i].name) + 1;
        }
    }
    return 0;
}

static int by_name(const void *a, const void *b)
{
    const struct zip_entry *const *x = a, *const *y = b;

    return strcmp((*x)->name, (*y)->name);
}

static int list_storages(struct torch_archive *a, struct error *e)
{
    a->storages = calloc(a->zip.n + 1, sizeof(const struct zip_entry *));
    if (!a->storages) {
        return error_set(e, ENOMEM, "look at storages");
    }
    for (size_t i = 0; i < a->zip.n; i++) {
        const char *name = a->zip.entries[i].name;

        if (strlen(name) > a->prefix &&
            strncmp(name + a->prefix, DATA, sizeof(DATA) - 1) == 0) {
            a->storages[a->n_storages++] = &a->zip.entries[i];
        }
    }
    qsort(a->storages, a->n_storages, sizeof(*a->storages), by_name);
    return 0;
}

static int take(struct torch_archive *a, struct torch_archive *ret, struct error *e)
{
    int rc;

    a->prefix = prefix_of(&a->zip);
    rc = a->prefix == 0 ? error_text(e, ERR_FORMAT, "the archive is none of torch.save: it "
                                     "has no 'data.pkl'")
                        : list_storages(a, e);
    if (rc < 0) {
        torch_archive_release(a);
        return rc;
    }
    *ret = *a;
    return 0;
}

int torch_archive_open(struct io *io, int fd, struct torch_archive *ret, struct error *e)
{
    struct torch_archive a = {0};
    int rc = zip_read(io, fd, &a.zip, e);

    return rc < 0 ? rc : take(&a, ret, e);
}

int torch_archive_open_at(struct io *io, int fd, uint64_t begin, uint64_t end,
                          struct torch_archive *ret, struct error *e)
{
    struct torch_archive a = {0};
    int rc = zip_read_at(io, fd, begin, end, &a.zip, e);

    return rc < 0 ? rc : take(&a, ret, e);
}

/* Others' names may be shorter than the part that is left out. */
const struct zip_entry *torch_archive_find(const struct torch_archive *a, const char *name)
{
    for (size_t i = 0; i < a->zip.n; i++) {
        const struct zip_entry *entry = &a->zip.entries[i];

        if (strlen(entry->name) > a->prefix && strcmp(entry->name + a->prefix, name) == 0) {
            return entry;
        }
    }
    return NULL;
}

static int compare_keys(const char *name, const char *key, size_t len)
{
    size_t n = strlen(name), least = n < len ? n : len;
    int rc = memcmp(name, key, least);

    return rc ? rc : n < len ? -1 : n > len;
}

const struct zip_entry *torch_archive_storage(const struct torch_archive *a, const char *key,
                                              size_t len)
{
    size_t from = 0, to = a->n_storages, skip = a->prefix + sizeof(DATA) - 1;

    while (from < to) {
        size_t middle = from + (to - from) / 2;
        int rc = compare_keys(a->storages[middle]->name + skip, key, len);

        if (rc == 0) {
            return a->storages[middle];
        }
        from = rc < 0 ? middle + 1 : from;
        to = rc < 0 ? to : middle;
    }
    return NULL;
}

int torch_archive_pickle(struct io *io, int fd, const struct torch_archive *a, char **ret,
                         size_t *ret_len, struct error *e)
{
    const struct zip_entry *entry = torch_archive_find(a, "data.pkl");
    uint64_t bytes = entry->end - entry->begin;
    _free_ char *data = bytes <= MAX_PICKLE_BYTES ? malloc(bytes + 1) : NULL;
    int rc;

    if (!data) {
        return error_set(e, ENOMEM, "a pickle of %llu bytes",
                         (unsigned long long)bytes);
    }
    rc = io_read_all(io, fd, data, bytes, entry->begin);
    if (rc < 0) {
        return error_set(e, -rc, "read data.pkl");
    }
    *ret = take_ptr(&data);
    *ret_len = bytes;
    return 0;
}
