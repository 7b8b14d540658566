/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads a log (log_store.h) from outside, while it may grow and be put aside:
 * every byte once, from the oldest file that there is.
 */
#ifndef MUSTER_LAUNCHER_LOG_READER_H
#define MUSTER_LAUNCHER_LOG_READER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Zero is the start. */
struct log_reader {
    uint64_t number;         /* of the file that is read, as it will be named */
    uint64_t at;             /* in it */
    uint64_t oldest, newest; /* of the full ones, when last looked */
    uint64_t inode;          /* of the one that is written */
    struct timespec looked;  /* the time of the directory then */
    bool is_seeking;         /* what was looked at is older than wanted */
    bool has_no_times;       /* some of it, with a `since_ns` */
    bool has_gap;            /* files were removed before they were read */
};

typedef void log_reader_take_f(void *arg, const char *data, size_t len);

/* Gives what is there and was not given yet; the first time nothing that was
 * written before `since_ns` (0: all). True if there was something. */
bool log_reader_read(struct log_reader *r, const char *path, uint64_t since_ns,
                     log_reader_take_f *take, void *arg);

#endif
