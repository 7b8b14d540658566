/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/tree_bed.h"

#include "base/cleanup.h"
#include "base/wire.h"
#include "tests/lib/tap.h"

#include <stdio.h>
#include <string.h>

const uint8_t bed_key[CHANNEL_KEY_BYTES] = {3};

/* --- what members are told --- */

static void on_text(char *to, size_t size, const void *data, size_t len)
{
    snprintf(to, size, "%.*s", (int)len, (const char *)data);
}

static void on_config(void *ctx, uint64_t age_ms, const void *data, size_t len)
{
    struct node *n = ctx;

    n->age_ms = age_ms;
    n->n_configs++;
    on_text(n->config, sizeof(n->config), data, len);
}

static bool on_order(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;

    on_text(n->order, sizeof(n->order), data, len);
    return true;
}

static void on_word(void *ctx, const struct tree_word *word)
{
    struct node *n = ctx;

    if (word->age_ms == UINT64_MAX) {
        return;
    }
    n->n_words++;
    n->word_age = word->age_ms;
    n->word = *word;
}

static void on_seen(void *ctx, const struct tree_seen *below)
{
    struct node *n = ctx;

    n->n_words++;
    n->seen = *below;
}

static void on_top(void *ctx, bool top)
{
    ((struct node *)ctx)->top = top;
}

static void on_dead(void *ctx, uint32_t rank)
{
    ((struct node *)ctx)->dead[rank] = true;
}

static void on_follow(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;

    n->follows[((const char *)data)[0] - '0'] += len == 1;
}

static void on_unfollow(void *ctx, uint32_t rank)
{
    ((struct node *)ctx)->follows[rank] = 0;
}

static void on_uplink(void *ctx, bool up, const char *why)
{
    (void)why;
    ((struct node *)ctx)->n_uplinks += up;
}

static void on_refused(void *ctx, const char *why)
{
    struct node *n = ctx;

    str_copy(n->refused, sizeof(n->refused), why);
    n->n_refused++;
}

static void on_writable(void *ctx)
{
    ((struct node *)ctx)->blocked = false;
}

static void on_report(void *ctx, const void *data, size_t len)
{
    struct node *n = ctx;
    struct wire_reader r = wire_reader(data, len);

    uint32_t rank = wire_get_u32(&r) % BED_NODES;

    n->world->reports[rank]++;
    n->world->events_then[rank] = n->world->events[rank];
}

static void on_lost(void *ctx, uint32_t rank, const struct tree_loss *loss)
{
    struct node *n = ctx;

    n->world->lost[rank]++;
    n->world->loss[rank] = *loss;
}

static void on_here(void *ctx, uint32_t rank)
{
    struct node *n = ctx;

    n->world->here[rank]++;
}

static void on_event(void *ctx, uint32_t rank, const void *data, size_t len)
{
    (void)data;
    (void)len;
    ((struct node *)ctx)->world->events[rank]++;
}

static void on_request(void *ctx, const void *data, size_t len)
{
    (void)ctx;
    (void)data;
    (void)len;
}

static void on_drained(void *ctx)
{
    struct node *n = ctx;

    n->n_drained++;
}

static void on_ask(void *ctx, const void *json, size_t len)
{
    struct node *n = ctx;

    on_text(n->asked, sizeof(n->asked), json, len);
}

static const struct tree_ops ops = {
    .on_config = on_config, .on_order = on_order, .on_word = on_word,
    .on_uplink = on_uplink, .on_refused = on_refused,
    .on_writable = on_writable, .on_top = on_top, .on_dead = on_dead,
    .on_follow = on_follow, .on_unfollow = on_unfollow, .on_seen = on_seen,
    .on_report = on_report, .on_lost = on_lost, .on_here = on_here,
    .on_event = on_event, .on_request = on_request, .on_drained = on_drained,
    .on_ask = on_ask,
};

/* --- the world --- */

unsigned bed_lease_ms(void)
{
    return tap_valgrind() ? 4000 : 1200;
}

/* Who comes again has another port. */
static struct link_listener *listen_again(struct node *n)
{
    link_listen(&n->world->loop, true, &n->listener, NULL);
    n->world->roster.entries[n->rank].port = link_listener_port(n->listener);
    return n->listener;
}

