/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What memory and a disk take for so many bytes: what no save or load can be faster
 * than. For those that measure saves and loads, in the same run.
 */
#ifndef MUSTER_CKPT_LIMITS_H
#define MUSTER_CKPT_LIMITS_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stdint.h>

enum { LIMITS_READERS = 8 };

/* Nanoseconds of a copy by as many threads. */
uint64_t limits_copy(char *to, const char *from, uint64_t len, unsigned n_threads);

/* Into one file, in blocks, and synced: `data` is aligned to IO_DIRECT_ALIGN. The file
 * is not there before, nor after. */
int limits_write(struct io *io, int dir, const char *name, const void *data,
                 uint64_t len, uint64_t *ret_ns, struct error *e);

/* From a file that is open with O_DIRECT, LIMITS_READERS blocks at a time: what is a
 * multiple of IO_DIRECT_ALIGN, into memory that is aligned to it. 0, or -errno. */
int limits_read(int fd, char *to, uint64_t len, uint64_t *ret_ns);

#endif
