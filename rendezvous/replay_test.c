/* SPDX-License-Identifier: Apache-2.0 */
/* A log of a small run is stepped again, says the same, and is found out where it does
 * not; hostile logs are refused. */
#include <config.h>

#include "rendezvous/replay.h"
#include "rendezvous/steps.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { HEAD_BYTES = 16, LEASE_MS = 1000 };

/* --- a run of one agent of two: what it logs --- */

struct bed {
    struct buf log;
    struct member *member;
    struct heir *heir;
    struct lead *lead;
    uint64_t now_ms;
};

static void step_member(struct bed *t, struct member_event event)
{
    struct member_actions do_;

    event.now_ms = t->now_ms;
    int rc = member_step(t->member, &event, &do_);

    steps_put_member(&t->log, t->member, &event, rc, &do_);
}

static void step_heir(struct bed *t, struct heir_event event)
{
    struct heir_actions do_;

    event.now_ms = t->now_ms;
    int rc = heir_step(t->heir, &event, &do_);

    steps_put_heir(&t->log, t->heir, &event, rc, &do_);
}

/* Its order goes to heir and member. */
static void step_lead(struct bed *t, struct lead_event event)
{
    struct lead_actions *do_ = calloc(1, sizeof(*do_));
    _order_ struct order order = {0};

    event.now_ms = t->now_ms;
    int rc = lead_step(t->lead, &event, do_);

    steps_put_lead(&t->log, t->lead, &event, rc, do_);
    if (do_->order && order_copy(&order, do_->order) == 0) {
        step_heir(t, (struct heir_event){.type = HEIR_ORDER, .order = &order});
        step_member(t, (struct member_event){.type = MEMBER_ORDER,
                                             .order = &order});
    }
    free(do_);
}

static void begin(struct bed *t, uint32_t rank)
{
    static const char *const names[] = {"n0", "n1"};
    static const uint32_t node_of[] = {0, 1};
    struct member_config m = {.rank = rank, .n_procs = 1, .host = "n0",
                              .lease_ms = LEASE_MS, .waits = true,
                              .join_ms = 5000, .linger_ms = 10, .margin_ms = 100};
    struct heir_config h = {.rank = rank, .n_nodes = 2,
                            .rule = {.on = true, .min_nodes = 2,
                                     .node_of = node_of},
                            .lease_ms = LEASE_MS, .join_ms = 5000, .slack_ms = 50,
                            .settle_ms = 100, .wait_ms = 10000};
    struct lead_config l = {.n_nodes = 2, .rank = rank, .rule = h.rule,
                            .claim_ms = 500, .names = names, .node_of = node_of,
                            .min_nodes = 2, .max_losses = 3,
                            .lease_ms = LEASE_MS, .lease_slack_ms = 50,
                            .restart = {.kind = RESTART_ON_FAILURE, .max = 2},
                            .gang_timeout_ms = 5000, .resume_path = "/ckpt",
                            .resume_step = 7};

    steps_put_head(&t->log, rank);
    steps_put_heir_create(&t->log, &h, t->now_ms);
    steps_put_member_create(&t->log, &m, t->now_ms);
    steps_put_lead_create(&t->log, &l, t->now_ms);
    if (heir_create(&h, t->now_ms, &t->heir, NULL) < 0 ||
        member_create(&m, t->now_ms, &t->member, NULL) < 0 ||
        lead_create(&l, t->now_ms, &t->lead, NULL) < 0) {
        bail_out("no core");
    }
}

static struct report report(uint32_t rank, uint64_t serial, enum report_state state,
                            uint32_t generation)
{
    return (struct report){.rank = rank, .serial = serial, .state = state,
                           .generation = generation, .n_procs = 1, .floor = 1,
                           .heard_ago_ms = UINT64_MAX};
}

static void tell(struct bed *t, struct report r)
{
    t->now_ms += 10;
    step_lead(t, (struct lead_event){.type = LEAD_REPORT, .report = &r});
}

