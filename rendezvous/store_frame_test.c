/* SPDX-License-Identifier: Apache-2.0 */
/* Frames of a trunk, however their bytes come, and who says whose clients it brings. */
#include <config.h>

#include "rendezvous/store_frame.h"

#include "base/cleanup.h"
#include "rendezvous/store_line.h"
#include "tests/lib/tap.h"

#include <string.h>

static const struct {
    uint32_t channel, number;
    const char *text;
} frames[] = {
    {7, 1, "first"},
    {0, 0, ""},
    {STORE_CONTROL_CHANNEL, UINT32_MAX, "w"},
    {7, 2, "a payload that is longer than its header"},
    {STORE_MAX_CHANNELS - 1, 3, ""},
};

static void put_all(struct buf *b)
{
    for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
        size_t len = strlen(frames[i].text);

        store_frame_put(b, frames[i].channel, frames[i].number, (uint32_t)len);
        buf_append(b, frames[i].text, len);
    }
}

/* What comes of them in chunks of `chunk` bytes, a line for each frame. Parts of no
 * bytes are only of frames without payload. */
static void take_all(const struct buf *b, size_t chunk, struct buf *seen,
                     int *ret_n_empty, int *ret_n_left)
{
    struct store_frames f = {0};

    for (size_t from = 0; from < b->len; from += chunk) {
        const char *data = b->data + from, *part;
        size_t len = b->len - from < chunk ? b->len - from : chunk, n;

        while (store_frames_next(&f, &data, &len, &part, &n)) {
            if (f.left + n == f.frame.len) {
                buf_printf(seen, "\n%u %u %u ", f.frame.channel, f.frame.number,
                           f.frame.len);
            }
            buf_append(seen, part, n);
            *ret_n_empty += n == 0;
        }
        *ret_n_left += len > 0;
    }
}

static void test_frames(void)
{
    _buf_ struct buf b = {0}, want = {0};

    put_all(&b);
    for (size_t i = 0; i < ARRAY_SIZE(frames); i++) {
        buf_printf(&want, "\n%u %u %zu %s", frames[i].channel, frames[i].number,
                   strlen(frames[i].text), frames[i].text);
    }
    for (size_t chunk = 1; chunk <= b.len; chunk++) {
        _buf_ struct buf seen = {0};
        int n_empty = 0, n_left = 0;

        take_all(&b, chunk, &seen, &n_empty, &n_left);
        is_str(buf_str(&seen), buf_str(&want), "in chunks of %zu bytes", chunk);
        is_int(n_empty, 2, "frames without payload are told as well");
        is_int(n_left, 0, "and each chunk is taken whole");
    }
}

static void test_bytes(void)
{
    static const char want[] = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c";
    _buf_ struct buf b = {0};

    store_frame_put(&b, 0x01020304, 0x05060708, 0x090a0b0c);
    ok(b.len == STORE_FRAME_BYTES && memcmp(b.data, want, b.len) == 0,
       "a header: channel, number, length");
}

static void test_hello(void)
{
    const struct store_hello hello = {.rank = 3, .generation = 4};
    struct store_hello back = {0};
    struct channel_frame f = {.type = STORE_LINE_HELLO};
    _buf_ struct buf b = {0};
    int n = 0;

    store_hello_encode(&hello, &b);
    f.data = (const uint8_t *)b.data;
    f.len = b.len;
    ok(store_hello_decode(&f, &back) && back.rank == 3 && back.generation == 4,
       "who brings clients, and of what generation");
    f.type = STORE_LINE_WELCOME;
    ok(!store_hello_decode(&f, &back), "another frame is none");
    f.type = STORE_LINE_HELLO;
    for (f.len = 0; f.len < b.len; f.len++) {
        n += store_hello_decode(&f, &back);
    }
    is_int(n, 0, "nor is a part of one");
    buf_putc(&b, '\0');
    f.data = (const uint8_t *)b.data;
    f.len = b.len;
    ok(!store_hello_decode(&f, &back), "nor one with a byte too many");
}

int main(void)
{
    test_frames();
    test_bytes();
    test_hello();
    return tap_done();
}
