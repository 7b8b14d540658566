/* SPDX-License-Identifier: Apache-2.0 */
/* Frames that lie open on their way: what is read, and whatever somebody on the way does
 * to them. */
#include <config.h>

#include "base/channel_bed.h"
#include "base/channel_priv.h"
#include "base/cleanup.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    LEN = 100000,
    FROM = 1000, /* before the memory that they are wanted in */
    HEAD = CHANNEL_OPEN_HEAD_BYTES,
};

static const uint8_t key[CHANNEL_KEY_BYTES] = {1, 2, 3};

static enum aead_cipher most; /* that near can */

/* Where far wants what is large. */
static struct {
    char at[LEN + 1];
    bool is_none;
    int n_asked;
} wanted;

static void *place(void *ctx, size_t len)
{
    (void)ctx;
    wanted.n_asked++;
    return wanted.is_none || len > sizeof(wanted.at) ? NULL : wanted.at;
}

/* Two that know each other; has_place: far says where large ones go. */
static struct channel_pair make_pair(bool has_place)
{
    struct channel_pair p = channel_pair_make(key, key);
    struct channel_frame f;

    channel_limit(p.near, most);
    channel_pair_meet(&p);
    if (channel_next(p.far, &f, NULL) != 1) {
        bail_out("no handshake");
    }
    memset(&wanted, 0, sizeof(wanted));
    if (has_place) {
        channel_set_place(p.far, place, NULL);
    }
    return p;
}

static char data[CHANNEL_MAX_OPEN + 1];

static void fill(void)
{
    for (size_t i = 0; i < sizeof(data); i++) {
        data[i] = (char)(i * 11 + i / 253);
    }
}

/* What a link would send: head and payload, behind what is queued. */
static int sign(struct channel *c, size_t len)
{
    int rc = channel_sign(c, 5, data, len, NULL);

    if (rc == 0) {
        buf_append(channel_output(c), data, len);
    }
    return rc;
}

static bool is_it(const struct channel_frame *f, size_t len)
{
    return f->type == 5 && f->len == len && memcmp(f->data, data, len) == 0;
}

static void test_whole(bool has_place)
{
    static const size_t sizes[] = {1, 20, 32767, 32768, LEN};
    struct channel_pair p = make_pair(has_place);
    struct channel_frame f;
    struct buf *out = channel_output(p.near);

    for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
        bool is_away = has_place && sizes[i] >= CHANNEL_AWAY_BYTES;

        is_int(sign(p.near, sizes[i]), 0, "%zu bytes", sizes[i]);
        is_int((intmax_t)out->len, (intmax_t)(HEAD + sizes[i]), "behind a head");
        ok(memcmp(out->data + HEAD, data, sizes[i]) == 0, "lie open");
        channel_carry(p.near, p.far);
        is_int(channel_next(p.far, &f, NULL), 1, "come");
        ok(is_it(&f, sizes[i]), "as they were");
        ok((f.data == (void *)wanted.at) == is_away, "where they are wanted");
        is_int(channel_next(p.far, &f, NULL), 0, "and no more");
        channel_send(p.near, 6, "sealed", 6, NULL);
        channel_carry(p.near, p.far);
        ok(channel_next(p.far, &f, NULL) == 1 && f.type == 6 && f.len == 6,
           "a sealed one between them");
    }
    channel_pair_free(&p);
}

/* Three at once, in pieces of any size, both into place and not. */
static void test_pieces(bool has_place, size_t piece)
{
    struct channel_pair p = make_pair(has_place);
    struct channel_frame f;
    struct buf *out = channel_output(p.near);
    int n = 0;

    sign(p.near, LEN);
    channel_send(p.near, 6, "sealed", 6, NULL);
    sign(p.near, 40000);
    for (size_t at = 0; at < out->len; at += piece) {
        channel_feed(p.far, out->data + at, out->len - at < piece ? out->len - at : piece,
                     NULL);
        while (channel_next(p.far, &f, NULL) == 1) {
            n += n == 0 ? is_it(&f, LEN)
                        : n == 1 ? f.type == 6 && f.len == 6 : is_it(&f, 40000);
        }
    }
    is_int(n, 3, "three, %zu bytes at a time", piece);
    channel_pair_free(&p);
}

