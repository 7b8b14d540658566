/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/roster.h"

#include "base/build.h"
#include "base/cleanup.h"
#include "base/wire.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define ROSTER_FORMAT 2
/* The least that an entry takes, encoded: bounds allocations by the message. */
#define ENTRY_MIN_BYTES (4 * 4 + 2 * 2 + 3 * 4)

void roster_release(struct roster *r)
{
    free(r->entries);
    *r = (struct roster){0};
}

/* Room for one more; doubles. */
static int grow(struct roster *r)
{
    size_t cap;
    void *more;

    if (r->n & (r->n - 1)) {
        return 0; /* only powers of two are full */
    }
    cap = r->n ? (size_t)r->n * 2 : 1;
    more = realloc(r->entries, cap * sizeof(*r->entries));
    if (!more) {
        return -ENOMEM;
    }
    r->entries = more;
    return 0;
}

int roster_add(struct roster *r, const struct roster_entry *entry)
{
    if (r->n >= ROSTER_MAX_NODES) {
        return -E2BIG;
    }
    if (grow(r) < 0) {
        return -ENOMEM;
    }
    r->entries[r->n] = *entry;
    r->entries[r->n].rank = r->n;
    r->entries[r->n].origin = r->n;
    r->n++;
    return 0;
}

/* Version and host come first in every format: who cannot read the rest can say
 * whose it is. */
static void put_entry(struct buf *b, const struct roster_entry *entry)
{
    wire_put_str(b, entry->version);
    wire_put_str(b, entry->host);
    wire_put_u32(b, entry->rank);
    wire_put_u32(b, entry->origin);
    wire_put_u32(b, entry->host_index);
    wire_put_u32(b, entry->slots);
    wire_put_u16(b, entry->port);
    wire_put_u16(b, entry->n_addrs);
    for (size_t i = 0; i < entry->n_addrs; i++) {
        wire_put_str(b, entry->addrs[i]);
    }
    wire_put_str(b, entry->boot_id);
}

static void get_entry(struct wire_reader *r, struct roster_entry *ret)
{
    *ret = (struct roster_entry){0};
    wire_get_str(r, ret->version, sizeof(ret->version));
    wire_get_str(r, ret->host, sizeof(ret->host));
    ret->rank = wire_get_u32(r);
    ret->origin = wire_get_u32(r);
    ret->host_index = wire_get_u32(r);
    ret->slots = wire_get_u32(r);
    ret->port = wire_get_u16(r);
    ret->n_addrs = wire_get_u16(r);
    if (ret->n_addrs > ROSTER_MAX_ADDRS || ret->rank >= ROSTER_MAX_NODES ||
        ret->origin >= ROSTER_MAX_NODES) {
        r->bad = true;
        ret->n_addrs = 0;
    }
    for (size_t i = 0; i < ret->n_addrs; i++) {
        wire_get_str(r, ret->addrs[i], sizeof(ret->addrs[i]));
    }
    wire_get_str(r, ret->boot_id, sizeof(ret->boot_id));
}

void roster_entry_encode(const struct roster_entry *entry, struct buf *b)
{
    wire_put_u8(b, ROSTER_FORMAT);
    put_entry(b, entry);
}

/* An entry of another format: from another muster, which it may name. */
static int refuse_format(struct wire_reader *r, struct error *e)
{
    char version[ROSTER_VERSION_BYTES], host[ROSTER_HOST_BYTES];

    wire_get_str(r, version, sizeof(version));
    wire_get_str(r, host, sizeof(host));
    if (r->bad || !version[0] || !host[0]) {
        return error_text(e, ERR_VERSION, "an agent of another version of "
                          "muster than this (%s): install the same one on all "
                          "hosts, muster and libexec/muster from one build",
                          build_name());
    }
    return error_text(e, ERR_VERSION, "muster is version %s on %s, and version "
                      "%s here: install the same one on all hosts, muster and "
                      "libexec/muster from one build", version, host,
                      build_name());
}

int roster_entry_decode(const void *data, size_t len, struct roster_entry *ret,
                        struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    struct roster_entry entry;
    uint8_t format = wire_get_u8(&r);

    if (r.bad) {
        return error_text(e, ERR_FORMAT, "empty roster entry");
    }
    if (format != ROSTER_FORMAT) {
        return refuse_format(&r, e);
    }
    get_entry(&r, &entry);
    if (!wire_done(&r)) {
        return error_text(e, ERR_FORMAT, "malformed roster entry of %zu bytes",
                          len);
    }
    *ret = entry;
    return 0;
}

