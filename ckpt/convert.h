/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A checkpoint's tensors, each whole, as other programs read them: one safetensors
 * file, or a directory of several with an index, as Hugging Face libraries write it:
 *
 *   model-00001-of-00003.safetensors ...   or model.safetensors, where one does
 *   model.safetensors.index.json           {"metadata": {"total_size": N},
 *                                           "weight_map": {TENSOR: FILE}}
 *
 * It is on the disk, whole, under its name, or there is nothing of that name: it is
 * written as .NAME.muster-part, which whoever is killed leaves, and the next conversion
 * to that name takes away (but where directories cannot be locked: ckpt/dirlock.h).
 * Files are 0600, directories 0700.
 *
 * What safetensors files say of themselves in __metadata__ goes along.
 */
#ifndef MUSTER_CKPT_CONVERT_H
#define MUSTER_CKPT_CONVERT_H

#include "base/error.h"
#include "ckpt/contents.h"

#include <stdbool.h>
#include <stdint.h>

struct convert {
    const struct contents *from;
    uint64_t shard_bytes; /* at most so many of tensors in a file, but one tensor at
                             least; 0: no directory, a file */
    uint64_t piece_bytes; /* read at once; 0: 32 MiB */
    /* Bytes that are written, of how many. False: give up, -ECANCELED. May be NULL. */
    bool (*progress)(void *arg, uint64_t done, uint64_t of);
    void *arg;
};

struct convert_facts {
    size_t n_files;
    uint64_t bytes; /* of tensors */
};

/* Into `dir`, which is locked from then on until it is closed. -ENOTSUP: its tensors
 * are not known, and why; -EEXIST: there is something of that name; -EBUSY: somebody
 * else converts into that directory; -ERR_FORMAT: the checkpoint is damaged; others. */
int convert_run(const struct convert *c, int dir, const char *name,
                struct convert_facts *ret, struct error *e);

#endif