/* Two gather, run, one fails. */
static void play(struct bed *t, uint32_t rank)
{
    struct failure f = {.kind = FAILURE_EXIT, .exit_code = 3, .rank = 1,
                        .generation = 1, .node = 1};
    struct report failed = report(1, 4, REPORT_RUNNING, 1);

    begin(t, rank);
    step_member(t, (struct member_event){.type = MEMBER_UPLINK_UP});
    step_lead(t, (struct lead_event){.type = LEAD_SHARED});
    tell(t, report(0, 1, REPORT_JOINED, 0));
    tell(t, report(1, 1, REPORT_JOINED, 0));
    step_member(t, (struct member_event){
        .type = MEMBER_STORE_OPEN, .generation = 1, .addr = "10.0.0.1",
        .port = 77});
    struct report first = report(0, 2, REPORT_STOPPED, 1);
    first.store_port = 77;
    snprintf(first.store_addr, sizeof(first.store_addr), "10.0.0.1");
    tell(t, first);
    tell(t, report(1, 2, REPORT_STOPPED, 1));
    step_heir(t, (struct heir_event){
        .type = HEIR_SEEN, .seen = {.all_ms = t->now_ms, .live_ms = t->now_ms},
        .rivals = {.size = 1}});
    step_member(t, (struct member_event){.type = MEMBER_WORD});
    step_member(t, (struct member_event){.type = MEMBER_STARTED, .generation = 1});
    tell(t, report(1, 3, REPORT_RUNNING, 1));
    step_lead(t, (struct lead_event){.type = LEAD_SAVED, .text = "/ckpt/a", .step = 9,
                                     .generation = 1});
    step_lead(t, (struct lead_event){.type = LEAD_SAVED, .text = "/ckpt/b", .step = 9,
                                     .generation = 1, .is_later = true});
    failed.failed = true;
    failed.failure = f;
    tell(t, failed);
    step_member(t, (struct member_event){.type = MEMBER_EXITED, .generation = 1,
                                         .failure = &f});
    step_member(t, (struct member_event){.type = MEMBER_GONE, .generation = 1});
    step_lead(t, (struct lead_event){.type = LEAD_LOST, .rank = 1, .dead = true,
                                     .text = "its link broke"});
}

static void end(struct bed *t)
{
    member_destroy(t->member);
    heir_destroy(t->heir);
    lead_destroy(t->lead);
    buf_release(&t->log);
}

static size_t record_len(const struct buf *log, size_t at)
{
    const uint8_t *p = (const uint8_t *)log->data + at;

    return 4 + ((size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3]);
}

/* --- tests --- */

static void test_same(void)
{
    struct bed t = {.now_ms = 1000};
    struct replay all = {0};
    struct error e = {0};

    play(&t, 0);
    is_int(replay_log(&all, t.log.data, t.log.len, &e), 0,
           "a log says the same again: %s", e.text);
    ok(all.n_steps > 20 && all.n_runs >= 2, "with its orders and starts (%llu, %zu)",
       (unsigned long long)all.n_steps, all.n_runs);
    is_int(replay_check(&all, &e), 0, "and breaks no rule: %s", e.text);
    replay_release(&all);
    end(&t);
}

/* The last byte of what each step said, one after the other. */
static void test_tampered(void)
{
    struct bed t = {.now_ms = 1000};
    unsigned n = 0, n_found = 0;

    play(&t, 0);
    for (size_t at = HEAD_BYTES; at < t.log.len; at += record_len(&t.log, at)) {
        uint8_t kind = (uint8_t)t.log.data[at + 4];
        struct replay all = {0};
        struct error e = {0};
        char *last = &t.log.data[at + record_len(&t.log, at) - 1];

        if (kind != STEPS_MEMBER && kind != STEPS_HEIR && kind != STEPS_LEAD) {
            continue;
        }
        *last ^= 1;
        n++;
        n_found += replay_log(&all, t.log.data, t.log.len, &e) == -EINVAL &&
                   strstr(e.text, "something else than was recorded");
        *last ^= 1;
        replay_release(&all);
    }
    ok(n > 10 && n_found == n, "each of %u changed actions is found (%u)", n, n_found);
    end(&t);
}

/* A killed agent's log ends anywhere. */
static void test_torn(void)
{
    struct bed t = {.now_ms = 1000};
    bool good = true;

    play(&t, 0);
    for (size_t len = HEAD_BYTES; good && len <= t.log.len; len++) {
        struct replay all = {0};

        good = replay_log(&all, t.log.data, len, NULL) == 0;
        replay_release(&all);
    }
    ok(good, "a log is good up to any byte");
    end(&t);
}

static void test_together(void)
{
    static const struct {
        struct replay_run a, b;
        const char *word; /* NULL: allowed */
    } table[] = {
        {{0, true, 1, 0, 1}, {1, true, 1, 0, 1}, NULL},
        {{0, true, 1, 0, 1}, {1, true, 2, 1, 2}, NULL},
        {{0, true, 1, 0, 1}, {1, true, 2, 0, 1}, NULL},
        {{0, false, 1, 0, 3}, {1, true, 2, 1, 2}, NULL}, /* nobody obeyed it */
        {{0, true, 1, 0, 1}, {1, true, 1, 1, 2}, "view 1 has the leads 0 and 1"},
        {{0, false, 1, 0, 2}, {1, false, 2, 1, 2}, "generation 2 is of node 0"},
        {{0, true, 1, 0, 3}, {1, true, 2, 1, 2}, "generation 3 runs in view 1"},
    };

    for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        struct replay_run runs[] = {table[i].a, table[i].b};
        struct replay all = {.runs = runs, .n_runs = 2};
        struct error e = {0};
        int rc = replay_check(&all, &e);

        if (table[i].word) {
            ok(rc == -EINVAL && strstr(e.text, table[i].word), "row %zu: %s", i,
               e.text);
        } else {
            is_int(rc, 0, "row %zu is allowed: %s", i, e.text);
        }
    }
}