void roster_encode(const struct roster *r, struct buf *b)
{
    wire_put_u8(b, ROSTER_FORMAT);
    wire_put_u32(b, r->n);
    for (uint32_t i = 0; i < r->n; i++) {
        put_entry(b, &r->entries[i]);
    }
}

int roster_decode(const void *data, size_t len, struct roster *ret,
                  struct error *e)
{
    struct wire_reader r = wire_reader(data, len);
    _roster_ struct roster roster = {0};
    uint8_t format = wire_get_u8(&r);
    uint32_t n;

    if (r.bad || format != ROSTER_FORMAT) {
        return error_text(e, r.bad ? ERR_FORMAT : ERR_VERSION, "a roster of "
                          "format %u, expected %d", format, ROSTER_FORMAT);
    }
    n = wire_get_u32(&r);
    if (n > ROSTER_MAX_NODES || n > (len - r.at) / ENTRY_MIN_BYTES) {
        r.bad = true;
    }
    for (uint32_t i = 0; i < n && !r.bad; i++) {
        struct roster_entry entry;
        uint32_t origin;

        get_entry(&r, &entry);
        origin = entry.origin;
        if (entry.rank != i || roster_add(&roster, &entry) < 0) {
            return error_text(e, ERR_FORMAT, "malformed roster: entry %u", i);
        }
        roster.entries[i].origin = origin;
    }
    if (!wire_done(&r)) {
        return error_text(e, ERR_FORMAT, "malformed roster of %zu bytes", len);
    }
    *ret = roster;
    roster = (struct roster){0};
    return 0;
}

/* For sorting: what the order of two agents depends on. */
struct place {
    const struct roster_entry *entry;
    uint32_t host; /* first appearance of its host */
};

static int by_host_name(const void *a, const void *b)
{
    const struct place *x = a;
    const struct place *y = b;
    int cmp = strcmp(x->entry->host, y->entry->host);

    if (cmp) {
        return cmp;
    }
    return x->entry->rank < y->entry->rank ? -1 : 1;
}

static int by_place(const void *a, const void *b)
{
    const struct place *x = a;
    const struct place *y = b;

    if (x->host != y->host) {
        return x->host < y->host ? -1 : 1;
    }
    if (x->entry->host_index != y->entry->host_index) {
        return x->entry->host_index < y->entry->host_index ? -1 : 1;
    }
    return x->entry->rank < y->entry->rank ? -1 : 1;
}

/* Entries by host name, each with the first appearance of its host: O(n log n)
 * without a hash table. NULL without memory. */
static struct place *places_by_name(const struct roster *r)
{
    struct place *places = calloc(r->n, sizeof(*places));

    if (!places) {
        return NULL;
    }
    for (uint32_t i = 0; i < r->n; i++) {
        places[i].entry = &r->entries[i];
    }
    qsort(places, r->n, sizeof(*places), by_host_name);
    for (uint32_t i = 0; i < r->n; i++) {
        bool same = i > 0 && !strcmp(places[i].entry->host,
                                     places[i - 1].entry->host);

        places[i].host = same ? places[i - 1].host : places[i].entry->rank;
    }
    return places;
}

int roster_sort(struct roster *r)
{
    _free_ struct place *places = NULL;
    struct roster_entry *sorted;

    if (r->n < 2) {
        return 0;
    }
    places = places_by_name(r);
    /* A power of two, as roster_add() expects it. */
    sorted = calloc((size_t)1 << (32 - __builtin_clz(r->n - 1)),
                    sizeof(*sorted));
    if (!places || !sorted) {
        free(sorted);
        return -ENOMEM;
    }
    qsort(places, r->n, sizeof(*places), by_place);
    for (uint32_t i = 0; i < r->n; i++) {
        sorted[i] = *places[i].entry;
        sorted[i].origin = sorted[i].rank;
        sorted[i].rank = i;
    }
    free(r->entries);
    r->entries = sorted;
    return 0;
}

static int check_entry(const struct roster_entry *entry, struct error *e)
{
    if (!entry->host[0]) {
        return error_text(e, EINVAL, "agent %u has no host name", entry->rank);
    }
    if (entry->n_addrs == 0 || entry->port == 0) {
        return error_text(e, EINVAL,
                          "agent %u on %s has no address to be reached at",
                          entry->rank, entry->host);
    }
    if (entry->slots == 0) {
        return error_text(e, EINVAL, "agent %u on %s has no slots", entry->rank,
                          entry->host);
    }
    return 0;
}

