/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/rank_meet.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Its first word, of a line of its own, and the version of all that follows. */
static const char head[] = "muster-meeting 1";

enum { MAX_NODES = 1 << 20 };

void meet_list_release(struct meet_list *l)
{
    free(l->nodes);
    *l = (struct meet_list){0};
}

bool meet_list_add(struct meet_list *l, const struct meet_node *node)
{
    uint32_t at = l->n;
    struct meet_node *nodes;

    while (at && l->nodes[at - 1].rank > node->rank) {
        at--;
    }
    if ((at && l->nodes[at - 1].rank == node->rank) || l->n >= MAX_NODES) {
        return false;
    }
    nodes = reallocarray(l->nodes, l->n + 1, sizeof(*nodes));
    if (!nodes) {
        return false;
    }
    l->nodes = nodes;
    memmove(nodes + at + 1, nodes + at, (l->n - at) * sizeof(*nodes));
    nodes[at] = *node;
    l->n++;
    return true;
}

uint64_t meet_list_ranks(const struct meet_list *l)
{
    uint64_t n = 0;

    for (uint32_t i = 0; i < l->n; i++) {
        n += l->nodes[i].n_ranks;
    }
    return n;
}

void meet_list_print(const struct meet_list *l, struct buf *to)
{
    buf_printf(to, "%s %s %u\n", head, l->addr[0] ? l->addr : "-",
               (unsigned)l->port);
    for (uint32_t i = 0; i < l->n; i++) {
        const struct meet_node *n = &l->nodes[i];

        buf_printf(to, "%u %u %016llx %016llx\n", (unsigned)n->rank,
                   (unsigned)n->n_ranks, (unsigned long long)n->nonce,
                   (unsigned long long)n->daemon);
    }
    buf_printf(to, "end\n");
}

static int parse_head(const char *line, struct meet_list *l)
{
    char addr[ADDR_MAX];
    struct sockaddr_storage sa;
    int used = 0;

    /* The number is at the width of the buffer. */
    _Static_assert(ADDR_MAX == 64, "width of the address");
    if (strncmp(line, head, sizeof(head) - 1) != 0 ||
        sscanf(line + sizeof(head) - 1, " %63s %hu%n", addr, &l->port,
               &used) != 2 || line[sizeof(head) - 1 + (size_t)used] != '\n') {
        return -ERR_FORMAT;
    }
    if (strcmp(addr, "-") != 0) {
        str_copy(l->addr, sizeof(l->addr), addr);
        return addr_parse(addr, l->port, &sa, NULL) < 0 ? -ERR_FORMAT : 0;
    }
    return 0;
}

static int parse_node(const char *line, struct meet_list *l)
{
    unsigned long long nonce, daemon;
    struct meet_node n;
    int used = 0;

    if (sscanf(line, "%u %u %16llx %16llx%n", &n.rank, &n.n_ranks, &nonce,
               &daemon, &used) != 4 || line[used] != '\n' || !n.n_ranks) {
        return -ERR_FORMAT;
    }
    n.nonce = nonce;
    n.daemon = daemon;
    if (l->n && n.rank <= l->nodes[l->n - 1].rank) {
        return -ERR_FORMAT;
    }
    return meet_list_add(l, &n) ? 0 : -ENOMEM;
}

int meet_list_parse(const char *text, struct meet_list *ret)
{
    _meet_list_ struct meet_list l = {0};
    const char *at = strchr(text, '\n');
    int rc = at ? parse_head(text, &l) : -ERR_FORMAT;

    while (rc == 0 && strcmp(++at, "end\n") != 0) {
        rc = strchr(at, '\n') ? parse_node(at, &l) : -ERR_FORMAT;
        at = strchr(at, '\n');
    }
    if (rc == 0) {
        *ret = l;
        l = (struct meet_list){0};
    }
    return rc;
}