void bed_join(struct world *w, uint32_t rank, const char *run_id)
{
    static char *const front[] = {(char *)"127.0.0.1", NULL};
    struct node *n = &w->nodes[rank];
    struct tree_config config = {
        .loop = &w->loop, .roster = &w->roster, .rank = rank,
        .arity = BED_ARITY, .lease_ms = bed_lease_ms(), .run_id = run_id,
        .version = w->version ? w->version : "v", .key = bed_key,
        .listener = n->listener ? n->listener : listen_again(n),
        .ops = &ops, .ctx = n,
        .front_addrs = w->front_port ? front : NULL,
        .front_port = w->front_port,
    };

    if (tree_create(&config, &n->tree, NULL) < 0) {
        bail_out("tree_create");
    }
}

void bed_report(struct world *w, uint32_t rank)
{
    _buf_ struct buf b = {0};

    wire_put_u32(&b, rank);
    tree_report(w->nodes[rank].tree, &b);
}

void bed_publish(struct world *w, const char *text)
{
    struct buf b = {.data = (char *)text, .len = strlen(text)};

    tree_publish_order(w->nodes[0].tree, &b);
}

void bed_open(struct world *w)
{
    memset(w, 0, sizeof(*w));
    uv_loop_init(&w->loop);
    for (uint32_t i = 0; i < BED_NODES; i++) {
        struct roster_entry entry = {.slots = 1, .n_addrs = 1,
                                     .host_index = i};

        w->nodes[i].world = w;
        w->nodes[i].rank = i;
        link_listen(&w->loop, true, &w->nodes[i].listener, NULL);
        entry.port = link_listener_port(w->nodes[i].listener);
        str_copy(entry.addrs[0], ROSTER_ADDR_BYTES, "127.0.0.1");
        str_copy(entry.host, sizeof(entry.host), "h");
        roster_add(&w->roster, &entry);
    }
}

void bed_leave(struct world *w, uint32_t rank)
{
    tree_close(w->nodes[rank].tree);
    link_listener_close(w->nodes[rank].listener);
    w->nodes[rank].tree = NULL;
    w->nodes[rank].listener = NULL;
}

void bed_close(struct world *w)
{
    for (uint32_t i = 0; i < BED_NODES; i++) {
        if (w->nodes[i].tree || w->nodes[i].listener) {
            bed_leave(w, i);
        }
    }
    uv_run(&w->loop, UV_RUN_DEFAULT);
    is_int(uv_loop_close(&w->loop), 0, "nothing is left on the loop");
    roster_release(&w->roster);
}

/* --- time --- */

static void on_deadline(uv_timer_t *t)
{
    ((struct world *)t->data)->timed_out = true;
}

/* Only wakes the loop. */
static void on_step(uv_timer_t *t)
{
    (void)t;
}

bool bed_run_until(struct world *w, bool (*until)(struct world *w))
{
    uv_timer_t deadline, step;

    w->timed_out = false;
    uv_timer_init(&w->loop, &deadline);
    uv_timer_init(&w->loop, &step);
    deadline.data = w;
    uv_timer_start(&deadline, on_deadline, 60000, 0);
    uv_timer_start(&step, on_step, 5, 5);
    while (!w->timed_out && !until(w)) {
        uv_run(&w->loop, UV_RUN_ONCE);
    }
    uv_close((uv_handle_t *)&deadline, NULL);
    uv_close((uv_handle_t *)&step, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    return !w->timed_out;
}

/* --- all of them --- */

static bool all_reported(struct world *w)
{
    for (int i = 0; i < BED_NODES; i++) {
        if (!w->reports[i]) {
            return false;
        }
    }
    return true;
}

static bool all_know(struct world *w)
{
    for (int i = 1; i < BED_NODES; i++) {
        if (strcmp(w->nodes[i].order, "order 1") != 0 ||
            strcmp(w->nodes[i].config, "config") != 0 ||
            !w->nodes[i].n_words) {
            return false;
        }
    }
    return true;
}

void bed_start_all(struct world *w)
{
    bed_open(w);
    for (uint32_t i = BED_NODES; i-- > 0;) {
        bed_join(w, i, "run");
        bed_report(w, i);
    }
    tree_publish_config(w->nodes[0].tree, BED_AGE_MS, "config", 6);
    bed_publish(w, "order 1");
    ok(bed_run_until(w, all_reported), "every report reaches the lead");
    ok(bed_run_until(w, all_know), "config, order and heartbeats reach all");
}