static int by_identity(const void *a, const void *b)
{
    const struct roster_entry *const *x = a;
    const struct roster_entry *const *y = b;
    int cmp = strcmp((*x)->host, (*y)->host);

    if (!cmp) {
        cmp = strcmp((*x)->boot_id, (*y)->boot_id);
    }
    if (!cmp && (*x)->host_index != (*y)->host_index) {
        cmp = (*x)->host_index < (*y)->host_index ? -1 : 1;
    }
    return cmp;
}

static int check_duplicates(const struct roster *r, struct error *e)
{
    _free_ const struct roster_entry **all = calloc(r->n, sizeof(*all));
    uint32_t n = 0;

    if (!all) {
        return error_set(e, ENOMEM, "roster of %u", r->n);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        if (!roster_is_absent(&r->entries[i])) {
            all[n++] = &r->entries[i];
        }
    }
    qsort(all, n, sizeof(*all), by_identity);
    for (uint32_t i = 1; i < n; i++) {
        if (!by_identity(&all[i - 1], &all[i])) {
            return error_text(e, EEXIST, "agents %u and %u are the same: "
                              "number %u on %s", all[i - 1]->rank,
                              all[i]->rank, all[i]->host_index, all[i]->host);
        }
    }
    return 0;
}

int roster_check(const struct roster *r, struct error *e)
{
    const struct roster_entry *first = NULL;

    for (uint32_t i = 0; i < r->n; i++) {
        const struct roster_entry *entry = &r->entries[i];
        int rc = roster_is_absent(entry) ? 0 : check_entry(entry, e);

        if (rc < 0) {
            return rc;
        }
        if (roster_is_absent(entry)) {
            continue;
        }
        first = first ? first : entry;
        if (strcmp(entry->version, first->version)) {
            return error_text(e, ERR_VERSION, "muster is version %s on %s, "
                              "but version %s on %s: install the same one on "
                              "all hosts", first->version, first->host,
                              entry->version, entry->host);
        }
    }
    return r->n > 1 ? check_duplicates(r, e) : 0;
}

/* Where each entry goes; how many places there are then, or -EINVAL as above. */
static int64_t find_places(const struct roster *r, const uint32_t *ranks,
                           uint32_t n_known, uint32_t *places, struct error *e)
{
    _free_ bool *taken = calloc((size_t)n_known + 1, sizeof(*taken));
    uint32_t next = n_known;

    if (!taken) {
        return error_set(e, ENOMEM, "arrange %u members", r->n);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        if (ranks[i] == ROSTER_NO_RANK) {
            places[i] = next++;
            continue;
        }
        if (ranks[i] >= n_known || taken[ranks[i]]) {
            return error_text(e, EINVAL, "%s has been number %u of the run, "
                              "which %s", r->entries[i].host, ranks[i],
                              ranks[i] < n_known ? "another one was, too"
                                                 : "has not had so many");
        }
        taken[ranks[i]] = true;
        places[i] = ranks[i];
    }
    return next;
}

/* So many entries, none of them here. */
static int add_absent(struct roster *to, uint32_t n)
{
    static const struct roster_entry nobody = {0};

    for (uint32_t i = 0; i < n; i++) {
        if (roster_add(to, &nobody) < 0) {
            return -ENOMEM;
        }
    }
    return 0;
}

int roster_arrange(struct roster *r, const uint32_t *ranks, uint32_t n_known,
                   struct error *e)
{
    _free_ uint32_t *places = calloc(r->n + 1, sizeof(*places));
    _roster_ struct roster arranged = {0};
    struct roster old = *r;
    int64_t n;

    if (!places || n_known > ROSTER_MAX_NODES) {
        return error_set(e, ENOMEM, "arrange %u members", r->n);
    }
    n = find_places(r, ranks, n_known, places, e);
    if (n < 0) {
        return (int)n;
    }
    if (n > ROSTER_MAX_NODES || add_absent(&arranged, (uint32_t)n) < 0) {
        return error_set(e, ENOMEM, "arrange %u members", r->n);
    }
    for (uint32_t i = 0; i < r->n; i++) {
        arranged.entries[places[i]] = r->entries[i];
        arranged.entries[places[i]].origin = i;
        arranged.entries[places[i]].rank = places[i];
    }
    *r = arranged;
    arranged = old;
    return 0;
}
