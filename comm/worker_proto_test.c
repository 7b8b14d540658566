/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "comm/worker_proto.h"

#include "base/str.h"
#include "tests/lib/tap.h"

#include <string.h>

static void round_trip(const struct worker_msg *m, const char *name)
{
    _buf_ struct buf b = {0};
    struct worker_msg got;
    struct error e = {0};
    size_t len = 0;
    bool all_short = true, all_bad = true;

    memset(&got, 0, sizeof(got));
    worker_msg_encode(&b, m);
    for (size_t cut = 0; cut < b.len; cut++) {
        all_short = all_short && worker_frame_next(b.data, cut, &len, &e) == 0;
    }
    ok(all_short, "%s: a part of the frame is not a frame", name);
    is_int(worker_frame_next(b.data, b.len, &len, &e), 1, "%s: a frame", name);
    is_int((intmax_t)len, (intmax_t)b.len, "%s: its length", name);
    is_int(worker_msg_decode(b.data, len, &got, &e), 0, "%s: decodes", name);
    is_int(got.type, m->type, "%s: type", name);
    ok(memcmp(&got, m, sizeof(got)) == 0, "%s: the same", name);
    for (size_t cut = 0; cut < b.len; cut++) {
        int rc = worker_msg_decode(b.data, cut, &got, NULL);

        all_bad = all_bad && rc == -ERR_FORMAT;
    }
    ok(all_bad, "%s: cut anywhere it is malformed", name);
    buf_putc(&b, 'x');
    is_int(worker_msg_decode(b.data, b.len, &got, &e), -ERR_FORMAT,
           "%s: too long", name);
}

static struct worker_msg blank(enum worker_msg_type type)
{
    struct worker_msg m;

    memset(&m, 0, sizeof(m)); /* padding too: compared by memcmp */
    m.type = type;
    return m;
}

static struct worker_msg a_welcome(void)
{
    struct worker_msg m = blank(WORKER_WELCOME);

    m.welcome.version = WORKER_PROTO_VERSION;
    m.welcome.rank = 5;
    m.welcome.world = 8;
    m.welcome.local_rank = 1;
    m.welcome.local_world = 4;
    m.welcome.node = 1;
    m.welcome.n_nodes = 2;
    m.welcome.generation = 3;
    str_copy(m.welcome.run_dir, sizeof(m.welcome.run_dir), "/runs/a");
    return m;
}

#define UUID "0123456789abcdef0123456789abcdef"

static void test_snap_round_trips(void)
{
    struct worker_msg m = blank(WORKER_SNAP_BEGIN);

    m.snap_begin.step = 1200;
    m.snap_begin.bytes = UINT64_MAX;
    str_copy(m.snap_begin.uuid, WORKER_UUID_SIZE, UUID);
    memset(m.snap_begin.root, '/', WORKER_ROOT_SIZE - 1);
    round_trip(&m, "snapshot begin");
    m = blank(WORKER_SNAP);
    m.snap.error = 16;
    m.snap.bytes = 4096;
    m.snap.is_bare = 1;
    m.snap.step = 7;
    str_copy(m.snap.why, WORKER_WHY_SIZE, "both are on their way");
    round_trip(&m, "snapshot");
    m = blank(WORKER_SNAP_FILL);
    m.snap_fill.image_bytes = UINT64_MAX - 1;
    m.snap_fill.may_stay = 1;
    str_copy(m.snap_fill.uuid, WORKER_UUID_SIZE, UUID);
    round_trip(&m, "snapshot fill");
    m.snap_fill.image_bytes = 0;
    m.snap_fill.may_stay = 0;
    m.snap_fill.is_chosen = 1;
    m.snap_fill.is_crowded = 1;
    round_trip(&m, "snapshot fill of what comes to nothing");
    m = blank(WORKER_SNAP_DONE);
    m.snap_done.image_bytes = 9000;
    m.snap_done.part_bytes = 10;
    str_copy(m.snap_done.uuid, WORKER_UUID_SIZE, UUID);
    round_trip(&m, "snapshot done");
    m = blank(WORKER_SNAP_STATUS);
    m.snap_status.level = WORKER_SNAP_DURABLE;
    str_copy(m.snap_status.uuid, WORKER_UUID_SIZE, UUID);
    round_trip(&m, "snapshot status");
    m = blank(WORKER_SNAP_FIND);
    round_trip(&m, "snapshot find");
    m = blank(WORKER_SNAP_WANT);
    m.snap_want.level = WORKER_SNAP_DURABLE;
    m.snap_want.is_chosen = 1;
    str_copy(m.snap_want.uuid, WORKER_UUID_SIZE, UUID);
    round_trip(&m, "snapshot want");
}

