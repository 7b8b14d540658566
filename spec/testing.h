/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For the tests of spec/: resolving a text, and looking at what came of it.
 */
#ifndef MUSTER_SPEC_TESTING_H
#define MUSTER_SPEC_TESTING_H

#include "base/buf.h"
#include "spec/spec.h"

#include <stdbool.h>

/* The result of one resolve; `all` has the messages, one a line, each behind
 * "note: ", "warning: " or "error: ". */
struct outcome {
    struct spec_result result;
    struct error error;
    int rc;
    char *all;
};

void outcome_release(struct outcome *o);
#define _outcome_ __attribute__((cleanup(outcome_release)))

struct outcome outcome_of(const struct spec_request *request);

/* Of a text called "t", without environment, with no runtimes but those built
 * in. */
struct outcome outcome_of_text(const char *text);
struct outcome outcome_of_argv(const char *const *argv);

/* A command, as words between blanks, in a job with more keys; `env` may be NULL. */
struct outcome outcome_of_command(const char *command, const char *keys,
                                  char *const *env);

/* A short form with "command: [a]" and `more` lines. */
struct outcome outcome_of_keys(const char *more);

/* The argv as one line, for comparing. The caller frees it. */
char *joined(const struct strlist *list);

/* What is done where a worker starts, with no further name known. */
void unescape(struct buf *to, const char *s);

#endif
