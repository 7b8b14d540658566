/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The kernel's calls, as io_system(), but for blocks: those go past the page
 * cache, several at a time, through io_uring. Where that cannot be had (another
 * filesystem, an older kernel, a sandbox) the same bytes are written another way,
 * and nobody is told.
 *
 * Blocks go past the cache where their memory is aligned to IO_DIRECT_ALIGN, and
 * their size is a multiple of it.
 */
#ifndef MUSTER_CKPT_IO_DIRECT_H
#define MUSTER_CKPT_IO_DIRECT_H

#include "ckpt/io.h"

enum {
    IO_DIRECT_ALIGN = 4096, /* as much as any disk wants */
    IO_DIRECT_DEPTH = 8,    /* blocks that are under way */
};

/* May be used by several threads at a time. */
struct io *io_direct(void);

/* For tests and measurements: what is not to be used. */
struct io *io_direct_without(bool ring, bool direct);

#endif