/* What a worker names is what files are called by. */
static void test_bad_snaps(void)
{
    static const struct {
        const char *uuid, *root;
    } cases[] = {
        {"", "/scratch"},
        {"0123456789abcdef0123456789abcde", "/scratch"},
        {"0123456789abcdef0123456789abcdeF", "/scratch"},
        {"../../../../../../../../../../..", "/scratch"},
        {UUID, "scratch"},
        {UUID, ""},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct worker_msg m = blank(WORKER_SNAP_BEGIN), got;
        _buf_ struct buf b = {0};

        str_copy(m.snap_begin.uuid, WORKER_UUID_SIZE, cases[i].uuid);
        str_copy(m.snap_begin.root, WORKER_ROOT_SIZE, cases[i].root);
        worker_msg_encode(&b, &m);
        is_int(worker_msg_decode(b.data, b.len, &got, NULL), -ERR_FORMAT,
               "no snapshot '%s' of '%s'", cases[i].uuid, cases[i].root);
    }
}

static void test_bad_snap(void)
{
    struct worker_msg m = blank(WORKER_SNAP), got;
    _buf_ struct buf b = {0};

    m.snap.is_bare = 2;
    worker_msg_encode(&b, &m);
    is_int(worker_msg_decode(b.data, b.len, &got, NULL), -ERR_FORMAT,
           "memory is there, or is not");
}

/* By the bytes: programs of other versions send them. */
static void test_fill_bytes(void)
{
    static const char want[] = "\0\0\0\x31\0\x12" "\1\2\3\4\5\6\7\x8" "\1\0\1" "\0\0\0\x20" UUID;
    struct worker_msg m = blank(WORKER_SNAP_FILL);
    _buf_ struct buf b = {0};

    m.snap_fill.image_bytes = UINT64_C(0x0102030405060708);
    m.snap_fill.may_stay = 1;
    m.snap_fill.is_crowded = 1;
    str_copy(m.snap_fill.uuid, WORKER_UUID_SIZE, UUID);
    worker_msg_encode(&b, &m);
    ok(b.len == sizeof(want) - 1 && memcmp(b.data, want, b.len) == 0,
       "a fill is what it says in doc/formats.md: %zu bytes", b.len);
}

static void test_bad_fills(void)
{
    static const struct {
        uint8_t may_stay, is_chosen, is_crowded;
        const char *uuid;
    } cases[] = {
        {2, 0, 0, UUID}, {0, 2, 1, UUID}, {255, 1, 0, UUID}, {1, 255, 0, UUID}, {0, 0, 2, UUID},
        {1, 1, 255, UUID}, {0, 0, 0, ""}, {1, 1, 1, "0"},
        {0, 0, 0, "0123456789abcdef0123456789abcde"},
        {0, 0, 0, "0123456789abcdef0123456789abcdeF"},
        {0, 0, 0, "../../../../../../../../../../.."},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct worker_msg m = blank(WORKER_SNAP_FILL), got;
        _buf_ struct buf b = {0};

        m.snap_fill.image_bytes = 9000;
        m.snap_fill.may_stay = cases[i].may_stay;
        m.snap_fill.is_chosen = cases[i].is_chosen;
        m.snap_fill.is_crowded = cases[i].is_crowded;
        str_copy(m.snap_fill.uuid, WORKER_UUID_SIZE, cases[i].uuid);
        worker_msg_encode(&b, &m);
        is_int(worker_msg_decode(b.data, b.len, &got, NULL), -ERR_FORMAT,
               "nobody fills '%s', which stays: %u, chosen: %u, crowded: %u",
               cases[i].uuid, cases[i].may_stay, cases[i].is_chosen, cases[i].is_crowded);
    }
}

static void test_bad_wants(void)
{
    static const struct {
        uint8_t level, is_chosen;
        const char *uuid;
    } cases[] = {
        {0, 0, UUID}, {4, 0, UUID}, {255, 1, UUID}, {1, 2, UUID}, {3, 0, ""},
        {3, 0, "0123456789abcdef/123456789abcdef"},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        struct worker_msg m = blank(WORKER_SNAP_WANT), got;
        _buf_ struct buf b = {0};

        m.snap_want.level = cases[i].level;
        m.snap_want.is_chosen = cases[i].is_chosen;
        str_copy(m.snap_want.uuid, WORKER_UUID_SIZE, cases[i].uuid);
        worker_msg_encode(&b, &m);
        is_int(worker_msg_decode(b.data, b.len, &got, NULL), -ERR_FORMAT,
               "nobody wants '%s' at %u, %u", cases[i].uuid, cases[i].level,
               cases[i].is_chosen);
    }
}

