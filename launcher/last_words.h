/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a worker that failed said of itself: in its error file, as PyTorch's
 * @record writes one, or in its last lines of output. All of it is the worker's
 * own text, to be bounded and believed no further than for being shown.
 */
#ifndef MUSTER_LAUNCHER_LAST_WORDS_H
#define MUSTER_LAUNCHER_LAST_WORDS_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The part of `text` to show: from the start of the last Python traceback in it
 * (with those that it is chained to), or else its last `n_lines` lines. */
const char *last_words_start(const char *text, unsigned n_lines);

/* The one line in `text` that says what went wrong ("ValueError: x", a fatal
 * error of the interpreter, what() of a C++ exception, that a peer has left a
 * collective of muster's), as a terminal may show it; "" where there is none. */
void last_words_summary(const char *text, char *to, size_t size);

/* The first line of `text` that is not empty; likewise, and cut between two
 * characters. */
void last_words_line(const char *text, char *to, size_t size);

/* Such a line tells of the loss of a peer (of its connection, most often): the
 * peer has failed, and before this worker. */
bool last_words_is_echo(const char *line);

/* An error file, its strings owned. */
struct error_file {
    char *json;    /* all of it */
    char *message;
    char *stack;   /* its traceback, NULL without one */
    uint64_t written_ns; /* since 1970, as the file system knows */
};

/* Reads one. -ENOENT: none was written; other codes: no error file, and `e` says
 * why. Only for files that do not hang: it does not wait for a FIFO, but for a
 * dead server. `ret` is written on success. */
int error_file_read(const char *path, struct error_file *ret, struct error *e);
void error_file_release(struct error_file *f);

#endif
