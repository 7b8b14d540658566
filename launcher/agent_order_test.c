/* SPDX-License-Identifier: Apache-2.0 */
/* When orders of the lead go out: before or after what they say is on disk. */
#include <config.h>

#include "launcher/agent_order.h"

#include "base/fs.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <stdlib.h>
#include <string.h>

enum { CLOSE_MS = 60000 };

struct bed {
    struct agent agent;
    struct agent_order order;
};

/* It waits for its turn in the agent's own member. */
static bool is_out(struct bed *b)
{
    return b->agent.soon;
}

static void wait_out(struct bed *b)
{
    while (!is_out(b)) {
        uv_run(&b->agent.loop, UV_RUN_ONCE);
    }
    agent_member_stop(&b->agent); /* it has none to give it to */
}

static int generation_on_disk(const struct bed *b)
{
    _cleanup_(run_status) struct run_status *s = NULL;
    _free_ char *text = NULL;
    char path[PATH_MAX];
    size_t len;

    if (fs_path(path, sizeof(path), NULL, "%s/status.json",
                b->agent.run.dir) < 0 ||
        fs_read(path, STATUS_MAX_JSON_BYTES, &text, &len, NULL) < 0 ||
        run_status_from_json(text, len, &s, NULL) < 0) {
        return -1;
    }
    return s->generation;
}

static void publish_run(struct bed *b, uint32_t generation)
{
    uint16_t n_procs[BED_NODES];
    struct order run = lead_bed_run(generation, n_procs);

    record_started(b->order.record, &run);
    agent_order_publish(&b->order, &run);
}

static void test_run(struct bed *b)
{
    struct order prepare = {.serial = 1, .generation = 1,
                            .step = ORDER_PREPARE};

    agent_order_publish(&b->order, &prepare);
    ok(is_out(b), "an order that starts nothing goes out at once");
    wait_out(b);
    publish_run(b, 1);
    ok(!is_out(b), "one to run does not");
    wait_out(b);
    is_int(generation_on_disk(b), 1, "its generation is on disk by then");
    publish_run(b, 1);
    ok(is_out(b), "what is said of it again waits for nothing");
    wait_out(b);
}

static void test_taken_back(struct bed *b)
{
    struct order end = {.serial = 3, .generation = 2, .step = ORDER_END};

    publish_run(b, 2);
    agent_order_publish(&b->order, &end);
    ok(is_out(b), "a later order goes out meanwhile");
    wait_out(b);
    while (generation_on_disk(b) != 2) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    }
    for (int i = 0; i < 100; i++) {
        uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    }
    ok(!is_out(b), "and the one that waited never");
}

/* Nothing can be written there. */
static void test_no_disk(struct bed *b)
{
    fs_remove_tree(b->agent.run.dir, NULL);
    publish_run(b, 3);
    ok(!is_out(b), "held up by a disk that takes nothing");
    wait_out(b);
    ok(true, "but not for good");
    is_int(generation_on_disk(b), -1, "with nothing on disk");
    publish_run(b, 4);
    agent_order_release(&b->order);
    uv_run(&b->agent.loop, UV_RUN_NOWAIT);
    ok(!is_out(b), "forgotten");
}

int main(void)
{
    struct bed *b = calloc(1, sizeof(*b));
    struct error e = {0};

    if (!b) {
        bail_out("memory");
    }
    lead_bed_make(&b->agent);
    b->order.agent = &b->agent;
    if (record_create(&b->agent, &b->order.record, &e) < 0) {
        bail_out("%s", e.text);
    }
    test_run(b);
    test_taken_back(b);
    test_no_disk(b);
    agent_order_release(&b->order);
    record_destroy(b->order.record, CLOSE_MS);
    fs_remove_tree(b->agent.run.dir, NULL);
    lead_bed_release(&b->agent);
    free(b);
    return tap_done();
}
