/* SPDX-License-Identifier: Apache-2.0 */
#include <config.h>

#include "rendezvous/allow.h"

#include "base/addr.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void allow_release(struct allow *a)
{
    strlist_release(&a->addresses);
    a->all = false;
}

static int compare_texts(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

bool allow_has(const struct allow *a, const char *peer)
{
    return a->all ||
           (a->addresses.n > 0 &&
            bsearch(&peer, a->addresses.items, a->addresses.n, sizeof(char *),
                    compare_texts) != NULL);
}

static int add_address(struct strlist *to, const char *text, struct error *e)
{
    struct sockaddr_storage sa;
    char canonical[ADDR_MAX];
    int rc = addr_parse(text, 0, &sa, e);

    if (rc < 0) {
        return rc;
    }
    addr_format((struct sockaddr *)&sa, canonical, NULL);
    strlist_add(to, canonical);
    return 0;
}

int allow_set(struct allow *a, const char *const *addresses, size_t n,
              struct error *e)
{
    _strlist_ struct strlist list = {0};
    bool all = false;

    for (size_t i = 0; i < n; i++) {
        int rc = 0;

        if (strcmp(addresses[i], "*") == 0) {
            all = true;
        } else {
            rc = add_address(&list, addresses[i], e);
        }
        if (rc < 0) {
            return rc;
        }
    }
    if (list.failed) {
        return error_set(e, ENOMEM, "allowed addresses");
    }
    if (list.n > 0) {
        qsort(list.items, list.n, sizeof(char *), compare_texts);
    }
    strlist_release(&a->addresses);
    a->addresses = list;
    a->all = all;
    list = (struct strlist){0};
    return 0;
}
