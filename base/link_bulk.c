/* SPDX-License-Identifier: Apache-2.0 */
/* Bulk that lies open on its way: it goes to the kernel from where it is. */
#include <config.h>

#include "base/link_priv.h"

#include <errno.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

/* Bulk that goes behind the output from where it is. */
struct bulk {
    const void *data;
    size_t len;
    int fd; /* that it is a part of, from `at` on, or -1 */
    off_t at;
};

/* How much of the output and of what is behind it the kernel takes at once; of errors
 * link_flush() hears as well. */
static size_t try_memory(struct link *l, const struct buf *out, const struct bulk *b)
{
    uv_buf_t bufs[2] = {uv_buf_init(out->data, (unsigned)out->len),
                        uv_buf_init((char *)(uintptr_t)b->data, (unsigned)b->len)};
    int n = uv_try_write(&l->conn->stream, bufs, 2);

    return n > 0 ? (size_t)n : 0;
}

static size_t try_file(int to, const struct buf *out, const struct bulk *b)
{
    ssize_t n = send(to, out->data, out->len, MSG_DONTWAIT | MSG_NOSIGNAL | MSG_MORE);
    size_t sent = n > 0 ? (size_t)n : 0;
    off_t at = b->at;

    if (sent == out->len) {
        n = sendfile(to, b->fd, &at, b->len);
        sent += n > 0 ? (size_t)n : 0;
    }
    return sent;
}

static size_t try_both(struct link *l, const struct buf *out, const struct bulk *b)
{
    uv_os_fd_t to;

    if (!l->conn || l->in_frames || uv_stream_get_write_queue_size(&l->conn->stream)) {
        return 0;
    }
    return b->fd >= 0 && uv_fileno(&l->conn->handle, &to) == 0 ? try_file(to, out, b)
                                                               : try_memory(l, out, b);
}

/* Gives the kernel the output and what is behind it. What it does not take of that is
 * appended to the output. */
static void flush_with(struct link *l, const struct bulk *b)
{
    struct buf *out = channel_output(l->channel);
    size_t sent = try_both(l, out, b);
    size_t past = sent > out->len ? sent - out->len : 0;

    buf_consume(out, sent - past);
    buf_append(out, (const char *)b->data + past, b->len - past);
    if (!out->failed && !l->in_frames) {
        link_flush(l);
    }
}

static int send_bulk(struct link *l, uint16_t type, const struct bulk *b)
{
    struct buf *out = channel_output(l->channel);
    int rc = link_check_room(l, b->len);

    rc = rc < 0 ? rc : channel_sign(l->channel, type, b->data, b->len, NULL);
    if (rc == -EAGAIN) {
        return link_send(l, type, b->data, b->len);
    }
    if (rc < 0) {
        return rc;
    }
    flush_with(l, b);
    if (out->failed) { /* its head may have gone: nothing can follow */
        out->failed = false;
        buf_clear(out);
        error_set(&l->error, ENOMEM, "send to %s", l->peer);
        link_fail_soon(l);
        return -ENOMEM;
    }
    return 0;
}

int link_send_open(struct link *l, uint16_t type, const void *data, size_t len)
{
    return send_bulk(l, type, &(struct bulk){data, len, -1, 0});
}

int link_send_file(struct link *l, uint16_t type, const void *data, size_t len, int fd,
                   uint64_t at)
{
    return send_bulk(l, type, &(struct bulk){data, len, fd, (off_t)at});
}
