/* SPDX-License-Identifier: Apache-2.0 */
/* What a next lead is asked for, of that which the one before may not have heard. */
#include <config.h>

#include "launcher/agent.h"

#include "base/cleanup.h"
#include "base/fs.h"
#include "launcher/jsonw.h"
#include "launcher/lead_bed.h"
#include "tests/lib/tap.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { RANK = 1 };

struct bed {
    struct agent agent;
    uint32_t view;
    struct buf heard;
};

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    struct bed *b = ctx;
    json_t *fact = json_loadb(data, len, 0, NULL);
    const char *op = json_string_value(json_object_get(fact, "op"));
    const char *id = json_string_value(json_object_get(fact, "id"));

    (void)rank;
    buf_printf(&b->heard, "%s%s", b->heard.len ? " " : "",
               op ? op : json_string_value(json_object_get(fact, "fact")));
    buf_printf(&b->heard, "%s%s", id ? " " : "", id ? id : "");
    json_decref(fact);
}

/* It has no parent: all that it tells waits. */
static void make(struct bed *b)
{
    static const uint8_t key[32] = {1};
    static const struct tree_ops ops = {.on_event = on_event};
    struct agent *a = &b->agent;
    struct tree_config tree = {.loop = &a->loop, .roster = &a->roster, .rank = RANK,
                               .arity = 2, .lease_ms = 1000, .run_id = "x",
                               .version = "1", .key = key, .ops = &ops, .ctx = b};

    lead_bed_make(a);
    tree_close(a->tree);
    tree.listener = a->listener;
    if (tree_create(&tree, &a->tree, NULL) < 0) {
        bail_out("no tree");
    }
}

/* Since this was asked last, by a lead that reads it. */
static const char *heard(struct bed *b)
{
    buf_clear(&b->heard);
    tree_set_view(b->agent.tree, ++b->view, RANK);
    tree_tell_events(b->agent.tree);
    tree_set_view(b->agent.tree, ++b->view, 0);
    return buf_str(&b->heard);
}

/* By the next lead. */
static const char *heard_again(struct bed *b)
{
    agent_control_again(&b->agent);
    return heard(b);
}

static void pass_leases(struct bed *b, unsigned n)
{
    b->agent.passed_ms -= n * b->agent.config.job->heartbeat_timeout_ms;
}

static void ask_with(struct bed *b, const char *op, json_t *body)
{
    _buf_ struct buf text = {0};
    struct jsonw reply = jsonw_start(&text);
    struct error e = {0};

    jsonw_object(&reply, NULL);
    if (agent_on_control(&b->agent, op, body, &reply, &e) < 0) {
        bail_out("%s: %s", op, e.text);
    }
    json_decref(body);
}

static void ask(struct bed *b, const char *op)
{
    ask_with(b, op, json_object());
}

static void test_notice(struct bed *b)
{
    struct agent *a = &b->agent;

    agent_notice(a);
    is_str(heard(b), "", "a signal to mpirun before there is a job");
    a->has_config = true;
    agent_ask_late(a);
    is_str(heard(b), "", "is none of ours where we run mpirun");
    a->config.by_hand = true;
    agent_ask_late(a);
    is_str(heard(b), "notice", "else it is told once there is one");
    agent_notice(a);
    is_str(heard(b), "notice", "as another one is at once");
    is_str(heard_again(b), "notice", "and each later lead");
    a->is_noticed = false;
    is_str(heard_again(b), "", "where there was none nothing is");
}

static void test_requests(struct bed *b)
{
    ask(b, "checkpoint");
    is_str(heard(b), "checkpoint", "what a command asks for");
    is_str(heard_again(b), "checkpoint", "the next lead is asked for");
    pass_leases(b, 3);
    is_str(heard_again(b), "", "but not long after");
    ask(b, "cancel");
    pass_leases(b, 3);
    is_str(heard_again(b), "cancel cancel", "where the run ends by it also then");
    ask(b, "checkpoint");
    is_str(heard(b), "checkpoint", "it may be asked for more");
    is_str(heard_again(b), "cancel", "which counts for less than its end");
    ask(b, "preempt");
    is_str(heard_again(b), "preempt preempt", "a later one takes the place of that");
    ask_with(b, "checkpoint", json_pack("{s:s}", "id", "a1"));
    is_str(heard(b), "checkpoint a1", "who waits for it is told, too");
}

int main(void)
{
    static struct bed b;
    char dir[PATH_MAX];

    make(&b);
    test_notice(&b);
    test_requests(&b);
    snprintf(dir, sizeof(dir), "%s", b.agent.run.dir);
    buf_release(&b.agent.passed);
    buf_release(&b.heard);
    lead_bed_release(&b.agent);
    fs_remove_tree(dir, NULL);
    return tap_done();
}
