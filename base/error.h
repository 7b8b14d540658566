/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one error channel. A function that can fail returns 0 or a negative code
 * and words the failure into the caller's `struct error`, which may be NULL.
 * The first detector words it, each layer above may add context once, and only
 * the command (or the agent's log) prints. Codes are errno values, or one of
 * `enum error_code` where errno has no name for it.
 */
#ifndef MUSTER_BASE_ERROR_H
#define MUSTER_BASE_ERROR_H

#include <stddef.h>

enum error_code {
    ERR_SPEC = 2000,    /* the job spec is wrong */
    ERR_USAGE = 2001,   /* the command line is wrong */
    ERR_AUTH = 2002,    /* a peer does not know the job key */
    ERR_VERSION = 2003, /* a peer or a file of another version */
    ERR_FORMAT = 2004,  /* bytes from outside that do not parse */
    ERR_LOST = 2005,    /* a peer or a member is gone */
    ERR_LOCKED = 2006,  /* somebody else runs this */
    ERR_SUSPENDED = 2007, /* it is not to run before somebody says so */
    ERR_DEADLINE = 2008,  /* it has had its time */
};

struct error {
    int code;        /* 0, or the positive code */
    char text[1024]; /* no full stop, no newline at the end */
};

/* Words a failure. Returns -code. A system error's name is added to the text
 * when `code` is an errno value, and where a limit of this process may be what it is of
 * (EMFILE, EFBIG) the limit. */
int error_set(struct error *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* As error_set(), for texts that already say everything: nothing is added. */
int error_text(struct error *e, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts "context: " before the text. Returns -code of the error in `e`, or -EIO
 * where `e` is NULL. */
int error_wrap(struct error *e, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

#endif
