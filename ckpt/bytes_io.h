/* SPDX-License-Identifier: Apache-2.0 */
/* A file that is bytes in memory, for tests and fuzz targets of readers. */
#ifndef MUSTER_CKPT_BYTES_IO_H
#define MUSTER_CKPT_BYTES_IO_H

#include "ckpt/io.h"

#include <stdint.h>

struct bytes_io {
    struct io io; /* only size() and read(), of any descriptor */
    const uint8_t *data;
    size_t len;
};

/* `data` is borrowed. */
struct bytes_io bytes_io(const void *data, size_t len);

#endif
