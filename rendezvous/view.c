/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/view.h"

#include "rendezvous/mutant.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MAX_NODES 65536

void view_release(struct view *v)
{
    free(v->out);
    *v = (struct view){0};
}

int view_copy(struct view *to, const struct view *from)
{
    uint32_t *out = from->out ? calloc(from->n_out + 1u, sizeof(*out)) : NULL;

    if (from->out && !out) {
        return -ENOMEM;
    }
    view_release(to);
    *to = *from;
    to->out = out;
    if (out) {
        memcpy(out, from->out, from->n_out * sizeof(*out));
    }
    return 0;
}

bool view_has(const struct view *v, uint32_t rank)
{
    uint32_t low = 0, high = v->n_out;

    while (low < high) {
        uint32_t mid = low + (high - low) / 2;

        if (v->out[mid] == rank) {
            return false;
        }
        if (v->out[mid] < rank) {
            low = mid + 1;
        } else {
            high = mid;
        }
    }
    return rank < v->n_nodes;
}

int view_set(struct view *v, const bool *in, uint32_t n)
{
    uint32_t *out = calloc(n + 1u, sizeof(*out));

    if (!out) {
        return -ENOMEM;
    }
    free(v->out);
    v->out = out;
    v->n_out = 0;
    v->n_nodes = n;
    for (uint32_t i = 0; i < n; i++) {
        if (!in[i]) {
            out[v->n_out++] = i;
        }
    }
    return 0;
}

void view_put(struct buf *b, const struct view *v)
{
    wire_put_u32(b, v->number);
    wire_put_u32(b, v->lead);
    wire_put_u8(b, v->shared);
    wire_put_u32(b, v->n_nodes);
    wire_put_u32(b, v->n_out);
    for (uint32_t i = 0; i < v->n_out; i++) {
        wire_put_u32(b, v->out[i]);
    }
}

int view_get(struct wire_reader *r, struct view *v)
{
    uint32_t next = 0;
    uint8_t shared;

    v->number = wire_get_u32(r);
    v->lead = wire_get_u32(r);
    shared = wire_get_u8(r);
    v->shared = shared;
    v->n_nodes = wire_get_u32(r);
    v->n_out = wire_get_u32(r);
    /* Never allocate more than the message can fill. */
    if (shared > 1 || v->lead >= MAX_NODES || v->n_nodes > MAX_NODES ||
        v->n_out > (r->len - r->at) / 4) {
        v->n_out = 0;
        r->bad = true;
        return 0;
    }
    v->out = v->n_out ? calloc(v->n_out, sizeof(*v->out)) : NULL;
    if (v->n_out && !v->out) {
        return -ENOMEM;
    }
    for (uint32_t i = 0; i < v->n_out; i++) {
        v->out[i] = wire_get_u32(r);
        r->bad = r->bad || v->out[i] < next || v->out[i] >= v->n_nodes;
        next = v->out[i] + 1;
    }
    return 0;
}

uint32_t view_next_number(uint32_t number, uint32_t rank, bool shared)
{
    return shared ? number + 1 : ((number >> 16) + 1) << 16 | rank;
}

static bool is_first_agent(const struct view_rule *rule, uint32_t rank)
{
    return !rule->node_of || rule->node_of[rank] == rank;
}

/* Whether every agent of the node of `rank` that is a member is in. */
static bool is_whole(const struct view_rule *rule, const struct view *v,
                     const bool *in, uint32_t rank)
{
    if (!in[rank] || !view_has(v, rank)) {
        return false;
    }
    for (uint32_t i = rank + 1; rule->node_of && i < v->n_nodes; i++) {
        if (rule->node_of[i] == rank && (!in[i] || !view_has(v, i))) {
            return false;
        }
    }
    return true;
}

static uint32_t count_nodes(const struct view_rule *rule, const struct view *v,
                            const bool *in)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < v->n_nodes; i++) {
        n += is_first_agent(rule, i) && is_whole(rule, v, in, i);
    }
    return n;
}

/* How many members there are, and the lowest of them. */
static uint32_t count_members(const struct view *v, uint32_t *ret_lowest)
{
    uint32_t n = 0;

    for (uint32_t i = v->n_nodes; i-- > 0;) {
        if (view_has(v, i)) {
            *ret_lowest = i;
            n++;
        }
    }
    return n;
}

bool view_may_go_on(const struct view_rule *rule, const struct view *v,
                    const bool *in)
{
    uint32_t n_in = 0, lowest = 0, n_members = count_members(v, &lowest);

    if (v->shared) {
        return rule->min_nodes && count_nodes(rule, v, in) >= rule->min_nodes;
    }
    /* Whether the job has enough nodes, newcomers among them, its lead will see. */
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        n_in += in[i] && view_has(v, i);
    }
    return n_in * 2 > n_members ||
           (n_in * 2 == n_members && n_in && (in[lowest] || MUTANT(110)));
}

uint32_t view_rival_size(const struct view_rule *rule, const struct view *v,
                         const bool *dead)
{
    uint32_t lowest = 0, n_members = count_members(v, &lowest), most = 0;
    uint32_t need = rule->min_nodes ? rule->min_nodes : n_members;

    if (!rule->on) {
        return VIEW_NO_SIDE;
    }
    for (uint32_t i = 0; i < v->n_nodes; i++) {
        most += i != v->lead && view_has(v, i) && !(dead && dead[i]);
    }
    if (!v->shared) {
        need = n_members / 2 + (n_members % 2 || lowest == v->lead || MUTANT(110));
    }
    return need > most ? VIEW_NO_SIDE : need;
}
