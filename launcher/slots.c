/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "launcher/slots.h"

#include <string.h>

void slots_list(const struct host_list *hosts, const bool *absent,
                struct strlist *to)
{
    bool has_any = hosts_have_slots(hosts);

    for (int turn = 0; has_any && turn < 2; turn++) {
        for (size_t i = 0; i < hosts->n; i++) {
            const struct host *h = &hosts->items[i];

            if ((absent && absent[i]) != (turn > 0)) {
                continue;
            }
            strlist_addf(to, h->slots ? "%s:%u" : "%s", h->name, h->slots);
        }
    }
}

/* "node1" is "node1.example", whichever of the two was given. */
static bool is_name(const char *given, size_t len, const char *own)
{
    size_t own_len = own ? strlen(own) : 0;
    size_t n = len < own_len ? len : own_len;

    if (strspn(given, "0123456789.") >= len) {
        return false; /* an address */
    }
    return n && strncmp(given, own, n) == 0 &&
           (len == own_len || (len > n && given[n] == '.' &&
                               !strchr(own, '.')) ||
            (own_len > n && own[n] == '.' && !memchr(given, '.', len)));
}

static bool is_self(const char *given, size_t len,
                    const struct slots_self *self)
{
    if (is_name(given, len, self->host) ||
        is_name(given, len, self->slurm_name)) {
        return true;
    }
    for (size_t i = 0; self->addrs && i < self->addrs->n; i++) {
        const char *addr = self->addrs->items[i];

        if (strlen(addr) == len && strncmp(given, addr, len) == 0) {
            return true;
        }
    }
    return false;
}

bool slots_find(const struct strlist *list, const struct slots_self *self,
                uint32_t *ret)
{
    size_t at = self->place;
    const char *colon;
    uint64_t slots;

    for (size_t i = 0; i < list->n; i++) {
        const char *item = list->items[i];

        if (is_self(item, strcspn(item, ":"), self)) {
            at = i;
            break;
        }
    }
    if (at >= list->n) {
        return false;
    }
    colon = strchr(list->items[at], ':');
    *ret = colon && str_to_u64(colon + 1, &slots) == 0 &&
           slots <= HOSTS_MAX_SLOTS ? (uint32_t)slots : 0;
    return true;
}
