/* SPDX-License-Identifier: Apache-2.0 */
/* Some bytes of a file as if they were a file: for readers of a format that lies in
 * another file, among others of its kind. */
#ifndef MUSTER_CKPT_PART_IO_H
#define MUSTER_CKPT_PART_IO_H

#include "ckpt/io.h"

#include <stdint.h>

struct part_io {
    struct io io; /* its size() and read(), of the descriptor of the whole file */
    struct io_ops ops;
    struct io *whole; /* borrowed */
    uint64_t begin, len;
};

/* `p` stays where it is as long as it is used. */
void part_io_open(struct part_io *p, struct io *whole, uint64_t begin,
                  uint64_t len);

#endif
