/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are made once, by whoever of several comes first. */
#ifndef MUSTER_BASE_FS_NEW_H
#define MUSTER_BASE_FS_NEW_H

#include "base/error.h"

#include <stddef.h>

/* As fs_write_atomic() (base/fs.h), where there is no such file: else -EEXIST, and it is
 * as it was. */
int fs_write_new(const char *path, const void *data, size_t len, struct error *e);

#endif
