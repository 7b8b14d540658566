/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/log_store.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "base/str.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_SLACK = 128 << 10, MAX_BEGUN = 4 << 10, MAX_DIGITS = 18 };

bool log_root_is_removed(struct log_root *r)
{
    bool is_there = r->path[0] && access(r->path, F_OK) == 0;

    r->is_removed = r->is_removed || (r->was_there && !is_there);
    r->was_there = r->was_there || is_there;
    return r->is_removed;
}

struct log_store log_store(const char *path, const struct log_limits *limits,
                           struct log_root *root)
{
    return (struct log_store){.path = path, .root = root, .limits = *limits, .fd = -1,
                              .index_fd = -1, .oldest = 1};
}

size_t log_store_fit(uint64_t max_bytes, uint64_t size, const char *data,
                     size_t len, bool *ret_is_full)
{
    uint64_t room = size < max_bytes ? max_bytes - size : 0;
    uint64_t slack = max_bytes / 4 < MAX_SLACK ? max_bytes / 4 : MAX_SLACK;
    size_t n = len < room ? len : (size_t)room;
    const char *end;

    *ret_is_full = false;
    if (!max_bytes || size + n < max_bytes - slack) {
        return len;
    }
    end = n ? memrchr(data, '\n', n) : NULL;
    if (end && size + (uint64_t)(end - data) + 1 >= max_bytes - slack) {
        *ret_is_full = true;
        return (size_t)(end - data) + 1;
    }
    *ret_is_full = n == room;
    return n;
}

uint64_t log_store_number(const char *log, const char *name)
{
    size_t len = strlen(log);
    uint64_t n;

    return str_starts(name, log) && name[len] == '.' && name[len + 1] != '0' &&
                   strlen(name + len + 1) <= MAX_DIGITS &&
                   str_to_u64(name + len + 1, &n) == 0
               ? n : 0;
}

static int join(char *to, size_t size, const char *path, uint64_t number,
                const char *suffix)
{
    int n = number ? snprintf(to, size, "%s.%" PRIu64 "%s", path, number,
                              suffix)
                   : snprintf(to, size, "%s%s", path, suffix);

    return n < (int)size ? 0 : -ENAMETOOLONG;
}

/* Those of an earlier life of this log. */
static void find_full(struct log_store *s)
{
    const char *slash = strrchr(s->path, '/');
    char dir[PATH_MAX];
    struct dirent *d;
    DIR *all;

    if (!s->limits.max_bytes || !slash) {
        return;
    }
    str_copy(dir, (size_t)(slash - s->path) + 1, s->path);
    all = opendir(dir);
    s->oldest = UINT64_MAX;
    while (all && (d = readdir(all))) {
        uint64_t n = log_store_number(slash + 1, d->d_name);

        s->n_full = n > s->n_full ? n : s->n_full;
        s->oldest = n && n < s->oldest ? n : s->oldest;
    }
    if (all) {
        closedir(all);
    }
    s->oldest = s->n_full ? s->oldest : 1;
}

static int open_append(const char *path)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY,
                  0600);

    return fd < 0 ? -errno : fd;
}

static int make_dir_of(const char *path)
{
    char dir[PATH_MAX];
    char *slash;
    struct error e = {0};

    str_copy(dir, sizeof(dir), path);
    slash = strrchr(dir, '/');
    if (!slash || slash == dir) {
        return 0;
    }
    *slash = '\0';
    return fs_mkdirs(dir, &e) < 0 ? -e.code : 0;
}

/* Only a file has times beside it. Without them the log is as good. */
static void open_index(struct log_store *s)
{
    char path[PATH_MAX];
    struct stat st;

    s->index = (struct log_index){0};
    if (join(path, sizeof(path), s->path, 0, LOG_INDEX_SUFFIX) == 0) {
        s->index_fd = open_append(path);
    }
    if (s->index_fd >= 0 && fstat(s->index_fd, &st) == 0 && st.st_size) {
        fs_write_all(s->index_fd, "\n", 1); /* its end may be torn */
    }
}

