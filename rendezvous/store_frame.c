/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/store_frame.h"

#include "base/wire.h"

#include <string.h>

void store_frame_put(struct buf *b, uint32_t channel, uint32_t number,
                     uint32_t len)
{
    wire_put_u32(b, channel);
    wire_put_u32(b, number);
    wire_put_u32(b, len);
}

/* False while the header is not whole. */
static bool read_header(struct store_frames *f, const char **data, size_t *len)
{
    size_t n = STORE_FRAME_BYTES - f->n_header;
    struct wire_reader r;

    n = *len < n ? *len : n;
    memcpy(f->header + f->n_header, *data, n);
    f->n_header += n;
    *data += n;
    *len -= n;
    if (f->n_header < STORE_FRAME_BYTES) {
        return false;
    }
    r = wire_reader(f->header, STORE_FRAME_BYTES);
    f->frame.channel = wire_get_u32(&r);
    f->frame.number = wire_get_u32(&r);
    f->frame.len = wire_get_u32(&r);
    f->left = f->frame.len;
    f->n_header = 0;
    return true;
}

bool store_frames_next(struct store_frames *f, const char **data, size_t *len,
                       const char **ret_part, size_t *ret_len)
{
    size_t n;

    if (*len == 0) {
        return false;
    }
    if (f->left == 0) {
        if (!read_header(f, data, len)) {
            return false;
        }
        if (f->left > 0 && *len == 0) {
            return false;
        }
    }
    n = *len < f->left ? *len : f->left;
    *ret_part = *data;
    *ret_len = n;
    *data += n;
    *len -= n;
    f->left -= n;
    return true;
}