/* A log and its like from another agent, which claims to lead the same view. */
static void test_two_leads(void)
{
    struct bed one = {.now_ms = 1000}, other = {.now_ms = 1000};
    struct replay all = {0};
    struct error e = {0};

    play(&one, 0);
    play(&other, 1);
    is_int(replay_log(&all, one.log.data, one.log.len, &e), 0, "one log");
    is_int(replay_log(&all, other.log.data, other.log.len, &e), 0, "and another: %s",
           e.text);
    is_int(replay_check(&all, &e), -EINVAL, "are of two leads of one view");
    like(e.text, "has the leads", "which is said");
    replay_release(&all);
    end(&one);
    end(&other);
}

/* --- hostile --- */

#define HEAD "mstrstep\0\0\0\2\0\0\0\0"
#define U64 "\0\0\0\0\0\0\0\0"

static const struct {
    const char *name, *bytes;
    size_t len;
    int code;
} hostile[] = {
#define LOG(name, bytes, code) {name, bytes, sizeof(bytes) - 1, code}
    LOG("nothing", "", ERR_FORMAT),
    LOG("half a head", "mstrstep\0\0\0\2", ERR_FORMAT),
    LOG("another magic", "mstrstop\0\0\0\2\0\0\0\0", ERR_FORMAT),
    LOG("another version", "mstrstep\0\0\0\1\0\0\0\0", ERR_VERSION),
    LOG("an empty record", HEAD "\0\0\0\0", ERR_FORMAT),
    LOG("a record of 4 GiB", HEAD "\xff\xff\xff\xff\1", ERR_FORMAT),
    LOG("kind 0", HEAD "\0\0\0\1\0", ERR_FORMAT),
    LOG("kind 10", HEAD "\0\0\0\1\12", ERR_FORMAT),
    LOG("an end with more in it", HEAD "\0\0\0\2\11\0", ERR_FORMAT),
    LOG("a member without fields", HEAD "\0\0\0\1\1", ERR_FORMAT),
    LOG("a step before its begin", HEAD "\0\0\0\61\2\0\0" U64 U64 "\0\0\0\0\0\0" U64
        "\0\0\0\0" U64 "\0\0\0\0" U64, EINVAL),
    LOG("an order that is not there", HEAD "\0\0\0\61\2\1\0" U64 U64
        "\0\0\0\0\0\0" U64 "\0\0\0\0" U64 "\0\0\0\0", ERR_FORMAT),
    LOG("an event of type 99", HEAD "\0\0\0\61\2\143\0" U64 U64
        "\0\0\0\0\0\0" U64 "\0\0\0\0" U64 "\0\0\0\0", ERR_FORMAT),
    LOG("parts of another kind", HEAD "\0\0\0\61\2\0\2" U64 U64
        "\0\0\0\0\0\0" U64 "\0\0\0\0" U64 "\0\0\0\0", ERR_FORMAT),
    LOG("nobody grows", HEAD "\0\0\0\6\5\0\0\0\1\0", EINVAL),
    LOG("it grows to nothing", HEAD "\0\0\0\6\5\0\0\0\0\0", ERR_FORMAT),
    LOG("it grows to 4 billion", HEAD "\0\0\0\6\5\xff\xff\xff\xff\0", ERR_FORMAT),
    LOG("65536 nodes in four bytes", HEAD "\0\0\0\12\5\0\1\0\0\1\0\0\0\0",
        ERR_FORMAT),
    LOG("a node whose first comes later", HEAD "\0\0\0\12\5\0\0\0\1\1\0\0\0\1",
        ERR_FORMAT),
    LOG("a name of 4 GiB", HEAD "\0\0\0\13\10\0\0\0\1\1\xff\xff\xff\xff\0",
        ERR_FORMAT),
#undef LOG
};

static void test_hostile(void)
{
    for (size_t i = 0; i < sizeof(hostile) / sizeof(hostile[0]); i++) {
        struct replay all = {0};
        struct error e = {0};
        /* of just that size, for the sanitizer to see */
        char *data = malloc(hostile[i].len + !hostile[i].len);

        memcpy(data, hostile[i].bytes, hostile[i].len);
        is_int(replay_log(&all, data, hostile[i].len, &e), -hostile[i].code,
               "%s: %s", hostile[i].name, e.text);
        replay_release(&all);
        free(data);
    }
}

int main(void)
{
    test_same();
    test_tampered();
    test_torn();
    test_together();
    test_two_leads();
    test_hostile();
    return tap_done();
}