static bool is_removed(const struct log_store *s)
{
    return s->root && log_root_is_removed(s->root);
}

static int open_log(struct log_store *s)
{
    struct stat st;

    s->fd = open_append(s->path);
    if (s->fd == -ENOENT && !is_removed(s)) {
        int rc = make_dir_of(s->path);

        s->fd = rc < 0 ? rc : open_append(s->path);
    }
    if (s->fd < 0) {
        int rc = s->fd;

        s->fd = -1;
        return rc;
    }
    if (fstat(s->fd, &st) == 0 && S_ISREG(st.st_mode)) {
        s->size = (uint64_t)st.st_size;
        s->line_at = s->size;
        open_index(s);
    } else {
        s->limits.max_bytes = 0;
    }
    return 0;
}

void log_store_close(struct log_store *s)
{
    close_fd(&s->fd);
    close_fd(&s->index_fd);
}

static int move(const char *path, uint64_t number, const char *suffix)
{
    char from[PATH_MAX], to[PATH_MAX];

    if (join(from, sizeof(from), path, 0, suffix) < 0 ||
        join(to, sizeof(to), path, number, suffix) < 0) {
        return -ENAMETOOLONG;
    }
    return rename(from, to) < 0 ? -errno : 0;
}

static void drop_oldest(struct log_store *s)
{
    while (s->oldest + s->limits.keep <= s->n_full) {
        char path[PATH_MAX];

        if (join(path, sizeof(path), s->path, s->oldest, "") == 0) {
            unlink(path);
        }
        if (join(path, sizeof(path), s->path, s->oldest,
                 LOG_INDEX_SUFFIX) == 0) {
            unlink(path);
        }
        s->oldest++;
    }
}

/* The times go first: a reader that finds none for a moment shows all. */
static int rotate(struct log_store *s)
{
    int rc;

    log_store_close(s);
    move(s->path, s->n_full + 1, LOG_INDEX_SUFFIX);
    rc = move(s->path, s->n_full + 1, "");
    if (rc < 0) {
        is_removed(s);
        return rc;
    }
    s->n_full++;
    drop_oldest(s);
    s->is_full = false;
    return 0;
}

static int make_ready(struct log_store *s)
{
    int rc = s->is_full ? rotate(s) : 0;

    if (rc < 0 || s->fd >= 0) {
        return rc;
    }
    if (!s->n_full) {
        find_full(s);
    }
    return open_log(s);
}

/* A line counts from its start, unless it is a long one. */
static void note_time(struct log_store *s, uint64_t wall_ns)
{
    _buf_ struct buf entry = {0};

    if (s->index_fd < 0) {
        return;
    }
    log_index_note(&s->index, wall_ns,
                   s->size - s->line_at > MAX_BEGUN ? s->size : s->line_at,
                   &entry);
    if (entry.len) {
        fs_write_all(s->index_fd, entry.data, entry.len);
    }
}

/* Writes what can be written of one piece; returns how much. */
static size_t write_piece(struct log_store *s, const char *data, size_t len,
                          int *ret_code)
{
    size_t at = 0;
    const char *end;

    while (*ret_code == 0 && at < len) {
        ssize_t n = write(s->fd, data + at, len - at);

        if (n >= 0) {
            at += (size_t)n;
        } else if (errno != EINTR) {
            *ret_code = -errno;
        }
    }
    end = at ? memrchr(data, '\n', at) : NULL;
    s->line_at = end ? s->size + (uint64_t)(end - data) + 1 : s->line_at;
    s->size += at;
    return at;
}

size_t log_store_append(struct log_store *s, const char *data, size_t len,
                        uint64_t wall_ns, int *ret_code)
{
    *ret_code = 0;
    while (len && *ret_code == 0) {
        bool is_full;
        size_t n, done;

        *ret_code = make_ready(s);
        if (*ret_code < 0) {
            break;
        }
        n = log_store_fit(s->limits.max_bytes, s->size, data, len, &is_full);
        note_time(s, wall_ns);
        done = write_piece(s, data, n, ret_code);
        s->is_full = is_full && done == n;
        data += done;
        len -= done;
    }
    return len;
}
