/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/part_io.h"

static int part_size(struct io *io, int fd, uint64_t *ret)
{
    (void)fd;
    *ret = ((struct part_io *)io)->len;
    return 0;
}

static ssize_t part_read(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    struct part_io *p = (struct part_io *)io;

    if (at >= p->len) {
        return 0;
    }
    len = len < p->len - at ? len : p->len - at;
    return p->whole->ops->read(p->whole, fd, to, len, p->begin + at);
}

void part_io_open(struct part_io *p, struct io *whole, uint64_t begin, uint64_t len)
{
    *p = (struct part_io){.whole = whole, .begin = begin, .len = len,
                          .ops = *whole->ops};
    p->ops.size = part_size;
    p->ops.read = part_read;
    p->io.ops = &p->ops;
}
