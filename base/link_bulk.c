/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bulk that lies open on its way: it goes to the kernel from where it is.
 *
 * By a copy: where the kernel takes pages of a file (sendfile()) each end does more for
 * each page than it takes to copy it, and the other one is woken for a few at a time; 1 GB
 * from one agent to another took half as long again.
 */
#include <config.h>

#include "base/link_priv.h"

#include <errno.h>
#include <sys/socket.h>

enum { WAKE_BYTES = 256 * 1024 }; /* what comes before there is more to do */

/* --- what is sent --- */

/* How much of the output and of what is behind it the kernel takes at once; of errors
 * link_flush() hears as well. */
static size_t try_both(struct link *l, const struct buf *out, const void *data, size_t len)
{
    uv_buf_t bufs[2] = {uv_buf_init(out->data, (unsigned)out->len),
                        uv_buf_init((char *)(uintptr_t)data, (unsigned)len)};
    int n;

    if (!l->conn || l->in_frames || uv_stream_get_write_queue_size(&l->conn->stream)) {
        return 0;
    }
    n = uv_try_write(&l->conn->stream, bufs, 2);
    return n > 0 ? (size_t)n : 0;
}

/* Gives the kernel the output and what is behind it. What it does not take of that is
 * appended to the output. */
static void flush_with(struct link *l, const char *data, size_t len)
{
    struct buf *out = channel_output(l->channel);
    size_t sent = try_both(l, out, data, len);
    size_t past = sent > out->len ? sent - out->len : 0;

    buf_consume(out, sent - past);
    buf_append(out, data + past, len - past);
    if (!out->failed && !l->in_frames) {
        link_flush(l);
    }
}

int link_send_open(struct link *l, uint16_t type, const void *data, size_t len)
{
    struct buf *out = channel_output(l->channel);
    int rc = link_check_room(l, len);

    rc = rc < 0 ? rc : channel_sign(l->channel, type, data, len, NULL);
    if (rc == -EAGAIN) {
        return link_send(l, type, data, len);
    }
    if (rc < 0) {
        return rc;
    }
    flush_with(l, data, len);
    if (out->failed) { /* its head may have gone: nothing can follow */
        out->failed = false;
        buf_clear(out);
        error_set(&l->error, ENOMEM, "send to %s", l->peer);
        link_fail_soon(l);
        return -ENOMEM;
    }
    return 0;
}

/* --- what comes --- */

/* No more than a part of what the kernel keeps room for, which grows while much comes: an
 * old one (Linux before 4.18) would wait for ever for what it has no room for. */
static int limit(int fd, size_t coming)
{
    int room = 0;
    socklen_t len = sizeof(room);

    if (coming == 0 || getsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, &len) < 0) {
        return 1;
    }
    room = room / 4 < WAKE_BYTES ? room / 4 : WAKE_BYTES;
    return coming < (size_t)room ? (int)coming : room;
}

void link_await_bulk(struct conn *c)
{
    size_t coming = c->is_local ? 0 : channel_coming(c->link->channel);
    uv_os_fd_t fd;
    int bytes;

    if ((coming == 0 && c->wake_bytes <= 1) || uv_fileno(&c->handle, &fd) < 0) {
        return;
    }
    bytes = limit(fd, coming);
    if (bytes != c->wake_bytes &&
        setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes)) == 0) {
        c->wake_bytes = bytes;
    }
}
