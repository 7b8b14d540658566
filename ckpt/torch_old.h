/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files of torch.save as before PyTorch 1.6, and on demand since, and plain pickles.
 * They have no checksums; looked at without running what is in them.
 */
#ifndef MUSTER_CKPT_TORCH_OLD_H
#define MUSTER_CKPT_TORCH_OLD_H

#include "base/error.h"
#include "ckpt/io.h"

#include <stdint.h>

/* What they begin with in protocols 0 and 1, which have no sign of their own. */
#define TORCH_OLD_LINE "L119547037146038801333356L\n"

/* A file of so many bytes, at least one, that begins as a pickle. Of one of torch.save
 * the length must be just what its storages take, where their types are known; of
 * another the first pickle must be whole. 0; -ERR_FORMAT: it is cut, or no pickle;
 * -ENOMEM; errors of reading. */
int torch_old_check(struct io *io, int fd, uint64_t bytes, struct error *e);

#endif
