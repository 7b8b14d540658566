/* SPDX-License-Identifier: Apache-2.0 */
/* The names of the contract, as contract.c lists them and contract_env.c sets
 * them. */
#ifndef MUSTER_LAUNCHER_CONTRACT_PRIV_H
#define MUSTER_LAUNCHER_CONTRACT_PRIV_H

#include "launcher/contract.h"

#include "base/buf.h"

enum policy {
    OWNED,      /* always muster's; a warning where that overrides the job */
    QUIET,      /* always muster's; nobody sets it on purpose */
    DEFAULTED,  /* only where it is unset */
};

/* Builds one value in `b`; false leaves the name unset. */
typedef bool value_f(const struct contract_facts *f, struct buf *b);

struct contract_entry {
    const char *name;
    enum policy policy;
    value_f *value;
};

struct contract_table {
    const struct contract_entry *entries;
    size_t n;
};

extern const struct contract_table contract_names;
extern const struct contract_table contract_slurm_names; /* in a Slurm job */

#endif
