/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A log on disk: PATH, beside it the times at which it was written
 * (log_index.h), and, with a limit to its size, what was written before, as PATH.1
 * (the oldest), PATH.2 and so on. For the thread that writes; log_reader.h reads.
 *
 * No file gets larger than the limit. It is left for the next one at the end of a
 * line in its last quarter (128 KiB at most), so that only a line that is
 * longer than that can lie in two files.
 */
#ifndef MUSTER_LAUNCHER_LOG_STORE_H
#define MUSTER_LAUNCHER_LOG_STORE_H

#include "launcher/log_index.h"

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct log_limits {
    uint64_t max_bytes; /* of a file; 0: none */
    uint32_t keep;      /* so many full ones */
};

/* A directory that logs are in. Once it was there it is not made again. */
struct log_root {
    char path[PATH_MAX]; /* "": none */
    bool was_there;
    bool is_removed;
};

struct log_store {
    const char *path;         /* borrowed, as is the root */
    struct log_root *root;
    struct log_limits limits;
    int fd, index_fd;         /* -1: not open */
    uint64_t size;
    uint64_t line_at;         /* where the last line begins */
    bool is_full;             /* what comes next goes to a new file */
    uint64_t n_full;          /* the greatest number of a full one */
    uint64_t oldest;          /* the least one that may be there */
    struct log_index index;
};

/* Looks whether it is gone. It stays so, even if somebody makes it anew. */
bool log_root_is_removed(struct log_root *r);

/* `root` may be NULL. */
struct log_store log_store(const char *path, const struct log_limits *limits,
                           struct log_root *root);

/* Appends; file and directories are made with the first byte. Returns how many
 * bytes could not be written, and why in *ret_code (negative). */
size_t log_store_append(struct log_store *s, const char *data, size_t len,
                        uint64_t wall_ns, int *ret_code);

void log_store_close(struct log_store *s);

/* How much of `len` bytes goes to a file of `size` bytes, and whether it is full
 * then. Pure. */
size_t log_store_fit(uint64_t max_bytes, uint64_t size, const char *data,
                     size_t len, bool *ret_is_full);

/* The number in a name such as "stdout.12" of the log "stdout"; 0: none. */
uint64_t log_store_number(const char *log, const char *name);

#endif
