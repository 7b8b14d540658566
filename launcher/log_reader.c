/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file that is written, PATH, is PATH.N once it is full, with N one more than
 * the last. So the place of a reader is N and an offset, whatever name the file
 * has just now: what PATH names is file N only as long as there is no PATH.N.
 */
#include <config.h>

#include "launcher/log_reader.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"
#include "launcher/log_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 65536, MAX_INDEX_BYTES = 8 << 20 };

/* Looks which full ones there are, where something in the directory changed. Its
 * time has ticks of milliseconds, in which a file may be filled: `force`. */
static void look(struct log_reader *r, const char *path, bool force)
{
    const char *slash = strrchr(path, '/');
    char dir[PATH_MAX];
    struct stat st;
    struct dirent *d;
    DIR *all;

    str_copy(dir, (size_t)(slash - path) + 1, path);
    if (stat(dir, &st) < 0 ||
        (!force &&
         memcmp(&st.st_mtim, &r->looked, sizeof(r->looked)) == 0)) {
        return;
    }
    all = opendir(dir);
    r->oldest = UINT64_MAX;
    r->newest = 0;
    while (all && (d = readdir(all))) {
        uint64_t n = log_store_number(slash + 1, d->d_name);

        r->newest = n > r->newest ? n : r->newest;
        r->oldest = n && n < r->oldest ? n : r->oldest;
    }
    if (all) {
        closedir(all);
        r->looked = st.st_mtim;
    }
}

static int open_number(const char *path, uint64_t number)
{
    char full[PATH_MAX];

    snprintf(full, sizeof(full), "%s.%" PRIu64, path, number);
    return open(number ? full : path,
                O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

/* Whether what PATH named when it was opened was put aside before that. */
static bool is_later(struct log_reader *r, const char *path, int fd)
{
    struct stat st;
    bool is_other = fstat(fd, &st) == 0 && st.st_ino != r->inode;

    r->inode = is_other ? st.st_ino : r->inode;
    look(r, path, is_other);
    return r->newest >= r->number;
}

/* The file to read, -1 if there is none; it is full if that is its name. */
static int open_next(struct log_reader *r, const char *path, bool *ret_is_full)
{
    for (;;) {
        int fd;

        look(r, path, false);
        if (r->number < r->oldest && r->newest) {
            r->has_gap |= r->number > 0;
            r->at = r->number ? 0 : r->at;
            r->number = r->oldest;
        } else if (!r->number) {
            r->number = 1;
        }
        fd = open_number(path, r->number);
        *ret_is_full = fd >= 0;
        if (fd >= 0) {
            return fd;
        }
        if (r->number <= r->newest) {
            r->number++; /* removed just now */
            r->at = 0;
            r->has_gap = true;
            continue;
        }
        fd = open_number(path, 0);
        if (fd < 0) {
            return -1;
        }
        if (!is_later(r, path, fd)) {
            return fd;
        }
        close(fd);
    }
}

/* Where to begin in a file. */
static uint64_t find_start(struct log_reader *r, const char *path, int fd,
                           bool is_full, uint64_t since_ns)
{
    _free_ char *index = NULL;
    char times[PATH_MAX], number[32] = "";
    size_t len = 0;
    struct stat st;
    uint64_t written_ns;

    if (fstat(fd, &st) < 0) {
        return 0;
    }
    if (is_full) {
        snprintf(number, sizeof(number), ".%" PRIu64, r->number);
    }
    snprintf(times, sizeof(times), "%s%s" LOG_INDEX_SUFFIX, path, number);
    written_ns = (uint64_t)st.st_mtim.tv_sec * 1000000000u +
                 (uint64_t)st.st_mtim.tv_nsec;
    if (fs_read_regular(times, MAX_INDEX_BYTES, &index, &len, NULL) < 0 ||
        !len) {
        r->has_no_times |= written_ns >= since_ns && st.st_size;
        return log_index_find("", 0, since_ns, written_ns,
                              (uint64_t)st.st_size);
    }
    return log_index_find(index, len, since_ns, written_ns,
                          (uint64_t)st.st_size);
}

static bool read_to_end(struct log_reader *r, int fd, log_reader_take_f *take,
                        void *arg)
{
    _free_ char *data = malloc(CHUNK);
    bool some = false;
    ssize_t n;

    while (data && (n = pread(fd, data, CHUNK, (off_t)r->at)) > 0) {
        take(arg, data, (size_t)n);
        r->at += (uint64_t)n;
        some = true;
    }
    return some;
}

bool log_reader_read(struct log_reader *r, const char *path, uint64_t since_ns,
                     log_reader_take_f *take, void *arg)
{
    bool some = false, is_full = true;

    while (is_full) {
        bool is_first = !r->number || r->is_seeking;
        _close_ int fd = open_next(r, path, &is_full);

        if (fd < 0) {
            break;
        }
        if (is_first && since_ns) {
            struct stat st;

            r->at = find_start(r, path, fd, is_full, since_ns);
            r->is_seeking = fstat(fd, &st) == 0 && is_full &&
                            r->at >= (uint64_t)st.st_size;
        }
        some |= read_to_end(r, fd, take, arg);
        if (is_full) {
            r->number++;
            r->at = 0;
        }
    }
    return some;
}
