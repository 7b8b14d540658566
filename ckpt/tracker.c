/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/tracker.h"

#include "base/cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static const char megatron[] = "latest_checkpointed_iteration.txt";
static const char *const files[] = {megatron, "latest", "latest_universal"};

/* --- what a file says --- */

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

/* A name in the directory, and not one that everything may be. */
static bool is_name(const char *s)
{
    return s[0] && s[0] != '.' && !strchr(s, '/');
}

/* Digits as Megatron's directories have them, whatever zeros the file has in front. */
static bool iteration_name(const char *word, char ret[FOUND_NAME_BYTES])
{
    uint64_t n = 0;

    if (strcmp(word, "release") == 0) {
        str_copy(ret, FOUND_NAME_BYTES, word);
        return true;
    }
    if (str_to_u64(word, &n) < 0) {
        return false;
    }
    snprintf(ret, FOUND_NAME_BYTES, "iter_%07" PRIu64, n);
    return true;
}

bool tracker_parse(const char *file, const char *data, size_t len,
                   char ret[FOUND_NAME_BYTES])
{
    char word[FOUND_NAME_BYTES];

    while (len > 0 && is_blank(data[0])) {
        data++;
        len--;
    }
    while (len > 0 && is_blank(data[len - 1])) {
        len--;
    }
    if (len == 0 || len >= sizeof(word) || memchr(data, '\0', len)) {
        return false;
    }
    memcpy(word, data, len);
    word[len] = '\0';
    if (strcmp(file, megatron) == 0) {
        return iteration_name(word, ret);
    }
    str_copy(ret, FOUND_NAME_BYTES, word);
    return is_name(word);
}

/* One that is not there, or no file, says nothing. */
static int read_file(int dir, const char *file, struct strlist *ret)
{
    char text[FOUND_NAME_BYTES + 16], name[FOUND_NAME_BYTES];
    _close_ int fd = openat(dir, file,
                            O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    ssize_t n;

    if (fd < 0) {
        return errno == ENOENT || errno == ELOOP || errno == ENXIO ? 0 : -errno;
    }
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return 0;
    }
    n = pread(fd, text, sizeof(text), 0);
    if (n < 0) {
        return -errno;
    }
    if (tracker_parse(file, text, (size_t)n, name)) {
        strlist_add(ret, name);
    }
    return 0;
}

/* --- links --- */

struct target {
    dev_t dev;
    ino_t ino;
};

struct targets {
    struct target *list; /* owned */
    size_t n, room;
};

static int add_target(struct targets *t, const struct stat *st)
{
    struct target *fresh;

    if (t->n == t->room) {
        fresh = reallocarray(t->list, t->room + 16, sizeof(*fresh));
        if (!fresh) {
            return -ENOMEM;
        }
        t->list = fresh;
        t->room += 16;
    }
    t->list[t->n++] = (struct target){st->st_dev, st->st_ino};
    return 0;
}

static bool is_target(const struct targets *t, const struct stat *st)
{
    for (size_t i = 0; i < t->n; i++) {
        if (t->list[i].dev == st->st_dev && t->list[i].ino == st->st_ino) {
            return true;
        }
    }
    return false;
}

/* What a link leads to; or, once all of those are known, the name of one. A name that is
 * gone by now, or that leads nowhere, says nothing. */
static int look_at(int dir, const char *name, struct targets *t, struct strlist *ret)
{
    struct stat st;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
        return errno == ENOENT ? 0 : -errno;
    }
    if (S_ISLNK(st.st_mode)) {
        return ret || fstatat(dir, name, &st, 0) < 0 ? 0 : add_target(t, &st);
    }
    if (ret && is_target(t, &st)) {
        strlist_add(ret, name);
    }
    return 0;
}

static int look(DIR *d, struct targets *t, struct strlist *ret)
{
    const struct dirent *entry;
    int rc = 0;

    rewinddir(d);
    while (rc == 0 && (errno = 0, entry = readdir(d))) {
        if (is_name(entry->d_name)) {
            rc = look_at(dirfd(d), entry->d_name, t, ret);
        }
    }
    return rc == 0 && !entry ? -errno : rc;
}

static int read_links(int dir, struct strlist *ret)
{
    struct targets t = {0};
    _close_ int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd < 0 ? NULL : fdopendir(fd);
    int rc;

    if (!d) {
        return -errno;
    }
    take_fd(&fd);
    rc = look(d, &t, NULL);
    if (rc == 0 && t.n > 0) {
        rc = look(d, &t, ret);
    }
    closedir(d);
    free(t.list);
    return rc;
}

/* --- all of it --- */

int tracker_read(int dir, struct strlist *ret)
{
    int rc = 0;

    for (size_t i = 0; i < ARRAY_SIZE(files) && rc == 0; i++) {
        rc = read_file(dir, files[i], ret);
    }
    rc = rc < 0 ? rc : read_links(dir, ret);
    return rc == 0 && ret->failed ? -ENOMEM : rc;
}

bool tracker_has(const struct strlist *names, const char *name)
{
    for (size_t i = 0; i < names->n; i++) {
        if (strcmp(names->items[i], name) == 0) {
            return true;
        }
    }
    return false;
}
