/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "base/cleanup.h"
#include "base/wire.h"
#include "rendezvous/order.h"
#include "tests/lib/tap.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint16_t procs[] = {8, 0, 4};

static uint32_t gone[] = {1, 65535};
static uint32_t twice[] = {7, 7};
static uint32_t out[] = {0, 2};
static uint32_t beyond[] = {ORDER_MAX_NODES};

static const struct order orders[] = {
    {.serial = 1, .generation = 1, .step = ORDER_PREPARE,
     .stop = ORDER_STOP_GRACE, .grace_ms = 3000, .broken = true,
     .store_rank = 2, .n_gone = 2, .gone = gone,
     .view = {.number = 3, .lead = 1, .n_nodes = 4, .shared = true, .n_out = 2,
              .out = out},
     .past = {.ran = 1, .n_restarts = 1, .n_losses = 2, .want_nodes = 3,
              .saved_generation = 1, .resume_step = -1,
              .resume_path = "/run/ckpt/step 10", .suspended = true,
              .avoid = {.n_deaths = 1, .n = 1,
                        .list = {{.path = "/run/ckpt/12", .step = 12,
                                  .n_deaths = 2}}},
              .n_marks = 2, .marks = {{.rank = 1, .excluded = EXCLUSION_FAILS},
                                      {.rank = 3, .n_causes = 2}}}},
    {.serial = 1ull << 40, .generation = 7, .step = ORDER_RUN, .n_nodes = 3,
     .n_procs = procs, .master_addr = "fe80::1", .master_port = 65535,
     .max_restarts = 3, .previous = "rank 3 exited", .resume_step = 20,
     .resume_path = "/run/ckpt/20"},
    {.serial = 9, .step = ORDER_END, .stop = ORDER_STOP_FORCE, .status = 130,
     .reason = "cancelled"},
    {.serial = 10, .generation = 2, .step = ORDER_LEAVE, .status = 0},
    {.serial = 2ull << ORDER_SERIAL_BITS, .step = ORDER_VIEW,
     .view = {.number = 2, .lead = 1, .n_nodes = 2, .shared = true}},
};

static const struct report reports[] = {
    {.rank = 0, .serial = 1, .state = REPORT_JOINED, .n_procs = 8},
    {.rank = 65535, .serial = 2, .state = REPORT_STOPPED, .generation = 3,
     .floor = 4, .fenced = 2, .heard_ago_ms = UINT64_MAX,
     .store_port = 29500, .store_addr = "10.0.0.1", .saved_generation = 2,
     .saved_step = 400, .saved_path = "ckpt/400"},
    {.rank = 5, .serial = 3, .state = REPORT_RUNNING, .generation = 3,
     .n_procs = 4, .n_alive = 3, .failed = true,
     .failure = {.kind = FAILURE_SIGNAL, .generation = 3, .node = 5,
                 .rank = 41, .local_rank = 1, .pid = 4242, .signal = 11,
                 .grade = FAILURE_HINT, .core_dumped = true,
                 .has_file = true, .wall_ns = 1234567890123456789u,
                 .age_ms = 12, .host = "n5", .program = "train",
                 .text = "line 1\nline 2"}},
    {.rank = 1, .serial = 4, .state = REPORT_ENDED},
};

/* That the fields of one step are all there: what is encoded again is the
 * same. */
static void test_orders(void)
{
    for (size_t i = 0; i < sizeof(orders) / sizeof(orders[0]); i++) {
        _buf_ struct buf a = {0};
        _buf_ struct buf b = {0};
        _order_ struct order back = {0};
        _order_ struct order copy = {0};
        const char *name = order_step_name(orders[i].step);

        order_encode(&orders[i], &a);
        is_int(order_decode(a.data, a.len, &back, NULL), 0, "%s", name);
        ok(order_copy(&copy, &back) == 0 &&
               (!copy.n_procs || copy.n_procs != back.n_procs) &&
               (!copy.gone || copy.gone != back.gone),
           "%s: a deep copy", name);
        order_encode(&copy, &b);
        ok(a.len == b.len && !memcmp(a.data, b.data, a.len),
           "%s: the same again", name);
        ok(back.serial == orders[i].serial &&
               back.generation == orders[i].generation &&
               back.grace_ms == orders[i].grace_ms &&
               back.broken == orders[i].broken &&
               back.stop == orders[i].stop &&
               back.store_rank == orders[i].store_rank &&
               back.n_gone == orders[i].n_gone &&
               order_is_gone(&back, 1) == (orders[i].n_gone > 0) &&
               !order_is_gone(&back, 2) &&
               back.status == orders[i].status &&
               back.n_nodes == orders[i].n_nodes &&
               back.master_port == orders[i].master_port &&
               back.past.resume_step == orders[i].past.resume_step &&
               back.resume_step == orders[i].resume_step &&
               back.past.suspended == orders[i].past.suspended &&
               back.past.n_marks == orders[i].past.n_marks &&
               memcmp(&back.past.avoid, &orders[i].past.avoid,
                      sizeof(back.past.avoid)) == 0 &&
               back.view.number == orders[i].view.number &&
               view_has(&back.view, 1) == (orders[i].view.n_nodes > 1) &&
               !view_has(&back.view, 2),
           "%s: numbers", name);
        is_str(back.reason, orders[i].reason, "%s: reason", name);
        is_str(back.past.resume_path, orders[i].past.resume_path, "%s: path", name);
        is_str(back.resume_path, orders[i].resume_path, "%s: start", name);
        is_str(back.previous, orders[i].previous, "%s: previous", name);
        is_str(back.master_addr, orders[i].master_addr, "%s: address", name);
    }
}

