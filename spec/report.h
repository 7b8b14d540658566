/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a value stands, and the list of what was found wrong or noteworthy.
 * A report collects up to REPORT_MAX_ERRORS errors and as many notes as there
 * are, within reason; what comes after is counted, not kept. Text that came from
 * a file is shown so that it cannot drive a terminal.
 */
#ifndef MUSTER_SPEC_REPORT_H
#define MUSTER_SPEC_REPORT_H

#include "spec/spec.h"

#include <stdbool.h>
#include <stddef.h>

#define REPORT_MAX_ERRORS 20
#define REPORT_MAX_NOTES 200
#define REPORT_MAX_TEXT 1000 /* bytes of one message, about */

/* A place in a file, or (line 0) something that is no file: "--set". The text
 * is borrowed from the arena of the tree. */
struct place {
    const char *file;
    unsigned line;
    unsigned column;
};

struct report {
    struct spec_message *items;
    size_t n;
    size_t n_errors;
    size_t n_notes;
    bool failed; /* an allocation failed */
};

void report_release(struct report *r);

/* `at` may be NULL. */
void report_error(struct report *r, const struct place *at, const char *fmt,
                  ...) __attribute__((format(printf, 3, 4)));
void report_warn(struct report *r, const struct place *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void report_note(struct report *r, const struct place *at, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* True once no further error would be kept: time to give up. */
bool report_is_full(const struct report *r);

/* "file:line:column", or the file alone; the caller frees it. */
char *place_text(const struct place *at);

#endif
