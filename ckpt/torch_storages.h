/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The storages that a pickle of torch.save names, each by what it hands to
 * persistent_load(): ('storage', class, key, place, how many elements, ...). A tuple that
 * only looks so is data like any other.
 */
#ifndef MUSTER_CKPT_TORCH_STORAGES_H
#define MUSTER_CKPT_TORCH_STORAGES_H

#include "base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct torch_storage {
    const char *key; /* in the pickle's bytes, without a zero byte behind it */
    size_t len;
    unsigned element; /* bytes; 0: its class is none that is known */
    bool has_n;       /* it says how many elements there are */
    uint64_t n;
};

/* Each in order; one that is shared comes more than once. Else as pickle_values(). */
int torch_storages(const void *pickle, size_t len,
                   int (*each)(void *arg, const struct torch_storage *s), void *arg,
                   struct error *e);

#endif
