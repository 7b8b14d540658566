/* SPDX-License-Identifier: Apache-2.0 */
/*
 * When what is in a log was written: a small file beside it, only appended to,
 * one line an entry; see doc/formats.md. Pure: text and time come in and go out.
 *
 * An entry says that what lies from an offset on was written from a time on, for
 * at most so many seconds, or until the next entry. There is at most one a second,
 * and fewer the longer a log is: after each 1,000 the span is doubled, so that a
 * year of output has 16,000 entries.
 */
#ifndef MUSTER_LAUNCHER_LOG_INDEX_H
#define MUSTER_LAUNCHER_LOG_INDEX_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define LOG_INDEX_SUFFIX ".times"

/* What the writer remembers; zero is the start of an index. */
struct log_index {
    uint64_t last_ns;
    uint32_t n;
};

/* Bytes from `offset` on are written at `wall_ns`: appends an entry to `to` if one
 * is due. */
void log_index_note(struct log_index *x, uint64_t wall_ns, uint64_t offset,
                    struct buf *to);

/* Where to begin in a log of `size` bytes, last written at `written_ns`, to have
 * all that was written from `since_ns` on; `size` if that is nothing. Lines of the
 * index that make no sense are passed over. */
uint64_t log_index_find(const char *text, size_t len, uint64_t since_ns,
                        uint64_t written_ns, uint64_t size);

#endif
