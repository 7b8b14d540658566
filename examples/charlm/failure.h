/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How the parts of this program say what went wrong: they return a negative
 * errno value and word it here; only main() prints.
 */
#ifndef CHARLM_FAILURE_H
#define CHARLM_FAILURE_H

struct failure {
    char text[1024]; /* no full stop, no newline */
};

/* Words a failure. Returns -EINVAL. */
int failure_set(struct failure *f, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* As failure_set(), followed by the name of `error`. Returns -error. */
int failure_errno(struct failure *f, int error, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

#endif
