/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many workers each host of a run has, where the list of hosts or Slurm says so.
 * The front end tells all agents the whole list, and each finds itself in it: by a
 * name of its own, else by an address, else by its place. Pure.
 */
#ifndef MUSTER_LAUNCHER_SLOTS_H
#define MUSTER_LAUNCHER_SLOTS_H

#include "base/str.h"
#include "launcher/hosts.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* "NAME:SLOTS" of each host, or "NAME" where nothing says, appended to `to`: those
 * first that are there, as agents of the first world are in that order. `absent`
 * may be NULL. Nothing where no host has slots. */
void slots_list(const struct host_list *hosts, const bool *absent,
                struct strlist *to);

/* What an agent knows of itself; all borrowed. */
struct slots_self {
    const char *host;            /* what the machine calls itself */
    const char *slurm_name;      /* what Slurm does, or NULL */
    const struct strlist *addrs; /* numeric */
    size_t place;                /* among the hosts of the run */
};

/* The slots of that agent's host: 0 where the list says none. False where it is not
 * in the list. */
bool slots_find(const struct strlist *list, const struct slots_self *self,
                uint32_t *ret);

#endif
