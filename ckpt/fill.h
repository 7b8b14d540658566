/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of a file of shared memory that is taken while it is filled, by any number of
 * threads.
 *
 * To write() to such a file costs about half of what it costs to touch it: its pages need
 * not be zeroed first, nor looked up by the processor. But the kernel lets one at a time
 * write to a file. So whoever comes while another thread writes takes pages of a mapping
 * and fills these; and all do, where pages come as huge ones, or where this process may
 * not write so large a file (ulimit -f).
 */
#ifndef MUSTER_CKPT_FILL_H
#define MUSTER_CKPT_FILL_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fill;

/* Of the first `len` bytes of a file that is as long, of which `map` is a mapping; both
 * borrowed. NULL without memory. */
struct fill *fill_create(int fd, char *map, uint64_t len);
void fill_destroy(struct fill *f);

/* What bytes [at, at + len) of the file are to be. 0 or a negative code. */
struct fill_source {
    int (*read)(void *arg, uint64_t at, size_t len, void *to, struct error *e);
    void *arg;
    bool is_far; /* each call costs something, as of a GPU: it is read at once, into a
                    mapping, and not piece by piece for write() */
};

/* Makes them so. Any thread; no two at once the same bytes. (Where pages are larger than 4096
 * bytes two may meet in one: the kernel zeroes it once, for whoever is first, and write() does
 * not touch what is beside its bytes.) -ENOMEM: there is not so much shared memory; or what
 * the source has failed of. */
int fill_piece(struct fill *f, uint64_t at, size_t len, const struct fill_source *from,
               struct error *e);

/* Takes the memory of bytes [at, at + len), which are mapped at `map`, from the page on that
 * they begin in, zeroed: -errno, -ENOSPC among them, and never a SIGBUS. */
int fill_take(int fd, char *map, uint64_t at, size_t len);

#endif
