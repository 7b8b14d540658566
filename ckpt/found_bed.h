/* SPDX-License-Identifier: Apache-2.0 */
/* For tests: a directory into which programs save. */
#ifndef MUSTER_CKPT_FOUND_BED_H
#define MUSTER_CKPT_FOUND_BED_H

#include <stddef.h>

enum { FOUND_BED_PATH_BYTES = 64 };

/* A new one: a descriptor of it, and its path. */
int found_bed_open(char path[FOUND_BED_PATH_BYTES]);
/* Removes it, and all in it. */
void found_bed_close(int dir, const char *path);

/* A file of those bytes, over one that is there. */
void found_bed_put(int dir, const char *name, const void *bytes, size_t len);

#endif