static void test_reports(void)
{
    for (size_t i = 0; i < sizeof(reports) / sizeof(reports[0]); i++) {
        _buf_ struct buf b = {0};
        struct report back;
        const char *name = report_state_name(reports[i].state);

        report_encode(&reports[i], &b);
        is_int(report_decode(b.data, b.len, &back, NULL), 0, "%s", name);
        ok(!memcmp(&back.failure, &reports[i].failure, sizeof(back.failure)) ||
               !back.failed, "%s: failure", name);
        ok(back.rank == reports[i].rank && back.serial == reports[i].serial &&
               back.n_procs == reports[i].n_procs &&
               back.n_alive == reports[i].n_alive &&
               back.failed == reports[i].failed &&
               back.floor == reports[i].floor &&
               back.fenced == reports[i].fenced &&
               back.heard_ago_ms == reports[i].heard_ago_ms &&
               back.store_port == reports[i].store_port &&
               back.saved_generation == reports[i].saved_generation &&
               back.saved_step == reports[i].saved_step, "%s: numbers", name);
        is_str(back.saved_path, reports[i].saved_path, "%s: path", name);
        is_str(back.store_addr, reports[i].store_addr, "%s: store", name);
    }
}

/* No cut, and no byte more, is accepted. The copy on the heap has just the
 * size, so that a sanitizer sees a read beyond it. */
static void test_every_cut(void)
{
    size_t n_orders = sizeof(orders) / sizeof(orders[0]);
    size_t n_reports = sizeof(reports) / sizeof(reports[0]);

    for (size_t i = 0; i < n_orders + n_reports; i++) {
        _buf_ struct buf b = {0};
        bool refused = true;

        if (i < n_orders) {
            order_encode(&orders[i], &b);
        } else {
            report_encode(&reports[i - n_orders], &b);
        }
        buf_putc(&b, '\0');
        for (size_t len = 0; len <= b.len; len++) {
            void *exact = malloc(len ? len : 1);
            struct order order = {0};
            struct report report;
            int rc;

            memcpy(exact, b.data, len);
            rc = i < n_orders ? order_decode(exact, len, &order, NULL)
                              : report_decode(exact, len, &report, NULL);
            refused = refused && (rc == 0) == (len == b.len - 1);
            order_release(&order);
            free(exact);
        }
        ok(refused, "message %zu: only as a whole", i);
    }
}

static int decode_changed(const struct order *o, size_t at, uint8_t byte,
                          struct error *e)
{
    _buf_ struct buf b = {0};
    _order_ struct order back = {0};

    order_encode(o, &b);
    b.data[at] = (char)byte;
    return order_decode(b.data, b.len, &back, e);
}

static void test_out_of_range(void)
{
    struct error e;
    struct report r = reports[2];
    _buf_ struct buf b = {0};
    static const struct {
        const char *name;
        int order;
        size_t at;
        uint8_t byte;
    } cases[] = {
        {"step 0", 0, 13, 0},         {"step 6", 0, 13, 6},
        {"stop 3", 0, 14, 3},         {"broken 2", 0, 19, 2},
        {"store rank", 0, 20, 255},
        {"more gone than there can be", 0, 24, 127},
        {"gone in no order", 0, 29, 1},
        {"n_nodes 0", 1, 23, 0},      {"n_nodes too large", 1, 22, 1},
        {"an absurd count", 1, 19, 127},
        {"words that are too long", 1, 48, 8},
    };

    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        is_int(decode_changed(&orders[cases[i].order], cases[i].at,
                              cases[i].byte, &e), -ERR_FORMAT, "%s",
               cases[i].name);
    }
    is_int(decode_changed(&orders[0], 0, 0, &e), -ERR_VERSION, "format 0");
    is_int(decode_changed(&orders[0], 0, 9, &e), -ERR_VERSION, "format");
    like(e.text, "format 9, expected 5", "both formats are named");
    is_int(order_decode("", 0, NULL, &e), -ERR_FORMAT, "nothing");
    is_int(report_decode("\1", 1, &r, &e), -ERR_VERSION, "report format");
    r.serial = 0;
    report_encode(&r, &b);
    is_int(report_decode(b.data, b.len, &r, &e), -ERR_FORMAT, "serial 0");
    buf_clear(&b);
    r = reports[2];
    r.store_port = 1;
    report_encode(&r, &b);
    is_int(report_decode(b.data, b.len, &r, &e), -ERR_FORMAT,
           "a store without an address");
}

