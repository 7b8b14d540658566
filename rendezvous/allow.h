/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may connect to a server without authentication: hosts, by their numeric
 * addresses. An empty list, as zero-initialised, allows nobody.
 */
#ifndef MUSTER_RENDEZVOUS_ALLOW_H
#define MUSTER_RENDEZVOUS_ALLOW_H

#include "base/error.h"
#include "base/str.h"

#include <stdbool.h>
#include <stddef.h>

struct allow {
    bool all;
    struct strlist addresses; /* canonical texts, sorted */
};

void allow_release(struct allow *a);

/* Replaces the list; "*" allows everybody. On failure (-EINVAL: no address,
 * -ENOMEM) the old one stays. */
int allow_set(struct allow *a, const char *const *addresses, size_t n,
              struct error *e);

/* `peer` as of addr_format(). */
bool allow_has(const struct allow *a, const char *peer);

#endif