/* The kernel puts the payload where it is wanted, and the head of the next one alone
 * elsewhere. */
static void test_room(void)
{
    struct channel_pair p = make_pair(true);
    struct channel_frame f;
    struct buf *out = channel_output(p.near);
    size_t len = 1 << 17;
    char *to;

    sign(p.near, LEN);
    to = channel_room(p.far, &len);
    ok(len == 1 << 17 && to, "at first there is room for anything");
    memcpy(to, out->data, HEAD + FROM);
    channel_fed(p.far, HEAD + FROM);
    is_int(channel_next(p.far, &f, NULL), 0, "the head, and the first bytes");
    ok(memcmp(wanted.at, data, FROM) == 0, "which are in place");
    len = 1 << 17;
    to = channel_room(p.far, &len);
    ok(to == wanted.at + FROM && len == LEN - FROM, "there is room for the rest, there");
    memcpy(to, data + FROM, len);
    channel_fed(p.far, len);
    ok(channel_next(p.far, &f, NULL) == 1 && is_it(&f, LEN), "that is all of it");
    len = 1 << 17;
    to = channel_room(p.far, &len);
    is_int((intmax_t)len, HEAD, "then for the next head");
    buf_clear(out);
    channel_send(p.near, 6, data, 2000, NULL);
    memcpy(to, out->data, HEAD);
    channel_fed(p.far, HEAD);
    is_int(channel_next(p.far, &f, NULL), 0, "another frame begins");
    len = 1 << 17;
    channel_room(p.far, &len);
    is_int((intmax_t)len, 1 << 17, "for which there is room again");
    channel_pair_free(&p);
}

/* Its owner does without it, and the memory is gone. */
static void test_not_wanted(bool with_room)
{
    struct channel_pair p = make_pair(true);
    struct channel_frame f;
    struct error e = {0};
    struct buf *out = channel_output(p.near);
    size_t len = 1 << 17;

    sign(p.near, LEN);
    channel_feed(p.far, out->data, HEAD + FROM, NULL);
    is_int(channel_next(p.far, &f, &e), 0, "it has begun");
    wanted.is_none = true;
    memset(wanted.at, 0, sizeof(wanted.at));
    if (with_room) {
        char *to = channel_room(p.far, &len);

        ok(to < wanted.at || to >= wanted.at + sizeof(wanted.at), "no room in there");
        memcpy(to, data + FROM, 100);
        channel_fed(p.far, 100);
    } else {
        channel_feed(p.far, data + FROM, 100, NULL);
    }
    is_int(channel_next(p.far, &f, &e), -ECANCELED, "%s", e.text);
    is_int(wanted.at[FROM + 1], 0, "and nothing is written there");
    channel_pair_free(&p);
}

/* A byte of head or payload changed; or the payload of another one, or of one before. */
static void test_changed(bool has_place)
{
    static const size_t at[] = {0, 3, 4, 20, HEAD - 1, HEAD, HEAD + 1, HEAD + LEN / 2,
                                HEAD + LEN - 1};
    struct channel_frame f;
    struct error e;

    for (size_t i = 0; i < ARRAY_SIZE(at); i++) {
        struct channel_pair p = make_pair(has_place);
        struct buf *out = channel_output(p.near);
        int rc;

        sign(p.near, LEN);
        sign(p.near, LEN);
        out->data[at[i]] ^= 1;
        channel_carry(p.near, p.far);
        rc = channel_next(p.far, &f, &e);
        ok(rc == -ERR_AUTH || (at[i] < 4 && rc <= 0), "byte %zu changed: %d", at[i], rc);
        channel_pair_free(&p);
    }
}

