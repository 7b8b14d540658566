/* SPDX-License-Identifier: Apache-2.0 */
/* Devices of the device mapper with one target, by its own ioctls; needs root. */
#ifndef MUSTER_TESTS_LIB_DM_H
#define MUSTER_TESTS_LIB_DM_H

#include "base/error.h"

#include <stddef.h>
#include <stdint.h>

/* Makes the device of that name, as long as `sectors` of 512 bytes, and writes its path
 * to `ret_path`. */
int dm_create(const char *name, uint64_t sectors, const char *target,
              const char *params, char *ret_path, size_t size, struct error *e);
int dm_remove(const char *name, struct error *e);

/* Tells its target something. */
int dm_message(const char *name, const char *text, struct error *e);

#endif
