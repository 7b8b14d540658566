/* SPDX-License-Identifier: Apache-2.0 */
/* The messages of comm/companion.h: there and back, every cut, every excess. */
#include <config.h>

#include "base/cleanup.h"
#include "base/str.h"
#include "comm/companion.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

typedef int decode_f(const struct buf *b);

/* No part of the message is a message, nor is it with a byte more. */
static void check_cuts(const char *what, struct buf *b, decode_f *decode)
{
    size_t whole = b->len, n_taken = 0;

    is_int(decode(b), 0, "%s is taken", what);
    for (b->len = 0; b->len < whole; b->len++) {
        n_taken += decode(b) == 0;
    }
    is_int((intmax_t)n_taken, 0, "no part of it is");
    buf_putc(b, 'x');
    ok(decode(b) < 0, "nor more than it");
    b->len = whole;
}

static int decode_hello(const struct buf *b)
{
    struct companion_hello h;

    return companion_hello_decode(b, &h);
}

static void test_hello(void)
{
    struct companion_hello h = {.version = 7, .epoch = UINT64_MAX - 1,
                                .muster_version = "1.2",
                                .proof = {1, 0, [31] = 255}}, got;
    _buf_ struct buf b = {0};

    companion_hello_encode(&h, &b);
    check_cuts("a hello", &b, decode_hello);
    companion_hello_decode(&b, &got);
    is_int(got.version, 7, "version");
    ok(got.epoch == h.epoch, "epoch");
    is_str(got.muster_version, "1.2", "muster's version");
    ok(memcmp(got.proof, h.proof, sizeof(h.proof)) == 0, "its proof");
}

static int decode_world(const struct buf *b)
{
    struct companion_world w;

    return companion_world_decode(b, &w);
}

static void test_world(void)
{
    struct companion_world w = {
        .epoch = 3, .mpi_rank = 99,
        .run = {.id = "run-1", .dir = "/a/b", .key = {1, 2, 0, 255},
                .agent_is_node = true, .has_front = true,
                .front_addrs = {"10.0.0.1", "::1"}, .front_port = 65535},
    }, got;
    _buf_ struct buf b = {0};

    companion_world_encode(&w, &b);
    check_cuts("a world", &b, decode_world);
    memset(&got, 0x5a, sizeof(got));
    companion_world_decode(&b, &got);
    ok(got.epoch == 3 && got.mpi_rank == 99 && got.run.front_port == 65535,
       "numbers");
    is_str(got.run.id, "run-1", "id");
    is_str(got.run.dir, "/a/b", "directory");
    ok(memcmp(got.run.key, w.run.key, sizeof(w.run.key)) == 0, "key");
    ok(got.run.agent_is_node && !got.run.loopback && got.run.has_front,
       "what it says of the run");
    is_str(got.run.front_addrs[1], "::1", "addresses");
    is_str(got.run.front_addrs[2], "", "and their end");
}

static int decode_attach(const struct buf *b)
{
    struct companion_attach a;
    int rc = companion_attach_decode(b, &a);

    if (rc == 0) {
        free(a.members);
    }
    return rc;
}

static void test_attach(void)
{
    uint32_t members[] = {4, 0, UINT32_MAX};
    struct companion_attach a = {12, 3, members}, got;
    static const char none[] = "\0\0\0\1\0\0\0\0";
    static const char huge[] = "\0\0\0\1\xff\xff\xff\xff\0\0\0\1";
    struct buf bad = {.data = (char *)none, .len = 8};
    _buf_ struct buf b = {0};

    companion_attach_encode(&a, &b);
    check_cuts("a group", &b, decode_attach);
    if (companion_attach_decode(&b, &got) == 0) {
        is_int(got.tag, 12, "tag");
        is_int(got.n_members, 3, "members");
        ok(memcmp(got.members, members, sizeof(members)) == 0, "in order");
        free(got.members);
    }
    ok(decode_attach(&bad) < 0, "a group of nobody is none");
    bad = (struct buf){.data = (char *)huge, .len = 12};
    ok(decode_attach(&bad) < 0, "nor one that is not all there");
}

static int decode_outcome(const struct buf *b)
{
    struct companion_outcome o;

    return companion_outcome_decode(b, &o);
}

static void test_outcome(void)
{
    struct companion_outcome o = {.tag = 5, .status = 75, .ok = true,
                                  .text = "because"}, got;
    _buf_ struct buf b = {0};

    companion_outcome_encode(&o, &b);
    check_cuts("an outcome", &b, decode_outcome);
    companion_outcome_decode(&b, &got);
    ok(got.tag == 5 && got.status == 75 && got.ok, "as it was");
    is_str(got.text, "because", "with its text");
}

static int decode_info(const struct buf *b)
{
    struct companion_place place;
    const void *data;
    size_t len;

    return companion_info_decode(b, &place, &data, &len);
}

static void test_info(void)
{
    struct buf entry = {.data = (char *)"entry", .len = 5};
    _buf_ struct buf b = {0};
    const void *data = NULL;
    struct companion_place place = {.rank = 17, .n_known = 20};
    size_t len = 0;

    companion_info_encode(&place, &entry, &b);
    place = (struct companion_place){0};
    check_cuts("an agent's answer", &b, decode_info);
    companion_info_decode(&b, &place, &data, &len);
    is_int(place.rank, 17, "its rank");
    is_int(place.n_known, 20, "of so many");
    ok(len == 5 && memcmp(data, "entry", 5) == 0, "and its entry");
}

int main(void)
{
    test_hello();
    test_world();
    test_attach();
    test_outcome();
    test_info();
    return tap_done();
}