static void test_exchanged(void)
{
    struct channel_pair p = make_pair(false);
    struct buf *out = channel_output(p.near), both = {0};
    struct channel_frame f;
    struct error e;

    sign(p.near, LEN);
    memset(data, 'x', LEN);
    sign(p.near, LEN);
    buf_append(&both, out->data, out->len);
    memcpy(both.data + HEAD, out->data + 2 * HEAD + LEN, LEN);
    memcpy(both.data + 2 * HEAD + LEN, out->data + HEAD, LEN);
    channel_feed(p.far, both.data, both.len, NULL);
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "payloads exchanged");
    buf_release(&both);
    channel_pair_free(&p);
    fill();

    p = make_pair(false);
    out = channel_output(p.near);
    sign(p.near, LEN);
    buf_append(&both, out->data, out->len);
    buf_append(&both, out->data, out->len);
    channel_feed(p.far, both.data, both.len, NULL);
    is_int(channel_next(p.far, &f, &e), 1, "once");
    is_int(channel_next(p.far, &f, &e), -ERR_AUTH, "the same bytes twice");
    buf_release(&both);
    channel_pair_free(&p);
}

/* No two frames have a count in common, whatever is sent between them. */
static void test_counts(void)
{
    struct channel_pair p = make_pair(false);
    struct channel_frame f;

    is_int((intmax_t)p.near->n_sent, 1, "one was sealed");
    sign(p.near, 10);
    is_int((intmax_t)p.near->n_sent, 3, "a head and a payload are two");
    channel_carry(p.near, p.far);
    channel_next(p.far, &f, NULL);
    is_int((intmax_t)p.far->n_received, 3, "there, too");
    channel_pair_free(&p);
}

static void test_none(void)
{
    struct channel_pair p = make_pair(false);
    struct channel *c = NULL;

    is_int(sign(p.near, 0), -EAGAIN, "nothing has nothing to sign");
    is_int(sign(p.near, CHANNEL_MAX_OPEN + 1), -EMSGSIZE, "over the limit");
    is_int(sign(p.near, CHANNEL_MAX_OPEN), 0, "the most");
    channel_pair_free(&p);
    p = make_pair(false);
    channel_make_private(p.near);
    is_int(sign(p.near, 10), -EAGAIN, "in private nothing is hidden anyway");
    channel_pair_free(&p);
    channel_create(key, true, &c, NULL);
    is_int(sign(c, 10), -EAGAIN, "before it is known who is there");
    channel_destroy(c);
}

/* Heads that no muster sends. */
static void test_odd_heads(void)
{
    static const struct {
        const char *head;
        size_t len;
        const char *what;
    } cases[] = {
        {"\0\5\0\0\0\0________________", 22, "no bytes"},
        {"\0\5\0\x40\0\1________________", 22, "more than the limit"},
        {"\xff\xff\0\0\0\1________________", 22, "a head of a head"},
        {"\0\5\0\0\0\1_______________", 21, "half a tag"},
        {"\0\5\0\0\0\1_________________", 23, "more than a tag"},
        {"\0\5\0\0", 4, "half a length"},
        {"", 0, "nothing"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct channel_pair p = make_pair(false);
        struct channel_frame f;
        struct error e = {0};

        channel_send(p.near, CHANNEL_OPEN, cases[i].head, cases[i].len, NULL);
        channel_carry(p.near, p.far);
        is_int(channel_next(p.far, &f, &e), -ERR_FORMAT, "%s: %s", cases[i].what, e.text);
        channel_pair_free(&p);
    }
}

static void test_all(void)
{
    for (int has_place = 0; has_place < 2; has_place++) {
        test_whole(has_place);
        test_pieces(has_place, 1);
        test_pieces(has_place, HEAD);
        test_pieces(has_place, 777);
        test_pieces(has_place, 70000);
        test_pieces(has_place, 1 << 20);
        test_changed(has_place);
        test_not_wanted(has_place);
    }
    test_room();
    test_exchanged();
    test_counts();
    test_none();
    test_odd_heads();
}

int main(void)
{
    fill();
    for (most = AEAD_CHACHA20_POLY1305; most <= AEAD_AES_256_GMAC; most++) {
        test_all();
    }
    return tap_done();
}