static void test_round_trips(void)
{
    struct worker_msg m = a_welcome();

    round_trip(&m, "welcome");
    m = blank(WORKER_HELLO);
    m.hello.version = WORKER_PROTO_VERSION;
    m.hello.pid = 4000000;
    round_trip(&m, "hello");
    m = blank(WORKER_REFUSED);
    m.refused.version = 9;
    str_copy(m.refused.why, sizeof(m.refused.why), "another version");
    round_trip(&m, "refused");
    m = blank(WORKER_JOIN_COMM);
    round_trip(&m, "join comm");
    m = blank(WORKER_COMM);
    m.comm.segment_bytes = UINT64_MAX;
    round_trip(&m, "comm");
    m = blank(WORKER_REPORT);
    m.report.step = -7;
    m.report.n_metrics = 2;
    str_copy(m.report.metrics[0].name, WORKER_NAME_SIZE, "loss");
    m.report.metrics[0].value = 0.25;
    memset(m.report.metrics[1].name, 'n', WORKER_NAME_SIZE - 1);
    m.report.metrics[1].value = -1e300;
    round_trip(&m, "report");
    m = blank(WORKER_CHECKPOINT_SAVED);
    m.checkpoint.step = INT64_MAX;
    memset(m.checkpoint.path, 'p', WORKER_PATH_SIZE - 1);
    round_trip(&m, "checkpoint saved");
    m = blank(WORKER_CHECKPOINT_HEARD);
    m.heard.requests = 1;
    round_trip(&m, "checkpoint heard");
    m.heard.requests = UINT32_MAX;
    m.heard.step = INT64_MAX;
    str_copy(m.heard.uuid, WORKER_UUID_SIZE, UUID);
    round_trip(&m, "checkpoint heard before a save");
    m = blank(WORKER_SAVE_PLAN);
    m.save_plan = (struct worker_save_plan){66.5, 0.2, 11160, 111600, 10, 1};
    round_trip(&m, "save plan");
    m = blank(WORKER_STORE);
    round_trip(&m, "store");
    m = blank(WORKER_STATE);
    m.state.should_stop = 1;
    m.state.checkpoint_requests = 12;
    round_trip(&m, "state");
    test_snap_round_trips();
}

static void test_lengths(void)
{
    static const struct {
        uint8_t head[4];
        int want;
    } cases[] = {
        {{0, 0, 0, 0}, -ERR_FORMAT},
        {{0, 0, 0, 1}, -ERR_FORMAT},
        {{0, 0, 0, 2}, 0},
        {{0, 1, 0, 0}, 0},
        {{0, 1, 0, 1}, -ERR_FORMAT},
        {{255, 255, 255, 255}, -ERR_FORMAT},
        {{'G', 'E', 'T', ' '}, -ERR_FORMAT},
    };
    size_t len;

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_int(worker_frame_next(cases[i].head, 4, &len, NULL), cases[i].want,
               "frame length %zu", i);
    }
}

static void test_later_versions(void)
{
    static const uint8_t unknown[] = {0, 0, 0, 4, 0x77, 0x77, 1, 2};
    static const uint8_t zero[] = {0, 0, 0, 2, 0, 0};
    static const uint8_t hello_2[] = {0, 0, 0, 7, 0, 1, 0, 2, 'a', 'b', 'c'};
    struct worker_msg m;

    is_int(worker_msg_decode(unknown, sizeof(unknown), &m, NULL), 0,
           "an unknown type is no error");
    is_int(m.type, WORKER_UNKNOWN, "and known as such");
    is_int(worker_msg_decode(zero, sizeof(zero), &m, NULL), 0, "nor is zero");
    is_int(m.type, WORKER_UNKNOWN, "which is no type either");
    is_int(worker_msg_decode(hello_2, sizeof(hello_2), &m, NULL), 0,
           "a hello of version 2");
    is_int(m.hello.version, 2, "tells its version");
}

/* Each edit makes a valid message of the type invalid. */
static void test_values(void)
{
    struct worker_msg got;
    struct worker_msg m = a_welcome();
    _buf_ struct buf b = {0};

#define BAD(name)                                                         \
    buf_clear(&b);                                                        \
    worker_msg_encode(&b, &m);                                            \
    is_int(worker_msg_decode(b.data, b.len, &got, NULL), -ERR_FORMAT, name)
    m.welcome.rank = 8;
    BAD("rank outside the world");
    m = a_welcome();
    m.welcome.local_rank = 4;
    BAD("local rank outside the node");
    m = a_welcome();
    m.welcome.node = 2;
    BAD("node outside");
    m = a_welcome();
    m.welcome.local_world = 9;
    BAD("more workers here than everywhere");
    m = a_welcome();
    m.welcome.world = 0x80000000;
    BAD("a world that no int holds");
    m = blank(WORKER_STATE);
    m.state.should_stop = 2;
    BAD("a flag of 2");
    m = blank(WORKER_CHECKPOINT_SAVED);
    BAD("a checkpoint without a path");
    m = blank(WORKER_CHECKPOINT_HEARD);
    BAD("no request that was heard of");
    m.heard.requests = 1;
    m.heard.step = -1;
    BAD("a save of no step");
    m.heard.step = 1;
    str_copy(m.heard.uuid, WORKER_UUID_SIZE, "../../../../../../../../../../..");
    BAD("a save whose uuid is none");
    m = blank(WORKER_REPORT);
    m.report.n_metrics = 1;
    str_copy(m.report.metrics[0].name, WORKER_NAME_SIZE, "a b");
    BAD("a name with a blank");
    m.report.metrics[0].name[0] = '\0';
    BAD("an empty name");
#undef BAD
}

int main(void)
{
    test_round_trips();
    test_bad_snaps();
    test_bad_snap();
    test_fill_bytes();
    test_bad_fills();
    test_bad_wants();
    test_lengths();
    test_later_versions();
    test_values();
    return tap_done();
}
