/* SPDX-License-Identifier: Apache-2.0 */
/* What agents say to each other of a copy: it comes as it was meant, and what nobody can have
 * meant is refused. */
#include <config.h>

#include "launcher/snap_copy_priv.h"

#include "base/cleanup.h"
#include "base/wire.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>

#define UUID "0123456789abcdef0123456789abcdef"

static struct channel_frame frame_of(uint16_t type, const struct buf *b)
{
    return (struct channel_frame){.type = type, .data = (void *)b->data, .len = b->len};
}

static struct snap_head head_of(uint64_t image_bytes, uint64_t part_bytes)
{
    struct snap_head h = {.rank = 3, .n_ranks = 4, .generation = 5, .token = 6, .step = 7,
                          .image_bytes = image_bytes, .part_bytes = part_bytes};

    str_copy(h.uuid, sizeof(h.uuid), UUID);
    str_copy(h.root, sizeof(h.root), "/ck");
    return h;
}

/* --- offers --- */

static bool is_offered(const struct snap_head *h)
{
    _buf_ struct buf b = {0};
    struct channel_frame f;
    struct snap_head got;
    uint32_t from;

    copy_offer_encode(h, 9, &b);
    f = frame_of(SNAP_COPY_OFFER, &b);
    return copy_offer_decode(&f, &got, &from);
}

static void test_offer(void)
{
    const struct snap_head h = head_of(8000, 9000);
    _buf_ struct buf b = {0};
    struct channel_frame f;
    struct snap_head got;
    uint32_t from = 0;
    size_t n_cut = 0;

    copy_offer_encode(&h, 9, &b);
    f = frame_of(SNAP_COPY_OFFER, &b);
    ok(copy_offer_decode(&f, &got, &from), "an offer");
    is_int(from, 9, "from whom");
    ok(got.rank == 3 && got.n_ranks == 4, "of which rank");
    ok(got.generation == 5 && got.token == 6, "of which generation");
    is_int((intmax_t)got.step, 7, "of which step");
    ok(got.image_bytes == 8000 && got.part_bytes == 9000, "of how many bytes");
    is_str(got.uuid, UUID, "of which save");
    is_str(got.root, "/ck", "in which directory");
    f = frame_of(SNAP_COPY_END, &b);
    ok(!copy_offer_decode(&f, &got, &from), "another message is none");
    for (size_t n = 0; n < b.len; n++) {
        f = (struct channel_frame){.type = SNAP_COPY_OFFER, .data = (void *)b.data, .len = n};
        n_cut += !copy_offer_decode(&f, &got, &from);
    }
    is_int((intmax_t)n_cut, (intmax_t)b.len, "nor is one that is cut, wherever");
    buf_append(&b, "", 1);
    f = frame_of(SNAP_COPY_OFFER, &b);
    ok(!copy_offer_decode(&f, &got, &from), "nor one with something behind it");
}

static void test_bounds(void)
{
    const uint64_t most = UINT64_C(1) << 50;
    struct snap_head h = head_of(most, most);

    ok(is_offered(&h), "as many bytes as there can be");
    h = head_of(most + 1, 0);
    ok(!is_offered(&h), "and one more of the image");
    h = head_of(0, most + 1);
    ok(!is_offered(&h), "or of the part");
    h = head_of(1, 1);
    h.n_ranks = 1 << 20;
    ok(is_offered(&h), "as many ranks as there can be");
    h.n_ranks++;
    ok(!is_offered(&h), "and one more");
    h = head_of(1, 1);
    h.rank = h.n_ranks;
    ok(!is_offered(&h), "a rank that is none");
    h = head_of(1, 1);
    h.step = INT64_MAX;
    ok(is_offered(&h), "the last step that there can be");
    h.step++;
    ok(!is_offered(&h), "and one more");
    h = head_of(1, 1);
    str_copy(h.root, sizeof(h.root), "ck");
    ok(!is_offered(&h), "a directory that depends on where one is");
    h.root[0] = '\0';
    ok(!is_offered(&h), "and none");
}

/* It becomes part of the names of files. */
static void test_names(void)
{
    static const char *const names[] = {
        "", "0123456789abcdef", "0123456789abcdef0123456789abcde",
        "0123456789ABCDEF0123456789ABCDEF", "../../../../../../../../../../tmp",
        "0123456789abcdef 123456789abcdef",
    };

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        struct snap_head h = head_of(1, 1);

        str_copy(h.uuid, sizeof(h.uuid), names[i]);
        ok(!is_offered(&h), "a save is not called '%s'", names[i]);
    }
}

/* --- questions --- */

static bool is_wanted(uint16_t type, uint32_t rank, const char *uuid, size_t n_more)
{
    _buf_ struct buf b = {0};
    char got[COMMIT_UUID_BYTES];
    struct channel_frame f;
    uint32_t got_rank;

    copy_want_encode(rank, uuid, &b);
    buf_append(&b, "more", n_more);
    f = frame_of(type, &b);
    return copy_want_decode(&f, &got_rank, got) && got_rank == rank && strcmp(got, uuid) == 0;
}

static void test_want(void)
{
    ok(is_wanted(SNAP_COPY_WANT, (1 << 20) - 1, UUID, 0), "for the last rank there can be");
    ok(!is_wanted(SNAP_COPY_WANT, 1 << 20, UUID, 0), "and for one more");
    ok(!is_wanted(SNAP_COPY_WANT, 1, "1", 0), "for no save");
    ok(!is_wanted(SNAP_COPY_WANT, 1, UUID, 1), "with something behind it");
    ok(!is_wanted(SNAP_COPY_OFFER, 1, UUID, 0), "another message");
}

/* --- refusals --- */

static int refusal_of(uint32_t code, size_t cut)
{
    _buf_ struct buf b = {0};
    struct error e = {0};
    struct channel_frame f;

    wire_put_u32(&b, code);
    wire_put_str(&b, "why");
    b.len -= cut;
    f = frame_of(SNAP_COPY_REFUSED, &b);
    copy_refused_decode(&f, &e);
    return e.code;
}

/* A refusal is always one. */
static void test_refused(void)
{
    is_int(refusal_of(ENOMEM, 0), ENOMEM, "a refusal");
    is_int(refusal_of(4095, 0), 4095, "for the last reason there can be");
    is_int(refusal_of(0, 0), EPROTO, "that says all is well");
    is_int(refusal_of(4096, 0), EPROTO, "for no reason that there is");
    is_int(refusal_of(ENOMEM, 1), EPROTO, "cut");
}

int main(void)
{
    test_offer();
    test_bounds();
    test_names();
    test_want();
    test_refused();
    return tap_done();
}