/* Whole messages that nobody sends. */
static void test_senseless(void)
{
    static const struct {
        const char *name;
        struct order o;
    } bad_orders[] = {
        {"serial 0", {.generation = 1, .step = ORDER_PREPARE}},
        {"no generation", {.serial = 1, .step = ORDER_PREPARE}},
        {"a rank for the store that is none",
         {.serial = 1, .generation = 1, .step = ORDER_PREPARE,
          .store_rank = ORDER_MAX_NODES}},
        {"gone twice", {.serial = 1, .generation = 1, .step = ORDER_PREPARE,
                        .n_gone = 2, .gone = twice}},
        {"gone, but never there",
         {.serial = 1, .generation = 1, .step = ORDER_PREPARE, .n_gone = 1,
          .gone = beyond}},
        {"to run generation 0", {.serial = 1, .step = ORDER_RUN, .n_nodes = 3,
                                 .n_procs = procs}},
        {"a view of somebody out who was never in",
         {.serial = 1, .step = ORDER_END,
          .view = {.number = 1, .n_nodes = 2, .n_out = 2, .out = out}}},
        {"a rank that is marked twice",
         {.serial = 1, .step = ORDER_END,
          .past = {.n_marks = 2, .marks = {{.rank = 1, .excluded = true},
                                           {.rank = 1, .n_causes = 1}}}}},
        {"excluded for what nobody knows",
         {.serial = 1, .step = ORDER_END,
          .past = {.n_marks = 1, .marks = {{.rank = 1,
                                            .excluded = EXCLUSION_LAST + 1}}}}},
        {"a mark for nothing",
         {.serial = 1, .step = ORDER_END, .past = {.n_marks = 1}}},
        {"a lead that is no rank",
         {.serial = 1, .step = ORDER_END, .view = {.lead = ORDER_MAX_NODES}}},
        {"of no view", {.serial = 1, .step = ORDER_VIEW}},
        {"of a view, and a generation",
         {.serial = 1, .step = ORDER_VIEW, .generation = 1, .view = {.number = 1}}},
        {"to run on no nodes", {.serial = 1, .generation = 1,
                                .step = ORDER_RUN, .n_procs = procs}},
    };
    static const struct report bad_reports[] = {
        {.rank = ORDER_MAX_NODES, .serial = 1},
        {.rank = 1, .serial = 1, .state = REPORT_STOPPED},
        {.rank = 1, .serial = 1, .generation = 1, .store_addr = "h"},
    };
    struct report back;
    _buf_ struct buf whole = {0};

    for (size_t i = 0; i < ARRAY_SIZE(bad_orders); i++) {
        _buf_ struct buf b = {0};
        _order_ struct order o = {0};

        order_encode(&bad_orders[i].o, &b);
        is_int(order_decode(b.data, b.len, &o, NULL), -ERR_FORMAT,
               "an order: %s", bad_orders[i].name);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad_reports); i++) {
        _buf_ struct buf b = {0};

        report_encode(&bad_reports[i], &b);
        is_int(report_decode(b.data, b.len, &back, NULL), -ERR_FORMAT,
               "a report %zu", i);
    }
    report_encode(&reports[0], &whole);
    whole.data[17] = REPORT_ENDED + 1;
    is_int(report_decode(whole.data, whole.len, &back, NULL), -ERR_FORMAT,
           "a report of a state that is none");
}

