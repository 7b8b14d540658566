/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "ckpt/bytes_io.h"

#include <string.h>

static int size(struct io *io, int fd, uint64_t *ret)
{
    (void)fd;
    *ret = ((const struct bytes_io *)io)->len;
    return 0;
}

static ssize_t read_at(struct io *io, int fd, void *to, size_t len, uint64_t at)
{
    const struct bytes_io *b = (const struct bytes_io *)io;

    (void)fd;
    if (at >= b->len) {
        return 0;
    }
    len = len < b->len - at ? len : b->len - at;
    memcpy(to, b->data + at, len);
    return (ssize_t)len;
}

static const struct io_ops ops = {.size = size, .read = read_at};

struct bytes_io bytes_io(const void *data, size_t len)
{
    return (struct bytes_io){{.ops = &ops}, data, len};
}
