/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The log of dm-log-writes (Linux: device-mapper/log-writes.rst): all that was written to
 * a device. A write enters it when the device has been flushed after it, one with FUA
 * when it has come to its end; so what comes before a flush was on the disk by then,
 * and what stands between two flushes without FUA may have been lost before the second.
 */
#ifndef MUSTER_TESTS_LIB_WRITE_LOG_H
#define MUSTER_TESTS_LIB_WRITE_LOG_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { WRITE_LOG_MARK_BYTES = 64 };

struct write_log_entry {
    uint64_t at, n;     /* bytes of the device; n is 0 for a mere flush or mark */
    uint64_t data_at;   /* in the log, what was written there */
    bool is_flush;      /* all before it is on the disk */
    bool is_fua;        /* it is itself */
    bool is_zeroes;     /* discarded: without data */
    char mark[WRITE_LOG_MARK_BYTES]; /* what the program said here, or "" */
};

struct write_log {
    int fd; /* of the caller */
    struct write_log_entry *entries;
    size_t n;
};

/* Reads what is in the log. */
int write_log_open(int fd, struct write_log *ret, struct error *e);
void write_log_close(struct write_log *l);

/* Reads what an entry wrote, all of its n bytes. */
int write_log_data(const struct write_log *l, const struct write_log_entry *en,
                   void *to, struct error *e);

#endif