static void test_senseless_failures(void)
{
    static const struct {
        size_t at; /* of a byte in the encoded failure */
        uint8_t byte;
        const char *name;
    } cases[] = {
        {0, FAILURE_NONE, "no kind"}, {0, FAILURE_HANG + 1, "unknown kind"},
        {1, FAILURE_ECHO + 1, "unknown grade"},
        {10, 0x80, "negative rank"},  {14, 0x80, "negative local rank"},
        {18, 0x80, "negative pid"},   {24, 2, "core dumped: 2"},
        {25, 2, "killed by us: 2"},   {26, 2, "has a file: 2"},
    };
    struct failure f = reports[2].failure, back;
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct wire_reader r;

        buf_clear(&b);
        failure_put(&b, &f);
        b.data[cases[i].at] = (char)cases[i].byte;
        r = wire_reader(b.data, b.len);
        failure_get(&r, &back);
        ok(!wire_done(&r), "a failure: %s", cases[i].name);
    }
    for (int32_t rank = -2; rank < 0; rank++) {
        struct wire_reader r;

        f.rank = rank;
        buf_clear(&b);
        failure_put(&b, &f);
        r = wire_reader(b.data, b.len);
        failure_get(&r, &back);
        is_int(wire_done(&r), rank == -1, "rank %d", (int)rank);
    }
}

/* Lines that say more than the description does. */
static void test_has_lines(void)
{
    struct failure f = {.kind = FAILURE_EXIT, .text = "last words"};

    ok(failure_has_lines(&f), "of a worker that exited");
    f.kind = FAILURE_EXEC;
    ok(!failure_has_lines(&f), "not of one that never ran");
    f.kind = FAILURE_AGENT;
    ok(!failure_has_lines(&f), "nor of an agent");
    f = (struct failure){.kind = FAILURE_SIGNAL};
    ok(!failure_has_lines(&f), "nor where there are none");
}

/* What is too long for its field, or has a zero byte inside, is refused. */
static void test_strings(void)
{
    _buf_ struct buf b = {0};
    struct report r = reports[0];
    struct report back;
    char *at;

    memset(r.saved_path, 'x', sizeof(r.saved_path) - 1);
    report_encode(&r, &b);
    is_int(report_decode(b.data, b.len, &back, NULL), 0, "longest path");
    is_str(back.saved_path, r.saved_path, "is whole");
    at = memchr(b.data, 'x', b.len);
    *at = '\0';
    is_int(report_decode(b.data, b.len, &back, NULL), -ERR_FORMAT,
           "a zero byte inside");
}

static void test_descriptions(void)
{
    struct failure f = reports[2].failure;
    char text[200];

    failure_describe(&f, text, sizeof(text));
    is_str(text, "rank 41 (node 5, n5) was killed by signal 11 (SIGSEGV), "
                 "core dumped", "signal");
    f.kind = FAILURE_EXIT;
    f.exit_code = 3;
    failure_describe(&f, text, sizeof(text));
    is_str(text, "rank 41 (node 5, n5) exited with code 3", "exit");
    snprintf(f.what, sizeof(f.what), "ValueError: x");
    failure_describe(&f, text, sizeof(text));
    is_str(text, "rank 41 (node 5, n5) exited with code 3: ValueError: x",
           "in its own words");
    f.kind = FAILURE_SAID;
    failure_describe(&f, text, sizeof(text));
    is_str(text, "rank 41 (node 5, n5) failed, and had not ended yet: "
           "ValueError: x", "said so");
    f.kind = FAILURE_HANG;
    failure_describe(&f, text, sizeof(text));
    is_str(text, "rank 41 (node 5, n5) hangs: ValueError: x", "hangs");
    f.kind = FAILURE_OOM;
    failure_describe(&f, text, sizeof(text));
    like(text, "for lack of memory", "oom");
    f.kind = FAILURE_EXEC;
    snprintf(f.text, sizeof(f.text), "no such file\nmore");
    failure_describe(&f, text, sizeof(text));
    is_str(text, "rank 41 (node 5, n5): no such file",
           "exec, first line only");
    f.kind = FAILURE_AGENT;
    f.rank = -1;
    failure_describe(&f, text, sizeof(text));
    is_str(text, "node 5 (n5): no such file", "agent");
    f.kind = FAILURE_NONE;
    failure_describe(&f, text, sizeof(text));
    like(text, "has not failed", "none");
    failure_describe(&f, text, 8);
    is_str(text, "node 5 ", "cut to fit");
    failure_signal_name(9, text, sizeof(text));
    is_str(text, "SIGKILL", "a signal");
    failure_signal_name(35, text, sizeof(text));
    is_str(text, "SIGRTMIN+1", "a real-time one");
    failure_signal_name(99, text, sizeof(text));
    is_str(text, "signal 99", "none that is known");
}

int main(void)
{
    test_orders();
    test_reports();
    test_every_cut();
    test_out_of_range();
    test_senseless();
    test_senseless_failures();
    test_has_lines();
    test_strings();
    test_descriptions();
    return tap_done();
}
