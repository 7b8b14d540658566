/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the parts share. Private to copy*.c.
 *
 *   copy.c        what other programs have written
 *   copy_same.c   what is there already
 *   copy_step.c   muster's own
 */
#ifndef MUSTER_CKPT_COPY_PRIV_H
#define MUSTER_CKPT_COPY_PRIV_H

#include "ckpt/copy.h"

/* A file that is not there yet; it is on the disk, its name is not. */
int copy_file(struct io *io, int from, const char *name, int to,
              const char *to_name, struct error *e);
/* One that is not there whole. */
int copy_step(struct io *io, int from, const char *name, int to,
              struct found_facts *ret, struct error *e);

#endif
