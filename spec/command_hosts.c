/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hosts that a launcher names, each with so many slots: they are those of the run,
 * as --hosts gives them, unless that does. mpirun fills them: as many processes on
 * each as it has slots until all have a place, or, by node, one on each in turn, as long
 * as it has slots; who gets none is left out.
 */
#include <config.h>

#include "spec/command.h"

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/str.h"
#include "spec/value.h"

#include <string.h>

enum { MAX_HOSTS = 8192, MAX_SLOTS = 1024 };

struct slots {
    const char *name;
    uint64_t n;
};

struct slots_list {
    struct slots *items; /* of the arena */
    size_t n;
};

/* --- reading --- */

static bool is_name(const char *s, size_t len)
{
    return len > 0 && s[0] != '-' &&
           strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                     "0123456789.-_") >= len;
}

/* One HOST[:SLOTS]; one slot where it says none. */
static bool read_item(struct arena *a, const char *item, size_t len,
                      struct slots *ret)
{
    const char *colon = memchr(item, ':', len);
    size_t n_name = colon ? (size_t)(colon - item) : len;
    char text[16] = "1";

    if (colon) {
        len -= n_name + 1;
        str_copy(text, len < sizeof(text) ? len + 1 : sizeof(text), colon + 1);
    }
    if (!is_name(item, n_name) || (colon && len >= sizeof(text)) ||
        value_count(text, &ret->n) < 0 || ret->n < 1 || ret->n > MAX_SLOTS) {
        return false;
    }
    ret->name = arena_printf(a, "%.*s", (int)n_name, item);
    return ret->name;
}

/* One that is named again has more slots. */
static void add(struct slots_list *l, const struct slots *one)
{
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->items[i].name, one->name) == 0) {
            l->items[i].n += one->n;
            return;
        }
    }
    l->items[l->n++] = *one;
}

static bool read_list(struct command *cmd, const struct launcher_hit *hit,
                      struct slots_list *l)
{
    const char *s = hit->values[0]->text;
    size_t n = 1;

    for (const char *p = s; *p; p++) {
        n += *p == ',';
    }
    l->items = n <= MAX_HOSTS
                   ? arena_alloc(cmd->c->arena, n * sizeof(*l->items)) : NULL;
    while (l->items) {
        size_t len = strcspn(s, ",");
        struct slots one;

        if (!read_item(cmd->c->arena, s, len, &one)) {
            break;
        }
        add(l, &one);
        if (!s[len]) {
            return true;
        }
        s += len + 1;
    }
    report_error(cmd->c->report, &hit->values[0]->place,
                 "%.60s of %s is %.60s; expected HOST[:SLOTS],..., %d at most",
                 hit->node->text, cmd->launcher, hit->values[0]->text,
                 MAX_HOSTS);
    return false;
}

/* --- what it comes to --- */

static uint64_t count_slots(const struct slots_list *l)
{
    uint64_t n = 0;

    for (size_t i = 0; i < l->n; i++) {
        n += l->items[i].n;
    }
    return n;
}

/* How many hosts have more than `level` slots, and how many the first that is full then. */
static uint64_t count_above(const struct slots_list *l, uint64_t level, uint64_t *ret_full)
{
    uint64_t n = 0;

    *ret_full = UINT64_MAX;
    for (size_t i = 0; i < l->n; i++) {
        if (l->items[i].n > level) {
            n++;
            *ret_full = l->items[i].n < *ret_full ? l->items[i].n : *ret_full;
        }
    }
    return n;
}

/* One on each host that has a slot left, and again, until `left` have one. */
static void fill_in_turn(struct slots_list *l, uint64_t left)
{
    uint64_t level = 0, full, n;

    while ((n = count_above(l, level, &full)) > 0 && n <= left) {
        uint64_t rounds = left / n < full - level ? left / n : full - level;

        level += rounds;
        left -= rounds * n;
    }
    for (size_t i = 0; i < l->n; i++) {
        struct slots *one = &l->items[i];

        if (one->n > level) {
            one->n = level + (left > 0);
            left -= left > 0;
        }
    }
}

/* All slots of one host after the other. */
static void fill_up(struct slots_list *l, uint64_t left)
{
    for (size_t i = 0; i < l->n; i++) {
        struct slots *one = &l->items[i];

        one->n = one->n < left ? one->n : left;
        left -= one->n;
    }
}

/* More than there are slots for. */
static void fill_over(struct slots_list *l, uint64_t total)
{
    for (size_t i = 0; i < l->n; i++) {
        l->items[i].n = total / l->n + (i < total % l->n);
    }
}

/* Places for `total` processes, and no others. */
static void fill(struct slots_list *l, uint64_t total, bool is_even)
{
    if (total > count_slots(l)) {
        fill_over(l, total);
    } else if (is_even) {
        fill_in_turn(l, total);
    } else {
        fill_up(l, total);
    }
    while (l->n && !l->items[l->n - 1].n) {
        l->n--;
    }
}

static uint64_t same_slots(const struct slots_list *l)
{
    for (size_t i = 1; i < l->n; i++) {
        if (l->items[i].n != l->items[0].n) {
            return 0;
        }
    }
    return l->items[0].n;
}

/* As --hosts has them. */
static const char *text_of(struct command *cmd, const struct slots_list *l)
{
    _buf_ struct buf b = {0};

    for (size_t i = 0; i < l->n; i++) {
        buf_printf(&b, "%s%s:%llu", i ? "," : "", l->items[i].name,
                   (unsigned long long)l->items[i].n);
    }
    return arena_strdup(cmd->c->arena, buf_str(&b));
}

static bool is_open(const struct command *cmd, const char *key)
{
    const struct node *n = node_get(cmd->tree, key);

    return !n || node_is_null(n);
}

static void set(struct command *cmd, const struct launcher_hit *hit,
                const char *key, uint64_t v)
{
    node_set(cmd->c->arena, cmd->tree, key, command_number(cmd, hit, v));
}

static void name_hosts(struct command *cmd, const struct launcher_hit *hit,
                       const char *hosts)
{
    *cmd->c->hosts = hosts;
    report_note(cmd->c->report, &hit->node->place,
                "%.60s of %s names the hosts, as --hosts %.200s would",
                hit->node->text, cmd->launcher, hosts ? hosts : "");
}

bool command_settle_hosts(struct command *cmd, const struct launcher_hit *hit,
                          bool is_even)
{
    bool has_nodes = !is_open(cmd, "nodes");
    bool has_procs = !is_open(cmd, "procsPerNode");
    struct slots_list l = {0};
    uint64_t total, same;

    if (command_is_unexpanded(cmd, hit, hit->values[0])) {
        return true;
    }
    if (!read_list(cmd, hit, &l) || !command_total(cmd, &total)) {
        return false;
    }
    if (total && !has_nodes && !has_procs) {
        fill(&l, total, is_even);
        cmd->total.option = NULL;
        total = 0;
    }
    same = same_slots(&l);
    if (!has_nodes && !total) {
        set(cmd, hit, "nodes", l.n);
    }
    if (!has_procs && !total && same) {
        set(cmd, hit, "procsPerNode", same);
    }
    name_hosts(cmd, hit, text_of(cmd, &l));
    return true;
}
