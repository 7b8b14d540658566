/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "text.h"

#include "digest.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 4096, MAX_BYTES = 256 << 20 };

struct reader {
    uint8_t *bytes;
    size_t length;
    size_t capacity;
    struct {
        dev_t device;
        ino_t inode;
    } seen[MAX_FILES];
    size_t n_seen;
};

/* Whether the file is new. */
static bool remember(struct reader *r, const struct stat *st)
{
    for (size_t i = 0; i < r->n_seen; i++) {
        if (r->seen[i].device == st->st_dev &&
            r->seen[i].inode == st->st_ino) {
            return false;
        }
    }
    r->seen[r->n_seen].device = st->st_dev;
    r->seen[r->n_seen].inode = st->st_ino;
    r->n_seen++;
    return true;
}

static int make_room(struct reader *r, const char *path, struct failure *f)
{
    size_t capacity = r->capacity ? 2 * r->capacity : 1 << 20;
    uint8_t *grown;

    if (r->length < r->capacity) {
        return 0;
    }
    if (capacity > MAX_BYTES) {
        return failure_set(f, "%s: more than %d MiB of text", path,
                           MAX_BYTES >> 20);
    }
    grown = realloc(r->bytes, capacity);
    if (!grown) {
        return failure_errno(f, ENOMEM, "read %s", path);
    }
    r->bytes = grown;
    r->capacity = capacity;
    return 0;
}

static int read_open_file(struct reader *r, int fd, const char *path,
                          struct failure *f)
{
    for (;;) {
        ssize_t n;
        int rc = make_room(r, path, f);

        if (rc < 0) {
            return rc;
        }
        n = read(fd, r->bytes + r->length, r->capacity - r->length);
        if (n == 0) {
            return 0;
        }
        if (n < 0 && errno != EINTR) {
            return failure_errno(f, errno, "read %s", path);
        }
        r->length += n > 0 ? (size_t)n : 0;
    }
}

static int read_file(struct reader *r, const char *path,
                     const struct stat *st, struct failure *f)
{
    int fd, rc;

    if (r->n_seen == MAX_FILES) {
        return failure_set(f, "%s: more than %d files of text", path,
                           MAX_FILES);
    }
    if (!remember(r, st)) {
        return 0;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0) {
        return failure_errno(f, errno, "open %s", path);
    }
    rc = read_open_file(r, fd, path, f);
    close(fd);
    return rc;
}

/* By bytes, so that the order does not depend on the locale. */
static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int read_entry(struct reader *r, const char *dir, const char *name,
                      struct failure *f)
{
    char path[PATH_MAX];
    struct stat st;

    if ((size_t)snprintf(path, sizeof(path), "%s/%s", dir, name) >=
        sizeof(path)) {
        return failure_errno(f, ENAMETOOLONG, "read %s", dir);
    }
    if (stat(path, &st) < 0) {
        return failure_errno(f, errno, "read %s", path);
    }
    return S_ISREG(st.st_mode) ? read_file(r, path, &st, f) : 0;
}

static int read_directory(struct reader *r, const char *dir,
                          struct failure *f)
{
    struct dirent **entries;
    int n = scandir(dir, &entries, NULL, compare_names);
    int rc = 0;

    if (n < 0) {
        return failure_errno(f, errno, "read directory %s", dir);
    }
    for (int i = 0; i < n; i++) {
        if (rc == 0) {
            rc = read_entry(r, dir, entries[i]->d_name, f);
        }
        free(entries[i]);
    }
    free(entries);
    return rc;
}

static int read_path(struct reader *r, const char *path, struct failure *f)
{
    struct stat st;

    if (stat(path, &st) < 0) {
        return failure_errno(f, errno, "read %s", path);
    }
    if (S_ISDIR(st.st_mode)) {
        return read_directory(r, path, f);
    }
    if (S_ISREG(st.st_mode)) {
        return read_file(r, path, &st, f);
    }
    return failure_set(f, "%s: neither a file nor a directory", path);
}

/* Replaces bytes by codes. */
static int encode(struct text *t, struct failure *f)
{
    bool occurs[256] = {false};
    uint8_t codes[256] = {0};

    for (size_t i = 0; i < t->length; i++) {
        occurs[t->codes[i]] = true;
    }
    for (int byte = 0; byte < 256; byte++) {
        if (occurs[byte]) {
            codes[byte] = (uint8_t)t->n_symbols;
            t->symbols[t->n_symbols++] = (uint8_t)byte;
        }
    }
    if (t->n_symbols < 2) {
        return failure_set(f, "the text has %zu bytes and %u different "
                              "characters: expected at least two",
                           t->length, t->n_symbols);
    }
    for (size_t i = 0; i < t->length; i++) {
        t->codes[i] = codes[t->codes[i]];
    }
    return 0;
}

int text_load(char *const *paths, size_t n_paths, struct text *ret,
              struct failure *f)
{
    struct reader *r = calloc(1, sizeof(*r));
    struct text t = {0};
    int rc = 0;

    if (!r) {
        return failure_errno(f, ENOMEM, "read text");
    }
    for (size_t i = 0; rc == 0 && i < n_paths; i++) {
        rc = read_path(r, paths[i], f);
    }
    t.codes = r->bytes;
    t.length = r->length;
    free(r);
    if (rc == 0) {
        t.digest = digest_of(t.codes, t.length);
        rc = encode(&t, f);
    }
    if (rc < 0) {
        text_release(&t);
        return rc;
    }
    *ret = t;
    return 0;
}

void text_release(struct text *t)
{
    free(t->codes);
    *t = (struct text){0};
}

int text_code(const struct text *t, uint8_t byte)
{
    const uint8_t *at = memchr(t->symbols, byte, t->n_symbols);

    return at ? (int)(at - t->symbols) : -1;
}
